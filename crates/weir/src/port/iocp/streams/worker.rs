//! A thread's place at the port.

use super::{
    super::{place::Place, table::Started},
    operations::{Connected, Header, Inserted, Listening, Operations, cancel_on},
};
use crate::{
    counters::Counters,
    lifecycle::lock,
    memory::{Load, Slice},
    port::{
        Cancelled, Refused, Token,
        overlapped::{self, Begun, Progress},
        streams::{Closing, ListenerId, StreamId, Taken, Worker},
    },
    stream::Stream,
};
use socket2::Socket;
use std::{
    io,
    mem::ManuallyDrop,
    os::windows::io::{AsRawSocket, FromRawSocket},
    sync::{Arc, TryLockError},
    time::Duration,
};
use windows_sys::Win32::Networking::WinSock::{SOCKET, WSA_OPERATION_ABORTED};

/// A thread's place at an [`IocpStreamsPort`](super::IocpStreamsPort).
pub struct IocpStreamsWorker<'a>(pub(super) Place<'a, Operations>);

impl IocpStreamsWorker<'_> {
    /// The kernel has what was started, or does not: then it comes back all the same, and tells why.
    #[inline]
    fn begun(&mut self, started: Started<Header>, begun: Begun) -> Token {
        self.0.called(1);
        match begun {
            Ok(progress) => self.0.started(started.address(), progress == Progress::Over),
            Err(code) => self.refuse(&started, code),
        }
        Token(started.token.user_data())
    }

    #[cold]
    fn refuse(&self, started: &Started<Header>, code: i32) {
        self.0.with(|state| state.operations.refuse(started.token, code));
        self.0.port.queue.post_surely(started.address());
    }

    /// Puts something on a connection into its slot, and calls for it, both in its turn.
    #[inline]
    fn start<T, B>(
        &mut self,
        stream: StreamId,
        given: T,
        insert: impl FnOnce(&mut Operations, T) -> Inserted<B, T>,
        call: impl FnOnce(&Connected, &Started<Header>, B) -> Begun,
    ) -> Result<Token, (T, Refused)> {
        let (started, begun) = loop {
            let mut state = self.0.port.lock();
            let operations = &mut state.as_mut().expect("there until the port goes").operations;
            let connected = match self.0.open().and_then(|()| operations.connected(stream)) {
                Ok(connected) => connected,
                Err(refused) => return Err((given, refused)),
            };
            let _turn = match connected.turn.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
                // Another thread is in a call for this connection. Those of other connections do not wait for that.
                Err(TryLockError::WouldBlock) => {
                    drop(state);
                    drop(lock(&connected.turn));
                    continue;
                }
            };
            let (started, with) = insert(operations, given)?;
            drop(state);
            let begun = call(&connected, &started, with);
            break (started, begun);
        };
        Ok(self.begun(started, begun))
    }

    /// Puts an accept with this socket into its slot, and calls for it.
    #[inline]
    fn call_accept(
        &self,
        listener: ListenerId,
        listening: &Listening,
        socket: io::Result<Socket>,
        used: bool,
    ) -> Result<(Started<Header>, Begun), Refused> {
        let (socket, refused) = match socket {
            Ok(socket) => (Some(socket), None),
            Err(e) => (None, e.raw_os_error()),
        };
        let raw = socket.as_ref().map(AsRawSocket::as_raw_socket);
        let (started, addresses) =
            self.0.with(|state| state.operations.accept(listener, socket, used))?;
        let begun = match (raw, &listening.accepting) {
            // SAFETY: the addresses lie in the slot, which stays as it is with the block until its packet is taken,
            // and both are leaked where that never happens; so does the socket, which is closed behind them.
            (Some(raw), Some(accepting)) => unsafe {
                let block = started.block;
                let (count, operation) =
                    (&raw mut (*block).with.flags, &raw mut (*block).overlapped);
                let socket = ManuallyDrop::new(Socket::from_raw_socket(raw));
                accepting.accept(&listening.listener, &socket, addresses, count, operation)
            },
            (Some(_), None) => Err(WSA_OPERATION_ABORTED),
            (None, _) => Err(refused.unwrap_or(WSA_OPERATION_ABORTED)),
        };
        Ok((started, begun))
    }

    #[inline]
    fn start_receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Result<Token, (Option<Slice>, Refused)> {
        let insert = |operations: &mut Operations, slice| operations.receive(stream, slice);
        // SAFETY: the buffer is that of the slice in the slot, which stays there with the block until its packet is
        // taken, and both are leaked where that never happens.
        self.start(stream, slice, insert, |connected, started, buffer| unsafe {
            let block = started.block;
            let (flags, operation) = (&raw mut (*block).with.flags, &raw mut (*block).overlapped);
            overlapped::receive(connected.stream.native().raw(), buffer, flags, operation)
        })
    }
}

