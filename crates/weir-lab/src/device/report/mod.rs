//! What a person reads of a comparison of designs that read a device ([`report`]), and what a program
//! reads ([`json`]).

pub mod answers;
pub mod columns;
pub mod json;
pub mod over_time;

use std::fmt::Write as _;

use crate::device::plan::Load;
use crate::device::results::{Group, Results};
use crate::device::rows::title;
use crate::device::sample::SAMPLING;
use crate::experiment::cell::Skipped;
use crate::experiment::ranking::Ranking;
use crate::experiment::repeat;
use crate::report::layout::{self, Filled, NARROWEST, paragraph};
use crate::stats::quantile;
use crate::udp::report::table::{self, rounds};
use columns::{At, Column, NAMES};
use weir::device::Direction;

/// The whole report, at most `width` characters wide where the figures allow it.
pub fn report(results: &Results, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = settings(results, width);
    let mut said_of_rows = vec![];
    for load in 0..results.loads.len() {
        let untouched = results.cells[load].iter().all(|c| {
            let is_unavailable = matches!(c.skipped, Some(Skipped::Unavailable(_)));
            c.samples.is_empty() && c.failed_runs == 0 && !is_unavailable
        });
        if load > 0 && untouched {
            continue;
        }
        one_load(&mut text, results, load, width);
        for sentence in left_out(results, load) {
            if !said_of_rows.contains(&sentence) {
                paragraph(&mut text, &sentence, width);
                said_of_rows.push(sentence);
            }
        }
        of_time(&mut text, results, load);
    }
    if results.has_figures() {
        for answer in answers::all(results) {
            text.push('\n');
            paragraph(&mut text, answer.question, width);
            answer.sentences.iter().for_each(|sentence| paragraph(&mut text, sentence, width));
        }
    }
    warnings(&mut text, results, width);
    legend(&mut text, width);
    text
}

/// What the experiment ran on and with.
fn settings(results: &Results, width: usize) -> String {
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
    let samples = results.cells.iter().flatten().flat_map(|cell| &cell.samples);
    let times: Vec<f64> = samples.filter_map(|sample| sample.when.core_to_core_ns).collect();
    if let (Some(low), Some(middle), Some(high)) =
        (quantile(&times, 0.0), quantile(&times, 0.5), quantile(&times, 1.0))
    {
        let line = format!("core to core: {middle:.0} ns ({low:.0} to {high:.0} over the samples)");
        paragraph(&mut text, &line, width);
    }
    if let Some(why) = results.machine.unbound() {
        paragraph(&mut text, &format!("on any core: {why}"), width);
    } else if !results.own.cores.is_empty() {
        let cores: Vec<String> = results.own.cores.iter().map(usize::to_string).collect();
        paragraph(&mut text, &format!("bound to the cores {}", cores.join(",")), width);
    }
    if let Some(fio) = &results.own.fio {
        let line = format!(
            "{}: its rows are programs of its own; their commands stand in the document",
            fio.version
        );
        paragraph(&mut text, &line, width);
    }
    let read = |group: &Group| *group != Group::Nothing;
    let checked = (0..results.rows.len())
        .filter(|row| results.rows[*row].peer.is_none() && read(&results.group_of(*row)))
        .find_map(|row| results.own.checked[row].as_ref());
    if let Some(checked) = checked {
        let writes = results.loads.iter().any(|load| load.direction == Direction::Write);
        let line = format!(
            "checked before timing: each of weir's designs that reads something made {} reads of {} bytes \
             of a file of known content, and every byte of it came back right{}{}",
            checked.ios,
            checked.length_bytes,
            if writes { "; and as many writes, each of which was taken as a whole" } else { "" },
            if results.own.fio.is_some() { "; what fio reads is not looked at" } else { "" },
        );
        paragraph(&mut text, &line, width);
    }
    let _ = writeln!(text, "seed: {}", results.seed);
    text
}

