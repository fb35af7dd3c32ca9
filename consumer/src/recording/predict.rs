//! A chunk's words as differences from what was expected: programs repeat themselves.
//!
//! Rules:
//! * Writer and reader go the same way through the words ([`Predictor::walk`]) and expect the same: the differences say it all.
//! * Nothing is expected from another chunk: each can be read by itself.
//! * A wrong expectation costs bytes and nothing else.
//!
//! A block's word, or another record's first, is expected to be what followed the same three records last time. A slot's word is expected to be as far
//! from the one before, in the same slot of the same block, as that was from its own if it was so twice; so are the payload words of other records, at
//! the same place of the same kind.
//!
//! ```text
//! u32 words | for each word a byte: how many bytes its difference takes, 0 to 8 | the differences' bytes, little-endian
//! ```
//!
//! A difference is word minus expected word, its sign in the lowest bit (zigzag).

use pipe::record::Words;
use pipe::table::{Head, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Places for what follows three records; a power of two.
const FOLLOWERS: usize = 1 << 11;
/// Places where a record's slots may begin; a power of two.
const SLOTS: usize = 1 << 11;
/// Slots of a block that are told apart.
const MOST: usize = 64;
/// Payload words that are told apart: a multiple of the lengths of accesses with and without values.
const PERIOD: usize = 12;

/// Of one slot.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Slot {
    last: u64,
    /// Expected difference, and the last one: the former changes if the latter comes twice. Longer ones are not expected.
    step: i32,
    seen: i32,
}

/// What is expected.
pub(super) struct Predictor {
    followers: Box<[u64; FOLLOWERS]>,
    slots: Box<[Slot; SLOTS + MOST]>,
    /// The differences' bytes, while a chunk is packed.
    bytes: Vec<u8>,
}

impl Default for Predictor {
    fn default() -> Predictor {
        let slots = Box::new([Slot::default(); SLOTS + MOST]);
        Predictor { followers: Box::new([0; FOLLOWERS]), slots, bytes: Vec::new() }
    }
}

#[inline(always)]
fn hash(word: u32) -> u32 {
    word.wrapping_mul(0x9e37_79b1)
}

impl Predictor {
    /// Goes through the `n` words of a chunk. `word` is told the next one's index and what is expected, and says what it is; `first` is told the first word of
    /// each record, and what is known of it if it is a block.
    #[inline(always)]
    fn walk(
        &mut self,
        table: &Table,
        n: usize,
        mut word: impl FnMut(usize, u64) -> u64,
        mut first: impl FnMut(u64, Option<Head>),
    ) {
        self.followers.fill(0);
        self.slots.fill(Slot::default());
        let heads = table.heads();
        let mut history = 0u32;
        let mut at = 0;
        while at < n {
            let follower = &mut self.followers[history as usize % FOLLOWERS];
            let head = word(at, *follower);
            *follower = head;
            at += 1;
            let id = head as u32;
            let (known, length, most, key) = match id {
                0 => (None, (head >> 40) as usize, PERIOD, hash((head >> 32) as u32 & 0xff)),
                _ => {
                    // A block that cannot be read has no slots, here and there.
                    let known = heads.get(id).or_else(|| table.head(id).ok());
                    (known, known.map_or(0, |h| h.slot_words()), MOST, hash(id))
                }
            };
            first(head, known);
            // Of each record four bits, of the last one more.
            history = history << 4 ^ key >> 20;
            let from = (key >> 16) as usize % SLOTS;
            let end = at + length.min(n - at);
            while at < end {
                let run = most.min(end - at);
                for slot in &mut self.slots[from..from + run] {
                    let expected = slot.last.wrapping_add_signed(slot.step.into());
                    let word = word(at, expected);
                    if word == expected {
                        slot.seen = slot.step;
                    } else {
                        let d = word.wrapping_sub(slot.last) as i32;
                        if d == slot.seen {
                            slot.step = d;
                        }
                        slot.seen = d;
                    }
                    slot.last = word;
                    at += 1;
                }
            }
        }
    }

