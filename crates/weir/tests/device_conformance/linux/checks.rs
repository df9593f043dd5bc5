//! What every design must do.

use super::support::{
    Check, Notes, ON_PURPOSE, PATIENCE, Place, Skipped, asks, at_once, device_of, open, pattern,
    run, settled, start, until,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::mpsc,
    thread,
    time::Duration,
};
use weir::{
    Error,
    device::{AnyDesign, Device, Direction, Handler, Reads},
    wake::Waker,
};

pub const CHECKS: &[Check] = &[
    ("counts_are_exact", counts_are_exact),
    ("few_ios_are_no_more", few_ios_are_no_more),
    ("writes_are_counted_exactly", writes_are_counted_exactly),
    ("a_stop_ends_writes", a_stop_ends_writes),
    ("a_file_is_read_block_by_block", a_file_is_read_block_by_block),
    ("a_short_file_gives_short_reads", a_short_file_gives_short_reads),
    ("an_empty_file_gives_nothing", an_empty_file_gives_nothing),
    ("every_record_of_a_pipe_comes_once", every_record_of_a_pipe_comes_once),
    ("a_pipe_without_a_writer_ends_the_run", a_pipe_without_a_writer_ends_the_run),
    ("a_pipe_ends_with_its_writer", a_pipe_ends_with_its_writer),
    ("an_eventfd_gives_eight_bytes", an_eventfd_gives_eight_bytes),
    ("a_timer_is_never_early", a_timer_is_never_early),
    ("a_stop_ends_reads_of_a_timer", a_stop_ends_reads_of_a_timer),
    ("a_stop_ends_reads_that_wait", a_stop_ends_reads_that_wait),
    ("a_stop_ends_reads_that_are_fast", a_stop_ends_reads_that_are_fast),
    ("the_first_error_ends_it", the_first_error_ends_it),
    ("a_file_that_shrinks_meanwhile_is_noticed", a_file_that_shrinks_meanwhile_is_noticed),
    ("so_many_errors_are_borne", so_many_errors_are_borne),
    ("every_io_of_the_sample_is_timed", every_io_of_the_sample_is_timed),
    ("a_handler_that_panics_ends_it", a_handler_that_panics_ends_it),
    ("flags_of_others_are_put_back", flags_of_others_are_put_back),
    ("a_setting_has_one_value", a_setting_has_one_value),
    ("who_waits_is_told_of_the_end", who_waits_is_told_of_the_end),
];

/// More than any design has outstanding, and no multiple of a batch.
const MANY: u64 = 10_007;

fn counts_are_exact(design: &AnyDesign) -> Result<(), Skipped> {
    let zero = asks(design).is_ok().then(|| (open("/dev/zero"), 300));
    for (device, each) in [(at_once(design), 0)].into_iter().chain(zero) {
        let ran = run(design, Reads::of(&device).length(300).ios(MANY))?;
        assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
        let total = ran.report.total();
        assert_eq!((total.issued, total.completed, total.failed), (MANY, MANY, 0));
        if asks(design).is_ok() {
            assert_eq!(total.bytes, MANY * each);
            assert_eq!((total.empty, total.short), (if each == 0 { MANY } else { 0 }, 0));
            assert!(ran.reads().all(|(at, bytes)| *at == 0 && bytes.iter().all(|b| *b == 0)));
        } else {
            assert_eq!((total.bytes, total.empty, total.short), (0, 0, 0));
        }
    }
    Ok(())
}

fn a_setting_has_one_value(design: &AnyDesign) -> Result<(), Skipped> {
    let running = start(design, Reads::of(&at_once(design)).ios(1), |_| ())?;
    assert!(running.wait_for(PATIENCE), "it ends by itself");
    let effective = running.effective();
    let names: BTreeSet<_> = effective.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), effective.len(), "a name is told twice: {effective:?}");
    // 0 often stands for what weir chooses, and that is told then.
    for asked in design.values().into_iter().filter(|(_, value)| value != "0") {
        assert!(effective.contains(&asked), "{asked:?} is not told: {effective:?}");
    }
    let _ = running.stop();
    Ok(())
}

