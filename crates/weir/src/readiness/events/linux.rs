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

/// An empty set, which tells one at a time.
pub fn new() -> Result<Set, Error> {
    Epoll::of_streams(1, Trigger::Level)
}
