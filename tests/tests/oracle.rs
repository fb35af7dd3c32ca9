//! The stream of a run equals, event by event and value by value, what a QEMU plugin logs in the same run.

use trapline_tests::oracle::{Compared, Guest, compare, plugin};
use trapline_tests::{ALL, Isa, guest, qemu, scratch};

/// Compares, and demands that there was something to compare.
#[track_caller]
fn agrees(target: &str, program: &[&str], at_least: u64) -> Compared {
    let dir = scratch();
    let c = compare(&qemu(target, "trace"), plugin(), dir.path(), Guest::Program(program))
        .expect("the run can be compared");
    if let Some(d) = &c.difference {
        panic!("{program:?}: {d}");
    }
    assert!(c.status.is_some_and(|s| s.success()), "{program:?} ended with {:?}", c.status);
    assert!(
        c.insns >= at_least && c.accesses >= at_least / 10,
        "{program:?}: only {} instructions, {} accesses",
        c.insns,
        c.accesses
    );
    c
}

fn on_all(name: &str, at_least: u64, says: &str) {
    for isa in ALL {
        let g = guest(name, isa);
        let c = agrees(isa.target(), &[&g.path.to_string_lossy()], at_least);
        assert_eq!(String::from_utf8_lossy(&c.output).trim_end(), says, "{name} on {isa:?}");
    }
}

#[test]
fn every_isa_sorts_computes_and_copies_as_the_plugin_says() {
    for isa in ALL {
        let g = guest("work", isa);
        agrees(isa.target(), &[&g.path.to_string_lossy()], 1_000_000);
    }
}

#[test]
fn signals_and_faults_lose_and_double_nothing_on_every_isa() {
    on_all("signals", 1_000_000, "1000 1");
}

#[test]
fn threads_lose_and_double_nothing_on_every_isa() {
    on_all("threads", 500_000, "40000 40000");
}

#[test]
fn distribution_programs_agree() {
    agrees("x86_64", &["/usr/bin/sha256sum", "/bin/bash"], 10_000_000);
    agrees("x86_64", &["/usr/bin/sort", "/etc/services", "/etc/passwd"], 300_000);
    agrees("x86_64", &["/usr/bin/gzip", "-c", "/etc/services"], 500_000);
    agrees("x86_64", &["/usr/bin/perl", "-e", "for (1..3000) { $h{$_ % 100} .= $_ } print length $h{7}"], 2_000_000);
}

#[test]
fn forked_and_executed_children_agree() {
    let script =
        "for i in 1 2 3; do echo $i; done; x=$(echo hi); echo $x; /bin/ls / >/dev/null; cat /etc/passwd | grep root";
    agrees("x86_64", &["/bin/bash", "-c", script], 1_000_000);
}

#[test]
fn the_comparison_finds_a_difference_where_there_is_one() {
    // Without the values the two cannot agree: every access differs.
    let g = guest("loop", Isa::X86_64);
    let dir = scratch();
    let c = compare(&qemu("x86_64", "count"), plugin(), dir.path(), Guest::Program(&[&g.path.to_string_lossy()]));
    // `count` knows no option `values`: QEMU refuses, which is an error too.
    assert!(c.is_err() || c.is_ok_and(|c| c.difference.is_some()));
}
