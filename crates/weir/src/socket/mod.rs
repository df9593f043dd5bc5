//! Plain datagram sockets: what every operating system has had for decades.
//!
//! What a file for an operating system must supply: `Native` (open, local address, sizes
//! obtained, figures, receive one, send one, errors of peers, end receiving) and `Headers` (the
//! reusable message headers behind [`DatagramSocket::receive_many`] and
//! [`DatagramSocket::send_many`]).
//!
//! Not guaranteed: that batches are one system call (see [`BATCHES_IN_ONE_CALL`]); that
//! the local address of a datagram is known (only where asked for).

mod buffer;
pub(crate) mod context;
mod errors;
mod gauge;
mod given;
pub(crate) mod names;
#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows/mod.rs")]
pub(crate) mod native;
mod span;
pub(crate) mod unix;

use crate::{
    Error, Unavailable,
    affinity::allowed_cores,
    counters::Counters,
    options::{named, settings},
};
use socket2::InterfaceIndexOrAddress;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU16,
    sync::{Arc, Weak},
    time::Duration,
};

pub use buffer::ReceiveBuffer;
pub use context::{CONTEXT_BYTES, Received};
pub use errors::{Icmp, MOST_ERRORS, PeerError};
pub use gauge::{Gauge, SocketState};
#[cfg(feature = "udp")]
pub(crate) use given::keep_unix;
pub use given::{Given, Keeping};
pub use native::{BATCHES_IN_ONE_CALL, Headers, Native, replies_from_local_address};
pub use span::{Span, Unsent};

/// The name of plain sockets, where a provider is named.
pub const PROVIDER: &str = "sockets";

settings! {
    /// What is asked of a socket.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SocketOptions {
        /// Room for datagrams that nobody has received yet.
        pub receive_buffer: ReceiveBuffer,
        /// Size of the send buffer in bytes as given to SO_SNDBUF; `None` for the system's.
        pub send_buffer_bytes: Option<usize>,
        /// Let several sockets share the address (SO_REUSEPORT), each with its own datagrams.
        pub reuse_port: bool,
        /// Give this one of the sockets that share the address the datagrams that its core received
        /// (SO_ATTACH_REUSEPORT_CBPF, Linux 4.5; SIO_CPU_AFFINITY, Windows 10 version 2004). Without it a hash
        /// of the addresses decides, which Windows does not have. Needs `reuse_port`.
        pub steer_by_core: Option<Shard>,
        /// Leave datagrams of IPv4 to another socket on the same port (IPV6_V6ONLY), where this address is every
        /// one of IPv6. Without it such a socket receives them too.
        pub only_v6: bool,
        /// Ask for the address that each datagram was sent to (IP_PKTINFO). Replies then leave from
        /// that address: what a server needs that answers on every address of a machine.
        pub local_address: bool,
        /// Ask for the time at which the kernel received each datagram (SO_TIMESTAMPNS).
        pub receive_time: bool,
        /// Ask for the traffic class of each datagram (IP_RECVTOS, IPV6_RECVTCLASS): how it was to be treated on its way, and
        /// whether it met congestion ([`Meta::ecn`]).
        pub receive_traffic_class: bool,
        /// Ask for the hops that were left to each datagram (IP_RECVTTL, IPV6_RECVHOPLIMIT).
        pub receive_hops: bool,
        /// Let the system put several datagrams of one sender and of one size into one buffer (UDP_GRO,
        /// Linux 5.0): see [`Arrival::segment`]. A buffer must have room for
        /// [`OFFLOADED_BYTES`]; what finds no room is lost.
        pub receive_offload: bool,
        /// Let datagrams that are sent in a row to one peer, and are of one size, leave as one, which the system cuts as late
        /// as it can (UDP_SEGMENT, Linux 4.18). The peer receives the same datagrams in the same order. Where the system
        /// cannot, each leaves by itself: see [`DatagramSocket::send_offload_obtained`].
        pub send_offload: bool,
        /// The traffic class that datagrams are sent with (IP_TOS, IPV6_TCLASS): six bits of differentiated services and two of
        /// congestion. `None` for the system's.
        pub traffic_class: Option<u8>,
        /// The hops that datagrams to one peer may take (IP_TTL, IPV6_UNICAST_HOPS); `None` for the system's.
        pub hops: Option<u8>,
        /// The hops that datagrams to a group may take (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS); `None` for the system's: one.
        pub group_hops: Option<u8>,
        /// What becomes of datagrams that are longer than a packet of their path (IP_MTU_DISCOVER, IPV6_MTU_DISCOVER;
        /// IP_DONTFRAGMENT on Windows).
        pub path_mtu: PathMtu,
        /// Hear of datagrams sent that met an error on their way (IP_RECVERR, IPV6_RECVERR): see
        /// [`PeerError`].
        pub peer_errors: bool,
        /// Poll the device's queue for so long before a receive waits (SO_BUSY_POLL, Linux 3.11, which
        /// counts µs; with SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET where there are any, Linux 5.11).
        /// May need CAP_NET_ADMIN. On loopback nothing is polled: see [`SocketState::napi_id`].
        pub busy_poll: Option<Duration>,
        /// Who may send to a Unix socket that is bound to a path: the mode of its file, of which the right to write counts
        /// (unix(7)). `None` for what the process's umask leaves.
        pub unix_mode: Option<u32>,
        /// A socket to be used instead of a new one: it is bound already, and shared with whoever else has it. All that is asked
        /// here is asked of it, but what belongs to binding (`reuse_port`, `steer_by_core`, `only_v6`). It is
        /// named by who keeps it ([`Keeping`]); `Server::from_std` of a server of UDP does so by itself.
        pub given: Option<Given>,
    }
}

