//! Adds up what retired, per thread and per process.
//!
//! Rules:
//! * A block that ran plainly costs one addition; its sums are multiplied out once per chunk ([`Tally`]).
//! * A conditional branch is counted when it is known where it went: when the next block of its stream begins, or a signal tells the
//!   pc that it interrupted. A branch whose stream ends before that is counted neither as taken nor as not taken. One
//!   whose target is the next instruction anyway counts as not taken.

use comfy_table::{CellAlignment, Table as TextTable, presets};
use consumer::{
    Analysis, BlockExec, BlockInfo, By, Chunk, Consumer, Error, Format, Item, Options, Pool, Process, RegionChange,
    Regions, Source, Stream, Summary, Sums, Tally, run,
};
use decode::{Class, Target};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// Settings: none.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Count { format, by: None, state: State::default() })
    }
}

struct Count {
    format: Format,
    by: Option<By>,
    state: State,
}

/// Sums and branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What blocks add up to.
    pub sums: Sums,
    /// Conditional branches that went elsewhere.
    pub branches_taken: u64,
    /// Conditional branches that went on.
    pub branches_not_taken: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.sums += other.sums;
        self.branches_taken += other.branches_taken;
        self.branches_not_taken += other.branches_not_taken;
    }
}

/// No conditional branch waits for its outcome. (No instruction begins at the last address.)
const NONE: u64 = u64::MAX;

/// What branches need of a block.
#[derive(Clone, Copy, Debug)]
struct Flow {
    pc: u64,
    /// Where its last branch goes on if it is conditional and not taken, else [`NONE`].
    fall_through: u64,
}

impl Default for Flow {
    fn default() -> Self {
        Flow { pc: NONE, fall_through: NONE }
    }
}

impl Flow {
    fn of(target: Option<Target>, info: &BlockInfo) -> Flow {
        Flow { pc: info.pc, fall_through: conditional(target, info).map_or(NONE, |b| b.fall_through) }
    }
}

/// The conditional branch that ends a block.
fn conditional(target: Option<Target>, info: &BlockInfo) -> Option<decode::Branch> {
    let insns = info.insns.iter().enumerate().map(|(i, insn)| (insn.pc, info.bytes(i)));
    decode::block_branch(target?, info.flags, insns).filter(|b| b.class == Class::CondBranch)
}

/// What a part of a stream adds up to.
struct Batch {
    totals: Totals,
    /// If asked for: what ran up to each change of the open regions, and after the last one.
    segments: Vec<(Sums, Option<RegionChange>)>,
    /// Where the part's first block began, or a signal interrupted before it.
    first_pc: Option<u64>,
    /// Where the branch that waits at the part's end would go on.
    waiting: u64,
}

#[derive(Default)]
struct Counter {
    by: Option<By>,
    scratch: Pool<Tally<Flow>>,
}

/// Follows conditional branches to where they go.
#[derive(Clone, Copy)]
struct Branches {
    first_pc: Option<u64>,
    waiting: u64,
    /// Conditional branches that arrived somewhere, and 2^32 for each that was not taken: one word, since the loop over plain blocks is
    /// short of registers. A chunk has fewer than 2^32 words.
    arrived: u64,
}

impl Default for Branches {
    fn default() -> Self {
        Branches { first_pc: None, waiting: NONE, arrived: 0 }
    }
}

impl Branches {
    #[inline(always)]
    fn arrive(&mut self, pc: u64) {
        self.arrived += u64::from(self.waiting == pc) << 32 | u64::from(self.waiting != NONE);
    }

    fn conditional(&self) -> u64 {
        self.arrived & 0xffff_ffff
    }

    fn not_taken(&self) -> u64 {
        self.arrived >> 32
    }

    /// Any execution of a block.
    #[inline(never)]
    fn block(&mut self, block: &BlockExec<'_>, flow: Flow, target: Option<Target>) {
        if !block.is_resumed() {
            self.first_pc.get_or_insert(flow.pc);
            self.arrive(flow.pc);
        }
        let whole = block.ran_to_end() && !block.is_resumed();
        self.waiting = if whole { flow.fall_through } else { waits(target, block) };
    }
}

