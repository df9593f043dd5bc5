//! The report for a person: settings, a table for each load, the sentences, and what the columns mean, cut to the
//! width of the terminal.

use std::fmt::Write as _;

use crate::experiment::cell::Skipped;
use crate::experiment::plan::Schedule;
use crate::experiment::plan::budget::NOT_CHECKED;
use crate::experiment::ranking::Ranking;
use crate::experiment::repeat;
use crate::experiment::results::Results;
use crate::hosts::{Host, Hosts};
use crate::report::Reported;
use crate::report::columns::{At, Column, names};
use crate::report::layout::{Filled, NARROWEST, paragraph, parts};
use crate::report::missed;
use crate::report::number::percent;
use crate::report::places::Places;
use crate::report::sentences::{summary, together};
use crate::report::words::{list, number_of};
use crate::stats::quantile;

/// The whole report, at most `width` characters wide where the figures allow it.
pub fn report<K: Reported>(results: &Results<K>, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = settings(results, width);
    let (mut said_of_rows, mut meanings) = (vec![], vec![]);
    for load in 0..results.loads.len() {
        let mut cells = results.cells[load].iter();
        let nothing = cells.all(|cell| cell.samples.is_empty() && cell.failed_runs == 0);
        if !K::has_table(&results.loads[load]) {
            continue;
        }
        let has_table = load == 0 || !nothing;
        if has_table {
            for group in results.groups(load) {
                one_group(&mut text, results, load, group, width);
            }
            for column in K::columns(results, load).into_iter().filter(|of| !of.about.is_empty()) {
                let meaning = meaning(&column);
                if !meanings.contains(&meaning) {
                    meanings.push(meaning);
                }
            }
        }
        if let Some(missed) = missed::words(results, load).filter(|_| !has_table) {
            let said = format!("{}: {missed}", results.loads[load]);
            paragraph(&mut text, &said, width);
        }
        for sentence in left_out(results, load) {
            if !said_of_rows.contains(&sentence) {
                paragraph(&mut text, &sentence, width);
                said_of_rows.push(sentence);
            }
        }
        if has_table {
            text.push_str(&K::after_load(results, load, width));
        }
    }
    text.push_str(&K::after_loads(results, width));
    if results.has_figures() {
        for answer in K::answers(results) {
            text.push('\n');
            paragraph(&mut text, answer.question, width);
            answer.sentences.iter().for_each(|sentence| paragraph(&mut text, sentence, width));
        }
    }
    warnings(&mut text, results, width);
    text.push('\n');
    K::legend(results).iter().for_each(|line| paragraph(&mut text, line, width));
    meanings.iter().for_each(|line| paragraph(&mut text, line, width));
    text
}

/// What a column means, as a sentence that begins with its heading.
fn meaning<K: Reported>(column: &Column<K>) -> String {
    let about = column.about.trim().trim_end_matches('.');
    let mut chars = about.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    // A word in capitals stays one.
    let is_word = second.is_some_and(|second| second.is_lowercase() || second == ' ');
    let about: String = match first {
        Some(first) if is_word => first.to_lowercase().chain(chars).collect(),
        _ => about.to_owned(),
    };
    let heading = column.heading.trim_end().replace("/\n", "/").replace("\n/", "/");
    format!("{}: {about}.", heading.replace('\n', " "))
}

