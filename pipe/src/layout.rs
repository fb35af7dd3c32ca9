//! Every byte of the stream, of a stream's shared memory and of the block table.
//!
//! This is the one place where the format is defined; the JIT-emitted code (through
//! `instrument/include/trapline.h`), the producer, the consumer and the recording refer to it.
//! `docs/src/format.md` walks through it in hex.
//!
//! # The stream
//!
//! A stream is a sequence of 8-byte words in host byte order, cut into chunks. A chunk starts at a
//! record. A record is one of:
//!
//! ```text
//! block : id:32 | executed:12 | flags:4 | words:16     bit 0 is the id's lowest bit; then `slot_words` slot words
//! other : 0:32  | kind:8 | length:24                   then `length` payload words
//! 0     : nothing written here yet (chunks are zeroed before use)
//! ```
//!
//! * A block whose upper half is 0 ran to its end: all its instructions retired, all its slots are filled.
//! * A block with [`FLAG_PARTIAL`] was left in the middle: `executed` instructions retired and the slot words up to
//!   word `words` (counted from the first slot) are valid; of the instruction after them, the completed accesses.
//!   [`FLAG_ABORTED`]: the guest saw that instruction fault. [`FLAG_REEXEC`]: only QEMU knows, it
//!   comes again. [`FLAG_SPLIT`]: the chunk was full in the middle of the block; the next
//!   chunk starts with a [`kind::CONT`] record and the same block again.
//! * The slot words that follow a block word are always `slot_words` of the block's table entry, filled or not, so
//!   that a record's length is known from its first word and the block table alone.
//! * Why records cannot be confused: ids start at 512 (the table's header page is 4096 bytes and an id is a
//!   byte offset divided by 8), so a record word whose lower half is 0 is never a block.

use crate::sync::atomic::{AtomicU32, AtomicU64};

/// Version of everything in this file and of the messages in [`crate::wire`]. Bump on every change of layout or meaning:
/// the two ends refuse each other with both versions named.
pub const VERSION: u32 = 2;

/// A block word's `executed` field: bits 32..44.
pub const EXECUTED_SHIFT: u32 = 32;
/// Mask of `executed` after shifting (QEMU translates at most 512 instructions into a block).
pub const EXECUTED_MASK: u64 = 0xfff;
/// A block word's `words` field: bits 48..64.
pub const WORDS_SHIFT: u32 = 48;
/// The block was left in the middle; `executed` and `words` are valid.
pub const FLAG_PARTIAL: u64 = 1 << 44;
/// The instruction after the retired ones faulted, and the guest saw it.
pub const FLAG_ABORTED: u64 = 1 << 45;
/// The instruction after the retired ones is executed again by QEMU: neither retired nor aborted here.
pub const FLAG_REEXEC: u64 = 1 << 46;
/// The block goes on in the next chunk after a [`kind::CONT`] record.
pub const FLAG_SPLIT: u64 = 1 << 47;

/// Added to the number of a set in [`kind::REGS`]: the registers are those after the instruction.
pub const REGS_AFTER: u64 = 1 << 32;

