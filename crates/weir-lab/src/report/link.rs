//! What a comparison on a link of its own says beside the rest: what receiving frames past the kernel
//! saves the thread that receives.

use crate::plan::Row;
use crate::report::number::percent;
use crate::results::{CONFIDENCE, Results};
use crate::sample::THREADS_CPU;
use crate::stats::{Estimate, bootstrap, compare};

/// What the receiving threads spend on a datagram: the row on frames that spends least, to the row on
/// sockets that does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// The row on frames.
    pub frames: usize,
    /// The row on sockets.
    pub sockets: usize,
    /// CPU time of the receiving threads for a datagram, on frames and on sockets, in nanoseconds.
    pub cpu_ns: [f64; 2],
    /// The first to the second: the median over pairs of runs of one round, with its interval.
    pub ratio: Option<Estimate>,
}

/// The saving under a load, where both kinds of rows have figures that are right.
pub fn saving(results: &Results, load: usize) -> Option<Saving> {
    results.link.as_ref()?;
    let cpu =
        |row: usize| Some(results.cells[load][row].estimate(&THREADS_CPU, results.seed)?.median);
    let least = |wanted: fn(&Row) -> bool| {
        let rows = (0..results.rows.len()).filter(|row| wanted(&results.rows[*row]));
        let right = rows.filter(|row| !results.is_invalid(load, *row));
        let known = right.filter_map(|row| Some((row, cpu(row)?)));
        known.min_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let on_frames = |row: &Row| row.shown_provider().is_some_and(|name| name.starts_with("xdp"));
    let (frames, on_frames_ns) = least(on_frames)?;
    let (sockets, on_sockets_ns) =
        least(|row| row.shown_provider().is_some_and(|name| !name.starts_with("xdp")))?;
    let readings = |row: usize| results.cells[load][row].readings(&THREADS_CPU);
    let pairs = compare::pair(&readings(frames), &readings(sockets)).pairs;
    let ratio = bootstrap::paired_ratio(&pairs, CONFIDENCE, results.seed);
    Some(Saving { frames, sockets, cpu_ns: [on_frames_ns, on_sockets_ns], ratio })
}

/// The same in words.
pub fn sentence(results: &Results, load: usize) -> Option<String> {
    let Saving { frames, sockets, cpu_ns: [on_frames, on_sockets], ratio } = saving(results, load)?;
    let interval = ratio.and_then(|ratio| ratio.interval).map_or_else(
        || ", from too few rounds for an interval".to_owned(),
        |interval| format!(" ({} to {})", percent(interval.low), percent(interval.high)),
    );
    let share = ratio.map_or(on_frames / on_sockets, |ratio| ratio.median);
    Some(format!(
        "On this link the receiving thread of {} spends {on_frames:.0} ns of CPU time on a datagram, \
         {} of what that of {} does, the thriftiest on sockets{interval}; what the kernel does for it is \
         done where the device is served, here on the generator's core.",
        results.rows[frames],
        percent(share),
        results.rows[sockets],
    ))
}
