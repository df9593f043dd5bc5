//! Posted slices: those in the kernel's ring of provided buffers, and those behind them that
//! wait in user space.
//!
//! Posting is a store into that ring. The kernel takes buffers from it in order, so the more
//! lie in it the colder each is when its turn comes; a window bounds that. Slices beyond the
//! window wait on a stack, where the one that was used last is used first, and follow when the
//! ring has run half empty.
//!
//! A buffer is known to the kernel by 16 bits, a slice by its index in the region, so there is
//! a table from one to the other. Its entries are emptied as buffers come back: a kernel that
//! named one twice would be found out before two owners had the same slice.

use super::frame::Frame;
use crate::memory::{Posted, Region, Slice};
use io_uring::types::BufRingEntry;
use std::{
    alloc,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU16, AtomicU32,
            Ordering::{Relaxed, Release},
        },
    },
};

/// The most buffers that the kernel takes in one ring.
pub(in crate::rio::uring) const MOST_HELD: u32 = 1 << 15;

/// No slice has this index: a region that large has no address space.
const NONE: u32 = u32::MAX;

/// The memory of a ring of provided buffers.
#[derive(Debug)]
pub(in crate::rio::uring) struct Entries {
    first: NonNull<BufRingEntry>,
    count: usize,
}

// SAFETY: plain memory, reached only through its owner.
unsafe impl Send for Entries {}

/// What the kernel asks of the address of the ring.
const PAGE_BYTES: usize = 4096;

impl Entries {
    fn layout(count: usize) -> alloc::Layout {
        alloc::Layout::array::<BufRingEntry>(count)
            .and_then(|layout| layout.align_to(PAGE_BYTES))
            .expect("a ring of at most 32,768 entries fits the address space")
    }

    /// Room for so many, a power of two; all empty.
    pub(in crate::rio::uring) fn new(count: usize) -> Self {
        let layout = Self::layout(count);
        // SAFETY: the layout has a size, since there is at least one entry.
        let first = unsafe { alloc::alloc_zeroed(layout) };
        let Some(first) = NonNull::new(first.cast()) else { alloc::handle_alloc_error(layout) };
        Self { first, count }
    }

    /// Address and number of the entries, for the kernel.
    pub(in crate::rio::uring) fn extent(&self) -> (u64, u16) {
        (self.first.as_ptr() as u64, self.count as u16)
    }

    /// Writes an entry. The kernel reads it once the tail was published.
    #[inline]
    pub(in crate::rio::uring) fn set(&mut self, place: usize, address: u64, length: u32, id: u16) {
        assert!(place < self.count);
        // SAFETY: inside the allocation, which starts as zeroes and is a valid entry. The
        // kernel reads an entry only after the tail that covers it was published. The tail
        // itself lies in a reserved field of the first entry, which these setters leave alone.
        let entry = unsafe { self.first.add(place).as_mut() };
        entry.set_addr(address);
        entry.set_len(length);
        entry.set_bid(id);
    }

    /// Makes known all that lies before `tail`.
    #[inline]
    pub(in crate::rio::uring) fn publish(&mut self, tail: u16) {
        // SAFETY: the tail is an aligned 16-bit field of the first entry, which the kernel reads
        // while we write it: so both do so atomically.
        unsafe {
            let tail_at = BufRingEntry::tail(self.first.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail_at).store(tail, Release);
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the kernel was told to forget it, or
        // else the owner forgot this value instead of dropping it.
        unsafe { alloc::dealloc(self.first.as_ptr().cast(), Self::layout(self.count)) };
    }
}

/// Which slice lies behind which buffer of the kernel's.
#[derive(Debug)]
pub(super) struct Table(Box<[AtomicU32]>);

impl Table {
    /// Takes back the slice that the kernel put something into, or `None` if it does not hold
    /// that buffer.
    ///
    /// # Safety
    /// The kernel said that it is done with this buffer of this region.
    #[inline]
    pub unsafe fn take(&self, id: u16, region: &Arc<Region>) -> Option<Slice> {
        let place = self.0.get(id as usize)?;
        // Relaxed and not one exchange: an id is in one pair of hands at a time, and passes
        // from the poster to the dequeuer through the kernel, and back under a lock.
        let index = place.load(Relaxed);
        if index == NONE {
            return None;
        }
        place.store(NONE, Relaxed);
        // SAFETY: a table entry is set when a slice of this region is posted and cleared here,
        // so it was posted and not reclaimed; the caller vouches for the kernel.
        Some(unsafe { Posted::from_index(index).reclaim(region) })
    }
}

/// Posted slices.
#[derive(Debug)]
pub(super) struct Buffers {
    entries: Entries,
    tail: u16,
    /// Ids that the kernel does not hold.
    free: Vec<u16>,
    /// Slices beyond the window; the one used last lies on top.
    waiting: Vec<Posted>,
    held: u32,
    window: u32,
    frame: Frame,
    starved: bool,
}

impl Buffers {
    /// Room for `window` slices in the kernel's hands and for `most` altogether; all memory is
    /// taken here. `frame` says where in a slice the kernel writes.
    pub fn new(window: u32, most: u32, frame: Frame) -> (Self, Table) {
        let window = window.clamp(1, MOST_HELD);
        let count = window.next_power_of_two();
        let table = (0..count).map(|_| AtomicU32::new(NONE)).collect();
        let buffers = Self {
            entries: Entries::new(count as usize),
            tail: 0,
            free: (0..count).rev().map(|id| id as u16).collect(),
            waiting: Vec::with_capacity(most as usize),
            held: 0,
            window,
            frame,
            starved: false,
        };
        (buffers, Table(table))
    }

