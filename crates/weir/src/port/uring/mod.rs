//! The completion port on io_uring: one ring that all threads share.
//!
//! Starting an operation puts it on a list. Whoever leads (see [`limit`](super::limit)) fills the
//! submission queue from the lists and enters the kernel once, for submitting a batch and for
//! waiting; what finished meanwhile is taken by reading the completion queue, without a call.
//! Submitting a receive when a datagram lies in the socket completes it at once, so under load
//! one entry moves a batch.
//!
//! Sends that wait together and go to one peer are one entry, which the kernel cuts (UDP_SEGMENT): so a batch of
//! answers passes the network stack once.
//!
//! What it costs: a lock around each start and each take (next to nothing where the port is opened for one thread:
//! `biased.rs`), and for each datagram a request that
//! is armed, completed and armed again. A ring used by several threads gives up SINGLE_ISSUER and
//! DEFER_TASKRUN: the thread that armed a receive copies what comes, even while it parks. Of several
//! threads the one that takes is mostly the same, so it is also the one that arms. With COOP_TASKRUN it
//! is not interrupted for that (which on TCP cost more than half of all: the interrupt, and then waiting
//! for the very socket that the sender's core still held): it does so when it enters the kernel, or parks,
//! or at the next tick of the clock. So what comes for a thread that computes for long reaches another
//! one up to a tick (1 to 10 ms) later; on a core without ticks (`nohz_full`), when it has computed.
//!
//! How it fails: every receive that is armed on a socket is woken by every datagram, and all but
//! one arm themselves again. So only a few are armed ([`Shape::armed`]) and the others wait in a
//! list; thousands armed, as Windows likes them, cost most when little arrives. Receives armed by
//! a thread that exits come back as returned when the next datagram comes: threads park until the
//! port is closed.
//!
//! While datagrams gather ([`take_gathered`](super::Worker::take_gathered)) no receive is armed anew, so that none wakes a
//! thread: the leader sleeps with a time-out, and then sweeps the sockets with receives that do not wait (MSG_DONTWAIT).
//!
//! A thread that takes may be interrupted by the kernel's work for its receives: calls of its own
//! that have a time limit (a receive with SO_RCVTIMEO, epoll_wait) may then fail with EINTR, and
//! are to be tried again. Threads that only post packets or close are left alone.
//!
//! Bounds: operations and packets as in [`Needs`], with all memory for them taken up front. The
//! submission queue, when it is full, is submitted and filled again. The completion queue has
//! room for everything outstanding up to 65,536 entries; beyond that the kernel keeps a list,
//! which is counted as overflows. Where io_uring is forbidden the provider is unavailable; nothing
//! takes its place.
//!
//! Origin: io_uring, Linux 5.1; RECVMSG and SENDMSG with buffers of their own, Linux 5.3. This one needs
//! Linux 5.17.

mod biased;
mod headers;
mod inner;
mod operations;
mod place;
mod sends;
mod socket;
mod state;
pub mod streams;
#[cfg(test)]
mod tests;
mod worker;

pub use worker::UringWorker;

use super::{
    Key, Needs, Packet, Port, Provider, Refused, Shape, SocketId, Stopped, concurrency, proof,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    memory::Layout,
    ring::{self, Wanted},
    socket::DatagramSocket,
    wake::Waker,
};
use inner::{Inner, Numbers};
use operations::Operations;
use place::Place;
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// The provider, with what can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uring {
    /// How much the kernel is given at a time.
    pub shape: Shape,
}

/// The most receives, sends, or packets: as many as a token can tell apart.
const MOST: u32 = 1 << 24;

impl Uring {
    /// Refuses what makes no sense before anything is allocated for it.
    fn check(&self, needs: &Needs) -> Result<(), Error> {
        for (name, value, least) in [
            ("armed", self.shape.armed, 0),
            ("submit-after", self.shape.submit_after, 1),
            ("threads", needs.threads, 1),
            ("sockets", needs.sockets, 1),
            ("receives", needs.receives, 0),
            ("sends", needs.sends, 0),
            ("packets", needs.packets, 0),
        ] {
            if !(least..=MOST).contains(&value) {
                let problem = format!("{value} is not allowed; allowed: {least} to {MOST}");
                return Err(Error::option(name, problem));
            }
        }
        Ok(())
    }

    /// Most receives that are armed on a socket at a time.
    fn most_armed(&self, needs: &Needs) -> u32 {
        let armed = if self.shape.armed == 0 { super::armed_count::MOST } else { self.shape.armed };
        armed.min(needs.receives)
    }

    fn wanted(&self, needs: &Needs) -> Wanted {
        let armed = self.most_armed(needs).saturating_mul(needs.sockets);
        let outstanding = armed.saturating_add(needs.sends).saturating_add(1);
        Wanted {
            r#use: ring::Use::SharedUninterrupted,
            // Room for all that is armed, for a batch of sends, and for a cancel.
            submissions: armed.saturating_add(64).clamp(64, 4096),
            // Each operation may be joined by the completion of its cancel.
            completions: outstanding.saturating_mul(2).clamp(256, 65_536),
            kernel: KERNEL,
        }
    }
}

