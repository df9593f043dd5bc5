//! The report for a program: one valid document, whatever happened.
//!
//! There is no NaN in it: what is not known is null. All samples are kept.

use serde_json::{Map, Value, json};

use crate::exit;
use crate::experiment::cell::{self, Measured};
use crate::experiment::cell::{Conformance, Skipped};
use crate::experiment::plan::{Role, Row};
use crate::experiment::ranking::Ranking;
use crate::stats::CONFIDENCE;
use crate::stats::Estimate;
use crate::stats::compare::Difference;
use crate::stats::latency;
use crate::udp::experiment::Settings;
use crate::udp::plan::{self, Goal, Load, Rate, Shown};
use crate::udp::report::link;
use crate::udp::report::published::PUBLISHED;
use crate::udp::report::{answers, json_sweeps, peers, sentences};
use crate::udp::results::{RECEIVE_BUFFER, Results};
use crate::udp::sample::Cell;
use crate::udp::sample::METRICS;

/// Version of the document: it changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// The generator's engines that hand over several datagrams with one call to the network stack, or go
/// past it.
const SEND_OFFLOAD: [&str; 2] = ["gso", crate::udp::link::ENGINE];

/// The whole document.
pub fn document(results: &Results) -> Value {
    let mut rows = vec![];
    let mut loads = vec![];
    for (index, load) in results.loads.iter().enumerate() {
        let (metric, _) = results.ranked_by(index);
        let ranking = results.main_ranking(index);
        let confidence = results.confidence(index);
        let groups = results.groups(index);
        let main = groups.first().copied().unwrap_or(false);
        let said = |offloaded: bool, ranking: &Ranking| match load.is_paced() {
            true => sentences::of_latency(results, index, offloaded, ranking),
            false => sentences::of_throughput(results, index, offloaded, ranking),
        };
        let offloaded = (groups.len() > 1).then(|| results.ranking(index, true));
        loads.push(json!({
            "load": load_value(load),
            "ranked_by": metric.name,
            "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
            "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
            "unlike_pairs": ranking.unlike_pairs,
            "confidence": {
                "asked_half_width_percent": confidence.asked * 100.0,
                "widest_half_width_percent": confidence.widest.map(|widest| widest * 100.0),
                "reached": confidence.reached(),
            },
            "rounds": results.schedules[index].map(|schedule| schedule.rounds),
            "run_ms": results.schedules[index].map(|schedule| schedule.run_ms),
            "warmup_ms": results.schedules[index].map(|schedule| schedule.warmup_ms),
            "summary": said(main, &ranking),
            "shown": match load.shown {
                Shown::Table => "table",
                Shown::Step => "step of a sweep",
            },
            "receiving_threads_on_frames": link::saving(results, index).map(|saving| json!({
                "frames": results.rows[saving.frames].spec(),
                "sockets": results.rows[saving.sockets].spec(),
                "frames_cpu_ns_per_datagram": saving.cpu_ns[0],
                "sockets_cpu_ns_per_datagram": saving.cpu_ns[1],
                "ratio": saving.ratio.map(|ratio| estimate(Some(ratio))),
            })),
            "peers": peers::values(results, index, main),
            "published": if load.is_paced() { Value::Null } else { published(results, index, &ranking) },
            "receive_offload": offloaded.as_ref().map(|ranking| json!({
                "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
                "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
                "summary": said(true, ranking),
                "peers": peers::values(results, index, true),
                "gains": json_sweeps::gains(results, index),
            })),
        }));
        for row in (0..results.rows.len()).filter(|row| results.takes_part(index, *row)) {
            let of_group = match results.rows[row].receive_offload {
                true => offloaded.as_ref().unwrap_or(&ranking),
                false => &ranking,
            };
            rows.push(row_value(results, index, row, of_group));
        }
    }
    json!({
        "schema_version": SCHEMA_VERSION,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
        "confidence_percent": CONFIDENCE * 100.0,
        "server_cores": results.own.server_cores,
        "generator_cores": results.own.generator_cores,
        "link": results.own.link,
        "calibration": results.own.calibrations.iter().map(|c| json!({
            "receive_offload": c.receive_offload,
            "size_bytes": c.size_bytes,
            "flows": c.flows,
            "generators": c.generators,
            "sent_per_s": c.sent_per_s,
            "core_to_core_ns": c.core_to_core_ns,
            "core_to_core_after_ns": c.core_to_core_after_ns,
        })).collect::<Vec<_>>(),
        "check": results.own.checked,
        "loads": loads,
        "answers": answers::all(results).iter().map(|answer| json!({
            "question": answer.question,
            "sentences": answer.sentences,
        })).collect::<Vec<_>>(),
        "sweeps": json_sweeps::sweeps(results),
        "results": rows,
        "warnings": results.warnings,
        "interrupted": results.interrupted,
        "error": results.error,
    })
}

/// The document of an experiment that was only planned: its loads, the rows and rounds of each, and
/// no results.
pub fn plan(results: &Results, settings: &Settings) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
        "server_cores": results.own.server_cores,
        "generator_cores": results.own.generator_cores,
        "planned": results.rows.iter().map(Row::spec).collect::<Vec<_>>(),
        "planned_s": settings.budget_s(results),
        "loads": results.loads.iter().map(|load| {
            let mut value = load_value(load);
            let rows = plan::rows_of(load, &results.rows);
            value["rows"] = json!(rows.len());
            value["rounds_aimed_at"] = json!(settings.rounds_of(load));
            value
        }).collect::<Vec<_>>(),
        "results": [],
        "error": null,
    })
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

