//! `coverage` of a program whose lines are known by hand.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Isa, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

/// Line 3 runs with an argument, line 4 without; line 6 never.
const PROGRAM: &str = "\
int f(int x) {
    if (x > 1)
        return 1;
    return 2;
}
int never(int x) { return x + 7; }
int main(int argc, char **argv) {
    return f(argc) + (argc > 9 ? never(argc) : 0);
}
";

fn program(dir: &Path) -> PathBuf {
    let (source, path) = (dir.join("known.c"), dir.join("known"));
    fs::write(&source, PROGRAM).unwrap();
    within(LIMIT, Command::new("cc").args(["-g", "-O0", "-o"]).arg(&path).arg(&source)).code(0);
    path
}

struct Covered {
    /// Lines of known.c: whether they ran.
    lines: BTreeMap<u64, bool>,
    lcov: String,
    drcov: PathBuf,
}

fn cover(dir: &Path, program: &Path, args: &[&str], merge: &[&Path], name: &str, code: i32) -> Covered {
    qemu("x86_64", "trace");
    let (drcov, lcov) = (dir.join(format!("{name}.drcov")), dir.join(format!("{name}.info")));
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "coverage", "--format", "json", "--drcov"]).arg(&drcov).arg("--lcov").arg(&lcov);
    for m in merge {
        command.arg("--merge").arg(m);
    }
    let f = within(LIMIT, command.arg("--").arg(program).args(args)).code(code);
    let v: Value = serde_json::from_str(f.err().lines().last().unwrap_or_default()).expect("JSON");
    let files = v["files"].as_array().unwrap();
    let file = files.iter().find(|f| f["file"].as_str().is_some_and(|n| n.ends_with("known.c"))).expect("known.c");
    let lines = |key: &str, hit: bool| -> Vec<(u64, bool)> {
        file[key].as_array().unwrap().iter().map(|l| (l.as_u64().unwrap(), hit)).collect()
    };
    let lines = lines("hit", true).into_iter().chain(lines("missed", false)).collect();
    Covered { lines, lcov: fs::read_to_string(&lcov).unwrap(), drcov }
}

fn hit(c: &Covered) -> Vec<u64> {
    c.lines.iter().filter(|(_, h)| **h).map(|(l, _)| *l).collect()
}

#[test]
fn lines_that_ran_and_lines_that_did_not() {
    let folder = scratch();
    let program = program(folder.path());
    let without = cover(folder.path(), &program, &[], &[], "without", 2);
    assert_eq!(hit(&without), [1, 2, 4, 5, 7, 8, 9]);
    assert_eq!(without.lines.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let with = cover(folder.path(), &program, &["x"], &[], "with", 1);
    assert_eq!(hit(&with), [1, 2, 3, 5, 7, 8, 9]);
    let both = cover(folder.path(), &program, &["x"], &[&without.drcov], "both", 1);
    assert_eq!(hit(&both), [1, 2, 3, 4, 5, 7, 8, 9]);

    // The tracefile says the same.
    let of_known = both.lcov.split("end_of_record\n").find(|r| r.contains("known.c\n")).expect("a record");
    let ran: Vec<&str> = of_known.lines().filter_map(|l| l.strip_prefix("DA:")).filter(|l| l.ends_with(",1")).collect();
    assert_eq!(ran, ["1,1", "2,1", "3,1", "4,1", "5,1", "7,1", "8,1", "9,1"]);
    assert!(of_known.contains("\nLF:9\nLH:8\n"), "{of_known}");
    for record in ["FN:1,f", "FN:6,never", "FN:7,main", "FNDA:1,f", "FNDA:0,never", "FNDA:1,main", "FNF:3", "FNH:2"] {
        assert!(of_known.contains(&format!("\n{record}\n")), "{record}: {of_known}");
    }
    // lcov's own tool agrees.
    let html = folder.path().join("html");
    let f = within(LIMIT, Command::new("genhtml").arg(folder.path().join("both.info")).arg("-o").arg(&html)).code(0);
    assert!(f.out().contains("(8 of 9 lines)"), "{}", f.out());
    assert!(f.out().contains("(2 of 3 functions)"), "{}", f.out());

    // For people: which lines did not run.
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "coverage", "-o", "-", "--"]).arg(&program);
    let f = within(LIMIT, &mut command).code(2);
    let row = f.out().lines().find(|l| l.contains("known.c")).unwrap_or_default().to_string();
    assert!(row.trim_start().starts_with("7/9 ") && row.ends_with("known.c: 3, 6"), "{row}");

    let bad = folder.path().join("bad");
    fs::write(&bad, "no coverage").unwrap();
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "coverage", "--merge"]).arg(&bad).arg("--").arg(&program);
    let f = within(LIMIT, &mut command).code(125);
    assert!(f.err().contains("bad") && f.err().contains("DRCOV VERSION: 2"), "{}", f.err());
}

/// Read by the format's description: the loop's code and nothing else of the program, each byte once or more.
#[test]
fn drcov_has_the_blocks_of_a_known_loop() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let out = folder.path().join("loop.drcov");
    qemu("x86_64", "trace");
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", "coverage", "--drcov"]).arg(&out).arg("--").arg(&g.path);
    within(LIMIT, &mut command).code(7);
    let bytes = fs::read(&out).unwrap();
    let marker = b" bbs\n";
    let at = bytes.windows(marker.len()).position(|w| w == marker).expect("a table") + marker.len();
    let header = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let lines: Vec<&str> = header.lines().collect();
    assert_eq!(lines[..2], ["DRCOV VERSION: 2", "DRCOV FLAVOR: drcov"]);
    assert_eq!(lines[2], "Module Table: version 2, count 1");
    let fields: Vec<&str> = lines[4].split(',').map(str::trim).collect();
    let base = u64::from_str_radix(fields[1].trim_start_matches("0x"), 16).unwrap();
    assert!(fields[6].ends_with(g.path.file_name().unwrap().to_str().unwrap()), "{header}");
    let blocks = &bytes[at..];
    assert_eq!(lines[5], format!("BB Table: {} bbs", blocks.len() / 8));
    let mut covered = std::collections::BTreeSet::new();
    for b in blocks.chunks(8) {
        let start = base + u64::from(u32::from_le_bytes(b[..4].try_into().unwrap()));
        let size = u64::from(u16::from_le_bytes(b[4..6].try_into().unwrap()));
        assert_eq!(b[6..], [0, 0]);
        covered.extend(start..start + size);
    }
    // From the entry to the end of the last instruction, the syscall that exits (5 + 5 + 2 bytes after `done`).
    let expected: std::collections::BTreeSet<u64> = (*covered.first().unwrap()..g.sym("done") + 12).collect();
    assert_eq!(covered, expected);
    // A reader that others wrote says the same.
    let read = drcov::from_file(&out).unwrap_or_else(|e| panic!("{e}"));
    let module = &read.modules[0];
    let by_reader: std::collections::BTreeSet<u64> =
        read.basic_blocks.iter().map(|b| b.absolute_address(module)).collect();
    assert_eq!((read.modules.len(), module.base, read.basic_blocks.len()), (1, base, blocks.len() / 8));
    assert!(by_reader.iter().all(|a| covered.contains(a)) && by_reader.contains(&g.sym("begin")));
    assert!(covered.contains(&g.sym("begin")));
}
