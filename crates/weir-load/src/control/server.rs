//! The server's end of the control connections.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    ControlError,
    build::Build,
    message::{Consent, Hello, Message, PROTOCOL, RunAsk, RunEnd},
    wire::{Handle, Wire},
};
use crate::{stamp::STAMP_BYTES, sys};

/// What the control channel needs of the server under test. Called from the threads of the
/// control connections, several at once if there are several generators.
pub trait Receiver: Send + Sync + 'static {
    /// Prepares for a run, and gives the ports that may be flooded.
    ///
    /// # Errors
    /// Why it cannot: the reason is told to the generator.
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String>;

    /// The warm-up is over and has arrived: what is counted from now on belongs to the run.
    fn start(&self, run: &AgreedRun);

    /// How long nothing has arrived of a run or its warm-up, in ns.
    fn quiet_ns(&self, run: &AgreedRun) -> u64;

    /// What is still to come, of the `sent` datagrams of a run if that is known. Asked for when
    /// nothing has arrived for a while: a server that was given no core has not taken yet what
    /// lies in its sockets.
    fn outstanding(&self, _run: &AgreedRun, _sent: Option<u64>) -> Outstanding {
        Outstanding::default()
    }

    /// A run is about to be ended although something of it was still to come, for this reason.
    fn cut_short(&self, _run: &AgreedRun, _reason: &str) {}

    /// Ends a run that began, whether it started or not, and gives its account.
    fn end(&self, run: &AgreedRun, ending: &Ending) -> serde_json::Value;

    /// Something happened on the control channel that whoever watches may want to know.
    fn note(&self, _text: &str) {}
}

/// What is still to come of a run, as far as that can be seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Memory of what lies in the receive buffers of the server's sockets, in bytes; none where
    /// that cannot be seen, or may be another run's.
    pub queued_bytes: Option<u64>,
    /// Datagrams sent that have neither arrived nor are known to be dropped; none where that cannot
    /// be told.
    pub missing: Option<u64>,
}

/// A run that was consented to.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreedRun {
    /// What the generator asked for.
    pub ask: RunAsk,
    /// The generator's address: its datagrams come from here.
    pub peer: IpAddr,
    /// The address at which it reached us: its datagrams go here.
    pub local: IpAddr,
    /// Whether both run on one machine, so that their clocks are the same.
    pub same_host: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The generator said so, and what it sent.
    Signalled(RunEnd),
    /// It did not: the connection was lost, or it was silent beyond its time. The run was
    /// ended when nothing arrived any more; what was sent is not known.
    NotSignalled {
        /// What happened.
        reason: String,
    },
}

/// How a server behaves on the control channel.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// Whether generators of another build will do.
    pub any_build: bool,
    /// Its own build.
    pub build: Build,
    /// The most generators connected at once; further ones are refused.
    pub peers_max: usize,
    /// The highest rate consented to, for each generator; none means any, saturation included.
    pub datagrams_per_s_max: Option<f64>,
    /// The longest flood consented to, its warm-up included.
    pub duration_max: Duration,
    /// How soon a generator must introduce itself.
    pub hello_within: Duration,
    /// How long it may then think.
    pub ask_within: Duration,
    /// How soon it must start after consent.
    pub start_within: Duration,
    /// How much later than its duration it may say that it ended.
    pub end_grace: Duration,
    /// After a signalled end (and after the warm-up), everything has arrived when nothing
    /// did for so long.
    pub drained_after: Duration,
    /// The same after the warm-up of a run whose datagrams have no stamp: a late one would
    /// be counted as the run's, so it is waited for longer.
    pub unstamped_drained_after: Duration,
    /// The same after a signalled end while datagrams are missing that no counter explains: they
    /// may lie in a queue that cannot be seen, before a thread that was given no core.
    pub missing_given_up_after: Duration,
    /// After the loss of the connection, the flood is over when nothing arrived for so
    /// long.
    pub quiet_after_loss: Duration,
    /// The longest wait for any of these, and for the sockets of the server to be empty. A run is
    /// cut short then ([`Receiver::cut_short`]).
    pub quiet_within: Duration,
}

