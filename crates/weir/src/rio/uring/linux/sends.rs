//! Sends under way: for each a message header that stays where it is until the send is over.

use crate::{
    memory::{Posted, Region, Slice},
    ring::{Slots, Token},
    rio::{Peer, Span},
    socket::native,
};
use std::{mem, num::NonZeroU16, sync::Arc};

/// Room for the control data of a send, aligned for its headers.
type Control = [u64; native::SEND_CONTROL_BYTES / 8];

/// What sendmsg reads, in one piece that never moves.
struct Message {
    header: libc::msghdr,
    vector: libc::iovec,
    name: native::Name,
    control: Control,
    /// Where it is several datagrams: what size they have, and where they go.
    segments: Option<Segments>,
}

/// Several datagrams that are sent at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments {
    pub span: Span,
    /// Bytes of each.
    pub segment: NonZeroU16,
    pub to: Peer,
}

/// A send under way.
#[derive(Debug)]
struct Sending {
    slice: Posted,
    socket: u32,
}

/// Sends under way, at most as many as they were made for.
pub(super) struct Sends {
    slots: Slots<Sending>,
    messages: Box<[Message]>,
}

// SAFETY: the pointers in a message point into that same message, which stays in its box, and
// into a slice that was posted; nothing else follows them but the kernel.
unsafe impl Send for Sends {}

impl Sends {
    /// Room for `most` sends; all memory is taken here. `class` is that of their tokens.
    pub fn new(class: u8, most: u32) -> Self {
        let message = || Message {
            // SAFETY: all zeroes is a valid header: its pointers are null and its lengths 0.
            header: unsafe { mem::zeroed() },
            // SAFETY: all zeroes is a valid vector, of length 0.
            vector: unsafe { mem::zeroed() },
            // SAFETY: all zeroes is a valid name.
            name: unsafe { mem::zeroed() },
            control: Control::default(),
            segments: None,
        };
        Self {
            slots: Slots::new(class, most as usize),
            messages: (0..most).map(|_| message()).collect(),
        }
    }

