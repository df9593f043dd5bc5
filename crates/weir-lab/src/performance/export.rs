//! The performance log as files: NDJSON and CSV, made of a document, or record by record of a server.

use serde_json::{Value, json};

use super::Record;
use crate::report::export::{plain, written};
use crate::report::model::{items, text};
use crate::saved::parts;

/// Whether a run of the document has records.
pub fn has_any(document: &Value) -> bool {
    let mut any = false;
    each(document, &mut |_, _| any = true);
    any
}

/// The records of all runs of a document, a line each, with what was run.
pub fn ndjson(document: &Value) -> String {
    let mut lines = String::new();
    each(document, &mut |run, record| {
        let mut line = run.clone();
        if let (Value::Object(line), Value::Object(record)) = (&mut line, record) {
            line.extend(record.clone());
        }
        lines += &format!("{line}\n");
    });
    lines
}

/// The line of a record of a server that nobody compares.
pub fn line(record: &Record) -> String {
    format!("{}\n", json!(record))
}

/// What says which run a record is of.
const RUN: [&str; 8] =
    ["kind", "load", "spec", "provider", "round", "attempt", "counted", "receive_offload"];
/// What says which figure a line has: from when to when, of what, which one of those, its name and value.
const FIGURE: [&str; 6] = ["from_ms", "to_ms", "of", "which", "figure", "value"];

/// The first line of the records of a server that nobody compares, as CSV.
pub fn csv_heading() -> String {
    written(&[FIGURE.map(str::to_owned).to_vec()])
}

/// The lines of such a record.
pub fn csv_lines(record: &Record) -> String {
    written(&figures(&json!(record)))
}

/// The records of all runs of a document as CSV: a line for each figure that is known.
pub fn csv(document: &Value) -> String {
    let heading = RUN.into_iter().chain(FIGURE).map(str::to_owned);
    let mut all = vec![heading.collect::<Vec<_>>()];
    each(document, &mut |run, record| {
        let of: Vec<String> = RUN.iter().map(|name| plain(&run[*name])).collect();
        all.extend(figures(record).into_iter().map(|figure| [of.clone(), figure].concat()));
    });
    written(&all)
}

/// Calls `take` with each record of a document, and what its run is.
fn each(document: &Value, take: &mut dyn FnMut(&Value, &Value)) {
    for part in parts(document) {
        for row in part.rows() {
            for run in items(&row["runs"]) {
                let of = json!({
                    "kind": part.kind(),
                    "load": row["load_name"],
                    "spec": row["spec"],
                    "name": row["name"],
                    "provider": row["provider"],
                    "receive_offload": row["load"]["receive_offload"],
                    // Blocks are numbered from 0, rounds from 1 as on the page.
                    "round": run["block"].as_u64().map(|block| block.saturating_add(1)),
                    "attempt": run["attempt"],
                    "counted": run["counted"],
                });
                items(&run["performance"]).for_each(|record| take(&of, record));
            }
        }
    }
}

/// What of a record stands in groups by name.
const GROUPS: [&str; 7] = ["counts", "settings", "process", "system", "udp", "network", "sockets"];

