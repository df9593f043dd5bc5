//! The operations of a port of streams: connections with what is outstanding on them, and what becomes of each.

use super::super::{
    state::Outstanding,
    table::{Started, Table, result_of},
};
use crate::{
    Error,
    memory::{Load, Slice},
    port::{
        Key, Refused, Token,
        overlapped::{self, Accepting, AddressBuffer, Addresses, Disconnecting, settled},
        streams::{
            Closing, Completion, ListenerId, Needs, Outcome, StreamId, Taken,
            connections::{Connections, received},
        },
    },
    stream::{Accepted, Listener, Stream, native::Lease},
    token,
};
use socket2::Socket;
use std::{
    io, mem,
    os::windows::io::AsRawSocket,
    ptr::{self, NonNull},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};
use windows_sys::Win32::{
    Foundation::HANDLE,
    Networking::WinSock::{SOCKET, WSA_OPERATION_ABORTED},
    System::IO::CancelIoEx,
};

/// What the kernel reads and writes beside what is sent or received.
#[repr(C)]
pub(super) struct Header {
    pub flags: u32,
}

/// An operation in its slot, with what its call is given; or what was given for it, and why it has none.
pub(super) type Inserted<B, T> = Result<(Started<Header>, B), (T, Refused)>;

/// A listening socket of the port.
pub(super) struct Listening {
    pub listener: Listener,
    key: Key,
    /// None where it listened no longer when it came.
    pub accepting: Option<Accepting>,
    /// The same. None also where no socket is used again.
    disconnecting: Option<Disconnecting>,
}

impl Listening {
    pub fn new(listener: Listener, key: Key, reuse: bool) -> Result<Self, Error> {
        let accepting =
            Accepting::on(&listener).map_err(|e| Error::io("asking for AcceptEx", e))?;
        let disconnecting = reuse.then(|| Disconnecting::on(&listener)).transpose();
        let disconnecting = disconnecting.map_err(|e| Error::io("asking for DisconnectEx", e))?;
        Ok(Self { listener, key, accepting, disconnecting: disconnecting.flatten() })
    }
}

/// A connection, for whoever starts something on it.
pub(super) struct Connected {
    pub stream: Stream,
    /// Held from where a receive has its number until it was started, so that they are filled in that order; and where
    /// all that is outstanding is cancelled, so that nothing is started behind that.
    pub turn: Mutex<()>,
}

/// A connection of the port.
struct Associated {
    connected: Arc<Connected>,
    /// Receives that have not come back.
    receives: Vec<token::Token>,
    /// Bytes that those have brought that have.
    received: u64,
}

struct Operation {
    what: What,
    /// Its cancelling was asked for.
    asked: bool,
    /// Why it was not started.
    refused: Option<i32>,
}

enum What {
    Accept {
        listener: u32,
        /// The connection to be. None where the system had no socket to give.
        socket: Option<Socket>,
        /// The socket was a connection of the port before.
        used: bool,
        addresses: Addresses,
    },
    Receive {
        /// None for a wait to receive.
        slice: Option<Slice>,
        stream: token::Token,
        number: u32,
    },
    Send {
        load: Load,
        stream: token::Token,
    },
    Disconnect {
        listener: u32,
        /// None where it was closed meanwhile.
        socket: Option<Socket>,
    },
}

/// Sockets of connections that ended in order, on their way to an accept.
struct Reuse {
    /// Which port's they are.
    port: Arc<()>,
    /// Those that are being disconnected, and those that have been. No more of them than of accepts.
    bound: Bound,
    /// Each with the listening socket that had accepted it.
    free: Vec<(u32, Socket)>,
}

/// How many may be outstanding of a kind, and are.
struct Bound {
    now: u32,
    most: u32,
}

impl Bound {
    fn of(most: u32) -> Self {
        Self { now: 0, most }
    }

    /// One more, where there may be.
    #[inline]
    fn take(&mut self) -> bool {
        let room = self.now < self.most;
        self.now += u32::from(room);
        room
    }
}

