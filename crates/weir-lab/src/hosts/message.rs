//! What the laboratory and an agent say to each other, as JSON: one document a message.

use std::net::IpAddr;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_load::ranks::clocks::{Offset, offsets, offsets_from};
use weir_load::ranks::{Lost, Ranks};

use super::meter::Reading;
use crate::child::Exit;

/// What a rank is, and its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What tells hosts apart, where the system has it.
    pub host_id: Option<String>,
    /// The same of clocks.
    pub clock_id: Option<String>,
    /// Its processor and kernel.
    pub machine: String,
    /// Cores that it may use.
    pub cores: Vec<usize>,
}

/// What was agreed when all had met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// The rank that serves.
    pub server: usize,
    /// The server's address: the only one that anything is sent to.
    pub address: IpAddr,
    /// The address that each rank reaches it from, the server's own at its place.
    pub own: Vec<IpAddr>,
    /// The key of the control channels of this run.
    pub key: String,
}

/// What the laboratory wants of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// To start weir with these words.
    Start {
        /// What the child is called from then on.
        child: u32,
        /// The words.
        words: Vec<String>,
    },
    /// To say a line to a child.
    Say {
        /// Which.
        child: u32,
        /// The line, without its end.
        line: String,
    },
    /// To close its input.
    CloseInput {
        /// Which.
        child: u32,
    },
    /// To end it.
    End {
        /// Which.
        child: u32,
    },
    /// To say [`Said::Clock`], and then nothing until its clock has been compared.
    Clock {
        /// With that of which rank, which asks itself; none with that of rank 0, along the tree of the ranks.
        from: Option<usize>,
    },
    /// To begin a measurement of what the host does.
    Begin,
    /// To read it: [`Said::Reading`].
    Read {
        /// CPU time in ns that children of this host had, which is nobody else's.
        own_cpu_ns: u64,
    },
    /// That it is over: to end all children, and itself.
    Goodbye,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// A child could not be started, or was not to be.
    Failed {
        /// Which.
        child: u32,
        /// Why.
        why: String,
    },
    /// A line of a child's output; none if it was too long, or no text.
    Line {
        /// Which.
        child: u32,
        /// The line, without its end.
        line: Option<String>,
    },
    /// It has ended.
    Over {
        /// Which.
        child: u32,
        /// How.
        exit: Exit,
        /// The end of its standard error.
        stderr: String,
    },
    /// Its clock may be compared now.
    Clock,
    /// What the host did.
    Reading(Reading),
}

/// Compares the clocks of all ranks with that of one, or along their tree with that of rank 0; it is a collective call.
///
/// # Errors
/// Who did not answer until then.
pub fn compare_clocks(
    ranks: &dyn Ranks,
    from: Option<usize>,
    until: Instant,
) -> Result<Option<Vec<Offset>>, Lost> {
    match from {
        None => offsets(ranks, until),
        Some(rank) => offsets_from(ranks, rank, until),
    }
}

/// A document as a message.
pub fn write(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("it has no keys but texts")
}

/// A message as a document.
///
/// # Errors
/// What it is instead.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("said something else: {error}"))
}
