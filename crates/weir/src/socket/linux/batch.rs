//! Batches: recvmmsg(2), sendmmsg(2).

use super::{
    Native, entered,
    joined::{COPIED, Joined},
    message::{Control, arrival, encode_into, header, name_segment, name_source},
    unless_empty,
};
use crate::{
    counters::Counters,
    socket::{
        Arrival, Mode, Peer, Received, Span,
        context::{self, Line, SOURCE, SOURCE_BYTES},
    },
};
use std::{
    io,
    mem::{self, MaybeUninit},
    num::NonZeroU16,
    slice,
};

/// Message headers for a batch, made once and used again for every call.
pub struct Headers {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[MaybeUninit<libc::sockaddr_storage>]>,
    control: Box<[MaybeUninit<Control>]>,
    received: usize,
    /// What was received came by a Unix socket.
    is_local: bool,
    /// What each message is made of that is sent.
    joined: Vec<Joined>,
    /// Short datagrams behind each other that leave as one.
    copies: Box<[u8]>,
}

// SAFETY: the pointers in the headers are set anew from borrowed buffers in every call and
// are not followed outside it; what they point at otherwise belongs to this value.
unsafe impl Send for Headers {}

impl Headers {
    /// Headers for batches of up to `capacity` datagrams.
    pub fn new(capacity: usize) -> Self {
        // SAFETY: all zeroes is a valid mmsghdr and a valid iovec.
        let (header, vector) = unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed()) };
        Self {
            headers: vec![header; capacity].into(),
            vectors: vec![vector; capacity].into(),
            names: vec![MaybeUninit::uninit(); capacity].into(),
            control: vec![MaybeUninit::uninit(); capacity].into(),
            received: 0,
            is_local: false,
            joined: Vec::with_capacity(capacity),
            copies: vec![0; capacity * COPIED].into(),
        }
    }

    pub(in crate::socket) fn receive<B: AsMut<[u8]>>(
        &mut self,
        native: &Native,
        buffers: &mut [B],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<usize> {
        self.received = 0;
        if native.tries_first(mode) {
            match self.receive(native, buffers, Mode::Try, counters)? {
                0 => {}
                came => return Ok(came),
            }
        }
        let Some(mode) = native.wait_as_long(mode, counters)? else { return Ok(0) };
        let count = buffers.len().min(self.headers.len());
        for (i, buffer) in buffers.iter_mut().take(count).enumerate() {
            let buffer = buffer.as_mut();
            self.vectors[i] =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            self.headers[i].msg_hdr = header(
                &mut self.vectors[i],
                &mut self.names[i],
                native.control.then_some(&mut self.control[i]),
            );
        }
        let flags = mode.flags() | if mode == Mode::Wait { libc::MSG_WAITFORONE } else { 0 };
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the first `count` headers point at names, vectors and control data of this value
        // and at the caller's buffers, all borrowed through the call. A call that fails writes
        // nothing to them.
        let call = |flags: libc::c_int| unsafe {
            let forever = std::ptr::null_mut();
            libc::recvmmsg(native.fd(), headers, count as libc::c_uint, flags as _, forever)
                as isize
        };
        let received = entered(counters, || call(flags));
        let received = native
            .receive_behind_errors(received, || entered(counters, || call(libc::MSG_DONTWAIT)));
        let n = match unless_empty(received)? {
            Some(n) => n,
            None => match native.is_still_open(Some(counters)) {
                Ok(()) => return Ok(0),
                // What came just before that.
                Err(shut) => {
                    let last = entered(counters, || call(libc::MSG_DONTWAIT));
                    unless_empty(last)?.ok_or(shut)?
                }
            },
        };
        // A header without a name is the end of receiving, and so is all behind it, but for a Unix socket.
        self.is_local = native.is_local;
        let named = self.headers[..n].iter();
        let named = named.take_while(|h| h.msg_hdr.msg_namelen > 0 || native.is_local);
        self.received = named.count();
        Ok(self.received)
    }

    /// The datagram in buffer `i` of the last [`receive_many`](crate::socket::DatagramSocket::receive_many).
    #[inline]
    pub fn arrival(&self, i: usize) -> Arrival {
        assert!(i < self.received, "datagram {i} of {}", self.received);
        let header = &self.headers[i];
        // SAFETY: the last call filled the first `received` headers, and their names and
        // control data belong to this value.
        unsafe { arrival(&header.msg_hdr, header.msg_len as usize) }
    }

    /// Writes where that datagram came from into the line in front of its payload.
    #[inline]
    pub(crate) fn tell(&self, i: usize, line: &mut Line) -> Received {
        assert!(i < self.received, "datagram {i} of {}", self.received);
        let header = &self.headers[i].msg_hdr;
        if header.msg_controllen > 0 || self.is_local {
            return context::write(line, &self.arrival(i));
        }
        // SAFETY: the last call filled so many bytes of this name, which is larger.
        let name = |length| unsafe { slice::from_raw_parts(self.names[i].as_ptr().cast(), length) };
        const V4_BYTES: usize = mem::size_of::<libc::sockaddr_in>();
        match SOURCE_BYTES.min(header.msg_namelen as usize) {
            // A copy of a fixed length is no call.
            V4_BYTES => line[SOURCE..][..V4_BYTES].copy_from_slice(name(V4_BYTES)),
            length => line[SOURCE..][..length].copy_from_slice(name(length)),
        }
        let truncated = header.msg_flags & libc::MSG_TRUNC != 0;
        Received::new(self.headers[i].msg_len as usize, truncated)
    }

    pub(in crate::socket) fn send<'a>(
        &mut self,
        native: &Native,
        count: usize,
        mut span: impl FnMut(usize) -> (&'a [u8], Option<NonZeroU16>, Peer),
        counters: &Counters,
    ) -> io::Result<usize> {
        self.received = 0;
        let mut count = count.min(self.headers.len());
        if native.is_local {
            // It cuts nothing: what is several datagrams is sent by other means.
            count = (0..count).take_while(|i| span(*i).1.is_none()).count();
            if count == 0 {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        let mut longest = native.longest_joined();
        loop {
            self.prepare(count, &mut span, longest);
            let (headers, messages) = (self.headers.as_mut_ptr(), self.joined.len());
            // SAFETY: as in `receive`; the bytes live for 'a, beyond this call, and are only read.
            let call = || unsafe {
                let flags = libc::MSG_DONTWAIT as _;
                libc::sendmmsg(native.fd(), headers, messages as libc::c_uint, flags) as isize
            };
            match native.send_behind_errors(|| entered(counters, call)) {
                Ok(sent) => {
                    if sent < messages {
                        // The call does not say why it stopped, and what it met is pending no more.
                        native.note_errors();
                    }
                    return Ok(self.joined[..sent].iter().map(Joined::spans).sum());
                }
                // What was refused together may well be taken one by one.
                Err(e) => {
                    let joined = self.joined.first().filter(|joined| joined.spans() > 1);
                    match joined.filter(|_| e.kind() != io::ErrorKind::WouldBlock) {
                        None => return Err(native.of_send(e)),
                        Some(joined) => native.not_joined(&e, joined.segment()),
                    }
                    longest = 0;
                }
            }
        }
    }

    /// Makes messages of the first `count` spans, of which as many as can be leave as one.
    fn prepare<'a>(
        &mut self,
        count: usize,
        mut span: impl FnMut(usize) -> (&'a [u8], Option<NonZeroU16>, Peer),
        longest: usize,
    ) {
        self.joined.clear();
        // The first span of the last message, where copies lie, and how many bytes of them there are.
        let (mut first, copies, mut copied) = (0, self.copies.as_mut_ptr(), 0);
        let room = self.copies.len();
        let mut copy = |span: libc::iovec| {
            assert!(span.iov_len <= room - copied, "of a span of {COPIED} bytes at most");
            // SAFETY: there is room behind what was copied before; the span is a caller's bytes, which live through this
            // call, and not ours.
            let to = unsafe {
                let to = copies.add(copied);
                to.copy_from_nonoverlapping(span.iov_base.cast::<u8>(), span.iov_len);
                to
            };
            copied += span.iov_len;
            to
        };
        for i in 0..count {
            let (bytes, segment, to) = span(i);
            self.vectors[i] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let this = Span { len: bytes.len(), segment };
            if let Some(last) = self.joined.last_mut()
                && last.take(this, &to, longest)
            {
                if last.is_copied() {
                    if last.spans() == 2 {
                        self.vectors[first].iov_base = copy(self.vectors[first]).cast();
                    }
                    copy(self.vectors[i]);
                    self.vectors[first].iov_len += bytes.len();
                }
                continue;
            }
            self.end_message();
            first = i;
            let message = self.joined.len();
            self.joined.push(Joined::begin(this, to));
            let mut header = header(&mut self.vectors[i], &mut self.names[message], None);
            header.msg_namelen = encode_into(&to.address, &mut self.names[message]);
            // SAFETY: the control data is this value's, and not moved while the header is used.
            unsafe {
                name_source(&mut header, self.control[message].as_mut_ptr().cast(), &to);
            }
            self.headers[message].msg_hdr = header;
        }
        self.end_message();
    }

    /// Writes into the last message how many spans it has, and what size its datagrams are.
    #[inline]
    fn end_message(&mut self) {
        let Some(joined) = self.joined.last() else { return };
        let message = self.joined.len() - 1;
        let header = &mut self.headers[message].msg_hdr;
        header.msg_iovlen = if joined.is_copied() { 1 } else { joined.spans() as _ };
        // SAFETY: as where the source was named.
        unsafe {
            let control = self.control[message].as_mut_ptr().cast();
            name_segment(header, control, joined.segment());
        }
    }
}
