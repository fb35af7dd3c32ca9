//! Configuring and compiling QEMU.
//!
//! Rules:
//! - One build folder per source and [`Flavour`] serves all analyzers and all targets. It is configured for all targets at once, and ninja is
//!   asked only for the ones that are wanted: configuring for all of them costs 3 s more than for one (22 s against 19 s, two
//!   cores), whereas configuring again for one more makes ninja compile two thirds of the first again (45 s of 69 s).
//!   Hexagon has a folder of its own, since its build needs flex and bison, and so have whole machines.
//! - What an analyzer changes is in one folder, `instrument/`, whose files are rewritten only if their content
//!   differs: a new analyzer is a relink, and a recompile of only the files that see `instrument-points.h` if the set of points differs.
//! - The finished binary is copied to `bin/NAME-HASH/`, where HASH covers everything that went into it. What is there is
//!   whole and never changes.
//! - An interrupted build goes on where it stopped: ninja knows. Configuring that was interrupted starts anew.

use std::fs;
use std::path::{Path, PathBuf};

use crate::analyzer::{self, Library};
use crate::cache::{self, Cache, Lock};
use crate::error::At;
use crate::exec;
use crate::home::Home;
use crate::patch::{self, Tree};
use crate::progress::{self, Step};
use crate::source::Source;
use crate::target::{Group, Target};
use crate::venv::Venv;
use crate::{Error, Result};

/// Patched and linked with an analyzer, or as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Instrumented,
    /// Unpatched, for comparison: same compiler, same flags.
    Plain,
}

impl Flavour {
    fn name(self) -> &'static str {
        match self {
            Flavour::Instrumented => "instrumented",
            Flavour::Plain => "plain",
        }
    }
}

/// The same for both flavours, so that they can be compared. QEMU's default is -O2; without -g the objects are a tenth.
/// Plugins stay in: the oracle of the tests is one.
const FLAGS: &[&str] = &[
    "--without-default-features",
    "--enable-tcg",
    "--enable-plugins",
    "--disable-tools",
    "--disable-docs",
    "--disable-install-blobs",
    "--disable-debug-info",
    "--disable-werror",
    "--disable-download",
];

/// What a group adds. Whole machines get device trees, a display's pixels, and the network that needs no privileges.
fn flags(group: Group) -> &'static [&'static str] {
    match group {
        Group::User | Group::Hexagon => &["--enable-linux-user", "--disable-system"],
        Group::System => {
            &["--enable-system", "--disable-user", "--enable-fdt=system", "--enable-pixman", "--enable-slirp"]
        }
    }
}

/// Lines that configuring prints with all targets; only for the progress bar.
const CONFIGURE_LINES: u64 = 480;

/// Finished binaries of one name that are kept; older ones go.
const KEPT: usize = 6;

/// What is to be built.
pub struct Job<'a> {
    pub flavour: Flavour,
    pub source: &'a Source,
    /// The tree to compile: patched, or the source itself.
    pub tree: Tree,
    /// With [`Flavour::Instrumented`].
    pub library: Option<&'a Library>,
    pub targets: &'a [&'static Target],
}

/// The folder in which the finished binaries are. Takes microseconds, and exists only if one of them is built.
pub fn finished(cache: &Cache, home: &Home, tree_key: &str, library: Option<&Library>) -> Result<PathBuf> {
    let mut parts: Vec<Vec<u8>> = vec![tree_key.into()];
    let groups = Group::ALL.iter().flat_map(|g| flags(*g));
    parts.extend(FLAGS.iter().chain(groups).map(|f| f.as_bytes().to_vec()));
    let name = match library {
        Some(library) => {
            parts.push(library.hash.clone().into());
            parts.push(fs::read(home.header()).at("read", home.header())?);
            library.name.as_str()
        }
        None => Flavour::Plain.name(),
    };
    Ok(cache.path("bin").join(format!("{name}-{}", cache::short(&cache::hash(parts)))))
}

pub fn binary(folder: &Path, target: &Target) -> PathBuf {
    folder.join(target.program())
}

