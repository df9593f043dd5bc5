//! What the threads of a server on a completion port share. Each stands behind a lock of its own, which is held for a
//! few steps and, but for a connection's, never while a handler is called.

mod accept_count;
mod clock;
mod order;
mod places;
mod pool;
mod sends;

pub(super) use accept_count::{Accepts, SharedAccepts};
pub(super) use clock::Clock;
pub(super) use order::Order;
pub(super) use places::{Places, PortConnection};
pub(super) use pool::Pool;
pub(super) use sends::{Place, STUCK_AFTER, Sending, Sends, Slow};
