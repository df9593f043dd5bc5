//! How ranks meet that have been found to be one build ([`weir_load::ranks::join`]): an address is found at which every
//! generator reaches the server's host.
//!
//! The rank that serves listens on each of its addresses, and every generator connects to them: whoever answers with the
//! number that the ranks know is that host. So the address is one of a host that takes part, however names, routes and
//! namespaces are set up. Every step is a collective call that all ranks make in the same order.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir::machine::Machine;
use weir_load::control::{clock_id, host_id, nonce};
use weir_load::ranks::{Lost, Ranks};

use super::cores::{Place, share_out};
use super::message::{Agreed, Hello, read, write};
use super::own::{self, Own};
use super::{Host, Hosts, Link};

/// How long ranks may take to come, once they were started, and for each step.
const MEET_WITHIN: Duration = Duration::from_secs(60);
/// How long a connection to an address may take that may not be reachable.
const REACH_WITHIN: Duration = Duration::from_secs(2);
/// How long what is said on one may take: whoever says it needs a core for that.
const SAID_WITHIN: Duration = Duration::from_secs(10);
/// Most that are answered at a time; more are sent away, who are none of the run.
const MOST_ANSWERS: usize = 1024;
/// Most addresses of a server's host that are tried.
const MOST_ADDRESSES: usize = 32;

/// What is asked of a comparison over hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The rank that serves.
    pub server: usize,
    /// The server's address, unless one is to be found.
    pub address: Option<IpAddr>,
    /// The cores of the server, unless they are shared out.
    pub server_cores: Vec<usize>,
    /// The cores of each generator, likewise.
    pub generator_cores: Vec<usize>,
    /// Threads of a generator, at most.
    pub threads: usize,
}

/// What rank 0 tells all first.
#[derive(Serialize, Deserialize)]
enum Step {
    Go { server: usize, address: Option<IpAddr> },
    Refused(String),
}

/// An address on which the rank that serves listens.
#[derive(Clone, Serialize, Deserialize)]
struct Offer {
    at: SocketAddr,
    number: String,
    link: Link,
}

/// How a rank reaches each of them, or not.
#[derive(Default, Serialize, Deserialize)]
struct Reach {
    by: Vec<Option<Link>>,
}

/// What all know when they have met.
pub(super) struct Met {
    pub agreed: Agreed,
    /// What this rank has to itself.
    pub own: Own,
    /// At rank 0: where everything runs, whether all have the clock of the server, and how many connections there may be.
    pub hosts: Option<(Hosts, bool, Room)>,
}

/// How many connections there may be, where that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Descriptors of a process at the server's host.
    pub of_server: Option<u64>,
    /// The same at that of the clients' hosts where it is fewest.
    pub of_client: Option<u64>,
    /// How many connections clients that share them evenly can have, for each has so many ports.
    pub connections: Option<u64>,
}

/// Meets the others. `asked` is what rank 0 was asked for; what other ranks pass is ignored.
///
/// # Errors
/// Which rank did not come, is another build, or cannot reach the server.
pub(super) fn meet(ranks: &dyn Ranks, asked: Option<&Asked>) -> Result<Met, String> {
    let until = Instant::now() + MEET_WITHIN;
    let told = |lost: Lost| lost.to_string();
    let hellos = ranks.gather(&write(&hello()), until).map_err(told)?;
    let step = asked.map(|asked| step(ranks, asked));
    let said = step.as_ref().map(write).unwrap_or_default();
    let said = ranks.broadcast(0, said, until).map_err(told)?;
    let (server, address) = match read(&said)? {
        Step::Go { server, address } => (server, address),
        Step::Refused(why) => return Err(why),
    };

    let own = ranks.rank();
    let listening = if own == server { listen(address) } else { Ok(vec![]) };
    let offers: Result<Vec<Offer>, String> =
        listening.as_ref().map_err(String::clone).map(|all: &Vec<(TcpListener, Offer)>| {
            all.iter().map(|(_, offer)| offer.clone()).collect()
        });
    let all = ranks.gather(&write(&offers), until).map_err(told)?;
    let offers = all.map(|all| all[server].clone()).unwrap_or_default();
    let offers = ranks.broadcast(0, offers, until).map_err(told)?;
    let offers: Vec<Offer> = read::<Result<_, String>>(&offers)??;
    let reach = match listening {
        Ok(listening) if own == server => {
            // Until all others have tried.
            let reach = Reach { by: offers.iter().map(|offer| Some(offer.link.clone())).collect() };
            return answering(listening, || choose(ranks, reach, &offers, server, until))
                .and_then(|agreed| met(ranks, agreed, hellos.as_deref().zip(asked), until));
        }
        _ => reach(&offers),
    };
    let agreed = choose(ranks, reach, &offers, server, until)?;
    met(ranks, agreed, hellos.as_deref().zip(asked), until)
}

