//! What kind of branch an instruction is, read off its encoding.
//!
//! Each ISA's rules follow its manual's opcode map. A branch whose condition always holds by its encoding is no conditional one.

use crate::{ALT_MODE, Isa, Target};
use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// Kinds of instructions, by where the program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// At the next instruction (or in the kernel).
    Other,
    /// At one of two places.
    CondBranch,
    /// Elsewhere, at a place that the instruction names.
    Jump,
    /// Elsewhere, at a place that is computed.
    IndirectJump,
    /// In a subroutine that the instruction names.
    Call,
    /// In a subroutine that is computed.
    IndirectCall,
    /// In the caller.
    Return,
    /// Nobody here knows.
    Unknown,
}

/// The branch that ends a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Index of the branch instruction in the block; a delay slot may follow it.
    pub insn: usize,
    /// What it is.
    pub class: Class,
    /// Address of the instruction that follows if it is not taken.
    pub fall_through: u64,
}

/// The branch that ends a block of these instructions (pc and bytes, in order; `flags` as in the block table).
/// `None` if it ends otherwise, or nobody here knows.
pub fn block_branch<'a>(
    target: Target,
    flags: u32,
    insns: impl ExactSizeIterator<Item = (u64, &'a [u8])> + Clone,
) -> Option<Branch> {
    let n = insns.len();
    let branch_at = |i: usize| {
        let (pc, bytes) = insns.clone().nth(i)?;
        let mut class = classify(target, flags, bytes);
        if target.isa == Isa::Arm
            && flags & ALT_MODE != 0
            && matches!(class, Class::Jump | Class::IndirectJump | Class::Return)
        {
            class = if in_it_block(insns.clone(), i) { Class::CondBranch } else { class };
        }
        let next = pc.wrapping_add(bytes.len() as u64);
        (!matches!(class, Class::Other | Class::Unknown)).then_some((i, class, next))
    };
    let last = n.checked_sub(1)?;
    if !target.has_delay_slots() {
        return branch_at(last).map(|(insn, class, fall_through)| Branch { insn, class, fall_through });
    }
    // The delay slot is as long as the branch; it may be in a block of its own.
    let (insn, class, slot) = last.checked_sub(1).and_then(&branch_at).or_else(|| branch_at(last))?;
    let slot_len = insns.clone().nth(insn).map_or(4, |(_, bytes)| bytes.len() as u64);
    let has_slot =
        !(target.isa == Isa::Sh4 && class == Class::CondBranch && !sh4_is_delayed(target, insns.clone().nth(insn)?.1));
    Some(Branch { insn, class, fall_through: if has_slot { slot.wrapping_add(slot_len) } else { slot } })
}

fn sh4_is_delayed(target: Target, bytes: &[u8]) -> bool {
    target.word(bytes).is_some_and(|w| matches!(w >> 8, 0x8d | 0x8f))
}

/// Is instruction `index` under a Thumb IT instruction of its block?
fn in_it_block<'a>(insns: impl Iterator<Item = (u64, &'a [u8])>, index: usize) -> bool {
    let mut covered = 0;
    for (i, (_, bytes)) in insns.enumerate() {
        if i == index {
            return covered > 0;
        }
        covered = match *bytes {
            // IT: 1011 1111 cond mask, mask != 0; the lowest set bit ends it.
            [low, 0xbf] if low & 0xf != 0 => 4 - (low & 0xf).trailing_zeros(),
            _ => covered.saturating_sub(1),
        };
    }
    false
}

