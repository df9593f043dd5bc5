use super::*;
use crate::exit;
use crate::experiment::blocks::{GIVEN_UP_AFTER, ROUNDS_BEFORE_EARLY_END};
use crate::experiment::cell::{Conformance, Status};
use crate::experiment::descriptors;
use crate::experiment::plan::Role;
use crate::experiment::plan::budget::NOT_CHECKED;
use crate::experiment::plan::{Row, add_again};
use crate::machine::Machine;
use crate::udp::belief::Belief;
use crate::udp::bench::{Extent, Run};
use crate::udp::check;
use crate::udp::exchange::Echoed;

use crate::udp::plan::{self, Rate};
use crate::udp::sample::tests::{flood, server};
use weir::counters::{ALL_ENTRIES, ENTRIES_BY_KERNEL, ENTRIES_SOURCE, ENTRIES_WITHOUT_FUTEX};

/// A bench on a simulated clock. What a design does is told by its name.
#[derive(Default)]
struct Simulated {
    clock_s: f64,
    runs: Vec<(String, Option<u64>)>,
    checks: Vec<String>,
    interrupt_after: Option<usize>,
    unbalanced: bool,
    /// Whether the system does not tell what it drops at sockets.
    blind: bool,
    /// Whether the kernel may count entries, and does in the runs now.
    can_count: bool,
    counts: bool,
    uncalibrated: bool,
    /// The loads of the checks.
    checked_with: Vec<Load>,
    /// When everything must be over, if that was said.
    ends_s: Option<f64>,
    /// Of "a", which of its paced runs, from 1, lose datagrams, and in which the generator is late.
    loses: Option<fn(usize) -> bool>,
    late: Option<fn(usize) -> bool>,
    /// Paced runs of "a".
    paced: usize,
    /// Checks of "a" into which others send, and that there were.
    strays: usize,
    strayed: usize,
}

impl Simulated {
    /// Lets what takes so long go on, but not beyond the end.
    fn takes(&mut self, seconds: f64) -> Result<(), RunError> {
        self.clock_s += seconds;
        match self.ends_s.filter(|ends_s| self.clock_s > *ends_s) {
            Some(ends_s) => {
                self.clock_s = ends_s;
                Err(RunError::TimeIsUp("the server was ended".into()))
            }
            None => Ok(()),
        }
    }
}

impl course::Bench<Udp> for Simulated {
    fn elapsed_s(&self) -> f64 {
        self.clock_s
    }

    fn end_within(&mut self, seconds: f64) {
        self.ends_s = Some(seconds);
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        Some(27.0)
    }

    fn count_entries(&mut self, on: bool) -> bool {
        self.counts = on && self.can_count;
        self.counts
    }

    fn check(&mut self, row: &Row, loads: &[Load]) -> Result<Checked, RunError> {
        check::of(self, row, loads)
    }

    fn run(&mut self, run: &course::Run<Load>) -> Result<Made, RunError> {
        self.run_once(&Run::of(run))
    }
}

impl Bench for Simulated {
    fn calibrate(&mut self, _: &Load) -> Result<f64, RunError> {
        self.takes(0.5)?;
        match self.uncalibrated {
            true => Err(RunError::Failed("nobody reads".into())),
            false => Ok(2e6),
        }
    }

    fn echo(&mut self, row: &Row, _: &Load) -> Result<Echoed, RunError> {
        self.takes(0.05)?;
        self.checks.push(row.design.clone());
        match row.design.as_str() {
            "mixes" => Err(RunError::Failed("to another sender than its own".into())),
            _ => Ok(Echoed { datagrams: 9, senders: 3, sizes_bytes: vec![0], ipv6: false }),
        }
    }

    fn run_once(&mut self, run: &Run) -> Result<Made, RunError> {
        if self.interrupt_after == Some(self.runs.len()) {
            return Err(RunError::Interrupted);
        }
        self.runs.push((run.row.design.clone(), run.per_second()));
        let run_s = match run.extent {
            Extent::Timed { warmup_ms, run_ms } => (warmup_ms + run_ms) as f64 / 1000.0,
            Extent::Checked { .. } => 0.1,
            Extent::Burst { .. } => 0.05,
        };
        self.takes(run_s + 0.2)?;
        let checked = matches!(run.extent, Extent::Checked { .. });
        if checked {
            self.checked_with.push(*run.load);
        }
        match run.row.design.as_str() {
            "one-port" if run.load.ports > 1 => {
                return Err(RunError::Unavailable("it has one port".into()));
            }
            "unavailable" => return Err(RunError::Unavailable("not permitted".into())),
            "crashes" if !checked => return Err(RunError::Failed("exit code 101".into())),
            "hangs" => {
                self.takes(10.0)?;
                return Err(RunError::Failed("no report within 10 s".into()));
            }
            _ => {}
        }
        let (mut server, mut flood) = (server(), flood());
        if checked {
            flood.elapsed_ns = 100_000_000;
        }
        if run.row.design == "forgets" && !checked {
            server.end_signalled = false;
        }
        if run.row.design == "corrupts" {
            server.audit.corrupt = 1;
        }
        let source = match run.row.design == "parks" {
            _ if self.counts => ENTRIES_BY_KERNEL,
            true => ENTRIES_WITHOUT_FUTEX,
            false => ALL_ENTRIES,
        };
        server.settings.insert(ENTRIES_SOURCE.into(), source.into());
        if self.counts {
            server.counters.insert("kernel_entries".into(), 7 * server.counters["datagrams"]);
        }
        if run.row.design == "loses" || self.unbalanced {
            server.audit.received -= 1000;
        }
        if self.blind {
            // It counts no drops at sockets, and the check is slow enough for none.
            server.system.dropped_socket = None;
            server.audit.received += if checked { 120_000 } else { 0 };
        }
        if run.per_second().is_some() && !checked {
            let of_a = run.row.design == "a";
            self.paced += usize::from(of_a);
            let is =
                |which: Option<fn(usize) -> bool>| of_a && which.is_some_and(|w| w(self.paced));
            let lost = if is(self.loses) { flood.sent / 250 } else { 0 };
            server.audit.received = flood.sent - lost;
            server.system.dropped_socket = Some(lost);
            let within = if is(self.late) { 98 } else { 100 };
            (flood.windows, flood.windows_within) = (Some(100), Some(within));
        }
        if checked && run.row.design == "a" && self.strayed < self.strays {
            self.strayed += 1;
            server.audit.strangers = 1;
            server.system.dropped_socket = server.system.dropped_socket.map(|n| n + 1);
        }
        Ok(Made { server, flood, load_of_others: Some(0.0) })
    }
}

