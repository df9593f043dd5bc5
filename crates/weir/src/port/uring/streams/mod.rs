//! The completion port for streams on io_uring: one ring that all threads share, as for datagrams
//! ([`uring`](super)), with other operations.
//!
//! Starting an operation puts it on a list; whoever leads hands what waits to the kernel, in the entry that
//! waits for completions. An operation that can be done at once is done as it is submitted: where bytes lie
//! in a socket a receive needs no wait, and where there is room a send needs none.
//!
//! *The order of receives.* Several receives that wait on one socket are each woken by what arrives, in an
//! order that the kernel does not promise: on Linux 6.18 four of them were filled in the order 4, 1, 3, 2
//! (`receives_that_wait_together` in `tests.rs` shows it). One that was woken many times in vain is moved to a thread of the kernel, which
//! blocks in it. So numbering them as they are submitted would tell nothing of the order of their bytes. Linked requests would
//! keep it (each starts when the one before is over), but a chain is only a chain when it is submitted as a
//! whole, which several threads that submit side by side cannot promise each other. Here receives of a
//! stream are handed over one by one, in the order started: the next when the completion of the one before
//! was taken from the ring, before anybody handles it. So the number of a receive is that of its bytes,
//! by nothing but the order of these steps.
//!
//! *Waiting without memory* is a poll of the socket: a receive of no bytes, by another name.
//!
//! *Closing.* What is outstanding on a descriptor is cancelled by one request for all of it. That request
//! names the descriptor, so it must reach the kernel before the number can belong to another connection:
//! it lies in the submission queue, which is taken in order, before anything of a later connection; and
//! one that found no room is forgotten when its stream is over.
//!
//! *While messages gather* no receive is armed anew, as with datagrams. But connections are too many to be swept: an epoll
//! set tells which of them have something (`watched.rs`).
//!
//! What it costs: a lock around each start and each take, as there; a look-up of the descriptor for each operation,
//! since threads share the table and connections come and go. How it fails: see [`uring`](super).
//!
//! Origin: io_uring; accepting, receiving and sending, Linux 5.6; cancelling by descriptor, Linux 5.19.

pub mod events;
mod operations;
#[cfg(test)]
mod tests;
mod watched;
mod worker;

pub use worker::StreamsWorker;

use super::{
    MOST,
    inner::{Inner, Numbers},
    nothing_to_skip,
    place::Place,
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    port::{
        Key, Packet, Refused, Shape, Stopped, concurrency,
        streams::{ListenerId, Needs, Port, Provider, StreamId, proof},
    },
    ring::{self, Wanted},
    stream::{Listener, Stream},
    wake::Waker,
};
use operations::Operations;
use std::{io, sync::Arc, time::Instant};

/// The provider, with what can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UringStreams {
    /// How much the kernel is given at a time. One receive of a stream is, whatever is asked for.
    pub shape: Shape,
}

const KERNEL: &str = "5.19";

const WHAT: &str = "provider uring of the completion port for streams";

