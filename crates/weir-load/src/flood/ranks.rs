//! A flood that several ranks make together: each has a run of its own at the server, with its own consent, and floods from
//! the same moment on.

use std::{sync::Arc, time::Duration};

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{
    FloodError, FloodReport, FloodSpec,
    report::{AnswersReport, EndedBy, Event, FloodFigures},
    run::flood_from,
};
use crate::{
    engine::Refusals,
    latency::Histogram,
    pacing::{Load, windows::WITHIN_MIN},
    ranks::course::{Course, Failed, Figures as _},
};

/// How long a rank waits at a start for the others, which ask their server and open their sockets meanwhile. A server gives
/// up on who does not start within 10 s of its consent.
const READY_WITHIN: Duration = Duration::from_secs(9);

/// A rank's share of a flood: of its rate and of its datagrams. Flows and generators are those of each rank.
///
/// # Errors
/// If there are fewer datagrams than ranks.
pub fn share(spec: &FloodSpec, rank: usize, ranks: usize) -> Result<FloodSpec, FloodError> {
    let (rank_number, count) = (rank as u64, ranks.max(1) as u64);
    if spec.datagrams.is_some_and(|datagrams| datagrams < count) {
        return Err(FloodError::Spec(format!(
            "fewer datagrams (--blockcount, --bytes) than ranks: give {count} or more"
        )));
    }
    let mut own = FloodSpec {
        load: match spec.load {
            Load::Paced { datagrams_per_s } => {
                Load::Paced { datagrams_per_s: datagrams_per_s / count as f64 }
            }
            Load::Saturation => Load::Saturation,
        },
        datagrams: spec.datagrams.map(|all| all / count + u64::from(rank_number < all % count)),
        // Each has a run of its own at the server.
        run: spec.run.wrapping_add(rank as u32),
        // The report of all has these.
        max_loss: None,
        interval: None,
        ..spec.clone()
    };
    if !own.ports.is_empty() {
        // Where there are more ports than flows of one rank, all get something.
        let first = rank.saturating_mul(own.flows_in_all()) % own.ports.len();
        own.ports.rotate_left(first);
    }
    own.check()?;
    Ok(own)
}

