//! The provider's own code, on the stand-in: on every system with Windows' sockets.

use super::{
    stand_in::{Fault, fail_next},
    *,
};
use crate::{
    memory::RegionOptions,
    rio::{HandOver, OneThread, Peer, Provider, Refused, RequestQueue, Span, turn::Turns},
    socket::SocketOptions,
};
use std::{collections::BTreeMap, net::UdpSocket, num::NonZeroU16, thread};

const NEEDS: Needs =
    Needs { payload: 128, receives: 60, sends: 20, per_dequeue: 50, offload: false, meta: false };
/// Far longer than anything here takes.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

const WINSOCK: Winsock = Winsock { calls: Calls::StandIn };

struct Bench<T: Sharing> {
    region: Arc<Region>,
    addresses: Vec<SocketAddr>,
    completions: WinsockCompletions<T>,
    requests: Vec<WinsockRequests<T>>,
    batch: Batch,
    counters: Counters,
}

fn endpoint(at: &str, options: SocketOptions) -> Endpoint {
    Endpoint { address: at.parse().unwrap(), options }
}

fn region(needs: Needs) -> Arc<Region> {
    let layout = Provider::<OneThread>::layout(&WINSOCK, &needs).unwrap();
    Region::new(layout, needs.receives + needs.sends + 1, RegionOptions::default()).unwrap()
}

fn bench_of<T: Sharing>(at: &[Endpoint], needs: Needs) -> Bench<T> {
    let region = region(needs);
    let opened = Provider::<T>::open(&WINSOCK, at, &region, &needs).unwrap();
    let addresses = opened.local_addresses();
    let Started { completions, requests, .. } = Provider::<T>::start(&WINSOCK, opened).unwrap();
    let batch = Batch::new(needs.per_dequeue as usize);
    Bench { region, addresses, completions, requests, batch, counters: Counters::default() }
}

fn bench<T: Sharing>(at: &[&str], needs: Needs) -> Bench<T> {
    let at: Vec<_> = at.iter().map(|at| endpoint(at, SocketOptions::default())).collect();
    bench_of(&at, needs)
}

impl<T: Sharing> Bench<T> {
    fn post(&mut self, socket: usize, count: usize) {
        for _ in 0..count {
            self.requests[socket].receive(self.region.take().unwrap()).unwrap();
        }
        self.requests[socket].commit(&self.counters).unwrap();
    }

    fn dequeue(&mut self) -> Vec<Completion> {
        self.completions.dequeue(&mut self.batch, &self.counters).unwrap();
        self.batch.drain().collect()
    }

    /// Waits for at least so many completions.
    fn collect(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            assert_eq!(self.completions.wait(1, LONG, &self.counters).unwrap(), Woken::Ready);
            all.append(&mut self.dequeue());
        }
        all
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8], span: Span) {
        let mut slice = self.region.take().unwrap();
        slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
        self.requests[0].send(slice, span, &Peer::from(to)).unwrap();
    }

    /// Stops and checks that every slice is in the pool.
    fn stop(self) {
        let Bench { region, completions, requests, .. } = self;
        let outside = region.count() - region.in_pool();
        let stopped = completions.stop(requests, Instant::now() + LONG.unwrap());
        assert_eq!((stopped.returned, stopped.missing), (outside, 0));
        assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
    }
}

fn bytes_of(completion: &Completion) -> Vec<u8> {
    match &completion.outcome {
        Outcome::Received(arrival) => completion.slice.payload()[..arrival.len()].to_vec(),
        other => panic!("not a datagram: {other:?}"),
    }
}

fn peer() -> UdpSocket {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(LONG).unwrap();
    peer
}

#[test]
fn a_sink_that_never_sends_has_room_for_all_receives() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"; 2], Needs { sends: 0, ..NEEDS });
    b.post(0, 59);
    b.post(1, 1);
    b.stop();
}

