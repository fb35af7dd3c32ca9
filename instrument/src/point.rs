//! The points: what an analyzer is asked about, and how it answers.

use crate::ffi;
use std::marker::PhantomData;

/// How an instruction is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The ISA's usual encoding.
    Normal,
    /// Thumb on ARM, microMIPS or MIPS16 on MIPS.
    Alternate,
    /// x86 16-bit code.
    Code16,
    /// x86 32-bit code; AArch32 code where AArch64 is possible.
    Code32,
}

/// How privileged code is, in full system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// It has none: user space.
    pub user: bool,
    /// As the ISA numbers it: CPL, EL, RISC-V's mode, KSU, PLV; problem state is 1.
    pub level: u8,
}

/// A guest instruction that is being translated.
#[repr(transparent)]
pub struct Insn<'a>(ffi::TraplineInsn, PhantomData<&'a ()>);

impl Insn<'_> {
    /// Guest virtual address, without mode bits (Thumb's bit 0 is clear).
    pub fn pc(&self) -> u64 {
        self.0.pc
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.length as usize
    }

    /// Never: an instruction has bytes.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// The opcode bytes, in memory order.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: QEMU passes `length` bytes that live as long as the instruction does.
        unsafe { std::slice::from_raw_parts(self.0.bytes, self.0.length as usize) }
    }

    /// Number of the instruction in the block that QEMU is translating, from 0.
    pub fn index_in_block(&self) -> usize {
        self.0.index as usize
    }

    #[cfg(feature = "decode")]
    pub(crate) fn flags(&self) -> u32 {
        self.0.flags
    }

    /// How it is encoded.
    pub fn mode(&self) -> Mode {
        match self.0.flags {
            f if f & ffi::TRAPLINE_MODE_ALT != 0 => Mode::Alternate,
            f if f & ffi::TRAPLINE_MODE_CODE16 != 0 => Mode::Code16,
            f if f & ffi::TRAPLINE_MODE_CODE32 != 0 => Mode::Code32,
            _ => Mode::Normal,
        }
    }

    /// The privilege it runs with: full system, and an ISA that this is known of.
    pub fn privilege(&self) -> Option<Privilege> {
        let flags = self.0.flags;
        (flags & ffi::TRAPLINE_MODE_LEVEL_KNOWN != 0).then_some(Privilege {
            user: flags & ffi::TRAPLINE_MODE_USER != 0,
            level: (flags >> ffi::TRAPLINE_MODE_LEVEL_SHIFT) as u8 & 7,
        })
    }
}

/// A memory access that is being translated.
#[repr(transparent)]
pub struct Access<'a>(ffi::TraplineAccess, PhantomData<&'a ()>);

impl Access<'_> {
    /// The instruction that makes it.
    pub fn insn(&self) -> &Insn<'_> {
        // SAFETY: QEMU passes an instruction that lives as long as the access; `Insn` has its layout.
        unsafe { &*self.0.insn.cast() }
    }

    /// Size in bytes; `None` where only the helper that makes the access knows.
    pub fn size(&self) -> Option<usize> {
        (self.0.size != 0).then_some(self.0.size as usize)
    }

    fn has(&self, flag: u32) -> bool {
        self.0.flags & flag != 0
    }

    /// A store; otherwise a load.
    pub fn is_store(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_STORE)
    }

    /// A load; otherwise a store.
    pub fn is_load(&self) -> bool {
        !self.is_store()
    }

    /// The loaded value is sign-extended.
    pub fn is_signed(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_SIGNED)
    }

    /// The bytes are in big-endian order.
    pub fn is_big_endian(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_BIG_ENDIAN)
    }

    /// Part of an atomic read-modify-write, as far as known at translation.
    pub fn is_atomic(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_ATOMIC)
    }

    /// It may not be made at each execution of the instruction (predicated, or behind a branch within it).
    pub fn is_conditional(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_OPTIONAL) || self.in_helper()
    }

    /// It is made inside a helper function, if at all; number and sizes are known at execution.
    pub fn in_helper(&self) -> bool {
        self.has(ffi::TRAPLINE_ACCESS_HELPER)
    }
}