fn experiment(designs: &[&str], loads: Vec<Load>, depth: Depth) -> (Results, Simulated) {
    experiment_on(Simulated::default(), designs, loads, depth)
}

fn experiment_on(
    mut bench: Simulated,
    designs: &[&str],
    loads: Vec<Load>,
    depth: Depth,
) -> (Results, Simulated) {
    let mut rows: Vec<Row> = designs.iter().map(|design| Row::parse(design).unwrap()).collect();
    add_again(&mut rows, None);
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    results.seed = 7;
    run(
        &mut bench,
        &mut results,
        &Settings { depth, rounds: None, budget_s: None, is_bound: false },
        &mut |_| {},
    );
    (results, bench)
}

#[test]
fn a_standard_experiment_keeps_to_its_budget_and_fills_every_cell() {
    let designs = ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11", "d12"];
    let loads = plan::Asked::new(Depth::Standard, Load::saturation(64)).loads();
    let (results, bench) = experiment(&designs, loads, Depth::Standard);
    assert!(bench.clock_s <= 110.0 * 1.05, "{} s", bench.clock_s);
    for cell in results.cells.iter().flatten() {
        assert!(cell.samples.len() >= 3, "{}", cell.samples.len());
    }
    assert_eq!(results.calibration(&results.loads[0]).map(|c| c.sent_per_s), Some(2e6));
    assert_eq!(results.exit_code(), 0);
    assert!(!results.interrupted && results.warnings.is_empty(), "{:?}", results.warnings);
}

#[test]
fn every_block_runs_every_row_once_in_an_order_of_its_own() {
    let (_, bench) = experiment(&["a", "b", "c"], vec![Load::saturation(64)], Depth::Quick);
    // Three checks, then blocks of four: the first row runs twice in each.
    let blocks: Vec<Vec<&str>> = bench.runs[3..]
        .chunks(4)
        .map(|block| block.iter().map(|(design, _)| design.as_str()).collect())
        .collect();
    assert!(blocks.len() >= 3);
    for block in &blocks {
        let mut sorted = block.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["a", "a", "b", "c"]);
    }
    assert!(blocks.iter().any(|block| *block != blocks[0]), "{blocks:?}");
}

#[test]
fn what_cannot_run_or_fails_its_check_is_not_timed() {
    let designs = ["good", "unavailable", "corrupts", "loses", "hangs", "mixes"];
    let (results, bench) = experiment(&designs, vec![Load::saturation(64)], Depth::Quick);
    let timed = |name: &str| bench.runs.iter().filter(|(design, _)| design == name).count();
    for name in &designs[1..] {
        // What is lost once may be the machine's doing.
        let checks = if *name == "loses" { 2 } else { 1 };
        assert_eq!(timed(name), checks, "{name} runs for its check only");
    }
    assert_eq!(results.status(0, 1), Status::Unavailable);
    let why = |row: usize| results.unranked(0, row).unwrap();
    assert!(why(1).contains("not permitted"));
    assert!(why(2).contains("1 damaged"), "{}", why(2));
    assert!(why(3).contains("1000 unexplained"), "{}", why(3));
    assert!(why(4).contains("no report within 10 s"));
    assert!(why(5).contains("to another sender than its own"), "{}", why(5));
    assert_eq!(bench.checks, ["good", "mixes"], "the others have failed before");
    assert_eq!(results.own.checked.as_ref().map(|checked| checked.datagrams), Some(9));
    assert_eq!(results.exit_code(), 3);
}

#[test]
fn a_row_that_passed_its_check_runs_under_two_names() {
    let designs = ["corrupts", "good"];
    let (results, bench) = experiment(&designs, vec![Load::saturation(64)], Depth::Quick);
    assert_eq!(results.again(false), Some((1, 2)));
    assert_eq!(results.rows[2].design, "good");
    assert!(bench.runs.iter().filter(|(design, _)| design == "good").count() >= 7);
}

#[test]
fn a_row_that_only_fails_is_given_up_and_the_others_go_on() {
    let (results, bench) =
        experiment(&["good", "crashes"], vec![Load::saturation(64)], Depth::Quick);
    let crashes = bench.runs.iter().filter(|(design, _)| design == "crashes").count();
    assert_eq!(crashes, 1 + GIVEN_UP_AFTER as usize);
    assert_eq!(results.unranked(0, 1).unwrap(), "exit code 101");
    assert_eq!(results.exit_code(), 3, "a part of it is missing");
    assert!(results.cells[0][0].samples.len() >= 3);
}

