//! The program: reads zones, opens sockets, starts a server of each kind, and waits to be told to end.

#![forbid(unsafe_code)]

use anyhow::{Context as _, bail};
use clap::Parser;
use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};
use weir::{
    counters::os::Sampler,
    inherited::{self, Inherited, Offer, Socket, take_over},
    limits,
    socket::{SocketOptions, bind_sharing, sockets_can_be_given},
    tcp,
    udp::{self, Spec},
    wake::Waker,
};
use weir_dns::{
    answers::{Answers, DEFAULT_LIMIT, SHORTEST_LIMIT},
    metrics::{self, Figures},
    name::Name,
    serve::{Connection, Counted, Counts, Datagrams},
    zone::Zone,
};

/// What was asked for makes no sense.
const USAGE: u8 = 2;

/// An authoritative DNS server: answers by UDP and TCP from zone files, with any I/O design of weir.
///
/// A signal to end (SIGINT, SIGTERM) lets it finish what it has begun.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// A zone: its file (RFC 1035, 5), or its name and its file, such as example.com=example.zone, where names in the
    /// file end without a dot and it does not say below which they are. Several may be given.
    #[arg(long = "zone", value_name = "[NAME=]FILE", required = true)]
    zones: Vec<String>,

    /// An address to listen on, by UDP and TCP; several may be given. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:53")]
    listen: Vec<SocketAddr>,

    /// The design for UDP with its options, as `weir designs` lists them; "none" answers no datagrams.
    #[arg(
        long,
        value_name = "DESIGN",
        default_value = "rio-hybrid --threads 1 --outstanding 4096"
    )]
    udp: String,

    /// The design for TCP with its options; "none" accepts no connections.
    #[arg(long, value_name = "DESIGN", default_value = "epoll --threads 1")]
    tcp: String,

    /// The longest datagram that is sent, in bytes, to clients that take as much (EDNS). A longer answer is cut, and the
    /// client asks again by TCP.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LIMIT,
          value_parser = clap::value_parser!(u16).range(i64::from(SHORTEST_LIMIT)..=4096))]
    longest: u16,

    /// The most datagrams that are sent in a second, by all threads together: what somebody with a forged address can have
    /// sent to a third [default: no limit].
    #[arg(long, value_name = "NUMBER")]
    answers_per_s: Option<u64>,

    /// Send answers in the order of their queries. Else those of one batch that go to one client and are of one length leave
    /// together, which costs less. It is so, too, with a limit on answers.
    #[arg(long)]
    in_order: bool,

    /// The most connections at a time; a further one is refused.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    connections: u32,

    /// How long a connection may be silent, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    idle: u64,

    /// Serve counters for Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9153: to everybody who can reach that
    /// address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Replace the weir-dns that was started with the same path, and be replaced by the next one: it takes over the sockets
    /// (--listen counts for the first one only), and the other ends when its connections do. No query is lost. The path is
    /// one for a Unix socket, in a folder that nobody else may write to.
    #[arg(long, value_name = "PATH")]
    hand_over: Option<PathBuf>,

    /// How long connections are served on by a server that was replaced, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    finish: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            let is_usage = error.chain().any(|cause| {
                matches!(
                    cause.downcast_ref(),
                    Some(weir::Error::Option { .. } | weir::Error::UnknownName { .. })
                ) || cause.is::<Wrong>()
            });
            ExitCode::from(if is_usage { USAGE } else { 1 })
        }
    }
}

/// An argument that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Wrong(String);

/// What the program waits for.
enum Event {
    /// A signal.
    Told,
    /// The end of a server.
    End,
    /// The server of connections accepts no more, and has none left.
    Drained,
    /// A successor serves the sockets.
    Replaced,
    /// Nobody can ask for the sockets any more.
    NotOffered(weir::Error),
}

