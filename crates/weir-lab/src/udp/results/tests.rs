use super::*;
use crate::experiment::cell::{Conformance, Skipped, Status};
use crate::experiment::cell::{MOST_FAILURES_KEPT, When};
use crate::experiment::verdict::{Limit, Verdict};
use crate::machine::Machine;
use crate::udp::sample::tests::{flood, server};
use crate::udp::sample::{Circumstances, THREADS_USED};

fn results(designs: &[&str]) -> Results {
    let rows = designs.iter().map(|design| Row::parse(design).unwrap()).collect();
    Results::new(vec![], Machine::default(), rows, vec![Load::saturation(64)])
}

fn sample(block: u32) -> Sample {
    let at = Circumstances {
        when: When::in_block(block),
        server_cores: 1,
        generator_cores: 1,
        ..Circumstances::default()
    };
    Sample::of(&at, &server(), &flood())
}

#[test]
fn a_row_without_figures_says_why() {
    let mut results = results(&["epoll", "port"]);
    assert_eq!(results.status(0, 0), Status::NotMeasured);
    assert!(results.unranked(0, 0).unwrap().contains("before its first run"));
    results.cells[0][0].had_no_time();
    assert_eq!(results.status(0, 0), Status::NotMeasured);
    assert!(results.unranked(0, 0).unwrap().contains("no time for a run of it"));
    results.cells[0][0].skipped = Some(Skipped::Unavailable("it has one port".into()));
    assert_eq!(results.status(0, 0), Status::Unavailable);
    results.conformance[0] = Conformance::Failed("1 damaged".into());
    assert_eq!(results.status(0, 0), Status::Failed);
    results.conformance[0] = Conformance::Passed;
    results.cells[0][0].failed("the server crashed".into());
    assert_eq!(results.status(0, 0), Status::Failed);
    assert_eq!(results.unranked(0, 0).unwrap(), "the server crashed");
    results.rows[1].unavailable = Some("io_uring is forbidden".into());
    assert_eq!(results.status(0, 1), Status::Unavailable);
    assert_eq!(results.unranked(0, 1).unwrap(), "io_uring is forbidden");
    assert!(!results.has_figures());
}

#[test]
fn only_whole_and_balanced_rows_are_ranked() {
    let mut results = results(&["epoll"]);
    results.cells[0][0].samples = vec![sample(0), sample(1)];
    assert_eq!((results.unranked(0, 0), results.status(0, 0)), (None, Status::Ok));
    assert!(!results.has_invalid_runs());

    // 1000 of 600,000 are more than may stay unexplained of one run, and less than may of a
    // sum of three; a second run that errs the other way would even hide them.
    for wrong in [[1000, 0], [-1000, 0], [1000, -1000]] {
        results.cells[0][0].samples = vec![sample(0), sample(1), sample(2)];
        for (sample, lost) in results.cells[0][0].samples.iter_mut().zip(wrong) {
            sample.ledger.received = sample.ledger.received.saturating_add_signed(-lost);
        }
        assert!(results.unranked(0, 0).unwrap().contains("ledger"), "{wrong:?}");
        assert!(results.has_invalid_runs());
    }

    results.cells[0][0].samples = vec![sample(0), sample(1)];
    results.cells[0][0].samples[1].slices_missing = 2;
    assert!(
        results
            .unranked(0, 0)
            .unwrap()
            .contains("slices that did not come back from the kernel: 2")
    );
    assert!(results.has_invalid_runs());

    results.cells[0][0].samples[1] = sample(1);
    results.cells[0][0].samples[1].audit.corrupt = 1;
    assert!(results.unranked(0, 0).unwrap().contains("1 damaged"));

    results.cells[0][0].samples.truncate(1);
    results.conformance[0] = Conformance::Failed("lost 3".into());
    assert!(results.unranked(0, 0).unwrap().contains("lost 3"));
    assert_eq!(results.status(0, 0), Status::Ok);
}

