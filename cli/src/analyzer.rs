//! From an analyzer's name or path to its static library, and which points it fills.
//!
//! Rules:
//! - cargo decides what to compile; we only decide whether cargo need be asked. That takes milliseconds: the stamp lists every
//!   file that the library was built from (cargo's own dep-info, plus manifests and lock file) with size and time.
//! - What the compiler says about the analyzer is its author's business, and is passed on as it is.
//! - Which points are filled is read from the library's symbols, so that it cannot differ from what is linked.
//! - The target folder is in the cache, one per workspace, so that the user's own is left alone.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use serde::{Deserialize, Serialize};

use crate::cache::{self, Cache, Lock};
use crate::error::At;
use crate::exec;
use crate::home::Home;
use crate::progress::Step;
use crate::{Error, Result};

/// A defined symbol of this name and a point's name says that the analyzer fills the point.
const POINT_PREFIX: &str = "trapline_point_";
/// What every analyzer defines: QEMU calls it at start.
const ENTRY: &str = "trapline_init";

/// Which analyzer is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analyzer {
    /// Short, fit for a file name: the shipped one's name, or the folder's.
    pub name: String,
    /// The crate's folder.
    pub dir: PathBuf,
    /// One of ours; its consumer half is linked into this command.
    pub ships: bool,
}

/// A built library.
#[derive(Debug, Clone)]
pub struct Library {
    pub name: String,
    pub archive: PathBuf,
    /// SHA-256 of the archive.
    pub hash: String,
    /// Names of the filled points, lower case, sorted.
    pub points: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Stamp {
    archive: PathBuf,
    hash: String,
    points: Vec<String>,
    /// What else decides how cargo builds.
    environment: String,
    /// Path, size in bytes, time of last change; the archive itself is among them.
    files: Vec<(PathBuf, u64, i64, i64)>,
}

/// Finds the analyzer that a user named.
pub fn find(home: &Home, name: &str) -> Result<Analyzer> {
    let shipped = home.analyzers().join(name);
    let simple = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if simple && shipped.join("Cargo.toml").is_file() {
        return Ok(Analyzer { name: name.into(), dir: shipped, ships: true });
    }
    let path = Path::new(name);
    let dir = match path.file_name() {
        Some(file) if file == "Cargo.toml" => Path::new(".").join(path.parent().unwrap_or(path)),
        _ => path.to_path_buf(),
    };
    if name.is_empty() || !dir.join("Cargo.toml").is_file() {
        return Err(Error::UnknownAnalyzer { name: name.into(), known: shipped_names(home) });
    }
    let dir = dir.canonicalize().at("open the analyzer's folder", &dir)?;
    // Given by its path, a shipped one is still the shipped one.
    if let (Some(parent), Some(base)) = (dir.parent(), dir.file_name().and_then(|n| n.to_str()))
        && home.analyzers().canonicalize().is_ok_and(|a| a == parent)
    {
        return Ok(Analyzer { name: base.into(), dir: dir.clone(), ships: true });
    }
    let base = dir.file_name().unwrap_or_default().to_string_lossy();
    let name: String = base.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    Ok(Analyzer { name: if name.is_empty() { "analyzer".into() } else { name }, dir, ships: false })
}

/// The analyzers that ship, by name.
pub fn shipped_names(home: &Home) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(home.analyzers())
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok())
        .filter(|e| e.path().join("Cargo.toml").is_file())
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// What a shipped analyzer is for: its crate's description.
pub fn description(home: &Home, name: &str) -> String {
    let text = fs::read_to_string(home.analyzers().join(name).join("Cargo.toml")).unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("description"))
        .and_then(|l| l.trim_start().strip_prefix('='))
        .map(|l| l.trim().trim_matches('"').to_string())
        .unwrap_or_default()
}

fn stamp_path(cache: &Cache, analyzer: &Analyzer) -> PathBuf {
    let hash = cache::hash([analyzer.dir.as_os_str().as_bytes()]);
    cache.path("analyzers").join(format!("{}-{}.json", analyzer.name, cache::short(&hash)))
}

