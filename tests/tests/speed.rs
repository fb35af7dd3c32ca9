//! What must not become slower: instructions of the code that is emitted for a block, and of the loops that read it. Counted, not timed, so that a busy
//! machine changes nothing. x86_64 hosts only: others have other instructions.
#![cfg(target_arch = "x86_64")]

use iced_x86::{Decoder, DecoderOptions};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Guest, Isa, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

/// Turns of the guest, each of two blocks.
const TURNS: u64 = 100_000;

/// Instructions that QEMU generates for the block at `pc`, with what it does out of line.
fn emitted(g: &Guest, analyzer: &str, options: &str, pc: u64) -> usize {
    let folder = scratch();
    let log = folder.path().join("log");
    let mut command = Command::new(qemu("x86_64", analyzer));
    if analyzer != "plain" {
        command.arg("-trapline").arg(format!("socket={}{options}", folder.path().join("s").display()));
    }
    within(LIMIT, command.args(["-d", "out_asm", "-D"]).arg(&log).arg(&g.path)).code(0);
    let text = std::fs::read_to_string(&log).expect("QEMU writes its log");
    let start = format!("  -- guest addr {pc:#018x} + tb prologue");
    let lines = text.lines().skip_while(|l| *l != start);
    // QEMU was built without a disassembler: the bytes are there.
    let code: String = lines
        .take_while(|l| !l.contains("tb slow paths") && !l.starts_with("OUT:"))
        .filter_map(|l| l.strip_prefix("OBJD-H: "))
        .collect();
    let bytes: Vec<u8> =
        (0..code.len() / 2).map(|i| u8::from_str_radix(&code[2 * i..2 * i + 2], 16).expect("hex")).collect();
    let decoder = Decoder::new(64, &bytes, DecoderOptions::NONE);
    let insns = decoder.into_iter().inspect(|i| assert!(!i.is_invalid(), "{analyzer}{options}: {code}")).count();
    assert!(insns > 10, "{analyzer}{options}: {insns} instructions at {pc:#x}");
    insns
}

#[test]
fn a_block_and_an_access_cost_a_few_instructions() {
    let g = guest("x86_short", Isa::X86_64);
    for block in ["load", "store"] {
        let pc = g.sym(block);
        let plain = emitted(&g, "plain", "", pc);
        let more = |options| emitted(&g, "trace", options, pc) - plain;
        let (fetch, mem, values) = (more(",opt.mem=off"), more(""), more(",opt.values=on"));
        println!(
            "{block}: {plain} instructions, {fetch} more for its fetch, {mem} with its access, {values} with its value"
        );
        // Cursor and limit are loaded and compared, the word is stored, the cursor goes on; out of line the refill is called.
        assert!(fetch <= 12, "{block}: {fetch}");
        assert!(mem <= fetch + 2, "{block}: {mem} against {fetch}");
        assert!(values <= mem + 2, "{block}: {values} against {mem}");
        assert_eq!(emitted(&g, "empty", "", pc), plain, "{block}");
    }
}

/// Instructions of each thread of `trapline` while it plays `recording` back to `count`: traced by itself.
fn replayed(recording: &Path) -> (u64, u64) {
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "count", "--format", "json", "-o", "-", "--"]).arg(trapline());
    command.arg("replay").arg(recording).args(["--analyzer", "count", "-o", "/dev/null"]);
    let f = within(LIMIT, &mut command).code(0);
    let report: serde_json::Value = serde_json::from_str(&f.out()).expect("JSON");
    let threads = report["per_thread"].as_array().expect("threads");
    let of = |main: bool| {
        let these = threads.iter().filter(|t| (t["tid"] == t["pid"]) == main);
        these.map(|t| t["insns"].as_u64().expect("a number")).sum()
    };
    (of(true), of(false))
}

#[test]
fn reading_a_block_costs_a_few_instructions() {
    for analyzer in ["trace", "count"] {
        qemu("x86_64", analyzer);
    }
    let g = guest("x86_short", Isa::X86_64);
    let folder = scratch();
    let (whole, half) = (folder.path().join("whole"), folder.path().join("half"));
    within(LIMIT, Command::new(trapline()).args(["record", "-o"]).arg(&whole).arg("--").arg(&g.path)).code(0);
    // Both begin in the same way: their difference is nothing but half of the turns.
    let cut = [whole.as_os_str(), "--from".as_ref(), "0".as_ref(), "--count".as_ref()];
    let mut command = Command::new(trapline());
    command.arg("cut").args(cut).arg((TURNS / 2 * 6).to_string()).arg("-o").arg(&half);
    within(LIMIT, &mut command).code(0);
    let (counting, reading) = {
        let ((all, all_read), (some, some_read)) = (replayed(&whole), replayed(&half));
        let blocks = TURNS as f64;
        ((all as f64 - some as f64) / blocks, (all_read as f64 - some_read as f64) / blocks)
    };
    println!("{counting:.1} instructions to count a block with an access, {reading:.1} to unpack it");
    assert!(counting > 5.0 && counting <= 49.0, "{counting}");
    assert!(reading > 5.0 && reading <= 110.0, "{reading}");
}
