//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::analyzer::{self, Analyzer};
use crate::bench;
use crate::build;
use crate::cache::Cache;
use crate::control::Control;
use crate::deps;
use crate::doctor;
use crate::home::Home;
use crate::lookup;
use crate::new;
use crate::prepare::{self, Wish};
use crate::recording;
use crate::run::{self, Format, Options, Prepared};
use crate::session;
use crate::simpoint;
use crate::system;
use crate::target::{SYSTEM_TARGETS, TARGETS, Target};
use crate::{Error, Result};

/// What `run` and `build` take when no analyzer is named.
const DEFAULT_ANALYZER: &str = "count";
/// What recordings take then.
const RECORD_ANALYZER: &str = "trace";
/// What they take with registers.
const REGISTERS_ANALYZER: &str = "registers";

const EXAMPLES: &str = "\
Examples:
  trapline run --analyzer hotspots -- sha256sum /bin/bash
  trapline run --analyzer count --format json -o counts.json -- ./a.out 1 2 3
  trapline run -L /usr/aarch64-linux-gnu -- ./program-for-arm64
  trapline build --target x86_64,aarch64 --analyzer trace --analyzer ./my-analyzer
  trapline check -- ls
  trapline new my-analyzer
  trapline doctor
  trapline completions bash > /etc/bash_completion.d/trapline

Environment:
  TRAPLINE_CACHE     where everything is built (else $XDG_CACHE_HOME/trapline, else ~/.cache/trapline)
  TRAPLINE_QEMU_SRC  as --qemu-src
  TRAPLINE_HOME      Trapline's checkout, if it has moved since it was compiled
  QEMU_LD_PREFIX     as -L

Exit code: the guest's own. Trapline's failures: 127 no such program, 126 a program that cannot be run, 125 anything else.";

