//! The rules of AF_XDP.
//!
//! A socket has four rings of a size that is a power of two. The *fill* ring holds chunks to
//! receive into, and the kernel takes any of them for the next frame; the *receive* ring says
//! which were filled; the *transmit* ring holds what shall go out, which takes one system call
//! (the kick), and the *completion* ring says what went out, in any order and without saying
//! how it went. A chunk in the fill ring never completes: at the end the program takes back as
//! many as it knows to be there. A frame that finds the fill ring empty, or the receive ring
//! full, is lost and counted.

use super::{
    Injected,
    kernel::{Asked, Datagram, Done, Kernel, Net},
};
use crate::{
    Unavailable,
    memory::{Layout, Slice},
    rio::{Needs, Outcome, Span, requests::Outgoing},
    socket::Endpoint,
};
use std::collections::VecDeque;

/// Bytes of a chunk: half a page, the smaller of the two sizes that the kernel allows.
const CHUNK_BYTES: usize = 2048;

/// Room before the payload: XDP_PACKET_HEADROOM (256), Ethernet (14), IPv6 (40), UDP (8),
/// rounded up to 64.
const HEADROOM_BYTES: usize = 320;

/// Entries of each ring, at most; slices beyond that wait in user space.
const RING_ENTRIES: usize = 2048;

/// The rules of AF_XDP, for [`Fake`](super::Fake).
#[derive(Debug)]
pub struct Xdp {
    sockets: Vec<Socket>,
    ring_entries: usize,
    /// The socket to look at first.
    next: usize,
}

#[derive(Debug)]
struct Socket {
    endpoint: Endpoint,
    fill: Vec<Slice>,
    /// Posted beyond what the fill ring holds; the last one in goes first.
    beyond: Vec<Slice>,
    received: VecDeque<(Slice, Outcome)>,
    transmit: VecDeque<Outgoing>,
    /// A kick was refused: the next call that passes by tries again.
    kick_refused: bool,
    sending: Vec<(Slice, Span)>,
    completed: VecDeque<(Slice, Span)>,
    stuck: Vec<Slice>,
}

impl Socket {
    fn top_up(&mut self, ring_entries: usize) {
        while self.fill.len() < ring_entries {
            let Some(slice) = self.beyond.pop() else { break };
            self.fill.push(slice);
        }
    }

    fn kick(&mut self, socket: usize, refused: bool, net: &Net) {
        self.kick_refused = refused;
        if refused {
            return;
        }
        for send in self.transmit.drain(..) {
            net.transmit(socket, &send);
            self.sending.push((send.slice, send.span));
        }
    }
}

impl Kernel for Xdp {
    const NAME: &'static str = "fake-xdp";

    fn layout(needs: &Needs) -> Result<Layout, Unavailable> {
        let most = CHUNK_BYTES - HEADROOM_BYTES;
        if needs.payload > most {
            let reason = format!("a chunk holds a datagram of {most} bytes, not {}", needs.payload);
            return Err(Unavailable::new("provider fake-xdp", reason)
                .advise(format!("ask for datagrams of at most {most} bytes")));
        }
        Ok(Layout {
            stride: CHUNK_BYTES,
            headroom: HEADROOM_BYTES,
            payload: needs.payload,
            align: CHUNK_BYTES,
        })
    }

    fn new(endpoints: &[Endpoint], needs: &Needs) -> Self {
        let asked = needs.receives.max(needs.sends).max(1) as usize;
        let sockets = endpoints.iter().map(|endpoint| Socket {
            endpoint: *endpoint,
            fill: Vec::new(),
            beyond: Vec::new(),
            received: VecDeque::new(),
            transmit: VecDeque::new(),
            kick_refused: false,
            sending: Vec::new(),
            completed: VecDeque::new(),
            stuck: Vec::new(),
        });
        Self {
            sockets: sockets.collect(),
            ring_entries: asked.next_power_of_two().min(RING_ENTRIES),
            next: 0,
        }
    }

    fn receive(&mut self, socket: usize, slice: Slice, _net: &mut Net) {
        let socket = &mut self.sockets[socket];
        socket.beyond.push(slice);
        socket.top_up(self.ring_entries);
    }

    fn send(&mut self, socket: usize, send: Outgoing) {
        self.sockets[socket].transmit.push_back(send);
    }

