//! Comparisons made with the `weir` command, and their documents.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

/// Runs `weir compare` with these words, and gives its document. That a run failed or was invalid is told in there.
///
/// # Errors
/// If it cannot be started, or prints no document.
pub fn compare(weir: &Path, words: &[&str]) -> anyhow::Result<Value> {
    let made = Command::new(weir)
        .arg("compare")
        .args(words)
        .args(["--no-save", "--json"])
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", weir.display()))?;
    let document: Value = serde_json::from_slice(&made.stdout)
        .with_context(|| format!("reading what {} printed ({})", weir.display(), made.status))?;
    match &document["error"] {
        Value::Null => Ok(document),
        error => bail!("nothing was measured: {error}"),
    }
}

/// The first row of this name.
///
/// # Errors
/// If there is none.
pub fn row<'a>(document: &'a Value, name: &str) -> anyhow::Result<&'a Value> {
    let rows = document["results"].as_array();
    let found =
        rows.into_iter().flatten().find(|row| row["design"] == name && row["role"] != "again");
    found.ok_or_else(|| anyhow!("the document has no row {name}"))
}

/// A figure of each round of a row that counts: the last attempt of each.
pub fn by_round(row: &Value, figure: &str) -> Vec<(u64, f64)> {
    let runs = row["runs"].as_array().into_iter().flatten();
    runs.filter(|run| run["replaced"] == false)
        .filter_map(|run| Some((run["block"].as_u64()?, run[figure].as_f64()?)))
        .collect()
}
