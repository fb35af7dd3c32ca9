//! Trapline from inside: the guest's side of the backdoor.
//!
//! ```
//! use trapline_guest::{Roi, Scope, Trace, mark};
//!
//! fn request(n: u64) {
//!     let _roi = Roi::begin(1, c"request");       // ends when dropped
//!     mark(c"number", n);
//! }
//!
//! let _trace = Trace::start(Scope::Default);      // stops when dropped
//! request(7);
//! ```
//!
//! Every call first executes a no-op of the ISA that Trapline answers. Anywhere else (on the real machine, under KVM, in another emulator)
//! it stays a no-op, and the call gives [`Error::Absent`]. ISAs whose inline assembly is not stable in Rust are always absent:
//! use the C header there.

#![no_std]

mod insn;

pub use backdoor;
use backdoor::{Errno, op, scope};
use core::ffi::CStr;

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nobody answers: this does not run under Trapline, or its Trapline does not know the operation.
    Absent,
    /// It is not allowed.
    NotAllowed,
    /// A buffer is not mapped.
    Fault,
    /// An argument has no meaning, or the call has none now (a stop without a start).
    Invalid,
    /// An analyzer's own.
    Other(i64),
}

/// What a call gives.
pub type Result<T> = core::result::Result<T, Error>;

/// Whose tracing is started or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Scope {
    /// The calling thread in user mode, everything in full system.
    Default = scope::DEFAULT,
    /// The calling vCPU, in user mode the calling thread.
    Vcpu = scope::VCPU,
    /// The calling process.
    Process = scope::PROCESS,
    /// Everything.
    All = scope::ALL,
}

/// The protocol's version under Trapline (`abi << 16 | minor`), `None` anywhere else. Costs an instruction.
#[inline(always)]
pub fn version() -> Option<u32> {
    match insn::probe() {
        0 => None,
        v => Some(v),
    }
}

/// Whether this runs under a Trapline whose operations these are.
#[inline(always)]
pub fn present() -> bool {
    version().is_some_and(|v| v >> 16 == backdoor::ABI)
}

/// Any operation; see `backdoor::op`.
///
/// # Safety
/// Operations read or write guest memory at addresses among `args`: what they write must be the caller's to change.
#[inline(always)]
pub unsafe fn call(op: u16, args: [usize; 6]) -> Result<i64> {
    if !present() {
        return Err(Error::Absent);
    }
    // SAFETY: somebody answers, so it is no illegal instruction; memory is the caller's promise.
    let result = unsafe { insn::call(backdoor::command(op) as usize, args) } as isize as i64;
    match result {
        0.. => Ok(result),
        r if r == Errno::ENOSYS.result() => Err(Error::Absent),
        r if r == Errno::EPERM.result() => Err(Error::NotAllowed),
        r if r == Errno::EFAULT.result() => Err(Error::Fault),
        r if r == Errno::EINVAL.result() => Err(Error::Invalid),
        r => Err(Error::Other(r)),
    }
}

/// An operation that writes no memory.
#[inline(always)]
fn plain(op: u16, args: [usize; 6]) -> Result<i64> {
    // SAFETY: none of the operations that are called through this writes guest memory, and what they read is borrowed by their callers.
    unsafe { call(op, args) }
}

#[inline(always)]
fn at(name: &CStr) -> usize {
    name.as_ptr() as usize
}

/// Tracing one deeper, from the next instruction on: the depth.
#[inline(always)]
pub fn start(scope: Scope) -> Result<u32> {
    plain(op::START, [scope as usize, 0, 0, 0, 0, 0]).map(|d| d as u32)
}

/// Tracing one less deep: the depth. [`Error::Invalid`] if it was not started.
#[inline(always)]
pub fn stop(scope: Scope) -> Result<u32> {
    plain(op::STOP, [scope as usize, 0, 0, 0, 0, 0]).map(|d| d as u32)
}

/// How deep tracing is started.
#[inline(always)]
pub fn depth(scope: Scope) -> Result<u32> {
    plain(op::STATE, [scope as usize, 0, 0, 0, 0, 0]).map(|d| d as u32)
}

/// A marker.
#[inline(always)]
pub fn mark(name: &CStr, value: u64) -> Result<()> {
    plain(op::MARK, [at(name), value as usize, 0, 0, 0, 0]).map(|_| ())
}

/// A line of text.
#[inline(always)]
pub fn log(level: u32, text: &str) -> Result<()> {
    plain(op::LOG, [text.as_ptr() as usize, text.len(), level as usize, 0, 0, 0]).map(|_| ())
}

