//! A comparison held against results that were saved.

use std::path::{Path, PathBuf};

use serde_json::json;
use weir_lab::report::conclusion::Claim;
use weir_lab::saved::claims::{self, Judged, Outcome, of_document};
use weir_lab::saved::diff::{Change, Diff, Row};
use weir_lab::saved::{Saved, parts};

use super::part::Part;
use crate::exit::{self, Failure};
use crate::width::width;

/// Most changed rows that are named on the first screen; all stand in the document.
const MOST_NAMED: usize = 6;

/// What a comparison is held against.
pub struct Baseline {
    path: PathBuf,
    saved: Saved,
}

impl Baseline {
    /// Reads it, before minutes are spent on a comparison of this kind.
    pub fn load(path: &Path, kind: &str) -> Result<Self, Failure> {
        let saved = Saved::load(path).map_err(Failure::usage)?;
        let has: Vec<&str> = saved.parts().iter().map(|part| part.kind()).collect();
        // What is compared again is known once it is read.
        let any = ["all", "reproduced"].contains(&kind);
        if !any && !has.contains(&kind) {
            return Err(Failure::usage(format!(
                "the baseline {} compares {}, and this comparison {kind}",
                path.display(),
                has.join(", ")
            )));
        }
        Ok(Self { path: path.to_owned(), saved })
    }

