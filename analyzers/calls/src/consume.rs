//! Follows calls and returns.

use crate::output::{self, Name};
use crate::tree::{Function, Node, ROOT, Region, Stack, Step, Tree};
use consumer::{
    Analysis, BlockExec, By, Chunk, Consumer, Error, Event, Format, Item, Options, Pool, RegionChange, RegionNames,
    Regions, Source, Stream, Summary,
};
use decode::{Class, Target, block_branch};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use symbols::{Maps, Symbolizer};

/// Settings.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {
    /// Write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write callgrind's format, for callgrind_annotate and KCachegrind
    #[arg(long, value_name = "FILE")]
    pub callgrind: Option<PathBuf>,
    /// Leave out of the tree what is less than this share of the instructions, in percent [default: 1]
    #[arg(long = "least", value_name = "PERCENT")]
    pub least: Option<f64>,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Calls { format, args: self, by: None, all: All::default() })
    }
}

struct Calls {
    format: Format,
    args: Args,
    by: Option<By>,
    all: All,
}

/// What happened, in order.
enum Part {
    /// A block, or what of it ran: where it begins, instructions that retired, and how it is left; `true` if after the next block, a delay slot.
    Block(u64, u64, Step, bool),
    Event(Event),
    Region(RegionChange),
}

#[derive(Default)]
struct Follow {
    by: Option<By>,
    scratch: Pool<Scratch>,
}

#[derive(Default)]
struct Scratch {
    table: Option<u64>,
    target: Option<Target>,
    /// By block number: index of the branch, how it leaves, whether a delay slot is to come.
    ends: Vec<Option<(usize, Step, bool)>>,
}

#[derive(Default)]
struct Process {
    pid: u32,
    maps: Maps,
    /// By pc of blocks: the function, and whether it begins there.
    known: HashMap<u64, (Function, bool)>,
}

#[derive(Default)]
struct Thread {
    tid: u32,
    pid: u32,
    tree: Tree,
    stack: Stack,
    /// How the last block was left.
    step: Option<Step>,
    /// That after the next block.
    later: Option<Step>,
    /// The open regions.
    open: Regions,
}

#[derive(Default)]
struct All {
    threads: BTreeMap<usize, Thread>,
    processes: BTreeMap<usize, Process>,
    names: Names,
    regions: RegionNames,
    command: String,
    lost: u64,
}

/// The functions that were met.
#[derive(Default)]
struct Names {
    symbols: Symbolizer,
    all: Vec<Name>,
    numbers: HashMap<(String, String, u64), Function>,
}

impl Names {
    /// The function at `pc`, and whether it begins there.
    fn function(&mut self, process: &mut Process, pc: u64) -> (Function, bool) {
        let Process { maps, known, .. } = process;
        *known.entry(pc).or_insert_with(|| {
            let at = self.symbols.locate(&maps.place(pc));
            let (name, start) = match at.function {
                Some(f) => (f.name, f.start),
                None => (format!("{:#x}", at.addr & !0xfff), 0),
            };
            let module = at.module.unwrap_or_default();
            let file = at.line.map(|l| l.0).unwrap_or_default();
            let key = (module.clone(), name.clone(), start);
            let function = *self.numbers.entry(key).or_insert_with(|| {
                self.all.push(Name { function: name, module, file });
                (self.all.len() - 1) as Function
            });
            (function, start != 0 && start == at.addr)
        })
    }
}

impl Scratch {
    fn end(&mut self, block: &BlockExec<'_>) -> (usize, Step, bool) {
        let info = block.info();
        let number = info.number as usize;
        if self.ends.len() <= number {
            self.ends.resize(number + 1, None);
        }
        let target = self.target;
        *self.ends[number].get_or_insert_with(|| {
            let insns = (0..info.insns.len()).map(|i| (info.insns[i].pc, info.bytes(i)));
            let Some(branch) = target.and_then(|t| block_branch(t, info.flags, insns)) else {
                return (info.insns.len() - 1, Step::Jump, false);
            };
            let step = match branch.class {
                Class::Call | Class::IndirectCall => Step::Call(branch.fall_through),
                Class::Return => Step::Return,
                _ => Step::Jump,
            };
            let slot = target.is_some_and(Target::has_delay_slots) && branch.insn + 1 == info.insns.len();
            (branch.insn, step, slot)
        })
    }
}

