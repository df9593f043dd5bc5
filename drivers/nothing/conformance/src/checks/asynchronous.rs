//! io_uring and Linux AIO.

use super::{refuses, workers};
use crate::{
    abi::{Completion, Counts, Dispatch, MODES, MOST_DELAY_NS, Mode, Nothing, pending_modes},
    aio::Aio,
    ring::{Operation, Ring},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const COUNT: usize = 200;

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

/// Delays worth trying in a mode.
fn delays(mode: Mode) -> &'static [u64] {
    if mode.pends() { &[0, 100_000] } else { &[0] }
}

/// Has COUNT operations done, and looks at each end.
fn operations(mode: Mode, delay_ns: u64, operation: Operation, worker: bool) -> Result<Counts> {
    let nothing = Nothing::set_up(mode.with(10, delay_ns))?;
    let mut ring = Ring::new(64)?;
    ring.submit(nothing.fd(), operation, COUNT, worker)?;
    let ends = ring.ends(COUNT)?;
    let mut seen = [false; COUNT];
    let bytes = if operation == Operation::Command { 0 } else { 10 };
    for end in &ends {
        ensure!(end.result == bytes, "{mode:?}: {end:?} instead of {bytes}");
        ensure!(!seen[end.number as usize], "{mode:?}: {end:?} came twice");
        seen[end.number as usize] = true;
        if bytes > 0 {
            let buffer = ring.buffer(end.number);
            ensure!(buffer[..10] == [0; 10], "{mode:?}: {end:?} did not bring zeroes");
            ensure!(buffer[10..].iter().all(|byte| *byte == 0xA5), "{mode:?}: wrote too far");
        }
    }
    let counts = nothing.count()?;
    let (ended, other) = if mode.pends() {
        (counts.completed, counts.inlined)
    } else {
        (counts.inlined, counts.pended)
    };
    ensure!(ended == COUNT as u64 && other == 0, "{mode:?}: {counts:?}");
    ensure!(
        (counts.cancelled, counts.pending, counts.strayed) == (0, 0, 0),
        "{mode:?}: {counts:?}"
    );
    Ok(counts)
}

/// Reads: every one ends once, with what it brought.
pub fn reads(_: &Path) -> Result<()> {
    for mode in MODES {
        for &delay in delays(mode) {
            operations(mode, delay, Operation::Read(64), false)?;
        }
        operations(mode, 0, Operation::Read(4096), true)?;
    }
    Ok(())
}

/// The command that does nothing.
pub fn commands(_: &Path) -> Result<()> {
    for mode in MODES {
        for &delay in delays(mode) {
            operations(mode, delay, Operation::Command, false)?;
        }
        operations(mode, 0, Operation::Command, true)?;
    }
    let nothing = Nothing::open()?;
    ensure!(nothing.count()? == Counts::default(), "a file counts what was done on others");
    Ok(())
}

/// In no mode is a worker thread needed: reads are made by who submits them.
pub fn no_worker(_: &Path) -> Result<()> {
    ensure!(workers()? == 0, "there are workers before anything was done");
    for mode in MODES {
        for operation in [Operation::Read(64), Operation::Command] {
            let counts = operations(mode, 0, operation, false)?;
            ensure!(counts.worker == 0, "{mode:?}: {counts:?}");
            ensure!(counts.nonblocking == COUNT as u64, "{mode:?}: {counts:?}");
        }
    }
    ensure!(workers()? == 0, "there are workers");
    Ok(())
}

/// And where one is asked for, there is one: so the check above would have seen it.
pub fn worker_if_asked(_: &Path) -> Result<()> {
    for mode in MODES {
        for operation in [Operation::Read(64), Operation::Command] {
            let counts = operations(mode, 0, operation, true)?;
            ensure!(counts.worker == COUNT as u64, "{mode:?}: {counts:?}");
            ensure!(workers()? > 0, "{mode:?}: no worker thread is to be seen");
        }
    }
    Ok(())
}

/// Linux AIO.
pub fn aio_reads(_: &Path) -> Result<()> {
    for mode in MODES {
        for &delay in delays(mode) {
            let nothing = Nothing::set_up(mode.with(10, delay))?;
            let mut aio = Aio::read(nothing.fd(), COUNT, 64).context("io_submit")?;
            let mut events = aio.ends(COUNT, LONG)?;
            events.sort_by_key(|event| event.number);
            ensure!(events.len() == COUNT, "{mode:?}: {} events", events.len());
            for (number, event) in events.iter().enumerate() {
                ensure!(event.number == number as u64 && event.result == 10, "{mode:?}: {event:?}");
            }
            let counts = nothing.count()?;
            ensure!(counts.inlined + counts.completed == COUNT as u64, "{mode:?}: {counts:?}");
            ensure!((counts.completed > 0) == mode.pends(), "{mode:?}: {counts:?}");
        }
    }
    Ok(())
}

/// io_cancel(2), of one that has its turn and of one that has not.
pub fn aio_cancel(_: &Path) -> Result<()> {
    for mode in pending_modes() {
        let start = Instant::now();
        let nothing = Nothing::set_up(mode.with(10, MOST_DELAY_NS))?;
        let mut aio = Aio::read(nothing.fd(), 3, 64)?;
        for number in [2, 0] {
            refuses("io_cancel", aio.cancel(number), libc::EINPROGRESS)?;
            let events = aio.ends(1, LONG)?;
            let is = events.first().map(|event| (event.number, event.result));
            ensure!(is == Some((number as u64, -i64::from(libc::ECANCELED))), "{mode:?}: {is:?}");
        }
        let events = aio.ends(1, LONG)?;
        let is = events.first().map(|event| (event.number, event.result));
        ensure!(is == Some((1, 10)), "{mode:?}: {is:?}");
        let counts = nothing.count()?;
        ensure!((counts.cancelled, counts.completed) == (2, 1), "{mode:?}: {counts:?}");
        ensure!(start.elapsed() >= Duration::from_nanos(MOST_DELAY_NS), "{mode:?}: too early");
    }
    // Too late: nothing is done twice.
    let nothing = Nothing::set_up(Mode(Completion::Timer, Dispatch::Parallel).with(10, 0))?;
    let mut aio = Aio::read(nothing.fd(), 1, 64)?;
    ensure!(aio.ends(1, LONG)?.len() == 1);
    ensure!(aio.cancel(0).is_err(), "what was over could be cancelled");
    Ok(())
}
