//! Children that misbehave, played by the shell.

use super::*;
use serde_json::Value;

const NAME: &str = "the server";

fn shell(script: &str) -> (Child, Interrupt) {
    let interrupt = Interrupt::new();
    let command = CommandLine::new("/bin/sh").arguments(["-c", script]);
    (Child::spawn(NAME, &command, &interrupt).unwrap(), interrupt)
}

fn within(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

/// Whether a process of that id exists and is not merely waiting to be collected.
pub(crate) fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn documents_come_line_by_line() {
    let (mut child, _) = shell(r#"echo '{"ready":1}'; echo '{"report":2}'"#);
    let first: Value = child.document("ready line", within(60_000)).unwrap();
    let second: Value = child.document("report", within(60_000)).unwrap();
    assert_eq!((&first["ready"], &second["report"]), (&Value::from(1), &Value::from(2)));
    assert!(child.finish(within(60_000)).unwrap().success());
}

#[test]
fn a_document_may_go_over_several_lines() {
    let (mut child, _) = shell(r#"printf '{\n "a": 1,\n "b": [\n2]}\n'; exit 3"#);
    let value: Value = child.whole_document("report", within(60_000)).unwrap();
    assert_eq!(value["b"][0], 2);
    assert_eq!(child.finish(within(60_000)).unwrap().code(), Some(3));
}

#[test]
fn a_child_that_hangs_is_ended_at_its_deadline() {
    let (mut child, _) = shell("echo starting >&2; exec sleep 100");
    let id = child.id();
    assert!(is_running(id));
    let error = child.document::<Value>("ready line", within(200)).unwrap_err();
    assert!(matches!(error, ChildError::Deadline { .. }));
    let text = error.to_string();
    assert!(text.starts_with("the server was ended: no ready line within "), "{text}");
    drop(child);
    assert!(!is_running(id), "it must not outlive its run");
}

#[test]
fn a_child_that_hangs_after_its_report_is_ended_too() {
    let (mut child, _) = shell("echo '{}'; exec sleep 100");
    let id = child.id();
    child.document::<Value>("report", within(60_000)).unwrap();
    assert!(matches!(child.finish(within(100)), Err(ChildError::Deadline { .. })));
    assert!(!is_running(id));
}

#[test]
fn a_child_that_closes_its_output_and_stays_is_ended() {
    let (child, _) = shell("exec >&-; exec sleep 100");
    let id = child.id();
    assert!(matches!(child.finish(within(200)), Err(ChildError::Deadline { .. })));
    assert!(!is_running(id));
}

#[test]
fn a_crash_is_reported_with_what_it_said() {
    let (mut child, _) = shell("echo 'thread panicked' >&2; echo 'at line 7' >&2; exit 101");
    let error = child.document::<Value>("report", within(60_000)).unwrap_err().to_string();
    assert!(error.contains("ended with exit status: 101 before its report"), "{error}");
    assert!(error.ends_with("it said: thread panicked | at line 7"), "{error}");
    let (mut child, _) = shell("kill -9 $$");
    let error = child.document::<Value>("report", within(60_000)).unwrap_err().to_string();
    assert!(error.contains("signal: 9"), "{error}");
}

#[test]
fn only_the_end_of_a_long_standard_error_is_kept() {
    let kept = Mutex::new(VecDeque::new());
    let long = "x".repeat(100_000) + "the end";
    keep_end(long.as_bytes(), &kept);
    let kept: Vec<u8> = kept.into_inner().unwrap().into();
    assert_eq!(kept.len(), STDERR_KEPT_BYTES);
    assert!(kept.ends_with(b"the end"));
}

#[test]
fn garbage_is_quoted() {
    let (mut child, _) = shell("echo 'Segmentation fault'; exec sleep 100");
    let error = child.document::<Value>("report", within(60_000)).unwrap_err().to_string();
    assert!(
        error.contains("something other than its report") && error.contains("Segmentation"),
        "{error}"
    );
    let (mut child, _) = shell(r"printf '\377\376\n'");
    let error = child.document::<Value>("report", within(60_000)).unwrap_err();
    assert!(matches!(error, ChildError::Garbage { .. }), "{error}");
}

#[test]
fn a_line_without_end_is_bounded() {
    let (sender, events) = sync_channel(4);
    std::thread::spawn(move || read_lines(std::io::repeat(b'x').take(LONGEST_LINE_BYTES), &sender));
    assert_eq!(events.recv().unwrap(), Event::Unreadable);
}

#[test]
fn what_a_child_says_of_its_failure_is_passed_on() {
    let (mut child, _) =
        shell(r#"echo '{"error":{"unavailable":true,"message":"io_uring is forbidden"}}'; exit 5"#);
    let error = child.document::<Value>("ready line", within(60_000)).unwrap_err();
    assert_eq!(error.to_string(), "io_uring is forbidden");
    assert!(matches!(error, ChildError::Reported(failure) if failure.unavailable));
}

#[test]
fn an_early_end_without_a_word_is_reported() {
    let (mut child, _) = shell("exit 0");
    let error = child.whole_document::<Value>("report", within(60_000)).unwrap_err().to_string();
    assert_eq!(error, "the server ended with exit status: 0 before its report");
}

#[test]
fn an_interrupt_wakes_who_waits_and_ends_the_child() {
    let (mut child, interrupt) = shell("exec sleep 100");
    let id = child.id();
    let raiser = std::thread::spawn(move || interrupt.raise());
    let error = child.document::<Value>("ready line", within(60_000)).unwrap_err();
    assert!(matches!(error, ChildError::Interrupted));
    raiser.join().unwrap();
    drop(child);
    assert!(!is_running(id));
}

#[test]
fn nothing_is_started_after_an_interrupt() {
    let interrupt = Interrupt::new();
    interrupt.raise();
    let command = CommandLine::new("/bin/sh").arguments(["-c", "exit 0"]);
    assert!(matches!(Child::spawn(NAME, &command, &interrupt), Err(ChildError::Interrupted)));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let command = CommandLine::new("/nowhere/weir").arguments(["serve"]);
    let error = Child::spawn(NAME, &command, &Interrupt::new()).err().unwrap().to_string();
    assert!(error.contains("/nowhere/weir serve") && error.contains("No such file"), "{error}");
}

#[test]
fn a_child_that_watches_its_input_ends_with_us() {
    let (child, _) = shell("read line; exit 7");
    assert_eq!(child.finish(within(60_000)).unwrap().code(), Some(7));
}

#[test]
fn a_child_that_listens_is_spoken_with() {
    let (mut child, _) = shell("while read line; do echo \"[$line]\"; done");
    for n in [1, 2] {
        child.say(&n.to_string());
        let answer: Vec<u32> = child.document("answer", within(60_000)).unwrap();
        assert_eq!(answer, [n]);
    }
    assert!(child.finish(within(60_000)).unwrap().success());
}

#[test]
fn a_child_that_ended_may_have_said_why() {
    let (mut child, _) = shell("echo '{\"error\":\"no socket\"}'; exit 7");
    child.say("hello");
    let error = child.document::<Value>("answer", within(60_000)).unwrap_err().to_string();
    assert_eq!(error, "no socket");
    child.say("hello");
    let error = child.document::<Value>("answer", within(60_000)).unwrap_err().to_string();
    assert!(error.contains("exit status: 7"), "{error}");
}

#[test]
fn a_child_of_which_no_word_is_expected_is_quoted_when_it_ends() {
    let line = CommandLine::parse("/bin/sh -c 'echo chatter; read go; echo ouch; exit 4'").unwrap();
    let mut child = Child::spawn_foreign(NAME, &line, false, &Interrupt::new()).unwrap();
    child.is_alive_after("end", Duration::from_millis(1)).unwrap();
    child.say("go");
    let error = child.is_alive_after("end", Duration::from_secs(60)).unwrap_err().to_string();
    assert!(error.contains("exit status: 4") && error.contains("chatter | ouch"), "{error}");
}

#[test]
fn a_foreign_program_is_not_told_the_key() {
    let line = CommandLine::parse("/bin/sh -c 'echo \"${WEIR_KEY-no key}\"; exit 4'").unwrap();
    let line = line.with_key(Some("a secret"));
    let mut child = Child::spawn_foreign(NAME, &line, false, &Interrupt::new()).unwrap();
    let error = child.is_alive_after("end", Duration::from_secs(60)).unwrap_err().to_string();
    assert!(error.contains("no key") && !error.contains("a secret"), "{error}");
}
