//! Designs on a completion port. What all do stands in [`engine`].

mod engine;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the folder has")]
mod port;
mod port_batch;

pub use port::Port;
pub use port_batch::PortBatch;
