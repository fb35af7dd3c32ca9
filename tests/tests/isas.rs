//! What is particular to an ISA: delay slots, instruction lengths, exclusives, block moves, byte order, high addresses.

use trapline_tests::{Isa, Trace, What, guest};

#[test]
fn mips_delay_slots_run_once_per_branch() {
    for isa in [Isa::Mipsel, Isa::Mips] {
        let t = guest("mips_delay_slots", isa).trace().code(0);
        t.expect(
            "begin",
            "skip",
            "I begin
             I begin+0x4
             I slot
             W buf 4 =0x2
             I begin
             I begin+0x4
             I slot
             W buf 4 =0x1
             I begin
             I begin+0x4
             I slot
             W buf 4 =0x0
             I slot+0x4
             I slot2
             I next
             I own
             I own # the branch's target is its own slot
             I likely # the slot of a branch-likely that is not taken is not executed",
        );
    }
}

#[test]
fn mips_conditional_store_that_fails_stores_nothing() {
    for isa in [Isa::Mipsel, Isa::Mips] {
        let t = guest("mips_delay_slots", isa).trace().code(0);
        t.expect(
            "skip",
            "part",
            "I skip
             R buf+0x8 4 =0x22222222
             I inc
             I sc
             W buf+0x8 4 =0x22222223
             I lone",
        );
    }
}

/// MIPS32 Architecture, LWL/LWR/SWL/SWR: which bytes of the aligned word belong to the access.
#[test]
fn mips_partial_accesses_touch_the_bytes_that_the_isa_says() {
    let touched = |isa| {
        let t = guest("mips_delay_slots", isa).trace().code(0);
        t.lines("part", "movz_").into_iter().map(|l| l.split(" =").next().unwrap().to_string()).collect::<Vec<_>>()
    };
    // Little-endian: lwl at 4n takes 1 byte, lwr at 4n+1 takes 3; swl at 4n+1 stores 2, swr 3.
    assert_eq!(
        touched(Isa::Mipsel),
        ["I part", "R buf+0x4 1", "I lwr_", "R buf+0x1 3", "I swl_", "W buf+0xc 2", "I swr_", "W buf+0xd 3"]
    );
    // Big-endian: lwl at 4n takes 4 bytes, lwr at 4n+1 takes 2; swl at 4n+1 stores 3, swr 2.
    assert_eq!(
        touched(Isa::Mips),
        ["I part", "R buf+0x4 4", "I lwr_", "R buf 2", "I swl_", "W buf+0xd 3", "I swr_", "W buf+0xc 2"]
    );
}

fn lengths(t: &Trace, from: &str, to: &str) -> Vec<(String, usize)> {
    let range = t.symbols.get(from)..t.symbols.get(to);
    t.events
        .iter()
        .filter_map(|e| match &e.what {
            What::Fetch(bytes) if range.contains(&e.pc) => Some((t.symbols.name(e.pc), bytes.len())),
            _ => None,
        })
        .collect()
}

#[test]
fn thumb_pcs_have_bit_0_clear_and_lengths_are_2_or_4() {
    let t = guest("arm_thumb", Isa::Arm).trace().code(0);
    t.expect(
        "thumb",
        "end",
        "I thumb
         I wide
         W buf+0x4 4 =0x7
         I short
         R buf+0x4 4 =0x7
         I short+0x2
         I it
         I yes
         W buf 4 =0x7
         I no
         I yes2
         R buf 4 =0x7
         I ret",
    );
    let expected = [
        ("thumb", 2),
        ("wide", 4),
        ("short", 2),
        ("short+0x2", 2),
        ("it", 2),
        ("yes", 2),
        ("no", 2),
        ("yes2", 4),
        ("ret", 2),
    ];
    assert_eq!(lengths(&t, "thumb", "end"), expected.map(|(n, l)| (n.to_string(), l)));
    let a32 = lengths(&t, "call", "done");
    assert_eq!(a32, [("call".to_string(), 4), ("back".to_string(), 4)]);
}

