//! weir-cache: serves a cache until it is told to end.

use clap::Parser;
use socket2::{Domain, SockRef, Type};
use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    inherited::{self, Inherited, Offer, Socket, take_over},
    stream::StreamOptions,
    tcp::{AnyDesign, Running, Server},
    wake::Waker,
};
use weir_cache::{
    Cache, Settings,
    clock::Clock,
    metrics,
    resp::MOST_BYTES,
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

    /// Path of a Unix socket to listen on, too (`redis-cli -s PATH`).
    #[arg(long, value_name = "PATH", conflicts_with = "hand_over")]
    unixsocket: Option<PathBuf>,

    /// Mode of its file, in octal, such as 700: who may write may connect [default: as the umask says].
    #[arg(long, value_name = "MODE", value_parser = parse_mode, requires = "unixsocket")]
    unixsocketperm: Option<u32>,

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
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
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

    /// Replace the weir-cache that was started with the same path, and be replaced by the next one: it takes over the
    /// listening sockets (--bind and the address of --metrics count for the first one only), and the other ends when its
    /// clients have gone, or after --finish, when it cuts off those that stay. No client that connects meanwhile is
    /// refused; keys are not taken over. The path is one for a Unix socket, in a folder that nobody else may write to.
    #[arg(long, value_name = "PATH")]
    hand_over: Option<PathBuf>,

    /// How long a cache that was replaced serves its clients on, in seconds: then those that are left are cut off.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    finish: u64,
}

/// The mode of a file, in octal.
fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("allowed: 0 to 777, in octal".into()),
    }
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

/// What the program waits for.
enum Event {
    /// A signal.
    Signal,
    /// The server was woken: it may have ended.
    Woken,
    /// It accepts no more, and has no client left.
    Drained,
    /// A successor serves the sockets.
    Replaced,
    /// Nobody can ask for them any more.
    NotOffered(Error),
}

