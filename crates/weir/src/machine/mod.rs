//! The machine that figures were taken on, as plain data: without it they mean nothing
//! elsewhere. And what about it makes figures doubtful, as warnings.
//!
//! ```
//! use weir::machine::{self, LoadMeter, Machine};
//!
//! let mut meter = LoadMeter::start();
//! let machine = Machine::describe();
//! println!("{} on {:?}", machine.os, machine.cpu_model);
//! if let [first, second, ..] = &machine.cores[..] {
//!     println!("{:?} ns apart", machine::core_to_core_ns(first.number, second.number));
//! }
//! for warning in machine::warnings(&machine, meter.read(0)) {
//!     println!("{warning}");
//! }
//! ```

// What this module needs of an OS: describe() -> Machine, instruments() -> Instruments, memory_left_bytes(),
// link_bits_per_s(), addresses(), links().
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;
#[cfg(windows)]
pub(crate) use native::is_wine;

mod check;
mod checks;
mod core_to_core;
mod costs;
#[cfg(target_os = "linux")]
pub(crate) mod ethtool;
mod instruments;
mod load;
mod network;

pub use check::{Check, Effect};
pub use checks::{
    MOST_LOAD_OF_OTHERS, MOST_STOLEN, Setting, checks, mitigations, settings, warnings,
};
pub use core_to_core::core_to_core_ns;
pub use costs::Costs;
pub use instruments::Instruments;
pub use load::{Load, LoadMeter};
pub use network::{Interrupt, Moderation, NetworkDevice, Offloads, Pcie, Rss};

use crate::affinity;
use std::{io, net::IpAddr};

/// Memory that this process can still have without swapping, and without the kernel ending a process for it, if known.
pub(crate) fn memory_left_bytes() -> Option<u64> {
    native::memory_left_bytes()
}

/// The speed of a network device's link in bits per second; `None` where it does not say, as loopback and most virtual
/// machines' devices do not. The device is one of the calling thread's network namespace.
///
/// # Errors
/// Where there is no such device, or this system cannot be asked.
pub fn link_bits_per_s(device: &str) -> io::Result<Option<u64>> {
    native::link_bits_per_s(device)
}

/// The addresses of a network device, but for those of IPv6 that hold on one link only: what a server can be bound to
/// without naming the device. It is one of the calling thread's network namespace.
///
/// # Errors
/// Where there is no such device, or this system cannot be asked.
pub fn addresses(device: &str) -> io::Result<Vec<IpAddr>> {
    native::addresses(device)
}

/// A network device that is up and has an address, and its link. What is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The device's name: `eth0`.
    pub device: String,
    /// Its addresses, but for those of IPv6 that hold on one link only.
    pub addresses: Vec<IpAddr>,
    /// Its speed in bits per second.
    pub bits_per_s: Option<u64>,
    /// The longest packet that goes over it, in bytes (MTU).
    pub mtu_bytes: Option<u32>,
    /// The device's driver: `virtio_net`.
    pub driver: Option<String>,
}

/// The network devices that are up and have an address, loopback among them. They are those of the calling thread's
/// network namespace.
///
/// # Errors
/// Where this system cannot be asked.
pub fn links() -> io::Result<Vec<Link>> {
    native::links()
}

/// A limit that the operating system puts on this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// At most so much: bytes or descriptors.
    AtMost(u64),
    /// No limit.
    Unlimited,
}

/// A core this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Its number.
    pub number: usize,
    /// Its NUMA node.
    pub numa_node: Option<usize>,
    /// The cores that share its physical core.
    pub siblings: Vec<usize>,
}

/// A protection against a weakness of the processor; most of them cost time at each entry
/// into the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mitigation {
    /// The weakness, as the kernel names it: `spectre_v2`.
    pub weakness: String,
    /// What is done against it, in the kernel's words.
    pub state: String,
}

