//! The experiment on a simulated bench.

use std::time::Duration;

use super::*;
use crate::device::bench::Run;
use crate::device::plan::DEVICE;
use crate::device::report::over_time::tests::found;
use crate::device::rows;
use crate::device::sample::tests::made;
use crate::exit;
use crate::experiment::blocks::GIVEN_UP_AFTER;
use crate::experiment::cell::Measured as _;
use crate::experiment::descriptors;
use crate::iops::OverTime;
use crate::machine::Machine;

/// Rows with a speed each; the clock goes on by what each run takes.
#[derive(Default)]
struct Simulated {
    now_s: f64,
    speeds: Vec<(&'static str, f64)>,
    polls: Vec<&'static str>,
    /// Rows that read nothing.
    nothing: Vec<&'static str>,
    /// A row that fails its check, one that fails its runs, and one that cannot read the first device.
    wrong: Option<&'static str>,
    crashes: Option<&'static str>,
    cannot: Option<&'static str>,
    /// The run at which the user has had enough.
    interrupted_at: Option<usize>,
    runs: Vec<String>,
    long_runs: Vec<String>,
    /// When everything must be over, if that was said.
    ends_s: Option<f64>,
    /// In which runs, from 1, the machine becomes another.
    changes: Option<fn(usize) -> bool>,
    far: bool,
}

impl Simulated {
    /// Lets what takes so long go on, but not beyond the end.
    fn takes(&mut self, seconds: f64) -> Result<(), RunError> {
        self.now_s += seconds;
        match self.ends_s.filter(|ends_s| self.now_s > *ends_s) {
            Some(ends_s) => {
                self.now_s = ends_s;
                Err(RunError::TimeIsUp("the design was ended".into()))
            }
            None => Ok(()),
        }
    }
}

impl course::Bench<Devices> for Simulated {
    fn elapsed_s(&self) -> f64 {
        self.now_s
    }

    fn end_within(&mut self, seconds: f64) {
        self.ends_s = Some(seconds);
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        Some(if std::mem::take(&mut self.far) { 170.0 } else { 27.0 })
    }

    fn check(&mut self, row: &Row, _: &[Load]) -> Result<Checked, RunError> {
        self.takes(0.2)?;
        let name = row.design.as_str();
        if self.wrong == Some(name) {
            return Err(RunError::Failed("the word at byte 8 is wrong".into()));
        }
        let polls = self.polls.contains(&name);
        Ok(Checked {
            ios: 480,
            length_bytes: 4096,
            reads_nothing: self.nothing.contains(&name),
            idle_cores: Some(if polls { 1.9 } else { 0.02 }),
        })
    }

