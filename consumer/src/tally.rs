//! Counting by blocks: what a chunk adds up to, at one addition per executed block.
//!
//! Rule: a block that ran plainly adds one to its count, and its sums are worked out once per chunk; every other one is added
//! up by its instructions and accesses. `TRAPLINE_TALLY=plain` turns the short cut off, so that the two can be compared.

use crate::exec::Access;
use crate::{BlockExec, Items, Table, Totals};
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

/// Counts the blocks of a chunk. Used again for the next one: it keeps its memory.
#[derive(Debug, Default)]
pub struct Tally {
    /// Plain executions by block number; 0 outside of `touched`.
    counts: Vec<u32>,
    touched: Vec<u32>,
    others: Vec<(u32, Sums)>,
    slow: bool,
}

impl Tally {
    /// Makes ready for a chunk.
    pub fn start(&mut self, table: &Table) {
        static PLAIN: OnceLock<bool> = OnceLock::new();
        self.slow = *PLAIN.get_or_init(|| std::env::var_os("TRAPLINE_TALLY").is_some_and(|v| v == "plain"));
        self.reach(table.seen());
    }

    fn reach(&mut self, blocks: usize) {
        if self.counts.len() < blocks {
            self.counts.resize(blocks.next_power_of_two(), 0);
        }
    }

    /// Adds plain blocks as long as they come, and calls `each` with their numbers: the fastest way through a chunk. It stops before
    /// anything else, before a block with a number from `limit` up or with optional accesses, and before the chunk's last block.
    #[inline(always)]
    pub fn add_plain(&mut self, items: &mut Items<'_>, limit: usize, mut each: impl FnMut(u32)) {
        if self.slow {
            return;
        }
        let limit = limit.min(self.counts.len());
        let counts = &mut self.counts[..limit];
        let touched = &mut self.touched;
        items.plain_heads(|head| {
            let Some(count) = counts.get_mut(head.number() as usize) else {
                return false;
            };
            if head.has_optional() {
                return false;
            }
            if *count == 0 {
                touched.push(head.number());
            }
            // A chunk has fewer than 2^32 words, so that this cannot overflow.
            *count += 1;
            each(head.number());
            true
        });
    }

    /// Adds an execution, whatever it is like.
    #[inline(never)]
    pub fn add(&mut self, block: &BlockExec<'_>) {
        if !block.is_plain() || block.has_optional() || self.slow {
            self.others.push((block.number(), block.sums()));
            return;
        }
        self.add_number(block.number());
    }

    /// Adds a plain execution of the block with this number. Optional accesses are not looked at.
    #[inline(always)]
    pub(crate) fn add_number(&mut self, number: u32) {
        self.reach(number as usize + 1);
        let count = &mut self.counts[number as usize];
        if *count == 0 {
            self.touched.push(number);
        }
        *count += 1;
    }

    /// Hands out what the chunk added up to, by block number (some in several parts), and is empty afterwards.
    pub fn finish(&mut self, table: &Table, mut each: impl FnMut(u32, Sums)) {
        for number in self.touched.drain(..) {
            let times = std::mem::take(&mut self.counts[number as usize]);
            if let Some(info) = table.numbered(number) {
                each(number, Sums::of(&info.totals, u64::from(times)));
            }
        }
        for (number, sums) in self.others.drain(..) {
            each(number, sums);
        }
    }

    /// Forgets what was added, as after an error.
    pub fn clear(&mut self) {
        for number in self.touched.drain(..) {
            self.counts[number as usize] = 0;
        }
        self.others.clear();
    }
}
