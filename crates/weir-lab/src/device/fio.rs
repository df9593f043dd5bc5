//! fio as weir's rival: its engines as rows, run by itself on the same device in the same blocks.
//!
//! Nothing is taken from it: it takes no time of single I/Os (`gtod_reduce`), has one job, and its ring has what
//! weir's best one has: registered files and buffers, and 128 outstanding, all of them given and taken at once (with
//! batches of 32 it took 5 % more time). Its figures are its own: it counts I/Os and CPU time, and says nothing of its
//! entries into the kernel. It tells its time in whole milliseconds, so a run of 300 ms is known to a third of a percent.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use serde::Serialize;
use weir::device::NAMES;
use weir_load::engine::Head;

use super::bench::{Made, Run};
use super::wire::FioDocument;
use crate::child::CommandLine;
use crate::experiment::plan::{Peer, Row};

/// Engines that read one thing after the other, by the names of their rows.
pub const SYNCHRONOUS: [&str; 3] = ["fio sync", "fio psync", "fio pvsync2"];
/// Its engine on a ring.
pub const RING: &str = "fio io_uring";
/// What that is given.
const RING_OPTIONS: [&str; 8] = [
    "--iodepth=128",
    "--registerfiles=1",
    "--fixedbufs=1",
    "--hipri=0",
    "--iodepth_batch_submit=128",
    "--iodepth_batch_complete_min=1",
    "--iodepth_batch_complete_max=128",
    "--nonvectored=1",
];
/// What all are given.
const OPTIONS: [&str; 9] = [
    "--name=weir",
    "--output-format=json",
    "--readonly",
    "--allow_file_create=0",
    "--rw=read",
    "--numjobs=1",
    "--gtod_reduce=1",
    "--time_based=1",
    "--disable_lat=1",
];

/// What stands in a command for what differs from run to run.
const PATH: &str = "{path}";
const LENGTH: &str = "{length}";
const WARMUP: &str = "{warmup}";
const TIME: &str = "{time}";
/// Bytes that fio is to go through of something that has no size, before it begins anew.
const SIZE_OF_A_DEVICE: &str = "--size=1g";

/// The fio of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fio {
    /// What it calls its version.
    pub version: String,
}

impl Fio {
    /// The one that the PATH leads to.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub fn find() -> Result<Self, String> {
        let output = Command::new("fio").arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                "there is no program fio in the PATH; it is in the package fio of most systems"
                    .into()
            }
            _ => format!("fio cannot be started: {error}"),
        })?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() && !version.is_empty() {
            true => Ok(Self { version }),
            false => {
                Err(format!("the fio in the PATH does not work: it ended with {}", output.status))
            }
        }
    }
}

/// The rows of fio; all of them say why where there is none.
pub fn rows(found: &Result<Fio, String>) -> Vec<Row> {
    let engine = |name: &str| format!("--ioengine={}", name.trim_start_matches("fio "));
    let of = |name: &str, options: &[&str]| {
        let command = CommandLine::new("fio")
            .arguments(OPTIONS)
            .arguments([engine(name)])
            .arguments(options.iter().copied())
            .arguments([format!("--filename={PATH}"), format!("--bs={LENGTH}")])
            .arguments([format!("--ramp_time={WARMUP}"), format!("--runtime={TIME}")]);
        let mut row = Row::named(name);
        row.peer = Some(Peer { command, head: Head::default() });
        row.runs_on = Some("fio".into());
        row.unavailable = found.as_ref().err().cloned();
        row
    };
    let mut rows: Vec<Row> = SYNCHRONOUS.iter().map(|name| of(name, &[])).collect();
    rows.push(of(RING, &RING_OPTIONS));
    rows
}

/// The command of a run on these cores.
///
/// # Errors
/// Why fio cannot read what is to be read.
pub fn command(peer: &Peer, run: &Run, cores: &[usize]) -> Result<CommandLine, String> {
    let device = &run.load.device;
    if device == NAMES.semaphore || run.load.delay().is_some() {
        return Err("it is a device of weir's own, which fio does not know".into());
    }
    let of_a_file = std::fs::metadata(device).is_ok_and(|found| found.is_file());
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    let allowed = (!cores.is_empty()).then(|| format!("--cpus_allowed={}", cores.join(",")));
    Ok(peer
        .command
        .clone()
        // A colon parts several files.
        .with(PATH, device.replace(':', "\\:"))
        .with(LENGTH, run.load.length)
        .with(WARMUP, format!("{}ms", run.warmup_ms))
        .with(TIME, format!("{}ms", run.run_ms))
        .arguments((!of_a_file).then_some(SIZE_OF_A_DEVICE))
        .arguments(allowed))
}