#[test]
fn riscv_compressed_instructions_have_two_bytes() {
    let t = guest("riscv_compressed", Isa::Riscv64).trace().code(0);
    let expected = [("begin", 2), ("load", 2), ("wide", 4), ("wide+0x4", 4), ("lr", 4)];
    assert_eq!(lengths(&t, "begin", "sc"), expected.map(|(n, l)| (n.to_string(), l)));
    t.expect(
        "begin",
        "lr",
        "I begin
         W buf+0x4 4 =0x7
         I load
         R buf+0x4 4 =0x7
         I wide
         W buf+0x8 4 =0x7
         I wide+0x4",
    );
}

#[test]
fn riscv_conditional_store_that_fails_stores_nothing() {
    let t = guest("riscv_compressed", Isa::Riscv64).trace().code(0);
    t.expect(
        "lr",
        "done",
        "I lr
         R buf+0xc 4 =0x0
         I sc
         W buf+0xc 4 =0x7
         I sc2
         I amo
         R buf+0xc 4 =0x7
         W buf+0xc 4 =0xe",
    );
}

#[test]
fn arm_exclusive_store_that_fails_stores_nothing() {
    for isa in [Isa::Aarch64, Isa::Arm, Isa::Thumb] {
        let t = guest("arm_exclusive", isa).trace().code(0);
        t.expect(
            "begin",
            "done",
            "I begin
             R buf 4 =0x33333333
             I sc
             W buf 4 =0x7
             I sc2",
        );
    }
}

#[test]
fn ppc_conditional_store_that_fails_stores_nothing() {
    let t = guest("ppc_blocks", Isa::Ppc64le).trace().code(0);
    t.expect("lwarx", "lxv", "I lwarx\nR buf 4 =0x0\nI sc\nW buf 4 =0x7\nI sc2");
}

/// The bytes that are stored in a range, each once, without regard to how they are divided.
#[track_caller]
fn stored(t: &Trace, from: &str, to: &str, start: u64, len: u64) {
    let mut bytes = vec![0; len as usize];
    for a in t.accesses(from, to).iter().filter(|a| a.is_store()) {
        for byte in a.addr..a.addr + u64::from(a.size) {
            assert!((start..start + len).contains(&byte), "{byte:#x} is outside");
            bytes[(byte - start) as usize] += 1;
        }
    }
    assert!(bytes.iter().all(|n| *n == 1), "each byte once: {bytes:?}");
}

#[test]
fn dcbz_and_dc_zva_store_a_whole_block() {
    let g = guest("ppc_blocks", Isa::Ppc64le);
    let t = g.trace().code(0);
    stored(&t, "begin", "lwarx", g.sym("buf"), 128);
    let g = guest("aarch64_vectors", Isa::Aarch64);
    let t = g.trace().code(0);
    // DCZID_EL0 of QEMU's default user-mode CPU: 2^(2+BS) bytes; what is stored starts at `out`, which is aligned to more.
    let len = t.accesses("zva", "done").iter().map(|a| u64::from(a.size)).sum();
    assert!(len == 64 || len == 512, "{len}");
    stored(&t, "zva", "done", g.sym("out"), len);
}

#[test]
fn aarch64_vector_pairs_and_structures_have_all_their_bytes() {
    let g = guest("aarch64_vectors", Isa::Aarch64);
    let t = g.trace().code(0);
    let (low, high) = (0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100, 0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110);
    for (from, to, base, store) in [("begin", "stp", "buf", false), ("stp", "ld4", "out", true)] {
        let accesses: Vec<_> =
            t.accesses(from, to).iter().map(|a| (a.is_store(), a.addr, a.size, a.value.unwrap())).collect();
        let base = g.sym(base);
        assert_eq!(accesses, [(store, base, 16, low), (store, base + 16, 16, high)], "{from}");
    }
    // ld4 de-interleaves 64 bytes: together the accesses are these bytes, in any division.
    let mut loaded = vec![None; 64];
    for a in t.accesses("ld4", "pair") {
        for i in 0..u64::from(a.size) {
            let byte = (a.value.unwrap() >> (8 * i)) as u8;
            assert_eq!(loaded[(a.addr + i - g.sym("buf")) as usize].replace(byte), None);
        }
    }
    assert_eq!(loaded, (0..64).map(Some).collect::<Vec<_>>());
}

