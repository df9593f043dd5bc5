//! Proof that a program has read the datagrams that it counts.
//!
//! Each stamped datagram carries a value of 24 bits that the generator makes of a secret of its own, the run,
//! the flow and the sequence number. Whoever does not know the secret learns the value by reading the datagram
//! and in no other way. The value also says whether it is to be kept: that its lower bits are zero. So a
//! receiver that has not read a datagram does not know either whether it would have to show it.
//!
//! A receiver keeps at most [`MOST`] values ([`Sieve`]): it begins with a mask of no bits, so that all are
//! kept, and as often as there are too many it adds a bit to the mask and forgets what does not fit any more.
//! At the end it hands back the mask and what it kept ([`Shown`]). Once everything has been sent the
//! generator tells its secret to who asked for the run, who then computes each value again, and how many
//! there should be of the count that is claimed ([`Checked::fits`]).
//!
//! How exact that is follows from how many are shown. Up to [`MOST`] datagrams all are: nothing may be missing. Beyond,
//! 2048 to 4096 are expected, and six standard deviations of that are 13 to 9 %: so much more than it read may a
//! receiver claim unnoticed. A mask that leaves fewer than [`LEAST`] is none that a receiver comes by which reads
//! everything ([`Checked::is_chosen`]).
//!
//! The values tell that the stamps were read. That the rest of each datagram was, nothing shows.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
};

use serde::{Deserialize, Serialize};

use crate::stamp::fold;

/// Bits of a value.
pub const VALUE_BITS: u32 = 24;

/// The most values that are kept and shown.
pub const MOST: usize = 4096;

/// How far the number of values may lie from what is expected, in standard deviations: of 10^9 receivers
/// that tell the truth two are wronged.
const DEVIATIONS: f64 = 6.0;

/// The fewest values that are left where the mask has any bits. Each bit is added when there are more than [`MOST`], and
/// leaves half of them: so many of them is the standard deviation half the root.
pub const LEAST: u64 = (MOST / 2 - DEVIATIONS as usize * MOST.isqrt() / 2) as u64;

/// What the values of one generator are made of.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A new one, from the random numbers of the operating system.
    pub fn random() -> Self {
        // Its keys are such numbers, and it is the one source of them in the standard library.
        let number = || RandomState::new().build_hasher().finish();
        Self([number(), number()])
    }

    /// The value of a datagram. Some two nanoseconds.
    #[inline]
    pub fn value(&self, run: u32, flow: u16, sequence: u64) -> u32 {
        let Self([a, b]) = *self;
        let place = u64::from(run) | u64::from(flow) << 32;
        // The second step mixes what comes of the first with the secret again: products of small numbers
        // would show their structure.
        let mixed = fold(sequence ^ a, place ^ b);
        (fold(mixed ^ b.rotate_left(29), a | 1) >> (64 - VALUE_BITS)) as u32
    }
}

/// It is shown to nobody.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One value, and the datagram that it is of: flow, sequence number, value.
pub type Value = (u16, u64, u32);

/// What a receiver hands back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Those were kept of which these bits of the value are zero.
    pub mask: u32,
    /// What was kept.
    pub datagrams: Vec<Value>,
}

/// Keeps the values that are to be shown.
#[derive(Debug, Default)]
pub struct Sieve(Shown);

impl Sieve {
    /// The bits that must be zero in a value that is kept.
    pub fn mask(&self) -> u32 {
        self.0.mask
    }

    /// Takes a value that may be kept; whoever looks at the mask first calls this seldom.
    pub fn take(&mut self, value: Value) {
        if value.2 & self.0.mask == 0 {
            self.0.datagrams.push(value);
            self.bound();
        }
    }

    /// Adds what another one kept.
    pub fn add(&mut self, other: &Self) {
        self.0.mask |= other.0.mask;
        self.0.datagrams.extend(&other.0.datagrams);
        let mask = self.0.mask;
        self.0.datagrams.retain(|value| value.2 & mask == 0);
        self.bound();
    }