#[test]
fn a_peer_is_checked_by_itself_and_skips_the_loads_that_it_cannot_take() {
    let base = Load { work: "5".parse().unwrap(), ..Load::saturation(64) };
    let loads = vec![base, Load { ports: 4, flows: 4, ..base }, Load { size_bytes: 1024, ..base }];
    let mut rows = vec![Row::parse("good").unwrap(), Row::parse_peer("one-port=x").unwrap()];
    add_again(&mut rows, None);
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    let mut bench = Simulated { uncalibrated: true, ..Simulated::default() };
    let settings = Settings { depth: Depth::Quick, rounds: None, budget_s: None, is_bound: false };
    let mut skipped = vec![];
    run(&mut bench, &mut results, &settings, &mut |progress| {
        if let Progress::Skipped(row, reason) = progress {
            skipped.push((row.design.clone(), reason));
        }
    });
    let longest = Load { size_bytes: 1024, ..base };
    let of_a_peer = Load { work: Default::default(), ..longest };
    assert_eq!(bench.checked_with, [longest, of_a_peer], "the base, with the longest datagrams");
    assert!(!results.cells[0][1].samples.is_empty() && !results.cells[2][1].samples.is_empty());
    let cell = &results.cells[1][1];
    assert_eq!((cell.samples.len(), cell.failed_runs), (0, 0));
    assert_eq!(results.unranked(1, 1).unwrap(), "it has one port");
    assert_eq!(skipped, [("one-port".to_owned(), "it has one port".to_owned())]);
    assert_eq!(results.exit_code(), 0, "nothing failed");
    let uncalibrated = results.warnings.iter().filter(|w| w.contains("nobody reads")).count();
    assert_eq!(uncalibrated, 1, "{:?}", results.warnings);
}

#[test]
fn a_run_whose_end_was_not_seen_is_no_sample() {
    let (results, _) = experiment(&["forgets"], vec![Load::saturation(64)], Depth::Quick);
    assert!(results.unranked(0, 0).unwrap().contains("did not see the end"));
}

#[test]
fn shares_of_the_maximum_follow_from_the_runs_at_saturation() {
    let base = Load::saturation(64);
    let loads = vec![base, base.at(Rate::OfMaximum(0.75))];
    let (results, bench) = experiment(&["a"], loads, Depth::Quick);
    // The simulated server receives 800,000 a second.
    assert!(bench.runs.iter().any(|(_, rate)| *rate == Some(600_000)), "{:?}", bench.runs);
    assert!(!results.cells[1][0].samples.is_empty());

    let (results, _) = experiment(&["crashes", "a"], results.loads, Depth::Quick);
    let why = results.unranked(1, 0).unwrap();
    assert!(why.contains("its maximum is not known"), "{why}");
}

#[test]
fn an_interrupt_leaves_what_there_is() {
    let bench = Simulated { interrupt_after: Some(7), ..Simulated::default() };
    let (results, _) = experiment_on(bench, &["a", "b"], vec![Load::saturation(64)], Depth::Quick);
    assert!(results.interrupted && results.has_figures());
    assert_eq!(results.exit_code(), 130);
    let bench = Simulated { interrupt_after: Some(0), ..Simulated::default() };
    let (results, _) = experiment_on(bench, &["a"], vec![Load::saturation(64)], Depth::Quick);
    assert!(results.interrupted && !results.has_figures());
    assert_eq!(results.exit_code(), 130);
}

#[test]
fn nothing_that_can_run_is_an_answer_of_its_own() {
    let (results, _) = experiment(&["unavailable"], vec![Load::saturation(64)], Depth::Quick);
    assert!(results.error.as_ref().unwrap().contains("none of the designs"));
    assert_eq!(results.exit_code(), 5);
}

#[test]
fn the_confidence_asked_for_ends_a_load_early() {
    // The simulated runs are all alike, so six rounds are enough where nine are planned.
    let made = |depth| {
        let (results, _) = experiment(&["a"], vec![Load::saturation(64)], depth);
        results.cells[0][0].samples.len()
    };
    assert_eq!(made(Depth::Standard), ROUNDS_BEFORE_EARLY_END as usize);
    assert!(made(Depth::Full) > 20, "more rounds find smaller differences");
}

#[test]
fn more_rows_than_the_budget_holds_still_get_three_rounds_and_a_word() {
    let designs: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    let designs: Vec<&str> = designs.iter().map(String::as_str).collect();
    let (results, _) = experiment(&designs, vec![Load::saturation(64)], Depth::Quick);
    assert!(results.cells[0].iter().all(|cell| cell.samples.len() == 3));
    assert!(results.warnings.iter().any(|w| w.starts_with("it took")), "{:?}", results.warnings);
}

#[test]
fn a_load_whose_time_is_up_before_it_begins_has_its_figures_all_the_same() {
    let designs: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    let designs: Vec<&str> = designs.iter().map(String::as_str).collect();
    let base = Load::saturation(64);
    let loads = vec![base, base.at(Rate::PerSecond(50_000))];
    let mut rows: Vec<Row> = designs.iter().map(|design| Row::parse(design).unwrap()).collect();
    add_again(&mut rows, None);
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    let settings =
        Settings { depth: Depth::Quick, rounds: None, budget_s: Some(30.0), is_bound: false };
    run(&mut Simulated::default(), &mut results, &settings, &mut |_| {});
    assert!(results.cells.iter().flatten().all(|cell| cell.samples.len() == 3));
    assert!(results.warnings.iter().any(|w| w.starts_with("it took")), "{:?}", results.warnings);
}

#[test]
fn rounds_that_were_asked_for_are_all_made() {
    let base = Load::saturation(64);
    let loads = vec![base, base.at(Rate::PerSecond(50_000))];
    let rows = ["a", "b"].map(|design| Row::parse(design).unwrap()).to_vec();
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    // More than it takes to be settled, and more than fit in the time.
    let settings =
        Settings { depth: Depth::Quick, rounds: Some(20), budget_s: Some(1.0), is_bound: false };
    run(&mut Simulated::default(), &mut results, &settings, &mut |_| {});
    for cell in results.cells.iter().flatten() {
        assert_eq!(cell.samples.len(), 20);
    }
}

