//! A Linux machine, from `/proc` and `/sys`.

use super::{
    Boost, Instruments, Interrupt, Limit, Link, Machine, Mitigation, NetworkDevice, Pcie,
    ethtool::Ethtool, instruments::switched_on,
};
use nix::{
    ifaddrs::getifaddrs,
    net::if_::{InterfaceFlags, if_nametoindex},
    sys::{
        resource::{RLIM_INFINITY, Resource, getrlimit},
        socket::SockaddrStorage,
    },
    unistd::{SysconfVar, getppid, sysconf},
};
use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(super) fn link_bits_per_s(device: &str) -> io::Result<Option<u64>> {
    Ethtool::of(device)?.bits_per_s()
}

pub(super) fn addresses(device: &str) -> io::Result<Vec<IpAddr>> {
    if_nametoindex(device)?;
    let of_device = getifaddrs()?.filter(|entry| entry.interface_name == device);
    Ok(of_device.filter_map(|entry| ip(entry.address?)).collect())
}

/// An address, unless it is one of IPv6 that holds on one link only.
fn ip(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
    v4.or_else(|| {
        let v6 = address.as_sockaddr_in6()?.ip();
        (!v6.is_unicast_link_local()).then_some(v6.into())
    })
}

pub(super) fn links() -> io::Result<Vec<Link>> {
    let mut links: Vec<Link> = vec![];
    for entry in getifaddrs()?.filter(|entry| entry.flags.contains(InterfaceFlags::IFF_UP)) {
        let Some(address) = entry.address.and_then(ip) else { continue };
        match links.iter_mut().find(|link| link.device == entry.interface_name) {
            Some(link) => link.addresses.push(address),
            None => {
                let asked = Ethtool::of(&entry.interface_name)?;
                links.push(Link {
                    addresses: vec![address],
                    bits_per_s: asked.bits_per_s().ok().flatten(),
                    mtu_bytes: asked.mtu_bytes(),
                    driver: asked.driver(),
                    device: entry.interface_name,
                });
            }
        }
    }
    Ok(links)
}

pub(super) fn describe() -> Machine {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let hypervisor = text("/sys/hypervisor/type").or_else(|| text("/sys/class/dmi/id/sys_vendor"));
    Machine {
        cpu_model: cpu_model(&cpu).or_else(|| text("/proc/device-tree/model")),
        online_cores: sysconf(SysconfVar::_NPROCESSORS_ONLN)
            .ok()
            .flatten()
            .and_then(|cores| usize::try_from(cores).ok()),
        kernel: text("/proc/sys/kernel/osrelease"),
        memory_bytes: meminfo_bytes(&memory, "MemTotal"),
        available_bytes: meminfo_bytes(&memory, "MemAvailable"),
        swap_bytes: meminfo_bytes(&memory, "SwapTotal"),
        virtualised: virtualised(&cpu),
        hypervisor,
        governors: governors(),
        governor_files: governor_files(),
        mitigations: mitigations(),
        rmem_max_bytes: number("/proc/sys/net/core/rmem_max"),
        wmem_max_bytes: number("/proc/sys/net/core/wmem_max"),
        memlock: locked_memory(),
        open_files: limit(Resource::RLIMIT_NOFILE),
        clocksource: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
        huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|modes| chosen(&modes)),
        smt: number("/sys/devices/system/cpu/smt/active").map(|active| active > 0),
        boost: boost(),
        cpu_quota_thousandths: cpu_quota_thousandths(),
        numa_balancing: number("/proc/sys/kernel/numa_balancing"),
        skb_defer_max: number("/proc/sys/net/core/skb_defer_max"),
        connections_tracked: number("/proc/sys/net/netfilter/nf_conntrack_count"),
        network: network(Path::new("/sys"), Path::new("/proc"), ask),
        ..Machine::default()
    }
}

pub(super) fn instruments() -> Instruments {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let positive = |name: &str| value(&status, name)?.parse().ok().filter(|number| *number > 0);
    // A file of a cache is there with SLUB_DEBUG, and says what was switched on at the start, for all caches
    // or for some: that of small allocations, and that of io_uring's requests.
    const SLABS: [&str; 2] = ["kmalloc-64", "io_kiocb"];
    let slab_check = |name: &&str| {
        SLABS.iter().any(|slab| number(&format!("/sys/kernel/slab/{slab}/{name}")) == Some(1))
    };
    const SLAB_CHECKS: [&str; 5] = ["sanity_checks", "red_zone", "poison", "store_user", "trace"];
    Instruments {
        checkers: kernel_config().map(|config| switched_on(&config)),
        slab_checks: SLAB_CHECKS.into_iter().filter(slab_check).collect(),
        tracing: tracing(),
        tracer: positive("TracerPid"),
        filters: positive("Seccomp_filters"),
    }
}

