//! select of Winsock, with sets of any size.

mod indexed;
mod sets;

pub use indexed::SelectIndexed;
pub(super) use sets::Sets;

use crate::readiness::wake_event::WakeEvent;
use std::os::windows::io::AsRawSocket;
use windows_sys::Win32::Networking::WinSock::SOCKET;

/// What stands in a set.
pub(super) fn of(socket: &impl AsRawSocket) -> SOCKET {
    socket.as_raw_socket() as SOCKET
}

pub(super) fn of_wake_event(wake_event: &WakeEvent) -> SOCKET {
    wake_event.raw()
}
