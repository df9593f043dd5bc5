//! The generator's end of a control connection.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    ControlError, HELLO_OF_SERVER,
    build::Build,
    message::{Change, Consent, Hello, InForce, Message, PROTOCOL, Proof, RunAsk, RunEnd},
    proof::{Key, Nonces, Secret, Side, nonce},
    wire::{Handle, Wire},
};
use crate::{
    clock::now_ns,
    lease::{LEASE_NS, Lease},
    stop::{Stop, StopReason},
    sys,
};

/// How a generator behaves on the control channel.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Whether a server of another build will do.
    pub any_build: bool,
    /// Its own build.
    pub build: Build,
    /// The key that it shares with the server, if they share one.
    pub key: Option<Key>,
    /// The longest wait for a connection and for any answer.
    pub answer_within: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            any_build: false,
            build: Build::own().clone(),
            key: None,
            answer_within: Duration::from_secs(10),
        }
    }
}

/// Messages that may lie between the reading thread and the flood. More than the protocol
/// ever has outstanding: a server that talks out of turn blocks itself, not us.
const UNREAD_MAX: usize = 16;

/// How often the reading thread looks whether the lease still holds.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A control connection. A thread of its own reads it, so that its loss raises the stop
/// flag at once, while the flood looks at nothing but that flag and the lease that it renews.
pub struct ControlClient {
    handle: Handle,
    peer: SocketAddr,
    incoming: mpsc::Receiver<Result<Message, ControlError>>,
    reader: Option<JoinHandle<()>>,
    answer_within: Duration,
    lease: Arc<Lease>,
}

impl ControlClient {
    /// Connects and compares builds. From now on the loss of the connection raises `stop`.
    ///
    /// # Errors
    /// If there is no server, or one of another build, or one that refuses.
    pub fn connect(
        address: SocketAddr,
        settings: &ClientSettings,
        stop: Arc<Stop>,
    ) -> Result<Self, ControlError> {
        let within = settings.answer_within;
        let stream = TcpStream::connect_timeout(&address, within)
            .map_err(|source| ControlError::Connect { address, source })?;
        let failed = |source| ControlError::Io { peer: address, source };
        let mut wire = Wire::new(stream).map_err(failed)?;
        let handle = wire.handle().map_err(failed)?;
        let peer = wire.peer;
        introduce(&mut wire, settings)?;
        wire.trust();

        let (sender, incoming) = mpsc::sync_channel(UNREAD_MAX);
        let lease = Arc::<Lease>::default();
        let reader = thread::Builder::new().name("weir control".into()).spawn({
            let lease = Arc::clone(&lease);
            move || read_on(wire, &sender, &stop, &lease)
        });
        let reader = Some(reader.map_err(failed)?);
        Ok(Self { handle, peer, incoming, reader, answer_within: within, lease })
    }

    /// What the server renews while a run is on.
    pub fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// The server's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Asks for a flood of `target` and `ports`. With no ports given, those that the
    /// server names are meant.
    ///
    /// # Errors
    /// If the server refuses, or its consent does not cover what is asked for.
    pub fn ask(
        &self,
        ask: &RunAsk,
        target: IpAddr,
        ports: &[u16],
    ) -> Result<Consent, ControlError> {
        self.tell(&Message::Ask(ask.clone()))?;
        let within = self.answer_within;
        match self.next("consent", within)? {
            Message::Consent(consent) => {
                covers(&consent, ask, self.peer, target, ports)
                    .map_err(|problem| ControlError::NotCovered { peer: self.peer, problem })?;
                Ok(consent)
            }
            other => Err(self.unexpected(&other, "consent")),
        }
    }

    /// Says that the warm-up is over, and waits until the server has noted its counters.
    ///
    /// # Errors
    /// If the server does not, or the connection is lost.
    pub fn start(&self, run: u32) -> Result<(), ControlError> {
        self.tell(&Message::Start { run })?;
        match self.next("started", self.answer_within)? {
            Message::Started { run: started } if started == run => Ok(()),
            other => Err(self.unexpected(&other, "started")),
        }
    }

    /// Says that the flood is over, and waits for the server's report.
    ///
    /// # Errors
    /// If the server sends none, or the connection is lost.
    pub fn end(&self, end: RunEnd) -> Result<serde_json::Value, ControlError> {
        let run = end.run;
        self.tell(&Message::End(end))?;
        match self.next("report", self.answer_within)? {
            Message::Report { run: of, report } if of == run => Ok(report),
            other => Err(self.unexpected(&other, "report")),
        }
    }

