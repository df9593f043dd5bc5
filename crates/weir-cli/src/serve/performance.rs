//! `--performance-log` of `weir serve`: what threads, cores and the system did in each interval, in a file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use weir_lab::performance::{
    INTERVAL, INTERVALS, Now, Record, Recorder, csv_heading, csv_lines, line,
};
use weir_load::quantity::parse_time;

use crate::exit::{Failure, advice};

/// Most bytes of a file: what would be more goes on in a new one, and the file before is kept as FILE.1.
const MOST_BYTES: u64 = 64 << 20;

/// Options for the performance log of a server.
#[derive(Debug, Args)]
pub struct PerformanceArgs {
    #[arg(
        long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(parse_file),
        help = format!(
            "Write what each thread, each core and the system did in every interval to this file: CPU time, context \
             switches, interrupts, counters, UDP statistics, memory. One JSON object a line, or CSV where the name \
             ends in .csv. A file that has reached {} MiB is renamed to FILE.1, and a new one is begun",
            MOST_BYTES >> 20
        )
    )]
    performance_log: Option<PathBuf>,

    #[arg(long, value_name = "TIME", value_parser = parse_interval, help = format!(
        "Interval of the performance log, {} [default: {INTERVAL:?}]. Without --performance-log the log is in the \
         document that --json prints at the end: of the last run, or of the server's life if there was none",
        allowed()
    ))]
    performance_interval: Option<Duration>,
}

fn allowed() -> String {
    format!("{:?} to {} h", INTERVALS.0, INTERVALS.1.as_secs() / 3600)
}

/// A time between two records.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let every = parse_time(text)?;
    match (INTERVALS.0..=INTERVALS.1).contains(&every) {
        true => Ok(every),
        false => Err(format!("{text:?} is not allowed; allowed: {}", allowed())),
    }
}

/// A file whose name says what it is to be.
pub fn parse_file(path: PathBuf) -> Result<PathBuf, String> {
    let ending = path.extension().unwrap_or_default();
    match ["ndjson", "jsonl", "json", "csv"].iter().any(|name| ending.eq_ignore_ascii_case(name)) {
        true => Ok(path),
        false => Err("the name must end in .ndjson, .jsonl, .json or .csv".into()),
    }
}

impl PerformanceArgs {
    /// What takes the readings for the report, if they are wanted there.
    pub fn recorder(&self) -> Option<Recorder> {
        let every = self.performance_interval.filter(|_| self.performance_log.is_none())?;
        Some(Recorder::new(every))
    }

    /// Opens the file, if there is to be one.
    pub fn open(&self) -> Result<Option<PerformanceLog>, Failure> {
        let every = self.performance_interval.unwrap_or(INTERVAL);
        let open = |path: &PathBuf| {
            let cannot = |error: &io::Error| cannot_write(path, error);
            let file = LogFile::open(path).map_err(|error| cannot(&error))?;
            Ok(PerformanceLog { recorder: Recorder::new(every), file, failed: None })
        };
        self.performance_log.as_ref().map(open).transpose()
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let (path, advice) = (path.display(), advice(error));
    Failure::failed(format!("cannot write the performance log to {path}: {error}; {advice}"))
}

/// The performance log of a server, written as it goes.
pub struct PerformanceLog {
    recorder: Recorder,
    file: LogFile,
    /// The first error: after it nothing is written, and the server goes on.
    failed: Option<io::Error>,
}

impl PerformanceLog {
    /// Begins with a first reading.
    pub fn begin(&mut self, now: Now) {
        self.recorder.begin(now);
    }

    /// When the next reading is due.
    pub fn due(&self) -> Option<Instant> {
        self.recorder.due().filter(|_| self.failed.is_none())
    }

    /// Takes a reading if one is due.
    pub fn read_if_due(&mut self, now: impl FnOnce() -> Now) {
        if self.failed.is_none() && self.recorder.is_due() {
            self.read(now());
        }
    }

