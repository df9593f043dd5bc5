//! Which datagrams that are sent in a row can leave as one. Whether the kernel takes that is seen in `segmentation`; they are
//! joined where messages are made for it: by `batch` for plain sockets, in `rio/uring/linux/sends` and `port/uring/sends`, and in
//! `rio/xdp/linux/common` for what AF_XDP leaves to a socket.

use crate::socket::{Peer, Span};
use std::num::NonZeroU16;

/// Datagrams that leave as one at most, as many as every Linux with UDP_SEGMENT takes (UDP_MAX_SEGMENTS is 64 to 6.8,
/// 128 from 6.9 on).
pub(crate) const MOST_JOINED: usize = 64;

/// Bytes that leave as one at most: the longest payload of UDP over IPv4.
const MOST_BYTES: usize = 65_507;

/// Spans up to so many bytes are copied behind each other to leave as one: for the kernel one piece of memory is cheaper
/// than many small ones, by more than the copy costs.
pub(crate) const COPIED: usize = 256;

/// Spans in a row that can leave as one: they go to one peer, and all datagrams but the last are of one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    to: Peer,
    /// Bytes of each datagram.
    segment: usize,
    /// Bytes of all.
    len: usize,
    spans: usize,
    /// Of datagrams so short that they are copied behind each other.
    copied: bool,
}

impl Joined {
    /// The first span.
    #[inline]
    pub fn begin(span: Span, to: Peer) -> Self {
        let segment = span.segment.map_or(span.len, |segment| segment.get().into());
        let copied = span.segment.is_none() && span.len <= COPIED;
        Self { to, segment, len: span.len, spans: 1, copied }
    }

    /// Takes one more span, if it can leave with those that are in it. Datagrams longer than `longest` are not joined.
    #[inline]
    pub fn take(&mut self, span: Span, to: &Peer, longest: usize) -> bool {
        let Self { segment, len, .. } = *self;
        let size = span.segment.map_or(span.len, |segment| segment.get().into());
        // Only the last datagram may be shorter, and one without bytes ends what is cut.
        let fits = segment == size || (size < segment && span.segment.is_none());
        let takes = fits
            && !(self.copied && span.segment.is_some())
            && (1..=longest).contains(&size)
            && segment <= longest
            && len % segment == 0
            && len + span.len <= MOST_BYTES.min(segment * MOST_JOINED)
            && self.to == *to;
        if takes {
            self.len += span.len;
            self.spans += 1;
        }
        takes
    }

    /// Whether its spans, if there are several, are copied behind each other: each is one datagram of at most [`COPIED`]
    /// bytes.
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.copied
    }

    /// How many spans are in it.
    #[inline]
    pub fn spans(&self) -> usize {
        self.spans
    }

    /// Bytes of each datagram, where that is a size that the kernel cuts.
    pub fn datagram(&self) -> Option<NonZeroU16> {
        u16::try_from(self.segment).ok().and_then(NonZeroU16::new)
    }

    /// Bytes of each datagram, where there are several.
    #[inline]
    pub fn segment(&self) -> Option<NonZeroU16> {
        let several = self.len > self.segment;
        self.datagram().filter(|_| several)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    fn span(len: usize, segment: u16) -> Span {
        Span { len, segment: NonZeroU16::new(segment) }
    }

    /// How many spans of these leave as one, all of them to one peer, and cut how.
    fn joined(spans: &[Span], longest: usize) -> (usize, Option<u16>) {
        let mut joined = Joined::begin(spans[0], peer(1));
        let taken = spans[1..].iter().take_while(|span| joined.take(**span, &peer(1), longest));
        let taken = 1 + taken.count();
        assert_eq!(joined.spans(), taken);
        (taken, joined.segment().map(NonZeroU16::get))
    }

    #[test]
    fn datagrams_of_one_size_leave_as_one_and_the_last_may_be_shorter() {
        let of = |lens: &[usize]| {
            let spans: Vec<_> = lens.iter().map(|len| span(*len, 0)).collect();
            joined(&spans, usize::MAX)
        };
        assert_eq!(of(&[9]), (1, None));
        assert_eq!(of(&[9, 9, 9]), (3, Some(9)));
        assert_eq!(of(&[9, 9, 4, 9]), (3, Some(9)), "nothing follows a shorter one");
        assert_eq!(of(&[9, 4, 4]), (2, Some(9)));
        assert_eq!(of(&[9, 10]), (1, None));
        assert_eq!(of(&[0, 0]), (1, None), "one without bytes is none where it is cut");
        assert_eq!(of(&[9, 0]), (1, None));
        assert_eq!(of(&[1; 100]), (MOST_JOINED, Some(1)));
        assert_eq!(of(&[8192; 9]), (7, Some(8192)), "no more bytes than a datagram has");
        assert_eq!(of(&[65_507, 1]), (1, None));
    }

    #[test]
    fn spans_of_several_are_joined_while_each_is_whole() {
        assert_eq!(joined(&[span(18, 9), span(27, 9), span(9, 0)], 100), (3, Some(9)));
        assert_eq!(joined(&[span(20, 9), span(9, 9)], 100), (1, Some(9)), "the last is shorter");
        assert_eq!(joined(&[span(9, 0), span(8, 4)], 100), (1, None));
        assert_eq!(joined(&[span(300, 0), span(650, 300), span(9, 0)], 300), (2, Some(300)));
        assert_eq!(
            joined(&[span(9, 0), span(20, 9)], 100),
            (1, None),
            "what is copied is each one"
        );
    }

    #[test]
    fn what_goes_elsewhere_or_is_too_long_leaves_by_itself() {
        let nine = span(9, 0);
        assert_eq!(joined(&[nine, nine], 8), (1, None));
        assert_eq!(joined(&[nine, nine], 0), (1, None));
        let mut joined = Joined::begin(nine, peer(1));
        assert!(!joined.take(nine, &peer(2), usize::MAX));
        let from_elsewhere = Peer { local: Some([127, 0, 0, 2].into()), ..peer(1) };
        assert!(!joined.take(nine, &from_elsewhere, usize::MAX));
        assert!(joined.take(nine, &peer(1), usize::MAX));
    }
}