/// What a run of fio delivered.
///
/// # Errors
/// Why it delivered nothing.
pub fn made(said: &FioDocument, command: &CommandLine) -> Result<Made, String> {
    let [job] = &said.jobs[..] else {
        return Err(format!("fio reported {} jobs instead of one", said.jobs.len()));
    };
    let reads = &job.read;
    if job.error != 0 {
        let error = std::io::Error::from_raw_os_error(job.error);
        let hint = match reads.io_bytes {
            0 => "; it treats an empty read as an error",
            _ => "",
        };
        return Err(format!("fio refuses it: {error}{hint}"));
    }
    if reads.total_ios == 0 {
        return Err("fio made no I/O in the measured time".into());
    }
    if reads.runtime == 0 {
        return Err("fio reports no time for empty reads".into());
    }
    let (ios, seconds) = (reads.total_ios as f64, reads.runtime as f64 / 1e3);
    // I/Os that took no time of a core do not exist: where fio saw none, it is not known.
    let percent = Some(job.usr_cpu + job.sys_cpu).filter(|percent| *percent > 0.0);
    let per_io = |percent: f64| percent / 100.0 * seconds * 1e9 / ios;
    Ok(Made {
        command: command.to_string(),
        ios_per_s: ios / seconds,
        bytes_per_s: reads.io_bytes as f64 / seconds,
        completed: reads.total_ios,
        cpu_ns_per_io: percent.map(per_io),
        cpu_system_ns_per_io: percent.map(|_| per_io(job.sys_cpu)),
        cores_busy: percent.map(|percent| percent / 100.0),
        context_switches_per_io: Some(job.ctx as f64 / ios),
        ..Made::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::plan::Load;
    use std::time::Duration;

    fn command_of(load: &Load, cores: &[usize]) -> Result<CommandLine, String> {
        let row = rows(&Ok(Fio { version: "fio-3".into() })).pop().unwrap();
        let run = Run { row: &row, load, warmup_ms: 60, run_ms: 300 };
        command(row.peer.as_ref().unwrap(), &run, cores)
    }

    #[test]
    fn the_command_has_all_that_the_rival_may_want() {
        let text = command_of(&Load::new("/dev/zero", 4096), &[0, 1]).unwrap().to_string();
        for wanted in [
            "fio --name=weir --output-format=json --readonly",
            "--ioengine=io_uring --iodepth=128 --registerfiles=1 --fixedbufs=1 --hipri=0",
            "--iodepth_batch_submit=128",
            "--gtod_reduce=1",
            "--filename=/dev/zero --bs=4096 --ramp_time=60ms --runtime=300ms --size=1g",
            "--cpus_allowed=0,1",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is missing of {text}");
        }
        let file = std::env::current_exe().unwrap().display().to_string();
        let of_a_file = command_of(&Load::new(file, 512), &[]).unwrap().to_string();
        assert!(
            !of_a_file.contains("--size") && !of_a_file.contains("cpus"),
            "it would grow: {of_a_file}"
        );
        let delayed = Load::delayed(Duration::from_micros(1), 8);
        assert!(command_of(&delayed, &[]).unwrap_err().contains("does not know"));
    }

    #[test]
    fn without_a_fio_every_row_says_so() {
        let all = rows(&Err("there is no program fio".into()));
        assert_eq!(all.len(), 4);
        assert!(
            all.iter().all(|row| row.unavailable.as_deref() == Some("there is no program fio"))
        );
        assert_eq!((all[1].spec().as_str(), all[3].design.as_str()), ("fio psync", RING));
    }

    fn document(error: i32, ios: u64) -> FioDocument {
        let text = format!(
            r#"{{"fio version": "fio-3.33", "jobs": [{{"error": {error}, "usr_cpu": 25.0, "sys_cpu": 75.0,
            "ctx": 100, "read": {{"io_bytes": {}, "total_ios": {ios}, "runtime": 250}}}}]}}"#,
            ios * 4096
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn its_figures_are_read() {
        let run = made(&document(0, 500_000), &CommandLine::new("fio")).unwrap();
        assert_eq!((run.ios_per_s, run.bytes_per_s), (2e6, 2e6 * 4096.0));
        assert_eq!((run.cpu_ns_per_io, run.cpu_system_ns_per_io), (Some(500.0), Some(375.0)));
        assert_eq!((run.cores_busy, run.context_switches_per_io), (Some(1.0), Some(0.0002)));
        let none = || CommandLine::new("fio");
        let mut no_cpu = document(0, 500_000);
        (no_cpu.jobs[0].usr_cpu, no_cpu.jobs[0].sys_cpu) = (0.0, 0.0);
        let run = made(&no_cpu, &none()).unwrap();
        assert_eq!((run.ios_per_s, run.cpu_ns_per_io, run.cores_busy), (2e6, None, None));
        assert!(made(&document(5, 0), &none()).unwrap_err().contains("empty read"));
        assert!(made(&document(0, 0), &none()).unwrap_err().contains("no I/O"));
        let mut no_time = document(0, 7);
        no_time.jobs[0].read.runtime = 0;
        assert!(made(&no_time, &none()).unwrap_err().contains("no time"));
        assert!(made(&FioDocument { jobs: vec![] }, &none()).unwrap_err().contains("0 jobs"));
    }
}
