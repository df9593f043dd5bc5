//! What a comparison of UDP tells, for a person and for a program.

pub mod answers;
mod bursts;
mod columns;
#[cfg(test)]
pub(crate) mod fixture;
mod gains;
pub mod json;
pub mod link;
pub mod peers;
mod pictures;
pub mod published;
#[cfg(test)]
mod schema;
mod summary;
mod sweeps;

use serde_json::Value;

use crate::experiment::cell::Conformance;
use crate::experiment::plan::{Peer, Row};
use crate::experiment::ranking::Ranking;
use crate::hosts::Hosts;
use crate::report::columns::Column;
use crate::report::conclusion::Unit;
use crate::report::document::with;
use crate::report::layout::{figures, paragraph, table_of_width};
use crate::report::number::{bytes, si};
use crate::report::pictures::{Aside, Overtaking, Pictures};
use crate::report::sentences::shortages;
use crate::report::table::{both_sides, over_hosts};
use crate::report::{Answer, Reported};
use crate::udp::plan::{Load, Rate, Shown};
use crate::udp::report::published::{CAUTION, PUBLISHED};
use crate::udp::results::{Results, Udp};
use crate::udp::sample::RECEIVE_BUFFER;
use crate::udp::sample::{
    BATCH_P50, CONTEXT_SWITCHES, CPU, Cell, KERNEL_ENTRIES, LATENCY_P50, LATENCY_P99, NO_BUFFER,
    OVERFLOWS, PERCENT_OF_SENT, Sample, THREADS_USED, TRUNCATED,
};

impl Reported for Udp {
    const KIND: &'static str = "udp";
    const UNIT: Unit<Sample> = Unit {
        title: "UDP",
        one: "datagram",
        cpu: &CPU,
        latency: [&LATENCY_P50, &LATENCY_P99],
        causes: &[
            (&CPU, "ns of CPU time per {one}"),
            (&KERNEL_ENTRIES, "kernel entries per 1000 {one}s"),
            (&CONTEXT_SWITCHES, "context switches per 1000 {one}s"),
            (&BATCH_P50, "datagrams at a time"),
        ],
        live: &[&CPU, &BATCH_P50, &PERCENT_OF_SENT, &THREADS_USED, &LATENCY_P99],
        wider: "-l, --load, --sweep and --full measure them",
    };
    const PICTURES: Pictures = pictures::PICTURES;
    const LIMITS: &'static str = "server: it lost datagrams or used up its cores; generator: it could send no more; \
                                  both: the generator could send no more, and the server received nearly everything; \
                                  memory: the system refused or dropped datagrams before any socket; load: everything \
                                  that was offered evenly was received; others: other programs had the cores (≥: it \
                                  could do more); unknown: none of these. INVALID: its data or its ledger is wrong, \
                                  see below the table";
    const RATIO_FIELD: Option<&'static str> = Some("ratio_to_traditional");

