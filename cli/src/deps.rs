//! What the machine must have before anything is built, and how it gets it.
//!
//! Rules:
//! - A need is checked by what it gives (does pkg-config know glib?), not by a package's name, so that machines
//!   that have it another way are left alone.
//! - On Debian as root, what is missing is installed with apt. Otherwise the one command that would is printed.
//! - The system's apt configuration and its Python are never changed.
//! - Only what the task at hand needs is asked for: libclang for analyzers, flex and bison for Hexagon, …

use std::path::{Path, PathBuf};

use crate::cache::{Cache, Lock};
use crate::exec;
use crate::lookup;
use crate::progress::{self, Step};
use crate::{Error, Result};

/// What a need is for; the task at hand names the ones it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Compiling any QEMU.
    Qemu,
    /// Fetching QEMU's source from Debian's mirror.
    DebianSource,
    /// Fetching QEMU's source from the project's site.
    DownloadSource,
    /// Applying the patch.
    Patch,
    /// Compiling an analyzer.
    Analyzer,
    /// The Hexagon target's instruction parser.
    Hexagon,
    /// Compiling a QEMU for whole machines.
    System,
    /// What a machine has in its ROMs.
    Firmware,
}

/// Something the machine must have.
pub struct Need {
    /// As a person says it.
    pub what: &'static str,
    pub purpose: For,
    /// Debian's packages that give it.
    pub packages: &'static [&'static str],
    pub met: fn() -> bool,
}

pub const NEEDS: &[Need] = &[
    Need { what: "a C compiler", purpose: For::Qemu, packages: &["gcc", "libc6-dev"], met: has_cc },
    Need { what: "pkg-config", purpose: For::Qemu, packages: &["pkg-config"], met: || has("pkg-config") },
    Need {
        what: "GLib's headers",
        purpose: For::Qemu,
        packages: &["libglib2.0-dev"],
        met: || pkg("glib-2.0") && pkg("gmodule-no-export-2.0"),
    },
    Need { what: "zlib's headers", purpose: For::Qemu, packages: &["zlib1g-dev"], met: || pkg("zlib") },
    Need {
        what: "Python 3.8 or newer with venv",
        purpose: For::Qemu,
        packages: &["python3", "python3-venv"],
        met: has_python,
    },
    Need {
        what: "apt-get and dpkg-source",
        purpose: For::DebianSource,
        packages: &["dpkg-dev", "xz-utils"],
        met: || has("apt-get") && has("dpkg-source") && has("xz"),
    },
    Need {
        what: "xz and tar",
        purpose: For::DownloadSource,
        packages: &["xz-utils", "tar"],
        met: || has("xz") && has("tar"),
    },
    Need { what: "git or patch", purpose: For::Patch, packages: &["patch"], met: || has("patch") || has("git") },
    Need { what: "cargo", purpose: For::Analyzer, packages: &[], met: || has("cargo") },
    Need { what: "libclang", purpose: For::Analyzer, packages: &["libclang-dev"], met: has_libclang },
    Need {
        what: "flex and bison",
        purpose: For::Hexagon,
        packages: &["flex", "bison"],
        met: || has("flex") && has("bison"),
    },
    Need { what: "libfdt's headers", purpose: For::System, packages: &["libfdt-dev"], met: has_libfdt },
    Need { what: "pixman's headers", purpose: For::System, packages: &["libpixman-1-dev"], met: || pkg("pixman-1") },
    Need { what: "libslirp's headers", purpose: For::System, packages: &["libslirp-dev"], met: || pkg("slirp") },
    Need {
        what: "the firmware of QEMU's machines",
        purpose: For::Firmware,
        packages: &["qemu-system-data", "seabios", "ipxe-qemu", "opensbi"],
        met: crate::system::has_firmware,
    },
];

/// Makes sure that everything for these purposes is there.
pub fn ensure(cache: &Cache, lock: &Lock, purposes: &[For]) -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|n| purposes.contains(&n.purpose) && !(n.met)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|n| n.packages).copied().collect();
    let can_install = is_debian() && rustix::process::geteuid().is_root() && has("apt-get") && !packages.is_empty();
    if can_install {
        install(cache, lock, &packages)?;
    }
    let missing: Vec<&Need> = missing.into_iter().filter(|n| !(n.met)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::MissingPackages {
        missing: missing.iter().map(|n| n.what.to_string()).collect(),
        command: advice(&missing),
    })
}

/// The one command that brings what is missing, or the best that can be said.
pub fn advice(missing: &[&Need]) -> String {
    let packages: Vec<&str> = missing.iter().flat_map(|n| n.packages).copied().collect();
    let cargo = missing.iter().any(|n| n.what == "cargo");
    let mut advice = Vec::new();
    if !packages.is_empty() {
        if is_debian() {
            let sudo = if rustix::process::geteuid().is_root() { "" } else { "sudo " };
            let update = if has_lists() { String::new() } else { format!("{sudo}apt-get update && ") };
            let packages = packages.join(" ");
            advice.push(format!("{update}{sudo}apt-get install --no-install-recommends {packages}"));
        } else {
            advice.push(format!("install these with your package manager (Debian's names): {}", packages.join(" ")));
        }
    }
    if cargo {
        advice.push("install Rust, and put cargo into PATH".to_string());
    }
    advice.join("; ")
}

fn install(cache: &Cache, _lock: &Lock, packages: &[&str]) -> Result<()> {
    let lists = has_lists();
    if !lists {
        apt_update(cache)?;
    }
    match apt_install(cache, packages) {
        // Lists that are there may be too old: the mirror no longer has what they name.
        Err(Error::Step { .. }) if lists => {
            apt_update(cache)?;
            apt_install(cache, packages)
        }
        other => other,
    }
}

