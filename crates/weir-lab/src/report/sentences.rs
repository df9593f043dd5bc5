//! Who wins, who is tied, what explains a difference, and what it is worth: the sentences of all comparisons.

use crate::experiment::cell::{Better, Measured, Metric};
use crate::experiment::ranking::{Lead, Place, Ranking};
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::missed;
use crate::report::words::{list, number_of, shortened};
use crate::stats::Estimate;
use crate::stats::bootstrap::FEWEST_SAMPLES;
use crate::stats::compare::Difference;

/// A change of a figure by less than this factor explains nothing.
pub(crate) const EXPLAINS: f64 = 1.15;

/// What is said of a group under a load: who wins, or that the load was not measured.
pub(crate) fn summary<K: Reported>(
    results: &Results<K>,
    load: usize,
    group: K::Group,
    ranking: &Ranking,
) -> Vec<String> {
    match missed::reason(results, load) {
        Some(reason) => vec![format!("Not measured: {reason}.")],
        None => K::summary(results, load, group, ranking),
    }
}

/// Who has the most of what rows are ranked by, and whether that is shown, as far as a colon or a full stop;
/// `None` without a winner.
pub(crate) fn leads(ranking: &Ranking, name: &str, among: &str, figure: &str) -> Option<String> {
    Some(match ranking.lead()? {
        Lead::Only => format!("{name} alone has a rank, with {figure}"),
        Lead::Alone => format!("{name} is the fastest{among} with {figure}"),
        Lead::Shared => format!("{name} is one of the fastest{among} with {figure}"),
        Lead::NotShown => {
            let none = none("row", among);
            format!(
                "{none} is shown to be faster than the others; the highest figure is {name}'s, {figure}"
            )
        }
    })
}

/// Why nobody wins.
pub(crate) fn nobody(ranking: &Ranking, among: &str, figure: &str) -> String {
    match ranking.is_too_noisy() {
        true => "Too noisy to compare: one design under two names differs from itself by more \
                 than 100 %."
            .into(),
        false => format!("{} delivered a {figure} that can be ranked.", none("design", among)),
    }
}

/// "No row", or "None of the ranked rows".
pub(crate) fn none(of: &str, among: &str) -> String {
    if among.is_empty() { format!("No {of}") } else { format!("None{among}") }
}

/// "1.62 times (1.55 to 1.70)".
pub(crate) fn times(ratio: &Estimate) -> String {
    // As exact as it can be meant: 0.98, 1.32, 14.5, 224.
    let decimals = match ratio.median {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let of = |ratio: f64| format!("{ratio:.decimals$}");
    let interval = ratio.interval.map(|i| format!(" ({} to {})", of(i.low), of(i.high)));
    format!("{} times{}", of(ratio.median), interval.unwrap_or_default())
}

/// For what a confidence holds, behind it: " for all 120 comparisons together"; nothing where there is one.
pub(crate) fn together(comparisons: usize) -> String {
    match comparisons {
        0 | 1 => String::new(),
        2 => " for both comparisons together".into(),
        _ => format!(" for all {comparisons} comparisons together"),
    }
}

/// What a difference is worth, in a word.
pub(crate) fn worth(difference: &Difference) -> &'static str {
    match difference {
        Difference::Real(_) => "real",
        Difference::Tie(_) => "within the noise",
        Difference::TooFew(_) => "undecided: too few comparable rounds",
    }
}

/// A figure as it is written, or that it is not known.
pub(crate) fn known(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| "?".into(), text)
}

/// Whether a figure is worse than another by enough to explain something.
pub(crate) fn is_worse(its: f64, others: f64, better: Better) -> bool {
    match better {
        Better::Higher => others > 0.0 && others >= its * EXPLAINS,
        Better::Lower => its > 0.0 && its >= others * EXPLAINS,
    }
}

/// What was short in the server, each with how often in all runs of a row: always told, as "none" where it never happened.
/// `None` where no server counts any of it.
pub(crate) fn shortages<K: Reported>(
    results: &Results<K>,
    load: usize,
    counts: &[(&str, &Metric<K::Sample>)],
) -> Option<String> {
    let told = |(what, metric): &(&str, &Metric<K::Sample>)| {
        let in_row = |row: usize| -> Option<f64> {
            let samples = &results.cells[load][row].samples;
            samples.iter().filter_map(|sample| (metric.of)(sample)).reduce(|all, one| all + one)
        };
        let counted: Vec<(usize, f64)> =
            (0..results.rows.len()).filter_map(|row| Some((row, in_row(row)?))).collect();
        let rows = counted.iter().filter(|(_, times)| *times > 0.0);
        let rows: Vec<String> = rows
            .map(|(row, times)| format!("{} {}", results.title(*row), (metric.text)(*times)))
            .collect();
        let rows = if rows.is_empty() { "none".to_owned() } else { list(&rows) };
        (!counted.is_empty()).then(|| format!("{what}: {rows}"))
    };
    let told: Vec<String> = counts.iter().filter_map(told).collect();
    (!told.is_empty()).then(|| format!("In all runs: {}.", told.join("; ")))
}

