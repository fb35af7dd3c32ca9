//! The block table as a consumer sees it: from a block's id to what the block is.
//!
//! Rules:
//! * The table's bytes belong to another process and are not trusted. An entry is copied word by word (each word once,
//!   atomically), the copy is validated, and only the copy is used from then on: a writer that changes an entry after
//!   the check changes nothing here.
//! * The file only grows (it is sealed against shrinking), so that memory below a size once seen never faults.
//! * An id is looked up in a dense array, without hashing: decoding a stream does this once per executed block.
//!   An entry is at least [`MIN_ENTRY_WORDS`] words long, so that two entries never share a place `id / 4`.

use crate::error::{Error, Result};
use crate::layout::{
    AccessEntry, BLOCK_LEVEL_KNOWN, BLOCK_LEVEL_SHIFT, BLOCK_USER, BlockEntry, INSN_TRACED, InsnEntry, TABLE_HEADER,
    TABLE_MAGIC, TABLE_MAX, TableHeader, VERSION, info,
};
use memmap2::{MmapOptions, MmapRaw};
use std::alloc::Layout;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Most instructions of a block: QEMU's own limit (`TCG_MAX_INSNS`).
pub const MAX_BLOCK_INSNS: usize = 512;
/// Shortest entry: its header and one instruction.
pub const MIN_ENTRY_WORDS: usize = ENTRY_WORDS + 1;
const _: () = assert!(MIN_ENTRY_WORDS >= 4);

const ENTRY_WORDS: usize = size_of::<BlockEntry>() / 8;
/// Ids of one table lie below.
const ID_END: u64 = TABLE_MAX / 8;

/// An access that a block makes each time, or each time it is not predicated away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessInfo {
    /// Index of its instruction in the block.
    pub insn: u16,
    /// Its first word among the block's slot words, from 0.
    pub at: u16,
    /// Size in bytes.
    pub size: u16,
    /// [`info`] bits shifted down by 32.
    pub flags: u16,
}

impl AccessInfo {
    fn has(self, bit: u64) -> bool {
        u64::from(self.flags) << 32 & bit != 0
    }
    /// A store; otherwise a load.
    pub fn is_store(self) -> bool {
        self.has(info::STORE)
    }
    /// Its first word says whether it was made.
    pub fn is_optional(self) -> bool {
        self.has(info::OPTIONAL)
    }
    /// Value words follow the address.
    pub fn has_value(self) -> bool {
        self.has(info::VALUE)
    }
    /// Number of slot words.
    pub fn words(self) -> usize {
        usize::from(self.is_optional()) + 1 + extra_words(u64::from(self.flags) << 32, u32::from(self.size))
    }
}

/// Number of words after the address of an access with these `info` bits and this size in bytes: its value, its physical addresses.
pub fn extra_words(info_bits: u64, size: u32) -> usize {
    value_words(info_bits, size) + if info_bits & info::PADDR != 0 { 2 } else { 0 }
}

/// Those of its value.
pub fn value_words(info_bits: u64, size: u32) -> usize {
    match (info_bits & info::VALUE != 0, size > 8) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    }
}

/// An instruction of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsnInfo {
    /// Guest virtual address.
    pub pc: u64,
    /// Length in bytes.
    pub len: u8,
    /// `INSN_*` bits.
    pub flags: u8,
    /// Start of its bytes in the block's code.
    pub code_at: u16,
    /// Index of its first access.
    pub first_access: u16,
    /// Index after its last access.
    pub end_access: u16,
}

impl InsnInfo {
    /// The analyzer asked for its fetch events.
    pub fn is_traced(self) -> bool {
        self.flags & INSN_TRACED != 0
    }
}

/// What a block that runs to its end adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Traced instructions.
    pub insns: u64,
    /// Loads that are not optional.
    pub loads: u64,
    /// Stores that are not optional.
    pub stores: u64,
    /// Bytes of these loads.
    pub load_bytes: u64,
    /// Bytes of these stores.
    pub store_bytes: u64,
}

