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
        if self.left.is_some() || self.discards_input() {
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
pub(super) fn finish<H: Handler>(
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
    finish(worker, connection, stream, left);
}

/// A thread's mailbox takes no more connections that others have made; those that are in it are closed.
pub(super) fn shut_mailbox<H: Handler>(worker: &mut Worker<H>) {
    for incoming in worker.mailbox.shut() {
        turn_away(worker, incoming, Reason::Stopped);
    }
}

/// Closes a connection that was admitted and that nobody can serve. The handler of an outgoing one is told nothing else:
/// for whoever asked for it none came.
pub(super) fn turn_away<H: Handler>(worker: &mut Worker<H>, incoming: Incoming, reason: Reason) {
    let Incoming { accepted: Accepted { stream, peer }, given } = incoming;
    let mut connection = match given {
        Some(_) => Connection::unopened(worker, peer, given),
        None => Connection::open(worker, peer),
    };
    connection.fail(reason);
    if connection.close(worker).is_abrupt() {
        stream.reset_when_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        counters::Counters,
        stream::{Listener, Mode, StreamOptions},
        tcp::{Output, Server},
    };
    use std::{
        net::{SocketAddr, TcpStream},
        sync::mpsc::{self, Sender},
    };

    /// Says how it is called.
    struct Says(Sender<&'static str>);

    impl Handler for Says {
        fn on_connect(&mut self, _: SocketAddr, _: &mut Output<'_>) {
            self.0.send("connect").unwrap();
        }

        fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

        fn on_close(&mut self, reason: &Reason) {
            assert!(matches!(reason, Reason::Stopped));
            self.0.send("close").unwrap();
        }
    }

    /// Who asked for an outgoing connection hears that none came, and nothing else; who was accepted has been there.
    #[test]
    fn an_outgoing_connection_that_is_turned_away_is_closed_and_never_connected() {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::bind(at, StreamOptions::default()).unwrap();
        for (is_outgoing, expected) in [(true, &["close"][..]), (false, &["connect", "close"])] {
            let (say, said) = mpsc::channel();
            let its = std::sync::Mutex::new(say.clone());
            let job = Server::bind(at).job(move |_| Says(its.lock().unwrap().clone())).unwrap();
            let mut worker = job.worker();
            let _peer = TcpStream::connect(listener.local_address()).unwrap();
            let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap();
            let accepted = accepted.expect("its peer has connected");
            let given = is_outgoing.then(|| Box::new(Says(say)) as _);
            turn_away(&mut worker, Incoming { accepted, given }, Reason::Stopped);
            assert_eq!(said.try_iter().collect::<Vec<_>>(), expected);
        }
    }
}
