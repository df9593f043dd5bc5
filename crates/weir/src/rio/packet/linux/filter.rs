//! The filter of the socket, in the kernel: what is for our addresses, and UDP. It is of the classic kind of BPF, which
//! needs no privilege.
//!
//! Origin: socket(7) (SO_ATTACH_FILTER), Documentation/networking/filter.rst of the kernel; RFC 791 and 8200 (where the
//! fields lie).

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_PROTOCOL, SKF_NET_OFF, sock_filter,
};
use std::net::IpAddr;

/// For this machine, neither sent by it nor overheard.
const TO_US: u32 = libc::PACKET_HOST as u32;
const UDP: u32 = 17;
/// The header of IPv6 that a fragment has behind the first.
const FRAGMENT_V6: u32 = 44;
/// The bits of an IPv4 header that make it a fragment: more to come, and offset.
const FRAGMENT: u32 = 0x3fff;

/// Bytes that are kept of a packet: all; or, of a part of a datagram, so much that it is known for one.
const ALL: u32 = u32::MAX;
const TO_BE_COUNTED: u32 = 128;

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    V6,
    Of4,
    Of6,
    Fragment,
    Drop,
    /// The next address.
    Next(usize),
}

#[derive(Default)]
struct Program {
    instructions: Vec<sock_filter>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Program {
    fn push(&mut self, code: u32, k: u32, if_not: u8) {
        let code = code as u16;
        self.instructions.push(sock_filter { code, jt: 0, jf: if_not, k });
    }

    /// Loads a field of the network header.
    fn load(&mut self, size: u32, at: i32) {
        self.push(BPF_LD | BPF_ABS | size, (SKF_NET_OFF + at) as u32, 0);
    }

    /// Loads what the kernel knows of the packet.
    fn load_known(&mut self, what: i32) {
        self.push(BPF_LD | BPF_ABS | BPF_W, (SKF_AD_OFF + what) as u32, 0);
    }

    /// Conditional jumps reach 255 instructions, this one all: so a condition skips it.
    fn go_to(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(BPF_JMP | BPF_JA, 0, 0);
    }

    fn if_equal(&mut self, value: u32, label: Label) {
        self.push(BPF_JMP | BPF_JEQ | BPF_K, value, 1);
        self.go_to(label);
    }

    fn unless_equal(&mut self, value: u32, label: Label) {
        self.push(BPF_JMP | BPF_JEQ | BPF_K, value, 0);
        self.instructions.last_mut().expect("just pushed").jt = 1;
        self.go_to(label);
    }

    fn if_any_bit(&mut self, bits: u32, label: Label) {
        self.push(BPF_JMP | BPF_JSET | BPF_K, bits, 1);
        self.go_to(label);
    }

    fn keep(&mut self, bytes: u32) {
        self.push(BPF_RET | BPF_K, bytes, 0);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    fn finish(mut self) -> Vec<sock_filter> {
        for (at, label) in self.jumps {
            let to = self.labels.iter().find(|(known, _)| *known == label);
            let (_, to) = to.expect("every label is set");
            self.instructions[at].k = (to - at - 1) as u32;
        }
        self.instructions
    }
}

/// The filter for datagrams to these addresses, whatever their port.
pub fn assemble(addresses: &[IpAddr]) -> Vec<sock_filter> {
    let mut program = Program::default();
    program.load_known(SKF_AD_PKTTYPE);
    program.unless_equal(TO_US, Label::Drop);
    program.load_known(SKF_AD_PROTOCOL);
    program.if_equal(libc::ETH_P_IPV6 as u32, Label::V6);
    program.unless_equal(libc::ETH_P_IP as u32, Label::Drop);

    program.load(BPF_B, 9);
    program.unless_equal(UDP, Label::Drop);
    program.load(BPF_W, 16);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            program.if_equal(address.to_bits(), Label::Of4);
        }
    }
    program.go_to(Label::Drop);
    program.label(Label::Of4);
    program.load(BPF_H, 6);
    program.if_any_bit(FRAGMENT, Label::Fragment);
    program.keep(ALL);

