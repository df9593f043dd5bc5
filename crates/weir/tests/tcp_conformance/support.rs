//! The rows of the suite, and what its checks are written with.

pub use super::suite::{ON_PURPOSE, PATIENCE, Skipped, depth, until};
use super::{suite, wine};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::stream::Snapshot,
    stream::{self, UnixAddress},
    tcp::{
        ActiveSet, AnyDesign, Asks, DEFAULT_BUFFER_BYTES, Final, Handler, Limits, Mail, Output,
        Reason, Running, Server, designs,
    },
};

/// A check, with its name.
pub type Check = suite::Check<Subject>;

/// What a stop may take beyond [`Limits::stop`] before it counts as one that hangs: far more than it needs, as a
/// busy machine may let it wait.
pub const SLACK: Duration = PATIENCE;

/// Threads of the rows with several.
const SEVERAL: u32 = 2;

/// Other ways of waiting and sharing than the defaults: what takes any of these is checked with all of
/// them once more.
const VARIANTS: [(&str, &str); 4] =
    [("trigger", "edge"), ("share", "exclusive"), ("idle", "zero-byte"), ("idle", "poll")];

/// How messages gather, and the designs that are checked with it, too: one of each way to do it.
const GATHER: (&str, &str) = ("gather", "200us,64");
const GATHERS: [&str; 4] = ["epoll", "ring", "port", "overlapped-events"];

/// The option for receives that are outstanding for each connection. What has it is checked with one, too, which is left out
/// nowhere.
const RECEIVES: &str = "receives";

/// A design, with a number of threads and options: a row.
#[derive(Clone)]
pub struct Subject {
    design: AnyDesign,
    name: String,
    /// Its clients come by a Unix socket, which the server listens on, too.
    unix: bool,
}

/// The Unix sockets that servers of this process listen on besides, by the addresses of TCP that the checks know.
static UNIX: Mutex<Vec<(SocketAddr, PathBuf)>> = Mutex::new(Vec::new());

/// The Unix socket of a server whose clients come by one. One that has stopped has none: another may have its port.
pub fn unix_beside(address: SocketAddr) -> Option<PathBuf> {
    let all = UNIX.lock().unwrap_or_else(PoisonError::into_inner);
    let is_meant = |(other, path): &&(SocketAddr, PathBuf)| *other == address && path.exists();
    all.iter().rev().find(is_meant).map(|(_, path)| path.clone())
}

/// A path for a Unix socket that no other check has.
pub fn any_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    std::env::temp_dir().join(format!("weir-suite-{}-{number}.sock", std::process::id()))
}

/// Every row.
pub fn subjects() -> Vec<Subject> {
    designs().iter().flat_map(rows).collect()
}

fn rows(design: &AnyDesign) -> Vec<Subject> {
    let has = |name: &str| design.known_options().iter().any(|option| option.name == name);
    let row = |threads: u32, options: &[(&str, &str)]| {
        let (mut design, mut name) = (design.clone(), format!("{}/{threads}", design.about().name));
        if has("threads") {
            design.set("threads", &threads.to_string()).expect("within the limits");
        }
        for (option, value) in options {
            design.set(option, value).expect("an option that it has");
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            name.push_str(&if is_number {
                format!("/{option}-{value}")
            } else {
                format!("/{value}")
            });
        }
        Subject { design, name, unix: false }
    };
    let takes = |(name, value): &(&str, &str)| design.clone().set(name, value).is_ok();
    let options: Vec<_> = VARIANTS.into_iter().filter(takes).collect();
    let most = if has("threads") { SEVERAL } else { 1 };
    let mut rows = vec![row(1, &[])];
    if most > 1 {
        rows.push(row(most, &[]));
    }
    if !options.is_empty() {
        rows.push(row(most, &options));
    }
    if has(RECEIVES) {
        rows.push(row(most, &[(RECEIVES, "1")]));
    }
    if GATHERS.contains(&design.about().name) && takes(&GATHER) {
        let mut gathers = row(most, &[GATHER]);
        gathers.name = format!("{}/{most}/gather", design.about().name);
        rows.push(gathers);
    }
    if has("skip-ready") {
        let mut skips = row(most, &[("skip-ready", "true")]);
        skips.name = format!("{}/{most}/skip-ready", design.about().name);
        // Where there is nothing to skip it is refused, and is no row.
        if skips.design.availability().is_ok() {
            rows.push(skips);
        }
    }
    if stream::unix_availability().is_ok() {
        let mut unix = row(most, &[]);
        unix.name.push_str("/unix");
        unix.unix = true;
        rows.push(unix);
    }
    rows
}

