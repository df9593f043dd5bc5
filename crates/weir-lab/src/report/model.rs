//! A document as the first screen, the page and Markdown read it: studies, loads, groups and rows, with names and
//! figures. What is missing is `None`, so that a document of an interrupted or failed comparison can be shown, too.

use serde_json::Value;
use weir::machine::MOST_LOAD_OF_OTHERS;

use crate::report::kinds::{KINDS, Kind};
use crate::report::number::{UNKNOWN, bytes};
use crate::report::places::Places;
use crate::report::words::number_of;
use crate::saved::{is_under, metric_of, parts};
use crate::stats::median;
use crate::studies::NAMES;

static NOTHING: Value = Value::Null;

/// One comparison of a document.
pub struct Study<'a> {
    /// Its document.
    pub value: &'a Value,
    /// What is known of its kind.
    pub kind: &'static Kind,
    /// Its loads.
    pub loads: Vec<Load<'a>>,
    /// Rows by the number of their series: a design with its options, whatever the load.
    pub series: Vec<String>,
}

/// A load, and the rows under it.
pub struct Load<'a> {
    /// Its place among all loads.
    pub index: usize,
    /// Its object.
    pub value: &'a Value,
    /// As it is named in tables.
    pub name: String,
    /// The metric that rows are ranked by.
    pub ranked_by: String,
    /// Rows that are ranked with one another.
    pub groups: Vec<Group<'a>>,
}

/// Rows that are ranked with one another.
pub struct Group<'a> {
    /// Which they are, where there are several groups.
    pub title: &'static str,
    /// What the document says of them.
    pub value: &'a Value,
    /// Best first; those without a rank last.
    pub rows: Vec<Row<'a>>,
}

/// How a row stands to the best of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It alone is the best.
    Best,
    /// It is one of the best, which are alike within the noise.
    Tied,
    /// It is really behind.
    Behind,
    /// Nothing is decided between it and the best.
    Open,
    /// It is a row under a second name, which shows the noise.
    Again,
    /// It has no rank.
    Unranked,
}

impl Standing {
    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Tied => "tied",
            Self::Behind => "behind",
            Self::Open => "open",
            Self::Again => "again",
            Self::Unranked => "unranked",
        }
    }
}

/// A row under a load.
#[derive(Clone)]
pub struct Row<'a> {
    /// Its object.
    pub value: &'a Value,
    /// Its name, short.
    pub name: String,
    /// The number of its series.
    pub series: usize,
    /// A word for its group, where it is not the first.
    pub group: &'static str,
    /// How it stands.
    pub standing: Standing,
}

/// A figure of a row: the median and the ends of its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The ends of the interval, where there are enough rounds for one.
    pub interval: Option<(f64, f64)>,
}

/// A figure of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The round that it was made in, from 1.
    pub round: u64,
    /// The figure.
    pub value: f64,
    /// Whether it counts: what was disturbed, or made while the machine was another, does not.
    pub counts: bool,
}

impl<'a> Study<'a> {
    /// Every comparison in a document.
    pub fn all(document: &'a Value) -> Vec<Self> {
        parts(document).into_iter().map(|part| Self::of(part.0)).collect()
    }

    fn of(value: &'a Value) -> Self {
        // A document that does not say is of the first kind.
        let named = KINDS.iter().find(|kind| value["kind"] == kind.name);
        let kind = named.unwrap_or(&KINDS[0]);
        let mut identities: Vec<String> = vec![];
        let mut series = vec![];
        let all: Vec<&Value> = items(&value["results"]).collect();
        let named: Vec<(usize, String, &Value)> = all
            .iter()
            .map(|row| {
                let title = text(row, "name").unwrap_or_else(|| name_among(row, &all));
                let identity = format!("{title}\n{}", text(row, "provider").unwrap_or_default());
                let known = identities.iter().position(|one| *one == identity);
                let index = known.unwrap_or_else(|| {
                    identities.push(identity);
                    series.push(title.clone());
                    series.len() - 1
                });
                (index, title, *row)
            })
            .collect();
        let loads = items(&value["loads"])
            .enumerate()
            .map(|(index, load)| load_of(index, load, &named))
            .collect();
        Self { value, kind, loads, series }
    }

