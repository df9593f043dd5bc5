//! What the queues of several providers keep alike.

use super::{Batch, Peer, Span, sharing::Count};
use crate::memory::{Region, Slice};
use std::{io, sync::Arc};

/// Why a request was not taken. What it was to move is given back with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// As many are outstanding as the queue was opened for.
    #[error("as many requests are outstanding as the queue was opened for")]
    Full,
    /// The slice is of another region than the queue's: the kernel does not know its memory.
    #[error(
        "the slice is of another region than the queue's; take it from the region that the queue was opened with"
    )]
    OtherRegion,
    /// The completion queue was stopped.
    #[error("the completion queue was stopped")]
    Stopped,
    /// The connection is over, or is being closed.
    #[error("the connection is over, or is being closed")]
    Closed,
    /// A send of this connection is under way, or the end of its sending.
    #[error("a send, or the end of sending, is under way on this connection")]
    Busy,
    /// There is nothing to be sent.
    #[error("there is nothing to be sent")]
    Empty,
    /// It names bytes that its memory does not hold.
    #[error("it names bytes that its memory does not hold")]
    OutOfBounds,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        io::Error::other(refused)
    }
}

/// A slice to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// The slice.
    pub slice: Slice,
    /// What of it is sent.
    pub span: Span,
    /// Where it goes.
    pub to: Peer,
}

impl Outgoing {
    /// Counts a send among those outstanding, of which there may be so many.
    ///
    /// # Errors
    /// The slice, if there are.
    ///
    /// # Panics
    /// If the span is longer than the slice.
    #[inline]
    pub fn new(
        slice: Slice,
        span: Span,
        to: &Peer,
        (outstanding, most): (&impl Count, u32),
    ) -> Result<Self, (Slice, Refused)> {
        assert_fits(&span, &slice);
        match outstanding.add_below(1, most) {
            0 => Err((slice, Refused::Full)),
            _ => Ok(Self { slice, span, to: *to }),
        }
    }
}

/// Receives that are counted as outstanding and not posted yet, so that many posts cost one change of
/// a count that threads share.
#[derive(Debug, Default)]
pub struct Reserved(u32);

impl Reserved {
    /// Has so many reserved, as far as `count`, which counts more of them, has room.
    pub fn fill(&mut self, receives: u32, count: impl FnOnce(u32) -> u32) {
        self.0 += count(receives.saturating_sub(self.0));
    }

    /// Takes one, and counts one more if none is left.
    ///
    /// # Errors
    /// If there is no room for one more.
    #[inline]
    pub fn take(&mut self, count: impl FnOnce(u32) -> u32) -> Result<(), Refused> {
        if self.0 == 0 {
            self.fill(1, count);
        }
        self.0 = self.0.checked_sub(1).ok_or(Refused::Full)?;
        Ok(())
    }

    /// Gives up what is left, by which `discount` lowers the count.
    #[inline]
    pub fn give_up(&mut self, discount: impl FnOnce(u32)) {
        if self.0 > 0 {
            discount(std::mem::take(&mut self.0));
        }
    }
}

/// Which of several sockets or devices is dequeued from first: the one behind that which was last, so that a busy one does
/// not starve the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotation {
    next: usize,
}

impl Rotation {
    /// Dequeues from so many of them, one after the other, until there is no more room or each had its turn. `each` says
    /// how many datagrams one had. In all that was so many.
    ///
    /// # Errors
    /// The first of `each`.
    #[inline]
    pub fn dequeue(
        &mut self,
        count: usize,
        out: &mut Batch,
        mut each: impl FnMut(usize, &mut Batch) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let first = self.next;
        let mut received = 0;
        for turn in 0..count {
            if out.room() == 0 {
                break;
            }
            let index = (first + turn) % count;
            received += each(index, out)?;
            self.next = (index + 1) % count;
        }
        Ok(received)
    }
}

/// Gives a slice back that is not of the region that a queue was opened with: the kernel knows no other,
/// and what comes back is named by its place in that one.
#[inline]
pub fn of_region(slice: Slice, region: &Arc<Region>) -> Result<Slice, (Slice, Refused)> {
    if Arc::ptr_eq(slice.region(), region) { Ok(slice) } else { Err((slice, Refused::OtherRegion)) }
}

/// Makes sure that a slice holds what is to be sent of it.
///
/// # Panics
/// If it does not.
#[inline]
pub fn assert_fits(span: &Span, slice: &Slice) {
    let room = slice.payload().len();
    assert!(span.len <= room, "{} bytes of {room}", span.len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        memory::{Layout, RegionOptions},
        rio::{Completion, Outcome},
    };

    #[test]
    fn the_one_behind_the_last_is_first_when_there_is_room_again() {
        let region = Region::new(Layout::packed(0, 64, 64), 4, RegionOptions::default()).unwrap();
        let (mut rotation, mut order) = (Rotation::default(), Vec::new());
        for had in [1, 1, 0] {
            let mut out = Batch::new(2);
            let received = rotation.dequeue(3, &mut out, |index, out| {
                order.push(index);
                for _ in 0..had {
                    let slice = region.take().expect("it is as large as that");
                    out.push(Completion { slice, socket: 0, outcome: Outcome::Returned });
                }
                Ok(had)
            });
            assert_eq!(received.unwrap(), 2 * had);
        }
        assert_eq!(
            order,
            [0, 1, 2, 0, 1, 2, 0],
            "two fill it twice; where none has any each has a turn"
        );
        let failed = rotation.dequeue(3, &mut Batch::new(1), |_, _| Err(io::Error::other("gone")));
        assert_eq!(failed.unwrap_err().to_string(), "gone");
    }

    #[test]
    fn what_is_reserved_is_taken_first_and_the_rest_given_up() {
        let mut reserved = Reserved::default();
        reserved.fill(3, |n| n.min(2));
        let none = |_| unreachable!("two are reserved");
        assert_eq!((reserved.take(none), reserved.take(none)), (Ok(()), Ok(())));
        assert_eq!((reserved.take(|n| n), reserved.take(|_| 0)), (Ok(()), Err(Refused::Full)));
        reserved.fill(5, |n| n);
        reserved.fill(7, |n| {
            assert_eq!(n, 2, "five are there");
            n
        });
        reserved.give_up(|left| assert_eq!(left, 7));
        reserved.give_up(|_| unreachable!("none is left"));
    }
}
