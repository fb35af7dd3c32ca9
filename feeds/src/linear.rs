//! Streams as the instructions that retired, one after the other: with all their accesses, and with what came next.
//!
//! Rules:
//! * An instruction that QEMU takes up again, or whose block crosses a chunk's end, is one instruction with all its accesses.
//! * One that did not retire is left out, with its accesses.
//! * What comes next is the pc that ran next in the stream: the interrupted one if a signal came in between, nothing at a stream's end
//!   and where tracing stopped.
//! * Chunks are decoded in parallel; the rest is done in order, as feeds have state (caches, numbers, look-ahead).

use consumer::{
    Access, BlockExec, BlockInfo, Chunk, Consumer, Error, Event, GuestEvent, Item, Status, Stream, Table, TableInfo,
};
use decode::{Branch, Target, block_branch};
use std::collections::HashMap;
use std::sync::Arc;

/// The branch that an instruction of a block is. By the instructions up to it: Thumb's IT makes a branch conditional.
pub fn branch_at(target: Option<Target>, block: &BlockInfo, index: usize) -> Option<Branch> {
    let insns = (0..index + 1).map(|i| (block.insns[i].pc, block.bytes(i)));
    target.and_then(|t| block_branch(t, block.flags, insns)).filter(|b| b.insn == index)
}

/// An instruction that retired.
#[derive(Clone, Copy, Debug)]
pub struct Insn<'a> {
    /// Its block, for what is static.
    pub block: &'a BlockInfo,
    /// Its index in the block.
    pub index: usize,
    /// Its accesses, in program order.
    pub accesses: &'a [Access],
    /// Registers after it, as far as the analyzer sent them.
    pub defined: &'a [Defined],
    /// The pc that ran next in this stream; `None` where that is not known.
    pub next: Option<u64>,
    /// Number of the instruction in its stream, from 0.
    pub number: u64,
}

impl Insn<'_> {
    /// Guest virtual address.
    pub fn pc(&self) -> u64 {
        self.block.insns[self.index].pc
    }
    /// Length in bytes.
    pub fn len(&self) -> u8 {
        self.block.insns[self.index].len
    }
    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Its bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        self.block.bytes(self.index)
    }
}

/// A register after an instruction. Only of sets of one register, which has up to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defined {
    /// Index of the instruction in its block.
    pub insn: u16,
    /// Number of the set.
    pub set: u64,
    /// Its value.
    pub value: u128,
}

