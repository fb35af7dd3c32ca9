//! z/Architecture: Capstone's operands under the rules of the Principles of Operation. Capstone tells no directions, and counts the condition
//! code among what calls overwrite; both are from here. Mnemonics that are not listed are unknown.

use super::{Effects, Kinds, Reader, Reg, new};
use crate::Target;
use crate::text::with_capstone;
use capstone::arch::DetailsArchInsn;
use capstone::arch::sysz::SysZOperand;
use capstone::{Capstone, RegId};

/// What an instruction does with its register operands; those of its addresses it uses.
#[derive(Clone, Copy)]
enum Shape {
    /// Writes the first, uses the others.
    Set,
    /// Uses and writes the first, uses the others.
    Change,
    /// Uses all.
    Use,
    /// Writes the first and the one after it, uses the others and the one after the first.
    Multiply,
    /// The same, and uses the first.
    Divide,
    /// Uses and writes the first and the one after it, uses the others.
    ChangePair,
    /// Writes the first and the one after it.
    SetPair,
    /// Uses the first and the one after it.
    UsePair,
    /// Writes all from the first to the second.
    SetRange,
    /// Uses all from the first to the second.
    UseRange,
    /// Compare and swap: uses and writes the first, uses the second; `CDS…` pairs.
    Swap,
    SwapPair,
    /// Uses and writes the first two, each with the one after it.
    ChangePairs,
    /// Uses and writes the first, uses the second and, if that is even, the one after it.
    Index,
    /// Uses and writes the first two, uses register 0.
    Search,
}

pub fn effects(target: Target, bytes: &[u8]) -> Option<Effects> {
    with_capstone(target, false, |capstone| {
        let insns = capstone.disasm_count(bytes, 0x1000, 1).ok()?;
        let insn = insns.first().filter(|i| i.bytes().len() == bytes.len())?;
        let name = insn.mnemonic()?;
        let detail = capstone.insn_detail(insn).ok()?;
        let arch = detail.arch_detail();
        let mut named = Vec::new();
        let mut r = Reader::default();
        for op in arch.sysz()?.operands() {
            match op {
                SysZOperand::Reg(id) | SysZOperand::AcReg(id) => named.push(reg(capstone, id)?),
                SysZOperand::Mem(m) => {
                    for id in [m.base(), m.index()] {
                        // Register 0 in an address is no register.
                        let n = u32::from(id).ne(&0).then(|| capstone.reg_name(RegId(id.into()))).flatten();
                        if let Some(n) = n.filter(|n| n != "0") {
                            r = r.uses(by_name(&n));
                        }
                    }
                }
                _ => {}
            }
        }
        // Serialisation: a branch that is never taken
        if bytes.first() == Some(&0x07) && matches!(bytes.get(1), Some(0xe0 | 0xf0)) {
            return new(Kinds::FENCE).done();
        }
        if bytes.first() == Some(&0x07) && bytes.get(1).is_some_and(|b| b & 15 == 0 || b >> 4 == 0) {
            return new(Kinds::NONE).done();
        }
        let (kinds, shape, writes_cc) = look_up(name)?;
        let conditional = detail.regs_read().iter().any(|id| capstone.reg_name(*id).as_deref() == Some("cc"));
        if conditional {
            r = r.uses([Reg::FLAGS]);
        }
        // Insertions of the rotated operand keep the rest unless told to clear it: bit 0 of the fourth field.
        let zeroes = name.starts_with("risb") && bytes.get(3).is_some_and(|b| b & 0x80 != 0);
        let shape = if zeroes { Shape::Set } else { shape };
        r = r.kind(kinds).defines(writes_cc.then_some(Reg::FLAGS));
        let first = named.first().copied();
        let others = || named.iter().skip(1).copied();
        let next = |r: Reg| after(r, 1);
        let pair = |r: Option<Reg>| r.into_iter().chain(r.and_then(next)).collect::<Vec<_>>();
        let range = || -> Vec<Reg> {
            let (Some(a), Some(b)) = (first, named.get(1).copied()) else { return Vec::new() };
            (0..16)
                .map_while(|k| after(a, k))
                .scan(false, |end, r| (!std::mem::replace(end, *end || r == b)).then_some(r))
                .collect()
        };
        match shape {
            Shape::Set => r.defines(first).uses(others()),
            Shape::Change => r.updates(first).uses(others()),
            Shape::Use => r.uses(first).uses(others()),
            Shape::Multiply => r.defines(pair(first)).uses(first.and_then(next)).uses(others()),
            Shape::Divide | Shape::ChangePair => r.updates(pair(first)).uses(others()),
            Shape::SetPair => r.defines(pair(first)).uses(others()),
            Shape::UsePair => r.uses(pair(first)),
            Shape::SetRange => r.defines(range()),
            Shape::UseRange => r.uses(range()),
            Shape::Swap => r.updates(first).uses(others()),
            Shape::SwapPair => r.updates(pair(first)).uses(pair(named.get(1).copied())),
            Shape::Index => {
                let odd = named.get(1).copied().and_then(|r| after(r, u8::from(r.number() % 2 == 0)));
                r.updates(first).uses(others()).uses(odd)
            }
            Shape::Search => r.updates(first).updates(others()).uses([general(0)]),
            Shape::ChangePairs => r.updates(pair(first)).updates(pair(named.get(1).copied())),
        }
        .done()
    })
}

