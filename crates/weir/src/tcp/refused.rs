//! Connections that were refused, until whoever is at the other end has read why.
//!
//! A socket that is closed before all was received that came, or to which more comes later, answers with a reset
//! (RFC 1122, 4.2.2.13), and a peer that it reaches may lose what it has not read by then: on Windows it does. So one
//! that is refused is told why and that nothing follows, and stays open as long as any that the server has finished
//! with ([`Limits::linger`](super::Limits::linger)). What it sends meanwhile stays in the system's buffer, which is the
//! bound of that.

use crate::{lifecycle::lock, stream::Stream};
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Those that stay open, in the order in which they came, each for the same time: so many at most, and for one more the
/// first one goes.
#[derive(Debug)]
pub(super) struct Lingering<T> {
    waiting: VecDeque<(Instant, T)>,
    most: usize,
    time: Duration,
}

impl<T> Lingering<T> {
    pub(super) fn new(most: usize, time: Duration) -> Self {
        Self { waiting: VecDeque::new(), most, time }
    }

    /// One more. Returns who is to be closed now.
    #[must_use]
    pub(super) fn add(&mut self, one: T, now: Instant) -> Option<T> {
        self.waiting.push_back((now + self.time, one));
        let beyond = self.waiting.len() > self.most;
        beyond.then(|| self.waiting.pop_front()).flatten().map(|(_, first)| first)
    }

    /// Takes one whose time is over.
    pub(super) fn over(&mut self, now: Instant) -> Option<T> {
        let is_over = self.waiting.front().is_some_and(|(until, _)| *until <= now);
        is_over.then(|| self.any()).flatten()
    }

    /// Takes one whose time is over or not.
    pub(super) fn any(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|(_, one)| one)
    }

    /// When the next one's time is over.
    pub(super) fn until(&self) -> Option<Instant> {
        self.waiting.front().map(|(until, _)| *until)
    }
}

/// The most of a server that stay open, beside its connections.
const MOST: usize = 128;

/// Those of a server, whose threads may wait for something else as long as they like: so there is a thread that closes
/// them, as long as there are any.
#[derive(Debug)]
pub(super) struct RefusedStreams {
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Debug)]
struct State {
    streams: Lingering<Stream>,
    closing: Option<JoinHandle<()>>,
    /// The server has ended.
    ended: bool,
}

impl RefusedStreams {
    pub(super) fn new(time: Duration) -> Arc<Self> {
        let streams = Lingering::new(MOST, time);
        let state = State { streams, closing: None, ended: false };
        Arc::new(Self { state: Mutex::new(state), ends: Condvar::new() })
    }

    /// Keeps one open that was told why it is refused. Where the system has no thread to give it is closed at once.
    pub(super) fn keep(self: &Arc<Self>, stream: Stream) {
        let mut state = lock(&self.state);
        if state.ended {
            return;
        }
        if state.closing.is_none() {
            let its = Arc::clone(self);
            let builder = thread::Builder::new().name("weir-tcp-refused".into());
            let Ok(started) = builder.spawn(move || its.close_in_time()) else { return };
            state.closing = Some(started);
        }
        drop(state.streams.add(stream, Instant::now()));
    }

    /// Closes all of them: somebody else is in want of what they take.
    pub(super) fn close_all(&self) {
        let state = &mut *lock(&self.state);
        while let Some(stream) = state.streams.any() {
            drop(stream);
        }
    }

    fn close_in_time(&self) {
        let mut state = lock(&self.state);
        while let Some(until) = state.streams.until() {
            let left = until.saturating_duration_since(Instant::now());
            state = self.ends.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            while let Some(stream) = state.streams.over(Instant::now()) {
                drop(stream);
            }
        }
        if !state.ended {
            state.closing = None; // the next one that is refused starts another
        }
    }

    /// The server has ended: so do they.
    pub(super) fn end(&self) {
        self.close_all();
        let mut state = lock(&self.state);
        state.ended = true;
        let closing = mem::take(&mut state.closing);
        drop(state);
        self.ends.notify_all();
        if let Some(closing) = closing {
            closing.join().expect("it does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        counters::Counters,
        stream::{Accepted, Listener, Mode, StreamOptions},
    };
    use std::net::TcpStream;

    #[test]
    fn each_goes_when_its_time_is_over_or_for_one_more() {
        const TIME: Duration = Duration::from_secs(5);
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        let mut lingering = Lingering::new(2, TIME);
        assert_eq!((lingering.until(), lingering.over(start)), (None, None));
        assert_eq!((lingering.add('a', start), lingering.add('b', later)), (None, None));
        assert_eq!((lingering.until(), lingering.over(start)), (Some(start + TIME), None));
        assert_eq!(lingering.over(start + TIME), Some('a'));
        assert_eq!(lingering.over(start + TIME), None);
        assert_eq!((lingering.add('c', later), lingering.add('d', later)), (None, Some('b')));
        assert_eq!(
            (lingering.any(), lingering.any(), lingering.any()),
            (Some('c'), Some('d'), None)
        );
    }

    fn refused(listener: &Listener) -> (TcpStream, Stream) {
        let peer = TcpStream::connect(listener.local_address()).expect("loopback");
        let accepted = listener.accept(Mode::Wait, &Counters::default()).expect("a connection");
        let Accepted { stream, .. } = accepted.expect("accepting was not ended");
        (peer, stream)
    }

    fn is_open(peer: &TcpStream) -> bool {
        peer.set_nonblocking(true).expect("a socket");
        peer.peek(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    }

    #[test]
    fn a_server_keeps_them_until_it_ends_and_no_more_than_the_most() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), StreamOptions::default());
        let listener = listener.expect("loopback");
        let kept = RefusedStreams::new(Duration::from_secs(3600));
        let peers: Vec<_> = (0..=MOST)
            .map(|_| {
                let (peer, stream) = refused(&listener);
                kept.keep(stream);
                peer
            })
            .collect();
        assert_eq!(peers[0].peek(&mut [0]).expect("its end"), 0, "the first one goes");
        assert!(peers[1..].iter().all(is_open));
        kept.end();
        for peer in &peers {
            peer.set_nonblocking(false).expect("a socket");
            assert_eq!(peer.peek(&mut [0]).expect("its end"), 0);
        }
        let (peer, stream) = refused(&listener);
        kept.keep(stream);
        assert_eq!(peer.peek(&mut [0]).expect("its end"), 0, "none after the end");
    }

    #[test]
    fn the_thread_that_closes_them_ends_with_the_last_and_another_follows() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), StreamOptions::default());
        let listener = listener.expect("loopback");
        let kept = RefusedStreams::new(Duration::from_millis(1));
        for _ in 0..3 {
            let (peer, stream) = refused(&listener);
            kept.keep(stream);
            assert_eq!(peer.peek(&mut [0]).expect("its end"), 0);
            while lock(&kept.state).closing.is_some() {
                thread::yield_now();
            }
        }
        kept.end();
    }
}
