//! Reads the texts of `/proc` into figures. Pure functions: any text gives an answer, and
//! what is not found in it, or is no number, is `None`.
//!
//! They are our own: the crate `procfs` reads all of a file or nothing of it, has neither a socket's drops nor softnet,
//! sockstat or counts of interrupts, and takes up to twice the time and hundreds of allocations for a reading.

use std::net::{IpAddr, SocketAddr};

use crate::counters::os::{
    BoundSocket, CoreUsage, DeviceUsage, KernelMemory, OfCore, ProcessUsage, SocketUsage,
    SoftnetUsage, ThreadUsage, TotalUsage, UdpUsage, usage,
};

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

/// The words of the first line that begins with `label` as its first word, without it.
fn after_label<'t>(text: &'t [u8], label: &str) -> Option<impl Iterator<Item = &'t [u8]>> {
    lines(text).find_map(|line| {
        let mut words = words(line);
        (words.next()? == label.as_bytes()).then_some(words)
    })
}

/// The first number after `label`.
fn labelled(text: &[u8], label: &str) -> Option<u64> {
    number(after_label(text, label)?.next()?)
}

/// A size after `label`, written in kB, in bytes.
fn labelled_kib(text: &[u8], label: &str) -> Option<u64> {
    labelled(text, label)?.checked_mul(1024)
}

/// `/proc/PID/task/TID/stat`: the time in the kernel (fields count from 1: field 15) and
/// the core last run on (field 39). The name, field 2, may hold anything, spaces and
/// brackets included, so fields are counted from its last bracket.
pub(super) fn thread_stat(text: &[u8], tick_ns: u64) -> ThreadUsage {
    const FIRST_AFTER_NAME: usize = 3;
    let after_name =
        text.iter().rposition(|byte| *byte == b')').map_or(&[][..], |end| &text[end + 1..]);
    let field = |n: usize| number(words(after_name).nth(n - FIRST_AFTER_NAME)?);
    ThreadUsage {
        cpu_system_ns: field(15).and_then(|ticks| ticks.checked_mul(tick_ns)),
        core: field(39),
        ..ThreadUsage::default()
    }
}

/// `/proc/PID/task/TID/sched`: context switches and migrations.
pub(super) fn thread_sched(text: &[u8]) -> ThreadUsage {
    let value = |label| number(after_label(text, label)?.nth(1)?); // after the colon
    ThreadUsage {
        voluntary_switches: value("nr_voluntary_switches"),
        involuntary_switches: value("nr_involuntary_switches"),
        migrations: value("se.nr_migrations"),
        ..ThreadUsage::default()
    }
}

/// `/proc/PID/task/TID/status`: context switches.
pub(super) fn thread_status(text: &[u8]) -> ThreadUsage {
    ThreadUsage {
        voluntary_switches: labelled(text, "voluntary_ctxt_switches:"),
        involuntary_switches: labelled(text, "nonvoluntary_ctxt_switches:"),
        ..ThreadUsage::default()
    }
}

/// `/proc/PID/task/TID/schedstat`: the time on a core, in ns.
pub(super) fn thread_schedstat(text: &[u8]) -> Option<u64> {
    number(words(text).next()?)
}

/// A link of `/proc/PID/fd` to a socket: `socket:[INODE]`.
pub(super) fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `/proc/PID/status`: memory and threads.
pub(super) fn process_status(text: &[u8]) -> ProcessUsage {
    ProcessUsage {
        resident_bytes: labelled_kib(text, "VmRSS:"),
        peak_resident_bytes: labelled_kib(text, "VmHWM:"),
        locked_bytes: labelled_kib(text, "VmLck:"),
        pinned_bytes: labelled_kib(text, "VmPin:"),
        threads: labelled(text, "Threads:"),
        ..ProcessUsage::default()
    }
}

/// `/proc/net/dev`: behind each device's name packets received (the second number) and dropped (the
/// fourth), and the same of those sent, eight numbers later.
pub(super) fn device(text: &[u8], name: &str) -> DeviceUsage {
    let numbers = lines(text).find_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        (line[..at].trim_ascii() == name.as_bytes()).then(|| &line[at + 1..])
    });
    let figure = |n| number(words(numbers?).nth(n)?);
    let (received, dropped) = (figure(1), figure(3));
    DeviceUsage { received, dropped, sent: figure(9), send_dropped: figure(11) }
}

