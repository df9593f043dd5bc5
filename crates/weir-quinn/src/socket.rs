//! A socket as quinn takes it.

use crate::{
    queues::{Core, PER_DEQUEUE, Queues, STOP_TIMEOUT},
    reactor::Reactor,
    settings::{Settings, Tell},
    thread::Orders,
};
use quinn::{
    AsyncUdpSocket, Runtime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    fmt, future,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Instant,
};
use weir::{
    Error,
    counters::{Counters, Snapshot},
    memory::{Region, RegionOptions},
    rio::{CompletionQueue, HandOver, Needs, OnProvider, OneThread, Opened, Provider, Started},
    socket::{
        Endpoint, Given, Keeping, OFFLOADED_BYTES, PathMtu, ReceiveBuffer, SocketOptions,
        datagrams_can_be_marked, meta_can_be_told, receives_can_be_offloaded,
        replies_from_local_address, sockets_can_be_given,
    },
    wake::Waker,
};

/// Datagrams that one send, or one receive, may be: as many as every Linux cuts and joins.
const MOST_SEGMENTS: usize = 64;

/// A UDP socket for quinn, on registered I/O.
///
/// quinn drops it when its endpoint is over. Whoever keeps another reference to it keeps its port; for the counters
/// there is [`stats`](Self::stats).
pub struct WeirSocket {
    core: Arc<dyn Core>,
    thread: Option<(Arc<Orders>, JoinHandle<()>)>,
    /// Ends the wait of that thread.
    waker: Waker,
    address: SocketAddr,
    receive_segments: usize,
    effective: Vec<(&'static str, String)>,
    stats: Stats,
}

impl WeirSocket {
    /// Binds a socket (port 0: one of the system's choice), posts its receives, and spawns what flushes its sends on `runtime`.
    ///
    /// # Errors
    /// [`Error::Option`] for settings that make no sense; [`Error::Unavailable`] for a provider or a way of telling that
    /// this system lacks, with the reason; [`Error::Bind`], and [`Error::Io`] with what was being done.
    ///
    /// # Panics
    /// With [`Tell::Reactor`] if this thread's runtime of tokio has no I/O (`enable_io`).
    pub fn bind(
        address: SocketAddr,
        settings: &Settings,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, Error> {
        Self::open(address, None, settings, runtime)
    }

    /// A socket that is bound already, as a service manager passes it on ([`weir::inherited`]): it stays open for whoever else
    /// has it. Two endpoints that have one at the same time take each other's datagrams, which the connections of neither survive.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); [`Error::Unavailable`] where weir takes no such sockets
    /// ([`sockets_can_be_given`]).
    ///
    /// # Panics
    /// As [`bind`](Self::bind).
    pub fn from_std(
        socket: UdpSocket,
        settings: &Settings,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, Error> {
        sockets_can_be_given()?;
        let address = socket.local_addr();
        let address = address.map_err(|e| Error::io("asking for the local address", e))?;
        let keeping = Keeping::new(socket);
        Self::open(address, Some(keeping.given()), settings, runtime)
    }

    fn open(
        address: SocketAddr,
        given: Option<Given>,
        settings: &Settings,
        runtime: &Arc<dyn Runtime>,
    ) -> Result<Self, Error> {
        settings.check()?;
        let provider = settings.provider.resolve();
        let settings = Settings { provider, ..*settings };
        let socket = provider.with(Bind { address, given, settings: &settings })??;
        let core = Arc::clone(&socket.core);
        runtime.spawn(Box::pin(future::poll_fn(move |cx| core.poll_flush(cx))));
        Ok(socket)
    }

    /// Has it take no more datagrams from the system, for another process that has the socket, too; it goes on sending by it.
    /// What was taken by then is received as ever, by polls that go on. ([`SharedSocket`](crate::SharedSocket) does this when it
    /// is due.)
    pub fn end_receiving(&self) {
        self.core.end_receiving();
        self.waker.wake(); // the thread that waits, if there is one
    }

    /// Whether that is so, and all that was taken has been received.
    pub fn has_ended_receiving(&self) -> bool {
        self.core.has_ended_receiving()
    }

    /// The settings in effect, by name: those asked for, and what the provider and the system granted.
    pub fn effective(&self) -> &[(&'static str, String)] {
        &self.effective
    }

    /// What it counts. It may be kept when the socket is gone.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}

/// What a socket counts.
#[derive(Clone)]
pub struct Stats {
    received: Arc<Counters>,
    sent: Arc<Counters>,
    region: Arc<Region>,
}

impl Stats {
    /// The counters as they are now. `replies` are the datagrams that were sent, `waits` how often nothing was left to
    /// dequeue, `truncated` receives that were longer than the room for them.
    pub fn counters(&self) -> Snapshot {
        let mut counters = self.received.snapshot();
        counters.merge(&self.sent.snapshot());
        counters
    }

    /// Slices that there are, and those that neither quinn's side nor the kernel holds: all of them once the socket is
    /// gone.
    pub fn slices(&self) -> (u32, u32) {
        (self.region.count(), self.region.in_pool())
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats").field("slices", &self.slices()).finish_non_exhaustive()
    }
}

/// What is done with the provider that was chosen by its name.
struct Bind<'a> {
    address: SocketAddr,
    given: Option<Given>,
    settings: &'a Settings,
}

impl OnProvider for Bind<'_> {
    type Output = Result<WeirSocket, Error>;

    fn on<P>(self, provider: P) -> Self::Output
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        self.bind(provider)
    }
}

impl Bind<'_> {
    fn bind<P>(self, provider: P) -> Result<WeirSocket, Error>
    where
        P: Provider<HandOver, Cq: Send, Rq: Send>,
    {
        let Self { address, given, settings } = self;
        let offload = receives_can_be_offloaded().is_ok();
        let (meta, marks) = (meta_can_be_told().is_ok(), datagrams_can_be_marked().is_ok());
        let local_address = replies_from_local_address().is_ok();
        let options = SocketOptions::default()
            .receive_buffer(ReceiveBuffer::Bytes(settings.receive_buffer_bytes))
            .send_buffer_bytes(Some(settings.send_buffer_bytes))
            .local_address(local_address)
            .receive_traffic_class(meta)
            .receive_offload(offload)
            .path_mtu(PathMtu::Probe)
            .given(given);
        let needs = Needs {
            // Sends of several datagrams need that, too.
            payload: OFFLOADED_BYTES,
            receives: settings.receives,
            sends: settings.sends_outstanding,
            per_dequeue: PER_DEQUEUE,
            offload,
            meta,
        };
        let layout = provider.layout(&needs)?;
        // Of those that are received in place none is posted.
        let receives = if settings.receives_in_place() { 0 } else { settings.receives };
        let slices = receives + settings.sends_outstanding;
        let region = Region::new(layout, slices, RegionOptions::default())?;
        let opened = provider.open(&[Endpoint { address, options }], &region, &needs)?;
        let address = opened.local_addresses()[0];
        let socket = opened.sockets().pop();
        let send_offload = socket.as_ref().and_then(|socket| socket.send_offload_obtained());
        let in_place = socket.filter(|_| settings.receives_in_place());
        let Started { completions, mut requests, granted } = provider.start(opened)?;
        let requests = requests.pop().expect("there is one for the socket");
        let waker = completions.waker();
        let told = match settings.tell {
            Tell::Reactor => {
                Reactor::watch(completions.watched()).map(|reactor| (Some(reactor), None))
            }
            Tell::Thread => Ok((None, Some(Arc::<Orders>::default()))),
        };
        let (reactor, orders) = match told {
            Ok(told) => told,
            Err(error) => {
                let _ = completions.stop(vec![requests], Instant::now() + STOP_TIMEOUT);
                return Err(error);
            }
        };
        let stats =
            Stats { received: Arc::default(), sent: Arc::default(), region: Arc::clone(&region) };
        let counters = [Arc::clone(&stats.received), Arc::clone(&stats.sent)];
        let queues = (completions, requests, in_place);
        let queues =
            Queues::new(region, queues, reactor, orders.clone(), settings, marks, counters)?;
        let core: Arc<dyn Core> = Arc::new(queues);
        let yes_or_no = |is| String::from(if is { "yes" } else { "no" });
        let mut effective = vec![
            ("provider", settings.provider.to_string()),
            ("tell", settings.tell.to_string()),
            ("receive", if settings.receives_in_place() { "in-place" } else { "posted" }.into()),
            ("sends", settings.sends.to_string()),
            ("spin-us", settings.spin.as_micros().to_string()),
            ("receives", settings.receives.to_string()),
            ("sends-outstanding", settings.sends_outstanding.to_string()),
            ("receive-offload", yes_or_no(offload)),
            ("send-offload", send_offload.unwrap_or("none").into()),
            ("marks-of-congestion", yes_or_no(meta && marks)),
            ("local-address", yes_or_no(local_address)),
        ];
        effective.extend(granted);
        let mut socket = WeirSocket {
            core,
            thread: None,
            waker,
            address,
            receive_segments: if offload { MOST_SEGMENTS } else { 1 },
            effective,
            stats,
        };
        if let Some(orders) = orders {
            let (core, theirs) = (Arc::clone(&socket.core), Arc::clone(&orders));
            let thread = thread::Builder::new().name("weir-quinn".into()).spawn(move || {
                while theirs.next() {
                    core.wait();
                }
            });
            let thread = thread.map_err(|e| Error::io("starting the thread that waits", e))?;
            socket.thread = Some((orders, thread));
        }
        Ok(socket)
    }
}

impl Drop for WeirSocket {
    fn drop(&mut self) {
        if let Some((orders, thread)) = self.thread.take() {
            orders.end();
            self.waker.wake();
            // It may be that thread's own waking of a task that let the socket go.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join(); // it does not panic; if it did, there is nobody to tell
            }
        }
        self.core.stop();
    }
}

impl fmt::Debug for WeirSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeirSocket")
            .field("address", &self.address)
            .field("effective", &self.effective)
            .finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for WeirSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.core.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.core.poll_recv(cx, buffers, metas)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn max_transmit_segments(&self) -> usize {
        // Where the system does not cut them, weir sends each by itself.
        MOST_SEGMENTS
    }

    fn max_receive_segments(&self) -> usize {
        self.receive_segments
    }

    fn may_fragment(&self) -> bool {
        false // asked for, and refused where the system has no such option
    }
}

/// Polls for room to send.
#[derive(Debug)]
struct Poller(Arc<WeirSocket>);

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.core.poll_writable(cx)
    }
}
