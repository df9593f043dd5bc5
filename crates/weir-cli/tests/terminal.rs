//! What is printed keeps to the width of the terminal, as `script` (util-linux) makes one.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::has;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// What a command prints on a terminal of this size.
fn on_terminal(size: &str, words: &str) -> String {
    let command = format!("stty {size} && exec {WEIR} {words}");
    let printed = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("WEIR_RESULTS", env!("CARGO_TARGET_TMPDIR"))
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .output()
        .expect("script can be started");
    let text = String::from_utf8(printed.stdout).expect("text");
    assert!(printed.status.success(), "{words}: {text}");
    text
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0)
}

#[test]
fn lines_fit_into_the_terminal_also_where_it_does_not_say_how_high_it_is() {
    if !has("script", &["--version"]) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("weir-terminal-{}", std::process::id()));
    let result = folder.join("2026-01-01T00-00-00Z-with-a-name-as-long-as-that-of-results-may-be");
    fs::create_dir_all(&result).expect("a folder");
    fs::write(result.join("result.json"), "none").expect("it can be written");
    let history = format!("history --results {}", folder.display());
    // A name that is to be copied stays whole, however long it is.
    let whole = result.display().to_string().chars().count();
    for columns in [80, 100, 200] {
        for rows in [0, 24] {
            let size = format!("cols {columns} rows {rows}");
            let designs = on_terminal(&size, "designs");
            assert!(designs.contains("rio-hybrid"), "{designs}");
            assert!(widest(&designs) <= columns, "{size}: {designs}");
            let listed = on_terminal(&size, &history);
            assert!(listed.contains(&result.display().to_string()), "{size}: {listed}");
            assert!(widest(&listed) <= columns.max(whole), "{size}: {listed}");
            let plan = on_terminal(&size, "compare iops --design sync --dry-run");
            assert!(plan.contains("comparing ") && widest(&plan) <= columns, "{size}: {plan}");
        }
    }
    fs::remove_dir_all(&folder).expect("it is there");
}
