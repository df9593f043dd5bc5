//! A comparison over hosts that are one machine: ranks are threads here, and their agents start weir itself.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use weir_lab::child::Interrupt;
use weir_lab::experiment::course::{self, Bench as _, RunError};
use weir_lab::experiment::plan::Row;
use weir_lab::hosts::{Asked, Fleet, agent};
use weir_lab::tcp;
use weir_lab::udp::bench::{Bench as _, Extent, Made, Run};
use weir_lab::udp::ledger::Balance;
use weir_lab::udp::link::Site;
use weir_lab::udp::plan::{Load, Rate, Replies};
use weir_lab::udp::processes::Processes;
use weir_lab::udp::sample::{Circumstances, Sample};
use weir_load::ranks::memory::{self, InMemory};

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_weir").into()
}

/// Rank 0, with agents at the others, of which rank 1 serves.
struct Hosts {
    fleet: Arc<Fleet>,
    root: Arc<InMemory>,
    interrupt: Interrupt,
    agents: Vec<JoinHandle<Result<(), String>>>,
}

impl Hosts {
    fn of(ranks: usize) -> Self {
        let mut all = memory::ranks((0..ranks).map(|rank| format!("host{rank}")));
        let serve = |rank: InMemory| thread::spawn(move || agent::serve(&rank, program()));
        let agents = all.drain(1..).map(serve).collect();
        let root = Arc::new(all.remove(0));
        let interrupt = Interrupt::new();
        let asked = Asked { server: 1, threads: 1, ..Asked::default() };
        let fleet = Fleet::meet(Arc::clone(&root) as _, &asked, &interrupt).expect("they meet");
        Self { fleet: Arc::new(fleet), root, interrupt, agents }
    }

    fn udp(&self) -> Processes {
        Processes::new(program(), vec![], None, self.interrupt.clone(), None)
            .at(Site::Hosts(Arc::clone(&self.fleet)))
    }

    fn tcp(&self) -> tcp::processes::Processes {
        let cores = || vec![];
        tcp::processes::Processes::new(program(), cores(), cores(), self.interrupt.clone(), None)
            .at(Site::Hosts(Arc::clone(&self.fleet)))
    }

    /// Every agent ends in order.
    fn end(self) {
        let Self { fleet, agents, .. } = self;
        drop(fleet);
        for agent in agents {
            assert_eq!(agent.join().expect("it did not panic"), Ok(()));
        }
    }
}

fn flooded(hosts: &Hosts, load: &Load, extent: Extent) -> Result<Made, RunError> {
    let row = Row::parse("blocking-batch").expect("a design");
    let mut udp = hosts.udp();
    udp.run_once(&Run { row: &row, load, extent })
}

const SHORT: Extent = Extent::Timed { warmup_ms: 50, run_ms: 300 };

/// Every datagram is sent by one of the generators, and is received or dropped at a known place.
#[test]
fn what_several_generators_send_is_accounted_for_as_what_one_does() {
    for ranks in [2, 3, 4] {
        let hosts = Hosts::of(ranks);
        let load = Load::saturation(64);
        let Made { server, flood, .. } = flooded(&hosts, &load, SHORT).expect("a run");
        let sample = Sample::of(&Circumstances::default(), &server, &flood);
        assert_eq!(flood.generators, ranks as u64 - 1);
        assert!(server.end_signalled && server.cut_short.is_none(), "{server:?}");
        assert!(!server.audit.data_errors && server.audit.received > 0, "{:?}", server.audit);
        assert_eq!(sample.ledger.balance(), Balance::Balanced, "{:?}", sample.ledger);
        // There is no network: what is unexplained over loopback stays so.
        assert_eq!((sample.ledger.lost_network, sample.ledger.dropped_sender), (None, None));
        let generators = &sample.settings["generators"];
        assert!(generators.starts_with(&format!("{}: rank 0 on host0", ranks - 1)), "{generators}");
        assert!(sample.settings["links"].starts_with("rank 1 on host1 by lo"), "{sample:?}");
        assert!(sample.start_skew_ns.is_some() && sample.start_skew_uncertainty_ns.is_some());
        hosts.end();
    }
}

/// A rate is divided over the generators, and so is a number of datagrams: all of them arrive.
#[test]
fn what_is_to_be_sent_is_divided_over_the_generators() {
    let hosts = Hosts::of(4);
    let extent = Extent::Checked { datagrams: 1000, flows: 4 };
    let Made { server, flood, .. } = flooded(&hosts, &Load::saturation(64), extent).expect("a run");
    let sample = Sample::of(&Circumstances::default(), &server, &flood);
    // On a busy machine a check ends before all are sent.
    assert!((1..=1000).contains(&flood.offered) && flood.generators == 3, "{flood:?}");
    // Where the server has no core for a while its socket is full.
    let dropped = server.system.dropped_socket.unwrap_or(0);
    assert_eq!(server.audit.received + dropped, flood.sent, "{:?}", sample.ledger);
    assert_eq!(sample.ledger.balance(), Balance::Balanced, "{:?}", sample.ledger);
    assert!(!server.audit.data_errors, "{:?}", server.audit);
    hosts.end();
}

