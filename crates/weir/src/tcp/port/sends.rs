//! Sends outstanding, of all connections: how many may be, whose turn is next, and which of them are stuck.

use crate::{lifecycle::lock, memory::Load, port::streams::StreamId};
use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

/// How long a send may be outstanding until its peer counts as stuck.
///
/// Long for a send that moves, and short for whoever waits. A connection far away may be called stuck with a full
/// window on its way; it loses nothing by that.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(10);

/// The pool of sends: at most so many are outstanding of all connections, and further ones wait in order.
///
/// It is for sends that move. One that is outstanding for [`STUCK_AFTER`] while others wait is its connection's
/// own from then on and stands *beside* the pool, as do those that follow until enough of them have moved
/// ([`Slow`]): so a peer that reads nothing, or slowly, holds a place that others need for so long at most, and
/// once. Whether a send would move is not asked, since not every system tells beforehand. Beside the pool there is one
/// for each connection at most, and a bound for all of them.
///
/// Beyond that bound who is stuck for longest is given up, one for each that waits. What it held is free only when its
/// connection is over; until then it counts among those that close, so that nobody else is given up in its stead.
///
/// Who finds no place waits in the queue, and then tries again: where there is none once more a send is outstanding, and
/// whoever gives its place back finds that somebody waits. So nobody waits for ever, and where nobody waits no
/// lock is taken.
pub(super) struct Sends {
    most: u32,
    beside_most: u32,
    moving: PlaceCount,
    beside: PlaceCount,
    /// Of those, the ones whose connections are about to be over.
    closing: AtomicU32,
    waiting: Mutex<Waiting>,
    any_waiting: AtomicBool,
}

struct Waiting {
    /// In the order of their turns.
    turns: VecDeque<(u32, StreamId)>,
    /// When to look for those that are stuck next, where any wait; none while somebody looks.
    next_look: Option<Instant>,
}

/// What an outstanding send counts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Pool,
    /// Its own connection.
    Beside,
}

/// How many places are taken.
struct PlaceCount {
    taken: AtomicU32,
    /// One thread changes it, so each change is a load and a store.
    of_one_thread: bool,
}

impl PlaceCount {
    fn new(of_one_thread: bool) -> Self {
        Self { taken: AtomicU32::new(0), of_one_thread }
    }

    /// Takes one, unless so many are taken.
    #[inline]
    fn take(&self, most: u32) -> bool {
        if self.of_one_thread {
            let taken = self.taken.load(Relaxed);
            let room = taken < most;
            self.taken.store(taken + u32::from(room), Relaxed);
            return room;
        }
        let one_more = |taken: u32| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    #[inline]
    fn give_back(&self) {
        match self.of_one_thread {
            true => self.taken.store(self.taken.load(Relaxed) - 1, Relaxed),
            false => drop(self.taken.fetch_sub(1, SeqCst)),
        }
    }
}

impl Sends {
    pub(super) fn new(most: u32, beside_most: u32, threads: u32, since: Instant) -> Self {
        let count = || PlaceCount::new(threads == 1);
        let (moving, beside, closing) = (count(), count(), AtomicU32::new(0));
        let waiting = Mutex::new(Waiting { turns: VecDeque::new(), next_look: Some(since) });
        Self {
            most,
            beside_most,
            moving,
            beside,
            closing,
            waiting,
            any_waiting: AtomicBool::new(false),
        }
    }

    /// A place for a send whose turn it is, to be given back; `slow`: the last one of its connection was stuck.
    #[inline]
    pub(super) fn take(&self, slow: bool) -> Option<Place> {
        if slow && let Some(place) = self.take_beside() {
            return Some(place);
        }
        self.moving.take(self.most).then_some(Place::Pool)
    }

    /// A place for a send whose turn it may not be: those that wait go first.
    #[inline]
    pub(super) fn take_in_turn(&self, slow: bool) -> Option<Place> {
        match self.any_waiting() {
            false => self.take(slow),
            true if slow => self.take_beside(),
            true => None,
        }
    }

    fn take_beside(&self) -> Option<Place> {
        self.beside.take(self.beside_most).then_some(Place::Beside)
    }

    /// A send that had a place in the pool is stuck. `false`: as many are as may be.
    pub(super) fn set_aside(&self) -> bool {
        let aside = self.take_beside().is_some();
        if aside {
            self.moving.give_back();
        }
        aside
    }

