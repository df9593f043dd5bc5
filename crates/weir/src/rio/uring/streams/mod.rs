//! Registered I/O for streams, on io_uring.
//!
//! Each thread has a ring, or several (below). Connections are accepted straight into a table of files
//! that belongs to the ring (direct descriptors): an operation on one need not look a descriptor up, and
//! the process uses none up. Each connection has one *multishot* receive under way, which takes a slice from
//! a ring of provided buffers when something came; so an idle connection holds no slice. Or, with
//! [`Receiving::Posted`](crate::rio::streams::Receiving), one receive with a slice of its own. What is asked
//! for is written into the submission queue, and one entry into the kernel submits it all and brings
//! what completed meanwhile.
//!
//! Cost: one entry into the kernel for each batch, and one more before a wait; for each message a completion
//! for what was received and one for what was sent.
//!
//! How it fails: it is forbidden in many containers. A table holds at most as many files as the process
//! may have descriptors (RLIMIT_NOFILE), so a thread with more connections makes further rings as they come,
//! and watches them by one eventfd from its first. Ending one direction only (shutdown(2)) is done by a
//! thread of the kernel's own, since IORING_OP_SHUTDOWN always is: costly, so it is asked for only where the
//! peer has not ended before.
//!
//! Accepting is asked for one connection at a time, some dozens at once, and not by a multishot accept:
//! that cannot say which address each connection came from; and it takes a connection from the
//! backlog before it finds that the table is full, which loses it. A request of its own has a place in the
//! table before it is made.
//!
//! Of several receives posted for one connection the kernel holds one at a time, the others follow: several
//! at once would complete in any order.
//!
//! A connection of a Unix socket asks for each receive by itself: where the peer ends it right behind what it sends, a
//! multishot receive can bring the bytes and never the end (liburing issue 1549; on 6.18.44 still, under load and behind
//! much data). TCP is not concerned: its sockets say that more is to be read once the end is there.
//!
//! Since Linux 6.7: options of a socket and its count of waiting bytes as requests (IORING_OP_URING_CMD).

#[cfg(target_os = "linux")]
mod linux;

/// Registered I/O for streams, on io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UringStreams {
    /// Most connections of one ring; the system's own bound where that is lower.
    pub files: u32,
    /// Entries of a submission queue.
    pub submissions: u32,
}

impl Default for UringStreams {
    fn default() -> Self {
        Self { files: MOST_FILES, submissions: SUBMISSIONS }
    }
}

/// The most files that the kernel takes in a table (IORING_MAX_FIXED_FILES).
const MOST_FILES: u32 = 1 << 20;

/// Entries of a submission queue where nothing else was asked for: a batch of sends, and what is asked
/// besides. What finds no room waits in user space.
const SUBMISSIONS: u32 = 512;