    fn one(load: &Load) -> &'static str {
        if load.replies.is_some() { "answer" } else { Self::UNIT.one }
    }

    fn conclusion(results: &Results) -> Option<(String, Vec<String>)> {
        bursts::conclusion(results)
    }

    fn title(row: &Row) -> String {
        row.to_string()
    }

    fn name(row: &Row) -> String {
        row.title()
    }

    fn doubted(results: &Results, load: usize, row: usize) -> Option<&'static str> {
        results.claimed(load, row).map(|_| "claimed")
    }

    fn settings(results: &Results) -> Vec<String> {
        let of = &results.own;
        let mut said = match &of.hosts {
            Some(hosts) => over_hosts(hosts, Self::GENERATOR, start_skews(results)),
            None => both_sides(
                results,
                [("server", &of.server_cores), ("generator", &of.generator_cores)],
            ),
        };
        if of.hosts.is_some() {
            said.extend(one_way_latency(results));
        }
        said.extend(of.link.as_ref().map(|link| format!("link: {link}")));
        said.extend(results.machine.hardware());
        for calibration in &of.calibrations {
            let kind = if calibration.receive_offload { " with receive offload" } else { "" };
            let at = calibration.core_to_core_ns.map(|ns| format!(" (core to core {ns:.0} ns)"));
            let several =
                |n: u16, what: &str| if n > 1 { format!(", {n} {what}") } else { String::new() };
            let line = format!(
                "generator: at most {} datagrams/s of {} B{}{} into a socket that nobody reads{kind}{}",
                si(calibration.sent_per_s),
                calibration.size_bytes,
                several(calibration.flows, "flows"),
                several(calibration.generators, "generators"),
                at.unwrap_or_default()
            );
            said.push(line);
        }
        said.extend([sockets(results), checked(results)].into_iter().flatten());
        said
    }

    fn hosts(results: &Results, _load: usize) -> Option<Hosts> {
        results.own.hosts.clone()
    }

    fn has_table(load: &Load) -> bool {
        load.shown == Shown::Table
    }

    fn beside(offloaded: bool) -> &'static str {
        match offloaded {
            true => ", the rows with receive offload, in the same rounds",
            false => "",
        }
    }

    fn columns(results: &Results, load: usize) -> Vec<Column<Self>> {
        columns::of(results, load)
    }

    fn summary(results: &Results, load: usize, offloaded: bool, ranking: &Ranking) -> Vec<String> {
        if results.loads[load].burst().is_some() {
            return summary::of_burst(results, load, ranking);
        }
        match results.loads[load].is_paced() {
            true => summary::of_latency(results, load, offloaded, ranking),
            false => summary::of_throughput(results, load, offloaded, ranking),
        }
    }

    fn of_group(results: &Results, load: usize, offloaded: bool) -> Vec<String> {
        let peers = peers::said(results, load, offloaded).join(" ");
        std::iter::once(peers).chain(link::sentence(results, load)).collect()
    }

    fn after_load(results: &Results, load: usize, width: usize) -> String {
        let mut gains = String::new();
        let said = shortages(
            results,
            load,
            &[
                ("completion queue overflowed", &OVERFLOWS),
                ("kernel found no receive posted", &NO_BUFFER),
                ("datagrams longer than a slice", &TRUNCATED),
            ],
        );
        said.iter().for_each(|said| paragraph(&mut gains, said, width));
        gains += &gains::table(results, load, width).unwrap_or_default();
        match is_beside_published(&results.loads[load]) {
            false => gains,
            true => gains + &published(results, load, width),
        }
    }

    fn after_loads(results: &Results, width: usize) -> String {
        sweeps::tables(results, width) + &bursts::tables(results, width)
    }

    fn answers(results: &Results) -> Vec<Answer> {
        answers::all(results)
    }

    fn legend(results: &Results) -> Vec<String> {
        let mut said = vec![];
        if let Some(traditional) = results.measure().map(|row| &results.rows[row]) {
            said.push(format!("{}: {}", traditional.title(), traditional.spec()));
        }
        if results.rows.iter().any(|row| row.peer.is_some()) {
            said.push(
                "peer: a program on another library, which counts its datagrams as weir's servers do, and \
                 answers none, so its latency is not measured. Its counts are checked against the \
                 generator's, the kernel's and proofs that it read the datagrams; its kernel entries are \
                 its own claim. Threads used: those with at least a twentieth of its CPU time."
                    .into(),
            );
        }
        let derived =
            results.rows.iter().any(|row| row.peer.as_ref().is_some_and(Peer::is_derived));
        let claimed =
            |load: usize| (0..results.rows.len()).any(|row| results.claimed(load, row).is_some());
        if derived || (0..results.loads.len()).any(claimed) {
            said.push(
                "claimed: nothing shows that the program reads its datagrams, so it has no rank. The \
                 figures of a program that does not talk with weir are what the kernel delivered by UDP to \
                 all programs."
                    .into(),
            );
        }
        let ledgers = || results.cells.iter().flatten().filter_map(Cell::ledger);
        if ledgers().any(|ledger| ledger.lost_place_unknown().is_some_and(|lost| lost > 0)) {
            said.push(
                "drops ?3: 3 % of what was sent was lost, place unknown, because the system does not tell what it \
                 drops at sockets. So the ledger cannot show whether it or the design lost them; that the \
                 design loses nothing at an even, low rate was checked before timing."
                    .into(),
            );
        }
        let source = ledgers().find_map(|ledger| {
            let source = ledger.dropped_socket_source?;
            ledger.dropped_socket.filter(|dropped| *dropped > 0).map(|_| source)
        });
        if let Some(source) = source {
            said.push(format!(
                "drops ~3: 3 % of what was sent was lost, and the machine counted as many drops or more; its count \
                 stands in, because the system does not tell what each socket drops ({source}). So it cannot show \
                 that all of them were this server's."
            ));
        }
        said
    }

    fn load_value(load: &Load) -> Value {
        json::load_value(load)
    }

    fn of_load_value(results: &Results, load: usize) -> Value {
        json::of_load(results, load)
    }

    fn of_group_value(results: &Results, load: usize, offloaded: bool) -> Value {
        serde_json::json!({ "peers": peers::values(results, load, offloaded) })
    }

    fn groups_value(results: &Results, load: usize, groups: Vec<Value>) -> Value {
        json::groups(results, load, groups)
    }

    fn of_row_value(results: &Results, load: usize, row: usize) -> Value {
        json::of_row(results, load, row)
    }

    fn of_all_value(results: &Results) -> Value {
        let of_sweeps = serde_json::json!({ "sweeps": json::sweeps(results) });
        match bursts::values(results) {
            serde_json::Value::Array(bursts) if bursts.is_empty() => of_sweeps,
            bursts => with(of_sweeps, serde_json::json!({ "bursts": bursts })),
        }
    }

    fn overtakings(document: &Value) -> Vec<Overtaking> {
        pictures::overtakings(document)
    }

    fn published(document: &Value) -> Option<Aside> {
        pictures::published(document)
    }
}