/// The class of one instruction in a block with these flags.
pub fn classify(target: Target, flags: u32, bytes: &[u8]) -> Class {
    let alt = flags & ALT_MODE != 0;
    match target.isa {
        Isa::X86 => return x86(target.x86_bits(flags), bytes),
        Isa::S390x => return s390x(bytes),
        Isa::Arm if alt => return thumb(target, bytes),
        Isa::Mips if alt => return Class::Unknown,
        _ => {}
    }
    let half = bytes.len() == 2;
    let Some(w) = target.word(bytes) else {
        return Class::Unknown;
    };
    match target.isa {
        Isa::Riscv if half => riscv_compressed(w, target.bits),
        Isa::Riscv => riscv(w),
        Isa::M68k => m68k(bytes),
        Isa::Sh4 if half => sh4(w),
        _ if half => Class::Unknown,
        Isa::Aarch64 => aarch64(w),
        Isa::Arm => arm(w),
        Isa::Mips => mips(w),
        Isa::Ppc => ppc(w),
        Isa::Sparc => sparc(w),
        Isa::Alpha => alpha(w),
        Isa::LoongArch => loongarch(w),
        Isa::OpenRisc => openrisc(w),
        Isa::X86 | Isa::S390x | Isa::Sh4 => Class::Unknown,
    }
}

fn x86(bits: u32, bytes: &[u8]) -> Class {
    let insn = Decoder::new(bits, bytes, DecoderOptions::NONE).decode();
    if insn.is_invalid() {
        return Class::Unknown;
    }
    match insn.flow_control() {
        FlowControl::ConditionalBranch => Class::CondBranch,
        FlowControl::UnconditionalBranch => Class::Jump,
        FlowControl::IndirectBranch => Class::IndirectJump,
        // SYSCALL and its like count as calls there.
        FlowControl::Call if insn.is_call_near() || insn.is_call_far() => Class::Call,
        FlowControl::IndirectCall => Class::IndirectCall,
        FlowControl::Return => Class::Return,
        _ => Class::Other,
    }
}

fn aarch64(w: u32) -> Class {
    match w >> 24 {
        // B.cond, BC.cond; conditions 14 and 15 are "always".
        0x54 if w & 0xf >= 14 => Class::Jump,
        0x54 => Class::CondBranch,
        // CBZ, CBNZ, TBZ, TBNZ
        0x34..=0x37 | 0xb4..=0xb7 => Class::CondBranch,
        0x14..=0x17 => Class::Jump,
        0x94..=0x97 => Class::Call,
        0xd6 | 0xd7 => match w >> 21 & 0xf {
            0 | 8 => Class::IndirectJump,
            1 | 9 => Class::IndirectCall,
            2 => Class::Return,
            // ERET, DRPS
            4 | 5 => Class::IndirectJump,
            _ => Class::Other,
        },
        _ => Class::Other,
    }
}

fn arm(w: u32) -> Class {
    let cond = w >> 28;
    let class = match w >> 25 & 7 {
        5 if cond == 15 => return Class::Call,
        5 if w & 1 << 24 != 0 => Class::Call,
        5 => Class::Jump,
        // RFE
        4 if cond == 15 && w >> 20 & 5 == 1 => return Class::IndirectJump,
        _ if cond == 15 => return Class::Other,
        _ if w & 0x0fff_fff0 == 0x012f_ff10 => {
            if w & 0xf == 14 {
                Class::Return
            } else {
                Class::IndirectJump
            }
        }
        _ if w & 0x0fff_fff0 == 0x012f_ff30 => Class::IndirectCall,
        // LDM with pc
        4 if w & 0x0010_8000 == 0x0010_8000 => {
            if w >> 16 & 0xf == 13 {
                Class::Return
            } else {
                Class::IndirectJump
            }
        }
        // LDR pc (not the media instructions: bits 25 and 4)
        2 | 3 if w & 0x0050_f000 == 0x0010_f000 && !(w >> 25 & 7 == 3 && w & 0x10 != 0) => {
            if w & 0x0fff_ffff == 0x049d_f004 { Class::Return } else { Class::IndirectJump }
        }
        // Data processing that writes pc: not the compares (opcodes 8..=11), not multiplies and halfword transfers
        0 | 1
            if w >> 12 & 0xf == 15
                && !(8..=11).contains(&(w >> 21 & 0xf))
                && (w >> 25 & 1 == 1 || w & 0x90 != 0x90) =>
        {
            if w & 0x0fff_ffff == 0x01a0_f00e {
                Class::Return
            } else {
                Class::IndirectJump
            }
        }
        _ => return Class::Other,
    };
    if cond == 14 { class } else { Class::CondBranch }
}

