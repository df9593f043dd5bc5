//! The part of the audit that sees every datagram.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use super::{
    Audit, AuditSettings, CHUNK_NUMBERS, Loose,
    book::{Book, Chunk},
};
use crate::{
    clock::now_ns,
    stamp::{NoStamp, STAMP_BYTES, Stamp, body_is_intact},
};

/// What a datagram turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Of an open run, with nothing wrong that was looked at.
    Intact,
    /// Of the size of a run whose datagrams are too short for a stamp.
    Unstamped,
    /// Of a run's warm-up.
    WarmUp,
    /// Of an open run, with a number below the highest this thread saw in its flow.
    Reordered,
    /// Of an open run, with a number that this thread saw before.
    Duplicate,
    /// Of an open run, with another size than its datagrams have.
    WrongSize,
    /// Its stamp or its body was changed on the way.
    Corrupt,
    /// Of no open run.
    Stranger,
}

/// One flow of one run, as this thread knows it.
#[derive(Debug)]
struct Flow {
    /// One more than the highest number seen.
    beyond_highest: u64,
    /// The chunk that the last number fell into, if there was room for it.
    chunk: Option<Arc<Chunk>>,
    /// Its place.
    chunk_at: u64,
}

impl Flow {
    const NOWHERE: u64 = u64::MAX;

    fn new() -> Self {
        Self { beyond_highest: 0, chunk: None, chunk_at: Self::NOWHERE }
    }
}

#[derive(Debug)]
struct Slot {
    /// Run id and size of the settings, at hand for every datagram.
    run: u32,
    size_bytes: usize,
    source: Option<IpAddr>,
    settings: Arc<AuditSettings>,
    number: u64,
    /// Whether its warm-up is over.
    started: bool,
    book: Arc<Book>,
    flows: Box<[Flow]>,
    until_verify: u32,
    until_latency: u32,
    /// The bits that must be zero in a proof of reading that is kept.
    proof_mask: u32,
}

/// Takes the account of one thread.
#[derive(Debug)]
pub struct Auditor {
    audit: Arc<Audit>,
    loose: Arc<Loose>,
    epoch: u64,
    slots: Vec<Slot>,
    /// The slot of the last datagram: the next one is of the same run, nearly always.
    current: usize,
}

impl Auditor {
    pub(super) fn new(audit: Arc<Audit>, loose: Arc<Loose>) -> Self {
        // Runs begin with epoch 1, so that the first datagram looks for them.
        Self { audit, loose, epoch: 0, slots: Vec::new(), current: 0 }
    }

    /// Takes a datagram into the account. `now` gives the time in ns of [`crate::clock`];
    /// it is called only for the datagrams whose time is taken. For whoever does not know the
    /// source: it is taken for that of the generator.
    #[inline]
    pub fn record(&mut self, datagram: &[u8], now: impl FnOnce() -> u64) -> Verdict {
        self.account(datagram, None, now)
    }

    /// The same for a datagram of a known source. One of a run that has another is a stranger.
    #[inline]
    pub fn record_from(
        &mut self,
        source: IpAddr,
        datagram: &[u8],
        now: impl FnOnce() -> u64,
    ) -> Verdict {
        self.account(datagram, Some(source), now)
    }

    /// The same now. It is compiled here, for speed, though its caller may be optimized for size.
    pub fn record_now(&mut self, source: IpAddr, datagram: &[u8]) -> Verdict {
        self.account(datagram, Some(source), now_ns)
    }

    #[inline]
    fn account(
        &mut self,
        datagram: &[u8],
        source: Option<IpAddr>,
        now: impl FnOnce() -> u64,
    ) -> Verdict {
        if self.audit.epoch.load(Relaxed) != self.epoch {
            self.look_for_runs();
        }
        match Stamp::read(datagram) {
            Ok(stamp) => match self.find(stamp.run) {
                Some(slot) if !slot.is_of(source) => self.stranger(),
                Some(slot) => slot.stamped(datagram, stamp, now),
                None => self.of_no_run(stamp.run, datagram, source),
            },
            Err(NoStamp::Corrupt) => {
                self.loose.corrupt_headers.one();
                Verdict::Corrupt
            }
            Err(_) => self.without_stamp(datagram, source, now),
        }
    }

    #[inline]
    fn find(&mut self, run: u32) -> Option<&mut Slot> {
        if self.slots.get(self.current).is_none_or(|slot| slot.run != run) {
            self.current = self.slots.iter().position(|slot| slot.run == run)?;
        }
        self.slots.get_mut(self.current)
    }

    fn of_no_run(&self, run: u32, datagram: &[u8], source: Option<IpAddr>) -> Verdict {
        let is_its = |slot: &&Slot| slot.settings.warm_up_run == Some(run) && slot.is_of(source);
        match self.slots.iter().find(is_its) {
            Some(slot) => slot.of_warm_up(datagram),
            None => self.stranger(),
        }
    }

    fn stranger(&self) -> Verdict {
        self.loose.strangers.one();
        Verdict::Stranger
    }

