//! Reading.

use super::predict::Predictor;
use super::{
    CHUNK_HEADER, FRAME, HEADER, Head, MAGIC, MOST, Metadata, OLDEST, ProcessRecord, StreamRecord, VERSION,
    bytes_to_words, checksum, kind,
};
use crate::{Error, Polled, Source};
use pipe::receiver::{Part, ProcessInfo, StreamInfo};
use pipe::table::{Table, TableImage};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Why reading stopped before the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte in the file at which the frame begins that cannot be read.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// The file just ends there; what is there is in order.
    pub cut_off: bool,
}

/// A frame, unpacked.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Where it begins.
    pub offset: u64,
    /// [`kind`].
    pub kind: u32,
    /// Stream, process or table.
    pub number: u32,
    /// By the kind.
    pub a: u64,
    /// By the kind.
    pub b: u32,
    /// Its length in the file, header included.
    pub length: u64,
    /// What is in it.
    pub body: Vec<u8>,
    /// It is a chunk that was passed over: its body was not read.
    passed: Option<u64>,
}

impl Frame {
    /// Bytes of what it stands for: of a chunk its header and words.
    pub fn unpacked(&self) -> u64 {
        let words = self.body.get(CHUNK_HEADER..).and_then(|b| b.first_chunk::<4>());
        match words.filter(|_| self.kind == kind::PREDICTED) {
            Some(words) => CHUNK_HEADER as u64 + u64::from(u32::from_le_bytes(*words)) * 8,
            None => self.body.len() as u64,
        }
    }
}

/// Iterates over the frames of a file.
pub struct Frames<R> {
    from: R,
    at: u64,
    path: PathBuf,
    over: bool,
    /// The frame of the end was there.
    ended: bool,
    /// Kept, since its memory takes longer to make than to use.
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    /// Chunks that nobody wants, by where they begin, and the instructions of their streams before them; those that are to come.
    passed: std::iter::Peekable<std::vec::IntoIter<(u64, u64)>>,
    /// How bytes are passed over.
    pass: fn(&mut R, u64) -> io::Result<()>,
}

fn damage(offset: u64, what: impl Into<String>) -> Damage {
    Damage { offset, what: what.into(), cut_off: false }
}

/// As many bytes as there are, up to the buffer's length.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match from.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(got) => n += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

impl<R: Read> Frames<R> {
    /// Frames of what `from` gives; `path` is for messages.
    ///
    /// # Errors
    /// If it is no recording, or of another version or host.
    pub fn new(mut from: R, path: &Path) -> Result<Frames<R>, Error> {
        let bad = |what: String| Error::Consumer(format!("{}: {what}", path.display()));
        let mut header = [0; HEADER];
        let n = fill(&mut from, &mut header).map_err(|e| bad(e.to_string()))?;
        if n < HEADER || header[..8] != MAGIC {
            return Err(bad("no recording: it does not begin with TRAPLINE (trapline record makes one)".into()));
        }
        let u = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if !(OLDEST..=VERSION).contains(&u(8)) {
            return Err(bad(format!(
                "a recording of version {}, this program reads versions {OLDEST} to {VERSION}: take the trapline that made it",
                u(8)
            )));
        }
        let big = u32::from(cfg!(target_endian = "big"));
        if u(12) != big {
            return Err(bad("recorded on a host of the other byte order: play it back on one like that".into()));
        }
        Ok(Self::at(from, HEADER as u64, path))
    }

    fn at(from: R, at: u64, path: &Path) -> Frames<R> {
        Frames {
            from,
            at,
            path: path.to_path_buf(),
            over: false,
            ended: false,
            zstd: None,
            passed: Vec::new().into_iter().peekable(),
            pass: |from, n| io::copy(&mut from.take(n), &mut io::sink()).map(drop),
        }
    }

    /// The frame that `from` gives, which begins at `offset` of its file.
    pub(super) fn single(from: R, offset: u64) -> Option<Frame> {
        Self::at(from, offset, Path::new("")).next_frame().ok().flatten()
    }

