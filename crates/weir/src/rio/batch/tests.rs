//! The provider on real sockets.

use super::*;
use crate::{
    rio::{
        HandOver, OneThread,
        provider_tests::{self, PATIENCE, bytes_of},
    },
    socket::{SocketOptions, TOO_MANY_SEGMENTS},
};
use std::{net::UdpSocket, num::NonZeroU16, thread};

const NEEDS: Needs =
    Needs { payload: 128, receives: 100, sends: 20, per_dequeue: 50, offload: false, meta: false };

type Rig<T> = provider_tests::Rig<T, PlainSockets>;

fn rig<T: Sharing>(at: &[&str], needs: Needs) -> Rig<T> {
    let endpoint =
        |at: &&str| Endpoint { address: at.parse().unwrap(), options: SocketOptions::default() };
    let at: Vec<_> = at.iter().map(endpoint).collect();
    Rig::open(&PlainSockets, needs, 1, &at).unwrap()
}

fn room_is_reserved_within_the_bound_and_given_up<T: Sharing>() {
    let mut rig = rig::<T>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    rig.requests[0].reserve(60);
    rig.requests[1].reserve(60);
    assert_eq!((rig.requests[0].outstanding().0, rig.requests[1].outstanding().0), (60, 40));
    rig.post_on(0, 60);
    assert_eq!(rig.requests[0].outstanding().0, 60, "what was reserved is used first");
    rig.post_on(1, 30);
    assert_eq!(rig.requests[1].outstanding().0, 30, "the rest was given up at the commit");
    rig.post_on(0, 10);
    let refused = rig.requests[1].receive(rig.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    rig.stop();
}

#[test]
fn several_datagrams_leave_at_once_or_each_by_itself() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], Needs { payload: 256, ..NEEDS });
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let nowhere = "[::1]:9".parse().unwrap();
    for count in [5, TOO_MANY_SEGMENTS] {
        let span = Span { len: count, segment: NonZeroU16::new(1) };
        for address in [nowhere, peer.local_addr().unwrap()] {
            let mut slice = rig.region.take().unwrap();
            slice.payload_mut()[..count].fill(count as u8);
            rig.requests[0].send(slice, span, &Peer::from(address)).unwrap();
        }
        rig.requests[0].commit(&rig.counters).unwrap();
        let outcomes: Vec<_> = rig.look().into_iter().map(|done| done.outcome).collect();
        let [Outcome::NotSent(unsent), Outcome::Sent(sent)] = &outcomes[..] else {
            panic!("{outcomes:?}")
        };
        assert_eq!((unsent.datagrams as usize, unsent.sent, *sent), (count, 0, span));
        let mut buffer = [0; 8];
        for _ in 0..count {
            assert_eq!(peer.recv_from(&mut buffer).unwrap().0, 1);
            assert_eq!(buffer[0], count as u8);
        }
    }
    rig.stop();
}

#[test]
fn room_is_reserved_on_one_thread() {
    room_is_reserved_within_the_bound_and_given_up::<OneThread>();
}

#[test]
fn room_is_reserved_handed_over() {
    room_is_reserved_within_the_bound_and_given_up::<HandOver>();
}

#[test]
fn every_datagram_of_several_sockets_and_families_once() {
    provider_tests::every_datagram_of_several_sockets_and_families_once::<OneThread, _>(
        &PlainSockets,
    );
    provider_tests::every_datagram_of_several_sockets_and_families_once::<HandOver, _>(
        &PlainSockets,
    );
}

#[test]
fn longer_datagrams_are_truncated() {
    provider_tests::longer_datagrams_are_truncated::<OneThread, _>(&PlainSockets);
}

#[test]
fn wakers_end_this_wait_or_the_next() {
    provider_tests::wakers_end_this_wait_or_the_next::<OneThread, _>(&PlainSockets);
}

#[test]
fn two_threads_post_and_dequeue_at_once() {
    provider_tests::two_threads_post_and_dequeue_at_once(&PlainSockets);
}

#[test]
fn a_dequeue_is_few_calls_and_fills_the_slices_posted_last() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 100);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..50u8 {
        peer.send_to(&[n], rig.at[0]).unwrap();
    }
    let before = rig.counters.kernel_entries.get();
    let got = rig.collect(50);
    assert_eq!(got.iter().map(|c| bytes_of(c)[0]).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    if BATCHES_IN_ONE_CALL {
        // The wait, then offers of 8, 16 and the rest that fits the batch.
        assert_eq!(rig.counters.kernel_entries.get() - before, 4);
    }
    assert!(got.iter().all(|c| c.slice.index() >= 50), "the pool gives low indices first");
    drop(got);
    rig.stop();
}

#[test]
fn no_more_than_needed_is_taken() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    rig.post_on(0, 60);
    rig.post_on(1, 40);
    let refused = rig.requests[0].receive(rig.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    let nobody = "127.0.0.1:9".parse().unwrap();
    for _ in 0..20 {
        rig.post_send(nobody, b"x", 1);
    }
    let to = Peer::from(nobody);
    assert!(rig.requests[0].send(rig.region.take().unwrap(), 1, &to).is_err());
    assert_eq!((rig.requests[0].outstanding(), rig.requests[1].outstanding()), ((60, 20), (40, 0)));
    rig.stop();
}

