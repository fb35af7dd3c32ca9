//! The half inside QEMU: every instruction and every access, addresses only.

use instrument::prelude::*;

struct Hotspots;

#[analyzer]
impl Analyzer for Hotspots {
    fn new(_: &Qemu) -> Self {
        Hotspots
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.trace();
    }
}
