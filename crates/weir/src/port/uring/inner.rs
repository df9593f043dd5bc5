//! What the leader does, and what any thread may: submit, close, drain.

use super::{
    biased::{Biased, Owner},
    state::{Ending, Filled, Outstanding, PortState},
};
use crate::{
    Error,
    counters::Counters,
    deadline::LastLook,
    gather::Gather,
    port::{
        Finished, Packet, Refused, Stopped, Token,
        arming::Arming,
        limit::{Limit, Member},
    },
    ring::{self, Alarm, Entered, Ring, TimeLeft, Wanted},
    rio::Batch,
    wake::Waker,
};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// What the threads of a port and those who may close it share.
pub(super) struct Inner<O> {
    pub ring: Arc<Ring>,
    /// There until the port goes. The lock is the thread's that takes, where there is one.
    pub state: Biased<Option<PortState<O>>>,
    /// Ends the leader's wait.
    pub alarm: Arc<Alarm>,
    pub limit: Limit,
    pub submit_after: u32,
}

/// How much of everything a port has.
pub(super) struct Numbers {
    pub packets: u32,
    /// Operations that may be cancelled at a time, for which room is kept.
    pub outstanding: u32,
    pub threads: u32,
    /// Of which so many run at a time.
    pub concurrency: u32,
    /// Entries that are submitted before what lies ready is taken.
    pub submit_after: u32,
}

impl<O: Outstanding> Inner<O> {
    /// Sets up the ring of a port. `what` names who needs it.
    pub fn open(
        what: &str,
        wanted: &Wanted,
        operations: O,
        numbers: &Numbers,
    ) -> Result<Arc<Self>, Error> {
        let (io, flags) = ring::set_up(what, wanted)?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling the ring of the completion port", e))?;
        let alarm = Alarm::new().map_err(|e| Error::io("making an eventfd for the port", e))?;
        let alarm = Arc::new(alarm);
        let Numbers { packets, outstanding, threads, concurrency, submit_after } = *numbers;
        let its = Arc::clone(&alarm);
        let state = PortState::new(submissions, completions, its, operations, packets, outstanding);
        let limit = Limit::new(concurrency, threads as usize);
        let state = Biased::new(Some(state), threads == 1);
        Ok(Arc::new(Self { ring, state, alarm, limit, submit_after }))
    }

    pub fn closer(self: &Arc<Self>) -> Waker
    where
        O: 'static,
    {
        let inner = Arc::clone(self);
        Waker::new(move || inner.close())
    }

    /// Closes, and takes back what is outstanding; the rest is given up.
    pub fn stop(&self, by: Instant, give_up: impl FnOnce() -> Option<(u32, u32)>) -> Stopped {
        self.close();
        let drained = self.drain(by);
        let (returned, missing) = give_up().expect("given up only here and in drop");
        Stopped { returned: drained + returned, missing }
    }

    /// For threads without a place, and where there may be no state any more.
    pub fn with_any<R>(&self, f: impl FnOnce(&mut Option<PortState<O>>) -> R) -> R {
        f(&mut self.state.lock())
    }

    /// For threads without a place.
    pub fn with<R>(&self, f: impl FnOnce(&mut PortState<O>) -> R) -> R {
        self.with_any(|state| f(there(state)))
    }

    /// Also after the port has gone: then it is closed already.
    pub fn close(&self) {
        self.tell(|state| state.closed = true);
        self.limit.close();
    }

    /// Changes what whoever leads must see. Nothing is done after the port has gone.
    pub fn tell(&self, change: impl FnOnce(&mut PortState<O>)) {
        let ring = self.with_any(|state| {
            state.as_mut().is_some_and(|state| {
                change(state);
                state.must_ring()
            })
        });
        if ring {
            self.alarm.raise();
        }
    }

