//! The checks, and what runs them.

mod asynchronous;
mod ending;
mod settings;
mod synchronous;
mod timing;

use super::module;
use anyhow::{Result, bail, ensure};
use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The first argument of this program as a check starts it.
pub const CHILD: &str = "--child";

/// Longest time for one check, in seconds: a variable of the environment, as a kernel with checkers in an
/// emulated machine is slow.
const PATIENCE: &str = "NOTHING_PATIENCE_S";

/// A check, given where the module is. It is loaded when the check begins, and whoever unloads it
/// loads it again.
type Check = fn(&Path) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("settings/abi", settings::abi),
    ("settings/of-each-file", settings::of_each_file),
    ("settings/refused", settings::refused),
    ("settings/parameters", settings::parameters),
    ("settings/load-parameters", settings::load_parameters),
    ("settings/busy-while-pending", settings::busy_while_pending),
    ("sync/reads", synchronous::reads),
    ("sync/nonblocking", synchronous::nonblocking),
    ("sync/control", synchronous::control),
    ("sync/threads", synchronous::threads),
    ("sync/signal", synchronous::signal),
    // Before those that have workers, as they stay for a while.
    ("ring/no-worker", asynchronous::no_worker),
    ("ring/reads", asynchronous::reads),
    ("ring/commands", asynchronous::commands),
    ("ring/worker-if-asked", asynchronous::worker_if_asked),
    ("aio/reads", asynchronous::aio_reads),
    ("aio/cancel", asynchronous::aio_cancel),
    ("timing/delay", timing::delay),
    ("timing/parallel", timing::parallel),
    ("timing/sequential", timing::sequential),
    ("timing/interrupts", timing::interrupts),
    ("cancel/ring", ending::cancel_ring),
    ("cancel/waiting-thread", ending::cancel_thread),
    ("cancel/nothing", ending::cancel_nothing),
    ("limit/pending", ending::most_pending),
    ("close/pending", ending::close_pending),
    ("close/of-another", ending::close_of_another),
    ("exit/pending", ending::exit_pending),
    ("exit/registered", ending::exit_registered),
    ("unload/refused-while-open", ending::unload_while_open),
    ("unload/after-load", ending::unload_after_load),
    ("cpu/taken-away", ending::cpu_taken_away),
];

/// Runs the checks whose names contain one of `filters`, or all.
pub fn run(module: PathBuf, filters: &[String]) -> ExitCode {
    let asked = |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(part));
    let patience = std::env::var(PATIENCE).ok().and_then(|text| text.parse().ok()).unwrap_or(90);
    let patience = Duration::from_secs(patience);
    let mut passed = 0;
    let mut failed = 0;
    for (name, check) in CHECKS.iter().filter(|(name, _)| asked(name)) {
        let start = Instant::now();
        let result = bounded(name, patience, || {
            module::load(&module, "")?;
            check(&module)?;
            module::unload_when_free().map(drop)
        });
        let elapsed = start.elapsed().as_millis();
        match result {
            Ok(()) => {
                passed += 1;
                println!("pass  {name} ({elapsed} ms)");
            }
            Err(error) => {
                failed += 1;
                println!("FAIL  {name} ({elapsed} ms): {error:#}");
                // The next check begins with it unloaded.
                if module::is_loaded()
                    && let Err(error) = module::unload_when_free()
                {
                    println!("the module stays: {error:#}");
                    break;
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if passed > 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a check; ends the program if it takes too long, as what hangs cannot be taken back.
fn bounded(name: &str, most: Duration, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
                println!("FAIL  {name}: not over after {most:?}");
                process::exit(1);
            }
        });
        let result = panic::catch_unwind(AssertUnwindSafe(check));
        drop(done);
        result.unwrap_or_else(|_| bail!("panicked"))
    })
}

/// What a check has this program do in a process of its own.
pub fn child(arguments: &[String]) -> ExitCode {
    match ending::child(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// That a call failed with this error.
fn refuses<T: std::fmt::Debug>(what: &str, result: std::io::Result<T>, errno: i32) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
        other => {
            let expected = std::io::Error::from_raw_os_error(errno);
            bail!("{what}: {other:?} instead of {expected}")
        }
    }
}

/// The threads of this process that are workers of io_uring.
fn workers() -> Result<usize> {
    let mut count = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may be gone by now.
        if let Ok(name) = fs::read_to_string(task?.path().join("comm")) {
            count += usize::from(name.starts_with("iou-wrk-"));
        }
    }
    Ok(count)
}

/// That a time is at least one and less than another.
fn between(what: &str, time: Duration, least: Duration, most: Duration) -> Result<()> {
    ensure!(time >= least && time < most, "{what} took {time:?}, not {least:?} to {most:?}");
    Ok(())
}