/// So many designs within a time that was asked for.
fn bound(designs: &[String], seconds: f64) -> (Results, Simulated) {
    let mut rows: Vec<Row> = designs.iter().map(|design| Row::parse(design).unwrap()).collect();
    add_again(&mut rows, None);
    let base = Load::saturation(64);
    let loads = vec![base, base.at(Rate::PerSecond(50_000))];
    let mut results = Results::new(vec![], Machine::default(), rows, loads);
    let settings =
        Settings { depth: Depth::Quick, rounds: None, budget_s: Some(seconds), is_bound: true };
    let mut bench = Simulated::default();
    run(&mut bench, &mut results, &settings, &mut |_| {});
    (results, bench)
}

#[test]
fn a_time_that_was_asked_for_is_a_bound() {
    let designs: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    let (results, bench) = bound(&designs, 30.0);
    assert!(bench.clock_s <= 30.0, "{}", bench.clock_s);
    assert!(results.has_figures());
    let word = results.warnings.iter().find(|w| w.starts_with("saturation")).unwrap();
    assert!(word.contains("of 3 rounds, because its time ran out"), "{word}");
    assert_eq!(results.exit_code(), 0, "what was not begun has not failed");
    // One that hangs in each run has no more of it than the others.
    let (results, bench) = bound(&["hangs".into(), "a".into()], 12.0);
    assert!(bench.clock_s <= 12.0, "{}", bench.clock_s);
    assert!(!results.interrupted);
}

#[test]
fn where_not_even_the_checks_fit_that_is_said() {
    let designs: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    let (results, bench) = bound(&designs, 3.0);
    assert!(bench.clock_s <= 3.0, "{}", bench.clock_s);
    let said = results.warnings.iter().find(|w| w.contains("not even the checks")).unwrap();
    assert!(said.contains("61 rows") && said.contains("3 s") && said.contains("(-t)"), "{said}");
    assert!(results.error.as_ref().unwrap().contains("no time for a run"), "{:?}", results.error);
    assert_eq!(results.unranked(0, 59).unwrap(), NOT_CHECKED);
    assert_eq!(results.exit_code(), 1);
    // No time even for one of them.
    let (results, _) = bound(&designs, 0.2);
    assert!(results.error.as_ref().unwrap().contains("no time for a run"), "{:?}", results.error);
    assert!(!results.has_figures());
    let untimed = (0..results.rows.len()).all(|row| {
        results.status(0, row) == Status::NotMeasured
            && results.unranked(0, row).unwrap() == NOT_CHECKED
    });
    assert!(untimed, "also the second name");
}

#[test]
fn a_row_for_whose_runs_there_was_no_time_says_so_and_has_not_failed() {
    let designs: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
    // The calibration and the checks take 4.0 s, a run 0.38 s.
    let (results, _) = bound(&designs, 4.9);
    assert!(results.has_figures() && results.error.is_none());
    let untimed: Vec<(usize, usize)> = (0..results.loads.len())
        .flat_map(|load| (0..results.rows.len()).map(move |row| (load, row)))
        .filter(|(load, row)| results.cells[*load][*row].samples.is_empty())
        .collect();
    assert!(untimed.iter().any(|(load, _)| *load == 0), "not all of the first load");
    for (load, row) in untimed {
        assert_eq!(results.status(load, row), Status::NotMeasured);
        let said = results.unranked(load, row).unwrap();
        assert!(said.contains("there was no time for a run of it (-t)"), "{said}");
    }
    let text = crate::report::table::report(&results, 200);
    let missed = format!("{}: not measured, no time for it (-t)", results.loads[1]);
    assert!(text.contains(&missed), "{text}");
}

#[test]
fn where_all_runs_fail_it_is_not_said_that_there_was_no_time() {
    let (results, _) = bound(&["crashes".into()], 30.0);
    assert_eq!((results.error.as_ref(), results.status(0, 0)), (None, Status::Failed));
    assert_eq!(results.exit_code(), 1);
}

#[test]
fn loads_for_whose_sockets_there_are_no_descriptors_are_named_and_left_out() {
    let base = Load::saturation(64);
    let many = Load { flows: 100, generators: 2, ..base };
    let of = |loads: Vec<Load>| {
        let rows = vec![Row::parse("a").unwrap()];
        let mut results = Results::new(vec![], Machine::default(), rows, loads);
        let said = descriptors::heed(&mut results, Some(64));
        let settings =
            Settings { depth: Depth::Quick, rounds: None, budget_s: None, is_bound: false };
        run(&mut Simulated::default(), &mut results, &settings, &mut |_| {});
        (results, said)
    };
    let (results, said) = of(vec![base, many]);
    assert!(said[0].contains("100 flows takes 232 descriptors") && said[0].contains("ulimit -n"));
    assert!(results.unranked(1, 0).unwrap().contains("a process may have 64 here"));
    assert!(!results.cells[0][0].samples.is_empty() && results.cells[1][0].samples.is_empty());
    assert!(results.warnings.contains(&said[0]));
    assert_eq!(of(vec![many]).0.exit_code(), 5, "nothing can run here");
}

