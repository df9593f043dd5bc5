//! The program: reads zones, opens sockets, and starts a server of each kind.

#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap::Parser;
use std::{
    mem,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use weir::{
    Error, counters, limits,
    socket::{SocketOptions, bind_sharing},
    tcp,
    udp::{self, Spec},
};
use weir_dns::{
    answers::{Answers, DEFAULT_LIMIT, SHORTEST_LIMIT},
    name::Name,
    query::RCODES,
    serve::{Connection, Counts, Datagrams},
    zone::Zone,
};
use weir_program::{EXIT_CODES, Options, Program, Servers, Sockets, exit_code, metrics::Page};

/// An authoritative DNS server: answers by UDP and TCP from zone files, with any I/O design of weir.
///
/// On SIGINT or SIGTERM it finishes what it has begun, and ends.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Args {
    /// A zone file (RFC 1035, section 5). Put the zone's name before it, as in example.com=example.zone, if the file
    /// has relative names and no $ORIGIN. Repeatable.
    #[arg(long = "zone", value_name = "[NAME=]FILE", required = true)]
    zones: Vec<String>,

    /// Address to listen on, for UDP and TCP; repeatable. Port 0 takes any free one.
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

    /// Longest datagram to send, in bytes, to clients that accept as much (EDNS). A longer answer is truncated, and the
    /// client asks again over TCP.
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_LIMIT,
          value_parser = clap::value_parser!(u16).range(i64::from(SHORTEST_LIMIT)..=4096))]
    longest: u16,

    /// Most datagrams sent per second by all threads together, which limits what somebody can aim at a third party with
    /// forged source addresses [default: no limit].
    #[arg(long, value_name = "NUMBER")]
    answers_per_s: Option<u64>,

    /// Send answers in the order of their queries. Otherwise answers of one batch to the same client and of the same
    /// length are sent together, which costs less. A limit on answers implies this option.
    #[arg(long)]
    in_order: bool,

    /// Most connections at a time; further ones are refused.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    connections: u32,

    /// How long a connection may be silent, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    idle: u64,

    #[command(flatten)]
    program: Options,
}

fn main() -> ExitCode {
    exit_code(run(&Args::parse()))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let zones = args.zones.iter().map(|text| read_zone(text)).collect::<Result<Vec<_>, _>>()?;
    let answers = Arc::new(Answers::new(zones)?);
    let (names, counts) = (answers.names(), AllCounts::default());
    let udp = asked_for(&args.udp, Spec::parse).context("--udp")?;
    let tcp = asked_for(&args.tcp, tcp::AnyDesign::parse).context("--tcp")?;
    if udp.is_none() && tcp.is_none() {
        let problem = "nothing would be answered: give --udp or --tcp a design";
        return Err(Error::option("udp", problem).into());
    }
    let mut program = Program::begin(&args.program)?;
    if let (true, Some(spec)) = (program.hands_over(), &udp) {
        spec.design.ends_without_loss().context("--hand-over with this --udp")?;
    }
    let all = All { args, answers, counts: counts.clone(), udp, tcp };
    let servers = all.start(&mut program)?;
    let page = move |servers: &Servers<_>, page: &mut Page| write(page, servers, &counts, names);
    program.run(&format!("answers {names} names at"), servers, page)?;
    Ok(())
}

/// The design that was asked for, if one was.
fn asked_for<D>(text: &str, parse: fn(&str) -> Result<D, Error>) -> Result<Option<D>, Error> {
    (text != "none").then(|| parse(text)).transpose()
}

fn read_zone(text: &str) -> anyhow::Result<Zone> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) => {
            (Some(Name::parse(name).map_err(|why| Error::option("zone", why))?), file)
        }
        None => (None, text),
    };
    let zone = Zone::read(Path::new(file), name.as_ref())?;
    if let Some(name) = name.filter(|name| name != zone.apex()) {
        let problem = format!("{file} has the zone {}, not {name}", zone.apex());
        return Err(Error::option("zone", problem).into());
    }
    Ok(zone)
}

/// What the handlers count, of all threads.
#[derive(Clone, Default)]
struct AllCounts(Arc<Mutex<Vec<Arc<Counts>>>>);

impl AllCounts {
    /// Counts for one more handler.
    fn one_more(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        counts
    }

    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|counts| of(counts).load(Relaxed)).sum()
    }
}

fn write(page: &mut Page, servers: &Servers<Datagrams>, counts: &AllCounts, names: usize) {
    let by_rcode = RCODES.iter().enumerate();
    let by_rcode = by_rcode.map(|(at, (_, name))| (*name, counts.sum(|of| &of.by_rcode[at])));
    page.counter_by("weir_dns_answers_total", "Answers, by their code.", "rcode", by_rcode);
    let truncated = counts.sum(|of| &of.truncated);
    let help = "Answers that did not fit into a datagram.";
    page.counter("weir_dns_truncated_total", help, truncated);
    let help = "Messages that were not answered, because they were not queries.";
    page.counter("weir_dns_dropped_total", help, counts.sum(|of| &of.dropped));
    page.gauge("weir_dns_names", "Names that have answers.", names);
    let open = servers.tcp.as_ref().map_or(0, tcp::Running::open);
    page.gauge("weir_dns_connections_open", "Connections that are open.", open);
    if let Some(server) = &servers.udp {
        let mut total = counters::Snapshot::default();
        server.counters().iter().for_each(|thread| total.merge(thread));
        page.counted("weir_udp", total.named());
    }
    if let Some(server) = &servers.tcp {
        page.counted("weir_tcp", server.counters().named());
    }
    page.cpu_time();
}

