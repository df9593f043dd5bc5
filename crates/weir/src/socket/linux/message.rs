//! Message headers, addresses and control data of Linux, as its calls read and write them.

use super::local::{LOCAL_NAME_BYTES, decode_local, encode_local};
use crate::socket::{Arrival, Meta, Peer, names::stands_for_name};
use std::{
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    num::NonZeroU16,
    time::Duration,
};

/// Room for the control data of one receive or send: packet information (IPv6, the larger), a
/// time stamp, traffic class, hops, and the size of a segment, each with its header.
pub(crate) const CONTROL_BYTES: usize = 144;

/// Control data, aligned as the kernel's headers want it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control([u8; CONTROL_BYTES]);

pub(super) fn header(
    vector: &mut libc::iovec,
    name: &mut MaybeUninit<libc::sockaddr_storage>,
    control: Option<&mut MaybeUninit<Control>>,
) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    if let Some(control) = control {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
    }
    header
}

/// Reads a header that recvmsg filled.
///
/// # Safety
/// The kernel filled the header's name and control data, and they are still there.
#[inline]
pub(super) unsafe fn arrival(header: &libc::msghdr, len: usize) -> Arrival {
    // SAFETY: the caller vouches for the name, of msg_namelen bytes.
    let from = unsafe { decode(header.msg_name.cast(), header.msg_namelen as usize) };
    let mut arrival = Arrival {
        len,
        from,
        local: None,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        at: None,
        segment: None,
        link: None,
        meta: Meta::NONE,
    };
    if header.msg_controllen > 0 {
        // SAFETY: the caller vouches for the control data, of msg_controllen bytes.
        unsafe { read_control(header, &mut arrival) };
    }
    arrival
}

