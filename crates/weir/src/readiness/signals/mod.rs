//! signals: readiness as messages in a queue.
//!
//! The system is told once for each socket whom to tell, and from then on queues a message each time that
//! something happens on it. There is no set to hand over and none to look through; it costs a
//! call for each message. It tells of what happens, not of what is: as an edge, each thing once.
//!
//! - *What has happened before a socket was put into the set* need not make a message. So the socket is asked
//!   when it is put in, and when what it is told for changes.
//! - *The queue is bounded.* Where it was full every socket of the set is asked once.
//! - *A message names a socket by its number and nothing else.* One that is under way when its socket is closed is
//!   dropped, or is a hint for the socket that got the number.
//! - *Messages reach the one thread only* that made the set.
//!
//! On Linux messages are real-time signals: the kernel is told for each socket the thread (`F_SETOWN_EX`), the
//! signal (`F_SETSIG`), and to send it (`O_ASYNC`). The thread keeps the signal blocked and takes one after another
//! (sigtimedwait(2)). A message comes for each segment that arrives, asked for or not. Where the queue is full
//! (RLIMIT_SIGPENDING, for all processes of a user together) the kernel sends a plain SIGIO instead, of which one at
//! a time is pending and none is lost: when it is taken all are asked, by one poll(2), and what happens after that
//! makes messages again, or another SIGIO. The thread blocks `SIGRTMIN + 11` and SIGIO for itself and keeps them
//! blocked, so they interrupt no call of its own and none of other threads (one that it starts inherits the block). A
//! signal of either number that is sent to the process as a whole may be taken as a hint.
//!
//! The thread and the signal are told to the open file, which all have together who have the socket. A connection is one
//! program's; a listening socket that others have, too ([`Listener::left_open`]), is asked for no messages, but waited for
//! beside the queue, of which a signalfd(2) tells that something is in it: two calls for a message, by ppoll(2) and
//! sigtimedwait(2), as long as such a socket is in the set.
//!
//! [`Listener::left_open`]: crate::stream::Listener::left_open
//!
//! On Windows they are window messages (WSAAsyncSelect), to a window that is not shown and needs no display. A
//! message tells that something can be received (FD_READ), and no other follows before that was done; so for room to
//! send, after a send that found none, and for connections. What a receive leaves is told by another message, so
//! a burst that is received in pieces makes one for each. The queue of a thread holds 10,000 messages, and what
//! comes when it is full is lost without a word: so a set has no more than a third as many sockets, three kinds of
//! message each ([`Signals::MOST`]), which is what waits of those that are not being served. All messages that wait are taken at once, several of one socket as one; where
//! those are so many that some may be lost (4000, the least that the queue can be set to), all are asked.
//!
//! Sources: fcntl(2), "Managing signals"; signal(7); signalfd(2); `fs/fcntl.c`; WSAAsyncSelect, PostMessage in Microsoft's
//! documentation.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

pub use native::Signals;
