//! What about a machine makes its figures doubtful or keeps something from running, and what to do about it.

use super::{
    Check, Costs, Effect, Instruments, Limit, Load, Machine, Moderation, NetworkDevice, Pcie,
};

/// Other programs may use this share of the cores before it is worth a warning.
pub const MOST_LOAD_OF_OTHERS: f64 = 0.10;
/// The host may take this share of the cores' time before it is worth a warning.
pub const MOST_STOLEN: f64 = 0.01;

/// Every reason to doubt figures taken on `machine`, under `load` where it was measured.
pub fn warnings(machine: &Machine, load: Load) -> Vec<Check> {
    let [cores, siblings] = of_cores(machine);
    let of_time = [governor(machine), virtualised(machine, None), swap(machine)];
    let rest = [clock_source(machine, None), io_uring(machine)];
    let all = emulated(machine).into_iter().chain([cores, siblings]).chain(of_time).chain(rest);
    let all = all.chain(of_load(load));
    all.filter(|check| check.effect > Effect::Unknown).collect()
}

/// All that can be looked at, whether it was found wanting or not: what falsifies figures first, what is fine last.
pub fn checks(
    machine: &Machine,
    instruments: &Instruments,
    load: Load,
    costs: Costs,
) -> Vec<Check> {
    let mut all: Vec<Check> = emulated(machine).into_iter().chain(of_cores(machine)).collect();
    all.extend([smt(machine), quota(machine), pinning(), governor(machine), boost(machine)]);
    all.extend([virtualised(machine, Some(costs)), mitigations(machine, costs.call_ns)]);
    all.extend(instruments.checks());
    all.extend(of_load(load));
    all.extend([swap(machine), clock_source(machine, costs.clock_ns), io_uring(machine)]);
    all.extend([receive_buffer(machine), descriptors(machine), locked_memory(machine)]);
    all.extend([numa(machine), deferred_frees(machine), connection_tracking(machine)]);
    all.extend(machine.network.iter().map(|device| queues(device, machine)));
    all.extend(machine.network.iter().flat_map(of_hardware));
    all.sort_by_key(|check| std::cmp::Reverse(check.effect));
    all
}

/// Something that can be set safely, so that figures are steadier: it costs power or some memory, takes nothing from
/// anybody, and is gone when the machine starts anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The file that is written to.
    pub path: String,
    /// What it says now.
    pub before: String,
    /// What it is to say.
    pub after: String,
    /// What that is good for.
    pub why: &'static str,
}

/// What can be set safely on this machine, and is not yet. What takes something away (cores, swap, protection) is left
/// to its administrator.
pub fn settings(machine: &Machine) -> Vec<Setting> {
    let setting = |path: &str, before: &str, after: &str, why| Setting {
        path: path.into(),
        before: before.into(),
        after: after.into(),
        why,
    };
    let governors = machine
        .governor_files
        .iter()
        .map(|(path, governor)| setting(path, governor, "performance", "cores keep their speed"));
    let boost = machine.boost.filter(|boost| boost.on).map(|boost| {
        let on = if boost.off == '0' { "1" } else { "0" };
        setting(boost.path, on, &boost.off.to_string(), "cores keep their nominal speed")
    });
    let buffers = [
        (machine.rmem_max_bytes, "rmem_max", "larger receive buffers can be requested"),
        (machine.wmem_max_bytes, "wmem_max", "larger send buffers can be requested"),
    ];
    let buffers = buffers.into_iter().filter_map(|(most, name, why)| {
        let most = most.filter(|most| *most < BUFFER_WANTED)?.to_string();
        Some(setting(&format!("/proc/sys/net/core/{name}"), &most, &BUFFER_WANTED.to_string(), why))
    });
    let moves = machine.numa_balancing.filter(|mode| *mode > 0 && nodes(machine) > 1).map(|mode| {
        let path = "/proc/sys/kernel/numa_balancing";
        setting(path, &mode.to_string(), "0", "pages stay where they are")
    });
    governors.chain(boost).chain(buffers).chain(moves).collect()
}

