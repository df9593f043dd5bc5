//! How datagrams are handed to the operating system: one file per way.
//!
//! An [`Engine`] takes a batch of datagrams of one flow and hands it over, as many as it
//! carries in one call, without copying: it owns a buffer that was filled once, and writes
//! only stamps. What every engine must do is with the trait. To add one: write its file,
//! and a line in the table of each operating system, saying where it lacks it (`linux/mod.rs`,
//! `windows/mod.rs`).
//!
//! Sockets are connected, one per flow, each from a port of its own: the kernel looks its
//! route up once, and a datagram that nobody received comes back as an error instead of
//! vanishing.

mod datagrams;
mod head;
mod lane;
mod refusal;
mod send;

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
mod table;

use std::{io, net::Ipv4Addr, time::Duration};

use socket2::{Domain, Socket, Type};
use weir::Unavailable;

pub use datagrams::{Batch, Datagrams};
pub use head::{HEAD_BYTES_MAX, Head};
pub use lane::{Blocking, Lane};
pub use refusal::{Refusal, Refusals, refusal_of};
pub use table::Answers;
#[cfg(target_os = "linux")]
pub use table::receive_together;

use crate::{
    pacing::QUANTA_PER_S,
    proof::Secret,
    stamp::{STAMP_BYTES, fill},
};

/// What became of a batch: `sent + refused + failed` is the batch. The generator counts what
/// it hands over by itself, and a flood whose engine loses count does not balance.
#[derive(Debug, Default)]
pub struct Sent {
    /// Datagrams that the operating system took.
    pub sent: u32,
    /// Datagrams that it did not take; they were not sent and will not be.
    pub refused: u32,
    /// Why, if any were refused.
    pub refusal: Option<Refusal>,
    /// Datagrams that were not sent because of the failure.
    pub failed: u32,
    /// An error that further calls would meet again: the flood ends.
    pub failure: Option<io::Error>,
}

impl Sent {
    /// `sent` went out and then `error` met the `rest`.
    pub fn until(sent: u32, rest: u32, error: io::Error) -> Self {
        match refusal_of(&error) {
            Some(refusal) => {
                Self { sent, refused: rest, refusal: Some(refusal), ..Self::default() }
            }
            None => Self { sent, failed: rest, failure: Some(error), ..Self::default() },
        }
    }
}

/// One way to hand datagrams over. It belongs to the thread that opened it.
///
/// Every engine sends the datagrams of a batch in order, stamps them all with the batch's
/// time, gives nothing up (what the system refuses is counted in [`Sent`]), repeats
/// interrupted calls, and returns only when the system is done with its buffer.
pub trait Engine {
    /// The most datagrams that a batch may have: what one call carries.
    fn capacity(&self) -> u32;

    /// The most calls a second that a paced flood makes; its quanta are as large as that takes.
    fn calls_per_s(&self) -> f64 {
        QUANTA_PER_S
    }

    /// Hands a batch of at most [`capacity`](Self::capacity) datagrams to a lane.
    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent;

    /// How it was set up: what was asked for and what was obtained.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// One line of the table of engines.
#[derive(Debug)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Opens it for datagrams of so many bytes on these lanes. For the current thread.
    pub open: fn(size_bytes: usize, lanes: &[Lane]) -> Opened,
}

/// An engine, or why it cannot be used here.
pub type Opened = Result<Box<dyn Engine>, Unavailable>;

/// The engine that was chosen by trying.
pub struct Best {
    /// Its line in the table.
    pub about: &'static About,
    /// The engine, opened.
    pub engine: Box<dyn Engine>,
    /// Why each better one cannot be used.
    pub passed_over: Vec<Unavailable>,
}

/// Every engine, also those that this operating system lacks; the best first.
pub fn engines() -> &'static [About] {
    &table::ENGINES
}

/// Whether an engine has the system cut datagrams from larger sends.
pub fn has_offload(name: &str) -> bool {
    matches!(name, "gso" | "uso")
}

/// The name of the best engine that hands each datagram over by itself, without segmentation offload.
pub const WITHOUT_OFFLOAD: &str = table::WITHOUT_OFFLOAD;

/// The engine of a name.
///
/// # Errors
/// With the names that exist.
pub fn named(name: &str) -> Result<&'static About, weir::Error> {
    let names = || engines().iter().map(|about| about.name);
    let engine = engines().iter().find(|about| about.name == name);
    engine.ok_or_else(|| weir::Error::unknown_name("engine", name, names()))
}

/// Opens the first engine of the table that can be opened for these datagrams and lanes: `send` at the
/// last, so that none is chosen of those behind it, which must be asked for.
///
/// # Errors
/// If none can be opened: why the last could not.
pub fn open_best(size_bytes: usize, lanes: &[Lane]) -> Result<Best, Unavailable> {
    let mut passed_over = Vec::new();
    for about in engines() {
        match (about.open)(size_bytes, lanes) {
            Ok(engine) => return Ok(Best { about, engine, passed_over }),
            Err(unavailable) => passed_over.push(unavailable),
        }
    }
    Err(passed_over.pop().unwrap_or_else(|| Unavailable::new("engine", "there is none")))
}

impl About {
    /// Tries the engine: whether two datagrams sent with it over loopback arrive as they
    /// were sent. Takes less than a millisecond where it works.
    ///
    /// # Errors
    /// What was tried and what came of it.
    pub fn probe(&self) -> Result<(), Unavailable> {
        const SIZE: usize = 2 * STAMP_BYTES;
        let failed = |what: String| Unavailable::new(format!("engine {}", self.name), what);
        let io_failed = |what: &str, source: io::Error| failed(format!("{what}: {source}"));

        let sink =
            Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(|e| io_failed("no socket", e))?;
        let sink_at = (|| {
            sink.bind(&std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            sink.set_read_timeout(Some(Duration::from_millis(500)))?;
            sink.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
        })()
        .map_err(|e| io_failed("no receiver on loopback", e))?;
        let lane = Lane::connect(sink_at, 0, Blocking::Yes)
            .map_err(|e| io_failed("no sender on loopback", e))?;

        let mut engine = (self.open)(SIZE, std::slice::from_ref(&lane))?;
        let count = engine.capacity().min(2);
        let head = Head::default();
        let secret = Secret::random();
        let batch =
            Batch { run: 1, flow: 0, first_sequence: 0, due_ns: 0, datagrams: count, secret, head };
        let sent = engine.send(&lane, &batch);
        if sent.sent != count {
            return Err(match sent.failure {
                Some(source) => io_failed("sending over loopback", source),
                None => failed(format!("{} of {count} datagrams refused", sent.refused)),
            });
        }
        let sink = std::net::UdpSocket::from(sink);
        for sequence in 0..u64::from(count) {
            let mut received = [0; 4 * SIZE];
            let size = sink
                .recv(&mut received)
                .map_err(|e| io_failed("receiving over loopback what was sent", e))?;
            let mut expected = [0; SIZE];
            fill(&mut expected);
            batch.stamp(sequence).write(&mut expected);
            if received[..size] != expected {
                return Err(failed(format!(
                    "a datagram of {SIZE} bytes arrived as {size} bytes, or changed"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
