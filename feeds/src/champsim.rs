//! ChampSim's traces: 64 bytes an instruction (`input_instr` of its `inc/trace_instruction.h`), or 96 (`cloudsuite_instr`), little-endian, no header.
//!
//! ```text
//! input_instr       0 u64 ip | 8 u8 is_branch | 9 u8 taken | 10 u8 dst[2] | 12 u8 src[4] | 16 u64 dst_mem[2] | 32 u64 src_mem[4]
//! cloudsuite_instr  0 u64 ip | 8 u8 is_branch | 9 u8 taken | 10 u8 dst[4] | 14 u8 src[4] | 24 u64 dst_mem[4] | 56 u64 src_mem[4] | 88 u8 asid[2]
//! ```
//!
//! The simulator infers a branch's kind from the registers (its `inc/instruction.h`): stack pointer 6, flags 25, instruction pointer 26. So those of
//! branches are put together by the kind, whatever the ISA: a call "reads and writes" the stack pointer also where it does not. Other registers are
//! 27 + the decoder's number. 0 means none, so an access of address 0 cannot be told; it is counted.
//!
//! Merged streams are a core's that runs threads in turns. A branch is followed by its own thread's next instruction, which its target is read from: a turn never ends
//! with a branch. `asid` is the number of the process then.

use crate::linear::{Feed, Insn, branch_at};
use crate::sink::{Outputs, Shared, Sink};
use consumer::{BlockInfo, Error, Stream, TableInfo};
use decode::{Class, Reg, Registers, Target, effects};
use smallvec::SmallVec;
use std::sync::Mutex;

const STACK_POINTER: u8 = 6;
const FLAGS: u8 = 25;
const INSTRUCTION_POINTER: u8 = 26;
/// Stands for a source that is known to be there, but not which.
const SOMETHING: u8 = 255;

/// The record's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `input_instr`.
    Plain,
    /// `cloudsuite_instr`.
    Cloudsuite,
}

impl Layout {
    fn bytes(self) -> usize {
        if self == Layout::Plain { 64 } else { 96 }
    }
    /// Where destination registers, source registers, stores and loads stand, and how many.
    fn fields(self) -> [(usize, usize); 4] {
        match self {
            Layout::Plain => [(10, 2), (12, 4), (16, 2), (32, 4)],
            Layout::Cloudsuite => [(10, 4), (14, 4), (24, 4), (56, 4)],
        }
    }
}

/// What did not fit, or is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Source registers.
    pub sources: u64,
    /// Destination registers.
    pub destinations: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Accesses of address 0.
    pub zeros: u64,
    /// Instructions whose registers no decoder knows.
    pub unknown: u64,
    /// Conditional branches whose outcome is not known: the last of a stream.
    pub open: u64,
}

/// Branches by kind, as the program has them.
pub type Branches = [u64; 6];

/// The feed.
pub struct ChampSim<'o> {
    layout: Layout,
    outputs: &'o Outputs,
    totals: Mutex<Totals>,
    shared: Shared<Option<Sink>>,
}

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Records.
    pub insns: u64,
    /// Direct jumps, indirect jumps, conditional branches, direct calls, indirect calls, returns.
    pub branches: Branches,
    /// What was dropped.
    pub dropped: Dropped,
}

/// An instruction's record without what changes.
pub struct Template {
    record: Box<[u8]>,
    class: Class,
    /// Where a conditional branch goes on if it is not taken.
    fall_through: u64,
    dropped_sources: u8,
    dropped_destinations: u8,
    unknown: bool,
}

/// Of a stream.
pub struct State {
    /// Its output, if it is not merged with the others; none if it is left out.
    own: Option<Option<Sink>>,
    /// Records of branches that wait for what comes after them.
    held: Vec<u8>,
    process: u16,
    totals: Totals,
}

impl<'o> ChampSim<'o> {
    /// Writes to `outputs`.
    pub fn new(layout: Layout, outputs: &'o Outputs) -> Self {
        ChampSim { layout, outputs, totals: Mutex::default(), shared: Shared::new(outputs) }
    }

    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Writes the records that were held.
    fn put(&self, state: &mut State) -> Result<(), Error> {
        let State { own, held, .. } = state;
        self.shared.with(own, |sink| {
            let Some(sink) = sink else { return Ok(()) };
            sink.buffer().append(held);
            sink.put()
        })
    }

