//! `port`: threads take completions from a completion port, and start the next operation of a connection
//! when the last one is over.
//!
//! A connection has a receive outstanding, and a send while something is to be sent; whichever thread is free
//! takes what has finished, whoever started it. At most as many threads run as there are cores, and the last
//! one to wait is woken first. It costs a trip through the port for each receive and each send, a lock for
//! each connection, since its completions come to several threads, and what the port itself costs. Idle
//! connections cost no thread: with `--idle buffer` each holds a buffer, with `zero-byte` none, for one more
//! operation a message: a receive of no bytes ends when something has come, and then receives that do not
//! wait bring it, at most `drain` of them.
//!
//! As in the original, `accepts` are outstanding at first; when they run dry, and a connection waits though
//! some are outstanding, a burst of `accept-burst` more is, up to `accepts-most`. First data comes with the
//! accept where it has come by then: the receive that follows is tried as it is submitted. At most `sends`
//! are outstanding, of all connections; further ones wait in order. That bounds what the system has to hold for sends,
//! and it is for sends that move: one that is outstanding for 10 ms while others wait counts to its own connection from
//! then on, and so do the next ones until 16 in a row have moved. So a peer that reads nothing, or slowly, holds its own send
//! and not the others'. Of those there is one for each connection, and at most `stuck` in all: beyond, who is stuck for
//! longest is closed. Nobody asks beforehand whether a send would move, for not every system can tell. Buffers and
//! connections are used again.
//!
//! It fails where many get stuck at once: `sends` of them have the pool for 10 ms, and then the next.
//!
//! Time-outs and the times of handlers stand in one clock for all threads, which one of them watches.
//!
//! Origin: the completion-port server of "Network Programming for Microsoft Windows", Jones and Ohlund.

use super::engine::{Receiving, port_design};
use crate::tcp::{Idle, IdleHolds};

port_design! {
    Port "port";
    summary: "threads take completions from a completion port; one receive outstanding for each connection";
    origin: "the completion-port server of Jones and Ohlund";
    options of its own {
        /// What an idle connection waits with.
        idle: Idle = Idle::Buffer, Idle::NAMES;
        /// Most receives from a connection for one wait without a buffer.
        drain: u32 = 16, 1..=65_536;
    }
    receiving: |design| Receiving { receives: 1, idle: design.idle, drain: design.drain };
    idle_holds: |design| match design.idle {
        Idle::Buffer => IdleHolds::Buffer(
            "a buffer: that of its outstanding receive; none with --idle zero-byte",
        ),
        Idle::ZeroByte => IdleHolds::NoBuffer,
    };
}