fn every_datagram_of_several_sockets_and_families_once<T: Sharing>() {
    let mut b = bench::<T>(&["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"], NEEDS);
    for socket in 0..3 {
        b.post(socket, 20);
    }
    let mut sent = BTreeMap::new();
    for socket in 0..3usize {
        let local = if b.addresses[socket].is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
        for peer in 0..2 {
            let peer_socket = UdpSocket::bind(local).unwrap();
            for n in 0..10u8 {
                let bytes = vec![n; n as usize * 12]; // 0 to 108 bytes
                peer_socket.send_to(&bytes, b.addresses[socket]).unwrap();
                let from = peer_socket.local_addr().unwrap();
                assert!(sent.insert((socket as u32, from, bytes), peer).is_none());
            }
        }
    }
    let got = b.collect(sent.len());
    assert_eq!(got.len(), sent.len());
    for completion in &got {
        let from = completion.source().expect("a datagram");
        let key = (completion.socket, from, bytes_of(completion));
        assert!(sent.remove(&key).is_some(), "{key:?}");
    }
    assert!(b.dequeue().is_empty());
    assert_eq!(b.requests[1].outstanding(), (0, 0));
    drop(got);
    b.post(1, 20);
    b.stop();
}

#[test]
fn every_datagram_once_on_one_thread() {
    every_datagram_of_several_sockets_and_families_once::<OneThread>();
}

#[test]
fn every_datagram_once_handed_over() {
    every_datagram_of_several_sockets_and_families_once::<HandOver>();
}

#[test]
fn receives_are_filled_in_the_order_posted_without_a_call_to_dequeue() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 30);
    assert_eq!(b.counters.kernel_entries.get(), 1, "30 posts are one commit");
    let peer = peer();
    for n in 0..30u8 {
        peer.send_to(&[n], b.addresses[0]).unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 30 {
        assert_eq!(b.completions.wait(1, LONG, &b.counters).unwrap(), Woken::Ready);
        let entries = b.counters.kernel_entries.get();
        got.extend(b.dequeue());
        assert_eq!(b.counters.kernel_entries.get(), entries);
    }
    assert!(got.iter().map(bytes_of).eq((0..30u8).map(|n| vec![n])));
    assert!(got.iter().map(|c| c.slice.index()).eq(0..30));
    drop(got);
    b.stop();
}

#[test]
fn longer_datagrams_are_truncated() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 2);
    let peer = peer();
    peer.send_to(&[1; 128], b.addresses[0]).unwrap();
    peer.send_to(&[2; 129], b.addresses[0]).unwrap();
    let got = b.collect(2);
    let cut = |c: &Completion| matches!(&c.outcome, Outcome::Received(a) if a.truncated);
    assert_eq!(got.iter().map(cut).collect::<Vec<_>>(), [false, true]);
    assert_eq!(bytes_of(&got[1]), [2; 128]);
    drop(got);
    b.stop();
}

#[test]
fn the_address_that_was_written_to_is_told() {
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let at = [endpoint("0.0.0.0:0", options), endpoint("127.0.0.1:0", SocketOptions::default())];
    let mut b = bench_of::<OneThread>(&at, NEEDS);
    b.post(0, 3);
    b.post(1, 1);
    let peer = peer();
    for (ip, socket) in [("127.0.0.1", 0), ("127.0.0.5", 0), ("127.0.0.1", 1)] {
        peer.send_to(b"x", (ip, b.addresses[socket].port())).unwrap();
    }
    let got = b.collect(3);
    let told = |c: &Completion| {
        let arrival = c.arrival().expect("a datagram");
        assert_eq!(arrival.from, peer.local_addr().unwrap());
        (c.socket, arrival.local.map(|local| local.to_string()))
    };
    let mut told: Vec<_> = got.iter().map(told).collect();
    told.sort();
    let of = |ip: &str| Some(ip.to_owned());
    assert_eq!(told, [(0, of("127.0.0.1")), (0, of("127.0.0.5")), (1, None)]);
    drop(got);
    b.stop();
}

#[test]
fn no_more_than_needed_is_taken() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    b.requests[0].reserve(40);
    b.requests[1].reserve(40);
    assert_eq!((b.requests[0].outstanding().0, b.requests[1].outstanding().0), (40, 20));
    b.post(0, 40);
    b.post(1, 20);
    let refused = b.requests[0].receive(b.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    let nobody = peer().local_addr().unwrap();
    for _ in 0..20 {
        b.send(nobody, b"x", 1.into());
    }
    let to = Peer::from(nobody);
    assert!(b.requests[0].send(b.region.take().unwrap(), 1, &to).is_err());
    assert_eq!((b.requests[0].outstanding(), b.requests[1].outstanding()), ((40, 20), (20, 0)));
    b.stop();
}

