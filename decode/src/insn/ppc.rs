//! PowerPC, from the Power ISA's opcode maps: the base, floating point, VMX, and the scalar and common part of VSX.
//! `f0` to `f31` are the lower halves of VSX registers 0 to 31, `v0` to `v31` are VSX registers 32 to 63.
//! The summary overflow that compares and dot forms copy is left out.

use super::{Effects, Kinds, Reader, Reg, new};

fn g(n: u32) -> Option<Reg> {
    match n & 31 {
        1 => Some(Reg::STACK_POINTER),
        n => Some(Reg::general(n as u8)),
    }
}

/// A base register: 0 means the number 0.
fn base(n: u32) -> Option<Reg> {
    if n & 31 == 0 { None } else { g(n) }
}

fn f(n: u32) -> Option<Reg> {
    Some(Reg::vector((n & 31) as u8))
}

fn v(n: u32) -> Option<Reg> {
    Some(Reg::second((n & 31) as u8))
}

/// A VSX register: five bits, and the sixth.
fn vs(n: u32, high: u32) -> Option<Reg> {
    if high & 1 == 0 { f(n) } else { v(n) }
}

fn cr(field: u32) -> Option<Reg> {
    Some(Reg::condition((field & 7) as u8))
}

struct Fields {
    w: u32,
    /// Target or source
    t: u32,
    a: u32,
    b: u32,
}

impl Fields {
    /// CR0 under the record bit.
    fn record(&self, reader: Reader) -> Option<Effects> {
        reader.defines(if self.w & 1 != 0 { cr(0) } else { None }).done()
    }

    /// CR1 under the record bit.
    fn record_float(&self, reader: Reader) -> Option<Effects> {
        reader.defines(if self.w & 1 != 0 { cr(1) } else { None }).done()
    }

    fn ta(&self) -> Reader {
        new(Kinds::NONE).defines(g(self.t)).uses(g(self.a))
    }

    fn tab(&self) -> Reader {
        self.ta().uses(g(self.b))
    }

    /// Logical instructions write their second field.
    fn logical(&self) -> Reader {
        new(Kinds::NONE).defines(g(self.a)).uses(g(self.t))
    }

    fn load(&self, kinds: Kinds) -> Reader {
        new(Kinds::LOAD | kinds).uses(base(self.a))
    }

    fn store(&self, kinds: Kinds) -> Reader {
        new(Kinds::STORE | kinds).uses(base(self.a))
    }
}

/// What a conditional branch looks at.
fn condition(w: u32) -> Reader {
    let (bo, bi) = (w >> 21 & 31, w >> 16 & 31);
    let counts = bo & 4 == 0;
    new(Kinds::NONE)
        .updates(counts.then_some(Reg::COUNT))
        .uses(if bo & 16 == 0 { cr(bi >> 2) } else { None })
        .defines((w & 1 != 0).then_some(Reg::LINK))
}

