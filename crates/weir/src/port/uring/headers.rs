//! Message headers for operations in the kernel's hands: one for each slot.

use crate::{
    memory::Slice,
    socket::{
        Arrival, Peer,
        names::stands_for_name,
        native::{
            CONTROL_BYTES, LOCAL_NAME_BYTES, MOST_JOINED, Name, Native, decode_into, encode,
            encode_local, name_segment, name_source, read_control,
        },
    },
};
use std::{
    alloc::{self, Layout},
    mem,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    num::NonZeroU16,
    ptr::NonNull,
};

/// What an arrival is written into: nothing of nobody.
pub(super) const NOTHING: Arrival = Arrival {
    len: 0,
    from: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    local: None,
    truncated: false,
    at: None,
    segment: None,
    link: None,
    meta: crate::socket::Meta::NONE,
};

/// A header and what it points at, except the slice and the control data.
#[repr(C, align(64))]
struct Header {
    message: libc::msghdr,
    vector: libc::iovec,
    name: Name,
}

/// Control data, aligned as the kernel's headers want it. Of a Unix socket, which has none, the name of its peer.
#[repr(C, align(64))]
struct Control([u8; CONTROL_BYTES]);

const _: () = assert!(LOCAL_NAME_BYTES <= CONTROL_BYTES);

/// What comes with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// A name of the internet.
    Name,
    /// That, and control data.
    Control,
    /// The name of a Unix socket.
    LocalName,
}

impl Beside {
    /// What comes by this socket.
    #[inline]
    pub(super) fn of(native: &Native) -> Self {
        match (native.has_control(), native.is_local()) {
            (false, false) => Self::Name,
            (true, _) => Self::Control,
            (_, true) => Self::LocalName,
        }
    }
}

/// One header for each slot, taken up front. The kernel reads a header when the operation is
/// submitted, and writes to it and to its control data when a receive completes: so they are
/// reached by raw pointers only, and are given back by [`Headers::free`], never by a drop.
pub(super) struct Headers {
    headers: NonNull<Header>,
    /// Pages of it that nobody touches cost nothing: most sockets ask for no control data.
    control: NonNull<Control>,
    count: usize,
}

// SAFETY: the headers are plain memory that this value alone hands out pointers to.
unsafe impl Send for Headers {}

