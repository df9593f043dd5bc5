//! What holds for both fakes under random use.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One step of a random program.
#[derive(Debug, Clone)]
enum Step {
    Post(usize),
    Send(usize),
    Inject(usize),
    Dequeue,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2usize).prop_map(Step::Post),
        (0..2usize).prop_map(Step::Send),
        (0..2usize).prop_map(Step::Inject),
        Just(Step::Dequeue),
        Just(Step::Wait),
    ];
    prop::collection::vec(step, 0..120)
}

fn faults() -> impl Strategy<Value = Faults> {
    prop::array::uniform8(prop_oneof![Just(0.0), 0.0..0.6f64]).prop_map(
        |[
            spurious_wake,
            empty_dequeue,
            short_batch,
            reorder,
            receive_error,
            send_error,
            no_buffer,
            late,
        ]| {
            Faults {
                spurious_wake,
                empty_dequeue,
                short_batch,
                reorder,
                receive_error,
                send_error,
                no_buffer,
                late,
                stuck: 0.0,
            }
        },
    )
}

/// Runs a random program and returns everything that could be seen of it.
fn run<K: Kernel>(seed: u64, faults: Faults, steps: &[Step]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut b =
        bench::<K, OneThread>(&Wire::with_faults(seed, faults), 2, SocketOptions::default());
    let mut next = 0u16;
    let (mut taken, mut got) = (BTreeMap::new(), BTreeMap::new());
    let (mut sends, mut sent) = (0, 0);
    let note = |completion: &Completion, got: &mut BTreeMap<_, _>, sent: &mut usize| {
        match &completion.outcome {
            Outcome::Received(_) => {
                *got.entry((completion.socket, bytes_of(completion))).or_insert(0) += 1;
            }
            Outcome::Sent(_) => *sent += 1,
            Outcome::Failed(_) | Outcome::NotSent(_) | Outcome::Returned => {}
        }
        format!("{completion:?}")
    };
    for step in steps {
        match *step {
            Step::Post(socket) => b.post_fairly(socket),
            Step::Send(socket) => {
                let Some(mut slice) = b.region.take() else { continue };
                slice.payload_mut()[..2].copy_from_slice(&next.to_le_bytes());
                next += 1;
                let to = Peer::from(source());
                if b.queues.requests[socket].send(slice, 2, &to).is_ok() {
                    sends += 1;
                    b.queues.requests[socket].commit(&b.counters).unwrap();
                }
            }
            Step::Inject(socket) => {
                let bytes = next.to_le_bytes();
                next += 1;
                let injected = b.inject(socket, &bytes);
                seen.push(format!("{injected:?}"));
                if injected == Injected::Taken {
                    taken.insert((socket as u32, bytes.to_vec()), 1);
                }
            }
            Step::Dequeue => {
                for completion in b.dequeue() {
                    seen.push(note(&completion, &mut got, &mut sent));
                }
            }
            Step::Wait => seen.push(format!("{:?}", b.wait())),
        }
    }
    // Post and dequeue until nothing more comes: then everything taken has arrived.
    for _ in 0..2000 {
        b.post_fairly(0);
        b.post_fairly(1);
        b.wait();
        for completion in b.dequeue() {
            seen.push(note(&completion, &mut got, &mut sent));
        }
        let busy = b.queues.requests.iter().any(|requests| requests.outstanding().1 > 0);
        if !busy && got == taken {
            break;
        }
    }
    assert_eq!(got, taken, "every datagram taken arrives exactly once, at its socket");
    assert!(sent <= sends);
    assert_eq!(b.wire.sent().len(), sent, "what completed as sent was sent");
    if faults.send_error == 0.0 {
        assert_eq!(sent, sends);
    }
    b.stop();
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_on_xdp(seed: u64, faults in faults(), steps in steps()) {
        prop_assert_eq!(run::<Xdp>(seed, faults, &steps), run::<Xdp>(seed, faults, &steps));
    }

    #[test]
    fn random_programs_on_winsock(seed: u64, faults in faults(), steps in steps()) {
        prop_assert_eq!(run::<Winsock>(seed, faults, &steps), run::<Winsock>(seed, faults, &steps));
    }

    #[test]
    fn stopping_anywhere_brings_every_slice_back(seed: u64, faults in faults(), steps in steps()) {
        stop_after::<Xdp>(seed, faults, &steps);
        stop_after::<Winsock>(seed, faults, &steps);
    }
}

fn stop_after<K: Kernel>(seed: u64, faults: Faults, steps: &[Step]) {
    let mut b =
        bench::<K, OneThread>(&Wire::with_faults(seed, faults), 2, SocketOptions::default());
    for step in steps {
        match *step {
            Step::Post(socket) => {
                let _ =
                    b.region.take().map(|slice| b.queues.requests[socket].receive(slice).is_ok());
            }
            Step::Send(socket) => {
                let to = Peer::from(source());
                let _ = b
                    .region
                    .take()
                    .map(|slice| b.queues.requests[socket].send(slice, 1, &to).is_ok());
            }
            Step::Inject(socket) => {
                b.inject(socket, b"x");
            }
            Step::Dequeue => drop(b.dequeue()),
            Step::Wait => {
                b.queues.requests[0].commit(&b.counters).unwrap();
                b.wait();
            }
        }
    }
    b.stop();
}
