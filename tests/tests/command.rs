//! `trapline run` as a person uses it: the guest cannot tell, the results are where they should be, and say what the stream says.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_tests::{
    ALL, Ended, Finished, Guest, How, Isa, What, finish, guest, guest_linked, qemu, scratch, trapline, within,
};

const LIMIT: Duration = Duration::from_secs(120);

/// `trapline run` with these arguments before the guest's; the QEMU is built beforehand.
fn run(g: &Guest, analyzer: &str, args: &[&str]) -> Command {
    qemu(g.isa.target(), analyzer);
    let mut command = Command::new(trapline());
    command.args(["run", "--analyzer", analyzer]).args(args).arg("--").arg(&g.path);
    command
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

fn hex(v: &Value) -> u128 {
    let text = v.as_str().unwrap_or_else(|| panic!("{v} is no address"));
    u128::from_str_radix(text.strip_prefix("0x").expect("0x"), 16).unwrap()
}

#[test]
fn json_lines_say_what_the_stream_says() {
    for isa in [Isa::X86_64, Isa::Mips, Isa::Thumb] {
        let name = if isa == Isa::X86_64 { "x86_helper_accesses" } else { "loop" };
        let g = guest(name, isa);
        let folder = scratch();
        let file = folder.path().join("trace.json");
        let code = if isa == Isa::X86_64 { 0 } else { 7 };
        let f = within(LIMIT, &mut run(&g, "trace", &["--values", "--format", "json", "-o", file.to_str().unwrap()]))
            .code(code);
        assert_eq!((f.out(), f.err()), (String::new(), String::new()));
        let told: Vec<(String, u128, u128, u64, Option<u128>)> = json_lines(&fs::read_to_string(&file).unwrap())
            .iter()
            .filter(|v| ["fetch", "load", "store", "aborted"].contains(&v["ev"].as_str().unwrap()))
            .map(|v| match v["ev"].as_str().unwrap() {
                e @ ("fetch" | "aborted") => {
                    assert_eq!(v["bytes"].as_str().unwrap().len() as u64, 2 * v["len"].as_u64().unwrap());
                    (e.to_string(), hex(&v["pc"]), 0, v["len"].as_u64().unwrap(), None)
                }
                e => {
                    // A footprint has no value.
                    (
                        e.to_string(),
                        hex(&v["pc"]),
                        hex(&v["addr"]),
                        v["size"].as_u64().unwrap(),
                        v.get("value").map(hex),
                    )
                }
            })
            .collect();
        let t = g.trace().code(code);
        let streamed: Vec<_> = t
            .events
            .iter()
            .filter_map(|e| {
                let pc = u128::from(e.pc);
                match &e.what {
                    What::Fetch(b) => Some(("fetch".to_string(), pc, 0, b.len() as u64, None)),
                    What::Aborted(b) => Some(("aborted".to_string(), pc, 0, b.len() as u64, None)),
                    What::Access(a) => {
                        let ev = if a.is_store() { "store" } else { "load" };
                        Some((ev.to_string(), pc, u128::from(a.addr), u64::from(a.size), a.value))
                    }
                    What::Other(_) => None,
                }
            })
            .collect();
        assert!(told.len() > 20);
        assert!(told == streamed, "{isa:?}: {} lines, {} events", told.len(), streamed.len());
    }
}

#[test]
fn lines_have_the_instructions_text() {
    let g = guest("x86_count", Isa::X86_64);
    let f = within(LIMIT, &mut run(&g, "trace", &["--format", "json", "-o", "-"])).code(0);
    let lines = json_lines(&f.out());
    let dec = lines.iter().find(|v| v["ev"] == "fetch" && hex(&v["pc"]) == u128::from(g.sym("begin"))).unwrap();
    assert_eq!((dec["len"].as_u64(), dec["bytes"].as_str(), dec["stream"].as_u64()), (Some(2), Some("ffc9"), Some(0)));
    assert_eq!(dec["text"], "dec ecx");
}

fn figures(f: &Finished, text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text} {}", f.err()))
}

