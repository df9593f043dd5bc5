//! Designs on registered I/O. What all do stands in [`engine`].

mod engine;
mod return_queue;
mod rio_event;
mod rio_event_polled;
mod rio_hybrid;
mod rio_hybrid_reader;
mod rio_polled;
mod rio_port;
mod rio_reader;
mod rio_sharded;

pub use rio_event::RioEvent;
pub use rio_event_polled::RioEventPolled;
pub use rio_hybrid::RioHybrid;
pub use rio_hybrid_reader::RioHybridReader;
pub use rio_polled::RioPolled;
pub use rio_port::RioPort;
pub use rio_reader::RioReader;
pub use rio_sharded::{RioSharded, Steering};
