//! A server that has nothing to do costs nothing: none of its threads wakes up while nothing comes and no timer is
//! set, whatever its design. Counted by the kernel, as voluntary context switches of each thread.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;
#[path = "suite/tcp.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod tcp_client;

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    counters::os::ThreadId,
    rio::Choice,
    tcp,
    udp::{self, Datagram, Replies},
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the servers are left alone, and how often that is tried. What an earlier server leaves behind can wake a
/// thread (the kernel tells all that used a ring when it goes away), and so can the kernel's own housekeeping; but it
/// does not do so in each period, as a timer that ticks does.
const PERIOD: Duration = Duration::from_secs(1);
const PERIODS: u32 = 10;

/// Tests here run one after another: the servers of one that start and stop are not to wake those of the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sleeps(thread: ThreadId) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("the kernel counts them").trim().parse().unwrap()
}

/// Waits for a period in which no thread of any of the servers woke up.
fn assert_at_rest(servers: &[(String, Vec<ThreadId>)]) {
    let count = |threads: &[ThreadId]| threads.iter().map(|thread| sleeps(*thread)).sum::<u64>();
    let mut restless: Vec<_> = servers.iter().collect();
    for _ in 0..PERIODS {
        let before: Vec<_> = restless.iter().map(|(_, threads)| count(threads)).collect();
        thread::sleep(PERIOD);
        let after = restless.iter().map(|(_, threads)| count(threads));
        let woke: Vec<_> = before.iter().zip(after).map(|(before, after)| after - before).collect();
        let mut woken = woke.iter();
        restless.retain(|(name, _)| {
            let woke = *woken.next().expect("one for each");
            if woke > 0 {
                eprintln!("{name}: {woke} wake-ups in {PERIOD:?}");
            }
            woke > 0
        });
        if restless.is_empty() {
            return;
        }
    }
    let names: Vec<_> = restless.iter().map(|(name, _)| name).collect();
    panic!("never at rest in {PERIODS} periods: {names:?}");
}

/// Every design that waits, on every provider that loopback has: the one that never does is left out, since it has no
/// rest.
fn udp_designs() -> Vec<(String, udp::AnyDesign)> {
    let mut designs = Vec::new();
    for mut design in udp::designs() {
        let name = design.about().name;
        if name == "rio-polled" {
            continue;
        }
        if design.known_options().iter().any(|option| option.name == "outstanding") {
            design.set("outstanding", "64").unwrap();
        }
        let mut variants = vec![(name.to_string(), design.clone())];
        let mut changed = |option: &str, value: String| {
            let mut variant = design.clone();
            if variant.set(option, &value).is_ok() {
                variants.push((format!("{name}/{value}"), variant));
            }
        };
        // Windows' own is for Windows alone.
        let here = |choice: &&Choice| cfg!(windows) || **choice != Choice::Winsock;
        for choice in Choice::ALL.iter().filter(|choice| choice.reaches_loopback()).filter(here) {
            changed("provider", choice.to_string());
        }
        changed("gather", "200us,64".into());
        changed("adaptive", "true".into());
        designs.extend(variants);
    }
    designs
}

#[test]
fn servers_of_datagrams_that_have_nothing_to_do_sleep() {
    let _alone = alone();
    let mut servers = Vec::new();
    for (name, design) in udp_designs() {
        if required::cannot_run(design.about().name, design.availability()) {
            continue;
        }
        let handled = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&handled);
        let server = udp::Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        let running = server.start(design, move |_| {
            let count = Arc::clone(&count);
            move |_: Datagram<'_>, _: &mut Replies<'_>| {
                count.fetch_add(1, Relaxed);
            }
        });
        let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
        // Each has worked before it rests.
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            sender.send_to(b"datagram", running.local_addresses()[0]).unwrap();
        }
        let by = Instant::now() + PATIENCE;
        while handled.load(Relaxed) < 20 {
            assert!(Instant::now() < by, "{name}: {} of 20 came", handled.load(Relaxed));
            thread::yield_now();
        }
        servers.push((name, running));
    }
    let threads =
        |(name, running): &(String, udp::Running<_>)| (name.clone(), running.thread_ids());
    assert_at_rest(&servers.iter().map(threads).collect::<Vec<_>>());
    for (name, running) in servers {
        let report = running.stop();
        assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    }
}

/// Sends back what came a little later, when it is called: while nothing is kept it asks for nothing.
struct EchoAfter {
    kept: Vec<u8>,
    due: Option<Instant>,
}

impl tcp::Handler for EchoAfter {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut tcp::Output<'_>) {
        self.kept.extend_from_slice(bytes);
        self.due = Some(output.now() + Duration::from_micros(300));
    }

    fn on_time(&mut self, output: &mut tcp::Output<'_>) {
        self.due = None;
        output.send(&std::mem::take(&mut self.kept)).unwrap();
    }

    fn asks(&self) -> tcp::Asks {
        tcp::Asks::NOTHING.at(self.due)
    }
}

#[test]
fn servers_of_connections_that_have_nothing_to_do_sleep() {
    let _alone = alone();
    let mut servers = Vec::new();
    let variants = tcp::designs().into_iter().flat_map(|design| {
        let name = design.about().name.to_string();
        let mut gathers = design.clone();
        let gathers = gathers.set("gather", "200us,64").is_ok().then_some(gathers);
        let gathers = gathers.map(|gathers| (format!("{name}/gather"), gathers));
        [(name, design)].into_iter().chain(gathers)
    });
    for (name, design) in variants {
        if required::cannot_run(&format!("tcp/{}", design.about().name), design.availability()) {
            continue;
        }
        // A limit on silence is a timer, and would be due one day.
        let limits = tcp::Limits::default().silent(None).idle(None);
        let server = tcp::Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).limits(limits);
        let running = server.start(design, |_| EchoAfter { kept: Vec::new(), due: None });
        let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
        // Connections that have been served, by alarms that went off, and stay.
        let mut clients: Vec<_> =
            (0..3).map(|_| tcp_client::connect(running.local_addresses()[0])).collect();
        for client in &mut clients {
            tcp_client::exchange(client, b"a message");
        }
        servers.push((name, running, clients));
    }
    let threads =
        |(name, running, _): &(String, tcp::Running, _)| (name.clone(), running.thread_ids());
    assert_at_rest(&servers.iter().map(threads).collect::<Vec<_>>());
    for (name, running, clients) in servers {
        drop(clients);
        let report = running.stop();
        assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    }
}
