//! What instructions do: sets by hand, from the ISAs' manuals, for bytes from the GNU assembler (`isas/`, a line each).

use decode::{ALT_MODE, Class, Kinds, Target, branch_target, classify, effects};
use std::collections::BTreeSet;

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn check(target: &str, flags: u32, table: &str) {
    let t = Target::named(target).unwrap();
    let mut wrong = Vec::new();
    let mut n = 0;
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [hex, text, class, kinds, uses, rest @ ..] = &fields[..] else { panic!("{line}") };
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        n += 1;
        let found = effects(t, flags, &bytes);
        let class = if class.is_empty() { "Other" } else { class };
        let defines = rest.first().copied().unwrap_or("");
        let to = rest.get(1).filter(|t| !t.is_empty()).map(|t| u64::from_str_radix(&t[2..], 16).unwrap());
        let regs = found.and_then(|f| f.registers);
        let got = (
            format!("{:?}", classify(t, flags, &bytes)),
            found.map(|f| f.kinds.names().map(str::to_owned).collect::<BTreeSet<_>>()),
            regs.map(|r| BTreeSet::from_iter(r.uses.names(t))),
            regs.map(|r| BTreeSet::from_iter(r.defines.names(t))),
            branch_target(t, flags, 0x1000, &bytes),
        );
        let known = !uses.contains('?');
        let want =
            (class.to_owned(), Some(words(kinds)), known.then(|| words(uses)), known.then(|| words(defines)), to);
        if got != want {
            wrong.push(format!("{text}\n  got  {got:?}\n  want {want:?}"));
        }
    }
    assert!(n >= 20, "{target}: {n} instructions");
    assert!(wrong.is_empty(), "{target}: {} of {n}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn x86_64() {
    check("x86_64", 0, include_str!("isas/x86_64.txt"));
}

#[test]
fn aarch64() {
    check("aarch64", 0, include_str!("isas/aarch64.txt"));
}

#[test]
fn arm() {
    check("arm", 0, include_str!("isas/arm.txt"));
}

#[test]
fn thumb() {
    check("arm", ALT_MODE, include_str!("isas/thumb.txt"));
}

#[test]
fn riscv64() {
    check("riscv64", 0, include_str!("isas/riscv64.txt"));
}

#[test]
fn mips() {
    check("mips", 0, include_str!("isas/mips.txt"));
}

#[test]
fn ppc64le() {
    check("ppc64le", 0, include_str!("isas/ppc64le.txt"));
}

#[test]
fn s390x() {
    check("s390x", 0, include_str!("isas/s390x.txt"));
}

/// An ISA that nobody here decodes, and bytes that are no instruction, do nothing known: not "nothing".
#[test]
fn unknown_is_not_nothing() {
    for (name, bytes) in [("sparc64", &[0x81, 0xc3, 0xe0, 0x08][..]), ("x86_64", &[0x06]), ("s390x", &[0xff, 0xff])] {
        let t = Target::named(name).unwrap();
        assert_eq!(effects(t, 0, bytes), None, "{name}");
    }
    let mips = Target::named("mips").unwrap();
    assert_eq!(effects(mips, ALT_MODE, &[0x0c, 0x21]), None);
    // SVE: ld1b {z0.d}, p0/z, [x0, z0.d]
    assert_eq!(effects(Target::named("aarch64").unwrap(), 0, &[0x00, 0xc0, 0x40, 0xc4]), None);
}

/// No bytes make it panic.
#[test]
fn any_bytes() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    for name in [
        "x86_64", "i386", "aarch64", "arm", "mips", "mips64el", "ppc", "ppc64le", "riscv32", "riscv64", "s390x",
        "sparc",
    ] {
        let t = Target::named(name).unwrap();
        for i in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bytes = (seed >> 3).to_le_bytes();
            let bytes = &bytes[..[2, 4, 4, 6][i % 4]];
            for flags in [0, ALT_MODE] {
                let found = effects(t, flags, bytes);
                if let Some(to) = branch_target(t, flags, 0xffff_fff0, bytes) {
                    assert!(t.bits == 64 || to < 1 << 32);
                    assert!(matches!(classify(t, flags, bytes), Class::CondBranch | Class::Jump | Class::Call));
                }
                if found.is_some_and(|f| f.kinds.contains(Kinds::FENCE)) {
                    assert!(!found.is_some_and(|f| f.kinds.contains(Kinds::STORE)));
                }
            }
        }
    }
}
