//! The contract of registered I/O, proved on the providers in memory: `rio-hybrid` and an
//! echo hold on both, with faults and without.

use std::{net::SocketAddr, time::Duration};
use weir::{
    limits::Limits,
    options::MicrosecondsValue,
    rio::{
        HandOver, OneThread, Provider,
        fake::{FakeWinsock, FakeXdp, Faults, Injected, Wire},
    },
    udp::{Datagram, Final, Replies, RioHybrid, Server},
};

/// Reached only by a test that fails.
const LIMIT: Duration = Duration::from_secs(60);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Echoes datagrams through `rio-hybrid` on a provider in memory, and checks every byte.
fn echo<P>(wire: &Wire, provider: P, threads: u32)
where
    P: Provider<OneThread> + Provider<HandOver>,
    <P as Provider<HandOver>>::Cq: Send,
    <P as Provider<HandOver>>::Rq: Send,
{
    const DATAGRAMS: u64 = 2000;
    let options = RioHybrid::default()
        .threads(threads)
        .outstanding(256)
        .dequeue_max(32)
        .threshold(8)
        .spin(MicrosecondsValue(20))
        // Several commits for each batch, and what is left over.
        .defer(5);
    let limits = Limits::default().replies_outstanding(1024);
    let job = Server::bind(address(9000))
        .limits(limits)
        .payload_bytes(256)
        .job(|_thread| |_: Datagram<'_>, replies: &mut Replies<'_>| replies.echo().unwrap())
        .unwrap();
    let server = options.start_on(job, provider).unwrap();
    let to = server.local_addresses()[0];
    for n in 0..DATAGRAMS {
        let from = address(20_000 + (n % 7) as u16);
        let bytes = n.to_le_bytes().repeat(n as usize % 20 + 1);
        assert_eq!(wire.inject(to, from, &bytes), Injected::Taken, "datagram {n}");
        // Never more under way than the slices that wait: a datagram without one is dropped.
        assert!(
            n % 32 != 31 || wire.wait_for_sent(n + 1, LIMIT),
            "echo {n} did not come, {threads} threads: {} sent; {:?}",
            wire.sent_total(),
            server.counters()
        );
    }
    assert!(wire.wait_for_sent(DATAGRAMS, LIMIT));
    let mut seen = vec![false; DATAGRAMS as usize];
    for sent in wire.sent() {
        let n = u64::from_le_bytes(sent.bytes[..8].try_into().unwrap());
        assert_eq!(sent.to, address(20_000 + (n % 7) as u16));
        assert_eq!(*sent.bytes, n.to_le_bytes().repeat(n as usize % 20 + 1));
        assert!(!std::mem::replace(&mut seen[n as usize], true), "datagram {n} echoed twice");
    }
    let report = server.stop();
    assert_clean(&report);
    assert_eq!(report.total().datagrams, DATAGRAMS);
}

fn assert_clean<H>(report: &Final<H>) {
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert!(report.slices.made > 0);
    assert_eq!((report.slices.returned, report.slices.missing), (report.slices.made, 0));
}

#[test]
fn hybrid_echoes_by_the_rules_of_xdp() {
    for threads in [1, 4] {
        let wire = Wire::new(1);
        echo(&wire, FakeXdp::new(&wire), threads);
    }
}

#[test]
fn hybrid_echoes_by_the_rules_of_winsock() {
    for threads in [1, 4] {
        let wire = Wire::new(2);
        echo(&wire, FakeWinsock::new(&wire), threads);
        let wire = Wire::new(2);
        echo(&wire, FakeWinsock::with_port(&wire), threads);
    }
}

#[test]
fn hybrid_echoes_while_things_go_wrong() {
    for seed in 0..10 {
        for threads in [1, 3] {
            let wire = Wire::with_faults(seed, Faults::harmless(0.2));
            echo(&wire, FakeXdp::new(&wire), threads);
            let wire = Wire::with_faults(seed, Faults::harmless(0.2));
            echo(&wire, FakeWinsock::new(&wire), threads);
            let wire = Wire::with_faults(seed, Faults::harmless(0.2));
            echo(&wire, FakeWinsock::with_port(&wire), threads);
        }
    }
}
