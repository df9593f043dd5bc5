//! What every design is given to start with, and what each of its threads holds.

use super::{
    Handler,
    handler::{Datagram, Desk, Rate, Replies},
    running::{Running, Slices, ThreadFinal},
};
use crate::{
    Error,
    counters::{
        Counters,
        os::{ThreadId, ThreadUsage},
    },
    limits::Limits,
    memory::{Layout, Region, RegionOptions},
    rio::Peer,
    socket::{Arrival, DatagramSocket, Endpoint},
    wake::Waker,
};
use std::{
    any::Any,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Instant,
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
    pub(super) make_handler: Box<dyn FnMut(usize) -> H + Send>,
    pub(super) shared: Arc<Shared>,
    started: Vec<Thread<H>>,
    ready: (mpsc::Sender<Readiness>, mpsc::Receiver<Readiness>),
    local_addresses: Vec<SocketAddr>,
    /// The limit on replies per second, made with the first thread.
    rate: Option<Arc<Rate>>,
}

/// What a thread answers once: that it has started, or why it could not.
type Readiness = Result<(), Error>;

pub(super) struct Thread<H> {
    pub(super) handle: thread::JoinHandle<ThreadFinal<H>>,
    pub(super) counters: Arc<Counters>,
    pub(super) id: Arc<OnceLock<ThreadId>>,
}

/// What the threads of a server share, none of it on the path of a datagram but a flag.
#[derive(Default)]
pub(super) struct Shared {
    stopping: AtomicBool,
    /// When it was first asked to stop, or failed.
    pub(super) ended: OnceLock<Instant>,
    failure: Mutex<Option<Error>>,
    wakers: Mutex<Vec<Waker>>,
    pub(super) effective: Mutex<Vec<(String, String)>>,
    pub(super) tunables: Mutex<Vec<Tunable>>,
    pub(super) slices: Mutex<Slices>,
}

/// A value that may be changed while the server runs.
pub(super) struct Tunable {
    pub(super) name: &'static str,
    pub(super) value: Arc<AtomicU64>,
    pub(super) least: u64,
    pub(super) most: u64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Asks every thread to stop and ends its wait.
    pub(super) fn stop(&self) {
        self.ended.get_or_init(Instant::now);
        self.stopping.store(true, Relaxed);
        for waker in lock(&self.wakers).iter() {
            waker.wake();
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    fn fail(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
        self.stop();
    }

    pub(super) fn take_failure(&self) -> Option<Error> {
        lock(&self.failure).take()
    }

    fn add_waker(&self, waker: Waker) {
        lock(&self.wakers).push(waker.clone());
        // A stop that came before the waker was known must not be missed.
        if self.stopping() {
            waker.wake();
        }
    }
}

impl<H: Handler> Job<H> {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        payload_bytes: usize,
        make_handler: Box<dyn FnMut(usize) -> H + Send>,
    ) -> Self {
        Self {
            endpoints,
            payload_bytes,
            limits: Limits::default(),
            region: RegionOptions::default(),
            expected_bytes: None,
            make_handler,
            shared: Arc::default(),
            started: Vec::new(),
            ready: mpsc::channel(),
            local_addresses: Vec::new(),
            rate: None,
        }
    }

    /// Memory for plain sockets: so many buffers of a datagram's length, and what was obtained
    /// stated.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn buffers(&self, count: usize) -> Result<Arc<Region>, Error> {
        let layout = Layout::packed(0, self.payload_bytes, 64);
        let region = Region::new(layout, count as u32, self.region)?;
        self.state_memory(&region);
        Ok(region)
    }

    /// States what memory was obtained.
    pub fn state_memory(&self, region: &Region) {
        let obtained = region.obtained();
        self.state("memory-bytes", obtained.bytes);
        self.state("page-bytes", obtained.page_bytes);
        self.state("huge-pages-advised", obtained.huge_pages_advised);
        let node = obtained.numa_node.map_or("the system's choice".into(), |n| n.to_string());
        self.state("numa-node", node);
    }