impl Default for SocketOptions {
    /// What the system has, and send offload, which only changes what sending costs.
    fn default() -> Self {
        Self {
            receive_buffer: ReceiveBuffer::default(),
            send_buffer_bytes: None,
            reuse_port: false,
            steer_by_core: None,
            only_v6: false,
            local_address: false,
            receive_time: false,
            receive_traffic_class: false,
            receive_hops: false,
            receive_offload: false,
            send_offload: true,
            traffic_class: None,
            hops: None,
            group_hops: None,
            path_mtu: PathMtu::System,
            peer_errors: false,
            busy_poll: None,
            unix_mode: None,
            given: None,
        }
    }
}

named! {
    /// What becomes of a datagram that is longer than a packet of its path.
    #[derive(Default)]
    pub enum PathMtu {
        /// What the system does.
        #[default]
        System = "system",
        /// It is sent in fragments, also by routers.
        Fragment = "fragment",
        /// It is not sent, and no router may cut it (DF); its length is checked against what is known of the path.
        Discover = "discover",
        /// The same, but only the device's own packets are checked: for who finds out the path's by himself.
        Probe = "probe",
    }
}

/// One of several sockets on one address, each of which gets the datagrams that a core of its own received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its place in the order in which they are bound, from 0.
    pub number: u16,
    /// How many they are.
    pub of: u16,
    /// The number of its core, which modulo `of` is `number`. Where they are more cores than sockets, it also gets
    /// the datagrams of the others of which that is so; on Windows those of the others go to one of the sockets.
    pub core: usize,
}

impl Shard {
    /// The number of its core, in as many bits as systems take.
    ///
    /// # Errors
    /// If it leads to another socket, or is too great.
    fn checked_core(self) -> io::Result<u16> {
        let Self { number, of, core } = self;
        let leads_here = core.checked_rem(of.into()) == Some(number.into());
        u16::try_from(core).ok().filter(|_| leads_here).ok_or_else(|| {
            let problem =
                format!("the datagrams of core {core} do not go to socket {number} of {of}");
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })
    }
}

/// The longest time that busy polling may be asked for.
pub const MOST_BUSY_POLL: Duration = Duration::from_secs(1);

/// Whether sockets here can tell the traffic class of a datagram and the hops that were left to it, by trying.
///
/// # Errors
/// Why they cannot.
pub fn meta_can_be_told() -> Result<(), Unavailable> {
    let options = SocketOptions {
        receive_traffic_class: true,
        receive_hops: true,
        ..SocketOptions::default()
    };
    can_bind("the traffic class and hops of datagrams", options)
}