/// Kinds of `other` records.
pub mod kind {
    /// Accesses made inside helpers or in loops of one instruction: payload word 0 is the context
    /// (`0:16 | insn:16 | block:32` from the lowest bit up), then per access `info`, `addr` and, where `info` says so, one or two value words
    /// and two words of physical addresses.
    pub const ACCESS: u8 = 1;
    /// Follows in the next chunk on a split block: payload `insn:16 | slot words already valid:16` from the lowest bit up, then the block word again.
    pub const CONT: u8 = 2;
    /// First record of a stream: pid, tid, parent's pid or 0, stream id of the creating thread or 0, wall clock in ns.
    pub const START: u8 = 3;
    /// Last record of a stream: reason (`end::*`), code.
    pub const END: u8 = 4;
    /// The process made another: child's pid.
    pub const FORK: u8 = 5;
    /// The process replaces its image: path bytes (length word, then bytes padded with 0).
    pub const EXEC: u8 = 6;
    /// A system call begins: pc of its instruction (where the guest goes on, if the instruction is not traced), number, eight arguments, then its
    /// name (length word, bytes), empty if it has none.
    pub const SYSCALL: u8 = 7;
    /// A system call returned: number, result (sign-extended).
    pub const SYSCALL_RET: u8 = 8;
    /// A mapping: address, length, prot, flags, file offset, then the file's path (length word, bytes), empty if anonymous.
    pub const MMAP: u8 = 9;
    /// An unmapping: address, length.
    pub const MUNMAP: u8 = 10;
    /// A change of protection: address, length, prot.
    pub const MPROTECT: u8 = 11;
    /// A signal is delivered to a handler: number, interrupted pc, handler's pc.
    pub const SIGNAL: u8 = 12;
    /// The image is loaded: entry pc, load bias, address of the program break, then the file's path.
    pub const IMAGE: u8 = 13;
    /// Instructions with a `once` point were reached the first time since their translation:
    /// `count:16 | insn:16 | block:32` from the lowest bit up.
    pub const ONCE: u8 = 14;
    /// Registers before an instruction: `insn << 16 | block << 32`, number of the set ([`super::REGS_AFTER`] if they are those after it), then the
    /// registers' values, each in as many words as it needs, the low one first.
    pub const REGS: u8 = 15;
    /// What a set of registers holds: its number, then a text `name:bytes,name:bytes,…` (length word, bytes).
    pub const REGSET: u8 = 16;
    /// An event of the analyzer's own: `insn << 16 | block << 32` of the instruction that it belongs to or 0, its id, then bytes (length word, bytes).
    pub const USER: u8 = 17;
    /// Full system. An exception is delivered: its number as the ISA has it (else QEMU's; all bits set if unknown), pc where the guest would
    /// have gone on, pc of the handler.
    pub const EXCEPTION: u8 = 18;
    /// Full system. An interrupt is delivered: as [`EXCEPTION`].
    pub const INTERRUPT: u8 = 19;
    /// Full system. The address space is another from the next instruction on: physical address of the page tables' root, the address
    /// space's number (PCID, ASID).
    pub const CONTEXT: u8 = 20;
    /// Full system. The pc was set from outside: 1 if by a reset, pc before, pc now.
    pub const MOVED: u8 = 21;
    /// Full system. The vCPU waits for an interrupt: pc where it will go on.
    pub const HALT: u8 = 22;
    /// Full system. It waits no more: pc.
    pub const RESUME: u8 = 23;
    /// User mode, in a system call or after a signal: the kernel read guest memory: address, length, 1 if it is not known what it touched from
    /// there on (length 0).
    pub const KERNEL_READ: u8 = 24;
    /// The kernel wrote guest memory: as [`KERNEL_READ`].
    pub const KERNEL_WRITE: u8 = 25;

    // What the guest does through the backdoor. The first word is the pc of the call, or where the vCPU goes on if it is another's; texts
    // and bytes are a length word, then the bytes padded with 0. 26..=31 are free.

    /// Tracing starts: scope, depth now. The instruction after it is the first.
    pub const TRACE_START: u8 = 32;
    /// Tracing stops: scope, depth now, 0. The instruction before it was the last.
    pub const TRACE_STOP: u8 = 33;
    /// A region of interest begins: id, name.
    pub const ROI_BEGIN: u8 = 34;
    /// It ends: id, name.
    pub const ROI_END: u8 = 35;
    /// A named event: id, four values, the id's name.
    pub const GUEST_EVENT: u8 = 36;
    /// An event's name gets its number: id, name.
    pub const DEFINE: u8 = 37;
    /// A marker: value, name.
    pub const MARK: u8 = 38;
    /// A line of text: level, 1 if more of it follows, text.
    pub const LOG: u8 = 39;
    /// Bytes: channel, 1 if more of them follow, bytes.
    pub const SEND: u8 = 40;
    /// The thread's name: name.
    pub const THREAD_NAME: u8 = 41;
    /// Consumers are asked: 0 to report, 1 to forget; label.
    pub const STATS: u8 = 42;
    /// A symbol that no file knows: address, size in bytes, name.
    pub const SYMBOL: u8 = 43;
    /// A call that is the analyzer's own: operation, six arguments, result.
    pub const CALL: u8 = 44;
    /// The highest of them.
    pub const LAST: u8 = CALL;
}

/// Reasons of an [`kind::END`] record.
pub mod end {
    /// The thread left (code: its exit code).
    pub const THREAD: u64 = 0;
    /// The process left through exit or exit_group (code: the exit code).
    pub const EXIT: u64 = 1;
    /// The process is killed by a signal (code: the signal's number).
    pub const SIGNAL: u64 = 2;
    /// The process replaced its image.
    pub const EXEC: u64 = 3;
}

/// Bits of an access's `info` word in [`kind::ACCESS`] records; the lower half is the size in bytes.
/// The same bits, shifted down by 32, are the `flags` of an [`AccessEntry`].
pub mod info {
    /// A store; otherwise a load.
    pub const STORE: u64 = 1 << 32;
    /// The loaded value is sign-extended.
    pub const SIGNED: u64 = 1 << 33;
    /// The access is big-endian.
    pub const BIG_ENDIAN: u64 = 1 << 34;
    /// The access is part of an atomic read-modify-write.
    pub const ATOMIC: u64 = 1 << 35;
    /// Value words follow: one for sizes up to 8, two (low, high) for 16.
    pub const VALUE: u64 = 1 << 36;
    /// Static slots only: the slot starts with a word that is 1 if the access was made.
    pub const OPTIONAL: u64 = 1 << 37;
    /// QEMU only knows the bytes touched together, not the single accesses.
    pub const FOOTPRINT: u64 = 1 << 38;
    /// Full system: after the values come two words (see [`crate::layout::physical`]): of the first byte, and of the first byte of the next
    /// page, 0 if the access does not reach it.
    pub const PADDR: u64 = 1 << 39;
    /// Static slots completed in the same instruction before this access: bits 48..56.
    pub const ORDER_SHIFT: u32 = 48;
}

