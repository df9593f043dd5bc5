//! Takes what a server answers: many datagrams a system call.
//!
//! Mechanism: `recvmmsg` (Linux 2.6.33) with MSG_DONTWAIT on the socket of a flow. With UDP_GRO (Linux 5.0) a message
//! may be several datagrams that the server sent as one; without it the kernel would cut those apart on the server's
//! core, and the generator would receive each by itself.

use std::{io, mem, os::fd::AsRawFd, ptr};

use super::gso::set_option;
use crate::engine::{Lane, Refusal, refusal_of};

/// Messages per call.
const MESSAGES_MAX: usize = 32;
/// Room for one message: the longest datagram, or as many as come as one. Not a power of two, or all would begin in
/// the same set of the processor's cache.
const MESSAGE_BYTES: usize = (1 << 16) + 5 * 64;
/// Room for one control message that holds an int, aligned as the kernel wants it.
type Control = [u64; 4];

/// What answers are received into. It belongs to one thread.
pub struct Answers {
    bytes: Box<[u8]>,
    pieces: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    messages: Box<[libc::mmsghdr]>,
    together: bool,
}

// SAFETY: the pointers in `pieces` and `messages` are written anew before each call and mean nothing between calls; the
// memory that they point to is owned by the same value and moves with it.
unsafe impl Send for Answers {}

impl Answers {
    /// For these lanes.
    ///
    /// # Errors
    /// None here; other systems may have some.
    pub fn new(lanes: &[Lane]) -> io::Result<Self> {
        // Without it everything works, one message a datagram.
        let mut asked = lanes.iter().map(|lane| set_option(lane, libc::SOL_UDP, libc::UDP_GRO, 1));
        let together = asked.all(|asked| asked.is_ok());
        let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: MESSAGE_BYTES };
        // SAFETY: mmsghdr is plain integers and pointers, for which zeros and null are valid.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        Ok(Self {
            bytes: vec![0; MESSAGES_MAX * MESSAGE_BYTES].into_boxed_slice(),
            pieces: vec![piece; MESSAGES_MAX].into_boxed_slice(),
            controls: vec![Control::default(); MESSAGES_MAX].into_boxed_slice(),
            messages: vec![message; MESSAGES_MAX].into_boxed_slice(),
            together,
        })
    }

    /// Whether several datagrams that were sent as one are taken as one.
    pub fn are_taken_together(&self) -> bool {
        self.together
    }

    /// Takes what has come on a lane, at most one call's worth, and gives each datagram to `each`; returns how many. It
    /// never waits. `taken` is called when they are there, before the first is given.
    ///
    /// # Errors
    /// What further calls would meet again. That the server refuses is none: its requests are counted as missing.
    pub fn take(
        &mut self,
        lane: &Lane,
        taken: impl FnOnce(),
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<u32> {
        let places = self.bytes.chunks_exact_mut(MESSAGE_BYTES);
        let all = self.pieces.iter_mut().zip(&mut self.controls).zip(&mut self.messages);
        for (place, ((piece, control), message)) in places.zip(all) {
            piece.iov_base = place.as_mut_ptr().cast();
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = mem::size_of::<Control>();
        }
        let count = loop {
            // SAFETY: the descriptor is the lane's open socket. Each message points to one element of `pieces`, that to
            // a part of `bytes` of its own, and to an element of `controls`; all outlive the call, which writes to them.
            let count = unsafe {
                libc::recvmmsg(
                    lane.socket.as_raw_fd(),
                    self.messages.as_mut_ptr(),
                    MESSAGES_MAX as u32,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                )
            };
            if count >= 0 {
                break count as usize;
            }
            let error = io::Error::last_os_error();
            match refusal_of(&error) {
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                Some(Refusal::WouldBlock) => return Ok(0),
                // What became of an earlier request, told once: answers may lie behind it.
                Some(_) => {}
                None => return Err(error),
            }
        };
        taken();
        let mut datagrams = 0;
        let places = self.bytes.chunks_exact(MESSAGE_BYTES);
        for (message, place) in self.messages[..count].iter().zip(places) {
            let bytes = &place[..(message.msg_len as usize).min(MESSAGE_BYTES)];
            match segment_bytes(&message.msg_hdr).filter(|segment| *segment < bytes.len()) {
                None => {
                    each(bytes);
                    datagrams += 1;
                }
                Some(segment) => {
                    for datagram in bytes.chunks(segment) {
                        each(datagram);
                        datagrams += 1;
                    }
                }
            }
        }
        Ok(datagrams)
    }
}

/// The length of the datagrams that came as one, if several did.
fn segment_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the header's control buffer and set its length; the macros look no further, and
    // the data of UDP_GRO is an int.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header).as_ref()?;
        if control.cmsg_level != libc::SOL_UDP || control.cmsg_type != libc::UDP_GRO {
            return None;
        }
        let size = libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned();
        usize::try_from(size).ok().filter(|size| *size > 0)
    }
}