    /// What another one handed back, of flows whose numbers begin with `first` here.
    pub fn of_flows_from(shown: Shown, first: u16) -> Self {
        let Shown { mask, mut datagrams } = shown;
        datagrams.iter_mut().for_each(|value| value.0 = value.0.saturating_add(first));
        Self(Shown { mask, datagrams })
    }

    /// The same, with room for all that it will ever hold.
    pub fn with_room() -> Self {
        let datagrams = Vec::with_capacity(Self::ROOM);
        Self(Shown { datagrams, ..Shown::default() })
    }

    /// One too many is held until the mask has its next bit.
    const ROOM: usize = MOST + 1;

    /// How many it can hold before it must allocate.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.0.datagrams.capacity()
    }

    /// What is to be handed back.
    pub fn shown(self) -> Shown {
        self.0
    }

    fn bound(&mut self) {
        let Shown { mask, datagrams } = &mut self.0;
        while datagrams.len() > MOST && *mask + 1 < 1 << VALUE_BITS {
            *mask = *mask << 1 | 1;
            datagrams.retain(|value| value.2 & *mask == 0);
        }
        // After 70 billion datagrams no bits are left; then further ones are not needed.
        datagrams.truncate(MOST);
    }
}

/// What was found of values that were handed back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Those were to be shown of which these bits of the value are zero.
    pub mask: u32,
    /// Different datagrams whose value is right.
    pub right: u64,
    /// Values that are not those of the datagrams, or were not to be shown.
    pub wrong: u64,
    /// Shown a second time.
    pub again: u64,
}

/// Whether a sieve can have such a mask: the lower bits of a value.
fn is_mask(mask: u32) -> bool {
    mask < 1 << VALUE_BITS && mask.count_ones() == mask.trailing_ones()
}

/// A run that values are shown of: what they are made of, its id, and how many flows it has.
#[derive(Debug, Clone, Copy)]
pub struct OfRun {
    /// Its generator's.
    pub secret: Secret,
    /// Its id.
    pub run: u32,
    /// How many.
    pub flows: usize,
}

impl OfRun {
    /// The value of a datagram of these runs, whose flows are numbered on from one run to the next.
    fn value(runs: &[Self], flow: u16, sequence: u64) -> Option<u32> {
        let mut own = usize::from(flow);
        for of in runs {
            match own.checked_sub(of.flows) {
                None => return Some(of.secret.value(of.run, own as u16, sequence)),
                Some(behind) => own = behind,
            }
        }
        None
    }
}

impl Shown {
    /// Computes each value of one run again.
    pub fn check(&self, secret: &Secret, run: u32) -> Checked {
        self.check_all(&[OfRun { secret: *secret, run, flows: usize::MAX }])
    }

    /// The same of several runs, whose flows are numbered on from one to the next.
    pub fn check_all(&self, runs: &[OfRun]) -> Checked {
        let mut checked = Checked { mask: self.mask, ..Checked::default() };
        let is_mask = is_mask(self.mask);
        let mut datagrams: Vec<Value> = self.datagrams.iter().take(MOST).copied().collect();
        let beyond = self.datagrams.len() - datagrams.len();
        datagrams.sort_unstable();
        let mut before = None;
        for (flow, sequence, value) in datagrams {
            if before.replace((flow, sequence)) == Some((flow, sequence)) {
                checked.again += 1;
            } else if is_mask
                && value & self.mask == 0
                && OfRun::value(runs, flow, sequence) == Some(value)
            {
                checked.right += 1;
            } else {
                checked.wrong += 1;
            }
        }
        // More than may be kept were not asked for.
        checked.wrong += beyond as u64;
        checked
    }
}

impl Checked {
    /// How many there should be of so many received.
    pub fn expected(&self, received: u64) -> f64 {
        received as f64 * self.share()
    }

    /// How many were received, as far as these values tell.
    pub fn received(&self) -> f64 {
        self.right as f64 / self.share()
    }

