//! What the tests of the command share.

#![allow(dead_code)] // each test file uses a part of it

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

#[cfg(unix)]
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::Value;

/// Held by a test of which two at a time would disturb one another more than they could bear: they count for the whole
/// machine, or have so little time that half the cores are too few. What measures and asserts no figure needs none.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The command with these words.
pub fn weir(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words).env("WEIR_RESULTS", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Whether a program can be run here. Where everything is required it must.
pub fn has(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let ran = command.args(arguments).stdin(Stdio::null()).output();
    let has = ran.is_ok_and(|output| output.status.success());
    if !has {
        cannot_run(&format!("{program} {arguments:?} cannot be run here"));
    }
    has
}

/// How Python is started, if it is here: the system's own where it stands, which starts at once where a version
/// manager's takes a tenth of a second, and without looking for packages.
pub fn python() -> Option<&'static str> {
    const OWN: &str = "/usr/bin/python3";
    match std::path::Path::new(OWN).exists() {
        true => Some("/usr/bin/python3 -I -S"),
        false => has("python3", &["--version"]).then_some("python3"),
    }
}

/// A receiver that talks with weir, in Python. With an argument it goes wrong, or cheats.
pub const TALKS: &str = include_str!("talks.py");

/// A receiver that knows nothing of weir: it is started with an address and a port.
pub const FOREIGN: &str = include_str!("foreign.py");

/// A script in a file of its own.
pub fn script(name: &str, text: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("peers-{name}.py"));
    std::fs::write(&path, text).expect("it can be written");
    path.to_str().expect("a text").to_owned()
}

/// Programs of which an argument is this word. One that starts them has it in one of its own.
pub fn running_with(word: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").expect("it is there").filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).into_owned())
    });
    lines.filter(|line| line.split('\0').any(|other| other == word)).collect()
}

/// Says why something is not tested here. Where everything is required that is a failure.
pub fn cannot_run(why: &str) {
    let required = std::env::var("WEIR_REQUIRE").is_ok_and(|list| list == "all");
    assert!(!required, "required by WEIR_REQUIRE: {why}");
    eprintln!("skipped: {why}");
}

/// Whether a comparison of this kind can be made here; says why not.
pub fn can_compare(kind: &str) -> bool {
    let can = match kind {
        "tcp" => weir::stream::availability(),
        "iops" => weir::device::availability(),
        _ => Ok(()),
    };
    can.inspect_err(|why| cannot_run(&why.to_string())).is_ok()
}

/// Runs it to its end.
pub fn output(words: &[&str]) -> Output {
    weir(words).stdin(Stdio::null()).output().expect("weir can be started")
}

/// The only document on its standard output.
pub fn document(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    let said = errors(output);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{}: {error} in {text:?}; {said:?}", output.status))
}

/// Whether the machine changed while a comparison measured, as a virtual one may at any time: its times from core
/// to core lie more than twice apart (`ALIKE_WITHIN` of weir-lab). A comparison makes no pairs of such runs then, so
/// a test cannot ask for ranks and ratios.
pub fn machine_changed(document: &Value) -> bool {
    let rows = document["results"].as_array().into_iter().flatten();
    let runs = rows.filter_map(|row| row["runs"].as_array()).flatten();
    let times: Vec<f64> = runs
        .flat_map(|run| [&run["core_to_core_ns"], &run["core_to_core_after_ns"]])
        .filter_map(Value::as_f64)
        .collect();
    let (least, most) =
        (times.iter().copied().reduce(f64::min), times.iter().copied().reduce(f64::max));
    least.zip(most).is_some_and(|(least, most)| most > 2.0 * least)
}

/// That a comparison came to its end: with 0, or with 3 where some of its runs are not valid, as a busy machine makes
/// some. When it is which is checked on runs that are made up, in weir-lab.
pub fn assert_compared(run: &Output) {
    assert!(matches!(run.status.code(), Some(0 | 3)), "{}: {}", run.status, errors(run));
}

/// Whether a row has a rank or says why it has none: which of them it is depends on the machine.
pub fn is_ranked_or_says_why(row: &Value) -> bool {
    row["reason"].is_null() || row["reason"].as_str().is_some_and(|reason| !reason.is_empty())
}