impl Defined {
    fn of(event: Event) -> Option<Defined> {
        match event {
            Event::Regs { insn, set, after: true, values, .. } => match values[..] {
                [low] => Some(Defined { insn, set, value: low.into() }),
                [low, high] => Some(Defined { insn, set, value: u128::from(low) | u128::from(high) << 64 }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What is made of the instructions of each stream.
pub trait Feed: Sync {
    /// What is worked out once for each block.
    type Block;
    /// What there is of each stream.
    type State;

    /// A stream begins.
    fn begin(&self, stream: &Stream, table: &TableInfo) -> Result<Self::State, Error>;
    /// What does not change of a block, worked out at its first execution in a stream's table.
    fn block(&self, table: &TableInfo, block: &BlockInfo) -> Self::Block;
    /// An instruction retired.
    fn insn(&self, state: &mut Self::State, block: &Self::Block, insn: &Insn<'_>) -> Result<(), Error>;
    /// Something else happened, after the instruction before.
    fn event(&self, state: &mut Self::State, event: &Event) -> Result<(), Error> {
        let _ = (state, event);
        Ok(())
    }
    /// Nothing of the stream follows; `insns` instructions retired in it.
    fn end(&self, state: Self::State, stream: &Stream, insns: u64) -> Result<(), Error>;
    /// All streams have ended.
    fn finish(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Drives a [`Feed`].
pub struct Linear<'f, F>(pub &'f F);

/// A chunk, decoded.
#[derive(Default)]
pub struct Batch {
    table: Option<Arc<Table>>,
    steps: Vec<Step>,
    made: Made,
}

/// What instructions did.
#[derive(Clone, Default)]
struct Made {
    accesses: Vec<Access>,
    defined: Vec<Defined>,
}

/// The part of it up to which a step goes.
#[derive(Clone, Copy, Default)]
struct Upto {
    accesses: usize,
    defined: usize,
}

/// A part of it.
#[derive(Clone, Copy)]
struct Part<'a> {
    accesses: &'a [Access],
    defined: &'a [Defined],
}

impl Made {
    fn upto(&self) -> Upto {
        Upto { accesses: self.accesses.len(), defined: self.defined.len() }
    }
    fn extend(&mut self, part: Part<'_>) {
        self.accesses.extend_from_slice(part.accesses);
        self.defined.extend_from_slice(part.defined);
    }
    /// From where the last part ended, which becomes `to`.
    fn part(&self, from: &mut Upto, to: Upto) -> Part<'_> {
        let begin = std::mem::replace(from, to);
        Part {
            accesses: self.accesses.get(begin.accesses..to.accesses).unwrap_or(&[]),
            defined: self.defined.get(begin.defined..to.defined).unwrap_or(&[]),
        }
    }
    fn whole(&self) -> Part<'_> {
        Part { accesses: &self.accesses, defined: &self.defined }
    }
}

impl<'a> Part<'a> {
    /// What the instruction at `index` did; the rest stays.
    fn take(&mut self, index: usize) -> Part<'a> {
        let of = |insn: u16| usize::from(insn) == index;
        let accesses = self.accesses.iter().take_while(|a| of(a.insn)).count();
        let defined = self.defined.iter().take_while(|d| of(d.insn)).count();
        let (mine, accesses) = self.accesses.split_at(accesses);
        let (own, defined) = self.defined.split_at(defined);
        *self = Part { accesses, defined };
        Part { accesses: mine, defined: own }
    }
    fn to_made(self) -> Made {
        Made { accesses: self.accesses.to_vec(), defined: self.defined.to_vec() }
    }
}

enum Step {
    /// Instructions of a block, from `start` to before `end`, retired; with what they did up to here.
    Block {
        id: u32,
        start: u16,
        end: u16,
        upto: Upto,
    },
    /// Of an instruction of it that goes on later: what it did up to here.
    Part {
        id: u32,
        index: u16,
        upto: Upto,
    },
    /// An instruction did not retire: what was kept of it is dropped.
    Aborted {
        pc: u64,
    },
    Event(Box<Event>),
}

/// An instruction whose next one has not come.
struct Pending {
    table: Arc<Table>,
    id: u32,
    index: usize,
    made: Made,
}

/// Of one stream.
struct Lane<F: Feed> {
    state: F::State,
    stream: Stream,
    pending: Option<Pending>,
    /// What happened after it.
    after: Vec<Event>,
    /// What instructions did that go on later, by pc; more than one if signal handlers ran in between.
    parts: Vec<(u64, Made)>,
    insns: u64,
}

/// More signal handlers than this, one in the other, and the outermost instruction is forgotten.
const MOST_PARTS: usize = 64;

/// Everything that a feed has made so far.
pub struct Lanes<F: Feed> {
    lanes: HashMap<usize, Lane<F>>,
    /// By table and block number.
    blocks: HashMap<u64, Vec<Option<F::Block>>>,
    /// Instructions of streams that have ended.
    insns: u64,
    lost: u64,
}

impl<F: Feed> Default for Lanes<F> {
    fn default() -> Self {
        Lanes { lanes: HashMap::new(), blocks: HashMap::new(), insns: 0, lost: 0 }
    }
}

impl<F: Feed> Lanes<F> {
    /// Instructions that retired.
    pub fn insns(&self) -> u64 {
        self.insns + self.lanes.values().map(|l| l.insns).sum::<u64>()
    }
    /// Chunks that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl<F: Feed> Consumer for Linear<'_, F> {
    type Batch = Batch;
    type State = Lanes<F>;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Batch, Error> {
        let mut batch = Batch { table: Some(chunk.shared_table().clone()), ..Batch::default() };
        for item in chunk.items() {
            match item? {
                Item::Block(block) => batch.block(&block),
                Item::Event(event) => batch.steps.push(Step::Event(Box::new(event))),
            }
        }
        Ok(batch)
    }

    fn reduce(&self, lanes: &mut Lanes<F>, stream: &Stream, batch: Batch) -> Result<(), Error> {
        let Some(table) = batch.table else { return Ok(()) };
        let Lanes { lanes, blocks, .. } = lanes;
        let lane = match lanes.entry(stream.number) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => e.insert(Lane {
                state: self.0.begin(stream, table.info())?,
                stream: stream.clone(),
                pending: None,
                after: Vec::new(),
                parts: Vec::new(),
                insns: 0,
            }),
        };
        let blocks = blocks.entry(table.serial()).or_default();
        let mut at = Upto::default();
        for step in batch.steps {
            match step {
                Step::Block { id, start, end, upto } => {
                    let made = batch.made.part(&mut at, upto);
                    self.run(lane, blocks, &table, id, usize::from(start)..usize::from(end), made)?;
                }
                Step::Part { id, index, upto } => {
                    let made = batch.made.part(&mut at, upto);
                    let pc = table.known(id).and_then(|b| b.insns.get(usize::from(index))).map_or(0, |i| i.pc);
                    match lane.parts.iter().position(|p| p.0 == pc) {
                        Some(i) => lane.parts[i].1.extend(made),
                        None if lane.parts.len() < MOST_PARTS => lane.parts.push((pc, made.to_made())),
                        None => lane.parts[0] = (pc, made.to_made()),
                    }
                }
                Step::Aborted { pc } => lane.parts.retain(|p| p.0 != pc),
                Step::Event(event) => {
                    if let Some(from) = event.came_at() {
                        self.flush(lane, blocks, Some(from))?;
                    }
                    match *event {
                        Event::Guest { what: GuestEvent::Stop { depth: 0, .. }, .. } | Event::End { .. } => {
                            self.flush(lane, blocks, None)?;
                        }
                        _ => {}
                    }
                    if lane.pending.is_some() {
                        lane.after.push(*event);
                    } else {
                        self.0.event(&mut lane.state, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn lost(&self, lanes: &mut Lanes<F>, stream: &Stream, chunks: u64) -> Result<(), Error> {
        lanes.lost += chunks;
        let Lanes { lanes, blocks, .. } = lanes;
        if let Some(lane) = lanes.get_mut(&stream.number) {
            lane.parts.clear();
            let serial = lane.pending.as_ref().map(|p| p.table.serial());
            if let Some(blocks) = serial.and_then(|s| blocks.get_mut(&s)) {
                self.flush(lane, blocks, None)?;
            }
        }
        Ok(())
    }

    fn ended(&self, lanes: &mut Lanes<F>, stream: &Stream) -> Result<(), Error> {
        self.end(lanes, stream.number)
    }
}

impl<F: Feed> Linear<'_, F> {
    /// Nothing of a stream follows, or of any: the source ended before them.
    fn end(&self, lanes: &mut Lanes<F>, number: usize) -> Result<(), Error> {
        if let Some(mut lane) = lanes.lanes.remove(&number) {
            let serial = lane.pending.as_ref().map_or(0, |p| p.table.serial());
            self.flush(&mut lane, lanes.blocks.entry(serial).or_default(), None)?;
            lanes.insns += lane.insns;
            self.0.end(lane.state, &lane.stream, lane.insns)?;
        }
        Ok(())
    }

    /// Ends what the source has left open, and completes what is written.
    ///
    /// # Errors
    /// Those of the feed.
    pub fn finish(&self, lanes: &mut Lanes<F>) -> Result<(), Error> {
        let mut open: Vec<usize> = lanes.lanes.keys().copied().collect();
        open.sort_unstable();
        for number in open {
            self.end(lanes, number)?;
        }
        self.0.finish()
    }
}

impl Batch {
    fn block(&mut self, block: &BlockExec<'_>) {
        let (id, start) = (block.id(), block.start() as u16);
        let end = start + block.retired() as u16;
        if block.is_plain() {
            self.made.accesses.extend(block.plain_accesses());
            self.steps.push(Step::Block { id, start, end, upto: self.made.upto() });
            return;
        }
        let mut last = None;
        let mut notes = block.notes().filter_map(|(_, note)| Defined::of(note)).peekable();
        let mut until = |made: &mut Made, end: u16| {
            made.defined.extend(std::iter::from_fn(|| notes.next_if(|d| d.insn < end)));
        };
        for insn in block.insns() {
            match insn.status {
                Status::Retired => self.made.accesses.extend(insn.accesses()),
                Status::Aborted => last = Some(Step::Aborted { pc: insn.pc() }),
                Status::Continued => {
                    until(&mut self.made, end);
                    self.steps.push(Step::Block { id, start, end, upto: self.made.upto() });
                    self.made.accesses.extend(insn.accesses());
                    let index = insn.index() as u16;
                    until(&mut self.made, index + 1);
                    self.steps.push(Step::Part { id, index, upto: self.made.upto() });
                    return;
                }
            }
        }
        if end > start {
            until(&mut self.made, end);
            self.steps.push(Step::Block { id, start, end, upto: self.made.upto() });
        }
        self.steps.extend(last);
    }
}

impl<F: Feed> Linear<'_, F> {
    /// Instructions `range` of a block retired, and made these accesses.
    fn run(
        &self,
        lane: &mut Lane<F>,
        blocks: &mut Vec<Option<F::Block>>,
        table: &Arc<Table>,
        id: u32,
        range: std::ops::Range<usize>,
        mut made: Part<'_>,
    ) -> Result<(), Error> {
        let Some(info) = table.known(id) else { return Ok(()) };
        for index in range.clone() {
            let Some(insn) = info.insns.get(index) else { break };
            let mine = made.take(index);
            if index == range.start {
                self.flush(lane, blocks, Some(insn.pc))?;
            }
            if !insn.is_traced() {
                continue;
            }
            let whole;
            let mine = match lane.parts.iter().position(|p| p.0 == insn.pc) {
                None => mine,
                Some(i) => {
                    let mut earlier = lane.parts.swap_remove(i).1;
                    earlier.extend(mine);
                    whole = earlier;
                    whole.whole()
                }
            };
            if index + 1 < range.end {
                let next = info.insns.get(index + 1).map(|i| i.pc);
                let Part { accesses, defined } = mine;
                let insn = Insn { block: info, index, accesses, defined, next, number: lane.insns };
                lane.insns += 1;
                let block = known(self.0, blocks, table.info(), info);
                self.0.insn(&mut lane.state, block, &insn)?;
            } else {
                lane.pending = Some(Pending { table: table.clone(), id, index, made: mine.to_made() });
            }
        }
        Ok(())
    }

    /// What came after the pending instruction is known.
    fn flush(&self, lane: &mut Lane<F>, blocks: &mut Vec<Option<F::Block>>, next: Option<u64>) -> Result<(), Error> {
        let Some(pending) = lane.pending.take() else { return Ok(()) };
        let Some(info) = pending.table.known(pending.id) else { return Ok(()) };
        let Part { accesses, defined } = pending.made.whole();
        let insn = Insn { block: info, index: pending.index, accesses, defined, next, number: lane.insns };
        lane.insns += 1;
        let block = known(self.0, blocks, pending.table.info(), info);
        self.0.insn(&mut lane.state, block, &insn)?;
        for event in lane.after.drain(..) {
            self.0.event(&mut lane.state, &event)?;
        }
        Ok(())
    }
}

fn known<'a, F: Feed>(
    feed: &F,
    blocks: &'a mut Vec<Option<F::Block>>,
    table: &TableInfo,
    info: &BlockInfo,
) -> &'a F::Block {
    let number = info.number as usize;
    if blocks.len() <= number {
        blocks.resize_with(number + 1, || None);
    }
    blocks[number].get_or_insert_with(|| feed.block(table, info))
}
