//! I/Os per second: every way of reading from a device, or of writing to one, behind one API.
//!
//! ```
//! use weir::device::{AnyDesign, Device, Reads};
//! use std::time::Duration;
//!
//! # if weir::device::availability().is_err() { return }
//! let device = Device::open("/dev/null", &[]).unwrap();
//! let running = Reads::of(&device)
//!     .length(4096)
//!     .ios(1000)
//!     .start(AnyDesign::parse("sync").unwrap(), |_thread| ())
//!     .unwrap();
//! assert!(running.wait_for(Duration::from_secs(10)), "1000 reads are soon over");
//! let report = running.stop();
//! assert!(report.failure.is_none());
//! assert_eq!(report.total().completed, 1000);
//! ```
//!
//! A device is opened for reading only, and only where that harms nothing ([`Device::open`]). Of a
//! regular file, block after block is read, from the beginning again at its end; of anything else,
//! what comes next. Or it is opened for writing only, where what is written is thrown away
//! ([`Device::open_for_writing`]): then each I/O of the same designs writes zeroes.
//!
//! Each I/O that was issued comes back, and is counted once as completed or failed, however the run
//! ends. A handler is made for each thread ([`Handler`]): it gets what each I/O brought, and, of a
//! sample of them, how long they took.
//!
//! Designs stand in folders by their mechanism (`plain`, `port`, `queue`), each beside the engine that does what all of
//! them do: a file has what it is and its options (`design!`), and what it alone decides.

#[forbid(unsafe_code)]
mod common;
#[forbid(unsafe_code)]
mod handler;
#[forbid(unsafe_code)]
pub(crate) mod io;
#[forbid(unsafe_code)]
mod job;
#[forbid(unsafe_code)]
pub(crate) mod kind;
#[forbid(unsafe_code)]
mod plain;
#[forbid(unsafe_code)]
mod port;
#[forbid(unsafe_code)]
mod positions;
#[forbid(unsafe_code)]
mod queue;
#[forbid(unsafe_code)]
mod reads;
#[forbid(unsafe_code)]
mod running;
#[forbid(unsafe_code)]
mod sampling;
#[forbid(unsafe_code)]
mod start;
#[forbid(unsafe_code)]
mod target;
#[forbid(unsafe_code)]
mod worker;

// What a file for an operating system supplies: what devices are called there, and which may be opened (`NAMES`,
// `is_of_this_process`); `Descriptor` (open, read, wait), `Plain` I/Os, the queues, and the completion port.
#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
use crate::absent as native;

pub use common::Errors;
pub use handler::Handler;
pub use job::Job;
pub use kind::{Direction, Kind, Names};
pub use reads::{DEFAULT_LENGTH, MOST_LENGTH, Reads};
pub use running::{Final, Running, ThreadFinal};
pub use target::{Device, MOST_DELAY, NAMES};
pub use worker::Worker;

pub use crate::design::{About, Contract};
use crate::{
    Error, Unavailable,
    design::{Sealed, designs},
    options::Options,
};
use handler::{Boxed, MakeHandler};

/// One way of issuing I/Os to a device. Only weir has designs: handlers are what programs bring along.
pub trait Design: Options + Sealed {
    /// What it is.
    const ABOUT: About;

    /// Replaces what is left to weir's choice by what it stands for here, so that the settings
    /// in effect say it.
    fn resolve(&mut self) {}

    /// The name of the provider that it runs on here.
    fn provider(&self) -> &'static str;

    /// What it asks a device for.
    fn wants(&self) -> Wants {
        Wants::Content
    }

    /// Whether its threads wait for each other at locks or condition variables, so that they enter the kernel
    /// (futex) where no counter of a contract counts it.
    fn parks_threads(&self) -> bool {
        false
    }

    /// Starts it.
    ///
    /// # Errors
    /// Whatever fails before the first I/O, with its cause and what to do.
    fn start<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error>;

    /// Whether it can run here, by trying.
    ///
    /// # Errors
    /// Why it cannot.
    fn availability(&self) -> Result<(), Unavailable>;
}

/// What a design asks a device for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// What there is to be read.
    Content,
    /// Nothing, whatever there is: it shows what an I/O costs without one.
    Nothing,
    /// Control calls that do nothing, of weir's own nothing device only: it takes no files.
    Calls,
}

designs! {
    Reads => Running<H>, Running<Boxed>, Running::with_handlers;
    {
        /// What it asks a device for.
        wants: Wants;
        /// Whether its threads wait for each other at locks or condition variables, so that they enter the
        /// kernel (futex) where no counter of a contract counts it.
        parks_threads: bool;
    }
    plain::Synchronous,
    plain::SynchronousEmpty,
    plain::Threads,
    port::OverlappedPool,
    port::Port,
    queue::Ring,
    queue::RingRegistered,
    queue::RingPolled,
    queue::Libaio,
    plain::Control,
    queue::UringCmd,
    queue::NoOp,
}

impl AnyDesign {
    /// Whether it can do this with a device: all read, and those write that read what there is.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn can(&self, direction: Direction) -> Result<(), Unavailable> {
        can(self.about().name, self.wants(), direction)
    }
}

/// Whether a design that wants this can do that with a device.
fn can(design: &str, wants: Wants, direction: Direction) -> Result<(), Unavailable> {
    let problem = match (direction, wants) {
        (Direction::Read, _) | (_, Wants::Content) => return Ok(()),
        (Direction::Write, Wants::Nothing) => "it moves no bytes, so it has no writes",
        (Direction::Write, Wants::Calls) => "it makes control calls, so it has no writes",
    };
    let what = format!("design {design}");
    Err(Unavailable::new(what, problem).advise("use the design sync, or read"))
}

/// Whether devices can be read here at all.
///
/// # Errors
/// Why not.
pub fn availability() -> Result<(), Unavailable> {
    native::Descriptor::availability()
}