fn udp(figure: impl Fn(&str) -> Option<u64>) -> UdpUsage {
    UdpUsage {
        in_datagrams: figure("InDatagrams"),
        no_ports: figure("NoPorts"),
        in_errors: figure("InErrors"),
        out_datagrams: figure("OutDatagrams"),
        receive_buffer_errors: figure("RcvbufErrors"),
        send_buffer_errors: figure("SndbufErrors"),
        checksum_errors: figure("InCsumErrors"),
        memory_errors: figure("MemErrors"),
    }
}

/// `/proc/net/snmp`: a line of names and a line of numbers, both with the same label.
pub(super) fn snmp_udp(text: &[u8]) -> UdpUsage {
    let mut rows = lines(text).filter(|line| words(line).next() == Some(b"Udp:"));
    let (Some(names), Some(numbers)) = (rows.next(), rows.next()) else {
        return UdpUsage::default();
    };
    udp(|name| {
        let column = words(names).position(|word| word == name.as_bytes())?;
        number(words(numbers).nth(column)?)
    })
}

/// `/proc/net/snmp6`: a name and a number in each line.
pub(super) fn snmp6_udp(text: &[u8]) -> UdpUsage {
    udp(|name| labelled(text, &format!("Udp6{name}")))
}

/// `/proc/net/softnet_stat`: hexadecimal columns, a line for each core that is online.
/// The core's number is column 13 (from 1) since Linux 5.10; before, lines are counted.
pub(super) fn softnet(text: &[u8]) -> Vec<OfCore<SoftnetUsage>> {
    lines(text)
        .enumerate()
        .filter(|(_, line)| words(line).next().is_some())
        .map(|(index, line)| {
            let column = |n: usize| words(line).nth(n - 1).and_then(hexadecimal);
            OfCore {
                core: column(13).map_or(index, |core| core as usize),
                usage: SoftnetUsage {
                    processed: column(1),
                    dropped: column(2),
                    squeezed: column(3),
                },
            }
        })
        .collect()
}

/// `/proc/stat`: the machine's interrupts and context switches.
pub(super) fn stat_total(text: &[u8]) -> TotalUsage {
    const NET_RX: usize = 4; // after the sum: HI, TIMER, NET_TX, NET_RX
    TotalUsage {
        interrupts: labelled(text, "intr"),
        softirqs: labelled(text, "softirq"),
        net_receive_softirqs: after_label(text, "softirq")
            .and_then(|mut words| number(words.nth(NET_RX)?)),
        context_switches: labelled(text, "ctxt"),
        ..TotalUsage::default()
    }
}

/// `/proc/interrupts`: the numbers of the cores that are online, and for each kind of interrupt a line with its label, a
/// count for each of them, and words. Lines of one count for all (`ERR`, `MIS`) are not of a core.
pub(super) fn interrupts(text: &[u8]) -> Vec<OfCore<u64>> {
    let mut lines = lines(text);
    let heading = lines.next().unwrap_or_default();
    let core = |word: &[u8]| number(word.strip_prefix(b"CPU")?).map(|core| core as usize);
    let mut cores: Vec<OfCore<u64>> =
        words(heading).filter_map(core).map(|core| OfCore { core, usage: 0 }).collect();
    for line in lines {
        let counts = || words(line).skip(1).map_while(number).take(cores.len());
        if counts().count() < cores.len() {
            continue;
        }
        let counts: Vec<u64> = counts().collect();
        for (of, count) in cores.iter_mut().zip(counts) {
            of.usage = of.usage.saturating_add(count);
        }
    }
    cores
}

/// `/proc/stat`: the times of each core, counted there in ticks.
pub(super) fn stat_cores(text: &[u8], tick_ns: u64) -> Vec<OfCore<CoreUsage>> {
    lines(text)
        .filter_map(|line| {
            let mut words = words(line);
            // The line "cpu" without a number is the sum.
            let core = number(words.next()?.strip_prefix(b"cpu")?)? as usize;
            let mut time = || number(words.next()?)?.checked_mul(tick_ns);
            let usage = CoreUsage {
                user_ns: time(),
                nice_ns: time(),
                system_ns: time(),
                idle_ns: time(),
                iowait_ns: time(),
                irq_ns: time(),
                softirq_ns: time(),
                steal_ns: time(),
            };
            Some(OfCore { core, usage })
        })
        .collect()
}

/// `/proc/net/sockstat`: pages that sockets hold.
pub(super) fn sockstat(text: &[u8], page_bytes: u64) -> TotalUsage {
    let memory = |label| {
        let mut words = after_label(text, label)?;
        words.find(|word| *word == b"mem")?;
        number(words.next()?)?.checked_mul(page_bytes)
    };
    TotalUsage {
        udp_memory_bytes: memory("UDP:"),
        tcp_memory_bytes: memory("TCP:"),
        ..TotalUsage::default()
    }
}

