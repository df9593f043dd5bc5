//! What every design does that learns when a connection is ready, from top to bottom: the loop of a thread; accepting;
//! receiving until nothing is left or the bound is reached; sending what waits; asking for what is wanted next; the
//! timers and the stop.
//!
//! What a thread waits with is what the designs differ in: it stands in their own files.

use super::{
    connections::{ReadyConnection, Table},
    gatherer::Gatherer,
};
use crate::{
    Error,
    gather::Asked,
    readiness::{Interest, Streams, Tokens, Trigger},
    stream::{Accepted, Listener, Mode, Stream},
    tcp::{
        Connection, Handler, Reason, Wants, Worker,
        acceptor::{ACCEPTED_AT_ONCE, Acceptor, Attempt},
        active::Active,
        mail::Incoming,
        stop::{self, shut_mailbox},
    },
    timer::Tick,
};
use std::time::{Duration, Instant};

/// Listening sockets have the tokens from here on, connections those below.
pub(super) const LISTENERS: u32 = 0xffff_0000;

/// The loop of a thread whose set names what is ready by tokens.
pub(super) fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut set: impl Tokens,
    listeners: &[Listener],
    mut thread: ReadyThread<H>,
    gather: Asked,
) -> Result<(), Error> {
    let mut listening = false;
    let mut gatherer = Gatherer::new(worker, gather);
    let waker = gatherer.waker(set.waker());
    worker.mailbox.serve();
    worker.open_mailbox(waker.clone());
    worker.ready(Some(waker));
    while worker.serving(thread.table.len()) {
        if thread.listens() != listening {
            listening = !listening;
            ask_for_connections(
                &mut set,
                listeners,
                listening,
                Tokens::listen,
                Tokens::forget_listener,
            )?;
            if worker.leaves_off() {
                // A connection that came just now may have woken this thread, and none of others who have the socket.
                for listener in listeners {
                    thread.accept(worker, &mut set, listener)?;
                }
            }
        }
        thread.tell_left_off(worker);
        let left = thread.take_left() || set.may_have_left();
        gatherer
            .wait(worker, thread.timeout(worker), left, |timeout, calls| set.wait(timeout, calls))
            .map_err(|e| Error::io("waiting for readiness", e))?;
        thread.run_timers(worker, &mut set);
        thread.end_accepting(listeners);
        let ready = set.ready_count() + thread.left();
        if ready > 0 {
            worker.counters.batches.record(ready as u64);
        }
        thread.serve_again(worker, &mut set);
        while let Some(token) = set.next_ready() {
            thread.handle(worker, &mut set, listeners, token)?;
        }
    }
    thread.cut_off(worker, &mut set);
    Ok(())
}

/// Begins to ask for connections at each listening socket, under a token of its own, or asks no more.
pub(super) fn ask_for_connections<S>(
    set: &mut S,
    listeners: &[Listener],
    listening: bool,
    listen: impl Fn(&mut S, &Listener, u32) -> Result<(), Error>,
    forget: impl Fn(&mut S, &Listener),
) -> Result<(), Error> {
    for (listener, token) in listeners.iter().zip(LISTENERS..) {
        match listening {
            true => listen(set, listener, token)?,
            false => forget(set, listener),
        }
    }
    Ok(())
}

/// The connections of one thread, and where it receives into.
pub(super) struct ReadyThread<H> {
    pub(super) table: Table<H>,
    buffer: Box<[u8]>,
    /// Most receives from one connection for one wake-up.
    drain: u32,
    /// When readiness is reported: with [`Trigger::Level`] a short receive need not be followed by another.
    trigger: Trigger,
    /// Numbers of timers that fell due.
    due: Vec<u32>,
    /// Connections of which a bound left something that no wait will report again.
    again: Vec<u32>,
    /// A bound left something, whether a wait reports it again or not.
    has_left: bool,
    acceptor: Acceptor,
    active: Active,
}

impl<H: Handler> ReadyThread<H> {
    pub(super) fn new(buffer_bytes: usize, drain: u32, trigger: Trigger) -> Self {
        Self {
            table: Table::new(),
            buffer: vec![0; buffer_bytes].into(),
            drain,
            trigger,
            due: Vec::new(),
            again: Vec::new(),
            has_left: false,
            acceptor: Acceptor::new(),
            active: Active::new(None),
        }
    }

