//! Traces of the value prediction championship (CVP-1) and of the branch prediction championship of 2025 (CBP2025), as their readers
//! (`cvp_trace_reader.h`, `lib/trace_reader.h`) describe them; little-endian, packed.
//!
//! ```text
//! u64 pc | u8 class
//! load, store   u64 address | u8 size | CBP2025: u8 updates its base | CBP2025, store: u8 has an offset register
//! branch        u8 taken | u64 target, if taken
//! u8 n, u8 inputs[n] | u8 n, u8 outputs[n] | for each output its value: 8 bytes, of 32 to 63 16
//! classes       0 ALU | 1 load | 2 store | 3 conditional | 4 direct jump | 5 indirect jump | 6 floating point | 7 slow ALU (products, quotients)
//!               CBP2025: 9 direct call | 10 indirect call | 11 return; CVP-1: 4, 5, 5
//! registers     0-30 general, 31 stack pointer | 32-63 vector | 64 flags | CBP2025: 65 zero
//! ```
//!
//! The registers are AArch64's, and readers take an instruction for four bytes long: other ISAs are refused. What CBP2025's reader asserts holds:
//! * A store's first input is its base, then its offset, then what is stored. It has an output only if it updates its base: the status of an exclusive
//!   store is left out, and counted.
//! * A load has an output (register 65 if the result is thrown away), and at most one general register that is input and output: more are no
//!   inputs, and counted.
//! * A system call's output is register 0 with the kernel's result.
//! * CVP-1's size is that of one register, CBP2025's of the whole access. An instruction that loads and stores (atomics) is a load; its store is counted.

use crate::linear::{Feed, Insn, branch_at};
use crate::registers::{RESTARTED, SIGRETURN, Sets};
use crate::sink::{Outputs, Sink};
use consumer::{BlockInfo, Error, Event, Stream, TableInfo};
use decode::{Class, Isa, Kinds, Reg, Target, branch_target, effects};
use smallvec::SmallVec;
use std::sync::Mutex;

/// Which championship's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Year {
    /// CVP-1.
    Cvp1,
    /// CBP2025.
    Cbp2025,
}

mod class {
    pub const ALU: u8 = 0;
    pub const LOAD: u8 = 1;
    pub const STORE: u8 = 2;
    pub const CONDITIONAL: u8 = 3;
    pub const DIRECT: u8 = 4;
    pub const INDIRECT: u8 = 5;
    pub const FLOAT: u8 = 6;
    pub const SLOW: u8 = 7;
    pub const CALL: u8 = 9;
    pub const INDIRECT_CALL: u8 = 10;
    pub const RETURN: u8 = 11;
}

const STACK_POINTER: u8 = 31;
const FLAGS: u8 = 64;
const ZERO: u8 = 65;
/// The register of a system call's result.
const RESULT: u8 = 0;
/// N, Z, C, V in what the debugger calls `cpsr`.
const NZCV: u128 = 0xf000_0000;

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Records.
    pub insns: u64,
    /// Outputs whose value is not known: they are left out.
    pub unknown: u64,
    /// Inputs and outputs without a place.
    pub dropped: u64,
    /// Stores of instructions that are loads.
    pub stores: u64,
    /// Last branches, of which nothing is known: they are left out.
    pub open: u64,
}

/// The feed.
pub struct Championship<'o> {
    year: Year,
    outputs: &'o Outputs,
    totals: Mutex<Totals>,
}

