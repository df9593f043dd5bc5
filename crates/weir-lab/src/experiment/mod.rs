//! What every comparison is made of, whatever it compares: rows and rounds, runs and the course they take,
//! and who wins.

pub mod blocks;
pub mod cell;
pub mod course;
pub mod descriptors;
pub mod plan;
pub mod ranking;
pub mod repeat;
pub mod results;
pub mod verdict;
