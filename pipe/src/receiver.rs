//! The consumer's side of the pipe: streams arrive, chunks are handed out in order, and are given back.
//!
//! Rules:
//! * Nothing that arrives is trusted: descriptors are checked (kind, size, seal) before they are mapped, and every number read from shared
//!   memory is checked before it is used. Memory is only ever read as atomics.
//! * A chunk is complete when its description says so (`ChunkDesc::seq`, Acquire). The open chunk is read in place, but only as far as
//!   [`complete_part`] says, and at most every [`LOOK`], so that a busy stream is read by whole chunks.
//! * A lossless reader holds the writer back until [`Part::release`]. A lossy one may be overrun while it reads: whoever has
//!   read a part asks [`Part::was_overrun`] before believing it.
//! * A process that dies has everything readable up to its last complete record; then its streams end.
//! * One background thread waits for messages and deaths and rings our own bell, so that the reader waits in one place only.

use crate::error::{Error, Result};
use crate::futex;
use crate::layout::{Bell, MAX_CHUNKS, MAX_CONSUMERS, STREAM_HEADER, STREAM_MAGIC, StreamHeader, VERSION};
use crate::record::{Words, complete_part};
use crate::ring;
use crate::table::Table;
use crate::wire::{self, Message};
use memmap2::{MmapOptions, MmapRaw};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a half-filled chunk waits at most before it is looked at. With the wait's own grain
/// that makes what happened visible within 100 ms.
pub const LOOK: Duration = Duration::from_millis(40);
/// How long the reader sleeps at most while streams live.
const NAP: Duration = Duration::from_millis(45);
/// How long it sleeps when none lives: messages ring the bell.
const SLEEP: Duration = Duration::from_secs(5);
/// Turns of the spin before a sleep: about 20 µs, a futex wake-up's price.
const SPINS: u32 = 500;
/// After the end of the connection, how long the processes may take to be seen dead.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Sizes of a chunk that are accepted. Bytes.
pub const CHUNK_SIZES: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 20;

/// Is `fd` a memory object that cannot shrink under us?
pub(crate) fn check_seal(fd: &OwnedFd, what: &str) -> Result<()> {
    // SAFETY: a plain system call on a descriptor that lives.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(Error::Protocol(format!("the {what} that was handed over is not memory sealed against shrinking")));
    }
    Ok(())
}

/// A process of the guest's family.
#[derive(Debug)]
pub struct ProcessInfo {
    /// Its number in order of appearance, from 0.
    pub number: usize,
    /// Its pid.
    pub pid: u32,
    /// Its parent's pid, or 0.
    pub parent: u32,
    /// Path of the guest program.
    pub program: Vec<u8>,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// Its number in order of appearance, from 0.
    pub number: usize,
    /// Its process.
    pub process: Arc<ProcessInfo>,
    /// The thread.
    pub tid: u32,
    /// Number of the vCPU in its process.
    pub vcpu: u32,
}

/// A stream's memory, checked and mapped.
pub struct StreamMemory {
    map: MmapRaw,
    chunk_size: usize,
    chunk_count: u64,
    /// Our place in the consumers' lines.
    place: usize,
    lossy: bool,
}