#[test]
fn a_paced_load_that_is_ranked_by_what_arrives_ranks_who_loses() {
    let mut results = results(&["epoll"]);
    results.loads[0] = Load { rate: Rate::PerSecond(1000), ..Load::saturation(64) };
    results.cells[0][0].samples = vec![sample(0), sample(1)];
    for sample in &mut results.cells[0][0].samples {
        sample.pace_kept = Some(1.0);
        sample.ledger.received -= 1000;
        sample.ledger.dropped_socket = sample.ledger.dropped_socket.map(|dropped| dropped + 1000);
    }
    assert!(results.unranked(0, 0).unwrap().contains("was lost"));
    results.loads[0].over_hosts = true;
    assert_eq!(results.unranked(0, 0), None);
}

#[test]
fn reasons_of_failure_are_kept_once_and_bounded() {
    let mut cell: Cell = Cell::default();
    for n in 0..20 {
        cell.failed(format!("reason {n}"));
        cell.failed(format!("reason {n}"));
    }
    assert_eq!((cell.failures.len(), cell.failed_runs), (MOST_FAILURES_KEPT, 40));
}

#[test]
fn figures_of_a_cell() {
    let mut cell = Cell::default();
    assert_eq!((cell.ledger(), cell.verdict()), (None, None));
    cell.samples = vec![sample(0), sample(1), sample(2)];
    assert_eq!(cell.ledger().unwrap().sent, 1_800_000);
    assert_eq!(cell.estimate(&THREADS_USED, 1).unwrap().median, 2.0);
    assert_eq!(cell.readings(&RECEIVED)[2].block, 2);
}

#[test]
fn a_time_when_the_machine_was_another_does_not_count() {
    let mut results = results(&["epoll", "port"]);
    for (row, times) in [(0, [27.0, 28.0, 170.0, 30.0]), (1, [27.0, 170.0, 170.0, 29.0])] {
        for (block, time) in times.into_iter().enumerate() {
            let mut sample = sample(block as u32);
            sample.when.core_to_core_ns = Some(time);
            results.cells[0][row].samples.push(sample);
        }
    }
    results.count_only_alike();
    let counted = |row: usize| {
        results.cells[0][row].samples.iter().map(|s| s.when.counted).collect::<Vec<_>>()
    };
    assert_eq!(counted(0), [true, true, false, true]);
    assert_eq!(counted(1), [true; 4], "two samples would be too few");
    assert_eq!(results.unranked(0, 0), None);
    assert!(results.unranked(0, 1).unwrap().contains("the machine changed"));
    assert_eq!(results.invalid(0, 1), None);
    assert_eq!(results.cells[0][0].values(&RECEIVED).len(), 3);
}

#[test]
fn a_sample_that_does_not_count_is_in_no_figure_and_still_must_be_whole() {
    let mut results = results(&["epoll"]);
    results.loads[0].rate = Rate::PerSecond(50_000);
    let mut samples: Vec<Sample> = (0..4).map(sample).collect();
    for sample in &mut samples {
        sample.ledger.received += sample.ledger.dropped();
        sample.ledger.dropped_socket = Some(0);
        sample.pace_kept = Some(1.0);
    }
    let verdict = |limited_by| Verdict { limited_by, lower_bound: false, reason: "r".into() };
    samples.iter_mut().for_each(|s| s.verdict = verdict(Limit::Server));
    // What another machine lost, and what limited it there.
    for sample in &mut samples[..3] {
        sample.when.counted = false;
        sample.ledger.received -= 10_000;
        sample.ledger.dropped_socket = Some(10_000);
        sample.pace_kept = Some(0.5);
        sample.verdict = verdict(Limit::Memory);
    }
    results.cells[0][0].samples = samples;
    let cell = &results.cells[0][0];
    assert_eq!(cell.ledger().unwrap().sent, 600_000);
    assert_eq!(cell.verdict().unwrap().limited_by, Limit::Server);
    assert_eq!(results.unranked(0, 0), None);
    results.cells[0][0].samples[3].when.counted = false;
    assert_eq!((results.cells[0][0].ledger(), results.cells[0][0].verdict()), (None, None));
    results.cells[0][0].samples[3].when.counted = true;

    results.cells[0][0].samples[0].ledger.received -= 50_000;
    assert!(results.unranked(0, 0).unwrap().contains("ledger"));
}