/// See what a program does: build a QEMU with an analyzer in it, and run the program there.
#[derive(Parser, Debug)]
#[command(name = "trapline", version, about, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand, Debug)]
enum Cmd {
    /// Run a program in QEMU with an analyzer, building what is missing
    Run(Box<Run>),
    /// Build QEMU for targets and analyzers, and print the paths of the binaries
    Build(Build),
    /// Attach a consumer to a running QEMU
    Attach(session::Attach),
    /// Run a program and verify its stream: every step of the pc, every access, sums and ends
    Check(Check),
    /// Run a program and record its streams in a file
    Record(Box<Record>),
    /// Play a recording back to an analyzer's consuming half, or to a feed
    Replay(recording::Replay),
    /// Say what is in a recording
    Info(recording::Info),
    /// List a recording's frames
    Dump(recording::Dump),
    /// Cut a window out of a recording
    Cut(recording::Cut),
    /// Choose the windows that stand for a program, from its basic-block vectors
    Simpoint(simpoint::Simpoint),
    /// Make a crate for an analyzer of your own: both halves, a test, a README
    New(New),
    /// Measure what tracing costs, as ratios to unpatched QEMU
    Bench(bench::Bench),
    /// List the analyzers that ship
    List,
    /// Say what this machine has, what it lacks, and how to get it
    Doctor(Doctor),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline run --analyzer hotspots -- sha256sum /bin/bash
  trapline run --analyzer count -o - -- ls        results to standard output, after the guest's own
  trapline run --analyzer ./my-analyzer --opt text=0x1000..0x2000 -- ./a.out
  trapline run --feed champsim -o t.champsim.xz -- ./a.out
  trapline run --system x86_64 -- -m 512 -nographic -kernel bzImage -initrd initrd -append console=ttyS0

Standard input and output are the guest's. Results go to standard error, or where -o says.")]
struct Run {
    /// Tell standard error, once a second, how many instructions there are, how many a second, and how many bytes of events
    #[arg(long)]
    progress: bool,
    /// Nothing is made of what is recorded
    #[arg(long, hide = true, requires = "record")]
    only_record: bool,
    /// An analyzer that ships (see 'trapline list'), or the path of an analyzer's crate
    #[arg(short, long, value_name = "NAME|PATH", default_value = DEFAULT_ANALYZER)]
    analyzer: String,
    /// Where results go; '-' is standard output [default: standard error]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How results look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rather lose events than hold the guest; losses are counted
    #[arg(long)]
    lossy: bool,
    /// An option for the analyzer
    #[arg(long = "opt", value_name = "KEY=VALUE", value_parser = key_value)]
    opts: Vec<(String, String)>,
    /// Record everything in this file, too; '-' is standard output
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Look for the program's dynamic loader and libraries here before / [default: /usr/TRIPLET if needed]
    #[arg(short = 'L', value_name = "PREFIX")]
    prefix: Option<PathBuf>,
    /// An unpacked QEMU 10.0.x to use; it is read, not changed
    #[arg(long, value_name = "DIR")]
    qemu_src: Option<PathBuf>,
    /// Run in an unpatched QEMU of the same build, for comparison
    #[arg(long, conflicts_with_all = ["output", "lossy", "opts", "analyzer", "feed", "record"])]
    plain: bool,
    /// Run a whole machine of this ISA; what follows are the arguments of qemu-system-ISA
    #[arg(long, value_name = "ISA", conflicts_with = "prefix")]
    system: Option<String>,
    /// With --system: an ELF file whose code will be in memory, BIAS above its own addresses: its functions are known by name
    #[arg(long, value_name = "FILE[@BIAS]", requires = "system", value_parser = system::image)]
    image: Vec<system::Image>,
    /// The program, found as a shell finds it, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    control: Control,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline build                                        for this machine's own programs
  trapline build --target aarch64,riscv64 --analyzer trace
  trapline build --target all --plain                   every target, unpatched")]
struct Build {
    /// Guest ISAs as QEMU names them, or 'all' [default: this machine's own]
    #[arg(short, long, value_name = "TARGET", value_delimiter = ',')]
    target: Vec<String>,
    /// Whole machines of these ISAs, or 'all'
    #[arg(short, long, value_name = "ISA", value_delimiter = ',')]
    system: Vec<String>,
    /// Analyzers that ship, or paths of analyzers' crates [default: count, unless --plain]
    #[arg(short, long, value_name = "NAME|PATH")]
    analyzer: Vec<String>,
    /// An unpacked QEMU 10.0.x to use; it is read, not changed
    #[arg(long, value_name = "DIR")]
    qemu_src: Option<PathBuf>,
    /// Build unpatched QEMUs with the same flags, for comparison
    #[arg(long)]
    plain: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline new stores                     in the folder ./stores
  trapline new ../tools/my-analyzer --git https://example.org/trapline.git

Then: trapline run --analyzer ./stores -- sha256sum /bin/bash")]
struct New {
    /// The new folder; its last part is the crate's name
    #[arg(value_name = "NAME|PATH")]
    path: PathBuf,
    /// Depend on Trapline's crates in this repository instead of this checkout
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline check -- sha256sum /bin/bash
  trapline check --socket /run/user/1000/events

The same as run --analyzer check. Exit code: the guest's; 124 if something is wrong with the stream.")]
struct Check {
    /// Verify what this running QEMU serves instead
    #[arg(long, value_name = "SOCKET", conflicts_with = "command")]
    socket: Option<PathBuf>,
    /// Look for the program's dynamic loader and libraries here before / [default: /usr/TRIPLET if needed]
    #[arg(short = 'L', value_name = "PREFIX")]
    prefix: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "socket",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline record -o t.trapline -- sha256sum /bin/bash
  trapline record --values -o - -- ls | trapline replay - --analyzer trace
  trapline record --system x86_64 --physical -o boot.trapline -- -m 512 -display none -kernel vmlinuz

The same as run --record FILE. To analyse and record in one run: run --record FILE --analyzer NAME. Exit code: the guest's.")]
struct Record {
    /// The recording; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// With the values that are read and written
    #[arg(long, conflicts_with = "no_mem")]
    values: bool,
    /// With values, and the registers that instructions define
    #[arg(long, conflicts_with = "no_mem")]
    registers: bool,
    /// Whole machines: with the physical addresses of accesses
    #[arg(long, conflicts_with = "no_mem", requires = "system")]
    physical: bool,
    /// Instructions only
    #[arg(long)]
    no_mem: bool,
    /// Tell standard error, once a second, how many instructions there are, how many a second, and how many bytes of events
    #[arg(long)]
    progress: bool,
    /// Record a whole machine of this ISA; the command is QEMU's arguments then
    #[arg(long, value_name = "ISA")]
    system: Option<String>,
    /// Look for the program's dynamic loader and libraries here before / [default: /usr/TRIPLET if needed]
    #[arg(short = 'L', value_name = "PREFIX")]
    prefix: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
struct Doctor {
    /// Judge this QEMU source instead of the one that would be fetched
    #[arg(long, value_name = "DIR")]
    qemu_src: Option<PathBuf>,
}

fn key_value(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the key is empty".into()),
        Some((key, value)) if key.contains(',') || value.contains(',') => {
            Err(format!("'{key}' cannot have a comma: QEMU separates options by it"))
        }
        Some((key, value)) => Ok((key.into(), value.into())),
        None => Err("not of the form KEY=VALUE".into()),
    }
}

/// The command with what analyzers add to it.
pub fn command() -> clap::Command {
    Cli::command()
        .mut_subcommand("run", run::augment)
        .mut_subcommand("attach", session::augment)
        .mut_subcommand("replay", session::augment)
}

pub fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(e) => {
            let _ = e.print();
            // --help and --version are no failures; anything else is ours, not the guest's.
            return ExitCode::from(if e.use_stderr() { 125 } else { 0 });
        }
    };
    let result = Cli::from_arg_matches(&matches)
        .map_err(|e| Error::Bug(format!("the command line was accepted and then was not: {e}")))
        .and_then(|cli| dispatch(cli, &matches));
    result.unwrap_or_else(|e| {
        e.print();
        ExitCode::from(e.code())
    })
}

fn dispatch(cli: Cli, matches: &clap::ArgMatches) -> Result<ExitCode> {
    match cli.command {
        Cmd::Run(args) => {
            let matches = matches.subcommand_matches("run").cloned().unwrap_or_default();
            let (prepared, options) = prepare_run(*args, matches)?;
            run::launch(prepared, options)
        }
        Cmd::Record(args) => record(*args),
        Cmd::Replay(args) => {
            let matches = matches.subcommand_matches("replay").cloned().unwrap_or_default();
            recording::replay(&args, &matches)
        }
        Cmd::Info(args) => recording::info(&args),
        Cmd::Dump(args) => recording::dump(&args),
        Cmd::Cut(args) => recording::cut(&args),
        Cmd::Simpoint(args) => simpoint::simpoint(&args),
        Cmd::Check(args) => check(args),
        Cmd::Build(args) => build(args),
        Cmd::Attach(args) => {
            let matches = matches.subcommand_matches("attach").cloned().unwrap_or_default();
            session::attach(args, &matches)
        }
        Cmd::New(args) => {
            let made = new::make(&Home::find()?, &args.path, args.git.as_deref())?;
            print(made.as_bytes())
        }
        Cmd::Bench(args) => bench::run(args),
        Cmd::List => list(),
        Cmd::Doctor(args) => doctor::run(args.qemu_src.as_deref()),
        Cmd::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "trapline", &mut script);
            print(&script)
        }
    }
}

fn prepare_run(args: Run, matches: clap::ArgMatches) -> Result<(Prepared, Options)> {
    if let Some(isa) = &args.system {
        let isa = isa.clone();
        return prepare_system(args, &isa, matches);
    }
    // What is wrong with the program is said before minutes are spent on building.
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::Usage { what: "no program to run".into(), hint: "trapline run -- PROGRAM ARGS…".into() });
    };
    // The arguments of the program may look like options; its name may not, or a mistyped option would be one.
    if program.as_encoded_bytes().starts_with(b"-") {
        return Err(Error::Usage {
            what: format!("no option '{}'", program.display()),
            hint: "see trapline run --help; a program of this name is given with its folder: ./-name".into(),
        });
    }
    let guest = lookup::guest(program, arguments)?;
    let chosen =
        args.prefix.clone().or_else(|| std::env::var_os("QEMU_LD_PREFIX").filter(|v| !v.is_empty()).map(PathBuf::from));
    let prefix = lookup::prefix(&guest, chosen.as_deref())?;

    args.control.fit_program()?;
    let control = args.control.settings(&guest.program)?;
    let home = Home::find()?;
    let cache = Cache::open()?;
    let (analyzer, only_record) = chosen_analyzer(&args, &matches, &home)?;
    let wish = Wish { analyzer: analyzer.clone(), targets: vec![guest.target], qemu_src: args.qemu_src.clone() };
    let qemu = prepare::qemu(&cache, &home, &wish, guest.target)?;
    let prepared = Prepared {
        qemu,
        target: guest.target.name.to_string(),
        argv0: (guest.argv0 != guest.program.as_os_str()).then_some(guest.argv0),
        guest: guest.program,
        args: guest.args,
        prefix,
        system: None,
    };
    finish_run(args, prepared, analyzer, only_record, control, &cache, matches)
}

