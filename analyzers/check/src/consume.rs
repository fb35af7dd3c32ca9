//! Follows every stream, and says what does not follow.

use crate::flow::{self, Next, Static};
use crate::space::{PAGE_BITS, Space, Step};
use consumer::{
    Analysis, BlockExec, Chunk, Consumer, Error, Event, Format, GuestEvent, Item, Options, Pool, Source,
    State as Ended, Stream, Summary, Sums,
};
use decode::Target;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

/// Settings.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {
    /// How many violations are printed [default: 20]
    #[arg(long = "violations", value_name = "N")]
    pub most: Option<usize>,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Check { format, most: self.most.unwrap_or(20), findings: Findings::default() })
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Instructions, accesses and events looked at.
    pub insns: u64,
    /// Accesses looked at.
    pub accesses: u64,
    /// Steps of the pc that were checked against the code or an event.
    pub steps: u64,
    /// Streams.
    pub streams: u64,
    /// Streams without an end: their process was killed, or is still running.
    pub unended: u64,
    /// What is wrong, the first [`Findings::KEPT`] of it.
    pub violations: Vec<String>,
    /// How much is wrong.
    pub count: u64,
    threads: HashMap<usize, Thread>,
    processes: BTreeMap<usize, Space>,
}

#[derive(Debug)]
struct Thread {
    next: Next,
    order: Option<u64>,
    started: bool,
    ended: bool,
}

impl Findings {
    /// Violations that are kept; more are only counted.
    pub const KEPT: usize = 1000;

    fn add(&mut self, what: String) {
        self.count += 1;
        if self.violations.len() < Self::KEPT {
            self.violations.push(what);
        }
    }

    /// Once everything has been consumed: what only the whole tells.
    pub fn close(&mut self) {
        let mut found = Vec::new();
        for (number, space) in &self.processes {
            found.extend(space.violations().into_iter().map(|v| format!("process {number}: {v}")));
        }
        found.into_iter().for_each(|f| self.add(f));
        self.unended = self.threads.values().filter(|t| !t.ended).count() as u64;
    }
}

/// Pages that the kernel shows to every process of x86_64 and ARM; QEMU does what is there itself.
const KERNEL_PAGES: [u64; 2] = [0xffff_ffff_ff60_0000 >> PAGE_BITS, 0xffff_0000 >> PAGE_BITS];

/// Follows chunks.
#[derive(Default)]
pub struct Follow {
    scratch: Pool<Scratch>,
}

#[derive(Default)]
struct Scratch {
    table: Option<u64>,
    target: Option<Target>,
    /// A whole machine: nothing is told of its mappings.
    system: bool,
    blocks: Vec<Option<Box<Static>>>,
}

/// What is known of one part of a stream.
#[derive(Debug)]
pub struct Batch {
    /// The first place that the stream is at, before anything else has said where it may be.
    first: Option<u64>,
    /// A signal that came before that: where it says that the stream was.
    signal: Option<u64>,
    next: Next,
    order: u64,
    started: bool,
    ended: bool,
    violations: Vec<String>,
    memory: Vec<Step>,
    insns: u64,
    accesses: u64,
    steps: u64,
}

impl Batch {
    fn wrong(&mut self, chunk: &Chunk<'_>, what: impl std::fmt::Display) {
        // Each chunk tells the first few: one mistake is often followed by others.
        if self.violations.len() < 50 {
            self.violations.push(format!("stream {}, chunk {}: {what}", chunk.stream().number, chunk.number()));
        }
    }

    /// The stream is at `pc`.
    fn arrive(&mut self, chunk: &Chunk<'_>, pc: u64, what: &str) {
        match self.next {
            Next::Entry => {
                self.first.get_or_insert(pc);
            }
            next if !next.allows(pc) => self.wrong(chunk, unexplained(next, pc, what)),
            Next::At(_) => self.steps += 1,
            _ => {}
        }
    }
}