pub fn effects(w: u32) -> Option<Effects> {
    let i = Fields { w, t: w >> 21 & 31, a: w >> 16 & 31, b: w >> 11 & 31 };
    let (t, a, b) = (i.t, i.a, i.b);
    let none = || new(Kinds::NONE);
    let op = w >> 26;
    match op {
        2 | 3 => new(Kinds::TRAP).uses(g(a)).done(),
        4 => vmx(&i),
        7 => i.ta().done(),
        8 | 12 => i.ta().defines([Reg::XER]).done(),
        13 => i.ta().defines([Reg::XER]).defines(cr(0)).done(),
        10 | 11 => none().defines(cr(t >> 2)).uses(g(a)).done(),
        14 | 15 => none().defines(g(t)).uses(base(a)).done(),
        16 => condition(w).done(),
        17 => new(Kinds::SYSCALL).done(),
        18 => none().defines((w & 1 != 0).then_some(Reg::LINK)).done(),
        19 => branch_and_condition(&i),
        20 => i.record(i.logical().uses(g(a))),
        21 => i.record(i.logical()),
        23 => i.record(i.logical().uses(g(b))),
        // The preferred no-operation
        24 if w == 0x6000_0000 => none().done(),
        24..=27 => i.logical().done(),
        28 | 29 => i.logical().defines(cr(0)).done(),
        30 => match w >> 1 & 15 {
            0..=5 => i.record(i.logical()),
            6 | 7 => i.record(i.logical().uses(g(a))),
            8 | 9 => i.record(i.logical().uses(g(b))),
            _ => None,
        },
        31 => extended(&i),
        32 | 34 | 40 | 42 => i.load(Kinds::NONE).defines(g(t)).done(),
        33 | 35 | 41 | 43 => i.load(Kinds::NONE).defines(g(t)).updates(g(a)).done(),
        36 | 38 | 44 => i.store(Kinds::NONE).uses(g(t)).done(),
        37 | 39 | 45 => i.store(Kinds::NONE).uses(g(t)).updates(g(a)).done(),
        46 => i.load(Kinds::NONE).defines((t..32).filter_map(g)).done(),
        47 => i.store(Kinds::NONE).uses((t..32).filter_map(g)).done(),
        48 | 50 => i.load(Kinds::FLOAT).defines(f(t)).done(),
        49 | 51 => i.load(Kinds::FLOAT).defines(f(t)).updates(g(a)).done(),
        52 | 54 => i.store(Kinds::FLOAT).uses(f(t)).done(),
        53 | 55 => i.store(Kinds::FLOAT).uses(f(t)).updates(g(a)).done(),
        56 => i.load(Kinds::NONE).defines(g(t)).defines(g(t | 1)).done(),
        57 if matches!(w & 3, 2 | 3) => i.load(Kinds::FLOAT).defines(v(t)).done(),
        58 => match w & 3 {
            0 | 2 => i.load(Kinds::NONE).defines(g(t)).done(),
            1 => i.load(Kinds::NONE).defines(g(t)).updates(g(a)).done(),
            _ => None,
        },
        59 | 63 => float(&i),
        60 => vsx(&i),
        61 => match (w & 7, w & 3) {
            (1, _) => i.load(Kinds::VECTOR).defines(vs(t, w >> 3)).done(),
            (5, _) => i.store(Kinds::VECTOR).uses(vs(t, w >> 3)).done(),
            (_, 2 | 3) => i.store(Kinds::FLOAT).uses(v(t)).done(),
            _ => None,
        },
        62 => match w & 3 {
            0 => i.store(Kinds::NONE).uses(g(t)).done(),
            1 => i.store(Kinds::NONE).uses(g(t)).updates(g(a)).done(),
            2 => i.store(Kinds::NONE).uses(g(t)).uses(g(t | 1)).done(),
            _ => None,
        },
        _ => None,
    }
}

fn branch_and_condition(i: &Fields) -> Option<Effects> {
    let (w, t, a, b) = (i.w, i.t, i.a, i.b);
    if w >> 1 & 31 == 2 {
        return new(Kinds::NONE).defines(g(t)).done();
    }
    match w >> 1 & 0x3ff {
        16 => condition(w).uses([Reg::LINK]).done(),
        528 => condition(w).uses([Reg::COUNT]).done(),
        560 => condition(w).uses([Reg::SYSTEM]).done(),
        0 => new(Kinds::NONE).defines(cr(t >> 2)).uses(cr(a >> 2)).done(),
        // One bit of the field is written.
        33 | 129 | 193 | 225 | 257 | 289 | 417 | 449 => {
            new(Kinds::NONE).defines(cr(t >> 2)).uses(cr(a >> 2)).uses(cr(b >> 2)).done()
        }
        150 => new(Kinds::FENCE).done(),
        18 | 50 | 274 | 370 | 402 | 434 => new(Kinds::PRIVILEGED).kinds_only(),
        _ => None,
    }
}

