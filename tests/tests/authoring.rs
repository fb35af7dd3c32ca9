//! From nothing to an analyzer of one's own, outside of this repository.

use std::fs;
use std::process::Command;
use std::time::Duration;
use trapline_tests::{Isa, cache, guest, qemu, scratch, trapline, within};

const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn a_new_crate_builds_runs_and_passes_its_test() {
    qemu("x86_64", "trace");
    let folder = scratch();
    let dir = folder.path().join("my-stores");
    let made = within(LIMIT, Command::new(trapline()).arg("new").arg(&dir)).code(0);
    assert!(made.out().contains("trapline run --analyzer"), "{}", made.out());
    let again = within(LIMIT, Command::new(trapline()).arg("new").arg(&dir)).code(125);
    assert!(again.err().contains("my-stores") && again.err().contains("there already"), "{}", again.err());

    // As if an update of the patch had changed it: QEMU's build is configured again on the way.
    for tree in fs::read_dir(cache().join("qemu")).unwrap().filter_map(|e| e.ok()) {
        let meson = tree.path().join("tree/accel/tcg/meson.build");
        if let Ok(file) = fs::File::options().append(true).open(&meson) {
            file.set_modified(std::time::SystemTime::now()).unwrap();
        }
    }

    // Both halves: QEMU's is linked in, the other is the crate's own program. 1000 stores of 4 bytes from one piece of code.
    let g = guest("loop", Isa::X86_64);
    let run = |more: &[&str]| {
        let mut command = Command::new(trapline());
        command.args(["run", "--format", "json", "-o", "-", "--analyzer"]).arg(&dir).args(more).arg("--").arg(&g.path);
        within(LIMIT, &mut command).code(7).out()
    };
    let piece = g.sym("begin") / 256 * 256;
    assert_eq!(run(&[]), format!("{{\"piece\":{piece},\"bytes\":4000}}\n"));
    assert_eq!(run(&["--opt", "code=0-1"]), "");

    // The consuming half fails: the guest ends as it would, the failure is told.
    let consume = dir.join("src/consume.rs");
    let text = fs::read_to_string(&consume).unwrap();
    let broken = text.replace(
        "let mut stored = Stored::new();\n        for",
        "if chunk.len() > 0 { panic!(\"no\") }\n        let mut stored = Stored::new();\n        for",
    );
    assert_ne!(text, broken);
    fs::write(&consume, broken).unwrap();
    let mut command = Command::new(trapline());
    let f = within(LIMIT, command.args(["run", "--analyzer"]).arg(&dir).arg("--").arg(&g.path)).code(125);
    assert!(f.err().contains("my-stores") && f.err().contains("ended"), "{}", f.err());
    fs::write(&consume, text).unwrap();

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&dir).args(["test", "--quiet"]).env("CARGO_TARGET_DIR", cache().join("cargo/new-crate"));
    let tested = within(LIMIT, &mut cargo).code(0);
    assert!(tested.out().contains("1 passed"), "{}{}", tested.out(), tested.err());
}
