//! The course of a run that several ranks make together: measured clocks, starts at one moment, an end that all hear of, and
//! what each rank did, at rank 0.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use weir::counters::os::Sampler;

use super::{
    ASKED_TO_END, LATE, Lost, MESSAGE_BYTES_MAX, Ranks,
    clocks::{Offset, offsets},
    tree,
};
use crate::{
    clock::now_ns,
    stop::{Stop, StopReason},
};

/// How long ahead of a start it is told, so that all have heard of it: so many times what it took to tell all something and to
/// hear that they had it, and no less and no more than these.
const LEAD_TIMES: u32 = 10;
const LEAD: (Duration, Duration) = (Duration::from_millis(30), Duration::from_secs(2));
/// How long a rank may take to hear what rank 0 tells at once.
const HEARD_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to add up what all did, and to tell it.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// The same once it is to end before its time, because something is wrong,
const ENDED_WITHIN: Duration = if cfg!(test) { UNHURRIED } else { Duration::from_secs(5) };
/// or since one of them is lost, which may have taken 7.3 s to be noticed where two fell silent together: what became of the run
/// is told within 10 s,
pub const LOST_WITHIN: Duration = if cfg!(test) { UNHURRIED } else { Duration::from_millis(1500) };
/// or because whoever started the ranks ends them: that is what mpirun does if one dies, and it may be gone a second later, when
/// nobody reads a report any more.
///
/// There is no event to await in its place. Open MPI 4.1 sends SIGTERM and, after a second (its parameter
/// `odls_base_sigkill_timeout`), SIGKILL to the processes that it started, and does not read what is written from then on: the
/// first thing to be seen of its end is that the report comes too late. It is the longest wait for ranks that say nothing;
/// where all have told what they did, nobody waits.
const KILLED_WITHIN: Duration = Duration::from_millis(700);
/// What takes the place of such times in unit tests, whose ranks are threads that may get no core for seconds: no test waits
/// for it to pass.
const UNHURRIED: Duration = Duration::from_secs(60);
/// How often a stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A rank could not do its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Why.
    pub message: String,
}

/// What a rank says of what it did.
pub trait Figures {
    /// When it began and when it ended, on the clock of rank 0, in ns.
    fn began_and_ended_ns(&self) -> (u64, u64);

    /// What it did per second: the rank with the least is the slowest.
    fn per_s(&self) -> f64;
}

/// A run that several ranks make together, as one of them sees it.
pub struct Course {
    ranks: Arc<dyn Ranks>,
    /// Of this rank's clock.
    own: Offset,
    /// Of all clocks.
    offsets: Vec<Offset>,
    /// How long ahead of a start it is told.
    lead: Duration,
    /// How many starts there were, and when the last one was to be, on the clock of rank 0.
    starts: AtomicU32,
    start_ns: AtomicU64,
    /// Collective calls of the starts that were begun here, and those of them that came to their end.
    calls: [AtomicU32; 2],
    /// Ends the work of this rank.
    stop: Arc<Stop>,
    /// Raised by whoever ends this process.
    signals: Arc<Stop>,
    ending: Mutex<Ending>,
}

#[derive(Default)]
struct Ending {
    /// By when rank 0 has to know what the others did, once it is to end.
    by: Option<Instant>,
    asked: bool,
    signalled: bool,
    has_lost: bool,
}

/// What rank 0 knows in the end.
pub struct Gathered<F> {
    /// By rank; none of one that had nothing to do but be there.
    pub each: Vec<Result<Option<F>, String>>,
    /// Whether the counts are the sums of all ranks'.
    pub summed: bool,
    /// Why the run as a whole failed, if it did.
    pub failure: Option<String>,
}

impl<F> Gathered<F> {
    /// The same with other figures.
    pub fn map<G>(self, mut with: impl FnMut(F) -> G) -> Gathered<G> {
        let Self { each, summed, failure } = self;
        let mut of_one = |outcome: Result<Option<F>, String>| outcome.map(|did| did.map(&mut with));
        Gathered { each: each.into_iter().map(&mut of_one).collect(), summed, failure }
    }
}

