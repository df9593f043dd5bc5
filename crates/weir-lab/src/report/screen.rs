//! The first screen: the conclusion, and the table that decides, in as many lines as a terminal has.

use crate::experiment::ranking::Ranking;
use crate::experiment::results::Results;
use crate::report::Told;
use crate::report::columns::{At, Column};
use crate::report::conclusion::{conclusion, main_load, short_name};
use crate::report::layout::{chars, paragraph};
use crate::report::number::{UNKNOWN, percent};
use crate::report::words::number_of;

/// Columns of the first screen, whatever the terminal has.
pub const COLUMNS: usize = 100;
/// Its lines.
pub const LINES: usize = 24;
/// Lines for one of several kinds of comparisons on one screen.
pub const LINES_OF_A_PART: usize = 7;

/// Most characters of the bars.
const BAR: usize = 14;
/// What stands for a rank that is not decided.
const UNDECIDED: &str = "?";
/// Fewest lines of rows that a table is worth its place with.
const FEWEST_ROWS: usize = 3;

/// The first screen, at most so wide and so high; both at least what a few rows need.
pub fn screen<K: Told>(results: &Results<K>, width: usize, lines: usize) -> String {
    let width = width.min(COLUMNS);
    let airy = lines > LINES_OF_A_PART;
    let mut text = vec![cut(&heading(results), width)];
    let foot: Vec<String> =
        if airy { foot(results).iter().map(|line| cut(line, width)).collect() } else { vec![] };
    if airy {
        text.push(String::new());
    }
    let blanks = if airy { 2 } else { 0 };
    // In little place the first group stands for all.
    let table = table(results, width, airy);
    let least = if table.is_empty() { 0 } else { 1 + FEWEST_ROWS.min(table.len() - 1) };
    let left = lines.saturating_sub(text.len() + foot.len() + blanks + least).max(2);
    // The table has a third of the screen at least.
    let most = if airy && !table.is_empty() { left.min(lines / 3) } else { left };
    text.extend(said(results, width, most));
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
fn heading<K: Told>(results: &Results<K>) -> String {
    let load = main_load(results).or((!results.loads.is_empty()).then_some(0));
    let load = load.map(|load| format!(": {}", results.loads[load])).unwrap_or_default();
    let property = |name| results.machine.text(name);
    let machine = [
        property("cpu_model"),
        property("cores").map(|cores| format!("{cores} cores")),
        property("kernel").map(kernel),
    ];
    let machine: Vec<String> = machine.into_iter().flatten().collect();
    let separator = if machine.is_empty() { "" } else { " — " };
    let busy =
        results.busy_share().map(|share| format!(", {} busy with other programs", percent(share)));
    format!("{}{load}{separator}{}{}", K::UNIT.title, machine.join(", "), busy.unwrap_or_default())
}

/// A kernel by its name, where it is told by its version alone.
fn kernel(version: String) -> String {
    match version.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("kernel {version}"),
        false => version,
    }
}

