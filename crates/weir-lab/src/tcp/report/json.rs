//! The report for a program: one valid document, whatever happened.
//!
//! There is no NaN in it: what is not known is null. All samples are kept.

use serde_json::{Value, json};

use super::{answers, here, peers};
use crate::cell::{Conformance, Status};
use crate::latency;
use crate::plan::{Role, Row};
use crate::ranking::Ranking;
use crate::report::json::{SCHEMA_VERSION, difference, metrics, options};
use crate::results::CONFIDENCE;
use crate::tcp::classic::PUBLISHED;
use crate::tcp::plan::{Load, Settings};
use crate::tcp::results::Results;
use crate::tcp::sample::{METRICS, word};

/// What the document is about, beside that of UDP.
pub const KIND: &str = "tcp";

/// The whole document.
pub fn document(results: &Results) -> Value {
    let mut rows = vec![];
    let mut loads = vec![];
    for (index, load) in results.loads.iter().enumerate() {
        let rankings: Vec<(bool, Ranking)> =
            results.groups().into_iter().map(|g| (g, results.ranking(index, g))).collect();
        let confidence = results.confidence(index);
        let groups = rankings.iter().map(|(group, ranking)| {
            json!({
                "polls": group,
                "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
                "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
                "unlike_pairs": ranking.unlike_pairs,
                "summary": answers::of_load(results, index, *group, ranking),
            })
        });
        loads.push(json!({
            "load": load_value(load),
            "ranked_by": "messages_per_s",
            "groups": groups.collect::<Vec<_>>(),
            "confidence": {
                "asked_half_width_percent": confidence.asked * 100.0,
                "widest_half_width_percent": confidence.widest.map(|widest| widest * 100.0),
                "reached": confidence.reached(),
            },
            "rounds": results.schedules[index].map(|schedule| schedule.rounds),
            "run_ms": results.schedules[index].map(|schedule| schedule.run_ms),
            "warmup_ms": results.schedules[index].map(|schedule| schedule.warmup_ms),
            "peers": peers::values(results, index),
        }));
        for row in 0..results.rows.len() {
            let group = results.group_of(row);
            let ranking = rankings.iter().find(|(of, _)| *of == group).map(|(_, ranking)| ranking);
            rows.push(row_value(results, (index, row), ranking));
        }
    }
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
        "confidence_percent": CONFIDENCE * 100.0,
        "server_cores": results.server_cores,
        "client_cores": results.client_cores,
        "check": results.checked,
        "loads": loads,
        "answers": answers::all(results).iter().map(|answer| json!({
            "question": answer.question,
            "sentences": answer.sentences,
        })).collect::<Vec<_>>(),
        "results": rows,
        "classic": classic(results),
        "warnings": results.warnings,
        "interrupted": results.interrupted,
        "error": results.error,
    })
}

/// The document of an experiment that was only planned.
pub fn plan(results: &Results, settings: &Settings) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
        "server_cores": results.server_cores,
        "client_cores": results.client_cores,
        "planned": results.rows.iter().map(Row::spec).collect::<Vec<_>>(),
        "planned_s": settings.budget_s(&results.loads, &results.rows),
        "rounds_aimed_at": settings.rounds(),
        "loads": results.loads.iter().map(load_value).collect::<Vec<_>>(),
        "results": [],
        "error": null,
    })
}

fn load_value(load: &Load) -> Value {
    json!({
        "pattern": load.pattern.name(),
        "message_bytes": load.message_bytes,
        "connections": load.connections,
        "blocks": load.blocks,
        "block_bytes_per_s": load.block_bytes_per_s,
        "outstanding": load.outstanding,
        "buffer_bytes": load.buffer_bytes,
    })
}