fn run(args: &Args) -> anyhow::Result<()> {
    let zones = args.zones.iter().map(|text| read_zone(text)).collect::<Result<Vec<_>, _>>()?;
    let answers = Arc::new(Answers::new(zones)?);
    let (udp, tcp) = (design(&args.udp), design(&args.tcp));
    if udp.is_none() && tcp.is_none() {
        bail!(Wrong("nothing would be answered: give --udp or --tcp a design".into()));
    }
    let mut before = args.hand_over.as_deref().map(take_over).transpose()?.flatten();
    let given = match &mut before {
        Some(before) => before.sockets(),
        None => inherited::from_service_manager()?,
    };
    let counts = AllCounts::default();
    let begin = |at| udp.map(|design| serve_udp(args, design, at, &answers, &counts)).transpose();
    let (listeners, metrics, offered, udp) = if given.is_empty() && args.hand_over.is_none() {
        let (listeners, udp) = serve_beside(&args.listen, tcp.is_some(), begin)?;
        (listeners, args.metrics.map(listen_for_metrics).transpose()?, None, udp)
    } else {
        let given = match given.is_empty() {
            true => bind_all(&args.listen, udp)?,
            false => given,
        };
        let mut sockets = Sockets::of(given, args.metrics)?;
        // What nobody serves is neither kept nor handed over.
        if udp.is_none() {
            sockets.datagrams.clear();
        }
        if tcp.is_none() {
            sockets.listeners.clear();
        }
        let offered = args.hand_over.as_ref().map(|_| sockets.kept()).transpose()?;
        if let Some(offered) = offered.as_ref().filter(|all| all.len() > inherited::MOST_SOCKETS) {
            bail!(Wrong(format!(
                "{} sockets cannot be handed over, {} at most: give fewer --threads, fewer addresses, or another --udp",
                offered.len(),
                inherited::MOST_SOCKETS
            )));
        }
        let udp = begin(At::Sockets(sockets.datagrams))?;
        (sockets.listeners, sockets.metrics, offered, udp)
    };
    let tcp = tcp.map(|design| serve_tcp(args, design, listeners, &answers, &counts));
    let tcp = tcp.transpose()?;
    let addresses = udp.iter().flat_map(udp::Running::local_addresses);
    let addresses = addresses.chain(tcp.iter().flat_map(tcp::Running::local_addresses));
    let addresses: BTreeSet<_> = addresses.copied().collect();
    let serving = Arc::new(Serving { udp, tcp, counts, names: answers.names() });
    let metrics = metrics.map(|listener| serving.tell(listener, args.hand_over.is_some()));
    let metrics = metrics.transpose()?;
    let (events, happens) = mpsc::channel();
    let waker = |event: fn() -> Event| {
        let events = events.clone();
        Waker::new(move || _ = events.send(event()))
    };
    let signals = events.clone();
    ctrlc::set_handler(move || _ = signals.send(Event::Told)).context("cannot heed signals")?;
    serving.udp.iter().for_each(|server| server.on_end(waker(|| Event::End)));
    serving.tcp.iter().for_each(|server| server.on_end(waker(|| Event::End)));
    serving.tcp.iter().for_each(|server| server.on_drained(waker(|| Event::Drained)));
    // Where a successor could not reach this one, it does not begin.
    let offer = args.hand_over.as_deref().map(Offer::at).transpose()?;
    if let Some(before) = before {
        before.serving()?;
    }
    if let (Some(offer), Some(offered)) = (offer, offered) {
        hand_over(offer, offered, events)?;
    }
    for address in addresses {
        println!("answers {} names at {address}", answers.names());
    }
    if let Some(metrics) = &metrics {
        println!("metrics at http://{}/metrics", metrics.local_addresses()[0]);
    }
    let event = loop {
        match happens.recv()? {
            Event::NotOffered(error) => {
                eprintln!("warning: it cannot be replaced any more: {error}")
            }
            event => break event,
        }
    };
    let mut failures = vec![];
    // Whoever reads the counters is gone before the servers are.
    failures.extend(metrics.map(|server| server.stop().failure));
    let Serving { udp, tcp, .. } = Arc::into_inner(serving).context("counters are still read")?;
    if let (Event::Replaced, Some(server)) = (&event, &tcp) {
        server.end_accepting()?;
    }
    failures.push(udp.and_then(|server| server.stop().failure));
    if let Some(server) = tcp {
        if matches!(event, Event::Replaced) {
            finish(&server, &happens, Duration::from_secs(args.finish));
        }
        failures.push(server.stop().failure);
    }
    failures.into_iter().flatten().next().map_or(Ok(()), |failure| Err(failure.into()))
}

