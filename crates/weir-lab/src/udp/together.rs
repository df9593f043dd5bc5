//! What several generators did together, as one report.
//!
//! Counts are added up. Round trips are merged as histograms, whose percentiles are those of all of them; percentiles are
//! never averaged. What is a time of one clock is told in that of rank 0 first. Whoever has the reports of some can merge them:
//! what comes of it is merged with those of others as if it were one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_load::latency::Histogram;
use weir_load::ranks::clocks::{Between, Offset};

use super::one_way::Taken;
use crate::child::ChildError;
use crate::wire::{Answers, Failure, FloodReport, FloodStatus, Latency, Together};

/// What a generator says at its end.
///
/// # Errors
/// If it is no report, or one of failure.
pub fn report_of(document: Value) -> Result<FloodReport, ChildError> {
    let garbage = |error: serde_json::Error| ChildError::Garbage {
        name: "the generator",
        what: "report",
        problem: error.to_string(),
    };
    let status: FloodStatus = serde_json::from_value(document.clone()).map_err(garbage)?;
    match status.failure() {
        Some(message) => Err(ChildError::Reported(Failure { unavailable: false, message })),
        None => serde_json::from_value(document).map_err(garbage),
    }
}

/// What a generator did, and how its clock stands to that of rank 0.
pub struct Part {
    /// Its rank.
    pub rank: usize,
    /// Its report.
    pub report: FloodReport,
    /// Its clock.
    pub clock: Offset,
    /// How much later than the first it was to begin, in ns.
    pub later_ns: u64,
    /// Its clock before and after the run, as that of the server sees it, where one-way latencies were taken.
    pub of_server: Option<Between>,
}

/// What several did, by the clock of rank 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct All {
    /// Their counts and answers.
    pub report: FloodReport,
    /// When the first one began and the last one ended, in ns.
    ran_ns: (u64, u64),
    /// The same of the beginnings alone. As each was to begin at its own time, they are told without that: what differs is the
    /// skew.
    due_ns: (u64, u64),
    /// How wrong the clock of any of them may be, in ns.
    clock_uncertainty_ns: u64,
    /// One-way latencies, where they were taken.
    taken: Option<Taken>,
}

impl From<Part> for All {
    fn from(part: Part) -> Self {
        let Part { rank, mut report, clock, later_ns, of_server } = part;
        let began_ns = clock.here(report.started_ns);
        let due_ns = began_ns.saturating_sub(later_ns);
        let taken = of_server.map(|clock| Taken::of(rank, clock, &report));
        // Each tells of its own run; the server's report is of all.
        report.report = None;
        Self {
            ran_ns: (began_ns, began_ns.saturating_add(report.elapsed_ns)),
            report,
            due_ns: (due_ns, due_ns),
            clock_uncertainty_ns: clock.uncertainty_ns,
            taken,
        }
    }
}

impl All {
    /// With what others did.
    pub fn add(&mut self, others: Self) {
        let around = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
        add(&mut self.report, &others.report);
        self.ran_ns = around(self.ran_ns, others.ran_ns);
        self.due_ns = around(self.due_ns, others.due_ns);
        self.clock_uncertainty_ns = self.clock_uncertainty_ns.max(others.clock_uncertainty_ns);
        self.taken = self.taken.take().zip(others.taken).map(|(own, others)| own.and(others));
    }

    /// All of them as one.
    pub fn into_report(self) -> FloodReport {
        let Self { mut report, ran_ns: (first_ns, last_ns), due_ns, .. } = self;
        report.started_ns = first_ns;
        report.elapsed_ns = last_ns.saturating_sub(first_ns);
        report.together = Some(Together {
            skew_ns: due_ns.1.saturating_sub(due_ns.0),
            skew_uncertainty_ns: self.clock_uncertainty_ns,
            over_network: false,
            send_dropped: None,
            one_way: self.taken.map(Taken::told),
        });
        report
    }
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
        let mut known: Vec<&str> = names[0].split(", ").collect();
        for name in names[1].split(", ") {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        all.engine = Some(known.join(", "));
    }
    all.answers = match (&all.answers, &one.answers) {
        (Some(all), Some(one)) => Some(answers_of(&[all, one])),
        _ => None,
    };
}

fn answers_of(parts: &[&Answers]) -> Answers {
    let sum = |of: fn(&Answers) -> u64| parts.iter().map(|part| of(part)).sum::<u64>();
    let mut histogram = Histogram::default();
    for part in parts {
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
        let clock = Offset { offset_ns, uncertainty_ns: 7 };
        Part { rank: 0, report, clock, later_ns: 0, of_server: None }
    }

    fn merged(parts: impl IntoIterator<Item = Part>) -> FloodReport {
        let all = parts.into_iter().map(All::from).reduce(|mut all, one| {
            all.add(one);
            all
        });
        all.expect("one at least").into_report()
    }

    #[test]
    fn counts_are_added_and_times_are_of_one_clock() {
        let mut parts = [part(5, 10_500, 500), part(7, 9050, -1000), part(1, 20_000, 9900)];
        parts[1].report.engine = Some("send".into());
        parts[2].report.cpu_ns = None;
        parts[2].later_ns = 40;
        let all = merged(parts);
        assert_eq!((all.offered, all.sent, all.refused, all.generators), (16, 13, 3, 3));
        // They began at 10000, 10050 and 10100 by the clock of rank 0, the last of them 40 later on purpose.
        assert_eq!((all.started_ns, all.elapsed_ns), (10_000, 1100));
        let together = all.together.unwrap();
        assert_eq!((together.skew_ns, together.skew_uncertainty_ns), (60, 7));
        assert_eq!((all.cpu_ns, all.engine.as_deref()), (None, Some("gso, send")));
    }

    #[test]
    fn what_was_merged_is_merged_with_others_as_one() {
        let parts = || {
            let mut parts = [part(5, 10_500, 500), part(7, 9050, -1000), part(1, 20_000, 9900)];
            for (part, engine) in parts.iter_mut().zip(["a", "b", "a"]) {
                part.report.engine = Some(engine.into());
                part.of_server = Some(Between::default());
                let answers = Answers { answered: 1, ..Answers::default() };
                let round_trip_histogram = vec![(part.report.sent, 2)];
                part.report.answers = Some(Answers { round_trip_histogram, ..answers });
            }
            parts.map(All::from)
        };
        let [mut first, second, third] = parts();
        first.add(second);
        first.add(third);
        let [mut other, mut below, last] = parts();
        below.add(last);
        // As it is told from rank to rank.
        let told = serde_json::to_string(&below).unwrap();
        other.add(serde_json::from_str(&told).unwrap());
        assert_eq!(first.into_report(), other.into_report());
    }

    #[test]
    fn a_part_without_answers_leaves_none_for_all() {
        let mut parts = [part(5, 0, 0), part(5, 0, 0)];
        parts[0].report.answers = Some(Answers::default());
        assert_eq!(merged(parts).answers, None);
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
            let all = answers_of(&answers.iter().collect::<Vec<_>>());
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
