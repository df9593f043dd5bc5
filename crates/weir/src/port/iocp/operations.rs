//! The operations of a port of datagrams: what a call is given, and what becomes of an operation.

use super::{
    state::Outstanding,
    table::{self, Failed, Started, Table, error, result_of},
};
use crate::{
    memory::Slice,
    port::{Completion, Key, Needs, Outcome, Refused, SocketId, Taken, Token},
    rio::Span,
    socket::{
        DatagramSocket, Native, Peer,
        native::{CONTROL_BYTES, Control},
    },
    token,
};
use socket2::{SockAddr, SockAddrStorage};
use std::{
    mem, ptr,
    sync::{Arc, OnceLock},
};
use windows_sys::Win32::{
    Foundation::HANDLE,
    Networking::WinSock::{
        WSA_OPERATION_ABORTED, WSABUF, WSAECONNRESET, WSAEMSGSIZE, WSAENETRESET, WSAMSG,
    },
    System::IO::CancelIoEx,
};

/// What the kernel reads and writes beside the slice.
#[repr(C)]
pub(super) struct Header {
    pub message: WSAMSG,
    vector: WSABUF,
    name: SockAddrStorage,
    control: Control,
}

impl Header {
    /// What is sent.
    ///
    /// # Safety
    /// It is the header of a send, whose slice is in its slot and nobody writes to.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the vector lies in that slice.
        unsafe { std::slice::from_raw_parts(self.vector.buf, self.vector.len as usize) }
    }
}

pub(super) type Block = table::Block<Header>;

/// The sockets of a port, which stay until it goes.
pub(super) type Sockets = Arc<[OnceLock<Associated>]>;

/// A socket of the port.
pub(super) struct Associated {
    pub socket: DatagramSocket,
    key: Key,
}

impl Associated {
    pub fn new(socket: DatagramSocket, key: Key) -> Self {
        Self { socket, key }
    }
}

struct Operation {
    slice: Slice,
    socket: u32,
    /// What is sent; nothing for a receive.
    span: Option<Span>,
    /// Its cancelling was asked for.
    asked: bool,
    /// What became of it, where that was known when its call returned.
    settled: Option<Outcome>,
}

pub(super) struct Operations {
    sockets: Sockets,
    table: Table<Header, Operation>,
    receives: u32,
    receives_most: u32,
    sends: u32,
    sends_most: u32,
}

impl Operations {
    pub fn new(needs: &Needs, sockets: Sockets) -> Self {
        let (receives_most, sends_most) = (needs.receives, needs.sends);
        let table = Table::new(receives_most as usize + sends_most as usize);
        Self { sockets, table, receives: 0, receives_most, sends: 0, sends_most }
    }

    /// Puts a receive in a slot, ready to be started. Gives the slice back when as many as may are outstanding.
    #[inline]
    pub fn receive(
        &mut self,
        socket: SocketId,
        slice: Slice,
    ) -> Result<Started<Header>, (Slice, Refused)> {
        if self.receives == self.receives_most {
            return Err((slice, Refused::Full));
        }
        self.receives += 1;
        let control = associated(&self.sockets, socket.0).socket.native().has_control();
        // SAFETY: the slice goes into the slot of the block.
        Ok(self.insert(socket, slice, None, |block, slice| unsafe {
            fill_receive(block, slice, control);
        }))
    }

    /// The same for a send.
    #[inline]
    pub fn send(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: Span,
        to: &Peer,
    ) -> Result<Started<Header>, (Slice, Refused)> {
        if self.sends == self.sends_most {
            return Err((slice, Refused::Full));
        }
        self.sends += 1;
        let sockets = Arc::clone(&self.sockets);
        let native = associated(&sockets, socket.0).socket.native();
        // SAFETY: as above, and the caller has looked at the length.
        Ok(self.insert(socket, slice, Some(span), |block, slice| unsafe {
            fill_send(block, slice, span.len, to, native);
        }))
    }

    #[inline]
    fn insert(
        &mut self,
        socket: SocketId,
        slice: Slice,
        span: Option<Span>,
        fill: impl FnOnce(*mut Block, &Slice),
    ) -> Started<Header> {
        let operation = Operation { slice, socket: socket.0, span, asked: false, settled: None };
        let started = self.table.insert(operation).ok();
        let started = started.expect("there are as many slots as receives and sends");
        let operation = self.table.get_mut(started.token).expect("it was just put there");
        fill(started.block, &operation.slice);
        started
    }

    /// What became of an operation that the kernel did not take: it comes back through the queue like all others.
    #[cold]
    pub fn settle(&mut self, token: token::Token, outcome: Outcome) {
        let operation = self.table.get_mut(token).expect("nobody has its packet");
        operation.settled = Some(outcome);
        self.table.end(token);
    }

    /// What the kernel did with an operation whose call failed.
    #[cold]
    pub fn failed(&mut self, token: token::Token, skip: bool) -> Failed {
        self.table.failed(token, skip)
    }

    /// What the packet of an operation that is in its slot is known by.
    #[cfg(test)]
    pub fn address(&mut self, token: Token) -> usize {
        self.table.block(token::Token::from_user_data(token.0)).addr()
    }

    /// Asks for an operation to be cancelled. `None`: it is over; false: that was asked for before.
    pub fn cancel(&mut self, token: Token) -> Option<bool> {
        let token = token::Token::from_user_data(token.0);
        let operation = self.table.get_mut(token)?;
        let first = !mem::replace(&mut operation.asked, true);
        let socket = operation.socket;
        if first {
            self.table.cancel(token, associated(&self.sockets, socket).socket.native().raw());
        }
        Some(first)
    }
}

