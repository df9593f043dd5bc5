//! Many datagrams a system call.
//!
//! Mechanism: `sendmmsg` (Linux 3.0) takes an array of messages and sends one after the
//! other. Cost: one entry into the kernel for all, but each takes the whole way through
//! socket, route and filters by itself. Fails: an error of the first message is returned;
//! of a later one it is kept, the call says how many went before, and the next call meets
//! it again.

use std::{io, mem, os::fd::AsRawFd, ptr};

use crate::engine::{Batch, Datagrams, Engine, Lane, Opened, Sent};

/// Messages per call. More save nothing that could be measured (the kernel takes 1024),
/// and their buffers would leave the cache.
const MESSAGES_MAX: u32 = 64;

struct Sendmmsg {
    datagrams: Datagrams,
    pieces: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

pub(super) fn open(size_bytes: usize, _: &[Lane]) -> Opened {
    let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: size_bytes };
    // SAFETY: mmsghdr is plain integers and pointers, for which zeros and null are valid.
    let message: libc::mmsghdr = unsafe { mem::zeroed() };
    Ok(Box::new(Sendmmsg {
        datagrams: Datagrams::new(size_bytes, MESSAGES_MAX),
        pieces: vec![piece; MESSAGES_MAX as usize].into_boxed_slice(),
        messages: vec![message; MESSAGES_MAX as usize].into_boxed_slice(),
    }))
}

impl Engine for Sendmmsg {
    fn capacity(&self) -> u32 {
        MESSAGES_MAX
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        self.datagrams.stamp(batch);
        // The pointers are made anew for every call: they are valid only until the buffer
        // is next written to.
        for (number, (piece, message)) in
            (0..batch.datagrams).zip(self.pieces.iter_mut().zip(&mut self.messages))
        {
            piece.iov_base = self.datagrams.one(number).as_ptr().cast_mut().cast();
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        let mut sent = 0;
        while sent < batch.datagrams {
            let rest = &mut self.messages[sent as usize..batch.datagrams as usize];
            // SAFETY: the descriptor is the lane's open socket. Each message of `rest`
            // points to one element of `pieces`, and that to a datagram in `datagrams`; all
            // outlive the call, which only reads them and writes each message's length.
            let taken = unsafe {
                libc::sendmmsg(lane.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            if taken > 0 {
                sent += taken as u32;
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Sent::until(sent, batch.datagrams - sent, error);
            }
        }
        Sent { sent, ..Sent::default() }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams per call", MESSAGES_MAX.to_string())]
    }
}
