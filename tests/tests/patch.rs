//! The patch: it fits, it is a series, it is invisible unless asked for, and a source that it does not fit is refused by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Ended, Isa, cache, checkout, guest, qemu, same, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(600);

fn text() -> String {
    fs::read_to_string(checkout().join("qemu_patches.patch")).expect("the patch")
}

/// Files that the series changes or adds, and of them those that it adds.
fn files() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut all, mut new) = (BTreeSet::new(), BTreeSet::new());
    let mut before = "";
    for line in text().lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            all.insert(name.to_string());
            if before == "--- /dev/null" {
                new.insert(name.to_string());
            }
        }
        before = if line.starts_with("--- ") { "" } else { before };
        if line == "--- /dev/null" {
            before = "--- /dev/null";
        }
    }
    (all, new)
}

/// The unpatched source, the patched tree and the build folder of the unpatched QEMU, all in the cache.
struct Trees {
    pristine: PathBuf,
    patched: PathBuf,
    build: PathBuf,
}

fn trees() -> Trees {
    qemu("x86_64", "plain");
    // A patched one, so that the patched tree is there and is that of today's patch.
    qemu("x86_64", "empty");
    let newest = fs::read_dir(cache().join("qemu"))
        .expect("the cache has QEMUs")
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.join("build-plain/compile_commands.json").exists() && p.join("tree/VERSION").exists())
        .max_by_key(|p| p.join("build-plain/compile_commands.json").metadata().and_then(|m| m.modified()).ok())
        .expect("a QEMU that is built both ways");
    let pristine = cache().join("source").join(newest.file_name().expect("a name"));
    Trees { pristine, patched: newest.join("tree"), build: newest.join("build-plain") }
}

#[test]
fn it_applies_to_the_pristine_source_without_fuzz() {
    // Not a dry run: commits of the series change files that earlier ones add.
    let folder = scratch();
    touched(folder.path());
    let f = within(
        LIMIT,
        Command::new("patch")
            .args(["-p1", "-F0", "-i"])
            .arg(checkout().join("qemu_patches.patch"))
            .arg("-d")
            .arg(folder.path()),
    )
    .code(0);
    assert!(!f.out().contains("fuzz") && !f.out().contains("FAILED"), "{}", f.out());
}

/// A folder with the files of the pristine source that the series changes.
fn touched(into: &Path) {
    let t = trees();
    let (all, new) = files();
    for name in all.difference(&new).map(|n| n.as_str()).chain(["VERSION"]) {
        let to = into.join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(t.pristine.join(name), to).unwrap();
    }
}

#[test]
fn it_is_a_series_for_git_am() {
    let folder = scratch();
    touched(folder.path());
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(folder.path())
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.autocrlf=false"])
            .args(args);
        within(LIMIT, command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1")).code(0)
    };
    git(&["init", "-q"]);
    git(&["add", "-A", "-f"]);
    git(&["commit", "-qm", "base"]);
    git(&["am", "-q", checkout().join("qemu_patches.patch").to_str().unwrap()]);
    let log = git(&["log", "--format=%s%x09%b%x00", "HEAD", "--not", ":/^base"]).out();
    let commits: Vec<&str> = log.split('\0').filter(|c| !c.trim().is_empty()).collect();
    let mails = text().lines().filter(|l| l.starts_with("Subject: [PATCH")).count();
    assert_eq!(commits.len(), mails);
    assert!(mails > 1);
    for c in commits {
        let (subject, body) = c.trim().split_once('\t').unwrap();
        assert!(subject.contains(": "), "a subject names its area: {subject}");
        assert!(body.contains("Signed-off-by: "), "{subject}");
        assert!(body.trim().lines().count() > 2, "it says why: {subject}");
    }
}

