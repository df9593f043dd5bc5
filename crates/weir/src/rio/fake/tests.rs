//! The rules of each fake, and what holds for both under random use.

mod random;

use super::*;
use crate::{
    counters::Counters,
    memory::{Region, RegionOptions},
    rio::{
        Batch, Completion, CompletionQueue, HandOver, Needs, OneThread, Opened, Outcome, Peer,
        Provider, RequestQueue, Started, Threading, Woken,
    },
    socket::{Endpoint, ReceiveBuffer, SocketOptions},
};
use kernel::Kernel;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

const NEEDS: Needs =
    Needs { payload: 64, receives: 8, sends: 4, per_dequeue: 16, offload: false, meta: false };

type Queues<K, T> = Started<FakeCompletions<K, T>, FakeRequests<K, T>>;

struct Bench<K: Kernel, T: Threading> {
    wire: Wire,
    region: Arc<Region>,
    addresses: Vec<SocketAddr>,
    queues: Queues<K, T>,
    counters: Counters,
    batch: Batch,
}

fn bench<K: Kernel, T: Threading>(
    wire: &Wire,
    sockets: usize,
    options: SocketOptions,
) -> Bench<K, T> {
    let provider = Fake::<K>::new(wire);
    let layout = Provider::<T>::layout(&provider, &NEEDS).unwrap();
    let region = Region::new(layout, 16, RegionOptions::default()).unwrap();
    let endpoint = Endpoint { address: "127.0.0.1:0".parse().unwrap(), options };
    let at = vec![endpoint; sockets];
    let opened = Provider::<T>::open(&provider, &at, &region, &NEEDS).unwrap();
    let addresses = opened.local_addresses();
    let queues = Provider::<T>::start(&provider, opened).unwrap();
    let (wire, batch) = (wire.clone(), Batch::new(NEEDS.per_dequeue as usize));
    Bench { wire, region, addresses, queues, counters: Counters::default(), batch }
}

fn source() -> SocketAddr {
    "127.0.0.9:7".parse().unwrap()
}

impl<K: Kernel, T: Threading> Bench<K, T> {
    fn post(&mut self, socket: usize, count: usize) {
        for _ in 0..count {
            self.queues.requests[socket].receive(self.region.take().unwrap()).unwrap();
        }
        self.queues.requests[socket].commit(&self.counters).unwrap();
    }

    fn send(&mut self, socket: usize, bytes: &[u8]) {
        let mut slice = self.region.take().unwrap();
        slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
        let to = Peer::from(source());
        self.queues.requests[socket].send(slice, bytes.len(), &to).unwrap();
        self.queues.requests[socket].commit(&self.counters).unwrap();
    }

    fn inject(&self, socket: usize, bytes: &[u8]) -> Injected {
        self.wire.inject(self.addresses[socket], source(), bytes)
    }

    fn dequeue(&mut self) -> Vec<Completion> {
        self.queues.completions.dequeue(&mut self.batch, &self.counters).unwrap();
        self.batch.drain().collect()
    }

    fn wait(&mut self) -> Woken {
        self.queues.completions.wait(1, Some(Duration::ZERO), &self.counters).unwrap()
    }

    /// Posts a receive, but leaves half of what may be outstanding to the other socket.
    fn post_fairly(&mut self, socket: usize) {
        let requests = &mut self.queues.requests[socket];
        if requests.outstanding().0 < NEEDS.receives / 2
            && let Some(slice) = self.region.take()
        {
            requests.receive(slice).unwrap();
        }
        requests.commit(&self.counters).unwrap();
    }