/// The servers, and what is told of them.
struct Serving {
    udp: Option<udp::Running<Datagrams>>,
    tcp: Option<tcp::Running>,
    counts: AllCounts,
    names: usize,
}

impl Serving {
    /// Serves metrics by this socket, which goes on listening afterwards if it is to be handed over.
    fn tell(self: &Arc<Self>, listener: TcpListener, keeps: bool) -> anyhow::Result<tcp::Running> {
        let serving = Arc::downgrade(self);
        let read = move || serving.upgrade().map(|serving| serving.figures()).unwrap_or_default();
        metrics::serve(listener, keeps, read).context("serving metrics")
    }

    fn figures(&self) -> Figures {
        let mut counted = Counted::default();
        self.counts.lock().iter().for_each(|counts| counts.add_to(&mut counted));
        let mut counters = vec![];
        if let Some(server) = &self.udp {
            let mut total = weir::counters::Snapshot::default();
            server.counters().iter().for_each(|thread| total.merge(thread));
            counters.push(("udp", total.named()));
        }
        if let Some(server) = &self.tcp {
            counters.push(("tcp", server.counters().named()));
        }
        Figures {
            counted,
            names: self.names,
            open: self.tcp.as_ref().map_or(0, tcp::Running::open),
            counters,
            cpu_ns: Sampler::new().process().cpu_ns,
        }
    }
}

/// How long a server that was replaced is served on at least, where connections are left: it may have accepted one just now.
const LEAST: Duration = Duration::from_secs(1);

/// Waits until nothing more is accepted and the connections are over, for so long at most, or until told to end.
fn finish(server: &tcp::Running, happens: &mpsc::Receiver<Event>, longest: Duration) {
    let until = Instant::now() + longest.max(LEAST);
    while server.is_running() {
        // That of datagrams has ended by now, and says so.
        match happens.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::End | Event::NotOffered(_) | Event::Replaced) => {}
            Ok(Event::Told | Event::Drained) | Err(_) => break,
        }
    }
}

/// Waits for a successor on a thread of its own, which ends with the program.
fn hand_over(
    offer: Offer,
    sockets: Vec<Inherited>,
    events: mpsc::Sender<Event>,
) -> anyhow::Result<()> {
    let handing = move || {
        let event = match offer.hand_over(&sockets) {
            Ok(()) => Event::Replaced,
            Err(error) => Event::NotOffered(error),
        };
        let _ = events.send(event);
    };
    thread::Builder::new().name("hand-over".into()).spawn(handing).context("starting a thread")?;
    Ok(())
}

/// The sockets that are served.
struct Sockets {
    datagrams: Vec<UdpSocket>,
    listeners: Vec<TcpListener>,
    /// Where metrics are served.
    metrics: Option<TcpListener>,
}

impl Sockets {
    /// By their kinds, and one for metrics if these are to be served.
    fn of(sockets: Vec<Inherited>, metrics: Option<SocketAddr>) -> anyhow::Result<Self> {
        let mut of_metrics = None;
        let (mut datagrams, mut listeners) = (vec![], vec![]);
        for Inherited { name, socket } in sockets {
            match socket {
                Socket::Listener(socket) if name == METRICS => of_metrics = Some(socket),
                Socket::Datagrams(socket) => datagrams.push(socket),
                Socket::Listener(socket) => listeners.push(socket),
                _ => bail!("socket {name:?} is none of UDP or TCP: DNS has no others"),
            }
        }
        let metrics = match (metrics, of_metrics) {
            (Some(_), Some(socket)) => Some(socket),
            (Some(at), None) => Some(listen_for_metrics(at)?),
            (None, _) => None,
        };
        Ok(Self { datagrams, listeners, metrics })
    }