/// Makes the smallest system call there is. Says that it did.
pub(super) fn call() -> bool {
    getppid().as_raw() >= 0
}

/// The settings that the kernel was built with, where they can be read.
fn kernel_config() -> Option<String> {
    let release = text("/proc/sys/kernel/osrelease")?;
    let beside = text(&format!("/boot/config-{release}"));
    let config = beside.or_else(|| {
        // It is compressed, and the program that reads it is on every Linux.
        let mut read = Command::new("gzip");
        let read = read.args(["-dc", "/proc/config.gz"]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = read.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    })?;
    config.contains("CONFIG_").then_some(config)
}

/// What traces the kernel, as far as this user may know.
fn tracing() -> Option<Vec<String>> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let place = places.iter().find(|place| number(&format!("{place}/tracing_on")).is_some())?;
    let read = |name: &str| text(&format!("{place}/{name}"));
    let mut found = Vec::new();
    if number(&format!("{place}/tracing_on")) == Some(1) {
        if let Some(tracer) = read("current_tracer").filter(|tracer| tracer != "nop") {
            found.push(format!("the tracer {tracer}"));
        }
        // "0", or "X" where some are on and others off.
        if read("events/enable").is_some_and(|on| on != "0") {
            found.push("events".into());
        }
    }
    if let Some(functions) = read("enabled_functions") {
        found.push(format!("hooks in {} functions", functions.lines().count()));
    }
    Some(found)
}

/// The text of a small file, without blanks and zero bytes at its ends; `None` if there is
/// no file or no text in it.
fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

fn number(path: &str) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The first value of a name in a text of lines `name : value`.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then_some(value.trim())
    })
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let model = value(cpuinfo, "model name").or_else(|| value(cpuinfo, "Hardware"))?;
    (!model.is_empty()).then(|| model.to_owned())
}

