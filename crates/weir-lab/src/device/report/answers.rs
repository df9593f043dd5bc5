//! What the figures say, in words: each sentence is computed from the rows, and says where nothing was
//! measured or nothing can be told.

use super::over_time;
use crate::device::crossing::{by_delay, delay_us, with_measure};
use crate::device::fio::{RING, SYNCHRONOUS};
use crate::device::results::{Group, Results};
use crate::device::rows::{AS_FIO, depth_of, is_as_fio};
use crate::device::sample::{
    CONTEXT_SWITCHES, CPU, HAND_OVERS, KERNEL_ENTRIES, LATENCY_P50, RATE, short_time,
};
use crate::experiment::plan::Role;
use crate::experiment::ranking::Ranking;
use crate::report::Answer;
use crate::report::number::{per_message, si};
use crate::report::sentences::{
    by_verdict, causes, is_worse, known, leads, neighbours, nobody, or_not_measured, times, worth,
};
use crate::report::words::{list, shortened};
use crate::stats::compare::Difference;

/// Completions handed over for each I/O from which a row is one that hands over.
const HANDS_OVER: f64 = 0.05;
/// Most crossings that are told; further ones stand in the document.
const MOST_CROSSINGS: usize = 12;

/// The sentences of a group of rows under one load.
pub fn of_load(results: &Results, load: usize, group: Group, ranking: &Ranking) -> Vec<String> {
    let among = match (results.groups(load).len(), group) {
        (1, _) => "",
        (_, Group::Waits) => " of the sleeping designs",
        (_, Group::Polls) => " of the busy-polling designs",
        (_, Group::Nothing) => " of the designs that read nothing",
    };
    let Some(winner) = ranking.winner() else { return vec![nobody(ranking, among, "figure")] };
    let name = results.title(winner.row);
    let lead = leads(ranking, &name, among, &format!("{} I/Os/s", si(winner.median)));
    let mut said = vec![format!("{}.", lead.unwrap_or_default())];
    if let Some(difference) = winner.to_traditional
        && let Some(ratio) = difference.ratio()
    {
        let why = why(results, load, winner.row, results.measure());
        let (plain, worth) = (results.loads[load].direction, worth(&difference));
        said.push(format!("That is {} plain {plain} ({worth}){why}.", times(&ratio)));
    }
    said.extend(neighbours(results, load, ranking));
    said
}

/// What one row costs that another does not cost, or the other way round.
fn why(results: &Results, load: usize, row: usize, other: Option<usize>) -> String {
    let Some(other) = other.filter(|other| *other != row) else { return String::new() };
    let costs = [
        (&CPU, "ns of CPU time"),
        (&KERNEL_ENTRIES, "calls into the kernel"),
        (&HAND_OVERS, "hand-overs"),
        (&CONTEXT_SWITCHES, "context switches"),
    ];
    // Of a thousandth of a switch a change explains nothing.
    let explains = |its: f64, others: f64, better| {
        its.max(others) >= 0.01 && (is_worse(its, others, better) || is_worse(others, its, better))
    };
    let causes = causes(results, load, (row, other), &costs, explains);
    match causes.is_empty() {
        true => String::new(),
        false => format!("; an I/O takes {}", list(&causes)),
    }
}

/// Every question that this experiment can be asked.
pub fn all(results: &Results) -> Vec<Answer> {
    let of = |question, sentences: Vec<String>| Answer { question, sentences };
    let mut all = vec![
        of("Does asynchronous I/O pay here?", asynchronous(results)),
        of("What does a hand-over between threads cost?", hand_overs(results)),
        of("What is spent before a device is reached?", floor(results)),
        of("How many I/Os should be outstanding?", depths(results)),
    ];
    if results.rows.iter().any(|row| row.peer.is_some()) {
        all.push(of("How does weir compare with fio?", fio(results)));
    }
    let over_time = over_time::answer(results);
    if !over_time.is_empty() {
        all.push(of("Does the rate decline with time?", over_time));
    }
    if !by_delay(results).is_empty() {
        all.push(of("How long must an I/O take for asynchronous I/O to pay?", crossings(results)));
    }
    all
}

/// The loads that answers speak of: of several that differ in their delay, only the ends.
fn answered(results: &Results) -> Vec<usize> {
    let axes = by_delay(results);
    let is_end = |load: usize| {
        axes.iter().any(|axis| axis.first() == Some(&load) || axis.last() == Some(&load))
    };
    (0..results.loads.len())
        .filter(|load| results.loads[*load].delay().is_none() || is_end(*load))
        .collect()
}

