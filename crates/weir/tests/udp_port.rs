//! The UDP designs on a completion port, with real loopback sockets.

#[path = "suite/receive.rs"]
mod receive;
#[path = "../src/required.rs"]
mod required;

use receive::receive;
use required::cannot_run;
use std::{
    collections::HashSet,
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        mpsc::{self, TryRecvError},
    },
    time::{Duration, Instant},
};
use weir::{
    limits::Limits,
    udp::{AnyDesign, Datagram, Port, PortBatch, Replies, Server},
};

/// What all tests give to a server, as one type: each type of a handler is all designs on all providers, compiled.
type Handle = Box<dyn FnMut(Datagram<'_>, &mut Replies<'_>) + Send>;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Those that can run here; why the others cannot is printed, or refused where required.
fn designs() -> Vec<AnyDesign> {
    let original: AnyDesign = Port::original().into();
    let alone = |design: &AnyDesign| {
        let mut alone = design.clone();
        alone.set("threads", "1").unwrap();
        alone
    };
    let all = [Port::default().into(), PortBatch::default().into(), original];
    let all = all.iter().cloned().chain(all.iter().map(alone));
    all.filter(|design| !cannot_run(design.about().name, design.availability())).collect()
}

/// Waits until `done`, while the server runs.
fn until(done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn a_sink_sees_every_datagram_once_from_its_source() {
    for design in designs() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let seen = Arc::new(Mutex::new(HashSet::new()));
            let server = Server::bind(address).start(design.clone(), noting_in(&seen)).unwrap();
            let to = server.local_addresses()[0];
            let peers = [0, 1, 2].map(|_| UdpSocket::bind(address).unwrap());
            let received = || server.counters().iter().map(|c| c.datagrams).sum::<u64>();
            for number in 0..600u64 {
                until(|| number < received() + 50);
                let mut bytes = vec![number as u8; 8 + number as usize % 1000];
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                peers[number as usize % 3].send_to(&bytes, to).unwrap();
            }
            until(|| received() == 600);
            let report = server.stop();
            assert!(report.failure.is_none(), "{design:?}: {:?}", report.failure);
            let slices = report.slices;
            assert_eq!((slices.made, slices.missing), (slices.returned, 0), "{design:?}");
            assert_eq!(report.total().datagrams, 600);
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), 600);
            for (number, len, source) in seen.iter() {
                assert_eq!(*len, 8 + *number as usize % 1000);
                assert_eq!(*source, peers[*number as usize % 3].local_addr().unwrap());
            }
        }
    }
}

/// Number, length and source of each datagram.
type Seen = Arc<Mutex<HashSet<(u64, usize, SocketAddr)>>>;

/// Notes them.
fn noting_in(seen: &Seen) -> impl FnMut(usize) -> Handle + Send + use<> {
    let seen = Arc::clone(seen);
    move |_| {
        let seen = Arc::clone(&seen);
        Box::new(move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
            let number = u64::from_le_bytes(datagram.bytes[..8].try_into().unwrap());
            assert!(datagram.bytes[8..].iter().all(|&byte| byte == number as u8));
            let once = seen.lock().unwrap().insert((number, datagram.bytes.len(), datagram.source));
            assert!(once, "{number} came twice");
        })
    }
}

#[test]
fn an_echo_and_a_reply_of_its_own_come_from_the_right_address() {
    for design in designs() {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(address)
            .and_bind(address)
            .limits(Limits::echo(0).replies_per_s(None))
            .start(design.clone(), |_| -> Handle {
                Box::new(|datagram, replies| {
                    if datagram.bytes.first() == Some(&b'c') {
                        replies.send(b"copy").unwrap();
                    } else {
                        replies.echo().unwrap();
                    }
                })
            })
            .unwrap();
        let peer = UdpSocket::bind(address).unwrap();
        peer.set_read_timeout(Some(LONG)).unwrap();
        let mut buffer = [0; 64];
        for &to in server.local_addresses() {
            for n in 0..40u8 {
                peer.send_to(&vec![n; n as usize], to).unwrap();
                assert_eq!(receive(&peer, &mut buffer).unwrap(), (n as usize, to), "{design:?}");
                assert!(buffer[..n as usize].iter().all(|&byte| byte == n));
            }
            peer.send_to(b"copy please", to).unwrap();
            assert_eq!(receive(&peer, &mut buffer).unwrap(), (4, to), "{design:?}");
            assert_eq!(&buffer[..4], b"copy");
        }
        // The completion of the last reply may come after the reply.
        until(|| server.counters().iter().map(|c| c.replies).sum::<u64>() == 82);
        let report = server.stop();
        assert!(report.failure.is_none(), "{design:?}: {:?}", report.failure);
        assert_eq!((report.slices.made, report.slices.missing), (report.slices.returned, 0));
    }
}

#[test]
fn a_stop_under_load_and_a_panic_give_every_slice_back() {
    for design in designs() {
        for panics in [false, true] {
            let server = Server::bind("127.0.0.1:0".parse().unwrap())
                .start(design.clone(), move |_| -> Handle {
                    let mut left = 200;
                    Box::new(move |_, _| {
                        left -= 1;
                        if panics && left == 0 {
                            std::panic::resume_unwind(Box::new("on purpose"));
                        }
                    })
                })
                .unwrap();
            let (to, peer) = (server.local_addresses()[0], UdpSocket::bind("127.0.0.1:0").unwrap());
            peer.connect(to).unwrap();
            // It lasts until the server has stopped: of a number of datagrams any part may be lost on the way. Where the
            // system tells that nobody receives any more it ends by itself, before another has the port.
            let (server_runs, until_it_stops) = mpsc::channel::<()>();
            let flood = std::thread::spawn(move || {
                let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
                while until_it_stops.try_recv() == Err(TryRecvError::Empty)
                    && !peer.send(&[0; 64]).is_err_and(|e| refused(&e))
                {}
            });
            if panics {
                until(|| !server.is_running());
            } else {
                until(|| server.counters().iter().map(|c| c.datagrams).sum::<u64>() > 100);
            }
            let report = server.stop();
            drop(server_runs);
            flood.join().unwrap();
            assert_eq!(report.failure.is_some(), panics, "{design:?}: {:?}", report.failure);
            let slices = report.slices;
            assert_eq!((slices.made, slices.missing), (slices.returned, 0), "{design:?}");
            assert!(slices.made >= 5000);
        }
    }
}

#[test]
fn what_was_granted_is_stated() {
    let mut design: AnyDesign = Port::default().into();
    if cannot_run(design.about().name, design.availability()) {
        return;
    }
    design.set("concurrency", "3").unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap())
        .start(design, |_| -> Handle { Box::new(|_, _| {}) })
        .unwrap();
    let effective = server.effective();
    let value = |name: &str| effective.iter().find(|(n, _)| n == name).unwrap().1.clone();
    assert_eq!((&*value("armed"), &*value("concurrency")), ("0", "3"));
    assert_eq!(value("concurrency-obtained"), "3");
    if value("provider") == "uring" {
        assert_eq!(value("armed-obtained"), "as many as come at once, at most 64");
        assert!(value("ring-flags").contains("CQSIZE"));
        assert!(!value("ring-flags").contains("SINGLE_ISSUER"), "the ring is shared");
    } else {
        assert_eq!(value("armed-obtained"), "all that are posted");
    }
    assert!(server.stop().failure.is_none());
}
