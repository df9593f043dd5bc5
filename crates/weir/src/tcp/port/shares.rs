//! What the threads of a server on a completion port share beside the connections: memory to receive into,
//! the turns of sends, accepting, and the clock. Each stands behind a lock of its own, which is held for a
//! few steps and never while a handler is called.

use crate::{
    Error,
    crew::lock,
    memory::{Layout, Region, RegionOptions, Slice},
    port::streams::StreamId,
    stream::Listener,
    timer::{TICK, Tick, Wheel},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

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

/// How long a send may be outstanding until its peer counts as stuck.
///
/// Long for a send that moves, and short for whoever waits. A connection far away may be called stuck with a full
/// window on its way; it loses nothing by that.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(10);

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

/// The pool of sends: at most so many are outstanding of all connections, and further ones wait in order.
///
/// It is for sends that move. One that is outstanding for [`STUCK_AFTER`] while others wait is its connection's
/// own from then on and stands *beside* the pool, as do those that follow until enough of them have moved
/// ([`Slow`]): so a peer that reads nothing, or slowly, holds a place that others need for so long at most, and
/// once. Whether a send would move is not asked, since not every system tells beforehand. Beside the pool there is one
/// for each connection at most, and a bound for all of them.
///
/// Beyond that bound who is stuck for longest is given up, one for each that waits. What it held is free only when its
/// connection is over; until then it counts among those that leave, so that nobody else is given up in its stead.
///
/// Who finds no place joins, and then tries again: where there is none once more a send is outstanding, and
/// whoever gives its place back finds that somebody waits. So nobody waits for ever, and where nobody waits no
/// lock is taken.
pub(super) struct Sends {
    most: u32,
    beside_most: u32,
    /// Places that are taken.
    moving: AtomicU32,
    beside: AtomicU32,
    /// Of those, the ones whose connections are about to be over.
    leaving: AtomicU32,
    waiting: Mutex<Waiting>,
    any: AtomicBool,
}

struct Waiting {
    /// In the order of their turns.
    turns: VecDeque<(u32, StreamId)>,
    /// When to look for those that are stuck next, where any wait; none while somebody looks.
    look_at: Option<Instant>,
}

/// What an outstanding send counts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Pool,
    /// Its own connection.
    Beside,
}

fn take_one(taken: &AtomicU32, most: u32) -> bool {
    taken.fetch_update(SeqCst, SeqCst, |taken| (taken < most).then_some(taken + 1)).is_ok()
}

impl Sends {
    pub(super) fn new(most: u32, beside_most: u32, since: Instant) -> Self {
        let (moving, beside, leaving) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let waiting = Mutex::new(Waiting { turns: VecDeque::new(), look_at: Some(since) });
        Self { most, beside_most, moving, beside, leaving, waiting, any: AtomicBool::new(false) }
    }

    /// A place for a send whose turn it is, to be given back; `slow`: the last one of its connection was stuck.
    #[inline]
    pub(super) fn take(&self, slow: bool) -> Option<Place> {
        if slow && let Some(place) = self.take_beside() {
            return Some(place);
        }
        take_one(&self.moving, self.most).then_some(Place::Pool)
    }

    /// A place for a send whose turn it may not be: those that wait go first.
    #[inline]
    pub(super) fn take_in_turn(&self, slow: bool) -> Option<Place> {
        match self.any() {
            false => self.take(slow),
            true if slow => self.take_beside(),
            true => None,
        }
    }

    fn take_beside(&self) -> Option<Place> {
        take_one(&self.beside, self.beside_most).then_some(Place::Beside)
    }

    /// A send that had a place in the pool is stuck. `false`: as many are as may be.
    pub(super) fn set_aside(&self) -> bool {
        let aside = self.take_beside().is_some();
        if aside {
            self.moving.fetch_sub(1, SeqCst);
        }
        aside
    }

