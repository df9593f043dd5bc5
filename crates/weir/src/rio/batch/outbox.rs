//! Datagrams on their way out of one socket.

use crate::{
    counters::Counters,
    memory::Slice,
    rio::{Outcome, requests::Outgoing},
    socket::{DatagramSocket, Headers, Unsent},
};
use std::{collections::VecDeque, io};

/// Sends that wait for the socket, and those that are over. Bounded by the number of sends
/// that may be outstanding, which the request queue sees to.
pub(in crate::rio) struct Outbox {
    pending: VecDeque<Outgoing>,
    done: VecDeque<(Slice, Outcome)>,
    /// The socket had no room.
    blocked: bool,
    headers: Headers,
}

impl Outbox {
    pub(in crate::rio) fn new(sends: usize, per_call: usize) -> Self {
        Self {
            pending: VecDeque::with_capacity(sends),
            done: VecDeque::with_capacity(sends),
            blocked: false,
            headers: Headers::new(per_call.min(sends)),
        }
    }

    /// Adds sends behind those that wait.
    pub(in crate::rio) fn add(&mut self, sends: impl IntoIterator<Item = Outgoing>) {
        self.pending.extend(sends);
    }

    /// Whether sends wait for the socket to have room.
    pub(in crate::rio) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether sends are over and not taken.
    pub(in crate::rio) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Takes a send that is over.
    pub(in crate::rio) fn take_done(&mut self) -> Option<(Slice, Outcome)> {
        self.done.pop_front()
    }

    /// Sends what waits, as far as the socket takes it.
    pub(in crate::rio) fn flush(&mut self, socket: &DatagramSocket, counters: &Counters) {
        self.flush_with(
            |headers, pending| {
                let span = |i: usize| {
                    let Outgoing { slice, span, to } = &pending[i];
                    (&slice.payload()[..span.len], span.segment, *to)
                };
                socket.send_many(headers, pending.len(), span, counters)
            },
            |Outgoing { slice, span, to }, refused| match span.segment {
                None => Err(refused.into()),
                Some(segment) => {
                    socket.send_each(&slice.payload()[..span.len], segment, to, counters)
                }
            },
        );
    }

    /// The same with calls of one's own: one returns how many of those that wait it took, the
    /// other is for one that was refused.
    fn flush_with(
        &mut self,
        mut send: impl FnMut(&mut Headers, &VecDeque<Outgoing>) -> io::Result<usize>,
        mut send_otherwise: impl FnMut(&Outgoing, io::Error) -> Result<(), Unsent>,
    ) {
        let Self { pending, done, blocked, headers } = self;
        *blocked = false;
        while !pending.is_empty() {
            let (over, mut failure) = match send(headers, pending) {
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    // The first one cannot be sent so; those behind it perhaps can.
                    (1, send_otherwise(&pending[0], e).err())
                }
                Err(_) | Ok(0) => {
                    *blocked = true;
                    return;
                }
                Ok(sent) => (sent, None),
            };
            done.extend(pending.drain(..over).map(|Outgoing { slice, span, .. }| {
                let outcome = failure.take().map_or(Outcome::Sent(span), Outcome::NotSent);
                (slice, outcome)
            }));
        }
    }

    /// Gives up everything, and returns how many slices that were.
    pub(in crate::rio) fn clear(&mut self) -> usize {
        self.blocked = false;
        self.pending.drain(..).count() + self.done.drain(..).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, Region, RegionOptions};
    use crate::socket::Peer;

    /// An outbox in which sends of 1, 2, 3… bytes wait.
    fn outbox(sends: usize) -> Outbox {
        let layout = Layout::packed(0, 64, 64);
        let region = Region::new(layout, sends as u32, RegionOptions::default()).unwrap();
        let to = Peer::from("127.0.0.1:9".parse::<std::net::SocketAddr>().unwrap());
        let outgoing =
            |i: usize| Outgoing { slice: region.take().unwrap(), span: (i + 1).into(), to };
        let mut outbox = Outbox::new(sends, 4);
        outbox.add((0..sends).map(outgoing));
        outbox
    }

    fn done(outbox: &mut Outbox) -> Vec<String> {
        let told = |(_, end)| match end {
            Outcome::Sent(span) => format!("Sent({})", span.len),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| outbox.take_done()).map(told).collect()
    }

    #[test]
    fn what_the_socket_has_no_room_for_goes_with_a_later_call() {
        let mut outbox = outbox(5);
        let mut answers = vec![Err(io::ErrorKind::WouldBlock.into()), Ok(2), Ok(1)];
        outbox.flush_with(|_, _| answers.pop().unwrap(), |_, e| Err(e.into()));
        assert!(outbox.is_blocked() && outbox.has_done());
        assert_eq!(done(&mut outbox), ["Sent(1)", "Sent(2)", "Sent(3)"]);
        // Nothing has changed: it stays so.
        outbox.flush_with(|_, _| Ok(0), |_, e| Err(e.into()));
        assert!(outbox.is_blocked() && !outbox.has_done());
        outbox.flush_with(|_, pending| Ok(pending.len()), |_, e| Err(e.into()));
        assert!(!outbox.is_blocked());
        assert_eq!(done(&mut outbox), ["Sent(4)", "Sent(5)"]);
        assert_eq!(outbox.clear(), 0);
    }

    #[test]
    fn one_that_cannot_be_sent_is_passed_over() {
        let mut outbox = outbox(4);
        let mut answers = vec![Ok(2), Err(io::ErrorKind::InvalidInput.into()), Ok(1)];
        outbox.flush_with(|_, _| answers.pop().unwrap(), |_, e| Err(e.into()));
        let done = done(&mut outbox);
        assert!(done[1].starts_with("NotSent"), "{done:?}");
        assert_eq!([&done[0], &done[2], &done[3]], ["Sent(1)", "Sent(3)", "Sent(4)"]);
    }

    #[test]
    fn a_stop_gives_up_what_waits_and_what_is_over() {
        let mut outbox = outbox(3);
        let mut answers = vec![Ok(0), Ok(1)];
        outbox.flush_with(|_, _| answers.pop().unwrap(), |_, e| Err(e.into()));
        assert_eq!(outbox.clear(), 3);
    }
}
