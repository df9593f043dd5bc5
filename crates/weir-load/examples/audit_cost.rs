//! What stamping a datagram and accounting for it cost, in ns of one core.
//!
//! The datagram stays in the cache, so this is the work itself; fetching a received
//! datagram into the cache is paid by whoever touches it first.
//!
//! Run it on a quiet machine: `cargo run --release -p weir-load --example audit_cost`

use std::hint::black_box;

use weir_load::{
    audit::{Audit, AuditSettings},
    clock::now_ns,
    engine::{Batch, Datagrams, Head},
    proof::Secret,
};

const RUN: u32 = 1;
const BATCH: u32 = 64;
const BATCHES: u64 = 20_000;
const ROUNDS: usize = 11;

/// Stamps batches and shows them to an auditor; gives the ns that each datagram took to
/// stamp and to account for, the medians over rounds.
fn ns_each(size_bytes: usize, paced: bool) -> Result<(f64, f64), String> {
    let audit = Audit::new();
    audit.begin(AuditSettings::new(RUN, size_bytes, 1, paced))?;
    let mut auditor = audit.auditor();
    let mut datagrams = Datagrams::new(size_bytes, BATCH);
    let mut first_sequence = 0;
    let secret = Secret::random();
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let (mut stamping_ns, mut auditing_ns) = (0, 0);
            for _ in 0..BATCHES {
                let due_ns = now_ns();
                let batch = Batch {
                    run: RUN,
                    flow: 0,
                    first_sequence,
                    due_ns,
                    datagrams: BATCH,
                    secret,
                    head: Head::default(),
                };
                black_box(&mut datagrams).stamp(&batch);
                let stamped_ns = now_ns();
                for number in 0..BATCH {
                    black_box(auditor.record(black_box(datagrams.one(number)), now_ns));
                }
                auditing_ns += now_ns() - stamped_ns;
                stamping_ns += stamped_ns - due_ns;
                first_sequence += u64::from(BATCH);
            }
            let each = |ns: u64| ns as f64 / (BATCHES * u64::from(BATCH)) as f64;
            (each(stamping_ns), each(auditing_ns))
        })
        .collect();
    let mut median = |of: fn(&(f64, f64)) -> f64| {
        rounds.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&rounds[ROUNDS / 2])
    };
    Ok((median(|round| round.0), median(|round| round.1)))
}

fn main() -> Result<(), String> {
    println!("{:>6} {:>10} {:>18} {:>18}", "bytes", "stamp", "audit, sampled", "audit, all times");
    for size_bytes in [64, 1024] {
        let (stamping, sampled) = ns_each(size_bytes, false)?;
        let (_, all) = ns_each(size_bytes, true)?;
        println!("{size_bytes:>6} {stamping:>7.1} ns {sampled:>15.1} ns {all:>15.1} ns");
    }
    Ok(())
}
