//! Where Trapline's own files are: the patch, the shipped analyzers, the header for QEMU.
//!
//! The command needs its checkout at run time, since it builds analyzers from source. It is the
//! folder that the command was compiled from, or `TRAPLINE_HOME` when the checkout has moved.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    pub fn find() -> Result<Home> {
        let root = match std::env::var_os("TRAPLINE_HOME").filter(|v| !v.is_empty()) {
            Some(dir) => PathBuf::from(dir),
            None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        };
        let root = root.canonicalize().unwrap_or(root);
        if !root.join("Cargo.toml").is_file() {
            return Err(Error::NoHome { folder: root, missing: "Cargo.toml".into() });
        }
        Ok(Home { root })
    }

    pub fn at(root: impl Into<PathBuf>) -> Home {
        Home { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The series that makes QEMU instrumentable.
    pub fn patch(&self) -> PathBuf {
        self.root.join("qemu_patches.patch")
    }

    /// The header that the patch and bindgen share.
    pub fn header(&self) -> PathBuf {
        self.root.join("instrument/include/trapline.h")
    }

    pub fn analyzers(&self) -> PathBuf {
        self.root.join("analyzers")
    }
}
