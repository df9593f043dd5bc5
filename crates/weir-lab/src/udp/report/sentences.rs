//! Who wins, by how much, why, and whether the difference is real: in a few sentences.

use crate::experiment::cell::Measured;
use crate::experiment::cell::Status;
use crate::experiment::ranking::{Better, Lead, Place, Ranking, no_ratio_because};
use crate::experiment::verdict::Limit;
use crate::report::number::{microseconds, per_1000, percent, si};
use crate::report::words::{list, number_of, shortened};
use crate::stats::Estimate;
use crate::stats::bootstrap::FEWEST_SAMPLES;
use crate::stats::compare::Difference;
use crate::udp::report::columns::percentile;
use crate::udp::results::Results;
use crate::udp::sample::{
    BATCH_P50, CONTEXT_SWITCHES, CPU, KERNEL_ENTRIES, LATENCY_P50, LATENCY_P99, Metric, RECEIVED,
};
use crate::wire::Latency;

/// A change of a figure by less than this factor explains nothing.
const EXPLAINS: f64 = 1.15;

/// The sentences for a load whose figure is datagrams per second.
pub fn of_throughput(
    results: &Results,
    load: usize,
    offloaded: bool,
    ranking: &Ranking,
) -> Vec<String> {
    let Some(winner) = ranking.winner() else {
        return vec![nobody(ranking, "No design delivered a figure that can be ranked.")];
    };
    let traditional = results.measure();
    let rate = format!("{} datagrams/s", si(winner.median));
    let among = of_the_ranked(results, load, offloaded);
    let mut name = results.rows[winner.row].to_string();
    if traditional == Some(winner.row) {
        name.push_str(", the traditional design,");
    }
    let to_traditional = winner.to_traditional.zip(traditional);
    let against = to_traditional.map(|(difference, t)| {
        let cells = &results.cells[load];
        let because = || no_ratio_because(&cells[winner.row], &cells[t], &RECEIVED);
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
            Limit::Both => "the generator could send no more, and the server took nearly all",
            Limit::Memory => "memory or a queue of the system was the limit",
            Limit::Server => "the server was busy, and lost nothing",
            Limit::Load => "the load was the limit",
            Limit::Unknown => "nothing that can be seen was the limit",
        };
        said.push(format!("Its figure is a lower bound: {what} ({}).", verdict.reason));
    }
    said
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
        return vec![nobody(ranking, "No design delivered a latency that can be ranked.")];
    };
    // The figures of the table, of all rounds together.
    let figure = |metric, of| {
        let cell = &results.cells[load][winner.row];
        let nanoseconds = percentile(cell, metric, of, results.seed);
        nanoseconds.map_or_else(|| "?".into(), microseconds)
    };
    let among = of_the_ranked(results, load, offloaded);
    let name = &results.rows[winner.row];
    let figures = format!(
        "p50 {} µs, p99 {} µs",
        figure(&LATENCY_P50, |l: &Latency| l.p50),
        figure(&LATENCY_P99, |l: &Latency| l.p99)
    );
    let mut said = vec![match ranking.lead() {
        None | Some(Lead::Only) => format!("{name} alone has a rank: {figures}."),
        Some(Lead::Alone) => format!("{name} has the lowest median latency{among}: {figures}."),
        Some(Lead::Shared) => {
            format!("{name} has one of the lowest median latencies{among}: {figures}.")
        }
        Some(Lead::NotShown) => format!(
            "{} is shown to have a lower median latency than the others; the lowest figure is {name}'s: \
             {figures}.",
            if among.is_empty() { "No row".into() } else { format!("None{among}") }
        ),
    }];
    said.extend(better_unranked(results, load, offloaded, winner.median));
    said.extend(neighbours(results, load, ranking));
    said
}

/// Who has the most of what rows are ranked by, and whether that is shown, as far as a colon or a full stop;
/// `None` without a winner.
pub(crate) fn leads(ranking: &Ranking, name: &str, among: &str, figure: &str) -> Option<String> {
    Some(match ranking.lead()? {
        Lead::Only => format!("{name} alone has a rank, with {figure}"),
        Lead::Alone => format!("{name} is the fastest{among} with {figure}"),
        Lead::Shared => format!("{name} is one of the fastest{among} with {figure}"),
        Lead::NotShown => {
            let who = if among.is_empty() { "No row".into() } else { format!("None{among}") };
            format!(
                "{who} is shown to be faster than the others; the highest figure is {name}'s, {figure}"
            )
        }
    })
}

/// The rows of a group that were measured under a load and have no rank; the second name of a row
/// is none of them.
fn unranked(results: &Results, load: usize, offloaded: bool) -> Vec<usize> {
    let second = results.again(offloaded).map(|(_, second)| second);
    let of_group = |row: &usize| {
        results.rows[*row].receive_offload == offloaded && results.takes_part(load, *row)
    };
    (0..results.rows.len())
        .filter(|row| of_group(row) && second != Some(*row))
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
    let (metric, better) = results.ranked_by(load);
    let median = |row: usize| Some(results.cells[load][row].estimate(metric, results.seed)?.median);
    let is_better = |row: &usize| {
        median(*row).is_some_and(|median| match better {
            Better::Higher => median > winners,
            Better::Lower => median < winners,
        })
    };
    let rows = unranked(results, load, offloaded).into_iter().filter(is_better);
    let names: Vec<String> = rows
        .map(|row| {
            let figure = median(row).unwrap_or_default();
            let figure = match better {
                Better::Higher => format!("{}/s", si(figure)),
                Better::Lower => format!("{} µs", microseconds(figure)),
            };
            format!("{} ({figure})", results.rows[row])
        })
        .collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    (!names.is_empty()).then(|| {
        let names = list(&shortened(names));
        format!("{names} {have} a better figure, but no rank: the reason stands below.")
    })
}