#[test]
fn busy_polling_of_nothing_is_warned_of() {
    let mut results = results(&["epoll"]);
    results.cells[0][0].samples = vec![sample(0), sample(1)];
    assert!(nothing_polled(&results).is_empty());
    let settings = |results: &mut Results, queues: &str| {
        for sample in &mut results.cells[0][0].samples {
            sample.settings.insert(POLLED_QUEUES.into(), queues.into());
        }
    };
    settings(&mut results, "8193, 8194");
    assert!(nothing_polled(&results).is_empty());
    settings(&mut results, "none: no datagram has come by one");
    let warnings = nothing_polled(&results);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains(" in 2 of 2 runs") && warning.contains("loopback"), "{warning}");
}

#[test]
fn a_busy_machine_is_warned_of() {
    let mut results = results(&["epoll"]);
    assert!(results.busy_machine().is_none());
    for (block, load) in [0.02, 0.5, 0.6, 0.01].into_iter().enumerate() {
        let mut sample = sample(block as u32);
        sample.when.load_of_others = Some(load);
        results.cells[0][0].samples.push(sample);
    }
    let warnings = Vec::from_iter(results.busy_machine());
    assert!(
        warnings[0].starts_with(
            "other programs used 26 % of the CPU (median; more than 10 % in 2 of 4 runs)"
        ),
        "{warnings:?}"
    );
    results.cells[0][0].samples.iter_mut().for_each(|s| s.when.load_of_others = Some(0.05));
    assert!(results.busy_machine().is_none());
}

#[test]
fn different_buffers_are_warned_of() {
    let mut results = results(&["epoll", "port"]);
    for (row, bytes) in ["212992", "425984"].iter().enumerate() {
        let mut sample = sample(0);
        sample.settings.insert("receive-buffer-bytes".into(), (*bytes).into());
        results.cells[0][row].samples.push(sample);
    }
    let warnings = unequal_settings(&results);
    assert_eq!(
        warnings,
        ["rows ran under different receive-buffer-bytes: 212992 (epoll), 425984 (port)"]
    );
    results.cells[0].pop();
    assert!(unequal_settings(&results).is_empty());
    // A difference in a later load, and one of the generator, are seen as well.
    let mut other = sample(1);
    other.settings.insert("receive-buffer-bytes".into(), "212992".into());
    other.engine = Some("sendmmsg".into());
    results.cells.push(vec![Cell { samples: vec![other], ..Cell::default() }]);
    let warnings = unequal_settings(&results);
    assert!(warnings[0].contains("engine: gso (epoll), sendmmsg (epoll)"), "{warnings:?}");
}

#[test]
fn a_run_on_another_machine_than_the_calibrations_is_warned_of() {
    let mut results = results(&["epoll"]);
    let calibration = Calibration {
        receive_offload: false,
        size_bytes: 64,
        flows: 1,
        generators: 1,
        sent_per_s: 2e6,
        core_to_core_ns: Some(27.0),
        core_to_core_after_ns: Some(30.0),
    };
    assert!(calibration.is_alike(Some(28.0)) && !calibration.is_alike(Some(170.0)));
    let changed = Calibration { core_to_core_after_ns: Some(170.0), ..calibration };
    assert!(!changed.is_alike(Some(28.0)), "it was two machines itself");
    results.own.calibrations.push(calibration);
    for (block, alike) in [Some(true), None, Some(true)].into_iter().enumerate() {
        let mut sample = sample(block as u32);
        sample.calibration_alike = alike;
        results.cells[0][0].samples.push(sample);
    }
    assert!(unlike_calibration(&results).is_empty());
    results.cells[0][0].samples[1].calibration_alike = Some(false);
    let warnings = unlike_calibration(&results);
    assert!(warnings[0].starts_with("in 1 of 3 runs") && warnings[0].contains("27 ns"));
}