impl Subject {
    /// Design, threads, and the options that are not its defaults.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Whether its clients come by a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.unix
    }

    /// The same without a Unix socket beside.
    #[cfg(target_os = "linux")]
    pub fn plain(&self) -> Self {
        Self { unix: false, ..self.clone() }
    }

    /// The design with its options.
    pub fn design(&self) -> &AnyDesign {
        &self.design
    }

    /// How it serves no more than so many at a time.
    pub fn active_set(&self) -> ActiveSet {
        self.design.active_set()
    }

    /// Whether `name` names it: `tcp/epoll`.
    pub fn is_called(&self, name: &str) -> bool {
        name.strip_prefix("tcp/") == Some(self.design.about().name)
    }

    /// The same with an option that it has.
    pub fn with(&self, option: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.design.set(option, value).expect("an option that it has");
        other
    }

    /// Whether it is the first row of a design whose waits can let messages gather here.
    pub fn is_first_that_gathers(&self) -> bool {
        let name = self.design.about().name;
        let (option, value) = GATHER;
        self.name == format!("{name}/1") && self.design.clone().set(option, value).is_ok()
    }

    /// Why it cannot run here, if it cannot.
    pub fn unavailable(&self) -> Option<String> {
        let reason = self.design.availability().err();
        reason.map(|reason| reason.to_string()).or_else(|| self.left_out())
    }

    /// Why it is left out although it can run here.
    pub fn left_out(&self) -> Option<String> {
        self.has_several_receives().then(|| wine::RECEIVES_IN_ORDER.leaves_out()).flatten()
    }

    /// Whether it has several receives of a connection outstanding.
    pub fn has_several_receives(&self) -> bool {
        let values = self.design.values();
        values.iter().any(|(name, value)| name == RECEIVES && value != "1")
    }

    /// Starts a server with handlers that are watched.
    pub fn start<H: Handler>(
        &self,
        server: &Server,
        make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> (Running, Arc<Log>) {
        self.try_start(server, make).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same where starting may fail.
    pub fn try_start<H: Handler>(
        &self,
        server: &Server,
        make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<(Running, Arc<Log>), Error> {
        let log = Arc::new(Log::default());
        let logs = Arc::clone(&log);
        // Handlers of one type: each type that a server is started with is all designs once more, which
        // takes the compiler long.
        let make: Box<dyn Fn(SocketAddr) -> Watched + Send + Sync> =
            Box::new(move |peer| Watched::new(peer, Box::new(make(peer)), Arc::clone(&logs)));
        if !self.unix {
            return Ok((server.start(self.design.clone(), make)?, log));
        }
        let path = any_path();
        let server = server.clone().and_bind_unix(&path).start(self.design.clone(), make)?;
        if let Some(&address) = server.local_addresses().first() {
            UNIX.lock().unwrap_or_else(PoisonError::into_inner).push((address, path));
        }
        Ok((server, log))
    }

    /// Starts a server that sends back what it receives.
    pub fn echo(&self, server: &Server) -> (Running, Arc<Log>) {
        self.start(server, |_| echo)
    }
}

/// The handler of an echo server.
pub fn echo(_: &mut [u8], output: &mut Output<'_>) {
    output.echo().expect("nothing was sent before");
}

/// An address on loopback, with a port of the system's choice. Each process has one of its own, so that no
/// other takes a port that a check has left and comes back to.
pub fn any_port() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Not 127.0.*, which is everyone's, and neither the first nor the last address of a network.
    SocketAddr::from((Ipv4Addr::new(127, 1 + high % 250, middle, low.clamp(1, 254)), 0))
}

/// Limits that no check runs into unless it sets them.
pub fn limits() -> Limits {
    Limits::default().silent(Some(PATIENCE)).stalled(Some(PATIENCE)).linger(PATIENCE).stop(PATIENCE)
}

/// Makes a check in which a peer must act within a time, with `short` for that time. A busy machine may let it pass
/// before the peer had its turn; so where the check fails, it is made again with times so much longer that
/// this explains nothing. A design that lets such a peer down fails with all of them.
pub fn in_time(
    short: Duration,
    check: impl Fn(Duration) -> Result<(), Skipped>,
) -> Result<(), Skipped> {
    for times in [1, 4] {
        let short = short * times;
        if let Ok(result) = catch_unwind(AssertUnwindSafe(|| check(short))) {
            return result;
        }
        eprintln!("it failed with a time of {short:?}: again with a longer one");
    }
    check(short * 16)
}

/// A server on loopback with these limits.
pub fn server_with(limits: Limits) -> Server {
    Server::bind(any_port()).limits(limits)
}

/// A server on loopback.
pub fn server() -> Server {
    server_with(limits())
}

/// How a connection ended, as its handler was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub peer: SocketAddr,
    pub how: How,
    pub text: String,
}

