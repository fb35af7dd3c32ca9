//! Descriptors of ours in the guest's process: out of the guest's way.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A copy of the descriptor with a high number, if there can be one.
fn high(fd: i32) -> Option<OwnedFd> {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: plain system calls; the result of F_DUPFD_CLOEXEC is new and ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let from = limit.rlim_cur.saturating_sub(limit.rlim_cur / 4).min(1 << 16) as i32;
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, from);
        (high >= 0).then(|| OwnedFd::from_raw_fd(high))
    }
}

/// Moves a descriptor to a high number, so that the guest gets the low ones that it expects.
pub(crate) fn raise(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(high(fd.as_raw_fd()).unwrap_or(fd))
}

/// Before QEMU starts its first thread: the kernel's table of descriptors grows to the size that [`raise`] needs. With several threads
/// that takes an RCU grace period, 10 to 20 ms.
#[cfg(target_os = "linux")]
extern "C" fn grow_table() {
    // Whichever is open; if none is, the table grows later.
    drop((0..3).find_map(high));
}

#[cfg(target_os = "linux")]
#[used]
// Earlier than constructors without a number, one of which starts QEMU's first thread.
#[unsafe(link_section = ".init_array.00110")]
static GROW_TABLE: extern "C" fn() = grow_table;

/// Lets a descriptor survive the next `execve`, or not.
pub(crate) fn keep_on_exec(fd: i32, keep: bool) {
    // SAFETY: plain system call.
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, if keep { 0 } else { libc::FD_CLOEXEC });
    }
}
