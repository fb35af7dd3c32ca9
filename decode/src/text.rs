//! Disassembly.

use crate::{ALT_MODE, Isa, Target};
use capstone::{Arch, Capstone, Endian, ExtraMode, Mode};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
use std::cell::RefCell;

thread_local! {
    /// A thread mostly sees one target.
    static DISASSEMBLERS: RefCell<Vec<Disassembler>> = const { RefCell::new(Vec::new()) };
}

/// The text of the instruction `bytes` at `pc`, in a block with these `BLOCK_*` flags, by a disassembler that this thread keeps.
pub fn text(target: Target, flags: u32, pc: u64, bytes: &[u8]) -> Option<String> {
    with(target, |d| d.text(flags, pc, bytes))
}

/// `f` with a Capstone that tells operands and that this thread keeps.
pub(crate) fn with_capstone<T>(target: Target, alt: bool, f: impl FnOnce(&Capstone) -> Option<T>) -> Option<T> {
    with(target, |d| f(d.handle(alt)?))
}

fn with<T>(target: Target, f: impl FnOnce(&mut Disassembler) -> Option<T>) -> Option<T> {
    DISASSEMBLERS.with_borrow_mut(|all| {
        let at = all.iter().position(|d| d.target == target).unwrap_or_else(|| {
            all.push(Disassembler::of(target));
            all.len() - 1
        });
        f(all.get_mut(at)?)
    })
}

/// Turns instructions of one target into text. Not shared between threads: each has its own.
pub struct Disassembler {
    target: Target,
    intel: IntelFormatter,
    /// For blocks without and with [`ALT_MODE`], made when first asked for; `Some(None)`: there is none.
    handles: [Option<Option<Capstone>>; 2],
}

impl Disassembler {
    /// A disassembler of the target that QEMU calls `name`; `None` if there is none.
    pub fn new(name: &str) -> Option<Disassembler> {
        Some(Disassembler::of(Target::named(name)?))
    }

    fn of(target: Target) -> Disassembler {
        let mut intel = IntelFormatter::new();
        let options = intel.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(true);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_rip_relative_addresses(true);
        Disassembler { target, intel, handles: [None, None] }
    }

    fn handle(&mut self, alt: bool) -> Option<&Capstone> {
        let target = self.target;
        self.handles[usize::from(alt)].get_or_insert_with(|| open(target, alt)).as_ref()
    }

    /// The text of the instruction `bytes` at `pc`, in a block with these `BLOCK_*` flags. `None`: it is not known.
    pub fn text(&mut self, flags: u32, pc: u64, bytes: &[u8]) -> Option<String> {
        if self.target.isa == Isa::X86 {
            return self.x86(flags, pc, bytes);
        }
        let insns = self.handle(flags & ALT_MODE != 0)?.disasm_count(bytes, pc, 1).ok()?;
        let insn = insns.first()?;
        // A disassembler that sees a shorter or longer instruction than QEMU ran does not know it.
        if insn.bytes().len() != bytes.len() {
            return None;
        }
        let mnemonic = insn.mnemonic()?;
        Some(match insn.op_str() {
            Some(operands) if !operands.is_empty() => format!("{mnemonic} {operands}"),
            _ => mnemonic.to_string(),
        })
    }

    fn x86(&mut self, flags: u32, pc: u64, bytes: &[u8]) -> Option<String> {
        let mut decoder = Decoder::with_ip(self.target.x86_bits(flags), bytes, pc, DecoderOptions::NONE);
        let insn = decoder.decode();
        if insn.is_invalid() || insn.len() != bytes.len() {
            return None;
        }
        let mut text = String::new();
        self.intel.format(&insn, &mut text);
        Some(text)
    }
}

fn open(target: Target, alt: bool) -> Option<Capstone> {
    let wide = target.bits == 64;
    let none: &[ExtraMode] = &[];
    let (arch, mode, extra) = match target.isa {
        Isa::Aarch64 => (Arch::ARM64, Mode::Arm, none),
        Isa::Arm if alt => (Arch::ARM, Mode::Thumb, &[ExtraMode::V8][..]),
        Isa::Arm => (Arch::ARM, Mode::Arm, &[ExtraMode::V8][..]),
        Isa::Mips if alt => (Arch::MIPS, Mode::Mips32, &[ExtraMode::Micro][..]),
        Isa::Mips if wide => (Arch::MIPS, Mode::Mips64, none),
        Isa::Mips => (Arch::MIPS, Mode::Mips32, none),
        Isa::Ppc if wide => (Arch::PPC, Mode::Mode64, none),
        Isa::Ppc => (Arch::PPC, Mode::Mode32, none),
        Isa::Riscv if wide => (Arch::RISCV, Mode::RiscV64, &[ExtraMode::RiscVC][..]),
        Isa::Riscv => (Arch::RISCV, Mode::RiscV32, &[ExtraMode::RiscVC][..]),
        Isa::S390x => (Arch::SYSZ, Mode::Default, none),
        Isa::Sparc if wide => (Arch::SPARC, Mode::V9, none),
        Isa::Sparc => (Arch::SPARC, Mode::Default, none),
        Isa::M68k => (Arch::M68K, Mode::M68k040, none),
        _ => return None,
    };
    let endian = match target.isa {
        // Capstone has one order for these and takes no other.
        Isa::Riscv | Isa::M68k => None,
        _ if target.big_endian => Some(Endian::Big),
        _ => Some(Endian::Little),
    };
    let mut capstone = Capstone::new_raw(arch, mode, extra.iter().copied(), endian).ok()?;
    capstone.set_detail(matches!(target.isa, Isa::Arm | Isa::S390x)).ok()?;
    Some(capstone)
}
