//! What a comparison of TCP tells, for a person and for a program.

pub mod answers;
mod columns;
pub mod json;
pub mod peers;
mod pictures;
#[cfg(test)]
mod schema;
mod strategies;

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::experiment::verdict::Limit;
use crate::hosts::Hosts;
use crate::report::columns::Column;
use crate::report::conclusion::Unit;
use crate::report::layout::{self, Filled, figures, paragraph, table_of_width};
use crate::report::number::{UNKNOWN, bytes, microseconds, percent, si};
use crate::report::pictures::{Aside, Pictures};
use crate::report::sentences::shortages;
use crate::report::table::{both_sides, over_hosts};
use crate::report::words::{list, shortened};
use crate::report::{Answer, Reported};
use crate::tcp::classic::{self, Held, PUBLISHED, rank_and_ratio};
use crate::tcp::plan::Load;
use crate::tcp::processes::BUFFER;
use crate::tcp::results::{Results, Tcp};
use crate::tcp::rows::title;
use crate::tcp::sample::{
    CONTEXT_SWITCHES, CPU, KERNEL_ENTRIES, LATENCY_P50, LATENCY_P99, NO_BUFFER, OVERFLOWS,
    READINESS_OVERFLOWS, RECEIVED, Sample, THREADS, word,
};
use crate::tcp::search;
use crate::tcp::strategies::Strategy;

impl Reported for Tcp {
    const KIND: &'static str = "tcp";
    const UNIT: Unit<Sample> = Unit {
        title: "TCP echo",
        one: "message",
        cpu: &CPU,
        latency: [&LATENCY_P50, &LATENCY_P99],
        causes: &[
            (&CPU, "ns of CPU time per message"),
            (&KERNEL_ENTRIES, "kernel calls per message"),
            (&CONTEXT_SWITCHES, "context switches per message"),
        ],
        live: &[&CPU, &KERNEL_ENTRIES, &THREADS, &LATENCY_P99],
        wider: "-c, -l, --pattern and --sweep measure them",
    };
    const PICTURES: Pictures = pictures::PICTURES;
    const LIMITS: &'static str = "server: its cores were used up; client: the client's cores were used up; both: those \
                                  of both were; neither: each waited for the other; others: other programs had the \
                                  cores (≥: it could do more); load: everything was served at its rate. Busy-polling \
                                  designs keep a core busy with one connection in ping-pong, or never yield it; they \
                                  are ranked separately from sleeping designs. INVALID: bytes were wrong or lost, see \
                                  below the table";
    const GENERATOR: &'static str = "client";
    const LATENCY_FIELD: &'static str = "round_trip_of_all_runs_ns";

    fn name(row: &Row) -> String {
        title(row)
    }

