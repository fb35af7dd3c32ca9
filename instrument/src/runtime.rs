//! The functions that the patch calls: from QEMU's C to the writer of a stream.
//!
//! Rules: a vCPU's stream is touched by its own thread, but for the end of the process, when every vCPU has left the emitted code;
//! so each stream has a lock that only that end contends for. Nothing here unwinds.

use crate::ffi::*;
use crate::vcpu::{Register, SetMember};
use crate::{Qemu, Vcpu, backdoor, hook, kernel, maps::Maps, options::Options, server, slots};
use pipe::layout::{self, InsnEntry, kind};
use pipe::producer::{Context, Cursor, DEFAULT_SHAPE, Made, Shape, StreamMemory, Writer, fatal};
use pipe::table_writer::{NewBlock, TableWriter};
use std::cell::{RefCell, UnsafeCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

unsafe extern "Rust" {
    static TRAPLINE_ANALYZER_NAME: &'static str;
    static TRAPLINE_ANALYZER_VERSION: &'static str;
    static TRAPLINE_ANALYZER_POINTS: &'static [&'static str];
    fn trapline_analyzer_new(qemu: &Qemu);
}

pub(crate) struct Runtime {
    pub(crate) options: Options,
    host_word: u8,
    big_endian: bool,
    shape: Shape,
    register_sets: Vec<Vec<SetMember>>,
    /// What is to be done for blocks beside what emitted code does.
    blocks: RwLock<Blocks>,
    /// Translation writes, running reads.
    table: RwLock<TableWriter>,
    /// By block id: which of its `once` points have been passed.
    once: Mutex<HashMap<u32, Box<[u8; 2 * MAX_INSNS]>>>,
    streams: Mutex<Vec<Arc<Stream>>>,
    maps: Mutex<Maps>,
    /// The first stream begins with mappings: those that a forked child inherited, or those that the options name.
    inherited: AtomicBool,
}

const MAX_INSNS: usize = 512;

// SAFETY: the pointers in actions are to functions.
unsafe impl Send for Blocks {}
// SAFETY: as above.
unsafe impl Sync for Blocks {}

#[derive(Default)]
struct Blocks {
    /// By block id: counts of fetches, which are taken back if the block is left before they retire.
    counts: HashMap<u32, Vec<TraplineCount>>,
    /// By block id, instruction, whether a store: what to do at accesses that QEMU's helpers make.
    actions: HashMap<(u32, u16, bool), Vec<TraplineAction>>,
}

/// A stream's writer. Its vCPU's thread uses it in emitted code, others only when that thread is out of emitted code: then, and between
/// blocks, it is used under its lock.
struct Owned {
    lock: Mutex<()>,
    writer: UnsafeCell<Writer>,
}

impl Owned {
    fn new(writer: Writer) -> Owned {
        Owned { lock: Mutex::new(()), writer: UnsafeCell::new(writer) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Writer) -> R) -> R {
        let _held = locked(&self.lock);
        // SAFETY: the lock is held, and the vCPU's thread is out of emitted code or is this one.
        f(unsafe { &mut *self.writer.get() })
    }

    /// The writer without its lock, which costs more than what an access writes.
    ///
    /// # Safety
    /// For the vCPU's thread while it is in emitted code, and not in [`Owned::with`].
    #[expect(clippy::mut_from_ref, reason = "the contract is that there is no other")]
    unsafe fn in_emitted_code(&self) -> &mut Writer {
        // SAFETY: by contract nobody else uses it.
        unsafe { &mut *self.writer.get() }
    }
}

struct Stream {
    writer: Owned,
    /// The vCPU's state in QEMU. Written by emitted code of its thread.
    vcpu: *mut TraplineVcpu,
    /// A consumer has attached that has not seen the mappings: they come at the next slow path.
    announce: AtomicBool,
}

// SAFETY: `vcpu` and `writer` are only used by the vCPU's thread, or under `writer`'s lock when that thread is out of emitted code.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();
static GUEST_BIG_ENDIAN: OnceLock<bool> = OnceLock::new();
/// The register sets as consumers are told of them: `name:bytes,…`.
static SETS: OnceLock<Vec<String>> = OnceLock::new();

/// Whether the guest's registers come in big-endian order.
pub(crate) fn big_endian() -> bool {
    GUEST_BIG_ENDIAN.get().copied().unwrap_or_default()
}

/// The file that a descriptor is open on.
pub(crate) fn file_of(fd: c_int) -> Option<std::path::PathBuf> {
    if fd < 0 { None } else { std::fs::read_link(format!("/proc/self/fd/{fd}")).ok() }
}

/// The file that is mapped at an address.
pub(crate) fn mapped_file(addr: u64) -> Option<std::path::PathBuf> {
    let maps = locked(&runtime().maps);
    let path = maps.at(addr).map(|m| &m.path).filter(|p| !p.is_empty())?;
    Some(OsStr::from_bytes(path).into())
}

/// What `-trapline help` prints; QEMU ends.
fn describe(qemu: &Qemu, qemu_version: &str) -> ! {
    // SAFETY: `#[analyzer]` defines them in the crate that is linked with this one.
    let (version, points) = unsafe { (TRAPLINE_ANALYZER_VERSION, TRAPLINE_ANALYZER_POINTS) };
    println!("analyzer: {} {version}", name());
    println!("qemu: {qemu_version}, target {}, abi {TRAPLINE_ABI}", qemu.target);
    println!("points: {}", if points.is_empty() { "none".into() } else { points.join(", ") });
    let options = qemu.known_options();
    println!(
        "analyzer's options (opt.KEY=VALUE): {}",
        if options.is_empty() { "none".into() } else { options.join(", ") }
    );
    println!("options: {}", crate::options::KEYS);
    std::process::exit(0)
}