/// The first Linux with all that it needs: completions that are skipped (IORING_FEAT_CQE_SKIP), which its
/// alarm uses. A table of files came with 5.19; it does without.
const KERNEL: &str = "5.17";

const WHAT: &str = "provider uring of the completion port";

/// Whether the shape is one that a ring can have.
fn nothing_to_skip(shape: &Shape) -> Result<(), Unavailable> {
    if !shape.skip_ready {
        return Ok(());
    }
    let reason = "completions of a ring are taken without a call, and so is what is done at once";
    Err(Unavailable::new("skip-ready", reason).advise("leave it off"))
}

impl Provider for Uring {
    const NAME: &'static str = "uring";
    type Port = UringPort;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        nothing_to_skip(&self.shape)?;
        let few = Self { shape: Shape::original(1) };
        ring::proved(|| proof::prove(&few, WHAT, Some(ring::use_a_kernel(KERNEL))))?;
        Ok(Layout::packed(0, needs.payload, 64))
    }

    fn open(&self, needs: &Needs) -> Result<UringPort, Error> {
        self.check(needs)?;
        let concurrency = concurrency(needs.concurrency);
        let numbers = Numbers {
            packets: needs.packets,
            outstanding: needs.receives + needs.sends,
            threads: needs.threads,
            concurrency,
            submit_after: self.shape.submit_after,
        };
        let operations = Operations::new(needs, self.shape.armed);
        let inner = Inner::open(WHAT, &self.wanted(needs), operations, &numbers)?;
        let file_table = inner.ring.make_file_table(needs.sockets).is_ok();
        let most = self.most_armed(needs);
        let armed = match self.shape.armed {
            0 => format!("as many as come at once, at most {most}"),
            _ => most.to_string(),
        };
        let busy_poll = OnceLock::new();
        Ok(UringPort { inner, file_table, concurrency, armed, needs: *needs, busy_poll })
    }
}

/// A completion port on a ring that all threads share.
pub struct UringPort {
    /// Shared with those who may close the port.
    inner: Arc<Inner<Operations>>,
    /// Whether sockets have a place in the ring's table of files.
    file_table: bool,
    concurrency: u32,
    armed: String,
    needs: Needs,
    /// What came of busy polling, where a socket asked for it.
    busy_poll: OnceLock<String>,
}

impl Port for UringPort {
    type Worker<'a> = UringWorker<'a>;

    fn associate(&self, socket: DatagramSocket, key: Key) -> Result<SocketId, Error> {
        if let Some(time) = socket.busy_poll() {
            self.busy_poll.get_or_init(|| self.inner.ring.busy_poll(time));
        }
        self.inner.with(|state| {
            let number = state.operations.sockets.len() as u32;
            if number == self.needs.sockets {
                let problem = format!("the port was opened for {number}; open it for more");
                return Err(Error::option("sockets", problem));
            }
            let file = match self.file_table {
                true => self.inner.ring.set_file(number, socket.native().fd()).ok(),
                false => None,
            };
            state.operations.associate(socket, key, file.map(|()| number));
            Ok(SocketId(number))
        })
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet, counters)
    }

    fn worker(&self) -> Result<UringWorker<'_>, Error> {
        Place::at(&self.inner, self.needs.threads).map(UringWorker)
    }

    fn close(&self) {
        self.inner.close();
    }

    fn closer(&self) -> Waker {
        self.inner.closer()
    }

    fn finisher(&self, within: Duration) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || {
            inner.tell(|state| {
                let started = state.operations.end_receiving(Instant::now() + within);
                state.cancel_later(started);
            });
        })
    }

    fn stop(self, by: Instant) -> Stopped {
        self.inner.stop(by, || self.give_up())
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let (submissions, completions) = self.inner.ring.sizes();
        let busy_poll = self.busy_poll.get().map(|told| ("busy-poll-wait", told.clone()));
        let granted = vec![
            ("ring-flags", self.inner.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
            ("file-table", self.file_table.to_string()),
            ("armed-obtained", self.armed.clone()),
            ("submit-after-obtained", self.inner.submit_after.to_string()),
            ("concurrency-obtained", self.concurrency.to_string()),
        ];
        granted.into_iter().chain(busy_poll).collect()
    }
}

impl UringPort {
    /// Takes the sockets from the ring, which would hold them until the kernel has done away
    /// with it, and gives up the rest.
    fn give_up(&self) -> Option<(u32, u32)> {
        let state = self.inner.with_any(Option::take)?;
        for (number, associated) in state.operations.sockets.iter().enumerate() {
            if associated.has_file() {
                let _ = self.inner.ring.set_file(number as u32, -1);
            }
        }
        Some(state.give_up())
    }
}

impl Drop for UringPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.give_up();
    }
}
