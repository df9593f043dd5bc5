//! The receiver's account of what arrived.
//!
//! An [`Audit`] belongs to a server; each of its threads takes an [`Auditor`] and shows it
//! every datagram. The auditor reads the stamp, marks the sequence number in a bitmap and
//! counts: a few nanoseconds, with no lock and no allocation. Two things happen to few datagrams
//! and take a lock of this thread's own account, which only a report takes besides: with the first
//! of every 8192 sequence numbers of a flow there is a bitmap of 1 KiB to allocate, and of the first
//! 4096 datagrams each leaves its proof of reading ([`crate::proof`]), then some 2048 each
//! time their number doubles, for which there is room since the run began (64 KiB for
//! each thread). Anyone may read counts and reports at any time.
//!
//! Several runs may be open at once (several generators); a datagram belongs to the run
//! whose id it bears, if it comes from the address of its generator, where that is known. All
//! others are strangers, and counted apart.
//!
//! What is allocated for a run is bounded by what its generator was consented to send, over all
//! runs by [`BITMAP_BYTES_IN_ALL`], and given back when the run ends.
//!
//! Each thread has bitmaps of its own. A [`report`](Audit::report) lays them over one
//! another: a number seen twice is a duplicate, whichever threads saw it; what was sent
//! and is marked nowhere is lost.
//!
//! Not seen: a reordering between two threads. A datagram counts as reordered if its
//! number is below the highest that the same thread saw in its flow, for threads take
//! datagrams from one socket in an order of their own.

mod auditor;
mod book;
mod report;

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use weir::counters::Counter;

pub use auditor::{Auditor, Verdict};
pub use report::{AuditReport, FlowReport};

use crate::{
    clock::now_ns,
    control::{AgreedRun, Arrived},
    lock::lock,
    stamp::{FLOWS_MAX, STAMP_BYTES},
    sys,
};
use book::{BitmapBudget, Book, Chunk};

/// The most runs open at once: as many as generators may flood a server together.
pub const RUNS_MAX: usize = 64;

/// Sequence numbers per bitmap chunk. Few, since one datagram is enough to have one made.
pub(crate) const CHUNK_NUMBERS: u64 = 8192;

/// Most bytes of bitmaps over all runs and threads of an audit: a thousand million numbers.
pub const BITMAP_BYTES_IN_ALL: usize = 128 << 20;

/// How a run is audited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// Run id that its datagrams bear.
    pub run: u32,
    /// Run id of the datagrams of its warm-up, which are counted apart, if it has one.
    pub warm_up_run: Option<u32>,
    /// The only address that its datagrams may come from; those from another are strangers. None
    /// where the threads do not tell ([`Auditor::record`]), or any will do.
    pub source: Option<IpAddr>,
    /// Payload bytes of each datagram. Below [`crate::stamp::STAMP_BYTES`] they carry no
    /// stamp: then every datagram of this size counts as received, or before
    /// [`Audit::start`] as one of the warm-up, and nothing else is known about it.
    pub size_bytes: usize,
    /// Flows, numbered from 0; at most [`FLOWS_MAX`].
    pub flows: usize,
    /// The body of every so-many-th datagram is compared, on each thread; 1 compares all.
    pub verify_every: u32,
    /// The latency of every so-many-th datagram is taken, on each thread; 1 takes all. The
    /// clock is read only for those.
    pub latency_every: u32,
    /// Most bytes of bitmaps on each thread. Numbers beyond are counted as untracked: known
    /// to have arrived, but neither whether twice.
    pub bitmap_bytes_max: usize,
    /// What the generator's clock shows more than the receiver's, in ns, where they have two and that was measured. It may
    /// be wrong by some µs: what seems to have come before it was due has a latency of 0 then. None where both have one
    /// clock.
    pub clock_offset_ns: Option<i64>,
}

impl AuditSettings {
    /// How often to verify and to take the time at saturation. A prime: generators send
    /// batches of up to 64 that share the time that they bear, and a divisor of 64 would always
    /// sample the same place in the batch.
    pub const SAMPLE_EVERY: u32 = 61;

    /// 32 MiB: 268 million sequence numbers.
    pub const BITMAP_BYTES_MAX: usize = 32 << 20;

    /// For a run at saturation (times are sampled) or paced (all are taken).
    pub fn new(run: u32, size_bytes: usize, flows: usize, paced: bool) -> Self {
        Self {
            run,
            warm_up_run: None,
            source: None,
            size_bytes,
            flows,
            verify_every: Self::SAMPLE_EVERY,
            latency_every: if paced { 1 } else { Self::SAMPLE_EVERY },
            bitmap_bytes_max: Self::BITMAP_BYTES_MAX,
            clock_offset_ns: None,
        }
    }

