//! Operations that the kernel has, each with what it needs of them: a slot, and a block that never moves.

use crate::{
    port::{blocks::Blocks, overlapped},
    socket::native::last_error,
    token::{Slots, Token},
};
use std::io;
use windows_sys::Win32::{
    Foundation::{HANDLE, STATUS_PENDING, STATUS_UNSUCCESSFUL},
    Networking::WinSock::{SOCKET, WSAGetOverlappedResult},
    System::IO::{CancelIoEx, OVERLAPPED},
};

/// What the kernel needs of an operation, beginning with what makes it one: its address is that of the operation.
#[repr(C)]
pub(super) struct Block<B> {
    pub overlapped: OVERLAPPED,
    pub with: B,
    /// Operations that have had this block may have packets still, nobody knows how many: none of them must end one that
    /// the kernel has. So this stays for good. One that is over they may end, in the place of its own packet, which is
    /// then one of those.
    one_too_many: bool,
}

/// What a call that failed has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// The kernel does not have the operation.
    AtOnce,
    /// The kernel has ended the operation, and says how: a datagram was too long. Where what is done has no packet, this
    /// may have one all the same: that depends on when it came, and nobody tells.
    AtItsEnd,
    /// As above, and somebody has taken its packet.
    AndTaken,
}

/// An operation in its slot: it belongs to whoever starts it, then to the kernel, then to whoever takes its packet.
pub(super) struct Started<B> {
    pub token: Token,
    pub block: *mut Block<B>,
}

impl<B> Started<B> {
    /// What its packet is known by.
    pub fn address(&self) -> usize {
        self.block.addr()
    }
}

/// What is outstanding. A packet is known by the address of its block alone: the key of a socket that is used again
/// is that of before. Nothing is read there before it is known to be one of these.
pub(super) struct Table<B, V> {
    slots: Slots<V>,
    blocks: Blocks<Block<B>>,
}

// SAFETY: blocks are plain memory, which points at slices and at itself.
unsafe impl<B, V: Send> Send for Table<B, V> {}

/// The class of tokens of operations.
const OPERATION: u8 = 1;

impl<B, V> Table<B, V> {
    /// For so many operations. Memory is taken as there are more of them.
    pub fn new(most: usize) -> Self {
        Self { slots: Slots::growing(OPERATION, most), blocks: Blocks::new() }
    }

    /// Puts an operation in a slot, before its call: another thread may have its packet before that returns.
    #[inline]
    pub fn insert(&mut self, operation: V) -> Result<Started<B>, V> {
        let token = self.slots.insert(operation)?;
        let block = self.blocks.block(token.slot());
        let pending = OVERLAPPED { Internal: STATUS_PENDING as usize, ..OVERLAPPED::default() };
        // SAFETY: the slot was free, so nobody uses its block.
        unsafe { (&raw mut (*block).overlapped).write(pending) };
        Ok(Started { token, block })
    }

    /// The operation whose packet has this address.
    #[inline]
    pub fn at(&mut self, address: usize) -> Option<Started<B>> {
        let token = self.slots.at(self.blocks.slot_at(address)?)?;
        let block = self.blocks.block(token.slot());
        // SAFETY: the block is that of a slot in use, and its last field is read and written here alone.
        let of_another = unsafe { (*block).one_too_many && is_pending(block) };
        (!of_another).then_some(Started { token, block })
    }

    /// What the kernel did with an operation whose call failed. `skip`: its port has no packet of what is done when its
    /// call returns.
    #[cold]
    pub fn failed(&mut self, token: Token, skip: bool) -> Failed {
        if self.slots.get(token).is_none() {
            return Failed::AndTaken;
        }
        let block = self.blocks.block(token.slot());
        // SAFETY: as above. What the kernel has not ended by now it does not have.
        unsafe {
            if is_pending(block) {
                return Failed::AtOnce;
            }
            (*block).one_too_many |= skip;
        }
        Failed::AtItsEnd
    }

    /// The kernel does not have this operation, and its packet is ours.
    #[cold]
    pub fn end(&mut self, token: Token) {
        let block = self.blocks.block(token.slot());
        // SAFETY: as above; the kernel has no use for the block.
        unsafe { (*block).overlapped.Internal = STATUS_UNSUCCESSFUL as u32 as usize };
    }

    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut V> {
        self.slots.get_mut(token)
    }

    #[inline]
    pub fn remove(&mut self, token: Token) -> Option<V> {
        self.slots.remove(token)
    }

    /// The block of an operation that is in its slot.
    #[inline]
    pub fn block(&mut self, token: Token) -> *mut Block<B> {
        self.blocks.block(token.slot())
    }

    pub fn for_each(&mut self, mut f: impl FnMut(&mut V)) {
        let tokens: Vec<_> = self.slots.iter().map(|(token, _)| token).collect();
        for token in tokens {
            self.slots.get_mut(token).into_iter().for_each(&mut f);
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Asks for an operation on this socket to be cancelled. Where it has finished there is nothing to cancel, and its
    /// packet comes all the same.
    pub fn cancel(&mut self, token: Token, socket: SOCKET) {
        let block = self.blocks.block(token.slot());
        // SAFETY: the address is looked for among what is outstanding on the socket; the operation is in its slot, so
        // its block is not another's.
        unsafe { CancelIoEx(socket as HANDLE, &raw const (*block).overlapped) };
    }

    /// What is outstanding, at the end.
    pub fn into_operations(mut self) -> (Vec<V>, Blocks<Block<B>>) {
        let tokens: Vec<_> = self.slots.iter().map(|(token, _)| token).collect();
        let operations = tokens.into_iter().filter_map(|token| self.slots.remove(token)).collect();
        (operations, self.blocks)
    }
}

/// Whether the kernel has an operation, or is about to.
///
/// # Safety
/// The block is one of a table that is there.
unsafe fn is_pending<B>(block: *const Block<B>) -> bool {
    // SAFETY: the caller's word.
    unsafe { overlapped::status(&raw const (*block).overlapped) == STATUS_PENDING }
}

/// How an operation on this socket ended: its bytes, or Winsock's code.
///
/// # Safety
/// The block is one whose packet was taken, and nobody else's.
#[inline]
pub(super) unsafe fn result_of<B>(block: *mut Block<B>, socket: SOCKET) -> Result<usize, i32> {
    // SAFETY: the caller's word.
    let overlapped = unsafe { &(*block).overlapped };
    if overlapped.Internal == 0 {
        return Ok(overlapped.InternalHigh);
    }
    let (mut bytes, mut flags) = (0, 0);
    // SAFETY: the operation was started on this socket, and is over: the call does not wait.
    match unsafe { WSAGetOverlappedResult(socket, overlapped, &mut bytes, 0, &mut flags) } {
        0 => Err(last_error()),
        _ => Ok(bytes as usize),
    }
}

pub(super) fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
