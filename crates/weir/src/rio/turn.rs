//! The right to dequeue, as a value.
//!
//! On Windows a completion queue is bound to a completion port. After `RIONotify` the port
//! delivers one packet to one thread, and that thread may dequeue until it notifies again.
//! Nothing there stops a thread that forgot to wait for its packet. Here the packet is a
//! [`Turn`]: [`Turns::take`] delivers it, [`Turn::notify`] gives it up, and without one there is
//! no queue to dequeue from.
//!
//! Threads without a turn park on a stack, and the one that parked last is woken first: its
//! caches are warm, and the others sleep on. The thread that takes the queue waits in the
//! queue's own `wait`, so a datagram wakes one thread once. A queue that is not empty is
//! delivered at once.
//!
//! Where the system delivers turns itself, its queue has a [`TurnPort`]. Then all threads wait at that port, also
//! one that waits with its turn, and the system decides which of them is woken.

pub mod order;

use super::{CompletionQueue, Woken};
use crate::{
    counters::Counters,
    sync::{Condvar, Mutex, MutexGuard},
    wake::Waker,
};
use order::Order;
use std::{
    fmt, io,
    time::{Duration, Instant},
};

/// A port of the system's that delivers the turn of a queue bound to it: on Windows a completion port, after
/// `RIONotify`.
pub trait TurnPort: Send + Sync {
    /// Asks for a packet: at once if the queue is not empty, else when it is no longer. Asked again only once that
    /// packet was taken, and while nobody dequeues.
    ///
    /// # Errors
    /// What the system answered; no packet comes.
    fn notify(&self) -> io::Result<()>;

    /// Puts so many packets at the end that were not asked for, to end waits.
    fn post(&self, packets: usize);

    /// Waits for a packet and takes it, for so long at most. `false`: the time was over. Counts this entry into the
    /// kernel, and that of [`notify`](Self::notify).
    ///
    /// # Errors
    /// What the system answered.
    fn take(&self, timeout: Option<Duration>, counters: &Counters) -> io::Result<bool>;
}

/// Hands one queue from thread to thread.
pub struct Turns<Q> {
    state: Mutex<TurnsState<Q>>,
    /// Where threads without a turn sleep: one for each, so that waking one wakes that one.
    places: Box<[Condvar]>,
    waker: Waker,
    /// Where they wait instead, if the system delivers turns.
    port: Option<Box<dyn TurnPort>>,
}

struct TurnsState<Q> {
    order: Order<Q>,
    /// Why the port delivers no more, until a thread is told.
    failed: Option<io::Error>,
    closed: bool,
}

/// The right to dequeue from a queue. Given up by [`notify`](Turn::notify); dropping it (in a
/// panic, say) gives it up too.
pub struct Turn<'a, Q> {
    turns: &'a Turns<Q>,
    /// Always there until the turn is given up.
    queue: Option<Q>,
}

/// What came of waiting for a turn until a certain time.
#[derive(Debug)]
pub enum Waited<'a, Q> {
    /// The turn, and the queue has something.
    Turn(Turn<'a, Q>),
    /// The time was over.
    TimedOut,
    /// Closed: there are no more turns.
    Closed,
}

