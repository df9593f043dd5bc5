//! Sequences of safe calls that nobody would write: whatever their order, in the end every slice is where it
//! belongs.

use crate::{
    assert_accounted, assert_whole,
    datagrams::Rig,
    loopback,
    namespace::on_device,
    region, soon, use_memory,
    whole_provider::{Both, Misuse, NEEDS, on_each},
};
use proptest::prelude::*;
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};
use weir::{
    memory::{Layout, Region, Slice},
    rio::{Batch, CompletionQueue, OneThread, Refused, RequestQueue},
};

/// A call on one of two queues, or what a program does with what it holds.
#[derive(Debug, Clone)]
enum Call {
    /// A slice of the queue's own region, or of another.
    Receive {
        queue: usize,
        of: usize,
    },
    Send {
        queue: usize,
        of: usize,
        len: usize,
    },
    Reserve {
        queue: usize,
        receives: u32,
    },
    Commit {
        queue: usize,
    },
    Dequeue {
        queue: usize,
        room: usize,
        keep: bool,
    },
    /// Posts a slice that was kept, on whichever queue.
    PostKept {
        queue: usize,
    },
    DropKept,
    /// Something comes for it.
    Arrive {
        queue: usize,
    },
    Stop {
        queue: usize,
        with_requests: bool,
    },
    DropQueue {
        queue: usize,
    },
    DropRequests {
        queue: usize,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let (queue, of) = (0..2usize, 0..3usize);
    prop_oneof![
        8 => (queue.clone(), of.clone()).prop_map(|(queue, of)| Call::Receive { queue, of }),
        6 => (queue.clone(), of, 0..256usize)
            .prop_map(|(queue, of, len)| Call::Send { queue, of, len }),
        1 => (queue.clone(), 0..12u32)
            .prop_map(|(queue, receives)| Call::Reserve { queue, receives }),
        6 => queue.clone().prop_map(|queue| Call::Commit { queue }),
        6 => (queue.clone(), 1..9usize, any::<bool>())
            .prop_map(|(queue, room, keep)| Call::Dequeue { queue, room, keep }),
        3 => queue.clone().prop_map(|queue| Call::PostKept { queue }),
        1 => Just(Call::DropKept),
        4 => queue.clone().prop_map(|queue| Call::Arrive { queue }),
        1 => (queue.clone(), any::<bool>())
            .prop_map(|(queue, with_requests)| Call::Stop { queue, with_requests }),
        1 => queue.clone().prop_map(|queue| Call::DropQueue { queue }),
        1 => queue.prop_map(|queue| Call::DropRequests { queue }),
    ]
}

/// What is left of a queue as the calls go on.
struct Left<P: Both> {
    region: Arc<Region>,
    queue: Option<<P as weir::rio::Provider<OneThread>>::Cq>,
    requests: Vec<<P as weir::rio::Provider<OneThread>>::Rq>,
    address: SocketAddr,
    /// It was dropped without having been stopped.
    dropped: bool,
}

fn play<P: Both>(provider: &P, at: [SocketAddr; 2], calls: &[Call]) {
    let counters = weir::counters::Counters::default();
    let client = UdpSocket::bind(loopback()).unwrap();
    let to = client.local_addr().unwrap().into();
    let mut queues = at.map(|at| {
        let Rig { region, queue, requests, address, .. } = Rig::<P, OneThread>::new(provider, at);
        Left::<P> { region, queue: Some(queue), requests, address, dropped: false }
    });
    let foreign = region(Layout::packed(0, 300, 64), 4);
    let mut kept: Vec<Slice> = Vec::new();
    for call in calls {
        match *call {
            Call::Receive { queue, of } | Call::Send { queue, of, .. } => {
                let from = if of == 2 { &foreign } else { &queues[of].region };
                let Some(slice) = from.take() else { continue };
                let its = Arc::ptr_eq(slice.region(), &queues[queue].region);
                let stopped = queues[queue].queue.is_none() && !queues[queue].dropped;
                let Some(requests) = queues[queue].requests.first_mut() else { continue };
                let posted = match *call {
                    Call::Send { len, .. } => requests.send(slice, len, &to),
                    _ => requests.receive(slice),
                };
                match posted {
                    Ok(()) => assert!(its && !stopped),
                    Err((slice, refused)) => {
                        assert!(!stopped || refused == Refused::Stopped);
                        assert!(stopped || (refused == Refused::OtherRegion) != its);
                        kept.push(slice);
                    }
                }
            }
            Call::Reserve { queue, receives } => {
                queues[queue].requests.iter_mut().for_each(|requests| requests.reserve(receives));
            }
            Call::Commit { queue } => {
                for requests in &mut queues[queue].requests {
                    let _ = requests.commit(&counters);
                    requests.outstanding();
                }
            }
            Call::Dequeue { queue, room, keep } => {
                let Some(queue) = &mut queues[queue].queue else { continue };
                let mut batch = Batch::new(room);
                queue.wait(1, Some(Duration::from_micros(100)), &counters).unwrap();
                queue.dequeue(&mut batch, &counters).unwrap();
                let came = batch.drain().map(|completion| completion.slice);
                if keep { kept.extend(came) } else { came.for_each(drop) }
            }
            Call::PostKept { queue } => {
                let Some(slice) = kept.pop() else { continue };
                if let Some(requests) = queues[queue].requests.first_mut() {
                    kept.extend(requests.receive(slice).err().map(|(slice, _)| slice));
                }
            }
            Call::DropKept => {
                kept.iter_mut().for_each(use_memory);
                kept.clear();
            }
            Call::Arrive { queue } => {
                let _ = client.send_to(b"something", queues[queue].address);
            }
            Call::Stop { queue, with_requests } => {
                let Some(completions) = queues[queue].queue.take() else { continue };
                let given = match with_requests {
                    true => std::mem::take(&mut queues[queue].requests),
                    false => Vec::new(),
                };
                completions.stop(given, soon());
            }
            Call::DropQueue { queue } => {
                queues[queue].dropped |= queues[queue].queue.take().is_some();
            }
            Call::DropRequests { queue } => queues[queue].requests.clear(),
        }
    }
    kept.iter_mut().for_each(use_memory);
    drop(kept);
    for Left { region, queue, requests, dropped, .. } in queues {
        match queue {
            Some(queue) => assert_eq!(queue.stop(requests, soon()).missing, 0),
            None => drop(requests),
        }
        if dropped { assert_accounted(&region) } else { assert_whole(&region) }
    }
    assert_whole(&foreign);
}

struct Random;

impl Misuse for Random {
    fn on<P: Both>(&self, _: &str, provider: &P, at: [SocketAddr; 2]) {
        let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let sequences = proptest::collection::vec(call(), 0..120);
        let outcome = runner.run(&sequences, |calls| {
            play::<P>(provider, at, &calls);
            Ok(())
        });
        outcome.unwrap_or_else(|e| panic!("{e}"));
        const { assert!(NEEDS.sends > 0) };
    }
}

#[test]
fn calls_on_each() {
    on_each(&Random);
}

#[test]
fn calls_on_af_xdp() {
    on_device("random::calls_on_af_xdp", &Random);
}
