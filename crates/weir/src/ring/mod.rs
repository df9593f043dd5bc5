//! What the providers on io_uring share: setting a ring up, its two halves, tokens, and a way
//! to end a wait.
//!
//! A ring has one [`Submissions`] and one [`Completions`]: whoever holds one of them may use
//! that half, so two threads on one half do not compile, and a provider that shares a half says
//! so with a lock around it. [`Ring`] itself, which enters the kernel, may be used by all.
//!
//! | file | what |
//! | --- | --- |
//! | `setup` | sets of flags tried from best to least; why io_uring cannot be used here |
//! | `halves` | the two queues; entries held back so that no cancel is ever lost |
//! | `alarm` | ends a wait from another thread, however many completions it waits for |

mod alarm;
mod halves;
mod setup;

pub(crate) use alarm::{Alarm, LOOK_AGAIN};
pub(crate) use halves::{Attention, Completions, QueueFull, Submissions};
pub(crate) use setup::{Flags, Use, Wanted, proved, set_up, use_a_kernel};

pub(crate) use crate::{
    deadline::TimeLeft,
    token::{Slots, Token},
};

use io_uring::{EnterFlags, IoUring, types};
use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// A ring: the part of it that any thread may use at any time.
pub(crate) struct Ring {
    io: IoUring,
    flags: setup::Flags,
    /// Whether the kernel has a minimum wait, once tried.
    minimum_wait: OnceLock<bool>,
}

/// Longer than a wait that is given a minimum sleeps on with nothing there; it begins again then.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// How an entry into the kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// As asked, or earlier: an [`Alarm`] ends it too.
    Done,
    /// The time was over.
    TimedOut,
    /// A signal came, or the kernel was short of memory for requests or of room for
    /// completions: take completions, then try again.
    TryAgain,
}

impl Ring {
    /// Splits a ring that was set up into what all may use and its two halves.
    pub fn split(io: IoUring, flags: setup::Flags) -> (Arc<Self>, Submissions, Completions) {
        let ring = Arc::new(Self { io, flags, minimum_wait: OnceLock::new() });
        let submissions = Submissions::new(Arc::clone(&ring));
        let completions = Completions::new(Arc::clone(&ring));
        (ring, submissions, completions)
    }

    /// Enters the kernel: submits up to `to_submit` entries, runs task work that was put off,
    /// flushes completions that found no room, and waits for `at_least` completions or until
    /// the time is over. `wake` wakes the kernel's submission thread.
    ///
    /// # Errors
    /// What io_uring_enter(2) answered, where trying again cannot help.
    pub fn enter(
        &self,
        to_submit: u32,
        at_least: u32,
        timeout: Option<Duration>,
        wake: bool,
    ) -> io::Result<Entered> {
        let mut flags = EnterFlags::GETEVENTS;
        if wake {
            flags |= EnterFlags::SQ_WAKEUP;
        }
        let submitter = self.io.submitter();
        let result = if let Some(timeout) = timeout {
            flags |= EnterFlags::EXT_ARG;
            let time = types::Timespec::from(timeout);
            let args = types::SubmitArgs::new().timespec(&time);
            // SAFETY: `args` is the io_uring_getevents_arg that EXT_ARG announces, and it and
            // the time it points at live through the call.
            unsafe { submitter.enter(to_submit, at_least, flags.bits(), Some(&args)) }
        } else {
            // SAFETY: without EXT_ARG the argument is a signal mask, and there is none.
            unsafe { submitter.enter::<libc::sigset_t>(to_submit, at_least, flags.bits(), None) }
        };
        ended(result)
    }

    /// Enters the kernel, submits up to `to_submit` entries, and sleeps until there are `enough` completions, or `at_most`
    /// is over. Where there are none by then it sleeps on until there is one, or `longest` is over, without waking the
    /// thread in between: if the kernel has a minimum wait (IORING_ENTER_EXT_ARG's min_wait_usec, Linux 6.12).
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn enter_gathering(
        &self,
        to_submit: u32,
        enough: u32,
        at_most: Duration,
        longest: Duration,
    ) -> io::Result<Entered> {
        if longest <= at_most || !self.has_minimum_wait() {
            return self.enter(to_submit, enough, Some(at_most.min(longest)), false);
        }
        ended(self.enter_minimum(to_submit, enough, at_most, longest))
    }

    /// Whether the kernel has a minimum wait, found by trying. To be called by a thread that may enter the kernel
    /// with this ring.
    pub fn has_minimum_wait(&self) -> bool {
        *self.minimum_wait.get_or_init(|| {
            // A wait for nothing, which ends at once: it looks at its arguments all the same.
            let refused = self.enter_minimum(0, 0, Duration::from_micros(1), LONG).err();
            refused.is_none_or(|e| e.raw_os_error() != Some(libc::EINVAL))
        })
    }

    fn enter_minimum(
        &self,
        to_submit: u32,
        enough: u32,
        at_most: Duration,
        longest: Duration,
    ) -> io::Result<usize> {
        // Without another time the minimum would end the wait even with nothing there.
        let time = types::Timespec::from(longest);
        let minimum_us = u32::try_from(at_most.as_micros()).unwrap_or(u32::MAX).max(1);
        let args = types::SubmitArgs::new().timespec(&time).min_wait_usec(minimum_us);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: `args` is the io_uring_getevents_arg that EXT_ARG announces, and it and the time it points at live
        // through the call.
        unsafe { self.io.submitter().enter(to_submit, enough, flags.bits(), Some(&args)) }
    }