    /// Says first what changed, and ends with 4 where a figure is worse, or with 1 where nothing could be judged: a job
    /// that relies on it must not pass for that.
    pub fn against(&self, part: Part) -> Part {
        let diffs = diffs(&self.saved, &parts(&part.document));
        let rows = || diffs.iter().flat_map(|diff| &diff.rows);
        let count = |change| rows().filter(|row| row.change == change).count();
        if diffs.iter().all(|diff| diff.why_not_judged().is_some()) {
            let why = match rows().next() {
                None => "the two results have no row in common",
                Some(_) => "all rows have too few rounds; run longer with -t",
            };
            let said = format!("Baseline {}: nothing can be judged: {why}.\n", self.path.display());
            let code = if part.code == exit::OK { exit::FAILED } else { part.code };
            return part.preceded_by(code, said, json!({ "baseline": diffs }));
        }
        let regressed = diffs.iter().any(Diff::has_regressed);
        let code = match part.code {
            exit::OK | exit::DATA_ERRORS if regressed => exit::REGRESSION,
            other => other,
        };
        let mut said = format!(
            "Against {}: {} worse, {} better, {} within the noise, {} with too few rounds.\n",
            self.path.display(),
            count(Change::Worse),
            count(Change::Better),
            count(Change::WithinNoise),
            count(Change::TooFewRounds)
        );
        diffs.iter().flat_map(Diff::together).for_each(|line| said += &format!("  {line}\n"));
        let mut worse: Vec<_> = rows().filter(|row| row.change == Change::Worse).collect();
        worse.sort_by(|a, b| a.own_ratio.total_cmp(&b.own_ratio));
        for row in worse.iter().take(MOST_NAMED) {
            let Row { spec, load, own_ratio, .. } = row;
            said +=
                &format!("  WORSE: {spec} under {load}: {own_ratio:.2} times as good by itself\n");
        }
        if worse.len() > MOST_NAMED {
            said += &format!("  … and {} more\n", worse.len() - MOST_NAMED);
        }
        let gone: Vec<&str> =
            diffs.iter().flat_map(|diff| &diff.only_before).map(String::as_str).collect();
        if !gone.is_empty() {
            let named = gone.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join("; ");
            said += &format!("  In the baseline and not here: {}: {named}", gone.len());
            said += if gone.len() > MOST_NAMED { "; …\n" } else { "\n" };
        }
        if diffs.iter().any(|diff| !diff.comparable) {
            said += "  The machines differ (weir diff says how): rows are judged only against each other.\n";
        }
        part.preceded_by(code, crate::harmless(&said), json!({ "baseline": diffs }))
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
    let mut judged = part.judge(claims);
    // A comparison that did not come about says nothing of its claims.
    for (kind, claim) in claims {
        if !judged.iter().any(|one| one.claim == *claim) {
            let why = format!("nothing of {kind} was measured");
            judged.push(Judged { claim: claim.clone(), outcome: Outcome::Undecided, why });
        }
    }
    let failed = judged.iter().any(|one| one.outcome == Outcome::Failed);
    let code = match part.code {
        exit::OK | exit::DATA_ERRORS if failed => exit::REGRESSION,
        other => other,
    };
    let mut said = String::new();
    for diff in diffs(before, &parts(&part.document)) {
        if !diff.comparable {
            let names: Vec<&str> = diff.machines.iter().map(|(name, ..)| name.as_str()).collect();
            said += &format!("{}: the machine differs: {}\n", diff.kind, names.join(", "));
        }
    }
    said += &claims::text(&judged, width());
    part.preceded_by(code, crate::harmless(&said), json!({ "claims": judged }))
}

/// The claims of a saved result.
pub fn claims_of(saved: &Saved) -> Result<Vec<(String, Claim)>, Failure> {
    let claims = of_document(&saved.document);
    match claims.is_empty() {
        true => Err(Failure::failed(format!(
            "{} contains no claims to check: nothing was decided, or an older weir wrote it",
            saved.path.display()
        ))),
        false => Ok(claims),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::part::{Content, Made};

    /// Results that hold each claim of UDP.
    struct AllOfUdpHeld;

    impl Made for AllOfUdpHeld {
        fn details(&self) -> String {
            String::new()
        }

        fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged> {
            let of_udp = claims.iter().filter(|(kind, _)| kind == "udp");
            let judged = |(_, claim): &(String, Claim)| Judged {
                claim: claim.clone(),
                outcome: Outcome::Held,
                why: String::new(),
            };
            of_udp.map(judged).collect()
        }
    }

    #[test]
    fn claims_of_a_comparison_that_did_not_come_about_are_not_decided() {
        let claim = |load: &str| {
            let claim = json!({
                "text": load, "evidence": "#x", "load": load, "metric": "m", "first": "a", "second": "b",
                "verdict": "tie", "ratio": 1.0, "low": null, "high": null,
            });
            serde_json::from_value::<Claim>(claim).unwrap()
        };
        let claims = [("udp".to_owned(), claim("one")), ("tcp".to_owned(), claim("two"))];
        let document = json!({ "schema_version": 1, "kind": "udp", "loads": [] });
        let before = Saved { path: "x".into(), document: document.clone() };
        let content = Content::One(Box::new(AllOfUdpHeld));
        let part = Part { content, ..Part::of(exit::FAILED, String::new(), document) };
        let part = reproduced(&before, &claims, part);
        assert_eq!(part.code, exit::FAILED);
        let outcomes = part.document["claims"].clone();
        assert_eq!(
            (&outcomes[0]["outcome"], &outcomes[1]["outcome"]),
            (&json!("held"), &json!("undecided"))
        );
    }

    #[test]
    fn what_only_the_baseline_has_is_said() {
        let of = |specs: &[&str]| {
            let row = |spec: &&str| {
                json!({
                    "spec": spec, "load_name": "l", "role": "plain", "provider": null, "reason": null,
                    "metrics": { "m": { "median": 10.0, "low": 9.0, "high": 11.0 } },
                })
            };
            json!({
                "schema_version": 1, "kind": "udp", "machine": {}, "conclusion": {},
                "loads": [{ "name": "l", "load": {}, "ranked_by": "m", "noise_floor_percent": 1.0 }],
                "results": specs.iter().map(row).collect::<Vec<_>>(),
            })
        };
        let saved = Saved { path: "x".into(), document: of(&["a", "b"]) };
        let baseline = Baseline { path: "x".into(), saved };
        let part = baseline.against(Part::of(exit::OK, String::new(), of(&["a"])));
        let said = part.screen(24, "--details");
        assert!(said.contains("In the baseline and not here: 1: b under l"), "{said}");
    }
}
