//! A completion queue that lets datagrams gather before a wait ends, where that was asked for. The rule goes with the
//! queue from thread to thread: datagrams come to it, not to a thread.

use crate::{
    counters::Counters,
    gather::{Asked, Gathering},
    rio::{Batch, CompletionQueue, Stopped, Woken, turn::TurnPort},
    wake::Waker,
};
use std::{
    io,
    time::{Duration, Instant},
};

/// A queue, and when its waits let datagrams gather.
pub(super) struct Gathered<Q> {
    queue: Q,
    gathering: Gathering,
    /// Receives outstanding, beyond which nothing can have been received at a time.
    receives: usize,
}

impl<Q: CompletionQueue> Gathered<Q> {
    /// The queue, with what is asked of its waits. What came of it is told to `state`.
    pub(super) fn new(
        queue: Q,
        asked: Asked,
        receives: u32,
        state: impl FnOnce(&str, String),
    ) -> Self {
        let gathering = asked.begin(&queue.gathers(), state);
        Self { queue, gathering, receives: receives as usize }
    }
}

impl<Q: CompletionQueue> CompletionQueue for Gathered<Q> {
    type Rq = Q::Rq;

    #[inline]
    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        let received = self.queue.dequeue(out, counters)?;
        if self.gathering.heeds_dequeues() {
            let full = out.room() == 0 || out.len() >= self.receives;
            let left = received > 0 && (full || self.queue.may_have_left());
            self.gathering.dequeued(received, left, Instant::now);
        }
        Ok(received)
    }

    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        if self.gathering.is_on() {
            if self.gathering.has_left() {
                return Ok(Woken::Ready);
            }
            let at_most = self.gathering.wait(Instant::now());
            // A wait with a time-out is for something else than the next datagram.
            if !at_most.is_zero() && timeout.is_none() {
                return self.queue.gather(self.gathering.enough(), at_most, counters);
            }
        }
        self.queue.wait(at_least, timeout, counters)
    }

    fn gather(&mut self, enough: u32, at_most: Duration, counters: &Counters) -> io::Result<Woken> {
        self.queue.gather(enough, at_most, counters)
    }

    fn gathers(&self) -> String {
        self.queue.gathers()
    }

    fn may_have_left(&self) -> bool {
        self.queue.may_have_left()
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }

    fn turn_port(&self) -> Option<Box<dyn TurnPort>> {
        self.queue.turn_port()
    }

    fn end_receiving(&mut self, counters: &Counters) -> io::Result<bool> {
        self.queue.end_receiving(counters)
    }

    fn stop(self, requests: Vec<Q::Rq>, by: Instant) -> Stopped {
        self.queue.stop(requests, by)
    }
}
