//! The oracle: the stream of a run, compared event by event with what a QEMU plugin logs in the same run.
//!
//! Rules:
//! * Both see the same execution: QEMU runs with the plugin and with a consumer attached.
//! * The plugin logs an instruction when it starts, Trapline when it retires or aborts. So an aborted instruction must stand
//!   in the plugin's log too, and one that QEMU executes again stands there once more.
//! * Where the two differ, first principles decide. What is known to be wrong in the plugin's log is listed in
//!   [`Known`], each with its reason; nothing else is tolerated.

use consumer::{BlockInfo, Chunk, Consumer, Error, Item, Receiver, State, Status, Stream};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use crate::{cache, checkout, qemu, scratch};
use std::time::{Duration, Instant};

/// What is known to be wrong in the plugin's log, by instruction. What the events must be is tested from first principles elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing: both must agree.
    Exact,
    /// A store-conditional. QEMU makes a compare-and-swap of it, and the plugin logs its read, and its write even if it failed.
    StoreConditional,
    /// A compare-and-swap that writes only if it succeeds. The plugin logs a write always.
    CompareAndSwap,
    /// x86's writes always, the old value if it fails. The plugin logs the new value.
    X86CompareAndSwap,
    /// QEMU makes it of several accesses or of wider ones, and the plugin logs these: partial words of MIPS, vectors with a length of
    /// s390x, bit fields of m68k, masked loads of x86 and its `lock neg`, which is a loop.
    Parts,
    /// It makes no access, but QEMU loads something to find faults.
    None,
}

impl Known {
    fn of(target: decode::Target, flags: u32, pc: u64, bytes: &[u8]) -> Known {
        let Some(text) = decode::text(target, flags, pc, bytes) else { return Known::Exact };
        if target.isa == decode::Isa::X86 && text.starts_with("lock neg") {
            return Known::Parts;
        }
        let text = text.trim_start_matches("lock ");
        let name = text.split_whitespace().next().unwrap_or_default();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        match target.isa {
            decode::Isa::X86 if starts(&["cmpxchg"]) => Known::X86CompareAndSwap,
            decode::Isa::X86 if starts(&["vmaskmovp", "vpmaskmov"]) => Known::Parts,
            decode::Isa::X86 if starts(&["cmp"]) && name.ends_with("xadd") => Known::Parts,
            decode::Isa::Aarch64 if starts(&["stxr", "stlxr", "stxp", "stlxp"]) => Known::StoreConditional,
            decode::Isa::Aarch64 if starts(&["cas"]) => Known::CompareAndSwap,
            decode::Isa::Arm if starts(&["strex", "stlex"]) => Known::StoreConditional,
            decode::Isa::Mips if matches!(name, "sc" | "scd") => Known::StoreConditional,
            decode::Isa::Mips if matches!(name, "lwl" | "lwr" | "swl" | "swr" | "ldl" | "ldr" | "sdl" | "sdr") => {
                Known::Parts
            }
            decode::Isa::Ppc if name == "icbi" => Known::None,
            decode::Isa::S390x if matches!(name, "vll" | "vlbb" | "vstl" | "unpk" | "csst") => Known::Parts,
            decode::Isa::M68k if starts(&["bf"]) => Known::Parts,
            decode::Isa::Riscv if starts(&["sc."]) => Known::StoreConditional,
            decode::Isa::Ppc if starts(&["stwcx", "stdcx", "stbcx", "sthcx", "stqcx"]) => Known::StoreConditional,
            decode::Isa::S390x if matches!(name, "cs" | "csy" | "csg" | "cds" | "cdsy" | "cdsg") => {
                Known::CompareAndSwap
            }
            decode::Isa::Sparc if starts(&["cas"]) => Known::CompareAndSwap,
            decode::Isa::M68k if starts(&["cas"]) => Known::CompareAndSwap,
            _ => Known::Exact,
        }
    }
}

