//! A suite over the contract, with real loopback connections: what holds on every provider is checked on the port
//! that threads share and on the group of events, what needs several threads on the one, and what a group is on the
//! other. What is of one provider only is checked beside it.

mod closing;
mod events;
mod faults;
mod gathering;
mod order;

use super::{
    Closing, Completion, ListenerId, Native, NativeEvents, Needs, Outcome, Port, Provider,
    StreamId, Taken, Worker,
};
use crate::{
    counters::Counters,
    memory::{Layout, Load, Region, RegionOptions, Slice},
    port::{Key, Refused, Token},
    required::cannot_run,
    stream::{Listener, Mode, Stream, StreamOptions},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

/// Makes of a check a test on the port that threads share, and one on the group of events.
macro_rules! on_each {
    ($($check:ident,)*) => {$(
        mod $check {
            #[test]
            fn on_a_port() {
                super::$check::<super::Native>();
            }

            #[test]
            fn on_a_group_of_events() {
                super::$check::<super::NativeEvents>();
            }
        }
    )*};
}
use on_each;

on_each! {
    an_echo_moves_the_slice_that_was_received,
    a_wait_holds_no_memory_and_ends_with_what_comes,
    a_vector_is_sent_by_parts_and_comes_back,
}

/// Far more than anything here takes; a test that waits so long has failed.
pub(in crate::port) const LONG: Duration = Duration::from_secs(60);

/// Bytes of a slice.
const SLICE: usize = 64;

pub(in crate::port) fn needs() -> Needs {
    Needs {
        listeners: 1,
        streams: 8,
        accepts: 4,
        receives: 32,
        sends: 8,
        packets: 4,
        threads: 4,
        concurrency: 2,
    }
}

/// A port that listens, and a region.
pub(in crate::port) struct Bench<P: Provider> {
    pub(in crate::port) port: P::Port,
    pub(in crate::port) listening: Listener,
    pub(in crate::port) listener: ListenerId,
    pub(in crate::port) region: Arc<Region>,
}

/// None where its provider cannot run here.
pub(in crate::port) fn bench<P: Provider + Default>(needs: Needs) -> Option<Bench<P>> {
    bench_of(P::default(), needs)
}

pub(in crate::port) fn bench_of<P: Provider>(provider: P, needs: Needs) -> Option<Bench<P>> {
    if cannot_run("port", provider.availability()) {
        return None;
    }
    let port = provider.open(&needs).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listening = Listener::bind(at, StreamOptions::default()).unwrap();
    let listener = port.listen(listening.clone(), Key(1)).unwrap();
    let region = Region::new(Layout::packed(0, SLICE, 64), 64, RegionOptions::default()).unwrap();
    Some(Bench { port, listening, listener, region })
}

impl<P: Provider> Bench<P> {
    pub(in crate::port) fn client(&self) -> TcpStream {
        let client = TcpStream::connect_timeout(&self.listening.local_address(), LONG).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.set_nodelay(true).unwrap();
        client
    }

    /// A connection, accepted and associated, with the program's hold on it.
    pub(in crate::port) fn connect(
        &self,
        worker: &mut impl Worker,
        key: u64,
    ) -> (TcpStream, Stream, StreamId) {
        let client = self.client();
        worker.accept(self.listener).unwrap();
        match take_one(worker) {
            Completion::Accept { key: Key(1), outcome: Outcome::Done(accepted), .. } => {
                assert_eq!(accepted.peer, client.local_addr().unwrap());
                let stream = accepted.stream;
                let id = self.port.associate(stream.clone(), Key(key)).unwrap();
                (client, stream, id)
            }
            other => panic!("{other:?} instead of a connection"),
        }
    }

    pub(in crate::port) fn slice(&self) -> Slice {
        self.region.take().unwrap()
    }

    /// Stops the port and checks that every slice came back.
    pub(in crate::port) fn stop(self) {
        let Self { port, region, .. } = self;
        assert_eq!(port.stop(Instant::now() + LONG).missing, 0);
        assert_eq!((region.in_pool(), region.leaked()), (region.count(), 0));
    }
}

/// Takes one completion.
pub(in crate::port) fn take_one(worker: &mut impl Worker) -> Completion {
    let mut out = Taken::new(1);
    assert_eq!(worker.take(&mut out, Some(LONG), &Counters::default()).unwrap(), Some(1));
    out.drain().next().unwrap()
}

/// Takes one completion, which is a receive's.
pub(in crate::port) fn take_receive(worker: &mut impl Worker) -> (u32, Slice, Outcome<usize>) {
    match take_one(worker) {
        Completion::Receive { number, slice, outcome, .. } => (number, slice, outcome),
        other => panic!("{other:?} instead of a receive"),
    }
}

/// A receive was started; its token comes with its completion.
pub(in crate::port) fn started(receive: Result<Token, (Slice, Refused)>) {
    receive.unwrap();
}

/// Nothing comes.
pub(in crate::port) fn take_nothing(worker: &mut impl Worker) {
    let mut out = Taken::new(1);
    let time = Some(Duration::from_millis(1));
    let took = worker.take(&mut out, time, &Counters::default()).unwrap();
    assert_eq!(took, Some(0), "{:?}", out.drain().next());
}

fn an_echo_moves_the_slice_that_was_received<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, stream, id) = bench.connect(&mut worker, 7);
    for round in 0..20u8 {
        worker.receive(id, bench.slice()).unwrap();
        client.write_all(&[round; 50]).unwrap();
        let (number, slice, outcome) = take_receive(&mut worker);
        assert!(matches!(outcome, Outcome::Done(50)), "{outcome:?}");
        assert_eq!(number, u32::from(round));
        let index = slice.index();
        worker.send(id, Load::of_slice(slice, 50)).unwrap();
        match take_one(&mut worker) {
            Completion::Send { load, outcome: Outcome::Done(50), key: Key(7), stream, .. } => {
                assert_eq!((stream, load.into_slice().unwrap().index()), (id, index));
            }
            other => panic!("{other:?}"),
        }
        let mut back = [0; 50];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [round; 50]);
    }
    // The peer's end, and ours.
    worker.receive(id, bench.slice()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(matches!(take_receive(&mut worker).2, Outcome::Done(0)));
    stream.end_sending(&Counters::default()).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(worker.close(id, &Counters::default()), Closing::Over);
    drop(worker);
    bench.stop();
}

