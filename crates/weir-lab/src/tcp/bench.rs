//! What a comparison of TCP needs of the world: to run a row under a load, once.
//!
//! [`super::processes`] does it for real, with a server and a client as processes of their own; the tests
//! of [`super::experiment`] simulate it.

use serde::Serialize;

use super::plan::Load;
use super::wire::{LoadReport, ServerReport};
use crate::experiment::course;

/// One run to be made; its warm-up begins when all connections stand.
pub type Run<'a> = course::Run<'a, Load>;

/// What a run delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The server's report.
    pub server: ServerReport,
    /// The client's.
    pub load: LoadReport,
    /// Of a mix, that of the client of those beside.
    pub others: Option<LoadReport>,
    /// Why nothing may be concluded from it, if so: bytes were wrong or lost, or the client's own counts
    /// are wrong.
    pub invalid: Option<String>,
    /// Share (0 to 1) of all cores that other programs had meanwhile, if known.
    pub load_of_others: Option<f64>,
}

/// What a row was checked with, and passed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked {
    /// Connections.
    pub connections: u64,
    /// Messages sent and answered, byte for byte.
    pub messages: u64,
    /// Bytes of a message, at least and at most.
    pub message_bytes: (u32, u32),
    /// What moved the bytes of the client, and why that: `uring` or `readiness`.
    pub client_engine: Option<String>,
    /// What the server did with little to do.
    #[serde(skip)]
    pub idle: Idle,
}

/// What a server does in a ping-pong on one connection, where it can wait half of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Idle {
    /// Cores' worth of time that it takes, if known.
    pub cores_busy: Option<f64>,
    /// Times that it gives up its core for each message, if known.
    pub sleeps_per_message: Option<f64>,
}

/// Cores' worth of time from which a server with little to do counts as polling.
const POLLS: f64 = 0.9;
/// Sleeps per message up to which it does, too: one that waits sleeps for each. On a machine that is busy
/// with other things, a server that polls does not get a core's time, and still hardly gives up its core.
const HARDLY_SLEEPS: f64 = 0.5;

impl Idle {
    /// Whether the server polls. `None` if that is not known.
    pub fn polls(&self) -> Option<bool> {
        let busy = self.cores_busy.map(|cores| cores >= POLLS);
        let sleepless = self.sleeps_per_message.map(|sleeps| sleeps <= HARDLY_SLEEPS);
        match (busy, sleepless) {
            (None, None) => None,
            (busy, sleepless) => Some(busy == Some(true) || sleepless == Some(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_core_busy_or_never_sleeps_polls() {
        let of = |cores_busy, sleeps_per_message| Idle { cores_busy, sleeps_per_message }.polls();
        assert_eq!(of(Some(0.98), Some(0.0)), Some(true));
        assert_eq!(of(Some(0.4), Some(1.0)), Some(false));
        assert_eq!(of(Some(0.5), Some(0.0)), Some(true), "others had the core");
        assert_eq!(of(Some(0.95), None), Some(true));
        assert_eq!(of(None, Some(0.9)), Some(false));
        assert_eq!(of(None, None), None);
    }
}
