//! Where records begin and end: the walk that everything else builds on.
//!
//! Rules:
//! * Words are read one by one, each once, as atomics: another process may be writing them. Whoever needs a word twice keeps it.
//! * A record's length follows from its first word and the block table alone, and is at least one word: a walk ends.

use crate::error::{Error, Result};
use crate::layout::kind;
use crate::table::{Head, Table};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a stream, perhaps written by another process at this moment.
#[derive(Clone, Copy)]
pub struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// These words.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Words(words)
    }
    /// Their number.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.len()
    }
    /// There are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
    /// Word `index`.
    #[inline(always)]
    pub fn get(self, index: usize) -> Option<u64> {
        // Relaxed: the chunk's hand-over (see `crate::receiver`) has ordered what matters.
        self.0.get(index).map(|w| w.load(Ordering::Relaxed))
    }
    /// `len` words from word `from`, if there are so many.
    #[inline(always)]
    pub fn slice(self, from: usize, len: usize) -> Option<Words<'a>> {
        self.0.get(from..)?.get(..len).map(Words)
    }
    /// The words.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.0.iter().map(|w| w.load(Ordering::Relaxed))
    }
}

/// A record, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A block: its word and its head.
    Block(u64, Head),
    /// Another: kind and payload length in words.
    Other(u8, usize),
    /// Nothing is written here yet.
    Unwritten,
}

impl Record {
    /// What starts with `word`, which stands at word `at` of its chunk.
    #[inline(always)]
    pub fn parse(word: u64, at: usize, table: &Table) -> Result<Record> {
        let id = word as u32;
        if id != 0 {
            return match table.head(id) {
                Ok(head) => Ok(Record::Block(word, head)),
                Err(e) => Err(Error::record(at, e.to_string())),
            };
        }
        if word == 0 {
            return Ok(Record::Unwritten);
        }
        let kind = (word >> 32) as u8;
        if !(kind::ACCESS..=kind::LAST).contains(&kind) {
            return Err(Error::record(at, format!("its kind is {kind}")));
        }
        Ok(Record::Other(kind, (word >> 40) as usize))
    }

    /// Its length in words, first word included.
    #[inline(always)]
    pub fn len(self) -> usize {
        match self {
            Record::Block(_, head) => 1 + head.slot_words(),
            Record::Other(_, payload) => 1 + payload,
            Record::Unwritten => 0,
        }
    }

    /// Nothing.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self == Record::Unwritten
    }

    /// It tells more of the block before it, and is never parted from it.
    pub fn belongs_to_block(self) -> bool {
        matches!(self, Record::Other(kind::ACCESS | kind::ONCE | kind::REGS | kind::USER, _))
    }
}

/// How far an open chunk may be delivered: the word after the last record that is surely complete.
/// `from`: where to go on; a record starts there. `published`: the words that the writer says are complete.
///
/// The last record may still grow (a block's slots are being filled, accesses are being added to it), so that it waits until
/// another follows it or the writer has published it.
pub fn complete_part(words: Words<'_>, from: usize, published: usize, table: &Table) -> Result<usize> {
    let mut safe = from;
    let mut at = from;
    let mut after_cont = false;
    // An access record: where it starts, and its length when it was looked at.
    let mut growing = None;
    while let Some(word) = words.get(at) {
        if let Some((start, len)) = growing.filter(|_| word != 0) {
            // What stands here may be the next of its accesses: it grows before they are written, so that a second look tells.
            // Acquire; pairs with the Release of the access's first word in `Writer::access`.
            std::sync::atomic::fence(Ordering::Acquire);
            let now = Record::parse(words.get(start).unwrap_or_default(), start, table)?.len();
            if now > len {
                growing = Some((start, now));
                at = start + now;
                if at > words.len() {
                    break;
                }
                continue;
            }
        }
        let record = Record::parse(word, at, table)?;
        if record.is_empty() {
            break;
        }
        if !record.belongs_to_block() && !after_cont {
            safe = at;
        }
        after_cont = matches!(record, Record::Other(kind::CONT, _));
        let end = at + record.len();
        if end > words.len() {
            break;
        }
        growing = matches!(record, Record::Other(kind::ACCESS, _)).then_some((at, record.len()));
        at = end;
        if at == published {
            safe = at;
        }
    }
    Ok(safe)
}