impl Consumer for Follow {
    type Batch = Vec<Part>;
    type State = All;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Part>, Error> {
        self.scratch.with(|scratch| {
            let table = chunk.table();
            if scratch.table != Some(table.serial()) {
                let target = Target::named(&table.info().target);
                *scratch = Scratch { table: Some(table.serial()), target, ends: Vec::new() };
            }
            let mut parts = Vec::new();
            for item in chunk.items() {
                match item? {
                    Item::Block(block) => {
                        let (branch, step, slot) = scratch.end(&block);
                        let retired = block.start()..block.start() + block.retired();
                        let pc = block.info().insns.get(block.start()).map_or(block.info().pc, |i| i.pc);
                        let (step, slot) = if retired.contains(&branch) { (step, slot) } else { (Step::Jump, false) };
                        parts.push(Part::Block(pc, retired.len() as u64, step, slot));
                    }
                    Item::Event(
                        event @ (Event::Mmap { .. }
                        | Event::Munmap { .. }
                        | Event::Image { .. }
                        | Event::Signal { .. }
                        | Event::SyscallRet { result: SIGRETURN, .. }),
                    ) => parts.push(Part::Event(event)),
                    Item::Event(event) => {
                        parts.extend(RegionChange::of(&event, self.by).map(Part::Region));
                    }
                }
            }
            Ok(parts)
        })
    }

    fn reduce(&self, all: &mut All, stream: &Stream, parts: Vec<Part>) -> Result<(), Error> {
        let number = stream.process.number;
        if all.command.is_empty() {
            all.command = String::from_utf8_lossy(&stream.process.program).into_owned();
        }
        if !all.processes.contains_key(&number) {
            // A forked child has what its parent had.
            let parent = all.processes.values().rev().find(|p| p.pid == stream.process.parent);
            let maps = parent.map(|p| p.maps.clone()).unwrap_or_default();
            all.processes.insert(number, Process { pid: stream.process.pid, maps, known: HashMap::new() });
        }
        let thread = all.threads.entry(stream.number).or_insert_with(|| Thread {
            tid: stream.tid,
            pid: stream.process.pid,
            ..Thread::default()
        });
        let All { names, regions, .. } = all;
        let Some(process) = all.processes.get_mut(&number) else { return Ok(()) };
        for part in parts {
            match part {
                Part::Block(pc, insns, step, slot) => {
                    let (function, entry) = names.function(process, pc);
                    let Thread { tree, stack, .. } = thread;
                    stack.arrive(tree, thread.step.take().unwrap_or(Step::Jump), pc, function, entry);
                    stack.count(tree, insns);
                    let step = thread.later.take().unwrap_or(step);
                    match slot {
                        true => (thread.step, thread.later) = (None, Some(step)),
                        false => thread.step = Some(step),
                    }
                }
                Part::Region(change) => {
                    thread.open.change(change);
                    thread.tree.region = regions.number(thread.open.current());
                }
                Part::Event(Event::Signal { from, .. }) => {
                    // It may strike before the first instruction of what was called, or of another signal's handler.
                    if let Some(step) = thread.step.take() {
                        let (function, entry) = names.function(process, from);
                        thread.stack.arrive(&mut thread.tree, step, from, function, entry);
                    }
                    thread.step = Some(Step::Signal(from));
                }
                Part::Event(Event::SyscallRet { .. }) => thread.step = Some(Step::Return),
                Part::Event(event) => {
                    process.known.clear();
                    match event {
                        Event::Mmap { addr, len, offset, path, .. } => process.maps.map(addr, len, offset, &path),
                        Event::Munmap { addr, len } => process.maps.unmap(addr, len),
                        Event::Image { bias, path, .. } => process.maps.load(bias, &path),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn lost(&self, all: &mut All, stream: &Stream, chunks: u64) -> Result<(), Error> {
        all.lost += chunks;
        if let Some(thread) = all.threads.get_mut(&stream.number) {
            (thread.stack, thread.step, thread.later) = (Stack::default(), None, None);
        }
        Ok(())
    }
}

/// QEMU's result of a system call that returns from a signal handler.
const SIGRETURN: i64 = -513;

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let written = std::fs::File::create(path).map(io::BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()
    });
    written.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())).into())
}

impl Calls {
    fn thread_name(thread: &Thread) -> String {
        format!("process {} thread {}", thread.pid, thread.tid)
    }

    /// What is shown of a thread: each region with its name, or all as one.
    fn shares(&self, thread: &Thread) -> Vec<Option<Region>> {
        match self.by.is_some() {
            true => thread.tree.regions().into_iter().map(Some).collect(),
            false => vec![None],
        }
    }

    /// The name of a share.
    fn share_name(&self, thread: &Thread, region: Option<Region>, between: &str) -> String {
        let mut name = Self::thread_name(thread);
        if let Some(region) = region {
            name.push_str(between);
            name.push_str(self.all.regions.shown(region));
        }
        name
    }

