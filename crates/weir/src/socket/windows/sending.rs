//! How datagrams are sent: hops, and whether those that are longer than a packet may be cut.

use super::set_flag;
use crate::{
    Error, Unavailable,
    socket::{PathMtu, SocketOptions},
};
use socket2::Socket;
use std::net::SocketAddr;
use windows_sys::Win32::Networking::WinSock::{
    IP_DONTFRAGMENT, IPPROTO_IP, IPPROTO_IPV6, IPV6_DONTFRAG,
};

/// Asks for what the options say.
pub(super) fn ask(
    socket: &Socket,
    address: SocketAddr,
    options: &SocketOptions,
) -> Result<(), Error> {
    let refused = |what: &str| {
        let what = format!("{what} on the socket for {address}");
        move |e| Error::io(what, e)
    };
    if options.traffic_class.is_some() {
        let reason = "Windows lets no program set IP_TOS (it has Group Policy and qWAVE for that)";
        return Err(Unavailable::new("the traffic class of datagrams", reason)
            .advise("leave it to the system")
            .into());
    }
    if let Some(hops) = options.hops {
        match address {
            SocketAddr::V4(_) => socket.set_ttl_v4(hops.into()),
            SocketAddr::V6(_) => socket.set_unicast_hops_v6(hops.into()),
        }
        .map_err(refused("IP_TTL"))?;
    }
    if let Some(hops) = options.group_hops {
        match address {
            SocketAddr::V4(_) => socket.set_multicast_ttl_v4(hops.into()),
            SocketAddr::V6(_) => socket.set_multicast_hops_v6(hops.into()),
        }
        .map_err(refused("IP_MULTICAST_TTL"))?;
    }
    match options.path_mtu {
        PathMtu::System | PathMtu::Fragment => Ok(()), // routers may cut what is sent here
        PathMtu::Discover => match address {
            SocketAddr::V4(_) => set_flag(socket, IPPROTO_IP, IP_DONTFRAGMENT),
            SocketAddr::V6(_) => set_flag(socket, IPPROTO_IPV6, IPV6_DONTFRAG),
        }
        .map_err(refused("IP_DONTFRAGMENT")),
        PathMtu::Probe => {
            Err(Unavailable::new("probing the path", "it is not supported on Windows yet")
                .advise("use discover")
                .into())
        }
    }
}
