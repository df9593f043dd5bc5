//! Where server and generator meet: on loopback, on a link of their own, or over hosts ([`crate::hosts`]).
//!
//! A link of their own is a pair of virtual devices, each with a network stack of its own: one end is the calling thread's from then on,
//! for the generator; the other is the server's. This process and its children alone have them, and they go with those,
//! however any of them ends. Nothing else of the machine is changed.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod native;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use weir::Unavailable;
use weir_load::engine::WITHOUT_OFFLOAD;

use crate::hosts::Fleet;

/// Addresses of the server's end: of those set aside for benchmarks (RFC 2544 and 5180).
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

/// From which address on clients at the generator's end may come, beside its own: also of those set aside. They are there
/// once [`Link::give_clients_addresses`] has been called.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 18, 64, 1);
/// The same for other clients, so that the two kinds have no address in common.
pub const OTHER_CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);

/// The networks of these.
const NETWORKS_OF_CLIENTS: [&str; 3] = ["198.18.64.0/18", "198.18.128.0/17", "198.19.0.0/16"];

/// The device at the server's end.
const SERVER: &str = "weir0";

/// The longest payload that goes over a link in one packet, whichever the version of IP.
pub const LONGEST_BYTES: u32 = 1500 - 48;

/// The speed of a link in bits per second, as its driver says it; `None` where that says none. A link is made for it and
/// goes away again; the calling thread stays where it is.
///
/// # Errors
/// What this machine lacks, and what to do.
pub fn bits_per_s() -> Result<Option<u64>, Unavailable> {
    let asked = std::thread::spawn(|| {
        let link = Link::make()?;
        let speed = link.server.inside(|| weir::machine::link_bits_per_s(SERVER));
        speed.map_err(|error| Unavailable::new("the speed of a virtual link", error.to_string()))
    });
    asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The engine that goes past sockets, for loads that come from no socket fast enough.
pub const ENGINE: &str = "xdp";

/// Up to so many datagrams per second come from sockets (`sendmmsg`). The other engine leaves the kernel a pool of pages with each call
/// whose datagrams are not received yet. It looks through all of them to give one up, a second later, and has numbers for
/// 65,534 (Linux 6.18): at the short calls of an even load that took it a quarter of a core.
const FROM_SOCKETS_PER_S: u64 = 200_000;

/// The engine of the generator on a link for sinks under so many datagrams per second (`None`: as fast as possible), unless it is to
/// go without offload: the same for all rows that are offered as many.
pub fn engine(per_second: Option<u64>) -> &'static str {
    match per_second {
        Some(per_second) if per_second <= FROM_SOCKETS_PER_S => WITHOUT_OFFLOAD,
        _ => ENGINE,
    }
}

/// Where server and generator meet.
pub enum Site {
    /// On the loopback device.
    Loopback {
        /// Whether it has IPv6.
        has_ipv6: bool,
    },
    /// On a link of their own.
    Link(Link),
    /// On hosts of their own.
    Hosts(Arc<Fleet>),
}

/// A link, for as long as this is kept.
pub struct Link {
    server: native::Namespace,
    has_ipv6: bool,
}

impl Link {
    /// Makes a link. The calling thread is at the generator's end from now on, for good.
    ///
    /// # Errors
    /// What this machine lacks, and what to do.
    pub fn make() -> Result<Self, Unavailable> {
        let (server, has_ipv6) = native::make()
            .map_err(|reason| Unavailable::new(native::NAME, reason))
            .map_err(|unavailable| unavailable.advise(native::ADVICE))?;
        Ok(Self { server, has_ipv6 })
    }

    /// Lets the generator's end have every address from [`CLIENTS`] and [`OTHER_CLIENTS`] on.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn give_clients_addresses(&self) -> Result<(), Unavailable> {
        native::route(&self.server, &NETWORKS_OF_CLIENTS)
            .map_err(|reason| Unavailable::new("many addresses on a virtual link", reason))
    }

    /// What it is, for a report.
    pub fn describe(&self) -> &'static str {
        native::DESCRIPTION
    }
}

impl Site {
    /// The server's address: of IPv4, but over hosts that which all reach.
    pub fn server(&self) -> IpAddr {
        match self {
            Self::Loopback { .. } => Ipv4Addr::LOCALHOST.into(),
            Self::Link(_) => SERVER_V4.into(),
            Self::Hosts(fleet) => fleet.address(),
        }
    }

    /// The server's address of IPv6 beside that, where there is any.
    pub fn server_v6(&self) -> Option<IpAddr> {
        match self {
            Self::Loopback { has_ipv6 } => has_ipv6.then_some(Ipv6Addr::LOCALHOST.into()),
            Self::Link(link) => link.has_ipv6.then_some(SERVER_V6.into()),
            Self::Hosts(_) => None,
        }
    }

    /// The link, if there is one.
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Loopback { .. } | Self::Hosts(_) => None,
            Self::Link(link) => Some(link),
        }
    }

    /// The hosts, if there are several.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        match self {
            Self::Loopback { .. } | Self::Link(_) => None,
            Self::Hosts(fleet) => Some(fleet),
        }
    }

    /// Calls `f` at the server's end: what it starts runs there, but for other hosts.
    pub fn at_server<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Loopback { .. } | Self::Hosts(_) => f(),
            Self::Link(link) => link.server.inside(f),
        }
    }
}