    /// The load that decides: the first that compares rows and has figures.
    pub fn main(&self) -> Option<&Load<'a>> {
        let has_figures =
            |load: &&Load| load.rows().any(|row| row.median(&load.ranked_by).is_some());
        match self.value.get("main_load") {
            Some(index) => self.loads.get(usize::try_from(index.as_u64()?).ok()?),
            // An older document does not say.
            None => self.loads.iter().filter(|load| !load.is_step()).find(has_figures),
        }
    }

    /// The share (0 to 1) of all cores that other programs usually had during its runs, if that was too much.
    pub fn busy_share(&self) -> Option<f64> {
        let runs = self.rows().flat_map(|(_, row)| items(&row.value["runs"]));
        let shares: Vec<f64> = runs.filter_map(|run| number(&run["load_of_others"])).collect();
        median(&shares).filter(|share| *share > MOST_LOAD_OF_OTHERS)
    }

    /// Its machine in a few words: the processor, how many cores, and the kernel.
    pub fn machine(&self) -> Vec<String> {
        machine_in_words(&self.value["machine"])
    }

    /// What a reader must know before trusting a figure, what weighs most last.
    pub fn warnings(&self) -> Vec<String> {
        let all = [&self.value["machine"]["warnings"], &self.value["warnings"]];
        all.into_iter().flat_map(texts).collect()
    }

    /// Whether it was only planned.
    pub fn is_plan(&self) -> bool {
        self.value["planned"].is_array()
    }

    /// Every row under every load.
    pub fn rows(&self) -> impl Iterator<Item = (&Load<'a>, &Row<'a>)> {
        self.loads.iter().flat_map(|load| load.rows().map(move |row| (load, row)))
    }
}

fn load_of<'a>(index: usize, value: &'a Value, named: &[(usize, String, &'a Value)]) -> Load<'a> {
    let name = text(value, "name").unwrap_or_else(|| match &value["load"] {
        Value::Null => format!("load {}", index + 1),
        fields => fields.to_string(),
    });
    let ranked_by = text(value, "ranked_by").unwrap_or_default();
    let rows: Vec<&(usize, String, &Value)> =
        named.iter().filter(|(.., row)| is_under(row, value)).collect();
    let known = groups_of(value);
    let is_in = |row: &Value, key: &str| {
        let own = group_of(row);
        // What tells nothing, or a group that is not there, belongs to the first.
        let is_known = known.iter().any(|(other, ..)| *other == own);
        own == key || (!is_known && known.first().is_some_and(|(first, ..)| *first == key))
    };
    let group = |(key, title, value): &(&'static str, &'static str, &'a Value)| {
        let own = rows.iter().filter(|(.., row)| is_in(row, key));
        let own = own.map(|(series, name, row)| Row {
            value: row,
            name: name.clone(),
            series: *series,
            group: word_of(key),
            standing: Standing::Unranked,
        });
        let mut group = Group { title, value, rows: own.collect() };
        group.judge(&ranked_by);
        group
    };
    let mut groups: Vec<Group> = known.iter().map(group).collect();
    groups.retain(|group| !group.rows.is_empty());
    if let [only] = groups.as_mut_slice() {
        only.title = "";
    }
    // The first group needs no word of its own.
    for row in groups.iter_mut().take(1).flat_map(|group| &mut group.rows) {
        row.group = "";
    }
    Load { index, value, name, ranked_by, groups }
}

/// The groups of a load: what their rows have in common, what they are called, and their objects.
fn groups_of(load: &Value) -> Vec<(&'static str, &'static str, &Value)> {
    let groups: Vec<&Value> = items(&load["groups"]).collect();
    if groups.is_empty() {
        // The first group of UDP stands in the load itself, also where all rows have receive offload.
        let offloaded = &load["receive_offload"];
        return vec![
            ("", "designs without receive offload", load),
            (
                "offload",
                "designs with receive offload, in the same rounds",
                if offloaded.is_object() { offloaded } else { load },
            ),
            ("waits", "sleeping designs", &NOTHING),
            ("polls", "busy-polling designs", &NOTHING),
            ("reads_nothing", "designs that read nothing", &NOTHING),
        ];
    }
    let named = groups.into_iter().map(|group| {
        let key = match (group["group"].as_str(), group["polls"].as_bool()) {
            (Some("reads_nothing"), _) => ("reads_nothing", "designs that read nothing"),
            (Some("polls"), _) | (_, Some(true)) => ("polls", "busy-polling designs"),
            _ => ("waits", "sleeping designs"),
        };
        (key.0, key.1, group)
    });
    named.collect()
}

/// What stands beside the name of a row of such a group.
fn word_of(key: &str) -> &'static str {
    match key {
        "offload" => "receive offload",
        "polls" => "busy-polling",
        "reads_nothing" => "reads nothing",
        _ => "",
    }
}

/// What tells the group of a row.
fn group_of(row: &Value) -> &'static str {
    match (row["group"].as_str(), row["polls"].as_bool()) {
        (Some("reads_nothing"), _) => "reads_nothing",
        (Some("polls"), _) | (_, Some(true)) => "polls",
        (Some(_), _) | (_, Some(false)) => "waits",
        _ if row["load"]["receive_offload"] == true => "offload",
        _ => "",
    }
}

