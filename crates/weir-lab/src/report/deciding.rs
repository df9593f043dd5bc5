//! The table that decides: a line for each design, with the columns by which one is chosen. The first screen, the page
//! and Markdown show it, each in its way.

use super::columns::{AGAIN, FAILED, Mark, NOT_MEASURED, NOT_RANKED, OPEN, TIED, UNAVAILABLE};
use super::explain::{self, Meaning};
use super::kinds::{Kind, Metric};
use super::model::{Group, Load, Row, Standing, Study, number, text};
use super::number::{UNKNOWN, factor, percent};
use crate::stats::bootstrap::range;

/// Places of the columns, and of the fields of a line.
pub const RANK: usize = 0;
/// The name.
pub const DESIGN: usize = 1;
/// What rows are ranked by.
pub const RATE: usize = 2;
/// Half of its interval. A bar for the figure may stand behind it.
pub const SPREAD: usize = 3;
/// The ratio to the best one's.
pub const BEST: usize = 4;
/// CPU time.
pub const CPU: usize = 5;
/// Median and 99th percentile.
pub const LATENCY: usize = 6;
/// What limited it.
pub const LIMIT: usize = 7;
/// How many there are.
pub const COLUMNS: usize = 8;

/// A column.
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// The same where there is little place.
    pub short: String,
    /// What it means.
    pub about: String,
}

impl Column {
    /// Whether words stand in this column, which stand to the left.
    pub fn is_words(place: usize) -> bool {
        place == DESIGN || place == LIMIT
    }
}

/// A row.
pub struct Line<'a> {
    /// What the document says of it.
    pub row: &'a Row<'a>,
    /// By column.
    pub fields: [String; COLUMNS],
    /// A word beside its name, and what it means.
    pub mark: Option<(&'static str, &'static str)>,
    /// The interval of its ratio to the best one's.
    pub best_within: Option<String>,
    /// Its figure to the largest, of which there is a bar; `None` where less is better, and for a row without a rank.
    pub share: Option<f64>,
}

/// The table of a load.
pub struct Table<'a> {
    /// The columns.
    pub columns: [Column; COLUMNS],
    /// The groups, each with its lines, best first.
    pub groups: Vec<(&'a Group<'a>, Vec<Line<'a>>)>,
}

/// The table of a load of this study.
pub fn table<'a>(study: &'a Study, load: &'a Load) -> Table<'a> {
    let kind = study.kind;
    let by = kind.metric(&load.ranked_by, load.rows().find_map(|row| row.unit(&load.ranked_by)));
    let ranked = load.rows().filter(|row| row.standing != Standing::Unranked);
    let largest = ranked.filter_map(|row| row.median(&by.name)).fold(0.0, f64::max);
    // Of latencies the longest bar would be the worst row's.
    let has_bars = !load.is_lower_better() && largest > 0.0;
    let share = |row: &Row| {
        let median = row.median(&by.name).filter(|_| row.standing != Standing::Unranked)?;
        has_bars.then(|| median / largest)
    };
    let line = |group: &Group, row: &'a Row| Line {
        row,
        fields: [
            if is_alone(group) { UNKNOWN.into() } else { rank(row) },
            row.name.clone(),
            rate(load, row, &by),
            spread(row, &by),
            if is_alone(group) { UNKNOWN.into() } else { to_best(row) },
            row.median(kind.cpu).map_or(UNKNOWN.into(), |ns| format!("{ns:.0}")),
            latency(study, load, row),
            limit(row),
        ],
        mark: mark(group, row),
        best_within: best_within(row),
        share: share(row),
    };
    let groups = load.groups.iter();
    let groups =
        groups.map(|group| (group, group.rows.iter().map(|row| line(group, row)).collect()));
    Table { columns: columns(kind, &by), groups: groups.collect() }
}

/// What the columns mean that all kinds of comparisons have: rank, interval, ratio and latency.
pub fn shared_meanings() -> [Meaning; 4] {
    let all = explain::meanings();
    ["# rank", "±", "× best (x best)", "p50/p99 µs"].map(|heading| {
        let found = all.iter().find(|meaning| meaning.heading == heading);
        found.cloned().expect("it stands among the common ones")
    })
}

