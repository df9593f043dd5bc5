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
/// part of one; or flood, load or serve for the lines of that command.
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
        "refused",
        "datagrams that the operating system did not take, for instance because its buffer was full",
    ),
    (
        "flood",
        "skipped",
        "datagrams that were too late for the pace, and not offered (late_skipped in the document)",
    ),
    (
        "flood",
        "pace",
        "windows of 10 ms in which as much was sent as the pace asks for, within 2 % or one quantum; if fewer than 99 % are, the load was not the one asked for",
    ),
    (
        "flood",
        "lost",
        "datagrams sent that the server did not receive, by its report; duplicates count once",
    ),
    (
        "flood",
        "strangers",
        "datagrams without the stamp of this run, of any other sender or of a run that is over",
    ),
    ("flood", "duplicates", "datagrams of the run that came more than once"),
    (
        "flood",
        "reordered",
        "datagrams that came after one sent later; UDP promises no order, so that is no error",
    ),
    (
        "load",
        "attempted, connected, open",
        "connections begun so far, those of them that were made, and those open now",
    ),
    ("load", "messages/s", "messages per second that were answered in full"),
    ("load", "sent, received", "Mbit per second of payload"),
    ("serve", "datagrams/s", "datagrams per second given to the handler (UDP)"),
    ("serve", "CPU", "CPU time of the process as percent of one core"),
    (
        "serve",
        "dropped/s",
        "datagrams per second that the system dropped at the server's sockets (UDP)",
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
