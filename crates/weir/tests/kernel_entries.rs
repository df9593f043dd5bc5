//! The entries into the kernel that each design counts itself, held against those that the kernel counts: a design
//! that says that it counts all of them does, and one whose threads wait for each other counts no more than there are.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;

use std::{
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    counters::os::KernelEntries,
    device::{self, Device, Reads},
    tcp,
    udp::{self, Datagram, Replies},
};

/// What all threads of the process do is counted, so tests run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts from now on, what the calling thread does aside. `None` where that is not permitted.
fn counting() -> Option<KernelEntries> {
    match KernelEntries::begin() {
        Ok(entries) => {
            entries.leave_me_out().unwrap();
            Some(entries)
        }
        Err(why) => {
            required::cannot_run("kernel-entries", Err::<(), _>(why));
            None
        }
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let by = Instant::now() + Duration::from_secs(60);
    while !reached() {
        assert!(Instant::now() < by, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Own counts around the kernel's count: what the server has done meanwhile lies between.
struct Mark {
    before: u64,
    counted: u64,
    after: u64,
}

impl Mark {
    fn take(own: impl Fn() -> u64, entries: &KernelEntries) -> Self {
        let before = own();
        Self { before, counted: entries.read().unwrap(), after: own() }
    }
}

/// Calls that no design makes for what it serves: threads of the test harness, memory, clocks. And a call may be
/// counted on one side of a mark and made on the other.
const SLACK: u64 = 60;

fn compare(name: &str, parks: bool, from: &Mark, to: &Mark, events: u64) {
    let counted = to.counted - from.counted;
    let (least, most) = (to.before - from.after, to.after - from.before);
    eprintln!(
        "{name}: {counted} counted by the kernel, {least} to {most} by itself, {events} events"
    );
    assert!(least <= counted + SLACK, "{name} counted {least}, and there were {counted}");
    if !parks {
        let more = counted.saturating_sub(most);
        assert!(more <= SLACK + most / 100, "{name} counted {most}, and there were {counted}");
    }
}

const DATAGRAMS: u64 = 2000;
/// Datagrams under way at a time.
const WINDOW: u64 = 16;

#[test]
fn udp_designs_count_all_entries_or_say_that_they_do_not() {
    let _alone = alone();
    let Some(entries) = counting() else { return };
    for mut design in udp::designs() {
        if design.availability().is_err() {
            continue;
        }
        for threads in ["1", "2"] {
            if design.set("threads", threads).is_err() && threads == "2" {
                continue;
            }
            let name = format!("{} with {threads}", design.about().name);
            let parks = design.parks_threads();
            let server = udp::Server::bind("127.0.0.1:0".parse().unwrap());
            let server = server
                .start(design.clone(), |_| |_: Datagram<'_>, _: &mut Replies<'_>| ())
                .unwrap();
            let total = || server.counters().iter().map(|c| c.datagrams).sum::<u64>();
            let own = || server.counters().iter().map(|c| c.kernel_entries).sum::<u64>();
            let to = server.local_addresses()[0];
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let send = |many: u64| {
                let before = total();
                for sent in 0..many {
                    socket.send_to(&[7; 64], to).unwrap();
                    if (sent + 1) % WINDOW == 0 {
                        until(&name, || total() > before + sent);
                    }
                }
                until(&name, || total() == before + many);
            };
            send(WINDOW); // what is done once is done
            let from = Mark::take(own, &entries);
            send(DATAGRAMS);
            compare(&name, parks, &from, &Mark::take(own, &entries), DATAGRAMS);
            assert!(server.stop().failure.is_none());
        }
    }
}

const MESSAGES: u64 = 2000;

#[test]
fn tcp_designs_count_all_entries_or_say_that_they_do_not() {
    let _alone = alone();
    let Some(entries) = counting() else { return };
    for mut design in tcp::designs() {
        if design.availability().is_err() {
            continue;
        }
        for threads in ["1", "2"] {
            if design.set("threads", threads).is_err() && threads == "2" {
                continue;
            }
            let name = format!("{} with {threads}", design.about().name);
            let parks = design.parks_threads();
            let server = tcp::Server::bind("127.0.0.1:0".parse().unwrap());
            let echo = |_: &mut [u8], output: &mut tcp::Output<'_>| output.echo().unwrap();
            let server = server.start(design.clone(), move |_| echo).unwrap();
            let own = || server.calls().kernel_entries;
            let to = server.local_addresses()[0];
            let mut clients: Vec<_> = (0..4).map(|_| TcpStream::connect(to).unwrap()).collect();
            let mut exchange = |rounds: u64| {
                for _ in 0..rounds {
                    for client in &mut clients {
                        client.write_all(&[7; 64]).unwrap();
                    }
                    for client in &mut clients {
                        client.read_exact(&mut [0; 64]).unwrap();
                    }
                }
            };
            exchange(10); // what is done once is done
            let from = Mark::take(own, &entries);
            exchange(MESSAGES / 4);
            compare(&name, parks, &from, &Mark::take(own, &entries), MESSAGES);
            drop(clients);
            assert!(server.stop().failure.is_none());
        }
    }
}

const IOS: u64 = 20_000;

#[test]
fn device_designs_count_all_entries_or_say_that_they_do_not() {
    let _alone = alone();
    let Some(entries) = counting() else { return };
    for mut design in device::designs() {
        if design.availability().is_err() || design.wants() == device::Wants::Calls {
            continue;
        }
        for threads in ["1", "2"] {
            if design.set("threads", threads).is_err() && threads == "2" {
                continue;
            }
            let name = format!("{} with {threads}", design.about().name);
            let parks = design.parks_threads();
            let null = Device::open("/dev/null", &[]).unwrap();
            let running = Reads::of(&null).start(design.clone(), |_| ()).unwrap();
            let own = || running.calls().kernel_entries;
            let done = || running.counters().completed;
            until(&name, || done() > 1000);
            let (from, first) = (Mark::take(own, &entries), done());
            until(&name, || done() > first + IOS);
            compare(&name, parks, &from, &Mark::take(own, &entries), done() - first);
            assert!(running.stop().failure.is_none());
        }
    }
}
