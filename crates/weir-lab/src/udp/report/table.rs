//! The report for a person: settings, one table a load, the sentences, the published
//! figures and a legend, cut to the width of the terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table};

use crate::experiment::cell::{Conformance, Status};
use crate::experiment::plan::{Peer, Row, Schedule};
use crate::experiment::ranking::{Better, Ranking};
use crate::experiment::repeat;
use crate::report::layout::{self, Filled, NARROWEST, narrow, paragraph, table_of_width};
use crate::report::number::{bytes, percent, si};
use crate::report::words::number_of;
use crate::stats::compare::Confidence;
use crate::stats::quantile;
use crate::udp::plan::{Load, Shown};
use crate::udp::report::columns::{self, At, Column, NAMES};
use crate::udp::report::link;
use crate::udp::report::published::{CAUTION, PUBLISHED};
use crate::udp::report::{answers, gains, peers, sentences, sweeps};
use crate::udp::results::{RECEIVE_BUFFER, Results};
use crate::udp::sample::Cell;
use crate::udp::sample::Sample;

/// The whole report, at most `width` characters wide where the figures allow it.
pub fn report(results: &Results, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = settings(results, width);
    let mut said_of_rows = vec![];
    let first_paced = results.loads.iter().position(Load::is_paced);
    for (index, load) in results.loads.iter().enumerate() {
        let untouched = |cell: &Cell| cell.samples.is_empty() && cell.failed_runs == 0;
        let nothing = results.cells[index].iter().all(untouched);
        if load.shown == Shown::Step || (index > 0 && nothing) {
            continue;
        }
        for group in results.groups(index) {
            one_load(&mut text, results, (index, group), first_paced, width);
            for sentence in left_out(results, index, group) {
                if !said_of_rows.contains(&sentence) {
                    paragraph(&mut text, &sentence, width);
                    said_of_rows.push(sentence);
                }
            }
        }
        text.push_str(&gains::table(results, index, width).unwrap_or_default());
        if !load.is_paced() {
            text.push_str(&published(results, index, width));
        }
    }
    text.push_str(&sweeps::tables(results, width));
    answered(&mut text, results, width);
    warnings(&mut text, results, width);
    legend(&mut text, results, width);
    text
}

/// The table of one group of rows under one load, and what it says.
fn one_load(
    text: &mut String,
    results: &Results,
    (load, offloaded): (usize, bool),
    first_paced: Option<usize>,
    width: usize,
) {
    let of = &results.loads[load];
    let columns = columns::of(results, load);
    let ranking = results.ranking(load, offloaded);
    let beside = match offloaded {
        true => ", the rows with receive offload, in the same rounds",
        false => "",
    };
    let _ = writeln!(text, "\n{of}{beside}{}\n", rounds(results.schedules[load]));
    let mut order = order(results, load, offloaded, &ranking);
    if load > 0 || offloaded {
        // The first table has said already that they cannot run here.
        order.retain(|row| results.status(load, *row) != Status::Unavailable);
    }
    let at = |row| At { results, ranking: &ranking, load, latency_load: first_paced, row };
    for part in parts(&columns, &order, &at, width) {
        let _ = writeln!(text, "{}\n", part.trim_fmt());
    }
    let said = match of.is_paced() {
        true => sentences::of_latency(results, load, offloaded, &ranking),
        false => sentences::of_throughput(results, load, offloaded, &ranking),
    };
    paragraph(text, &said.join(" "), width);
    paragraph(text, &peers::said(results, load, offloaded).join(" "), width);
    if let Some(saving) = link::sentence(results, load) {
        paragraph(text, &saving, width);
    }
    paragraph(text, &noise(results, load, offloaded, &ranking), width);
}

/// What the figures of all loads answer.
fn answered(text: &mut String, results: &Results, width: usize) {
    if !results.has_figures() {
        return;
    }
    for answer in answers::all(results) {
        text.push('\n');
        paragraph(text, answer.question, width);
        answer.sentences.iter().for_each(|sentence| paragraph(text, sentence, width));
    }
}

