//! How a comparison shows what it does.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use weir_lab::experiment::course::{Course, Planned, Progress};
use weir_lab::experiment::plan::{Row, Settings};
use weir_lab::experiment::results::Results;
use weir_lab::report::Reported;
use weir_lab::report::number::percent;

use super::context::Context;
use super::live::Live;
use super::stream::Stream;
use crate::width::{fitted, of_terminal};

/// Characters of the bar.
const BAR: u32 = 20;

/// Progress on standard error: one line that changes on a terminal, else only what is worth keeping in a log.
pub struct Display {
    terminal: bool,
    /// Characters of the line that stands there.
    width: usize,
    begun: Instant,
    /// The time that all takes, as it was planned.
    planned: Duration,
    /// Where what happens is written besides.
    stream: Option<Stream>,
    /// The whole terminal, where that was asked for.
    live: Option<Live>,
}

impl Display {
    /// Nothing is shown yet.
    pub fn new<K: Reported>(results: &Results<K>, settings: &Settings, context: &Context) -> Self {
        if let Some(stream) = &context.stream {
            stream.begin(results);
        }
        let planned = Duration::from_secs_f64(planned_s(results, settings).max(0.0));
        Self::of_time(planned, context)
    }

    /// The same of what takes so long, and writes its own events.
    pub fn of_time(planned: Duration, context: &Context) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let live = (terminal && context.live).then(|| Live::begin(context.interrupt.clone()));
        let live = live.and_then(|live| {
            live.inspect_err(|error| say!("--live: the terminal cannot be used: {error}")).ok()
        });
        Self {
            terminal,
            live,
            width: 0,
            begun: Instant::now(),
            planned,
            stream: context.stream.clone(),
        }
    }

    /// A line that stays.
    pub fn keep(&mut self, line: &str) {
        if let Some(live) = &mut self.live {
            return live.say(line);
        }
        self.clear();
        say!("{}", fitted(line, "  ", self.terminal));
    }

    /// A line that the next one takes the place of, behind how much of the time is over.
    pub fn change(&mut self, line: &str) {
        self.change_with(line, "");
    }

    /// The same, with what is said besides where there is room for it.
    fn change_with(&mut self, line: &str, besides: &str) {
        if let Some(live) = &mut self.live {
            let elapsed = self.begun.elapsed().as_secs_f64() / self.planned.as_secs_f64().max(1e-9);
            return live.show(elapsed.min(0.99), &format!("{line}{besides}"));
        }
        if self.terminal {
            self.clear();
            let most = of_terminal(terminal_size::terminal_size_of(std::io::stderr()));
            let (bar, left) = progress(self.begun.elapsed(), self.planned);
            let line = laid_out([&bar, &left], line, besides, most.saturating_sub(1));
            say_on!("{line}");
            let _ = std::io::stderr().flush();
            self.width = line.chars().count();
        }
    }

    /// What was found of a row, where less is better: for the whole terminal.
    pub fn figure(&mut self, title: &str, figure: f64, text: fn(f64) -> String) {
        if let Some(live) = &mut self.live {
            live.figure(title, figure, text);
        }
    }

    /// Shows how a comparison goes; `title` is how a row is called.
    pub fn show<K: Reported>(&mut self, progress: &Progress<K>, title: fn(&Row) -> String) {
        if let Some(stream) = &self.stream {
            stream.progress(progress);
        }
        if let Some(live) = &mut self.live {
            live.note(progress, title);
        }
        match progress {
            Progress::Known(said) => self.change(said),
            Progress::Checking(row) => self.change(&format!("checking {}", title(row))),
            Progress::Dropped(row, reason) => {
                self.keep(&format!("{} is left out: {reason}", title(row)));
            }
            Progress::Load(load, _) => self.change(&load.to_string()),
            Progress::Run { number, of, row, leading } => {
                let leading = leading
                    .as_ref()
                    .map(|(row, figure)| format!("; leading: {} with {figure}", title(row)));
                let leading = leading.unwrap_or_default();
                self.change_with(&format!("run {number} of {of}: {}", title(row)), &leading);
            }
            Progress::Measured { .. } => {}
            Progress::Failed(row, reason) => {
                self.keep(&format!("{} failed: {reason}", title(row)));
            }
            Progress::Skipped(row, reason) => {
                self.keep(&format!("{} is left out of this load: {reason}", title(row)));
            }
            Progress::Besides(row, what) => self.change(&format!("{}: {what}", title(row))),
            Progress::Found(row, said) => self.change(&format!("{} {said}", title(row))),
        }
    }

    /// Takes the line away that changes, and gives the terminal back.
    pub fn clear(&mut self) {
        self.live = None;
        if self.width > 0 {
            say_on!("\r{:width$}\r", "", width = self.width);
            self.width = 0;
        }
    }
}

/// A line of progress in so many characters: where there is no room for all of it, whole parts are left out, first the bar,
/// then what is said besides, then the time that is left; what is still too long ends with a whole word.
fn laid_out([bar, left]: [&str; 2], line: &str, besides: &str, most: usize) -> String {
    let ways = [
        format!("{bar} {left} {line}{besides}"),
        format!("{left} {line}{besides}"),
        format!("{bar} {left} {line}"),
        format!("{left} {line}"),
    ];
    let fits = |line: &String| line.chars().count() <= most;
    if let Some(way) = ways.into_iter().find(fits) {
        return way;
    }
    if fits(&line.to_owned()) {
        return line.to_owned();
    }
    let mut short = String::new();
    for word in line.split_inclusive(' ') {
        if short.chars().count() + word.trim_end().chars().count() + 1 > most {
            break;
        }
        short += word;
    }
    format!("{}…", short.trim_end()).chars().take(most).collect()
}

