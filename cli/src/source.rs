//! Getting QEMU's source.
//!
//! Three ways, in this order:
//! 1. `--qemu-src DIR` or `TRAPLINE_QEMU_SRC`: the user's own tree. It is read, never written to.
//! 2. Debian's source package, from the mirror that the machine's own apt sources name, with a private sources list and
//!    private state. apt's signature check is the integrity check; `dpkg-source` applies Debian's own patches.
//! 3. The release tarball from the project's site, against a pinned SHA-256.
//!
//! Rules:
//! - The machine's apt configuration is read, never changed.
//! - What was fetched stays in the cache and is used without asking the network again.
//! - `VERSION` must say [`SUPPORTED`]: the patch is made for it. Anything else is refused, and named.

use std::fs;
use std::path::{Path, PathBuf};

use crate::apt;
use crate::cache::{self, Cache, Lock};
use crate::deps::{self, For};
use crate::error::At;
use crate::exec;
use crate::progress::Step;
use crate::{Error, Result};

/// Which QEMUs the patch is made for, for people.
pub const SUPPORTED: &str = "10.0.x";

/// Debian's suite whose QEMU is a [`SUPPORTED`] one.
const SUITE: &str = "trixie";

/// The release that is fetched from the project's site when there is no Debian mirror.
///
/// Not the newest 10.0.y: this one's checksum has been published by several distributions independently (Homebrew,
/// OpenEmbedded, Chimera), which later ones' has not. Raise it only with a checksum confirmed twice.
const RELEASE: &str = "10.0.2";
const RELEASE_SHA256: &str = "ef786f2398cb5184600f69aef4d5d691efd44576a3cff4126d38d4c6fec87759";

/// Unpacking takes 0.5 GiB at its height; what stays (source, patched copy, venv, first objects, cargo) comes near to that again.
const SPACE: u64 = 1 << 30;

/// A source tree and what it is.
#[derive(Debug, Clone)]
pub struct Source {
    /// The tree as it came. Not to be written to.
    pub dir: PathBuf,
    /// Names the folders made from it. Stays the same while a user's tree is being edited.
    pub id: String,
    /// As `VERSION` says, such as `10.0.13`.
    pub version: String,
    /// The user's own, which may change under us. What is in the cache never does.
    pub users: bool,
}

/// `--qemu-src`, else `TRAPLINE_QEMU_SRC`.
pub fn chosen(option: Option<&Path>) -> Option<PathBuf> {
    option
        .map(Path::to_path_buf)
        .or_else(|| std::env::var_os("TRAPLINE_QEMU_SRC").filter(|v| !v.is_empty()).map(PathBuf::from))
}

/// The source if it is at hand, without network, lock or writing.
pub fn at_hand(cache: &Cache, option: Option<&Path>) -> Result<Option<Source>> {
    if let Some(dir) = chosen(option) {
        return users(&dir).map(Some);
    }
    let Ok(entries) = fs::read_dir(cache.path("source")) else {
        return Ok(None);
    };
    let mut found: Vec<Source> = entries
        .filter_map(|e| e.ok())
        .filter_map(|e| {
            let id = e.file_name().to_str()?.to_string();
            let version = version(&e.path()).ok()?;
            Some(Source { dir: e.path(), id, version, users: false })
        })
        .collect();
    // Debian's before the site's, newer before older.
    found.sort_by_key(|s| (s.id.starts_with("debian-"), number(&s.version), s.id.clone()));
    Ok(found.pop())
}

/// The source, fetched if need be.
pub fn ensure(cache: &Cache, lock: &Lock, option: Option<&Path>) -> Result<Source> {
    if let Some(source) = at_hand(cache, option)? {
        return Ok(source);
    }
    cache::need_space(cache.root(), SPACE, "fetching and building QEMU")?;
    let mut tried = Vec::new();
    match from_debian(cache, lock) {
        Ok(source) => return Ok(source),
        Err(e @ (Error::NoSpace { .. } | Error::Io { .. } | Error::MissingPackages { .. })) => {
            return Err(e);
        }
        Err(e) => tried.push(format!("Debian's source package: {e}")),
    }
    match from_site(cache, lock) {
        Ok(source) => return Ok(source),
        Err(e @ (Error::NoSpace { .. } | Error::Io { .. } | Error::MissingPackages { .. })) => {
            return Err(e);
        }
        Err(e) => tried.push(format!("the project's download site: {e}")),
    }
    Err(Error::NoSource { tried })
}

/// What fetching will need, if it comes to that.
pub fn needs(cache: &Cache, option: Option<&Path>) -> Option<For> {
    match at_hand(cache, option) {
        Ok(None) if deps::has("apt-get") && !mirrors().is_empty() => Some(For::DebianSource),
        Ok(None) => Some(For::DownloadSource),
        _ => None,
    }
}

