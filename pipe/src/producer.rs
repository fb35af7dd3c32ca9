//! QEMU's side of a stream: filling chunks, and what happens where emitted code does not go.
//!
//! Rules:
//! * A [`Writer`] belongs to one vCPU's thread. Between blocks the next record goes to `cursor`.
//! * Emitted code advances `cursor` over a whole block at its start and then addresses its slots relative to it. So while a
//!   block runs, `cursor` must not move: records made meanwhile (accesses in helpers, events) go to `tail`, and `limit`
//!   is closed so that the next block's start comes to [`Writer::refill`], which moves `cursor` there.
//! * Where a chunk ends in the middle of a block, the block is split: see `Writer::split`.

use crate::layout::*;
use crate::ring::{self, Line};
use crate::table::{extra_words, value_words};
use crate::table_writer::TableWriter;
use crate::wire;
use memmap2::MmapRaw;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Spins before the producer sleeps: about 20 µs, chosen shorter than a consumer's usual time for a chunk.
const SPINS: u32 = 2000;

/// The two words that emitted code works with; they live in QEMU's CPU state.
pub struct Cursor<'a> {
    /// Where the next record goes, or past the running block.
    pub cursor: &'a mut *mut u64,
    /// A block may start while `cursor < limit`; null closes it.
    pub limit: &'a mut *mut u64,
}

/// What the running helper works for, as emitted code noted it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Block id.
    pub block: u32,
    /// Index of the instruction.
    pub insn: u16,
    /// Static slots of the instruction that are filled already.
    pub done: u8,
}

/// Shape of a stream's memory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes, a power of two, at least 64 KiB (the longest block and the slack must fit).
    pub chunk_size: u32,
    /// 2..=64.
    pub chunk_count: u32,
}

/// 64 KiB chunks stay in the second-level cache; see docs/src/performance.md.
pub const DEFAULT_SHAPE: Shape = Shape { chunk_size: 64 << 10, chunk_count: 16 };

/// A stream's shared memory, as the producer's process maps it. Shared between the vCPU's thread and the server.
pub struct StreamMemory {
    fd: OwnedFd,
    map: MmapRaw,
    /// Thread id.
    pub tid: u32,
    /// Number of the vCPU.
    pub vcpu: u32,
}

// SAFETY: the header is only accessed through atomics, the chunks only by their writer.
unsafe impl Send for StreamMemory {}
// SAFETY: as above.
unsafe impl Sync for StreamMemory {}

impl StreamMemory {
    /// New memory for one stream; the first chunk is allocated. Errors: no memory, no descriptors.
    pub fn create(shape: Shape, tid: u32, vcpu: u32) -> io::Result<Self> {
        let len = STREAM_HEADER + shape.chunk_size as usize * shape.chunk_count as usize;
        let fd = wire::memfd(c"trapline-stream", len as u64)?;
        let map = memmap2::MmapOptions::new().len(len).map_raw(&fd)?;
        let memory = StreamMemory { fd, map, tid, vcpu };
        memory.allocate(0, STREAM_HEADER + shape.chunk_size as usize)?;
        // SAFETY: the header is allocated, zero, and nobody else has the descriptor yet.
        unsafe {
            let h = &mut *memory.map.as_mut_ptr().cast::<StreamHeader>();
            h.magic = STREAM_MAGIC;
            h.version = VERSION;
            h.chunk_size = shape.chunk_size;
            h.chunk_count = shape.chunk_count;
            h.pid = std::process::id();
            h.tid = tid;
            h.vcpu = vcpu;
        }
        Ok(memory)
    }

    fn allocate(&self, at: usize, len: usize) -> io::Result<()> {
        // SAFETY: the range lies inside our mapping.
        unsafe { wire::populate(self.map.as_mut_ptr().add(at), len) }
    }

    /// The descriptor to hand to consumers.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The header.
    pub fn header(&self) -> &StreamHeader {
        // SAFETY: the header exists as long as the mapping; its non-atomic fields are never written again.
        unsafe { &*self.map.as_ptr().cast::<StreamHeader>() }
    }