    /// Changes settings of the running server, all of them or none; gives all that may be changed, as they are then.
    /// With none named, only that.
    ///
    /// # Errors
    /// If the server refuses, or the connection is lost.
    pub fn set(&self, changes: Vec<Change>) -> Result<Vec<InForce>, ControlError> {
        self.tell(&Message::Set { changes })?;
        match self.next("in_force", self.answer_within)? {
            Message::InForce { settings } => Ok(settings),
            other => Err(self.unexpected(&other, "in_force")),
        }
    }

    fn tell(&self, message: &Message) -> Result<(), ControlError> {
        self.handle.write(message)
    }

    fn next(&self, wanted: &'static str, within: Duration) -> Result<Message, ControlError> {
        let peer = self.peer;
        match self.incoming.recv_timeout(within) {
            Ok(Ok(Message::Refuse { reason })) => Err(ControlError::Refused { peer, reason }),
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(ControlError::Silent { peer, wanted, within }),
            // The reading thread has ended, and its error was taken by an earlier call.
            Err(RecvTimeoutError::Disconnected) => Err(ControlError::Closed { peer }),
        }
    }

    fn unexpected(&self, got: &Message, wanted: &'static str) -> ControlError {
        ControlError::Unexpected { peer: self.peer, got: got.name(), wanted }
    }
}

impl Drop for ControlClient {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(reader) = self.reader.take() {
            // The reader may stand before a full channel: make room for it.
            while !reader.is_finished() {
                let _ = self.incoming.recv_timeout(Duration::from_millis(10));
            }
            let _ = reader.join();
        }
    }
}

/// Exchanges hellos and proofs. Of ours the server hears nothing before it has sent its nonce.
fn introduce(wire: &mut Wire, settings: &ClientSettings) -> Result<(), ControlError> {
    let (peer, within) = (wire.peer, Some(settings.answer_within));
    let unexpected = |got: &Message, wanted| match got {
        Message::Refuse { reason } => ControlError::Refused { peer, reason: reason.clone() },
        other => ControlError::Unexpected { peer, got: other.name(), wanted },
    };
    let own = nonce().map_err(|source| ControlError::Io { peer, source })?;
    let keyed = settings.key.is_some();
    wire.write(&Message::Hello(Hello { protocol: PROTOCOL, nonce: own.clone(), keyed }))?;
    let server = match wire.read(HELLO_OF_SERVER, within)? {
        Message::Hello(server) => server,
        other => return Err(unexpected(&other, HELLO_OF_SERVER)),
    };
    match (keyed, server.keyed) {
        (false, true) => {
            return Err(ControlError::Key(format!(
                "the server at {peer} asks for a key: give the one that it was started with (--key-file)"
            )));
        }
        (true, false) => {
            return Err(ControlError::Key(format!(
                "the server at {peer} has no key: start it with the same --key-file, or give none here"
            )));
        }
        _ => {}
    }
    let nonces = Nonces { generator: own, server: server.nonce };
    let build = settings.build.fingerprint.as_deref().map(Secret::Build);
    let key = settings.key.as_ref().map(Secret::Key);
    let prove = |secret| nonces.proof(Side::Generator, secret);
    wire.write(&Message::Proof(Proof {
        key: key.map(prove),
        build: build.map(prove),
        host: sys::clock_id(),
    }))?;
    let proof = match wire.read("proof", within)? {
        Message::Proof(proof) => proof,
        other => return Err(unexpected(&other, "proof")),
    };
    let proves =
        |secret, said: &Option<String>| nonces.proves(Side::Server, secret, said.as_deref());
    if key.is_some_and(|key| !proves(key, &proof.key)) {
        return Err(ControlError::Key(format!("the server at {peer} has another key")));
    }
    if !settings.any_build && !build.is_some_and(|build| proves(build, &proof.build)) {
        return Err(ControlError::OtherBuild(format!(
            "the server at {peer} is another build than this generator, weir {}; run the same \
             file on both sides, or give --any-build to both",
            settings.build
        )));
    }
    Ok(())
}

