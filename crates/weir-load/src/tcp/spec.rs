//! What a load is to be.

use super::{Engine, FileBy, LoadError, Sizes};
use crate::flood::{INTERVAL_MIN, random_run};
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use weir::stream::{self, UnixAddress};

/// The most threads of one load.
pub const THREADS_MAX: usize = 64;
/// The most connections of one load.
pub const CONNECTIONS_MAX: u64 = 4_000_000;
/// The longest message in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;
/// The most messages under way over all connections: when each was sent takes 8 bytes.
pub const UNDER_WAY_MAX: u64 = 64 << 20;
/// The longest that anything may last.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// When messages are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// A closed loop: the next one as soon as fewer than the allowed number are under way.
    Closed,
    /// An open loop: so many a second over all blocks, at times that are fixed beforehand. One that
    /// is due while as many as allowed are under way waits, and its latency runs from when it was due.
    Open {
        /// Messages per second, over all connections of all blocks.
        messages_per_s: f64,
    },
}

/// When messages are measured, of the machine's monotonic clock in ns
/// ([`now_ns`](crate::clock::now_ns)), which all processes have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From here on.
    pub measure_from_ns: u64,
    /// Up to here, when sending ends.
    pub end_ns: u64,
}

/// The most source addresses that can be asked for.
pub const SOURCES_MAX: u32 = 65_536;

/// Addresses of IPv4 that connections come from, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRange {
    /// The first.
    pub first: Ipv4Addr,
    /// How many, the first included, each one more than the one before.
    pub count: u32,
}

impl SourceRange {
    /// The address of a connection, by its number among all of the load.
    pub(super) fn of_connection(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first).wrapping_add(number % self.count.max(1)))
    }

    fn last(&self) -> Option<Ipv4Addr> {
        u32::from(self.first).checked_add(self.count.checked_sub(1)?).map(Ipv4Addr::from)
    }
}

/// What the connections of a load do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Conduct {
    /// They send messages, and read what comes back.
    #[default]
    Messages,
    /// They send nothing at all. At the end each ends its sending in order, and waits for the server to do the same.
    Silent,
    /// They send messages as long as the system takes any, and read nothing before the end; then all that came back is
    /// read and verified. Their sockets' buffers are small, so that they are stuck soon.
    Stuck,
}

impl Conduct {
    /// Each with the name that it has in settings.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Messages, "messages"), (Self::Silent, "silent"), (Self::Stuck, "stuck")];
}

/// The most processes of one load.
pub const PROCESSES_MAX: u32 = 256;

/// Which process of how many: each has its share of the connections of each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its number, from 0.
    pub index: u32,
    /// Processes.
    pub of: u32,
}

impl Share {
    /// There is no other process.
    pub const ALL: Self = Self { index: 0, of: 1 };
}

