//! What is wrong with the input is said: what, where, and what to do; nothing half-made is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{
    Ended, Finished, How, Isa, cache, checkout, guest, guest_linked, qemu, scratch, trapline, within,
};

const LIMIT: Duration = Duration::from_secs(600);

fn run(args: &[&str], program: &Path) -> Finished {
    within(LIMIT, Command::new(trapline()).arg("run").args(args).arg("--").arg(program))
}

/// The message is on standard error, starts with our name, and has these parts.
#[track_caller]
fn says(f: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(f.ended, Ended::Code(code), "{}", f.err());
    assert_eq!(f.out(), "");
    assert!(f.err().starts_with("trapline: "), "{}", f.err());
    for part in parts {
        assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
    }
    assert!(!f.err().contains("panicked at"), "{}", f.err());
}

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn programs_that_are_none() {
    let folder = scratch();
    let f = folder.path();
    let loop_ = fs::read(guest("loop", Isa::X86_64).path).unwrap();
    let mut unknown = loop_.clone();
    unknown[18..20].copy_from_slice(&[0x34, 0x12]);

    says(&run(&[], &f.join("missing")), 127, &["missing", "no such file"]);
    says(&run(&[], Path::new("no-such-command-anywhere")), 127, &["no-such-command-anywhere", "PATH"]);
    says(&run(&[], f), 126, &[f.to_str().unwrap(), "directory"]);
    says(&run(&[], &file(f, "text", b"hello, world\n", 0o755)), 126, &["text", "#!"]);
    says(&run(&[], &file(f, "empty", b"", 0o755)), 126, &["empty"]);
    says(&run(&[], &file(f, "mode", &loop_, 0o644)), 126, &["mode", "execut"]);
    says(&run(&[], &file(f, "short", &loop_[..40], 0o755)), 126, &["short"]);
    says(&run(&[], &file(f, "cut", &loop_[..loop_.len() / 3], 0o755)), 126, &["cut"]);
    says(&run(&[], &file(f, "alien", &unknown, 0o755)), 126, &["alien"]);
    says(&run(&[], &file(f, "lost", b"#!/no/such/interpreter -x\n", 0o755)), 127, &["lost", "/no/such/interpreter"]);
    let own = f.join("own");
    file(f, "own", format!("#!{}\n", own.display()).as_bytes(), 0o755);
    says(&run(&[], &own), 126, &["own", "interpreter"]);
}

#[test]
fn dynamic_program_without_its_loader() {
    let g = guest_linked("maps", Isa::S390x, How::Dynamic);
    let f = run(&["-L", "/nonexistent"], &g.path);
    says(&f, 127, &["ld64.so.1", "/nonexistent"]);
}

#[test]
fn dynamic_program_without_a_library() {
    let folder = scratch();
    // A prefix that has the loader, but not the library that the program names.
    let source = folder.path().join("t.c");
    fs::write(&source, "int answer(void); int main(void) { return answer(); }\n").unwrap();
    fs::write(folder.path().join("l.c"), "int answer(void) { return 42; }\n").unwrap();
    let cc = |args: &[&str]| {
        within(LIMIT, Command::new("aarch64-linux-gnu-gcc").current_dir(folder.path()).args(args)).code(0)
    };
    cc(&["-shared", "-fPIC", "-o", "libanswer.so", "l.c"]);
    cc(&["-o", "t", "t.c", "-L.", "-lanswer"]);
    qemu("aarch64", "trace");
    let f = run(&["-a", "trace", "-o", "/dev/null", "-L", "/usr/aarch64-linux-gnu"], &folder.path().join("t"));
    assert_eq!(f.ended, Ended::Code(127), "as without QEMU");
    assert!(f.err().contains("libanswer.so"), "{}", f.err());
}

