//! Recorded texts parse exactly; any text parses.

use super::*;
use proptest::prelude::*;

const DEVICES: &[u8] = b"Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1093364    7120    0    0    0     0          0         0  1093364    7120    0    0    0     0       0          0
 weir0:81230904  765432    0   17    0     0          0         0    70042     431    0    3    0     0       0          0
";

#[test]
fn what_a_device_received_and_sent_and_dropped() {
    let usage = |received, dropped, sent, send_dropped| DeviceUsage {
        received: Some(received),
        dropped: Some(dropped),
        sent: Some(sent),
        send_dropped: Some(send_dropped),
    };
    assert_eq!(device(DEVICES, "weir0"), usage(765_432, 17, 431, 3));
    assert_eq!(device(DEVICES, "lo"), usage(7120, 0, 7120, 0));
    assert_eq!(device(DEVICES, "weir"), DeviceUsage::default());
    assert_eq!(device(b"weir0: 1", "weir0"), DeviceUsage::default());
}

const TICK_NS: u64 = 10_000_000;

const THREAD_STAT: &[u8] = b"5317 (a) S 9 (odd na\xffme) R 5309 5309 3590 0 -1 4194304 101 0 0 0 \
    42 17 0 0 20 0 1 0 81627 3133440 418 18446744073709551615 94859003449344 94859003469225 \
    140721845571312 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 94859003485232 94859003486848\n";

const THREAD_SCHED: &[u8] = b"cat (5344, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :        816351.409774
se.sum_exec_runtime                          :             0.000000
se.nr_migrations                             :                    4
nr_switches                                  :                   12
nr_voluntary_switches                        :                    5
nr_involuntary_switches                      :                    7
policy                                       :                    0
";

const STATUS: &[u8] = b"Name:\tcat
Uid:\t0\t0\t0\t0
VmPeak:\t    3060 kB
VmLck:\t      64 kB
VmPin:\t       8 kB
VmHWM:\t    1752 kB
VmRSS:\t    1640 kB
Threads:\t9
voluntary_ctxt_switches:\t150
nonvoluntary_ctxt_switches:\t545
";

const UDP: &[u8] = b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1039: 0100007F:B514 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 254581 2 000000002cf56bd9 4
 4713: 0100007F:836E 00000000:0000 07 00000000:00000001 00:00000000 00000000     0        0 255045 2 000000008058639c 9
 4713: 00000000:B514 00000000:0000 07 00000000:00000001 00:00000000 00000000     0        0 255045 2 000000008058639c 9
 1039: 0100007F:B514 00000000:0000 07 00000000:00000010 00:00000000 00000000     0        0 254582 2 000000002cf56bd8 1
";

const UDP6: &[u8] = b"  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2208: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 93 2 0000000000000000 7
";

#[cfg(target_endian = "little")]
#[test]
fn sockets_are_found_by_their_address() {
    let at = |text, address: &str| udp_sockets(text, &[address.parse().expect("an address")]);
    let all = at(UDP, "127.0.0.1:46356");
    let figures = |socket: &BoundSocket| (socket.usage.drops, socket.usage.queued_bytes);
    let all: Vec<_> = all.iter().map(figures).collect();
    assert_eq!(all, [(Some(4), Some(0x300)), (Some(1), Some(0x10))]);
    assert_eq!(at(UDP, "127.0.0.1:46356")[1].inode, 254_582);
    assert_eq!(at(UDP, "0.0.0.0:46356")[0].usage.drops, Some(9));
    let v6 = at(UDP6, "[::1]:8080");
    assert_eq!((v6[0].usage.drops, v6[0].inode), (Some(7), 93));
    assert_eq!(at(UDP, "127.0.0.2:46356"), []);
}

