//! Ranks that are threads, and agents whose weir is a script.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_load::ranks::clocks::Offset;
use weir_load::ranks::memory::{self, InMemory};

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
        let script = Script::new(&[("flood", flood)]);
        let mut all = memory::ranks((0..ranks).map(|rank| format!("host{rank}")));
        let agents = all
            .drain(1..)
            .map(|rank| {
                let program = script.path().to_path_buf();
                thread::spawn(move || agent::serve(&rank, program))
            })
            .collect();
        let root = Arc::new(all.remove(0));
        let interrupt = Interrupt::new();
        let asked = Asked { server: 1, threads: 1, ..Asked::default() };
        let fleet = Fleet::meet(Arc::clone(&root) as _, &asked, &interrupt).unwrap();
        Self { fleet, root, interrupt, agents, _script: script }
    }

    fn flood(&self, rank: usize) -> crate::child::Child {
        let host = self.fleet.hosts().generators.iter().find(|host| host.rank == rank).unwrap();
        let command = CommandLine::new(self._script.path())
            .arguments(["flood".into(), self.fleet.address().to_string()]);
        self.fleet.spawn(host, GENERATOR, &command, &self.interrupt).unwrap()
    }

    /// What the agents ended with.
    fn end(self) -> Vec<Result<(), String>> {
        drop(self.fleet);
        // One that was taken for lost has not heard that it is over.
        drop(self.root);
        self.agents.into_iter().map(|agent| agent.join().unwrap()).collect()
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
        (vec!["iops"], "this rank generates, and starts no `weir iops`"),
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
    assert_eq!(clocks.len(), 4);
    for clock in clocks.iter() {
        assert!(clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns, "one machine: {clock:?}");
    }
    let of_server = run.fleet.compare_clocks(Some(1)).unwrap();
    assert_eq!(of_server[1], Offset::default());
    for clock in of_server.iter() {
        assert!(clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns, "one machine: {clock:?}");
    }
    child.say("1");
    assert_eq!(child.document::<u64>("number", soon()).unwrap(), 1, "it is still heard");
    // All have the server's clock, where that can be told.
    for clock in run.fleet.clocks_from_server().unwrap() {
        let is_known = weir_load::control::clock_id().is_some();
        assert!(!is_known || clock == Offset::default(), "{clock:?}");
    }
    run.fleet.begin_meters();
    let readings = run.fleet.read_meters(&[(1, 0), (0, 0)]).unwrap();
    assert!(readings.others.is_none_or(|share| (0.0..=1.0).contains(&share)), "{readings:?}");
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
    assert_eq!(run.end()[0], Ok(()), "the others end in order");
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
    let other = thread::spawn(move || agent::serve(&other, "weir".into()));
    let asked = Asked { server: 2, threads: 1, ..Asked::default() };
    let error = Fleet::meet(Arc::new(all.remove(0)), &asked, &interrupt).err().unwrap();
    assert!(error.contains("rank 2 cannot serve: there are 2"), "{error}");
    assert_eq!(other.join().unwrap().unwrap_err(), error);
}

#[test]
fn an_address_that_is_not_the_hosts_is_refused() {
    let mut all = memory::ranks(["a", "b"]);
    let other = all.remove(1);
    let other = thread::spawn(move || agent::serve(&other, "weir".into()));
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
    let other = thread::spawn(move || agent::serve(&other, "weir".into()));
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
