//! A port of one thread that waits for a group of events, one for each operation: its packets, the thread's place,
//! closing and stopping. The events, the wait and the operations are the system's ([`Group`]).

use super::{Closing, Completion, ListenerId, Needs, Port, StreamId, Taken, Worker};
use crate::{
    Error,
    counters::Counters,
    deadline::{LastLook, TimeLeft},
    gather::Gather,
    lifecycle::{lock, try_lock},
    memory::{Load, Slice},
    port::{Cancelled, Finished as _, Key, Packet, Refused, Stopped, Token, arming::Arming},
    rio::Woken,
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The operations of a group, with an event for each that is outstanding. Each function is as in [`Port`] or [`Worker`],
/// called by the thread of the group alone, and not after the port was closed unless it says so.
pub trait Group: Send + Sized + 'static {
    /// What the thread waits with.
    type Events: Send;

    /// A stop asks again for cancels that the system has not answered for so long.
    const CANCEL_AGAIN: Duration;

    /// How messages gather here, in words; `None`: each of them ends a wait.
    const GATHERS: Option<&'static str> = None;

    fn listen(&mut self, listener: Listener, key: Key) -> Result<ListenerId, Error>;

    fn associate(&mut self, stream: Stream, key: Key) -> Result<StreamId, Refused>;

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused>;

    /// As [`Worker::end_accepting`]. Returns the accepts that are to be cancelled: by default none.
    fn end_accepting(&mut self) -> Vec<Token> {
        Vec::new()
    }

    /// A receive, or a wait to receive where there is no slice.
    fn receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Result<Token, (Option<Slice>, Refused)>;

    fn send(
        &mut self,
        stream: StreamId,
        load: Load,
        events: &mut Self::Events,
    ) -> Result<Token, (Load, Refused)>;

    /// Also after the port was closed, as all that follow.
    fn close(&mut self, stream: StreamId) -> Closing;

    fn commit(&mut self, counters: &Counters) -> io::Result<()>;

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled;

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64>;

    /// Reports connections that are over, as many as fit.
    fn take_closed(&mut self, out: &mut Taken);

    /// Brings an operation that has finished, as far as that can be seen without waiting, if there is room.
    ///
    /// # Errors
    /// What the system answered.
    fn take_finished(&mut self, out: &mut Taken) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Whether what comes for receives ends a wait from now on. What may be received is looked for by the next
    /// [`commit`](Group::commit).
    ///
    /// # Errors
    /// What the system answered.
    fn arm(
        &mut self,
        arming: Arming,
        events: &mut Self::Events,
        counters: &Counters,
    ) -> io::Result<()> {
        let _ = (arming, events, counters);
        Ok(())
    }

    /// Waits for an event, and brings what it is for: nothing where that is the waker's.
    fn wait(
        inner: &Inner<Self>,
        events: &mut Self::Events,
        time: &mut TimeLeft,
        counters: &Counters,
        out: &mut Taken,
    ) -> io::Result<Woken>;

    /// Operations in the system's hands, or events that it has still to signal: how many at least.
    fn outstanding(&mut self) -> usize;

    /// Asks for all of them to be cancelled.
    fn cancel_all(&mut self, counters: &Counters);

    /// Leaks what the system holds. Returns how many pieces of memory came back, and how many did not.
    fn give_up(self) -> (u32, u32);

    /// As [`Port::granted`].
    fn granted(&self) -> Vec<(&'static str, String)>;
}

/// A group of events.
pub struct EventsPort<G: Group> {
    pub(in crate::port) inner: Arc<Inner<G>>,
    /// Whoever has the lock is the group's thread.
    events: Mutex<G::Events>,
}

/// What the thread and those who may wake it share.
pub struct Inner<G> {
    /// There until the port goes.
    group: Mutex<Option<G>>,
    packets: Mutex<VecDeque<Packet>>,
    packets_most: usize,
    /// Whether there are any. Changed under their lock.
    has_packets: AtomicBool,
    closed: AtomicBool,
    waker: Waker,
}

impl<G: Group> Inner<G> {
    pub fn with<R>(&self, f: impl FnOnce(&mut G) -> R) -> R {
        f(lock(&self.group).as_mut().expect("there until the port goes"))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
        self.waker.wake();
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        if self.is_closed() {
            return Err((packet, Refused::Closed));
        }
        let mut packets = lock(&self.packets);
        if packets.len() >= self.packets_most {
            return Err((packet, Refused::Full));
        }
        packets.push_back(packet);
        self.has_packets.store(true, SeqCst);
        drop(packets);
        counters.kernel_entries.one();
        self.waker.wake();
        Ok(())
    }

    /// Waits for an event, and brings what it is for. With `gather` it lets messages gather before it waits, for as long as
    /// that says then.
    fn take(
        &self,
        events: &mut G::Events,
        out: &mut Taken,
        timeout: Option<Duration>,
        mut gather: Option<&mut dyn FnMut() -> Gather>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        assert!(out.room() > 0, "a take needs room for a completion");
        let (mut time, before) = (TimeLeft::of(timeout), out.len());
        loop {
            if self.is_closed() {
                return Ok(None);
            }
            if self.has_packets.load(SeqCst) {
                self.take_packets(out);
            }
            self.with(|group| {
                group.take_closed(out);
                if gather.is_none() {
                    group.arm(Arming::Each, events, counters)?;
                }
                group.commit(counters)?;
                group.take_finished(out)
            })?;
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
            if let Some(gather) = &mut gather {
                let at_most = gather().at_most;
                let at_most = time.left().map_or(at_most, |left| at_most.min(left));
                let arming = if at_most.is_zero() { Arming::Any } else { Arming::None };
                self.with(|group| group.arm(arming, events, counters))?;
                if !at_most.is_zero() {
                    self.sleep(events, out, at_most, counters)?;
                    if out.len() > before {
                        return Ok(Some(out.len() - before));
                    }
                    continue;
                }
            }
            counters.waits.one();
            let woken = G::wait(self, events, &mut time, counters, out)?;
            if out.len() > before {
                return Ok(Some(out.len() - before));
            }
            if woken == Woken::TimedOut {
                return Ok(Some(0));
            }
        }
    }

    /// Sleeps while messages gather, until the time is over, something has finished that was under way before, or somebody
    /// wakes the thread.
    fn sleep(
        &self,
        events: &mut G::Events,
        out: &mut Taken,
        at_most: Duration,
        counters: &Counters,
    ) -> io::Result<()> {
        counters.waits.one();
        let (mut time, before) = (TimeLeft::of(Some(at_most)), out.len());
        while time.left().is_some_and(|left| !left.is_zero()) {
            // Events are heard again that were set for what is handled already, and end no sleep.
            let woken = G::wait(self, events, &mut time, counters, out)?;
            if woken != Woken::Ready || out.len() > before {
                break;
            }
        }
        Ok(())
    }

    #[cold]
    fn take_packets(&self, out: &mut Taken) {
        let mut packets = lock(&self.packets);
        while out.room() > 0
            && let Some(packet) = packets.pop_front()
        {
            out.push(packet.into());
        }
        self.has_packets.store(!packets.is_empty(), SeqCst);
    }

    fn give_up(&self) -> Option<(u32, u32)> {
        Some(lock(&self.group).take()?.give_up())
    }
}

impl<G: Group> EventsPort<G> {
    /// `waker` ends a wait with `events`.
    pub(in crate::port) fn new(group: G, events: G::Events, waker: Waker, needs: &Needs) -> Self {
        let inner = Inner {
            group: Mutex::new(Some(group)),
            packets: Mutex::default(),
            packets_most: needs.packets as usize,
            has_packets: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            waker,
        };
        Self { inner: Arc::new(inner), events: Mutex::new(events) }
    }
}

impl<G: Group> Port for EventsPort<G> {
    type Worker<'a> = EventsWorker<'a, G>;

    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        self.inner.with(|group| group.listen(listener, key))
    }

    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        if self.inner.is_closed() {
            return Err(Refused::Closed);
        }
        self.inner.with(|group| group.associate(stream, key))
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet, counters)
    }

    fn poster(&self, packet: Packet) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || {
            let _ = inner.post(packet, &Counters::default());
        })
    }

    fn worker(&self) -> Result<EventsWorker<'_, G>, Error> {
        let events = try_lock(&self.events);
        let events =
            events.ok_or_else(|| Error::option("threads", "a group of events is one thread's"))?;
        Ok(EventsWorker { inner: &self.inner, events })
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        self.inner.with(|group| group.received_in_all(stream, counters))
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
        let (counters, mut returned, mut out) = (Counters::default(), 0, Taken::new(1));
        let mut events = lock(&self.events);
        self.inner.with(|group| group.cancel_all(&counters));
        let (mut look, mut some) = (LastLook::by(by), false);
        while self.inner.with(|group| group.outstanding()) > 0 {
            let Some(left) = look.wait(some) else {
                break; // what did not come back is leaked and counted
            };
            let found = self.inner.with(|group| {
                group.take_closed(&mut out);
                if out.is_empty() { group.take_finished(&mut out) } else { Ok(()) }
            });
            let mut time = TimeLeft::of(Some(left.min(G::CANCEL_AGAIN)));
            let waited = found.and_then(|()| match out.is_empty() {
                true => G::wait(&self.inner, &mut events, &mut time, &counters, &mut out),
                false => Ok(Woken::Ready),
            });
            match waited {
                Ok(Woken::TimedOut) => self.inner.with(|group| group.cancel_all(&counters)),
                Ok(_) => {}
                Err(_) => break,
            }
            some = !out.is_empty();
            returned += out.drain().filter(Completion::brings_memory).count() as u32;
        }
        let (given_up, missing) = self.inner.give_up().expect("given up only here and in drop");
        Stopped { returned: returned + given_up, missing }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        self.inner.with(|group| group.granted())
    }
}