    /// Address and number of the entries, for the kernel.
    pub fn extent(&self) -> (u64, u16) {
        self.entries.extent()
    }

    /// How many slices the kernel holds at a time.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// How many slices the kernel holds, or has given back by completions not taken yet.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Posts slices: to the kernel while the window has room, the others on the stack. Returns
    /// whether the queue's holder said that it was starved, and forgets that.
    #[inline]
    pub fn post(&mut self, slices: &mut Vec<Posted>, table: &Table) -> bool {
        let room = (self.window - self.held) as usize;
        let straight = slices.len().min(room);
        // The last were used last, and go first.
        for slice in slices.drain(slices.len() - straight..) {
            self.give(slice, table);
        }
        self.waiting.append(slices);
        if straight > 0 {
            self.entries.publish(self.tail);
        }
        straight > 0 && std::mem::take(&mut self.starved)
    }

    /// Takes note of ids that came back, and hands waiting slices on when half of the window is
    /// used up. Not earlier: those that just came back are warm, and most often posted again
    /// before the kernel is short.
    #[inline]
    pub fn came_back(&mut self, ids: &mut Vec<u16>, table: &Table) {
        self.held -= ids.len() as u32;
        self.free.append(ids);
        if self.held > self.window / 2 || self.waiting.is_empty() {
            return;
        }
        let room = (self.window - self.held) as usize;
        for _ in 0..room {
            let Some(slice) = self.waiting.pop() else { break };
            self.give(slice, table);
        }
        self.entries.publish(self.tail);
    }

    /// Whether there is anything to receive into. If not, whoever posts next will be told.
    pub fn ready(&mut self) -> bool {
        self.starved = self.held == 0;
        !self.starved
    }

    #[inline]
    fn give(&mut self, slice: Posted, table: &Table) {
        let id = self.free.pop().expect("there are more ids than the window holds");
        table.0[id as usize].store(slice.index(), Relaxed);
        let mask = self.entries.count - 1;
        let address = self.frame.address(slice.index());
        self.entries.set(self.tail as usize & mask, address, self.frame.length(), id);
        self.tail = self.tail.wrapping_add(1);
        self.held += 1;
    }

    /// Takes back the slices that wait in user space, and counts them.
    pub fn take_waiting(&mut self, region: &Arc<Region>) -> u32 {
        let count = self.waiting.len() as u32;
        for slice in self.waiting.drain(..) {
            // SAFETY: posted and on the stack, so the kernel never knew of it.
            drop(unsafe { slice.reclaim(region) });
        }
        count
    }

    /// Takes back by count what lies in the kernel's ring.
    ///
    /// # Safety
    /// The kernel gave the ring up, and no request that could have picked a buffer is left.
    pub unsafe fn take_held(&mut self, region: &Arc<Region>, table: &Table) -> u32 {
        let mut count = 0;
        for id in 0..self.entries.count as u16 {
            // SAFETY: the caller vouches that the kernel holds nothing any more.
            count += u32::from(unsafe { table.take(id, region) }.is_some());
        }
        debug_assert_eq!(count, self.held, "every slice is in the table");
        self.held = 0;
        count
    }

    /// Leaves the entries to the kernel, which may still read them.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.entries, Entries::new(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::RegionOptions, rio::Needs};

    const SLICES: u32 = 20;

