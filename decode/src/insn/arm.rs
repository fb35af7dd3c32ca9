//! 32-bit Arm: Capstone's operands, mended where they are wrong (writes of block loads of the floating-point registers, flags of
//! "s" forms, accumulators, shifts by a register, what conditional instructions keep). What an instruction is, is read off the encoding.

use super::{Effects, Kinds, Reg, new};
use crate::Target;
use crate::text::with_capstone;
use capstone::arch::DetailsArchInsn;
use capstone::arch::arm::{ArmCC, ArmInsn, ArmOperand, ArmOperandType, ArmShift};
use capstone::{Capstone, RegId};

pub fn effects(target: Target, thumb: bool, bytes: &[u8]) -> Option<Effects> {
    let kinds = kinds(target, thumb, bytes)?;
    // SWP, which the eighth version of the architecture has no more, and Capstone with it
    if let Some(w) = target.word(bytes).filter(|w| !thumb && w & 0x0fb0_0ff0 == 0x0100_0090 && w >> 28 == 14) {
        let r = |at: u32| Some(general((w >> at & 15) as u8));
        return new(kinds).defines(r(12)).uses(r(0)).uses(r(16)).done();
    }
    with_capstone(target, thumb, |capstone| {
        let insns = capstone.disasm_count(bytes, 0x1000, 1).ok()?;
        let insn = insns.first().filter(|i| i.bytes().len() == bytes.len())?;
        let detail = capstone.insn_detail(insn).ok()?;
        let arch = detail.arch_detail();
        let arm = arch.arm()?;
        let mut r = new(kinds);
        for id in detail.regs_read() {
            r = r.uses(registers(capstone, *id));
        }
        for id in detail.regs_write() {
            r = r.defines(registers(capstone, *id));
        }
        let operands: Vec<ArmOperand> = arm.operands().collect();
        let name = insn.mnemonic().unwrap_or_default().to_string();
        let named = |i: usize| match operands.get(i)?.op_type {
            ArmOperandType::Reg(id) => Some(registers(capstone, id)),
            _ => None,
        };
        let id = insn.id().0;
        let is = |all: &[ArmInsn]| all.iter().any(|&i| i as u32 == id);
        // VPUSH, VPOP, VLDM, VSTM: Capstone has the base, and takes the list for read or written by chance.
        let list =
            || operands.iter().filter_map(|o| if let ArmOperandType::Reg(id) = o.op_type { Some(id) } else { None });
        if is(&[ArmInsn::ARM_INS_VPUSH, ArmInsn::ARM_INS_VPOP]) {
            let regs: Vec<Reg> = list().flat_map(|id| registers(capstone, id)).collect();
            r = new(kinds).updates([Reg::STACK_POINTER]);
            r = if is(&[ArmInsn::ARM_INS_VPUSH]) { r.uses(regs) } else { r.defines(regs) };
        }
        // The base of block transfers, which Capstone forgets in some.
        let block = ["ldm", "stm", "vldm", "vstm"].iter().any(|b| name.starts_with(b));
        if arm.writeback() && block {
            r = r.defines(named(0).into_iter().flatten());
        }
        if is(&[ArmInsn::ARM_INS_VLDMIA, ArmInsn::ARM_INS_VLDMDB]) {
            r = r.defines(list().skip(1).flat_map(|id| registers(capstone, id)));
        }
        for op in &operands {
            // Named, and neither read nor written: the target of a branch.
            if let ArmOperandType::Reg(id) = op.op_type {
                let known = r.regs.uses.or(r.regs.defines);
                r = r.uses(registers(capstone, id).into_iter().filter(|reg| !known.contains(*reg)));
            }
            if let ArmShift::AsrReg(s)
            | ArmShift::LslReg(s)
            | ArmShift::LsrReg(s)
            | ArmShift::RorReg(s)
            | ArmShift::RrxReg(s) = op.shift
            {
                r = r.uses(registers(capstone, s));
            }
        }
        if is(&[
            ArmInsn::ARM_INS_SMLAL,
            ArmInsn::ARM_INS_UMLAL,
            ArmInsn::ARM_INS_UMAAL,
            ArmInsn::ARM_INS_SMLALBB,
            ArmInsn::ARM_INS_SMLALBT,
            ArmInsn::ARM_INS_SMLALTB,
            ArmInsn::ARM_INS_SMLALTT,
            ArmInsn::ARM_INS_SMLALD,
            ArmInsn::ARM_INS_SMLSLD,
        ]) {
            r = r.uses(named(0).into_iter().flatten()).uses(named(1).into_iter().flatten());
        }
        if is(&[ArmInsn::ARM_INS_MRC]) {
            let dest = operands.iter().find_map(|o| match o.op_type {
                ArmOperandType::Reg(id) => Some(registers(capstone, id)),
                _ => None,
            });
            let dest: Vec<Reg> = dest.unwrap_or_default();
            r.regs.uses = r.regs.uses.iter().filter(|reg| !dest.contains(reg)).collect();
            r = r.defines(dest).uses([Reg::SYSTEM]);
        }
        if is(&[ArmInsn::ARM_INS_MCR]) {
            r = r.defines([Reg::SYSTEM]);
        }
        if is(&[ArmInsn::ARM_INS_MSR]) {
            r = r.defines([Reg::FLAGS]);
        }
        if is(&[ArmInsn::ARM_INS_MRS, ArmInsn::ARM_INS_SEL]) {
            r = r.uses([Reg::FLAGS]);
        }
        // ADC and its like only read the carry without an "s".
        let sets = match target.word(bytes) {
            _ if thumb && bytes.len() == 2 => sets_in_thumb(&name),
            _ if !carries(id) => arm.update_flags(),
            Some(w) if !thumb => w >> 20 & 1 != 0,
            _ => bytes.get(..2).and_then(|b| target.word(b)).is_some_and(|a| a >> 4 & 1 != 0),
        };
        if sets {
            r = r.defines([Reg::FLAGS]);
        } else if carries(id) {
            r.regs.defines = r.regs.defines.iter().filter(|reg| *reg != Reg::FLAGS).collect();
        }
        if is(&[ArmInsn::ARM_INS_SVC]) {
            r = new(kinds);
        }
        if !matches!(arm.cc(), ArmCC::ARM_CC_AL | ArmCC::ARM_CC_INVALID) {
            r = r.uses([Reg::FLAGS]);
            if crate::classify(target, if thumb { crate::ALT_MODE } else { 0 }, bytes) == crate::Class::Other {
                let kept = r.regs.defines;
                r = r.uses(kept.iter());
            }
        }
        if thumb && is(&[ArmInsn::ARM_INS_IT]) {
            r = new(kinds).uses([Reg::FLAGS]);
        }
        r.done()
    })
}

