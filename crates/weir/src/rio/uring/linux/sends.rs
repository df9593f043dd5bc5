//! Sends under way: for each a message header that stays where it is until the send is over.
//!
//! Slices in a row that can leave as one are one message, which the kernel cuts (UDP_SEGMENT): the first of them has the
//! header, and each names the next.

use crate::{
    memory::{Posted, Region, Slice},
    ring::{Slots, Token},
    rio::{Peer, Span, requests::Outgoing},
    socket::{
        names::stands_for_name,
        native::{self, Joined, MOST_JOINED},
    },
};
use std::{collections::VecDeque, mem, net::SocketAddr, num::NonZeroU16, sync::Arc};

/// Room for the control data of a send, aligned for its headers.
type Control = [u64; native::SEND_CONTROL_BYTES / 8];

/// Messages of several slices that are under way, at most. Beyond that each slice is a message.
const MOST_LISTS: u32 = 64;

/// What sendmsg reads, in one piece that never moves.
struct Message {
    header: libc::msghdr,
    vector: libc::iovec,
    name: native::Name,
    control: Control,
    /// Where it is several slices: the list of them.
    list: Option<usize>,
    /// Where it is several datagrams: what size they have, and where they go.
    cut: Option<Cut>,
}

/// How several datagrams are made of one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Bytes of each.
    pub segment: NonZeroU16,
    pub to: Peer,
}

/// A slice under way.
#[derive(Debug)]
struct Sending {
    slice: Posted,
    span: Span,
    socket: u32,
    /// The one behind it in the same message.
    next: Option<Token>,
}

/// A slice that is not under way any more.
#[derive(Debug)]
pub(super) struct Over {
    pub slice: Slice,
    pub span: Span,
    pub socket: u32,
    /// The one behind it in the same message, which is over, too.
    pub next: Option<Token>,
}

/// Sends under way, at most as many as they were made for.
pub(super) struct Sends {
    slots: Slots<Sending>,
    messages: Box<[Message]>,
    /// The slices of messages that have several, and which of these lists are free.
    lists: Box<[[libc::iovec; MOST_JOINED]]>,
    free: Vec<usize>,
}

// SAFETY: the pointers in a message point into that same message and into a list, which stay in their boxes, and
// into slices that were posted; nothing else follows them but the kernel.
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
            list: None,
            cut: None,
        };
        // A list is of two slices at least.
        let lists = (most / 2).min(MOST_LISTS) as usize;
        // SAFETY: all zeroes is a valid vector, of length 0.
        let list = || unsafe { mem::zeroed() };
        Self {
            slots: Slots::new(class, most as usize),
            messages: (0..most).map(|_| message()).collect(),
            lists: (0..lists).map(|_| list()).collect(),
            free: (0..lists).collect(),
        }
    }

    /// How many are under way.
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Prepares a send of the first that waits, together with those behind it that can leave as one with it, where their
    /// datagrams are no longer than `longest`. The message stays valid until the last of them is [`over`](Self::over).
    /// `None` if nothing waits, or all places are taken.
    pub fn prepare(
        &mut self,
        outgoing: &mut VecDeque<Outgoing>,
        socket: u32,
        longest: usize,
    ) -> Option<(Token, *const libc::msghdr)> {
        let Outgoing { span, to, .. } = outgoing.front()?;
        let (mut joined, to) = (Joined::begin(*span, *to), *to);
        let room = self.messages.len() - self.slots.len();
        if !self.free.is_empty() {
            let others = outgoing.iter().take(room).skip(1);
            others.take_while(|next| joined.take(next.span, &next.to, longest)).count();
        }
        if room == 0 {
            return None;
        }
        let list = (joined.spans() > 1).then(|| self.free.pop().expect("there is a free one"));
        let mut one = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let vectors = match list {
            Some(list) => &mut self.lists[list][..joined.spans()],
            None => std::slice::from_mut(&mut one),
        };
        // From the last to the first, since each names the one behind it.
        let mut name_place = None;
        let mut next = None;
        let parts = outgoing.drain(..joined.spans()).zip(vectors).rev();
        for (Outgoing { mut slice, span, .. }, vector) in parts {
            if stands_for_name(&to.address) {
                name_place = Some(name_in_front(&mut slice, &to.address));
            }
            let payload = slice.payload();
            vector.iov_base = payload.as_ptr().cast_mut().cast();
            vector.iov_len = span.len.min(payload.len());
            let sending = Sending { slice: slice.post(), span, socket, next };
            next = Some(self.slots.insert(sending).expect("there was room for all of them"));
        }
        let token = next?;
        let message = &mut self.messages[token.slot()];
        message.vector = one;
        let name_bytes;
        (message.name, name_bytes) = native::encode(&to.address);
        message.header.msg_name = (&raw mut message.name).cast();
        message.header.msg_namelen = name_bytes;
        if let Some((name, name_bytes)) = name_place {
            message.header.msg_name = name;
            // A Unix socket cuts nothing, and would send all as one: without a name the kernel refuses it.
            message.header.msg_namelen = if joined.segment().is_some() { 1 } else { name_bytes };
        }
        message.header.msg_iov = match list {
            Some(list) => self.lists[list].as_mut_ptr(),
            None => &raw mut message.vector,
        };
        message.header.msg_iovlen = joined.spans() as _;
        let control = (&raw mut message.control).cast();
        // SAFETY: the control data stays beside its header, in a box.
        unsafe {
            native::name_source(&mut message.header, control, &to);
            native::name_segment(&mut message.header, control, joined.segment());
        }
        message.list = list;
        message.cut = joined.segment().map(|segment| Cut { segment, to });
        Some((token, &raw const message.header))
    }

    /// The message of a send that is under way, and its socket.
    pub fn message(&self, token: Token) -> Option<(*const libc::msghdr, u32)> {
        let sending = self.slots.get(token)?;
        Some((&raw const self.messages[token.slot()].header, sending.socket))
    }

    /// What a message consists of where it is several datagrams. Only before [`over`](Self::over).
    pub fn cut(&self, token: Token) -> Option<Cut> {
        self.messages.get(token.slot())?.cut
    }

    /// Ends a send: its last completion came, or the kernel never knew of it. `None` if the
    /// token is stale.
    ///
    /// # Safety
    /// The kernel does not use the slice any more, and it is one of this region.
    pub unsafe fn over(&mut self, token: Token, region: &Arc<Region>) -> Option<Over> {
        let Sending { slice, span, socket, next } = self.slots.remove(token)?;
        self.free.extend(self.messages[token.slot()].list.take());
        // SAFETY: it was posted in `prepare`, and the slot gave it up just now; the caller
        // vouches for the rest.
        let slice = unsafe { slice.reclaim(region) };
        Some(Over { slice, span, socket, next })
    }

    /// The tokens of all that are under way.
    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().map(|(token, _)| token)
    }

    /// Leaves the messages to the kernel, which may still read them.
    pub fn leak(&mut self) {
        mem::forget((mem::take(&mut self.messages), mem::take(&mut self.lists)));
    }
}

