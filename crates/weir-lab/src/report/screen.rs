//! The first screen: the conclusion, and the table that decides, in as many lines as a terminal has.

use serde_json::Value;

use crate::report::deciding::{Column, DESIGN, LIMIT, Line, RATE, SPREAD, Table, table};
use crate::report::layout::{chars, paragraph};
use crate::report::model::{Load, Row, Standing, Study, text, texts};
use crate::report::number::{UNKNOWN, percent};
use crate::report::words::number_of;

/// Columns of the first screen, whatever the terminal has, but for what a reader must know below it: a reason is a line,
/// as long as the terminal allows.
pub const COLUMNS: usize = 100;
/// Its lines.
pub const LINES: usize = 24;
/// Lines for one of several kinds of comparisons on one screen.
pub const LINES_OF_A_PART: usize = 7;

/// Where everything stands for whoever has not asked for it.
pub const DETAILS: &str = "--details";

/// The fewest lines beside what a reader must know: two of the conclusion, and two of the table.
const LEAST_OF_REST: usize = 4;
/// Most lines of where rows ran.
const LINES_OF_PLACES: usize = 2;
/// Most characters of the bars.
const BAR: usize = 14;
/// Fewest lines of rows that a table is worth its place with.
const FEWEST_ROWS: usize = 3;

/// The first screen of the document of one kind of comparison, at most so wide and so high; both at least what a few
/// rows need. `rest` is where that stands for which there is no place.
pub fn screen(document: &Value, width: usize, lines: usize, rest: &str) -> String {
    let studies = Study::all(document);
    let Some(study) = studies.first() else { return String::new() };
    let (width, whole_width) = (width.min(COLUMNS), width);
    let airy = lines > LINES_OF_A_PART;
    let mut text = match airy {
        true => laid_out(&heading(study, true), width),
        false => {
            let fits = |line: &String| chars(line) <= width;
            let whole = Some(heading(study, true)).filter(fits);
            vec![cut(&whole.unwrap_or_else(|| heading(study, false)), width)]
        }
    };
    if airy {
        text.push(String::new());
    }
    let blanks = if airy { 2 } else { 0 };
    let most = lines.saturating_sub(text.len() + blanks + LEAST_OF_REST).max(1);
    let foot = if airy { foot(study, whole_width, most, rest) } else { vec![] };
    let table = study.main().map(|load| lines_of(&table(study, load), width, airy));
    let table = table.unwrap_or_default();
    let least = if table.is_empty() { 0 } else { 1 + FEWEST_ROWS.min(table.len() - 1) };
    let left = lines.saturating_sub(text.len() + foot.len() + blanks + least).max(2);
    // The table has a third of the screen at least.
    let most = if airy && !table.is_empty() { left.min(lines / 3) } else { left };
    text.extend(said(study, width, most));
    if !table.is_empty() {
        if airy {
            text.push(String::new());
        }
        let left = lines.saturating_sub(text.len() + foot.len() + usize::from(airy));
        text.extend(fitting(table, left, airy.then_some(rest)).iter().map(|line| cut(line, width)));
    }
    if !foot.is_empty() {
        text.push(String::new());
        text.extend(foot);
    }
    text.join("\n") + "\n"
}

/// A text on lines of so many characters.
fn laid_out(words: &str, width: usize) -> Vec<String> {
    let mut text = String::new();
    paragraph(&mut text, words, width);
    text.lines().map(str::to_owned).collect()
}

/// The same on so many lines at most.
fn laid_out_within(words: &str, width: usize, lines: usize) -> Vec<String> {
    let mut all = laid_out(words, width);
    if all.len() > lines {
        all.truncate(lines);
        if let Some(last) = all.last_mut() {
            *last = cut(&format!("{last} …"), width);
        }
    }
    all
}

/// What was compared, and, where there is place for it, on what machine.
fn heading(study: &Study, has_place: bool) -> String {
    let load = study.main().or(study.loads.first());
    let load = load.map(|load| format!(": {}", load.name)).unwrap_or_default();
    let machine = if has_place { study.machine() } else { vec![] };
    let separator = if machine.is_empty() { "" } else { " — " };
    let busy =
        study.busy_share().map(|share| format!(", {} busy with other programs", percent(share)));
    format!(
        "{}{load}{separator}{}{}",
        study.kind.title,
        machine.join(", "),
        busy.unwrap_or_default()
    )
}

/// The conclusion: the headline, and as many of its sentences as there is place for.
fn said(study: &Study, width: usize, lines: usize) -> Vec<String> {
    let found = &study.value["conclusion"];
    let mut words = text(found, "headline").unwrap_or_default();
    for sentence in texts(&found["sentences"]) {
        let more = format!("{words} {sentence}");
        if laid_out(&more, width).len() <= lines {
            words = more;
        }
    }
    laid_out_within(&words, width, lines)
}