/// Zeroed memory for `count` values.
fn zeroed<T>(count: usize) -> NonNull<T> {
    let layout = Layout::array::<T>(count.max(1)).expect("bounded by the slots of a token");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

impl Headers {
    pub(super) fn new(count: usize) -> Self {
        Self { headers: zeroed(count), control: zeroed(count), count }
    }

    fn header(&self, slot: usize) -> (*mut Header, *mut Control) {
        assert!(slot < self.count, "header {slot} of {}", self.count);
        // SAFETY: the slot lies within both allocations.
        unsafe { (self.headers.as_ptr().add(slot), self.control.as_ptr().add(slot)) }
    }

    /// Makes the header of a slot ready for a receive into the slice's payload.
    #[inline]
    pub(super) fn receive(
        &mut self,
        slot: usize,
        slice: &Slice,
        beside: Beside,
    ) -> *mut libc::msghdr {
        let (header, control) = self.header(slot);
        let layout = slice.region().layout();
        // SAFETY: the header is ours while its slot is not in the kernel's hands, and all zeroes
        // is a valid header; the payload lies in the slice.
        unsafe {
            (*header).vector = libc::iovec {
                iov_base: slice.base().add(layout.headroom).as_ptr().cast(),
                iov_len: layout.payload,
            };
            let message = &mut (*header).message;
            let (name, name_bytes) = match beside {
                Beside::LocalName => (control.cast(), LOCAL_NAME_BYTES),
                _ => ((&raw mut (*header).name).cast(), mem::size_of::<Name>()),
            };
            message.msg_name = name;
            message.msg_namelen = name_bytes as libc::socklen_t;
            let with_control = beside == Beside::Control;
            message.msg_iov = &raw mut (*header).vector;
            message.msg_iovlen = 1;
            message.msg_control = if with_control { control.cast() } else { std::ptr::null_mut() };
            message.msg_controllen = if with_control { CONTROL_BYTES } else { 0 };
            message.msg_flags = 0;
            &raw mut (*header).message
        }
    }

    /// Reads what a completed receive of `len` bytes left in the header of its slot into an arrival that says nothing.
    /// `false`: it has no source, which is how the kernel says that receiving was ended.
    ///
    /// # Safety
    /// The kernel completed the receive of this slot just now.
    #[inline]
    pub(super) unsafe fn arrival(&self, slot: usize, len: usize, arrival: &mut Arrival) -> bool {
        // SAFETY: the caller vouches that the kernel is done with this header.
        let header = unsafe { &*self.header(slot).0 };
        let message = &header.message;
        arrival.len = len;
        arrival.truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        let of_internet = (&raw const header.name).cast();
        let most = match message.msg_name.cast_const() == of_internet {
            true => mem::size_of::<Name>(),
            false => LOCAL_NAME_BYTES,
        };
        // SAFETY: the kernel wrote msg_namelen bytes of the name, as far as there was room.
        unsafe {
            let length = (message.msg_namelen as usize).min(most);
            decode_into(message.msg_name.cast(), length, &mut arrival.from);
        }
        if message.msg_controllen > 0 {
            // SAFETY: the kernel wrote msg_controllen bytes of control data.
            unsafe { read_control(message, arrival) };
        }
        message.msg_namelen > 0
    }

    /// Makes the header of a slot ready for a send of these bytes, which are several datagrams where they have a
    /// segment's size.
    #[inline]
    pub(super) fn send(
        &mut self,
        slot: usize,
        bytes: libc::iovec,
        segment: Option<NonZeroU16>,
        to: &Peer,
    ) -> *const libc::msghdr {
        let header = self.header(slot).0;
        // SAFETY: the header is ours while its slot is not in the kernel's hands.
        let vector = unsafe {
            (*header).vector = bytes;
            &raw mut (*header).vector
        };
        self.send_list(slot, (vector, 1), segment, to)
    }

    /// The same for bytes that lie in several places: a list, and how many it names.
    #[inline]
    pub(super) fn send_list(
        &mut self,
        slot: usize,
        (list, count): (*mut libc::iovec, usize),
        segment: Option<NonZeroU16>,
        to: &Peer,
    ) -> *const libc::msghdr {
        let (header, control) = self.header(slot);
        if stands_for_name(&to.address) {
            return self.send_to_name(slot, (list, count), segment, to);
        }
        let (name, name_length) = encode(&to.address);
        // SAFETY: as in `receive`.
        unsafe {
            (*header).name = name;
            let message = &mut (*header).message;
            message.msg_name = (&raw mut (*header).name).cast();
            message.msg_namelen = name_length;
            message.msg_iov = list;
            message.msg_iovlen = count as _;
            message.msg_flags = 0;
            name_source(message, control.cast(), to);
            name_segment(message, control.cast(), segment);
            &raw const (*header).message
        }
    }

    /// The same to a Unix socket. What is several datagrams is made one without a name, which the kernel refuses: it would
    /// send all as one.
    #[cold]
    fn send_to_name(
        &mut self,
        slot: usize,
        (list, count): (*mut libc::iovec, usize),
        segment: Option<NonZeroU16>,
        to: &Peer,
    ) -> *const libc::msghdr {
        let (header, control) = self.header(slot);
        // SAFETY: as in `receive`; control data has room for a name, and may have any value.
        unsafe {
            let length = encode_local(&to.address, &mut *control.cast());
            let message = &mut (*header).message;
            message.msg_name = control.cast();
            message.msg_namelen = if segment.is_some() { 1 } else { length };
            message.msg_iov = list;
            message.msg_iovlen = count as _;
            message.msg_flags = 0;
            (message.msg_control, message.msg_controllen) = (std::ptr::null_mut(), 0);
            &raw const (*header).message
        }
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No operation of these slots is in the kernel's hands, and none will be.
    pub(super) unsafe fn free(self) {
        let count = self.count.max(1);
        let headers = Layout::array::<Header>(count).expect("as when it was allocated");
        let control = Layout::array::<Control>(count).expect("as when it was allocated");
        // SAFETY: both were allocated with these layouts, and the caller vouches for the kernel.
        unsafe {
            alloc::dealloc(self.headers.as_ptr().cast(), headers);
            alloc::dealloc(self.control.as_ptr().cast(), control);
        }
    }
}

/// So many bytes at the beginning of a slice's payload.
#[inline]
pub(super) fn vector(slice: &Slice, len: usize) -> libc::iovec {
    let payload = slice.payload();
    debug_assert!(len <= payload.len());
    let len = len.min(payload.len()); // the kernel reads no further, whatever is asked of it
    libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: len }
}

/// Where the bytes of messages lie that lie in several places: lists, taken up front, that stay where they are. As
/// headers, they are given back by [`Lists::free`], never by a drop.
pub(super) struct Lists {
    lists: NonNull<[libc::iovec; MOST_JOINED]>,
    count: usize,
    /// Which are nobody's, the next one on top.
    free: Vec<usize>,
}

// SAFETY: as of `Headers`.
unsafe impl Send for Lists {}

impl Lists {
    pub(super) fn new(count: usize) -> Self {
        Self { lists: zeroed(count), count, free: (0..count).collect() }
    }

    /// Whether there is one that is nobody's.
    #[inline]
    pub(super) fn has_one(&self) -> bool {
        !self.free.is_empty()
    }

    /// Fills the next list that is nobody's, which it stays until somebody [takes](Self::take) it. At most
    /// [`MOST_JOINED`] find room. Returns where it is, and how many it names.
    pub(super) fn fill(
        &mut self,
        parts: impl Iterator<Item = libc::iovec>,
    ) -> (*mut libc::iovec, usize) {
        let &list = self.free.last().expect("there is one that is nobody's");
        assert!(list < self.count, "list {list} of {}", self.count);
        // SAFETY: it lies within the allocation, whose vectors are zeroed and so valid, and is not in the kernel's hands.
        let vectors = unsafe { &mut *self.lists.as_ptr().add(list) };
        let count = vectors.iter_mut().zip(parts).map(|(vector, part)| *vector = part).count();
        (vectors.as_mut_ptr(), count)
    }

    /// The one that was filled last is somebody's now.
    pub(super) fn take(&mut self) -> usize {
        self.free.pop().expect("it was filled")
    }

    pub(super) fn give_back(&mut self, list: usize) {
        self.free.push(list);
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// The kernel uses none of them, and will not.
    pub(super) unsafe fn free(self) {
        let layout = Layout::array::<[libc::iovec; MOST_JOINED]>(self.count.max(1));
        let layout = layout.expect("as when it was allocated");
        // SAFETY: they were allocated with this layout, and the caller vouches for the kernel.
        unsafe { alloc::dealloc(self.lists.as_ptr().cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::{Layout, Region, RegionOptions},
        socket::native::decode,
    };
    use std::net::{IpAddr, SocketAddr};

    #[test]
    fn a_send_can_be_read_and_a_receive_filled_while_others_are_under_way() {
        let region = Region::new(Layout::packed(0, 64, 64), 2, RegionOptions::default()).unwrap();
        let mut headers = Headers::new(3);
        let slices = [region.take().unwrap(), region.take().unwrap()];
        let received = headers.receive(0, &slices[0], Beside::Control);
        let to: SocketAddr = "[::1]:7".parse().unwrap();
        let peers = [None, Some("::2".parse().unwrap())].map(|local| Peer {
            address: to,
            local,
            link: None,
            ecn: None,
        });
        let sent = [1, 2]
            .map(|slot| headers.send(slot, vector(&slices[1], slot * 10), None, &peers[slot - 1]));
        for (header, peer) in sent.into_iter().zip(peers) {
            // SAFETY: the headers were made ready above, and point at what they say.
            unsafe {
                let name = (*header).msg_name.cast::<u8>();
                assert_eq!(decode(name, (*header).msg_namelen as usize), to);
                let control = libc::CMSG_FIRSTHDR(header);
                assert_eq!(!control.is_null(), peer.local.is_some());
                if let Some(local) = peer.local {
                    let info = libc::CMSG_DATA(control).cast::<libc::in6_pktinfo>();
                    assert_eq!(IpAddr::from((*info).ipi6_addr.s6_addr), local);
                }
            }
        }
        // As the kernel does: a name, control data, and their lengths.
        let (name, name_bytes) = encode(&to);
        let mut arrival = NOTHING;
        // SAFETY: as above.
        let has_source = unsafe {
            (*received).msg_name.cast::<Name>().write(name);
            (*received).msg_namelen = name_bytes;
            let peer =
                Peer { address: to, local: Some("::3".parse().unwrap()), link: None, ecn: None };
            name_source(&mut *received, (*received).msg_control, &peer);
            headers.arrival(0, 33, &mut arrival)
        };
        assert!(has_source);
        assert_eq!((arrival.from, arrival.len), (to, 33));
        assert_eq!(arrival.local, Some("::3".parse().unwrap()));
        // SAFETY: there is no kernel.
        unsafe { headers.free() };
    }
}
