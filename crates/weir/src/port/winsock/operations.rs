//! The operations of a group: for each that may be outstanding an event, and what the system writes to.

use super::event::{Event, Events};
use crate::{
    Error,
    counters::Counters,
    deadline::TimeLeft,
    memory::{Load, Slice},
    port::{
        Cancelled, Key, Refused, Token,
        overlapped::{self, Accepting, Addresses, Begun, settled},
        streams::{
            Closing, Completion, ListenerId, Needs, Outcome, StreamId, Taken,
            connections::{Connections, received},
            events::{Group, Inner},
        },
    },
    rio::Woken,
    socket::native::{CANCEL_AGAIN, last_error, without_packet},
    stream::{Accepted, Listener, Stream},
    token,
};
use socket2::Socket;
use std::{io, mem, os::windows::io::AsRawSocket, ptr::NonNull, sync::Arc, time::Duration};
use windows_sys::Win32::{
    Foundation::{HANDLE, STATUS_PENDING},
    Networking::WinSock::{
        SOCKET, WSA_IO_INCOMPLETE, WSA_MAXIMUM_WAIT_EVENTS, WSA_OPERATION_ABORTED,
        WSAGetOverlappedResult,
    },
    System::IO::{CancelIoEx, OVERLAPPED},
};

/// Classes of tokens.
const OPERATION: u8 = 1;
const STREAM: u8 = 2;

/// The operations of a group.
pub struct Operations {
    listeners: Vec<Listening>,
    listeners_most: u32,
    streams: Connections<Associated>,
    /// One for each operation that may be outstanding.
    slots: Vec<Slot>,
    /// The slots that no operation has, of each kind.
    free: [Vec<u32>; 3],
    /// The slots of what is outstanding, in the order in which it was started.
    started: Vec<u32>,
    /// Calls that nobody has counted yet.
    calls: u64,
}

/// The kinds of operations, each with slots of its own.
#[derive(Clone, Copy)]
enum Kind {
    Accept,
    Receive,
    Send,
}

struct Listening {
    listener: Listener,
    key: Key,
    /// None where it listened no longer when it came.
    accepting: Option<Accepting>,
}

/// A connection of the port.
struct Associated {
    stream: Stream,
    /// Bytes that receives have brought and that were taken.
    received: u64,
}

/// An event, and the operation that it is for.
struct Slot {
    event: Event,
    call: Call,
    kind: Kind,
    generation: u32,
    operation: Option<Operation>,
    /// It is to be cancelled.
    asked: bool,
    /// Why it was not started.
    refused: Option<i32>,
}

enum Operation {
    Accept {
        listener: u32,
        /// The connection to be. None where the system had no socket to give.
        socket: Option<Socket>,
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
}

impl Slot {
    fn new(kind: Kind) -> io::Result<Self> {
        let (event, call) = (Event::new()?, Call::new());
        Ok(Self { event, call, kind, generation: 0, operation: None, asked: false, refused: None })
    }

    fn token(&self, number: u32) -> token::Token {
        token::Token::new(OPERATION, number, self.generation)
    }

    /// Whether the system is done with it.
    fn is_over(&self) -> bool {
        self.refused.is_some() || self.call.is_over()
    }
}

impl Operations {
    pub(super) fn new(needs: &Needs) -> io::Result<Self> {
        let kinds = [
            (Kind::Accept, needs.accepts),
            (Kind::Receive, needs.receives),
            (Kind::Send, needs.sends),
        ];
        let (mut slots, mut free) = (Vec::new(), [const { Vec::new() }; 3]);
        for (kind, count) in kinds {
            let first = slots.len() as u32;
            free[kind as usize] = (first..first + count).rev().collect();
            for _ in 0..count {
                slots.push(Slot::new(kind)?);
            }
        }
        Ok(Self {
            listeners: Vec::new(),
            listeners_most: needs.listeners,
            streams: Connections::new(STREAM, needs.streams),
            slots,
            free,
            started: Vec::new(),
            calls: 0,
        })
    }
}

impl Group for Operations {
    /// The first event of the group, which wakes its thread.
    type Events = Arc<Event>;
    const CANCEL_AGAIN: Duration = CANCEL_AGAIN;

