//! The contract of a queue of I/Os, of one thread: several are under way, and what is over is taken.
//!
//! What holds on every provider:
//!
//! - A queue has memory for a number of I/Os, its depth, and never more under way.
//! - An I/O that was started comes back exactly once, cancelled or not, and its memory is the
//!   kernel's until then.
//! - A queue that goes cancels what is under way and waits for it; what has not come back after
//!   [`PATIENCE`] keeps its memory for ever, which is counted ([`Region::leaked`]).
//! - A completion names its I/O by slot and generation; one that is late hits nothing.
//!
//! What is NOT guaranteed: the order in which I/Os are over.
//!
//! [`Region::leaked`]: crate::memory::Region::leaked

use crate::{Error, contract::contract, counters::Counters, memory::Slice, wake::Waker};
use std::{
    io,
    num::NonZeroU64,
    time::{Duration, Instant},
};

/// How long a queue that goes waits for I/Os that it cancelled.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// One I/O, from when it was issued until it is finished.
#[derive(Debug, Clone, Copy)]
pub struct Issue {
    /// Where in a regular file it is.
    pub at: u64,
    /// When it was issued, if it belongs to the sample: ns since the run was made, and one more. As an `Instant` it
    /// would be stored in parts and copied as a whole at once, which makes the processor wait: 5 ns for each I/O.
    pub(super) since: Option<NonZeroU64>,
}

/// What became of an I/O.
#[derive(Debug)]
pub enum Outcome {
    /// It is over, and has read or written so many bytes.
    Moved(usize),
    /// It was cancelled before it moved anything.
    Cancelled,
    /// The system's answer.
    Failed(io::Error),
}

/// An I/O that is over, with its memory.
#[derive(Debug)]
pub struct Done {
    pub slice: Slice,
    pub issue: Issue,
    pub outcome: Outcome,
}

contract! {
    for Plain, Controls;
    /// An I/O that returns when it is over.
    pub(crate) trait Issues {
        /// Ends the waits of this thread, now and for ever.
        fn waker(&self) -> Waker;

        /// Makes one, of so many bytes as `buffer` has; at a place, if the device has places. Where nothing is there
        /// yet, it waits.
        fn issue(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> Outcome;
    }
}

/// What each I/O is for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A read or a write: the descriptor is looked up and the memory found each time.
    Plain,
    /// The same of a file and with memory that the ring knows.
    Registered,
    /// A control call of weir's own nothing device, which does nothing.
    Command,
    /// Nothing at all.
    NoOp,
}

/// What is wanted of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// I/Os under way at a time, at most; up to [`MOST_DEPTH`].
    pub depth: u32,
    /// What each is.
    pub operation: Operation,
    /// How often the completion queue is looked at before a wait enters the kernel, where a thread of the
    /// kernel submits; `None`: the calling thread submits.
    pub polls: Option<u32>,
}

/// More would not fit one submission queue.
pub const MOST_DEPTH: u32 = 16_384;

contract! {
    for RingQueue, AioQueue;
    /// A queue of I/Os.
    pub(crate) trait Queue {
        /// Makes the calling thread the one that uses it.
        ///
        /// # Errors
        /// With what was being done.
        fn begin(&mut self, calls: &Counters) -> Result<(), Error>;

        /// Ends a wait, now or the next one.
        fn waker(&self) -> Waker;

        /// How many more can be started now.
        fn room(&self) -> usize;

        /// How many are under way.
        fn outstanding(&self) -> usize;

        /// Starts one. It reaches the system with the next take, at the latest. What it needs first (a timer
        /// that is set) may enter the kernel, and is counted.
        ///
        /// # Panics
        /// If there is no room.
        fn start(&mut self, issue: Issue, calls: &Counters);

        /// Makes known to the system what was started, waits until so many are over, the time is, or a
        /// waker was used, and gives each that is over to `each`, with its bytes. Returns how many.
        ///
        /// # Errors
        /// What the system answered: the queue is of no more use.
        fn take(
            &mut self,
            at_least: usize,
            until: Option<Instant>,
            calls: &Counters,
            each: impl FnMut(Issue, Outcome, &[u8]),
        ) -> io::Result<usize>;

        /// Asks for everything under way to be cancelled; it comes by the next takes. To be asked again
        /// while something is under way.
        fn cancel_all(&mut self, calls: &Counters);

        /// What was obtained, to be stated beside every figure: name and value.
        fn granted(&self) -> Vec<(&'static str, String)>;
    }
}
