//! The program that every frame goes through: it gives it the stamp that is its turn, and sends it by
//! the device.
//!
//! The frame is the same each time. What differs lies in memory that the program shares with us: one
//! word says which datagram is next, and behind it each datagram has its stamp and its checksum. So
//! the stamps are written where all engines write theirs, and the word says afterwards how many
//! datagrams were sent.

use weir::bpf::{Assembler, Instruction, code};

use super::frame::headers_bytes;
use crate::stamp::STAMP_BYTES;

/// Words of 64 bits before the first entry: the first says which is next, the others keep it on a
/// cache line of its own.
pub const WORDS_BEFORE: usize = 8;
/// Words of an entry: those of the stamp, and one with the checksum in its first two bytes.
pub const WORDS_EACH: usize = STAMP_BYTES / 8 + 1;

/// `bpf_redirect` of linux/bpf.h.
const REDIRECT: i32 = 23;
/// XDP_ABORTED of linux/bpf.h: dropped, as an error.
const ABORTED: i32 = 0;

/// Registers: the frame, the memory, the number of the datagram, and what is on its way.
const FRAME: u8 = 2;
const MEMORY: u8 = 7;
const NUMBER: u8 = 8;
const VALUE: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Abort;

/// For frames over IPv4 or IPv6 of datagrams with or without a stamp, sent by a device. `memory` is the
/// descriptor of the memory, which has that many entries.
pub fn assemble(
    is_v4: bool,
    stamped: bool,
    device: u32,
    memory: i32,
    entries: u32,
) -> Vec<Instruction> {
    let payload = headers_bytes(is_v4) as i16;
    let mut program = Assembler::new();
    // struct xdp_md: data, data_end.
    program.push(code::LOAD_U32, FRAME, 1, 0, 0);
    program.push(code::LOAD_U32, 3, 1, 4, 0);
    program.load_value_of_map(MEMORY, memory);
    program.push(code::LOAD_U64, NUMBER, MEMORY, 0, 0);
    program.push(code::MOVE_REGISTER, VALUE, NUMBER, 0, 0);
    program.push(code::ADD, VALUE, 0, 0, 1);
    program.push(code::STORE_U64, MEMORY, VALUE, 0, 0);
    if stamped {
        program.push(code::MOVE_REGISTER, 4, FRAME, 0, 0);
        program.push(code::ADD, 4, 0, 0, i32::from(payload) + STAMP_BYTES as i32);
        program.jump(code::JUMP_IF_GREATER_REGISTER, 4, 3, 0, Abort);
        program.jump(code::JUMP_IF_NOT_LESS, NUMBER, 0, entries as i32, Abort);
        program.push(code::MULTIPLY, NUMBER, 0, 0, (WORDS_EACH * 8) as i32);
        program.push(code::ADD_REGISTER, MEMORY, NUMBER, 0, 0);
        let first = (WORDS_BEFORE * 8) as i16;
        for at in (0..STAMP_BYTES as i16).step_by(8) {
            program.push(code::LOAD_U64, VALUE, MEMORY, first + at, 0);
            program.push(code::STORE_U64, FRAME, VALUE, payload + at, 0);
        }
        program.push(code::LOAD_U16, VALUE, MEMORY, first + STAMP_BYTES as i16, 0);
        program.push(code::STORE_U16, FRAME, VALUE, payload - 2, 0);
    }
    program.push(code::MOVE, 1, 0, 0, device as i32);
    program.push(code::MOVE, 2, 0, 0, 0); // no flags
    program.push(code::CALL, 0, 0, 0, REDIRECT);
    program.push(code::EXIT, 0, 0, 0, 0);
    if stamped {
        // The kernel takes no program of which a part is never reached.
        program.label(Abort);
        program.push(code::MOVE, 0, 0, 0, ABORTED);
        program.push(code::EXIT, 0, 0, 0, 0);
    }
    program.finish()
}
