//! Writing.
//!
//! Rules:
//! * With one worker, parts are packed and written where they are handed out ([`Tee`]): to wake a thread takes as long as to pack a chunk. With more, words
//!   are copied there, so that the consumer behind it may go on; they are counted and packed by worker threads, and written in order by one more.
//! * A worker looks up every block of its chunk before the chunk is written: blocks are in the file before what names them.
//! * What is under way is bounded: a slow disk holds the guest.

use super::predict::Predictor;
use super::{CHUNK_HEADER, Head, Metadata, PLAIN, Packing, ProcessRecord, StreamRecord, header, kind, words_to_bytes};
use crate::layout::{EXECUTED_MASK, EXECUTED_SHIFT, kind as record};
use crate::{Chunk, Error, Event, Item, Polled, Source, Tally};
use crossbeam_channel::{Receiver, Sender, bounded};
use object::Object;
use pipe::receiver::{Part, StreamInfo};
use pipe::table::Table;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Instant;

/// Chunks under way.
const IN_FLIGHT: usize = 16;

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Instructions that retired and were traced.
    pub insns: u64,
    /// Bytes of chunks.
    pub unpacked: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Chunks that were overwritten before they were read.
    pub lost: u64,
}

/// What is to be written, or is still to be packed for it.
enum Job {
    Part { part: Part, lost: u64, at_ns: u64 },
    Done(Done),
}

impl Job {
    fn done(self, packer: &mut Packer) -> Done {
        match self {
            Job::Part { part, lost, at_ns } => packer.chunk(&part, lost, at_ns),
            Job::Done(done) => done,
        }
    }
}

enum Done {
    Chunk {
        stream: Arc<StreamInfo>,
        table: Arc<Table>,
        insns: u64,
        /// Nothing of it is missed by who does not want its instructions.
        plain: bool,
        /// Files that were mapped to be run.
        modules: Vec<Vec<u8>>,
        at_ns: u64,
        unpacked: u64,
        bytes: Vec<u8>,
    },
    Ended(Arc<StreamInfo>),
}

/// A recording that is being written.
pub struct Recorder {
    to: To,
    began: Instant,
    lost: u64,
    /// Chunks of each stream that were lost since its last part.
    owing: HashMap<usize, u64>,
}

enum To {
    Here {
        packer: Box<Packer>,
        writer: Box<Writer>,
        /// What it could not do.
        failed: Option<io::Error>,
    },
    Threads {
        /// With their numbers.
        jobs: Sender<(u64, Job)>,
        number: u64,
        workers: Vec<JoinHandle<()>>,
        writer: JoinHandle<io::Result<Recorded>>,
    },
}

impl To {
    fn threads(workers: usize, mut writer: Writer) -> To {
        let (jobs, take) = bounded(IN_FLIGHT);
        let (give, done) = bounded(IN_FLIGHT);
        let start = |_| {
            let (take, give) = (take.clone(), give.clone());
            std::thread::spawn(move || work(&take, &give))
        };
        let workers = (0..workers).map(start).collect();
        let write = move || {
            writer.all(&done)?;
            writer.finish()
        };
        To::Threads { jobs, number: 0, workers, writer: std::thread::spawn(write) }
    }

    /// Reads a part: packs it, or copies it for those who do.
    fn read(&mut self, part: &Part, lost: u64, at_ns: u64) -> Job {
        match self {
            To::Here { packer, .. } => Job::Done(packer.chunk(part, lost, at_ns)),
            To::Threads { .. } => {
                let words = part.words().iter().map(AtomicU64::new).collect();
                let mut copy = Part::owned(part.stream.clone(), part.table.clone(), part.chunk, words);
                (copy.order, copy.last_of_chunk) = (part.order, part.last_of_chunk);
                Job::Part { part: copy, lost, at_ns }
            }
        }
    }

    fn send(&mut self, job: Job) -> Result<(), Error> {
        let sent = match self {
            To::Here { packer, writer, failed } => {
                if failed.is_none() {
                    *failed = writer.write(job.done(packer)).err();
                }
                failed.is_none()
            }
            To::Threads { jobs, number, .. } => {
                *number += 1;
                jobs.send((*number - 1, job)).is_ok()
            }
        };
        if sent { Ok(()) } else { Err(Error::Consumer("the recording cannot be written any more".into())) }
    }
}

