//! What WSAEventSelect and WSAAsyncSelect have in common: which network events are asked for, and what they tell.
//!
//! Of each kind one is told, and no more before the call was made that deals with it (a receive, an accept, a send
//! that finds no room), which is told again if something is left. So an event that comes while nothing is wanted
//! of its kind is not told by itself when something is: then the socket is asked. To be told of what comes later
//! that has to be by a receive, since an event may also tell of what was received before it was taken: it is gone
//! then, and only a receive brings the next. One that leaves everything where it is (MSG_PEEK) does.

use super::{Interest, poll::native as poll};
use crate::socket::native::last_error;
use std::{io, time::Duration};
use windows_sys::Win32::Networking::WinSock::{
    FD_ACCEPT, FD_CLOSE, FD_READ, FD_WRITE, MSG_PEEK, SOCKET, SOCKET_ERROR, WSAEWOULDBLOCK, recv,
};

/// What is asked for of a connection, once and for all.
pub const OF_STREAM: i32 = (FD_READ | FD_WRITE | FD_CLOSE) as i32;

/// What is asked for of a listening socket.
pub const OF_LISTENER: i32 = FD_ACCEPT as i32;

/// What somebody is told for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    interest: Interest,
    events: u32,
}

impl Wanted {
    pub fn of_stream(interest: Interest) -> Self {
        let receive = if interest.receive { FD_READ } else { 0 };
        Self { interest, events: receive | if interest.send { FD_WRITE } else { 0 } }
    }

    pub fn of_listener() -> Self {
        Self { interest: Interest::RECEIVE, events: FD_ACCEPT }
    }

    /// Whether these events are to be told, where `closed` says what came with FD_CLOSE: an error, or 0 for an end in
    /// order, which concerns whoever receives.
    pub fn are(self, events: u32, closed: Option<i32>) -> bool {
        let over = match closed {
            None => false,
            Some(0) => self.interest.receive,
            Some(_) => self.interest != Interest::NONE,
        };
        over || events & self.events != 0
    }

    /// Asks a socket whether it is ready, and has it tell when it is.
    pub fn is_there(self, socket: SOCKET) -> io::Result<bool> {
        let Interest { receive, send } = self.interest;
        if receive && self.events & FD_READ != 0 && !would_block(socket) {
            return Ok(true);
        }
        let receive = self.events & FD_ACCEPT != 0;
        if !receive && !send {
            return Ok(false);
        }
        let mut entry = poll::Entry::of_raw(socket);
        entry.want(receive, send);
        Ok(poll::poll(&mut [entry], Some(Duration::ZERO))? > 0)
    }
}

/// Whether nothing can be received, neither bytes nor an end nor an error.
fn would_block(socket: SOCKET) -> bool {
    let mut byte = 0;
    // SAFETY: the system writes at most one byte, which outlives the call. A socket that is not open is refused.
    let count = unsafe { recv(socket, &raw mut byte, 1, MSG_PEEK) };
    count == SOCKET_ERROR && last_error() == WSAEWOULDBLOCK
}

/// What came with FD_CLOSE, if that did.
pub fn closed(events: u32, error: i32) -> Option<i32> {
    (events & FD_CLOSE != 0).then_some(error)
}
