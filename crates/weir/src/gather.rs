//! Waiting in groups: one wake-up for many messages.
//!
//! A thread that sleeps until a message comes, a datagram or something on one of its connections, is woken for each of
//! them while they come slowly enough for it to fall asleep in between. With `gather` it sleeps on although something
//! has come, for so long that several are there when it wakes: the messages wait a little, and the wake-up is shared.
//! It pays where wake-ups are what a message costs most, and costs up to the time that was asked for of every message's
//! latency.
//!
//! [`Gather`] is what is asked for. When to gather, and how long, is decided by `Gathering`, which reads no clock.

use crate::{
    options::Limit,
    pause::{self, FINE_TIMERS},
};
use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What a wait may be asked for: how long messages may gather, and how many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// The longest that a message waits for others; zero for no gathering.
    pub at_most: Duration,
    /// So many are enough.
    pub enough: u32,
}

/// Microseconds that may be asked for.
const TIMES_US: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// Messages that may be asked for: one needs no others.
const NUMBERS: std::ops::RangeInclusive<u32> = 2..=65_536;

impl Gather {
    /// Every message is received as soon as possible.
    pub const NONE: Self = Self { at_most: Duration::ZERO, enough: 0 };

    /// The values that the option takes.
    pub const LIMITS: GatherLimits = GatherLimits;

    /// Whether messages are to gather at all.
    pub fn is_none(self) -> bool {
        self.at_most.is_zero()
    }

    /// As one word: the microseconds, of which there are fewer than 2^32 ([`LIMITS`](Self::LIMITS)), above the number.
    pub(crate) fn packed(self) -> u64 {
        let us = u32::try_from(self.at_most.as_micros()).unwrap_or(u32::MAX);
        u64::from(us) << 32 | u64::from(self.enough)
    }

    pub(crate) fn unpacked(word: u64) -> Self {
        Self { at_most: Duration::from_micros(word >> 32), enough: word as u32 }
    }
}

/// What waits are asked for now: it may be changed while the server runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    word: Arc<AtomicU64>,
    after_polling: bool,
}

impl Asked {
    /// What is kept in this word ([`Gather::packed`]).
    pub fn in_word(word: Arc<AtomicU64>) -> Self {
        Self { word, after_polling: false }
    }

    /// Of waits each of which comes after a look that found nothing: so nothing waits when they begin.
    pub fn after_polling(self) -> Self {
        Self { after_polling: true, ..self }
    }

    /// Whether anything is to gather.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.now().is_none()
    }

    fn now(&self) -> Gather {
        Gather::unpacked(self.word.load(Relaxed))
    }

    /// What decides how long waits gather. What is known of that is told to `state`, with `how`: what the wait is.
    pub fn begin(self, how: &str, state: impl FnOnce(&str, String)) -> Gathering {
        if !self.now().is_none() {
            state("gathers-by", format!("{how}; {}", pause::end_in_time()));
        }
        Gathering::new(self, Instant::now())
    }
}

impl fmt::Display for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_none() {
            true => f.write_str("none"),
            false => write!(f, "{}us,{}", self.at_most.as_micros(), self.enough),
        }
    }
}

impl FromStr for Gather {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let (time, enough) = text.split_once(',').ok_or(())?;
        let (number, us) = match time.strip_suffix("ms") {
            Some(number) => (number, 1000),
            None => (time.strip_suffix("us").unwrap_or(time), 1),
        };
        let number: u64 = number.parse().map_err(drop)?;
        let at_most = Duration::from_micros(number.checked_mul(us).ok_or(())?);
        // No time and a number is neither one nor the other.
        let enough = enough.parse().map_err(drop)?;
        if at_most.is_zero() { Err(()) } else { Ok(Self { at_most, enough }) }
    }
}

/// What the option `gather` takes.
pub struct GatherLimits;

impl Limit<Gather> for GatherLimits {
    fn allows(&self, value: &Gather) -> bool {
        let within = u64::try_from(value.at_most.as_micros())
            .is_ok_and(|us| TIMES_US.contains(&us) && NUMBERS.contains(&value.enough));
        value.is_none() || (FINE_TIMERS && within)
    }

    fn text(&self) -> String {
        if !FINE_TIMERS {
            return "none, since waits with a time-out end too late on this system: at the next tick of its clock, \
                    which is milliseconds away"
                .into();
        }
        let (times, numbers) = (TIMES_US, NUMBERS);
        format!(
            "none, or the longest time and how many are enough, as 200us,64 ({}-{} us, {}-{})",
            times.start(),
            times.end(),
            numbers.start(),
            numbers.end(),
        )
    }
}