/// Everything that another thread might hold while this one forks. Dropped in this order.
struct ForkLock {
    server: server::ForkLock,
    slots: MutexGuard<'static, slots::All>,
    _blocks: RwLockWriteGuard<'static, Blocks>,
    _once: MutexGuard<'static, HashMap<u32, Box<[u8; 2 * MAX_INSNS]>>>,
    _maps: MutexGuard<'static, Maps>,
    streams: MutexGuard<'static, Vec<Arc<Stream>>>,
    _table: RwLockWriteGuard<'static, TableWriter>,
}

thread_local! {
    /// The instruction at which a block was left, with what it counts: it may turn out to have retired.
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
    static FORK: RefCell<Option<ForkLock>> = const { RefCell::new(None) };
}

pub(crate) fn runtime() -> &'static Runtime {
    match RUNTIME.get() {
        Some(r) => r,
        None => fatal("internal error: QEMU calls the runtime before it was set up"),
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    fn with_table<R>(&self, f: impl FnOnce(&TableWriter) -> R) -> R {
        f(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) fn name() -> &'static str {
    // SAFETY: `#[analyzer]` defines it in the crate that is linked with this one.
    unsafe { TRAPLINE_ANALYZER_NAME.strip_prefix("trapline-analyzer-").unwrap_or(TRAPLINE_ANALYZER_NAME) }
}

/// # Safety
/// `text` is NULL or a C string.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Sets tracing up. See the header.
///
/// # Safety
/// Called by QEMU once, with valid pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_init(host: *mut TraplineHost, options: *const c_char) {
    // SAFETY: by contract.
    let (host, options, target, version, program) = unsafe {
        let host = &mut *host;
        let string = |t: *const c_char| String::from_utf8_lossy(text(t)).into_owned();
        let (target, version, program) = (string(host.target), string(host.qemu_version), text(host.program));
        (host, string(options), target, version, program)
    };
    hook::install_panic_message(name());
    kernel::set_names(host.syscall_name, &target);
    let help = options == "help";
    let options = if help { Ok(Options::default()) } else { Options::parse(&options) };
    let options = options.unwrap_or_else(|e| fatal(&e));
    let _ = GUEST_BIG_ENDIAN.set(host.guest_big_endian != 0);
    #[cfg(feature = "decode")]
    crate::decoded::set_target(&target);
    let qemu = Qemu { target: target.clone(), options: options.analyzer.clone(), ..Qemu::default() };
    // SAFETY: defined by `#[analyzer]` with this signature.
    unsafe { trapline_analyzer_new(&qemu) };
    if help {
        describe(&qemu, &version);
    }
    if let Some(problem) = qemu.problem(name()) {
        fatal(&problem);
    }
    qemu.slots.freeze();
    if options.socket.is_none() && options.inherit.is_none() {
        fatal("-trapline: socket=PATH is missing: nobody could receive the streams");
    }

    let table =
        TableWriter::create(&target, name(), &version, host.guest_word, host.guest_big_endian != 0, host.system)
            .unwrap_or_else(|e| {
                fatal(&format!(
                    "no memory for the block table ({} MiB of address space, 1 MiB at first): {e}; is there a limit on the process (ulimit -v)?",
                    layout::TABLE_MAX >> 20
                ))
            });
    let fd = table.fd().as_raw_fd();
    let shape = Shape {
        chunk_size: options.chunk_size.unwrap_or(DEFAULT_SHAPE.chunk_size),
        chunk_count: options.chunks.unwrap_or(DEFAULT_SHAPE.chunk_count),
    };
    let (socket, wait) = (options.socket.clone(), options.wait);
    host.start_traced = backdoor::init(&options.backdoor, options.start);
    let _ = IDENTITY.set(head_of(program).and_then(|h| elf_identity(&h)));
    let inherit = options.inherit.clone();
    let mut maps = Maps::default();
    for m in &options.maps {
        maps.map(m.addr, m.length, m.prot, 0, m.offset, m.path.as_bytes());
    }
    let told = !options.maps.is_empty();
    let made = RUNTIME.set(Runtime {
        options,
        host_word: host.guest_word,
        big_endian: host.guest_big_endian != 0,
        shape,
        register_sets: qemu.register_sets.take(),
        blocks: RwLock::default(),
        table: RwLock::new(table),
        once: Mutex::default(),
        streams: Mutex::default(),
        maps: Mutex::new(maps),
        inherited: AtomicBool::new(told),
    });
    if made.is_err() {
        fatal("internal error: set up twice");
    }
    match inherit {
        Some(text) => server::inherit(&text, socket.as_deref(), fd, program).unwrap_or_else(|e| fatal(&e)),
        None => server::start(socket.as_deref(), fd, program)
            .unwrap_or_else(|e| fatal(&format!("-trapline socket={}: {e}", socket.as_deref().unwrap_or_default()))),
    }
    server::wait_for(wait);
}

