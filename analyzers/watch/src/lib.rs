//! `watch`: who writes an address range.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;

/// The event that tells which range is watched: two `u64` in little-endian order, first address and the one after the last.
pub const RANGE: u64 = 1;