/// An event as both sides know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An instruction, retired or aborted.
    Insn { pc: u64, known: Known },
    /// An access with its value.
    Access { store: bool, addr: u64, size: u8, value: u128 },
    /// An access of an atomic. With more than one thread the plugin logs the operand in place of the value stored, and values of
    /// guests whose byte order is not the host's with their bytes swapped.
    Atomic { store: bool, addr: u64, size: u8, value: u128 },
    /// From Trapline only: the plugin may log this instruction (and nothing else of it) here, since QEMU started it and will start it again.
    Again { pc: u64 },
    /// From Trapline only: an access that the plugin cannot see (it was made by a helper that bypasses the plugin's hooks).
    Unseen { store: bool, addr: u64, size: u32 },
}

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Instructions that both have.
    pub insns: u64,
    /// Accesses that both have.
    pub accesses: u64,
    /// Starts of instructions that only the plugin logs, since QEMU executed them again.
    pub again: u64,
    /// Accesses that only Trapline reports, as a footprint or with a size that the plugin cannot express.
    pub unseen: u64,
    /// Accesses in which the plugin is known to be wrong: see [`Known`].
    pub known: u64,
    /// The first difference, with what came before it.
    pub difference: Option<String>,
    /// How the guest ended.
    pub status: Option<ExitStatus>,
    /// What the guest wrote to its standard output.
    pub output: Vec<u8>,
    /// There was more; the run was ended.
    pub enough: bool,
}

/// Bytes of a log that are given back together: a log may be longer than the disk.
const FREED: u64 = 64 << 20;

struct Log {
    file: Option<File>,
    path: PathBuf,
    pending: VecDeque<Event>,
    bytes: Vec<u8>,
    /// What has been read of the file, and what of that has been given back to the file system.
    read: u64,
    freed: u64,
}

impl Log {
    fn new(path: PathBuf) -> Self {
        Log { file: None, path, pending: VecDeque::new(), bytes: Vec::new(), read: 0, freed: 0 }
    }

