//! weir-cache: serves a cache until it is told to end.

use clap::Parser;
use std::{mem, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};
use weir::{
    Error,
    tcp::{AnyDesign, Server},
};
use weir_cache::{Cache, Settings, clock::Clock, metrics, parse_bytes};
use weir_program::{EXIT_CODES, Options, Program, Servers, exit_code, listen};

/// A cache that speaks RESP, as Redis does: redis-cli, redis-benchmark and clients for Redis work with it. It keeps
/// everything in memory and nothing else. One that replaces another (--hand-over) begins without keys.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Args {
    /// Address and port to listen on; repeatable. Port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:6379")]
    bind: Vec<SocketAddr>,

    /// Port of 127.0.0.1 to listen on, instead of --bind.
    #[arg(short, long, conflicts_with = "bind")]
    port: Option<u16>,

    /// Also listen on a Unix socket at this path (`redis-cli -s PATH`).
    #[arg(long, value_name = "PATH", conflicts_with = "hand_over")]
    unixsocket: Option<PathBuf>,

    /// Mode of that socket's file, in octal, such as 700: whoever may write to it may connect [default: as the umask
    /// says].
    #[arg(long, value_name = "MODE", value_parser = parse_mode, requires = "unixsocket")]
    unixsocketperm: Option<u32>,

    /// Design with its options, as `weir designs` lists them [default: the first of epoll, port and blocking that this
    /// system has].
    #[arg(long)]
    design: Option<String>,

    /// Bytes received at a time, at most.
    #[arg(short, long, default_value = "16k", value_parser = parse_bytes)]
    buffer: usize,

    #[command(flatten)]
    settings: Settings,

    #[command(flatten)]
    program: Options,
}

/// The mode of a file, in octal.
fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("allowed: 0 to 777, in octal".into()),
    }
}

fn main() -> ExitCode {
    exit_code(run(&Args::parse()))
}

/// The design of a cache of which nothing else is said.
fn usual_design() -> Result<AnyDesign, Error> {
    let all = ["epoll", "port", "blocking"].map(AnyDesign::parse);
    let runs = |it: &AnyDesign| it.availability().is_ok();
    all.into_iter()
        .find(|it| it.as_ref().is_ok_and(runs))
        .unwrap_or_else(|| AnyDesign::parse("blocking"))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let design = args.design.as_deref().map_or_else(usual_design, AnyDesign::parse)?;
    design.availability()?;
    let addresses = match args.port {
        Some(port) => vec![SocketAddr::from(([127, 0, 0, 1], port))],
        None => args.bind.clone(),
    };
    let mut program = Program::begin(&args.program)?;
    let mut sockets = mem::take(&mut program.given);
    if !sockets.datagrams.is_empty() {
        let problem =
            "a UDP socket was passed on, which a cache does not use: pass only TCP sockets";
        return Err(Error::option("sockets", problem).into());
    }
    if sockets.listeners.is_empty() && program.hands_over() {
        sockets.listeners = addresses.iter().map(|at| listen(*at)).collect::<Result<_, _>>()?;
    }
    program.keep(&sockets)?;
    let server = match sockets.listeners.is_empty() {
        true => addresses[1..].iter().fold(Server::bind(addresses[0]), |it, at| it.and_bind(*at)),
        false => program.server(sockets.listeners)?,
    };
    let mut server = server.buffer_bytes(args.buffer);
    if let Some(path) = &args.unixsocket {
        server = server.and_bind_unix(path);
    }
    if let Some(mode) = args.unixsocketperm {
        server = server.unix_mode(mode);
    }
    let cache = Cache::new(args.settings.clone(), Clock::steady())?;
    let servers: Servers = Servers { udp: None, tcp: Some(cache.start(&server, design)?) };
    let shared = Arc::clone(cache.shared());
    let left = program.run("listens on", servers, move |servers, page| {
        metrics::write(page, &shared);
        if let Some(server) = &servers.tcp {
            page.counted("weir_cache_tcp", server.counters().named());
        }
        page.cpu_time();
    })?;
    let counts = cache.shared().store.counts();
    println!(
        "{} clients, {} keys, {} hits, {} misses, {} expired, {} evicted",
        left.map_or(0, |left| left.total().accepted),
        counts.keys,
        counts.hits,
        counts.misses,
        counts.expired,
        counts.evicted
    );
    Ok(())
}