impl Worker for IocpStreamsWorker<'_> {
    fn take(
        &mut self,
        out: &mut Taken,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        self.0.take(out, timeout, counters)
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        self.0.open()?;
        let listening = self.0.with(|state| state.operations.listening(listener))?;
        let (used, calls) = self
            .0
            .with(|state| (state.operations.used_socket(listener), state.operations.take_calls()));
        self.0.called(calls);
        if let Some(socket) = used {
            let (started, begun) = self.call_accept(listener, &listening, Ok(socket), true)?;
            if begun.is_ok() {
                return Ok(self.begun(started, begun));
            }
            // The system does not take it after all: it is closed.
            self.0.called(1);
            self.0.with(|state| state.operations.take_back(started.token));
        }
        self.0.called(1);
        let socket = overlapped::socket_for(&listening.listener);
        let (started, begun) = self.call_accept(listener, &listening, socket, false)?;
        Ok(self.begun(started, begun))
    }

    #[inline]
    fn receive(&mut self, stream: StreamId, slice: Slice) -> Result<Token, (Slice, Refused)> {
        let started = self.start_receive(stream, Some(slice));
        started.map_err(|(slice, refused)| (slice.expect("the one that was given"), refused))
    }

    #[inline]
    fn wait_to_receive(&mut self, stream: StreamId) -> Result<Token, Refused> {
        self.start_receive(stream, None).map_err(|(_, refused)| refused)
    }

    #[inline]
    fn send(&mut self, stream: StreamId, load: Load) -> Result<Token, (Load, Refused)> {
        debug_assert!(!load.left().is_empty(), "a send of nothing");
        let insert = |operations: &mut Operations, load| operations.send(stream, load);
        // SAFETY: as for a receive.
        self.start(stream, load, insert, |connected, started, bytes| unsafe {
            let operation = &raw mut (*started.block).overlapped;
            overlapped::send(connected.stream.native().raw(), bytes, operation)
        })
    }

    fn close(&mut self, stream: StreamId, counters: &Counters) -> Closing {
        let (closing, cancel) = self.0.with(|state| state.operations.close(stream));
        if let Some(connected) = cancel {
            // Behind whatever is just being started. It stays open meanwhile, and so its number is no other's.
            let _turn = lock(&connected.turn);
            counters.kernel_entries.one();
            cancel_on(connected.stream.native().raw());
        }
        closing
    }

    fn let_go(&mut self, stream: Stream, counters: &Counters) {
        if self.0.open().is_err() || !self.0.with(|state| state.operations.reuses()) {
            return;
        }
        let Some(native) = Arc::into_inner(stream.native) else { return };
        let Some((socket, lease)) = native.ended_in_order(counters) else { return };
        let raw = socket.as_raw_socket() as SOCKET;
        let started = self.0.with(|state| state.operations.disconnect(socket, &lease));
        let Some((started, how)) = started else { return };
        counters.kernel_entries.one();
        // SAFETY: the block stays as it is with the slot until its packet is taken, and is leaked where that never
        // happens. The socket lies in the slot, where it is closed only when the port stops, which no thread outlives.
        let begun = unsafe { how.disconnect(raw, &raw mut (*started.block).overlapped) };
        let result = match begun {
            Ok(Progress::Over) if self.0.skip => Ok(0),
            Ok(_) => return, // its packet follows
            Err(code) => Err(code),
        };
        self.0.with(|state| state.operations.disconnected(started.token, result));
    }

    /// Everything is known to the kernel when it was started.
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.0.count(counters);
        Ok(())
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        match self.0.with(|state| state.operations.cancel(token)) {
            None => Cancelled::Gone,
            Some(first) => {
                counters.kernel_entries.add(first.into());
                Cancelled::Asked
            }
        }
    }

    fn blocking<R>(&mut self, counters: &Counters, f: impl FnOnce() -> R) -> io::Result<R> {
        Ok(self.0.blocking(counters, f))
    }
}