    /// Serves so many connections at a time, in the order in which they came; `None` for all.
    pub(super) fn serving(mut self, active: Option<u32>) -> Self {
        self.active = Active::new(active);
        self
    }

    /// Whether anything is to be accepted now.
    pub(super) fn listens(&self) -> bool {
        self.acceptor.accepts()
    }

    /// Says that nothing more is accepted, where that is so and the server goes on.
    pub(super) fn tell_left_off(&mut self, worker: &Worker<H>) {
        self.acceptor.tell_left_off(worker);
    }

    /// Refuses connections where the server stops. No wait asks for any by then, so none is given a socket that is
    /// closed.
    pub(super) fn end_accepting(&self, listeners: &[Listener]) {
        if self.acceptor.is_shut() {
            listeners.iter().for_each(Listener::end_accepting);
        }
    }

    /// Accepts what waits, within a bound. Says whether it was the bound, so that more may wait.
    pub(super) fn accept(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        listener: &Listener,
    ) -> Result<bool, Error> {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.acceptor.accept(worker, listener)? {
                Attempt::Accepted(accepted) => self.take_in(worker, set, accepted),
                Attempt::Lost => {}
                Attempt::Nothing => return Ok(false),
            }
        }
        self.has_left = true;
        Ok(true)
    }

    /// Takes in a connection that was accepted, or made by others.
    pub(super) fn take_in(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        incoming: impl Into<Incoming>,
    ) {
        let Incoming { accepted: Accepted { stream, peer }, given } = incoming.into();
        let is_ours = given.is_some();
        let connection = Connection::open_given(worker, peer, given);
        let interest = Interest::RECEIVE;
        let (armed, again, set_aside) = (Tick::MAX, false, false);
        let open = ReadyConnection { connection, stream, interest, armed, again, set_aside };
        let slot = self.table.insert(open);
        let open = self.table.get_mut(slot).expect("it was just put there");
        open.connection.place(worker, slot);
        if !is_ours && !self.active.admit(slot) {
            open.connection.wait_for_its_turn(worker);
            open.interest = Interest::NONE;
        }
        if let Err(e) = set.watch(&open.stream, slot, open.interest) {
            return self.fail(worker, set, slot, Reason::Failed(e), false);
        }
        if self.acceptor.is_shut() {
            return self.finish(worker, set, slot); // it was on its way here when the server stopped
        }
        // Its handler may have begun to speak; and it needs a timer.
        self.settle(worker, set, slot);
    }

    /// Does what a token asks for that is ready: accepts, where it is a listening socket's, or serves a connection.
    /// What the bound leaves of it is named again by the next wait where the trigger is [`Trigger::Level`], and
    /// remembered here where it is [`Trigger::Edge`].
    fn handle(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        listeners: &[Listener],
        token: u32,
    ) -> Result<(), Error> {
        match (listeners.get(token.wrapping_sub(LISTENERS) as usize), self.trigger) {
            // Named as long as one waits, whatever the trigger.
            (Some(listener), _) if self.listens() => {
                self.accept(worker, set, listener)?;
            }
            (Some(_), _) => {}
            (None, Trigger::Level) => {
                self.serve(worker, set, token);
            }
            (None, Trigger::Edge) => self.serve_once(worker, set, token),
        }
        Ok(())
    }

    /// Serves a connection that is ready. Says whether it may still be, since the bound was reached, or
    /// its output was full and no longer is.
    pub(super) fn serve(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        slot: u32,
    ) -> bool {
        let Some(open) = self.table.get_mut(slot) else { return false };
        if open.interest == Interest::NONE
            && open.connection.wants(&worker.limits) == Wants::default()
        {
            // Reported though nothing was asked for: it may have broken.
            if let Some(e) = open.stream.take_error(&worker.calls) {
                open.connection.fail(Reason::Failed(e));
            } else if !open.set_aside && open.stream.is_hung_up(&worker.calls) {
                // Else it would be reported again and again, until something is asked for.
                set.forget(&open.stream, slot);
                open.set_aside = true;
            }
        }
        let more = receive(worker, open, &mut self.buffer, self.drain, self.trigger);
        self.settle(worker, set, slot);
        // One that is not received from now is reported when it is again.
        let more = more && self.table.get_mut(slot).is_some_and(|open| open.interest.receive);
        self.has_left |= more;
        more
    }

    /// Serves a connection of which no wait reports again what the bound leaves: that is for
    /// [`serve_again`](Self::serve_again).
    pub(super) fn serve_once(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32) {
        if self.table.get_mut(slot).is_some_and(|open| open.again) {
            return; // its turn comes, and one turn is enough
        }
        if self.serve(worker, set, slot) {
            self.remember(slot);
        }
    }

    /// A connection is to be served again before the next wait.
    fn remember(&mut self, slot: u32) {
        if let Some(open) = self.table.get_mut(slot)
            && !std::mem::replace(&mut open.again, true)
        {
            self.again.push(slot);
        }
    }

    /// Whether a bound has left something since this was last asked, or something is to be served before the next wait.
    pub(super) fn take_left(&mut self) -> bool {
        std::mem::take(&mut self.has_left) || self.left() > 0
    }

    /// Connections of which the bound left something.
    pub(super) fn left(&self) -> usize {
        self.again.len()
    }

    /// Serves each of them once more.
    pub(super) fn serve_again(&mut self, worker: &mut Worker<H>, set: &mut impl Streams) {
        let left = self.again.len();
        for index in 0..left {
            let slot = self.again[index];
            if let Some(open) = self.table.get_mut(slot) {
                open.again = false;
            }
            self.serve_once(worker, set, slot);
        }
        self.again.drain(..left);
    }

    /// Sends what waits, asks for what is wanted next, and closes what is over.
    fn settle(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32) {
        let Some(open) = self.table.get_mut(slot) else { return };
        if open.connection.has_mail() {
            open.connection.take_mail(worker);
        }
        let sent_all = send(worker, &mut open.connection, &open.stream);
        let mut wants = open.connection.wants(&worker.limits);
        if wants.end_sending {
            match open.stream.end_sending(&worker.calls) {
                Ok(()) => open.connection.fin_sent(worker),
                Err(e) => open.connection.fail(Reason::Failed(e)),
            }
            wants = open.connection.wants(&worker.limits);
        }
        open.connection.note_pause(worker, wants);
        if wants.close {
            return self.close(worker, set, slot, true);
        }
        let interest = wants.interest();
        if interest != open.interest {
            open.interest = interest;
            let set_aside = std::mem::take(&mut open.set_aside);
            let changed = match set_aside {
                true => set.watch(&open.stream, slot, interest),
                false => set.change(&open.stream, slot, interest),
            };
            if let Err(e) = changed {
                return self.fail(worker, set, slot, Reason::Failed(e), !set_aside);
            }
        }
        let Some(open) = self.table.get_mut(slot) else { return };
        open.connection.set_times(worker, slot, &mut open.armed);
        if !sent_all {
            self.remember(slot); // not every wait reports room twice
        }
    }

    fn fail(
        &mut self,
        worker: &mut Worker<H>,
        set: &mut impl Streams,
        slot: u32,
        reason: Reason,
        watched: bool,
    ) {
        if let Some(open) = self.table.get_mut(slot) {
            open.connection.fail(reason);
        }
        self.close(worker, set, slot, watched);
    }

    fn close(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32, watched: bool) {
        let Some(open) = self.table.remove(slot) else { return };
        if watched && !open.set_aside {
            set.forget(&open.stream, slot);
        }
        worker.clock.cancel(slot);
        if open.connection.close(worker).is_abrupt() {
            open.stream.reset_when_closed();
        }
        self.acceptor.descriptor_returned();
        if let Some(next) = self.active.leave(slot)
            && let Some(open) = self.table.get_mut(next)
        {
            open.connection.begin(worker);
            self.settle(worker, set, next);
        }
    }

    /// What the clock, handles and the end of the server ask for; to be called after each wait.
    pub(super) fn run_timers(&mut self, worker: &mut Worker<H>, set: &mut impl Streams) {
        let now = Instant::now();
        worker.clock.expired(now, &mut self.due);
        while let Some(slot) = self.due.pop() {
            if let Some(open) = self.table.get_mut(slot) {
                open.armed = Tick::MAX;
                open.connection.timed(worker);
                self.settle(worker, set, slot);
            }
        }
        if worker.mailbox.any() {
            for incoming in worker.mailbox.take(&mut self.due) {
                self.take_in(worker, set, incoming);
            }
            while let Some(slot) = self.due.pop() {
                self.settle(worker, set, slot);
            }
        }
        self.acceptor.run_timers(now);
        if worker.leaves_off() {
            self.acceptor.leave_off();
        }
        if worker.stopping() && !self.acceptor.is_shut() {
            self.acceptor.shut();
            self.active.dissolve();
            for slot in 0..self.table.slots() {
                self.finish(worker, set, slot);
            }
        }
    }

    /// Has a connection finish once what the system has received of it by now is handled. What of it has no
    /// room now is reported again, since it is asked for anew.
    fn finish(&mut self, worker: &mut Worker<H>, set: &mut impl Streams, slot: u32) {
        let Some(open) = self.table.get_mut(slot) else { return };
        let waiting = open.stream.waiting(&worker.calls);
        open.connection.begin(worker);
        stop::finish(worker, &mut open.connection, &open.stream, waiting);
        open.interest = Interest::NONE;
        self.serve(worker, set, slot);
    }

    /// How long a wait may last.
    pub(super) fn timeout(&self, worker: &Worker<H>) -> Option<Duration> {
        if !self.again.is_empty() || worker.mailbox.any() {
            return Some(Duration::ZERO);
        }
        [self.acceptor.timeout(), worker.timeout()].into_iter().flatten().min()
    }

    /// Cuts off what is still open when the time to stop is over.
    pub(super) fn cut_off(&mut self, worker: &mut Worker<H>, set: &mut impl Streams) {
        shut_mailbox(worker);
        for slot in 0..self.table.slots() {
            if self.table.get_mut(slot).is_some() {
                self.fail(worker, set, slot, Reason::Stopped, true);
            }
        }
    }
}

