//! What is written in C, from the tables: the part of `guest-lib/include/trapline.h` between its two markers, and the header of the
//! QEMU patch. `tests/generated.rs` compares them with what is committed.

use crate::*;
use core::fmt::{Result, Write};

/// First line of the generated part of the guest's header.
pub const BEGIN: &str = "/* ---- generated from backdoor/ ---- */\n";
/// The line after it.
pub const END: &str = "/* ---- end of what is generated ---- */\n";

/// Constants that both sides need.
fn constants(out: &mut dyn Write) -> Result {
    writeln!(out, "#define TRAPLINE_MAGIC 0x{MAGIC:04x}")?;
    writeln!(out, "#define TRAPLINE_VERSION 0x{VERSION:08x}")?;
    writeln!(out, "#define TRAPLINE_NAME_MAX {NAME_MAX}")?;
    writeln!(out, "#define TRAPLINE_BUFFER_MAX {BUFFER_MAX}\n")?;
    for o in OPERATIONS {
        writeln!(out, "#define TRAPLINE_OP_{:<16} 0x{:04x}", o.name, o.op)?;
    }
    writeln!(out)?;
    for (name, e) in ERRNOS {
        writeln!(out, "#define TRAPLINE_{name:<7} {}", e as i32)?;
    }
    writeln!(out)
}

/// The guest header's part: constants, and the assembler's directives per ISA.
pub fn guest(out: &mut dyn Write) -> Result {
    constants(out)?;
    for (name, value) in [
        ("SCOPE_DEFAULT", scope::DEFAULT),
        ("SCOPE_VCPU", scope::VCPU),
        ("SCOPE_PROCESS", scope::PROCESS),
        ("SCOPE_ALL", scope::ALL),
        ("CLOCK_MONOTONIC", what::CLOCK_MONOTONIC),
        ("CLOCK_WALL", what::CLOCK_WALL),
        ("CLOCK_VIRTUAL", what::CLOCK_VIRTUAL),
        ("COUNTER_CALLS", what::COUNTER_CALLS),
        ("COUNTER_STARTS", what::COUNTER_STARTS),
        ("FEATURE_USER_MODE", feature::USER_MODE),
        ("FEATURE_EXIT", feature::EXIT),
        ("FEATURE_RECV", feature::RECV),
        ("FEATURE_SELECT", feature::SELECT),
        ("FEATURE_ICOUNT", feature::ICOUNT),
    ] {
        writeln!(out, "#define TRAPLINE_{name:<17} {value}")?;
    }
    writeln!(out)?;
    for isa in ISAS {
        for (what, code) in [("CALL", isa.call), ("PROBE", isa.probe)] {
            write!(out, "#define TRAPLINE_{}_{what} \"", isa.ident)?;
            directive(out, isa, code)?;
            writeln!(out, "\"")?;
        }
    }
    Ok(())
}

/// An encoding as a directive that leaves it an instruction in the eyes of tools, where there is one.
fn directive(out: &mut dyn Write, isa: &Isa, code: &[u32]) -> Result {
    if isa.ident.starts_with("XTENSA") {
        // Its assembler fills with zeros, which are illegal; the probe needs no alignment.
        if code == isa.call {
            write!(out, "j 9f\\n\\t.p2align {}\\n9:\\t", isa.align.trailing_zeros())?;
        }
    } else if isa.align > 1 {
        write!(out, ".p2align {}\\n\\t", isa.align.trailing_zeros())?;
    }
    match (isa.ident, code) {
        ("AARCH64" | "A32", [word]) => write!(out, ".inst 0x{word:08x}"),
        ("T32" | "T16", [a, b]) => write!(out, ".inst.w 0x{a:04x}{b:04x}"),
        ("T16", [a]) => write!(out, ".inst.n 0x{a:04x}"),
        ("RISCV", [w]) => {
            // The format I: opcode, funct3, rd, rs1, immediate.
            let (rd, rs1, imm) = (w >> 7 & 31, w >> 15 & 31, *w as i32 >> 20);
            write!(out, ".insn i 0x{:x}, {}, x{rd}, x{rs1}, {imm}", w & 0x7f, w >> 12 & 7)
        }
        ("S390X", [a]) => write!(out, ".insn e,0x{a:04x}"),
        ("S390X", [a, b]) => {
            write!(out, ".insn ri,0x{:04x}0000,{},0x{b:04x}", a & 0xff0f, a >> 4 & 15)
        }
        _ => {
            let name = match isa.unit {
                Unit::Bytes => ".byte",
                Unit::Halves => ".short",
                Unit::Words => ".long",
            };
            if isa.ident.ends_with("MIPS") || isa.ident == "MIPS16" {
                write!(out, ".insn\\n\\t")?;
            }
            for (i, n) in code.iter().enumerate() {
                let comma = if i == 0 { " " } else { ", " };
                match isa.unit {
                    Unit::Bytes => write!(out, "{}{comma}0x{n:02x}", if i == 0 { name } else { "" })?,
                    Unit::Halves => write!(out, "{}{comma}0x{n:04x}", if i == 0 { name } else { "" })?,
                    Unit::Words => write!(out, "{}{comma}0x{n:08x}", if i == 0 { name } else { "" })?,
                }
            }
            Ok(())
        }
    }
}

/// The patch's header, whole.
pub fn patch(out: &mut dyn Write) -> Result {
    writeln!(
        out,
        "/*\n * The backdoor's encodings and operations.\n *\n * Generated from the tables of Trapline's crate `backdoor`; do not edit.\n *\n \
         * SPDX-License-Identifier: GPL-2.0-or-later\n */\n#ifndef EXEC_INSTRUMENT_BACKDOOR_ABI_H\n\
         #define EXEC_INSTRUMENT_BACKDOOR_ABI_H\n"
    )?;
    constants(out)?;
    for isa in ISAS {
        for (what, code) in [("CALL", isa.call), ("PROBE", isa.probe)] {
            for (i, n) in code.iter().enumerate() {
                writeln!(
                    out,
                    "#define TRAPLINE_{}_{what}_{i} 0x{n:0width$x}u",
                    isa.ident,
                    width = isa.unit.bytes() * 2
                )?;
            }
        }
    }
    writeln!(
        out,
        "\n/*\n * Guest memory that operations take: X(op, kind, argument, argument), where\n \
         * NAME is a text, IN and OUT are address and length, WORD is an address.\n */\n\
         #define TRAPLINE_BUFFERS(X) \\"
    )?;
    for o in OPERATIONS {
        let (kind, a, b) = match o.buffer {
            Buffer::None => continue,
            Buffer::Name(a) => ("NAME", a, 0),
            Buffer::In(a, b) => ("IN", a, b),
            Buffer::Out(a, b) => ("OUT", a, b),
            Buffer::Word(a) => ("WORD", a, 0),
        };
        writeln!(out, "    X({}, {kind}, {a}, {b}) \\", o.name)?;
    }
    writeln!(out, "    /* end */\n\n#endif")
}