fn tid() -> u32 {
    // SAFETY: plain system call.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The vCPU's stream, begun now if it has none.
///
/// # Safety
/// `vcpu` is valid and belongs to the calling thread.
unsafe fn stream<'a>(vcpu: *mut TraplineVcpu) -> &'a Stream {
    // SAFETY: by contract; `stream` is NULL or what was set below, which lives until the vCPU's end.
    unsafe {
        if (*vcpu).stream.is_null() {
            begin(vcpu);
        }
        &*(*vcpu).stream.cast::<Stream>()
    }
}

/// # Safety
/// As [`stream`].
unsafe fn begin(vcpu: *mut TraplineVcpu) {
    let rt = runtime();
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let memory = StreamMemory::create(rt.shape, tid(), v.index).unwrap_or_else(|e| {
        fatal(&format!(
            "no memory for a stream ({} KiB): {e}; is there a limit on the process (ulimit -v, -n)?",
            rt.shape.chunk_size >> 10
        ))
    });
    let memory = Arc::new(memory);
    // SAFETY: plain system calls.
    let parent = unsafe { libc::getppid() } as u64;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let start = [u64::from(std::process::id()), u64::from(tid()), parent, u64::from(v.index), now];
    let writer = rt.with_table(|table| {
        let mut c = Cursor { cursor: &mut v.cursor, limit: &mut v.limit };
        let mut w = Writer::new(memory.clone(), Box::new(server::notify), &mut c, table);
        w.event(&mut c, kind::START, &start, table);
        tell_sets(&mut w, &mut c, table);
        if rt.inherited.swap(false, Ordering::Relaxed) {
            tell_maps(&mut w, &mut c, table);
        }
        w
    });
    let stream = Arc::new(Stream { writer: Owned::new(writer), vcpu, announce: AtomicBool::new(false) });
    v.stream = Arc::as_ptr(&stream).cast_mut().cast();
    locked(&rt.streams).push(stream);
    // From here on consumers see it.
    server::add(&memory);
}

/// # Safety
/// As [`stream`].
pub(crate) unsafe fn with(vcpu: *mut TraplineVcpu, f: impl FnOnce(&mut Writer, &mut Cursor<'_>, &TableWriter)) {
    // SAFETY: by contract.
    unsafe {
        let s = stream(vcpu);
        let v = &mut *vcpu;
        let mut c = Cursor { cursor: &mut v.cursor, limit: &mut v.limit };
        s.writer.with(|w| runtime().with_table(|t| f(w, &mut c, t)));
    }
}

/// # Safety
/// As [`stream`].
pub(crate) unsafe fn event(vcpu: *mut TraplineVcpu, kind: u8, payload: &[u64]) {
    // SAFETY: by contract.
    unsafe {
        let announce = announced(vcpu);
        with(vcpu, |w, c, t| {
            if announce {
                tell_maps(w, c, t);
            }
            w.event(c, kind, payload, t)
        })
    }
}

/// Whether a late consumer waits to be told of the mappings; the caller is between blocks and tells it.
///
/// # Safety
/// As [`stream`].
unsafe fn announced(vcpu: *mut TraplineVcpu) -> bool {
    // SAFETY: by contract.
    let announce = unsafe { &stream(vcpu).announce };
    // Hardly ever: a look is cheaper than a swap.
    announce.load(Ordering::Relaxed) && announce.swap(false, Ordering::Acquire)
}

/// Appends a text to an event's payload: its length in bytes, then the bytes, padded with 0.
pub(crate) fn with_text(payload: &[u64], text: &[u8]) -> Vec<u64> {
    let mut words = payload.to_vec();
    words.push(text.len() as u64);
    for part in text.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        words.push(u64::from_ne_bytes(bytes));
    }
    words
}

pub(crate) fn context(word: u64) -> Context {
    Context { block: (word >> 32) as u32, insn: (word >> 16) as u16, done: (word >> 8) as u8 }
}

/// See the header.
///
/// # Safety
/// Called by QEMU while it translates, with arrays of the lengths that `block` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_block(block: *const TraplineBlock) -> u32 {
    // SAFETY: by contract; TraplineBlockAccess has the layout of AccessEntry (four 16-bit fields in the same order).
    let (b, insns, accesses, code) = unsafe {
        let b = &*block;
        (
            b,
            std::slice::from_raw_parts(b.insns, b.n_insns as usize),
            if b.n_accesses == 0 {
                &[]
            } else {
                std::slice::from_raw_parts(b.accesses.cast::<layout::AccessEntry>(), b.n_accesses as usize)
            },
            std::slice::from_raw_parts(b.code, b.code_length as usize),
        )
    };
    let mut entries = Vec::with_capacity(insns.len());
    let mut first = 0;
    for (i, insn) in insns.iter().enumerate() {
        while accesses.get(first).is_some_and(|a| (a.insn as usize) < i) {
            first += 1;
        }
        let flag = |want: u32, bit: u8| if insn.wants & want != 0 { bit } else { 0 };
        entries.push(InsnEntry {
            pc_off: insn.pc.wrapping_sub(b.pc) as i32,
            len: insn.length as u8,
            flags: flag(TRAPLINE_WANT_TRACE, layout::INSN_TRACED) | flag(TRAPLINE_WANT_ONCE, layout::INSN_ONCE),
            first_access: first as u16,
        });
    }
    let new = NewBlock { flags: b.flags, pc: b.pc, slot_words: b.slot_words, insns: &entries, accesses, code };
    let mut table = runtime().table.write().unwrap_or_else(PoisonError::into_inner);
    table.define(&new).unwrap_or_else(|e| {
        fatal(&format!("the block at pc {:#x} cannot be described: {e}; trace a part of the program only", b.pc))
    })
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_refill(vcpu: *mut TraplineVcpu, bytes: u32) {
    // SAFETY: by contract.
    unsafe {
        // Between blocks: the place for what a late consumer has missed.
        let announce = announced(vcpu);
        with(vcpu, |w, c, t| {
            if announce {
                tell_maps(w, c, t);
            }
            w.refill(c, bytes as usize, t)
        })
    }
}

fn tell_maps(w: &mut Writer, c: &mut Cursor<'_>, t: &TableWriter) {
    tell_sets(w, c, t);
    for (kind, payload) in locked(&runtime().maps).events() {
        w.event(c, kind, &payload, t);
    }
}

/// A consumer has attached while the guest runs: one of the vCPUs tells it of the mappings.
pub(crate) fn late_consumer() {
    let Some(rt) = RUNTIME.get() else { return };
    if let Some(s) = locked(&rt.streams).first() {
        s.announce.store(true, Ordering::Release);
        // SAFETY: the vCPU's state lives while its stream is listed; closing the limit at any time only sends the next
        // block's start to the slow path. If the vCPU opens it at the same time, the next slow path will do.
        unsafe { AtomicPtr::from_ptr(&raw mut (*s.vcpu).limit).store(std::ptr::null_mut(), Ordering::Relaxed) };
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`]; a traced block of the vCPU runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_access(
    vcpu: *mut TraplineVcpu,
    context_word: u64,
    addr: u64,
    size: u32,
    flags: u32,
    low: u64,
    high: u64,
) {
    let info = u64::from(size) | u64::from(flags) << 32;
    // 32-bit guests: QEMU's helpers may pass addresses with garbage above.
    let addr = if runtime().host_word == 4 { addr & 0xffff_ffff } else { addr };
    let store = flags & TRAPLINE_ACCESS_STORE != 0;
    let (traced, acted) = match store {
        true => (TRAPLINE_CONTEXT_STORE, TRAPLINE_CONTEXT_STORE_ACTIONS),
        false => (TRAPLINE_CONTEXT_LOAD, TRAPLINE_CONTEXT_LOAD_ACTIONS),
    };
    let c = context(context_word);
    let mut wanted = context_word as u32 & traced != 0;
    if context_word as u32 & acted != 0 {
        let place = (c.block & !TRAPLINE_BLOCK_UNTRACED, c.insn, store);
        let actions = read(&runtime().blocks).actions.get(&place).cloned().unwrap_or_default();
        let access = Access { block: place.0, insn: c.insn, addr, size, value: (low, high) };
        // SAFETY: by contract. The guest's accesses are not reported while the analyzer's functions run.
        let before = unsafe { std::mem::replace(&mut (*vcpu).context, 0) };
        for a in &actions {
            // SAFETY: by contract.
            wanted |= unsafe { act(vcpu, a, &access) };
        }
        // SAFETY: by contract.
        unsafe { (*vcpu).context = before };
    }
    if wanted {
        // SAFETY: by contract.
        unsafe {
            let made = Made { info, addr, value: (low, high), physical: (*vcpu).physical };
            let writer = &stream(vcpu).writer;
            let v = &mut *vcpu;
            let mut cursor = Cursor { cursor: &mut v.cursor, limit: &mut v.limit };
            if !writer.in_emitted_code().append(&mut cursor, c, &made) {
                with(vcpu, |w, cursor, t| w.access(cursor, c, &made, t))
            }
        }
    }
}

/// An access as actions see it.
struct Access {
    block: u32,
    insn: u16,
    addr: u64,
    size: u32,
    value: (u64, u64),
}

/// Does here what emitted code does at the accesses that it makes itself. Returns whether the access is to be traced.
///
/// # Safety
/// As [`stream`].
unsafe fn act(vcpu: *mut TraplineVcpu, a: &TraplineAction, access: &Access) -> bool {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let holds = a.conditions[..a.n_conditions as usize].iter().all(|c| holds(v, c, access.addr));
    if !holds {
        return false;
    }
    match a.kind {
        TRAPLINE_DO_TRACE => return true,
        TRAPLINE_DO_COUNT => slots::add(v, a.slot, a.n),
        TRAPLINE_DO_CALL => {
            let pc = runtime().with_table(|t| pc_of(t, access.block, access.insn)).map_or(0, |(pc, _)| pc);
            v.pc = pc;
            let word = |arg: &TraplineArg| match arg.kind {
                TRAPLINE_ARG_PC => pc,
                TRAPLINE_ARG_ADDR => access.addr,
                TRAPLINE_ARG_SIZE => u64::from(access.size),
                TRAPLINE_ARG_VALUE => access.value.0,
                TRAPLINE_ARG_VALUE_HIGH if access.size > 8 => access.value.1,
                TRAPLINE_ARG_VALUE_HIGH => 0,
                // SAFETY: `Vcpu` has the layout of what it wraps.
                TRAPLINE_ARG_REGISTER => unsafe { &*vcpu.cast::<Vcpu>() }.register(Register::numbered(arg.reg)),
                _ => arg.value,
            };
            let mut words = [0; TRAPLINE_MAX_ARGS as usize];
            for (w, arg) in words.iter_mut().zip(&a.args[..a.n_args as usize]) {
                *w = word(arg);
            }
            let [b, c, d, e, f, g] = words;
            let function = a.helper;
            // SAFETY: what `#[helper]` made, with `n_args` words. In the C ABIs of the hosts, further integer arguments are
            // passed where the callee does not look.
            unsafe {
                type Function = unsafe extern "C" fn(*mut TraplineVcpu, u64, u64, u64, u64, u64, u64);
                std::mem::transmute::<*mut std::ffi::c_void, Function>(function)(vcpu, b, c, d, e, f, g)
            }
        }
        _ => {}
    }
    false
}

