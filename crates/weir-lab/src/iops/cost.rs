//! What taking latencies costs: the same reads with and without, interleaved.

use super::{Spec, measure::Timed, per_s};
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
    running.wait_for(WARM_UP);
    let (first, began) = (running.counters().completed, Instant::now());
    running.wait_for(MEASURED);
    let (last, elapsed) = (running.counters().completed, began.elapsed());
    match running.stop().failure {
        Some(failure) => Err(failure),
        None => Ok(per_s(last - first, elapsed.as_nanos() as u64)),
    }
}
