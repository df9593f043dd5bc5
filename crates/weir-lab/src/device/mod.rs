//! The comparison of designs that read a device: what differs from that of UDP.
//!
//! Rounds, pairs, intervals, verdicts and tables are those of every comparison. There is one process for
//! each run, `weir iops`, since whoever asks is who answers: nothing comes from outside. What is counted is
//! exact (each I/O that was issued has completed or failed), so there is no ledger; what a design reads is
//! checked byte for byte before it is timed ([`check`]).

pub mod bench;
pub mod check;
pub mod crossing;
pub mod experiment;
pub mod fio;
pub mod plan;
pub mod processes;
pub mod report;
pub mod results;
pub mod rows;
pub mod sample;
pub mod wire;