#[test]
fn sends_complete_and_one_that_fails_holds_nobody_up() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = peer();
    let to = peer.local_addr().unwrap();
    b.send(to, b"first", 5.into());
    b.send("[::1]:9".parse().unwrap(), b"another family", 14.into());
    b.send(to, b"", 0.into());
    b.send(to, b"last", 4.into());
    b.requests[0].commit(&b.counters).unwrap();
    let outcomes: Vec<_> = b.collect(4).into_iter().map(|c| c.outcome).collect();
    let sent = |n: usize, len: usize| matches!(outcomes[n], Outcome::Sent(s) if s == len.into());
    assert!(sent(0, 5) && sent(2, 0) && sent(3, 4), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::NotSent(_)), "{outcomes:?}");
    let mut buffer = [0; 8];
    for len in [5, 0, 4] {
        assert_eq!(peer.recv_from(&mut buffer).unwrap(), (len, b.addresses[0]));
    }
    assert_eq!(b.requests[0].outstanding(), (0, 0));
    b.stop();
}

fn several_datagrams_of_one_slice<T: Sharing>() {
    let mut b = bench::<T>(&["127.0.0.1:0"], NEEDS);
    let (peer, nowhere) = (peer(), "[::1]:9".parse().unwrap());
    let span = Span { len: 11, segment: NonZeroU16::new(3) };
    for to in [nowhere, peer.local_addr().unwrap()] {
        b.send(to, b"aaabbbcccdd", span);
    }
    b.requests[0].commit(&b.counters).unwrap();
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 {
        b.completions.wait(1, LONG, &b.counters).unwrap();
        outcomes.extend(b.dequeue().into_iter().map(|done| done.outcome));
    }
    let unsent = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::NotSent(unsent) => Some((unsent.datagrams, unsent.sent)),
        _ => None,
    });
    assert_eq!(unsent, Some((4, 0)), "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Sent(s) if *s == span)));
    let mut buffer = [0; 8];
    for datagram in [&b"aaa"[..], b"bbb", b"ccc", b"dd"] {
        let len = peer.recv_from(&mut buffer).unwrap().0;
        assert_eq!(&buffer[..len], datagram);
    }
    assert_eq!(b.requests[0].outstanding(), (0, 0));
    b.stop();
}

#[test]
fn several_datagrams_leave_one_by_one_on_one_thread() {
    several_datagrams_of_one_slice::<OneThread>();
}

#[test]
fn several_datagrams_leave_one_by_one_handed_over() {
    several_datagrams_of_one_slice::<HandOver>();
}

fn wakers_end_this_wait_or_the_next<T: Sharing>() {
    let mut b = bench::<T>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 1);
    let waker = b.completions.waker();
    waker.wake();
    waker.wake();
    assert_eq!(b.completions.wait(1, None, &b.counters).unwrap(), Woken::ByWaker);
    let zero = Some(Duration::ZERO);
    assert_eq!(b.completions.wait(1, zero, &b.counters).unwrap(), Woken::TimedOut);
    let other = thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert_eq!(b.completions.wait(1, None, &b.counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    // The notification that the first wait asked for is still to come, and comes once.
    peer().send_to(b"x", b.addresses[0]).unwrap();
    assert_eq!(b.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"x"]);
    b.stop();
    waker.wake(); // after the queue has gone
}

#[test]
fn wakers_end_waits_on_one_thread() {
    wakers_end_this_wait_or_the_next::<OneThread>();
}

#[test]
fn wakers_end_waits_handed_over() {
    wakers_end_this_wait_or_the_next::<HandOver>();
}