/// A block, validated.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its id: the entry's byte offset divided by 8.
    pub id: u32,
    /// Its number among the blocks of this table that this process has seen: dense, from 0.
    pub number: u32,
    /// `BLOCK_*` bits.
    pub flags: u32,
    /// Guest virtual address of the first instruction.
    pub pc: u64,
    /// Words that follow the block word in the stream.
    pub slot_words: u16,
    /// Some access is optional: [`BlockInfo::totals`] leaves those out.
    pub has_optional: bool,
    /// Instructions, in order; at least one.
    pub insns: Box<[InsnInfo]>,
    /// Static accesses, in order.
    pub accesses: Box<[AccessInfo]>,
    /// The instructions' bytes.
    pub code: Box<[u8]>,
    /// Sums over the block.
    pub totals: Totals,
}

impl BlockInfo {
    /// The privilege that the block runs with, in a whole machine of an ISA that this is known of: whether it is user mode, and the level as
    /// the ISA numbers it (CPL, EL, privilege mode, KSU, PLV; problem state is 1).
    pub fn privilege(&self) -> Option<(bool, u8)> {
        (self.flags & BLOCK_LEVEL_KNOWN != 0)
            .then_some((self.flags & BLOCK_USER != 0, (self.flags >> BLOCK_LEVEL_SHIFT) as u8 & 7))
    }

    /// The bytes of instruction `index`; none if there is no such instruction.
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.insns
            .get(index)
            .and_then(|i| self.code.get(usize::from(i.code_at)..usize::from(i.code_at) + usize::from(i.len)))
            .unwrap_or(&[])
    }

    /// The static accesses of instruction `index`; none if there is no such instruction.
    pub fn accesses_of(&self, index: usize) -> &[AccessInfo] {
        self.insns
            .get(index)
            .and_then(|i| self.accesses.get(usize::from(i.first_access)..usize::from(i.end_access)))
            .unwrap_or(&[])
    }

    /// The static accesses of `insn`, one of this block's.
    #[inline(always)]
    pub fn accesses_in(&self, insn: &InsnInfo) -> &[AccessInfo] {
        let range = usize::from(insn.first_access)..usize::from(insn.end_access);
        self.accesses.get(range).unwrap_or(&[])
    }

    /// Guest address after the block's last instruction.
    pub fn end_pc(&self) -> u64 {
        self.insns.last().map_or(self.pc, |i| i.pc.wrapping_add(u64::from(i.len)))
    }
}

/// What decoding needs of a block most often, in one word.
///
/// ```text
/// slot_words:16 | n_insns:10 | number:26 | low bits of the id:2 | valid:1 | has_optional:1
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(u64);

/// `n`, of which the compiler must not know that it is the number just compared with: it would drop the branch.
#[inline(always)]
fn opaque(n: usize) -> usize {
    #[cfg(not(miri))]
    {
        let mut n = n;
        // SAFETY: no instruction at all.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) n, options(nomem, nostack, preserves_flags)) };
        n
    }
    #[cfg(miri)]
    n
}

/// The same number; small ones come out of branches, which the processor predicts.
///
/// A walk must know a record's length before it can read the next one: two dependent loads a block, about 13 cycles. Predicted,
/// the loads of many blocks overlap. What a guest repeats is predicted well here, and where it is not, the guest itself
/// mispredicted just so. `consumer/examples/speed.rs` measures it.
#[inline(always)]
pub fn predicted(n: u32) -> usize {
    match n {
        0 => opaque(0),
        1 => opaque(1),
        2 => opaque(2),
        3 => opaque(3),
        4 => opaque(4),
        5 => opaque(5),
        n => n as usize,
    }
}

const HEAD_CHECK_SHIFT: u32 = 52;
const HEAD_VALID: u64 = 4;

impl Head {
    fn new(id: u32, info: &BlockInfo) -> Head {
        Head(
            u64::from(info.slot_words)
                | (info.insns.len() as u64) << 16
                | u64::from(info.number) << 26
                | (u64::from(id & 3) | HEAD_VALID) << HEAD_CHECK_SHIFT
                | u64::from(info.has_optional) << 55,
        )
    }
    #[inline]
    fn is_of(self, id: u32) -> bool {
        self.0 >> HEAD_CHECK_SHIFT & 7 == u64::from(id & 3) | HEAD_VALID
    }
    /// Words that follow the block word in the stream.
    #[inline]
    pub fn slot_words(self) -> usize {
        (self.0 & 0xffff) as usize
    }
    /// The same number, for walking: see [`predicted`].
    #[inline(always)]
    pub fn slot_words_predicted(self) -> usize {
        predicted((self.0 & 0xffff) as u32)
    }
    /// Number of instructions, 1..=512.
    #[inline]
    pub fn n_insns(self) -> usize {
        (self.0 >> 16 & 0x3ff) as usize
    }
    /// The block's dense number.
    #[inline]
    pub fn number(self) -> u32 {
        (self.0 >> 26 & 0x3ff_ffff) as u32
    }
    /// Some access is optional.
    #[inline]
    pub fn has_optional(self) -> bool {
        self.0 >> 55 & 1 != 0
    }
}