impl SocketOptions {
    /// Something that is asked here and that a Unix socket has not, with the option's name.
    pub(crate) fn missing_at_unix(&self) -> Option<&'static str> {
        let missing = [
            (self.receive_offload, "receive offload"),
            (self.receive_time, "the receive time of datagrams"),
            (self.receive_traffic_class | self.traffic_class.is_some(), "a traffic class"),
            (
                self.receive_hops | self.hops.is_some() | self.group_hops.is_some(),
                "a number of hops",
            ),
            (self.path_mtu != PathMtu::System, "a path with an MTU"),
            (self.peer_errors, "errors that peers report"),
            (self.busy_poll.is_some(), "busy polling"),
            (self.local_address, "the address that a datagram was sent to"),
            (
                self.reuse_port | self.steer_by_core.is_some(),
                "an address shared by several sockets",
            ),
        ];
        missing.into_iter().find_map(|(asked, what)| asked.then_some(what))
    }

    /// What of this a Unix socket has.
    #[cfg(feature = "udp")]
    pub(crate) fn of_unix(&self) -> Self {
        let Self { receive_buffer, send_buffer_bytes, unix_mode, given, .. } = *self;
        Self {
            receive_buffer,
            send_buffer_bytes,
            unix_mode,
            given,
            send_offload: false,
            ..Self::default()
        }
    }

    /// Whether more control data comes with a datagram than an address and a time.
    pub(crate) fn asks_for_meta(&self) -> bool {
        self.receive_traffic_class | self.receive_hops
    }
}

/// Whether sockets here can hear of errors that peers report, by trying.
///
/// # Errors
/// Why they cannot.
pub fn peer_errors_can_be_heard() -> Result<(), Unavailable> {
    can_bind("errors of peers", SocketOptions { peer_errors: true, ..SocketOptions::default() })
}

/// Whether a server can take a socket that is bound already.
///
/// # Errors
/// Why it cannot.
pub fn sockets_can_be_given() -> Result<(), Unavailable> {
    match native::TAKES_GIVEN {
        true => Ok(()),
        false => Err(Unavailable::new(
            "a UDP socket that is bound already",
            "weir takes none on this system yet",
        )
        .advise("have the server bind its address")),
    }
}

/// Binds a socket with these options on loopback.
fn can_bind(what: &str, options: SocketOptions) -> Result<(), Unavailable> {
    bound(what, (Ipv4Addr::LOCALHOST, 0).into(), options).map(drop)
}

fn bound(
    what: &str,
    address: SocketAddr,
    options: SocketOptions,
) -> Result<DatagramSocket, Unavailable> {
    DatagramSocket::bind(&Endpoint { address, options }).map_err(|error| match error {
        Error::Unavailable(why) => why,
        error => Unavailable::new(what, error.to_string()),
    })
}

/// The most bytes that one receive brings: the longest payload of UDP over IPv6, whether it is one
/// datagram's or that of several.
pub const OFFLOADED_BYTES: usize = 65_527;

/// Whether sockets here can receive many datagrams at once, by trying.
///
/// # Errors
/// Why they cannot.
pub fn receives_can_be_offloaded() -> Result<(), Unavailable> {
    can_bind("receive offload", SocketOptions { receive_offload: true, ..SocketOptions::default() })
}

/// Whether several sockets can share an address here, each with its own datagrams, by trying.
///
/// # Errors
/// Why they cannot.
pub fn addresses_can_be_shared() -> Result<(), Unavailable> {
    let what = "an address shared by several sockets";
    let options = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let first = bound(what, (Ipv4Addr::LOCALHOST, 0).into(), options)?;
    bound(what, first.local_address(), options).map(drop)
}

/// Whether sockets that share an address can each have the datagrams of one core here, by trying with two cores where
/// there are as many.
///
/// # Errors
/// Why they cannot.
pub fn datagrams_can_be_steered_by_core() -> Result<(), Unavailable> {
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut sockets = Vec::new();
    for core in allowed_cores().into_iter().take(2) {
        let steer_by_core = Some(Shard { number: 0, of: 1, core });
        let options = SocketOptions { reuse_port: true, steer_by_core, ..SocketOptions::default() };
        let socket = bound("datagrams steered by the core that received them", address, options)?;
        address = socket.local_address();
        sockets.push(socket);
    }
    Ok(())
}

