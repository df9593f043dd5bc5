//! Where in a slice the kernel writes what.
//!
//! ```text
//! | unused | header 16 | source 28 | control 0, 80 or 144 | payload ... |
//! slice    buffer                                      64-byte aligned
//! ```
//!
//! A multishot recvmsg puts a header, the source address and the control data in front of the
//! payload, in fields of fixed length. So the buffer given to the kernel begins that far before
//! the payload, and where no control data is asked for it touches one cache line less. Then the source lies where the
//! contract has it; otherwise what the control data says is written over it, in the contract's form.
//!
//! The name of a Unix peer is longer: its field has the room of the control data, which there is none of.

use crate::{
    memory::{Region, Slice},
    rio::{self, Needs, Received},
    socket::{
        Arrival, Meta,
        context::{CONTEXT_BYTES, SOURCE, SOURCE_BYTES},
        native,
    },
};
use std::{mem, ptr::NonNull};

/// struct io_uring_recvmsg_out: lengths of name, control data and payload, and flags; 32 bits each.
const HEADER_BYTES: usize = 16;

/// The longer of the two kinds of source address.
const NAME_BYTES: usize = mem::size_of::<libc::sockaddr_in6>();

// Without control data it lies where a context has it.
const _: () = assert!(NAME_BYTES == SOURCE_BYTES && SOURCE + NAME_BYTES == CONTEXT_BYTES);

/// Control data of one datagram: packet information (IPv6: 40 bytes with its header) and time
/// stamp (32). A multiple of 8, so that it is aligned when the payload is.
const CONTROL_BYTES: usize = 80;

/// The same with the size of each of several datagrams, a traffic class and hops (24 more each). Only slices for receive
/// offload, which are large, and those for who asks for that have room for it: it would cost the others a cache line.
const CONTROL_BYTES_MORE: usize = 144;

/// The same where the source is a Unix socket.
const LOCAL_NAME_BYTES: usize = native::LOCAL_NAME_BYTES;

const _: () = assert!(HEADER_BYTES + LOCAL_NAME_BYTES <= headroom(CONTROL_BYTES));

/// Bytes in front of the payload, for so much control data.
const fn headroom(control: usize) -> usize {
    (HEADER_BYTES + NAME_BYTES + control).next_multiple_of(ALIGN)
}

/// A cache line.
pub(super) const ALIGN: usize = 64;

/// How slices must be cut.
pub(super) fn layout(needs: &Needs) -> crate::memory::Layout {
    let control = if needs.offload | needs.meta { CONTROL_BYTES_MORE } else { CONTROL_BYTES };
    crate::memory::Layout::packed(headroom(control), needs.payload, ALIGN)
}

/// What comes with a datagram in front of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// A name of the internet.
    Name,
    /// That, and control data.
    Control,
    /// A name of the internet or of a Unix socket.
    LocalName,
}

/// Where in the slices of one region the kernel writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Address of the buffer in the first slice.
    first: u64,
    stride: u64,
    /// Where in a slice the buffer begins.
    begin: usize,
    name: usize,
    control: usize,
    payload: usize,
    /// The source lies where a context has it.
    in_place: bool,
}

impl Frame {
    /// For a region cut as [`layout`] says; with what comes by its sockets.
    pub fn new(region: &Region, beside: Beside) -> Self {
        let layout = region.layout();
        let (name, control) = match beside {
            Beside::Name => (NAME_BYTES, 0),
            Beside::Control if layout.headroom == headroom(CONTROL_BYTES) => {
                (NAME_BYTES, CONTROL_BYTES)
            }
            Beside::Control => (NAME_BYTES, CONTROL_BYTES_MORE),
            Beside::LocalName => (LOCAL_NAME_BYTES, 0),
        };
        let begin = layout.headroom - HEADER_BYTES - name - control;
        Self {
            name,
            in_place: beside == Beside::Name,
            first: region.extent().0.as_ptr() as u64 + begin as u64,
            stride: layout.stride as u64,
            begin,
            control,
            payload: layout.payload,
        }
    }

