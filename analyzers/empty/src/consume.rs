//! Consumes nothing, and says that there was nothing.

use consumer::{Analysis, Chunk, Consumer, Error, Format, Item, Options, Source, Stream, Summary};
use std::io::Write;

/// Settings: none.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(Empty { format, seen: 0 })
    }
}

struct Empty {
    format: Format,
    seen: u64,
}

struct Seen;

impl Consumer for Seen {
    type Batch = u64;
    type State = u64;
    fn map(&self, chunk: &Chunk<'_>) -> Result<u64, Error> {
        let mut seen = 0;
        for item in chunk.items() {
            if let Item::Block(block) = item? {
                seen += block.insns().filter(|i| i.is_traced()).count() as u64 + block.accesses().count() as u64;
            }
        }
        Ok(seen)
    }
    fn reduce(&self, state: &mut u64, _: &Stream, batch: u64) -> Result<(), Error> {
        *state += batch;
        Ok(())
    }
}

impl Analysis for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }
    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        consumer::run(source, &Seen, &mut self.seen, options)
    }
    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        match self.format {
            Format::Text => writeln!(out, "empty: {} instructions and accesses were traced", self.seen)?,
            Format::Json => writeln!(out, "{{\"events\":{}}}", self.seen)?,
        }
        Ok(())
    }
}
