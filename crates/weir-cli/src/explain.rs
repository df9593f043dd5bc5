//! `weir explain`: what a column, a counter or a figure of a line means.

use std::process::ExitCode;

use clap::Args;
use weir::counters::names::{CALLS, Name, TCP, UDP};
use weir_lab::report::explain::{Meaning, meanings};

use crate::exit;
use crate::width::width;

/// Say what a column, a counter or a figure of a progress line means.
///
/// Without a name all are listed. A name is a heading of a table, a name in the JSON document, a counter of a server, or a
/// part of one; or flood, load, iops, serve or ranks (--mpi) for the lines of that command.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The column: "× best", batch, cpu_ns_per_datagram; or overflows, strangers, flood.
    column: Vec<String>,
}

/// Runs `weir explain`.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let words = args.column.join(" ");
    let mut found: Vec<Meaning> = all().collect();
    if found.iter().any(|meaning| meaning.kind == words && is_of_line(meaning)) {
        found.retain(|meaning| meaning.kind == words);
    } else if !args.column.is_empty() {
        found.retain(|meaning| meaning.is_meant_by(&words));
    }
    if found.is_empty() {
        say!("weir explain: {}", no_such(&words));
        return ExitCode::from(exit::USAGE);
    }
    let text: String = found.iter().map(|meaning| explained(meaning, width())).collect();
    match crate::print_report(&text) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failed) => {
            say!("weir explain: {}", failed.message);
            ExitCode::from(failed.code)
        }
    }
}

/// All that can be asked for.
fn all() -> impl Iterator<Item = Meaning> {
    meanings().into_iter().chain(counters()).chain(lines())
}

/// How much alike a name must be to be named: 1 for the same.
const ALIKE: f64 = 0.75;
/// Most names that are named.
const NAMED: usize = 3;

/// That there is nothing of that name, and which are the nearest.
fn no_such(words: &str) -> String {
    let lower = words.to_lowercase();
    let alike = |name: &str| strsim::jaro_winkler(&lower, &name.to_lowercase());
    let names =
        all().flat_map(|meaning| [meaning.heading, meaning.name.into(), meaning.kind.into()]);
    let mut near: Vec<(f64, String)> = names
        .filter(|name| !name.is_empty())
        .map(|name| {
            // Also of a word of it, if that is no letter or two.
            let words = name.split([' ', '.', '/', ',']).filter(|word| word.len() > 2);
            (words.chain([&*name]).map(alike).fold(0.0, f64::max), name)
        })
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut names: Vec<String> = vec![];
    for (_, name) in near {
        let name = name.replace('\n', " ");
        if names.len() < NAMED && !names.contains(&name) {
            names.push(name);
        }
    }
    let nearest = match names.len() {
        0 => String::new(),
        _ => format!("the nearest: {}; ", names.join(", ")),
    };
    format!(
        "there is no column, counter or figure {words:?}; {nearest}`weir explain` lists them all"
    )
}

/// What servers count, by the names in their documents and on their page of metrics.
fn counters() -> Vec<Meaning> {
    let of = |kind: &'static str, names: &'static [Name]| {
        let mut help = "";
        names.iter().map(move |name| {
            // Only the first counter of a metric has the sentence; the others differ by their label.
            if !name.help.is_empty() {
                help = name.help;
            }
            let label = name.label.map(|(label, value)| format!(" ({label}: {value})"));
            Meaning {
                kind,
                heading: name.counter.into(),
                name: name.metric,
                unit: "",
                about: format!("{help}{}", label.unwrap_or_default()),
            }
        })
    };
    of("counter (UDP)", UDP).chain(of("counter (TCP)", TCP)).chain(of("counter", CALLS)).collect()
}