/// Ends the other ranks, of a comparison that comes to nothing before all have met.
pub fn call_off(ranks: &dyn Ranks, why: &str) {
    let until = Instant::now() + MEET_WITHIN;
    // Whoever does not come needs no end.
    if ranks.gather(&write(&hello()), until).is_ok() {
        let _ = ranks.broadcast(0, write(&Step::Refused(why.into())), until);
    }
}

fn hello() -> Hello {
    let machine = Machine::describe();
    let words =
        [machine.cpu_model, machine.kernel.map(|kernel| format!("{} {kernel}", machine.os))];
    Hello {
        host_id: host_id(),
        clock_id: clock_id(),
        machine: words.into_iter().flatten().collect::<Vec<_>>().join(", "),
        cores: machine.cores.into_iter().map(|core| core.number).collect(),
        descriptors: weir_load::tcp::descriptors(),
        ports: ports(),
    }
}

/// Ports that the system gives to connections from one address to another.
fn ports() -> Option<u64> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some(last.checked_sub(first)? + 1)
}

/// Whether it can go on: there must be a rank that serves, and one that does not.
fn step(ranks: &dyn Ranks, asked: &Asked) -> Step {
    let (server, count) = (asked.server, ranks.count());
    if count < 2 {
        let why = "there is one rank only: a comparison over hosts needs two, one that serves and one that generates; start \
                   more, such as mpirun -n 2";
        return Step::Refused(why.into());
    }
    if server >= count {
        let why = format!("rank {server} cannot serve: there are {count}, numbered from 0");
        return Step::Refused(why);
    }
    Step::Go { server, address: asked.address }
}

/// Listens on that address, or on all that this host has.
fn listen(address: Option<IpAddr>) -> Result<Vec<(TcpListener, Offer)>, String> {
    let links = match (weir::machine::links(), address) {
        (Ok(links), _) => links,
        (Err(_), Some(_)) => vec![],
        (Err(why), None) => {
            return Err(format!(
                "the rank that serves cannot list its addresses ({why}): give the one to use with --mpi-address"
            ));
        }
    };
    let of = |link: &weir::machine::Link, address: IpAddr| Link {
        device: link.device.clone(),
        address: Some(address),
        bits_per_s: link.bits_per_s,
        mtu_bytes: link.mtu_bytes,
        driver: link.driver.clone(),
    };
    let mut all: Vec<Link> = links
        .iter()
        .flat_map(|link| link.addresses.iter().map(move |address| of(link, *address)))
        .collect();
    if let Some(address) = address {
        all.retain(|link| link.address == Some(address));
        if all.is_empty() {
            all.push(Link { address: Some(address), ..Link::default() });
        }
    }
    all.sort_by_key(preference);
    all.truncate(MOST_ADDRESSES);
    let mut listening = vec![];
    for link in all {
        let Some(own) = link.address else { continue };
        match TcpListener::bind((own, 0))
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
        {
            Ok((at, listener)) => {
                let number = nonce().map_err(|why| format!("no random numbers: {why}"))?;
                listening.push((listener, Offer { at, number, link }));
            }
            Err(why) if address.is_some() => {
                return Err(format!("the rank that serves cannot listen on {own}: {why}"));
            }
            Err(_) => {}
        }
    }
    match listening.is_empty() {
        true => Err("the rank that serves has no address to listen on".into()),
        false => Ok(listening),
    }
}