/// Receives until nothing is left, nothing more is wanted, or the bound is reached; says whether
/// anything may be left.
#[inline]
fn receive<H: Handler>(
    worker: &mut Worker<H>,
    open: &mut ReadyConnection<H>,
    buffer: &mut [u8],
    drain: u32,
    trigger: Trigger,
) -> bool {
    let ReadyConnection { connection, stream, .. } = open;
    for _ in 0..drain {
        if !connection.wants(&worker.limits).receive {
            return true;
        }
        match stream.receive(buffer, Mode::Try, &worker.calls) {
            Ok(Some(0)) => {
                connection.ended(worker);
                return false;
            }
            Ok(Some(count)) => {
                let bytes = &mut buffer[..count];
                let echo = connection.received(worker, bytes);
                if echo > 0 {
                    match stream.send(&bytes[..echo], Mode::Try, &worker.calls) {
                        Ok(taken) => connection.echoed(worker, bytes, taken.unwrap_or(0)),
                        Err(e) => connection.fail(Reason::Failed(e)),
                    }
                }
                send(worker, connection, stream);
                // One edge may stand for these bytes and for the end behind them.
                if count < buffer.len() && trigger == Trigger::Level {
                    return false;
                }
            }
            Ok(None) => {
                worker.counters.empty_receives.one();
                return false;
            }
            Err(e) => {
                connection.fail(Reason::Failed(e));
                return false;
            }
        }
    }
    true
}

