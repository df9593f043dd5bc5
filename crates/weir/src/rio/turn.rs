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

use super::{CompletionQueue, Woken};
use crate::{
    counters::Counters,
    sync::{Condvar, Mutex, MutexGuard},
    wake::Waker,
};
use std::io;

/// Where threads sleep that have no turn.
pub trait Parking: Send + Sync {
    /// Sleeps until the calling thread, which has this number, is roused; at once, if it was since
    /// it slept last. May end earlier.
    ///
    /// # Errors
    /// What the operating system answered.
    fn sleep(&self, thread: usize, counters: &Counters) -> io::Result<()>;

    /// Rouses a thread. `by` is the calling thread's number, if it has one.
    ///
    /// # Errors
    /// What the operating system answered: the thread may sleep on.
    fn rouse(&self, thread: usize, by: Option<usize>) -> io::Result<()>;
}

/// Hands one queue from thread to thread.
pub struct Turns<Q> {
    state: Mutex<State<Q>>,
    parked_at: ParkedAt,
    waker: Waker,
}

enum ParkedAt {
    /// One for each thread that may park: waking one wakes that one.
    Condvars(Box<[Condvar]>),
    /// What the queue's provider has.
    Provider(Box<dyn Parking>),
}

struct State<Q> {
    /// The queue, while nobody holds a turn.
    queue: Option<Q>,
    /// Threads that parked, the latest on top.
    parked: Vec<usize>,
    /// Threads picked from the stack that have not yet run.
    woken: Vec<bool>,
    closed: bool,
    /// Why a thread could not be roused: for whoever asks for the queue next.
    failed: Option<io::Error>,
}

/// The right to dequeue from a queue. Given up by [`notify`](Turn::notify); dropping it (in a
/// panic, say) gives it up too.
pub struct Turn<'a, Q> {
    turns: &'a Turns<Q>,
    thread: usize,
    /// Always there until the turn is given up.
    queue: Option<Q>,
}

impl<Q: CompletionQueue> Turns<Q> {
    /// For up to `threads` threads.
    pub fn new(queue: Q, threads: usize) -> Self {
        let condvars = (0..threads).map(|_| Condvar::new()).collect();
        Self::parked_at(queue, threads, ParkedAt::Condvars(condvars))
    }

    /// The same, with threads that sleep where the queue's provider has them sleep
    /// ([`CompletionQueue::parking`]).
    pub fn with_parking(queue: Q, threads: usize, parking: Box<dyn Parking>) -> Self {
        Self::parked_at(queue, threads, ParkedAt::Provider(parking))
    }

    fn parked_at(queue: Q, threads: usize, parked_at: ParkedAt) -> Self {
        let waker = queue.waker();
        Self {
            state: Mutex::new(State {
                queue: Some(queue),
                parked: Vec::with_capacity(threads),
                woken: vec![false; threads],
                closed: false,
                failed: None,
            }),
            parked_at,
            waker,
        }
    }

    /// Waits for the turn and then for the queue to have something. `None`: closed.
    ///
    /// `thread` is the caller's own number, below the number given to [`Turns::new`].
    ///
    /// # Errors
    /// What the queue's wait answered; the turn is given up. Or why a thread could not be roused.
    pub fn take(&self, thread: usize, counters: &Counters) -> io::Result<Option<Turn<'_, Q>>> {
        let mut state = self.lock();
        let queue = loop {
            if state.closed {
                return Ok(None);
            }
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if let Some(queue) = state.queue.take() {
                break queue;
            }
            state.parked.push(thread);
            state.woken[thread] = false;
            counters.parks.one();
            while !state.woken[thread] && !state.closed {
                state = self.park(state, thread, counters)?;
            }
        };
        drop(state);
        Turn { turns: self, thread, queue: Some(queue) }.wait(counters)
    }

    /// Sleeps, without the lock. Whoever rouses this thread has changed the state before.
    fn park<'a>(
        &'a self,
        state: MutexGuard<'a, State<Q>>,
        thread: usize,
        counters: &Counters,
    ) -> io::Result<MutexGuard<'a, State<Q>>> {
        let parking = match &self.parked_at {
            ParkedAt::Condvars(places) => {
                return Ok(places[thread].wait(state).unwrap_or_else(|e| e.into_inner()));
            }
            ParkedAt::Provider(parking) => parking,
        };
        drop(state);
        let slept = parking.sleep(thread, counters);
        let mut state = self.lock();
        if let Err(error) = slept {
            // It leaves: from the stack, or with the turn that it was just given.
            state.parked.retain(|&parked| parked != thread);
            if state.woken[thread] {
                self.hand_on(state, Some(thread));
            }
            return Err(error);
        }
        Ok(state)
    }

    /// Lets every thread return from [`take`](Self::take) with `None`.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        // On the stack are those that nobody has roused.
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        for thread in parked {
            self.rouse(thread, None);
        }
        self.waker.wake();
    }

    /// The queue, to be stopped, once closed and given up by every thread.
    pub fn take_back(&self) -> Option<Q> {
        self.lock().queue.take()
    }

    /// How many threads are parked.
    pub fn parked(&self) -> usize {
        self.lock().parked.len()
    }
}

impl<Q> Turns<Q> {
    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        // Nothing that runs under the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn give_up(&self, queue: Q, by: usize) {
        let mut state = self.lock();
        debug_assert!(state.queue.is_none(), "two turns for one queue");
        state.queue = Some(queue);
        self.hand_on(state, Some(by));
    }

    /// Rouses the thread that parked last.
    fn hand_on(&self, mut state: MutexGuard<'_, State<Q>>, by: Option<usize>) {
        if let Some(thread) = state.parked.pop() {
            state.woken[thread] = true;
            drop(state);
            self.rouse(thread, by);
        }
    }

    fn rouse(&self, thread: usize, by: Option<usize>) {
        match &self.parked_at {
            ParkedAt::Condvars(places) => places[thread].notify_one(),
            ParkedAt::Provider(parking) => {
                // Told by whoever gives a turn up, which may be in a drop: so the next to ask hears it.
                if let Err(error) = parking.rouse(thread, by) {
                    self.lock().failed = Some(error);
                }
            }
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
    }

    /// Notifies and waits for the next delivery in one step. The thread that waits last is
    /// woken first, and that is this one: so it keeps the queue and waits in it, and the parked
    /// threads sleep on. `None`: closed.
    ///
    /// # Errors
    /// What the queue's wait answered, or why a thread could not be roused. The turn is given up.
    pub fn wait(mut self, counters: &Counters) -> io::Result<Option<Turn<'a, Q>>> {
        loop {
            let mut state = self.turns.lock();
            if state.closed {
                drop(state); // before the turn is given up
                return Ok(None);
            }
            let failed = state.failed.take();
            drop(state);
            if let Some(error) = failed {
                return Err(error);
            }
            counters.waits.one();
            if self.queue().wait(1, None, counters)? == Woken::Ready {
                return Ok(Some(self));
            }
        }
    }
}

impl<Q> Drop for Turn<'_, Q> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.turns.give_up(queue, self.thread);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