    fn commit(&mut self, socket: usize, net: &mut Net) -> u64 {
        if self.sockets[socket].transmit.is_empty() {
            return 0;
        }
        let refused = net.random.chance(net.faults.send_error);
        self.sockets[socket].kick(socket, refused, net);
        1
    }

    fn arrive(&mut self, socket: usize, datagram: &Datagram<'_>, net: &mut Net) -> Injected {
        let socket = &mut self.sockets[socket];
        if datagram.bytes.len() > CHUNK_BYTES - HEADROOM_BYTES {
            return Injected::TooLong;
        }
        if socket.fill.is_empty() || net.random.chance(net.faults.no_buffer) {
            net.no_buffer += 1;
            return Injected::NoBuffer;
        }
        if socket.received.len() == self.ring_entries {
            net.overflows += 1;
            return Injected::Full;
        }
        let chosen = net.random.below(socket.fill.len());
        let mut slice = socket.fill.swap_remove(chosen);
        let received = net.fill(&mut slice, datagram, &socket.endpoint);
        if net.random.chance(net.faults.receive_error) {
            socket.received.push_back((slice, Outcome::Returned));
            return Injected::Damaged;
        }
        socket.received.push_back((slice, Outcome::Received(received)));
        Injected::Taken
    }

    fn pass_time(&mut self, much: bool, net: &mut Net) {
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            if socket.kick_refused {
                let refused = !much && net.random.chance(net.faults.send_error);
                socket.kick(index, refused, net);
            }
            for _ in 0..socket.sending.len() {
                let chosen = net.random.below(socket.sending.len());
                if much || !net.random.chance(net.faults.late) {
                    socket.completed.push_back(socket.sending.swap_remove(chosen));
                }
            }
            socket.top_up(self.ring_entries);
        }
    }

    fn pop(&mut self, net: &mut Net) -> Option<Done> {
        let count = self.sockets.len();
        if net.random.chance(net.faults.reorder) {
            self.next = net.random.below(count);
        }
        for i in 0..count {
            let index = (self.next + i) % count;
            let socket = &mut self.sockets[index];
            let done = if let Some((slice, span)) = socket.completed.pop_front() {
                Done::new(Asked::Send, index, slice, Outcome::Sent(span))
            } else if let Some((slice, outcome)) = socket.received.pop_front() {
                Done::new(Asked::Receive, index, slice, outcome)
            } else {
                continue;
            };
            self.next = (index + 1) % count;
            return Some(done);
        }
        None
    }

    fn completed(&self) -> usize {
        self.sockets.iter().map(|socket| socket.received.len() + socket.completed.len()).sum()
    }

    fn backlog(&self) -> usize {
        0
    }

    fn arm(&mut self) -> u64 {
        1 // poll(2)
    }

    fn take_signal(&mut self) -> bool {
        self.completed() > 0
    }

    fn begin_stop(&mut self, net: &mut Net) -> Vec<Slice> {
        let mut back = Vec::new();
        for socket in &mut self.sockets {
            back.append(&mut socket.fill);
            back.append(&mut socket.beyond);
            back.extend(socket.received.drain(..).map(|(slice, _)| slice));
            back.extend(socket.transmit.drain(..).map(|send| send.slice));
            socket.kick_refused = false;
            for (slice, span) in std::mem::take(&mut socket.sending) {
                if net.random.chance(net.faults.stuck) {
                    socket.stuck.push(slice);
                } else {
                    socket.sending.push((slice, span));
                }
            }
        }
        back
    }

    fn held(&self) -> usize {
        let of = |socket: &Socket| {
            socket.fill.len()
                + socket.beyond.len()
                + socket.received.len()
                + socket.transmit.len()
                + socket.sending.len()
                + socket.completed.len()
                + socket.stuck.len()
        };
        self.sockets.iter().map(of).sum()
    }

    fn take_all(&mut self) -> Vec<Slice> {
        let mut all = Vec::new();
        for socket in &mut self.sockets {
            all.append(&mut socket.fill);
            all.append(&mut socket.beyond);
            all.extend(socket.received.drain(..).map(|(slice, _)| slice));
            all.extend(socket.transmit.drain(..).map(|send| send.slice));
            all.extend(socket.sending.drain(..).map(|(slice, _)| slice));
            all.extend(socket.completed.drain(..).map(|(slice, _)| slice));
            all.append(&mut socket.stuck);
        }
        all
    }
}
