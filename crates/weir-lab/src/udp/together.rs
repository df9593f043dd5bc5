//! What several generators did together, as one report.
//!
//! Counts are added up. Round trips are merged as histograms, whose percentiles are those of all of them; percentiles are
//! never averaged. What is a time of one clock is told in that of rank 0 first.

use weir_load::latency::Histogram;
use weir_load::ranks::clocks::Offset;

use crate::wire::{Answers, FloodReport, Latency, Together};

/// What a generator did, and how its clock stands to that of rank 0.
pub struct Part {
    /// Its report.
    pub report: FloodReport,
    /// Its clock.
    pub clock: Offset,
    /// How much later than the first it was to begin, in ns.
    pub later_ns: u64,
}

/// All of them as one; `None` of none.
pub fn merged(parts: &[Part]) -> Option<FloodReport> {
    let (first, others) = parts.split_first()?;
    let mut all = first.report.clone();
    for Part { report, .. } in others {
        add(&mut all, report);
    }
    let began = |part: &Part| part.clock.here(part.report.started_ns);
    let ended = |part: &Part| began(part).saturating_add(part.report.elapsed_ns);
    let first_ns = parts.iter().map(began).min()?;
    let last_ns = parts.iter().map(ended).max()?;
    // As each was to begin at its own time, what differs from that is the skew.
    let due = |part: &Part| began(part).saturating_sub(part.later_ns);
    let (earliest_ns, latest_ns) = (parts.iter().map(due).min()?, parts.iter().map(due).max()?);
    all.started_ns = first_ns;
    all.elapsed_ns = last_ns.saturating_sub(first_ns);
    if let Some(answers) = &mut all.answers {
        let each = parts.iter().filter_map(|part| part.report.answers.as_ref());
        *answers = answers_of(each.collect());
    }
    all.together = Some(Together {
        skew_ns: latest_ns.saturating_sub(earliest_ns),
        skew_uncertainty_ns: parts.iter().map(|part| part.clock.uncertainty_ns).max()?,
        over_network: false,
        send_dropped: None,
        one_way: None,
    });
    // Each tells of its own run; the server's report is of all.
    all.report = None;
    Some(all)
}

fn add(all: &mut FloodReport, one: &FloodReport) {
    let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    all.offered += one.offered;
    all.sent += one.sent;
    all.refused += one.refused;
    all.late_skipped += one.late_skipped;
    all.cpu_ns = both(all.cpu_ns, one.cpu_ns);
    all.process_cpu_ns = both(all.process_cpu_ns, one.process_cpu_ns);
    all.windows = both(all.windows, one.windows);
    all.windows_within = both(all.windows_within, one.windows_within);
    all.generators += one.generators;
    if all.engine != one.engine {
        let names = [&all.engine, &one.engine].map(|name| name.as_deref().unwrap_or("unknown"));
        if !names[0].split(", ").any(|name| name == names[1]) {
            all.engine = Some(names.join(", "));
        }
    }
    if one.answers.is_none() {
        all.answers = None;
    }
}

fn answers_of(parts: Vec<&Answers>) -> Answers {
    let sum = |of: fn(&Answers) -> u64| parts.iter().map(|part| of(part)).sum::<u64>();
    let mut histogram = Histogram::default();
    for part in &parts {
        histogram.extend(part.round_trip_histogram.iter().copied());
    }
    Answers {
        outstanding: parts.first().and_then(|part| part.outstanding),
        answered: sum(|part| part.answered),
        answers_per_s: parts.iter().map(|part| part.answers_per_s).sum(),
        missing: sum(|part| part.missing),
        given_up: sum(|part| part.given_up),
        duplicates: sum(|part| part.duplicates),
        wrong_size: sum(|part| part.wrong_size),
        corrupt: sum(|part| part.corrupt),
        forged: sum(|part| part.forged),
        strangers: sum(|part| part.strangers),
        dropped_socket: parts.iter().map(|part| part.dropped_socket).sum(),
        waiting_ns: sum(|part| part.waiting_ns),
        round_trip_ns: histogram.summary().as_ref().map(Latency::from),
        round_trip_histogram: histogram.recorded().collect(),
    }
}

/// The part that one of several has of a number: as even as whole numbers can be, the first ones the most.
pub fn share(all: u64, index: usize, of: usize) -> u64 {
    let (index, of) = (index as u64, (of as u64).max(1));
    all / of + u64::from(index < all % of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(sent: u64, started_ns: u64, offset_ns: i64) -> Part {
        let report = FloodReport {
            offered: sent + 1,
            sent,
            refused: 1,
            started_ns,
            elapsed_ns: 1000,
            cpu_ns: Some(10),
            generators: 1,
            engine: Some("gso".into()),
            ..FloodReport::default()
        };
        Part { report, clock: Offset { offset_ns, uncertainty_ns: 7 }, later_ns: 0 }
    }

    #[test]
    fn counts_are_added_and_times_are_of_one_clock() {
        let mut parts = [part(5, 10_500, 500), part(7, 9050, -1000), part(1, 20_000, 9900)];
        parts[1].report.engine = Some("send".into());
        parts[2].report.cpu_ns = None;
        parts[2].later_ns = 40;
        let all = merged(&parts).unwrap();
        assert_eq!((all.offered, all.sent, all.refused, all.generators), (16, 13, 3, 3));
        // They began at 10000, 10050 and 10100 by the clock of rank 0, the last of them 40 later on purpose.
        assert_eq!((all.started_ns, all.elapsed_ns), (10_000, 1100));
        let together = all.together.unwrap();
        assert_eq!((together.skew_ns, together.skew_uncertainty_ns), (60, 7));
        assert_eq!((all.cpu_ns, all.engine.as_deref()), (None, Some("gso, send")));
        assert_eq!(merged(&[]), None);
    }

    #[test]
    fn a_part_without_answers_leaves_none_for_all() {
        let mut parts = [part(5, 0, 0), part(5, 0, 0)];
        parts[0].report.answers = Some(Answers::default());
        assert_eq!(merged(&parts).unwrap().answers, None);
    }

    proptest! {
        #[test]
        fn merged_percentiles_are_those_of_all_samples_in_one_histogram(
            each in proptest::collection::vec(
                proptest::collection::vec(1u64..10_000_000_000, 1..200), 1..5
            )
        ) {
            let histogram = |samples: &[u64]| {
                let mut histogram = Histogram::default();
                histogram.extend(samples.iter().map(|ns| (*ns, 1)));
                histogram
            };
            let answers: Vec<Answers> = each
                .iter()
                .map(|samples| Answers {
                    answered: samples.len() as u64,
                    round_trip_histogram: histogram(samples).recorded().collect(),
                    ..Answers::default()
                })
                .collect();
            let all = answers_of(answers.iter().collect());
            let samples: Vec<u64> = each.concat();
            let one = histogram(&samples).summary().unwrap();
            prop_assert_eq!(all.answered, samples.len() as u64);
            prop_assert_eq!(all.round_trip_ns, Some(Latency::from(&one)));
        }

        #[test]
        fn shares_add_up_and_are_even(all in 0u64..1 << 40, of in 1usize..70) {
            let shares: Vec<u64> = (0..of).map(|index| share(all, index, of)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), all);
            prop_assert!(shares[0] - shares[of - 1] <= 1);
        }
    }
}
