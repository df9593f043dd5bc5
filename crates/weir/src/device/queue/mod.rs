//! Designs on a queue of I/Os, of one thread: what all do stands in [`engine`], and each is a row of what it asks of its
//! queue.

mod engine;
mod libaio;
mod no_op;
mod ring;
mod ring_polled;
mod ring_registered;
mod uring_cmd;

pub use libaio::Libaio;
pub use no_op::NoOp;
pub use ring::Ring;
pub use ring_polled::RingPolled;
pub use ring_registered::RingRegistered;
pub use uring_cmd::UringCmd;
