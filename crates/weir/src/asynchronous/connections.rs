//! Connections of a TCP server in a queue.

use super::{remember, wake};
use crate::{
    lifecycle::lock,
    tcp::{Asks, Handle, Handler, Mail, Output, Reason, Refused},
};
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, Waker},
};

/// A queue of connections, of which at most `most` wait to be taken; more are closed at once. Of what a peer sends at most some
/// `unread_bytes` wait to be read: then the connection is not received from until half of it is read, and TCP has the
/// peer wait. What was under way by then still comes: a buffer or two of the server's
/// ([`Server::buffer_bytes`](crate::tcp::Server::buffer_bytes)).
///
/// ```
/// use std::io::{Read as _, Write as _};
/// use weir::{asynchronous::connections, tcp::{Blocking, Server}};
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let (mut future, mut cx) = (std::pin::pin!(future), std::task::Context::from_waker(&waker));
/// #     loop {
/// #         match future.as_mut().poll(&mut cx) {
/// #             std::task::Poll::Ready(output) => return output,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
///
/// let (accept, mut connections) = connections(128, 64 * 1024);
/// let server = Server::bind("127.0.0.1:0".parse().unwrap())
///     .start(Blocking::default(), move |peer| accept.handler(peer))
///     .unwrap();
/// let mut client = std::net::TcpStream::connect(server.local_addresses()[0]).unwrap();
/// client.write_all(b"hello").unwrap();
/// client.shutdown(std::net::Shutdown::Write).unwrap();
/// block_on(async {
///     let mut connection = connections.next().await.unwrap();
///     let mut buffer = [0; 1024];
///     loop {
///         match connection.read(&mut buffer).await.unwrap() {
///             0 => break,
///             count => connection.write_all(&buffer[..count]).await.unwrap(),
///         }
///     }
///     connection.finish();
/// });
/// let mut echoed = String::new();
/// client.read_to_string(&mut echoed).unwrap();
/// assert_eq!(echoed, "hello");
/// assert!(server.stop().failure.is_none());
/// ```
///
/// # Panics
/// If either is 0.
pub fn connections(most: usize, unread_bytes: usize) -> (Accept, Connections) {
    assert!(most > 0 && unread_bytes > 0, "a queue needs room for one, and for a byte of it");
    let queue = Arc::new(Queue { state: Mutex::default(), most });
    let open = Arc::new(Open(Arc::clone(&queue)));
    (Accept { open, unread_bytes }, Connections { queue })
}

#[derive(Debug)]
struct Queue {
    state: Mutex<Waiting>,
    most: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: VecDeque<Connection>,
    /// The server takes no more.
    ended: bool,
    /// Nobody takes them any more.
    abandoned: bool,
    reader: Option<Waker>,
}

/// Says that no more come when the last of those is dropped who make handlers.
#[derive(Debug)]
struct Open(Arc<Queue>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut waiting = lock(&self.0.state);
        waiting.ended = true;
        let reader = waiting.reader.take();
        drop(waiting);
        wake(reader);
    }
}

/// Makes the handlers of connections that come into a queue.
#[derive(Debug)]
pub struct Accept {
    open: Arc<Open>,
    unread_bytes: usize,
}

impl Accept {
    /// The handler of a connection, with that peer.
    pub fn handler(&self, peer: SocketAddr) -> impl Handler + use<> {
        Accepted {
            queue: Arc::downgrade(&self.open.0),
            pipe: Arc::new(Pipe { state: Mutex::default(), peer, most: self.unread_bytes }),
            paused: false,
            holds: true,
        }
    }
}

/// Connections to be awaited.
#[derive(Debug)]
pub struct Connections {
    queue: Arc<Queue>,
}