    /// Enables a ring that was set up disabled. With SINGLE_ISSUER the calling thread becomes
    /// the only one that may submit.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn enable(&self) -> io::Result<()> {
        self.io.submitter().register_enable_rings()
    }

    /// Gives the kernel a ring of `entries` buffers, as group `group`.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    ///
    /// # Safety
    /// `address` is that of `entries` buffer entries, page aligned, which live until the group
    /// was taken away by [`Ring::take_buffers_away`]; and so does every buffer named in them.
    pub unsafe fn register_buffers(
        &self,
        address: u64,
        entries: u16,
        group: u16,
    ) -> io::Result<()> {
        // SAFETY: the caller vouches for the entries and the buffers.
        unsafe { self.io.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Takes a group of buffers from the kernel. Buffers that no request has picked are ours
    /// again afterwards.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn take_buffers_away(&self, group: u16) -> io::Result<()> {
        self.io.submitter().unregister_buf_ring(group)
    }

    /// Gives the ring a table of so many files, all empty: an operation on one of them need not
    /// look its descriptor up.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn make_file_table(&self, files: u32) -> io::Result<()> {
        self.io.submitter().register_files_sparse(files)
    }

    /// Puts a descriptor into the table; -1 takes out what is there. Files stay open for as long
    /// as they are in the table of a ring that the kernel has not done away with.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn set_file(&self, at: u32, fd: std::os::fd::RawFd) -> io::Result<()> {
        self.io.submitter().register_files_update(at, &[fd]).map(drop)
    }

    /// The same for the first of the table's places, all at once.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn set_files(&self, fds: &[std::os::fd::RawFd]) -> io::Result<()> {
        match self.io.submitter().register_files_update(0, fds)? {
            all if all == fds.len() => Ok(()),
            some => Err(io::Error::other(format!("{some} of {} files were taken", fds.len()))),
        }
    }

    /// Signals an eventfd whenever the ring has something for whoever uses it
    /// (IORING_REGISTER_EVENTFD): with DEFER_TASKRUN that is also work that an entry into the kernel will run.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn ring_at(&self, eventfd: std::os::fd::RawFd) -> io::Result<()> {
        self.io.submitter().register_eventfd(eventfd)
    }

    /// Gives the kernel memory for good, as its buffer 0: an operation that names it need not find and
    /// pin the pages of its part.
    ///
    /// # Errors
    /// What io_uring_register(2) answered: ENOMEM past the limit for locked memory.
    ///
    /// # Safety
    /// The memory lives for as long as the ring, or until [`Ring::take_memory_away`].
    pub unsafe fn register_memory(
        &self,
        first: std::ptr::NonNull<u8>,
        bytes: usize,
    ) -> io::Result<()> {
        let memory = libc::iovec { iov_base: first.as_ptr().cast(), iov_len: bytes };
        // SAFETY: the caller vouches for the memory.
        unsafe { self.io.submitter().register_buffers(&[memory]) }
    }

    /// Takes the memory back that was given for good.
    ///
    /// # Errors
    /// What io_uring_register(2) answered.
    pub fn take_memory_away(&self) -> io::Result<()> {
        self.io.submitter().unregister_buffers()
    }

    /// Lets whoever waits in this ring poll the queues of devices that its sockets' datagrams come by,
    /// for so long (IORING_REGISTER_NAPI, Linux 6.9). Says in words what came of it.
    pub fn busy_poll(&self, time: Duration) -> String {
        let us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut napi = types::Napi::new().set_busy_poll_timeout(us).set_prefer_busy_poll(true);
        match self.io.submitter().register_napi(&mut napi) {
            Ok(()) => format!("the ring polls for {us} µs (IORING_REGISTER_NAPI)"),
            Err(e) => format!("the ring does not poll: IORING_REGISTER_NAPI: {e}"),
        }
    }

    /// Whether a thread of the kernel submits (SQPOLL).
    pub fn has_kernel_thread(&self) -> bool {
        self.io.params().is_setup_sqpoll()
    }

    /// Whether received data waits until the receiving thread enters the kernel.
    pub fn defers(&self) -> bool {
        self.flags.contains(setup::Flag::DeferTaskrun)
    }

    /// The flags obtained, as the kernel's headers spell them.
    pub fn flags(&self) -> String {
        self.flags.to_string()
    }

    /// The descriptor: readable while the completion queue is not empty.
    pub fn fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.io)
    }

    /// Entries of the submission queue and of the completion queue.
    pub fn sizes(&self) -> (u32, u32) {
        (self.io.params().sq_entries(), self.io.params().cq_entries())
    }
}

/// How an entry ended, from what io_uring_enter(2) answered.
fn ended(result: io::Result<usize>) -> io::Result<Entered> {
    match result {
        Ok(_) => Ok(Entered::Done),
        Err(e) => match e.raw_os_error() {
            Some(libc::ETIME) => Ok(Entered::TimedOut),
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(Entered::TryAgain),
            Some(libc::EBADR) => Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the kernel lost completions for lack of memory (EBADR)",
            )),
            _ => Err(e),
        },
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("flags", &self.flags()).field("sizes", &self.sizes()).finish()
    }
}

#[cfg(test)]
mod tests;
