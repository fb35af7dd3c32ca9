//! AArch64, from the Arm architecture's encoding index: the base with pointer authentication, LSE, flags and tags, scalar floating point and
//! Advanced SIMD with cryptography. Nothing of SVE and SME, where sizes and accesses depend on more than the encoding.

use super::{Effects, Kinds, Reader, Reg, new};

/// A general register where 31 is the zero register, which is none.
fn x(n: u32) -> Option<Reg> {
    match n & 31 {
        31 => None,
        n => Some(Reg::general(n as u8)),
    }
}

/// A general register where 31 is the stack pointer.
fn sp(n: u32) -> Option<Reg> {
    match n & 31 {
        31 => Some(Reg::STACK_POINTER),
        n => Some(Reg::general(n as u8)),
    }
}

fn v(n: u32) -> Option<Reg> {
    Some(Reg::vector((n & 31) as u8))
}

/// `n` vector registers from `first`, around.
fn vs(first: u32, n: u32) -> impl Iterator<Item = Reg> + Clone {
    (0..n).filter_map(move |k| v(first + k))
}

const FLAGS: [Reg; 1] = [Reg::FLAGS];

struct Fields {
    w: u32,
    d: u32,
    n: u32,
    m: u32,
    a: u32,
}

pub fn effects(w: u32) -> Option<Effects> {
    let i = Fields { w, d: w & 31, n: w >> 5 & 31, m: w >> 16 & 31, a: w >> 10 & 31 };
    match w >> 25 & 15 {
        0 if w >> 16 == 0 => new(Kinds::TRAP).done(),
        8 | 9 => immediate(&i),
        10 | 11 => branch_or_system(&i),
        4 | 6 | 12 | 14 => memory(&i),
        5 | 13 => register(&i),
        7 | 15 => simd(&i),
        2 => sve(&i),
        _ => None,
    }
}

/// Sets flags under bit 29, and then writes no stack pointer.
fn arithmetic(w: u32, d: u32, reader: Reader) -> Reader {
    if w >> 29 & 1 != 0 { reader.defines(x(d)).defines(FLAGS) } else { reader.defines(sp(d)) }
}

fn immediate(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, m, .. } = i;
    let none = || new(Kinds::NONE);
    match w >> 23 & 7 {
        0 | 1 => none().defines(x(d)).done(),
        2 => arithmetic(w, d, none().uses(sp(n))).done(),
        3 => none().defines(sp(d)).uses(sp(n)).done(),
        4 if w >> 29 & 3 == 3 => none().defines(x(d)).defines(FLAGS).uses(x(n)).done(),
        4 => none().defines(sp(d)).uses(x(n)).done(),
        5 if w >> 29 & 3 == 3 => none().updates(x(d)).done(),
        5 => none().defines(x(d)).done(),
        6 if w >> 29 & 3 == 1 => none().updates(x(d)).uses(x(n)).done(),
        6 => none().defines(x(d)).uses(x(n)).done(),
        _ => none().defines(x(d)).uses(x(n)).uses(x(m)).done(),
    }
}

fn branch_or_system(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, .. } = i;
    let none = || new(Kinds::NONE);
    let link = x(30);
    if w >> 26 & 31 == 5 {
        return none().defines(if w >> 31 != 0 { link } else { None }).done();
    }
    if matches!(w >> 25 & 0x3f, 0x1a | 0x1b) {
        return none().uses(x(d)).done();
    }
    match w >> 24 {
        0x54 if w & 15 >= 14 => none().done(),
        0x54 => none().uses(FLAGS).done(),
        0xd4 => match (w >> 21 & 7, w & 3) {
            (0, 1) => new(Kinds::SYSCALL).done(),
            (0 | 5, _) => new(Kinds::PRIVILEGED).kinds_only(),
            (1 | 2, 0) => new(Kinds::TRAP).done(),
            _ => None,
        },
        0xd5 => system(i),
        0xd6 | 0xd7 => {
            // Authenticated ones: the modifier is the stack pointer or a register.
            let auth = w & 0x800 != 0;
            let modifier = if w >> 24 & 1 != 0 { sp(d) } else { None };
            match w >> 21 & 7 {
                0 => none().uses(x(n)).uses(modifier).done(),
                1 => none().uses(x(n)).uses(modifier).defines(link).done(),
                2 if auth => none().uses(link).uses([Reg::STACK_POINTER]).done(),
                2 => none().uses(x(n)).done(),
                4 | 5 => new(Kinds::PRIVILEGED).kinds_only(),
                _ => None,
            }
        }
        _ => None,
    }
}

