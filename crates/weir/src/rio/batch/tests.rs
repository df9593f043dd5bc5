//! The provider on real sockets.

use super::*;
use crate::{
    memory::RegionOptions,
    rio::{HandOver, OneThread},
    socket::{SocketOptions, TOO_MANY_SEGMENTS},
};
use std::{collections::BTreeMap, net::UdpSocket, num::NonZeroU16, thread};

const NEEDS: Needs =
    Needs { payload: 128, receives: 100, sends: 20, per_dequeue: 50, offload: false, meta: false };
const LONG: Option<Duration> = Some(Duration::from_secs(60));

struct Bench<T: Sharing> {
    region: Arc<Region>,
    addresses: Vec<SocketAddr>,
    completions: PlainCompletions<T>,
    requests: Vec<PlainRequests<T>>,
    batch: Batch,
    counters: Counters,
}

fn bench<T: Sharing>(at: &[&str], needs: Needs) -> Bench<T> {
    let endpoint =
        |at: &&str| Endpoint { address: at.parse().unwrap(), options: SocketOptions::default() };
    let at: Vec<_> = at.iter().map(endpoint).collect();
    let layout = Provider::<T>::layout(&PlainSockets, &needs).unwrap();
    let region =
        Region::new(layout, needs.receives + needs.sends + 1, RegionOptions::default()).unwrap();
    let opened = Provider::<T>::open(&PlainSockets, &at, &region, &needs).unwrap();
    let addresses = opened.local_addresses();
    let Started { completions, requests, .. } =
        Provider::<T>::start(&PlainSockets, opened).unwrap();
    let batch = Batch::new(needs.per_dequeue as usize);
    Bench { region, addresses, completions, requests, batch, counters: Counters::default() }
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

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        let mut slice = self.region.take().unwrap();
        slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
        let to = Peer::from(to);
        self.requests[0].send(slice, bytes.len(), &to).unwrap();
    }

    /// Stops and checks that every slice is in the pool.
    fn stop(self) {
        let Bench { region, completions, requests, .. } = self;
        let outside = region.count() - region.in_pool();
        let stopped = completions.stop(requests, Instant::now());
        assert_eq!((stopped.returned, stopped.missing), (outside, 0));
        assert_eq!(region.in_pool(), region.count());
    }
}

fn bytes_of(completion: &Completion) -> Vec<u8> {
    match &completion.outcome {
        Outcome::Received(arrival) => completion.slice.payload()[..arrival.len()].to_vec(),
        other => panic!("not a datagram: {other:?}"),
    }
}

fn room_is_reserved_within_the_bound_and_given_up<T: Sharing>() {
    let mut b = bench::<T>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    b.requests[0].reserve(60);
    b.requests[1].reserve(60);
    assert_eq!((b.requests[0].outstanding().0, b.requests[1].outstanding().0), (60, 40));
    b.post(0, 60);
    assert_eq!(b.requests[0].outstanding().0, 60, "what was reserved is used first");
    b.post(1, 30);
    assert_eq!(b.requests[1].outstanding().0, 30, "the rest was given up at the commit");
    b.post(0, 10);
    let refused = b.requests[1].receive(b.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    b.stop();
}

#[test]
fn several_datagrams_leave_at_once_or_each_by_itself() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], Needs { payload: 256, ..NEEDS });
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(LONG).unwrap();
    let nowhere = "[::1]:9".parse().unwrap();
    for count in [5, TOO_MANY_SEGMENTS] {
        let span = Span { len: count, segment: NonZeroU16::new(1) };
        for address in [nowhere, peer.local_addr().unwrap()] {
            let mut slice = b.region.take().unwrap();
            slice.payload_mut()[..count].fill(count as u8);
            b.requests[0].send(slice, span, &Peer::from(address)).unwrap();
        }
        b.requests[0].commit(&b.counters).unwrap();
        let outcomes: Vec<_> = b.dequeue().into_iter().map(|done| done.outcome).collect();
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
    b.stop();
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
    let mut b = bench::<OneThread>(&["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"], NEEDS);
    for socket in 0..3 {
        b.post(socket, 33);
    }
    let mut sent = BTreeMap::new();
    for socket in 0..3usize {
        let local = if b.addresses[socket].is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
        for peer in 0..2 {
            let peer_socket = UdpSocket::bind(local).unwrap();
            for n in 0..16u8 {
                let bytes = vec![n; n as usize * 8]; // 0 to 120 bytes
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
    drop(got);
    b.stop();
}

#[test]
fn a_dequeue_is_few_calls_and_fills_the_slices_posted_last() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 100);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..50u8 {
        peer.send_to(&[n], b.addresses[0]).unwrap();
    }
    let before = b.counters.kernel_entries.get();
    let got = b.collect(50);
    assert_eq!(got.iter().map(|c| bytes_of(c)[0]).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
    if BATCHES_IN_ONE_CALL {
        // The wait, then offers of 8, 16 and the rest that fits the batch.
        assert_eq!(b.counters.kernel_entries.get() - before, 4);
    }
    assert!(got.iter().all(|c| c.slice.index() >= 50), "the pool gives low indices first");
    drop(got);
    b.stop();
}

#[test]
fn longer_datagrams_are_truncated() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 2);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
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
fn no_more_than_needed_is_taken() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0", "127.0.0.1:0"], NEEDS);
    b.post(0, 60);
    b.post(1, 40);
    let refused = b.requests[0].receive(b.region.take().unwrap()).unwrap_err();
    assert_eq!(refused.1, Refused::Full);
    drop(refused);
    let nobody = "127.0.0.1:9".parse().unwrap();
    for _ in 0..20 {
        b.send(nobody, b"x");
    }
    let to = Peer::from(nobody);
    assert!(b.requests[0].send(b.region.take().unwrap(), 1, &to).is_err());
    assert_eq!((b.requests[0].outstanding(), b.requests[1].outstanding()), ((60, 20), (40, 0)));
    b.stop();
}