/// Words of physical addresses: `address:56 | kind:8` from the lowest bit up; 0 if it is not known.
pub mod physical {
    /// The kind's lowest bit.
    pub const SHIFT: u32 = 56;
    /// Memory.
    pub const RAM: u64 = 1;
    /// Memory that cannot be written like memory.
    pub const ROM: u64 = 2;
    /// A device.
    pub const IO: u64 = 3;
}

// ---------------------------------------------------------------------------------------------
// The block table

/// First bytes of the block table.
pub const TABLE_MAGIC: [u8; 8] = *b"TRAPBLK\0";
/// The table's header page; the first entry follows. Bytes.
pub const TABLE_HEADER: u64 = 4096;
/// The table's virtual size: blocks beyond it cannot be described. Bytes.
pub const TABLE_MAX: u64 = 1 << 30;

/// Header of the block table. Written once by the producer, but for the atomics.
#[repr(C)]
pub struct TableHeader {
    /// [`TABLE_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Guest's word size in bytes: 4 or 8.
    pub guest_word: u8,
    /// 1 if the guest is big-endian.
    pub guest_big_endian: u8,
    /// 1 if the guest is a whole machine: no mappings are told, and there are exceptions, interrupts, address spaces.
    pub system: u8,
    /// Zero.
    pub pad: u8,
    /// Bytes reserved so far, header included. Grows only; written by any process of the guest's family.
    pub len: AtomicU64,
    /// Source of sequence numbers across streams.
    pub order: AtomicU64,
    /// QEMU's target name (`x86_64`), zero-padded.
    pub target: [u8; 32],
    /// Name of the analyzer, zero-padded.
    pub analyzer: [u8; 64],
    /// QEMU's version, zero-padded.
    pub qemu: [u8; 32],
}

/// A block's entry in the table, at byte offset `8 * id`; followed by `n_insns` [`InsnEntry`], `n_accesses`
/// [`AccessEntry`], and `code_len` instruction bytes padded to 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Length of the whole entry in 8-byte words.
    pub words: u32,
    /// `BLOCK_*` bits.
    pub flags: u32,
    /// Guest virtual address of the first instruction.
    pub pc: u64,
    /// Number of instructions, 1..=512.
    pub n_insns: u16,
    /// Number of static accesses.
    pub n_accesses: u16,
    /// Words that follow the block word in the stream.
    pub slot_words: u16,
    /// Bytes of code.
    pub code_len: u16,
}

/// The block was translated in Thumb (ARM), microMIPS/MIPS16 or another compressed mode of its ISA.
pub const BLOCK_ALT_MODE: u32 = 1;
/// x86: 16-bit code.
pub const BLOCK_CODE16: u32 = 2;
/// x86: 32-bit code. AArch64 targets: AArch32 code.
pub const BLOCK_CODE32: u32 = 4;
/// Full system: the code runs without privileges.
pub const BLOCK_USER: u32 = 8;
/// Full system: the privilege level that the code runs with is known.
pub const BLOCK_LEVEL_KNOWN: u32 = 16;
/// Three bits: the level as the ISA numbers it (CPL, EL, privilege mode, KSU, PLV; problem state is 1).
pub const BLOCK_LEVEL_SHIFT: u32 = 8;

/// An instruction of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsnEntry {
    /// Its pc, relative to the block's.
    pub pc_off: i32,
    /// Length in bytes.
    pub len: u8,
    /// `INSN_*` bits.
    pub flags: u8,
    /// Index of its first access; the next instruction's ends them.
    pub first_access: u16,
}

/// The analyzer asked for this instruction's fetch event.
pub const INSN_TRACED: u8 = 1;
/// The analyzer asked for the first execution only.
pub const INSN_ONCE: u8 = 2;

/// A static access of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// Index of the instruction that makes it.
    pub insn: u16,
    /// Its first word, counted from the block word: 1 and up. An access has one word for the address, before it one
    /// if `OPTIONAL`, after it the value words and those of physical addresses.
    pub slot: u16,
    /// Size in bytes.
    pub size: u16,
    /// [`info`] bits shifted down by 32.
    pub flags: u16,
}

