//! Checks that run several at a time, each in a process of its own: this program, started again for the
//! one check. So each still has the descriptors, threads and ports of its process to itself, and a crash
//! fails the one check that made it, with what it said.
//!
//! With `--test-threads 1` they run one after the other in this process, where a debugger finds them.

use super::{
    alone,
    suite::{Ready, Skipped, Suite},
};
use libtest_mimic::Arguments;
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio, exit},
    sync::{PoisonError, RwLock},
    time::Duration,
};

/// Has the name of the check that a process is there for.
const ONLY: &str = "WEIR_SUITE_ONLY";

/// Exit code of a process whose check does not apply; why is what it said.
const SKIPPED: i32 = 77;

/// How many run at a time, unless told otherwise: they mostly wait, so more than there are cores.
const AT_ONCE_PER_CORE: usize = 7;

/// A suite of such checks. One that takes longer than this counts as one that never ends. Those for which
/// `quiet` is true of their name run when no other does.
pub fn suite(longest: Duration, quiet: impl Fn(&str) -> bool + Send + Sync + 'static) -> Suite {
    if let Ok(name) = env::var(ONLY) {
        return only(name, longest);
    }
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if *arguments.test_threads.get_or_insert(cores * AT_ONCE_PER_CORE) == 1 {
        return alone::suite(longest);
    }
    let turns = RwLock::new(());
    Suite::new(arguments, move |name, _| {
        // What another check's panic says of the lock concerns nobody: it guards time, no value.
        let (_together, _alone);
        match quiet(name) {
            true => _alone = turns.write().unwrap_or_else(PoisonError::into_inner),
            false => _together = turns.read().unwrap_or_else(PoisonError::into_inner),
        }
        in_its_process(name)
    })
}

/// Whether this process may come to checks of this row.
pub fn concerns(row: &str) -> bool {
    env::var(ONLY).map_or(true, |name| name.split_once("::").is_some_and(|(_, its)| its == row))
}

fn in_its_process(name: &str) -> Result<(), Skipped> {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .env(ONLY, name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("this program cannot be started again: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        Some(SKIPPED) => Err(Skipped(said.trim_end().to_owned())),
        _ => panic!("its process ended with {}:\n{said}", output.status),
    }
}

/// The suite of a process that is there for one check.
fn only(name: String, longest: Duration) -> Suite {
    let arguments = Arguments {
        exact: true,
        filter: Some(name),
        test_threads: Some(1),
        ..Arguments::default()
    };
    Suite::new(arguments, move |name, check: Ready| {
        let ended = catch_unwind(AssertUnwindSafe(|| alone::checked(name, longest, check)));
        exit(match ended {
            Ok(Ok(())) => 0,
            Ok(Err(Skipped(why))) => {
                eprintln!("{why}");
                SKIPPED
            }
            Err(_) => 101, // and the panic has been told
        })
    })
}
