//! What the request queues and the completion queue have in common, and who owns which slice.

use super::{
    attached::Lease,
    device::Device,
    packet::{Ends, write_headers},
    ring::{Consumer, Producer},
    socket::{Frame, Probe, Socket},
};
use crate::{
    counters::Counters,
    memory::{Posted, Region, Slice},
    rio::{
        Needs, Outcome, Peer, Span, Unsent,
        batch::{PER_CALL, outbox::Outbox},
        requests::Outgoing,
        sharing::{Count as _, Shared as _, Sharing},
        signals::Signals,
    },
    socket::{DatagramSocket, native::Joined},
};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Instant,
};

/// Who has a slice.
mod owner {
    pub const PROGRAM: u8 = 0;
    pub const FILL: u8 = 1;
    pub const TRANSMIT: u8 = 2;
}

/// Which slices the kernel has: what it names is believed only where it was given it. A slice has
/// one owner at a time, and changes hands through the rings, which order these marks.
pub(super) struct Table {
    region: Arc<Region>,
    owners: Box<[AtomicU8]>,
}

impl Table {
    pub fn new(region: &Arc<Region>) -> Self {
        let owners = (0..region.count()).map(|_| AtomicU8::new(owner::PROGRAM)).collect();
        Self { region: Arc::clone(region), owners }
    }

    fn stride(&self) -> u64 {
        self.region.layout().stride as u64
    }

    /// Where a slice begins in the region, for the kernel.
    fn address(&self, slice: u32) -> u64 {
        u64::from(slice) * self.stride()
    }

    fn give(&self, slice: u32, to: u8) {
        self.owners[slice as usize].store(to, Relaxed);
    }

    /// Takes a slice back that holds this address. `None`: the kernel was not given it.
    fn take(&self, address: u64, from: u8) -> Option<Slice> {
        let index = u32::try_from(address / self.stride()).ok()?;
        let owner = self.owners.get(index as usize)?;
        if owner.load(Relaxed) != from {
            return None;
        }
        owner.store(owner::PROGRAM, Relaxed);
        // SAFETY: it was posted when it was given away, and the mark, which was set then, is
        // cleared: so it is not reclaimed twice. The kernel says that it is done with it, or the
        // caller does.
        Some(unsafe { Posted::from_index(index).reclaim(&self.region) })
    }

    /// A frame that the kernel wrote, with the slice it lies in.
    #[inline]
    pub fn received(&self, frame: &Frame) -> Option<Slice> {
        self.take(frame.addr, owner::FILL)
    }

    /// Takes back what was posted to receive. The kernel must be done with all of it.
    fn take_filled(&self) -> u32 {
        let stride = self.stride();
        (0..self.region.count())
            .filter_map(|index| self.take(u64::from(index) * stride, owner::FILL))
            .count() as u32
    }

    /// How many slices the kernel has to send.
    pub fn sending(&self) -> u32 {
        self.owners.iter().filter(|owner| owner.load(Relaxed) == owner::TRANSMIT).count() as u32
    }

    /// How many slices the kernel has.
    pub fn given(&self) -> u32 {
        self.owners.iter().filter(|owner| owner.load(Relaxed) != owner::PROGRAM).count() as u32
    }
}

/// Posted slices of one queue of a device: those in the fill ring, and a stack behind it.
pub(super) struct Filling {
    ring: Producer<u64>,
    waiting: Vec<Posted>,
    /// Slices in the fill ring, or in the receive ring and not dequeued.
    held: u32,
    /// Most of those: as many as the receive ring can hold, so that it never overflows.
    window: u32,
}

impl Filling {
    pub fn new(ring: Producer<u64>, window: u32, receives: u32) -> Self {
        Self { ring, waiting: Vec::with_capacity(receives as usize), held: 0, window }
    }

    /// Posts slices. True: the driver wants to be told.
    pub fn post(&mut self, slices: &mut Vec<Posted>, table: &Table) -> bool {
        self.waiting.append(slices);
        self.top_up(table)
    }

    /// So many were dequeued. True: the driver wants to be told of those that follow.
    pub fn came_back(&mut self, count: u32, table: &Table) -> bool {
        self.held -= count;
        self.top_up(table)
    }