// ---------------------------------------------------------------------------------------------
// A stream's shared memory: one header page, then `chunk_count` chunks of `chunk_size` bytes

/// First bytes of a stream's memory.
pub const STREAM_MAGIC: [u8; 8] = *b"TRAPSTR\0";
/// Bytes before the first chunk.
pub const STREAM_HEADER: usize = 8192;
/// Most consumers at a time.
pub const MAX_CONSUMERS: usize = 16;
/// Most chunks of a stream.
pub const MAX_CHUNKS: usize = 64;
/// Room that the emitted check leaves at the end of a chunk: a block with more slots than fit in it checks
/// for its own length. Bytes.
pub const CHUNK_SLACK: usize = 4096;

/// What the producer says of itself; on cache lines of its own.
#[repr(C, align(64))]
pub struct ProducerLine {
    /// Sequence number of the open chunk. Written by the producer (Release; pairs with Acquire in consumers):
    /// all chunks below are complete.
    pub open: AtomicU64,
    /// What is known to be complete in the open chunk: `seq:32 | bytes:32`. Written when the vCPU leaves the emitted code.
    pub published: AtomicU64,
    /// 1 once the stream has ended: `open` is then the number of chunks.
    pub ended: AtomicU32,
    /// Zero.
    pub pad: u32,
    /// Chunks that a lossy consumer may have missed are counted in its own line; this counts all chunks handed over.
    pub handed: AtomicU64,
}

/// What a consumer says of itself in one stream; on cache lines of its own.
#[repr(C, align(64))]
pub struct ConsumerLine {
    /// `consumer_state::*`. Set by the producer's server, cleared by it when the consumer is gone.
    pub state: AtomicU32,
    /// 1 if the producer may overrun it.
    pub lossy: AtomicU32,
    /// First chunk that the consumer still needs. Written by the consumer (Release), read by the producer (Acquire).
    pub needed: AtomicU64,
    /// Chunks that were overwritten before the consumer read them. Written by the consumer.
    pub lost: AtomicU64,
}

/// States of a [`ConsumerLine`].
pub mod consumer_state {
    /// Nobody.
    pub const FREE: u32 = 0;
    /// Reads, and holds the producer back unless it is lossy.
    pub const ACTIVE: u32 = 1;
}

/// [`ChunkDesc::seq`] while the memory is being cleared for its next use.
pub const CLEARING: u64 = u64::MAX;

/// What is known of the chunk in one place of the ring.
///
/// Taking a place into use: `open` is raised; when there is room `seq` = [`CLEARING`]; the words are zeroed; `seq` = 0
/// (Release); it is filled; `used` and then `seq` are stored (Release). So the open chunk may be read in place
/// when `open` names it and `seq` is 0 before and after; and a lossy consumer knows that what it read is whole when `seq` is still the same afterwards.
#[repr(C)]
pub struct ChunkDesc {
    /// Its sequence number plus 1 once complete; 0 while it is being filled; [`CLEARING`].
    pub seq: AtomicU64,
    /// Bytes used.
    pub used: AtomicU64,
    /// Sequence number across streams, taken when the chunk was opened.
    pub order: AtomicU64,
    /// Zero.
    pub pad: u64,
}

/// The header of a stream's memory.
#[repr(C)]
pub struct StreamHeader {
    /// [`STREAM_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// Bytes of a chunk: a power of two.
    pub chunk_size: u32,
    /// Number of chunks.
    pub chunk_count: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Number of the vCPU in its process.
    pub vcpu: u32,
    /// Consumers that read wake the producer here when it waits for room (futex word).
    pub room: AtomicU32,
    /// Not 0 while the producer sleeps on `room`: 1 if any chunk that is given back ends its sleep, else twice the lowest chunk, modulo 2^31,
    /// that must be needed then.
    pub room_wanted: AtomicU32,
    /// The producer's line.
    pub producer: ProducerLine,
    /// The consumers' lines.
    pub consumers: [ConsumerLine; MAX_CONSUMERS],
    /// Chunk `seq` is described at index `seq % chunk_count`.
    pub chunks: [ChunkDesc; MAX_CHUNKS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<StreamHeader>() <= STREAM_HEADER);
    assert!(size_of::<TableHeader>() <= TABLE_HEADER as usize);
    assert!(size_of::<BlockEntry>() == 24);
    assert!(size_of::<InsnEntry>() == 8);
    assert!(size_of::<AccessEntry>() == 8);
};

/// A consumer's doorbell: a page of its own that it hands to the producers.
#[repr(C)]
pub struct Bell {
    /// Rung by producers: incremented, then woken if `sleeping` (futex word).
    pub rings: AtomicU32,
    /// 1 while the consumer sleeps on `rings`.
    pub sleeping: AtomicU32,
}
