//! One execution of a block: which instructions retired, which accesses they made.
//!
//! Rules:
//! * Nothing is guessed: what a block's word says (retired instructions, valid slot words, why it was left) decides.
//! * Static accesses stand in the block's slots, those of helpers in the records after it; both come out in program order.
//! * An instruction that QEMU takes up again (a repeat loop, a block that crosses a chunk's end) has accesses in several parts; it retires in the last one.

use crate::layout::{FLAG_ABORTED, FLAG_PARTIAL, FLAG_REEXEC, FLAG_SPLIT, info, kind, physical};
use crate::{Event, Sums};
use pipe::record::Words;
use pipe::table::{AccessInfo, BlockInfo, Head, InsnInfo, Table, extra_words, value_words};
use std::fmt;

/// How an execution of a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All instructions retired.
    Complete,
    /// The instruction after the retired ones faulted, and the guest saw it.
    Aborted,
    /// The instruction after the retired ones is executed again by QEMU.
    Reexec,
    /// The block goes on in the next chunk.
    Split,
    /// The block was left between two instructions.
    Left,
}

/// How an execution of an instruction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It retired.
    Retired,
    /// It faulted, and the guest saw it.
    Aborted,
    /// It made accesses and goes on later: only its accesses count here.
    Continued,
}

/// One execution of a block, or the part of it that lies in one chunk.
#[derive(Clone, Copy)]
pub struct BlockExec<'a> {
    word: u64,
    head: Head,
    table: &'a Table,
    /// The slot words.
    slots: Words<'a>,
    /// Instructions and slot words that a former part had already.
    pub(crate) start: u16,
    pub(crate) start_words: u16,
    /// A former part, in the chunk before, began this execution.
    pub(crate) resumed: bool,
    /// Instructions that retired, counted from the block's first; slot words that are valid.
    pub(crate) retired_end: u16,
    pub(crate) valid_words: u16,
    /// `ACCESS`, `ONCE`, `REGS` and `USER` records of this execution.
    pub(crate) own_records: Words<'a>,
}

