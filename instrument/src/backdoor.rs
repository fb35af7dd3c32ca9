//! The backdoor: what the guest asks for, and what it gets.
//!
//! Rules:
//! * Guest memory was read before ([`Call::data`]), and is written afterwards, by QEMU; a length is at most `backdoor::BUFFER_MAX`.
//! * Whatever the guest passes, the answer is a number; nothing here ends QEMU but `EXIT` and `ABORT`, if they are allowed.
//! * What touches the host is off unless `allow=` says otherwise.
//! * A vCPU's depth is its own: calls of others reach it through [`trapline_follow`], on its own thread.

use crate::ffi::*;
use crate::runtime::{context, event, locked, name, uncount, with, with_text};
use crate::{Insn, Privilege, Vcpu};
use backdoor::{Buffer, Errno, Operation, feature, op, scope, what};
use pipe::layout::kind;
use pipe::producer::Writer;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

unsafe extern "Rust" {
    fn trapline_analyzer_backdoor(vcpu: &mut Vcpu, call: Call<'_>) -> u64;
}

/// A call through the backdoor.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    call: &'a TraplineCall,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// Guest address of the call.
    pub fn pc(&self) -> u64 {
        self.call.pc
    }
    /// The operation: `backdoor::op`. `0x8000` and up are the analyzer's own.
    pub fn op(&self) -> u16 {
        self.call.op as u16
    }
    /// Its arguments, zero-extended from the guest's word.
    pub fn args(&self) -> [u64; 6] {
        self.call.args
    }
    /// The text or bytes that the operation takes, as they were in guest memory.
    pub fn data(&self) -> &'a [u8] {
        // SAFETY: QEMU's bytes live as long as the call.
        unsafe { bytes(self.call) }
    }
    /// What the built-in operation gave; [`Call::is_own`] ones have `-ENOSYS` here.
    pub fn result(&self) -> i64 {
        self.call.result
    }
    /// What the method returns is the guest's result: the operation is 0x8000 or above, or `ANALYZER_CALL`.
    pub fn is_own(&self) -> bool {
        is_own(self.call.op as u16)
    }
}

fn is_own(number: u16) -> bool {
    number >= op::USER || number == op::ANALYZER_CALL
}

/// Code that is traced in full system.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Level {
    User,
    Kernel,
}

/// What of `-trapline` is about the backdoor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    enabled: bool,
    user: bool,
    exit: bool,
    recv_allowed: bool,
    select: bool,
    recv: Option<PathBuf>,
    roi: Option<String>,
    ranges: Vec<(u64, u64)>,
    /// Relative to where the program is loaded.
    image_ranges: Vec<(u64, u64)>,
    /// Full system: only code with privileges, or only code without.
    level: Option<Level>,
    /// Full system: only this address space, by its root.
    space: Option<u64>,
    /// Full system: only while the guest says that it runs this.
    process: Option<String>,
    /// Instructions before a window, and in it.
    skip: u64,
    count: Option<u64>,
    /// Another window comes after another `skip`.
    periodic: bool,
    icount: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            enabled: true,
            user: true,
            exit: false,
            recv_allowed: false,
            select: false,
            recv: None,
            roi: None,
            ranges: Vec::new(),
            image_ranges: Vec::new(),
            level: None,
            space: None,
            process: None,
            skip: 0,
            count: None,
            periodic: false,
            icount: false,
        }
    }
}

fn range(key: &str, value: &str) -> Result<(u64, u64), String> {
    use crate::FromOption;
    std::ops::Range::<u64>::from_option(value)
        .filter(|r| r.start <= r.end)
        .map(|r| (r.start, r.end))
        .ok_or_else(|| format!("-trapline {key}={value}: {} is expected", std::ops::Range::<u64>::EXPECTED))
}

