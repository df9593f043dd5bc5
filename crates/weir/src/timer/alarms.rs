//! Alarms: for each of many things a moment of its own, kept to the nanosecond.
//!
//! What [`Wheel`](super::Wheel) is for limits, which may be a tick late, this is for what has to happen in time. It is a
//! heap that knows where each alarm stands: setting, moving and cancelling one takes time that grows with the logarithm
//! of how many are set, and the first is known at once. So who waits knows until when, and nothing ticks.
//!
//! It belongs to one thread, or stands behind a lock, and calls nobody: its owner takes what is due with
//! [`Alarms::expired`].

use super::Counts;
use std::time::{Duration, Instant};

/// A moment, in nanoseconds since the alarms were made: 584 years of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// So much later, and never [`NEVER`](Self::NEVER) unless it is that already.
    pub fn after(self, time: Duration) -> Self {
        if self == Self::NEVER {
            return self;
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos).min(u64::MAX - 1))
    }
}

/// Alarms by number.
#[derive(Debug)]
pub struct Alarms {
    since: Instant,
    now: Moment,
    /// A heap: what stands at `place` is not due before what stands at `(place - 1) / 2`.
    heap: Vec<(Moment, u32)>,
    /// By number: where its alarm stands in the heap, [`UNSET`] or [`UNUSED`]. Grows with the highest number set, as
    /// the table does that it is for.
    places: Vec<u32>,
    counts: Counts,
}

/// The place of an alarm that is not set.
const UNSET: u32 = u32::MAX;
/// Of one that never was.
const UNUSED: u32 = u32::MAX - 1;

impl Alarms {
    /// None yet; moments are counted from `since`.
    pub fn starting(since: Instant) -> Self {
        let (heap, places) = (Vec::new(), Vec::new());
        Self { since, now: Moment(0), heap, places, counts: Counts::default() }
    }

    /// An instant as a moment; what was before the alarms were made is their beginning.
    #[inline]
    pub fn moment_of(&self, instant: Instant) -> Moment {
        Moment(0).after(instant.saturating_duration_since(self.since))
    }