impl fmt::Debug for BlockExec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockExec")
            .field("id", &self.id())
            .field("start", &self.start())
            .field("retired_end", &self.retired_end)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<'a> BlockExec<'a> {
    /// A block that ran to its end, without records of its own.
    #[inline]
    pub(crate) fn plain(word: u64, head: Head, table: &'a Table, slots: Words<'a>) -> Self {
        BlockExec {
            word,
            head,
            table,
            slots,
            start: 0,
            start_words: 0,
            resumed: false,
            retired_end: head.n_insns() as u16,
            valid_words: head.slot_words() as u16,
            own_records: Words::new(&[]),
        }
    }

    /// The block's id.
    #[inline]
    pub fn id(&self) -> u32 {
        self.word as u32
    }
    /// The block's dense number in its table.
    #[inline]
    pub fn number(&self) -> u32 {
        self.head.number()
    }
    /// What the block is.
    #[inline]
    pub fn info(&self) -> &'a BlockInfo {
        // A head is stored only after its block (see `pipe::table`).
        self.table.known(self.id()).expect("a block with a head is in its table")
    }
    /// Index of the first instruction of this part: not 0 if the block goes on from the chunk before.
    #[inline]
    pub fn start(&self) -> usize {
        usize::from(self.start)
    }
    /// Number of instructions that retired in this part, traced or not.
    #[inline]
    pub fn retired(&self) -> usize {
        usize::from(self.retired_end - self.start)
    }
    /// All of the block ran in one part, and all its accesses are in its slots: [`BlockInfo::totals`] says it all but for optional ones.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.word >> 32 == 0 && !self.resumed && self.own_records.is_empty()
    }
    /// Some of its accesses are optional.
    #[inline]
    pub fn has_optional(&self) -> bool {
        self.head.has_optional()
    }
    /// Whether this part ends where a former one has left off.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }
    /// The last instruction of the block retired.
    #[inline]
    pub fn ran_to_end(&self) -> bool {
        usize::from(self.retired_end) == self.head.n_insns()
    }
    /// How it ended.
    pub fn state(&self) -> State {
        let has = |flag| self.word & flag != 0;
        if !has(FLAG_PARTIAL) {
            State::Complete
        } else if has(FLAG_ABORTED) {
            State::Aborted
        } else if has(FLAG_SPLIT) {
            State::Split
        } else if has(FLAG_REEXEC) {
            State::Reexec
        } else if self.ran_to_end() {
            State::Complete
        } else {
            State::Left
        }
    }
    /// The raw slot words, valid or not.
    pub fn slots(&self) -> Words<'a> {
        self.slots
    }
    /// Its instructions, traced or not, in order.
    #[inline(always)]
    pub fn insns(&self) -> Insns<'_> {
        Insns { exec: self, info: self.info(), next: self.start(), at: 0 }
    }
    /// All its accesses, in order.
    #[inline(always)]
    pub fn accesses(&self) -> BlockAccesses<'_> {
        match self.is_plain() {
            true => BlockAccesses { plain: self.plain_accesses(), general: None },
            false => BlockAccesses {
                plain: PlainAccesses { statics: [].iter(), slots: self.slots },
                general: Some(self.general()),
            },
        }
    }
    /// All accesses of a block that [`BlockExec::is_plain`], as [`crate::Items::next_plain`] hands them out: nothing but its slots
    /// need be looked at. Of other blocks it gives what their slots happen to hold.
    #[inline(always)]
    pub fn plain_accesses(&self) -> PlainAccesses<'a> {
        PlainAccesses { statics: self.info().accesses.iter(), slots: self.slots }
    }

    #[cold]
    #[inline(never)]
    fn general(&self) -> Box<General<'_>> {
        Box::new(self.insns().flat_map(access_of as _))
    }

    /// Registers and events of the analyzer's own that belong to instructions of this part, in order: [`Event::Regs`] and
    /// [`Event::User`].
    pub fn notes(&self) -> impl Iterator<Item = (u16, Event)> + 'a {
        let records = self.own_records;
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let first = records.get(at)?;
                let payload = records.slice(at + 1, (first >> 40) as usize)?;
                at += 1 + payload.len();
                let kind = (first >> 32) as u8;
                if !matches!(kind, kind::REGS | kind::USER) {
                    continue;
                }
                // Parsed once when the block was, so this cannot fail.
                let event = Event::parse(kind, payload).ok()?;
                return Some(((payload.get(0)? >> 16) as u16, event));
            }
        })
    }

    /// What this part adds up to.
    pub fn sums(&self) -> Sums {
        if self.is_plain() && !self.has_optional() {
            return Sums::of(&self.info().totals, 1);
        }
        let mut sums = Sums { blocks: u64::from(self.start == 0 && self.retired_end > 0), ..Sums::default() };
        for insn in self.insns() {
            match insn.status {
                Status::Retired => sums.insns += u64::from(insn.is_traced()),
                Status::Aborted => sums.aborted += u64::from(insn.is_traced()),
                Status::Continued => {}
            }
            for access in insn.info.accesses_in(insn.insn).iter().filter_map(|a| self.static_access(a)) {
                sums.access(access);
            }
        }
        self.helper_sums(&mut sums);
        sums
    }

    /// Adds the accesses of its records. A repeat loop makes thousands of them: only their sizes and directions are looked at.
    fn helper_sums(&self, sums: &mut Sums) {
        let records = self.own_records;
        let mut at = 0;
        while let Some(first) = records.get(at) {
            let end = at + 1 + (first >> 40) as usize;
            // After the record's word and its context.
            at += 2;
            while at < end && (first >> 32) as u8 == kind::ACCESS {
                let Some(bits) = records.get(at) else { break };
                sums.made(bits & info::STORE != 0, u64::from(bits as u32));
                at += 2 + extra_words(bits, bits as u32);
            }
            at = end;
        }
    }

    /// The static access, if it was made in this part.
    #[inline(always)]
    fn static_access(&self, a: &AccessInfo) -> Option<Access> {
        let at = usize::from(a.at);
        let here = at >= usize::from(self.start_words)
            && at + a.words() <= usize::from(self.valid_words)
            && (self.start..=self.retired_end).contains(&a.insn);
        if here { slot_access(self.slots, a) } else { None }
    }
}

