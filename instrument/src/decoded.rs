//! What a decoder knows of the instruction at a fetch point. Worked out when asked for.

use crate::{Insn, ffi};
use decode::{ALT_MODE, CODE16, CODE32, Class, Effects, Kinds, Reg, Registers, Target};
use std::sync::OnceLock;

static TARGET: OnceLock<Option<Target>> = OnceLock::new();

/// QEMU's name for the guest's ISA is known.
pub fn set_target(name: &str) {
    let _ = TARGET.set(Target::named(name));
}

/// What decides how instructions of this guest are decoded; `None` for an ISA that nobody here decodes.
pub fn target() -> Option<Target> {
    TARGET.get().copied().flatten()
}

/// With the feature `decode`. Where nobody knows an ISA or an instruction the answer is `None` or [`Class::Unknown`], not "nothing". The book's chapter on
/// the decoder says what is known of which ISA.
impl Insn<'_> {
    /// The mode, as the decoder has it.
    fn decode_flags(&self) -> u32 {
        let of = |mode: u32, flag: u32| if self.flags() & mode != 0 { flag } else { 0 };
        of(ffi::TRAPLINE_MODE_ALT, ALT_MODE)
            | of(ffi::TRAPLINE_MODE_CODE16, CODE16)
            | of(ffi::TRAPLINE_MODE_CODE32, CODE32)
    }

    /// Where the program goes on after it: which kind of branch it is, if any. An instruction in a Thumb IT block is taken by itself.
    pub fn class(&self) -> Class {
        target().map_or(Class::Unknown, |t| decode::classify(t, self.decode_flags(), self.bytes()))
    }

    /// Where it goes if it is a branch or call that says so itself and is taken.
    pub fn branch_target(&self) -> Option<u64> {
        decode::branch_target(target()?, self.decode_flags(), self.pc(), self.bytes())
    }

    /// What it does.
    pub fn effects(&self) -> Option<Effects> {
        decode::effects(target()?, self.decode_flags(), self.bytes())
    }

    /// What it is beside its class: load, store, atomic, …
    pub fn kinds(&self) -> Option<Kinds> {
        Some(self.effects()?.kinds)
    }

    /// It is known to be one of `kinds`.
    pub fn is(&self, kinds: Kinds) -> bool {
        self.kinds().is_some_and(|k| k.intersects(kinds))
    }

    /// The registers that it uses and defines.
    pub fn registers(&self) -> Option<Registers> {
        self.effects()?.registers
    }

    /// It is known to use `reg`.
    pub fn uses(&self, reg: Reg) -> bool {
        self.registers().is_some_and(|r| r.uses.contains(reg))
    }

    /// It is known to define `reg`.
    pub fn defines(&self, reg: Reg) -> bool {
        self.registers().is_some_and(|r| r.defines.contains(reg))
    }

    /// Its text, as a disassembler writes it.
    pub fn text(&self) -> Option<String> {
        decode::text(target()?, self.decode_flags(), self.pc(), self.bytes())
    }
}