    /// Puts a packet at the end of the queue.
    pub fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        let ring = self.with_any(|state| match state.as_mut().filter(|state| !state.closed) {
            Some(state) => match state.post(packet) {
                true => Ok(state.must_ring()),
                false => Err((packet, Refused::Full)),
            },
            None => Err((packet, Refused::Closed)), // also after the port has gone
        })?;
        if ring {
            counters.kernel_entries.one();
            self.alarm.raise();
        }
        Ok(())
    }

    /// Cancels what is in the kernel's hands and takes completions until nothing is, or until
    /// the time is over. Returns how many pieces of memory came back. The limit is closed and has no members,
    /// so this thread is alone.
    pub fn drain(&self, by: Instant) -> u32 {
        let counters = Counters::default();
        let mut out = Batch::new(64);
        let mut returned = 0;
        let mut give_back = |out: &mut Batch<O::Completion>| {
            returned += out.drain().filter(Finished::brings_memory).count() as u32;
        };
        self.with(PortState::forget_asked);
        let all = self.with(|state| {
            let all = state.operations.all_started();
            // Before the first is answered: a message of several sends is answered once, and none of them is to be sent now.
            all.iter().for_each(|&token| state.operations.is_cancelled(token));
            all
        });
        for token in all {
            self.with(|state| {
                state.cancel(Token(token.user_data()), &counters);
                state.reap(&mut out);
            });
            give_back(&mut out);
        }
        let mut look = LastLook::by(by);
        loop {
            let mut found = false;
            let (started, pending) = self.with(|state| {
                while state.reap(&mut out) > 0 {
                    found = true;
                    give_back(&mut out);
                }
                // What waits in the lists is not started any more. A queue too full for the
                // cancels has room again when it was submitted.
                let _ = state.push_cancels();
                (state.operations.started(), state.submissions.pending())
            });
            if started == 0 {
                break;
            }
            let Some(left) = look.wait(found) else { break };
            if self.ring.enter(pending, 1, Some(left), false).is_err() {
                break; // what did not come back is leaked and counted
            }
        }
        returned
    }
}

/// The port of a thread that has a place there.
pub(super) struct At<'a, O> {
    port: &'a Inner<O>,
    /// Where there is no other such thread.
    owner: Option<Owner<'a, Option<PortState<O>>>>,
}

fn there<O>(state: &mut Option<PortState<O>>) -> &mut PortState<O> {
    state.as_mut().expect("there until the port goes")
}

