//! What the end-to-end tests share.
//!
//! A test builds a guest from `tests/guests/` ([`guest`]), runs it with every instruction and access traced ([`Run`]), and compares the
//! [`Trace`] with what is right from first principles, as text: [`Trace::lines`] gives one line an event with addresses by the
//! guest's own symbols, so that a test reads as the trace of its guest.
//!
//! Rules:
//! * What a test expects is derived from the ISA's manual and the guest's source, never copied from a run.
//! * Everything that is built lies in the cache folder (`$TRAPLINE_CACHE`) and is built when a test first needs it, under a lock.
//! * Every run has a deadline; what hangs is killed and fails.
//!
//! Environment: `TRAPLINE_CACHE` as for `trapline`; `TRAPLINE_BIN` a built `trapline` (else it is built);
//! `TRAPLINE_TEST_QEMU` a folder with `qemu-<target>` and `qemu-system-<isa>` that have the analyzer `trace` linked in (else `trapline build` makes them).

pub mod drmemtrace;
mod guests;
pub mod oracle;
mod process;
mod setup;
mod symbols;
mod trace;

pub use guests::{GUESTS, Guest, How, Isa, build_all, guest, guest_linked};
pub use process::{Ended, Finished, finish, unpack, within};
pub use setup::{cache, checkout, cross_compilers, missing_compilers, python, qemu, scratch, system_qemu, trapline};
pub use symbols::Symbols;
pub use trace::{Counts, Event, Run, Trace, What, connect, same};

/// The ISAs that only free-standing guests are built for, by compilers of the others.
pub const BARE: [Isa; 3] = [Isa::Riscv32, Isa::Mips64el, Isa::Ppc];

/// The ISAs that every test of "all ISAs" runs on.
pub const ALL: [Isa; 10] = [
    Isa::X86_64,
    Isa::I386,
    Isa::Aarch64,
    Isa::Arm,
    Isa::Thumb,
    Isa::Riscv64,
    Isa::Mipsel,
    Isa::Mips,
    Isa::Ppc64le,
    Isa::S390x,
];
