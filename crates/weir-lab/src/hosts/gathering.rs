//! What the ranks of a part of the tree say, as one word to the rank above: each of them hears from those right below it, adds
//! what it has to say itself, and passes on what is true of all.

use std::collections::{BTreeMap, BTreeSet};

use weir_load::ranks::tree;

use super::meter::Reading;
use super::own::index;
use super::reports::Reports;

/// Whether any generator that takes part, of which there are so many, is this rank or below it.
fn has_parts(rank: usize, count: usize, server: usize, parts: usize) -> bool {
    let takes_part = |rank: &usize| index(*rank, server).is_some_and(|index| index < parts);
    tree::below(rank, count).iter().any(takes_part)
}

/// The ranks right below this one that say something of generators that take part.
pub fn below(rank: usize, count: usize, server: usize, parts: usize) -> Vec<usize> {
    let says = |child: &usize| has_parts(*child, count, server, parts);
    tree::children(rank, count).filter(says).collect()
}

/// How far generators have come, and what they reported, by who says so: a rank right below, or this rank of its own.
#[derive(Debug)]
pub struct Gathering {
    phases: BTreeMap<usize, usize>,
    told: usize,
    silent: BTreeSet<usize>,
    reports: Option<Reports>,
}

impl Gathering {
    /// What these ranks will say.
    pub fn of(ranks: impl IntoIterator<Item = usize>) -> Self {
        let silent: BTreeSet<usize> = ranks.into_iter().collect();
        let phases = silent.iter().map(|rank| (*rank, 0)).collect();
        Self { phases, told: 0, silent, reports: None }
    }

    /// All generators that this rank speaks for have come so far; gives how far all have, where that is news.
    pub fn came_to(&mut self, rank: usize, phases: usize) -> Option<usize> {
        let known = self.phases.get_mut(&rank)?;
        *known = phases.max(*known);
        let all = self.phases.values().copied().min()?;
        let is_news = all > self.told;
        self.told = all;
        is_news.then_some(all)
    }

    /// How far all of them had come when that was last news.
    pub fn told(&self) -> usize {
        self.told
    }

    /// They have reported; gives what all of them did once all have.
    pub fn reported(&mut self, rank: usize, reports: Reports) -> Option<Reports> {
        if !self.silent.remove(&rank) {
            return None;
        }
        match &mut self.reports {
            Some(all) => all.add(reports),
            none => *none = Some(reports),
        }
        if self.silent.is_empty() { self.reports.take() } else { None }
    }
}

/// What the hosts of a part of the tree did until they were read once, by who says so.
#[derive(Debug)]
pub struct Readings {
    number: u32,
    silent: BTreeSet<usize>,
    all: Reading,
}

impl Readings {
    /// The own one, and what these ranks will say.
    pub fn of(number: u32, ranks: impl IntoIterator<Item = usize>, own: Reading) -> Self {
        Self { number, silent: ranks.into_iter().collect(), all: own }
    }

    /// What a rank says of itself and of all below. What comes late, of an earlier reading, is not counted.
    pub fn add(&mut self, rank: usize, number: u32, reading: Reading) {
        if number == self.number && self.silent.remove(&rank) {
            self.all = self.all.and(reading);
        }
    }

    /// What all did, with the number of the reading, once all have said so.
    pub fn whole(&self) -> Option<(u32, Reading)> {
        self.silent.is_empty().then_some((self.number, self.all))
    }

    /// The first who has not said so.
    pub fn first_silent(&self) -> Option<usize> {
        self.silent.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::together::All;
    use crate::tcp::wire::LoadReport;

    #[test]
    fn only_those_above_generators_are_heard() {
        // 0 has 1, 2 and 4 below it; 1 has 3 and 5.
        assert_eq!(below(0, 6, 1, 5), [1, 2, 4]);
        assert_eq!(below(0, 2, 1, 1), [0; 0], "the server says nothing of its own");
        assert_eq!(below(0, 6, 4, 5), [1, 2]);
        // Three take part: 0, 2 and 3.
        assert_eq!(below(0, 6, 1, 3), [1, 2]);
        assert_eq!(below(1, 6, 1, 3), [3]);
    }

    #[test]
    fn what_all_have_come_to_is_told_once() {
        let mut all = Gathering::of([1, 2, 7]);
        assert_eq!(all.came_to(1, 1), None);
        assert_eq!(all.came_to(2, 2), None);
        assert_eq!(all.came_to(9, 2), None, "nobody waits for it");
        assert_eq!(all.came_to(7, 1), Some(1));
        assert_eq!(all.came_to(7, 1), None);
        assert_eq!(all.came_to(7, 2), None);
        assert_eq!(all.came_to(1, 2), Some(2));
    }

    #[test]
    fn reports_are_told_when_all_are_there() {
        let report = |messages| {
            let mut report = LoadReport::none();
            report.counts.messages_over = messages;
            Reports::Tcp(Box::new(All { report, invalid: None, uncertainty_ns: messages }))
        };
        let mut all = Gathering::of([1, 3]);
        assert_eq!(all.reported(3, report(2)), None);
        assert_eq!(all.reported(3, report(2)), None, "it has said so");
        let Some(Reports::Tcp(all)) = all.reported(1, report(5)) else { panic!("all are there") };
        assert_eq!((all.report.counts.messages_over, all.uncertainty_ns), (7, 5));
    }

    #[test]
    fn what_comes_late_of_an_earlier_reading_is_not_counted() {
        let of = |dropped| Reading { others: None, send_dropped: Some(dropped) };
        let mut all = Readings::of(7, [1, 2], of(1));
        all.add(1, 6, of(100));
        assert_eq!((all.whole(), all.first_silent()), (None, Some(1)));
        all.add(1, 7, of(20));
        all.add(1, 7, of(20));
        all.add(3, 7, of(500));
        assert_eq!((all.whole(), all.first_silent()), (None, Some(2)));
        all.add(2, 7, of(300));
        assert_eq!((all.whole(), all.first_silent()), (Some((7, of(321))), None));
    }
}
