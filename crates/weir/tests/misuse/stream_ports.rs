//! The completion port for streams: the one that threads share, and the group of events.

use crate::{
    PATIENCE, assert_accounted, assert_whole, loopback, region, required::cannot_run, soon,
    use_memory,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};
use weir::{
    counters::Counters,
    memory::{Layout, Load, Region},
    port::{
        Cancelled, Key, Packet, Refused,
        streams::{
            Closing, Completion, ListenerId, Native, NativeEvents, Needs, Outcome, Port, Provider,
            StreamId, Taken, Worker,
        },
    },
    stream::{Listener, Stream, StreamOptions},
};

const NEEDS: Needs = Needs {
    listeners: 1,
    streams: 4,
    accepts: 2,
    receives: 8,
    sends: 4,
    packets: 4,
    threads: 1,
    concurrency: 1,
};

struct Rig<P: Provider> {
    port: P::Port,
    listening: Listener,
    listener: ListenerId,
    region: Arc<Region>,
}

/// Makes of a check a test on the port that threads share, and one on the group of events.
macro_rules! misuse {
    ($($name:ident,)*) => {$(
        mod $name {
            #[test]
            fn on_a_port() {
                super::rig::<super::Native>().map(super::$name);
            }

            #[test]
            fn on_a_group_of_events() {
                super::rig::<super::NativeEvents>().map(super::$name);
            }
        }
    )*};
}

misuse! {
    a_stream_that_is_closed_often_is_over_once,
    an_operation_that_is_cancelled_often_is_cancelled_once,
    what_was_asked_of_a_stream_does_not_meet_the_next_in_its_place,
    a_closed_port_takes_nothing_more,
    slices_of_any_region_come_back_as_what_they_were,
    a_port_that_is_dropped_without_a_stop_counts_what_it_leaks,
}

fn rig<P: Provider + Default>() -> Option<Rig<P>> {
    let provider = P::default();
    if cannot_run("port", provider.availability()) {
        return None;
    }
    let port = provider.open(&NEEDS).unwrap();
    let listening = Listener::bind(loopback(), StreamOptions::default()).unwrap();
    let listener = port.listen(listening.clone(), Key(1)).unwrap();
    assert!(port.listen(listening.clone(), Key(1)).is_err(), "a second listener of one");
    Some(Rig { port, listening, listener, region: region(Layout::packed(0, 256, 64), 16) })
}

fn take_one(worker: &mut impl Worker) -> Completion {
    let mut out = Taken::new(1);
    let taken = worker.take(&mut out, Some(PATIENCE), &Counters::default()).unwrap();
    assert_eq!(taken, Some(1), "nothing came");
    out.drain().next().unwrap()
}

/// Nothing more is there to be taken.
#[track_caller]
fn assert_idle(worker: &mut impl Worker) {
    let mut out = Taken::new(4);
    worker.take(&mut out, Some(Duration::from_millis(5)), &Counters::default()).unwrap();
    assert!(out.is_empty(), "{:?}", out.drain().collect::<Vec<_>>());
}