fn who_waits_is_told_of_the_end(design: &AnyDesign) -> Result<(), Skipped> {
    let running = start(design, Reads::of(&at_once(design)), |_| ())?;
    running.on_failure(|failure| panic!("it was asked to stop: {failure}"));
    let (end, ended) = mpsc::channel();
    running.on_end(Waker::new(move || end.send(()).expect("the check waits")));
    let stopper = running.stopper();
    thread::scope(|scope| {
        let waits = scope.spawn(|| running.wait());
        assert!(running.is_running());
        stopper.wake();
        waits.join().expect("it returns");
    });
    assert!(!running.is_running() && running.wait_for(Duration::ZERO));
    // Whoever wakes those who wait may not be through with it.
    ended.recv_timeout(PATIENCE).expect("it is told of the end");
    let report = running.stop();
    assert!(report.total().balances() && report.failure.is_none(), "{report:?}");
    stopper.wake(); // it asks nobody any more
    Ok(())
}

fn few_ios_are_no_more(design: &AnyDesign) -> Result<(), Skipped> {
    for ios in 1..=5 {
        let ran = run(design, Reads::of(&at_once(design)).ios(ios))?;
        assert_eq!(ran.report.total().issued, ios);
    }
    Ok(())
}

/// To both devices that throw away what is written.
fn writes_are_counted_exactly(design: &AnyDesign) -> Result<(), Skipped> {
    const LENGTH: usize = 300;
    for path in ["/dev/null", "/dev/zero"] {
        let device = Device::open_for_writing(path).expect("it throws away what is written");
        assert_eq!(device.direction(), Direction::Write);
        let reads = Reads::of(&device).length(LENGTH).ios(MANY).sample_every(1);
        if let Err(reason) = asks(design) {
            let refused = reads.start(design.clone(), |_| ()).err().expect("it has no writes");
            assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
            assert!(refused.to_string().contains("it has no writes"), "{refused}");
            return Err(reason);
        }
        let ran = run(design, reads)?;
        assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
        let total = ran.report.total();
        assert_eq!((total.issued, total.completed, total.failed), (MANY, MANY, 0));
        assert_eq!((total.bytes, total.empty, total.short), (MANY * LENGTH as u64, 0, 0));
        assert_eq!(total.sampled, MANY);
        let threads = ran.report.threads.iter().map(|thread| &thread.handler);
        let (read, written) = threads.fold((0, 0), |(read, written), notes| {
            (read + notes.reads.len() as u64, written + notes.written.len() as u64)
        });
        assert_eq!((read, written), (0, MANY), "each was told as what it is");
    }
    Ok(())
}

fn a_stop_ends_writes(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let device = Device::open_for_writing("/dev/null").expect("it throws away what is written");
    let running = start(design, Reads::of(&device), |_| ())?;
    until("some writes", || running.counters().completed > MANY);
    let effective = running.effective();
    assert!(effective.contains(&("direction".into(), "writes".into())), "{effective:?}");
    let report = running.stop();
    let total = report.total();
    assert!(total.balances() && total.errors() == 0, "{total:?}");
    assert_eq!(total.bytes, total.completed * 4096);
    assert_eq!(report.buffers.0, report.buffers.1, "every buffer is back");
    assert!(report.failure.is_none(), "{:?}", report.failure);
    Ok(())
}