/// ADC, SBC and RSC.
fn carries(id: u32) -> bool {
    [ArmInsn::ARM_INS_ADC, ArmInsn::ARM_INS_SBC, ArmInsn::ARM_INS_RSC].iter().any(|&i| i as u32 == id)
}

/// Short data processing sets the flags outside IT blocks, which Capstone only tells by the name.
fn sets_in_thumb(name: &str) -> bool {
    [
        "adds", "subs", "movs", "lsls", "lsrs", "asrs", "ands", "eors", "adcs", "sbcs", "rors", "rsbs", "orrs", "muls",
        "bics", "mvns", "negs",
    ]
    .contains(&name)
}

fn general(n: u8) -> Reg {
    if n == 13 { Reg::STACK_POINTER } else { Reg::general(n) }
}

/// A register of Capstone's as ours: single words are halves of double words, quadwords two of them.
fn registers(capstone: &Capstone, id: RegId) -> Vec<Reg> {
    let Some(name) = capstone.reg_name(id) else { return Vec::new() };
    let number = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<u8>().ok());
    match name.as_str() {
        "sp" | "r13" => return vec![Reg::STACK_POINTER],
        "lr" => return vec![Reg::general(14)],
        "sb" => return vec![Reg::general(9)],
        "sl" => return vec![Reg::general(10)],
        "fp" => return vec![Reg::general(11)],
        "ip" => return vec![Reg::general(12)],
        "pc" | "r15" | "itstate" => return Vec::new(),
        n if n.starts_with("cpsr") || n.starts_with("apsr") => return vec![Reg::FLAGS],
        n if n.starts_with("fp") => return vec![Reg::FLOAT_STATUS],
        _ => {}
    }
    if let Some(n) = number("r") {
        vec![Reg::general(n)]
    } else if let Some(n) = number("s") {
        vec![Reg::vector(n / 2)]
    } else if let Some(n) = number("d") {
        vec![Reg::vector(n)]
    } else if let Some(n) = number("q") {
        vec![Reg::vector(2 * n), Reg::vector(2 * n + 1)]
    } else {
        vec![Reg::SYSTEM]
    }
}

