//! The comparison of TCP servers: what differs from that of UDP.
//!
//! Rounds, pairs, intervals, verdicts and tables are those of every comparison. There is no ledger of
//! datagrams here: TCP loses nothing, so every byte that was sent must have come back and was compared
//! with the one that was sent, and every message is answered or not.

pub mod bench;
pub mod classic;
pub mod experiment;
pub(crate) mod loaded;
pub mod mix;
pub mod peers;
pub mod plan;
pub mod policy;
pub mod processes;
pub mod report;
pub mod results;
pub mod rows;
pub mod sample;
pub mod search;
pub mod strategies;
pub(crate) mod together;
pub mod wire;
