//! The writing side of the block table: identical blocks share one entry.
//!
//! Rules: the file has its full size from the start and is filled from the front; an entry is complete before its id is used anywhere; processes of one family (fork) append to
//! the same file and take their ranges with one atomic addition, so their entries never overlap.

use crate::layout::*;
use crate::wire;
use memmap2::{MmapOptions, MmapRaw};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// What a block is described with; the fields are those of [`BlockEntry`], [`InsnEntry`], [`AccessEntry`].
pub struct NewBlock<'a> {
    /// `BLOCK_*` bits.
    pub flags: u32,
    /// Guest virtual address.
    pub pc: u64,
    /// Words after the block word.
    pub slot_words: u16,
    /// The instructions.
    pub insns: &'a [InsnEntry],
    /// The static accesses, by instruction.
    pub accesses: &'a [AccessEntry],
    /// The instructions' bytes.
    pub code: &'a [u8],
}

/// How much of the file is made real at a time. Bytes.
const STEP: u64 = 1 << 20;

/// The block table, open for writing.
pub struct TableWriter {
    fd: OwnedFd,
    map: MmapRaw,
    grown: u64,
    index: HashMap<u64, Vec<u32>, BuildHasherDefault<DefaultHasher>>,
}

// SAFETY: the mapping is shared memory; all access goes through `&self` atomics or `&mut self`.
unsafe impl Send for TableWriter {}
// SAFETY: as above.
unsafe impl Sync for TableWriter {}

fn copy_name(to: &mut [u8], name: &str) {
    let n = name.len().min(to.len() - 1);
    to[..n].copy_from_slice(&name.as_bytes()[..n]);
}

impl TableWriter {
    /// A new, empty table. Errors: no memory, no descriptors.
    pub fn create(
        target: &str,
        analyzer: &str,
        qemu: &str,
        guest_word: u8,
        guest_big_endian: bool,
        system: bool,
    ) -> io::Result<Self> {
        let fd = wire::memfd(c"trapline-blocks", TABLE_MAX)?;
        let mut table = Self::map(fd)?;
        table.grow(TABLE_HEADER + STEP)?;
        // SAFETY: the header page was just allocated, and nobody else has the descriptor yet.
        unsafe {
            let h = &mut *table.map.as_mut_ptr().cast::<TableHeader>();
            h.magic = TABLE_MAGIC;
            h.version = VERSION;
            h.guest_word = guest_word;
            h.guest_big_endian = u8::from(guest_big_endian);
            h.system = u8::from(system);
            copy_name(&mut h.target, target);
            copy_name(&mut h.analyzer, analyzer);
            copy_name(&mut h.qemu, qemu);
            h.len.store(TABLE_HEADER, Ordering::Release);
        }
        Ok(table)
    }

    fn map(fd: OwnedFd) -> io::Result<Self> {
        let map = MmapOptions::new().len(TABLE_MAX as usize).no_reserve_swap().map_raw(&fd)?;
        Ok(TableWriter { fd, map, grown: 0, index: HashMap::default() })
    }

    /// The descriptor to hand to consumers.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The header.
    pub fn header(&self) -> &TableHeader {
        // SAFETY: the header page exists as long as the mapping; its non-atomic fields are never written again.
        unsafe { &*self.map.as_ptr().cast::<TableHeader>() }
    }

    fn grow(&mut self, len: u64) -> io::Result<()> {
        if len <= self.grown {
            return Ok(());
        }
        let len = len.next_multiple_of(STEP).min(TABLE_MAX);
        // SAFETY: the range lies inside our mapping, which is as long as the file.
        unsafe {
            wire::populate(self.map.as_mut_ptr().add(self.grown as usize), (len - self.grown) as usize)?;
        }
        self.grown = len;
        Ok(())
    }