#[test]
fn sends_complete_and_one_that_fails_holds_nobody_up() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = peer.local_addr().unwrap();
    rig.post_send(to, b"first", 5);
    rig.post_send("255.255.255.255:9".parse().unwrap(), b"nobody asked for broadcasts", 27);
    rig.post_send(to, b"last", 4);
    rig.requests[0].commit(&rig.counters).unwrap();
    let outcomes: Vec<_> = rig.collect(3).into_iter().map(|c| c.outcome).collect();
    assert!(
        matches!(
            outcomes[..],
            [
                Outcome::Sent(Span { len: 5, .. }),
                Outcome::NotSent(_),
                Outcome::Sent(Span { len: 4, .. })
            ]
        ),
        "{outcomes:?}"
    );
    let mut buffer = [0; 8];
    assert_eq!(peer.recv_from(&mut buffer).unwrap(), (5, rig.at[0]));
    assert_eq!(peer.recv_from(&mut buffer).unwrap(), (4, rig.at[0]));
    rig.stop();
}

/// Far longer than anything here takes.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

#[test]
fn datagrams_gather_for_a_time_and_do_not_end_it() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 8);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        peer.send_to(b"early", rig.at[0]).unwrap();
    }
    let time = Duration::from_millis(5);
    // The wait that it is ends with its time.
    let woken = rig.queue.wait_watching(false, Some(time), &rig.counters).unwrap();
    assert_eq!(woken, Woken::TimedOut);
    let before = rig.counters.kernel_entries.get();
    assert_eq!(rig.queue.gather(2, time, &rig.counters).unwrap(), Woken::Ready);
    assert_eq!(rig.counters.kernel_entries.get(), before + 1);
    assert_eq!(rig.look().len(), 3);
    assert!(!rig.queue.gathers().is_empty());
    rig.stop();
}

#[test]
fn a_waker_ends_gathering_and_sends_that_are_done_do() {
    let mut rig = rig::<HandOver>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 1);
    let waker = rig.queue.waker();
    let other = thread::spawn(move || waker.wake());
    let counters = Counters::default();
    assert_eq!(rig.queue.gather(64, FOR_EVER, &counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    let to = rig.at[0];
    rig.post_send(to, b"to myself", 9);
    thread::scope(|scope| {
        let (completions, requests) = (&mut rig.queue, &mut rig.requests[0]);
        let waiting =
            scope.spawn(|| completions.gather(64, FOR_EVER, &Counters::default()).unwrap());
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    rig.stop();
}

#[test]
fn without_slices_it_waits_without_spinning_and_datagrams_are_kept() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"early", rig.at[0]).unwrap();
    let short = Some(Duration::from_millis(2));
    assert_eq!(rig.queue.wait(1, short, &rig.counters).unwrap(), Woken::TimedOut);
    assert_eq!(rig.counters.kernel_entries.get(), 1);
    rig.post_on(0, 1);
    assert_eq!(rig.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"early"]);
    rig.stop();
}

#[test]
fn a_poster_rouses_a_thread_that_waits_for_slices() {
    let mut rig = rig::<HandOver>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"early", rig.at[0]).unwrap();
    let slice = rig.region.take().unwrap();
    thread::scope(|scope| {
        let (completions, requests) = (&mut rig.queue, &mut rig.requests[0]);
        let waiting = scope.spawn(|| completions.wait(1, None, &Counters::default()).unwrap());
        requests.receive(slice).unwrap();
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    assert_eq!(rig.look().len(), 1);
    rig.stop();
}

#[test]
fn a_poster_rouses_a_thread_that_waits_when_sends_complete() {
    let mut rig = rig::<HandOver>(&["127.0.0.1:0"], NEEDS);
    let to = rig.at[0];
    rig.post_send(to, b"to myself", 9);
    thread::scope(|scope| {
        let (completions, requests) = (&mut rig.queue, &mut rig.requests[0]);
        let waiting = scope.spawn(|| completions.wait(1, None, &Counters::default()).unwrap());
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    assert!(matches!(
        rig.look()[..],
        [Completion { outcome: Outcome::Sent(Span { len: 9, .. }), .. }]
    ));
    rig.stop();
}

#[test]
fn dropping_without_a_stop_leaks_nothing() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.post_on(0, 10);
    let Rig { region, queue, requests, .. } = rig;
    drop((queue, requests));
    assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
}

#[test]
fn a_dequeue_says_whether_it_may_have_left_some() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..10 {
        peer.send_to(&[number], rig.at[0]).unwrap();
    }
    rig.post_on(0, 2);
    assert_eq!(rig.collect(2).len(), 2);
    assert!(rig.queue.may_have_left(), "there was no slice for another");
    assert!(rig.look().is_empty() && rig.queue.may_have_left());
    rig.post_on(0, 20);
    assert_eq!(rig.collect(8).len(), 8);
    assert!(!rig.queue.may_have_left(), "the socket is empty");
    rig.stop();
}

#[test]
fn a_dequeue_that_sends_filled_looked_into_no_socket() {
    let mut rig = rig::<OneThread>(&["127.0.0.1:0"], NEEDS);
    rig.batch = Batch::new(1);
    rig.post_on(0, 1);
    let own = rig.at[0];
    rig.post_send(own, b"one", 3);
    rig.requests[0].commit(&rig.counters).unwrap();
    assert!(matches!(rig.look()[..], [Completion { outcome: Outcome::Sent(_), .. }]));
    assert!(rig.queue.may_have_left());
    assert_eq!(rig.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"one"]);
    rig.stop();
}
