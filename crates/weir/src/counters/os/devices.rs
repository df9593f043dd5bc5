//! Which network devices have an address.
//!
//! Origin: getifaddrs(3).

use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    sys::socket::SockaddrStorage,
};
use std::net::IpAddr;

/// The names of the devices that have one of these addresses, in the calling thread's network. `None` if
/// one is of no device, or the system does not say.
pub(super) fn names(addresses: &[IpAddr]) -> Option<Vec<String>> {
    let all = all()?;
    let mut names = Vec::new();
    for address in addresses {
        let having = all.iter().filter(|(of, _)| of == address).map(|(_, name)| name.clone());
        let before = names.len();
        names.extend(having);
        if names.len() == before {
            return None;
        }
    }
    names.sort();
    names.dedup();
    Some(names)
}

fn all() -> Option<Vec<(IpAddr, String)>> {
    let of = |one: InterfaceAddress| Some((ip(&one.address?)?, one.interface_name));
    Some(getifaddrs().ok()?.filter_map(of).collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_has_its_address_and_no_device_has_none_of_ours() {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(names(&[loopback, loopback]), Some(vec!["lo".into()]));
        assert_eq!(names(&[loopback, "192.0.2.77".parse().unwrap()]), None);
    }
}