/// A bar, and the time that is left. What takes longer than planned is nearly through for as long.
fn progress(elapsed: Duration, planned: Duration) -> (String, String) {
    let share = match planned.is_zero() {
        true => 0.0,
        false => (elapsed.as_secs_f64() / planned.as_secs_f64()).min(0.99),
    };
    let done = (share * f64::from(BAR)) as usize;
    let left = planned.saturating_sub(elapsed).as_secs();
    let left = if left < 120 { format!("{left} s") } else { format!("{} min", left / 60) };
    let bar = format!("[{}{}]", "█".repeat(done), "·".repeat(BAR as usize - done));
    (bar, format!("{left} left"))
}

/// A time that something takes, as a plan says it.
fn about(seconds: f64) -> String {
    if seconds < 300.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// A line for each warning that is told before anything runs.
pub fn warned(warnings: &[String]) -> String {
    let is_on_terminal = std::io::stderr().is_terminal();
    let line =
        |warning: &String| fitted(&format!("  warning: {warning}"), "    ", is_on_terminal) + "\n";
    warnings.iter().map(line).collect()
}

/// Says what is about to run, in a line; where all is asked for, each load with its part of the time and each row, with
/// the reason where it cannot run. `places` is where it runs.
pub fn say_plan<K: Reported>(
    results: &Results<K>,
    settings: &Settings,
    all: bool,
    places: &str,
    title: fn(&Row) -> String,
) {
    let (rows, loads) = (results.rows.len(), results.loads.len());
    let many =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let text = format!(
        "comparing {} under {} in about {}; {places}target interval ±{}, seed {}\n",
        many(rows, "row"),
        many(loads, "load"),
        about(planned_s(results, settings)),
        percent(results.asked_half_width),
        results.seed
    );
    let all = all.then(|| planned_loads(results, settings) + &planned_rows(&results.rows, title));
    let is_on_terminal = std::io::stderr().is_terminal();
    for line in (text + &all.unwrap_or_default()).lines() {
        say!("{}", fitted(line, "    ", is_on_terminal));
    }
}

/// The seconds that a comparison takes as it is planned.
fn planned_s<K: Course>(results: &Results<K>, settings: &Settings) -> f64 {
    let (loads, rows) = (&results.loads, &results.rows);
    K::budget_s(settings, loads, rows) + results.own.planned_after_s(rows)
}

/// A line of a plan for each load: its rows, its rounds, and its part of the time.
fn planned_loads<K: Course>(results: &Results<K>, settings: &Settings) -> String {
    let line = |(load, planned): (&K::Load, Planned)| {
        let Planned { rows, share_s, schedule, fits } = planned;
        let about = if settings.rounds.is_some() { "" } else { "about " };
        let short = match fits {
            true => "",
            false => "; not all of them fit: give more time (-t), or compare fewer designs",
        };
        format!(
            "  load: {load} ({rows} rows, {about}{} rounds of {} ms, {share_s:.0} s{short})\n",
            schedule.rounds, schedule.run_ms
        )
    };
    let planned = K::planned(settings, &results.loads, &results.rows);
    results.loads.iter().zip(planned).map(line).collect()
}

/// A line of a plan for each row, with the reason where it cannot run.
fn planned_rows(rows: &[Row], title: fn(&Row) -> String) -> String {
    let line = |row: &Row| {
        let reason = row.unavailable.as_ref().map(|reason| format!(" ({reason})"));
        // A plan may be a stranger's: what it would run is said before it runs.
        let command = row.peer.as_ref().map(|peer| format!(": {}", peer.command));
        format!(
            "  row: {}{}{}\n",
            title(row),
            command.unwrap_or_default(),
            reason.unwrap_or_default()
        )
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_the_time_left_falls() {
        let of = |elapsed, planned| {
            let (bar, left) = progress(Duration::from_secs(elapsed), Duration::from_secs(planned));
            format!("{bar} {left}")
        };
        assert_eq!(of(0, 100), "[····················] 100 s left");
        assert_eq!(of(50, 100), "[██████████··········] 50 s left");
        assert_eq!(of(200, 100), "[███████████████████·] 0 s left", "never full before the end");
        assert_eq!(of(0, 600), "[····················] 10 min left");
        assert_eq!(of(1, 0), "[····················] 0 s left");
    }

    #[test]
    fn a_line_of_progress_has_whole_parts_in_any_width() {
        let parts = ["[██··]", "100 s left"];
        let (line, besides) =
            ("run 4 of 9: rio-port --threads 2", "; leading: epoll with 1.25 M/s");
        let of = |most| laid_out(parts, line, besides, most);
        let whole =
            "[██··] 100 s left run 4 of 9: rio-port --threads 2; leading: epoll with 1.25 M/s";
        assert_eq!(of(200), whole);
        assert_eq!(of(whole.chars().count()), whole);
        assert_eq!(of(79), whole.strip_prefix("[██··] ").unwrap());
        assert_eq!(of(60), "[██··] 100 s left run 4 of 9: rio-port --threads 2");
        assert_eq!(of(45), "100 s left run 4 of 9: rio-port --threads 2");
        assert_eq!(of(32), line);
        assert_eq!(of(31), "run 4 of 9: rio-port --threads…");
        assert_eq!(of(30), "run 4 of 9: rio-port…");
        for most in 0..100 {
            assert!(of(most).chars().count() <= most, "{most}: {}", of(most));
        }
    }
}
