//! `trapline check`: streams hold together, and where they do not it is said. (Every trace that other tests take is verified, too.)

use std::process::Command;
use std::time::Duration;
use trapline_tests::{Finished, Isa, guest, qemu, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

fn run(args: &[&str]) -> Finished {
    within(LIMIT, Command::new(trapline()).args(args))
}

#[test]
fn programs_of_the_distribution_hold_together() {
    qemu("x86_64", "check");
    let f = run(&["check", "--", "sh", "-c", "for i in 1 2 3; do echo $i | sort; done; exit 3"]).code(3);
    let last = f.err().lines().last().unwrap_or_default().to_string();
    assert!(last.starts_with("check: 0 violations; ") && last.contains(" streams"), "{}", f.err());
    // The shell, and what it starts.
    let streams: u64 = last.split(", ").find_map(|p| p.strip_suffix(" streams")).unwrap().parse().unwrap();
    assert!(streams > 3, "{last}");
    let steps: u64 = last.split(", ").find_map(|p| p.strip_suffix(" steps of the pc")).unwrap().parse().unwrap();
    assert!(steps > 10_000, "{last}");
}

/// Outside of the range nothing is traced: the stream jumps where the code does not.
#[test]
fn gaps_are_told_and_are_the_exit_code() {
    let g = guest("x86_branches", Isa::X86_64);
    qemu("x86_64", "trace");
    let path = g.path.to_string_lossy();
    let range = format!("{:#x}-{:#x}", g.sym("begin"), g.sym("sub"));
    let args = ["run", "--analyzer", "trace", "--consume", "check", "--range", &range, "--format", "json", "--", &path];
    let f = run(&args).code(124);
    let v: serde_json::Value = serde_json::from_str(f.err().lines().last().unwrap_or_default()).expect("JSON");
    assert!(v["violations"].as_u64().is_some_and(|n| n > 0), "{v}");
    let sub = format!("{:#x}", g.sym("sub"));
    assert!(v["shown"][0].as_str().is_some_and(|s| s.contains(&sub)), "{v}");
}
