//! Ranks that are threads, and agents whose weir is a script.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_load::ranks::clocks::{Between, Offset};
use weir_load::ranks::memory::{self, InMemory};
use weir_load::ranks::tree;

use super::agent::Peers;
use super::own::part;
use super::*;
use crate::child::script::Script;
use crate::child::tests::is_running;
use crate::child::{ChildError, CommandLine, Interrupt};

const GENERATOR: &str = "the generator";

/// Rank 0 with its fleet, and agents at the others, of which rank 1 serves.
struct Run {
    fleet: Fleet,
    root: Arc<InMemory>,
    interrupt: Interrupt,
    agents: Vec<JoinHandle<Result<(), String>>>,
    _script: Script,
}

impl Run {
    fn of(ranks: usize, flood: &str) -> Self {
        Self::with_server(1, ranks, flood)
    }

    fn with_server(server: usize, ranks: usize, flood: &str) -> Self {
        let script = Script::new(&[("flood", flood)]);
        let mut all = memory::ranks((0..ranks).map(|rank| format!("host{rank}")));
        let agents = all
            .drain(1..)
            .map(|rank| {
                let program = script.path().to_path_buf();
                thread::spawn(move || agent::serve(&rank, program, Peers::default()))
            })
            .collect();
        let root = Arc::new(all.remove(0));
        let interrupt = Interrupt::new();
        let asked = Asked { server, threads: 1, ..Asked::default() };
        let fleet = Fleet::meet(Arc::clone(&root) as _, &asked, &interrupt).unwrap();
        Self { fleet, root, interrupt, agents, _script: script }
    }

    fn flood(&self, rank: usize) -> crate::child::Child {
        let host = self.fleet.hosts().generators.iter().find(|host| host.rank == rank).unwrap();
        let command = CommandLine::new(self._script.path())
            .arguments(["flood".into(), self.fleet.address().to_string()]);
        self.fleet.spawn(host, GENERATOR, &command, &self.interrupt).unwrap()
    }

