//! Turns passed by messages from ring to ring (MSG_RING), in place of condition variables.
//!
//! A thread without a turn sleeps in a ring of its own, and whoever gives the turn up submits to his
//! own ring a message for that one. It costs both of them an entry into the kernel, as a condition
//! variable does; a message that comes before the sleep is not lost, so no lock goes with it.
//!
//! A thread that has no ring here (one that stops the server) sends from a ring that is there for
//! that, behind a lock as the others are: theirs are never contended.

use crate::{
    counters::Counters,
    ring::{self, Completions, Ring, Submissions, Token, Use, Wanted},
    rio::turn::Parking,
    sync::Mutex,
};
use io_uring::{opcode, squeue, types};
use std::{io, sync::Arc};

/// A ring for each thread, and one for those that have none.
pub(super) struct Messages {
    threads: Box<[Place]>,
}

struct Place {
    ring: Arc<Ring>,
    submissions: Mutex<Submissions>,
    completions: Mutex<Completions>,
}

/// Each thread is sent one message at a time, and another when the server stops.
const MESSAGES: u32 = 8;

impl Messages {
    /// For so many threads.
    ///
    /// # Errors
    /// What io_uring_setup(2) answered.
    pub fn new(threads: usize) -> io::Result<Self> {
        let threads = (0..=threads).map(|_| Place::new()).collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }
}

impl Messages {
    /// Whether a message arrives here.
    ///
    /// # Errors
    /// What io_uring_setup(2) answered, or that none arrives.
    pub fn prove() -> io::Result<()> {
        let messages = Self::new(1)?;
        messages.rouse(0, None);
        let place = &messages.threads[0];
        // It is put there by the call that sends it.
        match place.completions.lock().unwrap_or_else(|e| e.into_inner()).take().count() {
            0 => Err(io::ErrorKind::Unsupported.into()),
            _ => Ok(()),
        }
    }
}

impl Place {
    fn new() -> io::Result<Self> {
        // Any thread may be the one that it is for, so no flag binds it to the first.
        let wanted = Wanted { r#use: Use::Shared, submissions: 2, completions: MESSAGES };
        let (io, flags) = ring::set_up("turns passed by messages", &wanted)
            .map_err(|why| io::Error::other(why.to_string()))?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable()?;
        let (submissions, completions) = (Mutex::new(submissions), Mutex::new(completions));
        Ok(Self { ring, submissions, completions })
    }
}

impl Parking for Messages {
    fn sleep(&self, thread: usize, counters: &Counters) -> io::Result<()> {
        let place = &self.threads[thread];
        let mut completions = place.completions.lock().unwrap_or_else(|e| e.into_inner());
        while completions.take().count() == 0 {
            counters.kernel_entries.one();
            place.ring.enter(0, 1, None, false)?;
        }
        Ok(())
    }

    fn rouse(&self, thread: usize, by: Option<usize>) {
        let from = &self.threads[by.unwrap_or(self.threads.len() - 1)];
        let to = types::Fd(self.threads[thread].ring.fd());
        let message = opcode::MsgRingData::new(to, 0, Token::bare(0).user_data(), None)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        let mut submissions = from.submissions.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: a message points at nothing.
        unsafe { submissions.push(&[message]) }.expect("each is submitted at once");
        while submissions.pending() > 0 {
            // What this counts is nobody's: a thread that stops the server has no counters.
            let sent = submissions.submit(&Counters::default());
            sent.expect("a ring that is there takes a message");
        }
    }
}
