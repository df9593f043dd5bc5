//! TLS by rustls, without I/O of its own: bytes in, bytes out.

use super::{Filter, is_due};
use crate::{
    Error,
    tcp::{Asks, Echo, Handler, Mail, Output, Queue, Reason},
};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read, Write},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// TLS 1.2 and 1.3 by rustls, with the cryptography of `ring`. The handlers behind it see what the peer said in
/// clear: they are told of the connect when the handshake is over, and of the end of the peer's sending when it
/// has said so (close_notify). Their end is the server's close_notify.
///
/// A peer that ends without close_notify may have been cut short by somebody else: the connection ends for
/// that reason ([`Reason::Declined`]), and `on_end` is not called. What is no TLS is answered with an alert,
/// and the reason says what came. A handshake has [10 s](Self::handshake).
///
/// Handlers behind it see the session ([`Output::tls`]): the name that the client asked for, the protocol agreed upon, the
/// certificates of the client. One that serves several names, each with a certificate of its own, takes rustls'
/// configuration ([`new`](Self::new)) with a resolver (`rustls::server::ResolvesServerCertUsingSni`); the crate is there as
/// [`weir::rustls`](crate::rustls).
///
/// What cannot be sent yet, and what was received while the handlers behind want nothing, waits in here,
/// and receiving pauses meanwhile: so no more waits than one receive and what answers it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    handshake: Duration,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("handshake", &self.handshake).finish_non_exhaustive()
    }
}

/// How long a handshake may take unless told otherwise.
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Tls {
    /// With rustls' own configuration.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config, handshake: HANDSHAKE }
    }

    /// With a chain of certificates, the server's own first, and its private key, as PEM; no client is asked
    /// for a certificate.
    ///
    /// # Errors
    /// [`Error::Option`] where one cannot be read, or the key is not the certificate's.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Self::with_verifier(chain, key, None)
    }

    /// The same for clients that show a certificate which one of these authorities has issued, as PEM: others are refused
    /// in the handshake.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pem_for_clients_of(
        authorities: &[u8],
        chain: &[u8],
        key: &[u8],
    ) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for authority in certificates("client-ca", authorities)? {
            roots.add(authority).map_err(|e| wrong("client-ca", e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|e| wrong("client-ca", e))?;
        Self::with_verifier(chain, key, Some(verifier))
    }

    fn with_verifier(
        chain: &[u8],
        key: &[u8],
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, Error> {
        let chain = certificates("certificate", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| wrong("key", format!("it cannot be read: {e}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("certificate", e))?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key).map_err(|e| wrong("certificate", e))?;
        Ok(Self::new(Arc::new(config)))
    }

    /// The protocols that may be spoken within it (ALPN, RFC 7301), the one wanted most first. A client that names others
    /// only is refused in the handshake; one that names none is not.
    ///
    /// # Errors
    /// [`Error::Option`] where a name has not 1 to 255 bytes.
    pub fn alpn<N: Into<Vec<u8>>>(
        mut self,
        protocols: impl IntoIterator<Item = N>,
    ) -> Result<Self, Error> {
        let protocols: Vec<Vec<u8>> = protocols.into_iter().map(Into::into).collect();
        if let Some(name) = protocols.iter().find(|name| !(1..=255).contains(&name.len())) {
            let problem = format!("a name has {} bytes; allowed: 1 to 255", name.len());
            return Err(wrong("alpn", problem));
        }
        Arc::make_mut(&mut self.config).alpn_protocols = protocols;
        Ok(self)
    }

    /// How long a handshake may take, from the connect on.
    pub fn handshake(mut self, time: Duration) -> Self {
        self.handshake = time;
        self
    }
}

fn wrong(name: &str, problem: impl fmt::Display) -> Error {
    Error::option(name, problem.to_string())
}

/// All certificates of a PEM, of which there must be some.
fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(name, format!("it cannot be read: {e}")))?;
    match all.is_empty() {
        true => Err(wrong(name, "there is no certificate in what was given")),
        false => Ok(all),
    }
}

impl Filter for Tls {
    type Of<H: Handler> = Secured<H>;

    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Secured<H> {
        Secured {
            // It is made when the connection is.
            tls: Err(Arc::clone(&self.config)),
            peer,
            handshake: self.handshake,
            due: None,
            connected: false,
            input: Vec::new(),
            stalled: false,
            cipher: Queue::default(),
            made: 0,
            sent: 0,
            marks: VecDeque::new(),
            plain: 0,
            said: Queue::default(),
            finished: false,
            notified: false,
            stopped: false,
            ended_within: false,
            ended: false,
            over: false,
            declined: None,
            next,
        }
    }
}

/// A handler behind [`Tls`].
pub struct Secured<H> {
    tls: Result<Box<ServerConnection>, Arc<ServerConfig>>,
    peer: SocketAddr,
    handshake: Duration,
    /// When the handshake must be over.
    due: Option<Instant>,
    /// The handshake is over, and the next handler was told so.
    connected: bool,
    /// What was received and not yet taken apart, since the next handler wants nothing.
    input: Vec<u8>,
    stalled: bool,
    /// What is to be sent, and has no room outside.
    cipher: Queue,
    /// Bytes made for the wire, and those of them that were sent, since the beginning.
    made: u64,
    sent: u64,
    /// What the next handler is told when so many bytes were sent.
    marks: VecDeque<(u64, usize)>,
    /// Bytes of its output that were not.
    plain: usize,
    /// What it says in a call.
    said: Queue,
    /// It sends no more, and the peer was told so.
    finished: bool,
    notified: bool,
    /// The server stops.
    stopped: bool,
    /// The peer sends no more: as TLS says, and as TCP says.
    ended_within: bool,
    ended: bool,
    /// Nothing is taken apart any more.
    over: bool,
    declined: Option<Box<Reason>>,
    next: H,
}

impl<H: fmt::Debug> fmt::Debug for Secured<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("next", &self.next).finish_non_exhaustive()
    }
}

