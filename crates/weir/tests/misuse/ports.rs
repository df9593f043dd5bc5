//! The completion port for datagrams.

use crate::{
    PATIENCE, assert_accounted, assert_whole, loopback, region, required::cannot_run, soon,
    use_memory,
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};
use weir::{
    counters::Counters,
    memory::Region,
    port::{
        Cancelled, Completion, Key, Native, Needs, Packet, Port, Provider, Refused, SocketId,
        Taken, Worker,
    },
    socket::DatagramSocket,
};

const NEEDS: Needs = Needs {
    payload: 128,
    sockets: 1,
    receives: 8,
    sends: 4,
    packets: 4,
    threads: 2,
    concurrency: 1,
};

const SLICES: u32 = 16;

type NativePort = <Native as Provider>::Port;

struct Rig {
    port: NativePort,
    socket: SocketId,
    at: SocketAddr,
    region: Arc<Region>,
}

fn rig() -> Option<Rig> {
    let provider = Native::default();
    let layout = provider.layout(&NEEDS);
    if cannot_run("port", layout.as_ref()) {
        return None;
    }
    let region = region(layout.unwrap(), SLICES);
    let port = provider.open(&NEEDS).unwrap();
    let socket = DatagramSocket::bind(&loopback().into()).unwrap();
    let at = socket.local_address();
    let socket = port.associate(socket, Key(1)).unwrap();
    Some(Rig { port, socket, at, region })
}

/// Takes completions until so many operations have come back.
fn take(worker: &mut impl Worker, operations: usize) -> Vec<Completion> {
    let (mut out, mut taken) = (Taken::new(4), Vec::new());
    while taken.len() < operations {
        let came = worker.take(&mut out, Some(PATIENCE), &Counters::default()).unwrap();
        assert!(came.expect("it is not closed") > 0, "{} of {operations} came", taken.len());
        taken.extend(out.drain());
    }
    taken
}

/// A port knows no region: the memory of an operation is its slice's, and comes back as what it was.
#[test]
fn slices_of_any_region_come_back_as_what_they_were() {
    let Some(Rig { port, socket, at, region: own }) = rig() else { return };
    let other = region(weir::memory::Layout::packed(64, 2048, 64), SLICES);
    let client = UdpSocket::bind(loopback()).unwrap();
    let mut worker = port.worker().unwrap();
    for from in [&own, &other, &other, &own] {
        worker.receive(socket, from.take().unwrap()).unwrap();
        client.send_to(b"something", at).unwrap();
        for completion in take(&mut worker, 1) {
            let Completion::Operation { mut slice, .. } = completion else {
                panic!("{completion:?}")
            };
            assert!(Arc::ptr_eq(slice.region(), from) && slice.payload().starts_with(b"something"));
            use_memory(&mut slice);
            let to = client.local_addr().unwrap().into();
            let too_long = slice.payload().len() + 1;
            let (slice, refused) = worker.send(socket, slice, too_long, &to).unwrap_err();
            assert_eq!(refused, Refused::TooLong);
            worker.send(socket, slice, 5, &to).unwrap();
        }
        take(&mut worker, 1).into_iter().for_each(drop);
    }
    drop(worker);
    assert_eq!(port.stop(soon()).missing, 0);
    assert_whole(&own);
    assert_whole(&other);
}

#[test]
fn an_operation_that_is_cancelled_often_is_cancelled_once() {
    let Some(Rig { port, socket, region, .. }) = rig() else { return };
    let counters = Counters::default();
    let mut worker = port.worker().unwrap();
    let token = worker.receive(socket, region.take().unwrap()).unwrap();
    worker.commit(&counters).unwrap();
    let before = counters.kernel_entries.get();
    for _ in 0..10_000 {
        assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    }
    let entries = counters.kernel_entries.get() - before;
    assert!(entries <= 2, "{entries} entries into the kernel to cancel one operation");
    take(&mut worker, 1).into_iter().for_each(drop);
    for _ in 0..3 {
        assert_eq!(worker.cancel(token, &counters), Cancelled::Gone, "it came back");
    }
    // The next one has its slot; the old token names nothing.
    worker.receive(socket, region.take().unwrap()).unwrap();
    worker.commit(&counters).unwrap();
    assert_eq!(worker.cancel(token, &counters), Cancelled::Gone);
    let mut out = Taken::new(4);
    assert_eq!(worker.take(&mut out, Some(Duration::from_millis(1)), &counters).unwrap(), Some(0));
    drop(worker);
    assert_eq!(port.stop(soon()).missing, 0);
    assert_whole(&region);
}