    /// The next frame; `None` at the end, which was the file's own if [`Frames::ended`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Damage> {
        if self.over {
            return Ok(None);
        }
        let read = self.read();
        self.over = !matches!(read, Ok(Some(_)));
        read
    }

    /// The end of the recording was there.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Where the next frame begins.
    pub fn offset(&self) -> u64 {
        self.at
    }

    fn unpack(&mut self, packed: &[u8], most: usize) -> Option<Vec<u8>> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        self.zstd.as_mut()?.decompress(packed, most).ok()
    }

    fn read(&mut self) -> Result<Option<Frame>, Damage> {
        let offset = self.at;
        let io = |e: io::Error| damage(offset, format!("it cannot be read: {e}"));
        let cut_off = || Damage { offset, what: "the file ends there, without an index".into(), cut_off: true };
        let mut h = [0; FRAME];
        match fill(&mut self.from, &mut h).map_err(io)? {
            0 if self.ended => return Ok(None),
            FRAME => {}
            _ => return Err(cut_off()),
        }
        if self.ended {
            return Err(damage(offset, "something follows the recording's end"));
        }
        let (head, sum) = Head::parse(&h);
        if head.packed > MOST || head.unpacked > MOST || !(kind::METADATA..=kind::LAST).contains(&head.kind) {
            return Err(damage(offset, "no frame begins there"));
        }
        let length = FRAME as u64 + u64::from(head.packed);
        let passed = self.passed.next_if(|p| p.0 <= offset).filter(|p| p.0 == offset).map(|p| p.1);
        if passed.is_some() && matches!(head.kind, kind::CHUNK | kind::PREDICTED) {
            (self.pass)(&mut self.from, head.packed.into()).map_err(io)?;
            self.at += length;
            let (kind, number, a, b) = (head.kind, head.number, head.a, head.b);
            return Ok(Some(Frame { offset, kind, number, a, b, length, body: Vec::new(), passed }));
        }
        let mut body = Vec::new();
        // Not more than there is, whatever the header says.
        let n = (&mut self.from).take(head.packed.into()).read_to_end(&mut body).map_err(io)?;
        if n < head.packed as usize {
            return Err(cut_off());
        }
        if checksum(&h[..28], &body) != sum {
            return Err(damage(offset, format!("the checksum of the {} frame is wrong", kind::name(head.kind))));
        }
        if head.packed != head.unpacked {
            body = self
                .unpack(&body, head.unpacked as usize)
                .filter(|b| b.len() == head.unpacked as usize)
                .ok_or_else(|| damage(offset, format!("the {} frame cannot be unpacked", kind::name(head.kind))))?;
        }
        self.at += length;
        self.ended = head.kind == kind::END;
        let (kind, number, a, b) = (head.kind, head.number, head.a, head.b);
        Ok(Some(Frame { offset, kind, number, a, b, length, body, passed: None }))
    }
}

/// What the frames before say.
#[derive(Default)]
struct State {
    metadata: Option<Metadata>,
    tables: BTreeMap<u32, (TableImage, Option<Arc<Table>>)>,
    processes: BTreeMap<u32, Arc<ProcessInfo>>,
    streams: BTreeMap<u32, (Arc<StreamInfo>, u32)>,
    /// Instructions of each so far.
    insns: BTreeMap<u32, u64>,
    /// Those that have not ended.
    open: Vec<u32>,
    predictor: Option<Predictor>,
}

