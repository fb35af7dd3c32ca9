//! `trapline doctor`: what is there, what is missing, and how to get it.
//!
//! Looks at the same things, by the same checks, as a build does; makes and installs nothing. Exit code 1 if a build could not
//! succeed as things are.

use std::path::Path;
use std::process::ExitCode;

use crate::Result;
use crate::analyzer;
use crate::cache::{self, Cache};
use crate::cli::print;
use crate::deps::{self, For, NEEDS, Need};
use crate::home::Home;
use crate::source;
use crate::target::TARGETS;
use crate::venv;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    There,
    /// Made or fetched by the first run that needs it, or needed by few.
    Later,
    Missing,
}

struct Row {
    verdict: Verdict,
    what: String,
    detail: String,
}

pub fn run(qemu_src: Option<&Path>) -> Result<ExitCode> {
    let mut rows = Vec::new();
    let mut row = |verdict, what: &str, detail: String| rows.push(Row { verdict, what: what.into(), detail });
    use Verdict::*;

    let cache = Cache::open()?;
    let source = source::at_hand(&cache, qemu_src);
    let have_source = matches!(source, Ok(Some(_)));
    let fetching = source::needs(&cache, qemu_src);
    let by_itself = deps::is_debian() && rustix::process::geteuid().is_root();

    let mut lacking: Vec<&Need> = Vec::new();
    for need in NEEDS {
        let essential = match need.purpose {
            For::DebianSource | For::DownloadSource => fetching == Some(need.purpose),
            For::Hexagon | For::System | For::Firmware => false,
            For::Qemu | For::Patch | For::Analyzer => true,
        };
        if (need.met)() {
            row(There, need.what, String::new());
        } else if essential {
            lacking.push(need);
            let how = match (need.packages, by_itself) {
                ([], _) => deps::advice(&[need]),
                (packages, true) => format!("trapline installs {} when it is needed", packages.join(", ")),
                (packages, false) => format!("Debian: {}", packages.join(", ")),
            };
            row(if by_itself && !need.packages.is_empty() { Later } else { Missing }, need.what, how);
        } else {
            let only = match need.purpose {
                For::Hexagon => "programs for Hexagon",
                For::System | For::Firmware => "whole machines (--system)",
                _ => continue,
            };
            row(Later, need.what, format!("only for {only}; Debian: {}", need.packages.join(", ")));
        }
    }

    match &source {
        Ok(Some(s)) => row(There, "QEMU's source", format!("{} in {}", s.version, s.dir.display())),
        Ok(None) => match source::mirrors().first() {
            Some(m) if fetching == Some(For::DebianSource) => {
                row(Later, "QEMU's source", format!("will be fetched from {}", m.uri))
            }
            _ => row(Later, "QEMU's source", "will be fetched from the project's site, or give --qemu-src".into()),
        },
        Err(e) => row(Missing, "QEMU's source", format!("{e}; {}", e.hint())),
    }
    match venv::versions(&cache) {
        Some(versions) => row(There, "meson and ninja", versions),
        None => row(Later, "meson and ninja", "will be installed with pip into the cache".into()),
    }
    match Home::find() {
        Ok(home) if home.patch().is_file() && home.header().is_file() => {
            row(There, "Trapline's checkout", home.root().display().to_string());
            row(There, "analyzers", analyzer::shipped_names(&home).join(", "));
        }
        Ok(home) => row(
            Missing,
            "Trapline's checkout",
            format!("{} has no qemu_patches.patch; set TRAPLINE_HOME", home.root().display()),
        ),
        Err(e) => row(Missing, "Trapline's checkout", format!("{e}; {}", e.hint())),
    }
    let free = cache::free_space(cache.root());
    let enough = have_source || free > 1 << 30;
    row(
        if enough { There } else { Missing },
        "room for the cache",
        format!("{} free in {}", crate::error::size(free), cache.root().display()),
    );
    let cross: Vec<&str> = TARGETS
        .iter()
        .flat_map(|t| t.cross)
        .filter(|(triplet, _)| Path::new("/usr").join(triplet).join("lib").is_dir())
        .map(|(triplet, _)| *triplet)
        .collect();
    match cross.is_empty() {
        true => {
            row(Later, "foreign libraries", "none; e.g. Debian's libc6-arm64-cross runs dynamic arm64 programs".into())
        }
        false => row(There, "foreign libraries", cross.join(", ")),
    }

    let width = rows.iter().map(|r| r.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for r in &rows {
        let mark = match r.verdict {
            There => "ok     ",
            Later => "-      ",
            Missing => "MISSING",
        };
        text.push_str(format!("{mark}  {:width$}  {}", r.what, r.detail).trim_end());
        text.push('\n');
    }
    let missing = rows.iter().any(|r| r.verdict == Missing);
    if !lacking.is_empty() && !by_itself {
        text.push_str(&format!("\nTo get what is missing: {}\n", deps::advice(&lacking)));
    }
    text.push_str(if missing { "\nA build would fail.\n" } else { "\nAll that is essential is there.\n" });
    print(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(missing)))
}
