//! `hotspots`: the hot functions of a program.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "consume")]
mod maps;
#[cfg(feature = "qemu")]
mod qemu;
#[cfg(feature = "consume")]
mod symbols;
