//! weir's own nothing device (`drivers/nothing`), where it is there: every design in every of its modes. The
//! device counts for itself, and is asked what it saw.

use super::support::{
    Check, Notes, PATIENCE, Skipped, asks, device_of, run, settled, start, until,
};
use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::Path,
    time::{Duration, Instant},
};
use weir::device::{AnyDesign, Device, Kind, Reads};

pub const CHECKS: &[Check] = &[
    ("nothing_counts_are_exact", counts_are_exact),
    ("nothing_brings_as_much_as_it_is_told", brings_as_much_as_it_is_told),
    ("nothing_is_cancelled", is_cancelled),
    ("nothing_fails_on_the_way", fails_on_the_way),
];

/// The device.
pub const PATH: &str = "/dev/nothing";

/// Why there is nothing to check, if so.
pub fn missing() -> Option<String> {
    (!Path::new(PATH).exists()).then(|| format!("{PATH} is not there (drivers/nothing)"))
}

/// `struct nothing_settings` of its nothing.h.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Settings {
    completion: u32,
    dispatch: u32,
    bytes: u32,
    reserved: u32,
    delay_ns: u64,
}

/// `struct nothing_counts`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Counts {
    inlined: u64,
    pended: u64,
    completed: u64,
    cancelled: u64,
    pending: u64,
    nonblocking: u64,
    worker: u64,
    strayed: u64,
}

const SET: u32 = 1 << 30 | (size_of::<Settings>() as u32) << 16 | 0xDE02;
const COUNT: u32 = 2 << 30 | (size_of::<Counts>() as u32) << 16 | 0xDE03;
const CANCEL: u32 = 0xDE04;

const INLINE: u32 = 0;
const TIMER: u32 = 1;
const COMPLETIONS: std::ops::Range<u32> = INLINE..4;
const PARALLEL: u32 = 0;
const SEQUENTIAL: u32 = 1;

/// An open file of the device.
struct Nothing(File);

impl Nothing {
    fn set_up(completion: u32, dispatch: u32, bytes: u32, delay: Duration) -> Self {
        let nothing = Self(File::open(PATH).expect("it may be read"));
        let delay_ns = delay.as_nanos() as u64;
        let settings = Settings { completion, dispatch, bytes, reserved: 0, delay_ns };
        nothing.ask(SET, &raw const settings as usize);
        nothing
    }

    fn ask(&self, number: u32, argument: usize) -> u64 {
        let answer =
            // SAFETY: the driver writes at most the structure that `number` names the size of, to where the
            // argument points: one of that type.
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::Ioctl::from(number), argument) };
        assert!(answer >= 0, "{number:x}: {}", io::Error::last_os_error());
        answer as u64
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.ask(COUNT, &raw mut counts as usize);
        counts
    }

    /// Ends what is under way, and says how much that was.
    fn cancel(&self) -> u64 {
        self.ask(CANCEL, 0)
    }

    fn device(&self) -> Device {
        let device = device_of(&self.0);
        assert_eq!(device.kind(), Kind::Nothing);
        device
    }
}

/// As many I/Os as were asked for, and the device has seen as many: none early, none by a worker.
fn counts_are_exact(design: &AnyDesign) -> Result<(), Skipped> {
    const IOS: u64 = 101;
    let some = Duration::from_micros(300);
    let modes =
        COMPLETIONS.flat_map(|completion| [(completion, PARALLEL), (completion, SEQUENTIAL)]);
    for (completion, dispatch) in modes {
        // Without a delay no timer of the device runs, unless that is what completes.
        let delays: &[Duration] = match (completion, dispatch) {
            (INLINE, _) => &[Duration::ZERO],
            (TIMER, _) | (_, SEQUENTIAL) => &[some],
            _ => &[Duration::ZERO, some],
        };
        for &delay in delays {
            let nothing = Nothing::set_up(completion, dispatch, 0, delay);
            let ran = run(design, Reads::of(&nothing.device()).ios(IOS).sample_every(1))?;
            let mode = format!("{completion} {dispatch} {delay:?}");
            assert!(ran.report.failure.is_none(), "{mode}: {:?}", ran.report.failure);
            let (total, seen) = (ran.report.total(), nothing.counts());
            assert_eq!((total.issued, total.completed, total.failed), (IOS, IOS, 0), "{mode}");
            if design.about().name == "no-op" {
                assert_eq!((seen.inlined, seen.pended), (0, 0), "{mode}: it touches no device");
                continue;
            }
            let by = if completion == INLINE { seen.inlined } else { seen.completed };
            assert_eq!((by, seen.inlined + seen.pended), (IOS, IOS), "{mode}: {seen:?}");
            assert_eq!((seen.cancelled, seen.pending), (0, 0), "{mode}: {seen:?}");
            // The kernel's thread that submits is one of io_uring's, too.
            let workers = if design.about().name == "ring-polled" { IOS } else { 0 };
            assert!(seen.worker <= workers, "{mode}: {seen:?}");
            let threads = &ran.report.threads;
            let samples = threads.iter().flat_map(|thread| &thread.handler.samples);
            let early = samples.filter(|ns| u128::from(**ns) < delay.as_nanos()).count();
            assert_eq!(early, 0, "{mode}");
        }
    }
    Ok(())
}