    fn without_stamp(
        &mut self,
        datagram: &[u8],
        source: Option<IpAddr>,
        now: impl FnOnce() -> u64,
    ) -> Verdict {
        let is_its = |slot: &Slot| {
            slot.size_bytes < STAMP_BYTES && slot.size_bytes == datagram.len() && slot.is_of(source)
        };
        let Some(slot) = self.slots.iter_mut().find(|slot| is_its(slot)) else {
            return self.stranger();
        };
        if !slot.started {
            return slot.of_warm_up(datagram);
        }
        slot.arrived(datagram);
        slot.book.unstamped.one();
        slot.take_time(None, now);
        if slot.is_to_verify() && !slot.verify(datagram) {
            return Verdict::Corrupt;
        }
        Verdict::Unstamped
    }

    #[cold]
    fn look_for_runs(&mut self) {
        let mut state = self.audit.lock();
        self.epoch = self.audit.epoch.load(Acquire);
        self.slots.retain(|slot| state.runs.iter().any(|run| run.number == slot.number));
        for run in &mut state.runs {
            if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == run.number) {
                slot.started = run.started;
                continue;
            }
            let book = Arc::new(Book::new(run.settings.bitmap_bytes_max, &self.audit.budget));
            run.books.push(Arc::clone(&book));
            self.slots.push(Slot {
                run: run.settings.run,
                size_bytes: run.settings.size_bytes,
                source: run.settings.source,
                settings: Arc::clone(&run.settings),
                number: run.number,
                started: run.started,
                book,
                flows: (0..run.settings.flows).map(|_| Flow::new()).collect(),
                until_verify: 1,
                until_latency: 1,
                proof_mask: 0,
            });
        }
        self.current = 0;
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.audit.retire(&self.loose);
    }
}

impl Slot {
    /// Whether a datagram of this source can be its.
    #[inline]
    fn is_of(&self, source: Option<IpAddr>) -> bool {
        match (source, self.source) {
            (Some(source), Some(own)) => source == own || source.to_canonical() == own,
            _ => true,
        }
    }

    fn of_warm_up(&self, datagram: &[u8]) -> Verdict {
        self.book.warm_up.one();
        self.book.warm_up_bytes.add(datagram.len() as u64);
        Verdict::WarmUp
    }

    #[inline]
    fn arrived(&self, datagram: &[u8]) {
        self.book.received.one();
        self.book.bytes.add(datagram.len() as u64);
    }

    #[inline]
    fn stamped(&mut self, datagram: &[u8], stamp: Stamp, now: impl FnOnce() -> u64) -> Verdict {
        self.arrived(datagram);
        self.take_time(Some(stamp.due_ns), now);
        let mut verdict = self.in_sequence(stamp);
        if datagram.len() != self.size_bytes {
            self.book.wrong_size.one();
            verdict = Verdict::WrongSize;
        }
        if self.is_to_verify() && !self.verify(datagram) {
            verdict = Verdict::Corrupt;
        }
        verdict
    }

    #[inline]
    fn in_sequence(&mut self, stamp: Stamp) -> Verdict {
        let Some(flow) = self.flows.get_mut(usize::from(stamp.flow)) else {
            self.book.unknown_flow.one();
            return Verdict::Stranger;
        };
        let mut verdict = Verdict::Intact;
        if stamp.sequence < flow.beyond_highest {
            verdict = Verdict::Reordered;
        } else {
            flow.beyond_highest = stamp.sequence.saturating_add(1);
        }
        let chunk_at = stamp.sequence / CHUNK_NUMBERS;
        if flow.chunk_at != chunk_at {
            flow.chunk = self.book.chunk((stamp.flow, chunk_at));
            flow.chunk_at = chunk_at;
        }
        match &flow.chunk {
            Some(chunk) if chunk.mark(stamp.sequence) => {
                // A second copy is no reordering.
                self.book.duplicates.one();
                return Verdict::Duplicate;
            }
            Some(_) => {}
            None => self.book.untracked.one(),
        }
        if stamp.proof & self.proof_mask == 0 {
            self.proof_mask = self.book.keep_proof((stamp.flow, stamp.sequence, stamp.proof));
        }
        if verdict == Verdict::Reordered {
            self.book.reordered.one();
        }
        verdict
    }

    #[inline]
    fn take_time(&mut self, due_ns: Option<u64>, now: impl FnOnce() -> u64) {
        self.until_latency -= 1;
        if self.until_latency != 0 {
            return;
        }
        self.until_latency = self.settings.latency_every;
        let now_ns = now();
        if self.book.first_ns.load(Relaxed) == 0 {
            self.book.first_ns.store(now_ns, Relaxed);
        }
        self.book.last_ns.store(now_ns, Relaxed);
        let Some(due_ns) = due_ns else { return };
        let offset_ns = self.settings.clock_offset_ns;
        // By the own clock.
        let due_ns = due_ns.wrapping_sub(offset_ns.unwrap_or(0) as u64);
        match now_ns.checked_sub(due_ns) {
            Some(latency_ns) => self.book.latencies.record(latency_ns),
            None => {
                self.book.clock_disagreements.one();
                if offset_ns.is_some() {
                    self.book.latencies.record(0);
                }
            }
        }
    }

    #[inline]
    fn is_to_verify(&mut self) -> bool {
        self.until_verify -= 1;
        if self.until_verify == 0 {
            self.until_verify = self.settings.verify_every;
            return true;
        }
        false
    }

    fn verify(&self, datagram: &[u8]) -> bool {
        self.book.bodies_checked.one();
        let intact = body_is_intact(datagram);
        if !intact {
            self.book.corrupt_bodies.one();
        }
        intact
    }
}