    /// Reads more of the log if there is more; a record is 32 bytes, see oracle.c.
    fn fill(&mut self) -> std::io::Result<()> {
        if self.file.is_none() {
            // To be written, too: that is what gives space back.
            match File::options().read(true).write(true).open(&self.path) {
                Ok(f) => self.file = Some(f),
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut buffer = [0; 1 << 16];
        let n = file.read(&mut buffer)?;
        self.bytes.extend_from_slice(&buffer[..n]);
        self.read += n as u64;
        if self.read - self.freed > FREED {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: plain system call. Where it is not possible the file stays as it is.
            unsafe { libc::fallocate(file.as_raw_fd(), mode, self.freed as i64, (self.read - self.freed) as i64) };
            self.freed = self.read;
        }
        let whole = self.bytes.len() / 32 * 32;
        for r in self.bytes[..whole].chunks_exact(32) {
            let word = |i: usize| {
                u64::from_ne_bytes([r[i], r[i + 1], r[i + 2], r[i + 3], r[i + 4], r[i + 5], r[i + 6], r[i + 7]])
            };
            self.pending.push_back(match r[24] {
                b'I' => Event::Insn { pc: word(0), known: Known::Exact },
                kind => Event::Access {
                    store: kind == b'W',
                    addr: word(0),
                    size: r[25],
                    value: u128::from(word(8)) | u128::from(word(16)) << 64,
                },
            });
        }
        self.bytes.drain(..whole);
        Ok(())
    }
}

/// One stream against one log.
struct Side {
    log: Log,
    ours: VecDeque<Event>,
    /// The streams of this thread whose turn has not come, by number, with whether they have ended: the image after an
    /// `execve` has a stream of its own, and streams are not delivered in any order among each other.
    later: BTreeMap<usize, (VecDeque<Event>, bool)>,
    recent: VecDeque<Event>,
    /// Of the instruction that is being compared.
    known: Known,
    /// The last value read by it.
    read: u128,
    /// Bytes that it touched in ways that only Trapline sees as one: whether stored, from, up to. In whole machines the plugin may see the parts.
    footprints: Vec<(bool, u64, u64)>,
}

/// The consumer that compares.
struct Comparer {
    prefix: PathBuf,
    /// So many events.
    enough: u64,
    /// By the block's address: what is known of its instructions.
    known: Mutex<HashMap<usize, Arc<[Known]>>>,
}

impl Comparer {
    fn known(&self, target: Option<decode::Target>, block: &BlockInfo) -> Arc<[Known]> {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        let of = |i: usize| match target {
            Some(t) => Known::of(t, block.flags, block.insns[i].pc, block.bytes(i)),
            None => Known::Exact,
        };
        // Blocks live as long as their table, which lives as long as the run.
        let key = std::ptr::from_ref(block) as usize;
        known.entry(key).or_insert_with(|| (0..block.insns.len()).map(of).collect()).clone()
    }
}

struct Progress {
    /// By process and thread: the image after an `execve` goes on in the same log.
    sides: HashMap<(u32, u32), Side>,
    result: Compared,
}

impl Consumer for Comparer {
    type Batch = Vec<Event>;
    type State = Progress;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Event>, Error> {
        let mut events = Vec::with_capacity(chunk.len() / 8);
        let target = decode::Target::named(&chunk.table().info().target);
        for item in chunk.items() {
            let Item::Block(block) = item? else { continue };
            let known = self.known(target, block.info());
            let mut continued = None;
            for insn in block.insns() {
                if insn.status == Status::Continued {
                    continued = Some(insn.pc());
                }
                if !insn.is_resumed() {
                    events.push(Event::Insn { pc: insn.pc(), known: known[insn.index()] });
                }
                for a in insn.accesses() {
                    events.push(if a.is_footprint() || !a.size.is_power_of_two() {
                        Event::Unseen { store: a.is_store(), addr: a.addr, size: a.size }
                    } else if a.is_atomic() {
                        let (addr, size) = (a.addr, a.size as u8);
                        Event::Atomic { store: a.is_store(), addr, size, value: a.value.unwrap_or_default() }
                    } else {
                        Event::Access {
                            store: a.is_store(),
                            addr: a.addr,
                            size: a.size as u8,
                            value: a.value.unwrap_or_default(),
                        }
                    });
                }
            }
            if block.state() == State::Reexec
                && continued.is_none()
                && let Some(insn) = block.info().insns.get(block.start() + block.retired())
            {
                events.push(Event::Again { pc: insn.pc });
            }
        }
        Ok(events)
    }

    fn reduce(&self, p: &mut Progress, stream: &Stream, batch: Vec<Event>) -> Result<(), Error> {
        if p.result.difference.is_some() {
            return Ok(());
        }
        let key = (stream.process.pid, stream.tid);
        let side = p.sides.entry(key).or_insert_with(|| Side {
            log: Log::new(path_of(&self.prefix, key)),
            ours: VecDeque::new(),
            later: BTreeMap::new(),
            recent: VecDeque::new(),
            known: Known::Exact,
            read: 0,
            footprints: Vec::new(),
        });
        side.later.entry(stream.number).or_default().0.extend(batch);
        side.take_turn();
        side.compare(&mut p.result, false).map_err(|e| Error::Consumer(e.to_string()))?;
        if p.result.insns + p.result.accesses >= self.enough || p.result.difference.is_some() {
            p.result.enough = true;
            return Err(Error::Consumer("there is enough".into()));
        }
        Ok(())
    }

    fn ended(&self, p: &mut Progress, stream: &Stream) -> Result<(), Error> {
        if let Some(side) = p.sides.get_mut(&(stream.process.pid, stream.tid)) {
            side.later.entry(stream.number).or_default().1 = true;
            side.take_turn();
        }
        Ok(())
    }
}

fn path_of(prefix: &Path, (pid, tid): (u32, u32)) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(format!(".{pid}.{tid}"));
    path.into()
}

/// A number of `size` bytes with its bytes in the other order.
fn swapped(value: u128, size: u8) -> u128 {
    value.swap_bytes().checked_shr(128 - 8 * u32::from(size)).unwrap_or_default()
}

impl Side {
    /// Takes what may be compared now: the first stream's events, and when it has ended the next one's.
    fn take_turn(&mut self) {
        while let Some(mut first) = self.later.first_entry() {
            let (events, ended) = first.get_mut();
            self.ours.append(events);
            if !*ended {
                return;
            }
            first.remove();
        }
    }

