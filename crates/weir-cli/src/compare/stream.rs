//! The events of a comparison while it is made, as NDJSON: a JSON object on each line.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use serde_json::{Value, json};
use weir_lab::experiment::course::Progress;
use weir_lab::experiment::plan::Role;
use weir_lab::experiment::results::Results;
use weir_lab::report::Reported;
use weir_lab::report::document::SCHEMA_VERSION;

use crate::exit::{Failure, advice};

/// Whether this stands for standard output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Where events go. All clones write to the same place.
#[derive(Clone)]
pub struct Stream(Rc<RefCell<Destination>>);

struct Destination {
    to: Box<dyn Write>,
    name: String,
    /// The first error: after it nothing is written, and what is measured is not lost with the stream.
    failed: Option<io::Error>,
}

impl Stream {
    /// Opens a file anew, or standard output for "-".
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let (to, name): (Box<dyn Write>, String) = match is_standard(path) {
            true => (Box::new(io::stdout()), "standard output".into()),
            false => {
                let name = path.display().to_string();
                let file = File::create(path).map_err(|error| {
                    let advice = advice(&error);
                    Failure::failed(format!("cannot write events to {name}: {error}; {advice}"))
                })?;
                (Box::new(file), name)
            }
        };
        Ok(Self(Rc::new(RefCell::new(Destination { to, name, failed: None }))))
    }

    /// Writes an event, at once.
    pub fn write(&self, event: &Value) {
        let mut open = self.0.borrow_mut();
        if open.failed.is_none() {
            let line = format!("{event}\n");
            let written = open.to.write_all(line.as_bytes()).and_then(|()| open.to.flush());
            open.failed = written.err();
        }
    }

    /// Writes that a comparison begins.
    pub fn begin<K: Reported>(&self, results: &Results<K>) {
        self.write(&json!({
            "event": "begin",
            "schema_version": SCHEMA_VERSION,
            "kind": K::KIND,
            "command": results.command,
            "seed": results.seed,
            "machine": results.machine,
            "loads": results.loads.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "rows": results.rows.iter().map(|row| row.spec()).collect::<Vec<_>>(),
        }));
    }

    /// Writes what happened to a row.
    pub fn progress<K: Reported>(&self, progress: &Progress<K>) {
        let of = |event: &str, row: &weir_lab::experiment::plan::Row, reason: &str| {
            let (kind, spec) = (K::KIND, row.spec());
            json!({
                "event": event, "kind": kind, "row": spec, "provider": row.shown_provider(), "reason": reason,
            })
        };
        let event = match progress {
            Progress::Measured { load, row, sample } => json!({
                "event": "run",
                "kind": K::KIND,
                "load": load.to_string(),
                "row": row.spec(),
                "provider": row.shown_provider(),
                "again": matches!(row.role, Role::Again(_)),
                "run": sample,
            }),
            Progress::Failed(row, reason) => of("failed", row, reason),
            Progress::Dropped(row, reason) | Progress::Skipped(row, reason) => {
                of("left_out", row, reason)
            }
            _ => return,
        };
        self.write(&event);
    }

    /// Writes how all ended, with the conclusions of what was compared.
    pub fn end(&self, exit_code: u8, document: &Value) {
        let parts = weir_lab::saved::parts(document);
        let conclusions =
            parts.iter().map(|part| (part.kind().to_owned(), part.0["conclusion"].clone()));
        self.write(&json!({
            "event": "end",
            "exit_code": exit_code,
            "conclusions": Value::Object(conclusions.collect()),
            "error": document["error"],
        }));
    }

    /// The error that lost events, if any did. A reader that has gone, as `head` does, had enough.
    pub fn lost(&self) -> Option<Failure> {
        let open = self.0.borrow();
        let error = open.failed.as_ref()?;
        (error.kind() != io::ErrorKind::BrokenPipe).then(|| {
            Failure::failed(format!("events were lost: cannot write to {}: {error}", open.name))
        })
    }
}
