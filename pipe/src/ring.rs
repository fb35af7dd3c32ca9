//! The protocol between the writer of a stream and its readers.
//!
//! Rules:
//! * The writer fills chunk `open`; all chunks below are complete. Chunk `seq` lives at index `seq % chunk_count`.
//! * The writer takes chunk `seq` into use only when no active, lossless consumer needs chunk `seq - chunk_count`.
//! * A consumer raises `needed` when it has done with a chunk, and never lowers it.
//! * A place is made active by the writer's process while the writer runs: the one who attaches stores `needed`, then
//!   `state`, then reads `open` again; the writer stores `open`, then reads `state` (both sequentially consistent), so
//!   that one of the two sees the other and no chunk from the final `needed` on is overwritten.

use crate::futex;
use crate::layout::consumer_state;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// A consumer's line, as the protocol sees it.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// `consumer_state::*`.
    pub state: &'a AtomicU32,
    /// 1 if it may be overrun.
    pub lossy: &'a AtomicU32,
    /// First chunk it needs.
    pub needed: &'a AtomicU64,
}

/// The lowest chunk that an active lossless consumer needs; `u64::MAX` if there is none.
pub fn lowest_needed<'a>(lines: impl Iterator<Item = Line<'a>>) -> u64 {
    lines
        .filter(|l| l.state.load(Ordering::SeqCst) == consumer_state::ACTIVE && l.lossy.load(Ordering::Relaxed) == 0)
        // Acquire pairs with the Release in `release`: what the consumer read of the chunk happened before.
        .map(|l| l.needed.load(Ordering::Acquire))
        .min()
        .unwrap_or(u64::MAX)
}

/// Publishes that chunk `next` is the open one now; `lines` are looked at afterwards only.
pub fn open(open: &AtomicU64, next: u64) {
    // Release: the chunk's words and description happened before; SeqCst fence: see the module's rules.
    open.store(next, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// What `room_wanted` says if the writer waits for `lowest_needed` to reach `target`; 1 stands for "any".
fn wanted(target: u64) -> u32 {
    match (target as u32) << 1 {
        0 => 1,
        wanted => wanted,
    }
}

/// Waits until chunk `next` may overwrite chunk `next - count`. A writer that has to sleep for it sleeps until half of the ring is free: to be
/// woken costs as much as several chunks take.
pub fn wait_for_room<'a, I: Iterator<Item = Line<'a>>>(
    lines: impl Fn() -> I,
    room: &AtomicU32,
    room_wanted: &AtomicU32,
    next: u64,
    count: u64,
    spins: u32,
) {
    let free = || next < count || lowest_needed(lines()) > next - count;
    for _ in 0..spins {
        if free() {
            return;
        }
        std::hint::spin_loop();
    }
    let target = next.saturating_sub(count) + (count / 2).max(1);
    let mut slept = false;
    loop {
        let seen = room.load(Ordering::Acquire);
        room_wanted.store(wanted(target), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Whatever ended a sleep, any room will do: a consumer that holds what it reads may never get to half of the ring.
        if lowest_needed(lines()) >= target || (slept && free()) {
            room_wanted.store(0, Ordering::Relaxed);
            return;
        }
        // A consumer that dies is dropped by the server thread, which wakes us; the timeout is a belt to these braces.
        futex::wait(room, seen, Some(Duration::from_millis(500)));
        slept = true;
    }
}

/// A consumer has done with all chunks below `needed`.
pub fn release(line: Line<'_>, needed: u64, room: &AtomicU32, room_wanted: &AtomicU32) {
    line.needed.store(needed, Ordering::Release);
    // The difference of 31-bit numbers; another consumer may still be behind, which the writer finds out.
    let reached = |wanted: u32| ((needed as u32) << 1).wrapping_sub(wanted) as i32 >= 0;
    wake_writer_if(room, room_wanted, |wanted| wanted == 1 || reached(wanted));
}

/// Wakes the writer if it waits for room. Call after `needed` or `state` has changed.
pub fn wake_writer(room: &AtomicU32, room_wanted: &AtomicU32) {
    wake_writer_if(room, room_wanted, |_| true);
}

fn wake_writer_if(room: &AtomicU32, room_wanted: &AtomicU32, due: impl FnOnce(u32) -> bool) {
    fence(Ordering::SeqCst);
    let wanted = room_wanted.load(Ordering::SeqCst);
    if wanted != 0 && due(wanted) {
        room.fetch_add(1, Ordering::Release);
        futex::wake(room);
    }
}

/// Makes a place active while the writer may be running. Returns the first chunk that the consumer gets.
pub fn attach(line: Line<'_>, lossy: bool, open: &AtomicU64, room: &AtomicU32, room_wanted: &AtomicU32) -> u64 {
    line.lossy.store(u32::from(lossy), Ordering::Relaxed);
    line.needed.store(open.load(Ordering::SeqCst), Ordering::SeqCst);
    line.state.store(consumer_state::ACTIVE, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let first = open.load(Ordering::SeqCst);
    line.needed.store(first, Ordering::SeqCst);
    // The writer may have seen the lower number in between, and sleep for its sake.
    wake_writer(room, room_wanted);
    first
}

/// Drops a consumer.
pub fn detach(line: Line<'_>, room: &AtomicU32, room_wanted: &AtomicU32) {
    line.state.store(consumer_state::FREE, Ordering::SeqCst);
    wake_writer(room, room_wanted);
}

/// Rings a consumer's bell; a system call only if it sleeps and is to be woken. One that is awake hears it in any case.
pub fn ring_bell(rings: &AtomicU32, sleeping: &AtomicU32, wake: bool) {
    rings.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if wake && sleeping.load(Ordering::SeqCst) != 0 {
        futex::wake(rings);
    }
}
