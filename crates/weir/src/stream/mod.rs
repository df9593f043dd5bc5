//! Plain stream sockets (TCP, and Unix sockets where the system has them): listening, and connected.
//!
//! What a file for an operating system must supply: `Listener` and `Stream` with the functions
//! that are called here. No call makes a signal, and no program that is started inherits a socket.
//!
//! What holds on every system: a receive of 0 bytes is the end that the peer has sent; an end of
//! sending ([`Stream::end_sending`]) lets the other direction be. Closing is dropping the last
//! clone; where something that the peer sent was not received by then, the peer sees a reset
//! (RFC 1122, 4.2.2.13).

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
pub(crate) mod native;

mod local;
#[cfg(test)]
mod tests;

pub use local::{LocalPeer, UnixAddress};
pub use native::{UnixDatagram, UnixListener};

/// Whether a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Wait until it can be done, or that was ended.
    Wait,
    /// Return at once.
    Try,
}

use crate::{Error, Unavailable, counters::Counters, options::settings};
use socket2::Socket;
use std::{
    fmt, io,
    net::{Shutdown, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

settings! {
    /// What is asked of a listening socket and of those that it accepts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StreamOptions {
        /// Send small segments at once (TCP_NODELAY): what a server of requests wants.
        pub no_delay: bool,
        /// Size of the receive buffer in bytes as given to SO_RCVBUF; `None` for the system's, which
        /// grows.
        pub receive_buffer_bytes: Option<usize>,
        /// Size of the send buffer in bytes as given to SO_SNDBUF; `None` for the system's, which grows.
        pub send_buffer_bytes: Option<usize>,
        /// Connections that may wait to be accepted. The system has a limit of its own
        /// (net.core.somaxconn).
        pub backlog: u32,
        /// Let several sockets listen on the address (SO_REUSEPORT), each with its own connections. Where sockets
        /// cannot share one, binding is [`Error::Unavailable`].
        pub reuse_port: bool,
        /// Leave an address of IPv4 to another socket that listens on the same port (IPV6_V6ONLY), where this
        /// address is every one of IPv6.
        pub only_v6: bool,
        /// When the system asks whether a silent peer is still there; `None` for never.
        pub keepalive: Option<Keepalive>,
    }
}

settings! {
    /// When the system asks whether a silent peer is still there (SO_KEEPALIVE, RFC 9293, 3.8.4): one that is
    /// answers by itself, and one that has gone without a word is found. Whole seconds; parts of one count as
    /// one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Keepalive {
        /// How long nothing was heard from the peer before the first question: 1 s to [`MOST_KEEPALIVE`].
        pub idle: Duration,
        /// Time between two questions: 1 s to [`MOST_KEEPALIVE`].
        pub interval: Duration,
        /// Questions without an answer after which the connection is broken: 1 to 127.
        pub tries: u32,
    }
}

/// The longest that a [`Keepalive`] may wait: what Linux takes.
pub const MOST_KEEPALIVE: Duration = Duration::from_secs(32_767);

impl Default for Keepalive {
    /// After 60 s, six times at intervals of 10 s.
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), tries: 6 }
    }
}

impl Keepalive {
    /// Checks every value against its limits.
    ///
    /// # Errors
    /// [`Error::Option`] for the first that is out of them.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |problem| Err(Error::option("keepalive", problem));
        for time in [self.idle, self.interval] {
            if time.is_zero() || time > MOST_KEEPALIVE {
                return wrong(format!(
                    "{time:?} is not allowed; allowed: 1s to {MOST_KEEPALIVE:?}"
                ));
            }
        }
        match self.tries {
            1..=127 => Ok(()),
            tries => wrong(format!("{tries} tries are not allowed; allowed: 1 to 127")),
        }
    }
}

impl fmt::Display for Keepalive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { idle, interval, tries } = self;
        write!(f, "after {idle:?}, every {interval:?}, {tries} times")
    }
}