    /// The same once more, to be offered.
    fn kept(&self) -> std::io::Result<Vec<Inherited>> {
        let mut kept = vec![];
        for socket in &self.datagrams {
            let socket = Socket::Datagrams(socket.try_clone()?);
            kept.push(Inherited { name: NAME.into(), socket });
        }
        let listeners = self.listeners.iter().map(|socket| (NAME, socket));
        for (name, socket) in listeners.chain(self.metrics.iter().map(|socket| (METRICS, socket))) {
            let socket = Socket::Listener(socket.try_clone()?);
            kept.push(Inherited { name: name.into(), socket });
        }
        Ok(kept)
    }
}

/// What the sockets are called where they are handed over, and the one for metrics.
const NAME: &str = "dns";
const METRICS: &str = "metrics";

/// What the handlers count, of all threads.
#[derive(Clone, Default)]
struct AllCounts(Arc<Mutex<Vec<Arc<Counts>>>>);

impl AllCounts {
    /// Counts for one more handler.
    fn one_more(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.lock().push(Arc::clone(&counts));
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Counts>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The design that was asked for, if one was.
fn design(text: &str) -> Option<&str> {
    (text != "none").then_some(text)
}

fn read_zone(text: &str) -> anyhow::Result<Zone> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) => (Some(Name::parse(name).map_err(Wrong)?), file),
        None => (None, text),
    };
    let zone = Zone::read(&PathBuf::from(file), name.as_ref())?;
    if let Some(name) = name.filter(|name| name != zone.apex()) {
        bail!(Wrong(format!("{file} has the zone {}, not {name}", zone.apex())));
    }
    Ok(zone)
}

/// How often a port is tried that is free for datagrams and may not be for connections.
const TRIES: usize = 16;

/// Where datagrams are received: by sockets that others have, too, or by the server's own, which cost less.
enum At {
    Sockets(Vec<UdpSocket>),
    Addresses(Vec<SocketAddr>),
}

/// Has datagrams served at each address, by sockets of the server's own, and listens there if connections are served, too.
fn serve_beside(
    listen: &[SocketAddr],
    listens: bool,
    begin: impl Fn(At) -> anyhow::Result<Option<udp::Running<Datagrams>>>,
) -> anyhow::Result<(Vec<TcpListener>, Option<udp::Running<Datagrams>>)> {
    let free = listens && listen.iter().any(|address| address.port() == 0);
    for last in (0..TRIES).rev() {
        let listeners = match listens {
            true => listen.iter().map(|at| listen_at(*at)).collect::<Result<Vec<_>, _>>()?,
            false => vec![],
        };
        let own = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
        match begin(At::Addresses(if listens { own } else { listen.to_vec() })) {
            Ok(udp) => return Ok((listeners, udp)),
            // Its port is free for connections, and may not be for datagrams.
            Err(error) if free && last > 0 && is_taken(&error) => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("the last try returns")
}

fn is_taken(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(weir::Error::Bind { .. }))
}

fn listen_at(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))
}

fn listen_for_metrics(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))
}

/// Sockets that can be handed over, for datagrams and for connections at each address, as many for datagrams as their design
/// has.
fn bind_all(listen: &[SocketAddr], udp: Option<&str>) -> anyhow::Result<Vec<Inherited>> {
    let spec = udp.map(Spec::parse).transpose().context("--udp")?;
    let each = spec.map_or(1, |spec| spec.design.sockets_per_address());
    let mut sockets = Vec::new();
    for address in listen {
        let (udp, tcp) = bind(*address, each)?;
        let udp = udp.into_iter().map(Socket::Datagrams);
        for socket in udp.chain([Socket::Listener(tcp)]) {
            sockets.push(Inherited { name: NAME.into(), socket });
        }
    }
    Ok(sockets)
}