    fn word(limit: Limit) -> &'static str {
        word(limit)
    }

    fn settings(results: &Results) -> Vec<String> {
        let of = &results.own;
        let mut said = match &of.hosts {
            Some(hosts) => over_hosts(hosts, Self::GENERATOR, vec![]),
            None => {
                both_sides(results, [("server", &of.server_cores), ("client", &of.client_cores)])
            }
        };
        said.extend(of.link.as_ref().map(|link| format!("link: {link}")));
        said.extend(results.machine.hardware());
        said.extend(of.checked.as_ref().map(|checked| {
            let (least, most) = checked.message_bytes;
            format!(
                "checked before timing: each row answered {} messages of {least} to {most} bytes on {} \
                 connections byte for byte, and ended each connection in order; every byte of the runs was \
                 verified, too",
                checked.messages, checked.connections
            )
        }));
        let engine = of.checked.as_ref().and_then(|checked| checked.client_engine.as_deref());
        said.extend(engine.map(|engine| {
            format!("the client, where the next message follows an answer: engine {engine}")
        }));
        said.extend(of_any_size(results));
        said
    }

    fn hosts(results: &Results, load: usize) -> Option<Hosts> {
        let hosts = results.own.hosts.as_ref()?;
        Some(results.loads[load].hosts_of(hosts))
    }

    fn beside(polls: bool) -> &'static str {
        if polls { ", busy-polling designs" } else { ", sleeping designs" }
    }

    fn columns(results: &Results, load: usize) -> Vec<Column<Self>> {
        columns::of(results, load)
    }

    fn summary(results: &Results, load: usize, polls: bool, ranking: &Ranking) -> Vec<String> {
        answers::of_load(results, load, polls, ranking)
    }

    fn after_load(results: &Results, load: usize, width: usize) -> String {
        let mut text = String::new();
        let said = shortages(
            results,
            load,
            &[
                ("completion queue overflowed", &OVERFLOWS),
                ("kernel found no receive posted", &NO_BUFFER),
                ("queue of readiness overflowed", &READINESS_OVERFLOWS),
            ],
        );
        said.iter().for_each(|said| paragraph(&mut text, said, width));
        paragraph(&mut text, &peers::said(results, load).join(" "), width);
        text
    }

    fn after_loads(results: &Results, width: usize) -> String {
        if results.own.classic.is_none() {
            return String::new();
        }
        let mut text = format!("\n{}", most(results, width));
        search::said(results).iter().for_each(|said| paragraph(&mut text, said, width));
        text + &published(results, width)
    }

    fn conclusion(results: &Results) -> Option<(String, Vec<String>)> {
        let headline = "Which strategy to choose depends on the mix of connections.";
        strategies::are_compared(results).then(|| (headline.into(), strategies::chosen(results)))
    }

    fn answers(results: &Results) -> Vec<Answer> {
        answers::all(results)
    }

    fn legend(results: &Results) -> Vec<String> {
        let has_peers = results.rows.iter().any(|row| row.peer.is_some());
        let peer = has_peers.then(|| {
            "peer: a program on another library. Its figures are what the system counts for its process; \
             its calls into the kernel are unknown, and its threads are all that it has."
                .to_owned()
        });
        let rate = results.loads.iter().find_map(|load| load.block_bytes_per_s).map(|rate| {
            format!(
                "at a rate: each block of connections is sent {} bytes/s in total.",
                si(f64::from(rate))
            )
        });
        let mixes = strategies::are_compared(results).then(|| {
            "the figures of a mix are those of the connections that count. The others are made first, from addresses \
             of their own, and their client has only what the counted one leaves of its core. Memory and buffers were \
             read when measuring had ended, while the load still went on (turns: when all connections were made). How \
             many of the others were refused or closed is their own client's count; a row that did not do exactly what \
             its limits say is INVALID."
                .to_owned()
        });
        peer.into_iter().chain(rate).chain(mixes).collect()
    }

    fn load_value(load: &Load) -> Value {
        json!(load)
    }

    fn of_load_value(results: &Results, load: usize) -> Value {
        json!({ "peers": peers::values(results, load) })
    }

    fn of_group_value(_: &Results, _: usize, polls: bool) -> Value {
        json!({ "polls": polls })
    }

    fn of_row_value(results: &Results, load: usize, row: usize) -> Value {
        let strategy = results.loads[load].mix.map(|_| Strategy::of(&results.rows[row]));
        json!({
            "strategy": strategy,
            "polls": results.polls(row),
            "cores_busy_with_one_connection": results.own.idle[row].cores_busy,
            "sleeps_per_message_with_one_connection": results.own.idle[row].sleeps_per_message,
        })
    }

    fn of_all_value(results: &Results) -> Value {
        json!({ "classic": json::classic(results) })
    }

    fn published(document: &Value) -> Option<Aside> {
        pictures::published(document)
    }
}

/// Peers that receive as many bytes at a time as they like: what a reader must know of their rows.
fn of_any_size(results: &Results) -> Option<String> {
    let of_any_size =
        |row: &&Row| row.peer.as_ref().is_some_and(|peer| !peer.command.mentions(BUFFER));
    let names: Vec<String> = results.rows.iter().filter(of_any_size).map(title).collect();
    let sizes: Vec<u32> = results.loads.iter().map(|load| load.buffer_bytes).collect();
    let (least, most) = (sizes.iter().min()?, sizes.iter().max()?);
    let ours = if least == most { least.to_string() } else { format!("{least} to {most}") };
    (!names.is_empty()).then(|| {
        format!(
            "free to choose how many bytes to receive at a time (no {BUFFER} in the command): {}; weir's \
             servers receive {ours}",
            list(&shortened(names))
        )
    })
}

