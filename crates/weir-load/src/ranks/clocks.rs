//! How far the clocks of the ranks are from one another.
//!
//! A rank asks another for its time, again and again, and keeps the answer that came back fastest: the clock was read some
//! time between question and answer, so the offset is that of the middle, and wrong by half the round trip at most. That is
//! Cristian's method (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989), on which NTP
//! rests, too. Clocks drift apart by some µs per second; who needs more measures before and after ([`Between`]).
//!
//! For the start of a run rank 0 asks few of them ([`offsets`]); these ask others, along a tree, many at a time. Offsets and
//! what they may be wrong by are added up along the way, so the time that all take and the uncertainty of the last grow with
//! the logarithm of the ranks.
//!
//! For latencies one rank asks all others itself ([`offsets_from`]), as what they may be wrong by must not be added up: it is
//! held against a median. All of them share a time that does not grow with their number, so each of many is asked less often.
//! What would take longer than the questions is waking each: so those who come next are asked once while others are measured.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Lost, Ranks, receive, tree};
use crate::clock::now_ns;

/// How often a rank is asked at most.
const QUESTIONS: u32 = 64;
/// How long one is asked at most, once it has answered at all.
const OF_EACH: Duration = Duration::from_millis(20);
/// The same of all together that one rank asks, once they have answered at all.
const OF_ALL: Duration = Duration::from_millis(200);
/// How long whoever waits to be asked may take to wake up: what speaks for it naps meanwhile.
const WAKES_WITHIN: Duration = Duration::from_millis(12);

/// A rank's clock ([`now_ns`]) as another rank sees it, which is rank 0 unless another one is named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// What it shows more than that of the other, in ns.
    pub offset_ns: i64,
    /// How wrong that may be, in ns either way: half of the fastest round trip, of each step of the tree.
    pub uncertainty_ns: u64,
}

impl Offset {
    /// What an answer says: the other clock was read some time between the question and it, both by the own clock.
    fn of_answer(asked_ns: u64, its_ns: u64, answered_ns: u64) -> Self {
        let took_ns = answered_ns.saturating_sub(asked_ns);
        let middle_ns = asked_ns + took_ns / 2;
        let offset_ns = its_ns.wrapping_sub(middle_ns) as i64;
        Self { offset_ns, uncertainty_ns: took_ns.div_ceil(2) }
    }

    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.offset_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.uncertainty_ns.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (offset, uncertainty) = bytes.split_first_chunk()?;
        let uncertainty_ns = u64::from_le_bytes(uncertainty.try_into().ok()?);
        Some(Self { offset_ns: i64::from_le_bytes(*offset), uncertainty_ns })
    }

    /// What the rank's clock shows when that of rank 0 shows `own_ns`.
    pub fn there(&self, own_ns: u64) -> u64 {
        own_ns.saturating_add_signed(self.offset_ns)
    }

    /// What the clock of rank 0 shows when the rank's shows `its_ns`.
    pub fn here(&self, its_ns: u64) -> u64 {
        its_ns.saturating_add_signed(self.offset_ns.saturating_neg())
    }
}

/// How a clock stood to another before a run and after it, and so what is known of it meanwhile.
///
/// Clocks drift apart one way unless they are set. Then the offset was between the two that were measured all the time, and the
/// middle of these is wrong by half the drift and by what the measurements may be wrong by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Between {
    /// Before it.
    pub before: Offset,
    /// After it.
    pub after: Offset,
}

impl Between {
    /// By how much more the clock went than the other one, in ns.
    pub fn drift_ns(&self) -> i64 {
        self.after.offset_ns.wrapping_sub(self.before.offset_ns)
    }

    /// What the offset was more than before the run, in ns, in the middle between the two measurements.
    pub fn since_before_ns(&self) -> i64 {
        self.drift_ns() / 2
    }