/// Primary opcode 31.
fn extended(i: &Fields) -> Option<Effects> {
    let (w, t, a, b) = (i.w, i.t, i.a, i.b);
    let none = || new(Kinds::NONE);
    let indexed = |r: Reader| r.uses(g(b));
    let n = Kinds::NONE;
    if w >> 1 & 31 == 15 {
        return none().defines(g(t)).uses(base(a)).uses(g(b)).uses(cr(w >> 8)).done();
    }
    if w >> 2 & 0x1ff == 413 {
        return i.record(i.logical().defines([Reg::XER]));
    }
    if w >> 2 & 0x1ff == 445 {
        return i.record(i.logical());
    }
    let overflow = if w & 0x400 != 0 { Some(Reg::XER) } else { None };
    match w >> 1 & 0x1ff {
        266 | 40 | 235 | 233 | 491 | 459 | 489 | 457 | 427 | 395 | 425 | 393 => {
            return i.record(i.tab().defines(overflow));
        }
        10 | 8 => return i.record(i.tab().defines([Reg::XER])),
        138 | 136 => return i.record(i.tab().updates([Reg::XER])),
        202 | 200 | 234 | 232 => return i.record(i.ta().updates([Reg::XER])),
        104 => return i.record(i.ta().defines(overflow)),
        _ => {}
    }
    match w >> 1 & 0x3ff {
        75 | 11 | 73 | 9 => i.record(i.tab()),
        265 | 267 | 777 | 779 => i.tab().done(),
        28 | 60 | 412 | 316 | 124 | 476 | 284 | 24 | 536 | 27 | 539 => i.record(i.logical().uses(g(b))),
        // MR writes its register twice.
        444 => i.record(i.logical().uses(g(b))),
        792 | 794 => i.record(i.logical().uses(g(b)).defines([Reg::XER])),
        824 => i.record(i.logical().defines([Reg::XER])),
        922 | 954 | 986 | 26 | 58 | 538 | 570 => i.record(i.logical()),
        122 | 378 | 506 | 154 | 186 => i.logical().done(),
        508 | 252 => i.logical().uses(g(b)).done(),
        0 | 32 => none().defines(cr(t >> 2)).uses(g(a)).uses(g(b)).done(),
        192 | 224 => none().defines(cr(t >> 2)).uses(g(a)).uses(g(b)).done(),
        4 | 68 => new(Kinds::TRAP).uses(g(a)).uses(g(b)).done(),
        128 => none().defines(g(t)).uses(cr(a >> 2)).done(),

        23 | 87 | 279 | 343 | 21 | 341 | 534 | 790 | 532 => indexed(i.load(n)).defines(g(t)).done(),
        55 | 119 | 311 | 375 | 53 | 373 => indexed(i.load(n)).defines(g(t)).updates(g(a)).done(),
        20 | 84 | 52 | 116 => indexed(i.load(Kinds::ATOMIC)).defines(g(t)).done(),
        276 => indexed(i.load(Kinds::ATOMIC)).defines(g(t)).defines(g(t | 1)).done(),
        151 | 215 | 407 | 149 | 662 | 918 | 660 => indexed(i.store(n)).uses(g(t)).done(),
        183 | 247 | 439 | 181 => indexed(i.store(n)).uses(g(t)).updates(g(a)).done(),
        150 | 214 | 694 | 726 => indexed(i.store(Kinds::ATOMIC)).uses(g(t)).defines(cr(0)).done(),
        182 => indexed(i.store(Kinds::ATOMIC)).uses(g(t)).uses(g(t | 1)).defines(cr(0)).done(),
        535 | 599 | 855 | 887 => indexed(i.load(Kinds::FLOAT)).defines(f(t)).done(),
        567 | 631 => indexed(i.load(Kinds::FLOAT)).defines(f(t)).updates(g(a)).done(),
        663 | 727 | 983 => indexed(i.store(Kinds::FLOAT)).uses(f(t)).done(),
        695 | 759 => indexed(i.store(Kinds::FLOAT)).uses(f(t)).updates(g(a)).done(),
        6 | 38 => none().uses(base(a)).uses(g(b)).defines(v(t)).kind(Kinds::VECTOR).done(),
        // One element is loaded, the others become undefined.
        7 | 39 | 71 | 103 | 359 => indexed(i.load(Kinds::VECTOR)).defines(v(t)).done(),
        135 | 167 | 199 | 231 | 487 => indexed(i.store(Kinds::VECTOR)).uses(v(t)).done(),
        588 | 524 | 76 | 12 | 781 | 813 => indexed(i.load(Kinds::FLOAT)).defines(vs(t, w)).done(),
        844 | 780 | 332 | 876 | 812 | 268 | 364 => indexed(i.load(Kinds::VECTOR)).defines(vs(t, w)).done(),
        716 | 652 | 140 | 909 | 941 => indexed(i.store(Kinds::FLOAT)).uses(vs(t, w)).done(),
        972 | 908 | 396 | 940 | 1004 => indexed(i.store(Kinds::VECTOR)).uses(vs(t, w)).done(),
        51 | 115 | 307 => new(Kinds::VECTOR).defines(g(a)).uses(vs(t, w)).done(),
        179 | 211 | 243 | 403 => new(Kinds::VECTOR).defines(vs(t, w)).uses(g(a)).done(),
        435 => new(Kinds::VECTOR).defines(vs(t, w)).uses(base(a)).uses(g(b)).done(),
        // The field is a number of bytes, four to a register, and the registers go around.
        597 => i.load(n).defines(string(t, b)).done(),
        725 => i.store(n).uses(string(t, b)).done(),
        533 => i.load(n).kinds_only(),
        661 => i.store(n).kinds_only(),

        339 => {
            let (reg, privileged) = special(w);
            new(privileged).defines(g(t)).uses([reg]).done()
        }
        467 => {
            let (reg, privileged) = special(w);
            new(privileged).defines([reg]).uses(g(t)).done()
        }
        371 => none().defines(g(t)).uses([Reg::SYSTEM]).done(),
        19 => none().defines(g(t)).uses(fields(if w >> 20 & 1 != 0 { w >> 12 & 0xff } else { 0xff })).done(),
        144 => none().uses(g(t)).defines(fields(w >> 12 & 0xff)).done(),
        512 => none().updates([Reg::XER]).defines(cr(t >> 2)).done(),
        576 => none().uses([Reg::XER]).defines(cr(t >> 2)).done(),
        755 => none().defines(g(t)).done(),
        83 => new(Kinds::PRIVILEGED).defines(g(t)).uses([Reg::SYSTEM]).done(),
        146 | 178 => new(Kinds::PRIVILEGED).uses(g(t)).defines([Reg::SYSTEM]).done(),
        598 | 854 => new(Kinds::FENCE).done(),
        // WAIT
        30 => none().done(),
        86 | 54 | 278 | 246 | 982 | 22 => none().uses(base(a)).uses(g(b)).done(),
        1014 => indexed(i.store(n)).done(),
        306 | 274 | 402 | 434 | 498 | 470 | 566 => new(Kinds::PRIVILEGED).kinds_only(),
        _ => None,
    }
}

