//! The figures of a document for other programs: CSV for whoever computes with them, Markdown for whoever quotes
//! them.

use serde_json::Value;

use crate::report::deciding::{self, BEST, Column, LIMIT, Line};
use crate::report::kinds::KINDS;
use crate::report::model::{
    INTERRUPTED, MEMORY_COLUMNS, Standing, Study, errors, is_memory, items, memory_rows, texts,
};
use crate::report::places::Places;
use crate::saved::{is_under, load_name, parts, spec_of};

/// The columns of the CSV.
const COLUMNS: [&str; 15] = [
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
    // Of a comparison over hosts.
    "generators",
    "links",
];

/// A line for each metric of each row under each load, with its median and the ends of its 95 % interval (empty where
/// it has none), the rounds that count, and where it was measured, if over hosts.
pub fn csv(document: &Value) -> String {
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
            let kind = KINDS.iter().find(|kind| kind.name == part.kind());
            let places = Places::of_row(row, kind.map_or("generator", |kind| kind.generator));
            let places = places.map_or_else(Default::default, |of| [of.sides, of.links]);
            for (name, metric) in metrics(row) {
                let counted = metric["counted"].as_array().into_iter().flatten();
                let rounds = counted.filter(|counted| counted.as_bool() == Some(true)).count();
                let figures = ["unit", "median", "low", "high"].map(|field| plain(&metric[field]));
                let mut line = of_row.to_vec();
                line.push(name);
                line.extend(figures);
                line.push(rounds.to_string());
                line.extend(places.clone());
                lines.push(line);
            }
        }
    }
    let of_memory_alone = items(&document["results"]).filter(|_| is_memory(document));
    lines.extend(of_memory_alone.flat_map(of_memory));
    written(&lines)
}

/// Records of CSV, all with as many fields.
pub(crate) fn written(records: &[Vec<String>]) -> String {
    let mut writer = csv::Writer::from_writer(vec![]);
    for record in records {
        let fields = record.iter().map(|field| no_formula(field));
        writer
            .write_record(fields)
            .expect("memory takes every record, and all have as many fields");
    }
    let bytes = writer.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("it is made of text")
}

/// The records of a row of `weir compare udp --memory`, which has medians alone.
fn of_memory(row: &Value) -> Vec<Vec<String>> {
    let of_metric = |name: &str| {
        let median = plain(&row[name]);
        let rounds = row["samples"].as_array().map_or(0, Vec::len).to_string();
        let [spec, provider, status] = ["spec", "provider", "status"].map(|name| plain(&row[name]));
        let (none, kind, unit) = (String::new, "memory".to_owned(), "bytes".to_owned());
        let record = [
            kind,
            none(),
            spec,
            provider,
            status,
            none(),
            none(),
            name.into(),
            unit,
            median,
            none(),
            none(),
            rounds,
            none(),
            none(),
        ];
        record.to_vec()
    };
    let known =
        ["registered_bytes", "kernel_bytes"].into_iter().filter(|name| row[*name].is_number());
    known.map(of_metric).collect()
}

