//! How a comparison shows what it does, and how wide its report is.

use std::fmt::Display as Shown;
use std::io::{IsTerminal, Write};

use weir_lab::experiment::course::{Course, Progress};
use weir_lab::experiment::plan::{Row, Settings};
use weir_lab::experiment::results::Results;

/// Width of the report where there is no terminal: all columns of a table beside each other.
const WIDTH_WITHOUT_TERMINAL: usize = 205;

/// Progress on standard error: one line that changes on a terminal, else a line for what is
/// worth keeping in a log.
pub struct Display {
    terminal: bool,
    /// Characters of the line that stands there.
    width: usize,
}

impl Display {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), width: 0 }
    }

    /// A line that stays.
    pub fn keep(&mut self, line: &str) {
        self.clear();
        say!("{line}");
    }

    /// A line that the next one takes the place of.
    pub fn change(&mut self, line: &str) {
        if self.terminal {
            self.clear();
            say_on!("{line}");
            let _ = std::io::stderr().flush();
            self.width = line.chars().count();
        }
    }

    /// Takes the line away that changes.
    pub fn clear(&mut self) {
        if self.width > 0 {
            say_on!("\r{:width$}\r", "", width = self.width);
            self.width = 0;
        }
    }
}

/// Shows how a comparison goes; `title` is how a row is called.
pub fn show<L: Shown>(display: &mut Display, progress: &Progress<L>, title: fn(&Row) -> String) {
    match progress {
        Progress::Known(said) => display.keep(said),
        Progress::Checking(row) => display.change(&format!("checks {}", title(row))),
        Progress::Dropped(row, reason) => {
            display.keep(&format!("{} is left out: {reason}", title(row)));
        }
        Progress::Load(load, schedule) => {
            let (rounds, run_ms) = (schedule.rounds, schedule.run_ms);
            display.keep(&format!("{load}: {rounds} rounds, runs of {run_ms} ms"));
        }
        Progress::Run { number, of, row } => {
            display.change(&format!("[{number}/{of}] {}", title(row)));
        }
        Progress::Failed(row, reason) => {
            display.keep(&format!("{} failed: {reason}", title(row)));
        }
        Progress::Skipped(row, reason) => {
            display.keep(&format!("{} is left out of this load: {reason}", title(row)));
        }
        Progress::Besides(row, what) => display.change(&format!("{}: {what}", title(row))),
        Progress::Found(row, said) => display.keep(&format!("{} {said}", title(row))),
    }
}

/// A time that something takes, as a plan says it.
pub fn about(seconds: f64) -> String {
    if seconds < 300.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// A line for each warning that is told before anything runs.
pub fn warned(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("  warning: {warning}\n")).collect()
}

/// The rounds of a plan: as many as were asked for, or what is aimed at.
fn planned_rounds(asked: Option<u32>, aimed: u32) -> String {
    asked.map_or_else(|| format!("about {aimed} rounds"), |rounds| format!("{rounds} rounds"))
}

/// A line of a plan for each load: its rows, its rounds, and its part of these seconds.
pub fn planned_loads<K: Course>(
    results: &Results<K>,
    settings: &Settings,
    budget_s: f64,
) -> String {
    let rows_of = |load: &K::Load| (load.clone(), K::count_rows(load, &results.rows));
    let loads: Vec<(K::Load, usize)> = results.loads.iter().map(rows_of).collect();
    let line = |((load, rows), share_s): (&(K::Load, usize), f64)| {
        let rounds = planned_rounds(settings.rounds, K::aims_at(settings.depth, load));
        format!("  load: {load} ({rows} rows, {rounds}, {share_s:.0} s)\n")
    };
    loads.iter().zip(K::shares(settings, &loads, budget_s)).map(line).collect()
}

/// A line of a plan for each row, with the reason where it cannot run.
pub fn planned_rows(rows: &[Row], title: fn(&Row) -> String) -> String {
    let line = |row: &Row| {
        let reason = row.unavailable.as_ref().map(|reason| format!(" ({reason})"));
        format!("  row: {}{}\n", title(row), reason.unwrap_or_default())
    };
    rows.iter().map(line).collect()
}

/// Characters that a line of the report may have.
pub fn width() -> usize {
    let terminal = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(WIDTH_WITHOUT_TERMINAL, |(width, _)| usize::from(width.0))
}