#[test]
fn an_unbalanced_check_says_what_is_missing() {
    let bench = Simulated { unbalanced: true, ..Simulated::default() };
    let (results, _) = experiment_on(bench, &["a"], vec![Load::saturation(64)], Depth::Quick);
    let Conformance::Failed(reason) = &results.conformance[0] else { panic!("it must fail") };
    let balance = "sent 600000, received 479000, dropped 120000: 1000 unexplained (";
    assert!(reason.starts_with(balance), "{reason}");
    assert!(reason.contains("the server took 480000"), "where datagrams were seen: {reason}");
    assert_eq!(results.exit_code(), 1);
}

#[test]
fn where_drops_at_sockets_cannot_be_seen_rows_are_ranked_and_a_check_excuses_nothing() {
    let bench = Simulated { blind: true, ..Simulated::default() };
    let (results, _) =
        experiment_on(bench, &["a", "loses"], vec![Load::saturation(64)], Depth::Quick);
    assert_eq!((results.unranked(0, 0), results.is_invalid(0, 0)), (None, false));
    let cell = &results.cells[0][0];
    assert!(cell.samples.iter().all(|sample| sample.when.disturbed.is_none()));
    assert_eq!(cell.samples[0].ledger.lost_place_unknown(), Some(120_000));
    assert!(cell.samples[0].verdict.reason.starts_with("20.0 % lost, place unknown"));
    let why = results.unranked(0, 1).unwrap();
    assert!(why.contains("received 599000, dropped 0: 1000 unexplained"), "{why}");
}

/// A machine that becomes another by itself, near (27 ns) and far (170 ns) in turn, for 8 to 40 s
/// each; rates and latencies follow it, and waver by a few percent.
struct Flipping {
    clock_s: f64,
    random: Random,
    far: bool,
    until_s: f64,
}

impl Flipping {
    fn pass(&mut self, seconds: f64) {
        self.clock_s += seconds;
        while self.clock_s > self.until_s {
            self.far = !self.far;
            self.until_s += 8.0 + self.random.below(32_000) as f64 / 1000.0;
        }
    }

    fn waver(&mut self) -> f64 {
        0.96 + self.random.below(8000) as f64 / 100_000.0
    }
}

impl course::Bench<Udp> for Flipping {
    fn elapsed_s(&self) -> f64 {
        self.clock_s
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        Some(if self.far { 170.0 } else { 27.0 })
    }

    fn check(&mut self, row: &Row, loads: &[Load]) -> Result<Checked, RunError> {
        check::of(self, row, loads)
    }

    fn run(&mut self, run: &course::Run<Load>) -> Result<Made, RunError> {
        self.run_once(&Run::of(run))
    }
}

impl Bench for Flipping {
    fn calibrate(&mut self, _: &Load) -> Result<f64, RunError> {
        self.pass(0.5);
        Ok(2e6)
    }

    fn echo(&mut self, _: &Row, _: &Load) -> Result<Echoed, RunError> {
        self.pass(0.1);
        Ok(Echoed { datagrams: 9, senders: 3, sizes_bytes: vec![0], ipv6: false })
    }

    fn run_once(&mut self, run: &Run) -> Result<Made, RunError> {
        let was_far = self.far;
        // 110 ms to start and to end both processes, as measured.
        let (mut server, mut flood) = (server(), flood());
        match run.extent {
            Extent::Timed { warmup_ms, run_ms } => {
                self.pass((warmup_ms + run_ms + 110) as f64 / 1000.0);
            }
            Extent::Checked { .. } => {
                self.pass(0.21);
                flood.elapsed_ns = 100_000_000;
            }
            Extent::Burst { .. } => unreachable!("this machine knows rates alone"),
        }
        let slow = if was_far || self.far { 1.6 } else { 1.0 };
        let number: f64 = run.row.design[1..].parse().unwrap();
        let factor = self.waver() / slow / (1.0 + number / 20.0);
        server.window.datagrams = (800_000.0 * factor) as u64;
        server.audit.latency_ns =
            Some(crate::wire::Latency { p50: (5000.0 / factor) as u64, ..Default::default() });
        if run.per_second().is_some() {
            server.audit.received = flood.sent;
            server.system.dropped_socket = Some(0);
            flood.windows_within = flood.windows;
        }
        Ok(Made { server, flood, load_of_others: Some(0.0) })
    }
}

#[test]
fn a_machine_that_changes_now_and_then_leaves_few_verdicts_open() {
    let designs: Vec<String> = (0..18).map(|n| format!("d{n}")).collect();
    let (mut open, mut all) = (0, 0);
    for seed in 0..10 {
        let mut rows: Vec<Row> = designs.iter().map(|d| Row::parse(d).unwrap()).collect();
        rows[17].role = Role::Traditional;
        add_again(&mut rows, None);
        let loads = plan::Asked::new(Depth::Standard, Load::saturation(64)).loads();
        let mut results = Results::new(vec![], Machine::default(), rows, loads);
        results.seed = seed;
        let mut bench = Flipping {
            clock_s: 0.0,
            random: Random::seeded(seed),
            far: false,
            until_s: 10.0 + seed as f64,
        };
        let settings =
            Settings { depth: Depth::Standard, rounds: None, budget_s: None, is_bound: false };
        run(&mut bench, &mut results, &settings, &mut |_| {});
        assert!(bench.clock_s <= 110.0 * 1.05, "{} s", bench.clock_s);
        for load in 0..results.loads.len() {
            let ranking = results.main_ranking(load);
            assert!(ranking.places.len() >= 16, "{} ranked", ranking.places.len());
            all += ranking.places.len();
            open += ranking.places.iter().filter(|place| place.is_open()).count();
        }
    }
    assert!(open * 10 <= all, "{open} of {all} verdicts are open");
}

