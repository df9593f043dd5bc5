//! The defects that the original servers are known to have, and what would catch each here.
//!
//! | defect | caught by |
//! | --- | --- |
//! | the rate printed is a multiple of 1000 | `serve::text` of weir-cli: `a_rate_is_divided_last` |
//! | a datagram of full size later in the batch cancels the shutdown | [`a_stop_in_the_midst_of_a_batch_is_not_cancelled_by_the_rest_of_it`]; on real sockets the check `wrong_sizes` |
//! | a buffer's link is read after the buffer was posted again | [`a_slice_that_was_posted_is_out_of_reach`]; the example of [`Slice::post`] that does not compile |
//! | messages that end the threads are counted as datagrams | [`a_server_that_received_nothing_counts_nothing`]; on real sockets the check `stop_at_once` |
//! | sizes are multiplied in 32 bits | [`sizes_are_multiplied_in_full`] |
//! | two threads post on one request queue at once | [`one_thread_posts_at_a_time`]; the examples of [`weir::rio`] that do not compile |
//! | the work goes from thread to thread, since each notifies at once | [`what_one_thread_can_do_stays_with_it`]; the policy in full in `rio_join_policy.rs` |
//! | the first period has no start, and elapsed time is cut to a whole number | [`the_time_begins_with_the_server`]; `serve::window` and `serve::text` of weir-cli |
//!
//! [`Slice::post`]: weir::memory::Slice::post

use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    limits::Limits,
    memory::{Layout, Region, RegionOptions},
    options::MicrosecondsValue,
    rio::{
        HandOver, OneThread, Provider,
        fake::{FakeWinsock, FakeXdp, Injected, Wire},
    },
    udp::{
        Datagram, Final, Handler, Replies, RioEvent, RioHybrid, RioHybridReader, RioPort,
        RioReader, Running, Server,
    },
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const THREADS: u32 = 4;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The designs in which several threads share a queue.
#[derive(Debug, Clone, Copy)]
enum Shared {
    Port,
    Hybrid,
    Reader,
    HybridReader,
}

const SHARED: [Shared; 4] = [Shared::Port, Shared::Hybrid, Shared::Reader, Shared::HybridReader];

impl Shared {
    fn start<P, H: Handler>(
        self,
        server: &Server,
        provider: P,
        make: impl FnMut(usize) -> H + Send + 'static,
    ) -> Running<H>
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        let job = server.job(make).unwrap();
        let (threads, outstanding, dequeue_max) = (THREADS, 256, 32);
        let (threshold, spin) = (8, MicrosecondsValue(0));
        match self {
            Self::Port => RioPort::default()
                .threads(threads)
                .outstanding(outstanding)
                .dequeue_max(dequeue_max)
                .start_on(job, provider),
            Self::Reader => RioReader::default()
                .threads(threads)
                .outstanding(outstanding)
                .dequeue_max(dequeue_max)
                .start_on(job, provider),
            Self::Hybrid => {
                let rest = RioHybrid::default();
                rest.threads(threads)
                    .outstanding(outstanding)
                    .dequeue_max(dequeue_max)
                    .threshold(threshold)
                    .spin(spin)
                    .start_on(job, provider)
            }
            Self::HybridReader => {
                let rest = RioHybridReader::default();
                rest.threads(threads)
                    .outstanding(outstanding)
                    .dequeue_max(dequeue_max)
                    .threshold(threshold)
                    .spin(spin)
                    .start_on(job, provider)
            }
        }
        .unwrap()
    }
}

fn assert_whole<H>(report: &Final<H>) {
    assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
    assert_eq!((report.slices.returned, report.slices.missing), (report.slices.made, 0));
}