fn brings_as_much_as_it_is_told(design: &AnyDesign) -> Result<(), Skipped> {
    asks(design)?;
    const IOS: u64 = 301;
    for (completion, bytes, each) in
        [(INLINE, 0, 0), (TIMER, 100, 100), (INLINE, 300, 300), (TIMER, 5000, 300)]
    {
        let nothing = Nothing::set_up(completion, PARALLEL, bytes, Duration::ZERO);
        let ran = run(design, Reads::of(&nothing.device()).length(300).ios(IOS))?;
        let total = ran.report.total();
        assert_eq!((total.completed, total.bytes), (IOS, IOS * each), "{bytes} bytes");
        let (empty, short) = (if each == 0 { IOS } else { 0 }, if each == 100 { IOS } else { 0 });
        assert_eq!((total.empty, total.short), (empty, short), "{bytes} bytes");
        assert!(ran.reads().all(|(_, read)| read.iter().all(|byte| *byte == 0)));
    }
    Ok(())
}

/// One after the other they would take a second each: a stop does not wait for that.
fn is_cancelled(design: &AnyDesign) -> Result<(), Skipped> {
    touches(design)?;
    for dispatch in [PARALLEL, SEQUENTIAL] {
        let nothing = Nothing::set_up(TIMER, dispatch, 0, Duration::from_secs(1));
        let running = start(design, Reads::of(&nothing.device()), |_| Notes::default())?;
        until("an I/O", || nothing.counts().pended > 0);
        let asked = Instant::now();
        let ran = settled(running.stop());
        assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
        assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
        let (total, seen) = (ran.report.total(), nothing.counts());
        assert_eq!((total.errors(), seen.pending), (0, 0), "{total:?}, {seen:?}");
        assert_eq!(total.completed, seen.completed, "{total:?}, {seen:?}");
    }
    Ok(())
}

/// Somebody else calls I/Os back while the run goes on: each is an error, and none is lost.
fn fails_on_the_way(design: &AnyDesign) -> Result<(), Skipped> {
    touches(design)?;
    let nothing = Nothing::set_up(TIMER, PARALLEL, 0, Duration::from_millis(3));
    let reads = Reads::of(&nothing.device()).errors_max(u64::MAX);
    let running = start(design, reads, |_| Notes::default())?;
    let mut ended = 0;
    until("some that fail", || {
        ended += nothing.cancel();
        ended >= 5
    });
    until("one that does not", || running.counters().completed > 0);
    until("their counting", || running.counters().failed >= ended);
    let ran = settled(running.stop());
    assert!(ran.report.failure.is_none(), "{:?}", ran.report.failure);
    let (total, seen) = (ran.report.total(), nothing.counts());
    assert_eq!(total.errors(), ended, "{total:?}, {seen:?}");
    assert_eq!(total.completed, seen.completed, "{total:?}, {seen:?}");
    let errors = ran.report.errors.by_kind();
    assert!(errors.len() == 1 && errors[0].0.contains("called it back"), "{errors:?}");
    Ok(())
}

fn touches(design: &AnyDesign) -> Result<(), Skipped> {
    match design.about().name {
        "no-op" => Err(Skipped("it touches no device".into())),
        _ => Ok(()),
    }
}