fn system(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, .. } = i;
    let none = || new(Kinds::NONE);
    let (op0, op1, crn, crm, op2) = (w >> 19 & 3, w >> 16 & 7, w >> 12 & 15, w >> 8 & 15, w >> 5 & 7);
    let read = w >> 21 & 1 != 0;
    if w >> 22 != 0x354 {
        return None;
    }
    match (op0, crn) {
        (0, 2) if op1 == 3 => match (crm, op2) {
            // The modifiers and addresses of the pointer authentication hints
            (0, 7) => none().updates(x(30)).done(),
            (1, 0 | 2 | 4 | 6) => none().updates(x(17)).uses(x(16)).done(),
            (3, 0 | 2 | 4 | 6) => none().updates(x(30)).done(),
            (3, _) => none().updates(x(30)).uses([Reg::STACK_POINTER]).done(),
            _ => none().done(),
        },
        (0, 3) if op2 == 2 => none().done(),
        (0, 3) => new(Kinds::FENCE).done(),
        (0, 4) if op1 == 0 && op2 < 3 => none().updates(FLAGS).done(),
        (0, 4) => {
            let user = op1 == 3;
            new(if user { Kinds::NONE } else { Kinds::PRIVILEGED }).defines([Reg::SYSTEM]).done()
        }
        (1, _) => {
            let kinds = match (op1, crn, crm, op2) {
                (3, 7, 4, 1 | 4) => Kinds::STORE,
                (3, 7, ..) => Kinds::NONE,
                _ => Kinds::PRIVILEGED,
            };
            if read { new(kinds).defines(x(d)).done() } else { new(kinds).uses(x(d)).done() }
        }
        (2 | 3, _) => {
            let reg = match (op0, op1, crn, crm, op2) {
                (3, 3, 4, 2, 0) => Reg::FLAGS,
                (3, 3, 4, 4, 0 | 1) => Reg::FLOAT_STATUS,
                _ => Reg::SYSTEM,
            };
            let kinds = if op1 == 3 { Kinds::NONE } else { Kinds::PRIVILEGED };
            let r = new(kinds);
            if read { r.defines(x(d)).uses([reg]).done() } else { r.uses(x(d)).defines([reg]).done() }
        }
        _ => None,
    }
}

