//! Kernel memory against outstanding receives: for each design, what the kernel holds when so many
//! receives are posted and nothing has come.
//!
//! Each server runs in a process of its own, which reads what the kernel holds before it is started
//! and after, and the two are subtracted (see [`KernelMemory`]). Rings and page tables are exact.
//! Objects and stacks are those of the whole machine, so each figure is the median of
//! [`REPETITIONS`], and a process that starts no server says how much they change by themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir::counters::os::{KernelMemory, Sampler};
use weir::memory::Commit;
use weir::udp::{AnyDesign, Datagram, Replies, Server, Spec};

use crate::child::{Child, ChildError, CommandLine, Interrupt};
use crate::experiment::plan::Row;
use crate::machine::Machine;
use crate::report::document::SCHEMA_VERSION;
use crate::report::number::{UNKNOWN, bytes};
use crate::stats::quantile;

/// Receives outstanding, for each design that can be told how many.
pub const OUTSTANDING: [u32; 5] = [100, 1000, 5000, 32_768, 150_000];
/// Servers started for each figure.
pub const REPETITIONS: usize = 3;

/// What its document is about.
pub const KIND: &str = "memory";

/// Options that say how many receives are posted, and how many of them the kernel is given.
const POSTED: &str = "outstanding";
const ARMED: &str = "armed";

/// How long a process may take that starts a server and stops it.
const PROBE_WITHIN: Duration = Duration::from_secs(60);
/// How often, and how long apart, it is looked whether the kernel has settled: what was used to find
/// out whether a provider works is given back a while after its end, and nothing tells when.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So many looks alike in a row are taken for settled.
const ALIKE: u32 = 5;

/// What one server took, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Probe {
    /// Memory of the program that it may receive into.
    pub registered_bytes: u64,
    /// How much more of the program's memory is resident: slices that nothing was received into
    /// are not.
    pub resident_bytes: Option<i64>,
    /// How much more the kernel holds, all together.
    pub kernel_bytes: i64,
    /// The parts of that, by name; what is not known here is null.
    pub kernel: BTreeMap<String, Option<i64>>,
}

/// Starts a server of this design, or none, and reads what the kernel holds for it.
///
/// # Errors
/// What the server failed with.
pub fn probe(spec: Option<&str>) -> Result<Probe, weir::Error> {
    let mut sampler = Sampler::new();
    settled(); // reading takes something itself, the first time
    let before = (settled(), sampler.process());
    let running = match spec {
        None => None,
        Some(text) => {
            let Spec { design, region } = Spec::parse(text)?;
            // What the kernel holds for memory that nothing was received into is what is asked.
            let region = region.commit(Commit::Touched);
            let server =
                Server::bind("127.0.0.1:0".parse().expect("an address")).region_options(region);
            Some(server.start(design, |_| |_: Datagram<'_>, _: &mut Replies<'_>| ())?)
        }
    };
    let after = (settled(), sampler.process());
    let registered_bytes = running.as_ref().map_or(0, |running| {
        let settings = running.effective();
        let memory = settings.iter().find(|(name, _)| name == "memory-bytes");
        memory.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0)
    });
    let (each, kernel_bytes) = after.0.grown_since(&before.0);
    let resident = |usage: weir::counters::os::ProcessUsage| usage.resident_bytes.map(|n| n as i64);
    let resident_bytes = resident(after.1).zip(resident(before.1)).map(|(now, then)| now - then);
    if let Some(failure) = running.and_then(|running| running.stop().failure) {
        return Err(failure);
    }
    let kernel = each.into_iter().map(|(name, grown)| (name.to_owned(), grown)).collect();
    Ok(Probe { registered_bytes, resident_bytes, kernel_bytes, kernel })
}

/// The kernel's memory once it has not changed for a moment, or when it never rests.
fn settled() -> KernelMemory {
    let (mut last, mut alike) = (KernelMemory::now(), 0);
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK_EVERY);
        let now = KernelMemory::now();
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
        if alike == ALIKE {
            break;
        }
    }
    last
}