fn columns(kind: &Kind, by: &Metric) -> [Column; COLUMNS] {
    let [rank, spread, best, latency] = shared_meanings().map(|meaning| meaning.about);
    let column = |heading: &str, short: &str, about: String| Column {
        heading: heading.into(),
        short: short.into(),
        about,
    };
    let short_rate = if by.heading.contains("/s") { "per s" } else { &by.heading };
    [
        column("#", "#", rank),
        column("design", "design", String::new()),
        column(&by.heading, short_rate, by.about.clone()),
        column("±", "±", spread),
        column("× best", "×best", best),
        column("CPU ns", "CPUns", kind.metric(kind.cpu, None).about),
        column("p50/p99 µs", "p50/p99", latency),
        column("limit", "limit", kind.limits.into()),
    ]
}

/// Whether one row alone was ranked: then it is the best of nothing.
fn is_alone(group: &Group) -> bool {
    let ranked = |row: &&Row| !matches!(row.standing, Standing::Again | Standing::Unranked);
    group.rows.iter().filter(ranked).count() == 1
}

/// A rank: rows that are tied share one, and what is undecided has none yet.
fn rank(row: &Row) -> String {
    match (row.standing, row.value["rank"].as_u64()) {
        (Standing::Again | Standing::Unranked, _) => UNKNOWN.into(),
        (Standing::Open, _) | (_, None) => "?".into(),
        (_, Some(rank)) => rank.to_string(),
    }
}

/// The word beside a name, and what it means.
fn mark(group: &Group, row: &Row) -> Option<Mark> {
    Some(match row.standing {
        Standing::Tied => TIED,
        Standing::Open => OPEN,
        Standing::Again => AGAIN,
        Standing::Unranked => match row.value["status"].as_str() {
            Some("unavailable") => UNAVAILABLE,
            Some("failed") => FAILED,
            Some("not_measured") => NOT_MEASURED,
            _ => NOT_RANKED,
        },
        Standing::Behind if group.shares_rank(row) => {
            (TIED.0, "as good as the others of its rank, within the noise")
        }
        Standing::Best | Standing::Behind => return None,
    })
}

/// The figure that rows are ranked by, which is a lower bound where something else was the limit.
fn rate(load: &Load, row: &Row, by: &Metric) -> String {
    let Some(median) = row.median(&by.name) else { return UNKNOWN.into() };
    // Nothing is the least there can be.
    let is_bound = row.value["lower_bound"] == true && !load.is_lower_better() && median > 0.0;
    let bound = if is_bound { "≥" } else { "" };
    format!("{bound}{}", (by.text)(median))
}

/// Half of the interval; in brackets half of the range where there are too few samples for one.
fn spread(row: &Row, by: &Metric) -> String {
    let Some(figure) = row.figure(&by.name).filter(|figure| figure.median > 0.0) else {
        return UNKNOWN.into();
    };
    let half = |low: f64, high: f64| match (high - low) / 2.0 / figure.median {
        share if share > 1.0 => ">100 %".into(),
        share => percent(share),
    };
    if let Some((low, high)) = figure.interval {
        return half(low, high);
    }
    let samples = row.samples(&by.name).into_iter().filter(|sample| sample.counts);
    let values: Vec<f64> = samples.map(|sample| sample.value).collect();
    let of_range = range(&values).filter(|_| values.len() > 1);
    of_range.map_or(UNKNOWN.into(), |ends| format!("({})", half(ends.low, ends.high)))
}

/// The ratio of a row's figure to the best one's, or an end of its interval: what the document says the other way round.
fn inverse(row: &Row, name: &str) -> Option<f64> {
    number(&row.value["winner_to_it"][name]).filter(|ratio| *ratio > 0.0).map(|ratio| 1.0 / ratio)
}

fn to_best(row: &Row) -> String {
    let sign = match row.standing {
        Standing::Best => return "1".into(),
        Standing::Again | Standing::Unranked => return UNKNOWN.into(),
        // The median of a few pairs, or of noisy ones, says nothing that should stand beside what does.
        Standing::Open => return "?".into(),
        Standing::Tied => "~",
        Standing::Behind => "",
    };
    match inverse(row, "median") {
        Some(ratio) => format!("{sign}{}", factor(ratio)),
        // The one whose figure is the best of those.
        None if sign == "~" => "1".into(),
        None => "?".into(),
    }
}

