//! `hotspots`: the hot functions of a program.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;