    #[inline]
    pub(super) fn give_back(&self, place: Place) {
        match place {
            Place::Pool => self.moving.fetch_sub(1, SeqCst),
            Place::Beside => self.beside.fetch_sub(1, SeqCst),
        };
    }

    /// A connection is about to be over that holds a place.
    pub(super) fn leaves(&self) {
        self.leaving.fetch_add(1, SeqCst);
    }

    /// Such a connection is over, and its place was given back.
    pub(super) fn has_left(&self) {
        self.leaving.fetch_sub(1, SeqCst);
    }

    /// Connections that are about to be over and hold places. Who looks for the stuck asks before: whoever leaves
    /// meanwhile is counted, and its place is seen free besides, so that too few are given up and never too many.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.load(SeqCst) as usize
    }

    /// How many of the stuck to give up, where so many of those in the pool could not be set aside, so many are stuck
    /// in all, and so many were leaving before.
    pub(super) fn to_give_up(&self, in_pool: usize, stuck: usize, leaving: usize) -> usize {
        // Those beside that move will be back at once.
        let beyond = stuck.saturating_sub(self.beside_most as usize).min(in_pool);
        self.waiting().min(beyond).saturating_sub(leaving)
    }

    /// Whether anybody waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(SeqCst)
    }

    /// How many wait, some of which may have gone.
    fn waiting(&self) -> usize {
        lock(&self.waiting).turns.len()
    }

    /// This connection waits, behind all others.
    pub(super) fn join(&self, slot: u32, id: StreamId) {
        let mut waiting = lock(&self.waiting);
        waiting.turns.push_back((slot, id));
        self.any.store(true, SeqCst);
    }

    /// The one whose turn is next: it may have gone.
    pub(super) fn first(&self) -> Option<(u32, StreamId)> {
        lock(&self.waiting).turns.front().copied()
    }

    /// This one, which was the first, waits no more: another thread may have found the same.
    pub(super) fn leave(&self, slot: u32, id: StreamId) {
        let mut waiting = lock(&self.waiting);
        if waiting.turns.front() == Some(&(slot, id)) {
            waiting.turns.pop_front();
        }
        self.any.store(!waiting.turns.is_empty(), SeqCst);
    }

    /// When somebody is to look for sends that are stuck, where others wait.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.any().then(|| lock(&self.waiting).look_at)?
    }

    /// Whether it is time to. Who is told so does it, and nobody else does until it says
    /// [`look_again`](Self::look_again).
    pub(super) fn is_to_look(&self, now: Instant) -> bool {
        self.any() && lock(&self.waiting).look_at.take_if(|at| *at <= now).is_some()
    }

    /// Who looked has done so, at this time. Looking takes time, so nobody does so again at once.
    pub(super) fn look_again(&self, now: Instant) {
        lock(&self.waiting).look_at = Some(now + STUCK_AFTER / 2);
    }
}

/// How many accepts are outstanding, and how many are to be.
pub(super) struct Accepts {
    doors: Vec<Door>,
    /// Most of each listening socket, and how many more when they run dry.
    most: u32,
    burst: u32,
    /// Until when nothing is accepted, since the system had no descriptor or memory to give.
    paused_until: Option<Instant>,
    shut: bool,
}

struct Door {
    outstanding: u32,
    /// To be kept outstanding.
    meant: u32,
    /// Taken since the socket was last asked whether one waits.
    taken: u32,
    /// The last one failed for want of resources: for each pause one tries, until one succeeds.
    probing: bool,
    /// One came back since one was started to try. Those that are outstanding are told of who comes, not of who
    /// has waited since.
    probe: bool,
}

impl Accepts {
    pub(super) fn new(listeners: usize, first: u32, most: u32, burst: u32) -> Self {
        let (outstanding, meant, taken, probing, probe) = (0, first, 0, false, false);
        let door = |_| Door { outstanding, meant, taken, probing, probe };
        let doors = (0..listeners).map(door).collect();
        Self { doors, most: most.max(first), burst, paused_until: None, shut: false }
    }

