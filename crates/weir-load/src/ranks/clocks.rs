//! How far the clocks of the ranks are from one another.
//!
//! A rank asks another for its time, again and again, and keeps the answer that came back fastest: the clock was read some
//! time between question and answer, so the offset is that of the middle, and wrong by half the round trip at most. That is
//! Cristian's method (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989), on which NTP
//! rests, too. Clocks drift apart by some µs per second; who needs more measures before and after.
//!
//! Rank 0 asks few of them; these ask others, along a tree, many at a time. Offsets and what they may be wrong by are added
//! up along the way, so the time that all take and the uncertainty of the last grow with the logarithm of the ranks.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{ASKED_TO_END, LATE, Lost, Ranks, tree};
use crate::clock::now_ns;

/// How often a rank is asked at most.
const QUESTIONS: u32 = 64;
/// How long one is asked at most, once it has answered at all.
const OF_EACH: Duration = Duration::from_millis(20);
/// How often whoever waits for another rank looks whether the run goes on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A rank's clock ([`now_ns`]) as rank 0 sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// What it shows more than that of rank 0, in ns.
    pub offset_ns: i64,
    /// How wrong that may be, in ns either way: half of the fastest round trip, of each step of the tree.
    pub uncertainty_ns: u64,
}

impl Offset {
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

/// Measures the offsets of all; every rank calls it, and it is a collective call. Rank 0 gets them in the order of the ranks,
/// its own (0) first.
///
/// # Errors
/// Who did not answer until then.
pub fn offsets(ranks: &dyn Ranks, until: Instant) -> Result<Option<Vec<Offset>>, Lost> {
    let (own, count) = (ranks.rank(), ranks.count());
    let mut offset = Offset::default();
    if let Some(parent) = tree::parent(own) {
        // Questions are empty, and the last message says what was found.
        offset = loop {
            match receive(ranks, parent, until)?.as_slice() {
                [] => ranks.send(parent, &now_ns().to_le_bytes())?,
                said => break Offset::of(said).ok_or_else(|| odd(ranks, parent, said.len()))?,
            }
        };
    }
    for child in tree::children(own, count) {
        let from_here = measure(ranks, child, until)?;
        let from_rank_0 = Offset {
            offset_ns: offset.offset_ns.wrapping_add(from_here.offset_ns),
            uncertainty_ns: offset.uncertainty_ns.saturating_add(from_here.uncertainty_ns),
        };
        ranks.send(child, &from_rank_0.to_bytes())?;
    }
    let Some(all) = ranks.gather(&offset.to_bytes(), until)? else { return Ok(None) };
    let read = |(rank, said): (usize, &Vec<u8>)| {
        Offset::of(said).ok_or_else(|| odd(ranks, rank, said.len()))
    };
    all.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
}

fn odd(ranks: &dyn Ranks, rank: usize, length: usize) -> Lost {
    let why = format!("said {length} bytes when clocks were compared");
    Lost { rank: Some(rank), host: ranks.host(rank).into(), why }
}

/// The next message of a rank, whose loss only rank 0 may see: then the run ends.
fn receive(ranks: &dyn Ranks, from: usize, until: Instant) -> Result<Vec<u8>, Lost> {
    loop {
        let received = ranks.receive(from, until.min(Instant::now() + LOOK_EVERY));
        match received {
            Err(lost) if lost.why == LATE && Instant::now() < until => {}
            received => return received,
        }
        if let Some(lost) = ranks.lost() {
            return Err(lost);
        }
        if ranks.is_asked_to_end() {
            return Err(Lost { rank: None, host: String::new(), why: ASKED_TO_END.into() });
        }
    }
}

/// Measures how far the clock of another rank is from that of this one.
fn measure(ranks: &dyn Ranks, rank: usize, until: Instant) -> Result<Offset, Lost> {
    let (mut best, mut enough) = (None::<(u64, Offset)>, None);
    for _ in 0..QUESTIONS {
        let asked_ns = now_ns();
        ranks.send(rank, &[])?;
        let answer = receive(ranks, rank, until)?;
        let answered_ns = now_ns();
        let its_ns = answer.as_slice().try_into().map(u64::from_le_bytes);
        let its_ns = its_ns.map_err(|_| odd(ranks, rank, answer.len()))?;
        let took_ns = answered_ns.saturating_sub(asked_ns);
        if best.is_none_or(|(fastest_ns, _)| took_ns < fastest_ns) {
            let middle_ns = asked_ns + took_ns / 2;
            let offset_ns = its_ns.wrapping_sub(middle_ns) as i64;
            best = Some((took_ns, Offset { offset_ns, uncertainty_ns: took_ns.div_ceil(2) }));
        }
        if Instant::now() >= *enough.get_or_insert_with(|| Instant::now() + OF_EACH) {
            break;
        }
    }
    Ok(best.expect("it was asked once at least").1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::memory;
    use std::thread;

    #[test]
    fn the_clock_of_one_machine_lies_within_the_uncertainty() {
        let until = Instant::now() + Duration::from_secs(60);
        let mut all = memory::ranks(["a", "b", "c", "d", "e", "f"]);
        let others = all.split_off(1);
        let found = thread::scope(|scope| {
            for rank in others {
                scope.spawn(move || assert_eq!(offsets(&rank, until).unwrap(), None));
            }
            offsets(&all[0], until).unwrap().unwrap()
        });
        assert_eq!((found.len(), found[0]), (6, Offset::default()));
        for offset in found {
            assert!(offset.offset_ns.unsigned_abs() <= offset.uncertainty_ns, "{offset:?}");
        }
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
