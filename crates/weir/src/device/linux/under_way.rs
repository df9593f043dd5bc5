//! I/Os that are under way: how those on a ring are cancelled, and what becomes of what does not come back.

use crate::{
    counters::Counters,
    device::io::Issue,
    memory::Slice,
    ring::{Slots, Submissions, Token},
};
use std::time::{Duration, Instant};

/// Classes of tokens.
pub(super) const IO: u8 = 1;
pub(super) const ALARM: Token = Token::bare(2);
pub(super) const CANCEL: Token = Token::bare(3);

/// How long one wait for what was cancelled lasts, before it is asked again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(100);

/// One of them, with its memory.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) slice: Slice,
    pub(super) issue: Issue,
}

/// Leaves to the kernel what has not come back, since it may still use it.
pub(super) fn leak(slots: &mut Slots<UnderWay>) {
    let left: Vec<Token> = slots.iter().map(|(token, _)| token).collect();
    for under_way in left.into_iter().filter_map(|token| slots.remove(token)) {
        leave(under_way.slice);
    }
}

/// Leaves a slice to the kernel.
pub(super) fn leave(slice: Slice) {
    slice.region().count_leaked(1);
    let _leaked = slice.post();
}

/// Cancels what is under way on a ring.
#[derive(Debug)]
pub(super) struct Cancels {
    /// What is still to be cancelled, and when that was last begun.
    left: Vec<Token>,
    begun: Option<Instant>,
    /// The kernel cancels one at a time only.
    pub(super) each: bool,
}

impl Cancels {
    /// Of so many at most.
    pub(super) fn of(most: usize) -> Self {
        Self { left: Vec::with_capacity(most), begun: None, each: false }
    }

    /// Looks at what completed: a kernel before 5.19 does not know how to cancel all at once.
    #[inline]
    pub(super) fn note(&mut self, token: Token, result: i32) {
        if token == CANCEL && result == -libc::EINVAL {
            (self.each, self.begun) = (true, None);
        }
    }

    /// Cancels all I/O under way, once; what is still there some time later, once more. Where the kernel takes one
    /// at a time only, asking for all of them at each take would cost as many entries as there are I/Os, squared.
    pub(super) fn cancel_all<V>(
        &mut self,
        slots: &Slots<V>,
        submissions: &mut Submissions,
        again: Duration,
        calls: &Counters,
    ) {
        let is_due = self.begun.is_none_or(|begun| begun.elapsed() >= again);
        if !self.each {
            // Refused while the completion queue is full: it is asked again after the next take.
            if is_due && submissions.cancel_all(CANCEL, calls).is_ok() {
                self.begun = Some(Instant::now());
            }
            return;
        }
        if self.left.is_empty() && is_due {
            self.left.extend(slots.iter().map(|(token, _)| token));
            self.begun = Some(Instant::now());
        }
        while let Some(token) = self.left.pop() {
            // Refused while the completion queue is full: it is asked again after the next take.
            if slots.get(token).is_some() && submissions.cancel(token, CANCEL, calls).is_err() {
                self.left.push(token);
                return;
            }
        }
    }
}
