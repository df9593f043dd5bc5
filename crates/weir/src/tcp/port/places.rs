//! The connections of a server whose threads share them all, each behind a lock of its own.

use super::shares::{Place, STUCK_AFTER, Slow};
use crate::{
    crew::lock,
    memory::{Load, Slice},
    port::streams::{Outcome, StreamId},
    stream::Stream,
    tcp::Connection,
    timer::Tick,
};
use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};
use std::time::Instant;

/// A connection that is open, and what the threads know of it.
pub(super) struct Open<H> {
    pub(super) connection: Connection<H>,
    pub(super) stream: Stream,
    pub(super) id: StreamId,
    /// Receives that are outstanding, or the wait for one.
    pub(super) receives: u32,
    /// What was received and not handled yet.
    pub(super) order: Order,
    pub(super) sending: Sending,
    /// Whether its sends were stuck lately.
    pub(super) slow: Slow,
    /// Bytes that were handled.
    pub(super) received: u64,
    /// When its timer fires; [`Tick::MAX`] where it has none.
    pub(super) armed: Tick,
    /// It was taken from the port, and is over when all that is outstanding has come back.
    pub(super) closing: bool,
}

/// Where the output is that a connection has lent.
#[derive(Debug, Default)]
pub(super) enum Sending {
    /// There is none.
    #[default]
    Nothing,
    /// It waits for its turn among all connections.
    Queued(Load),
    /// In the port's hands; since when at least, where that was looked at.
    UnderWay { place: Place, seen: Option<Instant> },
}

impl Sending {
    pub(super) fn is_in_pool(&self) -> bool {
        matches!(self, Sending::UnderWay { place: Place::Pool, .. })
    }

    /// Whether its peer counts as stuck: its time begins when it is first looked at.
    pub(super) fn is_stuck(&mut self, now: Instant) -> bool {
        match self {
            Sending::UnderWay { seen, .. } => *seen.get_or_insert(now) + STUCK_AFTER <= now,
            _ => false,
        }
    }

    /// It stands beside the pool from now on.
    pub(super) fn set_aside(&mut self) {
        if let Sending::UnderWay { place, .. } = self {
            *place = Place::Beside;
        }
    }

    /// Since when its peer counts as stuck, if it does by now.
    pub(super) fn stuck_since(&self, now: Instant) -> Option<Instant> {
        match self {
            Sending::UnderWay { seen, .. } => seen.filter(|seen| *seen + STUCK_AFTER <= now),
            _ => None,
        }
    }

    /// What waits for its turn; nothing does any more.
    pub(super) fn take_queued(&mut self) -> Option<Load> {
        match std::mem::take(self) {
            Sending::Queued(load) => Some(load),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Receives as they come back, put in the order in which they were started.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The number of the receive that is next.
    next: u32,
    /// At most as many as may be outstanding.
    held: Vec<(u32, Slice, Outcome<usize>)>,
}

impl Order {
    pub(super) fn len(&self) -> u32 {
        self.held.len() as u32
    }

    /// A receive came back.
    #[inline]
    pub(super) fn put(&mut self, number: u32, slice: Slice, outcome: Outcome<usize>) {
        self.held.push((number, slice, outcome));
    }

    /// The one whose turn it is, if it is back.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Slice, Outcome<usize>)> {
        let at = self.held.iter().position(|(number, ..)| *number == self.next)?;
        self.next = self.next.wrapping_add(1);
        let (_, slice, outcome) = self.held.swap_remove(at);
        Some((slice, outcome))
    }
}

/// Places for connections, by slot. Looking one up takes no lock but its own.
pub(super) struct Places<H> {
    /// Made as they are needed, and never moved.
    blocks: Box<[OnceLock<Block<H>>]>,
    /// Slots that were given back, the last one on top.
    free: Mutex<Vec<u32>>,
    /// Slots that were ever used.
    used: AtomicU32,
    open: AtomicU32,
}

struct Block<H> {
    places: Box<[Mutex<Option<Open<H>>>]>,
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
    /// connections at a time than there are places.
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

    /// The place of a slot that was claimed once.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Mutex<Option<Open<H>>> {
        &self.block(slot).places[(slot % BLOCK) as usize]
    }

    #[inline]
    fn block(&self, slot: u32) -> &Block<H> {
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
    use crate::memory::{Layout, Region, RegionOptions};

    #[test]
    fn whatever_order_receives_come_back_in_they_are_taken_in_the_order_started() {
        let region = Region::new(Layout::packed(0, 8, 8), 4, RegionOptions::default()).unwrap();
        let mut order = Order { next: u32::MAX - 1, ..Order::default() };
        let numbers: Vec<_> = (0..4).map(|n| (u32::MAX - 1).wrapping_add(n)).collect();
        for came in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            order.next = numbers[0];
            let mut taken = Vec::new();
            for at in came {
                let slice = region.take().unwrap();
                order.put(numbers[at], slice, Outcome::Done(at));
                while let Some((_, outcome)) = order.take() {
                    let Outcome::Done(at) = outcome else { unreachable!("as it was put") };
                    taken.push(at);
                }
            }
            assert_eq!(taken, [0, 1, 2, 3]);
            assert_eq!(order.len(), 0);
        }
    }

    #[test]
    fn a_send_is_stuck_when_it_was_seen_for_long_enough() {
        let mut sending = Sending::UnderWay { place: Place::Pool, seen: None };
        let first = Instant::now() + STUCK_AFTER; // however long it has been under way
        assert!(!sending.is_stuck(first));
        let (before, then) = (first + STUCK_AFTER / 2, first + STUCK_AFTER);
        assert!(!sending.is_stuck(before) && sending.stuck_since(before).is_none());
        assert!(sending.is_stuck(then) && sending.is_in_pool());
        sending.set_aside();
        assert!(!sending.is_in_pool());
        assert_eq!(sending.stuck_since(then), Some(first));
    }

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
