//! A stream is over when all that was outstanding on it has come back, and not before.

use super::*;
use crate::{port::Packet, wine};

on_each! {
    all_that_is_outstanding_comes_back_and_then_the_end,
    one_without_operations_is_over_at_once_and_its_name_out_of_date,
    accepts_come_back_when_the_socket_listens_no_longer,
    accepts_come_back_when_accepting_is_ended_and_the_socket_listens_on,
    a_poster_wakes_a_thread_and_outlives_the_port,
}

fn all_that_is_outstanding_comes_back_and_then_the_end<P: Provider + Default>() {
    // With one completion a take, and with many.
    for room in [1, 64] {
        let Some(bench) = bench::<P>(needs()) else { return };
        let counters = Counters::default();
        let mut worker = bench.port.worker().unwrap();
        let (mut client, stream, id) = bench.connect(&mut worker, 7);
        // Several receives, of which one is armed, and a send that finds no room.
        (0..5).for_each(|_| started(worker.receive(id, bench.slice())));
        let mut stuck = Some(Load::of_vector(vec![1; 50_000_000]));
        let mut out = Taken::new(1);
        while let Some(load) = stuck.take() {
            worker.send(id, load).unwrap();
            // As long as anything goes it comes back.
            let time = Some(Duration::from_millis(100));
            worker.take(&mut out, time, &counters).unwrap();
            match out.drain().next() {
                Some(Completion::Send { mut load, outcome: Outcome::Done(count), .. }) => {
                    load.sent(count);
                    assert!(!load.left().is_empty(), "all of it went");
                    stuck = Some(load);
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        assert_eq!(worker.close(id, &counters), Closing::Follows);
        assert_eq!(worker.receive(id, bench.slice()).unwrap_err().1, Refused::NoSuchSocket);
        let (mut receives, mut sends, mut closed) = (0, 0, 0);
        let mut out = Taken::new(room);
        while closed == 0 {
            assert_ne!(worker.take(&mut out, Some(LONG), &counters).unwrap(), Some(0));
            for completion in out.drain() {
                assert_eq!(closed, 0, "{completion:?} after the end");
                match completion {
                    Completion::Receive { outcome: Outcome::Returned, .. } => receives += 1,
                    Completion::Send { outcome: Outcome::Returned, .. } => sends += 1,
                    // What went after the last look.
                    Completion::Send { outcome: Outcome::Done(_), .. } => sends += 1,
                    Completion::Closed { stream, key: Key(7) } if stream == id => closed += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((receives, sends), (5, 1));
        assert_eq!(worker.close(id, &counters), Closing::Gone);
        take_nothing(&mut worker);
        // The port has let go of it: the peer sees what the program does.
        stream.reset_when_closed();
        drop(stream);
        match client.read_to_end(&mut Vec::new()) {
            Ok(_) if wine::RESETS.is_left_out() => {}
            end => assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
        }
        drop(worker);
        bench.stop();
    }
}

fn one_without_operations_is_over_at_once_and_its_name_out_of_date<P: Provider + Default>() {
    let Some(bench) = bench::<P>(Needs { streams: 1, ..needs() }) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (_client, stream, first) = bench.connect(&mut worker, 7);
    assert_eq!(bench.port.associate(stream.clone(), Key(8)), Err(Refused::Full));
    assert_eq!(worker.close(first, &counters), Closing::Over);
    let (mut client, _stream, second) = bench.connect(&mut worker, 9);
    assert_ne!(first, second, "the slot is the same, its generation is not");
    let (slice, refused) = worker.receive(first, bench.slice()).unwrap_err();
    assert_eq!(refused, Refused::NoSuchSocket);
    assert_eq!(worker.wait_to_receive(first), Err(Refused::NoSuchSocket));
    let (load, refused) = worker.send(first, Load::of_slice(slice, 1)).unwrap_err();
    assert_eq!((load.left().len(), refused), (1, Refused::NoSuchSocket));
    assert_eq!(worker.close(first, &counters), Closing::Gone);
    // The second is not concerned.
    worker.receive(second, load.into_slice().unwrap()).unwrap();
    client.write_all(b"abc").unwrap();
    assert!(matches!(take_receive(&mut worker).2, Outcome::Done(3)));
    drop(worker);
    bench.stop();
}

fn accepts_come_back_when_the_socket_listens_no_longer<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    for _ in 0..3 {
        worker.accept(bench.listener).unwrap();
    }
    worker.commit(&Counters::default()).unwrap();
    bench.listening.end_accepting();
    for _ in 0..3 {
        match take_one(&mut worker) {
            Completion::Accept { outcome: Outcome::Returned, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    drop(worker);
    bench.stop();
}

/// Those that the system has, and one that it does not know yet.
fn accepts_come_back_when_accepting_is_ended_and_the_socket_listens_on<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    if bench.listening.left_open().is_err() {
        return; // nobody else can have it here
    }
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    for submitted in [true, true, false] {
        worker.accept(bench.listener).unwrap();
        if submitted {
            worker.commit(&counters).unwrap();
        }
    }
    worker.end_accepting(&counters);
    assert_eq!(worker.accept(bench.listener), Err(Refused::Closed));
    for _ in 0..3 {
        match take_one(&mut worker) {
            Completion::Accept { outcome: Outcome::Returned, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let mut client = bench.client();
    take_nothing(&mut worker);
    let accepted = bench.listening.accept(Mode::Try, &counters).unwrap().expect("it waits");
    accepted.stream.send(b"here", Mode::Wait, &counters).unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    // What was accepted before goes on.
    let id = bench.port.associate(accepted.stream, Key(7)).unwrap();
    worker.receive(id, bench.slice()).unwrap();
    client.write_all(b"there").unwrap();
    assert!(matches!(take_receive(&mut worker).2, Outcome::Done(5)));
    drop(worker);
    bench.stop();
}

fn a_poster_wakes_a_thread_and_outlives_the_port<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let packet = Packet { key: Key(5), value: 6 };
    let poster = bench.port.poster(packet);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| match take_one(&mut bench.port.worker().unwrap()) {
            Completion::Packet(packet) => packet,
            other => panic!("{other:?}"),
        });
        poster.wake();
        assert_eq!(taker.join().unwrap(), packet);
    });
    (0..10).for_each(|_| poster.wake());
    assert_eq!(bench.port.post(packet, &Counters::default()), Err((packet, Refused::Full)));
    bench.stop();
    poster.wake();
}
