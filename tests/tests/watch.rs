//! `watch` on a loop that stores 1000, 999, … 1 to `buf` (guests/loop.S), on hosts' and foreign byte orders.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Finished, Guest, Isa, guest, qemu, trapline, within};

fn watch(g: &Guest, args: &[&str]) -> Finished {
    qemu(g.isa.target(), "trace");
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "watch"]).args(args).arg("--").arg(&g.path);
    within(Duration::from_secs(600), &mut command).code(7)
}

#[test]
fn each_store_to_a_range_is_told_with_its_value_and_place() {
    for isa in [Isa::X86_64, Isa::Mips] {
        let g = guest("loop", isa);
        let buf = g.sym("buf");
        let f = watch(&g, &["--format", "json", "--addresses", &format!("{buf}-{}", buf + 4)]);
        let lines: Vec<Value> = f.err().lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        assert_eq!(lines.len(), 1000, "{isa:?}");
        for (i, l) in lines.iter().enumerate() {
            assert_eq!(l["value"], format!("{:#x}", 1000 - i), "{isa:?}: {l}");
            assert_eq!(l["addr"], format!("{buf:#x}"));
            assert_eq!(l["pc"], format!("{:#x}", g.sym("begin")));
            assert_eq!(l["size"], 4);
        }
    }
}

#[test]
fn a_store_that_reaches_into_the_range_counts_and_one_beside_it_does_not() {
    let g = guest("loop", Isa::X86_64);
    let buf = g.sym("buf");
    let count = |lo: u64, hi: u64| {
        let f = watch(&g, &["--addresses", &format!("{lo:#x}-{hi:#x}")]);
        f.err().lines().last().unwrap_or_default().to_string()
    };
    assert_eq!(count(buf + 3, buf + 4), "watch: 1000 stores");
    assert_eq!(count(buf + 4, buf + 8), "watch: 0 stores");
    assert_eq!(count(buf - 8, buf), "watch: 0 stores");
}

#[test]
fn symbols_of_the_program_have_addresses() {
    let g = guest("threads", Isa::X86_64);
    qemu("x86_64", "trace");
    let run = |symbol: &str| {
        let mut command = Command::new(trapline());
        command.args(["run", "--analyzer", "watch", "--symbol", symbol, "--"]).arg(&g.path);
        within(Duration::from_secs(600), &mut command).err()
    };
    let none = run("no_such_symbol");
    assert!(none.contains("no symbol 'no_such_symbol'") && none.contains("--addresses"), "{none}");
    let data = SYMBOL;
    let some = run(data);
    let last = some.lines().last().unwrap_or_default();
    assert!(last.starts_with("watch: ") && last != "watch: 0 stores", "{some}");
}

/// A variable that the threads write.
const SYMBOL: &str = "counter";
