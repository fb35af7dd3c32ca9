//! The encodings, per ISA.
//!
//! They avoid what Linux, glibc, GCC, LLVM, gdb, kprobes and UBSAN use: `ud2`, `brk`, `unimp`, `.long 0`, `trap`, 0001 on
//! s390x, `E7F000F0` and its kin on ARM, `illtrap 0`.

/// What the ISA says of the call's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Illegal for ever, or architecturally certain to raise the illegal-instruction exception.
    Guaranteed,
    /// Reserved: illegal on every implementation so far.
    Reserved,
    /// Left to implementations.
    Custom,
}

impl Kind {
    /// Its name in the docs.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Guaranteed => "guaranteed",
            Kind::Reserved => "reserved",
            Kind::Custom => "custom",
        }
    }
}

/// Of what an encoding's numbers are: they stand in memory in the guest's byte order of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in memory order.
    Bytes,
    /// 16 bits each, in the order of execution.
    Halves,
    /// 32 bits each, in the order of execution.
    Words,
}

impl Unit {
    /// Its length in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Unit::Bytes => 1,
            Unit::Halves => 2,
            Unit::Words => 4,
        }
    }
}

/// An ISA, or a mode of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    /// Its name in the docs.
    pub name: &'static str,
    /// Its part of the names in C.
    pub ident: &'static str,
    /// Of what `call` and `probe` are.
    pub unit: Unit,
    /// The call.
    pub call: &'static [u32],
    /// What the ISA says of it.
    pub kind: Kind,
    /// The probe.
    pub probe: &'static [u32],
    /// Alignment that call and probe (Xtensa: the call) need, beside that of instructions; bytes.
    pub align: u8,
    /// The register of command and magic.
    pub command: &'static str,
    /// The registers of the arguments.
    pub args: &'static [&'static str],
    /// The register of the result, of the probe too.
    pub result: &'static str,
    /// The probe in the words of the ISA's assembly language.
    pub probe_is: &'static str,
}

impl Isa {
    /// Length of the call in bytes.
    pub const fn call_len(&self) -> usize {
        self.call.len() * self.unit.bytes()
    }
    /// Length of the probe in bytes.
    pub const fn probe_len(&self) -> usize {
        self.probe.len() * self.unit.bytes()
    }
}

