//! The half inside QEMU: the first execution of each instruction.

use instrument::prelude::*;

struct Coverage;

#[analyzer]
impl Analyzer for Coverage {
    fn new(_: &Qemu) -> Self {
        Coverage
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.once();
    }
}
