//! Instructions of BPF, and jumps to labels.
//!
//! Origin: RFC 9669.

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

/// Codes of instructions (RFC 9669, section 4 and 5).
#[expect(missing_docs, reason = "their names say it")]
pub mod code {
    pub const LOAD_U8: u8 = 0x71;
    pub const LOAD_U16: u8 = 0x69;
    pub const LOAD_U32: u8 = 0x61;
    pub const LOAD_U64: u8 = 0x79;
    /// The number, the address or the map that two instructions hold.
    pub const LOAD_MAP: u8 = 0x18;
    pub const STORE_U16: u8 = 0x6b;
    pub const STORE_U64: u8 = 0x7b;
    /// Stores the immediate value.
    pub const STORE_U32_VALUE: u8 = 0x62;
    pub const MOVE: u8 = 0xb7;
    pub const MOVE_REGISTER: u8 = 0xbf;
    pub const ADD: u8 = 0x07;
    pub const ADD_REGISTER: u8 = 0x0f;
    pub const MULTIPLY: u8 = 0x27;
    pub const AND: u8 = 0x57;
    pub const JUMP: u8 = 0x05;
    pub const JUMP_IF_EQUAL: u8 = 0x15;
    pub const JUMP_IF_NOT_EQUAL: u8 = 0x55;
    pub const JUMP_IF_NOT_LESS: u8 = 0x35;
    pub const JUMP_IF_GREATER_REGISTER: u8 = 0x2d;
    /// Compares 32 bits.
    pub const JUMP_IF_NOT_EQUAL_U32: u8 = 0x56;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}

/// What the upper half of the registers says of the map that [`code::LOAD_MAP`] names by its
/// descriptor: the map itself (BPF_PSEUDO_MAP_FD), or the address of its only value
/// (BPF_PSEUDO_MAP_VALUE).
const MAP: u8 = 1;
const VALUE_OF_MAP: u8 = 2;

/// Writes a program, with labels of type `L` to jump to.
#[derive(Debug)]
pub struct Assembler<L> {
    instructions: Vec<Instruction>,
    /// Jumps whose distance is not known yet.
    jumps: Vec<(usize, L)>,
    labels: Vec<(L, usize)>,
}

impl<L: Copy + Eq> Assembler<L> {
    /// Nothing yet.
    #[expect(clippy::new_without_default, reason = "an empty program is none")]
    pub fn new() -> Self {
        Self { instructions: Vec::new(), jumps: Vec::new(), labels: Vec::new() }
    }

    /// An instruction: what it does, the register it does it to, and the one it takes.
    pub fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = from << 4 | to;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// A jump to a label, which may follow later.
    pub fn jump(&mut self, code: u8, to: u8, from: u8, immediate: i32, label: L) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, to, from, 0, immediate);
    }

    /// The label stands for what follows.
    pub fn label(&mut self, label: L) {
        self.labels.push((label, self.instructions.len()));
    }

    /// Loads a map, named by its descriptor, to be given to a helper of the kernel.
    pub fn load_map(&mut self, to: u8, map: i32) {
        self.push(code::LOAD_MAP, to, MAP, 0, map);
        self.push(0, 0, 0, 0, 0); // the upper half
    }

    /// Loads a number of 64 bits.
    pub fn load_number(&mut self, to: u8, number: u64) {
        self.push(code::LOAD_MAP, to, 0, 0, number as i32);
        self.push(0, 0, 0, 0, (number >> 32) as i32); // the upper half
    }

    /// Loads the address of the only value of a map, named by its descriptor.
    pub fn load_value_of_map(&mut self, to: u8, map: i32) {
        self.push(code::LOAD_MAP, to, VALUE_OF_MAP, 0, map);
        self.push(0, 0, 0, 0, 0); // where in the value: at its beginning
    }

    /// The program.
    ///
    /// # Panics
    /// If a jump goes to a label that has no place.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (from, label) in self.jumps {
            let to = self.labels.iter().find(|(named, _)| *named == label);
            let (_, to) = to.expect("every label has a place");
            self.instructions[from].offset = (to - from - 1) as i16;
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_goes_to_its_label() {
        let mut program = Assembler::new();
        program.jump(code::JUMP, 0, 0, 0, "end");
        program.load_map(1, 7);
        program.label("end");
        program.push(code::EXIT, 0, 0, 0, 0);
        let instructions = program.finish();
        assert_eq!(instructions.len(), 4);
        assert_eq!(instructions[0].offset, 2, "past both halves of the map");
        assert_eq!((instructions[1].registers, instructions[1].immediate), (0x11, 7));
    }
}
