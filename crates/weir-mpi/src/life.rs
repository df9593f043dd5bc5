//! The signs of life of the ranks: who gives one to whom, and who is lost for want of them.
//!
//! Each link gives one twice a second to its neighbours in the [tree] of the ranks, the one above and those right below, so
//! that no rank, rank 0 included, has more to say and to hear than the logarithm of their number.
//!
//! As soon as a neighbour is silent for a while, a process stands still or is gone, or all are to end, every rank and rank 0
//! give theirs to one another directly for the rest of the run: nothing is to go by a rank in between that may be lost itself.
//! Rank 0 alone judges the others then, and they judge rank 0. Whoever notices says so to all neighbours and to rank 0, and
//! they pass it on. A silence that turns out to be none costs nothing but that.
//!
//! A silent rank is lost after 5 s. It takes up to 7 s for rank 0, which is no neighbour of most, and for a rank that falls
//! silent together with another one.
//!
//! A link that had no core for a while, as where its virtual machine stood, has heard nobody meanwhile, whatever others said:
//! that time is no silence of theirs.

use std::time::{Duration, Instant};

use weir_load::ranks::tree;

use crate::wire::NOBODY;

/// How often a link says that it and its rank are alive.
pub const BEAT_EVERY: Duration = Duration::from_millis(500);
/// The same once all are asked to end: who is asked may be given 350 ms, and may have been asked by another rank before.
const BEAT_EVERY_AT_THE_END: Duration = Duration::from_millis(100);
/// After such a silence of a neighbour in the tree all speak to rank 0 directly.
const SUSPECT: Duration = Duration::from_secs(2);
/// A rank that has given no sign for so long is lost.
pub const SILENT_MAX: Duration = Duration::from_secs(5);
/// The same once all are asked to end: a living rank says something four times a second.
const STILL_MAX: Duration = Duration::from_secs(1);

/// A link that goes on less often had no core itself: it naps for 20 ms at most.
const PAUSED: Duration = Duration::from_millis(250);

/// What is said of a rank whose guard was killed.
const UNGUARDED: &str = "was ended: the process that mpirun started is gone";

/// A sign of life: what a rank's link says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// It gives them to rank 0 directly, and others are to do so.
    is_direct: bool,
    asked_to_end: bool,
    /// The process has gone.
    pub is_gone: bool,
    /// The process that mpirun started for it has gone.
    is_unguarded: bool,
    /// How long ago the process said that it is alive, in ms.
    still_ms: u32,
    /// How many collective calls the rank has begun that is the farthest behind, and which one that is, of those that this link
    /// speaks for: upwards in the tree its own and all below, downwards rank 0, directly its own.
    begun: u32,
    of: u32,
    /// Whose silence it noticed.
    silent: u32,
}

/// Bytes of one.
pub const BEAT_BYTES: usize = 20;

impl Beat {
    pub fn to_bytes(self) -> [u8; BEAT_BYTES] {
        let flags = [self.is_direct, self.asked_to_end, self.is_gone, self.is_unguarded];
        let mut bytes = [0; BEAT_BYTES];
        bytes[..4].copy_from_slice(&flags.map(u8::from));
        let numbers = [self.still_ms, self.begun, self.of, self.silent];
        for (bytes, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BEAT_BYTES] = bytes.try_into().ok()?;
        let flag = |at: usize| bytes[at] != 0;
        let number =
            |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 + 4 * at + byte]));
        Some(Self {
            is_direct: flag(0),
            asked_to_end: flag(1),
            is_gone: flag(2),
            is_unguarded: flag(3),
            still_ms: number(0),
            begun: number(1),
            of: number(2),
            silent: number(3),
        })
    }
}

/// What the rank is to be told.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A rank is lost, and why. It comes once: the first one is why the others go.
    Lost(usize, String),
    /// Somebody asked all to end.
    AskedToEnd,
}

/// When somebody was heard, as far as silence is counted from then on.
#[derive(Clone, Copy)]
struct Heard {
    at: Instant,
    /// Pauses of the own link since then, which are not counted.
    forgiven: Duration,
}

impl Heard {
    fn new(at: Instant) -> Self {
        Self { at, forgiven: Duration::ZERO }
    }

