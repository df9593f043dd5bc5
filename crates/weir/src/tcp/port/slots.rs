//! A table of slots, each behind a lock of its own. Looking one up takes no other.

use crate::lifecycle::lock;
use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// Connections, by slot.
pub(super) struct Slots<T> {
    /// Made as they are needed, and never moved.
    blocks: Box<[OnceLock<Block<T>>]>,
    /// Slots that were given back, the last one on top.
    free: Mutex<Vec<u32>>,
    /// Slots that were ever used.
    used: AtomicU32,
    open: AtomicU32,
}

struct Block<T> {
    slots: Box<[Mutex<Option<T>>]>,
    /// Which of them may have a send in the pool. A mark is made and taken away under the lock of its slot; so a
    /// send makes one only where none is left of the one before, and who looks for sends in the pool looks at those
    /// that have sent since the last look.
    marks: Box<[AtomicBool]>,
}

impl<T> Block<T> {
    fn new() -> Self {
        Self {
            slots: (0..BLOCK).map(|_| Mutex::new(None)).collect(),
            marks: (0..BLOCK).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

/// Slots made at a time.
const BLOCK: u32 = 256;

impl<T> Slots<T> {
    /// For so many connections.
    pub(super) fn new(most: u32) -> Self {
        let blocks = most.div_ceil(BLOCK);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            used: AtomicU32::new(0),
            open: AtomicU32::new(0),
        }
    }

    /// A slot that is nobody's, to be given back by [`give_back`](Self::give_back). There are no more
    /// connections at a time than there are slots.
    pub(super) fn claim(&self) -> u32 {
        self.open.fetch_add(1, Relaxed);
        let mut free = lock(&self.free);
        free.pop().unwrap_or_else(|| {
            let slot = self.used.load(Relaxed);
            self.blocks[(slot / BLOCK) as usize].get_or_init(Block::new);
            self.used.store(slot + 1, Relaxed);
            slot
        })
    }

    pub(super) fn give_back(&self, slot: u32) {
        lock(&self.free).push(slot);
        self.open.fetch_sub(1, Relaxed);
    }

    /// What is in a slot that was claimed once.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Mutex<Option<T>> {
        &self.block(slot).slots[(slot % BLOCK) as usize]
    }

    #[inline]
    fn block(&self, slot: u32) -> &Block<T> {
        self.blocks[(slot / BLOCK) as usize].get().expect("the slot was claimed")
    }

    /// The connection in this slot, whose lock is held, has a send in the pool.
    #[inline]
    pub(super) fn mark(&self, slot: u32) {
        let mark = &self.block(slot).marks[(slot % BLOCK) as usize];
        if !mark.load(Relaxed) {
            mark.store(true, Relaxed);
        }
    }

    /// It has none; its lock is held.
    pub(super) fn unmark(&self, slot: u32) {
        self.block(slot).marks[(slot % BLOCK) as usize].store(false, Relaxed);
    }

    /// The slots that are marked: all that have a send in the pool are among them.
    pub(super) fn marked(&self) -> impl Iterator<Item = u32> {
        let blocks = (0..).step_by(BLOCK as usize).zip(self.blocks.iter().map_while(OnceLock::get));
        blocks.flat_map(|(first, block)| {
            (first..).zip(&block.marks).filter(|(_, mark)| mark.load(Relaxed)).map(|(slot, _)| slot)
        })
    }

    /// One more than the highest slot that was ever used.
    pub(super) fn slots(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Slots that are somebody's.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let table = Slots::<()>::new(300);
        let slots: Vec<_> = (0..300).map(|_| table.claim()).collect();
        assert!(slots.iter().copied().eq(0..300) && table.open() == 300);
        table.give_back(7);
        table.give_back(299);
        assert_eq!((table.claim(), table.claim()), (299, 7));
        assert_eq!((table.slots(), table.open()), (300, 300));
        assert!(slots.iter().all(|&slot| lock(table.get(slot)).is_none()));
    }

    /// Who looks for sends in the pool does not look at every connection.
    #[test]
    fn only_those_that_have_sent_are_looked_at() {
        let table = Slots::<()>::new(65_536);
        let marked = || table.marked().collect::<Vec<_>>();
        let slots: Vec<_> = (0..1000).map(|_| table.claim()).collect();
        assert_eq!((slots.len(), marked()), (1000, vec![]));
        for slot in [999, 3, 256, 3, 255] {
            table.mark(slot);
        }
        assert_eq!(marked(), [3, 255, 256, 999]);
        table.unmark(256);
        table.give_back(3);
        assert_eq!(marked(), [3, 255, 999], "a mark stays until it is looked at");
    }
}