/// A [`Reason`] without what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Finished,
    Aborted,
    Failed,
    Silent,
    Stalled,
    OutputFull,
    Filter,
    Declined,
    Stopped,
    Panicked,
}

impl From<&Reason> for How {
    fn from(reason: &Reason) -> Self {
        match reason {
            Reason::Finished => How::Finished,
            Reason::Aborted => How::Aborted,
            Reason::Failed(_) => How::Failed,
            Reason::Silent => How::Silent,
            Reason::Stalled => How::Stalled,
            Reason::OutputFull => How::OutputFull,
            Reason::Filter(_) => How::Filter,
            Reason::Declined(_) => How::Declined,
            Reason::Stopped => How::Stopped,
            Reason::Panicked(_) => How::Panicked,
            other => panic!("the checks do not know the reason: {other}"),
        }
    }
}

/// What the handlers of a server were told.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    pub connected: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes that the system took.
    pub sent: u64,
    /// Handlers that were told that the peer sends no more.
    pub ended: u64,
    pub closed: Vec<Ending>,
    /// The most bytes of output of a connection that ever waited.
    pub most_waiting: usize,
    /// Calls that a handler should not have had.
    wrong: Vec<String>,
}

impl Calls {
    /// How the connection of this peer ended, if it did.
    pub fn ending(&self, peer: SocketAddr) -> Option<How> {
        self.closed.iter().find(|ending| ending.peer == peer).map(|ending| ending.how)
    }

    /// Connections that ended so.
    pub fn count(&self, how: How) -> u64 {
        self.closed.iter().filter(|ending| ending.how == how).count() as u64
    }
}