fn access_of(insn: InsnExec<'_>) -> Accesses<'_> {
    insn.accesses()
}

type General<'a> = std::iter::FlatMap<Insns<'a>, Accesses<'a>, fn(InsnExec<'a>) -> Accesses<'a>>;

/// Iterates over the accesses of a block that ran to its end.
#[derive(Clone)]
pub struct PlainAccesses<'a> {
    statics: std::slice::Iter<'a, AccessInfo>,
    slots: Words<'a>,
}

impl Iterator for PlainAccesses<'_> {
    type Item = Access;

    #[inline(always)]
    fn next(&mut self) -> Option<Access> {
        loop {
            let s = self.statics.next()?;
            if let Some(access) = slot_access(self.slots, s) {
                return Some(access);
            }
        }
    }
}

/// Iterates over a block's accesses.
pub struct BlockAccesses<'a> {
    plain: PlainAccesses<'a>,
    /// Of a block that is not plain: by instruction.
    general: Option<Box<General<'a>>>,
}

impl Iterator for BlockAccesses<'_> {
    type Item = Access;

    #[inline(always)]
    fn next(&mut self) -> Option<Access> {
        match &mut self.general {
            None => self.plain.next(),
            Some(general) => general.next(),
        }
    }
}

/// The access in its slot words, if it was made.
#[inline(always)]
fn slot_access(slots: Words<'_>, a: &AccessInfo) -> Option<Access> {
    let mut at = usize::from(a.at);
    if a.is_optional() {
        if slots.get(at)? & 1 == 0 {
            return None;
        }
        at += 1;
    }
    let (bits, size) = (u64::from(a.flags) << 32, u32::from(a.size));
    Some(Access::new(a.insn, bits, size, slots.get(at)?, |i| slots.get(at + 1 + i).unwrap_or(0)))
}

/// A memory access that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Index of its instruction in the block.
    pub insn: u16,
    /// Guest virtual address.
    pub addr: u64,
    /// Size in bytes.
    pub size: u32,
    /// `info` bits shifted down by 32.
    flags: u16,
    /// The value read or written, if it was asked for: a number below 2^(8*size).
    pub value: Option<u128>,
    physical: [u64; 2],
}

/// Where in the machine an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Physical {
    /// Guest physical address.
    pub addr: u64,
    /// What is there.
    pub kind: PhysicalKind,
}

/// What is at a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PhysicalKind {
    /// Memory.
    Ram,
    /// Memory that cannot be written like memory.
    Rom,
    /// A device.
    Io,
}

impl Physical {
    fn of(word: u64) -> Option<Physical> {
        let kind = match word >> physical::SHIFT {
            physical::RAM => PhysicalKind::Ram,
            physical::ROM => PhysicalKind::Rom,
            physical::IO => PhysicalKind::Io,
            _ => return None,
        };
        Some(Physical { addr: word & ((1 << physical::SHIFT) - 1), kind })
    }
}