/// From the Arm architecture's encoding tables.
fn kinds(target: Target, thumb: bool, bytes: &[u8]) -> Option<Kinds> {
    if !thumb {
        return a32(target.word(bytes)?);
    }
    let half = |i: usize| bytes.get(i..i + 2).and_then(|b| target.word(b));
    let a = half(0)?;
    match half(2) {
        Some(b) => t32(a, b),
        None => Some(t16(a)),
    }
}

fn load_if(load: bool) -> Kinds {
    if load { Kinds::LOAD } else { Kinds::STORE }
}

fn a32(w: u32) -> Option<Kinds> {
    let bit = |n: u32| w >> n & 1 != 0;
    let unconditional = w >> 28 == 15;
    Some(match w >> 25 & 7 {
        _ if unconditional => match w >> 20 & 0xff {
            // Barriers and CLREX
            0x57 if w >> 4 & 15 == 1 => Kinds::NONE,
            0x57 => Kinds::FENCE,
            n if n & 0xf1 == 0x40 => load_if(bit(21)) | Kinds::VECTOR,
            n if n & 0xe0 == 0x20 => Kinds::VECTOR,
            n if n & 0xe0 == 0xa0 => Kinds::NONE,
            // Preloads
            n if n & 0xc7 == 0x45 || n & 0xd7 == 0x55 || n & 0xc7 == 0x41 => Kinds::NONE,
            // SETEND, CPS
            0x10 => Kinds::NONE,
            n if n & 0xe0 == 0x80 => Kinds::PRIVILEGED | load_if(bit(20)),
            n if n & 0xe0 == 0xc0 => return None,
            n if n & 0xf0 == 0xe0 => Kinds::FLOAT,
            _ => return None,
        },
        0 if w & 0x90 == 0x90 => match w >> 5 & 3 {
            // Multiplies, SWP, exclusives
            0 if !bit(24) => Kinds::NONE,
            0 if !bit(23) => Kinds::LOAD | Kinds::STORE | Kinds::ATOMIC,
            // LDA, STL are ordered, no more.
            0 if w >> 8 & 3 == 0 => load_if(bit(20)),
            0 => load_if(bit(20)) | Kinds::ATOMIC,
            1 => load_if(bit(20)),
            // LDRD, STRD; otherwise LDRSB, LDRSH
            n => load_if(bit(20) || n == 2),
        },
        0 if w >> 20 & 0x1f == 0x12 && w >> 4 & 15 == 7 => Kinds::TRAP,
        0 if w >> 20 & 0x1f == 0x16 && w >> 4 & 15 == 7 => Kinds::PRIVILEGED,
        2 => load_if(bit(20)),
        3 if bit(4) && w >> 20 & 0x1f == 0x1f && w >> 4 & 15 == 15 => Kinds::TRAP,
        3 if bit(4) => Kinds::NONE,
        3 | 4 => load_if(bit(20)),
        6 | 7 => return coprocessor(w),
        _ => Kinds::NONE,
    })
}

