//! The one folder that everything is made in.
//!
//! Rules:
//! - The root is `$TRAPLINE_CACHE`, else `$XDG_CACHE_HOME/trapline`, else `~/.cache/trapline`. Nothing is written elsewhere.
//! - Whoever makes something holds [`Cache::lock`]; whoever only runs what is there needs no lock, because
//! - what is there is whole: a thing is made under `tmp/` and renamed to its name, or (where a rename would break
//!   it, such as a Python venv or a build folder) carries a stamp file that is written last.
//! - Whatever is under `tmp/` when the lock is taken was left by a process that died, and is removed.
//!
//! ```text
//! lock                 the lock; holds the owner's process id
//! tmp/                 things in the making
//! log/                 one log per step, overwritten by the next run of that step
//! source/ID/           QEMU's source as fetched
//! qemu/ID/             the same with the patch, its build folders, and the folder given to --with-instrument
//! venv/                Python, meson, ninja
//! cargo/ID/            target folder for analyzers
//! analyzers/           a stamp per analyzer: its archive, and the files that it was built from
//! bin/NAME-HASH/       finished qemu-<arch>, NAME the analyzer or `plain`
//! ready/               a stamp per (sources, patch, analyzer, target) that has a finished binary
//! ```

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::error::At;
use crate::{Error, Result};

#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Held while something is made. Dropping it lets the next process go on.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// Finds the root; creates nothing.
    pub fn open() -> Result<Cache> {
        let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = match set("TRAPLINE_CACHE") {
            Some(dir) => dir,
            None => match set("XDG_CACHE_HOME").filter(|p| p.is_absolute()) {
                Some(dir) => dir.join("trapline"),
                None => match set("HOME") {
                    Some(home) => home.join(".cache/trapline"),
                    None => {
                        return Err(Error::Usage {
                            what: "no place for the cache: HOME is not set".into(),
                            hint: "set TRAPLINE_CACHE=/some/folder".into(),
                        });
                    }
                },
            },
        };
        let root = std::path::absolute(&root).at("resolve", &root)?;
        Ok(Cache { root })
    }

    pub fn at(root: impl Into<PathBuf>) -> Cache {
        Cache { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Takes the lock, waiting for another trapline if need be, and clears what dead ones left in `tmp/`.
    pub fn lock(&self) -> Result<Lock> {
        create_dir(&self.root)?;
        let path = self.path("lock");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).at("open", &path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut owner = String::new();
            file.read_to_string(&mut owner).at("read", &path)?;
            eprintln!("trapline: waiting for another trapline that is building (process {})", owner.trim());
            loop {
                match flock(&file, FlockOperation::LockExclusive) {
                    Ok(()) => break,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(e) => return Err(Error::io("lock", &path, e.into())),
                }
            }
        }
        file.set_len(0).at("write", &path)?;
        let mut writer = &file;
        std::io::Seek::rewind(&mut writer).at("write", &path)?;
        write!(writer, "{}", std::process::id()).at("write", &path)?;

        let tmp = self.path("tmp");
        if tmp.exists() {
            remove_dir(&tmp)?;
        }
        create_dir(&tmp)?;
        create_dir(&self.path("log"))?;
        Ok(Lock { _file: file })
    }

    /// An empty folder under `tmp/`, removed when dropped. Needs the lock, as its presence in the arguments says.
    pub fn staging(&self, _lock: &Lock, name: &str) -> Result<tempfile::TempDir> {
        let tmp = self.path("tmp");
        tempfile::Builder::new().prefix(&format!("{name}.")).tempdir_in(&tmp).at("create a folder in", tmp)
    }

    /// Gives a finished folder its name, replacing what had it.
    pub fn publish(&self, _lock: &Lock, staged: &Path, name: &Path) -> Result<()> {
        if let Some(parent) = name.parent() {
            create_dir(parent)?;
        }
        if name.exists() {
            // Out of the way first: removing it could be interrupted, a rename cannot.
            let old = tempfile::Builder::new().prefix("old.").tempdir_in(self.path("tmp")).at("create", name)?;
            fs::rename(name, old.path().join("it")).at("move", name)?;
        }
        fs::rename(staged, name).at("rename", staged)
    }

    /// Where the log of a step goes.
    pub fn log(&self, step: &str) -> PathBuf {
        self.path("log").join(format!("{step}.log"))
    }
}

pub fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).at("create", path)
}

/// Removes a tree, also one with read-only folders in it; not being there is fine.
pub fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Removes a file; not being there is fine.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Writes a file so that readers see the old or the new content, never a part.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let parent = path.parent().ok_or_else(|| Error::Bug(format!("{} has no parent", path.display())))?;
    create_dir(parent)?;
    let mut temporary = tempfile::Builder::new().prefix(".writing.").tempfile_in(parent).at("create", path)?;
    temporary.write_all(content.as_ref()).at("write", path)?;
    use std::os::unix::fs::PermissionsExt;
    temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644)).at("write", path)?;
    temporary.persist(path).map_err(|e| Error::io("write", path, e.error))?;
    Ok(())
}

/// Writes only if the content differs, so that what depends on the file is not rebuilt. Tells whether it did.
pub fn write_if_changed(path: &Path, content: impl AsRef<[u8]>) -> Result<bool> {
    if fs::read(path).is_ok_and(|old| old == content.as_ref()) {
        return Ok(false);
    }
    write(path, content)?;
    Ok(true)
}

/// Bytes that an unprivileged user can still write to the file system of `path`; 0 if that cannot be told.
pub fn free_space(path: &Path) -> u64 {
    let existing = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    rustix::fs::statvfs(existing).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

/// Fails early, with a clear message, where a long step would fail late.
pub fn need_space(folder: &Path, bytes: u64, doing: &str) -> Result<()> {
    let free = free_space(folder);
    if free < bytes {
        return Err(Error::NoSpace {
            folder: folder.to_path_buf(),
            free,
            doing: format!("{doing}, which needs {}", crate::error::size(bytes)),
        });
    }
    Ok(())
}

/// SHA-256 of parts that cannot run into each other (each is preceded by its length).
pub fn hash<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(&hasher.finalize())
}

/// SHA-256 of a file's content.
pub fn hash_file(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path).at("open", path)?;
    std::io::copy(&mut file, &mut hasher).at("read", path)?;
    Ok(hex(&hasher.finalize()))
}

/// The first 12 hex digits: 48 bits, plenty to name a handful of builds.
pub fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_cleared_and_publish_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("c"));
        fs::create_dir_all(cache.path("tmp/half-made")).unwrap();
        let lock = cache.lock().unwrap();
        assert!(!cache.path("tmp/half-made").exists());
        for content in ["one", "two"] {
            let staged = cache.staging(&lock, "x").unwrap();
            let inner = staged.path().join("x");
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join("f"), content).unwrap();
            cache.publish(&lock, &inner, &cache.path("thing/x")).unwrap();
            assert_eq!(fs::read_to_string(cache.path("thing/x/f")).unwrap(), content);
        }
        drop(lock);
        assert_eq!(fs::read_dir(cache.path("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn second_lock_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let lock = cache.lock().unwrap();
        let other = File::open(cache.path("lock")).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(lock);
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
    }

    #[test]
    fn unchanged_content_keeps_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/f");
        assert!(write_if_changed(&path, "a").unwrap());
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(!write_if_changed(&path, "a").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        assert!(write_if_changed(&path, "b").unwrap());
    }

    #[test]
    fn parts_of_a_hash_do_not_run_into_each_other() {
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
        assert_eq!(hash(["ab"]).len(), 64);
    }
}
