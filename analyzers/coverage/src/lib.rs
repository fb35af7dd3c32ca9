//! `coverage`: which code ran.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "consume")]
pub mod drcov;
#[cfg(feature = "qemu")]
mod qemu;
