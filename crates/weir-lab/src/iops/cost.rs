//! What taking latencies costs: the same reads with and without, interleaved.

use super::{Spec, Window, measure::Timed, per_s};
use crate::{
    stats::random::{Random, fresh_seed},
    stats::{Estimate, bootstrap},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use weir::{Error, device::Handler};
use weir_load::Stop;

/// Pairs of runs.
pub const PAIRS: usize = 9;

/// Of each run so long is left out, and so long measured.
const WARM_UP: Duration = Duration::from_millis(50);
const MEASURED: Duration = Duration::from_millis(250);

/// Readings of the clock by which it is known how long one takes: some ten microseconds in all.
const READINGS: u32 = 512;

/// The share (0 to 1) of an I/O's CPU time, or of its thread's time where that is not known, that goes into
/// reading the clock twice for each I/O that is timed, by what a reading takes now. `None` where none is timed,
/// or none was seen.
pub(super) fn share_of_clock(sample_every: u32, threads: usize, window: &Window) -> Option<f64> {
    if sample_every == 0 || window.completed == 0 {
        return None;
    }
    let began = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    let reading_ns = began.elapsed().as_nanos() as f64 / f64::from(READINGS);
    // What an I/O takes of a thread that issues one after the other.
    let elapsed_ns = window
        .cpu_ns_per_io
        .unwrap_or_else(|| window.elapsed_ns as f64 * threads as f64 / window.completed as f64);
    (elapsed_ns > 0.0).then(|| 2.0 * reading_ns / f64::from(sample_every) / elapsed_ns)
}

/// How many times as fast the reads are with latencies taken as without: the median of [`PAIRS`] pairs,
/// each in random order, with its 95 % interval. `None` where it was stopped before there was a pair.
///
/// # Errors
/// Whatever fails before the first I/O of a run, or in it.
pub fn sampling_cost(spec: &Spec, stop: &Stop) -> Result<Option<Estimate>, Error> {
    let seed = fresh_seed();
    let mut random = Random::seeded(seed);
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let mut pair = [None, None];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for side in order {
            if stop.is_requested() {
                return Ok(bootstrap::paired_ratio(&pairs, 0.95, seed));
            }
            let sample_every = if side == 0 { spec.sample_every } else { 0 };
            // Whoever notes latencies is there on both sides.
            let run = Spec { sample_every, ios: None, ..spec.clone() };
            pair[side] = Some(rate(&run, |_| Timed::new(Arc::default()))?);
        }
        if let [Some(with), Some(without)] = pair {
            pairs.push((with, without));
        }
    }
    Ok(bootstrap::paired_ratio(&pairs, 0.95, seed))
}

/// I/Os per second of a short run.
fn rate<H: Handler>(
    spec: &Spec,
    handlers: impl FnMut(usize) -> H + Send + 'static,
) -> Result<f64, Error> {
    let running = spec.reads().start(spec.design.clone(), handlers)?;
    running.wait(WARM_UP);
    let (first, began) = (running.counters().completed, Instant::now());
    running.wait(MEASURED);
    let (last, elapsed) = (running.counters().completed, began.elapsed());
    match running.stop().failure {
        Some(failure) => Err(failure),
        None => Ok(per_s(last - first, elapsed.as_nanos() as u64)),
    }
}
