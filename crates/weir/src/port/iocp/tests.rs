//! What only a port of Windows has for datagrams, beside what every port has ([`crate::port::tests`]).

use super::{
    IocpWorker,
    inner::Inner,
    queue::{is_want_of_memory, may_skip, service_flags},
    state::Outstanding,
};
use crate::{
    counters::Counters,
    port::{
        Completion, Needs, Outcome, Port, Provider, Shape, Stopped, Taken, Worker,
        iocp::Iocp,
        tests::{
            LONG, bench, needs,
            order::{packet, take_packet},
            sender, take_datagram, take_operation,
            traffic::*,
        },
    },
    required::cannot_run,
    rio::{Peer, Span},
    wine,
};
use std::{
    io::{self, ErrorKind},
    net::UdpSocket,
    num::NonZeroU16,
    os::windows::io::AsRawSocket,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use windows_sys::Win32::Networking::WinSock::{SOCKET, XP1_IFS_HANDLES};

/// A port that has no packet told of what is done when its call returns; none where there is no port.
fn without_packets() -> Option<Iocp> {
    let provider = Iocp { shape: Shape { skip_ready: true, ..Shape::BEST } };
    (!cannot_run("port", provider.layout(&needs()))).then_some(provider)
}

#[test]
fn every_datagram_once_where_what_is_ready_has_no_packet() {
    let Some(provider) = without_packets() else { return };
    for concurrency in [1, 4] {
        let needs = Needs { concurrency, ..needs() };
        every_datagram_once(provider, needs, 1, 2000);
        every_datagram_once(provider, needs, 100, 2000);
    }
}

#[test]
fn what_is_too_long_is_told_once_where_what_is_ready_has_no_packet() {
    let Some(provider) = without_packets() else { return };
    every_datagram_that_is_too_long_is_told_once(provider);
    // The slot of one that was too long is used again, for what the kernel never has.
    let bench = bench(provider, Needs { receives: 1, sends: 1, ..needs() });
    let to = Peer::from(bench.address);
    let mut worker = bench.port.worker().unwrap();
    for _ in 0..10 {
        sender().send_to(&[1; 257], bench.address).unwrap();
        worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
        let (slice, arrival) = take_datagram(&mut worker);
        assert!(arrival.truncated);
        let span = Span { len: 4, segment: NonZeroU16::new(2) };
        worker.send(bench.socket, slice, span, &to).unwrap();
        assert!(matches!(take_operation(&mut worker).2, Outcome::Sent(its) if its == span));
        for _ in 0..2 {
            worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
            assert_eq!(take_datagram(&mut worker).1.len, 2);
        }
    }
    drop(worker);
    bench.stop();
}

/// Where the system posts packets all the same of what was too long, each such operation has two ends. What nobody has
/// taken meets the next operation of that block, and must not end it while the kernel writes.
#[test]
fn a_packet_too_many_ends_nothing_that_the_kernel_has() {
    let Some(provider) = without_packets() else { return };
    // With one receive all have the same block.
    let bench = bench(provider, Needs { receives: 1, sends: 0, ..needs() });
    let mut worker = bench.port.worker().unwrap();
    let receive = |worker: &mut IocpWorker<'_>| {
        let token = worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
        bench.port.inner.with(|state| state.operations.address(token))
    };
    for _ in 0..3 {
        for _ in 0..2 {
            sender().send_to(&[1; 257], bench.address).unwrap();
            let address = receive(&mut worker);
            bench.port.inner.queue.post(address).unwrap();
            assert!(take_datagram(&mut worker).1.truncated);
        }
        let address = receive(&mut worker);
        // The wait is not over when what is left of them is passed over.
        let (began, time) = (Instant::now(), Duration::from_millis(20));
        let taken = worker.take(&mut Taken::new(1), Some(time), &Counters::default());
        assert_eq!(taken.unwrap(), Some(0));
        assert!(began.elapsed() >= time);
        sender().send_to(&[2; 7], bench.address).unwrap();
        let (slice, arrival) = take_datagram(&mut worker);
        assert_eq!(slice.payload()[..arrival.len], [2; 7]);
        drop(slice);
        // One more, which comes while nothing is outstanding.
        bench.port.inner.queue.post(address).unwrap();
    }
    drop(worker);
    bench.stop();
}

#[test]
fn only_sockets_of_the_systems_own_provider_do_without_packets() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let flags = service_flags(socket.as_raw_socket() as SOCKET).unwrap();
    may_skip(flags).unwrap();
    let refused = may_skip(flags & !XP1_IFS_HANDLES).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("without skip-ready"), "{refused}");
}

/// A packet is posted again and again for want of memory only.
#[test]
fn only_want_of_memory_passes_by_itself() {
    for (code, passes) in [(1450, true), (8, true), (1816, true), (6, false), (87, false)] {
        assert_eq!(is_want_of_memory(&io::Error::from_raw_os_error(code)), passes, "{code}");
    }
}

/// Nobody tells that a thread waits at a port. So each says that it is about to, and has some time for it; where that was
/// too short another is woken, and they are parked once more. If it were the first that is woken, or any, no round would
/// find the order.
#[test]
fn the_thread_that_waited_last_is_woken_first() {
    if cannot_run("port", Iocp::default().layout(&needs())) || wine::LAST_FIRST.is_left_out() {
        return;
    }
    let found = (1..=10).any(|round| {
        let order = order_of_waking(Duration::from_millis(20 * round));
        order == [4, 3, 2, 1]
    });
    assert!(found);
}

/// Has threads 1 to 4 wait one after the other, so long after each other, and wakes them one by one: who came.
fn order_of_waking(apart: Duration) -> Vec<u32> {
    let bench = bench(Iocp::default(), Needs { concurrency: 1, threads: 4, ..needs() });
    let (about_to, waits) = mpsc::channel();
    let (taken, order) = mpsc::channel();
    let order = thread::scope(|scope| {
        for number in 1..=4 {
            let (bench, about_to, taken) = (&bench, about_to.clone(), taken.clone());
            scope.spawn(move || {
                let mut worker = bench.port.worker().unwrap();
                about_to.send(()).unwrap();
                take_packet(&mut worker);
                drop(worker);
                taken.send(number).unwrap();
            });
            waits.recv().unwrap();
            thread::sleep(apart);
        }
        let woken = |value| {
            bench.port.post(packet(value), &Counters::default()).unwrap();
            order.recv_timeout(LONG).unwrap()
        };
        (0..4).map(woken).collect()
    });
    bench.stop();
    order
}

/// One operation, whose cancel the system forgets once.
struct Forgotten {
    cancels: u32,
}

impl Outstanding for Forgotten {
    type Completion = Completion;

    const PER_PACKET: usize = 1;

    fn finish(&mut self, _: usize, _: &mut Taken) -> bool {
        false
    }

    fn outstanding(&self) -> u32 {
        u32::from(self.cancels < 2)
    }

    fn cancel_all(&mut self) {
        self.cancels += 1;
    }

    unsafe fn give_up(self) -> (u32, u32) {
        (self.cancels, self.outstanding())
    }
}

#[test]
fn a_stop_asks_again_for_what_does_not_come_back() {
    let inner = Inner::open(Forgotten { cancels: 0 }, 0, 1).unwrap();
    let stopped = inner.stop(Instant::now() + Duration::from_secs(5));
    assert_eq!(stopped, Stopped { returned: 2, missing: 0 });
}