fn row_value(results: &Results, load: usize, index: usize, ranking: &Ranking) -> Value {
    let row = &results.rows[index];
    let cell = &results.cells[load][index];
    let place = ranking.place(index);
    json!({
        "kind": if row.peer.is_some() { "peer" } else { "design" },
        "peer": row.peer.as_ref().map(|peer| json!({
            "command": peer.command.to_string(),
            "derived": peer.is_derived(),
            "head": peer.head.to_string(),
            "claimed": results.claimed(load, index),
        })),
        "design": row.design,
        "provider": row.shown_provider(),
        "options": options(row),
        "spec": row.spec(),
        "role": match row.role {
            Role::Plain => "plain",
            Role::Traditional => "traditional",
            Role::Again(_) => "again",
        },
        "load": load_value(&as_obtained(&results.load_of(load, index), cell)),
        "status": results.status(load, index).name(),
        "reason": results.unranked(load, index),
        "conformance": match &results.conformance[index] {
            Conformance::NotChecked => "not_checked",
            Conformance::Passed => "passed",
            Conformance::Failed(_) => "failed",
        },
        "rank": ranking.rank(index),
        "tied_with_winner": place
            .filter(|_| !ranking.is_too_noisy())
            .map(|place| place.ties_with_winner()),
        "winner_to_it": place.and_then(|place| place.winner_to_it).map(difference),
        "ratio_to_traditional": place.and_then(|place| place.to_traditional).map(difference),
        "limited_by": cell.verdict().map(|verdict| verdict.limited_by),
        "lower_bound": cell.verdict().map(|verdict| verdict.lower_bound),
        "limit_reason": cell.verdict().map(|verdict| verdict.reason),
        "ledger": cell.ledger().map(|ledger| {
            let unexplained = ledger.unexplained();
            json!({ "counts": ledger, "unexplained": unexplained })
        }),
        "settings": cell.samples.last().map(|sample| &sample.settings),
        "latency_of_all_runs_ns": latency::merged(&cell.samples),
        "metrics": metrics(cell, METRICS, results.seed),
        "kernel_entries_source": cell.entries_source(),
        "kernel_entries_counted": cell.entries_counted,
        "runs": cell.samples,
        "failed_runs": cell.failed_runs,
        "failures": cell.failures,
        "skipped": cell.skipped.as_ref().map(Skipped::reason),
    })
}

/// The load with what was obtained: send offload may have been refused, and a receive buffer
/// that nobody asked for has the system's size.
fn as_obtained(load: &Load, cell: &Cell) -> Load {
    let sample = cell.samples.last();
    let engine = sample.and_then(|sample| sample.engine.as_deref());
    let rcvbuf_bytes = sample.and_then(|sample| sample.settings.get(RECEIVE_BUFFER)?.parse().ok());
    Load {
        send_offload: engine.map_or(load.send_offload, |engine| SEND_OFFLOAD.contains(&engine)),
        rcvbuf_bytes: rcvbuf_bytes.or(load.rcvbuf_bytes),
        ..*load
    }
}

pub(crate) fn options(row: &Row) -> Value {
    let pairs = row.options.iter().map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(Map::from_iter(pairs))
}

pub(super) fn load_value(load: &Load) -> Value {
    json!({
        "kind": if load.is_paced() { "paced" } else { "saturation" },
        "offered_per_s": match load.rate {
            Rate::PerSecond(rate) => Some(rate),
            _ => None,
        },
        "share_of_maximum": match load.rate {
            Rate::OfMaximum(share) => Some(share),
            _ => None,
        },
        "share_of_partial_drop_rate": match load.rate {
            Rate::OfPartialDrop(share) => Some(share),
            _ => None,
        },
        "search": match load.rate {
            Rate::Search { goal, step } => json!({ "goal": goal_word(goal), "step": step }),
            _ => Value::Null,
        },
        "size_bytes": load.size_bytes,
        "work": load.work.steps,
        "work_shared": load.work.shared,
        "ports": load.ports,
        "flows": load.flows,
        "generators": load.generators,
        "receive_offload": load.receive_offload,
        "send_offload": load.send_offload,
        "rcvbuf_bytes": load.rcvbuf_bytes,
        "busy_poll_us": load.busy_poll_us,
    })
}

/// A goal in the document.
pub(super) fn goal_word(goal: Goal) -> &'static str {
    match goal {
        Goal::NoDrop => "no_drop",
        Goal::PartialDrop => "partial_drop",
    }
}

/// Every metric with its samples; a dot in a metric's name makes an object.
pub(crate) fn metrics<S: Measured>(
    cell: &cell::Cell<S>,
    metrics: &[cell::Metric<S>],
    seed: u64,
) -> Value {
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

fn published(results: &Results, load: usize, ranking: &Ranking) -> Value {
    if !results.is_like_published(load) {
        return Value::Array(vec![]);
    }
    let figures = PUBLISHED.iter().map(|figure| {
        let measured = figure.measured(results, ranking);
        json!({
            "test": figure.test,
            "received_per_s": figure.received_per_s,
            "link_percent": figure.link_percent,
            "ratio_to_traditional": figure.ratio(),
            "threads": figure.threads,
            "measured_row": measured.row.map(|row| results.rows[row].spec()),
            "measured_ratio_to_traditional":
                measured.ratio.and_then(|ratio| ratio.ratio()).map(|ratio| ratio.median),
            "not_compared": measured.why_not,
        })
    });
    Value::Array(figures.collect())
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