const fn isa(
    name: &'static str,
    ident: &'static str,
    unit: Unit,
    kind: Kind,
    (call, probe): (&'static [u32], &'static [u32]),
    (command, args, result): (&'static str, &'static [&'static str], &'static str),
    probe_is: &'static str,
) -> Isa {
    Isa { name, ident, unit, call, kind, probe, align: 1, command, args, result, probe_is }
}

const fn aligned(align: u8, isa: Isa) -> Isa {
    Isa { align, ..isa }
}

use Kind::*;
use Unit::*;

/// `ud1 disp32(%rdi),%edi` with "TCGI" as displacement.
const X86_CALL: &[u32] = &[0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49];
/// `nopl disp32(%rax)` with "TCGI" as displacement.
const X86_PROBE: &[u32] = &[0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49];
const X86_NOP: &str = "nopl 0x49474354(%rax)";
const I386: (&str, &[&str], &str) = ("eax", &["ecx", "edx", "esi", "edi"], "eax");
const ARM: (&str, &[&str], &str) = ("r12", &["r0", "r1", "r2", "r3", "r4", "r5"], "r0");
const MIPS: (&str, &[&str], &str) = ("v0", &["a0", "a1", "a2", "a3", "t0", "t1"], "v0");
const XTENSA: (&str, &[&str], &str) = ("a2", &["a6", "a3", "a4", "a5", "a8", "a9"], "a2");

/// All of them.
pub const ISAS: &[Isa] = &[
    isa(
        "x86-64",
        "X86_64",
        Bytes,
        Guaranteed,
        (X86_CALL, X86_PROBE),
        ("rax", &["rdi", "rsi", "rdx", "r10", "r8", "r9"], "rax"),
        X86_NOP,
    ),
    isa("i386", "I386", Bytes, Guaranteed, (X86_CALL, X86_PROBE), I386, X86_NOP),
    isa(
        "i386, 16-bit code",
        "I8086",
        Bytes,
        Guaranteed,
        (&[0x67, 0x0f, 0xb9, 0xbf, 0x54, 0x43, 0x47, 0x49], &[0x67, 0x0f, 0x1f, 0x80, 0x54, 0x43, 0x47, 0x49]),
        I386,
        "nopw 0x49474354(%eax)",
    ),
    isa(
        "AArch64",
        "AARCH64",
        Words,
        Guaranteed,
        (&[0x0000_5154], &[0xd28a_2a9f]),
        ("x8", &["x0", "x1", "x2", "x3", "x4", "x5"], "x0"),
        "movz xzr, #0x5154",
    ),
    isa("A32", "A32", Words, Guaranteed, (&[0xe7f5_15f4], &[0xe320_f054]), ARM, "hint #0x54"),
    isa("T32", "T32", Halves, Guaranteed, (&[0xf7f5, 0xa154], &[0xf3af, 0x8054]), ARM, "hint.w #0x54"),
    isa("T16", "T16", Halves, Guaranteed, (&[0xde54], &[0xf3af, 0x8054]), ARM, "hint.w #0x54"),
    isa(
        "RISC-V",
        "RISCV",
        Words,
        Guaranteed,
        (&[0xc008_9073], &[0x5140_2013]),
        ("a7", &["a0", "a1", "a2", "a3", "a4", "a5"], "a0"),
        "slti zero, zero, 0x514",
    ),
    isa("MIPS", "MIPS", Words, Guaranteed, (&[0x0417_5154], &[0x3400_5154]), MIPS, "ori $0, $0, 0x5154"),
    isa(
        "microMIPS",
        "MICROMIPS",
        Halves,
        Guaranteed,
        (&[0x0014, 0x553f], &[0x5000, 0x5154]),
        MIPS,
        "ori $0, $0, 0x5154",
    ),
    isa("MIPS16", "MIPS16", Halves, Reserved, (&[0xed55], &[0x6505]), MIPS, "move $0, $5"),
    isa(
        "nanoMIPS",
        "NANOMIPS",
        Halves,
        Guaranteed,
        (&[0x0000, 0x5154], &[0x8000, 0x0154]),
        ("t4", &["a0", "a1", "a2", "a3", "a4", "a5"], "t4"),
        "ori $0, $0, 0x154",
    ),
    aligned(
        8,
        isa(
            "PowerPC",
            "PPC",
            Words,
            Guaranteed,
            (&[0x0000_0000, 0x5294_02b6], &[0x5294_02b6]),
            ("r0", &["r3", "r4", "r5", "r6", "r7", "r8"], "r3"),
            "rlwimi r20, r20, 0, 10, 27",
        ),
    ),
    isa(
        "s390x",
        "S390X",
        Halves,
        Guaranteed,
        (&[0x00d4], &[0xa704, 0x5154]),
        ("r1", &["r2", "r3", "r4", "r5", "r6"], "r2"),
        "brc 0, .+0xa2a8",
    ),
    isa(
        "SPARC",
        "SPARC",
        Words,
        Guaranteed,
        (&[0x0035_5154], &[0x0135_5154]),
        ("g1", &["o0", "o1", "o2", "o3", "o4", "o5"], "o0"),
        "sethi %hi(0xd5455000), %g0",
    ),
    isa(
        "LoongArch",
        "LOONGARCH",
        Words,
        Guaranteed,
        (&[0x3860_5484], &[0x0345_5000]),
        ("a7", &["a0", "a1", "a2", "a3", "a4", "a5"], "a0"),
        "andi $zero, $zero, 0x154",
    ),
    isa(
        "m68k",
        "M68K",
        Halves,
        Guaranteed,
        (&[0x4afc, 0x5154], &[0x51fa, 0x5154]),
        ("d0", &["d1", "d2", "d3", "d4", "d5", "a0"], "d0"),
        "trapf.w #0x5154",
    ),
    aligned(
        4,
        isa(
            "SH4",
            "SH4",
            Halves,
            Guaranteed,
            (&[0xfffd, 0x5154], &[0x2ee9, 0x2eeb]),
            ("r3", &["r4", "r5", "r6", "r7", "r0", "r1"], "r0"),
            "and r14, r14; or r14, r14",
        ),
    ),
    aligned(
        8,
        isa(
            "Xtensa",
            "XTENSA",
            Bytes,
            Guaranteed,
            (&[0x00, 0x00, 0x00, 0x10, 0x11, 0x10], &[0x10, 0x11, 0x10]),
            XTENSA,
            "and a1, a1, a1",
        ),
    ),
    aligned(
        8,
        isa(
            "Xtensa, big-endian",
            "XTENSAEB",
            Bytes,
            Guaranteed,
            (&[0x00, 0x00, 0x00, 0x01, 0x11, 0x01], &[0x01, 0x11, 0x01]),
            XTENSA,
            "and a1, a1, a1",
        ),
    ),
    isa(
        "Alpha",
        "ALPHA",
        Words,
        Reserved,
        (&[0x0400_5154], &[0x23ff_5154]),
        ("v0", &["a0", "a1", "a2", "a3", "a4", "a5"], "v0"),
        "lda $31, 0x5154($31)",
    ),
    isa(
        "HPPA",
        "HPPA",
        Words,
        Reserved,
        (&[0xfffd_5154], &[0x3400_02a8]),
        ("r20", &["r26", "r25", "r24", "r23", "r22", "r21"], "r28"),
        "ldo 0x154(%r0), %r0",
    ),
    isa(
        "OpenRISC",
        "OPENRISC",
        Words,
        Custom,
        (&[0x7000_5154], &[0x1500_5154]),
        ("r11", &["r3", "r4", "r5", "r6", "r7", "r8"], "r11"),
        "l.nop 0x5154",
    ),
    isa(
        "MicroBlaze",
        "MICROBLAZE",
        Words,
        Reserved,
        (&[0xfc00_5154], &[0xa000_5154]),
        ("r12", &["r5", "r6", "r7", "r8", "r9", "r10"], "r3"),
        "ori r0, r0, 0x5154",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_not_a_probe_and_units_hold_the_numbers() {
        for i in ISAS {
            assert_ne!(i.call, i.probe, "{}", i.name);
            let most = match i.unit {
                Bytes => 0xff,
                Halves => 0xffff,
                Words => u32::MAX,
            };
            assert!(i.call.iter().chain(i.probe).all(|w| *w <= most), "{}", i.name);
            assert!(!i.args.contains(&i.command), "{}", i.name);
        }
    }
}
