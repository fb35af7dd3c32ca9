//! Recordings: what is played back is what was seen, byte for byte; windows are exact; what is cut off or damaged is said.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Finished, Guest, Isa, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(trapline());
    command.env("QEMU_RAND_SEED", "1").args(args);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Records a guest.
fn record(g: &Guest, guest_args: &[&str], to: &Path, more: &[&str], code: i32) {
    qemu(g.isa.target(), "trace");
    let mut c = command(&["record", "-o", text(to)]);
    within(LIMIT, c.args(more).arg("--").arg(&g.path).args(guest_args)).code(code);
}

fn replay(file: &Path, args: &[&str]) -> Finished {
    within(LIMIT, command(&["replay", text(file)]).args(args))
}

/// The analyzer's output of a run, and of that run's recording.
fn both(g: &Guest, guest_args: &[&str], analyzer: &[&str], dir: &Path, code: i32) -> (Vec<u8>, Vec<u8>) {
    qemu(g.isa.target(), "trace");
    let (file, live, again) = (dir.join("t.trapline"), dir.join("live"), dir.join("again"));
    let mut c = command(&["run", "--record", text(&file), "-o", text(&live), "--analyzer"]);
    within(LIMIT, c.args(analyzer).arg("--").arg(&g.path).args(guest_args)).code(code);
    replay(&file, &[&["-o", text(&again), "--analyzer"], analyzer].concat()).code(0);
    (std::fs::read(live).unwrap(), std::fs::read(again).unwrap())
}

#[test]
fn played_back_as_it_was_live() {
    let folder = scratch();
    let analyzers: [&[&str]; 8] = [
        &["count", "--format", "json"],
        &["trace", "--format", "json"],
        &["hotspots"],
        &["calls"],
        &["coverage", "--format", "json"],
        &["cache", "--curve"],
        &["check"],
        &["watch", "--addresses", "0x1000-0xffffffffffff", "--format", "json"],
    ];
    for analyzer in analyzers {
        for (name, isa, args) in
            [("work", Isa::X86_64, &[][..]), ("work", Isa::Aarch64, &[]), ("work", Isa::S390x, &[])]
        {
            if matches!(analyzer[0], "trace" | "watch") && isa != Isa::X86_64 {
                continue;
            }
            let (live, again) = both(&guest(name, isa), args, analyzer, folder.path(), 0);
            assert!(live.len() > 40, "{analyzer:?}: {}", String::from_utf8_lossy(&live));
            assert!(live == again, "{analyzer:?} {isa:?}: what is played back differs");
        }
    }
    // Threads, signals, children, values.
    for (name, analyzer) in [
        ("threads", &["count", "--format", "json"][..]),
        ("threads", &["trace"]),
        ("signals", &["check"]),
        ("signals", &["trace", "--values", "--format", "json"]),
    ] {
        let (live, again) = both(&guest(name, Isa::X86_64), &[], analyzer, folder.path(), 0);
        assert!(live.len() > 40 && live == again, "{name} {analyzer:?}: what is played back differs");
    }
}

#[test]
fn feeds_from_a_recording_are_those_of_the_run() {
    let folder = scratch();
    let g = guest("work", Isa::X86_64);
    qemu("x86_64", "trace");
    for kind in ["champsim", "drmemtrace", "bbv", "gem5"] {
        let (file, live, again) =
            (folder.path().join("t.trapline"), folder.path().join("live"), folder.path().join("again"));
        let mut c = command(&["run", "--record", text(&file), "--feed", kind, "-o", text(&live), "--"]);
        within(LIMIT, c.arg(&g.path)).code(0);
        replay(&file, &["--feed", kind, "-o", text(&again)]).code(0);
        let (live, again) = (std::fs::read(live).unwrap(), std::fs::read(again).unwrap());
        assert!(live.len() > 1000 && live == again, "{kind}");
    }
}

/// Lines of events by number of the `fetch` they belong to; what comes before the first has none.
fn by_fetch(trace: &str) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in trace.lines() {
        let ev = serde_json::from_str::<Value>(line).unwrap();
        match ev["ev"].as_str().unwrap() {
            "fetch" => all.push(vec![line]),
            "load" | "store" => all.last_mut().unwrap().push(line),
            _ => {}
        }
    }
    all
}

