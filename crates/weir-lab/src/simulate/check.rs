//! The model held against a comparison that was measured: each row of it is simulated as it ran, and the figures are
//! set side by side.
//!
//! Each run of a row is simulated under the load that was sent in it, on the cores that the server had, with its threads,
//! its buffer and its work, and is held against its own figures: medians of a row's metrics may come from different runs,
//! and no run had all of them. The row has the figures of the run whose deviation is the median. Runs in which other
//! programs had the cores do not count.
//!
//! If generators ran on some of the server's cores, the model has as many threads that compete for these, and
//! never leave them; those on other cores are no part of it. Linux may have run a thread of the server beside a generator
//! where the model runs none, or the other way round. Then the model's generator sends more or less than was sent, and the
//! run says nothing of the model: neither for it nor against it.

use super::{Copies, Course, Design, Row, costs::Costs, simulate};
use crate::{experiment::verdict::Limit, report::number::si};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// How far off the model may be, in percent: its goal.
pub const GOAL_PERCENT: f64 = 10.0;
/// What a datagram of a few bytes takes of a socket's buffer on Linux, besides its bytes.
const OVERHEAD_BYTES: u64 = 768;
/// The options that the model has, or whose value makes no difference to it. `batch` is the port's dequeue, and what plain
/// sockets receive with one call.
const OPTIONS: [&str; 8] =
    ["provider", "threads", "outstanding", "dequeue-max", "batch", "drain", "threshold", "spin"];
/// Options that only differ from what the model has where they have another value than this.
const SWITCHED_OFF: [(&str, &str); 2] = [("gather", "none"), ("adaptive", "false")];
/// Datagrams of a row: ten times as many as of others, since two threads may go on alike for a long time, one way or
/// another. Its runs share them, down to a quarter.
const DATAGRAMS: u64 = 200_000;
/// How far what the model's generators send may be off what was sent, as a share, in a run that the model represents.
const LOADS_ALIKE: f64 = 0.05;
/// Datagrams that generators send at once with segmentation offload.
const TRAIN: u32 = 32;

/// A measured row and what the model says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked {
    /// The row.
    pub name: String,
    /// Its load.
    pub load: String,
    /// Cores of the server.
    pub cores: usize,
    /// How many of its runs it is held against. Its figures are those of the run whose deviation is the median of these.
    #[serde(default)]
    pub runs: usize,
    /// How many it has. Not among those above: runs that other programs disturbed, that were limited by something else than
    /// most, or that the model does not represent.
    #[serde(default)]
    pub runs_made: usize,
    /// Why the model does not represent how most of its runs went; null if it does. Then the row is not counted.
    #[serde(default)]
    pub not_modelled: Option<String>,
    /// Datagrams sent in a second.
    pub sent_per_s: f64,
    /// Whether the server was what limited the row; else it received what was sent, which proves little.
    pub limited_by_server: bool,
    /// What limited it by its comparison, in a word; null if that does not say.
    #[serde(default)]
    pub limited_by: Option<String>,
    /// Measured: datagrams received in a second.
    pub measured_per_s: f64,
    /// Whether it could have received more than was measured.
    #[serde(default)]
    pub lower_bound: bool,
    /// Of the model.
    pub model_per_s: f64,
    /// How much more the model says, in percent; less, if below 0.
    pub off_percent: f64,
    /// Measured: CPU time of the server for each datagram; null if it is not known.
    pub measured_cpu_ns: Option<f64>,
    /// Of the model.
    pub model_cpu_ns: Option<f64>,
    /// How much more the model says, in percent.
    pub cpu_off_percent: Option<f64>,
}

/// What a document says of the model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// The rows that the model has.
    pub rows: Vec<Checked>,
    /// The others, each with the reason.
    pub left_out: Vec<LeftOut>,
    /// The median of how far off the rates of rows that the server limited are, regardless of sign; null if there is none.
    pub median_off_percent: Option<f64>,
    /// The widest of the same.
    pub widest_off_percent: Option<f64>,
    /// How many of them are within the goal of 10 %.
    pub within_goal: usize,
    /// How many there are.
    pub limited_by_server: usize,
}

