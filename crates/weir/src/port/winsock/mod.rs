//! The operations of streams for one thread, with an event for each that is outstanding: overlapped calls of Winsock 2
//! (WSARecv, WSASend, AcceptEx), and a wait for a group of events (WSAWaitForMultipleEvents).
//!
//! The thread waits for its events and is told one at a time; the event tells it which operation has finished, and then
//! it asks what became of it (WSAGetOverlappedResult). No completion port has anything to do with it: sockets belong to
//! none here, and where one does all the same, the low bit of an operation's event keeps its packet away.
//!
//! *Which is told.* Of several events that are set, the wait tells the first. So events stand in the order in which
//! their operations were started, behind the waker's: an operation only moves forward, and who is busy does not keep
//! others waiting. The wait resets the event that it tells, so that each end is told once.
//!
//! *Several receives of a stream* are in the system's hands at a time, and are filled in the order in which they were
//! started, which is that of their numbers, since one thread starts them. *Waiting without memory* is a receive of no
//! bytes.
//!
//! *Cancelling* asks for one operation (CancelIoEx), which comes back as any other, cancelled or finished.
//!
//! What it costs: a call for each operation, an event for each, and a wait for each completion, which looks through all
//! events of the group.
//!
//! How it fails: a thread waits for 64 events and no more (WSA_MAXIMUM_WAIT_EVENTS). Where a thread exits, the system
//! takes back what it has started. What the system writes to stays in place until its event was told, and is leaked
//! where that never happens.
//!
//! Origin: overlapped operations with events of Winsock 2, Windows NT 4.0; CancelIoEx, Windows Vista.

mod event;
mod operations;
#[cfg(test)]
mod tests;

use crate::{
    Error, Unavailable,
    counters::Counters,
    left::TimeLeft,
    memory::{Load, Slice},
    port::{
        Cancelled, Key, Packet, Refused, Stopped, Token,
        streams::{Closing, ListenerId, Needs, Port, Provider, StreamId, Taken, Worker, proof},
    },
    socket::native::CANCEL_AGAIN,
    stream::{Listener, Stream},
    wake::Waker,
};
use event::Event;
use operations::Operations;
use std::{
    collections::VecDeque,
    io,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use windows_sys::Win32::Networking::WinSock::WSA_MAXIMUM_WAIT_EVENTS;

/// The provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WinsockEvents {}

impl WinsockEvents {
    /// The most events that a group may have, the one that wakes its thread included.
    pub const MOST: u32 = WSA_MAXIMUM_WAIT_EVENTS;

    /// Refuses what makes no sense, or more than a thread waits for.
    fn check(&self, needs: &Needs) -> Result<(), Error> {
        let wrong = |name, problem: String| Err(Error::option(name, problem));
        if !(1..=MOST_STREAMS).contains(&needs.streams) {
            let streams = needs.streams;
            let problem = format!("{streams} is not allowed; allowed: 1 to {MOST_STREAMS}");
            return wrong("streams", problem);
        }
        let kinds =
            [("accepts", needs.accepts), ("receives", needs.receives), ("sends", needs.sends)];
        let events: u64 = kinds.iter().map(|(_, count)| u64::from(*count)).sum();
        if events < Self::MOST.into() {
            return Ok(());
        }
        let (name, _) = kinds.into_iter().max_by_key(|(_, count)| *count).expect("there are three");
        wrong(
            name,
            format!(
                "{events} operations with an event each are not allowed; allowed: {} in all, since a thread waits for {} \
                 events, of which one wakes it",
                Self::MOST - 1,
                Self::MOST
            ),
        )
    }
}

/// As many connections as a token can tell apart.
const MOST_STREAMS: u32 = 1 << 24;

const WHAT: &str = "provider winsock of operations with events";

impl Provider for WinsockEvents {
    const NAME: &'static str = "winsock";
    type Port = EventsPort;

    fn availability(&self) -> Result<(), Unavailable> {
        proof::prove(self, WHAT, None)
    }

    fn open(&self, needs: &Needs) -> Result<EventsPort, Error> {
        self.check(needs)?;
        let making = |e| Error::io("making the events of a group", e);
        let operations = Operations::new(needs).map_err(making)?;
        let (packets, packets_most) = (VecDeque::new(), needs.packets as usize);
        let state = EventsState { operations, packets, packets_most };
        let inner = Arc::new(Inner {
            state: Mutex::new(Some(state)),
            closed: AtomicBool::new(false),
            waker: Event::new().map_err(making)?,
        });
        Ok(EventsPort { inner, seated: AtomicBool::new(false), needs: *needs })
    }
}

/// A group of events.
pub struct EventsPort {
    inner: Arc<Inner>,
    /// Its one thread has its place.
    seated: AtomicBool,
    needs: Needs,
}

/// What the thread and those who may wake it share.
struct Inner {
    /// There until the port goes.
    state: Mutex<Option<EventsState>>,
    closed: AtomicBool,
    /// The first event of the group.
    waker: Event,
}

struct EventsState {
    operations: Operations,
    packets: VecDeque<Packet>,
    packets_most: usize,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Option<EventsState>> {
        // A panic under the lock is a broken invariant of this file; what the system holds is still accounted for, so
        // it must be reached.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, f: impl FnOnce(&mut EventsState) -> R) -> R {
        f(self.lock().as_mut().expect("there until the port goes"))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.waker.set();
    }

    fn post(&self, packet: Packet) -> Result<(), (Packet, Refused)> {
        let mut state = self.lock();
        let Some(state) = state.as_mut().filter(|_| !self.is_closed()) else {
            return Err((packet, Refused::Closed));
        };
        if state.packets.len() >= state.packets_most {
            return Err((packet, Refused::Full));
        }
        state.packets.push_back(packet);
        self.waker.set();
        Ok(())
    }

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
        let before = out.len();
        loop {
            if !draining && self.is_closed() {
                return Ok(None);
            }
            let events = self.with(|state| {
                state.operations.take_closed(out);
                while !draining && out.room() > 0 {
                    let Some(packet) = state.packets.pop_front() else { break };
                    out.push(packet.into());
                }
                counters.kernel_entries.add(state.operations.take_calls());
                state.operations.events_behind(&self.waker)
            });
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
            counters.kernel_entries.one();
            counters.waits.one();
            match events.wait(|| time.left())? {
                Some(0) => {} // what it is for is looked for above
                Some(told) => self.with(|state| state.operations.told(told - 1, out)),
                None => return Ok(Some(0)),
            }
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
        }
    }
}