impl StreamMemory {
    fn map(fd: OwnedFd, place: usize, lossy: bool) -> Result<StreamMemory> {
        check_seal(&fd, "stream")?;
        let bad = |what: String| Error::Protocol(format!("the stream that was handed over {what}"));
        let file = File::from(fd);
        let size = file.metadata().map_err(|e| Error::io("look at a stream's memory", e))?.size();
        if size < STREAM_HEADER as u64 {
            return Err(bad(format!("has {size} bytes, fewer than its header")));
        }
        let len = usize::try_from(size).map_err(|_| bad(format!("has {size} bytes, too many")))?;
        let map = MmapOptions::new().len(len).map_raw(&file).map_err(|e| Error::io("map a stream's memory", e))?;
        let mut memory = StreamMemory { map, chunk_size: 0, chunk_count: 0, place, lossy };
        let magic = offset_of!(StreamHeader, magic);
        if [memory.field(magic), memory.field(magic + 4)].map(u32::to_ne_bytes).concat() != STREAM_MAGIC {
            return Err(bad("does not start as one".into()));
        }
        let version = memory.field(offset_of!(StreamHeader, version));
        if version != VERSION {
            return Err(bad(format!(
                "has version {version}, this program reads version {VERSION}: rebuild the older of the two"
            )));
        }
        let chunk_size = memory.field(offset_of!(StreamHeader, chunk_size));
        if !CHUNK_SIZES.contains(&chunk_size) || !chunk_size.is_power_of_two() {
            return Err(bad(format!("has chunks of {chunk_size} bytes")));
        }
        let chunk_count = memory.field(offset_of!(StreamHeader, chunk_count));
        if !(2..=MAX_CHUNKS as u32).contains(&chunk_count) {
            return Err(bad(format!("has {chunk_count} chunks")));
        }
        let needed = STREAM_HEADER as u64 + u64::from(chunk_size) * u64::from(chunk_count);
        if size < needed {
            return Err(bad(format!("has {size} bytes where its chunks need {needed}")));
        }
        memory.chunk_size = chunk_size as usize;
        memory.chunk_count = u64::from(chunk_count);
        Ok(memory)
    }

    /// Reads the plain field at `offset` of the header, once.
    fn field(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= STREAM_HEADER);
        // SAFETY: within the header by the assertion, which lies within the mapping (checked in `map`) and the
        // file, which cannot shrink; aligned; volatile, so that it is read once and then kept.
        unsafe { self.map.as_ptr().add(offset).cast::<u32>().read_volatile() }
    }

    /// The atomics of the header.
    fn header(&self) -> &StreamHeader {
        // SAFETY: as in `field`; aligned to a page. Only the atomics are read through this reference; nobody writes the other
        // fields once a stream is handed over.
        unsafe { &*self.map.as_ptr().cast::<StreamHeader>() }
    }

    fn line(&self) -> ring::Line<'_> {
        let line = &self.header().consumers[self.place];
        ring::Line { state: &line.state, lossy: &line.lossy, needed: &line.needed }
    }

    /// The words of the chunk at the index of `seq`.
    fn words(&self, seq: u64) -> Words<'_> {
        let index = (seq % self.chunk_count) as usize;
        let at = STREAM_HEADER + index * self.chunk_size;
        // SAFETY: `map` has checked that all chunks lie within the mapping, whose file cannot shrink; a chunk is aligned to
        // a page; AtomicU64 may be shared with another process.
        Words::new(unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(at).cast::<AtomicU64>(), self.chunk_size / 8)
        })
    }

    fn overrun(&self, seq: u64) -> bool {
        // The reads of the chunk's words come before this load of `open`. The writer stores `open` before
        // it touches the chunk.
        fence(Ordering::SeqCst);
        self.lossy && self.header().producer.open.load(Ordering::SeqCst) >= seq.saturating_add(self.chunk_count)
    }
}

/// Whence a part's words come.
enum Source {
    Shared(Arc<StreamMemory>),
    Owned(Arc<[AtomicU64]>),
}

/// A run of whole records of one stream, to be read and given back.
pub struct Part {
    /// The stream.
    pub stream: Arc<StreamInfo>,
    /// Its process's block table.
    pub table: Arc<Table>,
    /// The chunk's sequence number.
    pub chunk: u64,
    /// Number of the chunk across streams.
    pub order: u64,
    /// Chunks that were lost right before this part.
    pub lost: u64,
    /// Nothing of this chunk follows.
    pub last_of_chunk: bool,
    /// First word, in the chunk.
    from: usize,
    /// Word after the last.
    to: usize,
    source: Source,
}

impl Part {
    /// A part of its own memory, as tests and recordings have it.
    pub fn owned(stream: Arc<StreamInfo>, table: Arc<Table>, chunk: u64, words: Arc<[AtomicU64]>) -> Part {
        let to = words.len();
        Part {
            stream,
            table,
            chunk,
            order: chunk,
            lost: 0,
            last_of_chunk: true,
            from: 0,
            to,
            source: Source::Owned(words),
        }
    }