/// The Debian mirrors of the machine's own apt sources.
pub fn mirrors() -> Vec<apt::Mirror> {
    apt::debian_mirrors(&apt::read(Path::new("/etc/apt")))
}

/// The user's tree.
fn users(dir: &Path) -> Result<Source> {
    let real = dir.canonicalize().at("open the QEMU source", dir)?;
    let version = version(&real)?;
    use std::os::unix::ffi::OsStrExt;
    let id = format!("user-{}", cache::short(&cache::hash([real.as_os_str().as_bytes()])));
    Ok(Source { dir: real, id, version, users: true })
}

/// What `VERSION` says, if the patch is made for it.
pub fn version(dir: &Path) -> Result<String> {
    for file in ["VERSION", "configure", "meson.build"] {
        if !dir.join(file).is_file() {
            return Err(Error::NotQemuSource { folder: dir.to_path_buf(), missing: file.into() });
        }
    }
    let path = dir.join("VERSION");
    let text = fs::read_to_string(&path).at("read", &path)?;
    let found = text.trim();
    if !supported(found) {
        return Err(Error::QemuVersion { folder: dir.to_path_buf(), found: found.to_string() });
    }
    Ok(found.to_string())
}

/// 10.0.y. Not 10.0.50 and up, which QEMU's development tree calls itself on its way to 10.1.
fn supported(version: &str) -> bool {
    version
        .strip_prefix("10.0.")
        .filter(|y| y.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|y| y.parse::<u32>().ok())
        .is_some_and(|y| y < 50)
}

fn number(version: &str) -> Vec<u32> {
    version.split('.').map(|n| n.parse().unwrap_or(0)).collect()
}

fn from_debian(cache: &Cache, lock: &Lock) -> Result<Source> {
    if !deps::has("apt-get") {
        return Err(Error::Usage { what: "this machine has no apt".into(), hint: String::new() });
    }
    let mirrors = mirrors();
    if mirrors.is_empty() {
        return Err(Error::Usage {
            what: "no Debian mirror in /etc/apt/sources.list and /etc/apt/sources.list.d".into(),
            hint: String::new(),
        });
    }
    deps::ensure(cache, lock, &[For::DebianSource])?;
    let mut last = None;
    for mirror in &mirrors {
        match from_mirror(cache, lock, mirror) {
            Err(e @ Error::Step { .. }) => last = Some(e),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Error::Bug("no mirror was tried".into())))
}

fn from_mirror(cache: &Cache, lock: &Lock, mirror: &apt::Mirror) -> Result<Source> {
    let staging = cache.staging(lock, "source")?;
    let keyring = ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"]
        .iter()
        .map(Path::new)
        .find(|p| p.exists());
    let dir = staging.path();
    cache::write(&dir.join("sources.list"), mirror.source_line(SUITE, keyring))?;
    cache::write(&dir.join("apt.conf"), private_configuration(dir))?;
    for folder in ["lists/partial", "cache/archives/partial", "download"] {
        cache::create_dir(&dir.join(folder))?;
    }
    let private_apt = || {
        let mut command = deps::apt();
        command.arg("-c").arg(dir.join("apt.conf")).current_dir(dir.join("download"));
        command
    };

    let what = "Fetching QEMU's source from Debian's mirror";
    let mut step = Step::new(what);
    let log = cache.log("source-lists");
    let mut update = private_apt();
    update.arg("update");
    exec::logged(update, "reading the mirror's list of sources", &log, &mut step, |s, l| {
        deps::show_apt(s, l, 0.0, 0.2)
    })?;
    let mut get = private_apt();
    get.args(["source", "--download-only", "qemu"]);
    exec::logged(get, what, &cache.log("source-download"), &mut step, |s, l| deps::show_apt(s, l, 0.2, 0.8))?;
    step.done();

    let download = staging.path().join("download");
    let dsc = fs::read_dir(&download)
        .at("read", &download)?
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "dsc"))
        .ok_or_else(|| Error::Bug(format!("apt fetched no .dsc into {}", download.display())))?;

    let what = "Unpacking QEMU's source";
    let mut step = Step::new(what);
    let tree = staging.path().join("tree");
    let mut unpack = exec::command("dpkg-source");
    unpack.arg("-x").arg(&dsc).arg(&tree);
    exec::logged(unpack, what, &cache.log("source-unpack"), &mut step, |s, l| s.note(l))?;
    let name = dsc.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // qemu_10.0.13+ds-0+deb13u1 -> debian-10.0.13+ds-0+deb13u1
    let id = format!("debian-{}", name.strip_prefix("qemu_").unwrap_or(&name));
    let source = finish(cache, lock, &tree, id)?;
    step.done();
    Ok(source)
}

