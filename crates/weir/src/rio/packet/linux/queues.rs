//! The queues: slices wait in user space, and a dequeue copies datagrams out of the ring into them.

use super::{
    Bound, block,
    ring::{BLOCK_BYTES, Failed, PacketSocket, Ring},
};
use crate::{
    counters::Counters,
    memory::{Region, Slice},
    readiness::wake_event::WakeEvent,
    rio::{
        self, Batch, Completion, CompletionQueue, Needs, Outcome, Peer, Received, Refused,
        RequestQueue, Span, Stopped, Woken,
        requests::{Outgoing, Reserved, Rotation, of_region},
        sharing::{Count as _, Shared as _, Sharing},
        signals::Signals,
        xdp::{is_fragment, parse_packet},
    },
    socket::{Arrival, Link},
    wake::Waker,
};
use nix::sys::time::TimeSpec;
use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

/// Dequeues between two looks at what the kernel dropped: each is a call.
const LOOKS_APART: u32 = 1024;

/// The ring of one device, and how far it is read.
pub(super) struct Receiver {
    pub device: String,
    index: u32,
    socket: PacketSocket,
    ring: Ring,
    /// The block that is read, or the next one.
    block: usize,
    /// Packets of it that are left, and where the next begins; `None` before it is looked at.
    left: Option<(u32, usize)>,
    /// What is left of the packet that was looked at last.
    pending: Option<Pending>,
}

/// One datagram, or several that go into slices of their own, in the block that is read.
struct Pending {
    from: SocketAddr,
    to: SocketAddr,
    mac: [u8; 6],
    /// Where the rest of its bytes lies.
    rest: Range<usize>,
    /// Bytes of each datagram, but for the last.
    segment: usize,
}

impl Receiver {
    pub fn new(device: String, index: u32, socket: PacketSocket, ring: Ring) -> Self {
        Self { device, index, socket, ring, block: 0, left: None, pending: None }
    }

    pub fn bind(&self) -> Result<(), Failed> {
        self.socket.bind(self.index)
    }

    pub fn ring_bytes(&self) -> usize {
        self.ring.blocks() * BLOCK_BYTES
    }

    /// Whether there is something to look at.
    fn has_any(&self) -> bool {
        self.pending.is_some() || self.ring.block(self.block).is_some()
    }

    /// Makes the next datagram the pending one. False: there is none.
    fn look(&mut self, counters: &Counters) -> bool {
        while self.pending.is_none() {
            let Some(bytes) = self.ring.block(self.block) else { return false };
            let (left, at) = self.left.or_else(|| block::packets(bytes)).unwrap_or((0, 0));
            let found = if left > 0 { block::captured(bytes, at) } else { None };
            let Some(found) = found else {
                // What is not as the kernel writes it ends the block.
                counters.discarded.add(left.into());
                self.ring.give_back(self.block);
                self.block = (self.block + 1) % self.ring.blocks();
                self.left = None;
                continue;
            };
            self.left = Some((left - 1, found.next));
            let packet = &bytes[found.packet.clone()];
            if is_fragment(packet, found.protocol) {
                counters.passed_fragments.one();
            } else if found.vlan.is_some() {
                counters.passed_foreign.one();
            } else {
                let datagram = parse_packet(packet, 0, found.protocol).ok();
                // One that was cut is not whole, whatever it says.
                match datagram.filter(|_| !found.cut) {
                    None => counters.discarded.one(),
                    Some(of) => {
                        let start = found.packet.start;
                        let rest = start + of.payload.start..start + of.payload.end;
                        let segment = found.segment.map_or(usize::MAX, |bytes| bytes.get().into());
                        let (from, to, mac) = (of.from, of.to, found.mac);
                        self.pending = Some(Pending { from, to, mac, rest, segment });
                    }
                }
            }
        }
        true
    }

    /// Copies the pending datagram into a slice.
    fn copy(&mut self, slice: &mut Slice, tells_local: bool) -> Received {
        let Pending { from, to, mac, rest, segment } =
            self.pending.as_mut().expect("it was looked at");
        let this = rest.start..rest.start + rest.len().min(*segment);
        let bytes = self.ring.block(self.block).expect("it is ours until it is given back");
        let payload = slice.payload_mut();
        let kept = this.len().min(payload.len());
        payload[..kept].copy_from_slice(&bytes[this.start..this.start + kept]);
        let arrival = Arrival {
            len: kept,
            from: *from,
            local: tells_local.then(|| to.ip()),
            truncated: kept < this.len(),
            at: None,
            segment: None,
            link: Some(Link { mac: *mac, local_port: to.port() }),
            meta: crate::socket::Meta::NONE,
        };
        rest.start = this.end;
        if rest.start == rest.end {
            self.pending = None;
        }
        rio::received(slice, &arrival)
    }