impl<G: Group> Drop for EventsPort<G> {
    fn drop(&mut self) {
        // Without a stop: what the system holds is leaked and counted.
        self.inner.give_up();
    }
}

/// The thread's place at an [`EventsPort`]. It stays on its thread, with which the system may take back what it has
/// started.
pub struct EventsWorker<'a, G: Group> {
    inner: &'a Inner<G>,
    events: MutexGuard<'a, G::Events>,
}

impl<G: Group> EventsWorker<'_, G> {
    fn open(&self) -> Result<&Inner<G>, Refused> {
        if self.inner.is_closed() { Err(Refused::Closed) } else { Ok(self.inner) }
    }
}

impl<G: Group> Worker for EventsWorker<'_, G> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.inner.take(&mut self.events, out, timeout, None, counters)
    }

    fn take_gathered(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        gather: &mut dyn FnMut() -> Gather,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.inner.take(&mut self.events, out, timeout, Some(gather), counters)
    }

    fn gathers(&self) -> String {
        G::GATHERS.unwrap_or("each message ends a wait").into()
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.open()?.with(|group| group.accept(listener))
    }

    fn end_accepting(&mut self, counters: &Counters) {
        self.inner.with(|group| {
            for token in group.end_accepting() {
                let _ = group.cancel(token, counters); // asked for, or over by itself
            }
        });
    }

    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let started = match self.open() {
            Ok(inner) => inner.with(|group| group.receive(stream, Some(slice))),
            Err(refused) => return Err((slice, refused)),
        };
        started.map_err(|(slice, refused)| (slice.expect("the one that was given"), refused))
    }

    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused> {
        let started = self.open()?.with(|group| group.receive(stream, None));
        started.map_err(|(_, refused)| refused)
    }

    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        debug_assert!(!load.left().is_empty(), "a send of nothing");
        if let Err(refused) = self.open() {
            return Err((load, refused));
        }
        self.inner.with(|group| group.send(stream, load, &mut self.events))
    }

    fn close(&mut self, stream: StreamId, _: &Counters) -> Closing {
        self.inner.with(|group| group.close(stream))
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.inner.with(|group| group.commit(counters))
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        self.inner.with(|group| group.cancel(token, counters))
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        self.commit(counters)?;
        Ok(f())
    }
}
