//! The endpoint: one thread that answers `GET /metrics`, whatever its peers do.
//!
//! It waits for all its sockets together, which are non-blocking, and then looks at each once. So a peer that sends
//! nothing, or slowly, or takes nothing, costs the others no more than a look at it. There are at most
//! [`CONNECTIONS_MAX`] connections, and as many are taken in a turn at most; one more ends the oldest. A connection has
//! [`TIME_MAX`] for everything. That would be little for a server of thousands, and is enough for what asks every few
//! seconds, from one or two places.

use std::io::{ErrorKind, Read, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::text::CONTENT_TYPE;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Longest time of a connection, from its first byte to its last.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Longest request, in bytes: its line and its headers.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Most bytes behind a request that are taken and dropped in a turn.
const DROPPED_BYTES_MAX: usize = 64 * 1024;
/// Least time from one turn to the next, whatever happens: whoever floods this port shall not have the core.
const TURN: Duration = Duration::from_millis(2);
/// When it is tried again to take connections in, where that failed: no event tells that descriptors are free again.
const RETRY: Duration = Duration::from_millis(100);
/// What tells that a connection waits.
const LISTENING: Token = Token(0);
/// What tells that it is to end.
const ENDING: Token = Token(1);
/// What tells that a connection can go on. Which of them it is does not matter: there are few.
const CONNECTED: Token = Token(2);
/// How long a page is good for: whoever asks more often gets the same again, so that asking costs the server's
/// counters no more than ten readings a second.
const PAGE_TIME: Duration = Duration::from_millis(100);

/// The thread that answers. It ends when this is dropped, within a turn.
pub struct Endpoint {
    ending: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Answers what comes to this socket, with pages that `make` makes, on these cores (on all, if there are none).
    ///
    /// # Errors
    /// If sockets cannot be waited for, or no thread can be started.
    pub fn start(
        listener: std::net::TcpListener,
        cores: Vec<usize>,
        make: impl FnMut() -> String + Send + 'static,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let mut poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENING, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), ENDING)?;
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = Arc::clone(&ending);
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
            if !cores.is_empty() {
                // It was tried with the server's cores: where it fails here, the thread runs where it may.
                let _ = weir::affinity::pin_current_thread_to(&cores);
            }
            let mut pages = Pages { make, last: None };
            let mut open: Vec<Connection> = Vec::with_capacity(CONNECTIONS_MAX);
            let mut events = Events::with_capacity(CONNECTIONS_MAX + 2);
            while !is_ending.load(Ordering::Acquire) {
                let begun = Instant::now();
                let next = accept(&listener, &mut open, poll.registry());
                open.retain_mut(|connection| connection.advance(&mut pages));
                let next = open.iter().map(Connection::next).chain(next).min();
                let within = next.map(|at| at.saturating_duration_since(Instant::now()));
                // A wait that was interrupted is over, and so it is looked at each once more.
                let _ = poll.poll(&mut events, within);
                thread::sleep(TURN.saturating_sub(begun.elapsed()));
            }
        })?;
        Ok(Self { ending, waker, thread: Some(thread) })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Neither fails unless the thread panicked, which has been told.
            let _ = self.waker.wake();
            let _ = thread.join();
        }
    }
}

/// Takes in connections that wait, as many as there may be, and says when to do so again if no event tells of more. None
/// of them is ended before it was looked at once.
fn accept(
    listener: &TcpListener,
    open: &mut Vec<Connection>,
    registry: &Registry,
) -> Option<Instant> {
    for _ in 0..CONNECTIONS_MAX {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // Whatever it is, it may be over soon: descriptors are free again, a peer was gone.
            Err(_) => return Some(Instant::now() + RETRY),
        };
        let both = Interest::READABLE | Interest::WRITABLE;
        if registry.register(&mut stream, CONNECTED, both).is_err() {
            continue;
        }
        if open.len() == CONNECTIONS_MAX {
            // One that has its answer, or else the oldest.
            let ending = open.iter().position(Connection::is_answered).unwrap_or(0);
            open.remove(ending);
        }
        open.push(Connection::new(stream));
    }
    Some(Instant::now())
}

/// The pages.
struct Pages<M> {
    make: M,
    last: Option<(Instant, String)>,
}

impl<M: FnMut() -> String> Pages<M> {
    /// The newest one, or a new one if that is too old.
    fn newest(&mut self) -> &str {
        if self.last.as_ref().is_none_or(|(at, _)| at.elapsed() >= PAGE_TIME) {
            self.last = Some((Instant::now(), (self.make)()));
        }
        self.last.as_ref().map_or("", |(_, page)| page)
    }
}

/// A connection.
struct Connection {
    stream: TcpStream,
    until: Instant,
    state: Phase,
    /// Whether there is more to be taken at once, of which no event will tell.
    has_more: bool,
}