impl Options {
    /// Takes an option if it is one of ours.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        use crate::options::on_off;
        match key {
            "backdoor" => self.enabled = on_off(key, value)?,
            "user" => self.user = on_off(key, value)?,
            "allow" => {
                for word in value.split('+').filter(|w| !w.is_empty()) {
                    match word {
                        "exit" => self.exit = true,
                        "recv" => self.recv_allowed = true,
                        "select" => self.select = true,
                        _ => {
                            return Err(format!(
                                "-trapline allow={word}: exit, recv or select is expected, several with + between"
                            ));
                        }
                    }
                }
            }
            "recv" => self.recv = Some(value.into()),
            "roi" => self.roi = Some(value.to_string()),
            "range" => self.ranges.push(range(key, value)?),
            "skip" => self.skip = length(key, value)?,
            "every" => (self.skip, self.periodic) = (length(key, value)?, true),
            "count" | "for" => self.count = Some(length(key, value)?),
            "icount" => self.icount = on_off(key, value)?,
            "level" => {
                self.level = Some(match value {
                    "user" => Level::User,
                    "kernel" => Level::Kernel,
                    _ => return Err(format!("-trapline level={value}: user or kernel is expected")),
                })
            }
            "space" => {
                use crate::FromOption;
                let root = u64::from_option(value);
                self.space =
                    Some(root.ok_or_else(|| format!("-trapline {key}={value}: {} is expected", u64::EXPECTED))?);
            }
            "process" => self.process = Some(value.to_string()),
            "image-range" => self.image_ranges.push(range(key, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// For the process image that replaces this one.
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        if !self.enabled {
            pairs.push(("backdoor", "off".into()));
        }
        if !self.user {
            pairs.push(("user", "off".into()));
        }
        let allowed = [(self.exit, "exit"), (self.recv_allowed, "recv"), (self.select, "select")];
        let allowed: Vec<&str> = allowed.iter().filter(|a| a.0).map(|a| a.1).collect();
        if !allowed.is_empty() {
            pairs.push(("allow", allowed.join("+")));
        }
        if let Some(recv) = &self.recv {
            pairs.push(("recv", recv.display().to_string()));
        }
        if let Some(roi) = &self.roi {
            pairs.push(("roi", roi.clone()));
        }
        for (lo, hi) in &self.ranges {
            pairs.push(("range", format!("{lo:#x}-{hi:#x}")));
        }
        if self.has_windows() {
            pairs.push((if self.periodic { "every" } else { "skip" }, self.skip.to_string()));
        }
        if let Some(count) = self.count {
            pairs.push(("count", count.to_string()));
        }
        if self.icount {
            pairs.push(("icount", "on".into()));
        }
        if !self.image_ranges.is_empty() {
            // Another program has nothing of this one's.
            pairs.push(("range", "0-0".into()));
        }
        pairs
    }
}

/// More than any guest runs, and no overflow when a block's length is added.
const FOR_EVER: u64 = 1 << 62;

fn length(key: &str, value: &str) -> Result<u64, String> {
    use crate::FromOption;
    u64::from_option(value)
        .filter(|n| *n < FOR_EVER)
        .ok_or_else(|| format!("-trapline {key}={value}: a number of instructions is expected, {}", u64::EXPECTED))
}

impl Options {
    fn has_windows(&self) -> bool {
        self.skip > 0 || self.count.is_some() || self.periodic
    }

    /// What makes no sense together.
    pub fn check(&self) -> Result<(), String> {
        if self.periodic && (self.count.is_none_or(|n| n == 0) || self.skip == 0) {
            return Err("-trapline every=N,for=M: both are needed, and at least 1".into());
        }
        Ok(())
    }
}

/// The most names that a guest may define: it must not fill the host's memory.
const MOST_NAMES: usize = 1 << 16;

/// The most filters, for the same reason.
const MOST_FILTERS: usize = 64;

#[derive(Default)]
struct Names {
    numbers: HashMap<Vec<u8>, u64>,
    names: Vec<Vec<u8>>,
}

impl Names {
    /// Numbers start at 1.
    fn define(&mut self, name: &[u8]) -> Option<u64> {
        if let Some(id) = self.numbers.get(name) {
            return Some(*id);
        }
        if self.names.len() == MOST_NAMES {
            return None;
        }
        self.names.push(name.to_vec());
        let id = self.names.len() as u64;
        self.numbers.insert(name.to_vec(), id);
        Some(id)
    }
    fn of(&self, id: u64) -> &[u8] {
        (id as usize).checked_sub(1).and_then(|i| self.names.get(i)).map_or(&[], |n| n)
    }
}

/// Where code is traced.
#[derive(Default)]
struct Filter {
    /// Only there, if there are any.
    within: Vec<(u64, u64)>,
    /// And not there.
    without: Vec<(u64, u64)>,
}

struct Backdoor {
    options: Options,
    names: Mutex<Names>,
    channels: Mutex<HashMap<u64, File>>,
    /// Depth of vCPUs that begin.
    depth: AtomicU32,
    filter: RwLock<Filter>,
    filtering: AtomicBool,
    /// The one address space that is traced: its root and number.
    space: Mutex<Option<Space>>,
}

static BACKDOOR: OnceLock<Backdoor> = OnceLock::new();

/// Sets it up; gives whether vCPUs begin traced.
pub(crate) fn init(options: &Options, start: bool) -> bool {
    // A region of interest that is asked for begins when the guest says so, a window when it comes.
    let start = start && options.roi.is_none() && !options.has_windows();
    COUNTS.store(options.has_windows() || options.icount, Ordering::Relaxed);
    let made = BACKDOOR.set(Backdoor {
        names: Mutex::default(),
        channels: Mutex::default(),
        depth: AtomicU32::new(u32::from(start)),
        filtering: AtomicBool::new(!options.ranges.is_empty() || !options.image_ranges.is_empty()),
        filter: RwLock::new(Filter { within: options.ranges.clone(), without: Vec::new() }),
        space: Mutex::new(options.space.map(Space::Root)),
        options: options.clone(),
    });
    debug_assert!(made.is_ok(), "QEMU starts once");
    start
}

/// An address space, as the guest's registers name it.
#[derive(Clone, Copy, PartialEq)]
enum Space {
    Root(u64),
    /// Where page tables have no root that the processor knows.
    Number(u64),
}

impl Space {
    fn of(v: &TraplineVcpu) -> Space {
        if v.root == 0 && v.asid != 0 { Space::Number(v.asid) } else { Space::Root(v.root) }
    }
}

/// Why a vCPU is elsewhere: bits.
mod elsewhere {
    pub const SPACE: u32 = 1;
    pub const PROCESS: u32 = 2;
}

/// How deep a vCPU is traced; 0 while it is elsewhere.
pub(crate) fn depth(v: &TraplineVcpu) -> u32 {
    if v.elsewhere == 0 { v.traced } else { 0 }
}

impl Backdoor {
    /// Where the vCPU is, by its address space.
    fn place(&self, v: &TraplineVcpu) -> u32 {
        let other = locked(&self.space).is_some_and(|space| space != Space::of(v));
        v.elsewhere & !elsewhere::SPACE | if other { elsewhere::SPACE } else { 0 }
    }
}

/// Whether the vCPU is elsewhere now, or no more.
pub(crate) fn place_changes(v: &TraplineVcpu) -> bool {
    BACKDOOR.get().is_some_and(|b| b.place(v) != v.elsewhere)
}

/// The program is loaded `bias` bytes above the addresses in its file.
pub(crate) fn image(bias: u64) {
    if let Some(b) = BACKDOOR.get() {
        let mut filter = b.filter.write().unwrap_or_else(PoisonError::into_inner);
        filter
            .within
            .extend(b.options.image_ranges.iter().map(|(lo, hi)| (lo.wrapping_add(bias), hi.wrapping_add(bias))));
    }
}

/// Whether this code is to be traced at all. Asked while translating.
pub(crate) fn chosen(insn: &Insn<'_>) -> bool {
    let Some(b) = BACKDOOR.get() else { return true };
    let level = |p: Privilege| if p.user { Level::User } else { Level::Kernel };
    // Where the ISA's levels are not known, all code is as privileged as can be.
    let level = insn.privilege().map_or(Level::Kernel, level);
    b.options.level.is_none_or(|l| l == level) && in_range(b, insn.pc())
}

fn in_range(b: &Backdoor, pc: u64) -> bool {
    if !b.filtering.load(Ordering::Relaxed) {
        return true;
    }
    let filter = b.filter.read().unwrap_or_else(PoisonError::into_inner);
    let has = |ranges: &[(u64, u64)]| ranges.iter().any(|(lo, hi)| (*lo..*hi).contains(&pc));
    // Ranges of the image are known once it is loaded.
    let unlimited = filter.within.is_empty() && b.options.image_ranges.is_empty();
    (unlimited || has(&filter.within)) && !has(&filter.without)
}

/// # Safety
/// `call` is QEMU's, and its bytes live for `'a`.
unsafe fn bytes<'a>(call: &TraplineCall) -> &'a [u8] {
    if call.data.is_null() || Operation::of(call.op as u16).is_none_or(|o| matches!(o.buffer, Buffer::Out(..))) {
        return &[];
    }
    // SAFETY: QEMU passes `length` bytes.
    unsafe { std::slice::from_raw_parts(call.data, call.length as usize) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_backdoor_enabled(user: bool) -> bool {
    BACKDOOR.get().is_some_and(|b| b.options.enabled && (b.options.user || !user))
}

/// Asked for each translated block and each unwinding.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_counts() -> bool {
    COUNTS.load(Ordering::Relaxed)
}

/// See the header.
///
/// # Safety
/// `vcpu` is valid and does not run yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_vcpu_created(vcpu: *mut TraplineVcpu) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let Some(b) = BACKDOOR.get() else { return };
    v.traced = b.depth.load(Ordering::Relaxed);
    v.elsewhere = if b.options.process.is_some() { elsewhere::PROCESS } else { 0 };
    v.elsewhere = b.place(v);
    v.window = 0;
    v.counted = 0;
    v.left = 0;
    give(v, if b.options.has_windows() { b.options.skip } else { FOR_EVER });
}

/// So many instructions until the window changes.
fn give(v: &mut TraplineVcpu, n: u64) {
    v.left += n as i64;
    v.counted += n;
}

/// See the header.
///
/// # Safety
/// `vcpu` is valid, belongs to the calling thread and is between blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_window(vcpu: *mut TraplineVcpu, pc: u64) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let Some(b) = BACKDOOR.get() else { return };
    let o = &b.options;
    // Even: before a window; odd: in it.
    let opens = v.window % 2 == 0;
    v.window = v.window.wrapping_add(1);
    let old = depth(v);
    let new = if opens { v.traced.saturating_add(1) } else { v.traced.saturating_sub(1) };
    let next = match (opens, o.count, o.periodic) {
        (true, Some(count), _) => count,
        (false, _, true) => o.skip,
        _ => FOR_EVER,
    };
    give(v, next);
    if next == 0 {
        // A window of nothing.
        v.window = v.window.wrapping_add(1);
        give(v, FOR_EVER);
        return;
    }
    v.traced = new;
    let new = depth(v);
    if new != old {
        let kind = if opens { kind::TRACE_START } else { kind::TRACE_STOP };
        // SAFETY: by contract.
        unsafe { event(vcpu, kind, &[pc, scope::VCPU, u64::from(new)]) };
    }
}

/// What others do, as they are told.
mod action {
    pub const DEEPER: u64 = 1;
    pub const LESS: u64 = 2;
    pub const SET: u64 = 3;
    /// The analyzer asks it of its own vCPU.
    pub const START: u64 = crate::ffi::TRAPLINE_FOLLOW_START as u64;
    pub const STOP: u64 = crate::ffi::TRAPLINE_FOLLOW_STOP as u64;
    pub const PLACE: u64 = crate::ffi::TRAPLINE_FOLLOW_PLACE as u64;
    pub const SHIFT: u32 = 8;
}

/// See the header.
///
/// # Safety
/// `vcpu` is valid, belongs to the calling thread and is between blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_follow(vcpu: *mut TraplineVcpu, what: u64, pc: u64) {
    // SAFETY: by contract.
    let v = unsafe { &mut *vcpu };
    let old = depth(v);
    match what & 0xff {
        action::DEEPER => v.traced = v.traced.saturating_add(1),
        action::LESS => v.traced = v.traced.saturating_sub(1),
        action::START => v.traced = v.traced.saturating_add(1),
        action::STOP => v.traced = v.traced.saturating_sub(1),
        action::PLACE => v.elsewhere = BACKDOOR.get().map_or(0, |b| b.place(v)),
        _ => v.traced = (what >> action::SHIFT) as u32,
    }
    let scope = match what & 0xff {
        action::START | action::STOP => scope::VCPU,
        action::PLACE => scope::PROCESS,
        _ => scope::ALL,
    };
    let new = depth(v);
    if old != new {
        let kind = if new > old { kind::TRACE_START } else { kind::TRACE_STOP };
        // SAFETY: by contract.
        unsafe { event(vcpu, kind, &[pc, scope, u64::from(new)]) };
    }
}

