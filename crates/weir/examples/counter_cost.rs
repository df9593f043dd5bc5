//! What the counters cost a design: ns for each datagram, against the same loop without.
//!
//! The loop is that of a design, without the kernel: take a batch, look at each datagram,
//! give its slice back. With counters it counts, for each datagram, the datagram, its bytes
//! and the post; for each batch, the dequeue with its size, and the kernel entry. Both are
//! timed in turn, so that a machine that changes speed changes both; the cost is the median
//! of the differences.
//!
//! ```text
//! cargo run --release -p weir-io --example counter_cost
//! ```

use std::hint::black_box;
use std::time::Instant;
use weir::counters::Counters;

/// More is too much to leave them on.
const BOUND_NS: f64 = 10.0;
const BATCHES: [usize; 3] = [1, 8, 64];
const ROUNDS: usize = 301;
const DATAGRAMS_PER_ROUND: usize = 64 * 2000;
const SLICES: usize = 256;
const SLICE_BYTES: usize = 64;

/// One round; the time for each datagram, in ns.
fn round<const COUNTED: bool>(slices: &[[u8; SLICE_BYTES]], batch: usize, own: &Counters) -> f64 {
    let mut sum = 0u64;
    let start = Instant::now();
    for n in 0..DATAGRAMS_PER_ROUND / batch {
        let at = n * batch % SLICES;
        // How many came is known to a design only when they came.
        let datagrams = &slices[at..at + black_box(batch)];
        if COUNTED {
            own.kernel_entries.one();
            own.dequeued(datagrams.len());
        }
        for datagram in datagrams {
            // The least a handler does: look at the first byte. The compiler may not do
            // several datagrams at once, as no design could; but nothing makes a datagram
            // wait for the one before, so that the processor cannot hide the counters behind
            // such a wait: a real loop has more to do and hides more of them.
            let payload = black_box(&datagram[..]);
            sum += u64::from(payload[0]);
            if COUNTED {
                own.datagrams.one();
                own.bytes.add(payload.len() as u64);
                own.posts.one();
            }
        }
    }
    black_box(sum);
    start.elapsed().as_nanos() as f64 / DATAGRAMS_PER_ROUND as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let slices = vec![[1u8; SLICE_BYTES]; SLICES];
    let counters = Counters::default();
    let mut samples = vec![(Vec::new(), Vec::new()); BATCHES.len()];
    for n in 0..ROUNDS {
        for (batch, (without, with)) in BATCHES.iter().zip(&mut samples) {
            // Who goes first changes, so that neither always finds the caches warmer.
            if n % 2 == 0 {
                without.push(round::<false>(&slices, *batch, &counters));
                with.push(round::<true>(&slices, *batch, &counters));
            } else {
                with.push(round::<true>(&slices, *batch, &counters));
                without.push(round::<false>(&slices, *batch, &counters));
            }
        }
    }
    let counted = counters.snapshot();
    assert_eq!(counted.datagrams, (ROUNDS * BATCHES.len() * DATAGRAMS_PER_ROUND) as u64);
    assert_eq!(counted.batches.max, BATCHES[BATCHES.len() - 1] as u64);

    println!("ns for each datagram, medians of {ROUNDS} rounds in turn");
    println!("{:>5}  {:>8}  {:>8}  {:>8}", "batch", "without", "with", "counters");
    for (batch, (without, with)) in BATCHES.iter().zip(samples) {
        let cost =
            median(with.iter().zip(&without).map(|(with, without)| with - without).collect());
        let verdict = if cost <= BOUND_NS { "" } else { "  above the bound" };
        println!(
            "{batch:>5}  {:>8.2}  {:>8.2}  {cost:>8.2}{verdict}",
            median(without),
            median(with)
        );
    }
    println!("bound: {BOUND_NS} ns for each datagram");
}