impl<P: Provider> Rig<P> {
    fn connect(&self, worker: &mut impl Worker) -> (TcpStream, Stream, StreamId) {
        let client = TcpStream::connect(self.listening.local_address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        worker.accept(self.listener).unwrap();
        match take_one(worker) {
            Completion::Accept { outcome: Outcome::Done(accepted), .. } => {
                let id = self.port.associate(accepted.stream.clone(), Key(2)).unwrap();
                (client, accepted.stream, id)
            }
            other => panic!("{other:?} instead of a connection"),
        }
    }

    fn stop(self) {
        assert_eq!(self.port.stop(soon()).missing, 0);
        assert_whole(&self.region);
    }
}

fn a_stream_that_is_closed_often_is_over_once<P: Provider>(rig: Rig<P>) {
    let counters = Counters::default();
    let mut worker = rig.port.worker().unwrap();
    let (_client, stream, id) = rig.connect(&mut worker);
    worker.receive(id, rig.region.take().unwrap()).unwrap();
    worker.receive(id, rig.region.take().unwrap()).unwrap();
    worker.commit(&counters).unwrap();
    for _ in 0..1000 {
        assert_eq!(worker.close(id, &counters), Closing::Follows);
        let (_, refused) = worker.receive(id, rig.region.take().unwrap()).unwrap_err();
        assert_eq!(refused, Refused::NoSuchSocket);
        assert_eq!(worker.wait_to_receive(id).unwrap_err(), Refused::NoSuchSocket);
        let load = Load::of_vector(vec![1]);
        assert_eq!(worker.send(id, load).unwrap_err().1, Refused::NoSuchSocket);
    }
    let mut closed = 0;
    for _ in 0..3 {
        match take_one(&mut worker) {
            Completion::Closed { stream, .. } if stream == id => closed += 1,
            Completion::Receive { stream, .. } if stream == id && closed == 0 => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(closed, 1);
    for _ in 0..3 {
        assert_eq!(worker.close(id, &counters), Closing::Gone);
    }
    drop(stream);
    assert_idle(&mut worker);
    drop(worker);
    rig.stop();
}

fn an_operation_that_is_cancelled_often_is_cancelled_once<P: Provider>(rig: Rig<P>) {
    let counters = Counters::default();
    let mut worker = rig.port.worker().unwrap();
    let (_client, _stream, id) = rig.connect(&mut worker);
    let token = worker.receive(id, rig.region.take().unwrap()).unwrap();
    worker.commit(&counters).unwrap();
    let before = counters.kernel_entries.get();
    for _ in 0..10_000 {
        assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    }
    let entries = counters.kernel_entries.get() - before;
    assert!(entries <= 2, "{entries} entries into the kernel to cancel one operation");
    let came = take_one(&mut worker);
    assert!(matches!(came, Completion::Receive { outcome: Outcome::Returned, .. }), "{came:?}");
    assert_eq!(worker.cancel(token, &counters), Cancelled::Gone);
    drop(came);
    assert_idle(&mut worker);
    drop(worker);
    rig.stop();
}

fn what_was_asked_of_a_stream_does_not_meet_the_next_in_its_place<P: Provider>(rig: Rig<P>) {
    let counters = Counters::default();
    let mut worker = rig.port.worker().unwrap();
    for round in 0..200 {
        let (client, stream, id) = rig.connect(&mut worker);
        let mut tokens = Vec::new();
        if round % 2 == 0 {
            tokens.push(worker.receive(id, rig.region.take().unwrap()).unwrap());
            tokens.push(worker.wait_to_receive(id).unwrap());
        }
        for _ in 0..20 {
            stream.end_sending(&counters).unwrap();
            let _ = worker.close(id, &counters);
            for token in &tokens {
                worker.cancel(*token, &counters);
            }
        }
        while !tokens.is_empty() {
            if let Completion::Closed { stream, .. } = take_one(&mut worker) {
                assert_eq!(stream, id);
                break;
            }
        }
        assert_eq!(worker.close(id, &counters), Closing::Gone);
        drop((client, stream));
        // It has the place, and mostly the descriptor, of the one before.
        let (mut client, stream, next) = rig.connect(&mut worker);
        let _ = worker.close(id, &counters);
        tokens
            .iter()
            .for_each(|token| assert_eq!(worker.cancel(*token, &counters), Cancelled::Gone));
        worker.receive(next, rig.region.take().unwrap()).unwrap();
        worker.commit(&counters).unwrap();
        client.write_all(b"alive").unwrap();
        let came = take_one(&mut worker);
        let Completion::Receive { stream: of, outcome: Outcome::Done(5), slice, .. } = came else {
            panic!("round {round}: {came:?}")
        };
        assert_eq!(of, next);
        worker.send(next, Load::of_slice(slice, 5)).unwrap();
        drop(take_one(&mut worker));
        client.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(worker.close(next, &counters), Closing::Over);
        drop(stream);
    }
    assert_idle(&mut worker);
    drop(worker);
    rig.stop();
}

fn a_closed_port_takes_nothing_more<P: Provider>(rig: Rig<P>) {
    let counters = Counters::default();
    let packet = Packet { key: Key(9), value: 1 };
    let (closer, poster) = (rig.port.closer(), rig.port.poster(packet));
    {
        let mut worker = rig.port.worker().unwrap();
        let (_client, stream, id) = rig.connect(&mut worker);
        worker.receive(id, rig.region.take().unwrap()).unwrap();
        for _ in 0..10 {
            poster.wake(); // more than there is room for
        }
        for _ in 0..3 {
            closer.wake();
            rig.port.close();
            poster.wake();
        }
        assert_eq!(rig.port.post(packet, &counters).unwrap_err(), (packet, Refused::Closed));
        assert_eq!(rig.port.associate(stream, Key(3)).unwrap_err(), Refused::Closed);
        assert_eq!(worker.accept(rig.listener).unwrap_err(), Refused::Closed);
        let (slice, refused) = worker.receive(id, rig.region.take().unwrap()).unwrap_err();
        assert_eq!(refused, Refused::Closed);
        let (load, refused) = worker.send(id, Load::of_slice(slice, 1)).unwrap_err();
        assert_eq!(refused, Refused::Closed);
        drop(load);
        assert_eq!(worker.wait_to_receive(id).unwrap_err(), Refused::Closed);
        let mut out = Taken::new(1);
        assert_eq!(worker.take(&mut out, None, &counters).unwrap(), None);
        let _ = worker.close(id, &counters);
    }
    rig.stop();
    closer.wake(); // after it has gone
    poster.wake();
}

fn slices_of_any_region_come_back_as_what_they_were<P: Provider>(rig: Rig<P>) {
    let other = region(Layout::packed(64, 2048, 64), 16);
    let mut worker = rig.port.worker().unwrap();
    let (mut client, _stream, id) = rig.connect(&mut worker);
    for from in [&rig.region, &other, &other, &rig.region] {
        worker.receive(id, from.take().unwrap()).unwrap();
        client.write_all(b"something").unwrap();
        let came = take_one(&mut worker);
        let Completion::Receive { mut slice, outcome: Outcome::Done(9), .. } = came else {
            panic!("{came:?}")
        };
        assert!(Arc::ptr_eq(slice.region(), from));
        use_memory(&mut slice);
        worker.send(id, Load::of_slice(slice, 9)).unwrap();
        let came = take_one(&mut worker);
        let Completion::Send { load, outcome: Outcome::Done(9), .. } = came else {
            panic!("{came:?}")
        };
        assert!(Arc::ptr_eq(load.into_slice().unwrap().region(), from));
        client.read_exact(&mut [0; 9]).unwrap();
    }
    drop(worker);
    rig.stop();
    assert_whole(&other);
}

fn a_port_that_is_dropped_without_a_stop_counts_what_it_leaks<P: Provider>(rig: Rig<P>) {
    let counters = Counters::default();
    let poster = rig.port.poster(Packet { key: Key(9), value: 1 });
    let mut worker = rig.port.worker().unwrap();
    let (_client, stream, id) = rig.connect(&mut worker);
    worker.receive(id, rig.region.take().unwrap()).unwrap();
    worker.commit(&counters).unwrap();
    worker.receive(id, rig.region.take().unwrap()).unwrap();
    worker.accept(rig.listener).unwrap();
    worker.send(id, Load::of_slice(rig.region.take().unwrap(), 9)).unwrap();
    drop(worker);
    let Rig { port, region, .. } = rig;
    drop((port, stream));
    poster.wake();
    assert_accounted(&region);
}