impl<'a, O: Outstanding> At<'a, O> {
    /// For the calling thread.
    pub fn here(port: &'a Inner<O>) -> Self {
        Self { port, owner: port.state.own() }
    }

    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut PortState<O>) -> R) -> R {
        let mut state = match &self.owner {
            Some(owner) => owner.lock(),
            None => self.port.state.lock(),
        };
        f(there(&mut state))
    }

    /// A thread's take: it leads, or waits until it may. With `gather` it lets completions gather before it waits, for as
    /// long as that says then.
    pub fn take(
        &self,
        member: &mut Member<'_>,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        gather: Option<&mut dyn FnMut() -> Gather>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        assert!(out.room() > 0, "a take needs room for a completion");
        let before_parking = || {
            // What this thread started must not wait until it leads.
            self.commit(counters)?;
            counters.parks.one();
            Ok(())
        };
        member.take(timeout, before_parking, |left| match gather {
            Some(gather) => self.lead_gathering(out, left, gather, counters),
            None => self.lead(out, left, Arming::Each, counters),
        })
    }

    /// What the leader does where completions may gather. Each receive that is armed would wake the thread that armed it,
    /// as soon as there is something for it: so while they gather none is armed anew, and what has come by then is swept.
    /// Before it waits for the next one, something is armed that ends the wait.
    fn lead_gathering(
        &self,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        let mut time = TimeLeft::of(timeout);
        loop {
            let next = self.with(|state| {
                if state.closed {
                    return Next::Closed;
                }
                let is_overdue = state.operations.is_overdue();
                let taken = if is_overdue { 0 } else { state.reap(out) };
                if taken > 0 {
                    return Next::Taken(taken);
                }
                let may_have_left = is_overdue || state.operations.is_swept_dry() == Some(false);
                if may_have_left {
                    // What finds no room is swept next.
                    if let Err(e) = state.fill_with_sweep(counters) {
                        return Next::Failed(e);
                    }
                }
                let (pending, at_least) = (state.submissions.pending(), u32::from(!may_have_left));
                Next::Enter { pending, at_least, at_most: None }
            });
            match next {
                Next::Failed(e) => return Err(e),
                Next::Closed => return Ok(None),
                Next::Taken(taken) => return Ok(Some(taken)),
                Next::Enter { at_least: 1, .. } => {}
                Next::Enter { pending, .. } => {
                    counters.kernel_entries.one();
                    self.port.ring.enter(pending, 0, None, false)?;
                    continue;
                }
            }
            let Gather { enough, at_most } = gather();
            // What came while the last sweep's datagrams were handled has waited since then.
            let at_most = at_most.saturating_sub(self.with(|state| state.operations.since_sweep()));
            let left = time.left();
            let at_most = left.map_or(at_most, |left| at_most.min(left));
            if at_most.is_zero() {
                return self.lead(out, left, Arming::Any, counters);
            }
            self.sleep(enough, at_most, counters)?;
        }
    }

    /// Sleeps while datagrams gather, with nothing armed that was not before.
    fn sleep(&self, enough: u32, at_most: Duration, counters: &Counters) -> io::Result<()> {
        counters.waits.one();
        let mut time = TimeLeft::of(Some(at_most));
        while let Some(left) = time.left().filter(|left| !left.is_zero()) {
            let next = self.with(|state| {
                state.operations.arm(Arming::None);
                state.fill();
                let there = state.completions.len() as u32;
                let is_called = state.closed || state.has_packets() || state.is_raised();
                let ends = is_called || state.operations.ending() != Ending::No;
                state.waiting = !ends && there < enough;
                state.waiting.then(|| (state.submissions.pending(), there + 1))
            });
            let Some((pending, next)) = next else { return Ok(()) };
            counters.kernel_entries.one();
            // Each that comes ends the call, since an alarm that goes off just as a wait for several begins would not.
            let entered = self.port.ring.enter(pending, next, Some(left), false);
            self.with(|state| state.waiting = false);
            entered?;
        }
        Ok(())
    }

    /// What lies ready, for a thread that runs: it runs on. 0 where [`take`](Self::take) is to bring it.
    #[inline]
    pub fn take_ready(&self, member: &Member<'_>, out: &mut Batch<O::Completion>) -> usize {
        if !member.may_go_on() {
            return 0;
        }
        self.with(|state| {
            // A batch that waits to be submitted goes first, as in a take.
            match state.closed || state.would_submit() >= self.port.submit_after {
                true => 0,
                false => state.reap(out),
            }
        })
    }

    /// What the leader does: fills, enters, takes. `None`: closed, or receiving was ended and nothing is outstanding.
    fn lead(
        &self,
        out: &mut Batch<O::Completion>,
        timeout: Option<Duration>,
        arming: Arming,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        let mut time = TimeLeft::of(timeout);
        loop {
            let next = self.with(|state| {
                if state.closed {
                    return Next::Closed;
                }
                // What lies ready needs no entry, unless a batch waits to be submitted. What is to start is kept until
                // then, since sends that wait together leave as one.
                if state.would_submit() < self.port.submit_after {
                    let taken = state.reap(out);
                    if taken > 0 {
                        return Next::Taken(taken);
                    }
                }
                let at_most = match state.operations.ending() {
                    Ending::No => None,
                    Ending::In(time) => Some(time),
                    // Also packets, and what came since: a batch that waits to be submitted kept them from being taken above.
                    Ending::Over => {
                        return match state.reap(out) {
                            0 => Next::Closed,
                            taken => Next::Taken(taken),
                        };
                    }
                };
                state.operations.arm(arming);
                let filled = match state.operations.is_swept_dry() {
                    Some(false) => state.fill_with_sweep(counters),
                    _ => Ok(state.fill()),
                };
                let filled = match filled {
                    Ok(filled) => filled,
                    Err(e) => return Next::Failed(e),
                };
                let pending = state.submissions.pending();
                let overflow = state.submissions.attention().overflow;
                if overflow && !state.overflowing {
                    counters.overflows.one();
                }
                state.overflowing = overflow;
                let ready = state.ready() || filled == Filled::QueueFull;
                state.waiting = !ready;
                Next::Enter { pending, at_least: u32::from(!ready), at_most }
            });
            let (pending, at_least, at_most) = match next {
                Next::Failed(e) => return Err(e),
                Next::Closed => return Ok(None),
                Next::Taken(taken) => return Ok(Some(taken)),
                Next::Enter { pending, at_least, at_most } => (pending, at_least, at_most),
            };
            counters.kernel_entries.one();
            counters.waits.add(at_least.into());
            let left = match at_least {
                0 => None,
                _ => time.left().into_iter().chain(at_most).min(),
            };
            let entered = self.port.ring.enter(pending, at_least, left, false);
            let (taken, lost) = self.with(|state| {
                state.waiting = false;
                let ready = state.completions.len() as u32;
                state.operations.entered(pending, ready);
                (state.reap(out), state.completions.lost())
            });
            let entered = entered?;
            if taken > 0 {
                return Ok(Some(taken));
            }
            if lost > 0 {
                let problem = format!("the kernel had no memory for {lost} completions");
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, problem));
            }
            // Where something was submitted the kernel does not say that the time is over.
            if entered == Entered::TimedOut || left.is_some_and(|left| left.is_zero()) {
                return Ok(Some(0));
            }
        }
    }

    /// Submits what was started and may be armed.
    pub fn commit(&self, counters: &Counters) -> io::Result<()> {
        loop {
            let (filled, pending) = self.with(|state| (state.fill(), state.submissions.pending()));
            if pending == 0 {
                return Ok(());
            }
            counters.kernel_entries.one();
            let entered = self.port.ring.enter(pending, 0, None, false)?;
            if filled == Filled::All || entered == Entered::TryAgain {
                return Ok(());
            }
        }
    }
}

/// What the leader does next.
enum Next {
    Failed(io::Error),
    Closed,
    Taken(usize),
    Enter { pending: u32, at_least: u32, at_most: Option<Duration> },
}