/// What a machine is, as far as figures depend on it. `None` is "not known", never "no".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Cores that this process may use.
    pub cores: Vec<Core>,
    /// Cores that are running, allowed or not.
    pub online_cores: Option<usize>,
    /// `linux`, `windows`.
    pub os: &'static str,
    /// `x86_64`, `aarch64`.
    pub architecture: &'static str,
    /// The kernel's release; on Windows its version and build.
    pub kernel: Option<String>,
    /// What only does as that system would, by its name and version: `Wine 8.0`.
    pub emulator: Option<String>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory a program could get without swapping, in bytes.
    pub available_bytes: Option<u64>,
    /// Swap space that is switched on, in bytes.
    pub swap_bytes: Option<u64>,
    /// Whether this is a virtual machine.
    pub virtualised: Option<bool>,
    /// Who says so: the name of the hypervisor or of the machine's maker.
    pub hypervisor: Option<String>,
    /// The frequency governors of the cores, each once. Empty where the system does not
    /// choose the frequency, as in most virtual machines.
    pub governors: Vec<String>,
    /// The files that choose them, with the governor in each that can be `performance` and is not.
    pub governor_files: Vec<(String, String)>,
    /// What is done against the processor's weaknesses, those that do not affect it left out.
    pub mitigations: Vec<Mitigation>,
    /// The largest receive buffer that a program may ask for, in bytes.
    pub rmem_max_bytes: Option<u64>,
    /// The largest send buffer that a program may ask for, in bytes.
    pub wmem_max_bytes: Option<u64>,
    /// How much memory this process may lock or register, in bytes.
    pub memlock: Option<Limit>,
    /// How many descriptors this process may open.
    pub open_files: Option<Limit>,
    /// What the kernel takes the time from.
    pub clocksource: Option<String>,
    /// The kernel's switch against io_uring: 0 for all programs, 1 for privileged ones only,
    /// 2 for none. `None` on a kernel without the switch, which may have io_uring or not.
    pub io_uring_disabled: Option<u64>,
    /// When memory comes in huge pages: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// Whether physical cores run more than one thread each.
    pub smt: Option<bool>,
    /// Whether cores may run above their nominal frequency; `None` where the system does not control it.
    pub boost: Option<Boost>,
    /// How much of the cores' time control groups (version 2) give this process, in thousandths of a core.
    pub cpu_quota_thousandths: Option<Limit>,
    /// How the kernel moves pages to the NUMA node that uses them; 0 for not at all.
    pub numa_balancing: Option<u64>,
    /// How many buffers of the network wait to be freed by the core that allocated them.
    pub skb_defer_max: Option<u64>,
    /// Connections that the firewall tracks.
    pub connections_tracked: Option<u64>,
    /// Network devices that have hardware, or a host's, behind them.
    pub network: Vec<NetworkDevice>,
}

/// The switch of the frequency's boost (turbo).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boost {
    /// Whether it is on.
    pub on: bool,
    /// The file that switches it.
    pub path: &'static str,
    /// What switches it off.
    pub off: char,
}

impl Machine {
    /// Describes this machine. It reads some dozen small files and waits for nothing.
    ///
    /// Ask before pinning: [`Machine::cores`] are those of the calling thread.
    pub fn describe() -> Self {
        let core = |number| Core {
            number,
            numa_node: affinity::numa_node(number),
            siblings: affinity::siblings(number),
        };
        Self {
            cores: affinity::allowed_cores().into_iter().map(core).collect(),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            ..native::describe()
        }
    }
}

impl Instruments {
    /// Looks. It reads some small files, and the settings of the kernel's build, which takes some
    /// milliseconds; nothing is remembered.
    pub fn find() -> Self {
        native::instruments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_what_it_is() {
        let machine = Machine::describe();
        assert_eq!(machine.os, std::env::consts::OS);
        let numbers: Vec<usize> = machine.cores.iter().map(|core| core.number).collect();
        assert_eq!(numbers, affinity::allowed_cores());
        assert!(machine.online_cores >= Some(numbers.len()), "{machine:?}");
        assert!(machine.cpu_model.is_some_and(|model| model.trim() == model && !model.is_empty()));
        let memory = machine.memory_bytes.expect("memory");
        assert!(memory > 1 << 24 && machine.available_bytes < Some(memory));
        assert!(machine.kernel.is_some_and(|kernel| kernel.contains('.')));
        assert!(!matches!(machine.open_files, Some(Limit::AtMost(0..=2))));
    }
}