pub(super) struct Operations {
    listeners: Vec<Arc<Listening>>,
    listeners_most: u32,
    streams: Connections<Associated>,
    table: Table<Header, Operation>,
    accepts: Bound,
    receives: Bound,
    sends: Bound,
    /// None where no socket is used again.
    reuse: Option<Reuse>,
    /// Calls that were made for what had come, and are not counted yet.
    calls: u64,
}

/// The class of tokens of streams, beside that of operations.
const STREAM: u8 = 2;

impl Operations {
    pub fn take_calls(&mut self) -> u64 {
        mem::take(&mut self.calls)
    }

    pub fn new(needs: &Needs, reuse: bool) -> Self {
        let &Needs { listeners, streams, accepts, receives, sends, .. } = needs;
        let used = if reuse { accepts } else { 0 };
        let port = Arc::default();
        let reuse = reuse.then(|| Reuse { port, bound: Bound::of(used), free: Vec::new() });
        Self {
            listeners: Vec::new(),
            listeners_most: listeners,
            streams: Connections::new(STREAM, streams),
            table: Table::new([accepts, receives, sends, used].map(|of| of as usize).iter().sum()),
            accepts: Bound::of(accepts),
            receives: Bound::of(receives),
            sends: Bound::of(sends),
            reuse,
            calls: 0,
        }
    }

    /// The name of the next listening socket.
    pub fn next_listener(&self) -> Result<ListenerId, Error> {
        let number = self.listeners.len() as u32;
        if number == self.listeners_most {
            let problem = format!("the port was opened for {number}");
            return Err(Error::option("listeners", problem));
        }
        Ok(ListenerId(number))
    }

    pub fn listen(&mut self, listening: Listening) {
        self.listeners.push(Arc::new(listening));
    }

    pub fn listening(&self, listener: ListenerId) -> Result<Arc<Listening>, Refused> {
        self.listeners.get(listener.0 as usize).cloned().ok_or(Refused::NoSuchSocket)
    }

    pub fn streams_are_full(&self) -> bool {
        self.streams.slots.len() == self.streams.slots.most()
    }

    pub fn associate(&mut self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        let connected = Arc::new(Connected { stream, turn: Mutex::new(()) });
        let lease = connected.stream.native().leased();
        let its = lease.filter(|lease| self.is_lessor(lease));
        its.into_iter().for_each(|lease| lease.associated.store(true, Relaxed));
        self.streams.add(key, Associated { connected, receives: Vec::new(), received: 0 })
    }

    /// A connection that is not over, nor about to be.
    #[inline]
    pub fn connected(&mut self, stream: StreamId) -> Result<Arc<Connected>, Refused> {
        self.streams.open(stream).map(|(_, its)| Arc::clone(&its.own.connected))
    }

    /// A connection that is not over.
    pub fn stream(&self, stream: StreamId) -> io::Result<Stream> {
        Ok(self.streams.get(stream)?.own.connected.stream.clone())
    }

    /// Puts an accept in a slot, with where it writes the addresses.
    pub fn accept(
        &mut self,
        listener: ListenerId,
        socket: Option<Socket>,
        used: bool,
    ) -> Result<(Started<Header>, *mut AddressBuffer), Refused> {
        if !self.accepts.take() {
            return Err(Refused::Full);
        }
        let addresses = Addresses::new();
        let into = addresses.buffer();
        let started = self.insert(What::Accept { listener: listener.0, socket, used, addresses });
        Ok((started, into))
    }

    /// A socket for an accept, that was a connection before.
    pub fn used_socket(&mut self, listener: ListenerId) -> Option<Socket> {
        let reuse = self.reuse.as_mut()?;
        let at = reuse.free.iter().rposition(|(of, _)| *of == listener.0)?;
        reuse.bound.now -= 1;
        Some(reuse.free.swap_remove(at).1)
    }

    /// An accept was not started with a socket that was used before: as if it had never been tried.
    #[cold]
    pub fn take_back(&mut self, token: token::Token) {
        self.table.remove(token).expect("nobody has its packet");
        self.accepts.now -= 1;
    }

    /// Whether a connection that is about to be associated is so already, since its socket was before.
    pub fn is_associated(&self, stream: &Stream) -> bool {
        let lease = stream.native().leased();
        lease.is_some_and(|lease| self.is_lessor(lease) && lease.from_before.swap(false, Relaxed))
    }