enum Phase {
    /// The request comes: what there is of it.
    Receiving(Vec<u8>),
    /// The response goes: all of it, and how much has gone.
    Sending(Vec<u8>, usize),
    /// The response has gone. What the peer still sends is dropped until it closes: closed before, the connection
    /// would be reset, and the response lost.
    Answered,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let until = Instant::now() + TIME_MAX;
        Self { stream, until, state: Phase::Receiving(Vec::new()), has_more: false }
    }

    fn is_answered(&self) -> bool {
        matches!(self.state, Phase::Answered)
    }

    /// When it is to be looked at again if no event tells of it.
    fn next(&self) -> Instant {
        if self.has_more { Instant::now() } else { self.until }
    }

    /// Does what can be done without waiting. Says whether there is anything left to do.
    /// Nothing is once its time is over, and it was looked at once more: this thread may have had no core in all of it.
    fn advance<M: FnMut() -> String>(&mut self, pages: &mut Pages<M>) -> bool {
        let is_late = Instant::now() >= self.until;
        self.look(pages) && !is_late
    }

    fn look<M: FnMut() -> String>(&mut self, pages: &mut Pages<M>) -> bool {
        if let Phase::Receiving(request) = &mut self.state {
            match receive(&mut self.stream, request, pages) {
                Received::All(response) => self.state = Phase::Sending(response, 0),
                Received::Part => return true,
                Received::Gone => return false,
            }
        }
        if let Phase::Sending(response, gone) = &mut self.state {
            while *gone < response.len() {
                match self.stream.write(&response[*gone..]) {
                    Ok(0) => return false,
                    Ok(n) => *gone += n,
                    Err(error) => return may_go_on(&error),
                }
            }
            if self.stream.shutdown(Shutdown::Write).is_err() {
                return false;
            }
            self.state = Phase::Answered;
        }
        let (mut dropped, mut bytes) = (0, [0; 4096]);
        while dropped < DROPPED_BYTES_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(n) => dropped += n,
                Err(error) => {
                    self.has_more = false;
                    return may_go_on(&error);
                }
            }
        }
        self.has_more = true;
        true
    }
}

/// Whether nothing is wrong but that it would have to wait.
fn may_go_on(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What came of a request.
enum Received {
    /// All that was needed for this response.
    All(Vec<u8>),
    /// Nothing new, or not enough.
    Part,
    /// The peer.
    Gone,
}

/// Takes what has come of a request.
fn receive<M: FnMut() -> String>(
    stream: &mut TcpStream,
    request: &mut Vec<u8>,
    pages: &mut Pages<M>,
) -> Received {
    let before = request.len();
    let ended = loop {
        let room = REQUEST_BYTES_MAX - request.len();
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes[..room.min(1024)]) {
            // Also if there is no room left.
            Ok(0) => break room > 0,
            Ok(n) => request.extend_from_slice(&bytes[..n]),
            Err(error) if may_go_on(&error) => break false,
            Err(_) => return Received::Gone,
        }
    };
    if request.len() > before
        && let Some(response) = response(request, pages)
    {
        return Received::All(response);
    }
    if ended { Received::Gone } else { Received::Part }
}

/// The response to a request; `None` if the request is not whole yet.
fn response<M: FnMut() -> String>(request: &[u8], pages: &mut Pages<M>) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let response = match parsed.parse(request) {
        Ok(status) if status.is_complete() => {
            answer(parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default(), pages)
        }
        Ok(_) if request.len() < REQUEST_BYTES_MAX => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            let why = format!(
                "the request is longer than {REQUEST_BYTES_MAX} bytes, or has more than {HEADERS_MAX} headers"
            );
            refusal("431 Request Header Fields Too Large", "", &why)
        }
        Err(error) => {
            refusal("400 Bad Request", "", &format!("this is not a valid request: {error}"))
        }
    };
    Some(response.bytes(parsed.method != Some("HEAD")))
}

/// The response to a whole request.
fn answer<M: FnMut() -> String>(method: &str, target: &str, pages: &mut Pages<M>) -> Response {
    // A proxy's request has the whole address.
    let path = target
        .split_once("://")
        .map_or(target, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    match (path, method) {
        ("/metrics", "GET" | "HEAD") => Response {
            status: "200 OK",
            content_type: CONTENT_TYPE,
            header: "",
            body: pages.newest().to_owned(),
        },
        ("/metrics", _) => {
            refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "use GET or HEAD")
        }
        _ => refusal("404 Not Found", "", "the metrics are at /metrics"),
    }
}

struct Response {
    status: &'static str,
    content_type: &'static str,
    /// A line with its end, or nothing.
    header: &'static str,
    body: String,
}

fn refusal(status: &'static str, header: &'static str, why: &str) -> Response {
    let content_type = "text/plain; charset=utf-8";
    Response { status, content_type, header, body: format!("{why}\n") }
}

