//! Cancelling, closing, and the bugs that completion-style libraries have had: memory freed
//! while the kernel writes to it, buffers of cancelled operations lost, a late completion that
//! hits another operation.

use super::*;
use crate::{
    port::{Cancelled, Refused},
    socket::tests::free_again,
};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

#[test]
fn a_cancelled_receive_comes_back_once() {
    if cannot_run_here() {
        return;
    }
    // The first is armed; the others wait in the list.
    let bench = bench(native(1, 1), needs());
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let tokens = bench.post(&mut worker, 3);
    worker.commit(&counters).unwrap();
    for &token in &tokens {
        assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    }
    let mut back = Vec::new();
    for _ in &tokens {
        let (token, _, outcome) = take_operation(&mut worker);
        assert!(matches!(outcome, Outcome::Returned), "{outcome:?}");
        back.push(token);
    }
    assert!(tokens.iter().all(|token| back.contains(token)), "{tokens:?} {back:?}");
    assert_eq!(bench.region.in_pool(), bench.region.count());
    for &token in &tokens {
        assert_eq!(worker.cancel(token, &counters), Cancelled::Gone);
    }
    let time = Some(Duration::from_millis(1));
    assert_eq!(worker.take(&mut Taken::new(1), time, &counters).unwrap(), Some(0));
    drop(worker);
    bench.stop();
}

#[test]
fn a_socket_of_another_port_is_refused_and_takes_no_slot() {
    if cannot_run_here() {
        return;
    }
    let needs = Needs { receives: 1, sends: 1, ..needs() };
    let bench = bench(Native::default(), needs);
    let (peer, other) = (sender(), SocketId(1));
    let to = crate::rio::Peer::from(peer.local_addr().unwrap());
    let mut worker = bench.port.worker().unwrap();
    for _ in 0..3 {
        let slice = bench.region.take().unwrap();
        let (slice, refused) = worker.receive(other, slice).unwrap_err();
        assert_eq!(refused, Refused::NoSuchSocket);
        let (slice, refused) = worker.send(other, slice, 5, &to).unwrap_err();
        assert_eq!(refused, Refused::NoSuchSocket);
        let mut slices = vec![slice];
        let refused = worker.receive_all(other, &mut slices).unwrap_err();
        assert_eq!((refused, slices.len()), (Refused::NoSuchSocket, 1));
    }
    worker.receive(bench.socket, bench.region.take().unwrap()).unwrap();
    worker.send(bench.socket, bench.region.take().unwrap(), 5, &to).unwrap();
    drop(worker);
    bench.stop();
}

#[test]
fn a_token_out_of_date_names_nothing() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { receives: 1, ..needs() });
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let first = bench.post(&mut worker, 1)[0];
    sender().send_to(b"one", bench.address).unwrap();
    let (slice, _) = take_datagram(&mut worker);
    let second = worker.receive(bench.socket, slice).unwrap();
    worker.commit(&counters).unwrap();
    assert_ne!(first, second, "the slot is the same, its generation is not");
    assert_eq!(worker.cancel(first, &counters), Cancelled::Gone);
    sender().send_to(b"two", bench.address).unwrap();
    let (token, slice, outcome) = take_operation(&mut worker);
    assert_eq!(token, second);
    assert!(matches!(outcome, Outcome::Received(arrival) if arrival.len == 3), "{outcome:?}");
    drop((slice, worker));
    bench.stop();
}

#[test]
fn needs_that_make_no_sense_are_refused_with_what_is_right() {
    if cannot_run_here() {
        return;
    }
    for (needs, name) in [
        (Needs { threads: 0, ..needs() }, "threads"),
        (Needs { receives: 1_000_000_000, ..needs() }, "receives"),
        (Needs { packets: u32::MAX, ..needs() }, "packets"),
    ] {
        let said = Native::default().open(&needs).err().expect("refused").to_string();
        assert!(said.contains(name) && said.contains("allowed"), "{said}");
    }
}

#[test]
fn more_than_is_outstanding_is_refused_and_given_back() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), Needs { receives: 2, sends: 1, ..needs() });
    let counters = Counters::default();
    let to = crate::rio::Peer::from(bench.address);
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 2);
    let slice = bench.region.take().unwrap();
    let index = slice.index();
    let (slice, refused) = worker.receive(bench.socket, slice).unwrap_err();
    assert_eq!((slice.index(), refused), (index, Refused::Full));
    worker.send(bench.socket, slice, 1, &to).unwrap();
    assert!(bench.region.take().is_none(), "all are outstanding");
    bench.port.close();
    assert_eq!(worker.take(&mut Taken::new(4), None, &counters).unwrap(), None);
    drop(worker);
    bench.stop();
}