    /// Generators at all hosts but the server's that have so many datagrams together; the first step of their task was made.
    fn flood_together(&self, datagrams: u64, within: Duration) -> Result<Children<'_>, ChildError> {
        let words = ["flood".into(), self.fleet.address().to_string(), "-k".into()];
        let command = CommandLine::new(self._script.path()).arguments(words);
        let command = command.arguments([part(datagrams, datagrams), "--wait-for-start".into()]);
        let task = Task {
            kind: Kind::Udp,
            words: command.words().to_vec(),
            parts: self.fleet.hosts().generators.len(),
            phases: vec!["ready".into()],
            tells_end: false,
            latencies: Latencies::None,
            per_second: None,
            within_ms: within.as_millis() as u64,
        };
        let mut all = self.fleet.start_all(task, &command, Offset::default(), &self.interrupt)?;
        all.come_to("ready")?;
        Ok(all)
    }

    /// What the agents ended with.
    fn end(self) -> Vec<Result<(), String>> {
        self.end_without(None)
    }

    /// The same where one was taken for lost: it does not hear that it is over, but that rank 0 is gone.
    fn end_without(self, lost: Option<usize>) -> Vec<Result<(), String>> {
        drop(self.fleet);
        let is_lost = |(index, _): &(usize, _)| Some(index + 1) == lost;
        let agents = self.agents.into_iter().enumerate();
        let (gone, others): (Vec<_>, Vec<_>) = agents.partition(is_lost);
        let end = |(_, agent): (usize, JoinHandle<_>)| agent.join().unwrap();
        let ended = others.into_iter().map(end).collect();
        drop(self.root);
        gone.into_iter().for_each(|agent| drop(end(agent)));
        ended
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_child_at_another_host_speaks_and_listens_as_one_here() {
    let run = Run::of(3, r#"echo '{"phase":"ready"}'; read line; echo "$line"; exit 3"#);
    for rank in [0, 2] {
        let mut child = run.flood(rank);
        let ready: Value = child.document("ready line", soon()).unwrap();
        assert_eq!(ready["phase"], "ready");
        child.say(r#"{"start_ns":7}"#);
        let heard: Value = child.document("echo", soon()).unwrap();
        assert_eq!(heard, json!({ "start_ns": 7 }));
        assert_eq!(child.finish(soon()).unwrap().code(), Some(3), "rank {rank}");
    }
    assert_eq!(run.end(), [Ok(()), Ok(())]);
}

#[test]
fn the_input_of_a_child_at_another_host_can_be_closed() {
    let run = Run::of(3, r#"read line || echo '{"closed":true}'"#);
    let mut child = run.flood(2);
    child.close_input();
    let said: Value = child.document("word", soon()).unwrap();
    assert_eq!(said["closed"], true);
    assert!(child.finish(soon()).unwrap().success());
}

#[test]
fn a_child_that_crashes_at_another_host_is_quoted() {
    let run = Run::of(3, "echo ouch >&2; exit 101");
    let error = run.flood(2).document::<Value>("report", soon()).unwrap_err();
    let text = error.at("rank 2 on host2").to_string();
    assert!(
        text.starts_with("at rank 2 on host2: the generator ended with exit status: 101"),
        "{text}"
    );
    assert!(text.ends_with("it said: ouch"), "{text}");
}

#[test]
fn a_child_that_is_dropped_is_ended_at_its_host_and_so_are_all_at_the_end() {
    let run = Run::of(3, r#"echo $$; exec sleep 600"#);
    let mut first = run.flood(2);
    let mut second = run.flood(2);
    let ids: Vec<u32> =
        [&mut first, &mut second].map(|child| child.document("id", soon()).unwrap()).into();
    drop(first);
    while is_running(ids[0]) {
        thread::yield_now();
    }
    assert!(is_running(ids[1]));
    // What was not dropped is ended with the agents.
    std::mem::forget(second);
    assert_eq!(run.end(), [Ok(()), Ok(())]);
    assert!(!is_running(ids[1]));
}

#[test]
fn nothing_but_generators_against_the_server_are_started() {
    let run = Run::of(3, "exit 0");
    let host = &run.fleet.hosts().generators[1];
    for (words, said) in [
        (vec!["iops"], "this rank generates, and does not start `weir iops`"),
        (vec!["flood", "192.0.2.1", "-p", "9"], "not at 192.0.2.1"),
    ] {
        let command = CommandLine::new("weir").arguments(words);
        let mut child = run.fleet.spawn(host, GENERATOR, &command, &run.interrupt).unwrap();
        let error = child.document::<Value>("report", soon()).unwrap_err();
        assert!(matches!(error, ChildError::Reported(_)), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn clocks_are_compared_and_hosts_measured_while_children_run() {
    let run = Run::of(4, "while read line; do echo $line; done");
    let mut child = run.flood(3);
    let clocks = run.fleet.clocks().unwrap();
    assert_eq!(clocks.of_first(), Offset::default());
    let by_server = run.fleet.compare_clocks(Some(1)).unwrap().own;
    for clock in [clocks.of_server(), by_server] {
        assert!(clock.uncertainty_ns > 0, "it was measured");
        assert!(clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns, "one machine: {clock:?}");
    }
    child.say("1");
    assert_eq!(child.document::<u64>("number", soon()).unwrap(), 1, "it is still heard");
    // All have the server's clock, where that can be told.
    let is_known = weir_load::control::clock_id().is_some();
    assert_eq!(run.fleet.have_one_clock(), is_known);
    let own = run.fleet.clocks_from_server().unwrap();
    assert!(!is_known || own == Offset::default(), "{own:?}");
    run.fleet.begin_meters();
    let readings = run.fleet.read_meters(0).unwrap();
    assert!(readings.others.is_none_or(|share| (0.0..=1.0).contains(&share)), "{readings:?}");
}

/// One that says how many datagrams it was to send, when it was told to.
const FLOOD: &str = r#"echo '{"phase":"ready"}'; read line
    echo "{\"sent\":$4,\"generators\":1,\"elapsed_ns\":5}""#;
const LONG: Duration = Duration::from_secs(60);

#[test]
fn generators_at_many_hosts_are_started_told_and_heard_as_one() {
    for (server, ranks) in [(1, 2), (0, 2), (1, 3), (1, 7), (0, 7), (5, 12)] {
        let run = Run::with_server(server, ranks, FLOOD);
        let clocks = run.fleet.clocks().unwrap();
        let mut all = run.flood_together(100, LONG).unwrap();
        all.begin(&clocks);
        all.end().unwrap();
        let Reports::Udp(all) = all.reports(Between::default()).unwrap() else { panic!("of UDP") };
        let all = all.into_report();
        assert_eq!((all.sent, all.generators), (100, ranks as u64 - 1), "{server} of {ranks}");
        assert!(run.end().iter().all(Result::is_ok));
    }
}

#[test]
fn rank_0_hears_how_the_clock_of_the_server_or_of_the_first_generator_stands() {
    for (server, ranks) in [(0, 5), (1, 2), (3, 7), (6, 7)] {
        let run = Run::with_server(server, ranks, FLOOD);
        for _ in 0..2 {
            let clocks = run.fleet.clocks().unwrap();
            let (own, other) = match server {
                0 => (clocks.of_server(), clocks.of_first()),
                _ => (clocks.of_first(), clocks.of_server()),
            };
            assert_eq!(own, Offset::default());
            assert!(other.uncertainty_ns > 0, "{server} of {ranks}");
            let by_server = run.fleet.compare_clocks(Some(server)).unwrap().own;
            assert_eq!(by_server == Offset::default(), server == 0);
        }
        assert!(run.end().iter().all(Result::is_ok));
    }
}

/// In each run rank 0 has a few words with those right below it, and with no other generator.
#[test]
fn what_rank_0_says_and_hears_grows_with_the_logarithm_of_the_ranks() {
    for ranks in [2, 4, 8, 16, 32] {
        let run = Run::of(ranks, FLOOD);
        let below = tree::children(0, ranks).count();
        run.root.take_counts();
        let clocks = run.fleet.clocks().unwrap();
        let (said, heard) = run.root.take_counts();
        // The order, a question to wake it, 64 more, and what was found; the word that it is ready, the answers, and how the
        // server's clock stands.
        assert!(said <= 67 * below && heard <= 66 * below + 1, "{ranks} ranks: {said}, {heard}");
        run.fleet.begin_meters();
        let mut all = run.flood_together(100, LONG).unwrap();
        all.begin(&clocks);
        all.reports(Between::default()).unwrap();
        run.fleet.read_meters(0).unwrap();
        let (said, heard) = run.root.take_counts();
        // Orders to measure, to start, to begin, and to read; what they have come to, what they did, and what their hosts did.
        assert!(said <= 4 * below && heard <= 3 * below, "{ranks} ranks: {said}, {heard}");
        assert!(run.end().iter().all(Result::is_ok));
    }
}

#[test]
fn a_generator_that_fails_below_others_is_named() {
    // Of 11 datagrams for six generators the last has one.
    let at_last = |does: &str| format!("[ $4 = 1 ] && {{ {does}; }}; {FLOOD}");
    for (does, said) in [
        ("echo ouch >&2; exit 101", "the generator ended with exit status: 101 before its"),
        (r#"echo '{"status":"failed","reason":"no"}'; exit 1"#, "no"),
        (r#"echo '{"error":{"message":"no"}}'; exit 1"#, "no"),
        ("echo none; exit 0", "the generator sent something other than its word"),
        (r#"echo '{"sent":1}'; exit 0"#, "the generator sent something other than its word"),
    ] {
        let run = Run::of(7, &at_last(does));
        let error = run.flood_together(11, LONG).err().expect("one fails").to_string();
        assert!(error.starts_with(&format!("at rank 6 on host6: {said}")), "{error}");
        assert!(run.end().iter().all(Result::is_ok));
    }
}

#[test]
fn a_generator_that_takes_too_long_is_ended_and_named_by_its_rank() {
    // On a busy machine another one may take too long as well.
    for seconds in [3, 10, 30] {
        let run = Run::of(3, &format!("[ $4 = 1 ] && exec sleep 600; {FLOOD}"));
        let within = Duration::from_secs(seconds);
        let error = run.flood_together(3, within).err().expect("one hangs").to_string();
        assert!(run.end().iter().all(Result::is_ok));
        let why = format!("the generator was ended: no word that it is ready within {seconds}.0 s");
        if error == format!("at rank 2 on host2: {why}") {
            return;
        }
        assert!(seconds < 30 && error.ends_with(&why), "{error}");
    }
}

#[test]
fn a_rank_that_is_lost_between_others_is_the_one_that_is_named() {
    let run = Run::of(7, FLOOD);
    let all = run.flood_together(100, LONG).unwrap();
    // Rank 6 speaks to rank 0 by rank 2.
    run.root.lose(2, "has given no sign of life");
    let error = all.reports(Between::default()).unwrap_err();
    assert!(matches!(error, ChildError::Interrupted), "{error}");
    assert_eq!(run.fleet.lost().unwrap(), "rank 2 on host2 has given no sign of life");
    let error = run.fleet.read_meters(0).unwrap_err();
    assert!(matches!(error, ChildError::Interrupted), "{error}");
    assert!(run.end_without(Some(2)).iter().all(Result::is_ok), "the others end in order");
}

#[test]
fn no_generator_can_be_made_to_flood_another_host() {
    let run = Run::of(7, FLOOD);
    let command = CommandLine::new(run._script.path()).arguments(["flood", "192.0.2.1"]);
    let task = Task {
        kind: Kind::Udp,
        words: command.words().to_vec(),
        parts: 6,
        phases: vec!["ready".into()],
        tells_end: false,
        latencies: Latencies::None,
        per_second: None,
        within_ms: 60_000,
    };
    let all = run.fleet.start_all(task, &command, Offset::default(), &run.interrupt);
    let error = all.unwrap().come_to("ready").unwrap_err().to_string();
    assert!(error.contains("not at 192.0.2.1"), "{error}");
}

#[test]
fn a_lost_rank_ends_all_and_is_named() {
    let run = Run::of(3, "exec sleep 600");
    let mut child = run.flood(2);
    run.root.lose(2, "has given no sign of life");
    let error = child.document::<Value>("report", soon()).unwrap_err();
    assert!(matches!(error, ChildError::Interrupted), "{error}");
    let lost = run.fleet.lost().unwrap();
    assert_eq!(lost, "rank 2 on host2 has given no sign of life");
    drop(child);
    assert_eq!(run.end_without(Some(2)), [Ok(())], "the others end in order");
}

#[test]
fn agents_end_when_rank_0_is_gone_and_nothing_is_left() {
    let run = Run::of(3, "echo $$; exec sleep 600");
    let mut child = run.flood(2);
    let id: u32 = child.document("id", soon()).unwrap();
    // Whoever the agents wait for does not answer any more.
    run.root.lose(0, "has ended");
    let Run { agents, fleet, .. } = run;
    let ended: Vec<_> = agents.into_iter().map(|agent| agent.join().unwrap()).collect();
    for ended in ended {
        // Or the fleet, which lives on here, was quicker to tell it to go.
        assert!(
            ended.as_ref().err().is_none_or(|why| why == "rank 0 on host0 has ended"),
            "{ended:?}"
        );
    }
    assert!(!is_running(id));
    drop((child, fleet));
}

#[test]
fn too_few_ranks_or_none_that_serves_is_said_to_all() {
    let mut all = memory::ranks(["a"]);
    let alone: Arc<InMemory> = Arc::new(all.remove(0));
    let interrupt = Interrupt::new();
    let asked = Asked { server: 1, threads: 1, ..Asked::default() };
    let error = Fleet::meet(alone, &asked, &interrupt).err().unwrap();
    assert!(error.contains("mpirun -n 2"), "{error}");

    let mut all = memory::ranks(["a", "b"]);
    let other = all.remove(1);
    let other = thread::spawn(move || agent::serve(&other, "weir".into(), Peers::default()));
    let asked = Asked { server: 2, threads: 1, ..Asked::default() };
    let error = Fleet::meet(Arc::new(all.remove(0)), &asked, &interrupt).err().unwrap();
    assert!(error.contains("rank 2 cannot serve: there are 2"), "{error}");
    assert_eq!(other.join().unwrap().unwrap_err(), error);
}

#[test]
fn an_address_that_is_not_the_hosts_is_refused() {
    let mut all = memory::ranks(["a", "b"]);
    let other = all.remove(1);
    let other = thread::spawn(move || agent::serve(&other, "weir".into(), Peers::default()));
    let asked =
        Asked { server: 1, threads: 1, address: "192.0.2.77".parse().ok(), ..Asked::default() };
    let error = Fleet::meet(Arc::new(all.remove(0)), &asked, &Interrupt::new()).err().unwrap();
    assert!(error.contains("cannot listen on 192.0.2.77"), "{error}");
    assert_eq!(other.join().unwrap().unwrap_err(), error);
}

#[test]
fn ranks_that_are_called_off_end() {
    let mut all = memory::ranks(["a", "b"]);
    let other = all.remove(1);
    let other = thread::spawn(move || agent::serve(&other, "weir".into(), Peers::default()));
    call_off(&all[0], "nothing was asked for");
    assert_eq!(other.join().unwrap().unwrap_err(), "nothing was asked for");
}

#[test]
fn links_and_hosts_are_told_in_words() {
    let link = Link {
        device: "eth0".into(),
        address: "10.0.0.1".parse().ok(),
        bits_per_s: Some(10_000_000_000),
        mtu_bytes: Some(9000),
        driver: Some("mlx5_core".into()),
    };
    assert_eq!(link.to_string(), "eth0 (10.0.0.1), 10 Gbit/s, MTU 9000, driver mlx5_core");
    let slow = Link { bits_per_s: Some(2_500_000_000), ..link.clone() };
    assert!(slow.to_string().contains("2500 Mbit/s"));
    assert_eq!(Link { device: "x".into(), ..Link::default() }.to_string(), "x, speed unknown");
    let host = |rank, name: &str, link: &Link| Host {
        rank,
        name: name.into(),
        link: link.clone(),
        ..Host::default()
    };
    let hosts = Hosts {
        server: host(1, "b", &link),
        generators: vec![host(0, "a", &slow), host(2, "c", &slow)],
        address: link.address,
    };
    assert_eq!(hosts.generators_in_words(), "2: rank 0 on a, rank 2 on c");
    assert!(
        hosts.links_in_words().contains("rank 1 on b by eth0")
            && hosts.links_in_words().contains("rank 2 on c by")
    );
    assert_eq!(hosts.bits_per_s(), Some(5_000_000_000), "two slow links into a fast one");
}
