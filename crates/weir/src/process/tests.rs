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
        command.args(["-c", "echo ready; exec sleep 1000"]).stdout(Stdio::piped());
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
