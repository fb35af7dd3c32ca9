//! STF 1.6, the Simulation Trace Format for RISC-V: `records/*.yml` of its specification and, where that is silent, its own library.
//!
//! ```text
//! a record: u8 kind, then its fields, packed, little-endian
//! header       01 "STF" | 02 u32 1, u32 6 | 03 u32 n, text | 04 u16 1 (RISC-V) | 05 u16 1 RV32, 2 RV64
//!              06 u8 1 (QEMU), u8 major, u8 minor, u8 patch, u16 n, text | 07 u64 features | 08 u32 hart, u32 pid, u32 tid | 09 u64 pc | 13
//! instruction  [09 u64 pc] [1f u64 target, if taken] (28 u16 register, u8 type | 0x20 source or 0x30 destination, u64 value)… (3c u64 addr, u16 size, u16 attributes, u8 1 load or 2 store | 3d u64 value …)…
//!              [64 u64 event, u8 n, u64 data …] then f0 u32 or f1 u16: the encoding, which ends the group
//! ```
//!
//! Rules:
//! * Where an instruction is follows from the one before: its end, or its target. Where that is not so (signals, gaps), 09 stands before it.
//! * Each access has its value: 8 bytes a record, the lowest first. A stream without values is refused.
//! * Registers are there if the analyzer sent them: types 1 integer, 2 floating point. A destination's value is what it was after the instruction; a
//!   source's is what was last known of it: a result of a system call, or what an instruction before defined. One that is not known is left out, as
//!   all are after a signal, the return from it and a gap, until something defines them again.

use crate::linear::{Feed, Insn, branch_at};
use crate::registers::{RESTARTED, SIGRETURN, Sets};
use crate::sink::{Outputs, Sink};
use consumer::{BlockInfo, Error, Event, GuestEvent, Stream, TableInfo};
use decode::{Class, Isa, Reg, RegSet, Registers, Target, effects};
use std::sync::Mutex;

mod kind {
    pub const IDENTIFIER: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const COMMENT: u8 = 3;
    pub const ISA: u8 = 4;
    pub const IEM: u8 = 5;
    pub const INFO: u8 = 6;
    pub const FEATURES: u8 = 7;
    pub const PROCESS: u8 = 8;
    pub const FORCE_PC: u8 = 9;
    pub const END_HEADER: u8 = 19;
    pub const PC_TARGET: u8 = 31;
    pub const REGISTER: u8 = 40;
    pub const ACCESS: u8 = 60;
    pub const CONTENT: u8 = 61;
    pub const EVENT: u8 = 100;
    pub const OPCODE32: u8 = 240;
    pub const OPCODE16: u8 = 241;
}

/// Trace features: events, RV64, process ids, events of 64 bits.
const FEATURES: u64 = 0x8 | 0x400 | 0x8_0000;
const FEATURE_RV64: u64 = 0x20;
/// Operands have values.
const FEATURE_OPERANDS: u64 = 4;
const SOURCE: u8 = 0x20;
const DESTINATION: u8 = 0x30;
/// The register of a system call's result: a0.
const RESULT: u8 = 10;
/// The event of the privilege mode, and the user's.
const MODE_CHANGE: u64 = 1 << 62;
const USER: u64 = 0;

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Branches that were taken.
    pub taken: u64,
    /// Places where the pc does not follow from the instruction before.
    pub forced: u64,
    /// Accesses whose value is not known: 0 stands there.
    pub unknown: u64,
    /// Sources whose value is not known: they are left out.
    pub sources: u64,
}

/// The feed.
pub struct Stf<'o> {
    outputs: &'o Outputs,
    totals: Mutex<Totals>,
}