/// What is known of the block whose id divided by four is this place's index.
#[derive(Default)]
#[repr(C, align(16))]
struct Place {
    /// A [`Head`]; 0 where none is known.
    head: AtomicU64,
    /// The block, in the table's `blocks`; null where none is known.
    info: AtomicPtr<BlockInfo>,
}

/// The heads of the blocks that are known so far.
#[derive(Clone, Copy)]
pub struct Heads<'a>(&'a [Place]);

impl Heads<'_> {
    /// The head of block `id`, if it is known.
    #[inline(always)]
    pub fn get(self, id: u32) -> Option<Head> {
        self.plain(u64::from(id))
    }

    /// The head of the block with this word, if it ran to its end and is known.
    #[inline(always)]
    pub fn plain(self, word: u64) -> Option<Head> {
        // There are fewer than 2^30 places, so that no word with an upper half has one.
        // Acquire; pairs with the Release in `Table::add`: the block's description is complete.
        let head = Head(self.0.get((word >> 2) as usize)?.head.load(Ordering::Acquire));
        head.is_of(word as u32).then_some(head)
    }
}

/// What the table's header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Guest's word size in bytes: 4 or 8.
    pub guest_word: u8,
    /// The guest is big-endian.
    pub big_endian: bool,
    /// The guest is a whole machine.
    pub system: bool,
    /// QEMU's target name.
    pub target: String,
    /// Name of the analyzer.
    pub analyzer: String,
    /// QEMU's version.
    pub qemu: String,
}

enum Bytes {
    /// Shared with the processes that write it.
    Shared { map: MmapRaw, file: File },
    /// A copy, as a recording has it.
    Owned(Box<[AtomicU64]>),
}

/// A block table.
pub struct Table {
    serial: u64,
    bytes: Bytes,
    /// Bytes known to be there. Grows only.
    size: AtomicU64,
    info: TableInfo,
    /// By `id / 4`.
    places: Box<[Place]>,
    blocks: boxcar::Vec<BlockInfo>,
    /// Held while a block is added.
    adding: Mutex<()>,
}

fn zeroed(len: usize) -> Box<[AtomicU64]> {
    let mut v = std::mem::ManuallyDrop::new(vec![0u64; len]);
    // SAFETY: AtomicU64 has the size, alignment (on hosts that have it) and validity of u64; the parts are the Vec's own.
    let v = unsafe { Vec::from_raw_parts(v.as_mut_ptr().cast::<AtomicU64>(), v.len(), v.capacity()) };
    v.into_boxed_slice()
}

fn zeroed_places(len: usize) -> Box<[Place]> {
    let Ok(layout) = Layout::array::<Place>(len.max(1)) else {
        return Box::default();
    };
    // SAFETY: the layout has a size; an all-zero `Place` is valid, and the Box frees it with the same layout.
    unsafe {
        let places = std::alloc::alloc_zeroed(layout).cast::<Place>();
        if places.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(places, len.max(1)))
    }
}

const _: () = assert!(align_of::<AtomicU64>() == align_of::<u64>());

impl Table {
    /// Maps a table that its writers go on extending.
    pub fn map(fd: OwnedFd) -> Result<Table> {
        crate::receiver::check_seal(&fd, "block table")?;
        let file = File::from(fd);
        let len = usize::try_from(TABLE_MAX)
            .map_err(|_| Error::Protocol("the block table does not fit this host's addresses".into()))?;
        let map =
            MmapOptions::new().len(len).map_raw_read_only(&file).map_err(|e| Error::io("map the block table", e))?;
        // The array of places is only virtual until it is touched.
        Table::new(Bytes::Shared { map, file }, (ID_END / 4) as usize)
    }

