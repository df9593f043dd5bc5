//! Messages over a TCP connection: bounded lines, and an end to every wait.

use std::{
    io::{self, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use socket2::{SockRef, TcpKeepalive};

use super::{
    ControlError,
    message::{LINE_BYTES_MAX, LineError, Message, STRANGERS_LINE_BYTES_MAX, parse_line},
};
use crate::{lock::lock, sys};

/// The longest that writing a line may take.
const WRITE_WITHIN: Duration = Duration::from_secs(5);

/// How soon a vanished peer is looked for on a silent connection, and how often.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// The end of a connection for those who do not read it: they write, and close it.
pub(super) struct Handle {
    stream: TcpStream,
    peer: SocketAddr,
    closed: Arc<AtomicBool>,
    /// Held while a line is written: several threads may write.
    writing: Arc<Mutex<()>>,
}

impl Handle {
    pub(super) fn write(&self, message: &Message) -> Result<(), ControlError> {
        write_line(&self.stream, &self.writing, self.peer, message)
    }

    /// Ends the connection, and a read of it that goes on in another thread.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The end of a connection for the one who reads it.
pub(super) struct Wire {
    stream: TcpStream,
    closed: Arc<AtomicBool>,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// What was read and belongs to no line yet.
    pending: Vec<u8>,
    /// Bytes of the longest line that is taken.
    line_bytes_max: usize,
    writing: Arc<Mutex<()>>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        // Without this, a peer whose machine was switched off would never be missed.
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            stream,
            closed: Arc::default(),
            peer,
            local,
            pending: Vec::new(),
            line_bytes_max: STRANGERS_LINE_BYTES_MAX,
            writing: Arc::default(),
        })
    }

    pub(super) fn handle(&self) -> io::Result<Handle> {
        let (stream, closed) = (self.stream.try_clone()?, Arc::clone(&self.closed));
        Ok(Handle { stream, peer: self.peer, closed, writing: Arc::clone(&self.writing) })
    }

    /// The other end is no stranger any more: its lines may be long.
    pub(super) fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    /// Whether it was closed from this end.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The next message, within a time if one is given. What came of a line by then is kept.
    pub(super) fn read(
        &mut self,
        wanted: &'static str,
        within: Option<Duration>,
    ) -> Result<Message, ControlError> {
        let peer = self.peer;
        let deadline = within.map(|within| Instant::now() + within);
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return parse_line(&line[..end])
                    .map_err(|source| ControlError::Line { peer, source });
            }
            let most = self.line_bytes_max;
            if self.pending.len() >= most {
                return Err(ControlError::Line { peer, source: LineError::TooLong { most } });
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let silent =
                || ControlError::Silent { peer, wanted, within: within.unwrap_or_default() };
            if left.is_some_and(|left| left.is_zero()) {
                return Err(silent());
            }
            let failed = |source| ControlError::Io { peer, source };
            let slice = [left, sys::READ_SLICE].into_iter().flatten().min();
            let mut piece = [0; 4096];
            match sys::read_within(&self.stream, &mut piece, slice) {
                Ok(0) => return Err(ControlError::Closed { peer }),
                Ok(n) => self.pending.extend_from_slice(&piece[..n]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    // A slice is over. With neither slice nor limit it is the keepalive
                    // that found nobody there.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if slice.is_some() => {
                        if self.is_closed() {
                            return Err(ControlError::Closed { peer });
                        }
                    }
                    _ => return Err(failed(error)),
                },
            }
        }
    }

    /// Ends the connection, also for others that hold it.
    pub(super) fn close(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(super) fn write(&mut self, message: &Message) -> Result<(), ControlError> {
        write_line(&self.stream, &self.writing, self.peer, message)
    }
}

/// Writes a message as one line. A report too long for a line is replaced by a refusal
/// that says so: the other end would cut it off.
fn write_line(
    mut stream: &TcpStream,
    writing: &Mutex<()>,
    peer: SocketAddr,
    message: &Message,
) -> Result<(), ControlError> {
    let failed = |source: io::Error| ControlError::Io { peer, source };
    let mut line = serde_json::to_vec(message).map_err(|error| failed(error.into()))?;
    if line.len() >= LINE_BYTES_MAX {
        let reason = format!("a {} of {} bytes has no room in a line", message.name(), line.len());
        line = serde_json::to_vec(&Message::Refuse { reason }).map_err(|e| failed(e.into()))?;
    }
    line.push(b'\n');
    let _alone = lock(writing);
    stream.write_all(&line).map_err(failed)
}
