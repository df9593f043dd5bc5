//! The queues around a set of rules: locks, waits, limits and assertions.

use super::{
    Injected,
    kernel::{Asked, Datagram, Kernel, Net},
    winsock::Winsock,
    wire::{Receiver, Wire},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::{Layout, Region, Slice},
    rio::{
        Batch, CompletionQueue, Needs, Opened, Outcome, Peer, Provider, Refused, RequestQueue,
        Span, Started, Stopped, Threading, Woken,
        requests::{Outgoing, assert_fits, of_region},
        turn::TurnPort,
    },
    socket::Endpoint,
    sync::{Condvar, Mutex, MutexGuard},
    wake::Waker,
};
use std::{
    io,
    marker::PhantomData,
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Calls for which a completion may be late while the queue is being stopped.
const LATE_ROUNDS: u32 = 1000;

/// A provider in memory with the rules of `K`.
#[derive(Debug)]
pub struct Fake<K> {
    wire: Wire,
    has_port: bool,
    rules: PhantomData<fn() -> K>,
}

impl<K> Fake<K> {
    /// A provider whose sockets hang on this wire.
    pub fn new(wire: &Wire) -> Self {
        Self { wire: wire.clone(), has_port: false, rules: PhantomData }
    }

    /// The wire.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }
}

impl<K> Clone for Fake<K> {
    fn clone(&self) -> Self {
        Self { has_port: self.has_port, ..Self::new(&self.wire) }
    }
}

impl Fake<Winsock> {
    /// One whose queues are bound to a completion port, which delivers their turns.
    pub fn with_port(wire: &Wire) -> Self {
        Self { has_port: true, ..Self::new(wire) }
    }
}

impl<K: Kernel, T: Threading> Provider<T> for Fake<K> {
    type Cq = FakeCompletions<K, T>;
    type Rq = FakeRequests<K, T>;
    type Opened = FakeOpened<K>;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        K::layout(needs)
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<FakeOpened<K>, Error> {
        let layout = K::layout(needs)?;
        if needs.offload || at.iter().any(|endpoint| endpoint.options.receive_offload) {
            return Err(Unavailable::new(K::NAME, "it has no receive offload").into());
        }
        assert_eq!(region.layout(), layout, "the region was not cut as {} asked", K::NAME);
        let mut addresses = Vec::with_capacity(at.len());
        for endpoint in at {
            let address = self.wire.address_for(endpoint)?;
            let twice = addresses.contains(&address) && !endpoint.options.reuse_port;
            if twice {
                return Err(Error::Bind { address, source: io::ErrorKind::AddrInUse.into() });
            }
            addresses.push(address);
        }
        let shared = Arc::new(FakeQueue {
            region: Arc::clone(region),
            needs: *needs,
            state: Mutex::new(FakeState {
                kernel: K::new(at, needs),
                net: Net::new(&self.wire, addresses.clone()),
                held: vec![false; region.count() as usize],
                receives: vec![0; at.len()],
                sends: vec![0; at.len()],
                woken: false,
                posted: 0,
                cut: false,
                stopped: false,
            }),
            changed: Condvar::new(),
            dequeuing: Busy::new("two threads use one completion queue at once"),
            posting: at
                .iter()
                .map(|_| Busy::new("two threads post on one queue at once"))
                .collect(),
            wire: self.wire.clone(),
            has_port: self.has_port,
        });
        for (socket, (address, endpoint)) in addresses.iter().zip(at).enumerate() {
            let queue: Weak<FakeQueue<K>> = Arc::downgrade(&shared);
            self.wire.bind(*address, endpoint, socket, queue);
        }
        Ok(FakeOpened { shared, addresses })
    }

    fn start(&self, opened: FakeOpened<K>) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let FakeOpened { shared, addresses } = opened;
        let at = || Place { shared: Arc::clone(&shared), thread: thread::current().id() };
        Ok(Started {
            completions: FakeCompletions { at: at(), marker: T::Marker::default() },
            requests: (0..addresses.len())
                .map(|socket| FakeRequests { at: at(), socket, marker: T::Marker::default() })
                .collect(),
            granted: vec![("provider", format!("{}, in memory", K::NAME))],
        })
    }
}

