//! What the threads of `blocking` share: the two of a connection, and all connections that are open.

use super::{Connection, Handler, Reason, Worker};
use crate::{counters::Counters, crew::lock, stream::Stream, timer::TICK};
use std::{
    collections::HashMap,
    io,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Every connection that is open, to be ended from outside.
#[derive(Default)]
pub(super) struct Crowd {
    members: Mutex<Members>,
    left: Condvar,
    /// The time to stop is over.
    cut_off: AtomicBool,
}

#[derive(Default)]
struct Members {
    next: u64,
    open: HashMap<u64, Arc<dyn Member>>,
}

/// A connection, whatever handles it.
trait Member: Send + Sync {
    /// Lets it handle what the system has received by now, and finish. Says whether it could be told.
    fn finish(&self) -> bool;
    /// Ends every wait of its threads for the system.
    fn cut_off(&self);
    /// Ends every wait of its threads for each other.
    fn wake(&self);
}

impl Crowd {
    fn leave(&self, number: u64) {
        // What it holds is dropped without the lock.
        let member = lock(&self.members).open.remove(&number);
        self.left.notify_all();
        drop(member);
    }

    fn everyone(&self) -> Vec<Arc<dyn Member>> {
        lock(&self.members).open.values().cloned().collect()
    }

    /// Waits until a connection is closed, for so long at most.
    pub(super) fn wait_for_one_to_leave(&self, timeout: Duration) {
        let members = lock(&self.members);
        drop(self.left.wait_timeout(members, timeout).unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends every connection when it is dropped: see [`end`](Self::end).
    pub(super) fn end_when_dropped(&self, timeout: Duration) -> End<'_> {
        End(self, timeout)
    }

    /// Lets each connection handle what has come and finish, waits until the last one has left, and
    /// cuts off those that are open after this time.
    fn end(&self, timeout: Duration) {
        let by = Instant::now() + timeout;
        // Those whose handler is at work are told when it is not.
        let mut untold = self.everyone();
        loop {
            untold.retain(|member| !member.finish());
            let members = lock(&self.members);
            let left = by.saturating_duration_since(Instant::now());
            if members.open.is_empty() {
                return;
            }
            if left.is_zero() {
                break;
            }
            let wait = if untold.is_empty() { left } else { left.min(TICK) };
            drop(self.left.wait_timeout(members, wait).unwrap_or_else(PoisonError::into_inner));
        }
        self.cut_off.store(true, Relaxed);
        let everyone = self.everyone();
        everyone.iter().for_each(|member| member.cut_off());
        everyone.iter().for_each(|member| member.wake());
        drop(everyone);
        // None has anything left to wait for.
        let mut members = lock(&self.members);
        while !members.open.is_empty() {
            members = self.left.wait(members).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends every connection when it is dropped.
pub(super) struct End<'a>(&'a Crowd, Duration);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
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
    /// Bytes received from the system.
    received: u64,
    /// The sending thread is in the system, or on its way there or back.
    sends: bool,
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

impl<H> Locked<'_, H> {
    /// So many bytes were received from the system.
    pub(super) fn count(&mut self, bytes: usize) {
        self.0.received += bytes as u64;
    }
}

impl<H: Handler> Member for Pair<H> {
    fn finish(&self) -> bool {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        // Not what waits in the system: the receiving thread may have something in its hands.
        let received = self.stream.received_in_all(&Counters::default()).unwrap_or(0);
        let left = received.saturating_sub(state.received);
        if let Some(connection) = &mut state.connection {
            connection.finish_after(usize::try_from(left).unwrap_or(usize::MAX));
        }
        drop(state);
        self.changed();
        true
    }

    fn cut_off(&self) {
        self.stream.end();
    }

    fn wake(&self) {
        drop(lock(&self.state));
        self.changed();
    }
}

impl<H: Handler> Pair<H> {
    /// A connection that belongs to the crowd from now on, until both its threads have left.
    pub(super) fn join(connection: Connection<H>, stream: Stream, crowd: &Arc<Crowd>) -> Arc<Self> {
        let state = State { connection: Some(connection), received: 0, sends: false, threads: 2 };
        let mut members = lock(&crowd.members);
        let number = members.next;
        members.next += 1;
        let pair = Arc::new(Self {
            stream,
            state: Mutex::new(state),
            changed: Condvar::new(),
            crowd: Arc::clone(crowd),
            number,
        });
        let member: Arc<dyn Member> = Arc::<Self>::clone(&pair);
        members.open.insert(number, member);
        pair
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
                // The other thread may wait for the system. Only where it must, it is woken by what the
                // peer could take for an end in order.
                if connection.0.sends {
                    self.stream.end()
                } else {
                    self.changed()
                }
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
        connection.0.sends = false;
        let mut told_at = None;
        loop {
            if self.crowd.cut_off.load(Relaxed) {
                connection.fail(Reason::Stopped);
            }
            let wants = connection.wants(&worker.limits);
            if wants.close {
                // The other thread may wait for the system.
                self.stream.end_receiving();
                self.changed();
                return false;
            }
            if wants.send {
                connection.lend(out);
                connection.0.sends = true;
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
