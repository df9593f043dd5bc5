//! What the benchmarks share: how often and how long each side runs, what it used, and how a pair is
//! printed.

mod threads;

pub use threads::cpu_ns_of_threads;

use std::time::Duration;

/// How often and how long each side runs.
#[derive(Clone, Copy)]
pub struct Extent {
    pub says_of_speed: bool,
    pub rounds: usize,
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Extent {
    /// `cargo bench` says `--bench`; without, it is a test.
    pub fn asked() -> Self {
        let given = |flag: &str| std::env::args().any(|argument| argument == flag);
        let (warm_up, measured) = (Duration::from_millis(100), Duration::from_millis(400));
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

/// What one side did in one round.
#[derive(Clone, Copy)]
pub struct Sample {
    pub per_s: f64,
    pub cpu_ns: f64,
}

/// The quantile of what a function says of each pair.
pub fn quantile(pairs: &[(Sample, Sample)], q: f64, of: impl Fn(&(Sample, Sample)) -> f64) -> f64 {
    let mut values: Vec<f64> = pairs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}
