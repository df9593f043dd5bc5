//! What the document says of a comparison of designs that read a device alone.

use serde_json::{Value, json};

use crate::device::crossing::{by_delay, delay_us, with_measure};
use crate::device::plan::Load;
use crate::device::results::{LongRun, Results};
use crate::device::rows::depth_of;
use crate::experiment::cell::Conformance;
use crate::report::document::with;

/// What stands beside loads, answers and rows.
pub(super) fn of_all(results: &Results) -> Value {
    json!({
        "ratio_to": results.measure().map(|row| results.rows[row].spec()),
        "crossings": crossings(results),
        "long_runs": long_runs(results),
    })
}

pub(super) fn load_value(load: &Load) -> Value {
    json!({
        "device": load.device,
        "length_bytes": load.length,
        "direction": load.direction.to_string(),
        "delay_us": load.delay().map(|_| delay_us(load)),
    })
}

/// What a row under a load has besides.
pub(super) fn of_row(results: &Results, load: usize, index: usize) -> Value {
    let row = &results.rows[index];
    let checked = results.own.checked[index].as_ref().filter(|_| row.peer.is_none());
    let own = json!({
        "depth": depth_of(row),
        "check": checked,
        "group": results.group_of(index).name(),
        "cores_busy_with_little_to_do": checked.and_then(|checked| checked.idle_cores),
        "command": results.cells[load][index].samples.last().map(|sample| &sample.made.command),
    });
    // Nobody but fio sees what it reads.
    let unseen = results.conformance[index] == Conformance::Passed && checked.is_none();
    if unseen { with(own, json!({ "conformance": "not_checked" })) } else { own }
}

/// Where rows overtake plain reads as each I/O takes longer; null if no load has such a time.
fn crossings(results: &Results) -> Value {
    let axes = by_delay(results);
    if axes.is_empty() {
        return Value::Null;
    }
    let spec = |row: usize| results.rows[row].spec();
    let of_axis = |axis: &Vec<usize>| -> Vec<Value> {
        let length = results.loads[axis[0]].length;
        let all = with_measure(results, axis).into_iter().map(|crossing| {
            json!({
                "length_bytes": length,
                "before": spec(crossing.before),
                "after": spec(crossing.after),
                "between_us": [crossing.between.0, crossing.between.1],
                "at_us": crossing.at,
                "real": crossing.real,
            })
        });
        all.collect()
    };
    Value::Array(axes.iter().flat_map(of_axis).collect())
}

fn long_runs(results: &Results) -> Value {
    let all = results.rows.iter().zip(&results.own.long_runs).filter_map(|(row, run)| {
        let (found, failure) = match run.as_ref()? {
            LongRun::Made(found) => (found.as_ref(), None),
            LongRun::Failed(reason) => (None, Some(reason)),
        };
        Some(json!({ "spec": row.spec(), "over_time": found, "failure": failure }))
    });
    Value::Array(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::report::over_time::tests::found;
    use crate::device::results::tests::{results, under};
    use crate::report::document::document;
    use std::time::Duration;

    #[test]
    fn the_document_has_every_row_with_every_sample() {
        let mut results =
            results(&[("sync", 2e6), ("ring --depth 7", 1e6), ("fio psync=fio", 9e5)], 0);
        results.own.long_runs[0] = Some(LongRun::Made(Some(Box::new(found(-11.0)))));
        let document = document(&results);
        assert_eq!(
            (document["kind"].as_str(), &document["crossings"]),
            (Some("iops"), &Value::Null)
        );
        assert_eq!(document["loads"][0]["groups"][0]["winner"], "sync");
        assert_eq!(document["long_runs"][0]["over_time"]["verdict"], "declines by 11.0 %");
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
        assert_eq!(crossing["length_bytes"], 4096);
        assert_eq!(document["loads"][1]["load"]["delay_us"], 10.0);
    }
}
