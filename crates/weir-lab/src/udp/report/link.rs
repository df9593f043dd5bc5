//! What a comparison on a link of its own says beside the rest: what receiving frames past the kernel
//! saves the thread that receives.

use crate::experiment::plan::{Role, Row};
use crate::report::number::percent;
use crate::stats::CONFIDENCE;
use crate::stats::{Estimate, bootstrap, compare};
use crate::udp::results::Results;
use crate::udp::sample::THREADS_CPU;

/// The provider on which another thread than those that receive copies the datagrams: what those spend is
/// not what a datagram costs.
const COPIED_ELSEWHERE: &str = "uring-sqpoll";
/// The provider on which the thread that receives serves the device.
const SERVES_DEVICE: &str = "xdp-busy-polled";

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

/// The saving under a load, where both kinds of rows have figures that are right and can be compared.
pub fn saving(results: &Results, load: usize) -> Option<Saving> {
    results.own.link.as_ref()?;
    let cpu =
        |row: usize| Some(results.cells[load][row].estimate(&THREADS_CPU, results.seed)?.median);
    let least = |wanted: fn(&Row) -> bool| {
        let rows = (0..results.rows.len()).filter(|row| wanted(&results.rows[*row]));
        let compared = rows.filter(|row| {
            let of = &results.rows[*row];
            let itself = !of.receive_offload && !matches!(of.role, Role::Again(_));
            itself && results.takes_part(load, *row) && results.unranked(load, *row).is_none()
        });
        let known = compared.filter_map(|row| Some((row, cpu(row)?)));
        known.min_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let on_frames = |row: &Row| row.shown_provider().is_some_and(|name| name.starts_with("xdp"));
    let (frames, on_frames_ns) = least(on_frames)?;
    let on_sockets = |row: &Row| {
        row.shown_provider()
            .is_some_and(|name| !name.starts_with("xdp") && name != COPIED_ELSEWHERE)
    };
    let (sockets, on_sockets_ns) = least(on_sockets)?;
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
    let polls = results.loads[load].busy_poll_us.is_some()
        || [frames, sockets]
            .into_iter()
            .any(|row| results.rows[row].shown_provider() == Some(SERVES_DEVICE));
    let elsewhere = match polls {
        true => "",
        false => {
            "; what the kernel does for it is done where the device is served, here on the \
             generator's core"
        }
    };
    Some(format!(
        "On this link the receiving thread of {} spends {on_frames:.0} ns of CPU time on a datagram, {} of what that \
         of {} spends, the thriftiest design on sockets{interval}{elsewhere}.",
        results.rows[frames],
        percent(share),
        results.rows[sockets],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::report::fixture;

    /// The fixture on a link: row 3 and, under another name, row 4 are on frames.
    fn on_a_link() -> Results {
        let mut results = fixture::results();
        results.own.link = Some("a pair of devices".into());
        for row in [3, 4] {
            results.rows[row].provider = Some("xdp".into());
        }
        results.rows[1].runs_on = Some("sockets".into());
        results
    }

    fn rows(results: &Results) -> Option<(usize, usize)> {
        saving(results, 0).map(|saving| (saving.frames, saving.sockets))
    }

    #[test]
    fn the_thriftiest_rows_that_can_be_compared_are_named() {
        assert_eq!(saving(&fixture::results(), 0), None, "on loopback there are no frames");
        let results = on_a_link();
        assert_eq!(rows(&results), Some((3, 2)), "itself, not its second name");
        let mut copied = on_a_link();
        copied.rows[2].provider = Some("uring-sqpoll".into());
        copied.rows[0].provider = Some("uring-sqpoll".into());
        assert_eq!(rows(&copied), Some((3, 1)), "those whose copies are made elsewhere are not");
        let mut offloaded = on_a_link();
        offloaded.rows[2].receive_offload = true;
        assert_eq!(rows(&offloaded), Some((3, 1)));
        let mut unranked = on_a_link();
        unranked.cells[0][2].of_another_machine = true;
        assert_eq!(rows(&unranked), Some((3, 1)));
    }

    #[test]
    fn the_core_of_the_generator_is_named_where_nobody_else_serves_the_device() {
        let said = |results: &Results| sentence(results, 0).unwrap();
        assert!(said(&on_a_link()).ends_with("here on the generator's core."));
        let mut polled = on_a_link();
        polled.rows[3].provider = Some("xdp-busy-polled".into());
        assert!(!said(&polled).contains("generator's core"), "{}", said(&polled));
        let mut polled = on_a_link();
        polled.loads[0].busy_poll_us = Some(50);
        assert!(!said(&polled).contains("generator's core"), "{}", said(&polled));
    }
}
