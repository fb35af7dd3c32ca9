//! SimPoint's basic-block vectors: a line an interval, `T:id:n :id:n …`, with n the instructions that ran in the block.
//!
//! A basic block begins where the program came from a branch, and ends with the next one: it does not depend on how QEMU cut the code. Its name is its
//! process and first pc; ids are dense and begin at 1, in the order of first execution of each stream. An interval has exactly as many instructions as were asked
//! for; the last one has what is left. A block that an interval's end cuts counts in both, each time with what ran there. Merged streams share ids and
//! intervals.

use crate::linear::{Feed, Insn};
use crate::sink::{Outputs, Shared, Sink};
use consumer::{BlockInfo, Error, Stream, TableInfo};
use decode::{Class, Target, classify};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;

/// The feed.
pub struct Vectors<'o> {
    outputs: &'o Outputs,
    interval: u64,
    totals: Mutex<Totals>,
    shared: Shared<Lane>,
}

/// What is told at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Lines written.
    pub intervals: u64,
    /// Different basic blocks, over all streams.
    pub blocks: u64,
}

impl<'o> Vectors<'o> {
    /// Intervals of `interval` instructions.
    pub fn new(interval: u64, outputs: &'o Outputs) -> Self {
        Vectors { outputs, interval: interval.max(1), totals: Mutex::default(), shared: Shared::new(outputs) }
    }
    /// Over all streams.
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Of a stream.
pub struct State {
    /// `None` if it is merged with the others.
    own: Option<Lane>,
    /// Its process' number.
    process: usize,
    /// The block that is running.
    block: Option<u32>,
    slot: bool,
}

/// Of an output.
pub struct Lane {
    sink: Option<Sink>,
    /// By process and pc.
    ids: HashMap<(usize, u64), u32>,
    /// By id - 1: instructions in this interval.
    counts: Vec<u64>,
    touched: Vec<u32>,
    left: u64,
    intervals: u64,
}

impl Lane {
    fn line(&mut self) -> Result<(), Error> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        self.touched.sort_unstable();
        let out = sink.buffer();
        let mut separator = "T";
        for id in self.touched.drain(..) {
            let n = std::mem::take(&mut self.counts[id as usize - 1]);
            // Writing to memory does not fail.
            let _ = write!(out, "{separator}:{id}:{n}");
            separator = " ";
        }
        out.push(b'\n');
        self.intervals += 1;
        sink.put()
    }
}

impl Vectors<'_> {
    fn close(&self, mut lane: Lane) -> Result<(), Error> {
        if !lane.touched.is_empty() {
            lane.line()?;
        }
        let mut all = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        all.intervals += lane.intervals;
        all.blocks += lane.ids.len() as u64;
        if let Some(sink) = lane.sink {
            self.outputs.closed(sink.finish()?);
        }
        Ok(())
    }
}

impl Feed for Vectors<'_> {
    /// By instruction: it is a branch.
    type Block = (Box<[bool]>, bool);
    type State = State;

    fn begin(&self, stream: &Stream, _: &TableInfo) -> Result<State, Error> {
        let own = self.shared.begin(|| {
            Ok(Lane {
                sink: self.outputs.open(stream)?,
                ids: HashMap::new(),
                counts: Vec::new(),
                touched: Vec::new(),
                left: self.interval,
                intervals: 0,
            })
        })?;
        Ok(State { own, process: stream.process.number, block: None, slot: false })
    }

    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Self::Block {
        let target = Target::named(&table.target);
        let branch = |i: usize| {
            target.is_some_and(|t| !matches!(classify(t, block.flags, block.bytes(i)), Class::Other | Class::Unknown))
        };
        ((0..block.insns.len()).map(branch).collect(), target.is_some_and(Target::has_delay_slots))
    }

    fn insn(&self, state: &mut State, (branches, slots): &Self::Block, insn: &Insn<'_>) -> Result<(), Error> {
        let pc = insn.pc();
        let State { own, process, block, .. } = state;
        self.shared.with(own, |lane| {
            let id = *block.get_or_insert_with(|| {
                let next = lane.ids.len() as u32 + 1;
                *lane.ids.entry((*process, pc)).or_insert(next)
            });
            if lane.counts.len() < id as usize {
                lane.counts.resize(id as usize, 0);
            }
            let count = &mut lane.counts[id as usize - 1];
            if *count == 0 {
                lane.touched.push(id);
            }
            *count += 1;
            lane.left -= 1;
            if lane.left == 0 {
                lane.left = self.interval;
                lane.line()?;
            }
            Ok(())
        })?;
        let branch = branches[insn.index];
        let follows = insn.next == Some(pc.wrapping_add(u64::from(insn.len())));
        // A delay slot is the branch's; what came elsewhere than after it ends a block too: signals, system calls that return from them.
        let ends = if *slots { state.slot || (!branch && !follows) } else { branch || !follows };
        state.slot = *slots && branch;
        if ends {
            state.block = None;
        }
        Ok(())
    }

    fn end(&self, state: State, _: &Stream, _: u64) -> Result<(), Error> {
        state.own.map_or(Ok(()), |lane| self.close(lane))
    }

    fn finish(&self) -> Result<(), Error> {
        self.shared.take().map_or(Ok(()), |lane| self.close(lane))
    }
}