fn string(first: u32, bytes: u32) -> impl Iterator<Item = Reg> {
    let n = if bytes == 0 { 32 } else { bytes };
    (0..n.div_ceil(4)).filter_map(move |k| g(first + k))
}

fn fields(mask: u32) -> impl Iterator<Item = Reg> {
    (0..8).filter(move |k| mask << k & 0x80 != 0).filter_map(cr)
}

fn special(w: u32) -> (Reg, Kinds) {
    let spr = (w >> 16 & 31) | (w >> 11 & 31) << 5;
    let reg = match spr {
        1 => Reg::XER,
        8 => Reg::LINK,
        9 => Reg::COUNT,
        _ => Reg::SYSTEM,
    };
    (reg, if spr & 16 != 0 { Kinds::PRIVILEGED } else { Kinds::NONE })
}

/// Primary opcodes 59 and 63.
fn float(i: &Fields) -> Option<Effects> {
    let (w, t, a, b) = (i.w, i.t, i.a, i.b);
    let c = w >> 6;
    let fp = || new(Kinds::FLOAT);
    match w >> 1 & 31 {
        18 | 20 | 21 => return i.record_float(fp().defines(f(t)).uses(f(a)).uses(f(b))),
        22 | 24 | 26 => return i.record_float(fp().defines(f(t)).uses(f(b))),
        25 => return i.record_float(fp().defines(f(t)).uses(f(a)).uses(f(c))),
        23 | 28..=31 => return i.record_float(fp().defines(f(t)).uses(f(a)).uses(f(b)).uses(f(c))),
        _ => {}
    }
    let xo = w >> 1 & 0x3ff;
    match (w >> 26, xo) {
        (59, 846 | 974) => i.record_float(fp().defines(f(t)).uses(f(b))),
        (59, _) => None,
        (_, 0 | 32) => fp().defines(cr(t >> 2)).uses(f(a)).uses(f(b)).done(),
        (_, 8 | 838 | 966) => i.record_float(fp().defines(f(t)).uses(f(a)).uses(f(b))),
        (
            _,
            72 | 40 | 264 | 136 | 12 | 14 | 15 | 814 | 815 | 846 | 974 | 942 | 943 | 142 | 143 | 392 | 424 | 456 | 488,
        ) => i.record_float(fp().defines(f(t)).uses(f(b))),
        (_, 583) => i.record_float(fp().defines(f(t)).uses([Reg::FLOAT_STATUS])),
        (_, 711) => i.record_float(fp().uses(f(b)).defines([Reg::FLOAT_STATUS])),
        (_, 134 | 70 | 38) => i.record_float(fp().defines([Reg::FLOAT_STATUS])),
        (_, 64) => fp().defines(cr(t >> 2)).uses([Reg::FLOAT_STATUS]).done(),
        _ => None,
    }
}