/// Writes the name of a Unix socket in front of the payload that goes there: as long as it is under way, nobody else uses that
/// place. Returns where it is, and its length.
#[cold]
fn name_in_front(slice: &mut Slice, to: &SocketAddr) -> (*mut libc::c_void, libc::socklen_t) {
    let headroom = slice.region().layout().headroom;
    let place = slice.whole_mut()[..headroom].first_chunk_mut::<{ native::LOCAL_NAME_BYTES }>();
    let place = place.expect("a frame has room for such a name");
    // SAFETY: bytes may be written as if they had no value yet.
    let place = unsafe { &mut *(&raw mut *place).cast() };
    let name_bytes = native::encode_local(to, place);
    (place.as_mut_ptr().cast(), name_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, RegionOptions};
    use std::net::IpAddr;

    const ANY: usize = usize::MAX;

    fn region(slices: u32) -> Arc<Region> {
        Region::new(Layout::packed(0, 64, 64), slices, RegionOptions::default()).unwrap()
    }

    /// A send of so many bytes, all of them this one.
    fn outgoing(region: &Arc<Region>, len: usize, byte: u8, to: Peer) -> Outgoing {
        let mut slice = region.take().unwrap();
        slice.payload_mut()[..len].fill(byte);
        Outgoing { slice, span: len.into(), to }
    }

    fn peer(address: &str) -> Peer {
        address.parse::<SocketAddr>().unwrap().into()
    }

    /// Ends a message; gives the bytes of its slices.
    fn end(sends: &mut Sends, token: Token, region: &Arc<Region>) -> Vec<usize> {
        let (mut next, mut ended) = (Some(token), vec![]);
        while let Some(token) = next {
            // SAFETY: no kernel is involved.
            let over = unsafe { sends.over(token, region) }.unwrap();
            next = over.next;
            ended.push(over.span.len);
        }
        ended
    }

    #[test]
    fn a_stale_token_ends_no_send_and_a_full_slab_takes_nothing() {
        let region = region(2);
        let mut sends = Sends::new(5, 1);
        let one = |byte| VecDeque::from([outgoing(&region, 3, byte, peer("127.0.0.1:9"))]);
        let (first, _) = sends.prepare(&mut one(1), 7, ANY).unwrap();
        let mut second = one(2);
        assert!(sends.prepare(&mut second, 7, ANY).is_none());
        // SAFETY: no kernel is involved.
        unsafe {
            assert_eq!(sends.over(first, &region).unwrap().socket, 7);
            let (second, _) = sends.prepare(&mut second, 8, ANY).unwrap();
            assert!(sends.over(first, &region).is_none(), "a late completion hits nothing");
            assert_eq!(sends.len(), 1);
            sends.over(second, &region).unwrap();
        }
        assert_eq!(region.in_pool(), 2);
        assert!(sends.prepare(&mut VecDeque::new(), 7, ANY).is_none());
    }

    /// What the kernel finds when it follows the pointers of a message: its bytes, where it goes, from where, and how it
    /// is cut.
    fn read(header: *const libc::msghdr) -> (Vec<u8>, SocketAddr, Option<IpAddr>, Option<u16>) {
        // SAFETY: the header was prepared, its send is not over, and what it points at is as
        // long as it says.
        unsafe {
            let vectors = std::slice::from_raw_parts((*header).msg_iov, (*header).msg_iovlen as _);
            let bytes = vectors.iter().flat_map(|vector| {
                std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len).to_vec()
            });
            let bytes = bytes.collect();
            let to = native::decode((*header).msg_name.cast(), (*header).msg_namelen as usize);
            let (mut local, mut segment) = (None, None);
            let mut control = libc::CMSG_FIRSTHDR(header);
            while !control.is_null() {
                let data = libc::CMSG_DATA(control);
                match (*control).cmsg_level {
                    libc::IPPROTO_IP => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        local = Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()));
                    }
                    libc::IPPROTO_IPV6 => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        local = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                    }
                    _ => segment = Some(data.cast::<u16>().read_unaligned()),
                }
                control = libc::CMSG_NXTHDR(header, control);
            }
            (bytes, to, local, segment)
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
        let region = region(4);
        let mut sends = Sends::new(5, 4);
        let peers = peers.map(|(address, local)| {
            let local = local.map(|local| local.parse().unwrap());
            Peer { local, ..peer(address) }
        });
        let mut waiting: VecDeque<_> =
            (0..).zip(peers).map(|(i, to)| outgoing(&region, 4, i, to)).collect();
        let mut prepared = Vec::new();
        while let Some(message) = sends.prepare(&mut waiting, prepared.len() as u32, ANY) {
            prepared.push(message);
        }
        assert_eq!(prepared.len(), 4, "each goes elsewhere");
        for (i, (&(token, header), to)) in prepared.iter().zip(peers).enumerate() {
            let local = to.local.filter(|local| local.is_ipv4() == to.address.is_ipv4());
            assert_eq!(read(header), (vec![i as u8; 4], to.address, local, None));
            // SAFETY: no kernel is involved.
            assert_eq!(unsafe { sends.over(token, &region) }.unwrap().socket, i as u32);
        }
        assert_eq!(region.in_pool(), 4);
    }

    #[test]
    fn slices_to_one_peer_are_one_message_as_long_as_there_are_lists() {
        let region = region(8);
        let mut sends = Sends::new(5, 5); // with two lists
        let to = Peer { local: Some([127, 0, 0, 2].into()), ..peer("127.0.0.1:9") };
        let lens = [3, 3, 2, 4, 4, 5, 5, 6];
        let mut waiting: VecDeque<_> =
            (0..).zip(lens).map(|(i, len)| outgoing(&region, len, i, to)).collect();
        let message = |sends: &mut Sends, waiting: &mut _| sends.prepare(waiting, 7, ANY).unwrap();
        let (first, header) = message(&mut sends, &mut waiting);
        let bytes = vec![0, 0, 0, 1, 1, 1, 2, 2];
        assert_eq!(read(header), (bytes, to.address, to.local, Some(3)));
        assert_eq!(sends.cut(first).unwrap().segment.get(), 3);
        let (second, header) = message(&mut sends, &mut waiting);
        assert_eq!(read(header).3, Some(4));
        assert_eq!((sends.len(), waiting.len()), (5, 3), "there are no more places");
        assert!(sends.prepare(&mut waiting, 7, ANY).is_none());
        assert_eq!(end(&mut sends, first, &region), [3, 3, 2]);
        let (third, header) = message(&mut sends, &mut waiting);
        assert_eq!(
            read(header),
            (vec![5, 5, 5, 5, 5, 6, 6, 6, 6, 6], to.address, to.local, Some(5))
        );
        let (fourth, header) = message(&mut sends, &mut waiting);
        assert_eq!((read(header).0.len(), read(header).3), (6, None));
        for (token, lens) in [(fourth, vec![6]), (second, vec![4, 4]), (third, vec![5, 5])] {
            assert_eq!(end(&mut sends, token, &region), lens);
        }
        assert_eq!((region.in_pool(), sends.len(), sends.free.len()), (8, 0, 2));
    }

    #[test]
    fn without_a_free_list_and_above_the_longest_each_slice_is_a_message() {
        let region = region(8);
        let mut sends = Sends::new(5, 8);
        sends.free.truncate(1);
        let of = |len| VecDeque::from([0, 1].map(|i| outgoing(&region, len, i, peer("[::1]:9"))));
        let mut waiting = of(9);
        let (alone, _) = sends.prepare(&mut waiting, 0, 8).unwrap();
        assert_eq!(waiting.len(), 1, "longer ones are not joined");
        let (joined, _) = sends.prepare(&mut of(9), 0, 9).unwrap();
        let mut waiting_too = of(9);
        let (another, _) = sends.prepare(&mut waiting_too, 0, 9).unwrap();
        assert_eq!(waiting_too.len(), 1, "no list was left");
        let ended = [alone, joined, another].map(|token| end(&mut sends, token, &region).len());
        assert_eq!((ended, sends.len()), ([1, 2, 1], 0));
    }
}
