//! The active set: of the connections that are open the first so many are served, in the order in which
//! they came, and the others wait for one of those to be closed.
//!
//! Whoever keeps a table of connections by slot asks [`admit`](Active::admit) once for each that it takes in,
//! and [`leave`](Active::leave) for each that it closes, whether it was served or waited.

/// Who is served and who waits, by slot. A few stores for each connection, and nothing where no limit was
/// asked for.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// Connections served at a time; `None` for all.
    most: Option<u32>,
    served: u32,
    /// By slot.
    places: Vec<Place>,
    /// Of those that wait, who is next, and who came last.
    first: u32,
    last: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nobody,
    Served,
    Waits { before: u32, behind: u32 },
}

/// No slot.
const NONE: u32 = u32::MAX;

impl Active {
    /// A set of at most so many; `None` for all.
    pub(super) fn new(most: Option<u32>) -> Self {
        Self { most, served: 0, places: Vec::new(), first: NONE, last: NONE }
    }

    /// Takes in the connection of this slot. Says whether it is served at once; else it waits behind
    /// all others.
    #[must_use]
    pub(super) fn admit(&mut self, slot: u32) -> bool {
        let Some(most) = self.most else { return true };
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, Place::Nobody);
        }
        debug_assert_eq!(self.places[index], Place::Nobody);
        if self.served < most {
            self.served += 1;
            self.places[index] = Place::Served;
            return true;
        }
        let before = std::mem::replace(&mut self.last, slot);
        self.places[index] = Place::Waits { before, behind: NONE };
        match self.places.get_mut(before as usize) {
            Some(Place::Waits { behind, .. }) => *behind = slot,
            _ => self.first = slot,
        }
        false
    }

    /// The connection of this slot is closed. Returns whose turn has come, if anybody's.
    #[must_use]
    pub(super) fn leave(&mut self, slot: u32) -> Option<u32> {
        let place = self.places.get_mut(slot as usize)?;
        match std::mem::replace(place, Place::Nobody) {
            Place::Nobody => None,
            Place::Waits { before, behind } => {
                self.unlink(before, behind);
                None
            }
            Place::Served => {
                let next = self.first;
                let Some(Place::Waits { before, behind }) = self.places.get(next as usize).copied()
                else {
                    self.served -= 1;
                    return None;
                };
                self.unlink(before, behind);
                self.places[next as usize] = Place::Served;
                Some(next)
            }
        }
    }

    /// Whether the connection of this slot is served.
    pub(super) fn serves(&self, slot: u32) -> bool {
        self.most.is_none() || self.places.get(slot as usize) == Some(&Place::Served)
    }

    fn unlink(&mut self, its_before: u32, its_behind: u32) {
        match self.places.get_mut(its_before as usize) {
            Some(Place::Waits { behind, .. }) => *behind = its_behind,
            _ => self.first = its_behind,
        }
        match self.places.get_mut(its_behind as usize) {
            Some(Place::Waits { before, .. }) => *before = its_before,
            _ => self.last = its_before,
        }
    }

    /// Everybody is served from now on: the server stops.
    pub(super) fn dissolve(&mut self) {
        *self = Self::new(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn without_a_limit_nothing_is_kept() {
        let mut active = Active::new(None);
        assert!((0..1000).all(|slot| active.admit(slot)));
        assert!((0..1000).all(|slot| active.leave(slot).is_none()));
        assert_eq!(active.places.capacity(), 0);
    }

    #[test]
    fn a_set_that_is_dissolved_holds_nobody_up() {
        let mut active = Active::new(Some(1));
        assert!(active.admit(0) && !active.admit(1));
        active.dissolve();
        assert!(active.admit(2));
        assert_eq!((active.leave(0), active.leave(1), active.leave(2)), (None, None, None));
    }

    proptest! {
        #[test]
        fn the_first_that_came_is_the_next(
            most in 1..6u32,
            steps in prop::collection::vec((any::<bool>(), 0..20u32), 1..200),
        ) {
            let mut active = Active::new(Some(most));
            let (mut served, mut waits) = (Vec::new(), VecDeque::new());
            for (comes, slot) in steps {
                let is_in = served.contains(&slot) || waits.contains(&slot);
                if comes && !is_in {
                    let at_once = active.admit(slot);
                    prop_assert_eq!(at_once, served.len() < most as usize);
                    if at_once { served.push(slot) } else { waits.push_back(slot) }
                } else if !comes {
                    let was_served = served.contains(&slot);
                    served.retain(|other| *other != slot);
                    waits.retain(|other| *other != slot);
                    let next = if was_served { waits.pop_front() } else { None };
                    served.extend(next);
                    prop_assert_eq!(active.leave(slot), next);
                }
                prop_assert_eq!(active.served as usize, served.len());
            }
        }
    }
}
