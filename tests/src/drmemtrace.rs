//! A reader of DynamoRIO's memory traces, from their public definition.

use std::collections::{HashMap, HashSet};

/// What is in a trace that DynamoRIO's reader and its invariant checker accept.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Drmemtrace {
    pub insns: u64,
    pub reads: u64,
    pub writes: u64,
    pub signals: u64,
    pub transfers: u64,
    pub syscalls: u64,
    /// Bits of its type.
    pub file_type: u64,
    /// Exceptions and interrupts of a machine, and returns from them.
    pub hardware: (u64, u64),
    /// Times that another thread's turn began.
    pub turns: u64,
    /// Threads that left.
    pub threads: HashSet<u64>,
}

/// What is known of a thread, or of a core that runs the kernel.
#[derive(Default)]
struct Thread {
    /// Where it may go on.
    expected: Option<u64>,
    last_pc: u64,
    called: bool,
    handlers: Vec<u64>,
}

/// Reads a trace, and fails where it is none.
///
/// # Panics
/// If the trace is not as it must be.
pub fn drmemtrace(bytes: &[u8]) -> Drmemtrace {
    assert_eq!(bytes.len() % 12, 0);
    let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    let word = |b: &[u8]| b.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
    let mut all = bytes.chunks(12).map(|e| (half(&e[..2]), half(&e[2..4]), word(&e[4..]))).peekable();
    let mut next = || all.next();
    // The header's order.
    assert_eq!(next(), Some((25, 0, 7)));
    assert_eq!(next(), Some((28, 12, 7)));
    let file_type = next().expect("a type");
    assert_eq!((file_type.0, file_type.1), (28, 9));
    assert_ne!(file_type.2 & 0x200, 0, "encodings are promised");
    let (sharded, machine) = (file_type.2 & 0x1_0000 != 0, file_type.2 & 0x4_0000 != 0);
    assert!(sharded || !machine);
    let (thread, process) = (next().expect("a thread"), next().expect("a process"));
    assert_eq!((thread.0, process.0), (22, 24));
    let (mut tid, mut pid) = (thread.2, process.2);
    assert_eq!(next(), Some((28, 10, 64)));
    let mut d = Drmemtrace { file_type: file_type.2, ..Drmemtrace::default() };
    let mut encodings: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut encoding = Vec::new();
    let (mut target, mut last_time) = (None, 0);
    // In a machine the core goes on where it is, whoever's turn it is.
    let mut threads: HashMap<u64, Thread> = HashMap::new();
    let mut ended = false;
    while let Some((kind, size, addr)) = next() {
        assert!(!ended, "something follows the footer");
        let t = threads.entry(if machine { 0 } else { tid }).or_default();
        match kind {
            22 => {
                assert!(sharded, "a second thread in a thread's file");
                assert!(encoding.is_empty() && target.is_none(), "a turn ends within an instruction");
                assert!(!d.threads.contains(&addr), "thread {addr} has left");
                let process = next().expect("a process");
                assert_eq!(process.0, 24);
                (tid, pid, d.turns) = (addr, process.2, d.turns + 1);
            }
            47 => {
                assert!((1..=8).contains(&size));
                encoding.extend_from_slice(&addr.to_le_bytes()[..usize::from(size)]);
            }
            10..=16 | 31 | 48 | 49 => {
                if !encoding.is_empty() {
                    encodings.insert((pid, addr), std::mem::take(&mut encoding));
                }
                let known = encodings.get(&(pid, addr)).unwrap_or_else(|| panic!("no encoding of {addr:#x}"));
                assert_eq!(known.len(), usize::from(size), "the encoding's length at {addr:#x}");
                if let Some(expected) = t.expected {
                    assert_eq!(addr, expected, "after {:#x}", t.last_pc);
                }
                let following = addr.wrapping_add(u64::from(size));
                assert_eq!(target.is_some(), matches!(kind, 12 | 15 | 16), "a target at {addr:#x}");
                t.expected = match kind {
                    12 | 15 | 16 => target.take().filter(|t| *t != 0),
                    11 | 14 | 48 => None,
                    _ => Some(following),
                };
                (t.last_pc, d.insns, t.called) = (addr, d.insns + 1, false);
            }
            29 => assert_eq!(addr, t.last_pc, "an iteration of another instruction"),
            0 => d.reads += 1,
            1 => d.writes += 1,
            28 => match size {
                2 => {
                    assert!(addr >= last_time, "time goes back");
                    last_time = addr;
                    assert_eq!(next().map(|e| (e.0, e.1)), Some((28, 3)), "a time without a CPU");
                }
                0 => {
                    assert!(!machine, "a signal in a machine");
                    d.signals += 1;
                    // A system call that a signal interrupts is made again.
                    let restarts = t.called && addr == t.last_pc;
                    if let (Some(expected), false) = (t.expected, restarts) {
                        assert_eq!(addr, expected, "a signal elsewhere than the program was");
                    }
                    t.handlers.push(addr);
                    t.expected = None;
                }
                1 => {
                    d.transfers += 1;
                    // The handler returns to where the signal came, unless it changed that.
                    t.expected = None;
                    t.handlers.pop().expect("a return without a signal");
                }
                25 => {
                    d.syscalls += 1;
                    t.called = true;
                }
                29 => target = Some(addr),
                43 => {
                    assert!(machine, "a hardware event of a program");
                    d.hardware.0 += 1;
                    if let Some(expected) = t.expected {
                        assert_eq!(addr, expected, "an exception elsewhere than the machine was");
                    }
                    t.handlers.push(addr);
                    t.expected = None;
                }
                44 => {
                    d.hardware.1 += 1;
                    t.handlers.pop().expect("a return without an event");
                }
                18 | 20 => {}
                other => panic!("a marker {other}"),
            },
            23 => {
                assert_eq!(addr, tid);
                assert!(d.threads.insert(tid), "thread {tid} leaves twice");
            }
            26 => {
                assert_eq!((size, addr), (0, 0));
                ended = true;
            }
            other => panic!("an entry {other}"),
        }
    }
    assert!(ended && encoding.is_empty() && target.is_none());
    assert!(d.threads.contains(&thread.2) && (sharded || d.threads.len() == 1));
    d
}
