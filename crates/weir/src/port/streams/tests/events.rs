//! Operations with an event each.

use super::*;
use crate::port::Packet;

fn group() -> Option<Bench<NativeEvents>> {
    bench(needs())
}

/// A wait tells one, whatever has finished, and each that has finished once.
#[test]
fn each_wait_tells_one() {
    let Some(group) = group() else { return };
    let mut worker = group.port.worker().unwrap();
    let mut connections: Vec<_> = (0..8).map(|key| group.connect(&mut worker, key)).collect();
    for round in 0..20u8 {
        for (client, _, id) in &mut connections {
            worker.receive(*id, group.slice()).unwrap();
            client.write_all(&[round; 9]).unwrap();
        }
        let mut told = Vec::new();
        let mut out = Taken::new(64);
        for _ in 0..8 {
            let took = worker.take(&mut out, Some(LONG), &Counters::default()).unwrap();
            assert_eq!(took, Some(1));
            match out.drain().next().unwrap() {
                Completion::Receive { key, slice, outcome: Outcome::Done(9), .. } => {
                    assert_eq!(slice.payload()[..9], [round; 9]);
                    told.push(key.0);
                }
                other => panic!("{other:?}"),
            }
        }
        told.sort_unstable();
        assert!(told.into_iter().eq(0..8));
        take_nothing(&mut worker);
    }
    drop(worker);
    group.stop();
}

#[test]
fn what_is_outstanding_when_a_stream_is_closed_comes_back_and_then_the_end() {
    let Some(group) = group() else { return };
    let counters = Counters::default();
    let mut worker = group.port.worker().unwrap();
    for submitted in [true, false] {
        let (_client, _stream, id) = group.connect(&mut worker, 7);
        (0..3).for_each(|_| started(worker.receive(id, group.slice())));
        if submitted {
            worker.commit(&counters).unwrap();
            take_nothing(&mut worker);
        }
        assert_eq!(worker.close(id, &counters), Closing::Follows);
        for _ in 0..3 {
            let (_, _, outcome) = take_receive(&mut worker);
            assert!(matches!(outcome, Outcome::Returned), "{outcome:?}");
        }
        match take_one(&mut worker) {
            Completion::Closed { stream, key: Key(7) } => assert_eq!(stream, id),
            other => panic!("{other:?}"),
        }
        assert_eq!(worker.receive(id, group.slice()).unwrap_err().1, Refused::NoSuchSocket);
        take_nothing(&mut worker);
    }
    drop(worker);
    group.stop();
}

#[test]
fn packets_are_what_the_first_event_is_for() {
    let Some(group) = group() else { return };
    let counters = Counters::default();
    let packet = |value| Packet { key: Key(3), value };
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut worker = group.port.worker().unwrap();
            let got = take_one(&mut worker);
            assert!(matches!(got, Completion::Packet(Packet { value: 1, .. })), "{got:?}");
        });
        group.port.post(packet(1), &counters).unwrap();
        taker.join().unwrap();
    });
    for value in 0..4 {
        group.port.post(packet(value), &counters).unwrap();
    }
    assert_eq!(group.port.post(packet(4), &counters), Err((packet(4), Refused::Full)));
    let mut worker = group.port.worker().unwrap();
    assert!(group.port.worker().is_err(), "it is one thread's");
    for value in 0..4 {
        assert!(matches!(take_one(&mut worker), Completion::Packet(its) if its.value == value));
    }
    let closer = group.port.closer();
    closer.wake();
    assert_eq!(worker.take(&mut Taken::new(1), None, &counters).unwrap(), None);
    assert_eq!(worker.accept(group.listener), Err(Refused::Closed));
    drop(worker);
    group.stop();
    closer.wake();
}
