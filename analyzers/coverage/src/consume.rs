//! Collects what ran, by module; writes it as the tools want it.

use crate::drcov::{self, Modules};
use consumer::{Analysis, BlockInfo, Chunk, Consumer, Error, Event, Format, Item, Options, Source, Stream, Summary};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use symbols::{Maps, Place, Symbolizer};

/// Settings.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {
    /// Write the coverage in DynamoRIO's format (drcov, version 2)
    #[arg(long, value_name = "FILE")]
    pub drcov: Option<PathBuf>,
    /// Write the coverage of source lines as a tracefile (lcov, genhtml)
    #[arg(long, value_name = "FILE")]
    pub lcov: Option<PathBuf>,
    /// Add what earlier runs covered (drcov files)
    #[arg(long, value_name = "FILE")]
    pub merge: Vec<PathBuf>,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Coverage { format, args: self, ran: Ran::default() })
    }
}

struct Coverage {
    format: Format,
    args: Args,
    ran: Ran,
}

/// What happened, in order.
enum Step {
    /// Code that ran: address, bytes.
    Code(u64, u16),
    Event(Event),
}

struct Collect;

#[derive(Default)]
struct Ran {
    processes: HashMap<usize, (u32, Maps)>,
    modules: Modules,
    /// Bytes of code in no file.
    anonymous: u64,
    symbols: Symbolizer,
    lost: u64,
}

fn pieces(block: &BlockInfo, insns: std::ops::Range<usize>, steps: &mut Vec<Step>) {
    if let Some(insns) = block.insns.get(insns)
        && let (Some(first), Some(last)) = (insns.first(), insns.last())
    {
        let size = last.pc.wrapping_add(u64::from(last.len)).wrapping_sub(first.pc);
        steps.push(Step::Code(first.pc, size.min(0xffff) as u16));
    }
}

impl Consumer for Collect {
    type Batch = Vec<Step>;
    type State = Ran;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for item in chunk.items() {
            match item? {
                Item::Event(Event::Once { block, insn, count }) => {
                    let (first, block) = (usize::from(insn), chunk.table().block(block)?);
                    pieces(block, first..(first + usize::from(count)).min(block.insns.len()), &mut steps);
                }
                Item::Event(event @ (Event::Mmap { .. } | Event::Munmap { .. } | Event::Image { .. })) => {
                    steps.push(Step::Event(event));
                }
                Item::Event(_) => {}
                // A stream that has more than coverage.
                Item::Block(block) => {
                    for insn in block.insns().filter(|i| i.is_traced()) {
                        pieces(block.info(), insn.index()..insn.index() + 1, &mut steps);
                    }
                }
            }
        }
        Ok(steps)
    }

    fn reduce(&self, ran: &mut Ran, stream: &Stream, batch: Vec<Step>) -> Result<(), Error> {
        let number = stream.process.number;
        if !ran.processes.contains_key(&number) {
            // A forked child has what its parent had.
            let parent = ran.processes.values().find(|(pid, _)| *pid == stream.process.parent);
            let maps = parent.map(|(_, maps)| maps.clone()).unwrap_or_default();
            ran.processes.insert(number, (stream.process.pid, maps));
        }
        for step in batch {
            let Some((_, maps)) = ran.processes.get_mut(&number) else { break };
            match step {
                Step::Event(Event::Mmap { addr, len, offset, path, .. }) => maps.map(addr, len, offset, &path),
                Step::Event(Event::Munmap { addr, len }) => maps.unmap(addr, len),
                Step::Event(Event::Image { bias, path, .. }) => maps.load(bias, &path),
                Step::Event(_) => {}
                Step::Code(pc, size) => {
                    let place = maps.place(pc);
                    ran.add(pc, size, &place);
                }
            }
        }
        Ok(())
    }

    fn lost(&self, ran: &mut Ran, _: &Stream, chunks: u64) -> Result<(), Error> {
        ran.lost += chunks;
        Ok(())
    }
}

