//! What a person reads ([`table`], [`sentences`]) and what a program reads ([`json`]).

pub mod columns;
#[cfg(test)]
mod fixture;
pub mod json;
pub mod link;
pub mod number;
pub mod published;
pub mod sentences;
pub mod table;