    /// The moment that [`expired`](Self::expired) last went to.
    #[inline]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Alarms that are set.
    #[inline]
    pub fn armed(&self) -> usize {
        self.heap.len()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the alarm of this number, or moves it.
    pub fn set(&mut self, number: u32, due: Moment) {
        let index = number as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, UNUSED);
        }
        match self.places[index] {
            place @ (UNSET | UNUSED) => {
                self.counts.created += u64::from(place == UNUSED);
                self.counts.set += 1;
                self.heap.push((due, number));
                self.rise(self.heap.len() - 1);
            }
            place => {
                self.counts.updated += 1;
                let before = std::mem::replace(&mut self.heap[place as usize].0, due);
                if due < before { self.rise(place as usize) } else { self.sink(place as usize) }
            }
        }
    }

    /// Sets the alarm of this number, unless it goes off by then anyway.
    #[inline]
    pub fn set_by(&mut self, number: u32, due: Moment) {
        let place = self.places.get(number as usize);
        let armed = place.and_then(|place| self.heap.get(*place as usize));
        if armed.is_none_or(|(armed, _)| due < *armed) {
            self.set(number, due);
        }
    }

    /// Cancels the alarm of this number. Says whether it was set.
    pub fn cancel(&mut self, number: u32) -> bool {
        let Some(place) = self.places.get(number as usize).copied() else { return false };
        if place >= UNUSED {
            return false;
        }
        self.counts.cancelled += 1;
        self.remove(place as usize);
        true
    }

    /// How long until the first one is due; `None` where none is set.
    #[inline]
    pub fn next_in(&self, now: Instant) -> Option<Duration> {
        let (due, _) = self.heap.first()?;
        // Beyond what an instant holds nothing falls due.
        let due = self.since.checked_add(Duration::from_nanos(due.0));
        Some(due.map_or(Duration::MAX, |due| due.saturating_duration_since(now)))
    }

    /// Goes on to `now` and moves into `due` the numbers of the alarms that went off, the first one last: who takes
    /// them from the end has them in order. They are no longer set.
    pub fn expired(&mut self, now: Instant, due: &mut Vec<u32>) {
        self.now = self.moment_of(now);
        let from = due.len();
        while let Some((_, number)) = self.heap.first().copied().filter(|(at, _)| *at <= self.now) {
            self.counts.fired += 1;
            self.remove(0);
            due.push(number);
        }
        due[from..].reverse();
    }

    fn remove(&mut self, place: usize) {
        let (due, number) = self.heap.swap_remove(place);
        self.places[number as usize] = UNSET;
        if let Some((moved, _)) = self.heap.get(place) {
            if *moved < due { self.rise(place) } else { self.sink(place) }
        }
    }

    /// Lets what stands at a place rise to where it belongs, which is not below.
    fn rise(&mut self, mut place: usize) {
        let one = self.heap[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above].0 <= one.0 {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, one);
    }

    /// Lets what stands at a place sink to where it belongs, which is not above.
    fn sink(&mut self, mut place: usize) {
        let one = self.heap[place];
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(first) = self.heap.get(left) else { break };
            let below = match self.heap.get(right) {
                Some(second) if second.0 < first.0 => right,
                _ => left,
            };
            if one.0 <= self.heap[below].0 {
                break;
            }
            self.put(place, self.heap[below]);
            place = below;
        }
        self.put(place, one);
    }

    #[inline]
    fn put(&mut self, place: usize, one: (Moment, u32)) {
        self.heap[place] = one;
        self.places[one.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const US: Duration = Duration::from_micros(1);

    fn expired(alarms: &mut Alarms, after: Duration) -> Vec<u32> {
        let (mut due, now) = (Vec::new(), alarms.since + after);
        alarms.expired(now, &mut due);
        due.reverse();
        due
    }

    #[test]
    fn they_go_off_in_order_to_the_nanosecond() {
        let since = Instant::now();
        let mut alarms = Alarms::starting(since);
        let nano = Duration::from_nanos(1);
        for (number, ahead) in [(4, 3 * US), (0, US), (9, 2 * US)] {
            alarms.set(number, alarms.moment_of(since + ahead));
        }
        assert_eq!(alarms.next_in(since), Some(US));
        assert_eq!(expired(&mut alarms, US - nano), []);
        assert_eq!(expired(&mut alarms, US), [0]);
        assert_eq!(alarms.next_in(since + US), Some(US));
        assert_eq!(expired(&mut alarms, 3 * US), [9, 4]);
        assert_eq!((alarms.next_in(since), alarms.armed()), (None, 0));
    }

    #[test]
    fn one_is_moved_only_where_it_would_be_late() {
        let since = Instant::now();
        let mut alarms = Alarms::starting(since);
        let at = |us: u32| Moment(0).after(US * us);
        alarms.set_by(3, at(20));
        alarms.set_by(3, at(30));
        assert_eq!(alarms.next_in(since), Some(20 * US));
        alarms.set_by(3, at(10));
        assert_eq!(alarms.next_in(since), Some(10 * US));
        assert!(alarms.cancel(3) && !alarms.cancel(3) && !alarms.cancel(99));
        let counts = Counts { created: 1, set: 1, updated: 1, fired: 0, cancelled: 1 };
        assert_eq!(alarms.counts(), counts);
    }

    #[test]
    fn a_moment_beyond_all_time_never_comes() {
        let since = Instant::now();
        let mut alarms = Alarms::starting(since);
        assert!(Moment(0).after(Duration::MAX) < Moment::NEVER);
        assert_eq!(Moment::NEVER.after(US), Moment::NEVER);
        alarms.set(0, Moment(0).after(Duration::MAX));
        assert!(alarms.next_in(since).is_some_and(|left| left > Duration::from_secs(1 << 32)));
        assert_eq!(expired(&mut alarms, Duration::from_secs(1 << 32)), []);
        // Nor does one come that was before the beginning later than at once.
        alarms.set(1, alarms.moment_of(since - US.min(since.elapsed())));
        assert_eq!(alarms.next_in(since), Some(Duration::ZERO));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u32, u64),
        Cancel(u32),
        Go(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..40u32, 0..1000u64).prop_map(|(number, ahead)| Step::Set(number, ahead)),
            1 => (0..40u32).prop_map(Step::Cancel),
            2 => (0..300u64).prop_map(Step::Go),
        ]
    }

    proptest! {
        #[test]
        fn they_do_what_a_sorted_list_does(steps in prop::collection::vec(step(), 1..200)) {
            let since = Instant::now();
            let mut alarms = Alarms::starting(since);
            let (mut model, mut now) = (BTreeMap::new(), 0);
            for step in steps {
                match step {
                    Step::Set(number, ahead) => {
                        alarms.set(number, Moment(now + ahead));
                        model.insert(number, now + ahead);
                    }
                    Step::Cancel(number) => {
                        prop_assert_eq!(alarms.cancel(number), model.remove(&number).is_some());
                    }
                    Step::Go(nanos) => {
                        now += nanos;
                        let gone = expired(&mut alarms, Duration::from_nanos(now));
                        let moments: Vec<_> = gone.iter().map(|number| model[number]).collect();
                        prop_assert!(moments.is_sorted());
                        let mut numbers = gone.clone();
                        numbers.sort_unstable();
                        let due = model.iter().filter(|(_, at)| **at <= now).map(|(n, _)| *n);
                        prop_assert_eq!(numbers, due.collect::<Vec<_>>());
                        model.retain(|_, at| *at > now);
                    }
                }
                prop_assert_eq!(alarms.armed(), model.len());
                let left = alarms.next_in(since + Duration::from_nanos(now));
                let first = model.values().min().map(|at| Duration::from_nanos(at - now));
                prop_assert_eq!(left, first);
            }
        }
    }
}
