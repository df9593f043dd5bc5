//! Datagram sockets of Linux: recvfrom(2) (recvmsg(2) where control data is asked for),
//! recvmmsg(2), sendto(2), sendmmsg(2).

mod batch;
mod busy_poll;
mod ending;
mod errors;
mod joined;
mod local;
mod message;
mod receive_buffer;
mod segmentation;
mod sending;

pub use batch::Headers;
pub(crate) use busy_poll::{BUDGET, microseconds, of_the_system_us};
pub(crate) use ending::Ending;
pub(crate) use joined::{Joined, MOST_JOINED};
#[cfg(feature = "udp")]
pub(super) use local::bound_unix;
pub(crate) use local::{LOCAL_NAME_BYTES, encode_local, of_unix_peer};
pub(super) use local::{open_unix, path_of};
pub(crate) use message::{
    CONTROL_BYTES, Name, SEND_CONTROL_BYTES, decode, decode_into, encode, name_segment,
    name_source, read_control,
};

use super::{Arrival, Endpoint, Meta, Mode, Peer, Shard, names::stands_for_name};
use crate::{
    Error, Unavailable,
    counters::{Counters, os::SocketUsage},
};
use errors::Errors;
use local::Local;
use message::{Control, arrival, encode_into, header};
use nix::sys::time::TimeSpec;
use segmentation::Segmentation;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    mem::{self, MaybeUninit},
    net::SocketAddr,
    num::NonZeroU16,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

/// recvmmsg and sendmmsg move a whole batch with one entry into the kernel.
pub const BATCHES_IN_ONE_CALL: bool = true;

/// Whether a datagram leaves from the address of ours that its [`Peer`] says. Where the option
/// is refused, binding the socket says so.
///
/// # Errors
/// None here.
pub fn replies_from_local_address() -> Result<(), Unavailable> {
    Ok(())
}

/// Whether a socket can be used that is bound already.
pub(super) const TAKES_GIVEN: bool = true;

/// Whether datagrams can be sent with a mark of congestion.
pub(super) const MARKS: bool = true;

/// A bound socket.
#[derive(Debug)]
pub struct Native {
    /// What only a Unix socket has: gone before it is closed.
    local: Option<Local>,
    socket: Socket,
    control: bool,
    is_local: bool,
    /// Where it asked for the errors of peers.
    errors: Option<Errors>,
    /// What came of busy polling, where it was asked for.
    busy_poll: Option<String>,
    /// What came of its receive buffer.
    receive_buffer: String,
    /// Where it asked for send offload.
    segmentation: Option<Segmentation>,
    /// Ends waits, where others have the socket, too.
    ending: Option<Ending>,
}