impl<'o> Championship<'o> {
    /// Writes to `outputs`.
    pub fn new(year: Year, outputs: &'o Outputs) -> Self {
        Championship { year, outputs, totals: Mutex::default() }
    }
    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Of an instruction.
pub struct Static {
    branch: Class,
    fall_through: u64,
    /// Where a direct branch goes.
    target: Option<u64>,
    /// If it makes no access and is no branch.
    class: u8,
    uses: SmallVec<[u8; 8]>,
    defines: SmallVec<[Reg; 4]>,
    /// Registers that have no number here.
    dropped: u8,
    operands: Operands,
    calls_kernel: bool,
}

/// Operands of an access by what they are for.
#[derive(Default)]
struct Operands {
    base: Option<u8>,
    /// The base gets a new value.
    updates: bool,
    offset: Option<u8>,
    /// What a store stores; the zero register, too.
    stored: SmallVec<[u8; 4]>,
}

/// Of a stream.
pub struct State {
    sink: Option<Sink>,
    sets: Sets,
    totals: Totals,
    /// A system call's record up to its outputs, until the result is known.
    call: Option<Vec<u8>>,
}

impl State {
    /// The system call before has this result, or none.
    fn returned(&mut self, result: Option<i64>) {
        let (Some(sink), Some(call)) = (&mut self.sink, self.call.take()) else { return };
        let out = sink.buffer();
        out.extend_from_slice(&call);
        match result {
            None => out.push(0),
            Some(result) => {
                out.extend_from_slice(&[1, RESULT]);
                out.extend_from_slice(&result.to_le_bytes());
            }
        }
    }
}

fn number(reg: Reg) -> Option<u8> {
    match reg {
        Reg::STACK_POINTER => Some(STACK_POINTER),
        Reg::FLAGS => Some(FLAGS),
        reg if reg.is_general() || is_vector(reg.number()) => Some(reg.number()),
        _ => None,
    }
}

fn is_vector(number: u8) -> bool {
    (32..64).contains(&number)
}

/// Operands of a load or store, from its encoding (Arm's architecture, "loads and stores"); it uses so many vector registers.
fn operands(w: u32, vectors: u32) -> Operands {
    if w & 0x0a00_0000 != 0x0800_0000 {
        // Not of that group: cache maintenance, which names an address and stores nothing of a register.
        return Operands::default();
    }
    let general = |n: u32| if n & 31 == 31 { ZERO } else { (n & 31) as u8 };
    let base = (w >> 5 & 31) as u8;
    let vector = w >> 26 & 1 != 0;
    let data = |n: u32| if vector { 32 + (n & 31) as u8 } else { general(n) };
    let (t, t2, m) = (w, w >> 10, w >> 16);
    let (group, bit) = (w >> 24 & 0x3f, |b: u32| w >> b & 1 != 0);
    if group & 0x3b == 0x18 {
        // Relative to the pc
        return Operands::default();
    }
    let updates = match group {
        0x0c | 0x0d | 0x28 | 0x29 | 0x2c | 0x2d => bit(23),
        0x38 | 0x3c if bit(21) => bit(10) && bit(11),
        0x38 | 0x3c => bit(10),
        _ => false,
    };
    let mut of = Operands { base: Some(base), updates, ..Operands::default() };
    match group {
        // Exclusive, ordered, compare-and-swap
        0x08 | 0x09 => {
            of.stored.push(general(t));
            if bit(31) && bit(21) && !bit(23) {
                of.stored.push(general(t2));
            }
        }
        // Structures of vectors
        0x0c | 0x0d => {
            of.stored.extend((0..vectors).map(|k| data(t + k)));
            // Its step is a register.
            of.offset = (bit(23) && m & 31 != 31).then(|| general(m));
        }
        // Pairs
        0x28 | 0x29 | 0x2c | 0x2d => of.stored.extend([data(t), data(t2)]),
        0x38 | 0x3c if bit(21) && w >> 10 & 3 == 2 => {
            of.stored.push(data(t));
            of.offset = Some(general(m));
        }
        // Atomics: what is added, swapped, …
        0x38 if bit(21) => of.stored.push(general(m)),
        _ => of.stored.push(data(t)),
    }
    of
}

/// Products and quotients.
fn is_slow(w: u32) -> bool {
    w & 0x1f00_0000 == 0x1b00_0000 || w & 0x5fe0_f800 == 0x1ac0_0800
}

impl Feed for Championship<'_> {
    type Block = Box<[Static]>;
    type State = State;

