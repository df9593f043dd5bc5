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

/// What a cache may take up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of keys and values, by estimate.
    pub memory_bytes: usize,
    /// What happens to other keys when they are reached.
    pub eviction: Eviction,
    /// Clients at a time.
    pub clients: u32,
    /// Bytes of a command.
    pub command_bytes: usize,
    /// Bytes of a reply: a client whose reply would be longer is closed.
    pub reply_bytes: usize,
    /// Bytes that may wait for a client to read them. While as many wait nothing is carried out for it; and one that
    /// has subscribed is closed where more would.
    pub output_bytes: usize,
    /// Subscriptions of a client.
    pub subscriptions: usize,
    /// How long a client may be silent; `None` for any time.
    pub idle: Option<Duration>,
    /// Parts of the map that have a lock each, 1 to [`MOST_SHARDS`](store::MOST_SHARDS).
    pub shards: usize,
}

impl Default for Settings {
    /// 256 MiB, evicting what was not used for longest; 10,000 clients, as Redis; commands up to 1 MiB. One shard where
    /// there is one core, and otherwise enough of them that two threads seldom want the same.
    fn default() -> Self {
        let cores = weir::affinity::allowed_cores().len();
        let shards = if cores == 1 { 1 } else { (8 * cores).next_power_of_two() };
        Self {
            memory_bytes: 256 * 1024 * 1024,
            eviction: Eviction::LeastRecentlyUsed,
            clients: 10_000,
            command_bytes: 1024 * 1024,
            reply_bytes: 16 * 1024 * 1024,
            output_bytes: 1024 * 1024,
            subscriptions: 1000,
            idle: None,
            shards: shards.min(store::MOST_SHARDS),
        }
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
        let limits = Limits::default()
            .connections(settings.clients)
            .output_bytes(settings.output_bytes)
            .silent(settings.idle)
            .idle(settings.idle);
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