    /// How many are under way.
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Prepares a send of the span at the beginning of a slice's payload. The message stays valid
    /// until [`over`](Self::over).
    ///
    /// # Errors
    /// Gives the slice back when all places are taken.
    pub fn prepare(
        &mut self,
        slice: Slice,
        span: Span,
        to: &Peer,
        socket: u32,
    ) -> Result<(Token, *const libc::msghdr), Slice> {
        let payload = slice.payload();
        let vector = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: span.len.min(payload.len()),
        };
        let region = Arc::clone(slice.region());
        let sending = Sending { slice: slice.post(), socket };
        let token = self.slots.insert(sending).map_err(|back| {
            // SAFETY: posted just above, and never told to the kernel.
            unsafe { back.slice.reclaim(&region) }
        })?;
        let message = &mut self.messages[token.slot()];
        message.vector = vector;
        let name_bytes;
        (message.name, name_bytes) = native::encode(&to.address);
        message.header.msg_name = (&raw mut message.name).cast();
        message.header.msg_namelen = name_bytes;
        message.header.msg_iov = &raw mut message.vector;
        message.header.msg_iovlen = 1;
        let control = (&raw mut message.control).cast();
        // SAFETY: the control data stays beside its header, in a box.
        unsafe {
            native::name_source(&mut message.header, control, to);
            native::name_segment(&mut message.header, control, span.segment);
        }
        message.segments = span.segment.map(|segment| Segments { span, segment, to: *to });
        Ok((token, &raw const message.header))
    }

    /// The message of a send that is under way, its bytes, and its socket.
    pub fn message(&self, token: Token) -> Option<(*const libc::msghdr, usize, u32)> {
        let sending = self.slots.get(token)?;
        let Message { header, vector, .. } = &self.messages[token.slot()];
        Some((&raw const *header, vector.iov_len, sending.socket))
    }

    /// What a send consists of where it is several datagrams. Only before [`over`](Self::over).
    pub fn segments(&self, token: Token) -> Option<Segments> {
        self.messages.get(token.slot())?.segments
    }

    /// Ends a send: its last completion came, or the kernel never knew of it. `None` if the
    /// token is stale.
    ///
    /// # Safety
    /// The kernel does not use the slice any more, and it is one of this region.
    pub unsafe fn over(&mut self, token: Token, region: &Arc<Region>) -> Option<(Slice, u32)> {
        let Sending { slice, socket } = self.slots.remove(token)?;
        // SAFETY: it was posted in `prepare`, and the slot gave it up just now; the caller
        // vouches for the rest.
        Some((unsafe { slice.reclaim(region) }, socket))
    }

    /// The tokens of all that are under way.
    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().map(|(token, _)| token)
    }

    /// Leaves the messages to the kernel, which may still read them.
    pub fn leak(&mut self) {
        mem::forget(mem::take(&mut self.messages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, RegionOptions};
    use std::net::{IpAddr, SocketAddr};

    #[test]
    fn a_stale_token_ends_no_send_and_a_full_slab_gives_the_slice_back() {
        let region = Region::new(Layout::packed(0, 64, 64), 2, RegionOptions::default()).unwrap();
        let mut sends = Sends::new(5, 1);
        let to = Peer { address: "127.0.0.1:9".parse().unwrap(), local: None, link: None };
        let (first, header) = sends.prepare(region.take().unwrap(), 3.into(), &to, 7).unwrap();
        // SAFETY: the header was prepared just above, and its send is not over.
        assert_eq!(unsafe { (*(*header).msg_iov).iov_len }, 3);
        let refused = sends.prepare(region.take().unwrap(), 3.into(), &to, 7).unwrap_err();
        drop(refused);
        assert_eq!(region.in_pool(), 1);
        // SAFETY: no kernel is involved.
        unsafe {
            assert_eq!(sends.over(first, &region).unwrap().1, 7);
            let (second, _) = sends.prepare(region.take().unwrap(), 3.into(), &to, 8).unwrap();
            assert!(sends.over(first, &region).is_none(), "a late completion hits nothing");
            assert_eq!(sends.len(), 1);
            sends.over(second, &region).unwrap();
        }
        assert_eq!(region.in_pool(), 2);
    }

    /// What the kernel finds when it follows the pointers of a message.
    fn read(header: *const libc::msghdr) -> (Vec<u8>, SocketAddr, Option<IpAddr>) {
        // SAFETY: the header was prepared, its send is not over, and what it points at is as
        // long as it says.
        unsafe {
            let vector = &*(*header).msg_iov;
            let bytes = std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len);
            let to = native::decode((*header).msg_name.cast(), (*header).msg_namelen as usize);
            let control = libc::CMSG_FIRSTHDR(header);
            let local = (!control.is_null()).then(|| {
                let data = libc::CMSG_DATA(control);
                if (*control).cmsg_level == libc::IPPROTO_IP {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes())
                } else {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    IpAddr::from(info.ipi6_addr.s6_addr)
                }
            });
            (bytes.to_vec(), to, local)
        }
    }

    #[test]
    fn every_message_under_way_can_be_read_until_it_is_over() {
        let peers: [(&str, Option<&str>); 4] = [
            ("127.0.0.1:9", None),
            ("127.0.0.1:10", Some("127.0.0.2")),
            ("[::1]:11", Some("::2")),
            ("[::1]:12", Some("127.0.0.1")), // the families differ: the system chooses
        ];
        let region = Region::new(Layout::packed(0, 64, 64), 4, RegionOptions::default()).unwrap();
        let mut sends = Sends::new(5, 4);
        let mut prepared = Vec::new();
        for (i, (address, local)) in peers.into_iter().enumerate() {
            let local = local.map(|local| local.parse().unwrap());
            let to = Peer { address: address.parse().unwrap(), local, link: None };
            let mut slice = region.take().unwrap();
            slice.payload_mut()[..4].fill(i as u8);
            prepared.push((sends.prepare(slice, 4.into(), &to, i as u32).unwrap(), to));
        }
        for (i, &((token, header), to)) in prepared.iter().enumerate() {
            let local = to.local.filter(|local| local.is_ipv4() == to.address.is_ipv4());
            assert_eq!(read(header), (vec![i as u8; 4], to.address, local));
            // SAFETY: no kernel is involved.
            assert_eq!(unsafe { sends.over(token, &region) }.unwrap().1, i as u32);
        }
        assert_eq!(region.in_pool(), 4);
    }
}