/// A row's rate to another's, with what that is worth.
fn to(results: &Results, load: usize, row: usize, other: usize) -> Option<String> {
    let difference = results.against(load, &RATE, (row, other));
    Some(format!("{} ({})", times(&difference.ratio()?), worth(&difference)))
}

/// From which of the others the best row cannot be told, in brackets; nothing where it is really better than
/// each of them.
fn doubts(results: &Results, load: usize, best: usize, others: &[usize]) -> String {
    let others = others.iter().filter(|other| **other != best);
    let all =
        others.map(|other| (results.against(load, &RATE, (best, *other)), results.title(*other)));
    let words = ["", "", "tied within the noise with", "undecided against"];
    let said: Vec<String> = by_verdict(all, words)
        .into_iter()
        .filter(|(what, _)| !what.is_empty())
        .map(|(what, names)| format!("{what} {}", list(&shortened(names))))
        .collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) }
}

/// Ranked rows of weir's own, best first.
fn own(results: &Results, load: usize, group: Group) -> Vec<usize> {
    let places = results.ranking(load, group).places;
    places.iter().map(|at| at.row).filter(|row| results.rows[*row].peer.is_none()).collect()
}

/// What the best of those with several I/Os outstanding is to plain reads.
fn asynchronous(results: &Results) -> Vec<String> {
    let Some(measure) = results.measure() else { return vec![no_measure()] };
    let mut said = vec![];
    for load in answered(results) {
        let of = &results.loads[load];
        for (group, who) in [(Group::Waits, "sleeping"), (Group::Polls, "busy-polling")] {
            let mut rows = own(results, load, group);
            rows.retain(|row| depth_of(&results.rows[*row]).is_some());
            let Some(best) = rows.first().copied() else { continue };
            let Some(ratio) = to(results, load, best, measure) else { continue };
            let p50 = |row: usize| known(results.median(load, row, &LATENCY_P50), short_time);
            said.push(format!(
                "{of}: the best {who} design with several outstanding, {}{}, makes {ratio} the I/Os of {}, \
                 and the median I/O takes {} µs instead of {}{}.",
                results.title(best),
                doubts(results, load, best, &rows),
                results.title(measure),
                p50(best),
                p50(measure),
                why(results, load, best, Some(measure)),
            ));
        }
    }
    or_not_measured(said, "this needs a ranked design with several outstanding, and plain reads")
}

fn hand_overs(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for load in answered(results) {
        let rows = own(results, load, Group::Waits);
        let depth = |row: usize| depth_of(&results.rows[row]);
        let hands_over =
            |row: &usize| results.median(load, *row, &HAND_OVERS).unwrap_or(0.0) >= HANDS_OVER;
        let alone = rows.iter().copied().find(|row| depth(*row).is_some() && !hands_over(row));
        let Some(alone) = alone else { continue };
        for row in rows.iter().copied().filter(hands_over) {
            let Some(ratio) = to(results, load, row, alone) else { continue };
            said.push(format!(
                "{}: {} passes {} of its completions to another thread, and makes {ratio} the I/Os of \
                 {}, which keeps them{}.",
                results.loads[load],
                results.title(row),
                known(results.median(load, row, &HAND_OVERS), per_message),
                results.title(alone),
                why(results, load, row, Some(alone)),
            ));
        }
    }
    or_not_measured(
        said,
        "this needs a ranked design that passes completions to another thread, and one that does not",
    )
}

fn floor(results: &Results) -> Vec<String> {
    let Some(measure) = results.measure() else { return vec![no_measure()] };
    let mut said = vec![];
    for load in answered(results) {
        for row in own(results, load, Group::Nothing) {
            let Some(ratio) = to(results, load, row, measure) else { continue };
            let cpu = |row: usize| known(results.median(load, row, &CPU), |ns| format!("{ns:.0}"));
            said.push(format!(
                "{}: {}, which reads nothing, makes {ratio} the I/Os of {}: {} ns of CPU time each instead \
                 of {}.",
                results.loads[load],
                results.title(row),
                results.title(measure),
                cpu(row),
                cpu(measure),
            ));
        }
    }
    or_not_measured(said, "this needs a ranked design that reads nothing, and plain reads")
}