impl Recorder {
    /// Writes to `out`, from `workers` packing threads.
    ///
    /// # Errors
    /// If the beginning cannot be written.
    pub fn new(mut out: Box<dyn Write + Send>, metadata: &Metadata, workers: usize) -> Result<Recorder, Error> {
        let text = serde_json::to_vec(metadata).map_err(|e| Error::Consumer(format!("the metadata: {e}")))?;
        let mut packing = Packing::default();
        let first = packing.frame(Head { kind: kind::METADATA, ..Head::default() }, &text);
        out.write_all(&header())?;
        out.write_all(&first)?;
        let writer = Writer::new(out, (super::HEADER + first.len()) as u64, packing, metadata.clone());
        let to = match workers {
            0 | 1 => To::Here { packer: Box::default(), writer: Box::new(writer), failed: None },
            _ => To::threads(workers, writer),
        };
        Ok(Recorder { to, began: Instant::now(), lost: 0, owing: HashMap::new() })
    }

    /// Takes down a part. It may be given back afterwards.
    ///
    /// # Errors
    /// If the recording cannot be written any more: [`Recorder::finish`] says why.
    pub fn part(&mut self, part: &Part) -> Result<(), Error> {
        let at_ns = self.began.elapsed().as_nanos() as u64;
        let stream = part.stream.number;
        let lost = part.lost + self.owing.remove(&stream).unwrap_or(0);
        self.lost += part.lost;
        let job = self.to.read(part, lost, at_ns);
        // Known when it has been read.
        if part.was_overrun() {
            self.lost += 1;
            self.owing.insert(stream, lost + 1);
            return Ok(());
        }
        self.to.send(job)
    }

    /// Nothing of a stream follows.
    ///
    /// # Errors
    /// As [`Recorder::part`].
    pub fn ended(&mut self, stream: &Arc<StreamInfo>) -> Result<(), Error> {
        self.to.send(Job::Done(Done::Ended(stream.clone())))
    }

    /// Writes the rest and the index.
    ///
    /// # Errors
    /// If something could not be written.
    pub fn finish(self) -> Result<Recorded, Error> {
        let panicked = |_| Error::Consumer("a thread that records panicked".into());
        let mut recorded = match self.to {
            To::Here { failed: Some(e), .. } => return Err(e.into()),
            To::Here { writer, .. } => writer.finish()?,
            To::Threads { jobs, workers, writer, .. } => {
                drop(jobs);
                for worker in workers {
                    worker.join().map_err(panicked)?;
                }
                writer.join().map_err(panicked)??
            }
        };
        recorded.lost = self.lost;
        Ok(recorded)
    }
}

fn work(take: &Receiver<(u64, Job)>, give: &Sender<(u64, Done)>) {
    let mut packer = Packer::default();
    for (number, job) in take {
        if give.send((number, job.done(&mut packer))).is_err() {
            return;
        }
    }
}

/// Makes frames of chunks.
#[derive(Default)]
struct Packer {
    packing: Packing,
    predictor: Predictor,
    bytes: Vec<u8>,
    tally: Tally,
}

impl Packer {
    fn chunk(&mut self, part: &Part, lost: u64, at_ns: u64) -> Done {
        let table = &*part.table;
        let words = part.words();
        self.bytes.clear();
        words_to_bytes([part.chunk, part.order, at_ns, u64::from(part.last_of_chunk)].into_iter(), &mut self.bytes);
        // Instructions are counted on the way, but for what is not worth it.
        let (mut insns, mut intricate, mut events) = (0, false, false);
        let tally = &mut self.tally;
        tally.start(table);
        self.predictor.pack(table, words, &mut self.bytes, |word, head| match head {
            Some(_) if word >> 32 == 0 => tally.add_whole(table, word as u32),
            Some(_) => {
                let executed = (word >> EXECUTED_SHIFT & EXECUTED_MASK) as usize;
                let of = table.known(word as u32).map_or(&[][..], |info| &info.insns);
                insns += of.iter().take(executed).filter(|i| i.is_traced()).count() as u64;
            }
            None => {
                let kind = (word >> 32) as u8;
                let of_insns = matches!(kind, record::CONT | record::ONCE | record::REGS | record::USER);
                intricate |= of_insns;
                events |= !of_insns && kind != record::ACCESS;
            }
        });
        tally.finish(table, |_, sums| insns += sums.insns);
        if intricate {
            insns = walked(part);
        }
        let head = Head {
            kind: kind::PREDICTED,
            number: part.stream.number as u32,
            a: insns,
            b: lost.min(u32::MAX.into()) as u32,
            ..Head::default()
        };
        Done::Chunk {
            stream: part.stream.clone(),
            table: part.table.clone(),
            insns,
            plain: !events && lost == 0,
            modules: if events { modules(part) } else { Vec::new() },
            at_ns,
            unpacked: (CHUNK_HEADER + words.len() * 8) as u64,
            bytes: self.packing.frame(head, &self.bytes),
        }
    }
}

