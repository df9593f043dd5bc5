//! What a simulation says: the document with its schema, a table for people, CSV. Each says first that it is a model.

use super::{
    Copies, Design, Row,
    check::{Check, Checked, GOAL_PERCENT},
    costs::Table,
    predict::{Crossing, answers},
};
use crate::experiment::verdict::Limit;
use crate::report::{
    layout::{figures, paragraph, table_of_width},
    number::{or_unknown, si, three_figures},
};
use comfy_table::{ColumnConstraint, Width};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// What is said first, wherever figures of the model are shown.
pub const MODEL: &str =
    "A model: these figures were computed from costs, and none of them was measured.";

/// What `weir simulate` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// The version of this shape.
    pub schema_version: u32,
    /// `simulation`.
    pub kind: String,
    /// That these figures are those of a model.
    pub model: String,
    /// The command as it was given.
    pub command: Vec<String>,
    /// `completed`.
    pub status: String,
    /// Seed of the traffic.
    pub seed: u64,
    /// The answers, the most important first.
    pub answers: Vec<String>,
    /// The costs that it was computed from.
    pub costs: Table,
    /// What was the same for all rows.
    pub settings: Settings,
    /// Where one design overtakes another.
    pub crossings: Vec<Crossing>,
    /// Each design under each load on each number of cores.
    pub rows: Vec<Row>,
    /// How far the model is off a comparison that was measured; null if it was not asked.
    pub check: Option<Check>,
}

/// What is the same for all rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// Datagrams for which there is room, shared among the sockets.
    pub buffer_datagrams: usize,
    /// Flows, which sharding spreads over its sockets.
    pub flows: u32,
    /// Datagrams that come at once.
    pub train_datagrams: u32,
    /// Most datagrams of one dequeue.
    pub dequeue_max: usize,
    /// Datagrams in one dequeue at which the hybrid lets another thread join.
    pub threshold: u64,
    /// How long the hybrid polls after the last datagram.
    pub spin_us: f64,
    /// Work of each datagram that is not on shared state.
    pub own_work_ns: f64,
}

/// The schema of the document, which tests hold against its type.
pub const SCHEMA: &str = include_str!("simulation.schema.json");

impl Document {
    /// For people, the answers first, on lines of so many characters. `all` shows every row, else those of the lowest
    /// and the highest load and number of cores.
    pub fn text(&self, all: bool, width: usize) -> String {
        let mut text = String::new();
        paragraph(&mut text, MODEL, width);
        if let Some(check) = &self.check {
            text += &checked(check, width);
        }
        for answer in answers(&self.crossings) {
            text.push('\n');
            paragraph(&mut text, &answer, width);
        }
        let shown: Vec<&Row> =
            self.rows.iter().filter(|row| all || self.is_at_an_end(row)).collect();
        if shown.is_empty() {
            return text;
        }
        text += &tables(&shown, width);
        text.push('\n');
        let hidden = self.rows.len() - shown.len();
        if hidden > 0 {
            let words = format!("{hidden} more rows: --all shows them, -o FILE writes them.");
            paragraph(&mut text, &words, width);
        }
        let cut = self.rows.iter().filter(|row| row.cut_short).count();
        if cut > 0 {
            let words = format!("Rows that had too many events and were cut short: {cut}.");
            paragraph(&mut text, &words, width);
        }
        text
    }

    fn is_at_an_end(&self, row: &Row) -> bool {
        let is_end = |value: f64, of: &dyn Fn(&Row) -> f64| {
            let values = || self.rows.iter().map(of);
            values().reduce(f64::min) == Some(value) || values().reduce(f64::max) == Some(value)
        };
        is_end(row.offered_per_s, &|row| row.offered_per_s)
            && is_end(row.cores as f64, &|row| row.cores as f64)
            && is_end(row.shared_work_ns, &|row| row.shared_work_ns)
    }

