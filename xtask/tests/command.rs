//! The command, as scripts use it: what it prints for them, and how it ends.

use std::process::{Command, Output};

fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output().expect("it was built")
}

/// What a list for WEIR_REQUIRE names.
fn required(by: &str) -> Vec<String> {
    let output = xtask(&["systems", by]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.strip_suffix('\n').expect("a line");
    assert!(!line.contains(['\n', ' ']), "one line, without spaces: {text:?}");
    line.split(',').map(str::to_owned).collect()
}

#[test]
fn a_script_is_told_what_must_run() {
    let (on_windows, without_io_uring) = (required("--required"), required("--without-io-uring"));
    for both in ["blocking", "rio-event/batch", "tcp/select"] {
        assert!(on_windows.iter().any(|name| name == both), "{on_windows:?}");
        assert!(without_io_uring.iter().any(|name| name == both), "{without_io_uring:?}");
    }
    let has = |list: &[String], name: &str| list.iter().any(|of| of == name);
    assert!(has(&on_windows, "tcp/port") && !has(&without_io_uring, "tcp/port"));
    assert!(!has(&on_windows, "epoll") && has(&without_io_uring, "epoll"));
}

#[test]
fn what_is_wrong_is_told_by_the_exit_code() {
    let both = xtask(&["systems", "--required", "--without-io-uring"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let none = xtask(&["imports", "/nowhere/at/all.exe"]);
    assert!(!none.status.success(), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("/nowhere/at/all.exe"), "{none:?}");
}
