//! Two connections that feed each other.

use super::{Asks, Handle, Handler, Mail, Output, Reason, Refused};
use crate::lifecycle::lock;
use std::{
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// The handler of one of two connections that feed each other, as a proxy's to a client and to the server behind: each is
/// sent what the other one receives.
///
/// - *Back-pressure*: what there is no room for waits, and nothing more is received until the other connection has sent
///   some of its own. So each direction holds twice [`Limits::output_bytes`](super::Limits::output_bytes) and a receive at
///   most, and each waits for itself alone: a peer that does not read is heard all the same.
/// - *Half-close*: when the peer of one has sent all that it will the other finishes, and goes on receiving.
/// - Where one has gone, for whatever reason, or does not come about, the other finishes once it has sent what it was given.
///
/// A connection that receives before the other one stands pauses until then. A server that stops ends both directions.
///
/// ```
/// use std::{io::{Read, Write}, net::{Shutdown, TcpStream}};
/// use weir::tcp::{Connector, Output, Poll, Relay, Server};
///
/// # let any_port = "127.0.0.1:0".parse().unwrap();
/// let echo = |_: &mut [u8], output: &mut Output<'_>| output.echo().unwrap();
/// let behind = Server::bind(any_port).start(Poll::default(), move |_| echo).unwrap();
/// let to = behind.local_addresses()[0];
/// let connector = Connector::new();
/// let its = connector.clone();
/// let proxy = Server::bind(any_port).start_connecting(Poll::default(), &connector, move |_| {
///     let (client, server) = Relay::pair();
///     let _ = its.connect(to, server); // refused, it is dropped, and the client's connection ends
///     client
/// }).unwrap();
///
/// let mut client = TcpStream::connect(proxy.local_addresses()[0]).unwrap();
/// client.write_all(b"hello").unwrap();
/// client.shutdown(Shutdown::Write).unwrap();
/// let mut back = String::new();
/// client.read_to_string(&mut back).unwrap();
/// assert_eq!(back, "hello");
/// # drop(client);
/// # assert!(proxy.stop().failure.is_none() && behind.stop().failure.is_none());
/// ```
#[derive(Debug)]
pub struct Relay {
    ends: Arc<Mutex<[End; 2]>>,
    /// Which of them it is.
    own: usize,
    /// What is known of the other one.
    other: End,
    /// What the other one had no room for.
    kept: Vec<u8>,
    /// Its peer has sent all that it will.
    ended: bool,
    /// It has sent all that it will.
    over: bool,
}

/// What has become of one of the two.
#[derive(Debug, Clone, Default)]
enum End {
    #[default]
    Awaited,
    Stands(Handle),
    Gone,
}

// Inlined, so that it is no part of programs that relay nothing: of what the library compiles itself the linker keeps the tables
// of unwinding.
impl Relay {
    /// The handlers of two connections, which may come about in any order, on the same server or on two.
    #[inline]
    pub fn pair() -> (Self, Self) {
        let ends = Arc::default();
        let side = |own| {
            let (ends, kept) = (Arc::clone(&ends), Vec::new());
            Self { ends, own, other: End::Awaited, kept, ended: false, over: false }
        };
        (side(0), side(1))
    }

    /// What has become of the other one.
    #[inline]
    fn other(&mut self) -> &End {
        if matches!(self.other, End::Awaited) {
            self.other = lock(&self.ends)[1 - self.own].clone();
        }
        &self.other
    }

    /// Has the other one send as many of the bytes as it has room for. Says how many are dealt with.
    #[inline]
    fn pass_on(&mut self, bytes: &[u8]) -> usize {
        match self.other() {
            End::Awaited => 0,
            End::Gone => bytes.len(),
            End::Stands(other) => {
                let fit = bytes.len().min(other.room());
                match other.send(&bytes[..fit]) {
                    Ok(()) => return fit,
                    Err(Refused::Full) => return 0, // somebody else was faster
                    Err(Refused::Gone) => self.other = End::Gone,
                    Err(_) => {} // nothing more goes there
                }
                bytes.len()
            }
        }
    }

    /// Passes on what was kept, and then the end.
    #[inline]
    fn go_on(&mut self) {
        let mut kept = mem::take(&mut self.kept);
        let passed_on = self.pass_on(&kept);
        kept.drain(..passed_on);
        if !kept.is_empty() {
            self.kept = kept; // otherwise it holds no memory
        } else if self.ended
            && let End::Stands(other) = self.other()
        {
            other.close();
        }
    }

    #[inline]
    fn leave(&mut self) {
        let mut ends = lock(&self.ends);
        ends[self.own] = End::Gone;
        if let End::Stands(other) = &ends[1 - self.own] {
            other.close();
        }
    }
}

impl Handler for Relay {
    #[inline]
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let mut ends = lock(&self.ends);
        ends[self.own] = End::Stands(output.handle());
        match &ends[1 - self.own] {
            End::Awaited => {}
            // It may have something. Where it is about to go it says so by itself.
            End::Stands(other) => _ = other.wake(),
            End::Gone => {
                output.finish();
                (self.other, self.over) = (End::Gone, true);
            }
        }
    }

    #[inline]
    fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
        let passed_on = if self.kept.is_empty() { self.pass_on(bytes) } else { 0 };
        self.kept.extend_from_slice(&bytes[passed_on..]);
    }

    #[inline]
    fn on_sent(&mut self, _: usize, _: &mut Output<'_>) {
        if let End::Stands(other) = self.other() {
            let _ = other.wake(); // there is room here
        }
    }

    #[inline]
    fn on_end(&mut self, _: &mut Output<'_>) {
        self.ended = true;
        self.go_on();
    }

    #[inline]
    fn on_stop(&mut self, output: &mut Output<'_>) {
        output.finish();
        self.over = true;
    }

    #[inline]
    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        mail.send(output);
        mail.finish(output);
        self.over = output.is_finished();
        if self.over && matches!(lock(&self.ends)[1 - self.own], End::Gone) {
            // What its peer sends yet goes nowhere: it has the time to end that others have, too.
            (self.other, self.kept) = (End::Gone, Vec::new());
        }
        if mail.take_wake() {
            self.go_on();
        }
    }

    #[inline]
    fn asks(&self) -> Asks {
        // The directions have nothing to do with each other: its peer's end is not its own, which comes from the other
        // side; and it hears its peer though that does not read, or two of these could wait for each other for ever.
        let hears = !matches!(self.other, End::Gone);
        Asks::NOTHING.pause(!self.kept.is_empty()).holds(!self.over).hears(hears)
    }

    #[inline]
    fn on_close(&mut self, _: &Reason) {
        self.leave();
    }
}