    fn begin(&self, stream: &Stream, table: &TableInfo) -> Result<State, Error> {
        if Target::named(&table.target).is_none_or(|t| t.isa != Isa::Aarch64) {
            return Err(Error::Consumer(format!(
                "no championship traces of {}: their registers are AArch64's",
                table.target
            )));
        }
        Ok(State { sink: self.outputs.open(stream)?, sets: Sets::new(table), totals: Totals::default(), call: None })
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Self::Block {
        let target = Target::named(&table.target);
        (0..block.insns.len())
            .map(|i| {
                let bytes = block.bytes(i);
                let w = bytes.try_into().map_or(0, u32::from_le_bytes);
                let effects = target.and_then(|t| effects(t, block.flags, bytes)).unwrap_or_default();
                let registers = effects.registers.unwrap_or_default();
                let (mut uses, mut dropped) = (SmallVec::<[u8; 8]>::new(), 0);
                for reg in registers.uses.iter() {
                    match number(reg) {
                        Some(n) => uses.push(n),
                        None => dropped += 1,
                    }
                }
                let vectors = uses.iter().filter(|n| is_vector(**n)).count() as u32;
                let defines: SmallVec<[Reg; 4]> =
                    registers.defines.iter().filter(|reg| number(*reg).is_some()).collect();
                let branch = branch_at(target, block, i);
                Static {
                    branch: branch.map_or(Class::Other, |b| b.class),
                    fall_through: branch.map_or(0, |b| b.fall_through),
                    target: target.and_then(|t| branch_target(t, block.flags, block.insns[i].pc, bytes)),
                    class: match effects.kinds {
                        k if k.intersects(Kinds::FLOAT | Kinds::VECTOR) => class::FLOAT,
                        _ if is_slow(w) => class::SLOW,
                        _ => class::ALU,
                    },
                    dropped: dropped + (registers.defines.len() - defines.len()) as u8,
                    uses,
                    defines,
                    operands: operands(w, vectors),
                    calls_kernel: effects.kinds.intersects(Kinds::SYSCALL),
                }
            })
            .collect()
    }

    fn insn(&self, state: &mut State, block: &Self::Block, insn: &Insn<'_>) -> Result<(), Error> {
        state.returned(None);
        let Some(sink) = &mut state.sink else { return Ok(()) };
        state.sets.required(if self.year == Year::Cvp1 { "CVP-1" } else { "CBP2025" })?;
        let s = &block[insn.index];
        let totals = &mut state.totals;
        let cbp = self.year == Year::Cbp2025;
        let taken = match s.branch {
            Class::Other | Class::Unknown => None,
            Class::CondBranch => insn.next.map(|n| (n != s.fall_through).then_some(n)),
            _ => insn.next.or(s.target).map(Some),
        };
        let class = match s.branch {
            Class::Other | Class::Unknown => match insn.accesses.first() {
                None => s.class,
                Some(_) if insn.accesses.iter().all(|a| a.is_store()) => class::STORE,
                Some(_) if s.defines.is_empty() && insn.accesses.iter().any(|a| a.is_store()) => class::STORE,
                Some(_) => class::LOAD,
            },
            Class::CondBranch => class::CONDITIONAL,
            Class::Jump => class::DIRECT,
            Class::Call => [class::DIRECT, class::CALL][usize::from(cbp)],
            Class::IndirectJump => class::INDIRECT,
            Class::IndirectCall => [class::INDIRECT, class::INDIRECT_CALL][usize::from(cbp)],
            Class::Return => [class::INDIRECT, class::RETURN][usize::from(cbp)],
        };
        let is_branch = !matches!(s.branch, Class::Other | Class::Unknown);
        if is_branch && taken.is_none() {
            totals.open += 1;
            return Ok(());
        }
        let Operands { base, updates, .. } = s.operands;
        // What comes out.
        let mut outputs: SmallVec<[(u8, u128); 4]> = SmallVec::new();
        for reg in &s.defines {
            let Some(n) = number(*reg) else { continue };
            if class == class::STORE && cbp && !(updates && Some(n) == base) {
                totals.dropped += 1;
                continue;
            }
            match state.sets.value(insn, *reg) {
                Some(value) => outputs.push((n, if n == FLAGS { value & NZCV } else { value })),
                None => totals.unknown += 1,
            }
        }
        if class == class::LOAD && cbp && outputs.is_empty() {
            outputs.push((ZERO, 0));
        }
        // What goes in.
        let mut inputs: SmallVec<[u8; 8]> = SmallVec::new();
        if class == class::STORE {
            let of = &s.operands;
            inputs.extend(base);
            inputs.extend(of.offset.filter(|n| cbp || *n != ZERO));
            inputs.extend(of.stored.iter().copied().filter(|n| cbp || *n != ZERO));
            if base.is_none() {
                inputs.extend(s.uses.iter().copied());
            }
            if inputs.is_empty() && cbp {
                inputs.push(ZERO);
            }
        } else {
            let is_output = |n: u8| outputs.iter().any(|o| o.0 == n);
            let limited = class == class::LOAD && cbp;
            let both = if updates { base } else { s.uses.iter().copied().find(|n| is_output(*n)) };
            for n in &s.uses {
                if limited && *n < 32 && is_output(*n) && Some(*n) != both {
                    totals.dropped += 1;
                } else {
                    inputs.push(*n);
                }
            }
        }
        totals.dropped += u64::from(s.dropped);

        let mut call = s.calls_kernel.then(Vec::new);
        let out = call.as_mut().unwrap_or(sink.buffer());
        out.extend_from_slice(&insn.pc().to_le_bytes());
        out.push(class);
        if matches!(class, class::LOAD | class::STORE) {
            let store = class == class::STORE;
            let mine = || insn.accesses.iter().filter(|a| a.is_store() == store);
            totals.stores += if store { 0 } else { insn.accesses.iter().filter(|a| a.is_store()).count() as u64 };
            let addr = mine().map(|a| a.addr).min().unwrap_or(0);
            let whole: u64 = mine().map(|a| u64::from(a.size)).sum();
            let registers = if store { s.operands.stored.len() } else { outputs.len() - usize::from(updates) };
            let size = if cbp { whole } else { whole / registers.max(1) as u64 };
            out.extend_from_slice(&addr.to_le_bytes());
            out.push(size.min(255) as u8);
            if cbp {
                out.push(u8::from(updates));
                out.extend(store.then_some(u8::from(s.operands.offset.is_some())));
            }
        }
        if let (true, Some(taken)) = (is_branch, taken) {
            out.push(u8::from(taken.is_some()));
            taken.iter().for_each(|target| out.extend_from_slice(&target.to_le_bytes()));
        }
        out.push(inputs.len() as u8);
        out.extend_from_slice(&inputs);
        totals.insns += 1;
        if s.calls_kernel {
            state.call = call;
            return Ok(());
        }
        out.push(outputs.len() as u8);
        out.extend(outputs.iter().map(|o| o.0));
        for (n, value) in &outputs {
            let bytes = value.to_le_bytes();
            out.extend_from_slice(&bytes[..if is_vector(*n) { 16 } else { 8 }]);
        }
        sink.put()
    }

    fn event(&self, state: &mut State, event: &Event) -> Result<(), Error> {
        state.sets.learn(event);
        if let Event::SyscallRet { result, .. } = event {
            // Neither one that is made again nor the return from a signal's handler has a result.
            state.returned((!matches!(*result, RESTARTED | SIGRETURN)).then_some(*result));
        }
        Ok(())
    }

    fn end(&self, mut state: State, _: &Stream, _: u64) -> Result<(), Error> {
        state.returned(None);
        let t = state.totals;
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.insns += t.insns;
        all.unknown += t.unknown;
        all.dropped += t.dropped;
        all.stores += t.stores;
        all.open += t.open;
        if let Some(sink) = state.sink {
            self.outputs.closed(sink.finish()?);
        }
        Ok(())
    }
}