#[test]
fn names_that_do_not_exist() {
    let g = guest("loop", Isa::X86_64);
    says(&run(&["--analyzer", "nosuch"], &g.path), 125, &["nosuch", "trace"]);
    let f = within(LIMIT, Command::new(trapline()).args(["build", "--target", "pdp11"]));
    says(&f, 125, &["pdp11", "x86_64"]);
    let f = run(&["--no-such-option"], &g.path);
    assert_eq!(f.ended, Ended::Code(125));
    assert!(f.err().contains("--no-such-option"));
}

/// An analyzer of a user: a crate in a folder of its own.
fn analyzer(folder: &Path, name: &str, body: &str) -> PathBuf {
    let dir = folder.join(name);
    fs::create_dir_all(dir.join("src")).unwrap();
    let instrument = checkout().join("instrument");
    fs::write(
        dir.join("Cargo.toml"),
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[lib]\ncrate-type = [\"staticlib\"]\n\n\
             [dependencies]\ninstrument = {{ package = \"trapline-instrument\", path = {:?} }}\n\n[workspace]\n",
            instrument.display().to_string()
        ),
    )
    .unwrap();
    fs::write(
        dir.join("src/lib.rs"),
        format!("use instrument::prelude::*;\n\nstruct Mine;\n\n#[analyzer]\nimpl Analyzer for Mine {{\n{body}\n}}\n"),
    )
    .unwrap();
    dir
}

const NEW: &str = "fn new(_: &Qemu) -> Self { Mine }";

#[test]
fn analyzer_that_does_not_compile() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let dir = analyzer(
        folder.path(),
        "broken",
        &format!("{NEW}\nfn fetch(&self, _: &Insn, point: &mut FetchPoint) {{ point.trcae(); }}"),
    );
    let f = run(&["--analyzer", dir.to_str().unwrap()], &g.path);
    assert_eq!(f.ended, Ended::Code(125));
    // The compiler's own words, and ours.
    for part in ["trcae", "src/lib.rs", "trapline: ", "does not build"] {
        assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
    }
    // Once it is right, it runs: nothing was left behind.
    let dir = analyzer(
        folder.path(),
        "broken",
        &format!("{NEW}\nfn fetch(&self, _: &Insn, point: &mut FetchPoint) {{ point.trace(); }}"),
    );
    within(LIMIT, Command::new(trapline()).args(["run", "--analyzer", dir.to_str().unwrap(), "--"]).arg(&g.path))
        .code(7);
}

#[test]
fn analyzer_that_panics_says_where() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let dir = analyzer(folder.path(), "early", "fn new(_: &Qemu) -> Self { panic!(\"not today\") }");
    let f = run(&["--analyzer", dir.to_str().unwrap()], &g.path);
    assert!(matches!(f.ended, Ended::Code(c) if c != 0 && c != 7), "{:?}", f.ended);
    for part in ["early", "`new`", "not today", "src/lib.rs"] {
        assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
    }
    let pc = format!("{:#x}", g.sym("load"));
    let body =
        format!("{NEW}\nfn fetch(&self, i: &Insn, _: &mut FetchPoint) {{ if i.pc() == {pc} {{ panic!(\"here\") }} }}");
    let dir = analyzer(folder.path(), "late", &body);
    let f = run(&["--analyzer", dir.to_str().unwrap()], &g.path);
    assert!(matches!(f.ended, Ended::Code(c) if c != 0 && c != 7), "{:?}", f.ended);
    for part in ["late", "`fetch`", "here", &pc] {
        assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
    }
}

#[test]
fn crate_that_is_no_analyzer() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let dir = analyzer(folder.path(), "nothing", NEW);
    fs::write(dir.join("src/lib.rs"), "pub fn nothing() {}\n").unwrap();
    let f = run(&["--analyzer", dir.to_str().unwrap()], &g.path);
    says_at_the_end(&f, &["nothing", "#[analyzer]"]);
}

#[track_caller]
fn says_at_the_end(f: &Finished, parts: &[&str]) {
    assert_eq!(f.ended, Ended::Code(125), "{}", f.err());
    for part in parts {
        assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
    }
}

