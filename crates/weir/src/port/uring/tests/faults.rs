//! What is particular to a ring: entries that are not submitted yet, a full queue, and where there is none.

use super::*;
use crate::{
    memory::{Region, RegionOptions},
    port::{Cancelled, Completion, Refused, uring::state::Filled},
    ring,
    socket::{DatagramSocket, Mode},
};
use std::thread;

/// Of a request that brings nothing.
const NOTHING: ring::Token = ring::Token::bare(9);

#[test]
fn a_cancelled_send_that_was_not_submitted_is_not_sent() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(Uring::default(), needs());
    let counters = Counters::default();
    let peer = sender();
    peer.set_nonblocking(true).unwrap();
    let to = crate::rio::Peer::from(peer.local_addr().unwrap());
    let mut worker = bench.port.worker().unwrap();
    let token = worker.send(bench.socket, bench.region.take().unwrap(), 5, &to).unwrap();
    assert_eq!(worker.cancel(token, &counters), Cancelled::Asked);
    let (_, slice, outcome) = take_operation(&mut worker);
    assert!(matches!(outcome, Outcome::Returned), "{outcome:?}");
    let too_long = worker.send(bench.socket, slice, 257, &to).unwrap_err();
    assert_eq!(too_long.1, Refused::TooLong);
    assert_eq!(peer.recv(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop((too_long, worker));
    bench.stop();
}

#[test]
fn a_cancel_is_not_lost_in_a_full_submission_queue() {
    if cannot_run_here() {
        return;
    }
    let needs = Needs { receives: 4000, packets: 1, ..needs() };
    let bench = bench(native(3000, 1), needs);
    let counters = Counters::default();
    let mut worker = bench.port.worker().unwrap();
    let tokens = bench.post(&mut worker, 1);
    worker.commit(&counters).unwrap();
    bench.post(&mut worker, 3999);
    // Fill the queue without submitting: what else is to start finds it full.
    bench.port.inner.with(|state| {
        while state.push_no_op(NOTHING).is_ok() {}
        assert_eq!(state.fill(), Filled::QueueFull);
    });
    assert_eq!(worker.cancel(tokens[0], &counters), Cancelled::Asked);
    let (token, _, outcome) = take_operation(&mut worker);
    assert_eq!(token, tokens[0]);
    assert!(matches!(outcome, Outcome::Returned), "{outcome:?}");
    drop(worker);
    bench.stop();
}

/// What the kernel had received is taken, a send that was asked for afterwards leaves, and what nobody received waits in the
/// socket for whoever goes on with it.
#[test]
fn an_end_of_receiving_loses_nothing() {
    if cannot_run_here() {
        return;
    }
    const SENT: u8 = 20;
    let needs = needs();
    for (armed, submit_after) in [(1, 1), (8, 1), (64, 32)] {
        let provider = native(armed, submit_after);
        let layout = provider.layout(&needs).unwrap();
        let slices = needs.receives + needs.sends;
        let region = Region::new(layout, slices, RegionOptions::default()).unwrap();
        let port = provider.open(&needs).unwrap();
        let given = DatagramSocket::bind(&LOCALHOST.into()).unwrap();
        let (address, finisher) = (given.local_address(), port.finisher(LONG));
        let socket = port.associate(given.clone(), Key(7)).unwrap();
        let bench = Bench { port, region, socket, address };
        let counters = Counters::default();
        let mut worker = bench.port.worker().unwrap();
        bench.post(&mut worker, 32);
        worker.commit(&counters).unwrap();
        let peer = sender();
        peer.set_read_timeout(Some(LONG)).unwrap();
        (0..SENT).for_each(|number| _ = peer.send_to(&[number], address).unwrap());
        // One is taken in the middle of it all, and handled when receiving was ended.
        let (slice, arrival) = take_datagram(&mut worker);
        finisher.wake();
        finisher.wake();
        let mut seen = vec![slice.payload()[0]];
        let (slice, refused) = worker.receive(socket, slice).unwrap_err();
        assert_eq!(refused, Refused::Closed);
        worker.send(socket, slice, 1, &arrival.peer()).unwrap();
        let (mut taken, mut sent) = (Taken::new(3), 0);
        while worker.take(&mut taken, None, &counters).unwrap().is_some() {
            for completion in taken.drain() {
                match completion {
                    Completion::Operation { slice, outcome: Outcome::Received(_), .. } => {
                        seen.push(slice.payload()[0]);
                    }
                    Completion::Operation { outcome: Outcome::Sent(_), .. } => sent += 1,
                    Completion::Operation { outcome: Outcome::Returned, .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(worker.take(&mut taken, None, &counters).unwrap(), None, "it stays so");
        assert_eq!((sent, peer.recv(&mut [0; 8]).unwrap()), (1, 1));
        let mut left = [0; 8];
        while given.receive(&mut left, Mode::Try, &counters).unwrap().is_some() {
            seen.push(left[0]);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..SENT).collect::<Vec<_>>(), "armed {armed}");
        drop(worker);
        assert_eq!(bench.region.in_pool(), bench.region.count(), "before it is stopped");
        bench.stop();
    }
}

#[test]
fn a_shape_that_makes_no_sense_is_refused_with_what_is_right() {
    for (shape, name) in [
        (Shape { armed: u32::MAX, ..Shape::BEST }, "armed"),
        (Shape { submit_after: 0, ..Shape::BEST }, "submit-after"),
    ] {
        let said = Uring { shape }.open(&needs()).err().expect("refused").to_string();
        assert!(said.contains(name) && said.contains("allowed"), "{said}");
    }
    let shape = Shape { skip_ready: true, ..Shape::BEST };
    let said = Uring { shape }.layout(&needs()).unwrap_err().to_string();
    assert!(said.contains("skip-ready") && said.contains("leave it off"), "{said}");
}

#[test]
fn memory_that_the_kernel_may_write_to_is_leaked_rather_than_freed() {
    if cannot_run_here() {
        return;
    }
    let bench = bench(native(4, 1), needs());
    let mut worker = bench.port.worker().unwrap();
    bench.post(&mut worker, 10);
    worker.commit(&Counters::default()).unwrap();
    drop(worker);
    let Bench { port, region, .. } = bench;
    drop(port);
    assert_eq!(region.leaked(), 4, "what was armed");
    assert_eq!(region.in_pool(), region.count() - 4, "what was not is back");
    let weak = Arc::downgrade(&region);
    drop(region);
    assert!(weak.upgrade().is_some(), "the kernel may still write there");
}

#[test]
fn where_io_uring_is_forbidden_the_reason_is_said() {
    if cannot_run_here() {
        return;
    }
    // A filter binds the thread that installs it and its children, and cannot be taken off.
    let said = thread::spawn(|| {
        forbid_io_uring();
        Uring::default().layout(&needs()).unwrap_err()
    })
    .join()
    .unwrap();
    assert_eq!(said.what, "provider uring of the completion port");
    assert!(said.reason.contains("io_uring_setup"), "{said}");
    assert!(said.advice.is_some(), "{said}");
    assert!(Uring::default().layout(&needs()).is_ok(), "allowed elsewhere");
}

/// Makes io_uring_setup(2) answer EPERM on this thread, as containers do.
pub(in crate::port::uring) fn forbid_io_uring() {
    let filter = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let eperm = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filters = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, eperm),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filters.len() as u16, filter: filters.as_mut_ptr() };
    // SAFETY: both calls concern this thread alone; the program lives through the second.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}
