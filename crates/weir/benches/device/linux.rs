//! The rows, and how they are timed.

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    counters::{Counter, os::Sampler},
    device::{AnyDesign, Device, Reads},
};

const LENGTH: usize = 4096;

/// Far longer than a read takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bare loops, and the designs with their options.
const BARE: &str = "read(2) in a bare loop";
const BARE_NO_OP: &str = "no-ops on a ring in a bare loop, 128 deep";
const BARE_REGISTERED: &str = "registered reads on a ring in a bare loop, 128 deep";
const SYNC: &str = "sync";
const NO_OP: &str = "no-op --depth 128 --batch 128";
const REGISTERED: [&str; 3] = [
    "ring-registered --depth 32 --batch 32",
    "ring-registered --depth 64 --batch 64",
    "ring-registered --depth 128 --batch 128",
];
const RING: &str = "ring --depth 128 --batch 128";
const ROWS: [&str; 9] = [
    BARE,
    SYNC,
    RING,
    REGISTERED[0],
    REGISTERED[1],
    BARE_REGISTERED,
    REGISTERED[2],
    BARE_NO_OP,
    NO_OP,
];

/// What must be reached: so many times one row of another.
const GOALS: [(&str, &str, f64); 7] = [
    (SYNC, BARE, 0.98),
    (NO_OP, BARE_NO_OP, 0.95),
    (REGISTERED[2], BARE_REGISTERED, 0.95),
    (REGISTERED[0], SYNC, 1.1),
    (REGISTERED[1], SYNC, 1.1),
    (REGISTERED[2], SYNC, 1.1),
    (NO_OP, SYNC, 2.5),
];

pub fn main() {
    let (says_of_speed, rounds) = match (given("--bench"), given("--quick")) {
        (true, false) => (true, 15),
        (true, true) => (true, 3),
        (false, _) => (false, 1),
    };
    let time = Duration::from_millis(if says_of_speed { 500 } else { 10 });
    let core = allowed_cores()[0];
    pin_current_thread(core).expect("this process may use that core");
    let path = if given("--zero") { "/dev/zero" } else { "/dev/null" };
    let device = Device::open(path, &[]).expect("everybody may read it");
    let mut all: Vec<Vec<Rate>> = vec![Vec::new(); ROWS.len()];
    for round in 0..rounds {
        for place in 0..ROWS.len() {
            let row = (round + place) % ROWS.len();
            match rate(ROWS[row], (&device, path), time) {
                Ok(rate) => all[row].push(rate),
                Err(reason) if round == 0 => println!("{:<52} skipped: {reason}", ROWS[row]),
                Err(_) => {}
            }
        }
    }
    if !says_of_speed {
        println!("every row has read");
        return;
    }
    let started = if by_name() { "by name" } else { "by type" };
    println!(
        "{LENGTH} bytes of {path}, medians of {rounds} interleaved rounds; designs {started}\n"
    );
    for (name, rates) in ROWS.iter().zip(&all).filter(|(_, rates)| !rates.is_empty()) {
        let median =
            |of: fn(&Rate) -> f64| quantile(&rates.iter().map(of).collect::<Vec<_>>(), 0.5);
        println!(
            "{name:<52} {:>12.0} I/Os per s  {:>7.1} ns of CPU time",
            median(|rate| rate.per_s),
            median(|rate| rate.cpu_ns)
        );
    }
    println!();
    for (row, beside, goal) in GOALS {
        let of = |name| &all[ROWS.iter().position(|row| *row == name).expect("a row")];
        let pairs = || of(row).iter().zip(of(beside));
        let ratios: Vec<f64> = pairs().map(|(a, b)| a.per_s / b.per_s).collect();
        let of_time: Vec<f64> = pairs().map(|(a, b)| b.cpu_ns / a.cpu_ns).collect();
        if ratios.is_empty() {
            continue;
        }
        let text = |ratios: &[f64]| {
            let [low, median, high] = [0.25, 0.5, 0.75].map(|q| quantile(ratios, q));
            format!("{median:.3} ({low:.3} to {high:.3})")
        };
        println!(
            "{row:<40} / {beside:<52} {}; per CPU second {}; to be reached: {goal}",
            text(&ratios),
            text(&of_time)
        );
    }
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// Whether a flag is among the arguments.
fn given(flag: &str) -> bool {
    std::env::args().any(|argument| argument == flag)
}

/// Whether designs are started by their names, with handlers in a box, and not by their types.
fn by_name() -> bool {
    given("--by-name")
}

/// What a row makes of a moment.
#[derive(Clone, Copy)]
struct Rate {
    /// I/Os per second.
    per_s: f64,
    /// CPU time of the process for each: what other programs take of the core is not in it.
    cpu_ns: f64,
}

/// The rate of one row.
fn rate(row: &str, (device, path): (&Device, &str), time: Duration) -> Result<Rate, String> {
    let of_ring = |operation| bare_ring(path, operation, time).map_err(|error| error.to_string());
    match row {
        BARE => return Ok(bare(path, time)),
        BARE_NO_OP => return of_ring(opcode::Nop::new().build()),
        BARE_REGISTERED => {
            // The place of the memory is set for each entry.
            let read = opcode::ReadFixed::new(types::Fixed(0), std::ptr::null_mut(), 0, 0);
            return of_ring(read.build());
        }
        _ => {}
    }
    let design = AnyDesign::parse(row).expect("the table names designs that exist");
    design.availability().map_err(|reason| reason.to_string())?;
    let reads = Reads::of(device).length(LENGTH);
    let running = match design {
        by_its_name if by_name() => reads.start(by_its_name, |_| ()),
        AnyDesign::Synchronous(design) => reads.start(design, |_| ()),
        AnyDesign::Ring(design) => reads.start(design, |_| ()),
        AnyDesign::RingRegistered(design) => reads.start(design, |_| ()),
        AnyDesign::NoOp(design) => reads.start(design, |_| ()),
        other => panic!("{other:?} is in no row"),
    };
    let running = running.map_err(|error| error.to_string())?;
    let rate = measure(time, || running.counters().completed);
    let report = running.stop();
    assert!(report.failure.is_none() && report.total().balances(), "{row}: {report:?}");
    Ok(rate)
}

/// One thread that reads and counts, and does nothing else.
fn bare(path: &str, time: Duration) -> Rate {
    let (count, stop) = (Arc::new(Counter::default()), Arc::new(AtomicBool::new(false)));
    let reader = thread::spawn({
        let (count, stop) = (Arc::clone(&count), Arc::clone(&stop));
        let path = path.to_owned();
        move || {
            let file = File::open(path).expect("everybody may read it");
            let (fd, mut buffer) = (file.as_raw_fd(), vec![0u8; LENGTH]);
            while !stop.load(Relaxed) {
                // SAFETY: the kernel writes at most so many bytes into the buffer.
                let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), LENGTH) };
                assert!(read >= 0);
                count.one();
            }
        }
    });
    let rate = measure(time, || count.get());
    stop.store(true, Relaxed);
    reader.join().expect("it reads");
    rate
}