fn unexplained(next: Next, pc: u64, what: &str) -> String {
    match next {
        Next::At([a, b, c]) => {
            let mut all = vec![a, b, c];
            all.dedup();
            let all: Vec<String> = all.iter().map(|p| format!("{p:#x}")).collect();
            format!("{what} {pc:#x}, but the program goes on at {}", all.join(" or "))
        }
        _ => format!("{what} {pc:#x} while nothing is traced, or after the end"),
    }
}

impl Scratch {
    fn of(&mut self, block: &BlockExec<'_>) -> &Static {
        let info = block.info();
        let number = info.number as usize;
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, || None);
        }
        let target = self.target;
        self.blocks[number].get_or_insert_with(|| Box::new(Static::of(target, info)))
    }
}

impl Consumer for Follow {
    type Batch = Batch;
    type State = Findings;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Batch, Error> {
        self.scratch.with(|scratch| {
            let table = chunk.table();
            if scratch.table != Some(table.serial()) {
                *scratch = Scratch {
                    table: Some(table.serial()),
                    target: Target::named(&table.info().target),
                    system: table.info().system,
                    blocks: Vec::new(),
                };
            }
            let mut b = Batch {
                first: None,
                signal: None,
                next: Next::Entry,
                order: chunk.order(),
                started: false,
                ended: false,
                violations: Vec::new(),
                memory: Vec::new(),
                insns: 0,
                accesses: 0,
                steps: 0,
            };
            let mut syscall = None;
            let mut last_page = Last { page: None, system: scratch.system };
            for item in chunk.items() {
                match item? {
                    Item::Block(block) => block_of(chunk, scratch, &mut b, &block, &mut last_page),
                    Item::Event(event) => event_of(chunk, &mut b, &event, &mut syscall, &mut last_page),
                }
            }
            Ok(b)
        })
    }

    fn reduce(&self, all: &mut Findings, stream: &Stream, mut b: Batch) -> Result<(), Error> {
        let thread = all.threads.entry(stream.number).or_insert(Thread {
            next: Next::Any,
            order: None,
            started: false,
            ended: false,
        });
        // Signals are told whether anything is traced or not.
        let silent = matches!(thread.next, Next::Begun | Next::Off);
        if let Some(pc) = b.first.or(b.signal.filter(|_| !silent)) {
            match thread.next {
                next if !next.allows(pc) => b.violations.insert(
                    0,
                    format!("stream {}: {}", stream.number, unexplained(next, pc, "the next part begins at")),
                ),
                Next::At(_) => b.steps += 1,
                _ => {}
            }
        }
        match b.next {
            Next::Entry => {}
            Next::Handler(_) if silent => {}
            Next::Handler(to) => thread.next = Next::one(to),
            next => thread.next = next,
        }
        // Parts of one chunk share its number.
        if thread.order.is_some_and(|o| o > b.order) {
            b.violations.push(format!(
                "stream {}: chunk number {} comes after {}",
                stream.number,
                b.order,
                thread.order.unwrap_or_default()
            ));
        }
        thread.order = Some(b.order);
        thread.started |= b.started;
        thread.ended |= b.ended;
        let process = all.processes.entry(stream.process.number).or_default();
        if !thread.started {
            process.gap();
        }
        process.follow(stream.number, b.order, b.memory);
        all.insns += b.insns;
        all.accesses += b.accesses;
        all.steps += b.steps;
        b.violations.into_iter().for_each(|v| all.add(v));
        Ok(())
    }

    fn lost(&self, all: &mut Findings, stream: &Stream, _: u64) -> Result<(), Error> {
        // What was lost cannot be followed.
        if let Some(thread) = all.threads.get_mut(&stream.number) {
            thread.next = Next::Any;
        }
        all.processes.entry(stream.process.number).or_default().gap();
        Ok(())
    }