    /// Whoever listens had no core for a while. That is an excuse for one long time, and for short ones as long as a silence is
    /// borne: a link that never has a core for long notices a loss late, but does.
    fn forgive(&mut self, pause: Duration, now: Instant) {
        if self.forgiven < SILENT_MAX {
            self.forgiven += pause;
            self.at = (self.at + pause).min(now);
        }
    }
}

/// Another rank.
struct Peer {
    heard: Heard,
    beat: Option<Beat>,
    /// Whether it is to be given a sign.
    is_due: bool,
}

/// What a link knows of its own rank and of the others.
pub struct Life {
    rank: usize,
    peers: Vec<Peer>,
    is_direct: bool,
    silent: u32,
    is_gone: bool,
    is_unguarded: bool,
    asked_to_end: bool,
    /// When all were asked, and by when each is to give a sign.
    ending: Option<(Instant, Instant)>,
    is_lost_told: bool,
    /// Collective calls begun.
    begun: u32,
    /// When the process last said that it is alive.
    ticked: Heard,
    beat_at: Instant,
    /// When the link last went on.
    awake: Instant,
}

impl Life {
    pub fn new(rank: usize, count: usize, now: Instant) -> Self {
        let peer = |_| Peer { heard: Heard::new(now), beat: None, is_due: false };
        Self {
            rank,
            peers: (0..count).map(peer).collect(),
            is_direct: false,
            silent: NOBODY,
            is_gone: false,
            is_unguarded: false,
            asked_to_end: false,
            ending: None,
            is_lost_told: false,
            begun: 0,
            ticked: Heard::new(now),
            beat_at: now,
            awake: now,
        }
    }

    /// Those to whom signs are given, and from whom they come.
    fn partners(&self) -> Vec<usize> {
        let count = self.peers.len();
        match (self.is_direct, tree::parent(self.rank)) {
            (false, above) => above.into_iter().chain(tree::children(self.rank, count)).collect(),
            (true, None) => (1..count).collect(),
            (true, Some(_)) => vec![0],
        }
    }

    fn all_are_due(&mut self) {
        for rank in self.partners() {
            self.peers[rank].is_due = true;
        }
    }

    /// Has every rank and rank 0 speak to one another directly from now on; `silent` is who gave cause.
    fn go_direct(&mut self, silent: u32, now: Instant) {
        if self.is_direct {
            return;
        }
        // Those in the tree hear of it.
        self.all_are_due();
        let before = self.partners();
        (self.is_direct, self.silent) = (true, silent);
        match tree::parent(self.rank) {
            // What was known of rank 0 was known by the one above.
            Some(above) => {
                let above = self.peers[above].heard;
                if above.at >= self.peers[0].heard.at {
                    self.peers[0].heard = above;
                }
            }
            None => {
                for rank in (1..self.peers.len()).filter(|rank| !before.contains(rank)) {
                    let since = if rank as u32 == silent { SUSPECT } else { Duration::ZERO };
                    let at = now.checked_sub(since).unwrap_or(now);
                    if at > self.peers[rank].heard.at {
                        self.peers[rank].heard = Heard::new(at);
                    }
                }
            }
        }
        self.all_are_due();
    }

    // ---- of the own rank -----------------------------------------------------------------

    /// Its process is alive.
    pub fn tick(&mut self, now: Instant) {
        self.ticked = Heard::new(now);
    }