    fn close(&self, sink: Option<Sink>) -> Result<(), Error> {
        sink.map_or(Ok(()), |sink| {
            self.outputs.closed(sink.finish()?);
            Ok(())
        })
    }
}

/// A register's number in the trace.
pub fn number(reg: Reg) -> u8 {
    match reg {
        Reg::STACK_POINTER => STACK_POINTER,
        Reg::FLAGS => FLAGS,
        reg => 27 + reg.number(),
    }
}

/// Registers as the simulator is to see them: (destinations, sources).
pub fn operands(class: Class, registers: Option<Registers>) -> (SmallVec<[u8; 8]>, SmallVec<[u8; 8]>) {
    let regs = registers.unwrap_or_default();
    // Addresses are in general registers: they come first, then the flags, then the data of floating point.
    let order = |r: &Reg| (!r.is_general(), *r != Reg::FLAGS, r.number());
    let sorted = |set: decode::RegSet| {
        let mut all: SmallVec<[Reg; 16]> = set.iter().collect();
        all.sort_by_key(order);
        all.into_iter().map(number).collect::<SmallVec<[u8; 8]>>()
    };
    let (mut dst, mut src) = (sorted(regs.defines), sorted(regs.uses));
    let (ip, sp) = (INSTRUCTION_POINTER, STACK_POINTER);
    let only_other = |src: &mut SmallVec<[u8; 8]>| src.retain(|r| !matches!(*r, STACK_POINTER | FLAGS));
    let front = |list: &mut SmallVec<[u8; 8]>, regs: &[u8]| {
        list.retain(|r| !regs.contains(r));
        list.insert_from_slice(0, regs);
    };
    match class {
        Class::Other | Class::Unknown => {}
        Class::CondBranch => {
            src.retain(|r| *r != sp);
            dst.retain(|r| *r != sp);
            if src.is_empty() {
                src.push(FLAGS);
            }
            front(&mut src, &[ip]);
            front(&mut dst, &[ip]);
        }
        Class::Jump => {
            src.clear();
            front(&mut src, &[ip]);
            front(&mut dst, &[ip]);
        }
        Class::IndirectJump => {
            only_other(&mut src);
            if src.is_empty() {
                src.push(SOMETHING);
            }
            front(&mut dst, &[ip]);
        }
        Class::Call => {
            src.clear();
            front(&mut src, &[ip, sp]);
            front(&mut dst, &[ip, sp]);
        }
        Class::IndirectCall => {
            only_other(&mut src);
            if src.is_empty() {
                src.push(SOMETHING);
            }
            front(&mut src, &[ip, sp]);
            front(&mut dst, &[ip, sp]);
        }
        Class::Return => {
            front(&mut src, &[sp]);
            front(&mut dst, &[ip, sp]);
        }
    }
    (dst, src)
}

fn kind(class: Class) -> Option<usize> {
    Some(match class {
        Class::Jump => 0,
        Class::IndirectJump => 1,
        Class::CondBranch => 2,
        Class::Call => 3,
        Class::IndirectCall => 4,
        Class::Return => 5,
        Class::Other | Class::Unknown => return None,
    })
}

