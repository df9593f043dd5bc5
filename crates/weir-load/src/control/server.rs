//! The server's end of the control connections.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    ControlError,
    build::Build,
    consented::{Arrived, Consented},
    message::{Change, Consent, Hello, InForce, Message, PROTOCOL, Proof, RunAsk, RunEnd},
    places::{PlaceLimits, Places},
    proof::{Key, Nonces, Secret, Side, is_nonce, nonce},
    wire::{Handle, Wire},
};
use crate::{clock::now_ns, lock::lock, stamp::STAMP_BYTES, sys};

/// What the control channel needs of the server under test. Called from the threads of the
/// control connections, several at once if there are several generators.
pub trait Receiver: Send + Sync + 'static {
    /// Prepares for a run, and gives the ports that may be flooded.
    ///
    /// # Errors
    /// Why it cannot: the reason is told to the generator.
    fn begin(&self, run: &AgreedRun) -> Result<Vec<u16>, String>;

    /// Whether it answers each datagram of a run with so many bytes.
    ///
    /// # Errors
    /// Why it does not: the reason is told to the generator.
    fn answers(&self, _run: &AgreedRun, _reply_bytes: usize) -> Result<(), String> {
        Err("this server answers nothing; flood it without --reply, or start one with --echo"
            .into())
    }

    /// The warm-up is over and has arrived: what is counted from now on belongs to the run.
    fn start(&self, run: &AgreedRun);

    /// The generator has sent all of the run, or is lost.
    fn all_sent(&self, _run: &AgreedRun) {}

    /// How long nothing has arrived of a run or its warm-up, in ns.
    fn quiet_ns(&self, run: &AgreedRun) -> u64;

    /// What has arrived of a run and its warm-up, where that can be told at any time: then it is held
    /// against what was consented to.
    fn arrived(&self, _run: &AgreedRun) -> Option<Arrived> {
        None
    }

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

    /// Changes settings while the server runs, all of them or none, each by its name and value; gives all that may be
    /// changed, as they are then. Where none is named, nothing is changed.
    ///
    /// # Errors
    /// What cannot be changed so, and what can.
    fn set(&self, _changes: &[(&str, &str)]) -> Result<Vec<InForce>, String> {
        Err("this server has no settings that can be changed while it runs".into())
    }

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
    /// Whether both run on one machine under one system, so that their clocks are the same.
    pub same_host: bool,
}