    program.label(Label::V6);
    for (number, address) in addresses.iter().enumerate() {
        let IpAddr::V6(address) = address else { continue };
        let other = Label::Next(number);
        for (at, word) in (24..).step_by(4).zip(address.octets().chunks_exact(4)) {
            program.load(BPF_W, at);
            let word = u32::from_be_bytes(word.try_into().expect("four bytes"));
            program.unless_equal(word, other);
        }
        program.go_to(Label::Of6);
        program.label(other);
    }
    program.go_to(Label::Drop);
    program.label(Label::Of6);
    program.load(BPF_B, 6);
    program.if_equal(FRAGMENT_V6, Label::Fragment);
    program.unless_equal(UDP, Label::Drop);
    program.keep(ALL);

    program.label(Label::Fragment);
    program.keep(TO_BE_COUNTED);
    program.label(Label::Drop);
    program.keep(0);
    program.finish()
}

/// A filter that keeps nothing.
pub fn nothing() -> Vec<sock_filter> {
    vec![sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: 0 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a packet: bytes kept.
    fn run(program: &[sock_filter], kind: u32, protocol: u32, packet: &[u8]) -> u32 {
        let (mut at, mut value) = (0, 0u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) & 0x07 {
                BPF_RET => return k,
                BPF_LD => {
                    let bytes = match u32::from(code) & 0x18 {
                        BPF_W => 4,
                        BPF_H => 2,
                        _ => 1,
                    };
                    value = match k as i32 {
                        known if known == SKF_AD_OFF + SKF_AD_PKTTYPE => kind,
                        known if known == SKF_AD_OFF + SKF_AD_PROTOCOL => protocol,
                        field => {
                            let from = (field - SKF_NET_OFF) as usize;
                            // A load beyond the end keeps nothing.
                            let Some(field) = packet.get(from..from + bytes) else { return 0 };
                            field.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
                        }
                    };
                }
                _ => {
                    let holds = match u32::from(code) & 0xf0 {
                        BPF_JEQ => value == k,
                        BPF_JSET => value & k != 0,
                        _ => {
                            at += k as usize;
                            continue;
                        }
                    };
                    at += usize::from(if holds { jt } else { jf });
                }
            }
        }
    }

    fn v4(to: [u8; 4], protocol: u8, fragment: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet[16..20].copy_from_slice(&to);
        packet
    }

    fn v6(to: &str, next: u8) -> Vec<u8> {
        let mut packet = vec![0; 48];
        packet[0] = 0x60;
        packet[6] = next;
        let to: std::net::Ipv6Addr = to.parse().unwrap();
        packet[24..40].copy_from_slice(&to.octets());
        packet
    }

    #[test]
    fn what_is_for_our_addresses_is_kept_and_of_parts_the_beginning() {
        // So many that no conditional jump would reach across them.
        let mut addresses: Vec<IpAddr> = (0..100).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        addresses.extend((0..100).map(|n| format!("fd00::{n:x}").parse::<IpAddr>().unwrap()));
        let program = assemble(&addresses);
        let ip = |packet: &[u8]| run(&program, TO_US, 0x0800, packet);
        let ip6 = |packet: &[u8]| run(&program, TO_US, 0x86dd, packet);
        for ours in [0, 50, 99] {
            assert_eq!(ip(&v4([10, 0, 0, ours], 17, 0x4000)), ALL, "not to be cut: whole");
            assert_eq!(ip6(&v6(&format!("fd00::{ours:x}"), 17)), ALL);
        }
        assert_eq!(ip(&v4([10, 0, 0, 1], 17, 0x2000)), TO_BE_COUNTED, "more to come");
        assert_eq!(ip(&v4([10, 0, 0, 1], 17, 185)), TO_BE_COUNTED, "the last one");
        assert_eq!(ip6(&v6("fd00::1", 44)), TO_BE_COUNTED);
        assert_eq!(ip(&v4([10, 0, 1, 1], 17, 0)), 0, "another address");
        assert_eq!(ip6(&v6("fd00:1::1", 17)), 0, "another address");
        assert_eq!((ip(&v4([10, 0, 0, 1], 6, 0)), ip6(&v6("fd00::1", 6))), (0, 0), "TCP");
        let outgoing = 4;
        assert_eq!(run(&program, outgoing, 0x0800, &v4([10, 0, 0, 1], 17, 0)), 0);
        assert_eq!(run(&program, TO_US, 0x0806, &v4([10, 0, 0, 1], 17, 0)), 0, "ARP");
        assert_eq!((ip(&[]), ip6(&[0x60; 20])), (0, 0), "too short");
        assert_eq!(run(&nothing(), TO_US, 0x0800, &v4([10, 0, 0, 1], 17, 0)), 0);
    }
}
