//! Where the results of a comparison go: the first screen or all details on standard output, documents and reports in
//! files, and a folder that keeps them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use serde_json::Value;
use weir_lab::performance;
use weir_lab::report::document::with;
use weir_lab::report::export;
use weir_lab::report::html::page;
use weir_lab::report::screen::{self, LINES};
use weir_lab::saved::{DOCUMENT, parts};

use super::part::Part;
use super::stream::{Stream, is_standard};
use crate::exit::{Failure, advice};
use crate::utc::Utc;

/// The heading of these options in the help.
pub const HEADING: &str = "Output";
/// The folder of results, where neither option nor environment says another.
const RESULTS: &str = "weir-results";
/// The environment variable that says another.
const RESULTS_VARIABLE: &str = "WEIR_RESULTS";
/// All tables and sentences in it, as text.
const DETAILS: &str = "details.txt";
/// The same where the last line names the folder.
const REST_IS_KEPT: &str = "details.txt in the folder of results";
/// The performance log of all runs, a JSON object on each line, and as CSV.
const PERFORMANCE: [&str; 2] = ["performance.ndjson", "performance.csv"];
/// The same as a page, with pictures.
pub const REPORT: &str = "report.html";

/// What a comparison gives besides the first screen.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = HEADING)]
pub struct OutputArgs {
    /// Print everything: all columns, all loads, what limits the figures, and what each column means.
    #[arg(long)]
    pub details: bool,

    /// One JSON document with every sample: on standard output instead of the text, or with =FILE in that file.
    #[arg(
        short = 'J', long, value_name = "FILE", num_args = 0..=1, require_equals = true,
        default_missing_value = "-"
    )]
    pub json: Option<PathBuf>,

    /// Events while it runs, as newline-delimited JSON: on standard output instead of the text, or with =FILE in that
    /// file.
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-"
    )]
    pub ndjson: Option<PathBuf>,

    /// Full-screen live view while it runs; ignored where there is no terminal.
    #[arg(long)]
    pub live: bool,

    /// Also write the report to this file: with all tables and pictures where its name ends in .html (it needs no
    /// network), the figures where it ends in .csv, the conclusion and a table of each load where it ends in .md.
    /// Repeatable.
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(parse_report))]
    pub report: Vec<PathBuf>,

    /// Say what changed since this saved result, and exit with code 4 if a figure is worse beyond the noise.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// The folder in which results are kept, each in a folder of its own [default: WEIR_RESULTS, or weir-results].
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_save")]
    pub results: Option<PathBuf>,

    /// Keep no results.
    #[arg(long)]
    pub no_save: bool,
}

/// Where results go, found to be writable.
pub struct Output {
    asked: OutputArgs,
    /// What is compared, in a word: a part of the name of this run's folder, if it is kept.
    kind: Option<String>,
    started: Utc,
    stream: Option<Stream>,
}

impl Output {
    /// Looks whether everything can be written: minutes are not spent on what is lost then. Files keep what they
    /// hold until there is something to be written. `kind` names the folder.
    pub fn begin(asked: &OutputArgs, kind: &str, is_dry: bool) -> Result<Self, Failure> {
        if [&asked.json, &asked.ndjson]
            .into_iter()
            .all(|path| path.as_deref().is_some_and(is_standard))
        {
            return Err(Failure::usage(
                "--json and --ndjson cannot both go to standard output; give one of them a file: --ndjson=FILE",
            ));
        }
        let (asked, started) = (asked.clone(), Utc::now());
        let mut output = Self { asked, kind: None, started, stream: None };
        let document = output.json_file().map(|path| ("document", path));
        let reports = output.asked.report.iter().map(|path| ("report", path.as_path()));
        for (what, path) in document.into_iter().chain(reports) {
            opened(path).map_err(|error| {
                let (path, advice) = (path.display(), advice(&error));
                Failure::failed(format!("cannot write the {what} to {path}: {error}; {advice}"))
            })?;
        }
        if !output.asked.no_save && !is_dry {
            // Found to be possible, and taken away again: a run that is killed leaves no folder without results.
            let had_base = folder_of_results(output.asked.results.as_deref()).exists();
            let folder = output.make_folder(kind)?;
            // Fails only where somebody has put something there meanwhile, or has taken it away.
            let _ = fs::remove_dir(&folder);
            if let Some(base) = folder.parent().filter(|_| !had_base) {
                let _ = fs::remove_dir(base);
            }
            output.kind = Some(kind.to_owned());
        }
        // The last, since it empties its file.
        output.stream = output.asked.ndjson.as_deref().map(Stream::open).transpose()?;
        Ok(output)
    }

