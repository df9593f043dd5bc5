//! The queues against the kernel they run on: what goes wrong in completion I/O, each with a test.

use super::*;
use crate::{
    device::io::{Issue, Operation, Queue, Shape},
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
    let descriptor = Descriptor::new(OwnedFd::from(reader), Kind::Pipe, Direction::Read, path);
    let descriptor = descriptor.expect("it is open");
    (Arc::new(descriptor), writer)
}

fn region(depth: u32) -> Arc<Region> {
    Region::new(Layout::packed(0, 64, 512), depth, RegionOptions::default()).expect("memory")
}

/// Every shape of a ring that reads.
fn shapes() -> impl Iterator<Item = Shape> {
    let operations = [Operation::Plain, Operation::Registered];
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
    let (mut all, end) = (Vec::new(), Instant::now() + ENDS_WITHIN);
    while all.len() < many {
        assert!(Instant::now() < end, "{} of {many} came", all.len());
        let missing = many - all.len();
        queue
            .take(missing, Some(end), calls, |_, outcome, bytes| {
                all.push(match outcome {
                    Outcome::Moved(n) => Ok(bytes[..n].to_vec()),
                    Outcome::Cancelled => Err(true),
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
        (0..DEPTH).for_each(|_| queue.start(ISSUE, &calls));
        queue.take(0, None, &calls, |_, _, _| panic!("nothing is there")).unwrap();
        assert_eq!((queue.outstanding(), region.in_pool()), (DEPTH as usize, 0));
        drop(queue);
        assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0), "{shape:?}");
        let slices: Vec<_> = std::iter::from_fn(|| region.take()).collect();
        writer.write_all(&[0xff; 64]).unwrap();
        // The bytes are still there for somebody else: no read of the queue took them.
        let plain = Plain::new(&descriptor).unwrap();
        let mut buffer = [0; 64];
        assert!(matches!(plain.issue(&mut buffer, 0, &calls), Outcome::Moved(64)));
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
    for (shape, each) in shapes().flat_map(|shape| [(shape, false), (shape, true)]) {
        let (descriptor, mut writer) = pipe();
        let (mut queue, region, calls) = queue(&descriptor, shape);
        queue.cancels_each(each);
        (0..DEPTH).for_each(|_| queue.start(ISSUE, &calls));
        queue.take(0, None, &calls, |_, _, _| {}).unwrap();
        queue.cancel_all(&calls);
        assert_eq!(taken(&mut queue, DEPTH as usize, &calls), vec![Err(true); DEPTH as usize]);
        assert_eq!((queue.room(), queue.outstanding()), (DEPTH as usize, 0));
        drop(queue);
        assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0));
        drop(descriptor);
        // The kernel does away with a ring behind the program's back; the file must not wait for that
        // for long.
        let end = Instant::now() + ENDS_WITHIN;
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
    let shape = Shape { depth: 1, operation: Operation::Plain, polls: None };
    let (descriptor, mut writer) = pipe();
    let (mut queue, _region, calls) = queue(&descriptor, shape);
    queue.start(ISSUE, &calls);
    let first = queue.token_under_way();
    writer.write_all(b"first").unwrap();
    assert_eq!(taken(&mut queue, 1, &calls), [Ok(b"first".to_vec())]);
    queue.start(ISSUE, &calls);
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
    for (shape, each) in shapes().flat_map(|shape| [(shape, false), (shape, true)]) {
        // 13 and the alarm's two fill 16 entries up to the one that is held back.
        let shape = Shape { depth: 13, ..shape };
        let (descriptor, _writer) = pipe();
        let (mut queue, region, calls) = queue(&descriptor, shape);
        queue.cancels_each(each);
        (0..shape.depth).for_each(|_| queue.start(ISSUE, &calls));
        let mut outcomes = vec![];
        while outcomes.len() < shape.depth as usize {
            // As whoever drains it does: what finds no room is cancelled after the next that is over.
            queue.cancel_all(&calls);
            outcomes.extend(taken(&mut queue, 1, &calls));
        }
        assert_eq!(outcomes, vec![Err(true); shape.depth as usize], "{shape:?}");
        drop(queue);
        assert_eq!(region.in_pool(), shape.depth);
    }
}

#[test]
fn a_port_that_goes_cancels_what_is_under_way() {
    if cannot_run_here() {
        return;
    }
    for each in [false, true] {
        let (descriptor, _writer) = pipe();
        let (region, calls) = (region(DEPTH), Counters::default());
        let port = DevicePort::open("the test", &descriptor, Arc::clone(&region), 1, 1).unwrap();
        port.cancels_each(each);
        while let Some(slice) = region.take() {
            assert!(port.start(slice, &ISSUE, &calls).is_ok());
        }
        port.commit(&calls).unwrap();
        drop(port);
        assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0), "{each}");
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
        (0..DEPTH).for_each(|_| queue.start(ISSUE, &calls));
        let waker = queue.waker();
        let other = std::thread::spawn(move || waker.wake());
        let began = Instant::now();
        let many = queue.take(at_least, None, &calls, |_, _, _| {}).unwrap();
        assert!(many == 0 && began.elapsed() < ENDS_WITHIN, "{shape:?}");
        other.join().unwrap();
    }
}

