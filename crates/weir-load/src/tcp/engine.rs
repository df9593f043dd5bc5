//! What can move the bytes of a load's connections, and what did.

use super::system::{self, Ring};
use serde::{Deserialize, Serialize};
use weir::{Error, Unavailable};

/// How the bytes of connections are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// By requests on an io_uring of each thread.
    Uring,
    /// By calls, on sockets that are ready.
    Readiness,
}

impl Engine {
    /// All of them, the one that is better in a closed loop first.
    pub const ALL: [Self; 2] = [Self::Uring, Self::Readiness];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Readiness => "readiness",
        }
    }

    /// What it is.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Uring => {
                "requests on an io_uring of each thread: receives that go on by themselves, sends submitted together"
            }
            Self::Readiness => "calls on sockets that are ready",
        }
    }

    /// The engine of a name.
    ///
    /// # Errors
    /// With the names that exist.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == name);
        found.ok_or_else(|| Error::unknown_name("engine", name, Self::ALL.map(Self::name)))
    }

    /// Whether it can be used here, found by moving a byte with it.
    ///
    /// # Errors
    /// What was tried, and what came of it.
    pub fn availability(self) -> Result<(), Unavailable> {
        match self {
            Self::Uring => Ring::probe(),
            Self::Readiness => system::availability(),
        }
    }
}

/// The engine of a load, and why it is not the other one where nobody asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineUsed {
    /// Its name.
    pub name: String,
    /// What it waits with, or what it moves bytes by.
    pub by: String,
    /// Why it was chosen; none where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

impl std::fmt::Display for EngineUsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, by, reason } = self;
        write!(f, "{name} ({by})")?;
        reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl EngineUsed {
    pub(super) fn of(engine: Engine, reason: Option<String>) -> Self {
        let by = match engine {
            Engine::Uring => "io_uring",
            Engine::Readiness => system::READINESS,
        };
        Self { name: engine.name().into(), by: by.into(), reason }
    }

    /// Says so where another process of the same load has another.
    pub fn add(&mut self, other: Self) {
        if self.name != other.name && !self.name.contains(" and ") {
            self.name = format!("{} and {}", self.name, other.name);
            self.by = format!("{} and {}", self.by, other.by);
            self.reason = self.reason.take().or(other.reason);
        }
    }
}
