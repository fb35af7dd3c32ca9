//! Recordings: `run --record`, `record`, `replay`, `info`, `dump`, `cut`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args};
use consumer::recording::{self, Bounds, Metadata, Recorder, Recording, Window};
use consumer::{Analysis, Chunk, Consumer, Format, Options, Polled, Source, Stream, Summary};

use crate::error::At;
use crate::progress::Step;
use crate::run::Prepared;
use crate::session::{self, UntilAsked};
use crate::{Error, Result};

/// The exit code if a recording is damaged; what could be read was.
const DAMAGED: u8 = 125;

/// The exit code if somebody interrupted us, as a shell has it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Takes what comes and does nothing with it: only the recording is wanted.
#[derive(Debug, Default)]
pub struct Drain;

impl Consumer for Drain {
    type Batch = ();
    type State = ();
    fn map(&self, _: &Chunk<'_>) -> std::result::Result<(), consumer::Error> {
        Ok(())
    }
    fn reduce(&self, (): &mut (), _: &Stream, (): ()) -> std::result::Result<(), consumer::Error> {
        Ok(())
    }
}

impl Analysis for Drain {
    fn name(&self) -> &'static str {
        "record"
    }
    fn consume(
        &mut self,
        source: &mut dyn Source,
        _: &Options,
        _: &mut (dyn Write + Send),
    ) -> std::result::Result<Summary, consumer::Error> {
        consumer::run(source, &Drain, &mut (), &Options { workers: 1 })
    }
    fn report(&mut self, _: &mut dyn Write) -> std::result::Result<(), consumer::Error> {
        Ok(())
    }
}

/// A recording to be made.
pub struct Making {
    path: PathBuf,
    recorder: Option<Recorder>,
}

impl Making {
    /// Begins the recording of a guest at `path`; `-` is standard output.
    pub fn begin(path: &Path, prepared: &Prepared, analyzer: &str) -> Result<Making> {
        let out: Box<dyn Write + Send> = match path.to_str() {
            Some("-") if io::stdout().is_terminal() => {
                return Err(Error::Usage {
                    what: "a recording is nothing for a terminal".into(),
                    hint: "-o FILE, or -o - into a pipe".into(),
                });
            }
            Some("-") => Box::new(io::stdout()),
            _ => Box::new(BufWriter::with_capacity(1 << 20, File::create(path).at("write", path)?)),
        };
        let mut command = vec![prepared.guest.to_string_lossy().into_owned()];
        command.extend(prepared.args.iter().map(|a| a.to_string_lossy().into_owned()));
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let metadata = Metadata {
            recorder: format!("trapline {}", env!("CARGO_PKG_VERSION")),
            command,
            target: prepared.target.clone(),
            analyzer: analyzer.into(),
            wall_ns: since.map_or(0, |d| d.as_nanos() as u64),
            modules: Default::default(),
            more: [("qemu".to_string(), prepared.qemu.to_string_lossy().into_owned())].into(),
        };
        let workers = consumer::default_workers();
        let recorder = Recorder::new(out, &metadata, workers).map_err(|e| failed(path, &e))?;
        Ok(Making { path: path.to_path_buf(), recorder: Some(recorder) })
    }

    /// For the source that is recorded.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// Ends it; a line that says what was recorded.
    pub fn finish(mut self) -> Result<String> {
        let Some(recorder) = self.recorder.take() else { return Ok(String::new()) };
        let r = recorder.finish().map_err(|e| failed(&self.path, &e))?;
        let lost = if r.lost > 0 { format!(", {} chunks lost", r.lost) } else { String::new() };
        Ok(format!(
            "{}: {} instructions in {} bytes, {:.3} for each (unpacked {:.3}){lost}",
            self.path.display(),
            r.insns,
            r.bytes,
            r.bytes as f64 / r.insns.max(1) as f64,
            r.unpacked as f64 / r.insns.max(1) as f64,
        ))
    }
}

fn failed(path: &Path, e: &consumer::Error) -> Error {
    Error::Consumer { name: "record".into(), what: format!("{}: {e}", path.display()) }
}

