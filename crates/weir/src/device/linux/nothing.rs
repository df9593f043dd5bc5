//! weir's own device that does nothing (`drivers/nothing`), as far as more is asked of it than reads.
//!
//! What it understands is in its `nothing.h`. It is known by what the kernel says of it (a miscellaneous device
//! of that name whose module has its parameters), never by a path; and once it is open, by its answer to a
//! question that no other driver would answer like that.
//!
//! Reads of it that take their time cannot be cancelled by io_uring; the device itself can, all that is
//! under way on an open file at once.
//!
//! Origin: ioctl(2); misc devices, linux/miscdevice.h.

use super::target::NOTHING;
use super::{Descriptor, outcome};
use crate::{
    Error, Unavailable,
    counters::Counters,
    device::{
        io::{Issues, Outcome},
        kind::{Direction, Kind},
    },
    wake::Waker,
};
use std::{io, os::fd::RawFd, path::Path, sync::Arc};

/// `struct nothing_settings`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Settings {
    completion: u32,
    dispatch: u32,
    bytes: u32,
    reserved: u32,
    delay_ns: u64,
}

const COMPLETIONS: [&str; 4] = ["inline", "timer", "work", "other-cpu"];
const DISPATCHES: [&str; 2] = ["parallel", "sequential"];

/// `_IOC` of most architectures: direction, size of the argument, the driver's magic, number.
const fn number(direction: u32, number: u32, size: usize) -> u32 {
    const MAGIC: u32 = 0xDE;
    direction << 30 | (size as u32) << 16 | MAGIC << 8 | number
}

/// The I/O that moves nothing; also the operation of IORING_OP_URING_CMD.
pub(super) const DO: u32 = number(0, 0, 0);
const GET: u32 = number(2, 1, size_of::<Settings>());
const CANCEL: u32 = number(0, 4, 0);

/// Whether a character device is it, by what sysfs says of its number. Nothing is opened.
pub(super) fn is_number(major: u32, minor: u32) -> bool {
    let device = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}"));
    device.is_ok_and(|device| device.ends_with("misc/nothing"))
        && ["completion", "dispatch", "bytes", "delay_ns"]
            .iter()
            .all(|name| Path::new("/sys/module/nothing/parameters").join(name).exists())
}

/// What it is set to; an error is the answer of another driver.
pub(super) fn settings(fd: RawFd) -> io::Result<Settings> {
    let mut settings = Settings { reserved: u32::MAX, ..Settings::default() };
    // SAFETY: GET names the size of the structure, which outlives the call; the driver was found to be the
    // one that writes no more than that.
    match unsafe { libc::ioctl(fd, libc::Ioctl::from(GET), &raw mut settings) } {
        0 if settings.reserved == 0 && settings.names().is_some() => Ok(settings),
        0 => Err(io::Error::other("it does not answer as that device does")),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Settings {
    fn names(&self) -> Option<(&'static str, &'static str)> {
        let completion = COMPLETIONS.get(self.completion as usize)?;
        Some((completion, DISPATCHES.get(self.dispatch as usize)?))
    }

    /// To be stated beside every figure: name and value.
    pub fn stated(&self) -> Vec<(&'static str, String)> {
        let (completion, dispatch) = self.names().expect("looked at when they came");
        vec![
            ("completion", completion.into()),
            ("dispatch", dispatch.into()),
            ("brings-bytes", self.bytes.to_string()),
            ("delay-ns", self.delay_ns.to_string()),
        ]
    }
}

/// Ends all that is under way on the open file, with ECANCELED.
pub(super) fn cancel_all(fd: RawFd) {
    // SAFETY: takes plain numbers.
    unsafe { libc::ioctl(fd, libc::Ioctl::from(CANCEL), 0) };
}

/// Opens it where it is. `what` names who needs it.
pub(super) fn open(what: &str) -> Result<Arc<Descriptor>, Unavailable> {
    let unavailable = |why: String| {
        let reason = format!(
            "only weir's own nothing device has a control call that is known to do nothing, and {why}"
        );
        let advice = "build and load its driver (drivers/nothing/README.md), as root";
        Unavailable::new(what, reason).advise(advice)
    };
    let path = Path::new(NOTHING);
    let other = || unavailable(format!("{NOTHING} is another device"));
    let judge = |found: &_| match found {
        super::Found::Nothing => Ok(Kind::Nothing),
        _ => Err(other().into()),
    };
    match Descriptor::judged(path, Direction::Read, judge) {
        Ok((descriptor, ..)) => Ok(Arc::new(descriptor)),
        Err(Error::Unavailable(reason)) => Err(reason),
        Err(error) => Err(unavailable(format!("it cannot be opened: {error}"))),
    }
}

/// Control calls that return when they are over.
#[derive(Debug)]
pub struct Controls(Arc<Descriptor>);

impl Controls {
    /// The name of what makes control calls.
    pub const PROVIDER: &'static str = "ioctl";

    /// Of the nothing device.
    pub fn of(descriptor: &Arc<Descriptor>) -> Self {
        Self(Arc::clone(descriptor))
    }

    /// Proves by one call that it runs here.
    pub fn availability(what: &'static str) -> Result<(), Unavailable> {
        match Self(open(what)?).issue(&mut [], 0, &Counters::default()) {
            Outcome::Moved(0) => Ok(()),
            other => Err(Unavailable::new(what, format!("a control call brought {other:?}"))),
        }
    }
}

impl Issues for Controls {
    fn waker(&self) -> Waker {
        let descriptor = Arc::clone(&self.0);
        Waker::new(move || descriptor.cancel_all())
    }

    /// Calls once, and waits until it is over.
    #[inline]
    fn issue(&self, _: &mut [u8], _: u64, calls: &Counters) -> Outcome {
        loop {
            calls.kernel_entries.one();
            // SAFETY: takes plain numbers; the descriptor is that of the nothing device, whose call moves
            // no memory.
            let answer = unsafe { libc::ioctl(self.0.raw(), libc::Ioctl::from(DO), 0) };
            if answer >= 0 {
                return Outcome::Moved(0);
            }
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if errno != libc::EINTR {
                return outcome(-i64::from(errno));
            }
        }
    }
}