impl Consumer for Counter {
    type Batch = Batch;
    type State = State;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Batch, Error> {
        self.scratch.with(|tally| {
            let table = chunk.table();
            tally.start(table);
            let target = Target::named(&table.info().target);
            let mut b = Branches::default();
            let mut items = chunk.items();
            let mut segments = Vec::new();
            let mut counted = Sums::default();
            let walked = loop {
                // The first one tells where the branch before this part went.
                if b.first_pc.is_some() {
                    let mut fast = b;
                    tally.add_plain(&mut items, |flow| {
                        fast.arrive(flow.pc);
                        fast.waiting = flow.fall_through;
                    });
                    b = fast;
                }
                match items.next() {
                    None => break Ok(()),
                    Some(Err(e)) => break Err(e),
                    Some(Ok(Item::Block(block))) => {
                        let flow = tally.add(&block, |info| Flow::of(target, info));
                        b.block(&block, flow, target);
                    }
                    Some(Ok(Item::Event(event))) => {
                        if let Some(from) = event.came_at() {
                            b.first_pc.get_or_insert(from);
                            b.arrive(from);
                            b.waiting = NONE;
                        }
                        if let Some(change) = RegionChange::of(&event, self.by) {
                            let mut sums = Sums::default();
                            tally.finish(table, |_, s| sums += s);
                            counted += sums;
                            segments.push((sums, Some(change)));
                        }
                    }
                }
            };
            if let Err(e) = walked {
                tally.clear();
                return Err(e);
            }
            let mut totals = Totals {
                branches_taken: b.conditional() - b.not_taken(),
                branches_not_taken: b.not_taken(),
                ..Totals::default()
            };
            tally.finish(table, |_, sums| totals.sums += sums);
            if self.by.is_some() {
                segments.push((totals.sums, None));
            }
            totals.sums += counted;
            Ok(Batch { totals, segments, first_pc: b.first_pc, waiting: b.waiting })
        })
    }

    fn reduce(&self, state: &mut State, stream: &Stream, batch: Batch) -> Result<(), Error> {
        let thread = state.thread(stream);
        thread.totals.add(&batch.totals);
        let mut ran = Vec::new();
        for (sums, change) in batch.segments {
            ran.push((thread.regions.current().to_string(), sums));
            if let Some(change) = change {
                thread.regions.change(change);
            }
        }
        if let Some(pc) = batch.first_pc {
            if thread.waiting != NONE {
                match thread.waiting == pc {
                    true => thread.totals.branches_not_taken += 1,
                    false => thread.totals.branches_taken += 1,
                }
            }
            thread.waiting = batch.waiting;
        }
        for (region, sums) in ran {
            *state.regions.entry(region).or_default() += sums;
        }
        Ok(())
    }

    fn lost(&self, state: &mut State, stream: &Stream, chunks: u64) -> Result<(), Error> {
        let thread = state.thread(stream);
        thread.waiting = NONE;
        thread.lost += chunks;
        Ok(())
    }

    fn ended(&self, state: &mut State, stream: &Stream) -> Result<(), Error> {
        state.thread(stream);
        Ok(())
    }
}

/// Where the conditional branch of an execution that was not plain goes on, if it retired.
#[inline(never)]
fn waits(target: Option<Target>, block: &BlockExec<'_>) -> u64 {
    let retired = block.start()..block.start() + block.retired();
    match conditional(target, block.info()) {
        Some(branch) if retired.contains(&branch.insn) && block.state() != consumer::State::Aborted => {
            branch.fall_through
        }
        _ => NONE,
    }
}

struct Thread {
    process: Arc<Process>,
    tid: u32,
    totals: Totals,
    waiting: u64,
    regions: Regions,
    lost: u64,
}

/// The totals of all threads.
#[derive(Default)]
struct State {
    /// By number of the stream.
    threads: BTreeMap<usize, Thread>,
    /// By name, if asked for; outside of all regions it is empty.
    regions: BTreeMap<String, Sums>,
}

impl State {
    fn thread(&mut self, stream: &Stream) -> &mut Thread {
        self.threads.entry(stream.number).or_insert_with(|| Thread {
            process: stream.process.clone(),
            tid: stream.tid,
            totals: Totals::default(),
            waiting: NONE,
            regions: Regions::default(),
            lost: 0,
        })
    }
}

#[derive(Serialize)]
struct Numbers {
    insns: u64,
    aborted: u64,
    loads: u64,
    stores: u64,
    load_bytes: u64,
    store_bytes: u64,
    blocks: u64,
    branches_taken: u64,
    branches_not_taken: u64,
}

impl From<&Totals> for Numbers {
    fn from(t: &Totals) -> Numbers {
        Numbers {
            insns: t.sums.insns,
            aborted: t.sums.aborted,
            loads: t.sums.loads,
            stores: t.sums.stores,
            load_bytes: t.sums.load_bytes,
            store_bytes: t.sums.store_bytes,
            blocks: t.sums.blocks,
            branches_taken: t.branches_taken,
            branches_not_taken: t.branches_not_taken,
        }
    }
}