/// A server that takes 1,000,000 datagrams/s at saturation, and loses what is offered evenly above
/// 700,000/s, or above 10 times that with receive offload; it remembers what it was asked.
#[derive(Default)]
struct Limited {
    clock_s: f64,
    runs: Vec<(String, bool, Option<u64>)>,
    calibrated: Vec<(u32, bool)>,
}

const TAKES_PER_S: f64 = 700_000.0;

impl course::Bench<Udp> for Limited {
    fn elapsed_s(&self) -> f64 {
        self.clock_s
    }

    fn core_to_core_ns(&mut self) -> Option<f64> {
        Some(27.0)
    }

    fn check(&mut self, row: &Row, loads: &[Load]) -> Result<Checked, RunError> {
        check::of(self, row, loads)
    }

    fn run(&mut self, run: &course::Run<Load>) -> Result<Made, RunError> {
        self.run_once(&Run::of(run))
    }
}

impl Bench for Limited {
    fn calibrate(&mut self, load: &Load) -> Result<f64, RunError> {
        self.calibrated.push((load.size_bytes, load.receive_offload));
        Ok(20e6)
    }

    fn echo(&mut self, _: &Row, load: &Load) -> Result<Echoed, RunError> {
        let sizes_bytes = vec![load.size_bytes as usize];
        Ok(Echoed { datagrams: 9, senders: 3, sizes_bytes, ipv6: false })
    }

    fn run_once(&mut self, run: &Run) -> Result<Made, RunError> {
        let Extent::Timed { run_ms, .. } = run.extent else {
            let mut flood = flood();
            flood.elapsed_ns = 100_000_000;
            return Ok(Made { server: server(), flood, load_of_others: Some(0.0) });
        };
        let offloaded = run.load.receive_offload;
        self.runs.push((run.row.title(), offloaded, run.per_second()));
        self.clock_s += run_ms as f64 / 1000.0 + 0.1;
        let factor = if offloaded { 10.0 } else { 1.0 };
        let offered = run.per_second().map_or(2e6 * factor, |rate| rate as f64);
        let taken = match run.per_second() {
            None => 1e6 * factor,
            Some(_) => offered.min(TAKES_PER_S * factor),
        };
        let (mut server, mut flood) = (server(), flood());
        flood.elapsed_ns = 1_000_000_000;
        flood.offered = offered as u64;
        flood.sent = flood.offered;
        flood.refused = 0;
        flood.windows = Some(100);
        flood.windows_within = Some(100);
        server.window.elapsed_ns = 1_000_000_000;
        server.window.datagrams = taken as u64;
        server.audit.received = taken as u64;
        server.system.dropped_socket = Some(flood.sent - taken as u64);
        Ok(Made { server, flood, load_of_others: Some(0.0) })
    }
}

fn limited(asked: &plan::Asked, mut rows: Vec<Row>) -> (Results, Limited) {
    if asked.with_offload {
        crate::udp::rows::with_offload(&mut rows);
    }
    add_again(&mut rows, None);
    let mut bench = Limited::default();
    let mut results = Results::new(vec![], Machine::default(), rows, asked.loads());
    let settings = Settings { depth: asked.depth, rounds: None, budget_s: None, is_bound: false };
    run(&mut bench, &mut results, &settings, &mut |_| {});
    (results, bench)
}

#[test]
fn the_search_over_rising_load_closes_in_on_what_a_row_takes() {
    let sweeps = vec![plan::Sweep::Load];
    let asked = plan::Asked { sweeps, ..plan::Asked::new(Depth::Standard, Load::saturation(64)) };
    let (results, bench) = limited(&asked, vec![Row::parse("blocking").unwrap()]);
    let like = &results.loads[0];
    for goal in [plan::Goal::NoDrop, plan::Goal::PartialDrop] {
        match curve::highest_of(&results, like, 0, goal) {
            curve::Highest::Between(good, bad) => {
                assert!(good <= TAKES_PER_S * 1.006 && TAKES_PER_S < bad, "{good} to {bad}");
                // Shares are an eighth apart at most, and are halved twice.
                assert!(bad - good <= 1e6 / 8.0 / 4.0 + 1.0, "{good} to {bad}");
            }
            other => panic!("{other:?}"),
        }
    }
    let good = curve::highest_of(&results, like, 0, plan::Goal::PartialDrop).good().unwrap();
    let tenth = (good * 0.1).round() as u64;
    let asked_for = |rate| bench.runs.iter().any(|(_, _, asked)| *asked == Some(rate));
    assert!(asked_for(tenth), "a tenth of {good} of {:?}", bench.runs);
    assert_eq!(results.exit_code(), 0, "{:?}", results.warnings);
}

#[test]
fn rows_with_receive_offload_run_with_it_in_the_same_rounds_and_where_they_are_asked_for() {
    let base = Load::saturation(64);
    let asked = plan::Asked {
        with_offload: true,
        sizes_bytes: vec![64, 1024],
        works: vec![Default::default(), "500".parse().unwrap()],
        ..plan::Asked::new(Depth::Quick, base)
    };
    let (results, bench) = limited(&asked, vec![Row::parse("blocking").unwrap()]);
    assert_eq!(bench.calibrated, [(64, false), (64, true), (1024, false), (1024, true)]);
    for (title, offloaded, _) in &bench.runs {
        assert_eq!(title.contains("(offload)"), *offloaded, "{title}");
    }
    let samples = |load: usize| -> Vec<usize> {
        results.cells[load].iter().map(|cell| cell.samples.len()).collect()
    };
    assert_eq!(samples(0), [3, 3, 3, 3], "each with and without, and both under two names");
    assert_eq!(samples(2), [3, 0, 3, 0], "other work tells nothing of receive offload");
    assert_eq!(
        results.own.checked.as_ref().unwrap().sizes_bytes,
        [1024],
        "the longest was checked"
    );
    let gains = crate::udp::offload::of_load(&results, 0).unwrap();
    let ratio = gains.designs[0].ratio.ratio().unwrap().median;
    assert!((ratio - 10.0).abs() < 1e-9, "{ratio}");
    assert_eq!(results.exit_code(), 0, "{:?}", results.warnings);
}