#[test]
fn count_is_exact_to_the_last_instruction() {
    let folder = scratch();
    let file = folder.path().join("count.json");
    let o = file.to_str().unwrap();
    let g = guest("x86_count", Isa::X86_64);
    let f = within(LIMIT, &mut run(&g, "count", &["--format", "json", "-o", o])).code(0);
    let v = figures(&f, &fs::read_to_string(&file).unwrap());
    // mov, then 100000 turns of two, then mov, mov, syscall.
    assert_eq!(v["insns"].as_u64(), Some(200_004), "{v}");
    for (key, n) in [("aborted", 0), ("loads", 0), ("stores", 0), ("load_bytes", 0), ("store_bytes", 0), ("threads", 1)]
    {
        assert_eq!(v[key].as_u64(), Some(n), "{key}: {v}");
    }
    // The loop's block once per turn, and what is before and after it.
    assert!((100_000..=100_002).contains(&v["blocks"].as_u64().unwrap()), "{v}");
}

#[test]
fn count_of_a_program_is_the_same_twice() {
    let g = guest("processes", Isa::X86_64);
    let totals = |args: &[&str], code: i32| {
        let f = within(LIMIT, run(&g, "count", &["--format", "json", "-o", "-"]).args(args)).code(code);
        let v = figures(&f, &f.out());
        (v["insns"].clone(), v["loads"].clone(), v["stores"].clone(), v["threads"].clone())
    };
    assert_eq!(totals(&["leaf"], 5), totals(&["leaf"], 5));
    assert_eq!(totals(&["threads", "7"], 0).3.as_u64(), Some(8));
}

#[test]
fn hotspots_names_the_function_that_is_hot() {
    let g = guest("processes", Isa::X86_64);
    let f = within(LIMIT, run(&g, "hotspots", &[]).args(["work", "300000"])).code(7);
    let report = f.err();
    let first = report.lines().find(|l| l.contains('%')).unwrap_or_else(|| panic!("no shares: {report}"));
    assert!(first.contains("work"), "{report}");
    assert_eq!(f.out(), "", "results go to standard error");
}

#[test]
fn arguments_environment_and_streams_are_the_guests_own() {
    for isa in ALL {
        let g = guest("stdio", isa);
        let mut command = run(&g, "trace", &["-o", "/dev/null"]);
        command.args(["one", "two words", "", "--help", "-o", "x"]).env("GUEST_VARIABLE", "a value");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let f = finish(child, b"line 1\nline 2 without an end", LIMIT).code(42);
        let expected = "arg 1 <one>\narg 2 <two words>\narg 3 <>\narg 4 <--help>\narg 5 <-o>\narg 6 <x>\nenv <a value>\ntrapline <(unset)>\nline 1\nline 2 without an end";
        assert_eq!(f.out(), expected, "{isa:?}");
        assert_eq!(f.err(), "to standard error\n", "{isa:?}");
    }
}

#[test]
fn results_go_to_standard_error_unless_told_otherwise() {
    let g = guest("stdio", Isa::X86_64);
    let f = within(LIMIT, &mut run(&g, "count", &["--format", "json"])).code(42);
    assert!(f.out().starts_with("env <") && !f.out().contains("insns"));
    assert!(f.err().contains("\"insns\""), "{}", f.err());
    let f = within(LIMIT, &mut run(&g, "count", &["--format", "json", "-o", "-"])).code(42);
    assert!(f.out().starts_with("env <") && f.out().contains("\"insns\""), "{}", f.out());
    assert_eq!(f.err(), "to standard error\n");
}