/// The figures of progress lines and of results that no table has: the command, the heading, and what it is.
const LINES: &[(&str, &str, &str)] = &[
    (
        "flood",
        "from, to",
        "seconds since the flood began; a line is of what happened between the two",
    ),
    ("flood", "sent/s", "datagrams per second that the operating system took"),
    ("flood", "Mbit/s of payload", "the same in bits, of payload alone: no header is counted"),
    (
        "flood",
        "offered",
        "datagrams that were due and given to the engine: those sent and those refused",
    ),
    ("flood", "sent", "datagrams that the operating system took"),
    (
        "flood",
        "refused",
        "datagrams that the operating system did not take, for instance because its buffer was full",
    ),
    (
        "flood",
        "skipped, skipped as late",
        "datagrams that were too late for the pace, and not offered (late_skipped in the document)",
    ),
    (
        "flood",
        "pace",
        "windows of 10 ms in which as much was sent as the pace asks for, within 2 % or one quantum; if fewer than 99 % are, the load was not the one asked for",
    ),
    (
        "flood",
        "elapsed",
        "from the first generator's start to the last one's end, and why it ended",
    ),
    (
        "flood",
        "CPU",
        "CPU time of the generators for each datagram sent; of a paced flood with the time in which they spin until the next is due",
    ),
    ("flood", "received", "datagrams of the run that the server received, by its report"),
    (
        "flood",
        "lost",
        "datagrams sent that the server did not receive, by its report; duplicates count once",
    ),
    (
        "flood",
        "answered",
        "requests that were answered, each once, and how many per second (--reply)",
    ),
    (
        "flood",
        "not answered",
        "requests sent to which no answer came, the time at the end included",
    ),
    (
        "flood",
        "given up",
        "requests that were under way for 100 ms or more, so that others took their places; an answer may have come later",
    ),
    (
        "flood",
        "round trip",
        "from when a request was due, or without a pace was sent, to its answer",
    ),
    (
        "flood",
        "not of this run, strangers",
        "datagrams without the stamp of this run, of any other sender or of a run that is over",
    ),
    ("flood", "duplicates", "datagrams of the run that came more than once"),
    (
        "flood",
        "reordered",
        "datagrams that came after one sent later; UDP promises no order, so that is no error",
    ),
    ("flood", "of wrong size", "datagrams of the run that are longer or shorter than those sent"),
    (
        "flood",
        "damaged",
        "datagrams of the run with other bytes than were sent: in the stamp or behind it",
    ),
    (
        "flood",
        "corrupt stamps",
        "datagrams of the run whose stamp (the first 32 bytes) is not as it was sent",
    ),
    (
        "flood",
        "corrupt bodies",
        "datagrams of the run whose bytes behind the stamp are not as they were sent, of those that were compared",
    ),
    (
        "flood",
        "one-way latency",
        "from when a datagram was due to when the server's handler had it; only where both ends have one clock",
    ),
    (
        "flood",
        "jitter",
        "iperf3's, the mean change of the transit time from one datagram to the next, has no counterpart: the percentiles of the one-way latency, or of the round trip (--reply), tell how much times differ",
    ),
    (
        "load",
        "from, to",
        "seconds since the load began; a line is of what happened between the two",
    ),
    (
        "load",
        "attempted, connected, open",
        "connections begun so far, those of them that were made, and those open now",
    ),
    ("load", "not attempted", "connections that were asked for and never begun"),
    (
        "load",
        "refused",
        "connections that the server's system refused: nobody listens there, or its backlog is full",
    ),
    ("load", "timed out", "connections that were not made within --connect-timeout"),
    (
        "load",
        "failed to connect",
        "connections that could not be made for another reason, which stands under error",
    ),
    ("load", "unfinished", "connections that were still being made when the load ended"),
    (
        "load",
        "refused by server",
        "connections that were accepted and then turned away with a message, for instance at a limit",
    ),
    ("load", "reset", "connections that the other end broke off (RST)"),
    ("load", "broken", "connections on which a call failed; the reason stands under error"),
    (
        "load",
        "ended by server",
        "connections that the server ended, in order and with all answers, before their time",
    ),
    (
        "load",
        "ended with a loss",
        "connections that the server ended, in order, while answers were due: what it owed is lost",
    ),
    ("load", "wrong bytes on", "connections on which other bytes came back than were sent"),
    ("load", "gave no answer", "connections on which an answer took longer than --answer-timeout"),
    (
        "load",
        "cut off",
        "connections on which answers were still due when the time for the end (--drain) was over",
    ),
    (
        "load",
        "left open",
        "connections that the server had not closed when the time for the end (--drain) was over",
    ),
    (
        "load",
        "error",
        "what the system said when something failed, and how often, the most frequent first",
    ),
    (
        "load",
        "the server said",
        "what a server of weir said when it turned connections away, and how often",
    ),
    (
        "load",
        "connecting",
        "connections made per second while connections were being made, and for how long they were",
    ),
    ("load", "time to connect", "from the beginning of a connection until it was made"),
    ("load", "engine", "what moved the bytes, and why that (--engine)"),
    (
        "load",
        "source addresses",
        "addresses that connections came from, as one has only so many ports",
    ),
    (
        "load",
        "memory, kernel",
        "memory of the load's processes, and what the kernel had in the buffers of its sockets (--memory)",
    ),
    ("load", "messages", "messages sent, and those of them that were answered in full"),
    ("load", "unanswered", "messages sent whose answers did not come"),
    (
        "load",
        "due and not sent",
        "messages of an open loop that were due, and could not be sent as their connections had --outstanding under way, or were over",
    ),
    ("load", "elapsed", "from the beginning to the end of the last connection, and why it ended"),
    (
        "load",
        "measured",
        "the time that counts: behind connecting and warm-up, up to the end of sending",
    ),
    ("load", "rate, messages/s", "messages per second that were answered in full"),
    ("load", "throughput", "payload sent and received per second, no header counted"),
    ("load", "sent, received", "Mbit per second of payload"),
    ("load", "CPU of the load", "CPU time of the load's threads for each message"),
    (
        "load",
        "latency",
        "from when a message was due, or without a rate was begun, to the last byte of its answer",
    ),
    (
        "load",
        "sent late by",
        "of an open loop, from when a message was due to its sending where only this program held it up: as large as the latencies, these are the load's own",
    ),
    (
        "ranks",
        "start skew",
        "how far apart the ranks began, by their clocks, and how exactly these were compared",
    ),
    ("ranks", "all together", "the time in which all ranks were at work"),
    ("ranks", "slowest", "the rank with the fewest per second"),
    (
        "iops",
        "from, to",
        "seconds since measuring began; a line is of what happened between the two",
    ),
    ("iops", "total, in period", "I/Os completed so far, and in the line's time"),
    ("iops", "issued", "I/Os that were begun, warm-up included"),
    ("iops", "completed", "I/Os that came to their end, warm-up included, whatever came of them"),
    ("iops", "failed", "I/Os that ended with an error, which stands under error"),
    ("iops", "cancelled", "I/Os that were cancelled at the end, as they would have taken longer"),
    ("iops", "short", "I/Os that moved fewer bytes than were asked for"),
    ("iops", "empty", "I/Os that moved no byte, where some were asked for"),
    ("iops", "error", "what the system said, and how often"),
    ("iops", "measured", "the time that counts, behind the warm-up, and the I/Os completed in it"),
    ("iops", "rate", "I/Os completed per second in the measured time"),
    ("iops", "median second", "the median of the rates of all whole seconds, with its interval"),
    (
        "iops",
        "over time",
        "whether the rate falls or rises over the measured time, and how sure that is",
    ),
    (
        "iops",
        "system calls",
        "entries into the kernel for I/O; ≥ where the design has some that are not counted",
    ),
    ("iops", "taken at a time", "completions that a thread takes at a time, on average"),
    ("iops", "handed over", "I/Os that one thread completed and another one was told of"),
    ("iops", "CPU", "CPU time of the process for each I/O, and the share of a core that it used"),
    (
        "iops",
        "context switches",
        "times per second that a thread gave its core away, or had it taken away",
    ),
    ("iops", "others' load", "share of all cores that other programs had meanwhile"),
    (
        "iops",
        "latency",
        "from the issue of an I/O to its completion, of some that were picked at random (--sample-every)",
    ),
    (
        "iops",
        "taking it costs",
        "how much lower the rate is for taking latencies (--sampling-cost measures it)",
    ),
    (
        "iops",
        "outstanding",
        "I/Os under way, in the first and the last tenth of the time (--control)",
    ),
    (
        "iops",
        "memory",
        "memory of the process, in the first and the last tenth of the time (--control)",
    ),
    ("iops", "of the kernel", "memory of the kernel for I/O, in the same way"),
    ("iops", "slab, of all", "memory in the kernel's slab of all programs, in the same way"),
    ("serve", "datagrams/s", "datagrams per second given to the handler (UDP)"),
    ("serve", "CPU", "CPU time of the process as percent of one core"),
    (
        "serve",
        "dropped/s",
        "datagrams per second that the system dropped at the server's sockets (UDP)",
    ),
    ("serve", "damaged", "datagrams of a generator with other bytes than it sent (UDP)"),
    (
        "serve",
        "of wrong size",
        "datagrams of a generator that are longer or shorter than it sent (UDP)",
    ),
    ("serve", "twice", "datagrams of a generator that came more than once (UDP)"),
    ("serve", "out of order", "datagrams that came after one sent later, which is no error (UDP)"),
    (
        "serve",
        "not of this run",
        "datagrams without the stamp of the run that is on: of any other sender, or of a run that is over (UDP)",
    ),
    ("serve", "open", "connections open now (TCP)"),
    ("serve", "accepted/s", "connections accepted per second (TCP)"),
    ("serve", "receives/s", "receives per second that brought bytes (TCP)"),
    ("serve", "Mbit/s in, out", "bits per second of payload received, and sent (TCP)"),
];

