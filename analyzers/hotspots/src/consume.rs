//! Adds up instructions, loads and stores by block, and blocks by function.
//!
//! Rules:
//! * A block's address is looked up when its mapping goes away, or at the end: so counting costs one addition per
//!   executed block, and a program that unloads one library and loads another at the same place is told right.
//! * Each process has its own mappings; a forked one starts with its parent's.

use comfy_table::{CellAlignment, Table as TextTable, presets};
use consumer::{
    Analysis, By, Chunk, Consumer, Error, Event, Format, Item, Options, Pool, Process, RegionChange, RegionNames,
    Regions, Source, Stream, Summary, Sums, Tally, run,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use symbols::{Function, Maps, Place, Symbols};

/// Settings.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// How many functions to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Hotspots { format, top: self.top, by: None, state: State::default() })
    }
}

struct Hotspots {
    format: Format,
    top: usize,
    by: Option<By>,
    state: State,
}

/// What is counted.
#[derive(Clone, Copy, Default)]
struct Heat {
    insns: u64,
    loads: u64,
    stores: u64,
}

impl Heat {
    fn add(&mut self, other: Heat) {
        self.insns += other.insns;
        self.loads += other.loads;
        self.stores += other.stores;
    }
}

impl From<Sums> for Heat {
    fn from(s: Sums) -> Heat {
        Heat { insns: s.insns, loads: s.loads, stores: s.stores }
    }
}

/// What happened in a part, in order.
enum Step {
    /// Blocks, by address.
    Ran(Vec<(u64, Heat)>),
    /// A change of the mappings.
    Event(Event),
    /// A change of the open regions of interest.
    Region(RegionChange),
}

#[derive(Default)]
struct Counter {
    by: Option<By>,
    scratch: Pool<Tally>,
}

#[derive(Default)]
struct Memory {
    maps: Maps,
    /// Not yet looked up, by number of the region and address of the block.
    blocks: HashMap<(usize, u64), Heat>,
}

impl Memory {
    /// Looks up what ran so far.
    fn settle(&mut self, places: &mut BTreeMap<(usize, Place), Heat>) {
        for ((region, pc), heat) in self.blocks.drain() {
            places.entry((region, self.maps.place(pc))).or_default().add(heat);
        }
    }
}

#[derive(Default)]
struct State {
    /// By number of the process.
    processes: BTreeMap<usize, (Arc<Process>, Memory)>,
    places: BTreeMap<(usize, Place), Heat>,
    regions: RegionNames,
    /// The open regions, by number of the stream.
    open: HashMap<usize, Regions>,
    lost: u64,
}

impl Consumer for Counter {
    type Batch = Vec<Step>;
    type State = State;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Step>, Error> {
        self.scratch.with(|tally| {
            let table = chunk.table();
            let mut steps = Vec::new();
            tally.start(table);
            let ran = |tally: &mut Tally, steps: &mut Vec<Step>| {
                let mut blocks = Vec::new();
                tally.finish(table, |info, sums| blocks.push((info.pc, sums.into())));
                if !blocks.is_empty() {
                    steps.push(Step::Ran(blocks));
                }
            };
            let mut items = chunk.items();
            let walked = loop {
                tally.add_plain(&mut items, |()| {});
                match items.next() {
                    None => break Ok(()),
                    Some(Err(e)) => break Err(e),
                    Some(Ok(Item::Block(block))) => tally.add(&block, |_| ()),
                    Some(Ok(Item::Event(
                        event @ (Event::Mmap { .. } | Event::Munmap { .. } | Event::Image { .. }),
                    ))) => {
                        ran(tally, &mut steps);
                        steps.push(Step::Event(event));
                    }
                    Some(Ok(Item::Event(event))) => {
                        if let Some(change) = RegionChange::of(&event, self.by) {
                            ran(tally, &mut steps);
                            steps.push(Step::Region(change));
                        }
                    }
                }
            };
            if let Err(e) = walked {
                tally.clear();
                return Err(e);
            }
            ran(tally, &mut steps);
            Ok(steps)
        })
    }