/// What the experiment ran on and with.
fn settings(results: &Results, width: usize) -> String {
    let mut text = String::new();
    let machine = &results.machine;
    let property = |name| machine.text(name);
    let known: Vec<String> = [
        property("cpu_model"),
        property("cores").map(|cores| format!("{cores} cores")),
        property("kernel"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !known.is_empty() {
        paragraph(&mut text, &format!("machine: {}", known.join(", ")), width);
    }
    let core_to_core: Vec<f64> = results
        .cells
        .iter()
        .flatten()
        .flat_map(|cell| &cell.samples)
        .filter_map(|sample| sample.when.core_to_core_ns)
        .collect();
    if let (Some(low), Some(middle), Some(high)) =
        (quantile(&core_to_core, 0.0), quantile(&core_to_core, 0.5), quantile(&core_to_core, 1.0))
    {
        let line = format!("core to core: {middle:.0} ns ({low:.0} to {high:.0} over the samples)");
        paragraph(&mut text, &line, width);
    }
    let cores = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    if let Some(why) = results.machine.unbound() {
        paragraph(&mut text, &format!("server and generator on any core: {why}"), width);
    } else if !results.own.server_cores.is_empty() {
        let line = format!(
            "server on core {}, generator on core {}",
            cores(&results.own.server_cores),
            cores(&results.own.generator_cores)
        );
        paragraph(&mut text, &line, width);
    }
    if let Some(link) = &results.own.link {
        paragraph(&mut text, &format!("link: {link}"), width);
    }
    if results.own.server_cores.len() == 1 {
        paragraph(&mut text, "one core: the rows claim nothing about scaling", width);
    }
    for calibration in &results.own.calibrations {
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
        paragraph(&mut text, &line, width);
    }
    for line in [sockets(results), checked(results)].into_iter().flatten() {
        paragraph(&mut text, &line, width);
    }
    let _ = writeln!(text, "seed: {}", results.seed);
    text
}

/// What all runs had in common, as obtained; a warning says what they had not.
fn sockets(results: &Results) -> Option<String> {
    let sample = results.cells.iter().flatten().flat_map(|cell| &cell.samples).next()?;
    let buffer = sample.settings.get(RECEIVE_BUFFER)?.parse().ok().map(bytes)?;
    let engine = sample.engine.as_deref().unwrap_or("unknown");
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
    let flood =
        "each datagram of a paced flood came byte for byte, or is counted as dropped by the kernel";
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
        said.push("of a derived peer only the number of datagrams of the flood was".into());
    }
    (!said.is_empty()).then(|| format!("checked before timing: {}", said.join("; ")))
}

/// How often and how long a load is run, behind its name.
pub(crate) fn rounds(schedule: Option<Schedule>) -> String {
    match schedule {
        Some(schedule) => format!(
            ": {} rounds of {} ms after {} ms of warm-up",
            schedule.rounds, schedule.run_ms, schedule.warmup_ms
        ),
        None => String::new(),
    }
}

/// The noise floor of a ranking, from the row that ran under two names, if one did.
fn noise_floor(ranking: &Ranking, again: Option<String>) -> String {
    match (ranking.noise_floor, again) {
        (Some(_), Some(of)) if ranking.is_too_noisy() => {
            format!("Noise floor above 100 % ({of} under two names).")
        }
        (Some(floor), Some(of)) => {
            format!("Noise floor {} ({of} under two names).", percent(floor))
        }
        _ => "The noise floor is not known, so no difference is called real.".into(),
    }
}

/// How sure a ranking of TCP or of devices is: its noise floor, its intervals, and the runs in which the
/// machine changed.
pub(crate) fn noise_and_confidence(
    ranking: &Ranking,
    again: Option<String>,
    confidence: &Confidence,
    changed_runs: usize,
) -> String {
    let mut text = noise_floor(ranking, again);
    let _ = match confidence.widest {
        Some(widest) if confidence.reached() => {
            write!(text, " Every figure is known within ±{} (95 %).", percent(widest))
        }
        Some(widest) => write!(
            text,
            " The confidence asked for (±{}) was not reached: the widest is ±{}; more rounds or fewer \
             designs make it narrower.",
            percent(confidence.asked),
            percent(widest)
        ),
        None => write!(text, " Too few rounds for intervals."),
    };
    if changed_runs > 0 {
        let runs = number_of(changed_runs, "run");
        let _ = write!(text, " In {runs} the machine changed (core to core).");
    }
    if ranking.unlike_pairs > 0 {
        let _ = write!(
            text,
            " Left out, since it changed between two runs: {}.",
            number_of(ranking.unlike_pairs, "comparison")
        );
    }
    text
}

/// The rows of a group that take part: ranked ones first, best first, each followed by its second
/// name; then the others.
fn order(results: &Results, load: usize, offloaded: bool, ranking: &Ranking) -> Vec<usize> {
    let of_group = |row: &usize| results.rows[*row].receive_offload == offloaded;
    let rows = (0..results.rows.len()).filter(of_group);
    let rows = rows.filter(|row| results.takes_part(load, *row));
    let (metric, better) = results.ranked_by(load);
    ranking.order(results.again(offloaded), rows, |row| {
        let estimate = results.cells[load][row].estimate(metric, results.seed);
        let figure = estimate.map(|estimate| match better {
            Better::Higher => estimate.median,
            Better::Lower => -estimate.median,
        });
        (results.status(load, row), figure)
    })
}

/// The table, in as many parts as the width asks for. Each part begins with the names.
fn parts<'a>(
    columns: &[Column],
    order: &[usize],
    at: &impl Fn(usize) -> At<'a>,
    width: usize,
) -> Vec<Table> {
    let filled = |column: &Column| Filled {
        heading: column.heading.into(),
        figure: column.figure,
        texts: order.iter().map(|row| (column.text)(&at(*row))).collect(),
    };
    let names = NAMES.iter().map(filled).collect();
    layout::parts(names, columns.iter().map(filled).collect(), width)
}