fn holds(v: &mut TraplineVcpu, c: &TraplineCondition, addr: u64) -> bool {
    let compare = |x: u64| match c.compare {
        TRAPLINE_COMPARE_EQ => x == c.b,
        TRAPLINE_COMPARE_NE => x != c.b,
        TRAPLINE_COMPARE_LT => x < c.b,
        TRAPLINE_COMPARE_GE => x >= c.b,
        TRAPLINE_COMPARE_LE => x <= c.b,
        _ => x > c.b,
    };
    let slot = c.a as u32;
    match c.kind {
        TRAPLINE_IF_SLOT => compare(slots::get(v, slot)),
        // SAFETY: made from a `Variable`, which lives for ever.
        TRAPLINE_IF_VARIABLE => compare(unsafe { (*(c.a as *const AtomicU64)).load(Ordering::Relaxed) }),
        TRAPLINE_IF_RANGE => addr.wrapping_sub(c.a) < c.b,
        TRAPLINE_IF_MASKED => addr & c.a == c.b,
        TRAPLINE_IF_EVERY => {
            let n = slots::get(v, slot) + 1;
            slots::set(v, slot, if n == c.b { 0 } else { n });
            n == c.b
        }
        _ => {
            let (mul, add) = (6364136223846793005, 1442695040888963407);
            let x = slots::get(v, slot).wrapping_mul(mul).wrapping_add(add);
            slots::set(v, slot, x);
            x >> 32 < c.b
        }
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Where instruction `insn` of a block is, and the one after it.
fn pc_of(table: &TableWriter, block: u32, insn: u16) -> Option<(u64, u64)> {
    let entry = table.entry(block)?;
    let i = table.insns(block).get(insn as usize)?;
    let pc = entry.pc.wrapping_add_signed(i64::from(i.pc_off));
    Some((pc, pc.wrapping_add(u64::from(i.len))))
}

/// See the header.
///
/// # Safety
/// Called by QEMU while it translates, with `count` counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_block_counts(block: u32, counts: *const TraplineCount, count: u32) {
    // SAFETY: by contract.
    let counts = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(counts, count as usize) } };
    let old = read(&runtime().blocks).counts.get(&block).map_or(0, Vec::len);
    if old != 0 || count != 0 {
        let mut blocks = runtime().blocks.write().unwrap_or_else(PoisonError::into_inner);
        blocks.counts.insert(block, counts.to_vec());
    }
}

