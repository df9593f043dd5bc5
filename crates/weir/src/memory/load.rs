//! What is handed over to be sent on a stream: memory that the kernel reads until it is given back.

use super::Slice;
use std::fmt;

/// Bytes to be sent on a stream, and how many of them were: a part of a slice, as where what was received
/// goes back, or a vector of the program's own. Neither is copied.
pub struct Load {
    bytes: Bytes,
    /// Those before it were sent.
    from: usize,
    /// Those from it on are not meant.
    to: usize,
}

enum Bytes {
    Slice(Slice),
    Vector(Vec<u8>),
}

impl Load {
    /// The first so many bytes of a slice's payload.
    ///
    /// # Panics
    /// If the slice holds fewer.
    #[inline]
    pub fn of_slice(slice: Slice, len: usize) -> Self {
        assert!(len <= slice.payload().len(), "{len} bytes of {}", slice.payload().len());
        Self { bytes: Bytes::Slice(slice), from: 0, to: len }
    }

    /// A whole vector.
    pub fn of_vector(bytes: Vec<u8>) -> Self {
        let to = bytes.len();
        Self { bytes: Bytes::Vector(bytes), from: 0, to }
    }

    /// What is left to be sent.
    #[inline]
    pub fn left(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Slice(slice) => &slice.payload()[self.from..self.to],
            Bytes::Vector(bytes) => &bytes[self.from..self.to],
        }
    }

    /// So many more bytes were sent.
    ///
    /// # Panics
    /// If there were fewer.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        assert!(bytes <= self.to - self.from, "{bytes} bytes sent of {}", self.to - self.from);
        self.from += bytes;
    }

    /// The slice, where it is one.
    #[inline]
    pub fn into_slice(self) -> Result<Slice, Vec<u8>> {
        match self.bytes {
            Bytes::Slice(slice) => Ok(slice),
            Bytes::Vector(bytes) => Err(bytes),
        }
    }

    /// Leaks the memory, since a kernel may still read it, and counts a slice in its region.
    pub fn leak(self) {
        match self.into_slice() {
            Ok(slice) => slice.leak(),
            Err(bytes) => drop(bytes.leak()),
        }
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.bytes {
            Bytes::Slice(_) => "slice",
            Bytes::Vector(_) => "vector",
        };
        write!(f, "Load({name}, {} to {})", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, Region, RegionOptions};

    #[test]
    fn what_was_sent_is_left_out() {
        let region = Region::new(Layout::packed(0, 8, 64), 1, RegionOptions::default()).unwrap();
        let mut slice = region.take().unwrap();
        slice.payload_mut().copy_from_slice(b"01234567");
        let loads = [Load::of_slice(slice, 6), Load::of_vector(b"012345".to_vec())];
        for mut load in loads {
            assert_eq!(load.left(), b"012345");
            load.sent(4);
            assert_eq!(load.left(), b"45");
            load.sent(2);
            assert_eq!(load.left(), b"");
            drop(load.into_slice());
        }
        assert_eq!(region.in_pool(), 1);
    }

    #[test]
    fn a_leaked_slice_is_counted() {
        let region = Region::new(Layout::packed(0, 8, 64), 2, RegionOptions::default()).unwrap();
        Load::of_slice(region.take().unwrap(), 1).leak();
        assert_eq!((region.leaked(), region.in_pool()), (1, 1));
    }
}
