//! x86: iced-x86's operand information.

use super::{Effects, Kinds, Reader, Reg};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits,
};
use std::cell::RefCell;

thread_local! {
    static FACTORY: RefCell<InstructionInfoFactory> = RefCell::new(InstructionInfoFactory::new());
}

pub fn effects(bits: u32, bytes: &[u8]) -> Option<Effects> {
    let mut decoder = Decoder::new(bits, bytes, DecoderOptions::NONE);
    let insn = decoder.decode();
    if insn.is_invalid() || insn.len() != bytes.len() {
        return None;
    }
    FACTORY.with_borrow_mut(|factory| {
        let info = factory.info_options(&insn, InstructionInfoOptions::NONE);
        let mut r = Reader::default();
        for memory in info.used_memory() {
            let (reads, writes) = access(memory.access());
            r.kinds |= if reads { Kinds::LOAD } else { Kinds::NONE };
            r.kinds |= if writes { Kinds::STORE } else { Kinds::NONE };
        }
        r = r.kind(kinds(&insn));
        for used in info.used_registers() {
            let Some(reg) = reg(used.register()) else { continue };
            // A segment that is only where memory is says nothing: only fs and gs have a base of their own.
            if matches!(used.register(), Register::ES | Register::CS | Register::SS | Register::DS)
                && !names(&insn, used.register())
            {
                continue;
            }
            let (reads, writes) = access(used.access());
            let conditional = matches!(used.access(), OpAccess::CondWrite | OpAccess::ReadCondWrite);
            if reads || conditional {
                r.regs.uses.insert(reg);
            }
            if writes {
                r.regs.defines.insert(reg);
            }
        }
        if insn.rflags_read() & RFLAGS != 0 {
            r.regs.uses.insert(Reg::FLAGS);
        }
        if insn.rflags_modified() & RFLAGS != 0 {
            r.regs.defines.insert(Reg::FLAGS);
        }
        r.done()
    })
}

/// Without the x87 conditions, which stand in the status word.
const RFLAGS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF
    | RflagsBits::DF
    | RflagsBits::IF
    | RflagsBits::AC;

fn access(a: OpAccess) -> (bool, bool) {
    match a {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// `register` is an operand, not only the segment of one.
fn names(insn: &Instruction, register: Register) -> bool {
    (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Register && insn.op_register(i) == register)
        || matches!(insn.mnemonic(), Mnemonic::Lds | Mnemonic::Les | Mnemonic::Lss)
}

fn reg(register: Register) -> Option<Reg> {
    let full = register.full_register();
    let n = full.number() as u8;
    Some(match full {
        Register::RSP => Reg::STACK_POINTER,
        _ if full.is_gpr() => Reg::general(n),
        _ if full.is_zmm() => Reg::vector(n),
        // mm0 to mm7 are parts of the x87 registers.
        _ if full.is_st() || full.is_mm() => Reg::second(n & 7),
        _ if full.is_k() => Reg::second(8 + (n & 7)),
        _ if full.is_segment_register() => Reg::segment(n),
        _ if full.is_ip() || full == Register::None => return None,
        _ => Reg::SYSTEM,
    })
}

fn kinds(insn: &Instruction) -> Kinds {
    let mut kinds = Kinds::NONE;
    let memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory);
    if insn.has_lock_prefix() || insn.mnemonic() == Mnemonic::Xchg && memory {
        kinds |= Kinds::ATOMIC;
    }
    match insn.mnemonic() {
        Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Sfence | Mnemonic::Serialize => kinds |= Kinds::FENCE,
        Mnemonic::Syscall | Mnemonic::Sysenter => kinds |= Kinds::SYSCALL,
        Mnemonic::Int if insn.immediate8() == 0x80 => kinds |= Kinds::SYSCALL,
        Mnemonic::Int
        | Mnemonic::Int1
        | Mnemonic::Int3
        | Mnemonic::Into
        | Mnemonic::Ud0
        | Mnemonic::Ud1
        | Mnemonic::Ud2 => {
            kinds |= Kinds::TRAP;
        }
        _ => {}
    }
    if insn.is_privileged() {
        kinds |= Kinds::PRIVILEGED;
    }
    if insn
        .cpuid_features()
        .iter()
        .any(|f| matches!(f, CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387))
    {
        kinds |= Kinds::FLOAT;
    }
    let vector = (0..insn.op_count()).any(|i| {
        let r = insn.op_register(i);
        insn.op_kind(i) == OpKind::Register && (r.is_vector_register() || r.is_mm())
    });
    if vector {
        // The mnemonics end in the operands' type, or convert from one to another.
        let name = format!("{:?}", insn.mnemonic()).to_ascii_lowercase();
        let typed = |types: [&str; 3]| types.iter().any(|t| name.ends_with(t) || name.contains(&format!("{t}2")));
        kinds |= match (typed(["ss", "sd", "sh"]), typed(["ps", "pd", "ph"])) {
            (true, _) => Kinds::FLOAT,
            (_, true) => Kinds::FLOAT | Kinds::VECTOR,
            _ => Kinds::VECTOR,
        };
    }
    kinds
}