    fn listen(&mut self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        let number = self.listeners.len() as u32;
        if number == self.listeners_most {
            let problem = format!("the group was opened for {number}");
            return Err(Error::option("listeners", problem));
        }
        let accepting =
            Accepting::on(&listener).map_err(|e| Error::io("asking for AcceptEx", e))?;
        self.listeners.push(Listening { listener, key, accepting });
        Ok(ListenerId(number))
    }

    fn associate(&mut self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        self.streams.add(key, Associated { stream, received: 0 })
    }

    fn accept(&mut self, listener: ListenerId) -> Result<Token, Refused> {
        let listener = listener.0;
        if listener as usize >= self.listeners.len() {
            return Err(Refused::NoSuchSocket);
        }
        let number = self.free[Kind::Accept as usize].pop().ok_or(Refused::Full)?;
        let Listening { listener: listening, accepting, .. } = &self.listeners[listener as usize];
        let (socket, refused) = match overlapped::socket_for(listening) {
            Ok(socket) => (Some(socket), None),
            Err(e) => (None, e.raw_os_error()),
        };
        let slot = &mut self.slots[number as usize];
        let operation = Operation::Accept { listener, socket, addresses: Addresses::new() };
        let Operation::Accept { socket, addresses, .. } = slot.operation.insert(operation) else {
            unreachable!("it was put there");
        };
        let begun = match (socket, accepting) {
            (Some(socket), Some(accepting)) => {
                let (operation, flags) = slot.call.begin(&slot.event);
                let addresses = addresses.buffer();
                // SAFETY: addresses and operation are the slot's, which does not touch them until its event was reported,
                // and leaks them where that never happens; the socket is closed with or after its operation.
                unsafe { accepting.accept(listening, socket, addresses, flags, operation) }
            }
            (Some(_), None) => Err(WSA_OPERATION_ABORTED),
            (None, _) => Err(refused.unwrap_or(WSA_OPERATION_ABORTED)),
        };
        self.calls += 1; // for the socket
        Ok(self.begun(number, begun))
    }

    /// A receive, or a wait to receive where there is no slice.
    fn receive(
        &mut self,
        stream: StreamId,
        slice: Option<Slice>,
    ) -> Result<Token, (Option<Slice>, Refused)> {
        let (stream, its) = match self.streams.open(stream) {
            Ok(open) => open,
            Err(refused) => return Err((slice, refused)),
        };
        let Some(number) = self.free[Kind::Receive as usize].pop() else {
            return Err((slice, Refused::Full));
        };
        let buffer = slice.as_ref().map_or((NonNull::dangling().as_ptr(), 0), |slice| {
            let layout = slice.region().layout();
            // SAFETY: the payload lies in the slice.
            (unsafe { slice.base().add(layout.headroom).as_ptr() }, layout.payload)
        });
        let slot = &mut self.slots[number as usize];
        slot.operation = Some(Operation::Receive { slice, stream, number: its.starts_receive() });
        let (operation, flags) = slot.call.begin(&slot.event);
        let socket = its.own.stream.native().raw();
        // SAFETY: the slice is the slot's, which does not touch it until its event was reported, and leaks it where
        // that never happens; so are flags and operation.
        let begun = unsafe { overlapped::receive(socket, buffer, flags, operation) };
        Ok(self.begun(number, begun))
    }

    fn send(
        &mut self,
        stream: StreamId,
        load: Load,
        _: &mut Arc<Event>,
    ) -> Result<Token, (Load, Refused)> {
        let (stream, its) = match self.streams.open(stream) {
            Ok(open) => open,
            Err(refused) => return Err((load, refused)),
        };
        let Some(number) = self.free[Kind::Send as usize].pop() else {
            return Err((load, Refused::Full));
        };
        let bytes = its.own.stream.native().sendable(load.left());
        let bytes = (bytes.as_ptr(), bytes.len());
        let slot = &mut self.slots[number as usize];
        slot.operation = Some(Operation::Send { load, stream });
        let (operation, _) = slot.call.begin(&slot.event);
        // SAFETY: the load is the slot's, which does not touch it until its event was reported, and leaks it where that never
        // happens; so is the operation.
        let begun = unsafe { overlapped::send(its.own.stream.native().raw(), bytes, operation) };
        its.starts();
        Ok(self.begun(number, begun))
    }