    fn is_lessor(&self, lease: &Lease) -> bool {
        self.reuse.as_ref().is_some_and(|reuse| Arc::ptr_eq(&reuse.port, &lease.port))
    }

    /// Whether there is any use in asking whether a connection has ended in order.
    pub fn reuses(&self) -> bool {
        self.reuse.as_ref().is_some_and(|reuse| reuse.bound.now < reuse.bound.most)
    }

    /// Puts the disconnecting of a socket in a slot, with how it is done. None where the socket is not the port's, or
    /// too many are on their way: it is closed.
    pub fn disconnect(
        &mut self,
        socket: Socket,
        lease: &Lease,
    ) -> Option<(Started<Header>, Disconnecting)> {
        let its = self.is_lessor(lease) && lease.associated.load(Relaxed);
        let listener = lease.listener;
        let how = self.listeners.get(listener as usize).filter(|_| its)?.disconnecting?;
        self.reuse.as_mut()?.bound.take().then_some(())?;
        Some((self.insert(What::Disconnect { listener, socket: Some(socket) }), how))
    }

    /// It is over: the socket is for an accept, or it is closed.
    pub fn disconnected(&mut self, token: token::Token, result: Result<usize, i32>) {
        let operation = self.table.remove(token).expect("it is in its slot");
        let What::Disconnect { listener, socket } = operation.what else {
            unreachable!("the caller has looked")
        };
        let reuse = self.reuse.as_mut().expect("it is on while something is disconnected");
        match (result, socket) {
            (Ok(_), Some(socket)) => reuse.free.push((listener, socket)),
            _ => reuse.bound.now -= 1,
        }
    }

    /// Puts a receive in a slot, or a wait to receive where there is no slice, with where it writes to. The
    /// connection's turn is the caller's.
    #[inline]
    pub fn receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Inserted<(*mut u8, usize), Option<Slice>> {
        if !self.receives.take() {
            return Err((slice, Refused::Full));
        }
        let stream = token::Token::from_user_data(stream.0);
        let number = self.streams.of_mut(stream).starts_receive();
        let buffer = slice.as_ref().map_or((NonNull::dangling().as_ptr(), 0), |slice| {
            let layout = slice.region().layout();
            // SAFETY: the payload lies in the slice.
            (unsafe { slice.base().add(layout.headroom).as_ptr() }, layout.payload)
        });
        let started = self.insert(What::Receive { slice, stream, number });
        self.streams.of_mut(stream).own.receives.push(started.token);
        Ok((started, buffer))
    }

    /// Puts a send in a slot, with what it reads.
    #[inline]
    pub fn send(&mut self, stream: StreamId, load: Load) -> Inserted<(*const u8, usize), Load> {
        if !self.sends.take() {
            return Err((load, Refused::Full));
        }
        let stream = token::Token::from_user_data(stream.0);
        let its = self.streams.of_mut(stream);
        its.starts();
        let bytes = its.own.connected.stream.native().sendable(load.left());
        let bytes = (bytes.as_ptr(), bytes.len());
        Ok((self.insert(What::Send { load, stream }), bytes))
    }

    #[inline]
    fn insert(&mut self, what: What) -> Started<Header> {
        let started = self.table.insert(Operation { what, asked: false, refused: None }).ok();
        started.expect("there are as many slots as operations")
    }

    /// An operation was not started: it comes back through the queue like all others.
    #[cold]
    pub fn refuse(&mut self, token: token::Token, code: i32) {
        self.table.get_mut(token).expect("nobody has its packet").refused = Some(code);
    }

