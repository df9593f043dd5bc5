//! What the designs on a completion port share: an I/O is started with the memory that another one gave back, by
//! whichever thread has it; the one that finds that all are over ends it for all.

use crate::device::{Handler, Worker, io::Outcome, native::DevicePort};

impl<H: Handler> Worker<H> {
    /// Starts the next I/O with this memory; says whether there was one.
    #[inline]
    pub(super) fn start_on(&mut self, port: &DevicePort, slice: crate::memory::Slice) -> bool {
        let Some(issue) = self.issue() else {
            self.exhausted = true;
            return false; // the memory goes back to its pool
        };
        if let Err(slice) = port.start(slice, &issue, &self.calls) {
            self.exhausted = true; // the end came in between
            self.finish(&issue, Outcome::Cancelled, slice.payload());
        }
        true
    }

    /// Whether no I/O is to be issued any more and all have come back.
    pub(super) fn is_last(&self, port: &DevicePort) -> bool {
        self.exhausted && port.is_idle()
    }
}
