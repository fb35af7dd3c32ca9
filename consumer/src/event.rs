//! The rarer records, by name.

use crate::layout::{end, kind};
use pipe::record::Words;

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The thread left.
    Thread,
    /// The process left through exit or exit_group.
    Exit,
    /// The process was killed by a signal.
    Signal,
    /// The process replaced its image.
    Exec,
    /// Some other reason.
    Other(u64),
}

impl EndReason {
    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Thread => "thread",
            EndReason::Exit => "exit",
            EndReason::Signal => "signal",
            EndReason::Exec => "exec",
            EndReason::Other(_) => "other",
        }
    }
}

/// An event that is neither an instruction nor an access. Addresses and lengths are the guest's, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// First of a stream.
    Start {
        /// The process.
        pid: u64,
        /// The thread.
        tid: u64,
        /// The parent's pid, or 0.
        parent: u64,
        /// Stream id of the creating thread, or 0.
        creator: u64,
        /// Wall clock in nanoseconds since 1970.
        wall_ns: u64,
    },
    /// Last of a stream.
    End {
        /// Why.
        reason: EndReason,
        /// Exit code or signal number.
        code: i64,
    },
    /// The process made another.
    Fork {
        /// The child's pid.
        child: u64,
    },
    /// The process replaces its image.
    Exec {
        /// The new image's path.
        path: Vec<u8>,
    },
    /// A system call begins.
    Syscall {
        /// Where.
        pc: u64,
        /// Its number.
        number: u64,
        /// Its arguments.
        args: [u64; 8],
    },
    /// A system call returned.
    SyscallRet {
        /// Its number.
        number: u64,
        /// Its result.
        result: i64,
    },
    /// A mapping was made.
    Mmap {
        /// Start.
        addr: u64,
        /// Length.
        len: u64,
        /// Protection, as in mmap.
        prot: u64,
        /// Flags, as in mmap.
        flags: u64,
        /// Offset in the file.
        offset: u64,
        /// The file's path on the host; empty if anonymous.
        path: Vec<u8>,
    },
    /// A mapping was removed.
    Munmap {
        /// Start.
        addr: u64,
        /// Length.
        len: u64,
    },
    /// A protection was changed.
    Mprotect {
        /// Start.
        addr: u64,
        /// Length.
        len: u64,
        /// Protection, as in mmap.
        prot: u64,
    },
    /// A signal is delivered to a handler.
    Signal {
        /// Its number.
        number: u64,
        /// The pc that was interrupted.
        from: u64,
        /// The handler's pc.
        to: u64,
    },
    /// Instructions of a block that has no words of its own were reached: the first time, or as a condition chose.
    Once {
        /// The block.
        block: u32,
        /// Index of the first of them.
        insn: u16,
        /// How many.
        count: u16,
    },
    /// Registers before an instruction.
    Regs {
        /// The block.
        block: u32,
        /// Index of the instruction.
        insn: u16,
        /// Which set: see [`Event::RegSet`].
        set: u64,
        /// The registers' values, each in as many words as it needs, the low one first.
        values: Vec<u64>,
    },
    /// What a set of registers holds. Comes before its first use, and again when a consumer has attached late.
    RegSet {
        /// Its number.
        set: u64,
        /// `name:bytes,name:bytes,…`
        registers: Vec<u8>,
    },
    /// An event of the analyzer's own.
    User {
        /// The block that was running, 0 if none.
        block: u32,
        /// Index of the instruction in it.
        insn: u16,
        /// The analyzer's number for it.
        id: u64,
        /// What it holds.
        bytes: Vec<u8>,
    },
    /// The image is loaded.
    Image {
        /// Entry pc.
        entry: u64,
        /// Load bias.
        bias: u64,
        /// Program break.
        brk: u64,
        /// The file's path on the host.
        path: Vec<u8>,
    },
}

