//! Outgoing connections: a [`Connector`] has them made, under the same limits, by the same design.
//!
//! One more thread of the server connects, as many at a time as are asked for, up to a bound: a connect that waits for a peer far
//! away holds up nobody. What stands is handed to those that serve the server's connections, through their mailbox:
//! on a server of several threads to the one that asked, where one of them did, so that two connections that speak to
//! each other do so without waking anybody.

use super::{
    Handler, Reason, Refused, Worker,
    handler::Boxed,
    mail::{Given, Incoming, served},
    stop::turn_away,
};
use crate::{
    Error,
    lifecycle::{contain, lock},
    readiness::{Interest, Poll, Streams as _},
    stream::{Accepted, LocalPeer, Stream, StreamOptions, UnixAddress},
    timer::Alarms,
    wake::Waker,
};
use std::{
    any::Any,
    collections::VecDeque,
    fmt, io,
    marker::PhantomData,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Connections that are being made at a time, at most.
pub const MOST_CONNECTING: usize = 4096;

/// How long connecting may take unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// After how long it is tried again where as many wait at a Unix socket as may: nothing says when one more may (poll(2) of a
/// stream socket knows nothing of whom it is to be connected to).
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// So much time for each of those that are tried again, so that however many there are trying takes a small part of a core.
const EACH_TRIED_AGAIN: Duration = Duration::from_micros(100);

/// After how long one more is tried again, beside so many.
fn tried_again_after(others: u32) -> Duration {
    TRIED_AGAIN_AFTER.max(EACH_TRIED_AGAIN * others)
}

/// Has a server connect to others: [`Server::start_connecting`](super::Server::start_connecting). Cheap to clone; any
/// thread and any handler may use it.
pub struct Connector<H> {
    shared: Arc<Connecting>,
    /// It takes handlers and gives none.
    of: PhantomData<fn(H)>,
}

impl<H> Clone for Connector<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), of: PhantomData }
    }
}

impl<H> fmt::Debug for Connector<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl<H: Handler> Default for Connector<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Handler> Connector<H> {
    /// One that belongs to no server yet: what it is asked for waits until it does.
    pub fn new() -> Self {
        let runs = [Box::new(run::<H> as Run<H>) as _, Box::new(run::<Boxed> as Run<Boxed>) as _];
        let shared = Connecting { state: Mutex::default(), runs };
        Self { shared: Arc::new(shared), of: PhantomData }
    }

    /// How long connecting may take; 10 s unless told otherwise. For what is asked for from now on, with any clone.
    pub fn timeout(self, time: Duration) -> Self {
        lock(&self.shared.state).timeout = time;
        self
    }

    /// Has the server connect to this address, and serve the connection with this handler as it serves those that it
    /// accepts: [`on_connect`](Handler::on_connect) is called when the connection stands. Where none comes of it
    /// [`on_close`](Handler::on_close) is called, with the reason, and nothing else. It counts as accepted, and to
    /// [`Limits::connections`](super::Limits::connections).
    ///
    /// # Errors
    /// [`Refused::Full`] where [`MOST_CONNECTING`] are being made, [`Refused::Gone`] where the server has stopped.
    pub fn connect(&self, to: SocketAddr, handler: H) -> Result<(), Refused> {
        self.want(To::Internet(to), handler)
    }

    /// The same to a Unix socket: at a path, or at a name of the abstract namespace where it begins with an `@`
    /// ([`UnixAddress`]), whatever the server itself listens on. `on_connect` is told who listens there ([`LocalPeer`]). Where
    /// as many connections wait to be accepted as may it is tried again until the time is over, every 10 ms (of more than 100 that
    /// wait so, each by turns, 10,000 times a second in all), since the system tells nobody when there is room. Where the
    /// system has no Unix sockets nothing comes of it, and `on_close` says so.
    ///
    /// # Errors
    /// As there.
    pub fn connect_unix(&self, to: impl Into<UnixAddress>, handler: H) -> Result<(), Refused> {
        self.want(To::Unix(to.into()), handler)
    }

    fn want(&self, to: To, handler: H) -> Result<(), Refused> {
        let mut state = lock(&self.shared.state);
        if state.stopped {
            return Err(Refused::Gone);
        }
        if state.wanted.len() + state.under_way >= MOST_CONNECTING {
            return Err(Refused::Full);
        }
        let by = Instant::now().checked_add(state.timeout);
        state.wanted.push_back(Wanted { to, given: Box::new(handler), by, mailbox: served() });
        let waker = state.waker.clone();
        drop(state);
        waker.into_iter().for_each(|waker| waker.wake());
        Ok(())
    }

    pub(super) fn shared(&self) -> Arc<Connecting> {
        Arc::clone(&self.shared)
    }
}

