//! Prints the stores that touch the range.

use crate::RANGE;
use consumer::{Analysis, Chunk, Consumer, Error, Event, Format, Item, Options, Source, Stream, Summary};
use std::collections::HashMap;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Range;
use symbols::{Location, Maps, Symbolizer};

/// Settings.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {
    /// Watch these addresses, the last not included (0x404010-0x404018)
    #[arg(long, value_name = "LO-HI", conflicts_with = "symbol")]
    pub addresses: Option<String>,
    /// Watch this symbol of the program
    #[arg(long, value_name = "NAME")]
    pub symbol: Option<String>,
}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Watch { format, args: self, seen: Seen::default() })
    }
}

struct Watch {
    format: Format,
    args: Args,
    seen: Seen,
}

/// What the report says at the end.
#[derive(Clone, Copy, Default)]
struct Seen {
    stores: u64,
    ranges: u64,
    lost: u64,
}

/// A store, by whom.
#[derive(Debug, PartialEq, Eq)]
struct Store {
    pc: u64,
    addr: u64,
    size: u32,
    value: Option<u128>,
}

/// What happened, in order.
enum Step {
    Store(Store),
    Event(Event),
}

struct Lines<'o> {
    format: Format,
    printer: PhantomData<fn(&'o mut (dyn Write + Send))>,
}

#[derive(Default)]
struct Process {
    maps: Maps,
    range: Option<Range<u64>>,
}

struct Printer<'o> {
    out: &'o mut (dyn Write + Send),
    processes: HashMap<usize, (u32, Process)>,
    symbols: Symbolizer,
    seen: Seen,
}

impl<'o> Consumer for Lines<'o> {
    type Batch = Vec<Step>;
    type State = Printer<'o>;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for item in chunk.items() {
            match item? {
                Item::Block(block) => {
                    for insn in block.insns() {
                        for a in insn.accesses().filter(|a| a.is_store()) {
                            let store = Store { pc: insn.pc(), addr: a.addr, size: a.size, value: a.value };
                            steps.push(Step::Store(store));
                        }
                    }
                }
                Item::Event(event) => {
                    let matters = matches!(
                        event,
                        Event::Mmap { .. } | Event::Munmap { .. } | Event::Image { .. } | Event::User { id: RANGE, .. }
                    );
                    steps.extend(matters.then_some(Step::Event(event)));
                }
            }
        }
        Ok(steps)
    }

    fn reduce(&self, printer: &mut Printer<'o>, stream: &Stream, batch: Vec<Step>) -> Result<(), Error> {
        let Printer { out, processes, symbols, seen } = printer;
        let number = stream.process.number;
        if !processes.contains_key(&number) {
            // A forked child has what its parent had.
            let parent = processes.values().find(|(pid, _)| *pid == stream.process.parent);
            let inherited = parent.map(|(_, p)| Process { maps: p.maps.clone(), range: p.range.clone() });
            processes.insert(number, (stream.process.pid, inherited.unwrap_or_default()));
        }
        let Some((_, process)) = processes.get_mut(&number) else { return Ok(()) };
        for step in batch {
            match step {
                Step::Event(Event::Mmap { addr, len, offset, path, .. }) => process.maps.map(addr, len, offset, &path),
                Step::Event(Event::Munmap { addr, len }) => process.maps.unmap(addr, len),
                Step::Event(Event::Image { bias, path, .. }) => process.maps.load(bias, &path),
                Step::Event(Event::User { bytes, .. }) => {
                    if let Some((lo, hi)) = bytes.split_first_chunk::<8>()
                        && let Ok(hi) = hi.try_into()
                    {
                        process.range = Some(u64::from_le_bytes(*lo)..u64::from_le_bytes(hi));
                        seen.ranges += 1;
                    }
                }
                Step::Event(_) => {}
                Step::Store(store) => {
                    let end = store.addr.saturating_add(u64::from(store.size));
                    if process.range.as_ref().is_some_and(|r| store.addr < r.end && end > r.start) {
                        seen.stores += 1;
                        let from = symbols.locate(&process.maps.place(store.pc));
                        line(out, self.format, stream, &store, &from)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn lost(&self, printer: &mut Printer<'o>, _: &Stream, chunks: u64) -> Result<(), Error> {
        printer.seen.lost += chunks;
        Ok(())
    }
}

fn line(out: &mut dyn Write, format: Format, stream: &Stream, s: &Store, from: &Location) -> Result<(), Error> {
    let value = s.value.map_or("?".to_string(), |v| format!("{v:#x}"));
    match format {
        Format::Text => {
            writeln!(out, "{} {:#x} {} = {value} by {:#x} {from}", stream.tid, s.addr, s.size, s.pc)?;
        }
        Format::Json => {
            let json = serde_json::json!({
                "tid": stream.tid,
                "addr": format!("{:#x}", s.addr),
                "size": s.size,
                "value": value,
                "pc": format!("{:#x}", s.pc),
                "function": from.function.as_ref().map(|f| &f.name),
                "module": from.module,
                "file": from.line.as_ref().map(|l| &l.0),
                "line": from.line.as_ref().and_then(|l| l.1),
            });
            writeln!(out, "{json}")?;
        }
    }
    Ok(())
}

impl Analysis for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn qemu_options(&self) -> Vec<(String, String)> {
        let given = [("addresses", &self.args.addresses), ("symbol", &self.args.symbol)];
        given.into_iter().filter_map(|(k, v)| Some((k.to_string(), v.clone()?))).collect()
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        out: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        let mut printer =
            Printer { out, processes: HashMap::new(), symbols: Symbolizer::default(), seen: Seen::default() };
        let lines = Lines { format: self.format, printer: PhantomData };
        let result = consumer::run(source, &lines, &mut printer, options);
        self.seen = printer.seen;
        printer.out.flush()?;
        result
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let Seen { stores, ranges, lost } = self.seen;
        match (ranges, &self.args.symbol) {
            (0, Some(name)) => {
                return Err(Error::Consumer(format!(
                    "the program has no symbol '{name}' with an address; --addresses LO-HI watches what has no name"
                )));
            }
            (0, None) => {
                return Err(Error::Consumer(
                    "nothing was watched: --addresses LO-HI or --symbol NAME says what".into(),
                ));
            }
            _ if self.format == Format::Json => return Ok(()),
            _ => writeln!(out, "watch: {stores} stores")?,
        }
        if lost > 0 {
            writeln!(out, "{lost} chunks were lost: there may be more")?;
        }
        Ok(())
    }
}