impl Response {
    /// As it is sent. HEAD asks for all but the body.
    fn bytes(self, with_body: bool) -> Vec<u8> {
        let Self { status, content_type, header, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{header}\
             Connection: close\r\n\r\n"
        );
        (if with_body { head + &body } else { head }).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as Peer;

    use super::*;

    fn listener() -> (TcpListener, Poll) {
        let address = "127.0.0.1:0".parse().expect("an address");
        (TcpListener::bind(address).expect("a port"), Poll::new().expect("a poll"))
    }

    /// Looks for waiting connections until so many were taken in, in all.
    fn take(
        listener: &TcpListener,
        open: &mut Vec<Connection>,
        registry: &Registry,
        peers: &[Peer],
    ) {
        let last = peers.last().expect("one").local_addr().expect("an address");
        while open.last().is_none_or(|newest| newest.stream.peer_addr().ok() != Some(last)) {
            accept(listener, open, registry);
        }
    }

    /// One that was taken in, its peer, and what it is registered with.
    fn connected() -> (Connection, Peer, Poll) {
        let (listener, poll) = listener();
        let peer = Peer::connect(listener.local_addr().expect("an address")).expect("it listens");
        let mut open = vec![];
        take(&listener, &mut open, poll.registry(), std::slice::from_ref(&peer));
        let mut connection = open.remove(0);
        // However long a busy machine takes.
        connection.until = Instant::now() + Duration::from_secs(600);
        (connection, peer, poll)
    }

    #[test]
    fn one_more_than_there_may_be_ends_one_that_has_its_answer_or_else_the_oldest() {
        let (listener, poll) = listener();
        let at = listener.local_addr().expect("an address");
        let connect = || Peer::connect(at).expect("it listens");
        let address = |stream: &Peer| stream.local_addr().expect("an address");
        let mut peers: Vec<Peer> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        let mut open = vec![];
        take(&listener, &mut open, poll.registry(), &peers);
        assert_eq!(open.len(), CONNECTIONS_MAX);
        open[5].state = Phase::Answered;
        let mut expected: Vec<_> = peers.iter().map(address).collect();
        for ended in [5, 0, 0] {
            peers.push(connect());
            take(&listener, &mut open, poll.registry(), &peers);
            expected.remove(ended);
            expected.push(address(&peers[peers.len() - 1]));
            let now: Vec<_> =
                open.iter().map(|one| one.stream.peer_addr().expect("a peer")).collect();
            assert_eq!(now, expected);
        }
    }

    #[test]
    fn an_answered_connection_stays_until_its_peer_closes() {
        let (mut connection, mut peer, _poll) = connected();
        let mut pages = Pages { make: || "page".to_owned(), last: None };
        let sent = b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nand ";
        peer.write_all(sent).expect("sending");
        while !connection.is_answered() {
            assert!(connection.advance(&mut pages), "it is closed before it is answered");
        }
        // The response ends while the request does not.
        let mut response = String::new();
        peer.read_to_string(&mut response).expect("a response");
        assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
        peer.write_all(b"more").expect("sending");
        assert!(connection.advance(&mut pages), "closed now, it would be reset");
        drop(peer);
        while connection.advance(&mut pages) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        let (mut connection, mut peer, _poll) = connected();
        let mut pages = Pages { make: || "page".to_owned(), last: None };
        peer.set_nodelay(true).expect("a socket");
        for byte in b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" {
            assert!(!connection.is_answered());
            peer.write_all(&[*byte]).expect("sending");
            assert!(connection.advance(&mut pages), "it is closed before it is answered");
        }
        while !connection.is_answered() {
            assert!(connection.advance(&mut pages), "it is closed before it is answered");
        }
        let mut response = String::new();
        peer.read_to_string(&mut response).expect("a response");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }

    #[test]
    fn what_came_while_the_thread_had_no_core_is_answered() {
        let (mut connection, mut peer, mut poll) = connected();
        peer.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sending");
        let mut events = Events::with_capacity(1);
        while !events.iter().any(|event| event.token() == CONNECTED && event.is_readable()) {
            poll.poll(&mut events, None).expect("a poll");
        }
        connection.until = Instant::now();
        let mut pages = Pages { make: || "page".to_owned(), last: None };
        assert!(!connection.advance(&mut pages), "its time is over");
        let mut response = String::new();
        peer.read_to_string(&mut response).expect("a response");
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }

    #[test]
    fn one_page_is_for_all_who_ask_at_once() {
        let mut made = 0;
        let make = || {
            made += 1;
            "page".to_owned()
        };
        let mut pages = Pages { make, last: None };
        let since = Instant::now();
        let asked = (0..100).map(|_| pages.newest().to_owned()).filter(|page| page == "page");
        assert_eq!(asked.count(), 100);
        let times = since.elapsed().as_millis() / PAGE_TIME.as_millis();
        assert!((1..=1 + times).contains(&made), "{made} pages in {times} times of one");
    }
}