    /// For what a generator was consented to on the control channel. Bitmaps have room for what it
    /// may send, and no more.
    pub fn for_run(run: &AgreedRun) -> Self {
        let ask = &run.ask;
        let settings = Self::new(ask.run, ask.size_bytes, ask.flows, ask.datagrams_per_s.is_some());
        let by_rate = ask.datagrams_per_s.map(|rate| (rate * ask.duration_ms as f64 / 1e3) as u64);
        let numbers = by_rate.into_iter().chain(ask.datagrams).min();
        // Each flow begins a chunk of its own; a tenth more than the rate gives is no cheat.
        let chunks = numbers.map(|all| (all + all / 10) / CHUNK_NUMBERS + 2 * ask.flows as u64);
        let bytes = chunks.map_or(u64::MAX, |chunks| chunks.saturating_mul(Chunk::BYTES as u64));
        Self {
            warm_up_run: ask.warm_up_run,
            source: Some(run.peer),
            clock_offset_ns: ask.clock_offset_ns,
            bitmap_bytes_max: settings.bitmap_bytes_max.min(bytes.try_into().unwrap_or(usize::MAX)),
            ..settings
        }
    }
}

/// Counts of datagrams that belong to no run; one per auditor.
#[derive(Debug, Default)]
struct Loose {
    strangers: Counter,
    corrupt_headers: Counter,
}

/// [`Loose`] at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct LooseCounts {
    strangers: u64,
    corrupt_headers: u64,
}

impl LooseCounts {
    fn add(&mut self, loose: &Loose) {
        self.strangers += loose.strangers.get();
        self.corrupt_headers += loose.corrupt_headers.get();
    }
}

#[derive(Debug)]
struct Run {
    settings: Arc<AuditSettings>,
    /// Tells two runs of the same id apart.
    number: u64,
    /// Whether its warm-up is over; true from the beginning if it has none.
    started: bool,
    books: Vec<Arc<Book>>,
    loose_before: LooseCounts,
    /// What had arrived at the last change, and when that was noticed.
    last_change: (u64, u64),
}

impl Run {
    fn received(&self) -> u64 {
        self.books.iter().map(|book| book.received.get()).sum()
    }

    fn warm_up(&self) -> u64 {
        self.books.iter().map(|book| book.warm_up.get()).sum()
    }
}

#[derive(Debug, Default)]
struct AuditState {
    runs: Vec<Run>,
    runs_begun: u64,
    loose: Vec<Arc<Loose>>,
    /// The counts of auditors that are gone.
    loose_retired: LooseCounts,
}

impl AuditState {
    fn run(&self, run: u32) -> Option<&Run> {
        self.runs.iter().find(|open| open.settings.run == run)
    }

    fn run_mut(&mut self, run: u32) -> Option<&mut Run> {
        self.runs.iter_mut().find(|open| open.settings.run == run)
    }

    fn loose_counts(&self) -> LooseCounts {
        let mut counts = self.loose_retired;
        self.loose.iter().for_each(|loose| counts.add(loose));
        counts
    }
}

/// The account of one server.
#[derive(Debug)]
pub struct Audit {
    budget: Arc<BitmapBudget>,
    /// Raised whenever the list of runs changes, so that auditors look at it again.
    epoch: AtomicU64,
    state: Mutex<AuditState>,
}

impl Audit {
    /// An account without runs.
    pub fn new() -> Arc<Self> {
        let budget = Arc::new(BitmapBudget::new(BITMAP_BYTES_IN_ALL));
        Arc::new(Self { budget, epoch: AtomicU64::new(0), state: Mutex::default() })
    }