/// What connectors and the thread that connects share.
pub(super) struct Connecting {
    state: Mutex<State>,
    /// What the thread runs that connects ([`Run`]): where the design is chosen by its type, and by its name. Kept here, it
    /// is in no program that has no connector.
    runs: [Box<dyn Any + Send + Sync>; 2],
}

/// The thread that connects, of a server with such handlers.
type Run<H> = fn(&mut Worker<H>, &Connecting, StreamOptions) -> Result<(), Error>;

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connecting")
    }
}

struct State {
    wanted: VecDeque<Wanted>,
    under_way: usize,
    timeout: Duration,
    /// Of the thread that connects, once there is one.
    waker: Option<Waker>,
    stopped: bool,
}

impl Default for State {
    fn default() -> Self {
        let (wanted, under_way, waker, stopped) = (VecDeque::new(), 0, None, false);
        Self { wanted, under_way, timeout: TIMEOUT, waker, stopped }
    }
}

/// Where a connection leads.
enum To {
    Internet(SocketAddr),
    Unix(UnixAddress),
}

/// A connection that is to be made.
struct Wanted {
    to: To,
    given: Given,
    /// Until when it may take.
    by: Option<Instant>,
    /// That of the thread that asked for it.
    mailbox: usize,
}

impl Wanted {
    /// Whom it leads to, as far as that is known before it stands.
    fn peer(&self) -> SocketAddr {
        match &self.to {
            To::Internet(to) => *to,
            To::Unix(_) => LocalPeer::NOBODY.into(),
        }
    }
}

impl Connecting {
    /// Connects until the server stops.
    pub(super) fn run<H: Handler>(
        &self,
        worker: &mut Worker<H>,
        options: StreamOptions,
    ) -> Result<(), Error> {
        let run: Option<&Run<H>> = self.runs.iter().find_map(|run| run.downcast_ref());
        let run = run.expect("a connector is of the server's handlers, as they are or boxed");
        run(worker, self, options)
    }

    /// A server's thread connects from now on. Says whether no other server's does.
    fn begins(&self, waker: Waker) -> bool {
        let mut state = lock(&self.state);
        let first = state.waker.is_none() && !state.stopped;
        state.waker.get_or_insert(waker);
        first
    }

    /// The next that is to be made: it is under way from now on.
    fn next(&self) -> Option<Wanted> {
        let mut state = lock(&self.state);
        let wanted = state.wanted.pop_front();
        state.under_way += usize::from(wanted.is_some());
        wanted
    }

    /// How many are wanted and not begun.
    fn wanted(&self) -> usize {
        lock(&self.state).wanted.len()
    }

    fn is_over(&self) {
        lock(&self.state).under_way -= 1;
    }

    /// Nothing more is asked for.
    fn stop(&self) {
        let mut state = lock(&self.state);
        (state.stopped, state.waker) = (true, None);
    }
}

/// One that is being made.
struct UnderWay {
    /// `None` where there is none yet, and it is tried again ([`TRIED_AGAIN_AFTER`]).
    stream: Option<Stream>,
    wanted: Wanted,
}

/// The thread that connects.
fn run<H: Handler>(
    worker: &mut Worker<H>,
    connecting: &Connecting,
    options: StreamOptions,
) -> Result<(), Error> {
    let set = Poll::new()?;
    if !connecting.begins(set.waker()) {
        return Err(Error::option("connector", "it belongs to another server"));
    }
    worker.ready(Some(set.waker()));
    let alarms = Alarms::starting(worker.since());
    let (under_way, free, tried_again) = (Vec::new(), Vec::new(), 0);
    let mut thread = Thread { connecting, options, set, under_way, free, tried_again, alarms };
    let result = thread.run(worker);
    connecting.stop();
    thread.give_up(worker);
    result
}

struct Thread<'a> {
    connecting: &'a Connecting,
    options: StreamOptions,
    set: Poll,
    /// By slot.
    under_way: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    /// How many of them are to be tried again.
    tried_again: u32,
    /// When the time of each is over.
    alarms: Alarms,
}

