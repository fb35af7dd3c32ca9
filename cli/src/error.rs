//! Every way in which `trapline` itself can fail.
//!
//! Rules:
//! - A variant belongs to one [`Kind`]: the user's (they can mend it by asking differently), the
//!   environment's (the machine lacks something), or ours (a bug). The kind is printed.
//! - The message says what failed and where (a path, a package, a version); [`Error::hint`] says what to do.
//! - Trapline's own failures leave with 125, 126 or 127 as a shell's do, so that they cannot be confused
//!   with most programs' own codes. The guest's code is never an `Error`.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Mended by asking differently.
    User,
    /// Mended on the machine: a package, disk space, the network.
    Environment,
    /// A bug in Trapline.
    Ours,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    // ---- the user's -------------------------------------------------------------------------
    /// User: no such file, or no such command in `PATH`.
    #[error("{}: {}", program.display(), if *in_path { "no such command in PATH" } else { "no such file" })]
    ProgramNotFound { program: PathBuf, in_path: bool },
    /// User: there, but cannot be run (a directory, no execute permission, not readable).
    #[error("{}: {why}", program.display())]
    NotExecutable { program: PathBuf, why: String },
    /// User: neither an ELF file nor a script that names its interpreter.
    #[error("{}: not an ELF program, and its first line is not '#!'", program.display())]
    NotAProgram { program: PathBuf },
    /// User: an ELF file that does not hold together.
    #[error("{}: {why}", program.display())]
    BadElf { program: PathBuf, why: String },
    /// User: an ELF file for a machine that QEMU's user mode does not emulate.
    #[error("{}: a program for {isa}, which QEMU's user mode does not emulate", program.display())]
    UnsupportedIsa { program: PathBuf, isa: String },
    /// User: `#!` names something that is not there or cannot be run.
    #[error("{}: its first line asks for the interpreter {}, {why}", script.display(), interpreter.display())]
    BadInterpreter { script: PathBuf, interpreter: PathBuf, why: String, code: u8 },
    /// User: scripts that interpret each other more than the kernel allows.
    #[error("{}: more than {limit} interpreters in a row", script.display())]
    InterpreterLoop { script: PathBuf, limit: usize },
    /// User: a dynamically linked program whose loader is nowhere.
    #[error(
        "{}: needs the dynamic loader {}, which is neither {} nor on this machine",
        program.display(), loader.display(), searched
    )]
    LoaderMissing { program: PathBuf, loader: PathBuf, searched: String, hint: String },
    /// User: `--target` names nothing that QEMU 10.0 has.
    #[error("no QEMU user-mode target is called '{name}'")]
    UnknownTarget { name: String },
    #[error("no machine of the ISA '{name}'")]
    UnknownSystem { name: String },
    /// User: `--analyzer` names neither one that ships nor a crate's folder.
    #[error("no analyzer '{name}': neither one that ships nor a folder with a Cargo.toml")]
    UnknownAnalyzer { name: String, known: Vec<String> },
    /// User: cargo refused the analyzer. Its own words have been printed already.
    #[error("the analyzer {name} ({}) does not build", folder.display())]
    AnalyzerBuild { name: String, folder: PathBuf },
    /// User: what cargo built is not an analyzer.
    #[error("{name}: {why}")]
    NotAnAnalyzer { name: String, why: String },
    /// User: `--qemu-src` is not a QEMU source tree.
    #[error("{}: not a QEMU source tree (no {missing})", folder.display())]
    NotQemuSource { folder: PathBuf, missing: String },
    /// User: a QEMU that the patch is not made for.
    #[error("{}: this is QEMU {found}; Trapline's patch is for QEMU {}", folder.display(), crate::source::SUPPORTED)]
    QemuVersion { folder: PathBuf, found: String },
    /// User: anything else said wrongly on the command line.
    #[error("{what}")]
    Usage { what: String, hint: String },

    /// User or ours: the consumer failed. The guest has ended by itself.
    #[error("the consumer '{name}' failed, and the guest went on without it: {what}")]
    Consumer { name: String, what: String },
    /// Environment: QEMU did not get as far as the guest.
    #[error("QEMU ended before it served its events ({status})")]
    NotServed { status: String },

    // ---- the environment's ------------------------------------------------------------------
    /// Environment: packages that are missing and that we may not install.
    #[error("this machine lacks {}", .missing.join(", "))]
    MissingPackages { missing: Vec<String>, command: String },
    /// Environment: a command that we ran failed. `tail` is the end of its log.
    #[error("{what} failed ({status}); the log is {}\n{}", log.display(), indent(tail))]
    Step { what: String, status: String, log: PathBuf, tail: String, hint: String },
    /// Environment: a command that we need cannot be started.
    #[error("cannot start {command}: {source}")]
    Spawn { command: String, source: io::Error },
    /// Environment: the disk is full.
    #[error("no space left in {} ({} free) while {doing}", folder.display(), size(*free))]
    NoSpace { folder: PathBuf, free: u64, doing: String },
    /// Environment: reading or writing a file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// Environment: QEMU's source cannot be had. One line for each way that was tried.
    #[error("QEMU's source cannot be had:\n{}", tried.iter().map(|t| format!("  - {t}")).collect::<Vec<_>>().join("\n"))]
    NoSource { tried: Vec<String> },
    /// Environment: what was downloaded is not what it should be.
    #[error("{}: its SHA-256 is {found}, not {wanted}", file.display())]
    Checksum { file: PathBuf, found: String, wanted: String },
    /// Environment: the checkout that holds the patch and the analyzers is gone.
    #[error("{} is not Trapline's checkout (no {missing})", folder.display())]
    NoHome { folder: PathBuf, missing: String },

    // ---- ours -------------------------------------------------------------------------------
    /// Ours: the patch does not apply to a version that it should fit.
    #[error("{} does not fit QEMU {version}: {what}\n{}", patch.display(), indent(detail))]
    PatchDoesNotFit { patch: PathBuf, version: String, what: String, detail: String },
    /// Ours: something that cannot happen did.
    #[error("{0}")]
    Bug(String),
}

