//! How often the loads of UDP run, and the time that takes.

use super::{Load, Rate, Shown, Takes};
use crate::experiment::plan::Depth;
use crate::experiment::plan::budget::{FEWEST_ROUNDS, QUICK_S, STANDARD_S};
use crate::stats::bootstrap;

/// Rounds of a step of a sweep over the load: only losses and latencies are taken from it, and
/// the highest rate of a row is approached in many steps.
const ROUNDS_OF_A_PACED_STEP: u32 = FEWEST_ROUNDS;
/// Rounds of a step of a sweep over work or threads: one more than an interval needs.
const ROUNDS_OF_A_STEP: u32 = bootstrap::FEWEST_SAMPLES as u32 + 1;

/// Rounds of a burst: what a design takes of one is a count that hardly varies.
const ROUNDS_OF_A_BURST: u32 = 5;

/// Rounds of a table at saturation of the whole study: on a quiet machine so many find a difference of 3 % among 16 rows
/// in nine of ten experiments (`benches/ranking`).
const ROUNDS_OF_THE_STUDY: u32 = 25;

/// How much longer it takes where servers that answer are compared beside sinks.
pub const WITH_ANSWERS: f64 = 1.5;

/// Seconds of the first look and of the table within two minutes, where no more than usual was asked for.
pub fn usual_s(depth: Depth, loads: &[Load]) -> Option<f64> {
    let ordinary = loads.iter().all(|load| load.takes == Takes::default());
    let answers = loads.iter().filter(|load| load.replies.is_some()).count();
    let sinks = loads.len() - answers;
    let beside = answers == 1 && sinks > 0;
    let factor = if beside { WITH_ANSWERS } else { 1.0 };
    match depth {
        _ if loads.iter().any(|load| load.burst().is_some()) => None,
        Depth::Quick if ordinary && sinks <= 1 && answers <= 1 => Some(factor * QUICK_S),
        Depth::Standard if ordinary && loads.len() <= 2 + usize::from(beside) => {
            Some(factor * STANDARD_S)
        }
        _ => None,
    }
}

/// Rounds of a load that are aimed at: fewer make runs longer.
pub fn aims_at(depth: Depth, load: &Load) -> u32 {
    let of_a_step = match load.rate {
        Rate::Burst { .. } => ROUNDS_OF_A_BURST,
        Rate::Saturation => ROUNDS_OF_A_STEP,
        Rate::OfPartialDrop(_) => ROUNDS_OF_A_STEP,
        Rate::PerSecond(_) | Rate::OfLink(_) | Rate::OfMaximum(_) | Rate::Search { .. } => {
            ROUNDS_OF_A_PACED_STEP
        }
    };
    match (depth, load.shown) {
        (Depth::Quick, _) => FEWEST_ROUNDS,
        (_, Shown::Step) => of_a_step,
        (_, Shown::Table) if load.burst().is_some() => of_a_step,
        (Depth::Full, Shown::Table) if load.rate == Rate::Saturation => ROUNDS_OF_THE_STUDY,
        // Three more than an interval needs: a machine that changes its speed by itself costs a
        // round or two, and from nine on the interval leaves the farthest samples out.
        (Depth::Standard | Depth::Full, Shown::Table) => bootstrap::FEWEST_SAMPLES as u32 + 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::course::Course;
    use crate::experiment::plan::budget::fit;
    use crate::experiment::plan::{Row, Settings};
    use crate::udp::results::Udp;

    #[test]
    fn the_paced_load_of_a_standard_experiment_has_enough_rounds_for_intervals() {
        // 19 rows, starting and ending a run costs 110 ms; calibration and checks are over. Two
        // rounds may be lost to a machine that changes.
        let depth = Depth::Standard;
        let loads = crate::udp::plan::Asked::new(depth, Load::saturation(64)).loads();
        let left_s = usual_s(depth, &loads).unwrap() - 8.0;
        let loads = [(loads[0], 19), (loads[1], 19)];
        for share_s in Udp::shares(&Settings::new(depth), &loads, left_s) {
            let schedule = fit(aims_at(depth, &loads[0].0), share_s, 19, 110);
            assert!(schedule.rounds as usize >= bootstrap::FEWEST_SAMPLES + 2, "{schedule:?}");
        }
    }

    #[test]
    fn the_time_of_a_plan_follows_from_its_loads_and_rows() {
        let rows = vec![Row::parse("epoll").unwrap(), Row::parse("port").unwrap()];
        let base = Load::saturation(64);
        let (full, standard) = (Settings::new(Depth::Full), Settings::new(Depth::Standard));
        // 25 rounds of two rows, 490 ms each; two checks and a calibration before.
        let one = Udp::budget_s(&full, &[base], &rows);
        assert!((one - (25.0 * 2.0 * 0.49 + 2.0 * 0.4 + 0.8)).abs() < 1e-9, "{one}");
        let step = base.at(Rate::OfMaximum(0.5)).as_step();
        let two = Udp::budget_s(&full, &[base, step], &rows);
        assert!((two - one - 3.0 * 2.0 * 0.49).abs() < 1e-9, "{two}");
        assert_eq!(Udp::budget_s(&standard, &[base], &rows), 110.0);
        let takes = Takes { offloaded: true, ..Takes::default() };
        let paired = [Load { takes, ..base }];
        let nine = one - 16.0 * 2.0 * 0.49;
        let took = Udp::budget_s(&standard, &paired, &rows);
        assert!((took - nine).abs() < 1e-9, "not squeezed into two minutes: {took}");
    }
}
