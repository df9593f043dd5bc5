use super::*;
use crate::exit;
use crate::experiment::blocks::GIVEN_UP_AFTER;
use crate::experiment::cell::Disturbance;
use crate::experiment::cell::{Measured as _, Status};
use crate::experiment::course::RunError;
use crate::experiment::plan::Row;
use crate::experiment::results::Study;
use crate::machine::Machine;
use crate::tcp::bench::Run;
use crate::tcp::classic;
use crate::tcp::classic::Classic;
use crate::tcp::plan::Pattern;
use crate::tcp::rows;
use crate::tcp::sample::tests::made;
use weir::counters::{ALL_ENTRIES, ENTRIES_BY_KERNEL, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};

/// Rows with a speed each; the clock goes on by what each run takes.
#[derive(Default)]
struct Simulated {
    now_s: f64,
    speeds: Vec<(&'static str, f64)>,
    polls: Vec<&'static str>,
    /// A row that fails its check, and one that fails its runs.
    wrong: Option<&'static str>,
    crashes: Option<&'static str>,
    /// Connections that a row can hold.
    holds: Option<(&'static str, u32)>,
    /// The run at which the user has had enough.
    interrupted_at: Option<usize>,
    runs: Vec<(String, u32)>,
    /// Whether the kernel may count entries, and does in the runs now.
    can_count: bool,
    counts: bool,
    /// When everything must be over, if that was said.
    ends_s: Option<f64>,
    /// In which runs, from 1, the machine becomes another, and in which of "poll" connections break.
    changes: Option<fn(usize) -> bool>,
    breaks: Option<fn(usize) -> bool>,
    /// In which runs the generator had no core while it was to measure.
    starves: Option<fn(usize) -> bool>,
    far: bool,
}

impl Simulated {
    /// Lets what takes so long go on, but not beyond the end.
    fn takes(&mut self, seconds: f64) -> Result<(), RunError> {
        self.now_s += seconds;
        match self.ends_s.filter(|ends_s| self.now_s > *ends_s) {
            Some(ends_s) => {
                self.now_s = ends_s;
                Err(RunError::TimeIsUp("the client was ended".into()))
            }
            None => Ok(()),
        }
    }
}

impl Bench<Tcp> for Simulated {
    fn elapsed_s(&self) -> f64 {
        self.now_s
    }

    fn end_within(&mut self, seconds: f64) {
        self.ends_s = Some(seconds);
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        Some(if std::mem::take(&mut self.far) { 170.0 } else { 27.0 })
    }

    fn count_entries(&mut self, on: bool) -> bool {
        self.counts = on && self.can_count;
        self.counts
    }

    fn check(&mut self, row: &Row, _: &[Load]) -> Result<Checked, RunError> {
        self.takes(0.5)?;
        if self.wrong == Some(row.design.as_str()) {
            return Err(RunError::Failed("byte 3 came back as 4".into()));
        }
        let polls = self.polls.contains(&row.design.as_str());
        Ok(Checked {
            connections: 16,
            messages: 320,
            message_bytes: (1, 65_536),
            client_engine: Some("uring (io_uring)".into()),
            idle: Idle {
                cores_busy: Some(if polls { 1.0 } else { 0.3 }),
                sleeps_per_message: Some(if polls { 0.0 } else { 1.0 }),
            },
        })
    }

    fn run(&mut self, run: &Run) -> Result<Made, RunError> {
        self.runs.push((run.row.spec(), run.load.connections));
        if self.interrupted_at == Some(self.runs.len()) {
            return Err(RunError::Interrupted);
        }
        self.takes((run.warmup_ms + run.run_ms) as f64 / 1000.0 + 0.1)?;
        if self.crashes == Some(run.row.design.as_str()) {
            return Err(RunError::Failed("the server ended with signal: 9".into()));
        }
        let speed = self.speeds.iter().find(|(name, _)| *name == run.row.design).unwrap().1;
        let mut made = made(speed, 5000.0);
        let holds = self.holds.filter(|(name, _)| *name == run.row.design);
        let connected = holds.map_or(run.load.connections, |(_, n)| n.min(run.load.connections));
        made.load.counts.attempted = run.load.connections.into();
        made.load.counts.connected = connected.into();
        self.far = self.changes.is_some_and(|changes| changes(self.runs.len()));
        let of_poll = self.runs.iter().filter(|(row, _)| row == "poll").count();
        if run.row.design == "poll" && self.breaks.is_some_and(|breaks| breaks(of_poll)) {
            made.load.counts.reset = 1;
        }
        if self.starves.is_some_and(|starves| starves(self.runs.len())) {
            made.load.window = None;
        }
        let source = match run.row.design == "blocking" {
            _ if self.counts => ENTRIES_BY_KERNEL,
            true => ENTRIES_WITHOUT_FUTEX,
            false => ALL_ENTRIES,
        };
        made.server.settings.insert(ENTRIES_SOURCE.into(), source.into());
        if let Some(window) = made.server.window.as_mut().filter(|_| self.counts) {
            *window.calls.get_mut("kernel_entries").unwrap() *= 3;
        }
        Ok(made)
    }
}

fn experiment(bench: &mut Simulated, loads: Vec<Load>, settings: Settings) -> Results {
    let parse = |(name, _): &(&'static str, f64)| Row::parse(name).unwrap();
    let mut all: Vec<Row> = bench.speeds.iter().map(parse).collect();
    rows::add_again(&mut all);
    let mut results = Results::new(vec![], Machine::default(), all, loads);
    results.seed = 3;
    results.own.server_cores = vec![0];
    results.own.client_cores = vec![1];
    run(bench, &mut results, &settings, &mut |_| ());
    results
}

fn standard() -> (Vec<Load>, Settings) {
    let loads = [1, 64].map(|n| Load::new(Pattern::PingPong, 64, n, None, None)).to_vec();
    (loads, Settings::new(Depth::Standard).within(Some(60.0)))
}

fn bench() -> Simulated {
    let speeds = vec![("poll", 80e3), ("epoll", 100e3), ("select", 120e3)];
    Simulated { speeds, ..Simulated::default() }
}

#[test]
fn every_row_runs_in_every_round_and_the_budget_is_kept() {
    let (loads, settings) = standard();
    let mut bench = bench();
    let results = experiment(&mut bench, loads, settings);
    assert_eq!((results.rows.len(), results.warnings.clone()), (4, vec![]));
    for load in 0..2 {
        for cell in &results.cells[load] {
            // All are alike in the simulation, so it ends as soon as there are intervals.
            assert_eq!(cell.samples.len(), 6);
        }
        assert_eq!(results.ranking(load, false).winner().unwrap().row, 2);
    }
    assert!(bench.now_s <= 60.0, "{}", bench.now_s);
    assert_eq!(results.exit_code(), exit::OK);
    // A block holds every row once.
    let mut block: Vec<&str> = bench.runs[..4].iter().map(|(row, _)| row.as_str()).collect();
    block.sort_unstable();
    assert_eq!(block, ["epoll", "epoll", "poll", "select"]);
}

#[test]
fn a_time_that_was_asked_for_is_a_bound() {
    let (loads, settings) = standard();
    for seconds in [0.3, 1.0, 2.0, 5.0, 20.0] {
        // Rounds that were asked for are no exception.
        let settings = Settings { rounds: Some(50), budget_s: Some(seconds), ..settings };
        let mut bench = bench();
        let results = experiment(&mut bench, loads.clone(), settings);
        assert!(bench.now_s <= seconds, "{} of {seconds}", bench.now_s);
        assert!(!results.warnings.is_empty());
        if seconds < 1.5 {
            let said = results.warnings.iter().find(|w| w.contains("not even the checks")).unwrap();
            assert!(said.contains("not checked: ") && said.contains("select"), "{said}");
            assert!(
                results.error.as_ref().unwrap().contains("no time for a run"),
                "{:?}",
                results.error
            );
        }
        for (load, row) in
            (0..2).flat_map(|load| (0..results.rows.len()).map(move |row| (load, row)))
        {
            if results.cells[load][row].samples.is_empty() {
                assert_eq!(results.status(load, row), Status::NotMeasured);
                let said = results.unranked(load, row).unwrap();
                assert!(!said.contains("before its first run"), "{said}");
            }
        }
    }
}

#[test]
fn where_all_runs_fail_it_is_not_said_that_there_was_no_time() {
    let (loads, settings) = standard();
    let speeds = vec![("poll", 80e3)];
    let mut bench = Simulated { speeds, crashes: Some("poll"), ..Simulated::default() };
    let results = experiment(&mut bench, loads, settings);
    assert_eq!((results.error.as_ref(), results.status(0, 0)), (None, Status::Failed));
    assert_eq!(results.exit_code(), exit::FAILED);
}

#[test]
fn the_search_for_the_most_keeps_to_the_time_too() {
    let settings =
        Settings { rounds: Some(1), ..Settings::new(Depth::Standard).within(Some(12.0)) };
    let mut bench = bench();
    let rows = ["poll", "epoll"].map(|text| Row::parse(text).unwrap()).to_vec();
    let mut results = Results::new(vec![], Machine::default(), rows, classic::loads());
    results.own.classic = Some(Classic::up_to(1_000_000));
    run(&mut bench, &mut results, &settings, &mut |_| ());
    assert!(bench.now_s <= 12.0, "{}", bench.now_s);
    let held = &results.own.classic.as_ref().unwrap().held;
    let cut: Vec<String> = held.iter().flatten().map(classic::Held::said).collect();
    assert!(cut.iter().any(|said| said.contains("there was no time (-t) to try")), "{cut:?}");
}

#[test]
fn connections_for_which_there_are_no_descriptors_are_named_and_never_tried() {
    let of = |connections: &[u32]| {
        let loads: Vec<Load> =
            connections.iter().map(|n| Load::new(Pattern::PingPong, 64, *n, None, None)).collect();
        let rows = [Row::parse("poll").unwrap(), Row::parse("epoll").unwrap()].to_vec();
        let mut results = Results::new(vec![], Machine::default(), rows, loads);
        let said = heed_descriptors(&mut results, Some(64));
        let mut bench = bench();
        run(&mut bench, &mut results, &standard().1, &mut |_| ());
        (results, said, bench)
    };
    let (results, said, bench) = of(&[1, 64, 1000]);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].contains("a server of 1000 connections takes 1032 descriptors or more"));
    assert!(said[1].contains("a process may have 64 here") && said[1].contains("ulimit -n 1032"));
    assert!(bench.runs.iter().all(|(_, connections)| *connections == 1), "{:?}", bench.runs);
    assert!(results.unranked(2, 0).unwrap().contains("ulimit -n 1032"));
    assert_eq!(results.unranked(0, 0), None);
    assert_eq!(results.exit_code(), exit::OK);
    let (results, _, bench) = of(&[1000]);
    assert_eq!((results.exit_code(), bench.runs.len()), (exit::UNAVAILABLE, 0));
}

#[test]
fn rounds_that_were_asked_for_are_all_made() {
    let (loads, settings) = standard();
    let settings = Settings { rounds: Some(8), ..settings.within(None) };
    // Far more than the time of the plan is over at the start.
    let mut late = Simulated { now_s: 10_000.0, ..bench() };
    let results = experiment(&mut late, loads, settings);
    assert!(results.cells.iter().flatten().all(|cell| cell.samples.len() == 8));
    assert!(
        !results.warnings.iter().any(|said| said.contains("it took")),
        "{:?}",
        results.warnings
    );
}

#[test]
fn a_group_that_polls_gets_a_row_under_two_names_of_its_own() {
    let (loads, settings) = standard();
    let mut bench = Simulated { polls: vec!["select"], ..bench() };
    let results = experiment(&mut bench, loads, settings);
    assert_eq!(results.groups(0), [false, true]);
    assert_eq!(results.again(true), Some((2, 4)));
    assert_eq!(results.cells[0][4].samples.len(), results.cells[0][2].samples.len());
    assert!(results.ranking(0, true).noise_floor.is_some());
}

#[test]
fn a_row_that_answers_wrongly_is_never_timed() {
    let (loads, settings) = standard();
    let mut bench = Simulated { wrong: Some("poll"), ..bench() };
    let results = experiment(&mut bench, loads, settings);
    assert!(bench.runs.iter().all(|(row, _)| row != "poll"));
    assert!(results.unranked(0, 0).unwrap().contains("byte 3 came back as 4"));
    assert_eq!(results.exit_code(), exit::DATA_ERRORS);
}

#[test]
fn a_row_that_crashes_is_given_up_and_the_others_go_on() {
    let (loads, settings) = standard();
    let mut bench = Simulated { crashes: Some("poll"), ..bench() };
    let results = experiment(&mut bench, loads, settings);
    assert_eq!(results.cells[0][0].failed_runs, GIVEN_UP_AFTER);
    assert!(results.unranked(0, 0).unwrap().contains("signal: 9"));
    assert_eq!(results.cells[0][1].samples.len(), 6);
    assert_eq!(results.exit_code(), exit::DATA_ERRORS);
}

#[test]
fn a_row_that_cannot_hold_the_connections_keeps_its_figures_and_has_no_rank() {
    let (loads, settings) = standard();
    let mut bench = Simulated { holds: Some(("poll", 50)), ..bench() };
    let results = experiment(&mut bench, loads, settings);
    assert_eq!(results.unranked(0, 0), None, "one connection it holds");
    assert!(results.unranked(1, 0).unwrap().contains("50 of 64 connections"));
    assert_eq!(
        results.cells[1][0].samples.len(),
        3,
        "in two rounds, one of them twice: more would tell nothing"
    );
    assert_eq!(results.exit_code(), exit::OK);
}

#[test]
fn an_interrupt_leaves_what_there_is() {
    let (loads, settings) = standard();
    let mut bench = Simulated { interrupted_at: Some(10), ..bench() };
    let results = experiment(&mut bench, loads, settings);
    assert!(results.interrupted && results.has_figures());
    assert_eq!(results.cells.iter().flatten().map(|cell| cell.samples.len()).sum::<usize>(), 9);
    assert_eq!(results.exit_code(), exit::INTERRUPTED);
}

#[test]
fn the_experiment_of_the_original_searches_for_the_most() {
    let settings = Settings { rounds: Some(1), ..Settings::new(Depth::Standard) };
    let mut bench = Simulated { holds: Some(("poll", 19_900)), ..bench() };
    let rows = [Row::parse("poll").unwrap(), Row::parse("epoll").unwrap()].to_vec();
    let mut results = Results::new(vec![], Machine::default(), rows, classic::loads());
    results.own.classic = Some(Classic::up_to(30_000));
    run(&mut bench, &mut results, &settings, &mut |_| ());
    let held = &results.own.classic.as_ref().unwrap().held;
    let poll = held[0].as_ref().unwrap();
    assert_eq!(
        (poll.connections, poll.broke_at, poll.made_there),
        (Some(18_000), Some(21_000), Some(19_900))
    );
    assert!(poll.cause.as_ref().unwrap().contains("19900 of 21000"));
    assert_eq!(held[1].as_ref().unwrap().connections, Some(30_000));
}

#[test]
fn a_search_that_adds_nothing_has_the_figures_of_the_load_before_it() {
    let settings = Settings { rounds: Some(1), ..Settings::new(Depth::Standard) };
    let rows = [Row::parse("epoll").unwrap()].to_vec();
    let mut results = Results::new(vec![], Machine::default(), rows, classic::loads());
    results.own.classic = Some(Classic::up_to(12_000));
    run(&mut bench(), &mut results, &settings, &mut |_| ());
    let held = results.own.classic.as_ref().unwrap().held[0].as_ref().unwrap();
    assert_eq!(held.connections, Some(12_000));
    assert_eq!(held.sample.as_ref(), results.cells[1][0].samples.last());
    assert!(held.sample.is_some());
}

#[test]
fn nothing_that_can_run_is_an_error_of_its_own() {
    let (loads, settings) = standard();
    let mut row = Row::parse("epoll").unwrap();
    row.unavailable = Some("no epoll here".into());
    let mut results = Results::new(vec![], Machine::default(), vec![row], loads);
    run(&mut bench(), &mut results, &settings, &mut |_| ());
    assert!(results.error.is_some());
    assert_eq!(results.exit_code(), exit::UNAVAILABLE);
}

#[test]
fn a_disturbed_run_is_made_again_and_costs_no_rank() {
    let (loads, settings) = standard();
    for which in [|n: usize| n == 5, |n: usize| n % 2 == 1] {
        let mut bench = Simulated { changes: Some(which), ..bench() };
        let results = experiment(&mut bench, loads.clone(), settings);
        assert!((0..3).all(|row| results.unranked(0, row).is_none()));
        let samples = || results.cells[0].iter().flat_map(|cell| &cell.samples);
        assert!(samples().any(|sample| sample.when.replaced), "both are kept");
        assert!(!samples().any(|sample| sample.changed_machine() && !sample.when.replaced));
    }
    let always = Simulated { changes: Some(|_| true), ..bench() };
    let mut always = Simulated { now_s: 0.0, ..always };
    let results = experiment(&mut always, loads.clone(), settings);
    assert!(always.now_s <= 60.0, "{}", always.now_s);
    assert!(results.has_figures());
}

#[test]
fn a_run_in_which_nothing_was_measured_is_made_again() {
    let (loads, settings) = standard();
    let mut bench = Simulated { starves: Some(|n| n == 2), ..bench() };
    let results = experiment(&mut bench, loads, settings);
    let samples = || results.cells[0].iter().flat_map(|cell| &cell.samples);
    let starved: Vec<_> = samples().filter(|sample| sample.messages_per_s.is_none()).collect();
    assert_eq!(starved.len(), 1);
    assert_eq!(starved[0].when.disturbed, Some(Disturbance::PaceNotKept));
    assert!(starved[0].when.replaced);
    assert!((0..3).all(|row| results.unranked(0, row).is_none()));
}

#[test]
fn connections_that_break_again_are_the_rows_own() {
    let (loads, settings) = standard();
    let of = |which: fn(usize) -> bool| {
        let mut bench = Simulated { breaks: Some(which), ..bench() };
        experiment(&mut bench, loads.clone(), settings)
    };
    let once = of(|n| n == 2);
    assert_eq!(once.unranked(0, 0), None);
    assert_eq!(once.cells[0][0].samples.len(), once.cells[0][1].samples.len() + 1);
    // One stall in a run and the next, which follows at once, is one round of many.
    let stall = of(|n| n < 3);
    assert_eq!(stall.cells[0][0].samples.len(), stall.cells[0][1].samples.len() + 1);
    // Nor do two stalls in the first rounds end what they would not end in later ones.
    let stalls = of(|n| n == 1 || n == 3);
    assert!(stalls.cells[0][0].samples.len() >= stalls.cells[0][1].samples.len() + 2);
    let always = of(|_| true);
    assert!(always.unranked(0, 0).unwrap().contains("1 of 1 connections were refused or broke"));
    assert!(of(|n| n % 2 == 1).unranked(0, 0).is_some(), "in every round at first");
}

/// Once more for each row that leaves entries out, under each load, and for no other; nothing else is taken from it.
#[test]
fn the_kernel_counts_entries_in_a_run_of_its_own_where_a_row_leaves_some_out() {
    for can_count in [true, false] {
        let (loads, settings) = standard();
        let settings = Settings { rounds: Some(6), ..settings.within(None) };
        let speeds = vec![("blocking", 50e3), ("epoll", 100e3)];
        let mut bench = Simulated { speeds, can_count, ..Simulated::default() };
        let results = experiment(&mut bench, loads, settings);
        assert!(!bench.counts, "the runs of the next load are timed");
        for (load, cells) in results.cells.iter().enumerate() {
            let made = |row: usize| {
                let run = (results.rows[row].spec(), results.loads[load].connections);
                bench.runs.iter().filter(|made| **made == run).count()
            };
            let [blocking, epoll] = [&cells[0], &cells[1]];
            assert_eq!(blocking.samples.len(), 6, "the run that counts is no sample");
            let own = blocking.samples[0].kernel_entries_per_message.unwrap();
            let expected = if can_count { own * 3.0 } else { own };
            let told = blocking.entries(&Tcp::ENTRIES, results.seed).unwrap();
            assert!((told / expected - 1.0).abs() < 1e-9, "{told} of {own}");
            assert_eq!(blocking.counts_all_entries(), can_count);
            assert_eq!(epoll.entries_counted, None);
            assert!(epoll.counts_all_entries());
            assert!(made(0) >= blocking.samples.len() + usize::from(can_count));
        }
    }
}
