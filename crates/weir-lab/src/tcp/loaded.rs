//! What a client of TCP says at its end, and whether anything came of its load.

use serde_json::Value;

use super::wire::{LoadDocument, LoadReport};
use crate::child::ChildError;
use crate::wire::Failure;

/// What a client said at its end.
pub struct Followed {
    status: String,
    reason: Option<String>,
    report: Option<LoadReport>,
    /// When what is measured of it ended, in ns of [`weir_load::clock::now_ns`], if that is known.
    pub ended_ns: Option<u64>,
}

impl Followed {
    /// In its document.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(document: Value) -> Result<Self, ChildError> {
        let garbage = |error: serde_json::Error| ChildError::Garbage {
            name: "the client",
            what: "report",
            problem: error.to_string(),
        };
        let LoadDocument { status, reason, report } =
            serde_json::from_value(document).map_err(garbage)?;
        Ok(Self { status, reason, report, ended_ns: None })
    }

    /// Its report, if messages came back.
    ///
    /// # Errors
    /// Why there is none.
    pub fn with_messages(self) -> Result<Loaded, ChildError> {
        self.loaded(|report| report.counts.messages_over > 0)
    }

    /// Its report, if connections were made.
    ///
    /// # Errors
    /// Why there is none.
    pub fn with_connections(self) -> Result<Loaded, ChildError> {
        self.loaded(|_| true)
    }

    fn loaded(self, is_something: fn(&LoadReport) -> bool) -> Result<Loaded, ChildError> {
        let Self { status, reason, report, ended_ns } = self;
        let why = || reason.clone().unwrap_or_else(|| "the client failed".into());
        let (report, invalid) = match (status.as_str(), report) {
            ("ok", Some(report)) => (report, None),
            ("invalid", Some(report)) => (report, Some(why())),
            // That not all connections were made is a figure, and no failure of the client.
            (_, Some(report)) if report.counts.connected > 0 && is_something(&report) => {
                (report, None)
            }
            _ => {
                let message = why();
                return Err(ChildError::Reported(Failure { unavailable: false, message }));
            }
        };
        Ok(Loaded { report, invalid, ended_ns })
    }
}

/// What came of a load.
pub struct Loaded {
    /// What its client did.
    pub report: LoadReport,
    /// Why it is invalid, if it is.
    pub invalid: Option<String>,
    /// When what is measured of it ended, in ns of [`weir_load::clock::now_ns`], if that is known.
    pub ended_ns: Option<u64>,
}
