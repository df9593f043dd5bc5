//! What commands that do one thing and tell of it print: text, or one JSON document.

use std::{
    cell::{Cell, OnceCell},
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use serde_json::{Map, Value, json};
use weir_load::{
    latency::Summary,
    ranks::course::{Figures, RanksReport},
};

use crate::{
    exit::{DATA_ERRORS, FAILED, Failure, INTERRUPTED, OK},
    interrupts,
    intervals::{Interval, Intervals},
    width::fitted,
};

/// Version of the JSON documents.
///
/// 2: the rate asked for is `asked_per_s`, where it was `offered_per_s` as what was offered; percentiles are fields of a latency,
/// `p50` to `p99_99`, where they were under `percentile` by the names `50` to `99.99`; the status `interrupted`; intervals of
/// floods and servers are `from_ns` to `to_ns`, as those of loads, where they were `from_s` to `to_s`.
const SCHEMA_VERSION: u32 = 2;

/// What such a command finds.
pub trait Finding: Sized {
    /// The command, as its messages name it.
    const COMMAND: &'static str;

    /// The settings that are told before it begins, by their names; all others are details.
    const SETTINGS: &[&str];

    /// What is told of an interval.
    type Interval: Interval;

    /// How it ended.
    fn ending(&self) -> Ending;

    /// After how much of it somebody asked it to end, if so.
    fn asked_to_end(&self) -> Option<String>;

    /// What to say of an error that left nothing to find, and its exit code.
    fn error(error: &anyhow::Error) -> (String, u8);

    /// Prints it for people.
    fn print(&self, shown: &Shown<Self>);

    /// An interval in the document.
    fn interval(interval: &Self::Interval) -> serde_json::Result<Value>;

    /// What the document holds beside what all do: the same names with and without a finding.
    fn fields(found: Option<&Self>) -> anyhow::Result<Map<String, Value>>;
}

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// Well.
    Ok,
    /// Well, but it does not keep to a limit that was set, and how.
    LimitExceeded(String),
    /// Nothing may be concluded from it, and why.
    Invalid(String),
    /// Before it was done, and why.
    Failed(String),
    /// By Ctrl-C or a signal before it was done, and after how much; what it found until then is whole.
    Interrupted(String),
}

impl Ending {
    /// The exit code that says so.
    pub fn code(&self) -> u8 {
        match self {
            Ending::Ok => OK,
            Ending::LimitExceeded(_) | Ending::Invalid(_) => DATA_ERRORS,
            Ending::Failed(_) => FAILED,
            Ending::Interrupted(_) => INTERRUPTED,
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::LimitExceeded(_) => "limit_exceeded",
            Ending::Invalid(_) => "invalid",
            Ending::Failed(_) => "failed",
            Ending::Interrupted(_) => "interrupted",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Ending::Ok => None,
            Ending::LimitExceeded(reason)
            | Ending::Invalid(reason)
            | Ending::Failed(reason)
            | Ending::Interrupted(reason) => Some(reason),
        }
    }
}

/// How a command tells what it finds.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TellArgs {
    /// One JSON document on stdout, everything else on stderr.
    #[arg(short = 'J', long)]
    pub json: bool,

    /// A JSON object on each line of stdout as things happen, everything else on stderr: "event" is begin (settings), interval, or
    /// end (the document, without the intervals).
    #[arg(long, visible_alias = "json-stream", conflicts_with = "json")]
    pub ndjson: bool,

    /// Print every setting in effect, after the result. All are in the document (--json).
    #[arg(long)]
    pub details: bool,
}

impl TellArgs {
    /// Whether stdout is for programs.
    pub fn is_for_programs(self) -> bool {
        self.json || self.ndjson
    }
}

/// An event of --ndjson: its name, and the fields of an object.
pub fn event(name: &str, fields: Value) -> Value {
    let mut event = Map::from_iter([("event".to_owned(), name.into())]);
    match fields {
        Value::Object(fields) => event.extend(fields),
        other => drop(event.insert("value".into(), other)),
    }
    event.into()
}

/// Collects what the document will hold, and prints what is for people.
pub struct Shown<F: Finding> {
    args: TellArgs,
    settings: Vec<(String, String)>,
    intervals: Intervals<F::Interval>,
    /// Whether a line of an interval was said, and so a head above it.
    has_head: bool,
    /// Whether lines for people go to stderr: stdout is for the document, or takes nothing.
    aside: Cell<bool>,
    /// Why the first line was lost of those that were.
    lost: OnceCell<io::Error>,
}

impl<F: Finding> Shown<F> {
    fn new(args: TellArgs) -> Self {
        Self {
            args,
            settings: Vec::new(),
            intervals: Intervals::default(),
            has_head: false,
            aside: Cell::new(args.is_for_programs()),
            lost: OnceCell::new(),
        }
    }

    /// A line for people: on stdout, unless that is for programs.
    pub fn say(&self, line: &str) {
        if self.aside.get() {
            let _ = writeln!(io::stderr(), "{line}");
            return;
        }
        self.print(line);
    }

