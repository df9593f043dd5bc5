//! The laboratory of weir: plans, runs, ledgers, statistics, verdicts and reports.

pub mod ledger;
pub mod plan;
pub mod random;
pub mod stats;
pub mod verdict;