/// The tables of one load, one for each group, and what they say.
fn one_load(text: &mut String, results: &Results, load: usize, width: usize) {
    let groups = results.groups(load);
    for group in &groups {
        let beside = match (*group, groups.len()) {
            (_, 1) => "",
            (Group::Waits, _) => ", what waits",
            (Group::Polls, _) => ", what polls",
            (Group::Nothing, _) => ", what reads nothing",
        };
        let of: &Load = &results.loads[load];
        let _ = writeln!(text, "\n{of}{beside}{}\n", rounds(results.schedules[load]));
        let ranking = results.ranking(load, *group);
        let order = order(results, load, *group, &ranking);
        let filled = |column: &Column| Filled {
            heading: column.heading.into(),
            figure: column.figure,
            texts: order
                .iter()
                .map(|row| (column.text)(&At { results, ranking: &ranking, load, row: *row }))
                .collect(),
        };
        let names = NAMES.iter().map(filled).collect();
        let columns = columns::of(results, load).iter().map(filled).collect();
        for part in layout::parts(names, columns, width) {
            let _ = writeln!(text, "{}\n", part.trim_fmt());
        }
        let said = answers::of_load(results, load, *group, &ranking);
        paragraph(text, &said.join(" "), width);
        if *group != Group::Nothing {
            paragraph(text, &noise(results, load, *group, &ranking), width);
        }
    }
    if let Some(said) = sampling(results, load) {
        paragraph(text, &said, width);
    }
}

