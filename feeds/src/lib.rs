//! What architecture simulators and other tools read, made from Trapline's streams.
//!
//! A feed sees each stream as the instructions that retired ([`linear`]) and writes a file for each ([`sink`]).

pub mod championship;
pub mod champsim;
pub mod columnar;
pub mod drmemtrace;
pub mod filter;
pub mod linear;
pub mod memory;
pub mod points;
mod registers;
mod report;
pub mod simpoint;
pub mod sink;
pub mod stf;

pub use memory::Addressing;
pub use report::{Args, Kind};
