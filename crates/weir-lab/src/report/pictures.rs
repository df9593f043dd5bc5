//! What the page draws of a study: which metrics, against what, and the words beside them. The page itself knows no
//! study.

use serde_json::Value;

/// How a figure is written.
pub type Text = fn(f64) -> String;

/// The pictures of a study.
pub struct Pictures {
    /// What its latency is, in words.
    pub latency: &'static str,
    /// A part of the CPU time, if one is known: its metric, what it is, and what the rest is.
    pub cpu_part: Option<(&'static str, &'static str, &'static str)>,
    /// How many are taken at a time, if that is known.
    pub batch: Option<Batch>,
    /// Threads: the metric of those at work, and that of those that were started.
    pub threads: Option<(&'static str, &'static str)>,
    /// Lines over several values of an option, under each load.
    pub over_option: &'static [OverOption],
    /// Lines over several loads.
    pub over_loads: &'static [OverLoads],
    /// Lines over the stops of a sweep that the document has itself.
    pub sweeps: &'static [Sweep],
    /// What else the document has to draw, found in the study's part of it.
    pub own: fn(&Value) -> Vec<Own>,
}

/// Lines that only this study has.
#[derive(Clone)]
pub struct Own {
    /// What kind of picture it is, and a part of its anchor.
    pub plot: &'static str,
    /// Its title.
    pub title: String,
    /// What it shows and how to read it.
    pub about: &'static str,
    /// What the axis along is called.
    pub across: &'static str,
    /// What the axis upward is called, and how its figures are written. It begins at 0.
    pub up: (&'static str, Text),
    /// Each line's name and points.
    pub lines: Vec<(String, Vec<[f64; 2]>)>,
}

/// How many are taken at a time.
pub struct Batch {
    /// The title of its picture.
    pub title: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The metric.
    pub middle: &'static str,
    /// The metrics of its 10th and 90th percentile, if they are known.
    pub ends: Option<[&'static str; 2]>,
}

/// What a picture of lines shows upward.
pub struct Shown {
    /// What kind of picture it is, and a part of its anchor.
    pub plot: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What it shows and how to read it.
    pub about: &'static str,
    /// What its upward axis is called, and how its figures are written.
    pub up: (&'static str, Text),
    /// How that axis is divided.
    pub scale: Upward,
    /// The figure.
    pub y: Y,
    /// Whether a diagonal shows where both axes say the same.
    pub diagonal: bool,
    /// Whether it is drawn only where some figure is above 1.
    pub only_above_1: bool,
}

/// How an upward axis is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Upward {
    /// From 0.
    Linear,
    /// Figures are far apart.
    Log,
    /// Sizes, which are far apart too.
    Bytes,
}

/// The figure of a row.
pub enum Y {
    /// A metric.
    Of(&'static str),
    /// What a metric lacks of 100 %.
    LackOf(&'static str),
    /// A metric, and another one where it is known.
    Sum(&'static str, &'static str),
}

/// Pictures over loads that differ in some fields of theirs alone.
pub struct OverLoads {
    /// The fields.
    pub varies: &'static [&'static str],
    /// What the axis is called.
    pub across: &'static str,
    /// The figure along it.
    pub x: X,
    /// A picture of each.
    pub shown: &'static [Shown],
}

/// A figure of a row or of its load.
#[derive(Clone, Copy)]
pub enum X {
    /// A field of the load.
    OfLoad(&'static str),
    /// A metric of the row, where it is above 0.
    OfRow(&'static str),
}

/// Pictures of rows that differ in one option alone, under each load.
pub struct OverOption {
    /// The option as it is typed.
    pub option: &'static str,
    /// The field of a row that has its value.
    pub field: &'static str,
    /// What the axis is called.
    pub across: &'static str,
    /// The picture.
    pub shown: Shown,
}

/// A sweep that stands in the document by itself.
pub struct Sweep {
    /// Its name among the sweeps.
    pub name: &'static str,
    /// What the axis is called.
    pub across: &'static str,
    /// The field of a stop that has the figures, by design.
    pub field: &'static str,
    /// The picture.
    pub shown: Shown,
}

/// Where one design overtakes another.
pub struct Overtaking {
    /// Along what.
    pub axis: String,
    /// Which leads before.
    pub before: String,
    /// Which leads after.
    pub after: String,
    /// Where, and between which figures.
    pub at: [Option<f64>; 3],
    /// Whether it is no noise.
    pub is_real: bool,
}

/// A table of figures that only this study has; the first column names the row.
#[derive(Default)]
pub struct Aside {
    /// Its title, or nothing.
    pub title: &'static str,
    /// What stands before it.
    pub note: Option<&'static str>,
    /// The caption.
    pub caption: Option<&'static str>,
    /// The columns: each with its heading, and whether words stand in it.
    pub columns: Vec<(&'static str, bool)>,
    /// The fields of each row.
    pub rows: Vec<Vec<String>>,
}

impl Aside {
    /// One with these columns, and a row for each of these values; `None` if there is none.
    pub fn of<'a>(
        columns: &[(&'static str, bool)],
        values: impl IntoIterator<Item = &'a Value>,
        row: impl Fn(&Value) -> Vec<String>,
    ) -> Option<Self> {
        let rows: Vec<Vec<String>> = values.into_iter().map(row).collect();
        (!rows.is_empty()).then(|| Self { columns: columns.to_vec(), rows, ..Self::default() })
    }
}
