//! A guest's run with everything traced, and the trace as text.

use crate::process::{Ended, Finished, Watchdog, finish};
use crate::{Guest, Symbols, scratch, setup};
use consumer::{Chunk, Consumer, Error, Item, Options, Receiver, Status, Stream, Summary};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::ops::Range;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use std::time::{Duration, Instant};

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An instruction retired; its bytes.
    Fetch(Box<[u8]>),
    /// An instruction faulted, and the guest saw it; its bytes.
    Aborted(Box<[u8]>),
    /// A memory access completed.
    Access(consumer::Access),
    /// Anything else.
    Other(consumer::Event),
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Number of its stream, from 0.
    pub stream: usize,
    /// Where; 0 with [`What::Other`] that has no pc.
    pub pc: u64,
    /// What.
    pub what: What,
}

/// How often things happened at a pc, over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Retired.
    pub insns: u64,
    /// Faulted.
    pub aborted: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Bytes loaded.
    pub load_bytes: u64,
    /// Bytes stored.
    pub store_bytes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, o: Counts) {
        self.insns += o.insns;
        self.aborted += o.aborted;
        self.loads += o.loads;
        self.stores += o.stores;
        self.load_bytes += o.load_bytes;
        self.store_bytes += o.store_bytes;
    }
}

/// A guest about to run.
pub struct Run {
    program: PathBuf,
    target: &'static str,
    symbols: Symbols,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    values: bool,
    settings: Vec<String>,
    qemu_args: Vec<OsString>,
    keep: Option<Vec<Range<u64>>>,
    check: bool,
    limit: Duration,
}

impl Guest {
    /// Prepares a run.
    pub fn run(&self) -> Run {
        Run {
            program: self.path.clone(),
            target: self.isa.target(),
            symbols: self.symbols.clone(),
            args: Vec::new(),
            envs: Vec::new(),
            stdin: Vec::new(),
            values: false,
            settings: Vec::new(),
            qemu_args: Vec::new(),
            keep: None,
            check: true,
            limit: Duration::from_secs(120),
        }
    }

    /// Runs it with values.
    #[track_caller]
    pub fn trace(&self) -> Trace {
        self.run().values().trace()
    }

    /// The address of a symbol.
    pub fn sym(&self, name: &str) -> u64 {
        self.symbols.get(name)
    }
}

impl Run {
    /// With an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Run {
        self.args.push(arg.into());
        self
    }
    /// With an environment variable.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Run {
        self.envs.push((key.into(), value.into()));
        self
    }
    /// With this on its standard input.
    pub fn stdin(mut self, bytes: &[u8]) -> Run {
        self.stdin = bytes.to_vec();
        self
    }
    /// With the values of accesses.
    pub fn values(mut self) -> Run {
        self.values = true;
        self
    }
    /// With a setting of `-trapline`.
    pub fn setting(mut self, setting: &str) -> Run {
        self.settings.push(setting.into());
        self
    }
    /// With an argument of QEMU's own.
    pub fn qemu_arg(mut self, arg: impl Into<OsString>) -> Run {
        self.qemu_args.push(arg.into());
        self
    }
    /// Keeps instructions and accesses between two symbols only; counts are kept of all.
    pub fn only(mut self, from: &str, to: &str) -> Run {
        self.keep.get_or_insert_default().push(self.symbols.get(from)..self.symbols.get(to));
        self
    }
    /// Keeps no instructions and accesses, only counts.
    pub fn counts(mut self) -> Run {
        self.keep = Some(Vec::new());
        self
    }
    /// The stream has gaps, or other reasons not to be verified as a whole.
    pub fn unchecked(mut self) -> Run {
        self.check = false;
        self
    }
    /// Gives it this long.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Starts QEMU, serving at `socket` and waiting for `wait` consumers.
    pub fn start(&self, socket: &Path, wait: usize) -> Child {
        let mut settings = vec![format!("socket={}", socket.display()), format!("wait={wait}")];
        if self.values {
            settings.push("opt.values=on".into());
        }
        settings.extend(self.settings.iter().cloned());
        let mut command = Command::new(setup::qemu(self.target, "trace"));
        command.args(&self.qemu_args).arg("-trapline").arg(settings.join(",")).arg(&self.program).args(&self.args);
        command.envs(self.envs.iter().cloned());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"))
    }

    /// Runs it to its end and collects everything.
    #[track_caller]
    pub fn trace(self) -> Trace {
        let folder = scratch();
        let socket = folder.path().join("s");
        let child = self.start(&socket, 1);
        let (dog, _) = Watchdog::over(child.id(), self.limit);
        let (limit, stdin) = (self.limit, self.stdin.clone());
        let waiter = std::thread::spawn(move || finish(child, &stdin, limit));
        let mut state = State {
            counts: BTreeMap::new(),
            events: Vec::new(),
            lost: 0,
            findings: analyzer_check::consume::Findings::default(),
        };
        let result = connect(&socket, false, Duration::from_secs(20)).and_then(|mut receiver| {
            consumer::run(
                &mut receiver,
                &Collect { keep: self.keep.clone(), follow: Default::default() },
                &mut state,
                &Options { workers: 1 },
            )
        });
        let finished = waiter.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        drop(dog);
        let summary = result.unwrap_or_else(|e| {
            panic!(
                "the stream cannot be read: {e}\nthe guest: {:?}\n{}{}",
                finished.ended,
                finished.out(),
                finished.err()
            )
        });
        state.findings.close();
        if self.check {
            let found = &state.findings.violations;
            assert!(
                found.is_empty(),
                "the stream does not hold together:\n{}",
                found[..found.len().min(20)].join("\n")
            );
        }
        Trace { events: state.events, counts: state.counts, lost: state.lost, finished, symbols: self.symbols, summary }
    }
}