    /// The records.
    pub fn words(&self) -> Words<'_> {
        let all = match &self.source {
            Source::Shared(memory) => memory.words(self.chunk),
            Source::Owned(words) => Words::new(words),
        };
        all.slice(self.from, self.to - self.from).unwrap_or(Words::new(&[]))
    }

    /// Where the records start in the chunk, in words.
    pub fn first_word(&self) -> usize {
        self.from
    }

    /// The writer has overwritten the chunk, perhaps while it was read: what was read is void. Lossy readers only.
    pub fn was_overrun(&self) -> bool {
        match &self.source {
            Source::Shared(memory) => memory.overrun(self.chunk),
            Source::Owned(_) => false,
        }
    }

    /// Gives the part back. Parts of a stream are given back in the order in which they came.
    pub fn release(self) {
        if let (Source::Shared(memory), true) = (&self.source, self.last_of_chunk) {
            let header = memory.header();
            ring::release(memory.line(), self.chunk + 1, &header.room, &header.room_wanted);
        }
    }

    /// Counts a chunk that was overrun while it was read.
    pub fn count_lost(&self, chunks: u64) {
        if let Source::Shared(memory) = &self.source {
            memory.header().consumers[memory.place].lost.fetch_add(chunks, Ordering::Relaxed);
        }
    }

    /// Puts an error into its place.
    pub fn locate(&self, source: Error) -> Error {
        Error::In { pid: self.stream.process.pid, tid: self.stream.tid, chunk: self.chunk, source: Box::new(source) }
    }
}

/// What a look at all streams brought.
pub enum Polled {
    /// Something to read.
    Part(Part),
    /// A stream has ended; nothing of it follows.
    Ended(Arc<StreamInfo>),
    /// Nothing now.
    Nothing,
    /// Nothing will come any more.
    End,
}

struct Reader {
    info: Arc<StreamInfo>,
    table: Arc<Table>,
    memory: Arc<StreamMemory>,
    dead: Arc<AtomicBool>,
    /// The chunk being read.
    next: u64,
    /// Words of it that have been handed out.
    done: usize,
    /// When the open chunk was last looked at, or the stream last moved.
    looked: Instant,
    /// How far the open chunk was complete at the last look: hosts whose stores may be seen out of order
    /// deliver only what was there one look ago.
    settled: usize,
    lost: u64,
    over: bool,
}

/// Do another core's plain stores become visible in order?
const ORDERED_STORES: bool = cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "s390x"));

impl Reader {
    fn error(&self, source: Error) -> Error {
        Error::In { pid: self.info.process.pid, tid: self.info.tid, chunk: self.next, source: Box::new(source) }
    }

    fn part(&mut self, to: usize, order: u64, last_of_chunk: bool) -> Part {
        let part = Part {
            stream: self.info.clone(),
            table: self.table.clone(),
            chunk: self.next,
            order,
            lost: std::mem::take(&mut self.lost),
            last_of_chunk,
            from: self.done,
            to,
            source: Source::Shared(self.memory.clone()),
        };
        if last_of_chunk {
            self.next += 1;
            self.done = 0;
        } else {
            self.done = to;
        }
        self.settled = self.done;
        self.looked = Instant::now();
        part
    }

