//! What the figures say, in words: each sentence is computed from the rows, and says where nothing was
//! measured or nothing can be told.

use super::strategies;
use crate::experiment::plan::Role;
use crate::experiment::ranking::Ranking;
use crate::report::number::{bytes, microseconds, per_message, si, whole};
use crate::report::sentences::{
    causes, is_worse, known, leads, neighbours, nobody, or_not_measured, times, worth,
};
use crate::report::words::{list, number_of, shortened};
use crate::report::{Answer, Reported as _};
use crate::stats::compare::Difference;
use crate::tcp::plan::Pattern;
use crate::tcp::results::{Results, Tcp};
use crate::tcp::sample::{
    CONTEXT_SWITCHES, CPU, KERNEL_ENTRIES, LATENCY_P50, MEMORY, MESSAGES, SERVER_CPU, THREADS, word,
};

/// The sentences of a group of rows under one load.
pub fn of_load(results: &Results, load: usize, group: bool, ranking: &Ranking) -> Vec<String> {
    if results.loads[load].mix.is_some() {
        return strategies::of_load(results, load, ranking);
    }
    let among = match (results.groups(load).len(), group) {
        (1, _) => "",
        (_, false) => " of the sleeping designs",
        (_, true) => " of the busy-polling designs",
    };
    let Some(winner) = ranking.winner() else { return vec![nobody(ranking, among, "figure")] };
    let name = results.title(winner.row);
    let lead = leads(ranking, &name, among, &format!("{} messages/s", si(winner.median)));
    let mut said = vec![match results.loads[load].block_bytes_per_s {
        None => format!("{}.", lead.unwrap_or_default()),
        Some(_) => {
            format!("{}; the offered load was the same for all.", lead.unwrap_or_default())
        }
    }];
    said.extend(neighbours(results, load, ranking));
    said.extend(last(results, load, ranking));
    let verdict = results.cells[load][winner.row].verdict();
    if let Some(verdict) = verdict.filter(|verdict| verdict.lower_bound)
        && results.loads[load].block_bytes_per_s.is_none()
    {
        said.push(format!("Its figure is a lower bound: {}.", verdict.reason));
    }
    said
}

/// How far the last one is behind, and why.
fn last(results: &Results, load: usize, ranking: &Ranking) -> Option<String> {
    let (winner, last) = (ranking.winner()?, ranking.places.last()?);
    let Some(Difference::Real(ratio)) = last.winner_to_it else { return None };
    let costs = [
        (&CPU, "ns of CPU time"),
        (&KERNEL_ENTRIES, "calls into the kernel"),
        (&CONTEXT_SWITCHES, "context switches"),
    ];
    let explains = |its, winners, better| winners > 0.0 && is_worse(its, winners, better);
    let causes = causes(results, load, (last.row, winner.row), &costs, explains);
    let why = match causes.is_empty() {
        true => String::new(),
        false => format!(", which uses, per message, {}", list(&causes)),
    };
    let (first, last) = (results.title(winner.row), results.title(last.row));
    Some(format!("{first} is {} {last}, the slowest{why}.", times(&ratio)))
}

/// Every question that this experiment can be asked.
pub fn all(results: &Results) -> Vec<Answer> {
    let of = |question, sentences: Vec<String>| Answer { question, sentences };
    if strategies::are_compared(results) {
        let question = "Which strategy for which mix of connections, and why?";
        return vec![of(question, strategies::reasons(results))];
    }
    vec![
        of("Which design for few connections, and which for many?", which(results)),
        of("What does a thread for each connection cost?", threads(results)),
        of("What does busy-polling gain?", polling(results)),
    ]
}

/// The loads that differ in their number of connections only, fewest first: those of the first size and
/// pattern.
fn by_connections(results: &Results) -> Vec<usize> {
    let Some(first) = results.loads.first() else { return vec![] };
    let like = |load: &usize| {
        let of = &results.loads[*load];
        of.pattern == first.pattern
            && of.message_bytes == first.message_bytes
            && of.block_bytes_per_s.is_none()
    };
    let mut loads: Vec<usize> = (0..results.loads.len()).filter(like).collect();
    loads.sort_by_key(|load| results.loads[*load].connections);
    loads
}

