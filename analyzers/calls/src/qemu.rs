//! The half inside QEMU: every instruction, no access.

use instrument::prelude::*;

struct Calls;

#[analyzer]
impl Analyzer for Calls {
    fn new(_: &Qemu) -> Self {
        Calls
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }
}
