//! The slices of a queue, and for each ring of it the ring of provided buffers that they lie in.
//!
//! The kernel knows a buffer by 16 bits: the slice's place in the region, so a queue has at most 65,536.
//! Which are in the kernel's hands is noted: one that it named twice would be found out before two owners
//! had it.
//!
//! A ring begins with few slices and gets more where they run short time and again, since the kernel goes round all
//! that it has: those of many rings would be touched, and be in memory, for nothing. One burst is served with
//! those that there are.

use crate::{
    memory::{Posted, Region, Slice},
    rio::uring::linux::buffers::Entries,
};
use std::{mem, sync::Arc};

/// The most slices that 16 bits tell apart.
pub(super) const MOST_SLICES: u32 = 1 << 16;

/// Slices that a ring begins with.
pub(super) const FIRST_SLICES: u32 = 64;

/// A ring gets more slices where some 256 times one was lacking, and in more than a sixteenth of all cases.
const LACK: u32 = 16;
const TOO_MUCH: u32 = 256 * LACK;

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
    /// Those that belong here so far, and how many may.
    count: u32,
    most: u32,
    /// Grows by [`LACK`] where one was lacking, and goes down by one for each that is given.
    lacked: u32,
    number: u16,
}

impl Group {
    /// Room for so many slices, all of it taken here; `number` is that of the ring.
    pub fn new(most: u32, number: u16) -> Self {
        let entries = Entries::new(most.next_power_of_two() as usize);
        Self { entries, tail: 0, held: 0, count: 0, most, lacked: 0, number }
    }

    /// Slices are short, or one was missing. Where that comes too often there are more from now on, and the answer
    /// is `true`.
    #[cold]
    pub fn lack(&mut self, slices: &mut Slices) -> bool {
        self.lacked += LACK;
        if self.lacked < TOO_MUCH {
            return false;
        }
        self.lacked = 0;
        self.grow(slices)
    }

    /// Gives the kernel as many more slices as belong here already, or the first. Says whether there were any to
    /// be given.
    pub fn grow(&mut self, slices: &mut Slices) -> bool {
        let before = self.count;
        for _ in 0..before.max(FIRST_SLICES).min(self.most - before) {
            let Some(slice) = slices.region.take() else { break };
            self.count += 1;
            self.give(slices, slice);
        }
        self.count > before
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

    /// Whether the kernel has all slices that belong here.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.held == self.count
    }

    /// Whether less than a quarter of the slices that belong here is left to the kernel.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.held < self.count / 4
    }

    /// Gives the kernel a slice. There is room: no more are given than belong here.
    #[inline]
    pub fn give(&mut self, slices: &mut Slices, slice: Slice) {
        assert!(self.held < self.count, "more slices than belong to a ring");
        let layout = slice.region().layout();
        let address = slice.base().as_ptr() as u64 + layout.headroom as u64;
        let index = slice.post().index();
        slices.home[index as usize] = self.number;
        slices.given[index as usize] = true;
        let place = usize::from(self.tail) & (usize::from(self.extent().1) - 1);
        self.entries.set(place, address, layout.payload as u32, index as u16);
        self.tail = self.tail.wrapping_add(1);
        self.held += 1;
        self.lacked = self.lacked.saturating_sub(1);
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
            assert!(group.grow(&mut slices) && !group.grow(&mut slices));
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

    /// Enough for slices to be added where they are short, which takes some 30. Miri is slow.
    const BURSTS: u32 = if cfg!(miri) { 50 } else { 1000 };

    #[test]
    fn one_burst_is_no_reason_for_more_slices() {
        let region = Region::new(Layout::packed(0, 64, 64), 1000, RegionOptions::default());
        let mut slices = Slices::new(region.unwrap());
        let mut group = Group::new(1000, 0);
        group.grow(&mut slices);
        let use_one = |group: &mut Group, slices: &mut Slices, id: u32| {
            // SAFETY: there is no kernel.
            let slice = unsafe { slices.take((id % FIRST_SLICES) as u16, group) }.unwrap();
            group.give(slices, slice);
        };
        let grows = |group: &mut Group, slices: &mut Slices, each: u32| {
            (0..BURSTS).any(|burst| {
                (0..16 * each).for_each(|id| use_one(group, slices, burst * 16 * each + id));
                (0..16).any(|_| group.lack(slices))
            })
        };
        assert!(!grows(&mut group, &mut slices, LACK), "in one of seventeen cases");
        assert_eq!(group.held(), FIRST_SLICES);
        assert!(grows(&mut group, &mut slices, LACK / 2), "in two of seventeen");
        assert_eq!(group.held(), 2 * FIRST_SLICES);
        // SAFETY: there is no kernel.
        assert_eq!(unsafe { group.take_all(&mut slices) }, 2 * FIRST_SLICES);
    }

    #[test]
    fn a_ring_gets_more_slices_up_to_its_own() {
        let each = 3 * FIRST_SLICES - 1;
        let region = Region::new(Layout::packed(0, 64, 64), 2 * each, RegionOptions::default());
        let mut slices = Slices::new(region.unwrap());
        let (mut group, mut other) = (Group::new(each, 0), Group::new(each, 1));
        for count in [FIRST_SLICES, 2 * FIRST_SLICES, each] {
            assert!(group.grow(&mut slices));
            assert_eq!((group.held(), group.is_short()), (count, false));
        }
        assert!(!group.grow(&mut slices), "the others are another ring's");
        let mut taken: Vec<_> = (0..each - each / 4)
            // SAFETY: there is no kernel.
            .map(|id| unsafe { slices.take(id as u16, &mut group) }.unwrap())
            .collect();
        assert!(!group.is_short());
        // SAFETY: as above.
        taken.extend(unsafe { slices.take((each - 1) as u16, &mut group) });
        assert!(group.is_short());
        taken.drain(..).for_each(|slice| group.give(&mut slices, slice));
        assert_eq!((group.held(), slices.region.in_pool()), (each, each));
        assert!(other.grow(&mut slices));
        // SAFETY: as above.
        unsafe {
            group.take_all(&mut slices);
            other.take_all(&mut slices);
        }
        assert_eq!(slices.region.in_pool(), 2 * each);
    }
}