/// The most connections that each row held, and what that took.
fn most(results: &Results, width: usize) -> String {
    let Some(of) = &results.own.classic else { return String::new() };
    let rows: Vec<(String, &Held)> = results
        .rows
        .iter()
        .zip(&of.held)
        .filter_map(|(row, held)| Some((title(row), held.as_ref()?)))
        .collect();
    type Text = fn(&Sample) -> Option<String>;
    let columns: [(&str, Text); 8] = [
        ("threads\n", |s| s.threads.map(|n| n.to_string())),
        ("memory\n", |s| Some(bytes(s.resident_bytes? as f64))),
        ("kernel\n", |s| Some(bytes(s.kernel_bytes? as f64))),
        ("kernel, of\na connection", |s| {
            Some(bytes(s.kernel_bytes? as f64 / s.connected.max(1) as f64))
        }),
        ("CPU\nof cores", |s| s.server_cpu.map(percent)),
        ("bytes/s\nreceived", |s| s.received_bytes_per_s.map(si)),
        ("round trip µs\np50/p99", |s| {
            let latency = s.latency_ns?;
            let us = |ns: u64| microseconds(ns as f64);
            Some(format!("{}/{}", us(latency.p50), us(latency.p99)))
        }),
        ("CPU\nns/message", |s| s.cpu_ns_per_message.map(|ns| format!("{ns:.0}"))),
    ];
    let filled = |heading: &str, text: &dyn Fn(&Held) -> Option<String>| Filled {
        heading: heading.into(),
        figure: true,
        texts: rows.iter().map(|(_, held)| text(held).unwrap_or_else(|| UNKNOWN.into())).collect(),
    };
    let names = vec![Filled {
        heading: "the most connections".into(),
        figure: false,
        texts: rows.iter().map(|(title, _)| title.clone()).collect(),
    }];
    let mut all = vec![
        filled("held\n", &|held| Some(held.connections?.to_string())),
        filled("broke at\n", &|held| Some(held.broke_at?.to_string())),
        filled("served\nthere", &|held| Some(held.served_there?.to_string())),
    ];
    all.extend(
        columns.iter().map(|(heading, text)| filled(heading, &|held| text(held.sample.as_ref()?))),
    );
    let mut text = String::new();
    for part in layout::parts(names, all, width) {
        let _ = writeln!(text, "{}\n", part.trim_fmt());
    }
    text
}

/// The table of the original beside the figures of this machine, as ranks and ratios.
fn published(results: &Results, width: usize) -> String {
    let mut table = table_of_width(width);
    table.set_header([
        "table 6-3 (Jones and Ohlund, 2002)",
        "connected",
        "rank",
        "ratio",
        "here",
        "served to the end",
        "rank",
        "ratio",
    ]);
    let parts = ["as fast as they can", "at a rate", "the most"];
    for (part, name) in parts.iter().enumerate() {
        let theirs: Vec<&classic::Published> =
            PUBLISHED.iter().filter(|figure| figure.part == part).collect();
        let all: Vec<f64> = theirs.iter().map(|figure| figure.received_per_s).collect();
        let all_ours: Vec<f64> = theirs
            .iter()
            .filter_map(|figure| here(results, part, figure.ours)?.ranked_by)
            .collect();
        for figure in theirs {
            let (rank, ratio) = rank_and_ratio(&all, figure.received_per_s);
            let connected = figure.connections.map(|(of, made)| format!("{made} of {of}"));
            let found = here(results, part, figure.ours);
            let rate = found.as_ref().and_then(|here| here.ranked_by);
            let own = rate.map(|rate| rank_and_ratio(&all_ours, rate));
            table.add_row([
                format!("{name}: {}", figure.model),
                connected.unwrap_or_else(|| "?".into()),
                rank.to_string(),
                format!("{ratio:.2}"),
                figure.ours.to_owned(),
                found.map_or_else(|| "not measured".into(), |here| here.connections()),
                own.map_or_else(|| "-".into(), |(rank, _)| rank.to_string()),
                own.map_or_else(|| "-".into(), |(_, ratio)| format!("{ratio:.2}")),
            ]);
        }
    }
    format!("\n{}\n", figures(table, &[4]))
}

/// What our design did in a part of the table.
pub(crate) struct Here<'a> {
    /// The run that served the fewest connections to their end.
    pub sample: &'a Sample,
    /// Bytes per second received, by which it is ranked; `None` where it has no rank.
    pub ranked_by: Option<f64>,
    /// Why it has none, if so.
    pub unranked: Option<String>,
}

impl Here<'_> {
    /// What became of its connections, or why else it has no rank.
    fn connections(&self) -> String {
        let tally = self.sample.tally();
        match &self.unranked {
            Some(reason) if self.sample.incomplete().is_none() => format!("{tally}; {reason}"),
            _ => tally,
        }
    }
}