/// Reads packet information, time stamp, traffic class, hops and size of the segments from the control data of a header.
///
/// # Safety
/// `msg_control` points at `msg_controllen` bytes that the kernel filled.
pub(crate) unsafe fn read_control(header: &libc::msghdr, arrival: &mut Arrival) {
    // SAFETY: the caller vouches for the control data; the CMSG functions stay inside it.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers that lie inside the data.
        let control = unsafe { &*next };
        // SAFETY: as above; the data follows its header.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (control.cmsg_level, control.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info: libc::in_pktinfo =
                    // SAFETY: the kernel puts an in_pktinfo behind this header.
                    unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                arrival.local = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                arrival.meta.interface = u32::try_from(info.ipi_ifindex).ok();
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info: libc::in6_pktinfo =
                    // SAFETY: the kernel puts an in6_pktinfo behind this header.
                    unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                arrival.local = Some(IpAddr::from(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                arrival.meta.interface = Some(info.ipi6_ifindex);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel puts a timespec behind this header.
                let at: libc::timespec = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                arrival.at = Some(Duration::new(at.tv_sec as u64, at.tv_nsec as u32));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                // SAFETY: the kernel puts a byte behind this header.
                arrival.meta.traffic_class = Some(unsafe { data.read() });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // SAFETY: the kernel puts an int behind this header.
                let class = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                arrival.meta.traffic_class = u8::try_from(class).ok();
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                // SAFETY: the kernel puts an int behind this header.
                let hops = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                arrival.meta.hops = u8::try_from(hops).ok();
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the kernel puts an int behind this header.
                let bytes = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                arrival.segment = u16::try_from(bytes).ok().and_then(NonZeroU16::new);
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

/// Room for the control data of a send, in bytes: packet information of IPv6, the larger, a traffic class, and the
/// size of the segments, each with its header.
pub(crate) const SEND_CONTROL_BYTES: usize = 88;

/// Lets a datagram leave from the address that its peer says, or from one of the system's choice, and with the mark
/// that the peer says, if any.
///
/// # Safety
/// `control` points at [`SEND_CONTROL_BYTES`] writable bytes, aligned to 8, which stay as long as the
/// header is used.
#[inline]
pub(crate) unsafe fn name_source(
    header: &mut libc::msghdr,
    control: *mut libc::c_void,
    peer: &Peer,
) {
    header.msg_control = std::ptr::null_mut();
    header.msg_controllen = 0;
    match peer.source() {
        None => {}
        Some(IpAddr::V4(local)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(local.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            // SAFETY: the caller vouches for the room.
            unsafe { write_control(header, control, (libc::IPPROTO_IP, libc::IP_PKTINFO), info) }
        }
        Some(IpAddr::V6(local)) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: local.octets() },
                ipi6_ifindex: 0,
            };
            // SAFETY: as above.
            unsafe {
                write_control(header, control, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
            }
        }
    }
    if let Some(ecn) = peer.ecn {
        // The packets of an address of IPv4 in IPv6 form are those of IPv4.
        let kind = match peer.address.ip().to_canonical() {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        // SAFETY: as above.
        unsafe { write_control(header, control, kind, libc::c_int::from(ecn as u8)) };
    }
}

/// Lets the bytes of a send be cut into datagrams of this size, if any is given. Follows
/// [`name_source`].
///
/// # Safety
/// As for [`name_source`].
#[inline]
pub(crate) unsafe fn name_segment(
    header: &mut libc::msghdr,
    control: *mut libc::c_void,
    segment: Option<NonZeroU16>,
) {
    if let Some(segment) = segment {
        // SAFETY: the caller vouches for the room.
        unsafe {
            write_control(header, control, (libc::SOL_UDP, libc::UDP_SEGMENT), segment.get());
        }
    }
}

/// Adds control data behind what the header has already.
///
/// # Safety
/// There is room for `data` with a header in front of it in `control`, behind what is there.
unsafe fn write_control<T>(
    header: &mut libc::msghdr,
    control: *mut libc::c_void,
    (level, kind): (libc::c_int, libc::c_int),
    data: T,
) {
    let bytes = mem::size_of::<T>() as libc::c_uint;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the caller vouches for the room, in which this
    // header begins behind the last one.
    unsafe {
        let behind: usize = header.msg_controllen as _;
        let space = behind + libc::CMSG_SPACE(bytes) as usize;
        debug_assert!(space <= SEND_CONTROL_BYTES);
        header.msg_control = control;
        header.msg_controllen = space as _;
        let next = control.byte_add(behind).cast::<libc::cmsghdr>();
        (*next).cmsg_level = level;
        (*next).cmsg_type = kind;
        (*next).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(next).cast::<T>().write_unaligned(data);
    }
}

/// An address of no one, for a name of a family that is not the internet's.
pub(crate) const NOBODY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Reads a socket address as the kernel writes it: that of a Unix socket is one that stands for its name, and any other that is
/// none of the internet that of no one.
///
/// # Safety
/// `name` points at `length` readable bytes.
#[inline]
pub(crate) unsafe fn decode(name: *const u8, length: usize) -> SocketAddr {
    let mut address = NOBODY;
    // SAFETY: the caller's word.
    unsafe { decode_into(name, length, &mut address) };
    address
}

/// The same, into where the address is wanted: an address that is written in parts and moved as a
/// whole right afterwards keeps the core waiting. What is neither of the internet nor a name changes nothing.
///
/// # Safety
/// `name` points at `length` readable bytes.
#[inline(always)]
pub(crate) unsafe fn decode_into(name: *const u8, length: usize, address: &mut SocketAddr) {
    if length < mem::size_of::<libc::sa_family_t>() {
        return;
    }
    // SAFETY: at least a family is there.
    let family = unsafe { name.cast::<libc::sa_family_t>().read_unaligned() };
    if family == libc::AF_INET as libc::sa_family_t && length >= mem::size_of::<libc::sockaddr_in>()
    {
        // SAFETY: the length covers a sockaddr_in.
        let v4 = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
        let ip = v4.sin_addr.s_addr.to_ne_bytes().into();
        *address = SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)));
    } else if family == libc::AF_INET6 as libc::sa_family_t
        && length >= mem::size_of::<libc::sockaddr_in6>()
    {
        // SAFETY: the length covers a sockaddr_in6.
        let v6 = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
        *address = SocketAddr::V6(SocketAddrV6::new(
            v6.sin6_addr.s6_addr.into(),
            u16::from_be(v6.sin6_port),
            v6.sin6_flowinfo,
            v6.sin6_scope_id,
        ));
    } else if family == libc::AF_UNIX as libc::sa_family_t
        // SAFETY: the caller's word.
        && let Some(stands_for_it) = unsafe { decode_local(name, length) }
    {
        *address = stands_for_it;
    }
}

/// Writes an address as the kernel reads it, be it of the internet or one that stands for the name of a Unix socket, and
/// returns its length.
#[inline]
pub(super) fn encode_into(
    address: &SocketAddr,
    storage: &mut MaybeUninit<libc::sockaddr_storage>,
) -> libc::socklen_t {
    if stands_for_name(address) {
        const _: () = assert!(LOCAL_NAME_BYTES <= mem::size_of::<libc::sockaddr_storage>());
        // SAFETY: the storage has room for it, and bytes that may have any value.
        return encode_local(address, unsafe { &mut *storage.as_mut_ptr().cast() });
    }
    let (name, length) = encode(address);
    // SAFETY: a Name is smaller than the storage it is written to.
    unsafe { storage.as_mut_ptr().cast::<Name>().write_unaligned(name) };
    length
}

/// A name large enough for both families of the internet.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Writes a socket address as the kernel reads it, with its length.
#[inline]
pub(crate) fn encode(address: &SocketAddr) -> (Name, libc::socklen_t) {
    match address {
        SocketAddr::V4(v4) => (
            Name {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            mem::size_of::<libc::sockaddr_in>() as libc::socklen_t,
        ),
        SocketAddr::V6(v6) => (
            Name {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                },
            },
            mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t,
        ),
    }
}
