//! Follows calls and returns.

use crate::output::{self, Name};
use crate::tree::{Function, Node, ROOT, Stack, Step, Tree};
use consumer::{
    Analysis, BlockExec, Chunk, Consumer, Error, Event, Format, Item, Options, Pool, Source, Stream, Summary,
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
        Box::new(Calls { format, args: self, all: All::default() })
    }
}

struct Calls {
    format: Format,
    args: Args,
    all: All,
}

/// What happened, in order.
enum Part {
    /// A block, or what of it ran: where it begins, instructions that retired, and how it is left; `true` if after the next block, a delay slot.
    Block(u64, u64, Step, bool),
    Event(Event),
}

#[derive(Default)]
struct Follow {
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
}

#[derive(Default)]
struct All {
    threads: BTreeMap<usize, Thread>,
    processes: BTreeMap<usize, Process>,
    symbols: Symbolizer,
    names: Vec<Name>,
    numbers: HashMap<(String, String, u64), Function>,
    command: String,
    lost: u64,
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
                    Item::Event(_) => {}
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
        let Some(process) = all.processes.get_mut(&number) else { return Ok(()) };
        for part in parts {
            match part {
                Part::Block(pc, insns, step, slot) => {
                    let (function, entry) = *process.known.entry(pc).or_insert_with(|| {
                        let at = all.symbols.locate(&process.maps.place(pc));
                        let (name, start) = match at.function {
                            Some(f) => (f.name, f.start),
                            None => (format!("{:#x}", at.addr & !0xfff), 0),
                        };
                        let module = at.module.unwrap_or_default();
                        let file = at.line.map(|l| l.0).unwrap_or_default();
                        let key = (module.clone(), name.clone(), start);
                        let function = *all.numbers.entry(key).or_insert_with(|| {
                            all.names.push(Name { function: name, module, file });
                            (all.names.len() - 1) as Function
                        });
                        (function, start != 0 && start == at.addr)
                    });
                    let Thread { tree, stack, .. } = thread;
                    stack.arrive(tree, thread.step.take().unwrap_or(Step::Jump), pc, function, entry);
                    stack.count(tree, insns);
                    let step = thread.later.take().unwrap_or(step);
                    match slot {
                        true => (thread.step, thread.later) = (None, Some(step)),
                        false => thread.step = Some(step),
                    }
                }
                Part::Event(Event::Signal { from, .. }) => thread.step = Some(Step::Signal(from)),
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
            thread.stack = Stack::default();
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

    fn text(&self, out: &mut dyn Write, thread: &Thread) -> io::Result<()> {
        let inclusive = thread.tree.inclusive();
        let least = inclusive[ROOT] as f64 * self.args.least.unwrap_or(1.0) / 100.0;
        writeln!(out, "{}: {} instructions", Self::thread_name(thread), inclusive[ROOT])?;
        let mut todo: Vec<(Node, usize)> =
            thread.tree.children(ROOT, &inclusive).into_iter().rev().map(|n| (n, 0)).collect();
        while let Some((node, depth)) = todo.pop() {
            if (inclusive[node] as f64) < least {
                continue;
            }
            let data = &thread.tree.nodes[node];
            let name = &self.all.names[data.function as usize].function;
            let shown = depth.min(60);
            writeln!(
                out,
                "{:>14} {:>14} {:>10}  {}{name}",
                inclusive[node],
                data.insns,
                data.calls,
                "  ".repeat(shown)
            )?;
            todo.extend(thread.tree.children(node, &inclusive).into_iter().rev().map(|n| (n, depth + 1)));
        }
        Ok(())
    }

    fn json(&self, thread: &Thread, node: Node, inclusive: &[u64]) -> serde_json::Value {
        let data = &thread.tree.nodes[node];
        let calls: Vec<_> =
            thread.tree.children(node, inclusive).into_iter().map(|n| self.json(thread, n, inclusive)).collect();
        let name = &self.all.names[data.function as usize];
        serde_json::json!({
            "function": name.function,
            "module": name.module,
            "calls": data.calls,
            "insns": data.insns,
            "inclusive": inclusive[node],
            "children": calls,
        })
    }
}

impl Analysis for Calls {
    fn name(&self) -> &'static str {
        "calls"
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        consumer::run(source, &Follow::default(), &mut self.all, options)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let all = &self.all;
        if let Some(path) = &self.args.folded {
            to_file(path, |out| {
                all.threads.values().try_for_each(|t| output::folded(out, &Self::thread_name(t), &t.tree, &all.names))
            })?;
        }
        if let Some(path) = &self.args.callgrind {
            let trees: Vec<&Tree> = all.threads.values().map(|t| &t.tree).collect();
            to_file(path, |out| output::callgrind(out, &all.command, &trees, &all.names))?;
        }
        match self.format {
            Format::Text => {
                writeln!(out, "{:>14} {:>14} {:>10}", "with callees", "own", "calls")?;
                for thread in all.threads.values() {
                    self.text(out, thread)?;
                }
                if all.lost > 0 {
                    writeln!(out, "{} chunks were lost: the numbers are too low", all.lost)?;
                }
            }
            Format::Json => {
                for thread in all.threads.values() {
                    let inclusive = thread.tree.inclusive();
                    let roots = thread.tree.children(ROOT, &inclusive);
                    let calls: Vec<_> = roots.into_iter().map(|n| self.json(thread, n, &inclusive)).collect();
                    let json = serde_json::json!({
                        "pid": thread.pid,
                        "tid": thread.tid,
                        "insns": inclusive[ROOT],
                        "calls": calls,
                    });
                    writeln!(out, "{json}")?;
                }
            }
        }
        Ok(())
    }
}