/// Primary opcode 4.
fn vmx(i: &Fields) -> Option<Effects> {
    let (w, t, a, b) = (i.w, i.t, i.a, i.b);
    let vec = || new(Kinds::VECTOR);
    match w & 0x3f {
        // Multiply-add of general registers
        48..=51 => new(Kinds::NONE).defines(g(t)).uses(g(a)).uses(g(b)).uses(g(w >> 6)).done(),
        // VSLDOI: the fourth field is a number
        44 => vec().defines(v(t)).uses(v(a)).uses(v(b)).done(),
        32..=63 => vec().defines(v(t)).uses(v(a)).uses(v(b)).uses(v(w >> 6)).done(),
        // Compares
        6 | 7 => {
            let recorded = if w & 0x400 != 0 { cr(6) } else { None };
            vec().defines(v(t)).uses(v(a)).uses(v(b)).defines(recorded).done()
        }
        _ => match w & 0x7ff {
            780 | 844 | 908 => vec().defines(v(t)).done(),
            1540 => vec().defines(v(t)).uses([Reg::FLOAT_STATUS]).done(),
            1604 => vec().uses(v(b)).defines([Reg::FLOAT_STATUS]).done(),
            // Splats, unpacks, estimates, roundings, conversions, counts: one operand
            524 | 588 | 652 | 526 | 590 | 654 | 718 | 846 | 974 | 1614 | 1742 | 266 | 330 | 394 | 458 | 522 | 586
            | 650 | 714 | 778 | 842 | 906 | 970 | 1538 | 1794 | 1858 | 1922 | 1986 | 1795 | 1859 | 1923 | 1987
            | 1292 => vec().defines(v(t)).uses(v(b)).done(),
            1480 => vec().defines(v(t)).uses(v(a)).done(),
            // Arithmetic, logic, merges, packs, shifts, multiplies, sums
            0 | 64 | 128 | 192 | 256 | 320 | 384 | 512 | 576 | 640 | 768 | 832 | 896 | 1024 | 1088 | 1152 | 1216
            | 1408 | 1536 | 1600 | 1664 | 1792 | 1856 | 1920 | 10 | 74 | 1034 | 1098 | 2 | 66 | 130 | 194 | 258
            | 322 | 386 | 450 | 514 | 578 | 642 | 706 | 770 | 834 | 898 | 962 | 1026 | 1090 | 1154 | 1282 | 1346
            | 1410 | 1028 | 1092 | 1156 | 1220 | 1284 | 1348 | 1412 | 1668 | 4 | 68 | 132 | 196 | 260 | 324 | 388
            | 452 | 516 | 580 | 644 | 708 | 772 | 836 | 900 | 964 | 1476 | 1732 | 1796 | 1860 | 12 | 76 | 140 | 268
            | 332 | 396 | 14 | 78 | 142 | 206 | 270 | 334 | 398 | 462 | 782 | 1036 | 1100 | 8 | 72 | 136 | 264
            | 328 | 392 | 520 | 584 | 648 | 776 | 840 | 904 | 137 | 1544 | 1608 | 1672 | 1800 | 1928 | 1288 | 1352
            | 1416 => vec().defines(v(t)).uses(v(a)).uses(v(b)).done(),
            _ => vec().kinds_only(),
        },
    }
}

