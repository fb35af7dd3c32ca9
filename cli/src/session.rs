//! The consuming half of the shipped analyzers, attached to a QEMU.
//!
//! Rules:
//! * A consumer that fails, or panics, is detached: its end of the pipe is dropped, which lets the guest go on. It is told
//!   afterwards, and the exit code is 125.
//! * Results are written when the guest has ended; what is told event by event goes out at once.
//! * The socket lies in a folder that only this user can enter. It goes with us; those of others of our name that died are cleared away.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use consumer::recording::{Recorder, Tee};
use consumer::{Analysis, By, Chunk, Format, Item, Polled, Receiver, Source};

use crate::error::At;
use crate::run::{self, Prepared};
use crate::{Error, Result, exec, guest};

/// The exit code if an analysis that judges finds fault.
pub const VERDICT: u8 = 124;

/// Which consuming half reads the streams of an analyzer that has none here.
pub const DEFAULT_CONSUMER: &str = "count";

/// Calls `$with!(name, type of its settings)` for each analyzer that ships with a consuming half.
macro_rules! shipped {
    ($with:ident) => {
        $with!("cache", analyzer_cache::consume::Args);
        $with!("calls", analyzer_calls::consume::Args);
        $with!("check", analyzer_check::consume::Args);
        $with!("count", analyzer_count::consume::Args);
        $with!("coverage", analyzer_coverage::consume::Args);
        $with!("empty", analyzer_empty::consume::Args);
        $with!("hotspots", analyzer_hotspots::consume::Args);
        $with!("inprocess", analyzer_inprocess::consume::Args);
        $with!("registers", analyzer_registers::consume::Args);
        $with!("trace", analyzer_trace::consume::Args);
        $with!("watch", analyzer_watch::consume::Args);
    };
}

/// Names of the analyzers that have a consuming half here.
pub fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    macro_rules! name {
        ($name:literal, $args:ty) => {
            names.push($name);
        };
    }
    shipped!(name);
    names
}

/// Adds the arguments of all consuming halves.
pub fn augment(mut command: Command) -> Command {
    macro_rules! add {
        ($name:literal, $args:ty) => {
            command = <$args>::augment_args(command.next_help_heading(concat!("Options of ", $name)));
        };
    }
    shipped!(add);
    command = feeds::Args::augment_args(command.next_help_heading("Feeds"));
    let by = clap::Arg::new("by")
        .long("by")
        .value_name("WHAT")
        .value_parser(["roi", "process"])
        .help("Break the results down by the guest's regions of interest, or by process: of a whole machine whose kernel has Trapline's module");
    command.next_help_heading(None::<&str>).arg(by)
}

/// The consuming half called `name`, with its arguments.
pub fn analysis(name: &str, matches: &ArgMatches, format: Format) -> Result<Box<dyn Analysis>> {
    macro_rules! choose {
        ($name:literal, $args:ty) => {
            if name == $name {
                let args = <$args>::from_arg_matches(matches)
                    .map_err(|e| Error::Bug(format!("the options of {name} were accepted and then were not: {e}")))?;
                let mut analysis = args.analysis(format);
                let by = matches.get_one::<String>("by");
                let kind = if by.is_some_and(|by| by == "process") { By::Process } else { By::Region };
                if let (Some(by), false) = (by, by.is_none() || analysis.by(kind)) {
                    return Err(Error::Usage {
                        what: format!("{name} cannot break its results down"),
                        hint: format!("--by {by} is for cache, calls, count and hotspots"),
                    });
                }
                return Ok(analysis);
            }
        };
    }
    shipped!(choose);
    Err(Error::Usage {
        what: format!("no consuming half is called '{name}'"),
        hint: format!("these are: {}", names().join(" ")),
    })
}

/// The feed that was asked for, if one was; it writes to `output`.
pub fn feed(matches: &ArgMatches, output: Option<&Path>, format: Format) -> Result<Option<Box<dyn Analysis>>> {
    let args = feeds::Args::from_arg_matches(matches)
        .map_err(|e| Error::Bug(format!("the options of feeds were accepted and then were not: {e}")))?;
    match args.analysis(output, format) {
        None => Ok(None),
        Some(Ok(feed)) => Ok(Some(feed)),
        Some(Err(what)) => {
            Err(Error::Usage { what, hint: "trapline run --feed champsim -o t.champsim.xz -- PROGRAM".into() })
        }
    }
}