#[test]
fn a_socket_is_known_by_its_inode() {
    let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2087: 0100007F:B514 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 148153 2 00000000aa 0
";
    assert_eq!(udp_inodes(text.as_bytes()), [("127.0.0.1:46356".parse().unwrap(), 148_153)]);
    assert_eq!(socket_inode("socket:[148153]"), Some(148_153));
    assert_eq!((socket_inode("pipe:[148153]"), socket_inode("socket:[x]")), (None, None));
    assert_eq!(thread_schedstat(b"123456 789 10\n"), Some(123_456));
}

const SNMP: &[u8] = b"Tcp: RtoAlgorithm RtoMin
Tcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 140 1 12 141 11 2 3 0 4
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 9 9 9 9 9 9 9 9 9
";

const SNMP6: &[u8] = b"Ip6InReceives                   \t90
Udp6InDatagrams                 \t7
Udp6NoPorts                     \t0
Udp6InErrors                    \t5
Udp6OutDatagrams                \t12
Udp6RcvbufErrors                \t4
Udp6SndbufErrors                \t0
Udp6InCsumErrors                \t1
UdpLite6InDatagrams             \t99
";

const SOFTNET: &[u8] = b"00000010 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
fffffa9b 000000ff 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000005 00000000 00000000
";

const STAT: &[u8] = b"cpu  5182 0 1134 156317 307 0 33 5 0 0
cpu0 2114 1 426 78922 19 2 12 3 0 0
cpu7 3068 0 707 77394 288 0 21
intr 160796 0 0 0 0 1 1 16
ctxt 259404
btime 1795246527
softirq 106320 0 13583 4 8048 34664 0 75 29182 0 20764
";

const SOCKSTAT: &[u8] = b"sockets: used 14
TCP: inuse 2 orphan 0 tw 1 alloc 2 mem 263
UDP: inuse 1 mem 3
UDPLITE: inuse 0
";

#[test]
fn a_thread_whose_name_holds_brackets_spaces_and_no_text() {
    let stat = thread_stat(THREAD_STAT, TICK_NS);
    assert_eq!((stat.cpu_system_ns, stat.core), (Some(170_000_000), Some(3)));
    assert_eq!(stat.cpu_ns, None);
}

#[test]
fn context_switches_and_migrations() {
    let sched = thread_sched(THREAD_SCHED);
    let counts = (sched.voluntary_switches, sched.involuntary_switches, sched.migrations);
    assert_eq!(counts, (Some(5), Some(7), Some(4)));
    let status = thread_status(STATUS);
    let counts = (status.voluntary_switches, status.involuntary_switches, status.migrations);
    assert_eq!(counts, (Some(150), Some(545), None));
}

#[test]
fn memory_of_a_process() {
    let expected = ProcessUsage {
        resident_bytes: Some(1640 * 1024),
        peak_resident_bytes: Some(1752 * 1024),
        locked_bytes: Some(64 * 1024),
        pinned_bytes: Some(8 * 1024),
        threads: Some(9),
        ..ProcessUsage::default()
    };
    assert_eq!(process_status(STATUS), expected);
}

#[test]
fn udp_and_not_udp_lite() {
    let expected = UdpUsage {
        in_datagrams: Some(140),
        no_ports: Some(1),
        in_errors: Some(12),
        out_datagrams: Some(141),
        receive_buffer_errors: Some(11),
        send_buffer_errors: Some(2),
        checksum_errors: Some(3),
        memory_errors: Some(4),
    };
    assert_eq!(snmp_udp(SNMP), expected);
}

#[test]
fn udp_of_ipv6_on_a_kernel_without_memory_errors() {
    let expected = UdpUsage {
        in_datagrams: Some(7),
        no_ports: Some(0),
        in_errors: Some(5),
        out_datagrams: Some(12),
        receive_buffer_errors: Some(4),
        send_buffer_errors: Some(0),
        checksum_errors: Some(1),
        memory_errors: None,
    };
    assert_eq!(snmp6_udp(SNMP6), expected);
}