/// The number of a no-op, as an entry tells it.
const NO_OP_CODE: u32 = opcode::Nop::CODE as u32;

/// Outstanding in a bare loop on a ring, all of them given to the kernel at a time.
const DEPTH: u32 = 128;

/// One thread that gives the kernel the same entries again and again, and counts what is over: they stand in the ring
/// once and for all, and nothing tells one from the other. `operation` is a no-op, or a read of registered memory from
/// a registered file, whose parts are put in here.
fn bare_ring(path: &str, operation: squeue::Entry, time: Duration) -> io::Result<Rate> {
    let (count, stop) = (Arc::new(Counter::default()), Arc::new(AtomicBool::new(false)));
    let (of_thread, is_over) = (Arc::clone(&count), Arc::clone(&stop));
    let file = File::open(path)?;
    let reader = thread::spawn(move || -> io::Result<()> {
        let mut ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_no_sqarray()
            .build(DEPTH)?;
        let mut memory = vec![0u8; (DEPTH as usize + 1) * LENGTH];
        let skipped = memory.as_ptr().align_offset(LENGTH);
        let first = memory[skipped..].as_mut_ptr();
        let registered = libc::iovec { iov_base: first.cast(), iov_len: DEPTH as usize * LENGTH };
        let entries: Vec<squeue::Entry> = match operation.get_opcode() {
            NO_OP_CODE => vec![operation; DEPTH as usize],
            _ => {
                // SAFETY: the memory outlives the ring, which is dropped first.
                unsafe { ring.submitter().register_buffers(&[registered]) }?;
                ring.submitter().register_files(&[file.as_raw_fd()])?;
                let place = |number: u32| first.wrapping_add(number as usize * LENGTH);
                let read = |number| {
                    opcode::ReadFixed::new(types::Fixed(0), place(number), LENGTH as u32, 0).build()
                };
                (0..DEPTH).map(read).collect()
            }
        };
        while !is_over.load(Relaxed) {
            // SAFETY: as above.
            unsafe { ring.submission().push_multiple(&entries) }.expect("the last ones are gone");
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: without EXT_ARG the argument is a signal mask, and there is none.
            unsafe { ring.submitter().enter::<libc::sigset_t>(DEPTH, DEPTH, flags, None) }?;
            for entry in ring.completion() {
                assert!(entry.result() >= 0);
                of_thread.one();
            }
        }
        drop(ring);
        drop(memory);
        Ok(())
    });
    let rate = measure(time, || match reader.is_finished() {
        true => u64::MAX, // it failed: the thread says why
        false => count.get(),
    });
    stop.store(true, Relaxed);
    reader.join().expect("it does not panic").map(|()| rate)
}

/// The rate at which a count grows, once it does.
fn measure(time: Duration, count: impl Fn() -> u64) -> Rate {
    while count() == 0 {
        thread::yield_now();
    }
    let mut sampler = Sampler::new();
    let mut used = || sampler.process().cpu_ns.expect("Linux tells it") as f64;
    let (first, began, used_before) = (count(), Instant::now(), used());
    let (last, elapsed, used) = loop {
        thread::sleep(time);
        let (last, elapsed, used) = (count(), began.elapsed(), used() - used_before);
        if last > first {
            break (last, elapsed, used);
        }
        // A moment may be too short on a machine that is busy with other things.
        assert!(elapsed < PATIENCE, "it does not go on");
    };
    let ios = (last - first) as f64;
    Rate { per_s: ios / elapsed.as_secs_f64(), cpu_ns: used / ios }
}