/// The file that `-o` names; standard error if there is none.
pub fn output(path: Option<&Path>) -> Result<Box<dyn Write + Send>> {
    Ok(match path {
        None => Box::new(BufWriter::new(io::stderr())),
        Some(path) if path == "-" => Box::new(BufWriter::new(io::stdout())),
        Some(path) => Box::new(BufWriter::with_capacity(1 << 16, fs::File::create(path).at("write", path)?)),
    })
}

/// The private folder of this process, with a socket's path in it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

const PREFIX: &str = "trapline-";
/// A socket's path has at most 107 bytes; children's sockets add a dot and a pid.
const LONGEST_SOCKET: usize = 90;

impl Folder {
    /// Makes the folder in `$XDG_RUNTIME_DIR`, else in the folder for temporary files.
    pub fn new() -> Result<Folder> {
        let mine =
            |d: &Path| fs::metadata(d).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::getuid().as_raw());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|d| d.is_absolute() && mine(d) && d.as_os_str().len() + 30 < LONGEST_SOCKET);
        let mut tried = Vec::from_iter(runtime);
        let temporary = std::env::temp_dir();
        tried.push(if temporary.as_os_str().len() + 30 < LONGEST_SOCKET { temporary } else { PathBuf::from("/tmp") });
        let mut failure = None;
        for parent in tried {
            clear(&parent);
            for n in 0..100 {
                let path = parent.join(format!("{PREFIX}{}-{n}", std::process::id()));
                match fs::DirBuilder::new().mode(0o700).create(&path) {
                    // The mode is cut by the umask, never widened.
                    Ok(()) => {
                        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).at("make private", &path)?;
                        return Ok(Folder { path });
                    }
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) => {
                        failure = Some(Error::io("make the folder", path, e));
                        break;
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::Bug("there is no place for the socket's folder".into())))
    }

    /// Where QEMU is to serve.
    pub fn socket(&self) -> PathBuf {
        self.path.join("events")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed now, the next run of Trapline does it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes folders of ours whose process has gone.
fn clear(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.split('-').next()?.parse::<i32>().ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else {
            continue;
        };
        let mine = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::getuid().as_raw());
        if mine && rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            // Somebody else may be doing the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// `-trapline`'s options.
pub fn settings(socket: &Path, options: &[(String, String)]) -> Vec<String> {
    let doubled = |text: &str| text.replace(',', ",,");
    let mut settings = vec![format!("socket={}", doubled(&socket.to_string_lossy())), "wait=1".into()];
    settings.extend(options.iter().map(|(key, value)| format!("opt.{}={}", doubled(key), doubled(value))));
    settings
}

/// How consuming went.
pub enum Outcome {
    /// Everything was read.
    Done,
    /// QEMU ended before it served anything.
    NotServed,
    /// The consumer failed; the guest went on without it.
    Failed(String),
}

/// How a guest's events are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Rather lose events than hold the guest.
    pub lossy: bool,
    /// Standard error is told how many there are.
    pub progress: bool,
}

/// Connects to `socket` as soon as it is served, as long as `alive`, and consumes everything.
pub fn consume(
    analysis: &mut dyn Analysis,
    socket: &Path,
    Reading { lossy, progress }: Reading,
    out: &mut (dyn Write + Send),
    alive: &AtomicBool,
    recorder: Option<&mut Recorder>,
) -> Outcome {
    let consumed = catch_unwind(AssertUnwindSafe(|| {
        let mut pause = Duration::from_micros(200);
        let mut receiver = loop {
            // Looked at first: a QEMU that is dead now served before, or never.
            let living = alive.load(Ordering::Acquire);
            match Receiver::connect(socket, &format!("trapline {}", analysis.name()), lossy) {
                Ok(receiver) => break receiver,
                Err(e) if !is_not_there(&e) => return Err(e.to_string()),
                Err(_) if !living => return Ok(Outcome::NotServed),
                Err(_) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        let options = consumer::Options::default();
        let mut told;
        let source: &mut dyn Source = if progress {
            told = Told::new(receiver);
            &mut told
        } else {
            &mut receiver
        };
        let summary = match recorder {
            None => analysis.consume(source, &options, out),
            Some(recorder) => analysis.consume(&mut Tee::new(source, recorder), &options, out),
        };
        match summary {
            Ok(_) => Ok(Outcome::Done),
            // Whoever read the results has seen enough.
            Err(consumer::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Done),
            Err(e) => Err(e.to_string()),
        }
    }));
    match consumed {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(what)) => Outcome::Failed(what),
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            Outcome::Failed(format!("it panicked: {}", what.unwrap_or("for an unknown reason")))
        }
    }
}