    /// Binds a plain socket to each endpoint.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Io`].
    pub fn bind(&mut self) -> Result<Vec<DatagramSocket>, Error> {
        let sockets =
            self.endpoints.iter().map(DatagramSocket::bind).collect::<Result<Vec<_>, _>>()?;
        self.bound(sockets.iter().map(DatagramSocket::local_address).collect());
        if let Some(Ok(bytes)) = sockets.first().map(DatagramSocket::receive_buffer_bytes) {
            self.state("receive-buffer-bytes", bytes);
        }
        Ok(sockets)
    }

    /// Says which addresses were bound.
    pub fn bound(&mut self, local_addresses: Vec<SocketAddr>) {
        self.local_addresses = local_addresses;
    }

    /// States a setting that is in effect.
    pub fn state(&self, name: &str, value: impl ToString) {
        lock(&self.shared.effective).push((name.into(), value.to_string()));
    }

    /// Makes a value tunable while the server runs, between `least` and `most`.
    pub fn tunable(&self, name: &'static str, value: u64, least: u64, most: u64) -> Arc<AtomicU64> {
        let value = Arc::new(AtomicU64::new(value));
        let tunable = Tunable { name, value: Arc::clone(&value), least, most };
        lock(&self.shared.tunables).push(tunable);
        value
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
        let index = self.started.len();
        let counters = Arc::new(Counters::default());
        let id = Arc::new(OnceLock::new());
        let own_id = Arc::clone(&id);
        let per_s = self.limits.replies_per_s;
        let rate = Arc::clone(self.rate.get_or_insert_with(|| Arc::new(Rate::new(per_s))));
        let mut worker = Worker {
            index,
            counters: Arc::clone(&counters),
            handler: (self.make_handler)(index),
            desk: Desk::new(self.limits, rate, self.payload_bytes),
            panicked: false,
            expected_bytes: self.expected_bytes.unwrap_or(usize::MAX),
            shared: Arc::clone(&self.shared),
            ready: Some(self.ready.0.clone()),
        };
        let handle = thread::Builder::new()
            .name(format!("weir-udp-{index}"))
            .spawn(move || {
                let _ = own_id.set(ThreadId::current());
                let before = ThreadUsage::current();
                let result = catch_unwind(AssertUnwindSafe(|| body(&mut worker)));
                let error = match result {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error),
                    Err(panic) => {
                        Some(Error::ThreadPanicked { thread: index, message: text_of(&*panic) })
                    }
                };
                worker.end(error);
                let usage = ThreadUsage::current().since(&before);
                let counters = worker.counters.snapshot();
                ThreadFinal { handler: worker.handler, counters, usage }
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
        // Every thread answers once: that it is ready, or at its end why it could not.
        let answers = self.ready.1.iter().take(self.started.len());
        let first_error = answers.filter_map(Result::err).next();
        let started = std::mem::take(&mut self.started);
        let local_addresses = std::mem::take(&mut self.local_addresses);
        let running = Running::new(Arc::clone(&self.shared), started, local_addresses);
        match first_error {
            None => Ok(running),
            Some(error) => {
                let _ = running.stop();
                Err(error)
            }
        }
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

/// One thread of a server: its handler, its counters, and the replies it has to send.
pub struct Worker<H> {
    /// Its number, from 0.
    pub index: usize,
    /// Its counters; this thread is their only writer.
    pub counters: Arc<Counters>,
    handler: H,
    desk: Desk,
    /// The handler panicked, and is not called again: its state may be broken.
    panicked: bool,
    expected_bytes: usize,
    shared: Arc<Shared>,
    ready: Option<mpsc::Sender<Readiness>>,
}

impl<H: Handler> Worker<H> {
    /// Says that the thread has started. `waker` ends its waits.
    pub fn ready(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.shared.add_waker(waker);
        }
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(()));
        }
    }

    /// States a setting that was only known once the thread had started.
    pub fn state(&self, name: &str, value: impl ToString) {
        lock(&self.shared.effective).push((name.into(), value.to_string()));
    }

    /// Whether the server stops.
    #[inline]
    pub fn stopping(&self) -> bool {
        self.shared.stopping()
    }

