//! Registered I/O for datagrams.

use crate::{
    PATIENCE, assert_accounted, assert_whole,
    namespace::on_device,
    region, soon, use_memory,
    whole_provider::{Both, Misuse, NEEDS, on_each},
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use weir::{
    counters::Counters,
    memory::{Layout, Region},
    rio::{
        Batch, CompletionQueue, HandOver, OneThread, Opened, Peer, Provider, Refused, RequestQueue,
        Started, Threading,
    },
};

const SLICES: u32 = 16;

/// Somebody who takes datagrams and never answers. It lives as long as the test.
fn sink() -> (UdpSocket, Peer) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap().into();
    (socket, to)
}

/// Queues of one socket, with a region that they were opened with.
pub struct Rig<P: Provider<T>, T: Threading> {
    pub region: Arc<Region>,
    pub queue: P::Cq,
    pub requests: Vec<P::Rq>,
    pub counters: Counters,
    pub address: SocketAddr,
}

impl<P: Provider<T>, T: Threading> Rig<P, T> {
    pub fn new(provider: &P, at: SocketAddr) -> Self {
        let region = region(provider.layout(&NEEDS).unwrap(), SLICES);
        Self::with(provider, at, region)
    }

    fn with(provider: &P, at: SocketAddr, region: Arc<Region>) -> Self {
        let opened = provider.open(&[at.into()], &region, &NEEDS).unwrap();
        let address = opened.local_addresses()[0];
        let Started { completions, requests, .. } = provider.start(opened).unwrap();
        Self { region, queue: completions, requests, counters: Counters::default(), address }
    }

    fn post(&mut self, receives: u32) {
        for _ in 0..receives {
            self.requests[0].receive(self.region.take().unwrap()).unwrap();
        }
        self.requests[0].commit(&self.counters).unwrap();
    }
}

/// Makes of a check a test on every provider, and one on AF_XDP.
macro_rules! misuse {
    ($($name:ident: $of:ident,)*) => {$(
        struct $of;

        impl Misuse for $of {
            fn on<P: Both>(&self, name: &str, provider: &P, at: [SocketAddr; 2]) {
                $name::<P>(name, provider, at);
            }
        }

        mod $name {
            #[test]
            fn on_each() {
                super::on_each(&super::$of);
            }

            #[test]
            fn on_af_xdp() {
                super::on_device(concat!("datagrams::", stringify!($name), "::on_af_xdp"), &super::$of);
            }
        }
    )*};
}

misuse! {
    a_slice_of_another_region_is_given_back: Foreign,
    a_region_that_was_cut_otherwise_is_refused_or_holds: CutOtherwise,
    a_request_queue_that_is_kept_takes_nothing_after_the_stop: KeptAfterStop,
    what_was_posted_and_not_committed_goes_back_with_its_queue: NotCommitted,
    request_queues_of_another_queue_are_taken_back_by_it: OfAnother,
    a_region_that_is_dropped_early_lives_as_long_as_it_is_used: DroppedEarly,
    a_slice_of_a_completion_outlives_its_queue: CompletionKept,
    requests_without_their_completion_queue_are_accounted_for: WithoutCompletions,
    a_poster_on_another_thread_meets_the_stop: PosterMeetsStop,
}

