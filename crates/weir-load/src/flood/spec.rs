//! What a flood is to be.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::FloodError;
use crate::{
    control::Key,
    control::RunAsk,
    engine::Head,
    pacing::WINDOW_NS,
    pacing::{Arrivals, Load},
    stamp::{DATAGRAM_BYTES_MAX, FLOWS_MAX, STAMP_BYTES},
};

/// The most generators of one flood.
pub const GENERATORS_MAX: usize = 64;

/// The longest flood.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// The shortest time between two interval reports: faster, they would take the time of
/// what is measured.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The highest rate that makes sense: ten times what 100 GbE carries.
const DATAGRAMS_PER_S_MAX: f64 = 1.5e9;

/// The most requests of one flow that may be under way.
pub const OUTSTANDING_MAX: u32 = 16_384;

/// The answers that a flood expects: then its datagrams are requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replies {
    /// Bytes of each answer; none for as many as the request has. It is the beginning of the request.
    pub size_bytes: Option<usize>,
    /// Requests of each flow that are under way at most, where no pace says when to send (closed loop). With a pace
    /// (open loop) requests go out at their times, however many are under way.
    pub outstanding: u32,
    /// How long another answer is waited for at the end while requests are not answered. All of them are waited for no
    /// longer than 5 s, or this time where it is longer.
    pub another_within: Duration,
}

impl Default for Replies {
    /// Answers of the request's size, 64 under way, and 0.4 s for another at the end.
    fn default() -> Self {
        Self { size_bytes: None, outstanding: 64, another_within: Duration::from_millis(400) }
    }
}

/// What a flood is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct FloodSpec {
    /// Where to.
    pub target: IpAddr,
    /// Ports there; flows take them in turn. Empty: those that the server consents to.
    pub ports: Vec<u16>,
    /// The server's control channel; without it only loopback is flooded.
    pub control: Option<SocketAddr>,
    /// Whether a server of another build will do.
    pub any_build: bool,
    /// The key that it shares with the server, if they share one.
    pub key: Option<Key>,
    /// Name of the engine; none means the best that works.
    pub engine: Option<String>,
    /// Payload bytes of each datagram, 0 to [`DATAGRAM_BYTES_MAX`].
    pub size_bytes: usize,
    /// Written over the beginning of each datagram, stamp included; empty for nothing.
    pub head: Head,
    /// The answers that are expected and verified; none from a sink.
    pub replies: Option<Replies>,
    /// Flows of each generator.
    pub flows: usize,
    /// Generators (threads), at most [`GENERATORS_MAX`].
    pub generators: usize,
    /// How much, over all generators.
    pub load: Load,
    /// How the quanta of a pace follow one another.
    pub arrivals: Arrivals,
    /// Datagrams per quantum; none means computed ([`crate::pacing::quantum`]).
    pub quantum: Option<u32>,
    /// The longest that it lasts.
    pub duration: Duration,
    /// The most datagrams it offers over all generators, if that ends it earlier.
    pub datagrams: Option<u64>,
    /// Flooded before the run in the same way, and counted apart.
    pub warm_up: Duration,
    /// Cores to run on: generators take them in turn. Empty: any.
    pub cores: Vec<usize>,
    /// Run id that the datagrams bear.
    pub run: u32,
    /// The share of what was sent that may be lost, if there is a limit.
    pub max_loss: Option<f64>,
    /// How often to say how it goes, at least [`INTERVAL_MIN`].
    pub interval: Option<Duration>,
    /// What the clock here shows more than the server's, in ns, where they have two and that was measured: then the server
    /// tells one-way latencies.
    pub clock_offset_ns: Option<i64>,
}

impl FloodSpec {
    /// Ten seconds of saturation in 64-byte datagrams, one flow, a random run id.
    pub fn new(target: IpAddr) -> Self {
        Self {
            target,
            ports: Vec::new(),
            control: None,
            any_build: false,
            key: None,
            engine: None,
            size_bytes: 64,
            head: Head::default(),
            replies: None,
            flows: 1,
            generators: 1,
            load: Load::Saturation,
            arrivals: Arrivals::default(),
            quantum: None,
            duration: Duration::from_secs(10),
            datagrams: None,
            warm_up: Duration::ZERO,
            cores: Vec::new(),
            run: random_run(),
            max_loss: None,
            interval: None,
            clock_offset_ns: None,
        }
    }

    /// Flows over all generators.
    pub fn flows_in_all(&self) -> usize {
        self.flows.saturating_mul(self.generators)
    }