impl Group<'_> {
    /// Finds how each row stands, and puts the best first.
    fn judge(&mut self, ranked_by: &str) {
        let verdict = |row: &Row| row.value["winner_to_it"]["verdict"].as_str().map(str::to_owned);
        // Where the machine was too noisy there are figures, and no ranks.
        let is_ranked = |row: &Row| {
            row.value["reason"].is_null()
                && (row.value["rank"].is_u64() || row.figure(ranked_by).is_some())
        };
        let ranked: Vec<&Row> = self.rows.iter().filter(|row| is_ranked(row)).collect();
        let any = |word: &str| ranked.iter().any(|row| verdict(row).as_deref() == Some(word));
        let too_noisy = ranked.iter().all(|row| row.value["tied_with_winner"].is_null());
        let (open, tie, behind) = (any("too_few_pairs"), any("tie"), any("real"));
        for row in &mut self.rows {
            row.standing = match verdict(row).as_deref() {
                _ if row.value["role"] == "again" => Standing::Again,
                _ if !is_ranked(row) => Standing::Unranked,
                _ if too_noisy => Standing::Open,
                Some("real") => Standing::Behind,
                Some("tie") => Standing::Tied,
                Some(_) => Standing::Open,
                None if tie => Standing::Tied,
                None if open && !behind => Standing::Open,
                None => Standing::Best,
            };
        }
        self.order(ranked_by);
    }

    /// Puts the best first: rows of one rank together, at the best figure of them, what is undecided where its own
    /// figure stands, a second name behind the first, and rows without a rank last.
    fn order(&mut self, metric: &str) {
        let lower = metric.contains("latency");
        // Less is better of all that is ordered.
        let own = |row: &Row| match row.figure(metric) {
            Some(of) if lower => of.median,
            Some(of) => -of.median,
            None => f64::INFINITY,
        };
        let rank = |row: &Row| row.value["rank"].as_u64();
        let of_rank = |row: &Row| match rank(row) {
            Some(known) => {
                let same = self.rows.iter().filter(|other| rank(other) == Some(known));
                same.map(own).fold(f64::INFINITY, f64::min)
            }
            None => own(row),
        };
        let first_name = |row: &Row| {
            let is_it = |other: &&Row| {
                other.standing != Standing::Again && other.value["spec"] == row.value["spec"]
            };
            self.rows.iter().find(is_it).filter(|_| row.standing == Standing::Again)
        };
        let key = |row: &Row| {
            let first = first_name(row);
            let of = first.unwrap_or(row);
            let last = of.standing == Standing::Unranked;
            (last, of_rank(of), own(of), first.is_some())
        };
        let mut keyed: Vec<_> = self.rows.iter().map(|row| (key(row), row.clone())).collect();
        keyed.sort_by(|((last, rank, own, again), _), ((last_2, rank_2, own_2, again_2), _)| {
            let figures = rank.total_cmp(rank_2).then(own.total_cmp(own_2));
            last.cmp(last_2).then(figures).then(again.cmp(again_2))
        });
        self.rows = keyed.into_iter().map(|(_, row)| row).collect();
    }

    /// Whether another ranked row has this one's rank.
    pub fn shares_rank(&self, row: &Row) -> bool {
        let rank = &row.value["rank"];
        let same = self.rows.iter().filter(|other| {
            other.value["rank"] == *rank
                && !matches!(other.standing, Standing::Unranked | Standing::Again)
        });
        rank.is_u64() && same.count() > 1
    }
}

impl<'a> Load<'a> {
    /// Its rows, group by group.
    pub fn rows(&self) -> impl Iterator<Item = &Row<'a>> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    /// Where its rows ran, of a comparison over hosts.
    pub(crate) fn places(&self, kind: &Kind) -> Option<String> {
        Places::of_all(self.rows().map(|row| row.value), kind.generator)
    }

    /// Whether a small figure is the good one.
    pub fn is_lower_better(&self) -> bool {
        self.ranked_by.contains("latency")
    }

    /// Whether it is one of the steps of a sweep, which have no table of their own.
    pub fn is_step(&self) -> bool {
        self.value["shown"].as_str().is_some_and(|shown| shown != "table")
    }
}

impl<'a> Row<'a> {
    /// A metric by its name in the document, of which a dot parts the names of two objects.
    fn metric(&self, name: &str) -> &'a Value {
        metric_of(self.value, name)
    }

    /// The figure of a metric; `None` if it is not known.
    pub fn figure(&self, name: &str) -> Option<Figure> {
        let of = self.metric(name);
        Some(Figure {
            median: number(&of["median"])?,
            interval: number(&of["low"]).zip(number(&of["high"])),
        })
    }

    /// The median of a metric.
    pub fn median(&self, name: &str) -> Option<f64> {
        self.figure(name).map(|figure| figure.median)
    }

    /// The unit of a metric.
    pub fn unit(&self, name: &str) -> Option<&'a str> {
        self.metric(name)["unit"].as_str()
    }

    /// The figure of each run of which it is known.
    pub fn samples(&self, name: &str) -> Vec<Sample> {
        let of = self.metric(name);
        let runs = &self.value["runs"];
        let each = items(&of["samples"]).enumerate().filter_map(|(index, value)| {
            let run = &runs[index];
            let counted =
                of["counted"][index].as_bool().or(run["counted"].as_bool()).unwrap_or(true);
            Some(Sample {
                round: run["block"].as_u64().unwrap_or(index as u64).saturating_add(1),
                value: number(value)?,
                counts: counted && run["disturbed"].is_null() && run["replaced"] != true,
            })
        });
        each.collect()
    }
}

