//! Sequences of safe calls on streams that nobody would write.

use crate::{
    assert_accounted, assert_whole, region,
    streams::{self, Rig},
    use_memory,
};
use proptest::prelude::*;
use std::{io::Write, net::TcpStream, sync::Arc, time::Duration};
use weir::{
    memory::{Layout, Region, Slice},
    rio::streams::{Load, Receiving, StreamCompletion, StreamId, StreamQueue},
};

/// A call on a queue of streams with two clients, of which one may have gone.
#[derive(Debug, Clone)]
enum Streamed {
    Connect,
    Write {
        client: usize,
    },
    DropClient {
        client: usize,
    },
    Receive {
        name: usize,
    },
    StopReceiving {
        name: usize,
    },
    /// A kept slice, or one of another region.
    Send {
        name: usize,
        foreign: bool,
        start: u32,
        end: u32,
    },
    SendBytes {
        name: usize,
        len: usize,
    },
    End {
        name: usize,
    },
    Ask {
        name: usize,
    },
    Close {
        name: usize,
        abrupt: bool,
    },
    GiveBack {
        foreign: bool,
    },
    DropKept,
    StopAccepting,
    Accept,
    Look,
}

fn streamed() -> impl Strategy<Value = Streamed> {
    let (client, name) = (0..4usize, 0..6usize);
    prop_oneof![
        3 => Just(Streamed::Connect),
        4 => client.clone().prop_map(|client| Streamed::Write { client }),
        1 => client.prop_map(|client| Streamed::DropClient { client }),
        5 => name.clone().prop_map(|name| Streamed::Receive { name }),
        2 => name.clone().prop_map(|name| Streamed::StopReceiving { name }),
        5 => (name.clone(), any::<bool>(), 0..1200u32, 0..1200u32)
            .prop_map(|(name, foreign, start, end)| Streamed::Send { name, foreign, start, end }),
        2 => (name.clone(), 0..2000usize)
            .prop_map(|(name, len)| Streamed::SendBytes { name, len }),
        2 => name.clone().prop_map(|name| Streamed::End { name }),
        2 => name.clone().prop_map(|name| Streamed::Ask { name }),
        2 => (name, any::<bool>()).prop_map(|(name, abrupt)| Streamed::Close { name, abrupt }),
        2 => any::<bool>().prop_map(|foreign| Streamed::GiveBack { foreign }),
        1 => Just(Streamed::DropKept),
        1 => Just(Streamed::StopAccepting),
        1 => Just(Streamed::Accept),
        8 => Just(Streamed::Look),
    ]
}

fn play_streams(receiving: Receiving, zero_copy: Option<usize>, calls: &[Streamed], stop: bool) {
    let mut rig = Rig::new(receiving, 3, zero_copy);
    let foreign = region(Layout::packed(0, 1024, 64), 4);
    let mut its: Option<Arc<Region>> = None;
    let mut clients: Vec<Option<TcpStream>> = Vec::new();
    // Names that were ever told, the latest last: most are out of date.
    let mut names = vec![StreamId { number: 0, generation: 0 }];
    let mut kept: Vec<Slice> = Vec::new();
    for call in calls {
        let named = |name: usize| names[names.len() - 1 - name % names.len()];
        match *call {
            // More than there are places for: the others wait in the backlog.
            Streamed::Connect if clients.len() < 12 => {
                let client = TcpStream::connect(rig.at).unwrap();
                client.set_nonblocking(true).unwrap();
                clients.push(Some(client));
            }
            Streamed::Connect => {}
            Streamed::Write { client } => {
                let at = clients.len().checked_sub(1 + client);
                if let Some(Some(client)) = at.map(|at| &mut clients[at]) {
                    let _ = client.write(&[7; 100]);
                }
            }
            Streamed::DropClient { client } => {
                if let Some(at) = clients.len().checked_sub(1 + client) {
                    clients[at] = None;
                }
            }
            Streamed::Receive { name } => drop(rig.queue.receive(named(name))),
            Streamed::StopReceiving { name } => rig.queue.stop_receiving(named(name)),
            Streamed::Send { name, foreign: other, start, end } => {
                let slice = if other { foreign.take() } else { kept.pop() };
                let Some(slice) = slice else { continue };
                let fits = start < end && end as usize <= slice.payload().len();
                match rig.queue.send(named(name), Load::Slice { slice, start, end }) {
                    Ok(()) => assert!(fits && !other),
                    Err((Load::Slice { slice, .. }, _)) => kept.push(slice),
                    Err((load, _)) => panic!("{load:?} for a slice"),
                }
            }
            Streamed::SendBytes { name, len } => {
                let _ = rig.queue.send(named(name), vec![3; len].into());
            }
            Streamed::End { name } => rig.queue.end_sending(named(name)),
            Streamed::Ask { name } => rig.queue.ask_waiting(named(name)),
            Streamed::Close { name, abrupt } => rig.queue.close(named(name), abrupt),
            Streamed::GiveBack { foreign: other } => {
                let slice = if other { foreign.take() } else { kept.pop() };
                slice.into_iter().for_each(|slice| rig.queue.give_back(slice));
            }
            Streamed::DropKept => {
                kept.iter_mut().for_each(use_memory);
                kept.clear();
            }
            Streamed::StopAccepting => rig.queue.stop_accepting(),
            Streamed::Accept => rig.queue.accept(),
            Streamed::Look => rig.look(Duration::from_micros(200)),
        }
        for completion in rig.said.drain(..) {
            match completion {
                StreamCompletion::Accepted { connection, .. } => names.push(connection),
                StreamCompletion::Received { slice, .. } => {
                    its.get_or_insert_with(|| Arc::clone(slice.region()));
                    kept.push(slice);
                }
                StreamCompletion::Sent { load: Some(Load::Slice { slice, .. }), .. }
                | StreamCompletion::NotSent { load: Some(Load::Slice { slice, .. }), .. }
                | StreamCompletion::Returned { load: Load::Slice { slice, .. } } => {
                    assert!(its.as_ref().is_some_and(|its| Arc::ptr_eq(its, slice.region())));
                    kept.push(slice);
                }
                _ => {}
            }
        }
    }
    if stop {
        assert_eq!(rig.stop().missing, 0);
    } else {
        drop(rig);
    }
    kept.iter_mut().for_each(use_memory);
    drop(kept);
    assert_whole(&foreign);
    if let Some(its) = its {
        if stop { assert_whole(&its) } else { assert_accounted(&its) }
    }
}

#[test]
fn calls() {
    if streams::cannot_run_here() {
        return;
    }
    for receiving in streams::ways() {
        for zero_copy in [None, Some(0)] {
            let config =
                ProptestConfig { cases: 25, failure_persistence: None, ..Default::default() };
            let mut runner = proptest::test_runner::TestRunner::new(config);
            let sequences =
                (proptest::collection::vec(streamed(), 0..150), proptest::bool::weighted(0.8));
            let outcome = runner.run(&sequences, |(calls, stop)| {
                play_streams(receiving, zero_copy, &calls, stop);
                Ok(())
            });
            outcome.unwrap_or_else(|e| panic!("{receiving}: {e}"));
        }
    }
}
