//! DynamoRIO's memory traces, version 7 (`clients/drcachesim/common/trace_entry.h`): packed entries of 12 bytes, `u16 type; u16 size; u64 addr`, little-endian, a file
//! for each thread, instructions that retired only, with their encodings.
//!
//! * An instruction's encoding comes before its first execution, and again where its bytes have changed.
//! * The later iterations of a repeated string instruction are no-fetch entries, each with its own accesses.
//! * Times are not measured: a microsecond stands for [`INSNS_PER_US`] instructions, from the thread's start on. There is one CPU for each thread.
//! * A signal is a kernel event at the interrupted pc, the return from its handler a kernel transfer.
//! * Merged threads are a core's that runs them in turns (core-sharded): a turn begins with the thread's and the process' number, and the time.
//! * A whole machine has a file for each vCPU (core-sharded, whole-system). Exceptions and interrupts are hardware events at the pc where the guest would have gone on, and
//!   what returns from them is followed by a hardware context return, if there was an event. Threads are those that the kernel's module tells of
//!   (`guest-lib/module`); before its first word, and without it, there is one thread for each vCPU.

use crate::linear::{Feed, Insn, branch_at};
use crate::registers::SIGRETURN;
use crate::sink::{Outputs, Shared, Sink, Spread};
use consumer::{Access, BlockInfo, Error, Event, GuestEvent, Stream, TableInfo};
use decode::{Class, Isa, Target};
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

/// Types of entries.
mod entry {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const INSTR: u16 = 10;
    pub const DIRECT_JUMP: u16 = 11;
    pub const INDIRECT_JUMP: u16 = 12;
    pub const DIRECT_CALL: u16 = 14;
    pub const INDIRECT_CALL: u16 = 15;
    pub const RETURN: u16 = 16;
    pub const THREAD: u16 = 22;
    pub const THREAD_EXIT: u16 = 23;
    pub const PID: u16 = 24;
    pub const HEADER: u16 = 25;
    pub const FOOTER: u16 = 26;
    pub const MARKER: u16 = 28;
    pub const NO_FETCH: u16 = 29;
    pub const SYSENTER: u16 = 31;
    pub const ENCODING: u16 = 47;
    pub const TAKEN: u16 = 48;
    pub const UNTAKEN: u16 = 49;
}

/// Types of markers, which stand in the size.
mod marker {
    pub const KERNEL_EVENT: u16 = 0;
    pub const KERNEL_TRANSFER: u16 = 1;
    pub const TIMESTAMP: u16 = 2;
    pub const CPU: u16 = 3;
    pub const FILE_TYPE: u16 = 9;
    pub const LINE_SIZE: u16 = 10;
    pub const VERSION: u16 = 12;
    pub const PAGE_SIZE: u16 = 18;
    pub const CHUNK: u16 = 20;
    pub const SYSCALL: u16 = 25;
    pub const BRANCH_TARGET: u16 = 29;
    pub const HARDWARE_EVENT: u16 = 43;
    pub const HARDWARE_RETURN: u16 = 44;
}

const VERSION: u64 = 7;
const ENCODINGS: u64 = 0x200;
const SYSCALL_NUMBERS: u64 = 0x400;
const KERNEL: u64 = 0x1000;
const CORE_SHARDED: u64 = 0x1_0000;
const WHOLE_SYSTEM: u64 = 0x4_0000;
/// Instructions for which a microsecond stands.
pub const INSNS_PER_US: u64 = 1000;
/// Instructions from one time to the next.
const TIME_EVERY: u64 = 1_000_000;
/// From 1601 to 1970.
const EPOCH_US: u64 = 11_644_473_600_000_000;

fn arch(target: Target) -> Option<u64> {
    Some(match (target.isa, target.bits) {
        (Isa::Aarch64, _) => 0x8,
        (Isa::Arm, _) if !target.big_endian => 0x10,
        (Isa::X86, 32) => 0x20,
        (Isa::X86, _) => 0x40,
        _ => return None,
    })
}

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Entries written.
    pub entries: u64,
    /// Branches whose next pc is not known: the last of a thread.
    pub open: u64,
}

/// The feed.
pub struct Drmemtrace<'o> {
    outputs: &'o Outputs,
    totals: Mutex<Totals>,
    shared: Shared<Lane>,
}

