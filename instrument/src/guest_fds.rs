//! Descriptors of ours in the guest's process: out of the guest's way.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Moves a descriptor to a high number, so that the guest gets the low ones that it expects.
pub(crate) fn raise(fd: OwnedFd) -> io::Result<OwnedFd> {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: plain system calls; the result of F_DUPFD_CLOEXEC is new and ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let from = limit.rlim_cur.saturating_sub(limit.rlim_cur / 4).min(1 << 16) as i32;
        let high = libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from);
        if high >= 0 { Ok(OwnedFd::from_raw_fd(high)) } else { Ok(fd) }
    }
}

/// Lets a descriptor survive the next `execve`, or not.
pub(crate) fn keep_on_exec(fd: i32, keep: bool) {
    // SAFETY: plain system call.
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, if keep { 0 } else { libc::FD_CLOEXEC });
    }
}