    #[inline]
    pub(super) fn give_back(&self, place: Place) {
        match place {
            Place::Pool => self.moving.give_back(),
            Place::Beside => self.beside.give_back(),
        }
    }

    /// A connection is about to be over that holds a place.
    pub(super) fn will_close(&self) {
        self.closing.fetch_add(1, SeqCst);
    }

    /// Such a connection is over, and its place was given back.
    pub(super) fn has_closed(&self) {
        self.closing.fetch_sub(1, SeqCst);
    }

    /// Connections that are about to be over and hold places. Who looks for the stuck asks before: whoever closes
    /// meanwhile is counted, and its place is seen free besides, so that too few are given up and never too many.
    pub(super) fn closing(&self) -> usize {
        self.closing.load(SeqCst) as usize
    }

    /// How many of the stuck to give up, where so many of those in the pool could not be set aside, so many are stuck
    /// in all, and so many were closing before.
    pub(super) fn to_give_up(&self, in_pool: usize, stuck: usize, closing: usize) -> usize {
        // Those beside that move will be back at once.
        let beyond = stuck.saturating_sub(self.beside_most as usize).min(in_pool);
        self.waiting().min(beyond).saturating_sub(closing)
    }

    /// Whether anybody waits.
    #[inline]
    pub(super) fn any_waiting(&self) -> bool {
        self.any_waiting.load(SeqCst)
    }

    /// How many wait, some of which may have gone.
    fn waiting(&self) -> usize {
        lock(&self.waiting).turns.len()
    }

    /// This connection waits, behind all others.
    pub(super) fn enqueue(&self, slot: u32, id: StreamId) {
        let mut waiting = lock(&self.waiting);
        waiting.turns.push_back((slot, id));
        self.any_waiting.store(true, SeqCst);
    }

    /// The one whose turn is next: it may have gone.
    pub(super) fn first_waiting(&self) -> Option<(u32, StreamId)> {
        lock(&self.waiting).turns.front().copied()
    }

    /// This one, which was the first, waits no more: another thread may have found the same.
    pub(super) fn dequeue(&self, slot: u32, id: StreamId) {
        let mut waiting = lock(&self.waiting);
        if waiting.turns.front() == Some(&(slot, id)) {
            waiting.turns.pop_front();
        }
        self.any_waiting.store(!waiting.turns.is_empty(), SeqCst);
    }

    /// When somebody is to look for sends that are stuck, where others wait.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.any_waiting().then(|| lock(&self.waiting).next_look)?
    }

    /// Whether it is time to. Who is told so does it, and nobody else does until it says
    /// [`look_again`](Self::look_again).
    pub(super) fn is_to_look(&self, now: Instant) -> bool {
        self.any_waiting() && lock(&self.waiting).next_look.take_if(|at| *at <= now).is_some()
    }

    /// Who looked has done so, at this time. Looking takes time, so nobody does so again at once.
    pub(super) fn look_again(&self, now: Instant) {
        lock(&self.waiting).next_look = Some(now + STUCK_AFTER / 2);
    }
}

/// Whether a connection's sends were stuck lately: until so many in a row have moved. A peer that reads slowly makes
/// room now and then for a send or two, which then move; if those were enough, it would hold a place of the pool again
/// and again.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Slow(u8);

impl Slow {
    const MOVE: u8 = 16;

    #[inline]
    pub(super) fn is(self) -> bool {
        self.0 > 0
    }