/// Whether every address of IPv6, which else means those of IPv4 too, has to leave those to one of `others` that
/// is on the same port.
pub(crate) fn leaves_ipv4(address: SocketAddr, others: &[SocketAddr]) -> bool {
    let every = address.is_ipv6() && address.ip().is_unspecified() && address.port() != 0;
    every && others.iter().any(|other| other.is_ipv4() && other.port() == address.port())
}

/// An address that is named twice would be found taken, as if another program had it.
pub(crate) fn named_once(addresses: &[SocketAddr]) -> Result<(), Error> {
    let again = |&(number, address): &(usize, &SocketAddr)| {
        address.port() != 0 && addresses[..number].contains(address)
    };
    match addresses.iter().enumerate().find(again) {
        None => Ok(()),
        Some((_, address)) => {
            let problem = format!("{address} is named twice; name each address once");
            Err(Error::option("bind", problem))
        }
    }
}

/// Binds so many sockets of UDP that share an address, among which the system shares what comes (SO_REUSEPORT): for servers that
/// they are to be given to, by a design that has several
/// ([`sockets_per_address`](crate::udp::Design::sockets_per_address)). Of one socket nobody else has the address; nor of several,
/// but for programs of the same user that ask to share it, too.
///
/// # Errors
/// [`Error::Bind`] where somebody has the address; [`Error::Io`]; [`Error::Unavailable`] where weir takes no such sockets
/// ([`sockets_can_be_given`]).
#[cfg(feature = "udp")]
pub fn bind_sharing(address: SocketAddr, sockets: u32) -> Result<Vec<std::net::UdpSocket>, Error> {
    sockets_can_be_given()?;
    let mut endpoint = Endpoint::from(address);
    endpoint.options.reuse_port = sockets > 1;
    if sockets > 1 && address.port() != 0 {
        DatagramSocket::bind(&address.into())?; // an address that is to be shared is not refused where another has it
    }
    let bound = (0..sockets).map(|_| {
        let socket = DatagramSocket::bind(&endpoint)?;
        endpoint.address = socket.local_address();
        socket.native().to_std().map_err(|e| Error::io("duplicating a socket", e))
    });
    bound.collect()
}

/// Where to receive, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port; port 0 for one of the system's choice. Or the address that stands for the name of a Unix socket
    /// ([`UnixAddress`](crate::stream::UnixAddress)), where the system has those.
    pub address: SocketAddr,
    /// What is asked of the socket.
    pub options: SocketOptions,
}

impl Endpoint {
    /// Whether it is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        names::stands_for_name(&self.address)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address, options: SocketOptions::default() }
    }
}

/// A datagram that arrived, or several with receive offload: all but the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes in the buffer.
    pub len: usize,
    /// Who sent it. By a Unix socket it is the address that [stands for his name](crate::stream::UnixAddress::of), or
    /// 0.0.0.0:0 where he has none.
    pub from: SocketAddr,
    /// The address it was sent to, where asked for.
    pub local: Option<IpAddr>,
    /// Whether the datagram was longer than the buffer, and its end is lost.
    pub truncated: bool,
    /// When the kernel received it, since the Unix epoch, where asked for.
    pub at: Option<Duration>,
    /// Where it is several datagrams, bytes of each: they lie behind each other, and the last may
    /// be shorter. Only with [`SocketOptions::receive_offload`].
    pub segment: Option<NonZeroU16>,
    /// What its frame said, where the provider sees frames.
    pub link: Option<Link>,
    /// What else was asked for.
    pub meta: Meta,
}

/// What a datagram's packet said beside its addresses, as far as it was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Meta {
    /// The index of the device that it came by, with [`SocketOptions::local_address`]. Not told on Windows, nor where frames
    /// are seen.
    pub interface: Option<u32>,
    /// Its traffic class, with [`SocketOptions::receive_traffic_class`]: six bits of differentiated services (RFC 2474) and two of
    /// congestion (RFC 3168).
    pub traffic_class: Option<u8>,
    /// The hops that were left to it (TTL), with [`SocketOptions::receive_hops`].
    pub hops: Option<u8>,
}

impl Meta {
    /// Nothing is known.
    pub const NONE: Self = Self { interface: None, traffic_class: None, hops: None };

