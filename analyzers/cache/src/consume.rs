//! Feeds the stream to the caches.

use crate::model::{Cache, Policy, Reuse, Shape};
use comfy_table::{CellAlignment, Table, presets};
use consumer::{
    Analysis, By, Chunk, Consumer, Error, Event, Format, Item, Options, RegionChange, RegionNames, Regions, Source,
    Stream, Summary,
};
use crossbeam_channel::{Sender, bounded};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;
use symbols::{Maps, Place, Symbolizer};

/// Settings.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// First level: for instructions and for data one each, unless --unified
    #[arg(long, value_name = "SIZE:WAYS:LINE", default_value = "32768:8:64")]
    pub l1: Shape,
    /// Second level
    #[arg(long, value_name = "SIZE:WAYS:LINE", default_value = "1048576:16:64")]
    pub l2: Shape,
    /// One first level for instructions and data
    #[arg(long)]
    pub unified: bool,
    /// Which line makes room
    #[arg(long, value_enum, default_value_t)]
    pub policy: Policy,
    /// Also the miss ratio of data accesses for every size of a fully associative cache
    #[arg(long)]
    pub curve: bool,
    /// How many functions are listed
    #[arg(long = "functions", value_name = "N", default_value_t = 20)]
    pub functions: usize,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Caches { format, args: self, by: None, all: All::default(), found: Found::default() })
    }
}

struct Caches {
    format: Format,
    args: Args,
    by: Option<By>,
    all: All,
    found: Found,
}

/// Accesses to lines, and how many of them missed.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    accesses: u64,
    misses: u64,
}

impl Rate {
    fn count(&mut self, hit: bool) {
        self.accesses += 1;
        self.misses += u64::from(!hit);
    }
    fn add(&mut self, o: Rate) {
        self.accesses += o.accesses;
        self.misses += o.misses;
    }
    fn percent(self) -> f64 {
        if self.accesses == 0 { 0.0 } else { (self.misses as f64 * 1e6 / self.accesses as f64).round() / 1e4 }
    }
}

/// What one instruction's data accesses did.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    l1: Rate,
    l2: Rate,
}

impl Cost {
    fn add(&mut self, o: Cost) {
        self.l1.add(o.l1);
        self.l2.add(o.l2);
    }
}

/// The caches of a thread, or of a shard the sets that are its.
struct Levels {
    instructions: Cache,
    /// `None` if the first level is unified.
    data: Option<Cache>,
    second: Cache,
}

/// All accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    l1i: Rate,
    l1d: Rate,
    l2: Rate,
}

impl Rates {
    fn add(&mut self, o: &Rates) {
        self.l1i.add(o.l1i);
        self.l1d.add(o.l1d);
        self.l2.add(o.l2);
    }
    fn levels(&self) -> [(&'static str, Rate); 3] {
        [("L1 instructions", self.l1i), ("L1 data", self.l1d), ("L2", self.l2)]
    }
}

#[derive(Default)]
struct Process {
    pid: u32,
    maps: Arc<Maps>,
}

/// What the calling thread keeps of a thread of the guest.
#[derive(Default)]
struct Thread {
    reuse: Reuse,
    /// The open regions.
    open: Regions,
}

#[derive(Default)]
struct All {
    threads: HashMap<usize, Thread>,
    processes: BTreeMap<usize, Process>,
    regions: RegionNames,
    shards: Vec<Lane>,
    lost: u64,
}

/// What was found, by number of the region.
#[derive(Default)]
struct Found {
    places: BTreeMap<(usize, Place), Cost>,
    rates: BTreeMap<usize, Rates>,
}

/// A use of a line of the first level.
#[derive(Clone, Copy)]
struct Use {
    thread: u32,
    region: u32,
    /// Of a data access.
    pc: Option<u64>,
    line: u64,
}

enum Order {
    Uses(u32, Vec<Use>),
    /// The process's mappings change: what it used so far is looked up.
    Settle(u32, Arc<Maps>),
}

/// The way to a shard.
enum Lane {
    /// The only one, on the calling thread.
    Here(Box<Shard>),
    Thread(Sender<Order>, JoinHandle<Shard>),
}

/// Uses that are handed over at a time.
const USES: usize = 8192;

/// A part of all caches' sets. Lines of different sets have nothing to do with each other, so shards run in parallel.
struct Shard {
    args: Args,
    /// How many of the bits of a second-level line say whose it is.
    bits: u32,
    threads: HashMap<u32, Levels>,
    /// Not yet looked up, by process, region and pc.
    costs: HashMap<(u32, u32, u64), Cost>,
    found: Found,
}

impl Shard {
    fn new(args: &Args, bits: u32) -> Shard {
        let args = args.clone();
        Shard { args, bits, threads: HashMap::new(), costs: HashMap::new(), found: Found::default() }
    }

