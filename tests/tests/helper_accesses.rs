//! Accesses that QEMU makes in helpers, and those of atomics: each is reported, once, with what the ISA's manual says.
//!
//! A case is a label of the guest and the accesses of the instructions from there to the next label, in order.

use trapline_tests::{ALL, Isa, Trace, guest};

/// Compares the accesses between the labels of `cases` (the last is the end) with what they should be.
#[track_caller]
fn check(t: &Trace, cases: &[(&str, &str)], end: &str) {
    for (i, (label, expected)) in cases.iter().enumerate() {
        let next = cases.get(i + 1).map_or(end, |c| c.0);
        let lines: Vec<String> = t.lines(label, next).into_iter().filter(|l| !l.starts_with('I')).collect();
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        assert_eq!(lines, expected, "{label}");
        assert_eq!(t.at(label).insns, 1, "{label} retires once");
    }
}

#[test]
fn x86_state_is_saved_and_restored_by_components() {
    // SDM vol. 1, 8.1.10 (28 or 14 bytes of environment, 80 of registers), table 10-2 (FXSAVE), 13.4 (XSAVE).
    for (isa, xmm) in [(Isa::X86_64, 256), (Isa::I386, 128)] {
        let t = guest("x86_state", isa).trace().code(0);
        let fx = |place: u64, dir: char, mxcsr: Option<u32>| {
            let at = |offset| match place + offset {
                0 => "area".to_string(),
                n => format!("area+{n:#x}"),
            };
            let mut all = format!("{dir} {} 24 footprint\n", at(0));
            if let Some(size) = mxcsr {
                all += &format!("{dir} {} {size} footprint\n", at(24));
            }
            all += &format!("{dir} {} 128 footprint\n", at(32));
            if mxcsr.is_some() {
                all += &format!("{dir} {} {xmm} footprint\n", at(160));
            }
            all
        };
        let header = |place: u64| format!("R area+{place:#x} 8 footprint\nW area+{place:#x} 8 footprint");
        check(
            &t,
            &[
                ("begin", "W area 28 footprint"),
                ("ldenv", "R area 28 footprint"),
                ("fsv", "W area 108 footprint"),
                ("frs", "R area 108 footprint"),
                ("env16", "W area+0x80 14 footprint"),
                ("bcd", "R bcdin 10 =0x80000000000087654321"),
                ("bst", "W area+0xc0 10 =0x80000000000087654321"),
                ("fxs", &fx(0, 'W', Some(8))),
                ("fxr", &fx(0, 'R', Some(4))),
                ("xsv", &(fx(0x400, 'W', Some(8)) + &header(0x600))),
                ("xrs", &("R area+0x600 24 footprint\n".to_string() + &fx(0x400, 'R', Some(4)))),
                ("xsv1", &(fx(0x800, 'W', None) + &header(0xa00))),
                ("xrs1", &("R area+0xa00 24 footprint\n".to_string() + &fx(0x800, 'R', None))),
                ("neg", "R area+0xe00 4 =0x1\nW area+0xe00 4 =0xffffffff"),
                ("not", "R area+0xe00 4 =0xffffffff\nW area+0xe00 4 =0x0"),
                ("dec", "R area+0xe00 4 =0x0\nW area+0xe00 4 =0xffffffff"),
                ("bts", "R area+0xe00 4 =0xffffffff\nW area+0xe00 4 =0xffffffff"),
                ("xchg", "R area+0xe00 4 =0xffffffff\nW area+0xe00 4 =0x1"),
                // The old value is written back.
                ("cmpno", "R area+0xe08 8 =0x1122334455667788\nW area+0xe08 8 =0x1122334455667788"),
            ],
            "done",
        );
    }
}

