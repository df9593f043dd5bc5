//! Batches, which are loops here: there is no call for one.

use super::Native;
use crate::{
    counters::Counters,
    socket::{
        Arrival, Mode, Peer, Received,
        context::{self, Line},
    },
};
use std::{io, num::NonZeroU16};

/// Room for the arrivals of a batch, made once and used again for every call.
pub struct Headers {
    capacity: usize,
    arrivals: Vec<Arrival>,
    /// What stopped the last batch after its first datagram: told by the next call.
    failed: Option<io::Error>,
}

impl Headers {
    /// Headers for batches of up to `capacity` datagrams.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, arrivals: Vec::with_capacity(capacity), failed: None }
    }

    pub(in crate::socket) fn receive<B: AsMut<[u8]>>(
        &mut self,
        native: &Native,
        buffers: &mut [B],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<usize> {
        self.arrivals.clear();
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let mut mode = mode;
        for buffer in buffers.iter_mut().take(self.capacity) {
            match native.receive(buffer.as_mut(), mode, counters) {
                Ok(Some(arrival)) => self.arrivals.push(arrival),
                Ok(None) => break,
                Err(e) if self.arrivals.is_empty() => return Err(e),
                Err(e) => {
                    self.failed = Some(e);
                    break;
                }
            }
            mode = Mode::Try;
        }
        Ok(self.arrivals.len())
    }

    /// The datagram in buffer `i` of the last [`receive_many`](crate::socket::DatagramSocket::receive_many).
    #[inline]
    pub fn arrival(&self, i: usize) -> Arrival {
        assert!(i < self.arrivals.len(), "datagram {i} of {}", self.arrivals.len());
        self.arrivals[i]
    }

    /// Writes where that datagram came from into the line in front of its payload.
    #[inline]
    pub(crate) fn tell(&self, i: usize, line: &mut Line) -> Received {
        context::write(line, &self.arrival(i))
    }

    pub(in crate::socket) fn send<'a>(
        &mut self,
        native: &Native,
        count: usize,
        mut span: impl FnMut(usize) -> (&'a [u8], Option<NonZeroU16>, Peer),
        counters: &Counters,
    ) -> io::Result<usize> {
        self.arrivals.clear();
        for i in 0..count.min(self.capacity) {
            let (bytes, segment, to) = span(i);
            let sent = match segment {
                None => native.send(bytes, &to, counters),
                Some(segment) => native.send_segments(bytes, segment, &to, counters),
            };
            match sent {
                Ok(()) => {}
                Err(e) if i == 0 => return Err(e),
                // The caller sends the rest again, and is told then.
                Err(_) => return Ok(i),
            }
        }
        Ok(count.min(self.capacity))
    }
}
