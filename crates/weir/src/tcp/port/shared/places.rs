//! The connections, each behind a lock of its own.

use super::{Order, Sending, Slow};
use crate::{
    lifecycle::lock, port::streams::StreamId, stream::Stream, tcp::Connection, timer::Tick,
};
use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// A connection that is open, and what the threads know of it.
pub(in crate::tcp::port) struct PortConnection<H> {
    pub(in crate::tcp::port) connection: Connection<H>,
    pub(in crate::tcp::port) stream: Stream,
    pub(in crate::tcp::port) id: StreamId,
    /// Receives that are outstanding, or the wait for one.
    pub(in crate::tcp::port) receives: u32,
    /// What was received and not handled yet.
    pub(in crate::tcp::port) order: Order,
    pub(in crate::tcp::port) sending: Sending,
    /// Whether its sends were stuck lately.
    pub(in crate::tcp::port) slow: Slow,
    /// Bytes that were handled.
    pub(in crate::tcp::port) received: u64,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    pub(in crate::tcp::port) armed: Tick,
    /// It was taken from the port, and is over when all that is outstanding has come back.
    pub(in crate::tcp::port) closing: bool,
}

/// Places for connections, by slot. Looking one up takes no lock but its own.
pub(in crate::tcp::port) struct Places<H> {
    /// Made as they are needed, and never moved.
    blocks: Box<[OnceLock<Block<H>>]>,
    /// Slots that were given back, the last one on top.
    free: Mutex<Vec<u32>>,
    /// Slots that were ever used.
    used: AtomicU32,
    open: AtomicU32,
}

struct Block<H> {
    places: Box<[Mutex<Option<PortConnection<H>>>]>,
    /// Which of them may have a send in the pool. A mark is made and taken away under the lock of its place; so a
    /// send makes one only where none is left of the one before, and who looks for sends in the pool looks at those
    /// that have sent since the last look.
    marks: Box<[AtomicBool]>,
}

impl<H> Block<H> {
    fn new() -> Self {
        Self {
            places: (0..BLOCK).map(|_| Mutex::new(None)).collect(),
            marks: (0..BLOCK).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

/// Places made at a time.
const BLOCK: u32 = 256;

impl<H> Places<H> {
    /// For so many connections.
    pub(in crate::tcp::port) fn new(most: u32) -> Self {
        let blocks = most.div_ceil(BLOCK);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            used: AtomicU32::new(0),
            open: AtomicU32::new(0),
        }
    }

    /// A slot that is nobody's, to be given back by [`give_back`](Self::give_back). There are no more
    /// connections at a time than there are places.
    pub(in crate::tcp::port) fn claim(&self) -> u32 {
        self.open.fetch_add(1, Relaxed);
        let mut free = lock(&self.free);
        free.pop().unwrap_or_else(|| {
            let slot = self.used.load(Relaxed);
            self.blocks[(slot / BLOCK) as usize].get_or_init(Block::new);
            self.used.store(slot + 1, Relaxed);
            slot
        })
    }

    pub(in crate::tcp::port) fn give_back(&self, slot: u32) {
        lock(&self.free).push(slot);
        self.open.fetch_sub(1, Relaxed);
    }

    /// The place of a slot that was claimed once.
    #[inline]
    pub(in crate::tcp::port) fn get(&self, slot: u32) -> &Mutex<Option<PortConnection<H>>> {
        &self.block(slot).places[(slot % BLOCK) as usize]
    }

    #[inline]
    fn block(&self, slot: u32) -> &Block<H> {
        self.blocks[(slot / BLOCK) as usize].get().expect("the slot was claimed")
    }

    /// The connection in this slot, whose lock is held, has a send in the pool.
    #[inline]
    pub(in crate::tcp::port) fn mark(&self, slot: u32) {
        let mark = &self.block(slot).marks[(slot % BLOCK) as usize];
        if !mark.load(Relaxed) {
            mark.store(true, Relaxed);
        }
    }

    /// It has none; its lock is held.
    pub(in crate::tcp::port) fn unmark(&self, slot: u32) {
        self.block(slot).marks[(slot % BLOCK) as usize].store(false, Relaxed);
    }

    /// The slots that are marked: all that have a send in the pool are among them.
    pub(in crate::tcp::port) fn marked(&self) -> impl Iterator<Item = u32> {
        let blocks = (0..).step_by(BLOCK as usize).zip(self.blocks.iter().map_while(OnceLock::get));
        blocks.flat_map(|(first, block)| {
            (first..).zip(&block.marks).filter(|(_, mark)| mark.load(Relaxed)).map(|(slot, _)| slot)
        })
    }

    /// One more than the highest slot that was ever used.
    pub(in crate::tcp::port) fn slots(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Slots that are somebody's.
    pub(in crate::tcp::port) fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let places = Places::<()>::new(300);
        let slots: Vec<_> = (0..300).map(|_| places.claim()).collect();
        assert!(slots.iter().copied().eq(0..300) && places.open() == 300);
        places.give_back(7);
        places.give_back(299);
        assert_eq!((places.claim(), places.claim()), (299, 7));
        assert_eq!((places.slots(), places.open()), (300, 300));
        assert!(slots.iter().all(|&slot| lock(places.get(slot)).is_none()));
    }

    /// Who looks for sends in the pool does not look at every connection.
    #[test]
    fn only_those_that_have_sent_are_looked_at() {
        let places = Places::<()>::new(65_536);
        let marked = || places.marked().collect::<Vec<_>>();
        let slots: Vec<_> = (0..1000).map(|_| places.claim()).collect();
        assert_eq!((slots.len(), marked()), (1000, vec![]));
        for slot in [999, 3, 256, 3, 255] {
            places.mark(slot);
        }
        assert_eq!(marked(), [3, 255, 256, 999]);
        places.unmark(256);
        places.give_back(3);
        assert_eq!(marked(), [3, 255, 999], "a mark stays until it is looked at");
    }
}
