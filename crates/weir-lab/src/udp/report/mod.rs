//! What a person reads ([`table`], [`sentences`]) and what a program reads ([`json`]).

pub mod answers;
pub mod columns;
#[cfg(test)]
pub(crate) mod fixture;
mod gains;
pub mod json;
mod json_sweeps;
pub mod link;
pub mod peers;
pub mod published;
pub mod sentences;
mod sweeps;
pub mod table;
