//! Where server and generator meet: on loopback, or on a link of their own.
//!
//! A link is a pair of veth devices between two network namespaces without names: one is the calling
//! thread's from then on, for the generator; the other is the server's. They are held by this process
//! and its children alone, and go with them, and the devices with the namespaces, however any of
//! them ends. Nothing else of the machine is changed.
//!
//! The server's device has GRO, so that it takes frames of programs also where no program is attached
//! to it: so all rows are flooded in the same way.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod native;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir::Unavailable;

/// Addresses of the server's end: of those set aside for benchmarks (RFC 2544 and 5180).
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

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

/// The engine of the generator on a link, unless it is to go without offload.
pub const ENGINE: &str = "xdp";

/// Where server and generator meet.
pub enum Site {
    /// On the loopback device.
    Loopback {
        /// Whether it has IPv6.
        has_ipv6: bool,
    },
    /// On a link of their own.
    Link(Link),
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
            .map_err(|reason| Unavailable::new("a virtual link (veth)", reason))
            .map_err(|unavailable| unavailable.advise(native::ADVICE))?;
        Ok(Self { server, has_ipv6 })
    }

    /// What it is, for a report.
    pub fn describe(&self) -> &'static str {
        "a pair of veth devices between two separate network namespaces, with GRO at the server's"
    }
}

impl Site {
    /// The server's address of IPv4.
    pub fn server_v4(&self) -> IpAddr {
        match self {
            Self::Loopback { .. } => Ipv4Addr::LOCALHOST.into(),
            Self::Link(_) => SERVER_V4.into(),
        }
    }

    /// The server's address of IPv6, where there is any.
    pub fn server_v6(&self) -> Option<IpAddr> {
        match self {
            Self::Loopback { has_ipv6 } => has_ipv6.then_some(Ipv6Addr::LOCALHOST.into()),
            Self::Link(link) => link.has_ipv6.then_some(SERVER_V6.into()),
        }
    }

    /// The link, if there is one.
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Loopback { .. } => None,
            Self::Link(link) => Some(link),
        }
    }

    /// Calls `f` at the server's end: what it starts runs there.
    pub fn at_server<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Loopback { .. } => f(),
            Self::Link(link) => link.server.inside(f),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod engine_tests;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// On a thread of its own, which the link takes to its end.
    pub fn on_a_link(test: impl FnOnce(&Site) + Send + 'static) {
        let run = move || match Link::make() {
            Ok(link) => test(&Site::Link(link)),
            Err(unavailable) => {
                let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
                assert!(required != "all", "required by WEIR_REQUIRE, but {unavailable}");
                eprintln!("not run: {unavailable}");
            }
        };
        std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    fn devices() -> String {
        std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()
    }

    #[test]
    fn its_driver_says_how_fast_it_is() {
        // The fixed speed of veth.
        on_a_link(|_| assert_eq!(bits_per_s().unwrap(), Some(10_000_000_000)));
    }

    #[test]
    fn what_one_end_sends_comes_at_the_other_and_nowhere_else() {
        let before = devices();
        on_a_link(|site| {
            for server in [Some(site.server_v4()), site.server_v6()].into_iter().flatten() {
                let sink = site.at_server(|| UdpSocket::bind((server, 0))).unwrap();
                sink.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
                assert!(UdpSocket::bind((server, 0)).is_err(), "it is the other end's address");
                let any: IpAddr = if server.is_ipv4() {
                    Ipv4Addr::UNSPECIFIED.into()
                } else {
                    Ipv6Addr::UNSPECIFIED.into()
                };
                let socket = UdpSocket::bind((any, 0)).unwrap();
                socket.send_to(b"hello", sink.local_addr().unwrap()).unwrap();
                let (size, from) = sink.recv_from(&mut [0; 9]).unwrap();
                assert_eq!(size, 5);
                let own: [IpAddr; 2] = [native::GENERATOR_V4.into(), native::GENERATOR_V6.into()];
                assert!(own.contains(&from.ip()), "{from}");
            }
        });
        let names = |text: &str| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.split_once(':'));
            names.map(|(name, _)| name.trim().to_owned()).collect()
        };
        assert_eq!(names(&devices()), names(&before), "the machine's own devices are untouched");
    }
}