fn noise(results: &Results, load: usize, offloaded: bool, ranking: &Ranking) -> String {
    let confidence = results.confidence(load);
    if !results.compares(load) {
        return String::new();
    }
    let again = results.again(offloaded).map(|(of, _)| results.rows[of].to_string());
    let mut text = noise_floor(ranking, again);
    let _ = match confidence.widest {
        Some(widest) if confidence.reached() => {
            write!(text, " Every figure is known within ±{} (95 %).", percent(widest))
        }
        Some(widest) => write!(
            text,
            " The confidence asked for (±{}) was not reached: the widest is ±{}; --full or fewer \
             designs give more rounds.",
            percent(confidence.asked),
            percent(widest)
        ),
        None => write!(text, " Too few rounds for intervals."),
    };
    let runs: Vec<&Sample> = results.cells[load].iter().flat_map(|cell| cell.standing()).collect();
    let unlike = runs.iter().filter(|sample| !sample.when.counted).count();
    if unlike > 0 {
        let _ = write!(
            text,
            " {unlike} of {} runs fell into a time when the machine was another (core to core): \
             medians leave them out, pairs of one such time count.",
            runs.len()
        );
    }
    if ranking.unlike_pairs > 0 {
        let _ = write!(
            text,
            " Left out, since the machine changed between two runs: {}.",
            number_of(ranking.unlike_pairs, "comparison")
        );
    }
    text.push_str(&repeat::said(&results.cells[load]));
    text
}

fn left_out(results: &Results, load: usize, offloaded: bool) -> Vec<String> {
    (0..results.rows.len())
        .filter(|row| results.rows[*row].receive_offload == offloaded)
        .filter(|row| results.takes_part(load, *row))
        .filter_map(|row| {
            let reason = results.unranked(load, row)?;
            Some(format!("Not ranked: {}: {reason}", results.rows[row]))
        })
        .collect()
}

fn published(results: &Results, load: usize, width: usize) -> String {
    // Those were made with one size, without other conditions and without offload.
    if load > 0 || results.measure().is_none() || !results.is_like_published(load) {
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
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    narrow(&mut table);
    let mut text = format!("\n{}\n", table.trim_fmt());
    paragraph(&mut text, CAUTION, width);
    text
}

fn warnings(text: &mut String, results: &Results, width: usize) {
    text.push('\n');
    let all = results.machine.warnings.iter().chain(&results.warnings);
    for warning in all {
        paragraph(text, &format!("warning: {warning}"), width);
    }
    if results.interrupted {
        paragraph(text, "warning: ended before its plan was through; this is what there is", width);
    }
    if let Some(error) = &results.error {
        paragraph(text, &format!("error: {error}"), width);
    }
}

fn legend(text: &mut String, results: &Results, width: usize) {
    text.push('\n');
    if let Some(traditional) = results.measure().map(|row| &results.rows[row]) {
        paragraph(text, &format!("{}: {}", traditional.title(), traditional.spec()), width);
    }
    let derived = results.rows.iter().any(|row| row.peer.as_ref().is_some_and(Peer::is_derived));
    if results.rows.iter().any(|row| row.peer.is_some()) {
        paragraph(
            text,
            "peer: a program of another library, which accounts for its datagrams as our servers do, and \
             answers none, so no latency of it is measured. Its counts are held against the generator's, the \
             kernel's and proofs that it read the datagrams; kernel entries are its own word. Threads used: \
             those with a twentieth of its CPU time.",
            width,
        );
    }
    let claimed =
        |load: usize| (0..results.rows.len()).any(|row| results.claimed(load, row).is_some());
    if derived || (0..results.loads.len()).any(claimed) {
        paragraph(
            text,
            "claimed: nothing shows that the program reads its datagrams, so it has no rank, whatever its \
             figures. Of one that knows nothing of weir they are what the kernel delivered by UDP to all \
             programs.",
            width,
        );
    }
    for line in [
        "threads: used of all that were started. received/s: median over the rounds, after the warm-up; ≥ the server was not the limit; ± half of \
         its 95 % interval, or in brackets half of the range of fewer than 6 rounds, which is no \
         interval. of sent: over the whole run. CPU of cores: of all the server's cores.",
        "× best, × trad.: how many times the figure of the best row, and of the traditional design: the \
         median over pairs of runs of one round; ~ a tie, within the noise; ? open, too few pairs; - not \
         ranked, for the reason below the table, and then its figures stand alone. (again): the same row \
         under a second name, which shows the noise.",
        "latency: one way, evenly paced, from the time at which a datagram was due, however late the \
         generator sent it, to the handler; percentiles and maximum of \
         all rounds together, ± of the rounds' own p50, by which rows are ranked. batch: datagrams per \
         dequeue. entries, switches: kernel entries and context switches per 1000 datagrams. ≥ entries: without those by \
         which threads wait for each other and wake each other (futex), which are not counted; such a number \
         is compared with no other.",
        "limited by: server, it lost datagrams or used up its cores; generator, it could send no more; both, that and the server took nearly \
         all of it; \
         memory, the system refused or dropped them before any socket; load, all that was offered evenly \
         was taken; unknown, none of these.",
        "drops: percent of sent, at the device, at the queue of the CPU, at the socket; ? cannot \
         be seen. INVALID: its data or its ledger is wrong, see below the table.",
    ] {
        paragraph(text, line, width);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