    /// Whether the mask is none that comes of reading: not the lower bits of a value, or with so many bits that fewer
    /// than [`LEAST`] values are left. With bits enough nothing at all would have to be shown, of any number.
    pub fn is_chosen(&self) -> bool {
        !is_mask(self.mask) || self.mask != 0 && self.right < LEAST
    }

    /// Whether there are as many as of so many received there should be.
    pub fn fits(&self, received: u64) -> bool {
        if self.is_chosen() {
            return false;
        }
        let (expected, share) = (self.expected(received), self.share());
        let deviation = (expected * (1.0 - share)).sqrt();
        (self.right as f64 - expected).abs() <= DEVIATIONS * deviation
    }

    fn share(&self) -> f64 {
        1.0 / (f64::from(self.mask) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(secret: &Secret, sequences: std::ops::Range<u64>) -> Sieve {
        let mut sieve = Sieve::default();
        for sequence in sequences {
            sieve.take((3, sequence, secret.value(7, 3, sequence)));
        }
        sieve
    }

    #[test]
    fn who_has_read_everything_is_believed() {
        // Each count tries other bits; no secret may wrong anybody.
        for received in [0, 1, 4096, 4097, 10_000, 100_000, 1_000_000] {
            let secret = Secret::random();
            let shown = read(&secret, 0..received).shown();
            assert!(shown.datagrams.len() <= MOST);
            let checked = shown.check(&secret, 7);
            assert_eq!((checked.wrong, checked.again), (0, 0));
            assert_eq!(checked.right, shown.datagrams.len() as u64);
            assert!(checked.fits(received), "{received}: {checked:?}");
            assert_eq!(checked.mask == 0, received <= MOST as u64, "{checked:?}");
        }
    }

    #[test]
    fn who_claims_more_is_not() {
        let secret = Secret::random();
        let checked = read(&secret, 0..100_000).shown().check(&secret, 7);
        for claimed in [0, 50_000, 125_000, 200_000, 4_000_000] {
            assert!(!checked.fits(claimed), "{claimed}: {checked:?}");
        }
        let few = read(&secret, 0..100).shown().check(&secret, 7);
        assert!(few.fits(100) && !few.fits(101), "nothing is left to chance where all is shown");
    }

    #[test]
    fn who_shows_nothing_by_a_mask_of_its_own_is_not() {
        let secret = Secret::random();
        let check = |mask, datagrams| Shown { mask, datagrams }.check(&secret, 7);
        for mask in [u32::MAX, 1 << 31, (1 << VALUE_BITS) - 1, 0x7fff_ffff, 2] {
            for received in [0, 1, 1000, 1_000_000] {
                let checked = check(mask, vec![]);
                assert_eq!((checked.wrong, checked.right), (0, 0));
                assert!(checked.is_chosen() && !checked.fits(received), "{checked:?}");
            }
        }
        // Read, and fewer shown than there are: all are right, and they fit the count.
        let Shown { mask, mut datagrams } = read(&secret, 0..100_000).shown();
        let narrower = mask << 2 | 3;
        datagrams.retain(|value| value.2 & narrower == 0);
        let checked = check(narrower, datagrams);
        assert!(checked.right > 500 && checked.right < LEAST, "{checked:?}");
        assert!(checked.is_chosen() && !checked.fits(100_000), "{checked:?}");
    }

    #[test]
    fn no_mask_of_whoever_reads_leaves_too_few() {
        assert_eq!(LEAST, 1856);
        let secret = Secret::random();
        let mut sieve = Sieve::default();
        for sequence in 0..300_000 {
            let before = sieve.mask();
            sieve.take((3, sequence, secret.value(7, 3, sequence)));
            // Just after a bit was added there are the fewest.
            if sieve.mask() != before {
                let mut others = read(&secret, 300_000..305_000);
                others.add(&sieve);
                for sieve in [&sieve, &others] {
                    let checked = sieve.0.check(&secret, 7);
                    assert!(!checked.is_chosen(), "{checked:?}");
                }
            }
        }
        assert!(sieve.mask() > 31);
    }

    #[test]
    fn a_sieve_with_room_never_grows() {
        let secret = Secret::random();
        let mut sieve = Sieve::with_room();
        let room = sieve.room();
        for sequence in 0..100_000 {
            sieve.take((3, sequence, secret.value(7, 3, sequence)));
        }
        assert_eq!((room > MOST, sieve.room()), (true, room));
    }

    #[test]
    fn values_that_were_not_read_are_wrong() {
        let (secret, guessed) = (Secret::random(), Secret::random());
        let shown = read(&guessed, 0..100_000).shown();
        let checked = shown.check(&secret, 7);
        assert!(checked.wrong > 1000 && checked.right < 3, "{checked:?}");
        let other_run = read(&secret, 0..100_000).shown().check(&secret, 8);
        assert!(other_run.wrong > 1000, "those of a warm-up prove nothing: {other_run:?}");
    }

    #[test]
    fn what_is_shown_twice_counts_once_and_what_was_not_asked_for_is_wrong() {
        let secret = Secret::random();
        let mut shown = read(&secret, 0..100).shown();
        shown.datagrams.extend(shown.datagrams.clone());
        let checked = shown.check(&secret, 7);
        assert_eq!((checked.right, checked.again, checked.wrong), (100, 100, 0));
        shown.datagrams = (0..MOST as u64 + 5).map(|n| (3, n, secret.value(7, 3, n))).collect();
        assert_eq!(shown.check(&secret, 7).wrong, 5);
        // All were read, and those shown that nobody asked for.
        shown.mask = 0xff;
        assert!(shown.check(&secret, 7).wrong > 4000);
        // Bits that were chosen are no mask.
        shown = read(&secret, 0..100_000).shown();
        shown.mask = 2;
        assert_eq!(shown.check(&secret, 7).right, 0);
    }

    #[test]
    fn what_is_shown_of_several_runs_is_checked_with_the_secret_of_each() {
        for received in [[3, 0], [3000, 3000], [100, 100_000], [300_000, 40_000]] {
            let secrets = [Secret::random(), Secret::random()];
            let mut all = Sieve::default();
            // The second run's flows are behind the four of the first.
            for ((secret, received), first) in secrets.iter().zip(received).zip([0, 4]) {
                all.add(&Sieve::of_flows_from(read(secret, 0..received).shown(), first));
            }
            let shown = all.shown();
            let runs = secrets.map(|secret| OfRun { secret, run: 7, flows: 4 });
            let checked = shown.check_all(&runs);
            assert_eq!((checked.wrong, checked.again), (0, 0));
            let received = received.iter().sum();
            assert!(checked.fits(received) && !checked.fits(received * 2), "{checked:?}");
            let [one, other] = runs;
            assert_eq!(shown.check_all(&[other, one]).right, 0);
            assert!(received < 4000 || shown.check_all(&[one]).wrong > 0, "a flow of no run");
        }
    }

    #[test]
    fn threads_together_show_what_one_would() {
        let secret = Secret::random();
        let mut all = read(&secret, 0..30_000);
        all.add(&read(&secret, 30_000..31_000));
        all.add(&read(&secret, 31_000..100_000));
        let sorted = |sieve: Sieve| {
            let mut shown = sieve.shown();
            shown.datagrams.sort_unstable();
            shown
        };
        assert_eq!(sorted(all), sorted(read(&secret, 0..100_000)));
    }

    #[test]
    fn every_bit_of_a_value_is_as_often_one_as_zero() {
        const COUNT: u64 = 100_000;
        for secret in [Secret::random(), Secret::random()] {
            let mut ones = [0u64; VALUE_BITS as usize];
            for sequence in 0..COUNT {
                let value = secret.value(1, 0, sequence);
                assert!(value < 1 << VALUE_BITS);
                (0..).zip(&mut ones).for_each(|(bit, ones)| *ones += u64::from(value >> bit & 1));
            }
            for ones in ones {
                // Eight standard deviations.
                assert!(ones.abs_diff(COUNT / 2) < 1265, "{secret:?}: {ones}");
            }
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret([5, 6])), "Secret");
    }
}