    fn ended(&self, all: &mut Findings, stream: &Stream) -> Result<(), Error> {
        all.streams += 1;
        if all.threads.get(&stream.number).is_some_and(|t| !t.started) {
            all.add(format!("stream {}: it does not begin with a start event", stream.number));
        }
        Ok(())
    }
}

/// The page that was touched last.
struct Last {
    page: Option<(bool, u64)>,
    system: bool,
}

fn touch(b: &mut Batch, last: &mut Last, code: bool, address: u64) {
    let page = (code, address >> PAGE_BITS);
    if last.page != Some(page) && !last.system {
        last.page = Some(page);
        if !KERNEL_PAGES.contains(&page.1) {
            match b.memory.last_mut() {
                Some(Step::Touched(pages)) => {
                    pages.insert(page);
                }
                _ => b.memory.push(Step::Touched(HashSet::from([page]))),
            }
        }
    }
}

fn block_of(chunk: &Chunk<'_>, scratch: &mut Scratch, b: &mut Batch, block: &BlockExec<'_>, last_page: &mut Last) {
    let target = scratch.target;
    let known = scratch.of(block);
    let info = block.info();
    if !known.whole {
        // Between what is traced there is what is not.
        b.next = Next::Any;
    }
    let pc = info.insns.get(block.start()).map_or(info.pc, |i| i.pc);
    b.arrive(chunk, pc, "the next block is at");
    touch(b, last_page, true, pc);
    if let Some(i) = known.gap {
        b.wrong(
            chunk,
            format_args!("in the block at {:#x}, instruction {i} does not follow the one before it", info.pc),
        );
    }

    let (mut sums, mut traced) = (Sums::default(), 0);
    for insn in block.insns() {
        match insn.status {
            consumer::Status::Retired => sums.insns += u64::from(insn.is_traced()),
            consumer::Status::Aborted => sums.aborted += u64::from(insn.is_traced()),
            consumer::Status::Continued => {}
        }
        traced += 1;
        let expected = known.addresses.iter().find(|(i, _)| *i == insn.index()).map(|(_, a)| *a);
        let mut found = expected.is_none();
        let mut any = false;
        for access in insn.accesses() {
            any = true;
            found |= Some(access.addr) == expected;
            if access.is_store() {
                sums.stores += 1;
                sums.store_bytes += u64::from(access.size);
            } else {
                sums.loads += 1;
                sums.load_bytes += u64::from(access.size);
            }
            touch(b, last_page, false, access.addr);
            if access.size == 0 {
                b.wrong(chunk, format_args!("an access of 0 bytes at {:#x}, pc {:#x}", access.addr, insn.pc()));
            } else {
                touch(b, last_page, false, access.addr.wrapping_add(u64::from(access.size) - 1));
            }
        }
        if any && !found && insn.status == consumer::Status::Retired {
            let at = expected.unwrap_or_default();
            b.wrong(chunk, format_args!("the instruction at {:#x} accesses {at:#x}, but no event says so", insn.pc()));
        }
    }
    let claimed = block.sums();
    let ours = (sums.insns, sums.aborted, sums.loads, sums.stores, sums.load_bytes, sums.store_bytes);
    let theirs =
        (claimed.insns, claimed.aborted, claimed.loads, claimed.stores, claimed.load_bytes, claimed.store_bytes);
    if ours != theirs {
        b.wrong(chunk, format_args!("the block at {:#x} adds up to {ours:?}, but says {theirs:?}", info.pc));
    }
    b.insns += traced;
    b.accesses += sums.loads + sums.stores;

    let left = block.start() + block.retired();
    let at = |i: usize| info.insns.get(i).map(|i| (i.pc, i.pc.wrapping_add(u64::from(i.len))));
    b.next = match (block.state(), at(left)) {
        _ if !known.whole => Next::Any,
        (Ended::Complete, _) => known.next,
        // A signal tells where it was; some come after the instruction.
        (Ended::Aborted, Some((pc, next))) => Next::two(pc, next),
        (Ended::Reexec | Ended::Split, Some((pc, _))) => Next::one(pc),
        (Ended::Left, _) if left > 0 => flow::after(target, info, left - 1),
        _ => Next::Any,
    };
}

