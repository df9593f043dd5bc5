//! The report for a program: one valid document, whatever happened.
//!
//! There is no NaN in it: what is not known is null. All samples are kept.

use serde_json::{Map, Value, json};

use crate::exit;
use crate::experiment::cell::{Cell, Conformance, Measured, Metric, Skipped};
use crate::experiment::course::Planned;
use crate::experiment::plan::{Role, Row, Settings};
use crate::experiment::ranking::Ranking;
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::columns::limit;
use crate::report::conclusion::{conclusion, main_load, short_name};
use crate::report::missed;
use crate::report::sentences::summary;
use crate::stats::compare::Difference;
use crate::stats::{CONFIDENCE, Estimate, latency};

/// Version of the document: it changes when a field changes its meaning or goes away.
///
/// 2: the percentile 99.9 of a latency of all runs is `p99_9`, as of a metric, where it was `p999`.
pub const SCHEMA_VERSION: u32 = 2;

/// The fields of an object, and those of another, which take the place of its own of the same name.
pub fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut fields, more) {
        all.extend(more);
    }
    fields
}

/// The whole document.
pub fn document<K: Reported>(results: &Results<K>) -> Value {
    let (mut loads, mut rows) = (vec![], vec![]);
    let rankings = results.rankings();
    for (load, rankings) in rankings.iter().enumerate() {
        loads.push(of_load(results, load, rankings));
        for row in (0..results.rows.len()).filter(|row| results.takes_part(load, *row)) {
            let group = results.group_of(row);
            let ranking = rankings.iter().find(|(of, _)| *of == group).map(|(_, ranking)| ranking);
            let common = of_row(results, (load, row), ranking);
            rows.push(with(common, K::of_row_value(results, load, row)));
        }
    }
    let common = json!({
        "confidence_percent": CONFIDENCE * 100.0,
        "conclusion": conclusion(results, &rankings),
        "main_load": main_load(results),
        "loads": loads,
        "answers": K::answers(results).iter().map(|answer| json!({
            "question": answer.question,
            "sentences": answer.sentences,
        })).collect::<Vec<_>>(),
        "results": rows,
        "warnings": results.warnings,
        "interrupted": results.interrupted,
        "error": results.error,
    });
    with(with(head(results), common), K::of_all_value(results))
}

/// The document of an experiment that was only planned: its loads, the rows and rounds of each, and no results.
pub fn plan<K: Reported>(results: &Results<K>, settings: &Settings) -> Value {
    let rows = &results.rows;
    let planned = K::planned(settings, &results.loads, rows);
    let of_load = |(load, planned): (&K::Load, &Planned)| {
        let more = json!({
            "rows": planned.rows,
            "rounds_aimed_at": K::rounds_of(settings, load),
            "rounds_planned": planned.schedule.rounds,
            "run_ms": planned.schedule.run_ms,
            "fits": planned.fits,
        });
        with(K::load_value(load), more)
    };
    let seconds = K::budget_s(settings, &results.loads, rows) + results.own.planned_after_s(rows);
    let common = json!({
        "planned": rows.iter().map(Row::spec).collect::<Vec<_>>(),
        "planned_s": seconds,
        "loads": results.loads.iter().zip(&planned).map(of_load).collect::<Vec<_>>(),
        "results": [],
        "error": null,
    });
    with(head(results), common)
}

/// The document of a command that failed before there were results, with this exit code.
pub fn failure(command: &[String], error: &str, code: u8) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "status": if code == exit::UNAVAILABLE { "unavailable" } else { "failed" },
        "reason": error,
        "machine": {},
        "results": [],
        "error": error,
    })
}

fn head<K: Reported>(results: &Results<K>) -> Value {
    let common = json!({
        "schema_version": SCHEMA_VERSION,
        "kind": K::KIND,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
    });
    with(common, json!(results.own))
}

fn of_load<K: Reported>(
    results: &Results<K>,
    load: usize,
    rankings: &[(K::Group, Ranking)],
) -> Value {
    let confidence = results.confidence(load);
    let groups = rankings.iter().map(|(group, ranking)| {
        let common = json!({
            "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
            "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
            "comparisons": ranking.comparisons,
            "unlike_pairs": ranking.unlike_pairs,
            "summary": summary(results, load, *group, ranking),
        });
        with(common, K::of_group_value(results, load, *group))
    });
    let schedule = &results.schedules[load];
    let common = json!({
        "load": K::load_value(&results.loads[load]),
        "name": results.loads[load].to_string(),
        "ranked_by": results.ranked_by(load).name,
        "confidence": {
            "asked_half_width_percent": confidence.asked * 100.0,
            "widest_half_width_percent": confidence.widest.map(|widest| widest * 100.0),
            "reached": confidence.reached(),
        },
        "rounds": schedule.map(|schedule| schedule.rounds),
        "rounds_complete": schedule.map(|_| results.rounds_complete(load)),
        "run_ms": schedule.map(|schedule| schedule.run_ms),
        "warmup_ms": schedule.map(|schedule| schedule.warmup_ms),
        "missed": missed::words(results, load),
    });
    let groups = K::groups_value(results, load, groups.collect());
    with(with(common, groups), K::of_load_value(results, load))
}