fn a_file_is_read_block_by_block(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    const LENGTH: usize = 700; // no power of two
    const BLOCKS: usize = 37;
    let place = Place::new();
    let file = place.file(LENGTH * BLOCKS + 99);
    let ran = run(design, Reads::of(&open(file)).length(LENGTH).ios(MANY))?;
    let mut places = BTreeSet::new();
    for (at, bytes) in ran.reads() {
        let right =
            bytes.len() == LENGTH && bytes.iter().zip(*at..).all(|(b, at)| *b == pattern(at));
        assert!(right, "{} bytes at {at}", bytes.len());
        places.insert(*at);
    }
    let all: BTreeSet<u64> = (0..BLOCKS).map(|number| (number * LENGTH) as u64).collect();
    assert_eq!(places, all);
    assert_eq!(ran.report.total().bytes, MANY * LENGTH as u64);
    Ok(())
}

fn a_short_file_gives_short_reads(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let place = Place::new();
    let file = place.file(100);
    let ran = run(design, Reads::of(&open(file)).length(4096).ios(MANY))?;
    let total = ran.report.total();
    assert_eq!((total.completed, total.short, total.empty), (MANY, MANY, 0));
    assert_eq!(total.bytes, MANY * 100);
    assert!(ran.reads().all(|(_, bytes)| bytes.iter().zip(0..).all(|(b, at)| *b == pattern(at))));
    Ok(())
}

fn an_empty_file_gives_nothing(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let place = Place::new();
    let ran = run(design, Reads::of(&open(place.file(0))).ios(MANY))?;
    let total = ran.report.total();
    assert_eq!((total.completed, total.empty, total.bytes), (MANY, MANY, 0));
    assert!(ran.report.failure.is_none());
    Ok(())
}

/// Records of 8 bytes, in writes and reads of several sizes: reads wait, and are short.
fn every_record_of_a_pipe_comes_once(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    const RECORDS: u64 = 20_000;
    let (device, mut writer) = Device::pipe().expect("a pipe");
    let reads = Reads::of(&device).length(48);
    let running = start(design, reads, |_| Notes::default())?;
    let numbers: Vec<u64> = (0..RECORDS).collect();
    for (count, numbers) in numbers.chunks(13).enumerate() {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.write_all(&bytes).expect("somebody reads");
        if count % 500 == 0 {
            // It falls behind: what follows finds readers that wait.
            let far = running.counters().bytes;
            until("the readers", || running.counters().bytes >= far.min((count * 13 * 8) as u64));
        }
    }
    drop(writer);
    assert!(running.wait_for(PATIENCE), "the end of the pipe ends it");
    let ran = settled(running.stop());
    assert!(ran.failure().contains("no writer"), "{}", ran.failure());
    let mut times = BTreeMap::new();
    for (_, bytes) in ran.reads() {
        for record in bytes.chunks(8) {
            let number = u64::from_le_bytes(record.try_into().expect("whole records"));
            *times.entry(number).or_insert(0) += 1;
        }
    }
    assert_eq!(times, (0..RECORDS).map(|number| (number, 1)).collect());
    Ok(())
}

fn a_pipe_without_a_writer_ends_the_run(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let (device, writer) = Device::pipe().expect("a pipe");
    drop(writer);
    let ran = run(design, Reads::of(&device))?;
    assert!(ran.failure().contains("no writer any more"), "{}", ran.failure());
    assert_eq!(ran.report.total().bytes, 0);
    Ok(())
}

fn a_pipe_ends_with_its_writer(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let (device, mut writer) = Device::pipe().expect("a pipe");
    let running = start(design, Reads::of(&device), |_| Notes::default())?;
    until("a read", || running.counters().issued > 0);
    assert!(running.is_running());
    writer.write_all(b"something").expect("somebody reads");
    // A design may wait for several reads to be over before it takes the first.
    drop(writer);
    assert!(running.wait_for(PATIENCE), "it ends by itself");
    let ran = settled(running.stop());
    assert!(ran.failure().contains("no writer"), "{}", ran.failure());
    assert_eq!(ran.report.total().bytes, 9);
    Ok(())
}