fn best_within(row: &Row) -> Option<String> {
    if matches!(row.standing, Standing::Best | Standing::Again | Standing::Unranked) {
        return None;
    }
    let (low, high) = inverse(row, "high").zip(inverse(row, "low"))?;
    Some(format!("({} to {})", factor(low), factor(high)))
}

/// Median and 99th percentile under this load, or, where no row has any since at saturation they would be those of a full
/// buffer, under the first load that knows them.
fn latency(study: &Study, load: &Load, row: &Row) -> String {
    let known = |row: &Row| {
        let of = |name: &str| {
            let name = format!("{}.{name}", study.kind.latency);
            row.median(&name).map(study.kind.metric(&name, Some("ns")).text)
        };
        Some(format!("{}/{}", of("p50")?, of("p99")?))
    };
    let is_measured = row.median(&load.ranked_by).is_some_and(|median| median > 0.0);
    let has_none = is_measured && load.rows().all(|row| known(row).is_none());
    let others = study
        .loads
        .iter()
        .filter(|other| has_none && other.index != load.index && !other.is_step());
    let others = others.flat_map(Load::rows).filter(|other| other.series == row.series);
    known(row).or_else(|| others.filter_map(known).next()).unwrap_or_else(|| UNKNOWN.into())
}

fn limit(row: &Row) -> String {
    let named = text(row.value, "limit").or_else(|| text(row.value, "limited_by"));
    named.unwrap_or_else(|| match row.value["status"].as_str() {
        Some("ok") | None => UNKNOWN.into(),
        Some(status) => status.replace('_', " "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::document;
    use crate::udp::report::fixture;

    #[test]
    fn a_row_is_named_as_in_the_conclusion_and_has_a_field_for_each_column() {
        let results = fixture::with_offload();
        let document = document(&results);
        let studies = Study::all(&document);
        let study = &studies[0];
        let found = table(study, &study.loads[0]);
        assert_eq!(found.groups.len(), 2);
        let lines = || found.groups.iter().flat_map(|(_, lines)| lines);
        for (row, _) in
            results.rows.iter().enumerate().filter(|(row, _)| results.takes_part(0, *row))
        {
            let name = crate::report::conclusion::short_name(&results, row);
            assert!(lines().any(|line| line.fields[DESIGN] == name), "{name}");
        }
        for line in lines() {
            assert!(line.fields.iter().all(|field| !field.is_empty()), "{:?}", line.fields);
        }
        let best = &found.groups[0].1[0];
        assert_eq!((best.fields[RANK].as_str(), best.fields[BEST].as_str()), ("1", "1"));
        assert!(best.share.is_some_and(|share| share > 0.0 && share <= 1.0));
        assert!(found.columns[LATENCY].about.contains("over the rounds"));
    }

    #[test]
    fn one_row_alone_has_no_rank_and_is_the_best_of_nothing() {
        let mut results = fixture::results();
        for cell in &mut results.cells[0][1..] {
            *cell = Default::default();
            cell.had_no_time();
        }
        let document = document(&results);
        let studies = Study::all(&document);
        let found = table(&studies[0], &studies[0].loads[0]);
        let lines: Vec<&Line> = found.groups.iter().flat_map(|(_, lines)| lines).collect();
        assert_eq!(lines.iter().filter(|line| line.fields[RATE] != UNKNOWN).count(), 1);
        for line in lines {
            assert_eq!((&*line.fields[RANK], &*line.fields[BEST]), (UNKNOWN, UNKNOWN));
        }
    }

    #[test]
    fn latencies_have_no_bars_and_few_rounds_a_range_in_brackets() {
        let mut results = fixture::results();
        results.cells[1].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let document = document(&results);
        let studies = Study::all(&document);
        let found = table(&studies[0], &studies[0].loads[1]);
        let lines: Vec<&Line> = found.groups.iter().flat_map(|(_, lines)| lines).collect();
        assert!(lines.iter().all(|line| line.share.is_none()));
        let measured = lines.iter().filter(|line| line.fields[RATE] != UNKNOWN);
        assert!(measured.clone().count() > 1);
        assert!(measured.clone().all(|line| line.fields[SPREAD].starts_with('(')));
    }
}
