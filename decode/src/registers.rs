//! Registers by number, the same for every ISA as far as they mean the same, and sets of them.

use crate::{Isa, Target};
use std::fmt;

/// An architectural register, whole: `al`, `ax` and `eax` are `rax`, `w3` is `x3`, `d0` and `q0` are `v0`.
///
/// The numbers are the same for all ISAs: 0–31 general registers by the ISA's own number, 32–63 floating-point and
/// vector registers, 64–95 what the ISA has as another file, then the rest. The stack pointer has a number of its own
/// everywhere. The program counter is none: its value is known at each instruction, and the class says who sets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

impl Reg {
    /// The stack pointer: `rsp`, AArch64's `sp`, Arm's `r13`, `$29`, PowerPC's `r1`, RISC-V's `x2`, s390x's `r15`, …
    pub const STACK_POINTER: Reg = Reg(112);
    /// The condition codes: `rflags`, `nzcv`, Arm's flags in `cpsr`, s390x's `cc`; PowerPC's `cr0` (`cr1` to `cr7` follow);
    /// on MIPS the floating-point conditions.
    pub const FLAGS: Reg = Reg(96);
    /// PowerPC's link register.
    pub const LINK: Reg = Reg(113);
    /// PowerPC's count register.
    pub const COUNT: Reg = Reg(114);
    /// PowerPC's `xer`: carry and overflow.
    pub const XER: Reg = Reg(115);
    /// MIPS' `hi`.
    pub const HI: Reg = Reg(116);
    /// MIPS' `lo`.
    pub const LO: Reg = Reg(117);
    /// Floating-point control and status. Only where an instruction names it: that arithmetic obeys and sets it goes without saying.
    pub const FLOAT_STATUS: Reg = Reg(118);
    /// Any control or system register, all as one.
    pub const SYSTEM: Reg = Reg(126);

    /// General register `n` of 0 to 31, by the ISA's own number; not the stack pointer.
    pub const fn general(n: u8) -> Reg {
        Reg(n & 31)
    }

    /// Floating-point or vector register `n` of 0 to 31.
    pub const fn vector(n: u8) -> Reg {
        Reg(32 + (n & 31))
    }

    /// Register `n` of 0 to 31 of the second file: RISC-V's and PowerPC's vector registers, x86's `st(n)` and from 8 on `k0` to `k7`,
    /// AArch64's predicates, s390x's access registers.
    pub const fn second(n: u8) -> Reg {
        Reg(64 + (n & 31))
    }

    /// Field `n` of 0 to 7 of the condition register (PowerPC); 0 is [`Reg::FLAGS`].
    pub const fn condition(n: u8) -> Reg {
        Reg(96 + (n & 7))
    }

    /// x86's segment registers: 0 `es`, 1 `cs`, 2 `ss`, 3 `ds`, 4 `fs`, 5 `gs`.
    pub const fn segment(n: u8) -> Reg {
        Reg(119 + n % 6)
    }

    /// Its number, below 128.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// A general register, the stack pointer included.
    pub fn is_general(self) -> bool {
        self.0 < 32 || self == Reg::STACK_POINTER
    }

    /// A floating-point or vector register, or one of the second file.
    pub fn is_vector(self) -> bool {
        (32..96).contains(&self.0)
    }

    /// What debuggers call it, and so QEMU's gdbstub: one of these names, or a wider register of which it is the lowest 16 bytes. None if no name is known
    /// here.
    pub fn debugger_names(self, target: Target) -> Vec<String> {
        /// RISC-V's general registers as its calling convention has them, then those of floating point.
        const RISCV: [&str; 64] = [
            "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
            "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6", "ft0", "ft1",
            "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6",
            "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10",
            "ft11",
        ];
        let one = match (target.isa, self.0) {
            (Isa::X86, 0..=31 | 112 | 119..=124) => self.name(target),
            (Isa::X86, 96) => "eflags".into(),
            (Isa::X86, n @ 32..=63) => format!("xmm{}", n - 32),
            (Isa::X86, n @ 64..=71) => format!("st{}", n - 64),
            (Isa::Aarch64, n @ 32..=63) => return vec![self.name(target), format!("z{}", n - 32)],
            (Isa::Aarch64, 0..=30 | 112) => self.name(target),
            (Isa::Aarch64 | Isa::Arm, 96) => "cpsr".into(),
            (Isa::Arm, 0..=14 | 32..=63 | 112 | 118) => self.name(target),
            (Isa::Riscv, 112) => "sp".into(),
            (Isa::Riscv, n @ 0..=63) => RISCV[usize::from(n)].into(),
            _ => return Vec::new(),
        };
        vec![one]
    }

    /// All that there are.
    pub fn all() -> impl Iterator<Item = Reg> {
        (0..128).map(Reg)
    }

