//! Takes what a server answers, a datagram a call.

use std::io::{self, Read as _};

use crate::engine::{Lane, Refusal, refusal_of};

/// Room for the longest datagram.
const DATAGRAM_BYTES: usize = 1 << 16;
/// The most that are taken at a time.
const DATAGRAMS_MAX: u32 = 64;

/// What answers are received into. It belongs to one thread.
pub struct Answers {
    bytes: Box<[u8]>,
}

impl Answers {
    /// For these lanes, whose sockets do not block.
    ///
    /// # Errors
    /// None here; other systems may have some.
    pub fn new(_: &[Lane]) -> io::Result<Self> {
        Ok(Self { bytes: vec![0; DATAGRAM_BYTES].into_boxed_slice() })
    }

    /// Whether several datagrams that were sent as one are taken as one: never here.
    pub fn are_taken_together(&self) -> bool {
        false
    }

    /// Takes what has come on a lane, and gives each datagram to `each`; returns how many. It never waits. `taken` is
    /// called when the first is there, before it is given.
    ///
    /// # Errors
    /// What further calls would meet again. That the server refuses is none: its requests are counted as missing.
    pub fn take(
        &mut self,
        lane: &Lane,
        taken: impl FnOnce(),
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<u32> {
        let (mut taken, mut datagrams) = (Some(taken), 0);
        for _ in 0..DATAGRAMS_MAX {
            match (&lane.socket).read(&mut self.bytes) {
                Ok(len) => {
                    if let Some(taken) = taken.take() {
                        taken();
                    }
                    each(&self.bytes[..len]);
                    datagrams += 1;
                }
                Err(error) => match refusal_of(&error) {
                    _ if error.kind() == io::ErrorKind::Interrupted => {}
                    Some(Refusal::WouldBlock) => break,
                    // What became of an earlier request, told once: answers may lie behind it.
                    Some(_) => {}
                    None => return Err(error),
                },
            }
        }
        Ok(datagrams)
    }
}
