//! The operations of streams for one thread, with an event for each that is outstanding.
//!
//! The thread waits for a group of events and is told one at a time, as by WSAWaitForMultipleEvents; the event
//! tells it which operation has finished, and then it asks what became of it. Here an event is an eventfd in
//! an epoll set that is asked for one at a time, and each operation is followed, in the same submission, by a
//! write to its event: *linked*, so that the write begins when the operation is over and its completion can
//! be seen (IOSQE_IO_HARDLINK: also where it failed or was cancelled). That the kernel does the operation
//! and signals the event, and nobody is told twice, is what the mechanism is; a ring that is asked for
//! completions without events would be the other design.
//!
//! What it costs: an eventfd for each operation, a second request to write to it, and for each completion a wait
//! of its own. The work of the ring interrupts the thread in its wait (EINTR), which waits again.
//!
//! How it fails: an event's descriptor is looked up when the write begins, so it stays open until its operation
//! was told, and is leaked with its memory where that never happens: another file of that number would
//! be written to. So stopping waits for events, not only for completions.
//!
//! Bounds: as many events as the [`Needs`] have operations; a stream has one receive in the kernel at a time. Those
//! for sends are made as more of them are outstanding than ever, beyond a few that are there from the beginning:
//! most sends are over at once. Where the system has no descriptor for one more, the send is refused, and waits.
//!
//! Origin: overlapped operations with events of Winsock 2; io_uring: linked requests, Linux 5.5; requests that
//! are silent where they succeed, Linux 5.17.

