//! The provider's own code, on the stand-in: on every system with Windows' sockets.

use super::{
    stand_in::{Fault, fail_next},
    *,
};
use crate::{
    memory::RegionOptions,
    rio::{
        HandOver, OneThread, Peer, Provider, Refused, RequestQueue, Span,
        provider_tests::{self, NEEDS, PATIENCE, bytes_of},
        turn::Turns,
    },
    socket::SocketOptions,
};
use std::{
    net::{SocketAddr, UdpSocket},
    num::NonZeroU16,
    thread,
};

const WINSOCK: Winsock = Winsock { calls: Calls::StandIn };

type Rig<T> = provider_tests::Rig<T, Winsock>;

fn endpoint(at: &str, options: SocketOptions) -> Endpoint {
    Endpoint { address: at.parse().unwrap(), options }
}

fn region(needs: Needs) -> Arc<Region> {
    let layout = Provider::<OneThread>::layout(&WINSOCK, &needs).unwrap();
    Region::new(layout, needs.receives + needs.sends + 1, RegionOptions::default()).unwrap()
}

fn rig_of<T: Sharing>(at: &[Endpoint], needs: Needs) -> Rig<T> {
    Rig::open(&WINSOCK, needs, 1, at).unwrap()
}

fn rig<T: Sharing>(at: &[&str], needs: Needs) -> Rig<T> {
    let at: Vec<_> = at.iter().map(|at| endpoint(at, SocketOptions::default())).collect();
    rig_of(&at, needs)
}

fn peer() -> UdpSocket {
    provider_tests::peer(SocketAddr::from(([127, 0, 0, 1], 0)))
}

#[test]
fn a_sink_that_never_sends_has_room_for_all_receives() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"; 2], Needs { sends: 0, ..NEEDS });
    rig.post_on(0, 59);
    rig.post_on(1, 1);
    rig.stop();
}

#[test]
fn every_datagram_once_on_one_thread() {
    provider_tests::every_datagram_of_several_sockets_and_families_once::<OneThread, _>(&WINSOCK);
}

#[test]
fn every_datagram_once_handed_over() {
    provider_tests::every_datagram_of_several_sockets_and_families_once::<HandOver, _>(&WINSOCK);
}

#[test]
fn receives_are_filled_in_the_order_posted_without_a_call_to_dequeue() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 30);
    assert_eq!(rig.counters.kernel_entries.get(), 1, "30 posts are one commit");
    let peer = peer();
    for n in 0..30u8 {
        peer.send_to(&[n], rig.at[0]).unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 30 {
        assert_eq!(rig.queue.wait(1, Some(PATIENCE), &rig.counters).unwrap(), Woken::Ready);
        let entries = rig.counters.kernel_entries.get();
        got.extend(rig.look());
        assert_eq!(rig.counters.kernel_entries.get(), entries);
    }
    assert!(got.iter().map(bytes_of).eq((0..30u8).map(|n| vec![n])));
    assert!(got.iter().map(|c| c.slice.index()).eq(0..30));
    drop(got);
    rig.stop();
}

#[test]
fn longer_datagrams_are_truncated() {
    provider_tests::longer_datagrams_are_truncated::<OneThread, _>(&WINSOCK);
}

#[test]
fn the_address_that_was_written_to_is_told() {
    let options = SocketOptions { local_address: true, ..SocketOptions::default() };
    let at = [endpoint("0.0.0.0:0", options), endpoint("127.0.0.1:0", SocketOptions::default())];
    let mut rig = rig_of::<OneThread>(&at, NEEDS);
    rig.post_on(0, 3);
    rig.post_on(1, 1);
    let peer = peer();
    for (ip, socket) in [("127.0.0.1", 0), ("127.0.0.5", 0), ("127.0.0.1", 1)] {
        peer.send_to(b"x", (ip, rig.at[socket].port())).unwrap();
    }
    let got = rig.collect(3);
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
    rig.stop();
}