/// Whether in half of a row's runs or more nothing came while it was measured, since the generator got no core, or the server
/// got none as others had them all, and the run says so: then there are no figures, or they are 0.
pub fn measured_nothing(row: &Value) -> bool {
    let starved = |run: &&Value| {
        let rates = ["received_per_s", "answers_per_s", "messages_per_s"];
        let is_none = rates.iter().any(|rate| run[*rate].as_f64() == Some(0.0));
        let is_told =
            ["pace_not_kept", "nothing_taken"].iter().any(|cause| run["disturbed"] == *cause);
        is_told || is_none && run["verdict"]["limited_by"] == "others"
    };
    let runs = row["runs"].as_array();
    runs.is_some_and(|runs| {
        !runs.is_empty() && runs.iter().filter(starved).count() * 2 >= runs.len()
    })
}

/// What it said on its standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The longest that anything may take to end after what should end it: reached only by a test
/// that fails.
pub const SOON: Duration = Duration::from_secs(60);

/// Whether a process is there. One that has ended and was not waited for yet is no process any more.
pub fn is_running(id: &u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Waits for something that nobody announces.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let by = std::time::Instant::now() + SOON;
    while !done() {
        assert!(std::time::Instant::now() < by, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends Ctrl-C's signal to a process that this test started.
#[cfg(unix)]
pub fn interrupt(id: u32) {
    signal(id, Signal::SIGINT);
}

/// Kills a process that this test, or a process of its own, started.
#[cfg(unix)]
pub fn kill(id: u32) {
    signal(id, Signal::SIGKILL);
}

/// Stops a process that this test started, as a machine that hangs does.
#[cfg(unix)]
pub fn freeze(id: u32) {
    signal(id, Signal::SIGSTOP);
}

#[cfg(unix)]
fn signal(id: u32, signal: Signal) {
    // Nobody has waited for the process yet, so the id is still its own.
    let id = i32::try_from(id).expect("a process id");
    signal::kill(Pid::from_raw(id), signal).unwrap();
}

/// Waits for its end, no longer than [`SOON`].
pub fn ends(child: Child) -> Output {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    ended.recv_timeout(SOON).expect("it ends in time").expect("it can be waited for")
}

/// A flood of any pace that would last a minute, once it is on; with `more` words.
pub fn flood_under_way(more: &[&str]) -> Child {
    under_way(&[&["--any-pace"], more].concat())
}

/// The same whose pace counts.
pub fn under_way(more: &[&str]) -> Child {
    let mut child = weir(&["flood", "127.0.0.1", "-t", "60", "-i", "20ms", "--json"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    // From, to, sent/s: of an interval in which it had a core, as it may have none in the first.
    let has_sent = |line: String| {
        let mut figures = line.split_whitespace().map_while(|word| word.parse::<f64>().ok());
        figures.nth(2).is_some_and(|sent_per_s| sent_per_s > 0.0)
    };
    assert!(lines.any(|line| line.is_ok_and(has_sent)), "it has sent");
    // The rest must be read on, or it would wait.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// A server that listens; it is ended when dropped.
pub struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    /// Its port.
    pub port: u16,
    /// Its control channel, if it has one.
    pub control: String,
}

impl Server {
    /// Starts it with a control channel on ports of its own.
    pub fn start(more: &[&str]) -> Self {
        let mut command = weir(&["serve", "udp"]);
        command.args(["--control", "127.0.0.1:0"]).args(more);
        Self::begin(command)
    }

    /// Starts it from a command that lacks what all servers of tests have.
    pub fn begin(mut command: Command) -> Self {
        let mut child = command
            .args(["--bind", "127.0.0.1:0", "--json", "--interval", "0", "--end-with-input"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a ready line");
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut errors = String::new();
            let _ = child.stderr.take().expect("piped").read_to_string(&mut errors);
            panic!("{error} in {line:?}; it said {errors:?}")
        });
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        let address = text(&ready["ready"]["addresses"][0]);
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let control = ready["ready"]["control"].as_str().unwrap_or_default().to_owned();
        Self { child, lines, port, control }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
    }

    /// Closes its input, which ends it.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end; gives its exit code, if it had one, and its last line.
    pub fn end(mut self) -> (Option<i32>, Value) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("its output can be read");
        let code = self.child.wait().expect("it can be waited for").code();
        let last = rest.lines().last().map(serde_json::from_str);
        (code, last.and_then(Result::ok).unwrap_or(Value::Null))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