    /// How long ago its process last said that it is alive.
    pub fn still(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.ticked.at)
    }

    /// It begins a collective call.
    pub fn begin_collective(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// Its process has gone.
    pub fn gone(&mut self, now: Instant) {
        self.is_gone = true;
        self.go_direct(NOBODY, now);
        self.all_are_due();
    }

    /// Whether its guard has gone.
    pub fn is_unguarded(&self) -> bool {
        self.is_unguarded
    }

    /// Its guard has gone.
    pub fn unguarded(&mut self, now: Instant) -> Option<News> {
        self.is_unguarded = true;
        self.go_direct(NOBODY, now);
        self.all_are_due();
        if self.rank == 0 { self.lose(0, UNGUARDED.into()) } else { None }
    }

    /// It asks all to end; who is silent until then is lost.
    pub fn ask_to_end(&mut self, now: Instant, until: Instant) {
        self.asked_to_end = true;
        self.go_direct(NOBODY, now);
        self.ending = Some((now, until));
        self.beat_at = now;
    }

    /// Whether the run is to be over soon.
    pub fn is_over(&self) -> bool {
        self.asked_to_end || self.is_unguarded || self.is_lost_told
    }

    // ---- of others -----------------------------------------------------------------------

    /// Something came from another rank.
    pub fn heard(&mut self, from: usize, now: Instant) {
        self.peers[from].heard = Heard::new(now);
    }

    /// Whether the process of rank 0 has gone, as far as its link has said so.
    pub fn is_rank_0_gone(&self) -> bool {
        self.peers[0].beat.is_some_and(|beat| beat.is_gone)
    }

    /// A rank that has begun fewer collective calls than this one, as far as that is known: at rank 0 any other, elsewhere
    /// rank 0.
    pub fn behind(&self) -> Option<usize> {
        let said = self.partners().into_iter().filter_map(|rank| self.peers[rank].beat);
        let may_be = |of: u32| self.rank == 0 || of == 0;
        said.filter(|beat| beat.begun < self.begun && may_be(beat.of))
            .min_by_key(|beat| (beat.begun, beat.of))
            .map(|beat| beat.of as usize)
    }

    /// The signs that are to be given now, to whom `can_take` one.
    pub fn due(
        &mut self,
        now: Instant,
        mut can_take: impl FnMut(usize) -> bool,
    ) -> Vec<(usize, Beat)> {
        if now >= self.beat_at {
            let every = if self.asked_to_end { BEAT_EVERY_AT_THE_END } else { BEAT_EVERY };
            self.beat_at = now + every;
            self.all_are_due();
        }
        let mut due = vec![];
        for rank in 0..self.peers.len() {
            if self.peers[rank].is_due && can_take(rank) {
                self.peers[rank].is_due = false;
                due.push((rank, self.beat(rank, now)));
            }
        }
        due
    }

    fn beat(&self, to: usize, now: Instant) -> Beat {
        let own = (self.begun, self.rank as u32);
        let said = |rank: usize| self.peers[rank].beat.map(|beat| (beat.begun, beat.of));
        let (begun, of) = match tree::parent(self.rank) {
            // Downwards. Before anything is known of rank 0 it is not behind.
            Some(above) if !self.is_direct && to != above => {
                said(above).filter(|(_, of)| *of == 0).unwrap_or((u32::MAX, 0))
            }
            Some(_) if !self.is_direct => {
                let below = tree::children(self.rank, self.peers.len());
                below.filter_map(said).chain([own]).min().unwrap_or(own)
            }
            _ => own,
        };
        Beat {
            is_direct: self.is_direct,
            asked_to_end: self.asked_to_end,
            is_gone: self.is_gone,
            is_unguarded: self.is_unguarded,
            still_ms: u32::try_from(self.still(now).as_millis()).unwrap_or(u32::MAX),
            begun,
            of,
            silent: self.silent,
        }
    }

    /// What another rank's link says of it.
    pub fn hear(&mut self, from: usize, beat: Beat, now: Instant) -> Vec<News> {
        self.heard(from, now);
        self.peers[from].beat = Some(beat);
        if beat.is_direct {
            self.go_direct(beat.silent, now);
        }
        let mut news = vec![];
        if self.rank == 0 || from == 0 {
            if beat.is_gone {
                news.extend(self.lose(from, "was ended: its process is gone".into()));
            }
            if beat.is_unguarded {
                news.extend(self.lose(from, UNGUARDED.into()));
            }
        }
        if beat.asked_to_end && !self.asked_to_end {
            self.asked_to_end = true;
            // Rank 0 carries it on to all, and the others answer.
            self.go_direct(NOBODY, now);
            self.beat_at = now;
            news.push(News::AskedToEnd);
        }
        news
    }

    /// Notes that the link goes on, and how long it had no core: before it hears, or says, how long somebody was silent.
    pub fn wake(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(std::mem::replace(&mut self.awake, now));
        if pause >= PAUSED {
            self.forgive(pause, now);
        }
    }

    /// Looks whether those that are to give signs do, and whether the own process does.
    pub fn look(&mut self, now: Instant) -> Option<News> {
        self.wake(now);
        let partners = self.partners();
        if !self.is_direct {
            let silence = |rank: &usize| now.saturating_duration_since(self.peers[*rank].heard.at);
            let silent = partners.iter().find(|rank| silence(rank) >= SUSPECT);
            if silent.is_some() || self.still(now) >= SUSPECT {
                self.go_direct(silent.map_or(NOBODY, |rank| *rank as u32), now);
            }
            return None;
        }
        for rank in partners {
            let peer = &self.peers[rank];
            let still = peer.beat.map_or(0, |beat| beat.still_ms);
            let still = Duration::from_millis(still.into());
            let silent = now.saturating_duration_since(peer.heard.at);
            let why = match self.ending {
                Some((asked, by)) if now >= by && peer.heard.at <= asked => Some(format!(
                    "gave no sign of life within {:?} of being asked to end",
                    by - asked
                )),
                Some((_, by)) if now >= by && still >= STILL_MAX => {
                    Some("stands still: its process is stopped, or gets no CPU time".into())
                }
                _ if silent >= SILENT_MAX => Some(format!(
                    "has given no sign of life for {SILENT_MAX:?}: its host is down, or hangs, or the link to it is cut"
                )),
                _ if still >= SILENT_MAX => Some(format!(
                    "has stood still for {SILENT_MAX:?}: its process is stopped, or gets no CPU time"
                )),
                _ => None,
            };
            if let Some(why) = why {
                return self.lose(rank, why);
            }
        }
        None
    }

    /// The own link had no core for so long.
    fn forgive(&mut self, pause: Duration, now: Instant) {
        let asked = self.ending.map(|(asked, _)| asked);
        for peer in &mut self.peers {
            // Who has not answered has until another time.
            if asked.is_none_or(|asked| peer.heard.at > asked) {
                peer.heard.forgive(pause, now);
            }
        }
        self.ticked.forgive(pause, now);
        self.ending =
            self.ending.map(|(asked, by)| (asked, by.max((by + pause).min(asked + SILENT_MAX))));
    }

    fn lose(&mut self, rank: usize, why: String) -> Option<News> {
        (!std::mem::replace(&mut self.is_lost_told, true)).then_some(News::Lost(rank, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::PART_WITHIN;
    use std::collections::{BTreeMap, VecDeque};
    use weir_load::ranks::course::LOST_WITHIN;

    /// Links of ranks with a clock that is made up, in steps of the longest nap of a link.
    struct Ranks {
        began: Instant,
        now: Instant,
        all: Vec<Life>,
        /// Links that say and hear nothing, and processes that stand still.
        stopped_links: Vec<usize>,
        stopped: Vec<usize>,
        /// Those whose host has no link to the others.
        cut: Vec<usize>,
        under_way: VecDeque<(usize, usize, Beat)>,
        /// By rank, how many signs it has given.
        given: BTreeMap<usize, usize>,
        /// By rank, whom it lost, when and why.
        lost: BTreeMap<usize, (usize, Duration, String)>,
        asked: Vec<usize>,
    }

    const STEP: Duration = Duration::from_millis(20);

    impl Ranks {
        fn new(count: usize) -> Self {
            let now = Instant::now();
            Self {
                began: now,
                now,
                all: (0..count).map(|rank| Life::new(rank, count, now)).collect(),
                stopped_links: vec![],
                stopped: vec![],
                cut: vec![],
                under_way: VecDeque::new(),
                given: BTreeMap::new(),
                lost: BTreeMap::new(),
                asked: vec![],
            }
        }

        fn run(&mut self, time: Duration) {
            let until = self.now + time;
            while self.now < until {
                self.now += STEP;
                let now = self.now;
                for (from, to, beat) in std::mem::take(&mut self.under_way) {
                    // It waits for its receiver.
                    if self.stopped_links.contains(&to) {
                        self.under_way.push_back((from, to, beat));
                    } else {
                        let news = self.all[to].hear(from, beat, now);
                        self.note(to, news);
                    }
                }
                for rank in 0..self.all.len() {
                    if self.stopped_links.contains(&rank) {
                        continue;
                    }
                    let life = &mut self.all[rank];
                    if !self.stopped.contains(&rank) {
                        life.tick(now);
                    }
                    let news = life.look(now);
                    for (to, beat) in life.due(now, |_| true) {
                        let beat = Beat::of_bytes(&beat.to_bytes()).unwrap();
                        *self.given.entry(rank).or_default() += 1;
                        if self.cut.contains(&rank) == self.cut.contains(&to) {
                            self.under_way.push_back((rank, to, beat));
                        }
                    }
                    self.note(rank, news);
                }
            }
        }

        fn note(&mut self, rank: usize, news: impl IntoIterator<Item = News>) {
            let at = self.now - self.began;
            for news in news {
                match news {
                    News::Lost(lost, why) => {
                        assert!(self.lost.insert(rank, (lost, at, why)).is_none(), "it comes once");
                    }
                    News::AskedToEnd => self.asked.push(rank),
                }
            }
        }

        /// Whom rank 0 lost, and how long after a moment.
        fn lost_at_0(&self, after: Duration) -> (usize, Duration, &str) {
            let (lost, at, why) = &self.lost[&0];
            (*lost, *at - after, why)
        }
    }

    const BEFORE: Duration = Duration::from_millis(3_210);
    /// A rank is lost after the time for it, and what may be between a sign of life and that moment.
    const NOTICED: Duration = Duration::from_millis(5_200);
    /// The same where it is no neighbour, or falls silent together with another one.
    const NOTICED_LATE: Duration = Duration::from_millis(7_300);

    #[test]
    fn ranks_that_live_have_few_signs_to_give_and_nobody_is_lost() {
        for count in [1, 2, 3, 16, 64] {
            let mut ranks = Ranks::new(count);
            ranks.run(Duration::from_secs(20));
            assert!(ranks.lost.is_empty() && ranks.all.iter().all(|life| !life.is_direct));
            let most = ranks.given.values().max().copied().unwrap_or(0);
            // Two a second to each neighbour; rank 0 has one for each bit of the last number.
            let neighbours = count.next_power_of_two().ilog2() as usize;
            assert!(most <= 41 * neighbours, "{count}: {most}");
        }
    }

    #[test]
    fn whoever_is_silent_is_named_in_time_wherever_it_is_in_the_tree() {
        for count in [2, 3, 4, 9, 17] {
            for victim in 1..count {
                let mut ranks = Ranks::new(count);
                ranks.run(BEFORE);
                ranks.stopped_links.push(victim);
                ranks.run(Duration::from_secs(9));
                let (lost, after, why) = ranks.lost_at_0(BEFORE);
                assert!(lost == victim && after <= NOTICED, "{victim} of {count}: {after:?}");
                assert!(why.starts_with("has given no sign of life for 5s"), "{why}");
                assert_eq!(
                    ranks.lost.len(),
                    1,
                    "{victim} of {count}: the others go on until they are told"
                );
            }
        }
    }

    #[test]
    fn whoever_stands_still_is_named_in_time_wherever_it_is_in_the_tree() {
        for count in [2, 4, 17] {
            for victim in 0..count {
                let mut ranks = Ranks::new(count);
                ranks.run(BEFORE);
                ranks.stopped.push(victim);
                ranks.run(Duration::from_secs(9));
                let by = if victim == 0 { count - 1 } else { 0 };
                let (lost, at, why) = &ranks.lost[&by];
                assert!(*lost == victim && why.starts_with("has stood still for 5s"), "{why}");
                // It is said with a sign of life.
                assert!(*at - BEFORE <= NOTICED + BEAT_EVERY, "{victim} of {count}: {at:?}");
            }
        }
    }

    #[test]
    fn hosts_that_are_cut_off_lose_rank_0_and_are_lost_to_it() {
        for (count, cut) in [(4, vec![1]), (4, vec![3]), (8, vec![1, 3]), (33, vec![1, 5, 21])] {
            let mut ranks = Ranks::new(count);
            ranks.run(BEFORE);
            ranks.cut = cut.clone();
            ranks.run(Duration::from_secs(9));
            let (lost, after, _) = ranks.lost_at_0(BEFORE);
            assert!(cut.contains(&lost) && after <= NOTICED, "{cut:?}: {lost} after {after:?}");
            for rank in cut {
                let (lost, at, _) = &ranks.lost[&rank];
                assert!(*lost == 0 && *at - BEFORE <= NOTICED_LATE, "{rank}: {at:?}");
            }
        }
    }

    /// Whoever is lost, rank 0 has noticed it by the time that the tests above hold it to, waits for what the others did, and its
    /// process ends.
    #[test]
    fn a_run_that_loses_a_rank_is_over_within_10_s() {
        let over = NOTICED_LATE + LOST_WITHIN + PART_WITHIN;
        assert!(over <= Duration::from_secs(10), "{over:?}");
    }

    #[test]
    fn when_rank_0_is_silent_all_others_lose_it() {
        let mut ranks = Ranks::new(33);
        ranks.run(BEFORE);
        ranks.stopped_links.push(0);
        ranks.run(Duration::from_secs(9));
        for rank in 1..33 {
            let (lost, at, _) = &ranks.lost[&rank];
            assert!(*lost == 0 && *at - BEFORE <= NOTICED_LATE, "{rank}: {at:?}");
        }
    }

    #[test]
    fn a_process_that_has_gone_and_a_wish_to_end_are_told_at_once() {
        for rank in 1..33 {
            let at_once = Duration::from_millis(100);
            let mut ranks = Ranks::new(33);
            ranks.run(BEFORE);
            let now = ranks.now;
            ranks.all[rank].gone(now);
            ranks.run(at_once);
            let (lost, _, why) = ranks.lost_at_0(BEFORE);
            assert!(lost == rank && why.contains("its process is gone"), "{rank}: {why}");
            // When rank 0 has reported it, it goes, too.
            assert!(!ranks.all[rank].is_rank_0_gone() && ranks.all[0].is_over());
            let now = ranks.now;
            ranks.all[0].gone(now);
            ranks.run(at_once);
            assert!(ranks.all.iter().skip(1).all(|life| life.is_rank_0_gone() && life.is_over()));

            let mut ranks = Ranks::new(33);
            ranks.run(BEFORE);
            let now = ranks.now;
            assert_eq!(ranks.all[rank].unguarded(now), None);
            assert!(ranks.all[rank].is_unguarded());
            ranks.run(at_once);
            assert_eq!(ranks.lost_at_0(BEFORE).0, rank);

            let mut ranks = Ranks::new(33);
            ranks.run(BEFORE);
            let now = ranks.now;
            ranks.all[rank].ask_to_end(now, now + Duration::from_secs(5));
            ranks.run(at_once);
            ranks.asked.sort_unstable();
            let others: Vec<_> = (0..33).filter(|other| *other != rank).collect();
            assert_eq!(ranks.asked, others);
        }
    }

    #[test]
    fn who_gives_no_sign_when_asked_to_end_is_named_by_then() {
        let mut ranks = Ranks::new(9);
        ranks.run(BEFORE);
        ranks.stopped_links.push(3);
        let now = ranks.now;
        ranks.all[0].ask_to_end(now, now + Duration::from_millis(350));
        ranks.run(Duration::from_millis(400));
        let (lost, _, why) = ranks.lost_at_0(BEFORE);
        assert!(lost == 3 && why.contains("within 350ms of being asked to end"), "{lost} {why}");
    }

    #[test]
    fn who_asked_all_to_end_just_before_another_did_lives_for_both() {
        // A sign of every half a second would come too late from here on.
        let before = Duration::from_millis(3_540);
        for first in 1..9 {
            let mut ranks = Ranks::new(9);
            ranks.run(before);
            let now = ranks.now;
            ranks.all[first].ask_to_end(now, now + Duration::from_millis(350));
            ranks.run(2 * STEP);
            let now = ranks.now;
            ranks.all[0].ask_to_end(now, now + Duration::from_millis(350));
            ranks.run(Duration::from_millis(400));
            assert!(ranks.lost.is_empty(), "{first}: {:?}", ranks.lost);
        }
    }

    #[test]
    fn a_short_silence_costs_nothing_but_the_tree() {
        let mut ranks = Ranks::new(9);
        ranks.run(BEFORE);
        ranks.stopped_links.push(3);
        ranks.run(SUSPECT + BEAT_EVERY);
        ranks.stopped_links.clear();
        ranks.run(Duration::from_secs(20));
        assert!(ranks.lost.is_empty() && ranks.all.iter().all(|life| life.is_direct));
    }

    #[test]
    fn where_nobody_has_a_core_for_a_while_nobody_is_silent() {
        for pause in [300, 4_900, 6_000, 60_000].map(Duration::from_millis) {
            for count in [2, 9] {
                let mut ranks = Ranks::new(count);
                ranks.run(BEFORE);
                ranks.now += pause;
                ranks.run(Duration::from_secs(20));
                assert!(ranks.lost.is_empty(), "{pause:?}: {:?}", ranks.lost);
                // Whoever is lost after that is noticed as soon as ever.
                let before = ranks.now - ranks.began;
                ranks.stopped_links.push(1);
                ranks.run(Duration::from_secs(9));
                let (lost, after, _) = ranks.lost_at_0(before);
                assert!(lost == 1 && after <= NOTICED, "{pause:?}: {lost} after {after:?}");
            }
        }
    }

    #[test]
    fn a_link_that_had_no_core_does_not_say_that_its_process_stood_still() {
        let now = Instant::now();
        let mut life = Life::new(1, 2, now);
        let later = now + Duration::from_secs(6);
        life.wake(later);
        let said = life.due(later, |_| true);
        assert!(matches!(said[..], [(0, beat)] if beat.still_ms == 0), "{said:?}");
        // Whoever is heard after a pause has its own excuse for the next one.
        life.heard(0, later);
        life.tick(later);
        life.is_direct = true;
        assert_eq!(life.look(later + Duration::from_secs(6)), None);
    }

    #[test]
    fn a_link_that_never_has_a_core_for_long_notices_a_loss() {
        let mut ranks = Ranks::new(2);
        ranks.run(BEFORE);
        ranks.stopped_links.push(1);
        let mut looks = 0;
        while ranks.lost.is_empty() && looks < 100 {
            ranks.now += PAUSED;
            ranks.run(STEP);
            looks += 1;
        }
        let (lost, after, _) = ranks.lost_at_0(BEFORE);
        assert!(lost == 1 && after <= 2 * SILENT_MAX + 2 * PAUSED, "{lost} after {after:?}");
    }

    #[test]
    fn an_answer_to_the_wish_to_end_has_as_much_more_time_as_the_own_link_had_no_core() {
        let mut ranks = Ranks::new(3);
        ranks.run(BEFORE);
        let now = ranks.now;
        ranks.all[0].ask_to_end(now, now + Duration::from_millis(350));
        ranks.now += Duration::from_millis(400);
        ranks.run(Duration::from_secs(1));
        assert!(ranks.lost.is_empty(), "{:?}", ranks.lost);
    }

    #[test]
    fn who_is_behind_is_known_at_rank_0_and_rank_0_everywhere() {
        for count in [2, 4, 33] {
            for behind in 0..count {
                let mut ranks = Ranks::new(count);
                for (rank, life) in ranks.all.iter_mut().enumerate() {
                    (0..2 - usize::from(rank == behind)).for_each(|_| life.begin_collective());
                }
                assert_eq!(ranks.all[count - 1].behind(), None, "nothing was said");
                // A sign for each step of the tree.
                ranks.run(8 * BEAT_EVERY);
                for (rank, life) in ranks.all.iter().enumerate() {
                    let known = rank != behind && (rank == 0 || behind == 0);
                    assert_eq!(
                        life.behind(),
                        known.then_some(behind),
                        "{rank}: {behind} of {count}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_no_link_says_is_no_sign() {
        assert_eq!(Beat::of_bytes(&[0; BEAT_BYTES - 1]), None);
    }
}