use super::{KERNEL, UringStreams, operations::Operations};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Load, Slice},
    port::{
        Cancelled, Key, Packet, Refused, Shape, Stopped, Token,
        streams::{Closing, ListenerId, Needs, Port, Provider, StreamId, Taken, Worker, proof},
        uring::state::{Outstanding, Stage},
    },
    readiness::{Epoll, Trigger, wake_event::WakeEvent},
    ring::{self, Completions, Crowded, Ring, Submissions, TimeLeft, Wanted},
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use io_uring::{opcode, squeue, types};
use std::{
    collections::{HashSet, VecDeque},
    io,
    marker::PhantomData,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UringEvents {}

impl UringEvents {
    /// The most events that a group may have, the one that wakes its thread included. Each is a descriptor, and a
    /// group has one completion queue.
    pub const MOST: u32 = 4096;
}

const WHAT: &str = "provider uring of operations with events";

/// Of writes to events, which say nothing but where they fail.
const SIGNAL: ring::Token = ring::Token::bare(8);

/// Events for sends that are there from the beginning.
const FIRST_SENDS: u32 = 4;

/// What an event is rung with.
static ONE: u64 = 1;

impl Provider for UringEvents {
    const NAME: &'static str = "uring";
    type Port = EventsPort;

    fn availability(&self) -> Result<(), Unavailable> {
        // On a thread of its own, as for datagrams.
        let prove = || proof::prove(self, WHAT, Some(ring::use_a_kernel(KERNEL)));
        let proof = std::thread::scope(|scope| scope.spawn(prove).join());
        proof.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn open(&self, needs: &Needs) -> Result<EventsPort, Error> {
        let needs = Needs { threads: 1, ..*needs };
        UringStreams { shape: Shape::BEST }.check(&needs)?;
        let events = needs.receives.saturating_add(needs.sends).saturating_add(needs.accepts);
        // Each operation and its signal, and a cancel for each.
        let submissions = events.saturating_mul(3).saturating_add(2).clamp(8, 4096);
        let wanted = Wanted {
            r#use: ring::Use::SharedUninterrupted,
            submissions,
            // No fewer than the submissions, which are rounded up.
            completions: (2 * submissions).max(events.saturating_mul(2)).min(65_536),
            kernel: KERNEL,
        };
        let (io, flags) = ring::set_up(WHAT, &wanted)?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling the ring of a group of events", e))?;
        let mut set = Epoll::of_streams(1, Trigger::Edge)?;
        let first = events - needs.sends + needs.sends.min(FIRST_SENDS);
        let events: io::Result<Vec<_>> =
            (0..first).map(|number| Event::new(number, &mut set)).collect();
        let events = events.map_err(|e| Error::io("making the events of a group", e))?;
        let state = EventsState {
            ring,
            submissions,
            completions,
            operations: Operations::new(&needs),
            events: ManuallyDrop::new(events),
            packets: VecDeque::with_capacity(needs.packets as usize),
            packets_most: needs.packets as usize,
            asked: HashSet::new(),
        };
        let waker = set.waker();
        let inner = Arc::new(Inner {
            state: Mutex::new(Some(state)),
            closed: AtomicBool::new(false),
            waker,
        });
        Ok(EventsPort { inner, set: Mutex::new(set), seated: AtomicBool::new(false), needs })
    }
}

/// A group of events.
pub struct EventsPort {
    inner: Arc<Inner>,
    set: Mutex<Epoll>,
    /// Its one thread has its place.
    seated: AtomicBool,
    needs: Needs,
}

/// What the thread and those who may wake it share.
struct Inner {
    /// There until the port goes.
    state: Mutex<Option<EventsState>>,
    closed: AtomicBool,
    waker: Waker,
}

struct EventsState {
    ring: Arc<Ring>,
    submissions: Submissions,
    completions: Completions,
    operations: Operations,
    /// One for each operation that may be outstanding, by its number; of sends, as many as were outstanding at a
    /// time, and a few. Left open where an operation's event was never told.
    events: ManuallyDrop<Vec<Event>>,
    packets: VecDeque<Packet>,
    packets_most: usize,
    /// Operations whose cancel the kernel has not answered: it is not asked for again until then.
    asked: HashSet<ring::Token>,
}

/// An event, and the operation that it is for.
struct Event {
    wake_event: WakeEvent,
    token: Option<ring::Token>,
    /// What its completion said.
    result: Option<i32>,
}

impl Event {
    fn new(number: u32, set: &mut Epoll) -> io::Result<Self> {
        let wake_event = WakeEvent::new()?;
        set.watch_wake_event(&wake_event, number)?;
        Ok(Event { wake_event, token: None, result: None })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn with<R>(&self, f: impl FnOnce(&mut EventsState) -> R) -> R {
        f(lock(&self.state).as_mut().expect("there until the port goes"))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.waker.wake();
    }

    fn post(&self, packet: Packet) -> Result<(), (Packet, Refused)> {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut().filter(|_| !self.is_closed()) else {
            return Err((packet, Refused::Closed));
        };
        if state.packets.len() >= state.packets_most {
            return Err((packet, Refused::Full));
        }
        state.packets.push_back(packet);
        self.waker.wake();
        Ok(())
    }
}

impl EventsState {
    /// Submits what was started.
    fn submit(&mut self, counters: &Counters) -> io::Result<()> {
        loop {
            let filled = self.fill();
            self.submissions.submit(counters)?;
            if filled.is_ok() {
                return Ok(());
            }
        }
    }

    /// Puts what was started into the submission queue, each operation with what follows it.
    fn fill(&mut self) -> Result<(), Crowded> {
        let Self { operations, submissions, events, .. } = self;
        operations.start_by(|entry, operation| {
            let Some((token, number)) = operation else {
                // SAFETY: a cancel points at nothing.
                return unsafe { submissions.push(&[entry]) };
            };
            let event = &mut events[number];
            let entry = entry.flags(squeue::Flags::IO_HARDLINK);
            let signal =
                opcode::Write::new(types::Fd(event.wake_event.fd()), (&raw const ONE).cast(), 8);
            let signal = signal.build().flags(squeue::Flags::SKIP_SUCCESS);
            // SAFETY: as in `Operations::start`; the signal's bytes are static, and its descriptor stays
            // open until the event was told.
            unsafe { submissions.push(&[entry, signal.user_data(SIGNAL.user_data())]) }?;
            (event.token, event.result) = (Some(token), None);
            Ok(())
        })
    }

    /// Whether one more send, of those that may be outstanding, would have no event.
    fn lacks_event(&self, most: u32) -> bool {
        let (sends, first) = self.operations.sends();
        sends < most as usize && first + sends >= self.events.len()
    }

    /// Reads what the kernel says of operations that are over.
    fn reap(&mut self) -> io::Result<()> {
        let Self { completions, operations, events, asked, .. } = self;
        for entry in completions.take() {
            let token = ring::Token::from_user_data(entry.user_data());
            if token == SIGNAL {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
            if let Some(cancelled) = token.cancelled() {
                asked.remove(&cancelled);
                continue;
            }
            let event = events.get_mut(operations.number(token));
            if let Some(event) = event.filter(|event| event.token == Some(token)) {
                event.result = Some(entry.result());
            }
        }
        Ok(())
    }

    /// An event was told: the operation that it is for has finished.
    fn told(&mut self, number: u32, out: &mut Taken) -> io::Result<()> {
        self.reap()?;
        let event = &mut self.events[number as usize];
        // Told without one it is the last one's, as nobody promises that it is told once.
        let (Some(token), Some(result)) = (event.token, event.result) else { return Ok(()) };
        (event.token, event.result) = (None, None);
        self.operations.finish(token, result, out);
        Ok(())
    }
}

impl EventsPort {
    /// Waits for an event, and brings what it is for.
    fn take(
        &self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
        draining: bool,
    ) -> io::Result<Option<usize>> {
        assert!(out.room() > 0, "a take needs room for a completion");
        let mut time = TimeLeft::of(timeout);
        let mut set = lock(&self.set);
        loop {
            if !draining && self.inner.is_closed() {
                return Ok(None);
            }
            let before = out.len();
            self.inner.with(|state| {
                state.operations.take_ready(out);
                if !draining {
                    while out.room() > 0 {
                        let Some(packet) = state.packets.pop_front() else { break };
                        out.push(packet.into());
                    }
                    state.submit(counters)?;
                }
                Ok::<_, io::Error>(())
            })?;
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
            counters.waits.one();
            let woken = set.wait(time.left(), counters)?;
            while let Some(number) = set.next_ready() {
                self.inner.with(|state| state.told(number, out))?;
            }
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
            if woken == Woken::TimedOut {
                return Ok(Some(0));
            }
        }
    }
}

impl Port for EventsPort {
    type Worker<'a> = EventsWorker<'a>;

    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        self.inner.with(|state| state.operations.listen(listener, key)).ok_or_else(|| {
            let problem = format!("the group was opened for {}", self.needs.listeners);
            Error::Option { name: "listeners".into(), problem }
        })
    }

    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        if self.inner.is_closed() {
            return Err(Refused::Closed);
        }
        self.inner.with(|state| state.operations.associate(stream, key))
    }

    fn post(&self, packet: Packet, _: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet)
    }

    fn poster(&self, packet: Packet) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || {
            let _ = inner.post(packet);
        })
    }

    fn worker(&self) -> Result<EventsWorker<'_>, Error> {
        if self.seated.swap(true, SeqCst) {
            let problem = "a group of events is one thread's".into();
            return Err(Error::Option { name: "threads".into(), problem });
        }
        Ok(EventsWorker { port: self, stays: PhantomData })
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        self.inner.with(|state| state.operations.stream(stream))?.received_in_all(counters)
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
        let (counters, mut returned) = (Counters::default(), 0);
        let mut out = Taken::new(1);
        for token in self.inner.with(|state| state.operations.all_started()) {
            // Where it finds no room something else is submitted first, which makes room.
            let own = token.of_its_cancel();
            let cancel = |state: &mut EventsState| state.submissions.cancel(token, own, &counters);
            if self.inner.with(cancel).is_err() {
                break;
            }
        }
        while self.inner.with(|state| state.operations.started()) > 0 {
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() || self.take(&mut out, Some(left), &counters, true).is_err() {
                break; // what did not come back is leaked and counted
            }
            returned += out.drain().filter(Operations::brings_memory).count() as u32;
        }
        let (given_up, missing) = self.give_up().expect("given up only here and in drop");
        Stopped { returned: returned + given_up, missing }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let (flags, (submissions, completions)) =
            self.inner.with(|state| (state.ring.flags(), state.ring.sizes()));
        vec![
            ("ring-flags", flags),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
        ]
    }
}

