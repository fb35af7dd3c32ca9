//! QEMU's source with our patch: a private copy that is brought up to date in place.
//!
//! A copy per source, not per patch: when the patch or a user's tree changes, only the files that differ are rewritten, so that
//! ninja recompiles what depends on them and nothing else.
//!
//! Rules:
//! - The source itself is never written to.
//! - `tree.json` says what the copy was made from. It is removed before the copy is touched and written when it is
//!   whole, so an interrupted update is done again.
//! - A file is rewritten only if its content differs; the copy's times are its own.
//! - The patch is tried on copies of the files that it touches first. One that does not fit leaves the tree as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cache::{self, Cache, Lock};
use crate::deps;
use crate::error::At;
use crate::exec;
use crate::progress::Step;
use crate::source::Source;
use crate::{Error, Result};

/// Top folders that are not copied: history, firmware sources, packaging.
const LEFT_OUT: &[&str] = &[".git", ".pc", "roms"];
/// Top folders whose changes cannot change a user-mode QEMU; they are copied but not watched.
const UNWATCHED: &[&str] = &["tests", "docs", "pc-bios", "po", "debian"];

/// Size in bytes and time of last change: a file that keeps both is taken as unchanged.
type Seen = (u64, i64, i64);

#[derive(Serialize, Deserialize, Default)]
struct Manifest {
    /// [`key`] of what the copy is.
    key: String,
    /// Files as they were in the source when copied.
    files: BTreeMap<PathBuf, Seen>,
    /// Files whose content in the copy is the patch's, not the source's.
    patched: BTreeSet<PathBuf>,
}

/// A patched copy, whole.
#[derive(Debug, Clone)]
pub struct Tree {
    pub dir: PathBuf,
    /// Identifies the content.
    pub key: String,
}

/// The folder for everything that is made from a source.
pub fn folder(cache: &Cache, source: &Source) -> PathBuf {
    cache.path("qemu").join(&source.id)
}

/// Identifies the source's content together with the patch's (`None`: unpatched). Takes milliseconds.
pub fn key(source: &Source, patch: Option<&Path>) -> Result<String> {
    let mut parts: Vec<Vec<u8>> = vec![source.id.clone().into_bytes(), source.version.clone().into_bytes()];
    match patch {
        Some(patch) => parts.push(fs::read(patch).at("read", patch)?),
        None => parts.push(b"unpatched".to_vec()),
    }
    if source.users {
        for (path, seen) in files(&source.dir, UNWATCHED)? {
            parts.push(path.as_os_str().as_bytes().to_vec());
            parts.push(format!("{seen:?}").into_bytes());
        }
    }
    Ok(cache::hash(parts))
}

/// The patched copy, made or brought up to date if need be.
pub fn ensure(cache: &Cache, lock: &Lock, source: &Source, patch: &Path) -> Result<Tree> {
    let dir = folder(cache, source).join("tree");
    let manifest_path = folder(cache, source).join("tree.json");
    let key = key(source, Some(patch))?;
    let old: Manifest = fs::read(&manifest_path).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
    if old.key == key && dir.is_dir() {
        return Ok(Tree { dir, key });
    }

    let mut step = Step::new("Patching QEMU");
    let staging = cache.staging(lock, "patch")?;
    let overlay = staging.path().join("overlay");
    let patched = apply(cache, source, patch, &overlay, &mut step)?;

    cache::remove_file(&manifest_path)?;
    let files = files(&source.dir, &[])?;
    let total = files.len() as u64;
    for (done, (path, seen)) in files.iter().enumerate() {
        if done % 256 == 0 {
            step.set(done as u64, total);
        }
        if !patched.contains(path) && (old.patched.contains(path) || old.files.get(path) != Some(seen)) {
            place(&source.dir.join(path), &dir.join(path))?;
        }
    }
    for path in &patched {
        let from = overlay.join(path);
        match from.exists() {
            true => place(&from, &dir.join(path))?,
            false => cache::remove_file(&dir.join(path))?,
        }
    }
    for path in old.files.keys().chain(&old.patched) {
        if !files.contains_key(path) && !patched.contains(path) {
            cache::remove_file(&dir.join(path))?;
        }
    }
    let manifest = Manifest { key: key.clone(), files, patched };
    let json = serde_json::to_vec(&manifest).map_err(|e| Error::Bug(format!("{}: {e}", manifest_path.display())))?;
    cache::write(&manifest_path, json)?;
    step.done();
    Ok(Tree { dir, key })
}