    fn close(&mut self, stream: StreamId) -> Closing {
        let (closing, cancel) = self.streams.close(stream);
        if let Some(token) = cancel {
            self.cancel_where(|operation| match operation {
                Operation::Accept { .. } => false,
                Operation::Receive { stream, .. } | Operation::Send { stream, .. } => {
                    *stream == token
                }
            });
        }
        closing
    }

    /// Operations are known to the system at once: what is left to do is to count the calls that started them.
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        self.count_calls(counters);
        Ok(())
    }

    fn cancel(&mut self, token: Token, counters: &Counters) -> Cancelled {
        let token = token::Token::from_user_data(token.0);
        let known = |number: &u32| self.slots[*number as usize].token(*number) == token;
        let Some(&number) = self.started.iter().find(|number| known(number)) else {
            return Cancelled::Gone;
        };
        self.ask(number);
        self.count_calls(counters);
        Cancelled::Asked
    }

    /// What has come in all: what was taken, what was not, and what the socket holds. Nothing of it may move from the
    /// one to the other meanwhile, so they are read again where a receive has ended.
    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        let token = token::Token::from_user_data(stream.0);
        let its = &self.streams.get(stream)?.own;
        loop {
            let untaken = self.untaken(token);
            let waiting = its.stream.waiting(counters)?;
            if self.untaken(token) == untaken {
                return Ok(its.received + untaken + waiting as u64);
            }
        }
    }

    fn take_closed(&mut self, out: &mut Taken) {
        self.streams.take_closed(out);
    }

    fn wait(
        inner: &Inner<Self>,
        waker: &mut Arc<Event>,
        time: &mut TimeLeft,
        counters: &Counters,
        out: &mut Taken,
    ) -> io::Result<Woken> {
        let events = inner.with(|operations| operations.events_behind(waker));
        counters.kernel_entries.one();
        Ok(match events.wait(|| time.left())? {
            None => Woken::TimedOut,
            Some(0) => Woken::ByWaker,
            Some(place) => {
                inner.with(|operations| operations.reported(place - 1, out));
                Woken::Ready
            }
        })
    }

    fn outstanding(&mut self) -> usize {
        self.started.len()
    }

    /// Also what was cancelled before: Wine 8 forgets a cancel now and then.
    fn cancel_all(&mut self, _: &Counters) {
        self.slots.iter_mut().for_each(|slot| slot.asked = false);
        self.cancel_where(|_| true);
    }

    /// What the system holds is leaked, but for events and sockets, of which it keeps what it needs. Returns how many
    /// pieces of memory came back, and how many did not.
    fn give_up(self) -> (u32, u32) {
        let (mut returned, mut missing) = (0, 0);
        for slot in self.slots {
            let (is_over, Slot { operation, call, .. }) = (slot.is_over(), slot);
            let Some(operation) = operation else { continue };
            let brings_memory = match &operation {
                Operation::Accept { .. } => false,
                Operation::Receive { slice, .. } => slice.is_some(),
                Operation::Send { .. } => true,
            };
            if is_over {
                returned += u32::from(brings_memory);
                continue;
            }
            missing += u32::from(brings_memory);
            mem::forget(call);
            match operation {
                Operation::Accept { addresses, .. } => mem::forget(addresses),
                Operation::Receive { slice, .. } => slice.into_iter().for_each(Slice::leak),
                Operation::Send { load, .. } => load.leak(),
            }
        }
        (returned, missing)
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        vec![("events-most", WSA_MAXIMUM_WAIT_EVENTS.to_string())]
    }
}

// Starting.
impl Operations {
    /// Counts the calls that started or cancelled something since the last time.
    fn count_calls(&mut self, counters: &Counters) {
        counters.kernel_entries.add(mem::take(&mut self.calls));
    }

