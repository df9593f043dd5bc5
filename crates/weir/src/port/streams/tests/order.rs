//! Receives are filled in the order started, whoever takes them.

use super::*;
use crate::{port::Cancelled, wine};
use std::{
    sync::{Mutex, mpsc},
    thread,
};

on_each! {
    numbers_are_those_of_the_bytes,
    what_has_come_in_all_is_told,
}

fn numbers_are_those_of_the_bytes<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    // Posted before anything comes, so that all of them wait.
    let slices: Vec<_> = (0..6).map(|_| bench.slice()).collect();
    let indexes: Vec<_> = slices.iter().map(Slice::index).collect();
    for slice in slices {
        worker.receive(id, slice).unwrap();
    }
    worker.commit(&Counters::default()).unwrap();
    for part in 0..6u8 {
        client.write_all(&[part; 10]).unwrap();
        let (number, slice, outcome) = take_receive(&mut worker);
        assert!(matches!(outcome, Outcome::Done(10)), "{outcome:?}");
        assert_eq!((number, slice.index()), (part.into(), indexes[part as usize]));
        assert_eq!(slice.payload()[..10], [part; 10]);
    }
    drop(worker);
    bench.stop();
}

/// Several threads take, several receives are outstanding, and a peer sends without pause: put in the
/// order of their numbers, the bytes are those that were sent.
#[test]
fn the_order_is_restored_whichever_thread_takes() {
    if wine::RECEIVES_IN_ORDER.is_left_out() {
        return;
    }
    const BYTES: usize = 1_000_000;
    let needs = Needs { concurrency: 4, ..needs() };
    let Some(bench) = bench::<Native>(needs) else { return };
    let (mut client, stream, id) = bench.connect(&mut bench.port.worker().unwrap(), 7);
    let sent: Vec<u8> =
        (0..BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let expected = sent.clone();
    let (came, all) = mpsc::channel::<(u32, Vec<u8>)>();
    let first = Mutex::new(true);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (bench, came, first) = (&bench, came.clone(), &first);
            scope.spawn(move || {
                let counters = Counters::default();
                let mut worker = bench.port.worker().unwrap();
                if std::mem::take(&mut *first.lock().unwrap()) {
                    (0..8).for_each(|_| started(worker.receive(id, bench.slice())));
                }
                let mut out = Taken::new(1);
                while worker.take(&mut out, None, &counters).unwrap().is_some() {
                    for completion in out.drain() {
                        let Completion::Receive { slice, number, outcome, .. } = completion else {
                            panic!("{completion:?}");
                        };
                        match outcome {
                            Outcome::Done(0) => {}
                            Outcome::Done(count) => {
                                came.send((number, slice.payload()[..count].to_vec())).unwrap();
                                let _ = worker.receive(id, slice); // the port may be closed
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
        scope.spawn(move || {
            for part in sent.chunks(33) {
                client.write_all(part).unwrap();
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = client.read(&mut [0]);
        });
        let (mut parts, mut count) = (Vec::new(), 0);
        while count < BYTES {
            let part = all.recv_timeout(LONG).expect("all bytes come");
            count += part.1.len();
            parts.push(part);
        }
        bench.port.close();
        stream.end_sending(&Counters::default()).unwrap();
        parts.sort_by_key(|(number, _)| *number);
        assert!(parts.iter().map(|(number, _)| *number).eq(0..parts.len() as u32));
        assert!(parts.into_iter().flat_map(|(_, bytes)| bytes).eq(expected));
    });
    bench.stop();
}

#[test]
fn a_cancelled_receive_leaves_the_others_in_order() {
    for cancelled in 0..4usize {
        let Some(bench) = bench::<Native>(needs()) else { return };
        let counters = Counters::default();
        let mut worker = bench.port.worker().unwrap();
        let (mut client, _stream, id) = bench.connect(&mut worker, 7);
        let tokens: Vec<_> = (0..4).map(|_| worker.receive(id, bench.slice()).unwrap()).collect();
        worker.commit(&counters).unwrap();
        assert_eq!(worker.cancel(tokens[cancelled], &counters), Cancelled::Asked);
        let (number, _, outcome) = take_receive(&mut worker);
        assert!(matches!(outcome, Outcome::Returned), "{outcome:?}");
        assert_eq!(number as usize, cancelled);
        for expected in (0..4).filter(|number| *number != cancelled) {
            client.write_all(&[expected as u8]).unwrap();
            let (number, slice, outcome) = take_receive(&mut worker);
            assert!(matches!(outcome, Outcome::Done(1)), "{outcome:?}");
            assert_eq!((number as usize, slice.payload()[0]), (expected, expected as u8));
        }
        assert_eq!(worker.cancel(tokens[cancelled], &counters), Cancelled::Gone);
        // One more takes its turn like the first.
        worker.receive(id, bench.slice()).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(take_receive(&mut worker).0, 4);
        drop(worker);
        bench.stop();
    }
}

/// Wherever the bytes are: with the program, in a completion that nobody took, or in the socket.
fn what_has_come_in_all_is_told<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    let told = || bench.port.received_in_all(id, &counters).unwrap();
    let until = |bytes| {
        while told() < bytes {
            thread::yield_now();
        }
        assert_eq!(told(), bytes);
    };
    until(0);
    worker.receive(id, bench.slice()).unwrap();
    client.write_all(&[1; 50]).unwrap();
    let (_, slice, outcome) = take_receive(&mut worker);
    assert!(matches!(outcome, Outcome::Done(50)), "{outcome:?}");
    until(50);
    // A receive that nobody takes, and more than it has room for.
    worker.receive(id, slice).unwrap();
    worker.commit(&counters).unwrap();
    client.write_all(&[2; 3 * SLICE]).unwrap();
    until(50 + 3 * SLICE as u64);
    let (.., outcome) = take_receive(&mut worker);
    assert!(matches!(outcome, Outcome::Done(1..=SLICE)), "{outcome:?}");
    until(50 + 3 * SLICE as u64);
    assert_eq!(worker.close(id, &counters), Closing::Over);
    let gone = bench.port.received_in_all(id, &counters).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    drop(worker);
    bench.stop();
}