/// Decides how long the next wait gathers, from what came before it.
///
/// Messages are expected to come as they did since the wait before. From that follows in what time enough of them
/// are there, and the group is given that time, at most what was asked for, counted from the last dequeue: whatever
/// came since then waits already. So a thread that is not done with one group before the next is there does not sleep.
/// Where fewer than two are expected in the time, there is nothing to share, and the wait ends with the next message;
/// so it does after a wait that brought nothing. So silence costs no wake-ups, and a lone message no time.
///
/// A thread that polls first gathers once it goes to sleep: it has just looked and found nothing, so its group has all of
/// the time.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    asked: Asked,
    /// What was asked for when that was looked at last.
    by: Gather,
    /// When the wait before began.
    waited: Instant,
    /// When something was last dequeued.
    dequeued: Instant,
    /// Messages that came since the wait before.
    came: u64,
    /// The last dequeue may have left some behind, which wait already.
    left: bool,
}

/// With fewer in a group the wake-up is not shared.
const WORTH_SHARING: f64 = 2.0;

impl Gathering {
    pub fn new(asked: Asked, now: Instant) -> Self {
        let by = asked.now();
        Self { asked, by, waited: now, dequeued: now, came: 0, left: false }
    }

    /// So many messages are enough.
    pub fn enough(&self) -> u32 {
        self.by.enough
    }

    /// Whether anything is to gather, as it is asked for now: to be asked before each wait. What was seen of arrivals
    /// before they were to gather counts for nothing.
    #[inline]
    pub fn is_on(&mut self) -> bool {
        let asked = self.asked.now();
        if asked != self.by {
            *self = Self::new(self.asked.clone(), Instant::now());
        }
        !asked.is_none()
    }

    /// Whether it wants to know of dequeues: it may be costly to say what they left.
    #[inline]
    pub fn heeds_dequeues(&self) -> bool {
        !self.by.is_none()
    }

    /// Takes note of what a dequeue brought, and whether it may have left something behind: it took as much as it may,
    /// say. `now` is asked for where it brought something.
    #[inline]
    pub fn dequeued(&mut self, messages: usize, left: bool, now: impl FnOnce() -> Instant) {
        if self.by.is_none() {
            return;
        }
        self.left = left;
        if messages > 0 {
            self.came += messages as u64;
            self.dequeued = now();
        }
    }

    /// Whether the last dequeue may have left something behind. Then nothing is to gather before the next one: else a
    /// dequeue that takes less than a group would fall behind, and never know.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// A wait begins: what it is to gather, as it is asked for now.
    pub fn now(&mut self) -> Gather {
        let at_most = match self.is_on() {
            true => self.wait(Instant::now()),
            false => Duration::ZERO,
        };
        Gather { enough: self.enough(), at_most }
    }

