//! The tables of the page: the one that decides, the one of all metrics, and those of facts.

use maud::{Markup, html};
use serde_json::Value;

use super::model::{Group, Kind, Load, Metric, Row, Standing, Study, items, number, text};
use super::prose;
use crate::report::explain;
use crate::report::number::{UNKNOWN, bytes, percent, percent_of, si, three_figures};
use crate::udp::report::published::CAUTION;

/// What the columns mean that are no metrics: rank, spread, and ratio to the best.
fn common() -> [String; 3] {
    let all = explain::meanings();
    ["# rank", "±", "× best"].map(|heading| {
        let found = all.iter().find(|meaning| meaning.heading.trim() == heading);
        found.map(|meaning| meaning.about.clone()).unwrap_or_default()
    })
}

/// The table that decides: a row for each design, the best first.
pub fn deciding(study: &Study, load: &Load, group: &Group) -> Markup {
    let kind = &study.kind;
    let [about_rank, about_spread, about_best] = common();
    let by = kind.metric(&load.ranked_by, load.rows().find_map(|row| row.unit(&load.ranked_by)));
    let cpu = kind.metric(kind.cpu, Some("ns"));
    // Of latencies the longest bar would be the worst row's.
    let has_bars = !load.ranked_by.contains("latency");
    let largest = group.rows.iter().filter_map(|row| row.median(&by.name)).fold(0.0, f64::max);
    let percent_of_largest =
        |median: f64| format!("{:.1}", 100.0 * median / largest.max(f64::MIN_POSITIVE));
    let latencies = |row: &Row| {
        let of = |field: &str, name: &str| {
            row.latency(kind.all_latencies, field)
                .or_else(|| row.median(&format!("{}.{name}", kind.latency)))
                .map(kind.metric(&format!("{}.p50", kind.latency), Some("ns")).text)
        };
        of("p50", "p50").zip(of("p99", "p99")).map(|(p50, p99)| format!("{p50} / {p99}"))
    };
    html! {
        div.scroll { table.deciding {
            caption { "The table that decides: " (load.name) @if !group.title.is_empty() { ", " (group.title) } }
            thead { tr {
                th scope="col" title=(about_rank) { "#" }
                th.words scope="col" { "design" }
                th scope="col" title=(by.about) { (by.heading) }
                th.wide aria-hidden="true" {}
                th scope="col" title=(about_spread) { "±" }
                th scope="col" title=(about_best) { "× best" }
                th scope="col" title=(cpu.about) { (cpu.heading) }
                th scope="col" title="median and 99th percentile of the latency, all runs together" { "p50 / p99 µs" }
                th.words scope="col" title=(kind.limits) { "limited by" }
            } }
            tbody {
                @for row in &group.rows {
                    @let figure = row.figure(&by.name);
                    tr class=(row.standing.class()) data-s=(row.series) {
                        td.rank { (rank(group, row)) }
                        th.words scope="row" {
                            (prose(&row.name)) " "
                            @if let Some((word, meaning)) = mark_of(group, row) { span.mark title=(meaning) { (word) } }
                        }
                        @match figure {
                            Some(figure) => {
                                td.figure {
                                    @if row.value["lower_bound"] == true {
                                        span title="a lower bound: the server was not the limit" { "≥ " }
                                    }
                                    ((by.text)(figure.median))
                                }
                                td.wide aria-hidden="true" {
                                    @if has_bars && row.standing != Standing::Unranked {
                                        div.bar style={ "width:" (percent_of_largest(figure.median)) "%" } {}
                                    }
                                }
                                td { (spread(row, &by)) }
                            }
                            None => { td { (UNKNOWN) } td.wide aria-hidden="true" {} td { (UNKNOWN) } }
                        }
                        td { (to_best(row)) }
                        td { (row.median(kind.cpu).map_or(UNKNOWN.into(), cpu.text)) }
                        td { (latencies(row).unwrap_or_else(|| UNKNOWN.into())) }
                        td.words title=[row.value["limit_reason"].as_str()] { (limited_by(row)) }
                    }
                }
            }
        } }
    }
}

fn rank(group: &Group, row: &Row) -> String {
    match (row.standing, row.value["rank"].as_u64()) {
        (Standing::Open, _) => "?".into(),
        (Standing::Again | Standing::Unranked, _) => UNKNOWN.into(),
        // Behind the best, and undecided against others.
        (_, None) => "?".into(),
        (_, Some(rank)) if group.shares_rank(row) => format!("{rank}="),
        (_, Some(rank)) => rank.to_string(),
    }
}

