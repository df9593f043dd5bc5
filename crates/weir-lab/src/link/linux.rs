//! Network namespaces, and a pair of veth devices between two of them.
//!
//! A namespace lives as long as a thread or a process is in it, or a descriptor of it is open. The
//! devices are made by `ip` of iproute2.
//!
//! Origin: network_namespaces(7), veth(4), ip-link(8); linux/ethtool.h.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::AsRawFd as _,
    process::Command,
    thread,
};

use super::{SERVER_V4, SERVER_V6};

pub(super) const ADVICE: &str =
    "it needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), veth in the kernel, and `ip` of iproute2";

/// Addresses of the generator's end.
pub(super) const GENERATOR_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub(super) const GENERATOR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);

/// The device of the server, and that of the generator.
const SERVER: &str = "weir0";
const GENERATOR: &str = "weir1";

/// A network namespace that can be entered.
pub(super) struct Namespace(File);

impl Namespace {
    /// Takes the calling thread into a new one, for good.
    fn enter_new() -> io::Result<Self> {
        // SAFETY: takes no pointers; it changes the calling thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// Makes one that the calling thread stays outside of.
    fn new() -> io::Result<Self> {
        thread::spawn(Self::enter_new).join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
    }

    fn enter(&self) -> io::Result<()> {
        // SAFETY: takes no pointers; the descriptor is open; it changes the calling thread alone.
        if unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Calls `f` in it, on a thread of its own.
    pub(super) fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let there = || {
            self.enter().expect("a namespace that this process made and holds");
            f()
        };
        thread::scope(|scope| scope.spawn(there).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Makes both namespaces and the link, and takes the calling thread to the generator's end. Answers the
/// server's, and whether there is IPv6.
pub(super) fn make() -> Result<(Namespace, bool), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let server = Namespace::new().map_err(failed("making a network namespace"))?;
    Namespace::enter_new().map_err(failed("making a network namespace"))?;
    ip(&["link", "add", GENERATOR, "type", "veth", "peer", "name", SERVER])?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), server.0.as_raw_fd());
    ip(&["link", "set", SERVER, "netns", &path])?;
    set_up(GENERATOR, &format!("{GENERATOR_V4}/30"))?;
    server.inside(|| {
        set_up(SERVER, &format!("{SERVER_V4}/30"))?;
        receive_together(SERVER).map_err(failed("ETHTOOL_SGRO, which turns GRO on"))
    })?;
    // A kernel without IPv6 refuses such addresses.
    let v6 = |device, address: String| ip(&["address", "add", &address, "dev", device, "nodad"]);
    let has_ipv6 = v6(GENERATOR, format!("{GENERATOR_V6}/64")).is_ok()
        && server.inside(|| v6(SERVER, format!("{SERVER_V6}/64"))).is_ok();
    Ok((server, has_ipv6))
}

fn set_up(device: &str, address: &str) -> Result<(), String> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", address, "dev", device])?;
    ip(&["link", "set", device, "up"])
}

/// `ip`, in the namespace of the calling thread.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let command = format!("ip {}", arguments.join(" "));
    let output =
        Command::new("ip").args(arguments).output().map_err(|e| format!("{command}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Turns GRO on, with which a veth has a queue that frames can be put into.
fn receive_together(device: &str) -> io::Result<()> {
    const SET_GRO: u32 = 0x2c; // ETHTOOL_SGRO
    let any = UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value { command: SET_GRO, data: 1 };
    // SAFETY: all zeroes is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL takes such a request; what it points at is what this command reads, and
    // outlives the call.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
