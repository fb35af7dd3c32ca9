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

/// The list of calls of one thread.
struct List(Vec<Value>);

impl List {
    fn of(thread: &Value) -> List {
        List(thread["calls"].as_array().expect("a list").clone())
    }
    /// The number of the function that is called by `parent`.
    #[track_caller]
    fn find(&self, parent: Option<usize>, name: &str) -> usize {
        let found = |c: &Value| c["function"] == name && c["parent"].as_u64() == parent.map(|p| p as u64);
        self.0.iter().position(found).unwrap_or_else(|| panic!("no {name} called by {parent:?}: {:?}", self.0))
    }
    /// Calls, instructions of its own, with what it called.
    fn numbers(&self, i: usize) -> [u64; 3] {
        ["calls", "insns", "inclusive"].map(|k| self.0[i][k].as_u64().expect("a number"))
    }
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
    let list = List::of(&v);
    let main = list.0.iter().position(|c| c["function"] == "main").expect("main");
    let child = |of: usize, name: &str| list.find(Some(of), name);
    let leaf = length(&program, "leaf");
    assert!(leaf >= 3, "{leaf}");

    let middle = child(main, "middle");
    let [calls, own, inclusive] = list.numbers(middle);
    assert_eq!((list.numbers(main)[0], calls, inclusive), (1, 2, own + 15 * leaf));
    assert_eq!(list.numbers(child(middle, "leaf")), [15, 15 * leaf, 15 * leaf]);
    assert_eq!(list.numbers(child(main, "tail")), [1, 1, 1 + leaf]);
    // Four deep; then the program is back in main, which calls on.
    let (mut jumper, mut deep) = (child(main, "jumper"), 1);
    while let Some(next) =
        list.0.iter().position(|c| c["parent"].as_u64() == Some(jumper as u64) && c["function"] == "jumper")
    {
        (jumper, deep) = (next, deep + 1);
    }
    assert_eq!(deep, 4);
    assert_eq!(list.numbers(child(child(main, "after"), "leaf"))[1], leaf);

    // Folded stacks add up to the same.
    let text = fs::read_to_string(&folded).unwrap();
    let total: u64 = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Some(total), v["insns"].as_u64());
    assert!(text.lines().any(|l| l.ends_with(&format!("main;middle;leaf {}", 15 * leaf))), "{text}");
    // What draws flame graphs takes it: a box for each function of each stack.
    let mut picture = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, text.lines(), &mut picture).expect("a flame graph");
    let picture = String::from_utf8(picture).unwrap();
    assert!(picture.contains(&format!("<title>leaf ({} samples", 15 * leaf)), "{picture}");

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

/// JSON's readers have limits of nesting; calls have not.
#[test]
fn calls_500_deep_are_read_by_any_reader() {
    qemu("x86_64", "trace");
    let g = guest("x86_deep", Isa::X86_64);
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "calls", "--format", "json", "-o", "-", "--"]).arg(&g.path);
    let f = within(LIMIT, &mut command).code(0);
    let v: Value = serde_json::from_str(f.out().lines().last().unwrap_or_default()).expect("JSON");
    let list = List::of(&v);
    let mut at = list.find(None, "_start");
    for left in (0..500).rev() {
        at = list.find(Some(at), "deep");
        // What is called from here on runs four instructions each, the innermost three.
        assert_eq!(list.numbers(at), [1, if left == 0 { 3 } else { 4 }, 4 * left + 3], "{left}");
    }
    assert_eq!(list.0.len(), 501);
}

/// Runs `x86_regions` with `--by roi`.
fn by_region(analyzer: &str, more: &[&str]) -> String {
    qemu("x86_64", "trace");
    let g = guest("x86_regions", Isa::X86_64);
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", analyzer, "--by", "roi", "-o", "-"]).args(more).arg("--").arg(&g.path);
    within(LIMIT, &mut command).code(0).out()
}

/// The numbers stand in the guest's source.
#[test]
fn calls_by_region_of_interest() {
    let folder = scratch();
    let folded = folder.path().join("folded");
    let out = by_region("calls", &["--format", "json", "--folded", folded.to_str().unwrap()]);
    let lines: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let told: Vec<_> = lines.iter().map(|l| (l["region"].as_str().unwrap(), l["insns"].as_u64().unwrap())).collect();
    assert_eq!(told, [("", 14), ("busy", 63)]);
    for (line, start, outer, leaf) in
        [(&lines[0], [1, 5, 14], [1, 6, 9], [1, 3, 3]), (&lines[1], [0, 0, 63], [0, 33, 63], [10, 30, 30])]
    {
        // The whole way to where the region is.
        let list = List::of(line);
        let at = list.find(None, "_start");
        assert_eq!(list.numbers(at), start);
        let at = list.find(Some(at), "outer");
        assert_eq!(list.numbers(at), outer);
        assert_eq!(list.numbers(list.find(Some(at), "leaf")), leaf);
        assert_eq!(list.0.len(), 3);
    }
    let text = fs::read_to_string(&folded).unwrap();
    let mut stacks: Vec<&str> = text.lines().map(|l| l.split_once(';').unwrap().1).collect();
    stacks.sort_unstable();
    let expected = [
        "(outside);_start 5",
        "(outside);_start;outer 6",
        "(outside);_start;outer;leaf 3",
        "busy;_start;outer 33",
        "busy;_start;outer;leaf 30",
    ];
    assert_eq!(stacks, expected);
    let text = by_region("calls", &[]);
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let of_busy = rows.iter().position(|r| r.ends_with(&["--", "busy:", "63", "instructions"])).expect("busy");
    assert_eq!(
        rows[of_busy + 1..],
        [["63", "0", "0", "_start"], ["63", "33", "0", "outer"], ["30", "30", "10", "leaf"]]
    );
}

