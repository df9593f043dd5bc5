//! Threads that wait in the calls themselves, two for each connection: [`blocking`] is the design, [`connections`] what its
//! threads share, and [`times`] the one thread that keeps the times of all.

#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the folder has")]
mod blocking;
mod connections;
mod times;

pub use blocking::Blocking;