/// NUMA nodes that this process may use.
fn nodes(machine: &Machine) -> usize {
    let nodes = machine.cores.iter().filter_map(|core| core.numa_node);
    nodes.collect::<std::collections::BTreeSet<_>>().len()
}

fn of_cores(machine: &Machine) -> [Check; 2] {
    let count = machine.cores.len();
    let cores = match count {
        0 | 1 => Check::bad(
            "cores",
            Effect::Falsifies,
            "this process may use one core only",
            "server and generator share it, so rates say little about either",
            "allow it two cores or more",
        ),
        _ => Check::fine("cores", format!("this process may use {count} cores")),
    };
    let shared = match &machine.cores[..] {
        [first, rest @ ..] => {
            !rest.is_empty() && rest.iter().all(|core| first.siblings.contains(&core.number))
        }
        [] => false,
    };
    let siblings = match shared {
        true => Check::bad(
            "siblings",
            Effect::Falsifies,
            "all cores of this process share one physical core",
            "server and generator slow each other down",
            "allow it cores of another physical core",
        ),
        false => Check::fine("siblings", "server and generator need not share a physical core"),
    };
    [cores, siblings]
}

fn smt(machine: &Machine) -> Check {
    match machine.smt {
        Some(true) => Check::bad(
            "smt",
            Effect::Falsifies,
            "physical cores run two threads each (SMT)",
            "a busy sibling takes part of a core that is measured",
            "choose cores of different physical ones with --server-cpu and --generator-cpu, or switch SMT off",
        )
        .command("echo off > /sys/devices/system/cpu/smt/control"),
        Some(false) => Check::fine("smt", "no physical core runs two threads (SMT)"),
        None => Check::unknown("smt", "whether cores share a physical one is not known", "a busy sibling would show"),
    }
}

fn quota(machine: &Machine) -> Check {
    match machine.cpu_quota_thousandths {
        Some(Limit::AtMost(thousandths)) => Check::bad(
            "quota",
            Effect::Falsifies,
            format!(
                "a control group limits this process to the CPU time of {} cores",
                thousandths as f64 / 1000.0
            ),
            "it is stopped for the rest of each period, which shows as latency and lost datagrams",
            "run it outside that control group (cpu.max; version 1: cpu.cfs_quota_us)",
        ),
        Some(Limit::Unlimited) => {
            Check::fine("quota", "no control group limits the time of the cores")
        }
        None => Check::unknown(
            "quota",
            "whether a control group limits the time of the cores is not known",
            "a process that is stopped for the rest of each period shows latency and loses datagrams",
        ),
    }
}

fn pinning() -> Check {
    match crate::affinity::forbidden() {
        Some(why) => Check::bad(
            "pinning",
            Effect::Falsifies,
            format!("no thread may be bound to a core here (sched_setaffinity: {why})"),
            "servers, generators and designs run on any core, and disturb each other",
            "allow it in the container's seccomp profile, or run outside it",
        ),
        None => Check::fine("pinning", "threads can be bound to cores"),
    }
}

fn governor(machine: &Machine) -> Check {
    let names = machine.governors.iter().map(String::as_str);
    let slow: Vec<&str> = names.filter(|name| *name != "performance").collect();
    if slow.is_empty() {
        let found = match machine.governors.is_empty() {
            true => "the system does not choose the frequency of the cores",
            false => "the frequency governor is performance",
        };
        return Check::fine("governor", found);
    }
    Check::bad(
        "governor",
        Effect::Falsifies,
        format!("the frequency governor is {}", slow.join(" and ")),
        "the cores change speed during a run",
        "for steady figures",
    )
    .command("cpupower frequency-set -g performance")
}

fn boost(machine: &Machine) -> Check {
    match &machine.boost {
        Some(boost) if boost.on => Check::bad(
            "boost",
            Effect::Falsifies,
            "cores may run above their nominal frequency (turbo)",
            "how fast depends on temperature and on what the other cores do",
            "for steady figures",
        )
        .command(format!("echo {} > {}", boost.off, boost.path)),
        Some(_) => Check::fine("boost", "cores stay at their nominal frequency"),
        None => {
            Check::fine("boost", "the system does not control boosting of the frequency (turbo)")
        }
    }
}

