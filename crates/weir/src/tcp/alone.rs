//! A connection without I/O, for who fuzzes a handler: what its peer sends is given, and what it is sent is taken.

use super::{Connection, Handler, Limits, Reason, Server, Worker};
use std::net::SocketAddr;

/// A handler with a connection of its own that no design serves.
pub struct Alone<H: Handler> {
    worker: Worker<H>,
    connection: Connection<H>,
    sent: Vec<u8>,
}

impl<H: Handler> Alone<H> {
    /// A connection with these limits, of which those on time do not matter: its clock stands still.
    ///
    /// # Panics
    /// Where the limits are not allowed.
    pub fn new(limits: Limits, make_handler: impl Fn() -> H + Send + Sync + 'static) -> Self {
        let peer = SocketAddr::from(([192, 0, 2, 7], 4321));
        let job = Server::bind(peer).limits(limits).job(move |_| make_handler());
        let mut worker = job.expect("limits that are allowed").worker();
        let mut connection = Connection::open(&mut worker, peer);
        connection.place(&worker, 0);
        Self { worker, connection, sent: Vec::new() }
    }

    /// The peer sends this, and reads what it is sent. Says whether it was received.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        self.settle();
        if !self.connection.wants(&self.worker.limits).receive {
            return false;
        }
        let mut bytes = bytes.to_vec();
        let echo = self.connection.received(&mut self.worker, &mut bytes);
        if echo > 0 {
            self.connection.echoed(&mut self.worker, &bytes[..echo], 0);
        }
        self.settle();
        true
    }

    /// What handles left is taken in, and what is to be sent goes.
    fn settle(&mut self) {
        loop {
            if self.connection.has_mail() {
                self.connection.take_mail(&mut self.worker);
            }
            if !self.connection.wants(&self.worker.limits).send {
                return;
            }
            let unsent = self.connection.unsent();
            let count = unsent.len();
            self.sent.extend_from_slice(unsent);
            self.connection.sent(&mut self.worker, count);
        }
    }

    /// The peer sends no more and reads to the end: all that it was sent, and why it was over.
    pub fn end(mut self) -> (Vec<u8>, Reason) {
        self.connection.ended(&mut self.worker);
        self.settle();
        if self.connection.wants(&self.worker.limits).end_sending {
            self.connection.fin_sent(&self.worker);
        }
        (self.sent, self.connection.close(&mut self.worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Output;

    #[test]
    fn a_handler_alone_hears_its_peer_and_is_heard() {
        let make = || |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap();
        let mut alone = Alone::new(Limits::default(), make);
        assert!(alone.receive(b"one") && alone.receive(b"two"));
        let (sent, reason) = alone.end();
        assert_eq!((&sent[..], matches!(reason, Reason::Finished)), (&b"onetwo"[..], true));
    }

    #[test]
    fn what_a_handle_sends_reaches_the_peer_and_who_has_finished_is_not_received_from() {
        let make = || {
            |bytes: &mut [u8], output: &mut Output<'_>| {
                output.handle().send(b"by a handle").unwrap();
                if bytes == b"end" {
                    output.close("it was asked to");
                }
            }
        };
        let mut alone = Alone::new(Limits::default(), make);
        assert!(alone.receive(b"go on"));
        assert!(alone.receive(b"end"));
        assert!(!alone.receive(b"more"));
        let (sent, reason) = alone.end();
        assert!(sent.starts_with(b"by a handle"));
        assert!(!matches!(reason, Reason::Finished), "{reason}");
    }
}
