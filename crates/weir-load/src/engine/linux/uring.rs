//! Batched sends on an io_uring.
//!
//! Mechanism: a send is queued for each datagram, and one entry into the kernel submits
//! them all and waits for their completions. A UDP send completes while it is submitted,
//! unless the socket's buffer is full and the lane blocks. Cost: as sendmmsg's, plus an
//! entry and a completion each. Fails: where io_uring is missing or forbidden.
//!
//! Each datagram is taken or refused by itself, so one in the middle of a batch may be
//! missing from the sequence.

use std::{io, mem, os::fd::AsRawFd};

use io_uring::{IoUring, opcode, types};
use weir::Unavailable;

use crate::engine::{Batch, Datagrams, Engine, Lane, Opened, Sent, refusal_of};

/// Sends per submission.
const SENDS_MAX: u32 = 64;

struct Uring {
    ring: IoUring,
    flags: &'static str,
    datagrams: Datagrams,
    /// Sends that the kernel has not completed yet: 0 between calls, unless one failed.
    in_flight: u32,
}

pub(super) fn open(size_bytes: usize, _: &[Lane]) -> Opened {
    let (ring, flags) = open_ring().map_err(|error| {
        Unavailable::new("engine uring", format!("io_uring_setup: {error}")).advise(
            "the sysctl kernel.io_uring_disabled or a container's filter may forbid it; \
             use the engine sendmmsg",
        )
    })?;
    let datagrams = Datagrams::new(size_bytes, SENDS_MAX);
    Ok(Box::new(Uring { ring, flags, datagrams, in_flight: 0 }))
}

/// The fastest set-up that this kernel takes.
fn open_ring() -> io::Result<(IoUring, &'static str)> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(SENDS_MAX);
    match best {
        Ok(ring) => Ok((ring, "single issuer, deferred task work, submit all")),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok((IoUring::new(SENDS_MAX)?, "none"))
        }
        Err(error) => Err(error),
    }
}

impl Uring {
    fn queue(&mut self, lane: &Lane, datagrams: u32) {
        let socket = types::Fd(lane.socket.as_raw_fd());
        let mut queue = self.ring.submission();
        for number in 0..datagrams {
            let bytes = self.datagrams.one(number);
            let entry = opcode::Send::new(socket, bytes.as_ptr(), bytes.len() as u32).build();
            // SAFETY: the socket stays open and the bytes stay unchanged until the send is
            // complete: `send` waits for that before it returns, and if the wait fails the
            // buffer is never touched nor freed again (see `send` and `drop`).
            let pushed = unsafe { queue.push(&entry) };
            pushed.expect("the queue is empty before a batch and holds one");
        }
        self.in_flight = datagrams;
    }

    /// Takes the completions that are there into the count.
    fn collect(&mut self, outcome: &mut Sent) {
        for completion in self.ring.completion() {
            self.in_flight -= 1;
            if completion.result() >= 0 {
                outcome.sent += 1;
                continue;
            }
            let error = io::Error::from_raw_os_error(-completion.result());
            match refusal_of(&error) {
                Some(refusal) => {
                    outcome.refused += 1;
                    outcome.refusal = Some(refusal);
                }
                None => {
                    outcome.failed += 1;
                    outcome.failure = Some(error);
                }
            }
        }
    }
}

impl Engine for Uring {
    fn capacity(&self) -> u32 {
        SENDS_MAX
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        if self.in_flight > 0 {
            let failure = io::Error::other("an earlier batch is still with the kernel");
            return Sent { failed: batch.datagrams, failure: Some(failure), ..Sent::default() };
        }
        self.datagrams.stamp(batch);
        self.queue(lane, batch.datagrams);
        let mut outcome = Sent::default();
        while self.in_flight > 0 {
            let waited = self.ring.submit_and_wait(self.in_flight as usize);
            self.collect(&mut outcome);
            match waited {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Whether the kernel sends those that it still has cannot be known.
                    outcome.failed += self.in_flight;
                    outcome.failure = Some(error);
                    break;
                }
            }
        }
        outcome
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams per call", SENDS_MAX.to_string()), ("ring flags", self.flags.into())]
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The kernel may still read the buffer after the ring was closed: it is never
            // freed. Only a failed wait leads here, once in the life of a generator.
            mem::forget(mem::replace(&mut self.datagrams, Datagrams::new(0, 0)));
        }
    }
}