    fn top_up(&mut self, table: &Table) -> bool {
        let room = self.ring.room(self.window).min(self.window - self.held);
        let count = self.waiting.len().min(room as usize);
        // The last one in goes first: its memory is the warmest.
        for slice in self.waiting.drain(self.waiting.len() - count..).rev() {
            table.give(slice.index(), owner::FILL);
            let pushed = self.ring.push(table.address(slice.index()));
            debug_assert!(pushed, "there was room");
        }
        self.held += count as u32;
        if count > 0 {
            self.ring.publish();
        }
        count > 0 && self.ring.needs_wakeup()
    }
}

/// Sends of one queue of a device.
pub(super) struct Transmit {
    ring: Producer<Frame>,
    completed: Consumer<u64>,
    /// Of each slice under way: its endpoint, and the bytes of its payload.
    sending: Box<[(u32, u32)]>,
    /// Those that no frame could be made of.
    over: VecDeque<(Slice, u32, Unsent)>,
    /// Those that go by the plain socket of each address.
    by_socket: Box<[Outbox]>,
    /// Whether those that can leave as one do so, by the socket.
    joins: bool,
    /// The kernel has frames that it did not take when it was called.
    blocked: bool,
}

impl Transmit {
    pub fn new(
        ring: Producer<Frame>,
        completed: Consumer<u64>,
        (slices, sends): (u32, u32),
        endpoints: usize,
        joins: bool,
    ) -> Self {
        let (sending, sends) = (if sends == 0 { 0 } else { slices as usize }, sends as usize);
        Self {
            ring,
            completed,
            sending: vec![(0, 0); sending].into(),
            over: VecDeque::with_capacity(sends),
            by_socket: (0..endpoints).map(|_| Outbox::new(sends, PER_CALL)).collect(),
            joins,
            blocked: false,
        }
    }

    /// Puts the datagrams into frames, and those into the ring. By the plain socket of the address goes one to somebody
    /// whose place on the link no frame has told, since the kernel finds that out, and several in a row that leave as one.
    pub fn push(
        &mut self,
        outgoing: &mut Vec<Outgoing>,
        endpoint: u32,
        from: &Bound,
        device: &Device,
        table: &Table,
        counters: &Counters,
    ) {
        let mut outgoing = outgoing.drain(..).peekable();
        let mut row = None;
        while let Some(Outgoing { mut slice, span, to }) = outgoing.next() {
            // With those before it, and with the next.
            let mut joined = row.take().unwrap_or_else(|| Joined::begin(span, to));
            let follows = |next: &Outgoing| joined.take(next.span, &next.to, usize::MAX);
            if self.joins && outgoing.peek().is_some_and(follows) {
                row = Some(joined);
            }
            if to.link.is_none() || joined.spans() > 1 {
                self.by_socket[endpoint as usize].add([Outgoing { slice, span, to }]);
                continue;
            }
            let frame = frame_of(&mut slice, span, &to, from, device).and_then(|frame| {
                let room = self.ring.room(1) > 0;
                room.then_some(frame).ok_or_else(|| io::ErrorKind::WouldBlock.into())
            });
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.over.push_back((slice, endpoint, error.into()));
                    continue;
                }
            };
            let slice = slice.post();
            self.sending[slice.index() as usize] = (endpoint, span.len as u32);
            table.give(slice.index(), owner::TRANSMIT);
            let addr = table.address(slice.index()) + frame.start as u64;
            self.ring.push(Frame { addr, len: frame.len() as u32, options: 0 });
        }
        self.ring.publish();
        self.by_socket[endpoint as usize].flush(&from.socket, counters);
    }

    /// Sends what the sockets had no room for.
    pub fn send_blocked(&mut self, bounds: &[Bound], counters: &Counters) {
        for (outbox, bound) in self.by_socket.iter_mut().zip(bounds) {
            if outbox.is_blocked() {
                outbox.flush(&bound.socket, counters);
            }
        }
    }

    /// Gives up what has no frame, and counts it.
    fn give_up(&mut self) -> usize {
        let waiting: usize = self.by_socket.iter_mut().map(Outbox::clear).sum();
        waiting + self.over.drain(..).count()
    }

    /// Has the kernel send what lies in the ring. What it cannot take now goes with a later call.
    ///
    /// # Errors
    /// What the kernel answered, where it says that it never will.
    pub fn kick(&mut self, socket: &Socket, entries: impl Fn()) -> io::Result<()> {
        loop {
            let before = self.ring.waiting();
            self.blocked = before > 0;
            if before == 0 || !self.ring.needs_wakeup() {
                return Ok(());
            }
            entries();
            if let Err(error) = socket.kick() {
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY | libc::ENETDOWN) => {}
                    Some(libc::EINTR) => continue,
                    _ => return Err(error),
                }
                // It takes some at a time; and none while the device is busy.
                if self.ring.waiting() == before {
                    return Ok(());
                }
            }
        }
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether something could be taken.
    pub fn has_done(&mut self) -> bool {
        !self.over.is_empty()
            || self.by_socket.iter().any(Outbox::has_done)
            || self.completed.available() > 0
    }

    /// Takes one that is over: slice, endpoint, and what became of it.
    pub fn take(&mut self, table: &Table) -> Option<(Slice, u32, Outcome)> {
        if let Some((slice, endpoint, unsent)) = self.over.pop_front() {
            return Some((slice, endpoint, Outcome::NotSent(unsent)));
        }
        for (endpoint, outbox) in (0..).zip(&mut self.by_socket) {
            if let Some((slice, outcome)) = outbox.take_done() {
                return Some((slice, endpoint, outcome));
            }
        }
        // An address that was not given away is none of ours.
        while let Some(address) = self.completed.take() {
            if let Some(slice) = table.take(address, owner::TRANSMIT) {
                let (endpoint, len) = self.sending[slice.index() as usize];
                return Some((slice, endpoint, Outcome::Sent((len as usize).into())));
            }
        }
        None
    }

    /// Gives the places of what was taken back to the kernel.
    pub fn release(&mut self) {
        self.completed.release();
    }
}