/// Asks for what connections are to have: the same of every system, but for when it asks a silent peer, which is
/// `keep_alive`'s affair. An error comes with the name of what was refused.
fn configure<K>(
    socket: &Socket,
    options: StreamOptions,
    keep_alive: impl FnOnce(&Socket, Keepalive) -> io::Result<K>,
) -> Result<Option<K>, (&'static str, io::Error)> {
    let refused = |what| move |e| (what, e);
    configure_buffers(socket, options)?;
    socket.set_tcp_nodelay(options.no_delay).map_err(refused("TCP_NODELAY"))?;
    let kept_alive = options.keepalive.map(|asked| keep_alive(socket, asked)).transpose();
    kept_alive.map_err(refused("SO_KEEPALIVE"))
}

/// The part of it that is not TCP's alone.
fn configure_buffers(
    socket: &Socket,
    options: StreamOptions,
) -> Result<(), (&'static str, io::Error)> {
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes).map_err(|e| ("SO_RCVBUF", e))?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes).map_err(|e| ("SO_SNDBUF", e))?;
    }
    Ok(())
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            no_delay: true,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            backlog: 4096,
            reuse_port: false,
            only_v6: false,
            keepalive: Some(Keepalive::default()),
        }
    }
}

/// Whether streams can be had here.
///
/// # Errors
/// Why they cannot.
pub fn availability() -> Result<(), Unavailable> {
    native::Listener::availability()
}

/// Whether Unix sockets can be listened on and connected to here.
///
/// # Errors
/// Why they cannot.
pub fn unix_availability() -> Result<(), Unavailable> {
    native::unix_availability()
}

/// A socket that listens.
#[derive(Debug, Clone)]
pub struct Listener {
    native: Arc<native::Listener>,
    local_address: SocketAddr,
    unix_address: Option<UnixAddress>,
}

/// What accepting brought.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// The other end; of a Unix socket [who is there](LocalPeer).
    pub peer: SocketAddr,
}

impl Listener {
    /// Listens on this address; port 0 for one of the system's choice.
    ///
    /// # Errors
    /// [`Error::Bind`] with the system's answer and what to do; [`Error::Io`];
    /// [`Error::Unavailable`] where there are no streams, or none that share an address.
    pub fn bind(address: SocketAddr, options: StreamOptions) -> Result<Self, Error> {
        let native = native::Listener::bind(address, options)?;
        let local_address = native.local_address();
        let local_address =
            local_address.map_err(|e| Error::io("asking for the local address", e))?;
        Ok(Self { native: Arc::new(native), local_address, unix_address: None })
    }

    /// Listens at this address of a Unix socket. The file is made with `mode`, or else as the process's umask says, and removed
    /// when accepting is ended, or with the last clone, unless another one has taken its place by then. One that a program has
    /// left there that listens no longer is replaced.
    ///
    /// # Errors
    /// [`Error::BindUnix`] with the system's answer and what to do: somebody listens there, there is a file that is no socket,
    /// its folder does not exist, the name is too long; [`Error::Io`]; [`Error::Unavailable`] where there are no Unix sockets.
    pub fn bind_unix(
        address: &UnixAddress,
        mode: Option<u32>,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        let native = native::Listener::bind_unix(address, mode, options)?;
        Ok(Self::of_unix(native, address.clone()))
    }

    fn of_unix(native: native::Listener, address: UnixAddress) -> Self {
        // Which has none: that of a peer that nobody is.
        let local_address = LocalPeer::NOBODY.into();
        Self { native: Arc::new(native), local_address, unix_address: Some(address) }
    }

    /// A Unix socket of the standard library's that listens already, as [`from_std`](Self::from_std) takes one of TCP. Its
    /// file is left alone.
    ///
    /// # Errors
    /// As there.
    pub fn from_unix(listener: UnixListener) -> Result<Self, Error> {
        let (native, address) = native::Listener::adopt_unix(listener)?;
        Ok(Self::of_unix(native, address))
    }