/// Queues of a provider in memory, not yet started.
pub struct FakeOpened<K: Kernel> {
    shared: Arc<FakeQueue<K>>,
    addresses: Vec<SocketAddr>,
}

impl<K: Kernel> Opened for FakeOpened<K> {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }
}

/// The completion queue of a provider in memory.
pub struct FakeCompletions<K: Kernel, T: Threading> {
    at: Place<K>,
    #[expect(dead_code, reason = "it decides whether the queue is Send")]
    marker: T::Marker,
}

/// A request queue of a provider in memory.
pub struct FakeRequests<K: Kernel, T: Threading> {
    at: Place<K>,
    socket: usize,
    #[expect(dead_code, reason = "it decides whether the queue is Send")]
    marker: T::Marker,
}

/// A queue's shared part, and the thread that started it.
struct Place<K: Kernel> {
    shared: Arc<FakeQueue<K>>,
    thread: ThreadId,
}

struct FakeQueue<K: Kernel> {
    region: Arc<Region>,
    needs: Needs,
    state: Mutex<FakeState<K>>,
    changed: Condvar,
    dequeuing: Busy,
    posting: Vec<Busy>,
    wire: Wire,
    has_port: bool,
}

struct FakeState<K> {
    kernel: K,
    net: Net,
    /// Which slices, by index, were posted and have not come back.
    held: Vec<bool>,
    /// Outstanding receives and sends of each socket.
    receives: Vec<u32>,
    sends: Vec<u32>,
    woken: bool,
    /// Packets of the port that were not asked for.
    posted: usize,
    cut: bool,
    stopped: bool,
}

/// Catches two threads in one place, which `&mut` forbids and only unsound code can do.
struct Busy {
    busy: AtomicBool,
    wrong: &'static str,
}

impl Busy {
    fn new(wrong: &'static str) -> Self {
        Self { busy: AtomicBool::new(false), wrong }
    }

    fn enter(&self) -> Entered<'_> {
        assert!(!self.busy.swap(true, SeqCst), "{}", self.wrong);
        Entered(self)
    }
}

struct Entered<'a>(&'a Busy);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, SeqCst);
    }
}

impl<K: Kernel> Place<K> {
    /// The state, for a queue that is in use by the right thread.
    fn state<T: Threading>(&self) -> MutexGuard<'_, FakeState<K>> {
        let here = T::HANDS_OVER || self.thread == thread::current().id();
        assert!(here, "a queue for one thread was used on another");
        self.shared.lock()
    }
}

impl<K: Kernel> FakeQueue<K> {
    fn lock(&self) -> MutexGuard<'_, FakeState<K>> {
        // An assertion that failed is reported by the thread that panicked.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<K: Kernel> FakeState<K> {
    /// A slice that may be posted.
    fn checked(&self, slice: Slice, region: &Arc<Region>) -> Result<Slice, (Slice, Refused)> {
        match self.stopped {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, region),
        }
    }

    fn hold(&mut self, slice: &Slice) {
        let held = &mut self.held[slice.index() as usize];
        assert!(!*held, "slice {} was posted twice", slice.index());
        *held = true;
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.receives.iter().sum(), self.sends.iter().sum())
    }

    fn pop(&mut self) -> Option<crate::rio::Completion> {
        let done = self.kernel.pop(&mut self.net)?;
        self.held[done.completion.slice.index() as usize] = false;
        let socket = done.completion.socket as usize;
        match done.asked {
            Asked::Receive => self.receives[socket] -= 1,
            Asked::Send => self.sends[socket] -= 1,
        }
        Some(done.completion)
    }

    fn count_statistics(&mut self, counters: &Counters) {
        counters.no_buffer.add(std::mem::take(&mut self.net.no_buffer));
        counters.overflows.add(std::mem::take(&mut self.net.overflows));
    }

    fn check_wire(&self) -> io::Result<()> {
        if self.cut { Err(io::ErrorKind::NetworkDown.into()) } else { Ok(()) }
    }
}