    /// Looks once. `None`: nothing now, or over.
    fn poll(&mut self) -> Result<Option<Part>> {
        let memory = self.memory.clone();
        let header = memory.header();
        // `dead` and `ended` are read before `open`, so that `open` is final where they are set.
        let dead = self.dead.load(Ordering::Acquire);
        // Acquire; pairs with the writer's Release store of `ended` after its last chunk.
        let ended = header.producer.ended.load(Ordering::Acquire) != 0;
        // SeqCst (at least Acquire); pairs with `ring::open`.
        let open = header.producer.open.load(Ordering::SeqCst);
        if memory.lossy && open >= self.next.saturating_add(memory.chunk_count) {
            // Overrun: go on half a ring behind the writer.
            let next = open - memory.chunk_count / 2;
            // What had been read of a chunk in part counts as lost: its rest is.
            self.lost += next - self.next;
            header.consumers[memory.place].lost.fetch_add(next - self.next, Ordering::Relaxed);
            (self.next, self.done, self.settled) = (next, 0, 0);
            ring::release(memory.line(), next, &header.room, &header.room_wanted);
        }
        if self.next > open {
            return match (ended || dead) && self.next == open + 1 {
                // The writer died between completing its last chunk and opening the next.
                true => {
                    self.over = true;
                    Ok(None)
                }
                false => Err(self.error(Error::Protocol(format!("the writer went back to chunk {open}")))),
            };
        }
        let desc = &header.chunks[(self.next % memory.chunk_count) as usize];
        // Acquire; pairs with the writer's Release store when it completes the chunk: its words and `used` are there.
        let seq = desc.seq.load(Ordering::Acquire);
        if seq == self.next + 1 && (self.next < open || dead) {
            let used = desc.used.load(Ordering::Relaxed);
            let order = desc.order.load(Ordering::Relaxed);
            if !used.is_multiple_of(8) || used > memory.chunk_size as u64 || used < self.done as u64 * 8 {
                if memory.overrun(self.next) {
                    return Ok(None);
                }
                let chunk = memory.chunk_size;
                return Err(self.error(Error::Protocol(format!(
                    "{used} bytes are said to be used of {chunk}, of which {} were read before",
                    self.done * 8
                ))));
            }
            return Ok(Some(self.part(used as usize / 8, order, true)));
        }
        if self.next < open {
            if memory.overrun(self.next) {
                return Ok(None);
            }
            return Err(
                self.error(Error::Protocol(format!("it is complete, but its description has the number {seq}")))
            );
        }
        if ended {
            self.over = true;
            return Ok(None);
        }
        if !dead && self.looked.elapsed() < LOOK {
            return Ok(None);
        }
        self.looked = Instant::now();
        // 0: open and zeroed. Otherwise the writer is about to take the chunk into use, or to complete it.
        if seq == 0 {
            // Acquire; pairs with the writer's Release: what is published is there.
            let published = header.producer.published.load(Ordering::Acquire);
            let published = match published >> 32 == self.next & 0xffff_ffff {
                true => (published & 0xffff_ffff) as usize / 8,
                false => 0,
            };
            let found = complete_part(memory.words(self.next), self.done, published, &self.table);
            let found = match found {
                Err(_) if memory.overrun(self.next) => return Ok(None),
                other => other.map_err(|e| self.error(e))?,
            };
            let surely = if ORDERED_STORES || dead { found } else { found.min(self.settled).max(published.min(found)) };
            self.settled = found;
            if surely > self.done {
                let order = desc.order.load(Ordering::Relaxed);
                let settled = self.settled;
                let part = self.part(surely, order, false);
                self.settled = settled;
                return Ok(Some(part));
            }
        }
        if dead {
            self.over = true;
        }
        Ok(None)
    }
}

/// What the background thread has seen.
enum News {
    Message(Message, Vec<OwnedFd>),
    /// The process with this number among those announced is dead.
    Dead(usize),
    Failed(Error),
    Closed,
}

/// Our doorbell, mapped.
struct BellMemory(MmapRaw);

impl BellMemory {
    fn get(&self) -> &Bell {
        // SAFETY: a page that we created ourselves, sealed against shrinking; only atomics.
        unsafe { &*self.0.as_ptr().cast::<Bell>() }
    }
    fn ring(&self) {
        let bell = self.get();
        ring::ring_bell(&bell.rings, &bell.sleeping, true);
    }
}

struct Shared {
    news: Mutex<VecDeque<News>>,
    bell: BellMemory,
}

