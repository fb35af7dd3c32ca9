//! The half inside QEMU: every instruction and every access, with values if asked (`values=on`).

use instrument::prelude::*;

struct Trace {
    values: bool,
}

#[analyzer]
impl Analyzer for Trace {
    fn new(qemu: &Qemu) -> Self {
        Trace { values: qemu.option("values").unwrap_or(false) }
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        if self.values { point.trace_value() } else { point.trace() }
    }
}
