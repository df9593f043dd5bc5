//! The columns of the tables: what each shows of a row under a load.

use super::strategies;
use crate::report::columns::Column;
use crate::report::number::UNKNOWN;
use crate::tcp::results::{Results, Tcp};
use crate::tcp::sample::{
    CONTEXT_SWITCHES, CPU, CPU_PER_BYTE, FEWEST_FOR_KERNEL_MEMORY, KERNEL_ENTRIES, KERNEL_MEMORY,
    LATENCY_P50, LATENCY_P99, MEMORY, MESSAGES, RECEIVED, SENT, SERVED, SERVER_CPU, Sample,
    THREADS, WAITS,
};

/// The columns of a load: the result first, then why.
pub fn of(results: &Results, load: usize) -> Vec<Column<Tcp>> {
    let of = &results.loads[load];
    if of.mix.is_some() {
        return strategies::columns(of);
    }
    let has_rate = of.block_bytes_per_s.is_some();
    let mut columns = vec![
        if has_rate { Column::of(&MESSAGES) } else { Column::bounded(&MESSAGES) },
        Column::spread(&MESSAGES),
        Column::to_best(),
    ];
    // Bytes in both directions: what matters where messages are long, and where the original had no other figure.
    if has_rate || of.message_bytes >= 1024 {
        columns.extend([Column::of(&SENT), Column::of(&RECEIVED)]);
    }
    columns.extend([
        Column::parts("round trip µs\np50/p99", &[&LATENCY_P50, &LATENCY_P99]),
        Column::of(&CPU),
        Column::of(&CPU_PER_BYTE),
        Column::of(&SERVER_CPU),
        Column::limited_by(),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&WAITS),
        Column::of(&CONTEXT_SWITCHES),
        Column::of(&THREADS),
        Column::of(&MEMORY),
        Column::figure(KERNEL_MEMORY.heading, KERNEL_MEMORY.about, |at| {
            let enough = |sample: &Sample| sample.connected >= FEWEST_FOR_KERNEL_MEMORY;
            match at.cell().samples.iter().all(enough) {
                true => at.text(&KERNEL_MEMORY),
                false => UNKNOWN.into(),
            }
        }),
        Column::figure(SERVED.heading, SERVED.about, |at| {
            let fewest = at.cell().standing().min_by_key(|sample: &&Sample| sample.served());
            fewest.map_or_else(|| UNKNOWN.into(), |s| format!("{}/{}", s.served(), s.asked))
        }),
    ]);
    columns
}
