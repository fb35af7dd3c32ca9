//! The half inside QEMU: every instruction and every access, addresses only.

use instrument::prelude::*;

struct Count;

#[analyzer]
impl Analyzer for Count {
    fn new(_: &Qemu) -> Self {
        Count
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.trace();
    }
}
