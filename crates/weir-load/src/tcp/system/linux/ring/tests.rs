use super::*;
use std::collections::BTreeMap;

/// Far longer than anything here takes: reached only by a test that fails.
const SOON_NS: u64 = 60_000_000_000;

/// A ring for so many connections and bytes, where there is one.
fn ring(connections: u64, bytes: usize) -> Option<Ring> {
    if let Err(why) = Ring::probe() {
        let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
        assert_ne!(required, "all", "required by WEIR_REQUIRE: {why}");
        eprintln!("not run: {why}");
        return None;
    }
    let mut ring = Ring::open(connections, bytes, true).unwrap();
    ring.begin().unwrap();
    Some(ring)
}

/// A connection that does not wait, and its other side.
fn pair() -> (Socket, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    (Socket(one.into()), other)
}

/// What came of each connection until `enough` says so: `None` for the end.
fn gather(
    ring: &mut Ring,
    sockets: &[Socket],
    enough: impl Fn(&BTreeMap<u32, Vec<Option<u8>>>) -> bool,
) -> BTreeMap<u32, Vec<Option<u8>>> {
    let mut came = BTreeMap::new();
    let by = Instant::now() + Duration::from_nanos(SOON_NS);
    while !enough(&came) {
        assert!(Instant::now() < by, "it hung: {came:?}");
        for index in 0..ring.wait(SOON_NS).unwrap() {
            let told = ring.ready(index);
            assert!(told.receive, "{told:?}");
            let socket = &sockets[told.number as usize];
            let of: &mut Vec<Option<u8>> = came.entry(told.number).or_default();
            match ring.receive(socket, told.number).unwrap() {
                Some(0) => of.push(None),
                Some(count) => {
                    of.extend(ring.received(count).iter().copied().map(Some));
                    assert_eq!(ring.receive(socket, told.number).unwrap(), None, "it is taken");
                }
                None => {}
            }
        }
    }
    came
}

#[test]
fn where_buffers_run_short_receives_begin_anew() {
    let Some(mut ring) = ring(1, 1) else { return };
    let (sockets, others): (Vec<_>, Vec<_>) = (0..300).map(|_| pair()).unzip();
    assert!(usize::from(ring.buffers.count) < sockets.len());
    for (number, socket) in sockets.iter().enumerate() {
        ring.begin_to_receive(socket, number as u32);
    }
    ring.wait(0).unwrap();
    // All of it is there before the kernel has a turn with it.
    for (number, mut other) in others.iter().enumerate() {
        other.write_all(&[number as u8, 7]).unwrap();
    }
    drop(others);
    let came = gather(&mut ring, &sockets, |came| {
        came.len() == 300 && came.values().all(|of| of.last() == Some(&None))
    });
    for (number, of) in came {
        assert_eq!(of, [Some(number as u8), Some(7), None], "{number}");
    }
}

#[test]
fn a_send_takes_what_there_is_room_for_and_room_is_told() {
    let Some(mut ring) = ring(1, 64 * 1024) else { return };
    let (socket, mut other) = pair();
    let (mut sent, mut told) = (0, None);
    while told.is_none() {
        let asked = ring.send(&socket, 0, u64::MAX, |bytes| bytes.fill(3));
        assert_eq!(asked, 64 * 1024);
        let count = ring.wait(SOON_NS).unwrap();
        for index in 0..count {
            match ring.ready(index).sent.expect("nothing else is asked for") {
                Ok(taken) => sent += taken,
                Err(error) => told = Some(error),
            }
        }
    }
    assert_eq!(told, Some(libc::EAGAIN));
    assert!(sent > 0);
    ring.await_room(&socket, 0);
    assert_eq!(ring.wait(1).unwrap(), 0, "there is no room");
    let mut came = vec![0; sent];
    other.read_exact(&mut came).unwrap();
    assert!(came.iter().all(|byte| *byte == 3));
    assert_eq!(ring.wait(SOON_NS).unwrap(), 1);
    let told = ring.ready(0);
    assert!(!told.receive && told.sent.is_none(), "{told:?}");
}

#[test]
fn more_sends_than_the_queue_holds_go_in_order_and_each_is_told() {
    let Some(mut ring) = ring(1, 8) else { return };
    let sends = 3 * SUBMISSIONS as usize;
    let (sockets, others): (Vec<_>, Vec<_>) = (0..sends).map(|_| pair()).unzip();
    for (number, socket) in sockets.iter().enumerate() {
        let bytes = (number as u64).to_le_bytes();
        assert_eq!(ring.send(socket, number as u32, 8, |to| to.copy_from_slice(&bytes)), 8);
    }
    let mut told = Vec::new();
    while told.len() < sends {
        let count = ring.wait(SOON_NS).unwrap();
        told.extend((0..count).map(|index| {
            let Ready { number, sent, .. } = ring.ready(index);
            assert_eq!(sent, Some(Ok(8)));
            number
        }));
    }
    assert!(told.into_iter().eq(0..sends as u32));
    for (number, mut other) in others.into_iter().enumerate() {
        let mut bytes = [0; 8];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), number as u64);
    }
}

#[test]
fn what_is_forgotten_ends_and_its_descriptor_may_be_anothers() {
    let Some(mut ring) = ring(2, 8) else { return };
    let (first, mut first_other) = pair();
    ring.begin_to_receive(&first, 0);
    ring.send(&first, 0, 1, |bytes| bytes[0] = 1);
    ring.forget(0);
    drop(first);
    // It has the descriptor of the first, the lowest that is free, unless another test was faster.
    let (second, mut second_other) = pair();
    ring.begin_to_receive(&second, 1);
    let mut byte = [0];
    first_other.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [1], "it was sent before");
    second_other.write_all(&[2]).unwrap();
    let mut came = Vec::new();
    let by = Instant::now() + Duration::from_nanos(SOON_NS);
    while came.is_empty() {
        assert!(Instant::now() < by, "it hung");
        for index in 0..ring.wait(SOON_NS).unwrap() {
            let told = ring.ready(index);
            if told.number == 1 {
                let count = ring.receive(&second, 1).unwrap().unwrap();
                came.extend_from_slice(ring.received(count));
            }
        }
    }
    assert_eq!(came, [2]);
    // The kernel has let go of the first.
    assert_eq!(first_other.read(&mut byte).unwrap(), 0);
}

#[test]
fn another_thread_ends_its_wait_and_it_goes_while_receives_are_under_way() {
    let Some(mut ring) = ring(1, 8) else { return };
    let (socket, other) = pair();
    ring.begin_to_receive(&socket, 0);
    let wake_event = ring.wake_event();
    let began = Instant::now();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            scope.spawn(|| wake_event.signal());
            assert_eq!(ring.wait(SOON_NS).unwrap(), 0);
        });
    }
    assert!(began.elapsed() < Duration::from_nanos(SOON_NS), "its wait went on");
    drop(ring);
    drop(socket);
    let mut byte = [0];
    assert_eq!((&other).read(&mut byte).unwrap(), 0, "nothing holds it any more");
}