/// The best first: loopback, which only reaches all where they are one machine; then the fastest link; and IPv4 before
/// IPv6.
fn preference(link: &Link) -> (bool, std::cmp::Reverse<u64>, bool) {
    let address = link.address;
    let is_loopback = address.is_some_and(|address| address.is_loopback());
    let is_v6 = address.is_some_and(|address| address.is_ipv6());
    (!is_loopback, std::cmp::Reverse(link.bits_per_s.unwrap_or(0)), is_v6)
}

/// Answers whoever connects, until `f` has returned.
fn answering<R>(listening: Vec<(TcpListener, Offer)>, f: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    let at_once = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut wake = vec![];
        for (listener, offer) in listening {
            wake.push(offer.at);
            let (is_over, at_once) = (&is_over, &at_once);
            scope.spawn(move || {
                for stream in listener.incoming() {
                    // The last one is ourselves.
                    let Ok(stream) = stream else { return };
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    if at_once.fetch_add(1, Ordering::SeqCst) >= MOST_ANSWERS {
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        continue;
                    }
                    // One that is slow keeps nobody waiting.
                    let number = offer.number.clone();
                    scope.spawn(move || {
                        answer(stream, &number);
                        at_once.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
        let result = f();
        is_over.store(true, Ordering::SeqCst);
        for at in wake {
            // If it fails nobody listens there.
            let _ = TcpStream::connect_timeout(&at, REACH_WITHIN);
        }
        result
    })
}

/// Answers one. Whoever cannot be answered was not, and knows it.
fn answer(mut stream: TcpStream, number: &str) {
    let _ = stream.set_read_timeout(Some(SAID_WITHIN));
    if stream.read_exact(&mut [0]).is_ok() {
        let _ = stream.write_all(number.as_bytes());
    }
}

/// What is said to a listener.
const ANSWER: u8 = 1;

/// Tries to reach each of these, all at once.
fn reach(offers: &[Offer]) -> Reach {
    let links = weir::machine::links().unwrap_or_default();
    let one = |offer: &Offer| -> Option<Link> {
        let mut stream = TcpStream::connect_timeout(&offer.at, REACH_WITHIN).ok()?;
        stream.set_read_timeout(Some(SAID_WITHIN)).ok()?;
        stream.write_all(&[ANSWER]).ok()?;
        let mut said = vec![0; offer.number.len()];
        stream.read_exact(&mut said).ok()?;
        if said != offer.number.as_bytes() {
            return None;
        }
        let own = stream.local_addr().ok()?.ip().to_canonical();
        let link = links.iter().find(|link| link.addresses.contains(&own));
        Some(link.map_or_else(
            || Link { address: Some(own), ..Link::default() },
            |link| Link {
                device: link.device.clone(),
                address: Some(own),
                bits_per_s: link.bits_per_s,
                mtu_bytes: link.mtu_bytes,
                driver: link.driver.clone(),
            },
        ))
    };
    thread::scope(|scope| {
        let tries: Vec<_> = offers.iter().map(|offer| scope.spawn(|| one(offer))).collect();
        Reach { by: tries.into_iter().map(|tried| tried.join().ok().flatten()).collect() }
    })
}

/// That the host of the server is reached no longer, if that is so: why a rank that has seen something fail cannot go on.
pub(super) fn not_reached(agreed: &Agreed, ranks_host: &str) -> Option<String> {
    let Agreed { server, address, port, .. } = agreed;
    let answer = TcpStream::connect_timeout(&(*address, *port).into(), REACH_WITHIN);
    match answer {
        Err(why) if why.kind() != io::ErrorKind::ConnectionRefused => Some(format!(
            "does not reach rank {server} on {ranks_host} at {address} any more ({why}): the link of one of them is down"
        )),
        _ => None,
    }
}

/// What was chosen: which of the offers, and the link of each rank.
#[derive(Serialize, Deserialize)]
struct Chosen {
    agreed: Agreed,
    links: Vec<Link>,
}

/// Chooses the first offer that every rank reaches.
fn choose(
    ranks: &dyn Ranks,
    reach: Reach,
    offers: &[Offer],
    server: usize,
    until: Instant,
) -> Result<Chosen, String> {
    let told = |lost: Lost| lost.to_string();
    let all = ranks.gather(&write(&reach), until).map_err(told)?;
    let chosen = all.map(|all| -> Result<Chosen, String> {
        let all: Vec<Reach> = all.iter().map(|said| read(said)).collect::<Result<_, _>>()?;
        chosen(ranks, &all, offers, server)
    });
    let said = chosen.as_ref().map(write).unwrap_or_default();
    let said = ranks.broadcast(0, said, until).map_err(told)?;
    let found = read::<Result<Chosen, String>>(&said)??;
    // Whatever rank 0 says: nothing is sent to an address that did not answer this rank itself.
    let address = found.agreed.address;
    let answered = |at: usize| reach.by.get(at).is_some_and(Option::is_some);
    let is_reached = |(at, offer): (usize, &Offer)| offer.at.ip() == address && answered(at);
    match offers.iter().enumerate().any(is_reached) {
        true => Ok(found),
        false => Err(format!("rank 0 names {address}, where rank {server} did not answer")),
    }
}

fn chosen(
    ranks: &dyn Ranks,
    all: &[Reach],
    offers: &[Offer],
    server: usize,
) -> Result<Chosen, String> {
    let links_by = |at: usize| -> Option<Vec<Link>> {
        all.iter().map(|reach| reach.by.get(at)?.clone()).collect()
    };
    for (at, offer) in offers.iter().enumerate() {
        if let Some(links) = links_by(at) {
            let address = offer.at.ip();
            let own = links.iter().map(|link| link.address.unwrap_or(address)).collect();
            let key = nonce().map_err(|why| format!("no random numbers: {why}"))?;
            let agreed = Agreed { server, address, port: offer.at.port(), own, key };
            return Ok(Chosen { agreed, links });
        }
    }
    let tried: Vec<String> = offers.iter().map(|offer| offer.at.ip().to_string()).collect();
    let reaches_none = |rank: &usize| all[*rank].by.iter().all(Option::is_none);
    let who = (0..all.len()).find(reaches_none);
    let who = who.map_or_else(
        || "no address is reached by all".to_owned(),
        |rank| format!("rank {rank} on {} reaches none of them", ranks.host(rank)),
    );
    Err(format!(
        "of the addresses of rank {server} on {}, {}, {who} over TCP: look at routes and firewalls, or give one with \
         --mpi-address",
        ranks.host(server),
        tried.join(", ")
    ))
}

/// What is known then, of which rank 0 tells each rank its own.
fn met(
    ranks: &dyn Ranks,
    chosen: Chosen,
    at_root: Option<(&[Vec<u8>], &Asked)>,
    until: Instant,
) -> Result<Met, String> {
    let placed = at_root.map(|(hellos, asked)| placed(ranks, &chosen, hellos, asked));
    let placed = placed.transpose()?;
    let said = placed.as_ref().map(|(_, all, _)| write(all)).unwrap_or_default();
    let said = ranks.broadcast(0, said, until).map_err(|lost| lost.to_string())?;
    let mut all: Vec<Own> = read(&said)?;
    if all.len() != ranks.count() {
        return Err("rank 0 does not say what each rank has".into());
    }
    let have_one_clock = all.iter().all(|own| own.has_server_clock);
    let own = all.swap_remove(ranks.rank());
    let hosts = placed.map(|(hosts, _, room)| (hosts, have_one_clock, room));
    Ok(Met { agreed: chosen.agreed, own, hosts })
}

/// Where everything runs, what each rank has to itself, and how many connections there may be.
fn placed(
    ranks: &dyn Ranks,
    Chosen { agreed, links }: &Chosen,
    hellos: &[Vec<u8>],
    asked: &Asked,
) -> Result<(Hosts, Vec<Own>, Room), String> {
    let hellos: Vec<Hello> = hellos.iter().map(|said| read(said)).collect::<Result<_, _>>()?;
    let ids: Vec<String> = (0..ranks.count())
        .map(|rank| hellos[rank].host_id.clone().unwrap_or_else(|| ranks.host(rank).into()))
        .collect();
    let places: Vec<Place> = hellos
        .iter()
        .zip(&ids)
        .enumerate()
        .map(|(rank, (hello, id))| Place {
            host: id.clone(),
            serves: rank == agreed.server,
            allowed: hello.cores.clone(),
        })
        .collect();
    let shared = share_out(&places, asked.threads);
    let host = |rank: usize| {
        let of_role = match rank == agreed.server {
            true => &asked.server_cores,
            false => &asked.generator_cores,
        };
        let cores = if of_role.is_empty() { &shared[rank] } else { of_role };
        Host {
            rank,
            name: ranks.host(rank).into(),
            machine: hellos[rank].machine.clone(),
            cores: cores.clone(),
            link: links[rank].clone(),
        }
    };
    let hosts = Hosts {
        server: host(agreed.server),
        generators: (0..ranks.count()).filter(|rank| *rank != agreed.server).map(host).collect(),
        address: Some(agreed.address),
    };
    let room = room(&hosts, &ids, &hellos);
    let clocks: Vec<Option<String>> = hellos.into_iter().map(|hello| hello.clock_id).collect();
    let own = own::of_all(&hosts, &ids, &clocks);
    Ok((hosts, own, room))
}

/// On loopback clients take as many addresses as they need; elsewhere those of one host share its ports.
fn room(hosts: &Hosts, ids: &[String], hellos: &[Hello]) -> Room {
    let clients = &hosts.generators;
    let of_host = |host: &Host| {
        let is_same = |other: &&Host| {
            ids[other.rank] == ids[host.rank] && other.link.address == host.link.address
        };
        let here = clients.iter().filter(is_same).count() as u64;
        Some(hellos[host.rank].ports? / here.max(1) * clients.len() as u64)
    };
    Room {
        of_server: hellos[hosts.server.rank].descriptors,
        of_client: clients.iter().filter_map(|host| hellos[host.rank].descriptors).min(),
        connections: clients.iter().filter_map(of_host).min().filter(|_| hosts.is_elsewhere()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_comes_first_then_the_fastest_link_and_ipv4() {
        let link = |address: &str, bits_per_s| Link {
            address: address.parse().ok(),
            bits_per_s,
            ..Link::default()
        };
        let mut all = [
            link("fd00::1", Some(10)),
            link("10.0.0.1", None),
            link("10.0.1.1", Some(10)),
            link("127.0.0.1", None),
            link("10.0.2.1", Some(1)),
        ];
        all.sort_by_key(preference);
        let order: Vec<String> = all.iter().map(|link| link.address.unwrap().to_string()).collect();
        assert_eq!(order, ["127.0.0.1", "10.0.1.1", "fd00::1", "10.0.2.1", "10.0.0.1"]);
    }

    #[test]
    fn clients_of_one_host_share_its_ports() {
        let host = |rank, address: &str| Host {
            rank,
            link: Link { address: address.parse().ok(), ..Link::default() },
            ..Host::default()
        };
        let hellos = [(9, 100), (7, 100), (5, 60), (8, 100)].map(|(descriptors, ports)| Hello {
            descriptors: Some(descriptors),
            ports: Some(ports),
            ..hello()
        });
        let of = |address: &str| {
            let hosts = Hosts {
                server: host(1, address),
                generators: vec![host(0, "10.0.0.2"), host(2, "10.0.0.3"), host(3, "10.0.0.2")],
                address: address.parse().ok(),
            };
            room(&hosts, &["a", "b", "c", "a"].map(String::from), &hellos)
        };
        let room = of("10.0.0.1");
        assert_eq!((room.of_server, room.of_client), (Some(7), Some(5)));
        assert_eq!(room.connections, Some(150), "two of three have 100 together");
        assert_eq!(of("127.0.0.1").connections, None, "loopback has many addresses");
    }

    #[test]
    fn only_who_knows_the_number_is_the_server() {
        let listening = listen(Some("127.0.0.1".parse().unwrap())).unwrap();
        let offer = listening[0].1.clone();
        let wrong = Offer { number: "0".repeat(offer.number.len()), ..offer.clone() };
        let nobody = Offer { at: "127.0.0.1:1".parse().unwrap(), ..offer.clone() };
        let reach = answering(listening, || reach(&[offer, wrong, nobody]));
        let by: Vec<bool> = reach.by.iter().map(Option::is_some).collect();
        assert_eq!(by, [true, false, false]);
        assert_eq!(reach.by[0].as_ref().unwrap().address, "127.0.0.1".parse().ok());
    }
}
