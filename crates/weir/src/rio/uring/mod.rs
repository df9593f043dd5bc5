//! Registered I/O on io_uring.
//!
//! What posting a receive is on Windows, a store into a ring of provided buffers is here: the
//! kernel takes a buffer from it whenever a datagram comes for the one *multishot* receive that
//! each socket has under way. Completions appear in a queue that is shared memory too. So posting
//! never enters the kernel, and dequeuing does only when that queue is empty.
//!
//! Cost: the kernel's own work for a datagram (a header before the payload, one completion), and
//! an entry into the kernel for every run of datagrams, since it receives in the thread that
//! armed the receive. [`Polling`] says when. With [`OneThread`](super::OneThread) the ring is
//! bound to its thread; with [`HandOver`](super::HandOver) it cannot be, and the thread that
//! armed the receive last is interrupted to receive for whoever holds the queue: the one that
//! started it, until the receive ends and whoever holds the queue then arms it anew. The book's chapter
//! on handing a queue over has three other ways, none of which was faster.
//!
//! How it fails: where slices run out the receive ends, and is armed again as soon as one is
//! posted (`no_buffer` counts). A zero-byte datagram ends it too. A kernel that cannot hold all
//! completions flushes them later (`overflows` counts). It is forbidden in many containers.
//!
//! Replaces: one-shot receives with a buffer each, which arm a wait entry each, so that every
//! datagram wakes all of them.

#[cfg(target_os = "linux")]
mod linux;
pub mod streams;

#[cfg(target_os = "linux")]
pub use linux::{UringCompletions, UringOpened, UringRequests};

/// Registered I/O on io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uring {
    /// When the kernel receives.
    pub polling: Polling,
    /// Slices that the kernel holds at a time, 1 to 32,768. Those posted beyond wait in user
    /// space. More lose cache, fewer end the receive when datagrams come in a burst.
    pub window: u32,
}

/// When the kernel receives what arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// When the thread asks: an empty dequeue enters the kernel if something arrived
    /// (DEFER_TASKRUN). Needs queues that stay on one thread; handed over, the ring is that of
    /// `Interrupt`. Under load it sweeps, handed over or not: no receive stays armed, each dequeue
    /// asks for what is there, and the thread that dequeues copies.
    Deferred,
    /// The same, but the receive stays armed under load, too.
    Armed,
    /// At once: the thread that armed the receive is interrupted.
    Interrupt,
    /// At once, in a thread of the kernel that polls (SQPOLL): it takes a core of its own.
    KernelThread,
}

/// Slices that the kernel holds where nothing else was asked for: more than a dequeue takes, and with
/// 1024 bytes each no more than a core's cache holds. 4096 cost up to 7 % more for each datagram, 32,768
/// another 3 to 12 %.
const WINDOW: u32 = 1024;

impl Default for Uring {
    fn default() -> Self {
        Self { polling: Polling::Deferred, window: WINDOW }
    }
}

impl Uring {
    /// With this form of polling and the usual window.
    pub fn polling(polling: Polling) -> Self {
        Self { polling, ..Self::default() }
    }

    /// The provider's name: each form of polling is a row of its own.
    pub fn name(&self) -> &'static str {
        match self.polling {
            Polling::Deferred => "uring",
            Polling::Armed => "uring-armed",
            Polling::Interrupt => "uring-interrupt",
            Polling::KernelThread => "uring-sqpoll",
        }
    }
}
