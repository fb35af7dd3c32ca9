//! A consumer as a process of its own, for tests that kill it, slow it down or let it panic.
//!
//! `trapline-test-consumer SOCKET MODE`, where MODE is one of
//! `count` (reads all), `lossy-slow` (lossy; 1 ms per part), `slow` (1 ms per part), `panic` (after three parts), `hang`
//! (attaches and reads nothing). Prints `ready` when attached, and at the end `insns N loads N stores N streams N chunks N lost N`.

use consumer::{Chunk, Consumer, Error, Options, Stream};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;
use trapline_tests::{Counts, connect};

struct Count {
    nap: Option<Duration>,
    panics: bool,
}

#[derive(Default)]
struct State {
    counts: Counts,
    chunks: HashSet<(usize, u64)>,
    parts: u64,
    lost: u64,
}

impl Consumer for Count {
    type Batch = (Counts, (usize, u64));
    type State = State;

    fn map(&self, chunk: &Chunk<'_>) -> Result<Self::Batch, Error> {
        if let Some(nap) = self.nap {
            std::thread::sleep(nap);
        }
        let mut n = Counts::default();
        for block in chunk.blocks() {
            let block = block?;
            n.insns += block.retired() as u64;
            for a in block.accesses() {
                if a.is_store() {
                    n.stores += 1;
                } else {
                    n.loads += 1;
                }
            }
        }
        Ok((n, (chunk.stream().number, chunk.number())))
    }

    fn reduce(&self, state: &mut State, _: &Stream, (n, chunk): Self::Batch) -> Result<(), Error> {
        state.counts += n;
        state.chunks.insert(chunk);
        state.parts += 1;
        assert!(!self.panics || state.parts < 3, "a consumer that panics");
        Ok(())
    }

    fn lost(&self, state: &mut State, _: &Stream, chunks: u64) -> Result<(), Error> {
        state.lost += chunks;
        Ok(())
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, socket, mode] = args.as_slice() else { panic!("SOCKET MODE") };
    let mut receiver =
        connect(Path::new(socket), mode.starts_with("lossy"), Duration::from_secs(20)).expect("a connection");
    println!("ready");
    if mode == "hang" {
        loop {
            std::thread::park();
        }
    }
    let consumer = Count { nap: mode.ends_with("slow").then_some(Duration::from_millis(1)), panics: mode == "panic" };
    let mut state = State::default();
    let summary = consumer::run(&mut receiver, &consumer, &mut state, &Options::default()).expect("streams");
    assert_eq!(summary.lost, state.lost);
    let Counts { insns, loads, stores, .. } = state.counts;
    println!(
        "insns {insns} loads {loads} stores {stores} streams {} chunks {} lost {}",
        summary.streams,
        state.chunks.len(),
        state.lost
    );
}