fn of_row<K: Reported>(
    results: &Results<K>,
    (load, index): (usize, usize),
    ranking: Option<&Ranking>,
) -> Value {
    let row = &results.rows[index];
    let cell = &results.cells[load][index];
    let place = ranking.and_then(|ranking| ranking.place(index));
    let mut value = json!({
        "kind": if row.peer.is_some() { "peer" } else { "design" },
        "peer": row.peer.as_ref().map(|peer| json!({ "command": peer.command.to_string() })),
        "design": row.design,
        "provider": row.shown_provider(),
        "options": options(row),
        "spec": row.spec(),
        "name": short_name(results, index),
        "role": match row.role {
            Role::Plain => "plain",
            Role::Traditional => "traditional",
            Role::Again(_) => "again",
        },
        "load": K::load_value(&results.loads[load]),
        "load_name": results.loads[load].to_string(),
        "status": results.status(load, index).name(),
        "reason": results.unranked(load, index),
        "conformance": match &results.conformance[index] {
            Conformance::NotChecked => "not_checked",
            Conformance::Passed => "passed",
            Conformance::Failed(_) => "failed",
        },
        "rank": ranking.and_then(|ranking| ranking.rank(index)),
        "tied_with_winner": ranking
            .filter(|ranking| !ranking.is_too_noisy())
            .and(place)
            .map(|place| place.ties_with_winner()),
        "winner_to_it": place.and_then(|place| place.winner_to_it).map(difference),
        "limit": limit(results, load, index),
        "limited_by": cell.verdict().map(|verdict| K::word(verdict.limited_by)),
        "lower_bound": cell.verdict().map(|verdict| verdict.lower_bound),
        "limit_reason": cell.verdict().map(|verdict| verdict.reason),
        "settings": cell.samples.last().map(|sample| sample.settings()),
        "metrics": metrics(cell, K::METRICS, results.seed),
        "kernel_entries_source": cell.entries_source(),
        "kernel_entries_counted": cell.entries_counted,
        "runs": cell.samples,
        "failed_runs": cell.failed_runs,
        "failures": cell.failures,
        "skipped": cell.skipped.as_ref().map(Skipped::reason),
    });
    if let Some(hosts) = K::hosts(results, load) {
        value["hosts"] = json!(hosts);
    }
    value[K::LATENCY_FIELD] = json!(latency::merged(&cell.samples));
    if let Some(field) = K::RATIO_FIELD {
        value[field] = json!(place.and_then(|place| place.to_traditional).map(difference));
    }
    value
}

fn options(row: &Row) -> Value {
    let pairs = row.options.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(Map::from_iter(pairs))
}

/// Every metric with its samples; a dot in a metric's name makes an object.
fn metrics<S: Measured>(cell: &Cell<S>, metrics: &[Metric<S>], seed: u64) -> Value {
    let mut all = Map::new();
    for metric in metrics {
        let samples: Vec<Option<f64>> =
            cell.samples.iter().map(|sample| (metric.of)(sample)).collect();
        let mut value = estimate(cell.estimate(metric, seed));
        let counted: Vec<bool> = cell.samples.iter().map(|sample| sample.when().counted).collect();
        value.insert("samples".into(), json!(samples));
        value.insert("counted".into(), json!(counted));
        value.insert("unit".into(), json!(metric.unit));
        match metric.name.split_once('.') {
            Some((group, name)) => {
                let group = all.entry(group).or_insert_with(|| json!({}));
                if let Some(group) = group.as_object_mut() {
                    group.insert(name.into(), Value::Object(value));
                }
            }
            None => {
                all.insert(metric.name.into(), Value::Object(value));
            }
        }
    }
    Value::Object(all)
}

pub(crate) fn estimate(estimate: Option<Estimate>) -> Map<String, Value> {
    let interval = estimate.and_then(|estimate| estimate.interval);
    Map::from_iter([
        ("median".to_owned(), json!(estimate.map(|estimate| estimate.median))),
        ("low".to_owned(), json!(interval.map(|interval| interval.low))),
        ("high".to_owned(), json!(interval.map(|interval| interval.high))),
    ])
}

pub(crate) fn difference(difference: Difference) -> Value {
    let mut value = estimate(difference.ratio());
    let verdict = match difference {
        Difference::Real(_) => "real",
        Difference::Tie(_) => "tie",
        Difference::TooFew(_) => "too_few_pairs",
    };
    value.insert("verdict".into(), json!(verdict));
    value.insert("pairs".into(), json!(difference.ratio().map(|ratio| ratio.samples)));
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_document_too() {
        let document = failure(&["weir".into()], "nothing can run here", exit::FAILED);
        assert_eq!(document["schema_version"], SCHEMA_VERSION);
        assert_eq!(document["results"], json!([]));
        assert_eq!(document["error"], "nothing can run here");
        assert_eq!(
            (&document["status"], &document["reason"]),
            (&json!("failed"), &document["error"])
        );
        let document = failure(&["weir".into()], "no link without root", exit::UNAVAILABLE);
        assert_eq!(document["status"], "unavailable");
    }
}
