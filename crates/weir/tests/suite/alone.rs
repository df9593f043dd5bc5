//! Checks that run one at a time, each with an end, and with a count of the descriptors of the process
//! behind it: what a check leaves open fails it.

use super::suite::{Ready, Skipped, Suite, until};
use libtest_mimic::Arguments;
use std::{fs, panic::resume_unwind, process, sync::mpsc, thread, time::Duration};

/// A suite of such checks. One that takes longer than this counts as one that never ends, and ends
/// the suite.
pub fn suite(longest: Duration) -> Suite {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    Suite::new(arguments, move |name, check| checked(name, longest, check))
}

/// Runs one.
pub fn checked(name: &str, longest: Duration, check: Ready) -> Result<(), Skipped> {
    let before = descriptors();
    let result = bounded(name, longest, check);
    until("the return of every descriptor", || descriptors() == before);
    result
}

/// Descriptors that are open, where the system tells (Linux).
pub fn descriptors() -> Option<usize> {
    // Wine shows Linux's files, of which it opens some itself as it goes.
    let told = cfg!(target_os = "linux");
    told.then(|| fs::read_dir("/proc/self/fd")).and_then(Result::ok).map(Iterator::count)
}

fn bounded(name: &str, longest: Duration, check: Ready) -> Result<(), Skipped> {
    let (over, when_over) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _over = over; // dropped in a panic, too
        check()
    });
    if when_over.recv_timeout(longest) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{name} did not end within {longest:?}");
        process::exit(101);
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