/// The analyzer that was asked for, and whether nothing but the recording is wanted.
fn chosen_analyzer(args: &Run, matches: &clap::ArgMatches, home: &Home) -> Result<(Option<Analyzer>, bool)> {
    // A feed needs every instruction and access, and so does a recording.
    let given = |id: &str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    let (defaulted, feed) = (!given("analyzer"), matches.get_one::<feeds::Kind>("feed"));
    // `record --registers` names an analyzer for what it sends, not for its consuming half.
    let only_record = args.record.is_some() && feed.is_none() && !given("consume") && (defaulted || args.only_record);
    let name = match feed {
        Some(feed) if defaulted => feed.analyzer(),
        None if defaulted && args.record.is_some() => RECORD_ANALYZER,
        _ => args.analyzer.as_str(),
    };
    Ok((if args.plain { None } else { Some(analyzer::find(home, name)?) }, only_record))
}

/// A whole machine.
fn prepare_system(args: Run, isa: &str, matches: clap::ArgMatches) -> Result<(Prepared, Options)> {
    let target = Target::system(isa).ok_or_else(|| Error::UnknownSystem { name: isa.into() })?;
    system::fit(&args.command)?;
    let images = system::images(&args.image, &args.command);
    let mut control = system::settings(&images)?;
    // Nothing is moved when it is loaded but as the user says.
    let moved = |s: String| s.replacen("image-range=", "range=", 1);
    let first = images.first().map(|i| i.path.as_path()).unwrap_or(Path::new("a machine without --image"));
    control.extend(args.control.settings(first)?.into_iter().map(moved));
    let home = Home::find()?;
    let cache = Cache::open()?;
    let (analyzer, only_record) = chosen_analyzer(&args, &matches, &home)?;
    let wish = Wish { analyzer: analyzer.clone(), targets: vec![target], qemu_src: args.qemu_src.clone() };
    let qemu = prepare::qemu(&cache, &home, &wish, target)?;
    if !system::has_firmware() {
        deps::ensure(&cache, &cache.lock()?, &[deps::For::Firmware])?;
    }
    let prepared = Prepared {
        qemu,
        target: target.name.to_string(),
        guest: target.program().into(),
        argv0: None,
        prefix: None,
        system: Some(system::folders(&args.command)),
        args: args.command.clone(),
    };
    finish_run(args, prepared, analyzer, only_record, control, &cache, matches)
}

