//! The columns of the tables: what each shows of a row under a load.

use crate::device::results::{Devices, Results};
use crate::device::sample::{
    BYTES, CONTEXT_SWITCHES, CPU, CPU_SHARE, CPU_SYSTEM, HAND_OVERS, KERNEL_ENTRIES, LATENCY_P50,
    LATENCY_P99, RATE, TAKEN,
};
use crate::report::columns::{At, Column};
use crate::report::number::UNKNOWN;

/// The columns of a load: the result first, then why.
pub fn of(results: &Results, load: usize) -> Vec<Column<Devices>> {
    let mut columns = vec![
        Column::of(&RATE),
        Column::spread(&RATE),
        Column::to_best(),
        Column::to_measure("× sync\n", "the same ratio, to sync"),
    ];
    let mut samples = results.cells[load].iter().flat_map(|cell| &cell.samples);
    if samples.any(|sample| sample.made.bytes_per_s > 0.0) {
        columns.push(Column::of(&BYTES));
    }
    columns.extend([
        Column::parts("latency µs\np50/p99", &[&LATENCY_P50, &LATENCY_P99]),
        Column::figure(CPU.heading, CPU.about, cpu),
        Column::of(&CPU_SHARE),
        Column::limited_by(),
        Column::entries(&KERNEL_ENTRIES),
        Column::of(&TAKEN),
        Column::of(&CONTEXT_SWITCHES),
        Column::of(&HAND_OVERS),
    ]);
    columns
}

fn cpu(at: &At<Devices>) -> String {
    let (Some(all), system) = (at.median(&CPU), at.median(&CPU_SYSTEM)) else {
        return UNKNOWN.into();
    };
    match system {
        Some(system) => format!("{:.0}/{system:.0}", (all - system).max(0.0)),
        None => format!("{all:.0} in all"),
    }
}