    /// How it was marked by its sender, or by routers on its way.
    pub fn ecn(&self) -> Option<Ecn> {
        self.traffic_class.and_then(Ecn::from_bits)
    }
}

/// What a frame says beside the datagram in it. Known on AF_XDP alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The Ethernet address of the device that the frame came from: the sender's, or the last
    /// router's.
    pub mac: [u8; 6],
    /// The port of ours that it was sent to: where every port is received, not the bound one.
    pub local_port: u16,
}

impl Arrival {
    /// How many datagrams it is.
    #[inline]
    pub fn datagrams(&self) -> usize {
        Span { len: self.len, segment: self.segment }.datagrams()
    }

    /// Where a reply goes, and from where.
    #[inline]
    pub fn peer(&self) -> Peer {
        Peer { address: self.from, local: self.local, link: self.link, ecn: None }
    }
}

/// Where a datagram goes, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address of the other side.
    pub address: SocketAddr,
    /// The address of ours that it leaves from: for a reply the one that was written to. `None`,
    /// and an address that nothing can come from (of a group, or of everybody), leave the choice
    /// to the system.
    pub local: Option<IpAddr>,
    /// The frame that is answered, where the provider sees frames: a reply goes to the device that
    /// it came from. Others need none.
    pub link: Option<Link>,
    /// How its packets are marked for routers on the way, where the system lets that be said
    /// ([`datagrams_can_be_marked`]).
    pub ecn: Option<Ecn>,
}

/// Explicit congestion notification: what a packet tells routers on its way, and they its receiver (RFC 3168), as
/// the two low bits of its traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// ECT(1): its sender understands marks (of L4S, RFC 9331).
    Ect1 = 0b01,
    /// ECT(0): its sender understands marks.
    Ect0 = 0b10,
    /// CE: a router met congestion.
    Ce = 0b11,
}

impl Ecn {
    /// The mark in these bits, of which the two low ones count; `None` for a packet that takes no part.
    #[inline]
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0b01 => Some(Self::Ect1),
            0b10 => Some(Self::Ect0),
            0b11 => Some(Self::Ce),
            _ => None,
        }
    }
}

/// Whether a datagram can be sent with a mark of congestion here ([`Peer::ecn`]).
///
/// # Errors
/// Why it cannot.
pub fn datagrams_can_be_marked() -> Result<(), Unavailable> {
    if native::MARKS {
        return Ok(());
    }
    Err(Unavailable::new("marks of congestion", "weir does not set them on this system yet"))
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, local: None, link: None, ecn: None }
    }
}

impl Peer {
    /// The address to be named as that of the sender, if any is to be.
    #[inline]
    pub(crate) fn source(&self) -> Option<IpAddr> {
        let can_send = |local: &IpAddr| match local.to_canonical() {
            IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast(),
            IpAddr::V6(v6) => !v6.is_multicast(),
        };
        // Where the families differ the system would refuse it.
        self.local.filter(can_send).filter(|local| local.is_ipv4() == self.address.is_ipv4())
    }
}

/// Whether a call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Wait until there is at least one datagram, or receiving was ended.
    Wait,
    /// The same, but for so long at most.
    WaitFor(Duration),
    /// Return at once.
    Try,
}

/// A bound socket of UDP, or a Unix socket of datagrams, shared freely between threads.
#[derive(Debug, Clone)]
pub struct DatagramSocket {
    open: Arc<gauge::OpenSocket>,
    local_address: SocketAddr,
    busy_poll: Option<Duration>,
}

/// A socket that is used while another keeps it open.
#[derive(Debug, Clone)]
pub(crate) struct WeakSocket {
    open: Weak<gauge::OpenSocket>,
    local_address: SocketAddr,
    busy_poll: Option<Duration>,
}

impl WeakSocket {
    /// The socket, if it is still open.
    pub(crate) fn upgrade(&self) -> Option<DatagramSocket> {
        let Self { local_address, busy_poll, .. } = *self;
        let open = self.open.upgrade()?;
        Some(DatagramSocket { open, local_address, busy_poll })
    }
}