    struct Rig {
        region: Arc<Region>,
        buffers: Buffers,
        table: Table,
        /// Where the kernel would read next.
        head: u16,
    }

    fn rig(window: u32) -> Rig {
        let needs = Needs {
            payload: 100,
            receives: SLICES,
            sends: 0,
            per_dequeue: 1,
            offload: false,
            meta: false,
        };
        let region =
            Region::new(super::super::frame::layout(&needs), SLICES, RegionOptions::default())
                .unwrap();
        let (buffers, table) =
            Buffers::new(window, SLICES, Frame::new(&region, super::super::frame::Beside::Control));
        Rig { region, buffers, table, head: 0 }
    }

    impl Rig {
        fn post(&mut self, count: usize) -> bool {
            let mut slices: Vec<_> =
                (0..count).map(|_| self.region.take().unwrap().post()).collect();
            let starved = self.buffers.post(&mut slices, &self.table);
            assert!(slices.is_empty());
            starved
        }

        /// Picks the next buffer as the kernel does, and takes it back.
        fn receive(&mut self) -> Option<Slice> {
            let entries = &self.buffers.entries;
            // SAFETY: the tail is a field of the first entry, and the place lies inside.
            let (tail, entry) = unsafe {
                let place = self.head as usize & (entries.count - 1);
                let tail = *BufRingEntry::tail(entries.first.as_ptr());
                (tail, entries.first.add(place).as_ref())
            };
            if self.head == tail {
                return None;
            }
            self.head = self.head.wrapping_add(1);
            let (id, address) = (entry.bid(), entry.addr());
            // SAFETY: there is no kernel.
            let slice = unsafe { self.table.take(id, &self.region) }.unwrap();
            assert_eq!(address, self.buffers.frame.address(slice.index()));
            self.buffers.came_back(&mut vec![id], &self.table);
            Some(slice)
        }
    }

    #[test]
    fn slices_beyond_the_window_follow_and_all_come_back() {
        let mut rig = rig(6);
        rig.post(SLICES as usize);
        assert_eq!((rig.buffers.held(), rig.region.in_pool()), (6, 0));
        let mut seen = Vec::new();
        while let Some(slice) = rig.receive() {
            assert!(rig.buffers.held() <= 6);
            seen.push(slice.index());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..SLICES).collect::<Vec<_>>());
        assert_eq!(rig.region.in_pool(), SLICES);
    }

    #[test]
    fn the_slice_used_last_is_used_first() {
        let mut rig = rig(8);
        rig.post(SLICES as usize);
        let mut used: Vec<u32> = Vec::new();
        for _ in 0..100 {
            let slice = rig.receive().unwrap();
            used.push(slice.index());
            assert!(!rig.buffers.post(&mut vec![slice.post()], &rig.table));
        }
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 8, "slices beyond the window stay cold");
        // SAFETY: there is no kernel.
        let held = unsafe { rig.buffers.take_held(&rig.region, &rig.table) };
        assert_eq!((held, rig.buffers.take_waiting(&rig.region)), (8, SLICES - 8));
        assert_eq!(rig.region.in_pool(), SLICES);
    }

    #[test]
    fn a_poster_learns_that_the_queue_was_starved_once() {
        let mut rig = rig(4);
        assert!(!rig.buffers.ready());
        assert!(rig.post(1));
        assert!(!rig.post(1));
        assert!(rig.buffers.ready());
        while rig.receive().is_some() {}
    }

    #[test]
    fn a_buffer_named_twice_is_found_out() {
        let mut rig = rig(1);
        rig.post(1);
        let slice = rig.receive().unwrap();
        // SAFETY: there is no kernel.
        unsafe {
            assert!(rig.table.take(0, &rig.region).is_none());
            assert!(rig.table.take(1, &rig.region).is_none(), "there is no such buffer");
        }
        drop(slice);
        assert_eq!(rig.region.in_pool(), SLICES);
    }

    #[test]
    fn the_tail_wraps_around() {
        let mut rig = rig(3);
        // As after 65,530 posts.
        (rig.buffers.tail, rig.head) = (65_530, 65_530);
        rig.post(3);
        for _ in 0..30 {
            let slice = rig.receive().unwrap();
            rig.buffers.post(&mut vec![slice.post()], &rig.table);
        }
        assert_eq!(rig.buffers.tail, 65_530u16.wrapping_add(33));
        // SAFETY: there is no kernel.
        assert_eq!(unsafe { rig.buffers.take_held(&rig.region, &rig.table) }, 3);
    }
}
