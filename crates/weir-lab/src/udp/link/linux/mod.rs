//! Network namespaces, and a pair of veth devices between two of them.
//!
//! A namespace lives as long as a thread or a process is in it, or a descriptor of it is open. These have no names, so the
//! devices go with the last of these. They are made by `ip` of iproute2.
//!
//! The server's device has GRO, so that it takes frames of programs also where no program is attached to it: so all rows
//! are flooded in the same way.
//!
//! Origin: network_namespaces(7), veth(4), ip-link(8).

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod tests;

use nix::sched::{CloneFlags, setns, unshare};
use std::{
    fs::File,
    io,
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsRawFd as _,
    process::Command,
    thread,
};

use super::{SERVER, SERVER_V4, SERVER_V6};
use weir_load::engine::receive_together;

/// What it is called where there is none.
pub(super) const NAME: &str = "a virtual link (veth)";

pub(super) const DESCRIPTION: &str =
    "a pair of veth devices between two separate network namespaces, with GRO at the server's";

pub(super) const ADVICE: &str =
    "it needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), veth in the kernel, and `ip` of iproute2";

/// Addresses of the generator's end.
pub(super) const GENERATOR_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub(super) const GENERATOR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);

/// The device of the generator.
const GENERATOR: &str = "weir1";

/// A network namespace that can be entered.
pub(super) struct Namespace(File);

impl Namespace {
    /// Takes the calling thread into a new one, for good.
    fn enter_new() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        File::open("/proc/thread-self/ns/net").map(Self)
    }

    /// Makes one that the calling thread stays outside of.
    fn new() -> io::Result<Self> {
        thread::spawn(Self::enter_new).join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
    }

    fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.0, CloneFlags::CLONE_NEWNET)?)
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

/// Makes both namespaces and the link, and takes the calling thread to the generator's end. Returns the
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

/// Gives the generator's end every address of these networks, and tells the server's end that they are there. No device
/// has them as addresses: a route of the kind `local` is enough for that, and one through the generator's own address
/// spares a search for each.
pub(super) fn route(server: &Namespace, networks: &[&str]) -> Result<(), String> {
    let through = GENERATOR_V4.to_string();
    networks.iter().try_for_each(|network| {
        ip(&["route", "add", "local", network, "dev", GENERATOR])?;
        server.inside(|| ip(&["route", "add", network, "via", &through, "dev", SERVER]))
    })
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
