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

use super::{Completions, Entered, LONG, Ring, Token};
use crate::{counters::Counters, readiness::wake_event::WakeEvent, rio::Woken, wake::Waker};
use io_uring::{opcode, squeue, types};
use std::{
    io,
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
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What ends a wait in the ring.
#[derive(Debug)]
pub(crate) struct Alarm {
    shared: Arc<AlarmState>,
}

#[derive(Debug)]
struct AlarmState {
    wake_event: WakeEvent,
    /// Set by a [`Waker`] and cleared by the wait that it ended.
    asked: AtomicBool,
}

impl Alarm {
    /// An alarm that nobody has raised.
    ///
    /// # Errors
    /// What eventfd(2) answered.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Arc::new(AlarmState {
                wake_event: WakeEvent::new()?,
                asked: AtomicBool::new(false),
            }),
        })
    }

    /// What a program ends a wait with. [`Alarm::was_asked`] answers for it.
    pub fn waker(&self) -> Waker {
        let shared = Arc::clone(&self.shared);
        Waker::new(move || {
            shared.asked.store(true, Ordering::Release);
            shared.wake_event.signal();
        })
    }

    /// Ends a wait for a reason of the provider's own.
    pub fn raise(&self) {
        self.shared.wake_event.signal();
    }

    /// Whether a [`Waker`] was used since the last time this said so.
    #[inline]
    pub fn was_asked(&self) -> bool {
        self.shared.asked.load(Ordering::Relaxed)
            && self.shared.asked.swap(false, Ordering::Acquire)
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
                return Ok(Woken::Ready); // ended early, by `Alarm::raise`
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

    /// Sleeps although there are completions, until there are `enough`, the time is over, or a [`Waker`] was used.
    /// With `sleep_on` it may sleep on where none came in the time, until one does: something must be under way then.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    pub fn gather(
        &self,
        ring: &Ring,
        completions: &mut Completions,
        enough: u32,
        at_most: Duration,
        sleep_on: bool,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let began = Instant::now();
        let mut left = at_most;
        loop {
            if self.was_asked() {
                return Ok(Woken::ByWaker);
            }
            if completions.len() >= enough as usize || left.is_zero() {
                return Ok(Woken::Ready);
            }
            let slice = left.min(LOOK_AGAIN);
            counters.kernel_entries.one();
            ring.enter_gathering(0, enough, slice, if sleep_on { LONG } else { slice })?;
            let now = at_most.saturating_sub(began.elapsed());
            if left - now.min(left) < slice {
                // Enough, an alarm, or a signal: who waits looks what it was.
                return Ok(if self.was_asked() { Woken::ByWaker } else { Woken::Ready });
            }
            left = now;
        }
    }

    /// The two entries that arm the alarm, to be pushed together. Completions of both carry
    /// `token`; that of the second says that it must be armed again.
    pub fn entries(&self, token: Token) -> [squeue::Entry; 2] {
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
        let poll = opcode::PollAdd::new(types::Fd(self.shared.wake_event.fd()), events)
            .build()
            .user_data(token.user_data())
            .flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS);
        let end = opcode::Timeout::new(&raw const AT_ONCE).build().user_data(token.user_data());
        [poll, end]
    }

    /// Forgets past signals. To be called before it is armed again: a signal that comes in between
    /// sets it off at once.
    pub fn reset(&self) {
        self.shared.wake_event.clear();
    }
}