/// What the handlers of a server were told, for everyone to read.
#[derive(Default)]
pub struct Log {
    told: Mutex<Calls>,
    changed: Condvar,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Calls)) {
        note(&mut self.lock());
        self.changed.notify_all();
    }

    /// What they were told so far.
    pub fn told(&self) -> Calls {
        self.lock().clone()
    }

    /// Waits until they were told something.
    #[track_caller]
    pub fn wait_for(&self, what: &str, done: impl Fn(&Calls) -> bool) {
        let by = Instant::now() + PATIENCE;
        let mut told = self.lock();
        while !done(&told) {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not happen: {told:?}");
            told = self.changed.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of a peer's connection.
    #[track_caller]
    pub fn wait_for_ending(&self, peer: SocketAddr) -> How {
        self.wait_for("the end of a connection", |told| told.ending(peer).is_some());
        self.told().ending(peer).expect("just seen")
    }
}

/// A handler whose calls are noted, and checked for their order.
pub struct Watched {
    peer: SocketAddr,
    handler: Box<dyn Handler>,
    log: Arc<Log>,
    connected: bool,
    ended: bool,
    stopped: bool,
    /// A call has not returned: it panicked.
    inside: bool,
    closed: bool,
}

impl Watched {
    fn new(peer: SocketAddr, handler: Box<dyn Handler>, log: Arc<Log>) -> Self {
        let (connected, ended, stopped) = (false, false, false);
        let (inside, closed) = (false, false);
        Self { peer, handler, log, connected, ended, stopped, inside, closed }
    }

    fn enter(&mut self, call: &str, right: bool) {
        if !right || self.closed || self.inside || self.connected == (call == "on_connect") {
            let Self { connected, ended, inside, closed, .. } = self;
            let wrong = format!(
                "{call}, while connected: {connected}, ended: {ended}, panicked: {inside}, \
                 closed: {closed}"
            );
            self.log.note(|told| told.wrong.push(wrong));
        }
        self.connected = true;
        self.inside = true;
    }

    fn leave(&mut self, output: &Output<'_>) {
        self.inside = false;
        let waiting = output.waiting();
        self.log.note(|told| told.most_waiting = told.most_waiting.max(waiting));
    }
}

impl Handler for Watched {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        self.enter("on_connect", peer == self.peer);
        self.log.note(|told| told.connected += 1);
        self.handler.on_connect(peer, output);
        self.leave(output);
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.enter("on_receive", !bytes.is_empty() && !self.ended && !self.stopped);
        self.log.note(|told| told.received += bytes.len() as u64);
        self.handler.on_receive(bytes, output);
        self.leave(output);
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        self.enter("on_sent", bytes > 0);
        self.log.note(|told| told.sent += bytes as u64);
        self.handler.on_sent(bytes, output);
        self.leave(output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.enter("on_end", !self.ended && !self.stopped);
        self.ended = true;
        self.log.note(|told| told.ended += 1);
        self.handler.on_end(output);
        self.leave(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.enter("on_stop", !self.stopped);
        self.stopped = true;
        self.handler.on_stop(output);
        self.leave(output);
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        let now = Instant::now();
        self.enter("on_time", self.asks().deadline.is_some_and(|deadline| deadline <= now));
        self.handler.on_time(output);
        self.leave(output);
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        self.enter("on_mail", true);
        self.handler.on_mail(mail, output);
        self.leave(output);
    }

    fn asks(&self) -> Asks {
        self.handler.asks()
    }

    fn on_close(&mut self, reason: &Reason) {
        self.enter("on_close", true);
        self.handler.on_close(reason);
        self.inside = false;
        self.closed = true;
        let ending = Ending { peer: self.peer, how: reason.into(), text: reason.to_string() };
        self.log.note(|told| told.closed.push(ending));
    }
}

/// Stops a server, checks what must hold of every stop, and returns what it counted.
#[track_caller]
pub fn stop(server: Running, log: &Log) -> Snapshot {
    let unix = server.unix_addresses().to_vec();
    let total = stop_within(server, log, limits().stop + SLACK).total();
    for path in unix.iter().filter_map(UnixAddress::path) {
        assert!(!path.exists(), "{} is left", path.display());
    }
    total
}

/// The same with the time that the stop may take.
#[track_caller]
pub fn stop_within(server: Running, log: &Log, most: Duration) -> Final {
    let addresses = server.local_addresses().to_vec();
    let since = Instant::now();
    let report = server.stop();
    let took = since.elapsed();
    assert!(took < most, "the stop hung: it took {took:?}, which is more than {most:?}");
    assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
    assert_balanced(&report, log);
    addresses.into_iter().for_each(assert_left);
    report
}

/// Checks that nothing is left, and that every count agrees with what the handlers were told.
#[track_caller]
pub fn assert_balanced(report: &Final, log: &Log) {
    let (total, told, timers) = (report.total(), log.told(), report.timers);
    assert_eq!(told.wrong, [] as [String; 0], "calls that a handler should not have had");
    assert_eq!(report.open, 0, "connections that nobody closed");
    assert_eq!(total.closed(), total.accepted, "connections closed, of those accepted");
    assert_eq!(timers.set, timers.fired + timers.cancelled, "timers set: {timers:?}");
    assert_eq!(told.connected, total.accepted, "handlers told of their connection");
    let of_reasons = [
        (How::Finished, total.closed_finished),
        (How::Aborted, total.closed_aborted),
        (How::Failed, total.closed_failed),
        (How::Silent, total.closed_silent),
        (How::Stalled, total.closed_stalled),
        (How::OutputFull, total.closed_output_full),
        (How::Stopped, total.closed_stopped),
        (How::Panicked, 0), // who panicked is told nothing more
    ];
    for (how, counted) in of_reasons {
        assert_eq!(told.count(how), counted, "{how:?}, as told and as counted: {told:?}");
    }
    let by_filters = told.count(How::Filter) + told.count(How::Declined);
    assert_eq!(by_filters, total.closed_by_filter, "filters, as told and as counted: {told:?}");
    assert_eq!(told.received + total.bytes_discarded, total.bytes_received, "bytes received");
    // A connection that breaks may have sent more than its handler was told by then.
    assert!(told.sent <= total.bytes_sent, "{} > {}", told.sent, total.bytes_sent);
    if total.closed_finished == total.accepted {
        assert_eq!(told.sent, total.bytes_sent, "bytes sent");
    }
}

/// Checks that what waited for a peer stayed within its limit, and one buffer.
#[track_caller]
pub fn assert_bounded(log: &Log, limits: Limits) {
    let (waited, most) = (log.told().most_waiting, limits.output_bytes + DEFAULT_BUFFER_BYTES);
    assert!(waited <= most, "{waited} bytes waited, of {most} that may");
}

/// Waits until a stopped server has left its address.
#[track_caller]
pub fn assert_left(address: SocketAddr) {
    until(&format!("the end of the socket at {address}"), || TcpListener::bind(address).is_ok());
}