/// Reads until the connection ends, however it does, or the lease lapses.
fn read_on(
    mut wire: Wire,
    sender: &mpsc::SyncSender<Result<Message, ControlError>>,
    stop: &Stop,
    lease: &Lease,
) {
    let peer = wire.peer;
    // After a report the server may go whenever it likes.
    let mut reported = false;
    let mut started = false;
    loop {
        let began_ns = now_ns();
        let error = match wire.read("message", Some(LOOK_EVERY)) {
            Ok(message) => {
                lease.renew(now_ns());
                match message {
                    Message::Refuse { reason } if started => {
                        stop.request(StopReason::Revoked(reason.clone()));
                        ControlError::Revoked { peer, reason }
                    }
                    Message::Renew { run } => match wire.write(&Message::Alive { run }) {
                        Ok(()) => continue,
                        // It has hung up, and why may lie here unread.
                        Err(ControlError::Io { source, .. }) if hung_up(&source) => continue,
                        Err(error) => error,
                    },
                    Message::Revoke { reason, .. } => {
                        stop.request(StopReason::Revoked(reason.clone()));
                        ControlError::Revoked { peer, reason }
                    }
                    message => {
                        reported = matches!(message, Message::Report { .. });
                        started = matches!(message, Message::Started { .. });
                        match sender.send(Ok(message)) {
                            Ok(()) => continue,
                            Err(_) => return, // the client is gone
                        }
                    }
                }
            }
            // Nothing was there in all the time since the lease lapsed, or none is due.
            Err(ControlError::Silent { .. }) if lease.holds(began_ns) => continue,
            Err(ControlError::Silent { .. }) => {
                ControlError::NoSign { peer, within: Duration::from_nanos(LEASE_NS) }
            }
            Err(error) => error,
        };
        if !reported && !wire.is_closed() {
            stop.request(StopReason::ControlLost(error.to_string()));
        }
        // So that a server that is there after all knows.
        wire.close();
        // If nobody listens, the client is gone.
        let _ = sender.send(Err(error));
        return;
    }
}

/// Whether writing failed since the other end is gone: then reading ends, too, behind what it said before.
fn hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Whether a consent covers what is to be done; if not, what it does not cover.
fn covers(
    consent: &Consent,
    ask: &RunAsk,
    peer: SocketAddr,
    target: IpAddr,
    ports: &[u16],
) -> Result<(), String> {
    let (peer_ip, address) = (peer.ip().to_canonical(), consent.address.to_canonical());
    let target = target.to_canonical();
    if consent.run != ask.run {
        return Err(format!("it is for run {}, not {}", consent.run, ask.run));
    }
    if target != peer_ip {
        return Err(format!(
            "the control connection is with {peer_ip}, and only that may be flooded, not \
             {target}; give the server's own address as target and as --control"
        ));
    }
    if address != peer_ip {
        return Err(format!(
            "the server was reached at {peer_ip} but says that it is {address} (a translated \
             address?); connect without translation in between"
        ));
    }
    if let Some(port) = ports.iter().find(|port| !consent.ports.contains(port)) {
        return Err(format!("port {port} is not among the server's {:?}", consent.ports));
    }
    if ports.is_empty() && consent.ports.is_empty() {
        return Err("it names no port".into());
    }
    if ask.reply_bytes != consent.reply_bytes {
        return Err(match ask.reply_bytes {
            Some(bytes) => {
                format!("it does not promise answers of {bytes} bytes; is that another build?")
            }
            None => "it promises answers that were not asked for; is that another build?".into(),
        });
    }
    match (ask.datagrams_per_s, consent.datagrams_per_s_max) {
        (Some(rate), Some(most)) if rate > most => {
            return Err(format!("{rate} datagrams/s are above its limit of {most}; lower --pps"));
        }
        (None, Some(most)) => {
            return Err(format!("at most {most} datagrams/s are permitted; give a rate, --pps"));
        }
        _ => {}
    }
    match (ask.bits_per_s(), consent.bits_per_s_max) {
        (Some(rate), Some(most)) if rate > most => {
            return Err(format!(
                "{rate} bits of payload/s are above its limit of {most}; lower --bitrate, --pps or --length"
            ));
        }
        (None, Some(most)) => {
            return Err(format!(
                "at most {most} bits of payload/s are permitted; give a rate, --bitrate"
            ));
        }
        _ => {}
    }
    if ask.lasts_ms() > consent.duration_ms_max {
        return Err(format!(
            "{} ms of warm-up and run are longer than its limit of {} ms; lower --time, or with a number of datagrams \
             or bytes --max-time",
            ask.lasts_ms(),
            consent.duration_ms_max
        ));
    }
    Ok(())
}