/// A design of ours in a part of the table, if it was measured. One that did not serve every connection to
/// its end had another load, and no rank.
pub(crate) fn here<'a>(results: &'a Results, part: usize, design: &str) -> Option<Here<'a>> {
    let row = search::row_of(results, design)?;
    let (sample, rate, unranked) = if part < results.loads.len() {
        let cell = &results.cells[part][row];
        let rate = cell.estimate(&RECEIVED, results.seed)?.median;
        let fewest = cell.standing().min_by_key(|sample| sample.served())?;
        (fewest, rate, results.unranked(part, row))
    } else {
        let held = results.own.classic.as_ref()?.held.get(row)?.as_ref()?;
        let sample = held.sample.as_ref()?;
        (sample, sample.received_bytes_per_s?, sample.incomplete())
    };
    Some(Here { sample, ranked_by: unranked.is_none().then_some(rate), unranked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::report;
    use crate::tcp::results::tests::results;

    #[test]
    fn the_report_has_a_table_for_each_group_and_says_what_cannot_be_ranked() {
        let mut results = results(
            &[("poll", 80e3), ("epoll", 100e3), ("select", 120e3), ("go=x {port}", 90e3)],
            1,
        );
        results.own.idle[2].cores_busy = Some(1.0);
        results.cells[0][0].samples[2].connected = 60;
        results.cells[0][0].samples[2].cause = Some("no descriptor".into());
        let text = report(&results, 205);
        for wanted in [
            "ping-pong, 64 B, 64 connections, sleeping designs",
            "ping-pong, 64 B, 64 connections, busy-polling designs",
            "epoll (again)",
            "go (peer)",
            "Not ranked: poll: 60 of 64 connections were made: no descriptor",
            "server on core 0, client on core 1",
            "Noise floor",
            "free to choose how many bytes to receive at a time (no {buffer} in the command): go (peer);",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing of\n{text}");
        }
        let waits = text.find("sleeping designs").unwrap();
        let epoll = text[waits..].find("epoll").unwrap();
        assert!(epoll < text[waits..].find("go (peer)").unwrap(), "the best is first\n{text}");
    }

    #[test]
    fn every_line_keeps_to_the_width() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3)], 1);
        for width in [100, 205] {
            let text = report(&results, width);
            let widest = text.lines().map(layout::chars).max().unwrap();
            assert!(widest <= width, "{widest} of {width}:\n{text}");
        }
    }

    #[test]
    fn the_most_that_was_held_has_a_table() {
        let mut results = results(&[("blocking", 20e3), ("epoll", 100e3)], 1);
        let held = Held {
            connections: Some(9000),
            broke_at: Some(9250),
            made_there: Some(9100),
            served_there: Some(9050),
            cause: Some("no thread".into()),
            sample: Some(results.cells[0][0].samples[0].clone()),
        };
        let none = Held { broke_at: Some(62), cause: Some("nothing".into()), ..Held::default() };
        results.own.classic =
            Some(classic::Classic { most: 50_000, held: vec![Some(held), Some(none), None] });
        let text = most(&results, 205);
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        let words: Vec<String> = line("blocking").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[..5], ["blocking", "9000", "9250", "9050", "1"], "{text}");
        assert!(words.contains(&"7.23".to_owned()), "the kernel's part of a connection: {text}");
        assert!(line("epoll").contains("62"), "{text}");
    }

    #[test]
    fn the_table_of_the_original_stands_beside_as_ranks_and_ratios() {
        let mut results = results(&[("blocking", 20e3), ("event-select", 100e3)], 1);
        results.own.classic = Some(classic::Classic::up_to(50_000));
        let text = published(&results, 205);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        let blocking = line("as fast as they can: blocking");
        assert!(blocking.contains("1008 of 7000") && blocking.contains("0.42"), "{blocking}");
        assert!(blocking.contains("64 of 64") && blocking.ends_with("0.20"), "{blocking}");
        assert!(line("as fast as they can: completion").contains("not measured"), "{text}");
    }

    #[test]
    fn a_design_whose_connections_broke_has_no_rank_beside_the_originals() {
        let mut results = results(&[("blocking", 20e3), ("event-select", 100e3)], 1);
        results.own.classic = Some(classic::Classic::up_to(50_000));
        // Most of what it served it served fast: the others were gone.
        let broke = &mut results.cells[0][1].samples[4];
        (broke.lost, broke.cause) = (14, Some("the server reset them".into()));
        let text = published(&results, 260);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        let event = line("as fast as they can: WSAEventSelect");
        assert!(event.contains("64 attempted, 50 served to the end, 14 refused or"), "{text}");
        let last: Vec<&str> = event.split_whitespace().rev().take(2).collect();
        assert_eq!(last, ["-", "-"], "neither rank nor ratio: {event}");
        let blocking = line("as fast as they can: blocking");
        assert!(blocking.ends_with("1.00"), "it is the best of those that have a rank: {blocking}");
        let table = report(&results, 205);
        assert!(table.contains("50/64"), "the table of the load says so, too\n{table}");
        assert!(table.contains("14 of 64 connections were refused or broke"), "{table}");
    }
}
