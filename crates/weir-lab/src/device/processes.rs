//! Runs with a process for each: `weir iops`, or fio.
//!
//! Whoever reads a device is alone in its process, so that a design leaves nothing behind for the next one:
//! no threads, no memory, no ring that the kernel is still taking down. Each answer has a deadline; a child
//! that misses it is ended, as it is when this process dies.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir::device::{AnyDesign, Direction};

use super::bench::{Checked, Made, Run};
use super::check::Seen;
use super::experiment::Bench;
use super::fio;
use super::plan::Load;
use super::results::Devices;
use super::rows::MEASURE;
use super::wire::{Document, FioDocument, Report, Window};
use crate::child::{Child, ChildError, CommandLine, Interrupt, Runner};
use crate::exit;
use crate::experiment::course::{self, RunError};
use crate::experiment::plan::{Peer, Row, budget};
use crate::experiment::repeat::MOST_ATTEMPTS;
use crate::iops::{OverTime, Plan};
use weir::device::Kind;

const DESIGN: &str = "the design";
const FIO: &str = "fio";
const REPORT: &str = "report";

/// How long either may take for its report beyond the time of its run.
const REPORT_WITHIN: Duration = Duration::from_secs(15);
/// How long it may take to end after its report.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Parts of a run, so that it shows whether the rate falls within it.
const PARTS: u64 = 10;
/// No part is shorter than what `weir iops` tells at most.
const SHORTEST_PART_MS: u64 = 10;

/// A look at how busy a design is with little to do: warm-up, time that is measured, and how often something
/// comes.
const IDLE_WARMUP_MS: u64 = 40;
const IDLE_RUN_MS: u64 = 120;
const IDLE_EVERY: Duration = Duration::from_millis(5);
/// Options that are no larger then: a design's own depth, and a few threads.
const IDLE_MOST: [(&str, u32); 2] = [("depth", 128), ("threads", 8)];
/// One that completes more than so many I/Os per second of what comes two hundred times does not wait for it.
const IDLE_MOST_PER_S: f64 = 1000.0;

/// Makes runs with this executable.
pub struct Processes {
    cores: Vec<usize>,
    named: Vec<String>,
    direction: Direction,
    runner: Runner,
}

impl Processes {
    /// With the executable at `program`, which is `weir` itself, bound to these cores if there are any.
    /// `named` are character devices that may be opened; `direction` is what designs are checked in. `tell` is given every command before it is
    /// started.
    pub fn new(
        program: PathBuf,
        cores: Vec<usize>,
        named: Vec<String>,
        direction: Direction,
        interrupt: Interrupt,
        tell: Option<fn(&str)>,
    ) -> Self {
        Self { cores, named, direction, runner: Runner::new(program, interrupt, tell) }
    }

    /// The same that logs the performance of its designs at these intervals.
    pub fn logging_performance(mut self, every: Option<Duration>) -> Self {
        self.runner.log_performance(every);
        self
    }

    /// The command of a design that reads, or writes, for a time, told in parts of `part_ms`.
    /// The command of a design that reads, or writes, for a time, told in parts of `part_ms`, beside a control if there
    /// is one.
    fn design(
        &self,
        design: &str,
        load: &Load,
        (warmup_ms, run_ms): (u64, u64),
        part_ms: u64,
        control: Option<&str>,
    ) -> CommandLine {
        let command = self
            .runner
            .weir()
            .arguments(["iops", "--design", design])
            .arguments(["-l".to_owned(), load.length.to_string()])
            .arguments(["-t".to_owned(), format!("{run_ms}ms")])
            .arguments(["-O".to_owned(), format!("{warmup_ms}ms")])
            .arguments(["-i".to_owned(), format!("{part_ms}ms")])
            .arguments(control.into_iter().flat_map(|control| ["--control", control]))
            .on_cores(&self.cores)
            .arguments(self.runner.counting())
            .arguments(self.runner.logging())
            .arguments(["--json"]);
        let named = self.named.iter().filter(|device| **device == load.device);
        // A path may look like a flag.
        let like_a_flag = load.device.starts_with('-') && load.device != "-";
        command
            .arguments(writes(load.direction))
            .arguments(named.map(|device| format!("--device={device}")))
            .arguments(like_a_flag.then_some("--"))
            .arguments([&load.device])
    }

    /// Lets a design read, and gives what it said, as far as it said anything of worth.
    fn read(
        &self,
        command: &CommandLine,
        lasts: Duration,
    ) -> Result<(Document, Report, Window), RunError> {
        let mut child = self.runner.spawn_foreign(DESIGN, command)?;
        let document: Document =
            child.document(REPORT, self.runner.time.deadline(lasts, REPORT_WITHIN))?;
        understood(child, document)
    }

