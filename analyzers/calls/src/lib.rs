//! `calls`: call trees.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "consume")]
pub mod output;
#[cfg(feature = "qemu")]
mod qemu;
#[cfg(feature = "consume")]
pub mod tree;
