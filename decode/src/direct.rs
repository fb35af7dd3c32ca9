//! Where a branch goes that says so itself.

use crate::{ALT_MODE, Class, Isa, Target, classify};
use iced_x86::{Decoder, DecoderOptions};

/// Where the branch or call `bytes` at `pc` goes if it is taken, in a block with these `BLOCK_*` flags. `None` if it is none, if the place is computed, or if nobody
/// here knows.
pub fn branch_target(target: Target, flags: u32, pc: u64, bytes: &[u8]) -> Option<u64> {
    if !matches!(classify(target, flags, bytes), Class::CondBranch | Class::Jump | Class::Call) {
        return None;
    }
    let alt = flags & ALT_MODE != 0;
    let to = match target.isa {
        Isa::X86 => {
            let insn = Decoder::with_ip(target.x86_bits(flags), bytes, pc, DecoderOptions::NONE).decode();
            return (insn.near_branch_target() != 0 || insn.is_jcc_short_or_near() || insn.is_jmp_short_or_near())
                .then(|| insn.near_branch_target());
        }
        Isa::S390x => s390x(pc, bytes)?,
        Isa::Arm if alt => thumb(target, pc, bytes)?,
        Isa::Riscv if bytes.len() == 2 => riscv_compressed(pc, target.word(bytes)?),
        _ if bytes.len() != 4 => return None,
        Isa::Aarch64 => aarch64(pc, target.word(bytes)?)?,
        Isa::Arm => arm(pc, target.word(bytes)?)?,
        Isa::Mips => mips(pc, target.word(bytes)?)?,
        Isa::Ppc => ppc(pc, target.word(bytes)?)?,
        Isa::Riscv => riscv(pc, target.word(bytes)?)?,
        Isa::Sparc => sparc(pc, target.word(bytes)?)?,
        Isa::Alpha => pc.wrapping_add(4).wrapping_add(signed(target.word(bytes)?, 0, 21) << 2),
        Isa::LoongArch => loongarch(pc, target.word(bytes)?),
        Isa::M68k | Isa::Sh4 | Isa::OpenRisc => return None,
    };
    Some(if target.bits == 32 { to & 0xffff_ffff } else { to })
}

/// The `bits` bits of `w` from bit `low` on, as a signed number.
fn signed(w: u32, low: u32, bits: u32) -> u64 {
    i64::from((w >> low << (32 - bits)) as i32 >> (32 - bits)) as u64
}

fn aarch64(pc: u64, w: u32) -> Option<u64> {
    let by = match w >> 24 {
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => signed(w, 5, 19),
        0x36 | 0x37 | 0xb6 | 0xb7 => signed(w, 5, 14),
        0x14..=0x17 | 0x94..=0x97 => signed(w, 0, 26),
        _ => return None,
    };
    Some(pc.wrapping_add(by << 2))
}

fn arm(pc: u64, w: u32) -> Option<u64> {
    if w >> 25 & 7 != 5 {
        return None;
    }
    // BLX: to Thumb, with one bit more
    let half = if w >> 28 == 15 { u64::from(w >> 24 & 1) << 1 } else { 0 };
    Some(pc.wrapping_add(8).wrapping_add(signed(w, 0, 24) << 2).wrapping_add(half))
}

fn thumb(target: Target, pc: u64, bytes: &[u8]) -> Option<u64> {
    let half = |i: usize| bytes.get(i..i + 2).and_then(|b| target.word(b));
    let a = half(0)?;
    let base = pc.wrapping_add(4);
    let Some(b) = half(2) else {
        return match a {
            0xd000..=0xddff => Some(base.wrapping_add(signed(a, 0, 8) << 1)),
            0xe000..=0xe7ff => Some(base.wrapping_add(signed(a, 0, 11) << 1)),
            _ if a & 0xf500 == 0xb100 => Some(base.wrapping_add(u64::from((a >> 9 & 1) << 6 | (a >> 3 & 31) << 1))),
            _ => None,
        };
    };
    if !(0xf000..=0xf7ff).contains(&a) || b & 0x8000 == 0 {
        return None;
    }
    let s = a >> 10 & 1;
    let (j1, j2) = (b >> 13 & 1, b >> 11 & 1);
    if b & 0x5000 == 0 {
        let w = s << 19 | j2 << 18 | j1 << 17 | (a & 0x3f) << 11 | b & 0x7ff;
        return Some(base.wrapping_add(signed(w, 0, 20) << 1));
    }
    let w = s << 23 | (1 ^ j1 ^ s) << 22 | (1 ^ j2 ^ s) << 21 | (a & 0x3ff) << 11 | b & 0x7ff;
    let by = signed(w, 0, 24) << 1;
    // BLX goes to a word of 32-bit code.
    let to_arm = b & 0x5000 == 0x4000;
    Some(if to_arm { (base & !3).wrapping_add(by & !3) } else { base.wrapping_add(by) })
}