impl Port for EventsPort {
    type Worker<'a> = EventsWorker<'a>;

    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        let most = self.needs.listeners;
        self.inner.with(|state| state.operations.listen(listener, key, most))
    }

    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        if self.inner.is_closed() {
            return Err(Refused::Closed);
        }
        self.inner.with(|state| state.operations.associate(stream, key))
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        counters.kernel_entries.one();
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
            return Err(Error::option("threads", "a group of events is one thread's"));
        }
        Ok(EventsWorker { port: self, stays: PhantomData })
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        self.inner.with(|state| state.operations.received_in_all(stream, counters))
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
        self.inner.with(|state| state.operations.cancel_all());
        while self.inner.with(|state| state.operations.outstanding()) > 0 {
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break; // what did not come back is leaked and counted
            }
            match self.inner.take(&mut out, Some(left.min(CANCEL_AGAIN)), &counters, true) {
                Ok(Some(0)) => self.inner.with(|state| state.operations.cancel_all()),
                Ok(_) => {}
                Err(_) => break,
            }
            returned += out.drain().filter(Operations::brings_memory).count() as u32;
        }
        let (given_up, missing) = self.give_up().expect("given up only here and in drop");
        Stopped { returned: returned + given_up, missing }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        vec![("events-most", WinsockEvents::MOST.to_string())]
    }
}

impl EventsPort {
    fn give_up(&self) -> Option<(u32, u32)> {
        let state = self.inner.lock().take()?;
        Some(state.operations.give_up())
    }
}

impl Drop for EventsPort {
    fn drop(&mut self) {
        // Without a stop: what the system holds is leaked and counted.
        self.give_up();
    }
}

/// The thread's place at an [`EventsPort`].
pub struct EventsWorker<'a> {
    port: &'a EventsPort,
    /// It stays on its thread, with which the system takes back what it has started.
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
        self.port.inner.take(out, timeout, counters, false)
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
        debug_assert!(!load.left().is_empty(), "a send of nothing");
        match self.open() {
            Ok(inner) => inner.with(|state| state.operations.send(stream, load)),
            Err(refused) => Err((load, refused)),
        }
    }

    fn close(&mut self, stream: StreamId, _: &Counters) -> Closing {
        self.port.inner.with(|state| state.operations.close(stream))
    }

    /// Operations are known to the system at once: what is left to do is to count the calls that started them.
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let calls = self.port.inner.with(|state| state.operations.take_calls());
        counters.kernel_entries.add(calls);
        Ok(())
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let cancelled = self.port.inner.with(|state| state.operations.cancel(token));
        let _ = self.commit(counters); // it fails never
        cancelled
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.commit(counters)?;
        Ok(f())
    }
}