/// QEMU's results for a system call that returns from a signal handler, and for one that is made again.
const SIGRETURN: i64 = -513;
const RESTART: i64 = -512;

/// Where the last page ends of `len` bytes from `addr` on.
fn page_end(addr: u64, len: u64) -> u64 {
    addr.saturating_add(len).checked_next_multiple_of(1 << PAGE_BITS).unwrap_or(u64::MAX)
}

fn event_of(chunk: &Chunk<'_>, b: &mut Batch, event: &Event, syscall: &mut Option<u64>, last_page: &mut Last) {
    match event {
        Event::Start { .. } => {
            (b.started, b.next) = (true, Next::Begun);
        }
        Event::End { .. } => {
            (b.ended, b.next) = (true, Next::Nowhere);
        }
        Event::Syscall { pc, .. } => *syscall = Some(*pc),
        Event::SyscallRet { result: SIGRETURN, .. } => b.next = Next::Any,
        Event::SyscallRet { result: RESTART, .. } => {
            b.next = match syscall {
                Some(pc) => b.next.or(*pc),
                // The call is in the part before.
                None => Next::Any,
            };
            if b.next == Next::Entry {
                b.next = Next::Any;
            }
        }
        Event::Signal { from, to, .. } => match b.next {
            // Told whether anything is traced or not.
            Next::Begun | Next::Off => {}
            Next::Entry => {
                b.signal = Some(*from);
                b.next = Next::Handler(*to);
            }
            Next::Handler(_) => b.next = Next::Handler(*to),
            _ => {
                b.arrive(chunk, *from, "a signal comes at");
                b.next = Next::one(*to);
            }
        },
        Event::Exception { from, to, interrupt, .. } => {
            if b.next != Next::Off {
                let what = if *interrupt { "an interrupt comes at" } else { "an exception comes at" };
                b.arrive(chunk, *from, what);
            }
            b.next = Next::one(*to);
        }
        Event::Moved { to, .. } => b.next = Next::one(*to),
        Event::Halt { pc } | Event::Resume { pc } => {
            b.arrive(chunk, *pc, "the vCPU waits at");
            b.next = Next::one(*pc);
        }
        Event::Mmap { addr, len, .. } => {
            b.memory.push(Step::Mapped(*addr, page_end(*addr, *len)));
            last_page.page = None;
        }
        Event::Munmap { addr, len } => {
            b.memory.push(Step::Unmapped(*addr, page_end(*addr, *len)));
            last_page.page = None;
        }
        Event::Kernel { addr, len, unknown: false, .. } => {
            touch(b, last_page, false, *addr);
            touch(b, last_page, false, addr.saturating_add(len.saturating_sub(1)));
        }
        Event::Guest { what: GuestEvent::Stop { depth: 0, .. }, .. } => b.next = Next::Off,
        Event::Guest { what: GuestEvent::Start { .. }, .. } => b.next = Next::Any,
        _ => {}
    }
}

struct Check {
    format: Format,
    most: usize,
    findings: Findings,
}

