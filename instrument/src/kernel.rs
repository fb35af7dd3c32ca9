//! What the kernel touches for the guest: in system calls and when it delivers signals (user mode).
//!
//! QEMU is the guest's kernel, and whatever it touches it locks first: `lock_user()` and what is built on it. The patch notes what is locked and
//! how much of it was written when it is unlocked. That is what the kernel touches, in the layouts of the guest's own ABI, except where QEMU locks more
//! or less than it uses; those calls stand in [`Thread::correct`], by name.
//!
//! Rules:
//! * Told when the call returns, between the call and its return: only then is it known how much was moved.
//! * Data (the buffers of `write`, `readv`, `recvmsg`, …) counts as far as the result says; a call that failed moved none.
//! * What was locked for writing and never unlocked is written if the call succeeded.
//! * A structure counts as a whole; the same bytes read twice count once.

use crate::ffi::*;
use crate::runtime;
use pipe::layout::kind;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CStr;
use std::sync::OnceLock;

/// How QEMU names system calls.
type Names = unsafe extern "C" fn(i64) -> *const std::ffi::c_char;

static NAMES: OnceLock<Option<Names>> = OnceLock::new();

/// System calls that QEMU's own table lacks, from number 403 on: since Linux 5.1 all ISAs number new ones alike, plus a number of their own.
const COMMON: [&str; 60] = [
    "clock_gettime64",
    "clock_settime64",
    "clock_adjtime64",
    "clock_getres_time64",
    "clock_nanosleep_time64",
    "timer_gettime64",
    "timer_settime64",
    "timerfd_gettime64",
    "timerfd_settime64",
    "utimensat_time64",
    "pselect6_time64",
    "ppoll_time64",
    "",
    "io_pgetevents_time64",
    "recvmmsg_time64",
    "mq_timedsend_time64",
    "mq_timedreceive_time64",
    "semtimedop_time64",
    "rt_sigtimedwait_time64",
    "futex_time64",
    "sched_rr_get_interval_time64",
    "pidfd_send_signal",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "pidfd_open",
    "clone3",
    "close_range",
    "openat2",
    "pidfd_getfd",
    "faccessat2",
    "process_madvise",
    "epoll_pwait2",
    "mount_setattr",
    "quotactl_fd",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "memfd_secret",
    "process_mrelease",
    "futex_waitv",
    "set_mempolicy_home_node",
    "cachestat",
    "fchmodat2",
    "map_shadow_stack",
    "futex_wake",
    "futex_wait",
    "futex_requeue",
    "statmount",
    "listmount",
    "lsm_get_self_attr",
    "lsm_set_self_attr",
    "lsm_list_modules",
    "mseal",
];

/// What is added to the common numbers, by QEMU's name of the target; those of it that differ from 0.
fn base_of(target: &str) -> i64 {
    match target {
        "mips" | "mipsel" => 4000,
        "mips64" | "mips64el" => 5000,
        "mipsn32" | "mipsn32el" => 6000,
        "alpha" => 110,
        _ => 0,
    }
}

fn common_name(target: &str, number: i64) -> Option<&'static str> {
    let at = usize::try_from(number - base_of(target) - 403).ok()?;
    COMMON.get(at).copied().filter(|n| !n.is_empty() && target != "xtensa" && target != "xtensaeb")
}

static TARGET: OnceLock<String> = OnceLock::new();

pub(crate) fn set_names(names: Option<Names>, target: &str) {
    let _ = NAMES.set(names);
    let _ = TARGET.set(target.to_string());
}

/// The name of a system call.
pub(crate) fn name_of(number: i64) -> Option<&'static str> {
    THREAD.with_borrow_mut(|t| *t.names.entry(number).or_insert_with(|| look_up(number)))
}

fn look_up(number: i64) -> Option<&'static str> {
    let qemu = NAMES.get().copied().flatten().and_then(|names| {
        // SAFETY: QEMU's function, which returns NULL or a string constant.
        let name = unsafe { names(number) };
        // SAFETY: as above.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?.to_str().ok()
    });
    qemu.or_else(|| common_name(TARGET.get()?, number))
}

/// Something that was locked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    addr: u64,
    length: u64,
    read: bool,
    write: bool,
    /// How much of it was written, once that is known. Bytes.
    wrote: Option<u64>,
    /// How much is moved is not known yet.
    data: bool,
}

/// An access of the kernel's: address, length in bytes, `TRAPLINE_KERNEL_*`.
type Access = (u64, u64, u32);

