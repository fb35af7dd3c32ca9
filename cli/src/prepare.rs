//! From a wish to a finished `qemu-<arch>`.
//!
//! Twice the same way: first looking only ([`at_hand`]: no lock, no network, no child process, a few milliseconds), and if
//! something is missing, making it ([`ensure`]). What is checked in the first must be what the second makes.

use std::path::PathBuf;

use crate::analyzer::{self, Analyzer};
use crate::build::{self, Flavour, Job};
use crate::cache::Cache;
use crate::deps::{self, For};
use crate::home::Home;
use crate::patch::{self, Tree};
use crate::source;
use crate::target::{Group, Target};
use crate::venv;
use crate::{Error, Result};

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Wish {
    /// `None`: unpatched.
    pub analyzer: Option<Analyzer>,
    pub targets: Vec<&'static Target>,
    /// `--qemu-src`
    pub qemu_src: Option<PathBuf>,
}

/// The folder of finished binaries if all of them are there.
pub fn at_hand(cache: &Cache, home: &Home, wish: &Wish) -> Result<Option<PathBuf>> {
    let library = match &wish.analyzer {
        None => None,
        Some(analyzer) => match analyzer::at_hand(cache, analyzer) {
            Some(library) => Some(library),
            None => return Ok(None),
        },
    };
    let Some(source) = source::at_hand(cache, wish.qemu_src.as_deref())? else {
        return Ok(None);
    };
    let patch = wish.analyzer.is_some().then(|| patch_file(home)).transpose()?;
    let key = patch::key(&source, patch.as_deref())?;
    let folder = build::finished(cache, home, &key, library.as_ref())?;
    let complete = wish.targets.iter().all(|t| build::binary(&folder, t).exists());
    Ok(complete.then_some(folder))
}

/// The folder of finished binaries, everything made that is missing.
pub fn ensure(cache: &Cache, home: &Home, wish: &Wish) -> Result<PathBuf> {
    if let Some(folder) = at_hand(cache, home, wish)? {
        return Ok(folder);
    }
    fit_for_configure(cache)?;
    let lock = cache.lock()?;
    // Somebody else may have made it while we waited.
    if let Some(folder) = at_hand(cache, home, wish)? {
        return Ok(folder);
    }
    let patch = wish.analyzer.is_some().then(|| patch_file(home)).transpose()?;
    let mut purposes = vec![For::Qemu];
    if wish.analyzer.is_some() {
        purposes.extend([For::Patch, For::Analyzer]);
    }
    for target in &wish.targets {
        purposes.extend(match target.group() {
            Group::User => None,
            Group::Hexagon => Some(For::Hexagon),
            Group::System => Some(For::System),
        });
    }
    purposes.extend(source::needs(cache, wish.qemu_src.as_deref()));
    deps::ensure(cache, &lock, &purposes)?;

    // The analyzer first: its author should not wait minutes for a compiler error.
    let library = match &wish.analyzer {
        Some(analyzer) => Some(analyzer::ensure(cache, &lock, analyzer)?),
        None => None,
    };
    let source = source::ensure(cache, &lock, wish.qemu_src.as_deref())?;
    let (flavour, tree) = match &patch {
        Some(patch) => (Flavour::Instrumented, patch::ensure(cache, &lock, &source, patch)?),
        None => (Flavour::Plain, Tree { dir: source.dir.clone(), key: patch::key(&source, None)? }),
    };
    let venv = venv::ensure(cache, &lock)?;
    let job = Job { flavour, source: &source, tree, library: library.as_ref(), targets: &wish.targets };
    let folder = build::finished(cache, home, &job.tree.key, job.library)?;
    build::ensure(cache, &lock, home, &venv, &job)?;
    Ok(folder)
}

/// QEMU's configure takes no path with blanks or colons in it, and says so less clearly.
fn fit_for_configure(cache: &Cache) -> Result<()> {
    let root = cache.root().to_string_lossy();
    if root.contains(|c: char| c.is_whitespace() || c == ':') {
        return Err(Error::Usage {
            what: format!("the cache folder '{root}' has a blank or a colon in it, which QEMU's build cannot handle"),
            hint: "set TRAPLINE_CACHE to another folder".into(),
        });
    }
    Ok(())
}

fn patch_file(home: &Home) -> Result<PathBuf> {
    let patch = home.patch();
    if !patch.is_file() {
        return Err(Error::NoHome { folder: home.root().to_path_buf(), missing: "qemu_patches.patch".into() });
    }
    Ok(patch)
}

/// One binary.
pub fn qemu(cache: &Cache, home: &Home, wish: &Wish, target: &Target) -> Result<PathBuf> {
    Ok(build::binary(&ensure(cache, home, wish)?, target))
}