/// The word beside a name, and what it means.
fn mark_of(group: &Group, row: &Row) -> Option<(&'static str, &'static str)> {
    Some(match row.standing {
        Standing::Tied => ("tied", "one of the best, which are alike within the noise"),
        Standing::Open => {
            ("undecided", "too few comparable rounds, or too much noise, to tell it from the best")
        }
        Standing::Again => {
            ("second name", "the same row under a second name, which shows the noise")
        }
        Standing::Unranked => match row.value["status"].as_str() {
            Some("unavailable") => {
                ("cannot run here", "the reason is below, under what was left out")
            }
            Some("failed") => ("failed", "the reason is below, under what was left out"),
            Some("not_measured") => {
                ("not measured", "the reason is below, under what was left out")
            }
            _ => ("not ranked", "the reason is below, under what was left out"),
        },
        Standing::Behind if group.shares_rank(row) => {
            ("tied", "as good as the others of its rank, within the noise")
        }
        Standing::Best | Standing::Behind => return None,
    })
}

fn spread(row: &Row, metric: &Metric) -> String {
    let Some((figure, (low, high))) =
        row.figure(&metric.name).and_then(|of| Some((of, of.interval?)))
    else {
        return UNKNOWN.into();
    };
    match figure.median > 0.0 {
        true => percent((high - low) / 2.0 / figure.median),
        false => UNKNOWN.into(),
    }
}

/// The row's figure to the best one's: what the document says the other way round.
fn to_best(row: &Row) -> String {
    let of = &row.value["winner_to_it"];
    let inverse =
        |name: &str| number(&of[name]).filter(|ratio| *ratio > 0.0).map(|ratio| 1.0 / ratio);
    let sign = match row.standing {
        Standing::Best => return "1".into(),
        Standing::Again | Standing::Unranked => return UNKNOWN.into(),
        Standing::Tied => "~",
        Standing::Open => "?",
        Standing::Behind => "",
    };
    let Some(ratio) = inverse("median") else {
        return if sign == "~" { "1".into() } else { "?".into() };
    };
    let interval = inverse("high").zip(inverse("low"));
    let interval = interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
    format!("{sign}{ratio:.2}{}", interval.unwrap_or_default())
}

fn limited_by(row: &Row) -> String {
    text(row.value, "limited_by").unwrap_or_else(|| match row.value["status"].as_str() {
        Some("ok") | None => UNKNOWN.into(),
        Some(status) => status.replace('_', " "),
    })
}

/// All metrics that are known of any row.
pub fn everything(study: &Study, load: &Load) -> Markup {
    let known: Vec<Metric> = names_of(load)
        .into_iter()
        .filter(|name| load.rows().any(|row| row.median(name).is_some()))
        .map(|name| {
            let unit = load.rows().find_map(|row| row.unit(&name));
            study.kind.metric(&name, unit)
        })
        .collect();
    if known.is_empty() {
        return html! {};
    }
    html! {
        details {
            summary { "All " (known.len()) " metrics of " (load.name) }
            div.scroll { table.everything {
                thead { tr {
                    th.words scope="col" { "design" }
                    th.words scope="col" { "provider" }
                    th scope="col" title="runs that were made, and those that failed" { "runs" }
                    @for metric in &known { th scope="col" title=(metric.about) { (metric.heading) } }
                } }
                tbody {
                    @for row in load.rows() {
                        tr class=(row.standing.class()) data-s=(row.series) {
                            th.words scope="row" { (prose(&row.name)) }
                            td.words { (text(row.value, "provider").unwrap_or_else(|| UNKNOWN.into())) }
                            td { (runs(row)) }
                            @for metric in &known { (cell(row, metric)) }
                        }
                    }
                }
            } }
        }
    }
}

fn runs(row: &Row) -> String {
    let made = row.value["runs"].as_array().map_or(0, Vec::len);
    match row.value["failed_runs"].as_u64() {
        Some(failed) if failed > 0 => format!("{made} + {failed} failed"),
        _ => made.to_string(),
    }
}

fn cell(row: &Row, metric: &Metric) -> Markup {
    let figure = row.figure(&metric.name);
    let interval = figure.and_then(|figure| figure.interval);
    let said =
        interval.map(|(low, high)| format!("{} to {}", (metric.text)(low), (metric.text)(high)));
    html! { td title=[said] { (figure.map_or(UNKNOWN.into(), |figure| (metric.text)(figure.median))) } }
}

/// The names of all metrics, those of an object behind its own.
fn names_of(load: &Load) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for row in load.rows() {
        for (name, value) in row.value["metrics"].as_object().into_iter().flatten() {
            let parts: Vec<String> = match value["unit"].is_string() || value["median"].is_number()
            {
                true => vec![name.clone()],
                false => value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(part, _)| format!("{name}.{part}"))
                    .collect(),
            };
            for part in parts {
                if !names.contains(&part) {
                    names.push(part);
                }
            }
        }
    }
    names
}

/// Names and what stands for them.
pub fn facts(rows: &[(String, String)]) -> Markup {
    html! {
        div.scroll { table.facts { tbody {
            @for (name, value) in rows { tr { th.words scope="row" { (name) } td.words { (value) } } }
        } } }
    }
}

