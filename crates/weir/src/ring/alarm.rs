//! Ending a wait in the ring from another thread.
//!
//! An eventfd is polled by the ring, and linked behind that poll is a timeout of no duration.
//! The poll alone would be one completion: a wait for 64 would sleep on. A timeout that fires
//! ends a wait whatever number it waits for (io_uring_enter(2) checks for that on every wake).
//! The poll is an exclusive one, because the kernel puts off waking a waiter for other kinds
//! until enough of them have come together.
//!
//! Not guaranteed by that: an alarm that goes off after a wait looked for it and before the
//! kernel began to wait is one completion like any other. A wait for one ends by it; a wait for
//! more looks again every [`LOOK_AGAIN`].

use super::{Completions, Entered, Ring, Token};
use crate::{counters::Counters, rio::Woken, wake::Waker};
use io_uring::{opcode, squeue, types};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// No time at all. Static, since the kernel reads it when the entry is submitted.
static AT_ONCE: types::Timespec = types::Timespec::new();

/// How long a wait for more than one completion may miss an alarm that went off just as it
/// began: 50 entries into the kernel a second at most, and only while next to nothing arrives.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What rings when a wait must end.
#[derive(Debug)]
pub(crate) struct Alarm {
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Bell {
    event: OwnedFd,
    /// Set by a [`Waker`] and cleared by the wait that it ended.
    asked: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        let one = 1u64;
        // SAFETY: writes the 8 bytes of a number that lives through the call. It can fail only
        // when 2^64 - 2 rings were never answered: then the event is pending anyway.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl Alarm {
    /// An alarm that nobody has rung.
    ///
    /// # Errors
    /// What eventfd(2) answered.
    pub fn new() -> io::Result<Self> {
        // SAFETY: makes a new descriptor, or answers -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just made this descriptor, and nobody else knows it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { bell: Arc::new(Bell { event, asked: AtomicBool::new(false) }) })
    }

    /// What a program ends a wait with. [`Alarm::was_asked`] answers for it.
    pub fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Waker::new(move || {
            bell.asked.store(true, Ordering::Release);
            bell.ring();
        })
    }

    /// Ends a wait for a reason of the provider's own.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Whether a [`Waker`] was used since the last time this said so.
    #[inline]
    pub fn was_asked(&self) -> bool {
        self.bell.asked.load(Ordering::Relaxed) && self.bell.asked.swap(false, Ordering::Acquire)
    }

    /// Waits until there are `at_least` completions, the time is over, or a [`Waker`] was used.
    /// It may end earlier, with fewer completions; never with none, unless it says so. Entries
    /// that are to be submitted must have been before.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    pub fn wait(
        &self,
        ring: &Ring,
        completions: &mut Completions,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let look_again = (at_least > 1).then_some(LOOK_AGAIN);
        let mut entered = None;
        loop {
            if self.was_asked() {
                return Ok(Woken::ByWaker);
            }
            let there = completions.len();
            if there >= at_least as usize {
                return Ok(Woken::Ready);
            }
            // The clock is not read on the plain wait for the next completion.
            let now = (deadline.is_some() || look_again.is_some()).then(Instant::now);
            let left = deadline.zip(now).map(|(end, now)| end.saturating_duration_since(now));
            if entered.is_some() && left == Some(Duration::ZERO) {
                return Ok(if there > 0 { Woken::Ready } else { Woken::TimedOut });
            }
            if entered == Some(Entered::Done) && there > 0 {
                return Ok(Woken::Ready); // ended early, by `Alarm::ring`
            }
            let slice = left.into_iter().chain(look_again).min();
            counters.kernel_entries.one();
            entered = Some(ring.enter(0, at_least, slice, false)?);
            // With completions there, the kernel does not say that the time was over.
            if look_again.is_some() && now.is_some_and(|began| began.elapsed() >= LOOK_AGAIN) {
                entered = Some(Entered::TimedOut);
            }
        }
    }

    /// The two entries that arm the alarm, to be pushed together. Completions of both carry
    /// `token`; that of the second says that it must be armed again.
    pub fn entries(&self, token: Token) -> [squeue::Entry; 2] {
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
        let poll = opcode::PollAdd::new(types::Fd(self.bell.event.as_raw_fd()), events)
            .build()
            .user_data(token.user_data())
            .flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS);
        let end = opcode::Timeout::new(&raw const AT_ONCE).build().user_data(token.user_data());
        [poll, end]
    }

    /// Forgets past rings. To be called before it is armed again: a ring that comes in between
    /// sets it off at once.
    pub fn reset(&self) {
        let mut rings = 0u64;
        // SAFETY: reads 8 bytes into a number that lives through the call. Where nobody rang it
        // fails with EAGAIN and changes nothing.
        unsafe { libc::read(self.bell.event.as_raw_fd(), (&raw mut rings).cast(), 8) };
    }
}
