//! A socket that one process hands over to the next, with the connections of the old one going on.
//!
//! A connection belongs to the process that has its keys, and all processes have one socket. So the newest one receives, and
//! forwards what belongs to others, each on a way of its own, a pair of Unix sockets; they send by the socket itself. Whose
//! a datagram is its connection ID says ([`ConnectionIds`]).
//!
//! The order in which that begins: the successor has the socket and receives nothing yet ([`SharedSocket::turn`]); the process
//! before ends receiving ([`SharedSocket::end_receiving`]), reads from its way from then on, and says so; the successor begins
//! ([`SharedSocket::begin`]). What comes meanwhile waits in the socket, or in the successor's slices where its provider
//! receives by itself (`uring`). So no datagram meets a process that cannot tell whose it
//! is: the successor has made no connection ID before the other one has ended.

mod connection_ids;
mod forwarded;
mod shared;
#[cfg_attr(target_os = "linux", path = "way/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "way/absent.rs")]
mod way;

pub use connection_ids::ConnectionIds;
pub use shared::{Forwarding, MOST_BEFORE, SharedSocket};
