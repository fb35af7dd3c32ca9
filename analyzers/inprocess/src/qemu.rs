//! The half inside QEMU.

use crate::{COUNTS, RESULT};
use instrument::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

struct InProcess {
    counts: [Counter; COUNTS.len()],
    /// Which stores the helper looks at.
    sampled: Option<Every>,
}

const LOADS: usize = 1;
const STORES: usize = 2;
const SYSCALLS: usize = 3;
const BY_SIZE: usize = 4;

static BITS: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

#[helper]
fn on_store(value: u64) {
    let bits = u64::BITS - value.leading_zeros();
    BITS[bits as usize].fetch_add(1, Ordering::Relaxed);
}

#[analyzer]
impl Analyzer for InProcess {
    fn new(qemu: &Qemu) -> Self {
        let every = qemu.option("values").unwrap_or(1u64);
        InProcess { counts: COUNTS.map(|_| qemu.counter()), sampled: (every != 0).then(|| qemu.every(every)) }
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.count(self.counts[0], 1);
    }

    fn mem(&self, access: &Access, point: &mut MemPoint) {
        let store = access.is_store();
        point.count(self.counts[if store { STORES } else { LOADS }], 1);
        // Known at translation; accesses that helpers make are in the totals only.
        let size = access.size().unwrap_or(0);
        if matches!(size, 1 | 2 | 4 | 8) {
            let i = BY_SIZE + size.trailing_zeros() as usize + if store { 4 } else { 0 };
            point.count(self.counts[i], 1);
        }
        match self.sampled {
            Some(every) if store => point.when(every).call(on_store, (Value,)),
            _ => {}
        }
    }

    fn syscall(&self, vcpu: &mut Vcpu, _: &Syscall) {
        let c = self.counts[SYSCALLS];
        c.set(vcpu, c.get(vcpu) + 1);
    }

    fn fork(&self, _: &mut Vcpu, child: Option<u32>) {
        if child.is_none() {
            BITS.iter().for_each(|b| b.store(0, Ordering::Relaxed));
        }
    }

    fn exec(&self, vcpu: &mut Vcpu, _: &std::path::Path) {
        self.tell(vcpu);
    }

    fn exit(&self, vcpu: &mut Vcpu, _: End) {
        self.tell(vcpu);
    }
}

impl InProcess {
    fn tell(&self, vcpu: &Vcpu) {
        let bits = BITS.iter().map(|b| b.load(Ordering::Relaxed));
        let words = self.counts.iter().map(|c| c.total()).chain(bits);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        vcpu.emit(RESULT, &bytes);
    }
}
