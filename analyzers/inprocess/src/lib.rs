//! `inprocess`: counts and histograms that are kept inside QEMU.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;

/// The event that carries the result: `u64` words in little-endian order, as [`COUNTS`] names them, then a histogram of 65 words:
/// stores whose value has so many bits.
pub const RESULT: u64 = 1;

/// What is counted, in order.
pub const COUNTS: [&str; 12] = [
    "insns", "loads", "stores", "syscalls", "loads_1", "loads_2", "loads_4", "loads_8", "stores_1", "stores_2",
    "stores_4", "stores_8",
];