fn lines() -> impl Iterator<Item = Meaning> {
    LINES.iter().map(|(command, heading, about)| Meaning {
        kind: command,
        heading: (*heading).into(),
        name: "",
        unit: "",
        about: (*about).into(),
    })
}

fn is_of_line(meaning: &Meaning) -> bool {
    LINES.iter().any(|(command, ..)| *command == meaning.kind)
}

fn explained(meaning: &Meaning, width: usize) -> String {
    let of = if meaning.kind.is_empty() { "all" } else { meaning.kind };
    let name = match (meaning.name, meaning.unit) {
        ("", _) => String::new(),
        (name, "") => format!(" [{name}]"),
        (name, unit) => format!(" [{name}, {unit}]"),
    };
    let head = format!("{of}: {}{name}", meaning.heading);
    let options =
        textwrap::Options::new(width.min(100)).initial_indent("    ").subsequent_indent("    ");
    format!("{head}\n{}\n", textwrap::fill(&meaning.about, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_report_is_explained() {
        const SOURCES: [(&str, &str); 4] = [
            ("flood", include_str!("flood/show.rs")),
            ("load", include_str!("load/show.rs")),
            ("iops", include_str!("iops/show.rs")),
            ("ranks", include_str!("shown.rs")),
        ];
        for (kind, source) in SOURCES {
            // Names as they are told, alone or in a list of names with their figures.
            let alone = ["tell(", "each(", "(shown,"].iter();
            let alone = alone.flat_map(|before| source.split(before).skip(1));
            let listed = source.lines().filter_map(|line| line.trim_start().strip_prefix('('));
            let literals =
                alone.chain(listed).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            let names = literals.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name);
            // Fields of documents have underscores.
            let names = names.filter(|name| !name.is_empty() && !name.contains(['_', '{']));
            let mut told = 0;
            for name in names {
                let is_it = |(of, heading, _): &&(&str, &str, &str)| {
                    *of == kind && (*heading == name || heading.split(", ").any(|one| one == name))
                };
                assert!(LINES.iter().any(|line| is_it(&line)), "{kind}: {name:?} is not explained");
                told += 1;
            }
            assert!(told >= 3, "{kind}: {told}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_the_nearest() {
        for (word, near) in
            [("recieved/s", "received/s"), ("overflow_s", "overflows"), ("flod", "flood")]
        {
            let said = no_such(word);
            assert!(said.contains("the nearest: ") && said.contains(near), "{said}");
        }
        let said = no_such("xyzzy");
        assert!(!said.contains("nearest") && said.contains("\"xyzzy\""), "{said}");
    }
}