    /// What the ISA calls it.
    pub fn name(self, target: Target) -> String {
        let n = self.0;
        let wide = target.bits == 64;
        match (target.isa, n) {
            (Isa::X86, 0..=7 | 112) => {
                let i = if n == 112 { 4 } else { usize::from(n) };
                let name = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"].get(i).copied().unwrap_or("?");
                format!("{}{name}", if wide { 'r' } else { 'e' })
            }
            (Isa::X86, 8..=31) => format!("r{n}"),
            (Isa::X86, 32..=63) => format!("zmm{}", n - 32),
            (Isa::X86, 64..=71) => format!("st({})", n - 64),
            (Isa::X86, 72..=79) => format!("k{}", n - 72),
            (Isa::X86, 96) => (if wide { "rflags" } else { "eflags" }).into(),
            (Isa::X86, 119..=124) => {
                ["es", "cs", "ss", "ds", "fs", "gs"].get(usize::from(n - 119)).copied().unwrap_or("?").into()
            }
            (Isa::Aarch64, 0..=31) => format!("x{n}"),
            (Isa::Aarch64, 32..=63) => format!("v{}", n - 32),
            (Isa::Aarch64, 64..=95) => format!("p{}", n - 64),
            (Isa::Aarch64, 96) => "nzcv".into(),
            (Isa::Arm, 14) => "lr".into(),
            (Isa::Arm, 0..=31) => format!("r{n}"),
            (Isa::Arm, 32..=63) => format!("d{}", n - 32),
            (Isa::Arm, 96) => "cpsr".into(),
            (Isa::Arm, 118) => "fpscr".into(),
            (Isa::Mips, 0..=31) => format!("${n}"),
            (Isa::Mips, 32..=63) => format!("$f{}", n - 32),
            (Isa::Mips, 96) => "fcc".into(),
            (Isa::Mips, 112) => "$29".into(),
            (Isa::Mips, 118) => "fcsr".into(),
            (Isa::Ppc, 0..=31) => format!("r{n}"),
            (Isa::Ppc, 32..=63) => format!("f{}", n - 32),
            (Isa::Ppc, 64..=95) => format!("v{}", n - 64),
            (Isa::Ppc, 96..=103) => format!("cr{}", n - 96),
            (Isa::Ppc, 112) => "r1".into(),
            (Isa::Ppc, 118) => "fpscr".into(),
            (Isa::Riscv, 0..=31) => format!("x{n}"),
            (Isa::Riscv, 32..=63) => format!("f{}", n - 32),
            (Isa::Riscv, 64..=95) => format!("v{}", n - 64),
            (Isa::Riscv, 112) => "x2".into(),
            (Isa::Riscv, 118) => "fcsr".into(),
            (Isa::S390x, 0..=31) => format!("r{n}"),
            (Isa::S390x, 32..=63) => format!("v{}", n - 32),
            (Isa::S390x, 64..=79) => format!("a{}", n - 64),
            (Isa::S390x, 96) => "cc".into(),
            (Isa::S390x, 112) => "r15".into(),
            (Isa::S390x, 118) => "fpc".into(),
            (_, 112) => "sp".into(),
            (_, 113) => "lr".into(),
            (_, 114) => "ctr".into(),
            (_, 115) => "xer".into(),
            (_, 116) => "hi".into(),
            (_, 117) => "lo".into(),
            (_, 118) => "fpsr".into(),
            (_, 126) => "system".into(),
            _ => format!("reg{n}"),
        }
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ 0..=31 => write!(f, "general({n})"),
            n @ 32..=63 => write!(f, "vector({})", n - 32),
            n @ 64..=95 => write!(f, "second({})", n - 64),
            n @ 96..=103 => write!(f, "condition({})", n - 96),
            112 => f.write_str("STACK_POINTER"),
            113 => f.write_str("LINK"),
            114 => f.write_str("COUNT"),
            115 => f.write_str("XER"),
            116 => f.write_str("HI"),
            117 => f.write_str("LO"),
            118 => f.write_str("FLOAT_STATUS"),
            126 => f.write_str("SYSTEM"),
            n => write!(f, "segment({})", n.wrapping_sub(119)),
        }
    }
}

/// A set of registers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RegSet(u128);

impl RegSet {
    /// No register.
    pub const NONE: RegSet = RegSet(0);

    /// Adds one.
    pub fn insert(&mut self, reg: Reg) {
        self.0 |= 1 << reg.0;
    }

    /// Is `reg` in the set?
    pub fn contains(self, reg: Reg) -> bool {
        self.0 >> reg.0 & 1 != 0
    }

    /// No register is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Those in both sets.
    #[must_use]
    pub fn and(self, other: RegSet) -> RegSet {
        RegSet(self.0 & other.0)
    }

    /// Those in one of the sets.
    #[must_use]
    pub fn or(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }

    /// The registers, by number.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let n = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (n < 128).then_some(Reg(n as u8))
        })
    }

    /// What the ISA calls them, in order.
    pub fn names(self, target: Target) -> Vec<String> {
        self.iter().map(|r| r.name(target)).collect()
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(all: I) -> Self {
        let mut set = RegSet::NONE;
        all.into_iter().for_each(|r| set.insert(r));
        set
    }
}
