//! A completion port for devices: one ring that all threads share.
//!
//! As the port for sockets ([`crate::port`]): a lock around what is started and what is over, and a
//! [`Limit`] that decides who waits in the ring. What was started goes to the kernel with the next entry
//! of the thread that leads, or by an entry of the thread that started it, before it parks or hands
//! over. That contract has sockets and datagrams; this one has one device.
//!
//! An end is no event of its own: it is asked for, whoever leads calls everything back, and each I/O
//! comes back through a take like any other. So none is counted twice, and none is lost.
//!
//! Origin: as [`crate::port::uring`].

use super::{
    Descriptor, Sources, outcome,
    ring::{KERNEL, RingQueue, plain, proved},
    under_way::{self, ALARM, ASK_AGAIN, Cancels, IO, UnderWay},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::LastLook,
    device::io::{Done, Issue, Outcome, PATIENCE},
    memory::{Layout, Region, RegionOptions, Slice},
    port::limit::{Limit, Member},
    ring::{self, Alarm, Completions, Ring, Slots, Submissions, Token, Wanted},
    wake::Waker,
};
use io_uring::types;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

/// A completion port of one device.
#[derive(Debug)]
pub struct DevicePort {
    ring: Arc<Ring>,
    state: Mutex<DevicePortState>,
    alarm: Alarm,
    limit: Limit,
    descriptor: Arc<Descriptor>,
    sources: Sources,
    region: Arc<Region>,
}

#[derive(Debug)]
struct DevicePortState {
    submissions: Submissions,
    completions: Completions,
    slots: Slots<UnderWay>,
    /// Whether the alarm is in the kernel's hands.
    armed: bool,
    /// Nothing is started any more, and what is under way is cancelled.
    ending: bool,
    cancels: Cancels,
    /// Nobody takes any more.
    closed: bool,
}

/// A thread's place among those that take.
pub struct DevicePortWorker<'a> {
    port: &'a DevicePort,
    member: Member<'a>,
}

impl DevicePortState {
    /// Moves what is over into `out`, up to so many in all.
    fn reap(&mut self, out: &mut Vec<Done>, most: usize) {
        while out.len() < most {
            let Some(entry) = self.completions.take().next() else { return };
            let token = Token::from_user_data(entry.user_data());
            if token == ALARM {
                self.armed = false;
            }
            self.cancels.note(token, entry.result());
            if let Some(UnderWay { slice, issue }) = self.slots.remove(token) {
                out.push(Done { slice, issue, outcome: outcome(entry.result().into()) });
            }
        }
    }
}

impl DevicePort {
    /// The name of what drives it.
    pub const PROVIDER: &'static str = RingQueue::PROVIDER;

    /// Proves by one read that a port runs here. `what` names who needs it.
    pub fn availability(what: &'static str) -> Result<(), Unavailable> {
        proved(what, || {
            let region = Region::new(Layout::packed(0, 64, 64), 1, RegionOptions::default())?;
            let null = super::null().map_err(|e| Error::io("opening /dev/null", e))?;
            let port = Self::open(what, &null, Arc::clone(&region), 1, 1)?;
            let (calls, slice) = (Counters::default(), region.take().expect("there is one"));
            let started = port.start(slice, &Issue { at: 0, since: None }, &calls);
            started.map_err(drop).expect("nobody ends this port");
            let mut done = Vec::with_capacity(1);
            port.lead(&mut done, 1, Some(Instant::now() + PATIENCE), &calls)
                .map_err(|e| Error::io("taking completions", e))?;
            match done.pop().map(|done| done.outcome) {
                Some(Outcome::Moved(0)) => Ok(()),
                other => {
                    let problem = format!("a read of /dev/null brought {other:?}");
                    Err(Error::io("trying it", io::Error::other(problem)))
                }
            }
        })
    }

