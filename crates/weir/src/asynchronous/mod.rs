//! Datagrams and connections of a server, awaited by async code: in tokio, smol, or any other executor.
//!
//! The server runs on its own threads, by whatever design. Its handlers leave what came in a queue that is bounded,
//! and wake the task that awaits it: once for all datagrams of a dequeue. Nothing here depends on an executor; what is
//! awaited are plain futures, beside which stand the functions that poll (`poll_next`, `poll_read`, `poll_write`), for
//! streams and traits of one's own.
//!
//! It costs a copy of what came, and a wake-up of another thread: where a handler can answer by itself, that is faster.
//!
//! - [`datagrams`]: a queue of a UDP server's datagrams. To answer, send by [`Running::outbox`](crate::udp::Running::outbox), which any
//!   thread may use and which never waits.
//! - [`connections`]: a queue of a TCP server's connections, each of which is read from and written to.
//!
//! Dropping a future that was not ready loses nothing: what had come by then is there for the next one, and what was
//! to be written was not taken. [`Connection::write_all`] is the exception: what it had written before stays written.

#[cfg(feature = "tcp")]
mod connections;
#[cfg(feature = "udp")]
mod datagrams;

#[cfg(feature = "tcp")]
pub use connections::{Accept, Connection, Connections, connections};
#[cfg(feature = "udp")]
pub use datagrams::{Datagrams, Full, Receive, Received, datagrams};

use std::task::{Context, Waker};

/// Keeps the waker of the task that polled last.
fn remember(kept: &mut Option<Waker>, cx: &Context<'_>) {
    if !kept.as_ref().is_some_and(|kept| kept.will_wake(cx.waker())) {
        *kept = Some(cx.waker().clone());
    }
}

/// Wakes the task, if one waits.
fn wake(kept: Option<Waker>) {
    if let Some(waker) = kept {
        waker.wake();
    }
}