/// An object's fields as facts, those that are known; lists in one line.
pub fn fields(object: &Value, except: &[&str]) -> Vec<(String, String)> {
    let all = object.as_object().into_iter().flatten();
    let known = all.filter(|(name, _)| !except.contains(&name.as_str()));
    known.filter_map(|(name, value)| Some((worded(name), plain(name, value)?))).collect()
}

/// A field's name in words; units that the figure says itself are left out.
fn worded(name: &str) -> String {
    let words = ["_bytes", "_percent", "_ns"]
        .iter()
        .fold(name, |name, unit| name.strip_suffix(unit).unwrap_or(name));
    words.replace('_', " ").replace("cpu", "CPU").replace("io uring", "io_uring")
}

/// A field's value as text, written by the unit that its name ends with.
fn plain(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(is_so) => Some(if *is_so { "yes" } else { "no" }.into()),
        Value::Number(_) => number(value).map(|number| match name {
            _ if name.ends_with("_bytes") => bytes(number),
            _ if name.ends_with("_percent") => percent_of(number),
            _ if name.ends_with("_ns") => format!("{number:.0} ns"),
            _ if name.ends_with("_per_s") => si(number),
            _ => value.as_u64().map_or_else(|| three_figures(number), |count| count.to_string()),
        }),
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let parts: Vec<String> = list.iter().filter_map(|value| plain(name, value)).collect();
            (!parts.is_empty()).then(|| parts.join(", "))
        }
        Value::Object(fields) => {
            let parts = fields.iter().filter_map(|(name, value)| {
                Some(format!("{}: {}", worded(name), plain(name, value)?))
            });
            let parts: Vec<String> = parts.collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
    }
}

/// The headings of a table: their texts, and whether words stand below.
pub fn headings(all: &[(&str, bool)]) -> Markup {
    html! {
        thead { tr { @for (heading, words) in all { th.words[*words] scope="col" { (heading) } } } }
    }
}

/// What was published elsewhere, beside what was found here.
pub fn published(study: &Study) -> Markup {
    let of_udp: Vec<&Value> = study.value["loads"]
        .get(0)
        .into_iter()
        .flat_map(|load| items(&load["published"]))
        .collect();
    let of_tcp: Vec<&Value> = items(&study.value["classic"]["published"]).collect();
    let word = |value: &Value, name: &str| text(value, name).unwrap_or_default();
    let ratio = |value: &Value| number(value).map_or(UNKNOWN.into(), |ratio| format!("{ratio:.2}"));
    let rate = |value: &Value| number(value).map_or(UNKNOWN.into(), si);
    html! {
        @if !of_udp.is_empty() {
            p { (CAUTION) }
            div.scroll { table {
                caption { "UDP: published by Holgate (10 GbE, Windows), and here; ratios are to the traditional design" }
                (headings(&[
                    ("test", true), ("datagrams/s", false), ("ratio", false), ("ratio here", false), ("of", true),
                ]))
                tbody { @for figure in of_udp { tr {
                    th.words scope="row" { (word(figure, "test")) }
                    td { (rate(&figure["received_per_s"])) }
                    td { (ratio(&figure["ratio_to_traditional"])) }
                    td { (ratio(&figure["measured_ratio_to_traditional"])) }
                    td.words {
                        (word(figure, "measured_row"))
                        @if let Some(why) = figure["not_compared"].as_str() { " (not compared: " (why) ")" }
                    }
                } } }
            } }
        }
        @if !of_tcp.is_empty() {
            div.scroll { table {
                caption { "TCP: the classic study, and here" }
                (headings(&[
                    ("part", true), ("model", true), ("connected", false), ("bytes/s", false),
                    ("design here", true), ("connected here", false), ("bytes/s here", false),
                ]))
                tbody { @for figure in of_tcp { tr {
                    th.words scope="row" { (word(figure, "part")) }
                    td.words { (word(figure, "model")) }
                    td { (rate(&figure["connected"])) }
                    td { (rate(&figure["received_bytes_per_s"])) }
                    td.words { (word(figure, "design")) }
                    td { (rate(&figure["measured_connected"])) }
                    td { (rate(&figure["measured_received_bytes_per_s"])) }
                } } }
            } }
        }
    }
}

/// What the columns of a kind mean.
pub fn meanings(kind: &Kind) -> Markup {
    let [rank, spread, best] = common();
    html! {
        details.meanings {
            summary { "What the columns of " (kind.title) " mean" }
            dl {
                dt { "#" } dd { (rank) "." }
                dt { "±" } dd { (spread) "." }
                dt { "× best" } dd { (best) "." }
                @for metric in kind.metrics.iter().filter(|metric| !metric.about.is_empty()) {
                    dt { (metric.heading) " " code { (metric.name) } }
                    dd { (metric.about) }
                }
                dt { "limited by" } dd { (kind.limits) "." }
            }
        }
    }
}
