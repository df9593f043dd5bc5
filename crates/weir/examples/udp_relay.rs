//! A UDP relay: it passes datagrams on between clients and one server upstream, as a router that translates addresses
//! does (NAT). Upstream sees each client as a port of the relay's, and what it sends there goes back to that client.
//!
//! ```text
//! cargo run --release -p weir-io --example udp_relay -- 127.0.0.1:7008 127.0.0.1:7007 "rio-event"
//! ```
//!
//! Nothing here is a reply to who wrote: all of it leaves by `Replies::outbox`. The port that faces the clients is the
//! server's first address; each port that faces upstream is a further one, which a client has for itself.

use std::{
    collections::HashMap,
    env,
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    limits::Limits,
    udp::{AnyDesign, Datagram, Handler, Replies, Running, Server, Transmit},
};

/// Clients at a time: each has a socket. A further one takes the place of one that has been silent for long enough, and
/// is not served where there is none.
const CLIENTS: usize = 64;

/// How long a client is silent before another may have its place.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest datagram that is passed on whole.
const LONGEST: usize = 1500;

/// The socket that faces the clients, by its place among the server's addresses.
const FACING_CLIENTS: u32 = 0;

/// Who has which port.
#[derive(Debug)]
pub struct Clients {
    by_address: HashMap<SocketAddr, usize>,
    /// Who has each port that faces upstream, and when he last sent.
    ports: Vec<Option<(SocketAddr, Instant)>>,
    /// Datagrams of clients for whom there was no port.
    pub not_served: u64,
}

impl Clients {
    /// With so many ports.
    pub fn new(ports: usize) -> Self {
        let by_address = HashMap::with_capacity(ports);
        Self { by_address, ports: vec![None; ports], not_served: 0 }
    }

    /// The port of a client, who gets one if he has none.
    fn port_of(&mut self, client: SocketAddr, now: Instant) -> Option<usize> {
        let known = self.by_address.get(&client).copied();
        let Some(port) = known.or_else(|| self.free_port(now)) else {
            self.not_served += 1;
            return None;
        };
        if let Some((before, _)) = self.ports[port].replace((client, now))
            && before != client
        {
            self.by_address.remove(&before);
        }
        self.by_address.insert(client, port);
        Some(port)
    }

    /// A port that nobody has, or whoever has been silent longest for long enough.
    fn free_port(&self, now: Instant) -> Option<usize> {
        let silent_since = |port: &usize| self.ports[*port].map(|(_, last)| last);
        let port = (0..self.ports.len()).min_by_key(silent_since)?;
        let is_free = silent_since(&port).is_none_or(|last| now - last >= SILENCE);
        is_free.then_some(port)
    }

    /// Who has a port.
    fn client_at(&self, port: usize) -> Option<SocketAddr> {
        self.ports.get(port)?.map(|(client, _)| client)
    }
}

/// One thread of the relay. The threads share the table, since an answer may come to another than the question.
pub struct Relay {
    upstream: SocketAddr,
    clients: Arc<Mutex<Clients>>,
}

impl Handler for Relay {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let way = match datagram.socket {
            _ if datagram.truncated => None, // half a datagram is none
            FACING_CLIENTS => clients
                .port_of(datagram.source, Instant::now())
                .map(|port| (port as u32 + 1, self.upstream)),
            // Only upstream may send to a client through his port.
            socket if datagram.source == self.upstream => {
                clients.client_at(socket as usize - 1).map(|client| (FACING_CLIENTS, client))
            }
            _ => None,
        };
        drop(clients);
        if let Some((socket, destination)) = way {
            // What finds no room is dropped, as on any path of UDP; the server counts it.
            let _ = replies.outbox().send_by(socket, Transmit::new(destination, datagram.bytes));
        }
    }
}

/// Starts a relay for so many clients at a time.
///
/// # Errors
/// Whatever fails before the server runs.
pub fn start(
    listen: SocketAddr,
    upstream: SocketAddr,
    design: &str,
    ports: usize,
) -> Result<(Running<Relay>, Arc<Mutex<Clients>>), weir::Error> {
    let clients = Arc::new(Mutex::new(Clients::new(ports)));
    let facing_upstream: SocketAddr = match upstream.ip() {
        ip if ip.is_loopback() => (ip, 0).into(),
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let limits = Limits::SINK.transmits_outstanding(1024);
    let server =
        (0..ports).fold(Server::bind(listen), |server, _| server.and_bind(facing_upstream));
    let for_threads = Arc::clone(&clients);
    let relay = move |_thread| Relay { upstream, clients: Arc::clone(&for_threads) };
    let server = server.payload_bytes(LONGEST).limits(limits);
    Ok((server.start(AnyDesign::parse(design)?, relay)?, clients))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        eprintln!(
            "usage: udp_relay LISTEN UPSTREAM [DESIGN], as in udp_relay 127.0.0.1:7008 127.0.0.1:7007"
        );
        std::process::exit(2);
    };
    let design = arguments.next().unwrap_or_else(|| "blocking-batch".into());
    let (server, clients) = start(listen.parse()?, upstream.parse()?, &design, CLIENTS)?;
    println!("{design} on {}, upstream {upstream} (Ctrl-C ends)", server.local_addresses()[0]);

    let stopper = server.stopper();
    ctrlc::set_handler(move || stopper.wake())?;
    server.wait();
    let report = server.stop();
    let total = report.total();
    println!(
        "{} datagrams came, {} were passed on, {} found no room, {} could not be sent, {} were of more clients than {CLIENTS}",
        total.datagrams,
        total.replies,
        total.replies_refused,
        total.send_errors,
        clients.lock().unwrap_or_else(PoisonError::into_inner).not_served,
    );
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}
