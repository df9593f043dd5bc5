//! The slices of a queue, and for each ring of it the ring of provided buffers that they lie in.
//!
//! The kernel knows a buffer by 16 bits: the slice's place in the region, so a queue has at most 65,536.
//! Which are in the kernel's hands is noted: one that it named twice would be found out before two owners
//! had it.

use crate::{
    memory::{Posted, Region, Slice},
    rio::uring::linux::buffers::Entries,
};
use std::{mem, sync::Arc};

/// The most slices that 16 bits tell apart.
pub(super) const MOST_SLICES: u32 = 1 << 16;

/// All slices of a queue.
#[derive(Debug)]
pub(super) struct Slices {
    pub region: Arc<Region>,
    /// By slice: the ring that it is given back to.
    home: Box<[u16]>,
    /// By slice: whether it lies in a ring of buffers.
    given: Box<[bool]>,
}

impl Slices {
    pub fn new(region: Arc<Region>) -> Self {
        let count = region.count() as usize;
        Self { region, home: vec![0; count].into(), given: vec![false; count].into() }
    }

    /// The ring that a slice is given back to.
    #[inline]
    pub fn home(&self, slice: &Slice) -> usize {
        self.home[slice.index() as usize].into()
    }

    /// Takes back the slice that the kernel picked, or `None` if it does not hold that buffer.
    ///
    /// # Safety
    /// The kernel said that it is done with this buffer of this queue.
    #[inline]
    pub unsafe fn take(&mut self, id: u16, group: &mut Group) -> Option<Slice> {
        let given = self.given.get_mut(usize::from(id))?;
        if !mem::take(given) {
            return None;
        }
        group.held -= 1;
        // SAFETY: it was given and not taken since, so it was posted from this region; the caller vouches
        // for the kernel.
        Some(unsafe { Posted::from_index(id.into()).reclaim(&self.region) })
    }
}

/// The ring of buffers of one ring.
#[derive(Debug)]
pub(super) struct Group {
    entries: Entries,
    tail: u16,
    held: u32,
    most: u32,
    number: u16,
}

impl Group {
    /// Room for so many slices, all of it taken here; `number` is that of the ring.
    pub fn new(most: u32, number: u16) -> Self {
        let entries = Entries::new(most.next_power_of_two() as usize);
        Self { entries, tail: 0, held: 0, most, number }
    }

    /// Address and number of the entries, for the kernel.
    pub fn extent(&self) -> (u64, u16) {
        self.entries.extent()
    }

    /// Slices that the kernel may pick.
    #[inline]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Slices that belong here.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Gives the kernel a slice. There is room: no more are given than belong here.
    #[inline]
    pub fn give(&mut self, slices: &mut Slices, slice: Slice) {
        assert!(self.held < self.most, "more slices than belong to a ring");
        let layout = slice.region().layout();
        let address = slice.base().as_ptr() as u64 + layout.headroom as u64;
        let index = slice.post().index();
        slices.home[index as usize] = self.number;
        slices.given[index as usize] = true;
        let place = usize::from(self.tail) & (usize::from(self.extent().1) - 1);
        self.entries.set(place, address, layout.payload as u32, index as u16);
        self.tail = self.tail.wrapping_add(1);
        self.held += 1;
        self.entries.publish(self.tail);
    }

    /// Takes back by count what lies in the ring of buffers, and lets it go.
    ///
    /// # Safety
    /// The kernel gave the ring of buffers up, and no request that could have picked one is left.
    pub unsafe fn take_all(&mut self, slices: &mut Slices) -> u32 {
        let before = self.held;
        for index in 0..slices.home.len() {
            if slices.home[index] == self.number {
                // SAFETY: the caller vouches that the kernel holds nothing any more.
                drop(unsafe { slices.take(index as u16, self) });
            }
        }
        before - self.held
    }

    /// Leaves the entries to the kernel, which may still read them.
    pub fn leak(&mut self) {
        mem::forget(mem::replace(&mut self.entries, Entries::new(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Layout, RegionOptions};

    fn rig(rings: u16, each: u32) -> (Slices, Vec<Group>) {
        let region = Region::new(
            Layout::packed(0, 64, 64),
            each * u32::from(rings),
            RegionOptions::default(),
        );
        let mut slices = Slices::new(region.unwrap());
        let mut groups: Vec<_> = (0..rings).map(|number| Group::new(each, number)).collect();
        for group in &mut groups {
            for _ in 0..each {
                let slice = slices.region.take().unwrap();
                group.give(&mut slices, slice);
            }
        }
        (slices, groups)
    }

    #[test]
    fn a_slice_goes_home() {
        let (mut slices, mut groups) = rig(2, 3);
        assert_eq!((groups[0].held(), groups[1].held(), slices.region.in_pool()), (3, 3, 0));
        // SAFETY: there is no kernel.
        let slice = unsafe { slices.take(4, &mut groups[1]) }.unwrap();
        assert_eq!((slices.home(&slice), groups[1].held()), (1, 2));
        groups[1].give(&mut slices, slice);
        // SAFETY: as above.
        let back: u32 = groups.iter_mut().map(|group| unsafe { group.take_all(&mut slices) }).sum();
        assert_eq!((back, slices.region.in_pool()), (6, 6));
    }

    #[test]
    fn a_buffer_named_twice_is_found_out() {
        let (mut slices, mut groups) = rig(1, 2);
        // SAFETY: there is no kernel.
        unsafe {
            let slice = slices.take(1, &mut groups[0]).unwrap();
            assert!(slices.take(1, &mut groups[0]).is_none());
            assert!(slices.take(2, &mut groups[0]).is_none(), "there is no such buffer");
            drop(slice);
            assert_eq!(groups[0].take_all(&mut slices), 1);
        }
        assert_eq!(slices.region.in_pool(), 2);
    }
}