/// Instructions of a part, one by one. It makes blocks known that only other records name.
fn walked(part: &Part) -> u64 {
    let mut insns = 0;
    for item in Chunk::new(part).items() {
        match item {
            Ok(Item::Block(block)) => insns += block.sums().insns,
            Ok(Item::Event(Event::Once { block, .. } | Event::Regs { block, .. } | Event::User { block, .. })) => {
                let _ = part.table.block(block);
            }
            Ok(Item::Event(_)) => {}
            // What is corrupt is recorded as it is; whoever plays it back is told.
            Err(_) => break,
        }
    }
    insns
}

/// Paths of the files that a part maps to be run.
fn modules(part: &Part) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for item in Chunk::new(part).items() {
        match item {
            Ok(Item::Event(Event::Mmap { prot, path, .. })) if prot & PROT_EXEC != 0 && !path.is_empty() => {
                paths.push(path);
            }
            Ok(Item::Event(Event::Image { path, .. })) => paths.push(path),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    paths
}

/// As in mmap.
const PROT_EXEC: u64 = 4;

/// The build id of an ELF file, if it is one and has one.
fn build_id(path: &Path) -> Option<String> {
    let file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let cache = object::ReadCache::new(file);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    Some(id.iter().map(|b| format!("{b:02x}")).collect())
}

/// What is known of a table.
struct Known {
    number: u32,
    /// Blocks that are written.
    blocks: usize,
}

struct Writer {
    out: Box<dyn Write + Send>,
    at: u64,
    tables: HashMap<u64, Known>,
    processes: HashMap<usize, ()>,
    /// Instructions of each stream so far.
    streams: HashMap<usize, u64>,
    index: Vec<[u64; 4]>,
    recorded: Recorded,
    packing: Packing,
    metadata: Metadata,
    /// Paths of modules that were looked at.
    looked: HashSet<Vec<u8>>,
}

impl Writer {
    fn new(out: Box<dyn Write + Send>, at: u64, packing: Packing, metadata: Metadata) -> Writer {
        Writer {
            out,
            at,
            tables: HashMap::new(),
            processes: HashMap::new(),
            streams: HashMap::new(),
            index: Vec::new(),
            recorded: Recorded::default(),
            packing,
            metadata,
            looked: HashSet::new(),
        }
    }

    /// Tells of modules that are new.
    fn modules(&mut self, paths: Vec<Vec<u8>>) -> io::Result<()> {
        let before = self.metadata.modules.len();
        for path in paths {
            if self.looked.contains(&path) {
                continue;
            }
            if let Some(id) = build_id(Path::new(OsStr::from_bytes(&path))) {
                self.metadata.modules.insert(String::from_utf8_lossy(&path).into_owned(), id);
            }
            self.looked.insert(path);
        }
        if self.metadata.modules.len() == before {
            return Ok(());
        }
        let metadata = self.metadata.clone();
        self.json(kind::METADATA, 0, &metadata)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn json(&mut self, kind: u32, number: u32, value: &impl serde::Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(value)?;
        let bytes = self.packing.frame(Head { kind, number, ..Head::default() }, &text);
        self.put(&bytes)
    }

    /// Everything, in order.
    fn all(&mut self, done: &Receiver<(u64, Done)>) -> io::Result<()> {
        let mut next = 0;
        let mut waiting = BTreeMap::new();
        for (number, what) in done {
            waiting.insert(number, what);
            while let Some(what) = waiting.remove(&next) {
                next += 1;
                self.write(what)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<Recorded> {
        let mut bytes = Vec::new();
        words_to_bytes(self.index.iter().flatten().copied(), &mut bytes);
        let index_at = self.at;
        let index = self.packing.frame(Head { kind: kind::INDEX, ..Head::default() }, &bytes);
        self.put(&index)?;
        let end = self.packing.frame(Head { kind: kind::END, a: index_at, ..Head::default() }, &[]);
        self.put(&end)?;
        self.out.flush()?;
        self.recorded.bytes = self.at;
        Ok(self.recorded)
    }

    fn write(&mut self, done: Done) -> io::Result<()> {
        match done {
            Done::Ended(stream) => {
                let bytes = self
                    .packing
                    .frame(Head { kind: kind::ENDED, number: stream.number as u32, ..Head::default() }, &[]);
                self.put(&bytes)
            }
            Done::Chunk { stream, table, insns, plain, modules, at_ns, unpacked, bytes } => {
                self.introduce(&stream, &table)?;
                self.modules(modules)?;
                self.blocks(&table)?;
                let before = self.streams.entry(stream.number).or_default();
                let plain = if plain { PLAIN } else { 0 };
                self.index.push([self.at, stream.number as u64 | plain, *before, at_ns]);
                *before += insns;
                self.recorded.insns += insns;
                self.recorded.unpacked += unpacked;
                self.put(&bytes)
            }
        }
    }

    fn introduce(&mut self, stream: &StreamInfo, table: &Table) -> io::Result<()> {
        if self.streams.contains_key(&stream.number) {
            return Ok(());
        }
        let process = &stream.process;
        if self.processes.insert(process.number, ()).is_none() {
            let record = ProcessRecord { pid: process.pid, parent: process.parent, program: process.program.clone() };
            self.json(kind::PROCESS, process.number as u32, &record)?;
        }
        let tables = self.tables.len() as u32;
        let fresh = !self.tables.contains_key(&table.serial());
        let number = self.tables.entry(table.serial()).or_insert(Known { number: tables, blocks: 0 }).number;
        if fresh {
            self.entries(number, &table.header_words(), 0)?;
        }
        self.streams.insert(stream.number, 0);
        let record = StreamRecord { process: process.number as u32, table: number, tid: stream.tid, vcpu: stream.vcpu };
        self.json(kind::STREAM, stream.number as u32, &record)
    }

    fn entries(&mut self, table: u32, words: &[u64], at: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        words_to_bytes([at, words.len() as u64].into_iter().chain(words.iter().copied()), &mut bytes);
        let bytes = self.packing.frame(Head { kind: kind::BLOCKS, number: table, ..Head::default() }, &bytes);
        self.put(&bytes)
    }

    /// Blocks that have been seen since the last time.
    fn blocks(&mut self, table: &Table) -> io::Result<()> {
        let Some(known) = self.tables.get_mut(&table.serial()) else { return Ok(()) };
        let seen = table.seen();
        let mut bytes = Vec::new();
        for number in known.blocks..seen {
            // Counted, and being added by another thread: the last one, of a later chunk.
            let Some(block) = table.numbered(number as u32) else { break };
            known.blocks = number + 1;
            let words = table.entry_words(block);
            words_to_bytes([u64::from(block.id), words.len() as u64].into_iter().chain(words), &mut bytes);
        }
        let number = known.number;
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes = self.packing.frame(Head { kind: kind::BLOCKS, number, ..Head::default() }, &bytes);
        self.put(&bytes)
    }
}

/// A source whose parts are recorded as they are handed out.
pub struct Tee<'a> {
    source: &'a mut dyn Source,
    recorder: &'a mut Recorder,
}

impl<'a> Tee<'a> {
    /// Hands out what `source` does.
    pub fn new(source: &'a mut dyn Source, recorder: &'a mut Recorder) -> Tee<'a> {
        Tee { source, recorder }
    }
}

impl Source for Tee<'_> {
    fn poll(&mut self) -> Result<Polled, Error> {
        let polled = self.source.poll()?;
        match &polled {
            Polled::Part(part) => self.recorder.part(part)?,
            Polled::Ended(stream) => self.recorder.ended(stream)?,
            Polled::Nothing | Polled::End => {}
        }
        Ok(polled)
    }
    fn wait(&self) {
        self.source.wait();
    }
    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.source.ringer()
    }
}
