//! Memory that a kernel uses for as long as operations are outstanding: a block for each slot, which never moves
//! and is known again by its address.

use std::{
    alloc::{self, Layout},
    mem,
    ptr::NonNull,
};

/// How many blocks the first chunk has. Each has twice as many as the one before.
const FIRST: usize = 64;

/// Blocks in chunks, which are added as higher slots are asked for. They are reached by raw pointers only, and are
/// given back by [`Blocks::free`], never by a drop.
pub(super) struct Blocks<B> {
    chunks: Vec<NonNull<B>>,
}

// SAFETY: the blocks are plain memory that this value alone hands out pointers to.
unsafe impl<B: Send> Send for Blocks<B> {}

impl<B> Blocks<B> {
    /// None yet.
    pub fn new() -> Self {
        const { assert!(!mem::needs_drop::<B>() && size_of::<B>() > 0) };
        Self { chunks: Vec::new() }
    }

    /// The block of a slot: all zeroes until something is written to it.
    #[inline]
    pub fn block(&mut self, slot: usize) -> *mut B {
        let (chunk, place) = chunk_of(slot);
        while self.chunks.len() <= chunk {
            self.chunks.push(zeroed(blocks_in(self.chunks.len())));
        }
        // SAFETY: the place lies within the chunk.
        unsafe { self.chunks[chunk].as_ptr().add(place) }
    }

    /// The slot whose block has this address. What is asked may be anything: nothing is read there.
    #[inline]
    pub fn slot_at(&self, address: usize) -> Option<usize> {
        // The last chunk is half of all.
        for (chunk, base) in self.chunks.iter().enumerate().rev() {
            let offset = address.wrapping_sub(base.as_ptr().addr());
            if offset < blocks_in(chunk) * size_of::<B>() {
                let place = offset / size_of::<B>();
                return (offset % size_of::<B>() == 0).then_some(blocks_before(chunk) + place);
            }
        }
        None
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody uses a block, and no kernel will.
    pub unsafe fn free(self) {
        for (chunk, base) in self.chunks.into_iter().enumerate() {
            // SAFETY: it was allocated with this layout, and the caller vouches for the rest.
            unsafe { alloc::dealloc(base.as_ptr().cast(), layout::<B>(blocks_in(chunk))) };
        }
    }
}

fn blocks_in(chunk: usize) -> usize {
    FIRST << chunk
}

fn blocks_before(chunk: usize) -> usize {
    (FIRST << chunk) - FIRST
}

/// The chunk of a slot, and its place there.
#[inline]
fn chunk_of(slot: usize) -> (usize, usize) {
    let chunk = (slot / FIRST + 1).ilog2() as usize;
    (chunk, slot - blocks_before(chunk))
}

fn layout<B>(blocks: usize) -> Layout {
    Layout::array::<B>(blocks).expect("bounded by the slots of a token")
}

fn zeroed<B>(blocks: usize) -> NonNull<B> {
    let layout = layout::<B>(blocks);
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(memory.cast()).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_block_stays_where_it_is_and_is_known_by_its_address() {
        let mut blocks: Blocks<[u64; 3]> = Blocks::new();
        let mut known = HashMap::new();
        for slot in [0, 63, 64, 1, 191, 192, 1000, 447, 448] {
            let block = blocks.block(slot);
            // SAFETY: it is ours alone.
            unsafe {
                assert_eq!(*block, [0; 3]);
                (*block)[0] = slot as u64;
            }
            assert_eq!(known.insert(slot, block), None);
        }
        for (&slot, &block) in &known {
            assert_eq!(blocks.block(slot), block);
            // SAFETY: as above.
            assert_eq!(unsafe { (*block)[0] }, slot as u64);
            assert_eq!(blocks.slot_at(block.addr()), Some(slot));
            assert_eq!(blocks.slot_at(block.addr() + 8), None, "inside of a block");
        }
        // SAFETY: nobody uses them.
        unsafe { blocks.free() };
    }

    #[test]
    fn every_slot_has_a_block_of_its_own() {
        let mut blocks: Blocks<u64> = Blocks::new();
        let addresses: Vec<_> = (0..1500).map(|slot| blocks.block(slot).addr()).collect();
        for (slot, &address) in addresses.iter().enumerate() {
            assert_eq!(blocks.slot_at(address), Some(slot));
        }
        // SAFETY: nobody uses them.
        unsafe { blocks.free() };
    }

    #[test]
    fn what_is_not_ours_is_no_slot() {
        let mut blocks: Blocks<u64> = Blocks::new();
        assert_eq!(blocks.slot_at(64), None, "there is none");
        let first = blocks.block(0).addr();
        for address in [0, 1, 2, first - 8, first + FIRST * 8, usize::MAX, usize::MAX - 7] {
            assert_eq!(blocks.slot_at(address), None, "{address:#x}");
        }
        // SAFETY: nobody uses them.
        unsafe { blocks.free() };
    }
}
