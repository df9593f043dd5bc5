//! What is sent or received at once: one datagram, or several behind each other.

use std::{io, num::NonZeroU16};

/// Bytes at the beginning of a buffer: one datagram, or several of one size behind each other,
/// of which the last may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Bytes of all of them.
    pub len: usize,
    /// Bytes of each, where there are several.
    pub segment: Option<NonZeroU16>,
}

impl From<usize> for Span {
    /// One datagram of this length.
    #[inline]
    fn from(len: usize) -> Self {
        Self { len, segment: None }
    }
}

impl Span {
    /// How many datagrams these are.
    #[inline]
    pub fn datagrams(&self) -> usize {
        self.segment.map_or(1, |segment| self.len.div_ceil(segment.get().into()).max(1))
    }
}

/// What could not be sent.
#[derive(Debug)]
pub struct Unsent {
    /// What the system answered, the first time if it was several times.
    pub error: io::Error,
    /// Datagrams that it refused.
    pub datagrams: u32,
    /// Datagrams of the same span that it took.
    pub sent: u32,
}

impl From<io::Error> for Unsent {
    /// One datagram.
    fn from(error: io::Error) -> Self {
        Self { error, datagrams: 1, sent: 0 }
    }
}

/// Sends the datagrams of a span one by one.
pub(super) fn each(
    bytes: &[u8],
    segment: NonZeroU16,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), Unsent> {
    let (mut sent, mut refused) = (0, None::<Unsent>);
    for datagram in bytes.chunks(segment.get().into()) {
        match send(datagram) {
            Ok(()) => sent += 1,
            Err(error) => match &mut refused {
                Some(unsent) => unsent.datagrams += 1,
                None => refused = Some(error.into()),
            },
        }
    }
    refused.map_or(Ok(()), |unsent| Err(Unsent { sent, ..unsent }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted() {
        for (len, segment, datagrams) in
            [(0, 0, 1), (9, 0, 1), (9, 10, 1), (10, 10, 1), (11, 10, 2), (65_507, 1, 65_507)]
        {
            let span = Span { len, segment: NonZeroU16::new(segment) };
            assert_eq!(span.datagrams(), datagrams, "{span:?}");
        }
    }

    #[test]
    fn each_datagram_is_tried_and_told_of() {
        let mut tried = Vec::new();
        let segment = NonZeroU16::new(3).unwrap();
        let unsent = each(b"aaabbbcccd", segment, |datagram| {
            tried.push(datagram.to_vec());
            match datagram {
                b"bbb" => Err(io::ErrorKind::InvalidInput.into()),
                b"d" => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        })
        .unwrap_err();
        assert_eq!(tried, [&b"aaa"[..], b"bbb", b"ccc", b"d"]);
        assert_eq!((unsent.datagrams, unsent.sent), (2, 2));
        assert_eq!(unsent.error.kind(), io::ErrorKind::InvalidInput);
    }
}
