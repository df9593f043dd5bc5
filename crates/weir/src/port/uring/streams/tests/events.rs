//! Operations with an event each.

use super::*;
use crate::port::{
    Cancelled, Packet, Refused,
    uring::streams::events::{EventsPort, UringEvents},
};

fn cannot_run_here() -> bool {
    cannot_run("port", UringEvents::default().availability())
}

struct Group {
    port: EventsPort,
    listening: Listener,
    listener: ListenerId,
    region: Arc<Region>,
}

fn group(needs: Needs) -> Group {
    let port = UringEvents::default().open(&needs).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listening = Listener::bind(at, StreamOptions::default()).unwrap();
    let listener = port.listen(listening.clone(), Key(1)).unwrap();
    let region = Region::new(Layout::packed(0, SLICE, 64), 64, RegionOptions::default()).unwrap();
    Group { port, listening, listener, region }
}

impl Group {
    fn connect(&self, worker: &mut impl Worker, key: u64) -> (TcpStream, Stream, StreamId) {
        let client = TcpStream::connect_timeout(&self.listening.local_address(), LONG).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        worker.accept(self.listener).unwrap();
        match take_one(worker) {
            Completion::Accept { key: Key(1), outcome: Outcome::Done(accepted), .. } => {
                let id = self.port.associate(accepted.stream.clone(), Key(key)).unwrap();
                (client, accepted.stream, id)
            }
            other => panic!("{other:?} instead of a connection"),
        }
    }

    fn slice(&self) -> Slice {
        self.region.take().unwrap()
    }

    fn stop(self) {
        let Self { port, region, .. } = self;
        assert_eq!(port.stop(Instant::now() + LONG).missing, 0);
        assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
    }
}

/// A wait tells one, whatever has finished, and each that has finished once.
#[test]
fn each_wait_tells_one() {
    if cannot_run_here() {
        return;
    }
    let group = group(needs());
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
    if cannot_run_here() {
        return;
    }
    let group = group(needs());
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
fn a_cancelled_operation_is_told_once() {
    if cannot_run_here() {
        return;
    }
    let group = group(needs());
    let counters = Counters::default();
    let mut worker = group.port.worker().unwrap();
    let (_client, _stream, id) = group.connect(&mut worker, 7);
    let token = worker.receive(id, group.slice()).unwrap();
    assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    assert!(matches!(take_receive(&mut worker).2, Outcome::Returned));
    assert_eq!(worker.cancel(token, &counters), Cancelled::Gone);
    take_nothing(&mut worker);
    drop(worker);
    group.stop();
}

#[test]
fn packets_are_what_the_first_event_is_for() {
    if cannot_run_here() {
        return;
    }
    let group = group(needs());
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

/// The descriptors of events included: another file of that number would be written to.
#[test]
fn what_the_kernel_may_use_is_leaked_rather_than_freed() {
    if cannot_run_here() {
        return;
    }
    let group = group(needs());
    let mut worker = group.port.worker().unwrap();
    let (_client, _stream, id) = group.connect(&mut worker, 7);
    worker.receive(id, group.slice()).unwrap();
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Group { port, region, .. } = group;
    drop(port);
    assert_eq!((region.leaked(), region.in_pool()), (1, region.count() - 1));
}