/// The numbers stand in the guest's source. Each line misses when it is first touched.
#[test]
fn cache_by_region_of_interest() {
    let v: Value = serde_json::from_str(&by_region("cache", &["--format", "json"])).expect("JSON");
    let pair = |v: &Value| (v["accesses"].as_u64().unwrap(), v["misses"].as_u64().unwrap());
    let region = |name: &str| v["per_region"].as_array().unwrap().iter().find(|r| r["region"] == name).unwrap();
    let (busy, outside) = (region("busy"), region(""));
    // The two data are new in the region, the stack is not.
    assert_eq!((pair(&busy["l1d"]), pair(&outside["l1d"])), ((40, 2), (6, 1)));
    // Of the three lines of code that of `leaf` is.
    assert_eq!((busy["l1i"]["misses"].as_u64(), outside["l1i"]["misses"].as_u64()), (Some(1), Some(2)));
    // Nothing is in the second level that is not in the first.
    assert_eq!((pair(&busy["l2"]), pair(&outside["l2"])), ((3, 3), (3, 3)));
    for level in ["l1i", "l1d", "l2"] {
        let (a, b, all) = (pair(&busy[level]), pair(&outside[level]), pair(&v[level]));
        assert_eq!((a.0 + b.0, a.1 + b.1), all, "{level}");
    }
    let function = |region: &str, name: &str| {
        let rows = v["functions"].as_array().unwrap();
        let row = rows.iter().find(|r| r["region"] == region && r["function"] == name);
        let row = row.unwrap_or_else(|| panic!("no {name} in {region}: {v}"));
        (pair(&row["l1"]), pair(&row["l2"]))
    };
    assert_eq!(function("busy", "outer"), ((10, 0), (0, 0)));
    assert_eq!(function("busy", "leaf"), ((30, 2), (2, 2)));
    assert_eq!(function("", "_start"), ((1, 1), (1, 1)));
    assert_eq!(function("", "outer"), ((2, 0), (0, 0)));
    assert_eq!(function("", "leaf"), ((3, 0), (0, 0)));
    assert_eq!(v["functions"].as_array().unwrap().len(), 5);
    let text = by_region("cache", &[]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of_busy = lines.iter().position(|l| *l == "-- busy").expect("busy");
    let words: Vec<&str> = lines[of_busy + 2].split_whitespace().collect();
    assert_eq!(words, ["L1", "data", "40", "accesses", "2", "misses", "5.0000%"], "{text}");
}

/// Where all instructions have four bytes, a function without branches has a quarter of its bytes.
#[test]
fn call_trees_of_other_isas() {
    for isa in [Isa::Aarch64, Isa::Arm, Isa::Mipsel, Isa::Mips, Isa::Ppc64le] {
        qemu(isa.target(), "trace");
        let g = guest("calls", isa);
        let mut command = Command::new(trapline());
        command.args(["run", "--analyzer", "calls", "--format", "json", "-o", "-", "--"]).arg(&g.path);
        let f = within(LIMIT, &mut command).code(0);
        let v: Value = serde_json::from_str(f.out().lines().last().unwrap_or_default()).expect("JSON");
        let list = List::of(&v);
        let main = list.0.iter().position(|c| c["function"] == "main").expect("main");
        let middle = list.find(Some(main), "middle");
        let [calls, own, inclusive] = list.numbers(middle);
        // After the code there is a traceback table, which is counted as the function's.
        let traceback = if isa == Isa::Ppc64le { 12 } else { 0 };
        let leaf = (g.sym("leaf.end") - g.sym("leaf") - traceback) / 4;
        assert!((2..10).contains(&leaf), "{isa:?}: {leaf}");
        assert_eq!((list.numbers(main)[0], calls, inclusive), (1, 2, own + 15 * leaf), "{isa:?}");
        assert_eq!(list.numbers(list.find(Some(middle), "leaf")), [15, 15 * leaf, 15 * leaf], "{isa:?}");
    }
}

/// A loop of 1000 turns that stores to and loads from one line.
#[test]
fn caches_of_other_isas() {
    for isa in [Isa::Aarch64, Isa::Arm, Isa::Riscv64, Isa::Mips, Isa::Ppc64le, Isa::S390x] {
        qemu(isa.target(), "trace");
        let g = guest("loop", isa);
        let mut command = Command::new(trapline());
        // A first level of one set of one line, where code and data take each other's place.
        command.args(["run", "--analyzer", "cache", "--curve", "--format", "json", "-o", "-", "--l1", "64:1:64"]);
        let f = within(LIMIT, command.arg("--").arg(&g.path)).code(7);
        let v: Value = serde_json::from_str(f.out().lines().last().unwrap_or_default()).expect("JSON");
        // ldr r1, =buf: a load of its own
        let literal = u64::from(matches!(isa, Isa::Aarch64 | Isa::Arm));
        let data = |k: &str| v["l1d"][k].as_u64().unwrap();
        assert_eq!((data("accesses"), data("misses")), (2000 + literal, 1 + literal), "{isa:?}: {v}");
        assert_eq!(v["curve"][0], serde_json::json!({"bytes": 64, "misses": 1 + literal}), "{isa:?}");
    }
}
