//! The bugs that completion-style libraries have had: memory freed while the kernel uses it, what a cancelled
//! operation carries lost, a late completion that hits another operation.

use super::*;
use crate::port::Cancelled;
use std::thread;

on_each! {
    what_the_kernel_may_use_is_leaked_rather_than_freed,
    a_stop_accounts_for_all_memory_also_when_it_has_no_time,
    a_token_out_of_date_names_nothing,
    a_cancelled_operation_is_told_once,
    a_cancel_that_comes_late_does_not_hit_the_next_connection,
    more_than_is_outstanding_is_refused_and_given_back,
    needs_that_make_no_sense_are_refused_with_what_is_right,
}

/// What signals the end of an operation included: another file of that number would be written to.
fn what_the_kernel_may_use_is_leaked_rather_than_freed<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    worker.receive(id, bench.slice()).unwrap();
    worker.accept(bench.listener).unwrap();
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Bench { port, region, .. } = bench;
    drop(port);
    assert_eq!((region.leaked(), region.in_pool()), (1, region.count() - 1));
    let weak = Arc::downgrade(&region);
    drop(region);
    assert!(weak.upgrade().is_some(), "the kernel may still write there");
}

fn a_stop_accounts_for_all_memory_also_when_it_has_no_time<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    (0..5).for_each(|_| started(worker.receive(id, bench.slice())));
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Bench { port, region, .. } = bench;
    let stopped = port.stop(Instant::now());
    assert_eq!(region.leaked(), stopped.missing);
    assert_eq!(region.in_pool(), region.count() - stopped.missing);
    assert_eq!(stopped.returned + stopped.missing, 5);
}

fn a_token_out_of_date_names_nothing<P: Provider + Default>() {
    let Some(bench) = bench::<P>(Needs { receives: 1, ..needs() }) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    let first = worker.receive(id, bench.slice()).unwrap();
    client.write_all(b"one").unwrap();
    let (_, slice, _) = take_receive(&mut worker);
    let second = worker.receive(id, slice).unwrap();
    worker.commit(&counters).unwrap();
    assert_ne!(first, second, "the slot is the same, its generation is not");
    assert_eq!(worker.cancel(first, &counters), Cancelled::Gone);
    client.write_all(b"four").unwrap();
    assert!(matches!(take_receive(&mut worker).2, Outcome::Done(4)));
    drop(worker);
    bench.stop();
}

fn a_cancelled_operation_is_told_once<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    let token = worker.receive(id, bench.slice()).unwrap();
    assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    assert!(matches!(take_receive(&mut worker).2, Outcome::Returned));
    assert_eq!(worker.cancel(token, &counters), Cancelled::Gone);
    take_nothing(&mut worker);
    drop(worker);
    bench.stop();
}

/// A cancel names a descriptor; when its turn comes that may be another connection's.
fn a_cancel_that_comes_late_does_not_hit_the_next_connection<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    for round in 0..50 {
        let (mut client, stream, id) = bench.connect(&mut worker, round);
        worker.receive(id, bench.slice()).unwrap();
        client.write_all(b"x").unwrap();
        worker.commit(&counters).unwrap();
        // The receive is over, or nearly; the cancel is not submitted before its completion is taken.
        assert_eq!(worker.close(id, &counters), Closing::Follows);
        let (_, _, outcome) = take_receive(&mut worker);
        assert!(matches!(outcome, Outcome::Done(1) | Outcome::Returned), "{outcome:?}");
        assert!(matches!(take_one(&mut worker), Completion::Closed { .. }));
        drop(stream);
        let (mut next, its, id) = bench.connect(&mut worker, 1000 + round);
        worker.receive(id, bench.slice()).unwrap();
        worker.commit(&counters).unwrap();
        take_nothing(&mut worker);
        next.write_all(b"yz").unwrap();
        assert!(matches!(take_receive(&mut worker).2, Outcome::Done(2)));
        assert_eq!(worker.close(id, &counters), Closing::Over);
        drop(its);
    }
    drop(worker);
    bench.stop();
}

