//! Registered I/O of Winsock: what the contract is made after.
//!
//! The memory of a region is registered once (RIORegisterBuffer), which locks its pages in place. A receive names a slice
//! of it, and so does a send; each is a store into a queue that the process shares with the kernel, and all that were made
//! together become known by one call (RIO_MSG_DEFER, then RIO_MSG_COMMIT_ONLY). Completions appear in a queue that is
//! shared memory, too, and are taken without a call (RIODequeueCompletion). Whoever has nothing to do asks for one
//! notification (RIONotify) and waits for it: by an event where the queues stay on one thread, at a completion port where
//! they are handed over, so that the system delivers the turn ([`TurnPort`](super::turn::TurnPort)).
//!
//! Cost: a call for each commit, and for each wait two. The kernel fills receives of a socket in the order posted, and
//! what finds none waits in the socket's buffer.
//!
//! How it fails: neither queue is synchronised, so two threads at once in one of them corrupt it, after which a dequeue
//! says so (RIO_CORRUPT_CQ); by the types of this contract that does not compile. A completion queue must have room for
//! all that the request queues may have outstanding, and any socket may have all receives, so there are places for
//! receives times sockets. Locked memory counts towards the process's working set. Nothing can be cancelled: closing the
//! socket ends what is outstanding.
//!
//! A request sends one datagram. A slice that holds several comes back when the last of them has been sent, each of them
//! posted when the one before has completed.
//!
//! Written after the documentation, and tested against a stand-in of the same functions on plain sockets, under Wine,
//! which has no registered I/O: it has never run on Windows.
//!
//! Origin: Windows 8 and Windows Server 2012; Holgate's tests of it, 2012.

#[cfg(windows)]
mod windows;

#[cfg(all(windows, any(test, feature = "fake")))]
pub use windows::stand_in;
#[cfg(windows)]
pub use windows::{WinsockCompletions, WinsockOpened, WinsockRequests};

/// Registered I/O of Winsock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Winsock {
    #[cfg(windows)]
    calls: windows::Calls,
}

#[cfg(not(windows))]
impl Winsock {
    /// Why it cannot run here.
    pub(crate) fn absent(self) -> crate::Unavailable {
        crate::Unavailable::new("provider winsock", "Winsock is a mechanism of Windows")
            .advise("use another provider")
    }
}