impl Feed for ChampSim<'_> {
    type Block = Box<[Template]>;
    type State = State;

    fn begin(&self, stream: &Stream, table: &TableInfo) -> Result<State, Error> {
        match Target::named(&table.target) {
            Some(t) if !t.has_delay_slots() => {}
            _ => {
                return Err(Error::Consumer(format!(
                    "no ChampSim traces of {}: branches with delay slots have no place in them, nor have ISAs that no decoder knows; \
                     x86_64, aarch64 and riscv64 are what the simulator is used with",
                    table.target
                )));
            }
        }
        let own = self.shared.begin(|| self.outputs.open(stream))?;
        let process = if own.is_none() { stream.process.number as u16 } else { 0 };
        Ok(State { own, held: Vec::new(), process, totals: Totals::default() })
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Box<[Template]> {
        let target = Target::named(&table.target);
        let [(dst_at, dst_max), (src_at, src_max), ..] = self.layout.fields();
        (0..block.insns.len())
            .map(|i| {
                let bytes = block.bytes(i);
                let insn = block.insns[i];
                let mut record = vec![0u8; self.layout.bytes()].into_boxed_slice();
                record[..8].copy_from_slice(&insn.pc.to_le_bytes());
                let registers = target.and_then(|t| effects(t, block.flags, bytes)).and_then(|e| e.registers);
                let branch = branch_at(target, block, i);
                let class = branch.map_or(Class::Other, |b| b.class);
                let (dst, src) = operands(class, registers);
                let (dst_n, src_n) = (dst.len().min(dst_max), src.len().min(src_max));
                record[dst_at..dst_at + dst_n].copy_from_slice(&dst[..dst_n]);
                record[src_at..src_at + src_n].copy_from_slice(&src[..src_n]);
                record[8] = u8::from(kind(class).is_some());
                record[9] = u8::from(!matches!(class, Class::Other | Class::Unknown | Class::CondBranch));
                Template {
                    record,
                    class,
                    fall_through: branch.map_or(0, |b| b.fall_through),
                    dropped_sources: (src.len() - src_n) as u8,
                    dropped_destinations: (dst.len() - dst_n) as u8,
                    unknown: registers.is_none(),
                }
            })
            .collect()
    }

    fn insn(&self, state: &mut State, block: &Box<[Template]>, insn: &Insn<'_>) -> Result<(), Error> {
        if matches!(state.own, Some(None)) {
            return Ok(());
        }
        let template = &block[insn.index];
        let totals = &mut state.totals;
        let [_, _, (store_at, store_max), (load_at, load_max)] = self.layout.fields();
        let from = state.held.len();
        state.held.extend_from_slice(&template.record);
        let record = &mut state.held[from..];
        if self.layout == Layout::Cloudsuite {
            record[88..90].copy_from_slice(&state.process.to_le_bytes());
        }
        let (mut loads, mut stores) = (0, 0);
        for a in insn.accesses {
            if a.addr == 0 {
                totals.dropped.zeros += 1;
                continue;
            }
            let (n, at, max, dropped) = if a.is_store() {
                (&mut stores, store_at, store_max, &mut totals.dropped.stores)
            } else {
                (&mut loads, load_at, load_max, &mut totals.dropped.loads)
            };
            if *n < max {
                let at = at + 8 * *n;
                record[at..at + 8].copy_from_slice(&a.addr.to_le_bytes());
                *n += 1;
            } else {
                *dropped += 1;
            }
        }
        if template.class == Class::CondBranch {
            match insn.next {
                Some(next) => record[9] = u8::from(next != template.fall_through),
                None => totals.dropped.open += 1,
            }
        }
        totals.insns += 1;
        if let Some(k) = kind(template.class) {
            totals.branches[k] += 1;
        }
        totals.dropped.sources += u64::from(template.dropped_sources);
        totals.dropped.destinations += u64::from(template.dropped_destinations);
        totals.dropped.unknown += u64::from(template.unknown);
        // Of its own output nobody takes turns.
        if state.own.is_some() || kind(template.class).is_none() { self.put(state) } else { Ok(()) }
    }

    fn end(&self, mut state: State, _: &Stream, _: u64) -> Result<(), Error> {
        self.put(&mut state)?;
        let t = state.totals;
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.insns += t.insns;
        all.branches.iter_mut().zip(t.branches).for_each(|(a, b)| *a += b);
        let d = &mut all.dropped;
        d.sources += t.dropped.sources;
        d.destinations += t.dropped.destinations;
        d.loads += t.dropped.loads;
        d.stores += t.dropped.stores;
        d.zeros += t.dropped.zeros;
        d.unknown += t.dropped.unknown;
        d.open += t.dropped.open;
        self.close(state.own.flatten())
    }

    fn finish(&self) -> Result<(), Error> {
        self.close(self.shared.take().flatten())
    }
}
