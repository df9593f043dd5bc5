//! What to do about what Linux answers.

use nix::errno::Errno;
use std::io;

pub(super) fn advice(source: &io::Error) -> Option<&'static str> {
    match Errno::from_raw(source.raw_os_error()?) {
        Errno::EMFILE => Some("raise the limit on open files (`ulimit -n`)"),
        Errno::ENFILE => Some("raise the machine's limit on open files (sysctl fs.file-max)"),
        _ => None,
    }
}
