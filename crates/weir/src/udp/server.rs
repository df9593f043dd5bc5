//! The server as its user sees it.

use super::{Design, Handler, Job, OnPanic, Running, Spec, Startable, handler::MakeHandler};
use crate::{
    Error, Unavailable,
    design::{About, Contract},
    limits::Limits,
    memory::RegionOptions,
    options::OptionInfo,
    socket::{
        Endpoint, Keeping, MOST_BUSY_POLL, OFFLOADED_BYTES, PathMtu, SocketOptions, keep_unix,
        leaves_ipv4, named_once, names::KeptName, replies_from_local_address, sockets_can_be_given,
        unix::kept,
    },
    stream::{UnixAddress, UnixDatagram, unix_availability},
};
use std::{
    any::Any,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

/// A UDP server to be started.
///
/// It listens where it is told to: use a loopback address unless others shall reach it, or a Unix socket
/// ([`bind_unix`](Self::bind_unix)) where they are on the same machine.
#[derive(Debug, Clone)]
pub struct Server {
    endpoints: Vec<SocketAddr>,
    unix: Vec<AtUnix>,
    /// Makes endpoints of them: a program that has none of them has no code for it.
    unix_endpoints: Option<UnixEndpoints>,
    unix_mode: Option<u32>,
    socket: SocketOptions,
    limits: Limits,
    region: RegionOptions,
    payload_bytes: usize,
    expected_bytes: Option<usize>,
    gives_up_privilege: bool,
    on_panic: OnPanic,
    groups: Vec<(IpAddr, u32)>,
    /// Sockets that are bound already, each by the place of its address.
    given: Vec<(usize, Arc<Keeping>)>,
}

/// Adds the Unix sockets of a server to its endpoints. No names are forgotten of as long as what it answers is there.
type UnixEndpoints =
    fn(&Server, &mut Vec<Endpoint>) -> Result<Vec<Arc<dyn Any + Send + Sync>>, Error>;

/// A Unix socket to receive by.
#[derive(Debug, Clone)]
enum AtUnix {
    Bound(UnixAddress),
    /// With the address that stands for its name.
    Given(Arc<(Keeping, KeptName)>),
}

/// Longest datagram received whole unless told otherwise: the originals' buffer size.
pub const DEFAULT_PAYLOAD_BYTES: usize = 1024;

/// Replies that may be outstanding, at most: each has a slice of its own.
pub const MOST_REPLIES: u32 = 1_000_000;

/// Receives outstanding with receive offload, unless a design is told otherwise: 4 MB of slices,
/// which hold up to 64 datagrams each. 256 took 6 % less (cache).
pub const OFFLOADED_OUTSTANDING: u32 = 64;

/// Bytes of the receives that are outstanding, at most, unless a design is told how many: 256 MiB. With slices of 64 KB
/// the 150,000 of registered I/O would reserve 9.8 GB, and ask for a receive buffer to match.
pub const OUTSTANDING_BYTES: usize = 256 << 20;

/// The longest payload of a UDP datagram over IPv6; over IPv4 it is 20 bytes shorter.
pub const MAX_PAYLOAD_BYTES: usize = OFFLOADED_BYTES;

impl Server {
    /// A server on this address; port 0 for one of the system's choice.
    pub fn bind(address: SocketAddr) -> Self {
        Self::of(vec![address])
    }

    /// A server on a Unix socket (AF_UNIX, SOCK_DGRAM): at a path, or at a name of the abstract namespace where it begins
    /// with an `@` ([`UnixAddress`]). Starting it makes the file; one that was left there by a program that has gone is
    /// replaced, and anything else is an error. When the server stops the file is removed, unless another one has taken its
    /// place. Who may send to it is said by the file's mode ([`unix_mode`](Self::unix_mode)).
    ///
    /// Datagrams are served as those of UDP, by the designs on plain sockets, on ports and on registered I/O with the
    /// providers `uring` and `batch`, under the same limits; but
    ///
    /// - a source is an address that stands for the name of the peer's socket, from which [`UnixAddress::of`] makes that
    ///   name. A peer that has not bound its socket has none: its datagrams come from 0.0.0.0:0, and a reply to it is not sent
    ///   and counted as a send error. A path that a peer gave relative to its own folder leads from this program's;
    /// - nobody vouches for that name: the credentials of a sender (SCM_CREDENTIALS of unix(7)) are not asked for, where of a
    ///   connection [`LocalPeer`](crate::stream::LocalPeer) tells them. Who may send is for the file's mode to say;
    /// - [`Transmit::destination`](super::Transmit::destination) is such an address, too (`SocketAddr::try_from(&name)`);
    /// - no datagram is lost on its way: as many wait as `net.unix.max_dgram_qlen` says (10 unless somebody raised it, as
    ///   systemd does to 512), and whoever sends one more waits, or is refused;
    /// - so is this server: a reply to a peer that takes nothing, or has gone, is dropped and counted as a send error, and
    ///   others are not kept waiting. What waits at peers takes room in this socket's send buffer, though
    ///   ([`SocketOptions::send_buffer_bytes`]), by default for some 280 small datagrams: peers that take nothing can use it
    ///   up, where queues are longer than that a single one, and then nobody is answered until they take something;
    /// - all threads share one socket, so `rio-sharded` can have one thread only;
    /// - of [`SocketOptions`] the size of the send buffer counts. A server that has Unix sockets alone refuses the rest; of
    ///   one that has both the rest is asked of the others. The sizes of receive buffers, and send offload, mean nothing to
    ///   it. There are no groups, marks, hops, or errors of peers.
    ///
    /// ```
    /// use weir::{limits::Limits, stream::{self, UnixAddress}, udp::{Blocking, Datagram, Replies, Server}};
    ///
    /// # if stream::unix_availability().is_err() { return }
    /// # fn ask(path: &std::path::Path, own: &std::path::Path) -> String {
    /// #     let client = std::os::unix::net::UnixDatagram::bind(own).unwrap();
    /// #     client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    /// #     client.send_to(b"Under which name do you know the socket that sends this?", path).unwrap();
    /// #     let mut answer = [0; 200];
    /// #     let length = client.recv(&mut answer).unwrap();
    /// #     std::fs::remove_file(own).unwrap();
    /// #     String::from_utf8(answer[..length].to_vec()).unwrap()
    /// # }
    /// let [path, own] = ["a", "b"].map(|name| {
    ///     std::env::temp_dir().join(format!("example-{}-{name}.sock", std::process::id()))
    /// });
    /// let server = Server::bind_unix(&path)
    ///     .unix_mode(0o600)
    ///     .limits(Limits::answers(1000))
    ///     .start(Blocking::default(), |_thread| {
    ///         |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
    ///             let name = UnixAddress::of(datagram.source);
    ///             let told = name.map_or("nobody".into(), |name| name.to_string());
    ///             let _ = replies.send(told.as_bytes());
    ///         }
    ///     })
    ///     .unwrap();
    /// assert_eq!(ask(&path, &own), format!("unix:{}", own.display()));
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
            unix_endpoints: None,
            unix_mode: None,
            socket: SocketOptions::default(),
            limits: Limits::default(),
            region: Spec::REGION,
            payload_bytes: DEFAULT_PAYLOAD_BYTES,
            expected_bytes: None,
            gives_up_privilege: false,
            on_panic: OnPanic::End,
            groups: Vec::new(),
            given: Vec::new(),
        }
    }

    /// A server on a socket that is bound already: inherited, or bound with options that [`SocketOptions`] has not. What
    /// those ask is asked of it, too. All threads of a design share it; but `rio-sharded` has one for each thread, and takes as
    /// many of each address ([`sockets_per_address`](super::Design::sockets_per_address)), in the order in which they were bound.
    ///
    /// When the server stops, the socket is left to whoever else has it, with the datagrams that are in it; those that the
    /// server had taken from it are handled, and their answers sent ([`inherited`](crate::inherited) says by which designs).
    ///
    /// ```
    /// use std::net::UdpSocket;
    /// use weir::udp::{Blocking, Datagram, Replies, Server};
    /// # if weir::socket::sockets_can_be_given().is_err() { return }
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    /// let address = socket.local_addr().unwrap();
    /// let kept = socket.try_clone().unwrap();
    /// let start = |socket| {
    ///     let server = Server::from_std(socket).unwrap();
    ///     server.start(Blocking::default(), |_| |_: Datagram<'_>, _: &mut Replies<'_>| {}).unwrap()
    /// };
    /// assert!(start(socket).stop().failure.is_none());
    /// // The socket goes on: what comes now is for the next server.
    /// UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"later", address).unwrap();
    /// let next = start(kept);
    /// while next.counters().iter().all(|thread| thread.datagrams == 0) {
    ///     std::thread::yield_now();
    /// }
    /// assert!(next.stop().failure.is_none());
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered; [`Error::Unavailable`] where weir takes no such sockets
    /// ([`sockets_can_be_given`](crate::socket::sockets_can_be_given)).
    pub fn from_std(socket: UdpSocket) -> Result<Self, Error> {
        let (address, keeping) = keep(socket)?;
        Ok(Self { given: vec![(0, keeping)], ..Self::bind(address) })
    }

    /// Receives by this socket, too, which is bound already.
    ///
    /// # Errors
    /// As [`from_std`](Self::from_std).
    pub fn and_from_std(mut self, socket: UdpSocket) -> Result<Self, Error> {
        let (address, keeping) = keep(socket)?;
        self.given.push((self.endpoints.len(), keeping));
        Ok(self.and_bind(address))
    }

    /// Receives on this address too. `[::]` alone receives IPv4 as well, where the system does so; beside an
    /// address of IPv4 on the same port it leaves IPv4 to that.
    pub fn and_bind(mut self, address: SocketAddr) -> Self {
        self.endpoints.push(address);
        self
    }

    /// Receives by this Unix socket, too, as [`bind_unix`](Self::bind_unix) does. By their place among the server's addresses
    /// Unix sockets come behind all others.
    pub fn and_bind_unix(self, address: impl Into<UnixAddress>) -> Self {
        self.at_unix(AtUnix::Bound(address.into()))
    }

    fn at_unix(mut self, at: AtUnix) -> Self {
        self.unix.push(at);
        self.unix_endpoints = Some(Self::unix_endpoints);
        self
    }

    /// Who may send to the Unix sockets that it binds: the mode of their files, of which the right to write counts
    /// (unix(7)), such as `0o660`. Otherwise the process's umask decides. An abstract name has none: anybody may send.
    pub fn unix_mode(mut self, mode: u32) -> Self {
        self.unix_mode = Some(mode);
        self
    }

    /// A server on a Unix socket of datagrams that is bound already, as [`from_std`](Self::from_std) makes one of UDP's. Its
    /// file is left alone. If another who has the socket shuts it down the server ends with that error; with the provider
    /// `uring` of registered I/O it receives nothing more.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered: also where the socket has no name, or is connected.
    pub fn from_unix(socket: UnixDatagram) -> Result<Self, Error> {
        Self::of(vec![]).and_from_unix(socket)
    }

    /// Receives by this Unix socket, too, which is bound already.
    ///
    /// # Errors
    /// As [`from_unix`](Self::from_unix).
    pub fn and_from_unix(self, socket: UnixDatagram) -> Result<Self, Error> {
        let kept = keep_unix(socket).map_err(|e| Error::io("taking a Unix socket", e))?;
        Ok(self.at_unix(AtUnix::Given(Arc::new(kept))))
    }

    /// What is asked of each socket. By default its receive buffer has room for as many datagrams as the design has
    /// receives outstanding ([`ReceiveBuffer::Outstanding`](crate::socket::ReceiveBuffer::Outstanding)), as far as the
    /// system grants that.
    pub fn socket_options(mut self, options: SocketOptions) -> Self {
        self.socket = options;
        self
    }

    /// Lets the system put several datagrams into one slice ([`SocketOptions::receive_offload`]).
    /// Slices are [`OFFLOADED_BYTES`](crate::socket::OFFLOADED_BYTES) long then, whatever
    /// [`payload_bytes`](Self::payload_bytes) says of a datagram, and where a design leaves the
    /// number of its receives outstanding at its default, it is [`OFFLOADED_OUTSTANDING`].
    pub fn receive_offload(mut self, on: bool) -> Self {
        self.socket.receive_offload = on;
        self
    }

    /// Lets answers in a row to one peer leave as one ([`SocketOptions::send_offload`]), which is the default. Designs
    /// that send one answer a call have nothing to join.
    pub fn send_offload(mut self, on: bool) -> Self {
        self.socket.send_offload = on;
        self
    }

    /// Polls the device's queue for so long before a receive or a wait sleeps, 1 µs to 1 s
    /// ([`SocketOptions::busy_poll`]).
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.socket.busy_poll = Some(time);
        self
    }

    /// Hears of datagrams sent that met an error on their way ([`SocketOptions::peer_errors`]): they are
    /// told to [`Handler::on_error`].
    pub fn peer_errors(mut self, on: bool) -> Self {
        self.socket.peer_errors = on;
        self
    }

    /// What may be sent: nothing unless said otherwise.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What is asked of the memory [default: [`Spec::REGION`]].
    pub fn region_options(mut self, options: RegionOptions) -> Self {
        self.region = options;
        self
    }

    /// The longest datagram received whole, in bytes: 1 to 65,527. Longer ones are cut,
    /// told as truncated and counted. Where a design leaves the number of its receives outstanding at its default, they
    /// are fewer the longer this is: at most [`OUTSTANDING_BYTES`] in all.
    pub fn payload_bytes(mut self, bytes: usize) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// Has each thread of the server give up the privilege that setting it up may have taken, before it
    /// handles a datagram ([`crate::privilege`]). The thread that starts the server keeps its own.
    pub fn give_up_privilege(mut self, on: bool) -> Self {
        self.gives_up_privilege = on;
        self
    }

    /// What becomes of it where its handler panics [default: it ends].
    pub fn on_panic(mut self, on_panic: OnPanic) -> Self {
        self.on_panic = on_panic;
        self
    }

    /// Receives what is sent to a group, by the device with this index (0: one of the system's choice), at each address that
    /// is every one of its family or the group's own. [`Running::join`] and [`Running::leave`] change that while it runs.
    /// Where several sockets share an address (`rio-sharded`) the first of them joins, as each that did would receive
    /// every datagram: what is sent to groups is handled by one thread.
    pub fn join(mut self, group: IpAddr, interface: u32) -> Self {
        self.groups.push((group, interface));
        self
    }

    /// Counts datagrams of any other size as of wrong size.
    pub fn expected_bytes(mut self, bytes: usize) -> Self {
        self.expected_bytes = Some(bytes);
        self
    }

    /// Its addresses, each that sockets were given of once: there may be several of those.
    fn named(&self) -> Vec<SocketAddr> {
        let is_given = |place| self.given.iter().any(|(of, _)| *of == place);
        let (mut named, mut bound) = (Vec::new(), Vec::new());
        for (place, address) in self.endpoints.iter().enumerate() {
            match is_given(place) {
                true if named.contains(address) => {}
                true => named.push(*address),
                false => bound.push(*address),
            }
        }
        named.append(&mut bound);
        named
    }

    /// Starts it with a design by its type or by its name ([`Startable`]). `make_handler` makes the handler
    /// of each thread from its number.
    ///
    /// # Errors
    /// Whatever fails before the server runs, with its cause and what to do.
    pub fn start<H: Handler>(
        &self,
        design: impl Startable,
        make_handler: impl FnMut(usize) -> H + Send + 'static,
    ) -> Result<Running<H>, Error> {
        design.start_as(self, Box::new(make_handler))
    }

    pub(super) fn start_design<D: Design, H: Handler>(
        &self,
        mut design: D,
        make_handler: MakeHandler<H>,
    ) -> Result<Running<H>, Error> {
        design.resolve();
        let job = self.job(make_handler)?;
        if has_outstanding(&D::ABOUT)
            && let Some(default) = default_of(OUTSTANDING, &D::known(), &design.values())
        {
            let outstanding = match self.socket.receive_offload {
                true => OFFLOADED_OUTSTANDING,
                false => most_by_default(default, self.payload_bytes),
            };
            if outstanding < default {
                design.set(OUTSTANDING, &outstanding.to_string())?;
                job.state(
                    OUTSTANDING_IS,
                    fewer_by_default(outstanding, default, job.slice_bytes()),
                );
            }
        }
        // Who makes a send again that met an error of a peer waits for who takes errors.
        let parks = design.parks_threads() || self.socket.peer_errors;
        job.shared.state_design(D::ABOUT.name, Some(design.provider()), parks, design.values());
        design.start(job)
    }

    /// What a design is started with, for starting one directly (on a provider of one's
    /// own, say).
    ///
    /// # Errors
    /// [`Error::Option`] if the server's own settings make no sense; [`Error::Unavailable`] if
    /// replies are to leave from the address that was written to, and cannot.
    pub fn job<H: Handler>(
        &self,
        make_handler: impl FnMut(usize) -> H + Send + 'static,
    ) -> Result<Job<H>, Error> {
        let bytes = self.payload_bytes;
        if !(1..=MAX_PAYLOAD_BYTES).contains(&bytes) {
            let problem =
                format!("{bytes} is not allowed; a datagram has 1 to {MAX_PAYLOAD_BYTES} bytes");
            return Err(Error::option("size", problem));
        }
        let Limits { replies_outstanding, transmits_outstanding, .. } = self.limits;
        for (name, asked) in [
            ("replies-outstanding", replies_outstanding),
            ("transmits-outstanding", transmits_outstanding),
        ] {
            if asked > MOST_REPLIES {
                let problem =
                    format!("{asked} is not allowed; allowed: 0 (none) to {MOST_REPLIES}");
                return Err(Error::option(name, problem));
            }
        }
        if !self.socket.reuse_port {
            named_once(&self.named())?;
        }
        let options = self.socket;
        let polls_us = options.busy_poll.map(|time| time.as_micros());
        if let Some(time) = options.busy_poll
            && !(1..=MOST_BUSY_POLL.as_micros()).contains(&time.as_micros())
        {
            let problem = format!("{time:?} is not allowed; allowed: 1 µs to {MOST_BUSY_POLL:?}");
            return Err(Error::option("busy-poll", problem));
        }
        let anywhere = self.endpoints.iter().any(|address| address.ip().is_unspecified());
        if options.local_address && anywhere && self.limits.sends() > 0 {
            replies_from_local_address()?;
        }
        let endpoint = |(place, &address): (usize, &SocketAddr)| {
            let only_v6 = options.only_v6 || leaves_ipv4(address, &self.endpoints);
            let given = self.given.iter().find(|(of, _)| *of == place);
            let given = given.map(|(_, keeping)| keeping.given());
            Endpoint { address, options: SocketOptions { only_v6, given, ..options } }
        };
        let mut endpoints: Vec<_> = self.endpoints.iter().enumerate().map(endpoint).collect();
        let names = match self.unix_endpoints {
            Some(add) => add(self, &mut endpoints)?,
            None => Vec::new(),
        };
        let mut job = Job::new(endpoints, self.payload_bytes, Box::new(make_handler));
        job.names = names;
        job.limits = self.limits;
        job.region = self.region;
        job.expected_bytes = self.expected_bytes;
        job.on_panic = self.on_panic;
        job.groups.clone_from(&self.groups);
        job.given = self.given.iter().map(|(_, keeping)| Arc::clone(keeping)).collect();
        job.hands_over = job.endpoints.iter().any(|endpoint| endpoint.options.given.is_some());
        job.give_up_privilege(self.gives_up_privilege);
        job.state("size", self.payload_bytes);
        job.state("receive-offload", options.receive_offload);
        if !options.send_offload {
            job.state("send-offload", "off");
        }
        if transmits_outstanding > 0 {
            job.state("transmits-outstanding", transmits_outstanding);
        }
        for (name, asked) in [
            ("traffic-class", options.traffic_class),
            ("hops", options.hops),
            ("group-hops", options.group_hops),
        ] {
            if let Some(asked) = asked {
                job.state(name, asked);
            }
        }
        if options.path_mtu != PathMtu::System {
            job.state("path-mtu", options.path_mtu);
        }
        for (group, interface) in &self.groups {
            job.state("groups", format!("{group}%{interface}"));
        }
        job.state("busy-poll-us", polls_us.unwrap_or(0));
        job.state("slice-bytes", job.slice_bytes());
        job.state("local-address", options.local_address);
        job.state("peer-errors", options.peer_errors);
        job.state("pages", self.region.pages);
        Ok(job)
    }
}

