//! Who wins, by how much, why, and whether the difference is real: in a few sentences.

use crate::experiment::cell::{Better, Status};
use crate::experiment::ranking::{Lead, Ranking, no_ratio_because};
use crate::experiment::verdict::Limit;
use crate::report::Reported as _;
use crate::report::number::{microseconds, percent, si, whole};
use crate::report::sentences::{causes, is_worse, known, leads, neighbours, nobody, none, times};
use crate::report::words::{list, shortened};
use crate::stats::compare::Difference;
use crate::udp::results::{Results, Udp};
use crate::udp::sample::{
    BATCH_P50, CONTEXT_SWITCHES, CPU, KERNEL_ENTRIES, LATENCY_P50, LATENCY_P99,
};

/// The sentences for a load whose figure is datagrams per second.
pub fn of_throughput(
    results: &Results,
    load: usize,
    offloaded: bool,
    ranking: &Ranking,
) -> Vec<String> {
    let Some(winner) = ranking.winner() else {
        return vec![nobody(ranking, "", "figure")];
    };
    let traditional = results.measure();
    let one = Udp::one(&results.loads[load]);
    let rate = format!("{} {one}s/s", si(winner.median));
    let among = of_the_ranked(results, load, offloaded);
    let mut name = results.rows[winner.row].to_string();
    if traditional == Some(winner.row) {
        name.push_str(", the traditional design,");
    }
    let to_traditional = winner.to_traditional.zip(traditional);
    let against = to_traditional.map(|(difference, t)| {
        let cells = &results.cells[load];
        let because = || no_ratio_because(&cells[winner.row], &cells[t], results.ranked_by(load));
        against(&difference, &results.rows[t].to_string(), ranking.noise_floor, because)
    });
    let lead = leads(ranking, &name, among, &rate).unwrap_or_default();
    let mut said = vec![match against {
        Some(against) => format!("{lead}: {against}."),
        None => format!("{lead}."),
    }];
    said.extend(better_unranked(results, load, offloaded, winner.median));
    if let Some((Difference::Real(_), traditional)) = to_traditional {
        said.extend(why(results, load, winner.row, traditional));
    }
    said.extend(neighbours(results, load, ranking));
    let verdict = results.cells[load][winner.row].verdict();
    if let Some(verdict) = verdict.filter(|verdict| verdict.lower_bound) {
        let what = match verdict.limited_by {
            Limit::Generator => "the generator was the limit",
            Limit::Both => {
                "the generator could send no more, and the server received nearly everything"
            }
            Limit::Memory => "memory or a queue of the system was the limit",
            Limit::Server => "the server was busy, and lost nothing",
            Limit::Load => "the load was the limit",
            Limit::Others => "other programs had the cores",
            Limit::Unknown => "no limit was found",
        };
        said.push(format!("Its figure is a lower bound: {what} ({}).", verdict.reason));
    }
    said
}

/// The sentences for a burst, whose figure is what was taken of it.
pub fn of_burst(results: &Results, load: usize, ranking: &Ranking) -> Vec<String> {
    let Some(winner) = ranking.winner() else {
        return vec![nobody(ranking, "", "figure")];
    };
    let all =
        |row: usize| results.cells[load][row].ledger().is_some_and(|of| of.received >= of.sent);
    let taking_all: Vec<String> = ranking
        .places
        .iter()
        .filter(|place| all(place.row))
        .map(|place| results.rows[place.row].to_string())
        .collect();
    vec![match taking_all.as_slice() {
        [] => format!(
            "None took all of it; {} took most: {} datagrams.",
            results.rows[winner.row],
            whole(winner.median)
        ),
        names => format!("All of it was taken by {}.", list(&shortened(names.to_vec()))),
    }]
}

/// The sentences for a paced load, whose figure is the latency.
pub fn of_latency(
    results: &Results,
    load: usize,
    offloaded: bool,
    ranking: &Ranking,
) -> Vec<String> {
    if !results.compares(load) {
        return vec!["Each row had a rate of its own, so the latencies are not ranked.".into()];
    }
    let Some(winner) = ranking.winner() else {
        return vec![nobody(ranking, "", "latency")];
    };
    let figure = |metric| known(results.median(load, winner.row, metric), microseconds);
    let among = of_the_ranked(results, load, offloaded);
    let name = &results.rows[winner.row];
    let figures = format!("p50 {} µs, p99 {} µs", figure(&LATENCY_P50), figure(&LATENCY_P99));
    let mut said = vec![match ranking.lead() {
        None | Some(Lead::Only) => format!("{name} alone has a rank: {figures}."),
        Some(Lead::Alone) => format!("{name} has the lowest median latency{among}: {figures}."),
        Some(Lead::Shared) => {
            format!("{name} has one of the lowest median latencies{among}: {figures}.")
        }
        Some(Lead::NotShown) => format!(
            "{} is shown to have a lower median latency than the others; the lowest figure is {name}'s: \
             {figures}.",
            none("row", among)
        ),
    }];
    said.extend(better_unranked(results, load, offloaded, winner.median));
    said.extend(neighbours(results, load, ranking));
    said
}

