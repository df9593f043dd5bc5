//! The load generators of weir: UDP floods, loads of TCP connections, pacing, and the control channel.
//!
//! A generator offers datagrams to a server; each carries a [`stamp`]. The server's side
//! of the account is the [`audit`]: what arrived, how often, in which order, how late. A
//! [`proof`] shows that the server read what it counts.
//! The two sides speak over the [`control`] channel: who may flood whom, when a run begins
//! and ends, and what was sent. [`pacing`] decides when datagrams are sent, an [`engine`]
//! sends them, and [`mod@flood`] combines the two. A receiver that uses another library takes part as a
//! [`peer`].
//!
//! [`tcp`] makes connections, sends messages on them, and verifies what comes back.
//!
//! Floods and loads from several hosts are coordinated through [`ranks`].
//!
//! What differs between operating systems is in `sys` and in the files of the engines.

pub mod audit;
pub mod clock;
pub mod control;
pub mod engine;
pub mod flood;
mod hangs;
pub mod latency;
pub mod lease;
mod lock;
pub mod pacing;
pub mod peer;
pub mod proof;
pub mod quantity;
pub mod random;
pub mod ranks;
pub mod stamp;
pub mod stop;
mod sys;
pub mod tcp;
#[cfg(test)]
#[path = "../../weir/src/wine.rs"]
mod wine;

pub use flood::{FloodError, FloodReport, FloodSpec, flood};
pub use stop::{Stop, StopReason};
