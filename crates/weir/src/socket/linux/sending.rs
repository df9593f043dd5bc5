//! How datagrams are sent: traffic class, hops, and what becomes of those that are longer than a packet.

use super::set_option;
use crate::socket::{PathMtu, SocketOptions};
use socket2::Socket;
use std::{io, net::SocketAddr};

/// Asks for what the options say. An error comes with the option's name.
pub(super) fn ask(
    socket: &Socket,
    address: SocketAddr,
    options: &SocketOptions,
) -> Result<(), (&'static str, io::Error)> {
    let set = |name, level, kind, value: libc::c_int| {
        // SAFETY: these options take an int.
        unsafe { set_option(socket, level, kind, &value) }.map_err(|e| (name, e))
    };
    let (v4, v6) = (libc::IPPROTO_IP, libc::IPPROTO_IPV6);
    // A socket of IPv6 may send by IPv4 as well, whose packets have options of their own.
    let is_v6 = address.is_ipv6();
    if let Some(class) = options.traffic_class.map(libc::c_int::from) {
        set("IP_TOS", v4, libc::IP_TOS, class)?;
        if is_v6 {
            set("IPV6_TCLASS", v6, libc::IPV6_TCLASS, class)?;
        }
    }
    if let Some(hops) = options.hops.map(libc::c_int::from) {
        set("IP_TTL", v4, libc::IP_TTL, hops)?;
        if is_v6 {
            set("IPV6_UNICAST_HOPS", v6, libc::IPV6_UNICAST_HOPS, hops)?;
        }
    }
    if let Some(hops) = options.group_hops.map(libc::c_int::from) {
        set("IP_MULTICAST_TTL", v4, libc::IP_MULTICAST_TTL, hops)?;
        if is_v6 {
            set("IPV6_MULTICAST_HOPS", v6, libc::IPV6_MULTICAST_HOPS, hops)?;
        }
    }
    let (of_v4, of_v6) = match options.path_mtu {
        PathMtu::System => return Ok(()),
        PathMtu::Fragment => (libc::IP_PMTUDISC_DONT, libc::IPV6_PMTUDISC_DONT),
        PathMtu::Discover => (libc::IP_PMTUDISC_DO, libc::IPV6_PMTUDISC_DO),
        PathMtu::Probe => (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE),
    };
    set("IP_MTU_DISCOVER", v4, libc::IP_MTU_DISCOVER, of_v4)?;
    if is_v6 {
        set("IPV6_MTU_DISCOVER", v6, libc::IPV6_MTU_DISCOVER, of_v6)?;
    }
    Ok(())
}
