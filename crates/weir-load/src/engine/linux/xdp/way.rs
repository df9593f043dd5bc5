//! The way of a frame to its target: by which device, and to which Ethernet address.

use std::{io, net::IpAddr};

use super::netlink::{Answer, Netlink, word};

/// By which device frames go, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The device's number.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub from: [u8; 6],
    /// The Ethernet address of the target, or of the router to it.
    pub to: [u8; 6],
    /// The longest packet, in bytes.
    pub mtu: usize,
}

/// Why there is none: what is wrong, and what to do.
pub type NoWay = (String, &'static str);

// Questions of rtnetlink, the structures they begin with, and attributes.
const GET_ROUTE: u16 = libc::RTM_GETROUTE;
const GET_NEIGHBOUR: u16 = libc::RTM_GETNEIGH;
const GET_DEVICE: u16 = libc::RTM_GETLINK;
const ROUTE: usize = 12;
const NEIGHBOUR: usize = 12;
const DEVICE: usize = 16;
const TO: u16 = libc::RTA_DST;
const BY: u16 = libc::RTA_OIF;
const ROUTER: u16 = libc::RTA_GATEWAY;
const NEIGHBOUR_IP: u16 = libc::NDA_DST;
const NEIGHBOUR_MAC: u16 = libc::NDA_LLADDR;
const NAME: u16 = libc::IFLA_IFNAME;
const MAC: u16 = libc::IFLA_ADDRESS;
const MTU: u16 = libc::IFLA_MTU;

/// Finds the way to a target as the kernel would go it.
pub fn to(target: IpAddr) -> Result<Way, NoWay> {
    let failed = |what: &str, e: io::Error| (format!("{what}: {e}"), "use another engine");
    let mut netlink =
        Netlink::open(libc::NETLINK_ROUTE).map_err(|e| failed("a socket of netlink", e))?;
    let ip = octets(target);
    let family = family(target);
    let mut fixed = [0; ROUTE];
    (fixed[0], fixed[1]) = (family, ip.len() as u8 * 8);
    let route = netlink
        .ask(GET_ROUTE, &fixed, &[(TO, &ip)])
        .map_err(|e| failed(&format!("the route to {target}"), e))?;
    let number = |answer: &Answer, at, kind| {
        answer.attribute(at, kind).filter(|value| value.len() >= 4).map(word)
    };
    let device = number(&route, ROUTE, BY)
        .ok_or_else(|| (format!("no device is on the route to {target}"), "use another engine"))?;
    let next = route.attribute(ROUTE, ROUTER).map_or(ip, <[u8]>::to_vec);

    let mut fixed = [0; DEVICE];
    fixed[4..8].copy_from_slice(&device.to_ne_bytes());
    let about = netlink
        .ask(GET_DEVICE, &fixed, &[])
        .map_err(|e| failed(&format!("the device to {target}"), e))?;
    let name = about.attribute(DEVICE, NAME).unwrap_or_default();
    let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    let kind = about.fixed(DEVICE).map(|fixed| u16::from_ne_bytes([fixed[2], fixed[3]]));
    let mac = about.attribute(DEVICE, MAC).and_then(|mac| mac.try_into().ok());
    let (Some(libc::ARPHRD_ETHER), Some(from)) = (kind, mac) else {
        let reason =
            format!("{name}, which is on the route to {target}, is not an Ethernet device");
        return Err((reason, "flood an address beyond one, or use another engine"));
    };
    let mtu = number(&about, DEVICE, MTU).unwrap_or(1500) as usize;

    let mut fixed = [0; NEIGHBOUR];
    fixed[0] = family;
    fixed[4..8].copy_from_slice(&device.to_ne_bytes());
    let neighbour = netlink.ask(GET_NEIGHBOUR, &fixed, &[(NEIGHBOUR_IP, &next)]).ok();
    let to =
        neighbour.and_then(|answer| answer.attribute(NEIGHBOUR, NEIGHBOUR_MAC)?.try_into().ok());
    let Some(to) = to else {
        let reason = format!("the Ethernet address on the way to {target} is not known");
        return Err((reason, "reach it once (ping); a control connection to it does that"));
    };
    Ok(Way { device, name, from, to, mtu })
}

/// Whether a device takes frames that a program redirects to it. `None`: the kernel does not say
/// (before Linux 6.3).
pub fn takes_frames(device: u32) -> Option<bool> {
    // Generic netlink: the family's number is asked for by its name.
    const CONTROL: u16 = 16;
    const HEADER: usize = 4;
    const GET_FAMILY: u8 = 3;
    const FAMILY_NAME: u16 = 2;
    const FAMILY_NUMBER: u16 = 1;
    // The family "netdev".
    const GET_NETDEV: u8 = 1;
    const NETDEV: u16 = 1;
    const FEATURES: u16 = 3;
    const TAKES_FRAMES: u64 = 1 << 2; // NETDEV_XDP_ACT_NDO_XMIT
    let mut netlink = Netlink::open(libc::NETLINK_GENERIC).ok()?;
    let family =
        netlink.ask(CONTROL, &[GET_FAMILY, 1, 0, 0], &[(FAMILY_NAME, b"netdev\0")]).ok()?;
    let number = family.attribute(HEADER, FAMILY_NUMBER)?.try_into().ok()?;
    let about = netlink
        .ask(u16::from_ne_bytes(number), &[GET_NETDEV, 1, 0, 0], &[(NETDEV, &device.to_ne_bytes())])
        .ok()?;
    let features = about.attribute(HEADER, FEATURES)?.try_into().ok()?;
    Some(u64::from_ne_bytes(features) & TAKES_FRAMES != 0)
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_way_of_frames_over_loopback() {
        for address in ["127.0.0.1", "::1"] {
            let (reason, advice) = to(address.parse().unwrap()).unwrap_err();
            assert!(
                reason.contains("not an Ethernet device") || reason.contains("route"),
                "{reason}"
            );
            assert!(!advice.is_empty());
        }
    }
}