    /// Bytes of bitmaps that there are, over all runs and threads.
    pub fn bitmap_bytes(&self) -> usize {
        BITMAP_BYTES_IN_ALL - self.budget.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, AuditState> {
        // Nothing in here panics half-way through a change.
        lock(&self.state)
    }

    /// An auditor for one thread.
    pub fn auditor(self: &Arc<Self>) -> Auditor {
        let loose = Arc::new(Loose::default());
        self.lock().loose.push(Arc::clone(&loose));
        Auditor::new(Arc::clone(self), loose)
    }

    /// Opens a run: from now on its datagrams are counted. One with a warm-up waits for
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// If a run of this id is open, or [`RUNS_MAX`] are, or one whose datagrams could not be
    /// told from those of this one, or the settings make no sense.
    pub fn begin(&self, settings: AuditSettings) -> Result<(), String> {
        if settings.flows == 0 || settings.flows > FLOWS_MAX {
            return Err(format!("{} flows; there must be 1 to {FLOWS_MAX}", settings.flows));
        }
        if settings.verify_every == 0 || settings.latency_every == 0 {
            return Err("every 0th datagram cannot be sampled; 1 samples all".into());
        }
        let mut state = self.lock();
        if state.run(settings.run).is_some() {
            return Err(format!("run {} is open already; choose another id", settings.run));
        }
        if state.runs.len() == RUNS_MAX {
            return Err(format!("{RUNS_MAX} runs are open already; wait for one to end"));
        }
        let size_bytes = settings.size_bytes;
        if size_bytes < STAMP_BYTES
            && state.runs.iter().any(|run| run.settings.size_bytes == size_bytes)
        {
            return Err(format!(
                "a run of {size_bytes}-byte datagrams is open already, and below {STAMP_BYTES} \
                 bytes its datagrams cannot be told from yours; wait for it to end, or choose \
                 another size (--length)"
            ));
        }
        state.runs_begun += 1;
        let run = Run {
            started: settings.warm_up_run.is_none(),
            settings: Arc::new(settings),
            number: state.runs_begun,
            books: Vec::new(),
            loose_before: state.loose_counts(),
            last_change: (0, now_ns()),
        };
        state.runs.push(run);
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The warm-up of an open run is over: from now on datagrams without a stamp count as
    /// the run's. Those with one tell by themselves which they belong to. Call it when
    /// nothing of the warm-up is on its way any more (see [`quiet_ns`](Self::quiet_ns)).
    pub fn start(&self, run: u32) {
        let mut state = self.lock();
        if let Some(run) = state.run_mut(run) {
            run.started = true;
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// Closes a run: its late datagrams are strangers from now on. Gives its report, or
    /// `None` if no such run is open.
    pub fn end(&self, run: u32, sent_per_flow: Option<&[u64]>) -> Option<AuditReport> {
        let mut state = self.lock();
        let at = state.runs.iter().position(|r| r.settings.run == run)?;
        let loose = state.loose_counts();
        let run = state.runs.remove(at);
        self.epoch.fetch_add(1, Ordering::Release);
        drop(state);
        let report = AuditReport::of(&run, loose, sent_per_flow);
        run.books.iter().for_each(|book| book.close());
        drop(run);
        sys::give_memory_back();
        Some(report)
    }

    /// The report of an open run so far. What was sent may still be on its way, so wait
    /// until nothing arrives any more (see [`quiet_ns`](Self::quiet_ns)).
    pub fn report(&self, run: u32, sent_per_flow: Option<&[u64]>) -> Option<AuditReport> {
        let state = self.lock();
        let run = state.run(run)?;
        Some(AuditReport::of(run, state.loose_counts(), sent_per_flow))
    }

    /// Datagrams received so far in an open run; 0 if there is none of this id.
    pub fn received(&self, run: u32) -> u64 {
        self.lock().run(run).map_or(0, Run::received)
    }

    /// What has arrived so far of an open run and its warm-up.
    pub fn arrived(&self, run: u32) -> Option<Arrived> {
        let state = self.lock();
        let books = &state.run(run)?.books;
        let bytes = books.iter().map(|book| book.bytes.get() + book.warm_up_bytes.get()).sum();
        let run = state.run(run)?;
        Some(Arrived { datagrams: run.received() + run.warm_up(), bytes })
    }

    /// How long nothing has arrived for an open run or its warm-up, in ns; others' datagrams
    /// do not matter. Noticed only by calling this, so call it often; the first call after an
    /// arrival gives 0. For ever, if there is no run of this id.
    pub fn quiet_ns(&self, run: u32) -> u64 {
        let now = now_ns();
        let mut state = self.lock();
        let Some(run) = state.run_mut(run) else { return u64::MAX };
        let arrived = run.received() + run.warm_up();
        if arrived != run.last_change.0 {
            run.last_change = (arrived, now);
        }
        now.saturating_sub(run.last_change.1)
    }

    fn retire(&self, loose: &Arc<Loose>) {
        let mut state = self.lock();
        state.loose_retired.add(loose);
        state.loose.retain(|other| !Arc::ptr_eq(other, loose));
    }
}

#[cfg(test)]
mod tests;
