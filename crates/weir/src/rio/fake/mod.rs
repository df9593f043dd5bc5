//! Two providers in memory, for tests: they keep the rules of AF_XDP and of Winsock RIO to the
//! letter, and make faults from a seed.
//!
//! A provider in memory has no socket. Its far end is a [`Wire`]: a test injects datagrams
//! into it and collects what was sent. What a real kernel decides (which slice is filled, how
//! late a send completes, whether a wake-up was for nothing) is decided by a generator of
//! random numbers, so with one thread the same seed gives the same run.
//!
//! | rule | [`FakeXdp`] | [`FakeWinsock`] |
//! | --- | --- | --- |
//! | who chooses the slice | the kernel, in its own order | the order of posting |
//! | a posted receive is known to the kernel | at once (a store in the fill ring) | at commit |
//! | a datagram that finds no slice | dropped, counted | waits in the socket's buffer |
//! | a datagram longer than the slice | dropped beyond the chunk | truncated |
//! | sends complete | later, in any order, never as failed | later, in order, perhaps as failed |
//! | at the end, posted slices | are taken back by count | complete with an error |
//! | waiting | poll on a descriptor | notify once, then an event |
//!
//! Both assert what a caller must keep to, and panic where he does not: one poster and one
//! dequeuer at a time, no slice posted twice, queues with
//! [`OneThread`](super::OneThread) on their thread.
//!
//! Not simulated: time (a late completion is late by a number of calls), and the copying of
//! frame headers.

mod kernel;
mod queue;
mod winsock;
mod wire;
mod xdp;

#[cfg(test)]
mod tests;

pub use queue::{Fake, FakeCompletions, FakeOpened, FakeRequests};
pub use winsock::Winsock;
pub use wire::{Injected, SENT_KEPT, Sent, Wire};
pub use xdp::Xdp;

/// A provider with the rules of AF_XDP, in memory.
pub type FakeXdp = Fake<Xdp>;

/// A provider with the rules of Winsock RIO, in memory.
pub type FakeWinsock = Fake<Winsock>;

/// How often things go wrong: probabilities from 0 (never) to 1 (always), drawn anew each
/// time there is an occasion; by default none. Below 1 every fault ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// A wait returns as ready though nothing is there.
    pub spurious_wake: f64,
    /// A dequeue brings nothing though something is there.
    pub empty_dequeue: f64,
    /// A dequeue brings fewer completions than it could.
    pub short_batch: f64,
    /// Completions come in another order, where the mechanism allows it: between sockets
    /// (XDP), and sends before receives (Winsock).
    pub reorder: f64,
    /// A receive fails: a damaged frame whose slice is returned (XDP), or a reset by the other
    /// side (Winsock, where the datagram is not lost by it).
    pub receive_error: f64,
    /// A send fails: the kick is refused and the send goes with a later one (XDP), or it
    /// completes as failed (Winsock).
    pub send_error: f64,
    /// A datagram is dropped as if there were no buffer.
    pub no_buffer: f64,
    /// A completion does not come at the next call but at a later one; also while stopping.
    pub late: f64,
    /// A request never completes once stopping has begun.
    pub stuck: f64,
}

impl Faults {
    /// Every fault that neither loses a datagram nor keeps a slice, with one probability.
    pub fn harmless(probability: f64) -> Self {
        Self {
            spurious_wake: probability,
            empty_dequeue: probability,
            short_batch: probability,
            reorder: probability,
            late: probability,
            ..Self::default()
        }
    }
}

/// Random numbers from a seed (SplitMix64 by Steele, Lea and Flood, 2014): small, and the same
/// on every machine, which is all that is needed here.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True with this probability. Draws nothing where the outcome is certain.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        // 53 random bits fill a double between 0 and 1.
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}
