//! `trapline run`, from the point where everything is known.
//!
//! [`launch`] starts QEMU with the guest and ends as the guest ends. The consumer half of the shipped
//! analyzers is attached here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::analyzer::Analyzer;
use crate::guest;
use crate::recording::{Drain, Making};
use crate::session;
use crate::{Error, Result};

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
    /// A whole machine: the folders with firmware. `args` are QEMU's own then.
    pub system: Option<Vec<PathBuf>>,
}

pub use consumer::Format;

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
    /// What is traced: options of `-trapline`.
    pub control: Vec<String>,
    /// `--opt KEY=VALUE`, for the analyzer.
    pub opts: Vec<(String, String)>,
    /// `--record`: where the recording goes.
    pub record: Option<PathBuf>,
    /// Nothing but the recording is wanted.
    pub only_record: bool,
    /// Standard error is told how far it is.
    pub progress: bool,
    /// The consuming half of an analyzer that does not ship.
    pub program: Option<PathBuf>,
    /// Everything on the command line, for the arguments that [`augment`] added.
    pub matches: clap::ArgMatches,
}

/// Adds the arguments that analyzers' consumer halves declare to `trapline run`.
pub fn augment(command: clap::Command) -> clap::Command {
    let consume = clap::Arg::new("consume")
        .long("consume")
        .value_name("NAME")
        .value_parser(session::names())
        .help("Which consuming half reads the events [default: the analyzer's own (its crate's program); count if it has none]");
    session::augment(command.next_help_heading(None::<&str>).arg(consume))
}

/// Starts the guest and ends as it ends.
pub fn launch(prepared: Prepared, options: Options) -> Result<ExitCode> {
    let Some(analyzer) = &options.analyzer else {
        let mut running = guest::spawn(prepared.command(&[]))?;
        return Ok(running.wait()?.leave());
    };
    let own = session::names().contains(&analyzer.name.as_str()) && analyzer.ships;
    let chosen = options.matches.get_one::<String>("consume").map(String::as_str);
    let feeds = options.matches.get_one::<feeds::Kind>("feed").is_some();
    if let (None, Some(program), false) = (chosen, &options.program, feeds || options.record.is_some()) {
        return session::with_program(&prepared, program, &options);
    }
    let name = chosen.unwrap_or(if own { analyzer.name.as_str() } else { session::DEFAULT_CONSUMER });
    let feed = session::feed(&options.matches, options.output.as_deref(), options.format)?;
    // What a feed says of itself goes to standard error: -o is what it writes.
    let output = if feed.is_some() { None } else { options.output.as_deref() };
    let mut analysis = match feed {
        Some(feed) => feed,
        None if options.only_record => Box::new(Drain),
        None => session::analysis(name, &options.matches, options.format)?,
    };
    let mut out = session::output(output)?;
    let folder = session::Folder::new()?;
    let socket = folder.socket();
    let mut opts = analysis.qemu_options();
    opts.extend(options.opts);
    let mut settings = session::settings(&socket, &opts);
    settings.extend(options.control);
    let mut making = match &options.record {
        None => None,
        Some(path) => Some(Making::begin(path, &prepared, &analyzer.name)?),
    };

    let mut running = guest::spawn(prepared.command(&settings))?;
    let alive = AtomicBool::new(true);
    let reading = session::Reading { lossy: options.lossy, progress: options.progress };
    let (end, outcome) = std::thread::scope(|scope| {
        let recorder = making.as_mut().and_then(Making::recorder);
        let consuming = scope.spawn(|| session::consume(&mut *analysis, &socket, reading, &mut *out, &alive, recorder));
        let end = running.wait();
        // Release; pairs with the Acquire in `session::consume`.
        alive.store(false, Ordering::Release);
        (end, consuming.join())
    });
    // Before we may end by a signal, as the guest did.
    drop(folder);
    let end = end?;
    // Whatever happened: what was recorded until then is in order.
    let recorded = making.map(Making::finish).transpose();
    match outcome {
        Ok(session::Outcome::Done) => {
            if let Some(line) = recorded? {
                eprintln!("{line}");
            }
            session::report(&mut *analysis, &mut *out)?;
            Ok(if analysis.verdict() { end.leave() } else { ExitCode::from(session::VERDICT) })
        }
        Ok(session::Outcome::NotServed) => Err(Error::NotServed { status: format!("{end}") }),
        Ok(session::Outcome::Failed(what)) => {
            // What ended the recording is the cause.
            recorded?;
            Err(Error::Consumer { name: name.into(), what })
        }
        Err(_) => Err(Error::Bug("the consumer's thread panicked".into())),
    }
}

impl Prepared {
    /// `qemu-system-ISA [-L FOLDER]… [-trapline SETTINGS] ARGS…` or
    /// `qemu-ARCH [-L PREFIX] [-0 ARGV0] [-trapline SETTINGS] GUEST ARGS…`
    pub fn command(&self, settings: &[String]) -> Command {
        let mut command = Command::new(&self.qemu);
        if let Some(folders) = &self.system {
            for folder in folders {
                command.arg("-L").arg(folder);
            }
            if !settings.is_empty() {
                command.arg("-trapline").arg(settings.join(","));
            }
            command.args(&self.args);
            return command;
        }
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