fn memory(i: &Fields) -> Option<Effects> {
    let &Fields { w, d: t, n, m, a: t2 } = i;
    let size = w >> 30;
    let bit = |b: u32| w >> b & 1 != 0;
    let load = |k| new(Kinds::LOAD | k).uses(sp(n));
    let store = |k| new(Kinds::STORE | k).uses(sp(n));
    let both = || new(Kinds::LOAD | Kinds::STORE | Kinds::ATOMIC).uses(sp(n));
    let (plain, atomic) = (Kinds::NONE, Kinds::ATOMIC);
    if w & 0x3f00_0000 == 0x0800_0000 {
        return match (bit(23), bit(21), bit(22)) {
            (false, false, false) => store(atomic).defines(x(m)).uses(x(t)).done(),
            (false, false, true) => load(atomic).defines(x(t)).done(),
            (false, true, false) if size >= 2 => store(atomic).defines(x(m)).uses(x(t)).uses(x(t2)).done(),
            (false, true, true) if size >= 2 => load(atomic).defines(x(t)).defines(x(t2)).done(),
            // CASP
            (false, true, _) => both().updates(x(m)).updates(x(m | 1)).uses(x(t)).uses(x(t | 1)).done(),
            (true, false, false) => store(plain).uses(x(t)).done(),
            (true, false, true) => load(plain).defines(x(t)).done(),
            (true, true, _) => both().updates(x(m)).uses(x(t)).done(),
        };
    }
    // LDAPUR, STLUR
    if w & 0x3f20_0c00 == 0x1900_0000 {
        return if w >> 22 & 3 == 0 { store(plain).uses(x(t)).done() } else { load(plain).defines(x(t)).done() };
    }
    // Tags
    if w & 0xff20_0000 == 0xd920_0000 {
        let zeroes = bit(22) && w >> 10 & 3 != 0;
        let kinds = if zeroes { Kinds::STORE } else { Kinds::NONE };
        return match (w >> 22 & 3, w >> 10 & 3) {
            (1, 0) => new(Kinds::NONE).updates(x(t)).uses(sp(n)).done(),
            (_, 0) => new(Kinds::PRIVILEGED).kinds_only(),
            (_, 2) => new(kinds).uses(sp(n)).uses(sp(t)).done(),
            _ => new(kinds).updates(sp(n)).uses(sp(t)).done(),
        };
    }
    let vector = bit(26);
    let kinds = if vector { Kinds::FLOAT } else { plain };
    let reg = |r: u32| if vector { v(r) } else { x(r) };
    if w & 0x3b00_0000 == 0x1800_0000 {
        return match (vector, size) {
            (false, 3) => new(plain).done(),
            _ => new(Kinds::LOAD | kinds).defines(reg(t)).done(),
        };
    }
    if w & 0x3a00_0000 == 0x2800_0000 {
        let r = if bit(22) {
            load(kinds).defines(reg(t)).defines(reg(t2))
        } else {
            store(kinds).uses(reg(t)).uses(reg(t2))
        };
        return r.defines(if bit(23) { sp(n) } else { None }).done();
    }
    if w & 0x3a00_0000 == 0x3800_0000 {
        let (mut index, mut back) = (None, None);
        if !bit(24) {
            match (bit(21), w >> 10 & 3) {
                (false, 1 | 3) => back = sp(n),
                (true, 2) => index = x(m),
                (true, 0) if !vector => {
                    let discards = t == 31;
                    return match (bit(15), w >> 12 & 7) {
                        (false, _) if discards => both().uses(x(m)).done(),
                        (false, _) | (true, 0) => both().uses(x(m)).defines(x(t)).done(),
                        (true, 4) => load(plain).defines(x(t)).done(),
                        _ => None,
                    };
                }
                (true, 1 | 3) if !vector && size == 3 => {
                    let back = if bit(11) { sp(n) } else { None };
                    return load(plain).defines(x(t)).defines(back).done();
                }
                (true, _) => return None,
                _ => {}
            }
        }
        let opc = w >> 22 & 3;
        let r = match (vector, opc) {
            (false, 2) if size == 3 => new(plain).uses(sp(n)),
            (false, 0) | (true, 0 | 2) => store(kinds).uses(reg(t)),
            _ => load(kinds).defines(reg(t)),
        };
        return r.uses(index).defines(back).done();
    }
    if w & 0xbe00_0000 == 0x0c00_0000 {
        let single = bit(24);
        let op = w >> 13 & 7;
        let registers = match (single, w >> 12 & 15) {
            (true, _) => ((op & 1) << 1 | (w >> 21 & 1)) + 1,
            (false, 0 | 2) => 4,
            (false, 4 | 6) => 3,
            (false, 8 | 10) => 2,
            (false, 7) => 1,
            _ => return None,
        };
        let regs = vs(t, registers);
        let post = bit(23);
        let r = match (bit(22), single && op >> 1 != 3) {
            (false, _) => store(Kinds::VECTOR).uses(regs),
            // A lane; the others stay
            (true, true) => load(Kinds::VECTOR).updates(regs),
            (true, false) => load(Kinds::VECTOR).defines(regs),
        };
        let r = if post { r.defines(sp(n)).uses(x(m)) } else { r };
        return r.done();
    }
    None
}

