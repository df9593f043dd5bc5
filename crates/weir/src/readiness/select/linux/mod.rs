//! pselect6(2), by the system call: the C library's type for a set ends at 1024.

mod indexed;
mod sets;

pub use indexed::SelectIndexed;
pub(super) use sets::Sets;

use crate::readiness::wake_event::WakeEvent;
use std::os::fd::{AsRawFd, RawFd};

/// What stands in a set.
pub(super) fn of(socket: &impl AsRawFd) -> RawFd {
    socket.as_raw_fd()
}

pub(super) fn of_wake_event(wake_event: &WakeEvent) -> RawFd {
    wake_event.fd()
}

/// The place of a descriptor in what is kept by descriptor.
fn index(fd: RawFd) -> usize {
    usize::try_from(fd).expect("an open descriptor is no negative number")
}