/// What a load is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSpec {
    /// The server, on a loopback address unless its host [agreed](Self::host_agreed); with [`unix`](Self::unix) that of
    /// this machine, whatever the port.
    pub target: SocketAddr,
    /// The Unix socket to connect to, instead of the target.
    pub unix: Option<UnixAddress>,
    /// Whether the server's host takes part in the run, by a rank of it on which the target is one of the host's own addresses
    /// ([`why_not_agreed`](super::why_not_agreed)): nobody but whoever runs programs there can say so.
    pub host_agreed: bool,
    /// Connections of each block.
    pub connections: u32,
    /// Blocks.
    pub blocks: u32,
    /// Time from the beginning of one block to that of the next.
    pub block_interval: Duration,
    /// Bytes of a message.
    pub sizes: Sizes,
    /// A file that is sent instead, each time as one message: `sizes` says nothing then.
    pub file: Option<PathBuf>,
    /// How it is sent.
    pub file_by: FileBy,
    /// Messages of each connection, after which it is closed; none for as many as the time allows.
    pub sends: Option<u64>,
    /// Messages under way on each connection, at most.
    pub outstanding: u32,
    /// When messages are sent.
    pub pace: Pace,
    /// What they do.
    pub conduct: Conduct,
    /// Where they come from; `None` for any address of this machine.
    pub sources: Option<SourceRange>,
    /// Whether nothing is to come back: the server is a sink.
    pub one_way: bool,
    /// Whether the server may refuse some connections, as one does that has reached its limits: that is no
    /// failure then, as long as it serves one.
    pub refusals_expected: bool,
    /// Whether a connection's sending ends with its last message, and not only when all has come back.
    pub half_close: bool,
    /// Whether a connection counts as made only when its first message has come back, so that the server
    /// has accepted it, and none sends a second one before all are made.
    pub together: bool,
    /// Whether it looks at what it holds when all that is measured is over, and its connections still stand; of a
    /// number of messages when all connections are made.
    pub looks_at_memory: bool,
    /// Whether it takes a core only where no other program wants it.
    pub gives_way: bool,
    /// What moves the bytes; none for the best that can be used.
    pub engine: Option<Engine>,
    /// Which of its processes this one is.
    pub share: Share,
    /// Threads of each process.
    pub threads: usize,
    /// Cores to run on: threads take them in turn. Empty: any.
    pub cores: Vec<usize>,
    /// How long messages are sent: from when all blocks are connected, and with `sends` from the
    /// beginning on.
    pub duration: Duration,
    /// Of that so long is not measured.
    pub warm_up: Duration,
    /// How long the load goes on behind what is measured: so long has whoever measures the server to look at it.
    pub tail: Duration,
    /// How long connecting may take in all, besides the time between blocks.
    pub setup_max: Duration,
    /// Connections that are being made at a time, over all threads.
    pub connecting: u32,
    /// How long making one may take.
    pub connect_timeout: Duration,
    /// How long an answer may take, before its connection is given up.
    pub answer_timeout: Duration,
    /// How long is waited at the end for answers, and for the server to close its side.
    pub drain: Duration,
    /// Goes into the bytes that are sent, so that those of another load are told apart.
    pub run: u32,
    /// How often to say how it goes, at least [`INTERVAL_MIN`].
    pub interval: Option<Duration>,
}