fn a_slice_of_another_region_is_given_back<P: Both>(_: &str, provider: &P, at: [SocketAddr; 2]) {
    let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
    let (_sink, to) = sink();
    let same = rig.region.layout();
    let larger =
        Layout { stride: 4 * same.stride, payload: same.payload + 3 * same.stride, ..same };
    let others = [same, larger, Layout::packed(0, 1, 1)].map(|layout| region(layout, SLICES));
    for other in &others {
        // Of each index: the queue's own slices of that index are the kernel's.
        let all: Vec<_> = std::iter::from_fn(|| other.take()).collect();
        for (i, slice) in all.into_iter().enumerate() {
            let (slice, refused) = match i % 2 {
                0 => rig.requests[0].receive(slice).unwrap_err(),
                _ => rig.requests[0].send(slice, 1, &to).unwrap_err(),
            };
            assert_eq!(refused, Refused::OtherRegion);
            assert!(refused.to_string().contains("region"));
            assert!(Arc::ptr_eq(slice.region(), other));
        }
        assert_whole(other);
    }
    rig.post(NEEDS.receives);
    assert_eq!(
        rig.requests[0].outstanding(),
        (NEEDS.receives, 0),
        "what was refused counts nowhere"
    );
    assert_eq!(rig.queue.stop(rig.requests, soon()).missing, 0);
    assert_whole(&rig.region);
}

fn a_region_that_was_cut_otherwise_is_refused_or_holds<P: Both>(
    name: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    let wanted = Provider::<OneThread>::layout(provider, &NEEDS).unwrap();
    for layout in [Layout::packed(0, 1, 1), Layout { payload: 1, ..wanted }] {
        let other = region(layout, SLICES);
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Provider::<OneThread>::open(provider, &[at[0].into()], &other, &NEEDS)
        }));
        let opened = match opened {
            Ok(Ok(opened)) => opened, // one that needs no layout takes any
            Ok(Err(_)) => continue,
            // A provider in memory asserts it.
            Err(_) if name.starts_with("fake-") => continue,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let started = Provider::<OneThread>::start(provider, opened).unwrap();
        let (queue, mut requests) = (started.completions, started.requests);
        requests[0].receive(other.take().unwrap()).unwrap();
        requests[0].commit(&Counters::default()).unwrap();
        queue.stop(requests, soon());
        assert_whole(&other);
    }
}

fn a_request_queue_that_is_kept_takes_nothing_after_the_stop<P: Both>(
    _: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
    let (_sink, to) = sink();
    rig.post(4);
    rig.queue.stop(Vec::new(), soon());
    let requests = &mut rig.requests[0];
    for _ in 0..3 {
        requests.reserve(2);
        let (slice, refused) = requests.receive(rig.region.take().unwrap()).unwrap_err();
        assert_eq!(refused, Refused::Stopped);
        let (_, refused) = requests.send(slice, 8, &to).unwrap_err();
        assert_eq!(refused, Refused::Stopped);
        let refused = requests.commit(&rig.counters).unwrap_err();
        assert!(refused.to_string().contains("stopped"), "{refused}");
        requests.outstanding();
    }
    drop(rig.requests);
    assert_whole(&rig.region);
}

fn what_was_posted_and_not_committed_goes_back_with_its_queue<P: Both>(
    _: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    for give_back in [false, true] {
        let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
        let (_sink, to) = sink();
        rig.post(2);
        rig.requests[0].reserve(3);
        for _ in 0..3 {
            rig.requests[0].receive(rig.region.take().unwrap()).unwrap();
            rig.requests[0].send(rig.region.take().unwrap(), 8, &to).unwrap();
        }
        let by = soon();
        let stopped = match give_back {
            true => rig.queue.stop(std::mem::take(&mut rig.requests), by),
            false => rig.queue.stop(Vec::new(), by),
        };
        assert!(Instant::now() < by, "nothing of it is the kernel's: there is nothing to wait for");
        assert!(!give_back || stopped.missing == 0, "{stopped:?}");
        drop(rig.requests);
        assert_whole(&rig.region);
    }
}

fn request_queues_of_another_queue_are_taken_back_by_it<P: Both>(
    _: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    let mut rigs = at.map(|at| Rig::<P, OneThread>::new(provider, at));
    for rig in &mut rigs {
        rig.post(3);
        rig.requests[0].receive(rig.region.take().unwrap()).unwrap();
    }
    let [one, other] = rigs;
    one.queue.stop(other.requests, soon());
    other.queue.stop(one.requests, soon());
    assert_whole(&one.region);
    assert_whole(&other.region);
}

