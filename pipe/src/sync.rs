//! The atomics, so that the ring's protocol can be run under loom (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic;
#[cfg(loom)]
pub use loom::sync::atomic;