fn which(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for load in by_connections(results) {
        for group in results.groups(load) {
            let ranking = results.ranking(load, group);
            let Some(winner) = ranking.winner() else { continue };
            let mut names = vec![results.title(winner.row)];
            let tied = ranking.places.iter().filter(|place| place.ties_with_winner());
            names.extend(tied.map(|place| results.title(place.row)));
            let group = if results.groups(load).len() > 1 { Tcp::beside(group) } else { "" };
            let open = ranking.places.iter().filter(|place| place.is_unclear());
            let open: Vec<String> = open.map(|place| results.title(place.row)).collect();
            let open = match open.is_empty() {
                true => String::new(),
                false => format!("; undecided against {}", list(&shortened(open))),
            };
            let limited = results.cells[load][winner.row].verdict().map(|v| word(v.limited_by));
            said.push(format!(
                "{}{group}: {} with {} messages/s (limited by: {}{open}).",
                results.loads[load],
                list(&shortened(names)),
                si(winner.median),
                limited.unwrap_or("unknown"),
            ));
        }
    }
    or_not_measured(said, "no load has a design that could be ranked")
}

fn threads(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for load in by_connections(results) {
        let connections = f64::from(results.loads[load].connections);
        let of = |row: usize, metric| results.median(load, row, metric);
        let grown = |row: &usize| of(*row, &THREADS).is_some_and(|n| n >= connections);
        let ranking = results.ranking(load, false);
        let designs = ranking.places.iter().filter(|at| results.rows[at.row].peer.is_none());
        let (many, few): (Vec<usize>, Vec<usize>) =
            designs.map(|place| place.row).partition(|row| grown(row));
        // With one connection every design has a thread for each.
        let (Some(many), Some(few), true) = (many.first(), few.first(), connections > 1.0) else {
            continue;
        };
        let difference = results.against(load, &MESSAGES, (*many, *few));
        let Some(ratio) = difference.ratio() else { continue };
        let figures = |row: usize| {
            format!(
                "{}, {} of memory, {} ns of CPU time and {} context switches for a message",
                known(of(row, &THREADS), |n| number_of(n.round() as usize, "thread")),
                known(of(row, &MEMORY), bytes),
                known(of(row, &CPU), whole),
                known(of(row, &CONTEXT_SWITCHES), per_message),
            )
        };
        said.push(format!(
            "{}: {} has {} the messages/s of {} ({}); it takes {}, the other {}.",
            results.loads[load],
            results.title(*many),
            times(&ratio),
            results.title(*few),
            worth(&difference),
            figures(*many),
            figures(*few),
        ));
    }
    let held = |load: usize, row: usize| {
        let named = results.rows[row].design == "blocking" && results.rows[row].role == Role::Plain;
        let reason = results.unranked(load, row).filter(|_| named)?;
        let broke = results.cells[load][row].standing().any(|s| s.incomplete().is_some());
        broke.then(|| format!("{}: {} broke: {reason}.", results.loads[load], results.title(row)))
    };
    for load in 0..results.loads.len() {
        said.extend((0..results.rows.len()).filter_map(|row| held(load, row)));
    }
    let what = "this needs a ranked design with a thread for each connection, one with fewer, and several connections";
    or_not_measured(said, what)
}

fn polling(results: &Results) -> Vec<String> {
    let loads =
        (0..results.loads.len()).filter(|load| results.loads[*load].pattern == Pattern::PingPong);
    let said: Vec<String> = loads.filter_map(|load| polling_under(results, load)).collect();
    or_not_measured(said, "no busy-polling design was ranked together with a sleeping one")
}

