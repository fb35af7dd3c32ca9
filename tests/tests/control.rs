//! Branches, calls, repeats and code that changes. x86_64.

use trapline_tests::{Isa, What, guest};

#[test]
fn exactly_200000_instructions_of_a_counted_loop() {
    let t = guest("x86_count", Isa::X86_64).run().counts().trace().code(0);
    let n = t.between("begin", "done");
    assert_eq!((n.insns, n.aborted, n.loads, n.stores), (200_000, 0, 0, 0));
}

#[test]
fn two_runs_give_the_same_counts() {
    let g = guest("x86_stores", Isa::X86_64);
    let run = || g.run().counts().trace().code(0);
    let (a, b) = (run(), run());
    // The program's own code; what the C library does before main depends on the auxiliary vector's random bytes.
    assert_eq!(a.between("main", "main.end"), b.between("main", "main.end"));
    assert_eq!(a.between("stores", "stores_end"), b.between("stores", "stores_end"));
    let g = guest("x86_helper_accesses", Isa::X86_64);
    let run = || g.run().counts().trace().code(0).counts;
    assert_eq!(run(), run());
}

#[test]
fn branches_calls_and_returns_go_where_they_go() {
    let g = guest("x86_branches", Isa::X86_64);
    let t = g.trace().code(0);
    let flow: Vec<String> = t.lines("begin", "end").into_iter().filter(|l| l.starts_with(['I', 'A'])).collect();
    let calls =
        "I begin,I nottak,I taken,I over,I sub,I ret,I icall,I sub,I ret,I mcall,I sub,I ret,I mjmp,I last,I done";
    assert_eq!(flow[..15].join(","), calls);
    // Each call stores where it comes back to, and each return loads it.
    let stack: Vec<(bool, u128)> = t
        .accesses("over", "end")
        .iter()
        .filter(|a| a.addr > g.sym("ptr2") + 8)
        .map(|a| (a.is_store(), a.value.unwrap()))
        .collect();
    let after = ["icall", "mcall", "mjmp"].map(|s| u128::from(g.sym(s)));
    let expected: Vec<_> = after.iter().flat_map(|a| [(true, *a), (false, *a)]).collect();
    assert_eq!(stack, expected);
}

#[test]
fn code_that_patches_the_next_instruction_stores_once_per_call() {
    let g = guest("x86_smc", Isa::X86_64);
    let t = g.trace().code(0);
    let lines = t.lines("0x50000000", "0x5000000a");
    let call = ["I 0x50000000", "W 0x50000005 1 =0x2", "I 0x50000004", "I 0x50000009"];
    let without_stack: Vec<&str> = lines.iter().map(|s| s.as_str()).filter(|l| !l.starts_with('R')).collect();
    assert_eq!(without_stack, [call, call].concat());
    // The bytes are those that ran: with 2 in them, both times.
    for e in &t.events {
        if let (0x5000_0004, What::Fetch(bytes)) = (e.pc, &e.what) {
            assert_eq!(**bytes, [0xb8, 2, 0, 0, 0]);
        }
    }
}

#[test]
fn code_rewritten_a_hundred_times_is_traced_as_it_ran() {
    let g = guest("x86_smc", Isa::X86_64);
    let t = g.trace().code(0);
    let bytes: Vec<Vec<u8>> = t
        .events
        .iter()
        .filter_map(|e| match &e.what {
            What::Fetch(bytes) if e.pc == 0x5000_0100 => Some(bytes.to_vec()),
            _ => None,
        })
        .collect();
    let expected: Vec<Vec<u8>> = (1..=100).map(|i| vec![0xb8, i, 0, 0, 0]).collect();
    assert_eq!(bytes, expected);
    assert_eq!(t.at("patch").stores, 100);
}
