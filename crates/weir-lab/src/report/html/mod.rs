//! The report as a page: one HTML file that holds everything, opens from disk without a network, and reads as tables
//! and pictures where no script runs.
//!
//! It is made from the document of a comparison ([`crate::report::document`]), so a saved result can be shown at any
//! time. Whatever the document says is text and never markup: [`maud`] escapes it, and the raw data are escaped in
//! `raw`.

mod chart;
mod curves;
mod plots;
mod raw;
mod simulated;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::report::deciding::table;
use crate::report::model::{
    self, Group, INTERRUPTED, Load, MEMORY_COLUMNS, Row, Study, errors, is_memory, items,
    memory_rows, number, text, texts,
};
use crate::report::number::percent;
use crate::report::pictures::Aside;
use crate::report::sentences::together;
use crate::report::words::{capital_first, number_of};
use chart::{Drawing, Picture, legend, shapes};
use tables::{aside, deciding, everything, facts, fields, headings, meanings};

pub use raw::document_of;
pub use simulated::{files as files_of_simulation, page as page_of_simulation};

/// The style sheet.
const STYLE: &str = include_str!("style.css");
/// What pictures do besides being seen.
const SCRIPT: &str = include_str!("script.js");
/// Nothing is asked of any other place, whatever a document says.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// Loads of a comparison that are shown with pictures and all metrics, further ones having their table: as many as fit
/// into a page beside the raw data, the first that do.
const IN_FULL: [usize; 6] = [24, 12, 6, 3, 1, 0];
/// Most bytes of a page without its raw data.
const MOST_BODY: usize = raw::MOST_BYTES / 4 * 3;

/// The pictures of lines and points of a comparison, each as a file of its own: its name and the SVG.
pub fn files(document: &Value) -> Vec<(String, String)> {
    let of_study = |study: &Study| {
        let of_loads = study.loads.iter().flat_map(|load| plots::of_load(study, load));
        of_loads.chain(curves::of_study(study)).collect::<Vec<_>>()
    };
    let studies = Study::all(document);
    let all = studies.iter().flat_map(of_study).chain(curves::of_memory(document));
    let file = |picture: Picture| match picture.drawing {
        Drawing::Rows(..) => None,
        Drawing::Lines(_) => Some((format!("{}.svg", picture.id), picture.file())),
    };
    all.filter_map(file).collect()
}

/// The page of a document, complete: one HTML file.
///
/// The document is that of any comparison, of one kind or of all, whole or interrupted; one that holds only an error
/// becomes a page that says so. A page of a usual comparison has less than 1 MB: what is left out of its raw data for
/// that is said in it.
pub fn page(document: &Value) -> String {
    let studies = Study::all(document);
    let bodies = IN_FULL.iter().map(|in_full| body(document, &studies, *in_full));
    let mut body = html! {};
    for smaller in bodies {
        body = smaller;
        if body.0.len() <= MOST_BODY {
            break;
        }
    }
    let data = raw::data(document, body.0.len() + STYLE.len() + SCRIPT.len());
    let title = match headline(&studies) {
        Some(headline) => format!("weir: {headline}"),
        None => "weir: a comparison".into(),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&title))
            body {
                (body)
                section #raw-data {
                    h2 { "Raw data" }
                    p {
                        "The document that this page was made from is in the page itself (" code { "script#data" } "). "
                        (data.said) }
                    p.script-only { button #save type="button" { "Save it as result.json" } }
                }
                script #data type="application/json" { (PreEscaped(data.text)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn headline(studies: &[Study]) -> Option<String> {
    studies.iter().find_map(|study| text(&study.value["conclusion"], "headline"))
}

fn body(document: &Value, studies: &[Study], in_full: usize) -> Markup {
    html! {
        (shapes())
        a.skip href="#conclusion" { "To the conclusion" }
        header {
            p.brand { "weir" span { " report" } }
            p.where { (place(document, studies)) }
            button #theme type="button" hidden { "Dark" }
        }
        (contents(studies))
        main {
            (conclusion(document, studies))
            @for study in studies.iter().filter(|study| !study.is_plan()) { (comparison(study, in_full)) }
            @if let Some(picture) = curves::of_memory(document) {
                section #memory { h2 { "Memory" } (picture.markup()) (memory_table(document)) }
            }
            (left_out(studies))
            (circumstances(document, studies))
        }
    }
}