/// Applies the patch to copies of the files that it touches, in `overlay`. Gives their names.
fn apply(cache: &Cache, source: &Source, patch: &Path, overlay: &Path, step: &mut Step) -> Result<BTreeSet<PathBuf>> {
    let bytes = fs::read(patch).at("read", patch)?;
    let touched = touched(&String::from_utf8_lossy(&bytes));
    cache::create_dir(overlay)?;
    for path in &touched {
        let from = source.dir.join(path);
        if from.is_file() {
            place(&from, &overlay.join(path))?;
        }
    }
    if touched.is_empty() {
        return Ok(touched);
    }
    let log = cache.log("patch");
    let mut command;
    if deps::has("git") {
        command = exec::command("git");
        // Not a part of whatever repository the cache may lie in.
        command
            .env("GIT_CEILING_DIRECTORIES", overlay.parent().unwrap_or(overlay))
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE");
        command.args(["apply", "--whitespace=nowarn", "-p1"]).arg(patch);
    } else {
        command = exec::command("patch");
        // As strict as git: no fuzz.
        command.args(["-p1", "--forward", "--batch", "--fuzz=0", "--no-backup-if-mismatch", "-i"]).arg(patch);
    }
    command.current_dir(overlay);
    match exec::logged(command, "applying the patch", &log, step, |_, _| {}) {
        Err(Error::Step { .. }) => {
            let output = fs::read_to_string(&log).unwrap_or_default();
            Err(does_not_fit(&output, patch, &source.version))
        }
        Err(e) => Err(e),
        Ok(()) => Ok(touched),
    }
}

/// Names the first file and hunk that git or patch complained about.
fn does_not_fit(output: &str, patch: &Path, version: &str) -> Error {
    let mut file = String::new();
    let mut what = String::new();
    let mut detail = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = name.trim_matches('\'').to_string();
        }
        let git = line.strip_prefix("error: ").filter(|l| l.starts_with("patch failed: "));
        let gnu = (line.starts_with("Hunk #") && line.contains("FAILED")).then_some(line);
        if let Some(place) = git.and_then(|l| l.strip_prefix("patch failed: ")) {
            what = if what.is_empty() { format!("the hunk at {place} does not match") } else { what };
        } else if let Some(hunk) = gnu {
            what = if what.is_empty() { format!("{file}: {hunk}") } else { what };
        }
        if git.is_some() || gnu.is_some() || line.starts_with("error: ") || line.contains("can't find file") {
            detail.push(line);
        }
    }
    if what.is_empty() {
        what = detail.first().map_or("it cannot be applied".to_string(), |l| l.to_string());
    }
    detail.truncate(20);
    Error::PatchDoesNotFit { patch: patch.to_path_buf(), version: version.into(), what, detail: detail.join("\n") }
}

/// The files that a patch names: changed, new, removed, renamed. Paths that would leave the tree are not among them
/// (git and patch refuse them too).
fn touched(patch: &str) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    let mut add = |name: &str| {
        let path = PathBuf::from(name.split('\t').next().unwrap_or_default().trim_end());
        if !name.is_empty() && path.components().all(|c| matches!(c, Component::Normal(_))) {
            paths.insert(path);
        }
    };
    // Lines of a hunk that are still to come: what they hold is text, not a header.
    let (mut old, mut new) = (0u64, 0u64);
    for line in patch.lines() {
        if old > 0 || new > 0 {
            match line.as_bytes().first() {
                Some(b'-') => old = old.saturating_sub(1),
                Some(b'+') => new = new.saturating_sub(1),
                Some(b'\\') => {}
                _ => (old, new) = (old.saturating_sub(1), new.saturating_sub(1)),
            }
            continue;
        }
        if let Some(range) = line.strip_prefix("@@ -") {
            (old, new) = hunk(range).unwrap_or_default();
        } else if let Some(name) = line.strip_prefix("--- a/").or_else(|| line.strip_prefix("+++ b/")) {
            add(name);
        } else if let Some(name) = line.strip_prefix("rename from ").or_else(|| line.strip_prefix("rename to ")) {
            add(name);
        } else if let Some(names) = line.strip_prefix("diff --git a/")
            && let Some((a, b)) = names.split_once(" b/")
        {
            add(a);
            add(b);
        }
    }
    paths
}

