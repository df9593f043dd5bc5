//! The parts of the document that tell of several rows or loads together.

use serde_json::{Value, json};

use crate::experiment::plan::Role;
use crate::udp::crossing::{Axis, Sweep, over_threads, over_work};
use crate::udp::curve::{Highest, highest, points};
use crate::udp::offload::{Gain, of_load};
use crate::udp::plan::{Goal, Load, Rate};
use crate::udp::report::json::{difference, goal_word, load_value};
use crate::udp::results::Results;

/// What receive offload brings under a load.
pub(super) fn gains(results: &Results, load: usize) -> Value {
    let Some(gains) = of_load(results, load) else { return Value::Null };
    let value = |gain: &Gain| {
        json!({
            "with": results.rows[gain.offloaded].spec(),
            "without": results.rows[gain.plain].spec(),
            "ratio": difference(gain.ratio),
        })
    };
    json!({
        "designs": gains.designs.iter().map(value).collect::<Vec<_>>(),
        "best_with_to_best_without": gains.best.as_ref().map(value),
        "best_with_to_traditional": gains.to_traditional.as_ref().map(value),
    })
}

/// Everything that was swept.
pub(super) fn sweeps(results: &Results) -> Value {
    let along = |sweeps: Vec<Sweep>| sweeps.iter().map(|s| along(results, s)).collect::<Vec<_>>();
    json!({
        "work": along(over_work(results)),
        "threads": along(over_threads(results)),
        "load": under_load(results),
    })
}

fn along(results: &Results, sweep: &Sweep) -> Value {
    let designs = 0..sweep.names.len();
    let stops = sweep.stops.iter().enumerate().map(|(index, stop)| {
        json!({
            "at": stop.at,
            "received_per_s": designs
                .clone()
                .map(|design| sweep.median(results, index, design))
                .collect::<Vec<_>>(),
        })
    });
    let crossings = sweep.crossings(results).into_iter().map(|crossing| {
        json!({
            "before": sweep.names[crossing.before],
            "after": sweep.names[crossing.after],
            "between": [crossing.between.0, crossing.between.1],
            "at": crossing.at,
            "verdict": if crossing.real { "real" } else { "within the noise" },
        })
    });
    json!({
        "axis": match sweep.axis {
            Axis::Work { .. } => "work",
            Axis::Threads { .. } => "threads",
        },
        "work_shared": match sweep.axis {
            Axis::Work { shared } => Some(shared),
            Axis::Threads { .. } => None,
        },
        "load": match sweep.axis {
            Axis::Work { .. } => Value::Null,
            Axis::Threads { load } => load_value(&results.loads[load]),
        },
        "designs": sweep.names,
        "stops": stops.collect::<Vec<_>>(),
        "crossings": crossings.collect::<Vec<_>>(),
    })
}

/// Each row under rising load; null if that was not swept.
fn under_load(results: &Results) -> Value {
    let searched = |load: &&Load| matches!(load.rate, Rate::Search { .. });
    let Some(like) = results.loads.iter().find(searched) else { return Value::Null };
    let rows =
        results.rows.iter().enumerate().filter(|(_, row)| !matches!(row.role, Role::Again(_)));
    let of_row = |(index, row): (usize, &crate::experiment::plan::Row)| {
        let points = points(results, like, index, results.loads.len());
        let highest = [Goal::NoDrop, Goal::PartialDrop].map(|goal| {
            let (good, bad) = match highest(&points, goal) {
                Highest::Unknown => (None, None),
                Highest::AtLeast(good) => (Some(good), None),
                Highest::Between(good, bad) => (Some(good), Some(bad)),
                Highest::Below(bad) => (None, Some(bad)),
            };
            (goal_word(goal), json!({ "highest_good_per_s": good, "lowest_bad_per_s": bad }))
        });
        let curve = points.iter().map(
            |point| json!({ "sent_per_s": point.sent_per_s, "lost_percent": point.lost * 100.0 }),
        );
        let mut value = json!({
            "spec": row.spec(),
            "provider": row.shown_provider(),
            "receive_offload": row.receive_offload,
            "points": curve.collect::<Vec<_>>(),
        });
        for (name, rates) in highest {
            value[name] = rates;
        }
        value
    };
    let rows =
        rows.map(of_row).filter(|row| row["points"].as_array().is_some_and(|p| !p.is_empty()));
    json!({ "load": load_value(like), "rows": rows.collect::<Vec<_>>() })
}
