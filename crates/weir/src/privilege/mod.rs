//! Giving up what was needed to set a server up, and is needed no more once it runs.
//!
//! On Linux privilege belongs to each thread. So a server's threads give theirs up where
//! [`Server::give_up_privilege`](crate::udp::Server::give_up_privilege) asks for it, and whoever started
//! it calls [`give_up`] for himself: threads that he starts afterwards have none. A thread of a provider's own,
//! which needs none, has none from its start.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
mod native {
    /// Nothing is given up here.
    pub const NAMES: &[&str] = &[];
    pub fn give_up() -> std::io::Result<()> {
        Ok(())
    }
}

pub use native::NAMES;

/// Takes from the calling thread, for good, the privilege that a server needs at most while it is set
/// up ([`NAMES`]); none where it has none.
///
/// # Errors
/// What the operating system answered.
pub fn give_up() -> std::io::Result<()> {
    native::give_up()
}