    /// Asks for an operation to be cancelled. `None`: it is over; false: that was asked for before.
    pub fn cancel(&mut self, token: Token) -> Option<bool> {
        let token = token::Token::from_user_data(token.0);
        let operation = self.table.get_mut(token)?;
        let first = !mem::replace(&mut operation.asked, true);
        if first {
            let (listeners, streams, table) = (&self.listeners, &self.streams, &mut self.table);
            match &table.get_mut(token).expect("it was just found").what {
                What::Accept { listener, .. } => {
                    let listening = Arc::clone(&listeners[*listener as usize]);
                    // Where it listens no longer its accepts are taken back already.
                    listening.listener.native().with_socket(|socket| {
                        table.cancel(token, socket.as_raw_socket() as SOCKET);
                    });
                }
                What::Receive { stream, .. } | What::Send { stream, .. } => {
                    let socket = streams.of(*stream).own.connected.stream.native().raw();
                    table.cancel(token, socket);
                }
                What::Disconnect { .. } => unreachable!("nobody was told of it"),
            }
        }
        Some(first)
    }

    /// Has nothing more be started on a stream. With it, where something is outstanding and this was not asked for
    /// before, whose operations are to be cancelled.
    pub fn close(&mut self, stream: StreamId) -> (Closing, Option<Arc<Connected>>) {
        let (closing, cancel) = self.streams.close(stream);
        let connected = cancel.map(|token| Arc::clone(&self.streams.of(token).own.connected));
        (closing, connected)
    }

    /// What has come in all, under Wine, which does not tell: what was taken, what was not, and what the socket holds.
    /// Nothing of it may move from the one to the other meanwhile, so they are read again where a receive has ended.
    pub fn counted_in_all(&mut self, stream: StreamId) -> io::Result<u64> {
        loop {
            let untaken = self.untaken(stream)?;
            let waiting = self.streams.get(stream)?.own.connected.stream.native().waiting()?;
            if self.untaken(stream)? == untaken {
                let received = self.streams.get(stream)?.own.received;
                return Ok(received + untaken + waiting as u64);
            }
        }
    }

    /// Bytes in receives that have ended and were not taken. Wine writes how an operation ended when it ends; Windows may
    /// do so only when its packet is taken.
    fn untaken(&mut self, stream: StreamId) -> io::Result<u64> {
        let mut bytes = 0;
        for &receive in &self.streams.get(stream)?.own.receives {
            let block = self.table.block(receive);
            // SAFETY: the receive is in its slot, and blocks stay.
            bytes += unsafe { overlapped::brought(&raw const (*block).overlapped) };
        }
        Ok(bytes)
    }

    fn accepted(
        &self,
        number: u32,
        (socket, used): (Option<Socket>, bool),
        addresses: &Addresses,
        result: Result<usize, i32>,
    ) -> Outcome<Accepted> {
        let Listening { listener, accepting, .. } = &*self.listeners[number as usize];
        let outcome = overlapped::accepted(listener, accepting.as_ref(), socket, addresses, result);
        if let (Outcome::Done(accepted), Some(reuse)) = (&outcome, &self.reuse) {
            let lease = Lease::new(Arc::clone(&reuse.port), number, used);
            accepted.stream.native().lease(lease);
        }
        outcome
    }

    /// How the operation of a packet ended.
    #[inline]
    fn result(&mut self, started: &Started<Header>) -> Result<usize, i32> {
        let Operation { what, refused, .. } =
            self.table.get_mut(started.token).expect("it is in its slot");
        if let Some(code) = refused {
            return Err(*code);
        }
        // SAFETY: this is the packet of that operation, and while it is in its slot nobody else uses its block.
        let of = |socket| unsafe { result_of(started.block, socket) };
        match what {
            What::Accept { listener, .. } => {
                let listening = &self.listeners[*listener as usize].listener;
                let result =
                    listening.native().with_socket(|its| of(its.as_raw_socket() as SOCKET));
                // Where it listens no longer it has taken its accepts with it.
                result.unwrap_or(Err(WSA_OPERATION_ABORTED))
            }
            What::Receive { stream, .. } | What::Send { stream, .. } => {
                of(self.streams.of(*stream).own.connected.stream.native().raw())
            }
            What::Disconnect { socket, .. } => {
                let result = socket.as_ref().map(|its| of(its.as_raw_socket() as SOCKET));
                result.unwrap_or(Err(WSA_OPERATION_ABORTED))
            }
        }
    }
}

impl Outstanding for Operations {
    type Completion = Completion;

    /// An operation, and the end of its stream.
    const PER_PACKET: usize = 2;