    fn json_file(&self) -> Option<&Path> {
        self.asked.json.as_deref().filter(|path| !is_standard(path))
    }

    /// Where what happens is written, if that was asked for.
    pub fn stream(&self) -> Option<Stream> {
        self.stream.clone()
    }

    /// Whether standard output has the document and nothing else.
    fn prints_document(&self) -> bool {
        self.asked.json.as_deref().is_some_and(is_standard)
    }

    /// Whether standard output is no place for text.
    fn prints_no_text(&self) -> bool {
        self.prints_document() || self.asked.ndjson.as_deref().is_some_and(is_standard)
    }

    /// A folder that nobody else has, named for when it began and what is compared.
    fn make_folder(&self, kind: &str) -> Result<PathBuf, Failure> {
        let base = folder_of_results(self.asked.results.as_deref());
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::failed(format!(
                "cannot keep results in {}: {error}; name another folder with --results, or use --no-save",
                base.display()
            ))
        };
        fs::create_dir_all(&base).map_err(|error| match base.exists() && !base.is_dir() {
            true => cannot(&"it is not a folder"),
            false => cannot(&error),
        })?;
        let name = format!("{}-{kind}", self.started.file_name());
        for attempt in 1..=100 {
            let folder = base.join(match attempt {
                1 => name.clone(),
                more => format!("{name}-{more}"),
            });
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(&error)),
            }
        }
        Err(cannot(&io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    /// Gives the results: what was asked for on standard output, then the files. What cannot be written is reported
    /// after everything else was, and what took minutes to measure is not lost with it.
    pub fn give(&self, part: &Part) -> Result<(), Failure> {
        let document = self.dated(part);
        if let Some(stream) = &self.stream {
            stream.end(part.code, &document);
        }
        let text = match (self.prints_document(), self.prints_no_text(), self.asked.details) {
            (true, ..) => format!("{document:#}\n"),
            (_, true, _) => String::new(),
            (.., true) => part.details(),
            (.., false) => part.screen(LINES - 1, self.rest(&document)),
        };
        let mut failed: Vec<Failure> = crate::print_results(&text).err().into_iter().collect();
        // Where standard output has something else, whoever asked for the details finds them beside it.
        if !failed.is_empty() || (self.prints_no_text() && self.asked.details) {
            say_on!("{}", part.details());
        }
        if let Some(path) = self.json_file() {
            failed.extend(write(path, &format!("{document:#}\n")).err());
        }
        failed.extend(self.stream.as_ref().and_then(Stream::lost));
        for path in &self.asked.report {
            failed.extend(write(path, &report_as(path, &document)).err());
        }
        failed.extend(self.keep(part, &document));
        // The last is told by whoever called, as what this command ended with.
        let last = failed.pop();
        failed.iter().for_each(|failed| say!("{}", failed.message));
        last.map_or(Ok(()), Err)
    }

    /// Where that stands for which the first screen has no place: whoever has it need not measure again.
    fn rest(&self, document: &Value) -> &'static str {
        match self.kind.is_some() && !is_empty(document) {
            true => REST_IS_KEPT,
            false => screen::DETAILS,
        }
    }

    /// Keeps the results in their folder, and says where as the last line. Returns what could not be written.
    fn keep(&self, part: &Part, document: &Value) -> Vec<Failure> {
        let Some(kind) = self.kind.as_ref().filter(|_| !is_empty(document)) else { return vec![] };
        let folder = match self.make_folder(kind) {
            Ok(folder) => folder,
            Err(failed) => return vec![failed],
        };
        // What cannot be written keeps nothing else from being written.
        let written = [
            write(&folder.join(DOCUMENT), &format!("{document:#}\n")),
            write(&folder.join(DETAILS), &part.details()),
            write(&folder.join(REPORT), &page(document)),
        ];
        let logs = PERFORMANCE.iter().filter(|_| performance::has_any(document));
        let logged = logs.map(|name| write(&folder.join(name), &log_as(Path::new(name), document)));
        // Fails where anything was written.
        let failed = written.into_iter().chain(logged).filter_map(Result::err).collect();
        if fs::remove_dir(&folder).is_ok() {
            return failed;
        }
        let line = format!("results: {}\n", folder.display());
        match self.prints_no_text() {
            true => say_on!("{line}"),
            false => crate::print(&line),
        }
        failed
    }

    /// Writes the document of a failure where one was asked for.
    pub fn refuse(&self, code: u8, document: &Value) {
        if let Some(stream) = &self.stream {
            stream.end(code, document);
        }
        let text = format!("{document:#}\n");
        if self.prints_document() {
            crate::print(&text);
        } else if let Some(path) = self.json_file()
            && let Err(more) = write(path, &text)
        {
            say!("{}", more.message);
        }
        for path in &self.asked.report {
            if let Err(more) = write(path, &report_as(path, document)) {
                say!("{}", more.message);
            }
        }
    }

    /// The document with when it was made, and how it ended.
    fn dated(&self, part: &Part) -> Value {
        let when = serde_json::json!({
            "started_at": self.started.rfc_3339(),
            "ended_at": Utc::now().rfc_3339(),
            "exit_code": part.code,
        });
        with(part.document.clone(), when)
    }
}

