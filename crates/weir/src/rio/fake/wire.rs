//! The far end of the providers in memory.

use super::Faults;
use crate::{
    Error,
    socket::Endpoint,
    sync::{Condvar, Mutex, MutexGuard},
};
use std::{
    collections::VecDeque,
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Datagrams sent that a wire keeps for the test; further ones are counted and forgotten, as
/// a network would drop them.
pub const SENT_KEPT: usize = 1 << 16;

/// First of the ports given to sockets that are bound to port 0 (the first dynamic port).
const FIRST_PORT: u16 = 49152;

/// The far end: injects datagrams and collects what was sent. Cheap to clone.
#[derive(Clone)]
pub struct Wire(Arc<WireShared>);

struct WireShared {
    seed: u64,
    faults: Faults,
    state: Mutex<WireState>,
    changed: Condvar,
}

struct WireState {
    bound: Vec<Bound>,
    next_port: u16,
    queues_opened: u64,
    sent: VecDeque<Sent>,
    sent_total: u64,
    /// Grows with everything that a waiting test may be waiting for.
    changes: u64,
    cut: bool,
}

struct Bound {
    address: SocketAddr,
    reuse_port: bool,
    socket: usize,
    queue: Weak<dyn Receiver>,
}

/// What a wire knows of a queue.
pub(super) trait Receiver: Send + Sync {
    /// A datagram arrives at one of its sockets.
    fn arrive(&self, socket: usize, to: SocketAddr, from: SocketAddr, bytes: &[u8]) -> Injected;
    /// The wire was cut.
    fn cut(&self);
    /// Completions that nobody has dequeued yet, and datagrams that wait for a slice.
    fn waiting(&self) -> usize;
}

/// A datagram that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The socket's address.
    pub from: SocketAddr,
    /// Where it went.
    pub to: SocketAddr,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What became of a datagram that was injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// It lies in a slice, or waits in the socket's buffer for one.
    Taken,
    /// It was taken, but the receive that it went to failed and it is lost.
    Damaged,
    /// Dropped: no slice was posted.
    NoBuffer,
    /// Dropped: the socket's buffer or the receive ring was full.
    Full,
    /// Dropped: the mechanism cannot hold datagrams of this length.
    TooLong,
    /// Dropped: nobody is bound to that address (any more).
    NoSocket,
}

impl Wire {
    /// A wire without faults. The seed decides what is left to the kernel.
    pub fn new(seed: u64) -> Self {
        Self::with_faults(seed, Faults::default())
    }

    /// A wire whose queues make faults, decided by the seed.
    pub fn with_faults(seed: u64, faults: Faults) -> Self {
        let state = WireState {
            bound: Vec::new(),
            next_port: FIRST_PORT,
            queues_opened: 0,
            sent: VecDeque::new(),
            sent_total: 0,
            changes: 0,
            cut: false,
        };
        Self(Arc::new(WireShared {
            seed,
            faults,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Sends a datagram to the socket bound to `to`. Of several that share the address, the
    /// source decides which one gets it.
    pub fn inject(&self, to: SocketAddr, from: SocketAddr, bytes: &[u8]) -> Injected {
        let chosen = {
            let state = self.lock();
            let here = |bound: &&Bound| {
                let at = bound.address;
                at.port() == to.port()
                    && (at.ip() == to.ip()
                        || at.ip().is_unspecified() && at.is_ipv4() == to.is_ipv4())
            };
            let found: Vec<_> = state.bound.iter().filter(here).collect();
            match found.len() {
                _ if state.cut => None,
                0 => None,
                n => {
                    let bound = found[usize::from(from.port()) % n];
                    bound.queue.upgrade().map(|queue| (queue, bound.socket))
                }
            }
        };
        // The queue is called without the wire's lock: it takes that lock itself to send.
        match chosen {
            Some((queue, socket)) => queue.arrive(socket, to, from, bytes),
            None => Injected::NoSocket,
        }
    }

    /// Takes what was sent so far, in the order in which it went out.
    pub fn sent(&self) -> Vec<Sent> {
        self.lock().sent.drain(..).collect()
    }

    /// Datagrams sent since the wire was made, also those beyond [`SENT_KEPT`].
    pub fn sent_total(&self) -> u64 {
        self.lock().sent_total
    }

    /// Waits until `total` datagrams were sent since the wire was made. False: the time was
    /// over before.
    pub fn wait_for_sent(&self, total: u64, timeout: Duration) -> bool {
        self.wait_until(timeout, |wire| wire.lock().sent_total >= total)
    }

    /// Waits until every datagram injected so far was dequeued. False: the time was over
    /// before.
    pub fn wait_for_dequeued(&self, timeout: Duration) -> bool {
        self.wait_until(timeout, |wire| wire.queues().iter().all(|queue| queue.waiting() == 0))
    }

    /// Cuts the wire: every wait and dequeue answers an error from now on, and every datagram
    /// is dropped.
    pub fn close(&self) {
        self.lock().cut = true;
        for queue in self.queues() {
            queue.cut();
        }
    }

    pub(super) fn faults(&self) -> Faults {
        self.0.faults
    }

    /// A seed for a queue, different for each one opened.
    pub(super) fn seed_for_queue(&self) -> u64 {
        let mut state = self.lock();
        state.queues_opened += 1;
        self.0.seed ^ (state.queues_opened << 32)
    }

    /// Gives an endpoint its address.
    pub(super) fn address_for(&self, endpoint: &Endpoint) -> Result<SocketAddr, Error> {
        let mut state = self.lock();
        state.bound.retain(|bound| bound.queue.strong_count() > 0);
        let mut address = endpoint.address;
        if address.port() == 0 {
            let source = io::ErrorKind::AddrInUse.into();
            let next = state.next_port.checked_add(1).ok_or(Error::Bind { address, source })?;
            address.set_port(state.next_port);
            state.next_port = next;
        }
        let taken = |bound: &Bound| {
            bound.address == address && !(bound.reuse_port && endpoint.options.reuse_port)
        };
        if state.bound.iter().any(taken) {
            return Err(Error::Bind { address, source: io::ErrorKind::AddrInUse.into() });
        }
        Ok(address)
    }

    pub(super) fn bind(
        &self,
        address: SocketAddr,
        endpoint: &Endpoint,
        socket: usize,
        queue: Weak<dyn Receiver>,
    ) {
        let reuse_port = endpoint.options.reuse_port;
        self.lock().bound.push(Bound { address, reuse_port, socket, queue });
    }

    /// A datagram leaves a queue.
    pub(super) fn transmit(&self, sent: Sent) {
        let mut state = self.lock();
        state.sent_total += 1;
        state.changes += 1;
        if state.sent.len() < SENT_KEPT {
            state.sent.push_back(sent);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Something was dequeued.
    pub(super) fn dequeued(&self) {
        self.lock().changes += 1;
        self.0.changed.notify_all();
    }

    fn queues(&self) -> Vec<Arc<dyn Receiver>> {
        self.lock().bound.iter().filter_map(|bound| bound.queue.upgrade()).collect()
    }

    fn wait_until(&self, timeout: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let by = Instant::now() + timeout;
        loop {
            let before = self.lock().changes;
            if done(self) {
                return true;
            }
            let state = self.lock();
            if state.changes != before {
                continue; // something happened while we looked
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            drop(self.0.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, WireState> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("seed", &self.0.seed).field("faults", &self.0.faults).finish()
    }
}