impl Shared {
    fn tell(&self, news: News) {
        self.news.lock().unwrap_or_else(|e| e.into_inner()).push_back(news);
        self.bell.ring();
    }
}

/// Rings the reader's bell from other threads, so that it waits in one place only.
#[derive(Clone)]
pub struct Ringer(Arc<Shared>);

impl Ringer {
    /// Ends the reader's present or next wait.
    pub fn ring(&self) {
        self.0.bell.ring();
    }
}

struct Process {
    info: Arc<ProcessInfo>,
    table: Arc<Table>,
    place: usize,
    dead: Arc<AtomicBool>,
}

/// A consumer's connection to a guest's family of processes.
pub struct Receiver {
    shared: Arc<Shared>,
    lossy: bool,
    processes: Vec<Process>,
    /// Tables by device and inode: a forked child shares its parent's.
    tables: Vec<((u64, u64), Arc<Table>)>,
    readers: Vec<Reader>,
    /// Number of streams that came.
    streams: usize,
    /// Whom to look at first, so that none starves.
    turn: usize,
    /// When the connection ended.
    closed: Option<Instant>,
    /// The bell as it was before the last look.
    rings: u32,
    /// Written to end the background thread.
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// How long QEMU may take to answer: its server thread does nothing else, so this long only if it is stopped.
const ANSWER_MS: libc::c_int = 10_000;

impl Receiver {
    /// Connects to the socket at `path` as the consumer `name`. A lossy one never holds the guest back. When this returns the
    /// consumer is attached: everything from now on is its to see.
    pub fn connect(path: &Path, name: &str, lossy: bool) -> Result<Receiver> {
        let failed = |e| Error::io(format!("connect to {}", path.display()), e);
        // SAFETY: a plain system call.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: new and ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an all-zero sockaddr_un is valid.
        let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= addr.sun_path.len() || bytes.contains(&0) {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a socket's path has at most {} bytes", addr.sun_path.len() - 1),
            )));
        }
        for (to, from) in addr.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: `addr` is a whole sockaddr_un.
        let r = unsafe { libc::connect(fd, (&raw const addr).cast(), size_of_val(&addr) as libc::socklen_t) };
        if r < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Receiver::attach(socket, name, lossy, true)
    }

    /// The same on a connected `SOCK_SEQPACKET` socket.
    pub fn from_socket(socket: OwnedFd, name: &str, lossy: bool) -> Result<Receiver> {
        Receiver::attach(socket, name, lossy, false)
    }

    fn attach(socket: OwnedFd, name: &str, lossy: bool, wait: bool) -> Result<Receiver> {
        let bell_fd = wire::memfd(c"trapline-bell", 4096).map_err(|e| Error::io("make a doorbell", e))?;
        let bell = MmapOptions::new().len(4096).map_raw(&bell_fd).map_err(|e| Error::io("map the doorbell", e))?;
        let attach = Message::new(wire::ATTACH, u64::from(lossy), 0, name.as_bytes());
        wire::send(socket.as_raw_fd(), &attach, &[bell_fd.as_raw_fd()], 0)
            .map_err(|e| Error::io("attach to QEMU", e))?;
        if wait {
            // The first answer comes when we are attached to every stream that lives, or are refused.
            let mut answer = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one live pollfd.
            if unsafe { libc::poll(&mut answer, 1, ANSWER_MS) } == 0 {
                return Err(Error::io("attach to QEMU", io::ErrorKind::TimedOut.into()));
            }
        }
        // SAFETY: a plain system call.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if stop < 0 {
            return Err(Error::io("make an eventfd", io::Error::last_os_error()));
        }
        // SAFETY: new and ours.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let shared = Arc::new(Shared { news: Mutex::default(), bell: BellMemory(bell) });
        let background = {
            let shared = shared.clone();
            let stop = stop.try_clone().map_err(|e| Error::io("copy a descriptor", e))?;
            move || watch(&shared, socket, stop)
        };
        let thread = std::thread::Builder::new()
            .name("trapline-watch".into())
            .spawn(background)
            .map_err(|e| Error::io("start a thread", e))?;
        Ok(Receiver {
            shared,
            lossy,
            processes: Vec::new(),
            tables: Vec::new(),
            readers: Vec::new(),
            streams: 0,
            turn: 0,
            closed: None,
            rings: 0,
            stop,
            thread: Some(thread),
        })
    }

    /// For other threads that want to end this one's waits.
    pub fn ringer(&self) -> Ringer {
        Ringer(self.shared.clone())
    }

    /// All processes so far.
    pub fn processes(&self) -> impl Iterator<Item = &Arc<ProcessInfo>> {
        self.processes.iter().map(|p| &p.info)
    }

    /// Looks once at everything, without waiting.
    pub fn poll(&mut self) -> Result<Polled> {
        // Before the look, so that what comes after it ends the next wait.
        self.rings = self.shared.bell.get().rings.load(Ordering::SeqCst);
        loop {
            let news = self.shared.news.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
            match news {
                Some(news) => self.hear(news)?,
                None => break,
            }
        }
        let n = self.readers.len();
        for i in 0..n {
            let at = (self.turn + i) % n;
            let reader = &mut self.readers[at];
            let part = reader.poll()?;
            if let Some(part) = part {
                self.turn = at + 1;
                return Ok(Polled::Part(part));
            }
            if reader.over {
                let reader = self.readers.remove(at);
                self.turn = at;
                return Ok(Polled::Ended(reader.info));
            }
        }
        if let Some(closed) = self.closed {
            let alive = self.processes.iter().any(|p| !p.dead.load(Ordering::Acquire));
            if !alive || closed.elapsed() > LAST_BREATH {
                if self.readers.is_empty() {
                    return Ok(Polled::End);
                }
                // They let go of us but live on: read what there is, once.
                for p in &self.processes {
                    p.dead.store(true, Ordering::Release);
                }
                if alive {
                    self.shared.bell.ring();
                }
            }
        }
        Ok(Polled::Nothing)
    }

    /// Waits until something may have come since the last look: a short spin, then sleep.
    pub fn wait(&self) {
        let bell = self.shared.bell.get();
        for _ in 0..SPINS {
            if bell.rings.load(Ordering::Acquire) != self.rings {
                return;
            }
            std::hint::spin_loop();
        }
        let nap = if self.readers.is_empty() && self.closed.is_none() { SLEEP } else { NAP };
        // SeqCst and the fence; pairs with `ring_bell`: either we see its ring, or it sees us asleep.
        bell.sleeping.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if bell.rings.load(Ordering::SeqCst) == self.rings {
            futex::wait(&bell.rings, self.rings, Some(nap));
        }
        bell.sleeping.store(0, Ordering::SeqCst);
    }

    fn hear(&mut self, news: News) -> Result<()> {
        match news {
            News::Failed(e) => Err(e),
            News::Closed => {
                self.closed = Some(Instant::now());
                Ok(())
            }
            News::Dead(number) => {
                if let Some(p) = self.processes.get(number) {
                    p.dead.store(true, Ordering::Release);
                }
                Ok(())
            }
            News::Message(message, fds) => match message.header.kind {
                wire::PROCESS => self.process(message, fds),
                wire::STREAM => self.stream(message, fds),
                wire::REFUSED => Err(Error::Refused(String::from_utf8_lossy(&message.text).into_owned())),
                kind => Err(Error::Protocol(format!("QEMU sent a message of the unknown kind {kind}"))),
            },
        }
    }

    fn process(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<()> {
        let header = message.header;
        let place = header.a as usize;
        if header.a >= MAX_CONSUMERS as u64 {
            return Err(Error::Protocol(format!("process {} gave this consumer the place {}", header.pid, header.a)));
        }
        let Some(table) = fds.into_iter().next() else {
            return Err(Error::Protocol(format!("process {} handed over no block table", header.pid)));
        };
        let table = self.table(table)?;
        let info = ProcessInfo {
            number: self.processes.len(),
            pid: header.pid,
            parent: header.b as u32,
            program: message.text,
        };
        self.processes.push(Process { info: Arc::new(info), table, place, dead: Arc::new(AtomicBool::new(false)) });
        Ok(())
    }

    fn table(&mut self, fd: OwnedFd) -> Result<Arc<Table>> {
        let file = File::from(fd);
        let meta = file.metadata().map_err(|e| Error::io("look at the block table", e))?;
        let key = (meta.dev(), meta.ino());
        if let Some((_, table)) = self.tables.iter().find(|(k, _)| *k == key) {
            return Ok(table.clone());
        }
        let table = Arc::new(Table::map(OwnedFd::from(file))?);
        self.tables.push((key, table.clone()));
        Ok(table)
    }

    fn stream(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<()> {
        let header = message.header;
        // The latest of this pid: a process that replaced its image announced itself again.
        let Some(process) = self.processes.iter().rev().find(|p| p.info.pid == header.pid) else {
            return Err(Error::Protocol(format!("process {} handed over a stream before itself", header.pid)));
        };
        let Some(fd) = fds.into_iter().next() else {
            return Err(Error::Protocol(format!("process {} handed over a stream without its memory", header.pid)));
        };
        let memory = StreamMemory::map(fd, process.place, self.lossy)?;
        // Acquire; pairs with the SeqCst stores of `ring::attach` in the writer's process.
        let next = memory.line().needed.load(Ordering::Acquire);
        self.readers.push(Reader {
            info: Arc::new(StreamInfo {
                number: self.streams,
                process: process.info.clone(),
                tid: header.a as u32,
                vcpu: header.b as u32,
            }),
            table: process.table.clone(),
            memory: Arc::new(memory),
            dead: process.dead.clone(),
            next,
            done: 0,
            looked: Instant::now(),
            settled: 0,
            lost: 0,
            over: false,
        });
        self.streams += 1;
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: a plain system call with a buffer of eight bytes.
        unsafe { libc::write(self.stop.as_raw_fd(), one.as_ptr().cast(), 8) };
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell any more; if it panicked, that was said on standard error.
            let _ = thread.join();
        }
    }
}

