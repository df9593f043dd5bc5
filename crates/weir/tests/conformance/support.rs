//! The rows of the suite, and what its checks are written with.

pub use super::receive::receive;
use super::suite;
pub use super::suite::{ON_PURPOSE, PATIENCE, Skipped, until};
use std::{
    any::Any,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::Snapshot,
    limits::Limits,
    rio::Choice,
    socket::{PeerError, receives_can_be_offloaded},
    udp::{
        AnyDesign, Datagram, Final, Handler, OFFLOADED_OUTSTANDING, Outbox, Replies, Running,
        Server, designs,
    },
};

/// A check, with its name.
pub type Check = suite::Check<Subject>;

/// Datagrams under way at a time: with small ones this fits every default receive buffer.
pub const WINDOW: usize = 32;

/// Threads of the rows with several. Where each has another beside it, of the kernel's, which polls, more of them would wait for
/// cores most of the time.
fn several(provider: Option<Choice>) -> u32 {
    if provider == Some(Choice::UringSqpoll) { 2 } else { 4 }
}

/// A design, on a provider if it has any, with a number of threads, without receive offload or
/// with it: a row.
#[derive(Clone)]
pub struct Subject {
    design: AnyDesign,
    provider: Option<Choice>,
    threads: u32,
    offload: bool,
    /// What is done when its call returns has no packet.
    skip_ready: bool,
}

/// Providers that can be checked on loopback. The library's own tests run every design on the
/// others, over devices that they make. Windows' own is for Windows alone: elsewhere no machine can be asked to have it.
fn on_loopback() -> impl Iterator<Item = Choice> {
    let here = |choice: &Choice| cfg!(windows) || *choice != Choice::Winsock;
    Choice::ALL.iter().copied().filter(|choice| choice.reaches_loopback()).filter(here)
}

/// Every row.
pub fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for design in designs() {
        let has = |name: &str| design.known_options().iter().any(|option| option.name == name);
        let providers = match has("provider") {
            true => on_loopback().map(Some).collect(),
            false => vec![None],
        };
        let threads = |provider| if has("threads") { vec![1, several(provider)] } else { vec![1] };
        for &provider in &providers {
            for threads in threads(provider) {
                let (design, skip_ready) = (design.clone(), false);
                let plain = Subject { design, provider, threads, offload: false, skip_ready };
                if plain.is_another() {
                    continue;
                }
                let offloads = Subject { offload: true, ..plain.clone() };
                let variant = plain.is_variant();
                subjects.push(plain);
                if !variant {
                    subjects.push(offloads);
                }
            }
        }
        // Where there is nothing to skip it is refused, and is no row.
        let mut skips = design.clone();
        if skips.set("skip-ready", "true").is_ok() && skips.availability().is_ok() {
            subjects.extend(threads(None).into_iter().map(|threads| {
                let (design, provider) = (skips.clone(), None);
                Subject { design, provider, threads, offload: false, skip_ready: true }
            }));
        }
    }
    subjects
}

impl Subject {
    /// Design, provider, threads, and what is not usual.
    pub fn name(&self) -> String {
        let design = self.design.about().name;
        let provider = self.provider.map_or(String::new(), |provider| format!("/{provider}"));
        let offload = if self.offload { "/offload" } else { "" };
        let skip_ready = if self.skip_ready { "/skip-ready" } else { "" };
        format!("{design}{provider}/{}{offload}{skip_ready}", self.threads)
    }

    /// Whether it receives with offload.
    pub fn offloads(&self) -> bool {
        self.offload
    }

    /// Whether its provider is a variant of another, which differs in when the kernel receives, not in what.
    pub fn is_variant(&self) -> bool {
        self.provider.is_some_and(|provider| provider.to_string().contains('-'))
    }

    /// Whether what runs is the same as with another provider: a ring that goes from thread to thread defers nothing, and
    /// then `uring-interrupt` is `uring-armed`.
    fn is_another(&self) -> bool {
        self.provider == Some(Choice::UringInterrupt)
            && self.threads > 1
            && self.untouched().sockets_per_address() == 1
    }

    /// Whether `name` names its design, its provider, or both (`rio-event/batch`): never one with receive
    /// offload.
    pub fn is_called(&self, name: &str) -> bool {
        let (design, provider) = (self.design.about().name, self.at_defaults().provider());
        let named =
            name == design || name == provider || name.split_once('/') == Some((design, provider));
        named && !self.offload
    }