    fn reduce(&self, state: &mut State, stream: &Stream, batch: Vec<Step>) -> Result<(), Error> {
        let process = &stream.process;
        if !state.processes.contains_key(&process.number) {
            let parent =
                state.processes.values().rev().find(|(p, _)| p.pid == process.parent && p.number < process.number);
            let maps = parent.map(|(_, memory)| memory.maps.clone()).unwrap_or_default();
            state.processes.insert(process.number, (process.clone(), Memory { maps, ..Memory::default() }));
        }
        let Some((_, memory)) = state.processes.get_mut(&process.number) else {
            return Ok(());
        };
        let open = state.open.entry(stream.number).or_default();
        let regions = &mut state.regions;
        let mut region = regions.number(open.current());
        for step in batch {
            match step {
                Step::Region(change) => {
                    open.change(change);
                    region = regions.number(open.current());
                }
                Step::Ran(blocks) => {
                    for (pc, heat) in blocks {
                        memory.blocks.entry((region, pc)).or_default().add(heat);
                    }
                }
                Step::Event(Event::Mmap { addr, len, offset, path, .. }) => {
                    if memory.maps.has_file(addr, len) {
                        memory.settle(&mut state.places);
                    }
                    memory.maps.map(addr, len, offset, &path);
                }
                Step::Event(Event::Munmap { addr, len }) => {
                    if memory.maps.has_file(addr, len) {
                        memory.settle(&mut state.places);
                    }
                    memory.maps.unmap(addr, len);
                }
                Step::Event(Event::Image { bias, path, .. }) => memory.maps.load(bias, &path),
                Step::Event(_) => {}
            }
        }
        Ok(())
    }

    fn lost(&self, state: &mut State, _: &Stream, chunks: u64) -> Result<(), Error> {
        state.lost += chunks;
        Ok(())
    }
}

/// A function's row.
#[derive(Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    insns: u64,
    insns_percent: f64,
    loads: u64,
    loads_percent: f64,
    stores: u64,
    stores_percent: f64,
}

#[derive(Serialize)]
struct Report {
    insns: u64,
    loads: u64,
    stores: u64,
    lost_chunks: u64,
    functions: Vec<Row>,
}

/// A region, a file, a function's name and start.
type FunctionKey = (usize, Option<Arc<[u8]>>, String, u64);

/// Blocks of one function.
#[derive(Default)]
struct Group {
    heat: Heat,
    /// The hottest block: instructions, address in the file.
    hottest: Option<(u64, u64)>,
}

impl Hotspots {
    fn settle(&mut self) -> Report {
        let state = &mut self.state;
        for (_, memory) in state.processes.values_mut() {
            memory.settle(&mut state.places);
        }
        let mut files: HashMap<Arc<[u8]>, Symbols> = HashMap::new();
        let mut groups: BTreeMap<FunctionKey, Group> = BTreeMap::new();
        let mut total = Heat::default();
        for ((region, place), heat) in &state.places {
            total.add(*heat);
            let (key, addr) = match place {
                Place::Anonymous(_) => ((*region, None, "[anonymous]".to_string(), 0), None),
                Place::File(path, _) | Place::Image(path, _) => {
                    let symbols = files.entry(path.clone()).or_insert_with(|| Symbols::read(path));
                    let (addr, offset) = match place {
                        Place::File(_, offset) => (symbols.address(*offset), *offset),
                        Place::Image(_, addr) | Place::Anonymous(addr) => (Some(*addr), *addr),
                    };
                    let function = addr.and_then(|a| symbols.function(a)).unwrap_or_else(|| Function {
                        // Without a name, a page is as good a unit as any.
                        name: format!("{}+{:#x}", file_name(path), addr.unwrap_or(offset) & !0xfff),
                        start: 0,
                    });
                    ((*region, Some(path.clone()), function.name, function.start), addr)
                }
            };
            let group = groups.entry(key).or_default();
            group.heat.add(*heat);
            if let Some(addr) = addr
                && group.hottest.is_none_or(|(insns, _)| heat.insns > insns)
            {
                group.hottest = Some((heat.insns, addr));
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        // The sort is stable: equal ones stay ordered by their names.
        groups.sort_by_key(|(_, g)| std::cmp::Reverse((g.heat.insns, g.heat.loads, g.heat.stores)));
        // So many of each region, the regions in the order of their first opening.
        groups.sort_by_key(|((region, ..), _)| *region);
        let mut shown: HashMap<usize, usize> = HashMap::new();
        groups.retain(|((region, ..), _)| {
            let n = shown.entry(*region).or_default();
            *n += 1;
            *n <= self.top
        });
        let percent = |part: u64, whole: u64| {
            if whole == 0 { 0.0 } else { (part as f64 * 1e4 / whole as f64).round() / 1e2 }
        };
        let functions = groups
            .into_iter()
            .map(|((region, path, function, _), group)| {
                let symbols = path.as_ref().and_then(|p| files.get(p));
                let line = group.hottest.zip(symbols).and_then(|((_, addr), s)| s.line(addr));
                Row {
                    region: self.by.is_some().then(|| state.regions.name(region).to_string()),
                    function,
                    module: path.map(|p| String::from_utf8_lossy(&p).into_owned()),
                    file: line.as_ref().map(|l| l.0.clone()),
                    line: line.and_then(|l| l.1),
                    insns: group.heat.insns,
                    insns_percent: percent(group.heat.insns, total.insns),
                    loads: group.heat.loads,
                    loads_percent: percent(group.heat.loads, total.loads),
                    stores: group.heat.stores,
                    stores_percent: percent(group.heat.stores, total.stores),
                }
            })
            .collect();
        Report { insns: total.insns, loads: total.loads, stores: total.stores, lost_chunks: state.lost, functions }
    }
}

fn file_name(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    Path::new(&path).file_name().map_or(path.clone(), |n| n.to_string_lossy().into_owned())
}

fn text(report: &Report, out: &mut dyn Write) -> Result<(), Error> {
    let mut table = TextTable::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["insns", "", "loads", "", "stores", "", "function", "module", "hottest line"]);
    let mut region = None;
    for r in &report.functions {
        if r.region.is_some() && r.region.as_ref() != region {
            region = r.region.as_ref();
            let name = region.map_or("", |r| if r.is_empty() { "(outside)" } else { r });
            let mut cells = vec![String::new(); 6];
            cells.push(format!("-- {name}"));
            table.add_row(cells);
        }
        let mut cells = Vec::new();
        for (n, percent) in [(r.insns, r.insns_percent), (r.loads, r.loads_percent), (r.stores, r.stores_percent)] {
            cells.push(n.to_string());
            cells.push(format!("{percent:.2}%"));
        }
        cells.push(r.function.clone());
        cells.push(r.module.as_ref().map(|m| file_name(m.as_bytes())).unwrap_or_default());
        cells.push(match (&r.file, r.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file_name(file.as_bytes())),
            (Some(file), None) => file_name(file.as_bytes()),
            _ => String::new(),
        });
        table.add_row(cells);
    }
    for i in 0..6 {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "total: {} instructions, {} loads, {} stores", report.insns, report.loads, report.stores)?;
    if report.lost_chunks > 0 {
        writeln!(out, "{} chunks were lost: the numbers are too low", report.lost_chunks)?;
    }
    Ok(())
}