    fn count_drops(&self, counters: &Counters) {
        counters.kernel_entries.one();
        counters.no_buffer.add(self.socket.dropped().unwrap_or(0));
    }
}

/// What the queues share.
struct Common<T: Sharing> {
    region: Arc<Region>,
    needs: Needs,
    bounds: Vec<Bound>,
    signals: Arc<Signals>,
    /// Slices posted and committed that the completion queue has not taken over yet. Any datagram goes into any of
    /// them.
    posted: T::Shared<Vec<Slice>>,
    receives: T::Count,
    sends: T::Count,
}

/// The queues of these receivers.
pub(super) fn start<T: Sharing>(
    bounds: Vec<Bound>,
    receivers: Vec<Receiver>,
    region: &Arc<Region>,
    needs: Needs,
    wake_event: Arc<WakeEvent>,
) -> (PacketCompletions<T>, Vec<PacketRequests<T>>) {
    let endpoints = bounds.len();
    let room = || Vec::with_capacity(needs.receives as usize);
    let common = Arc::new(Common::<T> {
        region: Arc::clone(region),
        needs,
        bounds,
        signals: Arc::default(),
        posted: T::Shared::<_>::new(room()),
        receives: T::Count::default(),
        sends: T::Count::default(),
    });
    let event = Arc::clone(&wake_event);
    let kick = Waker::new(move || event.signal());
    let requests = (0..endpoints).map(|_| PacketRequests {
        common: Arc::clone(&common),
        staged: room(),
        reserved: Reserved::default(),
        kick: kick.clone(),
    });
    let requests = requests.collect();
    let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let sockets = receivers.iter().map(|receiver| watch(receiver.socket.fd()));
    let entries = std::iter::once(watch(wake_event.fd())).chain(sockets).collect();
    let slices = room();
    let rotation = Rotation::default();
    (
        PacketCompletions { common, receivers, slices, rotation, wake_event, entries, looks: 0 },
        requests,
    )
}

/// A request queue of the provider `packet-any-port`.
pub struct PacketRequests<T: Sharing> {
    common: Arc<Common<T>>,
    /// Posted since the last commit.
    staged: Vec<Slice>,
    reserved: Reserved,
    /// Ends the wait of the completion queue, so that it looks again.
    kick: Waker,
}

impl<T: Sharing> PacketRequests<T> {
    /// A slice that may be posted.
    #[inline]
    fn checked(&self, slice: Slice) -> Result<Slice, (Slice, Refused)> {
        match self.common.signals.is_stopped() {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, &self.common.region),
        }
    }
}

impl<T: Sharing> RequestQueue for PacketRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let Self { common, reserved, .. } = self;
        let count = |more| common.receives.add_below(more, common.needs.receives);
        if let Err(refused) = reserved.take(count) {
            return Err((slice, refused));
        }
        self.staged.push(slice);
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        let Self { common, reserved, .. } = self;
        reserved.fill(receives, |more| common.receives.add_below(more, common.needs.receives));
    }

    /// Never: it is opened for no sends.
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        Outgoing::new(slice, span.into(), to, (&self.common.sends, 0)).map(drop)
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { common, staged, reserved, kick } = self;
        reserved.give_up(|left| common.receives.take_off(left));
        if !staged.is_empty() {
            common.posted.with(|posted| {
                if !common.signals.is_stopped() {
                    posted.append(staged);
                }
            });
            if common.signals.slices_left() {
                counters.kernel_entries.one();
                kick.wake();
            }
        }
        match common.signals.is_stopped() {
            true => Err(Refused::Stopped.into()),
            false => Ok(()),
        }
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.common.receives.get(), 0)
    }
}

/// The completion queue of the provider `packet-any-port`.
pub struct PacketCompletions<T: Sharing> {
    common: Arc<Common<T>>,
    receivers: Vec<Receiver>,
    /// Slices to receive into; the last one goes first: its memory is the warmest.
    slices: Vec<Slice>,
    rotation: Rotation,
    wake_event: Arc<WakeEvent>,
    /// The wake event comes first, then the sockets.
    entries: Vec<libc::pollfd>,
    /// Until the next look at what the kernel dropped.
    looks: u32,
}

impl<T: Sharing> PacketCompletions<T> {
    fn take_posted(&mut self) {
        let slices = &mut self.slices;
        self.common.posted.with(|posted| slices.append(posted));
    }

    /// Copies what one device brought, up to what fits.
    fn dequeue_receiver(&mut self, port: usize, out: &mut Batch, counters: &Counters) -> usize {
        let Self { common, receivers, slices, .. } = self;
        let receiver = &mut receivers[port];
        let mut received = 0;
        while out.room() > 0 && !slices.is_empty() && receiver.look(counters) {
            let to = receiver.pending.as_ref().expect("it was looked at").to.ip();
            let is_at = |bound: &Bound| bound.port == port && bound.address.ip() == to;
            let Some(socket) = common.bounds.iter().position(is_at) else {
                // Of a packet that came before the filter was there: there is none, since it is attached first.
                receiver.pending = None;
                counters.discarded.one();
                continue;
            };
            let mut slice = slices.pop().expect("there is one");
            let came = receiver.copy(&mut slice, common.bounds[socket].tells_local);
            let outcome = Outcome::Received(came);
            out.push(Completion { slice, socket: socket as u32, outcome });
            received += 1;
        }
        common.receives.take_off(received as u32);
        received
    }