/// See the header.
///
/// # Safety
/// Called by QEMU while it translates, with `count` actions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_block_actions(
    block: u32,
    insn: u32,
    store: bool,
    actions: *const TraplineAction,
    count: u32,
) {
    // SAFETY: by contract.
    let actions = unsafe { std::slice::from_raw_parts(actions, count as usize) }.to_vec();
    let mut blocks = runtime().blocks.write().unwrap_or_else(PoisonError::into_inner);
    blocks.actions.insert((block, insn as u16, store), actions);
}

#[derive(Clone, Copy)]
struct Pending {
    block: u32,
    insn: u16,
}

/// Takes back what has been counted of a block for instructions that did not retire.
pub(crate) fn uncount(v: &TraplineVcpu, block: u32, insn: u16) {
    if let Some(counts) = read(&runtime().blocks).counts.get(&block) {
        for c in counts.iter().filter(|c| c.insn == insn.into() || (c.insn > insn.into() && c.merged != 0)) {
            slots::add(v, c.slot, c.n.wrapping_neg());
        }
    }
}

/// The instruction at which the block was left has retired if the guest goes on at `pc`; in any case if that is not known.
fn recount(v: &TraplineVcpu, pc: Option<u64>) {
    let Some(p) = PENDING.with_borrow(|p| *p) else { return };
    let next = runtime().with_table(|t| pc_of(t, p.block, p.insn)).map(|(_, next)| next);
    if pc.is_some() && pc != next {
        return;
    }
    PENDING.set(None);
    if let Some(counts) = read(&runtime().blocks).counts.get(&p.block) {
        for c in counts.iter().filter(|c| c.insn == p.insn.into()) {
            slots::add(v, c.slot, c.n);
        }
    }
}

fn tell_sets(w: &mut Writer, c: &mut Cursor<'_>, t: &TableWriter) {
    for (i, text) in SETS.get().into_iter().flatten().enumerate() {
        w.event(c, kind::REGSET, &with_text(&[i as u64], text.as_bytes()), t);
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_regs(vcpu: *mut TraplineVcpu, block: u32, insn: u32, set: u32) {
    let traced = insn >> 31 != 0;
    let insn = insn & 0xffff;
    let (after, set) = (set & crate::vcpu::AFTER != 0, set & !crate::vcpu::AFTER);
    let number = u64::from(set) | if after { layout::REGS_AFTER } else { 0 };
    let mut payload = vec![u64::from(insn) << 16 | u64::from(block) << 32, number];
    // SAFETY: by contract; `Vcpu` has the layout of what it wraps.
    let v = unsafe { &*vcpu.cast::<Vcpu>() };
    for (register, most) in &runtime().register_sets[set as usize] {
        let mut bytes = v.register_bytes(*register);
        if runtime().big_endian {
            bytes.reverse();
        }
        bytes.truncate(*most);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        payload.extend(bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())));
    }
    // After it all its slots are filled.
    let context = traced.then_some(Context { block, insn: insn as u16, done: if after { u8::MAX } else { 0 } });
    // SAFETY: by contract.
    unsafe { with(vcpu, |w, c, t| w.record_in_block(c, context, kind::REGS, &payload, t)) }
}

/// What the running helper works for, if its block has words in the stream.
///
/// # Safety
/// `vcpu` is valid.
unsafe fn running(vcpu: *mut TraplineVcpu) -> Option<Context> {
    // SAFETY: by contract.
    let word = unsafe { (*vcpu).context };
    (word != 0).then(|| context(word)).filter(|c| c.block & TRAPLINE_BLOCK_UNTRACED == 0)
}

/// An event of the analyzer's own; called by the vCPU's thread, in a helper or outside of emitted code.
pub(crate) fn emit(vcpu: *mut TraplineVcpu, id: u64, bytes: &[u8]) {
    // SAFETY: the caller has the vCPU that runs.
    let running = unsafe { running(vcpu) };
    let place = running.as_ref().map_or(0, |c| u64::from(c.insn) << 16 | u64::from(c.block) << 32);
    let payload = with_text(&[place, id], bytes);
    // SAFETY: as above.
    unsafe { with(vcpu, |w, c, t| w.record_in_block(c, running, kind::USER, &payload, t)) }
}