    /// A socket of the standard library's that listens already: inherited, or bound with options of its own. What is
    /// accepted inherits those.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered; [`Error::Option`] where it does not listen.
    pub fn from_std(listener: TcpListener) -> Result<Self, Error> {
        let native = native::Listener::adopt(listener.into())?;
        let local_address =
            native.local_address().map_err(|e| Error::io("asking for the local address", e))?;
        Ok(Self { native: Arc::new(native), local_address, unix_address: None })
    }

    /// The same socket, which goes on listening when [accepting is ended](Self::end_accepting) here: others have it, too.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered; [`Error::Unavailable`] where that cannot be.
    pub fn left_open(&self) -> Result<Self, Error> {
        let native = Arc::new(self.native.left_open()?);
        Ok(Self { native, ..self.clone() })
    }

    /// The address it listens on; of a Unix socket, which has none, one that nobody can connect to.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Where a Unix socket listens.
    pub fn unix_address(&self) -> Option<&UnixAddress> {
        self.unix_address.as_ref()
    }

    /// What was obtained of what was asked of the socket, and so of those that it accepts: name and value.
    pub fn granted(&self) -> Vec<(&'static str, String)> {
        self.native.granted()
    }

    /// Accepts a connection: `None` where none waits ([`Mode::Try`]), or where accepting was ended.
    ///
    /// # Errors
    /// What the operating system answered: see [`is_want_of_resources`] and
    /// [`concerns_one_connection`].
    #[inline]
    pub fn accept(&self, mode: Mode, counters: &Counters) -> io::Result<Option<Accepted>> {
        counters.kernel_entries.one();
        self.native.accept(mode, counters)
    }

    /// Ends a wait in [`accept`](Self::accept), now or the next one, and refuses connections from now on, unless it is
    /// [left open](Self::left_open).
    pub fn end_accepting(&self) {
        self.native.end_accepting();
    }

    #[inline]
    pub(crate) fn native(&self) -> &native::Listener {
        &self.native
    }
}

/// A connection.
#[derive(Debug, Clone)]
pub struct Stream {
    pub(crate) native: Arc<native::Stream>,
}

