//! What limited a run, and what that makes of its figure.

use serde::{Deserialize, Serialize};
use weir::machine::MOST_LOAD_OF_OTHERS;

/// A share of a core, or of the generator's maximum, from which it counts as used up.
pub const USED_UP: f64 = 0.95;

/// What limited a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The server could not take more.
    Server,
    /// The generator could not send more.
    Generator,
    /// The generator could not send more, and the server took nearly all of it.
    Both,
    /// The system had no memory or queue left for what was offered.
    Memory,
    /// Nothing: the paced load was offered and taken.
    Load,
    /// Other programs had the cores: neither side used its own up.
    Others,
    /// Nothing that can be seen: neither side was busy, and still no more came through.
    Unknown,
}

impl Limit {
    /// One word for a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Generator => "generator",
            Self::Both => "both",
            Self::Memory => "memory",
            Self::Load => "load",
            Self::Others => "others",
            Self::Unknown => "unknown",
        }
    }
}

/// What limited a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// What it was.
    pub limited_by: Limit,
    /// True if the server could have taken more than was offered: its figure is "at least".
    pub lower_bound: bool,
    /// What the verdict rests on, in words.
    pub reason: String,
}

/// What is said where other programs had so much of the cores (a share of all cores, 0 to 1) that a row which did not
/// use up its own may have waited for them; `None` where they had little.
pub fn others_had(load_of_others: Option<f64>) -> Option<String> {
    let share = load_of_others.filter(|share| *share > MOST_LOAD_OF_OTHERS)?;
    Some(format!("other programs had {:.0} % of all cores", share * 100.0))
}

/// The verdict of several runs: the one that most of them have, the first of them on a
/// draw. `None` without runs. The figure is a lower bound if any of those says so.
pub fn of_runs(verdicts: &[Verdict]) -> Option<Verdict> {
    let count = |limit: Limit| verdicts.iter().filter(|v| v.limited_by == limit).count();
    let most = verdicts.iter().map(|v| count(v.limited_by)).max()?;
    let first = verdicts.iter().find(|v| count(v.limited_by) == most)?;
    // The one that says so comes with its reason.
    let lower = verdicts.iter().find(|v| v.limited_by == first.limited_by && v.lower_bound);
    Some(lower.unwrap_or(first).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_of_most_runs_counts() {
        let of = |limited_by, lower_bound| Verdict { limited_by, lower_bound, reason: "r".into() };
        let runs = [of(Limit::Load, true), of(Limit::Server, false), of(Limit::Server, false)];
        assert_eq!(of_runs(&runs), Some(of(Limit::Server, false)));
        let lossless = Verdict { reason: "lossless".into(), ..of(Limit::Server, true) };
        let runs = [of(Limit::Server, false), lossless.clone(), of(Limit::Server, false)];
        assert_eq!(of_runs(&runs), Some(lossless), "one that says so, with its own reason");
        assert_eq!(of_runs(&[]), None);
    }
}