impl Access {
    #[inline(always)]
    fn new(insn: u16, bits: u64, size: u32, addr: u64, word: impl Fn(usize) -> u64) -> Access {
        let value = (bits & info::VALUE != 0).then(|| {
            let low = u128::from(word(0));
            let whole = if size > 8 { low | u128::from(word(1)) << 64 } else { low };
            if size < 16 { whole & ((1 << (8 * size)) - 1) } else { whole }
        });
        let physical = match bits & info::PADDR {
            0 => [0; 2],
            _ => {
                let at = value_words(bits, size);
                [word(at), word(at + 1)]
            }
        };
        Access { insn, addr, size, flags: (bits >> 32) as u16, value, physical }
    }
    /// Where its first byte is, if it was asked for and QEMU knew.
    pub fn physical(self) -> Option<Physical> {
        Physical::of(self.physical[0])
    }
    /// Where the first byte of the next page is, if the access reaches it.
    pub fn physical_next(self) -> Option<Physical> {
        Physical::of(self.physical[1])
    }
    fn has(self, bit: u64) -> bool {
        u64::from(self.flags) << 32 & bit != 0
    }
    /// A store; otherwise a load.
    pub fn is_store(self) -> bool {
        self.has(info::STORE)
    }
    /// The loaded value is sign-extended.
    pub fn is_signed(self) -> bool {
        self.has(info::SIGNED)
    }
    /// It is big-endian.
    pub fn is_big_endian(self) -> bool {
        self.has(info::BIG_ENDIAN)
    }
    /// It is part of an atomic read-modify-write.
    pub fn is_atomic(self) -> bool {
        self.has(info::ATOMIC)
    }
    /// QEMU only knows the bytes touched together.
    pub fn is_footprint(self) -> bool {
        self.has(info::FOOTPRINT)
    }
}

/// One execution of an instruction, or the part of it that lies in one part of its block.
#[derive(Clone, Copy)]
pub struct InsnExec<'a> {
    exec: &'a BlockExec<'a>,
    info: &'a BlockInfo,
    insn: &'a InsnInfo,
    index: usize,
    /// How it ended.
    pub status: Status,
    once: bool,
    /// From its first own record on.
    records: Words<'a>,
}

impl<'a> InsnExec<'a> {
    /// The block it belongs to.
    pub fn block(&self) -> &'a BlockInfo {
        self.info
    }
    /// Its index in the block.
    pub fn index(&self) -> usize {
        self.index
    }
    /// Guest virtual address.
    pub fn pc(&self) -> u64 {
        self.insn.pc
    }
    /// Its bytes in memory order.
    pub fn bytes(&self) -> &'a [u8] {
        self.info.bytes(self.index)
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        usize::from(self.insn.len)
    }
    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Its fetch is an event: the analyzer asked for each, or for the first, and this is it.
    pub fn is_traced(&self) -> bool {
        self.once || self.insn.is_traced()
    }
    /// An earlier part of this very execution lies in the chunk before.
    pub fn is_resumed(&self) -> bool {
        self.index == self.exec.start() && self.exec.is_resumed()
    }
    /// It has accesses in helpers here.
    pub fn has_helper_accesses(&self) -> bool {
        !self.records.is_empty()
    }
    /// The accesses that completed in this part, in program order.
    #[inline(always)]
    pub fn accesses(&self) -> Accesses<'a> {
        Accesses {
            exec: self.exec,
            statics: self.info.accesses_in(self.insn),
            next_static: 0,
            insn: self.index as u16,
            records: self.records,
            at: 0,
            record_end: 0,
        }
    }
}

/// Iterates over a block's instructions.
#[derive(Clone, Copy)]
pub struct Insns<'a> {
    exec: &'a BlockExec<'a>,
    info: &'a BlockInfo,
    next: usize,
    /// Word in `own_records` where the next instruction's may start.
    at: usize,
}

