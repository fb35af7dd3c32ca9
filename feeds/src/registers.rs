//! Registers after instructions, by the decoder's names.

use crate::linear::Insn;
use consumer::{Error, Event, TableInfo};
use decode::{Reg, Target};
use std::collections::HashMap;

/// What QEMU says of a system call that is made again.
pub const RESTARTED: i64 = -512;
/// What it says of one that returns from a signal handler.
pub const SIGRETURN: i64 = -513;

/// Which register each set of a stream is; sets of several are none of these.
pub struct Sets {
    names: HashMap<String, Reg>,
    numbers: HashMap<Reg, u64>,
}

impl Sets {
    /// Of streams with this table.
    pub fn new(table: &TableInfo) -> Sets {
        let target = Target::named(&table.target);
        let names = |reg: Reg| {
            let names = target.map(|t| reg.debugger_names(t)).unwrap_or_default();
            names.into_iter().map(move |name| (name, reg))
        };
        Sets { names: Reg::all().flat_map(names).collect(), numbers: HashMap::new() }
    }

    /// What the event says of sets.
    pub fn learn(&mut self, event: &Event) {
        if let Event::RegSet { set, registers } = event {
            let name = String::from_utf8_lossy(registers);
            let reg = name.split_once(':').and_then(|(name, _)| self.names.get(name));
            reg.map(|reg| self.numbers.insert(*reg, *set));
        }
    }

    /// Some register is sent.
    pub fn any(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Fails if none is.
    pub fn required(&self, what: &str) -> Result<(), Error> {
        if !self.any() {
            return Err(Error::Consumer(format!(
                "{what} needs the registers that instructions define, and there are none: trapline run --analyzer registers, or record --registers"
            )));
        }
        Ok(())
    }

    /// The value of `reg` after `insn`, if it is known.
    pub fn value(&self, insn: &Insn<'_>, reg: Reg) -> Option<u128> {
        let set = self.numbers.get(&reg)?;
        insn.defined.iter().find(|d| d.set == *set).map(|d| d.value)
    }
}