    /// A table from a copy of its bytes, as words in host byte order.
    pub fn from_words(words: &[u64]) -> Result<Table> {
        let owned = zeroed(words.len());
        for (to, from) in owned.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        Table::new(Bytes::Owned(owned), words.len() / 4 + 1)
    }

    fn new(bytes: Bytes, places: usize) -> Result<Table> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let mut table = Table {
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            bytes,
            size: AtomicU64::new(0),
            info: TableInfo::default(),
            places: zeroed_places(places),
            blocks: boxcar::Vec::new(),
            adding: Mutex::new(()),
        };
        table.info = table.read_info()?;
        Ok(table)
    }

    /// A number that no other table of this process has: what is kept by block numbers is kept by this one too.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// What the table's header says.
    pub fn info(&self) -> &TableInfo {
        &self.info
    }

    fn read_info(&self) -> Result<TableInfo> {
        if !self.reaches(TABLE_HEADER) {
            return Err(Error::Protocol("the block table is shorter than its header".into()));
        }
        let bytes = self.copy(0, 32);
        let bad = |what: String| Error::Protocol(format!("the block table {what}"));
        if bytes[..8] != TABLE_MAGIC {
            return Err(bad("does not start as one".into()));
        }
        let version = u32_at(&bytes, 8);
        if version != VERSION {
            return Err(bad(format!(
                "has version {version}, this program reads version {VERSION}: rebuild the older of the two"
            )));
        }
        let (guest_word, big_endian, system) = (bytes[12], bytes[13], bytes[14]);
        if !matches!(guest_word, 4 | 8) || big_endian > 1 || system > 1 {
            return Err(bad(format!(
                "tells of a guest word of {guest_word} bytes, byte order {big_endian}, kind of guest {system}"
            )));
        }
        let text = |at: usize, len: usize| {
            let b = &bytes[at..at + len];
            let end = b.iter().position(|&c| c == 0).unwrap_or(len);
            String::from_utf8_lossy(&b[..end]).into_owned()
        };
        Ok(TableInfo {
            guest_word,
            big_endian: big_endian == 1,
            system: system == 1,
            target: text(32, 32),
            analyzer: text(64, 64),
            qemu: text(128, 32),
        })
    }

    /// Are the bytes below `end` there? Asks the system only if they were not the last time.
    fn reaches(&self, end: u64) -> bool {
        // Relaxed: the size is no more than a hint of what fstat said; it orders nothing.
        if end <= self.size.load(Ordering::Relaxed) {
            return true;
        }
        let size = match &self.bytes {
            Bytes::Owned(words) => words.len() as u64 * 8,
            Bytes::Shared { file, .. } => file.metadata().map_or(0, |m| m.size()).min(TABLE_MAX),
        };
        self.size.fetch_max(size, Ordering::Relaxed);
        end <= size
    }

    /// The word at `index`, which the caller has found within `reaches`.
    fn word(&self, index: u64) -> u64 {
        match &self.bytes {
            Bytes::Owned(words) => words.get(index as usize).map_or(0, |w| w.load(Ordering::Relaxed)),
            Bytes::Shared { map, .. } => {
                assert!((index + 1) * 8 <= self.size.load(Ordering::Relaxed));
                // SAFETY: within the mapping and, by the assertion, within the file, which never shrinks (sealed);
                // aligned, since a mapping starts at a page; atomic, since another process writes it.
                unsafe { (*map.as_ptr().cast::<AtomicU64>().add(index as usize)).load(Ordering::Relaxed) }
            }
        }
    }

    /// A copy of `n` words from word `from`, as bytes.
    fn copy(&self, from: u64, n: usize) -> Vec<u8> {
        (0..n as u64).flat_map(|i| self.word(from + i).to_ne_bytes()).collect()
    }

    /// The words of the table's header that say something, for a copy of it.
    pub fn header_words(&self) -> Vec<u64> {
        (0..size_of::<TableHeader>() as u64 / 8).map(|i| self.word(i)).collect()
    }

    /// The words of the entry of a block of this table, for a copy of it.
    pub fn entry_words(&self, block: &BlockInfo) -> Vec<u64> {
        let id = u64::from(block.id);
        let n = if self.reaches(id * 8 + 8) { u32_at(&self.copy(id, 1), 0) } else { 0 };
        let end = id + u64::from(n);
        if self.reaches(end * 8) { (id..end).map(|i| self.word(i)).collect() } else { Vec::new() }
    }

    /// What is looked up once per executed block, ready for a loop.
    pub fn heads(&self) -> Heads<'_> {
        Heads(&self.places)
    }

    /// The head of block `id`.
    #[inline]
    pub fn head(&self, id: u32) -> Result<Head> {
        match self.heads().get(id) {
            Some(head) => Ok(head),
            None => self.add(id),
        }
    }

    /// Block `id`.
    #[inline(always)]
    pub fn block(&self, id: u32) -> Result<&BlockInfo> {
        match self.known(id) {
            Some(info) => Ok(info),
            None => {
                let head = self.head(id)?;
                self.numbered(head.number()).ok_or_else(|| Error::block(id, "is not there any more"))
            }
        }
    }

    /// Block `id`, if it is known.
    #[inline(always)]
    pub fn known(&self, id: u32) -> Option<&BlockInfo> {
        // Acquire; pairs with the Release in `add`.
        let info = self.places.get((id >> 2) as usize)?.info.load(Ordering::Acquire);
        // SAFETY: null, or a block in `blocks`, which never moves or drops one before the table itself.
        let info = unsafe { info.as_ref() }?;
        (info.id == id).then_some(info)
    }

    /// The block with this dense number, if one has been seen.
    #[inline]
    pub fn numbered(&self, number: u32) -> Option<&BlockInfo> {
        self.blocks.get(number as usize)
    }

    /// Number of blocks seen so far; their numbers lie below it.
    pub fn seen(&self) -> usize {
        self.blocks.count()
    }

    #[cold]
    fn add(&self, id: u32) -> Result<Head> {
        let _adding = self.adding.lock().unwrap_or_else(|e| e.into_inner());
        let place =
            self.places.get((id >> 2) as usize).ok_or_else(|| Error::block(id, "lies beyond the table's end"))?;
        let old = Head(place.head.load(Ordering::Acquire));
        if old.is_of(id) {
            return Ok(old);
        }
        if old.0 != 0 {
            return Err(Error::block(id, "overlaps another"));
        }
        let mut info = self.read(id)?;
        if self.blocks.count() >= 1 << 26 {
            return Err(Error::block(id, "is one too many"));
        }
        info.number = self.blocks.count() as u32;
        let head = Head::new(id, &info);
        let index = self.blocks.push(info);
        let info = self.blocks.get(index).ok_or_else(|| Error::block(id, "could not be kept"))?;
        // Release; pairs with the Acquire in `known`.
        place.info.store(std::ptr::from_ref(info).cast_mut(), Ordering::Release);
        // Release; pairs with the Acquire in `Heads::get`.
        place.head.store(head.0, Ordering::Release);
        Ok(head)
    }

    /// Copies and validates the entry of block `id`.
    fn read(&self, id: u32) -> Result<BlockInfo> {
        let bad = |what: String| Err(Error::block(id, what));
        let at = u64::from(id);
        if at * 8 < TABLE_HEADER {
            return bad("lies in the table's header".into());
        }
        if !self.reaches((at + ENTRY_WORDS as u64) * 8) {
            return bad("lies beyond the table's end".into());
        }
        let head = self.copy(at, ENTRY_WORDS);
        let words = u32_at(&head, 0);
        let (n_insns, n_accesses) = (usize::from(u16_at(&head, 16)), usize::from(u16_at(&head, 18)));
        let (slot_words, code_len) = (u16_at(&head, 20), usize::from(u16_at(&head, 22)));
        if n_insns == 0 || n_insns > MAX_BLOCK_INSNS {
            return bad(format!("has {n_insns} instructions"));
        }
        let expected = ENTRY_WORDS + n_insns + n_accesses + code_len.div_ceil(8);
        if words as usize != expected {
            return bad(format!("is {words} words long where its parts add up to {expected}"));
        }
        if !self.reaches((at + u64::from(words)) * 8) {
            return bad("reaches beyond the table's end".into());
        }
        let rest = self.copy(at + ENTRY_WORDS as u64, words as usize - ENTRY_WORDS);
        let (insn_bytes, rest) = rest.split_at(n_insns * size_of::<InsnEntry>());
        let (access_bytes, code) = rest.split_at(n_accesses * size_of::<AccessEntry>());

        let pc = u64_at(&head, 8);
        let mask = if self.info.guest_word == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let mut insns = Vec::with_capacity(n_insns);
        let mut code_at = 0usize;
        for (i, b) in insn_bytes.chunks_exact(8).enumerate() {
            let (len, first) = (b[4], u16_at(b, 6));
            let end =
                insn_bytes.get((i + 1) * 8..).filter(|n| !n.is_empty()).map_or(n_accesses as u16, |n| u16_at(n, 6));
            if (i == 0 && first != 0) || first > end || usize::from(end) > n_accesses {
                return bad(format!("gives instruction {i} the accesses {first}..{end} of {n_accesses}"));
            }
            if code_at + usize::from(len) > code_len {
                return bad(format!("has {code_len} bytes of code, too few for instruction {i}"));
            }
            insns.push(InsnInfo {
                pc: pc.wrapping_add(i64::from(u32_at(b, 0) as i32) as u64) & mask,
                len,
                flags: b[5],
                code_at: code_at as u16,
                first_access: first,
                end_access: end,
            });
            code_at += usize::from(len);
        }
        let mut accesses = Vec::with_capacity(n_accesses);
        let mut slot_end = 1usize;
        let mut totals = Totals { insns: insns.iter().filter(|i| i.is_traced()).count() as u64, ..Totals::default() };
        for (k, b) in access_bytes.chunks_exact(8).enumerate() {
            let (insn, slot) = (u16_at(b, 0), usize::from(u16_at(b, 2)));
            let owner = insns.get(usize::from(insn));
            if !owner.is_some_and(|i| (usize::from(i.first_access)..usize::from(i.end_access)).contains(&k)) {
                return bad(format!("gives access {k} to instruction {insn}, which does not have it"));
            }
            if slot < slot_end {
                return bad(format!("has access {k} in word {slot}, before word {slot_end}"));
            }
            let access = AccessInfo { insn, at: (slot - 1) as u16, size: u16_at(b, 4), flags: u16_at(b, 6) };
            slot_end = slot + access.words();
            if slot_end > usize::from(slot_words) + 1 {
                return bad(format!("has access {k} beyond its {slot_words} slot words"));
            }
            accesses.push(access);
            if access.is_optional() {
                continue;
            }
            let (count, bytes) = if access.is_store() {
                (&mut totals.stores, &mut totals.store_bytes)
            } else {
                (&mut totals.loads, &mut totals.load_bytes)
            };
            *count += 1;
            *bytes += u64::from(access.size);
        }
        Ok(BlockInfo {
            id,
            number: 0,
            flags: u32_at(&head, 4),
            pc: pc & mask,
            slot_words,
            has_optional: accesses.iter().any(|a: &AccessInfo| a.is_optional()),
            insns: insns.into(),
            accesses: accesses.into(),
            code: code[..code_len].into(),
            totals,
        })
    }
}

