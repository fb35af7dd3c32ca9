//! The protocol between a guest and Trapline: the one table of encodings, registers, operations and errors.
//!
//! Rules:
//! * A *probe* is an instruction that its ISA defines to do nothing. Under Trapline it writes [`PROBE_RESULT`] to the ISA's result register.
//! * A *call* is an instruction that its ISA defines as illegal (or reserves). Under Trapline, if bits 31:16 of the command
//!   register are [`MAGIC`], it is the operation in bits 15:0; otherwise it is what it is anywhere else: an illegal instruction.
//! * A result is at least 0, or one of [`Errno`] negated. An unknown operation is [`Errno::ENOSYS`], never a trap.
//! * [`op::VERSION`] and the encodings are frozen. [`ABI`] changes if anything else becomes incompatible, [`MINOR`] if something is added.
//!
//! Everything that is written in C is generated from these tables; see [`header`].

#![no_std]
#![forbid(unsafe_code)]

pub mod header;
mod isa;
mod op_table;

pub use isa::{ISAS, Isa, Kind, Unit};
pub use op_table::{Buffer, OPERATIONS, Operation, op};

/// Bits 31:16 of the command register: the second factor that tells a call from a stray illegal instruction.
pub const MAGIC: u32 = 0x5443;

/// Version of the protocol. Bump if an operation changes its meaning.
pub const ABI: u32 = 1;

/// Bump if an operation is added.
pub const MINOR: u32 = 0;

/// What [`op::VERSION`] gives.
pub const VERSION: u32 = ABI << 16 | MINOR;

/// What a probe writes to the result register under Trapline; its sign says that Trapline is there even if the ABI is another.
pub const PROBE_RESULT: u32 = VERSION;

/// The command register's value for an operation.
pub const fn command(op: u16) -> u32 {
    MAGIC << 16 | op as u32
}

/// Errors of operations, by Linux's numbers. A call gives them negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(clippy::upper_case_acronyms)]
pub enum Errno {
    /// The operation is not allowed; see the security section of the book's chapter.
    EPERM = 1,
    /// A buffer is not the guest's memory.
    EFAULT = 14,
    /// An argument has no meaning.
    EINVAL = 22,
    /// There is no such operation, or nobody who answers it.
    ENOSYS = 38,
}

impl Errno {
    /// As the call gives it.
    pub const fn result(self) -> i64 {
        -(self as i32 as i64)
    }
}

/// All of [`Errno`], with their names.
pub const ERRNOS: [(&str, Errno); 4] =
    [("EPERM", Errno::EPERM), ("EFAULT", Errno::EFAULT), ("EINVAL", Errno::EINVAL), ("ENOSYS", Errno::ENOSYS)];

/// Whose tracing an operation is about: an argument of `START`, `STOP`, `SET_DEPTH` and `STATE`.
pub mod scope {
    /// [`VCPU`] in user mode, [`ALL`] in full system.
    pub const DEFAULT: u64 = 0;
    /// This vCPU; in user mode, this thread.
    pub const VCPU: u64 = 1;
    /// This process. In full system: as [`ALL`], since QEMU does not know processes.
    pub const PROCESS: u64 = 2;
    /// Every vCPU, those that come later included.
    pub const ALL: u64 = 3;
    /// The highest of them.
    pub const LAST: u64 = ALL;
}

/// What [`op::COUNTER`] and its kin can be asked for.
pub mod what {
    /// `CLOCK`: the host's monotonic clock, ns.
    pub const CLOCK_MONOTONIC: u64 = 0;
    /// `CLOCK`: the host's wall clock, ns since 1970.
    pub const CLOCK_WALL: u64 = 1;
    /// `CLOCK`: QEMU's virtual clock, ns.
    pub const CLOCK_VIRTUAL: u64 = 2;
    /// `COUNTER`: calls that this vCPU has made.
    pub const COUNTER_CALLS: u64 = 0;
    /// `COUNTER`: how often tracing was started on this vCPU.
    pub const COUNTER_STARTS: u64 = 1;
}

/// Bits of the first word that `FEATURES` gives: what this Trapline can and may.
pub mod feature {
    /// The guest is emulated in user mode.
    pub const USER_MODE: u64 = 1 << 0;
    /// `EXIT` and `ABORT` are allowed.
    pub const EXIT: u64 = 1 << 1;
    /// `RECV` is allowed.
    pub const RECV: u64 = 1 << 2;
    /// `ANALYZER_SELECT` is allowed.
    pub const SELECT: u64 = 1 << 3;
    /// Instructions are counted: `ICOUNT` answers.
    pub const ICOUNT: u64 = 1 << 4;
}

/// Most bytes of a name, its terminating 0 not counted; longer ones are cut.
pub const NAME_MAX: usize = 255;

/// Most bytes of a buffer in one call.
pub const BUFFER_MAX: u64 = 1 << 20;
