//! The figures of a document for other programs: CSV for whoever computes with them, Markdown for whoever quotes
//! them.

use serde_json::Value;

use crate::device::results::Devices;
use crate::experiment::cell::Metric;
use crate::report::Told;
use crate::report::number::UNKNOWN;
use crate::saved::{KINDS, Part, is_under, load_name, metric_of, parts, spec_of};
use crate::tcp::results::Tcp;
use crate::udp::results::Udp;

/// The columns of the CSV.
const COLUMNS: [&str; 13] = [
    "kind",
    "load",
    "row",
    "provider",
    "status",
    "rank",
    "limited_by",
    "metric",
    "unit",
    "median",
    "low",
    "high",
    "rounds",
];

/// A line for each metric of each row under each load, with its median and the ends of its 95 % interval (empty where
/// it has none) and the rounds that count.
pub fn csv(document: &Value) -> String {
    let mut writer = csv::Writer::from_writer(vec![]);
    let mut lines = vec![COLUMNS.map(str::to_owned).to_vec()];
    for part in parts(document) {
        for row in part.rows() {
            let load = part.loads().find(|load| is_under(row, load)).unwrap_or(&Value::Null);
            let of_row = [
                part.kind().to_owned(),
                if load.is_null() { plain(&row["load_name"]) } else { load_name(load) },
                spec_of(row, load).unwrap_or_default(),
                plain(&row["provider"]),
                plain(&row["status"]),
                plain(&row["rank"]),
                plain(&row["limited_by"]),
            ];
            for (name, metric) in metrics(row) {
                let counted = metric["counted"].as_array().into_iter().flatten();
                let rounds = counted.filter(|counted| counted.as_bool() == Some(true)).count();
                let figures = ["unit", "median", "low", "high"].map(|field| plain(&metric[field]));
                let mut line = of_row.to_vec();
                line.push(name);
                line.extend(figures);
                line.push(rounds.to_string());
                lines.push(line.iter().map(|field| no_formula(field)).collect());
            }
        }
    }
    for line in lines {
        writer.write_record(line).expect("memory takes every record, and all have as many fields");
    }
    let bytes = writer.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("it is made of text")
}

