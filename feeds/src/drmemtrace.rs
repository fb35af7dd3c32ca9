//! DynamoRIO's memory traces, version 7 (`clients/drcachesim/common/trace_entry.h`): packed entries of 12 bytes, `u16 type; u16 size; u64 addr`, little-endian, a file
//! for each thread, instructions that retired only, with their encodings.
//!
//! * An instruction's encoding comes before its first execution, and again where its bytes have changed.
//! * The later iterations of a repeated string instruction are no-fetch entries, each with its own accesses.
//! * Times are not measured: a microsecond stands for [`INSNS_PER_US`] instructions, from the thread's start on. There is one CPU for each thread.
//! * A signal is a kernel event at the interrupted pc, the return from its handler a kernel transfer.

use crate::linear::{Feed, Insn, branch_at};
use crate::registers::SIGRETURN;
use crate::sink::{Outputs, Sink};
use consumer::{Access, BlockInfo, Error, Event, Stream, TableInfo};
use decode::{Class, Isa, Target};
use std::collections::HashMap;
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
}

const VERSION: u64 = 7;
const ENCODINGS: u64 = 0x200;
const SYSCALL_NUMBERS: u64 = 0x400;
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
}

impl<'o> Drmemtrace<'o> {
    /// Writes to `outputs`.
    pub fn new(outputs: &'o Outputs) -> Self {
        Drmemtrace { outputs, totals: Mutex::default() }
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
}

/// Of a thread.
pub struct State {
    sink: Option<Sink>,
    totals: Totals,
    tid: u64,
    /// Time of the start in microseconds since 1601; 0 until it is known.
    start: u64,
    header: Vec<u8>,
    /// The last encoding that was written, by pc.
    encodings: HashMap<u64, Box<[u8]>>,
    next_time: u64,
    insns: u64,
    /// Where the last instruction ended.
    end_pc: u64,
}

fn put(out: &mut Vec<u8>, kind: u16, size: u16, addr: u64) {
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&addr.to_le_bytes());
}

impl State {
    fn time(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        let now = self.start + self.insns / INSNS_PER_US;
        let buffer = sink.buffer();
        put(buffer, entry::MARKER, marker::TIMESTAMP, now);
        put(buffer, entry::MARKER, marker::CPU, self.tid);
        self.next_time = self.insns + TIME_EVERY;
    }

    /// The header, once the start is known.
    fn header(&mut self) {
        let header = std::mem::take(&mut self.header);
        if let (Some(sink), false) = (&mut self.sink, header.is_empty()) {
            sink.buffer().extend_from_slice(&header);
            self.time();
        }
    }

    fn mark(&mut self, kind: u16, value: u64) {
        if let Some(sink) = &mut self.sink {
            put(sink.buffer(), entry::MARKER, kind, value);
        }
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
        let mut header = Vec::new();
        let tid = u64::from(stream.tid);
        put(&mut header, entry::HEADER, 0, VERSION);
        put(&mut header, entry::MARKER, marker::VERSION, VERSION);
        put(&mut header, entry::MARKER, marker::FILE_TYPE, arch | ENCODINGS | SYSCALL_NUMBERS);
        put(&mut header, entry::THREAD, 8, tid);
        put(&mut header, entry::PID, 8, u64::from(stream.process.pid));
        put(&mut header, entry::MARKER, marker::LINE_SIZE, 64);
        put(&mut header, entry::MARKER, marker::CHUNK, 0);
        put(&mut header, entry::MARKER, marker::PAGE_SIZE, 4096);
        Ok(State {
            sink: self.outputs.open(stream)?,
            totals: Totals::default(),
            tid,
            start: EPOCH_US,
            header,
            encodings: HashMap::new(),
            next_time: 0,
            insns: 0,
            end_pc: 0,
        })
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
                }
            })
            .collect()
    }

    fn insn(&self, state: &mut State, block: &Box<[Static]>, insn: &Insn<'_>) -> Result<(), Error> {
        state.header();
        if state.insns >= state.next_time && state.insns > 0 {
            state.time();
        }
        state.insns += 1;
        let pc = insn.pc();
        state.end_pc = pc.wrapping_add(u64::from(insn.len()));
        let s = &block[insn.index];
        let Some(sink) = &mut state.sink else { return Ok(()) };
        let out = sink.buffer();
        let bytes = insn.bytes();
        let known = state.encodings.entry(pc).or_default();
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
            state.totals.open += 1;
        }
        if matches!(s.class, Class::IndirectJump | Class::IndirectCall | Class::Return) {
            put(out, entry::MARKER, marker::BRANCH_TARGET, insn.next.unwrap_or(0));
        }
        let kind = match s.class {
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

    fn event(&self, state: &mut State, event: &Event) -> Result<(), Error> {
        match event {
            Event::Start { wall_ns, .. } => state.start = EPOCH_US + wall_ns / 1000,
            Event::Syscall { number, .. } if state.header.is_empty() => {
                state.mark(marker::SYSCALL, *number);
                state.time();
            }
            Event::SyscallRet { result, .. } if state.header.is_empty() => {
                if *result == SIGRETURN {
                    state.mark(marker::KERNEL_TRANSFER, state.end_pc);
                } else {
                    state.time();
                }
            }
            Event::Signal { from, .. } | Event::Exception { from, .. } => {
                state.header();
                state.mark(marker::KERNEL_EVENT, *from);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&self, mut state: State, _: &Stream, _: u64) -> Result<(), Error> {
        state.header();
        state.time();
        if let Some(mut sink) = state.sink.take() {
            put(sink.buffer(), entry::THREAD_EXIT, 8, state.tid);
            put(sink.buffer(), entry::FOOTER, 0, 0);
            let bytes = sink.finish()?;
            state.totals.entries = bytes / 12;
            self.outputs.closed(bytes);
        }
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.entries += state.totals.entries;
        all.open += state.totals.open;
        Ok(())
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