#[test]
fn sends_complete_and_one_that_fails_holds_nobody_up() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(LONG).unwrap();
    let to = peer.local_addr().unwrap();
    b.send(to, b"first");
    b.send("255.255.255.255:9".parse().unwrap(), b"nobody asked for broadcasts");
    b.send(to, b"last");
    b.requests[0].commit(&b.counters).unwrap();
    let outcomes: Vec<_> = b.collect(3).into_iter().map(|c| c.outcome).collect();
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
    assert_eq!(peer.recv_from(&mut buffer).unwrap(), (5, b.addresses[0]));
    assert_eq!(peer.recv_from(&mut buffer).unwrap(), (4, b.addresses[0]));
    b.stop();
}

#[test]
fn wakers_end_this_wait_or_the_next() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 1);
    let waker = b.completions.waker();
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
    b.stop();
    waker.wake(); // after the queue has gone
}

/// Far longer than anything here takes.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

#[test]
fn datagrams_gather_for_a_time_and_do_not_end_it() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 8);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        peer.send_to(b"early", b.addresses[0]).unwrap();
    }
    let (began, time) = (Instant::now(), Duration::from_millis(5));
    let before = b.counters.kernel_entries.get();
    assert_eq!(b.completions.gather(2, time, &b.counters).unwrap(), Woken::Ready);
    assert!(began.elapsed() >= time);
    assert_eq!(b.counters.kernel_entries.get(), before + 1);
    assert_eq!(b.dequeue().len(), 3);
    assert!(!b.completions.gathers().is_empty());
    b.stop();
}

#[test]
fn a_waker_ends_gathering_and_sends_that_are_done_do() {
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 1);
    let waker = b.completions.waker();
    let other = thread::spawn(move || waker.wake());
    let counters = Counters::default();
    assert_eq!(b.completions.gather(64, FOR_EVER, &counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    let to = b.addresses[0];
    b.send(to, b"to myself");
    thread::scope(|scope| {
        let (completions, requests) = (&mut b.completions, &mut b.requests[0]);
        let waiting =
            scope.spawn(|| completions.gather(64, FOR_EVER, &Counters::default()).unwrap());
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    b.stop();
}

#[test]
fn without_slices_it_waits_without_spinning_and_datagrams_are_kept() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"early", b.addresses[0]).unwrap();
    let short = Some(Duration::from_millis(2));
    assert_eq!(b.completions.wait(1, short, &b.counters).unwrap(), Woken::TimedOut);
    assert_eq!(b.counters.kernel_entries.get(), 1);
    b.post(0, 1);
    assert_eq!(b.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"early"]);
    b.stop();
}

#[test]
fn a_poster_rouses_a_thread_that_waits_for_slices() {
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"early", b.addresses[0]).unwrap();
    let slice = b.region.take().unwrap();
    thread::scope(|scope| {
        let (completions, requests) = (&mut b.completions, &mut b.requests[0]);
        let waiting = scope.spawn(|| completions.wait(1, None, &Counters::default()).unwrap());
        requests.receive(slice).unwrap();
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    assert_eq!(b.dequeue().len(), 1);
    b.stop();
}

#[test]
fn a_poster_rouses_a_thread_that_waits_when_sends_complete() {
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    let to = b.addresses[0];
    b.send(to, b"to myself");
    thread::scope(|scope| {
        let (completions, requests) = (&mut b.completions, &mut b.requests[0]);
        let waiting = scope.spawn(|| completions.wait(1, None, &Counters::default()).unwrap());
        requests.commit(&Counters::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Woken::Ready);
    });
    assert!(matches!(
        b.dequeue()[..],
        [Completion { outcome: Outcome::Sent(Span { len: 9, .. }), .. }]
    ));
    b.stop();
}

#[test]
fn two_threads_post_and_dequeue_at_once() {
    const DATAGRAMS: usize = 3000;
    let mut b = bench::<HandOver>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 100);
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
                if n >= 64 {
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
    assert_eq!(b.requests[0].outstanding(), (100, 0));
    b.stop();
}

#[test]
fn dropping_without_a_stop_leaks_nothing() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.post(0, 10);
    let Bench { region, completions, requests, .. } = b;
    drop((completions, requests));
    assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
}

#[test]
fn a_dequeue_says_whether_it_may_have_left_some() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..10 {
        peer.send_to(&[number], b.addresses[0]).unwrap();
    }
    b.post(0, 2);
    assert_eq!(b.collect(2).len(), 2);
    assert!(b.completions.may_have_left(), "there was no slice for another");
    assert!(b.dequeue().is_empty() && b.completions.may_have_left());
    b.post(0, 20);
    assert_eq!(b.collect(8).len(), 8);
    assert!(!b.completions.may_have_left(), "the socket is empty");
    b.stop();
}

#[test]
fn a_dequeue_that_sends_filled_looked_into_no_socket() {
    let mut b = bench::<OneThread>(&["127.0.0.1:0"], NEEDS);
    b.batch = Batch::new(1);
    b.post(0, 1);
    let own = b.addresses[0];
    b.send(own, b"one");
    b.requests[0].commit(&b.counters).unwrap();
    assert!(matches!(b.dequeue()[..], [Completion { outcome: Outcome::Sent(_), .. }]));
    assert!(b.completions.may_have_left());
    assert_eq!(b.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"one"]);
    b.stop();
}
