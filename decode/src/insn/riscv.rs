//! RISC-V, from the unprivileged and privileged ISA manuals' opcode maps: RV32 and RV64 with I, M, A, F, D, C, Zfa, Zcb, Zicbo*, Zacas; of V only what it is.

use super::{Effects, Kinds, Reg, new};

/// A general register; x0 is none.
fn x(n: u32) -> Option<Reg> {
    match n & 31 {
        0 => None,
        2 => Some(Reg::STACK_POINTER),
        n => Some(Reg::general(n as u8)),
    }
}

fn f(n: u32) -> Option<Reg> {
    Some(Reg::vector((n & 31) as u8))
}

pub fn effects(w: u32) -> Option<Effects> {
    let (rd, rs1, rs2) = (w >> 7, w >> 15, w >> 20);
    let f3 = w >> 12 & 7;
    let fp = Kinds::FLOAT;
    match w & 0x7f {
        0x03 => new(Kinds::LOAD).defines(x(rd)).uses(x(rs1)).done(),
        0x07 if matches!(f3, 1..=4) => new(Kinds::LOAD | fp).defines(f(rd)).uses(x(rs1)).done(),
        // How many vector registers are one depends on vtype.
        0x07 => new(Kinds::LOAD | Kinds::VECTOR).kinds_only(),
        0x0f if f3 == 2 => {
            let zero = if w >> 20 == 4 { Kinds::STORE } else { Kinds::NONE };
            new(zero).uses(x(rs1)).done()
        }
        0x0f => new(Kinds::FENCE).done(),
        0x13 | 0x1b => new(Kinds::NONE).defines(x(rd)).uses(x(rs1)).done(),
        0x17 | 0x37 | 0x6f => new(Kinds::NONE).defines(x(rd)).done(),
        0x23 => new(Kinds::STORE).uses(x(rs1)).uses(x(rs2)).done(),
        0x27 if matches!(f3, 1..=4) => new(Kinds::STORE | fp).uses(x(rs1)).uses(f(rs2)).done(),
        0x27 => new(Kinds::STORE | Kinds::VECTOR).kinds_only(),
        0x2f => {
            let of = |k| new(k | Kinds::ATOMIC).defines(x(rd)).uses(x(rs1));
            match w >> 27 {
                2 => of(Kinds::LOAD).done(),
                3 => of(Kinds::STORE).uses(x(rs2)).done(),
                // AMOCAS; the one of twice the width has pairs
                5 => of(Kinds::LOAD | Kinds::STORE).uses(x(rs2)).uses(x(rd)).done(),
                _ => of(Kinds::LOAD | Kinds::STORE).uses(x(rs2)).done(),
            }
        }
        0x33 | 0x3b => new(Kinds::NONE).defines(x(rd)).uses(x(rs1)).uses(x(rs2)).done(),
        0x43 | 0x47 | 0x4b | 0x4f => new(fp).defines(f(rd)).uses(f(rs1)).uses(f(rs2)).uses(f(w >> 27)).done(),
        0x53 => match w >> 27 {
            0..=5 => new(fp).defines(f(rd)).uses(f(rs1)).uses(f(rs2)).done(),
            8 | 11 => new(fp).defines(f(rd)).uses(f(rs1)).done(),
            20 => new(fp).defines(x(rd)).uses(f(rs1)).uses(f(rs2)).done(),
            22 => new(fp).defines(f(rd)).uses(x(rs1)).uses(x(rs2)).done(),
            24 | 28 => new(fp).defines(x(rd)).uses(f(rs1)).done(),
            // FLI: the field is a number
            30 if rs2 & 31 == 1 => new(fp).defines(f(rd)).done(),
            26 | 30 => new(fp).defines(f(rd)).uses(x(rs1)).done(),
            _ => None,
        },
        0x57 if f3 == 7 => {
            let vset = new(Kinds::VECTOR).defines(x(rd)).defines([Reg::SYSTEM]);
            match w >> 30 {
                3 => vset.done(),
                2 => vset.uses(x(rs1)).uses(x(rs2)).done(),
                _ => vset.uses(x(rs1)).done(),
            }
        }
        0x57 => new(Kinds::VECTOR).kinds_only(),
        0x63 => new(Kinds::NONE).uses(x(rs1)).uses(x(rs2)).done(),
        0x67 => new(Kinds::NONE).defines(x(rd)).uses(x(rs1)).done(),
        0x73 => system(w),
        _ => None,
    }
}

