//! The guest library: it compiles everywhere, to the bytes of the table and nothing that harms.

use backdoor::{ISAS, Unit};
use object::{Object, ObjectSection};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{ALL, Isa, checkout, scratch, within};

const LIMIT: Duration = Duration::from_secs(120);

/// Uses every function of the header.
const ALL_OF_IT: &str = r#"
#include "trapline.h"
trapline_result all(const char *name, void *bytes, trapline_u64 *out);
trapline_result all(const char *name, void *bytes, trapline_u64 *out)
{
    trapline_result r = 0;
    if (!trapline_present()) return (trapline_result)trapline_version();
    r += trapline_features(0) + trapline_echo(1, 2) + trapline_whoami() + trapline_start(0) + trapline_stop(0);
    r += trapline_set_depth(0, 1) + trapline_state(0) + trapline_roi_begin(1, name) + trapline_roi_end(1, name);
    r += trapline_filter_range(1, 2, 1) + trapline_scope_asid(1) + trapline_event(1, 2, 3, 4, 5) + trapline_define(name);
    r += trapline_mark(name, 1) + trapline_log(name, 3, 1) + trapline_send(1, bytes, 3) + trapline_recv(1, bytes, 3);
    r += trapline_thread_name(name) + trapline_icount(out) + trapline_clock(0, out) + trapline_counter(0, out);
    r += trapline_stats_dump(name) + trapline_stats_reset(name) + trapline_analyzer_select(name);
    r += trapline_analyzer_call(0, 1, bytes, 3) + trapline_add_symbol(bytes, 3, name) + trapline_exit(1);
    r += trapline_abort(name) + trapline_break();
    return r;
}
"#;

fn source(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, ALL_OF_IT).unwrap();
    path
}

fn idents(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "X86_64",
        Isa::I386 => "I386",
        Isa::Aarch64 => "AARCH64",
        Isa::Arm => "A32",
        Isa::Thumb => "T32",
        Isa::Riscv64 | Isa::Riscv32 => "RISCV",
        Isa::Mipsel | Isa::Mips | Isa::Mips64el => "MIPS",
        Isa::Ppc64le | Isa::Ppc => "PPC",
        Isa::S390x => "S390X",
    }
}

/// The table's bytes in memory.
fn bytes(unit: Unit, code: &[u32], big: bool) -> Vec<u8> {
    let mut all = Vec::new();
    for n in code {
        let (le, be, len) = (n.to_le_bytes(), n.to_be_bytes(), unit.bytes());
        if big { all.extend(&be[4 - len..]) } else { all.extend(&le[..len]) }
    }
    all
}

/// How often call and probe are in the code of an object.
fn found(object: &Path, isa: Isa) -> (usize, usize) {
    found_of(object, idents(isa), isa.is_big_endian())
}

/// The same for a row of the table.
fn found_of(object: &Path, ident: &str, big: bool) -> (usize, usize) {
    let data = fs::read(object).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let entry = ISAS.iter().find(|i| i.ident == ident).unwrap();
    let big = big && entry.unit != Unit::Bytes;
    let count = |code: &[u32]| {
        let wanted = bytes(entry.unit, code, big);
        file.sections()
            .filter(|s| s.kind() == object::SectionKind::Text)
            .map(|s| s.data().unwrap().windows(wanted.len()).filter(|w| *w == wanted).count())
            .sum()
    };
    (count(entry.call), count(entry.probe))
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}

fn compile(mut command: Command, source: &Path, out: &Path) {
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).arg("-I").arg(checkout().join("guest-lib/include"));
    within(LIMIT, command.arg("-c").arg(source).arg("-o").arg(out)).code(0);
}