#[test]
fn softnet_is_hexadecimal_and_names_its_core() {
    let of = |core, processed, dropped, squeezed| OfCore {
        core,
        usage: SoftnetUsage {
            processed: Some(processed),
            dropped: Some(dropped),
            squeezed: Some(squeezed),
        },
    };
    assert_eq!(softnet(SOFTNET), vec![of(0, 16, 0, 0), of(5, 0xffff_fa9b, 255, 3)]);
}

#[test]
fn softnet_of_an_old_kernel_counts_lines() {
    let cores: Vec<usize> = softnet(b"1 2 3\n4 5 6\n").iter().map(|of| of.core).collect();
    assert_eq!(cores, [0, 1]);
}

#[test]
fn interrupts_and_the_times_of_cores() {
    let total = stat_total(STAT);
    let counts = (total.interrupts, total.softirqs, total.net_receive_softirqs);
    assert_eq!(counts, (Some(160_796), Some(106_320), Some(8048)));
    assert_eq!(total.context_switches, Some(259_404));

    let cores = stat_cores(STAT, TICK_NS);
    assert_eq!(cores.iter().map(|of| of.core).collect::<Vec<_>>(), [0, 7]);
    let expected = CoreUsage {
        user_ns: Some(21_140_000_000),
        nice_ns: Some(10_000_000),
        system_ns: Some(4_260_000_000),
        idle_ns: Some(789_220_000_000),
        iowait_ns: Some(190_000_000),
        irq_ns: Some(20_000_000),
        softirq_ns: Some(120_000_000),
        steal_ns: Some(30_000_000),
    };
    assert_eq!(cores[0].usage, expected);
    assert_eq!(cores[0].usage.busy_ns(), Some(25_580_000_000));
    assert_eq!(cores[0].usage.total_ns(), Some(814_990_000_000));
    assert_eq!(cores[1].usage.steal_ns, None);
}

#[test]
fn memory_of_sockets_and_caches() {
    let sockets = sockstat(SOCKSTAT, 4096);
    assert_eq!(sockets.udp_memory_bytes, Some(3 * 4096));
    assert_eq!(sockets.tcp_memory_bytes, Some(263 * 4096));
    let memory = meminfo(b"MemFree: 1 kB\nSlab:              91056 kB\nSReclaimable: 1 kB\n");
    assert_eq!(memory.slab_bytes, Some(91_056 * 1024));
}

/// Of a process with one ring of io_uring and an AF_XDP socket, cut short.
const MAPS: &[u8] = b"\
55d0c8a00000-55d0c8a21000 r--p 00000000 fe:00 1573041  /usr/bin/weir (deleted)
7f0c38000000-7f0c38021000 rw-p 00000000 00:00 0\x20
7f0c3c9fe000-7f0c3ca1f000 rw-s 10000000 00:0e 1041     anon_inode:[io_uring]
7f0c3ca1f000-7f0c3ca21000 rw-s 00000000 00:0e 1041     anon_inode:[io_uring]
7f0c3ca21000-7f0c3ca23000 rw-s 100000000 00:08 20517   socket:[20517]
7f0c3ca23000-7f0c3ca25000 rw-s 00000000 00:01 2048     /dev/zero (deleted)
";

#[test]
fn memory_of_the_kernel() {
    assert_eq!(mapped_rings(MAPS), Some(0x21000 + 0x2000 + 0x2000));
    assert_eq!(mapped_rings(b"55d0-55d1 r--p 0 fe:00 1 /usr/bin/weir\n"), Some(0), "no ring");
    assert_eq!(mapped_rings(b""), None);
    assert_eq!(page_tables(b"VmLib:\t 1 kB\nVmPTE:\t      52 kB\n"), Some(52 * 1024));
    let memory =
        kernel_memory(b"SReclaimable: 7 kB\nSUnreclaim:  30304 kB\nKernelStack: 1912 kB\n");
    let expected = KernelMemory {
        stack_bytes: Some(1912 * 1024),
        slab_bytes: Some(30_304 * 1024),
        ..KernelMemory::default()
    };
    assert_eq!(memory, expected);
}

