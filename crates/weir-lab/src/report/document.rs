//! What the documents of TCP and of devices have in common; each adds what only it has.

use serde::Serialize;
use serde_json::{Value, json};

use crate::experiment::cell::{Conformance, Skipped};
use crate::experiment::plan::{Role, Row};
use crate::experiment::ranking::Ranking;
use crate::experiment::results::{Results, Study};
use crate::stats::CONFIDENCE;
use crate::udp::report::answers::Answer;
use crate::udp::report::json::{SCHEMA_VERSION, difference, options};

/// What a kind of comparison adds to its loads, groups of rows, and rows.
pub(crate) struct Own<'a, K: Study> {
    /// The load itself, as it stands in each row, too.
    pub load: &'a dyn Fn(&K::Load) -> Value,
    /// To a load.
    pub of_load: &'a dyn Fn(usize) -> Value,
    /// To a group of rows under a load.
    pub of_group: &'a dyn Fn(usize, K::Group, &Ranking) -> Value,
    /// To a row under a load, in the ranking of its group.
    pub of_row: &'a dyn Fn(usize, usize, Option<&Ranking>) -> Value,
}

/// The fields of an object, and those of another, which take the place of its own of the same name.
pub(crate) fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut fields, more) {
        all.extend(more);
    }
    fields
}

/// The whole document, but for what stands beside loads, answers and rows.
pub(crate) fn document<K: Study>(
    kind: &str,
    results: &Results<K>,
    answers: &[Answer],
    own: &Own<K>,
) -> Value
where
    K::Sample: Serialize,
{
    let (mut loads, mut rows) = (vec![], vec![]);
    for load in 0..results.loads.len() {
        let rankings: Vec<(K::Group, Ranking)> =
            results.groups(load).into_iter().map(|g| (g, results.ranking(load, g))).collect();
        loads.push(of_load(results, load, &rankings, own));
        for row in 0..results.rows.len() {
            let group = results.group_of(row);
            let ranking = rankings.iter().find(|(of, _)| *of == group).map(|(_, ranking)| ranking);
            let common = of_row(results, (load, row), ranking, own);
            rows.push(with(common, (own.of_row)(load, row, ranking)));
        }
    }
    let more = json!({
        "confidence_percent": CONFIDENCE * 100.0,
        "loads": loads,
        "answers": answers.iter().map(|answer| json!({
            "question": answer.question,
            "sentences": answer.sentences,
        })).collect::<Vec<_>>(),
        "results": rows,
        "warnings": results.warnings,
        "interrupted": results.interrupted,
        "error": results.error,
    });
    with(head(kind, results), more)
}

/// The document of an experiment that was only planned, but for its time and its cores.
pub(crate) fn plan<K: Study>(
    kind: &str,
    results: &Results<K>,
    load: impl Fn(&K::Load) -> Value,
) -> Value {
    let more = json!({
        "planned": results.rows.iter().map(Row::spec).collect::<Vec<_>>(),
        "loads": results.loads.iter().map(load).collect::<Vec<_>>(),
        "results": [],
        "error": null,
    });
    with(head(kind, results), more)
}

fn head<K: Study>(kind: &str, results: &Results<K>) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "command": results.command,
        "machine": results.machine,
        "seed": results.seed,
    })
}

fn of_load<K: Study>(
    results: &Results<K>,
    load: usize,
    rankings: &[(K::Group, Ranking)],
    own: &Own<K>,
) -> Value {
    let confidence = results.confidence(load);
    let groups = rankings.iter().map(|(group, ranking)| {
        let common = json!({
            "winner": ranking.winner().map(|place| results.rows[place.row].spec()),
            "noise_floor_percent": ranking.noise_floor.map(|floor| floor * 100.0),
            "unlike_pairs": ranking.unlike_pairs,
        });
        with(common, (own.of_group)(load, *group, ranking))
    });
    let schedule = &results.schedules[load];
    let common = json!({
        "load": (own.load)(&results.loads[load]),
        "ranked_by": results.ranked_by(load).0.name,
        "groups": groups.collect::<Vec<_>>(),
        "confidence": {
            "asked_half_width_percent": confidence.asked * 100.0,
            "widest_half_width_percent": confidence.widest.map(|widest| widest * 100.0),
            "reached": confidence.reached(),
        },
        "rounds": schedule.map(|schedule| schedule.rounds),
        "run_ms": schedule.map(|schedule| schedule.run_ms),
        "warmup_ms": schedule.map(|schedule| schedule.warmup_ms),
    });
    with(common, (own.of_load)(load))
}

fn of_row<K: Study>(
    results: &Results<K>,
    (load, index): (usize, usize),
    ranking: Option<&Ranking>,
    own: &Own<K>,
) -> Value
where
    K::Sample: Serialize,
{
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
        "load": (own.load)(&results.loads[load]),
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
        "limit_reason": cell.verdict().map(|verdict| verdict.reason),
        "runs": cell.samples,
        "failed_runs": cell.failed_runs,
        "failures": cell.failures,
        "skipped": cell.skipped.as_ref().map(Skipped::reason),
    })
}