    /// The lines of all consumers.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.header().consumers.iter().map(|c| Line { state: &c.state, lossy: &c.lossy, needed: &c.needed })
    }

    /// The line of one consumer.
    pub fn line(&self, place: usize) -> Line<'_> {
        let c = &self.header().consumers[place];
        Line { state: &c.state, lossy: &c.lossy, needed: &c.needed }
    }

    /// Takes a consumer in; it gets everything from the open chunk on.
    pub fn attach(&self, place: usize, lossy: bool) {
        let h = self.header();
        ring::attach(self.line(place), lossy, &h.producer.open, &h.room, &h.room_wanted);
    }

    /// Drops a consumer.
    pub fn detach(&self, place: usize) {
        let h = self.header();
        ring::detach(self.line(place), &h.room, &h.room_wanted);
    }
}

/// Called when a chunk was handed over or a stream ended: rings the consumers' bells, so that sleepers wake if it says so.
pub type Notify = Box<dyn Fn(bool) + Send>;

/// The header word of a block that was left, as long as it may still be corrected.
#[derive(Clone, Copy)]
struct Left {
    header: *mut u64,
    block: u32,
    insn: u16,
}

/// The writer of one stream.
pub struct Writer {
    memory: std::sync::Arc<StreamMemory>,
    notify: Notify,
    size: usize,
    count: u64,
    seq: u64,
    base: *mut u64,
    end: *mut u64,
    tail: *mut u64,
    record: *mut u64,
    record_context: Context,
    left: Option<Left>,
    /// The instruction that trapped into what happens now.
    trapped: Option<u64>,
    used: Vec<usize>,
    closed: bool,
}

// SAFETY: the raw pointers lead into `memory`, which the writer holds.
unsafe impl Send for Writer {}

const NO_CONTEXT: Context = Context { block: 0, insn: 0, done: 0 };

fn block_word_parts(executed: u16, words: u16, flags: u64) -> u64 {
    (u64::from(executed) & EXECUTED_MASK) << EXECUTED_SHIFT | u64::from(words) << WORDS_SHIFT | FLAG_PARTIAL | flags
}

impl Writer {
    /// A writer at the start of an empty stream, with `cursor` and `limit` set.
    pub fn new(memory: std::sync::Arc<StreamMemory>, notify: Notify, c: &mut Cursor<'_>, table: &TableWriter) -> Self {
        let h = memory.header();
        let size = h.chunk_size as usize;
        let count = u64::from(h.chunk_count);
        let null = std::ptr::null_mut();
        let mut w = Writer {
            notify,
            size,
            count,
            seq: 0,
            base: null,
            end: null,
            tail: null,
            record: null,
            record_context: NO_CONTEXT,
            left: None,
            trapped: None,
            used: vec![0; count as usize],
            closed: false,
            memory,
        };
        w.enter(0, table);
        *c.cursor = w.base;
        *c.limit = w.limit();
        w
    }

    /// The stream's memory.
    pub fn memory(&self) -> &std::sync::Arc<StreamMemory> {
        &self.memory
    }

    fn limit(&self) -> *mut u64 {
        (self.end as usize - CHUNK_SLACK) as *mut u64
    }

    fn enter(&mut self, seq: u64, table: &TableWriter) {
        let index = (seq % self.count) as usize;
        let desc = &self.memory.header().chunks[index];
        desc.order.store(table.header().order.fetch_add(1, Ordering::AcqRel), Ordering::Relaxed);
        self.seq = seq;
        // SAFETY: chunk `index` lies inside the mapping.
        unsafe {
            let base = self.memory.map.as_mut_ptr().add(STREAM_HEADER + index * self.size);
            self.base = base.cast();
            self.end = base.add(self.size).cast();
        }
    }

