//! What every design does whose I/Os return when they are over: it issues the next, waits in it, and counts it.

use crate::{
    Error,
    counters::Counters,
    device::{
        Handler, Worker,
        io::Outcome,
        native::{Controls, Plain},
    },
    wake::Waker,
};
use std::sync::Arc;

/// An I/O that returns when it is over.
pub(super) trait Issues {
    /// Ends a wait in it.
    fn waker(&self) -> Waker;
    /// Makes one, of so many bytes as `buffer` has.
    fn issue(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> Outcome;
}

impl Issues for Plain {
    fn waker(&self) -> Waker {
        self.waker()
    }

    #[inline]
    fn issue(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> Outcome {
        self.issue(buffer, at, calls)
    }
}

impl Issues for Controls {
    fn waker(&self) -> Waker {
        self.waker()
    }

    #[inline]
    fn issue(&self, _buffer: &mut [u8], _at: u64, calls: &Counters) -> Outcome {
        self.call(calls)
    }
}

/// The loop of a thread.
pub(super) fn run<H: Handler>(
    worker: &mut Worker<H>,
    issues: &impl Issues,
    buffer: &mut [u8],
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    worker.ready(Some(issues.waker()));
    while let Some(issue) = worker.issue() {
        let outcome = issues.issue(buffer, issue.at, &calls);
        worker.finish(&issue, outcome, buffer);
    }
    Ok(())
}