#[test]
fn it_follows_qemus_style() {
    let t = trees();
    let mut command = Command::new("perl");
    command
        .current_dir(&t.pristine)
        .args(["scripts/checkpatch.pl", "--no-color", "--terse"])
        .arg(checkout().join("qemu_patches.patch"));
    let f = within(LIMIT, &mut command);
    let errors: Vec<String> = f.out().lines().filter(|l| l.contains("ERROR:")).map(|l| l.to_string()).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// Every change of a file that exists is under `#ifdef CONFIG_INSTRUMENT`, or changes no object: the objects of all `.c` files that the series
/// touches, directly or through what they include, have the same code as without it.
///
/// Both are compiled with the very command of the unpatched build, once with the paths of the patched tree put in. `__LINE__` is
/// fixed, since assertions bake line numbers into code and the patch moves lines; nothing else is normalised.
#[test]
fn without_the_option_the_code_is_that_of_unpatched_qemu() {
    let t = trees();
    let commands: Vec<serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(t.build.join("compile_commands.json")).unwrap()).unwrap();
    let (all, new) = files();
    let mut wanted: BTreeSet<String> = all.difference(&new).filter(|n| n.ends_with(".c")).cloned().collect();
    // What only whole machines have cannot be compiled in this build.
    wanted.retain(|name| !name.starts_with("system/") && !name.contains("/system/"));
    // Included files count through those that include them.
    for include in all.iter().filter(|n| n.ends_with(".c.inc")) {
        let name = include.rsplit('/').next().unwrap();
        let folder = t.pristine.join(include).parent().unwrap().to_path_buf();
        for entry in fs::read_dir(&folder).unwrap().filter_map(|e| e.ok()) {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "c")
                && fs::read_to_string(&path).is_ok_and(|c| c.contains(&format!("#include \"{name}\"")))
            {
                wanted.insert(path.strip_prefix(&t.pristine).unwrap().to_str().unwrap().to_string());
            }
        }
    }
    // Headers reach everything; these files include them all between them. `tcg.c` and a target's translator stand for the rest.
    wanted.extend(["tcg/tcg.c", "target/arm/tcg/translate-a64.c", "target/mips/tcg/translate.c"].map(String::from));

    let folder = scratch();
    let mut jobs: Vec<(String, [Command; 2])> = Vec::new();
    let mut outputs = Vec::new();
    for name in &wanted {
        let entry = |target: &str| {
            commands.iter().find(|c| {
                c["file"].as_str().unwrap().ends_with(&format!("/{name}"))
                    && c["output"].as_str().unwrap_or_default().contains(target)
            })
        };
        // What only full-system emulation compiles is not in this build, nor is Hexagon (it has a build folder of its own).
        let Some(entry) = entry("qemu-x86_64-linux-user").or_else(|| entry("")) else {
            let elsewhere = [
                "accel/tcg/cputlb.c",
                "hw/sh4/sh7750.c",
                "target/hexagon/genptr.c",
                "target/hexagon/op_helper.c",
                "target/loongarch/tcg/csr_helper.c",
                "target/ppc/mmu_helper.c",
            ];
            assert!(elsewhere.contains(&name.as_str()), "{name} is not compiled");
            continue;
        };
        let root = entry["file"].as_str().unwrap().strip_suffix(&format!("/{name}")).unwrap().to_string();
        // Without where the object and its list of dependencies go.
        let mut words = entry["command"].as_str().unwrap().split(' ');
        let mut command = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "-MD" => {}
                "-MQ" | "-MF" | "-o" => drop(words.next()),
                _ => command.push(word),
            }
        }
        let command = command.join(" ");
        assert!(command.contains(&root));
        let object = |kind: &str| folder.path().join(format!("{}.{kind}.o", name.replace('/', "_")));
        let shell = |kind: &str, source: &str| {
            let mut sh = Command::new("sh");
            // The tree is named relative to the build folder, and here and there in full.
            let whole = t.build.join(&root).canonicalize().expect("the source tree");
            let line = [root.as_str(), whole.to_str().expect("UTF-8")].iter().fold(command.clone(), |line, root| {
                line.replace(&format!("{root}/"), &format!("{source}/"))
                    .replace(&format!("{root} "), &format!("{source} "))
            });
            sh.current_dir(&t.build)
                .arg("-c")
                .arg(format!("{line} -D__LINE__=0 -Wno-builtin-macro-redefined -w -o {}", object(kind).display()));
            sh
        };
        outputs.push(entry["output"].as_str().unwrap().to_string());
        jobs.push((name.clone(), [shell("old", &root), shell("new", t.patched.to_str().unwrap())]));
    }
    assert!(jobs.len() >= 12, "{} files", jobs.len());
    // What is generated for a target that has not been built yet comes with its objects.
    let ninja = cache().join("venv/bin/ninja");
    within(LIMIT, Command::new(ninja).arg("-C").arg(&t.build).args(&outputs)).code(0);

    // Two at a time: there are two of each.
    for (name, [old, new]) in &mut jobs {
        let (mut a, mut b) = (old.spawn().unwrap(), new.spawn().unwrap());
        assert!(a.wait().unwrap().success() && b.wait().unwrap().success(), "{name}");
    }
    for (name, _) in &jobs {
        let code = |kind: &str| {
            let object = folder.path().join(format!("{}.{kind}.o", name.replace('/', "_")));
            let f = within(LIMIT, Command::new("objdump").arg("-d").arg(&object)).code(0);
            // The first line names the file.
            f.out().lines().filter(|l| !l.contains("file format")).map(|l| l.to_string()).collect::<Vec<_>>()
        };
        let (old, new) = (code("old"), code("new"));
        // These have code only for whole machines, or 64 bits.
        let empty = ["target/ppc/excp_helper.c", "target/sparc/ldst_helper.c"];
        assert!(old.len() > 5 || empty.contains(&name.as_str()), "{name} has code");
        let old: Vec<&str> = old.iter().map(|l| l.as_str()).collect();
        println!("{name}: {} lines of disassembly", old.len());
        same(&new, &old);
    }
}

