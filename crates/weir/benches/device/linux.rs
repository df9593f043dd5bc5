//! The rows, and how they are timed.

use std::{
    fs::File,
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
    counters::Counter,
    device::{AnyDesign, Device, Reads},
};

const LENGTH: usize = 4096;

/// The bare loop, and the designs with their options.
const BARE: &str = "read(2) in a bare loop";
const SYNC: &str = "sync";
const NO_OP: &str = "no-op --depth 128 --batch 128";
const REGISTERED: [&str; 3] = [
    "ring-registered --depth 32 --batch 32",
    "ring-registered --depth 64 --batch 64",
    "ring-registered --depth 128 --batch 128",
];
const RING: &str = "ring --depth 128 --batch 128";
const ROWS: [&str; 7] = [BARE, SYNC, RING, REGISTERED[0], REGISTERED[1], REGISTERED[2], NO_OP];

/// What must be reached: so many times one row of another.
const GOALS: [(&str, &str, f64); 5] = [
    (SYNC, BARE, 0.98),
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
    let device = Device::open("/dev/null", &[]).expect("everybody may read it");
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); ROWS.len()];
    for round in 0..rounds {
        for place in 0..ROWS.len() {
            let row = (round + place) % ROWS.len();
            match rate(ROWS[row], &device, time) {
                Ok(per_s) => all[row].push(per_s),
                Err(reason) if round == 0 => println!("{:<42} skipped: {reason}", ROWS[row]),
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
        "{LENGTH} bytes of /dev/null, medians of {rounds} interleaved rounds; designs {started}\n"
    );
    for (name, rates) in ROWS.iter().zip(&all).filter(|(_, rates)| !rates.is_empty()) {
        let median = quantile(rates, 0.5);
        println!("{name:<42} {median:>12.0} I/Os per s  {:>7.1} ns", 1e9 / median);
    }
    println!();
    for (row, beside, goal) in GOALS {
        let of = |name| &all[ROWS.iter().position(|row| *row == name).expect("a row")];
        let ratios: Vec<f64> = of(row).iter().zip(of(beside)).map(|(a, b)| a / b).collect();
        if ratios.is_empty() {
            continue;
        }
        let [low, median, high] = [0.25, 0.5, 0.75].map(|q| quantile(&ratios, q));
        println!(
            "{row:<42} / {beside:<22} {median:.3} ({low:.3} to {high:.3}), to be reached: {goal}"
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

/// I/Os per second of one row.
fn rate(row: &str, device: &Device, time: Duration) -> Result<f64, String> {
    if row == BARE {
        return Ok(bare(time));
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
    let per_s = measure(time, || running.counters().completed);
    let report = running.stop();
    assert!(report.failure.is_none() && report.total().balances(), "{row}: {report:?}");
    Ok(per_s)
}

/// One thread that reads and counts, and does nothing else.
fn bare(time: Duration) -> f64 {
    let (count, stop) = (Arc::new(Counter::default()), Arc::new(AtomicBool::new(false)));
    let reader = thread::spawn({
        let (count, stop) = (Arc::clone(&count), Arc::clone(&stop));
        move || {
            let file = File::open("/dev/null").expect("everybody may read it");
            let (fd, mut buffer) = (file.as_raw_fd(), vec![0u8; LENGTH]);
            while !stop.load(Relaxed) {
                // SAFETY: the kernel writes at most so many bytes into the buffer.
                let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), LENGTH) };
                assert_eq!(read, 0);
                count.one();
            }
        }
    });
    let per_s = measure(time, || count.get());
    stop.store(true, Relaxed);
    reader.join().expect("it reads");
    per_s
}

/// The rate at which a count grows, once it does.
fn measure(time: Duration, count: impl Fn() -> u64) -> f64 {
    while count() == 0 {
        thread::yield_now();
    }
    let (first, began) = (count(), Instant::now());
    thread::sleep(time);
    let (last, elapsed) = (count(), began.elapsed());
    assert!(last > first, "it goes on");
    (last - first) as f64 / elapsed.as_secs_f64()
}
