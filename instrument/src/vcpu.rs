//! What an analyzer's functions see of the vCPU that runs, and can do to it.

use crate::ffi;
use std::ffi::{CStr, CString};
use std::ops::Range;

unsafe extern "C" {
    fn trapline_register(name: *const std::ffi::c_char) -> i32;
    fn trapline_register_name(reg: u32) -> *const std::ffi::c_char;
    fn trapline_read_register(vcpu: *mut ffi::TraplineVcpu, reg: u32, bytes: *mut u8, size: u32) -> u32;
    fn trapline_write_register(vcpu: *mut ffi::TraplineVcpu, reg: u32, bytes: *const u8, size: u32) -> bool;
    fn trapline_read_memory(vcpu: *mut ffi::TraplineVcpu, addr: u64, bytes: *mut u8, length: u64) -> bool;
    fn trapline_set_traced(vcpu: *mut ffi::TraplineVcpu, traced: bool);
    fn trapline_end_block(vcpu: *mut ffi::TraplineVcpu);
    fn trapline_request_exit(vcpu: *mut ffi::TraplineVcpu, code: i32);
    fn trapline_retranslate(vcpu: *mut ffi::TraplineVcpu, first: u64, last: u64);
}

/// A guest register, found by its name with [`crate::Qemu::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u32);

impl Register {
    pub(crate) fn numbered(number: u32) -> Register {
        Register(number)
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn find(name: &str) -> Option<Register> {
        let name = CString::new(name).ok()?;
        // SAFETY: a C string; QEMU has its first vCPU when an analyzer is made.
        u32::try_from(unsafe { trapline_register(name.as_ptr()) }).ok().map(Register)
    }

    /// All that this guest has.
    pub(crate) fn all() -> impl Iterator<Item = Register> {
        (0..).map(Register).take_while(|r| r.raw_name().is_some())
    }

    fn raw_name(self) -> Option<String> {
        // SAFETY: returns NULL or a C string that lives as long as QEMU.
        let name = unsafe { trapline_register_name(self.0) };
        // SAFETY: as above.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Its name, as QEMU's gdbstub has it.
    pub fn name(self) -> String {
        self.raw_name().unwrap_or_default()
    }
}

/// A register of a set, and how many of its bytes are sent at most.
pub(crate) type SetMember = (Register, usize);

/// Registers that go to the stream together. Made with [`crate::Qemu::register_set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterSet(pub(crate) u32);

/// Added to a set's number: the registers are those after the instruction.
pub(crate) const AFTER: u32 = 1 << 31;

/// Why something could not be done to a vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VcpuError {
    /// The register cannot be set: it decides where the guest goes on or how it is translated, or its size is another.
    Register(String),
    /// The guest has no memory there that can be read.
    Memory(Range<u64>),
}

impl std::fmt::Display for VcpuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VcpuError::Register(name) => {
                write!(f, "register {name} cannot be set: only general registers can, with a value of their size")
            }
            VcpuError::Memory(r) => write!(f, "guest memory {:#x}..{:#x} cannot be read", r.start, r.end),
        }
    }
}

impl std::error::Error for VcpuError {}

/// The vCPU (in user mode: the guest's thread) that runs, inside a `#[helper]` or one of the rarer points.
///
/// Registers and memory are as the guest has them where the helper was called; within an instruction that changes several registers, some may have
/// changed already.
#[repr(transparent)]
pub struct Vcpu(ffi::TraplineVcpu);

impl Vcpu {
    pub(crate) fn raw(&self) -> &ffi::TraplineVcpu {
        &self.0
    }

    pub(crate) fn pointer(&self) -> *mut ffi::TraplineVcpu {
        std::ptr::from_ref(&self.0).cast_mut()
    }

    /// Its number in the process, from 0.
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// How deep tracing is started on it; 0: it is not traced.
    pub fn depth(&self) -> u32 {
        self.0.traced
    }

    /// Where the guest is: the instruction that a helper was called for.
    pub fn pc(&self) -> u64 {
        self.0.pc
    }

