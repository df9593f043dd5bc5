//! The accounts of all threads laid over one another.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use serde::Serialize;

use super::{
    LooseCounts, Run,
    book::{Book, Chunk, ChunkKey},
};
use crate::{
    latency::{Histogram, Summary},
    proof::{Shown, Sieve},
    stamp::STAMP_BYTES,
};

/// What arrived of one run. Every count is one of datagrams.
///
/// `received` holds all that bear the run's id, whatever else was wrong with them; of
/// these, `duplicates`, `reordered`, `wrong_size`, `corrupt_bodies` and `unknown_flow` are
/// parts, and one datagram may be in several of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditReport {
    /// Run id.
    pub run: u32,
    /// All that arrived.
    pub received: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Sent and never seen; `None` if it is not known what was sent.
    pub lost: Option<u64>,
    /// Whether some of what was sent and not seen may be hidden in `untracked`: then
    /// `lost` is the least that it can be.
    pub lost_is_lower_bound: bool,
    /// Arrived again, on whichever thread.
    pub duplicates: u64,
    /// Arrived with a number below the highest that the same thread had seen in its flow.
    pub reordered: u64,
    /// With another size than the run's.
    pub wrong_size: u64,
    /// Whose body was compared.
    pub bodies_checked: u64,
    /// Whose body had been changed.
    pub corrupt_bodies: u64,
    /// Whose stamp had been changed, so that their run cannot be known: all that arrived
    /// during this one.
    pub corrupt_headers: u64,
    /// With a flow number that the run does not have.
    pub unknown_flow: u64,
    /// Of no open run, during this one. Not in `received`.
    pub strangers: u64,
    /// Of its warm-up. Not in `received`.
    pub warm_up: u64,
    /// Too short for a stamp: only counted.
    pub unstamped: u64,
    /// Whose number no bitmap had room for.
    pub untracked: u64,
    /// That arrived before they were due: the clocks are not the same, and latencies mean
    /// nothing, unless it was measured how they stand to one another: that may be wrong by a little.
    pub clock_disagreements: u64,
    /// Time of the first datagram, in ns of the receiver's [`crate::clock`].
    pub first_ns: Option<u64>,
    /// Time of the last whose time was taken.
    pub last_ns: Option<u64>,
    /// Datagrams per second from the first to the last; `None` for fewer than two times.
    pub received_per_s: Option<f64>,
    /// One-way latency in ns, from the time at which a datagram was due (see
    /// [`crate::stamp`]) to the account.
    pub latency_ns: Option<Summary>,
    /// Of every so-many-th datagram of each thread the latency was taken.
    pub latency_every: u32,
    /// Whether anything arrived that was not sent like that: changed, doubled, of another
    /// size or flow. Losses and reordering are no such errors, for UDP promises neither.
    pub data_errors: bool,
    /// The run's flows in order; empty for datagrams without stamps.
    pub flows: Vec<FlowReport>,
    /// What shows that the datagrams were read.
    #[serde(skip)]
    pub proof: Shown,
    /// The latencies, to be merged with those of other runs.
    #[serde(rename = "latency_histogram")]
    pub latencies: Histogram,
}

/// One flow of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    /// Different numbers that arrived, of those that were tracked.
    pub seen: u64,
    /// What the generator says it sent.
    pub sent: Option<u64>,
    /// `sent` less `seen`.
    pub lost: Option<u64>,
}

/// Lays the bitmaps of all threads over one another: different numbers per flow, and how
/// often a number was marked on a further thread.
fn lay_over(books: &[Arc<Book>], flows: usize) -> (Vec<u64>, u64) {
    let mut by_place: BTreeMap<ChunkKey, Vec<Arc<Chunk>>> = BTreeMap::new();
    for (key, chunk) in books.iter().flat_map(|book| book.chunks()) {
        by_place.entry(key).or_default().push(chunk);
    }
    let (mut seen, mut again) = (vec![0; flows], 0);
    for ((flow, _), chunks) in &by_place {
        let mut words: Vec<u64> = chunks[0].words().collect();
        for chunk in &chunks[1..] {
            for (word, more) in words.iter_mut().zip(chunk.words()) {
                again += u64::from((*word & more).count_ones());
                *word |= more;
            }
        }
        let marked: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        seen[usize::from(*flow)] += marked;
    }
    (seen, again)
}

