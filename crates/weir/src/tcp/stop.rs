//! How a stop of the server becomes the end of a connection: by a number of bytes. What the system had acknowledged when
//! the server stopped is still handled; then the handler is told, and once nothing waits to be sent, the connection wants
//! to end sending ([`Connection::wants`]) and is over when the peer has ended, too.

use super::{Connection, Handler, Reason, Worker, handler::Echo, mail::Incoming};
use crate::stream::{Accepted, Stream};
use std::{io, num::NonZeroUsize};

impl<H: Handler> Connection<H> {
    /// The server stops: nothing more is to be handled than so many bytes, which the system has received
    /// already; then the handler is told, and it finishes.
    pub fn finish_after(&mut self, worker: &mut Worker<H>, bytes: usize) {
        self.left = NonZeroUsize::new(bytes);
        if self.left.is_some() || self.is_deaf() {
            return;
        }
        if self.has_mail() {
            self.take_mail(worker);
        }
        self.call(worker, Echo::Nothing, |handler, output| handler.on_stop(output));
        self.stopped = true;
        self.finished |= !self.holds;
    }
}

/// The same for a connection with a stream of its own: as many bytes as the system says. Where it did not, some that it has
/// acknowledged would be lost unnoticed: so the connection is reset.
pub(super) fn finish_after<H: Handler>(
    worker: &mut Worker<H>,
    connection: &mut Connection<H>,
    stream: &Stream,
    bytes: io::Result<usize>,
) {
    match bytes {
        Ok(bytes) => connection.finish_after(worker, bytes),
        Err(e) => {
            stream.reset_when_closed();
            connection.fail(Reason::Failed(e));
        }
    }
}

/// The same by how much has come in all, of which so much was received.
pub(super) fn finish_at<H: Handler>(
    worker: &mut Worker<H>,
    connection: &mut Connection<H>,
    stream: &Stream,
    in_all: io::Result<u64>,
    received: u64,
) {
    let left = in_all.map(|in_all| in_all.saturating_sub(received));
    let left = left.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
    finish_after(worker, connection, stream, left);
}

/// A thread takes in no more connections that others have made; those that came are closed.
pub(super) fn shut_door<H: Handler>(worker: &mut Worker<H>) {
    for incoming in worker.mailbox.shut() {
        turn_away(worker, incoming, Reason::Stopped);
    }
}

/// Closes a connection that was admitted and that nobody can serve.
pub(super) fn turn_away<H: Handler>(worker: &mut Worker<H>, incoming: Incoming, reason: Reason) {
    let Incoming { accepted: Accepted { stream, peer }, given } = incoming;
    let mut connection = Connection::open_given(worker, peer, given);
    connection.fail(reason);
    if connection.close(worker).is_abrupt() {
        stream.reset_when_closed();
    }
}