/// Where and when it was measured, in a line.
fn place(document: &Value, studies: &[Study]) -> String {
    let machine = machine_of(document, studies);
    let when = text(document, "started_at").map(|at| at.replace('T', " ").replace('Z', " UTC"));
    model::machine_in_words(machine).into_iter().chain(when).collect::<Vec<_>>().join(" · ")
}

fn machine_of<'a>(document: &'a Value, studies: &[Study<'a>]) -> &'a Value {
    match document["machine"].as_object().is_some_and(|machine| !machine.is_empty()) {
        true => &document["machine"],
        false => studies.first().map_or(&document["machine"], |study| &study.value["machine"]),
    }
}

fn contents(studies: &[Study]) -> Markup {
    html! {
        nav aria-label="Contents" {
            a href="#conclusion" { "Conclusion" }
            @for study in studies.iter().filter(|study| !study.is_plan()) {
                a href={ "#" (study.kind.name) } { (study.kind.title) }
            }
            a href="#left-out" { "Left out" }
            a href="#machine" { "Machine" }
            a href="#plan" { "Plan" }
            a href="#raw-data" { "Raw data" }
        }
    }
}

/// What is concluded, and each claim with the way to its evidence.
fn conclusion(document: &Value, studies: &[Study]) -> Markup {
    let several = studies.len() > 1;
    html! {
        section #conclusion {
            @if studies.is_empty() {
                @if is_memory(document) { h1 { "Memory of servers that wait" } }
                @else { h1 { "No results" } }
            }
            @for error in errors(document) { p.error role="alert" { (error) } }
            @if document["interrupted"] == true || studies.iter().any(|study| study.value["interrupted"] == true) {
                p.error { (INTERRUPTED) }
            }
            @for study in studies {
                @let found = &study.value["conclusion"];
                @let said = text(found, "headline").unwrap_or_else(|| nothing(study));
                div.answer {
                    @if several {
                        h2.kind {
                            @if study.is_plan() { (study.kind.title) }
                            @else { a href={ "#" (study.kind.name) } { (study.kind.title) } }
                        }
                    }
                    @if several { p.headline { (prose(&said)) } } @else { h1 { (prose(&said)) } }
                    @for sentence in texts(&found["sentences"]) { p { (prose(&sentence)) } }
                    (claims(found))
                }
            }
            (judged(document))
        }
    }
}

/// Why a comparison concludes nothing.
fn nothing(study: &Study) -> String {
    match study.is_plan() {
        true => "This was only planned: nothing was measured.".into(),
        false => "No conclusion.".into(),
    }
}

fn claims(conclusion: &Value) -> Markup {
    let all: Vec<&Value> = items(&conclusion["claims"]).collect();
    if all.is_empty() {
        return html! {};
    }
    let real = all.iter().filter(|claim| claim["verdict"] == "real").count();
    html! {
        details.claims {
            summary {
                (number_of(all.len(), "claim")) ", each with its evidence: " (real) " real, " (all.len() - real) " tied"
            }
            div.scroll { table {
                (headings(&[
                    ("verdict", true), ("claim", true), ("ratio", false), ("95 % interval", false), ("evidence", true),
                ]))
                tbody { @for claim in all { tr {
                    td.words { (verdict(claim["verdict"] == "real", "tie")) }
                    td.words { (text(claim, "text").unwrap_or_default()) }
                    td { (number(&claim["ratio"]).map_or("-".into(), |ratio| format!("{ratio:.2}"))) }
                    td {
                        @if let Some((low, high)) = number(&claim["low"]).zip(number(&claim["high"])) {
                            (format!("{low:.2} to {high:.2}"))
                        } @else { "-" }
                    }
                    td.words {
                        @if let Some(anchor) = claim["evidence"].as_str().filter(|anchor| anchor.starts_with('#')) {
                            a href=(anchor) { "evidence" }
                        }
                    }
                } } }
            } }
        }
    }
}

/// Whether a difference is real, as a mark; or this word.
fn verdict(is_real: bool, otherwise: &str) -> Markup {
    html! {
        @if is_real { span.verdict.real { "real" } } @else { span.verdict { (otherwise) } }
    }
}