    /// All rows as CSV (RFC 4180). The first column says that it is a model.
    ///
    /// # Errors
    /// Why it could not be written.
    pub fn csv(&self) -> Result<String, String> {
        let mut writer = csv::Writer::from_writer(vec![]);
        let written = COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let of = |row: &Row| COLUMNS.iter().map(|(_, value)| value(row)).collect::<Vec<_>>();
        let all = std::iter::once(written.into_iter().map(String::from).collect())
            .chain(self.rows.iter().map(of));
        for record in all {
            writer.write_record(record).map_err(|error| error.to_string())?;
        }
        let bytes = writer.into_inner().map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

/// A column of the CSV file: its name, and a row's value.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("source", |_| "model".into()),
    ("design", |row| row.design.clone()),
    ("copies", |row| row.copies.clone()),
    ("cores", |row| row.cores.to_string()),
    ("threads", |row| row.threads.to_string()),
    ("offered_per_s", |row| row.offered_per_s.to_string()),
    ("shared_work_ns", |row| row.shared_work_ns.to_string()),
    ("received_per_s", |row| row.received_per_s.to_string()),
    ("lost_percent", |row| row.lost_percent.to_string()),
    ("arrived", |row| row.arrived.to_string()),
    ("received", |row| row.received.to_string()),
    ("lost_before_socket", |row| row.lost_before_socket.to_string()),
    ("lost_at_socket", |row| row.lost_at_socket.to_string()),
    ("waiting", |row| row.waiting.to_string()),
    ("batch_mean", |row| known(row.batch_mean)),
    ("batch_p50", |row| known(row.batch_p50.map(f64::from))),
    ("threads_active", |row| row.threads_active.to_string()),
    ("cores_busy", |row| row.cores_busy.to_string()),
    ("cpu_ns_per_datagram", |row| known(row.cpu_ns_per_datagram)),
    ("wakes_per_1000_datagrams", |row| known(row.wakes_per_1000_datagrams)),
    ("latency_mean_ns", |row| known(row.latency_ns.map(|of| of.mean))),
    ("latency_p50_ns", |row| known(row.latency_ns.map(|of| of.p50))),
    ("latency_p99_ns", |row| known(row.latency_ns.map(|of| of.p99))),
    ("latency_p99_9_ns", |row| known(row.latency_ns.map(|of| of.p999))),
    ("latency_max_ns", |row| known(row.latency_ns.map(|of| of.max))),
    ("simulated_ms", |row| row.simulated_ms.to_string()),
    ("cut_short", |row| row.cut_short.to_string()),
];

/// A figure that may not be known, as in the project's other CSV files: empty then.
fn known(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A table for each group of rows that differ in their design alone.
fn tables(rows: &[&Row], width: usize) -> String {
    let alike = |one: &&Row, other: &&Row| {
        (&one.copies, one.shared_work_ns, one.cores, one.offered_per_s)
            == (&other.copies, other.shared_work_ns, other.cores, other.offered_per_s)
    };
    rows.chunk_by(alike).fold(String::new(), |mut text, group| {
        let Row { copies, shared_work_ns, cores, offered_per_s, .. } = group[0];
        let who = if *copies == Copies::Thread.name() { "the thread" } else { "the network stack" };
        let plural = if *cores == 1 { "" } else { "s" };
        let offered = si(*offered_per_s);
        let words = format!(
            "{offered}/s offered, {cores} core{plural}, {shared_work_ns:.0} ns of shared work, {who} copies:"
        );
        text.push('\n');
        paragraph(&mut text, &words, width);
        let _ = writeln!(text, "{}", table(group, width));
        text
    })
}

fn table(rows: &[&Row], width: usize) -> String {
    let mut table = table_of_width(width);
    table.set_header([
        "design",
        "received/s",
        "lost",
        "buffered",
        "batch",
        "active",
        "cores busy",
        "CPU ns",
        "p50 µs",
        "p99 µs",
    ]);
    let latency = |row: &Row, of: fn(&super::Latency) -> f64| {
        or_unknown(row.latency_ns.as_ref().map(of), |ns| three_figures(ns / 1000.0))
    };
    for row in rows {
        let buffered = 100.0 * row.waiting as f64 / row.arrived.max(1) as f64;
        table.add_row([
            row.design.clone(),
            si(row.received_per_s),
            format!("{:.1} %", row.lost_percent),
            format!("{buffered:.1} %"),
            or_unknown(row.batch_mean, three_figures),
            row.threads_active.to_string(),
            format!("{:.2}", row.cores_busy),
            or_unknown(row.cpu_ns_per_datagram, |ns| format!("{ns:.0}")),
            latency(row, |of| of.p50),
            latency(row, |of| of.p99),
        ]);
    }
    figures(whole_names(table), &[])
}

/// What limited a row. One that received what was sent is not known to have been limited by its server.
fn limit(row: &Checked) -> &str {
    let server = Limit::Server.word();
    match row.limited_by.as_deref().filter(|limit| *limit != server) {
        _ if row.limited_by_server => server,
        Some(limit) => limit,
        None => "what was sent",
    }
}

/// With a first column as wide as the longest name of a design, which is not broken.
fn whole_names(mut table: comfy_table::Table) -> comfy_table::Table {
    let longest = Design::ALL.iter().map(|design| design.name().len() + 1).max().unwrap_or(0);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(longest as u16)));
    }
    table
}

pub(super) fn checked(check: &Check, width: usize) -> String {
    let mut text = String::from("\n");
    let percent = |value: f64| format!("{value:+.0} %");
    let words = match (check.median_off_percent, check.widest_off_percent) {
        (Some(median), Some(widest)) => format!(
            "Against what was measured: {} of {} rows that the server limited are within {GOAL_PERCENT:.0} %; the median \
             row is {median:.0} % off, the widest {widest:.0} %.",
            check.within_goal, check.limited_by_server,
        ),
        _ => "No row that the model covers was limited by its server, so how far off it is cannot be shown.".into(),
    };
    paragraph(&mut text, &words, width);
    let loads: Vec<_> = check.rows.chunk_by(|one, other| one.load == other.load).collect();
    for rows in loads {
        let mut table = table_of_width(width);
        table.set_header([
            "row",
            "runs",
            "sent/s",
            "measured/s",
            "model/s",
            "off",
            "CPU ns",
            "model",
            "off",
            "limited by",
        ]);
        for row in rows {
            table.add_row([
                row.name.clone(),
                format!("{}/{}", row.runs, row.runs_made),
                si(row.sent_per_s),
                format!("{}{}", if row.lower_bound { "≥" } else { "" }, si(row.measured_per_s)),
                si(row.model_per_s),
                percent(row.off_percent),
                or_unknown(row.measured_cpu_ns, |ns| format!("{ns:.0}")),
                or_unknown(row.model_cpu_ns, |ns| format!("{ns:.0}")),
                or_unknown(row.cpu_off_percent, percent),
                limit(row).to_owned(),
            ]);
        }
        let plural = if rows[0].cores == 1 { "" } else { "s" };
        text.push('\n');
        paragraph(&mut text, &format!("{}, {} core{plural}:", rows[0].load, rows[0].cores), width);
        let _ = writeln!(text, "{}", figures(whole_names(table), &[9]));
    }
    for row in &check.rows {
        if let Some(reason) = &row.not_modelled {
            let words = format!("not counted: {} ({}): {reason}", row.name, row.load);
            paragraph(&mut text, &words, width);
        }
    }
    for row in &check.left_out {
        let words = format!("left out: {} ({}): {}", row.name, row.load, row.reason);
        paragraph(&mut text, &words, width);
    }
    text
}