fn polling_under(results: &Results, load: usize) -> Option<String> {
    // The question is what a design's polling buys: a peer differs in more than that.
    let best = |polls: bool| {
        let ranking = results.ranking(load, polls);
        ranking.places.iter().map(|at| at.row).find(|row| results.rows[*row].peer.is_none())
    };
    let (poll, wait) = (best(true)?, best(false)?);
    let rate = results.against(load, &MESSAGES, (poll, wait));
    let time = results.against(load, &LATENCY_P50, (poll, wait));
    let cores = results.own.server_cores.len().max(1) as f64;
    let busy = |row: usize| {
        results
            .median(load, row, &SERVER_CPU)
            .map_or_else(|| "?".into(), |share| format!("{:.2}", share / 100.0 * cores))
    };
    let p50 = |row: usize| known(results.median(load, row, &LATENCY_P50), microseconds);
    Some(format!(
        "{}: the best busy-polling design, {}, has {} the messages/s ({}) and {} the median round trip ({}, \
         {} instead of {} µs) of the best sleeping design, {}, and keeps {} of a core busy instead of {}.",
        results.loads[load],
        results.title(poll),
        times(&rate.ratio()?),
        worth(&rate),
        times(&time.ratio()?),
        worth(&time),
        p50(poll),
        p50(wait),
        results.title(wait),
        busy(poll),
        busy(wait),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::results::tests::results;
    use weir::counters::{ALL_ENTRIES, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};

    fn said(results: &Results, about: &str) -> String {
        let answers = all(results);
        answers.iter().find(|a| a.question.contains(about)).unwrap().sentences.join(" ")
    }

    #[test]
    fn the_winner_its_ties_and_how_far_the_last_is_behind() {
        let mut results = results(&[("blocking", 50e3), ("epoll", 100e3), ("poll", 99.9e3)], 1);
        for sample in &mut results.cells[0][0].samples {
            sample.context_switches_per_message = Some(4.0);
        }
        let text = of_load(&results, 0, false, &results.ranking(0, false)).join(" ");
        for wanted in [
            "epoll is one of the fastest with 90 k messages/s.",
            "Tied with it, within the noise: poll.",
            "epoll is 2.00 times (2.00 to 2.00) blocking, the slowest",
            "10000 ns of CPU time instead of 5000",
            "4.0 context switches instead of 0.10",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing of {text}");
        }
        assert!(said(&results, "few").contains("64 connections: epoll and poll with 90 k"));
    }

    #[test]
    fn entries_are_compared_only_where_all_were_counted() {
        let mut results = results(&[("blocking", 50e3), ("epoll", 100e3)], 1);
        for (row, entries, source) in [(0, 5.0, ALL_ENTRIES), (1, 1.0, ALL_ENTRIES)] {
            for sample in &mut results.cells[0][row].samples {
                sample.kernel_entries_per_message = Some(entries);
                sample.settings.insert(ENTRIES_SOURCE.into(), source.into());
            }
        }
        let said = |results: &Results| last(results, 0, &results.ranking(0, false)).unwrap();
        assert!(said(&results).contains("5.0 calls into the kernel instead of 1.0"));
        for leaves_out in [Some(ENTRIES_WITHOUT_FUTEX), None] {
            for sample in &mut results.cells[0][0].samples {
                sample.settings.remove(ENTRIES_SOURCE);
                let source = leaves_out.map(|source| (ENTRIES_SOURCE.into(), source.into()));
                sample.settings.extend(source);
            }
            assert!(!said(&results).contains("calls into the kernel"), "{}", said(&results));
            let cell = &results.cells[0][0];
            assert_eq!(cell.entries_source(), leaves_out);
            assert_eq!(
                (cell.entries_text("5.0".into()), cell.entries_text("-".into())),
                ("≥ 5.0".into(), "-".into())
            );
        }
    }

    #[test]
    fn nobody_is_called_the_fastest_where_all_tie_or_all_is_open() {
        let of =
            |results: &Results| of_load(results, 0, false, &results.ranking(0, false)).join(" ");
        let tied = results(&[("epoll", 100e3), ("poll", 99.9e3)], 1);
        let text = of(&tied);
        assert!(
            text.starts_with(
                "No row is shown to be faster than the others; the highest figure is epoll's, 90 k messages/s."
            ),
            "{text}"
        );
        assert!(text.contains("Tied with it, within the noise: poll."), "{text}");
        let mut open = results(&[("epoll", 100e3), ("poll", 50e3)], 1);
        open.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let text = of(&open);
        assert!(
            text.starts_with("No row is shown to be faster") && !text.contains("fastest"),
            "{text}"
        );
        assert!(said(&open, "few").contains("; undecided against poll)"), "{}", said(&open, "few"));
    }

    #[test]
    fn a_thread_for_each_connection_has_its_price() {
        let mut results = results(&[("blocking", 50e3), ("epoll", 100e3)], 1);
        assert!(said(&results, "thread").contains("Not measured"));
        for sample in &mut results.cells[0][0].samples {
            sample.threads = Some(129);
        }
        let text = said(&results, "thread");
        assert!(text.contains("blocking has 0.50 times"), "{text}");
        assert!(
            text.contains("it takes 129 threads") && text.contains("the other 1 thread,"),
            "{text}"
        );
        for sample in &mut results.cells[0][0].samples {
            sample.connected = 40;
            sample.cause = Some("no more threads".into());
        }
        assert!(
            said(&results, "thread").contains("40 of 64 connections were made: no more threads")
        );
    }

    #[test]
    fn polling_buys_what_the_pairs_say() {
        let mut results = results(&[("ring", 150e3), ("epoll", 100e3)], 1);
        assert!(said(&results, "polling").contains("Not measured"));
        results.own.idle[0].cores_busy = Some(0.99);
        results.add_again(0);
        results.cells[0][3] = results.cells[0][0].clone();
        let text = said(&results, "polling");
        assert!(
            text.contains("ring, has 1.50 times (1.50 to 1.50) the messages/s (real)"),
            "{text}"
        );
    }
}
