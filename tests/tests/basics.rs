//! Counts, values and addresses of the simplest guests, on every ISA.

use trapline_tests::{ALL, Isa, guest};

/// Instructions in one turn of `loop.S`: MIPS has a delay slot.
fn turn(isa: Isa) -> u64 {
    if matches!(isa, Isa::Mips | Isa::Mipsel) { 5 } else { 4 }
}

fn a_loop_of_1000_turns(isa: Isa) {
    let g = guest("loop", isa);
    let t = g.trace().code(7);
    let region = t.between("begin", "done");
    assert_eq!(region.insns, 1000 * turn(isa));
    assert_eq!((region.loads, region.stores, region.aborted), (1000, 1000, 0));
    let accesses = t.accesses("begin", "done");
    for (i, pair) in accesses.chunks(2).enumerate() {
        let value = Some(1000 - i as u128);
        assert!(pair[0].is_store() && !pair[1].is_store());
        for a in pair {
            assert_eq!((a.addr, a.size, a.value), (g.sym("buf"), 4, value), "turn {i}");
        }
    }
}

macro_rules! on_every_isa {
    ($($isa:ident)*) => { $(
        #[test]
        #[allow(non_snake_case)]
        fn $isa() {
            super::a_loop_of_1000_turns(trapline_tests::Isa::$isa);
        }
    )* };
}

mod every_instruction_and_value_of_a_loop {
    on_every_isa!(X86_64 I386 Aarch64 Arm Thumb Riscv64 Mipsel Mips Ppc64le S390x);
}

#[test]
fn the_list_of_isas_is_complete() {
    assert_eq!(ALL.len(), 10);
}
