//! The laboratory of weir: plans, runs, ledgers, statistics, verdicts and reports.

#![forbid(unsafe_code)]

pub mod belief;
pub mod bench;
pub mod blocks;
pub mod cell;
pub mod child;
pub mod compared;
pub mod course;
pub mod crossing;
pub mod curve;
pub mod descriptors;
pub mod devices;
pub mod exit;
pub mod experiment;
pub mod iops;
pub mod kernel_memory;
pub mod latency;
pub mod ledger;
pub mod link;
pub mod machine;
pub mod offload;
pub mod plan;
pub mod random;
pub mod ranking;
pub mod repeat;
pub mod report;
pub mod results;
pub mod sample;
pub mod stats;
pub mod tcp;
pub mod verdict;
pub mod wire;