    /// Whether it makes sense, and whether it may go where it should without asking.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), FloodError> {
        let target = self.target.to_canonical();
        let wrong = |text: String| Err(FloodError::Spec(text));
        if target.is_unspecified() || target.is_multicast() {
            return wrong(format!("{target} is not the address of one machine; give a server's"));
        }
        if self.control.is_none() {
            if !target.is_loopback() {
                return Err(FloodError::NoConsent { target });
            }
            if self.ports.is_empty() {
                return wrong("no port: give the server's with --port, or its --control".into());
            }
        }
        if self.ports.contains(&0) {
            return wrong("port 0 is not a port; give the one the server printed".into());
        }
        let bounds = [
            ("datagram size in bytes (--length)", self.size_bytes, 0, DATAGRAM_BYTES_MAX),
            ("number of generators (--generators)", self.generators, 1, GENERATORS_MAX),
            ("number of flows (--parallel) of all generators", self.flows_in_all(), 1, FLOWS_MAX),
        ];
        for (what, value, least, most) in bounds {
            if value < least || value > most {
                return wrong(format!("the {what} is {value}; it must be {least} to {most}"));
            }
        }
        if self.ports.len() > self.flows_in_all() {
            return wrong(format!(
                "{} ports but {} flows: some ports would get nothing; raise --parallel",
                self.ports.len(),
                self.flows_in_all()
            ));
        }
        for (what, time, least) in [
            ("duration (--time)", self.duration, Duration::from_millis(1)),
            ("warm-up (--omit)", self.warm_up, Duration::ZERO),
        ] {
            if time < least || time > DURATION_MAX {
                return wrong(format!(
                    "the {what} is {time:?}; it must be {least:?} to {DURATION_MAX:?}"
                ));
            }
        }
        if let Some(interval) = self.interval
            && interval < INTERVAL_MIN
        {
            return wrong(format!(
                "an interval of {interval:?} (--interval); it must be {INTERVAL_MIN:?} or more"
            ));
        }
        self.check_replies()?;
        if self.datagrams == Some(0) {
            return wrong("0 datagrams (--blockcount, --bytes) is no flood; give 1 or more".into());
        }
        if self.quantum == Some(0) {
            return wrong("a quantum of 0 (--quantum) sends nothing; give 1 or more".into());
        }
        if let Some(rate) = self.load.datagrams_per_s()
            && !(rate.is_finite() && rate > 0.0 && rate <= DATAGRAMS_PER_S_MAX)
        {
            return wrong(format!(
                "a rate of {rate} datagrams/s; it must be above 0 and at most \
                 {DATAGRAMS_PER_S_MAX}"
            ));
        }
        if self.arrivals != Arrivals::Even && self.load == Load::Saturation {
            return wrong(format!(
                "{} arrivals (--arrivals) need a rate: give --pps, --bitrate or --link",
                self.arrivals.name()
            ));
        }
        Ok(())
    }

    /// Whether the answers can be told apart, and are no more than what is sent.
    fn check_replies(&self) -> Result<(), FloodError> {
        let Some(Replies { outstanding, .. }) = self.replies else { return Ok(()) };
        let wrong = |text: String| Err(FloodError::Spec(text));
        let reply_bytes = self.reply_bytes().unwrap_or_default();
        if !(STAMP_BYTES..=self.size_bytes).contains(&reply_bytes) {
            return wrong(format!(
                "answers of {reply_bytes} bytes (--reply-size) to datagrams of {} (--length): an answer needs {STAMP_BYTES} \
                 bytes at least, for the stamp that tells it from others, and has no more than its request",
                self.size_bytes
            ));
        }
        if !self.head.is_empty() {
            return wrong(
                "a head (--head) overwrites the stamp by which answers are told apart; leave it or --reply out".into(),
            );
        }
        if !(1..=OUTSTANDING_MAX).contains(&outstanding) {
            return wrong(format!(
                "{outstanding} requests under way (--outstanding); it must be 1 to {OUTSTANDING_MAX}"
            ));
        }
        if self.engine.as_deref() == Some("xdp") {
            return wrong(
                "the engine xdp sends past the sockets, to which answers come; take another for requests".into(),
            );
        }
        Ok(())
    }

    /// Bytes of each answer, where answers are expected.
    pub fn reply_bytes(&self) -> Option<usize> {
        self.replies.map(|replies| replies.size_bytes.unwrap_or(self.size_bytes))
    }

    /// Run id of the warm-up, if there is one.
    pub fn warm_up_run(&self) -> Option<u32> {
        (!self.warm_up.is_zero()).then_some(!self.run)
    }

    /// What is asked of the server.
    pub fn ask(&self) -> RunAsk {
        RunAsk {
            run: self.run,
            warm_up_run: self.warm_up_run(),
            warm_up_ms: self.warm_up.as_millis() as u64,
            size_bytes: self.size_bytes,
            flows: self.flows_in_all(),
            datagrams_per_s: self.load.datagrams_per_s(),
            window_ms: WINDOW_NS / 1_000_000,
            duration_ms: (self.duration.as_millis() as u64).max(1),
            datagrams: self.datagrams,
            reply_bytes: self.reply_bytes(),
            clock_offset_ns: self.clock_offset_ns,
        }
    }
}

/// A run id that nobody else has, most likely.
pub fn random_run() -> u32 {
    // The standard library seeds its hash tables from the operating system.
    RandomState::new().build_hasher().finish() as u32
}
