//! The half inside QEMU: every instruction and, unless `mem=off`, every access, with values if asked (`values=on`).

use instrument::prelude::*;

struct Trace {
    mem: bool,
    values: bool,
}

#[analyzer]
impl Analyzer for Trace {
    fn new(qemu: &Qemu) -> Self {
        Trace { mem: qemu.option("mem").unwrap_or(true), values: qemu.option("values").unwrap_or(false) }
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        if self.values {
            point.trace_value();
        } else if self.mem {
            point.trace();
        }
    }
}
