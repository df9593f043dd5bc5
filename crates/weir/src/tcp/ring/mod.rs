//! Designs on a ring of submissions and one of completions for each thread, which shares nothing: what all do stands in
//! [`engine`].

mod engine;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the folder has")]
mod ring;
mod ring_hybrid;
mod rio_tcp;

pub use ring::Ring;
pub use ring_hybrid::RingHybrid;
pub use rio_tcp::RioTcp;
