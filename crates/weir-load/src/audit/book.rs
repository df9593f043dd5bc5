//! What one thread counted in one run: written by that thread, readable by all.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use weir::counters::Counter;

use super::CHUNK_NUMBERS;
use crate::{
    latency::Latencies,
    lock::lock,
    proof::{Sieve, Value},
};

const WORDS: usize = (CHUNK_NUMBERS / 64) as usize;

/// How many bytes of bitmaps there may still be, over all runs and threads of an audit.
#[derive(Debug, Default)]
pub(super) struct BitmapBudget {
    bytes: AtomicUsize,
}

impl BitmapBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes: AtomicUsize::new(bytes) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn take(&self) -> bool {
        self.bytes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(Chunk::BYTES)).is_ok()
    }
}

/// Which numbers of a range of [`CHUNK_NUMBERS`] arrived.
#[derive(Debug)]
pub(super) struct Chunk {
    words: [AtomicU64; WORDS],
    budget: Arc<BitmapBudget>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.budget.bytes.fetch_add(Self::BYTES, Relaxed);
    }
}

impl Chunk {
    pub(super) const BYTES: usize = WORDS * 8;

    fn new(budget: &Arc<BitmapBudget>) -> Option<Self> {
        let words = [const { AtomicU64::new(0) }; WORDS];
        budget.take().then(|| Self { words, budget: Arc::clone(budget) })
    }

    /// Marks a number; says whether it was marked before. Only the owning thread may call
    /// this: a second writer would lose marks.
    #[inline]
    pub(super) fn mark(&self, sequence: u64) -> bool {
        let within = sequence % CHUNK_NUMBERS;
        let word = &self.words[(within / 64) as usize];
        let (before, bit) = (word.load(Relaxed), 1 << (within % 64));
        word.store(before | bit, Relaxed);
        before & bit != 0
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|word| word.load(Relaxed))
    }
}

/// Flow and number of a chunk within it.
pub(super) type ChunkKey = (u16, u64);

#[derive(Debug, Default)]
pub(super) struct Book {
    /// All datagrams of the run that arrived, whatever was wrong with them.
    pub received: Counter,
    pub bytes: Counter,
    /// Those of the warm-up, which are not among the received.
    pub warm_up: Counter,
    pub warm_up_bytes: Counter,
    pub unstamped: Counter,
    pub wrong_size: Counter,
    pub unknown_flow: Counter,
    pub bodies_checked: Counter,
    pub corrupt_bodies: Counter,
    /// Numbers that this thread had seen before.
    pub duplicates: Counter,
    pub reordered: Counter,
    pub untracked: Counter,
    /// Datagrams that arrived before they were due: the clocks are not the same.
    pub clock_disagreements: Counter,
    /// Time of the first datagram, and of the last whose time was taken; 0 if none.
    pub first_ns: AtomicU64,
    pub last_ns: AtomicU64,
    pub latencies: Latencies,
    proofs: Mutex<Sieve>,
    chunks_max: usize,
    budget: Arc<BitmapBudget>,
    /// None once the run is over.
    chunks: Mutex<Option<HashMap<ChunkKey, Arc<Chunk>>>>,
}

impl Book {
    pub(super) fn new(bitmap_bytes_max: usize, budget: &Arc<BitmapBudget>) -> Self {
        Self {
            proofs: Mutex::new(Sieve::with_room()),
            chunks_max: bitmap_bytes_max / Chunk::BYTES,
            budget: Arc::clone(budget),
            chunks: Mutex::new(Some(HashMap::new())),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<ChunkKey, Arc<Chunk>>>> {
        lock(&self.chunks)
    }

    /// The chunk of a key, made if there is none yet; `None` once a bound is reached.
    #[cold]
    pub(super) fn chunk(&self, key: ChunkKey) -> Option<Arc<Chunk>> {
        let mut chunks = self.lock();
        let chunks = chunks.as_mut()?;
        if let Some(chunk) = chunks.get(&key) {
            return Some(Arc::clone(chunk));
        }
        if chunks.len() >= self.chunks_max {
            return None;
        }
        let chunk = Arc::new(Chunk::new(&self.budget)?);
        chunks.insert(key, Arc::clone(&chunk));
        Some(chunk)
    }

    /// The run is over: gives its bitmaps back, but for the last one of each flow, which the thread
    /// gives back with the next datagram that it sees.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    /// Keeps a proof of reading; gives the bits that must be zero in the next. Of the first few thousand datagrams
    /// each is kept, and then a few thousand each time their number doubles. There is room for all; the lock is
    /// another thread's only while a report is made.
    #[cold]
    pub(super) fn keep_proof(&self, value: Value) -> u32 {
        let mut proofs = lock(&self.proofs);
        proofs.take(value);
        proofs.mask()
    }

    /// How many proofs it can hold before it must allocate.
    #[cfg(test)]
    pub(super) fn room_for_proofs(&self) -> usize {
        lock(&self.proofs).room()
    }

    /// Adds the proofs that were kept.
    pub(super) fn add_proofs_to(&self, all: &mut Sieve) {
        all.add(&lock(&self.proofs));
    }

    pub(super) fn chunks(&self) -> Vec<(ChunkKey, Arc<Chunk>)> {
        let chunks = self.lock();
        chunks.iter().flatten().map(|(key, chunk)| (*key, Arc::clone(chunk))).collect()
    }
}