#[test]
fn libaio_reads_calls_nothing_back_late_and_gives_its_memory_back() {
    if cannot_run("libaio", AioQueue::availability("the test")) {
        return;
    }
    let (region, calls) = (region(DEPTH), Counters::default());
    let path = Path::new("/dev/zero");
    let zeroes = Descriptor::open(path, Direction::Read, false).unwrap().0;
    let mut queue = AioQueue::open("the test", &Arc::new(zeroes), Arc::clone(&region)).unwrap();
    queue.begin(&calls).unwrap();
    for _ in 0..3 {
        (0..DEPTH).for_each(|_| queue.start(ISSUE, &calls));
        assert_eq!(taken(&mut queue, DEPTH as usize, &calls), vec![Ok(vec![0; 64]); 8]);
    }
    assert_eq!(
        calls.kernel_entries.get(),
        1 + 3 * 2,
        "one to arm the wake event, and two for each batch"
    );
    (0..DEPTH).for_each(|_| queue.start(ISSUE, &calls));
    queue.waker().wake();
    drop(queue);
    assert_eq!((region.in_pool(), region.leaked()), (DEPTH, 0));
    let (waits, _writer) = pipe();
    let refused = AioQueue::open("the test", &waits, region).unwrap_err();
    assert!(refused.to_string().contains("libaio would wait"), "{refused}");
}

/// Something that keeps what is written: what the devices that may be written to throw away.
fn kept() -> (io::PipeReader, Arc<Descriptor>) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let path = Path::new("the pipe");
    let descriptor = Descriptor::new(OwnedFd::from(writer), Kind::Null, Direction::Write, path);
    (reader, Arc::new(descriptor.expect("it is open")))
}

/// All that was written, once nobody can write any more.
fn read_back(mut reader: io::PipeReader, descriptor: Arc<Descriptor>) -> Vec<u8> {
    drop(descriptor);
    let mut all = vec![];
    io::Read::read_to_end(&mut reader, &mut all).expect("the end comes");
    all
}

/// Lets a queue write as many as it is deep, twice.
fn written_by<Q: Queue>(mut queue: Q, calls: &Counters) {
    queue.begin(calls).unwrap();
    for _ in 0..2 {
        (0..DEPTH).for_each(|_| queue.start(ISSUE, calls));
        let each = taken(&mut queue, DEPTH as usize, calls);
        assert!(each.iter().all(|one| one.as_ref().is_ok_and(|bytes| bytes.len() == 64)));
    }
}

#[test]
fn what_is_written_is_zeroes_of_the_length_asked_for() {
    let calls = Counters::default();
    let (reader, descriptor) = kept();
    let plain = Plain::new(&descriptor).unwrap();
    assert!(matches!(plain.issue(&mut [0; 64], 0, &calls), Outcome::Moved(64)));
    drop(plain);
    assert_eq!(read_back(reader, descriptor), [0; 64]);
    let all = vec![0; 2 * 64 * DEPTH as usize];
    if !cannot_run_here() {
        for shape in shapes() {
            let (reader, descriptor) = kept();
            let queue = RingQueue::open("the test", &descriptor, shape, region(DEPTH)).unwrap();
            written_by(queue, &calls);
            assert_eq!(read_back(reader, descriptor), all, "{shape:?}");
        }
        let (reader, descriptor) = kept();
        let region = region(DEPTH);
        let port = DevicePort::open("the test", &descriptor, Arc::clone(&region), 1, 1).unwrap();
        while let Some(slice) = region.take() {
            assert!(port.start(slice, &ISSUE, &calls).is_ok());
        }
        let (mut done, mut taker, mut many) = (vec![], port.worker(), 0);
        while many < DEPTH as usize {
            many += taker.take(&mut done, 32, &calls).unwrap().expect("it is open");
            assert!(done.drain(..).all(|one| matches!(one.outcome, Outcome::Moved(64))));
        }
        drop(taker);
        drop(port);
        assert_eq!(read_back(reader, descriptor), all[..64 * DEPTH as usize]);
    }
    if !cannot_run("libaio", AioQueue::availability("the test")) {
        let (reader, descriptor) = kept();
        let queue = AioQueue::open("the test", &descriptor, region(DEPTH)).unwrap();
        written_by(queue, &calls);
        assert_eq!(read_back(reader, descriptor), all);
    }
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

/// Counts what all threads read.
struct Counts(Arc<std::sync::atomic::AtomicU64>);

impl crate::device::Handler for Counts {
    fn on_read(&mut self, _: &[u8], _: u64) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// How long a run of many may take to end on a machine that is busy with other things, too.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn many_threads_read_only_once_all_are_there_and_end_soon() {
    use crate::device::{AnyDesign, Device, Reads};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let mut designs = vec!["threads --threads 256"];
    if !cannot_run_here() {
        designs.extend([
            "port --depth 4096 --threads 64",
            "overlapped-pool --depth 16384 --threads 256",
        ]);
    }
    for text in designs {
        let read = Arc::new(AtomicU64::new(0));
        let early = Arc::new(AtomicU64::new(0));
        let (all, before) = (Arc::clone(&read), Arc::clone(&early));
        let device = Device::open("/dev/null", &[]).expect("anybody may");
        let began = Instant::now();
        let running = Reads::of(&device)
            .start(AnyDesign::parse(text).expect(text), move |_| {
                // It is called as each thread is made.
                before.fetch_max(all.load(Relaxed), Relaxed);
                Counts(Arc::clone(&all))
            })
            .expect(text);
        assert_eq!(early.load(Relaxed), 0, "{text}: some read before others were there");
        while read.load(Relaxed) == 0 {
            assert!(began.elapsed() < ENDS_WITHIN, "{text}: nobody reads");
            running.wait_for(Duration::from_millis(10));
        }
        let ending = Instant::now();
        let report = running.stop();
        assert!(ending.elapsed() < ENDS_WITHIN, "{text} took {:?} to end", ending.elapsed());
        let total = report.total();
        assert_eq!(total.issued, total.completed + total.failed, "{text}");
        assert!(report.failure.is_none(), "{text}: {:?}", report.failure);
    }
}
