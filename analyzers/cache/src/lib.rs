//! `cache`: cache simulation.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "consume")]
pub mod model;
#[cfg(feature = "qemu")]
mod qemu;