/// A bar for a share of the largest figure, which has so many characters.
fn bar(share: f64, characters: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (characters * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(EIGHTHS[eighths % 8]);
    }
    text
}

/// What parts two columns where there is place.
const GAP: usize = 2;
/// The least of it.
const LEAST_GAP: usize = 1;
/// Fewest characters of words that do not fit: of what limited a row, and of names, which are cut last.
const LEAST_LIMIT: usize = 6;
const LEAST_NAME: usize = 12;

/// How the columns of a table are laid out: how wide each is, 0 where nothing is known, the bars, and what parts two.
struct Widths {
    columns: Vec<usize>,
    bar: usize,
    gap: usize,
    /// Whether headings are the short ones.
    short: bool,
}

impl Widths {
    /// Those for these lines in so many characters. Where they do not suffice, bars go first, then what parts the columns,
    /// then headings become short, then words of what limited a row are cut, and names last.
    fn of(table: &Table, lines: &[&Line], width: usize) -> Self {
        let columns = |short: bool| -> Vec<usize> {
            let widest = |place: usize| {
                let fields = || lines.iter().map(|line| line.fields[place].as_str());
                // The name is always there.
                let is_known = place == DESIGN || fields().any(|field| field != UNKNOWN);
                let heading = heading_of(&table.columns[place], short);
                let widest = fields().chain([heading]).map(chars).max().unwrap_or(0);
                if is_known { widest } else { 0 }
            };
            (0..table.columns.len()).map(widest).collect()
        };
        let mut all = Self { columns: columns(false), bar: 0, gap: GAP, short: false };
        if all.needed() <= width {
            let has_bars = lines.iter().any(|line| line.share.is_some());
            let left = (width - all.needed()).saturating_sub(GAP).min(BAR);
            all.bar = if has_bars { left } else { 0 };
            return all;
        }
        all.gap = LEAST_GAP;
        if all.needed() > width {
            (all.columns, all.short) = (columns(true), true);
        }
        for (place, least) in [(LIMIT, LEAST_LIMIT), (DESIGN, LEAST_NAME)] {
            let over = all.needed().saturating_sub(width);
            let column = &mut all.columns[place];
            *column -= over.min(column.saturating_sub(least));
        }
        all
    }

    /// The characters of a line without bars.
    fn needed(&self) -> usize {
        let shown = self.columns.iter().filter(|width| **width > 0);
        self.columns.iter().sum::<usize>() + self.gap * shown.count().saturating_sub(1)
    }

    /// A line of these fields.
    fn line(&self, fields: &[&str], bar: &str) -> String {
        let mut shown = vec![];
        for (place, width) in
            self.columns.iter().copied().enumerate().filter(|(_, width)| *width > 0)
        {
            let field = cut(fields[place], width);
            shown.push(match Column::is_words(place) {
                true => format!("{field:<width$}"),
                false => format!("{field:>width$}"),
            });
            if place == SPREAD && self.bar > 0 {
                shown.push(format!("{bar:<width$}", width = self.bar));
            }
        }
        shown.join(&" ".repeat(self.gap)).trim_end().to_owned()
    }
}

fn heading_of(column: &Column, short: bool) -> &str {
    if short { &column.short } else { &column.heading }
}

/// The table as lines, the heading first, then the rows that have a figure, best first, by group. In little place the
/// first group stands for all.
fn lines_of(table: &Table, width: usize, all_groups: bool) -> Vec<String> {
    let is_shown =
        |line: &&Line| line.row.standing != Standing::Again && line.fields[RATE] != UNKNOWN;
    let groups = table.groups.iter().take(if all_groups { usize::MAX } else { 1 });
    let groups: Vec<(&str, Vec<&Line>)> = groups
        .map(|(group, lines)| (group.title, lines.iter().filter(is_shown).collect()))
        .filter(|(_, lines): &(_, Vec<_>)| !lines.is_empty())
        .collect();
    if groups.is_empty() {
        return vec![];
    }
    let lines: Vec<&Line> = groups.iter().flat_map(|(_, lines)| lines).copied().collect();
    let widths = Widths::of(table, &lines, width);
    let headings: Vec<&str> =
        table.columns.iter().map(|column| heading_of(column, widths.short)).collect();
    let mut all = vec![widths.line(&headings, "")];
    for (title, lines) in &groups {
        if !title.is_empty() && groups.len() > 1 {
            all.push(format!("   {title}:"));
        }
        for line in lines {
            let fields: Vec<&str> = line.fields.iter().map(String::as_str).collect();
            let bar = line.share.map(|share| bar(share, widths.bar)).unwrap_or_default();
            all.push(widths.line(&fields, &bar));
        }
    }
    all
}

