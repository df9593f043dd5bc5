//! Which device has an address, and what must be known of it.
//!
//! Origin: getifaddrs(3), netdevice(7), linux/ethtool.h.

use crate::{
    Error,
    machine::ethtool::Ethtool,
    socket::{DatagramSocket, Endpoint, ReceiveBuffer, SocketOptions},
};
use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    net::if_::{InterfaceFlags, if_nametoindex},
    sys::socket::SockaddrStorage,
};
use std::{io, net::IpAddr, os::fd::RawFd};

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub index: u32,
    pub mac: [u8; 6],
    /// Longest packet it sends, in bytes, without the Ethernet header.
    pub mtu: usize,
    /// Queues that it receives by.
    pub queues: u32,
}

/// Why no device can be used for an address: what is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoDevice {
    pub reason: String,
    pub advice: String,
}

/// A plain socket that keeps an address ours while datagrams come by a device. It is never read, so it needs no room. By it
/// leaves what is sent to peers of whom no frame came, and what leaves as one.
///
/// # Errors
/// Those of [`DatagramSocket::bind`].
pub fn hold(endpoint: &Endpoint) -> Result<DatagramSocket, Error> {
    let options = SocketOptions { receive_buffer: ReceiveBuffer::System, ..endpoint.options };
    DatagramSocket::bind(&Endpoint { options, ..*endpoint })
}

/// The place of a device among those that addresses had before; a new one comes behind them.
pub fn place_in<D>(
    devices: &mut Vec<D>,
    is_its: impl Fn(&D) -> bool,
    new: impl FnOnce() -> D,
) -> usize {
    devices.iter().position(is_its).unwrap_or_else(|| {
        devices.push(new());
        devices.len() - 1
    })
}

/// An address of a device, or its Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    is_loopback: bool,
    holds: Holds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Address(IpAddr),
    Ethernet([u8; 6]),
}

/// The one device that has an address. `control` is any socket of the network it is in.
///
/// # Errors
/// What the system answered.
pub fn of_address(address: IpAddr, control: RawFd) -> io::Result<Result<Device, NoDevice>> {
    let entries = entries()?;
    let (name, mac) = match choose(&entries, address) {
        Ok(chosen) => chosen,
        Err(none) => return Ok(Err(none)),
    };
    let index = if_nametoindex(name.as_str())?;
    let mut request = request_for(&name);
    // SAFETY: SIOCGIFMTU takes such a request, which outlives the call, and fills in the MTU.
    if unsafe { libc::ioctl(control, libc::SIOCGIFMTU as _, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call filled it in.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu } as usize;
    let queues = queues(&name);
    Ok(Ok(Device { name, index, mac, mtu, queues }))
}

/// The name and number of the device that has an address, whatever its kind.
///
/// # Errors
/// What the system answered.
pub fn named(address: IpAddr) -> io::Result<Result<(String, u32), NoDevice>> {
    let entries = entries()?;
    match having(&entries, address) {
        Ok(entry) => Ok(Ok((entry.name.clone(), if_nametoindex(entry.name.as_str())?))),
        Err(none) => Ok(Err(none)),
    }
}

fn refuse<T>(reason: String, advice: &str) -> Result<T, NoDevice> {
    Err(NoDevice { reason, advice: advice.into() })
}

/// The one device that has the address.
fn having(entries: &[Entry], address: IpAddr) -> Result<&Entry, NoDevice> {
    let having: Vec<_> =
        entries.iter().filter(|entry| entry.holds == Holds::Address(address)).collect();
    if let [entry] = having[..] {
        return Ok(entry);
    }
    let reason = match having.len() {
        0 if address.is_unspecified() => format!("{address} is every address of the machine"),
        0 => format!("no device has the address {address}"),
        _ => format!("several devices have the address {address}"),
    };
    refuse(reason, "bind the address of one device (`ip address` lists them)")
}

/// Which of the devices has the address, with its Ethernet address.
fn choose(entries: &[Entry], address: IpAddr) -> Result<(String, [u8; 6]), NoDevice> {
    let entry = having(entries, address)?;
    if entry.is_loopback {
        let reason = format!("{address} is on the loopback device, which has no frames");
        return refuse(
            reason,
            "bind the address of an Ethernet device, or use another provider on loopback",
        );
    }
    let mac = entries.iter().find_map(|other| match other.holds {
        Holds::Ethernet(mac) if other.name == entry.name => Some(mac),
        _ => None,
    });
    match mac {
        Some(mac) => Ok((entry.name.clone(), mac)),
        None => refuse(
            format!("{}, which has the address {address}, is not an Ethernet device", entry.name),
            "use another provider on it",
        ),
    }
}

fn entries() -> io::Result<Vec<Entry>> {
    let entry = |one: InterfaceAddress| {
        let holds = read(&one.address?)?;
        let is_loopback = one.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        Some(Entry { name: one.interface_name, is_loopback, holds })
    };
    Ok(getifaddrs()?.filter_map(entry).collect())
}

fn read(address: &SockaddrStorage) -> Option<Holds> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(Holds::Address(v4.ip().into()));
    }
    if let Some(v6) = address.as_sockaddr_in6() {
        return Some(Holds::Address(v6.ip().into()));
    }
    let link = address.as_link_addr()?;
    let is_ethernet = link.hatype() == libc::ARPHRD_ETHER && link.halen() == 6;
    link.addr().filter(|_| is_ethernet).map(Holds::Ethernet)
}

fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request
}

/// Queues that a device receives by; 1 where it does not say.
fn queues(name: &str) -> u32 {
    Ethtool::of(name).ok().and_then(|device| device.receive_queues()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    fn entry(name: &str, holds: Holds) -> Entry {
        Entry { name: name.into(), is_loopback: name == "lo", holds }
    }

    fn address(text: &str) -> Holds {
        Holds::Address(text.parse().unwrap())
    }

    #[test]
    fn an_address_has_one_ethernet_device_or_the_refusal_says_what_to_do() {
        let mac = [2, 0, 0, 0, 0, 1];
        let entries = [
            entry("lo", Holds::Ethernet([0; 6])),
            entry("lo", address("127.0.0.1")),
            entry("eth0", Holds::Ethernet(mac)),
            entry("eth0", address("10.0.0.1")),
            entry("eth0", address("fe80::1")),
            entry("eth1", Holds::Ethernet([2, 0, 0, 0, 0, 2])),
            entry("eth1", address("fe80::1")),
            entry("tun0", address("10.0.1.1")),
        ];
        assert_eq!(choose(&entries, "10.0.0.1".parse().unwrap()), Ok(("eth0".into(), mac)));
        for (asked, part) in [
            ("127.0.0.1", "loopback"),
            ("0.0.0.0", "every address"),
            ("::", "every address"),
            ("10.9.9.9", "no device"),
            ("fe80::1", "several"),
            ("10.0.1.1", "not an Ethernet device"),
        ] {
            let refused = choose(&entries, asked.parse().unwrap()).unwrap_err();
            assert!(refused.reason.contains(part), "{asked}: {refused:?}");
            assert!(!refused.advice.is_empty());
        }
    }

    #[test]
    fn the_loopback_device_of_this_machine_is_refused() {
        let control = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = "127.0.0.1".parse().unwrap();
        let refused = of_address(address, control.as_raw_fd()).unwrap().unwrap_err();
        assert!(refused.reason.contains("loopback"), "{refused:?}");
    }
}
