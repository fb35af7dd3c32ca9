//! Block tables, chunks and streams made by hand, so that the right answer of a test can be derived on paper.
//!
//! Everything panics on mistakes: this is for tests only.

use crate::{Consumer, Error, Options, Source, Summary, run};
use pipe::layout::{
    EXECUTED_SHIFT, FLAG_PARTIAL, INSN_TRACED, TABLE_HEADER, TABLE_MAGIC, VERSION, WORDS_SHIFT, info, kind,
};
use pipe::receiver::{Part, Polled, ProcessInfo, StreamInfo};
use pipe::table::{Table, extra_words};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A static access of an instruction: size and `info` bits.
#[derive(Clone, Copy, Debug)]
pub struct TestAccess {
    /// Size in bytes.
    pub size: u16,
    /// `layout::info` bits.
    pub bits: u64,
}

/// A load of `size` bytes.
pub fn load(size: u16) -> TestAccess {
    TestAccess { size, bits: 0 }
}
/// A store of `size` bytes.
pub fn store(size: u16) -> TestAccess {
    TestAccess { size, bits: info::STORE }
}

impl TestAccess {
    /// With more `info` bits.
    pub fn with(mut self, bits: u64) -> Self {
        self.bits |= bits;
        self
    }
}

/// An instruction: its bytes and static accesses.
#[derive(Clone, Debug)]
pub struct TestInsn {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// `INSN_*` bits.
    pub flags: u8,
    /// Its accesses.
    pub accesses: Vec<TestAccess>,
}

/// A traced instruction.
pub fn insn(bytes: &[u8], accesses: &[TestAccess]) -> TestInsn {
    TestInsn { bytes: bytes.to_vec(), flags: INSN_TRACED, accesses: accesses.to_vec() }
}

/// Composes a block table.
pub struct TableBuilder {
    words: Vec<u64>,
}

fn pack(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(8)
        .map(|c| {
            let mut w = [0; 8];
            w[..c.len()].copy_from_slice(c);
            u64::from_ne_bytes(w)
        })
        .collect()
}

