//! The claims of a saved result, held against what is measured now.

use serde::Serialize;
use serde_json::Value;

use super::parts;
use crate::experiment::results::Results;
use crate::report::Reported;
use crate::report::conclusion::{Claim, Verdict};
use crate::report::layout::paragraph;
use crate::report::sentences::times;
use crate::report::words::number_of;
use crate::stats::compare::Difference;

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was found again.
    Held,
    /// The opposite was found.
    Failed,
    /// Nothing can be said here.
    Undecided,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "FAILED",
            Self::Undecided => "inconclusive",
        }
    }
}

/// A claim and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// What became of it.
    pub outcome: Outcome,
    /// Why.
    pub why: String,
}

/// The claims of a document, each with the kind of its comparison.
pub fn of_document(document: &Value) -> Vec<(String, Claim)> {
    let mut all = vec![];
    for part in parts(document) {
        let claims = part.0["conclusion"]["claims"].as_array().into_iter().flatten();
        let claims = claims.filter_map(|claim| serde_json::from_value(claim.clone()).ok());
        all.extend(claims.map(|claim| (part.kind().to_owned(), claim)));
    }
    all
}

/// Holds the claims of one kind against these results.
pub fn judge<K: Reported>(results: &Results<K>, claims: &[(String, Claim)]) -> Vec<Judged> {
    let of_this_kind = claims.iter().filter(|(kind, _)| kind == K::KIND);
    of_this_kind.map(|(_, claim)| judge_one(results, claim.clone())).collect()
}

fn judge_one<K: Reported>(results: &Results<K>, claim: Claim) -> Judged {
    let (outcome, why) = match found(results, &claim) {
        Err(why) => (Outcome::Undecided, why),
        Ok(difference) => held(&claim, &difference),
    };
    Judged { claim, outcome, why }
}

/// How the two rows stand to each other now, or why nobody knows.
fn found<K: Reported>(results: &Results<K>, claim: &Claim) -> Result<Difference, String> {
    let name = |load: &usize| results.loads[*load].to_string() == claim.load;
    let load = (0..results.loads.len())
        .find(name)
        .ok_or_else(|| format!("there is no load {} in this run", claim.load))?;
    let metric = results.ranked_by(load);
    if metric.name != claim.metric {
        return Err(format!("rows are ranked by {} here", metric.name));
    }
    let row = |spec: &str| {
        (0..results.rows.len())
            .find(|row| {
                results.rows[*row].name_in_claims() == spec && results.first_of(*row).is_none()
            })
            .ok_or_else(|| format!("{spec} is not a row of this run"))
    };
    let (first, second) = (row(&claim.first)?, row(&claim.second)?);
    for (spec, row) in [(&claim.first, first), (&claim.second, second)] {
        if let Some(reason) = results.unranked(load, row) {
            return Err(format!("{spec} has no rank here: {reason}"));
        }
    }
    let by_itself = || results.against(load, metric, (first, second));
    if results.ranking(load, results.group_of(first)).is_too_noisy() {
        return Err(
            "the machine was too noisy: one design under two names differed by more than 100 %"
                .into(),
        );
    }
    Ok(match claim.verdict {
        Verdict::Real => by_itself(),
        // Of many ties some would look like differences, each by itself.
        Verdict::Tie => {
            let ranking = results.ranking(load, results.group_of(first));
            ranking.between(first, second).unwrap_or_else(by_itself)
        }
    })
}

/// What a difference found now says of a claim.
pub(super) fn held(claim: &Claim, now: &Difference) -> (Outcome, String) {
    let was_above = claim.ratio > 1.0;
    let text = now.ratio().map(|ratio| format!("now {}", times(&ratio))).unwrap_or_default();
    match (claim.verdict, now) {
        (_, Difference::TooFew(_)) => (
            Outcome::Undecided,
            "too few comparable rounds; ask for more rounds (--rounds) or time (-t)".into(),
        ),
        (Verdict::Real, Difference::Real(ratio)) if (ratio.median > 1.0) == was_above => {
            (Outcome::Held, text)
        }
        (Verdict::Real, Difference::Real(_)) => (Outcome::Failed, format!("{text}: reversed")),
        (Verdict::Real, Difference::Tie(ratio)) => {
            // What was claimed may be hidden by this run's noise, if any of its interval is in this one's.
            let (low, high) = (claim.low.unwrap_or(claim.ratio), claim.high.unwrap_or(claim.ratio));
            let may_be = ratio.interval.is_none_or(|i| i.low <= high && low <= i.high);
            match may_be {
                true => (
                    Outcome::Undecided,
                    format!("{text}: too noisy here to detect a difference of that size"),
                ),
                false => (Outcome::Failed, format!("{text}: no such difference")),
            }
        }
        (Verdict::Tie, Difference::Tie(_)) => (Outcome::Held, format!("{text}: tied")),
        (Verdict::Tie, Difference::Real(ratio)) => {
            // A run that sees more sharply may find a difference that the first one's interval allows.
            let allowed = claim.low.zip(claim.high);
            match allowed.is_some_and(|(low, high)| low <= ratio.median && ratio.median <= high) {
                true => (
                    Outcome::Undecided,
                    format!("{text}: within what the first run could not tell apart"),
                ),
                false => (Outcome::Failed, format!("{text}: a difference")),
            }
        }
    }
}

/// For a person: how many held, then each that did not, then the others.
pub fn text(judged: &[Judged], width: usize) -> String {
    let count = |outcome: Outcome| judged.iter().filter(|one| one.outcome == outcome).count();
    let mut text = String::new();
    let head = format!(
        "{} of {} held, {} failed, {} inconclusive.",
        count(Outcome::Held),
        number_of(judged.len(), "claim"),
        count(Outcome::Failed),
        count(Outcome::Undecided)
    );
    paragraph(&mut text, &head, width);
    for outcome in [Outcome::Failed, Outcome::Undecided, Outcome::Held] {
        for one in judged.iter().filter(|one| one.outcome == outcome) {
            let line = format!("{}: {} — {}", outcome.word(), one.claim.text, one.why);
            paragraph(&mut text, &line, width);
        }
    }
    text
}