#[test]
fn header_compiles_for_every_isa_to_the_bytes_of_the_table() {
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    for isa in ALL {
        for flags in [&["-O0"][..], &["-O2"], &["-O3", "-fPIE"], &["-Os", "-ffreestanding", "-fPIC"]] {
            let mut command = Command::new(format!("{}-gcc", isa.triplet()));
            command.arg("-std=c99").args(flags);
            if isa == Isa::Arm || isa == Isa::Thumb {
                command.arg(if isa == Isa::Arm { "-marm" } else { "-mthumb" });
            }
            compile(command, &c, &out);
            let (calls, probes) = found(&out, isa);
            assert!(calls > 0 && probes > 0, "{isa:?} {flags:?}: {calls} calls, {probes} probes");
            // Inlined: each of the 29 calls has a probe before it, one more asks for the version. At -O0 they are functions.
            if flags[0] == "-O3" {
                assert!(calls >= 20 && probes >= calls, "{isa:?}: {calls} calls, {probes} probes");
            }
        }
    }
}

#[test]
fn header_compiles_as_every_c_and_cpp_by_gcc_and_clang() {
    let folder = scratch();
    let (c, cpp, out) = (source(folder.path(), "all.c"), source(folder.path(), "all.cpp"), folder.path().join("all.o"));
    let mut compilers = vec![("gcc", "g++")];
    if has("clang") {
        compilers.push(("clang", "clang++"));
    }
    for (cc, cxx) in compilers {
        for (program, file, standards) in
            [(cc, &c, &["c99", "c11", "c17", "gnu2x"][..]), (cxx, &cpp, &["c++11", "c++14", "c++17", "c++20"][..])]
        {
            if !has(program) {
                continue;
            }
            for std in standards {
                for flags in [&["-O0"][..], &["-O1"], &["-O2"], &["-O3"], &["-O2", "-fPIE"], &["-O2", "-flto"]] {
                    let mut command = Command::new(program);
                    command.arg(format!("-std={std}")).args(flags);
                    compile(command, file, &out);
                }
            }
        }
    }
}

#[test]
fn clang_compiles_it_for_other_isas_too() {
    if !has("clang") {
        return;
    }
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    let targets = [
        ("aarch64-linux-gnu", Isa::Aarch64),
        ("armv7a-linux-gnueabihf", Isa::Arm),
        ("riscv64-linux-gnu", Isa::Riscv64),
        ("mips-linux-gnu", Isa::Mips),
        ("powerpc64le-linux-gnu", Isa::Ppc64le),
        ("s390x-linux-gnu", Isa::S390x),
    ];
    for (target, isa) in targets {
        let mut command = Command::new("clang");
        command.args(["-std=c99", "-O2", "-ffreestanding"]).arg(format!("--target={target}"));
        compile(command, &c, &out);
        let (calls, probes) = found(&out, isa);
        assert!(calls > 0 && probes > 0, "{target}: {calls} calls, {probes} probes");
    }
}

#[test]
fn disabled_it_leaves_nothing_behind() {
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    for isa in ALL {
        let mut command = Command::new(format!("{}-gcc", isa.triplet()));
        command.args(["-std=c99", "-O2", "-DTRAPLINE_DISABLE"]);
        compile(command, &c, &out);
        assert_eq!(found(&out, isa), (0, 0), "{isa:?}");
    }
}

#[test]
fn sixteen_bit_code_has_an_address_size_prefix() {
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    let mut command = Command::new("i686-linux-gnu-gcc");
    command.args(["-std=c99", "-O2", "-m16", "-ffreestanding", "-DTRAPLINE_CODE16"]);
    compile(command, &c, &out);
    let data = fs::read(&out).unwrap();
    let entry = ISAS.iter().find(|i| i.ident == "I8086").unwrap();
    let wanted = bytes(Unit::Bytes, entry.call, false);
    assert!(data.windows(8).any(|w| w == wanted));
}

#[test]
fn mips16_has_its_own_bytes() {
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    for (isa, flags) in [(Isa::Mipsel, "-O0"), (Isa::Mipsel, "-O2"), (Isa::Mips, "-O2")] {
        let mut command = Command::new(format!("{}-gcc", isa.triplet()));
        command.args(["-std=c99", "-mips16", flags]);
        compile(command, &c, &out);
        let (calls, probes) = found_of(&out, "MIPS16", isa.is_big_endian());
        assert!(calls > 0 && probes > 0, "{isa:?} {flags}: {calls} calls, {probes} probes");
        assert_eq!(found(&out, isa).0, 0, "{isa:?}: none of the other mode");
    }
}