fn finish_run(
    args: Run,
    prepared: Prepared,
    analyzer: Option<Analyzer>,
    only_record: bool,
    control: Vec<String>,
    cache: &Cache,
    matches: clap::ArgMatches,
) -> Result<(Prepared, Options)> {
    let mut opts = args.opts;
    let fed = matches.get_one::<feeds::Kind>("feed");
    let physical = matches.get_one::<feeds::Addressing>("addressing") == Some(&feeds::Addressing::Physical);
    let (plain, both) = (&[RECORD_ANALYZER][..], &[RECORD_ANALYZER, REGISTERS_ANALYZER][..]);
    let needs = [("values", plain, fed.is_some_and(|f| f.needs_values())), ("paddr", both, fed.is_some() && physical)];
    for (key, of, _) in needs.iter().filter(|n| n.2) {
        let knows = analyzer.as_ref().is_some_and(|a| a.ships && of.contains(&a.name.as_str()));
        if knows && !opts.iter().any(|o| o.0 == *key) {
            opts.push((key.to_string(), "on".into()));
        }
    }
    // Built after the half inside QEMU, whose errors come first.
    let program = match &analyzer {
        Some(a) if !a.ships && matches.get_one::<String>("consume").is_none() => analyzer::program(cache, a)?,
        _ => None,
    };
    let options = Options {
        analyzer,
        output: args.output,
        format: args.format,
        lossy: args.lossy,
        control,
        opts,
        record: args.record,
        only_record,
        progress: args.progress,
        program,
        matches,
    };
    Ok((prepared, options))
}