impl Ran {
    fn add(&mut self, pc: u64, size: u16, place: &Place) {
        let path: &Arc<[u8]> = match place {
            Place::Anonymous(_) => {
                self.anonymous += u64::from(size);
                return;
            }
            Place::File(path, _) | Place::Image(path, _) => path,
        };
        let (low, high) = self.symbols.file(path).span();
        let addr = self.symbols.locate(place).addr;
        let Ok(offset) = u32::try_from(addr.wrapping_sub(low)) else { return };
        let base = pc.wrapping_sub(u64::from(offset));
        let module = self.modules.entry(String::from_utf8_lossy(path).into_owned()).or_insert_with(|| drcov::Module {
            base,
            end: base.wrapping_add(high.wrapping_sub(low)),
            blocks: BTreeSet::new(),
        });
        module.blocks.insert((offset, size));
    }

    fn merge(&mut self, path: &Path) -> Result<(), String> {
        let told = |e: String| format!("{}: {e}", path.display());
        let bytes = std::fs::read(path).map_err(|e| told(e.to_string()))?;
        for (path, module) in drcov::read(&bytes).map_err(told)? {
            let empty = drcov::Module { blocks: BTreeSet::new(), ..module.clone() };
            self.modules.entry(path).or_insert(empty).blocks.extend(module.blocks);
        }
        Ok(())
    }
}

/// A source file's lines, and whether each ran.
type Lines = BTreeMap<u32, bool>;

#[derive(Default)]
struct Listing {
    /// Module, function: bytes that ran.
    functions: BTreeMap<(String, String), u64>,
    files: BTreeMap<String, Lines>,
    /// By source file: line and name of each function that has a line, and whether it was entered.
    entered: BTreeMap<String, BTreeMap<(u32, String), bool>>,
}

impl Ran {
    fn listing(&mut self) -> Listing {
        let mut listing = Listing::default();
        for (path, module) in &self.modules {
            let shared: Arc<[u8]> = path.as_bytes().into();
            let symbols = self.symbols.file(&shared);
            let (low, _) = symbols.span();
            // Bytes, each once: pieces overlap where QEMU cut blocks differently. A piece is in one function.
            let mut covered: Vec<(u64, u64)> = Vec::new();
            for (start, size) in &module.blocks {
                let start = low.wrapping_add(u64::from(*start));
                let end = start.wrapping_add(u64::from(*size));
                let before = covered.last().map_or(0, |c| c.1);
                let new = end.saturating_sub(start.max(before));
                if new > 0 {
                    let name = symbols.function(start).map_or_else(|| "?".to_string(), |f| f.name);
                    *listing.functions.entry((path.clone(), name)).or_default() += new;
                }
                match covered.last_mut() {
                    Some(last) if start <= last.1 => last.1 = last.1.max(end),
                    _ => covered.push((start, end)),
                }
            }
            let hit = |start: u64, end: u64| {
                let i = covered.partition_point(|c| c.1 <= start);
                covered.get(i).is_some_and(|c| c.0 < end)
            };
            for function in symbols.functions() {
                if let Some((file, Some(line))) = symbols.line(function.start) {
                    let of_file = listing.entered.entry(file).or_default();
                    *of_file.entry((line, function.name)).or_default() |= hit(function.start, function.start + 1);
                }
            }
            for (start, end, file, line) in symbols.lines() {
                let hit = hit(start, end);
                *listing.files.entry(file).or_default().entry(line).or_default() |= hit;
            }
        }
        listing
    }
}

fn lcov(out: &mut dyn Write, listing: &Listing) -> io::Result<()> {
    for (file, lines) in &listing.files {
        writeln!(out, "TN:\nSF:{file}")?;
        if let Some(functions) = listing.entered.get(file) {
            for (line, name) in functions.keys() {
                writeln!(out, "FN:{line},{name}")?;
            }
            for ((_, name), entered) in functions {
                writeln!(out, "FNDA:{},{name}", u8::from(*entered))?;
            }
            writeln!(out, "FNF:{}\nFNH:{}", functions.len(), functions.values().filter(|e| **e).count())?;
        }
        for (line, hit) in lines {
            writeln!(out, "DA:{line},{}", u8::from(*hit))?;
        }
        writeln!(out, "LF:{}\nLH:{}\nend_of_record", lines.len(), lines.values().filter(|h| **h).count())?;
    }
    Ok(())
}