#[test]
fn a_row_for_a_sweep_over_threads_runs_there_only() {
    let asked = plan::Asked {
        sweeps: vec![plan::Sweep::Threads],
        sizes_bytes: vec![64, 1024],
        ..plan::Asked::new(Depth::Quick, Load::saturation(64))
    };
    let row = Row::parse("blocking --threads 1").unwrap();
    let swept = Row { only_swept: true, ..row.on_threads(2) };
    let (results, _) = limited(&asked, vec![row, swept]);
    let samples = |load: usize| -> Vec<usize> {
        results.cells[load].iter().map(|cell| cell.samples.len()).collect()
    };
    assert_eq!((samples(0), samples(1)), (vec![3, 3, 3], vec![3, 0, 3]));
    assert_eq!(results.again(false), Some((0, 2)), "an ordinary row shows the noise");
}

/// The paced load alone, by a bench that disturbs "a" so.
fn disturbed(bench: Simulated) -> (Results, Simulated) {
    let load = Load::saturation(64).at(Rate::PerSecond(50_000));
    experiment_on(bench, &["b", "a"], vec![load], Depth::Standard)
}

const A: usize = 1;

/// No more of the runs of "a" were made again than a quarter of the rounds that were planned.
fn assert_few_repeats(results: &Results, bench: &Simulated) {
    let rounds = results.cells[0][A].standing().count();
    let most = results.schedules[0].unwrap().rounds as usize / 4;
    assert!(bench.paced <= rounds + most, "{} runs for {rounds}", bench.paced);
}

#[test]
fn a_row_that_was_disturbed_once_keeps_its_rank() {
    let once = |n: usize| n == 3;
    let (results, _) = disturbed(Simulated { late: Some(once), ..Simulated::default() });
    assert_eq!(results.unranked(0, A), None);
    let cell = &results.cells[0][A];
    let replaced: Vec<&Sample> = cell.samples.iter().filter(|s| s.when.replaced).collect();
    assert!(!replaced.is_empty(), "both are kept");
    let late = |s: &&Sample| s.when.disturbed == Some(Disturbance::PaceNotKept);
    assert!(replaced.iter().all(late) && !cell.standing().any(|s| late(&s)));
    assert_eq!(results.exit_code(), 0);
    let (results, _) = disturbed(Simulated { loses: Some(once), ..Simulated::default() });
    assert_eq!(results.unranked(0, A), None, "one stall of the machine");
    assert_eq!(results.cells[0][A].standing().filter(|s| s.when.attempt == 2).count(), 1);
}

#[test]
fn a_row_that_alone_makes_the_generator_late_every_second_time_is_not_asked_until_it_does_not() {
    let every_second = |n: usize| n % 2 == 1;
    let (results, bench) =
        disturbed(Simulated { late: Some(every_second), ..Simulated::default() });
    assert!(results.unranked(0, A).unwrap().contains("kept its pace in 98 %"));
    let cell = &results.cells[0][A];
    assert!(cell.standing().all(|sample| sample.when.attempt == 1));
    assert_few_repeats(&results, &bench);
}

#[test]
fn a_row_that_is_always_disturbed_has_no_rank_and_still_stands_in_the_table_by_its_figure() {
    let (mut results, _) = disturbed(Simulated { late: Some(|_| true), ..Simulated::default() });
    assert!(results.unranked(0, A).unwrap().contains("kept its pace in 98 %"));
    let text = crate::report::table::report(&results, 200);
    assert!(text.contains("disturbed runs were repeated ("), "{text}");
    // Both rows without a rank: in the order of their figures.
    for sample in results.cells[0].iter_mut().flat_map(|cell| &mut cell.samples) {
        sample.pace_kept = Some(0.98);
        sample.latency_ns = Some(crate::wire::Latency { p50: 9000, ..Default::default() });
    }
    for sample in &mut results.cells[0][A].samples {
        sample.latency_ns = Some(crate::wire::Latency { p50: 5000, ..Default::default() });
    }
    let text = crate::report::table::report(&results, 200);
    let at = |name: &str| text.lines().position(|line| line.starts_with(name)).unwrap();
    assert!(at("a ") < at("b "), "{text}");
}

#[test]
fn what_a_row_loses_again_is_its_own() {
    for which in [|_: usize| true, |n: usize| n % 2 == 1] {
        let (results, bench) = disturbed(Simulated { loses: Some(which), ..Simulated::default() });
        assert!(results.unranked(0, A).unwrap().contains("was lost"), "{:?}", results.cells[0][A]);
        assert_few_repeats(&results, &bench);
    }
}