    fn read(&mut self, now: Now) {
        let Some(record) = self.recorder.read_one(now) else { return };
        if let Err(error) = self.file.write(&record) {
            say!("{}; the server goes on without", cannot_write(&self.file.path, &error).message);
            self.failed = Some(error);
        }
    }

    /// Takes the last reading. What could not be written is an error.
    pub fn end(mut self, now: Now) -> Result<(), Failure> {
        if self.failed.is_none() {
            self.read(now);
        }
        self.failed.map_or(Ok(()), |error| Err(cannot_write(&self.file.path, &error)))
    }
}

/// A file of whole records that has a limit.
struct LogFile {
    path: PathBuf,
    is_csv: bool,
    file: Option<File>,
    bytes: u64,
    most_bytes: u64,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let (path, most_bytes) = (path.to_owned(), MOST_BYTES);
        let mut log = Self { path, is_csv, file: None, bytes: 0, most_bytes };
        log.begin()?;
        Ok(log)
    }

    fn begin(&mut self) -> io::Result<()> {
        let mut file = File::create(&self.path)?;
        let heading = if self.is_csv { csv_heading() } else { String::new() };
        file.write_all(heading.as_bytes())?;
        self.bytes = heading.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let text = if self.is_csv { csv_lines(record) } else { line(record) };
        if self.bytes + text.len() as u64 > self.most_bytes && self.bytes > 0 {
            // No system renames a file that is open.
            self.file = None;
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            fs::rename(&self.path, before)?;
            self.begin()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        // A part of a record, where the disk is full, is taken away again.
        file.write_all(text.as_bytes()).inspect_err(|_| drop(file.set_len(self.bytes)))?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(to_ns: u64) -> Record {
        Record { to_ns, ..Record::default() }
    }

    #[test]
    fn an_interval_and_a_file_say_what_is_allowed() {
        assert_eq!(parse_interval("50ms"), Ok(Duration::from_millis(50)));
        for wrong in ["0", "1ms", "2h", "x"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
        assert!(parse_interval("0").unwrap_err().contains("20ms to 1 h"));
        for name in ["a.ndjson", "b.JSON", "c.jsonl", "d.csv"] {
            assert!(parse_file(name.into()).is_ok(), "{name}");
        }
        assert!(parse_file("log.txt".into()).is_err() && parse_file("log".into()).is_err());
    }

    #[test]
    fn a_file_that_is_full_is_kept_and_another_one_begun() {
        let folder = std::env::temp_dir().join(format!("weir-performance-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["log.csv", "log.ndjson"] {
            let path = folder.join(name);
            let mut log = LogFile::open(&path).unwrap();
            log.most_bytes = 1500;
            for second in 1..=40u64 {
                log.write(&record(second * 1_000_000_000)).unwrap();
                assert!(fs::metadata(&path).unwrap().len() <= 1500, "{name}");
            }
            let before = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
            let now = fs::read_to_string(&path).unwrap();
            assert!(before.len() <= 1500 && before.lines().count() > 1, "{name}: {before}");
            let whole = |text: &str| text.ends_with('\n') && text.contains("40000");
            assert!(whole(&now), "{name}: {now}");
            if name.ends_with("csv") {
                assert!(before.starts_with(&csv_heading()) && now.starts_with(&csv_heading()));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_ends_the_log_and_not_the_server() {
        let mut log = PerformanceLog {
            recorder: Recorder::new(INTERVAL),
            file: LogFile::open(Path::new("/dev/full")).unwrap(),
            failed: None,
        };
        log.begin(Now::default());
        assert!(log.due().is_some());
        log.read(Now::default());
        assert!(log.failed.is_some() && log.due().is_none(), "nothing more is due");
        log.read_if_due(|| panic!("nothing is read for it"));
        let error = log.end(Now::default()).expect_err("it was lost").message;
        assert!(error.contains("/dev/full"), "{error}");
    }
}