    /// Address of the buffer in a slice.
    #[inline]
    pub fn address(&self, index: u32) -> u64 {
        self.first + self.stride * u64::from(index)
    }

    /// Bytes in front of the payload.
    #[inline]
    fn before_payload(&self) -> usize {
        HEADER_BYTES + self.name + self.control
    }

    /// Length of a buffer.
    #[inline]
    pub fn length(&self) -> u32 {
        (self.before_payload() + self.payload) as u32
    }

    /// The message header that arms a receive: it only tells how long the fields are.
    pub fn message(&self) -> libc::msghdr {
        // SAFETY: all zeroes is a valid msghdr.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_namelen = self.name as libc::socklen_t;
        message.msg_controllen = self.control as _;
        message
    }

    /// What a completion of `written` bytes in all says. Where no control data was asked for, the source lies where a
    /// context has it, and nothing is read here.
    #[inline(always)]
    pub fn received(&self, slice: &mut Slice, written: u32) -> Received {
        let len = (written as usize).saturating_sub(self.before_payload()).min(self.payload);
        if self.in_place && len < self.payload {
            return Received::new(len, false);
        }
        self.read(slice, len)
    }

    /// Reads what the kernel wrote in front of the payload of a slice: whether the datagram was cut, which it may have
    /// been where it fills its slice, and control data, in whose place its meaning is written.
    #[inline(never)]
    fn read(&self, slice: &mut Slice, len: usize) -> Received {
        let buffer = &slice.whole()[self.begin..];
        let [name_bytes, control_bytes, _, flags] = header(buffer);
        let truncated = flags & libc::MSG_TRUNC as u32 != 0;
        if self.in_place {
            return Received::new(len, truncated);
        }
        // A Unix peer that has no name leaves what lay there.
        let name = &buffer[HEADER_BYTES..][..self.name.min(name_bytes as usize)];
        // SAFETY: `name` is that many initialised bytes.
        let from = unsafe { native::decode(name.as_ptr(), name.len()) };
        let mut arrival = Arrival {
            len,
            from,
            local: None,
            truncated,
            at: None,
            segment: None,
            link: None,
            meta: Meta::NONE,
        };
        if control_bytes > 0 {
            self.read_control(&buffer[HEADER_BYTES + self.name..], control_bytes, &mut arrival);
        }
        rio::received(slice, &arrival)
    }

    fn read_control(&self, control: &[u8], written: u32, arrival: &mut Arrival) {
        let control = &control[..self.control.min(written as usize)];
        let mut message = self.message();
        message.msg_control = NonNull::from(control).as_ptr().cast();
        message.msg_controllen = control.len() as _;
        // SAFETY: the header points at that many bytes that the kernel wrote; they are aligned
        // for control headers, since the payload behind them is aligned to 64.
        unsafe { native::read_control(&message, arrival) };
    }
}