#[test]
fn no_more_than_needed_is_taken() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    rig.requests[0].reserve(40);
    rig.requests[1].reserve(40);
    assert_eq!((rig.requests[0].outstanding().0, rig.requests[1].outstanding().0), (40, 20));
    rig.post_on(0, 40);
    rig.post_on(1, 20);
    let refused = rig.requests[0].receive(rig.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    let nobody = peer().local_addr().unwrap();
    for _ in 0..20 {
        rig.post_send(nobody, b"x", 1);
    }
    let to = Peer::from(nobody);
    assert!(rig.requests[0].send(rig.region.take().unwrap(), 1, &to).is_err());
    assert_eq!((rig.requests[0].outstanding(), rig.requests[1].outstanding()), ((40, 20), (20, 0)));
    rig.stop();
}

#[test]
fn sends_complete_and_one_that_fails_holds_nobody_up() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = peer();
    let to = peer.local_addr().unwrap();
    rig.post_send(to, b"first", 5);
    rig.post_send("[::1]:9".parse().unwrap(), b"another family", 14);
    rig.post_send(to, b"", 0);
    rig.post_send(to, b"last", 4);
    rig.requests[0].commit(&rig.counters).unwrap();
    let outcomes: Vec<_> = rig.collect(4).into_iter().map(|c| c.outcome).collect();
    let sent = |n: usize, len: usize| matches!(outcomes[n], Outcome::Sent(s) if s == len.into());
    assert!(sent(0, 5) && sent(2, 0) && sent(3, 4), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::NotSent(_)), "{outcomes:?}");
    let mut buffer = [0; 8];
    for len in [5, 0, 4] {
        assert_eq!(peer.recv_from(&mut buffer).unwrap(), (len, rig.at[0]));
    }
    assert_eq!(rig.requests[0].outstanding(), (0, 0));
    rig.stop();
}

fn several_datagrams_of_one_slice<T: Sharing>() {
    let mut rig = rig::<T>(&["127.0.0.1:0"], NEEDS);
    let (peer, nowhere) = (peer(), "[::1]:9".parse().unwrap());
    let span = Span { len: 11, segment: NonZeroU16::new(3) };
    for to in [nowhere, peer.local_addr().unwrap()] {
        rig.post_send(to, b"aaabbbcccdd", span);
    }
    rig.requests[0].commit(&rig.counters).unwrap();
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 {
        rig.queue.wait(1, Some(PATIENCE), &rig.counters).unwrap();
        outcomes.extend(rig.look().into_iter().map(|done| done.outcome));
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
    assert_eq!(rig.requests[0].outstanding(), (0, 0));
    rig.stop();
}

#[test]
fn several_datagrams_leave_one_by_one_on_one_thread() {
    several_datagrams_of_one_slice::<OneThread>();
}

#[test]
fn several_datagrams_leave_one_by_one_handed_over() {
    several_datagrams_of_one_slice::<HandOver>();
}

#[test]
fn wakers_end_waits_on_one_thread() {
    provider_tests::wakers_end_this_wait_or_the_next::<OneThread, _>(&WINSOCK);
}

#[test]
fn wakers_end_waits_handed_over() {
    provider_tests::wakers_end_this_wait_or_the_next::<HandOver, _>(&WINSOCK);
}

fn datagrams_gather_for_a_time_and_do_not_end_it<T: Sharing>() {
    let mut rig = rig::<T>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 8);
    let short = Some(Duration::ZERO);
    assert_eq!(rig.queue.wait(1, short, &rig.counters).unwrap(), Woken::TimedOut);
    let peer = peer();
    for _ in 0..3 {
        peer.send_to(b"early", rig.at[0]).unwrap();
    }
    let time = Duration::from_millis(5);
    // The wait that it is ends with its time, whatever the queue tells meanwhile.
    let (told, queue_told) = rig.queue.shared.notice.wait_aside(time, &rig.counters).unwrap();
    assert_eq!(told, Told::TimedOut);
    rig.queue.told |= queue_told;
    assert_eq!(rig.queue.gather(2, time, &rig.counters).unwrap(), Woken::Ready);
    assert_eq!(rig.collect(3).len(), 3);
    let waker = rig.queue.waker();
    let other = thread::spawn(move || waker.wake());
    let long = PATIENCE;
    assert_eq!(rig.queue.gather(64, long, &rig.counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    rig.stop();
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
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    peer().send_to(b"early", rig.at[0]).unwrap();
    let short = Some(Duration::from_millis(2));
    assert_eq!(rig.queue.wait(1, short, &rig.counters).unwrap(), Woken::TimedOut);
    rig.post_on(0, 1);
    assert_eq!(rig.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"early"]);
    rig.stop();
}

#[test]
fn what_is_not_committed_comes_back_and_nothing_is_taken_after_a_stop() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    rig.post_on(0, 3);
    rig.post_on(1, 2);
    rig.requests[0].receive(rig.region.take().unwrap()).unwrap();
    let mut kept = rig.requests.pop().unwrap();
    kept.receive(rig.region.take().unwrap()).unwrap();
    let Rig { region, queue, requests, counters, .. } = rig;
    let stopped = queue.stop(requests, Instant::now() + PATIENCE);
    assert_eq!((stopped.returned, stopped.missing), (6, 0));
    assert!(kept.commit(&counters).is_err());
    assert_eq!(kept.receive(region.take().unwrap()).unwrap_err().1, Refused::Stopped);
    drop(kept);
    assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
}