    fn levels(&mut self, thread: u32) -> &mut Levels {
        let (args, bits) = (&self.args, self.bits);
        self.threads.entry(thread).or_insert_with(|| {
            let made = |shape: Shape| {
                let part = Shape { size: shape.size >> bits, ..shape };
                // Shapes were tried before the program ran.
                Cache::new(part, args.policy).expect("a part of a cache that can be can be")
            };
            Levels {
                instructions: made(args.l1),
                data: if args.unified { None } else { Some(made(args.l1)) },
                second: made(args.l2),
            }
        })
    }

    fn run(&mut self, order: Order) {
        match order {
            Order::Uses(process, uses) => uses.into_iter().for_each(|u| self.use_line(process, u)),
            Order::Settle(process, maps) => self.settle(process, &maps),
        }
    }

    fn use_line(&mut self, process: u32, u: Use) {
        let within = self.args.l2.line.trailing_zeros() - self.args.l1.line.trailing_zeros();
        let bits = self.bits;
        // Without the bits that are the same for all lines of this shard.
        let second = u.line >> within >> bits;
        let first = second << within | u.line & ((1 << within) - 1);
        let levels = self.levels(u.thread);
        let cache = match u.pc {
            Some(_) => levels.data.as_mut().unwrap_or(&mut levels.instructions),
            None => &mut levels.instructions,
        };
        let hit = cache.access(first);
        let second = if hit { None } else { Some(levels.second.access(second)) };
        let rates = self.found.rates.entry(u.region as usize).or_default();
        if let Some(hit) = second {
            rates.l2.count(hit);
        }
        match u.pc {
            None => rates.l1i.count(hit),
            Some(pc) => {
                rates.l1d.count(hit);
                let cost = self.costs.entry((process, u.region, pc)).or_default();
                cost.l1.count(hit);
                if let Some(hit) = second {
                    cost.l2.count(hit);
                }
            }
        }
    }

    /// Looks up what a process used so far.
    fn settle(&mut self, process: u32, maps: &Maps) {
        let places = &mut self.found.places;
        self.costs.retain(|(of, region, pc), cost| {
            if *of == process {
                places.entry((*region as usize, maps.place(*pc))).or_default().add(*cost);
            }
            *of != process
        });
    }
}

impl Lane {
    fn send(&mut self, order: Order) -> Result<(), Error> {
        match self {
            Lane::Here(shard) => shard.run(order),
            Lane::Thread(give, _) => {
                give.send(order).map_err(|_| Error::Consumer("a thread that simulates caches is gone".into()))?;
            }
        }
        Ok(())
    }
}

/// Shards for so many worker threads: as many as the sets of both levels allow, and a power of two.
fn shard_bits(args: &Args, workers: usize) -> u32 {
    let within = args.l2.line.trailing_zeros().saturating_sub(args.l1.line.trailing_zeros());
    let sets = (args.l1.sets() >> within).min(args.l2.sets()).max(1);
    workers.next_power_of_two().trailing_zeros().min(sets.trailing_zeros())
}

/// What happened, in order.
enum Step {
    /// Lines of code from this to that.
    Code(u64, u64),
    /// A data access: pc, first and last line.
    Data(u64, u64, u64),
    Event(Event),
    Region(RegionChange),
}

struct Simulate<'a> {
    args: &'a Args,
    by: Option<By>,
}

