//! Groups as epoll sets.

use crate::{
    Error, Unavailable,
    readiness::{Epoll, Trigger},
};

pub use crate::readiness::Epoll as Set;

/// The name of the provider.
pub const PROVIDER: &str = Epoll::PROVIDER;

/// An epoll set has no limit of its own.
pub const MOST: u32 = 65_536;

/// Whether the system has it, by trying.
pub fn availability() -> Result<(), Unavailable> {
    Epoll::availability()
}

/// Handles of which one wait finds out that they are ready: as many as a group of the original has.
const FOUND_AT_ONCE: usize = 64;

/// An empty set.
pub fn new() -> Result<Set, Error> {
    Epoll::new(FOUND_AT_ONCE, Trigger::Level)
}
