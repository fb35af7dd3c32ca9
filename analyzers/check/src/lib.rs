//! `check`: verifies a stream.

#[cfg(feature = "consume")]
pub mod consume;
#[cfg(feature = "consume")]
mod flow;
#[cfg(feature = "qemu")]
mod qemu;
#[cfg(feature = "consume")]
mod space;