    /// A wait begins: how long it is to gather. Zero: until the next message.
    pub fn wait(&mut self, now: Instant) -> Duration {
        if self.left {
            return Duration::ZERO;
        }
        let came = std::mem::take(&mut self.came);
        let since = now.saturating_duration_since(std::mem::replace(&mut self.waited, now));
        if came == 0 || since.is_zero() {
            return Duration::ZERO;
        }
        let per_s = came as f64 / since.as_secs_f64();
        let enough_in = f64::from(self.by.enough) / per_s;
        let time = self.by.at_most.as_secs_f64().min(enough_in);
        if per_s * time < WORTH_SHARING {
            return Duration::ZERO;
        }
        let gathered = match self.asked.after_polling {
            true => Duration::ZERO,
            false => now.saturating_duration_since(self.dequeued),
        };
        let left = Duration::from_secs_f64(time).saturating_sub(gathered);
        if !left.is_zero() {
            pause::end_in_time_once();
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASKED: Gather = Gather { at_most: Duration::from_micros(200), enough: 64 };

    fn asked() -> Asked {
        Asked::in_word(Arc::new(AtomicU64::new(ASKED.packed())))
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["none", "200us,64", "1us,2", "1000000us,65536"] {
            assert_eq!(text.parse::<Gather>().unwrap().to_string(), text);
        }
        assert_eq!("200,64".parse(), Ok(ASKED));
        assert_eq!("1ms,64".parse(), Ok(Gather { at_most: us(1000), ..ASKED }));
        for wrong in ["", "200us", "200us,", ",64", "0us,64", "0,0", "2s,64", "200us,64,1", "-1,64"]
        {
            assert_eq!(wrong.parse::<Gather>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn its_limits_are_told() {
        let allows = |text: &str| Gather::LIMITS.allows(&text.parse().unwrap());
        assert!(allows("none"));
        assert_eq!(allows("200us,64"), FINE_TIMERS);
        for wrong in ["1000001us,64", "200us,1", "200us,0", "200us,65537"] {
            assert!(!allows(wrong), "{wrong}");
        }
        let text = Limit::<Gather>::text(&Gather::LIMITS);
        assert!(text.contains(if FINE_TIMERS { "200us,64" } else { "tick" }), "{text}");
    }

    /// Waits one after the other, each with what came since the one before and how long that took, all of it
    /// dequeued at the end.
    fn waits(course: &[(usize, u64)]) -> Vec<Duration> {
        let mut now = Instant::now();
        let mut gathering = Gathering::new(asked(), now);
        let wait = |&(came, took): &(usize, u64)| {
            now += us(took);
            gathering.dequeued(came, false, || now);
            gathering.wait(now)
        };
        course.iter().map(wait).collect()
    }

    #[test]
    fn as_long_as_asked_or_until_enough_are_expected() {
        // 50,000, 320,000 and 640,000 a second.
        assert_eq!(waits(&[(10, 200), (64, 200), (128, 200)]), [us(200), us(200), us(100)]);
    }

    #[test]
    fn what_is_asked_for_may_change_and_what_came_before_counts_for_nothing() {
        let word = Arc::new(AtomicU64::new(Gather::NONE.packed()));
        let mut gathering = Gathering::new(Asked::in_word(Arc::clone(&word)), Instant::now());
        gathering.dequeued(1_000_000, true, || unreachable!("nobody wants to know"));
        assert!(!gathering.is_on());
        word.store(ASKED.packed(), Relaxed);
        assert!(gathering.is_on() && !gathering.has_left());
        assert_eq!(gathering.enough(), 64);
        let start = gathering.waited;
        assert_eq!(gathering.wait(start + us(200)), us(0), "it has seen nothing");
        gathering.dequeued(10, false, || start + us(400));
        assert_eq!(gathering.wait(start + us(400)), us(200));
        word.store(Gather { at_most: us(100), enough: 8 }.packed(), Relaxed);
        assert!(gathering.is_on());
        assert_eq!(gathering.enough(), 8);
        word.store(Gather::NONE.packed(), Relaxed);
        assert!(!gathering.is_on());
    }

    #[test]
    fn a_lone_datagram_silence_and_the_first_after_it_wait_for_nothing() {
        assert_eq!(waits(&[(1, 1000), (0, 200), (0, 1_000_000), (1, 500_000)]), [us(0); 4]);
    }

    #[test]
    fn what_came_while_a_group_was_handled_has_waited() {
        let start = Instant::now();
        let mut gathering = Gathering::new(asked(), start);
        gathering.dequeued(10, false, || start + us(200));
        assert_eq!(gathering.wait(start + us(230)), us(170));
        gathering.dequeued(300, false, || start + us(400));
        assert_eq!(
            gathering.wait(start + us(700)),
            us(0),
            "a thread that cannot keep up does not sleep"
        );
    }

    #[test]
    fn who_polled_in_vain_lets_gather_for_all_of_the_time() {
        let start = Instant::now();
        let mut gathering = Gathering::new(asked().after_polling(), start);
        gathering.dequeued(10, false, || start + us(200));
        assert_eq!(gathering.wait(start + us(1000)), us(200));
    }

    /// What is left behind belongs to the same group, which is only as large as the dequeues make it.
    #[test]
    fn where_something_was_left_behind_nothing_gathers_before_it_was_taken() {
        let start = Instant::now();
        let mut gathering = Gathering::new(asked(), start);
        gathering.dequeued(8, true, || start + us(100));
        assert!(gathering.has_left());
        assert_eq!(gathering.wait(start + us(100)), us(0));
        gathering.dequeued(8, false, || start + us(100));
        // All sixteen came in that time, so 32 are expected in the longest time.
        assert_eq!((gathering.has_left(), gathering.wait(start + us(100))), (false, us(200)));
    }

    proptest! {
        #[test]
        fn never_longer_than_asked_and_never_where_nothing_can_be_shared(
            course in proptest::collection::vec((0usize..2000, 0u64..10_000), 1..50),
        ) {
            for (&(came, took), wait) in course.iter().zip(waits(&course)) {
                prop_assert!(wait <= ASKED.at_most);
                if wait > Duration::ZERO {
                    // At the rate seen the group that this wait ends has two at least, and no more than enough; to
                    // the nanosecond.
                    let per_s = came as f64 / us(took).as_secs_f64();
                    let (expected, of_a_ns) = (per_s * wait.as_secs_f64(), per_s * 1e-9);
                    prop_assert!(expected >= WORTH_SHARING - of_a_ns, "{}", expected);
                    prop_assert!(expected <= f64::from(ASKED.enough) + of_a_ns, "{}", expected);
                }
            }
        }
    }
}
