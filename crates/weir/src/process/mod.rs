//! Programs that are started to be measured, and must not outlive who measures them.

// What this module needs of an OS:
//   end_with_this_thread(&mut Command)
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod sys;

use std::process::Command;

/// Has the operating system kill the program that this command starts as soon as the thread that
/// starts it ends, however it ends: so that a program which heeds no pipe is not left behind by
/// a crash. Linux does it (`prctl(2)`, PR_SET_PDEATHSIG); on Windows it is not done.
///
/// It goes with the thread, not the process: start the program from one that stays. A program
/// that changes its user when it is started (set-user-ID) is not held.
pub fn end_with_this_thread(command: &mut Command) {
    sys::end_with_this_thread(command);
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
