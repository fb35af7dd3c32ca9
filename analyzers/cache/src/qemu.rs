//! The half inside QEMU: every instruction and access.

use instrument::prelude::*;

struct Cache;

#[analyzer]
impl Analyzer for Cache {
    fn new(_: &Qemu) -> Self {
        Cache
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.trace();
    }
}
