//! What the programs of the servers have in common: options, sockets that come from elsewhere, metrics, waiting to be
//! told to end or to be replaced, and the end.

#![forbid(unsafe_code)]

pub mod metrics;

use anyhow::Context as _;
use metrics::Page;
use socket2::{Domain, SockRef, Type};
use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error, Unavailable,
    inherited::{self, Inherited, MOST_SOCKETS, Offer, Socket, TakenOver, take_over},
    stream::StreamOptions,
    tcp,
    udp::{self, Datagram, Replies},
    wake::Waker,
};

/// What [`exit_code`] says, for the help.
pub const EXIT_CODES: &str = "Exit codes: 0 ended by a signal, or replaced; 1 it failed; 2 wrong usage; 5 it cannot run here.";

/// Tells of the error, if there is one.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let (mut told, mut code) = (String::from("error"), 1);
    for cause in error.chain() {
        told += &format!(": {cause}");
        code = match cause.downcast_ref() {
            Some(Error::Option { .. } | Error::UnknownName { .. }) => 2,
            Some(Error::Unavailable(_)) => 5,
            Some(_) => 1,
            None if cause.is::<Unavailable>() => 5,
            None => continue,
        };
        break; // weir's errors tell of their causes themselves
    }
    eprintln!("{told}");
    ExitCode::from(code)
}

/// Options of every program.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Serve counters for Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9153, to everybody who can reach that
    /// address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Replace the program that was started with the same path, and be replaced by the next one. The new program takes
    /// over the sockets, so addresses only count for the first one; the old program ends when its connections have
    /// ended. Nothing that arrives meanwhile is lost or refused. PATH is for a Unix socket, in a folder that nobody
    /// else may write to.
    #[arg(long, value_name = "PATH")]
    pub hand_over: Option<PathBuf>,

    /// How long a replaced program goes on serving its connections, in seconds; those that are left are then cut off.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub finish: u64,
}

/// Sockets to be served.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Of UDP.
    pub datagrams: Vec<UdpSocket>,
    /// Of TCP.
    pub listeners: Vec<TcpListener>,
}

/// What the sockets are called where they are handed over.
const NAME: &str = "server";

/// What the one for metrics is called there.
pub const METRICS: &str = "metrics";

/// A socket that listens, and may be handed over.
///
/// # Errors
/// [`Error::Bind`].
pub fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let bound = (|| {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(StreamOptions::default().backlog as i32)?;
        Ok(TcpListener::from(socket))
    })();
    bound.map_err(|source| Error::Bind { address, source })
}

/// The servers of a program.
pub struct Servers<H = fn(Datagram<'_>, &mut Replies<'_>)> {
    /// That of datagrams.
    pub udp: Option<udp::Running<H>>,
    /// That of connections.
    pub tcp: Option<tcp::Running>,
}

/// A program that has begun.
pub struct Program<'a> {
    options: &'a Options,
    /// The one that it replaces.
    before: Option<TakenOver>,
    /// What that one or a service manager has passed on, without the socket for metrics.
    pub given: Sockets,
    metrics: Option<TcpListener>,
    /// What goes to a successor.
    kept: Vec<Inherited>,
}

/// What a program waits for.
enum Event {
    /// A signal.
    Told,
    /// The end of a server.
    Ended,
    /// The server of connections accepts no more, and has none left.
    Drained,
    /// A successor serves the sockets.
    Replaced,
    /// Nobody can ask for them any more.
    NotOffered(Error),
}

/// How long a program that was replaced serves on at least, where connections are left: it may have accepted one just now.
pub const LEAST: Duration = Duration::from_secs(1);

/// Waits at this place for a successor, which gets these sockets, on a thread that ends with the program. `handed` is told
/// when it serves them, or that none will.
///
/// # Errors
/// If there can be no thread for it.
pub fn offer(
    place: Offer,
    sockets: Vec<Inherited>,
    handed: impl FnOnce(Result<(), Error>) + Send + 'static,
) -> anyhow::Result<()> {
    let offering = move || handed(place.hand_over(&sockets));
    let thread = thread::Builder::new().name("hand-over".into()).spawn(offering);
    thread.map(drop).context("starting a thread")
}

impl<'a> Program<'a> {
    /// Takes what it is given.
    ///
    /// # Errors
    /// If that cannot be had, or is neither of UDP nor of TCP, or there can be no metrics at their address.
    pub fn begin(options: &'a Options) -> anyhow::Result<Self> {
        let mut before = options.hand_over.as_deref().map(take_over).transpose()?.flatten();
        let sockets = match &mut before {
            Some(before) => before.sockets(),
            None => inherited::from_service_manager()?,
        };
        let (mut given, mut metrics) = (Sockets::default(), None);
        for Inherited { name, socket } in sockets {
            match socket {
                Socket::Listener(socket) if name == METRICS => metrics = Some(socket),
                Socket::Listener(socket) => given.listeners.push(socket),
                Socket::Datagrams(socket) => given.datagrams.push(socket),
                _ => {
                    let problem = format!("socket {name:?} is neither a UDP nor a TCP socket");
                    return Err(Error::option("sockets", problem).into());
                }
            }
        }
        let metrics = match options.metrics {
            Some(at) if metrics.is_none() => Some(listen(at).context("serving metrics")?),
            Some(_) => metrics,
            None => None,
        };
        Ok(Self { options, before, given, metrics, kept: vec![] })
    }

    /// Whether a successor may come.
    pub fn hands_over(&self) -> bool {
        self.options.hand_over.is_some()
    }