    fn compare(&mut self, r: &mut Compared, at_end: bool) -> std::io::Result<()> {
        while let Some(&ours) = self.ours.front() {
            while self.log.pending.len() < 2 {
                let before = self.log.pending.len();
                self.log.fill()?;
                if self.log.pending.len() == before {
                    break;
                }
            }
            if let Event::Unseen { store, addr, size } = ours {
                self.footprints.push((store, addr, addr + u64::from(size)));
                r.unseen += 1;
                self.ours.pop_front();
                continue;
            }
            let Some(&theirs) = self.log.pending.front() else {
                if at_end && !matches!(ours, Event::Again { .. }) {
                    self.differ(r, Some(ours), None);
                }
                return Ok(());
            };
            if matches!(ours, Event::Again { .. }) && self.log.pending.len() < 2 && !at_end {
                // What comes after it decides.
                return Ok(());
            }
            match (ours, theirs) {
                // Not so if it is for the sake of a device: the plugin is not told of the instruction then, but of its accesses.
                (Event::Again { pc }, Event::Insn { pc: p, .. })
                    if pc == p
                        && matches!(self.log.pending.get(1), Some(Event::Insn { pc: next, .. }) if *next == pc) =>
                {
                    r.again += 1;
                    self.log.pending.pop_front();
                }
                (Event::Again { .. }, _) => {
                    self.ours.pop_front();
                    continue;
                }
                (Event::Insn { pc, known }, Event::Insn { pc: p, .. }) if pc == p => {
                    r.insns += 1;
                    self.known = known;
                    self.footprints.clear();
                    self.log.pending.pop_front();
                }
                (a @ Event::Access { store, value, .. }, b) if a == b => {
                    r.accesses += 1;
                    if !store {
                        self.read = value;
                    }
                    self.log.pending.pop_front();
                }
                (
                    Event::Atomic { store, addr, size, value },
                    Event::Access { store: stores, addr: at, size: wide, value: v },
                ) if (store, addr, size) == (stores, at, wide)
                    && (store || v == value || v == swapped(value, size)) =>
                {
                    match value == v {
                        true => r.accesses += 1,
                        false => r.known += 1,
                    }
                    if !store {
                        self.read = value;
                    }
                    self.log.pending.pop_front();
                }
                (a, b) if self.is_known(a, b) => {
                    r.known += 1;
                    continue;
                }
                _ => {
                    self.differ(r, Some(ours), Some(theirs));
                    return Ok(());
                }
            }
            self.ours.pop_front();
            self.recent.push_back(ours);
            if self.recent.len() > 12 {
                self.recent.pop_front();
            }
        }
        if at_end {
            self.log.fill()?;
            if let Some(&theirs) = self.log.pending.front() {
                self.differ(r, None, Some(theirs));
            }
        }
        Ok(())
    }

    /// The plugin is known to be wrong here: drops what cannot be compared.
    fn is_known(&mut self, ours: Event, theirs: Event) -> bool {
        let (a, b) = (!matches!(ours, Event::Insn { .. }), matches!(theirs, Event::Access { .. }));
        let within = |store: bool, addr: u64, size: u8| {
            let end = addr + u64::from(size);
            self.footprints.iter().any(|(stores, from, upto)| *stores == store && *from <= addr && end <= *upto)
        };
        match (self.known, ours, theirs) {
            (_, _, Event::Access { store, addr, size, .. }) if within(store, addr, size) => {
                self.log.pending.pop_front();
            }
            (Known::StoreConditional, _, Event::Access { .. }) => {
                self.log.pending.pop_front();
            }
            (Known::CompareAndSwap, _, Event::Access { store: true, .. }) if !a => {
                self.log.pending.pop_front();
            }
            (
                Known::X86CompareAndSwap,
                Event::Access { store: true, addr, size, value } | Event::Atomic { store: true, addr, size, value },
                Event::Access { store: true, addr: at, size: wide, .. },
            ) if (addr, size) == (at, wide) && value == self.read => {
                self.ours.pop_front();
                self.log.pending.pop_front();
            }
            (Known::Parts | Known::None, ..) if b => {
                self.log.pending.pop_front();
            }
            (Known::Parts, ..) if a => {
                self.ours.pop_front();
            }
            _ => return false,
        }
        true
    }