    /// An operation was started, or was not: then its event is set all the same, and tells why.
    #[inline]
    fn begun(&mut self, number: u32, begun: Begun) -> Token {
        let slot = &mut self.slots[number as usize];
        slot.refused = begun.err();
        if slot.refused.is_some() {
            slot.event.set();
        }
        self.calls += 1;
        self.started.push(number);
        Token(slot.token(number).user_data())
    }
}

// Ending.
impl Operations {
    /// The events to be waited for: first the one that wakes the thread, then those of what is outstanding.
    fn events_behind(&self, waker: &Event) -> Events {
        let events = self.started.iter().map(|&number| &self.slots[number as usize].event);
        Events::of([waker].into_iter().chain(events))
    }

    /// The event was reported of what stands at this place of those outstanding.
    fn reported(&mut self, place: usize, out: &mut Taken) {
        let number = self.started[place];
        let Some(result) = self.result(number) else { return }; // nobody promises that an event is set once
        self.started.remove(place);
        let slot = &mut self.slots[number as usize];
        let token = Token(slot.token(number).user_data());
        let operation = slot.operation.take().expect("what is outstanding is in its slot");
        (slot.generation, slot.asked) = (slot.generation.wrapping_add(1), false);
        self.free[slot.kind as usize].push(number);
        match operation {
            Operation::Accept { listener, socket, addresses } => {
                let key = self.listeners[listener as usize].key;
                let outcome = self.accepted(listener, socket, &addresses, result);
                let listener = ListenerId(listener);
                out.push(Completion::Accept { token, listener, key, outcome });
            }
            Operation::Receive { slice, stream: its, number } => {
                let associated = self.streams.of_mut(its);
                let of = (its, associated.key);
                if slice.is_some() {
                    associated.own.received += result.unwrap_or(0) as u64;
                }
                out.push(received(token, of, slice, number, settled(result, |count| count)));
                self.streams.came_back(its, out);
            }
            Operation::Send { load, stream: its } => {
                let key = self.streams.of(its).key;
                let stream = StreamId(its.user_data());
                let outcome = overlapped::sent(result);
                out.push(Completion::Send { token, stream, key, load, outcome });
                self.streams.came_back(its, out);
            }
        }
    }

    /// How an operation ended, if it did: bytes, or Winsock's code.
    fn result(&self, number: u32) -> Option<Result<usize, i32>> {
        let Slot { operation, refused, call, .. } = &self.slots[number as usize];
        if let Some(code) = refused {
            return Some(Err(*code));
        }
        let operation = operation.as_ref().expect("what is outstanding is in its slot");
        let of = |socket: SOCKET| call.result(socket);
        self.with_socket(operation, of).unwrap_or_else(|| {
            // The socket has been closed, and takes its accepts with it.
            call.is_over().then_some(Err(WSA_OPERATION_ABORTED))
        })
    }

    /// Calls `f` with the socket of an operation; `None` where that listened and does no longer.
    fn with_socket<R>(&self, operation: &Operation, f: impl FnOnce(SOCKET) -> R) -> Option<R> {
        match operation {
            Operation::Accept { listener, .. } => {
                let listening = &self.listeners[*listener as usize].listener;
                listening.native().with_socket(|socket| f(socket.as_raw_socket() as SOCKET))
            }
            Operation::Receive { stream, .. } | Operation::Send { stream, .. } => {
                Some(f(self.streams.of(*stream).own.stream.native().raw()))
            }
        }
    }

    fn accepted(
        &mut self,
        listener: u32,
        socket: Option<Socket>,
        addresses: &Addresses,
        result: Result<usize, i32>,
    ) -> Outcome<Accepted> {
        let Listening { listener, accepting, .. } = &self.listeners[listener as usize];
        self.calls += if result.is_ok() { overlapped::CALLS_OF_ACCEPTED } else { 0 };
        overlapped::accepted(listener, accepting.as_ref(), socket, addresses, result)
    }