#[test]
fn windows_are_exact() {
    let folder = scratch();
    for (name, isa) in [("loop", Isa::X86_64), ("work", Isa::Aarch64), ("work", Isa::X86_64)] {
        let g = guest(name, isa);
        let (file, window) = (folder.path().join("t.trapline"), folder.path().join("w.trapline"));
        record(&g, &[], &file, &[], if name == "loop" { 7 } else { 0 });
        let trace = |file: &Path| replay(file, &["--analyzer", "trace", "--format", "json", "-o", "-"]).code(0).out();
        let whole = trace(&file);
        let whole = by_fetch(&whole);
        for (from, count) in [(0, 10), (1, 1), (2, 3), (101, 1234), (4001, 2), (whole.len() - 3, 100)] {
            let (from_text, count_text) = (from.to_string(), count.to_string());
            let mut c =
                command(&["cut", text(&file), "--from", &from_text, "--count", &count_text, "-o", text(&window)]);
            let f = within(LIMIT, &mut c).code(0);
            let want = &whole[from..(from + count).min(whole.len())];
            assert!(f.err().contains(&format!(": {} instructions", want.len())), "{}", f.err());
            let got = trace(&window);
            assert!(by_fetch(&got) == want, "{name} {isa:?}: {count} from {from}");
            // Nothing is unexplained in it.
            replay(&window, &["--analyzer", "check"]).code(0);
            // Played back without being cut out first it is the same.
            let part = ["--from", &from_text, "--count", &count_text];
            let args = ["--analyzer", "trace", "--format", "json", "-o", "-"];
            let direct = replay(&file, &[&args[..], &part].concat()).code(0).out();
            assert!(direct == got, "{name} {isa:?}: {count} from {from}, directly");
            let piped = command(&[&["replay", "-"], &args[..], &part].concat())
                .stdin(std::fs::File::open(&file).unwrap())
                .output()
                .unwrap();
            assert!(piped.stdout == got.as_bytes(), "{name} {isa:?}: {count} from {from}, from a pipe");
        }
        let far = (whole.len() + 5).to_string();
        let f = within(LIMIT, &mut command(&["cut", text(&file), "--from", &far, "-o", text(&window)])).code(0);
        assert!(f.err().contains("nothing is in the window"), "{}", f.err());
        let f = replay(&file, &["--from", &far]).code(0);
        assert!(f.err().contains("nothing is in the window"), "{}", f.err());
        // In time: all of it, and nothing.
        let timed = |args: &[&str]| replay(&file, &[&["--format", "json"], args].concat()).code(0).err();
        let insns = format!("\"insns\":{}", whole.len());
        assert!(timed(&["--after", "0"]).contains(&insns) && timed(&["--before", "1000"]).contains(&insns));
        assert!(timed(&["--after", "1000"]).contains("nothing is in the window"));
    }
}

#[test]
fn info_and_dump_say_what_is_there() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let file = folder.path().join("t.trapline");
    record(&g, &["an argument"], &file, &[], 7);
    let f = within(LIMIT, &mut command(&["info", text(&file), "--format", "json"])).code(0);
    let v: Value = serde_json::from_str(&f.out()).unwrap();
    assert_eq!((&v["metadata"]["target"], &v["metadata"]["analyzer"]), (&"x86_64".into(), &"trace".into()));
    assert_eq!(v["metadata"]["command"], serde_json::json!([text(&g.path), "an argument"]));
    // 2 instructions, 1000 turns of 4, and what ends it.
    let insns = v["insns"].as_u64().unwrap();
    assert!((4003..4010).contains(&insns) && v["complete"] == true && v["damage"].is_null(), "{v}");
    assert_eq!(v["streams"].as_array().unwrap().len(), 1);
    assert_eq!(v["bytes"], std::fs::metadata(&file).unwrap().len());
    let f = within(LIMIT, &mut command(&["info", text(&file)])).code(0);
    assert!(f.out().contains(&format!("{insns} instructions in")), "{}", f.out());
    let f = within(LIMIT, &mut command(&["dump", text(&file)])).code(0);
    let kinds: Vec<String> = f.out().lines().map(|l| l.split_whitespace().nth(1).unwrap().to_string()).collect();
    assert_eq!(
        (kinds[0].as_str(), kinds[kinds.len() - 2].as_str(), kinds[kinds.len() - 1].as_str()),
        ("metadata", "index", "end")
    );
    // Modules have their build ids, as binutils read them.
    if Isa::X86_64.target() == std::env::consts::ARCH {
        let shell = folder.path().join("sh.trapline");
        within(LIMIT, &mut command(&["record", "-o", text(&shell), "--", "/bin/sh", "-c", "exit 3"])).code(3);
        let f = within(LIMIT, &mut command(&["info", text(&shell), "--format", "json"])).code(0);
        let v: Value = serde_json::from_str(&f.out()).unwrap();
        let modules = v["metadata"]["modules"].as_object().unwrap();
        assert!(modules.len() >= 3 && modules.keys().any(|m| m.contains("libc.so")), "{v}");
        for (path, id) in modules {
            let notes = within(LIMIT, Command::new("readelf").args(["-n", path])).code(0).out();
            assert!(notes.contains(&format!("Build ID: {}", id.as_str().unwrap())), "{path}: {id}");
        }
        let f = within(LIMIT, &mut command(&["info", text(&shell)])).code(0);
        assert_eq!(f.out().matches(": build id ").count(), modules.len(), "{}", f.out());
    }
    // Without accesses, and with values.
    let sizes: Vec<u64> = [&["--no-mem"][..], &[], &["--values"]]
        .iter()
        .map(|more| {
            record(&g, &[], &file, more, 7);
            let f = within(LIMIT, &mut command(&["info", text(&file), "--format", "json"])).code(0);
            serde_json::from_str::<Value>(&f.out()).unwrap()["unpacked"].as_u64().unwrap()
        })
        .collect();
    // Two words more for each turn, then two values. How many parts the chunk came in differs, and each has a header of 32 bytes.
    let grown = [sizes[1].saturating_sub(sizes[0]), sizes[2].saturating_sub(sizes[1])];
    assert!(grown.iter().all(|n| n.abs_diff(16000) < 1000), "{sizes:?}");
}

