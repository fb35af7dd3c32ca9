//! `empty`: every hook, doing nothing.
//!
//! It proves what instrumentation costs when nothing is asked of it, and is the shortest analyzer to copy from.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;