/// A text that no spreadsheet takes for a formula, whatever somebody called a program or a load.
fn no_formula(text: &str) -> String {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err() {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

/// The conclusion, warnings, and a table of each load; what failed or was ended early stands first.
pub fn markdown(document: &Value) -> String {
    let mut text = String::new();
    for error in errors(document) {
        text += &format!("**{}**\n\n", escaped(&error));
    }
    if document["interrupted"] == true {
        text += &format!("**{INTERRUPTED}**\n\n");
    }
    let studies = Study::all(document);
    let of_kinds = studies.iter().filter(|study| !study.is_plan()).map(of_kind);
    text += &of_kinds.collect::<Vec<_>>().join("\n");
    let memory = memory_rows(document);
    if !memory.is_empty() {
        text += &format!("## Memory of servers that wait\n\n{}", table(MEMORY_COLUMNS, memory));
    }
    text
}

fn of_kind(study: &Study) -> String {
    let mut text = format!("## {}\n\n", study.kind.title);
    let machine = study.machine();
    if !machine.is_empty() {
        text += &format!("On {}.\n\n", escaped(&machine.join(", ")));
    }
    let conclusion = &study.value["conclusion"];
    if let Some(headline) = conclusion["headline"].as_str() {
        text += &format!("**{}**\n", escaped(headline));
        for sentence in texts(&conclusion["sentences"]) {
            text += &format!("{}\n", escaped(&sentence));
        }
        text.push('\n');
    }
    let warnings = study.warnings();
    warnings.iter().for_each(|warning| text += &format!("- Warning: {}\n", escaped(warning)));
    for load in &study.loads {
        text += &format!("\n### {}\n", escaped(&load.name));
        let decides = deciding::table(study, load);
        let columns = decides.columns.iter().enumerate();
        let columns = columns.map(|(place, of)| (of.heading.as_str(), Column::is_words(place)));
        for (group, lines) in &decides.groups {
            if !group.title.is_empty() {
                text += &format!("\n#### {}\n", escaped(group.title));
            }
            let lines = lines.iter().filter(|line| line.row.standing != Standing::Again);
            text += &format!("\n{}", table(columns.clone(), lines.map(fields)));
        }
        if let Some(places) = load.places(study.kind) {
            text += &format!("\n{}\n", escaped(&places));
        }
    }
    text
}

/// The fields of a line: beside a ratio its interval, and of a row without a rank the reason.
fn fields(line: &Line) -> [String; deciding::COLUMNS] {
    let mut fields = line.fields.clone();
    if let Some(within) = &line.best_within {
        fields[BEST] += &format!(" {within}");
    }
    if let Some(reason) = line.row.value["reason"].as_str() {
        fields[LIMIT] = reason.into();
    }
    fields
}

/// A table of Markdown, whose columns have these headings, and say whether words stand in them.
fn table<'a, const N: usize>(
    columns: impl IntoIterator<Item = (&'a str, bool)>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let (headings, words): (Vec<&str>, Vec<bool>) = columns.into_iter().unzip();
    let line = |fields: &[String]| {
        let fields: Vec<String> = fields.iter().map(|field| escaped(field)).collect();
        format!("| {} |\n", fields.join(" | "))
    };
    let rules: Vec<&str> = words.iter().map(|words| if *words { "---" } else { "--:" }).collect();
    let headings: Vec<String> = headings.into_iter().map(str::to_owned).collect();
    let mut text = format!("{}| {} |\n", line(&headings), rules.join(" | "));
    rows.into_iter().for_each(|row| text += &line(&row));
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
pub(crate) fn plain(value: &Value) -> String {
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
            text.contains("weir compare tcp: no memory") && text.contains(INTERRUPTED),
            "{text}"
        );
        assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "{text}");
        assert!(markdown(&all["tcp"]).contains("It failed: no memory"));
    }

    #[test]
    fn markdown_has_the_conclusion_and_a_table_of_each_load() {
        let mut document = of_udp();
        document["results"][0]["name"] = "a|b<script>*x*".into();
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
        assert!(text.contains("× best") && text.contains(r"| \~1.00 ("), "{text}");
        assert!(text.contains("- Warning: the machine is virtual"), "{text}");
    }

    #[test]
    fn markdown_has_a_table_for_each_group() {
        let text = markdown(&document(&crate::udp::report::fixture::with_offload()));
        let title = "#### designs with receive offload, in the same rounds";
        assert_eq!(text.matches(title).count(), 1, "{text}");
        assert!(text.contains("#### designs without receive offload"), "{text}");
    }

    #[test]
    fn memory_is_a_table_and_records() {
        let row = |status: &str, kernel: Value| {
            serde_json::json!({
                "design": "port", "spec": "port --outstanding 100", "provider": "uring", "outstanding": 100,
                "status": status, "reason": if status == "ok" { Value::Null } else { "no ring".into() },
                "registered_bytes": kernel, "kernel_bytes": kernel, "samples": [{}, {}, {}],
            })
        };
        let document = serde_json::json!({
            "schema_version": 1, "kind": "memory", "noise_bytes": 0,
            "results": [row("ok", 65_536.into()), row("failed", Value::Null)],
        });
        let text = markdown(&document);
        assert!(text.contains("| port --outstanding 100 | uring | 100 | 64 KiB |"), "{text}");
        assert!(text.contains("| no ring |"), "{text}");
        let records = csv(&document);
        assert_eq!(records.lines().count(), 3, "{records}");
        assert!(
            records
                .contains("memory,,port --outstanding 100,uring,ok,,,kernel_bytes,bytes,65536,,,3")
        );
    }
}