    /// A port for as many I/Os as the region has slices, and for so many threads, of which
    /// `concurrency` run at a time. `what` names who needs it.
    pub fn open(
        what: &str,
        descriptor: &Arc<Descriptor>,
        region: Arc<Region>,
        threads: u32,
        concurrency: u32,
    ) -> Result<Self, Error> {
        descriptor.set_waits(true).map_err(|e| Error::io("asking reads to wait", e))?;
        let sources = Sources::of(descriptor, region.count())?;
        // Beside the I/Os, the two entries of the alarm and the one that is held back for a cancel.
        let submissions = region.count() + 3;
        let wanted = Wanted {
            r#use: ring::Use::SharedUninterrupted,
            submissions,
            completions: 2 * submissions,
            kernel: KERNEL,
        };
        let (io, flags) = ring::set_up(what, &wanted)?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling a ring", e))?;
        let alarm = Alarm::new().map_err(|e| Error::io("making an eventfd to end waits", e))?;
        let slots = Slots::new(IO, region.count() as usize);
        let state = DevicePortState {
            submissions,
            completions,
            slots,
            armed: false,
            ending: false,
            cancels: Cancels::of(region.count() as usize),
            closed: false,
        };
        let limit = Limit::new(concurrency, threads as usize);
        let descriptor = Arc::clone(descriptor);
        Ok(Self { ring, state: Mutex::new(state), alarm, limit, descriptor, sources, region })
    }

    fn lock(&self) -> MutexGuard<'_, DevicePortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the calling thread; as many as the port was opened for.
    pub fn worker(&self) -> DevicePortWorker<'_> {
        let member = self.limit.join().expect("opened for so many threads");
        DevicePortWorker { port: self, member }
    }

    /// Starts an I/O. Any thread may; it reaches the kernel with the next commit or take.
    ///
    /// # Errors
    /// Gives the memory back once the port ends.
    pub fn start(&self, slice: Slice, issue: &Issue, calls: &Counters) -> Result<(), Slice> {
        // Not under the lock: until it is started the slice, and so its timer, is the caller's alone.
        self.sources.prepare(slice.index(), calls);
        let mut state = self.lock();
        // The kernel tells of what is over before it gives the entries of its batch back: while another thread is in
        // there with all of them, whoever starts anew finds the queue full for a moment.
        while !state.submissions.has_room(1) {
            drop(state);
            thread::yield_now();
            state = self.lock();
        }
        if state.ending {
            return Err(slice);
        }
        let memory = (slice.base().as_ptr(), self.region.layout().payload as u32);
        let fd = types::Fd(self.sources.fd(slice.index()));
        let token = state.slots.insert(UnderWay { slice, issue: *issue });
        let token = token.expect("as many slots as slices");
        let (direction, offset) = (self.descriptor.direction, self.descriptor.offset(issue.at));
        let entry = plain(direction, fd, memory, offset).user_data(token.user_data());
        // SAFETY: the slice is in its slot until the I/O is over, and leaked if the port goes before.
        let pushed = unsafe { state.submissions.push(&[entry]) };
        pushed.expect("there is an entry for each slot");
        Ok(())
    }

    /// Makes known to the kernel what was started.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    pub fn commit(&self, calls: &Counters) -> io::Result<()> {
        let pending = self.lock().submissions.pending();
        if pending == 0 {
            return Ok(());
        }
        calls.kernel_entries.one();
        self.ring.enter(pending, 0, None, false).map(drop)
    }

    /// Whether every slice is back: nothing is under way, and nobody holds what is over.
    pub fn is_idle(&self) -> bool {
        self.region.in_pool() == self.region.count()
    }

    /// Something that ends the port: nothing more is started, and what is under way comes back.
    pub fn ender(self: &Arc<Self>) -> Waker {
        let port = Arc::downgrade(self);
        Waker::new(move || {
            if let Some(port) = port.upgrade() {
                port.lock().ending = true;
                port.alarm.raise();
            }
        })
    }

    /// Lets every take return `None`, now and later.
    pub fn close(&self) {
        self.lock().closed = true;
        self.limit.close();
        self.alarm.raise();
    }

    /// What was obtained, to be stated beside every figure: name and value.
    pub fn granted(&self) -> Vec<(&'static str, String)> {
        let (submissions, completions) = self.ring.sizes();
        vec![
            ("ring-flags", self.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
        ]
    }

    /// What the leader does: submits, waits, takes. `None`: closed.
    fn lead(
        &self,
        out: &mut Vec<Done>,
        most: usize,
        until: Option<Instant>,
        calls: &Counters,
    ) -> io::Result<Option<usize>> {
        loop {
            let (pending, ask_again) = {
                let mut state = self.lock();
                if state.closed {
                    return Ok(None);
                }
                state.reap(out, most);
                // What was read may have been the alarm, without which nobody could end the wait.
                if !state.armed {
                    // First forgotten, then looked whether there was a reason to ring: none is missed.
                    self.alarm.reset();
                    // SAFETY: the alarm points at a static.
                    let armed = unsafe { state.submissions.push(&self.alarm.entries(ALARM)) };
                    state.armed = armed.is_ok();
                }
                if state.ending {
                    // A device cannot cancel what it has not been told of.
                    let _ = state.submissions.submit(calls);
                    self.descriptor.cancel_all();
                    let DevicePortState { cancels, slots, submissions, .. } = &mut *state;
                    cancels.cancel_all(slots, submissions, ASK_AGAIN, calls);
                }
                if state.ending && out.is_empty() && self.is_idle() {
                    // Whoever held the last I/O panicked, and cannot say that it was.
                    state.closed = true;
                    drop(state);
                    self.limit.close();
                    return Ok(None);
                }
                let pending = state.submissions.pending();
                if !out.is_empty() && pending == 0 {
                    return Ok(Some(out.len()));
                }
                (pending, state.ending.then_some(ASK_AGAIN))
            };
            let at_least = u32::from(out.is_empty());
            if at_least > 0 {
                calls.waits.one();
            }
            calls.kernel_entries.one();
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = left.into_iter().chain(ask_again).min().filter(|_| at_least > 0);
            self.ring.enter(pending, at_least, wait, false)?;
            let mut state = self.lock();
            state.reap(out, most);
            if state.completions.lost() > 0 {
                let problem = "the kernel had no memory for completions";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, problem));
            }
            let over = left.is_some_and(|left| left.is_zero());
            if !out.is_empty() || over {
                return Ok(Some(out.len()));
            }
        }
    }
}