fn u16_at(b: &[u8], i: usize) -> u16 {
    u16::from_ne_bytes([b[i], b[i + 1]])
}
fn u32_at(b: &[u8], i: usize) -> u32 {
    u32::from_ne_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]])
}
fn u64_at(b: &[u8], i: usize) -> u64 {
    let mut w = [0; 8];
    w.copy_from_slice(&b[i..i + 8]);
    u64::from_ne_bytes(w)
}

/// A table that is put together again, entry by entry: of a recording.
pub struct TableImage(File);

impl TableImage {
    /// An empty one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new() -> std::io::Result<TableImage> {
        Ok(TableImage(File::from(crate::wire::memfd(c"trapline-recording", TABLE_MAX)?)))
    }

    /// Puts words at word `at`.
    ///
    /// # Errors
    /// If they lie beyond the largest table there can be.
    pub fn put(&mut self, at: u64, words: &[u64]) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let end = at.checked_mul(8).and_then(|b| b.checked_add(bytes.len() as u64));
        match end {
            Some(end) if end <= TABLE_MAX => self.0.write_all_at(&bytes, at * 8),
            _ => Err(std::io::Error::other("it would lie beyond the table's end")),
        }
    }

    /// The table, which sees what is put later, too.
    ///
    /// # Errors
    /// If its header has not been put, or is none.
    pub fn table(&self) -> Result<Table> {
        let fd = self.0.try_clone().map_err(|e| Error::io("share the block table", e))?;
        Table::map(OwnedFd::from(fd))
    }
}
