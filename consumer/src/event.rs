//! The rarer records, by name.

use crate::layout::{REGS_AFTER, end, kind};
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
        /// Its name; empty if it has none.
        name: String,
    },
    /// A system call returned.
    SyscallRet {
        /// Its number.
        number: u64,
        /// Its result.
        result: i64,
    },
    /// The kernel touched guest memory: in the system call that is about to return, or to deliver the signal before.
    Kernel {
        /// It wrote; otherwise it read.
        write: bool,
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// It is not known what it touched from there on; the length is 0.
        unknown: bool,
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
    /// Registers before an instruction, or after it.
    Regs {
        /// The block.
        block: u32,
        /// Index of the instruction.
        insn: u16,
        /// Which set: see [`Event::RegSet`].
        set: u64,
        /// They are those after the instruction.
        after: bool,
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
    /// An exception or interrupt has been delivered (full system).
    Exception {
        /// An interrupt: nothing that the guest did.
        interrupt: bool,
        /// Vector or cause, as the ISA numbers it; where it has no such number, QEMU's own.
        number: Option<u32>,
        /// Where the guest would have gone on.
        from: u64,
        /// Its handler.
        to: u64,
    },
    /// The address space is another (full system).
    Context {
        /// Physical address of the page tables' root.
        root: u64,
        /// Its number: PCID, ASID.
        asid: u64,
    },
    /// The pc was set from outside (full system).
    Moved {
        /// By a reset.
        reset: bool,
        /// Where the vCPU was.
        from: u64,
        /// Where it is.
        to: u64,
    },
    /// The vCPU waits for an interrupt (full system).
    Halt {
        /// Where it will go on.
        pc: u64,
    },
    /// It waits no more (full system).
    Resume {
        /// Where it goes on.
        pc: u64,
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
    /// Something that the guest did through the backdoor.
    Guest {
        /// The pc of the call; where the vCPU goes on if another's call made it follow.
        pc: u64,
        /// What.
        what: GuestEvent,
    },
}

/// What a guest does through the backdoor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestEvent {
    /// Tracing starts with the next instruction.
    Start {
        /// Whose: `backdoor::scope`.
        scope: u64,
        /// How deep now.
        depth: u64,
    },
    /// Tracing has stopped after the instruction before.
    Stop {
        /// Whose: `backdoor::scope`.
        scope: u64,
        /// How deep now.
        depth: u64,
    },
    /// A region of interest begins.
    RoiBegin {
        /// Its number.
        id: u64,
        /// Its name; may be empty.
        name: Vec<u8>,
    },
    /// It ends.
    RoiEnd {
        /// Its number.
        id: u64,
        /// Its name; may be empty.
        name: Vec<u8>,
    },
    /// An event.
    Event {
        /// Its number.
        id: u64,
        /// Its values.
        args: [u64; 4],
        /// The number's name; empty if it has none.
        name: Vec<u8>,
    },
    /// An event's name gets its number.
    Define {
        /// The number.
        id: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// A marker.
    Mark {
        /// Its value.
        value: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// A line of text.
    Log {
        /// Its level.
        level: u64,
        /// Another such event goes on with it.
        more: bool,
        /// The text.
        text: Vec<u8>,
    },
    /// Bytes to a consumer.
    Send {
        /// On this channel.
        channel: u64,
        /// Another such event goes on with them.
        more: bool,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The thread's name.
    ThreadName {
        /// The name.
        name: Vec<u8>,
    },
    /// Consumers should report, or forget, what they have so far.
    Stats {
        /// Forget.
        reset: bool,
        /// What the guest calls it.
        label: Vec<u8>,
    },
    /// A symbol that no file knows.
    Symbol {
        /// Its address.
        addr: u64,
        /// Its size in bytes.
        size: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// A call that is the analyzer's own.
    Call {
        /// The operation.
        op: u64,
        /// Its arguments.
        args: [u64; 6],
        /// What the analyzer gave.
        result: i64,
    },
}

impl GuestEvent {
    /// Its name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            GuestEvent::Start { .. } => "trace_start",
            GuestEvent::Stop { .. } => "trace_stop",
            GuestEvent::RoiBegin { .. } => "roi_begin",
            GuestEvent::RoiEnd { .. } => "roi_end",
            GuestEvent::Event { .. } => "event",
            GuestEvent::Define { .. } => "define",
            GuestEvent::Mark { .. } => "mark",
            GuestEvent::Log { .. } => "log",
            GuestEvent::Send { .. } => "send",
            GuestEvent::ThreadName { .. } => "thread_name",
            GuestEvent::Stats { reset: false, .. } => "stats_dump",
            GuestEvent::Stats { reset: true, .. } => "stats_reset",
            GuestEvent::Symbol { .. } => "symbol",
            GuestEvent::Call { .. } => "call",
        }
    }

    /// Parses what follows the pc.
    fn parse(kind: u8, payload: Words<'_>) -> Result<GuestEvent, String> {
        let word =
            |i| payload.get(i).ok_or_else(|| format!("kind {kind} with a payload of only {} words", payload.len()));
        Ok(match kind {
            kind::TRACE_START => GuestEvent::Start { scope: word(1)?, depth: word(2)? },
            kind::TRACE_STOP => GuestEvent::Stop { scope: word(1)?, depth: word(2)? },
            kind::ROI_BEGIN => GuestEvent::RoiBegin { id: word(1)?, name: path(payload, 2)? },
            kind::ROI_END => GuestEvent::RoiEnd { id: word(1)?, name: path(payload, 2)? },
            kind::GUEST_EVENT => GuestEvent::Event {
                id: word(1)?,
                args: [word(2)?, word(3)?, word(4)?, word(5)?],
                name: path(payload, 6)?,
            },
            kind::DEFINE => GuestEvent::Define { id: word(1)?, name: path(payload, 2)? },
            kind::MARK => GuestEvent::Mark { value: word(1)?, name: path(payload, 2)? },
            kind::LOG => GuestEvent::Log { level: word(1)?, more: word(2)? != 0, text: path(payload, 3)? },
            kind::SEND => GuestEvent::Send { channel: word(1)?, more: word(2)? != 0, bytes: path(payload, 3)? },
            kind::THREAD_NAME => GuestEvent::ThreadName { name: path(payload, 1)? },
            kind::STATS => GuestEvent::Stats { reset: word(1)? != 0, label: path(payload, 2)? },
            kind::SYMBOL => GuestEvent::Symbol { addr: word(1)?, size: word(2)?, name: path(payload, 3)? },
            kind::CALL => GuestEvent::Call {
                op: word(1)?,
                args: [word(2)?, word(3)?, word(4)?, word(5)?, word(6)?, word(7)?],
                result: word(8)? as i64,
            },
            _ => return Err(format!("kind {kind} in a place where it has no meaning")),
        })
    }
}

impl Event {
    /// Where the stream was when something else than the instruction before came between: a signal, an exception, an interrupt, a pc that
    /// was set from outside.
    pub fn came_at(&self) -> Option<u64> {
        match self {
            Event::Signal { from, .. } | Event::Exception { from, .. } | Event::Moved { from, .. } => Some(*from),
            _ => None,
        }
    }

    /// Its name in traces.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Start { .. } => "start",
            Event::End { .. } => "end",
            Event::Fork { .. } => "fork",
            Event::Exec { .. } => "exec",
            Event::Syscall { .. } => "syscall",
            Event::SyscallRet { .. } => "syscall_ret",
            Event::Kernel { write: false, .. } => "kernel_read",
            Event::Kernel { write: true, .. } => "kernel_write",
            Event::Mmap { .. } => "mmap",
            Event::Munmap { .. } => "munmap",
            Event::Mprotect { .. } => "mprotect",
            Event::Signal { .. } => "signal",
            Event::Exception { interrupt: false, .. } => "exception",
            Event::Exception { interrupt: true, .. } => "interrupt",
            Event::Context { .. } => "context",
            Event::Moved { reset: true, .. } => "reset",
            Event::Moved { reset: false, .. } => "moved",
            Event::Halt { .. } => "halt",
            Event::Resume { .. } => "resume",
            Event::Image { .. } => "image",
            Event::Once { .. } => "once",
            Event::Regs { .. } => "regs",
            Event::RegSet { .. } => "regset",
            Event::User { .. } => "user",
            Event::Guest { what, .. } => what.name(),
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
                name: match payload.len() {
                    // As it was recorded before names were.
                    10 => String::new(),
                    _ => String::from_utf8_lossy(&path(payload, 10)?).into_owned(),
                },
            },
            kind::SYSCALL_RET => Event::SyscallRet { number: word()?, result: word()? as i64 },
            kind::KERNEL_READ | kind::KERNEL_WRITE => {
                Event::Kernel { write: kind == kind::KERNEL_WRITE, addr: word()?, len: word()?, unknown: word()? != 0 }
            }
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
            kind::EXCEPTION | kind::INTERRUPT => Event::Exception {
                interrupt: kind == kind::INTERRUPT,
                number: u32::try_from(word()?).ok(),
                from: word()?,
                to: word()?,
            },
            kind::CONTEXT => Event::Context { root: word()?, asid: word()? },
            kind::MOVED => Event::Moved { reset: word()? == 1, from: word()?, to: word()? },
            kind::HALT => Event::Halt { pc: word()? },
            kind::RESUME => Event::Resume { pc: word()? },
            kind::ONCE => {
                let place = word()?;
                Event::Once { block: (place >> 32) as u32, insn: (place >> 16) as u16, count: place as u16 }
            }
            kind::REGS => {
                let (place, number) = (word()?, word()?);
                let (set, after) = (number & !REGS_AFTER, number & REGS_AFTER != 0);
                let values = (2..payload.len()).filter_map(|i| payload.get(i)).collect();
                Event::Regs { block: (place >> 32) as u32, insn: (place >> 16) as u16, set, after, values }
            }
            kind::REGSET => Event::RegSet { set: word()?, registers: path(payload, 1)? },
            kind::USER => {
                let (place, id) = (word()?, word()?);
                let bytes = path(payload, 2)?;
                Event::User { block: (place >> 32) as u32, insn: (place >> 16) as u16, id, bytes }
            }
            kind::IMAGE => Event::Image { entry: word()?, bias: word()?, brk: word()?, path: path(payload, 3)? },
            kind::TRACE_START..=kind::CALL => Event::Guest { pc: word()?, what: GuestEvent::parse(kind, payload)? },
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