impl TableBuilder {
    /// An empty table of a guest.
    pub fn new(target: &str, guest_word: u8, big_endian: bool) -> Self {
        let mut header = vec![0u8; TABLE_HEADER as usize];
        header[..8].copy_from_slice(&TABLE_MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        header[12] = guest_word;
        header[13] = u8::from(big_endian);
        header[32..32 + target.len()].copy_from_slice(target.as_bytes());
        header[64..68].copy_from_slice(b"test");
        TableBuilder { words: pack(&header) }
    }

    /// The guest is a whole machine.
    pub fn machine(mut self) -> Self {
        let mut bytes = self.words[1].to_ne_bytes();
        bytes[6] = 1;
        self.words[1] = u64::from_ne_bytes(bytes);
        self
    }

    /// Adds a block at `pc`; returns its id.
    pub fn block(&mut self, pc: u64, insns: &[TestInsn]) -> u32 {
        self.block_with(pc, 0, insns)
    }

    /// The same with `BLOCK_*` flags.
    pub fn block_with(&mut self, pc: u64, flags: u32, insns: &[TestInsn]) -> u32 {
        let id = self.words.len() as u32;
        let (mut insn_words, mut access_words, mut code) = (Vec::new(), Vec::new(), Vec::new());
        let mut slot = 1u16;
        for (i, insn) in insns.iter().enumerate() {
            let mut b = (code.len() as i32).to_ne_bytes().to_vec();
            b.extend([insn.bytes.len() as u8, insn.flags]);
            b.extend((access_words.len() as u16).to_ne_bytes());
            insn_words.extend(pack(&b));
            for a in &insn.accesses {
                let b: Vec<u8> =
                    [i as u16, slot, a.size, (a.bits >> 32) as u16].iter().flat_map(|v| v.to_ne_bytes()).collect();
                access_words.extend(pack(&b));
                slot += u16::from(a.bits & info::OPTIONAL != 0) + 1 + extra_words(a.bits, a.size.into()) as u16;
            }
            code.extend(&insn.bytes);
        }
        let n_accesses = access_words.len() as u16;
        let words = 3 + insn_words.len() + access_words.len() + code.len().div_ceil(8);
        let mut head = (words as u32).to_ne_bytes().to_vec();
        head.extend(flags.to_ne_bytes());
        head.extend(pc.to_ne_bytes());
        for v in [insns.len() as u16, n_accesses, slot - 1, code.len() as u16] {
            head.extend(v.to_ne_bytes());
        }
        self.words.extend(pack(&head));
        self.words.extend(insn_words);
        self.words.extend(access_words);
        self.words.extend(pack(&code));
        id
    }

    /// The table's words, for tests that damage them.
    pub fn words(&self) -> Vec<u64> {
        self.words.clone()
    }

    /// The table.
    pub fn finish(self) -> Arc<Table> {
        Arc::new(Table::from_words(&self.words).expect("a table"))
    }
}

/// Composes a chunk.
#[derive(Clone, Debug, Default)]
pub struct ChunkBuilder {
    words: Vec<u64>,
}

impl ChunkBuilder {
    /// An empty chunk.
    pub fn new() -> Self {
        Self::default()
    }
    /// A block that ran to its end; `slots` are all its slot words.
    pub fn block(mut self, id: u32, slots: &[u64]) -> Self {
        self.words.push(u64::from(id));
        self.words.extend(slots);
        self
    }
    /// A block that was left: `executed` instructions retired, `valid` of its slot words are valid.
    pub fn partial(mut self, id: u32, executed: u64, flags: u64, valid: u64, slots: &[u64]) -> Self {
        self.words.push(u64::from(id) | executed << EXECUTED_SHIFT | FLAG_PARTIAL | flags | valid << WORDS_SHIFT);
        self.words.extend(slots);
        self
    }
    /// Any other record.
    pub fn record(mut self, kind: u8, payload: &[u64]) -> Self {
        self.words.push(u64::from(kind) << 32 | (payload.len() as u64) << 40);
        self.words.extend(payload);
        self
    }
    /// Accesses made in helpers by instruction `insn` of block `id`; `words`: info, address, values of each.
    pub fn access(self, id: u32, insn: u64, words: &[u64]) -> Self {
        let mut payload = vec![u64::from(id) << 32 | insn << 16];
        payload.extend(words);
        self.record(kind::ACCESS, &payload)
    }
    /// A block goes on here at `insn`, with `valid` slot words from before.
    pub fn cont(self, insn: u64, valid: u64) -> Self {
        self.record(kind::CONT, &[insn | valid << 16])
    }
    /// The words.
    pub fn words(self) -> Vec<u64> {
        self.words
    }
}

/// A payload with a path at its end.
pub fn with_path(words: &[u64], path: &str) -> Vec<u64> {
    let mut payload = words.to_vec();
    payload.push(path.len() as u64);
    payload.extend(pack(path.as_bytes()));
    payload
}

/// A stream of process `1000 + number` with the thread id `2000 + number`.
pub fn stream(number: usize) -> Arc<StreamInfo> {
    let process = ProcessInfo { number, pid: 1000 + number as u32, parent: 0, program: b"/test".to_vec() };
    Arc::new(StreamInfo { number, process: Arc::new(process), tid: 2000 + number as u32, vcpu: 0 })
}

/// A part with these words.
pub fn part(stream: &Arc<StreamInfo>, table: &Arc<Table>, chunk: u64, words: &[u64]) -> Part {
    let words: Arc<[AtomicU64]> = words.iter().map(|w| AtomicU64::new(*w)).collect();
    Part::owned(stream.clone(), table.clone(), chunk, words)
}

/// A source of parts that are all there.
pub struct Parts(VecDeque<Polled>);

impl Parts {
    /// One stream of these chunks.
    pub fn new(table: &Arc<Table>, chunks: &[Vec<u64>]) -> Self {
        let stream = stream(0);
        let parts = chunks.iter().enumerate().map(|(i, words)| part(&stream, table, i as u64, words));
        Self::of(parts.collect())
    }

    /// These parts, then the end of their streams.
    pub fn of(parts: Vec<Part>) -> Self {
        let mut streams: Vec<Arc<StreamInfo>> = Vec::new();
        for p in &parts {
            if !streams.iter().any(|s| s.number == p.stream.number) {
                streams.push(p.stream.clone());
            }
        }
        Parts(parts.into_iter().map(Polled::Part).chain(streams.into_iter().map(Polled::Ended)).collect())
    }
}

impl Source for Parts {
    fn poll(&mut self) -> Result<Polled, Error> {
        Ok(self.0.pop_front().unwrap_or(Polled::End))
    }
    fn wait(&self) {}
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}

/// Runs a consumer on one stream of these chunks with one worker and with three; both must agree in `show`.
pub fn feed<C: Consumer, T: PartialEq + std::fmt::Debug>(
    consumer: &C,
    table: &Arc<Table>,
    chunks: &[Vec<u64>],
    mut new: impl FnMut() -> C::State,
    show: impl Fn(&C::State) -> T,
) -> Result<(T, Summary), Error> {
    let mut one = new();
    let summary = run(&mut Parts::new(table, chunks), consumer, &mut one, &Options { workers: 1 })?;
    let mut three = new();
    let again = run(&mut Parts::new(table, chunks), consumer, &mut three, &Options { workers: 3 })?;
    assert_eq!(show(&one), show(&three), "one worker and three must agree");
    assert_eq!(summary, again);
    Ok((show(&one), summary))
}