    fn count_drops(&mut self, counters: &Counters) {
        self.looks = LOOKS_APART;
        self.receivers.iter().for_each(|receiver| receiver.count_drops(counters));
    }

    /// Prepares a wait. How many entries are to be watched: of the devices none where there is no slice. `None`: there is
    /// something already.
    fn about_to_wait(&mut self) -> Option<usize> {
        self.common.signals.about_to_look();
        self.take_posted();
        let starved = self.slices.is_empty();
        self.common.signals.looked(starved);
        let has_any = !starved && self.receivers.iter().any(Receiver::has_any);
        (!has_any).then_some(if starved { 1 } else { self.entries.len() })
    }

    /// Waits for the first of these: 1 for the wake event alone.
    fn poll(
        &mut self,
        entries: usize,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let timeout = timeout.map(TimeSpec::from);
        for entry in &mut self.entries {
            entry.revents = 0; // a call that fails writes none
        }
        counters.kernel_entries.one();
        let entries = &mut self.entries[..entries];
        // SAFETY: entries and time-out outlive the call, and there are so many; no signal mask. The descriptors are open
        // as long as the queue.
        let ready = unsafe {
            libc::ppoll(
                entries.as_mut_ptr(),
                entries.len() as libc::nfds_t,
                timeout.as_ref().map_or(std::ptr::null(), |of| std::ptr::from_ref(of.as_ref())),
                std::ptr::null(),
            )
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(Woken::TimedOut) } else { Err(error) };
        }
        if entries[0].revents != 0 {
            counters.kernel_entries.one();
            self.wake_event.clear();
            return Ok(Woken::ByWaker);
        }
        const BROKEN: libc::c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        if let Some(gone) = entries[1..].iter().position(|entry| entry.revents & BROKEN != 0) {
            let name = &self.receivers[gone].device;
            return Err(io::Error::other(format!("the device {name} is down or gone")));
        }
        Ok(if ready == 0 { Woken::TimedOut } else { Woken::Ready })
    }
}

impl<T: Sharing> CompletionQueue for PacketCompletions<T> {
    type Rq = PacketRequests<T>;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        match self.looks {
            0 => self.count_drops(counters),
            _ => self.looks -= 1,
        }
        self.take_posted();
        let (mut rotation, count) = (self.rotation, self.receivers.len());
        let each = |port, out: &mut Batch| Ok(self.dequeue_receiver(port, out, counters));
        let received = rotation.dequeue(count, out, each);
        self.rotation = rotation;
        received
    }

    fn wait(
        &mut self,
        _at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // What was dropped was so before this wait: nothing is while there is room.
        self.count_drops(counters);
        loop {
            let Some(entries) = self.about_to_wait() else {
                self.common.signals.no_longer_waiting();
                return Ok(Woken::Ready);
            };
            let left = by.map(|by| by.saturating_duration_since(Instant::now()));
            let woken = self.poll(entries, left, counters);
            self.common.signals.no_longer_waiting();
            match woken? {
                // A poster's kick: look again what there is to wait for.
                Woken::ByWaker if !self.common.signals.take_woken() => {}
                woken => return Ok(woken),
            }
        }
    }

    fn gather(
        &mut self,
        _enough: u32,
        at_most: Duration,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = Instant::now() + at_most;
        let mut left = at_most;
        while !left.is_zero() {
            let woken = self.poll(1, Some(left), counters)?;
            if woken == Woken::ByWaker && self.common.signals.take_woken() {
                return Ok(Woken::ByWaker);
            }
            left = by.saturating_duration_since(Instant::now());
        }
        Ok(Woken::Ready)
    }

    fn gathers(&self) -> String {
        "a timed poll that does not watch the ring".into()
    }

    fn waker(&self) -> Waker {
        let wake_event = Arc::clone(&self.wake_event);
        self.common.signals.waker(move || wake_event.signal())
    }

    fn stop(self, requests: Vec<PacketRequests<T>>, _by: Instant) -> Stopped {
        // What is looked at below is looked at under its lock, and by whoever posts after this.
        self.common.signals.set_stopped();
        // Dropping a slice puts it back into its pool.
        let staged: usize = requests.into_iter().map(|requests| requests.staged.len()).sum();
        let posted = self.common.posted.with(|posted| posted.drain(..).count());
        let returned = staged + posted + self.slices.len();
        Stopped { returned: returned as u32, missing: 0 }
    }
}