    /// Bytes in receives that have ended and were not told.
    fn untaken(&self, of: token::Token) -> u64 {
        let brought = |&number: &u32| {
            let slot = &self.slots[number as usize];
            match &slot.operation {
                Some(Operation::Receive { stream, .. }) if *stream == of => slot.call.brought(),
                _ => 0,
            }
        };
        self.started.iter().map(brought).sum()
    }

    fn cancel_where(&mut self, is_meant: impl Fn(&Operation) -> bool) {
        for place in 0..self.started.len() {
            let number = self.started[place];
            if self.slots[number as usize].operation.as_ref().is_some_and(&is_meant) {
                self.ask(number);
            }
        }
    }

    /// Asks once for an operation to be cancelled. Where it has finished there is nothing to cancel, and its event
    /// tells of it all the same.
    fn ask(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if mem::replace(&mut slot.asked, true) || slot.is_over() {
            return;
        }
        self.calls += 1;
        let Slot { operation, call, .. } = &self.slots[number as usize];
        let operation = operation.as_ref().expect("what is outstanding is in its slot");
        // Where a socket listens no longer its accepts are taken back already.
        self.with_socket(operation, |socket| call.cancel(socket));
    }
}

// The end of the group.
impl Operations {
    /// As if all of them had been cancelled, and the system had forgotten that.
    #[cfg(test)]
    pub(super) fn forget_cancels(&mut self) {
        self.started.iter().for_each(|&number| self.slots[number as usize].asked = true);
    }

    /// How many of them have ended and were not told.
    #[cfg(test)]
    pub(super) fn ended(&self) -> usize {
        self.started.iter().filter(|&&number| self.slots[number as usize].is_over()).count()
    }
}

/// What the system writes to while an operation is under way, besides memory of the program's own: it stays where it
/// is.
struct Call(NonNull<State>);

// SAFETY: plain memory, which is reached through this value alone, and by the system.
unsafe impl Send for Call {}

struct State {
    operation: OVERLAPPED,
    flags: u32,
}

impl Call {
    fn new() -> Self {
        let state = Box::new(State { operation: OVERLAPPED::default(), flags: 0 });
        Self(NonNull::from(Box::leak(state)))
    }

    /// For an operation that is started next, and sets this event at its end.
    fn begin(&mut self, event: &Event) -> (*mut OVERLAPPED, *mut u32) {
        let state = self.0.as_ptr();
        let event = without_packet(event.handle());
        // SAFETY: no operation is under way, so nobody else uses it.
        unsafe {
            (&raw mut (*state).operation)
                .write(OVERLAPPED { hEvent: event, ..OVERLAPPED::default() });
            (&raw mut (*state).operation, &raw mut (*state).flags)
        }
    }

    fn operation(&self) -> *const OVERLAPPED {
        // SAFETY: within what this value owns.
        unsafe { &raw const (*self.0.as_ptr()).operation }
    }

    fn is_over(&self) -> bool {
        // SAFETY: it is in place.
        unsafe { overlapped::status(self.operation()) != STATUS_PENDING }
    }

    /// Bytes that it has brought, if it is over and well.
    fn brought(&self) -> u64 {
        // SAFETY: as above.
        unsafe { overlapped::brought(self.operation()) }
    }

    /// How it ended on this socket, if it did: bytes, or Winsock's code.
    fn result(&self, socket: SOCKET) -> Option<Result<usize, i32>> {
        let (mut count, mut flags) = (0, 0);
        let operation = self.operation();
        // SAFETY: the operation was started on this socket; the call does not wait.
        let ok = unsafe { WSAGetOverlappedResult(socket, operation, &mut count, 0, &mut flags) };
        match (ok, last_error()) {
            (0, WSA_IO_INCOMPLETE) => None,
            (0, code) => Some(Err(code)),
            _ => Some(Ok(count as usize)),
        }
    }

    fn cancel(&self, socket: SOCKET) {
        // SAFETY: the address is looked for among what is outstanding on the socket.
        unsafe { CancelIoEx(socket as HANDLE, self.operation()) };
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: it was a box, and no operation is under way: else it is leaked instead.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