fn register(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, m, a } = i;
    let none = || new(Kinds::NONE);
    let sets = if w >> 29 & 1 != 0 { Some(Reg::FLAGS) } else { None };
    match w >> 24 & 31 {
        0x0a => {
            let sets = if w >> 29 & 3 == 3 { Some(Reg::FLAGS) } else { None };
            none().defines(x(d)).uses(x(n)).uses(x(m)).defines(sets).done()
        }
        // Extended registers: the stack pointer may be the first.
        0x0b if w >> 21 & 1 != 0 => arithmetic(w, d, none().uses(sp(n)).uses(x(m))).done(),
        0x0b => none().defines(x(d)).uses(x(n)).uses(x(m)).defines(sets).done(),
        0x1a => match w >> 21 & 7 {
            0 => match w >> 10 & 0x3f {
                0 => none().defines(x(d)).uses(x(n)).uses(x(m)).uses(FLAGS).defines(sets).done(),
                // RMIF, SETF
                op if op & 0x1f == 1 || op & 0xf == 2 => none().uses(x(n)).updates(FLAGS).done(),
                _ => None,
            },
            2 => {
                let second = if w >> 11 & 1 != 0 { None } else { x(m) };
                none().uses(x(n)).uses(second).updates(FLAGS).done()
            }
            4 => none().defines(x(d)).uses(x(n)).uses(x(m)).uses(FLAGS).done(),
            6 if w >> 30 & 1 != 0 => match (m, w >> 10 & 0x3f) {
                (1, 0..=7) => none().updates(x(d)).uses(sp(n)).done(),
                (1, _) => none().updates(x(d)).done(),
                _ => none().defines(x(d)).uses(x(n)).done(),
            },
            6 => match w >> 10 & 0x3f {
                // SUBP, IRG, PACGA: one of the operands may be the stack pointer.
                0 => none().defines(x(d)).uses(sp(n)).uses(sp(m)).defines(sets).done(),
                4 => none().defines(sp(d)).uses(sp(n)).uses(x(m)).done(),
                12 => none().defines(x(d)).uses(x(n)).uses(sp(m)).done(),
                _ => none().defines(x(d)).uses(x(n)).uses(x(m)).done(),
            },
            _ => None,
        },
        0x1b => {
            // SMULH and UMULH have no addend.
            let addend = if matches!(w >> 21 & 7, 2 | 6) { None } else { x(a) };
            none().defines(x(d)).uses(x(n)).uses(x(m)).uses(addend).done()
        }
        _ => None,
    }
}

/// A predicate register.
fn p(n: u32) -> Option<Reg> {
    Some(Reg::second((n & 15) as u8))
}