    /// Gives a datagram to the handler. `payload` is the whole buffer it was received into.
    /// True: its bytes shall go back to their source.
    ///
    /// A panic of the handler is caught here, where no slice is in anyone else's hands; it
    /// stops the server.
    #[inline]
    #[must_use]
    pub fn deliver(&mut self, payload: &mut [u8], arrival: &Arrival, socket: u32) -> bool {
        let len = arrival.len.min(payload.len());
        if self.panicked {
            return false;
        }
        self.counters.datagrams.one();
        self.counters.bytes.add(len as u64);
        if arrival.truncated {
            self.counters.truncated.one();
        }
        if self.expected_bytes != usize::MAX && len != self.expected_bytes {
            self.counters.wrong_size.one();
        }
        let datagram = Datagram {
            bytes: &mut payload[..len],
            source: arrival.from,
            local: arrival.local,
            socket,
            received_at: arrival.at,
            truncated: arrival.truncated,
        };
        let to = Peer { address: arrival.from, local: arrival.local };
        let mut replies = Replies::new(&mut self.desk, to, socket, len);
        let handler = &mut self.handler;
        let called = catch_unwind(AssertUnwindSafe(|| handler.on_datagram(datagram, &mut replies)));
        let echo = replies.echo;
        match called {
            Ok(()) => echo,
            Err(panic) => {
                self.panicked(&*panic);
                false
            }
        }
    }

    /// Says that the datagrams of one dequeue are handled.
    #[inline]
    pub fn batch_end(&mut self) {
        if self.panicked {
            return;
        }
        let handler = &mut self.handler;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler.on_batch_end())) {
            self.panicked(&*panic);
        }
        if self.desk.refused > 0 {
            self.counters.replies_refused.add(std::mem::take(&mut self.desk.refused));
        }
    }

    /// Whether the handler left replies to be sent.
    #[inline]
    pub fn has_replies(&self) -> bool {
        !self.desk.is_empty()
    }

    /// Gives each reply that the handler left to `send`, and counts what became of it.
    pub fn flush(&mut self, mut send: impl FnMut(&[u8], &Peer, &Counters) -> io::Result<()>) {
        let counters = &self.counters;
        self.desk.flush(|_, bytes, to| count_sent(send(bytes, to, counters), counters));
    }

    /// Gives each reply that the handler left to `post`, which hands it to the queue of the
    /// socket that the datagram came in on: what becomes of it is counted at its completion.
    pub fn post_replies(&mut self, post: impl FnMut(u32, &[u8], &Peer)) {
        self.desk.flush(post);
    }

    /// Counts a reply that was sent, or was not.
    pub fn sent(&self, result: io::Result<()>) {
        count_sent(result, &self.counters);
    }

    /// Counts a receive that failed.
    ///
    /// # Errors
    /// [`Error::Io`] unless the failure concerns one datagram or one peer, as an ICMP message
    /// that came back does.
    pub fn receive_failed(&self, e: io::Error) -> Result<(), Error> {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, OutOfMemory,
        };
        self.counters.receive_errors.one();
        match e.kind() {
            ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
            | OutOfMemory => Ok(()),
            _ => Err(Error::io("receiving a datagram", e)),
        }
    }

    /// Counts slices that went out and came back, for the report.
    pub fn account(&self, slices: Slices) {
        let mut all = lock(&self.shared.slices);
        all.made += slices.made;
        all.returned += slices.returned;
        all.missing += slices.missing;
    }

    #[cold]
    fn panicked(&mut self, panic: &(dyn Any + Send)) {
        self.panicked = true;
        let message = text_of(panic);
        self.shared.fail(Error::HandlerPanicked { thread: self.index, message });
    }

    fn end(&mut self, error: Option<Error>) {
        match (self.ready.take(), error) {
            (Some(ready), None) => {
                let _ = ready.send(Ok(())); // it was asked to stop before it was ready
            }
            (Some(ready), Some(error)) => {
                let _ = ready.send(Err(error));
                self.shared.stop();
            }
            (_, Some(error)) => self.shared.fail(error),
            (None, None) => {}
        }
    }
}

fn count_sent(result: io::Result<()>, counters: &Counters) {
    match result {
        Ok(()) => counters.replies.one(),
        Err(_) => counters.send_errors.one(),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no text)".to_string())
}
