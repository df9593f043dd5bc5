//! How long a generator may flood without a sign of the server.
//!
//! The server renews the lease every half second while a run is on. When it lapses no datagram
//! leaves any more; the flood ends when the control connection turns out to have nothing to say, and
//! goes on if a renewal lay there unread, because it was this machine that stood still.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The longest that a flood goes on without a sign of the server, in ns.
pub const LEASE_NS: u64 = 2_000_000_000;

/// A lease that the thread that hears the server renews, and that every generator reads before it
/// sends.
#[derive(Debug, Default)]
pub struct Lease {
    /// The time of the last sign, in ns of [`crate::clock`].
    sign_ns: AtomicU64,
    /// Whether a server is there that must give signs now.
    armed: AtomicBool,
}

impl Lease {
    /// There was a sign of the server.
    pub fn renew(&self, now_ns: u64) {
        self.sign_ns.fetch_max(now_ns, Relaxed);
    }

    /// When the last sign was.
    #[cfg(test)]
    pub(crate) fn sign_ns(&self) -> u64 {
        self.sign_ns.load(Relaxed)
    }

    /// From now on signs are due; the server has just given one. They are until what is returned is
    /// dropped.
    pub fn arm(&self, now_ns: u64) -> impl Drop + use<'_> {
        struct Armed<'a>(&'a Lease);
        impl Drop for Armed<'_> {
            fn drop(&mut self) {
                self.0.armed.store(false, Relaxed);
            }
        }
        self.renew(now_ns);
        self.armed.store(true, Relaxed);
        Armed(self)
    }

    /// Whether datagrams may leave.
    #[inline]
    pub fn holds(&self, now_ns: u64) -> bool {
        !self.armed.load(Relaxed) || now_ns.saturating_sub(self.sign_ns.load(Relaxed)) < LEASE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lapses_when_no_sign_came_and_holds_again_after_one() {
        let lease = Lease::default();
        assert!(lease.holds(u64::MAX), "no server, no lease");
        let armed = lease.arm(5);
        assert!(lease.holds(5) && lease.holds(4 + LEASE_NS));
        assert!(!lease.holds(5 + LEASE_NS));
        lease.renew(6);
        assert!(lease.holds(5 + LEASE_NS) && !lease.holds(6 + LEASE_NS));
        lease.renew(1);
        assert!(lease.holds(5 + LEASE_NS), "an earlier sign takes nothing back");
        drop(armed);
        assert!(lease.holds(u64::MAX), "nothing is due between two phases");
    }
}