impl<K: Kernel, T: Threading> RequestQueue for FakeRequests<K, T> {
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let shared = &self.at.shared;
        let _entered = shared.posting[self.socket].enter();
        let mut state = self.at.state::<T>();
        let slice = state.checked(slice, &shared.region)?;
        if state.outstanding().0 >= shared.needs.receives {
            return Err((slice, Refused::Full));
        }
        state.hold(&slice);
        state.receives[self.socket] += 1;
        let FakeState { kernel, net, .. } = &mut *state;
        kernel.receive(self.socket, slice, net);
        Ok(())
    }

    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let span = span.into();
        let shared = &self.at.shared;
        let _entered = shared.posting[self.socket].enter();
        assert_fits(&span, &slice);
        let mut state = self.at.state::<T>();
        let slice = state.checked(slice, &shared.region)?;
        if state.outstanding().1 >= shared.needs.sends {
            return Err((slice, Refused::Full));
        }
        state.hold(&slice);
        state.sends[self.socket] += 1;
        state.kernel.send(self.socket, Outgoing { slice, span, to: *to });
        Ok(())
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let _entered = self.at.shared.posting[self.socket].enter();
        let mut state = self.at.state::<T>();
        if state.stopped {
            return Err(Refused::Stopped.into());
        }
        let FakeState { kernel, net, .. } = &mut *state;
        counters.kernel_entries.add(kernel.commit(self.socket, net));
        drop(state);
        self.at.shared.changed.notify_all();
        Ok(())
    }

    fn outstanding(&self) -> (u32, u32) {
        let state = self.at.state::<T>();
        (state.receives[self.socket], state.sends[self.socket])
    }
}

