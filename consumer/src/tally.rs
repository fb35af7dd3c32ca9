//! Counting by blocks: what a chunk adds up to, at one addition per executed block.
//!
//! Rule: a block that ran plainly adds one to its count, and its sums are worked out once per chunk; every other one is added
//! up by its instructions and accesses. What the walk needs of a block stands in one place of an array of the tally's own.
//! `TRAPLINE_TALLY=plain` turns the short cut off, so that the two can be compared.

use crate::exec::Access;
use crate::{BlockExec, BlockInfo, Items, Table, Totals};
use pipe::table::predicted;
use std::ops::AddAssign;
use std::sync::OnceLock;

/// What executions add up to. Instructions count if they are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Retired instructions.
    pub insns: u64,
    /// Aborted instructions.
    pub aborted: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Bytes loaded.
    pub load_bytes: u64,
    /// Bytes stored.
    pub store_bytes: u64,
    /// Executions of translated blocks in which an instruction retired.
    pub blocks: u64,
}

impl Sums {
    /// `times` executions of a block with these totals.
    pub(crate) fn of(totals: &Totals, times: u64) -> Sums {
        Sums {
            insns: totals.insns * times,
            aborted: 0,
            loads: totals.loads * times,
            stores: totals.stores * times,
            load_bytes: totals.load_bytes * times,
            store_bytes: totals.store_bytes * times,
            blocks: times,
        }
    }

    /// Adds an access.
    pub fn access(&mut self, access: Access) {
        self.made(access.is_store(), u64::from(access.size));
    }

    #[inline]
    pub(crate) fn made(&mut self, store: bool, size: u64) {
        let (count, bytes) = match store {
            true => (&mut self.stores, &mut self.store_bytes),
            false => (&mut self.loads, &mut self.load_bytes),
        };
        *count += 1;
        *bytes += size;
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.insns += other.insns;
        self.aborted += other.aborted;
        self.loads += other.loads;
        self.stores += other.stores;
        self.load_bytes += other.load_bytes;
        self.store_bytes += other.store_bytes;
        self.blocks += other.blocks;
    }
}

/// What the walk over plain blocks needs of one: in one place, half a cache line with 16 bytes of the user's.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry<X> {
    /// The block's word, which is its id, with [`NEVER_PLAIN`] if it is never to be met as plain; 0 if there is no block.
    word: u64,
    /// Plain executions in this chunk.
    count: u32,
    /// Length in the stream, its word included.
    len: u32,
    of: X,
}

/// In an entry's word: no word of the stream is like it, so that the walk stops at the block.
const NEVER_PLAIN: u64 = 1 << 63;

impl<X> Entry<X> {
    /// Counts an execution; whether it is the chunk's first.
    #[inline(always)]
    fn one_more(&mut self) -> bool {
        // A chunk has fewer than 2^32 words, so that this cannot overflow.
        self.count += 1;
        self.count == 1
    }
}

/// Most places of the direct look-up (a block has the place `id / 4`): those of a table of 64 MiB. Blocks beyond are counted one by one.
const PLACES: usize = 1 << 21;

/// Counts the blocks of a chunk. Used again for the next one: it keeps its memory, and what it knows of the table's blocks. With each block
/// an `X` can be kept, of which [`Tally::add_plain`] tells.
#[derive(Debug, Default)]
pub struct Tally<X = ()> {
    /// Of the table whose blocks are known.
    serial: Option<u64>,
    /// By place.
    entries: Vec<Entry<X>>,
    /// Ids of those that are not empty.
    known: Vec<u32>,
    /// Ids of those with a count.
    touched: Vec<u32>,
    others: Vec<(u32, Sums)>,
    slow: bool,
}

fn place(id: u32) -> usize {
    (id >> 2) as usize
}

impl<X: Copy + Default> Tally<X> {
    /// Makes ready for a chunk.
    pub fn start(&mut self, table: &Table) {
        static PLAIN: OnceLock<bool> = OnceLock::new();
        self.slow = *PLAIN.get_or_init(|| std::env::var_os("TRAPLINE_TALLY").is_some_and(|v| v == "plain"));
        if self.serial != Some(table.serial()) {
            self.serial = Some(table.serial());
            for id in self.known.drain(..) {
                self.entries[place(id)] = Entry::default();
            }
        }
    }