impl Server {
    /// See [`UnixEndpoints`].
    fn unix_endpoints(
        &self,
        endpoints: &mut Vec<Endpoint>,
    ) -> Result<Vec<Arc<dyn Any + Send + Sync>>, Error> {
        let of_all = self.socket;
        unix_availability()?;
        if let Some(mode) = self.unix_mode.filter(|mode| *mode > 0o777) {
            let problem = format!("{mode:o} is not allowed; allowed: 0 to 777, in octal");
            return Err(Error::option("unix-mode", problem));
        }
        if let (true, Some(what)) = (self.endpoints.is_empty(), of_all.missing_at_unix()) {
            let why = Unavailable::new(what, "a Unix socket has none");
            return Err(why.advise("leave it out, or have an address of the internet, too").into());
        }
        let mut names: Vec<Arc<dyn Any + Send + Sync>> = Vec::new();
        for at in &self.unix {
            let (address, given) = match at {
                AtUnix::Bound(address) => {
                    let failed = |source| Error::BindUnix { address: address.clone(), source };
                    let name = address.name_bytes().and_then(|name| kept(&name)).map_err(failed)?;
                    let stands_for_it = name.address();
                    names.push(Arc::new(name));
                    (stands_for_it, None)
                }
                AtUnix::Given(kept) => {
                    names.push(Arc::clone(kept) as _);
                    (kept.1.address(), Some(kept.0.given()))
                }
            };
            if given.is_none() && endpoints.iter().any(|other| other.address == address) {
                let name = UnixAddress::of(address).expect("its name is kept");
                return Err(Error::option(
                    "bind",
                    format!("{name} is named twice; name each address once"),
                ));
            }
            let options = SocketOptions { given, unix_mode: self.unix_mode, ..of_all.of_unix() };
            endpoints.push(Endpoint { address, options });
        }
        Ok(names)
    }
}