/// As much of the table as there is place for, and, where it is said where the rest stands, how much that is.
fn fitting(mut table: Vec<String>, lines: usize, rest: Option<&str>) -> Vec<String> {
    let lines = lines.max(2);
    if table.len() > lines {
        let kept = if rest.is_some() { lines - 1 } else { lines };
        let more = table.len() - kept;
        table.truncate(kept);
        if let Some(rest) = rest {
            table.push(format!("   … {} ({rest})", number_of(more, "more row")));
        }
    }
    table
}

/// What a reader must know, on so many lines: where rows ran, if on several hosts, rows without a figure, and warnings.
fn foot(study: &Study, width: usize, most: usize, rest: &str) -> Vec<String> {
    let places = study.main().and_then(|load| load.places(study.kind)).unwrap_or_default();
    // Further ones are in the report.
    let mut lines: Vec<String> =
        laid_out(&places, width).into_iter().take(LINES_OF_PLACES).collect();
    let mut said: Vec<String> = vec![];
    let reason = |row: &Row| text(row.value, "reason").filter(|_| row.standing != Standing::Again);
    let rows = study.main().into_iter().flat_map(Load::rows);
    let unranked: Vec<(&Row, String)> = rows.filter_map(|row| Some((row, reason(row)?))).collect();
    if let Some((row, reason)) = unranked.first() {
        let who = match unranked.len() {
            1 => row.name.clone(),
            count => format!("{count} designs; {}", row.name),
        };
        said.push(format!("Not ranked: {who}: {reason}"));
    }
    let headline = text(&study.value["conclusion"], "headline").unwrap_or_default();
    let error = text(study.value, "error");
    let is_said = error.as_ref().is_some_and(|error| headline.contains(error.as_str()));
    if let Some(error) = error.filter(|_| !is_said) {
        said.push(format!("error: {error}"));
    }
    if study.value["interrupted"] == true {
        said.push("warning: interrupted; the results are partial".into());
    }
    // Where an error kept all from being measured, there is no figure that could be doubted.
    if !is_said {
        said.extend(worst(study.warnings(), rest));
    }
    for (index, words) in said.iter().enumerate() {
        let behind = said.len() - index - 1;
        let left = most.saturating_sub(lines.len() + behind).max(1);
        lines.extend(laid_out_within(words, width, left));
    }
    lines
}

/// The warning that weighs most, which is the last one, and how many more there are.
fn worst(mut warnings: Vec<String>, rest: &str) -> Option<String> {
    let worst = warnings.pop()?;
    let more = match warnings.len() {
        0 => String::new(),
        more => format!(" ({more} more: {rest})"),
    };
    Some(format!("warning{more}: {worst}"))
}

/// What a reader of several comparisons on one screen must know, on lines of so many characters: rows without a figure,
/// and warnings. `rest` is where more of it stands.
pub fn foot_of_all(document: &Value, width: usize, rest: &str) -> Vec<String> {
    let studies = Study::all(document);
    let without_rank = |study: &Study| {
        let rows = study.main().into_iter().flat_map(Load::rows);
        let unranked = rows
            .filter(|row| row.standing != Standing::Again && text(row.value, "reason").is_some());
        match unranked.count() {
            0 => None,
            count => Some(format!("{} of {}", number_of(count, "design"), study.kind.title)),
        }
    };
    let unranked: Vec<String> = studies.iter().filter_map(without_rank).collect();
    let missed_of = |study: &Study| {
        let of_load = |load: &Load| {
            let missed = text(load.value, "missed")?;
            Some(format!("{}, {}: {missed}", study.kind.title, load.name))
        };
        study.loads.iter().filter_map(of_load).collect::<Vec<_>>()
    };
    let missed: Vec<String> = studies.iter().flat_map(missed_of).collect();
    let missed =
        (!missed.is_empty()).then(|| format!("Not all was measured: {}", missed.join("; ")));
    let mut warnings: Vec<String> = vec![];
    for warning in studies.iter().flat_map(Study::warnings) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let unranked = (!unranked.is_empty())
        .then(|| format!("Not ranked (why: {rest}): {}", unranked.join(", ")));
    missed
        .into_iter()
        .chain(unranked)
        .chain(worst(warnings, rest))
        .flat_map(|words| laid_out(&words, width))
        .collect()
}

