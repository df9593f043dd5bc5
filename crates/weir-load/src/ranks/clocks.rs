//! How far the clocks of the ranks are from one another.
//!
//! Rank 0 asks each for its time, again and again, and keeps the answer that came back fastest: the clock was read some
//! time between question and answer, so the offset is that of the middle, and wrong by half the round trip at most. That is
//! Cristian's method (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989), on which NTP
//! rests, too. Clocks drift apart by some µs per second; who needs more measures before and after.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Lost, Ranks};
use crate::clock::now_ns;

/// How often a rank is asked at most.
const QUESTIONS: u32 = 64;
/// How long one is asked at most, once it has answered at all.
const OF_EACH: Duration = Duration::from_millis(20);

/// A rank's clock ([`now_ns`]) as rank 0 sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// What it shows more than that of rank 0, in ns.
    pub offset_ns: i64,
    /// How wrong that may be, in ns either way: half of the fastest round trip.
    pub uncertainty_ns: u64,
}

impl Offset {
    /// What the rank's clock shows when that of rank 0 shows `own_ns`.
    pub fn there(&self, own_ns: u64) -> u64 {
        own_ns.saturating_add_signed(self.offset_ns)
    }

    /// What the clock of rank 0 shows when the rank's shows `its_ns`.
    pub fn here(&self, its_ns: u64) -> u64 {
        its_ns.saturating_add_signed(self.offset_ns.saturating_neg())
    }
}

/// Measures the offsets of all; every rank calls it. Rank 0 gets them in the order of the ranks, its own (0) first.
///
/// # Errors
/// Who did not answer until then.
pub fn offsets(ranks: &dyn Ranks, until: Instant) -> Result<Option<Vec<Offset>>, Lost> {
    if ranks.rank() != 0 {
        // An empty message is the last.
        while !ranks.receive(0, until)?.is_empty() {
            ranks.send(0, &now_ns().to_le_bytes())?;
        }
        return Ok(None);
    }
    let mut all = vec![Offset::default()];
    for rank in 1..ranks.count() {
        all.push(offset(ranks, rank, until)?);
        ranks.send(rank, &[])?;
    }
    Ok(Some(all))
}

fn offset(ranks: &dyn Ranks, rank: usize, until: Instant) -> Result<Offset, Lost> {
    let (mut best, mut enough) = (None::<(u64, Offset)>, None);
    for _ in 0..QUESTIONS {
        let asked_ns = now_ns();
        ranks.send(rank, &[1])?;
        let answer = ranks.receive(rank, until)?;
        let answered_ns = now_ns();
        let its_ns = answer.as_slice().try_into().map(u64::from_le_bytes).map_err(|_| Lost {
            rank: Some(rank),
            host: ranks.host(rank).into(),
            why: format!("answered {} bytes when asked for its time", answer.len()),
        })?;
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
        let mut all = memory::ranks(["a", "b", "c"]);
        let others = all.split_off(1);
        let found = thread::scope(|scope| {
            for rank in others {
                scope.spawn(move || assert_eq!(offsets(&rank, until).unwrap(), None));
            }
            offsets(&all[0], until).unwrap().unwrap()
        });
        assert_eq!((found.len(), found[0]), (3, Offset::default()));
        for offset in found {
            assert!(offset.offset_ns.unsigned_abs() <= offset.uncertainty_ns, "{offset:?}");
        }
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
