//! What is said between whoever measures and a peer.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

use crate::audit::AuditSettings;

/// Names of settings that both sides know.
pub mod setting {
    /// "true" if several datagrams of one sender come as one (UDP_GRO).
    pub const RECEIVE_OFFLOAD: &str = "receive-offload";
    /// Bytes of the receive buffer of each socket, as obtained.
    pub const RECEIVE_BUFFER: &str = "receive-buffer-bytes";
    /// The work for each datagram, as asked for.
    pub const WORK: &str = "work";
    /// Bytes of an answer at most, as asked for.
    pub const REPLY_BYTES: &str = "reply-bytes";
    /// How many runs it can count at a time, as asked for.
    pub const RUNS_TOGETHER: &str = "runs-together";
    /// Name and version of what receives.
    pub const LIBRARY: &str = "library";
}

/// One line to the peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// First: bind. Answered with a [`ReadyLine`].
    Serve(Serve),
    /// A run begins. Answered with [`Done`].
    Begin(Begin),
    /// Its warm-up is over. Answered with [`Done`].
    Start,
    /// How many by now? Answered with a [`Count`].
    Count,
    /// The run is over. Answered with its account: the fields of
    /// [`crate::audit::AuditReport`] as far as the peer knows them, `received` at least.
    End {
        /// Datagrams that were sent in each flow.
        sent_per_flow: Vec<u64>,
    },
}

/// Where to receive, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// The address to bind; port 0 for any free one.
    pub address: SocketAddr,
    /// The longest datagram that must be received whole, in bytes.
    pub size_bytes: usize,
    /// Whether several datagrams of one sender and one size are to come as one (UDP_GRO).
    #[serde(default)]
    pub receive_offload: bool,
    /// The receive buffer to ask for, in bytes; none leaves the system's default.
    #[serde(default)]
    pub receive_buffer_bytes: Option<usize>,
    /// Steps of work for each datagram besides one, if any is asked for: those of the generator
    /// `x = 1664525 x + 1013904223` in 32 bits.
    #[serde(default)]
    pub work_steps: Option<u32>,
    /// Each datagram is to be answered with its beginning, so many bytes at most; none: it is a sink. Whoever answers
    /// repeats the number in its settings ([`setting::REPLY_BYTES`]).
    #[serde(default)]
    pub reply_bytes: Option<usize>,
    /// Whether answers in a row to one sender may leave as one (UDP_SEGMENT), if it can do so.
    #[serde(default)]
    pub send_offload: bool,
    /// So many generators flood it together, each with a run of its own ([`Begin::beside`]); none: one at a time. Whoever can
    /// repeats the number in its settings ([`setting::RUNS_TOGETHER`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_together: Option<usize>,
}

impl Serve {
    /// What a datagram is answered with, if it is.
    #[inline]
    pub fn reply<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        Some(&datagram[..datagram.len().min(self.reply_bytes?)])
    }
}

/// The answer to [`Ask::Serve`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyLine {
    /// It listens.
    pub ready: Ready,
}

/// Where a peer listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The address obtained, with its port.
    pub address: SocketAddr,
    /// What was obtained, by the names of [`setting`] and any others.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// A run as it is to be accounted for: [`AuditSettings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Run id that its datagrams bear.
    pub run: u32,
    /// Run id that those of its warm-up bear, if it has one.
    pub warm_up_run: Option<u32>,
    /// Payload bytes of each datagram; below 32 they carry no stamp.
    pub size_bytes: usize,
    /// Flows, numbered from 0.
    pub flows: usize,
    /// The body of every so-many-th datagram is to be compared.
    pub verify_every: u32,
    /// The latency of every so-many-th is to be taken.
    pub latency_every: u32,
    /// Whether the run is one with those that are open, of another generator: all start, are counted and end together, and its
    /// flows are numbered on behind theirs in the account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beside: bool,
}

impl From<&AuditSettings> for Begin {
    fn from(settings: &AuditSettings) -> Self {
        Self {
            run: settings.run,
            warm_up_run: settings.warm_up_run,
            size_bytes: settings.size_bytes,
            flows: settings.flows,
            verify_every: settings.verify_every,
            latency_every: settings.latency_every,
            beside: false,
        }
    }
}

impl From<&Begin> for AuditSettings {
    fn from(begin: &Begin) -> Self {
        Self {
            run: begin.run,
            warm_up_run: begin.warm_up_run,
            // A peer need not know who sends.
            source: None,
            size_bytes: begin.size_bytes,
            flows: begin.flows,
            verify_every: begin.verify_every,
            latency_every: begin.latency_every,
            bitmap_bytes_max: Self::BITMAP_BYTES_MAX,
            clock_offset_ns: None,
        }
    }
}

/// The answer to [`Ask::Begin`] and [`Ask::Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// True.
    pub ok: bool,
}

/// The answer to [`Ask::Count`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Datagrams of the run since its start.
    pub received: u64,
    /// All datagrams since the peer began, those of warm-ups and strangers too.
    pub handled: u64,
}
