//! The half inside QEMU: every instruction and, unless `mem=off`, every access, with values if asked (`values=on`), in whole
//! machines with physical addresses (`paddr=on`).

use instrument::prelude::*;

struct Trace {
    mem: bool,
    values: bool,
    paddr: bool,
}

#[analyzer]
impl Analyzer for Trace {
    fn new(qemu: &Qemu) -> Self {
        let on = |name, default| qemu.option(name).unwrap_or(default);
        Trace { mem: on("mem", true), values: on("values", false), paddr: on("paddr", false) }
    }

    fn fetch(&self, _: &Insn, point: &mut FetchPoint) {
        point.trace();
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        if self.values {
            point.trace_value();
        }
        if self.paddr {
            point.trace_paddr();
        }
        if self.mem {
            point.trace();
        }
    }
}