/// See the header.
///
/// # Safety
/// As [`stream`]; called once for each thread of the guest, before it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_vcpu_start(vcpu: *mut TraplineVcpu) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    slots::begin(v);
    SETS.get_or_init(|| {
        // SAFETY: as above.
        let v = unsafe { &*vcpu.cast::<Vcpu>() };
        let text = |set: &Vec<SetMember>| {
            let one = |(r, most): &SetMember| format!("{}:{}", r.name(), v.register_bytes(*r).len().min(*most));
            set.iter().map(one).collect::<Vec<_>>().join(",")
        };
        runtime().register_sets.iter().map(text).collect()
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_once_flag(block: u32, index: u32) -> *mut u8 {
    let mut once = locked(&runtime().once);
    let flags = once.entry(block).or_insert_with(|| Box::new([0; 2 * MAX_INSNS]));
    &raw mut flags[index as usize]
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_once(
    vcpu: *mut TraplineVcpu,
    block: u32,
    insn: u32,
    count: u32,
    traced: bool,
    first: *mut u64,
    last: *mut u64,
) -> bool {
    // SAFETY: the flag lives as long as the runtime; other vCPUs may be here, too.
    let flag = unsafe { AtomicU8::from_ptr(trapline_once_flag(block, insn)) };
    let hot = TRAPLINE_ONCE_HOT as u8;
    let reached = flag.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < hot).then_some(n + 1));
    match reached {
        Ok(0) => {
            let word = u64::from(count) | u64::from(insn) << 16 | u64::from(block) << 32;
            let context = traced.then_some(Context { block, insn: insn as u16, done: 0 });
            // SAFETY: by contract.
            unsafe { with(vcpu, |w, c, t| w.record_in_block(c, context, kind::ONCE, &[word], t)) }
        }
        Ok(n) if n + 1 == hot => {
            let place = runtime().with_table(|t| pc_of(t, block, insn as u16));
            if let Some((pc, next)) = place {
                // SAFETY: by contract.
                unsafe { (*first, *last) = (pc, next.wrapping_sub(1)) };
                return true;
            }
        }
        _ => {}
    }
    false
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_chosen(vcpu: *mut TraplineVcpu, block: u32, insn: u32, traced: bool) {
    let word = 1 | u64::from(insn) << 16 | u64::from(block) << 32;
    let context = traced.then_some(Context { block, insn: insn as u16, done: 0 });
    // SAFETY: by contract.
    unsafe { with(vcpu, |w, c, t| w.record_in_block(c, context, kind::ONCE, &[word], t)) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_left(vcpu: *mut TraplineVcpu, reexec: bool) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let (name, insn) = if v.context != 0 {
        let c = context(v.context);
        (c.block, c.insn)
    } else {
        (if v.left_insn == 0 { 0 } else { v.left_block }, v.left_insn.wrapping_sub(1) as u16)
    };
    v.context = 0;
    v.left_insn = 0;
    let block = name & !TRAPLINE_BLOCK_UNTRACED;
    PENDING.set((block != 0 && !reexec).then_some(Pending { block, insn }));
    if block != 0 {
        uncount(v, block, insn);
    }
    if block != 0 && name == block && !v.stream.is_null() {
        // SAFETY: by contract.
        unsafe { with(vcpu, |w, c, t| w.left(c, block, insn, reexec, t)) }
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_resume_pc(vcpu: *mut TraplineVcpu, pc: u64) {
    // SAFETY: by contract.
    unsafe {
        recount(&*vcpu, Some(pc));
        if !(*vcpu).stream.is_null() {
            with(vcpu, |w, _, t| w.completed(Some(pc), t))
        }
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`]; `args` are eight words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_syscall(vcpu: *mut TraplineVcpu, pc: u64, number: i64, args: *const u64) -> u64 {
    // SAFETY: by contract.
    let args = unsafe { *args.cast::<[u64; 8]>() };
    let name = kernel::call(number, args);
    let mut payload = vec![pc, number as u64];
    payload.extend(args);
    let mut payload = with_text(&payload, name.unwrap_or_default().as_bytes());
    // SAFETY: by contract.
    unsafe {
        let announce = announced(vcpu);
        with(vcpu, |w, c, t| {
            w.completed(None, t);
            // Where QEMU stands by now differs between ISAs.
            payload[0] = w.take_trapped().unwrap_or(pc);
            if announce {
                tell_maps(w, c, t);
            }
            w.event(c, kind::SYSCALL, &payload, t);
        });
        recount(&*vcpu, None);
    }
    payload[0]
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_syscall_ret(vcpu: *mut TraplineVcpu, number: i64, result: i64) {
    kernel::returned();
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::SYSCALL_RET, &[number as u64, result as u64]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_signal(vcpu: *mut TraplineVcpu, number: c_int, from: u64, to: u64) {
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::SIGNAL, &[number as u64, from, to]) }
}

/// Something that comes between blocks, in full system: told only while the vCPU is traced.
///
/// # Safety
/// As [`stream`].
unsafe fn system_event(vcpu: *mut TraplineVcpu, kind: u8, payload: &[u64]) {
    // SAFETY: by contract.
    unsafe {
        if backdoor::depth(&*vcpu) != 0 {
            event(vcpu, kind, payload);
        }
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_exception(vcpu: *mut TraplineVcpu, number: c_int, from: u64, to: u64) {
    // SAFETY: by contract.
    unsafe { system_event(vcpu, kind::EXCEPTION, &[i64::from(number) as u64, from, to]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_interrupt(vcpu: *mut TraplineVcpu, number: c_int, from: u64, to: u64) {
    // SAFETY: by contract.
    unsafe { system_event(vcpu, kind::INTERRUPT, &[i64::from(number) as u64, from, to]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_context(vcpu: *mut TraplineVcpu, root: u64, asid: u64) -> bool {
    // SAFETY: by contract.
    let running = unsafe { running(vcpu) };
    // Told whether the vCPU is traced or not: what is traced later runs in it.
    // SAFETY: by contract.
    unsafe {
        with(vcpu, |w, c, t| w.record_in_block(c, running, kind::CONTEXT, &[root, asid], t));
        ((*vcpu).root, (*vcpu).asid) = (root, asid);
        backdoor::place_changes(&*vcpu)
    }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_moved(vcpu: *mut TraplineVcpu, reason: u32, from: u64, to: u64) {
    // SAFETY: by contract.
    unsafe { system_event(vcpu, kind::MOVED, &[reason.into(), from, to]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_halt(vcpu: *mut TraplineVcpu, resumed: bool, pc: u64) {
    let kind = if resumed { kind::RESUME } else { kind::HALT };
    // SAFETY: by contract.
    unsafe { system_event(vcpu, kind, &[pc]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_mmap(
    vcpu: *mut TraplineVcpu,
    addr: u64,
    length: u64,
    prot: c_int,
    flags: c_int,
    offset: u64,
    fd: c_int,
) {
    let path = file_of(fd);
    let path = path.as_ref().map_or(&b""[..], |p| p.as_os_str().as_bytes());
    let rt = runtime();
    locked(&rt.maps).map(addr, length, prot as u64, flags as u64, offset, path);
    let payload = with_text(&[addr, length, prot as u64, flags as u64, offset], path);
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::MMAP, &payload) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_munmap(vcpu: *mut TraplineVcpu, addr: u64, length: u64) {
    locked(&runtime().maps).unmap(addr, length);
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::MUNMAP, &[addr, length]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_mprotect(vcpu: *mut TraplineVcpu, addr: u64, length: u64, prot: c_int) {
    locked(&runtime().maps).protect(addr, length, prot as u64);
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::MPROTECT, &[addr, length, prot as u64]) }
}

/// See the header.
///
/// # Safety
/// As [`stream`]; `done` is to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_mremap(
    vcpu: *mut TraplineVcpu,
    old: u64,
    old_length: u64,
    new: u64,
    new_length: u64,
    done: *mut TraplineRemap,
) {
    let (unmapped, mapped) = locked(&runtime().maps).remap(old, old_length, new, new_length);
    let mut told = TraplineRemap::default();
    if let Some(u) = unmapped {
        (told.unmapped, told.unmapped_length) = (u.start, u.end - u.start);
        // SAFETY: by contract.
        unsafe { event(vcpu, kind::MUNMAP, &[told.unmapped, told.unmapped_length]) };
    }
    if let Some(m) = mapped {
        (told.mapped, told.mapped_length, told.offset) = (m.addr, m.length, m.offset);
        (told.prot, told.flags) = (m.prot as i32, m.flags as i32);
        // SAFETY: by contract.
        unsafe { event(vcpu, kind::MMAP, &m.payload()) };
    }
    // SAFETY: by contract.
    unsafe { done.write(told) };
}

/// See the header.
///
/// # Safety
/// As [`stream`]; `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_image(vcpu: *mut TraplineVcpu, entry: u64, bias: u64, brk: u64, path: *const c_char) {
    // SAFETY: by contract.
    let payload = with_text(&[entry, bias, brk], unsafe { text(path) });
    locked(&runtime().maps).image(&payload);
    backdoor::image(bias);
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::IMAGE, &payload) }
}

fn end(s: &Stream, reason: u64, code: i64) {
    // SAFETY: the vCPU is out of emitted code; see the module's rules.
    let v = unsafe { &mut *s.vcpu };
    let mut c = Cursor { cursor: &mut v.cursor, limit: &mut v.limit };
    s.writer.with(|w| runtime().with_table(|t| w.end(&mut c, reason, code as u64, t)));
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_vcpu_exit(vcpu: *mut TraplineVcpu, code: c_int) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    slots::end(v);
    if v.stream.is_null() {
        return;
    }
    let at = v.stream.cast::<Stream>().cast_const();
    let mut streams = locked(&runtime().streams);
    if let Some(i) = streams.iter().position(|s| std::ptr::eq(Arc::as_ptr(s), at)) {
        let s = streams.swap_remove(i);
        drop(streams);
        end(&s, layout::end::THREAD, i64::from(code));
        s.writer.with(|w| server::remove(w.memory()));
        forget(v);
    }
}

/// The vCPU has no stream any more; its next block begins one.
fn forget(v: &mut TraplineVcpu) {
    v.stream = std::ptr::null_mut();
    v.cursor = std::ptr::null_mut();
    v.limit = std::ptr::null_mut();
    v.context = 0;
    v.left_insn = 0;
}

/// See the header.
///
/// # Safety
/// As [`stream`]; no vCPU runs emitted code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_process_exit(vcpu: *mut TraplineVcpu, reason: c_int, code: c_int) {
    // SAFETY: by contract: the stream of the one who ends the process exists from here on.
    let own: *const Stream = unsafe { stream(vcpu) };
    for s in locked(&runtime().streams).iter() {
        let code = if std::ptr::eq(Arc::as_ptr(s), own) || reason as u32 == TRAPLINE_END_EXIT { code } else { 0 };
        end(s, reason as u64, i64::from(code));
    }
    server::stop();
}

/// See the header.
///
/// # Safety
/// As [`stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_fork_prepare(_vcpu: *mut TraplineVcpu) {
    let rt = runtime();
    FORK.set(Some(ForkLock {
        _table: rt.table.write().unwrap_or_else(PoisonError::into_inner),
        streams: locked(&rt.streams),
        _maps: locked(&rt.maps),
        _once: locked(&rt.once),
        server: server::fork_prepare(),
        slots: slots::lock(),
        _blocks: rt.blocks.write().unwrap_or_else(PoisonError::into_inner),
    }));
}

/// See the header.
///
/// # Safety
/// As [`stream`]; after [`trapline_fork_prepare`] on the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_fork_done(vcpu: *mut TraplineVcpu, pid: c_int) {
    let Some(mut lock) = FORK.take() else { return };
    if pid != 0 {
        drop(lock);
        if pid > 0 {
            // SAFETY: by contract.
            unsafe { event(vcpu, kind::FORK, &[pid as u64]) };
        }
        return;
    }
    // The parent's streams are its own: forget them without touching their memory. Their writers' state is a copy.
    for s in lock.streams.drain(..) {
        // SAFETY: vCPU states are never freed while their stream is listed; in the child no other thread exists.
        let v = unsafe { &mut *s.vcpu };
        forget(v);
    }
    runtime().inherited.store(true, Ordering::Relaxed);
    PENDING.set(None);
    kernel::forked();
    // SAFETY: by contract.
    slots::forked(&mut lock.slots, unsafe { &*vcpu });
    let ForkLock { server, .. } = lock;
    // SAFETY: plain system call.
    server.child(unsafe { libc::getppid() } as u32);
}

/// The first bytes of a file.
fn head_of(path: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut head = Vec::new();
    let file = std::fs::File::open(OsStr::from_bytes(path)).ok()?;
    file.take(256).read_to_end(&mut head).ok()?;
    Some(head)
}

/// What `execve` would start: a program of our own ISA, possibly through scripts.
fn resolve_exec(path: &[u8], args: &[&[u8]]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut path = path.to_vec();
    let mut args: Vec<Vec<u8>> = args.iter().map(|a| a.to_vec()).collect();
    for _ in 0..5 {
        if !is_executable(&path) {
            return None;
        }
        let head = head_of(&path)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|&b| b == b'\n').next()?;
            let line = line.trim_ascii();
            let mut words = line.splitn(2, |&b| b == b' ' || b == b'\t');
            let interpreter = words.next()?.to_vec();
            let mut new = vec![interpreter.clone()];
            if let Some(arg) = words.next() {
                new.push(arg.trim_ascii().to_vec());
            }
            new.push(path);
            new.extend(args.drain(..).skip(1));
            args = new;
            path = interpreter;
            continue;
        }
        let identity = elf_identity(&head);
        return (identity.is_some() && identity == *IDENTITY.get()?).then_some((path, args));
    }
    None
}

