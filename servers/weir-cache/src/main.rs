//! weir-cache: serves a cache until it is told to end.

use clap::Parser;
use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, mpsc},
    time::Duration,
};
use weir::{
    Error,
    stream::StreamOptions,
    tcp::{AnyDesign, Running, Server},
    wake::Waker,
};
use weir_cache::{
    Cache, Settings,
    clock::Clock,
    metrics,
    store::{Eviction, MOST_SHARDS},
};

/// A cache that speaks RESP, as Redis does: redis-cli, redis-benchmark and clients for Redis work with it. It keeps
/// everything in memory and nothing else.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 told to end; 1 it failed; 2 wrong usage; 5 the design cannot run here."
)]
struct Args {
    /// Address and port to listen on; repeatable. Port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:6379")]
    bind: Vec<SocketAddr>,

    /// Port of 127.0.0.1 to listen on, instead of --bind.
    #[arg(short, long, conflicts_with = "bind")]
    port: Option<u16>,

    /// Design with its options, as `weir designs` lists them [default: the first of epoll, port and blocking that this
    /// system has].
    #[arg(long)]
    design: Option<String>,

    /// Bytes that keys and values may take in all, by estimate (k, m, g = 1024, ...).
    #[arg(long, default_value = "256m", value_parser = parse_bytes)]
    memory: usize,

    /// What happens to other keys when memory is full: allkeys-lru (of five taken by chance the one not used for
    /// longest), allkeys-random, or noeviction (commands that store are refused).
    #[arg(long, default_value = "allkeys-lru")]
    eviction: Eviction,

    /// Most clients at a time; further ones are told so and closed.
    #[arg(long, default_value_t = Settings::default().clients)]
    clients_max: u32,

    /// Longest command in bytes, values included: a client that sends a longer one is closed.
    #[arg(long, default_value = "1m", value_parser = parse_bytes)]
    command_bytes: usize,

    /// Longest reply in bytes, as of an MGET: a client that asks for a longer one is closed.
    #[arg(long, default_value = "16m", value_parser = parse_bytes)]
    reply_bytes: usize,

    /// Bytes that may wait for a client to read them: while as many wait nothing is carried out for it, and a subscriber
    /// for whom more would is closed.
    #[arg(long, default_value = "1m", value_parser = parse_bytes)]
    output_bytes: usize,

    /// Most subscriptions of a client.
    #[arg(long, default_value_t = Settings::default().subscriptions)]
    subscriptions: usize,

    /// Close clients that are silent for so many seconds; 0 for never.
    #[arg(long, default_value_t = 0)]
    idle: u64,

    /// Parts of the map, each with a lock of its own, 1 to 64 [default: 1 where there is one core, otherwise 8 for each].
    #[arg(long)]
    shards: Option<usize>,

    /// Bytes received at a time, at most.
    #[arg(short, long, default_value = "16k", value_parser = parse_bytes)]
    buffer: usize,

    /// Serve metrics for Prometheus at this address, under /metrics.
    #[arg(long)]
    metrics: Option<SocketAddr>,
}

/// Bytes, as 65536, 64k, 16m or 1g.
fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1usize),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|count| count.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text} is no size; as 65536, 64k, 16m or 1g"))
}

fn main() -> ExitCode {
    let args = Args::parse();
    match serve(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-cache: {error}");
            ExitCode::from(match error {
                Error::Option { .. } | Error::UnknownName { .. } => 2,
                Error::Unavailable(_) => 5,
                _ => 1,
            })
        }
    }
}

/// The design of a cache of which nothing else is said.
fn usual_design() -> Result<AnyDesign, Error> {
    let all = ["epoll", "port", "blocking"].map(AnyDesign::parse);
    let runs = |it: &AnyDesign| it.availability().is_ok();
    all.into_iter()
        .find(|it| it.as_ref().is_ok_and(runs))
        .unwrap_or_else(|| AnyDesign::parse("blocking"))
}

fn serve(args: &Args) -> Result<(), Error> {
    let design = args.design.as_deref().map_or_else(usual_design, AnyDesign::parse)?;
    design.availability()?;
    let usual = Settings::default();
    let shards = args.shards.unwrap_or(usual.shards);
    if !(1..=MOST_SHARDS).contains(&shards) {
        return Err(Error::option(
            "shards",
            format!("{shards} is not allowed; allowed: 1 to {MOST_SHARDS}"),
        ));
    }
    let settings = Settings {
        memory_bytes: args.memory,
        eviction: args.eviction,
        clients: args.clients_max,
        command_bytes: args.command_bytes,
        reply_bytes: args.reply_bytes,
        output_bytes: args.output_bytes,
        subscriptions: args.subscriptions,
        idle: Some(args.idle).filter(|idle| *idle > 0).map(Duration::from_secs),
        shards,
    };
    let addresses = match args.port {
        Some(port) => vec![SocketAddr::from(([127, 0, 0, 1], port))],
        None => args.bind.clone(),
    };
    let server = addresses[1..]
        .iter()
        .fold(Server::bind(addresses[0]), |server, address| server.and_bind(*address));
    let server = server.buffer_bytes(args.buffer).stream_options(StreamOptions::default());
    let cache = Cache::new(settings, Clock::steady());
    let running = Arc::new(cache.start(&server, design)?);
    let (ends, ended) = mpsc::channel();
    let ends = Waker::new(move || _ = ends.send(()));
    running.on_end(ends.clone());
    ctrlc::set_handler(move || ends.wake())
        .map_err(|e| Error::io("a handler of signals", std::io::Error::other(e)))?;
    let scraped = args.metrics.map(|at| serve_metrics(at, &cache, &running)).transpose()?;
    for address in running.local_addresses() {
        println!("listens on {address}");
    }
    if let Some(scraped) = &scraped {
        println!("metrics at http://{}/metrics", scraped.local_addresses()[0]);
    }
    let _ = ended.recv();
    // With its end nobody else has the server.
    drop(scraped);
    let running = Arc::into_inner(running).expect("who serves metrics has gone");
    let report = running.stop();
    let counts = cache.shared().store.counts();
    println!(
        "{} clients, {} keys, {} hits, {} misses, {} expired, {} evicted",
        report.total().accepted,
        counts.keys,
        counts.hits,
        counts.misses,
        counts.expired,
        counts.evicted
    );
    report.failure.map_or(Ok(()), Err)
}

fn serve_metrics(at: SocketAddr, cache: &Cache, running: &Arc<Running>) -> Result<Running, Error> {
    metrics::start(
        &Server::bind(at),
        usual_design()?,
        Arc::clone(cache.shared()),
        Arc::clone(running),
    )
}