#[test]
fn s390x_operands_in_storage() {
    // Principles of Operation, chapters 7 and 8: both operands are fetched, the first is stored.
    let t = guest("s390x_storage", Isa::S390x).trace().code(0);
    check(
        &t,
        &[
            // A field with itself is cleared, whatever it held.
            ("begin", "W dst 8 =0x0\nW dst+0x8 8 =0x0"),
            ("clear", "W dst 40 footprint"),
            ("xc2", "R src 8 footprint\nR dst 8 footprint\nW dst 8 footprint"),
            ("nc", "R src 4 footprint\nR dst 4 footprint\nW dst 4 footprint"),
            ("oc", "R src 4 footprint\nR dst 4 footprint\nW dst 4 footprint"),
            ("mvn", "R src 3 footprint\nR dst 3 footprint\nW dst 3 footprint"),
            ("mvz", "R src 3 footprint\nR dst 3 footprint\nW dst 3 footprint"),
            ("mvcin", "R src 4 footprint\nW dst 4 footprint"),
            // The rightmost digit of the first operand stays.
            ("mvo", "R dst+0x3 1 =0x11\nR src 2 footprint\nW dst 4 footprint"),
            ("fill", "R dst 7 footprint\nW dst+0x1 7 footprint"),
            // Ends at the first difference.
            ("clc", "R src 1 =0x11\nR data 1 =0x11\nR src+0x1 1 =0x22\nR data+0x1 1 =0x21"),
            ("clc4", "R src 4 =0x11223344\nR data 4 =0x11210000"),
            (
                "tr",
                "R data 1 =0x11\nR table+0x11 1 =0x5a\nW data 1 =0x5a
                 R data+0x1 1 =0x21\nR table+0x21 1 =0xa5\nW data+0x1 1 =0xa5",
            ),
            (
                "pack",
                "R digits+0x3 1 =0xc4\nW dst+0x2 1 =0x4c\nR digits+0x2 1 =0xf3\nR digits+0x1 1 =0xf2
                 W dst+0x1 1 =0x23\nR digits 1 =0xf1\nW dst 1 =0x1",
            ),
            // One source byte makes two digits and is loaded once.
            ("unpk", "R packed+0x2 1 =0x4c\nW dst+0x2 1 =0xc4\nR packed+0x1 1 =0x23\nW dst+0x1 1 =0xf3\nW dst 1 =0xf2"),
            ("mvst", "R string 4 footprint\nW dst 4 footprint"),
            ("mvcl", "R src 4 footprint\nW dst 4 footprint\nW dst+0x4 2 footprint"),
            ("ex", "R src 8 footprint\nW dst 8 footprint"),
            ("ex2", "R dst 1 =0x11\nW dst 1 =0x31"),
            ("vll", "R src 5 =0x1122334455"),
            ("vstl", "W dst 5 =0x1122334455"),
            ("cdsgno", "R quad 16 =0x1020304050607081112131415161718"),
            ("cdsg", "R quad 16 =0x1020304050607081112131415161718\nW quad 16 =0xa000000000000000b"),
            ("csstno", "R parm+0x10 4 =0x9\nR parm 4 =0x7\nR word 4 =0x3"),
            ("csst", "R parm+0x10 4 =0x9\nR parm 4 =0x7\nR word 4 =0x3\nW word 4 =0x7\nW dst 4 =0x9"),
            ("ts", "R word 1 =0x0\nW word 1 =0xff"),
            ("laa", "R word 4 =0xff000007\nW word 4 =0xff00000a"),
        ],
        "done",
    );
}

#[test]
fn aarch64_atomics_and_memory_operations() {
    let t = guest("aarch64_atomics", Isa::Aarch64).trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf 16 =0xf0e0d0c0b0a09080706050403020100"),
            ("stxp", "W buf 16 =0x80000000000000007"),
            ("stxp2", ""),
            ("ldxrb", "R buf 1 =0x7"),
            ("stxrb", "W buf 1 =0x8"),
            ("ldaxp", "R buf 8 =0x8"),
            ("stlxp", "W buf 8 =0x800000007"),
            ("casp", "R buf 16 =0x80000000800000007"),
            ("casp2", "R buf 16 =0x80000000800000007\nW buf 16 =0x80000000000000007"),
            ("ldadd", "R buf+0x10 4 =0x5\nW buf+0x10 4 =0xc"),
            ("smax", "R buf+0x10 1 =0xc\nW buf+0x10 1 =0xc"),
            ("swp", "R buf+0x10 8 =0xc\nW buf+0x10 8 =0x8"),
            // Prologue, main part and epilogue together.
            ("set", "W buf+0x20 24 footprint"),
            ("cpy", "R buf+0x20 20 footprint\nW buf 20 footprint"),
        ],
        "done",
    );
}