#[test]
fn through_a_pipe() {
    let g = guest("loop", Isa::X86_64);
    qemu("x86_64", "trace");
    let line = "\"$0\" record -o - -- \"$1\" | \"$0\" replay - --analyzer count --format json -o -";
    let mut c = Command::new("sh");
    let f = within(LIMIT, c.args(["-c", line]).arg(trapline()).arg(&g.path)).code(0);
    let v: Value = serde_json::from_str(f.out().lines().last().unwrap()).unwrap();
    assert_eq!(v["stores"], 1000);
}

#[test]
fn what_is_cut_off_or_damaged_is_said() {
    let folder = scratch();
    let g = guest("work", Isa::X86_64);
    let file = folder.path().join("t.trapline");
    record(&g, &[], &file, &[], 0);
    let bytes = std::fs::read(&file).unwrap();
    let bad = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let insns = |f: &Finished| -> u64 {
        serde_json::from_str::<Value>(f.out().lines().last().unwrap()).unwrap()["insns"].as_u64().unwrap()
    };
    let args = ["--analyzer", "count", "--format", "json", "-o", "-"];
    let all = insns(&replay(&file, &args).code(0));
    // Cut off: what is there counts, and it is said where it ends.
    let half = bad("half", &bytes[..bytes.len() / 2]);
    let f = replay(&half, &args).code(0);
    assert!(insns(&f) > 0 && insns(&f) < all, "{} of {all}", insns(&f));
    assert!(f.err().contains("half is cut off at byte"), "{}", f.err());
    // A bit is wrong: the same, and the exit code says it.
    let mut wrong = bytes.clone();
    wrong[bytes.len() / 2] ^= 4;
    let f = replay(&bad("wrong", &wrong), &args).code(125);
    assert!(insns(&f) < all && f.err().contains("wrong is damaged at byte"), "{}", f.err());
    let f = within(LIMIT, &mut command(&["info", text(&folder.path().join("wrong"))])).code(125);
    assert!(f.out().contains("damaged at byte"), "{}", f.out());
    // Not one of ours, or of a later one.
    let mut future = bytes.clone();
    future[8] = 3;
    let f = replay(&bad("future", &future), &args).code(125);
    assert!(f.err().contains("version 3"), "{}", f.err());
    let f = replay(&g.path, &args).code(125);
    assert!(f.err().contains("no recording"), "{}", f.err());
    let f = replay(Path::new("/nowhere/t"), &args).code(125);
    assert!(f.err().contains("/nowhere/t"), "{}", f.err());
    let f = within(LIMIT, &mut command(&["cut", text(&file), "-o", text(&file)])).code(125);
    assert!(f.err().contains("into itself"), "{}", f.err());
    let f = within(LIMIT, &mut command(&["cut", text(&file), "-o", "/nowhere/t"])).code(125);
    assert!(f.err().contains("what to cut out") && f.err().contains("--from N"), "{}", f.err());
    let f = replay(Path::new("-"), &["--after", "1"]).code(125);
    assert!(f.err().contains("a pipe is not"), "{}", f.err());
    let f = replay(&file, &["--after=-1"]).code(125);
    assert!(f.err().contains("--after -1: no time"), "{}", f.err());
}

/// The last line of progress has all instructions, and the events that they took.
#[test]
fn progress_is_told() {
    let folder = scratch();
    let g = guest("work", Isa::X86_64);
    let file = folder.path().join("t.trapline");
    let mut c = command(&["record", "--progress", "-o", text(&file), "--"]);
    let f = within(LIMIT, c.arg(&g.path)).code(0);
    let f_err = f.err();
    let last = f_err.lines().rfind(|l| l.contains("million/s")).unwrap_or_else(|| panic!("{f_err}"));
    let info = within(LIMIT, &mut command(&["info", text(&file), "--format", "json"])).code(0).out();
    let info: Value = serde_json::from_str(&info).unwrap();
    let millions = info["insns"].as_u64().unwrap() as f64 / 1e6;
    assert!(last.contains(&format!(" s: {millions:.1} million instructions, ")), "{last}: {millions}");
    assert!(last.ends_with(" MB of events"), "{last}");
}

/// A full disk ends the run with the disk's own words.
#[test]
fn a_disk_that_is_full_is_named() {
    qemu(Isa::X86_64.target(), "trace");
    let g = guest("work", Isa::X86_64);
    let mut c = command(&["record", "-o", "/dev/full", "--"]);
    let said = within(LIMIT, c.arg(&g.path)).code(125);
    let message = String::from_utf8_lossy(&said.stderr);
    assert!(message.contains("/dev/full") && message.contains("No space left on device"), "{message}");
}