/// The library if nothing that it was built from has changed. Reads no content, only sizes and times.
pub fn at_hand(cache: &Cache, analyzer: &Analyzer) -> Option<Library> {
    let bytes = fs::read(stamp_path(cache, analyzer)).ok()?;
    let stamp: Stamp = serde_json::from_slice(&bytes).ok()?;
    if stamp.environment != environment() {
        return None;
    }
    for (path, size, seconds, nanoseconds) in &stamp.files {
        let m = fs::metadata(path).ok()?;
        if (m.len(), m.mtime(), m.mtime_nsec()) != (*size, *seconds, *nanoseconds) {
            return None;
        }
    }
    Some(Library { name: analyzer.name.clone(), archive: stamp.archive, hash: stamp.hash, points: stamp.points })
}

fn environment() -> String {
    ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTUP_TOOLCHAIN", "LIBCLANG_PATH"]
        .iter()
        .map(|name| std::env::var(name).unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\u{1f}")
}

/// The library, built if need be.
pub fn ensure(cache: &Cache, _lock: &Lock, analyzer: &Analyzer) -> Result<Library> {
    if let Some(library) = at_hand(cache, analyzer) {
        return Ok(library);
    }
    let package = package(analyzer)?;
    let archive = compile(cache, analyzer, &package)?;
    let points = points(&archive, &analyzer.name)?;
    let hash = cache::hash_file(&archive)?;
    let mut files = Vec::new();
    for path in inputs(&archive, &package) {
        if let Ok(m) = fs::metadata(&path) {
            files.push((path, m.len(), m.mtime(), m.mtime_nsec()));
        }
    }
    let stamp = Stamp {
        archive: archive.clone(),
        hash: hash.clone(),
        points: points.clone(),
        environment: environment(),
        files,
    };
    let path = stamp_path(cache, analyzer);
    let json = serde_json::to_vec(&stamp).map_err(|e| Error::Bug(format!("{}: {e}", path.display())))?;
    cache::write(&path, json)?;
    Ok(Library { name: analyzer.name.clone(), archive, hash, points })
}

/// What cargo knows about the crate.
struct Package {
    name: String,
    workspace: PathBuf,
    /// It has the feature `qemu`, by which a crate that holds both halves of an analyzer keeps them apart: with it
    /// alone (no default features) it is the half inside QEMU.
    has_feature: bool,
    /// Name of its program.
    program: Option<String>,
}

fn cargo() -> Command {
    let mut command =
        exec::command(std::env::var_os("CARGO").filter(|c| !c.is_empty()).unwrap_or_else(|| "cargo".into()));
    // Under `cargo run` these would be ours, not the analyzer's.
    for name in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "CARGO_BUILD_TARGET", "CARGO_MAKEFLAGS"] {
        command.env_remove(name);
    }
    command
}

fn package(analyzer: &Analyzer) -> Result<Package> {
    let manifest = analyzer.dir.join("Cargo.toml");
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(&manifest);
    let output = command.output().map_err(|e| exec::spawn_error(&command, e))?;
    let bad = || Error::AnalyzerBuild { name: analyzer.name.clone(), folder: analyzer.dir.clone() };
    if !output.status.success() {
        let _ = std::io::stderr().write_all(&output.stderr);
        return Err(bad());
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| bad())?;
    let package = json["packages"].as_array().into_iter().flatten().find(|p| {
        let manifest = p["manifest_path"].as_str().map(Path::new);
        manifest.and_then(Path::parent).is_some_and(|d| same_place(d, &analyzer.dir))
    });
    let Some(package) = package else {
        return Err(Error::NotAnAnalyzer {
            name: analyzer.dir.display().to_string(),
            why: "its Cargo.toml describes a workspace, not a crate".into(),
        });
    };
    let library =
        package["targets"].as_array().into_iter().flatten().any(|t| {
            t["kind"].as_array().into_iter().flatten().any(|k| k.as_str().is_some_and(|k| k.ends_with("lib")))
        });
    if !library {
        return Err(Error::NotAnAnalyzer {
            name: analyzer.dir.display().to_string(),
            why: "the crate has no library".into(),
        });
    }
    Ok(Package {
        name: package["name"].as_str().unwrap_or_default().to_string(),
        workspace: PathBuf::from(json["workspace_root"].as_str().unwrap_or_default()),
        has_feature: package["features"].get("qemu").is_some(),
        program: package["targets"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|t| t["kind"][0] == "bin")
            .and_then(|t| t["name"].as_str())
            .map(str::to_string),
    })
}

