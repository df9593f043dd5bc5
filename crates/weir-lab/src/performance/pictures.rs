//! The performance log as pictures: what the server of each row did as its runs went on.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::report::model::{items, number, text};
use crate::report::number::{percent_of, si};
use crate::report::pictures::{Own, Text};

/// Most points of a line: of more, neighbours are taken together.
const MOST_POINTS: usize = 24;
/// Most rows that are drawn: those that are ranked first.
const MOST_ROWS: usize = 12;

/// Something that records tell over time.
struct Figure {
    plot: &'static str,
    title: &'static str,
    about: &'static str,
    up: (&'static str, Text),
    /// Its sum in a record, which is divided by that of the other one.
    of: fn(&Value) -> Option<f64>,
    by: fn(&Value) -> Option<f64>,
}

fn seconds(record: &Value) -> Option<f64> {
    let ns = number(&record["to_ns"])? - number(&record["from_ns"])?;
    (ns > 0.0).then_some(ns / 1e9)
}

/// The sum of what threads tell, or `None` if one of them does not.
fn of_threads(record: &Value, figure: &str) -> Option<f64> {
    let threads: Vec<&Value> = items(&record["threads"]).collect();
    (!threads.is_empty()).then(|| threads.iter().map(|of| number(&of["usage"][figure])).sum())?
}

/// What the server is for, by the name of its counter.
const HANDLED: [&str; 3] = ["datagrams", "messages", "completed"];

fn handled(record: &Value) -> Option<f64> {
    HANDLED.iter().find_map(|name| number(&record["counts"][*name]))
}

const FIGURES: [Figure; 5] = [
    Figure {
        plot: "log-rate",
        title: "Performance log: rate",
        about: "What the server handled per second (datagrams, receives of TCP, or I/Os), as its runs went on.",
        up: ("per second", si),
        of: handled,
        by: seconds,
    },
    Figure {
        plot: "log-cpu",
        title: "Performance log: CPU time of the server's threads",
        about: "CPU time that the server's threads had, in percent of one core.",
        up: ("% of a core", percent_of),
        of: |record| Some(of_threads(record, "cpu_ns")? / 1e7),
        by: seconds,
    },
    Figure {
        plot: "log-switches",
        title: "Performance log: context switches of the server's threads",
        about: "Times per second that a thread of the server waited, or lost its core to another.",
        up: ("per second", si),
        of: |record| {
            Some(
                of_threads(record, "voluntary_switches")?
                    + of_threads(record, "involuntary_switches")?,
            )
        },
        by: seconds,
    },
    Figure {
        plot: "log-batch",
        title: "Performance log: taken at a time",
        about: "How much a dequeue brought, the mean of each interval; empty ones do not count.",
        up: ("at a time", si),
        of: |record| number(&record["mean_batch"]),
        by: |_| Some(1.0),
    },
    Figure {
        plot: "log-interrupts",
        title: "Performance log: interrupts of the machine",
        about: "Hardware interrupts per second of all cores, whatever program they were for.",
        up: ("per second", si),
        of: |record| number(&record["system"]["interrupts"]),
        by: seconds,
    },
];

/// The pictures of a document: of its main load, over the time of each row's runs, one after the other, and what each
/// thread had of it.
pub(crate) fn pictures(document: &Value) -> Vec<Own> {
    let rows = rows(document);
    let over_time = FIGURES.iter().map(|figure| Own {
        plot: figure.plot,
        title: figure.title.into(),
        about: figure.about,
        across: "seconds of its runs, one after the other",
        up: figure.up,
        lines: rows.iter().map(|(name, runs)| (name.clone(), line(runs, figure))).collect(),
    });
    let over_threads = Own {
        plot: "log-threads",
        title: "Performance log: what each thread handled".into(),
        about: "The share of the work that each thread did, the busiest thread first, for designs with several \
                threads. Where a line falls steeply, few threads do the work.",
        across: "threads, the busiest first",
        up: ("% of all", percent_of),
        lines: rows.iter().map(|(name, runs)| (name.clone(), shares(runs))).collect(),
    };
    over_time
        .chain([over_threads])
        .filter(|own| own.lines.iter().any(|(_, points)| points.len() > 1))
        .collect()
}

/// Each row's name and the records of its runs that count, under the main load.
fn rows<'d>(document: &'d Value) -> Vec<(String, Vec<Vec<&'d Value>>)> {
    let main = document["main_load"].as_u64().unwrap_or(0) as usize;
    let load = &document["loads"][main]["name"];
    let mut rows: Vec<&'d Value> = items(&document["results"])
        .filter(|row| row["load_name"] == *load && row["role"] != "again")
        .collect();
    rows.sort_by_key(|row| row["rank"].as_u64().unwrap_or(u64::MAX));
    let of = |row: &&'d Value| {
        let runs = items(&row["runs"]).filter(|run| run["counted"] != false);
        let runs: Vec<Vec<&Value>> = runs
            .map(|run| items(&run["performance"]).collect())
            .filter(|all: &Vec<_>| !all.is_empty())
            .collect();
        let provider = text(row, "provider").map(|of| format!(" on {of}")).unwrap_or_default();
        let name = text(row, "name").or_else(|| text(row, "spec")).unwrap_or_default();
        (name, provider, runs)
    };
    let all: Vec<_> =
        rows.iter().map(of).filter(|(.., runs)| !runs.is_empty()).take(MOST_ROWS).collect();
    // A provider is said where two rows have one name.
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    all.iter().for_each(|(name, ..)| *times.entry(name).or_default() += 1);
    let named = |(name, provider, runs): &(String, String, Vec<Vec<_>>)| match times[name.as_str()]
    {
        1 => (name.clone(), runs.clone()),
        _ => (format!("{name}{provider}"), runs.clone()),
    };
    all.iter().map(named).collect()
}