/// A run of several ranks, as a report tells of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RanksReport<F> {
    /// Ranks.
    pub count: usize,
    /// From the first rank's start to the last one's, in ns, by clocks that are right to `clock_uncertainty_ns` each; none if
    /// fewer than two started.
    pub start_skew_ns: Option<u64>,
    /// How wrong the offset of any rank's clock may be, in ns either way.
    pub clock_uncertainty_ns: u64,
    /// How long all of them ran at the same time, in ns.
    pub all_ran_ns: u64,
    /// The rank that did the least per second, where there are two at least.
    pub slowest: Option<usize>,
    /// Memory of the process of rank 0 when it had heard of all, in bytes; none where it is not known.
    pub resident_bytes: Option<u64>,
    /// Whether counts and latencies are those of all ranks; else only of those that `each` has figures of.
    pub complete: bool,
    /// What each of them did.
    pub each: Vec<RankReport<F>>,
}

/// What one rank did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankReport<F> {
    /// Its number.
    pub rank: usize,
    /// Where it ran.
    pub host: String,
    /// What its clock shows more than that of rank 0, in ns.
    pub clock_offset_ns: i64,
    /// How long after the common start it began, in ns; none if it did not.
    pub started_after_ns: Option<i64>,
    /// Why nothing, or nothing right, is known of it; with figures what went wrong with its part.
    pub failure: Option<String>,
    /// What it did, as far as it said so.
    #[serde(flatten)]
    pub figures: Option<F>,
}

/// What rank 0 is told at the end.
#[derive(Serialize, Deserialize)]
struct Said<F> {
    /// How many starts there were, and collective calls begun and come to their end: if these are not the same at all ranks
    /// no other one can be made.
    steps: [u32; 3],
    outcome: Result<Option<F>, Failed>,
}

/// What a rank's thread tells while it works.
enum Note<E, T> {
    Event(E),
    Done(T),
}

impl Course {
    /// Begins it: every rank calls this, and the clocks are measured. `signals` is raised by whoever ends this process.
    ///
    /// # Errors
    /// Who did not come.
    pub fn begin(ranks: Arc<dyn Ranks>, signals: Arc<Stop>) -> Result<Self, Lost> {
        let until = Instant::now() + HEARD_WITHIN;
        let measured = offsets(&*ranks, until)?;
        let told = serde_json::to_vec(&measured).expect("numbers only");
        let telling = Instant::now();
        let told = ranks.broadcast(0, told, until)?;
        ranks.barrier(until)?;
        let lead = (LEAD_TIMES * telling.elapsed()).clamp(LEAD.0, LEAD.1);
        let offsets: Option<Vec<Offset>> = serde_json::from_slice(&told).unwrap_or_default();
        let offsets = offsets.filter(|all| all.len() == ranks.count()).ok_or_else(|| Lost {
            rank: Some(0),
            host: ranks.host(0).into(),
            why: "did not say how far the clocks are from one another".into(),
        })?;
        Ok(Self {
            own: offsets[ranks.rank()],
            offsets,
            lead,
            ranks,
            starts: AtomicU32::new(0),
            start_ns: AtomicU64::new(0),
            calls: Default::default(),
            stop: Arc::default(),
            signals,
            ending: Mutex::default(),
        })
    }

    /// The ranks that make it.
    pub fn ranks(&self) -> &Arc<dyn Ranks> {
        &self.ranks
    }

    /// What ends the work of this rank.
    pub fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    /// Waits until all ranks have called this, for as long as `within`, and gives the moment at which all start, in ns of this
    /// rank's clock: a little ahead.
    ///
    /// # Errors
    /// Who did not come; or that the run is to end.
    pub fn start(&self, within: Duration) -> Result<u64, Lost> {
        self.together(|ranks| ranks.barrier(Instant::now() + within))?;
        let start_ns = now_ns() + self.lead.as_nanos() as u64;
        let told = start_ns.to_le_bytes().to_vec();
        let until = Instant::now() + HEARD_WITHIN;
        let told = self.together(|ranks| ranks.broadcast(0, told, until))?;
        let start_ns = told.as_slice().try_into().map_or(start_ns, u64::from_le_bytes);
        self.start_ns.store(start_ns, Relaxed);
        self.starts.fetch_add(1, Relaxed);
        Ok(self.own.there(start_ns))
    }

    /// Makes a collective call, and notes how far it came.
    fn together<R>(&self, call: impl FnOnce(&dyn Ranks) -> Result<R, Lost>) -> Result<R, Lost> {
        let [begun, ended] = &self.calls;
        begun.fetch_add(1, Relaxed);
        let outcome = call(&*self.ranks)?;
        ended.fetch_add(1, Relaxed);
        Ok(outcome)
    }

