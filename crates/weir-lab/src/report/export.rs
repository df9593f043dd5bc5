//! The figures of a document for other programs: CSV for whoever computes with them, Markdown for whoever quotes
//! them.

use serde_json::Value;

use crate::device::results::Devices;
use crate::experiment::cell::Metric;
use crate::report::Told;
use crate::report::number::UNKNOWN;
use crate::saved::{Part, parts};
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
            let of_row = [
                part.kind().to_owned(),
                plain(&row["load_name"]),
                plain(&row["spec"]),
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
                lines.push(line);
            }
        }
    }
    for line in lines {
        writer.write_record(line).expect("memory takes every record, and all have as many fields");
    }
    let bytes = writer.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("it is made of text")
}

/// The conclusion and a table of each load.
pub fn markdown(document: &Value) -> String {
    let of = |part: Part| match part.kind() {
        Udp::KIND => of_kind::<Udp>(part),
        Tcp::KIND => of_kind::<Tcp>(part),
        Devices::KIND => of_kind::<Devices>(part),
        _ => String::new(),
    };
    parts(document).into_iter().map(of).collect::<Vec<_>>().join("\n")
}

fn of_kind<K: Told>(part: Part) -> String {
    let machine = ["cpu_model", "cores", "kernel"].map(|name| part.machine(name));
    let [cpu, cores, kernel] = machine.map(|property| property.unwrap_or_else(|| UNKNOWN.into()));
    let title = K::UNIT.title;
    let mut text = format!("## {title}\n\nOn {cpu}, {cores} cores, kernel {kernel}.\n\n");
    let conclusion = &part.0["conclusion"];
    let sentences = conclusion["sentences"].as_array().into_iter().flatten();
    if let Some(headline) = part.headline() {
        text += &format!("**{}**\n", escaped(headline));
        sentences.filter_map(Value::as_str).for_each(|one| text += &format!("{}\n", escaped(one)));
        text.push('\n');
    }
    for load in part.0["loads"].as_array().into_iter().flatten() {
        let (name, by) = (plain(&load["name"]), plain(&load["ranked_by"]));
        let mut rows: Vec<&Value> = part
            .rows()
            .filter(|row| row["load_name"] == load["name"] && row["role"] != "again")
            .collect();
        text += &format!("### {}\n\n", escaped(&name));
        let Some(ranked_by) = K::METRICS.iter().find(|metric| metric.name == by) else { continue };
        let figure = |row: &Value, metric: &Metric<K::Sample>| {
            let value = metric.name.split('.').fold(&row["metrics"], |at, name| &at[name]);
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
            let provider = provider.map(|name| format!(" on {name}")).unwrap_or_default();
            let rank =
                row["rank"].as_u64().map_or_else(|| UNKNOWN.to_owned(), |rank| rank.to_string());
            let spec = escaped(&plain(&row["spec"]));
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