#[test]
fn options_that_the_analyzer_does_not_know() {
    let g = guest("loop", Isa::X86_64);
    qemu("x86_64", "trace");
    let f = run(&["-a", "trace", "--opt", "txet=1", "-o", "/dev/null"], &g.path);
    assert!(matches!(f.ended, Ended::Code(c) if c != 0 && c != 7), "{:?}", f.ended);
    assert!(f.err().contains("txet") && f.err().contains("values"), "{}", f.err());
}

#[test]
fn sources_that_are_none_or_of_another_version() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let build = |dir: &Path| {
        within(LIMIT, Command::new(trapline()).args(["build", "--target", "x86_64", "--qemu-src"]).arg(dir))
    };
    says(&build(&folder.path().join("missing")), 125, &["missing"]);
    says(&build(folder.path()), 125, &[folder.path().to_str().unwrap()]);
    for (version, named) in [("10.2.0\n", "10.2.0"), ("7.2.19\n", "7.2.19"), ("nonsense\n", "nonsense")] {
        fs::write(folder.path().join("VERSION"), version).unwrap();
        fs::write(folder.path().join("configure"), "#!/bin/sh\n").unwrap();
        fs::write(folder.path().join("meson.build"), "").unwrap();
        says(&build(folder.path()), 125, &[named, "10.0"]);
    }
    drop(g);
}

#[test]
fn cache_that_cannot_be_written() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let blocked = file(folder.path(), "file", b"", 0o644);
    let f = within(
        LIMIT,
        Command::new(trapline()).env("TRAPLINE_CACHE", blocked.join("cache")).args(["run", "--"]).arg(&g.path),
    );
    says(&f, 125, &[blocked.to_str().unwrap()]);
}

/// QEMU refers to a symbol that names the ABI's version; here one of the next version meets the library of today.
#[test]
fn library_of_another_abi_is_a_link_error_that_names_the_version() {
    qemu("x86_64", "empty");
    let library = fs::read_dir(cache().join("qemu"))
        .unwrap()
        .filter_map(|e| e.ok())
        .map(|e| e.path().join("instrument/libanalyzer.a"))
        .find(|p| p.exists())
        .expect("the cache has a library");
    let header = fs::read_to_string(checkout().join("instrument/include/trapline.h")).unwrap();
    let now: u32 = header
        .lines()
        .find_map(|l| l.strip_prefix("#define TRAPLINE_ABI "))
        .expect("a version")
        .trim()
        .parse()
        .unwrap();
    let symbol = |n: u32| format!("trapline_abi_version_{n}");
    let folder = scratch();
    let link = |n: u32| {
        fs::write(folder.path().join("trapline.h"), header.replace(&symbol(now), &symbol(n))).unwrap();
        fs::write(
            folder.path().join("t.c"),
            "#include \"trapline.h\"\nint main(void) { return TRAPLINE_ABI_SYMBOL == 0; }\n",
        )
        .unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(folder.path()).args(["-Wl,--gc-sections", "-o", "t", "t.c"]).arg(&library).args([
            "-lpthread",
            "-ldl",
            "-lm",
        ]);
        within(LIMIT, &mut cc)
    };
    link(now).code(0);
    let f = link(now + 1);
    assert_ne!(f.ended, Ended::Code(0));
    assert!(f.err().contains(&format!("undefined reference to `{}'", symbol(now + 1))), "{}", f.err());
}

/// Two analyzers in one library: the compiler names the symbol that both define.
#[test]
fn two_analyzers_in_one_crate_are_refused() {
    let folder = scratch();
    let g = guest("loop", Isa::X86_64);
    let dir = analyzer(folder.path(), "two", NEW);
    let lib = dir.join("src/lib.rs");
    let one = fs::read_to_string(&lib).unwrap();
    let other = one.replace("use instrument::prelude::*;", "").replace("Mine", "Other");
    fs::write(&lib, one + &other).unwrap();
    let f = run(&["--analyzer", dir.to_str().unwrap()], &g.path);
    says_at_the_end(&f, &["TRAPLINE_ANALYZER_NAME", "already defined", "#[analyzer]", "does not build"]);
}