/// The crate's program, its consuming half, built if need be; `None` if it has none.
pub fn program(cache: &Cache, analyzer: &Analyzer) -> Result<Option<PathBuf>> {
    let package = package(analyzer)?;
    let Some(name) = package.program else { return Ok(None) };
    let _lock = cache.lock()?;
    let target_dir = cache.path("cargo").join(cache::short(&cache::hash([package.workspace.as_os_str().as_bytes()])));
    let mut command = cargo();
    command.current_dir(&analyzer.dir);
    command.args(["build", "--release", "--quiet", "--package", &package.name, "--bin", &name, "--target-dir"]);
    command.arg(&target_dir);
    let output = command.output().map_err(|e| exec::spawn_error(&command, e))?;
    let _ = std::io::stderr().write_all(&output.stderr);
    if !output.status.success() {
        return Err(Error::AnalyzerBuild { name: analyzer.name.clone(), folder: analyzer.dir.clone() });
    }
    Ok(Some(target_dir.join("release").join(name)))
}

fn compile(cache: &Cache, analyzer: &Analyzer, package: &Package) -> Result<PathBuf> {
    let target_dir = cache.path("cargo").join(cache::short(&cache::hash([package.workspace.as_os_str().as_bytes()])));
    let mut command = cargo();
    // The analyzer's folder decides on toolchain and configuration, as for any cargo.
    command.current_dir(&analyzer.dir);
    command.args(["rustc", "--lib", "--profile=analyzer", "--crate-type=staticlib", "--package", &package.name]);
    if package.has_feature {
        command.args(["--no-default-features", "--features", "qemu"]);
    }
    command.args(["--message-format=json-render-diagnostics", "--target-dir"]).arg(&target_dir);
    // So that crates outside our workspace have the profile too.
    for setting in ["inherits=\"release\"", "panic=\"abort\"", "codegen-units=1"] {
        command.arg("--config").arg(format!("profile.analyzer.{setting}"));
    }
    use std::io::IsTerminal;
    command.arg(if std::io::stderr().is_terminal() { "--color=always" } else { "--color=never" });

    let what = format!("Compiling the analyzer {}", analyzer.name);
    let step = Step::new(&what);
    let log = cache.log(&format!("analyzer-{}", analyzer.name));
    if let Some(folder) = log.parent() {
        cache::create_dir(folder)?;
    }
    let mut file = fs::File::create(&log).at("create", &log)?;
    writeln!(file, "$ {}", exec::shown(&command)).at("write", &log)?;
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| exec::spawn_error(&command, e))?;
    let (Some(mut stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Error::Bug("cargo was started without pipes".into()));
    };
    // cargo's messages to us and its words for people come at the same time; each pipe has its reader.
    let (json, words) = std::thread::scope(|scope| {
        let messages = scope.spawn(move || {
            let mut json = Vec::new();
            let _ = stdout.read_to_end(&mut json);
            json
        });
        let mut words = String::new();
        for line in BufReader::new(stderr).split(b'\n').map_while(|l| l.ok()) {
            let line = String::from_utf8_lossy(&line);
            step.note(line.trim());
            words.push_str(&line);
            words.push('\n');
        }
        (messages.join().unwrap_or_default(), words)
    });
    let status = child.wait().at("wait for cargo", &log)?;
    file.write_all(words.as_bytes()).at("write", &log)?;
    if !status.success() {
        drop(step);
        if words.contains("No space left on device") {
            return Err(exec::failure(&what, &status, &log));
        }
        words_for_people(&words);
        return Err(Error::AnalyzerBuild { name: analyzer.name.clone(), folder: analyzer.dir.clone() });
    }
    step.done();
    if !analyzer.ships {
        words_for_people(&words);
    }
    archive(&json, analyzer)
        .ok_or_else(|| Error::Bug(format!("cargo built no static library; its log is {}", log.display())))
}