impl<'o> Stf<'o> {
    /// Writes to `outputs`.
    pub fn new(outputs: &'o Outputs) -> Self {
        Stf { outputs, totals: Mutex::default() }
    }
    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Of a stream.
pub struct State {
    sink: Option<Sink>,
    totals: Totals,
    bits: u8,
    ids: (u32, u32, u32),
    /// Where the next instruction is if nothing else is said; `None` before the first.
    expected: Option<u64>,
    /// Some access had a value.
    valued: bool,
    sets: Sets,
    /// By the decoder's number: what is known of integer and floating-point registers.
    known: [Option<u64>; 64],
}

/// Its number in the trace: 0 to 31 integer, then floating point.
fn place(reg: Reg) -> Option<u8> {
    match reg {
        Reg::STACK_POINTER => Some(2),
        reg if reg.number() < 64 => Some(reg.number()),
        _ => None,
    }
}

impl State {
    /// Operands of an instruction with these registers; `None` if nobody knows which they are.
    fn operands(&mut self, out: &mut Vec<u8>, registers: Option<Registers>, insn: &Insn<'_>) {
        let Some(registers) = registers else {
            self.known = [None; 64];
            return;
        };
        if !self.sets.any() {
            return;
        }
        let mut record = |place: u8, what: u8, value: u64| {
            out.push(kind::REGISTER);
            out.extend_from_slice(&u16::from(place & 31).to_le_bytes());
            out.push(what | if place < 32 { 1 } else { 2 });
            out.extend_from_slice(&value.to_le_bytes());
        };
        let places = |set: RegSet| set.iter().filter_map(|reg| Some((reg, place(reg)?)));
        for (_, place) in places(registers.uses) {
            match self.known[usize::from(place)] {
                Some(value) => record(place, SOURCE, value),
                None => self.totals.sources += 1,
            }
        }
        for (reg, place) in places(registers.defines) {
            let value = self.sets.value(insn, reg).map(|v| v as u64);
            self.known[usize::from(place)] = value;
            if let Some(value) = value {
                record(place, DESTINATION, value);
            }
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, kind: u8, value: u64) {
    out.push(kind);
    out.extend_from_slice(&value.to_le_bytes());
}

/// The versions' numbers of this crate.
fn version() -> [u8; 3] {
    let part = |text: &str| text.parse().unwrap_or(0);
    [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")].map(part)
}

fn header(out: &mut Vec<u8>, state: &State, pc: u64) {
    let mut features = FEATURES;
    features |= if state.bits == 64 { FEATURE_RV64 } else { 0 };
    features |= if state.sets.any() { FEATURE_OPERANDS } else { 0 };
    out.push(kind::IDENTIFIER);
    text(out, "STF");
    out.push(kind::VERSION);
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&6u32.to_le_bytes());
    let comment = concat!("trapline ", env!("CARGO_PKG_VERSION"));
    out.push(kind::COMMENT);
    out.extend_from_slice(&(comment.len() as u32).to_le_bytes());
    text(out, comment);
    out.push(kind::ISA);
    out.extend_from_slice(&1u16.to_le_bytes());
    out.push(kind::IEM);
    out.extend_from_slice(&(if state.bits == 64 { 2u16 } else { 1 }).to_le_bytes());
    out.push(kind::INFO);
    out.push(1);
    out.extend_from_slice(&version());
    out.extend_from_slice(&(comment.len() as u16).to_le_bytes());
    text(out, comment);
    number(out, kind::FEATURES, features);
    let (hart, pid, tid) = state.ids;
    out.push(kind::PROCESS);
    [hart, pid, tid].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    number(out, kind::FORCE_PC, pc);
    out.push(kind::END_HEADER);
}

impl Feed for Stf<'_> {
    /// By instruction: its kind, where it goes on if it is not taken, its registers.
    type Block = Box<[(Class, u64, Option<Registers>)]>;
    type State = State;

    fn begin(&self, stream: &Stream, table: &TableInfo) -> Result<State, Error> {
        let Some(target) = Target::named(&table.target).filter(|t| t.isa == Isa::Riscv) else {
            return Err(Error::Consumer(format!("no STF of {}: the format is RISC-V's", table.target)));
        };
        Ok(State {
            sink: self.outputs.open(stream)?,
            totals: Totals::default(),
            bits: target.bits,
            ids: (stream.vcpu, stream.process.pid, stream.tid),
            expected: None,
            valued: false,
            sets: Sets::new(table),
            known: [None; 64],
        })
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Self::Block {
        let target = Target::named(&table.target);
        (0..block.insns.len())
            .map(|i| {
                let (class, next) =
                    branch_at(target, block, i).map_or((Class::Other, 0), |b| (b.class, b.fall_through));
                let effects = target.and_then(|t| effects(t, block.flags, block.bytes(i)));
                (class, next, effects.and_then(|e| e.registers))
            })
            .collect()
    }

    fn insn(&self, state: &mut State, block: &Self::Block, insn: &Insn<'_>) -> Result<(), Error> {
        let Some(mut sink) = state.sink.take() else { return Ok(()) };
        let out = sink.buffer();
        let pc = insn.pc();
        let first = state.expected.is_none();
        if first {
            header(out, state, pc);
        } else if state.expected != Some(pc) {
            number(out, kind::FORCE_PC, pc);
            state.totals.forced += 1;
        }
        let (class, fall_through, registers) = block[insn.index];
        state.expected = Some(pc.wrapping_add(u64::from(insn.len())));
        let goes = match class {
            Class::Other | Class::Unknown => None,
            Class::CondBranch => insn.next.filter(|n| *n != fall_through),
            _ => insn.next,
        };
        if let Some(goes) = goes {
            number(out, kind::PC_TARGET, goes);
            state.expected = Some(goes);
            state.totals.taken += 1;
        }
        state.operands(out, registers, insn);
        for a in insn.accesses {
            if a.value.is_none() && !state.valued {
                return Err(Error::Consumer(
                    "STF needs the values of accesses, and these have none: trapline run --opt values=on, or record --values".into(),
                ));
            }
            state.valued = true;
            state.totals.unknown += u64::from(a.value.is_none());
            number(out, kind::ACCESS, a.addr);
            out.extend_from_slice(&(a.size.min(0xffff) as u16).to_le_bytes());
            out.extend_from_slice(&[0, 0, if a.is_store() { 2 } else { 1 }]);
            let value = a.value.unwrap_or(0);
            for part in 0..a.size.div_ceil(8).max(1) {
                number(out, kind::CONTENT, value.checked_shr(64 * part).unwrap_or(0) as u64);
            }
        }
        if first {
            number(out, kind::EVENT, MODE_CHANGE);
            out.push(1);
            out.extend_from_slice(&USER.to_le_bytes());
        }
        let bytes = insn.bytes();
        out.push(match bytes.len() {
            2 => kind::OPCODE16,
            4 => kind::OPCODE32,
            n => return Err(Error::Consumer(format!("no STF of an instruction of {n} bytes, at {pc:#x}"))),
        });
        out.extend_from_slice(bytes);
        sink.put()?;
        state.sink = Some(sink);
        Ok(())
    }

    fn event(&self, state: &mut State, event: &Event) -> Result<(), Error> {
        state.sets.learn(event);
        match event {
            Event::SyscallRet { result: RESTARTED, .. } => state.known[usize::from(RESULT)] = None,
            Event::SyscallRet { result, .. } if *result != SIGRETURN => {
                state.known[usize::from(RESULT)] = Some(*result as u64);
            }
            Event::SyscallRet { .. } | Event::Signal { .. } | Event::Exception { .. } | Event::Moved { .. } => {
                state.known = [None; 64];
            }
            Event::Guest { what: GuestEvent::Stop { .. }, .. } => state.known = [None; 64],
            _ => {}
        }
        Ok(())
    }

    fn end(&self, mut state: State, _: &Stream, _: u64) -> Result<(), Error> {
        if let Some(mut sink) = state.sink.take() {
            if state.expected.is_none() {
                header(sink.buffer(), &state, 0);
            }
            self.outputs.closed(sink.finish()?);
        }
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.taken += state.totals.taken;
        all.forced += state.totals.forced;
        all.unknown += state.totals.unknown;
        all.sources += state.totals.sources;
        Ok(())
    }
}