fn more_than_is_outstanding_is_refused_and_given_back<P: Provider + Default>() {
    let Some(bench) = bench::<P>(Needs { receives: 2, sends: 1, accepts: 1, ..needs() }) else {
        return;
    };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    worker.accept(bench.listener).unwrap();
    assert_eq!(worker.accept(bench.listener), Err(Refused::Full));
    assert_eq!(worker.accept(ListenerId(1)), Err(Refused::NoSuchSocket));
    (0..2).for_each(|_| started(worker.receive(id, bench.slice())));
    let slice = bench.slice();
    let index = slice.index();
    let (slice, refused) = worker.receive(id, slice).unwrap_err();
    assert_eq!((slice.index(), refused), (index, Refused::Full));
    assert_eq!(worker.wait_to_receive(id), Err(Refused::Full));
    worker.send(id, Load::of_slice(slice, 1)).unwrap();
    let (load, refused) = worker.send(id, Load::of_vector(vec![3; 3])).unwrap_err();
    assert_eq!((load.left(), refused), (&[3; 3][..], Refused::Full));
    let listening = bench.listening.clone();
    assert!(bench.port.listen(listening, Key(2)).unwrap_err().to_string().contains("opened for 1"));
    bench.port.close();
    assert_eq!(worker.accept(bench.listener), Err(Refused::Closed));
    assert_eq!(worker.wait_to_receive(id), Err(Refused::Closed));
    assert_eq!(worker.take(&mut Taken::new(4), None, &Counters::default()).unwrap(), None);
    drop(worker);
    bench.stop();
}

fn needs_that_make_no_sense_are_refused_with_what_is_right<P: Provider + Default>() {
    let provider = P::default();
    if cannot_run("port", provider.availability()) {
        return;
    }
    for (needs, name) in [
        (Needs { streams: 0, ..needs() }, "streams"),
        (Needs { receives: 1_000_000_000, ..needs() }, "receives"),
    ] {
        let said = provider.open(&needs).err().expect("refused").to_string();
        assert!(said.contains(name) && said.contains("allowed"), "{said}");
    }
}

/// Connections that echo on four threads, stopped in the middle.
#[test]
fn stopping_under_load_gives_every_slice_back() {
    let Some(bench) = bench::<Native>(needs()) else { return };
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    {
        let mut worker = bench.port.worker().unwrap();
        for key in 0..8 {
            let (client, stream, id) = bench.connect(&mut worker, key);
            clients.push(client);
            streams.push((stream, id));
        }
        for (_, id) in &streams {
            worker.receive(*id, bench.slice()).unwrap();
        }
        worker.commit(&Counters::default()).unwrap();
        // This thread must not exit while they are armed: it talks below.
    }
    let done = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut worker = bench.port.worker().unwrap();
                let mut out = Taken::new(3);
                while worker.take(&mut out, None, &Counters::default()).unwrap().is_some() {
                    for completion in out.drain() {
                        match completion {
                            Completion::Receive { stream, slice, outcome, .. } => {
                                let Outcome::Done(count) = outcome else { continue };
                                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                                if count > 0 {
                                    let _ = worker.send(stream, Load::of_slice(slice, count));
                                    let _ =
                                        bench.region.take().map(|its| worker.receive(stream, its));
                                }
                            }
                            Completion::Send { .. } => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
        let began = Instant::now();
        while done.load(std::sync::atomic::Ordering::Relaxed) < 500 {
            assert!(began.elapsed() < LONG);
            for client in &mut clients {
                client.write_all(&[1; 30]).unwrap();
                client.read_exact(&mut [0; 30]).unwrap();
            }
        }
        for client in &mut clients {
            client.write_all(&[1; 30]).unwrap();
        }
        bench.port.close();
    });
    bench.stop();
}