impl<'o> Drmemtrace<'o> {
    /// Writes to `outputs`.
    pub fn new(outputs: &'o Outputs) -> Self {
        Drmemtrace { outputs, totals: Mutex::default(), shared: Shared::new(outputs) }
    }
    /// Over all threads.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Of an instruction.
pub struct Static {
    class: Class,
    fall_through: u64,
    /// Accesses of an iteration; 0 if it is no repeated string instruction.
    each: usize,
    sysenter: bool,
    /// Of a whole machine.
    system: bool,
    /// It returns from an exception or interrupt.
    returns: bool,
}

/// Numbers of a thread and its process.
type Ids = (u64, u64);

/// Of a stream.
pub struct State {
    /// `None` if it is merged with the others.
    own: Option<Lane>,
    /// What runs in it.
    ids: Ids,
    /// What it has of its own: the thread, or the vCPU when the kernel is idle.
    idle: Ids,
    system: bool,
    /// Hardware events that have not returned.
    depth: u64,
    /// Where the last instruction ended.
    end_pc: u64,
}

/// Of an output.
pub struct Lane {
    sink: Option<Sink>,
    totals: Totals,
    /// Time of the start in microseconds since 1601; 0 until it is known.
    start: u64,
    header: Vec<u8>,
    /// The last encoding that was written, by process and pc.
    encodings: HashMap<(u64, u64), Box<[u8]>>,
    next_time: u64,
    insns: u64,
    cpu: u64,
    /// Whose turn it is.
    ids: Ids,
    /// Those that had one and have not left.
    threads: BTreeSet<Ids>,
}

fn put(out: &mut Vec<u8>, kind: u16, size: u16, addr: u64) {
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&addr.to_le_bytes());
}

impl Lane {
    fn put(&mut self, kind: u16, size: u16, addr: u64) {
        if let Some(sink) = &mut self.sink {
            put(sink.buffer(), kind, size, addr);
        }
    }

    fn mark(&mut self, kind: u16, value: u64) {
        self.put(entry::MARKER, kind, value);
    }

    fn time(&mut self) {
        self.mark(marker::TIMESTAMP, self.start + self.insns / INSNS_PER_US);
        self.mark(marker::CPU, self.cpu);
        self.next_time = self.insns + TIME_EVERY;
    }

    /// The header, once the start is known; and that it is the turn of `ids`.
    fn turn(&mut self, ids: Ids) {
        let header = std::mem::take(&mut self.header);
        if let (Some(sink), false) = (&mut self.sink, header.is_empty()) {
            sink.buffer().extend_from_slice(&header);
            self.time();
        }
        if self.ids != ids {
            self.ids = ids;
            self.threads.insert(ids);
            self.put(entry::THREAD, 8, ids.0);
            self.put(entry::PID, 8, ids.1);
            self.time();
        }
    }

    /// Nothing of the thread follows.
    fn exit(&mut self, ids: Ids) {
        let mine = self.ids == ids;
        self.turn(ids);
        if mine {
            self.time();
        }
        self.put(entry::THREAD_EXIT, 8, ids.0);
        self.threads.remove(&ids);
    }

    fn insn(&mut self, s: &Static, insn: &Insn<'_>, ids: Ids) -> Result<(), Error> {
        self.turn(ids);
        if self.insns >= self.next_time && self.insns > 0 {
            self.time();
        }
        self.insns += 1;
        let pc = insn.pc();
        let Some(sink) = &mut self.sink else { return Ok(()) };
        let out = sink.buffer();
        let bytes = insn.bytes();
        let known = self.encodings.entry((ids.1, pc)).or_default();
        if **known != *bytes {
            for part in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                put(out, entry::ENCODING, part.len() as u16, u64::from_le_bytes(word));
            }
            *known = bytes.into();
        }
        let branch = !matches!(s.class, Class::Other | Class::Unknown);
        if branch && insn.next.is_none() {
            self.totals.open += 1;
        }
        // In whole machines what is no branch may go elsewhere by itself: system calls and returns from them, and from exceptions.
        let elsewhere = insn.next.is_some_and(|n| n != pc.wrapping_add(bytes.len() as u64));
        let class = match s.class {
            Class::Other | Class::Unknown if s.system && elsewhere => Class::IndirectJump,
            class => class,
        };
        if matches!(class, Class::IndirectJump | Class::IndirectCall | Class::Return) {
            put(out, entry::MARKER, marker::BRANCH_TARGET, insn.next.unwrap_or(0));
        }
        let kind = match class {
            Class::Jump => entry::DIRECT_JUMP,
            Class::IndirectJump => entry::INDIRECT_JUMP,
            Class::Call => entry::DIRECT_CALL,
            Class::IndirectCall => entry::INDIRECT_CALL,
            Class::Return => entry::RETURN,
            Class::CondBranch if insn.next.is_some_and(|n| n != s.fall_through) => entry::TAKEN,
            Class::CondBranch => entry::UNTAKEN,
            _ if s.sysenter => entry::SYSENTER,
            _ => entry::INSTR,
        };
        put(out, kind, bytes.len() as u16, pc);
        let access = |out: &mut Vec<u8>, a: &Access| {
            put(out, if a.is_store() { entry::WRITE } else { entry::READ }, a.size.min(0xffff) as u16, a.addr);
        };
        match s.each {
            0 => insn.accesses.iter().for_each(|a| access(out, a)),
            each => {
                for (i, iteration) in insn.accesses.chunks(each).enumerate() {
                    if i > 0 {
                        put(out, entry::NO_FETCH, bytes.len() as u16, pc);
                    }
                    iteration.iter().for_each(|a| access(out, a));
                }
            }
        }
        sink.put()
    }
}

