//! Which network devices have an address.
//!
//! Origin: getifaddrs(3).

use std::{
    ffi::CStr,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

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
    let mut first = std::ptr::null_mut();
    // SAFETY: writes the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return None;
    }
    let mut all = Vec::new();
    let mut at = first.cast_const();
    // SAFETY: the list is well formed until it is freed, and ends with null.
    while let Some(one) = unsafe { at.as_ref() } {
        at = one.ifa_next;
        // SAFETY: an address is as long as its family says, or absent.
        let Some(address) = (unsafe { ip(one.ifa_addr) }) else { continue };
        // SAFETY: a name of the list ends with a zero.
        let name = unsafe { CStr::from_ptr(one.ifa_name) }.to_string_lossy().into_owned();
        all.push((address, name));
    }
    // SAFETY: the list that was made above, which nothing refers to any more.
    unsafe { libc::freeifaddrs(first) };
    Some(all)
}

/// # Safety
/// The address is null, or as long as its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller vouches for it.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: of this family, so of this type.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so of this type.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_no_device_has_none_of_ours() {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(names(&[loopback, loopback]), Some(vec!["lo".into()]));
        assert_eq!(names(&[loopback, "192.0.2.77".parse().unwrap()]), None);
    }
}
