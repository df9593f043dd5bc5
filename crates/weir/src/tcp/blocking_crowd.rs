//! What the threads of `blocking` share: the two of a connection, and all connections that are open.

use super::{Connection, Handler, Reason, Worker};
use crate::{crew::lock, stream::Stream};
use std::{
    collections::HashMap,
    io,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Every connection that is open, to be ended from outside.
#[derive(Default)]
pub(super) struct Crowd {
    streams: Mutex<Streams>,
    left: Condvar,
    /// The time to stop is over.
    cut_off: AtomicBool,
}

#[derive(Default)]
struct Streams {
    next: u64,
    open: HashMap<u64, Stream>,
}

impl Crowd {
    fn join(&self, stream: Stream) -> u64 {
        let mut streams = lock(&self.streams);
        let number = streams.next;
        streams.next += 1;
        streams.open.insert(number, stream);
        number
    }

    fn leave(&self, number: u64) {
        lock(&self.streams).open.remove(&number);
        self.left.notify_all();
    }

    /// Waits until a connection is closed, for so long at most.
    pub(super) fn wait_for_one_to_leave(&self, timeout: Duration) {
        let streams = lock(&self.streams);
        drop(self.left.wait_timeout(streams, timeout).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets each connection handle what has come and finish, waits until the last one has left, and
    /// cuts off those that are open after this time.
    pub(super) fn end(&self, timeout: Duration) {
        let by = Instant::now() + timeout;
        let mut streams = lock(&self.streams);
        streams.open.values().for_each(Stream::end_receiving);
        while !streams.open.is_empty() {
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() && !self.cut_off.swap(true, Relaxed) {
                streams.open.values().for_each(Stream::end);
            }
            streams = match self.cut_off.load(Relaxed) {
                // Both threads of each were woken, and have nothing left to wait for.
                true => self.left.wait(streams).unwrap_or_else(PoisonError::into_inner),
                false => {
                    self.left.wait_timeout(streams, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A connection and its two threads.
pub(super) struct Pair<H: Handler> {
    pub(super) stream: Stream,
    state: Mutex<State<H>>,
    changed: Condvar,
    crowd: Arc<Crowd>,
    number: u64,
}

struct State<H> {
    /// There until the last thread leaves.
    connection: Option<Connection<H>>,
    threads: u32,
}

/// The connection, under its lock.
pub(super) struct Locked<'a, H>(MutexGuard<'a, State<H>>);

impl<H> Deref for Locked<'_, H> {
    type Target = Connection<H>;
    fn deref(&self) -> &Connection<H> {
        self.0.connection.as_ref().expect("it is there until the last thread leaves")
    }
}

impl<H> DerefMut for Locked<'_, H> {
    fn deref_mut(&mut self) -> &mut Connection<H> {
        self.0.connection.as_mut().expect("it is there until the last thread leaves")
    }
}

impl<H: Handler> Pair<H> {
    pub(super) fn new(connection: Connection<H>, stream: Stream, crowd: Arc<Crowd>) -> Self {
        let number = crowd.join(stream.clone());
        let state = State { connection: Some(connection), threads: 2 };
        Self { stream, state: Mutex::new(state), changed: Condvar::new(), crowd, number }
    }

    pub(super) fn connection(&self) -> Locked<'_, H> {
        Locked(lock(&self.state))
    }

    /// Tells the other thread.
    pub(super) fn changed(&self) {
        self.changed.notify_all();
    }

    pub(super) fn fail(&self, reason: Reason) {
        self.connection().fail(reason);
        self.stream.end();
        self.changed();
    }

    /// Why a call failed.
    pub(super) fn reason(&self, error: io::Error) -> Reason {
        if self.crowd.cut_off.load(Relaxed) { Reason::Stopped } else { Reason::Failed(error) }
    }

    /// Waits until something may be received; `false` where the connection is over.
    pub(super) fn wait_to_receive(&self, worker: &Worker<H>) -> bool {
        let mut connection = self.connection();
        loop {
            let wants = connection.wants(&worker.limits);
            connection.note_pause(worker, wants);
            if wants.close {
                // The other thread may wait for the system.
                self.stream.end();
                self.changed();
                return false;
            }
            if wants.receive {
                return true;
            }
            connection = self.wait(connection, None);
        }
    }

    /// Waits until something is to be sent, which is moved into `out`, or the peer is to be told that
    /// nothing follows, and `out` is empty; `false` where the connection is over.
    pub(super) fn wait_to_send(&self, worker: &Worker<H>, out: &mut Vec<u8>) -> bool {
        let mut connection = self.connection();
        let mut told_at = None;
        loop {
            if self.crowd.cut_off.load(Relaxed) {
                connection.fail(Reason::Stopped);
            }
            let wants = connection.wants(&worker.limits);
            if wants.close {
                self.stream.end();
                self.changed();
                return false;
            }
            if wants.send {
                connection.lend(out);
                return true;
            }
            if wants.end_sending {
                return true;
            }
            // Told that nothing follows, the peer is to close too.
            let left = connection.is_told().then(|| {
                let since = *told_at.get_or_insert_with(Instant::now);
                worker.limits.linger.saturating_sub(since.elapsed())
            });
            if left == Some(Duration::ZERO) {
                connection.fail(Reason::Stalled);
                continue;
            }
            connection = self.wait(connection, left);
        }
    }

    fn wait<'a>(&self, connection: Locked<'a, H>, timeout: Option<Duration>) -> Locked<'a, H> {
        Locked(match timeout {
            None => self.changed.wait(connection.0).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout(connection.0, timeout);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        })
    }

    /// A thread leaves, or could not be started. The last one closes the connection.
    pub(super) fn leave(&self, worker: &mut Worker<H>) {
        let mut state = lock(&self.state);
        state.threads -= 1;
        if state.threads > 0 {
            drop(state);
            return self.changed();
        }
        let connection = state.connection.take().expect("the last thread leaves once");
        drop(state);
        if connection.close(worker).is_abrupt() {
            self.stream.reset_when_closed();
        }
        self.crowd.leave(self.number);
    }
}
