//! Memory accesses: what a tracer of this kind loses, splits or doubles. x86_64 (other ISAs: `isas.rs`).

use trapline_tests::{Isa, Trace, guest};

#[test]
fn accesses_across_a_page_are_one_event_each() {
    let t = guest("x86_page_crossing", Isa::X86_64).trace().code(0);
    t.expect(
        "begin",
        "end",
        "I begin
         I store
         W 0x60000ffd 8 =0x1122334455667788
         I load
         R 0x60000ffd 8 =0x1122334455667788
         I wide
         W 0x60000ffd 16 =0x1122334455667788
         I wider
         R 0x60000ffd 16 =0x1122334455667788
         I rmw
         R 0x60000ffd 4 =0x55667788
         W 0x60000ffd 4 =0x55667789
         I hop
         I cross
         I cross+0x5
         I leave",
    );
}

#[test]
fn x87_accesses_are_one_event_of_ten_bytes() {
    let t = guest("x86_helper_accesses", Isa::X86_64).trace().code(0);
    // fldt and fstpt convert nothing: the 80 bits come out as they went in.
    t.expect(
        "begin",
        "fxs",
        "I begin
         R buf 10 =0x11111111111111111111
         I fst
         W buf+0x10 10 =0x11111111111111111111",
    );
}

#[test]
fn fxsave_is_seen_with_all_its_bytes() {
    let g = guest("x86_helper_accesses", Isa::X86_64);
    let t = g.trace().code(0);
    let accesses = t.accesses("fxs", "clear");
    let area = g.sym("buf") + 64;
    let mut written = [false; 512];
    for a in &accesses {
        assert!(a.is_store(), "fxsave loads nothing: {a:?}");
        for byte in a.addr..a.addr + u64::from(a.size) {
            let i = byte.checked_sub(area).filter(|i| *i < 512).expect("within the area") as usize;
            assert!(!written[i] || a.is_footprint(), "byte {i} is stored twice");
            written[i] = true;
        }
    }
    // SDM vol. 1, table 10-2: control and status words, MXCSR and its mask, eight 10-byte registers in 16-byte slots, sixteen
    // 16-byte ones.
    let must = (0..5).chain(24..32).chain((0..8).flat_map(|r| 32 + 16 * r..32 + 16 * r + 10)).chain(160..416);
    for i in must {
        assert!(written[i], "byte {i} of the area is stored by fxsave, and no event says so");
    }
    assert!(written[464..].iter().all(|w| !w), "bytes 464 to 511 are the program's own");
    assert_eq!(t.at("fxs").insns, 1);
}

#[test]
fn string_instructions_with_zero_and_three_turns() {
    let t = guest("x86_helper_accesses", Isa::X86_64).trace().code(0);
    t.expect(
        "zero",
        "xadd",
        "I zero
         I zero+0x2
         I zero+0x7
         I zero+0xe
         I copy
         R buf 1 =0x11
         W buf+0x200 1 =0x11
         R buf+0x1 1 =0x11
         W buf+0x201 1 =0x11
         R buf+0x2 1 =0x11
         W buf+0x202 1 =0x11
         I copy+0x2
         I copy+0x9",
    );
}

#[test]
fn atomics_and_wide_moves() {
    let t = guest("x86_helper_accesses", Isa::X86_64).trace().code(0);
    t.expect(
        "xadd",
        "done",
        "I xadd
         R buf 4 =0x11111111
         W buf 4 =0x11111112
         I cas
         R buf+0x4 4 =0x11111111
         W buf+0x4 4 =0x0
         I mov16
         R buf 16 =0x11111111111111110000000011111112
         I sto16
         W buf2+0xffd 16 =0x11111111111111110000000011111112
         I sto16+0x7
         I sto16+0xc
         I cas16
         R buf 16 =0x11111111111111110000000011111112
         W buf 16 =0x11111111111111110000000011111112",
    );
}

#[test]
fn masked_lanes_touch_nothing() {
    let t = guest("x86_gather", Isa::X86_64).trace().code(0);
    t.expect(
        "begin",
        "sload",
        "I begin
         R buf 4 =0x100
         R buf+0x20 4 =0x108
         I none
         I none+0x5
         R mask 16 =0x800000000000000080000000 # the 128-bit reload of the mask
         I some
         W buf 4 =0x100
         W buf+0x8 4 =0x108",
    );
}

#[test]
fn masked_load_reads_only_its_active_lanes() {
    let t = guest("x86_gather", Isa::X86_64).trace().code(0);
    t.expect("sload", "ymm", "I sload\nR buf 4 =0x100\nR buf+0x8 4 =0x108");
}

#[test]
fn access_of_32_bytes_is_its_parts_in_address_order() {
    let t = guest("x86_gather", Isa::X86_64).trace().code(0);
    t.expect(
        "ymm",
        "done",
        "I ymm
         R buf 16 =0x103000001080000010100000100
         R buf+0x10 16 =0x107000001060000010500000104",
    );
}

fn stores(t: &Trace) -> Vec<(u64, u32, Option<u128>)> {
    t.accesses("stores", "stores_ret").iter().map(|a| (a.addr, a.size, a.value)).collect()
}

#[test]
fn five_thousand_stores_are_the_same_with_a_second_thread() {
    let g = guest("x86_stores", Isa::X86_64);
    let t = g.run().values().only("stores", "stores_end").trace().code(0);
    let all = stores(&t);
    let once: Vec<_> = (0..5000u64).map(|i| (g.sym("area") + 4 * i, 4, Some(u128::from(i)))).collect();
    assert_eq!(all.len(), 10000);
    assert!(all[..5000] == once && all[5000..] == once);
    assert_eq!(t.between("stores", "stores_end").insns, 2 * 5001);
}

/// SDM, CMPXCHG: "The destination operand is written back if the comparison fails; the processor never produces a locked read
/// without also producing a locked write."
#[test]
fn compare_and_swap_is_the_same_with_a_second_thread() {
    let t = guest("x86_cas", Isa::X86_64).run().values().only("cas", "cas_end").trace().code(0);
    let lines = t.lines("yes16", "cas_out");
    let accesses: Vec<&str> = lines.iter().map(|l| l.as_str()).filter(|l| !l.starts_with('I')).collect();
    let once = [
        "R cell 16 =0x60000000000000005",
        "W cell 16 =0x80000000000000007",
        "R cell 16 =0x80000000000000007",
        "W cell 16 =0x80000000000000007",
        "R cell 8 =0x7",
        "W cell 8 =0x7",
        "R cell 8 =0x7",
        "W cell 8 =0x800000007",
        "R cell 4 =0x7",
        "W cell 4 =0x7",
        "R cell 4 =0x7",
        "W cell 4 =0x8",
    ];
    assert_eq!(accesses[..12], once, "with one thread");
    assert_eq!(accesses[12..], once, "with two threads");
}

#[test]
fn a_load_at_the_end_of_the_address_space_is_one_event() {
    let t = guest("x86_top", Isa::X86_64).trace().code(0);
    t.expect("begin", "done", "I begin\nR 0x7fffffffeff8 8 =0x0");
    let t = guest("x86_top", Isa::I386).trace().code(0);
    t.expect("begin", "done", "I begin\nR 0xffffcffc 4 =0x0");
}
