//! A thread's place at the port.

use super::{
    operations::{Associated, Header, Operations, Sockets, receive_failed, send_failed},
    place::Place,
    table::{Failed, Started},
};
use crate::{
    counters::Counters,
    memory::Slice,
    port::{Cancelled, Outcome, Refused, SocketId, Taken, Token, Worker},
    rio::{Peer, Span},
    socket::native::Done,
};
use std::{io, num::NonZeroU16, time::Duration};

/// A thread's place at an [`IocpPort`](super::IocpPort).
pub struct IocpWorker<'a> {
    place: Place<'a, Operations>,
    sockets: &'a Sockets,
    /// Receives that have their slots and are to be started.
    starting: Vec<Started<Header>>,
}

impl<'a> IocpWorker<'a> {
    pub(super) fn new(place: Place<'a, Operations>, sockets: &'a Sockets) -> Self {
        Self { place, sockets, starting: Vec::new() }
    }

    /// A socket on which something may be started.
    #[inline]
    fn socket(&self, socket: SocketId) -> Result<&'a Associated, Refused> {
        self.place.open()?;
        let associated = self.sockets.get(socket.0 as usize).and_then(|its| its.get());
        associated.ok_or(Refused::NoSuchSocket)
    }

    /// Calls for what has its slot, and is the kernel's from then on.
    #[inline]
    fn start(
        &mut self,
        started: Started<Header>,
        call: impl FnOnce(&Started<Header>) -> Result<Done, i32>,
        failed: impl FnOnce(i32) -> Outcome,
    ) {
        self.place.called(1);
        match call(&started) {
            Ok(done) => self.place.started(started.address(), done == Done::Yes),
            Err(code) => self.failed(&started, failed(code)),
        }
    }

    /// A call failed, which need not mean that the kernel has done nothing.
    #[cold]
    fn failed(&mut self, started: &Started<Header>, outcome: Outcome) {
        let skip = self.place.skip;
        match self.place.with(|state| state.operations.failed(started.token, skip)) {
            Failed::AtOnce => self.settle(started, outcome),
            Failed::AtItsEnd => self.place.started(started.address(), true),
            Failed::AndTaken => {}
        }
    }

    /// What became of an operation that the kernel does not have.
    #[cold]
    fn settle(&self, started: &Started<Header>, outcome: Outcome) {
        self.place.with(|state| state.operations.settle(started.token, outcome));
        self.place.port.queue.post_surely(started.address());
    }

    #[inline]
    fn start_receive(&mut self, associated: &Associated, started: Started<Header>) {
        // SAFETY: what the block points at lies in its slot and in itself, and stays there until its packet is taken.
        let call = |started: &Started<Header>| unsafe {
            let block = started.block;
            let message = &raw mut (*block).with.message;
            associated.socket.native().start_receive(message, &raw mut (*block).overlapped)
        };
        self.start(started, call, receive_failed);
    }

    /// Sends datagrams one by one that lie behind each other: the system does not cut them.
    #[cold]
    fn send_each(
        &self,
        associated: &Associated,
        started: &Started<Header>,
        segment: NonZeroU16,
        to: &Peer,
    ) {
        let counters = Counters::default();
        // SAFETY: the bytes lie in the slice in its slot, which nobody else has before its packet is posted.
        let bytes = unsafe { (*started.block).with.bytes() };
        let sent = associated.socket.send_segments(bytes, segment, to, &counters);
        self.place.called(counters.kernel_entries.get());
        let span = Span { len: bytes.len(), segment: Some(segment) };
        self.settle(started, sent.map_or_else(Outcome::NotSent, |()| Outcome::Sent(span)));
    }
}

impl Worker for IocpWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.place.take(out, timeout, counters)
    }

    #[inline]
    fn receive(&mut self, socket: SocketId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let associated = match self.socket(socket) {
            Ok(associated) => associated,
            Err(refused) => return Err((slice, refused)),
        };
        let started = self.place.with(|state| state.operations.receive(socket, slice))?;
        let token = Token(started.token.user_data());
        self.start_receive(associated, started);
        Ok(token)
    }

    #[inline]
    fn receive_all(&mut self, socket: SocketId, slices: &mut Vec<Slice>) -> Result<(), Refused> {
        let associated = self.socket(socket)?;
        let mut starting = std::mem::take(&mut self.starting);
        let put = self.place.with(|state| {
            while let Some(slice) = slices.pop() {
                match state.operations.receive(socket, slice) {
                    Ok(started) => starting.push(started),
                    Err((slice, refused)) => {
                        slices.push(slice);
                        return Err(refused);
                    }
                }
            }
            Ok(())
        });
        starting.drain(..).for_each(|started| self.start_receive(associated, started));
        self.starting = starting;
        put
    }

    #[inline]
    fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<Token, (Slice, Refused)> {
        let span = span.into();
        if span.len > slice.region().layout().payload {
            return Err((slice, Refused::TooLong));
        }
        let associated = match self.socket(socket) {
            Ok(associated) => associated,
            Err(refused) => return Err((slice, refused)),
        };
        let started = self.place.with(|state| state.operations.send(socket, slice, span, to))?;
        let token = Token(started.token.user_data());
        if let Some(segment) = span.segment {
            self.send_each(associated, &started, segment, to);
            return Ok(token);
        }
        // SAFETY: as for a receive.
        let call = |started: &Started<Header>| unsafe {
            let block = started.block;
            let message = &raw const (*block).with.message;
            associated.socket.native().start_send(message, &raw mut (*block).overlapped)
        };
        self.start(started, call, send_failed);
        Ok(token)
    }

    /// Everything is known to the kernel when it was started.
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.place.count(counters);
        Ok(())
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        match self.place.with(|state| state.operations.cancel(token)) {
            None => Cancelled::Gone,
            Some(first) => {
                counters.kernel_entries.add(first.into());
                Cancelled::Asked
            }
        }
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        Ok(self.place.blocking(counters, f))
    }
}
