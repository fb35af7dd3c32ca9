//! The command that runs all of Trapline's tests, from nothing to the last line.
//!
//! Rules:
//! * It installs what is missing where it may (root on Debian), and otherwise says the one command that would.
//! * Each step says what it does and how long it took; what cargo prints is shown as it comes, and counted.
//! * A step that fails does not keep the later ones from running, unless they need what it makes.
//! * The last line is `N passed, N failed` (`, N skipped` if some were ignored). A check such as the formatter's counts as one test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use trapline_tests::{ALL, BARE, build_all, cache, checkout, missing_compilers, python, trapline};

const USAGE: &str = "\
Runs all of Trapline's tests: cargo run --release -p trapline-tests [-- OPTIONS]

  --setup       only install and build what the tests need
  --no-setup    expect it to be there
  --long        also the long ones (marked #[ignore])
  -h, --help    this text

TRAPLINE_CACHE says where everything is built, as for `trapline`.";

/// What has been counted.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Names of what failed.
    failures: Vec<String>,
}

impl Tally {
    /// Counts a step that is one check.
    fn check(&mut self, name: &str, ok: bool) {
        if ok {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push(name.to_string());
        }
    }

    /// Counts cargo's closing line of a test binary: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else {
            if let Some(name) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
                self.failures.push(name.to_string());
            }
            return;
        };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            if let (Some(n), Some(what)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next()) {
                match what {
                    "passed" => self.passed += n,
                    "failed" => self.failed += n,
                    "ignored" => self.skipped += n,
                    _ => {}
                }
            }
        }
    }
}