    /// How many more to start now at this listening socket; they count as outstanding.
    pub(super) fn start_more(&mut self, listener: usize) -> u32 {
        if self.shut || self.paused_until.is_some() {
            return 0;
        }
        let door = &mut self.doors[listener];
        let more = match door.probing {
            // In the place of the one that came back: so there are never too many.
            true => u32::from(std::mem::take(&mut door.probe)),
            false => door.meant.saturating_sub(door.outstanding),
        };
        door.outstanding += more;
        more
    }

    /// So many came back.
    pub(super) fn back(&mut self, listener: usize, count: u32) {
        let door = &mut self.doors[listener];
        door.outstanding -= count;
        door.probe = true;
    }

    /// One succeeded. Says whether it is time to ask the socket if another waits, though accepts are
    /// outstanding: once for as many as are kept so.
    pub(super) fn succeeded(&mut self, listener: usize) -> bool {
        let door = &mut self.doors[listener];
        door.probing = false;
        door.taken += 1;
        let ask = door.taken >= door.meant;
        if ask {
            door.taken = 0;
        }
        ask && !self.shut
    }

    /// One waited though accepts were outstanding: they have run dry.
    pub(super) fn ran_dry(&mut self, listener: usize) {
        let door = &mut self.doors[listener];
        door.meant = (door.meant + self.burst).min(self.most);
    }

    /// One failed for want of descriptors or memory. Says whether accepting pauses from now on.
    pub(super) fn pause(&mut self, listener: usize) -> bool {
        self.doors[listener].probing = true;
        let begins = self.paused_until.is_none() && !self.shut;
        if begins {
            self.paused_until = Some(Instant::now() + TICK);
        }
        begins
    }

    /// Ends a pause, where a descriptor was given back, or its time is over. Says whether there was one.
    pub(super) fn resume(&mut self, now: Option<Instant>) -> bool {
        let over = |until: Instant| now.is_none_or(|now| until <= now);
        self.paused_until.take_if(|until| over(*until)).is_some()
    }

    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// No more are started. Says whether they were until now.
    pub(super) fn shut(&mut self) -> bool {
        self.paused_until = None;
        !std::mem::replace(&mut self.shut, true)
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.doors.iter().map(|door| door.outstanding).sum()
    }
}

/// Ends accepting at all of them.
pub(super) fn end_accepting<'a>(listeners: impl IntoIterator<Item = &'a Listener>) {
    listeners.into_iter().for_each(Listener::end_accepting);
}

/// The timers of all connections, by slot, and who watches them.
///
/// One wheel for all, since whichever thread has a connection must be able to set its timer. One thread's
/// take ends when the next timer is due, the others' do not: whoever goes to take and finds that nobody
/// wakes in time takes that upon itself.
pub(super) struct Clock {
    pub(super) wheel: Wheel,
    watch: Option<(usize, Instant)>,
    /// When the time to stop is over.
    pub(super) stop_by: Option<Instant>,
}

impl Clock {
    pub(super) fn new(wheel: Wheel) -> Self {
        Self { wheel, watch: None, stop_by: None }
    }

    /// When a thread that goes to take is to be woken, for timers, for the end of the server, and for the end
    /// of a pause.
    pub(super) fn watch(
        &mut self,
        thread: usize,
        now: Instant,
        pause: Option<Instant>,
    ) -> Option<Instant> {
        let timer = self.wheel.next_in(now).map(|left| now + left);
        let due = [timer, self.stop_by, pause].into_iter().flatten().min()?;
        match self.watch {
            Some((another, at)) if another != thread && at <= due => None,
            _ => {
                self.watch = Some((thread, due));
                Some(due)
            }
        }
    }