#[test]
fn source_that_it_does_not_fit_is_refused_with_the_file_named() {
    let folder = scratch();
    touched(folder.path());
    fs::write(folder.path().join("VERSION"), "10.0.49\n").unwrap();
    let file = folder.path().join("accel/tcg/translator.c");
    let mangled = fs::read_to_string(&file).unwrap().replace("plugin_gen_tb_start", "plugin_gen_tb_begin");
    fs::write(&file, mangled).unwrap();
    let build = || {
        within(
            LIMIT,
            Command::new(trapline())
                .args(["build", "--target", "x86_64", "--analyzer", "empty", "--qemu-src"])
                .arg(folder.path()),
        )
    };
    // Twice: the first try leaves nothing that makes the second look different.
    for _ in 0..2 {
        let f = build();
        assert_eq!(f.ended, Ended::Code(125), "{}", f.err());
        for part in ["10.0.49", "accel/tcg/translator.c", "qemu_patches.patch"] {
            assert!(f.err().contains(part), "'{part}' is not said: {}", f.err());
        }
    }
    assert!(!folder.path().join("accel/tcg/instrument-gen.c").exists(), "the source is read, not changed");
}

/// What QEMU logs of `items`.
fn log(binary: &Path, args: &[&str], program: &Path, items: &str) -> String {
    let folder = scratch();
    let log = folder.path().join("log");
    let mut command = Command::new("setarch");
    command.arg("-R").arg(binary).args(["-d", items, "-D"]).arg(&log).args(args).arg(program);
    within(LIMIT, &mut command);
    String::from_utf8_lossy(&fs::read(&log).expect("QEMU writes its log")).into_owned()
}

/// The ops after optimisation, by block. Pointers of the process, and numbers of temporaries, say nothing.
fn ops(binary: &Path, args: &[&str], program: &Path) -> Vec<String> {
    plain_ops(&log(binary, args, program, "op_opt"))
}

fn plain_ops(log: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for line in log.lines() {
        if line.starts_with("OP") {
            names.clear();
        }
        // What dies and what is synced is about the numbers of temporaries; the op and its arguments are what is compared.
        let line = line.split("  dead:").next().unwrap().split("  sync:").next().unwrap().trim_end();
        // `discard` has no output to prefer registers for: QEMU prints what happens to be in memory there.
        let line =
            if line.trim_start().starts_with("discard") { line.split(" pref=").next().unwrap_or(line) } else { line };
        let mut words = Vec::new();
        for word in line.split([' ', ',']).filter(|w| !w.is_empty()) {
            let temporary =
                ["tmp", "loc"].iter().any(|p| word.strip_prefix(p).is_some_and(|n| n.parse::<u32>().is_ok()));
            let pointer = word
                .strip_prefix("$0x")
                .is_some_and(|h| u64::from_str_radix(h, 16).is_ok_and(|v| (0x5500_0000_0000..1 << 47).contains(&v)));
            words.push(if temporary {
                let at = names.iter().position(|n| n == word).unwrap_or_else(|| {
                    names.push(word.to_string());
                    names.len() - 1
                });
                format!("t{at}")
            } else if pointer {
                "$pointer".into()
            } else {
                word.to_string()
            });
        }
        lines.push(words.join(" "));
    }
    lines
}

#[test]
fn empty_analyzer_generates_no_code() {
    for name in ["x86_helper_accesses", "x86_branches", "x86_smc", "x86_gather"] {
        let g = guest(name, Isa::X86_64);
        let plain = ops(&qemu("x86_64", "plain"), &[], &g.path);
        let empty = ops(&qemu("x86_64", "empty"), &[], &g.path);
        assert!(plain.len() > 50);
        same(&empty, &plain.iter().map(|l| l.as_str()).collect::<Vec<_>>());
    }
}

#[test]
fn stopped_code_is_that_of_unpatched_qemu() {
    // Everything is traced once it is started, but it is not: what is generated is QEMU's own.
    let folder = scratch();
    let off = format!("socket={},start=off", folder.path().join("s").display());
    for name in ["x86_helper_accesses", "x86_branches", "x86_smc", "x86_gather"] {
        let g = guest(name, Isa::X86_64);
        let plain = ops(&qemu("x86_64", "plain"), &[], &g.path);
        let stopped = ops(&qemu("x86_64", "trace"), &["-trapline", &off], &g.path);
        assert!(plain.len() > 50);
        same(&stopped, &plain.iter().map(|l| l.as_str()).collect::<Vec<_>>());
    }
}