impl Consumer for Simulate<'_> {
    type Batch = Vec<Step>;
    type State = All;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Step>, Error> {
        let shift = self.args.l1.line.trailing_zeros();
        let mut steps = Vec::new();
        for item in chunk.items() {
            match item? {
                Item::Block(block) => {
                    let mut code: Option<(u64, u64)> = None;
                    for insn in block.insns() {
                        let end = insn.pc().wrapping_add(insn.len().max(1) as u64 - 1);
                        code = Some((code.map_or(insn.pc() >> shift, |c| c.0), end >> shift));
                    }
                    steps.extend(code.map(|(first, last)| Step::Code(first, last.max(first))));
                    for insn in block.insns() {
                        for a in insn.accesses() {
                            let last = a.addr.saturating_add(u64::from(a.size.max(1)) - 1);
                            steps.push(Step::Data(insn.pc(), a.addr >> shift, last >> shift));
                        }
                    }
                }
                Item::Event(event @ (Event::Mmap { .. } | Event::Munmap { .. } | Event::Image { .. })) => {
                    steps.push(Step::Event(event));
                }
                Item::Event(event) => {
                    steps.extend(RegionChange::of(&event, self.by).map(Step::Region));
                }
            }
        }
        Ok(steps)
    }

    fn reduce(&self, all: &mut All, stream: &Stream, batch: Vec<Step>) -> Result<(), Error> {
        let args = self.args;
        let All { threads, processes, regions, shards, .. } = all;
        let number = stream.process.number;
        if !processes.contains_key(&number) {
            // A forked child has what its parent had.
            let parent = processes.values().rev().find(|p| p.pid == stream.process.parent);
            let maps = parent.map(|p| p.maps.clone()).unwrap_or_default();
            processes.insert(number, Process { pid: stream.process.pid, maps });
        }
        let thread = threads.entry(stream.number).or_default();
        let Some(process) = processes.get_mut(&number) else { return Ok(()) };
        let id = number as u32;
        let within = args.l2.line.trailing_zeros() - args.l1.line.trailing_zeros();
        let mask = shards.len() as u64 - 1;
        let mut uses: Vec<Vec<Use>> = shards.iter().map(|_| Vec::new()).collect();
        let mut region = regions.number(thread.open.current());
        let hand_over = |shards: &mut Vec<Lane>, uses: &mut Vec<Vec<Use>>, least: usize| {
            shards
                .iter_mut()
                .zip(uses)
                .filter(|(_, u)| u.len() >= least)
                .try_for_each(|(shard, uses)| shard.send(Order::Uses(id, std::mem::take(uses))))
        };
        for step in batch {
            let (pc, first, last) = match step {
                Step::Region(change) => {
                    thread.open.change(change);
                    region = regions.number(thread.open.current());
                    continue;
                }
                Step::Code(first, last) => (None, first, last),
                Step::Data(pc, first, last) => (Some(pc), first, last),
                Step::Event(event) => {
                    let (addr, len) = match &event {
                        Event::Mmap { addr, len, .. } | Event::Munmap { addr, len } => (*addr, *len),
                        _ => (0, 0),
                    };
                    if process.maps.has_file(addr, len) {
                        hand_over(shards, &mut uses, 1)?;
                        shards.iter_mut().try_for_each(|s| s.send(Order::Settle(id, process.maps.clone())))?;
                    }
                    let maps = Arc::make_mut(&mut process.maps);
                    match event {
                        Event::Mmap { addr, len, offset, path, .. } => maps.map(addr, len, offset, &path),
                        Event::Munmap { addr, len } => maps.unmap(addr, len),
                        Event::Image { bias, path, .. } => maps.load(bias, &path),
                        _ => {}
                    }
                    continue;
                }
            };
            for line in first..=last {
                if pc.is_some() && args.curve {
                    thread.reuse.access(line);
                }
                let shard = (line >> within & mask) as usize;
                let uses = &mut uses[shard];
                uses.push(Use { thread: stream.number as u32, region: region as u32, pc, line });
            }
            if uses.iter().any(|u| u.len() >= USES) {
                hand_over(shards, &mut uses, USES)?;
            }
        }
        hand_over(shards, &mut uses, 1)
    }

    fn lost(&self, all: &mut All, _: &Stream, chunks: u64) -> Result<(), Error> {
        all.lost += chunks;
        Ok(())
    }
}