/// Designs with several depths, and which is best.
fn depths(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for load in answered(results) {
        for group in results.groups(load) {
            let rows = own(results, load, group);
            let mut seen: Vec<&str> = vec![];
            for first in &rows {
                let name = results.rows[*first].design.as_str();
                let of_name = |row: &&usize| results.rows[**row].design == name;
                let mut family: Vec<(u32, usize)> = rows
                    .iter()
                    .filter(of_name)
                    .filter_map(|row| Some((depth_of(&results.rows[*row])?, *row)))
                    .collect();
                family.sort_by_key(|(depth, _)| *depth);
                let several =
                    family.first().map(|(depth, _)| depth) != family.last().map(|(d, _)| d);
                if seen.contains(&name) || !several {
                    continue;
                }
                seen.push(name);
                let rates = family.iter().map(|(_, row)| {
                    let spec = results.rows[*row].spec();
                    let options = spec.strip_prefix(name).map(str::trim).filter(|o| !o.is_empty());
                    let rate = known(results.median(load, *row, &RATE), si);
                    format!("{rate} with {}", options.unwrap_or("its own settings"))
                });
                let others: Vec<usize> = family.iter().map(|(_, row)| *row).collect();
                said.push(format!(
                    "{}: {} has the most I/Os/s of {name}{}; by depth: {}.",
                    results.loads[load],
                    results.title(*first),
                    doubts(results, load, *first, &others),
                    list(&rates.collect::<Vec<_>>()),
                ));
            }
        }
    }
    or_not_measured(said, "no design ran with several depths; use --sweep")
}

/// weir's rows beside those of fio that do the same.
fn fio(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for load in answered(results) {
        let ranking = results.ranking(load, Group::Waits);
        let best = |of: &dyn Fn(usize) -> bool| {
            ranking.places.iter().map(|place| place.row).find(|row| of(*row))
        };
        let design = |row: usize| results.rows[row].design.as_str();
        let own = |row: usize| results.rows[row].peer.is_none();
        let pairs = [
            (results.measure(), best(&|row| SYNCHRONOUS.contains(&design(row)))),
            (best(&|row| is_as_fio(&results.rows[row])), best(&|row| design(row) == RING)),
        ];
        for (ours, theirs) in pairs {
            let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
            let Some(ratio) = to(results, load, ours, theirs) else { continue };
            said.push(format!(
                "{}: {} makes {ratio} the I/Os of {}{}.",
                results.loads[load],
                results.title(ours),
                results.title(theirs),
                why(results, load, ours, Some(theirs)),
            ));
        }
        // Another depth or batch is another thing than fio does here.
        let ring = best(&|row| design(row) == RING);
        let other = best(&|row| own(row) && design(row) == AS_FIO);
        if let (Some(other), Some(ring)) =
            (other.filter(|row| !is_as_fio(&results.rows[*row])), ring)
            && let Some(ratio) = to(results, load, other, ring)
        {
            said.push(format!(
                "{}: with other settings than fio's, 128 outstanding in one batch, the best is {}: \
                 {ratio} the I/Os of {}.",
                results.loads[load],
                results.title(other),
                results.title(ring),
            ));
        }
    }
    or_not_measured(said, "no engine of fio was ranked together with the design that does the same")
}

fn crossings(results: &Results) -> Vec<String> {
    let Some(measure) = results.measure() else { return vec![no_measure()] };
    let axes = by_delay(results);
    let mut said = vec![];
    for axis in &axes {
        let length = match axes.len() {
            1 => String::new(),
            _ => format!("{} B: ", results.loads[axis[0]].length),
        };
        let sentences = crossings_of(results, measure, axis);
        said.extend(sentences.into_iter().map(|sentence| format!("{length}{sentence}")));
    }
    or_not_measured(said, "this needs plain reads and another design at two delays or more")
}

/// Who really overtakes plain reads on an axis, and where the others stand.
fn crossings_of(results: &Results, measure: usize, axis: &[usize]) -> Vec<String> {
    let mut all = with_measure(results, axis);
    all.retain(|crossing| crossing.real);
    let name = |row: usize| results.title(row);
    let mut said: Vec<String> = all
        .iter()
        .take(MOST_CROSSINGS)
        .map(|crossing| {
            format!(
                "{} overtakes {} where an I/O takes about {:.1} µs (between {} and {}).",
                name(crossing.after),
                name(crossing.before),
                crossing.at,
                crossing.between.0,
                crossing.between.1,
            )
        })
        .collect();
    if all.len() > MOST_CROSSINGS {
        said.push(format!("{} more crossings are in the document.", all.len() - MOST_CROSSINGS));
    }
    for row in 0..results.rows.len() {
        let crosses = all.iter().any(|c| c.before == row || c.after == row);
        let again = matches!(results.rows[row].role, Role::Again(_));
        let reads = results.group_of(row) != Group::Nothing;
        if row == measure || again || !reads || crosses {
            continue;
        }
        let ranked = |load: usize| {
            [measure, row].into_iter().all(|row| results.unranked(load, row).is_none())
        };
        let known: Vec<(usize, Difference)> = axis
            .iter()
            .filter(|load| ranked(**load))
            .map(|load| (*load, results.against(*load, &RATE, (row, measure))))
            .collect();
        if known.len() >= 2 {
            said.push(format!(
                "{}, compared with {}: {}.",
                name(row),
                name(measure),
                standings(results, &known)
            ));
        }
    }
    said
}

