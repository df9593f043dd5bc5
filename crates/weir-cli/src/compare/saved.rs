//! A comparison held against results that were saved.

use std::path::{Path, PathBuf};

use serde_json::json;
use weir_lab::report::conclusion::Claim;
use weir_lab::saved::claims::{self, Outcome, of_document};
use weir_lab::saved::diff::{Change, Diff};
use weir_lab::saved::{Saved, parts};

use super::display::width;
use super::part::Part;
use crate::exit::{self, Failure};

/// Most changed rows that are named on the first screen; all stand in the document.
const MOST_NAMED: usize = 6;

/// What a comparison is held against.
pub struct Baseline {
    path: PathBuf,
    saved: Saved,
}

impl Baseline {
    /// Reads it, before minutes are spent on a comparison.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let saved = Saved::load(path).map_err(Failure::usage)?;
        Ok(Self { path: path.to_owned(), saved })
    }

    /// Says first what changed, and ends with 4 where a figure is worse.
    pub fn against(&self, part: Part) -> Part {
        let document = (part.document)();
        let diffs = diffs(&self.saved, &parts(&document));
        if diffs.iter().all(|diff| diff.rows.is_empty()) {
            let said = format!(
                "Baseline {}: no row could be compared in both, so nothing can be said.\n",
                self.path.display()
            );
            let code = part.code;
            return part.preceded_by(code, said, json!({ "baseline": diffs }));
        }
        let regressed = diffs.iter().any(Diff::has_regressed);
        let code = match part.code {
            exit::OK if regressed => exit::REGRESSION,
            other => other,
        };
        let rows = || diffs.iter().flat_map(|diff| &diff.rows);
        let count = |change| rows().filter(|row| row.change == change).count();
        let mut said = format!(
            "Against {}: {} worse, {} better, {} within the noise, {} with too few rounds.\n",
            self.path.display(),
            count(Change::Worse),
            count(Change::Better),
            count(Change::WithinNoise),
            count(Change::TooFewRounds)
        );
        let mut worse: Vec<_> = rows().filter(|row| row.change == Change::Worse).collect();
        worse.sort_by(|a, b| a.own_ratio.total_cmp(&b.own_ratio));
        for row in worse.iter().take(MOST_NAMED) {
            said += &format!("  WORSE: {} under {}: {:.2} of it\n", row.spec, row.load, row.ratio);
        }
        if worse.len() > MOST_NAMED {
            said += &format!("  … and {} more\n", worse.len() - MOST_NAMED);
        }
        if diffs.iter().any(|diff| !diff.comparable) {
            said += "  The machines differ: rows are judged against each other only (weir diff says in what).\n";
        }
        part.preceded_by(code, said, json!({ "baseline": diffs }))
    }
}

/// The differences of each kind that both have.
pub fn diffs(before: &Saved, after: &[weir_lab::saved::Part]) -> Vec<Diff> {
    let before = before.parts();
    let same = |kind: &str| after.iter().copied().find(|part| part.kind() == kind);
    before.iter().filter_map(|part| Some(Diff::of(*part, same(part.kind())?))).collect()
}

/// Says first which claims of a saved result hold, and ends with 4 where one does not.
pub fn reproduced(before: &Saved, claims: &[(String, Claim)], part: Part) -> Part {
    let judged = (part.judge)(claims);
    let failed = judged.iter().any(|one| one.outcome == Outcome::Failed);
    let code = match part.code {
        exit::OK | exit::DATA_ERRORS if failed => exit::REGRESSION,
        other => other,
    };
    let document = (part.document)();
    let mut said = String::new();
    for diff in diffs(before, &parts(&document)) {
        if !diff.comparable {
            let names: Vec<&str> = diff.machines.iter().map(|(name, ..)| name.as_str()).collect();
            said += &format!("{}: the machine is another: {}\n", diff.kind, names.join(", "));
        }
    }
    said += &claims::text(&judged, width());
    part.preceded_by(code, said, json!({ "claims": judged }))
}

/// The claims of a saved result.
pub fn claims_of(saved: &Saved) -> Result<Vec<(String, Claim)>, Failure> {
    let claims = of_document(&saved.document);
    match claims.is_empty() {
        true => Err(Failure::failed(format!(
            "{} makes no claims: no design was shown to be better than another or as good, or an older weir wrote it",
            saved.path.display()
        ))),
        false => Ok(claims),
    }
}