    /// A time of this rank's clock on that of rank 0.
    pub fn at_rank_0(&self, own_ns: u64) -> u64 {
        self.own.here(own_ns)
    }

    /// Has this rank work on a thread of its own, tells what that says meanwhile, and carries a stop to the other ranks and from
    /// them.
    ///
    /// # Errors
    /// If it hangs, or was not over by the time at which the run has to be: it goes on then, and ends with the process.
    pub fn work<E: Send + 'static, T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &mut dyn FnMut(E)) -> T + Send + 'static,
        mut watch: impl FnMut(E),
    ) -> Result<T, Failed> {
        let failed = |why: &str| Failed { message: why.into() };
        let (sender, notes) = mpsc::channel();
        let course = Arc::clone(self);
        let thread = thread::Builder::new().name("weir rank".into()).spawn(move || {
            let done = work(&course, &mut |event| drop(sender.send(Note::Event(event))));
            // If nobody listens, the run had to be over.
            let _ = sender.send(Note::Done(done));
        });
        if let Err(error) = thread {
            return Err(failed(&format!("cannot start a thread: {error}")));
        }
        loop {
            match notes.recv_timeout(LOOK_EVERY) {
                Ok(Note::Event(event)) => watch(event),
                Ok(Note::Done(done)) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("its thread has panicked"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let by = self.look();
            if let Some(StopReason::Hangs(why)) = self.stop.reason() {
                return Err(failed(&why));
            }
            if by.is_some_and(|by| Instant::now() >= by) {
                return Err(failed("its work did not end in time when it was to"));
            }
        }
    }

    /// Looks whether it is to end, and has it end; gives by when.
    fn look(&self) -> Option<Instant> {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = |ending: &mut Ending, within: Duration| {
            let by = Instant::now() + within;
            ending.by = Some(ending.by.map_or(by, |before| before.min(by)));
        };
        if self.signals.is_requested() && !ending.signalled {
            (ending.signalled, ending.asked) = (true, true);
            // The others are told first, as they take a moment to answer.
            self.ranks.ask_to_end(KILLED_WITHIN / 2);
            self.stop.request(StopReason::Asked);
            soon(&mut ending, KILLED_WITHIN);
        }
        let (asked, has_lost) = (self.ranks.is_asked_to_end(), self.ranks.lost().is_some());
        if has_lost && !std::mem::replace(&mut ending.has_lost, true) {
            soon(&mut ending, LOST_WITHIN);
        }
        if !ending.asked && (asked || self.stop.is_requested() || has_lost) {
            ending.asked = true;
            if !asked {
                self.ranks.ask_to_end(ENDED_WITHIN);
            }
            self.stop.request(StopReason::Asked);
            soon(&mut ending, 2 * ENDED_WITHIN);
        }
        ending.by
    }

    /// Whether it is to end before its time.
    pub fn is_ending(&self) -> bool {
        self.look().is_some()
    }

    /// What a rank and all below it say, as far as it has come when the run is to end before its time: from then on each
    /// tells rank 0 itself.
    fn collect(&self, said: Vec<u8>) -> BTreeMap<usize, Vec<u8>> {
        let (own, count) = (self.ranks.rank(), self.ranks.count());
        let mut all = BTreeMap::from([(own, said)]);
        for child in tree::children(own, count) {
            while !tree::below(child, count).iter().all(|rank| all.contains_key(rank)) {
                if self.look().is_some() {
                    return all;
                }
                match self.ranks.receive(child, Instant::now() + LOOK_EVERY) {
                    Ok(records) => all.extend(read_records(&records)),
                    Err(lost) if lost.why == LATE => {}
                    // Rank 0 sees it, and ends the run.
                    Err(_) => thread::yield_now(),
                }
            }
        }
        all
    }

    /// The same at rank 0, from all ranks themselves, where the run is to end before its time; and why some said nothing.
    fn collect_from_each(&self, all: &mut BTreeMap<usize, Vec<u8>>) -> BTreeMap<usize, Lost> {
        let mut missing = BTreeMap::new();
        let count = self.ranks.count();
        loop {
            let by = self.look();
            for rank in 1..count {
                match self.ranks.receive(rank, Instant::now()) {
                    Ok(records) => all.extend(read_records(&records)),
                    Err(lost) => drop(missing.insert(rank, lost)),
                }
            }
            missing.retain(|rank, _| !all.contains_key(rank));
            let waited_for = missing.iter().find(|(_, lost)| lost.why == LATE);
            let Some((rank, _)) = waited_for.filter(|_| by.is_none_or(|by| Instant::now() < by))
            else {
                return missing;
            };
            if let Ok(records) = self.ranks.receive(*rank, Instant::now() + LOOK_EVERY) {
                all.extend(read_records(&records));
            }
        }
    }

    /// Tells rank 0 what this rank and those below it say, and waits for its order; none if it does not come.
    fn tell(&self, mut all: BTreeMap<usize, Vec<u8>>) -> Option<Vec<u8>> {
        let (own, count) = (self.ranks.rank(), self.ranks.count());
        let above = tree::parent(own)?;
        let is_early = self.look().is_some();
        send_records(&*self.ranks, if is_early { 0 } else { above }, &all);
        let mut is_told = is_early || above == 0;
        loop {
            let by = self.look();
            if by.is_some() && !is_told {
                // Who was told may be lost.
                send_records(&*self.ranks, 0, &all);
                is_told = true;
            }
            if by.is_some() {
                // What comes late from below.
                for child in tree::children(own, count) {
                    if let Ok(records) = self.ranks.receive(child, Instant::now()) {
                        all = read_records(&records);
                        send_records(&*self.ranks, 0, &all);
                    }
                }
            }
            match hear(&*self.ranks, LOOK_EVERY) {
                Ok(order) if ORDERS.contains(&order.as_slice()) => return Some(order),
                Ok(_) => {}
                Err(lost) if lost.why == LATE && by.is_none_or(|by| Instant::now() < by) => {}
                Err(_) => return None,
            }
        }
    }

    /// Adds the counts of all up, where all are known to come to it now.
    fn sum(&self, counts: &mut [u64]) -> Result<(), Lost> {
        let until = Instant::now() + DONE_WITHIN;
        let until = self.look().map_or(until, |by| by.min(until));
        self.ranks.sum(counts, until)
    }

    /// Gives rank 0 what each rank did; `counts` become the sums of all at rank 0, by a reduction, if all ranks did their
    /// part. The others get nothing.
    pub fn gather<F: Serialize + DeserializeOwned>(
        &self,
        outcome: Result<Option<F>, Failed>,
        counts: &mut [u64],
    ) -> Option<Gathered<F>> {
        let ranks = &*self.ranks;
        let [begun, ended] = &self.calls;
        let steps = [&self.starts, begun, ended].map(|count| count.load(Relaxed));
        let said = Said { steps, outcome };
        let bytes = serde_json::to_vec(&said).expect("it has no keys but texts");
        let mut all = self.collect(bytes);
        if ranks.rank() != 0 {
            // If rank 0 does not come there is nobody to tell.
            if self.tell(all).is_some_and(|order| order == SUM) {
                let _ = self.sum(counts);
            }
            return None;
        }
        let is_early = all.len() < ranks.count();
        let mut absent = match is_early {
            true => self.collect_from_each(&mut all),
            false => BTreeMap::new(),
        };
        let mut each = vec![said];
        let mut missing: Vec<Option<Lost>> = vec![None];
        for rank in 1..ranks.count() {
            let lost = |why: String| Lost { rank: Some(rank), host: ranks.host(rank).into(), why };
            let said = match all.get(&rank) {
                Some(said) => serde_json::from_slice(said)
                    .map_err(|error| lost(format!("said what cannot be read: {error}"))),
                None => Err(absent.remove(&rank).unwrap_or_else(|| lost(LATE.into()))),
            };
            missing.push(said.as_ref().err().cloned());
            let nothing = || Failed { message: String::new() };
            each.push(said.unwrap_or_else(|_| Said { steps: [0; 3], outcome: Err(nothing()) }));
        }
        // Who gave up a start that was to come is not where the others are.
        let steps = each[0].steps;
        let [_, begun, ended] = steps;
        let whole =
            begun == ended && each.iter().all(|said| said.steps == steps && said.outcome.is_ok());
        // Now, as who has heard the order may go.
        let lost = ranks.lost();
        let order = if whole && lost.is_none() { SUM } else { NOTHING };
        let told = match is_early || order == NOTHING {
            false => send_down(ranks, order),
            true => {
                for rank in 1..ranks.count() {
                    // Whoever is lost needs no word; who is late may yet come, and waits for one.
                    let _ = ranks.send(rank, order);
                }
                Ok(())
            }
        };
        let summed = match (order == SUM, told) {
            (true, Ok(())) => self.sum(counts),
            (true, Err(lost)) => Err(lost),
            (false, _) => Ok(()),
        };
        let complete = order == SUM && summed.is_ok();
        // Who goes when all is known is not missed.
        let lost = match complete {
            true => None,
            false => lost.or(summed.err()).or_else(|| missing.iter().flatten().next().cloned()),
        };
        let each = each
            .into_iter()
            .zip(missing)
            .map(|(said, missing)| match missing {
                // What is known to have happened to it says more than that it did not come.
                Some(missing) => Err(lost
                    .as_ref()
                    .filter(|lost| lost.rank == missing.rank)
                    .map_or(missing.why, |lost| lost.why.clone())),
                None => said.outcome.map_err(|failed| failed.message),
            })
            .collect();
        let each: Vec<Result<Option<F>, String>> = each;
        let failed = each.iter().enumerate().filter_map(|(rank, outcome)| {
            let message = outcome.as_ref().err()?;
            // Who could not go on because the run was to end is not why it was.
            Some((message.ends_with(ASKED_TO_END), rank, message))
        });
        let failed = failed
            .min()
            .map(|(_, rank, message)| format!("rank {rank} on {}: {message}", ranks.host(rank)));
        let failure = lost.map(|lost| lost.to_string()).or(failed);
        Some(Gathered { each, summed: complete, failure })
    }

    /// The report of what rank 0 gathered.
    pub fn report<F: Figures>(&self, gathered: Gathered<F>) -> RanksReport<F> {
        let Gathered { each, summed, .. } = gathered;
        let start_ns = self.start_ns.load(Relaxed);
        let each: Vec<RankReport<F>> = each
            .into_iter()
            .enumerate()
            .map(|(rank, outcome)| {
                let (figures, failure) = match outcome {
                    Ok(figures) => (figures, None),
                    Err(why) => (None, Some(why)),
                };
                RankReport {
                    rank,
                    host: self.ranks.host(rank).into(),
                    clock_offset_ns: self.offsets[rank].offset_ns,
                    started_after_ns: figures.as_ref().map(|figures| {
                        figures.began_and_ended_ns().0.wrapping_sub(start_ns) as i64
                    }),
                    failure,
                    figures,
                }
            })
            .collect();
        let figures: Vec<(usize, &F)> =
            each.iter().filter_map(|of| Some((of.rank, of.figures.as_ref()?))).collect();
        let began = || figures.iter().map(|(_, of)| of.began_and_ended_ns().0);
        let ended = || figures.iter().map(|(_, of)| of.began_and_ended_ns().1);
        let latest_start = began().max();
        let skew = latest_start.zip(began().min()).map(|(last, first)| last - first);
        let all_ran = latest_start.zip(ended().min());
        let slowest = figures.iter().min_by(|one, other| one.1.per_s().total_cmp(&other.1.per_s()));
        let several = figures.len() > 1;
        RanksReport {
            count: self.ranks.count(),
            start_skew_ns: skew.filter(|_| several),
            clock_uncertainty_ns: self
                .offsets
                .iter()
                .map(|of| of.uncertainty_ns)
                .max()
                .unwrap_or(0),
            all_ran_ns: all_ran.map_or(0, |(start, end)| end.saturating_sub(start)),
            slowest: slowest.filter(|_| several).map(|(rank, _)| *rank),
            resident_bytes: Sampler::new().process().resident_bytes,
            complete: summed,
            each,
        }
    }
}

/// The order to add the counts up,
const SUM: &[u8] = b"sum";
/// or not.
const NOTHING: &[u8] = b"nothing";
const ORDERS: [&[u8]; 2] = [SUM, NOTHING];
/// The last word of rank 0 where all are there,
const TOGETHER: &[u8] = b"together";
/// and where not.
const APART: &[u8] = b"apart";

/// Ends a run: rank 0 has told what came of it, and tells the others, who wait for that. So no rank goes, and has others
/// ended, before there is a report. Gives whether all are there, and can leave together.
pub fn over(ranks: &dyn Ranks) -> bool {
    if ranks.rank() == 0 {
        if ranks.lost().is_none() && !ranks.is_asked_to_end() {
            return send_down(ranks, TOGETHER).is_ok();
        }
        let word = if ranks.lost().is_none() { TOGETHER } else { APART };
        tell_each(ranks, word);
        return word == TOGETHER;
    }
    let within = if ranks.is_asked_to_end() { 2 * ENDED_WITHIN } else { DONE_WITHIN };
    let until = Instant::now() + within;
    loop {
        match hear(ranks, LOOK_EVERY) {
            Ok(word) if word == TOGETHER => return true,
            Ok(word) if word == APART => return false,
            // An order that came twice.
            Ok(_) => {}
            Err(lost) if lost.why == LATE && Instant::now() < until && ranks.lost().is_none() => {}
            Err(_) => return false,
        }
    }
}

/// Ends a run as [`over`] does, at rank 0 where it knows that one cannot do its part, who may be unable to leave in order, too.
pub fn over_apart(ranks: &dyn Ranks) {
    tell_each(ranks, APART);
}

/// Rank 0 tells each itself, as one that is lost hands nothing on, and needs no word.
fn tell_each(ranks: &dyn Ranks, word: &[u8]) {
    for rank in 1..ranks.count() {
        let _ = ranks.send(rank, word);
    }
}

/// Sends to all below, who send it on when they [`hear`] it.
fn send_down(ranks: &dyn Ranks, word: &[u8]) -> Result<(), Lost> {
    tree::children(ranks.rank(), ranks.count()).try_for_each(|child| ranks.send(child, word))
}

/// What rank 0 says to all: by the ranks in between, or itself.
fn hear(ranks: &dyn Ranks, within: Duration) -> Result<Vec<u8>, Lost> {
    let above = tree::parent(ranks.rank()).unwrap_or(0);
    let heard = ranks.receive(above, Instant::now() + within);
    let word = match (above, heard) {
        (0, heard) => heard?,
        (_, Ok(word)) => word,
        (_, Err(_)) => ranks.receive(0, Instant::now())?,
    };
    // Whoever is lost needs no word.
    let _ = send_down(ranks, &word);
    Ok(word)
}

/// Bytes before each record: of which rank, and how many follow.
const RECORD_HEAD_BYTES: usize = 12;

/// Sends what ranks say to another one, in as few messages as may be.
fn send_records(ranks: &dyn Ranks, to: usize, all: &BTreeMap<usize, Vec<u8>>) {
    let mut message = Vec::new();
    for (rank, said) in all {
        if !message.is_empty() && message.len() + RECORD_HEAD_BYTES + said.len() > MESSAGE_BYTES_MAX
        {
            // If that one is lost, rank 0 ends the run, and is told itself.
            let _ = ranks.send(to, &std::mem::take(&mut message));
        }
        message.extend((*rank as u32).to_le_bytes());
        message.extend((said.len() as u64).to_le_bytes());
        message.extend(said);
    }
    let _ = ranks.send(to, &message);
}

fn read_records(mut message: &[u8]) -> BTreeMap<usize, Vec<u8>> {
    let mut all = BTreeMap::new();
    while let Some((rank, rest)) = message.split_first_chunk()
        && let Some((length, rest)) = rest.split_first_chunk()
        && let Some((said, rest)) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)
    {
        all.insert(u32::from_le_bytes(*rank) as usize, said.to_vec());
        message = rest;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::memory::{self, InMemory};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Did {
        began_ns: u64,
        count: u64,
    }

    impl Figures for Did {
        fn began_and_ended_ns(&self) -> (u64, u64) {
            (self.began_ns, self.began_ns + 1_000)
        }

        fn per_s(&self) -> f64 {
            self.count as f64
        }
    }

    fn gathered(
        part: impl Fn(&Arc<Course>) -> Option<Gathered<Did>> + Sync,
    ) -> (RanksReport<Did>, Option<String>) {
        // They outlive the threads: rank 0 would take one that has heard its order, and goes, for lost while it adds up.
        let all: Vec<Arc<InMemory>> =
            memory::ranks(["a", "b", "c"]).into_iter().map(Arc::new).collect();
        let found: Vec<_> = thread::scope(|scope| {
            let all = all.iter().map(|rank| {
                let (part, rank) = (&part, Arc::clone(rank));
                scope.spawn(move || {
                    let course = Arc::new(Course::begin(rank, Arc::default()).unwrap());
                    let gathered = part(&course)?;
                    let failure = gathered.failure.clone();
                    Some((course.report(gathered), failure))
                })
            });
            let all: Vec<_> = all.collect();
            all.into_iter().filter_map(|rank| rank.join().expect("no panic")).collect()
        });
        let [found] = found.try_into().expect("rank 0 alone has a report");
        found
    }

    #[test]
    fn all_start_together_and_rank_0_has_the_sums() {
        let (report, failure) = gathered(|course| {
            let rank = course.ranks().rank() as u64;
            let did = course.work(
                move |course, _: &mut dyn FnMut(())| {
                    let start_ns = course.start(Duration::from_secs(60)).unwrap();
                    Did { began_ns: course.at_rank_0(start_ns) + 10 * rank, count: 9 - rank }
                },
                |()| {},
            );
            let mut counts = [rank, 1];
            let gathered = course.gather(did.map(Some), &mut counts);
            if rank == 0 {
                assert_eq!(counts, [3, 3]);
            }
            gathered
        });
        assert_eq!((failure, report.complete, report.count), (None, true, 3));
        assert_eq!(
            (report.start_skew_ns, report.slowest, report.all_ran_ns),
            (Some(20), Some(2), 980)
        );
        let after: Vec<_> = report.each.iter().map(|of| of.started_after_ns).collect();
        assert_eq!(after, [Some(0), Some(10), Some(20)]);
        assert_eq!(report.each[1].host, "b");
    }

    #[test]
    fn what_rank_0_says_and_hears_grows_with_the_logarithm_of_the_ranks() {
        for count in [2, 4, 8, 16] {
            let mut all = memory::ranks((0..count).map(|rank| format!("host{rank}")));
            let make = |rank: &Arc<InMemory>| {
                let ranks = Arc::clone(rank) as Arc<dyn Ranks>;
                let course = Arc::new(Course::begin(Arc::clone(&ranks), Arc::default()).unwrap());
                let clocks = rank.take_counts();
                let did = course.work(
                    |course, _: &mut dyn FnMut(())| {
                        let start_ns = course.start(Duration::from_secs(60)).unwrap();
                        Did { began_ns: course.at_rank_0(start_ns), count: 1 }
                    },
                    |()| {},
                );
                let complete = course.gather(did.map(Some), &mut [1]).map(|all| all.summed);
                assert!(over(&*ranks));
                (clocks, rank.take_counts(), complete)
            };
            let first = Arc::new(all.remove(0));
            let (clocks, words, complete) = thread::scope(|scope| {
                let others = all.into_iter().map(Arc::new).map(|rank| {
                    scope.spawn(move || {
                        let _ = make(&rank);
                        rank // the others are not to lose it
                    })
                });
                let others: Vec<_> = others.collect();
                let found = make(&first);
                others.into_iter().for_each(|other| drop(other.join().unwrap()));
                found
            });
            assert_eq!(complete, Some(true));
            let below = tree::children(0, count).count();
            // A question to wake each, 64 more, and what was found; the answers, and the clock of each rank, for the report.
            let (said, heard) = clocks;
            assert!(said <= 66 * below && heard < 65 * below + count, "{count}: {clocks:?}");
            // That it is to be added up, and over; what each and those below it did.
            assert_eq!(words, (2 * below, below), "{count}");
        }
    }

    #[test]
    fn who_fails_is_named_and_what_the_others_did_is_kept() {
        let (report, failure) = gathered(|course| {
            let rank = course.ranks().rank() as u64;
            let outcome = course.work(
                move |course, _: &mut dyn FnMut(())| {
                    if rank == 1 {
                        course.stop().request(StopReason::Failed);
                        return Err(Failed { message: "has no descriptors".into() });
                    }
                    // The third does not come, and so this ends because the run is asked to end.
                    assert!(course.start(Duration::from_secs(60)).is_err());
                    Ok(Some(Did { began_ns: 5, count: 1 }))
                },
                |()| {},
            );
            // The stop of rank 1 is carried on, also after its work is over.
            course.look();
            course.gather(outcome.unwrap(), &mut [])
        });
        assert_eq!(failure.unwrap(), "rank 1 on b: has no descriptors");
        assert!(!report.complete && report.each[0].figures.is_some());
        assert_eq!(report.each[1].failure.as_deref(), Some("has no descriptors"));
        assert!(report.each[2].figures.is_some());
    }

    #[test]
    fn who_could_not_go_on_without_the_one_that_failed_is_not_blamed() {
        let (report, failure) = gathered(|course| {
            let rank = course.ranks().rank();
            let outcome: Result<Result<Option<Did>, Failed>, Failed> = course.work(
                move |course, _: &mut dyn FnMut(())| {
                    if rank == 2 {
                        course.stop().request(StopReason::Failed);
                        return Err(Failed { message: "has no descriptors".into() });
                    }
                    let why = course.start(Duration::from_secs(60)).unwrap_err();
                    Err(Failed { message: format!("could not begin: {why}") })
                },
                |()| {},
            );
            course.look();
            course.gather(outcome.unwrap(), &mut [])
        });
        assert_eq!(failure.unwrap(), "rank 2 on c: has no descriptors");
        let why = report.each[0].failure.as_deref().unwrap();
        assert_eq!(why, format!("could not begin: {ASKED_TO_END}"));
    }

    #[test]
    fn whose_work_hangs_is_named_and_nobody_waits_for_it() {
        let (held, never) = mpsc::channel::<()>();
        let never = Mutex::new(Some(never));
        let (report, failure) = gathered(|course| {
            let rank = course.ranks().rank() as u64;
            let never = if rank == 1 { never.lock().unwrap().take() } else { None };
            let outcome = course.work(
                move |course, _: &mut dyn FnMut(())| {
                    let start_ns = course.start(Duration::from_secs(60)).unwrap();
                    if let Some(never) = never {
                        course.stop().request(StopReason::Hangs("it hangs".into()));
                        let _ = never.recv();
                    }
                    while !course.stop().is_requested() {
                        thread::yield_now();
                    }
                    Did { began_ns: course.at_rank_0(start_ns), count: 1 }
                },
                |()| {},
            );
            course.gather(outcome.map(Some), &mut [1])
        });
        assert_eq!(failure.unwrap(), "rank 1 on b: it hangs");
        assert!(report.each[0].figures.is_some() && report.each[2].figures.is_some());
        drop(held);
    }

    #[test]
    fn an_end_while_some_wait_for_a_start_leaves_what_all_did_without_sums() {
        for early in 0..3 {
            let (report, failure) = gathered(|course| {
                let rank = course.ranks().rank();
                let did = course.work(
                    move |course, _: &mut dyn FnMut(())| {
                        let start_ns = course.start(Duration::from_secs(60)).unwrap();
                        if rank == early {
                            // It has not come as far as the next start when the run is to end.
                            course.stop().request(StopReason::Asked);
                        } else {
                            assert!(course.start(Duration::from_secs(60)).is_err());
                        }
                        Did { began_ns: course.at_rank_0(start_ns), count: 1 }
                    },
                    |()| {},
                );
                // The stop is carried on, also after its work is over.
                course.look();
                course.gather(did.map(Some), &mut [1])
            });
            assert_eq!((failure, report.complete), (None, false));
            assert!(report.each.iter().all(|of| of.figures.is_some()), "{early}");
        }
    }

    #[test]
    fn who_is_lost_is_named_and_the_others_end() {
        let mut all = memory::ranks(["a", "b", "c"]);
        let last: InMemory = all.pop().unwrap();
        let (report, failure) = thread::scope(|scope| {
            let begun: Vec<_> = all
                .into_iter()
                .map(|rank| {
                    scope.spawn(move || {
                        let course = Course::begin(Arc::new(rank), Arc::default()).unwrap();
                        let course = Arc::new(course);
                        let waited = |course: &Course, _: &mut dyn FnMut(())| {
                            course.start(Duration::from_secs(60)).unwrap_err()
                        };
                        let error = course.work(waited, |()| {}).unwrap();
                        let failed = Failed { message: error.to_string() };
                        let gathered = course.gather::<Did>(Err(failed), &mut [])?;
                        let failure = gathered.failure.clone();
                        Some((course.report(gathered), failure))
                    })
                })
                .collect();
            // It measures clocks with the others, and goes.
            scope.spawn(move || drop(Course::begin(Arc::new(last), Arc::default()).unwrap()));
            begun.into_iter().find_map(|rank| rank.join().expect("no panic")).unwrap()
        });
        assert_eq!(failure.unwrap(), "rank 2 on c has ended");
        assert_eq!(report.each[2].failure.as_deref(), Some("has ended"));
    }
}
