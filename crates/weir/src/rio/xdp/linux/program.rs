//! The program on the device: it gives the datagrams that are ours to our socket, and everything
//! else to the kernel, which does with it what it would have done.
//!
//! Ours are whole datagrams of UDP in plain Ethernet frames to the device's own address, to an
//! address of ours, and to its port or to any. Fragments, options of IPv4, extensions of IPv6,
//! VLANs, ARP and neighbour discovery are the kernel's. What finds no socket at its queue of the
//! device is the kernel's, too.
//!
//! It is assembled here instruction by instruction, so that neither a C compiler nor a file of
//! types of the kernel (BTF) is needed.
//!
//! Origin: linux/bpf.h; RFC 9669 (the instructions); linux/if_ether.h, RFC 791, 8200 and 768
//! (where the fields lie).

use std::net::IpAddr;

/// One instruction, as the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// What is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    pub address: IpAddr,
    /// `None`: any.
    pub port: Option<u16>,
}

/// Codes of instructions (RFC 9669, section 4 and 5).
mod code {
    pub const LOAD_U8: u8 = 0x71;
    pub const LOAD_U16: u8 = 0x69;
    pub const LOAD_U32: u8 = 0x61;
    pub const LOAD_MAP: u8 = 0x18;
    pub const MOVE: u8 = 0xb7;
    pub const MOVE_REGISTER: u8 = 0xbf;
    pub const ADD: u8 = 0x07;
    pub const AND: u8 = 0x57;
    pub const JUMP: u8 = 0x05;
    pub const JUMP_IF_GREATER_REGISTER: u8 = 0x2d;
    /// Compares 32 bits.
    pub const JUMP_IF_NOT_EQUAL: u8 = 0x56;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}

/// `bpf_redirect_map` of linux/bpf.h.
const REDIRECT_MAP: i32 = 51;
/// XDP_PASS of linux/bpf.h.
const PASS: i32 = 2;
/// The map is named by its descriptor (BPF_PSEUDO_MAP_FD).
const BY_DESCRIPTOR: u8 = 1;

/// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Where fields lie in a frame.
mod at {
    pub const DESTINATION: i16 = 0;
    pub const ETHER_TYPE: i16 = 12;
    pub const VERSION: i16 = 14;
    pub const FRAGMENT_V4: i16 = 20;
    pub const PROTOCOL_V4: i16 = 23;
    pub const ADDRESS_V4: i16 = 30;
    pub const PORT_V4: i16 = 36;
    pub const PROTOCOL_V6: i16 = 20;
    pub const ADDRESS_V6: i16 = 38;
    pub const PORT_V6: i16 = 56;
}

/// Registers: the context, the frame, and what is looked at just now.
const CONTEXT: u8 = 6;
const FRAME: u8 = 2;
const VALUE: u8 = 5;

const UDP: i32 = 17;
/// The bits of an IPv4 header that make it a fragment: more to come, and offset.
const FRAGMENT: u16 = 0x3fff;

/// Where a jump goes, before its distance is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Pass,
    Redirect,
    /// The end of the filter or of the family that is being written.
    Next(usize),
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Jumps whose distance is not known yet.
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = from << 4 | to;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    fn jump(&mut self, code: u8, to: u8, from: u8, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, to, from, 0, immediate);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    /// Goes on only where a frame is so long.
    fn at_least(&mut self, bytes: i32, otherwise: Label) {
        self.push(code::MOVE_REGISTER, 4, FRAME, 0, 0);
        self.push(code::ADD, 4, 0, 0, bytes);
        self.jump(code::JUMP_IF_GREATER_REGISTER, 4, 3, 0, otherwise);
    }

    /// Goes on only where a field holds these bytes.
    fn expect(&mut self, at: i16, bytes: &[u8], otherwise: Label) {
        let mut at = at;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            // A number as the machine would load it.
            let (load, value, count) = match *bytes {
                [a, b, c, d, ..] => (code::LOAD_U32, i32::from_ne_bytes([a, b, c, d]), 4),
                [a, b, ..] => (code::LOAD_U16, i32::from(u16::from_ne_bytes([a, b])), 2),
                [a, ..] => (code::LOAD_U8, i32::from(a), 1),
                [] => return,
            };
            self.push(load, VALUE, FRAME, at, 0);
            self.jump(code::JUMP_IF_NOT_EQUAL, VALUE, 0, value, otherwise);
            (at, bytes) = (at + count, &bytes[count as usize..]);
        }
    }

    /// Goes on only where these bits of a field are these.
    fn expect_bits(&mut self, load: u8, at: i16, mask: i32, bits: i32, otherwise: Label) {
        self.push(load, VALUE, FRAME, at, 0);
        self.push(code::AND, VALUE, 0, 0, mask);
        self.jump(code::JUMP_IF_NOT_EQUAL, VALUE, 0, bits, otherwise);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (from, label) in self.jumps {
            let to = self.labels.iter().find(|(named, _)| *named == label);
            let (_, to) = to.expect("every label has a place");
            self.instructions[from].offset = (to - from - 1) as i16;
        }
        self.instructions
    }
}