#[test]
fn aarch64_predicated_vectors_by_active_element() {
    let t = guest("aarch64_sve", Isa::Aarch64).trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf 4 =0x100\nR buf+0x8 4 =0x102"),
            ("st", "W out 4 =0x100\nW out+0x8 4 =0x102"),
            ("gather", "R buf 4 =0x100\nR buf+0x18 4 =0x106"),
            ("scat", "W out 4 =0x100\nW out+0xc 4 =0x0\nW out+0x18 4 =0x106\nW out+0x24 4 =0x0"),
            ("ld2", "R buf 4 =0x100\nR buf+0x4 4 =0x101\nR buf+0x10 4 =0x104\nR buf+0x14 4 =0x105"),
            ("bytes", "R buf 1 =0x0\nR buf+0x1 1 =0x1\nR buf+0x2 1 =0x0\nR buf+0x3 1 =0x0"),
            ("none", ""),
            ("first", "R edge 4 =0x77777777\nR edge+0x4 4 =0x77777777"),
            ("ffgat", "R buf 4 =0x100\nR buf+0x18 4 =0x106"),
        ],
        "done",
    );
}

#[test]
fn riscv_vectors_by_active_element() {
    let g = guest("riscv_vectors", Isa::Riscv64);
    let t = g.trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf 4 =0x100\nR buf+0x4 4 =0x101\nR buf+0x8 4 =0x102\nR buf+0xc 4 =0x103"),
            ("mask", "R buf 4 =0x100\nR buf+0x8 4 =0x102"),
            ("st", "W out 4 =0x100\nW out+0x8 4 =0x102"),
            ("stride", "R buf 4 =0x100\nR buf+0xc 4 =0x103\nR buf+0x18 4 =0x106\nR buf+0x24 4 =0x109"),
            ("index", "R buf 4 =0x100\nR buf+0x10 4 =0x104"),
            ("scat", "W out 4 =0x100\nW out+0x8 4 =0x0\nW out+0x10 4 =0x104\nW out+0x18 4 =0x0"),
            (
                "seg",
                "R buf 4 =0x100\nR buf+0x4 4 =0x101\nR buf+0x8 4 =0x102\nR buf+0xc 4 =0x103
                 R buf+0x10 4 =0x104\nR buf+0x14 4 =0x105\nR buf+0x18 4 =0x106\nR buf+0x1c 4 =0x107",
            ),
            // Its exit code says that two elements were loaded, as without tracing.
            ("ff", "R edge 4 =0x77777777\nR edge+0x4 4 =0x77777777"),
        ],
        "whole",
    );
    // The length of a vector register is the CPU's.
    let stored: u32 = t.accesses("whole", "zero").iter().map(|a| a.size).sum();
    assert!(stored >= 16 && stored.is_power_of_two(), "{stored}");
    check(
        &t,
        &[
            ("zero", "W out 64 footprint"),
            ("amo", "R buf 8 =0x10100000100\nW buf 8 =0xc"),
            ("max", "R buf 4 =0xc\nW buf 4 =0xc"),
        ],
        "done",
    );
}

#[test]
fn ppc_quadwords_and_vectors() {
    let t = guest("ppc_vectors", Isa::Ppc64le).trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf 16 =0xf0e0d0c0b0a09080706050403020100"),
            ("stq", "W buf 16 =0x10000000000000002"),
            ("stq2", ""),
            ("lbarx", "R buf 1 =0x2"),
            ("stb", "W buf 1 =0x2"),
            ("lvx", "R buf+0x40 16 =0x1f1e1d1c1b1a19181716151413121110"),
            ("stvx", "W buf 16 =0x1f1e1d1c1b1a19181716151413121110"),
            ("lxv", "R buf+0x40 16 =0x1f1e1d1c1b1a19181716151413121110"),
            ("stxv", "W buf 16 =0x1f1e1d1c1b1a19181716151413121110"),
        ],
        "lxvl",
    );
    let bytes = |from, to| -> Vec<(u64, u32)> { t.accesses(from, to).iter().map(|a| (a.addr, a.size)).collect() };
    let (buf, g) = (t.symbols.get("buf"), |start: u64| (0..5).map(|i| (start + i, 1)).collect::<Vec<_>>());
    assert_eq!(bytes("lxvl", "stxvl"), g(buf + 64));
    assert_eq!(bytes("stxvl", "lwat"), g(buf));
    check(
        &t,
        &[
            ("lwat", "R buf 4 =0x13121110\nW buf 4 =0x13121113"),
            ("lvewx", "R buf+0x40 4 =0x13121110"),
            // Invalidates, and loads nothing.
            ("icbi", ""),
        ],
        "done",
    );
}