/// The cursor at a fetch point.
#[repr(transparent)]
pub struct FetchPoint<'a>(ffi::TraplinePoint, PhantomData<&'a mut ()>);

impl FetchPoint<'_> {
    pub(crate) fn raw(&mut self) -> &mut ffi::TraplinePoint {
        &mut self.0
    }

    /// The instruction's execution goes to the stream. Costs one word per executed block, whatever the number of instructions.
    pub fn trace(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_TRACE;
    }

    /// Only the first execution since the code was seen first goes to the stream (coverage). Costs a load, a compare and a branch per run of
    /// such instructions in a block, until it has been reached 64 times; then the code is translated anew without them.
    pub fn once(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_ONCE;
    }
}

/// The cursor at an access.
#[repr(transparent)]
pub struct MemPoint<'a>(ffi::TraplinePoint, PhantomData<&'a mut ()>);

impl MemPoint<'_> {
    pub(crate) fn raw(&mut self) -> &mut ffi::TraplinePoint {
        &mut self.0
    }

    /// The access goes to the stream: one word, its address.
    pub fn trace(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_TRACE;
    }

    /// The access goes to the stream with the value read or written: one more word, two for 16 bytes.
    pub fn trace_value(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_TRACE | ffi::TRAPLINE_WANT_VALUE;
    }

    /// The access goes to the stream with the physical addresses that it went to, of its first byte and of the next page if it reaches there,
    /// and whether that is memory or a device: two more words, and a call that looks them up in QEMU's TLB. In user mode this is
    /// [`MemPoint::trace`]. May be combined with [`MemPoint::trace_value`].
    pub fn trace_paddr(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_TRACE | ffi::TRAPLINE_WANT_PADDR;
    }

    /// Only the first time that it is made since the code was seen first.
    pub fn once(&mut self) {
        self.0.wants |= ffi::TRAPLINE_WANT_TRACE | ffi::TRAPLINE_WANT_ONCE;
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By `exit` or `exit_group`, with this code.
    Exit(i32),
    /// By a signal that the guest does not handle.
    Signal(i32),
}

/// A system call of the guest's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Syscall {
    /// Its instruction.
    pub pc: u64,
    /// The number, by the guest's ISA.
    pub number: i64,
    /// The name; `None` if QEMU knows none.
    pub name: Option<&'static str>,
    /// The arguments; how many of them count depends on the number.
    pub args: [u64; 8],
}

/// Guest memory that the kernel has touched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAccess {
    /// Guest virtual addresses.
    pub addresses: std::ops::Range<u64>,
    /// It wrote; otherwise it read.
    pub write: bool,
    /// What it touched from the start of `addresses` on, which is empty, is not known.
    pub unknown: bool,
}

/// A signal that is delivered to a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signal {
    /// The signal's number, by the guest's ISA.
    pub number: i32,
    /// Where the guest was.
    pub from: u64,
    /// The handler.
    pub to: u64,
}

/// An exception or interrupt that has been delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exception {
    /// Vector or cause, as the ISA numbers it; where it has no such number, QEMU's own. `None`: unknown.
    pub number: Option<u32>,
    /// Where the guest would have gone on.
    pub from: u64,
    /// Where its handler begins.
    pub to: u64,
}

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressSpace {
    /// Physical address of its page tables' root.
    pub root: u64,
    /// Its number: PCID, ASID; 0 if it has none.
    pub asid: u64,
}

/// A piece of memory that has been mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// Guest virtual addresses.
    pub addresses: std::ops::Range<u64>,
    /// The guest's `PROT_*` bits.
    pub prot: u32,
    /// `MAP_*` bits, as the host numbers them.
    pub flags: u32,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The file; `None` if anonymous.
    pub file: Option<std::path::PathBuf>,
}

/// The program that is about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image {
    /// Entry point.
    pub entry: u64,
    /// What was added to the addresses in its file.
    pub bias: u64,
    /// The program break.
    pub brk: u64,
    /// Its file.
    pub path: std::path::PathBuf,
}