impl Native {
    pub(super) fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        let Endpoint { address, options } = *endpoint;
        let refused = |what: &str| {
            let what = format!("{what} on the socket for {address}");
            move |e| Error::io(what, e)
        };
        let ending = options.given.map(|_| Ending::new()).transpose();
        let ending = ending.map_err(refused("eventfd"))?;
        let socket = match options.given {
            Some(given) => {
                let socket = Socket::from(given.socket().map_err(refused("dup"))?);
                // What waits says so, and so does what does not; io_uring would take every wait for one that does not.
                socket.set_nonblocking(false).map_err(refused("O_NONBLOCK"))?;
                socket
            }
            None => Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
                .map_err(refused("opening"))?,
        };
        let receive_buffer =
            receive_buffer::ask(&socket, options.receive_buffer).map_err(refused("SO_RCVBUF"))?;
        if let Some(bytes) = options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes).map_err(refused("SO_SNDBUF"))?;
        }
        // A socket has what is sent to the groups that it joined, and not what others joined (those that share its address,
        // say). Where that cannot be asked for (IPv6 before Linux 4.20) it is as the system does it.
        let _ = socket.set_multicast_all_v4(false);
        if address.is_ipv6() {
            let _ = socket.set_multicast_all_v6(false);
        }
        if options.reuse_port && options.given.is_none() {
            socket.set_reuse_port(true).map_err(refused("SO_REUSEPORT"))?;
        }
        if options.only_v6 && address.is_ipv6() && options.given.is_none() {
            socket.set_only_v6(true).map_err(refused("IPV6_V6ONLY"))?;
        }
        if options.local_address {
            let (level, name) = match address {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            };
            set_flag(&socket, level, name).map_err(refused("IP_PKTINFO"))?;
        }
        if options.receive_time {
            set_flag(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
                .map_err(refused("SO_TIMESTAMPNS"))?;
        }
        sending::ask(&socket, address, &options).map_err(|(what, e)| refused(what)(e))?;
        // A socket of IPv6 may receive IPv4 as well, whose packets have options of their own.
        let both = [
            (libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_RECVTTL),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT),
        ];
        let families = if address.is_ipv6() { 2 } else { 1 };
        for (level, traffic_class, hops) in &both[..families] {
            if options.receive_traffic_class {
                set_flag(&socket, *level, *traffic_class).map_err(refused("IP_RECVTOS"))?;
            }
            if options.receive_hops {
                set_flag(&socket, *level, *hops).map_err(refused("IP_RECVTTL"))?;
            }
        }
        if options.given.is_some() && !options.receive_offload {
            // Who had it before may have asked for it. A kernel that knows nothing of it does not do it.
            // SAFETY: this option takes an int.
            let _ = unsafe { set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, &0) };
        }
        if options.receive_offload {
            set_flag(&socket, libc::SOL_UDP, libc::UDP_GRO).map_err(|e| {
                Unavailable::new("receive offload", format!("the socket option UDP_GRO: {e}"))
                    .advise("it needs Linux 5.0 or later; leave it off")
            })?;
        }
        let busy_poll = options.busy_poll.map(|time| busy_poll::ask(&socket, time)).transpose()?;
        let errors = match options.peer_errors {
            true => Some(Errors::ask(&socket, address).map_err(refused("IP_RECVERR"))?),
            false => None,
        };
        if options.given.is_none() {
            bind(&socket, endpoint)?;
        }
        if let Some(shard) = options.steer_by_core {
            steer_by_core(&socket, shard).map_err(refused("SO_ATTACH_REUSEPORT_CBPF"))?;
        }
        let control = options.local_address
            || options.receive_time
            || options.receive_offload
            || options.asks_for_meta();
        let segmentation = options.send_offload.then(|| Segmentation::ask(&socket));
        let (local, is_local) = (None, false);
        Ok(Self {
            local,
            socket,
            control,
            is_local,
            errors,
            busy_poll,
            receive_buffer,
            segmentation,
            ending,
        })
    }

    /// The same socket, for one more user.
    #[cfg(feature = "udp")]
    pub(super) fn to_std(&self) -> io::Result<std::net::UdpSocket> {
        Ok(self.socket.try_clone()?.into())
    }

    /// The descriptor, for providers that hand it to a ring.
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether its datagrams carry control data (local address, receive time, size of
    /// each datagram where there are several).
    pub fn has_control(&self) -> bool {
        self.control
    }

    /// Whether a datagram leaves from the address that its peer says.
    pub(super) fn can_name_source(&self) -> bool {
        true
    }

    /// The socket, for what every system has.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        if let Some(local) = &self.local {
            return Ok(local.address());
        }
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn receive_buffer_bytes(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    pub(super) fn receive_buffer(&self) -> Option<String> {
        Some(self.receive_buffer.clone())
    }

    pub(super) fn send_offload(&self) -> Option<&'static str> {
        self.segmentation.as_ref().map(Segmentation::obtained)
    }

    /// Where datagrams that are sent in a row may leave as one, and those of what size.
    #[inline]
    pub(crate) fn longest_joined(&self) -> usize {
        self.segmentation.as_ref().map_or(0, Segmentation::longest)
    }

    /// Takes note that datagrams of this size were not taken as one, if that is what the error says.
    #[cold]
    pub(crate) fn not_joined(&self, e: &io::Error, segment: Option<NonZeroU16>) {
        use libc::{EINVAL, EIO, EMSGSIZE, EOPNOTSUPP};
        let refused = matches!(e.raw_os_error(), Some(EINVAL | EIO | EMSGSIZE | EOPNOTSUPP));
        if let (true, Some(segmentation), Some(segment)) = (refused, &self.segmentation, segment) {
            segmentation.refused(segment);
        }
    }

    /// What the kernel counts for it.
    pub(super) fn usage(&self) -> SocketUsage {
        SocketUsage::of(&self.socket).unwrap_or_default()
    }

    #[inline]
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        if self.tries_first(mode) {
            match self.receive(buffer, Mode::Try, counters)? {
                None => {}
                arrival => return Ok(arrival),
            }
        }
        let Some(mode) = self.wait_as_long(mode, counters)? else { return Ok(None) };
        let received = self.receive_once(buffer, mode, counters);
        if self.is_local
            && matches!(received, Ok(None))
            && let Err(shut) = self.is_still_open(Some(counters))
        {
            // What came just before that.
            return self.receive_once(buffer, Mode::Try, counters)?.map(Some).ok_or(shut);
        }
        if self.errors.is_none() {
            return received;
        }
        let again = || self.receive_once(buffer, Mode::Try, counters);
        match self.receive_behind_errors(received, again) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => received,
        }
    }

    /// Whether a receive that may wait looks first for what has come: where it waits by a call of its own.
    #[inline]
    fn tries_first(&self, mode: Mode) -> bool {
        mode == Mode::Wait && self.ending.as_ref().is_some_and(|ending| !ending.is_over())
    }

    /// Waits as long as the mode says where that is a time: no call that receives takes one as such a wait needs it
    /// (recvmmsg(2) looks at its own only between datagrams). Returns how to receive afterwards; `None` where receiving was
    /// ended.
    ///
    /// Of a socket that others have, too, each wait is here: such a one may take the datagram that this one was woken for, and
    /// nothing but the ending may end its wait.
    #[inline]
    fn wait_as_long(&self, mode: Mode, counters: &Counters) -> io::Result<Option<Mode>> {
        let time = match mode {
            Mode::Try => return Ok(Some(mode)),
            Mode::Wait if self.ending.is_none() => return Ok(Some(mode)),
            Mode::Wait => None,
            Mode::WaitFor(time) => Some(time),
        };
        self.wait_for(time, counters)?;
        let is_over = self.ending.as_ref().is_some_and(Ending::is_over);
        Ok((!is_over).then_some(Mode::Try))
    }

    /// Waits until there is something to receive, an error that is pending included, or receiving was ended.
    fn wait_for(&self, time: Option<Duration>, counters: &Counters) -> io::Result<()> {
        let ending = self.ending.as_ref().map_or(-1, Ending::fd); // which is passed over
        let mut entries =
            [self.fd(), ending].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let time = time.map(TimeSpec::from);
        let time = time.as_ref().map_or(std::ptr::null(), |time| std::ptr::from_ref(time.as_ref()));
        counters.kernel_entries.one();
        // SAFETY: the entries and the time live through the call, and no signals are given.
        let result = unsafe { libc::ppoll(entries.as_mut_ptr(), 2, time, std::ptr::null()) };
        if result >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Whoever waits knows what is left of the time.
            e if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            e => Err(e),
        }
    }

    #[inline]
    fn receive_once(
        &self,
        buffer: &mut [u8],
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
        if self.control {
            return self.receive_with_control(buffer, &mut name, mode, counters);
        }
        let mut length = 0;
        // SAFETY: buffer, name and length outlive the call, with the sizes given. MSG_TRUNC
        // makes the kernel return the datagram's own length; it writes no more than fits.
        let received = entered(counters, || unsafe {
            length = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            libc::recvfrom(
                self.fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                mode.flags() | libc::MSG_TRUNC,
                name.as_mut_ptr().cast(),
                &mut length,
            )
        });
        let Some(n) = unless_empty(received)? else { return Ok(None) };
        // Without a name nobody sent it: this is how the kernel says that receiving was ended, but for a Unix socket.
        Ok((length > 0 || self.is_local).then(|| Arrival {
            len: n.min(buffer.len()),
            // SAFETY: recvfrom wrote `length` bytes of the name.
            from: unsafe { decode(name.as_ptr().cast(), length as usize) },
            local: None,
            truncated: n > buffer.len(),
            at: None,
            segment: None,
            link: None,
            meta: Meta::NONE,
        }))
    }

    fn receive_with_control(
        &self,
        buffer: &mut [u8],
        name: &mut MaybeUninit<libc::sockaddr_storage>,
        mode: Mode,
        counters: &Counters,
    ) -> io::Result<Option<Arrival>> {
        let mut control = MaybeUninit::<Control>::uninit();
        let mut vector =
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = header(&mut vector, name, Some(&mut control));
        let received =
            // SAFETY: the header points at a name, a vector and control data that outlive the call,
            // and at the caller's buffer.
            entered(counters, || unsafe { libc::recvmsg(self.fd(), &mut header, mode.flags()) });
        let Some(n) = unless_empty(received)? else { return Ok(None) };
        // SAFETY: recvmsg filled the name and the control data of this header.
        Ok((header.msg_namelen > 0).then(|| unsafe { arrival(&header, n) }))
    }

    #[inline]
    pub(super) fn send(&self, bytes: &[u8], to: &Peer, counters: &Counters) -> io::Result<()> {
        if to.local.is_some() | to.ecn.is_some() {
            return self.send_with_control(bytes, None, to, counters);
        }
        if stands_for_name(&to.address) {
            return self.send_to_name(bytes, to, counters);
        }
        let (name, length) = encode(&to.address);
        // SAFETY: bytes and name outlive the call, and length is the name's.
        let call = || unsafe {
            libc::sendto(
                self.fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                (&raw const name).cast(),
                length,
            )
        };
        self.send_behind_errors(|| entered(counters, call)).map(drop)
    }

    /// Sends datagrams of this size that lie behind each other (UDP_SEGMENT, Linux 4.18).
    pub(crate) fn send_segments(
        &self,
        bytes: &[u8],
        segment: NonZeroU16,
        to: &Peer,
        counters: &Counters,
    ) -> io::Result<()> {
        self.send_with_control(bytes, Some(segment), to, counters)
    }

    /// As `send`, from the address that the peer says, cut into datagrams of the size given.
    fn send_with_control(
        &self,
        bytes: &[u8],
        segment: Option<NonZeroU16>,
        to: &Peer,
        counters: &Counters,
    ) -> io::Result<()> {
        if self.is_local {
            // Which knows of neither, and would send all as one datagram.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut name_memory = MaybeUninit::<libc::sockaddr_storage>::uninit();
        let length = encode_into(&to.address, &mut name_memory);
        let mut vector =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = MaybeUninit::<Control>::uninit();
        let mut header = header(&mut vector, &mut name_memory, None);
        header.msg_namelen = length;
        // SAFETY: the control data outlives the header.
        unsafe {
            name_source(&mut header, control.as_mut_ptr().cast(), to);
            name_segment(&mut header, control.as_mut_ptr().cast(), segment);
        }
        // SAFETY: the header points at a name, a vector, control data and bytes that outlive the
        // call, which only reads them.
        unsafe { self.send_message(&header, counters) }
    }

    /// Sends a message that was prepared for sendmsg(2).
    ///
    /// # Safety
    /// The header points at a name, a vector, control data and bytes with their lengths, which live
    /// through the call; it only reads them.
    pub(crate) unsafe fn send_message(
        &self,
        header: *const libc::msghdr,
        counters: &Counters,
    ) -> io::Result<()> {
        // SAFETY: the caller vouches for the header.
        let call = || unsafe { libc::sendmsg(self.fd(), header, libc::MSG_DONTWAIT) };
        self.send_behind_errors(|| entered(counters, call)).map(drop)
    }

    /// shutdown(2) on an unconnected UDP socket answers ENOTCONN, but it does mark the
    /// socket and wake everyone who waits on it (inet_shutdown, since Linux 2.6).
    pub(super) fn end_receiving(&self, _local_address: SocketAddr) {
        if let Some(ending) = &self.ending {
            return ending.end(); // the others go on
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
    }
}

/// Binds a socket that has its options.
///
/// Where the system chooses a port for one whose address is shared, it may choose one that another server shares
/// (udp_lib_lport_inuse, Linux 6.18, passes over sockets of the same user that share). So another socket has it choose
/// one that nobody has, lets it be shared from then on, and keeps it until this one is bound there. So servers of weir
/// never meet; another program of the same user that has a port chosen for a shared address may still join one.
fn bind(socket: &Socket, endpoint: &Endpoint) -> Result<(), Error> {
    let Endpoint { mut address, options } = *endpoint;
    let failed = |source| Error::Bind { address: endpoint.address, source };
    if !options.reuse_port || address.port() != 0 {
        return socket.bind(&address.into()).map_err(failed);
    }
    let asking = |e| Error::io(format!("having a port chosen for {address}"), e);
    let chooses = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(asking)?;
    if options.only_v6 && address.is_ipv6() {
        chooses.set_only_v6(true).map_err(asking)?;
    }
    chooses.bind(&address.into()).map_err(failed)?;
    chooses.set_reuse_port(true).map_err(asking)?;
    let chosen = chooses.local_addr().map_err(asking)?.as_socket();
    let none = || asking(io::ErrorKind::InvalidData.into());
    address.set_port(chosen.ok_or_else(none)?.port());
    socket.bind(&address.into()).map_err(failed)
}

/// Enters the kernel by a call that answers a count or -1, again where a signal came in between.
#[inline]
fn entered(counters: &Counters, mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        counters.kernel_entries.one();
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// What was received; `None` where there was nothing.
#[inline]
fn unless_empty(received: io::Result<usize>) -> io::Result<Option<usize>> {
    match received {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        received => received.map(Some),
    }
}

fn set_flag(socket: &Socket, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: these options take an int.
    unsafe { set_option(socket, level, name, &on) }
}

/// Attaches a program to the sockets that share an address, which answers the place of the one
/// that is to have a datagram: the number of the core that it runs on, modulo the number of sockets.
fn steer_by_core(socket: &Socket, shard: Shard) -> io::Result<()> {
    /// Return the accumulator (BPF_A of linux/filter.h).
    const BPF_A: u32 = 0x10;
    shard.checked_core()?;
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let core = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, core),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::from(shard.of)),
        instruction(libc::BPF_RET | BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: this option takes such a program, whose instructions live through the call; the
    // kernel checks and copies them.
    unsafe { set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program) }
}

/// # Safety
/// The option takes a value of this type, and what that points at lives through the call.
pub(crate) unsafe fn set_option<V>(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: &V,
) -> io::Result<()> {
    // SAFETY: the value lives through the call; the caller vouches for its type.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<V>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Mode {
    fn flags(self) -> libc::c_int {
        match self {
            Mode::Wait => 0,
            Mode::Try | Mode::WaitFor(_) => libc::MSG_DONTWAIT,
        }
    }
}
