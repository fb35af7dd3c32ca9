//! The `trapline` command as a library, so that tests reach every part of it.
//!
//! The modules follow the way from nothing to a running guest:
//!
//! | module | gives |
//! |---|---|
//! | [`cache`] | the one folder that everything is made in, and its lock |
//! | [`deps`] | what the machine must have; installs it or says the command |
//! | [`apt`], [`source`] | QEMU's source |
//! | [`patch`] | the source with our patch, ready to be configured |
//! | [`venv`] | Python, meson and ninja |
//! | [`analyzer`] | the analyzer as `libanalyzer.a`, and which points it fills |
//! | [`build`] | `qemu-<arch>` with the analyzer linked in |
//! | [`target`], [`elf`], [`lookup`] | which program the user meant and which QEMU target it needs |
//! | [`prepare`] | all of the above in order, or nothing at all when it is already there |
//! | [`run`], [`guest`] | the guest as a child process that the user cannot tell from the real thing |
//! | [`session`] | the consuming half of the shipped analyzers, attached to the guest |
//!
//! Beside them: [`cli`] (the arguments), [`new`] (crates to begin with), [`mod@bench`] (what tracing costs), [`doctor`], [`progress`], [`exec`] (commands with a log) and [`error`].

pub mod analyzer;
pub mod apt;
pub mod bench;
pub mod build;
pub mod cache;
pub mod cli;
pub mod control;
pub mod deps;
pub mod doctor;
pub mod elf;
pub mod error;
pub mod exec;
pub mod guest;
pub mod home;
pub mod lookup;
pub mod new;
pub mod patch;
pub mod prepare;
pub mod progress;
pub mod recording;
pub mod run;
pub mod session;
pub mod simpoint;
pub mod source;
pub mod system;
pub mod target;
pub mod venv;

pub use error::{Error, Result};
