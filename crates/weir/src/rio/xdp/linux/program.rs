//! The program on the device: it gives the datagrams that are ours to our socket, and everything
//! else to the kernel, which does with it what it would have done.
//!
//! Ours are whole datagrams of UDP in plain Ethernet frames to the device's own address, to an
//! address of ours, and to its port or to any. Fragments, options of IPv4, extensions of IPv6,
//! VLANs, ARP and neighbour discovery are the kernel's. What finds no socket at its queue of the
//! device is the kernel's, too. What is passed on is counted, by its reason.
//!
//! Origin: linux/bpf.h; linux/if_ether.h, RFC 791, 8200 and 768 (where the fields lie).

use crate::bpf::{Assembler, Instruction, code};
use std::net::IpAddr;

/// What is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    pub address: IpAddr,
    /// `None`: any.
    pub port: Option<u16>,
}

/// Helpers of the kernel: `bpf_map_lookup_elem` and `bpf_redirect_map` of linux/bpf.h.
const LOOK_UP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
/// XDP_PASS of linux/bpf.h.
const PASS: i32 = 2;

/// What is passed on to the kernel, by the place of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// Other programs' frames: other addresses, ports and protocols.
    Foreign,
    /// Parts of datagrams, which only the kernel puts together.
    Fragment,
    /// Ours, on a queue of the device where no socket of ours is.
    Unserved,
}

impl Passed {
    /// How many reasons there are.
    pub const ALL: usize = 3;

    /// Where its count lies.
    fn at(self) -> i32 {
        self as i32 * size_of::<u64>() as i32
    }
}

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

/// Registers: the context, the frame, what is looked at just now, why it is passed on, and the
/// stack.
const CONTEXT: u8 = 6;
const FRAME: u8 = 2;
const VALUE: u8 = 5;
const REASON: u8 = 7;
const STACK: u8 = 10;

const UDP: i32 = 17;
/// The header of IPv6 that a fragment has behind the first.
const FRAGMENT_V6: u8 = 44;
/// The bits of an IPv4 header that make it a fragment: more to come, and offset.
const FRAGMENT: u16 = 0x3fff;

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Redirect,
    Fragment,
    Foreign,
    Count,
    Pass,
    Exit,
    /// The end of the filter or of the family that is being written.
    Next(usize),
}

type Program = Assembler<Label>;

/// Goes on only where a frame is so long.
fn at_least(program: &mut Program, bytes: i32, otherwise: Label) {
    program.push(code::MOVE_REGISTER, 4, FRAME, 0, 0);
    program.push(code::ADD, 4, 0, 0, bytes);
    program.jump(code::JUMP_IF_GREATER_REGISTER, 4, 3, 0, otherwise);
}

/// Goes on only where a field holds these bytes.
fn expect(program: &mut Program, at: i16, bytes: &[u8], otherwise: Label) {
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
        program.push(load, VALUE, FRAME, at, 0);
        program.jump(code::JUMP_IF_NOT_EQUAL_U32, VALUE, 0, value, otherwise);
        (at, bytes) = (at + count, &bytes[count as usize..]);
    }
}

/// Goes on only where these bits of a field are these.
fn expect_bits(program: &mut Program, load: u8, at: i16, mask: i32, bits: i32, otherwise: Label) {
    program.push(load, VALUE, FRAME, at, 0);
    program.push(code::AND, VALUE, 0, 0, mask);
    program.jump(code::JUMP_IF_NOT_EQUAL_U32, VALUE, 0, bits, otherwise);
}

/// Adds one to the count of the reason.
fn count(program: &mut Program, counts: i32, then: Label) {
    program.push(code::STORE_U32_VALUE, STACK, 0, -4, 0);
    program.push(code::MOVE_REGISTER, 2, STACK, 0, 0);
    program.push(code::ADD, 2, 0, 0, -4);
    program.load_map(1, counts);
    program.push(code::CALL, 0, 0, 0, LOOK_UP);
    program.jump(code::JUMP_IF_EQUAL, 0, 0, 0, then); // never: entry 0 is there
    // The counts of this core, which nothing else changes meanwhile.
    program.push(code::ADD_REGISTER, 0, REASON, 0, 0);
    program.push(code::LOAD_U64, 1, 0, 0, 0);
    program.push(code::ADD, 1, 0, 0, 1);
    program.push(code::STORE_U64, 0, 1, 0, 0);
}