/// Whether apt knows any package at all; a fresh system or container does not.
fn has_lists() -> bool {
    let lists = std::fs::read_dir("/var/lib/apt/lists");
    lists.is_ok_and(|mut d| d.any(|f| f.is_ok_and(|f| f.file_name().to_string_lossy().contains("_Packages"))))
}

fn apt_update(cache: &Cache) -> Result<()> {
    let what = "Reading the package lists";
    let mut step = Step::new(what);
    let mut command = apt();
    command.arg("update");
    exec::logged(command, what, &cache.log("apt-update"), &mut step, |s, l| show_apt(s, l, 0.0, 1.0))?;
    step.done();
    Ok(())
}

fn apt_install(cache: &Cache, packages: &[&str]) -> Result<()> {
    let what = format!("Installing {}", packages.join(", "));
    let mut step = Step::new(&what);
    let mut command = apt();
    command.args(["install", "-y", "--no-install-recommends"]).args(packages);
    exec::logged(command, &what, &cache.log("apt-install"), &mut step, |s, l| match l.starts_with("dlstatus") {
        true => show_apt(s, l, 0.0, 0.5),
        false => show_apt(s, l, 0.5, 0.5),
    })?;
    step.done();
    Ok(())
}

/// `apt-get` that asks nothing and reports its progress as lines.
pub fn apt() -> std::process::Command {
    let mut command = exec::command("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args([
        "-q",
        "-o",
        "APT::Status-Fd=1",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Acquire::Retries=3",
    ]);
    command
}

/// Shows a status line of apt as that part of the step which begins at `from` and is `share` long.
pub fn show_apt(step: &mut Step, line: &str, from: f64, share: f64) {
    if let Some((_, percent, what)) = progress::apt(line) {
        step.set((1000.0 * (from + share * percent / 100.0)) as u64, 1000);
        step.note(what);
    }
}

/// Debian itself, whose package names we know.
pub fn is_debian() -> bool {
    std::fs::read_to_string("/etc/os-release").is_ok_and(|t| os_release_id(&t) == Some("debian"))
}

fn os_release_id(text: &str) -> Option<&str> {
    text.lines().find_map(|l| l.strip_prefix("ID=")).map(|v| v.trim_matches(['"', '\'']))
}

pub fn has(program: &str) -> bool {
    lookup::in_path(program.as_ref()).is_ok()
}

fn pkg(module: &str) -> bool {
    let mut command = exec::command("pkg-config");
    command.args(["--exists", module]);
    exec::succeeds(command)
}

fn has_cc() -> bool {
    // A compiler without a C library's headers is of no use; let it show that it has both.
    let dir = tempfile::tempdir();
    let Ok(dir) = dir else { return has("cc") };
    let source = dir.path().join("t.c");
    if std::fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }\n").is_err() {
        return has("cc");
    }
    let mut command = exec::command(cc());
    command.arg("-o").arg(dir.path().join("t")).arg(source);
    exec::succeeds(command)
}

fn cc() -> std::ffi::OsString {
    std::env::var_os("CC").filter(|c| !c.is_empty()).unwrap_or_else(|| "cc".into())
}

/// Debian's has no pkg-config file everywhere.
fn has_libfdt() -> bool {
    pkg("libfdt") || Path::new("/usr/include/libfdt.h").exists()
}

fn has_python() -> bool {
    let mut command = exec::command("python3");
    command.args(["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 8))"]);
    exec::succeeds(command)
}

/// `libclang-cpp` comes with the compiler and is another library.
fn is_libclang(file: &str) -> bool {
    file == "libclang.so"
        || file.starts_with("libclang.so.")
        || (file.starts_with("libclang-") && !file.starts_with("libclang-cpp") && file.contains(".so"))
}

/// Where bindgen's loader looks, near enough: `LIBCLANG_PATH`, LLVM's own folders, the library folders.
fn has_libclang() -> bool {
    let is_lib = |f: &Path| is_libclang(&f.file_name().unwrap_or_default().to_string_lossy());
    let holds = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|d| d.filter_map(|f| f.ok()).any(|f| is_lib(&f.path())));
    if let Some(path) = std::env::var_os("LIBCLANG_PATH") {
        let path = PathBuf::from(path);
        return is_lib(&path) || holds(&path);
    }
    let mut folders: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].iter().map(PathBuf::from).collect();
    if let Ok(dir) = std::fs::read_dir("/usr/lib") {
        for entry in dir.filter_map(|e| e.ok()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("llvm") {
                folders.push(entry.path().join("lib"));
            } else if name.contains("-linux-gnu") {
                folders.push(entry.path());
            }
        }
    }
    folders.iter().any(|f| holds(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_not_what_the_compiler_is_made_of() {
        for name in ["libclang.so", "libclang.so.1", "libclang-14.so.1", "libclang-14.so"] {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclang-cpp.so", "libclang-common.a", "libclangAST.a"] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn distributions_are_told_apart() {
        assert_eq!(os_release_id("PRETTY_NAME=\"x\"\nID=debian\n"), Some("debian"));
        assert_eq!(os_release_id("ID=\"fedora\"\nVERSION_ID=40"), Some("fedora"));
        assert_eq!(os_release_id("NAME=x\nVERSION_ID=1\n"), None);
    }

    #[test]
    fn advice_is_one_command() {
        let need = |what: &str| NEEDS.iter().find(|n| n.what == what).unwrap();
        let advice = advice(&[need("pkg-config"), need("libclang")]);
        assert!(advice.contains("pkg-config libclang-dev"), "{advice}");
        assert_eq!(advice.lines().count(), 1);
    }
}