    /// Appends the differences of `words` to `out`. `first` as in [`Predictor::walk`].
    pub(super) fn pack(
        &mut self,
        table: &Table,
        words: Words<'_>,
        out: &mut Vec<u8>,
        first: impl FnMut(u64, Option<Head>),
    ) {
        let n = words.len();
        out.extend_from_slice(&(n as u32).to_le_bytes());
        let from = out.len();
        out.resize(from + n, 0);
        let lengths = &mut out[from..];
        // With room for whole words behind `used`.
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.len() < (n + 1) * 8 {
            bytes.resize((n + 1) * 8, 0);
        }
        let mut used = 0;
        let word = |at: usize, expected: u64| {
            let word = words.get(at).unwrap_or(0);
            if word != expected {
                let d = word.wrapping_sub(expected) as i64;
                let zigzag = (d << 1 ^ d >> 63) as u64;
                let length = (71 - zigzag.leading_zeros()) / 8;
                if let (Some(to), Some(told)) = (bytes.get_mut(used..used + 8), lengths.get_mut(at)) {
                    to.copy_from_slice(&zigzag.to_le_bytes());
                    *told = length as u8;
                }
                used += length as usize;
            }
            word
        };
        self.walk(table, n, word, first);
        out.extend_from_slice(&bytes[..used]);
        self.bytes = bytes;
    }