impl Analysis for Check {
    fn name(&self) -> &'static str {
        "check"
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        let summary = consumer::run(source, &Follow::default(), &mut self.findings, options)?;
        self.findings.close();
        Ok(summary)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let f = &self.findings;
        let shown = &f.violations[..f.violations.len().min(self.most)];
        match self.format {
            Format::Text => {
                for v in shown {
                    writeln!(out, "{v}")?;
                }
                if f.count > shown.len() as u64 {
                    writeln!(out, "… and {} more", f.count - shown.len() as u64)?;
                }
                writeln!(
                    out,
                    "check: {} violations; {} instructions, {} accesses, {} steps of the pc, {} streams{}",
                    f.count,
                    f.insns,
                    f.accesses,
                    f.steps,
                    f.streams,
                    if f.unended > 0 { format!(", {} of them without an end", f.unended) } else { String::new() }
                )?;
            }
            Format::Json => {
                let json = serde_json::json!({
                    "violations": f.count,
                    "shown": shown,
                    "insns": f.insns,
                    "accesses": f.accesses,
                    "steps": f.steps,
                    "streams": f.streams,
                    "unended": f.unended,
                });
                writeln!(out, "{json}")?;
            }
        }
        Ok(())
    }

    fn verdict(&self) -> bool {
        self.findings.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer::layout::{FLAG_ABORTED, end, kind};
    use consumer::testing::{ChunkBuilder, TableBuilder, feed, insn, load, store, with_path};

    /// The code, all of it x86_64:
    ///
    /// ```text
    /// a  0x1000  push %rbx (store 8)       0x1001  call 0x2000 (store 8)
    /// b  0x2000  mov 0x3000(%rip) -> eax   (load 4 at 0x5006)
    ///    0x2006  jne 0x2000
    /// c  0x2008  ret (load 8)
    /// d  0x1006  syscall
    /// ```
    struct Code {
        table: TableBuilder,
        a: u32,
        b: u32,
        c: u32,
        d: u32,
    }

    fn code() -> Code {
        let mut table = TableBuilder::new("x86_64", 8, false);
        let call = [0xe8, 0xfa, 0x0f, 0, 0];
        let a = table.block(0x1000, &[insn(&[0x53], &[store(8)]), insn(&call, &[store(8)])]);
        let b = table.block(0x2000, &[insn(&[0x8b, 0x05, 0, 0x30, 0, 0], &[load(4)]), insn(&[0x75, 0xf8], &[])]);
        let c = table.block(0x2008, &[insn(&[0xc3], &[load(8)])]);
        let d = table.block(0x1006, &[insn(&[0x0f, 0x05], &[])]);
        Code { table, a, b, c, d }
    }

    const STACK: u64 = 0x7000;

    fn begin(chunk: ChunkBuilder) -> ChunkBuilder {
        chunk
            .record(kind::START, &[1, 1, 0, 0, 0])
            .record(kind::MMAP, &with_path(&[0x1000, 0x2000, 5, 2, 0], "/prog"))
            .record(kind::MMAP, &with_path(&[0x5000, 0x3000, 3, 0x22, 0], ""))
    }

    /// A run in which everything is as it should be; `change` builds the middle.
    fn check(middle: impl Fn(&Code, ChunkBuilder) -> ChunkBuilder) -> (u64, Vec<String>) {
        let c = code();
        let chunk = middle(&c, begin(ChunkBuilder::new())).record(kind::END, &[end::EXIT, 0]);
        verdict(c, vec![chunk.words()])
    }

    fn verdict(c: Code, chunks: Vec<Vec<u64>>) -> (u64, Vec<String>) {
        let ((violations, steps), _) = feed(&Follow::default(), &c.table.finish(), &chunks, Findings::default, |f| {
            let mut g = Findings { violations: f.violations.clone(), count: f.count, ..Findings::default() };
            for (number, p) in &f.processes {
                g.processes.insert(*number, p.clone());
            }
            g.close();
            (g.violations, f.steps)
        })
        .unwrap();
        (steps, violations)
    }

    fn good(c: &Code, chunk: ChunkBuilder) -> ChunkBuilder {
        chunk
            .block(c.a, &[STACK, STACK - 8])
            .block(c.b, &[0x5006])
            .block(c.b, &[0x5006])
            .block(c.c, &[STACK - 8])
            .block(c.d, &[])
            .record(kind::SYSCALL, &[0x1006, 39, 0, 0, 0, 0, 0, 0, 0, 0])
            .record(kind::SYSCALL_RET, &[39, 1])
    }

    #[test]
    fn what_is_right_passes_and_each_step_counts() {
        let (steps, violations) = check(good);
        assert_eq!(violations, [""; 0]);
        // Into b, round, out of it; the return's place is not in the code; the syscall's is the return's.
        assert_eq!(steps, 3);
    }

    #[test]
    fn the_step_between_two_chunks_is_checked() {
        let c = code();
        let one = begin(ChunkBuilder::new()).block(c.a, &[STACK, STACK - 8]).words();
        let two = ChunkBuilder::new().block(c.b, &[0x5006]).record(kind::END, &[end::EXIT, 0]).words();
        assert_eq!(verdict(c, vec![one.clone(), two]).1, [""; 0]);
        let c = code();
        let wrong = ChunkBuilder::new().block(c.c, &[STACK]).record(kind::END, &[end::EXIT, 0]).words();
        let (_, violations) = verdict(c, vec![one, wrong]);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].contains("0x2008") && violations[0].contains("0x2000"), "{violations:?}");
    }

    #[test]
    fn damage_is_found() {
        let found = |middle: fn(&Code, ChunkBuilder) -> ChunkBuilder, parts: &[&str]| {
            let (_, violations) = check(middle);
            assert_eq!(violations.len(), 1, "{parts:?}: {violations:?}");
            for part in parts {
                assert!(violations[0].contains(part), "'{part}' is not said: {violations:?}");
            }
        };
        // A block is missing: the call's.
        found(|c, k| k.block(c.a, &[STACK, STACK]).block(c.c, &[STACK]), &["0x2008", "0x2000"]);
        // A branch goes where it cannot.
        found(|c, k| k.block(c.b, &[0x5006]).block(c.a, &[STACK, STACK]), &["0x1000", "0x2008 or 0x2000"]);
        // A signal from elsewhere.
        found(
            |c, k| k.block(c.a, &[STACK, STACK]).record(kind::SIGNAL, &[14, 0x1006, 0x2000]),
            &["a signal", "0x1006"],
        );
        // What faulted is not what the signal says.
        found(
            |c, k| {
                k.partial(c.a, 1, FLAG_ABORTED, 1, &[STACK, 0])
                    .record(kind::SIGNAL, &[11, 0x1000, 0x2000])
                    .block(c.b, &[0x5006])
            },
            &["a signal", "0x1000", "0x1001"],
        );
        // Outside of every mapping.
        found(|c, k| k.block(c.c, &[0x9000]), &["0x9000", "never mapped"]);
        // In what has been given back, by the program or by the kernel.
        found(
            |c, k| k.block(c.c, &[0x7ff0]).record(kind::MUNMAP, &[0x7000, 0x1000]).block(c.c, &[0x7ff0]),
            &["0x7000", "had unmapped"],
        );
        found(|_, k| k.record(kind::KERNEL_WRITE, &[0x7fff, 2, 0]), &["0x8000", "never mapped"]);
        // Not where the instruction says.
        found(|c, k| k.block(c.b, &[0x5010]), &["0x2000", "0x5006"]);
        // Something runs after the end.
        found(|c, k| k.record(kind::END, &[end::EXIT, 0]).block(c.c, &[STACK]), &["after the end"]);
        // Something runs although tracing has stopped.
        found(
            |c, k| k.block(c.c, &[STACK]).record(kind::TRACE_STOP, &[0x2008, 0, 0]).block(c.d, &[]),
            &["0x1006", "nothing is traced"],
        );
    }

    #[test]
    fn signals_come_while_nothing_is_traced() {
        let signal = [14, 0x1234, 0x5678];
        let (_, violations) = check(|c, k| {
            k.record(kind::SIGNAL, &signal)
                .record(kind::SIGNAL, &signal)
                .record(kind::TRACE_START, &[0x1000, 0, 1])
                .block(c.a, &[STACK, STACK])
                .record(kind::TRACE_STOP, &[0x2000, 0, 0])
                .record(kind::SIGNAL, &signal)
                .record(kind::SIGNAL, &signal)
                .record(kind::TRACE_START, &[0x2000, 0, 1])
                .block(c.b, &[0x5006])
        });
        assert_eq!(violations, [""; 0]);
    }

    /// A part may begin anywhere: what it does not know is known by then.
    #[test]
    fn signals_at_the_beginning_of_a_part() {
        let signal = |chunk: ChunkBuilder, from: u64| chunk.record(kind::SIGNAL, &[14, from, 0x2008]);
        let end = |chunk: ChunkBuilder| chunk.record(kind::END, &[end::EXIT, 0]).words();
        // Nothing is traced yet, or any more.
        let silent = begin(ChunkBuilder::new()).words();
        let two = signal(signal(ChunkBuilder::new(), 0x1234), 0x4321).words();
        let three = end(signal(ChunkBuilder::new(), 0x5678));
        assert_eq!(verdict(code(), vec![silent, two, three]).1, [""; 0]);
        // A handler that is traced begins where the signal says; the signal came where the program was.
        let c = code();
        let traced = begin(ChunkBuilder::new()).block(c.a, &[STACK, STACK - 8]).words();
        let good = end(signal(ChunkBuilder::new(), 0x2000).block(c.c, &[STACK]));
        assert_eq!(verdict(code(), vec![traced.clone(), good]).1, [""; 0]);
        let elsewhere = end(signal(ChunkBuilder::new(), 0x2006).block(c.c, &[STACK]));
        let (_, violations) = verdict(code(), vec![traced.clone(), elsewhere]);
        assert!(violations.len() == 1 && violations[0].contains("0x2006"), "{violations:?}");
        let (one, other) =
            (signal(ChunkBuilder::new(), 0x2000).words(), end(ChunkBuilder::new().block(c.b, &[0x5006])));
        let (_, violations) = verdict(code(), vec![traced, one, other]);
        assert!(violations.len() == 1 && violations[0].contains("0x2008"), "{violations:?}");
    }

    /// A whole machine: exceptions and interrupts come where it was, and it goes on at their handlers; what runs need not be mapped.
    #[test]
    fn exceptions_are_explained() {
        let (_, violations) = check(|c, k| {
            k.partial(c.a, 1, FLAG_ABORTED, 1, &[STACK, 0])
                .record(kind::EXCEPTION, &[14, 0x1001, 0x2008])
                .block(c.c, &[STACK])
                .record(kind::INTERRUPT, &[32, 0x1006, 0x2000])
                .block(c.b, &[0x5006])
                .record(kind::MOVED, &[1, 0x2000, 0x1006])
                .block(c.d, &[])
                .record(kind::HALT, &[0x1008])
                .record(kind::RESUME, &[0x1008])
        });
        assert_eq!(violations, [""; 0]);
        let (_, violations) = check(|c, k| {
            k.partial(c.a, 1, FLAG_ABORTED, 1, &[STACK, 0]).record(kind::EXCEPTION, &[14, 0x1000, 0x2008])
        });
        assert!(violations.len() == 1 && violations[0].contains("an exception"), "{violations:?}");
    }

    #[test]
    fn a_fault_that_a_handler_mends_is_explained() {
        let (steps, violations) = check(|c, k| {
            k.partial(c.a, 1, FLAG_ABORTED, 1, &[STACK, 0])
                .record(kind::SIGNAL, &[11, 0x1001, 0x2008])
                .block(c.c, &[STACK])
                .record(kind::SYSCALL_RET, &[15, SIGRETURN as u64])
                .block(c.a, &[STACK, STACK])
        });
        assert_eq!(violations, [""; 0]);
        assert_eq!(steps, 2);
    }
}
