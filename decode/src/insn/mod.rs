//! What an instruction does: its kinds, and the registers that it uses and defines.
//!
//! x86 is iced-x86's, 32-bit Arm and s390x are Capstone's operands under rules of our own; AArch64, MIPS, PowerPC and RISC-V are read off
//! the encoding: Capstone 5 has no register sets for the last three, and for AArch64 it leaves out the operands of atomics, calls the
//! operand of compares written, that of extracts read, and knows no link register in returns.

mod aarch64;
mod arm;
mod mips;
mod ppc;
mod riscv;
mod s390x;
mod x86;

use crate::{ALT_MODE, Isa, Reg, RegSet, Target};
use std::ops::{BitOr, BitOrAssign};

/// What an instruction is, beside its [`crate::Class`]; it may be several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Kinds(u16);

impl Kinds {
    /// Nothing of the below.
    pub const NONE: Kinds = Kinds(0);
    /// Reads memory.
    pub const LOAD: Kinds = Kinds(1);
    /// Writes memory.
    pub const STORE: Kinds = Kinds(2);
    /// A read-modify-write that is one, or a half of one (load-linked, store-conditional).
    pub const ATOMIC: Kinds = Kinds(4);
    /// Orders memory accesses or instructions, and does nothing else.
    pub const FENCE: Kinds = Kinds(8);
    /// Calls the kernel.
    pub const SYSCALL: Kinds = Kinds(16);
    /// Traps: breakpoints, undefined by definition, conditional traps.
    pub const TRAP: Kinds = Kinds(32);
    /// For the kernel only.
    pub const PRIVILEGED: Kinds = Kinds(64);
    /// Floating point: arithmetic, and the moves and accesses of its registers.
    pub const FLOAT: Kinds = Kinds(128);
    /// Works on vectors.
    pub const VECTOR: Kinds = Kinds(256);

    const NAMES: [(Kinds, &'static str); 9] = [
        (Kinds::LOAD, "load"),
        (Kinds::STORE, "store"),
        (Kinds::ATOMIC, "atomic"),
        (Kinds::FENCE, "fence"),
        (Kinds::SYSCALL, "syscall"),
        (Kinds::TRAP, "trap"),
        (Kinds::PRIVILEGED, "privileged"),
        (Kinds::FLOAT, "float"),
        (Kinds::VECTOR, "vector"),
    ];

    /// It is all of `kinds`.
    pub fn contains(self, kinds: Kinds) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// It is one of `kinds`.
    pub fn intersects(self, kinds: Kinds) -> bool {
        self.0 & kinds.0 != 0
    }

    /// Their names, in lower case.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(k, _)| self.contains(*k)).map(|(_, n)| n)
    }
}

impl BitOr for Kinds {
    type Output = Kinds;
    fn bitor(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

impl BitOrAssign for Kinds {
    fn bitor_assign(&mut self, other: Kinds) {
        self.0 |= other.0;
    }
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// The registers of an instruction.
///
/// Registers are whole, and as the ISA has them: a register that reads as zero is in no set. A conditional write is a use as well, as the old value may
/// stay, and so is the insertion of a field. x86's writes to `al`, `ax` and to the lower part of a vector register are definitions only. The program
/// counter is in no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registers {
    /// Those whose value matters.
    pub uses: RegSet,
    /// Those that get a value.
    pub defines: RegSet,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effects {
    /// What it is.
    pub kinds: Kinds,
    /// Its registers; `None` if they are not known.
    pub registers: Option<Registers>,
}

/// What the instruction `bytes` does, in a block with these `BLOCK_*` flags. `None` if nobody here knows, which is not "nothing".
pub fn effects(target: Target, flags: u32, bytes: &[u8]) -> Option<Effects> {
    let alt = flags & ALT_MODE != 0;
    match target.isa {
        Isa::X86 => x86::effects(target.x86_bits(flags), bytes),
        Isa::Arm => arm::effects(target, alt, bytes),
        Isa::S390x => s390x::effects(target, bytes),
        Isa::Mips if alt => None,
        Isa::Aarch64 if bytes.len() == 4 => aarch64::effects(target.word(bytes)?),
        Isa::Mips if bytes.len() == 4 => mips::effects(target.word(bytes)?),
        Isa::Ppc if bytes.len() == 4 => ppc::effects(target.word(bytes)?),
        Isa::Riscv if bytes.len() == 4 => riscv::effects(target.word(bytes)?),
        Isa::Riscv if bytes.len() == 2 => riscv::compressed(target.word(bytes)?, target.bits),
        _ => None,
    }
}

/// What an instruction does, while it is being read.
#[derive(Default)]
struct Reader {
    kinds: Kinds,
    regs: Registers,
}

impl Reader {
    fn kind(mut self, kinds: Kinds) -> Self {
        self.kinds |= kinds;
        self
    }

    fn uses(mut self, regs: impl IntoIterator<Item = Reg>) -> Self {
        regs.into_iter().for_each(|r| self.regs.uses.insert(r));
        self
    }

    fn defines(mut self, regs: impl IntoIterator<Item = Reg>) -> Self {
        regs.into_iter().for_each(|r| self.regs.defines.insert(r));
        self
    }

    /// Used and defined.
    fn updates(self, regs: impl IntoIterator<Item = Reg> + Clone) -> Self {
        self.uses(regs.clone()).defines(regs)
    }

    fn done(self) -> Option<Effects> {
        Some(Effects { kinds: self.kinds, registers: Some(self.regs) })
    }

    /// The registers are not known.
    fn kinds_only(self) -> Option<Effects> {
        Some(Effects { kinds: self.kinds, registers: None })
    }
}

fn new(kinds: Kinds) -> Reader {
    Reader::default().kind(kinds)
}