fn a_wait_holds_no_memory_and_ends_with_what_comes<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, stream, id) = bench.connect(&mut worker, 7);
    for round in 0..3 {
        worker.wait_to_receive(id).unwrap();
        assert_eq!(bench.region.in_pool(), bench.region.count());
        if round < 2 {
            take_nothing(&mut worker);
            client.write_all(b"here").unwrap();
        } else {
            client.shutdown(Shutdown::Write).unwrap();
        }
        match take_one(&mut worker) {
            Completion::Wait { outcome: Outcome::Done(()), key: Key(7), .. } => {}
            other => panic!("{other:?}"),
        }
        let received = stream.receive(&mut [0; 8], Mode::Try, &Counters::default());
        assert_eq!(received.unwrap(), Some(if round < 2 { 4 } else { 0 }));
    }
    drop(worker);
    bench.stop();
}

fn a_vector_is_sent_by_parts_and_comes_back<P: Provider + Default>() {
    let Some(bench) = bench::<P>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    let bytes: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let reader = std::thread::spawn(move || {
        let mut back = vec![0; expected.len()];
        client.read_exact(&mut back).unwrap();
        assert!(back == expected, "other bytes came");
    });
    let mut load = Load::of_vector(bytes);
    while !load.left().is_empty() {
        worker.send(id, load).unwrap();
        match take_one(&mut worker) {
            Completion::Send { load: back, outcome: Outcome::Done(count), .. } => {
                load = back;
                load.sent(count);
            }
            other => panic!("{other:?}"),
        }
    }
    reader.join().unwrap();
    assert_eq!(load.into_slice().unwrap_err().len(), 20_000_000);
    drop(worker);
    bench.stop();
}
