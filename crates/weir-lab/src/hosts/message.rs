//! What the laboratory and agents say to each other, as JSON: one document a message.
//!
//! What is meant for one rank alone, the server's above all, goes to it and back directly. What is meant for all goes down the
//! tree of the ranks ([`weir_load::ranks::tree`]): each passes it on to those right below it, and says nothing to the one above
//! before it can speak for all of these.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_load::ranks::clocks::Offset;

use super::meter::Reading;
use super::reports::{Kind, Reports};
use crate::child::Exit;
use crate::wire::Failure;

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
    /// How many descriptors a process of its own may have, where that is limited.
    pub descriptors: Option<u64>,
    /// How many connections it can have from one address to one other, where that is known: its ports.
    pub ports: Option<u64>,
}

/// What was agreed when all had met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// The rank that serves.
    pub server: usize,
    /// The server's address: the only one that anything is sent to.
    pub address: IpAddr,
    /// A port there that answered when all met, and has been closed since: the host says so as long as it is reached.
    pub port: u16,
    /// The address that each rank reaches it from, the server's own at its place.
    pub own: Vec<IpAddr>,
    /// The key of the control channels of this run.
    pub key: String,
}

/// What all generators that take part are to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Of which kind they are.
    pub kind: Kind,
    /// The words of weir's command, where marks stand for what each has of its own ([`super::own`]).
    pub words: Vec<String>,
    /// How many of them take part: the first ones.
    pub parts: usize,
    /// What they say when they have come so far, in this order, and rank 0 waits for.
    pub phases: Vec<String>,
    /// Whether it waits for their end, too, before it has the reports.
    pub tells_end: bool,
    /// Whether one-way latencies are taken.
    pub latencies: Latencies,
    /// Datagrams per second of all together, if these are paced: they begin one after another's.
    pub per_second: Option<u64>,
    /// How long they may take, in ms.
    pub within_ms: u64,
}

impl Task {
    /// How much later than the first one begins, in ns.
    pub fn later_ns(&self, index: usize) -> u64 {
        self.per_second.map_or(0, |rate| index as u64 * 1_000_000_000 / rate.max(1))
    }

    /// What is waited for before the reports: phases that they tell, and their end.
    pub fn steps(&self) -> usize {
        self.phases.len() + usize::from(self.tells_end)
    }
}

/// Whether one-way latencies are taken of a run, and by which clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Latencies {
    /// They are not.
    None,
    /// All have the server's clock.
    OneClock,
    /// Clocks are compared before and after it.
    Compared,
}

/// What the laboratory wants of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// One is to start weir with these words.
    Start {
        /// What the child is called from then on.
        child: u32,
        /// The words.
        words: Vec<String>,
    },
    /// One is to say a line to a child.
    Say {
        /// Which.
        child: u32,
        /// The line, without its end.
        line: String,
    },
    /// One is to close its input.
    CloseInput {
        /// Which.
        child: u32,
    },
    /// One is to end it.
    End {
        /// Which.
        child: u32,
    },
    /// All are to start generators.
    StartAll {
        /// What all of them are called from then on.
        child: u32,
        /// What they do.
        task: Task,
    },
    /// All are to tell them when to begin.
    BeginAll {
        /// Which.
        child: u32,
        /// When, in ns of rank 0's clock.
        start_ns: u64,
    },
    /// All are to end them.
    EndAll {
        /// Which.
        child: u32,
    },
    /// All are to say [`Said::Clock`], and then nothing until the clocks have been compared.
    Clock {
        /// With that of which rank, which asks itself; none with that of rank 0, along the tree of the ranks.
        from: Option<usize>,
    },
    /// All are to begin a measurement of what the host does.
    Begin,
    /// All are to read it: [`Said::Reading`].
    Read {
        /// Which reading that is, of all that rank 0 asks for.
        number: u32,
        /// CPU time in ns that the server had, which is nobody else's.
        server_ns: u64,
    },
    /// That it is over: to end all children, and themselves.
    Goodbye,
}

impl Order {
    /// Whether it is for all, and goes along the tree.
    pub fn is_for_all(&self) -> bool {
        match self {
            Self::Start { .. } | Self::Say { .. } | Self::CloseInput { .. } | Self::End { .. } => {
                false
            }
            Self::StartAll { .. } | Self::BeginAll { .. } | Self::EndAll { .. } => true,
            Self::Clock { .. } | Self::Begin | Self::Read { .. } | Self::Goodbye => true,
        }
    }
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// A child of this rank alone could not be started, or was not to be.
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
    /// All generators of this rank and below have come so far.
    CameTo {
        /// Which.
        child: u32,
        /// How many steps of their task.
        steps: usize,
    },
    /// What they did.
    Did {
        /// Which.
        child: u32,
        /// That.
        reports: Reports,
    },
    /// One of them failed.
    Broke {
        /// Which.
        child: u32,
        /// Why, with the rank and its host.
        failure: Failure,
    },
    /// This rank cannot do its part any more: the comparison is over.
    Unable {
        /// Why, as the end of a sentence.
        why: String,
    },
    /// The clocks of this rank and of all below may be compared now.
    Clock,
    /// How the clock of this rank stands to that of rank 0, where that has to know.
    Compared(Offset),
    /// What their hosts did.
    Reading {
        /// Which reading it is.
        number: u32,
        /// That.
        reading: Reading,
    },
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