fn is_not_there(e: &pipe::Error) -> bool {
    matches!(e, pipe::Error::Io { source, .. } if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
}

/// Writes what was found out. A reader that has gone away is no failure.
pub fn report(analysis: &mut dyn Analysis, out: &mut (dyn Write + Send)) -> Result<()> {
    let written = analysis.report(out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(consumer::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Error::Consumer { name: analysis.name().into(), what: e.to_string() }),
        Ok(()) => Ok(()),
    }
}

/// Runs the guest with a consuming half that is a program of its own: `PROGRAM SOCKET --format FORMAT [--lossy]`. What it prints is the
/// result. The guest goes on without it if it fails.
pub fn with_program(prepared: &Prepared, program: &Path, options: &run::Options) -> Result<ExitCode> {
    let folder = Folder::new()?;
    let socket = folder.socket();
    let mut running = guest::spawn(prepared.command(&settings(&socket, &options.opts)))?;
    let alive = AtomicBool::new(true);
    let (end, consumed) = std::thread::scope(|scope| {
        let consuming = scope.spawn(|| {
            // Served as soon as QEMU is up; one that is dead now served before, or never.
            while !socket.exists() {
                if !alive.load(Ordering::Acquire) {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut command = process::Command::new(program);
            command.arg(&socket).arg("--format").arg(options.format.to_string());
            command.args(options.lossy.then_some("--lossy")).stdin(process::Stdio::null());
            command.stdout(match options.output.as_deref() {
                None => process::Stdio::from(io::stderr()),
                Some(path) if path == "-" => process::Stdio::inherit(),
                Some(path) => fs::File::create(path).at("write", path)?.into(),
            });
            let status = command.status().map_err(|e| exec::spawn_error(&command, e));
            // If it never came, QEMU need not wait for it any more.
            if alive.load(Ordering::Acquire) && !status.as_ref().is_ok_and(|s| s.success()) {
                let _ = Receiver::connect(&socket, "nobody", true);
            }
            status.map(Some)
        });
        let end = running.wait();
        // Release; pairs with the Acquire above.
        alive.store(false, Ordering::Release);
        (end, consuming.join())
    });
    drop(folder);
    let end = end?;
    match consumed {
        Ok(Ok(Some(status))) if status.success() => Ok(end.leave()),
        Ok(Ok(Some(status))) => {
            let name = options.analyzer.as_ref().map_or_else(String::new, |a| a.name.clone());
            Err(Error::Consumer { name, what: format!("{} ended: {status}", program.display()) })
        }
        Ok(Ok(None)) => Err(Error::NotServed { status: format!("{end}") }),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(Error::Bug("the consumer's thread panicked".into())),
    }
}

/// What `trapline attach` takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline attach /run/user/1000/events --analyzer count
  trapline attach ./socket --analyzer trace --format json -o trace.jsonl

Ends with the guest, or at SIGINT or SIGTERM; the guest goes on then.")]
pub struct Attach {
    /// The socket that QEMU serves (-trapline socket=…)
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Which consuming half reads the events
    #[arg(short, long, value_name = "NAME", default_value = DEFAULT_CONSUMER)]
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
}

/// A guest's events, of which standard error is told now and then how many there are.
struct Told {
    receiver: Receiver,
    began: Instant,
    last: Instant,
    insns: u64,
    /// Of them, those that were told of.
    before: u64,
    bytes: u64,
}

impl Told {
    const EVERY: Duration = Duration::from_secs(1);

    fn new(receiver: Receiver) -> Told {
        Told { receiver, began: Instant::now(), last: Instant::now(), insns: 0, before: 0, bytes: 0 }
    }

    fn tell(&mut self) {
        let seconds = self.last.elapsed().as_secs_f64().max(1e-3);
        eprintln!(
            "trapline: {:.0} s: {:.1} million instructions, {:.1} million/s, {:.1} MB of events",
            self.began.elapsed().as_secs_f64(),
            self.insns as f64 / 1e6,
            (self.insns - self.before) as f64 / 1e6 / seconds,
            self.bytes as f64 / 1e6
        );
        (self.last, self.before) = (Instant::now(), self.insns);
    }
}

impl Source for Told {
    fn poll(&mut self) -> std::result::Result<Polled, consumer::Error> {
        let polled = Source::poll(&mut self.receiver)?;
        match &polled {
            Polled::Part(part) => {
                self.bytes += part.words().len() as u64 * 8;
                // What is corrupt ends the consumer's reading, which says so.
                for item in Chunk::new(part).items().map_while(std::result::Result::ok) {
                    self.insns += if let Item::Block(block) = item { block.sums().insns } else { 0 };
                }
                if self.last.elapsed() >= Self::EVERY {
                    self.tell();
                }
            }
            Polled::End => self.tell(),
            Polled::Ended(_) | Polled::Nothing => {}
        }
        Ok(polled)
    }
    fn wait(&self) {
        self.receiver.wait();
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        Source::ringer(&self.receiver)
    }
}

/// A source that ends when we are asked to.
pub struct UntilAsked<S> {
    source: S,
    asked: &'static AtomicBool,
}

impl<S: Source> UntilAsked<S> {
    /// `source`, until SIGINT or SIGTERM.
    pub fn new(source: S) -> Self {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let handler: extern "C" fn(i32) = ask;
            // SAFETY: the handler has the signature that `signal` asks for, and only stores to an atomic.
            unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
        }
        UntilAsked { source, asked: &ASKED }
    }

    /// Somebody asked.
    pub fn asked(&self) -> bool {
        // Relaxed: the flag is all.
        self.asked.load(Ordering::Relaxed)
    }
}

impl<S: Source> Source for UntilAsked<S> {
    fn poll(&mut self) -> std::result::Result<Polled, consumer::Error> {
        if self.asked() { Ok(Polled::End) } else { self.source.poll() }
    }
    fn wait(&self) {
        self.source.wait();
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.source.ringer()
    }
}

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_: i32) {
    ASKED.store(true, Ordering::Relaxed);
}

/// `trapline attach`.
pub fn attach(args: Attach, matches: &ArgMatches) -> Result<ExitCode> {
    let feed = feed(matches, args.output.as_deref(), args.format)?;
    // What a feed says of itself goes to standard error: -o is what it writes.
    let output_path = if feed.is_some() { None } else { args.output.as_deref() };
    let mut analysis = match feed {
        Some(feed) => feed,
        None => analysis(&args.analyzer, matches, args.format)?,
    };
    let failed = |e: String| Error::Consumer { name: args.analyzer.clone(), what: e };
    let receiver =
        Receiver::connect(&args.socket, &format!("trapline {}", args.analyzer), args.lossy).map_err(|e| match e {
            pipe::Error::Io { source, .. } => Error::Io { doing: "connect to", path: args.socket.clone(), source },
            e => failed(e.to_string()),
        })?;
    let mut out = output(output_path)?;
    let mut source = UntilAsked::new(receiver);
    match analysis.consume(&mut source, &consumer::Options::default(), &mut *out) {
        Err(consumer::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => {}
        Err(e) => return Err(failed(e.to_string())),
        Ok(_) => {}
    }
    // The guest need not wait while we write.
    drop(source);
    report(&mut *analysis, &mut *out)?;
    Ok(if analysis.verdict() { ExitCode::SUCCESS } else { ExitCode::from(VERDICT) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_doubled_as_qemu_does() {
        let settings = settings(Path::new("/tmp/a,b"), &[("text".into(), "1,2".into())]);
        assert_eq!(settings, ["socket=/tmp/a,,b", "wait=1", "opt.text=1,,2"]);
    }

    #[test]
    fn the_folder_is_private_and_goes_with_us() {
        let folder = Folder::new().unwrap();
        let meta = fs::metadata(&folder.path).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o700);
        let path = folder.path.clone();
        fs::write(folder.socket(), b"").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_the_dead_are_cleared_and_those_of_the_living_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        let (gone, here) = (format!("{PREFIX}{}-0", dead.id()), format!("{PREFIX}{}-0", std::process::id()));
        dead.wait().unwrap();
        for name in [gone.as_str(), here.as_str(), "trapline-x", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        clear(parent.path());
        let left = |name: &str| parent.path().join(name).exists();
        assert!(!left(&gone) && left(&here) && left("trapline-x") && left("other"));
    }

    #[test]
    fn every_shipped_consumer_can_be_made() {
        let command = augment(Command::new("x"));
        let matches = command.try_get_matches_from(["x"]).unwrap();
        for name in names() {
            assert_eq!(analysis(name, &matches, Format::Text).unwrap().name(), name);
        }
        assert!(analysis("nosuch", &matches, Format::Text).is_err());
    }
}