/// Writes the headers of a reply before its payload.
fn frame_of(
    slice: &mut Slice,
    span: Span,
    to: &Peer,
    from: &Bound,
    device: &Device,
) -> io::Result<std::ops::Range<usize>> {
    let refuse = |kind, why: &str| Err(io::Error::new(kind, why.to_owned()));
    if span.segment.is_some() {
        return refuse(io::ErrorKind::Unsupported, "a frame holds one datagram");
    }
    let Some(link) = to.link else {
        return refuse(io::ErrorKind::HostUnreachable, "its place on the link is unknown");
    };
    let ours = from.address.ip();
    if to.source().is_some_and(|source| source != ours) {
        return refuse(io::ErrorKind::AddrNotAvailable, "it would leave from another address");
    }
    let port = if from.any_port { link.local_port } else { from.address.port() };
    let ends = Ends {
        from: SocketAddr::new(ours, port),
        from_mac: device.mac,
        to: to.address,
        to_mac: link.mac,
    };
    let headroom = slice.region().layout().headroom;
    let payload = headroom..headroom + span.len;
    let Some(frame) = write_headers(slice.whole_mut(), payload, &ends) else {
        return refuse(io::ErrorKind::InvalidInput, "the addresses are of two families");
    };
    if frame.len() > device.mtu + ETHERNET_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok(frame)
}

/// The header that does not count as part of a packet.
const ETHERNET_BYTES: usize = 14;

/// An address that datagrams are received at.
pub(super) struct Bound {
    pub address: SocketAddr,
    pub any_port: bool,
    /// Its device, by its place.
    pub port: usize,
    /// Whether the address that a datagram was sent to is asked for.
    pub tells_local: bool,
    /// Keeps the address ours, and sends to those whose place on the link is unknown.
    pub socket: DatagramSocket,
}

impl Bound {
    /// Whether a datagram to this address is ours.
    #[inline]
    pub fn takes(&self, to: SocketAddr) -> bool {
        self.address.ip() == to.ip() && (self.any_port || self.address.port() == to.port())
    }
}