    /// Whether its design is this one.
    pub fn is_of(&self, design: &str) -> bool {
        self.design.about().name == design
    }

    /// Why it cannot run here, if it cannot.
    pub fn unavailable(&self) -> Option<String> {
        let offload = if self.offload { receives_can_be_offloaded() } else { Ok(()) };
        let available = self.at_defaults().availability().and(offload);
        available.err().map(|reason| reason.to_string())
    }

    /// How many threads it runs.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The design with the defaults that hold for it, but for provider and threads.
    pub fn at_defaults(&self) -> AnyDesign {
        let mut design = self.untouched();
        if self.offload && self.has("outstanding") {
            design.set("outstanding", &OFFLOADED_OUTSTANDING.to_string()).expect("a default");
        }
        design
    }

    /// The design with its own defaults, but for provider and threads.
    pub fn untouched(&self) -> AnyDesign {
        let mut design = self.design.clone();
        if let Some(provider) = self.provider {
            design.set("provider", &provider.to_string()).expect("a name from the table");
        }
        if self.has("threads") {
            design.set("threads", &self.threads.to_string()).expect("within the limits");
        }
        design
    }

    /// The design, with few receives outstanding, and a threshold that is reached easily.
    pub fn design(&self) -> AnyDesign {
        let mut design = self.at_defaults();
        // A slice that takes many datagrams is large, and is cleared and given back with every server.
        let outstanding = if self.offload { OFFLOADED_OUTSTANDING } else { suite::depth(256) };
        for (name, value) in [("outstanding", outstanding), ("armed", 32), ("threshold", 4)] {
            if self.has(name) {
                design.set(name, &value.to_string()).expect("within the limits");
            }
        }
        design
    }

    /// Whether the design has an option of this name.
    pub fn has(&self, name: &str) -> bool {
        self.design.known_options().iter().any(|option| option.name == name)
    }

    /// Whether its waits can let datagrams gather here.
    pub fn gathers(&self) -> bool {
        self.design.clone().set("gather", "200us,64").is_ok()
    }

    /// Whether it can sleep ahead of what it expects here.
    pub fn adapts(&self) -> bool {
        let mut design = self.design.clone();
        design.set("adaptive", "true").is_ok() && design.check().is_ok()
    }

    /// Starts a server that logs what it gets.
    pub fn log(&self, server: &Server) -> (Running<Boxed>, Arc<Log>) {
        self.log_with(server, Answer::Nothing)
    }

    /// Starts a server that logs what it gets, and answers.
    pub fn log_with(&self, server: &Server, answer: Answer) -> (Running<Boxed>, Arc<Log>) {
        self.try_log(server, answer).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same where starting may fail.
    pub fn try_log(
        &self,
        server: &Server,
        answer: Answer,
    ) -> Result<(Running<Boxed>, Arc<Log>), Error> {
        self.try_log_design(self.design(), server, answer)
    }

    /// The same with options of one's own.
    pub fn try_log_design(
        &self,
        design: AnyDesign,
        server: &Server,
        answer: Answer,
    ) -> Result<(Running<Boxed>, Arc<Log>), Error> {
        let log = Arc::new(Log::default());
        let logs = Arc::clone(&log);
        let make = move |thread| Logger { thread, log: Arc::clone(&logs), answer };
        Ok((self.start_design(design, server, make)?, log))
    }

    /// Starts a server with handlers of one's own.
    pub fn start<H: Handler>(
        &self,
        server: &Server,
        make: impl FnMut(usize) -> H + Send + 'static,
    ) -> Result<Running<Boxed>, Error> {
        self.start_design(self.design(), server, make)
    }

    /// The same with options of one's own.
    pub fn start_design<H: Handler>(
        &self,
        design: AnyDesign,
        server: &Server,
        mut make: impl FnMut(usize) -> H + Send + 'static,
    ) -> Result<Running<Boxed>, Error> {
        let make: Box<dyn FnMut(usize) -> Boxed + Send> = Box::new(move |n| Boxed::from(make(n)));
        server.clone().receive_offload(self.offload).start(design, make)
    }
}

/// A handler of any type. Every check has the same: each type that a server is started with is all
/// designs on all providers once more, which takes the compiler long.
pub struct Boxed(Box<dyn AnyHandler>);

trait AnyHandler: Handler {
    fn as_any(&self) -> &dyn Any;
}

impl<H: Handler> AnyHandler for H {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Boxed {
    fn from(handler: impl Handler) -> Self {
        Self(Box::new(handler))
    }

