//! What holds for each mechanism, on real sockets.

use super::*;
use crate::{
    counters::Counters,
    rio::Woken,
    socket::{DatagramSocket, Mode},
    wake::Waker,
};
use std::{
    io,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

/// The functions that every mechanism has.
trait Mechanism {
    fn make() -> Self;
    fn add(&mut self, socket: &DatagramSocket, token: u32);
    fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken>;
    fn tokens(&self) -> Vec<u32>;
    fn waker(&self) -> Waker;
}

impl Mechanism for Poll {
    fn make() -> Self {
        Poll::new().unwrap()
    }
    fn add(&mut self, socket: &DatagramSocket, token: u32) {
        Poll::add(self, socket, token).unwrap();
    }
    fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        Poll::wait(self, timeout, counters)
    }
    fn tokens(&self) -> Vec<u32> {
        self.ready().collect()
    }
    fn waker(&self) -> Waker {
        Poll::waker(self)
    }
}

impl Mechanism for Epoll {
    fn make() -> Self {
        Epoll::new(8, Trigger::Level).unwrap()
    }
    fn add(&mut self, socket: &DatagramSocket, token: u32) {
        Epoll::add(self, socket, token).unwrap();
    }
    fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        Epoll::wait(self, timeout, counters)
    }
    fn tokens(&self) -> Vec<u32> {
        self.ready().collect()
    }
    fn waker(&self) -> Waker {
        Epoll::waker(self)
    }
}

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn socket() -> DatagramSocket {
    DatagramSocket::bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap()
}

fn send(to: &DatagramSocket) {
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", to.local_address()).unwrap();
}

fn receive(socket: &DatagramSocket) -> bool {
    socket.receive(&mut [0; 8], Mode::Try, &Counters::default()).unwrap().is_some()
}

fn ready_sockets_are_told_by_their_tokens<M: Mechanism>() {
    let (mut set, counters) = (M::make(), Counters::default());
    let sockets = [socket(), socket(), socket()];
    for (i, socket) in sockets.iter().enumerate() {
        set.add(socket, 10 + i as u32);
    }
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    assert!(set.tokens().is_empty());
    send(&sockets[2]);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    assert_eq!(set.tokens(), [12]);
    // Told as long as it is ready, and together with the others.
    send(&sockets[0]);
    while set.tokens().len() < 2 {
        assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    }
    let mut tokens = set.tokens();
    tokens.sort_unstable();
    assert_eq!(tokens, [10, 12]);
    assert!(receive(&sockets[0]) && receive(&sockets[2]));
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    assert!(set.tokens().is_empty());
    assert!(counters.kernel_entries.get() >= 4);
}

fn a_wait_is_never_short<M: Mechanism>() {
    let (mut set, counters) = (M::make(), Counters::default());
    set.add(&socket(), 0);
    for timeout in [Duration::from_micros(300), Duration::from_millis(3)] {
        let since = Instant::now();
        assert_eq!(set.wait(Some(timeout), &counters).unwrap(), Woken::TimedOut);
        assert!(since.elapsed() >= timeout);
    }
}

fn wakers_end_this_wait_or_the_next<M: Mechanism>() {
    let (mut set, counters, socket) = (M::make(), Counters::default(), socket());
    set.add(&socket, 0);
    let waker = set.waker();
    for _ in 0..3 {
        waker.wake(); // often counts once
    }
    assert_eq!(set.wait(None, &counters).unwrap(), Woken::ByWaker);
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    let other = thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert_eq!(set.wait(None, &counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    // What is ready is told as well.
    send(&socket);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    waker.wake();
    while set.wait(LONG, &counters).unwrap() != Woken::ByWaker {}
    assert_eq!(set.tokens(), [0]);
    drop(set);
    waker.wake(); // after the set has gone
}

/// Not on Windows: WSAPoll is not told of a shutdown there (Wine 8). Wakers are.
#[cfg(target_os = "linux")]
fn the_end_of_receiving_ends_a_wait<M: Mechanism>() {
    let (mut set, counters, socket) = (M::make(), Counters::default(), socket());
    set.add(&socket, 7);
    socket.end_receiving();
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    assert_eq!(set.tokens(), [7]);
}

macro_rules! check {
    ($module:ident, $Mechanism:ty, $($check:ident),*) => {
        mod $module {
            $(#[test]
            fn $check() {
                super::$check::<$Mechanism>();
            })*
        }
    };
}

check!(
    poll_,
    super::Poll,
    ready_sockets_are_told_by_their_tokens,
    a_wait_is_never_short,
    wakers_end_this_wait_or_the_next
);

#[cfg(target_os = "linux")]
check!(poll_to_the_end, super::Poll, the_end_of_receiving_ends_a_wait);

#[cfg(target_os = "linux")] // elsewhere there is none
check!(
    epoll_,
    super::Epoll,
    ready_sockets_are_told_by_their_tokens,
    a_wait_is_never_short,
    wakers_end_this_wait_or_the_next,
    the_end_of_receiving_ends_a_wait
);

#[test]
fn poll_tells_what_is_wanted_and_nothing_else() {
    let (mut set, counters, socket) = (Poll::make(), Counters::default(), socket());
    set.add(&socket, 3).unwrap();
    set.want(0, true, true);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    assert_eq!(set.tokens(), [3]);
    set.want(0, true, false);
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    send(&socket);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    set.want(0, false, false);
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    set.want(0, true, false);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
}

#[cfg(target_os = "linux")] // elsewhere there is none
#[test]
fn an_edge_is_told_once() {
    let (counters, socket) = (Counters::default(), socket());
    let mut set = Epoll::new(8, Trigger::Edge).unwrap();
    set.add(&socket, 1).unwrap();
    send(&socket);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    assert_eq!(set.wait(Some(Duration::ZERO), &counters).unwrap(), Woken::TimedOut);
    send(&socket);
    assert_eq!(set.wait(LONG, &counters).unwrap(), Woken::Ready);
    assert_eq!(set.tokens(), [1]);
    let error = set.add(&socket, 1).unwrap_err().to_string();
    assert!(error.contains(&socket.local_address().to_string()), "{error}");
}

#[cfg(not(target_os = "linux"))]
#[test]
fn without_epoll_it_says_so() {
    let error = Epoll::new(1, Trigger::Level).unwrap_err().to_string();
    assert!(error.contains("only Linux"), "{error}");
}
