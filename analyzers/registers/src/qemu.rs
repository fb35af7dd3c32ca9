//! The half inside QEMU: every instruction, every access with its value, and each register that an instruction defines, as a set of
//! its own, so that what is sent is what changed.

use instrument::prelude::*;
use instrument::{Reg, Target};

struct Defines {
    /// By the decoder's number.
    sets: Vec<Option<RegisterSet>>,
    paddr: bool,
}

#[analyzer]
impl Analyzer for Defines {
    fn new(qemu: &Qemu) -> Self {
        let target = Target::named(qemu.target());
        let set = |reg: Reg| {
            let name = reg.debugger_names(target?).into_iter().find(|n| qemu.register(n).is_some())?;
            // Of vectors what readers know.
            Some(qemu.register_set(&[&format!("{name}:16")]))
        };
        Defines { sets: Reg::all().map(set).collect(), paddr: qemu.option("paddr").unwrap_or(false) }
    }

    fn fetch(&self, insn: &Insn, point: &mut FetchPoint) {
        point.trace();
        let defined = insn.registers().map(|r| r.defines).unwrap_or_default();
        for reg in defined.iter() {
            if let Some(set) = self.sets[usize::from(reg.number())] {
                point.trace_regs_after(set);
            }
        }
    }

    fn mem(&self, _: &Access, point: &mut MemPoint) {
        point.trace_value();
        if self.paddr {
            point.trace_paddr();
        }
        point.trace();
    }
}
