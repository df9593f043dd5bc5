//! Whether datagrams that are sent in a row may leave as one (UDP_SEGMENT, Linux 4.18).
//!
//! What the kernel does not cut, it refuses: datagrams longer than a packet of the path (they would be fragments), and
//! those on paths that cannot have their checksums put off (EIO: IPsec, say). Whether one leads there is not known
//! before. So who is refused sends each by itself, and none of that size is joined for a while.

use socket2::Socket;
use std::{
    num::NonZeroU16,
    os::fd::AsRawFd,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Batches that are sent without trying again after a refusal.
const PATIENCE: u32 = 1024;

/// What a socket knows of it. Threads may miss each other's notes, which costs a refusal more.
#[derive(Debug)]
pub(super) struct Segmentation {
    supported: bool,
    /// Datagrams of this size were refused.
    refused: AtomicU32,
    /// For so many batches more that is kept in mind.
    left: AtomicU32,
}

impl Segmentation {
    /// Finds out whether the kernel knows of it.
    pub(super) fn ask(socket: &Socket) -> Self {
        let mut value: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: value and length live through the call, and the length is the value's.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw mut value).cast(),
                &mut length,
            )
        };
        Self { supported: result == 0, refused: AtomicU32::new(0), left: AtomicU32::new(0) }
    }

    pub(super) fn obtained(&self) -> &'static str {
        match self.supported {
            true => {
                "answers in a row to one peer leave as one, where a design sends several at a time"
            }
            false => "none: this system does not know UDP_SEGMENT",
        }
    }

    /// The longest datagrams that are joined in the next batch; 0 for none.
    #[inline]
    pub(super) fn longest(&self) -> usize {
        if !self.supported {
            return 0;
        }
        match self.left.load(Relaxed) {
            0 => usize::MAX,
            left => {
                self.left.store(left - 1, Relaxed);
                self.refused.load(Relaxed).saturating_sub(1) as usize
            }
        }
    }

    pub(super) fn refused(&self, segment: NonZeroU16) {
        let segment = u32::from(segment.get());
        let known = self.left.load(Relaxed) > 0;
        let least = if known { self.refused.load(Relaxed).min(segment) } else { segment };
        self.refused.store(least, Relaxed);
        self.left.store(PATIENCE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_not_tried_for_a_while() {
        let segmentation =
            Segmentation { supported: true, refused: AtomicU32::new(0), left: AtomicU32::new(0) };
        assert_eq!(segmentation.longest(), usize::MAX);
        segmentation.refused(NonZeroU16::new(1400).unwrap());
        assert_eq!(segmentation.longest(), 1399);
        segmentation.refused(NonZeroU16::new(600).unwrap());
        segmentation.refused(NonZeroU16::new(900).unwrap());
        for _ in 0..PATIENCE {
            assert_eq!(segmentation.longest(), 599);
        }
        assert_eq!(segmentation.longest(), usize::MAX);
    }
}