fn row_value(results: &Results, (load, index): (usize, usize), ranking: Option<&Ranking>) -> Value {
    let row = &results.rows[index];
    let cell = &results.cells[load][index];
    let place = ranking.and_then(|ranking| ranking.place(index));
    json!({
        "kind": if row.peer.is_some() { "peer" } else { "design" },
        "peer": row.peer.as_ref().map(|peer| json!({ "command": peer.command.to_string() })),
        "design": row.design,
        "provider": row.shown_provider(),
        "options": options(row),
        "spec": row.spec(),
        "role": match row.role {
            Role::Plain | Role::Traditional => "plain",
            Role::Again(_) => "again",
        },
        "load": load_value(&results.loads[load]),
        "status": match results.status(load, index) {
            Status::Ok => "ok",
            Status::Unavailable => "unavailable",
            Status::Failed => "failed",
        },
        "reason": results.unranked(load, index),
        "conformance": match &results.conformance[index] {
            Conformance::NotChecked => "not_checked",
            Conformance::Passed => "passed",
            Conformance::Failed(_) => "failed",
        },
        "polls": results.polls(index),
        "cores_busy_with_one_connection": results.idle[index].cores_busy,
        "sleeps_per_message_with_one_connection": results.idle[index].sleeps_per_message,
        "rank": ranking.and_then(|ranking| ranking.rank(index)),
        "tied_with_winner": ranking
            .filter(|ranking| !ranking.is_too_noisy())
            .and(place)
            .map(|place| place.ties_with_winner()),
        "winner_to_it": place.and_then(|place| place.winner_to_it).map(difference),
        "limited_by": cell.verdict().map(|verdict| word(verdict.limited_by)),
        "lower_bound": cell.verdict().map(|verdict| verdict.lower_bound),
        "limit_reason": cell.verdict().map(|verdict| verdict.reason),
        "settings": cell.samples.last().map(|sample| &sample.settings),
        "round_trip_of_all_runs_ns": latency::merged(&cell.samples),
        "metrics": metrics(cell, METRICS, results.seed),
        "runs": cell.samples,
        "failed_runs": cell.failed_runs,
        "failures": cell.failures,
        "skipped": cell.skipped,
    })
}

/// The most that each row held, and what survives of the original's table; null if that was not asked for.
fn classic(results: &Results) -> Value {
    let Some(classic) = &results.classic else { return Value::Null };
    let held = results
        .rows
        .iter()
        .zip(&classic.held)
        .filter_map(|(row, held)| Some(json!({ "spec": row.spec(), "most": held.as_ref()? })));
    let parts = ["as fast as they can", "at a rate", "the most"];
    let published = PUBLISHED.iter().map(|figure| {
        let found = here(results, figure.part, figure.ours);
        json!({
            "part": parts[figure.part],
            "model": figure.model,
            "attempted": figure.connections.map(|(attempted, _)| attempted),
            "connected": figure.connections.map(|(_, connected)| connected),
            "received_bytes_per_s": figure.received_per_s,
            "design": figure.ours,
            "measured_connected": found.as_ref().map(|(connected, _)| connected),
            "measured_received_bytes_per_s": found.as_ref().map(|(_, rate)| rate),
        })
    });
    json!({
        "most_tried": classic.most,
        "held": held.collect::<Vec<_>>(),
        "published": published.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::classic::{Classic, Held};
    use crate::tcp::results::tests::results;

    #[test]
    fn the_document_has_every_row_with_every_sample() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3), ("go=x {port}", 90e3)], 1);
        let document = document(&results);
        assert_eq!((document["kind"].as_str(), &document["classic"]), (Some("tcp"), &Value::Null));
        assert_eq!(document["loads"][0]["groups"][0]["winner"], "epoll");
        let rows = document["results"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[1]["rank"].as_u64(), rows[1]["role"].as_str()), (Some(1), Some("plain")));
        assert_eq!(rows[2]["kind"], "peer");
        assert_eq!(rows[0]["polls"], false);
        let rate = &rows[0]["metrics"]["messages_per_s"];
        assert_eq!(rate["samples"].as_array().map(Vec::len), Some(7));
        assert!(rows[0]["metrics"]["round_trip_ns"]["p50"]["median"].is_number());
        assert_eq!(rows[0]["runs"].as_array().map(Vec::len), Some(7));
        assert!(!document.to_string().contains("NaN"));
    }

    #[test]
    fn what_was_held_stands_beside_what_was_published() {
        let mut results = results(&[("blocking", 20e3), ("port", 100e3)], 1);
        let held = Held {
            connections: Some(9000),
            broke_at: Some(9250),
            made_there: Some(9100),
            cause: Some("no thread".into()),
            sample: None,
        };
        results.classic = Some(Classic { most: 50_000, held: vec![Some(held), None, None] });
        let classic = &document(&results)["classic"];
        assert_eq!(classic["held"][0]["most"]["broke_at"], 9250);
        assert_eq!(classic["held"].as_array().map(Vec::len), Some(1));
        let published = classic["published"].as_array().unwrap();
        assert_eq!(published.len(), PUBLISHED.len());
        assert!(published[0]["measured_received_bytes_per_s"].is_number());
        assert!(published[1]["measured_received_bytes_per_s"].is_null());
    }
}
