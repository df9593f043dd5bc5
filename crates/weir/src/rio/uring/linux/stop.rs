//! The end of a queue: cancel, dequeue to the last completion, take the posted slices back.

use super::{common::class, completions::UringCompletions, requests::UringRequests};
use crate::{
    counters::Counters,
    deadline::LastLook,
    ring::Token,
    rio::{
        Batch, Stopped,
        sharing::{Shared as _, Sharing},
    },
};
use std::time::{Duration, Instant};

/// How many completions are thrown away at a time.
const DISCARDED: usize = 256;

/// How long to wait for what was cancelled before asking again: a request that was running just
/// then may have missed it.
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl<T: Sharing> UringCompletions<T> {
    /// Ends the queue. Slices that the kernel still holds at the deadline are left to it.
    pub(super) fn end(mut self, mut requests: Vec<UringRequests<T>>, by: Instant) -> Stopped {
        // What is counted here is nobody's: the run is over.
        let counters = Counters::default();
        let mut batch = Batch::new(DISCARDED);
        self.common.stop();
        let mut returned: u32 = requests.iter_mut().map(UringRequests::give_back).sum();
        drop(requests);
        let mut look = LastLook::by(by);
        let over = loop {
            let found = self.discard(&mut batch, &counters);
            returned += found;
            let under_way = self.under_way();
            if under_way.is_empty() {
                break true;
            }
            let Some(left) = look.wait(found > 0) else { break false };
            if self.cancels == 0 {
                for token in under_way {
                    self.cancel(token, &counters);
                }
            }
            // What the kernel would not take before is offered again. An error in either leaves the
            // loop to the deadline: then slices are missing, and it shows.
            let _ = self.common.submissions.with(|submissions| submissions.submit(&counters));
            let _ = self.common.ring.enter(0, 1, Some(ASK_AGAIN.min(left)), false);
        };
        if over {
            returned += self.common.end();
        }
        Stopped { returned, missing: self.common.in_kernel() }
    }

    /// Requests that are not over, the alarm's excepted: it uses nothing of ours.
    fn under_way(&self) -> Vec<Token> {
        let mut tokens: Vec<_> = self.receives.iter().map(|(token, _)| token).collect();
        self.common.sends.with(|sends| tokens.extend(sends.tokens()));
        tokens
    }

    /// Asks for the end of every receive.
    pub(super) fn cancel_all(&mut self, counters: &Counters) {
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.extend(self.receives.iter().map(|(token, _)| token));
        for token in tokens.drain(..) {
            self.cancel(token, counters);
        }
        self.tokens = tokens;
    }

    fn cancel(&mut self, token: Token, counters: &Counters) {
        let own = Token::bare(class::CANCEL);
        let asked = self.common.submissions.with(|s| s.cancel(token, own, counters));
        // Where the kernel takes nothing more before completions are taken: the next round.
        self.cancels += u32::from(asked.is_ok());
    }
}