    /// Stops and checks that every slice is in the pool.
    fn stop(self) {
        let Bench { region, queues, .. } = self;
        let outside = region.count() - region.in_pool();
        let stopped = queues.completions.stop(queues.requests, Instant::now());
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

fn plain<K: Kernel>(seed: u64) -> Bench<K, OneThread> {
    bench(&Wire::new(seed), 1, SocketOptions::default())
}

#[test]
fn xdp_drops_what_finds_no_chunk_and_counts_it() {
    let mut b = plain::<Xdp>(1);
    assert_eq!(b.inject(0, b"lost"), Injected::NoBuffer);
    b.post(0, 1);
    assert_eq!(b.inject(0, b"taken"), Injected::Taken);
    assert_eq!(b.inject(0, b"lost"), Injected::NoBuffer);
    assert_eq!(b.dequeue().iter().map(bytes_of).collect::<Vec<_>>(), [b"taken"]);
    assert_eq!(b.counters.no_buffer.get(), 2);
    b.stop();
}

#[test]
fn xdp_needs_no_kernel_entry_to_receive() {
    let mut b = plain::<Xdp>(1);
    b.post(0, 4);
    b.inject(0, b"x");
    assert_eq!(b.dequeue().len(), 1);
    assert_eq!(b.counters.kernel_entries.get(), 0);
    b.send(0, b"kick");
    b.wait();
    assert_eq!(b.counters.kernel_entries.get(), 2, "the kick and the poll");
    b.stop();
}

#[test]
fn xdp_fills_slices_in_an_order_of_its_own() {
    let orders = |seed| {
        let mut b = plain::<Xdp>(seed);
        b.post(0, 8);
        for i in 0..8u8 {
            b.inject(0, &[i]);
        }
        let got = b.dequeue();
        assert_eq!(
            got.iter().map(|c| bytes_of(c)[0]).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
        let order: Vec<_> = got.iter().map(|c| c.slice.index()).collect();
        drop(got);
        b.stop();
        order
    };
    assert_ne!(orders(1), (0..8).collect::<Vec<_>>());
    assert_ne!(orders(1), orders(2));
    assert_eq!(orders(2), orders(2));
}

#[test]
fn xdp_cannot_hold_more_than_a_chunk() {
    let b = plain::<Xdp>(1);
    assert_eq!(b.inject(0, &[0; 1729]), Injected::TooLong);
    b.stop();
    let error = Xdp::layout(&Needs { payload: 1729, ..NEEDS }).unwrap_err().to_string();
    assert!(error.contains("at most 1728 bytes"), "{error}");
}

#[test]
fn xdp_keeps_a_send_whose_kick_was_refused() {
    let wire = Wire::with_faults(1, Faults { send_error: 0.7, ..Faults::default() });
    let mut b = bench::<Xdp, OneThread>(&wire, 1, SocketOptions::default());
    for i in 0..4 {
        b.send(0, &[i]);
    }
    let mut completed = 0;
    while completed < 4 {
        b.wait();
        completed += b.dequeue().len();
    }
    assert_eq!(wire.sent().iter().map(|sent| sent.bytes[0]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    b.stop();
}

#[test]
fn winsock_knows_of_a_receive_at_commit_and_keeps_datagrams_until_then() {
    let mut b = plain::<Winsock>(1);
    assert_eq!(b.inject(0, b"early"), Injected::Taken);
    b.queues.requests[0].receive(b.region.take().unwrap()).unwrap();
    assert!(b.dequeue().is_empty());
    b.queues.requests[0].commit(&b.counters).unwrap();
    assert_eq!(b.dequeue().iter().map(bytes_of).collect::<Vec<_>>(), [b"early"]);
    assert_eq!(b.counters.kernel_entries.get(), 1);
    b.stop();
}

#[test]
fn winsock_fills_slices_in_the_order_of_posting() {
    let mut b = plain::<Winsock>(3);
    b.post(0, 8);
    for i in 0..8u8 {
        b.inject(0, &[i]);
    }
    let got = b.dequeue();
    assert!(
        got.iter()
            .enumerate()
            .all(|(i, c)| c.slice.index() == i as u32 && bytes_of(c) == [i as u8])
    );
    drop(got);
    b.stop();
}

#[test]
fn winsock_bounds_its_receive_buffer() {
    let options =
        SocketOptions { receive_buffer: ReceiveBuffer::Bytes(300), ..SocketOptions::default() };
    let b = bench::<Winsock, OneThread>(&Wire::new(1), 1, options);
    let taken: Vec<_> = (0..6).map(|_| b.inject(0, b"")).collect();
    assert_eq!(taken.iter().filter(|&&i| i == Injected::Taken).count(), 4, "64 bytes each");
    assert_eq!(taken[4..], [Injected::Full; 2]);
    b.stop();
}

#[test]
fn winsock_delivers_one_notification() {
    let mut kernel = Winsock::new(&["127.0.0.1:1".parse::<SocketAddr>().unwrap().into()], &NEEDS);
    assert_eq!(kernel.notify(), Ok(()));
    assert_eq!(kernel.notify(), Err(winsock::AlreadyNotified));
    assert!(!kernel.take_signal());

    let mut b = plain::<Winsock>(1);
    b.post(0, 2);
    assert_eq!(b.wait(), Woken::TimedOut);
    assert_eq!(b.counters.kernel_entries.get(), 3, "commit, notify, wait");
    // Still armed: no second notification is asked for.
    assert_eq!(b.wait(), Woken::TimedOut);
    assert_eq!(b.counters.kernel_entries.get(), 4);
    b.inject(0, b"x");
    assert_eq!(b.wait(), Woken::Ready);
    // A queue that is not empty delivers at once.
    assert_eq!(b.wait(), Woken::Ready);
    assert_eq!(b.dequeue().len(), 1);
    assert_eq!(b.wait(), Woken::TimedOut);
    b.stop();
}

#[test]
fn winsock_fails_a_receive_without_losing_the_datagram() {
    let wire = Wire::with_faults(1, Faults { receive_error: 0.5, ..Faults::default() });
    let mut b = bench::<Winsock, OneThread>(&wire, 1, SocketOptions::default());
    b.post(0, 8);
    let taken = (0..3).filter(|&i| b.inject(0, &[i]) == Injected::Taken).count();
    let got = b.dequeue();
    let failed = got.iter().filter(|c| matches!(c.outcome, Outcome::Failed(_))).count();
    assert!(failed > 0, "the seed makes no fault");
    assert_eq!(got.len() - failed, taken);
    drop(got);
    b.stop();
}

/// Calls a check for both sets of rules.
macro_rules! for_both {
    ($($name:ident = $check:ident;)*) => {
        $(mod $name {
            #[test]
            fn xdp() {
                super::$check::<super::Xdp>();
            }
            #[test]
            fn winsock() {
                super::$check::<super::Winsock>();
            }
        })*
    };
}

for_both! {
    the_limits_of_needs = refuses_more_than_needed;
    addresses = gives_and_guards_addresses;
    details = tells_source_local_address_and_time;
    truncation = truncates_and_says_so;
    waking = waker_ends_this_wait_or_the_next;
    cutting = a_cut_wire_is_an_error;
    stuck = what_is_stuck_is_leaked_and_counted;
    dropped = a_queue_dropped_without_stop_leaks;
    handed_over = queues_move_between_threads;
    stopped_late = late_completions_after_stop_come_back;
}

fn refuses_more_than_needed<K: Kernel>() {
    let mut b = plain::<K>(1);
    b.post(0, 8);
    let (slice, refused) = b.queues.requests[0].receive(b.region.take().unwrap()).unwrap_err();
    for i in 0..4 {
        b.send(0, &[i]);
    }
    let to = Peer::from(source());
    let (slice, _) = b.queues.requests[0].send(slice, 1, &to).unwrap_err();
    assert_eq!(b.queues.requests[0].outstanding(), (8, 4));
    assert_eq!(refused, crate::rio::Refused::Full);
    drop(slice);
    b.stop();
}

fn gives_and_guards_addresses<K: Kernel>() {
    let wire = Wire::new(1);
    let b = bench::<K, OneThread>(&wire, 2, SocketOptions::default());
    assert_ne!(b.addresses[0], b.addresses[1]);
    let again = |options| {
        let at = Endpoint { address: b.addresses[0], options };
        Provider::<OneThread>::open(&Fake::<K>::new(&wire), &[at], &b.region, &NEEDS)
    };
    let error = again(SocketOptions::default()).map(drop).unwrap_err().to_string();
    assert!(error.contains("choose another port"), "{error}");
    assert_eq!(wire.inject("127.0.0.1:9".parse().unwrap(), source(), b"x"), Injected::NoSocket);
    let (was, region) = (b.addresses[0], Arc::clone(&b.region));
    b.stop();
    assert_eq!(wire.inject(was, source(), b"x"), Injected::NoSocket);
    // Its address is free again.
    let at = [Endpoint::from(was)];
    Provider::<OneThread>::open(&Fake::<K>::new(&wire), &at, &region, &NEEDS).map(drop).unwrap();
}

fn tells_source_local_address_and_time<K: Kernel>() {
    let options =
        SocketOptions { local_address: true, receive_time: true, ..SocketOptions::default() };
    let mut b = bench::<K, OneThread>(&Wire::new(1), 1, options);
    b.post(0, 1);
    b.inject(0, b"abc");
    let got = b.dequeue();
    let arrival = got[0].arrival().expect("a datagram");
    assert_eq!((arrival.from, arrival.len), (source(), 3));
    assert_eq!(arrival.local, Some(b.addresses[0].ip()));
    assert!(arrival.at.is_some());
    drop(got);
    b.stop();
}

fn truncates_and_says_so<K: Kernel>() {
    let mut b = plain::<K>(1);
    b.post(0, 2);
    b.inject(0, &[7; 64]);
    b.inject(0, &[8; 65]);
    let got = b.dequeue();
    let truncated: Vec<_> = got
        .iter()
        .map(|c| matches!(&c.outcome, Outcome::Received(a) if a.truncated && a.len() == 64))
        .collect();
    assert_eq!(truncated, [false, true]);
    assert_eq!(bytes_of(&got[1]), [8; 64]);
    drop(got);
    b.stop();
}

fn waker_ends_this_wait_or_the_next<K: Kernel>() {
    let mut b = plain::<K>(1);
    let waker = b.queues.completions.waker();
    waker.wake();
    assert_eq!(b.wait(), Woken::ByWaker);
    assert_eq!(b.wait(), Woken::TimedOut);
    let other = std::thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert_eq!(b.queues.completions.wait(1, None, &b.counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    b.stop();
    waker.wake(); // after the queue has gone
}

fn a_cut_wire_is_an_error<K: Kernel>() {
    let mut b = plain::<K>(1);
    b.post(0, 2);
    b.wire.close();
    assert_eq!(b.inject(0, b"x"), Injected::NoSocket);
    assert!(b.queues.completions.wait(1, None, &b.counters).is_err());
    assert!(b.queues.completions.dequeue(&mut b.batch, &b.counters).is_err());
    b.stop();
}

fn what_is_stuck_is_leaked_and_counted<K: Kernel>() {
    let wire = Wire::with_faults(1, Faults { stuck: 1.0, late: 1.0, ..Faults::default() });
    let mut b = bench::<K, OneThread>(&wire, 1, SocketOptions::default());
    b.post(0, 3);
    b.send(0, b"x");
    let Bench { region, queues, .. } = b;
    let by = Instant::now() + Duration::from_millis(5);
    let stopped = queues.completions.stop(queues.requests, by);
    assert!(Instant::now() >= by);
    assert!(stopped.missing > 0);
    assert_eq!(stopped.returned + stopped.missing, 4);
    assert_eq!((region.leaked(), region.in_pool()), (stopped.missing, 16 - stopped.missing));
}

fn a_queue_dropped_without_stop_leaks<K: Kernel>() {
    let mut b = plain::<K>(1);
    b.post(0, 3);
    let Bench { region, queues, .. } = b;
    let weak = Arc::downgrade(&region);
    drop(queues);
    assert_eq!((region.leaked(), region.in_pool()), (3, 13));
    drop(region);
    assert!(weak.upgrade().is_some(), "the kernel may still write there");
}

fn queues_move_between_threads<K: Kernel>() {
    let mut b = bench::<K, HandOver>(&Wire::new(1), 1, SocketOptions::default());
    b.post(0, 4);
    let mut b = std::thread::spawn(move || {
        b.inject(0, b"x");
        assert_eq!(b.wait(), Woken::Ready);
        b
    })
    .join()
    .unwrap();
    assert_eq!(b.dequeue().len(), 1);
    b.stop();
}

fn late_completions_after_stop_come_back<K: Kernel>() {
    for seed in 0..20 {
        let wire = Wire::with_faults(seed, Faults { late: 0.9, ..Faults::default() });
        let mut b = bench::<K, OneThread>(&wire, 2, SocketOptions::default());
        b.post(0, 2);
        b.post(1, 6);
        b.send(0, b"a");
        b.send(1, b"b");
        b.inject(0, b"x");
        b.stop();
    }
}