impl Event {
    /// Its name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Start { .. } => "start",
            Event::End { .. } => "end",
            Event::Fork { .. } => "fork",
            Event::Exec { .. } => "exec",
            Event::Syscall { .. } => "syscall",
            Event::SyscallRet { .. } => "syscall_ret",
            Event::Mmap { .. } => "mmap",
            Event::Munmap { .. } => "munmap",
            Event::Mprotect { .. } => "mprotect",
            Event::Signal { .. } => "signal",
            Event::Image { .. } => "image",
            Event::Once { .. } => "once",
            Event::Regs { .. } => "regs",
            Event::RegSet { .. } => "regset",
            Event::User { .. } => "user",
        }
    }

    /// Parses a payload; the error says what is wrong.
    pub(crate) fn parse(kind: u8, payload: Words<'_>) -> Result<Event, String> {
        let mut at = 0usize;
        let mut word = || {
            at += 1;
            payload.get(at - 1).ok_or_else(|| format!("kind {kind} with a payload of only {} words", payload.len()))
        };
        Ok(match kind {
            kind::START => {
                Event::Start { pid: word()?, tid: word()?, parent: word()?, creator: word()?, wall_ns: word()? }
            }
            kind::END => Event::End {
                reason: match word()? {
                    end::THREAD => EndReason::Thread,
                    end::EXIT => EndReason::Exit,
                    end::SIGNAL => EndReason::Signal,
                    end::EXEC => EndReason::Exec,
                    other => EndReason::Other(other),
                },
                code: word()? as i64,
            },
            kind::FORK => Event::Fork { child: word()? },
            kind::EXEC => Event::Exec { path: path(payload, 0)? },
            kind::SYSCALL => Event::Syscall {
                pc: word()?,
                number: word()?,
                args: [word()?, word()?, word()?, word()?, word()?, word()?, word()?, word()?],
            },
            kind::SYSCALL_RET => Event::SyscallRet { number: word()?, result: word()? as i64 },
            kind::MMAP => Event::Mmap {
                addr: word()?,
                len: word()?,
                prot: word()?,
                flags: word()?,
                offset: word()?,
                path: path(payload, 5)?,
            },
            kind::MUNMAP => Event::Munmap { addr: word()?, len: word()? },
            kind::MPROTECT => Event::Mprotect { addr: word()?, len: word()?, prot: word()? },
            kind::SIGNAL => Event::Signal { number: word()?, from: word()?, to: word()? },
            kind::ONCE => {
                let place = word()?;
                Event::Once { block: (place >> 32) as u32, insn: (place >> 16) as u16, count: place as u16 }
            }
            kind::REGS => {
                let (place, set) = (word()?, word()?);
                let values = (2..payload.len()).filter_map(|i| payload.get(i)).collect();
                Event::Regs { block: (place >> 32) as u32, insn: (place >> 16) as u16, set, values }
            }
            kind::REGSET => Event::RegSet { set: word()?, registers: path(payload, 1)? },
            kind::USER => {
                let (place, id) = (word()?, word()?);
                let bytes = path(payload, 2)?;
                Event::User { block: (place >> 32) as u32, insn: (place >> 16) as u16, id, bytes }
            }
            kind::IMAGE => Event::Image { entry: word()?, bias: word()?, brk: word()?, path: path(payload, 3)? },
            _ => return Err(format!("kind {kind} in a place where it has no meaning")),
        })
    }
}

/// A path or another text: a word with its length in bytes, then the bytes.
fn path(payload: Words<'_>, at: usize) -> Result<Vec<u8>, String> {
    let len = payload.get(at).ok_or("a path without its length")?;
    let room = (payload.len() - at - 1) * 8;
    if len > room as u64 {
        return Err(format!("a path of {len} bytes in {room}"));
    }
    let mut bytes: Vec<u8> =
        (at + 1..payload.len()).filter_map(|i| payload.get(i)).flat_map(u64::to_ne_bytes).collect();
    bytes.truncate(len as usize);
    Ok(bytes)
}