fn a_region_that_is_dropped_early_lives_as_long_as_it_is_used<P: Both>(
    _: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
    let mut kept = rig.region.take().unwrap();
    rig.post(4);
    let weak = Arc::downgrade(&rig.region);
    drop(rig.region);
    assert_eq!(rig.queue.stop(rig.requests, soon()).missing, 0);
    use_memory(&mut kept);
    drop(kept);
    assert!(weak.upgrade().is_none(), "nobody uses it any more");
}

fn a_slice_of_a_completion_outlives_its_queue<P: Both>(_: &str, provider: &P, at: [SocketAddr; 2]) {
    let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
    let (_sink, to) = sink();
    rig.post(2);
    rig.requests[0].send(rig.region.take().unwrap(), 8, &to).unwrap();
    rig.requests[0].commit(&rig.counters).unwrap();
    let mut batch = Batch::new(8);
    let by = soon();
    while batch.is_empty() && Instant::now() < by {
        rig.queue.dequeue(&mut batch, &rig.counters).unwrap();
        if batch.is_empty() {
            rig.queue.wait(1, Some(Duration::from_millis(10)), &rig.counters).unwrap();
        }
    }
    assert_eq!(batch.len(), 1, "what was sent comes back, sent or not");
    assert_eq!(rig.queue.stop(rig.requests, soon()).missing, 0);
    assert_eq!(rig.region.in_pool(), SLICES - 1);
    for completion in batch.drain() {
        let mut slice = completion.slice;
        use_memory(&mut slice);
    }
    drop(batch);
    assert_whole(&rig.region);
}

fn requests_without_their_completion_queue_are_accounted_for<P: Both>(
    _: &str,
    provider: &P,
    at: [SocketAddr; 2],
) {
    let mut rig = Rig::<P, OneThread>::new(provider, at[0]);
    let (_sink, to) = sink();
    rig.post(2);
    drop(rig.queue); // not stopped
    let requests = &mut rig.requests[0];
    let mut kept = Vec::new();
    for _ in 0..4 {
        kept.extend(requests.receive(rig.region.take().unwrap()).err());
        kept.extend(requests.send(rig.region.take().unwrap(), 8, &to).err());
        let _ = requests.commit(&rig.counters);
    }
    drop((rig.requests, kept));
    assert_accounted(&rig.region);
}

fn a_poster_on_another_thread_meets_the_stop<P: Both>(_: &str, provider: &P, at: [SocketAddr; 2]) {
    for round in 0..20 {
        let rig = Rig::<P, HandOver>::new(provider, at[0]);
        let Rig { region, queue, mut requests, .. } = rig;
        let (_sink, to) = sink();
        let (began, begun) = mpsc::channel();
        let its = Arc::clone(&region);
        let poster = thread::spawn(move || {
            let counters = Counters::default();
            let by = Instant::now() + PATIENCE;
            for n in 0u32.. {
                assert!(Instant::now() < by, "the stop was never met");
                let Some(slice) = its.take() else { continue };
                let posted = match n % 3 {
                    0 => requests[0].send(slice, 8, &to),
                    _ => requests[0].receive(slice),
                };
                let committed = if n % 2 == 0 { requests[0].commit(&counters) } else { Ok(()) };
                if n == round {
                    began.send(()).unwrap();
                }
                match posted {
                    Err((_, Refused::Stopped)) => break,
                    // As much as there may be is outstanding: nobody dequeues.
                    Err((_, refused)) => assert_eq!(refused, Refused::Full),
                    Ok(()) => {}
                }
                if let Err(e) = committed {
                    assert!(e.to_string().contains("stopped"), "{e}");
                }
            }
            drop(its);
        });
        begun.recv().unwrap();
        queue.stop(Vec::new(), soon());
        poster.join().unwrap();
        assert_whole(&region);
    }
}
