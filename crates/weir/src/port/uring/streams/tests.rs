//! What is io_uring's own in the port of streams, beside the suite over the contract
//! ([`port::streams::tests`](crate::port::streams::tests)): what was not submitted, and what finds no room.

use super::UringStreams;
use crate::{
    counters::Counters,
    memory::Load,
    port::{
        Shape,
        streams::{
            Closing, Completion, Needs, Outcome, Port, Provider, Worker,
            tests::{Bench, LONG, bench, needs, started, take_one, take_receive},
        },
        uring::{state::Filled, tests::faults::forbid_io_uring},
    },
    required::cannot_run,
    ring,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Instant,
};

/// What was not given to the kernel yet when its stream was closed never is.
#[test]
fn what_was_not_submitted_comes_back_too() {
    let Some(bench) = bench::<UringStreams>(needs()) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (mut client, _stream, id) = bench.connect(&mut worker, 7);
    worker.receive(id, bench.slice()).unwrap();
    worker.receive(id, bench.slice()).unwrap();
    worker.send(id, Load::of_vector(b"never".to_vec())).unwrap();
    assert_eq!(worker.close(id, &counters), Closing::Follows);
    let mut back = Vec::new();
    for _ in 0..4 {
        back.push(match take_one(&mut worker) {
            Completion::Receive { outcome: Outcome::Returned, .. } => 'r',
            Completion::Send { outcome: Outcome::Returned, load, .. } => {
                assert_eq!(load.left(), b"never");
                's'
            }
            Completion::Closed { .. } => 'c',
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(back.pop(), Some('c'), "the end is last");
    back.sort_unstable();
    assert_eq!(back, ['r', 'r', 's']);
    drop(worker);
    drop(_stream);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "nothing was sent");
    bench.stop();
}

#[test]
fn what_the_kernel_may_use_is_leaked_rather_than_freed() {
    let Some(bench) = bench::<UringStreams>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    (0..3).for_each(|_| started(worker.receive(id, bench.slice())));
    worker.accept(bench.listener).unwrap();
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Bench { port, region, .. } = bench;
    drop(port);
    assert_eq!(region.leaked(), 1, "the one that was armed");
    assert_eq!(region.in_pool(), region.count() - 1, "the others are back");
    let weak = Arc::downgrade(&region);
    drop(region);
    assert!(weak.upgrade().is_some(), "the kernel may still write there");
}

/// A connection that was accepted and that nobody took is not left open.
#[test]
fn a_connection_that_nobody_took_is_closed_with_the_port() {
    let Some(bench) = bench::<UringStreams>(needs()) else { return };
    let mut worker = bench.port.worker().unwrap();
    worker.accept(bench.listener).unwrap();
    worker.commit(&Counters::default()).unwrap();
    let mut client = bench.client();
    let began = Instant::now();
    while bench.port.inner.with(|state| state.completions.len()) == 0 {
        assert!(began.elapsed() < LONG, "it was never accepted");
        thread::yield_now();
    }
    drop(worker);
    bench.stop();
    match client.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn closing_is_not_lost_in_a_full_submission_queue() {
    let Some(bench) = bench::<UringStreams>(needs()) else { return };
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let (_client, _stream, id) = bench.connect(&mut worker, 7);
    worker.receive(id, bench.slice()).unwrap();
    worker.commit(&counters).unwrap();
    bench.port.inner.with(|state| while state.push_no_op(ring::Token::bare(9)).is_ok() {});
    assert_eq!(worker.close(id, &counters), Closing::Follows);
    bench.port.inner.with(|state| assert_eq!(state.fill(), Filled::QueueFull));
    assert!(matches!(take_receive(&mut worker).2, Outcome::Returned));
    assert!(matches!(take_one(&mut worker), Completion::Closed { .. }));
    drop(worker);
    bench.stop();
}

#[test]
fn shapes_that_make_no_sense_are_refused_with_what_is_right() {
    if cannot_run("port", UringStreams::default().availability()) {
        return;
    }
    for (needs, shape, name) in [
        (Needs { threads: 0, ..needs() }, Shape::BEST, "threads"),
        (needs(), Shape { submit_after: 0, ..Shape::BEST }, "submit-after"),
    ] {
        let said = UringStreams { shape }.open(&needs).err().expect("refused").to_string();
        assert!(said.contains(name) && said.contains("allowed"), "{said}");
    }
    for (shape, name) in [
        (Shape { skip_ready: true, ..Shape::BEST }, "skip-ready"),
        (Shape { reuse_sockets: true, ..Shape::BEST }, "reuse-sockets"),
    ] {
        let said = UringStreams { shape }.availability().unwrap_err().to_string();
        assert!(said.contains(name) && said.contains("leave it off"), "{said}");
    }
}

#[test]
fn where_io_uring_is_forbidden_the_reason_is_said() {
    if cannot_run("port", UringStreams::default().availability()) {
        return;
    }
    // A filter binds the thread that installs it and its children, and cannot be taken off.
    let said = thread::spawn(|| {
        forbid_io_uring();
        UringStreams::default().availability().unwrap_err()
    })
    .join()
    .unwrap();
    assert_eq!(said.what, "provider uring of the completion port for streams");
    assert!(said.reason.contains("io_uring_setup") && said.advice.is_some(), "{said}");
}

/// Not a test of weir but of what it is built on: why receives are handed to the kernel one by one. What is
/// printed is what the headers say.
#[test]
#[ignore = "it shows what the kernel does, and nothing depends on it"]
fn receives_that_wait_together() {
    use io_uring::{IoUring, opcode, types};
    use std::os::fd::AsRawFd;
    let mut uring = IoUring::new(16).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (server, _) = listener.accept().unwrap();
    let mut buffers = [[0u8; 8]; 4];
    for (number, buffer) in buffers.iter_mut().enumerate() {
        let entry = opcode::Recv::new(types::Fd(server.as_raw_fd()), buffer.as_mut_ptr(), 8);
        // SAFETY: the buffers live until the completions were taken.
        unsafe { uring.submission().push(&entry.build().user_data(number as u64)) }.unwrap();
    }
    uring.submit().unwrap();
    for part in 0..4u8 {
        client.write_all(&[part; 8]).unwrap();
        uring.submit_and_wait(1).unwrap();
        let entry = uring.completion().next().unwrap();
        let number = entry.user_data() as usize;
        println!("part {part} came in receive {number}: {:?}", buffers[number]);
    }
}