#[derive(Serialize)]
struct ThreadReport {
    pid: u32,
    tid: u32,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize)]
struct ProcessReport {
    pid: u32,
    program: String,
    threads: usize,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    numbers: Numbers,
    threads: usize,
    lost_chunks: u64,
    per_process: Vec<ProcessReport>,
    per_thread: Vec<ThreadReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    per_region: Vec<RegionReport>,
}

/// Branches are not followed by region.
#[derive(Serialize)]
struct RegionReport {
    region: String,
    insns: u64,
    aborted: u64,
    loads: u64,
    stores: u64,
    load_bytes: u64,
    store_bytes: u64,
    blocks: u64,
}

impl State {
    fn report(&self) -> Report {
        let mut all = Totals::default();
        let mut processes: BTreeMap<usize, (&Process, usize, Totals)> = BTreeMap::new();
        for t in self.threads.values() {
            all.add(&t.totals);
            let (_, threads, totals) = processes.entry(t.process.number).or_insert((&t.process, 0, Totals::default()));
            *threads += 1;
            totals.add(&t.totals);
        }
        Report {
            numbers: (&all).into(),
            threads: self.threads.len(),
            lost_chunks: self.threads.values().map(|t| t.lost).sum(),
            per_process: processes
                .values()
                .map(|(p, threads, totals)| ProcessReport {
                    pid: p.pid,
                    program: String::from_utf8_lossy(&p.program).into_owned(),
                    threads: *threads,
                    numbers: totals.into(),
                })
                .collect(),
            per_thread: self
                .threads
                .values()
                .map(|t| ThreadReport { pid: t.process.pid, tid: t.tid, numbers: (&t.totals).into() })
                .collect(),
            per_region: self
                .regions
                .iter()
                .map(|(region, s)| RegionReport {
                    region: region.clone(),
                    insns: s.insns,
                    aborted: s.aborted,
                    loads: s.loads,
                    stores: s.stores,
                    load_bytes: s.load_bytes,
                    store_bytes: s.store_bytes,
                    blocks: s.blocks,
                })
                .collect(),
        }
    }
}