/// Its assembler fills with zeros, which are illegal: no alignment may be on the way.
#[test]
fn xtensa_has_its_bytes_and_no_other_illegal_ones() {
    let cc = "xtensa-lx106-elf-gcc";
    if !has(cc) {
        println!("no compiler for Xtensa on this machine (Debian: gcc-xtensa-lx106): not built");
        return;
    }
    let folder = scratch();
    let (c, out) = (source(folder.path(), "all.c"), folder.path().join("all.o"));
    for flags in ["-O0", "-O2", "-Os"] {
        let mut command = Command::new(cc);
        command.args(["-std=c99", "-ffreestanding", flags]);
        compile(command, &c, &out);
        let data = fs::read(&out).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let entry = ISAS.iter().find(|i| i.ident == "XTENSA").unwrap();
        let (call, probe) = (bytes(entry.unit, entry.call, false), bytes(entry.unit, entry.probe, false));
        let mut found = (0, 0);
        for section in file.sections().filter(|s| s.kind() == object::SectionKind::Text) {
            let text = section.data().unwrap();
            let at =
                |wanted: &[u8]| -> Vec<usize> { (0..text.len()).filter(|i| text[*i..].starts_with(wanted)).collect() };
            let calls: Vec<usize> = at(&call).into_iter().filter(|i| i % 8 == 0).collect();
            // In front of each is the jump over what it is aligned with: `j` to it (offset from behind it, 18 bits above the opcode).
            for call in &calls {
                let jumps = (3..11usize.min(call + 1)).any(|n| {
                    let word = u32::from_le_bytes([text[call - n], text[call - n + 1], text[call - n + 2], 0]);
                    word & 0x3f == 6 && (word >> 6) as usize + 4 == n
                });
                assert!(jumps, "{flags}: the call at {call:#x} is run into through what it is aligned with");
            }
            found = (found.0 + calls.len(), found.1 + at(&probe).len());
        }
        assert!(found.0 > 0 && found.1 > found.0, "{flags}: {found:?}");
    }
}

#[test]
fn command_and_stub_library_build_for_every_isa() {
    for isa in ALL {
        if isa == Isa::Thumb {
            continue;
        }
        let folder = scratch();
        let mut make = Command::new("make");
        make.arg("-C").arg(checkout().join("guest-lib"));
        make.args([format!("CC={}-gcc", isa.triplet()), format!("AR={}-ar", isa.triplet())]);
        within(LIMIT, make.arg(format!("OUT={}", folder.path().display()))).code(0);
        for file in ["trapctl", "libtrapline.a", "libtrapline.so"] {
            assert!(folder.path().join(file).metadata().unwrap().len() > 500, "{isa:?} {file}");
        }
    }
}

#[test]
fn module_builds_against_debians_headers() {
    let headers: Vec<PathBuf> = fs::read_dir("/usr/src")
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("linux-headers-")))
        .filter(|p| p.join("Makefile").exists() && p.join("scripts/mod").exists() && p.join(".config").exists())
        .collect();
    let Some(headers) = headers.last() else {
        println!("no kernel headers on this machine (Debian: linux-headers-amd64): not built");
        return;
    };
    // kbuild builds in place: in a copy.
    let folder = scratch();
    let copy = folder.path().join("guest-lib");
    within(LIMIT, Command::new("cp").arg("-r").arg(checkout().join("guest-lib")).arg(&copy)).code(0);
    let kdir = format!("KDIR={}", headers.display());
    let f = within(LIMIT, Command::new("make").arg("-C").arg(copy.join("module")).arg(kdir)).code(0);
    assert!(!f.err().contains("warning"), "{}", f.err());
    let module = fs::read(copy.join("module/trapline_switch.ko")).unwrap();
    let entry = ISAS.iter().find(|i| i.ident == "X86_64").unwrap();
    if cfg!(target_arch = "x86_64") {
        let wanted = bytes(Unit::Bytes, entry.call, false);
        assert!(module.windows(7).any(|w| w == wanted), "the call is in it");
    }
}

