//! A load that several ranks make together: each has its share of the connections, begins at the same moment, and measures
//! during the same time.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Event, LoadError, LoadFigures, LoadReport, LoadSpec, Part, assemble, part::Holds,
    report::failure_of_share, run::load_rank,
};
use crate::{
    control::nonce,
    pacing::wait::Waiter,
    ranks::{
        ASKED_TO_END, Lost, Ranks,
        course::{Course, Failed, RanksReport},
    },
};

/// How long a rank waits at the beginning for the others, besides what connecting may take.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long a datagram to an own address may take.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(2);

/// What a rank says: its part without latencies, which are added up by a reduction, unless the run ends before its time.
#[derive(Serialize, Deserialize)]
struct Said {
    part: Box<Part>,
    figures: LoadFigures,
    /// What makes it a failure, if anything does.
    failure: Option<String>,
}

/// How long a connection to the rank that speaks for the server may take, which its system makes; how long what that rank then
/// says, for which it needs a core; and how often it looks for them.
const REACH_WITHIN: Duration = Duration::from_secs(2);
const SAID_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Where the rank that speaks for the server listens, and by what it is known.
#[derive(Clone, Serialize, Deserialize)]
struct Offer {
    at: SocketAddr,
    number: String,
}

/// Why a rank does not speak for a server at this address; none if it does: the address is its host's own, and each other
/// rank reaches that host by it, since many hosts have the same private addresses. All ranks call it.
///
/// # Errors
/// Who did not come.
pub fn why_not_agreed(
    ranks: &dyn Ranks,
    server: usize,
    address: IpAddr,
) -> Result<Option<String>, Lost> {
    let until = Instant::now() + READY_WITHIN;
    let listening = (ranks.rank() == server).then(|| listen(address)).flatten();
    let offer = listening.as_ref().map(|(_, offer)| offer);
    let told = serde_json::to_vec(&offer).expect("an address and a text");
    let told = ranks.broadcast(server, told, until)?;
    let host = ranks.host(server);
    let offer: Option<Offer> = serde_json::from_slice(&told).unwrap_or_default();
    let Some(offer) = offer else {
        return Ok(Some(format!(
            "{address} is not an address of rank {server} on {host} (--mpi-server), and only that rank's own host \
             agrees to a load"
        )));
    };
    let over = AtomicBool::new(false);
    let misses = thread::scope(|scope| {
        if let Some((listener, offer)) = &listening {
            let over = &over;
            scope.spawn(move || answer(listener, &offer.number, over));
        }
        let misses = who_misses(ranks, listening.is_some() || reaches(&offer), until);
        over.store(true, Relaxed);
        misses
    })?;
    Ok(misses.map(|rank| {
        format!(
            "rank {rank} on {} does not reach rank {server} on {host} (--mpi-server) at {address} over TCP: another host may \
             have that address there, or a firewall forbids it",
            ranks.host(rank)
        )
    }))
}

fn listen(address: IpAddr) -> Option<(TcpListener, Offer)> {
    if !is_own(address) {
        return None;
    }
    let listener = TcpListener::bind((address, 0)).ok()?;
    listener.set_nonblocking(true).ok()?;
    let offer = Offer { at: listener.local_addr().ok()?, number: nonce().ok()? };
    Some((listener, offer))
}

