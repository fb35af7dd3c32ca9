//! A chunk, read record by record.
//!
//! Rules:
//! * The walk ends: each step advances by a record's length, at least one word.
//! * What a record says of itself is checked where it is read; a corrupt record is an error with its offset, and ends the walk.
//! * A block and the access records that follow it are one item.

use crate::error::Error;
use crate::event::Event;
use crate::exec::BlockExec;
use crate::layout::{EXECUTED_MASK, EXECUTED_SHIFT, FLAG_PARTIAL, WORDS_SHIFT, kind};
use pipe::receiver::{Part, StreamInfo};
use pipe::record::{Record, Words};
use pipe::table::{Head, Heads, Table, extra_words};

/// A run of whole records of one stream.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    words: Words<'a>,
    table: &'a Table,
    part: &'a Part,
}

/// What a chunk consists of.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// A block was executed.
    Block(BlockExec<'a>),
    /// Something else happened.
    Event(Event),
}

impl<'a> Chunk<'a> {
    /// The records of `part`.
    pub fn new(part: &'a Part) -> Self {
        Chunk { words: part.words(), table: &part.table, part }
    }
    /// The stream.
    pub fn stream(&self) -> &'a StreamInfo {
        &self.part.stream
    }
    /// The stream's block table.
    pub fn table(&self) -> &'a Table {
        self.table
    }
    /// The same, to be kept.
    pub fn shared_table(&self) -> &'a std::sync::Arc<Table> {
        &self.part.table
    }
    /// Number of the chunk across all streams: an event of a chunk with a lower number, of another stream, may have come first.
    pub fn order(&self) -> u64 {
        self.part.order
    }
    /// The chunk's number in its stream.
    pub fn number(&self) -> u64 {
        self.part.chunk
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }
    /// There is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
    /// The raw words.
    pub fn words(&self) -> Words<'a> {
        self.words
    }
    /// Executed blocks and events, in order.
    pub fn items(&self) -> Items<'a> {
        Items {
            words: self.words,
            table: self.table,
            heads: self.table.heads(),
            at: 0,
            base: self.part.first_word(),
            cont: None,
        }
    }
    /// Executed blocks, in order; events are passed over.
    pub fn blocks(&self) -> Blocks<'a> {
        Blocks(self.items())
    }
}

/// Iterates over a chunk's items.
///
/// Everything but the plain case works on a copy and hands it back: so the iterator itself stays in registers in a
/// consumer's loop, where the position is the longest chain of dependencies.
#[derive(Clone, Copy)]
pub struct Items<'a> {
    words: Words<'a>,
    table: &'a Table,
    heads: Heads<'a>,
    at: usize,
    /// Offset of the first word in the whole chunk.
    base: usize,
    /// A `CONT` record came: instruction and slot words that the block was at.
    cont: Option<(usize, usize)>,
}

impl<'a> Items<'a> {
    /// Words of the chunk that have been read.
    pub fn position(&self) -> usize {
        self.at.min(self.words.len())
    }

    /// Nothing comes after an error.
    fn stop(&mut self) {
        self.at = usize::MAX;
        self.cont = None;
    }

    #[cold]
    fn fail(&mut self, at: usize, what: impl Into<String>) -> Error {
        self.stop();
        pipe::Error::record(self.base + at, what).into()
    }

    /// A block whose word is not plain, or that has records of its own after it: checked with care.
    #[cold]
    #[inline(never)]
    fn special(&mut self, at: usize, word: u64, head: Head, slots: Words<'a>) -> Result<BlockExec<'a>, Error> {
        let mut exec = BlockExec::plain(word, head, self.table, slots);
        if let Some((insn, valid)) = self.cont.take() {
            if insn >= head.n_insns() || valid > head.slot_words() {
                return Err(self.fail(
                    at,
                    format!("the block goes on at instruction {insn}, slot word {valid}, which it does not have"),
                ));
            }
            (exec.start, exec.start_words, exec.resumed) = (insn as u16, valid as u16, true);
        }
        if word & FLAG_PARTIAL != 0 {
            let executed = (word >> EXECUTED_SHIFT & EXECUTED_MASK) as usize;
            let valid = (word >> WORDS_SHIFT) as usize;
            if executed > head.n_insns() || executed < usize::from(exec.start) {
                return Err(self.fail(
                    at,
                    format!("{executed} instructions retired of {}, of which {} before", head.n_insns(), exec.start),
                ));
            }
            if valid > head.slot_words() {
                return Err(self.fail(at, format!("{valid} slot words are valid of {}", head.slot_words())));
            }
            (exec.retired_end, exec.valid_words) = (executed as u16, valid as u16);
        } else if word >> 32 != 0 {
            return Err(self.fail(at, format!("the block word {word:#x} is not partial, but has other bits")));
        }
        // The records that belong to it.
        let from = self.at;
        let mut insn_before = u64::from(exec.start);
        while let Some(first) = self.words.get(self.at) {
            if first as u32 != 0 {
                break;
            }
            let at = self.at;
            let kind = (first >> 32) as u8;
            if !matches!(kind, kind::ACCESS | kind::ONCE | kind::REGS | kind::USER) {
                break;
            }
            let len = (first >> 40) as usize;
            let Some(payload) = self.words.slice(at + 1, len) else {
                return Err(self.fail(at, format!("its {len} payload words reach beyond the chunk")));
            };
            let Some(context) = payload.get(0) else {
                return Err(self.fail(at, "it has no payload"));
            };
            let (id, insn) = ((context >> 32) as u32, context >> 16 & 0xffff);
            if id != word as u32 && kind != kind::ACCESS {
                // Of a block that has no words of its own.
                break;
            }
            if id != word as u32 {
                return Err(self.fail(at, format!("it belongs to block {id}, but follows block {}", word as u32)));
            }
            if insn as usize >= head.n_insns() || insn < insn_before || insn > u64::from(exec.retired_end) {
                return Err(self.fail(
                    at,
                    format!(
                        "it belongs to instruction {insn}, which is not one of {insn_before}..={}",
                        exec.retired_end
                    ),
                ));
            }
            insn_before = insn;
            if kind == kind::ACCESS {
                let mut i = 1;
                while let Some(info) = payload.get(i) {
                    i += 2 + extra_words(info, info as u32);
                }
                if i != payload.len() {
                    return Err(self.fail(at + i.min(payload.len()), "an access is cut off"));
                }
            } else if let Err(what) = Event::parse(kind, payload) {
                return Err(self.fail(at, what));
            }
            self.at += 1 + len;
        }
        exec.own_records = self.words.slice(from, self.at - from).unwrap_or(Words::new(&[]));
        Ok(exec)
    }

    /// A record that is no block.
    #[inline(never)]
    fn other(&mut self, at: usize, kind: u8, len: usize) -> Result<Option<Item<'a>>, Error> {
        let Some(payload) = self.words.slice(at + 1, len) else {
            return Err(self.fail(at, format!("its {len} payload words reach beyond the chunk")));
        };
        if self.cont.is_some() {
            return Err(self.fail(at, "a block should go on here"));
        }
        self.at = at + 1 + len;
        if kind == kind::CONT {
            let Some(word) = payload.get(0) else {
                return Err(self.fail(at, "it has no payload"));
            };
            self.cont = Some(((word & 0xffff) as usize, (word >> 16 & 0xffff) as usize));
            return Ok(None);
        }
        match Event::parse(kind, payload) {
            Ok(event) => Ok(Some(Item::Event(event))),
            Err(what) => Err(self.fail(at, what)),
        }
    }

