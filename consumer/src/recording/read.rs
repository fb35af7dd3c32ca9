//! Reading.

use super::predict::Predictor;
use super::{
    CHUNK_HEADER, FRAME, HEADER, Head, MAGIC, MOST, Metadata, OLDEST, ProcessRecord, StreamRecord, VERSION,
    bytes_to_words, checksum, kind,
};
use crate::{Error, Polled, Source};
use crossbeam_channel::{Receiver, Sender, bounded};
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
    unpacker: Unpacker,
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
            unpacker: Unpacker::default(),
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
        let packed = self.packed();
        let read = packed.and_then(|packed| packed.map(|p| p.open(&mut self.unpacker)).transpose());
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

    /// The next frame as it is in the file.
    fn packed(&mut self) -> Result<Option<Packed>, Damage> {
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
        let (head, _) = Head::parse(&h);
        if head.packed > MOST || head.unpacked > MOST || !(kind::METADATA..=kind::LAST).contains(&head.kind) {
            return Err(damage(offset, "no frame begins there"));
        }
        let passed = self.passed.next_if(|p| p.0 <= offset).filter(|p| p.0 == offset).map(|p| p.1);
        let passed = passed.filter(|_| is_chunk(head.kind));
        let mut body = Vec::new();
        if passed.is_some() {
            (self.pass)(&mut self.from, head.packed.into()).map_err(io)?;
        } else {
            // Not more than there is, whatever the header says.
            let n = (&mut self.from).take(head.packed.into()).read_to_end(&mut body).map_err(io)?;
            if n < head.packed as usize {
                return Err(cut_off());
            }
        }
        self.at += FRAME as u64 + u64::from(head.packed);
        self.ended = head.kind == kind::END;
        Ok(Some(Packed { offset, h, head, body, passed }))
    }
}

fn is_chunk(kind: u32) -> bool {
    matches!(kind, kind::CHUNK | kind::PREDICTED)
}

/// A frame as it is in the file.
struct Packed {
    offset: u64,
    h: [u8; FRAME],
    head: Head,
    body: Vec<u8>,
    passed: Option<u64>,
}

impl Packed {
    /// Checks and unpacks it.
    fn open(self, unpacker: &mut Unpacker) -> Result<Frame, Damage> {
        let Packed { offset, h, head, mut body, .. } = self;
        if checksum(&h[..28], &body) != Head::parse(&h).1 {
            return Err(damage(offset, format!("the checksum of the {} frame is wrong", kind::name(head.kind))));
        }
        if head.packed != head.unpacked {
            body = unpacker
                .unpack(&body, head.unpacked as usize)
                .filter(|b| b.len() == head.unpacked as usize)
                .ok_or_else(|| damage(offset, format!("the {} frame cannot be unpacked", kind::name(head.kind))))?;
        }
        let length = FRAME as u64 + u64::from(head.packed);
        Ok(Frame { offset, kind: head.kind, number: head.number, a: head.a, b: head.b, length, body })
    }
}

/// What unpacks. Kept, since its memory takes longer to make than to use.
#[derive(Default)]
struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    predictor: Option<Predictor>,
}

impl Unpacker {
    fn unpack(&mut self, packed: &[u8], most: usize) -> Option<Vec<u8>> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        self.zstd.as_mut()?.decompress(packed, most).ok()
    }

    /// The part that a chunk's frame is.
    fn part(&mut self, frame: &Frame, place: &Place) -> Result<Part, Damage> {
        let bad = |what: String| damage(frame.offset, what);
        let Some((header, body)) = frame.body.split_at_checked(CHUNK_HEADER) else {
            return Err(bad("a chunk is shorter than its header".into()));
        };
        let mut header = bytes_to_words(header);
        let [chunk, order, _, flags] = std::array::from_fn(|_| header.next().unwrap_or(0));
        let words: Arc<[AtomicU64]> = match frame.kind {
            kind::PREDICTED => {
                let words = self.predictor.get_or_insert_with(Predictor::default).unpack(&place.table, body);
                words.map_err(|what| bad(what.into()))?
            }
            _ => bytes_to_words(body).map(AtomicU64::new).collect(),
        };
        let mut part = Part::owned(place.stream.clone(), place.table.clone(), chunk, words);
        (part.order, part.lost, part.last_of_chunk) = (order, frame.b.into(), flags & 1 != 0);
        Ok(part)
    }
}

