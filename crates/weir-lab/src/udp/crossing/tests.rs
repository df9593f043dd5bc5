use super::*;
use crate::experiment::cell::Conformance;
use crate::experiment::cell::When;
use crate::experiment::plan::add_again;
use crate::machine::Machine;
use crate::udp::plan::{Load, Takes, Work};
use crate::udp::sample::tests::{flood, server};
use crate::udp::sample::{Circumstances, Sample};

const STEPS: [u32; 4] = [0, 100, 500, 2000];

/// Rows whose nanoseconds per datagram are `cost + slope * steps`, under loads of rising work; the
/// first runs under two names, which differ by 1 %.
fn results(rows: &[(&str, f64, f64)], shared: bool) -> Results {
    let takes = Takes { threads: true, ..Takes::default() };
    let load = |steps| Load { work: Work { steps, shared }, takes, ..Load::saturation(64) };
    let mut all: Vec<Row> = rows.iter().map(|(spec, ..)| Row::parse(spec).unwrap()).collect();
    add_again(&mut all, Some(0));
    let mut results = Results::new(vec![], Machine::default(), all, STEPS.map(load).to_vec());
    for row in 0..results.rows.len() {
        results.conformance[row] = Conformance::Passed;
        let (_, cost, slope) = rows[row % rows.len()];
        for (index, steps) in STEPS.into_iter().enumerate() {
            for (block, common) in [1.0, 0.6, 1.1, 0.9, 0.7, 0.8, 1.0].into_iter().enumerate() {
                let at = Circumstances {
                    when: When::in_block(block as u32),
                    ..Circumstances::default()
                };
                let mut sample = Sample::of(&at, &server(), &flood());
                let waver = if row >= rows.len() && block % 2 == 0 { 1.01 } else { 1.0 };
                let rate = 1e9 / (cost + slope * f64::from(steps));
                sample.received_per_s = Some(rate * common * waver);
                results.cells[index][row].samples.push(sample);
            }
        }
    }
    results
}

#[test]
fn a_design_that_is_cheaper_for_itself_is_overtaken_where_the_work_weighs_more() {
    // 500 + s against 620 + 0.8 s: equal at 600 steps.
    let results = results(&[("blocking", 500.0, 1.0), ("epoll", 620.0, 0.8)], false);
    let sweeps = over_work(&results);
    assert_eq!(sweeps.len(), 1, "nothing was shared");
    assert_eq!(sweeps[0].axis, Axis::Work { shared: false });
    let crossings = sweeps[0].crossings(&results);
    assert_eq!(crossings.len(), 1);
    let crossing = &crossings[0];
    assert_eq!((crossing.before, crossing.after, crossing.real), (0, 1, true));
    assert_eq!(crossing.between, (500.0, 2000.0));
    assert!((500.0..900.0).contains(&crossing.at), "{}", crossing.at);
    assert_eq!(sweeps[0].best(&results, 0), Some(0));
    assert_eq!(sweeps[0].best(&results, 3), Some(1));
}

#[test]
fn a_lead_that_changes_within_the_noise_is_said_to_be_that() {
    // Half a percent either way, where one row differs from itself by one percent.
    let results = results(&[("blocking", 500.0, 1.0), ("epoll", 502.5, 0.996)], false);
    let crossings = over_work(&results)[0].crossings(&results);
    assert_eq!(crossings.len(), 1);
    assert!(!crossings[0].real, "{crossings:?}");
}

#[test]
fn rows_that_keep_their_order_do_not_cross_and_one_load_is_no_sweep() {
    let results = results(&[("blocking", 500.0, 1.0), ("epoll", 620.0, 1.0)], true);
    let sweeps = over_work(&results);
    assert_eq!(sweeps[0].axis, Axis::Work { shared: true });
    assert_eq!(sweeps[0].crossings(&results), []);
    let mut one = results.clone();
    one.loads.truncate(1);
    assert!(over_work(&one).is_empty());
}

#[test]
fn a_row_that_was_not_ranked_somewhere_stands_there_without_a_figure() {
    let mut results = results(&[("blocking", 500.0, 1.0), ("epoll", 620.0, 0.8)], false);
    results.cells[2][1].samples.clear();
    results.cells[2][1].failed("it crashed".into());
    let sweep = &over_work(&results)[0];
    assert_eq!(sweep.stops[2].rows, [Some(0), None]);
    assert_eq!(sweep.median(&results, 2, 1), None);
    assert_eq!(sweep.crossings(&results)[0].between, (100.0, 2000.0));
}

#[test]
fn numbers_of_threads_of_one_design_are_a_sweep() {
    let rows = [
        ("rio-port --provider uring --threads 1", 500.0, 1.0),
        ("rio-port --provider uring --threads 8", 1000.0, 0.4),
        ("rio-hybrid --provider uring --threads 1", 510.0, 1.2),
        ("rio-hybrid --provider uring --threads 2", 700.0, 0.7),
        ("blocking", 600.0, 1.0),
    ];
    let results = results(&rows, false);
    let sweeps = over_threads(&results);
    assert_eq!(sweeps.len(), STEPS.len(), "one for each load");
    let sweep = &sweeps[0];
    assert_eq!(
        sweep.names,
        ["rio-port on uring", "rio-hybrid on uring"],
        "blocking states no threads"
    );
    let at: Vec<f64> = sweep.stops.iter().map(|stop| stop.at).collect();
    assert_eq!(at, [1.0, 2.0, 8.0]);
    assert_eq!(sweep.stops[1].rows, [None, Some(3)]);
    assert!(sweep.crossings(&results).is_empty(), "they have one number in common");
}