/// `run` that records.
fn record(args: Record) -> Result<ExitCode> {
    let mut line: Vec<OsString> = ["trapline", "run", "--record"].map(OsString::from).into();
    line.push(args.output.into());
    if args.registers {
        line.extend(["--only-record", "--analyzer", REGISTERS_ANALYZER].map(OsString::from));
    } else if args.values {
        line.push("--opt=values=on".into());
    }
    line.extend(args.physical.then_some("--opt=paddr=on".into()));
    line.extend(args.no_mem.then_some("--opt=mem=off".into()));
    line.extend(args.progress.then_some("--progress".into()));
    line.extend(args.system.into_iter().flat_map(|isa| ["--system".into(), isa.into()]));
    line.extend(args.prefix.into_iter().flat_map(|p| ["-L".into(), p.into_os_string()]));
    line.push("--".into());
    line.extend(args.command);
    let bug = |e: clap::Error| Error::Bug(format!("the command line of record was not accepted: {e}"));
    let matches = command().try_get_matches_from(line).map_err(bug)?;
    dispatch(Cli::from_arg_matches(&matches).map_err(bug)?, &matches)
}

/// `run` or `attach` with the analyzer that judges.
fn check(args: Check) -> Result<ExitCode> {
    let mut line: Vec<OsString> = vec!["trapline".into()];
    match args.socket {
        Some(socket) => line.extend(["attach".into(), socket.into(), "--analyzer".into(), "check".into()]),
        None => {
            line.extend(["run", "--analyzer", "check"].map(OsString::from));
            line.extend(args.prefix.into_iter().flat_map(|p| ["-L".into(), p.into_os_string()]));
            line.push("--".into());
            line.extend(args.command);
        }
    }
    let bug = |e: clap::Error| Error::Bug(format!("the command line of check was not accepted: {e}"));
    let matches = command().try_get_matches_from(line).map_err(bug)?;
    dispatch(Cli::from_arg_matches(&matches).map_err(bug)?, &matches)
}

