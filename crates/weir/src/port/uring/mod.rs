//! The completion port on io_uring: one ring that all threads share.
//!
//! Starting an operation puts it on a list. Whoever leads (see [`limit`](super::limit)) fills the
//! submission queue from the lists and enters the kernel once, for submitting a batch and for
//! waiting; what finished meanwhile is taken by reading the completion queue, without a call.
//! Submitting a receive when a datagram lies in the socket completes it at once, so under load
//! one entry moves a batch.
//!
//! What it costs: a lock around each start and each take, and for each datagram a request that
//! is armed, completed and armed again. A ring used by several threads gives up SINGLE_ISSUER,
//! DEFER_TASKRUN and COOP_TASKRUN: the kernel interrupts the thread that armed a receive, which
//! copies the datagram even while it parks. Of several threads the one that takes is mostly the
//! same, so it is also the one that arms.
//!
//! How it fails: every receive that is armed on a socket is woken by every datagram, and all but
//! one arm themselves again. So only a few are armed ([`Shape::armed`]) and the others wait in a
//! list; thousands armed, as Windows likes them, cost most when little arrives. Receives armed by
//! a thread that exits come back as returned when the next datagram comes: threads park until the
//! port is closed.
//!
//! Bounds: operations and packets as in [`Needs`], with all memory for them taken up front. The
//! submission queue, when it is full, is submitted and filled again. The completion queue has
//! room for everything outstanding up to 65,536 entries; beyond that the kernel keeps a list,
//! which is counted as overflows. Where io_uring is forbidden the provider is unavailable; nothing
//! takes its place.
//!
//! Origin: io_uring, Linux 5.1; RECVMSG and SENDMSG with buffers of their own, Linux 5.3.

mod headers;
mod operations;
mod state;
#[cfg(test)]
mod tests;

use super::{
    Cancelled, Completion, Key, Needs, Packet, Port, Provider, Refused, Shape, SocketId, Stopped,
    Taken, Token, Worker,
    limit::{Lead, Limit, Seat},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Layout, Slice},
    ring::{self, Alarm, Entered, Ring, Wanted},
    rio::Peer,
    socket::DatagramSocket,
    wake::Waker,
};
use state::{Filled, State};
use std::{
    io,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The provider, with what can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uring {
    /// How much the kernel is given at a time.
    pub shape: Shape,
}

impl Uring {
    fn wanted(&self, needs: &Needs) -> Wanted {
        let armed = self.shape.armed.min(needs.receives).saturating_mul(needs.sockets);
        let outstanding = armed.saturating_add(needs.sends).saturating_add(1);
        Wanted {
            r#use: ring::Use::Shared,
            // Room for all that is armed, for a batch of sends, and for a cancel.
            submissions: armed.saturating_add(64).clamp(64, 4096),
            // Each operation may be joined by the completion of its cancel.
            completions: outstanding.saturating_mul(2).clamp(256, 65_536),
        }
    }
}

const NAME: &str = "provider uring of the completion port";

impl Provider for Uring {
    type Port = UringPort;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        let wanted = Wanted { submissions: 1, completions: 2, ..self.wanted(needs) };
        ring::set_up(NAME, &wanted)?;
        Ok(Layout::packed(0, needs.payload, 64))
    }

    fn open(&self, needs: &Needs) -> Result<UringPort, Error> {
        let option = |name: &str, problem: &str| Error::Option {
            name: name.into(),
            problem: problem.into(),
        };
        if self.shape.armed == 0 || self.shape.submit_after == 0 {
            return Err(option("armed", "0 is not allowed; at least one receive must be armed"));
        }
        if needs.threads == 0 {
            return Err(option("threads", "0 is not allowed; somebody must take"));
        }
        let (io, flags) = ring::set_up(NAME, &self.wanted(needs))?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling the ring of the completion port", e))?;
        let alarm = Alarm::new().map_err(|e| Error::io("making an eventfd for the port", e))?;
        let alarm = Arc::new(alarm);
        let state =
            State::new(submissions, completions, Arc::clone(&alarm), needs, self.shape.armed);
        let concurrency = concurrency(needs.concurrency);
        let inner = Arc::new(Inner {
            state: Mutex::new(Some(state)),
            alarm,
            limit: Limit::new(concurrency, needs.threads as usize),
            ring,
            submit_after: self.shape.submit_after,
        });
        let file_table = inner.ring.make_file_table(needs.sockets).is_ok();
        let armed = self.shape.armed.min(needs.receives);
        Ok(UringPort { inner, file_table, concurrency, armed, needs: *needs })
    }
}

