//! What is Winsock's own in the operations with events, beside the suite over the contract
//! ([`port::streams::tests`](crate::port::streams::tests)).

use super::WinsockEvents;
use crate::{
    Error,
    counters::Counters,
    memory::Load,
    port::streams::{
        Completion, Needs, Outcome, Port, Provider, Worker,
        tests::{Bench, LONG, bench, needs, take_one, take_receive},
    },
};
use std::{
    io::{ErrorKind, Read, Write},
    os::windows::io::{FromRawHandle, OwnedHandle},
    ptr, thread,
    time::Instant,
};
use windows_sys::Win32::{
    Foundation::{GetLastError, HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT},
    System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus},
};

/// Waits until so many of those that are outstanding have ended, which nobody is told.
fn until_ended(bench: &Bench<WinsockEvents>, count: usize) {
    let began = Instant::now();
    while bench.port.inner.with(|operations| operations.ended()) < count {
        assert!(began.elapsed() < LONG, "they do not end");
        thread::yield_now();
    }
}

#[test]
fn a_group_has_no_more_events_than_a_thread_waits_for() {
    let needs = |accepts, receives, sends| Needs { accepts, receives, sends, ..needs() };
    WinsockEvents::default().open(&needs(1, 31, 31)).map(|_| ()).unwrap();
    for (needs, which) in [
        (needs(2, 32, 30), "receives"),
        (needs(64, 0, 0), "accepts"),
        (needs(u32::MAX, u32::MAX, u32::MAX), "sends"),
    ] {
        match WinsockEvents::default().open(&needs) {
            Err(Error::Option { name, problem }) => {
                assert_eq!(name, which);
                assert!(problem.contains("64 events"), "{problem}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}

/// Of several that have ended the first one started is told, so one that is always busy is told no sooner than others.
#[test]
fn who_is_always_busy_does_not_keep_others_waiting() {
    let Some(bench) = bench::<WinsockEvents>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let mut connections: Vec<_> = (0..4).map(|key| bench.connect(&mut worker, key)).collect();
    for (client, _, id) in &mut connections {
        client.write_all(&[1; 5]).unwrap();
        worker.receive(*id, bench.slice()).unwrap();
    }
    until_ended(&bench, 4);
    for round in 0..40 {
        let Completion::Receive { key, stream, slice, outcome, .. } = take_one(&mut worker) else {
            panic!("something else came");
        };
        assert!(matches!(outcome, Outcome::Done(5)), "{outcome:?}");
        assert_eq!(key.0, round % 4);
        connections[key.0 as usize].0.write_all(&[1; 5]).unwrap();
        worker.receive(stream, slice).unwrap();
        until_ended(&bench, 4);
    }
    drop(worker);
    bench.stop();
}

/// A connection that was accepted and that nobody took is not left open.
#[test]
fn a_connection_that_nobody_took_is_closed_with_the_port() {
    let Some(bench) = bench::<WinsockEvents>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    worker.accept(bench.listener).unwrap();
    let mut client = bench.client();
    until_ended(&bench, 1);
    drop(worker);
    bench.stop();
    match client.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
    }
}

/// A socket may belong to a completion port, too: that hears nothing of operations with an event.
#[test]
fn the_port_of_a_socket_is_told_nothing() {
    let Some(bench) = bench::<WinsockEvents>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (mut client, stream, id) = bench.connect(&mut worker, 7);
    let socket = stream.native().raw() as HANDLE;
    // SAFETY: both make or get a port, and are given nothing else of ours.
    let port = unsafe {
        let port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1);
        assert_eq!(CreateIoCompletionPort(socket, port, 0, 0), port);
        port
    };
    // SAFETY: a new handle is nobody else's, and CloseHandle closes it.
    let _closed = unsafe { OwnedHandle::from_raw_handle(port) };
    worker.receive(id, bench.slice()).unwrap();
    client.write_all(b"hello").unwrap();
    let (_, slice, outcome) = take_receive(&mut worker);
    assert!(matches!(outcome, Outcome::Done(5)), "{outcome:?}");
    worker.send(id, Load::of_slice(slice, 5)).unwrap();
    assert!(matches!(take_one(&mut worker), Completion::Send { outcome: Outcome::Done(5), .. }));
    client.read_exact(&mut [0; 5]).unwrap();
    let (mut count, mut key, mut operation) = (0, 0, ptr::null_mut());
    // SAFETY: the port is open, and all three are written to at most once.
    let came = unsafe { GetQueuedCompletionStatus(port, &mut count, &mut key, &mut operation, 50) };
    // SAFETY: reads a variable of this thread.
    assert_eq!((came, unsafe { GetLastError() }), (0, WAIT_TIMEOUT));
    let _ = worker.close(id, &Counters::default());
    drop(worker);
    bench.stop();
}

/// A stop asks for cancels again.
#[test]
fn what_was_cancelled_and_forgotten_comes_back_to_a_stop() {
    let Some(bench) = bench::<WinsockEvents>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    worker.receive(id, bench.slice()).unwrap();
    bench.port.inner.with(|operations| operations.forget_cancels());
    drop(worker);
    bench.stop();
}