/// What the experiment ran on and with.
fn settings<K: Reported>(results: &Results<K>, width: usize) -> String {
    let mut text = String::new();
    let property = |name| results.machine.text(name);
    let known = [
        property("cpu_model"),
        property("cores").map(|cores| format!("{cores} cores")),
        property("kernel"),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if !known.is_empty() {
        paragraph(&mut text, &format!("machine: {}", known.join(", ")), width);
    }
    let times: Vec<f64> = results.core_to_core_ns();
    if let (Some(low), Some(middle), Some(high)) =
        (quantile(&times, 0.0), quantile(&times, 0.5), quantile(&times, 1.0))
    {
        let line = format!("core to core: {middle:.0} ns ({low:.0} to {high:.0} over the samples)");
        paragraph(&mut text, &line, width);
    }
    K::settings(results).iter().for_each(|line| paragraph(&mut text, line, width));
    let _ = writeln!(text, "seed: {}", results.seed);
    text
}

/// Where both sides of an experiment ran: what each is called, and its cores.
pub(crate) fn both_sides<K: Reported>(
    results: &Results<K>,
    [(server, server_cores), (other, other_cores)]: [(&str, &[usize]); 2],
) -> Vec<String> {
    let cores = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let place = match results.machine.unbound() {
        Some(why) => Some(format!("{server} and {other} on any core: {why}")),
        None => (!server_cores.is_empty()).then(|| {
            let (server_on, other_on) = (cores(server_cores), cores(other_cores));
            format!("{server} on core {server_on}, {other} on core {other_on}")
        }),
    };
    let one = (server_cores.len() == 1)
        .then(|| "one core: the rows claim nothing about scaling".to_owned());
    place.into_iter().chain(one).collect()
}

/// Where server and generators (or clients) of a comparison over hosts ran, and how far apart they began.
pub(crate) fn over_hosts(hosts: &Hosts, other: &str, skews: Vec<(u64, u64)>) -> Vec<String> {
    let cores = |list: &[usize]| match list {
        [] => "any core".to_owned(),
        [one] => format!("core {one}"),
        list => {
            format!("cores {}", list.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
        }
    };
    let at = |host: &Host| {
        let machine = if host.machine.is_empty() { "" } else { " (" };
        let end = if host.machine.is_empty() { "" } else { ")" };
        format!("{host}{machine}{}{end}, {}, by {}", host.machine, cores(&host.cores), host.link)
    };
    let mut said = vec![format!("server: {}", at(&hosts.server))];
    let several = if hosts.generators.len() == 1 { "" } else { "s" };
    said.push(format!("{} {other}{several}:", hosts.generators.len()));
    said.extend(hosts.generators.iter().map(|host| format!("  {}", at(host))));
    let mut each: Vec<u64> = skews.iter().map(|(skew_ns, _)| *skew_ns).collect();
    each.sort_unstable();
    let uncertainty_ns = skews.iter().map(|(_, wrong_ns)| *wrong_ns).max();
    if let (Some(most), Some(wrong), true) = (each.last(), uncertainty_ns, several == "s") {
        let us = |ns: u64| format!("{:.0} µs", ns as f64 / 1e3);
        said.push(format!(
            "start of the {other}s: the last began {} after the first (median of {} runs; at most {}), by clocks that are \
             known within {}",
            us(each[each.len() / 2]),
            each.len(),
            us(*most),
            us(wrong)
        ));
    }
    if hosts.server.cores.len() == 1 {
        said.push("one core: the rows claim nothing about scaling".into());
    }
    said
}

/// The table of one group of rows under one load, and what it says.
fn one_group<K: Reported>(
    text: &mut String,
    results: &Results<K>,
    load: usize,
    group: K::Group,
    width: usize,
) {
    let beside = if results.groups(load).len() > 1 { K::beside(group) } else { "" };
    let of = &results.loads[load];
    let _ = writeln!(
        text,
        "\n{of}{beside}{}\n",
        rounds(results.schedules[load], results.rounds_complete(load))
    );
    let ranking = results.ranking(load, group);
    // The first table says that they cannot run here.
    let rows = results
        .rows_of(load, group)
        .filter(|row| load == 0 || results.rows[*row].unavailable.is_none());
    let order = ranking.order(results.again(group), rows, |row| results.shown(load, row));
    let filled = |column: &Column<K>| Filled {
        heading: column.heading.into(),
        figure: column.figure,
        texts: order
            .iter()
            .map(|row| (column.text)(&At { results, ranking: &ranking, load, row: *row }))
            .collect(),
    };
    let columns = K::columns(results, load).iter().map(filled).collect();
    for part in parts(names().iter().map(filled).collect(), columns, width) {
        let _ = writeln!(text, "{}\n", part.trim_fmt());
    }
    if let Some(hosts) = K::hosts(results, load) {
        paragraph(text, &Places::of(&hosts, K::GENERATOR).sentence(), width);
    }
    paragraph(text, &summary(results, load, group, &ranking).join(" "), width);
    K::of_group(results, load, group).iter().for_each(|said| paragraph(text, said, width));
    // One that is judged by the noise of another has none of its own.
    if K::judged_by(group) == group {
        paragraph(text, &noise(results, load, group, &ranking), width);
    }
}

/// How often and how long a load is run, behind its name: where it was less often than planned, how often it was.
fn rounds(schedule: Option<Schedule>, complete: usize) -> String {
    let Some(Schedule { rounds, run_ms, warmup_ms }) = schedule else { return String::new() };
    let begun = match complete < rounds as usize {
        true => format!("{complete} of {rounds} rounds"),
        false => number_of(rounds as usize, "round"),
    };
    format!(": {begun} of {run_ms} ms after {warmup_ms} ms of warm-up")
}

/// How sure a ranking is: its noise floor, its intervals, and the runs in which the machine changed.
fn noise<K: Reported>(
    results: &Results<K>,
    load: usize,
    group: K::Group,
    ranking: &Ranking,
) -> String {
    if !results.compares(load) {
        return String::new();
    }
    let again = results.again(group).map(|(of, _)| results.title(of));
    let mut text = match (ranking.noise_floor, again) {
        (Some(_), Some(of)) if ranking.is_too_noisy() => {
            format!("Noise floor above 100 % ({of} under two names).")
        }
        (Some(floor), Some(of)) => {
            format!(
                "Noise floor {} ({of} under two names). Ratios are judged at 95 % confidence{}.",
                percent(floor),
                together(ranking.comparisons)
            )
        }
        _ => "The noise floor is unknown, so no difference is called real.".into(),
    };
    let confidence = results.confidence(load);
    let _ = match confidence.widest {
        Some(widest) if confidence.reached() => {
            write!(text, " Every figure is known within ±{} (95 %).", percent(widest))
        }
        Some(widest) => write!(
            text,
            " The requested confidence (±{}) was not reached: the widest interval is ±{}; {} or fewer designs \
             make it narrower.",
            percent(confidence.asked),
            percent(widest),
            results.more_rounds(load)
        ),
        None => write!(text, " Too few rounds for intervals."),
    };
    let (unlike, runs) = results.uncounted_runs(load);
    if unlike > 0 {
        let _ = write!(
            text,
            " In {unlike} of {runs} runs the machine had changed (core to core): medians leave these out, \
             while pairs of runs within one such period count."
        );
    }
    if ranking.unlike_pairs > 0 {
        let _ = write!(
            text,
            " Left out, because the machine changed between two runs: {}.",
            number_of(ranking.unlike_pairs, "comparison")
        );
    }
    text + &repeat::said(&results.cells[load])
}

/// Why rows have no rank: a sentence for each reason.
fn left_out<K: Reported>(results: &Results<K>, load: usize) -> Vec<String> {
    let mut reasons: Vec<((String, String), Vec<String>)> = vec![];
    for row in (0..results.rows.len()).filter(|row| results.takes_part(load, *row)) {
        let Some(reason) = results.unranked(load, row) else { continue };
        if missed::is_only_that(results, load, row) {
            continue;
        }
        let under = match &results.cells[load][row].skipped {
            Some(Skipped::NotMeasured(why)) if why == NOT_CHECKED => String::new(),
            Some(_) if results.rows[row].unavailable.is_none() => {
                format!(" under {}", results.loads[load])
            }
            _ => String::new(),
        };
        let (name, reason) = (results.title(row), (under, reason));
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let said = |((under, reason), names): ((String, String), Vec<String>)| {
        format!("Not ranked{under}: {}: {reason}", list(&names))
    };
    reasons.into_iter().map(said).collect()
}

fn warnings<K: Reported>(text: &mut String, results: &Results<K>, width: usize) {
    text.push('\n');
    for warning in results.machine.warnings.iter().chain(&results.warnings) {
        paragraph(text, &format!("warning: {warning}"), width);
    }
    if results.interrupted {
        paragraph(text, "warning: interrupted; the results are partial", width);
    }
    if let Some(error) = &results.error {
        paragraph(text, &format!("error: {error}"), width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_between_words() {
        let mut text = String::new();
        paragraph(&mut text, "one two three", 8);
        assert_eq!(text, "one two\nthree\n");
    }
}
