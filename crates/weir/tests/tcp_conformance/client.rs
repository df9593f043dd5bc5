//! The other end: clients on plain sockets of the standard library, which verify every byte.

use super::{
    machine,
    support::{PATIENCE, unix_beside, until},
    wine,
};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::LazyLock,
    thread,
    time::Duration,
};

/// Numbers that look random and are the same each time (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A size from 1 to `most`: small ones are as likely as large ones.
    pub fn size(&mut self, most: usize) -> usize {
        let bits = self.next() % u64::from(most.ilog2() + 1);
        ((1 << bits) + self.next() as usize % (1 << bits)).min(most)
    }
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Bytes that do not repeat, of which every stream says others first: a prime number, so that no length of a buffer
/// or a piece leads back to the same place. None is a letter, which a handler of a test may take for a command.
static SAYS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const NO_LETTER: u64 = 0xbfbf_bfbf_bfbf_bfbf;
    let (mut random, mut bytes) = (Random(1), Vec::with_capacity(65_544));
    while bytes.len() < 65_537 {
        bytes.extend_from_slice(&(random.next() & NO_LETTER).to_le_bytes());
    }
    bytes.truncate(65_537);
    bytes
});

/// Fills in what the stream of this seed says from a position on: bytes that are lost, doubled or exchanged are
/// found, as they are not those of where they then stand.
pub fn fill(seed: u64, from: u64, bytes: &mut [u8]) {
    let all = SAYS.as_slice();
    let mut at = ((seed % 65_537 * 7919 + from % 65_537) % 65_537) as usize;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at_mut(rest.len().min(all.len() - at));
        part.copy_from_slice(&all[at..at + part.len()]);
        at = 0;
        rest = behind;
    }
}

/// Checks what the stream of this seed says from a position on.
#[track_caller]
pub fn verify(seed: u64, from: u64, bytes: &[u8]) {
    let mut right = vec![0; bytes.len()];
    fill(seed, from, &mut right);
    if bytes != right {
        let at = bytes.iter().zip(&right).position(|(one, other)| one != other).unwrap();
        let (is, should) = (bytes[at], right[at]);
        panic!("stream {seed}: byte {} is {is:#04x}, not {should:#04x}", from + at as u64);
    }
}

/// A connection to a server, which counts what it sends and verifies what comes back.
pub struct Client {
    pub stream: TcpStream,
    seed: u64,
    sent: u64,
    back: u64,
}

impl Client {
    pub fn connect(to: SocketAddr, seed: u64) -> Self {
        Self::try_connect(to, seed).unwrap_or_else(|e| panic!("connecting to {to}: {e}"))
    }

    pub fn try_connect(to: SocketAddr, seed: u64) -> io::Result<Self> {
        Ok(Self::on(connect(to)?, seed))
    }