/// `3, 6-9`: lines that did not run. Those of them between which there is no code are taken together.
fn missed(lines: &Lines) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut before = true;
    for (line, hit) in lines {
        match ranges.last_mut() {
            Some(range) if !hit && !before => range.1 = *line,
            _ if !hit => ranges.push((*line, *line)),
            _ => {}
        }
        before = *hit;
    }
    let text = |(a, b): (u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let written = std::fs::File::create(path).map(io::BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()
    });
    written.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())).into())
}

impl Analysis for Coverage {
    fn name(&self) -> &'static str {
        "coverage"
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        // A file that cannot be merged is told before the program has run.
        for path in &self.args.merge {
            self.ran.merge(path).map_err(Error::Consumer)?;
        }
        consumer::run(source, &Collect, &mut self.ran, options)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        if let Some(path) = &self.args.drcov {
            to_file(path, |out| drcov::write(out, &self.ran.modules))?;
        }
        let listing = self.ran.listing();
        if let Some(path) = &self.args.lcov {
            to_file(path, |out| lcov(out, &listing))?;
        }
        let hit = |lines: &Lines| lines.values().filter(|h| **h).count();
        match self.format {
            Format::Text => {
                writeln!(out, "     bytes  function  (module)")?;
                let mut functions: Vec<_> = listing.functions.iter().collect();
                functions.sort_by_key(|(key, bytes)| (&key.0, std::cmp::Reverse(**bytes), &key.1));
                for ((module, name), bytes) in functions {
                    writeln!(out, "{bytes:>10}  {name}  ({})", module.rsplit('/').next().unwrap_or(module))?;
                }
                if !listing.files.is_empty() {
                    writeln!(out, "     lines  file: lines that did not run")?;
                }
                for (file, lines) in &listing.files {
                    let missed = missed(lines);
                    let colon = if missed.is_empty() { "" } else { ": " };
                    writeln!(out, "{:>10}  {file}{colon}{missed}", format!("{}/{}", hit(lines), lines.len()))?;
                }
                let blocks: usize = self.ran.modules.values().map(|m| m.blocks.len()).sum();
                write!(out, "coverage: {blocks} pieces of code in {} modules", self.ran.modules.len())?;
                writeln!(out, ", {} bytes of code in no file", self.ran.anonymous)?;
                if self.ran.lost > 0 {
                    writeln!(out, "{} chunks were lost: more may have run", self.ran.lost)?;
                }
            }
            Format::Json => {
                let functions: Vec<_> = listing
                    .functions
                    .iter()
                    .map(|((module, name), bytes)| serde_json::json!({"module": module, "function": name, "bytes": bytes}))
                    .collect();
                let files: Vec<_> = listing
                    .files
                    .iter()
                    .map(|(file, lines)| {
                        let of =
                            |want: bool| lines.iter().filter(|(_, h)| **h == want).map(|(l, _)| *l).collect::<Vec<_>>();
                        serde_json::json!({"file": file, "hit": of(true), "missed": of(false)})
                    })
                    .collect();
                let json = serde_json::json!({
                    "functions": functions,
                    "files": files,
                    "anonymous_bytes": self.ran.anonymous,
                    "lost_chunks": self.ran.lost,
                });
                writeln!(out, "{json}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_lines_that_did_not_run() {
        let of = |all: &[(u32, bool)]| missed(&all.iter().copied().collect());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[(1, true)]), "");
        assert_eq!(
            of(&[(1, false), (2, true), (3, false), (4, false), (9, false), (10, true), (11, false)]),
            "1, 3-9, 11"
        );
    }
}
