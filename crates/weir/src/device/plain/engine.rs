//! What every design does whose I/Os return when they are over: it issues the next, waits in it, and counts it.

use crate::{
    Error,
    device::{Handler, Worker, io::Issues},
};
use std::sync::Arc;

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