/// Passes on what the compiler said beside its progress.
fn words_for_people(words: &str) {
    const PROGRESS: &[&str] = &[
        "Compiling",
        "Finished",
        "Downloading",
        "Downloaded",
        "Updating",
        "Locking",
        "Blocking",
        "Adding",
        "Fresh",
        "Building",
    ];
    for line in words.lines() {
        // With colours the word is wrapped in escapes.
        let first = line.trim_start_matches(|c: char| !c.is_ascii_alphabetic() || c == 'm').split_whitespace().next();
        let progress = line.starts_with(' ') || line.starts_with('\u{1b}');
        if !(progress && first.is_some_and(|w| PROGRESS.iter().any(|p| w.starts_with(p)))) {
            eprintln!("{line}");
        }
    }
}

/// The static library among what cargo says it made.
fn archive(json: &[u8], analyzer: &Analyzer) -> Option<PathBuf> {
    let ours = |manifest: &str| Path::new(manifest).parent().is_some_and(|d| same_place(d, &analyzer.dir));
    json.lines()
        .map_while(|l| l.ok())
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(&l).ok())
        .filter(|m| m["reason"] == "compiler-artifact" && m["manifest_path"].as_str().is_some_and(ours))
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|f| f.as_str().map(PathBuf::from))
        .filter(|f| f.extension().is_some_and(|e| e == "a"))
        .last()
}

fn same_place(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Everything that the library was built from, and the library.
fn inputs(archive: &Path, package: &Package) -> BTreeSet<PathBuf> {
    let mut files: BTreeSet<PathBuf> = [archive.to_path_buf()].into();
    let text = fs::read_to_string(archive.with_extension("d")).unwrap_or_default();
    files.extend(dep_info(&text));
    // A manifest stands above its sources.
    let mut manifests = BTreeSet::new();
    for file in &files {
        if let Some(m) = file.ancestors().skip(1).map(|d| d.join("Cargo.toml")).find(|m| m.is_file()) {
            manifests.insert(m);
        }
    }
    files.extend(manifests);
    for name in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "rust-toolchain", ".cargo/config.toml"] {
        files.insert(package.workspace.join(name));
    }
    files
}

/// The prerequisites in a dep-info file (make's syntax, blanks escaped by a backslash).
fn dep_info(text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in text.lines() {
        let Some((_, list)) = line.split_once(": ") else {
            continue;
        };
        let mut name = String::new();
        let mut chars = list.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if chars.peek() == Some(&' ') => name.extend(chars.next()),
                ' ' => files.push(PathBuf::from(std::mem::take(&mut name))),
                c => name.push(c),
            }
        }
        files.push(PathBuf::from(name));
    }
    files.retain(|f| !f.as_os_str().is_empty());
    files
}

/// The points that the archive fills.
fn points(archive: &Path, name: &str) -> Result<Vec<String>> {
    let data = fs::read(archive).at("read", archive)?;
    let bad = |e: object::Error| Error::NotAnAnalyzer { name: name.into(), why: format!("{}: {e}", archive.display()) };
    let mut points = BTreeSet::new();
    let mut starts = false;
    let mut add = |symbol: &[u8]| {
        starts |= symbol == ENTRY.as_bytes();
        if let Ok(symbol) = std::str::from_utf8(symbol)
            && let Some(point) = symbol.strip_prefix(POINT_PREFIX)
            && !point.is_empty()
            && point.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            points.insert(point.to_ascii_lowercase());
        }
    };
    let file = ArchiveFile::parse(data.as_slice()).map_err(bad)?;
    // The archive's own table lists what its members define; one made without a table is looked into.
    let mut listed = false;
    for symbol in file.symbols().map_err(bad)?.into_iter().flatten() {
        listed = true;
        add(symbol.map_err(bad)?.name());
    }
    for member in file.members().filter(|_| !listed) {
        let content = member.map_err(bad)?.data(data.as_slice()).map_err(bad)?;
        let Ok(object) = object::File::parse(content) else {
            continue;
        };
        for symbol in object.symbols().filter(|s| s.is_definition() && s.is_global()) {
            add(symbol.name_bytes().map_err(bad)?);
        }
    }
    if !starts {
        return Err(Error::NotAnAnalyzer {
            name: name.into(),
            why: format!("the library defines no {ENTRY}: there is no #[analyzer] in it"),
        });
    }
    Ok(points.into_iter().collect())
}