/// That not all was done that was planned.
pub const INTERRUPTED: &str =
    "It was ended before its plan was complete: these are the results until then.";

/// What went wrong as a whole: of the document, and of each comparison in it.
pub fn errors(document: &Value) -> Vec<String> {
    let parts = NAMES.iter().map(|kind| (*kind, &document[*kind]["error"]));
    let own = document["error"].as_str().map(|error| format!("It failed: {error}"));
    let of_parts =
        parts.filter_map(|(kind, error)| Some(format!("weir compare {kind}: {}", error.as_str()?)));
    own.into_iter().chain(of_parts).collect()
}

/// Whether this is the document of `weir compare udp --memory`.
pub fn is_memory(document: &Value) -> bool {
    document["noise_bytes"].is_number()
}

/// The columns of its table, and whether words stand in them.
pub const MEMORY_COLUMNS: [(&str, bool); 6] = [
    ("design", true),
    ("provider", true),
    ("outstanding", false),
    ("registered", false),
    ("kernel", false),
    ("reason", true),
];

/// Its rows; none of any other document.
pub fn memory_rows(document: &Value) -> Vec<[String; MEMORY_COLUMNS.len()]> {
    let size = |value: &Value| number(value).map_or(UNKNOWN.into(), bytes);
    let rows = items(&document["results"]).filter(|_| is_memory(document));
    let rows = rows.map(|row| {
        let word = |name: &str| text(row, name).unwrap_or_default();
        [
            text(row, "spec").unwrap_or_else(|| word("design")),
            word("provider"),
            row["outstanding"].as_u64().map_or(UNKNOWN.into(), |count| count.to_string()),
            size(&row["registered_bytes"]),
            size(&row["kernel_bytes"]),
            word("reason"),
        ]
    });
    rows.collect()
}

/// A machine in a few words: the processor, how many cores, and the kernel.
pub fn machine_in_words(machine: &Value) -> Vec<String> {
    let cores = machine["cores"].as_u64().map(|cores| number_of(cores as usize, "core"));
    let kernel = text(machine, "kernel").map(|kernel| {
        match kernel.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("kernel {kernel}"),
            false => kernel,
        }
    });
    [text(machine, "cpu_model"), cores, kernel].into_iter().flatten().collect()
}

/// A number that can be drawn.
pub fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// The items of a list; none of what is no list.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text of an object.
pub fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

/// The texts of a list.
pub fn texts(value: &Value) -> Vec<String> {
    items(value).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A row by its name, with its provider where another row under the same load has that name.
fn name_among(row: &Value, all: &[&Value]) -> String {
    let name = name_of(row);
    let same = all.iter().any(|other| {
        other["load_name"] == row["load_name"]
            && other["provider"] != row["provider"]
            && name_of(other) == name
    });
    match row["provider"].as_str() {
        Some(provider) if same => format!("{name} on {provider}"),
        _ => name,
    }
}

/// A row's design with its options but the provider; the traditional design is called the original.
fn name_of(row: &Value) -> String {
    let design = text(row, "design").unwrap_or_else(|| "?".into());
    let role = row["role"].as_str();
    let mut name = match role {
        _ if row["kind"] == "peer" => format!("{design} (peer)"),
        Some("traditional") => format!("{design} (original)"),
        _ => without_provider(&text(row, "spec").unwrap_or(design)),
    };
    if row["load"]["receive_offload"] == true {
        name.push_str(" (offload)");
    }
    if role == Some("again") {
        name.push_str(" (again)");
    }
    name
}

fn without_provider(spec: &str) -> String {
    const OPTION: &str = " --provider ";
    let Some((before, rest)) = spec.split_once(OPTION) else { return spec.into() };
    let after = rest.split_once(' ').map(|(_, after)| format!(" {after}"));
    format!("{before}{}", after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_without_its_provider() {
        assert_eq!(
            without_provider("rio-hybrid --provider uring --threads 1"),
            "rio-hybrid --threads 1"
        );
        assert_eq!(without_provider("rio-event --provider uring"), "rio-event");
        assert_eq!(without_provider("blocking"), "blocking");
    }
}