#[test]
fn nothing_is_found_in_nothing() {
    assert_eq!(thread_stat(b"", TICK_NS), ThreadUsage::default());
    assert_eq!(process_status(b""), ProcessUsage::default());
    assert_eq!(snmp_udp(b"Udp: InDatagrams\n"), UdpUsage::default());
    assert_eq!(stat_total(b"intr\nsoftirq 1 2\n").net_receive_softirqs, None);
    assert!(softnet(b"\n \n").is_empty() && stat_cores(b"cpu 1 2 3\n", TICK_NS).is_empty());
}

/// Cuts and rearranges the recorded texts, so that what is nearly right is tried too.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let recorded = prop::sample::select(vec![
        THREAD_STAT,
        THREAD_SCHED,
        STATUS,
        SNMP,
        SNMP6,
        SOFTNET,
        STAT,
        SOCKSTAT,
        UDP,
        UDP6,
        MAPS,
    ]);
    let piece = (recorded, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |(text, a, b)| {
            let (a, b) = (a.index(text.len()), b.index(text.len()));
            text[a.min(b)..a.max(b)].to_vec()
        },
    );
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let huge = Just(b"\nUdp: 99999999999999999999 cpu1 18446744073709551615 kB\n".to_vec());
    prop::collection::vec(prop_oneof![3 => piece, 1 => noise, 1 => huge], 0..6)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_parses(text in any_text(), scale in any::<u64>()) {
        thread_stat(&text, scale);
        thread_sched(&text);
        thread_status(&text);
        process_status(&text);
        snmp_udp(&text);
        snmp6_udp(&text);
        stat_total(&text);
        sockstat(&text, scale);
        meminfo(&text);
        let _ = (kernel_memory(&text), page_tables(&text), mapped_rings(&text));
        udp_sockets(&text, &[([127, 0, 0, 1], 46356).into()]);
        udp_inodes(&text);
        let lines = text.split(|byte| *byte == b'\n').count();
        prop_assert!(softnet(&text).len() <= lines);
        prop_assert!(stat_cores(&text, scale).len() <= lines);
    }

    #[test]
    fn numbers_come_through(counts in prop::array::uniform9(any::<u64>())) {
        let numbers: Vec<String> = counts.iter().map(u64::to_string).collect();
        let names = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors \
            InCsumErrors IgnoredMulti MemErrors";
        let snmp = format!("Udp: {names}\nUdp: {}\n", numbers.join(" "));
        let snmp6: String = names
            .split_whitespace()
            .zip(&numbers)
            .map(|(name, number)| format!("Udp6{name} \t{number}\n"))
            .collect();
        let udp = snmp_udp(snmp.as_bytes());
        let found: Vec<Option<u64>> = udp.named().into_iter().map(|(_, count)| count).collect();
        let expected: Vec<Option<u64>> =
            [0, 1, 2, 3, 4, 5, 6, 8].map(|n: usize| Some(counts[n])).to_vec();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(snmp6_udp(snmp6.as_bytes()), udp);
    }
}

#[test]
fn interrupts_are_added_up_core_by_core() {
    let text = b"           CPU0       CPU2
  1:          3          0   IO-APIC   1-edge      i8042
 24:         10         20   PCI-MSIX-0000:00:03.0   0-edge      virtio1
NMI:          0          1   Non-maskable interrupts
LOC:        100        200   Local timer interrupts
ERR:          7
MIS:          0
";
    let of = |core, usage| OfCore { core, usage };
    assert_eq!(interrupts(text), [of(0, 113), of(2, 221)]);
    assert_eq!(interrupts(b"  CPU0\n 9: 18446744073709551615 x\n 10: 5 y\n"), [of(0, u64::MAX)]);
    assert_eq!(interrupts(b""), []);
    assert_eq!(interrupts(b"no cores\n 1: 2\n"), []);
}