/// `instrument-points.h`: one line per filled point. The same points give the same bytes.
pub fn points_header(points: &[String]) -> String {
    let mut text = String::from(
        "/*\n * Which instrumentation points the linked analyzer fills. Generated from its symbols by trapline.\n \
         * A point that is not named here compiles to nothing.\n */\n\
         #ifndef INSTRUMENT_POINTS_H\n#define INSTRUMENT_POINTS_H\n\n",
    );
    let sorted: BTreeSet<String> = points.iter().map(|p| p.to_ascii_uppercase()).collect();
    for point in sorted {
        text.push_str(&format!("#define INSTR_HAVE_{point} 1\n"));
    }
    text.push_str("\n#endif\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_each_point_once_in_a_fixed_order() {
        let header = points_header(&["mem".into(), "fetch".into(), "mem".into(), "vcpu_start".into()]);
        let defines: Vec<_> = header.lines().filter(|l| l.starts_with("#define INSTR_")).collect();
        assert_eq!(
            defines,
            ["#define INSTR_HAVE_FETCH 1", "#define INSTR_HAVE_MEM 1", "#define INSTR_HAVE_VCPU_START 1"]
        );
        assert!(
            header.contains("#ifndef INSTRUMENT_POINTS_H\n#define INSTRUMENT_POINTS_H\n")
                && header.ends_with("#endif\n")
        );
        assert!(!points_header(&[]).contains("INSTR_HAVE"));
    }

    #[test]
    fn dep_info_is_read() {
        let text = "/t/libx.a: /s/src/lib.rs /s/a\\ b.rs build.rs\n\n/s/src/lib.rs:\n";
        assert_eq!(dep_info(text), ["/s/src/lib.rs", "/s/a b.rs", "build.rs"].map(PathBuf::from));
        assert!(dep_info("").is_empty());
    }

    #[test]
    fn shipped_by_name_others_by_path() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for name in ["analyzers/count", "analyzers/trace", "elsewhere/my.one"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("Cargo.toml"), "[package]\ndescription = \"It counts\"\n").unwrap();
        }
        assert_eq!(shipped_names(&home), ["count", "trace"]);
        assert_eq!(description(&home, "count"), "It counts");
        let a = find(&home, "count").unwrap();
        assert!(a.ships && a.name == "count");
        let a = find(&home, dir.path().join("analyzers/trace").to_str().unwrap()).unwrap();
        assert!(a.ships && a.name == "trace");
        let a = find(&home, dir.path().join("elsewhere/my.one/Cargo.toml").to_str().unwrap()).unwrap();
        assert!(!a.ships && a.name == "my-one", "{a:?}");
        for bad in ["nope", "", "../x", "/nonexistent"] {
            let e = find(&home, bad).unwrap_err();
            assert!(e.hint().contains("count trace"), "{}", e.hint());
        }
    }

    #[test]
    fn points_come_from_the_archives_symbols() {
        if !crate::deps::has("cc") || !crate::deps::has("ar") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        fs::write(
            d.join("a.c"),
            "void trapline_init(void) {}\nvoid trapline_point_mem(void) {}\nvoid trapline_point_fetch(void) {}\nvoid trapline_pointless(void) {}\n\
             extern void trapline_point_undefined(void);\nvoid f(void) { trapline_point_undefined(); }\n\
             static void __attribute__((used)) trapline_point_local(void) {}\n",
        )
        .unwrap();
        let run = |program: &str, args: &[&str]| {
            assert!(Command::new(program).args(args).current_dir(d).status().unwrap().success());
        };
        run("cc", &["-c", "a.c", "-o", "a.o"]);
        run("ar", &["rcs", "lib.a", "a.o"]);
        assert_eq!(points(&d.join("lib.a"), "x").unwrap(), ["fetch", "mem"]);
        run("ar", &["rcS", "bare.a", "a.o"]);
        assert_eq!(points(&d.join("bare.a"), "x").unwrap(), ["fetch", "mem"]);
        fs::write(d.join("other.c"), "void f(void) {}\n").unwrap();
        run("cc", &["-c", "other.c", "-o", "other.o"]);
        run("ar", &["rcs", "other.a", "other.o"]);
        let e = points(&d.join("other.a"), "x").unwrap_err();
        assert!(e.to_string().contains("#[analyzer]"), "{e}");
        fs::write(d.join("no.a"), "nonsense").unwrap();
        assert!(points(&d.join("no.a"), "x").is_err());
    }
}
