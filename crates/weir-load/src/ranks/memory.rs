//! Ranks that are threads of one process, for tests of what is built on them.

use std::{
    array,
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{ASKED_TO_END, LATE, Lost, MESSAGE_BYTES_MAX, OUT_OF_STEP, Ranks};

/// The most messages from one rank to another that are not received yet.
const UNREAD_MAX: usize = 4096;

/// What a rank wants to have called when something has come.
type OnNews = Box<dyn Fn() + Send + Sync>;

/// What messages are for; each kind has its own order.
#[derive(Clone, Copy)]
enum Kind {
    /// Between two ranks.
    Message,
    /// Towards rank 0 in a collective call.
    Inwards,
    /// From the one that speaks to all in a collective call.
    Outwards,
    /// The same in a barrier, which ends when the run does.
    BarrierInwards,
    /// See `BarrierInwards`.
    BarrierOutwards,
}

impl Kind {
    fn ends_with_the_run(self) -> bool {
        matches!(self, Self::Outwards | Self::BarrierInwards | Self::BarrierOutwards)
    }
}

const KINDS: usize = 5;

#[derive(Default)]
struct Mailbox([VecDeque<Vec<u8>>; KINDS]);

struct State {
    /// By receiver, then by sender.
    mailboxes: Vec<Vec<Mailbox>>,
    /// Why a rank is not there any more.
    lost: Vec<Option<String>>,
    /// Those, the first one first.
    gone: Vec<usize>,
    asked_to_end: bool,
}

struct Shared {
    hosts: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
    /// By rank: what it wants to have called.
    on_news: Mutex<Vec<Option<OnNews>>>,
}

/// A rank that is a thread. Dropped, it is lost to the others.
pub struct InMemory {
    rank: usize,
    /// A collective call has failed.
    is_out_of_step: AtomicBool,
    said: AtomicUsize,
    heard: AtomicUsize,
    shared: Arc<Shared>,
}

/// So many ranks as there are names of hosts.
pub fn ranks<S: Into<String>>(hosts: impl IntoIterator<Item = S>) -> Vec<InMemory> {
    let hosts: Vec<String> = hosts.into_iter().map(Into::into).collect();
    let count = hosts.len();
    let mailboxes = || (0..count).map(|_| Mailbox(array::from_fn(|_| VecDeque::new()))).collect();
    let state = State {
        mailboxes: (0..count).map(|_| mailboxes()).collect(),
        lost: vec![None; count],
        gone: Vec::new(),
        asked_to_end: false,
    };
    let on_news = Mutex::new((0..count).map(|_| None).collect());
    let changed = Condvar::new();
    let shared = Arc::new(Shared { hosts, state: Mutex::new(state), changed, on_news });
    let one = |rank| InMemory {
        rank,
        is_out_of_step: AtomicBool::new(false),
        said: AtomicUsize::new(0),
        heard: AtomicUsize::new(0),
        shared: Arc::clone(&shared),
    };
    (0..count).map(one).collect()
}

impl InMemory {
    /// Makes a rank look lost to the others from now on, for this reason.
    pub fn lose(&self, rank: usize, why: impl Into<String>) {
        let mut state = self.state();
        if state.lost[rank].is_none() {
            state.lost[rank] = Some(why.into());
            state.gone.push(rank);
        }
        drop(state);
        self.tell_all();
    }

    /// How many messages it said and heard since this was asked last. What a gather brings counts as one of each rank; the other
    /// collective calls, which cost no rank more than the logarithm of the ranks, as none.
    pub fn take_counts(&self) -> (usize, usize) {
        (self.said.swap(0, Relaxed), self.heard.swap(0, Relaxed))
    }

    /// Wakes all who wait for something, and calls those who do not.
    fn tell_all(&self) {
        self.shared.changed.notify_all();
        self.on_news_of_all().iter().flatten().for_each(|call| call());
    }

    fn on_news_of_all(&self) -> MutexGuard<'_, Vec<Option<OnNews>>> {
        self.shared.on_news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing(&self, rank: usize, why: impl Into<String>) -> Lost {
        Lost { rank: Some(rank), host: self.shared.hosts[rank].clone(), why: why.into() }
    }

    fn put(&self, to: usize, kind: Kind, bytes: &[u8]) -> Result<(), Lost> {
        self.put_to([to], kind, bytes)
    }

    /// All of them get it before anybody can say more.
    fn put_to(
        &self,
        ranks: impl IntoIterator<Item = usize>,
        kind: Kind,
        bytes: &[u8],
    ) -> Result<(), Lost> {
        assert!(bytes.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes", bytes.len());
        let mut state = self.state();
        let put = ranks.into_iter().try_for_each(|to| {
            if let Some(why) = state.lost[to].clone() {
                return Err(self.missing(to, why));
            }
            let mailbox = &mut state.mailboxes[to][self.rank].0[kind as usize];
            if mailbox.len() >= UNREAD_MAX {
                return Err(self.missing(to, format!("has not read {UNREAD_MAX} messages")));
            }
            mailbox.push_back(bytes.to_vec());
            Ok(())
        });
        drop(state);
        // Those before one that is lost have theirs.
        self.tell_all();
        put
    }

    fn take(&self, from: usize, kind: Kind, until: Instant) -> Result<Vec<u8>, Lost> {
        let mut state = self.state();
        loop {
            if let Some(bytes) = state.mailboxes[self.rank][from].0[kind as usize].pop_front() {
                return Ok(bytes);
            }
            if let Some(why) = state.lost[from].clone() {
                return Err(self.missing(from, why));
            }
            if state.asked_to_end && kind.ends_with_the_run() {
                return Err(Lost { rank: None, host: String::new(), why: ASKED_TO_END.into() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.missing(from, LATE));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes a collective call; none can be made once one has failed.
    fn in_step<R>(&self, call: impl FnOnce() -> Result<R, Lost>) -> Result<R, Lost> {
        if self.is_out_of_step.load(Relaxed) {
            return Err(Lost { rank: None, host: String::new(), why: OUT_OF_STEP.into() });
        }
        call().inspect_err(|_| self.is_out_of_step.store(true, Relaxed))
    }

    /// Gives to rank 0 what each has.
    fn of_each(&self, mine: &[u8], until: Instant) -> Result<Option<Vec<Vec<u8>>>, Lost> {
        self.in_step(|| {
            if self.rank != 0 {
                return self.put(0, Kind::Inwards, mine).map(|()| None);
            }
            let of = |rank| match rank {
                0 => Ok(mine.to_vec()),
                _ => self.take(rank, Kind::Inwards, until),
            };
            (0..self.count()).map(of).collect::<Result<_, _>>().map(Some)
        })
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.shared.hosts.len()).filter(move |rank| *rank != own)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.lose(self.rank, "has ended");
    }
}

impl Ranks for InMemory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.shared.hosts.len()
    }

    fn host(&self, rank: usize) -> &str {
        &self.shared.hosts[rank]
    }

    fn broadcast(&self, from: usize, bytes: Vec<u8>, until: Instant) -> Result<Vec<u8>, Lost> {
        self.in_step(|| {
            if self.rank != from {
                return self.take(from, Kind::Outwards, until);
            }
            self.put_to(self.others(), Kind::Outwards, &bytes)?;
            Ok(bytes)
        })
    }

    fn gather(&self, mine: &[u8], until: Instant) -> Result<Option<Vec<Vec<u8>>>, Lost> {
        let all = self.of_each(mine, until)?;
        self.heard.fetch_add(all.as_ref().map_or(0, |all| all.len() - 1), Relaxed);
        Ok(all)
    }

    fn sum(&self, counts: &mut [u64], until: Instant) -> Result<(), Lost> {
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        let Some(all) = self.of_each(&bytes, until)? else { return Ok(()) };
        for other in &all[1..] {
            assert_eq!(other.len(), bytes.len(), "every rank passes equally many counts");
            for (count, other) in counts.iter_mut().zip(other.as_chunks().0) {
                *count = count.saturating_add(u64::from_le_bytes(*other));
            }
        }
        Ok(())
    }

    fn barrier(&self, until: Instant) -> Result<(), Lost> {
        self.in_step(|| {
            if self.rank != 0 {
                self.put(0, Kind::BarrierInwards, &[])?;
                return self.take(0, Kind::BarrierOutwards, until).map(drop);
            }
            self.others()
                .try_for_each(|of| self.take(of, Kind::BarrierInwards, until).map(drop))?;
            self.put_to(self.others(), Kind::BarrierOutwards, &[])
        })
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Lost> {
        self.put(to, Kind::Message, bytes).inspect(|()| {
            self.said.fetch_add(1, Relaxed);
        })
    }

    fn receive(&self, from: usize, until: Instant) -> Result<Vec<u8>, Lost> {
        self.take(from, Kind::Message, until).inspect(|_| {
            self.heard.fetch_add(1, Relaxed);
        })
    }

    fn lost(&self) -> Option<Lost> {
        let state = self.state();
        let is_watched = |rank: &&usize| **rank != self.rank && (self.rank == 0 || **rank == 0);
        let first = *state.gone.iter().find(is_watched)?;
        state.lost[first].clone().map(|why| self.missing(first, why))
    }

    fn on_news(&self, call: Box<dyn Fn() + Send + Sync>) {
        self.on_news_of_all()[self.rank] = Some(call);
    }

    fn ask_to_end(&self, _within: Duration) {
        self.state().asked_to_end = true;
        self.tell_all();
    }

    fn is_asked_to_end(&self) -> bool {
        self.state().asked_to_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn every_rank_gets_what_was_meant_for_it() {
        thread::scope(|scope| {
            for rank in ranks(["a", "b", "c"]) {
                scope.spawn(move || {
                    let own = rank.rank();
                    if own == 2 {
                        rank.send(0, b"beside").unwrap();
                    }
                    assert_eq!(rank.broadcast(1, vec![own as u8], soon()).unwrap(), [1]);
                    let all = rank.gather(&[own as u8; 2], soon()).unwrap();
                    assert_eq!(all, (own == 0).then(|| vec![vec![0; 2], vec![1; 2], vec![2; 2]]));
                    let mut counts = [own as u64, 10];
                    rank.sum(&mut counts, soon()).unwrap();
                    if own == 0 {
                        assert_eq!(counts, [3, 30]);
                        assert_eq!(rank.receive(2, soon()).unwrap(), b"beside");
                    }
                    rank.barrier(soon()).unwrap();
                });
            }
        });
    }

    #[test]
    fn who_does_not_come_is_named() {
        let mut all = ranks(["a", "b", "c"]);
        let (two, one) = (all.pop().unwrap(), all.pop().unwrap());
        let zero = &all[0];
        assert_eq!(zero.lost(), None);
        let late = zero.barrier(Instant::now()).unwrap_err();
        assert_eq!(late.to_string(), "rank 1 on b did not come in time");
        one.ask_to_end(Duration::ZERO);
        assert!(zero.is_asked_to_end());
        assert_eq!(one.barrier(soon()).unwrap_err().to_string(), ASKED_TO_END);
        assert_eq!(zero.barrier(soon()).unwrap_err().to_string(), OUT_OF_STEP);
        let mut others = ranks(["a", "b"]);
        others[0].ask_to_end(Duration::ZERO);
        let waiting = others.pop().unwrap().broadcast(0, Vec::new(), soon()).unwrap_err();
        assert_eq!(waiting.to_string(), ASKED_TO_END);
        drop(two);
        assert_eq!(zero.lost().unwrap().to_string(), "rank 2 on c has ended");
        assert_eq!(one.lost(), None, "others watch rank 0 only");
        assert_eq!(zero.receive(2, soon()).unwrap_err().rank, Some(2));
        assert_eq!(zero.send(2, b"").unwrap_err().rank, Some(2));
        zero.lose(1, "has lost its link");
        assert_eq!(zero.receive(1, soon()).unwrap_err().why, "has lost its link");
    }
}