fn main() -> ExitCode {
    let (mut setup, mut tests, mut long) = (true, true, false);
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--setup" => tests = false,
            "--no-setup" => setup = false,
            "--long" => long = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("trapline-tests: no option '{other}'\n\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let start = Instant::now();
    if setup && !set_up() {
        return ExitCode::FAILURE;
    }
    if !tests {
        return ExitCode::SUCCESS;
    }
    let mut tally = Tally::default();
    run_all(&mut tally, long);
    for name in &tally.failures {
        println!("failed: {name}");
    }
    println!("all of it took {} s", start.elapsed().as_secs());
    let skipped = match tally.skipped {
        0 => String::new(),
        n => format!(", {n} skipped"),
    };
    println!("{} passed, {} failed{skipped}", tally.passed, tally.failed);
    ExitCode::from(u8::from(tally.failed > 0))
}

/// Says what comes, runs it, and says how long it took.
fn step<T>(what: &str, f: impl FnOnce() -> T) -> T {
    println!("== {what}");
    let start = Instant::now();
    let result = f();
    println!("== {what}: {:.1} s", start.elapsed().as_secs_f64());
    result
}

fn set_up() -> bool {
    if !step("cross compilers for the guests", compilers) {
        return false;
    }
    let Some(bin) = step("the trapline command", || std::panic::catch_unwind(trapline).ok()) else {
        return false;
    };
    // A guest that does not compile fails a test of its own.
    step("guests", || std::panic::catch_unwind(build_all).is_ok());
    // As is one whose reader cannot be had.
    step("readers of columns", || std::panic::catch_unwind(python).is_ok());
    step("QEMUs with analyzers", || qemus(bin))
}

/// Installs what is missing, or says how.
fn compilers() -> bool {
    let missing = missing_compilers();
    if missing.is_empty() {
        return true;
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| package.as_str()).collect();
    packages.dedup();
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y", "-o", "DPkg::Lock::Timeout=300"]).args(args);
        command.stdin(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    if root {
        let mut args = vec!["install", "--no-install-recommends"];
        // The libraries are only recommended by some of the compilers.
        let libraries: Vec<String> = libraries(&packages);
        args.extend(&packages);
        args.extend(libraries.iter().map(|l| l.as_str()));
        let installed = apt(&args) || (apt(&["update"]) && apt(&args));
        if installed && missing_compilers().is_empty() {
            return true;
        }
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| program.as_str()).collect();
    let sudo = if root { "" } else { "sudo " };
    eprintln!("trapline-tests: missing: {}", names.join(", "));
    eprintln!(
        "trapline-tests: to install them: {sudo}apt-get update && {sudo}apt-get install {} {}",
        packages.join(" "),
        libraries(&packages).join(" ")
    );
    false
}

/// The C libraries that go with the compilers.
fn libraries(packages: &[&str]) -> Vec<String> {
    packages
        .iter()
        .filter(|package| package.starts_with("gcc"))
        .map(|package| match *package {
            "gcc" => "libc6-dev".into(),
            "gcc-x86-64-linux-gnu" => "libc6-dev-amd64-cross".into(),
            "gcc-i686-linux-gnu" => "libc6-dev-i386-cross".into(),
            "gcc-aarch64-linux-gnu" => "libc6-dev-arm64-cross".into(),
            "gcc-arm-linux-gnueabihf" => "libc6-dev-armhf-cross".into(),
            "gcc-powerpc64le-linux-gnu" => "libc6-dev-ppc64el-cross".into(),
            other => {
                let arch = other.trim_start_matches("gcc-").trim_end_matches("-linux-gnu");
                format!("libc6-dev-{arch}-cross")
            }
        })
        .collect()
}

/// Builds every QEMU that a test needs in one go, so that progress is shown; the tests build none then.
fn qemus(bin: &Path) -> bool {
    let mut targets: Vec<&str> = ALL.iter().chain(&BARE).map(|isa| isa.target()).collect();
    targets.dedup();
    let build = |args: &[&str]| {
        let status = Command::new(bin).arg("build").args(args).stdin(Stdio::null()).stdout(Stdio::null()).status();
        status.is_ok_and(|s| s.success())
    };
    build(&["--target", &targets.join(","), "--analyzer", "trace"])
        && build(&["--system", &SYSTEMS.join(","), "--analyzer", "trace", "--analyzer", "empty"])
        && build(&["--target", "x86_64", "--analyzer", "count", "--analyzer", "hotspots", "--analyzer", "empty"])
        && build(&["--target", "x86_64", "--plain"])
        && build(&["--target", &CURSOR.join(","), "--analyzer", &checkout().join("tests/cursor").to_string_lossy()])
}

/// Whole machines that tests run.
const SYSTEMS: [&str; 4] = ["x86_64", "aarch64", "arm", "riscv64"];

/// Targets that the tests of the cursor run on.
const CURSOR: [&str; 7] = ["x86_64", "aarch64", "arm", "riscv64", "mips", "ppc64le", "s390x"];

fn run_all(tally: &mut Tally, long: bool) {
    let fmt = step("formatting", || cargo(&["fmt", "--all", "--check"], &[], tally));
    tally.check("cargo fmt --all --check", fmt);
    let clippy = step("lints", || {
        let args = ["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo(&args, &[], tally)
    });
    tally.check("cargo clippy", clippy);
    let doc = step("documentation", || {
        cargo(&["doc", "--release", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings".as_ref())], tally)
    });
    tally.check("cargo doc", doc);

    // The tests: with what set-up has built.
    let bin = std::panic::catch_unwind(trapline).ok();
    let bin: Vec<(&str, &OsStr)> = bin.iter().map(|b| ("TRAPLINE_BIN", b.as_os_str())).collect();
    let mut args = vec!["test", "--release", "--workspace", "--no-fail-fast"];
    if long {
        args.extend(["--", "--include-ignored"]);
    }
    counted("tests", &args, &bin, tally);

    // A target folder of its own: the flag rebuilds everything.
    let folder = cache().join("loom-target");
    let env: [(&str, &OsStr); 2] = [("RUSTFLAGS", "--cfg loom".as_ref()), ("CARGO_TARGET_DIR", folder.as_os_str())];
    counted(
        "interleavings of the pipe (loom)",
        &["test", "--release", "-p", "trapline-pipe", "--test", "loom_ring"],
        &env,
        tally,
    );
}

/// Runs a step whose tests count one by one; if it fails without a failed test, that is a failure, too.
fn counted(what: &str, args: &[&str], env: &[(&str, &OsStr)], tally: &mut Tally) {
    let before = tally.failed;
    let ok = step(what, || cargo(args, env, tally));
    if !ok && tally.failed == before {
        tally.check(&format!("cargo {}", args.join(" ")), false);
    }
}

/// Runs cargo in the checkout; shows and counts what it prints.
fn cargo(args: &[&str], env: &[(&str, &OsStr)], tally: &mut Tally) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(checkout()).args(args).envs(env.iter().copied());
    // Set by `cargo run` for this program alone.
    for (key, _) in std::env::vars_os() {
        if key
            .to_str()
            .is_some_and(|k| k.starts_with("CARGO_PKG_") || k == "CARGO_MANIFEST_DIR" || k == "CARGO_MANIFEST_PATH")
        {
            command.env_remove(key);
        }
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => {
            eprintln!("trapline-tests: cargo cannot be started: {e}");
            return false;
        }
    };
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.line(&line);
        }
    }
    child.wait().is_ok_and(|s| s.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_add_up() {
        let mut t = Tally::default();
        t.line("test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 0.02s");
        t.line("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s");
        t.line("test a::b ... FAILED");
        t.line("test c ... ok");
        t.check("x", true);
        assert_eq!((t.passed, t.failed, t.skipped), (14, 2, 3));
        assert_eq!(t.failures, ["a::b"]);
    }

    #[test]
    fn each_compiler_has_its_library() {
        assert_eq!(
            libraries(&["gcc-mips-linux-gnu", "gcc-s390x-linux-gnu"]),
            ["libc6-dev-mips-cross", "libc6-dev-s390x-cross"]
        );
    }
}