#[test]
fn examples_run_alone_and_say_so() {
    let folder = scratch();
    let examples = checkout().join("guest-lib/examples");
    let include = checkout().join("guest-lib/include");
    for (compiler, file, flags) in [
        ("gcc", "hello.c", &["-std=c99", "-Wall", "-Wextra", "-Werror"][..]),
        ("g++", "hello.cpp", &["-std=c++11", "-Wall", "-Wextra", "-Werror"]),
        ("gcc", "hello.S", &["-nostdlib", "-static"]),
    ] {
        if !has(compiler) || (file == "hello.S" && !cfg!(target_arch = "x86_64")) {
            continue;
        }
        let out = folder.path().join(file.replace('.', "_"));
        let mut command = Command::new(compiler);
        command.args(flags).arg("-I").arg(&include).arg(examples.join(file)).arg("-o").arg(&out);
        within(LIMIT, &mut command).code(0);
        let f = within(LIMIT, &mut Command::new(&out)).code(0);
        let expected = match file {
            "hello.c" => "nobody answers\n",
            "hello.cpp" => "500500\n",
            _ => "",
        };
        assert_eq!(f.out(), expected, "{file}");
    }
    if has("python3") {
        let mut make = Command::new("make");
        make.arg("-C").arg(checkout().join("guest-lib")).arg(format!("OUT={}", folder.path().display()));
        within(LIMIT, &mut make).code(0);
        let mut python = Command::new("python3");
        python.arg(examples.join("trapline.py")).env("TRAPLINE_STUB", folder.path().join("libtrapline.so"));
        assert_eq!(within(LIMIT, &mut python).code(0).out(), "nobody answers\n4950\n");
    }
}

#[test]
fn python_under_trapline_traces_what_is_in_the_block() {
    if !has("/usr/bin/python3") {
        println!("no python3: not run");
        return;
    }
    let folder = scratch();
    let mut make = Command::new("make");
    make.arg("-C").arg(checkout().join("guest-lib")).arg(format!("OUT={}", folder.path().display()));
    within(LIMIT, &mut make).code(0);
    let log = folder.path().join("trace");
    let mut run = Command::new(trapline_tests::trapline());
    run.args(["run", "--start-off", "-a", "trace", "-o"]).arg(&log).arg("--").arg("/usr/bin/python3");
    run.arg(checkout().join("guest-lib/examples/trapline.py"));
    let f = within(LIMIT, run.env("TRAPLINE_STUB", folder.path().join("libtrapline.so"))).code(0);
    assert_eq!(f.out(), "Trapline answers\n4950\n");
    let text = fs::read_to_string(&log).unwrap();
    let place = |what: &str| text.lines().position(|l| l.contains(what)).unwrap_or_else(|| panic!("no {what}"));
    let places = [r#"roi_begin"#, "trace_start", "trace_stop", "roi_end", r#"value=4950 name="total""#].map(place);
    assert!(places.is_sorted(), "{places:?}");
    let fetched = text.lines().filter(|l| l.contains(" fetch ")).count();
    assert!((1000..1_000_000).contains(&fetched), "{fetched}");
}

#[test]
fn rust_guards_stop_when_they_are_dropped() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = scratch();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(checkout()).args(["build", "-q", "-p", "trapline-guest", "--example", "hello", "--target-dir"]);
    within(LIMIT, build.arg(folder.path())).code(0);
    let program = folder.path().join("debug/examples/hello");
    assert_eq!(within(LIMIT, &mut Command::new(&program)).code(0).out(), "nobody answers\n610\n");
    let log = folder.path().join("trace");
    let mut run = Command::new(trapline_tests::trapline());
    run.args(["run", "--start-off", "-a", "trace", "-o"]).arg(&log).arg("--").arg(&program);
    assert_eq!(within(LIMIT, &mut run).code(0).out(), "Trapline answers\n610\n");
    let text = fs::read_to_string(&log).unwrap();
    let place = |what: &str| text.lines().position(|l| l.contains(what)).unwrap_or_else(|| panic!("no {what}"));
    let places = [r#"roi_begin"#, "trace_start", "trace_stop", "roi_end", r#"value=610 name="result""#].map(place);
    assert!(places.is_sorted(), "{places:?}");
}