/// A processor of the x86 family says whether a hypervisor runs it; of others only the
/// presence of one is known here, not its absence.
fn virtualised(cpuinfo: &str) -> Option<bool> {
    let paths = ["/sys/hypervisor/type", "/proc/device-tree/hypervisor"];
    if paths.iter().any(|path| fs::exists(path).unwrap_or(false)) {
        return Some(true);
    }
    let flags = value(cpuinfo, "flags")?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    value(meminfo, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The mode in brackets, as the kernel shows a choice: `always [madvise] never`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn governors() -> Vec<String> {
    let Ok(policies) = fs::read_dir("/sys/devices/system/cpu/cpufreq") else {
        return Vec::new();
    };
    let mut governors: Vec<String> = policies
        .filter_map(|policy| text(policy.ok()?.path().join("scaling_governor").to_str()?))
        .collect();
    governors.sort_unstable();
    governors.dedup();
    governors
}

/// Either driver has a file of its own: that of Intel's says whether it is off.
fn boost() -> Option<Boost> {
    const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
    let intel = number(NO_TURBO).map(|off| Boost { on: off == 0, path: NO_TURBO, off: '1' });
    intel.or_else(|| number(BOOST).map(|on| Boost { on: on > 0, path: BOOST, off: '0' }))
}

fn cpu_quota_thousandths() -> Option<Limit> {
    let in_version_2 = |folder: &Path| quota_thousandths(&read(folder, "cpu.max")?);
    let in_version_1 = |folder: &Path| {
        // -1 is no limit.
        let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|of| read(folder, of));
        quota_thousandths(&format!("{} {}", quota?, period?))
    };
    let least = least_of_groups("cpu", in_version_2, in_version_1)?;
    Some(least.map_or(Limit::Unlimited, Limit::AtMost))
}

/// Memory that this process can still have before others lose theirs or the kernel ends a process: what the machine has
/// available, or less where a control group may have less. What a group has in the cache of files and has not used for
/// long is given up first, so it counts as available.
pub(super) fn memory_left_bytes() -> Option<u64> {
    let left = |folder: &Path, most: &str, used: &str, unused: &str| {
        let most: u64 = read(folder, most)?.parse().ok()?;
        let used: u64 = read(folder, used)?.parse().ok()?;
        let unused = read(folder, "memory.stat").and_then(|stat| stat_bytes(&stat, unused));
        Some(most.saturating_sub(used.saturating_sub(unused.unwrap_or(0))))
    };
    let in_version_2 = |folder: &Path| {
        let of = |most| left(folder, most, "memory.current", "inactive_file");
        ["memory.max", "memory.high"].into_iter().filter_map(of).min()
    };
    let in_version_1 = |folder: &Path| {
        left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    };
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of_machine = meminfo_bytes(&memory, "MemAvailable");
    let of_groups = least_of_groups("memory", in_version_2, in_version_1).flatten();
    of_machine.into_iter().chain(of_groups).min()
}

/// A number of a file of lines `name number`.
fn stat_bytes(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn read(folder: &Path, name: &str) -> Option<String> {
    text(folder.join(name).to_str()?)
}

/// The smallest limit of this process's control group and of those above it, by how each version tells it of a group:
/// that of version 2, or of version 1 where that has the controller. `None` if it is not known whether there is one.
fn least_of_groups(
    controller: &str,
    in_version_2: impl Fn(&Path) -> Option<u64>,
    in_version_1: impl Fn(&Path) -> Option<u64>,
) -> Option<Option<u64>> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let controllers = text("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == controller) {
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        return Some(least_limit(Path::new("/sys/fs/cgroup"), group, in_version_2));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (mounted, group) = version_1_of(controller, &mounts, &groups)?;
    Some(least_limit(&mounted, &group, in_version_1))
}

/// The smallest limit of a group and of those above it, whose files are below this folder.
fn least_limit(mounted: &Path, group: &str, limit: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let groups = Path::new(group).ancestors();
    let folder = |group: &Path| mounted.join(group.strip_prefix("/").unwrap_or(group));
    groups.filter_map(|group| limit(&folder(group))).min()
}

/// Where version 1 has this controller, and the group of this process below that: in a container the mount shows only
/// what is below the container's own group.
fn version_1_of(controller: &str, mounts: &str, groups: &str) -> Option<(PathBuf, String)> {
    let has_it = |list: &str| list.split(',').any(|name| name == controller);
    // `4:cpu,cpuacct:/docker/1f2e`
    let group = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        has_it(controllers).then_some(group)
    })?;
    // `33 24 0:29 /docker/1f2e /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct`
    let (root, mounted) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_it = after.next() == Some("cgroup") && has_it(after.nth(1)?);
        let mut before = before.split(' ').skip(3);
        is_it.then_some(before.next().zip(before.next())?)
    })?;
    let below = Path::new(group).strip_prefix(root).ok().and_then(Path::to_str);
    Some((mounted.into(), format!("/{}", below.unwrap_or_default())))
}