    fn run(&mut self, run: &Run) -> Result<Made, RunError> {
        self.runs.push(run.row.spec());
        if self.interrupted_at == Some(self.runs.len()) {
            return Err(RunError::Interrupted);
        }
        self.takes((run.warmup_ms + run.run_ms) as f64 / 1000.0 + 0.03)?;
        self.far = self.changes.is_some_and(|changes| changes(self.runs.len()));
        let name = run.row.design.as_str();
        if self.crashes == Some(name) {
            return Err(RunError::Failed("the design ended with signal: 9".into()));
        }
        if self.cannot == Some(name) && run.load.device == DEVICE {
            return Err(RunError::Unavailable("it cannot read that".into()));
        }
        Ok(made(self.speeds.iter().find(|(of, _)| *of == name).unwrap().1))
    }
}

impl Bench for Simulated {
    fn long_run(
        &mut self,
        row: &Row,
        _: &Load,
        time: Duration,
    ) -> Result<Option<OverTime>, RunError> {
        self.long_runs.push(row.spec());
        self.now_s += time.as_secs_f64();
        if self.crashes == Some(row.design.as_str()) {
            return Err(RunError::Failed("it ended".into()));
        }
        Ok(Some(found(-11.0)))
    }
}

fn bench() -> Simulated {
    let speeds = vec![("sync", 2e6), ("ring", 1e6), ("no-op", 8e6), ("ring-polled", 3e6)];
    let nothing = vec!["no-op"];
    Simulated { speeds, nothing, polls: vec!["ring-polled"], ..Simulated::default() }
}

fn standard() -> (Vec<Load>, Settings) {
    let settings = Settings::new(Depth::Standard).within(Some(60.0));
    ([DEVICE, "another"].map(|device| Load::new(device, 4096)).to_vec(), settings)
}

fn experiment(bench: &mut Simulated, asked: (Vec<Load>, Settings)) -> Results {
    experiment_with_long_runs(bench, asked, None)
}

fn experiment_with_long_runs(
    bench: &mut Simulated,
    (loads, settings): (Vec<Load>, Settings),
    long_run: Option<Duration>,
) -> Results {
    let parse = |(name, _): &(&'static str, f64)| Row::parse(name).unwrap();
    let mut all: Vec<Row> = bench.speeds.iter().map(parse).collect();
    rows::add_again(&mut all);
    let mut results = Results::new(vec![], Machine::default(), all, loads);
    results.seed = 3;
    results.own.long_run = long_run;
    run(bench, &mut results, &settings, &mut |_| ());
    results
}

#[test]
fn every_row_runs_in_every_round_and_the_budget_is_kept() {
    let mut bench = bench();
    let results = experiment(&mut bench, standard());
    assert_eq!((results.rows.len(), results.warnings.clone()), (6, vec![]));
    for load in 0..2 {
        // All are alike in the simulation, so it ends as soon as there are intervals.
        assert!(results.cells[load].iter().all(|cell| cell.samples.len() == 6));
        assert_eq!(results.ranking(load, Group::Waits).winner().unwrap().row, 0);
    }
    assert_eq!(results.groups(0), Group::ALL);
    assert_eq!(
        (results.again(Group::Waits), results.again(Group::Polls)),
        (Some((0, 4)), Some((3, 5)))
    );
    assert!(bench.now_s <= 60.0, "{}", bench.now_s);
    assert_eq!(results.exit_code(), exit::OK);
    let mut block: Vec<&str> = bench.runs[..6].iter().map(String::as_str).collect();
    block.sort_unstable();
    assert_eq!(block, ["no-op", "ring", "ring-polled", "ring-polled", "sync", "sync"]);
}

#[test]
fn a_row_that_reads_wrongly_is_never_timed() {
    let mut bench = Simulated { wrong: Some("ring"), ..bench() };
    let results = experiment(&mut bench, standard());
    assert!(bench.runs.iter().all(|row| row != "ring"));
    assert!(results.unranked(0, 1).unwrap().contains("the word at byte 8 is wrong"));
    assert_eq!(results.exit_code(), exit::DATA_ERRORS);
}

#[test]
fn a_row_that_crashes_is_given_up_and_the_others_go_on() {
    let mut bench = Simulated { crashes: Some("ring"), ..bench() };
    let results = experiment(&mut bench, standard());
    assert_eq!(results.cells[0][1].failed_runs, GIVEN_UP_AFTER);
    assert_eq!((results.cells[0][0].samples.len(), results.exit_code()), (6, exit::DATA_ERRORS));
}

#[test]
fn a_row_that_cannot_read_one_device_reads_the_other() {
    let mut bench = Simulated { cannot: Some("ring"), ..bench() };
    let results = experiment(&mut bench, standard());
    assert_eq!(results.status(0, 1), Status::Unavailable);
    assert_eq!(results.unranked(0, 1).unwrap(), "it cannot read that");
    assert_eq!(results.cells[1][1].samples.len(), 6);
    let tried = bench.runs.iter().filter(|row| *row == "ring").count();
    assert_eq!((tried, results.exit_code()), (7, exit::OK));
}

#[test]
fn long_runs_come_at_the_end_and_once() {
    let mut bench = Simulated { crashes: Some("ring"), ..bench() };
    let results = experiment_with_long_runs(&mut bench, standard(), Some(Duration::from_secs(30)));
    bench.long_runs.sort_unstable();
    assert_eq!(
        bench.long_runs,
        ["no-op", "ring-polled", "sync"],
        "what has no figure has none there"
    );
    let Some(LongRun::Made(Some(found))) = &results.own.long_runs[0] else { panic!("{results:?}") };
    assert_eq!(found.verdict, "declines by 11.0 %");
    assert_eq!((results.own.long_runs[1].clone(), results.own.long_runs[4].clone()), (None, None));
    assert!(results.warnings.is_empty(), "their time comes on top: {:?}", results.warnings);
}

#[test]
fn an_interrupt_leaves_what_there_is() {
    let mut bench = Simulated { interrupted_at: Some(10), ..bench() };
    let results = experiment(&mut bench, standard());
    assert!(results.interrupted && results.has_figures());
    assert_eq!(results.cells.iter().flatten().map(|cell| cell.samples.len()).sum::<usize>(), 9);
    assert_eq!(results.exit_code(), exit::INTERRUPTED);
}

#[test]
fn a_second_name_is_of_a_row_that_reads_if_one_does() {
    let names =
        |results: &Results| -> Vec<String> { results.rows.iter().map(rows::title).collect() };
    let of = |speeds: &[(&'static str, f64)], wrong| {
        let nothing = vec!["no-op", "sync-empty"];
        let mut bench =
            Simulated { speeds: speeds.to_vec(), nothing, wrong, ..Simulated::default() };
        experiment(&mut bench, standard())
    };
    let one_reads = of(&[("no-op", 8e6), ("ring", 1e6)], None);
    assert_eq!(names(&one_reads), ["no-op", "ring", "ring (again)"]);
    assert_eq!(one_reads.again(Group::Waits), Some((1, 2)));
    let none_reads = of(&[("no-op", 8e6), ("sync-empty", 2e6)], None);
    assert_eq!(names(&none_reads), ["no-op", "sync-empty", "no-op (again)"]);
    assert_eq!(none_reads.groups(0), [Group::Nothing]);
    let ranking = none_reads.ranking(0, Group::Nothing);
    assert_eq!((ranking.places.len(), ranking.noise_floor.is_some()), (2, true));
    let measure_fails = of(&[("sync", 2e6), ("ring", 1e6)], Some("sync"));
    assert_eq!(names(&measure_fails), ["sync", "ring", "ring (again)"]);
}

#[test]
fn a_time_that_was_asked_for_is_a_bound() {
    for seconds in [0.1, 0.5, 1.5, 4.0] {
        let mut bench = bench();
        let (loads, settings) = standard();
        let settings = Settings { rounds: Some(50), budget_s: Some(seconds), ..settings };
        let results = experiment(&mut bench, (loads, settings));
        assert!(bench.now_s <= seconds, "{} of {seconds}", bench.now_s);
        let unchecked = results.warnings.iter().any(|w| w.contains("not even the checks"));
        assert_eq!(unchecked, seconds < 0.8, "{:?}", results.warnings);
        let untimed =
            (0..results.rows.len()).filter(|row| results.cells[0][*row].samples.is_empty());
        for row in untimed {
            assert_eq!(results.status(0, row), Status::NotMeasured);
            assert!(results.unranked(0, row).unwrap().contains("time"), "{results:?}");
        }
        if !results.has_figures() {
            assert!(
                results.error.as_ref().unwrap().contains("no time for a run"),
                "{:?}",
                results.error
            );
            assert_eq!(
                results.exit_code(),
                exit::FAILED,
                "that there was no time is not that none can run"
            );
        }
    }
}

#[test]
fn rows_for_whose_timers_there_are_no_descriptors_are_named_and_left_out() {
    let loads = vec![Load::new(DEVICE, 8), Load::delayed(Duration::from_micros(10), 8)];
    let rows = ["sync", "ring --depth 128"].map(|text| Row::parse(text).unwrap()).to_vec();
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    let said = descriptors::heed(&mut results, Some(64));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("ring --depth 128 with 128 timers takes 160 descriptors"), "{said:?}");
    assert!(results.unranked(1, 1).unwrap().contains("ulimit -n 160"));
    assert_eq!(results.status(0, 1), Status::NotMeasured, "it was not run yet, and can be");
}

#[test]
fn a_run_lasts_for_several_ios() {
    let mut bench = bench();
    let load = Load::delayed(Duration::from_millis(200), 8);
    let settings = standard().1.within(Some(5.0));
    let results = experiment(&mut bench, (vec![load], settings));
    let schedule = results.schedules[0].unwrap();
    assert_eq!((schedule.run_ms, schedule.rounds), (2000, 3));
}

#[test]
fn nothing_that_can_run_is_an_error_of_its_own() {
    let (loads, settings) = standard();
    let mut row = Row::parse("ring").unwrap();
    row.unavailable = Some("no io_uring here".into());
    let mut results = Results::new(vec![], Machine::default(), vec![row], loads);
    run(&mut bench(), &mut results, &settings, &mut |_| ());
    assert!(results.error.is_some());
    assert_eq!(results.exit_code(), exit::UNAVAILABLE);
}

#[test]
fn a_disturbed_run_is_made_again_and_costs_no_rank() {
    for which in [|n: usize| n == 5, |n: usize| n % 2 == 1] {
        let mut bench = Simulated { changes: Some(which), ..bench() };
        let results = experiment(&mut bench, standard());
        assert!((0..results.rows.len()).all(|row| results.unranked(0, row).is_none()));
        let samples = || results.cells[0].iter().flat_map(|cell| &cell.samples);
        assert!(samples().any(|sample| sample.when.replaced), "both are kept");
        assert!(!samples().any(|sample| sample.changed_machine() && !sample.when.replaced));
    }
    let mut always = Simulated { changes: Some(|_| true), ..bench() };
    let results = experiment(&mut always, standard());
    assert!(always.now_s <= 60.0 && results.has_figures(), "{}", always.now_s);
}
