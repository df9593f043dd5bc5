//! What the hybrids share: keeping the queue while winning, giving it up when overwhelmed.

use super::crew::{Crew, dequeue_failed, wait_failed};
use crate::{
    Error,
    rio::{Batch, CompletionQueue, turn::Turn},
    udp::{Handler, Job, Worker},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What may be changed while the server runs.
#[derive(Clone)]
pub(super) struct Tuning {
    threshold: Arc<AtomicU64>,
    spin_us: Arc<AtomicU64>,
}

impl Tuning {
    pub(super) fn new<H: Handler>(
        job: &Job<H>,
        threshold: u32,
        dequeue_max: u32,
        spin_us: u64,
    ) -> Self {
        Self {
            threshold: job.tunable("threshold", threshold.into(), 1, dequeue_max.into()),
            spin_us: job.tunable("spin", spin_us, 0, 1_000_000),
        }
    }
}

/// A threshold that no dequeue can reach would be a mistake.
pub(super) fn threshold_within_dequeue(threshold: u32, dequeue_max: u32) -> Result<(), Error> {
    if threshold <= dequeue_max {
        return Ok(());
    }
    let problem = format!(
        "{threshold} can never be reached by a dequeue of at most {dequeue_max}; set it to at most dequeue-max, or raise that",
    );
    Err(Error::Option { name: "threshold".into(), problem })
}

/// Polls on for a while after the last datagram.
#[derive(Default)]
pub(super) struct Spin {
    empty_since: Option<Instant>,
}

impl Spin {
    /// Whether to look again rather than wait, after an empty dequeue.
    #[inline]
    pub(super) fn again(&mut self, tuning: &Tuning) -> bool {
        let spin_us = tuning.spin_us.load(Relaxed);
        if spin_us == 0 {
            return false;
        }
        let now = Instant::now();
        let since = *self.empty_since.get_or_insert(now);
        std::hint::spin_loop();
        now - since < Duration::from_micros(spin_us)
    }

    #[inline]
    pub(super) fn reset(&mut self) {
        self.empty_since = None;
    }
}

/// Takes the queue when it is this thread's turn, and keeps it for as long as dequeues bring
/// less than the threshold. What they bring goes to `handle`, after the queue was given up if
/// it was.
pub(super) fn run<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    crew: &Crew<Q>,
    tuning: &Tuning,
    mut handle: impl FnMut(&mut Worker<H>, &mut Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut batch = Batch::new(crew.per_dequeue);
    let mut spin = Spin::default();
    let counters = Arc::clone(&worker.counters);
    let mut held: Option<Turn<'_, Q>> = None;
    while !worker.stopping() {
        let mut turn = match held.take() {
            Some(turn) => turn,
            None => match crew.turns.take(worker.index, &counters).map_err(wait_failed)? {
                Some(turn) => turn,
                None => break,
            },
        };
        let received = turn.queue().dequeue(&mut batch, &counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        worker.hear_errors();
        if batch.is_empty() {
            if spin.again(tuning) {
                held = Some(turn);
                continue;
            }
            spin.reset();
            counters.notifies.one();
            held = turn.wait(&counters).map_err(wait_failed)?;
            continue;
        }
        spin.reset();
        if received as u64 >= tuning.threshold.load(Relaxed) {
            turn.notify(&counters); // overwhelmed: another thread may have the queue
        } else {
            held = Some(turn);
        }
        handle(worker, &mut batch)?;
    }
    Ok(())
}