/// Why nobody wins.
fn nobody(ranking: &Ranking, otherwise: &str) -> String {
    match ranking.is_too_noisy() {
        true => "Too noisy to compare: one design under two names differs from itself by more \
                 than 100 %."
            .into(),
        false => otherwise.into(),
    }
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
            format!("how it stands to {other}, the traditional design, is not known: {}", because())
        }
    }
}

pub(crate) fn times(ratio: &Estimate) -> String {
    let interval = ratio.interval.map(|i| format!(" ({:.2} to {:.2})", i.low, i.high));
    format!("{:.2} times{}", ratio.median, interval.unwrap_or_default())
}

/// What explains the winner's lead over the traditional design: the figures that differ.
fn why(results: &Results, load: usize, winner: usize, traditional: usize) -> Option<String> {
    let both = |metric: &Metric| {
        let of = |row: usize| results.cells[load][row].estimate(metric, results.seed);
        Some((of(winner)?.median, of(traditional)?.median))
    };
    // Only what speaks for the winner: that it has more of a cost explains no lead.
    let less = |(ours, theirs): &(f64, f64)| *theirs > 0.0 && *theirs >= ours * EXPLAINS;
    let more = |(ours, theirs): &(f64, f64)| *ours > 0.0 && *ours >= theirs * EXPLAINS;
    let mut causes = vec![];
    if let Some((ours, theirs)) = both(&CPU).filter(less) {
        causes.push(format!("{ours:.0} ns of CPU time per datagram instead of {theirs:.0}"));
    }
    // A number that leaves some out is compared with no other.
    let whole =
        [winner, traditional].iter().all(|row| results.cells[load][*row].counts_all_entries());
    let entries = |row: usize| results.cells[load][row].entries(&KERNEL_ENTRIES, results.seed);
    let both_entries = entries(winner).zip(entries(traditional));
    if let Some((ours, theirs)) = both_entries.filter(less).filter(|_| whole) {
        causes.push(format!(
            "{} kernel entries per 1000 datagrams instead of {}",
            per_1000(ours),
            per_1000(theirs)
        ));
    }
    if let Some((ours, theirs)) = both(&CONTEXT_SWITCHES).filter(less) {
        causes.push(format!(
            "{} context switches per 1000 datagrams instead of {}",
            per_1000(ours),
            per_1000(theirs)
        ));
    }
    if let Some((ours, theirs)) = both(&BATCH_P50).filter(more) {
        causes.push(format!("{ours:.0} datagrams at a time (median) instead of {theirs:.0}"));
    }
    (!causes.is_empty()).then(|| format!("Why: it takes {}.", list(&causes)))
}

/// Which rows are tied with the winner, and which cannot be told for want of rounds.
fn neighbours(results: &Results, load: usize, ranking: &Ranking) -> Vec<String> {
    let names = |of: fn(&Place) -> bool| -> Vec<String> {
        ranking
            .places
            .iter()
            .filter(|place| of(place))
            .map(|place| results.rows[place.row].to_string())
            .collect()
    };
    let mut said = vec![];
    let tied = names(Place::ties_with_winner);
    if !tied.is_empty() {
        said.push(format!("Tied with it, within the noise: {}.", list(&shortened(tied))));
    }
    let open = names(Place::is_open);
    if !open.is_empty() {
        said.push(format!(
            "Open (marked ?): {}: {}.",
            list(&shortened(open)),
            why_open(results, load, ranking)
        ));
    }
    said
}

/// Why verdicts of a load are open.
fn why_open(results: &Results, load: usize, ranking: &Ranking) -> String {
    let pairs = ranking.places.iter().filter_map(Place::open_pairs).min().unwrap_or(0);
    if pairs >= FEWEST_SAMPLES {
        return "the noise is not known, since no row was ranked under two names".into();
    }
    let cells = &results.cells[load];
    let samples = || cells.iter().flat_map(|cell| &cell.samples);
    let rounds = samples().map(|sample| sample.when.block + 1).max().unwrap_or(0) as usize;
    let mut causes = vec![];
    if rounds < FEWEST_SAMPLES {
        causes.push(format!("only {rounds} were made"));
    }
    let changed = samples().filter(|sample| sample.changed_machine()).count();
    if changed > 0 {
        causes.push(format!("in {} the machine changed (core to core)", number_of(changed, "run")));
    }
    if ranking.unlike_pairs > 0 {
        let times = number_of(ranking.unlike_pairs, "time");
        causes.push(format!("{times} it changed between two runs"));
    }
    let failed: u32 = cells.iter().map(|cell| cell.failed_runs).sum();
    if failed > 0 {
        causes.push(format!("{} failed", number_of(failed as usize, "run")));
    }
    let causes = if causes.is_empty() { "a figure is unknown".into() } else { list(&causes) };
    format!(
        "a verdict takes {FEWEST_SAMPLES} comparable rounds, and there are as few as {pairs}, for \
         {causes}; more time (-t) makes more"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn lists_read_as_people_write_them() {
        assert_eq!(list(&strings(&["a"])), "a");
        assert_eq!(list(&strings(&["a", "b", "c"])), "a, b and c");
        let many = shortened(strings(&["a", "b", "c", "d", "e", "f"]));
        assert_eq!(list(&many), "a, b, c, d and 2 more");
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|n| number_of(n, "run")), ["0 runs", "1 run", "2 runs"]);
    }

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
        let unknown = "how it stands to port, the traditional design, is not known: it is 0";
        assert_eq!(of(Difference::TooFew(None), None), unknown);
    }
}