fn datagrams_gather_for_a_time_and_do_not_end_it<T: Sharing>() {
    let mut b = bench::<T>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 8);
    let short = Some(Duration::ZERO);
    assert_eq!(b.completions.wait(1, short, &b.counters).unwrap(), Woken::TimedOut);
    let peer = peer();
    for _ in 0..3 {
        peer.send_to(b"early", b.addresses[0]).unwrap();
    }
    let (began, time) = (Instant::now(), Duration::from_millis(5));
    assert_eq!(b.completions.gather(2, time, &b.counters).unwrap(), Woken::Ready);
    assert!(began.elapsed() >= time);
    assert_eq!(b.collect(3).len(), 3);
    let waker = b.completions.waker();
    let other = thread::spawn(move || waker.wake());
    let long = LONG.unwrap();
    assert_eq!(b.completions.gather(64, long, &b.counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    b.stop();
}

#[test]
fn datagrams_gather_on_one_thread() {
    datagrams_gather_for_a_time_and_do_not_end_it::<OneThread>();
}

#[test]
fn datagrams_gather_handed_over() {
    datagrams_gather_for_a_time_and_do_not_end_it::<HandOver>();
}

#[test]
fn without_slices_datagrams_are_kept() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    peer().send_to(b"early", b.addresses[0]).unwrap();
    let short = Some(Duration::from_millis(2));
    assert_eq!(b.completions.wait(1, short, &b.counters).unwrap(), Woken::TimedOut);
    b.post(0, 1);
    assert_eq!(b.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"early"]);
    b.stop();
}

#[test]
fn what_is_not_committed_comes_back_and_nothing_is_taken_after_a_stop() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    b.post(0, 3);
    b.post(1, 2);
    b.requests[0].receive(b.region.take().unwrap()).unwrap();
    let mut kept = b.requests.pop().unwrap();
    kept.receive(b.region.take().unwrap()).unwrap();
    let Bench { region, completions, requests, counters, .. } = b;
    let stopped = completions.stop(requests, Instant::now() + LONG.unwrap());
    assert_eq!((stopped.returned, stopped.missing), (6, 0));
    assert!(kept.commit(&counters).is_err());
    assert_eq!(kept.receive(region.take().unwrap()).unwrap_err().1, Refused::Stopped);
    drop(kept);
    assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
}

#[test]
fn dropping_without_a_stop_leaks_what_the_system_has() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 10);
    let Bench { region, completions, requests, .. } = b;
    drop((completions, requests));
    assert_eq!((region.in_pool(), region.leaked()), (region.count() - 10, 10));
}

#[test]
fn a_corrupt_queue_is_told_and_what_it_had_is_leaked() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 4);
    fail_next(Fault::Corrupt);
    for _ in 0..2 {
        let error = b.completions.dequeue(&mut b.batch, &b.counters).unwrap_err();
        assert!(error.to_string().contains("RIO_CORRUPT_CQ"), "{error}");
    }
    let stopped = b.completions.stop(b.requests, Instant::now() + LONG.unwrap());
    assert_eq!((stopped.returned, stopped.missing), (0, 4));
    assert_eq!(b.region.leaked(), 4);
}

#[test]
fn a_post_or_commit_that_fails_loses_no_slice() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    for fault in [Fault::Receive, Fault::Commit] {
        for _ in 0..3 {
            b.requests[0].receive(b.region.take().unwrap()).unwrap();
        }
        fail_next(fault);
        assert!(b.requests[0].commit(&b.counters).is_err());
    }
    assert_eq!(b.requests[0].outstanding(), (6, 0));
    // What was not taken goes with the next.
    b.post(0, 1);
    let peer = peer();
    for n in 0..7 {
        peer.send_to(&[n], b.addresses[0]).unwrap();
    }
    assert_eq!(b.collect(7).len(), 7);
    // A send that is refused at once is told, and ends a wait.
    fail_next(Fault::Send);
    b.send(peer.local_addr().unwrap(), b"never", 5.into());
    b.requests[0].commit(&b.counters).unwrap();
    let refused = b.collect(1);
    assert!(matches!(refused[0].outcome, Outcome::NotSent(_)));
    assert_eq!(b.requests[0].outstanding(), (0, 0));
    drop(refused);
    fail_next(Fault::Notify);
    assert!(b.completions.wait(1, LONG, &b.counters).is_err());
    b.post(0, 2);
    b.stop();
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing_behind() {
    let at = [endpoint("127.0.0.1:0", SocketOptions::default())];
    let region = region(NEEDS);
    fail_next(Fault::Register);
    assert!(Provider::<OneThread>::open(&WINSOCK, &at, &region, &NEEDS).is_err());
    for fault in [Fault::CreateCompletionQueue, Fault::CreateRequestQueue] {
        let opened = Provider::<OneThread>::open(&WINSOCK, &at, &region, &NEEDS).unwrap();
        fail_next(fault);
        let Err(error) = Provider::<OneThread>::start(&WINSOCK, opened) else {
            panic!("{fault:?} was not told")
        };
        assert!(error.to_string().contains("registered I/O"), "{error}");
    }
    let many = Needs { receives: RIO_MAX_CQ_SIZE / 2, ..NEEDS };
    assert!(Provider::<OneThread>::layout(&WINSOCK, &many).is_ok());
    let (layout, three) = (layout(&many).unwrap(), [at[0]; 3]);
    let small = Region::new(layout, 1, RegionOptions::default()).unwrap();
    assert!(Provider::<OneThread>::open(&WINSOCK, &three, &small, &many).is_err());
    let more = Needs { receives: RIO_MAX_CQ_SIZE, ..NEEDS };
    assert!(Provider::<OneThread>::layout(&WINSOCK, &more).is_err());
}