impl<K: Kernel, T: Threading> CompletionQueue for FakeCompletions<K, T> {
    type Rq = FakeRequests<K, T>;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        let _entered = self.at.shared.dequeuing.enter();
        let mut state = self.at.state::<T>();
        state.check_wire()?;
        let FakeState { kernel, net, .. } = &mut *state;
        kernel.pass_time(false, net);
        let mut room = out.room();
        if net.random.chance(net.faults.empty_dequeue) {
            room = 0;
        } else if room > 1 && net.random.chance(net.faults.short_batch) {
            room = 1 + net.random.below(room - 1);
        }
        let mut received = 0;
        for _ in 0..room {
            let Some(completion) = state.pop() else { break };
            received += usize::from(matches!(completion.outcome, Outcome::Received(_)));
            out.push(completion);
        }
        state.count_statistics(counters);
        drop(state);
        self.at.shared.wire.dequeued();
        Ok(received)
    }

    fn wait(
        &mut self,
        _at_least: u32, // neither poll nor RIONotify can wait for more than one
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let shared = &self.at.shared;
        let _entered = shared.dequeuing.enter();
        let by = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.at.state::<T>();
        counters.kernel_entries.add(state.kernel.arm());
        let spurious = state.net.faults.spurious_wake;
        if state.net.random.chance(spurious) {
            return Ok(Woken::Ready);
        }
        loop {
            state.check_wire()?;
            if std::mem::take(&mut state.woken) {
                return Ok(Woken::ByWaker);
            }
            if state.kernel.take_signal() {
                return Ok(Woken::Ready);
            }
            let FakeState { kernel, net, .. } = &mut *state;
            kernel.pass_time(true, net);
            if kernel.take_signal() {
                return Ok(Woken::Ready);
            }
            state = match by.map(|by| by.saturating_duration_since(Instant::now())) {
                None => shared.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(Duration::ZERO) => return Ok(Woken::TimedOut),
                Some(left) => {
                    shared.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
    }

    fn gather(
        &mut self,
        _enough: u32,
        at_most: Duration,
        _counters: &Counters,
    ) -> io::Result<Woken> {
        let shared = &self.at.shared;
        let _entered = shared.dequeuing.enter();
        let by = Instant::now() + at_most;
        let mut state = self.at.state::<T>();
        loop {
            state.check_wire()?;
            if std::mem::take(&mut state.woken) {
                return Ok(Woken::ByWaker);
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Woken::Ready);
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    fn gathers(&self) -> String {
        "a timed wait that datagrams do not end".into()
    }

    fn waker(&self) -> Waker {
        let shared = Arc::downgrade(&self.at.shared);
        Waker::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.lock().woken = true;
                shared.changed.notify_all();
            }
        })
    }

    fn turn_port(&self) -> Option<Box<dyn TurnPort>> {
        let shared = &self.at.shared;
        shared.has_port.then(|| Box::new(FakePort(Arc::clone(shared))) as Box<dyn TurnPort>)
    }

    fn stop(self, requests: Vec<FakeRequests<K, T>>, by: Instant) -> Stopped {
        let shared = &self.at.shared;
        let _entered = shared.dequeuing.enter();
        // Those that are kept take nothing any more; what was posted on them is the kernel's.
        drop(requests);
        let mut state = self.at.state::<T>();
        state.stopped = true;
        state.receives.fill(0);
        state.sends.fill(0);
        // Dropping a slice puts it back into its pool.
        let FakeState { kernel, net, .. } = &mut *state;
        let mut returned = kernel.begin_stop(net).len() as u32;
        for round in 0.. {
            let FakeState { kernel, net, .. } = &mut *state;
            returned += std::iter::from_fn(|| kernel.pop(net)).count() as u32;
            if kernel.held() == 0 {
                break;
            }
            kernel.pass_time(round >= LATE_ROUNDS, net);
            if round <= LATE_ROUNDS || kernel.completed() > 0 {
                continue;
            }
            // What is left is stuck: a caller waits for it until his deadline.
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        Stopped { returned, missing: state.leak(&shared.region) }
    }
}

/// The port that a queue is bound to.
struct FakePort<K: Kernel>(Arc<FakeQueue<K>>);

impl<K: Kernel> TurnPort for FakePort<K> {
    fn notify(&self) -> io::Result<()> {
        let entries = self.0.lock().kernel.arm();
        assert_eq!(entries, 2, "asked again before the packet came (WSAEALREADY)");
        self.0.changed.notify_all();
        Ok(())
    }

    fn post(&self, packets: usize) {
        self.0.lock().posted += packets;
        self.0.changed.notify_all();
    }

    fn take(&self, timeout: Option<Duration>, counters: &Counters) -> io::Result<bool> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        counters.kernel_entries.add(2);
        let mut state = self.0.lock();
        loop {
            state.check_wire()?;
            if state.posted > 0 {
                state.posted -= 1;
                return Ok(true);
            }
            let FakeState { kernel, net, .. } = &mut *state;
            kernel.pass_time(true, net);
            if kernel.take_signal() {
                return Ok(true);
            }
            let changed = &self.0.changed;
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => changed.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(left) if left.is_zero() => return Ok(false),
                Some(left) => {
                    changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
    }
}

impl<K: Kernel> FakeState<K> {
    /// Leaves what the kernel holds to it, for ever.
    fn leak(&mut self, region: &Region) -> u32 {
        let slices = self.kernel.take_all();
        let count = slices.len() as u32;
        for slice in slices {
            let _ = slice.post();
        }
        region.count_leaked(count);
        count
    }
}

impl<K: Kernel> Receiver for FakeQueue<K> {
    fn arrive(&self, socket: usize, to: SocketAddr, from: SocketAddr, bytes: &[u8]) -> Injected {
        let mut state = self.lock();
        if state.stopped {
            return Injected::NoSocket;
        }
        let FakeState { kernel, net, .. } = &mut *state;
        let injected = kernel.arrive(socket, &Datagram { to, from, bytes }, net);
        drop(state);
        self.changed.notify_all();
        injected
    }

    fn cut(&self) {
        self.lock().cut = true;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        let state = self.lock();
        if state.stopped { 0 } else { state.kernel.completed() + state.kernel.backlog() }
    }
}

impl<K: Kernel> Drop for FakeQueue<K> {
    fn drop(&mut self) {
        self.lock().leak(&self.region);
    }
}
