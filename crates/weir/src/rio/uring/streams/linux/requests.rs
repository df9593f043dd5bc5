//! What is asked of the kernel: an entry for each kind of request. Sockets are files of the ring's table.

use super::accepts::PeerAddress;
use crate::ring::Token;
use io_uring::{
    opcode,
    squeue::{Entry, Flags},
    types::{DestinationSlot, Fd, Fixed},
};
use std::os::fd::RawFd;

/// Classes of tokens.
pub(super) mod class {
    pub const RECEIVE: u8 = 1;
    pub const SEND: u8 = 2;
    pub const END: u8 = 3;
    pub const ASK: u8 = 4;
    pub const CLOSE: u8 = 5;
    pub const ACCEPT: u8 = 6;
    pub const ALARM: u8 = 7;
    /// Another ring of the queue has something.
    pub const WAKE_EVENT: u8 = 8;
    /// What nobody waits for: cancels, and options of sockets that are closed next.
    pub const OTHER: u8 = 9;
}

/// The group of buffers: a ring has one.
pub(super) const GROUP: u16 = 0;

/// The count of bytes that wait in a socket (SOCKET_URING_OP_SIOCINQ of linux/io_uring.h).
const SIOCINQ: u32 = 0;

/// Closing with it resets (socket(7), SO_LINGER).
static NO_LINGER: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };

/// An accept into a place of the table.
pub(super) fn accept(listener: RawFd, place: u32, name: *mut PeerAddress, token: Token) -> Entry {
    let into = DestinationSlot::try_from_slot_target(place).expect("a place of the table");
    let (address, len) = PeerAddress::parts(name);
    opcode::Accept::new(Fd(listener), address, len)
        .file_index(Some(into))
        .build()
        .user_data(token.user_data())
}

/// An accept of a Unix socket, into a descriptor.
pub(super) fn accept_local(listener: RawFd, name: *mut PeerAddress, token: Token) -> Entry {
    let (address, len) = PeerAddress::parts(name);
    opcode::Accept::new(Fd(listener), address, len)
        .flags(libc::SOCK_CLOEXEC)
        .build()
        .user_data(token.user_data())
}

/// A receive that goes on, each time into a buffer of the group.
pub(super) fn receive_many(place: u32, token: Token) -> Entry {
    opcode::RecvMulti::new(Fixed(place), GROUP).build().user_data(token.user_data())
}

/// A completion when something came, an end and an error included.
pub(super) fn wait_to_receive(place: u32, token: Token) -> Entry {
    let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
    opcode::PollAdd::new(Fixed(place), events).build().user_data(token.user_data())
}

/// A receive of what comes next, into a buffer of the group.
pub(super) fn receive_next(place: u32, token: Token, len: u32) -> Entry {
    receive_into_group(place, token, len, 0)
}

/// A receive of what is there, into a buffer of the group.
pub(super) fn receive_what_came(place: u32, token: Token, len: u32) -> Entry {
    receive_into_group(place, token, len, libc::MSG_DONTWAIT)
}

fn receive_into_group(place: u32, token: Token, len: u32, flags: i32) -> Entry {
    opcode::Recv::new(Fixed(place), std::ptr::null_mut(), len)
        .flags(flags)
        .buf_group(GROUP)
        .build()
        .flags(Flags::BUFFER_SELECT)
        .user_data(token.user_data())
}

/// A receive into one slice.
pub(super) fn receive_one(place: u32, token: Token, into: *mut u8, len: u32) -> Entry {
    opcode::Recv::new(Fixed(place), into, len).build().user_data(token.user_data())
}

/// A send. What finds no room waits for it, and takes a part.
pub(super) fn send(place: u32, token: Token, bytes: *const u8, len: u32) -> Entry {
    opcode::Send::new(Fixed(place), bytes, len)
        .flags(libc::MSG_NOSIGNAL)
        .build()
        .user_data(token.user_data())
}

/// A send of all of it, from where it lies.
pub(super) fn send_zero_copy(place: u32, token: Token, bytes: *const u8, len: u32) -> Entry {
    opcode::SendZc::new(Fixed(place), bytes, len)
        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
        .build()
        .user_data(token.user_data())
}

/// The end of sending.
pub(super) fn end_sending(place: u32, token: Token) -> Entry {
    opcode::Shutdown::new(Fixed(place), libc::SHUT_WR).build().user_data(token.user_data())
}

/// The count of bytes that wait.
pub(super) fn waiting(place: u32, token: Token) -> Entry {
    opcode::UringCmd16::new(Fixed(place), SIOCINQ).build().user_data(token.user_data())
}

/// Nothing: it completes in its turn.
pub(super) fn in_turn(token: Token) -> Entry {
    opcode::Nop::new().build().user_data(token.user_data())
}

/// Has the close that follows reset the connection. Nobody waits for it.
pub(super) fn reset_when_closed(place: u32) -> Entry {
    let value = (&raw const NO_LINGER).cast();
    let (level, name) = (libc::SOL_SOCKET as u32, libc::SO_LINGER as u32);
    opcode::SetSockOpt::new(Fixed(place), level, name, value, size_of::<libc::linger>() as u32)
        .build()
        .user_data(Token::bare(class::OTHER).user_data())
}

/// The close.
pub(super) fn close(place: u32, token: Token) -> Entry {
    opcode::Close::new(Fixed(place)).build().user_data(token.user_data())
}

/// A cancel. Nobody waits for it: what it cancels has a completion of its own.
pub(super) fn cancel(token: Token) -> Entry {
    opcode::AsyncCancel::new(token.user_data())
        .build()
        .user_data(Token::bare(class::OTHER).user_data())
}

/// A completion each time that an eventfd is signalled.
pub(super) fn watch(eventfd: RawFd, token: Token) -> Entry {
    opcode::PollAdd::new(Fd(eventfd), libc::EPOLLIN as u32)
        .multi(true)
        .build()
        .user_data(token.user_data())
}