/// Keeps a socket that is bound already, and says where that is.
fn keep(socket: UdpSocket) -> Result<(SocketAddr, Arc<Keeping>), Error> {
    sockets_can_be_given()?;
    let address = socket.local_addr().map_err(|e| Error::io("asking for the local address", e))?;
    Ok((address, Arc::new(Keeping::new(socket))))
}

/// The option that says how many receives are outstanding.
const OUTSTANDING: &str = "outstanding";

/// Whether a design may have that option. It is known when a design is compiled, so a program of one that has none has no
/// code to look for it.
const fn has_outstanding(design: &About) -> bool {
    matches!(design.contract, Contract::Port | Contract::Rio)
}

/// The setting in effect that says why fewer of them are outstanding than a design's default.
const OUTSTANDING_IS: &str = "outstanding-by-default";

/// The default of an option that a design has, if it stands at that.
fn default_of(name: &str, known: &[OptionInfo], values: &[(String, String)]) -> Option<u32> {
    let (_, value) = values.iter().find(|(option, _)| option == name)?;
    let info = known.iter().find(|option| option.name == name && option.default == *value)?;
    info.default.parse().ok()
}

/// How many receives of so many bytes are outstanding where a design's default is so many.
fn most_by_default(default: u32, slice_bytes: usize) -> u32 {
    let most = (OUTSTANDING_BYTES / slice_bytes.max(1)).max(1);
    default.min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Why they are fewer than the design's default.
fn fewer_by_default(outstanding: u32, default: u32, slice_bytes: usize) -> String {
    format!(
        "{outstanding} instead of {default}, since slices have {slice_bytes} bytes (ask for another number with --outstanding)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_design_stands_on_says_whether_it_has_receives_outstanding() {
        for design in crate::udp::designs() {
            let has_it = design.known_options().iter().any(|option| option.name == OUTSTANDING);
            assert_eq!(has_outstanding(&design.about()), has_it, "{}", design.about().name);
        }
    }

    #[test]
    fn fewer_receives_are_outstanding_by_default_the_larger_slices_are() {
        let of = |slice_bytes| most_by_default(150_000, slice_bytes);
        assert_eq!([1, 64, 1024, 1789].map(of), [150_000; 4]);
        assert_eq!([1790, 2048, MAX_PAYLOAD_BYTES].map(of), [149_963, 131_072, 4096]);
        for slice_bytes in 1..=MAX_PAYLOAD_BYTES {
            assert!(of(slice_bytes) as usize * slice_bytes <= OUTSTANDING_BYTES);
        }
        assert_eq!(most_by_default(64, MAX_PAYLOAD_BYTES), 64);
    }

    #[test]
    fn a_number_that_was_asked_for_is_no_default() {
        use crate::options::Options as _;
        let of = |design: crate::udp::RioEvent| {
            default_of(OUTSTANDING, &crate::udp::RioEvent::known(), &design.values())
        };
        let fewer = crate::udp::RioEvent { outstanding: 7, ..Default::default() };
        assert_eq!((of(Default::default()), of(fewer)), (Some(150_000), None));
    }
}
