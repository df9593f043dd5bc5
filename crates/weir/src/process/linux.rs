//! The death signal of Linux.

use std::{io, os::unix::process::CommandExt, process::Command};

pub(super) fn end_with_this_thread(command: &mut Command) {
    // SAFETY: getpid takes nothing and cannot fail.
    let parent = unsafe { libc::getpid() };
    let in_the_child = move || {
        // SAFETY: prctl with PR_SET_PDEATHSIG takes a number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid takes nothing and cannot fail.
        if unsafe { libc::getppid() } != parent {
            // It ended before the signal was asked for, so nobody will send it.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls that are safe there; it
    // takes no lock and allocates nothing.
    unsafe { command.pre_exec(in_the_child) };
}
