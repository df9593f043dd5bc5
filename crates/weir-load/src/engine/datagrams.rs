//! The buffer that an engine sends from.

use std::ops::Range;

use crate::stamp::{STAMP_BYTES, Stamp, fill};

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

    /// Writes the stamps of a batch, if its datagrams have room for one.
    #[inline]
    pub fn stamp(&mut self, batch: &Batch) {
        if self.size_bytes < STAMP_BYTES {
            return;
        }
        let used = &mut self.bytes[..batch.datagrams as usize * self.size_bytes];
        for (sequence, datagram) in
            (batch.first_sequence..).zip(used.chunks_exact_mut(self.size_bytes))
        {
            Stamp { run: batch.run, flow: batch.flow, sequence, due_ns: batch.due_ns }
                .write(datagram);
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