fn thumb(target: Target, bytes: &[u8]) -> Class {
    let half = |i: usize| bytes.get(i..i + 2).and_then(|b| target.word(b));
    let Some(a) = half(0) else {
        return Class::Unknown;
    };
    if let Some(b) = half(2) {
        return match (a, b) {
            (0xf000..=0xf7ff, _) if b & 0x8000 != 0 => match b & 0x5000 {
                0x0000 if a >> 7 & 7 != 7 => Class::CondBranch,
                0x0000 => Class::Other,
                0x1000 => Class::Jump,
                _ => Class::Call,
            },
            // TBB, TBH
            _ if a & 0xfff0 == 0xe8d0 && b & 0xffe0 == 0xf000 => Class::IndirectJump,
            // LDMIA/LDMDB with pc
            _ if a & 0xfe50 == 0xe810 && b & 0x8000 != 0 => {
                if a & 0xf == 13 {
                    Class::Return
                } else {
                    Class::IndirectJump
                }
            }
            // LDR.W pc
            _ if a & 0xff70 == 0xf850 && b >> 12 == 15 => {
                if a & 0xf == 13 && b & 0xfff == 0xb04 {
                    Class::Return
                } else {
                    Class::IndirectJump
                }
            }
            _ => Class::Other,
        };
    }
    match a {
        0xd000..=0xddff => Class::CondBranch,
        // CBZ, CBNZ
        _ if a & 0xf500 == 0xb100 => Class::CondBranch,
        0xe000..=0xe7ff => Class::Jump,
        _ if a & 0xff80 == 0x4700 => {
            if a >> 3 & 0xf == 14 {
                Class::Return
            } else {
                Class::IndirectJump
            }
        }
        _ if a & 0xff80 == 0x4780 => Class::IndirectCall,
        0xbd00..=0xbdff => Class::Return,
        0x46f7 => Class::Return,
        // MOV pc, ADD pc
        _ if matches!(a & 0xff87, 0x4687 | 0x4487) => Class::IndirectJump,
        _ => Class::Other,
    }
}

fn mips(w: u32) -> Class {
    let (rs, rt) = (w >> 21 & 31, w >> 16 & 31);
    match w >> 26 {
        0 => match w & 0x3f {
            8 if rs == 31 => Class::Return,
            8 => Class::IndirectJump,
            // JALR to $zero is the sixth release's JR.
            9 if w >> 11 & 31 == 0 => {
                if rs == 31 {
                    Class::Return
                } else {
                    Class::IndirectJump
                }
            }
            9 => Class::IndirectCall,
            _ => Class::Other,
        },
        1 => match rt {
            17 if rs == 0 => Class::Call,
            0..=3 | 16..=19 => Class::CondBranch,
            _ => Class::Other,
        },
        2 => Class::Jump,
        3 => Class::Call,
        4 if rs == rt => Class::Jump,
        4..=7 | 20..=23 => Class::CondBranch,
        17 | 18 if matches!(rs, 8..=10 | 13) => Class::CondBranch,
        // ERET, ERETNC, DERET
        16 if matches!(w, 0x4200_0018 | 0x4200_0058 | 0x4200_001f) => Class::IndirectJump,
        _ => Class::Other,
    }
}

fn ppc(w: u32) -> Class {
    let link = w & 1 != 0;
    let always = w >> 21 & 0x14 == 0x14;
    match w >> 26 {
        18 if link => Class::Call,
        18 => Class::Jump,
        16 if !always => Class::CondBranch,
        16 if link => Class::Call,
        16 => Class::Jump,
        19 => match w >> 1 & 0x3ff {
            16 | 528 | 560 if !always => Class::CondBranch,
            16 | 528 | 560 if link => Class::IndirectCall,
            16 => Class::Return,
            528 | 560 => Class::IndirectJump,
            // rfid, rfci, rfi, rfscv, hrfid
            18 | 50 | 51 | 82 | 274 => Class::IndirectJump,
            _ => Class::Other,
        },
        _ => Class::Other,
    }
}