/// What became of the claims of an earlier result: the document of `weir reproduce`.
fn judged(document: &Value) -> Markup {
    let all: Vec<&Value> = items(&document["claims"]).collect();
    html! {
        @if !all.is_empty() {
            h2 { "The claims of the earlier result" }
            div.scroll { table {
                (headings(&[("outcome", true), ("claim", true), ("why", true)]))
                tbody { @for one in all { tr {
                    td.words { (text(one, "outcome").unwrap_or_default()) }
                    td.words { (text(&one["claim"], "text").or_else(|| text(one, "text")).unwrap_or_default()) }
                    td.words { (text(one, "why").unwrap_or_default()) }
                } } }
            } }
        }
    }
}

/// One kind of comparison: every load, then the pictures over several loads, then the questions.
fn comparison(study: &Study, in_full: usize) -> Markup {
    let over_loads = curves::of_study(study);
    let (steps, loads): (Vec<&Load>, Vec<&Load>) =
        study.loads.iter().partition(|load| load.is_step());
    let designs = study.series.iter().enumerate();
    let designs = designs.map(|(series, name)| (series, series.to_string(), name.as_str()));
    html! {
        section.study id=(study.kind.name) {
            h2 { (study.kind.title) }
            @if !study.series.is_empty() {
                details.designs.script-only {
                    summary { "Show or hide designs in the pictures of " (study.kind.title) }
                    (legend(designs))
                }
            }
            @for (place, load) in loads.iter().enumerate() { (one_load(study, load, place < in_full)) }
            @if !over_loads.is_empty() {
                section {
                    h3 { "Over several loads, and over time" }
                    div.plots { @for picture in &over_loads { (picture.markup()) } }
                }
            }
            @if !steps.is_empty() {
                details {
                    summary { "Steps of the sweep: " (number_of(steps.len(), "load")) }
                    @for load in &steps { (one_load(study, load, false)) }
                }
            }
            (crossings(study))
            (answers(study))
            (meanings(study.kind))
        }
    }
}

fn one_load(study: &Study, load: &Load, in_full: bool) -> Markup {
    let pictures = if in_full { plots::of_load(study, load) } else { vec![] };
    let table = table(study, load);
    html! {
        section.load id={ (study.kind.name) "-load-" (load.index) } {
            h3 { (load.name) }
            @let schedule = schedule(load);
            @if !schedule.is_empty() { p.sure { (schedule) } }
            @if load.groups.is_empty() { p { "No row was measured under this load." } }
            @for (group, lines) in &table.groups {
                @if !group.title.is_empty() { h4 { (capital_first(group.title)) } }
                @for sentence in texts(&group.value["summary"]) { p { (prose(&sentence)) } }
                (deciding(load, &table, group, lines))
                p.sure { (sure(load, group)) }
            }
            @if let Some(places) = load.places(study.kind) { p.sure { (places) } }
            @if !pictures.is_empty() { div.plots { @for picture in &pictures { (picture.markup()) } } }
            @if in_full { (everything(study, load)) }
            @else if !load.is_step() {
                p.sure {
                    "There are too many loads to show all in full: the pictures and metrics of this one are left out."
                }
            }
        }
    }
}

/// How often and how long a load was run: where it was less often than planned, how often it was.
fn schedule(load: &Load) -> String {
    let of = |name: &str| load.value[name].as_u64();
    let Some(rounds) = of("rounds") else { return String::new() };
    let failed = |row: &Row| row.value["failed_runs"].as_u64().is_some_and(|runs| runs > 0);
    let has_run = |row: &Row| items(&row.value["runs"]).next().is_some() || failed(row);
    if !load.rows().any(has_run) {
        return String::new();
    }
    let blocks = load.rows().flat_map(|row| items(&row.value["runs"]));
    let made =
        blocks.filter_map(|run| run["block"].as_u64()).max().map(|block| block.saturating_add(1));
    // Where its time ran out, some rows may have run in a round that was not complete.
    let made = of("rounds_complete").or(made);
    let rounds = match made.filter(|made| *made < rounds) {
        Some(made) => format!("{made} of {rounds} rounds"),
        None => number_of(rounds as usize, "round"),
    };
    let length = of("run_ms").map(|ms| format!(" of {ms} ms"));
    let warmup = of("warmup_ms").map(|ms| format!(" after {ms} ms of warm-up"));
    format!(
        "{rounds}{}{}, interleaved in random order.",
        length.unwrap_or_default(),
        warmup.unwrap_or_default()
    )
}