/// Sends at a time from one connection, at most: who answers each with more must not keep the others waiting.
const SENT_AT_ONCE: u32 = 16;

/// Sends what waits, as far as there is room, within a bound. `false`: it was the bound, and there may be room for more.
#[inline]
fn send<H: Handler>(
    worker: &mut Worker<H>,
    connection: &mut Connection<H>,
    stream: &Stream,
) -> bool {
    for _ in 0..SENT_AT_ONCE {
        if !connection.wants(&worker.limits).send {
            return true;
        }
        match stream.send(connection.unsent(), Mode::Try, &worker.calls) {
            Ok(Some(taken)) => connection.sent(worker, taken),
            Ok(None) => return true,
            Err(e) => {
                connection.fail(Reason::Failed(e));
                return true;
            }
        }
    }
    !connection.wants(&worker.limits).send
}

#[cfg(all(test, unix))] // a socket is adopted from a descriptor
mod tests {
    use super::*;
    use crate::{
        readiness::{Events, Poll},
        stream::native,
        tcp::{Asks, Output, Server},
    };
    use std::{
        net::{SocketAddr, TcpListener, TcpStream},
        os::unix::net::UnixStream,
    };

    /// Sends a byte for each that was taken: it has always more.
    struct Endless;

    impl Handler for Endless {
        fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
            output.send(b"!").unwrap();
        }