/// Read by apt after the system's configuration, so that it wins.
fn private_configuration(dir: &Path) -> String {
    let at = |relative: &str| dir.join(relative).display().to_string();
    format!(
        "Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State::lists \"{}\";\nDir::Cache \"{}\";\n\
         // Our folder may not be open to apt's own user.\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         // A mirror that does not answer is an error, not a warning.\n\
         APT::Update::Error-Mode \"any\";\n\
         // What the system does after its own updates is none of our business.\n\
         #clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n",
        at("sources.list"),
        at("lists"),
        at("cache"),
    )
}

fn from_site(cache: &Cache, lock: &Lock) -> Result<Source> {
    deps::ensure(cache, lock, &[For::DownloadSource])?;
    let staging = cache.staging(lock, "source")?;
    let file = staging.path().join(format!("qemu-{RELEASE}.tar.xz"));
    let url = format!("https://download.qemu.org/qemu-{RELEASE}.tar.xz");
    let mut command;
    if deps::has("curl") {
        command = exec::command("curl");
        command
            .args(["--fail", "--location", "--silent", "--show-error", "--retry", "3", "--output"])
            .arg(&file)
            .arg(&url);
    } else if deps::has("wget") {
        command = exec::command("wget");
        command.args(["--quiet", "--tries=3", "-O"]).arg(&file).arg(&url);
    } else {
        command = exec::command("python3");
        command
            .args(["-c", "import sys, urllib.request as u; u.urlretrieve(sys.argv[1], sys.argv[2])", &url])
            .arg(&file);
    }
    let what = format!("Fetching {url}");
    let mut step = Step::new(&what);
    exec::logged(command, &what, &cache.log("source-download"), &mut step, |s, l| s.note(l))?;
    let found = cache::hash_file(&file)?;
    // `hash_file` is the plain SHA-256 of the content.
    if found != RELEASE_SHA256 {
        return Err(Error::Checksum { file, found, wanted: RELEASE_SHA256.into() });
    }
    step.done();

    let what = "Unpacking QEMU's source";
    let mut step = Step::new(what);
    let unpacked = staging.path().join("unpacked");
    cache::create_dir(&unpacked)?;
    let mut unpack = exec::command("tar");
    unpack.arg("-xJf").arg(&file).arg("-C").arg(&unpacked);
    exec::logged(unpack, what, &cache.log("source-unpack"), &mut step, |s, l| s.note(l))?;
    let source = finish(cache, lock, &unpacked.join(format!("qemu-{RELEASE}")), format!("release-{RELEASE}"))?;
    step.done();
    Ok(source)
}

/// Checks what was unpacked, drops what is never built, and gives it its name in the cache.
fn finish(cache: &Cache, lock: &Lock, tree: &Path, id: String) -> Result<Source> {
    let version = version(tree)?;
    // Firmware sources (more than half of the tree) and the packaging's backups.
    for unused in ["roms", ".pc"] {
        cache::remove_dir(&tree.join(unused))?;
    }
    let dir = cache.path("source").join(&id);
    cache.publish(lock, tree, &dir)?;
    Ok(Source { dir, id, version, users: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ten_zero_is_supported() {
        for good in ["10.0.0", "10.0.2", "10.0.13"] {
            assert!(supported(good), "{good}");
        }
        for bad in
            ["", "10.0", "10.0.", "10.0.50", "10.0.94", "10.1.0", "9.2.4", "11.0.0", "10.0.1-rc1", "10.0.x", "10.0.+1"]
        {
            assert!(!supported(bad), "{bad}");
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let e = version(dir.path()).unwrap_err();
        assert!(matches!(&e, Error::NotQemuSource { missing, .. } if missing == "VERSION"), "{e}");
        for file in ["configure", "meson.build"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        fs::write(dir.path().join("VERSION"), "10.2.1\n").unwrap();
        let e = version(dir.path()).unwrap_err();
        assert!(e.to_string().contains("10.2.1") && e.to_string().contains("10.0.x"), "{e}");
        fs::write(dir.path().join("VERSION"), "10.0.7\n").unwrap();
        assert_eq!(version(dir.path()).unwrap(), "10.0.7");
    }

    #[test]
    fn newest_debian_source_in_the_cache_wins() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        for (id, version) in [
            ("debian-10.0.9+ds-1", "10.0.9"),
            ("debian-10.0.13+ds-1", "10.0.13"),
            ("release-10.0.14", "10.0.14"),
            ("debian-11", "11.0.0"),
        ] {
            let d = cache.path("source").join(id);
            fs::create_dir_all(&d).unwrap();
            for file in ["configure", "meson.build"] {
                fs::write(d.join(file), "").unwrap();
            }
            fs::write(d.join("VERSION"), version).unwrap();
        }
        assert_eq!(at_hand(&cache, None).unwrap().unwrap().id, "debian-10.0.13+ds-1");
    }
}
