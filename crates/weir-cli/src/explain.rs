//! `weir explain`: what a column, a counter or a figure of a line means.

use std::process::ExitCode;

use clap::Args;
use weir::counters::names::{CALLS, Name, TCP, UDP};
use weir_lab::report::explain::{Meaning, meanings};

use crate::designs;
use crate::exit;
use crate::width::width;

/// Say what a column, a counter or a figure of a progress line means.
///
/// Without a name all are listed. A name is a heading of a table, a name in the JSON document, a counter of a server,
/// or a part of one of these; or flood, load, iops, serve, simulate or ranks (--mpi) for the lines of that command. Of an
/// option of a design it says which designs have it.
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
        found.extend(options(&words));
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

/// An option of designs, by its whole name: what it does, and which of them have it.
fn options(name: &str) -> Vec<Meaning> {
    let name = name.trim_start_matches('-');
    // The same name may stand for something else in another design.
    let mut found: Vec<(&str, Vec<&str>)> = vec![];
    for (design, option) in designs::options().into_iter().filter(|(_, of)| of.name == name) {
        match found.iter_mut().find(|(help, _)| *help == option.help) {
            Some((_, all)) if all.contains(&design) => {}
            Some((_, all)) => all.push(design),
            None => found.push((option.help, vec![design])),
        }
    }
    let meaning = |(help, all): (&str, Vec<&str>)| Meaning {
        kind: "option",
        heading: format!("--{name}"),
        name: "",
        unit: "",
        about: format!(
            "{help} Of {}; `weir designs {}` says what it allows, and its default.",
            all.join(", "),
            all[0]
        ),
    };
    found.into_iter().map(meaning).collect()
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
    ("flood", "from, to", "seconds since the flood began; a line covers the time between the two"),
    ("flood", "sent/s", "datagrams per second that the operating system accepted"),
    ("flood", "Mbit/s of payload", "the same in bits of payload, without headers"),
    (
        "flood",
        "offered",
        "datagrams that were due and passed to the engine: those sent and those refused",
    ),
    ("flood", "sent", "datagrams that the operating system accepted"),
    (
        "flood",
        "refused",
        "datagrams that the operating system did not accept, for instance because its buffer was full",
    ),
    (
        "flood",
        "skipped, skipped as late",
        "datagrams that were too late for the pace, and so were not offered (late_skipped in the document)",
    ),
    (
        "flood",
        "pace",
        "windows of 10 ms in which the pace was held within 2 % or one quantum; if it was held in fewer than 99 % of them, \
         the load was not the one asked for",
    ),
    (
        "flood",
        "quantum",
        "datagrams that are passed to the system in one call, and in a paced flood how far apart these calls are",
    ),
    (
        "flood",
        "elapsed",
        "from the first generator's start to the last one's end, and why it ended",
    ),
    (
        "flood",
        "CPU",
        "CPU time of the generators for each datagram sent; in a paced flood it includes spinning until the next one is due",
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
        "requests to which no answer came, not even in the time allowed for that at the end",
    ),
    (
        "flood",
        "given up",
        "requests that were outstanding for 100 ms or more, so that others were sent in their place; an answer may \
         have come later",
    ),
    ("flood", "round trip", "from when a request was due (without a pace: sent) to its answer"),
    (
        "flood",
        "not of this run, strangers",
        "datagrams without the stamp of this run: from another sender, or of a run that is over",
    ),
    ("flood", "duplicates", "datagrams of the run that arrived more than once"),
    (
        "flood",
        "reordered",
        "datagrams that arrived after one sent later; not an error, since UDP promises no order",
    ),
    ("flood", "of wrong size", "datagrams of the run that are longer or shorter than those sent"),
    (
        "flood",
        "damaged",
        "datagrams of the run whose bytes differ from those sent, in the stamp or after it",
    ),
    (
        "flood",
        "corrupt stamps",
        "datagrams of the run whose stamp (the first 32 bytes) differs from the one sent",
    ),
    (
        "flood",
        "corrupt bodies",
        "datagrams of the run whose bytes after the stamp differ from those sent, among those compared",
    ),
    (
        "flood",
        "one-way latency",
        "from when a datagram was due until the server's handler had it; only where both ends share a clock",
    ),
    (
        "flood",
        "jitter",
        "iperf3's jitter, the mean change of the transit time from one datagram to the next, has no counterpart here: \
         the percentiles of the one-way latency, or of the round trip (--reply), show how much times vary",
    ),
    ("load", "from, to", "seconds since the load began; a line covers the time between the two"),
    (
        "load",
        "attempted, connected, open",
        "connections begun so far, how many of them were made, and how many are open now",
    ),
    ("load", "not attempted", "connections that were requested but never begun"),
    (
        "load",
        "refused",
        "connections that the server's system refused: nobody listens there, or its backlog is full",
    ),
    ("load", "timed out", "connections that were not made within --connect-timeout"),
    (
        "load",
        "failed to connect",
        "connections that could not be made for another reason, given under error",
    ),
    ("load", "unfinished", "connections that were still being made when the load ended"),
    (
        "load",
        "refused by server",
        "connections that were accepted and then turned away with a message, for instance at a limit",
    ),
    ("load", "reset", "connections that the other end broke off (RST)"),
    ("load", "broken", "connections on which a call failed, for the reason given under error"),
    (
        "load",
        "ended by server",
        "connections that the server ended, in order and with all answers, before their time",
    ),
    (
        "load",
        "ended with a loss",
        "connections that the server ended, in order, while answers were still due: those answers are lost",
    ),
    (
        "load",
        "wrong bytes on",
        "connections on which the bytes that came back differ from those sent",
    ),
    ("load", "gave no answer", "connections on which an answer took longer than --answer-timeout"),
    (
        "load",
        "cut off",
        "connections on which answers were still due when the time to end (--drain) was over",
    ),
    (
        "load",
        "left open",
        "connections that the server had not closed when the time to end (--drain) was over",
    ),
    (
        "load",
        "error",
        "what the system said when something failed, and how often, the most frequent first",
    ),
    (
        "load",
        "the server said",
        "what a weir server said when it turned connections away, and how often",
    ),
    (
        "load",
        "connecting",
        "connections made per second while they were being made, and how long that took",
    ),
    ("load", "time to connect", "from when a connection was begun until it was made"),
    ("load", "engine", "what moved the bytes, and why it was chosen (--engine)"),
    (
        "load",
        "source addresses",
        "addresses that connections came from; several, where one has too few ports",
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
        "messages of an open loop that were due but could not be sent, because their connections had --outstanding \
         under way, or were over",
    ),
    ("load", "elapsed", "from the beginning to the end of the last connection, and why it ended"),
    (
        "load",
        "measured",
        "the time that counts: after connecting and warm-up, up to the end of sending",
    ),
    ("load", "rate, messages/s", "messages per second that were answered in full"),
    ("load", "throughput", "payload sent and received per second, without headers"),
    ("load", "sent, received", "Mbit per second of payload"),
    ("load", "CPU of the load", "CPU time of the load's threads for each message"),
    (
        "load",
        "latency",
        "from when a message was due (without a rate: begun) to the last byte of its answer",
    ),
    (
        "load",
        "sent late by",
        "in an open loop, how late messages were sent that nothing but this program held up; if it is as large as the \
         latencies, they are the load's own",
    ),
    (
        "ranks",
        "start skew",
        "how far apart the ranks began, by their clocks, and how exactly these were compared",
    ),
    ("ranks", "all together", "the time in which all ranks were at work"),
    ("ranks", "slowest", "the rank with the lowest rate"),
    ("iops", "from, to", "seconds since measuring began; a line covers the time between the two"),
    ("iops", "total, in period", "I/Os completed so far, and in the line's time"),
    ("iops", "issued", "I/Os that were begun, warm-up included"),
    ("iops", "completed", "I/Os that ended, warm-up included, whatever their outcome"),
    ("iops", "failed", "I/Os that ended with an error, given under error"),
    ("iops", "cancelled", "I/Os that were still outstanding at the end, and were cancelled"),
    ("iops", "short", "I/Os that moved fewer bytes than were asked for"),
    ("iops", "empty", "I/Os that moved no byte although some were asked for"),
    ("iops", "error", "what the system said, and how often"),
    ("iops", "measured", "the time that counts, after the warm-up, and the I/Os completed in it"),
    ("iops", "rate", "I/Os completed per second in the measured time"),
    (
        "iops",
        "IOS/call",
        "as fio prints it: I/Os issued per call, and completions taken per call, which is inf where there is no such call",
    ),
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
    ("iops", "handed over", "I/Os whose completion one thread took and another one handled"),
    ("iops", "CPU", "CPU time of the process for each I/O, and the share of a core that it used"),
    ("iops", "context switches", "times per second that a thread gave up its core, or lost it"),
    ("iops", "others' load", "share of all cores that other programs had meanwhile"),
    (
        "iops",
        "latency",
        "from the issue of an I/O to its completion, for I/Os picked at random (--sample-every)",
    ),
    (
        "iops",
        "taking it costs",
        "how much taking latencies lowers the rate (--sampling-cost measures it)",
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
    ("iops", "slab, of all", "memory in the kernel's slab, for all programs, in the same way"),
    ("serve", "datagrams/s", "datagrams per second given to the handler (UDP)"),
    ("serve", "CPU", "CPU time of the process, in percent of one core"),
    (
        "serve",
        "dropped/s",
        "datagrams per second that the system dropped at the server's sockets (UDP)",
    ),
    ("serve", "damaged", "datagrams whose bytes differ from those that the generator sent (UDP)"),
    ("serve", "of wrong size", "datagrams longer or shorter than the generator sent them (UDP)"),
    ("serve", "twice", "datagrams of a generator that arrived more than once (UDP)"),
    (
        "serve",
        "out of order",
        "datagrams that arrived after one sent later, which is not an error (UDP)",
    ),
    (
        "serve",
        "not of this run",
        "datagrams without the stamp of the current run: from another sender, or of a run that is over (UDP)",
    ),
    (
        "serve",
        "receives pending",
        "receives that are outstanding on each socket: the option --outstanding of the design (UDP)",
    ),
    ("serve", "most per dequeue", "the option --dequeue-max of the design (UDP)"),
    ("serve", "timers", "how many timers were created, set, updated, fired and cancelled (TCP)"),
    ("serve", "open", "connections open now (TCP)"),
    ("serve", "accepted/s", "connections accepted per second (TCP)"),
    ("serve", "receives/s", "receives per second that brought bytes (TCP)"),
    ("serve", "Mbit/s in, out", "bits per second of payload received, and sent (TCP)"),
    ("simulate", "received/s", "datagrams per second that the model's threads handled"),
    ("simulate", "lost", "share of the datagrams that found no room, before or at the socket"),
    ("simulate", "buffered", "share of the datagrams that still waited in a socket at the end"),
    ("simulate", "batch", "datagrams per dequeue, on average"),
    (
        "simulate",
        "active, threads active",
        "fewest threads that together handled 99 % of the datagrams",
    ),
    ("simulate", "cores busy", "cores that the threads kept busy, on average"),
    ("simulate", "CPU ns", "CPU time of the server for each datagram, in ns"),
    (
        "simulate",
        "p50 µs, p99 µs",
        "median and 99th percentile of the time from arrival to the handler, in µs",
    ),
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
    fn an_option_is_told_with_the_designs_that_have_it() {
        let spin = options("spin");
        let has = |word: &str| spin.iter().any(|option| option.about.contains(word));
        assert!(has("rio-hybrid") && has("`weir designs "), "{spin:?}");
        assert_eq!(options("--spin"), spin);
        assert!(options("spi").is_empty() && options("").is_empty());
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