/// Does this rank's part of a flood, and gives the report of the whole at rank 0, nothing elsewhere. `spec` is that of the
/// whole.
///
/// # Errors
/// If rank 0 could not begin its part: then there is nothing to add the others' to.
pub fn flood_of_ranks(
    spec: &FloodSpec,
    course: &Arc<Course>,
    mut ready: impl FnMut(&[(&'static str, String)]),
) -> Result<Option<FloodReport>, FloodError> {
    let (rank, count) = (course.ranks().rank(), course.ranks().count());
    let own = share(spec, rank, count)?;
    let work = move |course: &Course, tell: &mut dyn FnMut(Vec<(&'static str, String)>)| {
        let mut start = || Ok(course.start(READY_WITHIN + own.warm_up)?);
        let report = flood_from(&own, course.stop(), &mut start, |event| match event {
            Event::Ready(settings) => tell(settings.to_vec()),
            Event::Interval(_) => {}
        });
        if report.as_ref().map_or(true, |report| report.failure.is_some()) {
            // Without it the others' figures are of another flood.
            course.stop().request(crate::StopReason::Failed);
        }
        report
    };
    let own = course.work(work, |settings| ready(&settings));
    let own = own.unwrap_or_else(|failed| Err(FloodError::Ranks(failed.message)));
    let mut counts = own.as_ref().map_or_else(|_| Vec::new(), counts);
    let outcome = match &own {
        Ok(report) if report.failure.is_none() => Ok(Some(figures(report, course))),
        Ok(report) => Err(Failed { message: report.failure.clone().unwrap_or_default() }),
        Err(error) => Err(Failed { message: error.to_string() }),
    };
    let Some(mut gathered) = course.gather(outcome, &mut counts) else { return Ok(None) };
    let failure = gathered.failure.take();
    let mut own = own.map_err(|error| match &failure {
        // What made it fail may have been another rank.
        Some(why) => FloodError::Ranks(why.clone()),
        None => error,
    })?;
    let of_all = gathered.summed.then_some(&counts[..]);
    own.max_loss_percent = spec.max_loss.map(|share| share * 100.0);
    own.load.offered_per_s = spec.load.datagrams_per_s();
    own.run = spec.run;
    own.of_ranks(course.report(gathered), of_all);
    own.failure = failure;
    if own.failure.is_some() {
        own.ended_by = EndedBy::Failure;
    }
    Ok(Some(own))
}

fn figures(report: &FloodReport, course: &Course) -> FloodFigures {
    FloodFigures {
        run: report.run,
        offered: report.offered,
        sent: report.sent,
        refused: report.refused,
        refusals: report.refusals,
        late_skipped: report.late_skipped,
        sent_per_s: report.sent_per_s,
        sent_per_flow: report.sent_per_flow.clone(),
        warm_up_sent: report.warm_up_sent,
        began_ns: course.at_rank_0(report.started_ns),
        elapsed_ns: report.elapsed_ns,
        windows: report.windows,
        windows_within: report.windows_within,
        cpu_ns: report.cpu_ns,
        process_cpu_ns: report.process_cpu_ns,
        received: report.received,
        lost_packets: report.lost_packets,
        ended_by: report.ended_by,
        report: report.report.clone(),
    }
}

/// How many counts of answers come before those of the round trips.
const ANSWER_COUNTS: usize = 15;

/// What is added up by a reduction: the answers, with all their round trips.
fn counts(report: &FloodReport) -> Vec<u64> {
    let Some(answers) = &report.answers else { return Vec::new() };
    let dropped = answers.dropped_socket;
    let counts: [u64; ANSWER_COUNTS] = [
        answers.answered,
        answers.answered_in_time,
        answers.missing,
        answers.given_up,
        answers.received,
        answers.duplicates,
        answers.reordered,
        answers.wrong_size,
        answers.corrupt,
        answers.forged,
        answers.strangers,
        dropped.unwrap_or(0),
        // Ranks that cannot tell.
        dropped.is_none().into(),
        answers.waiting_ns,
        // Ranks with wrong answers.
        answers.data_errors.into(),
    ];
    counts.into_iter().chain(answers.round_trip_histogram.counts()).collect()
}

fn answers_of(counts: &[u64], own: AnswersReport, elapsed_ns: u64) -> AnswersReport {
    let Some((counts, round_trips)) = counts.split_first_chunk::<ANSWER_COUNTS>() else {
        return own;
    };
    let [
        answered,
        answered_in_time,
        missing,
        given_up,
        received,
        duplicates,
        reordered,
        wrong_size,
        corrupt,
        forged,
        strangers,
        dropped,
        cannot_tell,
        waiting_ns,
        wrong,
    ] = *counts;
    let round_trip_histogram = Histogram::of_counts(round_trips);
    AnswersReport {
        answered,
        answered_in_time,
        answers_per_s: answered_in_time as f64 * 1e9 / elapsed_ns.max(1) as f64,
        missing,
        given_up,
        received,
        duplicates,
        reordered,
        wrong_size,
        corrupt,
        forged,
        strangers,
        dropped_socket: (cannot_tell == 0).then_some(dropped),
        data_errors: wrong > 0,
        waiting_ns,
        round_trip_ns: round_trip_histogram.summary(),
        round_trip_histogram,
        ..own
    }
}

impl FloodReport {
    /// Makes the report of rank 0 that of all.
    fn of_ranks(
        &mut self,
        ranks: crate::ranks::course::RanksReport<FloodFigures>,
        counts: Option<&[u64]>,
    ) {
        let of = || ranks.each.iter().filter_map(|rank| rank.figures.as_ref());
        let sum = |count: fn(&FloodFigures) -> u64| of().map(count).sum::<u64>();
        let known = |count: fn(&FloodFigures) -> Option<u64>| of().map(count).sum::<Option<u64>>();
        if of().next().is_some() {
            (self.offered, self.sent) = (sum(|it| it.offered), sum(|it| it.sent));
            self.refusals = Refusals::default();
            of().for_each(|it| self.refusals.merge(&it.refusals));
            self.refused = self.refusals.total();
            self.late_skipped = sum(|it| it.late_skipped);
            let began_ns = of().map(|it| it.began_ns).min().unwrap_or(0);
            let ended_ns = of().map(|it| it.began_and_ended_ns().1).max().unwrap_or(0);
            self.elapsed_ns = ended_ns.saturating_sub(began_ns).max(1);
            self.generators *= of().count();
            self.sent_per_flow = of().flat_map(|it| &it.sent_per_flow).copied().collect();
            self.flows = self.sent_per_flow.len();
            self.warm_up_sent = sum(|it| it.warm_up_sent);
            (self.windows, self.windows_within) =
                (known(|it| it.windows), known(|it| it.windows_within));
            self.cpu_ns = known(|it| it.cpu_ns);
            self.process_cpu_ns = known(|it| it.process_cpu_ns);
            (self.received, self.lost_packets) =
                (known(|it| it.received), known(|it| it.lost_packets));
        }
        let per_s = |count: u64| count as f64 * 1e9 / self.elapsed_ns.max(1) as f64;
        self.offered_per_s = per_s(self.offered);
        self.sent_per_s = per_s(self.sent);
        self.bits_per_second = self.sent_per_s * self.size_bytes as f64 * 8.0;
        self.pace_held = self
            .windows
            .zip(self.windows_within)
            .map(|(windows, within)| within as f64 >= WITHIN_MIN * windows as f64);
        self.cpu_ns_per_datagram =
            self.cpu_ns.filter(|_| self.sent > 0).map(|ns| ns as f64 / self.sent as f64);
        self.cpu_utilization_percent = self
            .cpu_ns
            .map(|ns| 100.0 * ns as f64 / (self.elapsed_ns as f64 * self.generators.max(1) as f64));
        self.lost_percent = self.lost_packets.map(|lost| match self.sent {
            0 => 0.0,
            sent => 100.0 * lost as f64 / sent as f64,
        });
        let elapsed_ns = self.elapsed_ns;
        self.answers =
            self.answers.take().map(|own| answers_of(counts.unwrap_or_default(), own, elapsed_ns));
        self.report = account_of_all(of().filter_map(|it| it.report.as_ref()));
        self.ranks = Some(ranks);
    }
}

/// How what is told of several runs becomes what is told of all.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// Of the datagrams of each: added up, where each tells.
    Sum,
    /// Of the server or its system, for all of them: looked at during nearly the same time, so the most is nearest to it.
    Most,
    /// The first of them.
    Least,
    /// So for all if for one.
    Any,
    /// So for all if for each.
    All,
    /// The same of each.
    First,
    /// A histogram of latencies, of which each tells where its clock is the server's.
    Merged,
}

/// What is told of all, by its name; what is not named here is of one run alone, as its number is, and left out.
const OF_SERVER: &[(&str, Rule)] = &[
    ("design", Rule::First),
    ("end_signalled", Rule::All),
    ("cut_short", Rule::First),
    ("runs", Rule::Most),
    ("other_runs", Rule::Most),
    ("threads_started", Rule::Most),
    ("threads_used", Rule::Most),
    ("slices_missing", Rule::Most),
];
/// The same of what was found in datagrams, as [`AuditReport::merge`](crate::audit::AuditReport::merge) has it.
const OF_AUDIT: &[(&str, Rule)] = &[
    ("received", Rule::Sum),
    ("bytes", Rule::Sum),
    ("lost", Rule::Sum),
    ("lost_is_lower_bound", Rule::Any),
    ("duplicates", Rule::Sum),
    ("reordered", Rule::Sum),
    ("wrong_size", Rule::Sum),
    ("bodies_checked", Rule::Sum),
    ("corrupt", Rule::Sum),
    ("corrupt_bodies", Rule::Sum),
    // Of no run that could be known: all runs count each of them.
    ("corrupt_headers", Rule::Most),
    ("strangers", Rule::Most),
    ("unknown_flow", Rule::Sum),
    ("warm_up", Rule::Sum),
    ("unstamped", Rule::Sum),
    ("untracked", Rule::Sum),
    ("clock_disagreements", Rule::Sum),
    ("first_ns", Rule::Least),
    ("last_ns", Rule::Most),
    ("data_errors", Rule::Any),
    (LATENCIES, Rule::Merged),
];
/// Whose percentiles are those of all.
const LATENCIES: &str = "latency_histogram";
/// The same of the server's system.
const OF_SYSTEM: &[(&str, Rule)] = &[
    ("cpu_ns", Rule::Most),
    ("context_switches", Rule::Most),
    ("interrupts", Rule::Most),
    ("dropped_device", Rule::Most),
    ("dropped_cpu_queue", Rule::Most),
    ("dropped_socket", Rule::Most),
    ("dropped_socket_source", Rule::First),
    ("queued_bytes", Rule::Most),
    ("no_port", Rule::Most),
    ("delivered", Rule::Most),
    ("resident_bytes", Rule::Most),
    ("kernel_bytes", Rule::Most),
];

impl Rule {
    /// None where nobody tells, or not all that would have to.
    fn of(self, values: &[Option<&Value>]) -> Option<Value> {
        let known = || values.iter().flatten().copied();
        let counts = || known().filter_map(Value::as_u64);
        let flags = || known().filter_map(Value::as_bool);
        match self {
            Self::Sum => {
                let each = values.iter().map(|value| value.and_then(Value::as_u64));
                let sum = each.reduce(|one, another| Some(one?.saturating_add(another?)));
                sum.flatten().map(Value::from)
            }
            Self::Most => counts().max().map(Value::from),
            Self::Least => counts().min().map(Value::from),
            Self::Any => flags().reduce(|one, another| one | another).map(Value::from),
            Self::All => flags().reduce(|one, another| one & another).map(Value::from),
            Self::First => known().next().cloned(),
            Self::Merged => {
                let each = values.iter().map(|value| Histogram::deserialize((*value)?).ok());
                let all = each.reduce(|one, another| {
                    let mut both = one?;
                    both.merge(&another?);
                    Some(both)
                });
                serde_json::to_value(all.flatten()?).ok()
            }
        }
    }
}

/// What the server reported of all runs, each by the rule of its name. It may be an audit alone.
fn account_of_all<'a>(accounts: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let accounts: Vec<&Value> = accounts.filter(|account| account.is_object()).collect();
    if accounts.is_empty() {
        return None;
    }
    let part = |name: &str| accounts.iter().map(|account| account.get(name)).collect::<Vec<_>>();
    let whole: Vec<Option<&Value>> = accounts.iter().copied().map(Some).collect();
    let mut all = of_all(&whole, OF_SERVER);
    all.append(&mut with_figures(of_all(&whole, OF_AUDIT)));
    for (name, of_part) in [
        ("audit", with_figures(of_all(&part("audit"), OF_AUDIT))),
        ("system", of_all(&part("system"), OF_SYSTEM)),
    ] {
        if !of_part.is_empty() {
            all.insert(name.into(), of_part.into());
        }
    }
    Some(all.into())
}

fn of_all<'a>(each: &[Option<&'a Value>], rules: &[(&str, Rule)]) -> Map<String, Value> {
    let by_rule = |(name, rule): &(&str, Rule)| {
        let of_one = |one: &Option<&'a Value>| one.and_then(|one| one.get(*name));
        let values: Vec<_> =
            each.iter().map(|one| of_one(one).filter(|value| !value.is_null())).collect();
        Some(((*name).to_owned(), rule.of(&values)?))
    };
    rules.iter().filter_map(by_rule).collect()
}

