//! Errors of a send that say "not this datagram", told from those that say "none at all".

use std::io;

use crate::sys;

/// Why the operating system did not take a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The socket's send buffer was full (EAGAIN).
    WouldBlock,
    /// The device's queue was full (ENOBUFS).
    NoBuffers,
    /// An earlier datagram found no receiver (ECONNREFUSED): the system reports that with
    /// the next one and does not send it.
    ConnectionRefused,
    /// An earlier datagram found no host or network.
    Unreachable,
}

/// The refusal that an error stands for; `None` if a further send would fail the same way.
pub fn refusal_of(error: &io::Error) -> Option<Refusal> {
    if error.raw_os_error() == Some(sys::NO_BUFFERS) {
        return Some(Refusal::NoBuffers);
    }
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Some(Refusal::WouldBlock),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Some(Refusal::ConnectionRefused)
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Refusal::Unreachable)
        }
        _ => None,
    }
}

/// Refused datagrams by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Refusals {
    /// The socket's send buffer was full.
    pub would_block: u64,
    /// The device's queue was full.
    pub no_buffers: u64,
    /// Nobody listens there.
    pub connection_refused: u64,
    /// There is no way there.
    pub unreachable: u64,
    /// Not sent because of the error that ended the flood.
    pub failed: u64,
}

impl Refusals {
    /// Counts datagrams refused for one reason.
    pub fn add(&mut self, refusal: Refusal, datagrams: u64) {
        *match refusal {
            Refusal::WouldBlock => &mut self.would_block,
            Refusal::NoBuffers => &mut self.no_buffers,
            Refusal::ConnectionRefused => &mut self.connection_refused,
            Refusal::Unreachable => &mut self.unreachable,
        } += datagrams;
    }

    /// Adds another's counts to these.
    pub fn merge(&mut self, other: &Self) {
        self.would_block += other.would_block;
        self.no_buffers += other.no_buffers;
        self.connection_refused += other.connection_refused;
        self.unreachable += other.unreachable;
        self.failed += other.failed;
    }

    /// Datagrams refused for whichever reason.
    pub fn total(&self) -> u64 {
        let Self { would_block, no_buffers, connection_refused, unreachable, failed } = self;
        would_block + no_buffers + connection_refused + unreachable + failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures() {
        let of = |kind: io::ErrorKind| refusal_of(&kind.into());
        assert_eq!(of(io::ErrorKind::WouldBlock), Some(Refusal::WouldBlock));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Some(Refusal::ConnectionRefused));
        assert_eq!(of(io::ErrorKind::InvalidInput), None);
        assert_eq!(of(io::ErrorKind::PermissionDenied), None);
        let full = io::Error::from_raw_os_error(sys::NO_BUFFERS);
        assert_eq!(refusal_of(&full), Some(Refusal::NoBuffers));
    }
}