    /// A register's bytes in the guest's byte order.
    pub fn register_bytes(&self, register: Register) -> Vec<u8> {
        let mut bytes = [0u8; 256];
        // SAFETY: the vCPU is the one that runs, and QEMU writes at most that many bytes.
        let n = unsafe { trapline_read_register(self.pointer(), register.0, bytes.as_mut_ptr(), bytes.len() as u32) };
        bytes[..(n as usize).min(bytes.len())].to_vec()
    }

    /// A register's value; of one with more than 64 bits the lower ones.
    pub fn register(&self, register: Register) -> u64 {
        let mut bytes = self.register_bytes(register);
        if crate::runtime::big_endian() {
            bytes.reverse();
        }
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    }

    /// Sets a general register. The guest goes on with it.
    ///
    /// # Errors
    /// [`VcpuError::Register`] for the pc, flags, segment and control registers, and for vector registers.
    pub fn set_register(&mut self, register: Register, value: u64) -> Result<(), VcpuError> {
        let size = self.register_bytes(register).len();
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.truncate(size);
        if crate::runtime::big_endian() {
            bytes.reverse();
        }
        // SAFETY: the vCPU is the one that runs; QEMU reads that many bytes.
        let done = unsafe { trapline_write_register(self.pointer(), register.0, bytes.as_ptr(), bytes.len() as u32) };
        if done { Ok(()) } else { Err(VcpuError::Register(register.name())) }
    }

    /// Reads guest memory at a virtual address.
    ///
    /// # Errors
    /// [`VcpuError::Memory`] if a byte is not mapped or not readable; `bytes` may be changed in part.
    pub fn read_memory(&self, addr: u64, bytes: &mut [u8]) -> Result<(), VcpuError> {
        // SAFETY: the vCPU is the one that runs; QEMU writes that many bytes.
        let done = unsafe { trapline_read_memory(self.pointer(), addr, bytes.as_mut_ptr(), bytes.len() as u64) };
        if done { Ok(()) } else { Err(VcpuError::Memory(addr..addr.wrapping_add(bytes.len() as u64))) }
    }

    /// Writes an event of the analyzer's own into the vCPU's stream, in its place between the others. `id` is the analyzer's to choose.
    pub fn emit(&self, id: u64, bytes: &[u8]) {
        crate::runtime::emit(self.pointer(), id, bytes);
    }

    /// The block that runs is the last before QEMU looks for what else there is to do.
    pub fn end_block(&mut self) {
        // SAFETY: the vCPU is the one that runs.
        unsafe { trapline_end_block(self.pointer()) }
    }

    /// Tracing starts when the block that runs has ended; the stream says where. It nests, with [`Vcpu::stop_tracing`] and with the guest's own starts and
    /// stops through the backdoor.
    pub fn start_tracing(&mut self) {
        // SAFETY: the vCPU is the one that runs.
        unsafe { trapline_set_traced(self.pointer(), true) }
    }

    /// Tracing is stopped when the block that runs has ended, if it was started once; the stream says where. Stopped, the vCPU runs QEMU's own code, and no point is
    /// reached in it: what is to start tracing again is a rarer point (a system call, a signal, …), another vCPU or the guest.
    pub fn stop_tracing(&mut self) {
        // SAFETY: the vCPU is the one that runs.
        unsafe { trapline_set_traced(self.pointer(), false) }
    }

    /// Ends the process as if the guest had called `exit_group(code)`, when the block that runs has ended.
    pub fn request_exit(&mut self, code: i32) {
        // SAFETY: the vCPU is the one that runs.
        unsafe { trapline_request_exit(self.pointer(), code) }
    }

    /// The code at these addresses is translated anew, so that the analyzer is asked again. Translations are shared: this
    /// holds for every vCPU, for those that run once they have left the block they are in.
    pub fn retranslate(&mut self, addresses: Range<u64>) {
        if !addresses.is_empty() {
            // SAFETY: the vCPU is the one that runs.
            unsafe { trapline_retranslate(self.pointer(), addresses.start, addresses.end - 1) }
        }
    }

    /// All code is translated anew.
    pub fn retranslate_all(&mut self) {
        // SAFETY: the vCPU is the one that runs.
        unsafe { trapline_retranslate(self.pointer(), 0, u64::MAX) }
    }
}