    fn run_design(&self, run: &Run) -> Result<Made, RunError> {
        let part_ms = (run.run_ms / PARTS).max(SHORTEST_PART_MS);
        let command =
            self.design(&run.row.spec(), run.load, (run.warmup_ms, run.run_ms), part_ms, None);
        let lasts = Duration::from_millis(run.warmup_ms + run.run_ms);
        // A design that gets no core while it is watched leaves nothing to keep of its run: it is made again.
        for _ in 0..MOST_ATTEMPTS {
            let (document, report, window) = self.read(&command, lasts)?;
            if window.ios_per_s > 0.0 {
                return Ok(made(&command, part_ms, document, report, window));
            }
        }
        let run_ms = run.run_ms;
        Err(RunError::Failed(format!(
            "no I/O completed within the measured {run_ms} ms, in {MOST_ATTEMPTS} attempts, so there is no \
             rate"
        )))
    }

    fn run_fio(&self, run: &Run, peer: &Peer) -> Result<Made, RunError> {
        let command = fio::command(peer, run, &self.cores).map_err(RunError::Unavailable)?;
        let mut child = self.runner.spawn_foreign(FIO, &command)?;
        let lasts = Duration::from_millis(run.warmup_ms + run.run_ms);
        let deadline = self.runner.time.deadline(lasts, REPORT_WITHIN);
        // What goes wrong it says before its document.
        let said: FioDocument = child.document_behind(REPORT, deadline, |line| line == "{")?;
        child.finish(Instant::now() + END_WITHIN)?;
        fio::made(&said, &command).map_err(RunError::Unavailable)
    }

    /// Lets a design read what comes now and then, through its standard input. Gives the cores' worth of time
    /// that it takes, if it waits for it at all.
    fn idle_cores(&self, row: &Row) -> Result<Option<f64>, RunError> {
        let load = Load::new("-", 1);
        let row = waiting_little(row)?;
        let command =
            self.design(&row.spec(), &load, (IDLE_WARMUP_MS, IDLE_RUN_MS), IDLE_RUN_MS, None);
        let mut child = self.runner.spawn_foreign(DESIGN, &command)?;
        let lasts = Duration::from_millis(IDLE_WARMUP_MS + IDLE_RUN_MS);
        let deadline = self.runner.time.deadline(lasts, REPORT_WITHIN);
        let document: Document = loop {
            // A byte each time that it has said nothing yet.
            child.say("");
            match child.document(REPORT, Instant::now() + IDLE_EVERY) {
                Err(ChildError::Deadline { .. }) if Instant::now() < deadline => {}
                other => break other?,
            }
        };
        let (_, _, window) = understood(child, document)?;
        let waits = window.ios_per_s > 0.0 && window.ios_per_s <= IDLE_MOST_PER_S;
        Ok(window.cpu_utilization_percent.map(|share| share / 100.0).filter(|_| waits))
    }

    fn check_design(&self, row: &Row) -> Result<Checked, RunError> {
        let command = self.runner.weir().arguments(["check-device", "--design", &row.spec()]);
        let command = command.arguments(writes(self.direction));
        let mut child = self.runner.spawn_foreign(DESIGN, &command)?;
        let deadline = self.runner.time.deadline(Duration::ZERO, REPORT_WITHIN);
        let seen: Seen = child.document("account of its check", deadline)?;
        child.finish(Instant::now() + END_WITHIN)?;
        if let Some(wrong) = seen.wrong {
            return Err(RunError::Failed(wrong));
        }
        let idle_cores = match seen.reads_nothing {
            true => None,
            // Some cannot read what may keep them waiting: it is not known of them.
            false => match self.idle_cores(row) {
                Err(RunError::Unavailable(_)) => None,
                other => other?,
            },
        };
        let Seen { ios, length_bytes, reads_nothing, .. } = seen;
        Ok(Checked { ios, length_bytes, reads_nothing, idle_cores })
    }
}

/// The flag of a direction.
fn writes(direction: Direction) -> Option<&'static str> {
    (direction == Direction::Write).then_some("--write")
}

/// A row with few I/Os and threads waiting. Whether a design polls does not depend on their number, but what it
/// costs to wake them all for one byte does, and that would look like polling where there are thousands.
fn waiting_little(row: &Row) -> Result<Row, RunError> {
    let design = AnyDesign::parse(&row.spec());
    let values = design.map_err(|error| RunError::Failed(error.to_string()))?.values();
    let little = values.into_iter().map(|(name, value)| {
        let most = IDLE_MOST.iter().find(|(of, _)| *of == name);
        let value = match (most, value.parse::<u32>()) {
            (Some((_, most)), Ok(number)) => number.min(*most).to_string(),
            _ => value,
        };
        (name, Some(value))
    });
    Ok(Row { options: little.collect(), ..row.clone() })
}

