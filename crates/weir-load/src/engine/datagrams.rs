//! The buffer that an engine sends from.

use std::ops::Range;

use super::Head;
use crate::{
    proof::Secret,
    stamp::{STAMP_BYTES, Stamp, fill},
};

/// Datagrams of one flow to be handed over together.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Run id they bear.
    pub run: u32,
    /// Flow number they bear: that of the lane.
    pub flow: u16,
    /// Sequence number of the first; the others follow.
    pub first_sequence: u64,
    /// When they were due, in ns: the time that they bear.
    pub due_ns: u64,
    /// How many.
    pub datagrams: u32,
    /// What the proofs of reading are made of that they bear.
    pub secret: Secret,
    /// What is written over the beginning of each, if anything.
    pub head: Head,
}

impl Batch {
    /// The stamp of one of them.
    #[inline]
    pub fn stamp(&self, sequence: u64) -> Stamp {
        let Self { run, flow, due_ns, secret, .. } = *self;
        Stamp { run, flow, sequence, proof: secret.value(run, flow, sequence), due_ns }
    }
}

/// Room for a batch, one datagram behind the other without a gap.
#[derive(Debug)]
pub struct Datagrams {
    bytes: Box<[u8]>,
    size_bytes: usize,
}

impl Datagrams {
    /// Room for `count` datagrams of `size_bytes`, their bodies filled.
    pub fn new(size_bytes: usize, count: u32) -> Self {
        let mut bytes = vec![0; size_bytes * count as usize].into_boxed_slice();
        if size_bytes > 0 {
            bytes.chunks_exact_mut(size_bytes).for_each(fill);
        }
        Self { bytes, size_bytes }
    }

    /// Writes the stamps of a batch, if its datagrams have room for one, and its head.
    #[inline]
    pub fn stamp(&mut self, batch: &Batch) {
        if self.size_bytes >= STAMP_BYTES {
            self.write_stamps(batch);
        }
        if !batch.head.is_empty() && self.size_bytes > 0 {
            let used = &mut self.bytes[..batch.datagrams as usize * self.size_bytes];
            used.chunks_exact_mut(self.size_bytes).for_each(|datagram| batch.head.write(datagram));
        }
    }

    #[inline]
    fn write_stamps(&mut self, batch: &Batch) {
        let used = &mut self.bytes[..batch.datagrams as usize * self.size_bytes];
        for (sequence, datagram) in
            (batch.first_sequence..).zip(used.chunks_exact_mut(self.size_bytes))
        {
            batch.stamp(sequence).write(datagram);
        }
    }

    /// The bytes of some of the datagrams, one behind the other.
    #[inline]
    pub fn range(&self, which: Range<u32>) -> &[u8] {
        &self.bytes[which.start as usize * self.size_bytes..which.end as usize * self.size_bytes]
    }

    /// The bytes of one datagram.
    #[inline]
    pub fn one(&self, which: u32) -> &[u8] {
        self.range(which..which + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::NoStamp;

    #[test]
    fn a_head_stands_at_the_beginning_of_each_datagram() {
        let head: Head = "0102".parse().unwrap();
        let secret = Secret::random();
        let batch =
            Batch { run: 1, flow: 0, first_sequence: 5, due_ns: 9, datagrams: 2, secret, head };
        let mut datagrams = Datagrams::new(64, 3);
        datagrams.stamp(&batch);
        for which in 0..2 {
            assert_eq!(&datagrams.one(which)[..2], [1, 2]);
            assert_eq!(Stamp::read(datagrams.one(which)), Err(NoStamp::Foreign));
        }
        assert_ne!(&datagrams.one(2)[..2], [1, 2], "it was not asked for");
        datagrams.stamp(&Batch { head: Head::default(), ..batch });
        let stamp = Stamp::read(datagrams.one(1)).unwrap();
        assert_eq!((stamp.sequence, stamp.proof), (6, secret.value(1, 0, 6)));
        let mut shorter = Datagrams::new(1, 1);
        shorter.stamp(&Batch { datagrams: 1, ..batch });
        assert_eq!(shorter.one(0), [1]);
    }
}