impl DatagramSocket {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// [`Error::Bind`] with the address and the system's answer; [`Error::Io`] if an option
    /// is refused.
    pub fn bind(endpoint: &Endpoint) -> Result<Self, Error> {
        let native = match names::stands_for_name(&endpoint.address) {
            true => unix::open(endpoint)?,
            false => native::Native::open(endpoint)?,
        };
        Self::of(native, endpoint)
    }

    fn of(native: native::Native, endpoint: &Endpoint) -> Result<Self, Error> {
        let local_address =
            native.local_address().map_err(|e| Error::io("reading the socket's address", e))?;
        let busy_poll = endpoint.options.busy_poll;
        Ok(Self { open: Arc::new(native.into()), local_address, busy_poll })
    }

    /// The address it is bound to; of a Unix socket that which [stands for its name](crate::stream::UnixAddress::of).
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Size of the receive buffer as the system reports it, in bytes (Linux doubles what
    /// was asked for, to cover its own bookkeeping).
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.native().receive_buffer_bytes()
    }

    /// What came of the receive buffer that was asked for, in words: what it has room for, and what to do where that is
    /// less than asked. `None` where the system tells no more than its size.
    pub fn receive_buffer_obtained(&self) -> Option<String> {
        self.native().receive_buffer()
    }

    /// The operating system's own socket, for providers.
    #[inline]
    pub fn native(&self) -> &native::Native {
        &self.open.native
    }

    /// What reads the system's figures of this socket, from any thread.
    pub fn gauge(&self) -> Gauge {
        Gauge::new(self.local_address, &self.open)
    }

    /// For how long it was asked to poll its device's queue.
    pub fn busy_poll(&self) -> Option<Duration> {
        self.busy_poll
    }

    /// What came of that, in words.
    pub fn busy_poll_obtained(&self) -> Option<String> {
        self.busy_poll.and_then(|_| self.native().busy_poll())
    }