/// What comes of reading a recording.
pub(crate) fn unusable(e: &consumer::Error) -> Error {
    Error::Usage { what: e.to_string(), hint: "trapline info FILE says what is in a recording".into() }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    Ok(match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(BufReader::with_capacity(1 << 20, File::open(path).at("read", path)?)),
    })
}

/// What `trapline replay` takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline record -o t.trapline -- sha256sum /bin/bash
  trapline replay t.trapline --analyzer hotspots
  trapline replay t.trapline --analyzer check
  trapline replay t.trapline --feed champsim -o t.champsim.xz

Results are those of a run with the same analyzer. Interrupted (Ctrl-C), they and a feed's files end there, and are whole. Exit code: 0; 124 if check finds fault; 125 if the recording is damaged; 130 if it was interrupted.")]
pub struct Replay {
    /// The recording; '-' is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which consuming half reads the events
    #[arg(short, long, value_name = "NAME", default_value = session::DEFAULT_CONSUMER)]
    analyzer: String,
    /// Where results go; '-' is standard output [default: standard error]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How results look
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    window: PartOf,
}

/// What of a recording is wanted.
#[derive(Args, Debug)]
pub struct PartOf {
    /// Only from this instruction of each thread on: the number of the first one, from 0
    #[arg(long, visible_alias = "skip", value_name = "N")]
    from: Option<u64>,
    /// Only this many instructions of each thread
    #[arg(long, value_name = "M")]
    count: Option<u64>,
    /// Only what was recorded after this many seconds, by chunks
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["from", "count"])]
    after: Option<f64>,
    /// Only what was recorded before this many seconds, by chunks
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["from", "count"])]
    before: Option<f64>,
}

/// A recording, or a part of it.
enum Played {
    Whole(Recording),
    Part(Box<Window>),
}

impl PartOf {
    fn bounds(&self) -> Result<Option<Bounds>> {
        if self.after.is_some() || self.before.is_some() {
            let ns = |name: &str, seconds: Option<f64>| match seconds {
                None => Ok(None),
                Some(s) if s.is_finite() && s >= 0.0 => Ok(Some((s * 1e9) as u64)),
                Some(s) => Err(Error::Usage {
                    what: format!("--{name} {s}: no time"),
                    hint: "seconds since the recording began are expected, as 1.5".into(),
                }),
            };
            let (after, before) = (ns("after", self.after)?, ns("before", self.before)?);
            return Ok(Some(Bounds::Time(after.unwrap_or(0)..before.unwrap_or(u64::MAX))));
        }
        if self.from.is_none() && self.count.is_none() {
            return Ok(None);
        }
        let from = self.from.unwrap_or(0);
        Ok(Some(Bounds::Insns(from..from.saturating_add(self.count.unwrap_or(u64::MAX)))))
    }

    fn open(&self, file: &Path) -> Result<Played> {
        let bounds = self.bounds()?;
        let window = match (bounds, file.to_str()) {
            (None, _) => return Ok(Played::Whole(Recording::new(open(file)?, file).map_err(|e| unusable(&e))?)),
            (Some(Bounds::Insns(range)), Some("-")) => Window::of(open(file)?, file, range),
            (Some(Bounds::Time(_)), Some("-")) => {
                return Err(Error::Usage {
                    what: "a part of a recording by time needs the whole recording first, which a pipe is not".into(),
                    hint: "name a file, or take --from and --count".into(),
                });
            }
            (Some(bounds), _) => Window::of_file(File::open(file).at("read", file)?, file, &bounds),
        };
        Ok(Played::Part(Box::new(window.map_err(|e| unusable(&e))?)))
    }
}

impl Played {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Played::Whole(recording) => recording,
            Played::Part(window) => &mut **window,
        }
    }
    fn as_source(&self) -> &dyn Source {
        match self {
            Played::Whole(recording) => recording,
            Played::Part(window) => &**window,
        }
    }
    fn recording(&self) -> &Recording {
        match self {
            Played::Whole(recording) => recording,
            Played::Part(window) => window.recording(),
        }
    }
    /// Says if nothing was wanted.
    fn warn(&self, file: &Path) {
        if let Played::Part(window) = self
            && window.is_empty()
        {
            nothing(file, window.longest());
        }
    }
}

