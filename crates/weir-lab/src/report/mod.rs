//! What a person reads ([`table`], [`sentences`]) and what a program reads ([`json`]).

pub mod columns;
#[cfg(test)]
mod fixture;
pub mod json;
pub mod number;
pub mod peers;
pub mod published;
pub mod sentences;
pub mod table;
