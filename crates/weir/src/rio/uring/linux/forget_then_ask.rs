//! The order in which the holder of a queue finds out that there is nothing to receive into.
//!
//! | the holder | a poster |
//! | --- | --- |
//! | resets the alarm | posts |
//! | asks for buffers; if there are none, leaves word | raises the alarm if there was word |
//! | arms the alarm, and waits | |
//!
//! A ring that comes after the question stays until the alarm is armed, and sets it off at once.
//! The other way round, a poster that finds the word and raises the alarm between the question and the
//! forgetting is never heard: the buffers lie there, and the holder sleeps.

/// Resets the alarm, and only then asks. `ask` leaves word if its answer is no.
#[inline]
pub(super) fn forget_then_ask(forget: impl FnOnce(), ask: impl FnOnce() -> bool) -> bool {
    forget();
    ask()
}

#[cfg(all(test, loom))]
mod loom_tests;