    fn text(&self, out: &mut dyn Write, thread: &Thread, region: Option<Region>) -> io::Result<()> {
        let inclusive = thread.tree.inclusive(region);
        let least = inclusive[ROOT] as f64 * self.args.least.unwrap_or(1.0) / 100.0;
        writeln!(out, "{}: {} instructions", self.share_name(thread, region, " -- "), inclusive[ROOT])?;
        let mut todo: Vec<(Node, usize)> =
            thread.tree.children(ROOT, &inclusive).into_iter().rev().map(|n| (n, 0)).collect();
        while let Some((node, depth)) = todo.pop() {
            let data = &thread.tree.nodes[node];
            let cost = data.cost(region);
            // Of a region, only what it reached.
            if (inclusive[node] as f64) < least || (inclusive[node] == 0 && cost.calls == 0) {
                continue;
            }
            let name = &self.all.names.all[data.function as usize].function;
            let indent = "  ".repeat(depth.min(60));
            writeln!(out, "{:>14} {:>14} {:>10}  {indent}{name}", inclusive[node], cost.insns, cost.calls)?;
            todo.extend(thread.tree.children(node, &inclusive).into_iter().rev().map(|n| (n, depth + 1)));
        }
        Ok(())
    }

    fn json(&self, thread: &Thread, region: Option<Region>) -> serde_json::Value {
        let mut json = serde_json::json!({
            "pid": thread.pid,
            "tid": thread.tid,
            "insns": thread.tree.inclusive(region)[ROOT],
            "calls": output::list(&thread.tree, region, &self.all.names.all),
        });
        if let Some(region) = region {
            json["region"] = self.all.regions.name(region).into();
        }
        json
    }
}

impl Analysis for Calls {
    fn name(&self) -> &'static str {
        "calls"
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
        let follow = Follow { by: self.by, ..Follow::default() };
        consumer::run(source, &follow, &mut self.all, options)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let all = &self.all;
        if let Some(path) = &self.args.folded {
            to_file(path, |out| {
                for thread in all.threads.values() {
                    for region in self.shares(thread) {
                        // What separates the parts must not be in one.
                        let base = self.share_name(thread, region, "\0").replace(';', ":").replace('\0', ";");
                        output::folded(out, &base, &thread.tree, region, &all.names.all)?;
                    }
                }
                Ok(())
            })?;
        }
        if let Some(path) = &self.args.callgrind {
            let trees: Vec<&Tree> = all.threads.values().map(|t| &t.tree).collect();
            to_file(path, |out| output::callgrind(out, &all.command, &trees, &all.names.all))?;
        }
        match self.format {
            Format::Text => {
                writeln!(out, "{:>14} {:>14} {:>10}", "with callees", "own", "calls")?;
                for thread in all.threads.values() {
                    for region in self.shares(thread) {
                        self.text(out, thread, region)?;
                    }
                }
                if all.lost > 0 {
                    writeln!(out, "{} chunks were lost: the numbers are too low", all.lost)?;
                }
            }
            Format::Json => {
                for thread in all.threads.values() {
                    for region in self.shares(thread) {
                        writeln!(out, "{}", self.json(thread, region))?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer::layout::kind;
    use consumer::testing::{ChunkBuilder, TableBuilder, feed, insn};

    /// `a` at 0x1000 calls `b` at 0x2000, whose first instruction is struck by a signal, whose handler is struck by another; all return.
    /// Without files functions are pages.
    #[test]
    fn signals_strike_before_the_first_instruction() {
        let mut table = TableBuilder::new("x86_64", 8, false);
        let call = table.block(0x1000, &[insn(&[0xe8, 0xfb, 0x0f, 0, 0], &[])]);
        let ret = [insn(&[0xc3], &[])];
        let (b, first, second) = (table.block(0x2000, &ret), table.block(0x3000, &ret), table.block(0x4000, &ret));
        let end = table.block(0x1005, &ret);
        let back = |k: ChunkBuilder| k.record(kind::SYSCALL_RET, &[15, SIGRETURN as u64]);
        let k = ChunkBuilder::new().block(call, &[]);
        let k = k.record(kind::SIGNAL, &[14, 0x2000, 0x3000]).record(kind::SIGNAL, &[15, 0x3000, 0x4000]);
        let k = back(k.block(second, &[]));
        let k = back(k.block(first, &[])).block(b, &[]).block(end, &[]);
        let show = |all: &All| {
            let mut out = Vec::new();
            all.threads.values().for_each(|t| output::folded(&mut out, "t", &t.tree, None, &all.names.all).unwrap());
            String::from_utf8(out).unwrap()
        };
        let (text, _) = feed(&Follow::default(), &table.finish(), &[k.words()], All::default, show).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let all = ["t;0x1000 2", "t;0x1000;0x2000 1", "t;0x1000;0x2000;0x3000 1", "t;0x1000;0x2000;0x3000;0x4000 1"];
        assert_eq!(lines, all);
    }
}