/// How sure the ranking of a group is.
fn sure(load: &Load, group: &Group) -> String {
    let mut said = vec![];
    match number(&group.value["noise_floor_percent"]) {
        Some(floor) if floor > 100.0 => said.push("Noise floor above 100 %: nothing is compared.".into()),
        Some(floor) => said.push(format!(
            "Noise floor {}: how far one design, run under two names, appears to differ from itself; smaller differences are ties.",
            percent(floor / 100.0)
        )),
        None => said.push("The noise floor is unknown, so no difference is called real.".into()),
    }
    if let Some(comparisons) = group.value["comparisons"].as_u64().filter(|count| *count > 0) {
        let of = together(comparisons as usize);
        said.push(format!("Ratios are judged at 95 % confidence{of}."));
    }
    let confidence = &load.value["confidence"];
    if let Some(asked) = number(&confidence["asked_half_width_percent"]) {
        let widest =
            number(&confidence["widest_half_width_percent"]).map(|widest| percent(widest / 100.0));
        said.push(match (confidence["reached"] == true, widest) {
            (true, Some(widest)) => format!("Every figure is known within ±{widest} (95 %)."),
            (_, Some(widest)) => format!(
                "The requested confidence (±{}) was not reached: the widest interval is ±{widest}.",
                percent(asked / 100.0)
            ),
            (_, None) => "There were too few rounds for the interval of every row.".into(),
        });
    }
    if let Some(pairs) = group.value["unlike_pairs"].as_u64().filter(|pairs| *pairs > 0) {
        let pairs = number_of(pairs as usize, "comparison");
        said.push(format!("Left out, because the machine changed between two runs: {pairs}."));
    }
    said.join(" ")
}

fn answers(study: &Study) -> Markup {
    let all: Vec<&Value> = items(&study.value["answers"]).collect();
    html! {
        @if !all.is_empty() {
            section {
                h3 { "Questions" }
                dl { @for answer in all {
                    dt { (text(answer, "question").unwrap_or_default()) }
                    @for sentence in texts(&answer["sentences"]) { dd { (prose(&sentence)) } }
                } }
            }
        }
    }
}

/// The head of a page.
fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="generator" content={ "weir " (env!("CARGO_PKG_VERSION")) };
            link rel="icon" href="data:,";
            title { (title) }
            style { (PreEscaped(STYLE)) }
        }
    }
}

/// Where one design overtakes another, and what else only this kind has.
fn crossings(study: &Study) -> Markup {
    let all = (study.kind.overtakings)(study.value);
    let figure = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
    html! {
        @if !all.is_empty() {
            h3 { "Where one design overtakes another" }
            div.scroll { table {
                (headings(&[
                    ("along", true), ("before", true), ("after", true), ("at", false), ("between", false),
                    ("verdict", true),
                ]))
                tbody { @for one in &all { tr {
                    td.words { (one.axis) }
                    td.words { (one.before) }
                    td.words { (one.after) }
                    td { (figure(one.at[0])) }
                    td { (figure(one.at[1])) " to " (figure(one.at[2])) }
                    td.words { (verdict(one.is_real, "within the noise")) }
                } } }
            } }
        }
        @if let Some(table) = (study.kind.further)(study.value) { (aside(&table)) }
    }
}

/// The figures of the document of `weir compare udp --memory`.
fn memory_table(document: &Value) -> Markup {
    html! {
        div.scroll { table {
            (headings(&MEMORY_COLUMNS))
            tbody { @for row in memory_rows(document) { tr {
                @for (field, (_, words)) in row.iter().zip(MEMORY_COLUMNS) { td.words[words] { (prose(field)) } }
            } } }
        } }
    }
}