impl Numbers {
    fn columns(&self) -> [(&'static str, u64); 9] {
        [
            ("insns", self.insns),
            ("aborted", self.aborted),
            ("loads", self.loads),
            ("stores", self.stores),
            ("load bytes", self.load_bytes),
            ("store bytes", self.store_bytes),
            ("blocks", self.blocks),
            ("taken", self.branches_taken),
            ("not taken", self.branches_not_taken),
        ]
    }
}

/// `1234567` as `1 234 567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

fn text(report: &Report, out: &mut dyn Write) -> Result<(), Error> {
    let mut table = TextTable::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec!["".to_string()];
    header.extend(report.numbers.columns().iter().map(|c| c.0.to_string()));
    table.set_header(header);
    let mut row = |name: String, numbers: &Numbers| {
        let mut cells = vec![name];
        cells.extend(numbers.columns().iter().map(|c| grouped(c.1)));
        table.add_row(cells);
    };
    if report.per_thread.len() > 1 {
        for t in &report.per_thread {
            row(format!("thread {}", t.tid), &t.numbers);
        }
    }
    if report.per_process.len() > 1 {
        for p in &report.per_process {
            row(format!("process {} {}", p.pid, p.program), &p.numbers);
        }
    }
    for r in &report.per_region {
        let name = if r.region.is_empty() { "outside".into() } else { r.region.clone() };
        let numbers = [r.insns, r.aborted, r.loads, r.stores, r.load_bytes, r.store_bytes, r.blocks];
        let mut cells = vec![name];
        cells.extend(numbers.map(grouped));
        table.add_row(cells);
    }
    let mut cells = vec!["total".to_string()];
    cells.extend(report.numbers.columns().iter().map(|c| grouped(c.1)));
    table.add_row(cells);
    for i in 1..=report.numbers.columns().len() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    if report.lost_chunks > 0 {
        writeln!(out, "{} chunks were lost: the totals are too low", report.lost_chunks)?;
    }
    Ok(())
}

impl Analysis for Count {
    fn name(&self) -> &'static str {
        "count"
    }
    fn by(&mut self, by: By) -> bool {
        self.by = Some(by);
        true
    }
    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        let counter = Counter { by: self.by, ..Counter::default() };
        run(source, &counter, &mut self.state, options)
    }
    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let report = self.state.report();
        match self.format {
            Format::Text => text(&report, out),
            Format::Json => {
                let json = serde_json::to_string(&report).map_err(|e| Error::Consumer(e.to_string()))?;
                Ok(writeln!(out, "{json}")?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer::layout::{FLAG_ABORTED, FLAG_REEXEC, info, kind};
    use consumer::testing::{ChunkBuilder, TableBuilder, feed, insn, load, store};

    fn count(table: TableBuilder, chunks: &[Vec<u64>]) -> Totals {
        let table = table.finish();
        let show = |s: &State| s.threads.values().next().map(|t| t.totals);
        feed(&Counter::default(), &table, chunks, State::default, show).unwrap().0.unwrap()
    }

    #[test]
    fn a_loop_of_dec_and_jnz_counts_its_branches() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        // 1: dec %ecx; jnz 1b
        let body = t.block(0x1000, &[insn(&[0xff, 0xc9], &[]), insn(&[0x75, 0xfc], &[])]);
        let after = t.block(0x1004, &[insn(&[0x8b, 0x07], &[load(4)]), insn(&[0xc3], &[load(8)])]);
        let one = (0..1000).fold(ChunkBuilder::new(), |c, _| c.block(body, &[]));
        let two = ChunkBuilder::new().block(body, &[]).block(after, &[0x10, 0x20]);
        let totals = count(t, &[one.words(), two.words()]);
        assert_eq!(totals.sums.insns, 2 * 1001 + 2);
        assert_eq!((totals.sums.loads, totals.sums.load_bytes, totals.sums.blocks), (2, 12, 1002));
        assert_eq!((totals.branches_taken, totals.branches_not_taken), (1000, 1));
    }

    #[test]
    fn an_aborted_store_is_not_retired_and_stores_nothing() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[insn(&[0x90], &[]), insn(&[0x89, 0x07], &[store(4)])]);
        let chunk = ChunkBuilder::new()
            .partial(b, 1, FLAG_ABORTED, 0, &[0])
            .record(kind::SIGNAL, &[11, 0x1001, 0x9000])
            .partial(b, 1, FLAG_REEXEC, 0, &[0])
            .block(b, &[0x40]);
        let totals = count(t, &[chunk.words()]);
        assert_eq!(totals.sums.insns, 1 + 1 + 2);
        assert_eq!((totals.sums.aborted, totals.sums.stores, totals.sums.store_bytes), (1, 1, 4));
    }

    #[test]
    fn optional_and_helper_accesses_count_if_they_were_made() {
        let mut t = TableBuilder::new("arm", 4, false);
        let b = t.block(0x1000, &[insn(&[0, 0, 0x90, 5], &[load(4).with(info::OPTIONAL)])]);
        let chunk = ChunkBuilder::new().block(b, &[0, 0]).block(b, &[1, 0x40]).block(b, &[1, 0x40]).access(
            b,
            0,
            &[info::STORE | 16, 0x80, 8, 0x90],
        );
        let totals = count(t, &[chunk.words()]);
        assert_eq!((totals.sums.insns, totals.sums.loads, totals.sums.load_bytes), (3, 3, 16));
        assert_eq!((totals.sums.stores, totals.sums.store_bytes), (1, 16));
    }

    #[test]
    fn a_signal_after_a_branch_tells_where_it_went() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let b = t.block(0x1000, &[insn(&[0x75, 0xfe], &[])]);
        let handler = t.block(0x9000, &[insn(&[0xc3], &[])]);
        let chunk = ChunkBuilder::new()
            .block(b, &[])
            .record(kind::SIGNAL, &[14, 0x1002, 0x9000])
            .block(handler, &[])
            .block(b, &[])
            .record(kind::SIGNAL, &[14, 0x1000, 0x9000]);
        let totals = count(t, &[chunk.words()]);
        assert_eq!((totals.branches_taken, totals.branches_not_taken), (1, 1));
    }

    #[test]
    fn json_has_the_keys_that_users_rely_on() {
        let mut analysis = Args::default().analysis(Format::Json);
        let mut out = Vec::new();
        analysis.report(&mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        for key in
            ["insns", "aborted", "loads", "stores", "load_bytes", "store_bytes", "blocks", "threads", "branches_taken"]
        {
            assert_eq!(json[key], 0, "{key}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!((grouped(7), grouped(1234), grouped(1234567)), ("7".into(), "1 234".into(), "1 234 567".into()));
    }
}
