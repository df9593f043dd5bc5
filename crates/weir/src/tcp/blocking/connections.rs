//! What the threads of `blocking` share: the two of a connection, and all connections that are open.

use super::times::Times;
use crate::{
    Error,
    counters::Counters,
    lifecycle::lock,
    stream::Stream,
    tcp::{
        Connection, Handler, Reason, Worker,
        mail::Incoming,
        stop::{self, shut_mailbox},
    },
    timer::{Moment, TICK},
};
use std::{
    io,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Every connection that is open, to be ended from outside.
pub(super) struct Connections<H: Handler> {
    members: Mutex<ByNumber<H>>,
    left: Condvar,
    /// The time to stop is over.
    cut_off: AtomicBool,
    /// Calls that handlers asked for, and what handles have left.
    pub(super) times: Times,
    pub(super) sizes: Sizes,
    /// Takes in a connection that others have made.
    take_in: TakeIn<H>,
}

type TakeIn<H> = fn(&mut Worker<H>, &Arc<Connections<H>>, Incoming);

/// What each connection has, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// For each of its two threads.
    pub(super) stack: usize,
    /// To receive into.
    pub(super) buffer: usize,
}

struct ByNumber<H: Handler> {
    /// By number; numbers are used again.
    open: Vec<Option<Arc<Pair<H>>>>,
    free: Vec<u32>,
}

impl<H: Handler> ByNumber<H> {
    fn len(&self) -> usize {
        self.open.len() - self.free.len()
    }
}

impl<H: Handler> Connections<H> {
    /// None yet; for each so many bytes may wait that handles have left.
    pub(super) fn new(most: usize, sizes: Sizes, take_in: TakeIn<H>) -> Self {
        Self {
            members: Mutex::new(ByNumber { open: Vec::new(), free: Vec::new() }),
            left: Condvar::new(),
            cut_off: AtomicBool::new(false),
            times: Times::new(most),
            sizes,
            take_in,
        }
    }

    fn leave(&self, number: u32) {
        // What it holds is dropped without the lock.
        let mut members = lock(&self.members);
        let member = members.open[number as usize].take();
        members.free.push(number);
        drop(members);
        self.left.notify_all();
        drop(member);
    }

    fn everyone(&self) -> Vec<Arc<Pair<H>>> {
        lock(&self.members).open.iter().flatten().cloned().collect()
    }

    /// The connection of this number, whichever it is now.
    pub(super) fn member(&self, number: u32) -> Option<Arc<Pair<H>>> {
        lock(&self.members).open.get(number as usize)?.clone()
    }

    /// Waits until a connection is closed, for so long at most.
    pub(super) fn wait_for_one_to_leave(&self, timeout: Duration) {
        let members = lock(&self.members);
        drop(self.left.wait_timeout(members, timeout).unwrap_or_else(PoisonError::into_inner));
    }

    /// Starts the thread that calls handlers while the threads of their connections are in the system, and that takes in the
    /// connections that others have made, where it does not run.
    pub(super) fn start_times(self: &Arc<Self>, worker: &Worker<H>) -> Result<(), Error> {
        self.times.start(worker, || {
            let connections = Arc::clone(self);
            move |worker: &mut Worker<H>| {
                connections.serve(worker);
                let stop = worker.limits.stop;
                let call = |number, worker: &mut _| {
                    connections.member(number).is_none_or(|pair| pair.call(worker))
                };
                let take_in = |incoming, worker: &mut _| {
                    (connections.take_in)(worker, &connections, incoming)
                };
                connections.times.keep(worker, call, take_in);
                shut_mailbox(worker);
                connections.end(stop); // those that came when the threads that accept had ended theirs
            }
        })
    }

    /// Connections that others have made are taken in from now on.
    pub(super) fn open_mailbox(self: &Arc<Self>, worker: &Worker<H>) -> Result<(), Error> {
        self.start_times(worker)?;
        worker.open_shared_mailbox(&self.times.mailbox);
        Ok(())
    }

    /// The calling thread calls handlers of these connections.
    pub(super) fn serve(&self, worker: &mut Worker<H>) {
        worker.mailbox = Arc::clone(&self.times.mailbox);
    }