/// Coprocessor space, floating point and SVC; the same in both encodings.
fn coprocessor(w: u32) -> Option<Kinds> {
    let bit = |n: u32| w >> n & 1 != 0;
    if w >> 24 & 15 == 15 {
        return Some(Kinds::SYSCALL);
    }
    let float = w >> 9 & 7 == 5;
    Some(match w >> 24 & 15 {
        // Moves of two registers
        12 if w >> 21 & 7 == 2 => {
            if float {
                Kinds::FLOAT
            } else {
                Kinds::NONE
            }
        }
        12 | 13 => load_if(bit(20)) | if float { Kinds::FLOAT } else { Kinds::NONE },
        _ if float => Kinds::FLOAT,
        // MRC, MCR: user code has the thread pointer, and on older cores barriers.
        _ => Kinds::NONE,
    })
}

fn t16(a: u32) -> Kinds {
    match a >> 11 {
        0x09 => Kinds::LOAD,
        0x0a | 0x0b => load_if(a >> 9 & 7 >= 3),
        0x0c..=0x13 => load_if(a >> 11 & 1 != 0),
        0x18 | 0x19 => load_if(a >> 11 & 1 != 0),
        0x16 if a & 0xfe00 == 0xb400 => Kinds::STORE,
        0x17 if a & 0xfe00 == 0xbc00 => Kinds::LOAD,
        0x17 if a & 0xff00 == 0xbe00 => Kinds::TRAP,
        0x1b if a & 0xff00 == 0xdf00 => Kinds::SYSCALL,
        0x1b if a & 0xff00 == 0xde00 => Kinds::TRAP,
        _ => Kinds::NONE,
    }
}

fn t32(a: u32, b: u32) -> Option<Kinds> {
    let load = a >> 4 & 1 != 0;
    let w = a << 16 | b;
    Some(match a >> 9 & 15 {
        // Load and store multiple, dual and exclusive, table branch
        4 if a >> 6 & 1 == 0 => load_if(load),
        4 if a & 0xffe0 == 0xe8c0 => match b >> 4 & 15 {
            0 | 1 if load => Kinds::LOAD,
            4 | 5 | 7 | 12 | 13 | 15 => load_if(load) | Kinds::ATOMIC,
            _ => load_if(load),
        },
        4 if a & 0xffe0 == 0xe840 => load_if(load) | Kinds::ATOMIC,
        4 => load_if(load),
        // Advanced SIMD loads and stores, and preloads, are among the single ones.
        12 if a & 0xff10 == 0xf900 => load_if(a >> 5 & 1 != 0) | Kinds::VECTOR,
        12 if load && b >> 12 == 15 && a >> 5 & 3 != 2 => Kinds::NONE,
        12 => load_if(load),
        6 | 7 | 14 | 15 if a >> 8 & 3 == 3 && a & 0xef00 == 0xef00 => Kinds::VECTOR,
        6 | 7 => coprocessor(w & 0x0fff_ffff)?,
        14 | 15 => Kinds::VECTOR,
        8..=11 if b & 0x8000 != 0 => match (a, b) {
            (0xf3bf, _) if b >> 4 & 0xf == 2 => Kinds::NONE,
            (0xf3bf, _) if b & 0xff00 == 0x8f00 => Kinds::FENCE,
            (_, _) if a & 0xfff0 == 0xf7f0 && b & 0xf000 == 0xa000 => Kinds::TRAP,
            (_, _) if a & 0xfff0 == 0xf7f0 && b & 0xf000 == 0x8000 => Kinds::PRIVILEGED,
            _ => Kinds::NONE,
        },
        _ => Kinds::NONE,
    })
}
