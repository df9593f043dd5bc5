//! Designs on a completion port, of several threads: what both share stands in [`engine`].

mod engine;
mod overlapped_pool;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the folder has")]
mod port;

pub use overlapped_pool::OverlappedPool;
pub use port::Port;
