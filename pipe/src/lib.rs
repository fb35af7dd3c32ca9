//! Trapline's pipe: shared memory, chunks, the block table, hand-over and back-pressure.
//!
//! No QEMU, no decoding. [`layout`] defines every byte; [`wire`] hands descriptors over; [`ring`] is the protocol between the
//! writer of a stream and its readers; [`producer`] is QEMU's side, [`receiver`] the consumer's, with [`table`] and
//! [`record`] for what it reads.

#[cfg(not(loom))]
pub mod error;
pub mod futex;
pub mod layout;
#[cfg(not(loom))]
pub mod producer;
#[cfg(not(loom))]
pub mod receiver;
#[cfg(not(loom))]
pub mod record;
pub mod ring;
pub mod sync;
#[cfg(not(loom))]
pub mod table;
#[cfg(not(loom))]
pub mod table_writer;
#[cfg(not(loom))]
pub mod wire;

#[cfg(not(loom))]
pub use error::{Error, Result};