        fn on_receive(&mut self, _: &mut [u8], output: &mut Output<'_>) {
            output.abort();
        }

        fn on_sent(&mut self, _: usize, output: &mut Output<'_>) {
            output.send(b"!").unwrap();
        }
    }

    #[test]
    fn who_has_always_more_to_send_lets_others_have_their_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        let job = Server::bind(peer).job(|_| Endless).unwrap();
        let (mut worker, mut set) = (job.worker(), Poll::new().unwrap());
        let mut thread = ReadyThread::new(64, 1, Trigger::Edge);
        let stream = native::Stream::adopt(accepted.into());
        thread.take_in(&mut worker, &mut set, Accepted { stream, peer });
        let sends = || worker.counters.snapshot().sends;
        assert_eq!(sends(), u64::from(SENT_AT_ONCE));
        for times in 2..5 {
            // Whatever the system reports of it.
            assert_eq!((thread.left(), thread.timeout(&worker)), (1, Some(Duration::ZERO)));
            thread.serve_again(&mut worker, &mut set);
            assert_eq!(worker.counters.snapshot().sends, u64::from(times * SENT_AT_ONCE));
        }
        thread.cut_off(&mut worker, &mut set);
        assert_eq!(worker.counters.snapshot().closed_stopped, 1);
    }

    /// Is never received from.
    struct Pauses;

    impl Handler for Pauses {
        fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

        fn asks(&self) -> Asks {
            Asks::NOTHING.pause(true)
        }
    }

    #[test]
    fn one_that_was_set_aside_leaves_its_group_once() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let job = Server::bind(peer).job(|_| Pauses).unwrap();
        let (mut worker, mut set) = (job.worker(), Events::new(8).unwrap());
        let (room, mut thread) = (set.room(), ReadyThread::new(64, 1, Trigger::Level));
        for _ in 0..3 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let accepted = native::Stream::adopt_unix(ours.into()).unwrap();
            thread.take_in(&mut worker, &mut set, accepted);
            assert_eq!(set.room(), room - 1);
            drop(theirs);
            thread.serve(&mut worker, &mut set, 0);
            assert_eq!((set.room(), thread.table.len()), (room, 1), "it is set aside");
            thread.fail(&mut worker, &mut set, 0, Reason::Stopped, true);
            assert_eq!((set.room(), thread.table.len()), (room, 0));
        }
    }

    /// Of one that listens the system does not say how many bytes wait.
    #[test]
    fn a_connection_of_unknown_bytes_fails_at_a_stop() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let job = Server::bind(peer).job(|_| |_: &mut [u8], _: &mut Output<'_>| ()).unwrap();
        let (mut worker, mut set) = (job.worker(), Poll::new().unwrap());
        let mut thread = ReadyThread::new(64, 1, Trigger::Level);
        let stream = native::Stream::adopt(TcpListener::bind("127.0.0.1:0").unwrap().into());
        thread.take_in(&mut worker, &mut set, Accepted { stream, peer });
        thread.finish(&mut worker, &mut set, 0);
        assert_eq!(thread.table.len(), 0);
        assert_eq!(worker.counters.snapshot().closed_failed, 1);
    }
}