    #[inline]
    fn finish(&mut self, address: usize, out: &mut Taken) -> bool {
        let Some(started) = self.table.at(address) else { return false };
        let result = self.result(&started);
        let its = self.table.get_mut(started.token).expect("it is in its slot");
        if matches!(its.what, What::Disconnect { .. }) {
            self.disconnected(started.token, result);
            return false;
        }
        let operation = self.table.remove(started.token).expect("it is in its slot");
        let token = Token(started.token.user_data());
        match operation.what {
            What::Accept { listener, socket, used, addresses } => {
                self.accepts.now -= 1;
                self.calls += if result.is_ok() { overlapped::CALLS_OF_ACCEPTED } else { 0 };
                let outcome = self.accepted(listener, (socket, used), &addresses, result);
                let key = self.listeners[listener as usize].key;
                let listener = ListenerId(listener);
                out.push(Completion::Accept { token, listener, key, outcome });
                false
            }
            What::Receive { slice, stream: its, number } => {
                self.receives.now -= 1;
                let associated = self.streams.of_mut(its);
                let of = (its, associated.key);
                let associated = &mut associated.own;
                associated.receives.retain(|&receive| receive != started.token);
                associated.received += result.unwrap_or(0) as u64;
                if let Some(lease) = associated.connected.stream.native().leased() {
                    match result {
                        // What a cancelled one brings, another would have brought.
                        Err(WSA_OPERATION_ABORTED) => {}
                        // A wait that ends brings nothing.
                        Ok(_) if slice.is_none() => {}
                        result => lease.received(result.ok()),
                    }
                }
                out.push(received(token, of, slice, number, settled(result, |count| count)));
                self.streams.came_back(its, out)
            }
            What::Send { load, stream: its } => {
                self.sends.now -= 1;
                let associated = self.streams.of(its);
                let (key, stream) = (associated.key, StreamId(its.user_data()));
                let lease = associated.own.connected.stream.native().leased();
                lease.filter(|_| result.is_err()).into_iter().for_each(Lease::send_failed);
                let outcome = overlapped::sent(result);
                out.push(Completion::Send { token, stream, key, load, outcome });
                self.streams.came_back(its, out)
            }
            What::Disconnect { .. } => unreachable!("as above"),
        }
    }

    fn unreported(&mut self) -> Option<Completion> {
        self.streams.next_closed()
    }

    fn outstanding(&self) -> u32 {
        self.table.len() as u32
    }

    fn cancel_all(&mut self) {
        for listening in &self.listeners {
            let cancel = |socket: &Socket| cancel_on(socket.as_raw_socket() as SOCKET);
            listening.listener.native().with_socket(cancel);
        }
        self.streams
            .slots
            .iter()
            .for_each(|(_, its)| cancel_on(its.own.connected.stream.native().raw()));
        // A connection that has ended may stay with the system for minutes. Closing its socket ends that.
        self.table.for_each(|operation| {
            if let What::Disconnect { socket, .. } = &mut operation.what {
                *socket = None;
            }
        });
    }

    /// What the kernel holds is leaked with its blocks. Sockets are closed: the kernel keeps what it needs of them.
    unsafe fn give_up(self) -> (u32, u32) {
        let (operations, blocks) = self.table.into_operations();
        if operations.is_empty() {
            // SAFETY: no operation is in the kernel's hands, and the caller vouches that none will be.
            unsafe { blocks.free() };
            return (0, 0);
        }
        let mut missing = 0;
        for operation in operations {
            match operation.what {
                What::Accept { addresses, .. } => mem::forget(addresses),
                What::Receive { slice: None, .. } | What::Disconnect { .. } => {}
                What::Receive { slice: Some(slice), .. } => {
                    slice.leak();
                    missing += 1;
                }
                What::Send { load, .. } => {
                    load.leak();
                    missing += 1;
                }
            }
        }
        (0, missing)
    }
}

/// Asks for all that is outstanding on a socket to be cancelled.
pub(super) fn cancel_on(socket: SOCKET) {
    // SAFETY: the socket is open; no operation is named, which means all on it.
    unsafe { CancelIoEx(socket as HANDLE, ptr::null()) };
}