#[test]
fn dropping_without_a_stop_leaks_what_the_system_has() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 10);
    let Rig { region, queue, requests, .. } = rig;
    drop((queue, requests));
    assert_eq!((region.in_pool(), region.leaked()), (region.count() - 10, 10));
}

#[test]
fn a_corrupt_queue_is_told_and_what_it_had_is_leaked() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 4);
    fail_next(Fault::Corrupt);
    for _ in 0..2 {
        let error = rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap_err();
        assert!(error.to_string().contains("RIO_CORRUPT_CQ"), "{error}");
    }
    let stopped = rig.queue.stop(rig.requests, Instant::now() + PATIENCE);
    assert_eq!((stopped.returned, stopped.missing), (0, 4));
    assert_eq!(rig.region.leaked(), 4);
}

#[test]
fn a_post_or_commit_that_fails_loses_no_slice() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    for fault in [Fault::Receive, Fault::Commit] {
        for _ in 0..3 {
            rig.requests[0].receive(rig.region.take().unwrap()).unwrap();
        }
        fail_next(fault);
        assert!(rig.requests[0].commit(&rig.counters).is_err());
    }
    assert_eq!(rig.requests[0].outstanding(), (6, 0));
    // What was not taken goes with the next.
    rig.post_on(0, 1);
    let peer = peer();
    for n in 0..7 {
        peer.send_to(&[n], rig.at[0]).unwrap();
    }
    assert_eq!(rig.collect(7).len(), 7);
    // A send that is refused at once is told, and ends a wait.
    fail_next(Fault::Send);
    rig.post_send(peer.local_addr().unwrap(), b"never", 5);
    rig.requests[0].commit(&rig.counters).unwrap();
    let refused = rig.collect(1);
    assert!(matches!(refused[0].outcome, Outcome::NotSent(_)));
    assert_eq!(rig.requests[0].outstanding(), (0, 0));
    drop(refused);
    fail_next(Fault::Notify);
    assert!(rig.queue.wait(1, Some(PATIENCE), &rig.counters).is_err());
    rig.post_on(0, 2);
    rig.stop();
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
    provider_tests::two_threads_post_and_dequeue_at_once(&WINSOCK);
}

#[test]
fn the_port_delivers_the_turn_to_one_thread_at_a_time() {
    const DATAGRAMS: usize = 300;
    const THREADS: usize = 3;
    let mut rig = rig::<HandOver>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 60);
    let to = rig.at[0];
    let Rig { region, queue, requests, .. } = rig;
    let turns = Turns::new(queue, THREADS);
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
    let by = Instant::now() + PATIENCE;
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