/// What the verdicts at several delays say, those that say the same together.
fn standings(results: &Results, known: &[(usize, Difference)]) -> String {
    let delay = |load: usize| delay_us(&results.loads[load]).to_string();
    let all = known.iter().map(|(load, difference)| (*difference, delay(*load)));
    let said = by_verdict(all, ["ahead", "behind", "within the noise", "undecided"])
        .into_iter()
        .map(|(standing, at)| format!("{standing} at {} µs", list(&at)));
    said.collect::<Vec<_>>().join(", ")
}

fn no_measure() -> String {
    "Not measured: plain reads (sync) were not among the designs.".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::plan::Load;
    use crate::device::results::tests::{results, under};
    use std::time::Duration;
    use weir::counters::{ALL_ENTRIES, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};

    fn said(results: &Results, about: &str) -> String {
        let answers = all(results);
        let found = answers.iter().find(|a| a.question.contains(about));
        found.unwrap_or_else(|| panic!("no question about {about}")).sentences.join(" ")
    }

    #[test]
    fn the_winner_and_what_it_is_to_plain_reads() {
        let results = results(&[("sync", 2e6), ("ring", 1e6), ("ring-registered", 3e6)], 0);
        let text = of_load(&results, 0, Group::Waits, &results.ranking(0, Group::Waits)).join(" ");
        // The common speed of the middle block is 0.9.
        for wanted in [
            "ring-registered is the fastest with 2.70 M I/Os/s.",
            "That is 1.50 times (1.50 to 1.50) plain reads (real); an I/O takes 370 ns of CPU time instead of 556.",
        ] {
            assert!(text.contains(wanted), "{wanted:?}: {text}");
        }
        let pays = said(&results, "pay here");
        assert!(pays.contains("ring-registered, makes 1.50 times (1.50 to 1.50) (real)"), "{pays}");
        assert!(said(&results, "outstanding").contains("Not measured"));
        assert!(said(&results, "hand-over").contains("Not measured"));
    }

    #[test]
    fn entries_are_compared_only_where_all_were_counted() {
        let mut results = results(&[("sync", 2e6), ("overlapped-pool", 2e5)], 0);
        for (row, entries) in [(0, 1.0), (1, 5.0)] {
            for sample in &mut results.cells[0][row].samples {
                sample.made.kernel_entries_per_io = Some(entries);
                sample.made.settings.insert(ENTRIES_SOURCE.into(), ALL_ENTRIES.into());
            }
        }
        let because = "5.0 calls into the kernel instead of 1.0";
        assert!(why(&results, 0, 1, Some(0)).contains(because));
        for sample in &mut results.cells[0][1].samples {
            sample.made.settings.insert(ENTRIES_SOURCE.into(), ENTRIES_WITHOUT_FUTEX.into());
        }
        let said = why(&results, 0, 1, Some(0));
        assert!(said.contains("CPU time") && !said.contains("calls into the kernel"), "{said}");
    }

    #[test]
    fn what_hands_over_is_held_against_what_does_not() {
        let mut results = results(&[("sync", 2e6), ("ring", 1e6), ("overlapped-pool", 2e5)], 0);
        for sample in &mut results.cells[0][2].samples {
            sample.made.hand_overs_per_io = Some(1.0);
        }
        let text = said(&results, "hand-over");
        assert!(text.contains("overlapped-pool passes 1.0 of its completions"), "{text}");
        assert!(text.contains("0.20 times (0.20 to 0.20) (real) the I/Os of ring"), "{text}");
    }

    #[test]
    fn the_floor_and_the_depths() {
        let rows =
            [("sync", 2e6), ("ring --depth 1", 5e5), ("ring --depth 64", 1e6), ("no-op", 8e6)];
        let mut results = results(&rows, 0);
        results.own.checked[3].as_mut().unwrap().reads_nothing = true;
        let text = said(&results, "before a device");
        assert!(text.contains("no-op, which reads nothing, makes 4.00 times"), "{text}");
        let text = said(&results, "outstanding");
        assert!(text.contains("ring --depth 64 has the most I/Os/s of ring"), "{text}");
        assert!(text.contains("450 k with --depth 1 and 900 k with --depth 64"), "{text}");
    }

    #[test]
    fn the_best_depth_is_so_only_beyond_the_noise() {
        let rows = [
            ("sync", 2e6),
            ("ring --depth 1", 5e5),
            ("ring --depth 64", 1.001e6),
            ("ring --depth 128", 1e6),
            ("ring --depth 256", 8e5),
        ];
        let mut results = results(&rows, 0);
        results.cells[0][4].samples.truncate(3);
        let doubts =
            "(tied within the noise with ring --depth 128; undecided against ring --depth 256)";
        let text = said(&results, "outstanding");
        let wanted = format!("ring --depth 64 has the most I/Os/s of ring {doubts}; by depth");
        assert!(text.contains(&wanted), "{text}");
        assert!(said(&results, "pay here").contains(&format!("ring --depth 64 {doubts}, makes")));
    }

    #[test]
    fn fio_is_held_against_the_design_that_does_the_same() {
        let results = results(
            &[
                ("sync", 2e6),
                ("ring-registered --depth 128 --batch 128", 3e6),
                ("fio psync=fio", 1e6),
                ("fio sync=fio", 1.25e6),
                ("fio io_uring=fio", 1.5e6),
                ("ring-registered --depth 1024 --batch 256", 3.6e6),
            ],
            0,
        );
        let text = said(&results, "fio");
        assert!(
            text.contains("sync makes 1.60 times (1.60 to 1.60) (real) the I/Os of fio sync"),
            "{text}"
        );
        assert!(
            text.contains("ring-registered --depth 128 --batch 128 makes 2.00 times"),
            "{text}"
        );
        assert!(
            text.contains("other settings than fio's") && text.contains("--depth 1024"),
            "{text}"
        );
        assert!(
            text.contains("2.40 times (2.40 to 2.40) (real) the I/Os of fio io_uring"),
            "{text}"
        );
    }

    #[test]
    fn crossings_are_told_and_who_never_crosses() {
        let loads = [0, 10].map(|us| Load::delayed(Duration::from_micros(us), 4096));
        let rows: [(&str, &[f64]); 5] = [
            ("sync", &[2e6, 90e3]),
            ("ring", &[1e6, 900e3]),
            ("libaio", &[1e6, 50e3]),
            ("no-op", &[8e6, 8e6]),
            ("sync-empty", &[1e6, 8e6]),
        ];
        let mut results = under(loads.to_vec(), &rows, 0);
        for nothing in [3, 4] {
            results.own.checked[nothing].as_mut().unwrap().reads_nothing = true;
        }
        let text = said(&results, "How long");
        assert!(!text.contains("no-op") && !text.contains("sync-empty"), "{text}");
        assert!(
            text.contains(
                "ring overtakes sync where an I/O takes about 2.3 µs (between 0 and 10)."
            ),
            "{text}"
        );
        assert!(text.contains("libaio, compared with sync: behind at 0 and 10 µs."), "{text}");
    }

    #[test]
    fn what_is_within_the_noise_or_open_is_not_called_ahead_or_behind() {
        let loads = [0, 10, 20].map(|us| Load::delayed(Duration::from_micros(us), 4096));
        let rows: [(&str, &[f64]); 3] = [
            ("sync", &[1e6, 1e6, 1e6]),
            // Its median changes sides within the noise.
            ("ring", &[1.001e6, 0.999e6, 2e6]),
            ("libaio", &[1e6, 5e5, 5e5]),
        ];
        let mut results = under(loads.to_vec(), &rows, 0);
        results.cells[1][2].samples.truncate(3);
        let text = said(&results, "How long");
        assert!(!text.contains("overtakes"), "{text}");
        for wanted in [
            "ring, compared with sync: ahead at 20 µs, within the noise at 0 and 10 µs.",
            "libaio, compared with sync: behind at 20 µs, within the noise at 0 µs, undecided at 10 µs.",
        ] {
            assert!(text.contains(wanted), "{wanted:?}: {text}");
        }
    }

    #[test]
    fn crossings_are_told_for_each_length() {
        let load = |us, length| Load::delayed(Duration::from_micros(us), length);
        let loads = vec![load(0, 512), load(10, 512), load(0, 4096), load(10, 4096)];
        let rows: [(&str, &[f64]); 2] =
            [("sync", &[2e6, 90e3, 2e6, 2e6]), ("ring", &[1e6, 900e3, 1e6, 1e6])];
        let text = said(&under(loads, &rows, 0), "How long");
        assert!(text.contains("512 B: ring overtakes sync"), "{text}");
        assert!(
            text.contains("4096 B: ring, compared with sync: behind at 0 and 10 µs."),
            "{text}"
        );
    }
}