    fn differ(&self, r: &mut Compared, ours: Option<Event>, theirs: Option<Event>) {
        let line = |e: &Event| match e {
            Event::Insn { pc, .. } => format!("I {pc:#x}"),
            Event::Access { store, addr, size, value } | Event::Atomic { store, addr, size, value } => {
                format!("{} {addr:#x} {size} = {value:#x}", if *store { "W" } else { "R" })
            }
            Event::Again { pc } => format!("again {pc:#x}"),
            Event::Unseen { store, addr, size } => {
                format!("footprint {} {addr:#x} {size}", if *store { "W" } else { "R" })
            }
        };
        let recent: Vec<_> = self.recent.iter().map(line).collect();
        let next = |q: &VecDeque<Event>| q.iter().take(4).map(line).collect::<Vec<_>>().join(" | ");
        r.difference = Some(format!(
            "after {} instructions and {} accesses\n  common: {}\n  Trapline: {} ({})\n  plugin:   {} ({})",
            r.insns,
            r.accesses,
            recent.join(" | "),
            ours.as_ref().map_or("nothing".into(), line),
            next(&self.ours),
            theirs.as_ref().map_or("nothing".into(), line),
            next(&self.log.pending),
        ));
    }
}

/// The plugin, built against the header of the QEMU source that is in the cache.
pub fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &PLUGIN
        .get_or_init(|| {
            // Any QEMU of the cache brings its source along.
            qemu("x86_64", "trace");
            let header = find(&cache(), "qemu-plugin.h", 6).expect("qemu-plugin.h is in the cache");
            let dir = scratch();
            let out = dir.path().join("oracle.so");
            let flags = Command::new("pkg-config").args(["--cflags", "glib-2.0"]).output().expect("pkg-config runs");
            let made = Command::new("cc")
                .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
                .arg(&out)
                .arg("-I")
                .arg(header.parent().expect("a folder"))
                .args(String::from_utf8_lossy(&flags.stdout).split_whitespace())
                .arg(checkout().join("tests/oracle/oracle.c"))
                .status()
                .expect("cc runs");
            assert!(made.success(), "the plugin does not compile");
            (dir, out)
        })
        .1
}

fn find(dir: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|n| n == name) {
            return Some(path);
        }
        if depth > 0 && entry.file_type().is_ok_and(|t| t.is_dir()) {
            folders.push(path);
        }
    }
    folders.iter().find_map(|f| find(f, name, depth - 1))
}

/// What runs.
#[derive(Clone, Copy, Debug)]
pub enum Guest<'a> {
    /// A program with its arguments.
    Program(&'a [&'a str]),
    /// A machine, by QEMU's arguments, until so many events have been compared.
    Machine(&'a [&'a str], u64),
}

/// Runs `guest` under the QEMU `binary` (built with an analyzer that traces everything, values included) with the plugin
/// `oracle`, and compares. `folder` is one for logs and the socket.
pub fn compare(binary: &Path, oracle: &Path, folder: &Path, guest: Guest<'_>) -> Result<Compared, String> {
    let socket = folder.join("s");
    let prefix = folder.join("log");
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let mut command = Command::new(binary);
    let plugin = format!("{},out={}", oracle.display(), prefix.display());
    command.arg("-trapline").arg(format!("socket={},wait=1,opt.values=on", socket.display()));
    let enough = match guest {
        Guest::Program(program) => {
            // Not as an option: so it holds in followed children too.
            command.env("QEMU_PLUGIN", plugin).args(program);
            u64::MAX
        }
        Guest::Machine(args, enough) => {
            command.arg("-plugin").arg(plugin).args(args);
            enough
        }
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed("QEMU cannot be started", &e))?;
    let mut stdout = child.stdout.take();
    let output = std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(o) = &mut stdout {
            let _ = o.read_to_end(&mut all);
        }
        all
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut receiver = loop {
        match Receiver::connect(&socket, "oracle", false) {
            Ok(r) => break r,
            Err(e) => {
                if Instant::now() > deadline || child.try_wait().is_ok_and(|s| s.is_some()) {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(failed("no connection", &e));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };
    let comparer = Comparer { prefix: prefix.clone(), enough, known: Mutex::default() };
    let mut progress = Progress { sides: HashMap::new(), result: Compared::default() };
    let options = consumer::Options { workers: 1 };
    let ran = consumer::run(&mut receiver, &comparer, &mut progress, &options);
    if progress.result.enough {
        let _ = child.kill();
    }
    drop(receiver);
    let status = child.wait().map_err(|e| failed("QEMU", &e))?;
    let mut result = progress.result;
    if !result.enough {
        ran.map_err(|e| failed("the stream", &e))?;
    }
    for side in progress.sides.values_mut() {
        if !result.enough {
            side.compare(&mut result, true).map_err(|e| failed("the plugin's log", &e))?;
        }
        let _ = std::fs::remove_file(&side.log.path);
    }
    result.status = Some(status);
    result.output = output.join().unwrap_or_default();
    Ok(result)
}
