//! Processes that were started together, on one host or on several.
//!
//! What a flood, a load or a comparison over several hosts asks of whatever started them: who they are, and messages and
//! sums among them. Every call that waits has a time by which it returns, and names who did not come until then: nobody
//! hangs because another does. The crate `weir-mpi` implements it on MPI; [`memory`] in one process, for tests.
//!
//! A collective call (broadcast, gather, sum, barrier) is made by every rank, in the same order. Messages between two ranks
//! arrive in order, and are never mistaken for those of a collective call. Only one thread of a process makes calls that wait
//! at a time; the others any thread may make meanwhile.

pub mod clocks;
pub mod course;
mod join;
pub mod memory;
pub mod tree;

use std::{
    fmt,
    time::{Duration, Instant},
};

pub use join::{JoinError, join};

/// The most bytes of one message: a document of a part with all its histograms takes a tenth.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Processes that were started together; each sees itself as one of them.
pub trait Ranks: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many there are, 1 at least.
    fn count(&self) -> usize;

    /// The name of the host that a rank runs on.
    fn host(&self, rank: usize) -> &str;

    /// Gives to all what `from` has; what others pass is ignored.
    ///
    /// # Errors
    /// Who did not come until then; once the run is [asked to end](Self::ask_to_end) as of a [barrier](Self::barrier).
    fn broadcast(&self, from: usize, bytes: Vec<u8>, until: Instant) -> Result<Vec<u8>, Lost>;

    /// Gives to rank 0 what each has, in the order of the ranks; the others get nothing.
    ///
    /// # Errors
    /// Who did not come until then.
    fn gather(&self, mine: &[u8], until: Instant) -> Result<Option<Vec<Vec<u8>>>, Lost>;

    /// Adds up the counts of all, place by place, at rank 0, in a time that grows with the logarithm of the ranks. Every
    /// rank passes equally many. A sum stops at [`u64::MAX`] or wraps, so counts are to be far from it.
    ///
    /// # Errors
    /// Who did not come until then.
    fn sum(&self, counts: &mut [u64], until: Instant) -> Result<(), Lost>;

    /// Returns when all have called it.
    ///
    /// # Errors
    /// Who did not come until then; also once the run is [asked to end](Self::ask_to_end), since somebody may not come then.
    /// No further collective call can be made after an error.
    fn barrier(&self, until: Instant) -> Result<(), Lost>;

    /// Sends to another rank, and does not wait until it is received.
    ///
    /// # Errors
    /// If that rank is known to be lost, or has more unread than may be.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Lost>;

    /// The next message of another rank.
    ///
    /// # Errors
    /// If there is none until then.
    fn receive(&self, from: usize, until: Instant) -> Result<Vec<u8>, Lost>;

    /// The first rank that was found to be lost, also while nobody waits for it: its process has ended or is stopped, its
    /// host or the link to it is down. At rank 0 any other rank, elsewhere rank 0.
    fn lost(&self) -> Option<Lost>;

    /// Has `call` called, by any thread, each time that something has come: a message, a loss, the wish to end. A later one takes
    /// its place. It must not wait, nor ask these ranks for anything.
    fn on_news(&self, call: Box<dyn Fn() + Send + Sync>);

    /// Asks all ranks to end what they do, in order. Who does not give a sign of life within that time from then on is lost.
    fn ask_to_end(&self, within: Duration);

    /// Whether any rank has asked for that.
    fn is_asked_to_end(&self) -> bool;
}

/// How often whoever waits for another rank looks whether the run goes on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The next message of a rank that may wait for others, whose loss only rank 0 may see: then the run ends.
///
/// # Errors
/// Who is lost, or that the run is [asked to end](Ranks::ask_to_end); if there is no message until then, that rank.
pub fn receive(ranks: &dyn Ranks, from: usize, until: Instant) -> Result<Vec<u8>, Lost> {
    loop {
        let received = ranks.receive(from, until.min(Instant::now() + LOOK_EVERY));
        match received {
            Err(lost) if lost.why == LATE && Instant::now() < until => {}
            received => return received,
        }
        if let Some(lost) = ranks.lost() {
            return Err(lost);
        }
        if ranks.is_asked_to_end() {
            return Err(Lost { rank: None, host: String::new(), why: ASKED_TO_END.into() });
        }
    }
}

/// A rank that did not come, or is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Which; none where that is not known.
    pub rank: Option<usize>,
    /// The host that it runs on; empty where that is not known.
    pub host: String,
    /// What is known of it, as the end of a sentence: "has given no sign of life for 5 s"; where no rank is named, all of
    /// the sentence.
    pub why: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.host.as_str()) {
            (Some(rank), "") => write!(f, "rank {rank} {}", self.why),
            (Some(rank), host) => write!(f, "rank {rank} on {host} {}", self.why),
            (None, _) => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Lost {}

/// What a call says of a rank that did not come until then.
pub const LATE: &str = "did not come in time";

/// What a call says that cannot be completed because the run is to end.
pub const ASKED_TO_END: &str = "the run was asked to end";

/// What a collective call says after one that failed.
pub const OUT_OF_STEP: &str = "the ranks are out of step, since an earlier call among them failed";