    /// Hands the open chunk over, used up to `at`, and opens the next one. Blocks while consumers need its place.
    fn next_chunk(&mut self, at: *mut u64, table: &TableWriter) {
        let h = self.memory.header();
        let desc = &h.chunks[(self.seq % self.count) as usize];
        let used = at as usize - self.base as usize;
        self.used[(self.seq % self.count) as usize] = used;
        desc.used.store(used as u64, Ordering::Relaxed);
        // Release: pairs with the consumer's Acquire of `seq`; the chunk's words happened before.
        desc.seq.store(self.seq + 1, Ordering::Release);
        h.producer.handed.fetch_add(1, Ordering::Relaxed);
        let next = self.seq + 1;
        ring::open(&h.producer.open, next);
        // A consumer that sleeps is woken for several chunks at once, but before the ring is full; its own naps are short.
        (self.notify)(next.is_multiple_of((self.count / 4).max(1)));
        ring::wait_for_room(|| self.memory.lines(), &h.room, &h.room_wanted, next, self.count, SPINS);
        let index = (next % self.count) as usize;
        let at = STREAM_HEADER + index * self.size;
        if next < self.count {
            if let Err(e) = self.memory.allocate(at, self.size) {
                fatal(&format!("no memory for the next chunk of a stream ({} bytes): {e}", self.size));
            }
        } else {
            let desc = &h.chunks[index];
            // See ChunkDesc: a lossy reader must not take the zeroes below for the old chunk.
            desc.seq.store(CLEARING, Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            // SAFETY: the chunk lies inside the mapping and no lossless consumer needs it any more.
            unsafe {
                std::ptr::write_bytes(self.memory.map.as_mut_ptr().add(at), 0, self.used[index]);
            }
            desc.seq.store(0, Ordering::Release);
        }
        self.enter(next, table);
    }

    /// The place where the stream ends now.
    fn at(&self, c: &Cursor<'_>) -> *mut u64 {
        if self.tail.is_null() { *c.cursor } else { self.tail }
    }

    /// The slow path of a block's start: `cursor` moves to the stream's end, with room for a block of `bytes`.
    pub fn refill(&mut self, c: &mut Cursor<'_>, bytes: usize, table: &TableWriter) {
        let mut at = self.at(c);
        self.tail = std::ptr::null_mut();
        self.record = std::ptr::null_mut();
        self.left = None;
        self.trapped = None;
        // The emitted check: a block longer than the slack checks for its own length.
        if at as usize + bytes.max(CHUNK_SLACK) >= self.end as usize {
            self.next_chunk(at, table);
            at = self.base;
        }
        *c.cursor = at;
        *c.limit = self.limit();
    }

    /// Says what is complete in the open chunk, for consumers that read it in place. Call outside of blocks.
    fn publish(&self, at: *mut u64) {
        let used = (at as usize - self.base as usize) as u64;
        self.memory.header().producer.published.store((self.seq & 0xffff_ffff) << 32 | used, Ordering::Release);
    }

    /// Appends a record between blocks.
    pub fn event(&mut self, c: &mut Cursor<'_>, kind: u8, payload: &[u64], table: &TableWriter) {
        if self.closed {
            return;
        }
        let need = payload.len() + 1;
        let mut at = self.at(c);
        self.tail = std::ptr::null_mut();
        self.record = std::ptr::null_mut();
        self.left = None;
        if at as usize + need * 8 > self.end as usize {
            self.next_chunk(at, table);
            at = self.base;
        }
        // SAFETY: there is room for `need` words before `end`.
        unsafe {
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(1), payload.len());
            store_release(at, u64::from(kind) << 32 | (payload.len() as u64) << 40);
            *c.cursor = at.add(need);
        }
        *c.limit = self.limit();
        self.publish(*c.cursor);
    }