#[test]
fn repeats_keep_to_the_time_and_wrong_data_are_never_repeated() {
    let rows = ["a", "b"].map(|design| Row::parse(design).unwrap()).to_vec();
    let load = Load::saturation(64).at(Rate::PerSecond(50_000));
    let mut results = Results::new(vec![], Machine::default(), rows, vec![load]);
    let settings =
        Settings { depth: Depth::Standard, rounds: None, budget_s: Some(9.0), is_bound: true };
    let mut bench = Simulated { late: Some(|_| true), ..Simulated::default() };
    run(&mut bench, &mut results, &settings, &mut |_| {});
    assert!(bench.clock_s <= 9.0 && results.has_figures(), "{}", bench.clock_s);
    let mut empty = Sample::of(&Circumstances::default(), &server(), &flood());
    empty.received_per_s = Some(0.0);
    empty.ledger.received = empty.ledger.sent;
    empty.ledger.dropped_socket = Some(0);
    let flood_load = Load::saturation(64);
    assert_eq!(disturbance(&empty, &flood_load), Some(Disturbance::PaceNotKept));
    let held = plan::Held::No;
    let burst = flood_load.at(Rate::Burst { datagrams: 5000, held });
    assert_eq!(disturbance(&empty, &burst), None, "it was over within a reading");
    empty.received_per_s = Some(1.0);
    assert_eq!(disturbance(&empty, &flood_load), None);
    // The server had no core, and what its socket did not hold was lost.
    empty.ledger.received -= empty.ledger.sent / 2;
    empty.ledger.dropped_socket = Some(empty.ledger.sent - empty.ledger.received);
    assert_eq!(disturbance(&empty, &flood_load), None, "more was offered than it took");
    empty.received_per_s = Some(0.0);
    assert_eq!(disturbance(&empty, &flood_load), Some(Disturbance::NothingTaken));
    assert_eq!(disturbance(&empty, &load), Some(Disturbance::NothingTaken));
    assert_eq!(disturbance(&empty, &burst), None);
    empty.received_per_s = None;
    assert_eq!(disturbance(&empty, &flood_load), None, "a peer has not told a rate");
    let mut wrong = Sample::of(&Circumstances::default(), &server(), &flood());
    wrong.pace_kept = Some(0.5);
    wrong.ledger.received = wrong.ledger.sent;
    wrong.ledger.dropped_socket = Some(0);
    assert_eq!(disturbance(&wrong, &load), Some(Disturbance::PaceNotKept));
    // What may be the row's own is not forgiven for the generator's sake.
    wrong.ledger.received -= wrong.ledger.sent / 100;
    wrong.ledger.dropped_socket = Some(wrong.ledger.sent / 100);
    assert_eq!(disturbance(&wrong, &load), Some(Disturbance::Lost));
    wrong.ledger.dropped_socket = Some(0);
    assert_eq!(disturbance(&wrong, &load), Some(Disturbance::Unbalanced));
    wrong.audit.corrupt = 1;
    assert_eq!(disturbance(&wrong, &load), None);
}

/// Contradicts what a peer says in one run, whose account does not balance either, as what it invents seldom does.
fn disproved(sample: &mut Sample) {
    sample.belief = Some(Belief::Disproved("it chose a mask".into()));
    sample.ledger.received -= 1000;
}

#[test]
fn a_peer_that_was_contradicted_is_not_asked_again() {
    let paced = Load::saturation(64).at(Rate::PerSecond(50_000));
    for load in [paced, Load::saturation(64)] {
        let mut sample = Sample::of(&Circumstances::default(), &server(), &flood());
        (sample.pace_kept, sample.when.core_to_core_ns) = (Some(0.5), Some(27.0));
        sample.when.core_to_core_after_ns = Some(170.0);
        assert!(disturbance(&sample, &load).is_some());
        disproved(&mut sample);
        assert_eq!(disturbance(&sample, &load), None);
    }
}

#[test]
fn a_contradicted_attempt_makes_the_row_invalid_whatever_stands_in_its_place() {
    let (mut results, _) = disturbed(Simulated { late: Some(|n| n == 3), ..Simulated::default() });
    assert_eq!(results.exit_code(), 0);
    let cell = &mut results.cells[0][A];
    let first = cell.samples.iter_mut().find(|sample| sample.when.replaced).unwrap();
    disproved(first);
    assert!(
        cell.standing().all(|sample| sample.invalid().is_none()),
        "the second attempt is clean"
    );
    assert_eq!(cell.invalid().as_deref(), Some("it chose a mask"));
    assert_eq!((results.is_invalid(0, A), results.exit_code()), (true, exit::DATA_ERRORS));
    // So do wrong data that became the second attempt of a round in which the first one stands.
    let first = results.cells[0][A].samples.iter_mut().find(|sample| sample.when.replaced).unwrap();
    (first.belief, first.audit.corrupt) = (None, 1);
    assert_eq!(results.exit_code(), exit::DATA_ERRORS);
}

#[test]
fn a_check_into_which_others_may_have_sent_is_made_again_once() {
    let with = |strays| {
        let bench = Simulated { strays, ..Simulated::default() };
        experiment_on(bench, &["a"], vec![Load::saturation(64)], Depth::Quick).0
    };
    let once = with(1);
    assert_eq!(once.conformance[0], Conformance::Passed);
    let said = once.warnings.iter().find(|w| w.contains("was repeated")).unwrap();
    assert!(said.contains("beside 1 datagram of strangers"), "{said}");
    let Conformance::Failed(reason) = &with(2).conformance[0] else { panic!("it must fail") };
    assert!(reason.contains("strangers"), "{reason}");
}

#[test]
fn the_kernel_counts_entries_in_a_run_of_its_own_where_a_row_leaves_some_out() {
    for can_count in [true, false] {
        let bench = Simulated { can_count, ..Simulated::default() };
        let loads = vec![Load::saturation(64)];
        let (results, bench) = experiment_on(bench, &["counts", "parks"], loads, Depth::Quick);
        let [counts, parks] = [&results.cells[0][0], &results.cells[0][1]];
        assert_eq!(parks.entries_counted, can_count.then_some(7000.0));
        assert_eq!((counts.entries_counted, counts.counts_all_entries()), (None, true));
        assert_eq!(parks.counts_all_entries(), can_count);
        assert!(parks.samples.iter().all(|sample| sample.kernel_entries_per_1000 == Some(2.0)));
        assert!(!bench.counts);
    }
}