/// The background thread: messages and deaths become news.
fn watch(shared: &Shared, socket: OwnedFd, stop: OwnedFd) {
    let mut socket = Some(socket);
    // The processes' pidfds, by their number; `None` once dead.
    let mut pidfds: Vec<Option<OwnedFd>> = Vec::new();
    loop {
        let poll_on = |fd: Option<&OwnedFd>| libc::pollfd {
            // A negative descriptor is skipped.
            fd: fd.map_or(-1, |f| f.as_raw_fd()),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls = vec![poll_on(Some(&stop)), poll_on(socket.as_ref())];
        polls.extend(pidfds.iter().map(|p| poll_on(p.as_ref())));
        // SAFETY: `polls` lives for the call.
        let n = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
        if n < 0 {
            let e = io::Error::last_os_error();
            if e.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            shared.tell(News::Failed(Error::io("wait for QEMU", e)));
            return;
        }
        if polls[0].revents != 0 {
            return;
        }
        for (number, poll) in polls[2..].iter().enumerate() {
            if poll.revents != 0 && pidfds[number].take().is_some() {
                shared.tell(News::Dead(number));
            }
        }
        if polls[1].revents == 0 {
            continue;
        }
        let Some(fd) = socket.as_ref().map(|s| s.as_raw_fd()) else {
            continue;
        };
        match wire::receive(fd, libc::MSG_DONTWAIT) {
            Ok(Some((message, mut fds))) => {
                if message.header.kind == wire::PROCESS {
                    pidfds.push((fds.len() > 1).then(|| fds.swap_remove(1)));
                }
                shared.tell(News::Message(message, fds));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                shared.tell(News::Failed(Error::Protocol(e.to_string())));
                socket = None;
            }
            // The end of the connection; a reset is one too.
            Ok(None) | Err(_) => {
                shared.tell(News::Closed);
                socket = None;
            }
        }
    }
}
