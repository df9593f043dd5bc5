//! Turns passed by messages from ring to ring (MSG_RING), in place of condition variables.
//!
//! A thread without a turn sleeps in a ring of its own, and whoever gives the turn up submits to his
//! own ring a message for that one. It costs both of them an entry into the kernel, as a condition
//! variable does; a message that comes before the sleep is not lost, so no lock goes with it.
//!
//! Of a message only a failure completes, in its sender's ring, where it wakes nobody up. The sender
//! then puts a completion into the ring of the addressee himself: any thread may submit to it.
//!
//! A thread that has no ring here (one that stops the server) sends from a ring that is there for
//! that, behind a lock as the others are: theirs are never contended.

use super::{KERNEL, completions::push};
use crate::{
    counters::Counters,
    ring::{self, Completions, Ring, Submissions, Use, Wanted},
    rio::turn::Parking,
    sync::{Mutex, MutexGuard},
};
use io_uring::{opcode, squeue, types};
use std::{io, mem, sync::Arc};

/// A ring for each thread, and one for those that have none.
pub(super) struct Messages {
    threads: Box<[Place]>,
}

struct Place {
    ring: Arc<Ring>,
    submissions: Mutex<Submissions>,
    arrived: Mutex<Arrived>,
}

/// What came into a ring.
struct Arrived {
    completions: Completions,
    /// The thread that sleeps here was roused since it slept last.
    roused: bool,
}

/// A message that did not arrive.
struct Failed {
    /// Whom it was for.
    thread: usize,
    error: io::Error,
}

/// Each thread is sent one message at a time, and another when the server stops.
const MESSAGES: u32 = 8;

/// What a completion carries that rouses.
const ROUSED: u64 = 0;

/// What a message carries in its sender's ring, with the number of the addressee below it.
const MESSAGE: u64 = 1 << 32;

impl Messages {
    /// For so many threads.
    ///
    /// # Errors
    /// What io_uring_setup(2) answered.
    pub fn new(threads: usize) -> io::Result<Self> {
        let threads = (0..=threads).map(|_| Place::new()).collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }

    /// Whether a message arrives here.
    ///
    /// # Errors
    /// What io_uring_setup(2) answered, or what became of the message.
    pub fn prove() -> io::Result<()> {
        let messages = Self::new(1)?;
        messages.send(0, None)?;
        // It is put there by the call that sends it.
        if let Some(Failed { error, .. }) = messages.sender(None).arrived().look() {
            return Err(error);
        }
        let mut arrived = messages.threads[0].arrived();
        match (arrived.look(), arrived.roused) {
            (None, true) => Ok(()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Leaves in the sender's ring what a failed message to a thread leaves there.
    #[cfg(test)]
    pub fn fail(&self, thread: usize, by: usize) {
        // No such descriptor: it is refused as a message to a ring that is gone.
        let message = opcode::MsgRingData::new(types::Fd(-1), 0, ROUSED, None)
            .build()
            .user_data(MESSAGE | thread as u64)
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.sender(Some(by)).submit(&message).unwrap();
    }

    /// Where a thread sends from.
    fn sender(&self, by: Option<usize>) -> &Place {
        &self.threads[by.unwrap_or(self.threads.len() - 1)]
    }

    /// Sends a message; whether it arrived is to be looked up in the sender's ring.
    fn send(&self, thread: usize, by: Option<usize>) -> io::Result<()> {
        let to = types::Fd(self.threads[thread].ring.fd());
        let message = opcode::MsgRingData::new(to, 0, ROUSED, None)
            .build()
            .user_data(MESSAGE | thread as u64)
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.sender(by).submit(&message)
    }
}

impl Place {
    fn new() -> io::Result<Self> {
        // Any thread may be the one that it is for, so no flag binds it to the first.
        let wanted =
            Wanted { r#use: Use::Shared, submissions: 2, completions: MESSAGES, kernel: KERNEL };
        let (io, flags) = ring::set_up("turns passed by messages", &wanted)
            .map_err(|why| io::Error::other(why.to_string()))?;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable()?;
        let arrived = Mutex::new(Arrived { completions, roused: false });
        Ok(Self { ring, submissions: Mutex::new(submissions), arrived })
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Rouses the thread that sleeps here without a message.
    #[cold]
    fn nudge(&self) -> io::Result<()> {
        self.submit(&opcode::Nop::new().build().user_data(ROUSED))
    }

    /// Submits an entry that points at nothing.
    fn submit(&self, entry: &squeue::Entry) -> io::Result<()> {
        // What this counts is nobody's: a thread that stops the server has no counters.
        let counters = Counters::default();
        let mut submissions = self.submissions.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the caller says that it points at nothing.
        if !unsafe { push(&mut submissions, std::slice::from_ref(entry), &counters) }? {
            return Err(io::ErrorKind::ResourceBusy.into()); // an earlier one cannot be submitted
        }
        while submissions.pending() > 0 {
            submissions.submit(&counters)?;
        }
        Ok(())
    }
}

impl Arrived {
    /// Takes what came, up to a message that failed.
    fn look(&mut self) -> Option<Failed> {
        let Self { completions, roused } = self;
        for entry in completions.take() {
            match entry.user_data() {
                ROUSED => *roused = true,
                message => {
                    let thread = (message & !MESSAGE) as usize;
                    let error = io::Error::from_raw_os_error(-entry.result());
                    return Some(Failed { thread, error });
                }
            }
        }
        None
    }
}

impl Parking for Messages {
    fn sleep(&self, thread: usize, counters: &Counters) -> io::Result<()> {
        let place = &self.threads[thread];
        let mut arrived = place.arrived();
        loop {
            while let Some(Failed { thread, .. }) = arrived.look() {
                self.threads[thread].nudge()?;
            }
            if mem::take(&mut arrived.roused) {
                return Ok(());
            }
            counters.kernel_entries.one();
            place.ring.enter(0, 1, None, false)?;
        }
    }

    fn rouse(&self, thread: usize, by: Option<usize>) -> io::Result<()> {
        if self.send(thread, by).is_err() {
            return self.threads[thread].nudge();
        }
        // The calling thread is awake, so nobody sleeps with this guard.
        let mut arrived = self.sender(by).arrived();
        while let Some(Failed { thread, .. }) = arrived.look() {
            self.threads[thread].nudge()?;
        }
        Ok(())
    }
}
