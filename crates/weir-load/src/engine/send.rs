//! One call a datagram.
//!
//! Mechanism: `send` on a connected socket. Cost: a system call for each datagram, and on
//! loopback the whole way up to the receiving socket with it. Runs everywhere. It is what
//! the originals' blocking generator did, and the yardstick for the others.

use std::io;

use super::{Batch, Datagrams, Engine, Lane, Opened, Sent};

struct Send {
    datagrams: Datagrams,
}

pub(super) fn open(size_bytes: usize, _: &[Lane]) -> Opened {
    Ok(Box::new(Send { datagrams: Datagrams::new(size_bytes, 1) }))
}

impl Engine for Send {
    fn capacity(&self) -> u32 {
        1
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        debug_assert_eq!(batch.datagrams, 1);
        self.datagrams.stamp(batch);
        loop {
            match lane.send(self.datagrams.one(0)) {
                Ok(_) => return Sent { sent: 1, ..Sent::default() },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Sent::until(0, 1, error),
            }
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams per call", "1".into())]
    }
}
