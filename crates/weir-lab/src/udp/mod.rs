//! The comparison of designs for UDP: what only that has.

pub mod belief;
pub mod bench;
pub mod bursts;
pub mod check;
pub mod crossing;
pub mod curve;
pub mod exchange;
pub mod experiment;
pub mod kernel_memory;
pub mod ledger;
pub mod link;
pub mod link_rows;
pub mod offload;
pub(crate) mod one_way;
pub mod plan;
pub mod processes;
pub mod replies;
pub mod report;
pub mod results;
pub mod rows;
pub mod sample;
pub(crate) mod together;
pub mod verdict;