/// The points of a row: where each interval begins, and its figure.
fn line(runs: &[Vec<&Value>], figure: &Figure) -> Vec<[f64; 2]> {
    let mut at = 0.0;
    let mut points: Vec<(f64, f64, f64)> = vec![];
    for record in runs.iter().flatten() {
        let Some(length) = seconds(record) else { continue };
        if let Some((of, by)) = (figure.of)(record).zip((figure.by)(record)) {
            points.push((at, of, by));
        }
        at += length;
    }
    let together = points.len().div_ceil(MOST_POINTS).max(1);
    let point = |some: &[(f64, f64, f64)]| {
        let (of, by) = some.iter().fold((0.0, 0.0), |(of, by), one| (of + one.1, by + one.2));
        [some[0].0, of / by]
    };
    points.chunks(together).map(point).collect()
}

/// What each thread handled of all, in percent, the most first; nothing where there is one thread.
fn shares(runs: &[Vec<&Value>]) -> Vec<[f64; 2]> {
    // Each run has threads of its own: the busiest of each are put together.
    let mut all: Vec<f64> = vec![];
    for run in runs {
        let mut of_run: BTreeMap<String, f64> = BTreeMap::new();
        for thread in run.iter().flat_map(|record| items(&record["threads"])) {
            let count = HANDLED.iter().find_map(|name| number(&thread["counts"][*name]));
            *of_run.entry(text(thread, "name").unwrap_or_default()).or_default() +=
                count.unwrap_or(0.0);
        }
        let mut counts: Vec<f64> = of_run.into_values().collect();
        counts.sort_by(|one, other| other.total_cmp(one));
        all.resize(all.len().max(counts.len()), 0.0);
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let sum: f64 = all.iter().sum();
    if all.len() < 2 || sum == 0.0 {
        return vec![];
    }
    (1..).zip(all).map(|(index, count)| [f64::from(index), count / sum * 100.0]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(from_s: u64, datagrams: [u64; 2]) -> Value {
        let thread = |index: usize| {
            json!({
                "name": format!("weir-udp-{index}"), "counts": { "datagrams": datagrams[index] },
                "usage": { "cpu_ns": 250_000_000, "voluntary_switches": 3, "involuntary_switches": null },
            })
        };
        json!({
            "from_ns": from_s * 1_000_000_000, "to_ns": (from_s + 1) * 1_000_000_000, "mean_batch": 8.0,
            "counts": { "datagrams": datagrams[0] + datagrams[1] }, "threads": [thread(0), thread(1)],
            "system": { "interrupts": null },
        })
    }

    fn document(records: u64) -> Value {
        let runs: Vec<Value> = (1..=2)
            .map(|block| json!({
                "block": block, "counted": true,
                "performance": (0..records).map(|at| record(at, [block * 100, 0])).collect::<Vec<_>>(),
            }))
            .collect();
        json!({
            "main_load": 0, "loads": [{ "name": "saturation" }],
            "results": [
                { "load_name": "saturation", "name": "port", "role": "plain", "rank": 1, "runs": runs },
                { "load_name": "other", "name": "no", "role": "plain", "rank": 1, "runs": runs },
                { "load_name": "saturation", "name": "port", "role": "again", "rank": 2, "runs": runs },
            ],
        })
    }

    #[test]
    fn runs_stand_one_after_the_other() {
        let drawn = pictures(&document(2));
        let of = |plot: &str| drawn.iter().find(|own| own.plot == plot);
        let lines = &of("log-rate").unwrap().lines;
        assert_eq!(lines.len(), 1, "neither another load nor a second name");
        assert_eq!(lines[0].1, [[0.0, 100.0], [1.0, 100.0], [2.0, 200.0], [3.0, 200.0]]);
        assert_eq!(of("log-cpu").unwrap().lines[0].1[0], [0.0, 50.0]);
        assert_eq!(of("log-threads").unwrap().lines[0].1, [[1.0, 100.0], [2.0, 0.0]]);
        assert!(of("log-switches").is_none(), "what is not known in full is not drawn");
        assert!(of("log-interrupts").is_none());
    }

    #[test]
    fn a_long_log_has_as_many_points_as_a_picture_takes() {
        let drawn = pictures(&document(500));
        let points = &drawn.iter().find(|own| own.plot == "log-rate").unwrap().lines[0].1;
        assert!(points.len() <= MOST_POINTS && points.len() > MOST_POINTS / 2, "{}", points.len());
        assert_eq!((points[0][1], points.last().unwrap()[1]), (100.0, 200.0));
        assert!(pictures(&json!({})).is_empty());
    }
}
