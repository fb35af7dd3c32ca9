//! What guest instructions say: their text, what kind of branch they are and where it goes, what they do, and with which registers.
//!
//! Text comes from iced-x86 (x86) and Capstone (everything else it knows); [`effects`] says where kinds and registers come from. The kind of branch is read off the encoding here,
//! since consumers ask for it once per block of every program, and disassemblers do not tell conditional
//! branches apart on every ISA. What is not known is said to be unknown, never guessed.

mod branch;
mod direct;
mod insn;
mod registers;
mod text;

pub use branch::{Branch, Class, block_branch, classify};
pub use direct::branch_target;
pub use insn::{Effects, Kinds, Registers, effects};
pub use registers::{Reg, RegSet};
pub use text::{Disassembler, text};

/// Instruction sets, as far as decoding differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Isa {
    X86,
    Aarch64,
    Arm,
    Mips,
    Ppc,
    Riscv,
    S390x,
    Sparc,
    M68k,
    Sh4,
    Alpha,
    LoongArch,
    OpenRisc,
}

/// What there is to know of a QEMU target for decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its ISA.
    pub isa: Isa,
    /// Bits of a general register: 32 or 64.
    pub bits: u8,
    /// Instructions stand in memory with the most significant byte first.
    pub big_endian: bool,
}

/// A block in a compressed mode of its ISA (Thumb, microMIPS, MIPS16). The same bit as `BLOCK_ALT_MODE` of the block table.
pub const ALT_MODE: u32 = 1;
/// x86: 16-bit code. As `BLOCK_CODE16`.
pub const CODE16: u32 = 2;
/// x86: 32-bit code. As `BLOCK_CODE32`.
pub const CODE32: u32 = 4;

impl Target {
    /// The target that QEMU calls `name`; `None` if nothing here decodes it.
    pub fn named(name: &str) -> Option<Target> {
        let (isa, bits, big_endian) = match name {
            "x86_64" => (Isa::X86, 64, false),
            "i386" => (Isa::X86, 32, false),
            // The byte order of data differs, not that of instructions.
            "aarch64" | "aarch64_be" => (Isa::Aarch64, 64, false),
            "arm" => (Isa::Arm, 32, false),
            "armeb" => (Isa::Arm, 32, true),
            "mips" => (Isa::Mips, 32, true),
            "mipsel" => (Isa::Mips, 32, false),
            "mips64" | "mipsn32" => (Isa::Mips, 64, true),
            "mips64el" | "mipsn32el" => (Isa::Mips, 64, false),
            "ppc" => (Isa::Ppc, 32, true),
            "ppc64" => (Isa::Ppc, 64, true),
            "ppc64le" => (Isa::Ppc, 64, false),
            "riscv32" => (Isa::Riscv, 32, false),
            "riscv64" => (Isa::Riscv, 64, false),
            "s390x" => (Isa::S390x, 64, true),
            "sparc" => (Isa::Sparc, 32, true),
            "sparc32plus" | "sparc64" => (Isa::Sparc, 64, true),
            "m68k" => (Isa::M68k, 32, true),
            "sh4" => (Isa::Sh4, 32, false),
            "sh4eb" => (Isa::Sh4, 32, true),
            "alpha" => (Isa::Alpha, 64, false),
            "loongarch64" => (Isa::LoongArch, 64, false),
            "or1k" => (Isa::OpenRisc, 32, true),
            _ => return None,
        };
        Some(Target { isa, bits, big_endian })
    }

    /// Branches take effect one instruction later.
    pub fn has_delay_slots(self) -> bool {
        matches!(self.isa, Isa::Mips | Isa::Sparc | Isa::Sh4 | Isa::OpenRisc)
    }

    /// Width of x86 code with these block flags.
    fn x86_bits(self, flags: u32) -> u32 {
        match flags {
            f if f & CODE16 != 0 => 16,
            f if f & CODE32 != 0 => 32,
            _ => u32::from(self.bits),
        }
    }

    /// `bytes` as a number of at most four bytes in this target's instruction order.
    fn word(self, bytes: &[u8]) -> Option<u32> {
        let be = self.big_endian;
        match *bytes {
            [a, b] => Some(u32::from(if be { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) })),
            [a, b, c, d, ..] => {
                Some(if be { u32::from_be_bytes([a, b, c, d]) } else { u32::from_le_bytes([a, b, c, d]) })
            }
            _ => None,
        }
    }
}