/// Of SVE what the C library's string functions are made of: contiguous accesses, loop predicates, counts of elements.
fn sve(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, m, .. } = i;
    let vec = |k: Kinds| new(Kinds::VECTOR | k);
    let (load, store, none) = (Kinds::LOAD, Kinds::STORE, Kinds::NONE);
    let pg = w >> 10 & 7;
    match w {
        // LD1, ST1: base and index, base and number
        _ if w & 0xfe00_e000 == 0xa400_4000 => vec(load).defines(v(d)).uses(p(pg)).uses(sp(n)).uses(x(m)).done(),
        _ if w & 0xfe10_e000 == 0xa400_a000 => vec(load).defines(v(d)).uses(p(pg)).uses(sp(n)).done(),
        _ if w & 0xfe00_e000 == 0xe400_4000 => vec(store).uses(v(d)).uses(p(pg)).uses(sp(n)).uses(x(m)).done(),
        _ if w & 0xfe10_e000 == 0xe400_e000 => vec(store).uses(v(d)).uses(p(pg)).uses(sp(n)).done(),
        // LDR, STR of whole registers
        _ if w & 0xffc0_e000 == 0x8580_4000 => vec(load).defines(v(d)).uses(sp(n)).done(),
        _ if w & 0xffc0_e010 == 0x8580_0000 => vec(load).defines(p(d)).uses(sp(n)).done(),
        _ if w & 0xffc0_e000 == 0xe580_4000 => vec(store).uses(v(d)).uses(sp(n)).done(),
        _ if w & 0xffc0_e010 == 0xe580_0000 => vec(store).uses(p(d)).uses(sp(n)).done(),
        // WHILE of numbers, PTRUE
        _ if w & 0xff20_e000 == 0x2520_0000 => vec(none).defines(p(d)).defines(FLAGS).uses(x(n)).uses(x(m)).done(),
        _ if w & 0xff3f_fc10 == 0x2518_e000 => vec(none).defines(p(d)).done(),
        _ if w & 0xff3f_fc10 == 0x2519_e000 => vec(none).defines(p(d)).defines(FLAGS).done(),
        // CNTB and its like, INCB and its like; ADDVL, ADDPL, RDVL
        _ if w & 0xff30_fc00 == 0x0420_e000 => vec(none).defines(x(d)).done(),
        _ if w & 0xff30_f800 == 0x0430_e000 => vec(none).updates(x(d)).done(),
        _ if w & 0xffa0_f800 == 0x0420_5000 => vec(none).defines(sp(d)).uses(sp(m)).done(),
        _ if w & 0xffff_f800 == 0x04bf_5000 => vec(none).defines(x(d)).done(),
        _ if w >> 31 == 0 => vec(none).kinds_only(),
        // What is left accesses memory, one way or the other.
        _ => None,
    }
}

fn simd(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, m, a } = i;
    let fp = || new(Kinds::FLOAT);
    if w & 0x5f00_0000 == 0x1f00_0000 {
        return fp().defines(v(d)).uses(v(n)).uses(v(m)).uses(v(a)).done();
    }
    if w & 0x5f00_0000 == 0x1e00_0000 {
        let (to_general, op) = (w >> 16 & 7, w >> 10 & 0x3f);
        if w >> 21 & 1 == 0 || op == 0 {
            return match to_general {
                2 | 3 => fp().defines(v(d)).uses(x(n)).done(),
                7 if w >> 21 & 1 != 0 => fp().defines(v(d)).uses(x(n)).done(),
                // FJCVTZS
                6 if w >> 19 & 3 == 3 => fp().defines(x(d)).defines(FLAGS).uses(v(n)).done(),
                _ => fp().defines(x(d)).uses(v(n)).done(),
            };
        }
        return match op & 3 {
            1 => fp().uses(v(n)).uses(v(m)).updates(FLAGS).done(),
            2 => fp().defines(v(d)).uses(v(n)).uses(v(m)).done(),
            3 => fp().defines(v(d)).uses(v(n)).uses(v(m)).uses(FLAGS).done(),
            _ if op & 0x1f == 0x10 => fp().defines(v(d)).uses(v(n)).done(),
            _ if op & 0xf == 8 => {
                let second = if w & 8 != 0 { None } else { v(m) };
                fp().uses(v(n)).uses(second).defines(FLAGS).done()
            }
            _ if op & 7 == 4 => fp().defines(v(d)).done(),
            _ => None,
        };
    }
    if w >> 24 == 0xce {
        return new(Kinds::VECTOR).kinds_only();
    }
    advanced(i)
}

