//! Sleeping on a shared word. Both sides spin shortly first: see [`spin_then`].

use crate::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, at most `timeout`. Returns on any wake, signal or change: callers look again.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs() as libc::time_t,
        tv_nsec: t.subsec_nanos() as _,
    });
    let ts_ptr = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: the word lives for the call; a shared (not private) futex, since the peer is another process.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, ts_ptr);
    }
}

/// Wakes all that sleep on `word`.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32) {
    // SAFETY: as in `wait`.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// Under loom a sleeper yields: the model explores all schedules anyway.
#[cfg(loom)]
pub fn wait(_word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) {
    loom::thread::yield_now();
}

/// Under loom nobody sleeps.
#[cfg(loom)]
pub fn wake(_word: &AtomicU32) {}
