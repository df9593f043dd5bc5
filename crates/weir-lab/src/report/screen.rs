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

/// Most lines of where rows ran.
const LINES_OF_PLACES: usize = 2;
/// Most characters of the bars.
const BAR: usize = 14;
/// Fewest lines of rows that a table is worth its place with.
const FEWEST_ROWS: usize = 3;

/// The first screen of the document of one kind of comparison, at most so wide and so high; both at least what a few
/// rows need.
pub fn screen(document: &Value, width: usize, lines: usize) -> String {
    let studies = Study::all(document);
    let Some(study) = studies.first() else { return String::new() };
    let (width, whole_width) = (width.min(COLUMNS), width);
    let airy = lines > LINES_OF_A_PART;
    let mut text = vec![cut(&heading(study), width)];
    let foot: Vec<String> = match airy {
        true => foot(study, whole_width).iter().map(|line| cut(line, whole_width)).collect(),
        false => vec![],
    };
    if airy {
        text.push(String::new());
    }
    let blanks = if airy { 2 } else { 0 };
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
        text.extend(fitting(table, left, airy).iter().map(|line| cut(line, width)));
    }
    if !foot.is_empty() {
        text.push(String::new());
        text.extend(foot);
    }
    text.join("\n") + "\n"
}

/// What was compared, and where.
fn heading(study: &Study) -> String {
    let load = study.main().or(study.loads.first());
    let load = load.map(|load| format!(": {}", load.name)).unwrap_or_default();
    let machine = study.machine();
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
    let laid_out = |words: &str| {
        let mut text = String::new();
        paragraph(&mut text, words, width);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut words = text(found, "headline").unwrap_or_default();
    for sentence in texts(&found["sentences"]) {
        let more = format!("{words} {sentence}");
        if laid_out(&more).len() <= lines {
            words = more;
        }
    }
    let mut all = laid_out(&words);
    if all.len() > lines {
        all.truncate(lines);
        if let Some(last) = all.last_mut() {
            *last = cut(&format!("{last} …"), width);
        }
    }
    all
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
                // The rank and the name are always there.
                let is_known = place <= DESIGN || fields().any(|field| field != UNKNOWN);
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

/// As much of the table as there is place for, and, where `counts` is true, how much there is more.
fn fitting(mut table: Vec<String>, lines: usize, counts: bool) -> Vec<String> {
    let lines = lines.max(2);
    if table.len() > lines {
        let kept = if counts { lines - 1 } else { lines };
        let more = table.len() - kept;
        table.truncate(kept);
        if counts {
            table.push(format!("   … {} in the report (--details)", number_of(more, "more row")));
        }
    }
    table
}

/// What a reader must know: where rows ran, if on several hosts, rows without a figure, and warnings.
fn foot(study: &Study, width: usize) -> Vec<String> {
    let mut places = String::new();
    if let Some(of_all) = study.main().and_then(|load| load.places(study.kind)) {
        paragraph(&mut places, &of_all, width);
    }
    // Further ones are in the report.
    let mut said: Vec<String> = places.lines().take(LINES_OF_PLACES).map(str::to_owned).collect();
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
    if let Some(error) = text(study.value, "error") {
        said.push(format!("error: {error}"));
    }
    if study.value["interrupted"] == true {
        said.push("warning: interrupted; the results are partial".into());
    }
    said.extend(worst(study.warnings()));
    said
}

/// The warning that weighs most, which is the last one, and how many more there are.
fn worst(mut warnings: Vec<String>) -> Option<String> {
    let worst = warnings.pop()?;
    let more = match warnings.len() {
        0 => String::new(),
        more => format!(" ({more} more: --details)"),
    };
    Some(format!("warning{more}: {worst}"))
}

/// What a reader of several comparisons on one screen must know, in a line each: rows without a figure, and warnings.
pub fn foot_of_all(document: &Value, width: usize) -> Vec<String> {
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
        .then(|| format!("Not ranked (--details says why): {}", unranked.join(", ")));
    missed
        .into_iter()
        .chain(unranked)
        .chain(worst(warnings))
        .map(|line| cut(&line, width))
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
                let text = screen(&results, width, lines);
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
    fn what_is_wrong_with_several_comparisons_stands_below_them() {
        let mut udp = document(&results());
        udp["warnings"] = serde_json::json!(["the disk is full"]);
        let all = serde_json::json!({ "kind": "all", "udp": udp, "tcp": { "error": "no" } });
        let foot = foot_of_all(&all, 200);
        assert_eq!(foot.len(), 2, "{foot:?}");
        assert!(
            foot[0].starts_with("Not ranked (--details says why): ")
                && foot[0].ends_with(" of UDP")
        );
        assert!(foot[1].starts_with("warning (") && foot[1].ends_with("the disk is full"));
        assert!(foot_of_all(&serde_json::json!({ "kind": "all" }), 80).is_empty());
    }

    #[test]
    fn what_is_undecided_has_no_rank() {
        let mut results = results();
        results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let text = screen(&document(&results), COLUMNS, LINES);
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
        let text = screen(&document, 80, LINES);
        let line = text.lines().find(|line| line.contains(longest));
        assert!(line.is_some_and(|line| line.ends_with("server")), "{text}");
        assert!(text.lines().all(|line| chars(line) <= 80), "{text}");
        let narrower = screen(&document, 60, LINES);
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
