//! What the operating system does for a process as a whole: how many threads it gives it, and programs that are
//! started to be measured and must not outlive who measures them.

// What this module needs of an OS:
//   end_with_this_thread(&mut Command)
//   expect_threads(u32)
//   threads_left() -> Option<ThreadsLeft>
//   pass_signals_on() -> io::Result<()>, pass_signals_to(Option<u32>)
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;
mod tree;

pub use tree::{Tree, TreeUsage};

use std::io;
use std::process::Command;

/// Has the operating system kill the program that this command starts as soon as the thread that
/// starts it ends, however it ends: so that a program which heeds no pipe is not left behind by
/// a crash. Linux does it (`prctl(2)`, PR_SET_PDEATHSIG); on Windows it is not done.
///
/// It goes with the thread, not the process: start the program from one that stays. A program
/// that changes its user when it is started (set-user-ID) is not held.
pub fn end_with_this_thread(command: &mut Command) {
    native::end_with_this_thread(command);
}

/// Tells the operating system that this process will have so many threads that wait for each other.
///
/// Linux has each process keep its waiting threads in a table of its own (since 6.17), of four slots for each core:
/// with thousands of threads, each that is woken is searched for among hundreds. This asks for a slot for each thread,
/// but no more than 8192, which is 512 KiB (`PR_FUTEX_HASH_SET_SLOTS(2const)`). It never takes slots away.
pub fn expect_threads(count: u32) {
    native::expect_threads(count);
}

/// How many more threads a process may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadsLeft {
    /// So many.
    pub count: u32,
    /// The limit that is reached first, by the name that the system has for it, and its value.
    pub limit: String,
}

/// How many more threads this process may have, by the limits of the operating system that can be known; `None`
/// where none is. It reads a few small files, and the list of what the process has mapped.
///
/// Whoever starts many threads should ask: Linux refuses most of them in order, but where a process has used its
/// mappings up (`vm.max_map_count`; a thread takes four) the runtime of Rust cannot set a thread up that has
/// started already, and ends the process. A sixteenth of the mappings is left for memory that is asked for later.
pub fn threads_left() -> Option<ThreadsLeft> {
    native::threads_left()
}

/// Has signals that ask this process to end passed on to a program that it runs, from now on and for good.
///
/// On Linux these are SIGTERM, SIGHUP, SIGINT and SIGQUIT that another process sends (`kill(1)`, a service manager). Those
/// that the kernel sends, as for Ctrl-C, go to all programs in the foreground of the terminal, and so to that program
/// anyway: they are ignored here. What comes before there is a program is kept, and passed on when there is one. Elsewhere
/// nothing is done.
///
/// # Errors
/// What the system refuses.
pub fn pass_signals_on() -> io::Result<()> {
    native::pass_signals_on()
}

/// Passes them on to this process, a child that was not waited for; with `None` to nobody, once it has ended.
pub fn pass_signals_to(child: Option<u32>) {
    native::pass_signals_to(child);
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
