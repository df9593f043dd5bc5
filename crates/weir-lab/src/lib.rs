//! The laboratory of weir: plans, runs, ledgers, statistics, verdicts and reports.
//!
//! What all comparisons have in common is in [`experiment`], [`stats`] and [`report`]. What is particular to a study (what it
//! compares, and how) is in a folder of its own: [`udp`], [`tcp`] and [`device`], which [`studies`] lists.

#![forbid(unsafe_code)]

pub mod child;
pub mod device;
pub mod exit;
pub mod experiment;
pub mod hosts;
pub mod iops;
pub mod machine;
pub mod performance;
pub mod report;
pub mod saved;
pub mod simulate;
pub mod stats;
pub mod studies;
pub mod tcp;
pub mod udp;
pub mod wire;
