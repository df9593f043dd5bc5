//! No library at all: recvmmsg and sendmmsg in a loop, as in a manual page.
//!
//! A thread waits in recvmmsg (MSG_WAITFORONE) for up to 32 messages, and answers them with one sendmmsg, from where they
//! lie. Answers in a row to one sender and of one size leave as one message (UDP_SEGMENT), whose pieces they are; with
//! receive offload a message is several datagrams already when it comes (UDP_GRO).

use std::{convert::Infallible, io, mem, net::UdpSocket, os::fd::AsRawFd, process::ExitCode, ptr};

use peer_common::{Failure, Given, Library};

/// Messages of one call, as many as weir's own batches have.
const MESSAGES: usize = 32;
/// Room for what comes as one with receive offload.
const OFFLOADED_BYTES: usize = 1 << 16;

/// Datagrams and bytes that leave as one at most.
const MOST_SEGMENTS: usize = 64;
const LONGEST_BYTES: usize = 65_507;

/// Room for one control message that holds an int.
type Control = [u64; 4];

fn main() -> ExitCode {
    peer_common::run(Library { name: "recvmmsg and sendmmsg", receive_offload: true }, 1, receive)
}

/// What messages are received into, and answered from.
struct Messages {
    bytes: Vec<Vec<u8>>,
    names: Vec<libc::sockaddr_storage>,
    pieces: Vec<libc::iovec>,
    controls: Vec<Control>,
    headers: Vec<libc::mmsghdr>,
}

impl Messages {
    fn new(bytes: usize) -> Self {
        // SAFETY: all three are plain integers and pointers, for which zeros and null are valid.
        let (name, piece, header) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Self {
            bytes: vec![vec![0; bytes]; MESSAGES],
            names: vec![name; MESSAGES],
            pieces: vec![piece; MESSAGES],
            controls: vec![Control::default(); MESSAGES],
            headers: vec![header; MESSAGES],
        }
    }

    /// Waits for one message at least, and takes what there is.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for at in 0..MESSAGES {
            self.pieces[at] = libc::iovec {
                iov_base: self.bytes[at].as_mut_ptr().cast(),
                iov_len: self.bytes[at].len(),
            };
            let header = &mut self.headers[at].msg_hdr;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut self.pieces[at];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[at].as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<Control>() as _;
        }
        // SAFETY: the descriptor is the open socket; each header points to a name, a piece and a control of its own, and
        // each piece to a buffer of its own, which all outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                MESSAGES as u32,
                libc::MSG_WAITFORONE,
                ptr::null_mut(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Sends the first `count` messages back, no more than `most` bytes of each datagram. With `joins`, those in a row to
    /// one sender leave as one.
    fn answer(
        &mut self,
        socket: &UdpSocket,
        count: usize,
        most: usize,
        joins: bool,
    ) -> io::Result<()> {
        let (mut messages, mut first, mut bytes, mut size) = (0, 0, 0, 0);
        for at in 0..count {
            let (length, segment) = (self.length(at), self.segment(at));
            let several = segment.is_some_and(|segment| segment < length);
            if several && segment.is_some_and(|segment| most < segment) {
                let error = "shorter answers are not given with receive offload";
                return Err(io::Error::new(io::ErrorKind::Unsupported, error));
            }
            let length = if several { length } else { length.min(most) };
            let segment = segment.filter(|_| several).unwrap_or(length);
            self.pieces[at].iov_len = length;
            let follows = joins
                && messages > 0
                && segment == size
                && size > 0
                && bytes % size == 0
                && bytes + length <= LONGEST_BYTES.min(size * MOST_SEGMENTS)
                && self.is_to(at, first);
            if follows {
                bytes += length;
                self.headers[messages - 1].msg_hdr.msg_iovlen += 1;
            } else {
                // Where messages were joined the header is that of an earlier one.
                let length = self.headers[at].msg_hdr.msg_namelen;
                let header = &mut self.headers[messages].msg_hdr;
                header.msg_name = (&raw mut self.names[at]).cast();
                header.msg_namelen = length;
                header.msg_iov = &raw mut self.pieces[at];
                header.msg_iovlen = 1;
                (messages, first, bytes, size) =
                    (messages + 1, at, self.pieces[at].iov_len, segment);
            }
            self.put_segment(messages - 1, (bytes > size).then_some(size));
        }
        let mut sent = 0;
        while sent < messages {
            let rest = &mut self.headers[sent..messages];
            // SAFETY: as above; the call only reads what the headers point to.
            let taken = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            match usize::try_from(taken) {
                Ok(taken) => sent += taken,
                Err(_) if interrupted() => {}
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    /// Whether two messages came from one sender.
    fn is_to(&self, at: usize, other: usize) -> bool {
        let name = |at: usize| {
            let address: *const libc::sockaddr_storage = &raw const self.names[at];
            // SAFETY: the kernel wrote a name of the family that it begins with.
            unsafe {
                match libc::c_int::from((*address).ss_family) {
                    libc::AF_INET => {
                        let v4 = *address.cast::<libc::sockaddr_in>();
                        (u128::from(v4.sin_addr.s_addr), v4.sin_port)
                    }
                    _ => {
                        let v6 = *address.cast::<libc::sockaddr_in6>();
                        (u128::from_ne_bytes(v6.sin6_addr.s6_addr), v6.sin6_port)
                    }
                }
            }
        };
        name(at) == name(other)
    }

    fn length(&self, at: usize) -> usize {
        (self.headers[at].msg_len as usize).min(self.bytes[at].len())
    }

    fn received(&self, at: usize) -> &[u8] {
        &self.bytes[at][..self.length(at)]
    }

    /// The length of the datagrams that came as one, if several may have.
    fn segment(&self, at: usize) -> Option<usize> {
        // SAFETY: the kernel has filled the control buffer and set its length, beyond which the macros do not look; what
        // UDP_GRO holds is an int.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(&self.headers[at].msg_hdr).as_ref()?;
            let is_it = control.cmsg_level == libc::SOL_UDP && control.cmsg_type == libc::UDP_GRO;
            let size = || libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned();
            is_it.then(size).and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0)
        }
    }

    /// Has the kernel cut what is sent into datagrams of so many bytes.
    fn put_segment(&mut self, at: usize, segment: Option<usize>) {
        let header = &mut self.headers[at].msg_hdr;
        let Some(segment) = segment.and_then(|segment| u16::try_from(segment).ok()) else {
            header.msg_controllen = 0;
            return;
        };
        // SAFETY: the control buffer has room for one message that holds a u16, and is aligned for its header.
        unsafe {
            header.msg_control = self.controls[at].as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(mem::size_of::<u16>() as u32) as _;
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = libc::UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(mem::size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment);
        }
    }
}

fn receive(mut given: Given) -> Result<Infallible, Failure> {
    let mut sink = given.sinks.pop().ok_or("no sink")?;
    // It waits in the call itself.
    given.socket.set_nonblocking(false)?;
    let bytes = match given.serve.receive_offload {
        true => OFFLOADED_BYTES,
        false => given.serve.size_bytes + 1,
    };
    let mut messages = Messages::new(bytes);
    loop {
        sink.entered_kernel();
        let count = match messages.receive(&given.socket) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The answer to one that has gone: there is nothing to take.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error.into()),
        };
        for at in 0..count {
            let received = messages.received(at);
            sink.segments(received, messages.segment(at).unwrap_or(received.len()));
        }
        if let Some(most) = given.serve.reply_bytes {
            sink.entered_kernel();
            messages.answer(&given.socket, count, most, given.serve.send_offload)?;
        }
    }
}

fn interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}