/// Tells whoever connects the number, until it is over.
fn answer(listener: &TcpListener, number: &str, over: &AtomicBool) {
    while !over.load(Relaxed) {
        match listener.accept() {
            // It fits into the socket's buffer; who is gone does not need it.
            Ok((mut stream, _)) => _ = stream.write_all(number.as_bytes()),
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Whether the rank that made the offer is there.
fn reaches(offer: &Offer) -> bool {
    let said = || {
        let mut stream = TcpStream::connect_timeout(&offer.at, REACH_WITHIN)?;
        stream.set_read_timeout(Some(SAID_WITHIN))?;
        let mut said = vec![0; offer.number.len()];
        stream.read_exact(&mut said).map(|()| said)
    };
    said().is_ok_and(|said: Vec<u8>| said == offer.number.as_bytes())
}

/// The first rank that does not reach it.
fn who_misses(ranks: &dyn Ranks, reaches: bool, until: Instant) -> Result<Option<usize>, Lost> {
    let all = ranks.gather(&[reaches.into()], until)?;
    let first = all.and_then(|all| all.iter().position(|said| said[..] != [1]));
    let told = serde_json::to_vec(&first).expect("a number");
    let told = ranks.broadcast(0, told, until)?;
    Ok(serde_json::from_slice(&told).unwrap_or_default())
}

/// Whether an address is one of this host's own, so that a rank here may speak for a server at it.
///
/// It is where a datagram comes back that is sent to it: to be bound is not enough, as some systems let any address be bound
/// (`net.ipv4.ip_nonlocal_bind` of Linux).
fn is_own(address: IpAddr) -> bool {
    let comes_back = || {
        let socket = UdpSocket::bind((address, 0))?;
        let own = socket.local_addr()?;
        // Somebody may still send to whoever had this port before.
        socket.connect(own)?;
        socket.set_read_timeout(Some(COMES_BACK_WITHIN))?;
        socket.send(&[0])?;
        socket.recv_from(&mut [0; 2]).map(|(_, from)| from == own)
    };
    !address.is_unspecified() && !address.is_multicast() && comes_back().unwrap_or(false)
}

/// Does this rank's part of a load, and gives the report of the whole at rank 0, nothing elsewhere. `spec` is that of this
/// rank, with its share; one that makes no connections, as the rank on the server's host, has none.
///
/// # Errors
/// If no rank could begin its part.
pub fn load_of_ranks(
    spec: &LoadSpec,
    loads: bool,
    course: &Arc<Course>,
    mut ready: impl FnMut(&[(&'static str, String)]),
) -> Result<Option<LoadReport>, LoadError> {
    let own = spec.clone();
    let work = move |course: &Course, tell: &mut dyn FnMut(Vec<(&'static str, String)>)| {
        let part = match loads {
            true => part(&own, course, tell).map(Some),
            false => look_on(&own, course).map(|()| None),
        };
        if part.is_err() {
            // Without it the others' figures are of another load.
            course.stop().request(crate::StopReason::Failed);
        }
        part
    };
    let part = course.work(work, |settings| ready(&settings));
    let part = part.unwrap_or_else(|failed| Err(LoadError::Ranks(failed.message)));
    // Every rank passes equally many.
    let nothing = || vec![0; 3 * crate::latency::Histogram::default().counts().len()];
    let (outcome, mut latencies) = match part {
        Ok(None) => (Ok(None), nothing()),
        Ok(Some(mut part)) => {
            let latencies = part.take_latencies();
            if course.is_ending() || course.ranks().rank() == 0 {
                part.put_latencies(&latencies);
            }
            part.on_clock(|own_ns| course.at_rank_0(own_ns));
            let figures = figures(spec, &part);
            let failure = failure_of_share(spec, &part, asked(spec));
            (Ok(Some(Said { part: Box::new(part), figures, failure })), latencies)
        }
        Err(error) => (Err(Failed { message: error.to_string() }), nothing()),
    };
    let Some(gathered) = course.gather::<Said>(outcome, &mut latencies) else {
        return Ok(None);
    };
    let (failure, summed) = (gathered.failure.clone(), gathered.summed);
    let holds: Option<Vec<_>> = gathered
        .each
        .iter()
        .enumerate()
        .filter_map(|(rank, said)| Some((rank, said.as_ref().ok()?.as_ref()?)))
        .map(|(rank, said)| Some((course.ranks().host(rank), said.part.holds?)))
        .collect();
    let holds = holds.and_then(Holds::of_hosts);
    let own_failures: Vec<Option<String>> =
        gathered.each.iter().map(|said| said.as_ref().ok()?.as_ref()?.failure.clone()).collect();
    let mut whole: Option<Part> = None;
    let mut report = course.report(gathered.map(|Said { part, figures, .. }| {
        match &mut whole {
            Some(whole) => whole.merge(*part),
            None => whole = Some(*part),
        }
        figures
    }));
    let Some(mut whole) = whole else {
        let why = failure.unwrap_or_else(|| {
            "no rank makes connections: start more than the one on the server's host".into()
        });
        return Err(LoadError::Ranks(why));
    };
    whole.holds = holds;
    if summed {
        whole.put_latencies(&latencies);
    }
    for (of_rank, own) in report.each.iter_mut().zip(own_failures) {
        of_rank.failure = of_rank.failure.take().or(own);
    }
    let mut load = assemble(spec, whole);
    load.failure = failure.or_else(|| Some(with_ranks(load.failure.take()?, &report)));
    load.ranks = Some(report);
    Ok(Some(load))
}

/// Why the whole failed, with the ranks whose own part did, where those are not all of them.
fn with_ranks(whole: String, ranks: &RanksReport<LoadFigures>) -> String {
    const NAMED: usize = 3;
    let load = ranks.each.iter().filter(|rank| rank.figures.is_some()).count();
    let failed = ranks.each.iter().filter_map(|rank| Some((rank, rank.failure.as_deref()?)));
    let failed: Vec<_> = failed.collect();
    match failed.as_slice() {
        [(rank, why)] => format!("rank {} on {}: {why}", rank.rank, rank.host),
        some if !some.is_empty() && some.len() < load => {
            let named = some.iter().take(NAMED);
            let named: Vec<_> =
                named.map(|(rank, _)| format!("rank {} on {}", rank.rank, rank.host)).collect();
            let others = match some.len() - named.len() {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            format!("{whole}; at {}{others}", named.join(", "))
        }
        _ => whole,
    }
}

/// How many connections a rank is to make.
fn asked(spec: &LoadSpec) -> u64 {
    (0..spec.threads).map(|own| spec.dealt_in_all(spec.number_of_thread(own))).sum()
}

fn figures(spec: &LoadSpec, part: &Part) -> LoadFigures {
    let ended_well = part.counts.finished;
    let window = part.window.as_ref();
    LoadFigures {
        connected: part.counts.connected,
        failed: asked(spec).saturating_sub(ended_well),
        messages: window.map_or(0, |window| window.messages),
        messages_per_s: window.map_or(0.0, |window| window.messages_per_s),
        began_ns: part.began_ns,
        elapsed_ns: part.ended_ns.saturating_sub(part.began_ns),
        cpu_ns: part.cpu_ns,
        ended_by: part.ended_by,
    }
}

/// How long all connections may take to be made, with what ranks take to come together.
fn made_within(spec: &LoadSpec) -> Duration {
    READY_WITHIN.saturating_add(spec.setup_max).saturating_add(spec.last_block_after())
}

/// Makes the connections of this rank. All begin at one moment, and messages are measured from another, when all connections
/// are made; with a number of messages for each there is nothing to wait for then.
fn part(
    spec: &LoadSpec,
    course: &Course,
    tell: &mut dyn FnMut(Vec<(&'static str, String)>),
) -> Result<Part, LoadError> {
    let waiter = Waiter::for_current_thread(true);
    let (sender, times) = mpsc::channel();
    let mut missed = None;
    let part = load_rank(spec, course.stop(), &times, |event| {
        let started = match event {
            Event::Ready(settings) => {
                tell(settings.to_vec());
                course.start(READY_WITHIN).map(|start_ns| {
                    waiter.wait(start_ns, course.stop());
                })
            }
            Event::Settled if spec.sends.is_none() => {
                course.start(made_within(spec)).map(|start_ns| {
                    // If nobody listens it is over.
                    let _ = sender.send(spec.times_from(start_ns));
                })
            }
            _ => Ok(()),
        };
        if let Err(lost) = started {
            course.stop().request(crate::StopReason::Asked);
            missed.get_or_insert(lost);
        }
    })?;
    match missed {
        Some(lost) if !ends_all(course, &lost) => Err(lost.into()),
        _ => Ok(part),
    }
}

/// Whether a start failed since all are to end, or one is lost: that is told of the whole, and what this rank did until then
/// counts.
fn ends_all(course: &Course, lost: &Lost) -> bool {
    lost.why == ASKED_TO_END || course.ranks().lost().is_some()
}

/// What a rank does that makes no connections: it starts with the others.
fn look_on(spec: &LoadSpec, course: &Course) -> Result<(), LoadError> {
    let starts = [READY_WITHIN, made_within(spec)];
    let starts = if spec.sends.is_none() { &starts[..] } else { &starts[..1] };
    for within in starts {
        match course.start(*within) {
            Ok(_) => {}
            Err(lost) if ends_all(course, &lost) => break,
            Err(lost) => return Err(lost.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_speaks_for_its_own_addresses_only() {
        for (address, own) in [
            ("127.0.0.1", true),
            // For documentation: nobody has it (RFC 5737).
            ("192.0.2.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(is_own(address.parse().unwrap()), own, "{address}");
        }
    }

    #[test]
    fn all_must_reach_the_rank_that_speaks_for_the_server() {
        let why = |address: &str| -> Vec<_> {
            let address: IpAddr = address.parse().unwrap();
            thread::scope(|scope| {
                let all = crate::ranks::memory::ranks(["a", "b", "c"]);
                let asked = all.into_iter().map(|rank| {
                    scope.spawn(move || {
                        let why = why_not_agreed(&rank, 1, address).unwrap();
                        (why, rank) // the others are not to lose it
                    })
                });
                let asked: Vec<_> = asked.collect();
                asked.into_iter().map(|asked| asked.join().unwrap().0).collect()
            })
        };
        assert_eq!(why("127.0.0.1"), [None, None, None]);
        for why in why("192.0.2.1") {
            assert!(why.unwrap().contains("not an address of rank 1 on b"));
        }
    }

    #[test]
    fn a_rank_whose_connections_fail_is_named_with_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let echoes = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        // Nobody listens there. It is kept bound, or another process might by then.
        let bound =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let refuses = bound.local_addr().unwrap().as_socket().unwrap();
        let load = thread::scope(|scope| {
            let all = crate::ranks::memory::ranks(["a", "b"]).into_iter().zip([echoes, refuses]);
            let all = all.map(|(rank, target)| {
                scope.spawn(move || {
                    let share = crate::tcp::Share { index: rank.rank() as u32, of: 2 };
                    let spec =
                        LoadSpec { connections: 4, sends: Some(1), share, ..LoadSpec::new(target) };
                    let course = Arc::new(Course::begin(Arc::new(rank), Arc::default()).unwrap());
                    load_of_ranks(&spec, true, &course, |_| {}).unwrap()
                })
            });
            let all: Vec<_> = all.collect();
            all.into_iter().find_map(|rank| rank.join().unwrap()).expect("rank 0 has a report")
        });
        let why = "2 connections were refused; is anything listening there?";
        assert_eq!((load.counts.connected, load.counts.refused), (2, 2));
        assert_eq!(load.failure, Some(format!("rank 1 on b: {why}")));
        let ranks = load.ranks.expect("it was theirs");
        let each: Vec<_> = ranks.each.iter().map(|rank| rank.failure.as_deref()).collect();
        assert_eq!((each, ranks.complete), (vec![None, Some(why)], true));
        // Where several fail, and others do not, the counts are those of all.
        let mut of_some = ranks.clone();
        let more = (2..7).map(|rank| {
            let failed = &ranks.each[usize::from(rank < 6)];
            crate::ranks::course::RankReport { rank, ..failed.clone() }
        });
        of_some.each.extend(more);
        let said = with_ranks("5 of 9 failed".into(), &of_some);
        assert_eq!(said, "5 of 9 failed; at rank 1 on b, rank 2 on b, rank 3 on b and 2 more");
        of_some.each.retain(|rank| rank.failure.is_some());
        assert_eq!(with_ranks("5 of 5 failed".into(), &of_some), "5 of 5 failed");
    }

    #[test]
    fn where_a_rank_is_lost_what_the_others_did_is_told_whether_or_not_the_server_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (sender, answered) = mpsc::channel();
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (over, sender) = (Arc::clone(&over), sender.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while !over.load(Relaxed) && stream.read_exact(&mut bytes).is_ok() {
                        // Both fail when nobody needs it any more.
                        let _ = (stream.write_all(&bytes), sender.send(()));
                    }
                    // It stays open, and nothing comes back any more.
                    std::mem::forget(stream);
                });
            }
        });
        let mut all = crate::ranks::memory::ranks(["a", "b", "c"]);
        let lost = all.pop().unwrap();
        let load = thread::scope(|scope| {
            let loads = all.into_iter().map(|rank| {
                scope.spawn(move || {
                    let share = crate::tcp::Share { index: rank.rank() as u32, of: 2 };
                    let minute = Duration::from_secs(60);
                    let spec = LoadSpec {
                        connections: 4,
                        duration: minute,
                        drain: minute,
                        share,
                        ..LoadSpec::new(target)
                    };
                    let course = Arc::new(Course::begin(Arc::new(rank), Arc::default()).unwrap());
                    load_of_ranks(&spec, true, &course, |_| {}).unwrap()
                })
            });
            let loads: Vec<_> = loads.collect();
            // It starts with the others, and goes in the middle.
            let course = Course::begin(Arc::new(lost), Arc::default()).unwrap();
            let [_, from_ns] = [0; 2].map(|_| course.start(Duration::from_secs(60)).unwrap());
            while crate::clock::now_ns() < from_ns {
                answered.recv().unwrap();
            }
            // What was answered before that time may not all have been heard here.
            while answered.try_recv().is_ok() {}
            (0..200).for_each(|_| answered.recv().unwrap());
            is_over.store(true, Relaxed);
            drop(course);
            loads.into_iter().find_map(|rank| rank.join().unwrap()).expect("rank 0 has a report")
        });
        assert_eq!(load.failure.as_deref(), Some("rank 2 on c has ended"));
        let ranks = load.ranks.as_ref().expect("it was theirs");
        let connected: Vec<_> =
            ranks.each.iter().map(|rank| Some(rank.figures.as_ref()?.connected)).collect();
        assert_eq!((connected, ranks.complete), (vec![Some(2), Some(2), None], false));
        assert_eq!(ranks.each[2].failure.as_deref(), Some("has ended"));
        let unfinished = load.counts.cut_off + load.counts.left_open;
        assert_eq!((load.counts.connected, unfinished), (4, 4));
        let window = load.window.as_ref().expect("it was measured");
        assert!(window.messages > 0);
        assert_eq!(
            load.latency_ns.map(|of| of.n),
            Some(load.latency_histogram.counts().iter().sum())
        );
    }

    #[test]
    fn another_host_with_the_same_address_is_told_from_the_rank() {
        let (listener, offer) = listen("127.0.0.1".parse().unwrap()).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| answer(&listener, "0".repeat(offer.number.len()).as_str(), &over));
            assert!(!reaches(&offer));
            over.store(true, Relaxed);
        });
    }
}
