//! signals: readiness as messages in a queue.
//!
//! The kernel is told once for each socket which thread to tell (`F_SETOWN_EX`) and by which signal
//! (`F_SETSIG`), and then queues a real-time signal each time that something happens on it (`O_ASYNC`):
//! data or an end has come, there is room to send again after there was none, an error. The thread
//! keeps the signal blocked and takes one message after another (sigtimedwait(2)). There is no set to
//! hand over and none to look through; it costs a call for each message, and a
//! message for each segment that arrives, asked for or not. It tells of what happens, not of
//! what is: as an edge, each thing once.
//!
//! - *What has happened before a socket was put into the set* made no message. So the socket is asked
//!   when it is put in, and when what it is told for changes.
//! - *The queue is bounded* (RLIMIT_SIGPENDING, for all processes of a user together). Where it is full
//!   the kernel sends a plain SIGIO instead, of which one at a time is pending and none is lost. It
//!   names nobody: so when it is taken every socket of the set is asked once, by one poll(2). What
//!   happens after it was taken makes messages again, or another SIGIO.
//! - *A message names a descriptor and nothing else.* One that is under way when its socket is closed is
//!   dropped, or is a hint for the socket that got the descriptor.
//! - *Signals reach the one thread only* that made the set: it blocks `SIGRTMIN + 11` and SIGIO for
//!   itself and keeps them blocked, so they interrupt no call of its own and none of other threads (one
//!   that it starts inherits the block). A signal of either number that is sent to the process as a
//!   whole may be taken as a hint.
//!
//! Sources: fcntl(2), "Managing signals"; signal(7); `fs/fcntl.c`. Linux only. Elsewhere everything
//! here says so.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod native;
#[cfg(not(target_os = "linux"))]
use crate::absent as native;

pub use native::Signals;
