//! The laboratory of weir: plans, runs, ledgers, statistics, verdicts and reports.
//!
//! What every comparison has in common stands in [`experiment`], [`stats`] and [`report`]; what is
//! compared, and how that differs, in a folder each: [`udp`], [`tcp`], [`device`], which [`studies`] lists.

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