/// The register `k` after `r`, which go around.
fn after(r: Reg, k: u8) -> Option<Reg> {
    let n = if r == Reg::STACK_POINTER { 15 } else { r.number() };
    Some(match n {
        0..=15 => general((n + k) % 16),
        64..=79 => Reg::second((n - 64 + k) % 16),
        _ => Reg::vector(n - 32 + k),
    })
}

fn general(n: u8) -> Reg {
    if n == 15 { Reg::STACK_POINTER } else { Reg::general(n) }
}

fn reg(capstone: &Capstone, id: RegId) -> Option<Reg> {
    by_name(&capstone.reg_name(id)?)
}

fn by_name(name: &str) -> Option<Reg> {
    // General registers go by their number alone.
    if let Ok(n) = name.parse() {
        return Some(general(n));
    }
    let n: u8 = name.get(1..)?.parse().ok()?;
    match name.as_bytes().first()? {
        b'f' | b'v' => Some(Reg::vector(n)),
        b'a' => Some(Reg::second(n)),
        b'c' => Some(Reg::SYSTEM),
        _ => None,
    }
}

/// What the mnemonic says, and if it sets the condition code.
fn look_up(name: &str) -> Option<(Kinds, Shape, bool)> {
    let (none, load, store) = (Kinds::NONE, Kinds::LOAD, Kinds::STORE);
    let both = load | store;
    let atomic = both | Kinds::ATOMIC;
    let fp = Kinds::FLOAT;
    // The condition of conditional forms stands at the end.
    let is = |stems: &[&str]| stems.iter().any(|s| name.strip_prefix(s).is_some_and(is_condition));
    Some(match name {
        // Loads, and what only moves
        "lr" | "lgr" | "lgfr" | "llgfr" | "lbr" | "lgbr" | "lhr" | "lghr" | "llcr" | "llgcr" | "llhr" | "llghr"
        | "llgtr" | "lrvr" | "lrvgr" | "lhi" | "lghi" | "lgfi" | "llihf" | "llilf" | "llihh" | "llihl" | "llilh"
        | "llill" | "la" | "lay" | "larl" | "ear" | "sar" => (none, Shape::Set, false),
        "popcnt" => (none, Shape::Set, true),
        "ipm" => (none, Shape::Change, false),
        "l" | "ly" | "lg" | "lgf" | "llgf" | "lb" | "lgb" | "lh" | "lhy" | "lgh" | "llc" | "llgc" | "llh" | "llgh"
        | "llgt" | "lrv" | "lrvg" | "lrvh" | "lrl" | "lgrl" | "lgfrl" | "llgfrl" | "lhrl" | "lghrl" | "llhrl"
        | "llghrl" | "lfh" => (load, Shape::Set, false),
        "lt" | "ltg" | "ltgf" => (load, Shape::Set, true),
        "ltr" | "ltgr" | "ltgfr" | "lcr" | "lcgr" | "lcgfr" | "lpr" | "lpgr" | "lpgfr" | "lnr" | "lngr" | "lngfr" => {
            (none, Shape::Set, true)
        }
        "iihf" | "iilf" | "iihh" | "iihl" | "iilh" | "iill" => (none, Shape::Change, false),
        "ic" | "icy" => (load, Shape::Change, false),
        "icm" | "icmy" | "icmh" => (load, Shape::Change, true),
        "lm" | "lmg" | "lmy" | "lmh" | "lam" | "lamy" => (load, Shape::SetRange, false),
        "lpq" => (load, Shape::SetPair, false),
        // Stores
        "st" | "sty" | "stg" | "stc" | "stcy" | "sth" | "sthy" | "strv" | "strvg" | "strvh" | "strl" | "stgrl"
        | "sthrl" | "stcm" | "stcmy" | "stcmh" | "mvi" | "mviy" | "mvhi" | "mvghi" | "mvhhi" | "stfh" => {
            (store, Shape::Use, false)
        }
        "stck" | "stckf" | "stcke" => (store, Shape::Use, true),
        "stm" | "stmg" | "stmy" | "stmh" | "stam" | "stamy" => (store, Shape::UseRange, false),
        "stpq" => (store, Shape::UsePair, false),
        // Arithmetic onto the first operand, or of three
        "ar" | "agr" | "agfr" | "alr" | "algr" | "algfr" | "sr" | "sgr" | "sgfr" | "slr" | "slgr" | "slgfr" | "nr"
        | "ngr" | "or" | "ogr" | "xr" | "xgr" | "ahi" | "aghi" | "afi" | "agfi" | "alfi" | "algfi" | "slfi"
        | "slgfi" | "nihf" | "nilf" | "nihh" | "nihl" | "nilh" | "nill" | "oihf" | "oilf" | "oihh" | "oihl"
        | "oilh" | "oill" | "xihf" | "xilf" | "rnsbg" | "rosbg" | "rxsbg" | "risbg" | "sra" | "srda" | "sla"
        | "slda" => match name {
            "srda" | "slda" => (none, Shape::ChangePair, true),
            _ => (none, Shape::Change, true),
        },
        "alcr" | "alcgr" | "slbr" | "slbgr" => (none, Shape::Change, true),
        "alc" | "alcg" | "slb" | "slbg" => (load, Shape::Change, true),
        "ark" | "agrk" | "alrk" | "algrk" | "srk" | "sgrk" | "slrk" | "slgrk" | "nrk" | "ngrk" | "ork" | "ogrk"
        | "xrk" | "xgrk" | "ahik" | "aghik" | "alhsik" | "alghsik" | "srag" | "slag" | "srak" | "slak" => {
            (none, Shape::Set, true)
        }
        "a" | "ay" | "ag" | "agf" | "ah" | "ahy" | "agh" | "al" | "aly" | "alg" | "algf" | "s" | "sy" | "sg"
        | "sgf" | "sh" | "shy" | "sgh" | "sl" | "sly" | "slg" | "slgf" | "n" | "ny" | "ng" | "o" | "oy" | "og"
        | "x" | "xy" | "xg" => (load, Shape::Change, true),
        "msr" | "msgr" | "msgfr" | "mhi" | "mghi" | "msfi" | "msgfi" | "sll" | "srl" | "risbgn" | "risbhg"
        | "risblg" => (none, Shape::Change, false),
        "sldl" | "srdl" => (none, Shape::ChangePair, false),
        "ms" | "msy" | "msg" | "msgf" | "mh" | "mhy" | "mgh" => (load, Shape::Change, false),
        "sllg" | "srlg" | "rllg" | "rll" | "sllk" | "srlk" => (none, Shape::Set, false),
        "msgrkc" | "msrkc" => (none, Shape::Set, true),
        "mr" | "mlr" | "mlgr" => (none, Shape::Multiply, false),
        "mgrk" => (none, Shape::SetPair, false),
        "m" | "mfy" | "ml" | "mlg" | "mg" => (load, Shape::Multiply, false),
        "dr" | "dlr" | "dlgr" => (none, Shape::Divide, false),
        "d" | "dl" | "dlg" => (load, Shape::Divide, false),
        // The dividend of 64 bits stands in the second of the pair.
        "dsgr" | "dsgfr" => (none, Shape::Multiply, false),
        "dsg" | "dsgf" => (load, Shape::Multiply, false),
        "flogr" => (none, Shape::SetPair, true),
        // Comparisons
        "cr" | "cgr" | "cgfr" | "clr" | "clgr" | "clgfr" | "chi" | "cghi" | "cfi" | "cgfi" | "clfi" | "clgfi"
        | "tmhh" | "tmhl" | "tmlh" | "tmll" => (none, Shape::Use, true),
        "c" | "cy" | "cg" | "cgf" | "ch" | "chy" | "cgh" | "cl" | "cly" | "clg" | "clgf" | "crl" | "cgrl" | "cgfrl"
        | "chrl" | "cghrl" | "clrl" | "clgrl" | "clgfrl" | "clhrl" | "clghrl" | "cli" | "cliy" | "chsi" | "cghsi"
        | "chhsi" | "clfhsi" | "clghsi" | "clhhsi" | "tm" | "tmy" | "clc" | "clm" | "clmy" | "clmh" => {
            (load, Shape::Use, true)
        }
        // Memory onto memory
        "mvc" | "mvn" | "mvz" | "mvo" | "pack" | "unpk" | "tr" | "mvcin" => (both, Shape::Use, false),
        "xc" | "oc" | "nc" | "ni" | "niy" | "oi" | "oiy" | "xi" | "xiy" | "asi" | "agsi" | "alsi" | "algsi" => {
            (both, Shape::Use, true)
        }
        "mvcl" | "mvcle" | "mvclu" => (both, Shape::ChangePairs, true),
        "clcl" | "clcle" | "clclu" => (load, Shape::ChangePairs, true),
        "cs" | "csy" | "csg" => (atomic, Shape::Swap, true),
        "cds" | "cdsy" | "cdsg" => (atomic, Shape::SwapPair, true),
        "laa" | "laag" | "laal" | "laalg" | "lan" | "lang" | "lao" | "laog" | "lax" | "laxg" => {
            (atomic, Shape::Set, true)
        }
        // Branches
        "br" | "j" | "jg" | "b" => (none, Shape::Use, false),
        "bras" | "brasl" | "basr" | "balr" | "bal" | "bas" | "jas" | "jasl" => (none, Shape::Set, false),
        "brxh" | "brxle" | "brxhg" | "brxlg" | "bxh" | "bxle" | "bxhg" | "bxleg" => (none, Shape::Index, false),
        "srst" | "clst" => (load, Shape::Search, true),
        "mvst" => (both, Shape::Search, true),
        "brct" | "brctg" | "brcth" | "bct" | "bctg" | "bctr" | "bctgr" => (none, Shape::Change, false),
        _ if is(&["cgrj", "crj", "clgrj", "clrj", "cgij", "cij", "clgij", "clij", "cgrb", "crb", "clgrb", "clrb"]) => {
            (none, Shape::Use, false)
        }
        _ if is(&["cgrt", "crt", "clgrt", "clrt", "cgit", "cit", "clgit", "clfit"]) => (Kinds::TRAP, Shape::Use, false),
        _ if is(&["locgr", "locr", "locghi", "lochi"]) => (none, Shape::Change, false),
        _ if is(&["locg", "loc"]) => (load, Shape::Change, false),
        _ if is(&["stocg", "stoc"]) => (store, Shape::Use, false),
        _ if is(&["j", "jg"])
            || name.starts_with('b') && name.ends_with('r') && is_condition(&name[1..name.len() - 1]) =>
        {
            (none, Shape::Use, false)
        }
        _ if is(&["b"]) => (none, Shape::Use, false),
        // The kernel, traps and fences
        "pfd" | "pfdrl" => (none, Shape::Use, false),
        "svc" => (Kinds::SYSCALL, Shape::Use, false),
        "trap2" | "trap4" => (Kinds::TRAP, Shape::Use, false),
        // Floating point
        "ldr" | "ler" | "lxr" | "ldgr" | "lgdr" | "lzdr" | "lzer" | "cdgbr" | "cdfbr" | "cegbr" | "cefbr"
        | "cdlgbr" | "cdlfbr" | "celgbr" | "celfbr" | "ledbr" | "ldebr" | "sqdbr" | "sqebr" | "fidbr" | "fiebr"
        | "fidbra" | "fiebra" | "cpsdr" | "lpdfr" | "lndfr" | "lcdfr" => (fp, Shape::Set, false),
        "ltdbr" | "ltebr" | "lcdbr" | "lcebr" | "lpdbr" | "lpebr" | "lndbr" | "lnebr" | "cgdbr" | "cfdbr" | "cgebr"
        | "cfebr" | "clgdbr" | "clfdbr" | "clgebr" | "clfebr" | "cgdbra" | "cfdbra" => (fp, Shape::Set, true),
        "ld" | "ldy" | "le" | "ley" | "ldeb" | "sqdb" | "sqeb" => (fp | load, Shape::Set, false),
        "std" | "stdy" | "ste" | "stey" => (fp | store, Shape::Use, false),
        "adbr" | "aebr" | "sdbr" | "sebr" => (fp, Shape::Change, true),
        "adb" | "aeb" | "sdb" | "seb" => (fp | load, Shape::Change, true),
        "mdbr" | "meebr" | "ddbr" | "debr" | "madbr" | "maebr" | "msdbr" | "msebr" => (fp, Shape::Change, false),
        "mdb" | "meeb" | "ddb" | "deb" | "madb" | "maeb" | "msdb" | "mseb" => (fp | load, Shape::Change, false),
        "cdbr" | "cebr" | "kdbr" | "kebr" => (fp, Shape::Use, true),
        "tcdb" | "tceb" => (fp, Shape::Use, true),
        "cdb" | "ceb" | "kdb" | "keb" => (fp | load, Shape::Use, true),
        // Vectors: moves to and from memory and general registers
        "vl" | "vlbb" | "vllezg" | "vllezf" | "vllezh" | "vllezb" | "vlrepg" | "vlrepf" | "vlreph" | "vlrepb"
        | "vll" => (Kinds::VECTOR | load, Shape::Set, false),
        "vst" | "vsteg" | "vstef" | "vsteh" | "vsteb" | "vstl" => (Kinds::VECTOR | store, Shape::Use, false),
        "vlr" | "vlvgp" | "vlgvg" | "vlgvf" | "vlgvh" | "vlgvb" => (Kinds::VECTOR, Shape::Set, false),
        "vlvgg" | "vlvgf" | "vlvgh" | "vlvgb" => (Kinds::VECTOR, Shape::Change, false),
        "vlm" => (Kinds::VECTOR | load, Shape::SetRange, false),
        "vstm" => (Kinds::VECTOR | store, Shape::UseRange, false),
        _ => return None,
    })
}

fn is_condition(text: &str) -> bool {
    matches!(
        text,
        "o" | "h"
            | "p"
            | "nle"
            | "nhe"
            | "l"
            | "m"
            | "nh"
            | "lh"
            | "ne"
            | "nz"
            | "e"
            | "z"
            | "nlh"
            | "he"
            | "nl"
            | "nm"
            | "le"
            | "np"
            | "no"
    )
}