#[test]
fn two_threads_post_and_dequeue_at_once() {
    const DATAGRAMS: usize = 1000;
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 40);
    let to = b.addresses[0];
    let (returned, to_post) = std::sync::mpsc::sync_channel::<Slice>(100);
    let (permit, permits) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let requests = &mut b.requests[0];
        scope.spawn(move || {
            // Ends when the dequeuing thread drops its end.
            for slice in to_post {
                requests.receive(slice).unwrap();
                requests.commit(&Counters::default()).unwrap();
            }
        });
        scope.spawn(move || {
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            for n in 0..DATAGRAMS as u32 {
                // Never more under way than the socket's buffer holds for certain.
                if n >= 32 {
                    permits.recv().unwrap();
                }
                peer.send_to(&n.to_le_bytes(), to).unwrap();
            }
        });
        let mut next = 0u32;
        let mut batch = Batch::new(50);
        while next < DATAGRAMS as u32 {
            let counters = Counters::default();
            b.completions.wait(1, LONG, &counters).unwrap();
            b.completions.dequeue(&mut batch, &counters).unwrap();
            for completion in batch.drain() {
                assert_eq!(bytes_of(&completion), next.to_le_bytes());
                next += 1;
                let _ = permit.send(());
                returned.send(completion.slice).unwrap();
            }
        }
        drop(returned);
    });
    assert_eq!(b.requests[0].outstanding(), (40, 0));
    b.stop();
}

#[test]
fn the_port_delivers_the_turn_to_one_thread_at_a_time() {
    const DATAGRAMS: usize = 300;
    const THREADS: usize = 3;
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 60);
    let to = b.addresses[0];
    let Bench { region, completions, requests, .. } = b;
    let turns = Turns::new(completions, THREADS);
    let requests = std::sync::Mutex::new(requests);
    let seen = std::sync::Mutex::new(Vec::new());
    let (permit, permits) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (turns, requests, seen, permit) = (&turns, &requests, &seen, permit.clone());
            scope.spawn(move || {
                let (counters, mut batch) = (Counters::default(), Batch::new(8));
                while let Some(mut turn) = turns.take(number, &counters).unwrap() {
                    turn.queue().dequeue(&mut batch, &counters).unwrap();
                    turn.notify(&counters);
                    let mut requests = requests.lock().unwrap();
                    for completion in batch.drain() {
                        let mut seen = seen.lock().unwrap();
                        seen.push(bytes_of(&completion));
                        let _ = permit.send(());
                        if seen.len() == DATAGRAMS {
                            turns.close();
                        }
                        drop(seen);
                        requests[0].receive(completion.slice).unwrap();
                    }
                    requests[0].commit(&counters).unwrap();
                }
            });
        }
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..DATAGRAMS as u32 {
            if n >= 32 {
                permits.recv().unwrap();
            }
            peer.send_to(&n.to_le_bytes(), to).unwrap();
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), DATAGRAMS);
    let queue = turns.take_back().expect("every thread has given it up");
    let by = Instant::now() + LONG.unwrap();
    assert_eq!(queue.stop(requests.into_inner().unwrap(), by).missing, 0);
    assert_eq!(region.in_pool(), region.count());
}

#[test]
fn where_the_system_has_none_it_says_so() {
    // On Windows it has.
    if let Err(reason) = Provider::<OneThread>::layout(&Winsock::default(), &NEEDS) {
        let reason = reason.to_string();
        assert!(reason.contains("provider winsock") && reason.contains("batch"), "{reason}");
    }
}
