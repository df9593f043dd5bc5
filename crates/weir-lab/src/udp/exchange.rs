//! The check of a row by echo: whatever its size, a datagram comes back whole, once, and to the
//! socket that sent it.
//!
//! An echo goes to the source address that the design read beside the datagram, so one that took
//! the address of another datagram, or its bytes or its length, sends something to a socket that
//! did not send it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde::Serialize;

/// Sockets that send at the same time.
pub const SENDERS: usize = 3;
/// Datagrams of one size that each sends before any waits for its answer.
const BURST: usize = 4;
/// Above this many bytes only one datagram is under way, or the smallest receive buffer that
/// systems give would not hold them.
const ALONE_FROM_BYTES: usize = 4096;
/// No datagram is longer.
const LONGEST_BYTES: usize = 1 << 16;
/// How long an answer may take: a busy machine may not run the server for a while, and only a lost one is waited for so
/// long.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a row was checked with, and passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Echoed {
    /// Datagrams sent and answered, each to its own sender.
    pub datagrams: u64,
    /// Sockets that sent them, for each family of addresses.
    pub senders: usize,
    /// Their sizes in bytes.
    pub sizes_bytes: Vec<usize>,
    /// Whether over IPv6 too: false where this machine has none.
    pub ipv6: bool,
}

/// Whether this machine has IPv6 on its loopback interface.
pub fn has_ipv6() -> bool {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// The sizes that are tried, in bytes: none, one, around the 32 of a stamp, and up to `longest`.
pub fn sizes(longest: usize) -> Vec<usize> {
    let mut sizes = vec![0, 1, 31, 32, 33, 64, longest / 2, longest.saturating_sub(1), longest];
    sizes.retain(|size| *size <= longest);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Several sockets that speak with one server.
pub struct Exchange {
    server: SocketAddr,
    sockets: Vec<UdpSocket>,
    answer_within: Duration,
    sent: u64,
}

impl Exchange {
    /// # Errors
    /// If the sockets cannot be opened.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        Self::open_within(server, ANSWER_WITHIN)
    }

    /// The same with a time of one's own for each answer.
    fn open_within(server: SocketAddr, answer_within: Duration) -> io::Result<Self> {
        let own: IpAddr = match (server.ip().is_loopback(), server) {
            (true, _) => server.ip(),
            (false, SocketAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (false, SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let open = |_| {
            let socket = UdpSocket::bind((own, 0))?;
            socket.set_read_timeout(Some(answer_within))?;
            Ok(socket)
        };
        let sockets = (0..SENDERS).map(open).collect::<io::Result<_>>()?;
        Ok(Self { server, sockets, answer_within, sent: 0 })
    }

    /// Sends datagrams of every size up to `longest` from all sockets and takes their answers.
    ///
    /// # Errors
    /// What was wrong with the first answer that was.
    pub fn run(&mut self, longest: usize) -> Result<(), String> {
        let senders: Vec<usize> = (0..SENDERS).collect();
        for size in sizes(longest) {
            if size > ALONE_FROM_BYTES {
                senders.iter().try_for_each(|sender| self.round(&[*sender], 1, size, longest))?;
            } else {
                self.round(&senders, BURST, size, longest)?;
            }
        }
        Ok(())
    }

    /// Datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// # Errors
    /// If there is an answer more than there were datagrams.
    pub fn is_over(&self) -> Result<(), String> {
        for socket in &self.sockets {
            socket.set_nonblocking(true).map_err(|error| error.to_string())?;
            if let Ok((len, _)) = socket.recv_from(&mut [0; LONGEST_BYTES]) {
                return Err(format!("an answer of {len} bytes to no datagram"));
            }
        }
        Ok(())
    }

    fn round(
        &mut self,
        senders: &[usize],
        each: usize,
        size: usize,
        longest: usize,
    ) -> Result<(), String> {
        let at = |problem: &dyn std::fmt::Display| {
            format!("echo of {size} bytes over {}: {problem}", family(self.server))
        };
        for _ in 0..each {
            for sender in senders {
                let bytes = pattern(*sender, size);
                self.sockets[*sender].send_to(&bytes, self.server).map_err(|error| at(&error))?;
                self.sent += 1;
            }
        }
        let mut buffer = vec![0; longest + 1];
        for sender in senders {
            for _ in 0..each {
                let (len, from) = match self.sockets[*sender].recv_from(&mut buffer) {
                    Ok(answer) => answer,
                    Err(error) if is_timeout(&error) => {
                        let waited = self.answer_within.as_secs();
                        return Err(at(&format!("no answer to its sender within {waited} s")));
                    }
                    Err(error) => return Err(at(&error)),
                };
                if from != self.server {
                    return Err(at(&format!("the answer came from {from}, not {}", self.server)));
                }
                if len != size {
                    return Err(at(&format!("the answer has {len} bytes")));
                }
                let bytes = &buffer[..len];
                if bytes != pattern(*sender, size) {
                    let other = (0..SENDERS).any(|other| bytes == pattern(other, size));
                    return Err(at(&match other {
                        true => "a datagram was answered to another sender than its own",
                        false => "the answer has other bytes",
                    }));
                }
            }
        }
        Ok(())
    }
}

/// "IPv4" or "IPv6".
fn family(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Windows says so in another way than the rest.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Bytes that differ from sender to sender, from size to size and from place to place.
fn pattern(sender: usize, size: usize) -> Vec<u8> {
    (0..size).map(|place| (sender * 89 + size * 3 + place * 7 + place / 251) as u8).collect()
}

#[cfg(test)]
mod tests;