/// The program for a device with this Ethernet address. `sockets` is the descriptor of the map that
/// holds our socket at the number of its queue, `counts` of the one with a count for each reason
/// ([`Passed`]).
pub fn assemble(mac: [u8; 6], filters: &[Filter], sockets: i32, counts: i32) -> Vec<Instruction> {
    let mut program = Program::new();
    program.push(code::MOVE_REGISTER, CONTEXT, 1, 0, 0);
    program.push(code::LOAD_U32, FRAME, CONTEXT, DATA, 0);
    program.push(code::LOAD_U32, 3, CONTEXT, DATA_END, 0);
    at_least(&mut program, super::packet::HEADERS_V4 as i32, Label::Foreign);
    expect(&mut program, at::DESTINATION, &mac, Label::Foreign);
    let (v4, v6): (Vec<_>, Vec<_>) = filters.iter().partition(|filter| filter.address.is_ipv4());
    let mut next = (0..).map(Label::Next);
    let mut next = || next.next().expect("numbers do not end");

    let not_v4 = next();
    expect(&mut program, at::ETHER_TYPE, &[0x08, 0x00], not_v4);
    expect(&mut program, at::VERSION, &[0x45], Label::Foreign); // version 4, no options
    expect(&mut program, at::PROTOCOL_V4, &[UDP as u8], Label::Foreign);
    let fragment = i32::from(FRAGMENT.to_be());
    expect_bits(&mut program, code::LOAD_U16, at::FRAGMENT_V4, fragment, 0, Label::Fragment);
    for Filter { address, port } in v4 {
        let IpAddr::V4(address) = address else { continue };
        let other = next();
        expect(&mut program, at::ADDRESS_V4, &address.octets(), other);
        if let Some(port) = port {
            expect(&mut program, at::PORT_V4, &port.to_be_bytes(), other);
        }
        program.jump(code::JUMP, 0, 0, 0, Label::Redirect);
        program.label(other);
    }
    program.jump(code::JUMP, 0, 0, 0, Label::Foreign);

    program.label(not_v4);
    expect(&mut program, at::ETHER_TYPE, &[0x86, 0xdd], Label::Foreign);
    at_least(&mut program, super::packet::HEADERS_V6 as i32, Label::Foreign);
    expect_bits(&mut program, code::LOAD_U8, at::VERSION, 0xf0, 0x60, Label::Foreign);
    let not_fragment = next();
    expect(&mut program, at::PROTOCOL_V6, &[FRAGMENT_V6], not_fragment);
    program.jump(code::JUMP, 0, 0, 0, Label::Fragment);
    program.label(not_fragment);
    expect(&mut program, at::PROTOCOL_V6, &[UDP as u8], Label::Foreign);
    for Filter { address, port } in v6 {
        let IpAddr::V6(address) = address else { continue };
        let other = next();
        expect(&mut program, at::ADDRESS_V6, &address.octets(), other);
        if let Some(port) = port {
            expect(&mut program, at::PORT_V6, &port.to_be_bytes(), other);
        }
        program.jump(code::JUMP, 0, 0, 0, Label::Redirect);
        program.label(other);
    }
    program.jump(code::JUMP, 0, 0, 0, Label::Foreign);

    program.label(Label::Redirect);
    program.load_map(1, sockets);
    program.push(code::LOAD_U32, 2, CONTEXT, QUEUE, 0);
    program.push(code::MOVE, 3, 0, 0, PASS); // where the queue has no socket of ours
    program.push(code::CALL, 0, 0, 0, REDIRECT_MAP);
    program.jump(code::JUMP_IF_NOT_EQUAL, 0, 0, PASS, Label::Exit);
    program.push(code::MOVE, REASON, 0, 0, Passed::Unserved.at());
    program.jump(code::JUMP, 0, 0, 0, Label::Count);
    program.label(Label::Fragment);
    program.push(code::MOVE, REASON, 0, 0, Passed::Fragment.at());
    program.jump(code::JUMP, 0, 0, 0, Label::Count);
    program.label(Label::Foreign);
    program.push(code::MOVE, REASON, 0, 0, Passed::Foreign.at());
    program.label(Label::Count);
    count(&mut program, counts, Label::Pass);
    program.label(Label::Pass);
    program.push(code::MOVE, 0, 0, 0, PASS);
    program.label(Label::Exit);
    program.push(code::EXIT, 0, 0, 0, 0);
    program.finish()
}

#[cfg(test)]
mod tests;