fn an_eventfd_gives_eight_bytes(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let ran = run(design, Reads::of(&Device::semaphore().expect("an eventfd")).ios(MANY))?;
    assert!(ran.reads().all(|(_, bytes)| *bytes == 1u64.to_ne_bytes()));
    let total = ran.report.total();
    assert_eq!((total.completed, total.bytes, total.short), (MANY, 8 * MANY, 0));
    Ok(())
}

fn a_timer_is_never_early(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    for (delay_us, ios) in [(0, 2000), (20, 1000), (2000, 300)] {
        let delay = Duration::from_micros(delay_us);
        let device = Device::timer(delay).expect("a timer");
        let ran = run(design, Reads::of(&device).ios(ios).sample_every(1))?;
        let total = ran.report.total();
        assert_eq!((total.issued, total.completed, total.bytes), (ios, ios, 8 * ios));
        assert_eq!((total.short, total.empty), (0, 0));
        assert!(ran.reads().all(|(_, bytes)| *bytes == 1u64.to_ne_bytes()), "it expired once");
        let threads = &ran.report.threads;
        let samples: Vec<u64> = threads.iter().flat_map(|t| t.handler.samples.clone()).collect();
        assert_eq!(samples.len() as u64, ios);
        let early = samples.iter().filter(|ns| u128::from(**ns) < delay.as_nanos()).count();
        assert_eq!(early, 0, "of {ios} reads of {delay:?}");
        // Every design pays an entry for each timer that is set, and says so; others than the one whose submissions
        // the kernel looks for have entries of their own besides.
        let calls = ran.report.calls();
        let own = u64::from(design.about().name != "ring-polled");
        assert!(calls.kernel_entries >= ios + own, "{calls:?}");
        if design.about().name == "sync" {
            assert_eq!(calls.kernel_entries, 2 * ios);
            let together = delay * ios as u32;
            assert!(ran.report.elapsed >= together, "one after the other");
        }
    }
    Ok(())
}

fn a_stop_ends_reads_of_a_timer(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let device = Device::timer(Duration::from_millis(200)).expect("a timer");
    let running = start(design, Reads::of(&device), |_| Notes::default())?;
    until("a read", || running.counters().issued > 0);
    let ran = settled(running.stop());
    assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
    let total = ran.report.total();
    assert_eq!((total.failed, total.bytes), (total.cancelled, 8 * total.completed));
    Ok(())
}

fn a_stop_ends_reads_that_wait(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let (silent, _writer) = Device::pipe().expect("a pipe");
    let running = start(design, Reads::of(&silent), |_| Notes::default())?;
    until("a read", || running.counters().issued > 0);
    assert!(running.is_running());
    let ran = settled(running.stop());
    assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
    let total = ran.report.total();
    assert_eq!((total.completed, total.failed), (0, total.cancelled));
    assert!(total.cancelled > 0 && total.cancelled == total.issued, "{total:?}");
    Ok(())
}

fn a_stop_ends_reads_that_are_fast(design: &AnyDesign) -> Result<(), Skipped> {
    for _ in 0..20 {
        let running = start(design, Reads::of(&at_once(design)), |_| ())?;
        until("reads", || running.counters().completed > 100);
        let report = running.stop();
        let total = report.total();
        assert!(total.balances() && total.errors() == 0, "{total:?}");
        assert_eq!(report.buffers.0, report.buffers.1);
        assert!(report.failure.is_none(), "{:?}", report.failure);
    }
    Ok(())
}

/// Its own memory at address 0, which nobody has: every read of it fails.
const FAILS: &str = "/proc/self/mem";

/// It, named: the kernel makes it up.
fn failing() -> Device {
    Device::open(FAILS, &[FAILS.into()]).expect("it was named")
}

fn the_first_error_ends_it(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let ran = run(design, Reads::of(&failing()))?;
    let failure = ran.failure();
    assert!(failure.contains("/proc/self/mem") && failure.contains("os error"), "{failure}");
    let total = ran.report.total();
    assert!(total.completed == 0 && total.errors() > 0, "{total:?}");
    assert!(matches!(ran.report.failure, Some(Error::Io { .. })));
    Ok(())
}