impl Default for ControlSettings {
    fn default() -> Self {
        Self {
            any_build: false,
            build: Build::own().clone(),
            peers_max: 16,
            datagrams_per_s_max: None,
            duration_max: Duration::from_secs(3600),
            hello_within: Duration::from_secs(5),
            ask_within: Duration::from_secs(60),
            start_within: Duration::from_secs(10),
            end_grace: Duration::from_secs(10),
            drained_after: Duration::from_millis(20),
            unstamped_drained_after: Duration::from_millis(100),
            missing_given_up_after: Duration::from_millis(250),
            quiet_after_loss: Duration::from_millis(500),
            quiet_within: Duration::from_secs(5),
        }
    }
}

struct Peer {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    receiver: Arc<dyn Receiver>,
    settings: ControlSettings,
    stopping: AtomicBool,
    peers: Mutex<HashMap<u64, Peer>>,
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// Listens for generators. Dropping it ends all their connections, and so their floods.
pub struct ControlServer {
    local: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Listens on an address (port 0: any free one) on behalf of a receiver.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn bind(
        address: SocketAddr,
        settings: ControlSettings,
        receiver: Arc<dyn Receiver>,
    ) -> Result<Self, ControlError> {
        let failed = |source: io::Error| ControlError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            receiver,
            settings,
            stopping: AtomicBool::new(false),
            peers: Mutex::default(),
        });
        let acceptor = thread::Builder::new().name("weir control".into()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Self { local, shared, acceptor: Some(acceptor.map_err(failed)?) })
    }

    /// The address it listens on.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Generators connected now.
    pub fn peers(&self) -> usize {
        self.shared.peers().values().filter(|peer| !is_over(peer)).count()
    }
}

fn is_over(peer: &Peer) -> bool {
    peer.thread.as_ref().is_some_and(JoinHandle::is_finished)
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        let Some(acceptor) = self.acceptor.take() else { return };
        acceptor.thread().unpark();
        // A connection of our own ends its wait in accept.
        let wake = match self.local.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let woken = TcpStream::connect_timeout(
            &SocketAddr::new(wake, self.local.port()),
            Duration::from_secs(1),
        );
        if woken.is_ok() || acceptor.is_finished() {
            // A panic in there was reported by its own thread.
            let _ = acceptor.join();
        }
        let peers: Vec<Peer> = self.shared.peers().drain().map(|(_, peer)| peer).collect();
        for peer in &peers {
            peer.handle.close();
        }
        for thread in peers.into_iter().filter_map(|peer| peer.thread) {
            let _ = thread.join();
        }
    }
}

/// How long to leave the listener alone after it failed (out of descriptors, mostly).
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for number in 0.. {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        let outcome = accepted.and_then(|(stream, from)| admit(number, stream, from, shared));
        if let Err(error) = outcome {
            shared.receiver.note(&format!("a generator could not connect: {error}"));
            thread::park_timeout(ACCEPT_AGAIN_AFTER);
        }
    }
}

fn admit(number: u64, stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let mut wire = Wire::new(stream)?;
    let handle = wire.handle()?;
    let connected = {
        let mut peers = shared.peers();
        peers.retain(|_, peer| !is_over(peer));
        peers.len()
    };
    // Whoever is refused is told without the lock: it may be slow to listen.
    let most = shared.settings.peers_max;
    if connected >= most {
        let reason = format!("{most} generators are connected already; wait for one to end");
        shared.receiver.note(&format!("{from} refused: {reason}"));
        // If it does not hear this, it hears the connection close.
        let _ = wire.write(&Message::Refuse { reason });
        return Ok(());
    }
    let thread = thread::Builder::new().name("weir control".into()).spawn({
        let shared = Arc::clone(shared);
        move || {
            let mut conversation = Conversation { wire, shared };
            if let Err(error) = conversation.hold() {
                conversation.shared.receiver.note(&error.to_string());
            }
        }
    })?;
    // This thread alone adds to the list, and whoever empties it has waited for its end.
    shared.peers().insert(number, Peer { handle, thread: Some(thread) });
    Ok(())
}