    /// Ends every connection when it is dropped: see [`end`](Self::end).
    pub(super) fn end_when_dropped(&self, timeout: Duration) -> End<'_, H> {
        self.times.accepts();
        End(self, timeout)
    }

    /// Lets each connection handle what has come and stop, waits until the last one has left, and
    /// cuts off those that are open after this time.
    fn end(&self, timeout: Duration) {
        let by = Instant::now() + timeout;
        // Those whose handler is at work are told when it is not.
        let mut untold = self.everyone();
        loop {
            untold.retain(|member| !member.finish());
            let members = lock(&self.members);
            let left = by.saturating_duration_since(Instant::now());
            if members.len() == 0 {
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
        while members.len() > 0 {
            members = self.left.wait(members).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends every connection when it is dropped.
pub(super) struct End<'a, H: Handler>(&'a Connections<H>, Duration);

impl<H: Handler> Drop for End<'_, H> {
    fn drop(&mut self) {
        self.0.end(self.1);
        self.0.times.accepts_no_more();
    }
}

/// A connection and its two threads.
pub(super) struct Pair<H: Handler> {
    pub(super) stream: Stream,
    state: Mutex<PairState<H>>,
    changed: Condvar,
    connections: Arc<Connections<H>>,
    number: u32,
}

struct PairState<H> {
    /// There until the last thread leaves.
    connection: Option<Connection<H>>,
    /// Bytes received from the system.
    received: u64,
    /// Bytes that the system had received when the server stopped, until the connection was told.
    stop_at: Option<io::Result<u64>>,
    /// When its handler will be called.
    armed: Moment,
    /// The sending thread is in the system, or on its way there or back.
    sends: bool,
    /// Threads that wait for the other one.
    waiting: u32,
    threads: u32,
}

/// The connection, under its lock.
pub(super) struct Locked<'a, H>(MutexGuard<'a, PairState<H>>);

impl<H> Locked<'_, H> {
    /// The sending thread is out of the system, and does not go there again.
    pub(super) fn sends_no_more(&mut self) {
        self.0.sends = false;
    }
}

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

impl<H: Handler> Pair<H> {
    /// Lets it handle what the system has received by now, and finish. Says whether it could be told.
    fn finish(&self) -> bool {
        let Some(mut state) = self.try_lock() else { return false };
        // Not what waits in the system: the receiving thread may have something in its hands.
        state.stop_at = Some(self.stream.received_in_all(&Counters::default()));
        drop(state);
        self.changed();
        true
    }

    /// Ends every wait of its threads for the system.
    fn cut_off(&self) {
        self.stream.end();
    }

    /// Ends every wait of its threads for each other.
    fn wake(&self) {
        drop(lock(&self.state));
        self.changed();
    }

    /// Calls its handler where the time has come, or a handle has left something for it. `false` where the handler is at
    /// work.
    pub(super) fn call(&self, worker: &mut Worker<H>) -> bool {
        let Some(mut state) = self.try_lock() else { return false };
        if state.armed <= worker.clock.moment() {
            state.armed = Moment::NEVER; // it has gone off
        }
        if state.connection.is_none() {
            return true;
        }
        let mut connection = Locked(state);
        connection.fire_alarm(worker);
        if connection.has_mail() {
            connection.take_mail(worker);
        }
        if connection.wants(&worker.limits).close && connection.0.sends {
            // Both threads may wait for the system. Else the sending one sees to the other.
            self.stream.end();
        }
        self.release(worker, connection);
        true
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, PairState<H>>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Its number among those that are open.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// A connection that is among those that are open from now on, until both its threads have left.
    pub(super) fn join(
        worker: &Worker<H>,
        connection: Connection<H>,
        stream: Stream,
        connections: &Arc<Connections<H>>,
    ) -> Arc<Self> {
        let state = PairState {
            connection: Some(connection),
            received: 0,
            stop_at: None,
            armed: Moment::NEVER,
            sends: false,
            waiting: 0,
            threads: 2,
        };
        let mut members = lock(&connections.members);
        let number = members.free.pop().unwrap_or_else(|| {
            members.open.push(None);
            members.open.len() as u32 - 1
        });
        let pair = Arc::new(Self {
            stream,
            state: Mutex::new(state),
            changed: Condvar::new(),
            connections: Arc::clone(connections),
            number,
        });
        members.open[number as usize] = Some(Arc::clone(&pair));
        drop(members);
        if worker.stopping() {
            // Whoever tells those that are open may have done so before. None of its threads is at work yet.
            pair.finish();
        }
        pair
    }

    /// The connection, told of a stop by whichever thread has it first.
    pub(super) fn connection(&self, worker: &mut Worker<H>) -> Locked<'_, H> {
        let mut connection = Locked(lock(&self.state));
        self.finish_if_stopped(worker, &mut connection);
        connection
    }

    fn finish_if_stopped(&self, worker: &mut Worker<H>, connection: &mut Locked<'_, H>) {
        if let Some(in_all) = connection.0.stop_at.take() {
            let received = connection.0.received;
            stop::finish_at(worker, connection, &self.stream, in_all, received);
        }
    }

