//! Where the program may go on after an instruction, and where an access must be: what the code alone says.

use consumer::BlockInfo;
use decode::{Class, Isa, Target, block_branch, branch_target, classify};

/// Places where the next instruction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is known yet: what comes first is checked when the part before is known.
    Entry,
    /// Anywhere.
    Any,
    /// The stream has begun, and nothing has been traced yet.
    Begun,
    /// Tracing has stopped: nowhere, but that signals may come.
    Off,
    /// The stream has ended: nowhere.
    Nowhere,
    /// Nothing is known of before, then a signal came, which is told whether anything is traced or not: at this handler, or nowhere.
    Handler(u64),
    /// One of these.
    At([u64; 3]),
}

impl Next {
    pub fn one(pc: u64) -> Next {
        Next::At([pc; 3])
    }

    pub fn two(a: u64, b: u64) -> Next {
        Next::At([a, b, b])
    }

    /// These, and `pc` as well.
    pub fn or(self, pc: u64) -> Next {
        match self {
            Next::At([a, b, _]) => Next::At([a, b, pc]),
            other => other,
        }
    }

    pub fn allows(self, pc: u64) -> bool {
        match self {
            Next::Entry | Next::Any | Next::Begun => true,
            Next::Off | Next::Nowhere => false,
            Next::Handler(to) => to == pc,
            Next::At(all) => all.contains(&pc),
        }
    }
}

/// What is known of a block before it runs.
#[derive(Clone, Debug)]
pub struct Static {
    /// Where the program goes on after its last instruction.
    pub next: Next,
    /// Every instruction is traced.
    pub whole: bool,
    /// An instruction that does not follow the one before it: its index.
    pub gap: Option<usize>,
    /// By instruction: the address that one of its accesses has, if the code says.
    pub addresses: Vec<(usize, u64)>,
}

impl Static {
    pub fn of(target: Option<Target>, block: &BlockInfo) -> Static {
        let insns = &block.insns;
        let follows = |i: usize| {
            let end = insns[i - 1].pc.wrapping_add(u64::from(insns[i - 1].len));
            // A branch-likely that is never taken skips its delay slot.
            let skips = target.is_some_and(|t| {
                t.has_delay_slots() && classify(t, block.flags, block.bytes(i - 1)) == Class::CondBranch
            });
            insns[i].pc == end || (skips && insns[i].pc == end.wrapping_add(u64::from(insns[i - 1].len)))
        };
        let gap = (1..insns.len()).find(|&i| !follows(i));
        Static {
            next: after(target, block, insns.len() - 1),
            whole: insns.iter().all(|i| i.is_traced()),
            gap,
            addresses: addresses(target, block),
        }
    }
}

/// Where the program may go on once instruction `last` of a block has retired.
pub fn after(target: Option<Target>, block: &BlockInfo, last: usize) -> Next {
    let Some(target) = target else { return Next::Any };
    let insns = block.insns.get(..=last).unwrap_or(&block.insns);
    let Some(end) = insns.last() else { return Next::Any };
    let following = end.pc.wrapping_add(u64::from(end.len));
    let all = (0..insns.len()).map(|i| (insns[i].pc, block.bytes(i)));
    let Some(branch) = block_branch(target, block.flags, all) else {
        let class = classify(target, block.flags, block.bytes(insns.len() - 1));
        // A delay slot in a block of its own goes where the branch before it says.
        let slot = target.has_delay_slots() && insns.len() == 1;
        // The kernel is in the stream where levels are known.
        let enters = block.flags & consumer::layout::BLOCK_LEVEL_KNOWN != 0
            && target.isa == Isa::X86
            && matches!(
                x86(target, block, insns.len() - 1).mnemonic(),
                iced_x86::Mnemonic::Syscall | iced_x86::Mnemonic::Sysenter
            );
        return if class == Class::Other && !slot && !enters { Next::one(following) } else { Next::Any };
    };
    if target.has_delay_slots() && branch.insn + 1 == insns.len() {
        // The slot comes, or is nullified.
        return Next::Any;
    }
    if target.isa == Isa::X86 && block.flags & decode::CODE16 != 0 {
        // The pc wraps within its segment, whose base only the machine knows.
        return Next::Any;
    }
    let pc = block.insns.get(branch.insn).map_or(0, |i| i.pc);
    let goes = branch_target(target, block.flags, pc, block.bytes(branch.insn));
    match (branch.class, goes) {
        (Class::CondBranch, Some(to)) => Next::two(branch.fall_through, to),
        (Class::Jump | Class::Call, Some(to)) => Next::one(to),
        _ => Next::Any,
    }
}

fn x86(target: Target, block: &BlockInfo, insn: usize) -> iced_x86::Instruction {
    let bits = match block.flags {
        f if f & decode::CODE16 != 0 => 16,
        f if f & decode::CODE32 != 0 => 32,
        _ => u32::from(target.bits),
    };
    let pc = block.insns.get(insn).map_or(0, |i| i.pc);
    iced_x86::Decoder::with_ip(bits, block.bytes(insn), pc, iced_x86::DecoderOptions::NONE).decode()
}

/// Accesses whose address is a part of the code: x86's relative to the pc.
fn addresses(target: Option<Target>, block: &BlockInfo) -> Vec<(usize, u64)> {
    let Some(target) = target.filter(|t| t.isa == Isa::X86 && t.bits == 64 && block.flags & decode::CODE32 == 0) else {
        return Vec::new();
    };
    (0..block.insns.len())
        .filter_map(|i| {
            let insn = x86(target, block, i);
            use iced_x86::{Mnemonic::*, OpKind};
            // A bit's number in a register moves the address.
            let moved = matches!(insn.mnemonic(), Bt | Btc | Btr | Bts) && insn.op1_kind() == OpKind::Register;
            let relative =
                insn.is_ip_rel_memory_operand() && insn.segment_prefix() == iced_x86::Register::None && !moved;
            relative.then(|| (i, insn.ip_rel_memory_address()))
        })
        .collect()
}