    fn entry_bytes(block: &NewBlock<'_>, words: u32) -> Vec<u8> {
        let mut b = Vec::with_capacity(words as usize * 8);
        b.extend_from_slice(&words.to_ne_bytes());
        b.extend_from_slice(&block.flags.to_ne_bytes());
        b.extend_from_slice(&block.pc.to_ne_bytes());
        for n in [block.insns.len(), block.accesses.len(), block.slot_words as usize, block.code.len()] {
            b.extend_from_slice(&(n as u16).to_ne_bytes());
        }
        for i in block.insns {
            b.extend_from_slice(&i.pc_off.to_ne_bytes());
            b.extend_from_slice(&[i.len, i.flags]);
            b.extend_from_slice(&i.first_access.to_ne_bytes());
        }
        for a in block.accesses {
            for n in [a.insn, a.slot, a.size, a.flags] {
                b.extend_from_slice(&n.to_ne_bytes());
            }
        }
        b.extend_from_slice(block.code);
        b.resize(words as usize * 8, 0);
        b
    }

    /// The id of a block, a new one if it has not been described before. Errors: the table is full, or no memory.
    pub fn define(&mut self, block: &NewBlock<'_>) -> io::Result<u32> {
        let bytes = size_of::<BlockEntry>() + 8 * (block.insns.len() + block.accesses.len()) + block.code.len();
        let words = bytes.div_ceil(8) as u32;
        let entry = Self::entry_bytes(block, words);
        let mut hasher = DefaultHasher::new();
        entry.hash(&mut hasher);
        let hash = hasher.finish();
        for &id in self.index.get(&hash).into_iter().flatten() {
            if self.entry_raw(id, entry.len()) == entry {
                return Ok(id);
            }
        }
        let len = entry.len() as u64;
        let at = self.header().len.fetch_add(len, Ordering::AcqRel);
        if at + len > TABLE_MAX {
            return Err(io::Error::other(format!("the block table is full ({} MiB)", TABLE_MAX >> 20)));
        }
        self.grow(at + len)?;
        // SAFETY: the range was reserved for us alone by the addition above and is inside the grown file.
        unsafe {
            std::ptr::copy_nonoverlapping(entry.as_ptr(), self.map.as_mut_ptr().add(at as usize), entry.len());
        }
        let id = (at / 8) as u32;
        self.index.entry(hash).or_default().push(id);
        Ok(id)
    }

    fn entry_raw(&self, id: u32, len: usize) -> &[u8] {
        // SAFETY: ids in the index were written by `define`, so the entry lies inside the grown file and never changes; it is at
        // least as long as `len` or compares unequal: the step keeps `len` more bytes mapped and allocated or the slice is cut.
        unsafe {
            let at = id as usize * 8;
            let len = len.min(self.grown as usize - at);
            std::slice::from_raw_parts(self.map.as_ptr().add(at), len)
        }
    }

    /// The fixed part of a block's entry. `id` must come from this family's `define`.
    pub fn entry(&self, id: u32) -> Option<&BlockEntry> {
        let at = id as u64 * 8;
        if at < TABLE_HEADER || at + size_of::<BlockEntry>() as u64 > self.header().len.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: inside the used part of the file, 8-byte aligned, written before its id was used.
        Some(unsafe { &*self.map.as_ptr().add(at as usize).cast::<BlockEntry>() })
    }

    /// The static accesses of a block.
    pub fn accesses(&self, id: u32) -> &[AccessEntry] {
        let Some(e) = self.entry(id) else { return &[] };
        let at = id as usize * 8 + size_of::<BlockEntry>() + 8 * e.n_insns as usize;
        // SAFETY: as in `entry`; the entry's length covers its accesses.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(at).cast(), e.n_accesses as usize) }
    }

    /// The instructions of a block.
    pub fn insns(&self, id: u32) -> &[InsnEntry] {
        let Some(e) = self.entry(id) else { return &[] };
        let at = id as usize * 8 + size_of::<BlockEntry>();
        // SAFETY: as in `entry`; the entry's length covers its instructions.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(at).cast(), e.n_insns as usize) }
    }
}
