//! What every design is given to start with, and what its threads share.

use super::{
    Handler, OnPanic, Spec, Worker,
    handler::{Left, MakeHandler, Rate, ReplyBuffer},
    outbox::Exits,
    running::{Running, Thread, ThreadFinal},
    worker::Placed,
};
use crate::{
    Error,
    counters::Counters,
    events::event,
    gather::{Asked, Gather},
    lifecycle::{Answers, Lifecycle, failure_of, live, lock},
    limits::Limits,
    memory::{Committed, Layout, Region, RegionOptions},
    socket::{DatagramSocket, Endpoint, Keeping, OFFLOADED_BYTES, names::stands_for_name},
    stream::UnixAddress,
    tunable::Unit,
    wake::Waker,
};
use std::{
    any::Any,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// A server to be started: where, with what limits, and who handles the datagrams.
pub struct Job<H> {
    /// The addresses to receive on.
    pub endpoints: Vec<Endpoint>,
    /// Longest datagram received whole, in bytes.
    pub payload_bytes: usize,
    /// What may be sent.
    pub limits: Limits,
    /// What is asked of the memory.
    pub region: RegionOptions,
    pub(super) expected_bytes: Option<usize>,
    pub(super) on_panic: OnPanic,
    /// Groups to receive from, each with the index of a device.
    pub(super) groups: Vec<(IpAddr, u32)>,
    /// Sockets that are bound already, which endpoints name.
    pub(super) given: Vec<Arc<Keeping>>,
    /// The names of Unix sockets, and those of them that are bound already.
    pub(super) names: Vec<Arc<dyn Any + Send + Sync>>,
    /// Somebody else may have one of its sockets, too.
    pub(super) hands_over: bool,
    pub(super) make_handler: MakeHandler<H>,
    pub(super) shared: Arc<Lifecycle>,
    started: Vec<Thread>,
    /// The sockets, as far as there are any.
    sockets: Vec<Placed>,
    ready: Answers,
    local_addresses: Vec<SocketAddr>,
    /// The limit on replies per second, made with the first thread.
    rate: Option<Arc<Rate>>,
    /// The sockets of all addresses that any thread may send by.
    senders: Vec<DatagramSocket>,
    /// By what the server sends, made with the first thread.
    exits: Option<Arc<Exits>>,
}

/// What a thread does from its start to its end.
type Body<H> = Box<dyn FnOnce(&mut Worker<H>) -> Result<(), Error> + Send>;

/// How long a stop waits for the kernel to give slices back.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Until when a stop that begins now waits for the kernel to give slices back.
pub(super) fn stop_deadline() -> Instant {
    Instant::now() + STOP_TIMEOUT
}

impl<H: Handler> Job<H> {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        payload_bytes: usize,
        make_handler: MakeHandler<H>,
    ) -> Self {
        Self {
            endpoints,
            payload_bytes,
            limits: Limits::default(),
            region: Spec::REGION,
            expected_bytes: None,
            on_panic: OnPanic::End,
            groups: Vec::new(),
            given: Vec::new(),
            names: Vec::new(),
            hands_over: false,
            make_handler,
            shared: Arc::default(),
            started: Vec::new(),
            sockets: Vec::new(),
            ready: Answers::default(),
            local_addresses: Vec::new(),
            rate: None,
            senders: Vec::new(),
            exits: None,
        }
    }

    pub(super) fn give_up_privilege(&self, on: bool) {
        self.shared.gives_up_privilege.store(on, Relaxed);
    }

    /// Whether a socket is asked to receive several datagrams at once.
    pub fn receive_offload(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.options.receive_offload)
    }

    /// Whether a socket is asked for the traffic class or the hops of a datagram.
    pub fn asks_for_meta(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.options.asks_for_meta())
    }

    /// For how long a socket is asked to poll its device's queue.
    pub fn busy_poll(&self) -> Option<Duration> {
        self.endpoints.iter().find_map(|endpoint| endpoint.options.busy_poll)
    }

    /// Bytes of a slice: those of a datagram, or of as many as receive offload puts into it.
    pub fn slice_bytes(&self) -> usize {
        if self.receive_offload() { OFFLOADED_BYTES } else { self.payload_bytes }
    }

    /// Memory for plain sockets: so many buffers of a slice's length, and what was obtained
    /// stated.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn buffers(&self, count: usize) -> Result<Arc<Region>, Error> {
        let layout = Layout::packed(0, self.slice_bytes(), 64);
        let region = Region::new(layout, count as u32, self.region)?;
        self.state_memory(std::slice::from_ref(&region));
        Ok(region)
    }

    /// States what memory was obtained, in all. Its slices are accounted for at the end.
    pub fn state_memory(&self, regions: &[Arc<Region>]) {
        lock(&self.shared.regions).extend_from_slice(regions);
        let bytes: usize = regions.iter().map(|region| region.obtained().bytes).sum();
        self.state("memory-bytes", bytes);
        let Some(obtained) = regions.first().map(|region| region.obtained()) else { return };
        self.state("page-bytes", obtained.page_bytes);
        self.state("huge-pages-advised", obtained.huge_pages_advised);
        let node = obtained.numa_node.map_or("the system's choice".into(), |n| n.to_string());
        self.state("numa-node", node);
        let commits = regions.iter().map(|region| region.obtained().commit);
        self.state("memory", Committed::of_all(commits).unwrap_or(obtained.commit));
        let locked = regions.iter().map(|region| region.obtained());
        let locked = locked.filter(|obtained| obtained.commit == Committed::Locked);
        self.state("locked-bytes", locked.map(|obtained| obtained.bytes).sum::<usize>());
    }

    /// Sizes receive buffers to so many receives outstanding, which the sockets share, where nothing else was asked for.
    pub fn make_room_for(&mut self, receives: u32) {
        let bytes = self.slice_bytes();
        make_room(&mut self.endpoints, receives, bytes);
    }

    /// Binds a plain socket to each endpoint.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Io`].
    pub fn bind(&mut self) -> Result<Vec<DatagramSocket>, Error> {
        let sockets =
            self.endpoints.iter().map(DatagramSocket::bind).collect::<Result<Vec<_>, _>>()?;
        self.bound(sockets.iter().map(DatagramSocket::local_address).collect());
        for bytes in sockets.iter().filter_map(|socket| socket.receive_buffer_bytes().ok()) {
            self.state("receive-buffer-bytes", bytes);
        }
        self.watch(sockets.clone());
        self.send_by(sockets.clone());
        Ok(sockets)
    }

    /// Names the sockets by which any thread may send, in the order of the addresses; before the first thread is started.
    pub fn send_by(&mut self, senders: Vec<DatagramSocket>) {
        self.senders = senders;
    }

    /// By what the server sends.
    fn exits(&mut self) -> Arc<Exits> {
        let of = (self.limits, self.payload_bytes, self.slice_bytes());
        let by_sockets = !self.sockets.is_empty();
        let Self { local_addresses, senders, shared, exits, .. } = self;
        // The threads keep the sockets open, as long as they live.
        let senders = std::mem::take(senders);
        Arc::clone(
            exits.get_or_insert_with(|| {
                Exits::new(local_addresses, &senders, of, by_sockets, shared)
            }),
        )
    }

    /// Names the sockets of all addresses in their order; several times where each address has
    /// several. What is counted for them can be read while the server runs, and threads that are
    /// started afterwards hear the errors of peers.
    pub fn watch(&mut self, sockets: Vec<DatagramSocket>) {
        for told in sockets.iter().filter_map(DatagramSocket::busy_poll_obtained) {
            self.state("busy-poll", told);
        }
        for told in sockets.iter().filter_map(DatagramSocket::receive_buffer_obtained) {
            self.state("receive-buffer", told);
        }
        for told in sockets.iter().filter_map(DatagramSocket::send_offload_obtained) {
            self.state("send-offload", told);
        }
        self.sockets.extend((0..).zip(sockets));
    }

    /// Says which addresses were bound.
    pub fn bound(&mut self, local_addresses: Vec<SocketAddr>) {
        self.local_addresses = local_addresses;
    }

    /// States a setting that is in effect.
    pub fn state(&self, name: &str, value: impl ToString) {
        self.shared.state(name, value);
    }

    /// Makes a value tunable within these limits while the server runs; `unit` says how it is written.
    pub fn tunable(
        &self,
        name: &'static str,
        unit: Unit,
        value: u64,
        allowed: RangeInclusive<u64>,
    ) -> Arc<AtomicU64> {
        self.shared.tunable(name, unit, value, allowed)
    }

    /// What waits are asked for, which may be changed while the server runs.
    pub(super) fn gathers(&self, gather: Gather) -> Asked {
        Asked::in_word(self.tunable("gather", Unit::Gather, gather.packed(), 0..=u64::MAX))
    }

    /// Calls `waker` when the server stops.
    pub fn on_stop(&self, waker: Waker) {
        self.shared.add_waker(waker);
    }

    /// Starts a thread. `body` says [`Worker::ready`] once all that can fail at the start is
    /// done, and returns when the server stops.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no thread.
    pub fn spawn(
        &mut self,
        body: impl FnOnce(&mut Worker<H>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.spawn_boxed(Box::new(body))
    }

    /// Compiled once for all bodies.
    fn spawn_boxed(&mut self, body: Body<H>) -> Result<(), Error> {
        let index = self.started.len();
        let counters = Arc::new(Counters::default());
        let id = Arc::new(OnceLock::new());
        let own_id = Arc::clone(&id);
        let per_s = self.limits.replies_per_s;
        let rate = Arc::clone(self.rate.get_or_insert_with(|| Arc::new(Rate::new(per_s))));
        let exits = self.exits();
        let hearing = self.sockets.iter().filter(|(_, socket)| socket.hears_errors());
        let mut worker = Worker::new(
            index,
            Arc::clone(&counters),
            (self.make_handler)(index),
            ReplyBuffer::new(self.limits, rate, self.payload_bytes, &self.local_addresses, exits),
            self.expected_bytes,
            Arc::clone(&self.shared),
            self.ready.clone(),
        );
        worker.hands_over = self.hands_over;
        worker.survives = self.on_panic == OnPanic::Drop;
        worker.hearing = hearing.cloned().collect();
        let handle = thread::Builder::new()
            .name(format!("weir-udp-{index}"))
            .spawn(move || {
                let usage = live(&own_id, || {
                    let error = failure_of(index, || body(&mut worker));
                    worker.end(error);
                });
                let counters = worker.counters.snapshot();
                ThreadFinal { handler: worker.into_handler() as Left, counters, usage }
            })
            .map_err(|e| Error::io(format!("starting thread {index}"), e))?;
        self.started.push(Thread { handle, counters, id });
        Ok(())
    }

    /// Waits until every thread is ready.
    ///
    /// # Errors
    /// The first error of a thread; all threads have ended then.
    pub fn run(mut self) -> Result<Running<H>, Error> {
        let exits = self.exits();
        let mut groups = std::mem::take(&mut self.groups).into_iter();
        let joined = groups.try_for_each(|(group, interface)| exits.join(group, interface));
        // Every thread answers once: that it is ready, or at its end why it could not.
        let first_error = self.ready.first_error_of(self.started.len());
        let started = std::mem::take(&mut self.started);
        let mut local_addresses = std::mem::take(&mut self.local_addresses);
        let unix_addresses = local_addresses.iter().filter_map(|at| UnixAddress::of(*at)).collect();
        local_addresses.retain(|address| !stands_for_name(address));
        let gauges = self.sockets.drain(..).map(|(_, socket)| socket.gauge()).collect();
        let polls = self.busy_poll().is_some();
        let shared = Arc::clone(&self.shared);
        let addresses = (local_addresses, unix_addresses);
        let running = Running::new(shared, started, addresses, gauges, polls, exits);
        match first_error.or(joined.err()) {
            None => {
                event!(
                    INFO,
                    addresses = ?running.local_addresses(),
                    unix_addresses = ?running.unix_addresses(),
                    settings = ?running.effective(),
                    "a server of UDP runs"
                );
                Ok(running)
            }
            // Dropping it stops it. Nobody wants its handlers, of a type that may be in boxes here.
            Some(error) => {
                drop(running);
                Err(error)
            }
        }
    }
}

/// Sizes the receive buffer of each endpoint to its share of the receives outstanding, where nothing else was asked
/// for.
pub(super) fn make_room(endpoints: &mut [Endpoint], receives: u32, slice_bytes: usize) {
    let each = receives.div_ceil(endpoints.len().max(1) as u32);
    for Endpoint { options, .. } in endpoints {
        options.receive_buffer = options.receive_buffer.of_outstanding(each, slice_bytes);
    }
}

/// A start that failed half way leaves no thread behind.
impl<H> Drop for Job<H> {
    fn drop(&mut self) {
        if self.started.is_empty() {
            return;
        }
        self.shared.stop();
        for thread in self.started.drain(..) {
            let _ = thread.handle.join();
        }
    }
}
