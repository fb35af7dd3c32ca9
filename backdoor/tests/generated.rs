//! What is written in C and in the book says what the tables say. `TRAPLINE_UPDATE=1` writes the C anew.

use backdoor::{ERRNOS, ISAS, OPERATIONS, Unit, header};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn update() -> bool {
    std::env::var_os("TRAPLINE_UPDATE").is_some()
}

#[test]
fn the_guests_header_has_the_tables() {
    let path = root().join("guest-lib/include/trapline.h");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(header::BEGIN).expect("the first marker");
    let (part, after) = rest.split_once(header::END).expect("the second marker");
    let mut wanted = String::from("\n");
    header::guest(&mut wanted).unwrap();
    wanted.push('\n');
    if update() {
        fs::write(&path, [before, header::BEGIN, &wanted, header::END, after].concat()).unwrap();
    } else {
        assert_eq!(part, wanted, "{} is not what the tables say", path.display());
    }
}

/// The file as the patch adds it: one hunk, every line new.
fn in_patch(name: &str) -> String {
    let patch = fs::read_to_string(root().join("qemu_patches.patch")).unwrap();
    let at = patch.find(&format!("+++ b/{name}\n")).unwrap_or_else(|| panic!("{name} is not in the patch"));
    let lines = patch[at..].lines().skip(2);
    lines.map_while(|l| l.strip_prefix('+')).map(|l| format!("{l}\n")).collect()
}

#[test]
fn the_patchs_header_has_the_tables() {
    let mut wanted = String::new();
    header::patch(&mut wanted).unwrap();
    if update() {
        // Where it is taken from when the series is made anew.
        if let Some(tree) = std::env::var_os("TRAPLINE_QEMU_TREE") {
            fs::write(Path::new(&tree).join("include/exec/instrument-backdoor-abi.h"), &wanted).unwrap();
        }
        return;
    }
    assert_eq!(in_patch("include/exec/instrument-backdoor-abi.h"), wanted);
}

/// Cells of the book's tables, by their first cell.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|l| l.starts_with("| "))
        .map(|l| l.trim_matches('|').split(" | ").map(|c| c.trim().trim_matches('`').to_string()).collect())
        .collect()
}

#[test]
fn the_book_has_the_tables() {
    let text = fs::read_to_string(root().join("docs/src/backdoor.md")).unwrap();
    let rows = rows(&text);
    let row = |first: &str| {
        rows.iter().find(|r| r[0] == first).unwrap_or_else(|| panic!("no row `{first}` in docs/src/backdoor.md"))
    };
    for isa in ISAS {
        let code = |code: &[u32]| {
            let parts: Vec<String> = code
                .iter()
                .map(|n| match isa.unit {
                    Unit::Bytes => format!("{n:02X}"),
                    Unit::Halves => format!("{n:04X}"),
                    Unit::Words => format!("{n:08X}"),
                })
                .collect();
            parts.join(" ")
        };
        let wanted = [
            isa.name.to_string(),
            code(isa.call),
            isa.kind.name().to_string(),
            format!("{}; {}; {}", isa.command, isa.args.join(" "), isa.result),
            code(isa.probe),
            isa.probe_is.to_string(),
        ];
        assert_eq!(row(isa.name)[..], wanted);
    }
    for o in OPERATIONS {
        let number = if o.name == "USER" { format!("{:04x}+", o.op) } else { format!("{:02x}", o.op) };
        let r = row(&number);
        assert_eq!((r[1].as_str(), r[2].as_str(), r[3].as_str()), (o.name, o.args, o.result));
        let allow = o.allow.map_or(String::new(), |a| format!("allow={a}"));
        assert_eq!(r[4], allow, "{}", o.name);
    }
    for (name, e) in ERRNOS {
        assert!(text.contains(&format!("`{name}` ({})", e as i32)), "{name}");
    }
}