    /// How wrong that may be at any time between them, in ns either way.
    pub fn uncertainty_ns(&self) -> u64 {
        let measured_ns = self.before.uncertainty_ns.max(self.after.uncertainty_ns);
        measured_ns.saturating_add(self.drift_ns().unsigned_abs().div_ceil(2))
    }
}

/// What comparing clocks has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The clock of this rank.
    pub own: Offset,
    /// At rank 0 those of all, in the order of the ranks.
    pub all: Option<Vec<Offset>>,
}

/// Compares the clocks of all with that of rank 0, along the tree, or with that of another one, which asks all others itself,
/// rank 0 last; gives the own clock. Every rank calls it. Nobody hears of all clocks: what each rank says and hears grows with
/// the logarithm of their number, but for the one that asks all.
///
/// # Errors
/// Who did not answer until then.
pub fn own_offset(
    ranks: &dyn Ranks,
    center: Option<usize>,
    until: Instant,
) -> Result<Offset, Lost> {
    let (own, count) = (ranks.rank(), ranks.count());
    let Some(center) = center else {
        let children: Vec<usize> = tree::children(own, count).collect();
        return along(ranks, tree::parent(own), &children, OF_EACH, until);
    };
    if own != center {
        return along(ranks, Some(center), &[], OF_EACH, until);
    }
    let others: Vec<usize> = (1..count).chain([0]).filter(|rank| *rank != center).collect();
    along(ranks, None, &others, OF_EACH.min(OF_ALL / count.max(1) as u32), until)
}

/// The same, and rank 0 gets the clocks of all; it is a collective call.
///
/// # Errors
/// As [`own_offset`].
pub fn compare(ranks: &dyn Ranks, center: Option<usize>, until: Instant) -> Result<Compared, Lost> {
    let own = own_offset(ranks, center, until)?;
    let Some(all) = ranks.gather(&own.to_bytes(), until)? else {
        return Ok(Compared { own, all: None });
    };
    let read = |(rank, said): (usize, &Vec<u8>)| {
        Offset::of(said).ok_or_else(|| odd(ranks, rank, said.len()))
    };
    let all = all.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(Compared { own, all: Some(all) })
}

/// Measures the offsets of all; every rank calls it, and it is a collective call. Rank 0 gets them in the order of the ranks,
/// its own (0) first.
///
/// # Errors
/// Who did not answer until then.
pub fn offsets(ranks: &dyn Ranks, until: Instant) -> Result<Option<Vec<Offset>>, Lost> {
    compare(ranks, None, until).map(|found| found.all)
}

/// The same from the clock of one rank, which asks all others itself: none is less right than its own answers are.
///
/// # Errors
/// As [`offsets`].
pub fn offsets_from(
    ranks: &dyn Ranks,
    center: usize,
    until: Instant,
) -> Result<Option<Vec<Offset>>, Lost> {
    compare(ranks, Some(center), until).map(|found| found.all)
}

/// Is asked by one rank and asks others, each for so long at most.
fn along(
    ranks: &dyn Ranks,
    parent: Option<usize>,
    children: &[usize],
    of_each: Duration,
    until: Instant,
) -> Result<Offset, Lost> {
    let mut own = Offset::default();
    if let Some(parent) = parent {
        // Questions are empty, and the last message says what was found.
        own = loop {
            match receive(ranks, parent, until)?.as_slice() {
                [] => ranks.send(parent, &now_ns().to_le_bytes())?,
                said => break Offset::of(said).ok_or_else(|| odd(ranks, parent, said.len()))?,
            }
        };
    }
    let ahead = WAKES_WITHIN.as_nanos().div_ceil(of_each.as_nanos().max(1)) as usize;
    let mut asleep = children.iter();
    for (index, child) in children.iter().enumerate() {
        while children.len() - asleep.len() <= index + ahead
            && let Some(next) = asleep.next()
        {
            ranks.send(*next, &[])?;
        }
        // Its first answer tells nothing: it may lie here for long.
        time_of(ranks, *child, until)?;
        let from_here = measure(ranks, *child, of_each, until)?;
        let from_the_first = Offset {
            offset_ns: own.offset_ns.wrapping_add(from_here.offset_ns),
            uncertainty_ns: own.uncertainty_ns.saturating_add(from_here.uncertainty_ns),
        };
        ranks.send(*child, &from_the_first.to_bytes())?;
    }
    Ok(own)
}