/// One line of the table.
#[derive(Debug)]
pub struct Line {
    row: Row,
    /// Receives outstanding, where the design can be told how many.
    outstanding: Option<String>,
    /// What was found, or why nothing was.
    found: Result<Vec<Probe>, String>,
}

impl Line {
    /// Its row.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// What the kernel holds, in bytes, or why that is not known.
    ///
    /// # Errors
    /// The reason.
    pub fn kernel_bytes(&self) -> Result<f64, &str> {
        let probes = self.found.as_ref().map_err(String::as_str)?;
        median(probes, |probe| Some(probe.kernel_bytes)).ok_or("nothing was measured")
    }

    /// The line in the document: its figures, with every sample.
    pub fn document(&self) -> Value {
        let Self { row, outstanding, found } = self;
        let (reason, probes) = match found {
            Ok(probes) => (None, &probes[..]),
            Err(reason) => (Some(reason), &[][..]),
        };
        let status = match (reason, &row.unavailable) {
            (None, _) => "ok",
            (_, Some(_)) => "unavailable",
            _ => "failed",
        };
        json!({
            "design": row.design,
            "provider": row.shown_provider(),
            "spec": row.spec(),
            "outstanding": outstanding.as_ref().and_then(|n| n.parse::<u32>().ok()),
            "status": status,
            "reason": reason,
            "registered_bytes": probes.first().map(|probe| probe.registered_bytes),
            "kernel_bytes": median(probes, |probe| Some(probe.kernel_bytes)),
            "samples": probes,
        })
    }
}

/// All lines, and what changes where no server is started.
#[derive(Debug)]
pub struct Survey {
    machine: Machine,
    lines: Vec<Line>,
    nothing: Vec<Probe>,
}

/// The rows with each number of receives outstanding; those that cannot be told a number, or name
/// one themselves, once.
pub fn lines(rows: &[Row]) -> Vec<(Row, Option<String>)> {
    let mut lines = vec![];
    for row in rows {
        let named = row.options.iter().find(|(name, _)| name == POSTED).cloned();
        let design = AnyDesign::parse(&row.design);
        let can =
            design.is_ok_and(|d| d.known_options().iter().any(|option| option.name == POSTED));
        if !can || named.is_some() || row.unavailable.is_some() {
            lines.push((row.clone(), named.and_then(|(_, value)| value)));
            continue;
        }
        for outstanding in OUTSTANDING {
            let mut row = row.clone();
            let number = Some(outstanding.to_string());
            // A row that says how many the kernel is given means all of them.
            for (_, value) in row.options.iter_mut().filter(|(name, _)| name == ARMED) {
                value.clone_from(&number);
            }
            row.options.push((POSTED.to_owned(), number.clone()));
            lines.push((row, number));
        }
    }
    lines
}