#[cfg(test)]
impl DevicePort {
    /// As on a kernel before 5.19.
    pub(super) fn cancels_each(&self, each: bool) {
        self.lock().cancels.each = each;
    }
}

impl DevicePortWorker<'_> {
    /// Waits until something is over, and moves it into `out`, which is empty, up to `most` of it. Returns
    /// how many; `None` once the port is closed.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered: the port is of no more use.
    pub fn take(
        &mut self,
        out: &mut Vec<Done>,
        most: usize,
        calls: &Counters,
    ) -> io::Result<Option<usize>> {
        let before_parking = || {
            // What this thread started must not wait until it leads.
            self.port.commit(calls)?;
            calls.parks.one();
            Ok(())
        };
        self.member.take(None, before_parking, |_| self.port.lead(out, most, None, calls))
    }
}

/// Where all threads have gone in the middle: what is under way is cancelled and waited for.
impl Drop for DevicePort {
    fn drop(&mut self) {
        let calls = Counters::default();
        let mut look = LastLook::by(Instant::now() + PATIENCE);
        {
            let mut state = self.lock();
            state.closed = false;
            state.ending = true;
        }
        let mut out = Vec::new();
        let mut found = false;
        while self.lock().slots.len() > 0 {
            let Some(left) = look.wait(found) else { break };
            let until = Some(Instant::now() + ASK_AGAIN.min(left));
            if self.lead(&mut out, usize::MAX, until, &calls).is_err() {
                break;
            }
            found = !out.is_empty();
            out.clear();
        }
        let mut state = self.lock();
        under_way::leak(&mut state.slots);
    }
}
