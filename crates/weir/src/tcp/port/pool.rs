//! Memory to receive into.

use crate::{
    Error,
    lifecycle::lock,
    memory::{Layout, Region, RegionOptions, Slice},
};
use std::sync::{Arc, Mutex};

/// Slices to receive into, made as they are needed and used again, the last one given back first.
pub(super) struct Pool {
    layout: Layout,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    free: Vec<Slice>,
    regions: Vec<Arc<Region>>,
}

impl Pool {
    /// Memory taken from the system at a time, in bytes; at least one slice.
    const BYTES: usize = 1 << 20;

    pub(super) fn new(slice_bytes: usize) -> Self {
        // A line of the cache between them keeps slices of a power of two from sharing its sets.
        Self { layout: Layout::packed(64, slice_bytes, 64), state: Mutex::default() }
    }

    /// A slice. There are at most as many as the connections hold, and what the threads keep.
    pub(super) fn take(&self) -> Result<Slice, Error> {
        let mut state = lock(&self.state);
        if let Some(slice) = state.free.pop() {
            return Ok(slice);
        }
        // One that was dropped on its way has gone back to its region.
        if let Some(slice) = state.regions.iter().rev().find_map(Region::take) {
            return Ok(slice);
        }
        let count = (Self::BYTES / self.layout.stride).max(1) as u32;
        let region = Region::new(self.layout, count, RegionOptions::default())?;
        let slice = region.take().expect("it was just made");
        state.regions.push(region);
        Ok(slice)
    }

    pub(super) fn give(&self, slices: impl IntoIterator<Item = Slice>) {
        lock(&self.state).free.extend(slices);
    }

    /// Slices made, and of those the ones that are not back.
    pub(super) fn account(&self) -> (u32, u32) {
        let mut state = lock(&self.state);
        state.free.clear();
        let made = state.regions.iter().map(|region| region.count()).sum();
        let back: u32 = state.regions.iter().map(|region| region.in_pool()).sum();
        (made, made - back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_used_again_and_accounted_for() {
        let pool = Pool::new(400_000);
        let mut slices: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let last = slices[2].base();
        pool.give([slices.pop().unwrap()]);
        assert_eq!(pool.take().unwrap().base(), last);
        assert_eq!(pool.account(), (4, 2));
        drop(slices);
        assert_eq!(pool.account(), (4, 0));
    }
}
