//! Sleeping on a shared word. Both sides spin shortly first: see `spin_then`.

use crate::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, at most `timeout`. Returns on any wake, signal or change: callers look again.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let ts = timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as libc::time_t, tv_nsec: t.subsec_nanos() as _ });
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

/// Under loom a futex is a lock and a condition: the look at the word and the sleep are one step, as in the kernel, so that a lost
/// wake-up is a deadlock that loom finds. There are no timeouts.
#[cfg(loom)]
mod model {
    use loom::sync::{Condvar, Mutex};
    loom::lazy_static! {
        pub static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }
}

/// Sleeps while `word` holds `expected`.
#[cfg(loom)]
pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) {
    let held = model::QUEUE.0.lock().unwrap();
    if word.load(crate::sync::atomic::Ordering::SeqCst) == expected {
        drop(model::QUEUE.1.wait(held).unwrap());
    }
}

/// Wakes all sleepers.
#[cfg(loom)]
pub fn wake(_word: &AtomicU32) {
    drop(model::QUEUE.0.lock().unwrap());
    model::QUEUE.1.notify_all();
}
