//! How often a comparison calls one of two identical programs better than the other: never more often than one time in
//! twenty, if its intervals hold.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use crate::compared::{compare, row};

/// Names of the program.
const NAMES: [&str; 2] = ["first", "second"];

/// Compares one program with itself under two names.
#[derive(Args)]
pub struct SameProgram {
    /// The `weir` to use, of a release build.
    weir: PathBuf,
    /// How many times.
    #[arg(long, default_value_t = 30)]
    times: u32,
    /// Rounds of each comparison.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
}

/// What became of one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Tie,
    Winner,
    Open,
}

impl SameProgram {
    /// Makes the comparisons, and says how many had a false winner.
    ///
    /// # Errors
    /// If a comparison cannot be made.
    pub fn run(&self) -> anyhow::Result<()> {
        let mut found = vec![];
        for number in 1..=self.times {
            let document = self.compare_once().with_context(|| format!("comparison {number}"))?;
            let (what, ratio) = judge(&document)?;
            println!("{number:>3}: {what:?}, ratio {ratio}");
            found.push(what);
        }
        let count = |what| found.iter().filter(|found| **found == what).count();
        println!(
            "of {} comparisons of a program with itself, {} rounds each: {} a tie, {} a false winner, {} undecided",
            found.len(),
            self.rounds,
            count(Found::Tie),
            count(Found::Winner),
            count(Found::Open)
        );
        Ok(())
    }

    fn compare_once(&self) -> anyhow::Result<Value> {
        let weir = Path::canonicalize(&self.weir).context("finding weir")?;
        let program =
            format!("{} serve tcp --design epoll --echo --bind {{ip}}:{{port}}", weir.display());
        let peers = NAMES.map(|name| format!("{name}={program}"));
        let rounds = self.rounds.to_string();
        // A design that is far behind, since the experiment needs one that it can run twice.
        let what = ["tcp", "--design", "blocking", "--connections", "64", "--rounds", &rounds];
        let peers = peers.iter().flat_map(|peer| ["--peer", peer]);
        compare(&weir, &what.into_iter().chain(peers).collect::<Vec<_>>())
    }
}

/// What a comparison says of the two, and the ratio of the better one to the other.
fn judge(document: &Value) -> anyhow::Result<(Found, String)> {
    let rows = NAMES.map(|name| row(document, name));
    let [first, second] = rows;
    let (first, second) = (first?, second?);
    for row in [first, second] {
        ensure!(row["status"] == "ok", "{} failed: {}", row["design"], row["reason"]);
    }
    // The one that leads has none.
    let to_it = match [first, second].map(|row| &row["winner_to_it"]) {
        [Value::Null, to_it] | [to_it, Value::Null] => to_it,
        _ => return Ok((Found::Open, "unknown, since neither of them leads".into())),
    };
    let figure =
        |name: &str| to_it[name].as_f64().map_or("?".into(), |ratio| format!("{ratio:.3}"));
    let ratio = format!("{} ({} to {})", figure("median"), figure("low"), figure("high"));
    let found = match to_it["verdict"].as_str() {
        Some("tie") => Found::Tie,
        Some("real") => Found::Winner,
        _ => Found::Open,
    };
    Ok((found, ratio))
}
