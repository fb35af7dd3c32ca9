//! The engine: order, errors and panics, with one worker and with several.

use consumer::testing::{ChunkBuilder, Parts, TableBuilder, insn, load, part, stream};
use consumer::{Chunk, Consumer, Error, Options, Stream, run};
use std::collections::HashMap;
use std::time::Duration;

/// Yields each part's first address; waits a little, by it, so that parts overtake each other.
struct First {
    /// What happens at this address.
    at: u64,
    what: fn() -> Result<(), Error>,
}

impl Consumer for First {
    type Batch = u64;
    type State = HashMap<usize, (Vec<u64>, bool)>;
    fn map(&self, chunk: &Chunk<'_>) -> Result<u64, Error> {
        let mut first = 0;
        for block in chunk.blocks() {
            first = block?.accesses().next().map_or(0, |a| a.addr);
        }
        std::thread::sleep(Duration::from_micros(first * 7919 % 300));
        if first == self.at {
            (self.what)()?;
        }
        Ok(first)
    }
    fn reduce(&self, state: &mut Self::State, stream: &Stream, batch: u64) -> Result<(), Error> {
        let (seen, ended) = state.entry(stream.number).or_default();
        assert!(!*ended, "a part after the end");
        seen.push(batch);
        Ok(())
    }
    fn ended(&self, state: &mut Self::State, stream: &Stream) -> Result<(), Error> {
        state.entry(stream.number).or_default().1 = true;
        Ok(())
    }
}

fn parts(bad: Option<u64>) -> Parts {
    let mut table = TableBuilder::new("x86_64", 8, false);
    let id = table.block(0x1000, &[insn(&[0x8b, 7], &[load(4)])]);
    let table = table.finish();
    let streams: Vec<_> = (0..3).map(stream).collect();
    let mut parts = Vec::new();
    for i in 0..300 {
        let id = if bad == Some(i) { 0x7fff } else { id };
        let words = ChunkBuilder::new().block(id, &[i]).words();
        parts.push(part(&streams[(i * i % 3) as usize], &table, i, &words));
    }
    Parts::of(parts)
}

#[test]
fn batches_come_in_order_whatever_map_takes() {
    for workers in [1, 2, 4] {
        let consumer = First { at: u64::MAX, what: || Ok(()) };
        let mut state = HashMap::new();
        let summary = run(&mut parts(None), &consumer, &mut state, &Options { workers }).unwrap();
        // Squares are 0 or 1 modulo 3.
        assert_eq!((summary.streams, summary.parts, state.len()), (2, 300, 2));
        for (seen, ended) in state.values() {
            assert!(*ended && seen.is_sorted(), "{seen:?}");
        }
    }
}

#[test]
fn an_error_of_map_ends_the_run() {
    for workers in [1, 3] {
        let consumer = First { at: 100, what: || Err(Error::Consumer("no".into())) };
        let e = run(&mut parts(None), &consumer, &mut HashMap::new(), &Options { workers }).unwrap_err();
        assert_eq!(e.to_string(), "no");
    }
}

#[test]
fn a_corrupt_chunk_is_named_with_its_thread_and_number() {
    for workers in [1, 3] {
        let consumer = First { at: u64::MAX, what: || Ok(()) };
        let e = run(&mut parts(Some(30)), &consumer, &mut HashMap::new(), &Options { workers }).unwrap_err();
        let said = e.to_string();
        assert!(said.starts_with("process 1000, thread 2000, chunk 30: corrupt record at byte 0x0"), "{said}");
    }
}

#[test]
fn a_panic_of_map_is_passed_on_and_nobody_hangs() {
    for workers in [1, 3] {
        let consumer = First { at: 100, what: || panic!("as the test wants") };
        let run = std::panic::AssertUnwindSafe(|| {
            run(&mut parts(None), &consumer, &mut HashMap::new(), &Options { workers })
        });
        let panic = std::panic::catch_unwind(run).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as the test wants"));
    }
}