    /// A thread is back from its take. Moves into `due` the slots whose timers fell due, and says whether the
    /// time to stop is over.
    pub(super) fn back(&mut self, thread: usize, now: Instant, due: &mut Vec<u32>) -> bool {
        self.watch.take_if(|(its, _)| *its == thread);
        self.wheel.expired(now, due);
        self.stop_by.is_some_and(|by| by <= now)
    }

    pub(super) fn set(&mut self, slot: u32, due: Tick) {
        self.wheel.set(slot, due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn accepts_begin_few_and_grow_by_bursts_when_they_run_dry() {
        let mut accepts = Accepts::new(1, 5, 500, 100);
        assert_eq!((accepts.start_more(0), accepts.start_more(0)), (5, 0));
        // One at a time: it is replaced, and the fifth asks.
        let asked: Vec<_> = (0..5)
            .map(|_| {
                accepts.back(0, 1);
                let ask = accepts.succeeded(0);
                assert_eq!(accepts.start_more(0), 1);
                ask
            })
            .collect();
        assert_eq!(asked, [false, false, false, false, true]);
        for kept in [105, 205, 305, 405, 500, 500] {
            accepts.ran_dry(0);
            accepts.start_more(0);
            assert_eq!(accepts.outstanding(), kept);
        }
    }

    #[test]
    fn a_want_of_descriptors_pauses_once_and_one_accept_tries() {
        let mut accepts = Accepts::new(1, 5, 500, 100);
        accepts.start_more(0);
        accepts.back(0, 5);
        let paused: Vec<_> = (0..5).map(|_| accepts.pause(0)).collect();
        assert_eq!(paused, [true, false, false, false, false], "it is one pause");
        assert_eq!(accepts.start_more(0), 0);
        let until = accepts.paused_until().unwrap();
        assert!(!accepts.resume(Some(until - Duration::from_millis(1))));
        assert!(accepts.resume(Some(until)));
        assert_eq!((accepts.start_more(0), accepts.start_more(0)), (1, 0));
        accepts.back(0, 1);
        accepts.succeeded(0);
        assert_eq!(accepts.start_more(0), 5);
        accepts.pause(0);
        assert!(accepts.resume(None), "a descriptor was given back");
        assert!(accepts.shut() && !accepts.shut());
        accepts.back(0, 5);
        assert_eq!((accepts.start_more(0), accepts.pause(0)), (0, false));
    }

    #[test]
    fn one_tries_though_others_are_outstanding() {
        let mut accepts = Accepts::new(1, 5, 5, 0);
        accepts.start_more(0);
        for _ in 0..3 {
            accepts.back(0, 1);
            assert!(accepts.pause(0));
            assert_eq!(accepts.start_more(0), 0);
            assert!(accepts.resume(None));
            assert_eq!((accepts.start_more(0), accepts.start_more(0)), (1, 0));
        }
        accepts.back(0, 1); // the one who waited had gone
        assert_eq!((accepts.start_more(0), accepts.outstanding()), (1, 5));
        accepts.back(0, 1);
        accepts.succeeded(0);
        assert_eq!((accepts.start_more(0), accepts.outstanding()), (1, 5));
    }

    #[test]
    fn sends_beyond_the_limit_wait_in_order() {
        let (sends, id) = (Sends::new(1, 0, Instant::now()), |n: u32| (n, StreamId(u64::from(n))));
        assert_eq!((sends.any(), sends.first(), sends.look_at()), (false, None, None));
        assert_eq!((sends.take(false), sends.take(false)), (Some(Place::Pool), None));
        (0..3).for_each(|n| sends.join(n, id(n).1));
        sends.give_back(Place::Pool);
        assert_eq!(sends.take_in_turn(false), None, "others wait");
        assert_eq!((sends.any(), sends.first()), (true, Some(id(0))));
        sends.leave(0, id(0).1);
        sends.leave(0, id(0).1); // another thread has found the same
        assert_eq!((sends.any(), sends.first()), (true, Some(id(1))));
        sends.join(0, id(0).1);
        for n in [1, 2, 0] {
            assert_eq!((sends.any(), sends.first()), (true, Some(id(n))));
            sends.leave(n, id(n).1);
        }
        assert_eq!((sends.any(), sends.first()), (false, None));
        assert_eq!(sends.take_in_turn(false), Some(Place::Pool));
    }

    #[test]
    fn a_send_that_is_stuck_stands_beside_the_pool() {
        let now = Instant::now();
        let sends = Sends::new(2, 3, now);
        assert_eq!(sends.take(true), Some(Place::Beside), "its last one was stuck");
        let pool: Vec<_> = (0..3).map(|_| sends.take(false)).collect();
        assert_eq!(pool, [Some(Place::Pool), Some(Place::Pool), None]);
        sends.join(7, StreamId(7));
        assert!(sends.is_to_look(now) && !sends.is_to_look(now), "one thread looks");
        assert!(sends.set_aside() && sends.set_aside());
        assert_eq!(sends.take(false), Some(Place::Pool));
        assert!(!sends.set_aside(), "as many are as may be");
        assert_eq!((sends.take_in_turn(true), sends.take(true)), (None, Some(Place::Pool)));
        sends.give_back(Place::Beside);
        assert_eq!(sends.take_in_turn(true), Some(Place::Beside));
        assert_eq!(sends.look_at(), None, "somebody looks");
        sends.look_again(now);
        let later = sends.look_at().unwrap();
        assert!(now < later && !sends.is_to_look(now) && sends.is_to_look(later));
    }

    /// Each time it makes room one of its sends moves before the next one is stuck.
    #[test]
    fn who_reads_slowly_takes_a_place_of_the_pool_once() {
        let (sends, mut slow, mut in_pool) = (Sends::new(1, 1, Instant::now()), Slow::default(), 0);
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
    fn one_is_given_up_for_each_that_waits_and_none_for_those_that_leave() {
        let sends = Sends::new(3, 2, Instant::now());
        (0..3).for_each(|_| assert_eq!(sends.take(false), Some(Place::Pool)));
        (0..2).for_each(|_| assert_eq!(sends.take(true), Some(Place::Beside)));
        assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 0, "nobody waits");
        (0..2).for_each(|slot| sends.join(slot, StreamId(u64::from(slot))));
        assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 2);
        assert_eq!(sends.to_give_up(1, 5, sends.leaving()), 1);
        assert_eq!(sends.to_give_up(1, 2, sends.leaving()), 0, "those beside move");
        sends.leaves();
        assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 1);
        sends.leaves();
        assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 0);
        let leaving = sends.leaving();
        sends.give_back(Place::Beside);
        sends.has_left();
        assert!(sends.set_aside(), "it is free");
        assert_eq!(sends.to_give_up(2, 4, leaving), 0, "it was counted before");
        assert_eq!(sends.to_give_up(2, 4, sends.leaving()), 1);
    }

    #[test]
    fn one_thread_watches_the_clock() {
        let now = Instant::now();
        let mut clock = Clock::new(Wheel::starting(now));
        assert_eq!(clock.watch(0, now, None), None);
        clock.set(3, 10);
        let due = clock.watch(0, now, None).unwrap();
        assert_eq!(clock.watch(1, now, None), None, "another wakes in time");
        clock.set(4, 5);
        let earlier = clock.watch(1, now, None).unwrap();
        assert!(earlier < due, "nobody would have woken for the new one");
        let mut fell = Vec::new();
        assert!(!clock.back(0, now, &mut fell) && fell.is_empty());
        assert_eq!(clock.watch(0, now, None), None, "the other still watches");
        assert!(!clock.back(1, earlier, &mut fell));
        assert_eq!(fell, [4]);
        clock.stop_by = Some(due);
        assert!(clock.back(0, due, &mut fell));
        assert_eq!(clock.watch(0, due, Some(now)), Some(now));
    }

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
