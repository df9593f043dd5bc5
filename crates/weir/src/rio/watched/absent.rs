//! Where there is nothing that a reactor could watch: weir's providers here tell by their own waits alone.

use crate::socket::DatagramSocket;

/// Something that tells that a completion queue has something: there is none on this system.
#[derive(Debug, Clone)]
pub enum Watched {}

impl Watched {
    /// What would be watched of a socket: nothing.
    pub(crate) fn all_of<'a>(_: impl Iterator<Item = &'a DatagramSocket>) -> Vec<Self> {
        Vec::new()
    }
}