impl AuditReport {
    pub(super) fn of(run: &Run, loose: LooseCounts, sent_per_flow: Option<&[u64]>) -> Self {
        let settings = &run.settings;
        let stamped = settings.size_bytes >= STAMP_BYTES;
        let sum = |count: fn(&Book) -> u64| run.books.iter().map(|book| count(book)).sum::<u64>();
        let received = run.received();
        let untracked = sum(|b| b.untracked.get());

        let (seen, seen_again) = lay_over(&run.books, settings.flows);
        let sent_of = |flow: usize| Some(sent_per_flow?.get(flow).copied().unwrap_or(0));
        let flow_report = |(flow, seen): (usize, &u64)| {
            let sent = sent_of(flow);
            FlowReport { seen: *seen, sent, lost: sent.map(|sent| sent.saturating_sub(*seen)) }
        };
        let arrived_once = if stamped { seen.iter().sum::<u64>() + untracked } else { received };
        let lost = sent_per_flow.map(|sent| sent.iter().sum::<u64>().saturating_sub(arrived_once));

        let mut latencies = Histogram::default();
        run.books.iter().for_each(|book| book.latencies.add_to(&mut latencies));
        let mut proofs = Sieve::default();
        run.books.iter().for_each(|book| book.add_proofs_to(&mut proofs));
        let times = |time: fn(&Book) -> u64| {
            run.books.iter().map(move |book| time(book)).filter(|ns| *ns != 0)
        };
        let first_ns = times(|b| b.first_ns.load(Relaxed)).min();
        let last_ns = times(|b| b.last_ns.load(Relaxed)).max();
        let elapsed_ns = first_ns.zip(last_ns).map(|(first, last)| last.saturating_sub(first));

        let mut report = Self {
            run: settings.run,
            received,
            bytes: sum(|b| b.bytes.get()),
            lost,
            lost_is_lower_bound: untracked > 0,
            duplicates: sum(|b| b.duplicates.get()) + seen_again,
            reordered: sum(|b| b.reordered.get()),
            wrong_size: sum(|b| b.wrong_size.get()),
            bodies_checked: sum(|b| b.bodies_checked.get()),
            corrupt_bodies: sum(|b| b.corrupt_bodies.get()),
            corrupt_headers: loose.corrupt_headers - run.loose_before.corrupt_headers,
            unknown_flow: sum(|b| b.unknown_flow.get()),
            strangers: loose.strangers - run.loose_before.strangers,
            warm_up: run.warm_up(),
            unstamped: sum(|b| b.unstamped.get()),
            untracked,
            clock_disagreements: sum(|b| b.clock_disagreements.get()),
            first_ns,
            last_ns,
            received_per_s: elapsed_ns
                .filter(|ns| *ns > 0)
                .map(|ns| received as f64 * 1e9 / ns as f64),
            latency_ns: latencies.summary(),
            latency_every: settings.latency_every,
            data_errors: false,
            proof: proofs.shown(),
            flows: if stamped {
                seen.iter().enumerate().map(flow_report).collect()
            } else {
                Vec::new()
            },
            latencies,
        };
        report.judge();
        report
    }

    /// Adds what arrived of another run at the same time, of one server: what belongs to no run counts once.
    pub fn merge(&mut self, other: Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.received += other.received;
        self.bytes += other.bytes;
        self.lost = both(self.lost, other.lost);
        self.lost_is_lower_bound |= other.lost_is_lower_bound;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.wrong_size += other.wrong_size;
        self.bodies_checked += other.bodies_checked;
        self.corrupt_bodies += other.corrupt_bodies;
        self.corrupt_headers = self.corrupt_headers.max(other.corrupt_headers);
        self.unknown_flow += other.unknown_flow;
        self.strangers = self.strangers.max(other.strangers);
        self.warm_up += other.warm_up;
        self.unstamped += other.unstamped;
        self.untracked += other.untracked;
        self.clock_disagreements += other.clock_disagreements;
        self.first_ns = self.first_ns.into_iter().chain(other.first_ns).min();
        self.last_ns = self.last_ns.into_iter().chain(other.last_ns).max();
        let elapsed_ns = self.first_ns.zip(self.last_ns).map(|(a, b)| b.saturating_sub(a));
        self.received_per_s =
            elapsed_ns.filter(|ns| *ns > 0).map(|ns| self.received as f64 * 1e9 / ns as f64);
        self.latencies.merge(&other.latencies);
        self.latency_ns = self.latencies.summary();
        self.flows.extend(other.flows);
        self.judge();
    }

    /// Says whether anything arrived that was not sent like that.
    fn judge(&mut self) {
        let wrong = [
            self.duplicates,
            self.wrong_size,
            self.corrupt_bodies,
            self.corrupt_headers,
            self.unknown_flow,
        ];
        self.data_errors = wrong.iter().any(|count| *count > 0);
    }
}
