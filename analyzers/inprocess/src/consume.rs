//! Takes the results of the processes, and adds them up.

use crate::{COUNTS, RESULT};
use consumer::{Analysis, Chunk, Consumer, Error, Event, Format, Item, Options, Source, Stream, Summary};
use std::collections::BTreeMap;
use std::io::Write;

/// Settings: none.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Args {}

impl Args {
    /// The analysis with these settings.
    pub fn analysis(self, format: Format) -> Box<dyn Analysis> {
        Box::new(InProcess { format, processes: BTreeMap::new() })
    }
}

/// Words of a result.
const WORDS: usize = COUNTS.len() + 65;

struct InProcess {
    format: Format,
    /// By process id: its latest result. A failed `execve` is followed by another one.
    processes: BTreeMap<u32, Vec<u64>>,
}

struct Results;

impl Consumer for Results {
    type Batch = Option<Vec<u64>>;
    type State = BTreeMap<u32, Vec<u64>>;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Self::Batch, Error> {
        let mut found = None;
        let mut look = |event: &Event| {
            if let Event::User { id: RESULT, bytes, .. } = event {
                let words: Vec<u64> =
                    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())).collect();
                if words.len() == WORDS {
                    found = Some(words);
                }
            }
        };
        for item in chunk.items() {
            match item? {
                Item::Event(event) => look(&event),
                Item::Block(block) => block.notes().for_each(|(_, event)| look(&event)),
            }
        }
        Ok(found)
    }

    fn reduce(&self, state: &mut Self::State, stream: &Stream, batch: Self::Batch) -> Result<(), Error> {
        if let Some(words) = batch {
            state.insert(stream.process.pid, words);
        }
        Ok(())
    }
}

impl Analysis for InProcess {
    fn name(&self) -> &'static str {
        "inprocess"
    }

    fn consume(
        &mut self,
        source: &mut dyn Source,
        options: &Options,
        _: &mut (dyn Write + Send),
    ) -> Result<Summary, Error> {
        consumer::run(source, &Results, &mut self.processes, options)
    }

    fn report(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let mut sum = vec![0u64; WORDS];
        for words in self.processes.values() {
            sum.iter_mut().zip(words).for_each(|(a, b)| *a += b);
        }
        let (counts, bits) = sum.split_at(COUNTS.len());
        match self.format {
            Format::Text => {
                for (name, n) in COUNTS.iter().zip(counts) {
                    writeln!(out, "{n:>14}  {name}")?;
                }
                writeln!(out, "        stores  bits of the value")?;
                for (i, n) in bits.iter().enumerate().filter(|(_, n)| **n != 0) {
                    writeln!(out, "{n:>14}  {i}")?;
                }
            }
            Format::Json => {
                let mut json: serde_json::Map<String, serde_json::Value> =
                    COUNTS.iter().zip(counts).map(|(k, v)| (k.to_string(), (*v).into())).collect();
                json.insert("value_bits".into(), bits.to_vec().into());
                json.insert("processes".into(), self.processes.len().into());
                serde_json::to_writer(&mut *out, &json).map_err(std::io::Error::from)?;
                writeln!(out)?;
            }
        }
        Ok(())
    }
}