    /// On a socket that is connected.
    pub fn on(stream: TcpStream, seed: u64) -> Self {
        if !is_unix(&stream) {
            stream.set_nodelay(true).expect("a socket that is open");
        }
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket that is open");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket that is open");
        Self { stream, seed, sent: 0, back: 0 }
    }

    /// As a handler is told it. Of a Unix socket all have the same.
    pub fn address(&self) -> SocketAddr {
        match is_unix(&self.stream) {
            true => machine::ourselves().into(),
            false => self.stream.local_addr().expect("a socket that is open"),
        }
    }

    /// The next bytes of its stream.
    pub fn next(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        fill(self.seed, self.sent, &mut bytes);
        self.sent += count as u64;
        bytes
    }

    /// Sends so many bytes at once.
    #[track_caller]
    pub fn send(&mut self, count: usize) {
        let bytes = self.next(count);
        self.stream.write_all(&bytes).unwrap_or_else(|e| panic!("sending {count} bytes: {e}"));
    }

    /// Sends so much as the system takes, at most `most`, without waiting.
    pub fn send_what_goes(&mut self, most: u64) -> u64 {
        self.stream.set_nonblocking(true).expect("a socket that is open");
        let before = self.sent;
        while self.sent - before < most {
            let bytes = self.next(16 * 1024);
            match self.stream.write(&bytes) {
                Ok(taken) => self.sent -= (bytes.len() - taken) as u64,
                Err(e) if e.kind() == ErrorKind::Interrupted => self.sent -= bytes.len() as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.sent -= bytes.len() as u64;
                    break;
                }
                Err(e) => panic!("sending: {e}"),
            }
        }
        self.stream.set_nonblocking(false).expect("a socket that is open");
        self.sent - before
    }

    /// Sends without reading until nothing goes any more, and the server has paused, which it must
    /// by a bound. `paused` says whether it did: it may do so for a moment long before.
    #[track_caller]
    pub fn fill_up(&mut self, paused: impl Fn() -> bool) {
        let mut in_vain = 0;
        until("a pause of the server", || {
            in_vain = if self.send_what_goes(1 << 20) > 0 { 0 } else { in_vain + 1 };
            assert!(self.sent() < 256 << 20, "the server takes whatever comes");
            in_vain >= 50 && paused()
        });
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that came back so far.
    pub fn back(&self) -> u64 {
        self.back
    }

    /// Receives so many bytes and verifies them.
    #[track_caller]
    pub fn expect(&mut self, count: usize) {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap_or_else(|e| {
            panic!("receiving {count} bytes of stream {} after {}: {e}", self.seed, self.back)
        });
        verify(self.seed, self.back, &bytes);
        self.back += count as u64;
    }

    /// Receives what is there, at most `most` bytes, and verifies it: 0 for the end.
    pub fn receive(&mut self, most: usize) -> io::Result<usize> {
        let mut bytes = vec![0; most];
        let count = read(&self.stream, &mut bytes)?;
        verify(self.seed, self.back, &bytes[..count]);
        self.back += count as u64;
        Ok(count)
    }

    /// Receives what follows until the end or a reset: how it ended.
    pub fn receive_all(&mut self) -> io::Result<()> {
        while self.receive(64 * 1024)? > 0 {}
        Ok(())
    }

    /// Sends a few bytes and waits for their return.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(100);
        self.expect(100);
    }

    /// Sends so many bytes in random pieces, and receives as many, at the same time.
    pub fn exchange(&mut self, total: u64, random: &mut Random) {
        let (stream, seed, from) = (&self.stream, self.seed, self.sent);
        let mut sizes = Random(random.next());
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut at = from;
                while at < from + total {
                    let size = (sizes.size(1 << 20) as u64).min(from + total - at);
                    let mut bytes = vec![0; size as usize];
                    fill(seed, at, &mut bytes);
                    (&*stream).write_all(&bytes).expect("sending");
                    at += size;
                }
            });
            let until = self.back + total;
            let mut bytes = vec![0; 1 << 20];
            while self.back < until {
                let most = random.size(1 << 20).min((until - self.back) as usize);
                let count = read(stream, &mut bytes[..most]).expect("receiving");
                assert!(count > 0, "stream {seed} ended after {} of {until} bytes", self.back);
                verify(seed, self.back, &bytes[..count]);
                self.back += count as u64;
            }
        });
        self.sent += total;
    }

    /// Says that it sends no more.
    pub fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("a connection that is open");
    }

    /// Waits for the server's end, with nothing before it.
    #[track_caller]
    pub fn expect_end(&mut self) {
        match self.receive(1) {
            Ok(0) => {}
            Ok(_) => panic!("the server sent more than was asked for"),
            Err(e) => panic!("instead of the end: {e}"),
        }
    }

    /// Waits until the server breaks the connection off, whatever comes before.
    #[track_caller]
    pub fn expect_reset(&mut self) {
        let mut bytes = [0; 64 * 1024];
        loop {
            match read(&self.stream, &mut bytes) {
                Ok(0) if wine::RESETS.is_left_out() || is_unix(&self.stream) => return,
                Ok(0) => panic!("the connection was ended in order, and not reset"),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return,
                Err(e) => panic!("instead of a reset: {e}"),
            }
        }
    }

    /// Closes it with a reset.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    }
}

/// Connects to a server: by its Unix socket, where the row is one of these.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    match unix_beside(to) {
        Some(path) => machine::connect_unix(&path),
        None => TcpStream::connect_timeout(&to, PATIENCE),
    }
}

/// A socket that can be connected to a server, and by which address.
pub fn socket_to(to: SocketAddr) -> (Socket, SockAddr) {
    let (domain, address) = match unix_beside(to) {
        Some(path) => (Domain::UNIX, SockAddr::unix(path).expect("a short path")),
        None => (Domain::for_address(to), to.into()),
    };
    (Socket::new(domain, Type::STREAM, None).expect("a socket"), address)
}

/// Whether it is a Unix socket, in the standard library's clothes of one of TCP.
fn is_unix(stream: &TcpStream) -> bool {
    SockRef::from(stream).local_addr().is_ok_and(|address| address.as_socket().is_none())
}

/// Receives once. A ring that an earlier server closed may interrupt the thread that opened it: the
/// kernel runs the end of a ring in every thread that used it.
pub fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Connects so many clients, each with a seed of its own.
pub fn clients(count: usize, to: SocketAddr) -> Vec<Client> {
    (0..count).map(|seed| Client::connect(to, seed as u64)).collect()
}
