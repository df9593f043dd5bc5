//! The tables of the sweeps: each row along rising work, threads or load.

use crate::report::layout::{figures, paragraph, table_of_width};
use crate::report::number::{UNKNOWN, microseconds, or_unknown, percent, si};
use crate::udp::crossing::{Axis, Sweep, over_options, over_threads, over_work};
use crate::udp::curve::{Highest, highest_of};
use crate::udp::plan::{Goal, Load, Rate, Shown};
use crate::udp::report::answers::crossings;
use crate::udp::results::Results;
use crate::udp::sample::{LATENCY_P50, LATENCY_P99, SERVER_CPU};

/// All of them; empty if nothing was swept.
pub(super) fn tables(results: &Results, width: usize) -> String {
    let mut text = String::new();
    // The steps of a sweep over work have their threads in its own table.
    let has_table = |sweep: &Sweep| match sweep.axis {
        Axis::Threads { load } => results.loads[load].shown == Shown::Table,
        Axis::Work { .. } | Axis::Option { .. } => true,
    };
    let (work, threads) = (over_work(results), over_threads(results));
    let options = over_options(results);
    for sweep in work.iter().chain(&threads).chain(&options).filter(|sweep| has_table(sweep)) {
        text.push_str(&along(results, sweep, width));
        if let Some(words) = crossings(results, sweep) {
            paragraph(&mut text, &words, width);
        }
    }
    text.push_str(&under_load(results, width).unwrap_or_default());
    text
}

/// Datagrams received per second at each stop; `*` marks the most of a stop.
fn along(results: &Results, sweep: &Sweep, width: usize) -> String {
    let (title, unit) = match sweep.axis {
        Axis::Work { shared: false } => {
            ("received/s with work on each thread's own state".into(), "steps")
        }
        Axis::Work { shared: true } => {
            ("received/s with work on state that all threads share".into(), "steps")
        }
        Axis::Option { of, load } => {
            (format!("received/s by {}, {}", of.name, results.loads[load]), of.unit)
        }
        Axis::Threads { load } => {
            (format!("received/s by threads, {}", results.loads[load]), "threads")
        }
    };
    let stops = 0..sweep.stops.len();
    let best: Vec<Option<usize>> = stops.clone().map(|stop| sweep.best(results, stop)).collect();
    let mut table = table_of_width(width);
    let heading = |stop: usize| sweep.stops[stop].at.to_string();
    table.set_header(std::iter::once(unit.to_string()).chain(stops.clone().map(heading)));
    let mut designs: Vec<usize> = (0..sweep.names.len()).collect();
    let first = |design: usize| sweep.median(results, 0, design).unwrap_or(0.0);
    designs.sort_by(|a, b| first(*b).total_cmp(&first(*a)));
    for design in designs {
        let figure = |stop: usize| {
            let mark = if best[stop] == Some(design) { "*" } else { "" };
            let figure = sweep.median(results, stop, design);
            or_unknown(figure, |rate| format!("{mark}{}", si(rate)))
        };
        let figures = stops.clone().map(figure);
        table.add_row(std::iter::once(sweep.names[design].clone()).chain(figures));
    }
    format!("\n{title} (* the most)\n\n{}\n\n", figures(table, &[]))
}

/// No-drop and partial-drop rates, and latencies below; `None` if the load was not swept.
fn under_load(results: &Results, width: usize) -> Option<String> {
    let searched = |load: &&Load| matches!(load.rate, Rate::Search { .. });
    let like = results.loads.iter().find(searched)?;
    let shares: Vec<(f64, usize)> = results
        .loads
        .iter()
        .enumerate()
        .filter_map(|(index, load)| match load.rate {
            Rate::OfPartialDrop(share) if load.is_like(like) => Some((share, index)),
            _ => None,
        })
        .collect();
    let mut table = table_of_width(width);
    let mut heading = vec![String::new(), "no-drop/s".into(), "partial-drop/s".into()];
    for (share, _) in &shares {
        heading.push(format!("at {}\np50/p99 µs", percent(*share)));
        heading.push("CPU\nof cores".into());
    }
    table.set_header(heading);
    let rate = |row: usize, goal| highest_of(results, like, row, goal);
    let mut rows: Vec<usize> = (0..results.rows.len())
        .filter(|row| results.again(false).is_none_or(|(_, second)| second != *row))
        .filter(|row| rate(*row, Goal::PartialDrop) != Highest::Unknown)
        .collect();
    if rows.is_empty() {
        return None;
    }
    let good = |row: usize| rate(row, Goal::PartialDrop).good().unwrap_or(0.0);
    rows.sort_by(|a, b| good(*b).total_cmp(&good(*a)));
    for row in rows {
        let mut line = vec![results.rows[row].to_string()];
        line.extend([Goal::NoDrop, Goal::PartialDrop].map(|goal| highest_text(rate(row, goal))));
        for (_, load) in &shares {
            let cell = &results.cells[*load][row];
            let [p50, p99] = [&LATENCY_P50, &LATENCY_P99].map(|of| cell.estimate(of, results.seed));
            line.push(p50.zip(p99).map_or_else(
                || UNKNOWN.into(),
                |(p50, p99)| format!("{}/{}", microseconds(p50.median), microseconds(p99.median)),
            ));
            let cpu = cell.estimate(&SERVER_CPU, results.seed);
            line.push(or_unknown(cpu.map(|cpu| cpu.median / 100.0), percent));
        }
        table.add_row(line);
    }
    let mut text = format!(
        "\nrising load, {}: highest rates\n\n{}\n\n",
        like.conditions(),
        figures(table, &[])
    );
    paragraph(
        &mut text,
        "no-drop: the highest rate tried up to which in at least half of the runs nothing was lost; \
         partial-drop: at most 0.5 %; ≥ no higher rate could be offered, or none was bad; < even the \
         lowest tried was bad. Latency and CPU at shares of each row's own partial-drop rate.",
        width,
    );
    Some(text)
}

/// A highest rate as text.
fn highest_text(highest: Highest) -> String {
    match highest {
        Highest::Unknown => UNKNOWN.into(),
        Highest::AtLeast(rate) => format!("≥{}", si(rate)),
        Highest::Between(good, _) => si(good),
        Highest::Below(bad) => format!("<{}", si(bad)),
    }
}