fn serve(args: &Args) -> Result<(), Error> {
    let design = args.design.as_deref().map_or_else(usual_design, AnyDesign::parse)?;
    design.availability()?;
    let mut before = args.hand_over.as_deref().map(take_over).transpose()?.flatten();
    let given = match &mut before {
        Some(before) => before.sockets(),
        None => inherited::from_service_manager()?,
    };
    let (of_metrics, mut sockets): (Vec<_>, Vec<_>) =
        given.into_iter().partition(|given| given.name == METRICS);
    if sockets.is_empty() && args.hand_over.is_some() {
        let own = addresses(args).into_iter().map(|address| listen(NAME, address));
        sockets = own.collect::<Result<_, _>>()?;
    }
    // One that was handed over listens already, at the address of the first one.
    let metrics = args.metrics.map(|address| match of_metrics.into_iter().next() {
        Some(given) => Ok(given),
        None => listen(METRICS, address),
    });
    let metrics = metrics.transpose()?;
    let kept = sockets.iter().chain(&metrics).map(Inherited::try_clone);
    let kept = kept.collect::<Result<Vec<_>, _>>()?;
    let server = match sockets.is_empty() {
        true => server_at(&addresses(args)),
        false => server_by(sockets, args.hand_over.is_some())?,
    };
    let mut server = server.buffer_bytes(args.buffer);
    if let Some(path) = &args.unixsocket {
        server = server.and_bind_unix(path);
    }
    if let Some(mode) = args.unixsocketperm {
        server = server.unix_mode(mode);
    }
    let cache = Cache::new(settings(args)?, Clock::steady())?;
    let running = Arc::new(cache.start(&server, design)?);
    let (sender, events) = mpsc::channel();
    let told = |event: fn() -> Event| {
        let sender = sender.clone();
        move || _ = sender.send(event())
    };
    running.on_end(Waker::new(told(|| Event::Woken)));
    running.on_drained(Waker::new(told(|| Event::Drained)));
    let heeding = ctrlc::set_handler(told(|| Event::Signal));
    heeding.map_err(|e| Error::io("heeding signals", std::io::Error::other(e)))?;
    let scraped = metrics.map(|socket| {
        let server = server_by(vec![socket], args.hand_over.is_some())?;
        let shared = Arc::clone(cache.shared());
        metrics::start(&server, usual_design()?, shared, Arc::clone(&running))
    });
    let scraped = scraped.transpose()?;
    // Where a successor could not reach this one, it does not begin.
    let offered = args.hand_over.as_deref().map(Offer::at).transpose()?;
    if let Some(before) = before {
        before.serving()?;
    }
    if let Some(offered) = offered {
        offer(offered, kept, sender)?;
    }
    for address in running.local_addresses() {
        println!("listens on {address}");
    }
    for address in running.unix_addresses() {
        println!("listens on {address}");
    }
    if let Some(scraped) = &scraped {
        println!("metrics at http://{}/metrics", scraped.local_addresses()[0]);
    }
    let event = loop {
        match events.recv().unwrap_or(Event::Signal) {
            Event::Woken if running.is_running() => {}
            Event::NotOffered(error) => {
                eprintln!("weir-cache: it cannot be replaced any more: {error}");
            }
            event => break event,
        }
    };
    if matches!(event, Event::Replaced) {
        running.end_accepting()?;
    }
    // Whoever scrapes from now on reaches the successor, if there is one. With its end nobody else has the server.
    drop(scraped);
    if matches!(event, Event::Replaced) {
        finish(&running, &events, Duration::from_secs(args.finish));
    }
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

fn settings(args: &Args) -> Result<Settings, Error> {
    let shards = args.shards.unwrap_or(Settings::default().shards);
    if !(1..=MOST_SHARDS).contains(&shards) {
        let problem = format!("{shards} is not allowed; allowed: 1 to {MOST_SHARDS}");
        return Err(Error::option("shards", problem));
    }
    if args.command_bytes > MOST_BYTES {
        let problem = format!("{} is not allowed; allowed: 1 to 1g", args.command_bytes);
        return Err(Error::option("command-bytes", problem));
    }
    Ok(Settings {
        memory_bytes: args.memory,
        eviction: args.eviction,
        clients: args.clients_max,
        command_bytes: args.command_bytes,
        reply_bytes: args.reply_bytes,
        output_bytes: args.output_bytes,
        subscriptions: args.subscriptions,
        idle: Some(args.idle).filter(|idle| *idle > 0).map(Duration::from_secs),
        shards,
    })
}

fn addresses(args: &Args) -> Vec<SocketAddr> {
    match args.port {
        Some(port) => vec![SocketAddr::from(([127, 0, 0, 1], port))],
        None => args.bind.clone(),
    }
}

/// What the sockets are called where they are handed over, and the one for metrics.
const NAME: &str = "resp";
const METRICS: &str = "metrics";

/// A socket of one's own that a successor may take over.
fn listen(name: &str, address: SocketAddr) -> Result<Inherited, Error> {
    let bound = (|| {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(StreamOptions::default().backlog as i32)?;
        Ok(TcpListener::from(socket))
    })();
    let listener = bound.map_err(|source| Error::Bind { address, source })?;
    Ok(Inherited { name: name.into(), socket: Socket::Listener(listener) })
}

/// A server at these addresses.
fn server_at(addresses: &[SocketAddr]) -> Server {
    let first = Server::bind(addresses[0]);
    addresses[1..].iter().fold(first, |server, address| server.and_bind(*address))
}

/// A server by these sockets.
fn server_by(sockets: Vec<Inherited>, keeps: bool) -> Result<Server, Error> {
    let mut server: Option<Server> = None;
    for Inherited { name, socket } in sockets {
        let Socket::Listener(socket) = socket else {
            let problem = format!("{name} is no socket of TCP: a cache takes no others");
            return Err(Error::option("sockets", problem));
        };
        // What is accepted inherits it: a reply is not to wait for others.
        let no_delay = SockRef::from(&socket).set_tcp_nodelay(true);
        no_delay.map_err(|e| Error::io("TCP_NODELAY on an inherited socket", e))?;
        server = Some(match server {
            Some(server) => server.and_from_std(socket)?,
            None => Server::from_std(socket)?,
        });
    }
    Ok(server.expect("there are some").keep_listening(keeps))
}

/// Offers the sockets to a successor, on a thread of its own, which ends with the program.
fn offer(offer: Offer, sockets: Vec<Inherited>, events: mpsc::Sender<Event>) -> Result<(), Error> {
    let offering = move || {
        let event = match offer.hand_over(&sockets) {
            Ok(()) => Event::Replaced,
            Err(error) => Event::NotOffered(error),
        };
        let _ = events.send(event);
    };
    let started = thread::Builder::new().name("hand-over".into()).spawn(offering);
    started.map(drop).map_err(|e| Error::io("starting a thread", e))
}

/// How long a cache that was replaced serves on at least, where it has clients: it may have accepted one just now.
const LEAST: Duration = Duration::from_secs(1);

/// Waits until nobody is accepted any more and all clients have gone, for so long at most, or until told to end.
fn finish(running: &Running, events: &mpsc::Receiver<Event>, longest: Duration) {
    let until = Instant::now() + longest.max(LEAST);
    while running.is_running() {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Woken | Event::Replaced | Event::NotOffered(_)) => {}
            Ok(Event::Signal | Event::Drained) | Err(_) => break,
        }
    }
}
