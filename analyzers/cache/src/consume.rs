//! Feeds the stream to the caches.

use crate::model::{Cache, Policy, Reuse, Shape};
use comfy_table::{CellAlignment, Table, presets};
use consumer::{
    Analysis, Chunk, Consumer, Error, Event, Format, Item, Options, RegionChange, RegionNames, Regions, Source, Stream,
    Summary,
};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
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
        Box::new(Caches { format, args: self, by_region: false, all: All::default() })
    }
}

struct Caches {
    format: Format,
    args: Args,
    by_region: bool,
    all: All,
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

struct Levels {
    instructions: Cache,
    /// `None` if the first level is unified.
    data: Option<Cache>,
    second: Cache,
    reuse: Option<Reuse>,
    /// The open regions.
    open: Regions,
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
    maps: Maps,
    /// Not yet looked up, by number of the region and pc.
    costs: HashMap<(usize, u64), Cost>,
}

#[derive(Default)]
struct All {
    threads: HashMap<usize, Levels>,
    processes: BTreeMap<usize, Process>,
    /// By number of the region.
    places: BTreeMap<(usize, Place), Cost>,
    rates: BTreeMap<usize, Rates>,
    regions: RegionNames,
    lost: u64,
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
    by_region: bool,
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
                    steps.extend(RegionChange::of(&event).filter(|_| self.by_region).map(Step::Region));
                }
            }
        }
        Ok(steps)
    }

    fn reduce(&self, all: &mut All, stream: &Stream, batch: Vec<Step>) -> Result<(), Error> {
        let args = self.args;
        let All { threads, processes, places, rates, regions, .. } = all;
        if let std::collections::hash_map::Entry::Vacant(e) = threads.entry(stream.number) {
            let made = |shape| Cache::new(shape, args.policy).map_err(Error::Consumer);
            e.insert(Levels {
                instructions: made(args.l1)?,
                data: if args.unified { None } else { Some(made(args.l1)?) },
                second: made(args.l2)?,
                reuse: args.curve.then(Reuse::default),
                open: Regions::default(),
            });
        }
        let number = stream.process.number;
        if !processes.contains_key(&number) {
            // A forked child has what its parent had.
            let parent = processes.values().rev().find(|p| p.pid == stream.process.parent);
            let maps = parent.map(|p| p.maps.clone()).unwrap_or_default();
            processes.insert(number, Process { pid: stream.process.pid, maps, costs: HashMap::new() });
        }
        let (Some(levels), Some(process)) = (threads.get_mut(&stream.number), processes.get_mut(&number)) else {
            return Ok(());
        };
        // Lines of the second level may be longer.
        let (from, to) = (args.l1.line.trailing_zeros(), args.l2.line.trailing_zeros());
        let second = |line: u64| line >> to.saturating_sub(from);
        let mut region = regions.number(levels.open.current());
        let mut now = Rates::default();
        for step in batch {
            match step {
                Step::Region(change) => {
                    rates.entry(region).or_default().add(&std::mem::take(&mut now));
                    levels.open.change(change);
                    region = regions.number(levels.open.current());
                }
                Step::Code(first, last) => {
                    for line in first..=last {
                        let hit = levels.instructions.access(line);
                        now.l1i.count(hit);
                        if !hit {
                            now.l2.count(levels.second.access(second(line)));
                        }
                    }
                }
                Step::Data(pc, first, last) => {
                    let cost = process.costs.entry((region, pc)).or_default();
                    for line in first..=last {
                        if let Some(reuse) = &mut levels.reuse {
                            reuse.access(line);
                        }
                        let hit = levels.data.as_mut().unwrap_or(&mut levels.instructions).access(line);
                        now.l1d.count(hit);
                        cost.l1.count(hit);
                        if !hit {
                            let hit = levels.second.access(second(line));
                            now.l2.count(hit);
                            cost.l2.count(hit);
                        }
                    }
                }
                Step::Event(event) => {
                    let (addr, len) = match &event {
                        Event::Mmap { addr, len, .. } | Event::Munmap { addr, len } => (*addr, *len),
                        _ => (0, 0),
                    };
                    if process.maps.has_file(addr, len) {
                        process.settle(places);
                    }
                    match event {
                        Event::Mmap { addr, len, offset, path, .. } => process.maps.map(addr, len, offset, &path),
                        Event::Munmap { addr, len } => process.maps.unmap(addr, len),
                        Event::Image { bias, path, .. } => process.maps.load(bias, &path),
                        _ => {}
                    }
                }
            }
        }
        rates.entry(region).or_default().add(&now);
        Ok(())
    }

    fn lost(&self, all: &mut All, _: &Stream, chunks: u64) -> Result<(), Error> {
        all.lost += chunks;
        Ok(())
    }
}

impl Process {
    /// Looks up what ran so far.
    fn settle(&mut self, places: &mut BTreeMap<(usize, Place), Cost>) {
        for ((region, pc), cost) in self.costs.drain() {
            places.entry((region, self.maps.place(pc))).or_default().add(cost);
        }
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
        let All { processes, places, .. } = &mut self.all;
        processes.values_mut().for_each(|p| p.settle(places));
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

    fn by_region(&mut self) -> bool {
        self.by_region = true;
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
        let simulate = Simulate { args: &self.args, by_region: self.by_region };
        consumer::run(source, &simulate, &mut self.all, options)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let rows = self.rows();
        let mut reuse = Reuse::default();
        self.all.threads.values().filter_map(|t| t.reuse.as_ref()).for_each(|r| reuse.merge(r));
        let total = reuse.cold + reuse.by_log2.iter().sum::<u64>();
        let curve: Vec<(u64, u64)> =
            reuse.misses().iter().enumerate().map(|(i, m)| (self.args.l1.line << i, *m)).collect();
        let All { rates, regions, lost, .. } = &self.all;
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
                if self.by_region {
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
                    if self.by_region && region.replace(*number) != Some(*number) {
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
                        if self.by_region {
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
                if self.by_region {
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
