//! Datagrams on their way out of one socket.

use crate::{
    counters::Counters,
    memory::Slice,
    rio::Outcome,
    socket::{DatagramSocket, Headers},
};
use std::{collections::VecDeque, io, net::SocketAddr};

/// A slice to be sent.
pub(super) struct Outgoing {
    pub(super) slice: Slice,
    pub(super) len: usize,
    pub(super) to: SocketAddr,
}

/// Sends that wait for the socket, and those that are over. Bounded by the number of sends
/// that may be outstanding, which the request queue sees to.
pub(super) struct Outbox {
    pending: VecDeque<Outgoing>,
    done: VecDeque<(Slice, Outcome)>,
    /// The socket had no room.
    blocked: bool,
    headers: Headers,
}

impl Outbox {
    pub(super) fn new(sends: usize, per_call: usize) -> Self {
        Self {
            pending: VecDeque::with_capacity(sends),
            done: VecDeque::with_capacity(sends),
            blocked: false,
            headers: Headers::new(per_call.min(sends)),
        }
    }

    /// Adds sends behind those that wait.
    pub(super) fn add(&mut self, sends: &mut Vec<Outgoing>) {
        self.pending.extend(sends.drain(..));
    }

    /// Whether sends wait for the socket to have room.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether sends are over and not taken.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Takes a send that is over.
    pub(super) fn take_done(&mut self) -> Option<(Slice, Outcome)> {
        self.done.pop_front()
    }

    /// Sends what waits, as far as the socket takes it.
    pub(super) fn flush(&mut self, socket: &DatagramSocket, counters: &Counters) {
        let Self { pending, done, blocked, headers } = self;
        *blocked = false;
        while !pending.is_empty() {
            let datagram = |i: usize| {
                let Outgoing { slice, len, to } = &pending[i];
                (&slice.payload()[..*len], *to)
            };
            let (over, failure) = match socket.send_many(headers, pending.len(), datagram, counters)
            {
                Ok(sent) => (sent, None),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    *blocked = true;
                    return;
                }
                // The first one cannot be sent; those behind it perhaps can.
                Err(e) => (1, Some(e)),
            };
            if over == 0 {
                *blocked = true;
                return;
            }
            let mut failure = failure;
            done.extend(pending.drain(..over).map(|Outgoing { slice, len, .. }| {
                let outcome = failure.take().map_or(Outcome::Sent(len), Outcome::NotSent);
                (slice, outcome)
            }));
        }
    }

    /// Gives up everything, and returns how many slices that were.
    pub(super) fn clear(&mut self) -> usize {
        self.blocked = false;
        self.pending.drain(..).count() + self.done.drain(..).count()
    }
}
