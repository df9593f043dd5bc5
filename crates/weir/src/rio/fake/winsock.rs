//! The rules of Winsock's registered I/O.
//!
//! A request carries its slice, and the requests of one kind on one socket complete in the
//! order in which they were posted. Posted requests are deferred until the commit. A datagram
//! that finds no request waits in the socket's receive buffer. After `RIONotify` one event is
//! delivered, at once if the queue is not empty; asking again before that is an error. It is a packet
//! where the queue is bound to a completion port ([`Fake::with_port`](super::Fake::with_port)). There
//! is no cancel: closing the socket completes everything outstanding with an error, not
//! necessarily at once.

use super::{
    Injected,
    kernel::{Asked, Datagram, Done, Kernel, Net},
};
use crate::{
    Unavailable,
    memory::{Layout, Slice},
    rio::{Needs, Outcome, requests::Outgoing},
    socket::{Endpoint, ReceiveBuffer},
};
use std::{collections::VecDeque, io, net::SocketAddr};

/// Room before the payload for two SOCKADDR_INET (28 bytes each: source and local address),
/// rounded up to 64.
const HEADROOM_BYTES: usize = 64;

/// RIO_MAX_CQ_SIZE: entries of a completion queue, which must cover every request queue.
const COMPLETIONS_MAX: u64 = 0x800_0000;

/// Size of a socket's receive buffer where none was asked for, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;

/// What a datagram costs in the receive buffer beside its bytes, so that one without bytes
/// costs something.
const DATAGRAM_OVERHEAD_BYTES: usize = 64;

/// The rules of Winsock RIO, for [`Fake`](super::Fake).
#[derive(Debug)]
pub struct Winsock {
    sockets: Vec<Socket>,
    completions: VecDeque<Done>,
    completions_max: u64,
    /// RIONotify was called and has not delivered yet.
    armed: bool,
    /// It has delivered, and nobody has seen it yet.
    signalled: bool,
    closed: bool,
}

#[derive(Debug)]
struct Socket {
    endpoint: Endpoint,
    deferred_receives: Vec<Slice>,
    deferred_sends: Vec<Outgoing>,
    receives: VecDeque<Slice>,
    sends: VecDeque<(Slice, Outcome)>,
    buffer: VecDeque<Buffered>,
    buffer_bytes: usize,
    stuck: Vec<Slice>,
}

/// A datagram in a socket's receive buffer.
#[derive(Debug)]
struct Buffered {
    to: SocketAddr,
    from: SocketAddr,
    bytes: Vec<u8>,
}

/// A notification was asked for while one was outstanding (WSAEALREADY).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AlreadyNotified;

impl Winsock {
    /// RIONotify.
    pub(super) fn notify(&mut self) -> Result<(), AlreadyNotified> {
        if self.armed {
            return Err(AlreadyNotified);
        }
        self.armed = true;
        self.deliver_notification();
        Ok(())
    }

    fn deliver_notification(&mut self) {
        if self.armed && !self.completions.is_empty() {
            (self.armed, self.signalled) = (false, true);
        }
    }

    fn complete(&mut self, done: Done, net: &mut Net) {
        assert!((self.completions.len() as u64) < self.completions_max, "more than was asked for");
        let mut place = self.completions.len();
        if done.asked == Asked::Send && net.random.chance(net.faults.reorder) {
            // Before receives, but behind every send.
            let last = self.completions.iter().rposition(|done| done.asked == Asked::Send);
            place = last.map_or(0, |last| last + 1);
        }
        self.completions.insert(place, done);
        self.deliver_notification();
    }

    /// Gives a datagram to the receive posted first. False: there is none.
    fn fill_next(&mut self, index: usize, datagram: &Datagram<'_>, net: &mut Net) -> bool {
        while let Some(mut slice) = self.sockets[index].receives.pop_front() {
            if net.random.chance(net.faults.receive_error) {
                // As after an ICMP message: this receive fails, the datagram takes the next.
                let reset = Outcome::Failed(io::ErrorKind::ConnectionReset.into());
                self.complete(Done::new(Asked::Receive, index, slice, reset), net);
                continue;
            }
            let received = net.fill(&mut slice, datagram, &self.sockets[index].endpoint);
            let received = Outcome::Received(received);
            self.complete(Done::new(Asked::Receive, index, slice, received), net);
            return true;
        }
        false
    }

    fn empty_buffer(&mut self, index: usize, net: &mut Net) {
        while let Some(Buffered { to, from, bytes }) = self.sockets[index].buffer.pop_front() {
            if !self.fill_next(index, &Datagram { to, from, bytes: &bytes }, net) {
                self.sockets[index].buffer.push_front(Buffered { to, from, bytes });
                return;
            }
            self.sockets[index].buffer_bytes -= bytes.len() + DATAGRAM_OVERHEAD_BYTES;
        }
    }
}

impl Kernel for Winsock {
    const NAME: &'static str = "fake-winsock";

    fn layout(needs: &Needs) -> Result<Layout, Unavailable> {
        let asked = u64::from(needs.receives) + u64::from(needs.sends);
        if asked > COMPLETIONS_MAX {
            let reason =
                format!("a completion queue holds {COMPLETIONS_MAX} requests, not {asked}");
            return Err(Unavailable::new("provider fake-winsock", reason)
                .advise("ask for fewer outstanding receives"));
        }
        Ok(Layout::packed(HEADROOM_BYTES, needs.payload, 64))
    }

