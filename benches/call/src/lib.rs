//! Calls an empty function at each instruction, for `trapline bench`.

#[cfg(feature = "qemu")]
mod qemu;