/// A region's number, a module, a function.
type Key = (usize, String, String);

/// A function, or a line of it.
#[derive(Default)]
struct Row {
    cost: Cost,
    lines: BTreeMap<(String, u32), Cost>,
}

impl Caches {
    fn rows(&mut self) -> Vec<(Key, Row)> {
        let places = &self.found.places;
        let mut symbols = Symbolizer::default();
        let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
        for ((region, place), cost) in places {
            let at = symbols.locate(place);
            let module = at.module.unwrap_or_else(|| "[anonymous]".into());
            let function = at.function.map_or_else(|| "?".to_string(), |f| f.name);
            let row = rows.entry((*region, module, function)).or_default();
            row.cost.add(*cost);
            if let Some((file, Some(line))) = at.line {
                row.lines.entry((file, line)).or_default().add(*cost);
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        // The sort is stable: equal ones stay ordered by their names.
        rows.sort_by_key(|(_, r)| std::cmp::Reverse((r.cost.l2.misses, r.cost.l1.misses, r.cost.l1.accesses)));
        // So many of each region, the regions in the order of their first opening.
        rows.sort_by_key(|((region, ..), _)| *region);
        let mut shown: HashMap<usize, usize> = HashMap::new();
        rows.retain(|((region, ..), _)| {
            let n = shown.entry(*region).or_default();
            *n += 1;
            *n <= self.args.functions
        });
        rows
    }
}

impl Analysis for Caches {
    fn name(&self) -> &'static str {
        "cache"
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
        // What the policy cannot have is told before the program has run.
        for shape in [self.args.l1, self.args.l2] {
            Cache::new(shape, self.args.policy).map_err(Error::Consumer)?;
        }
        let (first, second) = (self.args.l1.line, self.args.l2.line);
        if second < first {
            return Err(Error::Consumer(format!(
                "lines of {second} bytes behind lines of {first}: the second level's must be as long or longer"
            )));
        }
        let bits = shard_bits(&self.args, options.workers);
        self.all.shards = match bits {
            0 => vec![Lane::Here(Box::new(Shard::new(&self.args, 0)))],
            _ => (0..1 << bits)
                .map(|_| {
                    let (give, take) = bounded(8);
                    let mut shard = Shard::new(&self.args, bits);
                    Lane::Thread(
                        give,
                        std::thread::spawn(move || {
                            take.into_iter().for_each(|order| shard.run(order));
                            shard
                        }),
                    )
                })
                .collect(),
        };
        let simulate = Simulate { args: &self.args, by: self.by };
        let summary = consumer::run(source, &simulate, &mut self.all, options);
        for lane in std::mem::take(&mut self.all.shards) {
            let mut shard = match lane {
                Lane::Here(shard) => *shard,
                Lane::Thread(give, thread) => {
                    drop(give);
                    thread.join().map_err(|_| Error::Consumer("a thread that simulates caches panicked".into()))?
                }
            };
            for (number, process) in &self.all.processes {
                shard.settle(*number as u32, &process.maps);
            }
            for (place, cost) in shard.found.places {
                self.found.places.entry(place).or_default().add(cost);
            }
            for (region, rates) in shard.found.rates {
                self.found.rates.entry(region).or_default().add(&rates);
            }
        }
        summary
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let rows = self.rows();
        let mut reuse = Reuse::default();
        self.all.threads.values().for_each(|t| reuse.merge(&t.reuse));
        let total = reuse.cold + reuse.by_log2.iter().sum::<u64>();
        let curve: Vec<(u64, u64)> =
            reuse.misses().iter().enumerate().map(|(i, m)| (self.args.l1.line << i, *m)).collect();
        let (rates, All { regions, lost, .. }) = (&self.found.rates, &self.all);
        let mut whole = Rates::default();
        rates.values().for_each(|r| whole.add(r));
        match self.format {
            Format::Text => {
                let print = |out: &mut dyn Write, rates: &Rates| {
                    rates.levels().iter().try_for_each(|(name, rate)| {
                        let (accesses, misses, percent) = (rate.accesses, rate.misses, rate.percent());
                        writeln!(out, "{name:16} {accesses:>14} accesses {misses:>12} misses {percent:>8.4}%")
                    })
                };
                print(out, &whole)?;
                if self.by.is_some() {
                    for (region, rates) in rates {
                        writeln!(out, "-- {}", regions.shown(*region))?;
                        print(out, rates)?;
                    }
                }
                let mut table = Table::new();
                table.load_preset(presets::NOTHING);
                table.set_header(["data", "L1 misses", "", "L2 misses", "function", "module", "worst line"]);
                let mut region = None;
                for ((number, module, function), row) in &rows {
                    if self.by.is_some() && region.replace(*number) != Some(*number) {
                        let mut cells = vec![String::new(); 4];
                        cells.push(format!("-- {}", regions.shown(*number)));
                        table.add_row(cells);
                    }
                    let worst = row.lines.iter().max_by_key(|(_, c)| (c.l2.misses, c.l1.misses));
                    let base = |p: &str| p.rsplit('/').next().unwrap_or(p).to_string();
                    table.add_row([
                        row.cost.l1.accesses.to_string(),
                        row.cost.l1.misses.to_string(),
                        format!("{:.2}%", row.cost.l1.percent()),
                        row.cost.l2.misses.to_string(),
                        function.clone(),
                        base(module),
                        worst.map(|((file, line), _)| format!("{}:{line}", base(file))).unwrap_or_default(),
                    ]);
                }
                for i in 0..4 {
                    if let Some(column) = table.column_mut(i) {
                        column.set_cell_alignment(CellAlignment::Right);
                    }
                }
                for line in table.lines() {
                    writeln!(out, "{}", line.trim_end())?;
                }
                for (size, misses) in &curve {
                    writeln!(out, "{size:>14} bytes {:>8.4}% missed", *misses as f64 * 100.0 / total.max(1) as f64)?;
                }
                if *lost > 0 {
                    writeln!(out, "{lost} chunks were lost: the numbers are too low")?;
                }
            }
            Format::Json => {
                let rate = |r: &Rate| serde_json::json!({"accesses": r.accesses, "misses": r.misses});
                let levels =
                    |r: &Rates| serde_json::json!({"l1i": rate(&r.l1i), "l1d": rate(&r.l1d), "l2": rate(&r.l2)});
                let functions: Vec<_> = rows
                    .iter()
                    .map(|((region, module, function), row)| {
                        let lines: Vec<_> = row
                            .lines
                            .iter()
                            .map(|((file, line), c)| serde_json::json!({"file": file, "line": line, "l1": rate(&c.l1), "l2": rate(&c.l2)}))
                            .collect();
                        let mut json = serde_json::json!({"module": module, "function": function, "l1": rate(&row.cost.l1), "l2": rate(&row.cost.l2), "lines": lines});
                        if self.by.is_some() {
                            json["region"] = regions.name(*region).into();
                        }
                        json
                    })
                    .collect();
                let curve: Vec<_> =
                    curve.iter().map(|(size, misses)| serde_json::json!({"bytes": size, "misses": misses})).collect();
                let mut json = levels(&whole);
                json["functions"] = functions.into();
                json["curve"] = curve.into();
                json["lost_chunks"] = (*lost).into();
                if self.by.is_some() {
                    let each = rates.iter().map(|(region, rates)| {
                        let mut json = levels(rates);
                        json["region"] = regions.name(*region).into();
                        json
                    });
                    json["per_region"] = each.collect();
                }
                writeln!(out, "{json}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer::testing::{ChunkBuilder, Parts, TableBuilder, insn, load, store};

    fn caches(l1: &str, l2: &str, unified: bool, workers: usize) -> (BTreeMap<usize, Rates>, String) {
        let mut table = TableBuilder::new("x86_64", 8, false);
        let ids: Vec<u32> = (0..40)
            .map(|i| table.block(0x1000 + i * 48, &[insn(&[0x90; 9], &[load(8)]), insn(&[0x90; 4], &[store(4)])]))
            .collect();
        let table = table.finish();
        // Near and far, some of them across lines.
        let mut x = 7u64;
        let mut random = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x >> 33
        };
        let chunks: Vec<Vec<u64>> = (0..6)
            .map(|_| {
                let chunk = (0..3000).fold(ChunkBuilder::new(), |c, _| {
                    let reach = 1 << (random() % 16 + 4);
                    c.block(ids[(random() % 40) as usize], &[0x10000 + random() % reach, 0x80000 + random() % reach])
                });
                chunk.words()
            })
            .collect();
        let args = Args {
            l1: l1.parse().unwrap(),
            l2: l2.parse().unwrap(),
            unified,
            policy: Policy::Lru,
            curve: false,
            functions: 5,
        };
        let mut caches = Caches { format: Format::Json, args, by: None, all: All::default(), found: Found::default() };
        caches.consume(&mut Parts::new(&table, &chunks), &Options { workers }, &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        caches.report(&mut out).unwrap();
        (std::mem::take(&mut caches.found.rates), String::from_utf8(out).unwrap())
    }

    /// Sets have nothing to do with each other: in how many parts they are simulated does not show.
    #[test]
    fn shards_agree() {
        for (l1, l2, unified) in [
            ("1024:2:64", "4096:4:64", false),
            ("1024:2:32", "4096:4:128", false),
            ("512:1:64", "2048:8:64", true),
            ("64:1:64", "4096:4:64", false),
        ] {
            let one = caches(l1, l2, unified, 1);
            for workers in [2, 3, 8] {
                assert_eq!(caches(l1, l2, unified, workers).1, one.1, "{l1} {l2} {workers}");
            }
            let rates = one.0[&0];
            assert_eq!(rates.l2.accesses, rates.l1i.misses + rates.l1d.misses);
            assert!(rates.l1d.misses > 1000 && rates.l2.misses > 100, "{rates:?}");
        }
    }

    #[test]
    fn shards_are_as_many_as_sets_allow() {
        let bits = |l1: &str, l2: &str, workers| {
            let args = Args {
                l1: l1.parse().unwrap(),
                l2: l2.parse().unwrap(),
                unified: false,
                policy: Policy::Lru,
                curve: false,
                functions: 5,
            };
            shard_bits(&args, workers)
        };
        assert_eq!(bits("32768:8:64", "1048576:16:64", 1), 0);
        assert_eq!(bits("32768:8:64", "1048576:16:64", 3), 2);
        // One set; two sets whose lines share one of the second level.
        assert_eq!(bits("64:1:64", "1048576:16:64", 8), 0);
        assert_eq!(bits("128:2:32", "4096:4:64", 8), 0);
        assert_eq!(bits("256:2:32", "4096:4:64", 8), 1);
    }
}
