//! The half inside QEMU: everything, since only a whole stream can be verified.

use instrument::prelude::*;

struct Check;

#[analyzer]
impl Analyzer for Check {
    fn new(_: &Qemu) -> Self {
        Check
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.trace();
    }
}