/// The program for a device with this Ethernet address. `map` is the descriptor of the map that
/// holds our socket at the number of its queue.
pub fn assemble(mac: [u8; 6], filters: &[Filter], map: i32) -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.push(code::MOVE_REGISTER, CONTEXT, 1, 0, 0);
    program.push(code::LOAD_U32, FRAME, CONTEXT, DATA, 0);
    program.push(code::LOAD_U32, 3, CONTEXT, DATA_END, 0);
    program.at_least(super::packet::HEADERS_V4 as i32, Label::Pass);
    program.expect(at::DESTINATION, &mac, Label::Pass);
    let (v4, v6): (Vec<_>, Vec<_>) = filters.iter().partition(|filter| filter.address.is_ipv4());
    let mut next = (0..).map(Label::Next);
    let mut next = || next.next().expect("numbers do not end");

    let not_v4 = next();
    program.expect(at::ETHER_TYPE, &[0x08, 0x00], not_v4);
    program.expect(at::VERSION, &[0x45], Label::Pass); // version 4, no options
    program.expect(at::PROTOCOL_V4, &[UDP as u8], Label::Pass);
    let fragment = i32::from(FRAGMENT.to_be());
    program.expect_bits(code::LOAD_U16, at::FRAGMENT_V4, fragment, 0, Label::Pass);
    for Filter { address, port } in v4 {
        let IpAddr::V4(address) = address else { continue };
        let other = next();
        program.expect(at::ADDRESS_V4, &address.octets(), other);
        if let Some(port) = port {
            program.expect(at::PORT_V4, &port.to_be_bytes(), other);
        }
        program.jump(code::JUMP, 0, 0, 0, Label::Redirect);
        program.label(other);
    }
    program.jump(code::JUMP, 0, 0, 0, Label::Pass);

    program.label(not_v4);
    program.expect(at::ETHER_TYPE, &[0x86, 0xdd], Label::Pass);
    program.at_least(super::packet::HEADERS_V6 as i32, Label::Pass);
    program.expect_bits(code::LOAD_U8, at::VERSION, 0xf0, 0x60, Label::Pass);
    program.expect(at::PROTOCOL_V6, &[UDP as u8], Label::Pass);
    for Filter { address, port } in v6 {
        let IpAddr::V6(address) = address else { continue };
        let other = next();
        program.expect(at::ADDRESS_V6, &address.octets(), other);
        if let Some(port) = port {
            program.expect(at::PORT_V6, &port.to_be_bytes(), other);
        }
        program.jump(code::JUMP, 0, 0, 0, Label::Redirect);
        program.label(other);
    }

    program.label(Label::Pass);
    program.push(code::MOVE, 0, 0, 0, PASS);
    program.push(code::EXIT, 0, 0, 0, 0);
    program.label(Label::Redirect);
    program.push(code::LOAD_MAP, 1, BY_DESCRIPTOR, 0, map);
    program.push(0, 0, 0, 0, 0); // the upper half of the descriptor
    program.push(code::LOAD_U32, 2, CONTEXT, QUEUE, 0);
    program.push(code::MOVE, 3, 0, 0, PASS); // where the queue has no socket of ours
    program.push(code::CALL, 0, 0, 0, REDIRECT_MAP);
    program.push(code::EXIT, 0, 0, 0, 0);
    program.finish()
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
