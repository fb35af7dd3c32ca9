//! The half inside QEMU: every hook, doing nothing. No code is generated, so the guest runs as in QEMU alone.

use instrument::prelude::*;

struct Empty;

#[analyzer]
impl Analyzer for Empty {
    fn new(_: &Qemu) -> Self {
        Empty
    }

    fn fetch(&self, _: &Insn, _: &mut FetchPoint) {}

    fn mem(&self, _: &Access, _: &mut MemPoint) {}
}