    /// The words of what [`Predictor::pack`] appended, or what is wrong with it.
    pub(super) fn unpack(&mut self, table: &Table, packed: &[u8]) -> Result<Arc<[AtomicU64]>, &'static str> {
        let (n, rest) = packed.split_first_chunk::<4>().ok_or("a chunk is shorter than its header")?;
        let n = u32::from_le_bytes(*n) as usize;
        let (lengths, bytes) = rest.split_at_checked(n).ok_or("a chunk has fewer words than it says")?;
        // Where the chunk stays.
        let words: Arc<[AtomicU64]> = (0..n).map(|_| AtomicU64::default()).collect();
        let (mut used, mut wrong) = (0, false);
        let word = |at: usize, expected: u64| {
            let length = lengths.get(at).map_or(0, |l: &u8| usize::from(*l));
            let mut word = expected;
            if length > 0 {
                // Eight bytes at once where there are so many, of which the rest is not its own.
                let rest = bytes.get(used..).unwrap_or(&[]);
                let mut zigzag = 0;
                match rest.first_chunk::<8>() {
                    Some(eight) if length <= 8 => zigzag = u64::from_le_bytes(*eight) & u64::MAX >> (64 - 8 * length),
                    _ if length <= rest.len().min(8) => {
                        let mut eight = [0; 8];
                        eight[..length].copy_from_slice(&rest[..length]);
                        zigzag = u64::from_le_bytes(eight);
                    }
                    _ => wrong = true,
                }
                used += length;
                word = expected.wrapping_add_signed((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
            }
            if let Some(to) = words.get(at) {
                to.store(word, Ordering::Relaxed);
            }
            word
        };
        self.walk(table, n, word, |_, _| {});
        match wrong || used != bytes.len() {
            false => Ok(words),
            true => Err("a chunk's differences do not fit its words"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ChunkBuilder, TableBuilder, insn, load, store};
    use proptest::prelude::*;

    fn table() -> (Arc<Table>, u32, u32) {
        let mut table = TableBuilder::new("x86_64", 8, false);
        let a = table.block(0x1000, &[insn(&[0x8b, 7], &[load(4)]), insn(&[0x89, 6], &[store(4)])]);
        let b = table.block(0x2000, &[insn(&[0x90], &[])]);
        (table.finish(), a, b)
    }

    fn packed(table: &Table, words: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        let words: Vec<AtomicU64> = words.iter().copied().map(AtomicU64::new).collect();
        Predictor::default().pack(table, Words::new(&words), &mut out, |_, _| {});
        out
    }

    fn unpacked(predictor: &mut Predictor, table: &Table, packed: &[u8]) -> Result<Vec<u64>, &'static str> {
        Ok(Words::new(&predictor.unpack(table, packed)?).iter().collect())
    }

    /// By hand: nothing is expected at first, then the word itself, then it and what it moves by.
    #[test]
    fn a_loop_is_what_was_expected() {
        let (table, a, _) = table();
        let mut chunk = ChunkBuilder::new();
        for i in 0..8 {
            chunk = chunk.block(a, &[0x1000 + 8 * i, 0x20]);
        }
        let words = chunk.words();
        let out = packed(&table, &words);
        assert_eq!(out[..4], 24u32.to_le_bytes());
        // The block: new after each history of up to three blocks, then known. The first slot: far, by 8, by 8 again, known.
        let id = if a < 0x80 { 1 } else { 2 };
        let mut lengths = Vec::new();
        for i in 0..8 {
            lengths.extend([if i < 4 { id } else { 0 }, [2, 1, 1][i.min(2)] * u8::from(i < 3), u8::from(i == 0)]);
        }
        assert_eq!(out[4..28], lengths);
        // Zigzag: the id, 0x1000, 0x20, doubled.
        let mut differences = (u64::from(a) * 2).to_le_bytes()[..id as usize].to_vec();
        differences.extend([0, 0x20, 0x40]);
        assert_eq!(out[28..28 + differences.len()], differences);
        assert_eq!(unpacked(&mut Predictor::default(), &table, &out).unwrap(), words);
    }

    #[test]
    fn accesses_of_helpers_are_expected() {
        let (table, a, _) = table();
        // A repeat loop: info and address of a load and of a store in turn.
        let accesses: Vec<u64> =
            (0..500).flat_map(|i| [1, 0x7fff_0000_0000 + i, 1 | 1 << 32, 0x5555_0000_0000 + i]).collect();
        let words = ChunkBuilder::new().block(a, &[1, 2]).access(a, 1, &accesses).words();
        let out = packed(&table, &words);
        assert!(out.len() < words.len() + 200, "{} bytes for {} words", out.len(), words.len());
        assert_eq!(unpacked(&mut Predictor::default(), &table, &out).unwrap(), words);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (table, a, _) = table();
        let out = packed(&table, &ChunkBuilder::new().block(a, &[u64::MAX, 7]).block(a, &[5, 1 << 62]).words());
        let mut predictor = Predictor::default();
        assert!(predictor.unpack(&table, &out).is_ok());
        for n in 0..out.len() {
            assert!(predictor.unpack(&table, &out[..n]).is_err(), "{n} bytes");
        }
        let mut longer = out.clone();
        longer.push(0);
        assert!(predictor.unpack(&table, &longer).is_err());
        let mut nine = out;
        nine[4] = 9;
        assert!(predictor.unpack(&table, &nine).is_err());
    }

    proptest! {
        /// Whatever the words are, they come back.
        #[test]
        fn words_come_back(choices in prop::collection::vec((0u8..6, any::<u64>()), 0..400)) {
            let (table, a, b) = table();
            let words: Vec<u64> = choices
                .iter()
                .map(|(kind, any)| match kind {
                    0 => u64::from(a),
                    1 => u64::from(b),
                    2 => 1 << 32 | (any % 40) << 40,
                    3 => any % 1000,
                    4 => 0,
                    _ => *any,
                })
                .collect();
            let mut predictor = Predictor::default();
            for words in [&words[..], &words[words.len() / 2..]] {
                let mut out = vec![7];
                let shared: Vec<AtomicU64> = words.iter().copied().map(AtomicU64::new).collect();
                predictor.pack(&table, Words::new(&shared), &mut out, |_, _| {});
                prop_assert_eq!(&unpacked(&mut predictor, &table, &out[1..]).unwrap()[..], words);
            }
        }

        #[test]
        fn any_bytes_are_words_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (table, _, _) = table();
            let mut predictor = Predictor::default();
            if let Ok(words) = predictor.unpack(&table, &bytes) {
                prop_assert_eq!(words.len() as u32, u32::from_le_bytes(bytes[..4].try_into().unwrap()));
            }
        }
    }
}