#[derive(Default)]
struct Thread {
    names: HashMap<i64, Option<&'static str>>,
    /// The call that is being made.
    call: Option<(&'static str, [u64; 8])>,
    notes: Vec<Note>,
    /// What is left to be told.
    told: Option<VecDeque<Access>>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// A system call begins; returns its name.
pub(crate) fn call(number: i64, args: [u64; 8]) -> Option<&'static str> {
    let name = name_of(number);
    THREAD.with_borrow_mut(|t| t.call = Some((name.unwrap_or_default(), args)));
    name
}

/// It has returned.
pub(crate) fn returned() {
    THREAD.with_borrow_mut(|t| t.call = None);
}

/// This thread is a forked child's: what it did before was the parent's.
pub(crate) fn forked() {
    THREAD.with_borrow_mut(|t| t.notes.clear());
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_kernel_locked(addr: u64, length: u64, flags: u32) {
    let has = |flag| flags & flag != 0;
    let note = Note {
        addr,
        length,
        read: has(TRAPLINE_KERNEL_READ),
        write: has(TRAPLINE_KERNEL_WRITE),
        wrote: None,
        data: has(TRAPLINE_KERNEL_DATA),
    };
    THREAD.with_borrow_mut(|t| t.notes.push(note));
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_kernel_unlocked(addr: u64, length: u64) {
    THREAD.with_borrow_mut(|t| {
        // What is unlocked was most often locked last.
        if let Some(n) = t.notes.iter_mut().rev().find(|n| n.addr == addr && n.write && n.wrote.is_none()) {
            n.wrote = Some(length.min(n.length));
        }
    });
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn trapline_kernel_moved(length: i64) {
    THREAD.with_borrow_mut(|t| t.moved(length));
}

/// See the header.
///
/// # Safety
/// `vcpu` is valid and belongs to the calling thread; `touched` is to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trapline_kernel_next(
    vcpu: *mut TraplineVcpu,
    result: i64,
    touched: *mut TraplineKernel,
) -> bool {
    let next = THREAD.with_borrow_mut(|t| {
        if t.told.is_none() {
            t.told = Some(t.settle(result));
        }
        let next = t.told.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            t.told = None;
        }
        next
    });
    let Some((addr, length, flags)) = next else { return false };
    let kind = if flags & TRAPLINE_KERNEL_WRITE != 0 { kind::KERNEL_WRITE } else { kind::KERNEL_READ };
    let unknown = u64::from(flags & TRAPLINE_KERNEL_UNKNOWN != 0);
    // SAFETY: by contract.
    unsafe {
        runtime::event(vcpu, kind, &[addr, length, unknown]);
        touched.write(TraplineKernel { addr, length, flags, reserved: 0 });
    }
    true
}

/// Operations of futex whose kernel side looks at the first word, and those that change a word: the first or the second.
mod futex {
    pub const WAIT: u64 = 0;
    pub const CMP_REQUEUE: u64 = 4;
    pub const WAKE_OP: u64 = 5;
    pub const LOCK_PI: u64 = 6;
    pub const UNLOCK_PI: u64 = 7;
    pub const TRYLOCK_PI: u64 = 8;
    pub const WAIT_BITSET: u64 = 9;
    pub const WAIT_REQUEUE_PI: u64 = 11;
    pub const CMP_REQUEUE_PI: u64 = 12;
    pub const LOCK_PI2: u64 = 13;
    /// The operation without its flags.
    pub const COMMAND: u64 = 0x7f;
}

/// Error numbers that are the same everywhere.
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;

const PR_GET_NAME: u64 = 16;
const SYS_RECVMSG: u64 = 17;
/// `struct pollfd`: its size, and where in it the kernel's answer is and how long. Bytes.
const POLLFD: (u64, u64, u64) = (8, 6, 2);

/// The host's, in bytes.
fn page_size() -> u64 {
    // SAFETY: plain library call.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl Thread {
    /// Of the data that has been locked, `length` bytes were moved.
    fn moved(&mut self, length: i64) {
        let mut left = u64::try_from(length).unwrap_or(0);
        for n in self.notes.iter_mut().filter(|n| n.data) {
            let here = n.length.min(left);
            left -= here;
            n.data = false;
            if n.write {
                n.wrote = Some(here.min(n.wrote.unwrap_or(here)));
            } else {
                n.length = here;
            }
        }
    }

    /// What the notes come to, and the notes are gone.
    fn settle(&mut self, result: i64) -> VecDeque<Access> {
        let mut more = VecDeque::new();
        match self.call.take() {
            Some((name, args)) => self.correct(name, &args, result, &mut more),
            // A signal's frame, which some ISAs' code locks for reading, too.
            None => self.notes.iter_mut().filter(|n| n.write).for_each(|n| n.read = false),
        }
        self.moved(result);
        let mut seen = HashSet::new();
        let mut all = VecDeque::new();
        for n in self.notes.drain(..) {
            if n.read && n.length > 0 && seen.insert((n.addr, n.length)) {
                all.push_back((n.addr, n.length, TRAPLINE_KERNEL_READ));
            }
            let wrote = n.wrote.unwrap_or(if result >= 0 { n.length } else { 0 });
            if n.write && wrote > 0 {
                all.push_back((n.addr, wrote, TRAPLINE_KERNEL_WRITE));
            }
        }
        all.append(&mut more);
        all
    }

    /// Where QEMU locks something else than what the kernel touches.
    fn correct(&mut self, name: &str, args: &[u64; 8], result: i64, more: &mut VecDeque<Access>) {
        let at = |addr: u64| move |n: &&mut Note| n.addr == addr;
        match name {
            // Locked is the buffer; moved is what the result says.
            "write" | "pwrite64" | "syslog" | "listxattr" | "llistxattr" | "flistxattr" => {
                self.notes.iter_mut().filter(at(args[1])).for_each(|n| n.data = true);
            }
            "getxattr" | "lgetxattr" | "fgetxattr" => {
                self.notes.iter_mut().filter(at(args[2])).for_each(|n| n.data = true);
            }
            "mq_timedreceive" | "mq_timedreceive_time64" => {
                for n in self.notes.iter_mut().filter(at(args[1])) {
                    (n.read, n.write, n.data) = (false, true, true);
                }
            }
            // A byte for each page of the host's; QEMU takes them for a string.
            "mincore" => {
                for n in self.notes.iter_mut().filter(at(args[2])) {
                    (n.read, n.write) = (false, true);
                    (n.length, n.wrote) = (args[1].div_ceil(page_size()), None);
                }
            }
            // The kernel reads the descriptors and events, and writes what happened only.
            "poll" | "ppoll" | "ppoll_time64" => {
                let (size, offset, length) = POLLFD;
                let Some(i) = self.notes.iter().position(|n| n.addr == args[0] && n.write) else { return };
                self.notes[i].write = false;
                let answers = (0..self.notes[i].length / size).filter(|_| result >= 0);
                more.extend(answers.map(|k| (args[0] + k * size + offset, length, TRAPLINE_KERNEL_WRITE)));
            }
            // Locked for reading and writing; only written.
            "gettimeofday" => self.notes.iter_mut().for_each(|n| n.read = false),
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => {
                self.notes.iter_mut().filter(at(args[1])).for_each(|n| n.read = false);
            }
            "getsockopt" | "prlimit64" => {
                self.notes.iter_mut().filter(at(args[3])).for_each(|n| n.read = false);
            }
            "prctl" if args[0] == PR_GET_NAME => self.notes.iter_mut().for_each(|n| n.read = false),
            // Locked for writing only; it says where to write, too.
            "recvmsg" => self.notes.iter_mut().filter(at(args[1])).for_each(|n| n.read = true),
            "socketcall" if args[0] == SYS_RECVMSG => {
                if let Some(n) = self.notes.iter_mut().find(|n| n.write) {
                    n.read = true;
                }
            }
            // Unlocked with a wrong length.
            "semctl" | "ipc" => {
                self.notes.iter_mut().filter(|n| n.wrote == Some(1)).for_each(|n| n.wrote = Some(n.length));
            }
            "futex" | "futex_time64" if result != EFAULT && result != EINVAL => {
                let change = TRAPLINE_KERNEL_READ | if result >= 0 { TRAPLINE_KERNEL_WRITE } else { 0 };
                let (word, what) = match args[1] & futex::COMMAND {
                    futex::WAIT | futex::WAIT_BITSET | futex::WAIT_REQUEUE_PI => (args[0], TRAPLINE_KERNEL_READ),
                    futex::CMP_REQUEUE | futex::CMP_REQUEUE_PI => (args[0], TRAPLINE_KERNEL_READ),
                    futex::LOCK_PI | futex::LOCK_PI2 | futex::TRYLOCK_PI | futex::UNLOCK_PI => (args[0], change),
                    futex::WAKE_OP => (args[4], change),
                    _ => return,
                };
                for direction in [TRAPLINE_KERNEL_READ, TRAPLINE_KERNEL_WRITE] {
                    if what & direction != 0 {
                        more.push_back((word, 4, direction));
                    }
                }
            }
            // Data that only the file system understands.
            "mount" if args[4] != 0 => {
                more.push_back((args[4], 0, TRAPLINE_KERNEL_READ | TRAPLINE_KERNEL_UNKNOWN));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: u32 = TRAPLINE_KERNEL_READ;
    const W: u32 = TRAPLINE_KERNEL_WRITE;
    const D: u32 = TRAPLINE_KERNEL_DATA;

    /// A call that locks this, then unlocks that, and returns `result`.
    fn told(
        name: &'static str,
        args: [u64; 5],
        locked: &[Access],
        unlocked: &[(u64, u64)],
        result: i64,
    ) -> Vec<Access> {
        let mut all = [0; 8];
        all[..5].copy_from_slice(&args);
        THREAD.with_borrow_mut(|t| t.call = Some((name, all)));
        locked.iter().for_each(|&(addr, length, flags)| trapline_kernel_locked(addr, length, flags));
        unlocked.iter().for_each(|&(addr, length)| trapline_kernel_unlocked(addr, length));
        THREAD.with_borrow_mut(|t| t.settle(result)).into()
    }

    #[test]
    fn as_much_is_written_as_is_unlocked() {
        assert_eq!(told("read", [3, 0x100, 64, 0, 0], &[(0x100, 64, W)], &[(0x100, 16)], 16), [(0x100, 16, W)]);
        assert_eq!(told("read", [3, 0x100, 64, 0, 0], &[(0x100, 64, W)], &[(0x100, 0)], -9), []);
        // Never unlocked.
        assert_eq!(told("times", [0x100, 0, 0, 0, 0], &[(0x100, 32, W)], &[], 5), [(0x100, 32, W)]);
        assert_eq!(told("times", [0x100, 0, 0, 0, 0], &[(0x100, 32, W)], &[], -14), []);
    }

    #[test]
    fn data_counts_as_far_as_the_result_says() {
        let write = |result| told("write", [1, 0x100, 64, 0, 0], &[(0x100, 64, R)], &[(0x100, 0)], result);
        assert_eq!(write(64), [(0x100, 64, R)]);
        assert_eq!(write(3), [(0x100, 3, R)]);
        assert_eq!(write(-32), []);
        let vector = [(0x10, 48, R), (0x100, 8, W | D), (0x200, 8, W | D), (0x300, 8, W | D), (0x10, 48, R)];
        let unlocked = [(0x100, 8), (0x200, 8), (0x300, 8)];
        assert_eq!(
            told("readv", [3, 0x10, 3, 0, 0], &vector, &unlocked, 11),
            [(0x10, 48, R), (0x100, 8, W), (0x200, 3, W)]
        );
        assert_eq!(told("readv", [3, 0x10, 3, 0, 0], &vector, &unlocked, -11), [(0x10, 48, R)]);
    }

    #[test]
    fn of_several_messages_each_has_its_length() {
        THREAD.with_borrow_mut(|t| t.call = Some(("recvmmsg", [0; 8])));
        for (addr, moved) in [(0x100, 5), (0x200, 7)] {
            trapline_kernel_locked(addr, 64, W | D);
            trapline_kernel_unlocked(addr, 64);
            trapline_kernel_moved(moved);
        }
        let all: Vec<_> = THREAD.with_borrow_mut(|t| t.settle(2)).into();
        assert_eq!(all, [(0x100, 5, W), (0x200, 7, W)]);
    }

    #[test]
    fn what_qemu_locks_otherwise_is_corrected() {
        assert_eq!(
            told("poll", [0x100, 2, 0, 0, 0], &[(0x100, 16, R | W)], &[(0x100, 16)], 0),
            [(0x100, 16, R), (0x106, 2, W), (0x10e, 2, W)]
        );
        assert_eq!(told("mincore", [0x4000, 0x2001, 0x100, 0, 0], &[(0x100, 1, R)], &[(0x100, 0)], 0), [(0x100, 3, W)]);
        assert_eq!(
            told("gettimeofday", [0x100, 0x200, 0, 0, 0], &[(0x200, 8, R | W)], &[(0x200, 8)], 0),
            [(0x200, 8, W)]
        );
        let futex = |op, result| told("futex", [0x100, op, 1, 0, 0x200], &[], &[], result);
        assert_eq!(futex(0x80, -11), [(0x100, 4, R)]);
        assert_eq!(futex(0x80, EFAULT), []);
        assert_eq!(futex(0x81, 1), []);
        assert_eq!(futex(5, 1), [(0x200, 4, R), (0x200, 4, W)]);
        assert_eq!(told("mount", [0, 0, 0, 0, 0x100], &[], &[], -1), [(0x100, 0, R | TRAPLINE_KERNEL_UNKNOWN)]);
    }

    #[test]
    fn a_signals_frame_is_only_written() {
        trapline_kernel_locked(0x100, 64, R | W);
        trapline_kernel_unlocked(0x100, 64);
        assert_eq!(Vec::from(THREAD.with_borrow_mut(|t| t.settle(0))), [(0x100, 64, W)]);
    }

    #[test]
    fn common_numbers_have_names() {
        assert_eq!(common_name("i386", 403), Some("clock_gettime64"));
        assert_eq!(common_name("aarch64", 435), Some("clone3"));
        assert_eq!(common_name("mips", 4422), Some("futex_time64"));
        assert_eq!(common_name("s390x", 415), None);
        assert_eq!(common_name("x86_64", 462), Some("mseal"));
        assert_eq!(common_name("x86_64", 463), None);
        assert_eq!(common_name("riscv64", 7), None);
    }
}