#[test]
fn aarch64_pair_is_all_of_its_sixteen_bytes() {
    let g = guest("aarch64_vectors", Isa::Aarch64);
    let t = g.trace().code(0);
    let mut value = 0u128;
    let mut size = 0;
    for a in t.accesses("pair", "casno").iter().filter(|a| !a.is_store()) {
        value |= a.value.unwrap() << (8 * (a.addr - g.sym("buf")));
        size += a.size;
    }
    assert_eq!((size, value), (16, 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100));
}

#[test]
fn compare_and_swap_that_fails_stores_nothing_where_the_isa_says_so() {
    let t = guest("aarch64_vectors", Isa::Aarch64).trace().code(0);
    t.expect(
        "casno",
        "zva",
        "I casno
         R buf 8 =0x706050403020100
         I casyes
         R buf 8 =0x706050403020100
         W buf 8 =0x706050403020100",
    );
}

#[test]
fn s390x_block_moves_add_up() {
    let g = guest("s390x_blocks", Isa::S390x);
    let t = g.trace().code(0);
    stored(&t, "begin", "stm", g.sym("out"), 100);
    let loads: u32 = t.accesses("begin", "stm").iter().filter(|a| !a.is_store()).map(|a| a.size).sum();
    assert_eq!(loads, 100);
    stored(&t, "stm", "lm", g.sym("out"), 32);
    let loads: Vec<_> = t.accesses("lm", "csno").iter().map(|a| a.value).collect();
    assert_eq!(loads, [Some(0x1111_1111_1111_1111); 4]);
}

#[test]
fn s390x_compare_and_swap_stores_only_if_equal() {
    let t = guest("s390x_blocks", Isa::S390x).trace().code(0);
    // The first fails and loads what is there into r3, with which the second succeeds.
    t.expect(
        "csno",
        "done",
        "I csno
         R buf 4 =0x11111111
         I csyes
         R buf 4 =0x11111111
         W buf 4 =0x7",
    );
}

#[test]
fn big_endian_values_are_the_numbers_that_the_program_sees() {
    for (isa, step) in [(Isa::Mips, 4), (Isa::S390x, 0)] {
        let t = guest("big_endian", isa).trace().code(0);
        let lines: Vec<String> = t.lines("begin", "done").into_iter().filter(|l| !l.starts_with('I')).collect();
        let mut expected = vec![
            "W buf 4 =0x1020304",
            "R buf 4 =0x1020304",
            "W buf+0x4 2 =0x304",
            "R buf+0x4 2 =0x304",
            "W buf+0x6 1 =0x4",
            "R buf+0x6 1 =0x4",
            "R buf 1 =0x1",
        ];
        if step == 0 {
            expected.extend(["W buf+0x8 8 =0x506070801020304", "R buf+0x8 8 =0x506070801020304"]);
        }
        assert_eq!(lines, expected, "{isa:?}");
    }
}

#[test]
fn addresses_above_2_gib_of_32_bit_guests_are_zero_extended() {
    for isa in [Isa::I386, Isa::Arm] {
        let g = guest("high", isa);
        assert!(g.sym("begin") >= 0x9000_0000 && g.sym("buf") >= 0x9000_0000);
        let t = g.trace().code(0);
        assert_eq!(
            t.lines("begin", "call"),
            ["I begin", "W buf 4 =0x89abcdef", "I load", "R buf 4 =0x89abcdef"],
            "{isa:?}"
        );
        assert!(t.counts.keys().all(|pc| *pc <= 0xffff_ffff));
        assert_eq!(t.at("sub").insns, 1);
    }
}
