//! How often the ranking is right, in 200 experiments of each kind whose truth is known. The benchmark of the same name
//! makes 2000, and more kinds (`cargo bench -p weir-lab --bench ranking`).
//!
//! Everything is made up but the noise, and drawn from fixed seeds: the figures are the same on any machine.

#[path = "../benches/ranking/simulation.rs"]
mod simulation;

use simulation::{Rates, Recording, rates, recordings};
use weir_lab::experiment::plan::{Depth, Settings};

const EXPERIMENTS: u64 = 200;

fn recording(name: &str) -> Recording {
    let mut all = recordings(include_str!("../benches/ranking/noise.txt")).into_iter();
    all.find(|recording| recording.name == name).expect("it is recorded")
}

fn made(name: &str, depth: Depth, rows: usize, planted: f64) -> Rates {
    let of = rates(&recording(name), Settings::new(depth), rows, planted, EXPERIMENTS);
    println!(
        "{name}, {depth:?}, {rows} rows, {} rounds, {} % planted: {} % false, {} % all tied, {} % found, {} % open",
        of.rounds,
        planted * 100.0,
        of.is_false,
        of.all_tie,
        of.is_found,
        of.is_open
    );
    of
}

/// What is promised of rows that are equally good.
fn finds_nothing(of: &Rates) {
    assert!(of.is_false <= 5.0, "{} % of experiments have a false winner", of.is_false);
    assert!(of.all_tie >= 95.0, "{} % of experiments are a tie", of.all_tie);
}

#[test]
fn of_two_equal_rows_none_wins() {
    finds_nothing(&made("udp", Depth::Standard, 2, 0.0));
    finds_nothing(&made("tcp", Depth::Full, 2, 0.0));
}

#[test]
fn of_five_equal_rows_none_wins() {
    finds_nothing(&made("iops", Depth::Standard, 5, 0.0));
    finds_nothing(&made("iops-2", Depth::Full, 5, 0.0));
}

#[test]
fn where_others_take_most_of_the_machine_no_equal_row_wins() {
    let of = made("busy", Depth::Standard, 5, 0.0);
    assert!(of.is_false <= 5.0, "{} % of experiments have a false winner", of.is_false);
    assert!(of.is_open > 50.0, "mostly nothing is compared at all");
}

#[test]
fn the_whole_study_finds_three_percent_on_a_quiet_machine() {
    let of = made("udp", Depth::Full, 5, 0.03);
    assert!(of.is_found >= 90.0, "{} % of experiments found it", of.is_found);
    assert!(of.is_false <= 5.0, "{} % of experiments have a false winner", of.is_false);
}

#[test]
fn a_small_difference_is_rarely_claimed_of_the_wrong_row() {
    assert!(made("udp", Depth::Full, 5, 0.01).is_false <= 5.0);
    assert!(made("iops", Depth::Standard, 5, 0.1).is_false <= 5.0);
}

#[test]
fn the_first_look_claims_nothing() {
    let of = made("iops", Depth::Quick, 5, 0.1);
    assert_eq!((of.is_false, of.is_found, of.is_open), (0.0, 0.0, 100.0));
}
