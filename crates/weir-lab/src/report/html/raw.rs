//! The document in its own page, as large as the page allows.

use serde_json::Value;

use crate::performance;

/// Most bytes of a page.
pub const MOST_BYTES: usize = 1_000_000;
/// What stands around body, style, script and data.
const AROUND: usize = 4000;

/// The raw data of a page.
pub struct Data {
    /// JSON in which no `<` can end the element that it stands in.
    pub text: String,
    /// What was left out, in sentences.
    pub said: String,
}

/// A way to make a document smaller, and what is said of it.
type Smaller = (fn(&mut Value), &'static str);

/// Each takes more away than the one before; the first that fits is used.
const WAYS: [Smaller; 5] = [
    (
        |document| each_row(document, &mut without_settings),
        "What repeats is left out of it: settings of runs that are those of their row.",
    ),
    (
        |document| {
            each_row(document, &mut |row| {
                without_settings(row);
                without_samples(row);
            });
        },
        "What repeats is left out of it: settings of runs that are those of their row, and the samples of metrics, \
         which stand in the runs. result.json, beside this file in the folder of results, has everything.",
    ),
    (
        |document| each_row(document, &mut |row| row["runs"] = Value::Null),
        "It would be larger than 1 MB, so the details of each run are left out; the figures of each run stand with their \
         metrics. result.json, beside this file in the folder of results, has everything.",
    ),
    (
        |document| {
            each_row(document, &mut |row| {
                row["runs"] = Value::Null;
                without_samples(row);
            });
        },
        "It would be larger than 1 MB, so runs and their figures are left out. result.json, beside this file in the folder \
         of results, has everything.",
    ),
    (
        |document| *document = Value::Null,
        "It would be larger than 1 MB, so it is left out. result.json, beside this file in the folder of results, has \
         everything.",
    ),
];

/// What is said where runs have a performance log, which is always left out.
const UNSAID: &str =
    " So is the performance log: it stands in performance.ndjson and performance.csv.";

/// The data beside a body of so many bytes.
pub fn data(document: &Value, others: usize) -> Data {
    let left = MOST_BYTES.saturating_sub(others + AROUND);
    let mut whole = document.clone();
    let (document, unsaid) = match performance::has_any(document) {
        true => {
            each_row(&mut whole, &mut without_performance);
            (&whole, UNSAID)
        }
        false => (document, ""),
    };
    for (smaller, said) in WAYS {
        let said = format!("{said}{unsaid}");
        let mut document = document.clone();
        smaller(&mut document);
        let text = escaped(&document);
        if text.len() <= left {
            return Data { text, said };
        }
    }
    Data { text: "null".into(), said: WAYS[WAYS.len() - 1].1.into() }
}

/// The raw data of a page, as text; `None` if it is no page of [`super::page`].
pub fn document_of(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("<script id=\"data\" type=\"application/json\">")?;
    // No data holds it: each `<` is escaped.
    Some(rest.split_once("</script>")?.0)
}

/// Compact JSON; `<` is written so that neither an end tag nor a comment can be in it.
pub(super) fn escaped(document: &Value) -> String {
    document.to_string().replace('<', "\\u003c")
}

fn each_row(document: &mut Value, change: &mut dyn FnMut(&mut Value)) {
    let parts: Vec<&mut Value> = match document["kind"] == "all" {
        true => match document {
            Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| crate::studies::NAMES.contains(&name.as_str()))
                .map(|(_, part)| part)
                .collect(),
            _ => vec![],
        },
        false => vec![document],
    };
    for part in parts {
        for row in part.get_mut("results").and_then(Value::as_array_mut).into_iter().flatten() {
            if row.is_object() {
                change(row);
            }
        }
    }
}

/// Takes away what each run says again of its row.
fn without_settings(row: &mut Value) {
    let (settings, command) = (row["settings"].clone(), row["command"].clone());
    for run in row.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(run) = run {
            if run.get("settings") == Some(&settings) {
                run.remove("settings");
            }
            if run.get("command") == Some(&command) {
                run.remove("command");
            }
        }
    }
}

/// The performance log stands in files of its own, and would be half of a page.
fn without_performance(row: &mut Value) {
    for run in row.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(run) = run {
            run.remove("performance");
        }
    }
}

fn without_samples(row: &mut Value) {
    let metrics = row.get_mut("metrics").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, metric) in metrics {
        if let Value::Object(fields) = metric {
            fields.remove("samples");
            fields.remove("counted");
            for part in fields.values_mut().filter_map(Value::as_object_mut) {
                part.remove("samples");
                part.remove("counted");
            }
        }
    }
}