#[test]
fn atomics_are_the_same_with_a_second_thread() {
    for isa in ALL {
        let t = guest("atomics", isa).run().values().only("ops", "ops_end").trace().code(0);
        let lines = t.lines("ops", "ops_end");
        assert!(lines.len() > 40, "{isa:?}: {}", lines.len());
        let (one, two) = lines.split_at(lines.len() / 2);
        assert_eq!(one, two, "{isa:?}");
        // What the program sees is what is reported: every value loaded from a cell is what was stored there last.
        let mut cells = std::collections::HashMap::new();
        for a in t.accesses("ops", "ops_end") {
            if a.is_store() {
                cells.insert((a.addr, a.size), a.value);
            } else if let Some(last) = cells.get(&(a.addr, a.size)) {
                assert_eq!(*last, a.value, "{isa:?}: {:#x}", a.addr);
            }
        }
    }
}

/// MIPS64 Architecture, LDL, LDR, SDL, SDR: which bytes of the aligned doubleword belong to the access.
#[test]
fn mips64_doublewords_in_two_parts() {
    let t = guest("mips64_parts", Isa::Mips64el).trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf+0x8 3 =0xa0908"),
            ("ldr", "R buf+0x3 5 =0x706050403"),
            // The register: 0x0a0908 above 0x0706050403.
            ("sdl", "W buf+0x18 3 =0xa0908"),
            ("sdr", "W buf+0x23 5 =0x706050403"),
            ("lwl", "R buf 2 =0x100"),
            ("lwr", "R buf+0x1 3 =0x30201"),
            ("lld", "R buf 8 =0x706050403020100"),
            ("scd", "W buf 8 =0x7"),
            ("scd2", ""),
            ("likely", ""),
        ],
        "done",
    );
}

#[test]
fn ppc_multiple_words_and_strings() {
    let t = guest("ppc_multiple", Isa::Ppc).trace().code(0);
    check(
        &t,
        &[
            ("begin", "R buf 4 =0x1020304\nR buf+0x4 4 =0x5060708\nR buf+0x8 4 =0x90a0b0c"),
            ("stmw", "W buf+0x20 4 =0x5060708\nW buf+0x24 4 =0x90a0b0c"),
            ("lswi", "R buf 4 =0x1020304\nR buf+0x4 2 =0x506\nR buf+0x6 1 =0x7"),
            ("stswi", "W buf 4 =0x1020304\nW buf+0x4 2 =0x506"),
            ("lwarx", "R buf 4 =0x1020304"),
            ("sc", "W buf 4 =0x7"),
            ("sc2", ""),
            ("icbi", ""),
            ("cross", "W buf+0x3 4 =0x7"),
        ],
        "zero",
    );
    // The size of a block is the CPU's.
    let zero = t.accesses("zero", "done");
    assert!(zero.len() == 1 && zero[0].is_store() && zero[0].is_footprint());
    assert!(zero[0].addr == t.symbols.get("buf") && zero[0].size.is_power_of_two() && zero[0].size >= 32);
}

#[test]
fn riscv_conditional_stores() {
    for isa in [Isa::Riscv64, Isa::Riscv32] {
        let t = guest("riscv_conditional", isa).trace().code(0);
        check(
            &t,
            &[
                ("begin", "R buf 4 =0x80000001"),
                ("sc", "W buf 4 =0x7"),
                ("sc2", ""),
                ("lr2", "R buf 4 =0x7"),
                ("sc3", ""),
                ("add", "R buf 4 =0x7\nW buf 4 =0xe"),
                ("swap", "R buf 4 =0xe\nW buf 4 =0x7"),
                ("minu", "R buf 4 =0x7\nW buf 4 =0x0"),
            ],
            "done",
        );
    }
}