#[test]
fn closing_refuses_and_wakes_everybody() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Native::default(), needs());
    thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut worker = bench.port.worker().unwrap();
                    worker.take(&mut Taken::new(1), None, &Counters::default()).unwrap()
                })
            })
            .collect();
        bench.port.close();
        for taker in takers {
            assert_eq!(taker.join().unwrap(), None);
        }
    });
    let mut worker = bench.port.worker().unwrap();
    let (slice, refused) = worker.receive(bench.socket, bench.region.take().unwrap()).unwrap_err();
    assert_eq!(refused, Refused::Closed);
    drop((slice, worker));
    bench.stop();
}

#[test]
fn stopping_under_load_gives_every_slice_back() {
    if cannot_run_here() {
        return;
    }
    for provider in [Native::default(), native(128, 1)] {
        let bench = bench(provider, needs());
        let (taken, posted) = (AtomicUsize::new(0), Barrier::new(2));
        let flood = sender();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (bench, taken, posted) = (&bench, &taken, &posted);
                scope.spawn(move || {
                    let counters = Counters::default();
                    let mut worker = bench.port.worker().unwrap();
                    if thread == 0 {
                        bench.post(&mut worker, 128);
                        posted.wait();
                    }
                    let mut out = Taken::new(10);
                    while let Some(n) = worker.take(&mut out, None, &counters).unwrap() {
                        taken.fetch_add(n, SeqCst);
                        for completion in out.drain() {
                            if let Completion::Operation { slice, .. } = completion {
                                let _ = worker.receive(bench.socket, slice);
                            }
                        }
                    }
                });
            }
            posted.wait();
            let began = Instant::now();
            while taken.load(SeqCst) < 500 {
                assert!(began.elapsed() < LONG, "{} taken", taken.load(SeqCst));
                flood.send_to(&[1; 32], bench.address).unwrap();
            }
            // The flood goes on while the port is closed.
            let closer = bench.port.closer();
            let closing = scope.spawn(move || closer.wake());
            for _ in 0..2000 {
                flood.send_to(&[1; 32], bench.address).unwrap();
            }
            closing.join().unwrap();
        });
        bench.stop();
    }
}

#[test]
fn a_stopped_port_leaves_the_address_free() {
    if cannot_run_here() {
        return;
    }
    for stops in [true, false] {
        let bench = bench(Native::default(), needs());
        let mut worker = bench.port.worker().unwrap();
        if stops {
            bench.post(&mut worker, 64);
        }
        worker.commit(&Counters::default()).unwrap();
        drop(worker);
        let address = bench.address;
        if stops {
            bench.stop();
        } else {
            drop(bench);
        }
        drop(free_again(address));
    }
}

#[test]
fn receives_of_a_thread_that_exited_come_back_and_no_datagram_is_lost() {
    if cannot_run_here() || crate::wine::END_OF_A_PACKET.is_left_out() {
        return;
    }
    let bench = bench(native(4, 1), needs());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = bench.port.worker().unwrap();
            bench.post(&mut worker, 4);
            worker.commit(&Counters::default()).unwrap();
        });
    });
    sender().send_to(b"still here", bench.address).unwrap();
    let mut worker = bench.port.worker().unwrap();
    let slice = loop {
        match take_operation(&mut worker) {
            (_, slice, Outcome::Received(arrival)) => {
                assert_eq!(&slice.payload()[..arrival.len], b"still here");
                break slice;
            }
            (_, slice, Outcome::Returned) => worker.receive(bench.socket, slice).unwrap(),
            (_, _, outcome) => panic!("{outcome:?}"),
        };
    };
    drop((slice, worker));
    bench.stop();
}

#[test]
fn a_stop_accounts_for_every_slice_also_when_it_has_no_time() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(native(4, 1), needs());
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 10);
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Bench { port, region, .. } = bench;
    // Cancelling is quick: some of the four may be back before the time is looked at.
    let stopped = port.stop(Instant::now());
    assert_eq!(region.leaked(), stopped.missing);
    assert_eq!(region.in_pool(), region.count() - stopped.missing);
    assert_eq!(stopped.returned + stopped.missing, 10);
}