    /// What came of the send offload that was asked for, in words. It is for sends in a batch.
    pub fn send_offload_obtained(&self) -> Option<&'static str> {
        self.native().send_offload()
    }

    /// Whether a datagram leaves from the address of ours that its [`Peer`] says: always where the system knows of that,
    /// or only where [`SocketOptions::local_address`] was asked for.
    pub fn names_source(&self) -> bool {
        self.native().can_name_source()
    }

    /// Receives what is sent to a group from now on, by the device with this index (0: one of the system's choice), which
    /// also is told that somebody here does (IGMP, MLD).
    ///
    /// # Errors
    /// What the system answered; that the group is none, or of another family than the socket.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let socket = self.native().socket();
        match (group, self.local_address.is_ipv4()) {
            (IpAddr::V4(group), true) => {
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
            }
            (IpAddr::V6(group), false) => socket.join_multicast_v6(&group, interface),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Receives no more of what is sent to a group that was joined by this device.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        let socket = self.native().socket();
        match (group, self.local_address.is_ipv4()) {
            (IpAddr::V4(group), true) => {
                socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
            }
            (IpAddr::V6(group), false) => socket.leave_multicast_v6(&group, interface),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The same socket, for whoever may use it only as long as another keeps it open.
    pub(crate) fn downgrade(&self) -> WeakSocket {
        WeakSocket {
            open: Arc::downgrade(&self.open),
            local_address: self.local_address,
            busy_poll: self.busy_poll,
        }
    }

    /// Whether it asked to hear of errors that peers report ([`SocketOptions::peer_errors`]). Then such
    /// an error never makes a receive or a send fail.
    pub fn hears_errors(&self) -> bool {
        self.native().hears_errors()
    }

    /// Gives errors that peers reported to `hear`, at most [`MOST_ERRORS`] of them, and says how many
    /// that were. Costs a load of memory where none was met since, by any call on this socket.
    #[inline]
    pub fn take_errors(&self, counters: &Counters, hear: impl FnMut(PeerError)) -> usize {
        if self.native().take_note() { self.take_noted_errors(counters, hear) } else { 0 }
    }

    #[cold]
    fn take_noted_errors(&self, counters: &Counters, mut hear: impl FnMut(PeerError)) -> usize {
        for taken in 0..MOST_ERRORS {
            match self.native().take_error(counters) {
                Ok(Some(error)) => hear(error),
                Ok(None) => return taken,
                // No memory, say: it is tried again after the next dequeue.
                Err(_) => {
                    self.native().note_errors();
                    return taken;
                }
            }
        }
        self.native().note_errors(); // there may be more
        MOST_ERRORS
    }

    /// Receives one datagram. `Ok(None)`: nothing there ([`Mode::Try`]), or receiving was
    /// ended ([`Mode::Wait`]), or an error that a peer reported is there to be taken.
    ///
    /// # Errors
    /// What the operating system answered; a datagram that is too long is not an error.
    #[inline]
    pub fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        self.native().receive(buffer, mode, counters)
    }

    /// Receives up to one datagram into each buffer, as many as are there, and at most as
    /// many as `headers` holds. With [`Mode::Wait`] it waits for the first, and only for
    /// that. Returns how many; `headers.arrival(i)` tells of each. 0 means what `None` means
    /// in [`receive`](Self::receive).
    ///
    /// # Errors
    /// What the operating system answered, if not even one datagram came.
    #[inline]
    pub fn receive_many<B: AsMut<[u8]>>(
        &self,
        headers: &mut Headers,
        buffers: &mut [B],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<usize> {
        headers.receive(self.native(), buffers, mode, counters)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// What the operating system answered; would-block if the send buffer is full.
    #[inline]
    pub fn send(&self, bytes: &[u8], to: &Peer, counters: &Counters) -> io::Result<()> {
        self.native().send(bytes, to, counters)
    }

    /// Sends what a span says: one datagram, or several that lie behind each other.
    ///
    /// # Errors
    /// [`Unsent`] if not all were taken.
    #[inline]
    pub(crate) fn send_span(
        &self,
        bytes: &[u8],
        span: Span,
        to: &Peer,
        counters: &Counters,
    ) -> Result<(), Unsent> {
        match span.segment {
            None => self.send(bytes, to, counters).map_err(Into::into),
            Some(segment) => self.send_segments(bytes, segment, to, counters),
        }
    }

    /// Sends datagrams of this size that lie behind each other, with one call where the system
    /// cuts them (UDP_SEGMENT), else with one for each.
    ///
    /// # Errors
    /// [`Unsent`] if not all were taken.
    pub fn send_segments(
        &self,
        bytes: &[u8],
        segment: NonZeroU16,
        to: &Peer,
        counters: &Counters,
    ) -> Result<(), Unsent> {
        match self.native().send_segments(bytes, segment, to, counters) {
            Ok(()) => Ok(()),
            Err(_) => self.send_each(bytes, segment, to, counters),
        }
    }

    /// The same with a call for each. What refuses to cut a span may well take its datagrams: some
    /// devices cannot cut, and a path may have room for less than a segment.
    ///
    /// # Errors
    /// As [`send_segments`](Self::send_segments).
    #[cold]
    pub fn send_each(
        &self,
        bytes: &[u8],
        segment: NonZeroU16,
        to: &Peer,
        counters: &Counters,
    ) -> Result<(), Unsent> {
        span::each(bytes, segment, |datagram| self.send(datagram, to, counters))
    }

    /// Sends `count` spans of datagrams in order, but at most as many as `headers` holds, and
    /// returns how many were taken. `span(i)` gives the bytes of each, of what size its datagrams
    /// are where there are several, and where it goes.
    ///
    /// # Errors
    /// What the operating system answered, if not even one was taken.
    #[inline]
    pub fn send_many<'a>(
        &self,
        headers: &mut Headers,
        count: usize,
        span: impl FnMut(usize) -> (&'a [u8], Option<NonZeroU16>, Peer),
        counters: &Counters,
    ) -> io::Result<usize> {
        headers.send(self.native(), count, span, counters)
    }

    /// Ends receiving for good: whoever waits returns with nothing, and so does every later
    /// wait. Datagrams not yet received may be lost; of a socket that was given they are left to whoever else has it.
    pub fn end_receiving(&self) {
        self.native().end_receiving(self.local_address);
    }
}

/// More than any system cuts at once: each goes by itself.
#[cfg(test)]
pub(crate) const TOO_MANY_SEGMENTS: usize = 200;

#[cfg(test)]
pub(crate) mod tests;