/// A line that is no wider than this.
fn cut(line: &str, width: usize) -> String {
    if chars(line) <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::document;
    use crate::udp::report::fixture::results;

    #[test]
    fn the_first_screen_keeps_to_its_lines_and_columns() {
        let results = document(&results());
        for lines in [LINES, LINES_OF_A_PART, 10] {
            for width in [80, 100, 200] {
                let text = screen(&results, width, lines, DETAILS);
                assert!(text.lines().count() <= lines, "{lines}:\n{text}");
                // The last paragraph, if there is one: what a reader must know.
                let foot = if lines > LINES_OF_A_PART { text.rfind("\n\n") } else { None };
                let (body, foot) = text.split_at(foot.unwrap_or(text.len()));
                let widest = |part: &str| part.lines().map(chars).max().unwrap_or(0);
                assert!(widest(body) <= width.min(COLUMNS), "{width}:\n{text}");
                assert!(widest(foot) <= width, "{width}:\n{text}");
                assert!(lines < LINES || width < 200 || !foot.contains('…'), "{text}");
            }
        }
    }

    #[test]
    fn what_a_reader_must_know_is_wrapped_and_not_cut_and_says_where_the_rest_is() {
        let mut of = document(&results());
        let last = "other programs used 76 % of the CPU (median; more than 10 % in 40 of 54 runs): the figures are too low, \
                    and rows are not compared fairly; stop those programs";
        of["warnings"] = serde_json::json!(["one", "another", last]);
        of["machine"]["warnings"] = serde_json::json!([]);
        for width in [80, 100, 200] {
            let text = screen(&of, width, LINES - 1, "details.txt in the folder of results");
            assert!(text.lines().count() < LINES, "{width}:\n{text}");
            assert!(text.lines().all(|line| chars(line) <= width), "{width}:\n{text}");
            let words = text.replace('\n', " ");
            let said = format!("warning (2 more: details.txt in the folder of results): {last}");
            assert!(words.contains(&said) && !words.contains('…'), "{width}:\n{text}");
        }
    }

    #[test]
    fn why_nothing_was_measured_is_said_once() {
        let mut results = results();
        results.cells.iter_mut().flatten().for_each(|cell| *cell = Default::default());
        let reason = "the checks left no time for a run within the 0.1 s requested";
        results.error = Some(reason.into());
        results.warnings = vec!["not even the checks fit".into()];
        let text = screen(&document(&results), 100, LINES, DETAILS).replace('\n', " ");
        assert_eq!(text.matches(reason).count(), 1, "{text}");
        assert!(!text.contains("not even") && !text.contains("warning"), "{text}");
    }

    #[test]
    fn what_is_wrong_with_several_comparisons_stands_below_them() {
        let mut udp = document(&results());
        udp["warnings"] = serde_json::json!(["the disk is full"]);
        let all = serde_json::json!({ "kind": "all", "udp": udp, "tcp": { "error": "no" } });
        let foot = foot_of_all(&all, 200, DETAILS);
        assert_eq!(foot.len(), 2, "{foot:?}");
        assert!(
            foot[0].starts_with("Not ranked (why: --details): ") && foot[0].ends_with(" of UDP")
        );
        assert!(foot[1].starts_with("warning (") && foot[1].ends_with("the disk is full"));
        assert!(foot_of_all(&serde_json::json!({ "kind": "all" }), 80, DETAILS).is_empty());
    }

    #[test]
    fn what_is_undecided_has_no_rank() {
        let mut results = results();
        results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let text = screen(&document(&results), COLUMNS, LINES, DETAILS);
        let rows = text.lines().skip_while(|line| !line.starts_with("#  design")).skip(1);
        let ranked = rows.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with('-'));
        let ranks: Vec<char> = ranked.filter_map(|line| line.chars().next()).collect();
        assert!(ranks.len() > 2 && ranks.iter().all(|rank| *rank == '?'), "{text}");
    }

    #[test]
    fn names_stay_whole_in_80_columns_and_other_things_become_shorter() {
        let mut document = document(&results());
        let longest = "rio-hybrid --threads 12 on uring";
        for row in document["results"].as_array_mut().unwrap() {
            if row["name"] == "blocking" {
                row["name"] = longest.into();
            }
        }
        let text = screen(&document, 80, LINES, DETAILS);
        let line = text.lines().find(|line| line.contains(longest));
        assert!(line.is_some_and(|line| line.ends_with("server")), "{text}");
        assert!(text.lines().all(|line| chars(line) <= 80), "{text}");
        let narrower = screen(&document, 60, LINES, DETAILS);
        assert!(narrower.contains("rio-hybrid") && narrower.contains('…'), "{narrower}");
        assert!(narrower.lines().all(|line| chars(line) <= 60), "{narrower}");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53, 4), "██▏");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(0.7, 0), "");
    }
}