/// Advanced SIMD. Scalar forms are the vector ones with two more bits.
fn advanced(i: &Fields) -> Option<Effects> {
    let &Fields { w, d, n, m, .. } = i;
    let vec = || new(Kinds::VECTOR);
    let one = || vec().defines(v(d)).uses(v(n)).done();
    let two = || vec().defines(v(d)).uses(v(n)).uses(v(m)).done();
    // The destination is an operand too.
    let onto_one = || vec().updates(v(d)).uses(v(n)).done();
    let onto_two = || vec().updates(v(d)).uses(v(n)).uses(v(m)).done();
    let if_upper = |upper: bool| if upper { onto_one() } else { one() };
    let scalar = w >> 28 & 1 != 0;
    let upper = !scalar && w >> 30 & 1 != 0;
    let u = w >> 29 & 1 != 0;
    let size = w >> 22 & 3;

    if scalar {
        if w & 0xff20_8c00 == 0x5e00_0000 {
            return onto_two();
        }
        if w & 0xff3e_0c00 == 0x5e28_0800 {
            return if w >> 12 & 31 == 0 { one() } else { onto_one() };
        }
    } else {
        if w & 0xff3e_0c00 == 0x4e28_0800 {
            return if matches!(w >> 12 & 31, 4 | 5) { onto_one() } else { one() };
        }
        if w & 0xbf20_8c00 == 0x0e00_0000 {
            let table = vec().uses(vs(n, (w >> 13 & 3) + 1)).uses(v(m)).defines(v(d));
            return if w >> 12 & 1 != 0 { table.uses(v(d)).done() } else { table.done() };
        }
        if w & 0xbf20_8c00 == 0x0e00_0800 || w & 0xbf20_8400 == 0x2e00_0000 {
            return two();
        }
    }
    let form = w & 0x8fff_ffff;
    if form & 0x8f00_0000 == 0x0e00_0000 {
        if form & 0x00e0_8400 == 0x0400 {
            return match (u, w >> 11 & 15) {
                (true, _) => onto_one(),
                (false, 0) => one(),
                (false, 1) => vec().defines(v(d)).uses(x(n)).done(),
                (false, 3) => vec().updates(v(d)).uses(x(n)).done(),
                (false, 5 | 7) => vec().defines(x(d)).uses(v(n)).done(),
                _ => None,
            };
        }
        if form & 0x0020_8400 == 0x8400 {
            return match w >> 11 & 15 {
                0..=3 | 8..=11 => onto_two(),
                12 | 14 => two(),
                _ => None,
            };
        }
        if form & 0x0020_0400 == 0x0020_0400 {
            let selects = u && w >> 11 & 31 == 3 && size != 0;
            return match w >> 11 & 31 {
                _ if selects => onto_two(),
                0x0f | 0x12 | 0x19 => onto_two(),
                // FMLAL, FMLSL
                0x1d if !u && !scalar => onto_two(),
                _ => two(),
            };
        }
        if form & 0x0060_c400 == 0x0040_0400 {
            // Half precision, three operands: FMLA and FMLS are the ones that add.
            return if w >> 11 & 7 == 1 && !u { onto_two() } else { two() };
        }
        if form & 0x003e_0c00 == 0x0020_0800 || form & 0x007e_0c00 == 0x0078_0800 {
            return match w >> 12 & 31 {
                3 | 6 => onto_one(),
                0x12 | 0x14 | 0x16 => if_upper(upper),
                _ => one(),
            };
        }
        if form & 0x003e_0c00 == 0x0030_0800 {
            return one();
        }
        if form & 0x0020_0c00 == 0x0020_0000 {
            return match w >> 12 & 15 {
                5 | 8 | 9 | 10 | 11 => onto_two(),
                4 | 6 if upper => onto_two(),
                _ => two(),
            };
        }
        return vec().kinds_only();
    }
    if form & 0x8f00_0400 == 0x0f00_0000 {
        // The second operand is an element; of halfwords only of the lower 16 registers.
        let element = if size == 1 || size == 0 { v(m & 15) } else { v(m) };
        let r = vec().uses(v(n)).uses(element);
        return match w >> 12 & 15 {
            8..=12 => r.defines(v(d)).done(),
            13 if !u => r.defines(v(d)).done(),
            _ => r.updates(v(d)).done(),
        };
    }
    if form & 0x8f80_0400 == 0x0f00_0400 {
        let op = w >> 11 & 31;
        if w >> 19 & 15 == 0 {
            let cmode = w >> 12 & 15;
            let onto = cmode & 1 == 1 && cmode < 12;
            return if onto { vec().updates(v(d)).done() } else { vec().defines(v(d)).done() };
        }
        return match op {
            2 | 6 => onto_one(),
            8 | 10 if u => onto_one(),
            0x10..=0x13 => if_upper(upper),
            _ => one(),
        };
    }
    vec().kinds_only()
}