impl Drmemtrace<'_> {
    /// An output for a stream, or for all.
    fn open(&self, stream: &Stream, ids: Ids, file_type: u64) -> Result<Lane, Error> {
        let mut header = Vec::new();
        put(&mut header, entry::HEADER, 0, VERSION);
        put(&mut header, entry::MARKER, marker::VERSION, VERSION);
        put(&mut header, entry::MARKER, marker::FILE_TYPE, file_type);
        put(&mut header, entry::THREAD, 8, ids.0);
        put(&mut header, entry::PID, 8, ids.1);
        put(&mut header, entry::MARKER, marker::LINE_SIZE, 64);
        put(&mut header, entry::MARKER, marker::CHUNK, 0);
        put(&mut header, entry::MARKER, marker::PAGE_SIZE, 4096);
        let core = file_type & CORE_SHARDED != 0;
        Ok(Lane {
            sink: self.outputs.open(stream)?,
            totals: Totals::default(),
            start: EPOCH_US,
            header,
            encodings: HashMap::new(),
            next_time: 0,
            insns: 0,
            cpu: if core { u64::from(stream.vcpu) } else { ids.0 },
            ids,
            threads: BTreeSet::from([ids]),
        })
    }

    fn close(&self, mut lane: Lane) -> Result<(), Error> {
        // Threads of a machine that ran before the last one.
        while let Some(ids) = lane.threads.first().copied() {
            lane.exit(ids);
        }
        if let Some(mut sink) = lane.sink.take() {
            put(sink.buffer(), entry::FOOTER, 0, 0);
            let bytes = sink.finish()?;
            lane.totals.entries = bytes / 12;
            self.outputs.closed(bytes);
        }
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.entries += lane.totals.entries;
        all.open += lane.totals.open;
        Ok(())
    }
}