/// In what one row differs from another: of these metrics, with what each counts, those of whose two figures that is
/// so. `{one}` in a text stands for what the load counts.
pub(crate) fn causes<K: Reported>(
    results: &Results<K>,
    load: usize,
    (row, other): (usize, usize),
    costs: &[(&Metric<K::Sample>, &str)],
    explains: impl Fn(f64, f64, Better) -> bool,
) -> Vec<String> {
    let one = K::one(&results.loads[load]);
    let cause = |(metric, what): &(&Metric<K::Sample>, &str)| {
        let what = what.replace("{one}", one);
        let its = results.cost(load, row, metric)?;
        let others = results.cost(load, other, metric)?;
        let (its_text, others_text) = ((metric.text)(its), (metric.text)(others));
        explains(its, others, metric.better)
            .then(|| format!("{its_text} {what} instead of {others_text}"))
    };
    costs.iter().filter_map(cause).collect()
}

/// Which rows are tied with the winner, and which cannot be told for want of rounds.
pub(crate) fn neighbours<K: Reported>(
    results: &Results<K>,
    load: usize,
    ranking: &Ranking,
) -> Vec<String> {
    let names = |of: fn(&Place) -> bool| -> Vec<String> {
        ranking
            .places
            .iter()
            .filter(|place| of(place))
            .map(|place| results.title(place.row))
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
            "Undecided (marked ?): {}: {}.",
            list(&shortened(open)),
            why_open(results, load, ranking)
        ));
    }
    said
}

/// Why verdicts of a load are open.
pub(crate) fn why_open<K: Reported>(
    results: &Results<K>,
    load: usize,
    ranking: &Ranking,
) -> String {
    let pairs = ranking.places.iter().filter_map(Place::open_pairs).min().unwrap_or(0);
    if pairs >= FEWEST_SAMPLES {
        return match ranking.noise_floor {
            None => "the noise is unknown, because no row was ranked under two names".into(),
            Some(_) => "one half of the rounds has no comparable runs that would confirm it".into(),
        };
    }
    let cells = &results.cells[load];
    let samples = || cells.iter().flat_map(|cell| &cell.samples);
    let rounds = results.rounds_made(load);
    let mut causes = vec![];
    if rounds < FEWEST_SAMPLES {
        causes.push(match rounds {
            1 => "only one was begun".into(),
            rounds => format!("only {rounds} were begun"),
        });
    }
    let changed = samples().filter(|sample| sample.changed_machine()).count();
    if changed > 0 {
        causes.push(format!("in {} the machine changed (core to core)", number_of(changed, "run")));
    }
    if ranking.unlike_pairs > 0 {
        let pairs = number_of(ranking.unlike_pairs, "pair");
        causes.push(format!("in {pairs} of runs the machine changed in between (core to core)"));
    }
    let failed: u32 = cells.iter().map(|cell| cell.failed_runs).sum();
    if failed > 0 {
        causes.push(format!("{} failed", number_of(failed as usize, "run")));
    }
    let advice = match results.interrupted {
        true => String::new(),
        false => format!("; ask for {}", results.more_rounds(load)),
    };
    let causes = if causes.is_empty() { "a figure is unknown".into() } else { list(&causes) };
    format!(
        "a verdict needs {FEWEST_SAMPLES} comparable rounds, and there are as few as {pairs} ({causes}){advice}"
    )
}

/// The sentences of an answer, or that nothing was measured, and what it takes.
pub(crate) fn or_not_measured(said: Vec<String>, what: &str) -> Vec<String> {
    if said.is_empty() { vec![format!("Not measured: {what}.")] } else { said }
}

/// Texts of differences, those of one verdict together: behind the words for ahead, behind, tied and open that there are
/// any of.
pub(crate) fn by_verdict(
    all: impl IntoIterator<Item = (Difference, String)>,
    words: [&'static str; 4],
) -> Vec<(&'static str, Vec<String>)> {
    let mut found = words.map(|word| (word, vec![]));
    for (difference, text) in all {
        let place = match difference {
            Difference::Real(ratio) if ratio.median > 1.0 => 0,
            Difference::Real(_) => 1,
            Difference::Tie(_) => 2,
            Difference::TooFew(_) => 3,
        };
        found[place].1.push(text);
    }
    found.into_iter().filter(|(_, texts)| !texts.is_empty()).collect()
}