    /// Has these sockets, which are served from now on, go to a successor, if one may come.
    ///
    /// # Errors
    /// If there are too many, or what the system answered.
    pub fn keep(&mut self, sockets: &Sockets) -> anyhow::Result<()> {
        if !self.hands_over() {
            return Ok(());
        }
        self.kept.clear();
        let mut keep = |name: &str, socket| self.kept.push(Inherited { name: name.into(), socket });
        for socket in &sockets.datagrams {
            keep(NAME, Socket::Datagrams(socket.try_clone()?));
        }
        for socket in &sockets.listeners {
            keep(NAME, Socket::Listener(socket.try_clone()?));
        }
        if let Some(socket) = &self.metrics {
            keep(METRICS, Socket::Listener(socket.try_clone()?));
        }
        if self.kept.len() > MOST_SOCKETS {
            let problem = format!(
                "{} sockets are too many to hand over, {MOST_SOCKETS} at most: use fewer threads, fewer addresses, or \
                 another design",
                self.kept.len(),
            );
            return Err(Error::option("hand-over", problem).into());
        }
        Ok(())
    }

    /// A server by these sockets, of which there must be one.
    ///
    /// # Errors
    /// If there is none, or what the system answered.
    pub fn server(&self, listeners: Vec<TcpListener>) -> anyhow::Result<tcp::Server> {
        for listener in &listeners {
            // What is accepted inherits it: an answer is not to wait for others.
            SockRef::from(listener).set_tcp_nodelay(true).context("TCP_NODELAY")?;
        }
        let mut listeners = listeners.into_iter();
        let first = listeners.next().context("no TCP socket was passed on")?;
        let server =
            listeners.try_fold(tcp::Server::from_std(first)?, tcp::Server::and_from_std)?;
        Ok(server.keep_listening(self.hands_over()))
    }

    /// Has the servers serve until it is told to end, or was replaced: `says` goes before each of their addresses. What
    /// `page` writes is served as metrics. Gives what is left of the server of connections.
    ///
    /// # Errors
    /// Why a server failed, or the program that it replaces is not there any more.
    pub fn run<H: udp::Handler>(
        mut self,
        says: &str,
        servers: Servers<H>,
        page: impl Fn(&Servers<H>, &mut Page) + Send + Sync + 'static,
    ) -> anyhow::Result<Option<tcp::Final>> {
        let servers = Arc::new(servers);
        let metrics = self.metrics.take().map(|socket| {
            let servers = Arc::downgrade(&servers);
            let write = move |out: &mut Page| {
                servers.upgrade().inspect(|servers| page(servers, out));
            };
            metrics::serve(self.server(vec![socket])?, write).context("serving metrics")
        });
        let metrics = metrics.transpose()?;
        let (events, happens) = mpsc::channel();
        let tells = |event: fn() -> Event| {
            let events = events.clone();
            move || _ = events.send(event())
        };
        ctrlc::set_handler(tells(|| Event::Told)).context("cannot handle signals")?;
        if let Some(server) = &servers.udp {
            server.on_end(Waker::new(tells(|| Event::Ended)));
        }
        if let Some(server) = &servers.tcp {
            server.on_end(Waker::new(tells(|| Event::Ended)));
            server.on_drained(Waker::new(tells(|| Event::Drained)));
        }
        // Where a successor could not reach this one, it does not begin.
        let place = self.options.hand_over.as_deref().map(Offer::at).transpose()?;
        if let Some(before) = self.before {
            before.serving()?;
        }
        if let Some(place) = place {
            let events = events.clone();
            offer(place, self.kept, move |handed| {
                let event = handed.map_or_else(Event::NotOffered, |()| Event::Replaced);
                let _ = events.send(event);
            })?;
        }
        let udp = servers.udp.iter().flat_map(udp::Running::local_addresses);
        let addresses: BTreeSet<&SocketAddr> =
            udp.chain(servers.tcp.iter().flat_map(tcp::Running::local_addresses)).collect();
        addresses.iter().for_each(|address| println!("{says} {address}"));
        let unix = servers.tcp.iter().flat_map(tcp::Running::unix_addresses);
        unix.for_each(|address| println!("{says} {address}"));
        if let Some(metrics) = &metrics {
            println!("metrics at http://{}/metrics", metrics.local_addresses()[0]);
        }
        let event = loop {
            match happens.recv()? {
                Event::NotOffered(error) => {
                    eprintln!("warning: this program can no longer be replaced: {error}");
                }
                event => break event,
            }
        };
        let replaced = matches!(event, Event::Replaced);
        if let (true, Some(server)) = (replaced, &servers.tcp) {
            server.end_accepting()?;
        }
        // Whoever scrapes from now on reaches the successor. Without these nobody else has the servers.
        let failure = metrics.and_then(|server| server.stop().failure);
        let Servers { udp, tcp } = Arc::into_inner(servers).context("counters are still read")?;
        let failure = failure.or(udp.and_then(|server| server.stop().failure));
        if let (true, Some(server)) = (replaced, &tcp) {
            finish(server, &happens, Duration::from_secs(self.options.finish));
        }
        let mut left = tcp.map(tcp::Running::stop);
        match failure.or_else(|| left.as_mut()?.failure.take()) {
            Some(failure) => Err(failure.into()),
            None => Ok(left),
        }
    }
}

/// Waits until nothing more is accepted and the connections are over, for so long at most, or until told to end.
fn finish(server: &tcp::Running, happens: &mpsc::Receiver<Event>, longest: Duration) {
    let until = Instant::now() + longest.max(LEAST);
    while server.is_running() {
        // That of datagrams has ended by now, and says so.
        match happens.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended | Event::NotOffered(_) | Event::Replaced) => {}
            Ok(Event::Told | Event::Drained) | Err(_) => break,
        }
    }
}
