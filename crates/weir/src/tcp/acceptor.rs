//! Accepting: which connections are accepted, which are refused, and when accepting pauses for a while. Designs that
//! learn when a connection waits accept here; a ring, which accepts by requests, takes the pauses alone.

use super::{Handler, Worker};
use crate::{
    Error,
    stream::{self, Accepted, Listener, Mode},
    timer::TICK,
};
use std::time::{Duration, Instant};

/// Connections accepted for one wake-up, at most: the open ones are not to wait for long.
pub(super) const ACCEPTED_AT_ONCE: u32 = 64;

/// How far the end of accepting is where accepts are operations, and the server goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// Those that are under way are being cancelled.
    Cancelling,
    Left,
}

/// The connections that wait at these sockets once all accepts that were cancelled have come back: they may have woken one of
/// those, and nobody else who has the socket. At most so many of each; they are admitted.
pub(super) fn accept_what_waits<'a, H: Handler>(
    worker: &Worker<H>,
    listeners: impl IntoIterator<Item = &'a Listener>,
    most: u32,
) -> Vec<Accepted> {
    let mut came = Vec::new();
    for listener in listeners {
        for _ in 0..most {
            match listener.accept(Mode::Try, &worker.calls) {
                Ok(Some(accepted)) => {
                    came.extend(worker.admit(&accepted.stream).then_some(accepted));
                }
                Err(e) if stream::concerns_one_connection(&e) => {
                    worker.counters.accept_errors.one();
                }
                _ => break,
            }
        }
    }
    came
}

/// Whether connections are accepted now.
#[derive(Debug)]
pub(super) struct Acceptor {
    accepts: bool,
    /// Until when nothing is accepted, since the system had no descriptor or memory to give.
    paused_until: Option<Instant>,
    /// The server stops: it accepts no more.
    shut: bool,
    /// The server accepts no more, and goes on with what is open.
    left_off: Left,
}

/// Whether a thread has left off.
#[derive(Debug)]
enum Left {
    Not,
    Off,
    /// And has said so.
    Told,
}

/// What an attempt to accept brought.
pub(super) enum Attempt {
    /// A connection, which counts as open from now on.
    Accepted(Accepted),
    /// One that was refused, or lost. Another may wait.
    Lost,
    /// None waits, or accepting pauses.
    Nothing,
}

impl Acceptor {
    pub(super) fn new() -> Self {
        Self { accepts: true, paused_until: None, shut: false, left_off: Left::Not }
    }

    /// Whether anything is to be accepted now.
    pub(super) fn accepts(&self) -> bool {
        self.accepts
    }

    /// Whether the server stops.
    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Accepts a connection. Where the system has no descriptor or no memory to give it stays where it
    /// waits, and accepting pauses until one was given back, or for a tick: another program may give
    /// back, too.
    pub(super) fn accept<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        listener: &Listener,
    ) -> Result<Attempt, Error> {
        match listener.accept(Mode::Try, &worker.calls) {
            Ok(Some(accepted)) if worker.admit(&accepted.stream) => Ok(Attempt::Accepted(accepted)),
            Ok(Some(_)) => Ok(Attempt::Lost),
            Ok(None) => Ok(Attempt::Nothing),
            Err(e) if stream::is_want_of_resources(&e) => {
                worker.accepting_pauses();
                self.pause();
                Ok(Attempt::Nothing)
            }
            Err(e) if stream::concerns_one_connection(&e) => {
                worker.counters.accept_errors.one();
                Ok(Attempt::Lost)
            }
            Err(e) => Err(Error::io("accepting a connection", e)),
        }
    }

    /// Accepts nothing until something was given back, or for a tick.
    pub(super) fn pause(&mut self) {
        self.paused_until = Some(Instant::now() + TICK);
        self.accepts = false;
    }

    /// A descriptor was given back.
    pub(super) fn descriptor_returned(&mut self) {
        self.paused_until = None;
        self.accepts = !self.shut && matches!(self.left_off, Left::Not);
    }

    /// Ends a pause that is over.
    pub(super) fn run_timers(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.descriptor_returned();
        }
    }

    /// Accepts nothing any more.
    pub(super) fn shut(&mut self) {
        self.shut = true;
        self.accepts = false;
    }

    /// Accepts nothing any more, where the server does not stop.
    pub(super) fn leave_off(&mut self) {
        self.accepts = false;
        self.paused_until = None;
        if matches!(self.left_off, Left::Not) {
            self.left_off = Left::Off;
        }
    }

    /// Says that the thread has left off, where it has; once. To be called when it has taken in what it has accepted.
    pub(super) fn tell_left_off<H: Handler>(&mut self, worker: &Worker<H>) {
        if matches!(self.left_off, Left::Off) {
            self.left_off = Left::Told;
            worker.left_off();
        }
    }

    /// How long a wait may last until a pause is over.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.paused_until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}
