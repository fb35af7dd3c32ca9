//! What is built before a test can run: the `trapline` command, QEMUs, cross compilers.

use crate::{Isa, process::within};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Building a QEMU may take minutes on a slow machine, and another process may be at it.
const BUILD: Duration = Duration::from_secs(3000);

/// The checkout that the tests belong to.
pub fn checkout() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        root.canonicalize().unwrap_or(root)
    })
}

/// The cache folder, as `trapline` finds it.
pub fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("TRAPLINE_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("trapline")))
        .or_else(|| set("HOME").map(|p| p.join(".cache/trapline")))
        .expect("TRAPLINE_CACHE or HOME is set")
}

/// A folder of the test's own, removed when dropped.
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("trapline-test.").tempdir().expect("a temporary folder")
}

/// The `trapline` command, release build.
pub fn trapline() -> &'static Path {
    // A failure is kept, too: one is enough.
    static BIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let bin = BIN.get_or_init(|| {
        if let Some(bin) = std::env::var_os("TRAPLINE_BIN").filter(|v| !v.is_empty()) {
            return Ok(bin.into());
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = within(
            BUILD,
            Command::new(cargo).current_dir(checkout()).args([
                "build",
                "--release",
                "-p",
                "trapline",
                "--message-format=json",
            ]),
        );
        let path =
            built.out().lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()).find_map(|m| {
                let is_bin = m["target"]["name"] == "trapline" && m["target"]["kind"][0] == "bin";
                m["executable"].as_str().filter(|_| is_bin).map(PathBuf::from)
            });
        path.ok_or_else(|| format!("`trapline` cannot be built:\n{}", built.err()))
    });
    bin.as_deref().unwrap_or_else(|e| panic!("{e}"))
}

/// `qemu-<target>` with an analyzer linked in, built if need be.
pub fn qemu(target: &str, analyzer: &str) -> PathBuf {
    static BUILT: Built = OnceLock::new();
    built(&BUILT, "--target", target, analyzer)
}

/// `qemu-system-<isa>` with an analyzer linked in, built if need be.
pub fn system_qemu(isa: &str, analyzer: &str) -> PathBuf {
    static BUILT: Built = OnceLock::new();
    built(&BUILT, "--system", isa, analyzer)
}

/// By target and analyzer.
type Built = OnceLock<Mutex<HashMap<(String, String), PathBuf>>>;

fn built(known: &Built, kind: &str, target: &str, analyzer: &str) -> PathBuf {
    if let (Some(dir), "trace") = (std::env::var_os("TRAPLINE_TEST_QEMU"), analyzer) {
        let name = if kind == "--system" { "qemu-system" } else { "qemu" };
        let path = PathBuf::from(dir).join(format!("{name}-{target}"));
        if path.exists() {
            return path;
        }
    }
    let mut built = known.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    built
        .entry((target.into(), analyzer.into()))
        .or_insert_with(|| {
            let mut command = Command::new(trapline());
            command.args(["build", kind, target]);
            match analyzer {
                "plain" => command.arg("--plain"),
                _ => command.args(["--analyzer", analyzer]),
            };
            let finished = within(BUILD, &mut command).code(0);
            PathBuf::from(finished.out().lines().last().expect("a path is printed"))
        })
        .clone()
}

/// The cross compilers that the guests need: program and Debian package.
pub fn cross_compilers() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        crate::ALL.iter().map(|isa: &Isa| (format!("{}-gcc", isa.triplet()), isa.package().to_string())).collect();
    all.dedup();
    // What reads our output.
    all.push(("callgrind_annotate".into(), "valgrind".into()));
    all.push(("genhtml".into(), "lcov".into()));
    all
}

/// Those of them that this machine lacks.
pub fn missing_compilers() -> Vec<(String, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    cross_compilers().into_iter().filter(|(program, _)| !there(program)).collect()
}

/// Readers of our output that PyPI has. The version that the tests were written with, or a later one of its kind.
const READERS: &str = "duckdb>=1.2";

/// A Python with DuckDB, in a private environment in the cache folder.
pub fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let dir = cache().join("test-readers");
        let (python, complete) = (dir.join("bin/python3"), dir.join("complete"));
        // Written last: a venv cannot be made elsewhere and moved.
        if !(std::fs::read_to_string(&complete).is_ok_and(|text| text == READERS) && python.exists()) {
            let _ = std::fs::remove_dir_all(&dir);
            within(BUILD, Command::new("python3").args(["-m", "venv"]).arg(&dir)).code(0);
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", READERS];
            within(BUILD, Command::new(&python).args(install)).code(0);
            std::fs::write(&complete, READERS).expect("the cache folder can be written");
        }
        python
    })
}
