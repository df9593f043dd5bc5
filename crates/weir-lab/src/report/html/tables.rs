//! The tables of the page: the one that decides, the one of all metrics, and those of facts.

use maud::{Markup, html};
use serde_json::Value;

use super::prose;
use crate::report::deciding::{
    BEST, Column, DESIGN, LIMIT, Line, RANK, RATE, SPREAD, Table, shared_meanings,
};
use crate::report::kinds::{Kind, Metric};
use crate::report::model::{Group, Load, Row, Study, number, text};
use crate::report::number::{UNKNOWN, bytes, percent_of, si, three_figures};
use crate::report::pictures::Aside;
use crate::report::places::Places;

/// The table that decides of one group: a row for each design, the best first.
pub fn deciding(load: &Load, table: &Table, group: &Group, lines: &[Line]) -> Markup {
    let heading = |place: usize| &table.columns[place];
    html! {
        div.scroll { table.deciding {
            caption { "The table that decides: " (load.name) @if !group.title.is_empty() { ", " (group.title) } }
            thead { tr {
                @for (place, column) in table.columns.iter().enumerate() {
                    th.words[Column::is_words(place)] scope="col" title=(column.about) { (column.heading) }
                    @if place == SPREAD { th.wide aria-hidden="true" {} }
                }
            } }
            tbody {
                @for line in lines {
                    tr class=(line.row.standing.class()) data-s=(line.row.series) { (cells(line)) }
                }
            }
        } }
        @if lines.iter().any(|line| line.fields[RATE].starts_with('≥')) {
            p.sure { "≥: a lower bound. " (heading(LIMIT).heading) " says what kept the row from more." }
        }
    }
}

fn cells(line: &Line) -> Markup {
    html! {
        @for (place, field) in line.fields.iter().enumerate() {
            @match place {
                RANK => { td.rank { (field) } }
                DESIGN => {
                    th.words scope="row" {
                        (prose(field)) " "
                        @if let Some((word, meaning)) = line.mark { span.mark title=(meaning) { (word) } }
                    }
                }
                RATE => { td.figure { (field) } }
                SPREAD => {
                    td { (field) }
                    td.wide aria-hidden="true" {
                        @if let Some(share) = line.share {
                            div.bar style={ "width:" (format!("{:.1}", 100.0 * share)) "%" } {}
                        }
                    }
                }
                BEST => { td { (field) @if let Some(within) = &line.best_within { " " (within) } } }
                LIMIT => { td.words title=[line.row.value["limit_reason"].as_str()] { (field) } }
                _ => { td { (field) } }
            }
        }
    }
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
    let places = |row: &Row| Places::of_row(row.value, study.kind.generator);
    let over_hosts = load.rows().any(|row| places(row).is_some());
    html! {
        details {
            summary { "All " (known.len()) " metrics of " (load.name) }
            div.scroll { table.everything {
                thead { tr {
                    th.words scope="col" { "design" }
                    th.words scope="col" { "provider" }
                    @if over_hosts {
                        th.words scope="col" { "hosts" }
                        th.words scope="col" { "links" }
                    }
                    th scope="col" title="runs that were made, and those that failed" { "runs" }
                    @for metric in &known { th scope="col" title=(metric.about) { (metric.heading) } }
                } }
                tbody {
                    @for row in load.rows() {
                        tr class=(row.standing.class()) data-s=(row.series) {
                            th.words scope="row" { (prose(&row.name)) }
                            td.words { (text(row.value, "provider").unwrap_or_else(|| UNKNOWN.into())) }
                            @if over_hosts {
                                @let places = places(row).map(|of| [of.sides, of.links]).unwrap_or_default();
                                @for place in &places { td.words { (place) } }
                            }
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

/// A table that only one kind has.
pub fn aside(of: &Aside) -> Markup {
    html! {
        @if !of.title.is_empty() { h3 { (of.title) } }
        @if let Some(note) = of.note { p { (note) } }
        div.scroll { table {
            @if let Some(caption) = of.caption { caption { (caption) } }
            (headings(&of.columns))
            tbody { @for row in &of.rows { tr {
                @for (place, (field, (_, words))) in row.iter().zip(&of.columns).enumerate() {
                    @if place == 0 { th.words scope="row" { (field) } }
                    @else if *words { td.words { (field) } }
                    @else { td { (field) } }
                }
            } } }
        } }
    }
}

/// What the columns of a kind mean.
pub fn meanings(kind: &Kind) -> Markup {
    html! {
        details.meanings {
            summary { "What the columns of " (kind.title) " mean" }
            dl {
                @for meaning in shared_meanings() { dt { (meaning.heading) } dd { (meaning.about) "." } }
                @for metric in kind.metrics.iter().filter(|metric| !metric.about.is_empty()) {
                    dt { (metric.heading) " " code { (metric.name) } }
                    dd { (metric.about) }
                }
                dt { "limited by" } dd { (kind.limits) "." }
            }
        }
    }
}
