//! Designs whose I/Os return when they are over: what all do stands in [`engine`].

mod control;
mod engine;
mod sync;
mod sync_empty;
mod threads;

pub use control::Control;
pub use sync::Synchronous;
pub use sync_empty::SynchronousEmpty;
pub use threads::Threads;
