//! `trapline run`, from the point where everything is known.
//!
//! [`launch`] starts QEMU with the guest and ends as the guest ends. The consumer half of the shipped
//! analyzers is attached here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::Result;
use crate::analyzer::Analyzer;
use crate::guest;

/// A guest ready to be started.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The QEMU binary.
    pub qemu: PathBuf,
    /// QEMU's name for the guest's ISA.
    pub target: String,
    /// The guest's ELF file.
    pub guest: PathBuf,
    /// The guest's arguments after `argv[0]`.
    pub args: Vec<OsString>,
    /// The guest's `argv[0]`, if it is not `guest`.
    pub argv0: Option<OsString>,
    /// Where the guest's libraries are looked for before `/` (`-L`).
    pub prefix: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// What the user asked for beside the program.
#[derive(Debug, Clone)]
pub struct Options {
    /// `None`: unpatched QEMU, nothing to consume.
    pub analyzer: Option<Analyzer>,
    /// `-o`: where results go; `-` is standard output, nothing is standard error.
    pub output: Option<PathBuf>,
    pub format: Format,
    /// Rather lose events than hold the guest.
    pub lossy: bool,
    /// `--opt KEY=VALUE`, for the analyzer.
    pub opts: Vec<(String, String)>,
    /// Everything on the command line, for the arguments that [`augment`] added.
    pub matches: clap::ArgMatches,
}

/// Adds the arguments that analyzers' consumer halves declare to `trapline run`.
pub fn augment(command: clap::Command) -> clap::Command {
    command
}

/// Starts the guest and ends as it ends.
pub fn launch(prepared: Prepared, options: Options) -> Result<ExitCode> {
    let mut settings = Vec::new();
    if options.analyzer.is_some() {
        settings.extend(
            options
                .opts
                .iter()
                .map(|(key, value)| format!("{key}={value}")),
        );
    }
    let mut running = guest::spawn(prepared.command(&settings))?;
    Ok(running.wait()?.leave())
}

impl Prepared {
    /// `qemu-ARCH [-L PREFIX] [-0 ARGV0] [-trapline SETTINGS] GUEST ARGS…`
    pub fn command(&self, settings: &[String]) -> Command {
        let mut command = Command::new(&self.qemu);
        if let Some(prefix) = &self.prefix {
            command.arg("-L").arg(prefix);
        }
        if let Some(argv0) = &self.argv0 {
            command.arg("-0").arg(argv0);
        }
        if !settings.is_empty() {
            command.arg("-trapline").arg(settings.join(","));
        }
        command.arg("--").arg(&self.guest).args(&self.args);
        command
    }
}
