//! `registers`: what `trace` has, with values, and the registers that instructions define.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "qemu")]
mod qemu;
