//! What can go wrong while consuming.

use std::io;

/// An error of a consumer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pipe's: a bad hand-over, a corrupt chunk (ours, or of whoever wrote the memory).
    #[error(transparent)]
    Pipe(#[from] pipe::Error),
    /// The environment's: the result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
    /// The consumer's own.
    #[error("{0}")]
    Consumer(String),
}