    /// The next item, whatever it is.
    #[cold]
    #[inline(never)]
    fn step(mut self) -> (Self, Option<Result<Item<'a>, Error>>) {
        let item = self.any_here();
        (self, item)
    }

    fn any_here(&mut self) -> Option<Result<Item<'a>, Error>> {
        loop {
            let at = self.at;
            let Some(word) = self.words.get(at) else {
                if self.cont.take().is_some() {
                    return Some(Err(self.fail(at, "the chunk ends where a block should go on")));
                }
                return None;
            };
            match Record::parse(word, self.base + at, self.table) {
                Ok(Record::Block(word, head)) => {
                    let Some(slots) = self.words.slice(at + 1, head.slot_words()) else {
                        return Some(Err(self.fail(at, "the block's slots reach beyond the chunk")));
                    };
                    self.at = at + 1 + head.slot_words();
                    return Some(self.special(at, word, head, slots).map(Item::Block));
                }
                Ok(Record::Other(kind, len)) => match self.other(at, kind, len) {
                    Ok(Some(item)) => return Some(Ok(item)),
                    Ok(None) => {}
                    Err(e) => return Some(Err(e)),
                },
                Ok(Record::Unwritten) => return Some(Err(self.fail(at, "it is not written"))),
                Err(e) => {
                    self.stop();
                    return Some(Err(e.into()));
                }
            }
        }
    }

    /// The words, and where the next record stands, if no block goes on there: for walks that look at blocks' words alone.
    #[inline(always)]
    pub(crate) fn between_blocks(&self) -> Option<(Words<'a>, usize)> {
        self.cont.is_none().then_some((self.words, self.at))
    }

    /// Such a walk ends before word `at`, where a record stands.
    #[inline(always)]
    pub(crate) fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// The next item if it is a known block that ran to its end and has no records of its own, and something
    /// follows it: the case that must be fast. `None` says nothing about what is next.
    #[inline(always)]
    pub fn next_plain(&mut self) -> Option<BlockExec<'a>> {
        let word = self.words.get(self.at)?;
        // A word whose upper half is not 0 is no plain block; 0 is not a known one.
        let head = self.heads.plain(word)?;
        let next = self.at + 1 + head.slot_words_predicted();
        if self.words.get(next)? as u32 == 0 || self.cont.is_some() {
            return None;
        }
        let slots = self.words.slice(self.at + 1, head.slot_words())?;
        self.at = next;
        Some(BlockExec::plain(word, head, self.table, slots))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Error>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.next_plain() {
            Some(block) => Some(Ok(Item::Block(block))),
            None => {
                let (after, item) = self.step();
                *self = after;
                item
            }
        }
    }
}

/// Iterates over a chunk's executed blocks.
#[derive(Clone, Copy)]
pub struct Blocks<'a>(Items<'a>);

impl<'a> Blocks<'a> {
    #[cold]
    #[inline(never)]
    fn step(mut self) -> (Self, Option<Result<BlockExec<'a>, Error>>) {
        loop {
            let block = match self.0.any_here() {
                Some(Ok(Item::Event(_))) => continue,
                Some(Ok(Item::Block(block))) => Some(Ok(block)),
                Some(Err(e)) => Some(Err(e)),
                None => None,
            };
            return (self, block);
        }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<BlockExec<'a>, Error>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.0.next_plain() {
            Some(block) => Some(Ok(block)),
            None => {
                let (after, block) = self.step();
                *self = after;
                block
            }
        }
    }
}
