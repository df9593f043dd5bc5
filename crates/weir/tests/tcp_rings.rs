//! What sets the TCP designs on rings apart, on Linux. What they have in common with the others is checked
//! by the conformance tests.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;
#[path = "suite/tcp.rs"]
mod tcp;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tcp::{connect, echo, exchange, exchange_at_once, stop};
use weir::tcp::{AnyDesign, Limits, Running, Server};
use weir_confine::{Confinement, Resource};

const DESIGNS: [&str; 3] = ["ring --threads 1", "rio-tcp --threads 1", "ring-hybrid --threads 1"];

/// Tests here run one after another: some measure what the whole process holds.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` where it cannot run here.
fn start(design: &str) -> Option<Running> {
    let design = AnyDesign::parse(design).unwrap();
    let name = format!("tcp/{}", design.about().name);
    if required::cannot_run(&name, design.availability()) {
        return None;
    }
    let limits = Limits::default().silent(None);
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).limits(limits);
    Some(server.start(design, |_| echo).unwrap())
}

fn stated(running: &Running, name: &str) -> String {
    let effective = running.effective();
    let found = effective.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name} in {effective:?}")).1.clone()
}

#[test]
fn what_was_obtained_is_stated() {
    let _alone = alone();
    for design in DESIGNS {
        let Some(running) = start(design) else { return };
        assert!(stated(&running, "ring-flags").contains("CQSIZE"));
        assert!(stated(&running, "connections-of-a-ring").parse::<u32>().unwrap() > 0);
        assert!(stated(&running, "slices-obtained").contains(char::is_numeric));
        drop(stop(running));
    }
}

/// Resident memory of this process that is no file's, in bytes: pages of a program come whenever a thread first runs
/// through them. It is counted page by page; what /proc/self/status says each core may hold back a part of.
fn resident() -> usize {
    let memory = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = memory.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    let kib: usize = line.split_whitespace().next().unwrap().parse().unwrap();
    kib * 1024
}

/// Both ends are in this process; the other end is a descriptor and nothing else.
#[test]
fn an_idle_connection_holds_no_buffer() {
    let _alone = alone();
    const BEFORE: usize = 1000;
    const MORE: usize = 4000;
    let Some(running) = start("ring --threads 1") else { return };
    let address = running.local_addresses()[0];
    let mut clients = Vec::with_capacity(BEFORE + MORE);
    let mut grow = |count: usize| {
        for _ in 0..count {
            let mut client = connect(address);
            exchange(&mut client, b"once");
            clients.push(client);
        }
        resident()
    };
    let before = grow(BEFORE);
    let each = grow(MORE).saturating_sub(before) / MORE;
    eprintln!("{each} bytes of the process for each idle connection");
    // 200 bytes, and what the allocator keeps as tables move.
    assert!(each <= 260, "{each} bytes for each idle connection");
    drop(clients);
    drop(stop(running));
}

/// A batch is one entry into the kernel, and a wait one more, however many connections it serves.
#[test]
fn entries_are_shared_by_what_comes_together() {
    let _alone = alone();
    const CONNECTIONS: usize = 64;
    const ROUNDS: usize = 50;
    let Some(running) = start("ring --threads 1") else { return };
    let mut clients: Vec<_> =
        (0..CONNECTIONS).map(|_| connect(running.local_addresses()[0])).collect();
    for round in 0..ROUNDS {
        exchange_at_once(&mut clients, &[round as u8; 64]);
    }
    drop(clients);
    let report = stop(running);
    let (messages, calls) = (report.total().messages, report.calls());
    assert!(messages >= (CONNECTIONS * ROUNDS) as u64);
    // At the very worst each message finds the server asleep: it is woken, answers, and sleeps again.
    let most = 2 * messages + 4 * CONNECTIONS as u64 + 100;
    assert!(calls.kernel_entries <= most, "{} entries for {messages}", calls.kernel_entries);
    assert!(calls.waits <= calls.kernel_entries);
}

/// While it wins it polls; while nothing comes it sleeps, and what is tuned holds at once.
#[test]
fn the_hybrid_sleeps_where_polling_does_not_win() {
    let _alone = alone();
    let Some(running) = start("ring-hybrid --threads 1 --spin 20000") else { return };
    let mut client = connect(running.local_addresses()[0]);
    for _ in 0..200 {
        exchange(&mut client, &[1; 64]);
    }
    // It gives polling up and waits; then it looks no more, unless it was woken. It may do so before anybody watches.
    let by = Instant::now() + Duration::from_secs(60);
    let mut before = running.calls().empty_dequeues;
    loop {
        thread::sleep(Duration::from_millis(300)); // this is about time
        let now = running.calls().empty_dequeues;
        let looks = now - std::mem::replace(&mut before, now);
        if looks < 100 {
            break;
        }
        assert!(Instant::now() < by, "{looks} looks in vain while nothing comes");
    }
    assert!(running.calls().waits > 0, "it looks no more, and does not wait");
    assert!(running.tune("spin", 2_000_000).is_err() && running.tune("threshold", 1001).is_err());
    running.tune("spin", 0).unwrap();
    running.tune("threshold", 0).unwrap();
    exchange(&mut client, &[1; 64]);
    drop(client);
    let report = stop(running);
    assert!(report.calls().waits > 0);
}

/// Zero copy changes nothing of what is sent.
#[test]
fn zero_copy_sends_the_same_bytes() {
    let _alone = alone();
    let Some(running) = start("ring --threads 1 --zero-copy 1") else { return };
    let mut client = connect(running.local_addresses()[0]);
    for round in 0..50u8 {
        let bytes: Vec<_> = (0..20_000u32).map(|n| (n % 251) as u8 ^ round).collect();
        exchange(&mut client, &bytes);
    }
    drop(client);
    let total = stop(running).total();
    assert_eq!((total.bytes_received, total.bytes_sent), (1_000_000, 1_000_000));
}

/// Set where this program is to be the server of another test.
const SERVES: &str = "WEIR_TEST_SERVES";

/// Serves until its input ends, where it is asked to.
#[test]
fn serves_for_another_test() {
    let _alone = alone();
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let Some(running) = start("ring --threads 1 --slices 64") else { return };
    println!("\nlistens at {}", running.local_addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let total = stop(running).total();
    assert_eq!((total.accepted, total.closed_finished), (CROWD as u64, CROWD as u64));
}

/// More connections than a table holds: the bound of one is that of descriptors.
const CROWD: usize = 1000;

#[test]
fn more_connections_than_descriptors() {
    let _alone = alone();
    const DESCRIPTORS: u64 = 100;
    if start("ring --threads 1").map(stop).is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "serves_for_another_test", "--nocapture"]).env(SERVES, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let confinement = Confinement::new().limit(Resource::Descriptors, DESCRIPTORS);
    let mut server = confinement.confine(&mut command).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut told = lines.map(Result::unwrap).filter_map(|line| {
        line.strip_prefix("listens at ").map(|address| address.parse::<SocketAddr>().unwrap())
    });
    let address = told.next().expect("it says where it listens");
    let mut clients: Vec<_> = (0..CROWD).map(|_| connect(address)).collect();
    for round in 0..3 {
        // All of them at a time, so that every ring has something.
        exchange_at_once(&mut clients, &[round; 64]);
    }
    // And one after another, each when the server sleeps.
    clients.iter_mut().for_each(|client| exchange(client, &[7; 64]));
    drop(clients);
    drop(server.stdin.take());
    assert_eq!(told.next(), None);
    assert!(server.wait().unwrap().success());
}
