//! What a completion of the kernel means for its connection.

use super::{one_ring::state, queue::UringStreamQueue, requests::class};
use crate::{
    memory::Slice,
    ring::Token,
    rio::{
        Batch,
        streams::{Load, Receiving, StreamCompletion, StreamQueue as _},
    },
    stream::{Accepted, native},
};
use io_uring::cqueue;
use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

impl UringStreamQueue {
    /// What a completion means: at most one of ours.
    #[inline]
    pub(super) fn completed(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let place = token.slot() as u32;
        if matches!(token.class(), class::END | class::ASK | class::CLOSE)
            && self.place(at, place).generation != token.generation()
        {
            debug_assert!(false, "a request outlived its connection");
            return;
        }
        match token.class() {
            class::RECEIVE => self.received(at, token, result, flags, out),
            class::SEND => self.sent(at, token, result, flags, out),
            class::END => {
                self.place(at, place).state &= !state::ENDING;
                if self.still_open(at, place) {
                    let connection = self.id(at, place as usize);
                    let result = checked(result).map(drop);
                    out.push(StreamCompletion::EndSent { connection, result });
                }
            }
            class::ASK => {
                self.place(at, place).state &= !state::ASKING;
                if self.still_open(at, place) {
                    let connection = self.id(at, place as usize);
                    // A connection that is broken has nothing more to come.
                    let bytes = match self.rings[at].local.get(&place) {
                        Some(stream) => stream.native().undelivered().unwrap_or(0),
                        None => result.max(0) as usize,
                    };
                    out.push(StreamCompletion::Waiting { connection, bytes });
                    self.arm(at, place);
                }
            }
            class::CLOSE => self.gone(at, place, out),
            class::ACCEPT => self.accepted(at, token, result, out),
            class::ALARM => self.alarm_armed = false,
            class::WAKE_EVENT => self.wake_armed &= cqueue::more(flags),
            _ => {}
        }
    }

    /// Whether a connection is not being closed. If it is, something of it has just ended.
    fn still_open(&mut self, at: usize, place: u32) -> bool {
        let closing = self.place(at, place).is(state::CLOSING);
        if closing {
            self.go_on_closing(at, place);
        }
        !closing
    }

    #[inline]
    fn received(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let place = token.slot() as u32;
        let shared = matches!(self.needs.receiving, Receiving::Shared { .. });
        // Whatever it says: a buffer that comes with it is ours again.
        let mut slice = None;
        if let Some(id) = cqueue::buffer_select(flags)
            && let Some(group) = &mut self.rings[at].group
        {
            // SAFETY: the kernel names it as that of a receive that is over, or goes on with others.
            slice = unsafe { self.slices.take(id, group) };
            if slice.is_none() {
                self.broken.get_or_insert_with(|| named_twice(id));
            }
        }
        if !shared {
            slice = self.take_posted(at, place);
        }
        let known = self.place(at, place);
        if known.generation != token.generation() {
            debug_assert!(false, "a receive outlived its connection");
            return self.let_go(slice);
        }
        if known.is(state::POLLING) {
            known.state &= !state::POLLING;
            if result > 0 {
                return self.something_came(at, place);
            }
        }
        if !cqueue::more(flags) {
            known.state &= !(state::RECEIVING | state::RECEIVE_CANCELLED);
        }
        if known.is(state::CLOSING) {
            self.let_go(slice);
            return self.go_on_closing(at, place);
        }
        let connection = self.id(at, place as usize);
        if result > 0
            && let Some(slice) = slice
        {
            if self.place(at, place).is(state::LOCAL)
                && let Some(stream) = self.rings[at].local.get(&place)
            {
                stream.native().delivered(result as usize);
            }
            out.push(StreamCompletion::Received { connection, slice, len: result as u32 });
            return self.arm(at, place);
        }
        self.let_go(slice);
        let over = match -result {
            libc::ENOBUFS => {
                self.counters.no_buffer.one();
                if let Some(group) = &mut self.rings[at].group {
                    group.lack(&mut self.slices);
                }
                StreamCompletion::Starved { connection }
            }
            // It was told to stop, and perhaps to go on since.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => return self.arm(at, place),
            0 => StreamCompletion::Ended { connection },
            error => {
                let error = io::Error::from_raw_os_error(error);
                StreamCompletion::Failed { connection, error }
            }
        };
        while let Some(slice) = self.take_posted(at, place) {
            self.give_back(slice);
        }
        self.place(at, place).state &= !state::WANTED;
        out.push(over);
    }

    fn let_go(&mut self, slice: Option<Slice>) {
        if let Some(slice) = slice {
            self.give_back(slice);
        }
    }