impl Thread<'_> {
    fn run<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<(), Error> {
        let mut due = Vec::new();
        while !worker.stopping() {
            // No more than are wanted now: of one that fails at once the handler may want the next.
            for _ in 0..self.connecting.wanted() {
                if let Some(wanted) = self.connecting.next() {
                    self.begin(worker, wanted);
                }
            }
            worker.calls.waits.one();
            let timeout = match self.connecting.wanted() {
                0 => self.alarms.next_in(Instant::now()),
                _ => Some(Duration::ZERO),
            };
            self.set
                .wait(timeout, &worker.calls)
                .map_err(|e| Error::io("waiting for connections that are being made", e))?;
            while let Some(slot) = self.set.next_ready() {
                self.over(worker, slot, false);
            }
            self.alarms.expired(Instant::now(), &mut due);
            while let Some(slot) = due.pop() {
                self.over(worker, slot, true);
            }
        }
        Ok(())
    }

    fn begin<H: Handler>(&mut self, worker: &mut Worker<H>, wanted: Wanted) {
        let begun = match &wanted.to {
            To::Internet(to) => {
                Stream::connect(*to, self.options, &worker.calls).map(|s| (Some(s), wanted.by))
            }
            To::Unix(to) => match Stream::connect_unix(to, self.options, &worker.calls) {
                Ok(accepted) => return self.stands(worker, wanted, accepted),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let again = Instant::now() + tried_again_after(self.tried_again);
                    Ok((None, Some(wanted.by.map_or(again, |by| by.min(again)))))
                }
                Err(e) => Err(e),
            },
        };
        let (stream, alarm) = match begun {
            Ok(begun) => begun,
            Err(e) => return self.none_came(worker, wanted, Reason::Failed(e)),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() as u32 - 1
        });
        let interest = Interest { receive: false, send: true };
        if let Some(stream) = &stream
            && let Err(e) = self.set.watch(stream, slot, interest)
        {
            self.free.push(slot);
            return self.none_came(worker, wanted, Reason::Failed(e));
        }
        if let Some(at) = alarm {
            self.alarms.set(slot, self.alarms.moment_of(at));
        }
        self.tried_again += u32::from(stream.is_none());
        self.under_way[slot as usize] = Some(UnderWay { stream, wanted });
    }

    /// One stands, or failed, or its time is over, or it is time to try again.
    fn over<H: Handler>(&mut self, worker: &mut Worker<H>, slot: u32, alarmed: bool) {
        let Some(UnderWay { stream, wanted }) = self.under_way[slot as usize].take() else {
            return;
        };
        self.alarms.cancel(slot);
        self.free.push(slot);
        let Some(stream) = stream else {
            self.tried_again -= 1;
            return match wanted.by.is_some_and(|by| by <= Instant::now()) {
                true => {
                    let late = io::ErrorKind::TimedOut.into();
                    self.none_came(worker, wanted, Reason::Failed(late));
                }
                false => self.begin(worker, wanted),
            };
        };
        self.set.forget(&stream, slot);
        let error = match alarmed {
            true => Some(io::ErrorKind::TimedOut.into()),
            false => stream.take_error(&worker.calls),
        };
        if let Some(e) = error {
            return self.none_came(worker, wanted, Reason::Failed(e));
        }
        let peer = wanted.peer();
        self.stands(worker, wanted, Accepted { stream, peer });
    }

    /// One stands, and goes to those who serve.
    fn stands<H: Handler>(&self, worker: &mut Worker<H>, wanted: Wanted, accepted: Accepted) {
        if let Err(why) = worker.let_in() {
            return self.none_came(worker, wanted, Reason::Failed(io::Error::other(why)));
        }
        self.connecting.is_over();
        let Wanted { given, mailbox, .. } = wanted;
        let incoming = Incoming { accepted, given: Some(given) };
        if let Err(back) = worker.bring(incoming, mailbox) {
            turn_away(worker, back, Reason::Stopped);
        }
    }

    /// Nothing came of one: its handler is told.
    fn none_came<H: Handler>(&self, worker: &Worker<H>, wanted: Wanted, reason: Reason) {
        self.connecting.is_over();
        if let Some(mut handler) = worker.make_handler(wanted.peer(), Some(wanted.given)) {
            // Whatever it does, there is no connection that could end for it.
            let _ = contain(|| handler.on_close(&reason));
        }
    }

    /// The server stops: nothing comes of those that are under way, nor of those that wait.
    fn give_up<H: Handler>(&mut self, worker: &mut Worker<H>) {
        let under_way = std::mem::take(&mut self.under_way);
        for UnderWay { wanted, .. } in under_way.into_iter().flatten() {
            self.none_came(worker, wanted, Reason::Stopped);
        }
        while let Some(wanted) = self.connecting.next() {
            self.none_came(worker, wanted, Reason::Stopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_are_tried_again_it_takes_a_small_part_of_a_core() {
        for few in [0, 1, 100] {
            assert_eq!(tried_again_after(few), TRIED_AGAIN_AFTER);
        }
        for many in [101, 1000, MOST_CONNECTING as u32] {
            let tries_per_s = f64::from(many) / tried_again_after(many).as_secs_f64();
            assert!((9_999.0..10_001.0).contains(&tries_per_s), "{tries_per_s} tries a second");
        }
    }
}