    /// Appends a record while a block may be running: `context` if the block has a word in the stream.
    pub fn record_in_block(
        &mut self,
        c: &mut Cursor<'_>,
        context: Option<Context>,
        kind: u8,
        payload: &[u64],
        table: &TableWriter,
    ) {
        let Some(context) = context else {
            return self.event(c, kind, payload, table);
        };
        if self.closed {
            return;
        }
        let need = payload.len() + 1;
        let mut at = self.at(c);
        if at as usize + need * 8 > self.end as usize {
            self.split(c, context, table);
            at = self.at(c);
        }
        // SAFETY: there is room for `need` words before `end`.
        unsafe {
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(1), payload.len());
            store_release(at, u64::from(kind) << 32 | (payload.len() as u64) << 40);
            self.tail = at.add(need);
        }
        self.record = std::ptr::null_mut();
        *c.limit = std::ptr::null_mut();
    }

    /// Appends an access made for `context` while its block runs.
    pub fn access(&mut self, c: &mut Cursor<'_>, context: Context, made: &Made, table: &TableWriter) {
        if !self.append(c, context, made) {
            self.split(c, context, table);
            self.append(c, context, made);
        }
    }

    /// The same in the open chunk. False if that has no room: nothing is done.
    #[inline]
    pub fn append(&mut self, c: &mut Cursor<'_>, context: Context, made: &Made) -> bool {
        let Made { info, addr, value, physical } = *made;
        if self.closed {
            return true;
        }
        let values = value_words(info, info as u32);
        let need = 2 + extra_words(info, info as u32);
        let mut at = self.at(c);
        let same = !self.record.is_null()
            && self.record_context.block == context.block
            && self.record_context.insn == context.insn;
        let total = if same { need } else { need + 2 };
        if at as usize + total * 8 > self.end as usize {
            return false;
        }
        // SAFETY: there is room for the words below before `end`; see the check above.
        unsafe {
            let mut start = self.record;
            let grows = !start.is_null() && same;
            if !grows {
                start = at;
                at.add(1).write(u64::from(context.insn) << 16 | u64::from(context.block) << 32);
                at = at.add(2);
            }
            let length = (at.add(need).offset_from(start) - 1) as u64;
            let header = u64::from(kind::ACCESS) << 32 | length << 40;
            if grows {
                // Who reads the open chunk takes what stands behind a record for the next one: it grows before there is anything.
                store_release(start, header);
            }
            store_release(at, info | u64::from(context.done) << info::ORDER_SHIFT);
            at.add(1).write(addr);
            if values > 0 {
                at.add(2).write(value.0);
            }
            if values > 1 {
                at.add(3).write(value.1);
            }
            if info & info::PADDR != 0 {
                at.add(2 + values).write(physical[0]);
                at.add(3 + values).write(physical[1]);
            }
            at = at.add(need);
            if !grows {
                store_release(start, header);
            }
            self.record = start;
        }
        self.record_context = context;
        self.tail = at;
        *c.limit = std::ptr::null_mut();
        true
    }

    /// Slot words of the block that are filled when `done` slots of instruction `insn` are.
    fn words_until(table: &TableWriter, block: u32, insn: u16, done: usize) -> u16 {
        let mut words = 0;
        let mut left = done;
        for a in table.accesses(block) {
            if a.insn > insn {
                break;
            }
            if a.insn == insn {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            words = a.slot - 1 + slot_len(a);
        }
        words
    }

    /// The chunk is full while `context`'s block runs: what ran stays in it, the rest goes on in the next chunk, where
    /// the block's word and slots stand again after a CONT record. So a long repeat loop can hand its chunks over.
    fn split(&mut self, c: &mut Cursor<'_>, context: Context, table: &TableWriter) {
        let slots = table.entry(context.block).map_or(0, |e| e.slot_words) as usize;
        let at = self.at(c);
        let words = Self::words_until(table, context.block, context.insn, context.done as usize);
        // SAFETY: `cursor` is past the running block's words, which emitted code wrote into the open chunk.
        unsafe {
            let header = (*c.cursor).sub(slots + 1);
            store_release(header, u64::from(context.block) | block_word_parts(context.insn, words, FLAG_SPLIT));
        }
        self.next_chunk(at, table);
        // SAFETY: a fresh chunk has room for three words and the longest block.
        unsafe {
            self.base.add(1).write(u64::from(context.insn) | u64::from(words) << 16);
            store_release(self.base.add(2), u64::from(context.block));
            store_release(self.base, u64::from(kind::CONT) << 32 | 1 << 40);
            *c.cursor = self.base.add(3 + slots);
        }
        self.tail = std::ptr::null_mut();
        self.record = std::ptr::null_mut();
    }

    /// The running block was left at instruction `insn`. `reexec`: the guest saw nothing of it.
    pub fn left(&mut self, c: &mut Cursor<'_>, block: u32, insn: u16, reexec: bool, table: &TableWriter) {
        if self.closed {
            return;
        }
        let Some(entry) = table.entry(block) else {
            return;
        };
        // SAFETY: `cursor` is past the running block's words, which emitted code wrote into the open chunk.
        let (header, slots) = unsafe {
            let header = (*c.cursor).sub(entry.slot_words as usize + 1);
            (header, header.add(1))
        };
        // SAFETY: as above.
        if unsafe { header.read() } as u32 != block {
            return;
        }
        // Accesses are made in order and a slot is zero until its access completed. (An access at address 0 counts if a
        // later one of the same instruction was made.)
        let mut words = 0;
        for a in table.accesses(block) {
            if a.insn > insn {
                break;
            }
            // SAFETY: slots lie inside the block's words.
            let filled = a.insn < insn || unsafe { slots.add(a.slot as usize - 1).read() } != 0;
            if filled {
                words = a.slot - 1 + slot_len(a);
            }
        }
        let flags = if reexec { FLAG_REEXEC } else { FLAG_ABORTED };
        // SAFETY: as above.
        unsafe { store_release(header, u64::from(block) | block_word_parts(insn, words, flags)) };
        // Not published yet: `completed` may still say that the instruction retired, and a consumer that reads the open
        // chunk in place must not have seen it aborted before.
        self.left = Some(Left { header, block, insn });
    }

    /// The running instruction and those after it are not part of the trace: it stopped tracing, and the block is left.
    pub fn exclude(&mut self, c: &mut Cursor<'_>, context: Context, table: &TableWriter) {
        if self.closed {
            return;
        }
        let Some(entry) = table.entry(context.block) else { return };
        let words = Self::words_until(table, context.block, context.insn, 0);
        // SAFETY: `cursor` is past the running block's words, which emitted code wrote into the open chunk.
        unsafe {
            let header = (*c.cursor).sub(entry.slot_words as usize + 1);
            if header.read() as u32 == context.block {
                store_release(header, u64::from(context.block) | block_word_parts(context.insn, words, 0));
            }
        }
    }

    /// Most bytes of text in one event: with the other words it must fit into a chunk.
    pub const MOST_TEXT: usize = 32 << 10;

    /// After an exception: `pc` is where the guest goes on, `None` if the instruction is known to have completed. An instruction after
    /// which the guest goes on has retired.
    pub fn completed(&mut self, pc: Option<u64>, table: &TableWriter) {
        let Some(left) = self.left else { return };
        let (Some(entry), Some(insn)) = (table.entry(left.block), table.insns(left.block).get(left.insn as usize))
        else {
            return;
        };
        let next = entry.pc.wrapping_add_signed(i64::from(insn.pc_off)).wrapping_add(u64::from(insn.len));
        if pc.is_some_and(|pc| pc != next) {
            return;
        }
        self.left = None;
        self.trapped = Some(next.wrapping_sub(u64::from(insn.len)));
        // SAFETY: `left` is dropped before its chunk is handed over, so the header is still ours.
        unsafe {
            let old = left.header.read();
            if old & FLAG_ABORTED == 0 {
                return;
            }
            let retired = left.insn + 1;
            let new = if retired == entry.n_insns {
                u64::from(left.block)
            } else {
                let words = (old >> WORDS_SHIFT) as u16;
                u64::from(left.block) | block_word_parts(retired, words, 0)
            };
            store_release(left.header, new);
        }
    }

    /// The pc of the instruction that [`Writer::completed`] found to have trapped, once.
    pub fn take_trapped(&mut self) -> Option<u64> {
        self.trapped.take()
    }

    /// Ends the stream: END record, last chunk handed over.
    pub fn end(&mut self, c: &mut Cursor<'_>, reason: u64, code: u64, table: &TableWriter) {
        if self.closed {
            return;
        }
        self.event(c, kind::END, &[reason, code], table);
        self.closed = true;
        let h = self.memory.header();
        let desc = &h.chunks[(self.seq % self.count) as usize];
        desc.used.store((*c.cursor as usize - self.base as usize) as u64, Ordering::Relaxed);
        desc.seq.store(self.seq + 1, Ordering::Release);
        ring::open(&h.producer.open, self.seq + 1);
        h.producer.ended.store(1, Ordering::Release);
        (self.notify)(true);
    }
}

