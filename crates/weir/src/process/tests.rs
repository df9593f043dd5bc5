use super::*;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Barrier,
    thread,
};

#[test]
fn a_program_ends_with_the_thread_that_started_it() {
    let started = thread::spawn(|| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready; exec sleep 100"]).stdout(Stdio::piped());
        end_with_this_thread(&mut command);
        let mut child = command.spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        child
    });
    let mut child = started.join().expect("it does not panic");
    let ended = child.wait().expect("it can be waited for");
    assert!(!ended.success(), "{ended}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGKILL));
}

#[test]
fn threads_that_are_left_are_known() {
    let left = threads_left().expect("Linux has limits");
    assert!(left.count > 0 && left.limit.contains(" = "), "{left:?}");
}

#[test]
fn threads_that_are_expected_have_a_slot_each() {
    expect_threads(1000);
    let Some(least) = native::slots() else {
        eprintln!("skipped: a kernel before 6.17 has no slots for each process");
        return;
    };
    assert!(least >= 1024, "{least}");
    expect_threads(10);
    assert!(native::slots() >= Some(least), "none are taken away");
}

/// Set where [`a_thread_takes_no_more_mappings_than_is_said`] runs in a process of its own.
const ALONE: &str = "WEIR_TEST_ALONE";

#[test]
fn a_thread_takes_no_more_mappings_than_is_said() {
    const THREADS: u64 = 300;
    // Memory pools of the C library, of which there are eight for a core at most.
    let others = 4 * 8 * thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let name = "process::tests::a_thread_takes_no_more_mappings_than_is_said";
        let output = command.args(["--exact", name]).env(ALONE, "1").output().expect("it starts");
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let before = native::mappings().expect("a list");
    let barrier = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let body = || {
                barrier.wait();
                barrier.wait();
            };
            let builder = thread::Builder::new().stack_size(128 * 1024);
            builder.spawn_scoped(scope, body).expect("a thread");
        }
        barrier.wait();
        let more = native::mappings().expect("a list") - before;
        barrier.wait();
        assert!(more <= native::MAPPINGS_OF_A_THREAD * THREADS + others, "{more}");
        assert!(more > (native::MAPPINGS_OF_A_THREAD - 1) * THREADS, "{more}: fewer would do");
    });
}

/// Set where [`what_asks_a_process_to_end_goes_to_the_program_it_runs`] runs in a process that is asked to.
const PASSES_ON: &str = "WEIR_TEST_PASSES_ON";

#[test]
fn what_asks_a_process_to_end_goes_to_the_program_it_runs() {
    const SHELL: &str = "trap 'kill $!; exit 7' TERM; sleep 100 & echo 'asked: ready'; wait";
    if let Ok(before) = std::env::var(PASSES_ON) {
        pass_signals_on().expect("signals can be heeded");
        if before == "before" {
            // SAFETY: raise takes a number. The handler that it runs is the one above.
            unsafe { libc::raise(libc::SIGTERM) };
        }
        let mut command = Command::new("/bin/sh");
        end_with_this_thread(&mut command);
        let mut child =
            command.args(["-c", SHELL]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        println!("\n{}", lines.next().expect("a line").expect("it can be read"));
        pass_signals_to(Some(child.id()));
        let ended = child.wait().expect("it can be waited for");
        pass_signals_to(None);
        std::process::exit(ended.code().unwrap_or(1));
    }
    for before in ["before", "meanwhile"] {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let name = "process::tests::what_asks_a_process_to_end_goes_to_the_program_it_runs";
        command
            .args(["--exact", name, "--nocapture"])
            .env(PASSES_ON, before)
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "asked: ready")));
        if before == "meanwhile" {
            // SAFETY: kill takes two numbers, and nobody has waited for the process yet.
            unsafe { libc::kill(process.id() as libc::pid_t, libc::SIGTERM) };
        }
        let ended = process.wait().expect("it can be waited for");
        assert_eq!(ended.code(), Some(7), "{before}: {ended}");
    }
}