/// What a design said, once its process has ended: nothing, or why it is worth nothing, or its figures.
fn understood(child: Child, document: Document) -> Result<(Document, Report, Window), RunError> {
    let status = child.finish(Instant::now() + END_WITHIN)?;
    let why = || document.reason.clone().unwrap_or_else(|| format!("{DESIGN} ended with {status}"));
    let refused = [exit::USAGE, exit::UNAVAILABLE].map(i32::from);
    if status.code().is_some_and(|code| refused.contains(&code)) {
        return Err(RunError::Unavailable(why()));
    }
    if document.status == "failed" {
        return Err(RunError::Failed(why()));
    }
    let report = document.report.clone();
    match report.and_then(|report| report.window.clone().map(|window| (report, window))) {
        Some((report, window)) => Ok((document, report, window)),
        None => Err(RunError::Failed(format!("{DESIGN} ended before it was measured"))),
    }
}

fn made(
    command: &CommandLine,
    part_ms: u64,
    document: Document,
    report: Report,
    window: Window,
) -> Made {
    // The last one may be what was left over.
    let whole = |from: u64, to: u64| (to - from) >= part_ms * 500_000;
    let parts = document.intervals.iter().filter(|part| whole(part.from_ns, part.to_ns));
    let parts = parts.map(|part| part.completed as f64 * 1e9 / (part.to_ns - part.from_ns) as f64);
    let per_io = |per_s: f64| Some(per_s / window.ios_per_s).filter(|each| each.is_finite());
    let (gave, empty) = (window.voluntary_switches_per_s, came_empty(&report));
    let all = gave.zip(window.involuntary_switches_per_s).map(|(gave, lost)| gave + lost);
    Made {
        command: command.to_string(),
        ios_per_s: window.ios_per_s,
        bytes_per_s: window.bytes_per_s,
        completed: report.counts.completed,
        failed: report.counts.failed,
        latency_histogram: report.latency_histogram,
        sampling_percent: report.sampling_percent,
        kernel_entries_per_io: window.kernel_entries_per_io,
        ios_per_take: window.ios_per_take,
        hand_overs_per_io: window.hand_overs_per_io,
        cpu_ns_per_io: window.cpu_ns_per_io,
        cpu_system_ns_per_io: window.cpu_system_ns_per_io,
        cores_busy: window.cpu_utilization_percent.map(|share| share / 100.0),
        context_switches_per_io: all.and_then(per_io),
        waits_per_io: gave.and_then(per_io),
        parts: (parts.collect(), part_ms as f64 / 1e3),
        invalid: match document.status.as_str() {
            "ok" => empty,
            _ => Some(document.reason.unwrap_or_default()),
        },
        load_of_others: window.load_of_others_percent.map(|share| share / 100.0),
        settings: document
            .settings
            .into_iter()
            .map(|of| (of.name, of.value))
            .collect::<BTreeMap<_, _>>(),
        performance: report.performance,
    }
}

/// What is wrong where reads of a regular file brought nothing: each names a place within the file as it was
/// opened.
fn came_empty(report: &Report) -> Option<String> {
    let empty = report.counts.empty;
    (empty > 0 && report.kind == Kind::File.to_string()).then(|| {
        format!("{empty} reads of the file were empty: it has become shorter meanwhile, or holds nothing")
    })
}

impl course::Bench<Devices> for Processes {
    fn count_entries(&mut self, on: bool) -> bool {
        self.runner.count_entries(on)
    }

    fn elapsed_s(&self) -> f64 {
        self.runner.time.elapsed_s()
    }

    fn end_within(&mut self, seconds: f64) {
        self.runner.time.set(seconds);
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        let all = match self.cores.len() {
            0 | 1 => weir::affinity::allowed_cores(),
            _ => self.cores.clone(),
        };
        let (first, last) = (*all.first()?, *all.last()?);
        (first != last).then(|| weir::machine::core_to_core_ns(first, last))?
    }

    fn check(&mut self, row: &Row, _: &[Load]) -> Result<Checked, RunError> {
        let checked = match row.peer {
            // What it reads it tells nobody.
            Some(_) => Ok(Checked::default()),
            None => self.check_design(row),
        };
        checked.map_err(|error| error.or_time_is_up(self.runner.time.is_up()))
    }