impl AgreedRun {
    /// Whether one-way latencies can be told: both have one clock, or it is known how the two stand to one another.
    pub fn tells_latency(&self) -> bool {
        self.same_host || self.ask.clock_offset_ns.is_some()
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The generator said so, and what it sent.
    Signalled(RunEnd),
    /// It did not: the connection was lost, or it was silent beyond its time, and the run was
    /// ended when nothing arrived any more; or the consent was revoked, and it was ended at once.
    /// What was sent is not known.
    NotSignalled {
        /// What happened.
        reason: String,
    },
    /// The server was stopped in the middle of it, which is no fault of the generator's. What was sent is not known.
    Stopped,
}

/// How a server behaves on the control channel.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// Whether generators of another build will do.
    pub any_build: bool,
    /// Its own build.
    pub build: Build,
    /// The key that generators must have, if there is one.
    pub key: Option<Key>,
    /// The most generators connected at once. A further one takes the place of the one that has been
    /// idle longest, if one has for a while, or is refused.
    pub peers_max: usize,
    /// The same of one address (of IPv6: of one network of 64 bits).
    pub peers_per_address_max: usize,
    /// The most connections that have not introduced themselves. For a further one the oldest is
    /// closed, of the address that has the most.
    pub strangers_max: usize,
    /// The same of one address.
    pub strangers_per_address_max: usize,
    /// How long a generator may be idle and keep its place if others want it.
    pub idle_grace: Duration,
    /// The most datagrams per second consented to, over all generators; none means any, saturation
    /// included.
    pub datagrams_per_s_max: Option<f64>,
    /// The most bits of payload per second, in the same way.
    pub bits_per_s_max: Option<f64>,
    /// The longest flood consented to, its warm-up included.
    pub duration_max: Duration,
    /// How soon a generator must have introduced itself.
    pub hello_within: Duration,
    /// How long it may then think.
    pub ask_within: Duration,
    /// How soon it must start after consent.
    pub start_within: Duration,
    /// How often consent is renewed during a run.
    pub renew_every: Duration,
    /// How often what arrived is held against what was consented to.
    pub look_every: Duration,
    /// A generator that has answered no renewal for so long is gone.
    pub alive_within: Duration,
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
            key: None,
            peers_max: 16,
            peers_per_address_max: 8,
            strangers_max: 16,
            strangers_per_address_max: 8,
            idle_grace: Duration::from_secs(2),
            datagrams_per_s_max: None,
            bits_per_s_max: None,
            duration_max: Duration::from_secs(3600),
            hello_within: Duration::from_secs(3),
            ask_within: Duration::from_secs(60),
            start_within: Duration::from_secs(10),
            renew_every: Duration::from_millis(500),
            look_every: Duration::from_millis(100),
            alive_within: Duration::from_secs(10),
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
    handle: Arc<Handle>,
    /// Set when its conversation has ended.
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct ControlShared {
    receiver: Arc<dyn Receiver>,
    settings: ControlSettings,
    stopping: AtomicBool,
    peers: Mutex<HashMap<u64, Peer>>,
    /// Notified, with `peers`, when a conversation has ended, and when the server stops.
    one_ended: Condvar,
    places: Mutex<Places>,
    /// What was consented to and is not over, by the number of the connection.
    granted: Mutex<HashMap<u64, Rates>>,
    notes: Mutex<Notes>,
}

/// Datagrams and bits of payload a second.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    datagrams_per_s: f64,
    bits_per_s: f64,
}

/// How many notes strangers have caused in the current second.
#[derive(Debug)]
struct Notes {
    since: Instant,
    reported: u32,
    unreported: u64,
}

/// Notes of strangers in a second: whoever connects could fill a disk otherwise.
const STRANGERS_NOTES_PER_S: u32 = 5;

impl ControlShared {
    fn peers(&self) -> MutexGuard<'_, HashMap<u64, Peer>> {
        lock(&self.peers)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notes something that a stranger did, or how much was not noted.
    fn note_of_stranger(&self, text: &str) {
        let mut notes = lock(&self.notes);
        if notes.since.elapsed() >= Duration::from_secs(1) {
            *notes = Notes { since: Instant::now(), reported: 0, unreported: notes.unreported };
        }
        if notes.reported == STRANGERS_NOTES_PER_S {
            notes.unreported += 1;
            return;
        }
        notes.reported += 1;
        let unreported = std::mem::take(&mut notes.unreported);
        drop(notes);
        if unreported > 0 {
            self.receiver.note(&format!("{unreported} more connections were closed or refused"));
        }
        self.receiver.note(text);
    }

    /// Closes a connection whose place was given to another. It may hear why.
    fn evict(&self, number: u64) {
        // Nobody else waits while it is told.
        let handle = self.peers().get(&number).map(|peer| Arc::clone(&peer.handle));
        if let Some(handle) = handle {
            let reason = "its place was given to another: there were too many connections".into();
            let _ = handle.write(&Message::Refuse { reason });
            handle.close();
        }
    }

    /// Waits until fewer conversations than these are open, or the server stops.
    fn wait_for_fewer_than(&self, most: usize) {
        let mut peers = self.peers();
        peers.retain(|_, peer| !is_over(peer));
        let open = |peers: &mut HashMap<u64, Peer>| {
            peers.values().filter(|peer| !peer.ended.load(Ordering::Acquire)).count()
        };
        let must_wait = |peers: &mut _| open(peers) >= most && !self.is_stopping();
        drop(self.one_ended.wait_while(peers, must_wait));
    }
}