    /// Adds plain blocks as long as they come, and calls `each` with what is kept of them: the fastest way through a chunk. It stops before
    /// anything else, before a block that was not added before or has optional accesses, and before the chunk's last block.
    #[inline(always)]
    pub fn add_plain(&mut self, items: &mut Items<'_>, mut each: impl FnMut(&X)) {
        let Some((words, mut at)) = items.between_blocks() else {
            return;
        };
        let entries = &mut self.entries[..];
        let touched = &mut self.touched;
        if let Some(mut word) = words.get(at) {
            // A word whose upper half is not 0 lies beyond all places. There is none for the word 0: no id is below 4, and place 0 is marked.
            while let Some(entry) = entries.get_mut((word >> 2) as usize).filter(|e| e.word == word) {
                let next = at + predicted(entry.len);
                let Some(after) = words.get(next) else { break };
                // Records of its own?
                if after as u32 == 0 {
                    break;
                }
                if entry.one_more() {
                    touched.push(word as u32);
                }
                each(&entry.of);
                (at, word) = (next, after);
            }
        }
        items.go_to(at);
    }

    /// Adds an execution, whatever it is like, and tells what is kept of the block: what `of` says, which is asked once.
    #[inline(never)]
    pub fn add(&mut self, block: &BlockExec<'_>, of: impl FnOnce(&BlockInfo) -> X) -> X {
        let info = block.info();
        if place(info.id) >= PLACES {
            self.others.push((info.id, block.sums()));
            return of(info);
        }
        let never = self.slow || block.has_optional();
        let plain = block.is_plain() && !never;
        if !plain {
            self.others.push((info.id, block.sums()));
        }
        let entry = self.entry(info, if never { NEVER_PLAIN } else { 0 }, of);
        let kept = entry.of;
        if plain && entry.one_more() {
            self.touched.push(info.id);
        }
        kept
    }

    /// Adds an execution of the whole block, without its optional accesses.
    #[inline(always)]
    pub(crate) fn add_whole(&mut self, table: &Table, id: u32) {
        match self.entries.get_mut(place(id)) {
            Some(entry) if entry.word == u64::from(id) && entry.count > 0 => entry.count += 1,
            _ => self.add_first(table, id),
        }
    }

    #[cold]
    fn add_first(&mut self, table: &Table, id: u32) {
        let Some(info) = table.known(id) else { return };
        if place(id) >= PLACES {
            self.others.push((id, Sums::of(&info.totals, 1)));
        } else if self.entry(info, 0, |_| X::default()).one_more() {
            self.touched.push(id);
        }
    }

    fn entry(&mut self, info: &BlockInfo, mark: u64, of: impl FnOnce(&BlockInfo) -> X) -> &mut Entry<X> {
        let at = place(info.id);
        if at >= self.entries.len() {
            self.entries.resize((at + 1).next_power_of_two(), Entry::default());
            self.entries[0].word = NEVER_PLAIN;
        }
        let entry = &mut self.entries[at];
        if entry.word == 0 {
            *entry =
                Entry { word: u64::from(info.id) | mark, count: 0, len: u32::from(info.slot_words) + 1, of: of(info) };
            self.known.push(info.id);
        }
        entry
    }

    /// Hands out what the chunk added up to, by block (some in several parts), and is empty afterwards.
    pub fn finish(&mut self, table: &Table, mut each: impl FnMut(&BlockInfo, Sums)) {
        for id in self.touched.drain(..) {
            let times = std::mem::take(&mut self.entries[place(id)].count);
            if let Some(info) = table.known(id) {
                each(info, Sums::of(&info.totals, u64::from(times)));
            }
        }
        for (id, sums) in self.others.drain(..) {
            if let Some(info) = table.known(id) {
                each(info, sums);
            }
        }
    }

    /// Forgets what was added, as after an error.
    pub fn clear(&mut self) {
        for id in self.touched.drain(..) {
            self.entries[place(id)].count = 0;
        }
        self.others.clear();
    }
}
