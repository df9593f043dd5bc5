//! What the benchmarks of pairs share: which pairs are asked for, on which cores, how often and how long each
//! side runs, and what it used.

mod threads;

pub use threads::cpu_ns_of_threads;

use std::time::{Duration, Instant};
use weir::affinity::{allowed_cores, pin_current_thread};

/// Far longer than the first message takes on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often and how long each side runs.
#[derive(Clone, Copy)]
pub struct Extent {
    pub says_of_speed: bool,
    pub rounds: usize,
    warm_up: Duration,
    measured: Duration,
}

impl Extent {
    /// `cargo bench` says `--bench`; without, it is a test.
    pub fn asked(warm_up: Duration, measured: Duration) -> Self {
        let given = |flag: &str| std::env::args().any(|argument| argument == flag);
        match (given("--bench"), given("--quick")) {
            (true, false) => Self { says_of_speed: true, rounds: 15, warm_up, measured },
            (true, true) => Self { says_of_speed: true, rounds: 3, warm_up, measured },
            (false, _) => {
                let moment = Duration::from_millis(10);
                Self { says_of_speed: false, rounds: 1, warm_up: moment, measured: moment }
            }
        }
    }
}

/// Whether a pair is asked for: `--design NAME` is every form of that design, a word alone every pair whose
/// name contains it; without either it is all of them.
pub fn is_asked_for(pair: &str) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--design") {
        let design = arguments.get(at + 1).expect("--design is followed by a name");
        return pair.split(' ').next() == Some(design);
    }
    let word = arguments.iter().find(|argument| !argument.starts_with('-'));
    word.is_none_or(|word| pair.contains(word.as_str()))
}

/// Whether designs are started by their names, with handlers in a box, and not by their types.
pub fn by_name() -> bool {
    std::env::args().any(|argument| argument == "--by-name")
}

/// That, in words.
pub fn starts() -> &'static str {
    match by_name() {
        true => "by name, their handlers boxed",
        false => "by type, their handlers inlined",
    }
}

/// Pins this thread, whose children will be servers, to one core; answers the other for their load.
pub fn part_cores() -> usize {
    let cores = allowed_cores();
    let (server, load) = (cores[0], cores[cores.len() - 1]);
    if server == load {
        println!("one core for both sides: figures say little");
    }
    pin_current_thread(server).expect("this process may use that core");
    load
}

/// What one side did in one round.
#[derive(Clone, Copy)]
pub struct Sample {
    pub per_s: f64,
    pub cpu_ns: f64,
}

/// Runs the library and its bare loop in each round, one after the other, in an order that alternates.
pub fn in_rounds(
    extent: Extent,
    library: impl Fn() -> Sample,
    bare: impl Fn() -> Sample,
) -> Vec<(Sample, Sample)> {
    let pair = |round| match round % 2 {
        0 => {
            let library = library();
            (library, bare())
        }
        _ => {
            let bare = bare();
            (library(), bare)
        }
    };
    (0..extent.rounds).map(pair).collect()
}

/// What a side does that runs: `read` answers what it has done by now, and the CPU time that it used for it.
pub fn measure(extent: Extent, read: impl Fn() -> (u64, u64)) -> Sample {
    std::thread::sleep(extent.warm_up);
    let (before, cpu_before) = read();
    let start = Instant::now();
    let (after, cpu_after) = loop {
        std::thread::sleep(extent.measured);
        let (after, cpu_after) = read();
        if after > before {
            break (after, cpu_after);
        }
        // A moment may be too short on a machine that is busy with other things.
        assert!(start.elapsed() < PATIENCE, "nothing came");
    };
    let done = (after - before) as f64;
    Sample {
        per_s: done / start.elapsed().as_secs_f64(),
        cpu_ns: (cpu_after - cpu_before) as f64 / done,
    }
}

/// The quantile of what a function says of each pair.
pub fn quantile(pairs: &[(Sample, Sample)], q: f64, of: impl Fn(&(Sample, Sample)) -> f64) -> f64 {
    let mut values: Vec<f64> = pairs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}
