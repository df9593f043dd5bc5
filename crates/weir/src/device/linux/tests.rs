//! The queues against the kernel they run on: what goes wrong in completion I/O, each with a test.

use super::*;
use crate::{
    device::queue::{Issue, Queue},
    memory::{Layout, Region, RegionOptions},
    required::cannot_run,
};
use std::{
    io::Write,
    time::{Duration, Instant},
};

const DEPTH: u32 = 8;
const ISSUE: Issue = Issue { at: 0, since: None };

/// A pipe: something that lets reads wait, and who writes.
fn pipe() -> (Arc<Descriptor>, io::PipeWriter) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let path = Path::new("the pipe");
    let descriptor = Descriptor::new(OwnedFd::from(reader), Kind::Pipe, path).expect("it is open");
    (Arc::new(descriptor), writer)
}

fn region(depth: u32) -> Arc<Region> {
    Region::new(Layout::packed(0, 64, 512), depth, RegionOptions::default()).expect("memory")
}

/// Every shape of a ring that reads.
fn shapes() -> impl Iterator<Item = Shape> {
    let operations = [Operation::Read, Operation::ReadFixed];
    let polls = [None, Some(100)];
    operations.into_iter().flat_map(move |operation| {
        polls.into_iter().map(move |polls| Shape { depth: DEPTH, operation, polls })
    })
}

fn cannot_run_here() -> bool {
    cannot_run("ring", RingQueue::availability("the test", shapes().next().expect("some")))
}

/// A queue that is begun, on the descriptor.
fn queue(descriptor: &Arc<Descriptor>, shape: Shape) -> (RingQueue, Arc<Region>, Counters) {
    let (region, calls) = (region(shape.depth), Counters::default());
    let mut queue = RingQueue::open("the test", descriptor, shape, Arc::clone(&region)).unwrap();
    queue.begin(&calls).unwrap();
    (queue, region, calls)
}

/// Takes what is over until so many have come, and gives what each brought.
fn taken(queue: &mut impl Queue, many: usize, calls: &Counters) -> Vec<Result<Vec<u8>, bool>> {
    let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while all.len() < many {
        assert!(Instant::now() < end, "{} of {many} came", all.len());
        let missing = many - all.len();
        queue
            .take(missing, Some(end), calls, |_, outcome, bytes| {
                all.push(match outcome {
                    Outcome::Read(n) => Ok(bytes[..n].to_vec()),
                    Outcome::CalledBack => Err(true),
                    Outcome::Failed(_) => Err(false),
                });
            })
            .unwrap();
    }
    all
}

/// The first bug: memory is freed, or used again, while the kernel may still write to it.
#[test]
fn nothing_is_written_once_a_queue_with_reads_under_way_has_gone() {
    if cannot_run_here() {
        return;
    }
    for shape in shapes() {
        let (descriptor, mut writer) = pipe();
        let (mut queue, region, calls) = queue(&descriptor, shape);
        (0..DEPTH).for_each(|_| queue.start(&ISSUE, &calls));
        queue.take(0, None, &calls, |_, _, _| panic!("nothing is there")).unwrap();
        assert_eq!((queue.outstanding(), region.in_pool()), (DEPTH as usize, 0));
        drop(queue);
        assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0), "{shape:?}");
        let slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
        writer.write_all(&[0xff; 64]).unwrap();
        // The bytes are still there for somebody else: no read of the queue took them.
        let reader = Reader::new(&descriptor).unwrap();
        let mut buffer = [0; 64];
        assert!(matches!(reader.read(&mut buffer, 0, &calls), Outcome::Read(64)));
        assert!(slices.iter().all(|slice| slice.whole().iter().all(|byte| *byte == 0)));
    }
}

/// The second bug: what a cancelled operation carried is lost; here the file, which a ring that knows it
/// would keep open, and the memory.
#[test]
fn a_cancelled_read_keeps_neither_its_file_nor_its_memory() {
    if cannot_run_here() {
        return;
    }
    for shape in shapes() {
        let (descriptor, mut writer) = pipe();
        let (mut queue, region, calls) = queue(&descriptor, shape);
        (0..DEPTH).for_each(|_| queue.start(&ISSUE, &calls));
        queue.take(0, None, &calls, |_, _, _| {}).unwrap();
        queue.call_back(&calls);
        assert_eq!(taken(&mut queue, DEPTH as usize, &calls), vec![Err(true); DEPTH as usize]);
        assert_eq!((queue.room(), queue.outstanding()), (DEPTH as usize, 0));
        drop(queue);
        assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0));
        drop(descriptor);
        // The kernel does away with a ring behind the program's back; the file must not wait for that
        // for long.
        let end = Instant::now() + Duration::from_secs(10);
        while writer.write_all(&[1]).is_ok() {
            assert!(Instant::now() < end, "{shape:?}: somebody can still read");
            std::thread::yield_now();
        }
    }
}

