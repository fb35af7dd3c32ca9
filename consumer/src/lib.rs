//! From the bytes of Trapline's streams to what they mean: blocks, instructions, memory accesses and rarer events.
//!
//! A [`Consumer`] says what to do with a chunk (`map`, on worker threads, in any order) and with the outcome (`reduce`, in
//! the order of execution of each stream); [`run`] drives it from any [`Source`]. A [`Chunk`] is read by
//! executed blocks ([`Chunk::blocks`], cheap), and a block by instructions and accesses (lazily, where they are asked for):
//!
//! ```
//! use consumer::{Chunk, Consumer, Error, Stream};
//!
//! /// Counts the bytes stored.
//! struct Stored;
//!
//! impl Consumer for Stored {
//!     type Batch = u64;
//!     type State = u64;
//!     fn map(&self, chunk: &Chunk<'_>) -> Result<u64, Error> {
//!         let mut bytes = 0;
//!         for block in chunk.blocks() {
//!             for insn in block?.insns() {
//!                 bytes += insn.accesses().filter(|a| a.is_store()).map(|a| u64::from(a.size)).sum::<u64>();
//!             }
//!         }
//!         Ok(bytes)
//!     }
//!     fn reduce(&self, total: &mut u64, _: &Stream, bytes: u64) -> Result<(), Error> {
//!         *total += bytes;
//!         Ok(())
//!     }
//! }
//! ```
//!
//! Neither QEMU nor libclang is needed to build a consumer.

mod analysis;
mod chunk;
mod engine;
mod error;
mod event;
mod exec;
mod pool;
#[cfg(feature = "clap")]
mod program;
#[cfg(feature = "recording")]
pub mod recording;
mod regions;
mod tally;
#[cfg(feature = "testing")]
pub mod testing;

pub use analysis::{Analysis, Format};
pub use chunk::{Blocks, Chunk, Item, Items};
pub use engine::{Consumer, Options, Source, Summary, default_workers, run};
pub use error::Error;
pub use event::{EndReason, Event, GuestEvent};
pub use exec::{
    Access, Accesses, BlockAccesses, BlockExec, InsnExec, Insns, Physical, PhysicalKind, PlainAccesses, State, Status,
};
pub use pipe::layout;
pub use pipe::receiver::{Part, Polled, ProcessInfo as Process, Receiver, StreamInfo as Stream};
pub use pipe::table::{AccessInfo, BlockInfo, InsnInfo, Table, TableInfo, Totals};
pub use pool::Pool;
#[cfg(feature = "clap")]
pub use program::program;
pub use regions::{By, RegionChange, RegionNames, Regions};
pub use tally::{Sums, Tally};