/// Listens for generators. Dropping it ends all their connections, and so their floods.
pub struct ControlServer {
    local: SocketAddr,
    shared: Arc<ControlShared>,
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
        let places = Places::new(PlaceLimits {
            strangers: settings.strangers_max,
            strangers_per_address: settings.strangers_per_address_max,
            generators: settings.peers_max,
            generators_per_address: settings.peers_per_address_max,
            idle_grace: settings.idle_grace,
        });
        let shared = Arc::new(ControlShared {
            receiver,
            settings,
            stopping: AtomicBool::new(false),
            peers: Mutex::default(),
            one_ended: Condvar::new(),
            places: Mutex::new(places),
            granted: Mutex::default(),
            notes: Mutex::new(Notes { since: Instant::now(), reported: 0, unreported: 0 }),
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

    /// Generators connected now: those that have introduced themselves.
    pub fn peers(&self) -> usize {
        lock(&self.shared.places).generators()
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
        // With the lock: it may be about to wait.
        let peers = self.shared.peers();
        self.shared.one_ended.notify_all();
        drop(peers);
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

/// Whether whoever has introduced itself from there may change settings: without a key anybody can who has the same
/// program.
fn may_set(from: IpAddr, is_keyed: bool) -> bool {
    is_keyed || from.to_canonical().is_loopback()
}

/// How long to leave the listener alone after it failed (out of descriptors, mostly).
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

fn accept(listener: &TcpListener, shared: &Arc<ControlShared>) {
    for number in 0.. {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        let outcome = accepted.and_then(|(stream, from)| admit(number, stream, from, shared));
        if let Err(error) = outcome {
            shared.note_of_stranger(&format!("a generator could not connect: {error}"));
            thread::park_timeout(ACCEPT_AGAIN_AFTER);
        }
    }
}

fn admit(
    number: u64,
    stream: TcpStream,
    from: SocketAddr,
    shared: &Arc<ControlShared>,
) -> io::Result<()> {
    let wire = Wire::new(stream)?;
    let handle = Arc::new(wire.handle()?);
    let settings = &shared.settings;
    // Threads are bounded. Above the places there are only those that must leave and need a moment for it: whoever
    // comes meanwhile, and may be a generator, waits for one of them.
    shared.wait_for_fewer_than(settings.peers_max + 2 * settings.strangers_max.max(1));
    if shared.is_stopping() {
        return Ok(());
    }
    // A statement of its own, so that nobody waits for the places while it is told.
    let leaves = lock(&shared.places).arrive(number, from.ip());
    leaves.into_iter().for_each(|number| shared.evict(number));
    // Its place is given back with it, also where there is no thread to be had.
    let ended = Arc::<AtomicBool>::default();
    let conversation = Conversation {
        number,
        wire,
        shared: Arc::clone(shared),
        known: false,
        ended: Arc::clone(&ended),
    };
    let thread = thread::Builder::new().name("weir control".into()).spawn(move || {
        let mut conversation = conversation;
        if let Err(error) = conversation.hold() {
            let shared = &conversation.shared;
            match conversation.known {
                true => shared.receiver.note(&error.to_string()),
                false => shared.note_of_stranger(&error.to_string()),
            }
        }
    })?;
    // This thread alone adds to the list, and whoever empties it has waited for its end.
    shared.peers().insert(number, Peer { handle, ended, thread: Some(thread) });
    Ok(())
}

struct Conversation {
    number: u64,
    wire: Wire,
    shared: Arc<ControlShared>,
    /// Whether it has introduced itself.
    known: bool,
    /// Set at its end.
    ended: Arc<AtomicBool>,
}

impl Drop for Conversation {
    /// The list of peers holds the connection too, so it must be closed in so many words;
    /// here, so that a receiver that panics cannot leave a generator flooding.
    fn drop(&mut self) {
        self.wire.close();
        lock(&self.shared.granted).remove(&self.number);
        lock(&self.shared.places).leave(self.number);
        self.ended.store(true, Ordering::Release);
        // With the lock: whoever waits for it may just be looking.
        let peers = self.shared.peers();
        self.shared.one_ended.notify_all();
        drop(peers);
    }
}

impl Conversation {
    fn hold(&mut self) -> Result<(), ControlError> {
        let outcome = self.introduce().and_then(|same_host| {
            loop {
                match self.wire.read("ask", Some(self.shared.settings.ask_within)) {
                    Ok(Message::Ask(ask)) => {
                        let outcome = self.run(ask, same_host);
                        lock(&self.shared.granted).remove(&self.number);
                        lock(&self.shared.places).floods(self.number, false, Instant::now());
                        outcome?;
                    }
                    Ok(Message::Set { changes }) => self.set(&changes)?,
                    // The answer to a renewal that crossed the generator's end.
                    Ok(Message::Alive { .. }) => {}
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

    /// Changes settings. A refusal ends nothing: whoever asked may ask again.
    fn set(&mut self, changes: &[Change]) -> Result<(), ControlError> {
        let outcome = match may_set(self.wire.peer.ip(), self.shared.settings.key.is_some()) {
            false => Err("only a client on the server's own machine, or one that has its key, may change its settings: \
                          start it with --key-file"
                .into()),
            true => Change::check(changes).and_then(|()| {
                let changes: Vec<(&str, &str)> =
                    changes.iter().map(|of| (of.name.as_str(), of.value.as_str())).collect();
                self.shared.receiver.set(&changes)
            }),
        };
        self.wire.write(&match outcome {
            Ok(settings) => Message::InForce { settings },
            Err(reason) => Message::Refuse { reason },
        })
    }

    fn refuse(&mut self, reason: String) -> Result<(), ControlError> {
        let note = format!("{} refused: {reason}", self.wire.peer);
        match self.known {
            true => self.shared.receiver.note(&note),
            false => self.shared.note_of_stranger(&note),
        }
        self.wire.write(&Message::Refuse { reason })
    }

    fn unexpected(&self, got: &Message, wanted: &'static str) -> ControlError {
        ControlError::Unexpected { peer: self.wire.peer, got: got.name(), wanted }
    }

    /// Exchanges hellos and proofs, and takes a place; says whether the generator is on the same
    /// machine. A stranger hears nothing that follows from the key or the build but that it has
    /// another one.
    fn introduce(&mut self) -> Result<bool, ControlError> {
        let settings = self.shared.settings.clone();
        let deadline = Instant::now() + settings.hello_within;
        let left = || Some(deadline.saturating_duration_since(Instant::now()));
        let hello = match self.wire.read("hello", left())? {
            Message::Hello(hello) => hello,
            other => return Err(self.unexpected(&other, "hello")),
        };
        let refuse = |conversation: &mut Self, reason: &str, error: fn(String) -> ControlError| {
            conversation.refuse(reason.to_owned())?;
            Err(error(format!("{}: {reason}", conversation.wire.peer)))
        };
        if hello.protocol != PROTOCOL {
            let reason = format!(
                "it speaks protocol {}, this server {PROTOCOL}; run the same weir on both sides",
                hello.protocol
            );
            return refuse(self, &reason, ControlError::OtherBuild);
        }
        let peer = self.wire.peer;
        if !is_nonce(&hello.nonce) {
            return refuse(self, "its nonce is not 32 hexadecimal digits", ControlError::Key);
        }
        let own = nonce().map_err(|source| ControlError::Io { peer, source })?;
        let keyed = settings.key.is_some();
        self.wire.write(&Message::Hello(Hello {
            protocol: PROTOCOL,
            nonce: own.clone(),
            keyed,
        }))?;
        let nonces = Nonces { generator: hello.nonce, server: own };
        let proof = match self.wire.read("proof", left())? {
            Message::Proof(proof) => proof,
            other => return Err(self.unexpected(&other, "proof")),
        };
        let key = settings.key.as_ref().map(Secret::Key);
        let build = settings.build.fingerprint.as_deref().map(Secret::Build);
        let proves =
            |secret, said: &Option<String>| nonces.proves(Side::Generator, secret, said.as_deref());
        if key.is_some_and(|key| !proves(key, &proof.key)) {
            let reason =
                "the generator does not have this server's key; give it the same --key-file";
            return refuse(self, reason, ControlError::Key);
        }
        if !settings.any_build && !build.is_some_and(|build| proves(build, &proof.build)) {
            let reason = "the generator is another build than this server: results of different \
                          builds are not compared; run the same file on both sides, or give \
                          --any-build to both";
            return refuse(self, reason, ControlError::OtherBuild);
        }
        let placed = lock(&self.shared.places).introduce(self.number, Instant::now());
        match placed {
            Ok(leaves) => leaves.into_iter().for_each(|number| self.shared.evict(number)),
            Err(reason) => {
                self.refuse(reason.clone())?;
                return Err(ControlError::Refused { peer, reason });
            }
        }
        self.known = true;
        self.wire.trust();
        let prove = |secret| nonces.proof(Side::Server, secret);
        let host = sys::clock_id();
        let same_host =
            is_same_host(host.as_deref(), proof.host.as_deref(), self.wire.peer, self.wire.local);
        self.wire.write(&Message::Proof(Proof {
            key: key.map(prove),
            build: build.map(prove),
            host,
        }))?;
        Ok(same_host)
    }

    /// One run from its ask to its report.
    fn run(&mut self, ask: RunAsk, same_host: bool) -> Result<(), ControlError> {
        let receiver = Arc::clone(&self.shared.receiver);
        if let Err(reason) = self.permits(&ask).and_then(|()| self.grant(&ask)) {
            return self.refuse(reason);
        }
        lock(&self.shared.places).floods(self.number, true, Instant::now());
        let run = AgreedRun {
            ask,
            peer: self.wire.peer.ip().to_canonical(),
            local: self.wire.local.ip().to_canonical(),
            same_host,
        };
        let ports = match run
            .ask
            .reply_bytes
            .map_or(Ok(()), |reply_bytes| receiver.answers(&run, reply_bytes))
            .and_then(|()| receiver.begin(&run))
        {
            Ok(ports) => ports,
            Err(reason) => return self.refuse(reason),
        };
        let ended = self.until_end(&run, ports);
        receiver.all_sent(&run);
        match ended {
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
            Err(_) if self.shared.is_stopping() => {
                receiver.end(&run, &Ending::Stopped);
                Ok(())
            }
            Err(error) => {
                // Who sends what nobody agreed to may never be quiet.
                if !matches!(error, ControlError::Exceeded { .. }) {
                    let quiet = self.shared.settings.quiet_after_loss;
                    self.wait_until_drained(&run, "run", quiet, None);
                }
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
                "{} ms of warm-up and run requested, but at most {longest_ms} ms permitted; \
                 lower --time, or with a number of datagrams or bytes --max-time",
                ask.lasts_ms()
            ));
        }
        let limits = [
            (ask.datagrams_per_s, settings.datagrams_per_s_max, "datagrams/s", "--pps"),
            (
                ask.bits_per_s(),
                settings.bits_per_s_max,
                "bits of payload/s",
                "--bitrate, --pps or --length",
            ),
        ];
        for (asked, most, what, flag) in limits {
            match (asked, most) {
                (Some(rate), Some(most)) if rate > most => {
                    return Err(format!(
                        "{rate} {what} requested, but at most {most} permitted; lower {flag}"
                    ));
                }
                (None, Some(most)) => {
                    let flag = flag.split(',').next().unwrap_or(flag);
                    return Err(format!(
                        "at most {most} {what} are permitted; give a rate, {flag}"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes the rates of a run from what all generators together may send.
    fn grant(&self, ask: &RunAsk) -> Result<(), String> {
        let settings = &self.shared.settings;
        let mut granted = lock(&self.shared.granted);
        let asked = Rates {
            datagrams_per_s: ask.datagrams_per_s.unwrap_or(0.0),
            bits_per_s: ask.bits_per_s().unwrap_or(0.0),
        };
        let of_others = |rate: fn(&Rates) -> f64| granted.values().map(rate).sum::<f64>();
        let limits = [
            (
                asked.datagrams_per_s,
                of_others(|rates| rates.datagrams_per_s),
                settings.datagrams_per_s_max,
                "datagrams/s",
            ),
            (
                asked.bits_per_s,
                of_others(|rates| rates.bits_per_s),
                settings.bits_per_s_max,
                "bits of payload/s",
            ),
        ];
        for (rate, others, most, what) in limits {
            if let Some(most) = most
                && rate + others > most
            {
                return Err(format!(
                    "{rate} {what} requested, but of the {most} permitted to all generators together, \
                     others have {others} now; request less, or wait for their end"
                ));
            }
        }
        granted.insert(self.number, asked);
        Ok(())
    }

    fn until_end(&mut self, run: &AgreedRun, ports: Vec<u16>) -> Result<RunEnd, ControlError> {
        let settings = self.shared.settings.clone();
        let id = run.ask.run;
        let most = |asked: Option<f64>, limit: Option<f64>| {
            asked.into_iter().chain(limit).reduce(f64::min)
        };
        let datagrams_per_s_max = most(run.ask.datagrams_per_s, settings.datagrams_per_s_max);
        let bits_per_s_max = most(run.ask.bits_per_s(), settings.bits_per_s_max);
        self.wire.write(&Message::Consent(Consent {
            run: id,
            address: run.local,
            ports,
            datagrams_per_s_max,
            bits_per_s_max,
            duration_ms_max: settings.duration_max.as_millis() as u64,
            expires_ms: settings.start_within.as_millis() as u64,
            reply_bytes: run.ask.reply_bytes,
        }))?;
        let size_bytes = run.ask.size_bytes;
        let consented = Consented::new(datagrams_per_s_max, size_bytes, bits_per_s_max, now_ns());
        let mut watch = RunWatch { consented, renew_at: Instant::now(), alive_at: Instant::now() };
        let warm_up = Duration::from_millis(run.ask.warm_up_ms);
        match self.read_renewing("start", settings.start_within + warm_up, run, &mut watch)? {
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
        watch.alive_at = Instant::now();
        let within = Duration::from_millis(run.ask.duration_ms) + settings.end_grace;
        match self.read_renewing("end", within, run, &mut watch)? {
            Message::End(end) if end.run == id && end.sent_per_flow.len() == run.ask.flows => {
                Ok(end)
            }
            other => Err(self.unexpected(&other, "end")),
        }
    }

    /// The next message that is no sign of life. Until it comes, consent is renewed, and revoked
    /// where more arrives than was consented to.
    fn read_renewing(
        &mut self,
        wanted: &'static str,
        within: Duration,
        run: &AgreedRun,
        watch: &mut RunWatch,
    ) -> Result<Message, ControlError> {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings;
        let (peer, id) = (self.wire.peer, run.ask.run);
        let deadline = Instant::now() + within;
        loop {
            let exceeded = shared
                .receiver
                .arrived(run)
                .and_then(|arrived| watch.consented.exceeded(arrived, now_ns()));
            if let Some(reason) = exceeded {
                let _ = self.wire.write(&Message::Revoke { run: id, reason: reason.clone() });
                return Err(ControlError::Exceeded { peer, reason });
            }
            let now = Instant::now();
            if now >= watch.renew_at {
                self.wire.write(&Message::Renew { run: id })?;
                watch.renew_at = now + settings.renew_every;
            }
            let left = deadline.saturating_duration_since(now).min(settings.look_every);
            match self.wire.read(wanted, Some(left)) {
                Ok(Message::Alive { .. }) => watch.alive_at = Instant::now(),
                Ok(message) => return Ok(message),
                Err(ControlError::Silent { .. }) if now >= deadline => {
                    return Err(ControlError::Silent { peer, wanted, within });
                }
                // It had all the time since the look before to be read.
                Err(ControlError::Silent { .. })
                    if now.saturating_duration_since(watch.alive_at) > settings.alive_within =>
                {
                    let (wanted, within) = ("sign of life", settings.alive_within);
                    return Err(ControlError::Silent { peer, wanted, within });
                }
                Err(ControlError::Silent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until nothing of a run has arrived for a while, and nothing of it is known to be still
    /// to come. There is no event for that.
    ///
    /// Quiet alone is no end: a server that has no core for a while is quiet too, with datagrams
    /// in its sockets. So those must be empty. What the kernel has handed over and no thread has
    /// looked at yet is in no socket any more, but is missing in the account of what was `sent`: it
    /// is waited for longer. And it counts from now: what was sent last is only on its way.
    fn wait_until_drained(&self, run: &AgreedRun, phase: &str, quiet: Duration, sent: Option<u64>) {
        let ControlShared { receiver, settings, .. } = &*self.shared;
        let since = Instant::now();
        let deadline = since + settings.quiet_within;
        let step = (quiet / 8).max(Duration::from_millis(1));
        let mut outstanding = Outstanding::default();
        while !self.shared.is_stopping() {
            // What is told at the end was looked at after it, however late this thread is.
            let is_over = Instant::now() >= deadline;
            let quiet_ns = u128::from(receiver.quiet_ns(run)).min(since.elapsed().as_nanos());
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
            if is_over {
                break;
            }
            thread::sleep(step);
        }
        if !self.shared.is_stopping() {
            receiver.cut_short(run, &still_to_come(outstanding, phase, settings.quiet_within));
        }
    }
}

/// What the server looks at while a run is on.
struct RunWatch {
    consented: Consented,
    renew_at: Instant,
    /// When the generator last gave a sign.
    alive_at: Instant,
}

/// Whether both sides run on one machine under one system, so that their clocks are the same. Where both are without an
/// identity it is told by their addresses. Where one has it and the other has not, they are different systems, even at
/// one address (a virtual machine, a tunnel, Wine), and each has a clock of its own.
pub(super) fn is_same_host(
    own: Option<&str>,
    theirs: Option<&str>,
    peer: SocketAddr,
    local: SocketAddr,
) -> bool {
    own == theirs && (own.is_some() || peer.ip() == local.ip())
}

/// Why a run is ended although something of it was still to come.
fn still_to_come(outstanding: Outstanding, phase: &str, waited: Duration) -> String {
    match outstanding.queued_bytes {
        Some(bytes) if bytes > 0 => format!(
            "{waited:?} after the end of the {phase}, datagrams still wait in the server's sockets ({bytes} bytes of \
             the kernel's memory): the server got no CPU time, or hangs"
        ),
        _ => format!("{waited:?} after the end of the {phase}, datagrams still arrived"),
    }
}

#[cfg(test)]
mod tests {
    use super::may_set;

    #[test]
    fn settings_are_changed_from_the_same_machine_or_with_the_key() {
        for (from, without, with) in [
            ("127.0.0.1", true, true),
            ("::1", true, true),
            ("::ffff:127.0.0.1", true, true),
            ("192.0.2.1", false, true),
            ("2001:db8::1", false, true),
        ] {
            let from = from.parse().expect("an address");
            assert_eq!((may_set(from, false), may_set(from, true)), (without, with), "{from}");
        }
    }
}