/// `12,3 +12,4 @@ …`: how many old and new lines the hunk has.
fn hunk(range: &str) -> Option<(u64, u64)> {
    let (old, rest) = range.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |r: &str| match r.split_once(',') {
        Some((_, n)) => n.parse().ok(),
        None => Some(1),
    };
    Some((count(old)?, count(new)?))
}

/// Regular files and links below `root`, with what tells a change.
fn files(root: &Path, skip: &[&str]) -> Result<BTreeMap<PathBuf, Seen>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let top = folder.as_os_str().is_empty();
        let full = root.join(&folder);
        for entry in fs::read_dir(&full).at("read", &full)? {
            let entry = entry.at("read", &full)?;
            let name = entry.file_name();
            let path = folder.join(&name);
            let kind = entry.file_type().at("read", root.join(&path))?;
            if kind.is_dir() {
                let left_out = top && (LEFT_OUT.iter().chain(skip).any(|s| name == *s));
                // Somebody's build folder inside the tree, and what Python leaves.
                let made = name == "__pycache__" || entry.path().join("build.ninja").exists();
                if !left_out && !made {
                    folders.push(path);
                }
            } else if kind.is_file() || kind.is_symlink() {
                let m = entry.metadata().at("read", root.join(&path))?;
                // Names that are not UTF-8 cannot be QEMU's.
                if path.to_str().is_some() {
                    found.insert(path, (m.len(), m.mtime(), m.mtime_nsec()));
                }
            }
        }
    }
    Ok(found)
}

/// Makes `to` have the content and mode of `from`; touches nothing if it has.
fn place(from: &Path, to: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(from).at("read", from)?;
    let there = fs::symlink_metadata(to).ok();
    if meta.is_symlink() {
        let link = fs::read_link(from).at("read", from)?;
        if there.is_some() && fs::read_link(to).is_ok_and(|l| l == link) {
            return Ok(());
        }
        cache::remove_file(to)?;
        parent(to)?;
        return std::os::unix::fs::symlink(link, to).at("create", to);
    }
    let mode = meta.permissions().mode() | 0o200;
    if let Some(there) = &there {
        let same = there.is_file()
            && there.len() == meta.len()
            && fs::read(from).at("read", from)? == fs::read(to).at("read", to)?;
        if same {
            if there.permissions().mode() & 0o777 != mode & 0o777 {
                fs::set_permissions(to, fs::Permissions::from_mode(mode)).at("write", to)?;
            }
            return Ok(());
        }
        cache::remove_file(to)?;
    }
    parent(to)?;
    fs::copy(from, to).at("write", to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).at("write", to)
}

fn parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), cache::create_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &str = "\
From 1111 Mon Sep 17 00:00:00 2001
From: A <a@b>
Subject: [PATCH 1/2] first

text
---
 f.c | 2 +-
diff --git a/f.c b/f.c
index 1..2 100644
--- a/f.c
+++ b/f.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/sub/new.c b/sub/new.c
new file mode 100644
--- /dev/null
+++ b/sub/new.c
@@ -0,0 +1,2 @@
+--- a/not-a-header
+x
--\x20
2.40.0

From 2222 Mon Sep 17 00:00:00 2001
Subject: [PATCH 2/2] second

---
diff --git a/f.c b/f.c
--- a/f.c
+++ b/f.c
@@ -1,3 +1,4 @@
 one
 TWO
+and a half
 three