    fn run(&mut self, run: &Run) -> Result<Made, RunError> {
        let made = match &run.row.peer {
            Some(peer) => self.run_fio(run, peer),
            None => self.run_design(run),
        };
        made.map_err(|error| error.or_time_is_up(self.runner.time.is_up()))
    }
}

impl Bench for Processes {
    fn long_run(
        &mut self,
        row: &Row,
        load: &Load,
        time: Duration,
    ) -> Result<Option<OverTime>, RunError> {
        if row.peer.is_some() {
            return Ok(None);
        }
        let (run_ms, warmup_ms) = (time.as_millis() as u64, budget::WARMUP_MS);
        let command = self.design(&row.spec(), load, (warmup_ms, run_ms), run_ms, Some(MEASURE));
        let (_, report, _) = self.read(&command, Plan::of(time).total())?;
        Ok(report.over_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_such_as_a_person_would_write() {
        let named = vec!["/dev/urandom".to_owned()];
        let (reads, interrupt) = (Direction::Read, Interrupt::new());
        let processes = Processes::new("weir".into(), vec![0, 1], named, reads, interrupt, None);
        let row = Row::parse("ring --depth 7").unwrap();
        let of = |device: &str| {
            processes.design(&row.spec(), &Load::new(device, 512), (60, 300), 30, None).to_string()
        };
        assert_eq!(
            of("/dev/null"),
            "weir iops --design 'ring --depth 7' -l 512 -t 300ms -O 60ms -i 30ms --cpu 0,1 --json /dev/null"
        );
        assert!(of("/dev/urandom").ends_with("--json --device=/dev/urandom /dev/urandom"));
        let writes = Load::new("/dev/null", 512).of(Direction::Write);
        let command =
            processes.design(&row.spec(), &writes, (60, 300), 30, Some("sync")).to_string();
        assert!(
            command.ends_with("-i 30ms --control sync --cpu 0,1 --json --write /dev/null"),
            "{command}"
        );
        assert!(of("-odd").ends_with("--json -- -odd") && of("-").ends_with("--json -"));
    }

    #[test]
    fn a_file_that_gave_nothing_in_the_middle_makes_a_run_invalid() {
        let why = |kind: &str, empty: u64| {
            let report = serde_json::json!({
                "kind": kind, "counts": {"completed": 100, "failed": 0, "empty": empty}});
            came_empty(&serde_json::from_value(report).unwrap())
        };
        assert!(why("regular file", 3).is_some_and(|why| why.starts_with("3 reads of the file")));
        assert_eq!((why("regular file", 0), why("null device", 100)), (None, None));
    }

    #[test]
    fn few_ios_and_threads_wait_where_it_is_found_out_who_polls() {
        let of = |text: &str| waiting_little(&Row::parse(text).unwrap()).unwrap().spec();
        assert_eq!(of("sync"), "sync");
        assert_eq!(of("threads --threads 1024"), "threads --threads 8");
        assert_eq!(of("threads"), "threads --threads 0", "as many as there are cores");
        let ring = of("ring --depth 4096 --batch 64");
        assert_eq!(ring, "ring --depth 128 --batch 64 --complete-min 1");
        assert!(of("ring --depth 7").contains("--depth 7 "));
        assert!(of("ring-polled --depth 4096").contains("--polls 10000 --registered true"));
    }

    #[test]
    fn a_document_becomes_figures_and_what_is_left_over_no_part() {
        let text = r#"{"status": "invalid", "reason": "3 I/Os failed",
            "settings": [{"name": "depth", "value": "7"}],
            "intervals": [{"from_ns": 0, "to_ns": 30000000, "completed": 60, "total": 60},
                {"from_ns": 30000000, "to_ns": 31000000, "completed": 1, "total": 61}],
            "report": {"counts": {"completed": 100, "failed": 3}, "latency_histogram": [[400, 7]],
                "sampling_percent": 0.25,
                "window": {"ios_per_s": 2000.0, "bytes_per_s": 0.0, "cpu_utilization_percent": 50.0,
                    "voluntary_switches_per_s": 500.0, "involuntary_switches_per_s": 500.0}}}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        let report = document.report.clone().unwrap();
        let window = report.window.clone().unwrap();
        let run = made(&CommandLine::new("weir"), 30, document, report, window);
        assert_eq!((run.parts, run.completed, run.failed), ((vec![2000.0], 0.03), 100, 3));
        assert_eq!((run.context_switches_per_io, run.cores_busy), (Some(0.5), Some(0.5)));
        assert_eq!((run.waits_per_io, run.sampling_percent), (Some(0.25), Some(0.25)));
        assert_eq!(
            (run.invalid.as_deref(), run.settings["depth"].as_str()),
            (Some("3 I/Os failed"), "7")
        );
    }
}