    /// The handler of this type that it is.
    pub fn get<H: Handler>(&self) -> &H {
        (*self.0).as_any().downcast_ref().expect("a handler of another type was boxed")
    }
}

impl Handler for Boxed {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self.0.on_datagram(datagram, replies);
    }

    fn on_start(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_start(outbox);
    }

    fn on_time(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_time(outbox);
    }

    fn on_stop(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_stop(outbox);
    }

    fn on_batch_end(&mut self, outbox: &mut Outbox<'_>) {
        self.0.on_batch_end(outbox);
    }

    fn on_error(&mut self, error: PeerError, socket: u32) {
        self.0.on_error(error, socket);
    }
}

/// An address on loopback, with a port of the system's choice.
pub fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Replies to everything, as fast as it comes.
pub fn echo_limits() -> Limits {
    Limits::default().replies_outstanding(256)
}

/// What a logging server does with a datagram besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// Sends it back in place.
    Echo,
    /// Sends back a copy.
    Copy,
}

/// A datagram as a handler saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub thread: usize,
    pub bytes: Vec<u8>,
    pub source: SocketAddr,
    pub local: Option<IpAddr>,
    pub socket: u32,
    pub received_at: Option<Duration>,
    pub truncated: bool,
}

/// What the handlers of a server saw.
#[derive(Default)]
pub struct Log {
    seen: Mutex<Vec<Seen>>,
    grown: Condvar,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many datagrams were seen.
    pub fn wait_for(&self, count: usize) {
        self.wait_for_those(count, |_| true);
    }

    /// Waits until so many of those were seen that are meant.
    pub fn wait_for_those(&self, count: usize, meant: impl Fn(&Seen) -> bool) {
        if let Err(came) = self.come_within(PATIENCE, count, meant) {
            panic!("{came} of {count} datagrams came");
        }
    }

    /// Waits so long until so many of those were seen that are meant; how many came where that was not enough.
    pub fn come_within(
        &self,
        patience: Duration,
        count: usize,
        meant: impl Fn(&Seen) -> bool,
    ) -> Result<(), usize> {
        let by = Instant::now() + patience;
        let mut seen = self.lock();
        let (mut looked_at, mut came) = (0, 0);
        loop {
            came += seen[looked_at..].iter().filter(|seen| meant(seen)).count();
            looked_at = seen.len();
            if came >= count {
                return Ok(());
            }
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(came);
            }
            seen = self.grown.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Everything seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().clone()
    }
}

/// Logs every datagram.
pub struct Logger {
    thread: usize,
    log: Arc<Log>,
    answer: Answer,
}

impl Handler for Logger {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        // A refusal is the server's to count.
        let _ = match self.answer {
            Answer::Nothing => Ok(()),
            Answer::Echo => replies.echo(),
            Answer::Copy => replies.send(datagram.bytes),
        };
        let Datagram { bytes, source, local, socket, received_at, truncated, .. } = datagram;
        let (thread, bytes) = (self.thread, bytes.to_vec());
        self.log.lock().push(Seen { thread, bytes, source, local, socket, received_at, truncated });
        self.log.grown.notify_all();
    }
}

/// Stops a logging server, checks what must hold of every stop, and returns what it counted.
pub fn stop(server: Running<Boxed>, log: &Log) -> Snapshot {
    let addresses = server.local_addresses().to_vec();
    let since = Instant::now();
    let report = server.stop();
    assert!(since.elapsed() < PATIENCE, "the stop took {:?}", since.elapsed());
    assert_whole(&report);
    let (total, seen) = (report.total(), log.seen());
    assert_eq!(total.datagrams, seen.len() as u64, "counted and handled");
    assert_eq!(total.bytes, seen.iter().map(|seen| seen.bytes.len() as u64).sum::<u64>());
    assert_eq!(total.truncated, seen.iter().filter(|seen| seen.truncated).count() as u64);
    for (thread, report) in report.threads.iter().enumerate() {
        let handled = seen.iter().filter(|seen| seen.thread == thread).count();
        assert_eq!(report.counters.datagrams, handled as u64, "of thread {thread}");
    }
    addresses.into_iter().for_each(assert_left);
    total
}

/// Checks that a server ended without failure, with every slice back.
pub fn assert_whole<H>(report: &Final<H>) {
    assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
    assert_slices(report);
    let total = report.total();
    assert_eq!(total.dequeues, total.empty_dequeues + total.batches.count(), "dequeues");
    assert_eq!((total.receive_errors, total.overflows), (0, 0));
}