/// An access made in a helper.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// As in [`crate::layout::info`], without the order.
    pub info: u64,
    /// Guest virtual address.
    pub addr: u64,
    /// Its value, low and high, if `info` says that it has one.
    pub value: (u64, u64),
    /// Where it went, if `info` says so; as in [`crate::layout::physical`].
    pub physical: [u64; 2],
}

/// Words of a static slot.
pub fn slot_len(a: &AccessEntry) -> u16 {
    let flag = |f: u64| a.flags & (f >> 32) as u16 != 0;
    let extra = extra_words(u64::from(a.flags) << 32, u32::from(a.size)) as u16;
    1 + u16::from(flag(info::OPTIONAL)) + extra
}

/// Stores a record's first word after the rest of the record.
///
/// # Safety
/// `at` must be valid for an aligned 8-byte store.
unsafe fn store_release(at: *mut u64, word: u64) {
    // SAFETY: by contract.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(at).store(word, Ordering::Release) };
}

/// Ends QEMU: an error of the environment that cannot be passed to the guest.
pub fn fatal(what: &str) -> ! {
    eprintln!("trapline: {what}");
    // SAFETY: ends the process at once; no destructor of QEMU or the guest may run here.
    unsafe { libc::_exit(125) }
}

/// Rings a bell that a consumer handed over.
pub fn ring_bell(bell: &Bell, wake: bool) {
    ring::ring_bell(&bell.rings, &bell.sleeping, wake);
}