impl State {
    /// What a frame brings, if anything; of a part with the instructions of its stream before it.
    fn take(&mut self, frame: &Frame) -> Result<Option<(Polled, u64)>, Damage> {
        let bad = |what: String| damage(frame.offset, what);
        match frame.kind {
            kind::METADATA => self.metadata = Some(json(frame)?),
            kind::BLOCKS => {
                let (image, _) = match self.tables.entry(frame.number) {
                    std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                    std::collections::btree_map::Entry::Vacant(e) => {
                        let image = TableImage::new().map_err(|e| bad(format!("no memory for a block table: {e}")))?;
                        e.insert((image, None))
                    }
                };
                let words: Vec<u64> = bytes_to_words(&frame.body).collect();
                let mut rest = &words[..];
                while let [at, n, tail @ ..] = rest {
                    let n = usize::try_from(*n).ok().filter(|n| *n <= tail.len());
                    let Some((entry, after)) = n.map(|n| tail.split_at(n)) else {
                        return Err(bad("a block is longer than its frame".into()));
                    };
                    image.put(*at, entry).map_err(|e| bad(format!("a block cannot be where it is said to be: {e}")))?;
                    rest = after;
                }
            }
            kind::PROCESS => {
                let record: ProcessRecord = json(frame)?;
                let info = ProcessInfo {
                    number: frame.number as usize,
                    pid: record.pid,
                    parent: record.parent,
                    program: record.program,
                };
                self.processes.insert(frame.number, Arc::new(info));
            }
            kind::STREAM => {
                let record: StreamRecord = json(frame)?;
                let process = self
                    .processes
                    .get(&record.process)
                    .ok_or_else(|| bad(format!("stream {} is of a process that is not there", frame.number)))?;
                // Streams come in the order of their first chunks; readers keep lists by their numbers.
                if frame.number as usize > self.streams.len() + MOST_AHEAD {
                    return Err(bad(format!(
                        "a stream has the number {}, but {} are there",
                        frame.number,
                        self.streams.len()
                    )));
                }
                let info = StreamInfo {
                    number: frame.number as usize,
                    process: process.clone(),
                    tid: record.tid,
                    vcpu: record.vcpu,
                };
                if self.streams.insert(frame.number, (Arc::new(info), record.table)).is_none() {
                    self.open.push(frame.number);
                }
            }
            kind::CHUNK | kind::PREDICTED => {
                let insns = self.insns.entry(frame.number).or_default();
                let before = *insns;
                *insns = before.saturating_add(frame.a);
                return match frame.passed {
                    Some(said) if said == before => Ok(None),
                    Some(said) => {
                        Err(bad(format!("the index says {said} instructions before this, there are {before}")))
                    }
                    None => self.chunk(frame).map(|p| Some((Polled::Part(p), before))),
                };
            }
            kind::ENDED => {
                if let Some(i) = self.open.iter().position(|n| *n == frame.number) {
                    self.open.remove(i);
                    return Ok(self.streams.get(&frame.number).map(|s| (Polled::Ended(s.0.clone()), 0)));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn chunk(&mut self, frame: &Frame) -> Result<Part, Damage> {
        let bad = |what: String| damage(frame.offset, what);
        let (stream, table) = self
            .streams
            .get(&frame.number)
            .ok_or_else(|| bad(format!("a chunk is of stream {}, which is not there", frame.number)))?;
        let (image, made) =
            self.tables.get_mut(table).ok_or_else(|| bad(format!("stream {} has no block table", frame.number)))?;
        let table = match made {
            Some(table) => table.clone(),
            None => made.insert(Arc::new(image.table().map_err(|e| bad(e.to_string()))?)).clone(),
        };
        let Some((header, body)) = frame.body.split_at_checked(CHUNK_HEADER) else {
            return Err(bad("a chunk is shorter than its header".into()));
        };
        let mut header = bytes_to_words(header);
        let [chunk, order, _, flags] = std::array::from_fn(|_| header.next().unwrap_or(0));
        let words: Arc<[AtomicU64]> = match frame.kind {
            kind::PREDICTED => {
                let words = self.predictor.get_or_insert_with(Predictor::default).unpack(&table, body);
                words.map_err(|what| bad(what.into()))?
            }
            _ => bytes_to_words(body).map(AtomicU64::new).collect(),
        };
        let mut part = Part::owned(stream.clone(), table, chunk, words);
        (part.order, part.lost, part.last_of_chunk) = (order, frame.b.into(), flags & 1 != 0);
        Ok(part)
    }
}

fn json<T: serde::de::DeserializeOwned>(frame: &Frame) -> Result<T, Damage> {
    serde_json::from_slice(&frame.body)
        .map_err(|e| damage(frame.offset, format!("the {} frame: {e}", kind::name(frame.kind))))
}

/// How far a stream's number may be above what there is.
const MOST_AHEAD: usize = 1 << 16;

/// Parts that are unpacked ahead.
const AHEAD: usize = 16;

#[derive(Default)]
struct Queue {
    ready: VecDeque<(Polled, u64)>,
    metadata: Option<Metadata>,
    damage: Option<Damage>,
    /// Rings, and the reader's end.
    rings: u64,
    over: bool,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// `false`: nobody wants more.
    fn give(&self, polled: (Polled, u64)) -> bool {
        let mut queue = self.lock();
        while queue.ready.len() >= AHEAD && !queue.closed {
            queue = self.changed.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
        let wanted = queue.ready.is_empty();
        queue.ready.push_back(polled);
        if wanted {
            self.changed.notify_all();
        }
        !queue.closed
    }
}

/// A recording that is played back. Frames are read and unpacked by a thread of their own.
pub struct Recording {
    shared: Arc<Shared>,
    path: PathBuf,
    rings: u64,
    before: u64,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Recording {
    /// Plays back what `from` gives; `path` is for messages.
    ///
    /// # Errors
    /// If it is no recording, or of another version or host.
    pub fn new(from: Box<dyn Read + Send>, path: &Path) -> Result<Recording, Error> {
        Ok(Self::of(Frames::new(from, path)?))
    }

    /// Plays back what `file` has but for the chunks that `passed` names.
    pub(super) fn without(file: BufReader<File>, path: &Path, passed: Vec<(u64, u64)>) -> Result<Recording, Error> {
        let mut frames = Frames::new(file, path)?;
        frames.passed = passed.into_iter().peekable();
        frames.pass = |file, n| file.seek_relative(n as i64);
        Ok(Self::of(frames))
    }

    fn of<R: Read + Send + 'static>(frames: Frames<R>) -> Recording {
        let shared = Arc::new(Shared::default());
        let (to, path) = (shared.clone(), frames.path.clone());
        let thread = std::thread::spawn(move || play(frames, &to));
        Recording { shared, path, rings: 0, before: 0, thread: Some(thread) }
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Instructions of its stream before the part that was handed out last.
    pub(super) fn before(&self) -> u64 {
        self.before
    }

    /// What the recording says of itself; known once the first part is there.
    pub fn metadata(&self) -> Option<Metadata> {
        let mut queue = self.shared.lock();
        while queue.metadata.is_none() && !queue.over && queue.ready.is_empty() {
            queue = self.shared.changed.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
        queue.metadata.clone()
    }

    /// What made reading stop early, if it did.
    pub fn damage(&self) -> Option<Damage> {
        self.shared.lock().damage.clone()
    }
}

fn play<R: Read>(mut frames: Frames<R>, to: &Shared) {
    let mut state = State::default();
    let mut play = || -> Result<bool, Damage> {
        while let Some(frame) = frames.next_frame()? {
            if let Some(polled) = state.take(&frame)?
                && !to.give(polled)
            {
                return Ok(false);
            }
            if frame.kind == kind::METADATA {
                to.lock().metadata = state.metadata.clone();
                to.changed.notify_all();
            }
        }
        Ok(true)
    };
    let played = play();
    // What was cut off ends there, too.
    for number in std::mem::take(&mut state.open) {
        if let Some((stream, _)) = state.streams.get(&number)
            && !to.give((Polled::Ended(stream.clone()), 0))
        {
            break;
        }
    }
    let mut queue = to.lock();
    queue.damage = played.err();
    queue.over = true;
    to.changed.notify_all();
}

impl Source for Recording {
    fn poll(&mut self) -> Result<Polled, Error> {
        let mut queue = self.shared.lock();
        self.rings = queue.rings;
        let polled = match queue.ready.pop_front() {
            Some((polled, before)) => {
                self.before = before;
                polled
            }
            None if queue.over => Polled::End,
            None => Polled::Nothing,
        };
        // A reader that waits for room is woken for several parts at once.
        if queue.ready.len() == AHEAD / 2 {
            self.shared.changed.notify_all();
        }
        Ok(polled)
    }

    fn wait(&self) {
        let mut queue = self.shared.lock();
        while queue.ready.is_empty() && !queue.over && queue.rings == self.rings {
            queue = self.shared.changed.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn ringer(&self) -> Arc<dyn Fn() + Send + Sync> {
        let shared = self.shared.clone();
        Arc::new(move || {
            shared.lock().rings += 1;
            shared.changed.notify_all();
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell any more.
            let _ = thread.join();
        }
    }
}

/// What is in a recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What it says of itself.
    pub metadata: Metadata,
    /// Processes by number.
    pub processes: BTreeMap<u32, ProcessRecord>,
    /// Streams by number: what they are, instructions, chunks, whether the end is there.
    pub streams: BTreeMap<u32, (StreamRecord, u64, u64, bool)>,
    /// Bytes of the file that were read.
    pub bytes: u64,
    /// Bytes of chunks, unpacked.
    pub unpacked: u64,
    /// Nanoseconds from the beginning to the last chunk.
    pub duration_ns: u64,
    /// Chunks that were lost when it was recorded.
    pub lost: u64,
    /// It has its index.
    pub complete: bool,
    /// Why reading stopped.
    pub damage: Option<Damage>,
}

/// Reads a recording's frames and sums them up.
///
/// # Errors
/// If it is no recording, or of another version or host.
pub fn summary(from: impl Read, path: &Path) -> Result<Summary, Error> {
    let mut frames = Frames::new(from, path)?;
    let mut s = Summary::default();
    let mut next = || -> Result<bool, Damage> {
        let Some(frame) = frames.next_frame()? else { return Ok(false) };
        match frame.kind {
            kind::METADATA => s.metadata = json(&frame)?,
            kind::PROCESS => {
                s.processes.insert(frame.number, json(&frame)?);
            }
            kind::STREAM => {
                s.streams.insert(frame.number, (json(&frame)?, 0, 0, false));
            }
            kind::CHUNK | kind::PREDICTED => {
                if let Some(stream) = s.streams.get_mut(&frame.number) {
                    (stream.1, stream.2) = (stream.1 + frame.a, stream.2 + 1);
                }
                s.unpacked += frame.unpacked();
                s.lost += u64::from(frame.b);
                s.duration_ns = bytes_to_words(&frame.body).nth(2).unwrap_or(0);
            }
            kind::ENDED => {
                if let Some(stream) = s.streams.get_mut(&frame.number) {
                    stream.3 = true;
                }
            }
            kind::END => s.complete = true,
            _ => {}
        }
        Ok(true)
    };
    s.damage = loop {
        match next() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
    };
    s.bytes = frames.offset();
    Ok(s)
}

impl<R> Frames<R> {
    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