impl Error {
    pub fn kind(&self) -> Kind {
        use Error::*;
        match self {
            ProgramNotFound { .. }
            | NotExecutable { .. }
            | NotAProgram { .. }
            | BadElf { .. }
            | UnsupportedIsa { .. }
            | BadInterpreter { .. }
            | InterpreterLoop { .. }
            | LoaderMissing { .. }
            | UnknownTarget { .. }
            | UnknownSystem { .. }
            | UnknownAnalyzer { .. }
            | AnalyzerBuild { .. }
            | NotAnAnalyzer { .. }
            | NotQemuSource { .. }
            | QemuVersion { .. }
            | Usage { .. } => Kind::User,
            Consumer { .. } | NotServed { .. } => Kind::Environment,
            MissingPackages { .. }
            | Step { .. }
            | Spawn { .. }
            | NoSpace { .. }
            | Io { .. }
            | NoSource { .. }
            | Checksum { .. }
            | NoHome { .. } => Kind::Environment,
            PatchDoesNotFit { .. } | Bug(_) => Kind::Ours,
        }
    }

    /// The exit code, after the shells' habit.
    pub fn code(&self) -> u8 {
        match self {
            Error::ProgramNotFound { .. } | Error::LoaderMissing { .. } => 127,
            Error::BadInterpreter { code, .. } => *code,
            Error::NotExecutable { .. }
            | Error::NotAProgram { .. }
            | Error::BadElf { .. }
            | Error::UnsupportedIsa { .. }
            | Error::InterpreterLoop { .. } => 126,
            _ => 125,
        }
    }

