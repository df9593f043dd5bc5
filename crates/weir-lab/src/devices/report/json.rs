//! The report for a program: one valid document, whatever happened.
//!
//! There is no NaN in it: what is not known is null. All samples are kept.

use serde_json::{Value, json};

use super::{answers, over_time};
use crate::cell::{Conformance, Status};
use crate::devices::crossing::{by_delay, delay_us, with_measure};
use crate::devices::plan::{Load, Settings};
use crate::devices::results::{Group, LongRun, Results};
use crate::devices::rows::depth_of;
use crate::devices::sample::{METRICS, word};
use crate::latency;
use crate::plan::{Role, Row};
use crate::ranking::Ranking;
use crate::report::json::{SCHEMA_VERSION, difference, metrics, options};
use crate::results::CONFIDENCE;

/// What the document is about, beside those of UDP and TCP.
pub const KIND: &str = "iops";

/// The whole document.
pub fn document(results: &Results) -> Value {
    let mut rows = vec![];
    let mut loads = vec![];
    for (index, load) in results.loads.iter().enumerate() {
        let rankings: Vec<(Group, Ranking)> =
            results.groups().into_iter().map(|g| (g, results.ranking(index, g))).collect();
        let confidence = results.confidence(index);
        let groups = rankings.iter().map(|(group, ranking)| {
            json!({
                "group": group.name(),
                "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
                "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
                "unlike_pairs": ranking.unlike_pairs,
                "summary": answers::of_load(results, index, *group, ranking),
            })
        });
        loads.push(json!({
            "load": load_value(load),
            "ranked_by": "ios_per_s",
            "groups": groups.collect::<Vec<_>>(),
            "confidence": {
                "asked_half_width_percent": confidence.asked * 100.0,
                "widest_half_width_percent": confidence.widest.map(|widest| widest * 100.0),
                "reached": confidence.reached(),
            },
            "rounds": results.schedules[index].map(|schedule| schedule.rounds),
            "run_ms": results.schedules[index].map(|schedule| schedule.run_ms),
            "warmup_ms": results.schedules[index].map(|schedule| schedule.warmup_ms),
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
        "cores": results.cores,
        "fio": results.fio,
        "ratio_to": results.measure().map(|row| results.rows[row].spec()),
        "loads": loads,
        "crossings": crossings(results),
        "answers": answers::all(results).iter().map(|answer| json!({
            "question": answer.question,
            "sentences": answer.sentences,
        })).collect::<Vec<_>>(),
        "results": rows,
        "long_runs": long_runs(results),
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
        "cores": results.cores,
        "fio": results.fio,
        "planned": results.rows.iter().map(Row::spec).collect::<Vec<_>>(),
        "planned_s":
            settings.budget_s(&results.loads, &results.rows) + settings.long_runs_s(&results.rows),
        "rounds_aimed_at": settings.rounds(),
        "loads": results.loads.iter().map(load_value).collect::<Vec<_>>(),
        "results": [],
        "error": null,
    })
}

fn load_value(load: &Load) -> Value {
    json!({
        "device": load.device,
        "length_bytes": load.length,
        "delay_us": load.delay().map(|_| delay_us(load)),
    })
}

fn row_value(results: &Results, (load, index): (usize, usize), ranking: Option<&Ranking>) -> Value {
    let row = &results.rows[index];
    let cell = &results.cells[load][index];
    let place = ranking.and_then(|ranking| ranking.place(index));
    let checked = results.checked[index].as_ref().filter(|_| row.peer.is_none());
    json!({
        "kind": if row.peer.is_some() { "peer" } else { "design" },
        "peer": row.peer.as_ref().map(|peer| json!({ "command": peer.command.to_string() })),
        "design": row.design,
        "provider": row.shown_provider(),
        "options": options(row),
        "spec": row.spec(),
        "depth": depth_of(row),
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
            // Nobody but fio sees what it reads.
            Conformance::Passed if checked.is_none() => "not_checked",
            Conformance::NotChecked => "not_checked",
            Conformance::Passed => "passed",
            Conformance::Failed(_) => "failed",
        },
        "check": checked,
        "group": results.group_of(index).name(),
        "cores_busy_with_little_to_do": checked.and_then(|checked| checked.idle_cores),
        "rank": ranking.and_then(|ranking| ranking.rank(index)),
        "tied_with_winner": ranking
            .filter(|ranking| !ranking.is_too_noisy())
            .and(place)
            .map(|place| place.ties_with_winner()),
        "winner_to_it": place.and_then(|place| place.winner_to_it).map(difference),
        "ratio_to_sync": place.and_then(|place| place.to_traditional).map(difference),
        "limited_by": cell.verdict().map(|verdict| word(verdict.limited_by)),
        "limit_reason": cell.verdict().map(|verdict| verdict.reason),
        "settings": cell.samples.last().map(|sample| &sample.settings),
        "command": cell.samples.last().map(|sample| &sample.command),
        "latency_of_all_runs_ns": latency::merged(&cell.samples),
        "metrics": metrics(cell, METRICS, results.seed),
        "runs": cell.samples,
        "failed_runs": cell.failed_runs,
        "failures": cell.failures,
        "skipped": cell.skipped,
    })
}

/// Where rows overtake plain reads as each I/O takes longer; null if no load has such a time.
fn crossings(results: &Results) -> Value {
    if by_delay(results).is_empty() {
        return Value::Null;
    }
    let spec = |row: usize| results.rows[row].spec();
    let all = with_measure(results).into_iter().map(|crossing| {
        json!({
            "before": spec(crossing.before),
            "after": spec(crossing.after),
            "between_us": [crossing.between.0, crossing.between.1],
            "at_us": crossing.at,
            "real": crossing.real,
        })
    });
    Value::Array(all.collect())
}

fn long_runs(results: &Results) -> Value {
    let all = results.rows.iter().zip(&results.long_runs).filter_map(|(row, run)| {
        let (decay, failure) = match run.as_ref()? {
            LongRun::Made(decay) => (decay.as_ref(), None),
            LongRun::Failed(reason) => (None, Some(reason)),
        };
        Some(json!({
            "spec": row.spec(),
            "decay": decay,
            "verdict": decay.map(over_time::verdict),
            "failure": failure,
        }))
    });
    Value::Array(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::results::tests::{results, under};
    use crate::iops::Decay;
    use std::time::Duration;

    #[test]
    fn the_document_has_every_row_with_every_sample() {
        let mut results =
            results(&[("sync", 2e6), ("ring --depth 7", 1e6), ("fio psync=fio", 9e5)], 0);
        let decay = Decay { percent_per_minute: -3.0, low: -4.0, high: -2.0, points: 30 };
        results.long_runs[0] = Some(LongRun::Made(Some(decay)));
        let document = document(&results);
        assert_eq!(
            (document["kind"].as_str(), &document["crossings"]),
            (Some("iops"), &Value::Null)
        );
        assert_eq!(document["loads"][0]["groups"][0]["winner"], "sync");
        assert_eq!(document["long_runs"][0]["verdict"], "it falls");
        let rows = document["results"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!((&rows[1]["depth"], &rows[1]["rank"]), (&7.into(), &2.into()));
        assert_eq!(
            (&rows[2]["kind"], &rows[2]["conformance"]),
            (&"peer".into(), &"not_checked".into())
        );
        assert_eq!(rows[3]["role"], "again");
        let ratio = &rows[1]["ratio_to_sync"];
        assert_eq!((&ratio["verdict"], ratio["median"].as_f64()), (&"real".into(), Some(0.5)));
        assert_eq!(rows[0]["metrics"]["ios_per_s"]["samples"].as_array().map(Vec::len), Some(7));
        assert!(rows[0]["metrics"]["latency_ns"]["p99"]["median"].is_number());
        assert_eq!(rows[0]["runs"].as_array().map(Vec::len), Some(7));
        assert!(!document.to_string().contains("NaN"));
    }

    #[test]
    fn crossings_stand_in_it() {
        let loads = [0, 10].map(|us| Load::delayed(Duration::from_micros(us), 4096));
        let rows: [(&str, &[f64]); 2] = [("sync", &[2e6, 90e3]), ("ring", &[1e6, 900e3])];
        let document = document(&under(loads.to_vec(), &rows, 0));
        let crossing = &document["crossings"][0];
        assert_eq!((&crossing["after"], &crossing["real"]), (&"ring".into(), &true.into()));
        assert_eq!(document["loads"][1]["load"]["delay_us"], 10.0);
    }
}