    fn new(endpoints: &[Endpoint], needs: &Needs) -> Self {
        let sockets = endpoints.iter().map(|endpoint| Socket {
            endpoint: *endpoint,
            deferred_receives: Vec::new(),
            deferred_sends: Vec::new(),
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            buffer: VecDeque::new(),
            buffer_bytes: 0,
            stuck: Vec::new(),
        });
        Self {
            sockets: sockets.collect(),
            completions: VecDeque::new(),
            completions_max: u64::from(needs.receives) + u64::from(needs.sends),
            armed: false,
            signalled: false,
            closed: false,
        }
    }

    fn receive(&mut self, socket: usize, slice: Slice, _net: &mut Net) {
        self.sockets[socket].deferred_receives.push(slice);
    }

    fn send(&mut self, socket: usize, send: Outgoing) {
        self.sockets[socket].deferred_sends.push(send);
    }

    fn commit(&mut self, index: usize, net: &mut Net) -> u64 {
        let socket = &mut self.sockets[index];
        if socket.deferred_receives.is_empty() && socket.deferred_sends.is_empty() {
            return 0;
        }
        socket.receives.extend(socket.deferred_receives.drain(..));
        for send in socket.deferred_sends.drain(..) {
            let outcome = if net.random.chance(net.faults.send_error) {
                Outcome::NotSent(io::Error::from(io::ErrorKind::NetworkUnreachable).into())
            } else {
                net.transmit(index, &send);
                Outcome::Sent(send.span)
            };
            socket.sends.push_back((send.slice, outcome));
        }
        self.empty_buffer(index, net);
        1
    }

    fn arrive(&mut self, index: usize, datagram: &Datagram<'_>, net: &mut Net) -> Injected {
        if net.random.chance(net.faults.no_buffer) {
            return Injected::NoBuffer;
        }
        // What came earlier and still waits goes first.
        if self.sockets[index].buffer.is_empty() && self.fill_next(index, datagram, net) {
            return Injected::Taken;
        }
        let socket = &mut self.sockets[index];
        let limit = match socket.endpoint.options.receive_buffer {
            ReceiveBuffer::Bytes(bytes) => bytes,
            _ => RECEIVE_BUFFER_BYTES,
        };
        let bytes = socket.buffer_bytes + datagram.bytes.len() + DATAGRAM_OVERHEAD_BYTES;
        if bytes > limit {
            return Injected::Full;
        }
        socket.buffer_bytes = bytes;
        let Datagram { to, from, bytes } = *datagram;
        socket.buffer.push_back(Buffered { to, from, bytes: bytes.to_vec() });
        Injected::Taken
    }

    fn pass_time(&mut self, much: bool, net: &mut Net) {
        for index in 0..self.sockets.len() {
            while !self.sockets[index].sends.is_empty() {
                if !much && net.random.chance(net.faults.late) {
                    break;
                }
                let Some((slice, outcome)) = self.sockets[index].sends.pop_front() else { break };
                self.complete(Done::new(Asked::Send, index, slice, outcome), net);
            }
            while self.closed && !self.sockets[index].receives.is_empty() {
                if !much && net.random.chance(net.faults.late) {
                    break;
                }
                let Some(slice) = self.sockets[index].receives.pop_front() else { break };
                let aborted = Outcome::Failed(io::ErrorKind::ConnectionAborted.into());
                self.complete(Done::new(Asked::Receive, index, slice, aborted), net);
            }
        }
    }

    fn pop(&mut self, _net: &mut Net) -> Option<Done> {
        self.completions.pop_front()
    }

    fn completed(&self) -> usize {
        self.completions.len()
    }

    fn backlog(&self) -> usize {
        self.sockets.iter().map(|socket| socket.buffer.len()).sum()
    }

    fn arm(&mut self) -> u64 {
        if self.armed || self.signalled {
            return 1; // only the wait for the event
        }
        self.notify().expect("not armed");
        2 // RIONotify, and the wait for the event
    }

    fn take_signal(&mut self) -> bool {
        std::mem::take(&mut self.signalled)
    }

    fn begin_stop(&mut self, net: &mut Net) -> Vec<Slice> {
        self.closed = true;
        let mut back = Vec::new();
        for socket in &mut self.sockets {
            // The kernel never heard of these.
            back.append(&mut socket.deferred_receives);
            back.extend(socket.deferred_sends.drain(..).map(|send| send.slice));
            for slice in std::mem::take(&mut socket.receives) {
                if net.random.chance(net.faults.stuck) {
                    socket.stuck.push(slice);
                } else {
                    socket.receives.push_back(slice);
                }
            }
            socket.buffer.clear();
        }
        back
    }

    fn held(&self) -> usize {
        let of = |socket: &Socket| {
            socket.deferred_receives.len()
                + socket.deferred_sends.len()
                + socket.receives.len()
                + socket.sends.len()
                + socket.stuck.len()
        };
        self.sockets.iter().map(of).sum::<usize>() + self.completions.len()
    }

    fn take_all(&mut self) -> Vec<Slice> {
        let mut all: Vec<_> =
            self.completions.drain(..).map(|done| done.completion.slice).collect();
        for socket in &mut self.sockets {
            all.append(&mut socket.deferred_receives);
            all.extend(socket.deferred_sends.drain(..).map(|send| send.slice));
            all.extend(socket.receives.drain(..));
            all.extend(socket.sends.drain(..).map(|(slice, _)| slice));
            all.append(&mut socket.stuck);
        }
        all
    }
}
