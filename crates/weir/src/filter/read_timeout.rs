//! Closes a connection from which nothing was read for too long.

use super::{Filter, is_due};
use crate::tcp::{Asks, Handler, Mail, Output, Reason};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Closes a connection from which nothing was read for this long, since it connected or since the last
/// receive. It is over when the peer has ended, when the
/// handler has finished, and when the connection is closed: nothing holds a connection that is over.
///
/// While nothing is received, since the handlers behind it pause or output waits, the peer's silence is
/// not its own, and its time begins anew.
#[derive(Debug, Clone, Copy)]
pub struct ReadTimeout {
    time: Duration,
}

impl ReadTimeout {
    /// One of this length.
    pub fn new(time: Duration) -> Self {
        Self { time }
    }
}

impl Filter for ReadTimeout {
    type Of<H: Handler> = TimedRead<H>;

    fn around<H: Handler>(&self, _: SocketAddr, next: H) -> TimedRead<H> {
        TimedRead { time: self.time, due: None, next }
    }
}

/// A handler behind a [`ReadTimeout`].
#[derive(Debug)]
pub struct TimedRead<H> {
    time: Duration,
    due: Option<Instant>,
    next: H,
}

impl<H: Handler> TimedRead<H> {
    fn begin(&mut self, output: &mut Output<'_>) {
        self.due = output.now().checked_add(self.time);
    }

    /// Nothing is to be read from one that has finished.
    fn end_if_finished(&mut self, output: &Output<'_>) {
        if output.is_finished() {
            self.due = None;
        }
    }
}

impl<H: Handler> Handler for TimedRead<H> {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        self.begin(output);
        self.next.on_connect(peer, output);
        self.end_if_finished(output);
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.begin(output);
        self.next.on_receive(bytes, output);
        self.end_if_finished(output);
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        self.next.on_sent(bytes, output);
        self.end_if_finished(output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.due = None;
        self.next.on_end(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.due = None;
        self.next.on_stop(output);
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        self.next.on_mail(mail, output);
        self.end_if_finished(output);
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        let now = output.now();
        if self.due.is_some_and(|due| due <= now) {
            if self.next.asks().pause || output.room() == 0 {
                self.begin(output);
            } else {
                self.due = None;
                output.close(format!("nothing was read for {:?}", self.time));
                return;
            }
        }
        if is_due(&self.next, now) {
            self.next.on_time(output);
            self.end_if_finished(output);
        }
    }

    fn asks(&self) -> Asks {
        self.next.asks().at(self.due)
    }

    fn on_close(&mut self, reason: &Reason) {
        self.next.on_close(reason);
    }
}
