//! What one set of rules must supply, and what the rules share.

use super::{
    Faults, Injected, Random,
    wire::{Sent, Wire},
};
use crate::{
    Unavailable,
    memory::{Layout, Slice},
    rio::{self, Completion, Needs, Outcome, Received, requests::Outgoing},
    socket::{Arrival, Endpoint},
};
use std::{net::SocketAddr, time::Duration};

/// The rules of one mechanism: what the kernel does with what was posted. The queue around it
/// sees to locks, waits, limits, and the assertions.
pub trait Kernel: Send + 'static {
    /// Its name, for messages.
    const NAME: &'static str;

    /// How slices must be cut.
    ///
    /// # Errors
    /// [`Unavailable`] for needs that the mechanism cannot meet.
    fn layout(needs: &Needs) -> Result<Layout, Unavailable>;

    /// Queues for these sockets.
    fn new(endpoints: &[Endpoint], needs: &Needs) -> Self;

    /// A slice is posted to receive into.
    fn receive(&mut self, socket: usize, slice: Slice, net: &mut Net);

    /// A slice is posted to be sent.
    fn send(&mut self, socket: usize, send: Outgoing);

    /// Posted requests are made known to the kernel. Returns how often it was entered.
    fn commit(&mut self, socket: usize, net: &mut Net) -> u64;

    /// A datagram arrives.
    fn arrive(&mut self, socket: usize, datagram: &Datagram<'_>, net: &mut Net) -> Injected;

    /// Some time passes (with `much`, as much as it takes): requests in flight go on.
    fn pass_time(&mut self, much: bool, net: &mut Net);

    /// A completion to dequeue, if there is one.
    fn pop(&mut self, net: &mut Net) -> Option<Done>;

    /// Completions that can be dequeued.
    fn completed(&self) -> usize;

    /// Datagrams that wait for a slice.
    fn backlog(&self) -> usize;

    /// A thread is about to wait. Returns how often the kernel was entered for that.
    fn arm(&mut self) -> u64;

    /// Whether that thread may go on, which uses the signal up.
    fn take_signal(&mut self) -> bool;

    /// Receiving ends. What the kernel gives up at once is returned; the rest completes.
    fn begin_stop(&mut self, net: &mut Net) -> Vec<Slice>;

    /// How many slices the kernel holds, completed ones among them.
    fn held(&self) -> usize;

    /// Everything that the kernel still holds.
    fn take_all(&mut self) -> Vec<Slice>;
}

/// A datagram on its way in.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Where it was sent.
    pub to: SocketAddr,
    /// Who sent it.
    pub from: SocketAddr,
    /// What it carries.
    pub bytes: &'a [u8],
}

/// What a completion was asked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A posted receive.
    Receive,
    /// A posted send.
    Send,
}

/// A completion, and which limit it counts towards.
#[derive(Debug)]
pub struct Done {
    /// What it was asked by.
    pub asked: Asked,
    /// What the program gets.
    pub completion: Completion,
}

impl Done {
    pub(super) fn new(asked: Asked, socket: usize, slice: Slice, outcome: Outcome) -> Self {
        Self { asked, completion: Completion { slice, socket: socket as u32, outcome } }
    }
}

/// What surrounds the rules: the wire, chance, and the statistics a real kernel keeps.
#[derive(Debug)]
pub struct Net {
    wire: Wire,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) no_buffer: u64,
    pub(super) overflows: u64,
    /// Datagrams taken so far: the clock of the receive times.
    taken: u64,
}

impl Net {
    pub(super) fn new(wire: &Wire, addresses: Vec<SocketAddr>) -> Self {
        Self {
            random: Random::new(wire.seed_for_queue()),
            faults: wire.faults(),
            wire: wire.clone(),
            addresses,
            no_buffer: 0,
            overflows: 0,
            taken: 0,
        }
    }

    /// A slice's bytes leave the machine.
    pub(super) fn transmit(&self, socket: usize, send: &Outgoing) {
        let mut from = self.addresses[socket];
        if let Some(local) = send.to.local {
            from.set_ip(local);
        }
        let bytes = &send.slice.payload()[..send.span.len];
        let transmit = |bytes: &[u8]| {
            self.wire.transmit(Sent { from, to: send.to.address, bytes: bytes.into() })
        };
        match send.span.segment {
            None => transmit(bytes),
            Some(segment) => bytes.chunks(segment.get().into()).for_each(transmit),
        }
    }

    /// Writes a datagram into a slice, as the kernel would: the headroom is overwritten.
    pub(super) fn fill(
        &mut self,
        slice: &mut Slice,
        datagram: &Datagram<'_>,
        endpoint: &Endpoint,
    ) -> Received {
        let headroom = slice.region().layout().headroom;
        slice.whole_mut()[..headroom].fill(HEADROOM_FILL);
        let payload = slice.payload_mut();
        let len = datagram.bytes.len().min(payload.len());
        payload[..len].copy_from_slice(&datagram.bytes[..len]);
        self.taken += 1;
        let arrival = Arrival {
            len,
            from: datagram.from,
            local: endpoint.options.local_address.then(|| datagram.to.ip()),
            truncated: len < datagram.bytes.len(),
            at: endpoint.options.receive_time.then(|| Duration::from_nanos(self.taken)),
            segment: None,
            link: None,
            meta: crate::socket::Meta::NONE,
        };
        rio::received(slice, &arrival)
    }
}

/// What the fakes write over the headroom of every slice that they fill, so that a program
/// that keeps something there is found out.
const HEADROOM_FILL: u8 = 0xEE;
