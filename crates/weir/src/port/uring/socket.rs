//! A socket of a port of datagrams, and what is told of its operations, receives and sends alike.

use crate::{
    memory::Slice,
    port::{Completion, Key, Outcome, SocketId, Token},
    ring,
    socket::{DatagramSocket, native::Native},
};
use io_uring::{opcode, squeue, types};

/// A socket of the port.
pub(super) struct Associated {
    pub socket: DatagramSocket,
    pub key: Key,
    /// Its place in the ring's table of files, where it has one: then the kernel need not look
    /// the descriptor up for each operation.
    pub file: Option<u32>,
    /// Its receives in the kernel's hands.
    pub armed: u32,
    /// The last sweep found it empty, or had no receive for it.
    pub dry: bool,
    /// Its receives that wait for their turn, the latest on top: its slice is still in a cache.
    pub waiting: Vec<ring::Token>,
}

impl Associated {
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// The entry of a send of what a header says.
    #[inline]
    pub(super) fn send_entry(&self, header: *const libc::msghdr) -> squeue::Entry {
        let native = self.socket.native();
        let entry = match self.file {
            Some(file) => opcode::SendMsg::new(types::Fixed(file), header),
            None => opcode::SendMsg::new(types::Fd(native.fd()), header),
        };
        entry.flags(send_flags(native)).build()
    }
}

/// How a send waits for room: in the kernel's hands, or not where it would be for a peer who takes nothing.
#[inline]
fn send_flags(native: &Native) -> u32 {
    if native.is_local() { libc::MSG_DONTWAIT as u32 } else { 0 }
}

/// What is told of one that has ended.
#[inline]
pub(super) fn operation(
    token: ring::Token,
    socket: u32,
    key: Key,
    slice: Slice,
    outcome: Outcome,
) -> Completion {
    let (token, socket) = (Token(token.user_data()), SocketId(socket));
    Completion::Operation { token, socket, key, slice, outcome }
}

/// What the kernel answers where an operation was cancelled, also for those of a thread that has exited.
pub(super) fn is_interrupted(errno: i32) -> bool {
    matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN)
}
