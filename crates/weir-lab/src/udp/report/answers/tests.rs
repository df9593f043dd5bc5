use super::*;
use crate::udp::report::fixture;

fn said(results: &Results, question: &str) -> String {
    let all = all(results);
    let answer = all.iter().find(|answer| answer.question.contains(question));
    answer.unwrap_or_else(|| panic!("{question} is no question of {all:?}")).sentences.join(" ")
}

#[test]
fn registered_io_is_worth_what_the_best_with_it_has_over_the_best_without() {
    let said = said(&fixture::results(), "registered I/O");
    assert!(
        said.starts_with(
            "Yes, the best design with it is faster than the best without at: saturation"
        ),
        "{said}"
    );
    assert!(said.contains("rio-hybrid --threads 1 on uring: 1.55 times"), "{said}");
    assert!(said.contains("the datagrams of blocking"), "{said}");
    assert!(
        said.contains("paced at 50000/s") && said.contains("lower median latency than blocking"),
        "{said}"
    );
}

#[test]
fn what_was_not_measured_is_said_to_be_so() {
    let mut results = fixture::results();
    for row in [2, 3] {
        results.cells.iter_mut().for_each(|cells| cells[row].samples.clear());
    }
    assert!(said(&results, "registered I/O").starts_with("Not measured"), "no rio row is left");
    assert!(said(&results, "threads").starts_with("Not measured"));
    results.loads.truncate(1);
    assert!(said(&results, "polling").starts_with("Not measured"));
    let questions: Vec<&str> = all(&results).iter().map(|answer| answer.question).collect();
    assert_eq!(questions.len(), 3, "no sweep, no offload: {questions:?}");
}

#[test]
fn a_difference_within_the_noise_is_no_yes() {
    let mut results = fixture::results();
    for row in [2, 3, 4] {
        for sample in &mut results.cells[0][row].samples {
            sample.received_per_s = sample.received_per_s.map(|rate| rate / 2.05 * 1.325);
        }
    }
    let said = said(&results, "registered I/O");
    assert!(said.contains("Within the noise at: saturation"), "{said}");
}

#[test]
fn polling_costs_a_core_and_buys_latency() {
    let mut results = fixture::results();
    for row in [3, 4] {
        for sample in &mut results.cells[1][row].samples {
            sample.server_cpu = Some(0.99);
        }
    }
    let said = said(&results, "polling");
    assert!(said.contains("(rio-hybrid --threads 1 on uring) keep 0.99 of a core"), "{said}");
    assert!(said.contains("Busy-polling costs 0.74 of a core more"), "{said}");
    assert!(said.contains("a latency 3.62 times"), "{said}");
    let mut of_a_peer = results;
    for row in [3, 4] {
        of_a_peer.rows[row] = crate::experiment::plan::Row::parse_peer("spins=x").unwrap();
    }
    assert!(
        super::polling(&of_a_peer).join(" ").starts_with("Not measured"),
        "a peer is no design"
    );
    // Where nobody keeps a core busy, nobody polls.
    let waits = super::polling(&fixture::results()).join(" ");
    assert!(waits.starts_with("Not measured"), "{waits}");
}

#[test]
fn receive_offload_is_told_by_the_best_rows_and_the_traditional_one() {
    let said = said(&fixture::with_offload(), "receive offload");
    assert!(said.contains("rio-hybrid --threads 1 (offload) on uring, is 10.0 times"), "{said}");
    assert!(said.contains("the best without; it is 26.6 times"), "{said}");
    assert!(said.contains("port (original)"), "{said}");
}

#[test]
fn the_highest_rates_come_from_the_sweep_over_the_load() {
    use crate::udp::curve::tests::offered;
    let mut results = fixture::results();
    let base = Load::saturation(64);
    let goal = Goal::NoDrop;
    results.loads = vec![
        base.at(Rate::OfMaximum(0.5)).as_step(),
        base.at(Rate::Search { goal, step: 1 }).as_step(),
    ];
    results.cells = vec![vec![Default::default(); results.rows.len()]; 2];
    for (row, lost) in [(1, 0.1), (3, 0.001)] {
        for (load, (rate, lost)) in [(1e6, 0.0), (1.5e6, lost)].into_iter().enumerate() {
            results.cells[load][row].samples =
                (0..3).map(|block| offered(block, rate + row as f64, lost)).collect();
        }
    }
    let said = said(&results, "without loss");
    assert!(said.contains("no-drop rate"), "{said}");
    let partial = said.split("The highest partial-drop rate").nth(1).unwrap();
    assert!(partial.contains("rio-hybrid --threads 1 on uring with at least 1.50 M/s"), "{said}");
    assert!(partial.contains("then blocking 1.00 M"), "{said}");
}