/// The third bug: a token is used again, and what is late hits the wrong one.
#[test]
fn what_is_meant_for_a_read_that_is_over_does_not_hit_the_next_in_its_slot() {
    if cannot_run_here() {
        return;
    }
    let shape = Shape { depth: 1, operation: Operation::Read, polls: None };
    let (descriptor, mut writer) = pipe();
    let (mut queue, _region, calls) = queue(&descriptor, shape);
    queue.start(&ISSUE, &calls);
    let first = queue.token_under_way();
    writer.write_all(b"first").unwrap();
    assert_eq!(taken(&mut queue, 1, &calls), [Ok(b"first".to_vec())]);
    queue.start(&ISSUE, &calls);
    assert_ne!(queue.token_under_way(), first, "the same slot, another generation");
    assert_eq!(queue.token_under_way().slot(), first.slot());
    queue.cancel_one(first, &calls);
    queue.take(0, None, &calls, |_, _, _| panic!("the second was cancelled")).unwrap();
    writer.write_all(b"second").unwrap();
    assert_eq!(taken(&mut queue, 1, &calls), [Ok(b"second".to_vec())]);
}

/// The fourth bug: the queue is full, and the request to cancel finds no room.
#[test]
fn a_cancel_finds_room_behind_as_many_reads_as_a_queue_holds() {
    if cannot_run_here() {
        return;
    }
    for shape in shapes() {
        // 13 and the alarm's two fill 16 entries up to the one that is held back.
        let shape = Shape { depth: 13, ..shape };
        let (descriptor, _writer) = pipe();
        let (mut queue, region, calls) = queue(&descriptor, shape);
        (0..shape.depth).for_each(|_| queue.start(&ISSUE, &calls));
        let mut outcomes = vec![];
        while outcomes.len() < shape.depth as usize {
            // As whoever drains it does: what finds no room is called back after the next that is over.
            queue.call_back(&calls);
            outcomes.extend(taken(&mut queue, 1, &calls));
        }
        assert_eq!(outcomes, vec![Err(true); shape.depth as usize], "{shape:?}");
        drop(queue);
        assert_eq!(region.in_pool(), shape.depth);
    }
}

#[test]
fn a_waker_ends_a_wait_for_one_and_for_several() {
    if cannot_run_here() {
        return;
    }
    for (shape, at_least) in shapes().flat_map(|shape| [(shape, 1), (shape, 5)]) {
        let (descriptor, _writer) = pipe();
        let (mut queue, _region, calls) = queue(&descriptor, shape);
        (0..DEPTH).for_each(|_| queue.start(&ISSUE, &calls));
        let waker = queue.waker();
        let other = std::thread::spawn(move || waker.wake());
        let began = Instant::now();
        let many = queue.take(at_least, None, &calls, |_, _, _| {}).unwrap();
        assert!(many == 0 && began.elapsed() < Duration::from_secs(10), "{shape:?}");
        other.join().unwrap();
    }
}

#[test]
fn libaio_reads_calls_nothing_back_late_and_gives_its_memory_back() {
    if cannot_run("libaio", AioQueue::availability("the test")) {
        return;
    }
    let (region, calls) = (region(DEPTH), Counters::default());
    let zeroes = Descriptor::open(Path::new("/dev/zero"), |_| Ok(Kind::Zero)).unwrap().0;
    let mut queue = AioQueue::open("the test", &Arc::new(zeroes), Arc::clone(&region)).unwrap();
    queue.begin(&calls).unwrap();
    for _ in 0..3 {
        (0..DEPTH).for_each(|_| queue.start(&ISSUE, &calls));
        assert_eq!(taken(&mut queue, DEPTH as usize, &calls), vec![Ok(vec![0; 64]); 8]);
    }
    assert_eq!(
        calls.kernel_entries.get(),
        1 + 3 * 2,
        "one to arm the bell, and two for each batch"
    );
    (0..DEPTH).for_each(|_| queue.start(&ISSUE, &calls));
    queue.waker().wake();
    drop(queue);
    assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0));
    let (waits, _writer) = pipe();
    let refused = AioQueue::open("the test", &waits, region).unwrap_err();
    assert!(refused.to_string().contains("libaio would wait"), "{refused}");
}

#[test]
fn a_path_names_a_descriptor_only_where_it_says_so() {
    let number = |text: &str| descriptor_named(Path::new(text));
    assert_eq!(
        (number("-"), number("/dev/stdin"), number("/dev/fd/3")),
        (Some(0), Some(0), Some(3))
    );
    assert_eq!(number("/proc/self/fd/17"), Some(17));
    for path in ["/dev/null", "/dev/fd/", "/dev/fd/x", "fd/3", "--"] {
        assert_eq!(number(path), None, "{path}");
    }
}

#[test]
fn who_serves_a_device_is_known_by_its_class_or_its_number() {
    assert_eq!(character(1, 3), Found::Null);
    assert_eq!(character(1, 5), Found::Zero);
    assert_eq!(character(90, 65_000), Found::Character(Some("mtd".into())));
    assert_eq!(character(60_000, 1), Found::Character(None));
}
