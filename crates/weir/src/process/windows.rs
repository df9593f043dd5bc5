//! Windows would take a job object to end a program with its thread; nothing is done here yet. Threads have no
//! limit there but memory.

use super::ThreadsLeft;
use std::io;
use std::process::Command;

pub(super) fn end_with_this_thread(_command: &mut Command) {}

pub(super) fn expect_threads(_count: u32) {}

pub(super) fn threads_left() -> Option<ThreadsLeft> {
    None
}

pub(super) fn pass_signals_on() -> io::Result<()> {
    Ok(())
}

pub(super) fn pass_signals_to(_child: Option<u32>) {}