/// Bytes of a block of the file that shrinks.
const BLOCK: usize = 512;

fn a_file_that_shrinks_meanwhile_is_noticed(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let place = Place::new();
    let path = place.file(8 * BLOCK);
    let running = start(design, Reads::of(&open(&path)).length(BLOCK), |_| ())?;
    until("reads", || running.counters().completed > MANY);
    assert_eq!((running.counters().short, running.counters().empty), (0, 0));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("our own");
    file.set_len(4 * BLOCK as u64 + 7).expect("it shrinks");
    until("what comes short, and empty", || {
        let now = running.counters();
        now.short > 0 && now.empty > 0
    });
    let after = running.counters().completed;
    until("it goes on", || running.counters().completed > after + MANY);
    let report = running.stop();
    let total = report.total();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert!(total.balances() && total.errors() == 0, "{total:?}");
    assert!(total.bytes < total.completed * BLOCK as u64, "{total:?}");
    Ok(())
}

fn so_many_errors_are_borne(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let ran = run(design, Reads::of(&failing()).errors_max(MANY).ios(MANY))?;
    assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
    let (total, errors) = (ran.report.total(), &ran.report.errors);
    assert_eq!((total.failed, total.cancelled, errors.all()), (MANY, 0, MANY));
    assert_eq!(errors.by_kind().len(), 1, "{errors:?}");
    let ran = run(design, Reads::of(&failing()).errors_max(10))?;
    assert!(ran.report.total().errors() > 10 && ran.report.failure.is_some());
    Ok(())
}

fn every_io_of_the_sample_is_timed(design: &AnyDesign) -> Result<(), Skipped> {
    for (every, least, most) in [(1, MANY, MANY), (10, MANY / 15, MANY / 7), (0, 0, 0)] {
        let reads = Reads::of(&at_once(design)).length(16).ios(MANY).sample_every(every);
        let ran = run(design, reads)?;
        let threads = &ran.report.threads;
        let samples: Vec<u64> = threads.iter().flat_map(|t| t.handler.samples.clone()).collect();
        assert_eq!(samples.len() as u64, ran.report.total().sampled);
        assert!((least..=most).contains(&(samples.len() as u64)), "{} of {MANY}", samples.len());
        let longest = ran.report.elapsed.as_nanos() as u64;
        let out = samples.iter().find(|ns| **ns == 0 || **ns > longest);
        assert_eq!(out, None, "of a run of {longest} ns");
    }
    Ok(())
}

/// Panics at its tenth read.
#[derive(Default)]
struct Panics(u32);

impl Handler for Panics {
    fn on_read(&mut self, _: &[u8], _: u64) {
        self.0 += 1;
        if self.0 == 10 {
            std::panic::panic_any(ON_PURPOSE);
        }
    }
}

fn a_handler_that_panics_ends_it(design: &AnyDesign) -> Result<(), Skipped> {
    let running = start(design, Reads::of(&at_once(design)), |_| Panics::default())?;
    assert!(running.wait_for(PATIENCE), "every thread ends");
    let report = running.stop();
    let failure = report.failure.as_ref().expect("it failed").to_string();
    assert!(failure.contains("handler") && failure.contains(ON_PURPOSE), "{failure}");
    assert_eq!(report.buffers.0, report.buffers.1, "every buffer is back");
    assert!(report.total().balances(), "{:?}", report.total());
    Ok(())
}

fn flags_of_others_are_put_back(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    let ours = std::fs::File::open("/dev/urandom").expect("everybody may");
    let flags = || {
        use std::os::fd::AsRawFd;
        // SAFETY: takes plain numbers.
        unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_GETFL) }
    };
    let before = flags();
    let running = start(design, Reads::of(&device_of(&ours)), |_| ())?;
    let _ = running.stop();
    until("the flags", || flags() == before);
    Ok(())
}