#[inline]
fn associated(sockets: &Sockets, number: u32) -> &Associated {
    sockets[number as usize].get().expect("it has operations outstanding")
}

impl Outstanding for Operations {
    type Completion = Completion;

    const PER_PACKET: usize = 1;

    #[inline]
    fn finish(&mut self, address: usize, out: &mut Taken) -> bool {
        let Some(Started { token, block }) = self.table.at(address) else { return false };
        let socket = self.table.get_mut(token).expect("it was just found").socket;
        let its = associated(&self.sockets, socket);
        let operation = self.table.get_mut(token).expect("it was just found");
        let (settled, span) = (operation.settled.take(), operation.span);
        match span {
            None => self.receives -= 1,
            Some(_) => self.sends -= 1,
        }
        let outcome = match (settled, span) {
            (Some(settled), _) => settled,
            // SAFETY: this is the packet of that operation, and while it is in its slot nobody else uses its block;
            // so below.
            (None, None) => unsafe { received(block, &its.socket) },
            // SAFETY: as above.
            (None, Some(span)) => match unsafe { result_of(block, its.socket.native().raw()) } {
                Ok(_) => Outcome::Sent(span),
                Err(code) => send_failed(code),
            },
        };
        let operation = self.table.remove(token).expect("it was just found");
        out.push(Completion::Operation {
            token: Token(token.user_data()),
            socket: SocketId(socket),
            key: its.key,
            slice: operation.slice,
            outcome,
        });
        false
    }

    fn outstanding(&self) -> u32 {
        self.table.len() as u32
    }

    fn cancel_all(&mut self) {
        for its in self.sockets.iter().filter_map(OnceLock::get) {
            let socket = its.socket.native().raw() as HANDLE;
            // SAFETY: the socket is open; no operation is named, which means all on it.
            unsafe { CancelIoEx(socket, ptr::null()) };
        }
    }

    /// What the kernel holds is leaked with its blocks.
    unsafe fn give_up(self) -> (u32, u32) {
        let (operations, blocks) = self.table.into_operations();
        let missing = operations.len() as u32;
        operations.into_iter().for_each(|operation| operation.slice.leak());
        if missing == 0 {
            // SAFETY: no operation is in the kernel's hands, and the caller vouches that none will be.
            unsafe { blocks.free() };
        }
        (0, missing)
    }
}

/// Writes what a receive into this slice is called with.
///
/// # Safety
/// The block is the operation's own, which was not started.
#[inline]
unsafe fn fill_receive(block: *mut Block, slice: &Slice, with_control: bool) {
    // SAFETY: the caller's word. The payload lies in the slice.
    unsafe {
        let header = &mut (*block).with;
        fill(header, slice, slice.region().layout().payload);
        header.message.namelen = mem::size_of::<SockAddrStorage>() as i32;
        header.message.Control.len = if with_control { CONTROL_BYTES as u32 } else { 0 };
    }
}

/// Writes what a send of so many bytes of this slice is called with.
///
/// # Safety
/// As for [`fill_receive`].
#[inline]
unsafe fn fill_send(block: *mut Block, slice: &Slice, len: usize, to: &Peer, native: &Native) {
    // SAFETY: the caller's word. The bytes lie in the slice.
    unsafe {
        let header = &mut (*block).with;
        fill(header, slice, len);
        let name = SockAddr::from(to.address);
        header.message.namelen = name.len();
        header.name = name.as_storage();
        header.message.Control.len = native.name_source(&mut header.control, to) as u32;
    }
}

/// Has the message point at its parts, and at so many bytes of the slice's payload.
///
/// # Safety
/// So many lie there.
#[inline]
unsafe fn fill(header: &mut Header, slice: &Slice, len: usize) {
    // SAFETY: the headroom lies in the slice.
    let buf = unsafe { slice.base().add(slice.region().layout().headroom).as_ptr() };
    header.vector = WSABUF { len: u32::try_from(len).unwrap_or(u32::MAX), buf };
    header.message = WSAMSG {
        name: (&raw mut header.name).cast(),
        namelen: 0,
        lpBuffers: &raw mut header.vector,
        dwBufferCount: 1,
        Control: WSABUF { len: 0, buf: (&raw mut header.control).cast() },
        dwFlags: 0,
    };
}

/// How a receive ended that the kernel had.
///
/// # Safety
/// The packet of this block was taken, and it is nobody else's.
#[inline]
unsafe fn received(block: *mut Block, socket: &DatagramSocket) -> Outcome {
    // SAFETY: the caller's word.
    let (result, header) = unsafe { (result_of(block, socket.native().raw()), &(*block).with) };
    let (len, truncated) = match result {
        Ok(len) => (len, false),
        Err(WSAEMSGSIZE) => (header.vector.len as usize, true),
        Err(code) => return receive_failed(code),
    };
    let Header { name, control, message, .. } = header;
    // SAFETY: Winsock wrote as much of the name and of the control data as the message says.
    Outcome::Received(unsafe { socket.native().arrival(name, control, message, len, truncated) })
}

/// What is told of a receive that failed.
#[cold]
pub(super) fn receive_failed(code: i32) -> Outcome {
    match code {
        // The other two are of a datagram that was sent: nothing that came is lost.
        WSA_OPERATION_ABORTED | WSAECONNRESET | WSAENETRESET => Outcome::Returned,
        code => Outcome::Failed(error(code)),
    }
}

/// What is told of a send that failed.
#[cold]
pub(super) fn send_failed(code: i32) -> Outcome {
    match code {
        WSA_OPERATION_ABORTED => Outcome::Returned,
        code => Outcome::NotSent(error(code).into()),
    }
}