fn system(w: u32) -> Option<Effects> {
    let (rd, rs1, rs2) = (w >> 7, w >> 15, w >> 20);
    let csr = w >> 20;
    match w >> 12 & 7 {
        0 => match csr {
            0 => new(Kinds::SYSCALL).done(),
            1 => new(Kinds::TRAP).done(),
            _ if w >> 25 == 9 => new(Kinds::PRIVILEGED | Kinds::FENCE).uses(x(rs1)).uses(x(rs2)).done(),
            _ => new(Kinds::PRIVILEGED).kinds_only(),
        },
        // Hypervisor loads and stores
        4 if w >> 25 & 1 == 0 => new(Kinds::PRIVILEGED | Kinds::LOAD).defines(x(rd)).uses(x(rs1)).done(),
        4 => new(Kinds::PRIVILEGED | Kinds::STORE).uses(x(rs1)).uses(x(rs2)).done(),
        op => {
            let reg = if matches!(csr, 1..=3) { Reg::FLOAT_STATUS } else { Reg::SYSTEM };
            let privileged = if csr >> 8 & 3 != 0 { Kinds::PRIVILEGED } else { Kinds::NONE };
            let field = rs1 & 31;
            // CSRRW that wants no old value does not read, CSRRS and CSRRC of nothing do not write.
            let reads = op & 3 != 1 || rd & 31 != 0;
            let writes = op & 3 == 1 || field != 0;
            let source = if op < 4 { x(field) } else { None };
            new(privileged).defines(x(rd)).uses(source).uses(reads.then_some(reg)).defines(writes.then_some(reg)).done()
        }
    }
}

/// Half as long.
pub fn compressed(w: u32, bits: u8) -> Option<Effects> {
    let (rd, rs2) = (w >> 7 & 31, w >> 2 & 31);
    // The three-bit fields name x8 to x15.
    let (low, high) = ((w >> 2 & 7) + 8, (w >> 7 & 7) + 8);
    let sp = Some(Reg::STACK_POINTER);
    let wide = bits == 64;
    let fp = Kinds::FLOAT;
    let none = Kinds::NONE;
    match (w & 3, w >> 13 & 7) {
        // All zeros is defined to be undefined.
        (0, 0) if w == 0 => new(Kinds::TRAP).done(),
        (0, 0) => new(none).defines(x(low)).uses(sp).done(),
        (0, 1) => new(Kinds::LOAD | fp).defines(f(low)).uses(x(high)).done(),
        (0, 3) if !wide => new(Kinds::LOAD | fp).defines(f(low)).uses(x(high)).done(),
        (0, 2 | 3) => new(Kinds::LOAD).defines(x(low)).uses(x(high)).done(),
        (0, 4) if w >> 11 & 3 == 0 => new(Kinds::LOAD).defines(x(low)).uses(x(high)).done(),
        (0, 4) => new(Kinds::STORE).uses(x(low)).uses(x(high)).done(),
        (0, 5) => new(Kinds::STORE | fp).uses(f(low)).uses(x(high)).done(),
        (0, 7) if !wide => new(Kinds::STORE | fp).uses(f(low)).uses(x(high)).done(),
        (0, _) => new(Kinds::STORE).uses(x(low)).uses(x(high)).done(),
        (1, 0) => new(none).updates(x(rd)).done(),
        (1, 1) if wide => new(none).updates(x(rd)).done(),
        (1, 1) => new(none).defines(x(1)).done(),
        (1, 2) => new(none).defines(x(rd)).done(),
        (1, 3) if rd == 2 => new(none).updates(sp).done(),
        (1, 3) => new(none).defines(x(rd)).done(),
        (1, 4) => match w >> 10 & 3 {
            // Zcb: one operand
            3 if w >> 12 & 1 == 1 && w >> 5 & 3 == 3 => new(none).updates(x(high)).done(),
            3 => new(none).updates(x(high)).uses(x(low)).done(),
            _ => new(none).updates(x(high)).done(),
        },
        (1, 5) => new(none).done(),
        (1, _) => new(none).uses(x(high)).done(),
        (2, 0) => new(none).updates(x(rd)).done(),
        (2, 1) => new(Kinds::LOAD | fp).defines(f(rd)).uses(sp).done(),
        (2, 3) if !wide => new(Kinds::LOAD | fp).defines(f(rd)).uses(sp).done(),
        (2, 2 | 3) => new(Kinds::LOAD).defines(x(rd)).uses(sp).done(),
        (2, 4) => match (w >> 12 & 1, rd, rs2) {
            (0, _, 0) => new(none).uses(x(rd)).done(),
            (0, ..) => new(none).defines(x(rd)).uses(x(rs2)).done(),
            (_, 0, 0) => new(Kinds::TRAP).done(),
            (_, _, 0) => new(none).defines(x(1)).uses(x(rd)).done(),
            _ => new(none).updates(x(rd)).uses(x(rs2)).done(),
        },
        (2, 5) => new(Kinds::STORE | fp).uses(f(rs2)).uses(sp).done(),
        (2, 7) if !wide => new(Kinds::STORE | fp).uses(f(rs2)).uses(sp).done(),
        (2, _) => new(Kinds::STORE).uses(x(rs2)).uses(sp).done(),
        _ => None,
    }
}