    /// A send is over that was stuck, or moved.
    #[inline]
    pub(super) fn sent(&mut self, stuck: bool) {
        self.0 = if stuck { Self::MOVE } else { self.0.saturating_sub(1) };
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_beyond_the_limit_wait_in_order() {
        for threads in [1, 2] {
            let (sends, id) =
                (Sends::new(1, 0, threads, Instant::now()), |n: u32| (n, StreamId(u64::from(n))));
            assert_eq!(
                (sends.any_waiting(), sends.first_waiting(), sends.next_look()),
                (false, None, None)
            );
            assert_eq!((sends.take(false), sends.take(false)), (Some(Place::Pool), None));
            (0..3).for_each(|n| sends.enqueue(n, id(n).1));
            sends.give_back(Place::Pool);
            assert_eq!(sends.take_in_turn(false), None, "others wait");
            assert_eq!((sends.any_waiting(), sends.first_waiting()), (true, Some(id(0))));
            sends.dequeue(0, id(0).1);
            sends.dequeue(0, id(0).1); // another thread has found the same
            assert_eq!((sends.any_waiting(), sends.first_waiting()), (true, Some(id(1))));
            sends.enqueue(0, id(0).1);
            for n in [1, 2, 0] {
                assert_eq!((sends.any_waiting(), sends.first_waiting()), (true, Some(id(n))));
                sends.dequeue(n, id(n).1);
            }
            assert_eq!((sends.any_waiting(), sends.first_waiting()), (false, None));
            assert_eq!(sends.take_in_turn(false), Some(Place::Pool));
        }
    }

    #[test]
    fn a_send_that_is_stuck_stands_beside_the_pool() {
        for threads in [1, 2] {
            let now = Instant::now();
            let sends = Sends::new(2, 3, threads, now);
            assert_eq!(sends.take(true), Some(Place::Beside), "its last one was stuck");
            let pool: Vec<_> = (0..3).map(|_| sends.take(false)).collect();
            assert_eq!(pool, [Some(Place::Pool), Some(Place::Pool), None]);
            sends.enqueue(7, StreamId(7));
            assert!(sends.is_to_look(now) && !sends.is_to_look(now), "one thread looks");
            assert!(sends.set_aside() && sends.set_aside());
            assert_eq!(sends.take(false), Some(Place::Pool));
            assert!(!sends.set_aside(), "as many are as may be");
            assert_eq!((sends.take_in_turn(true), sends.take(true)), (None, Some(Place::Pool)));
            sends.give_back(Place::Beside);
            assert_eq!(sends.take_in_turn(true), Some(Place::Beside));
            assert_eq!(sends.next_look(), None, "somebody looks");
            sends.look_again(now);
            let later = sends.next_look().unwrap();
            assert!(now < later && !sends.is_to_look(now) && sends.is_to_look(later));
        }
    }

    /// Each time it makes room one of its sends moves before the next one is stuck.
    #[test]
    fn who_reads_slowly_takes_a_place_of_the_pool_once() {
        let (sends, mut slow, mut in_pool) =
            (Sends::new(1, 1, 2, Instant::now()), Slow::default(), 0);
        for _ in 0..10 {
            for stuck in [false, true] {
                let mut place = sends.take(slow.is()).expect("all are free");
                if place == Place::Pool && stuck {
                    assert!(sends.set_aside());
                    (place, in_pool) = (Place::Beside, in_pool + 1);
                }
                slow.sent(stuck);
                sends.give_back(place);
            }
        }
        assert_eq!(in_pool, 1);
        (0..Slow::MOVE).for_each(|_| slow.sent(false));
        assert!(!slow.is(), "it is as good as any again");
    }

    #[test]
    fn one_is_given_up_for_each_that_waits_and_none_for_those_that_close() {
        let sends = Sends::new(3, 2, 2, Instant::now());
        (0..3).for_each(|_| assert_eq!(sends.take(false), Some(Place::Pool)));
        (0..2).for_each(|_| assert_eq!(sends.take(true), Some(Place::Beside)));
        assert_eq!(sends.to_give_up(3, 5, sends.closing()), 0, "nobody waits");
        (0..2).for_each(|slot| sends.enqueue(slot, StreamId(u64::from(slot))));
        assert_eq!(sends.to_give_up(3, 5, sends.closing()), 2);
        assert_eq!(sends.to_give_up(1, 5, sends.closing()), 1);
        assert_eq!(sends.to_give_up(1, 2, sends.closing()), 0, "those beside move");
        sends.will_close();
        assert_eq!(sends.to_give_up(3, 5, sends.closing()), 1);
        sends.will_close();
        assert_eq!(sends.to_give_up(3, 5, sends.closing()), 0);
        let closing = sends.closing();
        sends.give_back(Place::Beside);
        sends.has_closed();
        assert!(sends.set_aside(), "it is free");
        assert_eq!(sends.to_give_up(2, 4, closing), 0, "it was counted before");
        assert_eq!(sends.to_give_up(2, 4, sends.closing()), 1);
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
}