fn riscv(w: u32) -> Class {
    let (rd, rs1) = (w >> 7 & 31, w >> 15 & 31);
    match w & 0x7f {
        0x63 => Class::CondBranch,
        0x6f if rd == 0 => Class::Jump,
        0x6f => Class::Call,
        0x67 if rd != 0 => Class::IndirectCall,
        0x67 if matches!(rs1, 1 | 5) => Class::Return,
        0x67 => Class::IndirectJump,
        // SRET, MRET, MNRET, DRET
        0x73 if matches!(w, 0x1020_0073 | 0x3020_0073 | 0x7020_0073 | 0x7b20_0073) => Class::IndirectJump,
        _ => Class::Other,
    }
}

fn riscv_compressed(w: u32, bits: u8) -> Class {
    let rs1 = w >> 7 & 31;
    match (w & 3, w >> 13 & 7) {
        (1, 6 | 7) => Class::CondBranch,
        (1, 5) => Class::Jump,
        (1, 1) if bits == 32 => Class::Call,
        (2, 4) if w >> 2 & 31 == 0 && rs1 != 0 => match w >> 12 & 1 {
            1 => Class::IndirectCall,
            _ if matches!(rs1, 1 | 5) => Class::Return,
            _ => Class::IndirectJump,
        },
        _ => Class::Other,
    }
}

fn s390x(bytes: &[u8]) -> Class {
    let (Some(&op), Some(&second)) = (bytes.first(), bytes.get(1)) else {
        return Class::Unknown;
    };
    let (high, low) = (second >> 4, second & 0xf);
    let by_mask = |taken: Class| match high {
        0 => Class::Other,
        15 => taken,
        _ => Class::CondBranch,
    };
    match (op, low) {
        (0x07, 0) => Class::Other,
        (0x07, 14) => by_mask(Class::Return),
        (0x07, _) | (0x47, _) => by_mask(Class::IndirectJump),
        (0xa7 | 0xc0, 4) => by_mask(Class::Jump),
        (0xa7 | 0xc0, 5) => Class::Call,
        // BRCT, BRCTG, BRCTH
        (0xa7, 6 | 7) | (0xcc, 6) => Class::CondBranch,
        // BCTR, BCT, BRXH, BRXLE, BXH, BXLE
        (0x06, 0) => Class::Other,
        (0x06 | 0x46 | 0x84..=0x87, _) => Class::CondBranch,
        // BALR, BASSM, BASR without a target only note the address
        (0x05 | 0x0c | 0x0d, 0) => Class::Other,
        (0x05 | 0x0c | 0x0d | 0x45 | 0x4d, _) => Class::IndirectCall,
        (0x0b, 0) => Class::Other,
        (0x0b, _) => Class::IndirectJump,
        (0xec, _) => match bytes.get(5) {
            // BRXHG, BRXLG; compare and branch (relative)
            Some(0x44 | 0x45 | 0x64 | 0x65 | 0x76 | 0x77 | 0x7c..=0x7f | 0xe4 | 0xe5 | 0xf6 | 0xf7 | 0xfc..=0xff) => {
                Class::CondBranch
            }
            _ => Class::Other,
        },
        // BCTG, BXHG, BXLEG, BIC
        (0xe3, _) if bytes.get(5) == Some(&0x46) => Class::CondBranch,
        (0xe3, _) if bytes.get(5) == Some(&0x47) => by_mask(Class::IndirectJump),
        (0xeb, _) if matches!(bytes.get(5), Some(0x44 | 0x45)) => Class::CondBranch,
        _ => Class::Other,
    }
}

