//! The control channel between generator and server: who may flood whom, and when a run
//! begins and ends.
//!
//! One TCP connection for each generator, JSON lines in both directions:
//!
//! ```text
//! generator                      server
//!   hello (nonce)        ->
//!                        <-      hello (nonce), or refuse
//!   proof (key, build)   ->
//!                        <-      proof (key, build), or refuse
//!   ask (what it wants)  ->
//!                        <-      consent (ports, limits), or refuse
//!   ... warm-up, if any ...
//!   start                ->      lets what is on its way arrive, notes its counters
//!                        <-      started
//!   ... flood ...
//!   end (what it sent)   ->      lets what is on its way arrive
//!                        <-      report
//! ```
//!
//! A running server's settings are changed on such a connection, too, between floods or instead of them, by whoever is on
//! the server's own machine or has its key:
//!
//! ```text
//!   set (changes)        ->
//!                        <-      in_force (what may be changed, as it is then), or refuse
//! ```
//!
//! Both compare builds, for the results of different ones are not compared, and keys where they
//! share one; neither learns the other's (`proof`).
//!
//! Consent binds to addresses: it names the address at which the server was reached, and
//! the generator floods no other; so nobody can aim a flood at a third. Datagrams of the run from
//! another address than the generator's are a stranger's. It names ports, the highest rates (in
//! datagrams and bits, no more than is left of what the server takes from all) and the longest
//! time, and it expires if the run does not start. The server measures what arrives, and revokes
//! its consent where that is more (`consented`).
//!
//! The connection lives as long as the run. From its consent on the server renews it twice a second
//! (`renew`, answered by `alive`): a generator that heard nothing for two seconds sends nothing more
//! ([`crate::lease`]). When it loses the connection, it stops at once; when the server loses it, it
//! waits until nothing arrives any more and ends the run by itself. A line has a greatest length, and
//! every wait an end.
//!
//! Whoever connects is a stranger until it has proven who it is, which must be soon. Strangers and
//! generators have places of their own, so many for each address and in all (`places`).

mod build;
mod client;
mod consented;
mod message;
mod places;
mod proof;
mod server;
mod wire;

use std::{io, net::SocketAddr, time::Duration};

use crate::sys;

pub use build::Build;
pub use client::{ClientSettings, ControlClient};
pub use consented::Arrived;
pub use message::{
    CHANGES_MAX, Change, Consent, Hello, InForce, LINE_BYTES_MAX, LineError, Message, PROTOCOL,
    Proof, RunAsk, RunEnd, STRANGERS_LINE_BYTES_MAX, parse_line,
};
pub use proof::{KEY_VARIABLE, Key, nonce};
pub use server::{AgreedRun, ControlServer, ControlSettings, Ending, Outstanding, Receiver};

/// Something that differs between machines and boots, by which ranks and generators know that they share a machine; `None`
/// where the system has nothing like it.
pub fn host_id() -> Option<String> {
    sys::host_id()
}

/// The same of the clock that [`now_ns`](crate::clock::now_ns) reads: processes of one machine may be given several.
pub fn clock_id() -> Option<String> {
    sys::clock_id()
}

/// What can go wrong on a control connection.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No connection.
    #[error(
        "cannot reach the control channel at {address}: {source}; is the server there running, and started with --control?"
    )]
    Connect {
        /// Where it was looked for.
        address: SocketAddr,
        /// What the operating system answered.
        source: io::Error,
    },
    /// The server cannot listen.
    #[error(
        "cannot listen for control connections on {address}: {source}; {}",
        weir::error::advice(.source).unwrap_or("choose another address or port")
    )]
    Bind {
        /// Where it should listen.
        address: SocketAddr,
        /// What the operating system answered.
        source: io::Error,
    },
    /// The connection broke.
    #[error("control connection with {peer}: {source}")]
    Io {
        /// The other end.
        peer: SocketAddr,
        /// What the operating system answered.
        source: io::Error,
    },
    /// The other end closed the connection.
    #[error("control connection with {peer}: closed by the other end")]
    Closed {
        /// The other end.
        peer: SocketAddr,
    },
    /// The other end says nothing.
    #[error("control connection with {peer}: no {wanted} within {within:?}{}", advice(wanted))]
    Silent {
        /// The other end.
        peer: SocketAddr,
        /// The message awaited.
        wanted: &'static str,
        /// How long.
        within: Duration,
    },
    /// The other end sent something that is no message.
    #[error("control connection with {peer}: {source}; is that a weir of the same build?")]
    Line {
        /// The other end.
        peer: SocketAddr,
        /// What is wrong with it.
        source: LineError,
    },
    /// The other end sent a message out of turn.
    #[error("control connection with {peer}: got {got} where {wanted} was expected")]
    Unexpected {
        /// The other end.
        peer: SocketAddr,
        /// What came.
        got: &'static str,
        /// What should have come.
        wanted: &'static str,
    },
    /// The other end refused.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// The other end.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The other end is another build.
    #[error("{0}")]
    OtherBuild(String),
    /// The two do not share a key.
    #[error("{0}")]
    Key(String),
    /// The server does not consent any more.
    #[error("{peer} revoked its consent: {reason}")]
    Revoked {
        /// The other end.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// More arrived from a generator than was consented to.
    #[error("the consent to {peer} was revoked: {reason}")]
    Exceeded {
        /// The other end.
        peer: SocketAddr,
        /// What was exceeded.
        reason: String,
    },
    /// The server gives no sign of life during a run.
    #[error("control connection with {peer}: no sign of the server for {within:?}")]
    NoSign {
        /// The other end.
        peer: SocketAddr,
        /// How long.
        within: Duration,
    },
    /// What the server consents to is not what is to be done.
    #[error("the consent of {peer} does not cover this flood: {problem}")]
    NotCovered {
        /// The other end.
        peer: SocketAddr,
        /// What is not covered.
        problem: String,
    },
}

/// What a generator waits for first.
const HELLO_OF_SERVER: &str = "hello of a weir server";

/// What to do where a message does not come: without a hello it may be anybody who listens there.
fn advice(wanted: &str) -> &'static str {
    match wanted {
        HELLO_OF_SERVER => {
            "; give the address and port that the server names as its control channel, and check that it is running: a \
             stopped process says nothing"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