/// Rows without a rank, with the reason, and runs that failed.
fn left_out(studies: &[Study]) -> Markup {
    let mut all: Vec<(String, String, String)> = vec![];
    for study in studies {
        for (load, row) in study.rows() {
            let reason = text(row.value, "reason").or_else(|| text(row.value, "skipped"));
            let failures = items(&row.value["failures"]).map(|failure| match failure.as_str() {
                Some(text) => text.to_owned(),
                None => failure.to_string(),
            });
            for said in reason.into_iter().chain(failures) {
                let known = all.iter_mut().find(|(name, _, why)| *name == row.name && *why == said);
                match known {
                    Some((_, loads, _)) if !loads.contains(&load.name) => {
                        *loads += &format!("; {}", load.name)
                    }
                    Some(_) => {}
                    None => all.push((row.name.clone(), load.name.clone(), said)),
                }
            }
        }
    }
    html! {
        section #left-out {
            h2 { "Left out and failed" }
            @if all.is_empty() && studies.iter().any(|study| !study.series.is_empty()) {
                p { "Nothing: every row that was planned was measured and ranked." }
            }
            @else if all.is_empty() { p { "Nothing was measured." } }
            @else { div.scroll { table {
                (headings(&[("design", true), ("load", true), ("reason", true)]))
                tbody { @for (name, load, reason) in all { tr {
                    th.words scope="row" { (name) } td.words { (load) } td.words { (reason) }
                } } }
            } } }
        }
    }
}

/// Machine, plan, command, seed, warnings and published figures.
fn circumstances(document: &Value, studies: &[Study]) -> Markup {
    let machine = machine_of(document, studies);
    let mut warnings = texts(&machine["warnings"]);
    for warning in studies.iter().flat_map(Study::warnings) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let published: Vec<Aside> =
        studies.iter().filter_map(|study| (study.kind.published)(study.value)).collect();
    html! {
        section #machine {
            h2 { "Machine" }
            @if !warnings.is_empty() {
                h3 { "Warnings" }
                ul.warnings { @for warning in &warnings { li { (warning) } } }
            }
            (facts(&fields(machine, &["warnings"])))
        }
        section #plan {
            h2 { "Plan" }
            (facts(&plan(document, studies)))
        }
        @if !published.is_empty() {
            section #published { h2 { "Published figures" } @for table in &published { (aside(table)) } }
        }
    }
}

/// What was run, and how it is run again.
fn plan(document: &Value, studies: &[Study]) -> Vec<(String, String)> {
    let own = |name: &str| match &document[name] {
        Value::Null => studies.first().map_or(&Value::Null, |study| &study.value[name]),
        known => known,
    };
    let command = texts(own("command")).join(" ");
    let mut all = vec![("command".to_owned(), command)];
    let mut add =
        |name: &str, value: Option<String>| all.extend(value.map(|value| (name.to_owned(), value)));
    add("seed", own("seed").as_u64().map(|seed| seed.to_string()));
    add("started", text(document, "started_at"));
    add("ended", text(document, "ended_at"));
    add("exit code", document["exit_code"].as_u64().map(|code| code.to_string()));
    add(
        "version of the document",
        document["schema_version"].as_u64().map(|version| version.to_string()),
    );
    for study in studies {
        let title = study.kind.title;
        for (name, field) in [
            ("server on cores", "server_cores"),
            ("generator on cores", "generator_cores"),
            ("client on cores", "client_cores"),
            ("link", "link"),
            ("calibration of the generator", "calibration"),
            ("checked before timing", "check"),
        ] {
            let value = &study.value[field];
            let known = fields(&serde_json::json!({ field: value }), &[]).pop();
            add(&format!("{title}: {name}"), known.map(|(_, value)| value));
        }
        let rounds: Vec<String> = study
            .loads
            .iter()
            .filter(|load| !load.is_step() && !schedule(load).is_empty())
            .map(|load| format!("{}: {}", load.name, schedule(load)))
            .collect();
        add(&format!("{title}: loads"), (!rounds.is_empty()).then(|| rounds.join(" ")));
        add(
            &format!("{title}: planned rows"),
            (study.value["planned"].is_array()).then(|| texts(&study.value["planned"]).join(", ")),
        );
    }
    all
}

/// A sentence in which names and options of designs are not broken at their hyphens, and what is between backticks is
/// shown as typed.
fn prose(sentence: &str) -> Markup {
    /// Longer ones are broken wherever there is no place left.
    const LONGEST: usize = 24;
    let words = |part: &str| {
        html! {
            @for (index, word) in part.split(' ').enumerate() {
                @if index > 0 { " " }
                @if word.contains('-') && word.len() <= LONGEST { span.whole { (word) } } @else { (word) }
            }
        }
    };
    html! {
        @for (index, part) in sentence.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (words(part)) }
        }
    }
}

#[cfg(test)]
mod tests;