/// What all runs had in common, as obtained; a warning says what they had not.
fn sockets(results: &Results) -> Option<String> {
    let sample = results.samples().next()?;
    let engine = sample.engine.as_deref().unwrap_or("unknown");
    if results.loads.iter().any(|load| load.burst().is_some()) {
        return Some(format!("engine of the generator: {engine}")); // buffers stand in the tables
    }
    let buffer = sample.settings.get(RECEIVE_BUFFER)?.parse().ok().map(bytes)?;
    Some(format!("receive buffer of each socket: {buffer}; engine of the generator: {engine}"))
}

/// What the rows that were timed had passed. Programs of other libraries answer nothing, and one of which the
/// counts are derived shows nobody what it received.
fn checked(results: &Results) -> Option<String> {
    let passed = |row: usize| results.conformance[row] == Conformance::Passed;
    let passed = |of: fn(&Row) -> bool| {
        (0..results.rows.len()).any(|row| passed(row) && of(&results.rows[row]))
    };
    let talks = passed(|row| row.peer.as_ref().is_some_and(|peer| !peer.is_derived()));
    let derived = passed(|row| row.peer.as_ref().is_some_and(Peer::is_derived));
    let flood = "each datagram of a paced flood arrived byte for byte, or is counted as dropped by the kernel";
    let mut said = vec![];
    if let Some(checked) = &results.own.checked
        && let Some(longest) = checked.sizes_bytes.last()
    {
        let families = if checked.ipv6 { "IPv4 and IPv6" } else { "IPv4 (there is no IPv6 here)" };
        said.push(format!(
            "each design answered {} datagrams of 0 to {longest} bytes from {} senders over {families}, \
             each to its own sender, and {flood}",
            checked.datagrams, checked.senders
        ));
    }
    if talks {
        said.push(match said.is_empty() {
            true => format!("peers answer nothing, so of their checks: {flood}"),
            false => "peers answer nothing, so of each only the flood was checked".into(),
        });
    }
    if derived {
        said.push("of a derived peer only the number of datagrams of the flood was checked".into());
    }
    (!said.is_empty()).then(|| format!("checked before timing: {}", said.join("; ")))
}

/// From the start of the first generator to that of the last, and how wrong that may be, of each run.
fn start_skews(results: &Results) -> Vec<(u64, u64)> {
    let of = |sample: &Sample| Some((sample.start_skew_ns?, sample.start_skew_uncertainty_ns?));
    results.samples().filter_map(of).collect()
}

/// How right one-way latencies between hosts are, or why they are not told.
fn one_way_latency(results: &Results) -> Option<String> {
    let compared: Vec<&Sample> = results.samples().filter(|of| !of.clocks.is_empty()).collect();
    let most_ns = compared.iter().filter_map(|of| of.latency_uncertainty_ns).max();
    let withheld: Vec<&str> =
        compared.iter().filter_map(|of| of.latency_withheld.as_deref()).collect();
    let left_out = withheld.first().map(|why| {
        format!(
            "left out in {} of {} runs, such as this: {why} (round trips need one clock: --reply)",
            withheld.len(),
            compared.len()
        )
    });
    let told = most_ns.map(|ns| match ns {
        0 => "all hosts have one clock".to_owned(),
        ns => format!(
            "by clocks that were compared before and after each run, ± {:.0} µs",
            (ns as f64 / 1e3).ceil()
        ),
    });
    let said: Vec<String> = told.into_iter().chain(left_out).collect();
    (!said.is_empty()).then(|| format!("one-way latency: {}", said.join("; ")))
}

/// Whether what arrives under a load can stand beside what was published: that was offered evenly, too, as a share of a
/// link between two hosts.
pub(super) fn is_beside_published(load: &Load) -> bool {
    !load.is_paced() || load.over_hosts && matches!(load.rate, Rate::OfLink(_))
}

fn published(results: &Results, load: usize, width: usize) -> String {
    // Of several shares of a link the last, which is the highest.
    let shown = match results.loads.first().is_some_and(Load::is_paced) {
        true => results.loads.len() - 1,
        false => 0,
    };
    // Those were made with one size, without other conditions and without offload.
    if load != shown || results.measure().is_none() || !results.is_like_published(load) {
        return String::new();
    }
    let ranking = results.main_ranking(load);
    let mut table = table_of_width(width);
    table.set_header([
        "published (Holgate, 10 GbE, Windows)",
        "datagrams/s",
        "ratio",
        "ratio here",
        "of",
    ]);
    for figure in PUBLISHED {
        let measured = figure.measured(results, &ranking);
        let of = [measured.row.map(|row| results.rows[row].to_string()), measured.why_not.clone()];
        table.add_row([
            figure.test.to_owned(),
            si(figure.received_per_s),
            format!("{:.2}", figure.ratio()),
            measured.text(),
            of.into_iter().flatten().collect::<Vec<_>>().join(": "),
        ]);
    }
    let mut text = format!("\n{}\n", figures(table, &[4]));
    paragraph(&mut text, CAUTION, width);
    text
}

#[cfg(test)]
mod tests;