/// A place where a handler is held until the test lets it go.
#[derive(Default)]
struct Gate {
    /// How many handlers came, and whether they may go.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut (usize, bool))) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait_until(&self, done: impl Fn(&(usize, bool)) -> bool) {
        let by = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !done(&state) {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nobody came, or went");
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The original set a flag when a datagram was not of the usual size, and cleared it at the next one
/// that was: with both in one batch it ran on for ever. Here a batch of wrong and right sizes is under
/// way when the stop comes: what is right afterwards changes neither the stop nor the count of
/// what was wrong.
#[test]
fn a_stop_in_the_midst_of_a_batch_is_not_cancelled_by_the_rest_of_it() {
    const BATCH: u64 = 20;
    let wire = Wire::new(1);
    let gate = Arc::new(Gate::default());
    let gates = Arc::clone(&gate);
    let job = Server::bind(address(9000))
        .expected_bytes(100)
        .job(move |_| {
            let gate = Arc::clone(&gates);
            move |datagram: Datagram<'_>, _: &mut Replies<'_>| {
                if datagram.bytes.len() != 100 {
                    gate.change(|(came, _)| *came += 1);
                    gate.wait_until(|(_, go)| *go);
                }
            }
        })
        .unwrap();
    let options = RioEvent::default().outstanding(64).dequeue_max(64);
    let server = options.start_on(job, FakeXdp::new(&wire)).unwrap();
    let to = server.local_addresses()[0];
    let inject = |bytes: usize| {
        assert_eq!(wire.inject(to, address(20_000), &vec![7; bytes]), Injected::Taken);
    };
    inject(99); // holds, while the batch gathers
    gate.wait_until(|(came, _)| *came == 1);
    inject(101);
    (0..BATCH).for_each(|_| inject(100));
    let stopping = thread::spawn(move || server.stop());
    gate.change(|(_, go)| *go = true);
    let by = Instant::now() + PATIENCE;
    while !stopping.is_finished() {
        assert!(Instant::now() < by, "the stop was cancelled");
        thread::yield_now();
    }
    let report = stopping.join().unwrap();
    assert_whole(&report);
    let total = report.total();
    // The stop may have come before the second batch was dequeued, and then none of it counts.
    assert!([(1, 1), (BATCH + 2, 2)].contains(&(total.datagrams, total.wrong_size)), "{total:?}");
}

/// A buffer's link was read after the buffer had been posted again: it was another's by then. Posting
/// takes the slice out of the program's hands; what is left of it cannot be read.
#[test]
fn a_slice_that_was_posted_is_out_of_reach() {
    let region = Region::new(Layout::packed(0, 64, 64), 1, RegionOptions::default()).unwrap();
    let posted = region.take().unwrap().post();
    assert!(region.take().is_none(), "a posted slice is not in the pool either");
    // SAFETY: posted just above, and no kernel is involved.
    let slice = unsafe { posted.reclaim(&region) };
    assert_eq!(slice.index(), posted.index());
    drop(slice);
    assert_eq!(region.in_pool(), 1);
}

/// Threads were ended by messages through the queue, which each counted like a datagram.
#[test]
fn a_server_that_received_nothing_counts_nothing() {
    for design in SHARED {
        let wire = Wire::new(3);
        let sink = |_| |_: Datagram<'_>, _: &mut Replies<'_>| panic!("a datagram from nobody");
        let server = design.start(&Server::bind(address(9000)), FakeWinsock::new(&wire), sink);
        let report = server.stop();
        assert_whole(&report);
        let total = report.total();
        assert_eq!((total.datagrams, total.bytes, total.batches.count()), (0, 0, 0), "{design:?}");
    }
}

/// Sizes were multiplied in 32 bits: a region of more than 4 GiB came out as a small one.
#[test]
fn sizes_are_multiplied_in_full() {
    const SLICES: u32 = 70_000;
    let layout = Layout::packed(0, 65_536, 64);
    let bytes = 65_536 * SLICES as usize;
    assert!(u32::try_from(bytes).is_err());
    // Memory that is not touched costs nothing, but a system may refuse to promise it.
    match Region::new(layout, SLICES, RegionOptions::default()) {
        Ok(region) => {
            assert_eq!(region.extent().1, bytes);
            let first = region.extent().0.as_ptr() as usize;
            let slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
            let highest = slices.iter().map(|slice| slice.base().as_ptr() as usize - first).max();
            assert_eq!(highest, Some(bytes - 65_536));
        }
        Err(Error::Memory { bytes: told, .. }) => assert_eq!(told, bytes),
        Err(other) => panic!("{other}"),
    }
}

/// Two threads posted on one request queue at once, which exceeded what may be outstanding. The
/// providers in memory panic where that happens, and where more is outstanding than was asked for.
#[test]
fn one_thread_posts_at_a_time() {
    const DATAGRAMS: u64 = 64 * 64;
    for design in SHARED {
        for_both(|wire, start| {
            let limits = Limits::default().replies_outstanding(256);
            let server = Server::bind(address(9000)).limits(limits);
            let server = start(design, &server);
            let to = server.local_addresses()[0];
            for n in 0..DATAGRAMS {
                let bytes = n.to_le_bytes();
                assert_eq!(wire.inject(to, address(20_000), &bytes), Injected::Taken);
                // No more under way than slices: bursts, in which threads post side by side.
                if n % 64 == 63 {
                    assert!(wire.wait_for_sent(n + 1, PATIENCE), "{design:?}");
                }
            }
            let report = server.stop();
            assert_whole(&report);
            // A reply counts when its end was dequeued, which the stop may have come before.
            let total = report.total();
            assert_eq!((total.datagrams, total.replies_refused), (DATAGRAMS, 0), "{design:?}");
            assert_eq!(wire.sent_total(), DATAGRAMS, "{design:?}");
        });
    }
}

type Echo = fn(Datagram<'_>, &mut Replies<'_>);

/// Calls `test` with the rules of XDP and with those of Winsock.
fn for_both(test: impl Fn(&Wire, &dyn Fn(Shared, &Server) -> Running<Echo>)) {
    let echo = |_| -> Echo { |_, replies| replies.echo().unwrap() };
    let wire = Wire::new(5);
    test(&wire, &|design, server| design.start(server, FakeXdp::new(&wire), echo));
    let wire = Wire::new(6);
    test(&wire, &|design, server| design.start(server, FakeWinsock::new(&wire), echo));
}

/// Each thread notified as soon as it had dequeued, so that another took the next datagram and the
/// work went round. A hybrid gives the queue up only when it is overwhelmed, or waits: what comes one by
/// one is all handled by one thread.
#[test]
fn what_one_thread_can_do_stays_with_it() {
    const DATAGRAMS: u64 = 300;
    for design in [Shared::Hybrid, Shared::HybridReader] {
        let wire = Wire::new(7);
        let sink = |_| |_: Datagram<'_>, _: &mut Replies<'_>| ();
        let server = design.start(&Server::bind(address(9000)), FakeWinsock::new(&wire), sink);
        let to = server.local_addresses()[0];
        for _ in 0..DATAGRAMS {
            assert_eq!(wire.inject(to, address(20_000), b"one"), Injected::Taken);
            assert!(wire.wait_for_dequeued(PATIENCE));
        }
        let handled = || server.counters().iter().map(|counters| counters.datagrams).sum::<u64>();
        let by = Instant::now() + PATIENCE;
        while handled() < DATAGRAMS {
            assert!(Instant::now() < by, "{} of {DATAGRAMS}", handled());
            thread::yield_now();
        }
        let report = server.stop();
        assert_whole(&report);
        let of_threads = report.threads.iter().map(|thread| thread.counters.datagrams);
        let worked = of_threads.filter(|&datagrams| datagrams > 0).count();
        assert_eq!(worked, 1, "{design:?}: {:?}", report.total());
    }
}

/// The first period had no start, so its rate was anything; and elapsed time was a whole number of
/// some unit, which could be 0.
#[test]
fn the_time_begins_with_the_server() {
    let wire = Wire::new(8);
    let before = Instant::now();
    let job =
        Server::bind(address(9000)).job(|_| |_: Datagram<'_>, _: &mut Replies<'_>| ()).unwrap();
    let options = RioEvent::default().outstanding(64);
    let server = options.start_on(job, FakeXdp::new(&wire)).unwrap();
    let started = Instant::now();
    let to = server.local_addresses()[0];
    assert_eq!(wire.inject(to, address(20_000), b"one"), Injected::Taken);
    assert!(wire.wait_for_dequeued(PATIENCE));
    let served = started.elapsed();
    let report = server.stop();
    assert_whole(&report);
    assert!(report.elapsed >= served, "{:?} of {served:?}", report.elapsed);
    assert!(report.elapsed <= before.elapsed());
    assert!(!report.elapsed.is_zero());
}