/// What one record may carry, and what it costs besides, at most (RFC 8446, 5.2; RFC 5246, 6.2.3).
const RECORD: usize = 16 * 1024;
const OVERHEAD: usize = 64;

/// Bytes handed to the next handler at a time, at most.
const PIECE: usize = 4096;

/// What is made for the wire goes outside as far as there is room, and waits here beyond.
struct Outward<'a, 'b> {
    output: &'a mut Output<'b>,
    cipher: &'a mut Queue,
    made: &'a mut u64,
}

impl Write for Outward<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = if self.cipher.is_empty() { self.output.room().min(bytes.len()) } else { 0 };
        let (now, later) = bytes.split_at(room);
        // There is room for it.
        let _ = self.output.send(now);
        if !later.is_empty() {
            self.cipher.borrow(self.output.spare);
            self.cipher.push(later);
        }
        *self.made += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<H: Handler> Secured<H> {
    /// Bytes that the next handler may say now.
    fn room(&self, output: &Output<'_>) -> usize {
        let room = output.room().saturating_sub(self.cipher.len());
        let plain = room.saturating_sub((room / RECORD + 1) * OVERHEAD);
        // Where nothing of it is under way something must be possible, or it might never be called again.
        if self.plain == 0 { plain.max(PIECE) } else { plain }
    }

    /// Makes what the library has to say, and moves it outside.
    fn flush(&mut self, output: &mut Output<'_>) {
        let waiting = self.cipher.len().min(output.room());
        if waiting > 0 && output.send(&self.cipher.bytes()[..waiting]).is_ok() {
            self.cipher.take(waiting, output.spare);
        }
        let Self { tls: Ok(tls), cipher, made, .. } = self else { return };
        while tls.wants_write() {
            // Writing into memory cannot fail.
            let outward = &mut Outward { output, cipher, made };
            if !tls.write_tls(outward).is_ok_and(|count| count > 0) {
                break;
            }
        }
    }

    /// Says so many bytes of the next handler's.
    fn say(tls: &mut ServerConnection, bytes: &[u8]) {
        // Without a limit of the library's own all is taken, and memory cannot fail.
        let _ = tls.writer().write_all(bytes);
    }

    /// Calls the next handler, and says what it says.
    fn call(
        &mut self,
        mut received: Option<&mut [u8]>,
        output: &mut Output<'_>,
        call: impl FnOnce(&mut H, Option<&mut [u8]>, &mut Output<'_>),
    ) {
        let limit = self.room(output);
        let Self { said, finished, next, tls, .. } = self;
        let echo = if received.is_some() { Echo::Possible } else { Echo::Nothing };
        let mut inner = output.inner(said, limit, echo, finished, None);
        inner.tls = tls.as_deref().ok();
        call(next, received.as_deref_mut(), &mut inner);
        let outcome = inner.outcome();
        let echo = output.take_over(outcome, &mut self.declined);
        let Ok(tls) = &mut self.tls else { return };
        let mut plain = 0;
        if echo && let Some(bytes) = received {
            Self::say(tls, bytes);
            plain += bytes.len();
        }
        let all = self.said.len();
        if all > 0 {
            Self::say(tls, self.said.bytes());
            self.said.take(all, output.spare);
            plain += all;
        }
        if plain > 0 {
            self.plain += plain;
            self.flush(output);
            self.marks.push_back((self.made, plain));
        }
    }

    /// Takes apart what was received.
    fn take_in(&mut self, mut bytes: &[u8], output: &mut Output<'_>) {
        while !self.over && !self.stalled {
            self.hand_in(output);
            if self.stalled || bytes.is_empty() {
                break;
            }
            let Ok(tls) = &mut self.tls else { return };
            let fed = tls.read_tls(&mut bytes).map_err(|e| e.to_string());
            let done = fed.and_then(|_| tls.process_new_packets().map_err(|e| e.to_string()));
            if let Err(why) = done {
                // The library has an alert to send.
                return self.fail(&format!("TLS: {why}"), output);
            }
            if !self.connected && !tls.is_handshaking() {
                self.connected = true;
                self.due = None;
                let peer = self.peer;
                self.call(None, output, |next, _, output| next.on_connect(peer, output));
            }
        }
        if !self.over {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Hands the next handler what the peer said, until it wants no more.
    fn hand_in(&mut self, output: &mut Output<'_>) {
        let mut piece = [0; PIECE];
        while !self.finished {
            if self.connected && (self.next.asks().pause || self.room(output) == 0) {
                let Ok(tls) = &mut self.tls else { return };
                // Where there is nothing to be handed in nothing stalls.
                self.stalled =
                    tls.process_new_packets().is_ok_and(|s| s.plaintext_bytes_to_read() > 0);
                if self.stalled {
                    return;
                }
            }
            let Ok(tls) = &mut self.tls else { return };
            match tls.reader().read(&mut piece) {
                Ok(0) => {
                    // It said so: close_notify.
                    if !std::mem::replace(&mut self.ended_within, true) {
                        self.call(None, output, |next, _, output| next.on_end(output));
                    }
                    return;
                }
                Ok(count) => self.call(Some(&mut piece[..count]), output, |next, bytes, output| {
                    next.on_receive(bytes.expect("they were given"), output);
                }),
                Err(_) => return, // nothing more for now
            }
        }
        // What it still says is dropped, but its end is heard.
        if let Ok(tls) = &mut self.tls {
            while tls.reader().read(&mut piece).is_ok_and(|count| count > 0) {}
            self.ended_within |=
                tls.process_new_packets().is_ok_and(|state| state.peer_has_closed());
        }
    }

    /// Ends it in order, for this reason.
    fn fail(&mut self, why: &str, output: &mut Output<'_>) {
        self.over = true;
        self.finished = true;
        self.input = Vec::new();
        self.declined.get_or_insert_with(|| Box::new(Reason::Declined(why.into())));
        self.settle(output);
    }

    /// What follows from whatever happened.
    fn settle(&mut self, output: &mut Output<'_>) {
        if self.stalled && !self.next.asks().pause && self.room(output) > 0 {
            self.stalled = false;
            let input = std::mem::take(&mut self.input);
            self.take_in(&input, output);
        }
        if self.ended && !self.over && !self.stalled && !self.ended_within {
            let why = if self.connected {
                "TLS: the peer ended without close_notify: what it sent may have been cut short"
            } else {
                "TLS: the peer ended before the handshake was over"
            };
            return self.fail(why, output);
        }
        // What it sends after a stop is refused, as everywhere.
        self.finished |= self.stopped && !(self.connected && self.next.asks().holds);
        // As without TLS, a peer that has ended ends its connection once nothing waits.
        let deserted =
            self.ended && self.ended_within && self.plain == 0 && !self.next.asks().holds;
        if let Ok(tls) = &mut self.tls
            && (self.finished || deserted)
            && !std::mem::replace(&mut self.notified, true)
            && self.connected
        {
            tls.send_close_notify();
        }
        self.flush(output);
        if self.notified && self.cipher.is_empty() {
            output.end_in_order(self.declined.take());
        }
    }
}

impl<H: Handler> Handler for Secured<H> {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let Err(config) = &self.tls else { return };
        self.due = output.now().checked_add(self.handshake);
        match ServerConnection::new(Arc::clone(config)) {
            Ok(mut tls) => {
                // What may wait is bounded by what the next handler may say.
                tls.set_buffer_limit(None);
                self.tls = Ok(Box::new(tls));
            }
            Err(e) => self.fail(&format!("TLS: {e}"), output),
        }
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        if self.stalled {
            self.input.extend_from_slice(bytes);
        } else {
            self.take_in(bytes, output);
        }
        self.settle(output);
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        self.sent += bytes as u64;
        let mut plain = 0;
        while let Some((_, count)) = self.marks.front().filter(|(made, _)| *made <= self.sent) {
            plain += *count;
            self.marks.pop_front();
        }
        self.plain -= plain;
        self.flush(output);
        if plain > 0 {
            self.call(None, output, |next, _, output| next.on_sent(plain, output));
        }
        self.settle(output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.ended = true;
        self.due = None;
        self.settle(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        if self.connected {
            self.call(None, output, |next, _, output| next.on_stop(output));
        }
        self.stopped = true;
        self.settle(output);
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        if self.connected {
            self.call(None, output, |next, _, output| next.on_mail(mail, output));
        }
        self.settle(output);
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        let now = output.now();
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            return output.close("TLS: the handshake took too long");
        }
        if self.connected && is_due(&self.next, now) {
            self.call(None, output, |next, _, output| next.on_time(output));
        }
        self.settle(output);
    }

    fn asks(&self) -> Asks {
        let asks = if self.connected { self.next.asks() } else { Asks::NOTHING };
        Asks {
            pause: asks.pause || self.stalled || !self.cipher.is_empty(),
            holds: asks.holds || !self.cipher.is_empty() || !self.input.is_empty(),
            hears: false, // its end of sending is the end of TLS
            ..asks.at(self.due)
        }
    }

    fn on_close(&mut self, reason: &Reason) {
        if self.connected {
            self.next.on_close(reason);
        }
    }
}

#[cfg(test)]
mod tests;