    /// Gives it back, and tells the other thread where it waits to be told: else that would be an entry into the
    /// kernel for nothing, and one that walks past other threads that wait there.
    pub(super) fn release(&self, worker: &mut Worker<H>, mut connection: Locked<'_, H>) {
        if connection.has_mail() {
            connection.take_mail(worker);
        }
        self.move_alarm(worker, &mut connection);
        let waiting = connection.0.waiting;
        drop(connection);
        if waiting > 0 {
            self.changed();
        }
    }

    /// Has its handler called when it asks for that. As everywhere, a call that comes too early is asked
    /// for again, and only one that would come too late is moved.
    fn move_alarm(&self, worker: &Worker<H>, connection: &mut Locked<'_, H>) {
        let due = connection.alarm();
        let is_sooner = due < connection.0.armed;
        if is_sooner {
            connection.0.armed = due;
            self.connections.times.set(self.number, due);
        }
        if (is_sooner || connection.is_known())
            && let Err(error) = self.connections.start_times(worker)
        {
            connection.fail(Reason::Failed(io::Error::other(error)));
        }
    }

    /// Tells the other thread.
    pub(super) fn changed(&self) {
        self.changed.notify_all();
    }

    pub(super) fn fail(&self, worker: &mut Worker<H>, reason: Reason) {
        self.connection(worker).fail(reason);
        self.stream.end();
        self.changed();
    }

    /// Why a call failed.
    pub(super) fn reason(&self, error: io::Error) -> Reason {
        if self.connections.cut_off.load(Relaxed) { Reason::Stopped } else { Reason::Failed(error) }
    }

    /// Waits until something may be received; `false` where the connection is over.
    pub(super) fn wait_to_receive(&self, worker: &mut Worker<H>) -> bool {
        let mut connection = self.connection(worker);
        loop {
            self.finish_if_stopped(worker, &mut connection);
            self.move_alarm(worker, &mut connection);
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
    pub(super) fn wait_to_send(&self, worker: &mut Worker<H>, out: &mut Vec<u8>) -> bool {
        let mut connection = self.connection(worker);
        connection.0.sends = false;
        let mut told_at = None;
        loop {
            self.finish_if_stopped(worker, &mut connection);
            self.move_alarm(worker, &mut connection);
            if self.connections.cut_off.load(Relaxed) {
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
            let lingers = connection.is_fin_sent() && connection.discards_input();
            let left = lingers.then(|| {
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

    fn wait<'a>(&self, mut connection: Locked<'a, H>, timeout: Option<Duration>) -> Locked<'a, H> {
        connection.0.waiting += 1;
        let mut connection = Locked(match timeout {
            None => self.changed.wait(connection.0).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout(connection.0, timeout);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        });
        connection.0.waiting -= 1;
        connection
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
        self.connections.times.cancel(self.number);
        if connection.close(worker).is_abrupt() {
            self.stream.reset_when_closed();
        }
        self.connections.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        stream::{Accepted, Listener, Mode, StreamOptions, native},
        tcp::{Output, Server},
    };
    use std::net::{SocketAddr, TcpStream};

    #[test]
    fn a_connection_of_unknown_bytes_fails_at_a_stop() {
        let Some((stream, _other_end)) = native::of_unknown_bytes() else { return };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let job = Server::bind(peer).job(|_| |_: &mut [u8], _: &mut Output<'_>| ()).unwrap();
        let mut worker = job.worker();
        let connection = Connection::open(&mut worker, peer);
        let sizes = Sizes { stack: 0, buffer: 1 };
        let connections = Arc::new(Connections::new(1, sizes, |_, _, _| ()));
        let pair = Pair::join(&worker, connection, stream, &connections);
        assert!(pair.finish());
        assert!(!pair.wait_to_receive(&mut worker), "it is over");
        (0..2).for_each(|_| pair.leave(&mut worker));
        assert_eq!(worker.counters.snapshot().closed_failed, 1);
    }

    #[test]
    fn a_connection_that_is_made_after_a_stop_is_told_at_once() {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(at, StreamOptions::default()).unwrap();
        let _peer = TcpStream::connect(listener.local_address()).unwrap();
        let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap();
        let Accepted { stream, peer } = accepted.expect("its peer has connected");
        let job = Server::bind(peer).job(|_| |_: &mut [u8], _: &mut Output<'_>| ()).unwrap();
        let sizes = Sizes { stack: 0, buffer: 1 };
        let connections = Arc::new(Connections::new(1, sizes, |_, _, _| ()));
        job.shared().stop();
        connections.end(Duration::ZERO); // there is none yet
        let mut worker = job.worker();
        let connection = Connection::open(&mut worker, peer);
        let pair = Pair::join(&worker, connection, stream, &connections);
        assert!(pair.connection(&mut worker).stopped);
        (0..2).for_each(|_| pair.leave(&mut worker));
    }
}
