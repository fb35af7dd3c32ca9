//! An analyzer for the tests: each part of the cursor, chosen by `--opt what=NAME`. What it finds it says in events of its own, which the
//! `trace` consumer prints: `id` 1, the text `name=value`.

#[cfg(feature = "qemu")]
mod qemu;
