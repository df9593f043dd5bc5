//! A cache that speaks RESP, the protocol of Redis, on every TCP design of weir.
//!
//! ```
//! use std::io::{Read, Write};
//! use weir::tcp::{AnyDesign, Server};
//! use weir_cache::{Cache, Settings, clock::Clock};
//!
//! # if AnyDesign::parse("blocking").unwrap().availability().is_err() { return }
//! let server = Server::bind("127.0.0.1:0".parse().unwrap());
//! let cache = Cache::new(Settings::default(), Clock::steady()).unwrap();
//! let running = cache.start(&server, AnyDesign::parse("blocking").unwrap()).unwrap();
//! let mut client = std::net::TcpStream::connect(running.local_addresses()[0]).unwrap();
//! client.write_all(b"SET greeting hello\r\nGET greeting\r\n").unwrap();
//! let mut replies = [0; 16];
//! client.read_exact(&mut replies).unwrap();
//! assert_eq!(&replies, b"+OK\r\n$5\r\nhello\r\n");
//! drop(client);
//! assert!(running.stop().failure.is_none());
//! ```

pub mod channels;
mod client;
pub mod clock;
mod commands;
pub mod metrics;
pub mod resp;
pub mod store;

use channels::Channels;
use clap::{Args as _, FromArgMatches as _};
use clock::Clock;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use store::{Eviction, Store};
use weir::tcp::{Handler, Limits, Running, Server, Startable};

/// What a cache may take up: options of its program.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Bytes that keys and values may take in all, by estimate (k, m, g = 1024, ...).
    #[arg(long = "memory", value_name = "BYTES", default_value = "256m", value_parser = parse_bytes)]
    pub memory_bytes: usize,

    /// What to do with other keys when memory is full.
    #[arg(long, value_enum, default_value = "allkeys-lru")]
    pub eviction: Eviction,

    /// Most clients at a time; further ones get an error and are closed.
    #[arg(long = "clients-max", value_name = "NUMBER", default_value_t = 10_000)]
    pub clients: u32,

    /// Longest command in bytes, values included: a client that sends a longer one is closed.
    #[arg(long, value_name = "BYTES", default_value = "1m", value_parser = parse_command_bytes)]
    pub command_bytes: usize,

    /// Longest reply in bytes, for instance to MGET: a client that asks for a longer one is closed.
    #[arg(long, value_name = "BYTES", default_value = "16m", value_parser = parse_bytes)]
    pub reply_bytes: usize,

    /// Most bytes of output that may wait for a client to read them. While this much waits, no further command of the
    /// client is carried out; a subscriber for whom more would have to wait is closed.
    #[arg(long, value_name = "BYTES", default_value = "1m", value_parser = parse_bytes)]
    pub output_bytes: usize,

    /// Most subscriptions of a client.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub subscriptions: usize,

    /// Close clients that have been silent for this many seconds; 0 for never.
    #[arg(long = "idle", value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub idle_s: u64,

    /// Parts of the map, each with a lock of its own, 1 to 64: by default 1 on a single core, otherwise enough that two
    /// threads seldom want the same one.
    #[arg(long, value_name = "NUMBER", default_value_t = usual_shards(), value_parser = parse_shards)]
    pub shards: usize,
}

fn usual_shards() -> usize {
    match weir::affinity::allowed_cores().len() {
        1 => 1,
        cores => (8 * cores).next_power_of_two().min(store::MOST_SHARDS),
    }
}

fn parse_shards(text: &str) -> Result<usize, String> {
    let shards = text.parse().ok().filter(|shards| (1..=store::MOST_SHARDS).contains(shards));
    shards.ok_or_else(|| format!("allowed: 1 to {}", store::MOST_SHARDS))
}

/// Reads a number of bytes, as 65536, 64k, 16m or 1g.
///
/// # Errors
/// What is allowed.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1usize),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|count| count.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text} is not a size; write for instance 65536, 64k, 16m or 1g"))
}

fn parse_command_bytes(text: &str) -> Result<usize, String> {
    let bytes = Some(parse_bytes(text)?).filter(|bytes| *bytes <= resp::MOST_BYTES);
    bytes.ok_or_else(|| "allowed: 1 to 1g".into())
}

impl Default for Settings {
    /// As the program has them that is not told otherwise.
    fn default() -> Self {
        let command = Self::augment_args(clap::Command::new("weir-cache"));
        let matches = command.try_get_matches_from(["weir-cache"]);
        let settings = matches.and_then(|matches| Self::from_arg_matches(&matches));
        settings.expect("each has a default")
    }
}

/// What all clients have in common.
pub struct Shared {
    /// What the cache may take up.
    pub settings: Settings,
    /// Keys and values.
    pub store: Store,
    /// Who has subscribed to what.
    pub channels: Channels,
    /// What keys expire by.
    pub clock: Clock,
    /// Since when it runs.
    pub since: Instant,
    /// Clients there have been.
    pub ids: AtomicU64,
    /// Clients there are.
    pub clients: AtomicU32,
    /// Commands that were carried out.
    pub commands: AtomicU64,
    ends: AtomicBool,
}

/// A cache, which may be served.
pub struct Cache {
    shared: Arc<Shared>,
    sweeper: Option<JoinHandle<()>>,
}

/// While keys expire those that have are looked for so often, this many of each shard at a time.
const SWEEP: Duration = Duration::from_millis(100);
const SWEPT: usize = 2000;

impl Cache {
    /// An empty one.
    ///
    /// # Errors
    /// What the system answered when the thread that looks for keys that have expired was to start.
    pub fn new(settings: Settings, clock: Clock) -> Result<Self, weir::Error> {
        let store = Store::new(settings.shards, settings.memory_bytes, settings.eviction);
        let shared = Arc::new(Shared {
            settings,
            store,
            channels: Channels::default(),
            clock,
            since: Instant::now(),
            ids: AtomicU64::new(0),
            clients: AtomicU32::new(0),
            commands: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let sweeper = thread::Builder::new().name("sweeper".into()).spawn(move || sweep(&its));
        let sweeper = sweeper.map_err(|e| weir::Error::io("starting a thread", e))?;
        Ok(Self { shared, sweeper: Some(sweeper) })
    }

    /// What its clients have in common.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The handler of one more client, for who serves it without [`start`](Self::start).
    pub fn client(&self) -> impl Handler + use<> {
        client::Client::new(Arc::clone(&self.shared))
    }

    /// Serves it: where and with what options `server` says, with limits of its own, on this design.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start(&self, server: &Server, design: impl Startable) -> Result<Running, weir::Error> {
        let settings = &self.shared.settings;
        let idle = Some(settings.idle_s).filter(|idle| *idle > 0).map(Duration::from_secs);
        let limits = Limits::default()
            .connections(settings.clients)
            .output_bytes(settings.output_bytes)
            .silent(idle)
            .idle(idle);
        let shared = Arc::clone(&self.shared);
        server
            .clone()
            .limits(limits)
            .start(design, move |_peer| client::Client::new(Arc::clone(&shared)))
    }
}

/// Looks for keys that have expired and that nobody asks for. Sleeps while none expires.
fn sweep(shared: &Shared) {
    shared.store.swept_by_me();
    while !shared.ends.load(Relaxed) {
        match shared.store.any_expires() {
            true => {
                shared.store.sweep(&shared.clock.now(), SWEPT);
                thread::park_timeout(SWEEP);
            }
            false => thread::park(),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        if let Some(sweeper) = self.sweeper.take() {
            sweeper.thread().unpark();
            let _ = sweeper.join();
        }
    }
}