/// Class, byte order and machine of an ELF file.
fn elf_identity(head: &[u8]) -> Option<(u8, u8, u16)> {
    if head.len() < 20 || !head.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = [head[18], head[19]];
    let machine = if head[5] == 2 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    Some((head[4], head[5], machine))
}

/// The running guest's own identity.
static IDENTITY: OnceLock<Option<(u8, u8, u16)>> = OnceLock::new();

/// See the header.
///
/// # Safety
/// As [`stream`]; `path` is a C string, the arrays are NULL-terminated arrays of C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_exec(
    vcpu: *mut TraplineVcpu,
    path: *const c_char,
    args: *const *mut c_char,
    extra: *const *mut c_char,
) -> *mut *mut c_char {
    // SAFETY: by contract.
    let list = |mut at: *const *mut c_char| unsafe {
        let mut all = Vec::new();
        while !(*at).is_null() {
            all.push(text(*at));
            at = at.add(1);
        }
        all
    };
    let rt = runtime();
    // SAFETY: by contract.
    let path = unsafe { text(path) };
    // SAFETY: by contract.
    unsafe { event(vcpu, kind::EXEC, &with_text(&[], path)) };
    if !rt.options.follow_exec {
        return std::ptr::null_mut();
    }
    let Some((program, arguments)) = resolve_exec(path, &list(args)) else {
        return std::ptr::null_mut();
    };
    // Tracing goes on as it is: a guest may start it for a program that it is about to become.
    let mut options = rt.options.clone();
    // SAFETY: by contract.
    options.start = unsafe { (*vcpu).traced != 0 };
    let mut options = options.to_text();
    options.push_str(&format!(",inherit={}", server::exec_prepare()));
    let mut words: Vec<Vec<u8>> = vec![b"qemu".to_vec()];
    words.extend(list(extra).iter().map(|e| e.to_vec()));
    words.extend([b"-trapline".to_vec(), options.into_bytes()]);
    if let Some(first) = arguments.first() {
        words.extend([b"-0".to_vec(), first.clone()]);
    }
    words.push(program);
    words.extend(arguments.into_iter().skip(1));
    let mut pointers: Vec<*mut c_char> = words
        .into_iter()
        // No word contains a NUL: they all come from C strings or from us.
        .filter_map(|w| CString::new(w).ok())
        .map(CString::into_raw)
        .collect();
    pointers.push(std::ptr::null_mut());
    // SAFETY: by contract; the stream of a failed execve goes on in a new one.
    unsafe {
        let s = stream(vcpu);
        end(s, layout::end::EXEC, 0);
    }
    Box::leak(pointers.into_boxed_slice()).as_mut_ptr()
}

/// Whether the file may be executed.
fn is_executable(path: &[u8]) -> bool {
    CString::new(path).is_ok_and(|p| {
        // SAFETY: plain system call.
        unsafe { libc::access(p.as_ptr(), libc::X_OK) == 0 }
    })
}

/// See the header.
///
/// # Safety
/// As [`stream`]; `args` came from [`trapline_exec`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_exec_failed(vcpu: *mut TraplineVcpu, args: *mut *mut c_char) {
    server::exec_undo();
    // SAFETY: by contract: the array and its strings were leaked by `trapline_exec`.
    unsafe {
        let mut n = 0;
        while !(*args.add(n)).is_null() {
            drop(CString::from_raw(*args.add(n)));
            n += 1;
        }
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(args, n + 1)));
        let v = &mut *vcpu;
        let at = v.stream.cast::<Stream>().cast_const();
        let mut streams = locked(&runtime().streams);
        if let Some(i) = streams.iter().position(|s| std::ptr::eq(Arc::as_ptr(s), at)) {
            let s = streams.swap_remove(i);
            s.writer.with(|w| server::remove(w.memory()));
        }
        forget(v);
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_next_own_fd(from: c_int) -> c_int {
    server::next_own_fd(from)
}