impl LoadSpec {
    /// Ten seconds of ping-pong with 64-byte messages on one connection.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            unix: None,
            host_agreed: false,
            connections: 1,
            blocks: 1,
            block_interval: Duration::from_secs(2),
            sizes: Sizes::of(64),
            file: None,
            file_by: FileBy::default(),
            sends: None,
            outstanding: 1,
            pace: Pace::Closed,
            conduct: Conduct::default(),
            sources: None,
            one_way: false,
            refusals_expected: false,
            half_close: false,
            together: false,
            looks_at_memory: false,
            gives_way: false,
            engine: None,
            share: Share::ALL,
            threads: 1,
            cores: Vec::new(),
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            tail: Duration::ZERO,
            setup_max: Duration::from_secs(120),
            connecting: 256,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            drain: Duration::from_secs(5),
            run: random_run(),
            interval: None,
        }
    }

    /// Connections over all blocks.
    pub fn connections_in_all(&self) -> u64 {
        u64::from(self.connections) * u64::from(self.blocks)
    }

    /// When messages are measured that may be sent from a moment on.
    pub fn times_from(&self, moment_ns: u64) -> Times {
        let after = |time: Duration| {
            moment_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        Times { measure_from_ns: after(self.warm_up), end_ns: after(self.duration) }
    }

    /// Threads over all processes.
    pub(super) fn threads_in_all(&self) -> u32 {
        self.threads as u32 * self.share.of
    }

    /// The number of one of this process's threads among those of all.
    pub(super) fn number_of_thread(&self, own: usize) -> u32 {
        self.share.index * self.threads as u32 + own as u32
    }

    /// Connections of each block of one thread, by its number among all: the first of them, of the block's, and
    /// how many. They are dealt out in turn over all blocks, so that none has more than one more than another.
    pub(super) fn dealt(&self, block: u32, thread: u32) -> (u32, u32) {
        let threads = u64::from(self.threads_in_all());
        let before = u64::from(block) * u64::from(self.connections) % threads;
        let first = ((u64::from(thread) + threads - before) % threads) as u32;
        (first, self.connections.saturating_sub(first).div_ceil(self.threads_in_all()))
    }

    /// The same over all blocks.
    pub(super) fn dealt_in_all(&self, thread: u32) -> u64 {
        let threads = u64::from(self.threads_in_all());
        let all = self.connections_in_all();
        all / threads + u64::from(u64::from(thread) < all % threads)
    }

    /// Messages per second of one block, if a rate was asked for.
    pub(super) fn block_rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Closed => None,
            Pace::Open { messages_per_s } => Some(messages_per_s / f64::from(self.blocks)),
        }
    }

    /// When the last block begins, from the beginning of the first.
    pub(super) fn last_block_after(&self) -> Duration {
        self.block_interval.saturating_mul(self.blocks.saturating_sub(1))
    }

    /// Where it goes, as it is written.
    pub fn destination(&self) -> String {
        match &self.unix {
            Some(unix) => unix.to_string(),
            None => self.target.to_string(),
        }
    }

    /// Whether it makes sense, and whether it may go where it should.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Spec(text));
        if let (Some(unix), Err(why)) = (&self.unix, stream::unix_availability()) {
            return wrong(format!("{unix}: {why}"));
        }
        let target = self.target.ip().to_canonical();
        if target.is_unspecified() || target.is_multicast() {
            return wrong(format!("{target} is not the address of one machine; give a server's"));
        }
        if !target.is_loopback() && !self.host_agreed {
            return Err(LoadError::NotLoopback { target });
        }
        if self.target.port() == 0 && self.unix.is_none() {
            return wrong("port 0 is not a port; give the one the server printed".into());
        }
        if self.sizes.most > MESSAGE_BYTES_MAX {
            return wrong(format!(
                "messages (--buffer) of {} bytes are too long: {MESSAGE_BYTES_MAX} at most; it is the length \
                 of a message, not a bit rate",
                self.sizes.most
            ));
        }
        let outstanding = u64::from(self.outstanding);
        let under_way = self.connections_in_all().saturating_mul(outstanding);
        for (what, value, most) in [
            (
                "number of connections (--connections times --blocks)",
                self.connections_in_all(),
                CONNECTIONS_MAX,
            ),
            (
                "shortest message in bytes (--buffer)",
                self.sizes.least.into(),
                MESSAGE_BYTES_MAX.into(),
            ),
            (
                "longest message in bytes (--buffer)",
                self.sizes.most.into(),
                MESSAGE_BYTES_MAX.into(),
            ),
            ("number of messages (--sends)", self.sends.unwrap_or(1), u64::MAX),
            (
                "number of messages under way (--outstanding) on all connections",
                under_way,
                UNDER_WAY_MAX,
            ),
            ("number of threads (--threads)", self.threads as u64, THREADS_MAX as u64),
            ("number of processes (--processes)", self.share.of.into(), PROCESSES_MAX.into()),
            ("number of connections being made (--connecting)", self.connecting.into(), 65_536),
        ] {
            if value == 0 || value > most {
                let allowed =
                    if most == u64::MAX { "or more".into() } else { format!("to {most}") };
                return wrong(format!("the {what} is {value}; it must be 1 {allowed}"));
            }
        }
        if self.share.index >= self.share.of {
            let Share { index, of } = self.share;
            return wrong(format!("process {index} of {of}: they are numbered from 0"));
        }
        if self.sizes.least > self.sizes.most {
            return wrong(format!(
                "messages (--buffer) of {} to {} bytes: the shortest comes first",
                self.sizes.least, self.sizes.most
            ));
        }
        let instant = Duration::from_millis(1);
        for (what, time, least) in [
            ("duration (--time)", self.duration, instant),
            ("warm-up (--omit)", self.warm_up, Duration::ZERO),
            (
                "time between blocks (--block-interval) in all",
                self.last_block_after(),
                Duration::ZERO,
            ),
            ("time for connecting (--setup-time)", self.setup_max, instant),
            ("time for one connection (--connect-timeout)", self.connect_timeout, instant),
            ("time for an answer (--answer-timeout)", self.answer_timeout, instant),
            ("time to end (--drain)", self.drain, Duration::ZERO),
        ] {
            if time < least || time > TIME_MAX {
                return wrong(format!(
                    "the {what} is {time:?}; it must be {least:?} to {TIME_MAX:?}"
                ));
            }
        }
        if self.warm_up >= self.duration {
            return wrong(format!(
                "a warm-up (--omit) of {:?} leaves nothing of {:?}; make it shorter",
                self.warm_up, self.duration
            ));
        }
        if self.sends.is_some() && !self.warm_up.is_zero() {
            return wrong(
                "a warm-up (--omit) and a number of messages (--sends) do not go together: all of them are \
                 measured"
                    .into(),
            );
        }
        if self.together && (self.sends.is_some() || self.one_way || self.pace != Pace::Closed) {
            return wrong(
                "--together is for messages that follow as fast as they come back, for a given time: not \
                 with --sends, --one-way or a rate"
                    .into(),
            );
        }
        self.check_conduct()?;
        self.check_sources()?;
        if let Some(interval) = self.interval
            && interval < INTERVAL_MIN
        {
            return wrong(format!(
                "an interval of {interval:?} (--interval); it must be {INTERVAL_MIN:?} or more"
            ));
        }
        if let Pace::Open { messages_per_s } = self.pace
            && !(messages_per_s.is_finite() && messages_per_s > 1e-6 && messages_per_s <= 1e9)
        {
            return wrong(format!(
                "a rate of {messages_per_s} messages/s; it must be above 0.000001 and at most 10^9"
            ));
        }
        Ok(())
    }

    /// Whether what else is asked of connections that are silent, or stuck, is something that such ones do.
    fn check_conduct(&self) -> Result<(), LoadError> {
        let sends = self.pace != Pace::Closed || self.sends.is_some() || self.file.is_some();
        let wrong = match self.conduct {
            Conduct::Messages => return Ok(()),
            Conduct::Silent if sends || self.one_way || self.half_close || self.together => {
                "silent connections send nothing: --conduct silent does not go together with --sends, --file, \
                 --one-way, --half-close, --together or a rate"
            }
            Conduct::Stuck if sends || self.one_way || self.half_close || self.together => {
                "stuck connections send as long as anything is taken: --conduct stuck does not go together with \
                 --sends, --file, --one-way, --half-close, --together or a rate"
            }
            Conduct::Silent | Conduct::Stuck => return Ok(()),
        };
        Err(LoadError::Spec(wrong.into()))
    }

    fn check_sources(&self) -> Result<(), LoadError> {
        let Some(sources) = self.sources else { return Ok(()) };
        let SourceRange { first, count } = sources;
        let wrong = |text: String| Err(LoadError::Spec(text));
        if !(1..=SOURCES_MAX).contains(&count) {
            return wrong(format!(
                "{count} source addresses (--sources); it must be 1 to {SOURCES_MAX}"
            ));
        }
        let target = self.target.ip();
        if let Some(unix) = &self.unix {
            return wrong(format!(
                "source addresses (--sources) are of IPv4, and {unix} is not; leave them out"
            ));
        }
        if !target.is_ipv4() {
            return wrong(format!(
                "source addresses (--sources) are of IPv4, and {target} is not; leave them out"
            ));
        }
        let is_right = |last: Ipv4Addr| !target.is_loopback() || last.is_loopback();
        match sources.last().filter(|last| is_right(*last)) {
            Some(_) if is_right(first) => Ok(()),
            _ => wrong(format!(
                "{count} source addresses from {first} on (--sources, --first-source): to {target} all must be \
                 of 127.0.0.0/8"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LoadSpec {
        LoadSpec::new("127.0.0.1:5150".parse().unwrap())
    }

    fn sources(first: [u8; 4], count: u32) -> SourceRange {
        SourceRange { first: first.into(), count }
    }

    #[test]
    fn sources_are_of_the_same_version_as_the_target() {
        let mut v6 = LoadSpec::new("[::1]:5150".parse().unwrap());
        v6.sources = Some(sources([127, 0, 0, 1], 1));
        assert!(v6.check().unwrap_err().to_string().contains("of IPv4"));
        let last = LoadSpec { sources: Some(sources([127, 255, 255, 255], 1)), ..spec() };
        last.check().unwrap();
    }

    #[test]
    fn a_plain_one_is_right() {
        spec().check().unwrap();
        LoadSpec::new("[::1]:5150".parse().unwrap()).check().unwrap();
        LoadSpec::new("[::ffff:127.9.9.9]:5150".parse().unwrap()).check().unwrap();
    }

    #[test]
    fn only_loopback_is_loaded() {
        for target in ["192.0.2.1:5150", "[2001:db8::1]:5150"] {
            let error = LoadSpec::new(target.parse().unwrap()).check().unwrap_err();
            assert!(matches!(error, LoadError::NotLoopback { .. }), "{error}");
            assert!(error.to_string().contains("loopback"), "{error}");
        }
        for target in ["0.0.0.0:5150", "224.0.0.1:5150", "127.0.0.1:0"] {
            let error = LoadSpec::new(target.parse().unwrap()).check().unwrap_err();
            assert!(matches!(error, LoadError::Spec(_)), "{error}");
        }
    }

    #[test]
    fn everything_has_a_bound() {
        type Spoil = fn(&mut LoadSpec);
        let spoilt: &[(Spoil, &str)] = &[
            (|s| s.connections = 0, "--connections"),
            (|s| s.blocks = u32::MAX, "--connections"),
            (|s| s.sizes = Sizes::of(0), "--buffer"),
            (|s| s.sizes = Sizes { least: 9, most: 8 }, "shortest"),
            (|s| s.sizes.most = u32::MAX, "--buffer"),
            (|s| s.sends = Some(0), "--sends"),
            (|s| s.outstanding = 0, "--outstanding"),
            (|s| s.outstanding = u32::MAX, "--outstanding"),
            (|s| s.threads = 65, "--threads"),
            (|s| s.connecting = 0, "--connecting"),
            (|s| s.share.of = 257, "--processes"),
            (|s| s.share = Share { index: 2, of: 2 }, "from 0"),
            (|s| s.sources = Some(sources([127, 0, 0, 1], 0)), "--sources"),
            (|s| s.sources = Some(sources([127, 255, 255, 255], 2)), "127.0.0.0/8"),
            (|s| s.sources = Some(sources([192, 0, 2, 1], 1)), "--first-source"),
            (|s| s.sources = Some(sources([255, 255, 255, 255], 2)), "127.0.0.0/8"),
            (|s| (s.conduct, s.sends) = (Conduct::Silent, Some(3)), "--conduct silent"),
            (|s| (s.conduct, s.one_way) = (Conduct::Stuck, true), "--conduct stuck"),
            (|s| s.duration = Duration::ZERO, "--time"),
            (|s| s.duration = Duration::MAX, "--time"),
            (|s| s.warm_up = Duration::from_secs(10), "--omit"),
            (|s| (s.blocks, s.block_interval) = (9, Duration::MAX), "--block-interval"),
            (|s| s.setup_max = Duration::ZERO, "--setup-time"),
            (|s| s.connect_timeout = Duration::ZERO, "--connect-timeout"),
            (|s| s.answer_timeout = Duration::ZERO, "--answer-timeout"),
            (|s| s.drain = Duration::MAX, "--drain"),
            (|s| s.interval = Some(Duration::ZERO), "--interval"),
            (|s| s.pace = Pace::Open { messages_per_s: f64::NAN }, "messages/s"),
            (|s| s.pace = Pace::Open { messages_per_s: 0.0 }, "messages/s"),
            (|s| (s.together, s.sends) = (true, Some(3)), "--together"),
            (|s| (s.together, s.one_way) = (true, true), "--together"),
            (|s| (s.together, s.pace) = (true, Pace::Open { messages_per_s: 1.0 }), "--together"),
        ];
        for (spoil, name) in spoilt {
            let mut spec = spec();
            spoil(&mut spec);
            let error = spec.check().expect_err(name).to_string();
            assert!(error.contains(name), "{name} is not in {error}");
        }
    }

    #[test]
    fn each_connection_is_one_threads_and_none_has_many_more() {
        for (connections, blocks, threads, processes) in
            [(1, 500, 1, 26), (27, 40, 1, 26), (1000, 3, 2, 4), (5, 1, 4, 2), (7, 3, 3, 1)]
        {
            let share = Share { index: 0, of: processes };
            let spec = LoadSpec { connections, blocks, threads, share, ..spec() };
            let all = spec.threads_in_all();
            let mut of_each = vec![0; all as usize];
            for block in 0..blocks {
                let mut taken = vec![false; connections as usize];
                for thread in 0..all {
                    let (first, count) = spec.dealt(block, thread);
                    for place in 0..count {
                        let number = (first + place * all) as usize;
                        assert!(!std::mem::replace(&mut taken[number], true), "{number} twice");
                    }
                    of_each[thread as usize] += u64::from(count);
                }
                assert!(taken.iter().all(|taken| *taken), "block {block} of {spec:?}");
            }
            for (thread, count) in (0..).zip(&of_each) {
                assert_eq!(*count, spec.dealt_in_all(thread), "thread {thread} of {spec:?}");
            }
            let (least, most) = (of_each.iter().min(), of_each.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{of_each:?}");
        }
    }
}