/// The figures of a record that are known, as the last fields of a line.
fn figures(record: &Value) -> Vec<Vec<String>> {
    let ms = |name: &str| {
        record[name].as_u64().map_or(String::new(), |ns| format!("{:.3}", ns as f64 / 1e6))
    };
    let when = [ms("from_ns"), ms("to_ns")];
    let mut all = vec![];
    let mut add = |of: &str, which: &str, figure: &str, value: &Value| {
        if value.is_number() {
            let fields = [of, which, figure].map(str::to_owned);
            all.push([&when[..], &fields[..], &[plain(value)]].concat());
        }
    };
    let each = |group: &Value, add: &mut dyn FnMut(&str, &Value)| {
        group.as_object().into_iter().flatten().for_each(|(name, value)| add(name, value));
    };
    for group in GROUPS {
        let of = if group == "counts" { "server" } else { group };
        each(&record[group], &mut |name, value| add(of, "", name, value));
    }
    add("server", "", "mean_batch", &record["mean_batch"]);
    add("server", "", "more_threads", &record["more_threads"]);
    add("system", "", "idle_cores", &record["idle_cores"]);
    for thread in items(&record["threads"]) {
        let name = text(thread, "name").unwrap_or_default();
        for group in ["usage", "counts"] {
            each(&thread[group], &mut |figure, value| add("thread", &name, figure, value));
        }
        add("thread", &name, "mean_batch", &thread["mean_batch"]);
    }
    for core in items(&record["cores"]) {
        let number = plain(&core["core"]);
        each(core, &mut |figure, value| match figure {
            "core" => {}
            _ => add("core", &number, figure, value),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::Record;
    use crate::report::document::document;
    use crate::udp::report::fixture::results;

    fn record(from_ns: u64) -> Record {
        let thread = r#"{"name":"weir-udp-0","id":7,"usage":{"cpu_ns":5,"migrations":null},"counts":{"posts":3},"mean_batch":1.5}"#;
        let text = format!(
            r#"{{"from_ns":{from_ns},"to_ns":2500000,"counts":{{"datagrams":9}},"mean_batch":4.5,"threads":[{thread}],
            "cores":[{{"core":3,"busy_percent":50.0,"interrupts":8}}],"idle_cores":1,"udp":{{"in_datagrams":9}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn measured() -> Value {
        let mut results = results();
        let samples = &mut results.cells[0][0].samples;
        samples[0].performance = vec![record(0), record(1_000_000)];
        samples[1].performance = vec![record(0)];
        document(&results)
    }

    #[test]
    fn each_record_is_a_line_that_says_of_which_run_it_is() {
        let document = measured();
        assert!(has_any(&document));
        let text = ndjson(&document);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        let row = &document["results"][0];
        assert!(
            lines.iter().all(|line| line["spec"] == row["spec"] && line["kind"] == "udp"),
            "{text}"
        );
        assert_eq!(lines[1]["from_ns"], 1_000_000);
        assert_eq!(lines[1]["threads"][0]["counts"]["posts"], 3);
        assert_ne!(lines[1]["round"], lines[2]["round"]);
        let all = json!({ "kind": "all", "schema_version": 1, "udp": document });
        assert_eq!(ndjson(&all), text);
        assert!(!has_any(&crate::report::document::document(&results())));
    }

    #[test]
    fn each_figure_that_is_known_is_a_line_of_csv() {
        let text = csv(&measured());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let width = RUN.len() + FIGURE.len();
        assert_eq!(reader.headers().unwrap().len(), width);
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let of = |words: [&str; 4]| {
            let is = |record: &&csv::StringRecord| record.iter().skip(RUN.len() + 2).eq(words);
            records.iter().filter(is).count()
        };
        assert_eq!(of(["server", "", "datagrams", "9"]), 3, "{text}");
        assert_eq!(of(["server", "", "mean_batch", "4.5"]), 3);
        assert_eq!(of(["thread", "weir-udp-0", "cpu_ns", "5"]), 3);
        assert_eq!(of(["core", "3", "busy_percent", "50.0"]), 3);
        assert_eq!(of(["core", "3", "interrupts", "8"]), 3);
        assert_eq!(of(["udp", "", "in_datagrams", "9"]), 3);
        assert!(!text.contains("migrations"), "what is not known has no line: {text}");
        let (from, to) = (RUN.len(), RUN.len() + 1);
        assert!(records.iter().any(|of| &of[from] == "1.000" && &of[to] == "2.500"), "{text}");
    }

    #[test]
    fn a_server_by_itself_has_lines_too() {
        let record = record(0);
        let read: Record = serde_json::from_str(&line(&record)).unwrap();
        assert_eq!(read, record);
        let text = csv_heading() + &csv_lines(&record);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap(), FIGURE.to_vec());
        assert_eq!(reader.records().map(Result::unwrap).filter(|of| &of[2] == "thread").count(), 3);
    }
}