    /// A line on stdout. A reader that has gone is no reason to end a run; that others lose something is told at the end.
    fn print(&self, line: &str) {
        let mut out = io::stdout().lock();
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                // The first one tells the cause.
                let _ = self.lost.set(error);
            }
            _ => {}
        }
    }

    fn is_on_terminal(&self) -> bool {
        if self.aside.get() { io::stderr().is_terminal() } else { io::stdout().is_terminal() }
    }

    /// A figure with its name.
    pub fn tell(&self, name: &str, value: impl std::fmt::Display) {
        self.say(&fitted(&format!("{name:>18}  {value}"), &" ".repeat(20), self.is_on_terminal()));
    }

    /// A line beside the result, whoever that is for.
    pub fn note(&self, line: &str) {
        let line = format!("{}: {line}", F::COMMAND);
        say!("{}", fitted(&line, "  ", io::stderr().is_terminal()));
    }

    /// What it is about to be done with, in a line.
    pub fn settings(&mut self, settings: &[(impl AsRef<str>, String)]) {
        self.keep(settings);
        let value = |name: &&str| self.settings.iter().find(|(own, _)| own == name);
        let named = F::SETTINGS.iter().filter_map(value);
        let named: Vec<String> = named.map(|(name, value)| format!("{name} {value}")).collect();
        let line = format!("{}: {}; --details shows all settings", F::COMMAND, named.join(", "));
        self.say(&fitted(&line, "  ", self.is_on_terminal()));
    }

    /// What it would be done with, in full.
    pub fn only_settings(&mut self, settings: &[(impl AsRef<str>, String)]) {
        self.keep(settings);
        self.tell_settings();
    }

    fn keep(&mut self, settings: &[(impl AsRef<str>, String)]) {
        let settings =
            settings.iter().map(|(name, value)| (name.as_ref().to_owned(), value.clone()));
        self.settings = settings.collect();
        if self.args.ndjson {
            let fields = json!({
                "schema_version": SCHEMA_VERSION,
                "command": crate::arguments(),
                "settings": self.list_of_settings(),
            });
            self.print(&event("begin", fields).to_string());
        }
    }

    fn tell_settings(&self) {
        self.settings.iter().for_each(|(name, value)| self.tell(name, value));
    }

    fn list_of_settings(&self) -> Vec<Value> {
        let settings = self.settings.iter();
        settings.map(|(name, value)| json!({ "name": name, "value": value })).collect()
    }

    /// An interval as a line, below a head if it is the first; one that is worth no line is in the document alone.
    pub fn interval(&mut self, head: &str, line: Option<&str>, interval: F::Interval) {
        if let Some(line) = line {
            if !std::mem::replace(&mut self.has_head, true) {
                self.say(head);
            }
            self.say(line);
        }
        if !self.args.ndjson {
            self.intervals.push(interval);
        } else if let Ok(fields) = F::interval(&interval) {
            self.print(&event("interval", fields).to_string());
        }
    }

    /// Prints the result, whatever it is.
    fn end(&self, found: Option<&F>, ending: &Ending) -> Result<(), Failure> {
        if let Some(found) = found {
            found.print(self);
        }
        if self.args.details && found.is_some() {
            self.say("\nSettings:");
            self.tell_settings();
        }
        if let Some(reason) = ending.reason() {
            self.note(reason);
        }
        if self.args.is_for_programs() {
            let document = self.document(found, ending).map_err(Failure::failed)?;
            crate::print_results(&format!("{document}\n"))?;
            return self.lost.get().map_or(Ok(()), |error| Err(crate::lost_results(error)));
        }
        let Some(error) = self.lost.get() else { return Ok(()) };
        // What took time to find is not lost with it.
        self.aside.set(true);
        if let Some(found) = found {
            found.print(self);
        }
        Err(crate::lost_results(error))
    }

    fn document(&self, found: Option<&F>, ending: &Ending) -> anyhow::Result<Value> {
        let mut document = Map::new();
        document.insert("schema_version".into(), SCHEMA_VERSION.into());
        document.insert("command".into(), crate::arguments().into());
        document.insert("status".into(), ending.status().into());
        document.insert("reason".into(), ending.reason().into());
        document.insert("settings".into(), self.list_of_settings().into());
        if !self.args.ndjson {
            let intervals: Result<Vec<Value>, _> = self.intervals.iter().map(F::interval).collect();
            document.insert("intervals".into(), intervals?.into());
        }
        document.extend(F::fields(found)?);
        let document = document.into();
        Ok(if self.args.ndjson { event("end", document) } else { document })
    }
}

/// How it ended: that somebody ended it is told in any case, and decides, unless it failed besides.
fn ending<F: Finding>(found: &F) -> Ending {
    match found.asked_to_end().filter(|_| interrupts::heard()) {
        Some(after) => interrupted(found.ending(), &after),
        None => found.ending(),
    }
}