impl Stream {
    /// Begins to connect to this address, and does not wait for it: the connection stands, or has failed, when it is
    /// told as ready to send, and [`take_error`](Self::take_error) says which. It is of no other use before.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn connect(
        to: SocketAddr,
        options: StreamOptions,
        counters: &Counters,
    ) -> io::Result<Self> {
        counters.kernel_entries.one();
        native::Stream::connect(to, options)
    }

    /// The same to a Unix socket. Where as many connections wait there as may this fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), and nothing says when one more may.
    ///
    /// # Errors
    /// What the operating system answered, or that there are none here.
    pub fn connect_unix(
        to: &UnixAddress,
        options: StreamOptions,
        counters: &Counters,
    ) -> io::Result<Accepted> {
        counters.kernel_entries.one();
        native::Stream::connect_unix(to, options)
    }

    /// Receives into `buffer`, which is not empty: how many bytes, 0 for the peer's end, `None`
    /// where nothing is there ([`Mode::Try`]), or nothing came in time ([`Mode::Wait`]).
    ///
    /// # Errors
    /// What the operating system answered: the connection is broken.
    #[inline]
    pub fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<usize>> {
        counters.kernel_entries.one();
        self.native.receive(buffer, mode, counters)
    }

    /// Sends the beginning of `bytes`, which are not empty: how many, or `None` where there is no
    /// room ([`Mode::Try`]), or was none in time ([`Mode::Wait`]).
    ///
    /// # Errors
    /// What the operating system answered: the connection is broken.
    #[inline]
    pub fn send(&self, bytes: &[u8], mode: Mode, counters: &Counters) -> io::Result<Option<usize>> {
        counters.kernel_entries.one();
        self.native.send(bytes, mode, counters)
    }

    /// Tells the peer that nothing more will be sent. What it sends can still be received.
    ///
    /// # Errors
    /// What the operating system answered, as where the peer has gone.
    pub fn end_sending(&self, counters: &Counters) -> io::Result<()> {
        counters.kernel_entries.one();
        self.native.socket().shutdown(Shutdown::Write)
    }

    /// Ends the wait of whoever waits to receive, now and later, from any thread: it answers 0, as for the
    /// peer's end. Of what has come anything between all and nothing may be received before that.
    pub fn end_receiving(&self) {
        self.native.end_receiving();
    }

    /// Bytes that the system has received and acknowledged, and that were not received from it yet.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn waiting(&self, counters: &Counters) -> io::Result<usize> {
        counters.kernel_entries.one();
        self.native.waiting()
    }

    /// Bytes that the system has received and acknowledged since the beginning, of a connection that is
    /// received from by [`receive`](Self::receive) only, where another thread may have some in its hands; the
    /// peer's end may count as one. What a port receives only the port can count
    /// ([`Port::received_in_all`](crate::port::streams::Port::received_in_all)).
    ///
    /// # Errors
    /// What the operating system answered, or that it does not tell.
    pub fn received_in_all(&self, counters: &Counters) -> io::Result<u64> {
        counters.kernel_entries.one();
        self.native.received_in_all()
    }

    /// The error that broke the connection, where one did that no call has told of yet.
    pub fn take_error(&self, counters: &Counters) -> Option<io::Error> {
        counters.kernel_entries.one();
        // The call itself fails for no socket that is open.
        self.native.socket().take_error().ok().flatten()
    }

    /// Whether waits report it whatever they are asked for, though nothing has broken: both directions are over, as where the
    /// other end of a Unix socket was closed (POLLHUP of poll(2)).
    pub(crate) fn is_hung_up(&self, counters: &Counters) -> bool {
        counters.kernel_entries.one();
        self.native.is_hung_up()
    }

    /// Has waits to receive and to send end with nothing after these times, each counted from its call; `None`
    /// for never, and zero for at once.
    ///
    /// How is the provider's affair, and leaves the connection as it was: a wait never ends before its time, and
    /// after it as soon as the system's clock has it; what comes at that moment is brought by this receive or
    /// the next; and a send of which a part was taken answers that part, never nothing.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn set_timeouts(
        &self,
        receive: Option<Duration>,
        send: Option<Duration>,
    ) -> io::Result<()> {
        self.native.set_timeouts(receive, send)
    }

    /// Ends the wait of whoever waits, now and later, from any thread: to receive as
    /// [`end_receiving`](Self::end_receiving) does, and to send with an error. The peer may take it for an end in
    /// order.
    pub fn end(&self) {
        self.native.end();
    }

    /// Has the last clone's drop reset the connection instead of closing it in order: what was not
    /// sent is lost, and the peer sees a reset. A Unix socket has none: what was sent is with the peer, who sees an end behind
    /// it, or a reset where something that he sent was not received.
    pub fn reset_when_closed(&self) {
        // It fails for no socket that is open.
        let _ = self.native.socket().set_linger(Some(Duration::ZERO));
    }

    #[inline]
    pub(crate) fn native(&self) -> &native::Stream {
        &self.native
    }
}

/// Whether accepting failed for want of what the process or the system can have no more of
/// (descriptors, memory): the connection still waits, and can be accepted once something was given
/// back.
pub fn is_want_of_resources(error: &io::Error) -> bool {
    is_one_of(error, native::WANT_OF_RESOURCES)
}

/// Whether accepting failed for the one connection only, which is gone: the next may be accepted
/// (accept(2), "Error handling").
pub fn concerns_one_connection(error: &io::Error) -> bool {
    is_one_of(error, native::OF_ONE_CONNECTION)
}

fn is_one_of(error: &io::Error, known: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}