/// A row that the model has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The row.
    pub name: String,
    /// Its load.
    pub load: String,
    /// Why.
    pub reason: String,
}

/// Holds the model against a document of `weir compare udp`.
///
/// # Errors
/// Why it cannot, and what to do.
pub fn check(document: &Value, costs: &Costs, seed: u64) -> Result<Check, String> {
    let studies = crate::report::model::Study::all(document);
    let study = studies.iter().find(|study| study.kind.name == "udp").ok_or(
        "it holds no comparison of UDP servers; make one with `weir compare udp --json=FILE`",
    )?;
    let value = study.value;
    let cores = |name: &str| -> BTreeSet<u64> {
        value[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let (server, generators) = (cores("server_cores"), cores("generator_cores"));
    if server.is_empty() {
        return Err("it does not say which cores the server had".into());
    }
    let mut check = Check::default();
    for result in value["results"].as_array().into_iter().flatten() {
        let shared = server.intersection(&generators).count();
        let row = Measured { result, cores: server.len(), shared, of_generators: generators.len() };
        match row.checked(costs, seed) {
            Ok(checked) => check.rows.push(checked),
            Err(reason) => {
                check.left_out.push(LeftOut {
                    name: row.text("name"),
                    load: row.text("load_name"),
                    reason,
                });
            }
        }
    }
    check.sum_up();
    Ok(check)
}

impl Check {
    fn sum_up(&mut self) {
        let counts = |row: &&Checked| row.limited_by_server && row.not_modelled.is_none();
        let limited = self.rows.iter().filter(counts);
        let mut off: Vec<f64> = limited.map(|row| row.off_percent.abs()).collect();
        off.sort_by(f64::total_cmp);
        self.limited_by_server = off.len();
        self.within_goal = off.iter().filter(|off| **off <= GOAL_PERCENT).count();
        self.median_off_percent = off.get(off.len() / 2).copied();
        self.widest_off_percent = off.last().copied();
    }
}

/// A run of a row, as it was measured.
struct Run {
    sent_per_s: Option<f64>,
    received_per_s: Option<f64>,
    cpu_ns: Option<f64>,
    /// Of the generators' cores, how much they had.
    generator_percent: Option<f64>,
    limited_by: Option<String>,
    lower_bound: bool,
}

impl Run {
    fn is_limited_by(&self, limit: Limit) -> bool {
        self.limited_by.as_deref() == Some(limit.word())
    }

    fn sent_per_s(&self) -> Result<f64, String> {
        let sent = self.sent_per_s.filter(|of| *of > 0.0);
        sent.ok_or_else(|| "what was sent in a second is not known".into())
    }
}

/// A run and what the model says of it.
struct Modelled {
    run: Run,
    row: Row,
    sent_per_s: f64,
    measured_per_s: f64,
    off_percent: f64,
    /// Why the model does not represent it.
    unlike: Option<String>,
}

impl Modelled {
    fn of(run: Run, course: &Course, row: Row) -> Result<Self, String> {
        let sent_per_s = run.sent_per_s()?;
        let measured_per_s =
            run.received_per_s.filter(|of| *of > 0.0).ok_or("nothing was received")?;
        let model_sent_per_s = row.arrived as f64 * 1e3 / row.simulated_ms;
        let is_alike = (model_sent_per_s / sent_per_s - 1.0).abs() <= LOADS_ALIKE;
        let unlike = (course.competitors_send && !is_alike).then(|| {
            format!(
                "a generator that shares a core with the server had {:.0} % of it and sent {}/s; in the model, whose scheduler \
                 places the server's threads otherwise, it sends {}/s",
                run.generator_percent.unwrap_or(100.0),
                si(sent_per_s),
                si(model_sent_per_s),
            )
        });
        let off_percent = more(row.received_per_s, measured_per_s);
        Ok(Self { run, row, sent_per_s, measured_per_s, off_percent, unlike })
    }
}

/// By how many percent the model's figure is more.
fn more(model: f64, measured: f64) -> f64 {
    100.0 * (model / measured - 1.0)
}

/// Keeps the runs that were limited by what most of them were, the first of them on a draw.
fn keep_most_frequent_limit(runs: &mut Vec<Modelled>) {
    let alike = |of: &Modelled| {
        let limit = &of.run.limited_by;
        runs.iter().filter(|other| other.run.limited_by == *limit).count()
    };
    let most = runs.iter().map(alike).max();
    let first = runs.iter().find(|run| Some(alike(run)) == most);
    if let Some(limit) = first.map(|first| first.run.limited_by.clone()) {
        runs.retain(|run| run.run.limited_by == limit);
    }
}

struct Measured<'a> {
    result: &'a Value,
    cores: usize,
    /// How many of them the generators had, too.
    shared: usize,
    /// Cores of the generators, which take them in turn.
    of_generators: usize,
}

impl Measured<'_> {
    fn text(&self, name: &str) -> String {
        self.result[name].as_str().unwrap_or_default().into()
    }

    fn median(&self, metric: &str) -> Option<f64> {
        self.result["metrics"][metric]["median"].as_f64()
    }

    fn option(&self, name: &str) -> Option<u64> {
        self.result["options"][name].as_str()?.parse().ok()
    }

    /// The runs that were counted; where the document has none, the medians as one.
    fn runs(&self) -> Vec<Run> {
        let metrics = &self.result["metrics"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let run = |(number, run): (usize, &Value)| {
            let sample = |metric: &str| metrics[metric]["samples"][number].as_f64();
            (run["counted"] == true && run["replaced"] != true).then(|| Run {
                sent_per_s: sample("sent_per_s"),
                received_per_s: sample("received_per_s"),
                cpu_ns: sample("cpu_ns_per_datagram"),
                generator_percent: sample("generator_cpu_utilization_percent"),
                limited_by: text(&run["verdict"]["limited_by"]),
                lower_bound: run["verdict"]["lower_bound"] == true,
            })
        };
        let runs = self.result["runs"].as_array().into_iter().flatten();
        let runs: Vec<Run> = runs.enumerate().filter_map(run).collect();
        if !runs.is_empty() {
            return runs;
        }
        vec![Run {
            sent_per_s: self.median("sent_per_s"),
            received_per_s: self.median("received_per_s"),
            cpu_ns: self.median("cpu_ns_per_datagram"),
            generator_percent: self.median("generator_cpu_utilization_percent"),
            limited_by: text(&self.result["limited_by"]),
            lower_bound: self.result["lower_bound"] == true,
        }]
    }

    /// An option that was set and that the model does not have.
    fn option_beyond(&self) -> Option<(&str, &str)> {
        let set = self.result["options"].as_object().into_iter().flatten();
        let set = set.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
        set.into_iter()
            .find(|option| !OPTIONS.contains(&option.0) && !SWITCHED_OFF.contains(option))
    }

    fn checked(&self, costs: &Costs, seed: u64) -> Result<Checked, String> {
        let mut runs = self.runs();
        let runs_made = runs.len();
        let undisturbed = |run: &Run| !run.is_limited_by(Limit::Others);
        let received = |run: &Run| run.received_per_s.is_some_and(|of| of > 0.0);
        for is_fit in [&received as &dyn Fn(&Run) -> bool, &undisturbed] {
            if runs.iter().any(is_fit) {
                runs.retain(is_fit);
            }
        }
        let datagrams = (DATAGRAMS / runs.len() as u64).max(DATAGRAMS / 4);
        let modelled = runs.into_iter().map(|run| {
            let course = Course { datagrams, ..self.course(costs, seed, &run)? };
            course.check()?;
            let row = simulate(&course, costs);
            Modelled::of(run, &course, row)
        });
        let mut runs = modelled.collect::<Result<Vec<_>, _>>()?;
        let represented = runs.iter().filter(|run| run.unlike.is_none()).count();
        let is_modelled = 2 * represented >= runs.len();
        runs.retain(|run| run.unlike.is_none() == is_modelled);
        keep_most_frequent_limit(&mut runs);
        runs.sort_by(|one, other| one.off_percent.total_cmp(&other.off_percent));
        let held_against = runs.len();
        let Modelled { run, row, off_percent, measured_per_s, sent_per_s, unlike } =
            runs.swap_remove(held_against / 2);
        let measured_cpu_ns = run.cpu_ns.filter(|of| *of > 0.0);
        let cpu = measured_cpu_ns.zip(row.cpu_ns_per_datagram);
        Ok(Checked {
            name: self.text("name"),
            load: self.text("load_name"),
            cores: self.cores,
            runs: held_against,
            runs_made,
            not_modelled: unlike,
            sent_per_s,
            limited_by_server: (run.limited_by.is_none() || run.is_limited_by(Limit::Server))
                && measured_per_s < 0.99 * sent_per_s,
            limited_by: run.limited_by,
            measured_per_s,
            lower_bound: run.lower_bound,
            model_per_s: row.received_per_s,
            off_percent,
            measured_cpu_ns,
            model_cpu_ns: row.cpu_ns_per_datagram,
            cpu_off_percent: cpu.map(|(measured, model)| more(model, measured)),
        })
    }

    /// A run as the model makes it.
    fn course(&self, costs: &Costs, seed: u64, run: &Run) -> Result<Course, String> {
        let load = &self.result["load"];
        let design =
            Design::named(&self.text("design")).ok_or("the model does not have this design")?;
        let provider = self.text("provider");
        if design.is_rio() && provider != "batch" {
            return Err(format!("the model has registered I/O on provider batch, not {provider}"));
        }
        if let Some((name, value)) = self.option_beyond() {
            return Err(format!("the model does not have --{name} {value}"));
        }
        if !load["replies"].is_null() {
            return Err("the model's servers do not answer".into());
        }
        if !(load["kind"] == "saturation" || load["kind"] == "paced") {
            return Err("the model has no loads but saturation and paced ones".into());
        }
        if load["receive_offload"] == true {
            return Err("the model has no receive offload".into());
        }
        if load["ports"].as_u64().is_some_and(|ports| ports > 1) {
            return Err("the model has one port".into());
        }
        let steps = load["work"].as_u64().unwrap_or(0);
        let work_ns = if steps == 0 { 0.0 } else { steps as f64 * costs.work_step };
        let shares = load["work_shared"] == true;
        let buffer_bytes = load["rcvbuf_bytes"].as_u64().unwrap_or(212_992);
        let size = load["size_bytes"].as_u64().unwrap_or(64);
        let saturated = load["kind"] == "saturation";
        let generators = load["generators"].as_u64().unwrap_or(1) as usize;
        // Only where all of them are among the threads of the model can these be what sends.
        let competitors_send = saturated && self.shared > 0 && self.shared == self.of_generators;
        let busy = match competitors_send {
            true => run.generator_percent.unwrap_or(100.0) / 100.0,
            false => 1.0,
        };
        let default = Course::default();
        let batch = self.option("batch").map(|most| most as usize);
        let (of_call, of_take) = if design.is_plain() { (batch, None) } else { (None, batch) };
        let dequeue_max = self.option("dequeue-max").map(|most| most as usize).or(of_take);
        let started = self.median("threads_started").map(|all| all as usize);
        let threads =
            started.map(|all| all.saturating_sub(design.all_threads(0))).filter(|of| *of > 0);
        let threads = threads.or_else(|| self.option("threads").map(|of| of as usize)).unwrap_or(0);
        Ok(Course {
            design,
            copies: Copies::Thread,
            cores: self.cores,
            threads: if threads == 0 && design.is_plain() { 1 } else { threads },
            competitors: match saturated && self.shared > 0 {
                true => generators.saturating_mul(self.shared).div_ceil(self.of_generators),
                false => 0,
            },
            competitors_send,
            shared_cores: self.shared,
            per_s: run.sent_per_s()? / busy.clamp(0.1, 1.0),
            train: if saturated && load["send_offload"] != false { TRAIN } else { 1 },
            flows: load["flows"].as_u64().unwrap_or(1).max(1) as u32,
            own_work_ns: if shares { 0.0 } else { work_ns },
            shared_work_ns: if shares { work_ns } else { 0.0 },
            buffer: (buffer_bytes / (OVERHEAD_BYTES + size)).max(1) as usize,
            dequeue_max: dequeue_max.unwrap_or(default.dequeue_max),
            batch: of_call.unwrap_or(default.batch),
            drain: self.option("drain").map_or(default.drain, |most| most as usize),
            threshold: self.option("threshold").unwrap_or(default.threshold),
            spin_us: self.option("spin").map_or(default.spin_us, |spin| spin as f64),
            seed,
            datagrams: DATAGRAMS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::costs::ROUND;
    use serde_json::json;

    fn result(design: &str, provider: &str, sent: f64, received: f64) -> Value {
        json!({
            "name": design, "design": design, "provider": provider, "load_name": "saturation, 64 B",
            "options": {"threads": "1"},
            "load": {"kind": "saturation", "size_bytes": 64, "work": 0, "work_shared": false, "flows": 1,
                "generators": 1, "ports": 1, "rcvbuf_bytes": null, "receive_offload": false, "send_offload": true},
            "metrics": {"sent_per_s": {"median": sent}, "received_per_s": {"median": received},
                "cpu_ns_per_datagram": {"median": 520.0}},
        })
    }

    fn document(results: Vec<Value>) -> Value {
        json!({"kind": "udp", "server_cores": [0], "generator_cores": [1], "loads": [], "results": results})
    }

    #[test]
    fn each_row_is_held_against_the_model_and_what_it_has_not_is_said() {
        // 520 ns a datagram are 1.92 million a second.
        let document = document(vec![
            result("blocking", "sockets", 4e6, 1.9e6),
            result("blocking", "sockets", 1e6, 1e6),
            result("rio-hybrid", "uring", 4e6, 3e6),
            result("select", "sockets", 4e6, 2e6),
            result("rio-hybrid", "batch", 4e6, 1e6),
        ]);
        let check = check(&document, &ROUND, 1).unwrap();
        let off: Vec<_> =
            check.rows.iter().map(|row| (row.limited_by_server, row.off_percent)).collect();
        assert!(off[0].0 && off[0].1.abs() < 4.0, "{off:?}");
        // All that is sent is received. Of 20,000 in trains of 32 there are 625: three deviations of that number are 12 %.
        assert!(!off[1].0 && off[1].1.abs() < 12.0, "{off:?}");
        assert!(off[2].0 && off[2].1 > 100.0, "{off:?}");
        let reasons: Vec<_> = check.left_out.iter().map(|of| of.reason.as_str()).collect();
        assert!(
            reasons[0].contains("provider batch") && reasons[1].contains("this design"),
            "{reasons:?}"
        );
        assert_eq!((check.within_goal, check.limited_by_server), (1, 2));
        assert!(check.rows[0].cpu_off_percent.unwrap().abs() < 5.0, "{:?}", check.rows[0]);
    }

    /// A rate that other programs kept down says nothing of the model.
    #[test]
    fn only_rows_that_the_server_limited_by_their_document_are_counted() {
        let row = |limit: &str, is_bound: bool| {
            let mut row = result("blocking", "sockets", 4e6, 1.9e6);
            row["limited_by"] = json!(limit);
            row["lower_bound"] = json!(is_bound);
            row
        };
        let check = check(&document(vec![row("server", false), row("others", true)]), &ROUND, 1);
        let check = check.unwrap();
        let said: Vec<_> =
            check.rows.iter().map(|row| (row.limited_by_server, row.lower_bound)).collect();
        assert_eq!((said, check.limited_by_server), (vec![(true, false), (false, true)], 1));
        let text = super::super::report::checked(&check, 120);
        let line = text.lines().rfind(|line| line.trim_start().starts_with("blocking")).unwrap();
        assert!(line.contains("≥1.90 M") && line.trim_end().ends_with("others"), "{text}");
    }

    /// The row with a value of each metric for each of its runs: what was sent, received, and the generator's share.
    fn with_runs(mut row: Value, runs: &[(f64, f64, f64, &str)]) -> Value {
        let samples =
            |of: fn(&(f64, f64, f64, &str)) -> f64| -> Vec<f64> { runs.iter().map(of).collect() };
        row["metrics"]["sent_per_s"]["samples"] = json!(samples(|run| run.0));
        row["metrics"]["received_per_s"]["samples"] = json!(samples(|run| run.1));
        row["metrics"]["generator_cpu_utilization_percent"] =
            json!({"samples": samples(|run| run.2)});
        let run = |limit: &str| json!({"counted": true, "verdict": {"limited_by": limit, "lower_bound": false}});
        row["runs"] = runs.iter().map(|(.., limit)| run(limit)).collect();
        row
    }

    /// The medians would be of different runs: 3.9 million sent and 1 million received, which no run had.
    #[test]
    fn each_run_is_held_against_its_own_figures_and_disturbed_ones_do_not_count() {
        let runs = [
            (4e6, 1.9e6, 100.0, "server"),
            (3.9e6, 0.6e6, 90.0, "others"),
            (1.0e6, 1.0e6, 100.0, "both"),
            (3.9e6, 0.9e6, 99.0, "others"),
            (3.8e6, 1.9e6, 100.0, "server"),
        ];
        let row = with_runs(result("blocking", "sockets", 3.9e6, 1e6), &runs);
        let check = check(&document(vec![row]), &ROUND, 1).unwrap();
        let row = &check.rows[0];
        assert_eq!((row.runs, row.runs_made, row.measured_per_s), (2, 5, 1.9e6), "{row:?}");
        assert!(row.off_percent.abs() < 4.0 && row.limited_by_server, "{row:?}");
        assert_eq!((check.within_goal, check.limited_by_server), (1, 1));
    }

    /// In the model the generator keeps its core, since the server's one thread has the other.
    #[test]
    fn a_row_whose_generator_shared_its_core_otherwise_than_in_the_model_is_shown_and_not_counted()
    {
        let model = |percent: [f64; 3]| {
            let runs = percent.map(|percent| (4e6 * percent / 100.0, 1.9e6, percent, "server"));
            let mut document =
                document(vec![with_runs(result("blocking", "sockets", 4e6, 1.9e6), &runs)]);
            document["server_cores"] = json!([0, 1]);
            check(&document, &ROUND, 1).unwrap()
        };
        let kept = model([100.0, 60.0, 98.0]);
        assert_eq!((kept.rows[0].runs, kept.limited_by_server), (2, 1), "{:?}", kept.rows[0]);
        assert_eq!(kept.rows[0].not_modelled, None);
        let shared = model([100.0, 60.0, 70.0]);
        let row = &shared.rows[0];
        assert_eq!(
            (row.runs, shared.limited_by_server, shared.widest_off_percent),
            (2, 0, None),
            "{row:?}"
        );
        let reason = row.not_modelled.as_deref().unwrap();
        assert!(reason.contains("% of it and sent 2."), "{reason}");
        let text = super::super::report::checked(&shared, 120);
        assert!(text.contains("not counted: blocking"), "{text}");
    }

    /// What the model leaves out must not be counted against it, nor for it.
    #[test]
    fn a_row_with_what_the_model_does_not_have_is_left_out() {
        let with = |name: &str, value: &str| {
            let mut result = result("rio-hybrid", "batch", 1e6, 1e6);
            result["options"][name] = json!(value);
            result
        };
        let mut answered = result("blocking", "sockets", 1e6, 1e6);
        answered["load"]["replies"] = json!({"outstanding": 64, "size_bytes": 64});
        let mut burst = result("blocking", "sockets", 1e6, 1e6);
        burst["load"]["kind"] = json!("burst");
        let rows = [
            with("adaptive", "true"),
            with("gather", "200us,64"),
            with("defer", "8"),
            answered,
            burst,
            with("adaptive", "false"),
            with("spin", "20"),
        ];
        let check = check(&document(rows.into()), &ROUND, 1).unwrap();
        let reasons: Vec<_> = check.left_out.iter().map(|of| of.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "the model does not have --adaptive true",
                "the model does not have --gather 200us,64",
                "the model does not have --defer 8",
                "the model's servers do not answer",
                "the model has no loads but saturation and paced ones",
            ]
        );
        assert_eq!(check.rows.len(), 2);
    }

    #[test]
    fn what_a_call_and_a_wake_up_bring_are_those_of_the_row() {
        let rows = [
            ("blocking-batch", json!({"threads": "1", "batch": "1"})),
            ("blocking-batch", json!({"threads": "1", "batch": "32", "gather": "none"})),
            ("epoll-batch", json!({"threads": "1", "batch": "32", "drain": "1"})),
            ("epoll-batch", json!({"threads": "1", "batch": "32", "drain": "256"})),
        ];
        let rows = rows.map(|(design, options)| {
            let mut row = result(design, "sockets", 8e6, 1e6);
            row["options"] = options;
            row
        });
        let check = check(&document(rows.into()), &ROUND, 1).unwrap();
        assert!(check.left_out.is_empty(), "{:?}", check.left_out);
        let [one, batch, often, seldom] = &check.rows[..] else { panic!("{check:?}") };
        // The dequeue that each call is, for 1 and for 32; and the wait for readiness, for 32 and for 256.
        let ns = |row: &Checked| 1e9 / row.model_per_s;
        let less = |of: &Checked, other: &Checked| ns(of) - ns(other);
        let (of_call, of_wait) = (less(one, batch), less(often, seldom));
        let expected = ROUND.dequeue * (1.0 - 1.0 / 32.0);
        assert!((of_call - expected).abs() < 3.0, "{of_call}");
        let expected = ROUND.readiness * (1.0 / 32.0 - 1.0 / 256.0);
        assert!((of_wait - expected).abs() < 2.0, "{of_wait}");
    }

    /// A generator that shares one of two cores leaves the other to the server. If it could go there, two threads of a
    /// port that wake each other would find it on the core of each in turn, and with some seeds never stop doing so.
    #[test]
    fn generators_compete_on_the_cores_that_they_had() {
        let mut port = result("port", "sockets", 1.7e6, 1e6);
        port["options"]["threads"] = json!("2");
        let model = |server: Value| {
            let mut document = document(vec![port.clone()]);
            document["server_cores"] = server;
            check(&document, &ROUND, 1).unwrap().rows[0].model_per_s
        };
        let share = model(json!([0, 1])) / model(json!([0]));
        assert!(share > 0.9, "{share} of what one core receives");
    }

    #[test]
    fn generators_on_other_cores_compete_for_none() {
        let model = |generators: u64, cores: Value| {
            let mut port = result("port", "sockets", 1.7e6, 1e6);
            port["options"]["threads"] = json!("2");
            port["load"]["generators"] = json!(generators);
            let mut document = document(vec![port]);
            document["server_cores"] = json!([0, 1]);
            document["generator_cores"] = cores;
            check(&document, &ROUND, 1).unwrap().rows[0].model_per_s
        };
        let (two, one) = (model(2, json!([1, 2])), model(1, json!([1])));
        assert!((two / one - 1.0).abs() < 0.001, "{two}, {one}");
    }

    #[test]
    fn a_document_of_something_else_is_refused() {
        let error = check(&json!({"kind": "tcp", "results": []}), &ROUND, 1).unwrap_err();
        assert!(error.contains("weir compare udp"), "{error}");
        let mut without = document(vec![]);
        without["server_cores"] = Value::Null;
        assert!(check(&without, &ROUND, 1).unwrap_err().contains("cores"));
    }
}
