//! MIPS32 and MIPS64 up to the fifth release, from the architecture's opcode maps; of MSA the loads and stores. Encodings that the sixth release gave
//! another meaning are read the old way.

use super::{Effects, Kinds, Reader, Reg, new};

/// A general register; $0 is none.
fn r(n: u32) -> Option<Reg> {
    match n & 31 {
        0 => None,
        29 => Some(Reg::STACK_POINTER),
        n => Some(Reg::general(n as u8)),
    }
}

fn f(n: u32) -> Option<Reg> {
    Some(Reg::vector((n & 31) as u8))
}

pub fn effects(w: u32) -> Option<Effects> {
    let (rs, rt, rd) = (w >> 21, w >> 16, w >> 11);
    let load = |k: Kinds| new(Kinds::LOAD | k).uses(r(rs));
    let store = |k: Kinds| new(Kinds::STORE | k).uses(r(rs));
    let none = || new(Kinds::NONE);
    match w >> 26 {
        0 => special(w),
        1 => match rt & 31 {
            0..=3 => none().uses(r(rs)).done(),
            16..=19 => none().uses(r(rs)).defines(r(31)).done(),
            8..=14 => new(Kinds::TRAP).uses(r(rs)).done(),
            31 => new(Kinds::FENCE).uses(r(rs)).done(),
            _ => None,
        },
        2 => none().done(),
        3 => none().defines(r(31)).done(),
        4 | 5 | 20 | 21 => none().uses(r(rs)).uses(r(rt)).done(),
        6 | 7 | 22 | 23 => none().uses(r(rs)).done(),
        8..=15 | 24 | 25 => none().defines(r(rt)).uses(r(rs)).done(),
        0x10 => match rs & 31 {
            0 | 1 => new(Kinds::PRIVILEGED).defines(r(rt)).uses([Reg::SYSTEM]).done(),
            4 | 5 => new(Kinds::PRIVILEGED).uses(r(rt)).defines([Reg::SYSTEM]).done(),
            _ => new(Kinds::PRIVILEGED).kinds_only(),
        },
        0x11 => float(w),
        0x13 => {
            let fd = w >> 6;
            match w & 0x3f {
                0 | 1 | 5 => load(Kinds::FLOAT).uses(r(rt)).defines(f(fd)).done(),
                8 | 9 | 13 => store(Kinds::FLOAT).uses(r(rt)).uses(f(rd)).done(),
                15 => none().uses(r(rs)).uses(r(rt)).done(),
                0x20..=0x3f => new(Kinds::FLOAT).defines(f(fd)).uses(f(rs)).uses(f(rt)).uses(f(rd)).done(),
                _ => None,
            }
        }
        0x1a | 0x1b | 0x22 | 0x26 => load(Kinds::NONE).updates(r(rt)).done(),
        0x1c => match w & 0x3f {
            0 | 1 | 4 | 5 => none().updates([Reg::HI, Reg::LO]).uses(r(rs)).uses(r(rt)).done(),
            2 => none().defines(r(rd)).uses(r(rs)).uses(r(rt)).done(),
            0x20 | 0x21 | 0x24 | 0x25 => none().defines(r(rd)).uses(r(rs)).done(),
            0x3f => new(Kinds::TRAP).done(),
            _ => None,
        },
        0x1e => {
            let (ws, wd) = (rd, w >> 6);
            match w & 0x3f {
                0x20..=0x23 => new(Kinds::LOAD | Kinds::VECTOR).uses(r(ws)).defines(f(wd)).done(),
                0x24..=0x27 => new(Kinds::STORE | Kinds::VECTOR).uses(r(ws)).uses(f(wd)).done(),
                _ => new(Kinds::VECTOR).kinds_only(),
            }
        }
        0x1f => match w & 0x3f {
            0..=3 => none().defines(r(rt)).uses(r(rs)).done(),
            4..=7 => none().updates(r(rt)).uses(r(rs)).done(),
            0x20 | 0x24 => none().defines(r(rd)).uses(r(rt)).done(),
            0x3b => none().defines(r(rt)).uses([Reg::SYSTEM]).done(),
            _ => None,
        },
        0x20 | 0x21 | 0x23..=0x25 | 0x27 | 0x37 => load(Kinds::NONE).defines(r(rt)).done(),
        0x28..=0x2e | 0x3f => store(Kinds::NONE).uses(r(rt)).done(),
        0x2f => new(Kinds::PRIVILEGED).uses(r(rs)).done(),
        0x30 | 0x34 => load(Kinds::ATOMIC).defines(r(rt)).done(),
        0x38 | 0x3c => store(Kinds::ATOMIC).updates(r(rt)).done(),
        0x31 | 0x35 => load(Kinds::FLOAT).defines(f(rt)).done(),
        0x39 | 0x3d => store(Kinds::FLOAT).uses(f(rt)).done(),
        0x33 => none().uses(r(rs)).done(),
        _ => None,
    }
}