/// Checks that every slice is back.
pub fn assert_slices<H>(report: &Final<H>) {
    assert_eq!(report.slices.returned, report.slices.made, "slices returned, of those made");
    assert_eq!(report.slices.missing, 0, "slices missing");
}

/// Sockets that send to a server.
pub fn senders(count: usize, to: SocketAddr) -> Vec<UdpSocket> {
    senders_at(if to.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" }, count)
}

/// The same for sockets that are closed before they are answered: over IPv4 on an address of their own, so that no
/// other check's socket gets the port, and with it the answer.
pub fn leavers(count: usize, to: SocketAddr) -> Vec<UdpSocket> {
    senders_at(if to.is_ipv6() { "[::1]:0" } else { "127.0.0.2:0" }, count)
}

fn senders_at(at: &str, count: usize) -> Vec<UdpSocket> {
    (0..count)
        .map(|_| {
            let socket = UdpSocket::bind(at).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        })
        .collect()
}

/// Waits until a stopped server has left its address. Another test may hold the port for a
/// moment.
pub fn assert_left(address: SocketAddr) {
    until(&format!("the end of the socket at {address}"), || UdpSocket::bind(address).is_ok());
}

/// Bytes that differ from those of every other datagram, as far as there is room.
pub fn pattern(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<_> = (0..len).map(|i| (number + i * 7) as u8).collect();
    let stamp = (number as u32).to_le_bytes();
    let room = len.min(stamp.len());
    bytes[..room].copy_from_slice(&stamp[..room]);
    bytes
}

/// How often each datagram was sent, or seen.
pub type Tally = BTreeMap<(SocketAddr, Vec<u8>), u32>;

/// Sends datagrams of these sizes from the sockets in turn, never more than `window` ahead of
/// what the server has seen, and waits until it saw all. Returns what was sent.
pub fn send_all(
    senders: &[UdpSocket],
    to: SocketAddr,
    sizes: impl IntoIterator<Item = usize>,
    window: usize,
    log: &Log,
) -> Tally {
    let before = log.seen().len();
    let mut sent = Tally::new();
    let mut count = 0;
    for size in sizes {
        if count >= window {
            log.wait_for(before + count + 1 - window);
        }
        let sender = &senders[count % senders.len()];
        let bytes = pattern(count, size);
        assert_eq!(sender.send_to(&bytes, to).unwrap(), size);
        *sent.entry((sender.local_addr().unwrap(), bytes)).or_default() += 1;
        count += 1;
    }
    log.wait_for(before + count);
    sent
}

/// What was seen, in the form of what was sent.
pub fn tally(seen: &[Seen]) -> Tally {
    let mut tally = Tally::new();
    for seen in seen {
        *tally.entry((seen.source, seen.bytes.clone())).or_default() += 1;
    }
    tally
}

/// Adds what was sent later. A later sender may have an earlier one's port.
pub fn add(tally: &mut Tally, later: Tally) {
    for (datagram, count) in later {
        *tally.entry(datagram).or_default() += count;
    }
}

/// Checks that what was sent was seen, each datagram as often as it was sent.
pub fn assert_same(seen: &[Seen], sent: &Tally) {
    let seen = tally(seen);
    let differs = |(from, to): (&Tally, &Tally)| {
        let differ = |((source, bytes), count): (&(SocketAddr, Vec<u8>), &u32)| {
            let other = to.get(&(*source, bytes.clone())).copied().unwrap_or(0);
            (other < *count).then(|| {
                let head = &bytes[..bytes.len().min(8)];
                format!("{} bytes {head:?}… from {source}: {count}, not {other}", bytes.len())
            })
        };
        from.iter().filter_map(differ).take(3).collect::<Vec<_>>()
    };
    let (missing, surplus) = (differs((sent, &seen)), differs((&seen, sent)));
    assert!(missing.is_empty() && surplus.is_empty(), "sent: {missing:?}; seen: {surplus:?}");
}

/// Starts a server with something that not every system has.
pub fn start_or_skip(
    subject: &Subject,
    server: &Server,
    answer: Answer,
) -> Result<(Running<Boxed>, Arc<Log>), Skipped> {
    subject.try_log(server, answer).map_err(|error| match error {
        Error::Unavailable(reason) => Skipped(reason.to_string()),
        other => panic!("{other}"),
    })
}