impl Connections {
    /// The next one. `None`: no more come, since the server has stopped.
    ///
    /// A future that is dropped before it was ready takes none.
    pub async fn next(&mut self) -> Option<Connection> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for who polls by himself.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Connection>> {
        let mut waiting = lock(&self.queue.state);
        match waiting.connections.pop_front() {
            Some(connection) => Poll::Ready(Some(connection)),
            None if waiting.ended => Poll::Ready(None),
            None => {
                remember(&mut waiting.reader, cx);
                Poll::Pending
            }
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let mut waiting = lock(&self.queue.state);
        waiting.abandoned = true;
        let connections = std::mem::take(&mut waiting.connections);
        drop(waiting);
        drop(connections); // which closes them
    }
}

/// Between a connection's handler and its task.
#[derive(Debug)]
struct Pipe {
    state: Mutex<PipeState>,
    peer: SocketAddr,
    most: usize,
}

#[derive(Debug, Default)]
struct PipeState {
    unread: VecDeque<u8>,
    /// The peer has sent all that it will.
    at_end: bool,
    /// Why the connection is over, in words; nothing where that was in order.
    closed: Option<Option<(io::ErrorKind, String)>>,
    /// It is not received from until there is room.
    paused: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeState {
    /// What a read or a write finds of a connection that is over.
    fn error(&self) -> io::Error {
        match &self.closed {
            Some(Some((kind, why))) => io::Error::new(*kind, why.clone()),
            _ => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

struct Accepted {
    queue: Weak<Queue>,
    pipe: Arc<Pipe>,
    /// As it stands in the pipe.
    paused: bool,
    /// Its task has not finished: it may write though the peer has sent all that it will.
    holds: bool,
}

impl Accepted {
    /// Wakes who writes: there may be room.
    fn wake_writer(&self) {
        let writer = lock(&self.pipe.state).writer.take();
        wake(writer);
    }

    /// Says why the connection is over, unless that was said.
    fn close(&self, why: Option<(io::ErrorKind, String)>) {
        let mut state = lock(&self.pipe.state);
        state.closed.get_or_insert(why);
        let (reader, writer) = (state.reader.take(), state.writer.take());
        drop(state);
        wake(reader);
        wake(writer);
    }

    /// Takes note of whether there is room to receive.
    fn look(&mut self, state: &mut PipeState) {
        let Pipe { most, .. } = *self.pipe;
        state.paused = match state.paused {
            true => state.unread.len() > most / 2,
            false => state.unread.len() >= most,
        };
        self.paused = state.paused;
    }
}

impl Handler for Accepted {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        debug_assert_eq!(peer, self.pipe.peer);
        let (handle, pipe) = (output.handle(), Arc::clone(&self.pipe));
        let connection = Connection { handle, pipe, finished: false };
        let Some(queue) = self.queue.upgrade() else { return output.abort() };
        let mut waiting = lock(&queue.state);
        if waiting.abandoned || waiting.connections.len() == queue.most {
            drop(waiting);
            return output.decline("as many connections as allowed wait to be taken");
        }
        waiting.connections.push_back(connection);
        let reader = waiting.reader.take();
        drop(waiting);
        wake(reader);
    }

    fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
        let pipe = Arc::clone(&self.pipe);
        let mut state = lock(&pipe.state);
        state.unread.extend(&*bytes);
        self.look(&mut state);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    fn on_sent(&mut self, _: usize, _: &mut Output<'_>) {
        self.wake_writer();
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        mail.send(output);
        if mail.take_wake() {
            // It was read from.
            let pipe = Arc::clone(&self.pipe);
            self.look(&mut lock(&pipe.state));
        }
        mail.finish(output);
        self.holds &= !output.is_finished();
        self.wake_writer();
    }

    fn on_end(&mut self, _: &mut Output<'_>) {
        // The task finishes its own direction.
        let mut state = lock(&self.pipe.state);
        state.at_end = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.holds = false;
        output.finish();
    }

    fn asks(&self) -> Asks {
        Asks { pause: self.paused, holds: self.holds, ..Asks::NOTHING }
    }

    fn on_close(&mut self, reason: &Reason) {
        self.close(match reason {
            Reason::Finished | Reason::Declined(_) => None,
            Reason::Failed(e) => Some((e.kind(), reason.to_string())),
            Reason::Silent | Reason::Stalled => Some((io::ErrorKind::TimedOut, reason.to_string())),
            _ => Some((io::ErrorKind::ConnectionAborted, reason.to_string())),
        });
    }
}

/// Where its thread failed nobody else says that it is over.
impl Drop for Accepted {
    fn drop(&mut self) {
        self.close(Some((io::ErrorKind::ConnectionAborted, "the server failed".into())));
    }
}

/// A connection that is read from and written to. Dropping it closes it in order, once what was written has gone out.
pub struct Connection {
    handle: Handle,
    pipe: Arc<Pipe>,
    /// This side writes nothing more.
    finished: bool,
}

impl Connection {
    /// The address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.pipe.peer
    }

    /// Reads what has come into `buffer`, and awaits the first of it where nothing has. 0: the peer has sent all that it will, or
    /// the buffer is empty.
    ///
    /// A future that is dropped before it was ready has read nothing.
    ///
    /// # Errors
    /// Why the connection is over, once all that came was read.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// As [`read`](Self::read), for who polls by himself.
    ///
    /// # Errors
    /// As there.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.pipe.state);
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if state.unread.is_empty() {
            return match (state.at_end, &state.closed) {
                (true, _) | (_, Some(None)) => Poll::Ready(Ok(0)),
                (_, Some(Some(_))) => Poll::Ready(Err(state.error())),
                (false, None) => {
                    remember(&mut state.reader, cx);
                    Poll::Pending
                }
            };
        }
        let (first, _) = state.unread.as_slices();
        let count = first.len().min(buffer.len());
        buffer[..count].copy_from_slice(&first[..count]);
        state.unread.drain(..count);
        let goes_on = state.paused && state.unread.len() <= self.pipe.most / 2;
        drop(state);
        if goes_on {
            let _ = self.handle.wake(); // one that has gone has nothing more to receive
        }
        Poll::Ready(Ok(count))
    }

    /// Writes as much of `bytes` as there is room for ([`Limits::output_bytes`](crate::tcp::Limits::output_bytes)), and awaits
    /// room where there is none.
    ///
    /// A future that is dropped before it was ready has written nothing.
    ///
    /// # Errors
    /// Why the connection is over; `BrokenPipe` where this side has finished.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// As [`write`](Self::write), for who polls by himself.
    ///
    /// # Errors
    /// As there.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            // Where there is no room, what is refused says why.
            let count = bytes.len().min(self.handle.room().max(1));
            let refused = match self.handle.send(&bytes[..count]) {
                Ok(()) => return Poll::Ready(Ok(count)),
                Err(refused) => refused,
            };
            let mut state = lock(&self.pipe.state);
            if self.handle.is_gone() || refused != Refused::Full {
                return Poll::Ready(Err(state.error()));
            }
            remember(&mut state.writer, cx);
            drop(state);
            // There may be room, or an end, since before it was known who waits for it.
            if self.handle.room() == 0 && !self.handle.is_gone() {
                return Poll::Pending;
            }
        }
    }

    /// Writes all of `bytes`.
    ///
    /// A future that is dropped before it was ready may have written a part of them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Says that nothing more is written: the peer is told once what was written has gone out.
    pub fn finish(&mut self) {
        self.finished = true;
        self.handle.close();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.pipe.peer).finish_non_exhaustive()
    }
}