impl UringStreams {
    fn check(&self, needs: &Needs) -> Result<(), Error> {
        for (name, value, least) in [
            ("submit-after", self.shape.submit_after, 1),
            ("threads", needs.threads, 1),
            ("listeners", needs.listeners, 0),
            ("streams", needs.streams, 1),
            ("accepts", needs.accepts, 0),
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
}

/// Entries of the submission queue: for a batch. What finds no room waits in a list.
const SUBMISSIONS: u32 = 1024;

fn wanted(needs: &Needs) -> Wanted {
    // One receive or wait of each stream is in the kernel's hands.
    let receives = needs.receives.min(needs.streams);
    let outstanding = receives.saturating_add(needs.sends).saturating_add(needs.accepts);
    Wanted {
        r#use: ring::Use::SharedUninterrupted,
        submissions: SUBMISSIONS,
        completions: outstanding.saturating_add(SUBMISSIONS).clamp(2 * SUBMISSIONS, 65_536),
        kernel: KERNEL,
    }
}

/// As [`nothing_to_skip`].
fn nothing_to_reuse(shape: &Shape) -> Result<(), Unavailable> {
    if !shape.reuse_sockets {
        return Ok(());
    }
    let reason = "an accept of a ring makes the socket itself, and takes none that has been used";
    Err(Unavailable::new("reuse-sockets", reason).advise("leave it off"))
}

impl Provider for UringStreams {
    const NAME: &'static str = "uring";
    type Port = UringStreamsPort;

    fn availability(&self) -> Result<(), Unavailable> {
        nothing_to_skip(&self.shape)?;
        nothing_to_reuse(&self.shape)?;
        ring::proved(|| proof::prove(self, WHAT, Some(ring::use_a_kernel(KERNEL))))
    }

    fn open(&self, needs: &Needs) -> Result<UringStreamsPort, Error> {
        self.check(needs)?;
        let concurrency = concurrency(needs.concurrency);
        let numbers = Numbers {
            packets: needs.packets,
            outstanding: 0,
            threads: needs.threads,
            concurrency,
            submit_after: self.shape.submit_after,
        };
        let inner = Inner::open(WHAT, &wanted(needs), Operations::new(needs), &numbers)?;
        Ok(UringStreamsPort { inner, concurrency, needs: *needs })
    }
}

/// A completion port for streams on a ring that all threads share.
pub struct UringStreamsPort {
    /// Shared with those who may close the port, or post to it.
    inner: Arc<Inner<Operations>>,
    concurrency: u32,
    needs: Needs,
}

impl Port for UringStreamsPort {
    type Worker<'a> = StreamsWorker<'a>;

    fn listen(&self, listener: Listener, key: Key) -> Result<ListenerId, Error> {
        self.inner.with(|state| state.operations.listen(listener, key)).ok_or_else(|| {
            let problem = format!("the port was opened for {}", self.needs.listeners);
            Error::option("listeners", problem)
        })
    }

    fn associate(&self, stream: Stream, key: Key) -> Result<StreamId, Refused> {
        self.inner.with(|state| match state.closed {
            true => Err(Refused::Closed),
            false => state.operations.associate(stream, key),
        })
    }

    fn post(&self, packet: Packet, counters: &Counters) -> Result<(), (Packet, Refused)> {
        self.inner.post(packet, counters)
    }

    fn poster(&self, packet: Packet) -> Waker {
        let inner = Arc::clone(&self.inner);
        Waker::new(move || {
            let _ = inner.post(packet, &Counters::default());
        })
    }

    fn worker(&self) -> Result<StreamsWorker<'_>, Error> {
        Place::at(&self.inner, self.needs.threads).map(StreamsWorker)
    }

    fn received_in_all(&self, stream: StreamId, counters: &Counters) -> io::Result<u64> {
        self.inner.with(|state| state.operations.stream(stream))?.received_in_all(counters)
    }

    fn close(&self) {
        self.inner.close();
    }

    fn closer(&self) -> Waker {
        self.inner.closer()
    }

    fn stop(self, by: Instant) -> Stopped {
        self.inner.stop(by, || self.give_up())
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        let (submissions, completions) = self.inner.ring.sizes();
        vec![
            ("ring-flags", self.inner.ring.flags()),
            ("submission-entries", submissions.to_string()),
            ("completion-entries", completions.to_string()),
            ("submit-after-obtained", self.inner.submit_after.to_string()),
            ("concurrency-obtained", self.concurrency.to_string()),
        ]
    }
}

impl UringStreamsPort {
    fn give_up(&self) -> Option<(u32, u32)> {
        let state = self.inner.with_any(Option::take)?;
        Some(state.give_up())
    }
}

impl Drop for UringStreamsPort {
    fn drop(&mut self) {
        // Without a stop: what the kernel holds is leaked and counted.
        self.give_up();
    }
}