/// A text that no spreadsheet takes for a formula, whatever somebody called a program or a load.
fn no_formula(text: &str) -> String {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err() {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

/// The conclusion and a table of each load; what failed or was ended early stands first.
pub fn markdown(document: &Value) -> String {
    let of = |part: Part| match part.kind() {
        Udp::KIND => of_kind::<Udp>(part),
        Tcp::KIND => of_kind::<Tcp>(part),
        Devices::KIND => of_kind::<Devices>(part),
        _ => String::new(),
    };
    let of_kinds = parts(document).into_iter().map(of).filter(|text| !text.is_empty());
    warnings(document).into_iter().chain(of_kinds).collect::<Vec<_>>().join("\n")
}

/// What a reader must know of the document as a whole, a paragraph each.
fn warnings(document: &Value) -> Vec<String> {
    let mut all = vec![];
    if let Some(error) = document["error"].as_str() {
        all.push(format!("**It failed: {}**\n", escaped(error)));
    }
    for kind in KINDS {
        if let Some(error) = document[kind]["error"].as_str() {
            all.push(format!("**weir compare {kind}: {}**\n", escaped(error)));
        }
    }
    if document["interrupted"] == true {
        all.push(
            "**It was ended before its plan was complete: these are the results until then.**\n"
                .into(),
        );
    }
    all
}

fn of_kind<K: Told>(part: Part) -> String {
    let machine = ["cpu_model", "cores", "kernel"].map(|name| part.machine(name));
    let [cpu, cores, kernel] =
        machine.map(|property| escaped(&property.unwrap_or_else(|| UNKNOWN.into())));
    let title = K::UNIT.title;
    let mut text = format!("## {title}\n\nOn {cpu}, {cores} cores, kernel {kernel}.\n\n");
    let conclusion = &part.0["conclusion"];
    let sentences = conclusion["sentences"].as_array().into_iter().flatten();
    if let Some(headline) = part.headline() {
        text += &format!("**{}**\n", escaped(headline));
        sentences.filter_map(Value::as_str).for_each(|one| text += &format!("{}\n", escaped(one)));
        text.push('\n');
    }
    for load in part.loads() {
        let (name, by) = (load_name(load), plain(&load["ranked_by"]));
        let mut rows: Vec<&Value> =
            part.rows().filter(|row| is_under(row, load) && row["role"] != "again").collect();
        text += &format!("### {}\n\n", escaped(&name));
        let Some(ranked_by) = K::METRICS.iter().find(|metric| metric.name == by) else { continue };
        let figure = |row: &Value, metric: &Metric<K::Sample>| {
            let value = metric_of(row, metric.name);
            ["median", "low", "high"].map(|field| value[field].as_f64())
        };
        rows.sort_by(|a, b| {
            let rank = |row: &Value| row["rank"].as_u64().unwrap_or(u64::MAX);
            let median = |row: &Value| figure(row, ranked_by)[0].unwrap_or(f64::NAN);
            rank(a).cmp(&rank(b)).then(ranked_by.better.first(median(a), median(b)))
        });
        let shown: Vec<&Metric<K::Sample>> = [ranked_by, K::UNIT.cpu]
            .into_iter()
            .chain(K::UNIT.latency)
            .chain(K::METRICS.iter().filter(|metric| metric.name == "batch_datagrams.p50"))
            .collect();
        let headings: Vec<String> =
            shown.iter().map(|metric| escaped(&metric.heading.replace('\n', " "))).collect();
        text += &format!("| # | design | {} | limited by |\n", headings.join(" | "));
        text += &format!("| --: | --- | {}--- |\n", "--: | ".repeat(shown.len()));
        for row in rows {
            let written = |metric: &&Metric<K::Sample>| {
                let [Some(median), low, high] = figure(row, metric) else {
                    return UNKNOWN.to_owned();
                };
                match low.zip(high).filter(|_| metric.name == ranked_by.name) {
                    Some((low, high)) => {
                        let [median, low, high] = [median, low, high].map(metric.text);
                        format!("{median} ({low} to {high})")
                    }
                    None => (metric.text)(median),
                }
            };
            let figures: Vec<String> = shown.iter().map(written).collect();
            let provider =
                row["provider"].as_str().filter(|_| !plain(&row["spec"]).contains("--provider"));
            let provider =
                provider.map(|name| format!(" on {}", escaped(name))).unwrap_or_default();
            let rank =
                row["rank"].as_u64().map_or_else(|| UNKNOWN.to_owned(), |rank| rank.to_string());
            let spec = escaped(&spec_of(row, load).unwrap_or_default());
            let last = match &row["reason"] {
                Value::String(reason) => escaped(reason),
                _ => escaped(&plain(&row["limited_by"])),
            };
            text += &format!("| {rank} | {spec}{provider} | {} | {last} |\n", figures.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// The metrics of a row, those of a group by both names.
fn metrics(row: &Value) -> Vec<(String, &Value)> {
    let mut all = vec![];
    for (name, value) in row["metrics"].as_object().into_iter().flatten() {
        match value.get("median") {
            Some(_) => all.push((name.clone(), value)),
            None => {
                let parts = value.as_object().into_iter().flatten();
                all.extend(parts.map(|(part, value)| (format!("{name}.{part}"), value)));
            }
        }
    }
    all
}

/// A value as it stands in a table; what is not known is empty.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Text in which nothing is Markdown or HTML, on one line.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' => escaped.extend(['\\', letter]),
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::document;
    use crate::udp::report::fixture::results;

    fn of_udp() -> Value {
        document(&results())
    }

    #[test]
    fn every_metric_of_every_row_is_a_record_of_as_many_fields() {
        let document = of_udp();
        let text = csv(&document);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), COLUMNS);
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let rows = document["results"].as_array().unwrap();
        let all: usize = rows.iter().map(|row| metrics(row).len()).sum();
        assert_eq!(records.len(), all);
        let row = rows.iter().find(|row| row["rank"] == 1).unwrap();
        let found = records.iter().find(|record| {
            record[1] == plain(&row["load_name"])
                && record[2] == plain(&row["spec"])
                && &record[7] == "received_per_s"
        });
        let median: f64 = found.unwrap()[9].parse().unwrap();
        assert_eq!(Some(median), row["metrics"]["received_per_s"]["median"].as_f64());
    }

    #[test]
    fn fields_with_commas_quotes_and_lines_stay_one_field() {
        let mut document = of_udp();
        document["results"][0]["spec"] = "a,\"b\"\nc".into();
        let text = csv(&document);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(&reader.records().next().unwrap().unwrap()[2], "a,\"b\"\nc");
    }

    #[test]
    fn no_field_is_a_formula_of_a_spreadsheet() {
        let mut document = of_udp();
        for (row, spec) in ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)"].iter().enumerate() {
            document["results"][row]["spec"] = (*spec).into();
        }
        document["results"][0]["metrics"]["received_per_s"]["median"] = (-5).into();
        let text = csv(&document);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert!(records.iter().any(|record| &record[2] == "'=cmd|' /C calc'!A0"), "{text}");
        let is_formula = |field: &str| field.starts_with(['=', '+', '-', '@']) && field != "-5";
        assert!(!records.iter().flatten().any(is_formula), "{text}");
        assert!(records.iter().any(|record| &record[9] == "-5"), "figures are figures");
    }

    #[test]
    fn rows_with_and_without_receive_offload_are_told_apart() {
        let document = document(&crate::udp::report::fixture::with_offload());
        let text = csv(&document);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut keys: Vec<Vec<String>> = reader
            .records()
            .map(Result::unwrap)
            .filter(|record| &record[2] == "blocking" || &record[2] == "blocking (offload)")
            .map(|record| [1, 2, 3, 7].map(|field| record[field].to_owned()).to_vec())
            .collect();
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert!(keys.len() == all && keys.iter().any(|key| key[1].ends_with("(offload)")));
        assert!(markdown(&document).contains("| blocking (offload)"));
    }

    #[test]
    fn a_row_of_an_older_document_stands_under_its_own_load_alone() {
        let mut older = of_udp();
        let of = |document: &Value| {
            let text = markdown(document);
            text.lines().filter(|line| line.starts_with('|')).count()
        };
        let lines = of(&older);
        for (list, name) in [("loads", "name"), ("results", "load_name")] {
            for entry in older[list].as_array_mut().unwrap() {
                entry.as_object_mut().unwrap().remove(name);
            }
        }
        assert_eq!(of(&older), lines);
    }

    #[test]
    fn markdown_says_what_failed_and_escapes_the_machine() {
        let mut udp = of_udp();
        udp["machine"]["cpu_model"] = "<b>x</b>".into();
        let failed = crate::report::document::failure(&[], "no memory", crate::exit::FAILED);
        let all = serde_json::json!({
            "schema_version": 1, "kind": "all", "interrupted": true, "udp": udp, "tcp": failed,
        });
        let text = markdown(&all);
        assert!(
            text.contains("weir compare tcp: no memory") && text.contains("ended before"),
            "{text}"
        );
        assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "{text}");
        assert!(markdown(&all["tcp"]).contains("It failed: no memory"));
    }

    #[test]
    fn markdown_has_the_conclusion_and_a_table_of_each_load() {
        let mut document = of_udp();
        document["results"][0]["spec"] = "a|b<script>*x*".into();
        let text = markdown(&document);
        let headline = document["conclusion"]["headline"].as_str().unwrap();
        assert!(text.contains(&format!("**{headline}**")), "{text}");
        for load in document["loads"].as_array().unwrap() {
            assert!(text.contains(&format!("### {}", load["name"].as_str().unwrap())), "{text}");
        }
        assert!(text.contains(r"a\|b&lt;script&gt;\*x\*"), "{text}");
        let tables = text.lines().filter(|line| line.starts_with('|'));
        let bars = |line: &str| line.replace(r"\|", "").matches('|').count();
        let widths: Vec<usize> = tables.map(bars).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    }
}
