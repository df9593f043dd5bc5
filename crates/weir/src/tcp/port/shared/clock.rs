//! The timers of all connections, and which thread watches them.

use crate::timer::{Tick, Wheel};
use std::time::Instant;

/// The timers of all connections, by slot, and who watches them.
///
/// One wheel for all, since whichever thread has a connection must be able to set its timer. One thread's
/// take ends when the next timer is due, the others' do not: whoever goes to take and finds that nobody
/// wakes in time takes that upon itself.
pub(in crate::tcp::port) struct Clock {
    pub(in crate::tcp::port) wheel: Wheel,
    watch: Option<(usize, Instant)>,
    /// When the time to stop is over.
    pub(in crate::tcp::port) stop_by: Option<Instant>,
}

impl Clock {
    pub(in crate::tcp::port) fn new(wheel: Wheel) -> Self {
        Self { wheel, watch: None, stop_by: None }
    }

    /// When a thread that goes to take is to be woken, for timers, for the end of the server, and for the end
    /// of a pause.
    pub(in crate::tcp::port) fn watch(
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
    pub(in crate::tcp::port) fn back(
        &mut self,
        thread: usize,
        now: Instant,
        due: &mut Vec<u32>,
    ) -> bool {
        self.watch.take_if(|(its, _)| *its == thread);
        self.wheel.expired(now, due);
        self.stop_by.is_some_and(|by| by <= now)
    }

    pub(in crate::tcp::port) fn set(&mut self, slot: u32, due: Tick) {
        self.wheel.set(slot, due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