/// `/proc/meminfo`: the kernel's object caches.
pub(super) fn meminfo(text: &[u8]) -> TotalUsage {
    TotalUsage { slab_bytes: labelled_kib(text, "Slab:"), ..TotalUsage::default() }
}

/// `/proc/meminfo`: what the whole machine's kernel holds that cannot be taken back.
pub(super) fn kernel_memory(text: &[u8]) -> KernelMemory {
    KernelMemory {
        stack_bytes: labelled_kib(text, "KernelStack:"),
        slab_bytes: labelled_kib(text, "SUnreclaim:"),
        ..KernelMemory::default()
    }
}

/// `/proc/PID/status`: the page tables of the process.
pub(super) fn page_tables(text: &[u8]) -> Option<u64> {
    labelled_kib(text, "VmPTE:")
}

/// `/proc/PID/maps`: what the kernel made and the process sees, which is the rings of io_uring and
/// of AF_XDP sockets. `None` if there is no text.
pub(super) fn mapped_rings(text: &[u8]) -> Option<u64> {
    let mut sum = None;
    for line in lines(text) {
        let mut words = words(line);
        // The range, then rights, offset, device and inode, then what is mapped.
        let Some(range) = words.next() else { continue };
        let mut ends = range.split(|byte| *byte == b'-').map(hexadecimal);
        let (Some(Some(from)), Some(Some(to))) = (ends.next(), ends.next()) else { continue };
        let is_ring = words
            .nth(4)
            .is_some_and(|name| name == b"anon_inode:[io_uring]" || name.starts_with(b"socket:["));
        let bytes = if is_ring { to.saturating_sub(from) } else { 0 };
        sum = usage::count::plus(sum, Some(bytes));
    }
    sum
}

#[cfg(test)]
mod tests;

/// `/proc/net/udp` and `/proc/net/udp6`: what the sockets bound to one of these addresses
/// hold and dropped, added up; nothing is known if there is none.
pub(super) fn udp_sockets(text: &[u8], addresses: &[SocketAddr]) -> Vec<BoundSocket> {
    let socket = |line| {
        // Words count from 0: 1 is the local address, 4 both queues, 9 the inode, the last the drops.
        let mut words = words(line);
        let local = words.nth(1).and_then(socket_address)?;
        if !addresses.contains(&local) {
            return None;
        }
        let queued_bytes =
            words.nth(2).and_then(|queues| hexadecimal(queues.split(|byte| *byte == b':').nth(1)?));
        let inode = words.nth(4).and_then(number).unwrap_or(0);
        let drops = words.last().and_then(number);
        let usage = SocketUsage { drops, queued_bytes, receive_buffer_bytes: None };
        Some(BoundSocket { inode, usage })
    };
    lines(text).filter_map(socket).collect()
}

/// `/proc/net/udp` and `/proc/net/udp6`: where each socket is bound, and its inode.
pub(super) fn udp_inodes(text: &[u8]) -> Vec<(SocketAddr, u64)> {
    let socket = |line| {
        // Words count from 0: 1 is the local address, 9 the inode.
        let mut words = words(line);
        Some((socket_address(words.nth(1)?)?, number(words.nth(7)?)?))
    };
    lines(text).filter_map(socket).collect()
}

/// An address and a port as `/proc/net/udp` writes them: the address in words of 32 bits, each
/// as the machine reads it from memory, so its bytes stand in reverse on most machines.
fn socket_address(word: &[u8]) -> Option<SocketAddr> {
    let (address, port) = std::str::from_utf8(word).ok()?.split_once(':')?;
    let bytes: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::try_from(hexadecimal(word)?).ok().map(u32::to_ne_bytes))
        .collect();
    let ip = match bytes?.as_slice() {
        [v4] => IpAddr::from(*v4),
        words => IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Reads a text as every file there is.
#[cfg(fuzzing)]
pub fn parse_every_text(text: &[u8]) {
    let addresses = ["127.0.0.1:8080", "[::1]:8080"].map(|address| address.parse().unwrap());
    let _ = (thread_stat(text, 10_000_000), thread_sched(text), thread_status(text));
    let _ = (process_status(text), snmp_udp(text), snmp6_udp(text), softnet(text));
    let _ = (stat_total(text), stat_cores(text, 10_000_000), sockstat(text, 4096), meminfo(text));
    let _ = udp_sockets(text, &addresses);
    let _ = (kernel_memory(text), page_tables(text), mapped_rings(text));
    let _ = (device(text, "lo"), interrupts(text));
    let _ = (udp_inodes(text), thread_schedstat(text));
    let _ = socket_inode(&String::from_utf8_lossy(text));
}
