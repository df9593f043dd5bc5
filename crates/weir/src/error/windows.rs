//! What to do about what Windows answers.

use std::io;
use windows_sys::Win32::Networking::WinSock::WSAEMFILE;

pub(super) fn advice(source: &io::Error) -> Option<&'static str> {
    (source.raw_os_error()? == WSAEMFILE).then_some("end programs that hold many sockets")
}