/// One queue of one device.
pub(super) struct Port<T: Sharing> {
    pub device: Device,
    pub lease: Option<Lease>,
    /// `None` once it is closed.
    pub socket: Option<Socket>,
    /// Tells when a device has let go of the slices, where it uses them itself.
    pub probe: Option<Probe>,
    /// Whether what looks like one datagram may be several, where its checksum was left to a device.
    pub may_be_several: bool,
    pub filling: T::Shared<Filling>,
    pub transmit: T::Shared<Transmit>,
}

impl<T: Sharing> Port<T> {
    pub fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("closed by the stop alone, which owns it all")
    }

    pub fn queue(&self) -> u32 {
        self.lease.as_ref().map_or(0, Lease::queue)
    }

    /// Closes the socket. Whether its device has let go of the slices.
    fn close(&mut self, by: Instant) -> bool {
        let queue = self.queue();
        self.lease = None; // no frame follows
        self.socket = None;
        // Where the kernel copies, it is done when the close returns; a device may take its time.
        self.probe.take().is_none_or(|probe| probe.await_release(self.device.index, queue, by))
    }
}

/// What all queues share. Where it goes away before [`Common::end`] was called, the kernel may
/// still write to slices: they are left to it, and counted.
pub(super) struct Common<T: Sharing> {
    pub region: Arc<Region>,
    pub needs: Needs,
    pub table: Table,
    pub bounds: Vec<Bound>,
    pub ports: Vec<Port<T>>,
    pub signals: Arc<Signals>,
    /// Whether whoever finds nothing serves the devices.
    pub serves_devices: bool,
    /// Receives that are outstanding, over all sockets, those not committed included.
    pub receives_out: T::Count,
    /// Sends that are outstanding, the same way.
    pub sends_out: T::Count,
    /// By when it is to be stopped: then nothing is posted any more. Whoever posts looks again under the
    /// guard of what he posts to.
    pub stopped: OnceLock<Instant>,
    pub ended: bool,
}

impl<T: Sharing> Common<T> {
    /// Counts more receives as outstanding, as far as there is room, and says how many.
    pub fn count_receives(&self, more: u32) -> u32 {
        self.receives_out.add_below(more, self.needs.receives)
    }

    /// Takes slices back that the kernel was never given, and counts them.
    pub fn take_back(&self, slices: impl Iterator<Item = Posted>) -> u32 {
        // SAFETY: the caller owns these, posted, and says that the kernel does not know them.
        slices.map(|slice| drop(unsafe { slice.reclaim(&self.region) })).count() as u32
    }

    /// Has nothing posted from now on, by request queues that are kept, too.
    pub fn stop(&self, by: Instant) {
        let _ = self.stopped.set(by);
        // Who holds a guard just now is waited for.
        for port in &self.ports {
            port.filling.with(|_| ());
            port.transmit.with(|_| ());
        }
    }

    /// Whether it was stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Takes back what was posted and never given to the kernel, and counts it.
    pub fn take_waiting(&self) -> u32 {
        let mut returned = 0;
        for port in &self.ports {
            let waiting = port.filling.with(|filling| std::mem::take(&mut filling.waiting));
            returned += self.take_back(waiting.into_iter());
            returned += port.transmit.with(Transmit::give_up) as u32;
        }
        returned
    }

    /// Closes every socket, and takes back what comes free by that.
    pub fn close(&mut self, by: Instant) -> (u32, u32) {
        let mut let_go = true;
        for port in &mut self.ports {
            let_go &= port.close(by);
        }
        self.end(let_go)
    }

    /// Takes back by count what was posted, once every socket is closed and its device has let
    /// go; returns how many slices that were, and how many sends the kernel still has.
    fn end(&mut self, let_go: bool) -> (u32, u32) {
        let mut returned = self.take_waiting();
        if let_go {
            returned += self.table.take_filled();
        }
        let missing = self.table.given();
        self.region.count_leaked(missing);
        self.ended = true;
        (returned, missing)
    }
}

impl<T: Sharing> Drop for Common<T> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        match self.stopped.get().copied() {
            // A request queue was kept beyond the stop, and held it open.
            Some(by) => self.close(by),
            None => self.end(false),
        };
    }
}

#[cfg(test)]
mod tests;