/// What taking latencies cost the row that it cost most.
fn sampling(results: &Results, load: usize) -> Option<String> {
    let cells = results.cells[load].iter().enumerate();
    let (row, percent) = cells
        .filter_map(|(row, cell)| Some((row, cell.estimate(&SAMPLING, results.seed)?.median)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(format!(
        "Taking latencies cost at most {percent:.2} % of an I/O's CPU time ({}, the median over its runs), by what \
         reading the clock takes.",
        title(&results.rows[row])
    ))
}

/// The rows of a group: ranked ones first, best first, each followed by its second name; then the others.
fn order(results: &Results, load: usize, group: Group, ranking: &Ranking) -> Vec<usize> {
    let rows = (0..results.rows.len())
        .filter(|row| results.group_of(*row) == group)
        // The first table says that they cannot run here.
        .filter(|row| load == 0 || results.rows[*row].unavailable.is_none());
    ranking.order(results.again(group), rows, |row| results.shown(load, row))
}

fn noise(results: &Results, load: usize, group: Group, ranking: &Ranking) -> String {
    let again = results.again(group).map(|(of, _)| title(&results.rows[of]));
    table::noise_and_confidence(
        ranking,
        again,
        &results.confidence(load),
        results.changed_runs(load),
    ) + &repeat::said(&results.cells[load])
}

fn left_out(results: &Results, load: usize) -> Vec<String> {
    (0..results.rows.len())
        .filter_map(|row| {
            let reason = results.unranked(load, row)?;
            let of = match &results.cells[load][row].skipped {
                Some(_) => format!(" under {}", results.loads[load]),
                None => String::new(),
            };
            Some(format!("Not ranked{of}: {}: {reason}", title(&results.rows[row])))
        })
        .collect()
}

fn of_time(text: &mut String, results: &Results, load: usize) {
    let said = over_time::said(results, load);
    if said.is_empty() {
        return;
    }
    let long = load == 0 && results.own.long_runs.iter().any(Option::is_some);
    let of = if long { "its long run where it made one" } else { "its runs" };
    let _ = writeln!(text, "\n{}: how the rate of each changes within {of}:", results.loads[load]);
    said.iter().for_each(|line| {
        let _ = writeln!(text, "  {line}");
    });
}

fn warnings(text: &mut String, results: &Results, width: usize) {
    text.push('\n');
    for warning in results.machine.warnings.iter().chain(&results.warnings) {
        paragraph(text, &format!("warning: {warning}"), width);
    }
    if results.interrupted {
        paragraph(text, "warning: ended before its plan was through; this is what there is", width);
    }
    if let Some(error) = &results.error {
        paragraph(text, &format!("error: {error}"), width);
    }
}

fn legend(text: &mut String, width: usize) {
    text.push('\n');
    for line in [
        "I/Os/s: I/Os that completed, median over the rounds, after the warm-up; ± half of its 95 % \
         interval, or in brackets half of the range of fewer than 6 rounds, which is no interval. × best \
         and × sync: to the figure of the best row of its group and to that of sync, the median over \
         pairs of runs of one round; ~ a tie, within the noise; ? open, too few pairs; - not ranked, for the \
         reason below the table, and then its figures stand alone. (again): the same row under a second \
         name, which shows the noise.",
        "latency: from when an I/O was issued until it was in the program's hands, of one I/O in 128, all \
         rounds together. CPU: of the process for each I/O, threads that the kernel lends it included; the \
         parts are found by sampling at the timer's ticks. calls, switches: entries into the kernel and \
         context switches for each I/O; ≥ calls: without those by \
         which threads wait for each other and wake each other (futex), which are not counted; such a number \
         is compared with no other. I/Os/take: how many came at once. hand-overs: completions that \
         another thread handled than the one that took them.",
        "limited by: CPU, it kept a core busy; waiting, it did not. What polls keeps a core busy even where \
         something comes only now and then; what reads nothing shows what an I/O costs without one; each \
         is ranked apart.",
    ] {
        paragraph(text, line, width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fio::Fio;
    use crate::device::results::tests::results;
    use crate::experiment::cell::Cell;

    #[test]
    fn the_report_has_a_table_for_each_group_and_says_what_cannot_be_ranked() {
        let mut results = results(
            &[
                ("sync", 2e6),
                ("ring", 1e6),
                ("ring-polled", 3e6),
                ("no-op", 8e6),
                ("fio psync=fio", 1e6),
            ],
            0,
        );
        results.own.checked[2].as_mut().unwrap().idle_cores = Some(1.9);
        results.own.checked[3].as_mut().unwrap().reads_nothing = true;
        results.cells[0][4] = Cell {
            skipped: Some(Skipped::Unavailable("fio refuses it".into())),
            ..Cell::default()
        };
        results.own.fio = Some(Fio { version: "fio-3.33".into() });
        let text = report(&results, 205);
        for wanted in [
            "/dev/null, 4096 B, what waits",
            "/dev/null, 4096 B, what polls",
            "/dev/null, 4096 B, what reads nothing",
            "sync (again)",
            "fio-3.33: its rows are programs",
            "Not ranked under /dev/null, 4096 B: fio psync: fio refuses it",
            "Noise floor",
            "how the rate of each changes within its runs",
            "Does asynchronous I/O pay here?",
            "0.40/0.90",
            "Taking latencies cost at most 0.72 % of an I/O's CPU time (no-op",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing of\n{text}");
        }
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("ring ").contains("0.50") && line("no-op").contains("4.00"), "{text}");
    }

    #[test]
    fn writes_are_told_as_such() {
        let mut results = results(&[("sync", 2e6), ("ring", 3e6)], 0);
        results.loads[0].direction = Direction::Write;
        let text = report(&results, 205);
        for wanted in ["/dev/null, 4096 B, writes", "plain writes", "as many writes, each of which"]
        {
            assert!(text.contains(wanted), "{wanted:?} is missing of\n{text}");
        }
    }

    #[test]
    fn every_line_keeps_to_the_width() {
        let results = results(&[("sync", 2e6), ("ring", 1e6)], 0);
        for width in [100, 205] {
            let text = report(&results, width);
            let widest = text.lines().map(layout::chars).max().unwrap();
            assert!(widest <= width, "{widest} of {width}:\n{text}");
        }
    }
}