/// Connects to a QEMU that is starting.
pub fn connect(socket: &Path, lossy: bool, limit: Duration) -> Result<Receiver, Error> {
    let start = Instant::now();
    loop {
        match Receiver::connect(socket, "trapline-tests", lossy) {
            Ok(receiver) => return Ok(receiver),
            Err(e) if start.elapsed() > limit => return Err(e.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// What the guest said, as text.
fn guest_line(what: &consumer::GuestEvent) -> String {
    use consumer::GuestEvent as G;
    let text = |t: &[u8]| String::from_utf8_lossy(t).into_owned();
    let name = what.name();
    match what {
        G::Start { scope, depth } | G::Stop { scope, depth } => format!("{name} {scope} {depth}"),
        G::RoiBegin { id, name: n } | G::RoiEnd { id, name: n } | G::Define { id, name: n } => {
            format!("{name} {id} <{}>", text(n))
        }
        G::Event { id, args, name: n } => format!("{name} {id} {args:?} <{}>", text(n)),
        G::Mark { value, name: n } => format!("{name} {value} <{}>", text(n)),
        G::Log { level, more, text: t } => format!("{name} {level} {more} <{}>", text(t)),
        G::Send { channel, more, bytes } => format!("{name} {channel} {more} {bytes:?}"),
        G::ThreadName { name: n } => format!("{name} <{}>", text(n)),
        G::Stats { label, .. } => format!("{name} <{}>", text(label)),
        G::Symbol { size, name: n, .. } => format!("{name} {size} <{}>", text(n)),
        G::Call { op, args, result } => format!("{name} {op:#x} {args:?} {result}"),
    }
}

struct Collect {
    keep: Option<Vec<Range<u64>>>,
    /// Every stream is verified on the way.
    follow: analyzer_check::consume::Follow,
}

struct State {
    counts: BTreeMap<u64, Counts>,
    events: Vec<Event>,
    lost: u64,
    findings: analyzer_check::consume::Findings,
}

impl Consumer for Collect {
    type Batch = (Vec<Event>, BTreeMap<u64, Counts>, analyzer_check::consume::Batch);
    type State = State;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Self::Batch, Error> {
        let stream = chunk.stream().number;
        let (mut events, mut all) = (Vec::new(), BTreeMap::<u64, Counts>::new());
        for item in chunk.items() {
            let block = match item? {
                Item::Event(event) => {
                    let pc = match &event {
                        consumer::Event::Syscall { pc, .. } => *pc,
                        consumer::Event::Signal { from, .. } => *from,
                        consumer::Event::Guest { pc, .. } => *pc,
                        _ => 0,
                    };
                    events.push(Event { stream, pc, what: What::Other(event) });
                    continue;
                }
                Item::Block(block) => block,
            };
            for insn in block.insns() {
                let pc = insn.pc();
                let kept = self.keep.as_ref().is_none_or(|k| k.iter().any(|r| r.contains(&pc)));
                let mut now = Counts::default();
                let what = match insn.status {
                    _ if !insn.is_traced() => None,
                    Status::Retired => {
                        now.insns += 1;
                        Some(What::Fetch(insn.bytes().into()))
                    }
                    Status::Aborted => {
                        now.aborted += 1;
                        Some(What::Aborted(insn.bytes().into()))
                    }
                    Status::Continued => None,
                };
                if let (true, Some(what)) = (kept, what) {
                    events.push(Event { stream, pc, what });
                }
                for access in insn.accesses() {
                    if access.is_store() {
                        now.stores += 1;
                        now.store_bytes += u64::from(access.size);
                    } else {
                        now.loads += 1;
                        now.load_bytes += u64::from(access.size);
                    }
                    if kept {
                        events.push(Event { stream, pc, what: What::Access(access) });
                    }
                }
                *all.entry(pc).or_default() += now;
            }
        }
        Ok((events, all, self.follow.map(chunk)?))
    }

    fn reduce(&self, state: &mut State, stream: &Stream, (events, counts, found): Self::Batch) -> Result<(), Error> {
        self.follow.reduce(&mut state.findings, stream, found)?;
        state.events.extend(events);
        for (pc, n) in counts {
            *state.counts.entry(pc).or_default() += n;
        }
        Ok(())
    }

    fn lost(&self, state: &mut State, stream: &Stream, chunks: u64) -> Result<(), Error> {
        state.lost += chunks;
        self.follow.lost(&mut state.findings, stream, chunks)
    }

    fn ended(&self, state: &mut State, stream: &Stream) -> Result<(), Error> {
        self.follow.ended(&mut state.findings, stream)
    }
}

/// What a guest did.
#[derive(Debug)]
pub struct Trace {
    /// The events, those of a stream in order.
    pub events: Vec<Event>,
    /// How often what happened at each pc.
    pub counts: BTreeMap<u64, Counts>,
    /// The guest's end and output.
    pub finished: Finished,
    /// The guest's symbols.
    pub symbols: Symbols,
    lost: u64,
    /// What the consumer read.
    pub summary: Summary,
}

impl Trace {
    /// Fails unless the guest ended with this exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Trace {
        let finished = self.finished.code(code);
        Trace { finished, ..self }
    }

    /// How the guest ended.
    pub fn ended(&self) -> Ended {
        self.finished.ended
    }

    fn range(&self, from: &str, to: &str) -> Range<u64> {
        let range = self.symbols.get(from)..self.symbols.get(to);
        assert!(!range.is_empty(), "{from} does not lie before {to}");
        range
    }

    /// Instructions and accesses between two symbols, as text:
    ///
    /// ```text
    /// I pc          retired
    /// A pc          aborted; its completed accesses follow
    /// R addr size =value
    /// W addr size =value
    /// ```
    ///
    /// Addresses are by the nearest symbol; `=value` only with values; ` footprint` at the end of such accesses.
    pub fn lines(&self, from: &str, to: &str) -> Vec<String> {
        let range = self.range(from, to);
        self.events
            .iter()
            .filter(|e| !matches!(e.what, What::Other(_)) && range.contains(&e.pc))
            .map(|e| self.line(e))
            .collect()
    }

    /// Everything of one stream as text; `lines`' form, and for other events their names with what matters.
    pub fn story(&self, stream: usize) -> Vec<String> {
        self.events.iter().filter(|e| e.stream == stream).map(|e| self.line(e)).collect()
    }

    fn line(&self, e: &Event) -> String {
        use consumer::Event as O;
        let name = |a: u64| self.symbols.name(a);
        let path = |p: &[u8]| String::from_utf8_lossy(p).into_owned();
        match &e.what {
            What::Fetch(_) => format!("I {}", name(e.pc)),
            What::Aborted(_) => format!("A {}", name(e.pc)),
            What::Access(a) => {
                let mut line = format!("{} {} {}", if a.is_store() { 'W' } else { 'R' }, name(a.addr), a.size);
                if let Some(value) = a.value {
                    let _ = write!(line, " ={value:#x}");
                }
                if a.is_footprint() {
                    line.push_str(" footprint");
                }
                line
            }
            What::Other(o) => match o {
                O::Start { .. } | O::Fork { .. } | O::Once { .. } | O::Regs { .. } | O::RegSet { .. } => {
                    o.name().to_string()
                }
                O::User { id, bytes, .. } => format!("user {id} {}", path(bytes)),
                O::End { reason, code } => format!("end {} {code}", reason.name()),
                O::Exec { path: p } => format!("exec {}", path(p)),
                O::Syscall { pc, name: n, number, .. } if n.is_empty() => format!("syscall {} {number}", name(*pc)),
                O::Syscall { pc, name: n, .. } => format!("syscall {} {n}", name(*pc)),
                O::Kernel { addr, len, unknown, .. } => {
                    format!("{} {} {len}{}", o.name(), name(*addr), if *unknown { " unknown" } else { "" })
                }
                O::SyscallRet { number, result } => format!("syscall_ret {number} {result}"),
                O::Mmap { addr, len, prot, offset, path: p, .. } => {
                    format!("mmap {addr:#x} {len:#x} {prot} {offset:#x} {}", path(p))
                }
                O::Munmap { addr, len } => format!("munmap {addr:#x} {len:#x}"),
                O::Mprotect { addr, len, prot } => format!("mprotect {addr:#x} {len:#x} {prot}"),
                O::Signal { number, from, to } => format!("signal {number} {} {}", name(*from), name(*to)),
                O::Image { entry, path: p, .. } => format!("image {} {}", name(*entry), path(p)),
                O::Exception { from, to, .. } | O::Moved { from, to, .. } => {
                    format!("{} {} {}", o.name(), name(*from), name(*to))
                }
                O::Context { root, asid } => format!("context {root:#x} {asid}"),
                O::Halt { pc } | O::Resume { pc } => format!("{} {}", o.name(), name(*pc)),
                O::Guest { pc, what } => format!("{} {}", guest_line(what), name(*pc)),
            },
        }
    }

    /// Fails unless [`Trace::lines`] are these; leading blanks, empty lines and what follows a `#` are left out.
    #[track_caller]
    pub fn expect(&self, from: &str, to: &str, expected: &str) {
        let wanted: Vec<&str> = expected
            .lines()
            .map(|l| l.split('#').next().unwrap_or_default().trim())
            .filter(|l| !l.is_empty())
            .collect();
        same(&self.lines(from, to), &wanted);
    }

    /// Chunks that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The counts at one pc.
    pub fn at(&self, symbol: &str) -> Counts {
        self.counts.get(&self.symbols.get(symbol)).copied().unwrap_or_default()
    }

    /// The counts between two symbols.
    pub fn between(&self, from: &str, to: &str) -> Counts {
        self.sum(self.range(from, to))
    }

    /// The counts of a range of pcs.
    pub fn sum(&self, range: Range<u64>) -> Counts {
        let mut sum = Counts::default();
        for n in self.counts.range(range).map(|(_, n)| n) {
            sum += *n;
        }
        sum
    }

    /// All counts.
    pub fn total(&self) -> Counts {
        self.sum(0..u64::MAX)
    }

    /// The rarer events.
    pub fn others(&self) -> impl Iterator<Item = (usize, &consumer::Event)> {
        self.events.iter().filter_map(|e| match &e.what {
            What::Other(o) => Some((e.stream, o)),
            _ => None,
        })
    }

    /// Numbers of the streams, in order.
    pub fn streams(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.events.iter().map(|e| e.stream).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The accesses made between two symbols.
    pub fn accesses(&self, from: &str, to: &str) -> Vec<consumer::Access> {
        let range = self.range(from, to);
        self.events
            .iter()
            .filter(|e| range.contains(&e.pc))
            .filter_map(|e| match &e.what {
                What::Access(a) => Some(*a),
                _ => None,
            })
            .collect()
    }
}

/// Fails unless two texts are the same, and shows where they part.
#[track_caller]
pub fn same(actual: &[String], expected: &[&str]) {
    let at = actual.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(actual.len().min(expected.len()));
    if at == actual.len() && at == expected.len() {
        return;
    }
    let mut text = format!("they part at line {at}; expected | traced\n");
    for i in at.saturating_sub(8)..(at + 12).min(actual.len().max(expected.len())) {
        let mark = if i == at { '>' } else { ' ' };
        let (e, a) = (expected.get(i).copied().unwrap_or("-"), actual.get(i).map_or("-", |s| s));
        let _ = writeln!(text, "{mark} {e:40} | {a}");
    }
    panic!("{text}");
}
