//! Words that each vCPU has of its own: counters, and the state of sampling conditions. Emitted code adds to them without a lock.

use crate::{Vcpu, ffi};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What a slot starts with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Counter,
    Every,
    /// Seeded by this and the vCPU's number.
    Random(u64),
}

/// Declared by `Analyzer::new`.
#[derive(Default)]
pub(crate) struct Declared(RefCell<Vec<Kind>>);

impl Declared {
    pub fn add(&self, kind: Kind) -> u32 {
        let mut all = self.0.borrow_mut();
        all.push(kind);
        (all.len() - 1) as u32
    }

    /// From here on vCPUs may begin.
    pub fn freeze(&self) {
        if KINDS.set(self.0.borrow().clone()).is_err() {
            unreachable!("QEMU starts once");
        }
    }
}

static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();

/// The slots of the vCPUs that run, by the address that they have in QEMU, and the sums of those that have ended.
pub(crate) struct All {
    live: Vec<&'static [AtomicU64]>,
    ended: Vec<u64>,
}

static ALL: Mutex<All> = Mutex::new(All { live: Vec::new(), ended: Vec::new() });

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kinds() -> &'static [Kind] {
    KINDS.get().map_or(&[], Vec::as_slice)
}

/// Spreads a seed's bits, so that neighbouring vCPUs do not sample alike (the finalizer of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn first(kind: Kind, vcpu: u32) -> u64 {
    match kind {
        Kind::Counter | Kind::Every => 0,
        Kind::Random(seed) => mix(seed ^ u64::from(vcpu) << 32),
    }
}

/// Gives a vCPU its slots. Emitted code always finds some.
pub(crate) fn begin(v: &mut ffi::TraplineVcpu) {
    let mut words: Vec<AtomicU64> = kinds().iter().map(|k| AtomicU64::new(first(*k, v.index))).collect();
    words.push(AtomicU64::new(0));
    let words: &'static [AtomicU64] = words.leak();
    v.slots = words.as_ptr().cast_mut().cast();
    all().live.push(words);
}

/// Takes them back and keeps the sums.
pub(crate) fn end(v: &mut ffi::TraplineVcpu) {
    let mut all = all();
    let at = v.slots.cast::<AtomicU64>().cast_const();
    if let Some(i) = all.live.iter().position(|w| w.as_ptr() == at) {
        let words = all.live.swap_remove(i);
        all.ended.resize(words.len(), 0);
        for (sum, word) in all.ended.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
        // SAFETY: leaked by `begin`, and off the list: nobody else has it.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(words).cast_mut()) });
    }
    v.slots = std::ptr::null_mut();
}

/// What a forked child does with its copies: it counts for itself.
pub(crate) fn forked(all: &mut All, v: &ffi::TraplineVcpu) {
    all.ended.clear();
    let at = v.slots.cast::<AtomicU64>().cast_const();
    all.live.retain(|w| w.as_ptr() == at);
    for words in &all.live {
        for (word, kind) in words.iter().zip(kinds()) {
            if *kind == Kind::Counter {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Held over a fork: no vCPU begins or ends until it is dropped.
pub(crate) fn lock() -> MutexGuard<'static, All> {
    all()
}

fn of<'a>(v: &ffi::TraplineVcpu, slot: u32) -> Option<&'a AtomicU64> {
    let at = v.slots.cast::<AtomicU64>().cast_const();
    // SAFETY: a vCPU's slots are as many as were declared, and live until it ends.
    (!at.is_null() && (slot as usize) < kinds().len()).then(|| unsafe { &*at.add(slot as usize) })
}

pub(crate) fn get(v: &ffi::TraplineVcpu, slot: u32) -> u64 {
    of(v, slot).map_or(0, |w| w.load(Ordering::Relaxed))
}

pub(crate) fn set(v: &ffi::TraplineVcpu, slot: u32, value: u64) {
    if let Some(word) = of(v, slot) {
        word.store(value, Ordering::Relaxed);
    }
}

pub(crate) fn add(v: &ffi::TraplineVcpu, slot: u32, n: u64) {
    set(v, slot, get(v, slot).wrapping_add(n));
}

/// A counter of which each vCPU has its own. Made with [`crate::Qemu::counter`].
#[derive(Clone, Copy, Debug)]
pub struct Counter(pub(crate) u32);

impl Counter {
    /// Its number, for points that are filled in C (`TraplineAction`'s `slot`).
    pub fn slot(self) -> u32 {
        self.0
    }

    /// Its value in `vcpu`.
    pub fn get(self, vcpu: &Vcpu) -> u64 {
        get(vcpu.raw(), self.0)
    }

    /// Sets its value in `vcpu`.
    pub fn set(self, vcpu: &mut Vcpu, value: u64) {
        set(vcpu.raw(), self.0, value);
    }

    /// The sum over the process's vCPUs, those that have ended included. While others run it may lag behind them.
    pub fn total(self) -> u64 {
        let all = all();
        let slot = self.0 as usize;
        let live = all.live.iter().filter_map(|w| w.get(slot)).map(|w| w.load(Ordering::Relaxed));
        live.fold(all.ended.get(slot).copied().unwrap_or(0), u64::wrapping_add)
    }
}

/// A word of the whole process that conditions can look at and the analyzer can change. Made with [`crate::Qemu::variable`].
#[derive(Clone, Copy, Debug)]
pub struct Variable(pub(crate) &'static AtomicU64);

impl Variable {
    /// Its value.
    pub fn get(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes it; vCPUs see it at their next condition.
    pub fn set(self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_vcpus_sample_differently() {
        let seeds: std::collections::HashSet<u64> = (0..64).map(|i| first(Kind::Random(1), i)).collect();
        assert_eq!(seeds.len(), 64);
        assert_eq!(first(Kind::Counter, 3), 0);
    }
}