/// Whether nothing was even begun, not the checks: what is said of that is all there is to know of it.
fn is_empty(document: &Value) -> bool {
    let none = |of: &Value| match of {
        Value::Array(list) => list.is_empty(),
        Value::Number(number) => number.as_u64() == Some(0),
        other => other.is_null(),
    };
    let untouched = |row: &Value| {
        row["conformance"] != "failed"
            && ["runs", "failed_runs", "failures"].iter().all(|field| none(&row[*field]))
    };
    let parts = parts(document);
    let nothing = |part: &weir_lab::saved::Part| {
        let rows = part.0["results"].as_array();
        part.0["error"].is_string() && rows.is_some_and(|rows| rows.iter().all(untouched))
    };
    !parts.is_empty() && parts.iter().all(nothing)
}

/// Makes a report of a document.
type Format = fn(&Value) -> String;

/// What a report is, by the ending of its name.
const REPORTS: [(&str, Format); 3] =
    [("html", page), ("csv", export::csv), ("md", export::markdown)];

/// The report of a document in the format that the name of its file asks for.
pub fn report_as(path: &Path, document: &Value) -> String {
    let ending = path.extension().unwrap_or_default();
    let format = REPORTS.iter().find(|(name, _)| ending.eq_ignore_ascii_case(name));
    format.map_or(page as Format, |(_, format)| *format)(document)
}

/// The performance log of a document: CSV where the name of its file ends so, else a JSON object on each line.
pub fn log_as(path: &Path, document: &Value) -> String {
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
        true => performance::csv(document),
        false => performance::ndjson(document),
    }
}

/// A file for a report, whose name says what it is to be.
pub fn parse_report(path: PathBuf) -> Result<PathBuf, String> {
    let ending = path.extension().unwrap_or_default();
    match REPORTS.iter().any(|(name, _)| ending.eq_ignore_ascii_case(name)) {
        true => Ok(path),
        false => Err("the name must end in .html, .csv or .md".into()),
    }
}

/// The folder in which results are kept.
pub fn folder_of_results(asked: Option<&Path>) -> PathBuf {
    let of_environment = || {
        let value = std::env::var_os(RESULTS_VARIABLE).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    asked.map(Path::to_owned).or_else(of_environment).unwrap_or_else(|| RESULTS.into())
}

/// Finds out whether a file can be written, and leaves everything as it is: a run that is killed, or a full disk, leaves
/// no empty file.
fn opened(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let _ = is_new.then(|| fs::remove_file(path));
    Ok(())
}

/// Says beforehand that a file that was asked for cannot be written.
pub fn can_be_written(path: &Path) -> Result<(), Failure> {
    opened(path).map_err(|error| not_written(path, &error))
}

/// Writes files of these names and contents into a folder, which is made if it is not there.
pub fn write_all(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| {
        let (path, advice) = (folder.display(), advice(&error));
        Failure::failed(format!("cannot make the folder {path}: {error}; {advice}"))
    })?;
    files.iter().try_for_each(|(name, text)| write(&folder.join(name), text))
}

/// Writes a file, in the place of what is there. A file that is there stays as it is until the new one is whole: a disk
/// that is full costs no result of another day.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = match beside(path) {
        Some((part, mut file, target)) => {
            let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&part, &target));
            // Fails only if it cannot be removed, and then it is told why it was not written.
            written.inspect_err(|_| drop(fs::remove_file(&part)))
        }
        None => {
            let is_new = !path.exists();
            fs::write(path, text).inspect_err(|_| {
                // A part of a new file is worth nothing, and would be taken for a result.
                let _ = is_new.then(|| fs::remove_file(path));
            })
        }
    };
    written.map_err(|error| not_written(path, &error))
}