/// However it goes: also where no connection came of it, or its thread failed.
impl Drop for Relay {
    #[inline]
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Connection, Limits, Server, alone::Alone};

    fn made_once(relay: Relay) -> impl Fn() -> Relay + Send + Sync + 'static {
        let given = Mutex::new(Some(relay));
        move || lock(&given).take().expect("it is made once")
    }

    #[test]
    fn what_came_before_the_other_one_stood_is_passed_on_first() {
        let (one, other) = Relay::pair();
        let mut one = Alone::new(Limits::default(), made_once(one));
        assert!(one.receive(b"early"));
        assert!(!one.receive(b"too much"), "it pauses");
        let mut other = Alone::new(Limits::default(), made_once(other));
        assert!(one.receive(b" and late") && other.receive(b"back"));
        let (sent, _) = one.end();
        assert_eq!(sent, b"back");
        let (sent, reason) = other.end();
        assert_eq!(sent, b"early and late");
        assert!(matches!(reason, Reason::Finished), "{reason}");
    }

    #[test]
    fn where_one_does_not_come_about_the_other_ends() {
        for stands_before in [true, false] {
            let (one, other) = Relay::pair();
            let other = Some(other).filter(|_| stands_before);
            let (peer, made) = (SocketAddr::from(([192, 0, 2, 7], 4321)), made_once(one));
            let mut worker = Server::bind(peer).job(move |_| made()).unwrap().worker();
            let mut connection = Connection::open(&mut worker, peer);
            connection.place(&worker, 0);
            drop(other);
            if connection.has_mail() {
                connection.take_mail(&mut worker);
            }
            assert!(connection.wants(&worker.limits).end_sending, "{stands_before}");
        }
    }
}
