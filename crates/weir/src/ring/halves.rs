//! The two queues of a ring. Holding one of these values is the right to use that queue.

use super::{Entered, Ring, Token};
use crate::counters::Counters;
use io_uring::{cqueue, opcode, squeue, types};
use std::{
    io, mem,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Entries held back for cancels: whatever else fills the submission queue, the request that
/// ends the others finds room.
const RESERVED_FOR_CANCEL: usize = 1;

/// Far longer than a thread of the kernel takes that runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The submitting half of a ring.
#[derive(Debug)]
pub(crate) struct Submissions {
    ring: Arc<Ring>,
    /// Entries into the kernel that the next [`submit`](Self::submit) counts.
    uncounted: u64,
}

/// What the kernel says beside its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attention {
    /// There is task work that only an entry into the kernel runs.
    pub task_work: bool,
    /// There are completions that found no room; an entry flushes them.
    pub overflow: bool,
}

impl Submissions {
    pub(super) fn new(ring: Arc<Ring>) -> Self {
        Self { ring, uncounted: 0 }
    }

    #[inline]
    fn queue(&mut self) -> squeue::SubmissionQueue<'_> {
        // SAFETY: a ring has one `Submissions`, and `&mut self` makes this its only use.
        unsafe { self.ring.io.submission_shared() }
    }

    /// Adds entries, all or none. They reach the kernel with the next [`submit`](Self::submit),
    /// or with any entry that submits. Where a thread of the kernel takes them they wait for it to make room.
    ///
    /// # Errors
    /// [`QueueFull`] when the queue is full: submit, then try again.
    ///
    /// # Safety
    /// What the entries point at stays valid until their last completion.
    #[inline]
    pub unsafe fn push(&mut self, entries: &[squeue::Entry]) -> Result<(), QueueFull> {
        let wanted = entries.len() + RESERVED_FOR_CANCEL;
        let mut queue = self.queue();
        if queue.capacity() - queue.len() < wanted {
            drop(queue);
            self.wait_for_room(wanted)?;
            queue = self.queue();
        }
        // SAFETY: the caller vouches for what the entries point at.
        unsafe { queue.push_multiple(entries) }.map_err(|_| QueueFull)
    }

    /// The same with entries that stand in several places.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Safety
    /// As of [`push`](Self::push).
    #[inline]
    pub unsafe fn push_each<'e>(
        &mut self,
        entries: impl ExactSizeIterator<Item = &'e squeue::Entry>,
    ) -> Result<(), QueueFull> {
        let wanted = entries.len() + RESERVED_FOR_CANCEL;
        let mut queue = self.queue();
        if queue.capacity() - queue.len() < wanted {
            drop(queue);
            self.wait_for_room(wanted)?;
            queue = self.queue();
        }
        for entry in entries {
            // SAFETY: the caller vouches for what the entries point at.
            unsafe { queue.push(entry) }.map_err(|_| QueueFull)?;
        }
        Ok(())
    }

    /// Whether there is room for so many entries beside the one that is held back for a cancel.
    pub fn has_room(&mut self, entries: usize) -> bool {
        let queue = self.queue();
        queue.capacity() - queue.len() >= entries + RESERVED_FOR_CANCEL
    }

    /// Waits until a thread of the kernel has taken so much that there is room for so many entries. It tells of
    /// what is over before it gives the entries of its batch back, so whoever starts one for each that is
    /// over finds the queue full for a moment.
    #[cold]
    fn wait_for_room(&mut self, entries: usize) -> Result<(), QueueFull> {
        if !self.ring.has_kernel_thread() {
            return Err(QueueFull);
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let queue = self.queue();
            let room = queue.capacity() - queue.len();
            drop(queue);
            if room >= entries {
                return Ok(());
            }
            self.make_known().map_err(|_| QueueFull)?; // it may sleep
            if Instant::now() >= until {
                return Err(QueueFull);
            }
            self.uncounted += 1;
            match room {
                // This wait ends with the first entry that is taken, and also by a signal, and by work that the
                // kernel has for this thread: so what it answers is not asked.
                0 => drop(self.ring.io.submitter().squeue_wait()),
                _ => thread::yield_now(),
            }
        }
    }

    /// Asks the kernel to cancel the request of a token, and submits everything so far. The
    /// request is over at its own last completion, not at this one's, which carries `own`.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered; EBUSY if the kernel takes no entry at all before
    /// completions are taken: then take some, and cancel again.
    pub fn cancel(&mut self, token: Token, own: Token, counters: &Counters) -> io::Result<()> {
        self.push_cancel(opcode::AsyncCancel::new(token.user_data()).build(), own, counters)
    }

    /// The same for every request that the kernel has, of whoever has put it there: one search for all of them, where
    /// one for each would look past all others. Needs Linux 5.19: before, its own completion is EINVAL.
    ///
    /// # Errors
    /// As [`cancel`](Self::cancel).
    pub fn cancel_all(&mut self, own: Token, counters: &Counters) -> io::Result<()> {
        let all = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        self.push_cancel(all, own, counters)
    }

    fn push_cancel(
        &mut self,
        entry: squeue::Entry,
        own: Token,
        counters: &Counters,
    ) -> io::Result<()> {
        let entry = entry.user_data(own.user_data());
        // SAFETY: a cancel points at nothing.
        if unsafe { self.queue().push(&entry) }.is_err() {
            // The entry held back is taken by a cancel that the kernel has not fetched yet.
            self.submit(counters)?;
            let _ = self.wait_for_room(1); // where a thread of the kernel fetches it
            // SAFETY: as above.
            unsafe { self.queue().push(&entry) }
                .map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        }
        self.submit(counters)
    }

    /// Entries that the kernel has not taken yet.
    #[inline]
    pub fn pending(&mut self) -> u32 {
        self.queue().len() as u32
    }

    /// Makes pushed entries known to the kernel. Enters it at most once, and not at all where a
    /// thread of the kernel is awake to take them.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered.
    pub fn submit(&mut self, counters: &Counters) -> io::Result<()> {
        let known = self.make_known();
        counters.kernel_entries.add(mem::take(&mut self.uncounted));
        known
    }

    /// The same, with the entry to be counted.
    fn make_known(&mut self) -> io::Result<()> {
        let pending = self.pending();
        if pending == 0 {
            return Ok(());
        }
        let wake = self.ring.has_kernel_thread();
        if wake && !self.queue().need_wakeup() {
            return Ok(());
        }
        self.uncounted += 1;
        self.ring.enter(pending, 0, None, wake).map(|_: Entered| ())
    }

    /// What the kernel says beside its queues.
    #[inline]
    pub fn attention(&mut self) -> Attention {
        let queue = self.queue();
        Attention { task_work: queue.taskrun(), overflow: queue.cq_overflow() }
    }
}

/// The submission queue has no room but for a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The completing half of a ring.
#[derive(Debug)]
pub(crate) struct Completions {
    ring: Arc<Ring>,
}

impl Completions {
    pub(super) fn new(ring: Arc<Ring>) -> Self {
        Self { ring }
    }

    /// The completions that are there now; each is gone once taken from the iterator.
    #[inline]
    pub fn take(&mut self) -> cqueue::CompletionQueue<'_> {
        // SAFETY: a ring has one `Completions`, and `&mut self` makes this its only use.
        unsafe { self.ring.io.completion_shared() }
    }

    /// How many completions are there now.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.take().len()
    }

    /// Completions that the kernel lost for want of memory: then the queue is of no more use.
    pub fn lost(&mut self) -> u32 {
        self.take().overflow()
    }
}