/// Builds what is not finished yet.
pub fn ensure(cache: &Cache, lock: &Lock, home: &Home, venv: &Venv, job: &Job<'_>) -> Result<()> {
    let finished = finished(cache, home, &job.tree.key, job.library)?;
    for group in Group::ALL {
        let wanted: Vec<&'static Target> =
            job.targets.iter().copied().filter(|t| t.group() == group && !binary(&finished, t).exists()).collect();
        if !wanted.is_empty() {
            compile(cache, lock, home, venv, job, group, &wanted, &finished)?;
        }
    }
    prune(&finished)
}

#[allow(clippy::too_many_arguments)]
fn compile(
    cache: &Cache,
    lock: &Lock,
    home: &Home,
    venv: &Venv,
    job: &Job<'_>,
    group: Group,
    wanted: &[&'static Target],
    finished: &Path,
) -> Result<()> {
    // A target's objects are 20 to 60 MB.
    cache::need_space(cache.root(), 300 << 20, "building QEMU")?;
    let folder = patch::folder(cache, job.source);
    let suffix = match group {
        Group::User => "",
        Group::Hexagon => "-hexagon",
        Group::System => "-system",
    };
    let build = folder.join(format!("build-{}{suffix}", job.flavour.name()));

    let instrument = match job.library {
        Some(library) => Some(stage_analyzer(&folder.join("instrument"), home, library)?),
        None => None,
    };
    configure(cache, job, venv, &build, group, instrument.as_deref())?;

    let names: Vec<String> = wanted.iter().map(|t| t.program()).collect();
    for name in &names {
        // The library is linked by its path; this makes sure that it is linked, however meson sees it.
        cache::remove_file(&build.join(name))?;
    }
    let what = format!(
        "Building {}{}",
        names.join(", "),
        job.library.map(|l| format!(" with the analyzer {}", l.name)).unwrap_or_default()
    );
    let mut step = Step::new(&what);
    let mut ninja = exec::command(venv.ninja());
    // A changed meson.build has meson run again, which looks for ninja by itself.
    ninja.env("NINJA", venv.ninja());
    ninja.env("NINJA_STATUS", "[%f/%t] ").env("PYTHONPYCACHEPREFIX", build.join("pycache"));
    ninja.arg("-C").arg(&build).args(&names);
    exec::logged(ninja, &what, &cache.log(&format!("build-{}", job.flavour.name())), &mut step, |s, line| {
        if let Some((done, total, what)) = progress::ninja(line) {
            s.set(done, total);
            s.note(what);
        }
    })?;
    for name in &names {
        let staged = cache.staging(lock, name)?;
        let copy = staged.path().join(name);
        fs::copy(build.join(name), &copy).at("copy", build.join(name))?;
        cache::create_dir(finished)?;
        fs::rename(&copy, finished.join(name)).at("rename", &copy)?;
    }
    step.done();
    Ok(())
}

/// Fills the folder for `--with-instrument`.
fn stage_analyzer(folder: &Path, home: &Home, library: &Library) -> Result<PathBuf> {
    cache::write_if_changed(&folder.join("instrument-points.h"), analyzer::points_header(&library.points))?;
    let header = home.header();
    cache::write_if_changed(&folder.join("trapline.h"), fs::read(&header).at("read", &header)?)?;
    let archive = fs::read(&library.archive).at("read", &library.archive)?;
    cache::write_if_changed(&folder.join("libanalyzer.a"), archive)?;
    Ok(folder.to_path_buf())
}

fn configure(
    cache: &Cache,
    job: &Job<'_>,
    venv: &Venv,
    build: &Path,
    group: Group,
    instrument: Option<&Path>,
) -> Result<()> {
    let script = job.tree.dir.join("configure");
    let kind = if group == Group::System { "softmmu" } else { "linux-user" };
    let targets: Vec<String> = group.targets().map(|t| format!("{}-{kind}", t.name)).collect();
    let mut command = exec::command(&script);
    command.current_dir(build).args(FLAGS).args(flags(group));
    command.arg(format!("--python={}", venv.python().display()));
    command.arg(format!("--ninja={}", venv.ninja().display()));
    command.arg(format!("--target-list={}", targets.join(",")));
    if let Some(folder) = instrument {
        command.arg(format!("--with-instrument={}", folder.display()));
    }
    command.env("PYTHONPYCACHEPREFIX", build.join("pycache"));

    // ninja runs meson again by itself when a meson.build changes; these it does not look at.
    let mut parts = vec![exec::shown(&command).into_bytes()];
    for file in [
        "configure",
        "meson_options.txt",
        "scripts/meson-buildoptions.sh",
        "python/scripts/mkvenv.py",
        "pythondeps.toml",
    ] {
        parts.push(fs::read(job.tree.dir.join(file)).unwrap_or_default());
    }
    let wanted = cache::hash(parts);
    let stamp = build.join("configured");
    if fs::read_to_string(&stamp).is_ok_and(|s| s == wanted) && build.join("build.ninja").exists() {
        return Ok(());
    }
    cache::remove_file(&stamp)?;
    if !build.join("build.ninja").exists() {
        cache::remove_dir(build)?;
    }
    cache::create_dir(build)?;
    let what = match job.flavour {
        Flavour::Instrumented => format!("Configuring QEMU {}", job.source.version),
        Flavour::Plain => format!("Configuring unpatched QEMU {}", job.source.version),
    };
    let mut step = Step::new(&what);
    let mut lines = 0;
    let result =
        exec::logged(command, &what, &cache.log(&format!("configure-{}", job.flavour.name())), &mut step, |s, l| {
            lines += 1;
            s.set(lines.min(CONFIGURE_LINES - 1), CONFIGURE_LINES);
            s.note(l);
        });
    if let Err(e) = result {
        // meson's own log says more than what it prints.
        let own = build.join("meson-logs/meson-log.txt");
        let kept = cache.log("meson");
        let hint_of = |more: String| match e {
            Error::Step { what, status, log, tail, hint } => {
                Error::Step { what, status, log, tail, hint: hint + &more }
            }
            other => other,
        };
        let e = match fs::copy(&own, &kept) {
            Ok(_) => hint_of(format!(" (meson says more in {})", kept.display())),
            Err(_) => hint_of(String::new()),
        };
        cache::remove_dir(build)?;
        return Err(e);
    }
    step.done();
    cache::write(&stamp, wanted)
}

/// Drops the oldest folders of finished binaries with this one's name.
fn prune(finished: &Path) -> Result<()> {
    let (Some(parent), Some(own)) = (finished.parent(), finished.file_name().and_then(|n| n.to_str())) else {
        return Ok(());
    };
    let Some((name, _)) = own.rsplit_once('-') else {
        return Ok(());
    };
    let mut folders: Vec<_> = fs::read_dir(parent)
        .at("read", parent)?
        .filter_map(|e| e.ok())
        .filter(|e| e.file_name().to_str().and_then(|f| f.rsplit_once('-')).is_some_and(|(n, _)| n == name))
        .filter_map(|e| Some((e.metadata().and_then(|m| m.modified()).ok()?, e.path())))
        .collect();
    folders.sort();
    let surplus = folders.len().saturating_sub(KEPT);
    for (_, folder) in folders.into_iter().take(surplus).filter(|(_, f)| f != finished) {
        cache::remove_dir(&folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, hash: &str) -> Library {
        Library { name: name.into(), archive: "/none".into(), hash: hash.into(), points: vec![] }
    }

    #[test]
    fn whatever_goes_in_changes_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        cache::write(&home.header(), "1").unwrap();
        let cache = Cache::at("/c");
        let of = |key: &str, l: Option<&Library>| finished(&cache, &home, key, l).unwrap();
        let a = of("k", Some(&library("count", "h")));
        assert!(a.starts_with("/c/bin") && a.file_name().unwrap().to_str().unwrap().starts_with("count-"));
        assert_ne!(a, of("other", Some(&library("count", "h"))));
        assert_ne!(a, of("k", Some(&library("count", "other"))));
        assert!(of("k", None).file_name().unwrap().to_str().unwrap().starts_with("plain-"));
        cache::write(&home.header(), "2").unwrap();
        assert_ne!(a, of("k", Some(&library("count", "h"))));
    }

    #[test]
    fn old_binaries_go_and_other_names_stay() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..8 {
            fs::create_dir_all(dir.path().join(format!("count-{n:012}"))).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for other in ["plain-000000000000", "count-more-000000000000"] {
            fs::create_dir_all(dir.path().join(other)).unwrap();
        }
        prune(&dir.path().join("count-000000000000")).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left.len(), 2 + KEPT + 1);
        assert!(left.contains(&"count-000000000000".into()) && !left.contains(&"count-000000000001".into()));
        assert!(left.contains(&"count-more-000000000000".into()));
    }
}
