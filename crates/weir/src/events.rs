//! Events for `tracing`, where the feature of that name is on; else nothing is compiled of them.
//!
//! None is told for a datagram or a message: the least that one is for is a connection, a batch that overwhelms a thread, or
//! a refusal. What they are called and what they carry is in the book's page on monitoring.

/// Tells an event: its level, its fields, and its text, as `tracing::event!` takes them.
macro_rules! event {
    ($level:ident, $($event:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "weir", tracing::Level::$level, $($event)+);
    };
}
pub(crate) use event;
