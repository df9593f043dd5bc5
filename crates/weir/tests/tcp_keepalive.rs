//! A peer that has gone without a word is found, by every design.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;
#[path = "suite/tcp.rs"]
mod tcp;

use std::{
    net::TcpStream,
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};
use tcp::{connect, echo, exchange, exchange_at_once, stop};
use weir::{
    stream::{Keepalive, StreamOptions},
    tcp::{Limits, Server, designs},
};

const SECOND: Duration = Duration::from_secs(1);

/// How long anything may take that has only to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// From now on this end hears nothing, and so answers nothing, as one whose machine is off.
fn vanish(client: &TcpStream) {
    let mut drop_all =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut drop_all };
    // SAFETY: the kernel reads a program of one step, which outlives the call.
    let attached = unsafe {
        let size = size_of_val(&program) as libc::socklen_t;
        let program = (&raw const program).cast();
        libc::setsockopt(
            client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            program,
            size,
        )
    };
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_peer_that_has_gone_without_a_word_is_found() {
    let keepalive = Some(Keepalive::default().idle(SECOND).interval(SECOND).tries(2));
    let server = Server::bind("127.0.0.1:0".parse().unwrap())
        .stream_options(StreamOptions::default().keepalive(keepalive))
        .limits(Limits::default().silent(None).idle(None));
    let mut watched = Vec::new();
    for design in designs() {
        let name = design.about().name;
        if required::cannot_run(&format!("tcp/{name}"), design.availability()) {
            continue;
        }
        let running = server.start(design, |_| echo).unwrap();
        let effective = running.effective();
        let stated = effective.iter().find(|(name, _)| name == "keepalive").unwrap();
        assert_eq!(stated.1, "after 1s, every 1s, 2 times", "{name}");
        let address = running.local_addresses()[0];
        let mut clients = [connect(address), connect(address)];
        exchange_at_once(&mut clients, b"hello");
        vanish(&clients[0]);
        watched.push((name, running, clients));
    }
    let until = Instant::now() + PATIENCE;
    for (name, running, mut clients) in watched {
        while running.open() > 1 {
            assert!(Instant::now() < until, "{name}: {} are open", running.open());
            thread::sleep(Duration::from_millis(20));
        }
        // One that only says nothing answers the question and stays.
        exchange(&mut clients[1], b"still here");
        drop(clients);
        let total = stop(running).total();
        assert_eq!((total.closed_failed, total.closed_finished), (1, 1), "{name}");
    }
}