/// How often a port is tried that is free for connections and may not be for datagrams.
const TRIES: usize = 16;

/// What servers are started with.
struct All<'a> {
    args: &'a Args,
    answers: Arc<Answers>,
    counts: AllCounts,
    udp: Option<Spec>,
    tcp: Option<tcp::AnyDesign>,
}

impl All<'_> {
    /// Starts the servers by what was passed on, or by sockets of their own.
    fn start(&self, program: &mut Program<'_>) -> anyhow::Result<Servers<Datagrams>> {
        let mut given = mem::take(&mut program.given);
        if !given.datagrams.is_empty() || !given.listeners.is_empty() {
            // What nobody serves is neither kept nor handed over.
            if self.udp.is_none() {
                given.datagrams.clear();
            }
            if self.tcp.is_none() {
                given.listeners.clear();
            }
            return self.start_by(program, given, vec![]);
        }
        let free = self.tcp.is_some() && self.args.listen.iter().any(|at| at.port() == 0);
        for last in (0..TRIES).rev() {
            match self.start_at(program) {
                Err(e)
                    if free && last > 0 && matches!(e.downcast_ref(), Some(Error::Bind { .. })) => {
                }
                result => return result,
            }
        }
        unreachable!("the last try returns")
    }

    fn start_at(&self, program: &mut Program<'_>) -> anyhow::Result<Servers<Datagrams>> {
        let (mut sockets, mut addresses) = (Sockets::default(), self.args.listen.clone());
        if self.tcp.is_some() {
            for address in &mut addresses {
                let listener = weir_program::listen(*address)?;
                *address = listener.local_addr()?;
                sockets.listeners.push(listener);
            }
        }
        if let (true, Some(spec)) = (program.hands_over(), &self.udp) {
            for address in &addresses {
                let each = spec.design.sockets_per_address();
                sockets.datagrams.append(&mut bind_sharing(*address, each)?);
            }
        }
        self.start_by(program, sockets, addresses)
    }

    /// Starts the servers by these sockets. Without any for datagrams the server has its own at these addresses, which cost
    /// less.
    fn start_by(
        &self,
        program: &mut Program<'_>,
        sockets: Sockets,
        addresses: Vec<SocketAddr>,
    ) -> anyhow::Result<Servers<Datagrams>> {
        program.keep(&sockets)?;
        let Sockets { datagrams, listeners } = sockets;
        let udp = self.udp.as_ref().map(|spec| self.serve_udp(spec, datagrams, addresses));
        let udp = udp.transpose()?;
        let tcp = self.tcp.as_ref().map(|design| self.serve_tcp(design, program, listeners));
        Ok(Servers { udp, tcp: tcp.transpose()? })
    }

    fn serve_udp(
        &self,
        spec: &Spec,
        sockets: Vec<UdpSocket>,
        addresses: Vec<SocketAddr>,
    ) -> anyhow::Result<udp::Running<Datagrams>> {
        const NONE: &str = "no UDP socket was passed on: pass one, or give --udp none";
        let given = sockets.iter().map(UdpSocket::local_addr).collect::<Result<Vec<_>, _>>()?;
        let anywhere = given.iter().chain(&addresses).any(|address| address.ip().is_unspecified());
        let (mut sockets, mut addresses) = (sockets.into_iter(), addresses.into_iter());
        let server = match sockets.next() {
            Some(first) => {
                sockets.try_fold(udp::Server::from_std(first)?, udp::Server::and_from_std)?
            }
            None => {
                let first = udp::Server::bind(addresses.next().context(NONE)?);
                addresses.fold(first, udp::Server::and_bind)
            }
        };
        let Args { longest, answers_per_s, in_order, .. } = *self.args;
        // The limit on answers a second is one on replies.
        let joins = !in_order && answers_per_s.is_none();
        let limits = limits::Limits::default()
            .replies_outstanding(4096)
            // The shortest query has 17 bytes: the root's name, a type, a class, and a header.
            .reply_percent(u32::from(longest) * 100 / 17 + 1)
            .replies_per_s(answers_per_s)
            .transmits_outstanding(if joins { 4096 } else { 0 })
            // Answers are told from queries, and never answered.
            .refuse_loops(false);
        let server = server
            // Also of answers that leave together.
            .payload_bytes(usize::from(longest).max(2048))
            .region_options(spec.region)
            .socket_options(SocketOptions::default().local_address(anywhere))
            .limits(limits);
        let (answers, counts) = (Arc::clone(&self.answers), self.counts.clone());
        let running = server.start(spec.design.clone(), move |_thread| {
            Datagrams::new(Arc::clone(&answers), counts.one_more(), longest, joins)
        });
        running.context("answering by UDP")
    }

    fn serve_tcp(
        &self,
        design: &tcp::AnyDesign,
        program: &Program<'_>,
        listeners: Vec<TcpListener>,
    ) -> anyhow::Result<tcp::Running> {
        let idle = Some(Duration::from_secs(self.args.idle));
        let limits = tcp::Limits::default()
            .connections(self.args.connections)
            .silent(idle)
            .idle(idle)
            .stalled(idle);
        let (answers, counts) = (Arc::clone(&self.answers), self.counts.one_more());
        let server = program.server(listeners)?.limits(limits);
        let running = server.start(design.clone(), move |_peer| {
            Connection::new(Arc::clone(&answers), Arc::clone(&counts))
        });
        running.context("answering by TCP")
    }
}