/// Nothing is in a window.
fn nothing(file: &Path, longest: u64) {
    let file = file.display();
    eprintln!("trapline: {file}: nothing is in the window: no thread has more than {longest} instructions");
}

/// A recording that shows how far it is.
struct Watched<'p> {
    played: &'p mut Played,
    /// Of the file.
    bytes: u64,
    step: Option<Step>,
    last: Instant,
    /// Bytes and instructions then.
    before: (u64, u64),
}

impl Source for Watched<'_> {
    fn poll(&mut self) -> std::result::Result<Polled, consumer::Error> {
        let elapsed = self.last.elapsed();
        if let (Some(step), true) = (&mut self.step, elapsed >= Duration::from_millis(500)) {
            let now = self.played.recording().progress();
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64() / 1e6;
            step.set(now.0, self.bytes);
            step.note(format!(
                "{:.0} million instructions/s, {:.1} MB/s",
                rate(now.1, self.before.1),
                rate(now.0, self.before.0)
            ));
            (self.last, self.before) = (Instant::now(), now);
        }
        self.played.source().poll()
    }
    fn wait(&self) {
        self.played.as_source().wait();
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.played.as_source().ringer()
    }
}

/// `trapline replay`.
pub fn replay(args: &Replay, matches: &ArgMatches) -> Result<ExitCode> {
    let feed = session::feed(matches, args.output.as_deref(), args.format)?;
    let fed = feed.is_some();
    let output = if fed { None } else { args.output.as_deref() };
    let mut analysis = match feed {
        Some(feed) => feed,
        None => session::analysis(&args.analyzer, matches, args.format)?,
    };
    let what = |e: consumer::Error| unusable(&e);
    let mut played = args.window.open(&args.file)?;
    let mut out = session::output(output)?;
    let bytes = std::fs::metadata(&args.file).map_or(0, |m| m.len());
    // Lines of results and those of progress would be in each other's way.
    let elsewhere = fed || output.is_some_and(|p| p.as_os_str() != "-");
    let shown = io::stderr().is_terminal() && bytes > 0 && elsewhere;
    let step = shown.then(|| Step::new(format!("Playing {} back", args.file.display())));
    let mut source =
        UntilAsked::new(Watched { played: &mut played, bytes, step, last: Instant::now(), before: (0, 0) });
    let consumed = analysis.consume(&mut source, &Options::default(), &mut *out);
    let asked = source.asked();
    drop(source);
    match consumed {
        Err(consumer::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(e) => return Err(what(e)),
        Ok(_) => {}
    }
    session::report(&mut *analysis, &mut *out)?;
    if asked {
        let (at, insns) = played.recording().progress();
        eprintln!(
            "trapline: interrupted at byte {at} of {bytes}, instruction {insns}: what came before is in the results"
        );
        return Ok(ExitCode::from(INTERRUPTED));
    }
    played.warn(&args.file);
    if let Some(damage) = played.recording().damage() {
        let (file, at) = (args.file.display(), damage.offset);
        if damage.cut_off {
            eprintln!("trapline: {file} is cut off at byte {at}: everything before is in the results");
        } else {
            eprintln!("trapline: {file} is damaged at byte {at}: {}; the results end there", damage.what);
            return Ok(ExitCode::from(DAMAGED));
        }
    }
    Ok(if analysis.verdict() { ExitCode::SUCCESS } else { ExitCode::from(session::VERDICT) })
}

/// What `trapline info` takes.
#[derive(Args, Debug)]
pub struct Info {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How it looks
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// `trapline info`.
pub fn info(args: &Info) -> Result<ExitCode> {
    let s = recording::summary(open(&args.file)?, &args.file).map_err(|e| unusable(&e))?;
    let insns: u64 = s.streams.values().map(|s| s.1).sum();
    let mut out = String::new();
    match args.format {
        Format::Json => {
            let streams: Vec<_> = s
                .streams
                .iter()
                .map(|(n, (record, insns, chunks, ended))| {
                    let pid = s.processes.get(&record.process).map(|p| p.pid);
                    serde_json::json!({"stream": n, "pid": pid, "tid": record.tid, "insns": insns, "chunks": chunks, "ended": ended})
                })
                .collect();
            let damage = s
                .damage
                .as_ref()
                .map(|d| serde_json::json!({"offset": d.offset, "what": d.what, "cut_off": d.cut_off}));
            let json = serde_json::json!({
                "metadata": s.metadata,
                "streams": streams,
                "insns": insns,
                "bytes": s.bytes,
                "unpacked": s.unpacked,
                "duration_ns": s.duration_ns,
                "lost_chunks": s.lost,
                "complete": s.complete,
                "damage": damage,
            });
            out += &format!("{json}\n");
        }
        Format::Text => {
            let m = &s.metadata;
            out += &format!(
                "{}\n  target {}, analyzer {}, by {}\n",
                m.command.join(" "),
                m.target,
                m.analyzer,
                m.recorder
            );
            for (key, value) in &m.more {
                out += &format!("  {key}: {value}\n");
            }
            for (path, id) in &m.modules {
                out += &format!("  {path}: build id {id}\n");
            }
            let per = |bytes: u64| bytes as f64 / insns.max(1) as f64;
            out += &format!(
                "  {insns} instructions in {:.3} s, {} bytes, {:.3} for each (unpacked {:.3})\n",
                s.duration_ns as f64 / 1e9,
                s.bytes,
                per(s.bytes),
                per(s.unpacked)
            );
            for (number, (record, insns, chunks, ended)) in &s.streams {
                let process = s.processes.get(&record.process);
                let program = process.map(|p| String::from_utf8_lossy(&p.program).into_owned()).unwrap_or_default();
                let end = if *ended { "" } else { ", its end is not there" };
                out += &format!(
                    "  stream {number}: pid {}, thread {}, {program}: {insns} instructions in {chunks} chunks{end}\n",
                    process.map_or(0, |p| p.pid),
                    record.tid
                );
            }
            if s.lost > 0 {
                out += &format!("  {} chunks were lost when it was recorded\n", s.lost);
            }
            match &s.damage {
                Some(d) if d.cut_off => out += &format!("  cut off at byte {}\n", d.offset),
                Some(d) => out += &format!("  damaged at byte {}: {}\n", d.offset, d.what),
                None => {}
            }
        }
    }
    io::stdout().write_all(out.as_bytes()).at("write", Path::new("standard output"))?;
    Ok(if s.damage.is_some_and(|d| !d.cut_off) { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
}

/// What `trapline dump` takes.
#[derive(Args, Debug)]
pub struct Dump {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// `trapline dump`.
pub fn dump(args: &Dump) -> Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout());
    match recording::dump(open(&args.file)?, &args.file, &mut out).and_then(|()| Ok(out.flush()?)) {
        Err(consumer::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(unusable(&e)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// What `trapline cut` takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  trapline cut t.trapline --from 1000000 --count 100000 -o window.trapline

Of each thread instructions from number N on, M of them, exactly; what is known of mappings and names from before stays.")]
pub struct Cut {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    window: PartOf,
    /// The new recording
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `trapline cut`.
pub fn cut(args: &Cut) -> Result<ExitCode> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if same(&args.file, &args.output) {
        return Err(Error::Usage {
            what: format!("{} cannot be cut into itself", args.file.display()),
            hint: "-o another file".into(),
        });
    }
    let window = match args.window.open(&args.file)? {
        Played::Part(window) => window,
        Played::Whole(_) => {
            return Err(Error::Usage {
                what: "what to cut out?".into(),
                hint: "--from N and --count M, or --after and --before SECONDS".into(),
            });
        }
    };
    let out: Box<dyn Write + Send> = match args.output.to_str() {
        Some("-") => Box::new(io::stdout()),
        _ => Box::new(BufWriter::new(File::create(&args.output).at("write", &args.output)?)),
    };
    let cut = recording::cut(*window, out).map_err(|e| unusable(&e))?;
    if cut.recorded.insns == 0 {
        nothing(&args.file, cut.longest);
    }
    let r = cut.recorded;
    eprintln!("{}: {} instructions in {} bytes", args.output.display(), r.insns, r.bytes);
    Ok(ExitCode::SUCCESS)
}
