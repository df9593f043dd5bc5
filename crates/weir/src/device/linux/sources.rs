//! What each I/O under way reads from: one descriptor for all of them, or a timer of its own.
//!
//! A timer is a device of which every read takes as long as it is told to. It is set when the I/O is
//! issued (timerfd_settime(2), once, from now on), which is an entry into the kernel that every design
//! pays alike; a read of it waits until it has expired, and brings how often it did: once. Two reads that
//! wait at one timer would end together, so each I/O that may be under way has its own, named by the slice
//! that it reads into.
//!
//! Bounds: as many timers as slices, and a descriptor for each. A timer expires no earlier than it was set
//! to; how much later is the machine's affair (an interrupt, and in a virtual machine two exits).
//!
//! Origin: timerfd_create(2), Linux 2.6.25. It is read without a worker thread of io_uring since 6.10, where
//! a read that would wait is tried, polled for, and tried again.

use super::{Descriptor, cannot_open};
use crate::{Error, counters::Counters};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

/// What so many I/Os read from.
#[derive(Debug)]
pub(super) struct Sources {
    descriptor: Arc<Descriptor>,
    timers: Option<Timers>,
}

/// Timers, one for each slice.
#[derive(Debug)]
struct Timers {
    fds: Box<[TimerFd]>,
    /// When each is to expire, from when it is set.
    once: Expiration,
}

impl Sources {
    /// For I/Os into the slices 0 to `count` - 1.
    pub fn of(descriptor: &Arc<Descriptor>, count: u32) -> Result<Self, Error> {
        let timers = descriptor.delay.map(|delay| {
            let fds: nix::Result<Box<[TimerFd]>> = (0..count).map(|_| timer()).collect();
            Ok(Timers { fds: fds?, once: once(delay) })
        });
        let timers: nix::Result<_> = timers.transpose();
        let what = format!("timer for each of {count} I/Os");
        let timers = timers.map_err(|e| cannot_open(Path::new(&what), e.into()))?;
        Ok(Self { descriptor: Arc::clone(descriptor), timers })
    }

    /// Prepares what the next I/O into this slice reads from: a timer begins to run.
    #[inline]
    pub fn prepare(&self, slice: u32, calls: &Counters) {
        if let Some(timers) = &self.timers {
            calls.kernel_entries.one();
            set(&timers.fds[slice as usize], timers.once).expect("a timer that is open can be set");
        }
    }

    /// What an I/O into this slice reads from.
    #[inline]
    pub fn fd(&self, slice: u32) -> RawFd {
        match &self.timers {
            None => self.descriptor.raw(),
            Some(timers) => timers.fds[slice as usize].as_fd().as_raw_fd(),
        }
    }

    /// All of it, for a table of files.
    pub fn files(&self) -> Vec<RawFd> {
        match &self.timers {
            None => vec![self.descriptor.raw()],
            Some(timers) => timers.fds.iter().map(|timer| timer.as_fd().as_raw_fd()).collect(),
        }
    }

    /// The place in that table of what an I/O into this slice reads from.
    #[inline]
    pub fn place(&self, slice: u32) -> u32 {
        if self.timers.is_some() { slice } else { 0 }
    }
}

/// A timer that is not set. A read of it waits in its call.
pub(super) fn timer() -> nix::Result<TimerFd> {
    TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
}

/// How io_uring reads a timer on this kernel, by trying: a timer that is not set is read without waiting.
pub(super) fn on_a_ring(timer: &OwnedFd) -> &'static str {
    let mut expired = [0u8; 8];
    let part = libc::iovec { iov_base: expired.as_mut_ptr().cast(), iov_len: expired.len() };
    let read =
        // SAFETY: `part` names the eight bytes, and both outlive the call.
        unsafe { libc::preadv2(timer.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
    match (read, io::Error::last_os_error().raw_os_error()) {
        (-1, Some(libc::EOPNOTSUPP)) => {
            "read by worker threads of the kernel, since it cannot try a read of a timer (Linux 6.10 can): \
             slower by far"
        }
        _ => "tried, polled for, and tried again",
    }
}

/// Once, so long from when it is set. No time at all would stop the timer: that is one nanosecond.
pub(super) fn once(delay: Duration) -> Expiration {
    Expiration::OneShot(delay.max(Duration::from_nanos(1)).into())
}

/// Sets a timer, and forgets that it had expired.
#[inline]
pub(super) fn set(timer: &TimerFd, once: Expiration) -> nix::Result<()> {
    timer.set(once, TimerSetTimeFlags::empty())
}
