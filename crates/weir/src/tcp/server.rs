//! The server as its user sees it.

use super::{
    ActiveSet, Connector, Design, Handler, Job, Limits, Running, Startable,
    connect::Connecting,
    handler::MakeHandler,
    job::{AtUnix, Endpoints},
};
use crate::{
    Error,
    stream::{self, Listener, StreamOptions, UnixAddress, UnixListener},
};
use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

/// A TCP server to be started.
///
/// It listens where it is told to: use a loopback address unless others shall reach it, or a Unix socket
/// ([`bind_unix`](Self::bind_unix)) where they are on the same machine.
#[derive(Debug, Clone)]
pub struct Server {
    endpoints: Vec<SocketAddr>,
    unix: Vec<AtUnix>,
    unix_mode: Option<u32>,
    options: StreamOptions,
    limits: Limits,
    buffer_bytes: usize,
    connecting: Option<Arc<Connecting>>,
    /// Sockets that listen already, each at one of the endpoints.
    given: Vec<Listener>,
    /// They go on listening when the server stops.
    keeps_listening: bool,
}

/// Bytes received at a time unless told otherwise: the originals' buffer size.
pub const DEFAULT_BUFFER_BYTES: usize = 4096;

/// The most bytes that may be asked for at a time.
pub const MOST_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// What is stated of a buffer that was left to the system.
const SYSTEMS: &str = "the system's, which grows";

/// What is stated of a time that never comes.
const NEVER: &str = "never";

impl Server {
    /// A server on this address; port 0 for one of the system's choice.
    pub fn bind(address: SocketAddr) -> Self {
        Self::of(vec![address])
    }

