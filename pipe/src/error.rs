//! What can go wrong in the pipe. Each variant says whose fault it is.

use std::io;

/// The pipe's result.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the pipe.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment's: a system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, as in "cannot …".
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The user's, mostly: QEMU would not serve this consumer.
    #[error("QEMU refused this consumer: {0}")]
    Refused(String),
    /// Ours, or a peer of another version: what was handed over is not what it should be.
    #[error("{0}")]
    Protocol(String),
    /// Ours, or memory that somebody else wrote: a block's description makes no sense.
    #[error("corrupt block table: block {id} (at byte {:#x}) {what}", u64::from(*.id) * 8)]
    Block {
        /// The block's id.
        id: u32,
        /// What is wrong.
        what: String,
    },
    /// Ours, or memory that somebody else wrote: a record makes no sense.
    #[error("corrupt record at byte {offset:#x} of its chunk: {what}")]
    Record {
        /// Byte offset in the chunk.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The same, with the place.
    #[error("process {pid}, thread {tid}, chunk {chunk}: {source}")]
    In {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The chunk's sequence number in its stream.
        chunk: u64,
        /// What is wrong in it.
        source: Box<Error>,
    },
}

impl Error {
    /// A failed system call; `what` completes "cannot …".
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }
    /// A block that makes no sense.
    #[cold]
    pub fn block(id: u32, what: impl Into<String>) -> Error {
        Error::Block { id, what: what.into() }
    }
    /// A record that makes no sense; `word` is its offset in words.
    #[cold]
    pub fn record(word: usize, what: impl Into<String>) -> Error {
        Error::Record { offset: (word as u64).saturating_mul(8), what: what.into() }
    }
}