#[inline]
fn header(buffer: &[u8]) -> [u32; 4] {
    let word = |n: usize| {
        u32::from_ne_bytes([buffer[4 * n], buffer[4 * n + 1], buffer[4 * n + 2], buffer[4 * n + 3]])
    };
    [word(0), word(1), word(2), word(3)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::RegionOptions, socket::context::Origin as _};
    use std::net::SocketAddr;

    /// One receive.
    const ONE: Needs =
        Needs { payload: 100, receives: 1, sends: 0, per_dequeue: 1, offload: false, meta: false };

    #[test]
    fn payloads_are_aligned_and_buffers_end_with_their_slice() {
        let needs = Needs {
            payload: 1000,
            receives: 3,
            sends: 0,
            per_dequeue: 1,
            offload: false,
            meta: false,
        };
        let region = Region::new(layout(&needs), 3, RegionOptions::default()).unwrap();
        for beside in [Beside::Name, Beside::Control, Beside::LocalName] {
            let frame = Frame::new(&region, beside);
            let mut taken = Vec::new();
            while let Some(slice) = region.take() {
                let payload = slice.payload().as_ptr() as u64;
                assert_eq!(payload % ALIGN as u64, 0);
                let buffer = frame.address(slice.index());
                assert!(buffer >= slice.base().as_ptr() as u64);
                assert_eq!(buffer + u64::from(frame.length()), payload + 1000);
                taken.push(slice);
            }
            assert_eq!(taken.len(), 3);
            taken.clear();
        }
    }

    /// Writes what the kernel writes in front of a payload.
    fn write(slice: &mut Slice, frame: &Frame, from: &SocketAddr, len: usize, flags: i32) -> u32 {
        let (name, name_bytes) = native::encode(from);
        let name =
            // SAFETY: a Name is that many initialised bytes.
            unsafe { std::slice::from_raw_parts((&raw const name).cast::<u8>(), name_bytes as _) };
        let control_bytes = 0;
        let header = [name_bytes, control_bytes, len as u32, flags as u32];
        let begin = frame.begin;
        for (word, value) in header.iter().enumerate() {
            slice.whole_mut()[begin + 4 * word..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        slice.whole_mut()[begin + HEADER_BYTES..][..name.len()].copy_from_slice(name);
        (frame.before_payload() + len) as u32
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let region = Region::new(layout(&ONE), 1, RegionOptions::default()).unwrap();
        let frame = Frame::new(&region, Beside::Name);
        for from in ["127.0.0.1:7", "[::1%3]:8"] {
            let from: SocketAddr = from.parse().unwrap();
            let mut slice = region.take().unwrap();
            let written = write(&mut slice, &frame, &from, 60, 0);
            let say = |slice: &mut Slice, written| {
                let received = frame.received(slice, written);
                received.with(rio::line_and_payload(slice).0).arrival()
            };
            let arrival = say(&mut slice, written);
            assert_eq!((arrival.from, arrival.len, arrival.truncated), (from, 60, false));
            // More than there can be: a kernel that says so is not believed.
            let written = write(&mut slice, &frame, &from, 1000, libc::MSG_TRUNC);
            let arrival = say(&mut slice, written);
            assert_eq!((arrival.from, arrival.len, arrival.truncated), (from, 100, true));
            assert_eq!(say(&mut slice, 3).len, 0);
        }
    }

    /// A name of the internet, of a Unix socket, and none, which leaves what lay there before.
    #[test]
    fn names_of_either_kind_are_read() {
        let region = Region::new(layout(&ONE), 1, RegionOptions::default()).unwrap();
        let frame = Frame::new(&region, Beside::LocalName);
        let name = crate::stream::UnixAddress::from(format!("/{}", "x".repeat(106)));
        let unix = SocketAddr::try_from(&name).unwrap();
        let internet: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let nobody: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let mut slice = region.take().unwrap();
        for from in [unix, nobody, internet, nobody, unix] {
            let written = if from == unix {
                let mut encoded = [mem::MaybeUninit::uninit(); LOCAL_NAME_BYTES];
                let length = native::encode_local(&from, &mut encoded) as usize;
                assert_eq!(length, LOCAL_NAME_BYTES);
                let mut name = encoded.iter();
                for (word, value) in [length as u32, 0, 60, 0].iter().enumerate() {
                    let place = frame.begin + 4 * word;
                    slice.whole_mut()[place..][..4].copy_from_slice(&value.to_ne_bytes());
                }
                let place = &mut slice.whole_mut()[frame.begin + HEADER_BYTES..][..length];
                // SAFETY: so many bytes were written.
                place.fill_with(|| unsafe { name.next().unwrap().assume_init() });
                (frame.before_payload() + 60) as u32
            } else {
                let written = write(&mut slice, &frame, &from, 60, 0);
                if from == nobody {
                    slice.whole_mut()[frame.begin..][..4].fill(0);
                }
                written
            };
            let received = frame.received(&mut slice, written);
            let arrival = received.with(rio::line_and_payload(&mut slice).0).arrival();
            assert_eq!((arrival.from, arrival.len, arrival.truncated), (from, 60, false));
        }
    }
}