struct Conversation {
    wire: Wire,
    shared: Arc<Shared>,
}

impl Drop for Conversation {
    /// The list of peers holds the connection too, so it must be closed in so many words;
    /// here, so that a receiver that panics cannot leave a generator flooding.
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl Conversation {
    fn hold(&mut self) -> Result<(), ControlError> {
        let outcome = self.introduce().and_then(|same_host| {
            loop {
                match self.wire.read("ask", Some(self.shared.settings.ask_within)) {
                    Ok(Message::Ask(ask)) => self.run(ask, same_host)?,
                    Ok(other) => return Err(self.unexpected(&other, "ask")),
                    Err(ControlError::Closed { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        });
        if let Err(error @ (ControlError::Line { .. } | ControlError::Unexpected { .. })) = &outcome
        {
            // It may hear what it did wrong; the connection closes in any case.
            let _ = self.wire.write(&Message::Refuse { reason: error.to_string() });
        }
        outcome
    }

    fn refuse(&mut self, reason: String) -> Result<(), ControlError> {
        self.shared.receiver.note(&format!("{} refused: {reason}", self.wire.peer));
        self.wire.write(&Message::Refuse { reason })
    }

    fn unexpected(&self, got: &Message, wanted: &'static str) -> ControlError {
        ControlError::Unexpected { peer: self.wire.peer, got: got.name(), wanted }
    }

    /// Exchanges hellos; says whether the generator is on the same machine.
    fn introduce(&mut self) -> Result<bool, ControlError> {
        let settings = &self.shared.settings;
        let hello = match self.wire.read("hello", Some(settings.hello_within))? {
            Message::Hello(hello) => hello,
            other => return Err(self.unexpected(&other, "hello")),
        };
        let (ours, theirs) = (&settings.build, &hello.build);
        let reason = if hello.protocol != PROTOCOL {
            Some(format!("it speaks protocol {}, this server {PROTOCOL}", hello.protocol))
        } else if !settings.any_build && !theirs.is_same_as(ours) {
            Some(format!(
                "this server is weir {ours}, the generator weir {theirs}: results of different \
                 builds are not compared; run the same file on both sides, or give --any-build \
                 to both"
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            self.refuse(reason.clone())?;
            return Err(ControlError::OtherBuild(reason));
        }
        let (build, host) = (settings.build.clone(), sys::host_id());
        let same_host =
            (host.is_some() && host == hello.host) || self.wire.peer.ip() == self.wire.local.ip();
        self.wire.write(&Message::Hello(Hello { protocol: PROTOCOL, build, host }))?;
        Ok(same_host)
    }

    /// One run from its ask to its report.
    fn run(&mut self, ask: RunAsk, same_host: bool) -> Result<(), ControlError> {
        let receiver = Arc::clone(&self.shared.receiver);
        if let Err(reason) = self.permits(&ask) {
            return self.refuse(reason);
        }
        let run = AgreedRun {
            ask,
            peer: self.wire.peer.ip().to_canonical(),
            local: self.wire.local.ip().to_canonical(),
            same_host,
        };
        let ports = match receiver.begin(&run) {
            Ok(ports) => ports,
            Err(reason) => return self.refuse(reason),
        };
        match self.until_end(&run, ports) {
            Ok(end) => {
                let sent = end.sent_per_flow.iter().sum();
                self.wait_until_drained(
                    &run,
                    "run",
                    self.shared.settings.drained_after,
                    Some(sent),
                );
                let report = receiver.end(&run, &Ending::Signalled(end));
                self.wire.write(&Message::Report { run: run.ask.run, report })
            }
            Err(error) => {
                self.wait_until_drained(&run, "run", self.shared.settings.quiet_after_loss, None);
                let reason = error.to_string();
                receiver.end(&run, &Ending::NotSignalled { reason });
                Err(error)
            }
        }
    }

    fn permits(&self, ask: &RunAsk) -> Result<(), String> {
        ask.check()?;
        let settings = &self.shared.settings;
        let longest_ms = settings.duration_max.as_millis() as u64;
        if ask.lasts_ms() > longest_ms {
            return Err(format!(
                "{} ms of warm-up and run are asked for, at most {longest_ms} ms are permitted; \
                 lower --time, or with a number of datagrams or bytes --max-time",
                ask.lasts_ms()
            ));
        }
        match (ask.datagrams_per_s, settings.datagrams_per_s_max) {
            (Some(rate), Some(most)) if rate > most => Err(format!(
                "{rate} datagrams/s are asked for, at most {most} are permitted; lower --pps"
            )),
            (None, Some(most)) => {
                Err(format!("at most {most} datagrams/s are permitted; give a rate, --pps"))
            }
            _ => Ok(()),
        }
    }

    fn until_end(&mut self, run: &AgreedRun, ports: Vec<u16>) -> Result<RunEnd, ControlError> {
        let settings = self.shared.settings.clone();
        let id = run.ask.run;
        self.wire.write(&Message::Consent(Consent {
            run: id,
            address: run.local,
            ports,
            datagrams_per_s_max: settings.datagrams_per_s_max,
            duration_ms_max: settings.duration_max.as_millis() as u64,
            expires_ms: settings.start_within.as_millis() as u64,
        }))?;
        let warm_up = Duration::from_millis(run.ask.warm_up_ms);
        match self.wire.read("start", Some(settings.start_within + warm_up))? {
            Message::Start { run } if run == id => {}
            other => return Err(self.unexpected(&other, "start")),
        }
        if run.ask.warm_up_run.is_some() {
            let quiet = match run.ask.size_bytes < STAMP_BYTES {
                true => settings.unstamped_drained_after,
                false => settings.drained_after,
            };
            self.wait_until_drained(run, "warm-up", quiet, None);
        }
        self.shared.receiver.start(run);
        self.wire.write(&Message::Started { run: id })?;
        let within = Duration::from_millis(run.ask.duration_ms) + settings.end_grace;
        match self.wire.read("end", Some(within))? {
            Message::End(end) if end.run == id && end.sent_per_flow.len() == run.ask.flows => {
                Ok(end)
            }
            other => Err(self.unexpected(&other, "end")),
        }
    }

    /// Waits until nothing of a run has arrived for a while, and nothing of it is known to be still
    /// to come. There is no event for that.
    ///
    /// Quiet alone is no end: a server that has no core for a while is quiet too, with datagrams
    /// in its sockets. So those must be empty. What the kernel has handed over and no thread has
    /// looked at yet is in no socket any more, but is missing in the account of what was `sent`: it
    /// is waited for longer.
    fn wait_until_drained(&self, run: &AgreedRun, phase: &str, quiet: Duration, sent: Option<u64>) {
        let Shared { receiver, settings, .. } = &*self.shared;
        let deadline = Instant::now() + settings.quiet_within;
        let step = (quiet / 8).max(Duration::from_millis(1));
        let mut outstanding = Outstanding::default();
        while Instant::now() < deadline && !self.shared.is_stopping() {
            let quiet_ns = u128::from(receiver.quiet_ns(run));
            outstanding = Outstanding::default();
            if quiet_ns >= quiet.as_nanos() {
                outstanding = receiver.outstanding(run, sent);
                let empty = outstanding.queued_bytes.is_none_or(|bytes| bytes == 0);
                let accounted = outstanding.missing.is_none_or(|missing| missing == 0)
                    || quiet_ns >= settings.missing_given_up_after.as_nanos();
                if empty && accounted {
                    return;
                }
            }
            thread::sleep(step);
        }
        if !self.shared.is_stopping() {
            receiver.cut_short(run, &still_to_come(outstanding, phase, settings.quiet_within));
        }
    }
}

/// Why a run is ended although something of it was still to come.
fn still_to_come(outstanding: Outstanding, phase: &str, waited: Duration) -> String {
    match outstanding.queued_bytes {
        Some(bytes) if bytes > 0 => format!(
            "{waited:?} after the end of the {phase}, datagrams still lie in the server's sockets \
             ({bytes} bytes of the kernel's memory): the server was given no core, or hangs"
        ),
        _ => format!("{waited:?} after the end of the {phase}, datagrams still arrived"),
    }
}
