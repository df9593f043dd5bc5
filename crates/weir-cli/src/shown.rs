//! What commands that do one thing and tell of it print: text, or one JSON document.

use std::{
    cell::{Cell, OnceCell},
    io::{self, Write as _},
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
};

/// Version of the JSON documents.
const SCHEMA_VERSION: u32 = 1;

/// What such a command finds.
pub trait Finding: Sized {
    /// The command, as its messages name it.
    const COMMAND: &'static str;

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
    /// By Ctrl-C before it was done, and after how much; what it found until then is whole.
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

/// Collects what the document will hold, and prints what is for people.
pub struct Shown<F: Finding> {
    json: bool,
    settings: Vec<(String, String)>,
    intervals: Intervals<F::Interval>,
    /// Whether lines for people go to stderr: stdout is for the document, or takes nothing.
    aside: Cell<bool>,
    /// Why the first line was lost of those that were.
    lost: OnceCell<io::Error>,
}

impl<F: Finding> Shown<F> {
    fn new(json: bool) -> Self {
        Self {
            json,
            settings: Vec::new(),
            intervals: Intervals::default(),
            aside: Cell::new(json),
            lost: OnceCell::new(),
        }
    }

    /// A line for people: on stdout, unless that is for the document. A reader that has
    /// gone is no reason to end a run; that others lose something is told at the end.
    pub fn say(&self, line: &str) {
        if self.aside.get() {
            let _ = writeln!(io::stderr(), "{line}");
            return;
        }
        match writeln!(io::stdout(), "{line}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                // The first one tells the cause.
                let _ = self.lost.set(error);
            }
            _ => {}
        }
    }

    /// A figure with its name.
    pub fn tell(&self, name: &str, value: impl std::fmt::Display) {
        self.say(&format!("{name:>18}  {value}"));
    }

    /// A line beside the result, whoever that is for.
    pub fn note(&self, line: &str) {
        say!("{}: {line}", F::COMMAND);
    }

    /// What it was done with.
    pub fn settings(&mut self, settings: &[(impl AsRef<str>, String)]) {
        let settings =
            settings.iter().map(|(name, value)| (name.as_ref().to_owned(), value.clone()));
        self.settings = settings.collect();
        for (name, value) in &self.settings {
            self.tell(name, value);
        }
    }

    /// An interval as a line, below a head if it is the first.
    pub fn interval(&mut self, head: &str, line: &str, interval: F::Interval) {
        if self.intervals.is_empty() {
            self.say(head);
        }
        self.say(line);
        self.intervals.push(interval);
    }

    /// Prints the result, whatever it is.
    fn end(&self, found: Option<&F>, ending: &Ending) -> Result<(), Failure> {
        if let Some(found) = found {
            found.print(self);
        }
        if let Some(reason) = ending.reason() {
            self.note(reason);
        }
        if self.json {
            let document = self.document(found, ending).map_err(Failure::failed)?;
            return crate::print_results(&format!("{document}\n"));
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
        let settings = self.settings.iter();
        let settings: Vec<Value> =
            settings.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        document.insert("settings".into(), settings.into());
        let intervals: Result<Vec<Value>, _> = self.intervals.iter().map(F::interval).collect();
        document.insert("intervals".into(), intervals?.into());
        document.extend(F::fields(found)?);
        Ok(document.into())
    }
}

/// How it ended: what is wrong with it is told first.
fn ending<F: Finding>(found: &F) -> Ending {
    match (found.ending(), found.asked_to_end()) {
        (Ending::Ok, Some(after)) if interrupts::heard() => {
            Ending::Interrupted(format!("ended by Ctrl-C {after}"))
        }
        (ending, _) => ending,
    }
}

/// Runs a command, which finds nothing where it only shows its settings, and shows what came of it;
/// gives the exit code.
pub fn run<F: Finding>(
    json: bool,
    attempt: impl FnOnce(&mut Shown<F>) -> anyhow::Result<Option<F>>,
) -> ExitCode {
    let mut shown = Shown::new(json);
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
pub fn refusal<F: Finding>(reason: &str) -> String {
    let document = Shown::<F>::new(true).document(None, &Ending::Failed(reason.to_owned()));
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
            (Some(failure), _) => format!("  {failure}"),
            (None, Some(figures)) => format!(" {}", line(figures)),
            (None, None) => "  makes no load".into(),
        };
        shown.say(&format!("{:>6}  {:<widest$} {after:>12}{rest}", rank.rank, rank.host));
    }
    if let Some(skew_ns) = ranks.start_skew_ns {
        let uncertainty_ns = ranks.clock_uncertainty_ns;
        let text = format!(
            "{:.1} µs from the first to the last, by clocks right to {:.1} µs",
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
        shown.note("the figures are those of the ranks that are listed with some, without the latencies of others");
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