/// So many sockets for datagrams and one for connections at one address.
fn bind(address: SocketAddr, each: u32) -> anyhow::Result<(Vec<UdpSocket>, TcpListener)> {
    let failed = || format!("cannot listen at {address}");
    for last in (0..TRIES).rev() {
        let udp = bind_sharing(address, each).with_context(failed)?;
        match TcpListener::bind(udp[0].local_addr()?) {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(_) if address.port() == 0 && last > 0 => {}
            Err(error) => return Err(error).with_context(failed),
        }
    }
    unreachable!("the last try returns")
}

fn serve_udp(
    args: &Args,
    design: &str,
    at: At,
    answers: &Arc<Answers>,
    counts: &AllCounts,
) -> anyhow::Result<udp::Running<Datagrams>> {
    let spec = Spec::parse(design).context("--udp")?;
    if args.hand_over.is_some() {
        spec.design.ends_without_loss().context("--hand-over with this --udp")?;
    }
    let addresses = match &at {
        At::Sockets(sockets) => sockets.iter().map(UdpSocket::local_addr).collect(),
        At::Addresses(addresses) => Ok(addresses.clone()),
    };
    let anywhere = addresses?.iter().any(|address| address.ip().is_unspecified());
    let options = SocketOptions::default().local_address(anywhere);
    // The limit on answers a second is one on replies.
    let joins = !args.in_order && args.answers_per_s.is_none();
    let limits = limits::Limits::default()
        .replies_outstanding(4096)
        // The shortest query has 17 bytes: the root's name, a type, a class, and a header.
        .reply_percent(u32::from(args.longest) * 100 / 17 + 1)
        .replies_per_s(args.answers_per_s)
        .transmits_outstanding(if joins { 4096 } else { 0 })
        // Answers are told from queries, and never answered.
        .refuse_loops(false);
    let server = udp_server(at)?
        // Also of answers that leave together.
        .payload_bytes(usize::from(args.longest).max(2048))
        .region_options(spec.region)
        .socket_options(options)
        .limits(limits);
    let (answers, counts, longest) = (Arc::clone(answers), counts.clone(), args.longest);
    let running = server.start(spec.design, move |_thread| {
        Datagrams::new(Arc::clone(&answers), counts.one_more(), longest, joins)
    });
    running.context("answering by UDP")
}

/// A server there. Where it cannot have the sockets, it has its own in their place.
fn udp_server(at: At) -> anyhow::Result<udp::Server> {
    const NONE: &str = "there is no UDP socket: give one, or --udp none";
    let addresses = match at {
        At::Sockets(sockets) if sockets_can_be_given().is_ok() => {
            let mut sockets = sockets.into_iter();
            let first = udp::Server::from_std(sockets.next().context(NONE)?)?;
            return Ok(sockets.try_fold(first, udp::Server::and_from_std)?);
        }
        At::Sockets(sockets) => {
            sockets.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>()?
        }
        At::Addresses(addresses) => addresses,
    };
    let mut addresses = addresses.into_iter();
    let first = udp::Server::bind(addresses.next().context(NONE)?);
    Ok(addresses.fold(first, udp::Server::and_bind))
}

fn serve_tcp(
    args: &Args,
    design: &str,
    sockets: Vec<TcpListener>,
    answers: &Arc<Answers>,
    counts: &AllCounts,
) -> anyhow::Result<tcp::Running> {
    let design = tcp::AnyDesign::parse(design).context("--tcp")?;
    let limits = tcp::Limits::default()
        .connections(args.connections)
        .silent(Some(Duration::from_secs(args.idle)))
        .idle(Some(Duration::from_secs(args.idle)))
        .stalled(Some(Duration::from_secs(args.idle)));
    let mut sockets = sockets.into_iter();
    let first = sockets.next().context("there is no TCP socket: give one, or --tcp none")?;
    let server = sockets.try_fold(tcp::Server::from_std(first)?, tcp::Server::and_from_std)?;
    let (answers, counts) = (Arc::clone(answers), counts.one_more());
    let server = server.limits(limits).keep_listening(args.hand_over.is_some());
    let running = server
        .start(design, move |_peer| Connection::new(Arc::clone(&answers), Arc::clone(&counts)));
    running.context("answering by TCP")
}