/// How many threads may run at a time: what was asked for, or the cores this process may use, as
/// on Windows.
fn concurrency(asked: u32) -> u32 {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        some => some,
    }
}

/// A completion port on a ring that all threads share.
pub struct UringPort {
    /// Shared with those who may close the port.
    inner: Arc<Inner>,
    /// Whether sockets have a place in the ring's table of files.
    file_table: bool,
    concurrency: u32,
    armed: u32,
    needs: Needs,
}

struct Inner {
    ring: Arc<Ring>,
    /// There until the port goes.
    state: Mutex<Option<State>>,
    /// Ends the leader's wait.
    alarm: Arc<Alarm>,
    limit: Limit,
    submit_after: u32,
}

/// A thread's place at a [`UringPort`].
pub struct UringWorker<'a> {
    port: &'a Inner,
    seat: Seat<'a>,
    /// It stays on its thread: there it runs or not.
    stays: PhantomData<*const ()>,
}

impl Port for UringPort {
    type Worker<'a> = UringWorker<'a>;

    fn associate(&self, socket: DatagramSocket, key: Key) -> Result<SocketId, Error> {
        self.inner.with(|state| {
            let number = state.operations.sockets.len() as u32;
            if number == self.needs.sockets {
                let problem = format!("the port was opened for {number}; open it for more");
                return Err(Error::Option { name: "sockets".into(), problem });
            }
            let file = match self.file_table {
                true => self.inner.ring.set_file(number, socket.native().fd()).ok(),
                false => None,
            };
            state.associate(socket, key, file.map(|()| number));
            Ok(SocketId(number))
        })
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        let ring = self.inner.with(|state| {
            if state.closed {
                return Err((packet, Refused::Closed));
            }
            if state.post(packet) { Ok(state.must_ring()) } else { Err((packet, Refused::Full)) }
        })?;
        if ring {
            counters.kernel_entries.one();
            self.inner.alarm.ring();
        }
        Ok(())
    }

    fn worker(&self) -> Result<UringWorker<'_>, Error> {
        let seat = self.inner.limit.join().ok_or_else(|| Error::Option {
            name: "threads".into(),
            problem: format!("the port was opened for {}; open it for more", self.needs.threads),
        })?;
        Ok(UringWorker { port: &self.inner, seat, stays: PhantomData })
    }

    fn close(&self) {
        self.inner.close();
    }

    fn closer(&self) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || inner.close())
    }

    fn stop(self, by: Instant) -> Stopped {
        self.inner.close();
        let drained = self.inner.drain(by);
        let (returned, missing) = self.give_up().expect("given up only here and in drop");
        Stopped { returned: drained + returned, missing }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let (submissions, completions) = self.inner.ring.sizes();
        vec![
            ("ring-flags", self.inner.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
            ("file-table", self.file_table.to_string()),
            ("armed", self.armed.to_string()),
            ("submit-after", self.inner.submit_after.to_string()),
            ("concurrency", self.concurrency.to_string()),
        ]
    }
}

impl UringPort {
    /// Takes the sockets from the ring, which would hold them until the kernel has done away
    /// with it, and gives up the rest.
    fn give_up(&self) -> Option<(u32, u32)> {
        let state = self.inner.lock().take()?;
        for (number, associated) in state.operations.sockets.iter().enumerate() {
            if associated.has_file() {
                let _ = self.inner.ring.set_file(number as u32, -1);
            }
        }
        Some(state.give_up())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // A panic under the lock is a broken invariant of this file; what the kernel holds is
        // still accounted for, so it must be reached.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(self.lock().as_mut().expect("there until the port goes"))
    }

    /// Also after the port has gone: then it is closed already.
    fn close(&self) {
        let ring = match self.lock().as_mut() {
            Some(state) => {
                state.closed = true;
                state.must_ring()
            }
            None => false,
        };
        self.limit.close();
        if ring {
            self.alarm.ring();
        }
    }

