//! The laboratory of weir: plans, runs, ledgers, statistics, verdicts and reports.

pub mod random;
pub mod stats;
