//! What tracing takes of the host: memory and descriptors have bounds, whatever the guest does.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trapline_tests::{Isa, guest, qemu, scratch, trapline};

const LIMIT: Duration = Duration::from_secs(1200);

/// The most that QEMU (`qemu`) and the command (`trapline`) had at a time: kB of memory that is theirs, mappings of files of shared memory included, and descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Most {
    memory: u64,
    descriptors: usize,
}

fn look(pid: u32, most: &mut Most) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kb = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    most.memory = most.memory.max(kb("RssAnon:") + kb("RssShmem:"));
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |d| d.count());
    most.descriptors = most.descriptors.max(descriptors);
}

/// Runs a guest under `analyzer` with the counting consumer: what that found, and what both processes took.
fn run(name: &str, guest_args: &[String], analyzer: &str) -> (Value, BTreeMap<&'static str, Most>) {
    let g = guest(name, Isa::X86_64);
    qemu(g.isa.target(), analyzer);
    let mut command = Command::new(trapline());
    let folder = scratch();
    let results = folder.path().join("results");
    command.args(["run", "--analyzer", analyzer, "--consume", "count", "--format", "json", "-o"]).arg(&results);
    command.arg("--").arg(&g.path).args(guest_args);
    let mut child = command.stdout(Stdio::null()).spawn().expect("trapline starts");
    let (pid, start) = (child.id(), Instant::now());
    let mut most: BTreeMap<&str, Most> = [("qemu", Most::default()), ("trapline", Most::default())].into();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < LIMIT, "{name} {guest_args:?} does not end");
        look(pid, most.get_mut("trapline").unwrap());
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace() {
                look(child.parse().unwrap(), most.get_mut("qemu").unwrap());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success(), "{name} {guest_args:?}");
    let said = std::fs::read_to_string(results).unwrap();
    println!("{name} {guest_args:?}: {:.1} s, {most:?}", start.elapsed().as_secs_f64());
    (serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {said}")), most)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

fn short_threads(n: u64) {
    let (found, most) = run("crowd", &words(&format!("short {n}")), "trace");
    assert_eq!((&found["threads"], &found["lost_chunks"]), (&(n + 1).into(), &0.into()));
    for (who, most) in most {
        assert!(most.descriptors < 64, "{who}: {most:?}");
        assert!(most.memory < 200 << 10, "{who}: {most:?}");
    }
}

/// Threads that are over leave nothing behind, in either process.
#[test]
fn short_threads_leave_nothing() {
    short_threads(3000);
}

#[test]
#[ignore = "takes minutes"]
fn seventy_thousand_threads_leave_nothing() {
    short_threads(70_000);
}

/// A thousand threads at once: what a stream takes is what the book says.
#[test]
fn a_thousand_threads_do_not_need_gigabytes() {
    let (few, before) = run("crowd", &words("many 10"), "trace");
    let (found, most) = run("crowd", &words("many 1000"), "trace");
    assert_eq!((&few["threads"], &found["threads"]), (&11.into(), &1001.into()));
    for who in ["qemu", "trapline"] {
        let each = most[who].memory.saturating_sub(before[who].memory) / 990;
        assert!(each < 400, "{who}: {each} kB for each thread: {before:?}, {most:?}");
    }
}

fn generated(n: u64, most_kb: u64) {
    let (once, first) = run("generated", &words(&format!("{n} 1")), "trace");
    let (twice, second) = run("generated", &words(&format!("{n} 2")), "trace");
    // Each function is a block of two instructions, whatever else ran.
    assert!(once["blocks"].as_u64().unwrap() > n && twice["blocks"].as_u64().unwrap() > 2 * n);
    for who in ["qemu", "trapline"] {
        let each = first[who].memory as f64 * 1024.0 / n as f64;
        assert!(first[who].memory < most_kb, "{who}: {each} bytes for each: {first:?}");
    }
    // The same code again is the same blocks. (QEMU translates it again, into a cache of its own.)
    let more = second["trapline"].memory.saturating_sub(first["trapline"].memory);
    assert!(more < first["trapline"].memory / 4, "{more} kB more: {first:?}, {second:?}");
}

/// Code that is made as the program runs takes memory once for each block that differs.
#[test]
fn generated_code_has_a_bound() {
    generated(100_000, 300 << 10);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_generated_functions_have_a_bound() {
    generated(1_000_000, 1500 << 10);
}
