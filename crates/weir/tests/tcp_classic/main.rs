//! What sets the classic designs of TCP apart from each other. What they have in common is checked by the
//! conformance tests.

#[cfg(target_os = "linux")]
mod linux;
#[path = "../../src/required.rs"]
mod required;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../suite/tcp.rs"]
mod tcp;
#[path = "../suite/tcp_designs.rs"]
mod tcp_designs;

use std::{
    io::Read as _,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
use tcp::{connect, echo, exchange, stop};
use tcp_designs::{can_run, end, exchange_much, start};
use weir::{
    Error,
    tcp::{AnyDesign, Limits, REFUSAL, Running, Server},
};

const CLASSIC: [&str; 5] =
    ["select", "select-indexed", "poll --threads 1", "async-select", "event-select"];

#[test]
fn each_serves_many_connections_at_a_time() {
    for design in CLASSIC {
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..300).map(|_| connect(address)).collect();
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                exchange(client, format!("{design}: {round} of {number}").as_bytes());
            }
        }
        clients.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.accepted, total.closed_finished), (300, 300), "{design}");
        assert_eq!(total.bytes_received, total.bytes_sent, "{design}");
    }
}

/// What the bound of a drain leaves is served without another message: the last bytes of a burst come
/// back as well.
#[test]
fn a_bounded_drain_loses_nothing() {
    for design in CLASSIC {
        let running = start(&format!("{design} --drain 1"));
        let bytes = (0..1_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
        exchange_much(connect(running.local_addresses()[0]), bytes);
        let _ = stop(running);
    }
}

#[test]
fn event_select_starts_a_thread_for_each_full_group() {
    // Three places beside the waker's.
    let running = start("event-select --group 4");
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(|client| exchange(client, b"hello"));
    assert_eq!(running.thread_ids().len(), 1 + 7);
    clients.into_iter().for_each(end);
    let report = stop(running);
    assert_eq!(report.most_threads, 8);
}

#[test]
fn event_select_fills_groups_again() {
    let running = start("event-select --group 4");
    let address = running.local_addresses()[0];
    for _ in 0..60 {
        let mut client = connect(address);
        exchange(&mut client, b"hello");
        end(client);
    }
    // The accepting one and the first group's; another where a connection came before the thread had
    // seen the last ones off.
    let report = stop(running);
    assert!(report.most_threads <= 3, "{}", report.most_threads);
}

/// A server with at most so many threads for connections.
fn with_threads(design: &str, threads: u32) -> Result<Running, Error> {
    let limits = Limits::default().threads(Some(threads));
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).limits(limits);
    server.start(AnyDesign::parse(design).unwrap(), |_| echo)
}

/// What a connection is told that is refused.
fn refusal(mut client: TcpStream) -> String {
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    said.strip_prefix(REFUSAL).expect("it is told that it is refused").trim_end().to_owned()
}

#[test]
fn no_more_are_let_in_than_there_can_be_threads_for() {
    for (design, threads, most) in [
        ("blocking", 7, 3),
        ("event-select --group 4", 2, 6),
        ("overlapped-events --group 7 --sends 1", 2, 6),
    ] {
        if !can_run(design) {
            continue;
        }
        let running = with_threads(design, threads).unwrap();
        let address = running.local_addresses()[0];
        let mut within: Vec<_> = (0..most).map(|_| connect(address)).collect();
        for round in 0..5 {
            within.iter_mut().for_each(|client| exchange(client, b"within"));
            let why = format!(
                "there are {most} connections, as many as there are threads for (threads-max = {threads})"
            );
            assert_eq!(refusal(connect(address)), why, "{design}");
            // The place of one that leaves is given again.
            end(within.remove(0));
            let by = Instant::now() + Duration::from_secs(60);
            while running.open() == most {
                assert!(Instant::now() < by, "{design}: it is never over, in round {round}");
                thread::yield_now();
            }
            within.push(connect(address));
        }
        within.iter_mut().for_each(|client| exchange(client, b"at last"));
        within.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.refused, total.closed_finished), (5, u64::from(most) + 5), "{design}");
    }
    match with_threads("blocking", 1) {
        Err(Error::Option { name, problem }) => {
            assert_eq!(name, "threads-max");
            assert!(problem.contains("not enough for one connection"), "{problem}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}