    #[inline]
    fn sent(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        flags: u32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let Some((connection, len)) = self.loads.get(token) else {
            debug_assert!(false, "a send ended twice");
            return;
        };
        let place = connection.number % self.files;
        if cqueue::notif(flags) {
            return self.read_to_the_end(at, place, token, out);
        }
        let known = self.place(at, place);
        known.state &= !(state::SENDING | state::SEND_CANCELLED);
        let mut load = None;
        if cqueue::more(flags) {
            known.notices += 1;
        } else {
            // SAFETY: its last completion.
            load = unsafe { self.loads.over(token, &self.slices.region) };
        }
        if !self.still_open(at, place) {
            return self.let_go(load.and_then(slice_of));
        }
        out.push(match checked(result) {
            // What zero copy began it finishes, unless the connection broke on the way.
            Ok(count) if load.is_none() && count < len as usize => {
                let error = io::ErrorKind::ConnectionReset.into();
                StreamCompletion::NotSent { connection, load, error }
            }
            Ok(count) => StreamCompletion::Sent { connection, load, count },
            Err(error) => StreamCompletion::NotSent { connection, load, error },
        });
    }

    /// The kernel no longer reads what zero copy sent.
    fn read_to_the_end(
        &mut self,
        at: usize,
        place: u32,
        token: Token,
        out: &mut Batch<StreamCompletion>,
    ) {
        // SAFETY: the notification is the last completion.
        let load = unsafe { self.loads.over(token, &self.slices.region) };
        let known = self.place(at, place);
        known.notices -= 1;
        let gone = known.is(state::GONE);
        match load {
            Some(load) if !gone => out.push(StreamCompletion::Returned { load }),
            load => {
                self.let_go(load.and_then(slice_of));
                self.gone(at, place, out);
            }
        }
    }

    fn accepted(
        &mut self,
        at: usize,
        token: Token,
        result: i32,
        out: &mut Batch<StreamCompletion>,
    ) {
        let Some((listener, place, peer)) = self.accepts.over(token, result >= 0) else {
            debug_assert!(false, "an accept ended twice");
            return;
        };
        if result >= 0 && self.accepts.is_local(listener) {
            // SAFETY: the kernel has just made it, for this accept.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            return self.accepted_local(at, place, listener, fd, out);
        }
        if result >= 0 {
            let known = self.place(at, place);
            known.state = state::OPEN;
            self.open += 1;
            let connection = self.id(at, place as usize);
            match peer {
                Some(peer) => {
                    out.push(StreamCompletion::Accepted { connection, peer, listener });
                }
                None => {
                    // No address of the family it was accepted from: it is of no use.
                    self.close(connection, true);
                    let error = io::ErrorKind::InvalidData.into();
                    out.push(StreamCompletion::AcceptFailed { error });
                }
            }
            return;
        }
        self.rings[at].free_place(place);
        match -result {
            libc::EINVAL => self.accepts.ended(listener),
            // We cancelled it, or it is asked for again.
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            error => {
                let error = io::Error::from_raw_os_error(error);
                if crate::stream::is_want_of_resources(&error) {
                    self.accepts.pause();
                }
                out.push(StreamCompletion::AcceptFailed { error });
            }
        }
    }
}

impl UringStreamQueue {
    /// A connection of a Unix socket goes into the table as one does that was made by other means.
    fn accepted_local(
        &mut self,
        at: usize,
        place: u32,
        listener: u32,
        fd: OwnedFd,
        out: &mut Batch<StreamCompletion>,
    ) {
        self.counters.kernel_entries.one();
        let ring = &mut self.rings[at];
        let peer = match native::Stream::adopt_unix(fd) {
            Ok(Accepted { stream, peer }) => ring.put(place, &stream).map(|()| peer),
            Err(e) => {
                ring.free_place(place);
                Err(e)
            }
        };
        match peer {
            Ok(peer) => {
                self.open += 1;
                let connection = self.id(at, place as usize);
                out.push(StreamCompletion::Accepted { connection, peer, listener });
            }
            Err(error) => out.push(StreamCompletion::AcceptFailed { error }),
        }
    }
}

/// What a completion says of a call.
fn checked(result: i32) -> io::Result<usize> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) }
}

fn slice_of(load: Load) -> Option<Slice> {
    match load {
        Load::Slice { slice, .. } => Some(slice),
        Load::Bytes { .. } => None,
    }
}

#[cold]
fn named_twice(id: u16) -> io::Error {
    io::Error::other(format!("the kernel gave back buffer {id}, which it does not hold"))
}