#[test]
fn signals_reach_the_guest_and_its_end_is_ours() {
    let g = guest("stdio", Isa::X86_64);
    for (signal, code) in [(libc::SIGUSR1, 50), (libc::SIGTERM, 55)] {
        let mut command = run(&g, "trace", &["-o", "/dev/null"]);
        let mut child =
            command.arg("wait").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // SAFETY: plain system call on our child.
        unsafe { libc::kill(child.id() as i32, signal) };
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("got {signal}\n"));
        finish(child, b"", LIMIT).code(code);
    }
    let g = guest("processes", Isa::X86_64);
    for (which, signal) in [("abort", 6), ("segv", 11), ("kill", 9), ("term", 15)] {
        let f = within(LIMIT, run(&g, "count", &["-o", "/dev/null"]).arg(which));
        assert_eq!(f.ended, Ended::Signal(signal), "{which}: {}", f.err());
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn script_runs_through_its_interpreter() {
    let g = guest("stdio", Isa::X86_64);
    let folder = scratch();
    let file = folder.path().join("script");
    script(&file, &format!("#! {} an argument \n", g.path.display()));
    qemu("x86_64", "trace");
    let f = within(
        LIMIT,
        Command::new(trapline()).args(["run", "-a", "trace", "-o", "/dev/null", "--"]).arg(&file).arg("more"),
    )
    .code(42);
    let expected = format!("arg 1 <an argument>\narg 2 <{}>\narg 3 <more>\n", file.display());
    assert!(f.out().starts_with(&expected), "{}", f.out());
}

#[test]
fn foreign_dynamic_program_finds_its_libraries() {
    for isa in ALL.into_iter().filter(|isa| *isa != Isa::X86_64) {
        let g = guest_linked("maps", isa, How::Dynamic);
        let prefix = format!("/usr/{}", isa.triplet());
        // By -L, by the environment variable, and by itself.
        let f = within(LIMIT, &mut run(&g, "trace", &["-o", "/dev/null", "-L", &prefix])).code(0);
        assert_eq!(f.out(), "done\n");
        let f = within(LIMIT, run(&g, "trace", &["-o", "/dev/null"]).env("QEMU_LD_PREFIX", &prefix)).code(0);
        assert_eq!(f.out(), "done\n");
        let f = within(LIMIT, run(&g, "trace", &["-o", "/dev/null"]).env_remove("QEMU_LD_PREFIX")).code(0);
        assert_eq!(f.out(), "done\n");
    }
}

#[test]
fn children_are_followed_through_exec() {
    let g = guest("processes", Isa::X86_64);
    let f = within(LIMIT, run(&g, "trace", &["--format", "json", "-o", "-"]).arg("fork")).code(0);
    let lines = json_lines(&f.out());
    let leaf = u128::from(g.sym("leaf"))..u128::from(g.sym("leaf.end"));
    let stores = lines.iter().filter(|v| v["ev"] == "store" && leaf.contains(&hex(&v["pc"]))).count();
    assert_eq!(stores, 1);
}

#[test]
fn second_run_starts_within_a_second() {
    let g = guest("x86_count", Isa::X86_64);
    within(LIMIT, &mut run(&g, "count", &["-o", "/dev/null"])).code(0);
    let best = (0..3)
        .map(|_| {
            let start = Instant::now();
            within(LIMIT, &mut run(&g, "count", &["-o", "/dev/null"])).code(0);
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!(best < Duration::from_secs(1), "{best:?}");
}

#[test]
fn results_that_cannot_be_written_are_said_to_be_so() {
    let g = guest("x86_count", Isa::X86_64);
    let f = within(LIMIT, &mut run(&g, "trace", &["-o", "/nonexistent/folder/file"]));
    assert_ne!(f.ended, Ended::Code(0));
    assert!(f.err().contains("/nonexistent/folder/file"), "{}", f.err());
    let f = within(LIMIT, &mut run(&g, "trace", &["-o", "/dev/full"]));
    assert_ne!(f.ended, Ended::Code(0), "the disk is full: {}", f.err());
    assert!(f.err().contains("space"), "{}", f.err());
}

#[test]
fn reader_that_goes_away_does_not_hang() {
    let g = guest("processes", Isa::X86_64);
    let mut command = run(&g, "trace", &["-o", "-"]);
    let mut child = command
        .args(["work", "100000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    drop(child.stdout.take());
    finish(child, b"", LIMIT);
}

#[test]
fn help_shows_examples_and_the_subcommands() {
    let f = within(LIMIT, Command::new(trapline()).arg("--help")).code(0);
    for word in ["Examples:", "run", "build", "doctor", "completions", "TRAPLINE_CACHE"] {
        assert!(f.out().contains(word), "{word}: {}", f.out());
    }
    for shell in ["bash", "zsh", "fish"] {
        let f = within(LIMIT, Command::new(trapline()).args(["completions", shell])).code(0);
        assert!(f.out().contains("trapline"));
    }
    let f = within(LIMIT, Command::new(trapline()).arg("list")).code(0);
    for name in ["count", "empty", "hotspots", "trace"] {
        assert!(f.out().contains(name));
    }
    within(LIMIT, Command::new(trapline()).arg("doctor"));
}
