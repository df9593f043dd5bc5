//! What a comparison of designs that read a device tells, for a person and for a program.

pub mod answers;
mod columns;
pub mod json;
pub mod over_time;
mod pictures;
#[cfg(test)]
mod schema;

use serde_json::{Value, json};
use weir::device::Direction;

use crate::device::plan::Load;
use crate::device::results::{Devices, Group, Results};
use crate::device::rows::title;
use crate::device::sample::{
    CONTEXT_SWITCHES, CPU, HAND_OVERS, KERNEL_ENTRIES, LATENCY_P50, LATENCY_P99, SAMPLING, Sample,
    TAKEN, word,
};
use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::experiment::verdict::Limit;
use crate::report::columns::Column;
use crate::report::conclusion::Unit;
use crate::report::layout::paragraph;
use crate::report::pictures::{Aside, Overtaking, Pictures};
use crate::report::{Answer, Reported};

impl Reported for Devices {
    const KIND: &'static str = "iops";
    const UNIT: Unit<Sample> = Unit {
        title: "Device reads",
        one: "I/O",
        cpu: &CPU,
        latency: [&LATENCY_P50, &LATENCY_P99],
        causes: &[
            (&CPU, "ns of CPU time per I/O"),
            (&KERNEL_ENTRIES, "kernel calls per I/O"),
            (&HAND_OVERS, "hand-overs between threads per I/O"),
            (&CONTEXT_SWITCHES, "context switches per I/O"),
        ],
        live: &[&CPU, &TAKEN, &KERNEL_ENTRIES, &LATENCY_P99],
        wider: "-l, --delay and --sweep measure them",
    };
    const PICTURES: Pictures = pictures::PICTURES;
    const LIMITS: &'static str = "CPU: it kept a core busy; waiting: it did not; others: other programs had the cores \
                                  (≥: it could do more). Busy-polling designs keep a core busy even when something \
                                  arrives only now and then; designs that read nothing show a lower bound of what an \
                                  I/O costs; each group is ranked separately";
    const RATIO_FIELD: Option<&'static str> = Some("ratio_to_sync");

    fn name(row: &Row) -> String {
        title(row)
    }

    fn word(limit: Limit) -> &'static str {
        word(limit)
    }

    fn settings(results: &Results) -> Vec<String> {
        let mut said = vec![];
        if let Some(why) = results.machine.unbound() {
            said.push(format!("on any core: {why}"));
        } else if !results.own.cores.is_empty() {
            let cores: Vec<String> = results.own.cores.iter().map(usize::to_string).collect();
            said.push(format!("bound to the cores {}", cores.join(",")));
        }
        said.extend(results.own.fio.as_ref().map(|fio| {
            format!(
                "{}: runs as separate programs; their commands are in the document",
                fio.version
            )
        }));
        let read = |group: &Group| *group != Group::Nothing;
        let checked = (0..results.rows.len())
            .filter(|row| results.rows[*row].peer.is_none() && read(&results.group_of(*row)))
            .find_map(|row| results.own.checked[row].as_ref());
        said.extend(checked.map(|checked| {
            let writes = results.loads.iter().any(|load| load.direction == Direction::Write);
            format!(
                "checked before timing: each of weir's designs that reads something made {} reads of {} bytes \
                 of a file of known content, and every byte of it was right{}{}",
                checked.ios,
                checked.length_bytes,
                if writes { "; and as many writes, each of which was complete" } else { "" },
                if results.own.fio.is_some() { "; what fio reads is not checked" } else { "" },
            )
        }));
        said
    }

    fn beside(group: Group) -> &'static str {
        match group {
            Group::Waits => ", sleeping designs",
            Group::Polls => ", busy-polling designs",
            Group::Nothing => ", designs that read nothing",
        }
    }

    fn columns(results: &Results, load: usize) -> Vec<Column<Self>> {
        columns::of(results, load)
    }

    fn summary(results: &Results, load: usize, group: Group, ranking: &Ranking) -> Vec<String> {
        answers::of_load(results, load, group, ranking)
    }

    fn after_load(results: &Results, load: usize, width: usize) -> String {
        let mut text = String::new();
        paragraph(&mut text, &sampling(results, load).unwrap_or_default(), width);
        text + &of_time(results, load)
    }

    fn answers(results: &Results) -> Vec<Answer> {
        answers::all(results)
    }

    fn load_value(load: &Load) -> Value {
        json::load_value(load)
    }

    fn of_group_value(_: &Results, _: usize, group: Group) -> Value {
        json!({ "group": group.name() })
    }

    fn of_row_value(results: &Results, load: usize, row: usize) -> Value {
        json::of_row(results, load, row)
    }

    fn of_all_value(results: &Results) -> Value {
        json::of_all(results)
    }

    fn overtakings(document: &Value) -> Vec<Overtaking> {
        pictures::overtakings(document)
    }

    fn further(document: &Value) -> Option<Aside> {
        pictures::long_runs(document)
    }
}

/// What taking latencies cost the row that it cost most.
fn sampling(results: &Results, load: usize) -> Option<String> {
    let cells = results.cells[load].iter().enumerate();
    let (row, percent) = cells
        .filter_map(|(row, cell)| Some((row, cell.estimate(&SAMPLING, results.seed)?.median)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(format!(
        "Taking latencies cost at most {percent:.2} % of an I/O's CPU time ({}, the median over its runs), \
         estimated from the time to read the clock.",
        title(&results.rows[row])
    ))
}

/// How the rate of each row changes with time.
fn of_time(results: &Results, load: usize) -> String {
    let said = over_time::said(results, load);
    if said.is_empty() {
        return String::new();
    }
    let long = load == 0 && results.own.long_runs.iter().any(Option::is_some);
    let of = if long { "its long run, if it made one" } else { "its runs" };
    let lines: String = said.iter().map(|line| format!("  {line}\n")).collect();
    format!("\n{}: how the rate of each changes within {of}:\n{lines}", results.loads[load])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fio::Fio;
    use crate::device::results::tests::results;
    use crate::experiment::cell::Cell;
    use crate::experiment::cell::Skipped;
    use crate::report::layout;
    use crate::report::table::report;

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
        let (text, load) = (report(&results, 205), &results.loads[0]);
        for wanted in [
            &*format!("{load}, sleeping designs"),
            &*format!("{load}, busy-polling designs"),
            &*format!("{load}, designs that read nothing"),
            "sync (again)",
            "fio-3.33: runs as separate programs",
            &*format!("Not ranked under {load}: fio psync: fio refuses it"),
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
        for wanted in [", 4096 B, writes", "plain writes", "as many writes, each of which"] {
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