/// Of a line `50000 100000`: so many microseconds in each period; `max 100000` is no limit.
fn quota_thousandths(line: &str) -> Option<u64> {
    let (quota, period) = line.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

/// Network devices with hardware behind them, from these system files, and what each says when it is asked.
fn network(sys: &Path, proc: &Path, ask: impl Fn(&mut NetworkDevice)) -> Vec<NetworkDevice> {
    let interrupts = read(proc, "interrupts").unwrap_or_default();
    let Ok(devices) = fs::read_dir(sys.join("class/net")) else { return Vec::new() };
    let mut found: Vec<_> = devices
        .flatten()
        .filter_map(|entry| {
            let (path, name) = (entry.path(), entry.file_name().into_string().ok()?);
            let hardware = fs::canonicalize(path.join("device")).ok()?;
            let queues = fs::read_dir(path.join("queues")).ok()?.flatten();
            let received = queues.filter(|q| q.file_name().as_encoded_bytes().starts_with(b"rx-"));
            let masks: Vec<_> = received.map(|q| read(&q.path(), "rps_cpus")).collect();
            let is_set = |mask: &String| mask.bytes().any(|digit| !matches!(digit, b'0' | b','));
            let driver = fs::read_link(hardware.join("driver")).ok();
            let driver = driver.and_then(|path| path.file_name()?.to_str().map(str::to_owned));
            // Of the device or of the bus that it is on: virtio lies on PCI.
            let above: Vec<&Path> = hardware.ancestors().take_while(|path| *path != sys).collect();
            let node = above.iter().find_map(|path| read(path, "numa_node"));
            let mut device = NetworkDevice {
                receive_queues: masks.len(),
                steered: masks.iter().flatten().any(is_set),
                driver,
                // -1 where there is none.
                numa_node: node.and_then(|node| node.parse().ok()),
                pcie: above.iter().find_map(|path| pcie(path)),
                interrupts: interrupts_of(&name, &above, proc, &interrupts),
                name,
                ..NetworkDevice::default()
            };
            ask(&mut device);
            Some(device)
        })
        .collect();
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Asks a device for what no file says.
fn ask(device: &mut NetworkDevice) {
    let Ok(asked) = Ethtool::of(&device.name) else { return };
    device.bits_per_s = asked.bits_per_s().ok().flatten();
    device.rss = asked.rss();
    device.moderation = asked.moderation();
    device.offloads = asked.offloads();
}

/// The PCIe link of a device of PCI; `None` where it has none, as those of a virtual machine.
fn pcie(device: &Path) -> Option<Pcie> {
    let link = |speed: &str, width: &str| {
        let lanes: u32 = read(device, width)?.parse().ok()?;
        let speed = read(device, speed).filter(|speed| speed.contains("GT/s"))?;
        // 255 is how the kernel says that it does not know.
        (1..255).contains(&lanes).then_some((speed, lanes))
    };
    let (speed, lanes) = link("current_link_speed", "current_link_width")?;
    let at_best = link("max_link_speed", "max_link_width");
    let at_best = at_best.filter(|best| *best != (speed.clone(), lanes));
    Some(Pcie { speed, lanes, at_best })
}

/// The interrupts of a device: those of the hardware, or those that have its name or its hardware's.
fn interrupts_of(name: &str, above: &[&Path], proc: &Path, interrupts: &str) -> Vec<Interrupt> {
    let on_bus = above.iter().find_map(|path| fs::read_dir(path.join("msi_irqs")).ok());
    let on_bus = on_bus.into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        on_bus.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let hardware = above.first().and_then(|path| path.file_name()?.to_str()).unwrap_or(name);
    let lines = interrupts.lines().filter_map(interrupt);
    let is_of = |action: &str, of: &str| {
        let rest = action.strip_prefix(of);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    let named = lines.clone().filter(|(_, action)| is_of(action, name) || is_of(action, hardware));
    numbers.extend(named.map(|(number, _)| number));
    numbers.sort_unstable();
    numbers.dedup();
    let known = |number: u32| Interrupt {
        number,
        name: lines.clone().find(|(of, _)| *of == number).map(|(_, action)| action.to_owned()),
        cores: read(&proc.join(format!("irq/{number}")), "smp_affinity_list"),
    };
    numbers.into_iter().map(known).collect()
}

/// Number and last word of a line of /proc/interrupts: ` 38:  0  30922 PCI-MSIX-0000:00:03.0  1-edge  virtio2-input.0`.
fn interrupt(line: &str) -> Option<(u32, &str)> {
    let (number, rest) = line.split_once(':')?;
    Some((number.trim().parse().ok()?, rest.split_whitespace().last()?))
}

fn governor_files() -> Vec<(String, String)> {
    let Ok(policies) = fs::read_dir("/sys/devices/system/cpu/cpufreq") else {
        return Vec::new();
    };
    let slow = |folder: std::path::PathBuf| {
        let read = |name: &str| text(folder.join(name).to_str()?);
        let governor = read("scaling_governor").filter(|governor| governor != "performance")?;
        let known = read("scaling_available_governors")?;
        let can = known.split_whitespace().any(|governor| governor == "performance");
        can.then(|| Some((folder.join("scaling_governor").to_str()?.to_owned(), governor)))?
    };
    let mut files: Vec<_> = policies.flatten().filter_map(|policy| slow(policy.path())).collect();
    files.sort_unstable();
    files
}

fn mitigations() -> Vec<Mitigation> {
    let Ok(weaknesses) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return Vec::new();
    };
    let mut mitigations: Vec<Mitigation> = weaknesses
        .filter_map(|weakness| {
            let weakness = weakness.ok()?;
            let state = text(weakness.path().to_str()?)?;
            let weakness = weakness.file_name().into_string().ok()?;
            (state != "Not affected").then_some(Mitigation { weakness, state })
        })
        .collect();
    mitigations.sort_unstable_by(|a, b| a.weakness.cmp(&b.weakness));
    mitigations
}

/// The limit binds only who has no privilege to go beyond it.
fn locked_memory() -> Option<Limit> {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = value(&status, "CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
    match effective {
        Some(set) if set >> CAP_IPC_LOCK & 1 == 1 => Some(Limit::Unlimited),
        _ => limit(Resource::RLIMIT_MEMLOCK),
    }
}

fn limit(of: Resource) -> Option<Limit> {
    match getrlimit(of).ok()? {
        (RLIM_INFINITY, _) => Some(Limit::Unlimited),
        (most, _) => Some(Limit::AtMost(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\n\
        flags\t\t: fpu vme hypervisor lahf_lm\n\nprocessor\t: 1\nmodel name\t: other\n";

    #[test]
    fn the_first_processor_speaks_for_all() {
        assert_eq!(cpu_model(CPUINFO).as_deref(), Some("Intel(R) Xeon(R) Processor"));
        assert_eq!(virtualised(CPUINFO), Some(true));
        assert_eq!(cpu_model("processor : 0\nmodel name :\n"), None);
    }

    #[test]
    fn a_device_has_its_addresses_and_what_is_none_is_said() {
        assert!(addresses("lo").unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
        assert_eq!(addresses("weir-none").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    /// A tree of system files, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)], links: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("weir-sysfs-{}", std::process::id()));
            let of = |path: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                path
            };
            files.iter().for_each(|(path, text)| fs::write(of(path), text).unwrap());
            for (path, to) in links {
                std::os::unix::fs::symlink(root.join(to), of(path)).unwrap();
            }
            Self(fs::canonicalize(root).unwrap())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn devices_are_what_their_files_say() {
        const CARD: &str = "sys/devices/pci0000:40/0000:41:00.0";
        const VIRTIO: &str = "sys/devices/pci0000:00/0000:00:03.0";
        let of = |folder: &str, file: &str| format!("{folder}/{file}");
        let files = [
            (of(CARD, "current_link_speed"), "8.0 GT/s PCIe\n"),
            (of(CARD, "current_link_width"), "4\n"),
            (of(CARD, "max_link_speed"), "16.0 GT/s PCIe\n"),
            (of(CARD, "max_link_width"), "8\n"),
            (of(CARD, "numa_node"), "1\n"),
            (of(CARD, "msi_irqs/60"), "msix\n"),
            (of(CARD, "msi_irqs/61"), "msix\n"),
            (of(VIRTIO, "current_link_speed"), "Unknown\n"),
            (of(VIRTIO, "current_link_width"), "0\n"),
            (of(VIRTIO, "numa_node"), "-1\n"),
            (of(VIRTIO, "virtio2/features"), "0\n"),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus".into(), "00000000,00000000\n"),
            ("sys/class/net/eth1/queues/rx-0/rps_cpus".into(), "0\n"),
            ("sys/class/net/eth1/queues/rx-1/rps_cpus".into(), "3\n"),
            ("sys/class/net/eth1/queues/tx-0/tx_timeout".into(), "0\n"),
            ("sys/class/net/lo/queues/rx-0/rps_cpus".into(), "0\n"),
            ("sys/bus/drivers/mlx5_core/uevent".into(), "\n"),
            (
                "proc/interrupts".into(),
                "           CPU0       CPU1\n \
                 38:          0      30922 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n \
                 39:          0          1 PCI-MSIX-0000:00:09.0   1-edge      virtio22-input.0\n \
                 60:          7          0 PCI-MSIX-0000:41:00.0   0-edge      mlx5_async0@pci:0000:41:00.0\n\
                 NMI:          0          0   Non-maskable interrupts\n",
            ),
            ("proc/irq/38/smp_affinity_list".into(), "0-1\n"),
            ("proc/irq/60/smp_affinity_list".into(), "1\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let virtio = of(VIRTIO, "virtio2");
        let driver = of(CARD, "driver");
        let links = [
            ("sys/class/net/eth0/device", virtio.as_str()),
            ("sys/class/net/eth1/device", CARD),
            (driver.as_str(), "sys/bus/drivers/mlx5_core"),
        ];
        let tree = Tree::new(&files, &links);
        let asked = |device: &mut NetworkDevice| device.bits_per_s = Some(device.name.len() as u64);
        let found = network(&tree.0.join("sys"), &tree.0.join("proc"), asked);
        let interrupt = |number, name: Option<&str>, cores: Option<&str>| Interrupt {
            number,
            name: name.map(str::to_owned),
            cores: cores.map(str::to_owned),
        };
        let eth0 = NetworkDevice {
            name: "eth0".into(),
            receive_queues: 1,
            bits_per_s: Some(4),
            interrupts: vec![interrupt(38, Some("virtio2-input.0"), Some("0-1"))],
            ..NetworkDevice::default()
        };
        let eth1 = NetworkDevice {
            name: "eth1".into(),
            receive_queues: 2,
            steered: true,
            driver: Some("mlx5_core".into()),
            bits_per_s: Some(4),
            numa_node: Some(1),
            pcie: Some(Pcie {
                speed: "8.0 GT/s PCIe".into(),
                lanes: 4,
                at_best: Some(("16.0 GT/s PCIe".into(), 8)),
            }),
            interrupts: vec![
                interrupt(60, Some("mlx5_async0@pci:0000:41:00.0"), Some("1")),
                interrupt(61, None, None),
            ],
            ..NetworkDevice::default()
        };
        assert_eq!(found, [eth0, eth1]);
    }

    #[test]
    fn sizes_of_memory() {
        let text = "MemTotal:       24684096 kB\nSwapTotal: 0 kB\nHugePages_Total: 7\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24_684_096 * 1024));
        assert_eq!(meminfo_bytes(text, "SwapTotal"), Some(0));
        assert_eq!(meminfo_bytes(text, "HugePages_Total"), None);
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }

    #[test]
    fn the_mode_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!(chosen("[always"), None);
    }

    #[test]
    fn a_quota_is_a_share_of_each_period() {
        assert_eq!(quota_thousandths("max 100000"), None);
        assert_eq!(quota_thousandths("150000 100000"), Some(1500));
        assert_eq!(quota_thousandths("1000 0"), None);
        assert_eq!(quota_thousandths("18446744073709551615 1"), None);
        assert_eq!(quota_thousandths("-1 100000"), None, "version 1 has no limit");
    }

    #[test]
    fn what_is_left_is_no_more_than_the_machine_has() {
        let left = memory_left_bytes().expect("/proc/meminfo tells it");
        let memory = fs::read_to_string("/proc/meminfo").unwrap();
        assert!(left > 0 && left < meminfo_bytes(&memory, "MemTotal").unwrap());
        let stat = "inactive_file_x 1\ninactive_file 4096\ntotal_inactive_file 7\n";
        assert_eq!(stat_bytes(stat, "inactive_file"), Some(4096));
        assert_eq!(stat_bytes(stat, "file"), None);
    }

    #[test]
    fn version_1_is_found_where_it_is_mounted() {
        let groups = "11:memory:/a/b\n4:cpu,cpuacct:/docker/1f/own\n0::/init.scope\n";
        let mount = |root: &str| {
            format!(
                "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 31 24 0:27 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
            )
        };
        let found = |root: &str| version_1_of("cpu", &mount(root), groups).unwrap();
        let mounted = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(found("/"), (mounted.clone(), "/docker/1f/own".into()));
        assert_eq!(found("/docker/1f"), (mounted.clone(), "/own".into()));
        assert_eq!(found("/elsewhere"), (mounted, "/".into()));
        assert_eq!(version_1_of("cpu", &mount("/"), "0::/init.scope"), None);
        assert_eq!(version_1_of("cpu", "30 24 0:26 / /x rw - cgroup2 cgroup2 rw", groups), None);
    }

    #[test]
    fn the_smallest_quota_of_all_groups_above_counts() {
        // A path may end with a slash: `/c/` is `/c`.
        let quota = |folder: &Path| match folder.components().as_path().to_str()? {
            "/c" => Some(4000),
            "/c/a" => Some(1500),
            "/c/a/b" => None,
            other => panic!("{other}"),
        };
        assert_eq!(least_limit(Path::new("/c"), "/a/b", quota), Some(1500));
        assert_eq!(least_limit(Path::new("/c"), "/", quota), Some(4000));
    }

    #[test]
    fn the_limit_of_descriptors_is_the_one_in_proc() {
        let shown = fs::read_to_string("/proc/self/limits").expect("limits");
        let shown = shown.lines().find_map(|line| line.strip_prefix("Max open files"));
        let shown = shown.and_then(|line| line.split_whitespace().next()).expect("a limit");
        let expected = match shown.parse() {
            Ok(most) => Limit::AtMost(most),
            Err(_) => Limit::Unlimited,
        };
        assert_eq!(limit(Resource::RLIMIT_NOFILE), Some(expected));
    }
}