impl Feed for Drmemtrace<'_> {
    type Block = Box<[Static]>;
    type State = State;

    fn begin(&self, stream: &Stream, table: &TableInfo) -> Result<State, Error> {
        let Some(arch) = Target::named(&table.target).and_then(arch) else {
            return Err(Error::Consumer(format!(
                "no drmemtrace of {}: the format knows x86, AArch64 and little-endian Arm",
                table.target
            )));
        };
        let core = u64::from(stream.vcpu) + 1;
        let ids = if table.system { (core, core) } else { (u64::from(stream.tid), u64::from(stream.process.pid)) };
        let file_type = match (table.system, self.outputs.spread()) {
            (true, _) => KERNEL | CORE_SHARDED | WHOLE_SYSTEM,
            (false, Spread::Merged) => SYSCALL_NUMBERS | CORE_SHARDED,
            (false, _) => SYSCALL_NUMBERS,
        };
        let own = self.shared.begin(|| self.open(stream, ids, arch | ENCODINGS | file_type))?;
        Ok(State { own, ids, idle: ids, system: table.system, depth: 0, end_pc: 0 })
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Box<[Static]> {
        let target = Target::named(&table.target);
        (0..block.insns.len())
            .map(|i| {
                let branch = branch_at(target, block, i);
                let x86 = target.is_some_and(|t| t.isa == Isa::X86);
                Static {
                    class: branch.map_or(Class::Other, |b| b.class),
                    fall_through: branch.map_or(0, |b| b.fall_through),
                    each: if x86 { repeats(block.bytes(i)) } else { 0 },
                    sysenter: x86 && block.bytes(i) == [0x0f, 0x34],
                    system: table.system,
                    returns: table.system && target.is_some_and(|t| returns(t.isa, block.bytes(i))),
                }
            })
            .collect()
    }

    fn insn(&self, state: &mut State, block: &Box<[Static]>, insn: &Insn<'_>) -> Result<(), Error> {
        let s = &block[insn.index];
        let State { own, ids, depth, end_pc, .. } = state;
        *end_pc = insn.pc().wrapping_add(u64::from(insn.len()));
        self.shared.with(own, |lane| {
            lane.insn(s, insn, *ids)?;
            if s.returns && *depth > 0 {
                *depth -= 1;
                lane.mark(marker::HARDWARE_RETURN, *end_pc);
            }
            Ok(())
        })
    }

    fn event(&self, state: &mut State, event: &Event) -> Result<(), Error> {
        let State { own, ids, idle, system, depth, end_pc } = state;
        if let (Event::Guest { what: GuestEvent::Event { name, args, .. }, .. }, true) = (event, *system)
            && name == b"switch"
        {
            // Each vCPU has a thread of its own that is number 0.
            *ids = if args[1] == 0 { *idle } else { (args[1], args[2]) };
        }
        self.shared.with(own, |lane| {
            match event {
                Event::Start { wall_ns, .. } if !lane.header.is_empty() => lane.start = EPOCH_US + wall_ns / 1000,
                Event::Syscall { number, .. } if lane.header.is_empty() => {
                    lane.turn(*ids);
                    lane.mark(marker::SYSCALL, *number);
                    lane.time();
                }
                Event::SyscallRet { result, .. } if lane.header.is_empty() => {
                    lane.turn(*ids);
                    if *result == SIGRETURN {
                        lane.mark(marker::KERNEL_TRANSFER, *end_pc);
                    } else {
                        lane.time();
                    }
                }
                Event::Exception { from, .. } if *system => {
                    lane.turn(*ids);
                    *depth += 1;
                    lane.mark(marker::HARDWARE_EVENT, *from);
                }
                Event::Signal { from, .. } | Event::Exception { from, .. } => {
                    lane.turn(*ids);
                    lane.mark(marker::KERNEL_EVENT, *from);
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn end(&self, mut state: State, _: &Stream, _: u64) -> Result<(), Error> {
        let ids = state.ids;
        self.shared.with(&mut state.own, |lane| {
            lane.exit(ids);
            Ok(())
        })?;
        state.own.map_or(Ok(()), |lane| self.close(lane))
    }

    fn finish(&self) -> Result<(), Error> {
        self.shared.take().map_or(Ok(()), |lane| self.close(lane))
    }
}

/// It returns from an exception or interrupt: `iret`; `eret`; `rfe`, and what writes Arm's pc and `cpsr` at once.
fn returns(isa: Isa, bytes: &[u8]) -> bool {
    let word = bytes.try_into().map_or(0, u32::from_le_bytes);
    match isa {
        Isa::X86 => {
            bytes.last() == Some(&0xcf) && bytes[..bytes.len() - 1].iter().all(|b| matches!(b, 0x40..=0x4f | 0x66))
        }
        Isa::Aarch64 => matches!(word, 0xd69f_03e0 | 0xd69f_0bff | 0xd69f_0fff),
        Isa::Arm => {
            word & 0xfe50_ffff == 0xf810_0a00
                || word & 0x0fff_f000 == 0x025e_f000
                || word & 0x0fff_ffff == 0x01b0_f00e
                || word & 0x0e50_8000 == 0x0850_8000 && word >> 28 != 15
        }
        _ => false,
    }
}

/// Accesses of an iteration of a repeated x86 string instruction; 0 if it is none.
fn repeats(bytes: &[u8]) -> usize {
    let mut repeated = false;
    for b in bytes {
        match b {
            0xf2 | 0xf3 => repeated = true,
            // Other prefixes
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 => {}
            // MOVS, CMPS
            0xa4..=0xa7 if repeated => return 2,
            // INS, OUTS, STOS, LODS, SCAS
            0x6c..=0x6f | 0xaa..=0xaf if repeated => return 1,
            _ => return 0,
        }
    }
    0
}
