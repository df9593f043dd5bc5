//! The locks of request queues that threads share: each socket has its own, and the counters tell how often it was taken.
//! The fakes panic where two threads post on one queue at once.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    counters::Snapshot,
    rio::fake::{FakeWinsock, FakeXdp, Injected, Wire},
    udp::{Datagram, Replies, RioHybrid, RioPort, RioReader, Running, Server},
};

const PATIENCE: Duration = Duration::from_secs(60);
const SOCKETS: usize = 3;
const OUTSTANDING: u32 = 96;
const EACH: u64 = 500;

/// Has a server of several sockets started by `start` receive so many datagrams on each, and answers what it counted.
fn counted<H: weir::udp::Handler>(
    wire: &Wire,
    start: impl FnOnce(Server, Arc<AtomicU64>) -> Running<H>,
) -> Snapshot {
    let at = |socket| SocketAddr::from(([127, 0, 0, 1], 9000 + socket));
    let server = (1..SOCKETS as u16).fold(Server::bind(at(0)), |server, n| server.and_bind(at(n)));
    let handled = Arc::new(AtomicU64::new(0));
    let running = start(server, Arc::clone(&handled));
    let from = SocketAddr::from(([127, 0, 0, 1], 20_000));
    let addresses = running.local_addresses().to_vec();
    let by = Instant::now() + PATIENCE;
    for _ in 0..EACH {
        for &to in &addresses {
            // Full until the server has posted again.
            while wire.inject(to, from, &[1; 8]) != Injected::Taken {
                assert!(Instant::now() < by, "nothing is posted");
                thread::yield_now();
            }
        }
    }
    let all = EACH * SOCKETS as u64;
    while handled.load(Relaxed) < all {
        assert!(Instant::now() < by, "{handled:?} of {all} datagrams came");
        thread::yield_now();
    }
    let report = running.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    let mut total = Snapshot::default();
    report.threads.iter().for_each(|thread| total.merge(&thread.counters));
    assert_eq!(total.datagrams, all);
    assert_eq!(total.posts, all + u64::from(OUTSTANDING), "every slice was posted again");
    assert!(total.locks_contended <= total.locks);
    total
}

fn counts(handled: &Arc<AtomicU64>) -> impl FnMut(Datagram<'_>, &mut Replies<'_>) + Send + use<> {
    let handled = Arc::clone(handled);
    move |_: Datagram<'_>, _: &mut Replies<'_>| {
        handled.fetch_add(1, Relaxed);
    }
}

/// As many posts as there may be under one lock, and never more locks than posts.
#[test]
fn a_lock_for_each_post_or_for_a_batch_of_each_socket() {
    for posts_per_lock in [1, 4, 1000] {
        let wire = Wire::new(1);
        let total = counted(&wire, |server, handled| {
            let design = RioPort::default()
                .threads(3)
                .outstanding(OUTSTANDING)
                .posts_per_lock(posts_per_lock);
            let job = server.job(move |_| counts(&handled)).unwrap();
            design.start_on(job, FakeXdp::new(&wire)).unwrap()
        });
        let (posts, batches) = (total.datagrams, total.batches.count());
        match posts_per_lock {
            1 => assert_eq!(total.locks, posts),
            // One for each socket of a batch, at most, and one for each four.
            4 => assert!((posts / 4..=posts).contains(&total.locks), "{} locks", total.locks),
            _ => {
                let most = batches * SOCKETS as u64;
                assert!((batches..=most).contains(&total.locks), "{batches}: {}", total.locks);
            }
        }
    }
}

#[test]
fn the_hybrid_takes_a_lock_for_each_socket_of_a_batch() {
    let wire = Wire::new(2);
    let total = counted(&wire, |server, handled| {
        let design =
            RioHybrid::default().threads(4).outstanding(OUTSTANDING).dequeue_max(32).threshold(8);
        let job = server.job(move |_| counts(&handled)).unwrap();
        design.start_on(job, FakeWinsock::new(&wire)).unwrap()
    });
    let batches = total.batches.count();
    assert!((batches..=batches * SOCKETS as u64).contains(&total.locks), "{total:?}");
}

#[test]
fn a_reader_posts_without_a_lock() {
    let wire = Wire::new(3);
    let total = counted(&wire, |server, handled| {
        let design = RioReader::default().threads(3).outstanding(OUTSTANDING);
        let job = server.job(move |_| counts(&handled)).unwrap();
        design.start_on(job, FakeXdp::new(&wire)).unwrap()
    });
    assert_eq!((total.locks, total.locks_contended), (0, 0));
}