/// See the header.
///
/// # Safety
/// `vcpu` is valid and belongs to the calling thread; `call` is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_backdoor(vcpu: *mut TraplineVcpu, call: *mut TraplineCall) {
    let Some(b) = BACKDOOR.get() else { return };
    // SAFETY: by contract.
    let call = unsafe { &mut *call };
    // SAFETY: by contract.
    unsafe { (*vcpu).calls = (*vcpu).calls.wrapping_add(1) };
    if call.result == 0 {
        // SAFETY: by contract.
        let vcpu = unsafe { &mut *vcpu };
        // SAFETY: by contract; the bytes live as long as the call, and only `RECV` writes them.
        let data = unsafe { bytes(call) };
        call.result = Serving { b, vcpu, call, data }.serve().unwrap_or_else(Errno::result);
    }
    let own = is_own(call.op as u16);
    // SAFETY: defined by `#[analyzer]` with this signature; the vCPU is the caller's.
    let given = unsafe {
        let call = Call { call, lifetime: PhantomData };
        (*vcpu).pc = call.pc();
        // Everything is stored before a call.
        (*vcpu).lazy = u32::MAX;
        trapline_analyzer_backdoor(&mut *vcpu.cast::<Vcpu>(), call)
    };
    if own && call.result == Errno::ENOSYS.result() {
        call.result = given as i64;
        let mut payload = vec![call.pc, u64::from(call.op)];
        payload.extend(call.args);
        payload.push(given);
        // SAFETY: by contract.
        unsafe { event(vcpu, kind::CALL, &payload) };
    }
}