fn mips(pc: u64, w: u32) -> Option<u64> {
    let slot = pc.wrapping_add(4);
    match w >> 26 {
        2 | 3 => Some(slot & !0x0fff_ffff | u64::from(w & 0x03ff_ffff) << 2),
        1 | 4..=7 | 17 | 18 | 20..=23 => Some(slot.wrapping_add(signed(w, 0, 16) << 2)),
        _ => None,
    }
}

fn ppc(pc: u64, w: u32) -> Option<u64> {
    let by = match w >> 26 {
        18 => signed(w, 2, 24) << 2,
        16 => signed(w, 2, 14) << 2,
        _ => return None,
    };
    Some(if w & 2 != 0 { by } else { pc.wrapping_add(by) })
}

fn riscv(pc: u64, w: u32) -> Option<u64> {
    let sign = signed(w, 31, 1);
    let by = match w & 0x7f {
        0x63 => sign << 12 | u64::from((w >> 7 & 1) << 11 | (w >> 25 & 0x3f) << 5 | (w >> 8 & 15) << 1),
        0x6f => sign << 20 | u64::from(w & 0xf_f000 | (w >> 20 & 1) << 11 | (w >> 21 & 0x3ff) << 1),
        _ => return None,
    };
    Some(pc.wrapping_add(by))
}

fn riscv_compressed(pc: u64, w: u32) -> u64 {
    let sign = signed(w, 12, 1);
    let by = if w >> 14 & 3 == 3 {
        // C.BEQZ, C.BNEZ: 8|4:3 and 7:6|2:1|5
        sign << 8 | u64::from((w >> 5 & 3) << 6 | (w >> 2 & 1) << 5 | (w >> 10 & 3) << 3 | (w >> 3 & 3) << 1)
    } else {
        // C.J, C.JAL: 11|4|9:8|10|6|7|3:1|5
        sign << 11
            | u64::from(
                (w >> 8 & 1) << 10
                    | (w >> 9 & 3) << 8
                    | (w >> 6 & 1) << 7
                    | (w >> 7 & 1) << 6
                    | (w >> 2 & 1) << 5
                    | (w >> 11 & 1) << 4
                    | (w >> 3 & 7) << 1,
            )
    };
    pc.wrapping_add(by)
}

fn s390x(pc: u64, bytes: &[u8]) -> Option<u64> {
    let half = |i: usize| Some(i64::from(i16::from_be_bytes([*bytes.get(i)?, *bytes.get(i + 1)?])));
    let by = match bytes.first()? {
        0xa7 | 0x84 | 0x85 | 0xec => half(2)?,
        0xc0 | 0xcc => i64::from(i32::from_be_bytes(bytes.get(2..6)?.try_into().ok()?)),
        _ => return None,
    };
    Some(pc.wrapping_add((by * 2) as u64))
}

fn sparc(pc: u64, w: u32) -> Option<u64> {
    let by = match (w >> 30, w >> 22 & 7) {
        (1, _) => signed(w, 0, 30),
        (0, 2 | 6) => signed(w, 0, 22),
        (0, 1 | 5) => signed(w, 0, 19),
        (0, 3) => signed((w >> 20 & 3) << 14 | w & 0x3fff, 0, 16),
        _ => return None,
    };
    Some(pc.wrapping_add(by << 2))
}

fn loongarch(pc: u64, w: u32) -> u64 {
    let low = w >> 10 & 0xffff;
    let by = match w >> 26 {
        0x10..=0x12 => signed((w & 31) << 16 | low, 0, 21),
        0x14 | 0x15 => signed((w & 0x3ff) << 16 | low, 0, 26),
        _ => signed(low, 0, 16),
    };
    pc.wrapping_add(by << 2)
}