#[test]
fn answers_of_several_generators_are_one_distribution() {
    let hosts = Hosts::of(3);
    let replies = Replies { outstanding: 4, size_bytes: None, offload: Default::default() };
    let load = Load { replies: Some(replies), ..Load::saturation(64) };
    let load = load.at(Rate::PerSecond(2000));
    let Made { server, flood, .. } = flooded(&hosts, &load, SHORT).expect("a run");
    let answers = flood.answers.as_ref().expect("answers");
    let histogram: u64 = answers.round_trip_histogram.iter().map(|(_, count)| count).sum();
    assert!(answers.answered > 0 && answers.corrupt + answers.forged == 0, "{answers:?}");
    assert_eq!(histogram, answers.round_trip_ns.as_ref().expect("round trips").n);
    let at = Circumstances { answered: true, ..Circumstances::default() };
    let sample = Sample::of(&at, &server, &flood);
    assert_eq!(sample.wrong_answers, None);
    hosts.end();
}

#[test]
fn a_row_is_checked_over_hosts_as_on_one_machine() {
    let hosts = Hosts::of(3);
    let row = Row::parse("epoll").expect("a design");
    let checked = weir_lab::udp::check::of(&mut hosts.udp(), &row, &[Load::saturation(64)]);
    // What may be others' doing is checked again by a comparison.
    assert!(matches!(checked, Ok(_) | Err(RunError::Disturbed(_))), "{checked:?}");
    hosts.end();
}

#[test]
fn a_rank_that_is_lost_in_a_run_ends_it() {
    let hosts = Hosts::of(3);
    let root = Arc::clone(&hosts.root);
    let long = Extent::Timed { warmup_ms: 0, run_ms: 60_000 };
    let watcher = thread::spawn({
        let fleet = Arc::clone(&hosts.fleet);
        move || {
            // Any moment will do; the run has begun when its agents were asked for something.
            thread::yield_now();
            root.lose(2, "has given no sign of life for 5 s");
            while fleet.lost().is_none() {
                thread::yield_now();
            }
        }
    });
    let error = flooded(&hosts, &Load::saturation(64), long).err();
    assert_eq!(error, Some(RunError::Interrupted));
    watcher.join().expect("it did not panic");
    let lost = hosts.fleet.lost().expect("it is known");
    assert_eq!(lost, "rank 2 on host2 has given no sign of life for 5 s");
    let Hosts { fleet, root, agents, .. } = hosts;
    drop(fleet);
    // The one that was taken for lost has not heard that it is over.
    drop(root);
    let ended: Vec<_> = agents.into_iter().map(|agent| agent.join().expect("no panic")).collect();
    assert_eq!(ended[0], Ok(()), "the others end in order");
}

/// Connections are divided over the clients; every message that was sent came back, whoever sent it.
#[test]
fn several_clients_are_counted_as_one() {
    let row = Row::parse("epoll").expect("a design");
    for (ranks, connections) in [(2, 5), (3, 5), (4, 2)] {
        let hosts = Hosts::of(ranks);
        let load = tcp::plan::Load::new(tcp::plan::Pattern::PingPong, 64, connections, None, None);
        let run = course::Run { row: &row, load: &load, warmup_ms: 50, run_ms: 300 };
        let made = hosts.tcp().run(&run).expect("a run");
        assert_eq!(made.invalid, None);
        let counts = &made.load.counts;
        assert_eq!((counts.attempted, counts.connected), (connections.into(), connections.into()));
        assert!(counts.messages_over > 0, "{counts:?}");
        assert_eq!(counts.messages_sent, counts.messages_over + made.load.messages_unanswered);
        let latencies: u64 = made.load.latency_histogram.iter().map(|(_, count)| count).sum();
        // Who had no core while it was to be measured measured nothing.
        let measured = made.load.window.as_ref().is_some_and(|window| window.messages > 0);
        assert!(latencies > 0 || !measured, "{:?}", made.load);
        let clients = &made.server.settings["clients"];
        assert!(clients.starts_with(&format!("{}: rank 0 on host0", ranks - 1)), "{clients}");
        hosts.end();
    }
}

#[test]
fn a_row_of_tcp_is_checked_over_hosts() {
    let hosts = Hosts::of(3);
    let row = Row::parse("epoll").expect("a design");
    let load = tcp::plan::Load::new(tcp::plan::Pattern::PingPong, 64, 4, None, None);
    let checked = hosts.tcp().check(&row, &[load]);
    assert!(checked.is_ok(), "{checked:?}");
    hosts.end();
}