fn odd(ranks: &dyn Ranks, rank: usize, length: usize) -> Lost {
    let why = format!("said {length} bytes when clocks were compared");
    Lost { rank: Some(rank), host: ranks.host(rank).into(), why }
}

/// What the clock of a rank showed when it answered.
fn time_of(ranks: &dyn Ranks, rank: usize, until: Instant) -> Result<u64, Lost> {
    let answer = receive(ranks, rank, until)?;
    let its_ns = answer.as_slice().try_into().map(u64::from_le_bytes);
    its_ns.map_err(|_| odd(ranks, rank, answer.len()))
}

/// Measures how far the clock of another rank is from that of this one.
fn measure(
    ranks: &dyn Ranks,
    rank: usize,
    of_each: Duration,
    until: Instant,
) -> Result<Offset, Lost> {
    let (mut best, mut enough) = (None::<Offset>, None);
    for _ in 0..QUESTIONS {
        let asked_ns = now_ns();
        ranks.send(rank, &[])?;
        let its_ns = time_of(ranks, rank, until)?;
        let answered_ns = now_ns();
        let offset = Offset::of_answer(asked_ns, its_ns, answered_ns);
        if best.is_none_or(|best| offset.uncertainty_ns < best.uncertainty_ns) {
            best = Some(offset);
        }
        if Instant::now() >= *enough.get_or_insert_with(|| Instant::now() + of_each) {
            break;
        }
    }
    Ok(best.expect("it was asked once at least"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::{ASKED_TO_END, memory};
    use proptest::prelude::*;
    use std::thread;

    #[test]
    fn the_clock_of_one_machine_lies_within_the_uncertainty() {
        let until = Instant::now() + Duration::from_secs(60);
        for center in [None, Some(0), Some(1), Some(5)] {
            let measured = |ranks: &dyn Ranks| match center {
                None => offsets(ranks, until).unwrap(),
                Some(center) => offsets_from(ranks, center, until).unwrap(),
            };
            // They outlive the threads: one that is dropped is lost to rank 0, which may still wait for its turn.
            let all = memory::ranks(["a", "b", "c", "d", "e", "f"]);
            let found = thread::scope(|scope| {
                for rank in &all[1..] {
                    scope.spawn(move || assert_eq!(measured(rank), None));
                }
                measured(&all[0]).unwrap()
            });
            let own = center.unwrap_or(0);
            assert_eq!((found.len(), found[own]), (6, Offset::default()));
            for offset in found {
                assert!(offset.offset_ns.unsigned_abs() <= offset.uncertainty_ns, "{offset:?}");
            }
        }
    }

    /// Two clocks that are made up: what the other one shows when the own one shows so much.
    #[derive(Debug, Clone, Copy)]
    struct Clocks {
        ahead_ns: i64,
        /// In ns per second.
        faster: i64,
    }

    impl Clocks {
        fn there(self, own_ns: u64) -> u64 {
            let gained = i128::from(own_ns) * i128::from(self.faster) / 1_000_000_000;
            own_ns.wrapping_add_signed(self.ahead_ns).wrapping_add(gained as u64)
        }

        fn offset_ns(self, own_ns: u64) -> i64 {
            self.there(own_ns).wrapping_sub(own_ns) as i64
        }

        /// Asks from a moment on, with so much time under way there and back; gives the best answer, and when it came.
        fn measured(self, mut now_ns: u64, trips_ns: &[(u64, u64)]) -> (Offset, u64) {
            let mut best = None::<Offset>;
            for (there_ns, back_ns) in trips_ns {
                let its_ns = self.there(now_ns + there_ns);
                let answered_ns = now_ns + there_ns + back_ns;
                let offset = Offset::of_answer(now_ns, its_ns, answered_ns);
                // No answer is wrong by more than it says, however uneven the two ways are.
                let wrong_ns = offset.offset_ns.wrapping_sub(self.offset_ns(now_ns + there_ns));
                assert!(wrong_ns.unsigned_abs() <= offset.uncertainty_ns, "{offset:?}");
                if best.is_none_or(|best| offset.uncertainty_ns < best.uncertainty_ns) {
                    best = Some(offset);
                }
                now_ns = answered_ns;
            }
            (best.expect("it was asked"), now_ns)
        }
    }

    fn clocks() -> impl Strategy<Value = Clocks> {
        (-1_000_000_000_000_000i64..1_000_000_000_000_000, -200_000i64..200_000)
            .prop_map(|(ahead_ns, faster)| Clocks { ahead_ns, faster })
    }

    fn trips() -> impl Strategy<Value = Vec<(u64, u64)>> {
        proptest::collection::vec((0u64..3_000_000, 0u64..3_000_000), 1..64)
    }

    proptest! {
        #[test]
        fn latencies_are_right_to_what_is_told(
            clocks in clocks(),
            (before, after) in (trips(), trips()),
            began_ns in 2_000_000_000_000_000u64..3_000_000_000_000_000,
            runs_ns in 0u64..20_000_000_000,
            datagrams in proptest::collection::vec((0.0..1.0, 0i64..50_000_000), 1..50),
        ) {
            let (before, from_ns) = clocks.measured(began_ns, &before);
            let (after, _) = clocks.measured(from_ns + runs_ns, &after);
            let known = Between { before, after };
            for (at, latency_ns) in datagrams {
                let sent_ns = from_ns + (runs_ns as f64 * at) as u64;
                // As the receiver takes it, with the offset that was known then.
                let stamped_ns = clocks.there(sent_ns).wrapping_sub(before.offset_ns as u64);
                let taken_ns = (sent_ns as i64 + latency_ns).wrapping_sub(stamped_ns as i64);
                let wrong_ns = taken_ns + known.since_before_ns() - latency_ns;
                prop_assert!(
                    wrong_ns.unsigned_abs() <= known.uncertainty_ns(),
                    "wrong by {} ns: {:?}", wrong_ns, known
                );
            }
        }
    }

    #[test]
    fn a_drift_is_wrong_by_half_of_it_at_the_ends() {
        let at = |offset_ns, uncertainty_ns| Offset { offset_ns, uncertainty_ns };
        let known = Between { before: at(-1000, 30), after: at(-1013, 20) };
        assert_eq!(
            (known.drift_ns(), known.since_before_ns(), known.uncertainty_ns()),
            (-13, -6, 37)
        );
        let still = Between { before: at(70, 30), after: at(70, 40) };
        assert_eq!((still.since_before_ns(), still.uncertainty_ns()), (0, 40));
    }

    #[test]
    fn whoever_waits_for_a_rank_that_says_nothing_ends_with_the_run() {
        let until = Instant::now() + Duration::from_secs(60);
        let all = memory::ranks(["a", "b", "c", "d"]);
        thread::scope(|scope| {
            // Rank 1 was to ask rank 3.
            let waiting = scope.spawn(|| offsets(&all[3], until).unwrap_err());
            all[0].ask_to_end(Duration::ZERO);
            assert_eq!(waiting.join().unwrap().why, ASKED_TO_END);
        });
    }

    #[test]
    fn a_time_is_the_same_there_and_back() {
        for offset_ns in [0, 5, -7, i64::from(i32::MAX)] {
            let offset = Offset { offset_ns, uncertainty_ns: 1 };
            assert_eq!(offset.here(offset.there(1 << 40)), 1 << 40);
        }
        let ahead = Offset { offset_ns: 10, uncertainty_ns: 1 };
        assert_eq!((ahead.there(100), ahead.here(100)), (110, 90));
    }
}
