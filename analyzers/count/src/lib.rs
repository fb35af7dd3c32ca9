//! `count`: exact totals per thread and per process.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;
