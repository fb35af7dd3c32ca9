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

mod backdoor;
#[doc(hidden)]
pub mod ffi;
mod guest_fds;
#[doc(hidden)]
pub mod hook;
mod maps;
mod options;
mod point;
mod runtime;
mod server;

pub use backdoor::{Call, Vcpu};
pub use options::{FromOption, Qemu};
pub use point::{Access, FetchPoint, Insn, MemPoint, Mode};

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

    /// The guest called through the backdoor. Sees every call, after the built-in operations have done theirs; what it gives is the
    /// call's result only for operations that are the analyzer's own ([`Call::is_own`]). At least 0, or a negative errno.
    fn backdoor(&self, vcpu: &mut Vcpu<'_>, call: Call<'_>) -> u64 {
        let _ = vcpu;
        call.result() as u64
    }
}

/// Everything an analyzer needs.
pub mod prelude {
    pub use crate::{Access, Analyzer, Call, FetchPoint, FromOption, Insn, MemPoint, Mode, Qemu, Vcpu};
    pub use macros::analyzer;
}