fn build(args: Build) -> Result<ExitCode> {
    let mut targets: Vec<&'static Target> = Vec::new();
    for name in &args.target {
        let named: Vec<&'static Target> = match name.as_str() {
            "all" => TARGETS.iter().collect(),
            name => {
                vec![Target::named(name.trim()).ok_or_else(|| Error::UnknownTarget { name: name.trim().into() })?]
            }
        };
        for target in named {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    for name in &args.system {
        match name.trim() {
            "all" => targets.extend(SYSTEM_TARGETS),
            name => targets.push(Target::system(name).ok_or_else(|| Error::UnknownSystem { name: name.into() })?),
        }
    }
    if targets.is_empty() {
        let host = std::env::consts::ARCH;
        targets.push(Target::host().ok_or_else(|| Error::UnknownTarget { name: host.into() })?);
    }
    let home = Home::find()?;
    let cache = Cache::open()?;
    let mut wanted: Vec<Option<Analyzer>> = Vec::new();
    if args.plain {
        wanted.push(None);
    }
    let default = (args.analyzer.is_empty() && !args.plain).then(|| DEFAULT_ANALYZER.to_string());
    for name in args.analyzer.iter().chain(&default) {
        wanted.push(Some(analyzer::find(&home, name)?));
    }
    for analyzer in wanted {
        let wish = Wish { analyzer, targets: targets.clone(), qemu_src: args.qemu_src.clone() };
        let folder = prepare::ensure(&cache, &home, &wish)?;
        for target in &targets {
            print(format!("{}\n", build::binary(&folder, target).display()).as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> Result<ExitCode> {
    let home = Home::find()?;
    let names = analyzer::shipped_names(&home);
    let width = names.iter().map(|n| n.len()).max().unwrap_or(0);
    let mut text = String::new();
    for name in names {
        text.push_str(format!("{name:width$}  {}", analyzer::description(&home, &name)).trim_end());
        text.push('\n');
    }
    print(text.as_bytes())
}

/// Writes to standard output; a reader that has gone away is no failure.
pub(crate) fn print(bytes: &[u8]) -> Result<ExitCode> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::io("write", "standard output", e)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> std::result::Result<Cli, clap::Error> {
        command().try_get_matches_from(args).and_then(|m| Cli::from_arg_matches(&m))
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn the_guests_arguments_are_its_own() {
        for args in [
            &["trapline", "run", "--", "ls", "--help", "-o", "x"][..],
            &["trapline", "run", "ls", "--help", "-o", "x"],
            &["trapline", "run", "-a", "count", "ls", "--help", "-o", "x"],
        ] {
            let Cmd::Run(run) = parse(args).unwrap().command else { panic!() };
            assert_eq!(run.command, ["ls", "--help", "-o", "x"], "{args:?}");
            assert_eq!(run.analyzer, "count");
            assert_eq!(run.output, None);
        }
        let Cmd::Run(run) = parse(&["trapline", "run", "--", "a", "--", "b"]).unwrap().command else { panic!() };
        assert_eq!(run.command, ["a", "--", "b"]);
    }

    #[test]
    fn bad_command_lines_are_refused() {
        for args in [
            &["trapline"][..],
            &["trapline", "run"],
            &["trapline", "run", "--opt", "x", "--", "a"],
            &["trapline", "run", "--opt", "=x", "--", "a"],
            &["trapline", "run", "--opt", "a=b,c", "--", "a"],
            &["trapline", "run", "--plain", "-o", "f", "--", "a"],
            &["trapline", "run", "--format", "xml", "--", "a"],
            &["trapline", "completions", "nosuchshell"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn targets_may_be_lists() {
        let Cmd::Build(b) = parse(&["trapline", "build", "--target", "a,b", "--target", "c"]).unwrap().command else {
            panic!()
        };
        assert_eq!(b.target, ["a", "b", "c"]);
        let e = build(b).unwrap_err();
        assert!(e.to_string().contains("'a'") && e.hint().contains("x86_64"), "{e}");
    }
}
