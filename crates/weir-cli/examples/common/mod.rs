//! What the examples share that start `weir` itself: a server that says what it did, a load, and their documents.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

use serde_json::Value;

/// The program, which is to be built with the same profile.
pub fn weir() -> Command {
    // The examples lie in a folder beside it.
    let mut path: PathBuf = std::env::current_exe().expect("this program has a path");
    path.pop();
    path.pop();
    Command::new(path.join("weir"))
}

/// The core of the load; the server has the first one.
pub fn last_core() -> String {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores - 1).to_string()
}

/// A number that follows a flag, within bounds.
pub fn number(
    flag: &str,
    arguments: &mut impl Iterator<Item = String>,
    least: u64,
    most: u64,
) -> Result<u64, String> {
    let text = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
    let number = text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"))?;
    Ok(number.clamp(least, most))
}

/// The next document, one a line.
pub fn document(lines: &mut impl BufRead) -> Result<Value, String> {
    let mut line = String::new();
    lines.read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| format!("{e} in {line:?}"))
}

/// The names of the TCP designs that can run here.
#[allow(dead_code, reason = "one example has a list of its own")]
pub fn designs() -> Result<Vec<String>, String> {
    let output = weir().args(["designs", "--json"]).output().map_err(|e| e.to_string())?;
    let list: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let designs = list["tcp_designs"].as_array().ok_or("no TCP designs")?.iter();
    let runs = designs.filter(|design| design["status"] == "ok");
    Ok(runs.filter_map(|design| design["name"].as_str().map(str::to_owned)).collect())
}

/// A server on the first core, which is ended when dropped.
pub struct Server {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    pub port: String,
}

impl Server {
    pub fn start(design: &str, more: &[&str]) -> Result<Self, String> {
        let mut child = weir()
            .args(["serve", "tcp", "--bind", "127.0.0.1:0", "--json", "--cpu", "0"])
            .args(["--interval", "0", "--end-with-input", "--design", design])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| {
                format!("weir cannot be started ({e}): build it with the same profile first")
            })?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let ready = document(&mut lines)?;
        let Some(address) = ready["ready"]["addresses"][0].as_str() else {
            return Err(ready["reason"].to_string());
        };
        let port = address.rsplit(':').next().expect("a port").to_owned();
        Ok(Self { child, lines, port })
    }

    /// Tells it to look at itself: what it finds stands in its report.
    #[allow(dead_code, reason = "one example does not ask")]
    pub fn say(&mut self, word: &str) -> Result<(), String> {
        let input = self.child.stdin.as_mut().expect("piped, and not ended");
        writeln!(input, "{word}").map_err(|e| format!("the server has ended: {e}"))
    }

    /// Ends it; gives its report.
    #[allow(dead_code, reason = "one example has no use for it")]
    pub fn end(mut self) -> Result<Value, String> {
        drop(self.child.stdin.take());
        document(&mut self.lines)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // What it has to say must find room, or it would not end.
        let _ = std::io::copy(&mut self.lines, &mut std::io::sink());
        let _ = self.child.wait();
    }
}

/// A load on the last core.
pub fn load(port: &str, more: &[&str]) -> Command {
    let mut command = weir();
    command
        .args(["load", "tcp", "127.0.0.1", "--json", "--cpu", &last_core(), "-p", port])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}