fn emulated(machine: &Machine) -> Option<Check> {
    let emulator = machine.emulator.as_deref()?;
    Some(Check::bad(
        "emulated",
        Effect::Falsifies,
        format!("this is {emulator}, which only imitates {}", machine.os),
        "figures and ranks are its own, and say nothing about that system",
        "measure there",
    ))
}

fn virtualised(machine: &Machine, costs: Option<Costs>) -> Check {
    let measured = |costs: Costs| {
        let ns = |what: &str, ns: Option<u64>| ns.map(|ns| format!("{what} {ns} ns"));
        let parts = [
            ns("a wake-up of another thread takes", costs.wake_ns),
            ns("a cache line from core to core", costs.hop_ns),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let measured = costs.map(measured).filter(|text| !text.is_empty());
    let measured = measured.map(|text| format!(" ({text})")).unwrap_or_default();
    if machine.virtualised != Some(true) {
        return Check::fine(
            "virtual",
            format!("this is no virtual machine, as far as is known{measured}"),
        );
    }
    Check::bad(
        "virtual",
        Effect::Falsifies,
        format!("this is a virtual machine{measured}"),
        "its cores may change speed and place at any time",
        "compare only figures measured at the same core-to-core latency",
    )
}

fn swap(machine: &Machine) -> Check {
    let Some(bytes) = machine.swap_bytes.filter(|bytes| *bytes > 0) else {
        return Check::fine("swap", "there is no swap space");
    };
    Check::bad(
        "swap",
        Effect::Falsifies,
        format!("swap is on ({} MiB)", bytes >> 20),
        "a page that was swapped out shows as latency",
        "to be sure",
    )
    .command("swapoff -a")
}

/// Clocks whose reading enters the kernel or a device: microseconds instead of some 20 ns.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "pit"];

fn clock_source(machine: &Machine, clock_ns: Option<u64>) -> Check {
    let clock = machine.clocksource.as_deref().unwrap_or("not known");
    let measured = clock_ns.map(|ns| format!(" (reading it takes {ns} ns)")).unwrap_or_default();
    if !SLOW_CLOCKS.contains(&clock) {
        return Check::fine("clocksource", format!("the clock source is {clock}{measured}"));
    }
    Check::bad(
        "clocksource",
        Effect::Falsifies,
        format!("the clock source is {clock}, and reading it is slow{measured}"),
        "times per datagram cost more than the datagram",
        "look in the kernel's log for why the processor's own was rejected",
    )
}

fn io_uring(machine: &Machine) -> Check {
    let Some(switch) = machine.io_uring_disabled.filter(|switch| *switch > 0) else {
        return Check::fine("io_uring", "io_uring is not forbidden");
    };
    let to_whom = if switch == 1 { "programs without privileges" } else { "all programs" };
    Check::bad(
        "io_uring",
        Effect::Limits,
        format!("io_uring is forbidden to {to_whom} (kernel.io_uring_disabled = {switch})"),
        "the designs on it may not run",
        "to allow it",
    )
    .command("sysctl kernel.io_uring_disabled=0")
}

fn of_load(load: Load) -> [Check; 2] {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let others = match load.others {
        Some(share) if share > MOST_LOAD_OF_OTHERS => Check::bad(
            "load",
            Effect::Falsifies,
            format!("other programs use {} of the cores", percent(share)),
            "they slow down the measurement",
            "end them",
        ),
        Some(share) => {
            Check::fine("load", format!("other programs use {} of the cores", percent(share)))
        }
        None => Check::unknown(
            "load",
            "the load of other programs was not measured",
            "they may slow down what is measured",
        ),
    };
    let stolen = match load.stolen {
        Some(share) if share > MOST_STOLEN => Check::bad(
            "stolen",
            Effect::Falsifies,
            format!("the host withholds {} of the cores' time", percent(share)),
            "figures are lower than the machine's own",
            "use a host with less load",
        ),
        Some(share) => Check::fine(
            "stolen",
            format!("the host withholds {} of the cores' time", percent(share)),
        ),
        None => Check::unknown(
            "stolen",
            "how much of the cores' time a host withholds was not measured",
            "figures may be lower than the machine's own",
        ),
    };
    [others, stolen]
}

/// Which protections against weaknesses of the processor are on: most of them cost time at each entry into the kernel,
/// of which one takes so many ns.
pub fn mitigations(machine: &Machine, call_ns: Option<u64>) -> Check {
    let on = machine.mitigations.iter().filter(|one| one.state.contains("Mitigation:"));
    let names: Vec<&str> = on.map(|one| one.weakness.as_str()).collect();
    let call = call_ns.map(|ns| format!(", a system call takes {ns} ns")).unwrap_or_default();
    if names.is_empty() {
        return Check::fine(
            "mitigations",
            format!("no mitigation of a processor vulnerability is on{call}"),
        );
    }
    Check::bad(
        "mitigations",
        Effect::Limits,
        format!("mitigations of processor vulnerabilities are on ({}){call}", names.join(", ")),
        "most cost time at each entry into the kernel, so designs that enter it for each I/O lose most",
        "compare only with figures of machines that have the same ones on",
    )
}

/// Smaller receive buffers overflow in the time that a thread takes to be woken, at the rates measured here.
const BUFFER_WANTED: u64 = 4 << 20;

fn receive_buffer(machine: &Machine) -> Check {
    match machine.rmem_max_bytes {
        Some(most) if most < BUFFER_WANTED => Check::bad(
            "rcvbuf",
            Effect::Limits,
            format!("a receive buffer may have {} KiB at most (net.core.rmem_max)", most >> 10),
            "bursts are dropped at the socket, however fast the server is, and a larger --rcvbuf is not granted",
            "to allow 4 MiB",
        )
        .command(format!("sysctl net.core.rmem_max={BUFFER_WANTED}")),
        Some(most) => Check::fine("rcvbuf", format!("a receive buffer may have {} KiB (net.core.rmem_max)", most >> 10)),
        None => Check::unknown("rcvbuf", "the largest receive buffer is not known", "bursts may be dropped at the socket"),
    }
}

/// For the largest number of connections that a comparison makes by itself, server and generator apart.
const DESCRIPTORS_WANTED: u64 = 20_000;

fn descriptors(machine: &Machine) -> Check {
    match machine.open_files {
        Some(Limit::AtMost(most)) if most < DESCRIPTORS_WANTED => Check::bad(
            "descriptors",
            Effect::Limits,
            format!("this process may open {most} descriptors"),
            format!("loads of more than about {} connections cannot run", most.saturating_sub(64)),
            format!("raise it before the start: ulimit -n {DESCRIPTORS_WANTED}"),
        ),
        Some(Limit::AtMost(most)) => {
            Check::fine("descriptors", format!("this process may open {most} descriptors"))
        }
        Some(Limit::Unlimited) => {
            Check::fine("descriptors", "this process may open any number of descriptors")
        }
        None => Check::fine("descriptors", "the limit on descriptors is not known"),
    }
}

/// For the memory that one server registers by default.
const LOCKED_WANTED: u64 = 64 << 20;

fn locked_memory(machine: &Machine) -> Check {
    match machine.memlock {
        Some(Limit::AtMost(most)) if most < LOCKED_WANTED => Check::bad(
            "memlock",
            Effect::Limits,
            format!("this process may lock {} KiB of memory", most >> 10),
            "registered buffers and AF_XDP may be refused",
            "raise it before the start: ulimit -l unlimited",
        ),
        Some(Limit::AtMost(most)) => {
            Check::fine("memlock", format!("this process may lock {} MiB of memory", most >> 20))
        }
        Some(Limit::Unlimited) => {
            Check::fine("memlock", "this process may lock any amount of memory")
        }
        None => Check::fine("memlock", "the limit on locked memory is not known"),
    }
}

fn numa(machine: &Machine) -> Check {
    let count = nodes(machine);
    if count < 2 {
        return Check::fine("numa", "this process stays on one NUMA node");
    }
    match machine.numa_balancing {
        None | Some(0) => Check::bad(
            "numa",
            Effect::Falsifies,
            format!("this process may use {count} NUMA nodes"),
            "memory and devices of another node are farther away",
            "keep server and generator on one node with --numa-node and --cpu",
        ),
        Some(_) => Check::bad(
            "numa",
            Effect::Falsifies,
            format!(
                "this process may use {count} NUMA nodes, and the kernel moves pages between them"
            ),
            "memory moves nearer or farther during a run, and each move stops the thread",
            "keep it on one node with --numa-node and --cpu, or",
        )
        .command("sysctl kernel.numa_balancing=0"),
    }
}

fn deferred_frees(machine: &Machine) -> Check {
    match machine.skb_defer_max {
        Some(0) => Check::fine("skb_defer", "buffers are freed on the core that received them (net.core.skb_defer_max = 0)"),
        Some(most) => Check::bad(
            "skb_defer",
            Effect::Limits,
            format!("up to {most} buffers are given back to the core that allocated them (net.core.skb_defer_max)"),
            "over loopback the generator's core pays for part of what the server frees",
            "nothing need be done, as it is the same for all designs; to see the difference",
        )
        .command("sysctl net.core.skb_defer_max=0"),
        None => Check::fine("skb_defer", "this kernel frees buffers where they are received"),
    }
}

fn connection_tracking(machine: &Machine) -> Check {
    match machine.connections_tracked {
        Some(count) if count > 0 => Check::bad(
            "conntrack",
            Effect::Limits,
            format!("the firewall tracks connections ({count} now)"),
            "each datagram and segment is looked up, over loopback too",
            "exempt loopback with a rule `notrack`, or use --on veth",
        ),
        _ => Check::fine("conntrack", "the firewall tracks no connection now"),
    }
}

fn queues(device: &NetworkDevice, machine: &Machine) -> Check {
    let name = &device.name;
    let count = device.receive_queues;
    let cores = machine.online_cores.unwrap_or(1);
    let has = format!(
        "the device {name} has {count} receive queue{} for {cores} core{}",
        if count == 1 { "" } else { "s" },
        if cores == 1 { "" } else { "s" }
    );
    if count < cores && !device.steered {
        return Check::bad(
            "queues",
            Effect::Limits,
            format!("{has}, and spreads none of its work (RPS)"),
            match count {
                1 => "one core receives all of its datagrams, however many a design uses",
                _ => "its datagrams are received by as many cores as it has queues, however many a design uses",
            },
            "let the other cores take part",
        )
        .command(format!("echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus", all_cores(cores)));
    }
    let spread = if device.steered { ", and its work is spread (RPS)" } else { "" };
    Check::fine("queues", format!("{has}{spread}"))
}

/// What a device says of its link, its queues, its interrupts and its offloads; nothing of what it does not say.
fn of_hardware(device: &NetworkDevice) -> Vec<Check> {
    let said = [link(device), rss(device), moderation(device), offloads(device)];
    said.into_iter().flatten().collect()
}

fn link(device: &NetworkDevice) -> Option<Check> {
    let name = &device.name;
    let speed = device.bits_per_s.map(|bits| format!("a link of {} Mbit/s", bits / 1_000_000));
    if let Some(Pcie { speed, lanes, at_best: Some((best_speed, best_lanes)) }) = &device.pcie {
        let found = format!(
            "the device {name} is on {speed} x{lanes} and could be on {best_speed} x{best_lanes}"
        );
        let consequence = "frames may reach memory more slowly than the link brings them";
        let cure = "put it into a slot that has all of its lanes";
        return Some(Check::bad("link", Effect::Limits, found, consequence, cure));
    }
    Some(Check::fine("link", format!("the device {name} has {}", speed?)))
}

fn rss(device: &NetworkDevice) -> Option<Check> {
    let (name, count) = (&device.name, device.receive_queues);
    let queues = device.rss?.queues;
    if count < 2 {
        return None; // there is nothing to spread over
    }
    if queues < count {
        let found = format!(
            "the device {name} spreads what it receives over {queues} of its {count} queues (RSS)"
        );
        let consequence = "the other queues, and the cores that serve them, receive nothing";
        let check =
            Check::bad("rss", Effect::Limits, found, consequence, "spread it over all of them");
        return Some(check.command(format!("ethtool -X {name} equal {count}")));
    }
    let found = format!("the device {name} spreads what it receives over all of its queues (RSS)");
    Some(Check::fine("rss", found))
}

fn moderation(device: &NetworkDevice) -> Option<Check> {
    let (name, Moderation { rx_us, rx_frames, adaptive_rx }) = (&device.name, device.moderation?);
    if adaptive_rx {
        let found = format!(
            "the device {name} adapts how long it holds back interrupts to what it receives"
        );
        let consequence =
            "latencies depend on the traffic shortly before, and differ from run to run";
        let cure = "have it hold them back for a time that stays the same";
        let check = Check::bad("moderation", Effect::Falsifies, found, consequence, cure);
        return Some(check.command(format!("ethtool -C {name} adaptive-rx off")));
    }
    let found = match (rx_us, rx_frames) {
        (0, 0 | 1) => format!("the device {name} holds back no interrupt"),
        _ => format!(
            "the device {name} holds back interrupts for {rx_us} µs or {rx_frames} frames, always alike"
        ),
    };
    Some(Check::fine("moderation", found))
}

fn offloads(device: &NetworkDevice) -> Option<Check> {
    let (name, offloads) = (&device.name, device.offloads?);
    let found =
        format!("of GRO, LRO, TSO and GSO, the device {name} has these on: {}", offloads.names());
    if !offloads.gro && !offloads.lro {
        let consequence =
            "each segment of a connection is received by itself, which slows TCP down";
        let check = Check::bad("offloads", Effect::Limits, found, consequence, "have them joined");
        return Some(check.command(format!("ethtool -K {name} gro on")));
    }
    Some(Check::fine("offloads", found))
}

/// A mask of so many cores, as the kernel takes it: words of 32 bits, the highest first.
fn all_cores(cores: usize) -> String {
    let words = cores.div_ceil(32);
    let of = |word: usize| u32::MAX >> (32 - (cores - word * 32).min(32));
    (0..words).rev().map(|word| format!("{:x}", of(word))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Boost, Core, Mitigation, Offloads, Rss};

    /// Four cores, two to each physical one, and nothing to complain about.
    fn sound() -> Machine {
        let core = |number: usize| Core { number, numa_node: Some(0), siblings: vec![number ^ 1] };
        Machine {
            cores: (0..4).map(core).collect(),
            governors: vec!["performance".into()],
            swap_bytes: Some(0),
            virtualised: Some(false),
            clocksource: Some("tsc".into()),
            io_uring_disabled: Some(0),
            ..Machine::default()
        }
    }

    fn about(machine: &Machine, load: Load) -> Vec<&'static str> {
        warnings(machine, load).iter().map(|warning| warning.about).collect()
    }

    #[test]
    fn a_sound_machine_gives_none() {
        let quiet = Load { others: Some(0.05), stolen: Some(0.0) };
        assert_eq!(about(&sound(), quiet), [""; 0]);
        assert_eq!(about(&sound(), Load::default()), [""; 0]);
    }

    #[test]
    fn each_thing_is_found_by_itself() {
        let with = |change: fn(&mut Machine)| {
            let mut machine = sound();
            change(&mut machine);
            about(&machine, Load::default())
        };
        assert_eq!(with(|m| m.cores.truncate(1)), ["cores"]);
        assert_eq!(with(|m| m.cores.truncate(2)), ["siblings"]);
        assert_eq!(with(|m| m.governors.push("powersave".into())), ["governor"]);
        assert_eq!(with(|m| m.emulator = Some("Wine 8.0".into())), ["emulated"]);
        assert_eq!(with(|m| m.virtualised = Some(true)), ["virtual"]);
        assert_eq!(with(|m| m.swap_bytes = Some(1 << 30)), ["swap"]);
        assert_eq!(with(|m| m.clocksource = Some("hpet".into())), ["clocksource"]);
        assert_eq!(with(|m| m.io_uring_disabled = Some(2)), ["io_uring"]);
        let load = |others, stolen| about(&sound(), Load { others, stolen });
        assert_eq!(load(Some(0.11), None), ["load"]);
        assert_eq!(load(None, Some(0.02)), ["stolen"]);
    }

    #[test]
    fn protections_that_are_on_are_named() {
        let of = |states: &[(&str, &str)]| {
            let mut machine = sound();
            let all = states.iter().map(|(weakness, state)| Mitigation {
                weakness: (*weakness).into(),
                state: (*state).into(),
            });
            machine.mitigations = all.collect();
            let check = mitigations(&machine, None);
            check.is_warning().then(|| check.to_string())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("mds", "Vulnerable"), ("ssb", "Not affected")]), None);
        let some =
            of(&[("mds", "Vulnerable"), ("retbleed", "Mitigation: IBRS")]).expect("one is on");
        assert!(some.contains("are on (retbleed): "), "{some}");
    }

    #[test]
    fn a_warning_says_what_was_found() {
        let mut machine = sound();
        machine.governors = vec!["ondemand".into(), "performance".into(), "powersave".into()];
        machine.swap_bytes = Some(512 << 20);
        let load = Load { others: Some(0.34), stolen: None };
        let texts: Vec<String> = warnings(&machine, load).iter().map(Check::to_string).collect();
        assert_eq!(texts.len(), 3);
        assert!(texts[0].contains("is ondemand and powersave:"), "{}", texts[0]);
        assert!(texts[1].contains("(512 MiB)"), "{}", texts[1]);
        assert!(texts[2].contains("34 %"), "{}", texts[2]);
    }

    /// As `sound`, with nothing wanting for any check.
    fn perfect() -> Machine {
        Machine {
            smt: Some(false),
            boost: Some(Boost { on: false, path: "boost", off: '0' }),
            online_cores: Some(4),
            rmem_max_bytes: Some(8 << 20),
            open_files: Some(Limit::Unlimited),
            memlock: Some(Limit::AtMost(1 << 30)),
            numa_balancing: Some(1),
            skb_defer_max: Some(0),
            connections_tracked: Some(0),
            cpu_quota_thousandths: Some(Limit::Unlimited),
            network: vec![NetworkDevice {
                name: "eth0".into(),
                receive_queues: 4,
                bits_per_s: Some(25_000_000_000),
                pcie: Some(Pcie { speed: "8.0 GT/s PCIe".into(), lanes: 8, at_best: None }),
                rss: Some(Rss { entries: 128, queues: 4, key_bytes: 40 }),
                moderation: Some(Moderation { rx_us: 8, rx_frames: 32, adaptive_rx: false }),
                offloads: Some(Offloads { gro: true, tso: true, ..Offloads::default() }),
                ..Default::default()
            }],
            ..sound()
        }
    }

    fn all(machine: &Machine) -> Vec<Check> {
        let instruments =
            Instruments { checkers: Some(vec![]), tracing: Some(vec![]), ..Instruments::default() };
        let costs =
            Costs { call_ns: Some(90), clock_ns: Some(20), wake_ns: Some(5000), hop_ns: Some(60) };
        checks(machine, &instruments, Load { others: Some(0.0), stolen: Some(0.0) }, costs)
    }

    #[test]
    fn every_check_is_there_once_and_is_wanting_only_for_its_own_reason() {
        // Whether threads can be bound to cores is this machine's.
        let wanting = |machine: &Machine| -> Vec<&'static str> {
            let all = all(machine).into_iter().filter(|check| check.is_warning());
            all.map(|check| check.about).filter(|about| *about != "pinning").collect()
        };
        assert_eq!(wanting(&perfect()), [""; 0]);
        let mut names: Vec<_> = all(&perfect()).iter().map(|check| check.about).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        let with = |change: fn(&mut Machine)| {
            let mut machine = perfect();
            change(&mut machine);
            wanting(&machine)
        };
        assert_eq!(with(|m| m.smt = Some(true)), ["smt"]);
        assert_eq!(with(|m| m.cpu_quota_thousandths = Some(Limit::AtMost(1500))), ["quota"]);
        assert_eq!(with(|m| m.boost = Some(Boost { on: true, path: "p", off: '1' })), ["boost"]);
        assert_eq!(with(|m| m.rmem_max_bytes = Some(212_992)), ["rcvbuf"]);
        assert_eq!(with(|m| m.open_files = Some(Limit::AtMost(1024))), ["descriptors"]);
        assert_eq!(with(|m| m.memlock = Some(Limit::AtMost(8 << 20))), ["memlock"]);
        assert_eq!(with(|m| m.cores[3].numa_node = Some(1)), ["numa"]);
        assert_eq!(with(|m| m.skb_defer_max = Some(64)), ["skb_defer"]);
        assert_eq!(with(|m| m.connections_tracked = Some(3)), ["conntrack"]);
        let one_queue = |m: &mut Machine| {
            m.network[0].receive_queues = 1;
            m.network[0].rss.as_mut().unwrap().queues = 0;
        };
        assert_eq!(with(one_queue), ["queues"], "one queue spreads nothing over others");
        let slow = |m: &mut Machine| {
            m.network[0].pcie.as_mut().unwrap().at_best = Some(("16.0 GT/s PCIe".into(), 8));
        };
        assert_eq!(with(slow), ["link"]);
        assert_eq!(with(|m| m.network[0].rss.as_mut().unwrap().queues = 2), ["rss"]);
        let adapts = |m: &mut Machine| m.network[0].moderation.as_mut().unwrap().adaptive_rx = true;
        assert_eq!(with(adapts), ["moderation"]);
        assert_eq!(with(|m| m.network[0].offloads = Some(Offloads::default())), ["offloads"]);
        // What a device does not say nobody can change.
        let silent = |m: &mut Machine| {
            let NetworkDevice { name, receive_queues, .. } = m.network.remove(0);
            m.network.push(NetworkDevice { name, receive_queues, ..Default::default() });
        };
        assert_eq!(with(silent), [""; 0]);
        assert_eq!(with(|m| m.smt = None), ["smt"], "what is not known is told");
    }

    #[test]
    fn what_is_worst_comes_first_and_each_says_what_follows() {
        let mut machine = perfect();
        machine.skb_defer_max = Some(64);
        machine.swap_bytes = Some(1 << 30);
        machine.smt = None;
        let all = all(&machine);
        assert!(all.is_sorted_by(|one, next| one.effect >= next.effect), "{all:#?}");
        for check in all {
            assert!(!check.found.is_empty(), "{check:?}");
            assert_eq!(check.is_warning(), !check.consequence.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn what_can_be_set_is_what_is_found_wanting_and_safe() {
        let mut machine = perfect();
        machine.wmem_max_bytes = Some(8 << 20);
        assert_eq!(settings(&machine), []);
        machine.governor_files = vec![("policy0/scaling_governor".into(), "powersave".into())];
        machine.boost = Some(Boost { on: true, path: "no_turbo", off: '1' });
        machine.rmem_max_bytes = Some(212_992);
        machine.cores[0].numa_node = Some(1);
        // None of these is ours to take away.
        machine.smt = Some(true);
        machine.swap_bytes = Some(1 << 30);
        machine.io_uring_disabled = Some(2);
        let set: Vec<_> = settings(&machine)
            .into_iter()
            .map(|setting| format!("{} {} {}", setting.path, setting.before, setting.after))
            .collect();
        let expected = [
            "policy0/scaling_governor powersave performance",
            "no_turbo 0 1",
            "/proc/sys/net/core/rmem_max 212992 4194304",
            "/proc/sys/kernel/numa_balancing 1 0",
        ];
        assert_eq!(set, expected);
    }

    #[test]
    fn masks_are_the_kernels() {
        let masks = [1, 2, 31, 32, 33, 64, 65].map(all_cores);
        let expected = [
            "1",
            "3",
            "7fffffff",
            "ffffffff",
            "1,ffffffff",
            "ffffffff,ffffffff",
            "1,ffffffff,ffffffff",
        ];
        assert_eq!(masks, expected);
    }
}