fn sparc(w: u32) -> Class {
    match w >> 30 {
        1 => Class::Call,
        0 => match (w >> 22 & 7, w >> 25 & 0xf) {
            (1 | 2 | 5 | 6, 8) => Class::Jump,
            (1 | 2 | 5 | 6, 0) => Class::Other,
            (1 | 2 | 5 | 6, _) | (3, _) => Class::CondBranch,
            _ => Class::Other,
        },
        2 => {
            let (rd, rs1) = (w >> 25 & 31, w >> 14 & 31);
            match w >> 19 & 0x3f {
                0x38 if rd == 15 => Class::IndirectCall,
                0x38 if rd == 0 && matches!(rs1, 15 | 31) => Class::Return,
                0x38 => Class::IndirectJump,
                0x39 => Class::Return,
                _ => Class::Other,
            }
        }
        _ => Class::Other,
    }
}

fn m68k(bytes: &[u8]) -> Class {
    let Some(&[a, b]) = bytes.get(..2).and_then(|b| <&[u8; 2]>::try_from(b).ok()) else {
        return Class::Unknown;
    };
    let w = u16::from_be_bytes([a, b]);
    match w {
        0x6000..=0x60ff => Class::Jump,
        0x6100..=0x61ff => Class::Call,
        0x6200..=0x6fff => Class::CondBranch,
        // DBcc; DBT never branches
        _ if w & 0xf0f8 == 0x50c8 => {
            if w >> 8 & 0xf == 0 {
                Class::Other
            } else {
                Class::CondBranch
            }
        }
        // FBcc; 0: never, 15: always
        _ if w & 0xff80 == 0xf280 => match w & 0x3f {
            0 => Class::Other,
            15 => Class::Jump,
            _ => Class::CondBranch,
        },
        0x4e74 | 0x4e75 | 0x4e77 => Class::Return,
        0x4ec0..=0x4eff => Class::IndirectJump,
        0x4e80..=0x4ebf => Class::IndirectCall,
        _ => Class::Other,
    }
}

fn sh4(w: u32) -> Class {
    match w >> 8 {
        0x89 | 0x8b | 0x8d | 0x8f => return Class::CondBranch,
        0xa0..=0xaf => return Class::Jump,
        0xb0..=0xbf => return Class::Call,
        _ => {}
    }
    match w & 0xf0ff {
        0x402b | 0x0023 => Class::IndirectJump,
        0x400b | 0x0003 => Class::IndirectCall,
        _ if w == 0x000b => Class::Return,
        _ => Class::Other,
    }
}

fn alpha(w: u32) -> Class {
    match w >> 26 {
        0x30 => Class::Jump,
        0x34 => Class::Call,
        0x31..=0x33 | 0x35..=0x3f => Class::CondBranch,
        0x1a => match w >> 14 & 3 {
            0 => Class::IndirectJump,
            1 => Class::IndirectCall,
            _ => Class::Return,
        },
        _ => Class::Other,
    }
}

fn loongarch(w: u32) -> Class {
    let (rd, rj) = (w & 31, w >> 5 & 31);
    match w >> 26 {
        0x10..=0x12 | 0x16..=0x1b => Class::CondBranch,
        0x13 if rd != 0 => Class::IndirectCall,
        0x13 if rj == 1 => Class::Return,
        0x13 => Class::IndirectJump,
        0x14 => Class::Jump,
        0x15 => Class::Call,
        // ERTN
        1 if w == 0x0648_3800 => Class::IndirectJump,
        _ => Class::Other,
    }
}

fn openrisc(w: u32) -> Class {
    match w >> 26 {
        0 => Class::Jump,
        1 => Class::Call,
        3 | 4 => Class::CondBranch,
        0x11 if w >> 11 & 31 == 9 => Class::Return,
        0x11 => Class::IndirectJump,
        0x12 => Class::IndirectCall,
        _ => Class::Other,
    }
}