/// The rows of a group that were measured under a load and have no rank; the second name of a row
/// is none of them.
fn unranked(results: &Results, load: usize, offloaded: bool) -> Vec<usize> {
    results
        .rows_of(load, offloaded)
        .filter(|row| results.first_of(*row).is_none())
        .filter(|row| results.status(load, *row) == Status::Ok)
        .filter(|row| results.unranked(load, *row).is_some())
        // A figure that nobody can check is better than no other.
        .filter(|row| results.claimed(load, *row).is_none() && !results.is_disproved(load, *row))
        .collect()
}

/// " of the ranked rows", where a row that was measured has no rank and may be better.
fn of_the_ranked(results: &Results, load: usize, offloaded: bool) -> &'static str {
    match unranked(results, load, offloaded).is_empty() {
        true => "",
        false => " of the ranked rows",
    }
}

/// The rows without a rank whose figure is better than the winner's all the same.
fn better_unranked(
    results: &Results,
    load: usize,
    offloaded: bool,
    winners: f64,
) -> Option<String> {
    let metric = results.ranked_by(load);
    let figures = unranked(results, load, offloaded)
        .into_iter()
        .filter_map(|row| Some((row, results.median(load, row, metric)?)));
    let is_better = |(_, median): &(usize, f64)| match metric.better {
        Better::Higher => *median > winners,
        Better::Lower => *median < winners,
    };
    let unit = if metric.better == Better::Higher { "/s" } else { " µs" };
    let names: Vec<String> = figures
        .filter(is_better)
        .map(|(row, median)| format!("{} ({}{unit})", results.rows[row], (metric.text)(median)))
        .collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| {
        let names = list(&shortened(names));
        format!("{names} {have} a better figure, but no rank, for the reason given below.")
    })
}

/// "1.62 times (1.55 to 1.70) X, the traditional design; a real difference above …".
fn against(
    difference: &Difference,
    other: &str,
    floor: Option<f64>,
    because: impl Fn() -> String,
) -> String {
    let floor = floor.map_or_else(
        || "an unknown noise floor".into(),
        |floor| format!("a noise floor of {}", percent(floor)),
    );
    match difference {
        Difference::Real(ratio) => format!(
            "{} {other}, the traditional design; a real difference above {floor}",
            times(ratio)
        ),
        Difference::Tie(ratio) => {
            format!("{} {other}, the traditional design; a tie within {floor}", times(ratio))
        }
        Difference::TooFew(Some(ratio)) => format!(
            "{} {other}, the traditional design; from too few comparable rounds to call it real",
            times(ratio)
        ),
        Difference::TooFew(None) => {
            format!(
                "how it compares with {other}, the traditional design, is unknown: {}",
                because()
            )
        }
    }
}

/// What explains the winner's lead over the traditional design: the figures that speak for it.
fn why(results: &Results, load: usize, winner: usize, traditional: usize) -> Option<String> {
    let used = [
        (&CPU, "ns of CPU time per {one}"),
        (&KERNEL_ENTRIES, "kernel entries per 1000 {one}s"),
        (&CONTEXT_SWITCHES, "context switches per 1000 {one}s"),
    ];
    let handled = [(&BATCH_P50, "datagrams at a time (median)")];
    let explains = |ours, theirs, better| is_worse(theirs, ours, better);
    let said = [("it uses", &used[..]), ("it handles", &handled)].map(|(what, metrics)| {
        let causes = causes(results, load, (winner, traditional), metrics, explains);
        (!causes.is_empty()).then(|| format!("{what} {}", list(&causes)))
    });
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("Why: {}.", said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Estimate;

    #[test]
    fn a_ratio_says_what_it_is_worth() {
        let interval = Some(crate::stats::Interval { low: 1.5, high: 1.7 });
        let ratio = Estimate { median: 1.6, interval, samples: 5 };
        let text = against(&Difference::Real(ratio), "port", Some(0.021), String::new);
        assert_eq!(
            text,
            "1.60 times (1.50 to 1.70) port, the traditional design; a real difference above a noise floor of 2.1 %"
        );
        let of = |difference, floor| against(&difference, "port", floor, || "it is 0".into());
        assert!(of(Difference::Tie(ratio), Some(0.9)).contains("tie within"));
        assert!(of(Difference::TooFew(Some(ratio)), None).contains("too few"));
        let unknown = "how it compares with port, the traditional design, is unknown: it is 0";
        assert_eq!(of(Difference::TooFew(None), None), unknown);
    }
}