/// A new file beside a plain one, its name, and what it is to replace; `None` where there is no plain file, or no place
/// for another beside it.
fn beside(path: &Path) -> Option<(PathBuf, fs::File, PathBuf)> {
    let known = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let target = fs::canonicalize(path).ok()?;
    let mut name = target.file_name()?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = target.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&part).ok()?;
    match file.set_permissions(known.permissions()) {
        Ok(()) => Some((part, file, target)),
        Err(_) => {
            let _ = fs::remove_file(&part);
            None
        }
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let (path, advice) = (path.display(), advice(error));
    Failure::failed(format!("cannot write {path}: {error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::part::Part;

    fn asked(words: &[&str]) -> OutputArgs {
        crate::compare::parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn output(words: &[&str]) -> Output {
        Output::begin(&asked(words), "udp", false).expect("it can be written")
    }

    #[test]
    fn a_document_goes_to_standard_output_or_into_a_file() {
        assert_eq!(asked(&[]).json, None);
        for words in [&["--json"][..], &["-J"], &["--json=-"]] {
            let output = output(&[words, &["--no-save"]].concat());
            assert!(output.prints_document() && output.json_file().is_none(), "{words:?}");
        }
        let folder = std::env::temp_dir().join(format!("weir-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("out.json");
        let words = format!("--json={}", file.display());
        let to_file = output(&[&words, "--no-save"]);
        assert!(!to_file.prints_document());
        to_file.give(&Part::of(0, "table\n".into(), serde_json::json!({ "seed": 7 }))).unwrap();
        let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&document["seed"], &document["exit_code"]), (&7.into(), &0.into()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn each_run_has_a_folder_of_its_own_and_leaves_none_that_is_empty() {
        let base = std::env::temp_dir().join(format!("weir-results-{}", std::process::id()));
        let words = ["--results", base.to_str().unwrap()];
        let part = Part::of(0, "table\n".into(), serde_json::json!({}));
        // As long as there are no results there is no folder, so that one who is killed leaves none.
        let (first, second) = (output(&words), output(&words));
        assert!(!base.exists());
        first.give(&part).unwrap();
        second.give(&part).unwrap();
        let folders = || {
            let entries = fs::read_dir(&base).unwrap();
            let mut kept: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            kept.sort();
            kept
        };
        let kept = folders();
        assert_eq!(kept.len(), 2, "each has its own: {kept:?}");
        output(&words).refuse(1, &serde_json::json!({}));
        assert_eq!(folders(), kept);
        let row = serde_json::json!({ "runs": [], "failed_runs": 0, "failures": [] });
        let nothing = serde_json::json!({ "loads": [], "results": [row], "error": "no time" });
        let mut failed = nothing.clone();
        failed["results"][0]["failures"] = serde_json::json!(["it lost data"]);
        output(&words).give(&Part::of(1, String::new(), nothing)).unwrap();
        assert_eq!(folders(), kept, "nothing was measured");
        output(&words).give(&Part::of(1, String::new(), failed)).unwrap();
        assert_eq!(folders().len(), 3, "what failed is to be looked at");
        // A folder that was there stays, also if it is empty.
        let own = base.join("own");
        fs::create_dir(&own).unwrap();
        output(&["--results", own.to_str().unwrap()]);
        assert!(own.exists());
        fs::remove_dir(&own).unwrap();
        assert_eq!(fs::read_to_string(kept[0].join(DETAILS)).unwrap(), "table\n");
        assert!(fs::read_to_string(kept[0].join(REPORT)).unwrap().starts_with("<!DOCTYPE html>"));
        fs::remove_dir_all(base).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_replaced_and_a_link_or_a_device_is_not() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = std::env::temp_dir().join(format!("weir-write-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "of another day").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write(Path::new("/dev/null"), "new").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused_before_anything_runs() {
        let failed = Output::begin(&asked(&["--results", "/dev/null/x"]), "udp", false);
        let failed = failed.err().expect("it cannot be made");
        assert!(failed.message.contains("--results") && failed.message.contains("/dev/null/x"));
        let failed = Output::begin(&asked(&["--results", "/dev/null"]), "udp", false);
        let failed = failed.err().expect("it is there, and no folder");
        assert!(failed.message.contains("in /dev/null: it is not a folder"), "{}", failed.message);
    }
}
