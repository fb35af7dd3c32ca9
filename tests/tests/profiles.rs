//! `calls` and `cache` on programs whose numbers are known by hand.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Isa, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

/// `leaf` is called 10 + 5 times by `middle`, which is called twice by `main`; `tail` ends in a jump to `leaf`, and `jumper` in a longjmp.
const PROGRAM: &str = r#"
#include <setjmp.h>
static jmp_buf out;
int leaf(int x) { return x + 1; }
int middle(int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s += leaf(i);
    return s;
}
__asm__(".globl tail\n.type tail, @function\ntail: jmp leaf\n.size tail, .-tail\n");
int tail(int x);
void jumper(int n) {
    if (n)
        jumper(n - 1);
    longjmp(out, 1);
}
int after(void) { return leaf(0) - 1; }
int main(void) {
    int s = middle(10) + middle(5) + tail(1);
    if (!setjmp(out))
        jumper(3);
    return after() + (s != 0 ? 0 : 1);
}
"#;

fn program(dir: &Path) -> PathBuf {
    let (source, path) = (dir.join("calls.c"), dir.join("calls"));
    fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O0", "-fno-pie", "-no-pie", "-fcf-protection=none", "-o"]).arg(&path).arg(&source);
    within(LIMIT, &mut cc).code(0);
    path
}

/// Instructions of a function without branches, as the disassembler counts them.
fn length(program: &Path, function: &str) -> u64 {
    let mut objdump = Command::new("objdump");
    objdump.arg(format!("--disassemble={function}")).arg(program);
    within(LIMIT, &mut objdump).code(0).out().lines().filter(|l| l.starts_with(' ') && l.contains(":\t")).count() as u64
}

fn find<'a>(calls: &'a Value, name: &str) -> Option<&'a Value> {
    let all = calls.as_array()?;
    all.iter().find(|c| c["function"] == name).or_else(|| all.iter().find_map(|c| find(&c["children"], name)))
}

#[test]
fn call_trees_with_tail_calls_and_longjmp() {
    qemu("x86_64", "trace");
    let folder = scratch();
    let program = program(folder.path());
    let (folded, callgrind) = (folder.path().join("folded"), folder.path().join("callgrind.out"));
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "calls", "--format", "json", "--folded"]).arg(&folded);
    command.arg("--callgrind").arg(&callgrind).arg("--").arg(&program);
    let f = within(LIMIT, &mut command).code(0);
    let v: Value = serde_json::from_str(f.err().lines().last().unwrap_or_default()).expect("JSON");
    let main = find(&v["calls"], "main").expect("main");
    let child = |of: &Value, name: &str| -> Value {
        let all = of["children"].as_array().unwrap();
        all.iter().find(|c| c["function"] == name).unwrap_or_else(|| panic!("no {name} in {of}")).clone()
    };
    let leaf = length(&program, "leaf");
    assert!(leaf >= 3, "{leaf}");

    let middle = child(main, "middle");
    assert_eq!((&main["calls"], &middle["calls"]), (&1.into(), &2.into()));
    let called = child(&middle, "leaf");
    assert_eq!((called["calls"].as_u64(), called["insns"].as_u64()), (Some(15), Some(15 * leaf)));
    assert_eq!(middle["inclusive"].as_u64().unwrap(), middle["insns"].as_u64().unwrap() + 15 * leaf);
    let tail = child(main, "tail");
    assert_eq!((tail["insns"].as_u64(), tail["inclusive"].as_u64()), (Some(1), Some(1 + leaf)));
    // Four deep; then the program is back in main, which calls on.
    let (mut jumper, mut deep) = (child(main, "jumper"), 1);
    while let Some(next) = jumper["children"].as_array().unwrap().iter().find(|c| c["function"] == "jumper") {
        (jumper, deep) = (next.clone(), deep + 1);
    }
    assert_eq!(deep, 4);
    assert_eq!(child(&child(main, "after"), "leaf")["insns"].as_u64(), Some(leaf));

    // Folded stacks add up to the same.
    let text = fs::read_to_string(&folded).unwrap();
    let total: u64 = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Some(total), v["insns"].as_u64());
    assert!(text.lines().any(|l| l.ends_with(&format!("main;middle;leaf {}", 15 * leaf))), "{text}");

    // Read by valgrind's own tool.
    let f = within(LIMIT, Command::new("callgrind_annotate").arg("--threshold=100").arg(&callgrind)).code(0);
    let digits = |t: &str| t.chars().filter(char::is_ascii_digit).collect::<String>();
    let totals = f.out().lines().find(|l| l.contains("PROGRAM TOTALS")).map(|l| digits(l.split('(').next().unwrap()));
    assert_eq!(totals, Some(total.to_string()), "{}", f.out());
    let row = f.out().lines().find(|l| l.contains(":leaf")).map(|l| digits(l.split('(').next().unwrap()));
    assert_eq!(row, Some((17 * leaf).to_string()), "{}", f.out());
}

/// The loop stores to and loads from one place 1000 times: one line, one miss.
#[test]
fn a_loop_over_one_line_misses_once() {
    qemu("x86_64", "trace");
    let g = guest("loop", Isa::X86_64);
    let run = |more: &[&str]| -> Value {
        let mut command = Command::new(trapline());
        command.args(["run", "--analyzer", "cache", "--format", "json", "--curve"]).args(more).arg("--").arg(&g.path);
        serde_json::from_str(within(LIMIT, &mut command).code(7).err().lines().last().unwrap_or_default())
            .expect("JSON")
    };
    let v = run(&[]);
    assert_eq!((v["l1d"]["accesses"].as_u64(), v["l1d"]["misses"].as_u64()), (Some(2000), Some(1)));
    assert_eq!(v["curve"][0], serde_json::json!({"bytes": 64, "misses": 1}));
    // 1001 executions of blocks that lie within one or two lines.
    let code = v["l1i"]["accesses"].as_u64().unwrap();
    assert!((1001..=2002).contains(&code) && v["l1i"]["misses"].as_u64().unwrap() <= 2, "{v}");
    // One set of one line for everything: code and data take it from each other.
    let v = run(&["--l1", "64:1:64", "--unified"]);
    assert!(v["l1d"]["misses"].as_u64().unwrap() >= 1000, "{v}");
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "cache", "--l1", "1000:8:64", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command).code(125);
    assert!(f.err().contains("1000 bytes cannot be divided"), "{}", f.err());
}
