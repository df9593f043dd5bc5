//! The client of all: a bare loop on a core of its own, with 64 connections. On each it sends as many
//! bytes as came back, so that as many stay under way as it began with.

use super::bare::{Epoll, receive, send_all};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};
use weir::counters::Counter;

pub const CONNECTIONS: usize = 64;
pub const MESSAGE_BYTES: usize = 64;
/// Long enough to see a stop soon, and too long to count.
const LOOK_EVERY_MS: i32 = 10;
/// Bytes of the stream that must come back before anything is timed.
const CHECKED_BYTES: usize = 200_000;

/// A client that runs.
pub struct Client {
    bytes: Arc<Counter>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Client {
    pub fn start(to: SocketAddr, under_way: usize, core: usize) -> Self {
        let (bytes, stop) = (Arc::new(Counter::default()), Arc::new(AtomicBool::new(false)));
        let (counted, stopping) = (Arc::clone(&bytes), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            weir::affinity::pin_current_thread(core).expect("this process may use that core");
            run(to, under_way, &counted, &stopping);
        });
        Self { bytes, stop, thread }
    }

    /// Messages that have come back.
    pub fn messages(&self) -> u64 {
        self.bytes.get() / MESSAGE_BYTES as u64
    }

    /// Closes its connections.
    pub fn stop(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the client does not panic");
    }
}

fn run(to: SocketAddr, under_way: usize, bytes: &Counter, stop: &AtomicBool) {
    let mut buffer = vec![0x5a; under_way * MESSAGE_BYTES];
    let mut epoll = Epoll::new().expect("a set");
    let connections: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|number| {
            let stream = TcpStream::connect(to).expect("it listens");
            stream.set_nodelay(true).expect("it is a TCP socket");
            epoll.add(stream.as_raw_fd(), number as u64, libc::EPOLLIN).expect("room in the set");
            stream
        })
        .collect();
    for stream in &connections {
        send_all(stream.as_raw_fd(), &buffer).expect("it is connected");
    }
    // Once it is told to stop it sends no more, and what is under way comes back: what is closed before
    // would be reset.
    let mut left = CONNECTIONS * buffer.len();
    while left > 0 {
        let stopping = stop.load(Relaxed);
        let ready = epoll.wait(LOOK_EVERY_MS).expect("a wait");
        for index in 0..ready {
            let fd = connections[epoll.token(index) as usize].as_raw_fd();
            let count = receive(fd, &mut buffer).expect("it is connected").unwrap_or(0);
            bytes.add(count as u64);
            match stopping {
                false => send_all(fd, &buffer[..count]).expect("it is connected"),
                true => left -= count,
            }
        }
    }
}

/// Sends a stream in pieces of many sizes and ends sending; all of it must come back, and then the end.
pub fn check_echo(address: SocketAddr) {
    let sent: Vec<u8> = (0..CHECKED_BYTES).map(|at| (at % 251) as u8 ^ (at / 777) as u8).collect();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a time");
    let (mut writing, whole) = (stream.try_clone().expect("a descriptor"), sent.clone());
    let writer = std::thread::spawn(move || {
        let (mut rest, mut piece) = (&whole[..], 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            writing.write_all(now).expect("it is taken");
            (rest, piece) = (later, piece * 3 % 40_009);
        }
        writing.shutdown(Shutdown::Write).expect("it is connected");
    });
    let mut came = Vec::new();
    stream.read_to_end(&mut came).expect("an end in order");
    writer.join().expect("it does not panic");
    assert!(came == sent, "{} of {CHECKED_BYTES} bytes came back, or wrong ones", came.len());
}