impl<'a> Insns<'a> {
    #[inline(always)]
    fn insn(&self, index: usize) -> Option<InsnExec<'a>> {
        Some(InsnExec {
            exec: self.exec,
            info: self.info,
            insn: self.info.insns.get(index)?,
            index,
            status: Status::Retired,
            once: false,
            records: Words::new(&[]),
        })
    }

    /// An instruction that may have records of its own, or that did not retire. On a copy, as in `Items`.
    #[inline(never)]
    fn special(mut self, index: usize) -> (Self, Option<InsnExec<'a>>) {
        let Some(mut insn) = self.insn(index) else {
            return (self, None);
        };
        let own = self.exec.own_records;
        let mut first_access = None;
        while let (Some(first), Some(context)) = (own.get(self.at), own.get(self.at + 1)) {
            if (context >> 16 & 0xffff) as usize != index {
                break;
            }
            if (first >> 32) as u8 == kind::ONCE {
                insn.once = true;
            } else if first_access.is_none() {
                first_access = Some(self.at);
            }
            self.at += 1 + (first >> 40) as usize;
        }
        if let Some(first) = first_access {
            let end = self.at.min(own.len());
            insn.records = own.slice(first, end.saturating_sub(first)).unwrap_or(Words::new(&[]));
        }
        if index == usize::from(self.exec.retired_end) {
            insn.status = match self.exec.state() {
                State::Aborted => Status::Aborted,
                _ => Status::Continued,
            };
            if insn.status == Status::Continued && insn.accesses().next().is_none() {
                return (self, None);
            }
        }
        (self, Some(insn))
    }
}

impl<'a> Iterator for Insns<'a> {
    type Item = InsnExec<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<InsnExec<'a>> {
        let index = self.next;
        let retired_end = usize::from(self.exec.retired_end);
        if index > retired_end {
            return None;
        }
        self.next = index + 1;
        if index < retired_end && self.exec.own_records.is_empty() {
            return self.insn(index);
        }
        if index >= self.info.insns.len() {
            return None;
        }
        let (after, insn) = self.special(index);
        *self = after;
        insn
    }
}

/// Iterates over an instruction's accesses.
#[derive(Clone, Copy)]
pub struct Accesses<'a> {
    exec: &'a BlockExec<'a>,
    statics: &'a [AccessInfo],
    next_static: usize,
    insn: u16,
    /// Its `ACCESS` records, from the first one on.
    records: Words<'a>,
    /// Where the next helper's access stands, and where its record ends.
    at: usize,
    record_end: usize,
}

impl Accesses<'_> {
    /// The info word of the next access made in a helper.
    #[inline(always)]
    fn next_helper(&mut self) -> Option<u64> {
        while self.at >= self.record_end {
            let first = self.records.get(self.record_end)?;
            let end = self.record_end + 1 + (first >> 40) as usize;
            // After the record's word and its context.
            self.at = if (first >> 32) as u8 == kind::ACCESS { self.record_end + 2 } else { end };
            self.record_end = end;
        }
        self.records.get(self.at)
    }
}

impl Iterator for Accesses<'_> {
    type Item = Access;

    #[inline(always)]
    fn next(&mut self) -> Option<Access> {
        if self.records.is_empty() {
            while let Some(s) = self.statics.get(self.next_static) {
                self.next_static += 1;
                if let Some(access) = self.exec.static_access(s) {
                    return Some(access);
                }
            }
            return None;
        }
        // On a copy, as in `Items`.
        let (after, access) = self.merged();
        *self = after;
        access
    }
}

impl Accesses<'_> {
    /// The next access of an instruction that has some in helpers.
    #[cold]
    #[inline(never)]
    fn merged(mut self) -> (Self, Option<Access>) {
        let access = self.next_merged();
        (self, access)
    }

    fn next_merged(&mut self) -> Option<Access> {
        loop {
            let helper = self.next_helper();
            match (helper, self.statics.get(self.next_static)) {
                (Some(bits), s) if s.is_none() || (bits >> info::ORDER_SHIFT & 0xff) as usize <= self.next_static => {
                    let (at, size) = (self.at, bits as u32);
                    self.at += 2 + extra_words(bits, size);
                    let bits = bits & ((1 << info::ORDER_SHIFT) - 1);
                    return Some(Access::new(self.insn, bits, size, self.records.get(at + 1)?, |i| {
                        self.records.get(at + 2 + i).unwrap_or(0)
                    }));
                }
                (_, Some(s)) => {
                    self.next_static += 1;
                    if let Some(access) = self.exec.static_access(s) {
                        return Some(access);
                    }
                }
                (_, None) => return None,
            }
        }
    }
}