diff --git a/gone.c b/gone.c
deleted file mode 100644
--- a/gone.c
+++ /dev/null
@@ -1 +0,0 @@
-bye
--\x20
2.40.0
";

    fn world() -> (tempfile::TempDir, Cache, Source, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("src");
        fs::create_dir_all(src.join("roms")).unwrap();
        fs::write(src.join("f.c"), "one\ntwo\nthree\n").unwrap();
        fs::write(src.join("gone.c"), "bye\n").unwrap();
        fs::write(src.join("same.c"), "same\n").unwrap();
        fs::write(src.join("roms/big"), "x").unwrap();
        std::os::unix::fs::symlink("same.c", src.join("link")).unwrap();
        let patch = dir.path().join("p.patch");
        fs::write(&patch, SERIES).unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        let source = Source { dir: src, id: "user-x".into(), version: "10.0.13".into(), users: true };
        (dir, cache, source, patch)
    }

    #[test]
    fn a_series_names_its_files() {
        let names: Vec<_> = touched(SERIES).into_iter().map(|p| p.display().to_string()).collect();
        assert_eq!(names, ["f.c", "gone.c", "sub/new.c"]);
        assert!(touched("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n").is_empty());
    }

    #[test]
    fn series_is_applied_and_the_source_left_alone() {
        let (_dir, cache, source, patch) = world();
        let lock = cache.lock().unwrap();
        let tree = ensure(&cache, &lock, &source, &patch).unwrap();
        assert_eq!(fs::read_to_string(tree.dir.join("f.c")).unwrap(), "one\nTWO\nand a half\nthree\n");
        assert!(tree.dir.join("sub/new.c").exists() && !tree.dir.join("gone.c").exists());
        assert!(!tree.dir.join("roms").exists());
        assert_eq!(fs::read_link(tree.dir.join("link")).unwrap(), Path::new("same.c"));
        assert_eq!(fs::read_to_string(source.dir.join("f.c")).unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn changes_rewrite_only_what_differs() {
        let (_dir, cache, source, patch) = world();
        let lock = cache.lock().unwrap();
        let first = ensure(&cache, &lock, &source, &patch).unwrap();
        let time = |name: &str| fs::metadata(first.dir.join(name)).unwrap().modified().unwrap();
        let (f, same) = (time("f.c"), time("same.c"));
        std::thread::sleep(std::time::Duration::from_millis(20));

        // The patch changes in one file and takes another back.
        let second = SERIES.replace("+x\n", "+y\n");
        let second = second[..second.find("diff --git a/gone.c").unwrap()].to_string();
        fs::write(&patch, second).unwrap();
        let tree = ensure(&cache, &lock, &source, &patch).unwrap();
        assert_ne!(tree.key, first.key);
        assert_eq!(fs::read_to_string(tree.dir.join("sub/new.c")).unwrap(), "--- a/not-a-header\ny\n");
        assert_eq!(fs::read_to_string(tree.dir.join("gone.c")).unwrap(), "bye\n");
        assert_eq!((time("f.c"), time("same.c")), (f, same));

        // The user's tree changes, and loses a file.
        fs::write(source.dir.join("same.c"), "other\n").unwrap();
        fs::remove_file(source.dir.join("link")).unwrap();
        let tree = ensure(&cache, &lock, &source, &patch).unwrap();
        assert_eq!(fs::read_to_string(tree.dir.join("same.c")).unwrap(), "other\n");
        assert!(!tree.dir.join("link").exists());
        assert_eq!(time("f.c"), f);

        // An update that was interrupted (no manifest) is done again, and touches nothing that is right.
        fs::remove_file(folder(&cache, &source).join("tree.json")).unwrap();
        fs::write(tree.dir.join("same.c"), "half").unwrap();
        let tree = ensure(&cache, &lock, &source, &patch).unwrap();
        assert_eq!(fs::read_to_string(tree.dir.join("same.c")).unwrap(), "other\n");
        assert_eq!(time("f.c"), f);
    }

    #[test]
    fn a_patch_that_does_not_fit_names_file_and_version_and_harms_nothing() {
        let (_dir, cache, source, patch) = world();
        let lock = cache.lock().unwrap();
        let good = ensure(&cache, &lock, &source, &patch).unwrap();
        fs::write(&patch, SERIES.replace("-two", "-zwei")).unwrap();
        let e = ensure(&cache, &lock, &source, &patch).unwrap_err();
        let message = e.to_string();
        assert!(matches!(e, Error::PatchDoesNotFit { .. }), "{message}");
        assert!(message.contains("f.c:1") && message.contains("10.0.13"), "{message}");
        fs::write(&patch, SERIES).unwrap();
        assert_eq!(ensure(&cache, &lock, &source, &patch).unwrap().key, good.key);
    }

    #[test]
    fn gnu_patch_speaks_otherwise() {
        let e = does_not_fit(
            "patching file accel/tcg/x.c\nHunk #2 FAILED at 40.\n1 out of 2 hunks FAILED\n",
            Path::new("p"),
            "10.0.1",
        );
        assert!(e.to_string().contains("accel/tcg/x.c: Hunk #2 FAILED at 40."), "{e}");
    }
}
