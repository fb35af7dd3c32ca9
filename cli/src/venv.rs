//! A private Python environment with what QEMU's build needs: meson, ninja, pycotap, tomli.
//!
//! Debian 12's meson is too old for QEMU 10, and the system's Python is not ours to change. The packages come from
//! PyPI by the machine's own pip configuration.
//!
//! A venv holds its own path, so it cannot be made elsewhere and renamed: `complete` is written last instead.

use std::path::{Path, PathBuf};

use crate::cache::{self, Cache, Lock};
use crate::error::At;
use crate::exec;
use crate::progress::Step;
use crate::{Error, Result};

/// meson 1.8 and later has not been tried with QEMU 10.0. pycotap as `pythondeps.toml` of QEMU 10.0 asks for it.
const REQUIREMENTS: &[&str] = &["meson>=1.5,<1.8", "ninja>=1.11", "pycotap>=1.1.0", "tomli>=1.2"];

#[derive(Debug, Clone)]
pub struct Venv {
    dir: PathBuf,
}

impl Venv {
    pub fn python(&self) -> PathBuf {
        self.dir.join("bin/python3")
    }

    pub fn ninja(&self) -> PathBuf {
        self.dir.join("bin/ninja")
    }
}

/// The environment if it is whole.
pub fn at_hand(cache: &Cache) -> Option<Venv> {
    let dir = cache.path("venv");
    let whole = std::fs::read_to_string(dir.join("complete")).is_ok_and(|text| text == stamp());
    // The interpreter that it was made from may be gone.
    let venv = Venv { dir };
    (whole && venv.python().exists() && venv.ninja().exists()).then_some(venv)
}

pub fn ensure(cache: &Cache, _lock: &Lock) -> Result<Venv> {
    if let Some(venv) = at_hand(cache) {
        return Ok(venv);
    }
    let dir = cache.path("venv");
    cache::remove_dir(&dir)?;
    let what = "Setting up meson and ninja in a private Python environment";
    let mut step = Step::new(what);
    let mut create = exec::command("python3");
    create.args(["-m", "venv"]).arg(&dir);
    exec::logged(create, "making a Python environment", &cache.log("venv"), &mut step, |s, l| s.note(l))?;
    let venv = Venv { dir };
    let mut install = exec::command(venv.python());
    install.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]).args(REQUIREMENTS);
    exec::logged(install, what, &cache.log("pip"), &mut step, |s, l| s.note(l)).map_err(|e| match e {
        Error::Step { what, status, log, tail, .. } => {
            let hint = "pip must reach a package index: see 'pip config list'; then run the same command again".into();
            Error::Step { what, status, log, tail, hint }
        }
        other => other,
    })?;
    let complete = venv.dir.join("complete");
    std::fs::write(&complete, stamp()).at("write", &complete)?;
    step.done();
    Ok(venv)
}

/// Changes when the environment must be made anew.
fn stamp() -> String {
    REQUIREMENTS.join("\n")
}

/// meson's version in the environment, for `doctor`.
pub fn versions(cache: &Cache) -> Option<String> {
    let venv = at_hand(cache)?;
    let of = |program: &Path| {
        let mut command = exec::command(program);
        command.arg("--version");
        exec::output(command).map(|v| v.trim().to_string())
    };
    Some(format!("meson {}, ninja {}", of(&venv.dir.join("bin/meson"))?, of(&venv.ninja())?))
}