struct Serving<'a> {
    b: &'a Backdoor,
    vcpu: &'a mut TraplineVcpu,
    call: &'a mut TraplineCall,
    data: &'a [u8],
}

type Answer = Result<i64, Errno>;

impl Serving<'_> {
    fn arg(&self, i: usize) -> u64 {
        self.call.args[i]
    }

    /// An event that begins with the pc. The calling block, if it is traced, ends with the call: what comes now comes after it.
    fn tell(&mut self, kind: u8, words: &[u64], text: Option<&[u8]>) {
        // No allocation for START and STOP.
        let mut payload = [0; 8];
        payload[0] = self.call.pc;
        payload[1..=words.len()].copy_from_slice(words);
        let payload = &payload[..=words.len()];
        match text {
            // SAFETY: see `trapline_backdoor`.
            Some(text) => unsafe { event(self.vcpu, kind, &with_text(payload, text)) },
            // SAFETY: as above.
            None => unsafe { event(self.vcpu, kind, payload) },
        }
    }

    /// A text or bytes of any length, in parts that fit into a chunk.
    fn tell_parts(&mut self, kind: u8, what: u64) {
        let mut rest = self.data;
        loop {
            let (part, after) = rest.split_at(rest.len().min(Writer::MOST_TEXT));
            self.tell(kind, &[what, u64::from(!after.is_empty())], Some(part));
            if after.is_empty() {
                break;
            }
            rest = after;
        }
    }

    fn allowed(&self, operation: &Operation) -> bool {
        let o = &self.b.options;
        match operation.allow {
            None => true,
            Some("exit") => o.exit,
            Some("recv") => o.recv_allowed && o.recv.is_some(),
            Some(_) => o.select,
        }
    }

    fn user_mode(&self) -> bool {
        self.call.system == 0
    }

    fn serve(mut self) -> Answer {
        let number = self.call.op as u16;
        let operation = Operation::of(number).ok_or(Errno::ENOSYS)?;
        if !self.allowed(operation) {
            return Err(Errno::EPERM);
        }
        match number {
            op::VERSION => Ok(i64::from(backdoor::VERSION)),
            op::FEATURES => Ok(if self.arg(0) == 0 { self.features() } else { 0 }),
            op::ECHO => {
                // In the positive range, so that no sum looks like an error to the guest.
                Ok((self.arg(0).wrapping_add(self.arg(1)) & i64::MAX as u64) as i64)
            }
            op::WHOAMI => Ok(i64::from(self.vcpu.index) << 1 | i64::from(self.user_mode())),
            op::START => self.change(action::DEEPER, 0),
            op::STOP => self.change(action::LESS, 0),
            op::SET_DEPTH => self.change(action::SET, self.arg(1)),
            op::STATE => match self.scope()? {
                scope::VCPU => Ok(i64::from(self.vcpu.traced)),
                _ => Ok(i64::from(self.b.depth.load(Ordering::Relaxed))),
            },
            op::ROI_BEGIN | op::ROI_END => self.roi(number == op::ROI_BEGIN),
            op::FILTER_RANGE => self.filter(),
            op::SCOPE_ASID if self.arg(0) > 1 => Err(Errno::EINVAL),
            // There is one address space in user mode.
            op::SCOPE_ASID if self.user_mode() => Ok(0),
            op::SCOPE_ASID => {
                *locked(&self.b.space) = (self.arg(0) == 1).then(|| Space::of(self.vcpu));
                self.call.action = action::PLACE;
                self.call.actions |= TRAPLINE_ACT_OTHERS;
                self.set_state(self.vcpu.traced, self.b.place(self.vcpu), scope::PROCESS);
                Ok(0)
            }
            op::EVENT => {
                let name = locked(&self.b.names).of(self.arg(0)).to_vec();
                let args = self.call.args;
                self.tell(kind::GUEST_EVENT, &args[..5], Some(&name));
                Ok(0)
            }
            op::DEFINE => {
                if self.call.data.is_null() {
                    return Err(Errno::EINVAL);
                }
                let id = locked(&self.b.names).define(self.data).ok_or(Errno::EINVAL)?;
                self.tell(kind::DEFINE, &[id], Some(self.data));
                Ok(id as i64)
            }
            op::MARK => {
                self.tell(kind::MARK, &[self.arg(1)], Some(self.data));
                Ok(0)
            }
            op::LOG => {
                self.tell_parts(kind::LOG, self.arg(2));
                Ok(0)
            }
            op::SEND => {
                self.tell_parts(kind::SEND, self.arg(0));
                Ok(0)
            }
            op::RECV => self.receive(),
            op::THREAD_NAME => {
                if let Some(process) = self.b.options.process.as_ref().filter(|_| !self.user_mode()) {
                    let other = if process.as_bytes() == self.data { 0 } else { elsewhere::PROCESS };
                    let place = self.vcpu.elsewhere & !elsewhere::PROCESS | other;
                    self.set_state(self.vcpu.traced, place, scope::PROCESS);
                }
                self.tell(kind::THREAD_NAME, &[], Some(self.data));
                Ok(0)
            }
            op::ICOUNT => match self.arg(0) {
                _ if !trapline_counts() => Err(Errno::ENOSYS),
                // The call itself has not retired yet.
                0 => Ok((self.vcpu.counted as i64).wrapping_sub(self.vcpu.left) - 1),
                _ => Err(Errno::EINVAL),
            },
            op::CLOCK => self.clock(),
            op::COUNTER => match self.arg(0) {
                what::COUNTER_CALLS => Ok(i64::from(self.vcpu.calls)),
                what::COUNTER_STARTS => Ok(i64::from(self.vcpu.starts)),
                _ => Err(Errno::EINVAL),
            },
            op::STATS_DUMP | op::STATS_RESET => {
                self.tell(kind::STATS, &[u64::from(number == op::STATS_RESET)], Some(self.data));
                Ok(0)
            }
            op::ANALYZER_SELECT => {
                // There is one, and its number is 0.
                if self.data == name().as_bytes() { Ok(0) } else { Err(Errno::EINVAL) }
            }
            op::ANALYZER_CALL if self.arg(0) != 0 => Err(Errno::EINVAL),
            op::ADD_SYMBOL => {
                self.tell(kind::SYMBOL, &[self.arg(0), self.arg(1)], Some(self.data));
                Ok(0)
            }
            op::EXIT => {
                self.call.action = self.arg(0) & 0xff;
                self.call.actions |= TRAPLINE_ACT_EXIT;
                Ok(0)
            }
            op::ABORT => {
                eprintln!("trapline: the guest aborts: {}", String::from_utf8_lossy(self.data).escape_debug());
                // As a shell shows an abort: 128 and the signal's number.
                self.call.action = 134;
                self.call.actions |= TRAPLINE_ACT_EXIT;
                Ok(0)
            }
            op::BREAK => {
                self.call.actions |= TRAPLINE_ACT_BREAK;
                Ok(0)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn features(&self) -> i64 {
        let o = &self.b.options;
        let bits = [
            (self.user_mode(), feature::USER_MODE),
            (o.exit, feature::EXIT),
            (o.recv_allowed && o.recv.is_some(), feature::RECV),
            (o.select, feature::SELECT),
            (trapline_counts(), feature::ICOUNT),
        ];
        bits.iter().filter(|b| b.0).map(|b| b.1 as i64).sum()
    }

    fn scope(&self) -> Result<u64, Errno> {
        match self.arg(0) {
            scope::DEFAULT if self.user_mode() => Ok(scope::VCPU),
            scope::DEFAULT => Ok(scope::ALL),
            s if s <= scope::LAST => Ok(s),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `START`, `STOP` and `SET_DEPTH`.
    fn change(&mut self, what: u64, n: u64) -> Answer {
        let scope = self.scope()?;
        let old = self.vcpu.traced;
        let new = match what {
            action::DEEPER => old.checked_add(1).ok_or(Errno::EINVAL)?,
            action::LESS => old.checked_sub(1).ok_or(Errno::EINVAL)?,
            _ => u32::try_from(n).ok().filter(|n| *n < 1 << 31).ok_or(Errno::EINVAL)?,
        };
        if scope != scope::VCPU {
            let depth = &self.b.depth;
            let _ = depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |d| {
                Some(match what {
                    action::DEEPER => d.saturating_add(1),
                    action::LESS => d.saturating_sub(1),
                    _ => new,
                })
            });
            self.call.action = what | u64::from(new) << action::SHIFT;
            self.call.actions |= TRAPLINE_ACT_OTHERS;
        }
        self.set_depth(new, scope);
        Ok(i64::from(if what == action::SET { old } else { new }))
    }

    /// The vCPU's new depth, as the stream is told.
    fn set_depth(&mut self, new: u32, scope: u64) {
        self.set_state(new, self.vcpu.elsewhere, scope);
    }

    fn set_state(&mut self, traced: u32, elsewhere: u32, scope: u64) {
        let old = depth(self.vcpu);
        (self.vcpu.traced, self.vcpu.elsewhere) = (traced, elsewhere);
        let new = depth(self.vcpu);
        if new == old {
            return;
        }
        if new > old {
            if old == 0 {
                self.vcpu.starts = self.vcpu.starts.wrapping_add(1);
            }
            self.tell(kind::TRACE_START, &[scope, u64::from(new)], None);
            return;
        }
        if new == 0 && self.call.context != 0 {
            // The instruction that stops is not traced.
            let (context, pc) = (context(self.call.context), self.call.pc);
            let block = context.block & !TRAPLINE_BLOCK_UNTRACED;
            uncount(self.vcpu, block, context.insn);
            // SAFETY: see `trapline_backdoor`; the calling block runs.
            unsafe {
                with(self.vcpu, |w, c, t| {
                    if block == context.block {
                        w.exclude(c, context, t);
                    }
                    w.event(c, kind::TRACE_STOP, &[pc, scope, u64::from(new)], t);
                })
            };
            return;
        }
        self.tell(kind::TRACE_STOP, &[scope, u64::from(new)], None);
    }

    fn roi(&mut self, begin: bool) -> Answer {
        let id = self.arg(0);
        let name = match self.data {
            [] => locked(&self.b.names).of(id).to_vec(),
            name => name.to_vec(),
        };
        let wanted = self.b.options.roi.as_ref().is_some_and(|roi| {
            // By its name, or by its number if it has none.
            roi.as_bytes() == name || (name.is_empty() && roi.parse() == Ok(id))
        });
        let depth = self.vcpu.traced;
        if begin {
            self.tell(kind::ROI_BEGIN, &[id], Some(&name));
            if wanted {
                self.set_depth(depth.saturating_add(1), scope::VCPU);
            }
        } else {
            if wanted {
                self.set_depth(depth.saturating_sub(1), scope::VCPU);
            }
            self.tell(kind::ROI_END, &[id], Some(&name));
        }
        Ok(0)
    }

    fn filter(&mut self) -> Answer {
        let (lo, hi, within) = (self.arg(0), self.arg(1), self.arg(2));
        if lo > hi || within > 1 {
            return Err(Errno::EINVAL);
        }
        let mut filter = self.b.filter.write().unwrap_or_else(PoisonError::into_inner);
        if filter.within.len() + filter.without.len() == MOST_FILTERS {
            return Err(Errno::EINVAL);
        }
        match (lo, hi, within) {
            // Everything, again.
            (0, 0, 0) => *filter = Filter { within: self.b.options.ranges.clone(), without: Vec::new() },
            (_, _, 0) => filter.without.push((lo, hi)),
            _ => filter.within.push((lo, hi)),
        }
        self.b.filtering.store(true, Ordering::Relaxed);
        self.call.actions |= TRAPLINE_ACT_FLUSH;
        Ok(0)
    }

    fn receive(&mut self) -> Answer {
        let Some(folder) = &self.b.options.recv else { return Err(Errno::EPERM) };
        let channel = self.arg(0);
        let mut channels = locked(&self.b.channels);
        let file = match channels.entry(channel) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                // The name is a number: it leads nowhere else.
                let file = File::open(folder.join(channel.to_string())).map_err(|_| Errno::EINVAL)?;
                e.insert(file)
            }
        };
        if self.call.data.is_null() {
            return Ok(0);
        }
        // SAFETY: QEMU passes a buffer of `length` bytes.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.call.data, self.call.length as usize) };
        buffer.fill(0);
        file.read(buffer).map(|n| n as i64).map_err(|_| Errno::EINVAL)
    }

    fn clock(&self) -> Answer {
        Ok(match self.arg(0) {
            what::CLOCK_MONOTONIC => {
                let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: plain system call.
                unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
                t.tv_sec * 1_000_000_000 + t.tv_nsec
            }
            what::CLOCK_WALL => {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
            }
            what::CLOCK_VIRTUAL => self.call.clock,
            _ => return Err(Errno::EINVAL),
        })
    }
}