/// With the rate from the first datagram of all to the last, and the figures of the latencies of all.
fn with_figures(mut audit: Map<String, Value>) -> Map<String, Value> {
    let count = |name: &str| audit.get(name).and_then(Value::as_u64);
    if let (Some(received), Some(first_ns), Some(last_ns)) =
        (count("received"), count("first_ns"), count("last_ns"))
        && last_ns > first_ns
    {
        let per_s = received as f64 * 1e9 / (last_ns - first_ns) as f64;
        audit.insert("received_per_s".into(), per_s.into());
    }
    let latencies = audit.get(LATENCIES).and_then(|all| Histogram::deserialize(all).ok());
    if let Some(Ok(summary)) = latencies.and_then(|all| all.summary()).map(serde_json::to_value) {
        audit.insert("latency_ns".into(), summary);
    }
    audit
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::Ipv4Addr;

    fn spec() -> FloodSpec {
        FloodSpec { ports: vec![1, 2, 3], ..FloodSpec::new(Ipv4Addr::LOCALHOST.into()) }
    }

    #[test]
    fn rate_and_datagrams_are_divided_and_none_is_lost() {
        let whole = FloodSpec {
            load: Load::Paced { datagrams_per_s: 900.0 },
            datagrams: Some(10),
            flows: 3,
            max_loss: Some(0.5),
            ..spec()
        };
        let shares: Vec<_> = (0..3).map(|rank| share(&whole, rank, 3).unwrap()).collect();
        let datagrams: Vec<_> = shares.iter().map(|share| share.datagrams.unwrap()).collect();
        assert_eq!(datagrams, [4, 3, 3]);
        for (rank, share) in (0..).zip(&shares) {
            assert_eq!(share.load.datagrams_per_s(), Some(300.0));
            assert_eq!((share.run, share.max_loss), (whole.run.wrapping_add(rank), None));
        }
        let error = share(&FloodSpec { datagrams: Some(2), ..whole }, 0, 3).unwrap_err();
        assert!(error.to_string().contains("fewer datagrams"), "{error}");
    }

    #[test]
    fn ports_are_taken_in_turn_over_all_ranks() {
        let whole = FloodSpec { ports: vec![1, 2, 3, 4], flows: 4, ..spec() };
        assert_eq!(share(&whole, 1, 2).unwrap().ports, [1, 2, 3, 4]);
        let whole = FloodSpec { ports: vec![1, 2, 3], flows: 4, ..spec() };
        assert_eq!(share(&whole, 1, 2).unwrap().ports, [2, 3, 1]);
    }

    #[test]
    fn accounts_are_added_up_and_the_systems_counts_are_not_counted_twice() {
        let account = |received: u64, dropped: u64, wrong: bool| {
            json!({
                "received": received,
                "data_errors": wrong,
                "audit": { "received": received, "latency_ns": { "p50": 5 }, "data_errors": wrong },
                "system": { "dropped_socket": dropped, "dropped_socket_source": "all" },
            })
        };
        let all = [account(5, 7, false), account(6, 8, true)];
        let whole = account_of_all(all.iter()).unwrap();
        assert_eq!(
            whole,
            json!({
                "received": 11,
                "data_errors": true,
                "audit": { "received": 11, "data_errors": true },
                "system": { "dropped_socket": 8, "dropped_socket_source": "all" },
            })
        );
        assert_eq!(account_of_all([].into_iter()), None);
    }

    #[test]
    fn latencies_of_all_are_one_distribution_where_each_tells_its_own() {
        let account = |latencies: Value| json!({ "audit": { "received": 1, "latency_histogram": latencies } });
        let told = [account(json!([[5, 3], [7, 1]])), account(json!([[7, 1], [90, 5]]))];
        let audit = &account_of_all(told.iter()).unwrap()["audit"];
        assert_eq!(audit["latency_histogram"], json!([[5, 3], [7, 2], [90, 5]]));
        let latency = &audit["latency_ns"];
        assert_eq!(
            [&latency["n"], &latency["p50"], &latency["max"]],
            [&json!(10), &json!(7), &json!(90)]
        );
        // One has another clock than the server's.
        let not_told = [told[0].clone(), json!({ "audit": { "received": 1 } })];
        let audit = &account_of_all(not_told.iter()).unwrap()["audit"];
        assert!(audit["latency_ns"].is_null() && audit["latency_histogram"].is_null());
    }

    #[test]
    fn what_is_not_a_count_of_datagrams_is_not_added_up() {
        let account = |run: u64, received: u64, first_ns: u64, lost: Value, signalled: bool| {
            json!({
                "design": "epoll", "runs": run, "threads_used": 4, "end_signalled": signalled,
                "audit": {
                    "run": run, "received": received, "lost": lost, "strangers": 3, "corrupt_headers": 2,
                    "first_ns": first_ns, "last_ns": first_ns + 1_000_000_000, "latency_every": 16,
                    "received_per_s": received as f64,
                },
            })
        };
        let all =
            [account(7, 500, 0, json!(1), true), account(8, 1500, 1_000_000_000, json!(2), false)];
        assert_eq!(
            account_of_all(all.iter()).unwrap(),
            json!({
                "design": "epoll", "runs": 8, "threads_used": 4, "end_signalled": false,
                "audit": {
                    "received": 2000, "lost": 3, "strangers": 3, "corrupt_headers": 2,
                    "first_ns": 0, "last_ns": 2_000_000_000u64, "received_per_s": 1000.0,
                },
            })
        );
        let unknown = [all[0].clone(), account(9, 1, 0, Value::Null, true)];
        assert_eq!(account_of_all(unknown.iter()).unwrap()["audit"].get("lost"), None);
    }
}