    /// A server on a Unix socket (AF_UNIX, SOCK_STREAM): at a path, or at a name of the abstract namespace where it begins
    /// with an `@` ([`UnixAddress`]). Starting it makes the file; one that was left there by a program that listens no longer is
    /// replaced, and anything else is an error. When the server stops the file is removed, unless another one has taken its
    /// place. Of two servers that start there at the same moment the second may take the place of the first: a socket that
    /// does not listen yet looks like one that was left.
    ///
    /// Connections are served as those of TCP, by every design, under the same limits and filters; but
    ///
    /// - a peer has no address: handlers and filters are told one from which
    ///   [`LocalPeer::of`](crate::stream::LocalPeer::of) makes out his user, group and process;
    /// - all threads share one socket;
    /// - there is no reset: a connection that is broken off looks to the peer as if it had ended, unless something that he
    ///   sent was not received;
    /// - of [`StreamOptions`] the sizes of the buffers and the backlog count.
    ///
    /// ```
    /// use std::{io::{Read, Write}, net::SocketAddr};
    /// use weir::{stream::{self, LocalPeer}, tcp::{Blocking, Output, Server}};
    ///
    /// # if stream::unix_availability().is_err() { return }
    /// # fn connect(path: &std::path::Path) -> std::os::unix::net::UnixStream {
    /// #     std::os::unix::net::UnixStream::connect(path).unwrap()
    /// # }
    /// let path = std::env::temp_dir().join(format!("example-{}.sock", std::process::id()));
    /// let server = Server::bind_unix(&path)
    ///     .unix_mode(0o600)
    ///     .start(Blocking::default(), |peer: SocketAddr| {
    ///         let user = LocalPeer::of(peer).map(|peer| peer.user);
    ///         move |_: &mut [u8], output: &mut Output<'_>| {
    ///             output.send(format!("you are user {user:?}").as_bytes()).unwrap();
    ///             output.finish();
    ///         }
    ///     })
    ///     .unwrap();
    /// let mut client = connect(&path);
    /// client.write_all(b"who am I?").unwrap();
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer).unwrap();
    /// assert!(answer.starts_with("you are user Some("));
    /// drop(client);
    /// assert!(server.stop().failure.is_none());
    /// assert!(!path.exists());
    /// ```
    pub fn bind_unix(address: impl Into<UnixAddress>) -> Self {
        Self::of(vec![]).and_bind_unix(address)
    }

    fn of(endpoints: Vec<SocketAddr>) -> Self {
        Self {
            endpoints,
            unix: Vec::new(),
            unix_mode: None,
            options: StreamOptions::default(),
            limits: Limits::default(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            connecting: None,
            given: Vec::new(),
            keeps_listening: false,
        }
    }

    /// A server on a socket that listens already: one that was inherited, or bound with options that
    /// [`StreamOptions`] has not. It keeps its own options; those of the server are for other addresses of it. All
    /// threads of a design share it. It serves one start: when that server stops it listens no more, whoever else has it,
    /// unless it is [kept](Self::keep_listening).
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered; [`Error::Option`] where it does not listen.
    pub fn from_std(listener: TcpListener) -> Result<Self, Error> {
        let listener = Listener::from_std(listener)?;
        Ok(Self { given: vec![listener.clone()], ..Self::bind(listener.local_address()) })
    }

    /// Lets the sockets that were given to it ([`from_std`](Self::from_std)) go on listening when it stops, for whoever else
    /// has them. Connections that wait to be accepted then are his. Where the system cannot do so, starting the server says
    /// it. See [`Running::end_accepting`], and [`inherited`](crate::inherited).
    pub fn keep_listening(mut self, on: bool) -> Self {
        self.keeps_listening = on;
        self
    }

    /// Listens by this socket, too, which listens already.
    ///
    /// # Errors
    /// As [`from_std`](Self::from_std).
    pub fn and_from_std(mut self, listener: TcpListener) -> Result<Self, Error> {
        let listener = Listener::from_std(listener)?;
        self.given.push(listener.clone());
        Ok(self.and_bind(listener.local_address()))
    }

    /// Listens on this address too.
    pub fn and_bind(mut self, address: SocketAddr) -> Self {
        self.endpoints.push(address);
        self
    }

    /// Listens on this Unix socket, too, as [`bind_unix`](Self::bind_unix) does.
    pub fn and_bind_unix(mut self, address: impl Into<UnixAddress>) -> Self {
        self.unix.push(AtUnix::Bound(address.into(), Listener::bind_unix));
        self
    }

    /// Who may connect to the Unix sockets that it binds: the mode of their files, of which the right to write counts
    /// (unix(7)), such as `0o660`. Otherwise the process's umask decides. An abstract name has none: anybody may connect.
    pub fn unix_mode(mut self, mode: u32) -> Self {
        self.unix_mode = Some(mode);
        self
    }

    /// A server on a Unix socket that listens already, as [`from_std`](Self::from_std) makes one of TCP's. Its file is left
    /// alone.
    ///
    /// # Errors
    /// As there.
    pub fn from_unix(listener: UnixListener) -> Result<Self, Error> {
        Self::of(vec![]).and_from_unix(listener)
    }

    /// Listens by this Unix socket, too, which listens already.
    ///
    /// # Errors
    /// As [`from_std`](Self::from_std).
    pub fn and_from_unix(mut self, listener: UnixListener) -> Result<Self, Error> {
        self.unix.push(AtUnix::Given(Listener::from_unix(listener)?));
        Ok(self)
    }

    /// What is asked of the sockets.
    pub fn stream_options(mut self, options: StreamOptions) -> Self {
        self.options = options;
        self
    }

    /// How many connections, how much for each, and how long nothing may happen.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes received at a time, at most: 1 byte to 16 MiB.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Starts it with a design by its type or by its name ([`Startable`]). `make_handler` makes the handler
    /// of each connection from the address of its peer; any thread may call it. A panic of it ends the server.
    ///
    /// # Errors
    /// Whatever fails before the server runs, with its cause and what to do.
    pub fn start<H: Handler>(
        &self,
        design: impl Startable,
        make_handler: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<Running, Error> {
        design.start_as(self, Box::new(move |peer, _| make_handler(peer)))
    }

    /// The same with a connector, by which it makes connections to others: with handlers of the same type.
    ///
    /// ```
    /// use weir::tcp::{Connector, Epoll, Handler, Output, Server, Reason};
    /// # use std::net::{SocketAddr, TcpListener};
    /// # use weir::tcp::Design;
    /// # if Epoll::default().availability().is_err() { return }
    ///
    /// struct Asks(std::sync::mpsc::Sender<Vec<u8>>);
    ///
    /// impl Handler for Asks {
    ///     fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
    ///         output.send(b"what time is it?").unwrap();
    ///     }
    ///     fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
    ///         let _ = self.0.send(bytes.to_vec());
    ///     }
    /// }
    ///
    /// # let other = TcpListener::bind("127.0.0.1:0").unwrap();
    /// # let address = other.local_addr().unwrap();
    /// # std::thread::spawn(move || {
    /// #     use std::io::{Read, Write};
    /// #     let (mut stream, _) = other.accept().unwrap();
    /// #     stream.read_exact(&mut [0; 16]).unwrap();
    /// #     stream.write_all(b"noon").unwrap();
    /// # });
    /// let (answers, answer) = std::sync::mpsc::channel();
    /// let to = std::sync::Mutex::new(answers.clone());
    /// let connector = Connector::new();
    /// let server = Server::bind("127.0.0.1:0".parse().unwrap())
    ///     .start_connecting(Epoll::default(), &connector, move |_| Asks(to.lock().unwrap().clone()))
    ///     .unwrap();
    /// connector.connect(address, Asks(answers)).unwrap();
    /// assert_eq!(answer.recv().unwrap(), b"noon");
    /// # assert!(server.stop().failure.is_none());
    /// ```
    ///
    /// # Errors
    /// As [`start`](Self::start); [`Error::Option`] where the connector belongs to another server.
    pub fn start_connecting<H: Handler>(
        &self,
        design: impl Startable,
        connector: &Connector<H>,
        make_handler: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<Running, Error> {
        let server = Self { connecting: Some(connector.shared()), ..self.clone() };
        let make: MakeHandler<H> = Box::new(move |peer, given| match given {
            Some(given) => *given.downcast().expect("the connector takes handlers of this type"),
            None => make_handler(peer),
        });
        design.start_as(&server, make)
    }

    pub(super) fn start_design<D: Design, H: Handler>(
        &self,
        mut design: D,
        make_handler: MakeHandler<H>,
    ) -> Result<Running, Error> {
        design.resolve();
        let active = design.active_set();
        if let (Some(_), ActiveSet::Absent(why)) = (self.limits.active, active) {
            let problem = format!("{} has no active set: {why}", D::ABOUT.name);
            return Err(Error::option("active", problem));
        }
        let job = self.job_made(make_handler)?;
        let (provider, parks) = (design.provider(), design.parks_threads());
        job.shared().state_design(D::ABOUT.name, Some(provider), parks, design.values());
        if let Some(most) = self.limits.active {
            job.state("active", most);
        }
        design.start(job)
    }

    /// What a design is started with, for starting one directly.
    ///
    /// # Errors
    /// [`Error::Option`] if the server's own settings make no sense.
    pub fn job<H: Handler>(
        &self,
        make_handler: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<Job<H>, Error> {
        self.job_made(Box::new(move |peer, _| make_handler(peer)))
    }

    fn job_made<H: Handler>(&self, make_handler: MakeHandler<H>) -> Result<Job<H>, Error> {
        if !self.options.reuse_port {
            crate::socket::named_once(&self.endpoints)?;
        }
        self.limits.check()?;
        self.options.keepalive.map_or(Ok(()), |keepalive| keepalive.check())?;
        let bytes = self.buffer_bytes;
        if !(1..=MOST_BUFFER_BYTES).contains(&bytes) {
            let problem =
                format!("{bytes} is not allowed; allowed: 1 to {MOST_BUFFER_BYTES} bytes");
            return Err(Error::option("buffer", problem));
        }
        let kept = |listener: &Listener| match self.keeps_listening {
            true => listener.left_open(),
            false => Ok(listener.clone()),
        };
        let given = self.given.iter().map(kept).collect::<Result<_, _>>()?;
        let unix = self.unix.iter().map(|at| match at {
            AtUnix::Given(listener) => kept(listener).map(AtUnix::Given),
            AtUnix::Bound(..) => {
                stream::unix_availability()?;
                Ok(at.clone())
            }
        });
        let unix = unix.collect::<Result<_, Error>>()?;
        let endpoints =
            Endpoints { internet: self.endpoints.clone(), unix, unix_mode: self.unix_mode };
        if let Some(mode) = self.unix_mode.filter(|mode| *mode > 0o777) {
            let problem = format!("{mode:o} is not allowed; allowed: 0 to 777, in octal");
            return Err(Error::option("unix-mode", problem));
        }
        let job = Job::new(
            endpoints,
            self.options,
            self.buffer_bytes,
            self.limits,
            make_handler,
            self.connecting.clone(),
            given,
        );
        job.keep_listening(self.keeps_listening);
        job.state("buffer-bytes", self.buffer_bytes);
        job.state("no-delay", self.options.no_delay);
        job.state("backlog", self.options.backlog);
        job.state("connections-max", self.limits.connections);
        job.state("output-bytes", self.limits.output_bytes);
        job.state("when-full", self.limits.when_full);
        // What was obtained is stated once there are sockets.
        let buffer = |asked: Option<usize>| asked.map_or(SYSTEMS.into(), |n| n.to_string());
        job.state("receive-buffer-asked", buffer(self.options.receive_buffer_bytes));
        job.state("send-buffer-asked", buffer(self.options.send_buffer_bytes));
        let time =
            |time: Option<Duration>| time.map_or(NEVER.into(), |time| time.as_millis().to_string());
        let Limits { silent, idle, stalled, linger, stop, .. } = self.limits;
        job.state("silent-ms", time(silent));
        job.state("idle-ms", time(idle));
        job.state("stalled-ms", time(stalled));
        job.state("linger-ms", time(Some(linger)));
        job.state("stop-time-ms", time(Some(stop)));
        Ok(job)
    }
}