    /// What to do about it. Empty when the message says it all.
    pub fn hint(&self) -> String {
        use Error::*;
        match self {
            ProgramNotFound { in_path: true, .. } => "give the program's path, or put its folder into PATH".into(),
            ProgramNotFound { .. } => "check the path".into(),
            NotExecutable { .. } => "give a program that you may read and execute (chmod +rx FILE)".into(),
            NotAProgram { .. } => {
                "name its interpreter: trapline run … -- INTERPRETER FILE, or begin the file with '#!INTERPRETER'"
                    .into()
            }
            BadElf { .. } => "get a whole copy of the program".into(),
            UnsupportedIsa { .. } => format!(
                "QEMU's user mode has: {}",
                crate::target::TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(" ")
            ),
            BadInterpreter { .. } => "install that interpreter, or mend the script's first line".into(),
            InterpreterLoop { .. } => "mend the scripts' first lines".into(),
            LoaderMissing { hint, .. } | Usage { hint, .. } | Step { hint, .. } => hint.clone(),
            UnknownTarget { .. } => format!(
                "the targets are: {}",
                crate::target::TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(" ")
            ),
            UnknownSystem { .. } => format!(
                "these are there: {}",
                crate::target::SYSTEM_TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(" ")
            ),
            UnknownAnalyzer { known, .. } => {
                format!("these ship: {}; or give the path of a crate", known.join(" "))
            }
            AnalyzerBuild { .. } => "mend what the compiler says above".into(),
            NotAnAnalyzer { .. } => "an analyzer is a library crate with one #[analyzer] in it".into(),
            NotQemuSource { .. } => "give the top folder of an unpacked QEMU source".into(),
            QemuVersion { .. } => "unpack a supported version, or leave --qemu-src out: Trapline fetches one".into(),
            MissingPackages { command, .. } => command.clone(),
            Spawn { .. } => "'trapline doctor' says what is missing and how to get it".into(),
            NoSpace { folder, .. } => format!(
                "free some space (a first build needs about 1 GiB), or move the cache: TRAPLINE_CACHE=/elsewhere (now {})",
                folder.display()
            ),
            Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the permissions; TRAPLINE_CACHE moves the cache to a folder of yours".into()
            }
            Io { .. } => String::new(),
            NoSource { .. } => format!(
                "unpack QEMU {} yourself and give its folder: --qemu-src DIR (or TRAPLINE_QEMU_SRC)",
                crate::source::SUPPORTED
            ),
            Consumer { .. } => String::new(),
            NotServed { .. } => "what QEMU said above tells why".into(),
            Checksum { .. } => "the file was removed; try again, and do not use it if it happens twice".into(),
            NoHome { .. } => "set TRAPLINE_HOME to Trapline's checkout".into(),
            PatchDoesNotFit { .. } => "give another 10.0.y with --qemu-src, and report this with the version".into(),
            Bug(_) => "this is a bug in Trapline; please report it".into(),
        }
    }

    /// Prints the error as the last thing the command says.
    pub fn print(&self) {
        let whose = match self.kind() {
            Kind::User | Kind::Environment => "",
            Kind::Ours => " (bug)",
        };
        eprintln!("trapline: error{whose}: {self}");
        let hint = self.hint();
        if !hint.is_empty() {
            eprintln!("  help: {hint}");
        }
    }

    pub fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Error {
        let path = path.into();
        if source.raw_os_error() == Some(libc::ENOSPC) || source.raw_os_error() == Some(libc::EDQUOT) {
            let folder = existing(&path);
            let free = crate::cache::free_space(&folder);
            return Error::NoSpace { folder, free, doing: format!("trying to {doing} {}", path.display()) };
        }
        Error::Io { doing, path, source }
    }
}

/// `fs::read(p).at("read", p)?`
pub trait At<T> {
    fn at(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|e| Error::io(doing, path, e))
    }
}

/// The nearest folder above `path` that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|p| p.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

fn indent(text: &str) -> String {
    text.lines().map(|l| format!("    {l}")).collect::<Vec<_>>().join("\n")
}

/// Bytes for people: `12.3 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_told_apart_from_other_io_errors() {
        let e = Error::io("write", "/tmp/x/y", io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(matches!(e, Error::NoSpace { .. }), "{e}");
        assert!(e.to_string().contains("free"), "{e}");
        let e = Error::io("write", "/tmp/x/y", io::Error::from_raw_os_error(libc::EACCES));
        assert!(matches!(e, Error::Io { .. }), "{e}");
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(12), "12 bytes");
        assert_eq!(size(3 * 1024 * 1024 * 1024 / 2), "1.5 GiB");
    }

    #[test]
    fn codes_follow_the_shells() {
        assert_eq!(Error::ProgramNotFound { program: "x".into(), in_path: true }.code(), 127);
        assert_eq!(Error::NotAProgram { program: "x".into() }.code(), 126);
        assert_eq!(Error::Bug("x".into()).code(), 125);
    }
}