/// The part of a log that begins with the translation of the block at `pc`.
fn since(log: &str, pc: u64) -> &str {
    let first = log.find(&format!("\n ---- {pc:016x}")).unwrap_or_else(|| panic!("{pc:#x} is not translated"));
    &log[log[..first].rfind("OP").expect("a block")..]
}

/// Of what was executed while it was traced nothing is left after the STOP: the ops, the size of the host's code, how the blocks are
/// entered, with which flags, and which are chained to which.
#[test]
fn nothing_is_left_of_tracing_after_a_stop() {
    let g = guest("x86_stopped", Isa::X86_64);
    let folder = scratch();
    let settings = format!("socket={},start=off", folder.path().join("s").display());
    let (plain, trapline) = (qemu("x86_64", "plain"), qemu("x86_64", "trace"));
    let both =
        |items: &str| [log(&plain, &[], &g.path, items), log(&trapline, &["-trapline", &settings], &g.path, items)];
    let (stopped, body) = (g.sym("stopped"), format!(" ---- {:016x}", g.sym("body")));

    let [plain_log, log] = both("op_opt");
    // It was traced before, and is translated anew.
    assert_eq!((plain_log.matches(&body).count(), log.matches(&body).count()), (1, 2));
    let traced = &log[..log.len() - since(&log, stopped).len()];
    assert!(traced.contains(&body));
    let ops = plain_ops(since(&plain_log, stopped));
    assert!(ops.len() > 100);
    same(&plain_ops(since(&log, stopped)), &ops.iter().map(|l| l.as_str()).collect::<Vec<_>>());

    // Addresses of code say nothing.
    let lines = |log: &str, starts: &[&str]| -> Vec<String> {
        let words = |l: &str| l.split([' ', ':']).filter(|w| !w.starts_with("0x")).collect::<Vec<_>>().join(" ");
        let lines = since(log, stopped).lines().filter(|l| starts.iter().any(|s| l.starts_with(s)));
        // How it was come to is not the same.
        lines.skip_while(|l| !l.starts_with(starts[0])).map(words).collect()
    };
    for (items, starts, least) in
        [("op_opt,out_asm", vec!["OUT"], 8), ("op_opt,exec", vec!["Trace", "Linking", "Stopped"], 16)]
    {
        let [plain_log, log] = both(items);
        let expected = lines(&plain_log, &starts);
        assert!(expected.len() >= least, "{items}: {expected:?}");
        same(&lines(&log, &starts), &expected.iter().map(|l| l.as_str()).collect::<Vec<_>>());
    }
}

#[test]
fn two_analyzers_on_one_tree_do_not_disturb_each_other() {
    let g = guest("loop", Isa::X86_64);
    let (a, b) = (qemu("x86_64", "empty"), qemu("x86_64", "trace"));
    assert_ne!(a, b);
    for binary in [&a, &b] {
        within(LIMIT, Command::new(binary).arg(&g.path)).code(7);
    }
    // Built again, both are there already: nothing is printed but the paths.
    for (name, path) in [("empty", &a), ("trace", &b)] {
        let f =
            within(LIMIT, Command::new(trapline()).args(["build", "--target", "x86_64", "--analyzer", name])).code(0);
        assert_eq!((f.out().trim(), f.err()), (path.to_str().unwrap(), String::new()));
    }
}

/// Sizes of the code that QEMU generates for a guest's blocks, in order.
fn generated(analyzer: &str) -> Vec<u64> {
    let folder = scratch();
    let log = folder.path().join("log");
    let mut command = Command::new("setarch");
    command.arg("-R").arg(qemu("x86_64", analyzer));
    if analyzer != "plain" {
        command.arg("-trapline").arg(format!("socket={}", folder.path().join("s").display()));
    }
    command.args(["-d", "out_asm", "-D"]).arg(&log).arg(&guest("work", Isa::X86_64).path);
    // What the C library does depends on the environment.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    within(LIMIT, &mut command).code(0);
    let text = fs::read(&log).expect("QEMU writes its log");
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(|l| l.strip_prefix("OUT: [size=")?.strip_suffix(']')?.parse().ok()).collect()
}

/// Points that ask for nothing cost nothing: the code is as long as unpatched QEMU's, block by block. At atomic operations the address is
/// copied before it is known whether anybody asks; such a block may have one move more.
#[test]
fn empty_generates_nothing() {
    let (plain, empty) = (generated("plain"), generated("empty"));
    assert!(plain.len() > 500, "{} blocks", plain.len());
    assert_eq!(plain.len(), empty.len());
    let differ: Vec<(u64, u64)> = plain.iter().copied().zip(empty).filter(|(p, e)| p != e).collect();
    assert!(differ.len() <= plain.len() / 100, "{} of {} blocks differ: {differ:?}", differ.len(), plain.len());
    for (p, e) in differ {
        assert!(e.abs_diff(p) <= 16, "a block of {p} bytes has {e}");
    }
}
