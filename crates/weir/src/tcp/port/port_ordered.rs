//! `port-ordered`: as `port`, with several receives outstanding for each connection, put back in order.
//!
//! While a thread handles what one receive has brought, the next is under way, and another thread may have it
//! before the first is done. So what comes is put in the order of the numbers that the receives had when they were
//! started, and handled in that order under the connection's lock; what comes early waits. It costs as
//! many buffers for each connection, idle ones included, and a look for the number that is next. What it
//! brings is what overlaps: with one thread nothing does.
//!
//! That the numbers tell the order of the bytes is the port's promise. On Windows a socket fills several
//! receives in the order in which they were posted. On io_uring receives that wait on one socket are woken in
//! an order that nobody promises (on Linux 6.18 four were filled in the order 4, 1, 3, 2), so numbers given at
//! the start would be wrong; the port there has one of them in the kernel at a time, and starts the next when the completion of
//! the one before is taken, before anybody handles it. So several buffers are posted, one is armed.
//!
//! It fails like `port`, and sooner, where memory is short.
//!
//! Origin: the advice on several outstanding receives in "Network Programming for Microsoft Windows", Jones and
//! Ohlund, chapter 6, and the sequence numbers of Holgate's server framework.

use super::engine::{Receiving, port_design};
use crate::tcp::{Idle, IdleHolds};

port_design! {
    PortOrdered "port-ordered";
    summary: "a completion port; several receives outstanding for each connection, put back in order";
    origin: "several outstanding receives, Jones and Ohlund; sequence numbers, Holgate";
    options of its own {
        /// Receives outstanding for each connection.
        receives: u32 = 4, 1..=256;
    }
    receiving: |design| Receiving { receives: design.receives, idle: Idle::Buffer, drain: 1 };
    idle_holds: |_| IdleHolds::Buffer(
        "a buffer for each of its outstanding receives",
    );
}