/// What happens, for whoever watches.
pub enum Progress<'a> {
    /// These rows will be measured.
    Begin(&'a Machine, &'a [(Row, Option<String>)]),
    /// A row is measured: which of how many.
    Measuring(&'a Row, usize, usize),
    /// What was found of it.
    Measured(&'a Line),
}

/// Measures every line, with `program` (the `weir` command) as the child. `tell` hears what happens.
///
/// # Errors
/// [`ChildError::Interrupted`], and whatever a process failed with that starts no server.
pub fn survey(
    program: &std::path::Path,
    interrupt: &Interrupt,
    rows: &[Row],
    mut tell: impl FnMut(Progress),
) -> Result<Survey, ChildError> {
    let machine = Machine::watch();
    let lines = lines(rows);
    tell(Progress::Begin(&machine, &lines));
    let run = |spec: Option<&str>| {
        let command =
            CommandLine::new(program).arguments(["probe-memory"]).option("--design", spec);
        let probes = (0..REPETITIONS).map(|_| {
            let deadline = Instant::now() + PROBE_WITHIN;
            let mut child = Child::spawn("the server", &command, interrupt)?;
            let probe = child.whole_document("memory", deadline)?;
            child.finish(deadline)?;
            Ok(probe)
        });
        probes.collect::<Result<Vec<Probe>, ChildError>>()
    };
    let nothing = run(None)?;
    let mut measured = vec![];
    let count = lines.len();
    for (mut row, outstanding) in lines {
        let found = match &row.unavailable {
            Some(reason) => Err(reason.clone()),
            None => {
                tell(Progress::Measuring(&row, measured.len() + 1, count));
                match run(Some(&row.spec())) {
                    Err(ChildError::Interrupted) => return Err(ChildError::Interrupted),
                    Err(ChildError::Reported(failure)) if failure.unavailable => {
                        row.unavailable = Some(failure.message.clone());
                        Err(failure.message)
                    }
                    found => found.map_err(|error| error.to_string()),
                }
            }
        };
        let line = Line { row, outstanding, found };
        tell(Progress::Measured(&line));
        measured.push(line);
    }
    Ok(Survey { machine, lines: measured, nothing })
}

/// The middle one of a figure.
fn median(probes: &[Probe], figure: impl Fn(&Probe) -> Option<i64>) -> Option<f64> {
    let values: Vec<f64> = probes.iter().filter_map(figure).map(|bytes| bytes as f64).collect();
    quantile(&values, 0.5)
}

impl Survey {
    /// Whether any line was measured.
    pub fn has_figures(&self) -> bool {
        self.lines.iter().any(|line| line.found.is_ok())
    }

    /// Whether a row failed that can run here.
    pub fn has_failures(&self) -> bool {
        self.lines.iter().any(|line| line.found.is_err() && line.row.unavailable.is_none())
    }

    /// The most that changed where no server was started, in bytes.
    fn noise_bytes(&self) -> i64 {
        self.nothing.iter().map(|probe| probe.kernel_bytes.abs()).max().unwrap_or(0)
    }

    /// The names of the parts that are known here.
    fn parts(&self) -> Vec<&str> {
        let known = |probe: &'_ Probe| -> Vec<String> {
            probe.kernel.iter().filter(|(_, n)| n.is_some()).map(|(name, _)| name.clone()).collect()
        };
        let first = self.nothing.first().map(known).unwrap_or_default();
        let all = ["ring_bytes", "slab_bytes", "page_table_bytes", "stack_bytes", "pool_bytes"];
        all.into_iter().filter(|part| first.iter().any(|name| name == part)).collect()
    }

    /// The table for a person.
    pub fn table(&self) -> String {
        let parts = self.parts();
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let heading = ["design", "provider", "outstanding", "registered", "resident", "kernel"];
        let of_parts = parts.iter().map(|part| match *part {
            "ring_bytes" => "rings",
            "slab_bytes" => "objects",
            "page_table_bytes" => "page tables",
            "stack_bytes" => "stacks",
            _ => "pools",
        });
        table.set_header(heading.into_iter().chain(of_parts));
        let shown = |figure: Option<f64>| figure.map_or(UNKNOWN.into(), bytes);
        let mut reasons = String::new();
        for Line { row, outstanding, found } in &self.lines {
            let mut title = row.clone();
            title.options.retain(|(name, _)| name != POSTED);
            let names = [title.title(), row.shown_provider().unwrap_or(UNKNOWN).into()];
            let number = outstanding.clone().unwrap_or_else(|| UNKNOWN.into());
            let Ok(probes) = found.as_ref().map_err(|reason| {
                reasons.push_str(&format!("{}: {reason}\n", row.spec()));
            }) else {
                continue;
            };
            let of = |name: &str| median(probes, |probe| probe.kernel.get(name).copied().flatten());
            let figures = [
                median(probes, |probe| Some(probe.registered_bytes as i64)),
                median(probes, |probe| probe.resident_bytes),
                median(probes, |probe| Some(probe.kernel_bytes)),
            ];
            let figures = figures.into_iter().chain(parts.iter().map(|part| of(part))).map(shown);
            table.add_row(names.into_iter().chain([number]).chain(figures));
        }
        format!(
            "kernel memory against outstanding receives; nothing has been received; medians of \
             {REPETITIONS}\n\n{}\n\nkernel: what the kernel holds beyond what it held before the server \
             started. Objects and stacks are the whole\nmachine's: without any server they changed by up to \
             {}. Registered memory counts as the program's.\n{}{}",
            table.trim_fmt(),
            bytes(self.noise_bytes() as f64),
            self.machine.warnings.iter().map(|w| format!("warning: {w}\n")).collect::<String>(),
            reasons,
        )
    }

    /// The document: every figure, with every sample.
    pub fn document(&self, command: &[String]) -> Value {
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "command": command,
            "status": if self.has_figures() { "ok" } else { "failed" },
            "machine": self.machine,
            "repetitions": REPETITIONS,
            "noise_bytes": self.noise_bytes(),
            "without_a_server": self.nothing,
            "results": self.lines.iter().map(Line::document).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::rows::of_texts;

    #[test]
    fn a_design_is_measured_with_each_number_it_can_be_told() {
        let texts = ["blocking", "rio-event --provider batch", "port --armed 5000"];
        let rows = of_texts(&texts.map(String::from)).unwrap();
        let rows: Vec<_> = rows.into_iter().map(|row| Row { unavailable: None, ..row }).collect();
        let specs: Vec<_> = lines(&rows).iter().map(|(row, _)| row.spec()).collect();
        assert_eq!(specs.len(), 1 + 2 * OUTSTANDING.len());
        assert_eq!(specs[..2], ["blocking", "rio-event --provider batch --outstanding 100"]);
        assert_eq!(specs[10], "port --armed 150000 --outstanding 150000");
        let own = of_texts(&["rio-event --provider batch --outstanding 7".into()]).unwrap();
        assert_eq!(lines(&own)[0].1.as_deref(), Some("7"));
        assert_eq!(lines(&own).len(), 1);
    }

    /// What a process finds for itself. Other tests run in this one: so only what is exact of it.
    #[test]
    fn registered_memory_is_told() {
        let found = probe(Some("rio-event --provider batch --outstanding 4096")).unwrap();
        assert!(found.registered_bytes >= 4096 * 1024, "{found:?}");
        assert_eq!(probe(None).unwrap().registered_bytes, 0);
        assert!(probe(Some("rio-event --outstanding 0")).is_err());
    }

    #[test]
    fn the_table_has_a_line_for_each_and_says_why_not() {
        let row = |text: &str| of_texts(&[text.into()]).unwrap().remove(0);
        let probe = |kernel_bytes, rings| Probe {
            registered_bytes: 1 << 20,
            resident_bytes: None,
            kernel_bytes,
            kernel: [("ring_bytes".to_owned(), rings), ("pool_bytes".to_owned(), None)].into(),
        };
        let survey = Survey {
            machine: Machine::default(),
            nothing: vec![probe(-4096, Some(0))],
            lines: vec![
                Line {
                    row: row("rio-event --provider batch --outstanding 100"),
                    outstanding: Some("100".into()),
                    found: Ok([1, 3, 2].map(|k| probe(k * 2048, Some(k * 1024))).to_vec()),
                },
                Line {
                    row: row("blocking"),
                    outstanding: None,
                    found: Err("not on this machine".into()),
                },
            ],
        };
        let table = survey.table();
        let words = "rio-event batch 100 1 MiB - 4 KiB 2 KiB";
        let line = table.lines().find(|line| line.contains("rio-event")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), words);
        assert!(table.contains("up to 4 KiB") && !table.contains("pools"), "{table}");
        assert!(table.contains("blocking: not on this machine"), "{table}");
        let document = survey.document(&["weir".into()]);
        assert_eq!(document["results"][0]["kernel_bytes"], 4096.0);
        assert_eq!(document["results"][0]["samples"][1]["kernel"]["ring_bytes"], 3072);
        assert_eq!(document["results"][1]["status"], "failed");
        assert_eq!(document["noise_bytes"], 4096);
        assert!(survey.has_failures(), "a row that can run here was not measured");
        let mut survey = survey;
        survey.lines[1].row.unavailable = Some("not on this machine".into());
        assert!(!survey.has_failures());
    }
}