/// Primary opcode 60.
fn vsx(i: &Fields) -> Option<Effects> {
    let (w, t, a, b) = (i.w, i.t, i.a, i.b);
    let (xt, xa, xb, xc) = (vs(t, w), vs(a, w >> 2), vs(b, w >> 1), vs(w >> 6, w >> 3));
    let vec = || new(Kinds::VECTOR);
    if w >> 4 & 3 == 3 {
        return vec().defines(xt).uses(xa).uses(xb).uses(xc).done();
    }
    if w >> 1 & 0x3ff == 360 {
        return vec().defines(xt).done();
    }
    match w >> 3 & 0xff {
        op @ (2 | 10) | op @ (34 | 42 | 66 | 74 | 98 | 106) if op & 0x97 == 2 => {
            return vec().defines(xt).uses(xa).uses(xb).done();
        }
        0 | 8 | 16 | 24 | 32 | 40 | 48 | 56 | 160 | 168 | 176 | 128 | 136 | 144 => {
            return new(Kinds::FLOAT).defines(xt).uses(xa).uses(xb).done();
        }
        64 | 72 | 80 | 88 | 96 | 104 | 112 | 120 | 192 | 200 | 208 | 224 | 232 | 240 => {
            return (vec().kind(Kinds::FLOAT)).defines(xt).uses(xa).uses(xb).done();
        }
        130 | 138 | 146 | 154 | 162 | 170 | 178 | 186 | 18 | 50 => {
            return vec().defines(xt).uses(xa).uses(xb).done();
        }
        26 | 58 => return vec().updates(xt).uses(xa).uses(xb).done(),
        1 | 9 | 17 | 25 | 33 | 41 | 49 | 57 | 129 | 137 | 145 | 153 | 161 | 169 | 177 | 185 => {
            return new(Kinds::FLOAT).updates(xt).uses(xa).uses(xb).done();
        }
        65 | 73 | 81 | 89 | 97 | 105 | 113 | 121 | 193 | 201 | 209 | 217 | 225 | 233 | 241 | 249 => {
            return vec().kind(Kinds::FLOAT).updates(xt).uses(xa).uses(xb).done();
        }
        35 | 43 => return new(Kinds::FLOAT).defines(cr(t >> 2)).uses(xa).uses(xb).done(),
        _ => {}
    }
    match w >> 2 & 0x1ff {
        344 | 328 | 88 | 72 | 376 | 360 | 312 | 296 | 265 | 329 | 267 | 331 | 75 | 11 | 345 | 361 | 377 | 73 | 89
        | 107 | 105 | 121 | 90 | 74 | 281 | 10 | 26 => new(Kinds::FLOAT).defines(xt).uses(xb).done(),
        164 | 475 => vec().defines(xt).uses(xb).done(),
        _ => vec().kinds_only(),
    }
}
