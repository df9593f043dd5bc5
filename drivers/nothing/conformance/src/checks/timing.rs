//! When I/O completes, in which order, and in which interrupt. An emulated machine is slow and lets its
//! CPUs wait for each other, the more on a machine that is busy with other things: so upper bounds of time are there for
//! what hangs only.

use super::between;
use crate::{
    abi::{Completion, Dispatch, Mode, Nothing, answer, pending_modes},
    ring::{Operation, Ring},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

const DELAY: Duration = Duration::from_millis(100);
const DELAY_NS: u64 = 100_000_000;
const COUNT: usize = 10;

/// No I/O is over before its delay.
pub fn delay(_: &Path) -> Result<()> {
    const LATE: Duration = Duration::from_secs(60);
    for mode in pending_modes() {
        let nothing = Nothing::set_up(mode.with(0, DELAY_NS))?;
        let start = Instant::now();
        nothing.read(&mut [0; 8])?;
        between(&format!("{mode:?}: a read"), start.elapsed(), DELAY, LATE)?;
        let start = Instant::now();
        nothing.do_nothing()?;
        between(&format!("{mode:?}: an ioctl"), start.elapsed(), DELAY, LATE)?;
        let mut ring = Ring::new(4)?;
        for operation in [Operation::Read(8), Operation::Command] {
            let start = Instant::now();
            ring.submit(nothing.fd(), operation, 1, false)?;
            ring.ends(1)?;
            between(&format!("{mode:?}: {operation:?}"), start.elapsed(), DELAY, LATE)?;
        }
    }
    Ok(())
}

/// Has so many reads pending at once, and says how long all took and in which order they ended.
fn together(mode: Mode, count: usize) -> Result<(Duration, Vec<u64>)> {
    let nothing = Nothing::set_up(mode.with(0, DELAY_NS))?;
    let mut ring = Ring::new(count as u32)?;
    let start = Instant::now();
    ring.submit(nothing.fd(), Operation::Read(8), count, false)?;
    let ends = ring.ends(count)?;
    Ok((start.elapsed(), ends.iter().map(|end| end.number).collect()))
}

/// In parallel, all delays run at once: of so many that one after the other they would take half a minute.
pub fn parallel(_: &Path) -> Result<()> {
    const MANY: usize = 300;
    for mode in pending_modes().filter(|mode| mode.1 == Dispatch::Parallel) {
        let (time, _) = together(mode, MANY)?;
        between(&format!("{mode:?}: all"), time, DELAY, DELAY * MANY as u32)?;
    }
    Ok(())
}

/// In sequence, one after the other, in the order of issue.
pub fn sequential(_: &Path) -> Result<()> {
    for mode in pending_modes().filter(|mode| mode.1 == Dispatch::Sequential) {
        let (time, order) = together(mode, COUNT)?;
        ensure!(time >= DELAY * COUNT as u32, "{mode:?}: all took {time:?}");
        ensure!(order.is_sorted(), "{mode:?}: ended in the order {order:?}");
        // Threads have one queue, too.
        let nothing = Nothing::set_up(mode.with(0, DELAY_NS))?;
        let start = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| -> io::Result<usize> { nothing.read(&mut [0; 8]) }))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("it does not panic").map(drop))
        })?;
        ensure!(start.elapsed() >= DELAY * 4, "{mode:?}: threads took {:?}", start.elapsed());
    }
    Ok(())
}

/// A row of /proc/interrupts: how many each CPU took.
fn taken(row: &str) -> Result<Vec<u64>> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(row)?.strip_prefix(':'))
        .with_context(|| format!("/proc/interrupts has no {row}"))?;
    Ok(line.split_whitespace().map_while(|word| word.parse().ok()).collect())
}

/// Reads of which interrupts are counted.
const READS: u64 = 500;

/// How many interrupts of this row each CPU takes for so many reads.
fn for_reads(mode: Mode, row: &str) -> Result<Vec<u64>> {
    let nothing = Nothing::set_up(mode.with(0, 0))?;
    let before = taken(row)?;
    for _ in 0..READS {
        nothing.read(&mut [0; 8])?;
    }
    let after = taken(row)?;
    ensure!(nothing.count()?.strayed == 0, "{mode:?}: strayed");
    Ok(after.iter().zip(before).map(|(after, before)| after - before).collect())
}

/// Completions come from where was set: the interrupt of this CPU's timer, a call to another CPU, or
/// neither.
pub fn interrupts(_: &Path) -> Result<()> {
    // A thread of its own, as it stays on one CPU.
    thread::scope(|scope| {
        scope
            .spawn(|| {
                on_first_cpu()?;
                for dispatch in [Dispatch::Parallel, Dispatch::Sequential] {
                    let timers = for_reads(Mode(Completion::Timer, dispatch), "LOC")?;
                    ensure!(
                        timers[0] >= READS && timers[1] < READS,
                        "timers for {READS} reads: {timers:?}"
                    );
                    let calls = for_reads(Mode(Completion::OtherCpu, dispatch), "CAL")?;
                    // Here may be as many: some kernels wake who waits by a call, too (seen on 6.12). There a
                    // CPU that is on its way to sleep and still polls is called without an interrupt.
                    ensure!(calls[1] > READS / 10, "calls for {READS} reads: {calls:?}");
                    let work = for_reads(Mode(Completion::Work, dispatch), "CAL")?;
                    ensure!(
                        work.iter().all(|count| *count < READS),
                        "calls for {READS} reads by work: {work:?}"
                    );
                }
                Ok(())
            })
            .join()
            .expect("it does not panic")
    })
}

/// Keeps this thread on CPU 0.
fn on_first_cpu() -> io::Result<()> {
    // SAFETY: all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is within the set.
    unsafe { libc::CPU_SET(0, &mut set) };
    // SAFETY: the set is ours for the length of the call.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    answer(result as isize).map(drop)
}