fn special(w: u32) -> Option<Effects> {
    let (rs, rt, rd) = (w >> 21, w >> 16, w >> 11);
    let none = || new(Kinds::NONE);
    let three = || none().defines(r(rd)).uses(r(rs)).uses(r(rt));
    match w & 0x3f {
        0 | 2 | 3 | 0x38 | 0x3a | 0x3b | 0x3c | 0x3e | 0x3f => none().defines(r(rd)).uses(r(rt)).done(),
        1 => three_but(none().defines(r(rd)).uses(r(rs)).uses([Reg::FLAGS]), rd),
        4..=7 | 0x14..=0x17 | 0x20..=0x27 | 0x2a..=0x2f => three().done(),
        8 => none().uses(r(rs)).done(),
        9 => none().defines(r(rd)).uses(r(rs)).done(),
        // MOVZ, MOVN: the old value may stay
        10 | 11 => three_but(three(), rd),
        12 => new(Kinds::SYSCALL).done(),
        13 => new(Kinds::TRAP).done(),
        15 => new(Kinds::FENCE).done(),
        0x10 => none().defines(r(rd)).uses([Reg::HI]).done(),
        0x11 => none().uses(r(rs)).defines([Reg::HI]).done(),
        0x12 => none().defines(r(rd)).uses([Reg::LO]).done(),
        0x13 => none().uses(r(rs)).defines([Reg::LO]).done(),
        // With a shift amount they are the sixth release's, which has no HI and LO.
        0x18..=0x1f if w >> 6 & 31 != 0 => three().done(),
        0x18..=0x1f => none().uses(r(rs)).uses(r(rt)).defines([Reg::HI, Reg::LO]).done(),
        0x30..=0x34 | 0x36 => new(Kinds::TRAP).uses(r(rs)).uses(r(rt)).done(),
        _ => None,
    }
}

fn three_but(reader: Reader, kept: u32) -> Option<Effects> {
    reader.uses(r(kept)).done()
}

fn float(w: u32) -> Option<Effects> {
    let (rt, fs, fd) = (w >> 16, w >> 11, w >> 6);
    let fp = || new(Kinds::FLOAT);
    match w >> 21 & 31 {
        0 | 1 | 3 => fp().defines(r(rt)).uses(f(fs)).done(),
        2 => fp().defines(r(rt)).uses([Reg::FLOAT_STATUS]).done(),
        // MTHC1 keeps the lower half.
        4 | 5 | 7 => fp().uses(r(rt)).defines(f(fs)).done(),
        6 => fp().uses(r(rt)).defines([Reg::FLOAT_STATUS]).done(),
        8 => fp().uses([Reg::FLAGS]).done(),
        16 | 17 | 20..=22 => match w & 0x3f {
            0..=3 | 0x26 => fp().defines(f(fd)).uses(f(fs)).uses(f(rt)).done(),
            4..=15 | 0x15 | 0x16 | 0x20..=0x25 | 0x28 => fp().defines(f(fd)).uses(f(fs)).done(),
            0x11 => fp().updates(f(fd)).uses(f(fs)).uses([Reg::FLAGS]).done(),
            0x12 | 0x13 => fp().updates(f(fd)).uses(f(fs)).uses(r(rt)).done(),
            0x30..=0x3f => fp().defines([Reg::FLAGS]).uses(f(fs)).uses(f(rt)).done(),
            _ => None,
        },
        _ => None,
    }
}