impl Analysis for Hotspots {
    fn name(&self) -> &'static str {
        "hotspots"
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
        let report = self.settle();
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
    use consumer::layout::kind;
    use consumer::testing::{ChunkBuilder, Parts, TableBuilder, insn, load, store, with_path};

    #[test]
    fn heat_goes_to_what_was_mapped_when_it_ran() {
        let mut t = TableBuilder::new("x86_64", 8, false);
        let a = t.block(0x7000_1010, &[insn(&[0x8b, 0x07], &[load(4)]), insn(&[0x89, 0x07], &[store(4)])]);
        let b = t.block(0x9000, &[insn(&[0x90], &[])]);
        let table = t.finish();
        let lib = |path| with_path(&[0x7000_0000, 0x2000, 5, 2, 0], path);
        let chunk = ChunkBuilder::new()
            .record(kind::MMAP, &lib("/nonexistent/one.so"))
            .block(a, &[1, 2])
            .block(a, &[1, 2])
            .record(kind::MUNMAP, &[0x7000_0000, 0x2000])
            .record(kind::MMAP, &lib("/nonexistent/two.so"))
            .block(a, &[1, 2])
            .block(b, &[])
            .words();
        let mut analysis = Args { top: 20 }.analysis(Format::Json);
        let mut out = Vec::new();
        analysis.consume(&mut Parts::new(&table, &[chunk]), &Options { workers: 2 }, &mut out).unwrap();
        analysis.report(&mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let rows: Vec<_> = json["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| {
                (r["function"].as_str().unwrap(), r["insns"].as_u64().unwrap(), r["loads_percent"].as_f64().unwrap())
            })
            .collect();
        assert_eq!(rows, [("one.so+0x1000", 4, 66.67), ("two.so+0x1000", 2, 33.33), ("[anonymous]", 1, 0.0)]);
    }

    #[test]
    fn the_table_reads_well() {
        let row = Row {
            region: None,
            function: "main".into(),
            module: Some("/bin/x".into()),
            file: Some("/src/x.c".into()),
            line: Some(7),
            insns: 12,
            insns_percent: 50.0,
            loads: 3,
            loads_percent: 25.0,
            stores: 0,
            stores_percent: 0.0,
        };
        let mut out = Vec::new();
        text(&Report { insns: 24, loads: 12, stores: 1, lost_chunks: 0, functions: vec![row] }, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("12  50.00%      3  25.00%"), "{out}");
        assert!(out.lines().nth(1).unwrap().ends_with("main      x       x.c:7"), "{out}");
    }
}