    /// What the leader does: fills, enters, takes. `None`: closed.
    fn lead(
        &self,
        out: &mut Taken,
        until: Option<Instant>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let next = self.with(|state| {
                if state.closed {
                    return Next::Closed;
                }
                let filled = state.fill();
                let pending = state.submissions.pending();
                // What lies ready needs no entry, unless a batch waits to be submitted.
                if pending < self.submit_after {
                    let taken = state.reap(out);
                    if taken > 0 {
                        return Next::Taken(taken);
                    }
                }
                if state.submissions.attention().overflow {
                    counters.overflows.one();
                }
                let ready = state.ready() || filled == Filled::Crowded;
                state.waiting = !ready;
                Next::Enter { pending, at_least: u32::from(!ready) }
            });
            let (pending, at_least) = match next {
                Next::Closed => return Ok(None),
                Next::Taken(taken) => return Ok(Some(taken)),
                Next::Enter { pending, at_least } => (pending, at_least),
            };
            counters.kernel_entries.one();
            let entered = if at_least > 0 {
                counters.waits.one();
                self.ring.enter(pending, at_least, left, false)
            } else {
                self.ring.enter(pending, 0, None, false)
            };
            let (taken, lost) = self.with(|state| {
                state.waiting = false;
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
    fn commit(&self, counters: &Counters) -> io::Result<()> {
        loop {
            let (filled, pending) = self.with(|state| (state.fill(), state.submissions.pending()));
            if pending == 0 {
                return Ok(());
            }
            counters.kernel_entries.one();
            let entered = self.ring.enter(pending, 0, None, false)?;
            if filled == Filled::All || entered == Entered::TryAgain {
                return Ok(());
            }
        }
    }

    /// Cancels what is in the kernel's hands and takes completions until nothing is, or until
    /// the time is over. Returns how many slices came back. The limit is closed and has no seats,
    /// so this thread is alone.
    fn drain(&self, by: Instant) -> u32 {
        let counters = Counters::default();
        let mut out = Taken::new(64);
        let mut returned = 0;
        let mut give_back = |out: &mut Taken| {
            let slices = out.drain().filter(|c| matches!(c, Completion::Operation { .. }));
            returned += slices.count() as u32;
        };
        for token in self.with(|state| state.operations.all_started()) {
            self.with(|state| {
                state.cancel(Token(token.user_data()), &counters);
                state.reap(&mut out);
            });
            give_back(&mut out);
        }
        loop {
            let (started, pending) = self.with(|state| {
                while state.reap(&mut out) > 0 {
                    give_back(&mut out);
                }
                // What waits in the lists is not started any more. A queue too crowded for the
                // cancels has room again when it was submitted.
                let _ = state.push_cancels();
                (state.operations.started, state.submissions.pending())
            });
            let left = by.saturating_duration_since(Instant::now());
            if started == 0 || left.is_zero() {
                break;
            }
            if self.ring.enter(pending, 1, Some(left), false).is_err() {
                break; // what did not come back is leaked and counted
            }
        }
        returned
    }
}

/// What the leader does next.
enum Next {
    Closed,
    Taken(usize),
    Enter { pending: u32, at_least: u32 },
}

impl Drop for UringPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.give_up();
    }
}

impl Worker for UringWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        assert!(out.room() > 0, "a take needs room for a completion");
        // A time too long to be told is for ever.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if !self.seat.try_lead() {
            // Another leads: what this thread started must not wait until it does.
            self.port.commit(counters)?;
            counters.parks.one();
            match self.seat.lead(until) {
                Lead::Yours => {}
                Lead::TimedOut => {
                    self.seat.enter();
                    return Ok(Some(0));
                }
                Lead::Closed => return Ok(None),
            }
        }
        let led = self.port.lead(out, until, counters);
        match led {
            Ok(None) => self.seat.leave(),
            _ => self.seat.run(),
        }
        led
    }

    #[inline]
    fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        self.port.with(|state| {
            if state.closed {
                return Err((slice, Refused::Closed));
            }
            state.receive(socket, slice).map_err(|slice| (slice, Refused::Full))
        })
    }

    #[inline]
    fn receive_all(&mut self, socket: SocketId, slices: &mut Vec<Slice>) -> Result<(), Refused> {
        self.port.with(|state| {
            if state.closed {
                return Err(Refused::Closed);
            }
            while let Some(slice) = slices.pop() {
                if let Err(slice) = state.receive(socket, slice) {
                    slices.push(slice);
                    return Err(Refused::Full);
                }
            }
            Ok(())
        })
    }

    #[inline]
    fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        len: usize,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)> {
        if len > slice.region().layout().payload {
            return Err((slice, Refused::TooLong));
        }
        self.port.with(|state| {
            if state.closed {
                return Err((slice, Refused::Closed));
            }
            state.send(socket, slice, len, to).map_err(|slice| (slice, Refused::Full))
        })
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.port.commit(counters)
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let asked = self.port.with(|state| state.cancel(token, counters));
        if asked { Cancelled::Asked } else { Cancelled::Gone }
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.port.commit(counters)?;
        self.seat.leave();
        let result = f();
        self.seat.enter();
        Ok(result)
    }
}