/// How a run ended that somebody ended after so much of it.
fn interrupted(ending: Ending, after: &str) -> Ending {
    let ended = format!("ended by {} {after}", interrupts::WAYS);
    match ending {
        Ending::Failed(reason) => Ending::Failed(format!("{reason}; {ended}")),
        Ending::Invalid(reason) | Ending::LimitExceeded(reason) => {
            Ending::Interrupted(format!("{ended}; until then: {reason}"))
        }
        Ending::Ok | Ending::Interrupted(_) => Ending::Interrupted(ended),
    }
}

/// Runs a command, which finds nothing where it only shows its settings, and shows what came of it;
/// gives the exit code.
pub fn run<F: Finding>(
    args: TellArgs,
    attempt: impl FnOnce(&mut Shown<F>) -> anyhow::Result<Option<F>>,
) -> ExitCode {
    let mut shown = Shown::new(args);
    let (found, ending, code) = match attempt(&mut shown) {
        Ok(found) => {
            let ending = found.as_ref().map_or(Ending::Ok, ending);
            let code = ending.code();
            (found, ending, code)
        }
        Err(error) => {
            let (text, code) = F::error(&error);
            (None, Ending::Failed(text), code)
        }
    };
    let code = match shown.end(found.as_ref(), &ending) {
        Ok(()) => code,
        Err(failure) => {
            shown.note(&failure.message);
            failure.code
        }
    };
    ExitCode::from(code)
}

/// The document of a command that was not even tried.
pub fn refusal<F: Finding>(reason: &str, ndjson: bool) -> String {
    let args = TellArgs { json: !ndjson, ndjson, details: false };
    let document = Shown::<F>::new(args).document(None, &Ending::Failed(reason.to_owned()));
    document.map(|document| document.to_string()).unwrap_or_default()
}

/// What each rank did, in a line each, and how they went together.
pub fn ranks<F: Finding, G: Figures>(
    shown: &Shown<F>,
    ranks: &RanksReport<G>,
    head: &str,
    line: impl Fn(&G) -> String,
) {
    let widest = ranks.each.iter().map(|rank| rank.host.chars().count()).max().unwrap_or(0).max(4);
    shown.say(&format!("\n  rank  {:<widest$} {:>12} {head}", "host", "start"));
    for rank in &ranks.each {
        let after =
            rank.started_after_ns.map_or("-".into(), |ns| format!("{:+.1} µs", ns as f64 / 1e3));
        let rest = match (&rank.failure, &rank.figures) {
            (Some(failure), None) => format!("  {failure}"),
            (Some(failure), Some(figures)) => format!(" {}\n        {failure}", line(figures)),
            (None, Some(figures)) => format!(" {}", line(figures)),
            (None, None) => "  makes no load".into(),
        };
        shown.say(&format!("{:>6}  {:<widest$} {after:>12}{rest}", rank.rank, rank.host));
    }
    if let Some(skew_ns) = ranks.start_skew_ns {
        let uncertainty_ns = ranks.clock_uncertainty_ns;
        let text = format!(
            "{:.1} µs from the first to the last, by clocks that are known within {:.1} µs",
            skew_ns as f64 / 1e3,
            uncertainty_ns as f64 / 1e3
        );
        shown.tell("start skew", text);
        shown.tell("all together", format!("{:.3} s", ranks.all_ran_ns as f64 / 1e9));
    }
    if let Some(slowest) = ranks.slowest {
        shown.tell("slowest", format!("rank {slowest} on {}", ranks.each[slowest].host));
    }
    if !ranks.complete {
        shown.note("incomplete: the figures cover only the ranks that are listed with some, and latencies may cover fewer");
    }
}

/// Latencies in one line, each written by `us`, in µs.
pub fn latency(summary: &Summary, us: impl Fn(u64) -> String) -> String {
    let of = |name: &str| summary.percentile.get(name).copied().map_or_else(|| "-".into(), &us);
    format!(
        "p50 {} µs, p90 {}, p99 {}, p99.9 {}, max {}",
        of("50"),
        of("90"),
        of("99"),
        of("99.9"),
        us(summary.max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_ends_a_run_hears_so_and_what_was_wrong_with_it() {
        let of = |ending| {
            let ending = interrupted(ending, "after 1.0 s");
            (ending.code(), ending.reason().expect("a reason").to_owned())
        };
        let ended = "ended by Ctrl-C or a signal after 1.0 s";
        assert_eq!(of(Ending::Ok), (INTERRUPTED, ended.to_owned()));
        for wrong in [Ending::Invalid, Ending::LimitExceeded] {
            let (code, reason) = of(wrong("the pace was not held".into()));
            assert_eq!(code, INTERRUPTED);
            assert_eq!(reason, format!("{ended}; until then: the pace was not held"));
        }
        let (code, reason) = of(Ending::Failed("nobody listens".into()));
        assert_eq!((code, reason), (FAILED, format!("nobody listens; {ended}")));
    }
}