#[test]
fn a_closed_port_takes_nothing_more() {
    let Some(Rig { port, socket, region, .. }) = rig() else { return };
    let counters = Counters::default();
    let mut worker = port.worker().unwrap();
    let token = worker.receive(socket, region.take().unwrap()).unwrap();
    port.post(Packet { key: Key(1), value: 1 }, &counters).unwrap();
    let closer = port.closer();
    for _ in 0..3 {
        closer.wake();
        port.close();
    }
    let packet = Packet { key: Key(2), value: 2 };
    for _ in 0..3 {
        assert_eq!(port.post(packet, &counters).unwrap_err(), (packet, Refused::Closed));
        let (slice, refused) = worker.receive(socket, region.take().unwrap()).unwrap_err();
        assert_eq!(refused, Refused::Closed);
        let (slice, refused) = worker.send(socket, slice, 1, &loopback().into()).unwrap_err();
        assert_eq!(refused, Refused::Closed);
        let mut slices = vec![slice];
        assert_eq!(worker.receive_all(socket, &mut slices).unwrap_err(), Refused::Closed);
        assert_eq!(slices.len(), 1, "what was not started stays");
        let mut out = Taken::new(1);
        assert_eq!(worker.take(&mut out, None, &counters).unwrap(), None);
        worker.cancel(token, &counters);
    }
    drop(worker);
    assert_eq!(port.stop(soon()).missing, 0);
    closer.wake(); // after it has gone
    assert_whole(&region);
}

#[test]
fn a_socket_of_another_port_is_none_of_this() {
    let (Some(one), Some(other)) = (rig(), rig()) else { return };
    let layout = one.region.layout();
    // Opened for two sockets, so that the name of the second is one that the others do not have.
    let two = Native::default().open(&Needs { sockets: 2, ..NEEDS }).unwrap();
    let [_, second] = [(); 2].map(|()| {
        two.associate(DatagramSocket::bind(&loopback().into()).unwrap(), Key(3)).unwrap()
    });
    assert!(one.port.associate(DatagramSocket::bind(&loopback().into()).unwrap(), Key(2)).is_err());
    let mut worker = one.port.worker().unwrap();
    let (slice, refused) = worker.receive(second, one.region.take().unwrap()).unwrap_err();
    assert_eq!(refused, Refused::NoSuchSocket);
    let (slice, refused) = worker.send(second, slice, 1, &loopback().into()).unwrap_err();
    assert_eq!(refused, Refused::NoSuchSocket);
    drop(slice);
    // One that both have means this port's own.
    worker.receive(other.socket, one.region.take().unwrap()).unwrap();
    drop(worker);
    drop(two);
    assert_eq!(one.port.stop(soon()).missing, 0);
    assert_eq!(other.port.stop(soon()).missing, 0);
    assert_eq!(layout, one.region.layout());
    assert_whole(&one.region);
}

#[test]
fn more_than_a_port_was_opened_for_is_given_back() {
    let Some(Rig { port, socket, region, .. }) = rig() else { return };
    let counters = Counters::default();
    let mut workers = vec![port.worker().unwrap(), port.worker().unwrap()];
    assert!(port.worker().is_err(), "a third of two");
    for _ in 0..NEEDS.receives {
        workers[0].receive(socket, region.take().unwrap()).unwrap();
    }
    assert_eq!(workers[1].receive(socket, region.take().unwrap()).unwrap_err().1, Refused::Full);
    let mut slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
    let before = slices.len();
    assert_eq!(workers[1].receive_all(socket, &mut slices).unwrap_err(), Refused::Full);
    assert_eq!(slices.len(), before);
    for n in 0..10 {
        let packet = Packet { key: Key(n), value: n };
        assert_eq!(port.post(packet, &counters).is_ok(), n < NEEDS.packets.into());
    }
    drop((slices, workers));
    assert_eq!(port.stop(soon()).missing, 0);
    assert_whole(&region);
}

#[test]
fn a_port_that_is_dropped_without_a_stop_counts_what_it_leaks() {
    let Some(Rig { port, socket, region, .. }) = rig() else { return };
    let closer = port.closer();
    let mut worker = port.worker().unwrap();
    for n in 0..6 {
        worker.receive(socket, region.take().unwrap()).unwrap();
        if n == 3 {
            worker.commit(&Counters::default()).unwrap();
        }
    }
    drop(worker);
    drop(port);
    closer.wake();
    assert_accounted(&region);
}

#[test]
fn a_slice_of_a_completion_outlives_port_and_region() {
    let Some(Rig { port, socket, at, region }) = rig() else { return };
    let client = UdpSocket::bind(loopback()).unwrap();
    let mut worker = port.worker().unwrap();
    worker.receive(socket, region.take().unwrap()).unwrap();
    worker.receive(socket, region.take().unwrap()).unwrap();
    client.send_to(b"something", at).unwrap();
    let kept = take(&mut worker, 1);
    drop(worker);
    let weak = Arc::downgrade(&region);
    drop(region);
    assert_eq!(port.stop(soon()).missing, 0);
    for completion in kept {
        let Completion::Operation { mut slice, .. } = completion else { panic!("{completion:?}") };
        use_memory(&mut slice);
    }
    assert!(weak.upgrade().is_none(), "nobody uses it any more");
}