/// Where a chunk belongs.
struct Place {
    stream: Arc<StreamInfo>,
    table: Arc<Table>,
    /// Instructions of the stream before it.
    before: u64,
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
}

impl State {
    /// What a frame brings that is no chunk, if anything.
    fn take(&mut self, frame: &Frame) -> Result<Option<Polled>, Damage> {
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
            kind::ENDED => {
                if let Some(i) = self.open.iter().position(|n| *n == frame.number) {
                    self.open.remove(i);
                    return Ok(self.streams.get(&frame.number).map(|s| Polled::Ended(s.0.clone())));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    /// Where a chunk belongs; `None` if it was passed over.
    fn place(&mut self, frame: &Packed) -> Result<Option<Place>, Damage> {
        let bad = |what: String| damage(frame.offset, what);
        let number = frame.head.number;
        let insns = self.insns.entry(number).or_default();
        let before = *insns;
        *insns = before.saturating_add(frame.head.a);
        match frame.passed {
            Some(said) if said == before => return Ok(None),
            Some(said) => {
                return Err(bad(format!("the index says {said} instructions before this, there are {before}")));
            }
            None => {}
        }
        let (stream, table) = self
            .streams
            .get(&number)
            .ok_or_else(|| bad(format!("a chunk is of stream {number}, which is not there")))?;
        let (image, made) =
            self.tables.get_mut(table).ok_or_else(|| bad(format!("stream {number} has no block table")))?;
        let table = match made {
            Some(table) => table.clone(),
            None => made.insert(Arc::new(image.table().map_err(|e| bad(e.to_string()))?)).clone(),
        };
        Ok(Some(Place { stream: stream.clone(), table, before }))
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
    /// Bytes of the file and instructions of chunks that were handed out.
    done: (u64, u64),
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

/// A recording that is played back. Frames are read by a thread of their own; where there are cores for it, others unpack them.
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
        // One reads, one at least takes what is read.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::with_threads(frames, cores.saturating_sub(2).min(8))
    }

    /// Plays back `frames`. They are read by a thread of its own, and unpacked there if `threads` is 0, else by so many more.
    pub fn with_threads<R: Read + Send + 'static>(frames: Frames<R>, threads: usize) -> Recording {
        let shared = Arc::new(Shared::default());
        let (to, path) = (shared.clone(), frames.path.clone());
        let thread = std::thread::spawn(move || play(frames, &to, threads));
        Recording { shared, path, rings: 0, before: 0, thread: Some(thread) }
    }

    /// The file's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file that were read, and instructions in them.
    pub fn progress(&self) -> (u64, u64) {
        self.shared.lock().done
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

/// Reads frames in order. What each brings goes to `give`, which says whether more is wanted; chunks are still to be unpacked.
fn frames_of<R: Read>(
    frames: &mut Frames<R>,
    state: &mut State,
    to: &Shared,
    mut give: impl FnMut(Brought) -> Result<bool, Damage>,
) -> Result<(), Damage> {
    let mut unpacker = Unpacker::default();
    while let Some(packed) = frames.packed()? {
        let chunk = is_chunk(packed.head.kind);
        {
            let mut queue = to.lock();
            queue.done.0 = frames.at;
            queue.done.1 += if chunk { packed.head.a } else { 0 };
        }
        let read = if chunk {
            state.place(&packed)?.map(|place| Brought::Chunk(packed, place))
        } else {
            let frame = packed.open(&mut unpacker)?;
            let polled = state.take(&frame)?;
            if frame.kind == kind::METADATA {
                to.lock().metadata = state.metadata.clone();
                to.changed.notify_all();
            }
            polled.map(Brought::Other)
        };
        if let Some(read) = read
            && !give(read)?
        {
            break;
        }
    }
    Ok(())
}

/// What a frame brings.
enum Brought {
    Chunk(Packed, Place),
    Other(Polled),
}

/// What is to be handed out, or comes from the thread that unpacks it.
enum Slot {
    Ready(Polled),
    Coming(Receiver<Result<Part, Damage>>, u64),
}

fn unpack(packed: Packed, place: &Place, unpacker: &mut Unpacker) -> Result<Part, Damage> {
    let frame = packed.open(unpacker)?;
    unpacker.part(&frame, place)
}

/// Hands out, and knows which streams have not ended.
struct Hands<'q> {
    to: &'q Shared,
    open: Vec<Arc<StreamInfo>>,
}

impl Hands<'_> {
    /// `false`: nobody wants more.
    fn give(&mut self, polled: Polled, before: u64) -> bool {
        match &polled {
            Polled::Part(part) if !self.open.iter().any(|s| s.number == part.stream.number) => {
                self.open.push(part.stream.clone());
            }
            Polled::Ended(stream) => self.open.retain(|s| s.number != stream.number),
            _ => {}
        }
        self.to.give((polled, before))
    }
}

/// Plays back on this thread; with `threads` more that unpack, and one that hands out in order.
fn play<R: Read>(mut frames: Frames<R>, to: &Shared, threads: usize) {
    let mut state = State::default();
    let mut hands = Hands { to, open: Vec::new() };
    let played = if threads == 0 {
        let mut unpacker = Unpacker::default();
        frames_of(&mut frames, &mut state, to, |read| match read {
            Brought::Other(polled) => Ok(hands.give(polled, 0)),
            Brought::Chunk(packed, place) => {
                let part = unpack(packed, &place, &mut unpacker)?;
                Ok(hands.give(Polled::Part(part), place.before))
            }
        })
    } else {
        spread(&mut frames, &mut state, &mut hands, threads)
    };
    // What was cut off ends there, too.
    for stream in std::mem::take(&mut hands.open) {
        if !hands.give(Polled::Ended(stream), 0) {
            break;
        }
    }
    let mut queue = to.lock();
    queue.damage = played.err();
    queue.over = true;
    to.changed.notify_all();
}

/// The same with threads that unpack. Damage ends it where it is, whatever was read behind it.
fn spread<R: Read>(
    frames: &mut Frames<R>,
    state: &mut State,
    hands: &mut Hands<'_>,
    threads: usize,
) -> Result<(), Damage> {
    let to = hands.to;
    let (jobs, take) = bounded::<(Packed, Place, Sender<Result<Part, Damage>>)>(AHEAD);
    let (slots, order) = bounded::<Slot>(AHEAD);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let take = take.clone();
            scope.spawn(move || {
                let mut unpacker = Unpacker::default();
                for (packed, place, answer) in take {
                    // Nobody waits for it any more if something before was damaged.
                    let _ = answer.send(unpack(packed, &place, &mut unpacker));
                }
            });
        }
        drop(take);
        let handing = scope.spawn(move || {
            for slot in order {
                let (polled, before) = match slot {
                    Slot::Ready(polled) => (polled, 0),
                    Slot::Coming(part, before) => match part.recv() {
                        Ok(part) => (Polled::Part(part?), before),
                        Err(_) => break,
                    },
                };
                if !hands.give(polled, before) {
                    break;
                }
            }
            Ok(())
        });
        let read = frames_of(frames, state, to, |read| {
            let slot = match read {
                Brought::Other(polled) => Slot::Ready(polled),
                Brought::Chunk(packed, place) => {
                    let (answer, part) = bounded(1);
                    let before = place.before;
                    if jobs.send((packed, place, answer)).is_err() {
                        return Ok(false);
                    }
                    Slot::Coming(part, before)
                }
            };
            Ok(slots.send(slot).is_ok())
        });
        drop((jobs, slots));
        // What comes first in the file is said.
        handing.join().unwrap_or(Ok(())).and(read)
    })
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
