//! A flood that several ranks make together: each has a run of its own at the server, with its own consent, and floods from
//! the same moment on.

use std::{sync::Arc, time::Duration};

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
    let own = own.unwrap_or_else(|| Err(FloodError::Panicked("it was ended".into())));
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

/// What the server reported of all runs: counts added up, except those of its system, which were looked at during the same
/// time for each of them. Latencies are left out: each is that of one run.
fn account_of_all<'a>(accounts: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let mut whole: Option<Map<String, Value>> = None;
    for account in accounts.filter_map(Value::as_object) {
        let whole = whole.get_or_insert_default();
        add_up(whole, account, |one, another| one.saturating_add(another));
        for (name, add) in [
            ("audit", u64::saturating_add as fn(u64, u64) -> u64),
            ("system", u64::max as fn(u64, u64) -> u64),
        ] {
            let Some(part) = account.get(name).and_then(Value::as_object) else { continue };
            let sum = whole.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Some(sum) = sum.as_object_mut() {
                add_up(sum, part, add);
            }
        }
    }
    whole.map(Value::Object)
}

/// Puts the counts and flags of one object to those of another; of texts the first stays.
fn add_up(sum: &mut Map<String, Value>, part: &Map<String, Value>, add: impl Fn(u64, u64) -> u64) {
    for (name, value) in part {
        let both = match (sum.get(name), value) {
            (None, Value::Number(_) | Value::Bool(_) | Value::String(_)) => value.clone(),
            (Some(Value::Bool(one)), Value::Bool(another)) => (*one || *another).into(),
            (Some(one), another) => match (one.as_u64(), another.as_u64()) {
                (Some(one), Some(another)) => add(one, another).into(),
                _ => continue,
            },
            _ => continue,
        };
        sum.insert(name.clone(), both);
    }
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
}
