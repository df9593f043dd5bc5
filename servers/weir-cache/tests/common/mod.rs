//! A cache to be tested, and a client that knows the protocol from a source of its own.

#![allow(dead_code, reason = "each test uses some of it")]

use redis_protocol::resp2::{decode::decode, types::OwnedFrame};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};
use weir::{
    stream::StreamOptions,
    tcp::{AnyDesign, Running, Server, designs},
};
use weir_cache::{Cache, Settings, clock::Clock};

#[path = "../../../testing.rs"]
pub mod testing;

pub use testing::PATIENCE;

/// A cache that runs.
pub struct Served {
    pub cache: Cache,
    pub running: Running,
}

impl Served {
    pub fn address(&self) -> SocketAddr {
        self.running.local_addresses()[0]
    }

    pub fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::new(stream)
    }

    pub fn end(self) {
        let report = self.running.stop();
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!(report.total().closed_panicked, 0);
    }
}

pub fn serve(settings: Settings, clock: Clock, design: AnyDesign) -> Served {
    serve_on(Server::bind("127.0.0.1:0".parse().unwrap()), settings, clock, design)
}

/// One whose system holds little of what clients do not read.
pub fn serve_with_small_buffers(settings: Settings, design: AnyDesign) -> Served {
    let options = StreamOptions::default().send_buffer_bytes(Some(20_000));
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).stream_options(options);
    serve_on(server, settings, Clock::steady(), design)
}

fn serve_on(server: Server, settings: Settings, clock: Clock, design: AnyDesign) -> Served {
    let cache = Cache::new(settings, clock).unwrap();
    let running = cache.start(&server, design).unwrap();
    Served { cache, running }
}

/// One that nothing else is said of.
pub fn usual() -> Served {
    serve(Settings::default(), Clock::steady(), each_design().remove(0))
}

/// All that can run here.
pub fn each_design() -> Vec<AnyDesign> {
    let all: Vec<_> =
        designs().into_iter().filter(|design| design.availability().is_ok()).collect();
    assert!(!all.is_empty());
    all
}

/// A client on any stream.
pub struct Client<S> {
    pub stream: S,
    input: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, input: Vec::new() }
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) {
        self.stream.write_all(&wire(command)).unwrap();
    }

    /// The next reply; `None` at the end of the stream.
    pub fn next(&mut self) -> Option<OwnedFrame> {
        loop {
            if let Some((frame, bytes)) = decode(&self.input).unwrap() {
                self.input.drain(..bytes);
                return Some(frame);
            }
            let mut more = [0; 64 * 1024];
            match self.stream.read(&mut more) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&more[..count]),
                // As a reset is.
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("no reply came: {e}"),
            }
        }
    }

    pub fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> OwnedFrame {
        self.send(command);
        self.next().expect("the connection has ended")
    }

    /// The same for a line of words.
    pub fn say(&mut self, line: &str) -> OwnedFrame {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.ask(&words)
    }
}

pub fn wire<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut wire = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        let argument = argument.as_ref();
        wire.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        wire.extend_from_slice(argument);
        wire.extend_from_slice(b"\r\n");
    }
    wire
}

pub fn ok() -> OwnedFrame {
    OwnedFrame::SimpleString(b"OK".to_vec())
}

pub fn text(text: &str) -> OwnedFrame {
    OwnedFrame::BulkString(text.as_bytes().to_vec())
}

pub fn number(number: i64) -> OwnedFrame {
    OwnedFrame::Integer(number)
}