impl EventsPort {
    fn give_up(&self) -> Option<(u32, u32)> {
        let state = lock(&self.inner.state).take()?;
        let EventsState { submissions, completions, operations, events, .. } = state;
        // The only way to submit goes first. What lies in the submission queue counts as started.
        drop((submissions, completions));
        if operations.started() == 0 && events.iter().all(|event| event.token.is_none()) {
            drop(ManuallyDrop::into_inner(events)); // nothing will be written to them
        }
        // SAFETY: there are no submissions any more.
        Some(unsafe { operations.give_up() })
    }
}

impl Drop for EventsPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.give_up();
    }
}

/// The thread's place at an [`EventsPort`].
pub struct EventsWorker<'a> {
    port: &'a EventsPort,
    /// It stays on its thread: the ring's work is done there.
    stays: PhantomData<*const ()>,
}

impl Drop for EventsWorker<'_> {
    fn drop(&mut self) {
        self.port.seated.store(false, SeqCst);
    }
}

impl EventsWorker<'_> {
    fn open(&self) -> Result<&Inner, Refused> {
        if self.port.inner.is_closed() { Err(Refused::Closed) } else { Ok(&self.port.inner) }
    }
}

impl Worker for EventsWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.port.take(out, timeout, counters, false)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.open()?.with(|state| state.operations.accept(listener))
    }

    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let started = match self.open() {
            Ok(inner) => inner.with(|state| state.operations.receive(stream, Some(slice))),
            Err(refused) => return Err((slice, refused)),
        };
        started.map_err(|(slice, refused)| (slice.expect("the one that was given"), refused))
    }

    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused> {
        let started = self.open()?.with(|state| state.operations.receive(stream, None));
        started.map_err(|(_, refused)| refused)
    }

    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        let inner = match self.open() {
            Ok(inner) => inner,
            Err(refused) => return Err((load, refused)),
        };
        let most = self.port.needs.sends;
        if inner.with(|state| state.lacks_event(most)) {
            // The set's lock goes first, as in a take.
            let mut set = lock(&self.port.set);
            let made = inner.with(|state| {
                let number = state.events.len() as u32;
                Event::new(number, &mut set).map(|event| state.events.push(event))
            });
            if made.is_err() {
                return Err((load, Refused::Full));
            }
        }
        inner.with(|state| state.operations.send(stream, load))
    }

    fn close(&mut self, stream: StreamId, _: &Counters) -> Closing {
        self.port.inner.with(|state| state.operations.close(stream))
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.port.inner.with(|state| state.submit(counters))
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let token = ring::Token::from_user_data(token.0);
        // One that the kernel does not know yet is made known to it, so that its event tells of it.
        let submitted = self.commit(counters);
        self.port.inner.with(|state| match state.operations.stage(token) {
            None => Cancelled::Gone,
            Some(Stage::Started) if state.asked.contains(&token) => Cancelled::Asked,
            Some(Stage::Started) if submitted.is_ok() => {
                let own = token.of_its_cancel();
                if state.submissions.cancel(token, own, counters).is_err() {
                    return Cancelled::Unsupported;
                }
                state.asked.insert(token);
                Cancelled::Asked
            }
            Some(_) => Cancelled::Unsupported,
        })
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.commit(counters)?;
        Ok(f())
    }
}
