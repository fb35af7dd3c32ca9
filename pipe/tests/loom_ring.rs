//! The ring's protocol under all schedules: `RUSTFLAGS="--cfg loom" cargo test -p trapline-pipe --test loom_ring --release`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use pipe::layout::consumer_state::{ACTIVE, FREE};
use pipe::ring::{self, Line};

/// Two chunks of one word each, a writer, and places for consumers.
struct Ring {
    open: AtomicU64,
    room: AtomicU32,
    room_wanted: AtomicU32,
    state: [AtomicU32; 2],
    lossy: [AtomicU32; 2],
    needed: [AtomicU64; 2],
    /// What the chunk at this index holds: its sequence number plus 1. Written without ordering of its own.
    chunks: [AtomicU64; COUNT as usize],
    rings: AtomicU32,
    sleeping: AtomicU32,
}

const COUNT: u64 = 2;

impl Ring {
    fn new(active: usize) -> Arc<Ring> {
        let state = |i| AtomicU32::new(if i < active { ACTIVE } else { FREE });
        Arc::new(Ring {
            open: AtomicU64::new(0),
            room: AtomicU32::new(0),
            room_wanted: AtomicU32::new(0),
            state: [state(0), state(1)],
            lossy: [AtomicU32::new(0), AtomicU32::new(0)],
            needed: [AtomicU64::new(0), AtomicU64::new(0)],
            chunks: [AtomicU64::new(0), AtomicU64::new(0)],
            rings: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
        })
    }

    fn line(&self, i: usize) -> Line<'_> {
        Line { state: &self.state[i], lossy: &self.lossy[i], needed: &self.needed[i] }
    }

    /// Fills chunk `seq` and hands it over, then waits for room for the next.
    fn hand_over(&self, seq: u64) {
        self.chunks[(seq % COUNT) as usize].store(seq + 1, Ordering::Relaxed);
        ring::open(&self.open, seq + 1);
        ring::ring_bell(&self.rings, &self.sleeping, true);
        ring::wait_for_room(|| (0..2).map(|i| self.line(i)), &self.room, &self.room_wanted, seq + 1, COUNT, 0);
    }

    /// Sleeps until something is handed over beyond `next`.
    fn wait_for(&self, next: u64) {
        loop {
            let rings = self.rings.load(Ordering::SeqCst);
            if self.open.load(Ordering::SeqCst) > next {
                return;
            }
            self.sleeping.store(1, Ordering::SeqCst);
            loom::sync::atomic::fence(Ordering::SeqCst);
            if self.rings.load(Ordering::SeqCst) == rings {
                pipe::futex::wait(&self.rings, rings, None);
            }
            self.sleeping.store(0, Ordering::SeqCst);
        }
    }

    /// Reads chunks from `first` up to `end`; each must be whole when it is read.
    fn read(&self, place: usize, first: u64, end: u64) {
        for seq in first..end {
            self.wait_for(seq);
            let held = self.chunks[(seq % COUNT) as usize].load(Ordering::Relaxed);
            assert_eq!(held, seq + 1, "chunk {seq} was overwritten while it was needed");
            ring::release(self.line(place), seq + 1, &self.room, &self.room_wanted);
        }
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

#[test]
fn the_writer_neither_overwrites_nor_sleeps_for_ever() {
    model(|| {
        let ring = Ring::new(1);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || ring.read(0, 0, 3))
        };
        for seq in 0..3 {
            ring.hand_over(seq);
        }
        reader.join().unwrap();
    });
}

#[test]
fn who_attaches_gets_every_chunk_from_its_first_on() {
    model(|| {
        let ring = Ring::new(0);
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || {
                let first = ring::attach(ring.line(0), false, &ring.open, &ring.room, &ring.room_wanted);
                if first < 3 {
                    ring.wait_for(first);
                    let held = ring.chunks[(first % COUNT) as usize].load(Ordering::Relaxed);
                    assert_eq!(held, first + 1, "the first chunk was overwritten");
                }
                ring::detach(ring.line(0), &ring.room, &ring.room_wanted);
            })
        };
        for seq in 0..3 {
            ring.hand_over(seq);
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_consumer_that_is_dropped_lets_the_writer_go() {
    model(|| {
        let ring = Ring::new(1);
        let server = {
            let ring = ring.clone();
            thread::spawn(move || ring::detach(ring.line(0), &ring.room, &ring.room_wanted))
        };
        for seq in 0..3 {
            ring.hand_over(seq);
        }
        server.join().unwrap();
    });
}

#[test]
fn a_lossy_consumer_holds_nobody() {
    model(|| {
        let ring = Ring::new(1);
        ring.lossy[0].store(1, Ordering::Relaxed);
        for seq in 0..3 {
            ring.hand_over(seq);
        }
    });
}