/// Bytes to the consumers; at most `backdoor::BUFFER_MAX`.
#[inline(always)]
pub fn send(channel: u32, bytes: &[u8]) -> Result<()> {
    plain(op::SEND, [channel as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]).map(|_| ())
}

/// Bytes from the host, if it allows: how many were written to `bytes`, 0 at the end.
#[inline(always)]
pub fn recv(channel: u32, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: it writes `bytes`, which is borrowed for that.
    let n = unsafe { call(op::RECV, [channel as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
    n.map(|n| n as usize)
}

/// The calling thread's name.
#[inline(always)]
pub fn thread_name(name: &CStr) -> Result<()> {
    plain(op::THREAD_NAME, [at(name), 0, 0, 0, 0, 0]).map(|_| ())
}

/// A number for events of this name, the same for the same name.
#[inline(always)]
pub fn define(name: &CStr) -> Result<u32> {
    plain(op::DEFINE, [at(name), 0, 0, 0, 0, 0]).map(|id| id as u32)
}

/// An event with values.
#[inline(always)]
pub fn event(id: u32, values: [u64; 4]) -> Result<()> {
    let v = values.map(|v| v as usize);
    plain(op::EVENT, [id as usize, v[0], v[1], v[2], v[3], 0]).map(|_| ())
}

/// A symbol that no file knows, as a JIT compiler makes them.
#[inline(always)]
pub fn add_symbol(address: *const u8, size: usize, name: &CStr) -> Result<()> {
    plain(op::ADD_SYMBOL, [address as usize, size, at(name), 0, 0, 0]).map(|_| ())
}

/// Instructions that this vCPU has retired, if Trapline counts them.
#[inline(always)]
pub fn icount() -> Result<u64> {
    word(op::ICOUNT, 0)
}

/// A clock in ns; `which`: `backdoor::what`.
#[inline(always)]
pub fn clock(which: u64) -> Result<u64> {
    word(op::CLOCK, which)
}

#[inline(always)]
fn word(op: u16, which: u64) -> Result<u64> {
    let mut word = 0u64;
    // SAFETY: it writes `word`.
    unsafe { call(op, [which as usize, &raw mut word as usize, 0, 0, 0, 0]) }?;
    Ok(word)
}

/// Consumers report what they have so far.
#[inline(always)]
pub fn stats_dump(label: &CStr) -> Result<()> {
    plain(op::STATS_DUMP, [at(label), 0, 0, 0, 0, 0]).map(|_| ())
}

/// Consumers forget what they have so far.
#[inline(always)]
pub fn stats_reset(label: &CStr) -> Result<()> {
    plain(op::STATS_RESET, [at(label), 0, 0, 0, 0, 0]).map(|_| ())
}

/// Ends QEMU, if it allows that; comes back otherwise.
#[inline(always)]
pub fn exit(code: u8) -> Result<()> {
    plain(op::EXIT, [usize::from(code), 0, 0, 0, 0, 0]).map(|_| ())
}

/// Tracing, until it is dropped.
#[derive(Debug)]
#[must_use = "tracing stops when this is dropped"]
pub struct Trace(Option<Scope>);

impl Trace {
    /// Starts.
    #[inline(always)]
    pub fn start(scope: Scope) -> Trace {
        Trace(start(scope).is_ok().then_some(scope))
    }
}

impl Drop for Trace {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(scope) = self.0 {
            let _ = stop(scope);
        }
    }
}

/// A region of interest, until it is dropped.
#[derive(Debug)]
#[must_use = "the region ends when this is dropped"]
pub struct Roi<'n> {
    id: u32,
    name: &'n CStr,
}

impl<'n> Roi<'n> {
    /// Begins.
    #[inline(always)]
    pub fn begin(id: u32, name: &'n CStr) -> Roi<'n> {
        let _ = plain(op::ROI_BEGIN, [id as usize, at(name), 0, 0, 0, 0]);
        Roi { id, name }
    }
}

impl Drop for Roi<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let _ = plain(op::ROI_END, [self.id as usize, at(self.name), 0, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_harmless() {
        // Tests run on the machine itself.
        assert_eq!(version(), None);
        assert_eq!(start(Scope::Default), Err(Error::Absent));
        assert_eq!(recv(1, &mut [0; 8]), Err(Error::Absent));
        let _trace = Trace::start(Scope::All);
        let _roi = Roi::begin(1, c"test");
        assert_eq!(mark(c"x", 1), Err(Error::Absent));
    }
}
