//! What an analyzer links against: the points' types and the sending side of the pipe.
//!
//! An analyzer is a crate that implements [`Analyzer`] for one type under [`macros::analyzer`] and is linked into QEMU as
//! a static library. QEMU calls its methods while it translates guest code; what they ask for at a point is the code that
//! QEMU generates there, and nothing else.
//!
//! ```ignore
//! use instrument::prelude::*;
//!
//! struct Stores;
//!
//! #[analyzer]
//! impl Analyzer for Stores {
//!     fn new(_: &Qemu) -> Self { Stores }
//!     fn fetch(&self, _: &Insn, point: &mut FetchPoint) { point.trace() }
//!     fn mem(&self, access: &Access, point: &mut MemPoint) {
//!         if access.is_store() { point.trace_value() }
//!     }
//! }
//! ```
//!
//! Beside `trace`, a point can count, call a function of the analyzer under `#[helper]`, and do any of them under conditions
//! ([`FetchPoint`], [`MemPoint`]).

use std::ops::Range;
use std::path::Path;

mod backdoor;
mod cursor;
#[cfg(feature = "decode")]
mod decoded;
#[doc(hidden)]
pub mod ffi;
mod guest_fds;
#[doc(hidden)]
pub mod hook;
mod kernel;
mod maps;
mod options;
mod point;
mod runtime;
mod server;
mod slots;
mod vcpu;

pub use backdoor::Call;
pub use cursor::{
    AccessCondition, Addr, Condition, Every, Fetch, FetchArg, FetchArgs, Helper, Mem, MemArg, MemArgs, Pc, Random,
    Size, Value, When, address_in, address_masked,
};
#[cfg(feature = "decode")]
pub use decode::{Class, Effects, Kinds, Reg, RegSet, Registers, Target};
#[cfg(feature = "decode")]
pub use decoded::target as decode_target;
pub use options::{FromOption, Qemu};
pub use point::{
    Access, AddressSpace, End, Exception, FetchPoint, Image, Insn, KernelAccess, Mapping, MemPoint, Mode, Privilege,
    Signal, Syscall,
};
pub use slots::{Counter, Variable};
pub use vcpu::{Register, RegisterSet, Vcpu, VcpuError};

/// What QEMU asks while it translates. Implement it under [`macros::analyzer`]: only the methods that are written there become
/// points; the others cost nothing.
pub trait Analyzer: Sized + Send + Sync + 'static {
    /// Made once when QEMU starts, before the guest's image is loaded.
    fn new(qemu: &Qemu) -> Self;

    /// `INSTR_FETCH`: an instruction is being translated.
    fn fetch(&self, insn: &Insn<'_>, point: &mut FetchPoint<'_>) {
        let _ = (insn, point);
    }

    /// `INSTR_MEM`: a memory access of an instruction is being translated. Called once per access that QEMU knows statically, and for
    /// an instruction whose helpers may access memory once for loads and once for stores ([`Access::in_helper`]).
    fn mem(&self, access: &Access<'_>, point: &mut MemPoint<'_>) {
        let _ = (access, point);
    }

    /// A vCPU begins: in user mode a thread of the guest. Called by that thread, as all that follow.
    fn vcpu_start(&self, vcpu: &mut Vcpu) {
        let _ = vcpu;
    }

    /// A thread of the guest ends by itself, with its exit code; the threads that end with the process do not come here.
    fn vcpu_exit(&self, vcpu: &mut Vcpu, code: i32) {
        let _ = (vcpu, code);
    }

    /// The guest has forked: the child's process id in the parent, `None` in the child, whose counters begin at 0.
    fn fork(&self, vcpu: &mut Vcpu, child: Option<u32>) {
        let _ = (vcpu, child);
    }

    /// The guest asks for its image to be replaced by the program at `path`. It goes on if that fails.
    fn exec(&self, vcpu: &mut Vcpu, path: &Path) {
        let _ = (vcpu, path);
    }

    /// The process ends; no vCPU runs any more. Results that stay in QEMU are printed here.
    fn exit(&self, vcpu: &mut Vcpu, end: End) {
        let _ = (vcpu, end);
    }

    /// A system call begins (user mode).
    fn syscall(&self, vcpu: &mut Vcpu, call: &Syscall) {
        let _ = (vcpu, call);
    }

    /// The system call `number` returns; a negative result is an error number.
    fn syscall_ret(&self, vcpu: &mut Vcpu, number: i64, result: i64) {
        let _ = (vcpu, number, result);
    }

    /// The kernel has touched guest memory: in a system call that is about to return, or for a signal whose handler is about to run. Only while
    /// the vCPU is traced.
    fn kernel_access(&self, vcpu: &mut Vcpu, access: &KernelAccess) {
        let _ = (vcpu, access);
    }

    /// A handler of the guest's is about to run for a signal.
    fn signal(&self, vcpu: &mut Vcpu, signal: &Signal) {
        let _ = (vcpu, signal);
    }

    /// Full system: an exception has been delivered; its handler's first instruction comes next.
    fn exception(&self, vcpu: &mut Vcpu, exception: &Exception) {
        let _ = (vcpu, exception);
    }

    /// Full system: an interrupt has been delivered; its handler's first instruction comes next.
    fn interrupt(&self, vcpu: &mut Vcpu, interrupt: &Exception) {
        let _ = (vcpu, interrupt);
    }

    /// Full system: the vCPU's address space is another. In a helper: registers are those of the last instruction that synchronised them.
    fn context(&self, vcpu: &mut Vcpu, space: &AddressSpace) {
        let _ = (vcpu, space);
    }

    /// Memory has been mapped: by `mmap`, `mremap`, `brk` or `shmat`, or when the image was loaded.
    fn mmap(&self, vcpu: &mut Vcpu, mapping: &Mapping) {
        let _ = (vcpu, mapping);
    }

    /// Memory has been unmapped, or given back by `brk`.
    fn munmap(&self, vcpu: &mut Vcpu, addresses: Range<u64>) {
        let _ = (vcpu, addresses);
    }

    /// The protection of memory has changed; `prot` are the guest's `PROT_*` bits.
    fn mprotect(&self, vcpu: &mut Vcpu, addresses: Range<u64>, prot: u32) {
        let _ = (vcpu, addresses, prot);
    }

    /// The program is loaded and about to start.
    fn image(&self, vcpu: &mut Vcpu, image: &Image) {
        let _ = (vcpu, image);
    }

    /// The guest called through the backdoor. Sees every call, after the built-in operations have done theirs; what it gives is the
    /// call's result only for operations that are the analyzer's own ([`Call::is_own`]). At least 0, or a negative errno.
    fn backdoor(&self, vcpu: &mut Vcpu, call: Call<'_>) -> u64 {
        let _ = vcpu;
        call.result() as u64
    }
}

/// Everything an analyzer needs.
pub mod prelude {
    pub use crate::{
        Access, Addr, AddressSpace, Analyzer, Call, Condition, Counter, End, Every, Exception, FetchPoint, FromOption,
        Image, Insn, KernelAccess, Mapping, MemPoint, Mode, Pc, Privilege, Qemu, Random, Register, RegisterSet, Signal,
        Size, Syscall, Value, Variable, Vcpu, address_in, address_masked,
    };
    #[cfg(feature = "decode")]
    pub use crate::{Class, Kinds, Reg, RegSet, Registers};
    pub use macros::{analyzer, helper};
}