/// The conclusion: the headline, and as many of its sentences as there is place for.
fn said<K: Told>(results: &Results<K>, width: usize, lines: usize) -> Vec<String> {
    let found = conclusion(results);
    let laid_out = |words: &str| {
        let mut text = String::new();
        paragraph(&mut text, words, width);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut words = found.headline;
    for sentence in found.sentences {
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

/// A row of the table.
struct Line {
    /// By column.
    fields: Vec<String>,
    /// Its figure to the largest, of which there is a bar.
    share: Option<f64>,
}

/// The rows, best first, by group: a heading, and a line for each.
fn table<K: Told>(results: &Results<K>, width: usize, all_groups: bool) -> Vec<String> {
    let Some(load) = main_load(results) else { return vec![] };
    let mut groups = results.groups(load);
    groups.truncate(if all_groups { groups.len() } else { 1 });
    let several = groups.len() > 1;
    let mut rows: Vec<Line> = vec![];
    let mut titles: Vec<(usize, String)> = vec![];
    let by = results.ranked_by(load);
    let largest = (0..results.rows.len())
        .filter(|row| results.unranked(load, *row).is_none())
        .filter_map(|row| results.median(load, row, by))
        .fold(0.0, f64::max);
    for group in groups {
        let ranking = results.ranking(load, group);
        if several {
            titles.push((rows.len(), K::beside(group).trim_start_matches(", ").to_owned()));
        }
        let order =
            ranking.order(None, results.rows_of(load, group), |row| results.shown(load, row));
        let shown = order.into_iter().filter(|row| {
            results.first_of(*row).is_none() && results.median(load, *row, by).is_some()
        });
        for row in shown {
            let at = At { results, ranking: &ranking, load, row };
            let text = |column: Column<K>| (column.text)(&at);
            let median = results.median(load, row, by).unwrap_or(0.0);
            let is_ranked = ranking.place(row).is_some();
            let fields = vec![
                rank(&ranking, row),
                short_name(results, row),
                text(Column::bounded(by)),
                text(Column::spread(by)),
                String::new(),
                text(Column::to_best()),
                text(Column::of(K::UNIT.cpu)),
                latency(&at),
                text(Column::limited_by()),
            ];
            rows.push(Line { fields, share: is_ranked.then(|| median / largest) });
        }
    }
    let heading = vec![
        "#".into(),
        "design".into(),
        by.heading.replace('\n', " ").trim_end().to_owned(),
        "±".into(),
        String::new(),
        "× best".into(),
        "CPU ns".into(),
        "p50/p99 µs".into(),
        "limit".into(),
    ];
    lines_of(heading, rows, &titles, width)
}

/// A rank as it is shown: rows that are tied share one, and one that is undecided has none yet.
fn rank(ranking: &Ranking, row: usize) -> String {
    match (ranking.rank(row), ranking.place(row)) {
        (Some(rank), _) => rank.to_string(),
        (None, Some(_)) => UNDECIDED.into(),
        (None, None) => UNKNOWN.into(),
    }
}

/// Median and 99th percentile under this load, or, where they are unknown for all rows, under the first load that
/// knows them.
fn latency<K: Told>(at: &At<K>) -> String {
    let [p50, p99] = K::UNIT.latency;
    let known = |load: usize| {
        let figure = |metric| at.results.figure(load, at.row, metric);
        Some((figure(p50)?, figure(p99)?))
    };
    let loads = std::iter::once(at.load).chain(0..at.results.loads.len());
    match loads.into_iter().find_map(known) {
        Some((median, high)) => format!("{}/{}", (p50.text)(median), (p99.text)(high)),
        None => UNKNOWN.into(),
    }
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

/// The columns that stand to the left: names, bars and limits. Figures stand to the right.
const TO_LEFT: [usize; 3] = [NAMES, BARS, 8];
const NAMES: usize = 1;
const BARS: usize = 4;
/// Fewest characters of names that do not fit.
const LEAST_NAME: usize = 12;
/// What parts two columns.
const GAP: &str = "  ";

/// The table as lines, the heading first: columns as wide as what they hold, and none where nothing is known. Where
/// the place does not suffice bars become shorter, then names.
fn lines_of(
    heading: Vec<String>,
    rows: Vec<Line>,
    titles: &[(usize, String)],
    width: usize,
) -> Vec<String> {
    if rows.is_empty() {
        return vec![];
    }
    let is_known = |column: usize| rows.iter().any(|row| row.fields[column] != UNKNOWN);
    let kept: Vec<usize> =
        (0..heading.len()).filter(|column| *column <= NAMES || is_known(*column)).collect();
    let mut widths: Vec<usize> = (0..heading.len())
        .map(|column| {
            let fields = rows.iter().map(|row| &row.fields[column]).chain([&heading[column]]);
            fields.map(|field| chars(field)).max().unwrap_or(0)
        })
        .collect();
    let needed: usize =
        kept.iter().map(|column| widths[*column]).sum::<usize>() + GAP.len() * (kept.len() - 1);
    widths[BARS] = width.saturating_sub(needed).min(BAR);
    widths[NAMES] -= needed.saturating_sub(width).min(widths[NAMES].saturating_sub(LEAST_NAME));
    let line = |fields: &[String], share: Option<f64>| {
        let field = |column: &usize| {
            let width = widths[*column];
            let field = match (*column, share) {
                (BARS, Some(share)) => bar(share, width),
                _ => cut(&fields[*column], width),
            };
            match TO_LEFT.contains(column) {
                true => format!("{field:<width$}"),
                false => format!("{field:>width$}"),
            }
        };
        kept.iter().map(field).collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    let mut all = vec![line(&heading, None)];
    for (index, row) in rows.iter().enumerate() {
        if let Some((_, title)) = titles.iter().find(|(before, _)| *before == index) {
            all.push(format!("   {title}:"));
        }
        all.push(line(&row.fields, row.share));
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

/// What a reader must know: rows without a figure, and warnings.
fn foot<K: Told>(results: &Results<K>) -> Vec<String> {
    let mut said = vec![];
    if let Some(load) = main_load(results) {
        let mut unranked = (0..results.rows.len())
            .filter(|row| results.takes_part(load, *row) && results.first_of(*row).is_none())
            .filter_map(|row| Some((row, results.unranked(load, row)?)))
            .peekable();
        if let Some((row, reason)) = unranked.peek().cloned() {
            let count = unranked.count();
            let name = short_name(results, row);
            let who = if count == 1 { name } else { format!("{count} designs; {name}") };
            said.push(format!("Not ranked: {who}: {reason}"));
        }
    }
    let mut warnings = results.machine.warnings.iter().chain(&results.warnings).collect::<Vec<_>>();
    // What spoils the figures most is the last one, and shown.
    let worst = results.busy_machine();
    warnings.sort_by_key(|warning| Some(*warning) == worst.as_ref());
    if let Some(error) = &results.error {
        said.push(format!("error: {error}"));
    }
    if results.interrupted {
        said.push("warning: interrupted; the results are partial".into());
    }
    if let Some(first) = warnings.pop() {
        let more = match warnings.len() {
            0 => String::new(),
            more => format!(" ({more} more: --details)"),
        };
        said.push(format!("warning{more}: {first}"));
    }
    said
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
    use crate::udp::report::fixture::results;

    #[test]
    fn the_first_screen_keeps_to_its_lines_and_columns() {
        let results = results();
        for lines in [LINES, LINES_OF_A_PART, 10] {
            for width in [80, 100, 200] {
                let text = screen(&results, width, lines);
                assert!(text.lines().count() <= lines, "{lines}:\n{text}");
                let widest = text.lines().map(chars).max().unwrap();
                assert!(widest <= width.min(COLUMNS), "{widest} of {width}:\n{text}");
            }
        }
    }

    #[test]
    fn what_is_undecided_has_no_rank() {
        let mut results = results();
        results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let text = screen(&results, COLUMNS, LINES);
        let rows = text.lines().skip_while(|line| !line.starts_with("#  design")).skip(1);
        let ranked = rows.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with('-'));
        let ranks: Vec<char> = ranked.filter_map(|line| line.chars().next()).collect();
        assert!(ranks.len() > 2 && ranks.iter().all(|rank| *rank == '?'), "{text}");
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