/// What is left until then, if there is a then.
fn left_until(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

impl<Q: CompletionQueue> Turns<Q> {
    /// For up to `threads` threads.
    pub fn new(queue: Q, threads: usize) -> Self {
        let turns = Self {
            state: Mutex::new(TurnsState {
                order: Order::new(threads),
                failed: None,
                closed: false,
            }),
            places: (0..threads).map(|_| Condvar::new()).collect(),
            waker: queue.waker(),
            port: queue.turn_port(),
        };
        turns.give_up(queue);
        turns
    }

    /// Waits for the turn and then for the queue to have something. `None`: closed.
    ///
    /// `thread` is the caller's own number, below the number given to [`Turns::new`].
    ///
    /// # Errors
    /// What the queue's wait answered; the turn is given up.
    pub fn take(&self, thread: usize, counters: &Counters) -> io::Result<Option<Turn<'_, Q>>> {
        match self.take_until(thread, None, counters)? {
            Waited::Turn(turn) => Ok(Some(turn)),
            Waited::TimedOut | Waited::Closed => Ok(None),
        }
    }

    /// The same, until then at the latest.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_until(
        &self,
        thread: usize,
        until: Option<Instant>,
        counters: &Counters,
    ) -> io::Result<Waited<'_, Q>> {
        if let Some(port) = &self.port {
            return self.take_from(&**port, until, counters);
        }
        let mut state = self.lock();
        let queue = loop {
            if state.closed {
                return Ok(Waited::Closed);
            }
            if let Some(queue) = state.order.take() {
                break queue;
            }
            state.order.park(thread);
            counters.parks.one();
            while !state.order.is_picked(thread) && !state.closed {
                let place = &self.places[thread];
                state = match left_until(until) {
                    None => place.wait(state).unwrap_or_else(|e| e.into_inner()),
                    Some(left) if left.is_zero() => {
                        // Nobody has picked it, and nobody will.
                        state.order.leave(thread);
                        return Ok(Waited::TimedOut);
                    }
                    Some(left) => {
                        place.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0
                    }
                };
            }
        };
        drop(state);
        Turn { turns: self, queue: Some(queue) }.wait_until(until, counters)
    }

    /// Waits for a packet of the port and takes the queue.
    fn take_from(
        &self,
        port: &dyn TurnPort,
        until: Option<Instant>,
        counters: &Counters,
    ) -> io::Result<Waited<'_, Q>> {
        let mut delivered = false;
        loop {
            let mut state = self.lock();
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if state.closed {
                return Ok(Waited::Closed);
            }
            if delivered && let Some(queue) = state.order.take() {
                return Ok(Waited::Turn(Turn { turns: self, queue: Some(queue) }));
            }
            drop(state);
            counters.waits.one();
            if !port.take(left_until(until), counters)? {
                return Ok(Waited::TimedOut);
            }
            delivered = true;
        }
    }

    /// Lets every thread return from [`take`](Self::take) with `None`.
    pub fn close(&self) {
        let mut state = self.lock();
        let was_closed = std::mem::replace(&mut state.closed, true);
        // On the stack are those that nobody has roused.
        let parked = state.order.pick_all();
        drop(state);
        for thread in parked {
            self.places[thread].notify_one();
        }
        if let Some(port) = self.port.as_ref().filter(|_| !was_closed) {
            port.post(self.places.len());
        }
        self.waker.wake();
    }

    /// The queue, to be stopped, once closed and given up by every thread.
    pub fn take_back(&self) -> Option<Q> {
        self.lock().order.take()
    }

    /// How many threads are parked.
    pub fn parked(&self) -> usize {
        self.lock().order.parked().len()
    }
}

impl<Q> Turns<Q> {
    fn lock(&self) -> MutexGuard<'_, TurnsState<Q>> {
        // Nothing that runs under the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the queue back, and rouses the thread that parked last, or lets the port deliver it.
    fn give_up(&self, queue: Q) {
        let mut state = self.lock();
        state.order.put_back(queue);
        if let Some(port) = &self.port {
            // Under the lock: whoever has the packet at once finds the queue, and nobody stops it meanwhile.
            if !state.closed
                && let Err(error) = port.notify()
            {
                // Nobody would have the queue again.
                (state.failed, state.closed) = (Some(error), true);
                port.post(self.places.len());
            }
        } else if let Some(thread) = state.order.pick() {
            drop(state);
            self.places[thread].notify_one();
        }
    }
}

impl<'a, Q: CompletionQueue> Turn<'a, Q> {
    /// The queue, for as long as the turn lasts.
    #[inline]
    pub fn queue(&mut self) -> &mut Q {
        self.queue.as_mut().expect("held until the turn is given up")
    }

    /// Gives the turn up: the thread that parked last gets the queue, at once if it is not
    /// empty. Notifying twice does not compile.
    pub fn notify(self, counters: &Counters) {
        counters.notifies.one();
        // Dropped here, and that gives it up.
    }

    /// Notifies and waits for the next delivery in one step. The thread that waits last is
    /// woken first, and that is this one: so it keeps the queue and waits in it, and the parked
    /// threads sleep on. `None`: closed.
    ///
    /// # Errors
    /// What the queue's wait answered. The turn is given up.
    pub fn wait(self, counters: &Counters) -> io::Result<Option<Turn<'a, Q>>> {
        match self.wait_until(None, counters)? {
            Waited::Turn(turn) => Ok(Some(turn)),
            Waited::TimedOut | Waited::Closed => Ok(None),
        }
    }

    /// The same, until then at the latest; then the turn is given up.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(
        mut self,
        until: Option<Instant>,
        counters: &Counters,
    ) -> io::Result<Waited<'a, Q>> {
        if let Some(port) = &self.turns.port {
            let turns = self.turns;
            drop(self);
            return turns.take_from(&**port, until, counters);
        }
        loop {
            if self.turns.lock().closed {
                return Ok(Waited::Closed);
            }
            counters.waits.one();
            match self.queue().wait(1, left_until(until), counters)? {
                Woken::Ready => return Ok(Waited::Turn(self)),
                Woken::TimedOut if until.is_some() => return Ok(Waited::TimedOut),
                Woken::TimedOut | Woken::ByWaker => {}
            }
        }
    }
}

impl<Q> fmt::Debug for Turn<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

impl<Q> Drop for Turn<'_, Q> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.turns.give_up(queue);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
