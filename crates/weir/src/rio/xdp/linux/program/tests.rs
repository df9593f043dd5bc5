//! The program, run by the kernel over frames made up.

use super::{
    super::{
        HEADROOM, Xdp, memory,
        packet::{Ends, HEADERS_V6, write_headers},
        socket::{Rings, Socket},
    },
    *,
};
use crate::{
    bpf::{self, Counts, SocketMap},
    memory::{Layout, Region, RegionOptions},
    required::cannot_run,
};
use std::sync::Arc;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// A program with a socket of ours at queue 0, and what keeps that alive.
struct Loaded {
    program: bpf::Program,
    counts: Counts<{ Passed::ALL }>,
    _kept: (SocketMap, Socket, Rings, Arc<Region>),
}

fn load(filters: &[Filter]) -> Option<Loaded> {
    if cannot_run("xdp", Xdp::default().prove()) {
        return None;
    }
    let layout = Layout { stride: 4096, headroom: HEADROOM, payload: 1, align: 4096 };
    let region = Region::new(layout, 1, RegionOptions::default()).unwrap();
    let (socket, rings) = Socket::new(&memory(&region, HEADERS_V6), 1, 1).unwrap();
    let map = SocketMap::new(1).unwrap();
    map.set(0, socket.fd()).unwrap();
    let counts = Counts::new().unwrap();
    let program = bpf::Program::load(&assemble(MAC, filters, map.fd(), counts.fd())).unwrap();
    Some(Loaded { program, counts, _kept: (map, socket, rings, region) })
}

fn frame(to: &str) -> Vec<u8> {
    let to: std::net::SocketAddr = to.parse().unwrap();
    let from = if to.is_ipv4() { "10.0.0.9:99" } else { "[fd00::9]:99" };
    let from_mac = [2, 0, 0, 0, 0, 2];
    let ends = Ends { from: from.parse().unwrap(), from_mac, to, to_mac: MAC };
    let mut memory = vec![0; 200];
    let frame = write_headers(&mut memory, 100..120, &ends).unwrap();
    memory[frame].to_vec()
}

fn filter(address: &str, port: Option<u16>) -> Filter {
    Filter { address: address.parse().unwrap(), port }
}

#[test]
fn datagrams_to_our_addresses_are_ours_and_nothing_else() {
    let filters = [
        filter("10.0.0.1", Some(1000)),
        filter("fd00::1", Some(1000)),
        filter("10.0.0.1", Some(1001)),
        filter("10.0.0.2", None),
        filter("fd00::2", None),
    ];
    let Some(Loaded { program, counts, _kept }) = load(&filters) else { return };
    for (to, expected) in [
        ("10.0.0.1:1000", REDIRECT),
        ("10.0.0.1:1001", REDIRECT),
        ("10.0.0.1:1002", PASS),
        ("10.0.0.3:1000", PASS),
        ("10.0.0.2:1", REDIRECT),
        ("10.0.0.2:65535", REDIRECT),
        ("[fd00::1]:1000", REDIRECT),
        ("[fd00::1]:1001", PASS),
        ("[fd00::2]:1001", REDIRECT),
        ("[fd01::2]:1001", PASS),
        ("[fd00::1:2]:1001", PASS),
    ] {
        assert_eq!(program.run(&frame(to)).unwrap(), expected, "{to}");
    }
    assert_eq!(counts.read().unwrap(), [5, 0, 0], "all that was passed on is foreign");
}

#[test]
fn all_but_whole_plain_datagrams_is_the_kernels() {
    let filters = [filter("10.0.0.1", None), filter("fd00::1", None)];
    let Some(Loaded { program, counts, _kept }) = load(&filters) else { return };
    let (v4, v6) = (frame("10.0.0.1:1"), frame("[fd00::1]:1"));
    assert_eq!([&v4, &v6].map(|frame| program.run(frame).unwrap()), [REDIRECT; 2]);
    for (name, frame, at, value) in [
        ("another device's", &v4, 5, 9),
        ("a group's", &v4, 0, 3),
        ("a VLAN's", &v4, 12, 0x81),
        ("ARP", &v4, 13, 6),
        ("one with options", &v4, 14, 0x46),
        ("the first fragment", &v4, 20, 0x20),
        ("a later fragment", &v4, 21, 1),
        ("the last but far fragment", &v4, 20, 0x1f),
        ("TCP", &v4, 23, 6),
        ("another version", &v6, 14, 0x40),
        ("one with options of its own", &v6, 20, 60),
        ("a fragment over IPv6", &v6, 20, 44),
    ] {
        let mut frame = frame.clone();
        frame[at] = value;
        let before = counts.read().unwrap();
        assert_eq!(program.run(&frame).unwrap(), PASS, "{name}");
        let mut expected = before;
        let fragment = name.contains("fragment");
        expected[if fragment { Passed::Fragment } else { Passed::Foreign } as usize] += 1;
        assert_eq!(counts.read().unwrap(), expected, "{name}");
    }
    let mut whole = v4.clone();
    whole[20] = 0x40; // "do not fragment" is no fragment
    assert_eq!(program.run(&whole).unwrap(), REDIRECT);
    for length in [14, 41] {
        assert_eq!(program.run(&v4[..length]).unwrap(), PASS, "{length} bytes of IPv4");
    }
    for length in [42, 61] {
        assert_eq!(program.run(&v6[..length]).unwrap(), PASS, "{length} bytes of IPv6");
    }
}

#[test]
fn a_queue_without_a_socket_of_ours_is_the_kernels() {
    let Some(loaded) = load(&[filter("10.0.0.1", None)]) else { return };
    let frame = frame("10.0.0.1:1");
    loaded._kept.0.clear(0);
    assert_eq!(loaded.program.run(&frame).unwrap(), PASS);
    assert_eq!(loaded.counts.read().unwrap(), [0, 0, 1]);
}
