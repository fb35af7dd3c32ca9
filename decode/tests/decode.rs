//! Encodings by hand, from the ISAs' manuals.

use decode::{ALT_MODE, Branch, CODE16, CODE32, Class, Disassembler, Target, block_branch, classify};

fn check(target: &str, flags: u32, bytes: &[u8], class: Class, text: &str) {
    let t = Target::named(target).unwrap();
    assert_eq!(classify(t, flags, bytes), class, "{target} {bytes:02x?}");
    let found = Disassembler::new(target).unwrap().text(flags, 0x1000, bytes);
    if text.is_empty() {
        return;
    }
    assert_eq!(found.as_deref().map(|t| t.replace('\t', " ")).as_deref(), Some(text), "{target} {bytes:02x?}");
    // A length that is not the instruction's own is no known instruction.
    let mut longer = bytes.to_vec();
    longer.extend([0, 0]);
    assert_eq!(Disassembler::new(target).unwrap().text(flags, 0x1000, &longer), None, "{target} {bytes:02x?}");
}

#[test]
fn x86() {
    check("x86_64", 0, &[0x48, 0x89, 0xe5], Class::Other, "mov rbp, rsp");
    check("x86_64", 0, &[0x8b, 0x07], Class::Other, "mov eax, [rdi]");
    check("x86_64", 0, &[0x75, 0xfe], Class::CondBranch, "jne 0x1000");
    check("x86_64", 0, &[0xe2, 0xfe], Class::CondBranch, "loop 0x1000");
    check("x86_64", 0, &[0xe8, 0xfb, 0xff, 0xff, 0xff], Class::Call, "call 0x1000");
    check("x86_64", 0, &[0xff, 0xe0], Class::IndirectJump, "jmp rax");
    check("x86_64", 0, &[0xff, 0xd0], Class::IndirectCall, "call rax");
    check("x86_64", 0, &[0xc3], Class::Return, "ret");
    check("x86_64", 0, &[0x0f, 0x05], Class::Other, "syscall");
    check("x86_64", 0, &[0xf3, 0xa4], Class::Other, "rep movsb [rdi], [rsi]");
    // The same bytes mean two instructions in 64-bit code, one in 32-bit code.
    check("i386", 0, &[0x40], Class::Other, "inc eax");
    check("x86_64", CODE32, &[0x40], Class::Other, "inc eax");
    check("i386", CODE16, &[0x40], Class::Other, "inc ax");
}

#[test]
fn aarch64() {
    check("aarch64", 0, &[0xe0, 0x03, 0x1f, 0xaa], Class::Other, "mov x0, xzr");
    check("aarch64", 0, &[0x00, 0x00, 0x00, 0x54], Class::CondBranch, "b.eq #0x1000");
    check("aarch64", 0, &[0x0e, 0x00, 0x00, 0x54], Class::Jump, "");
    check("aarch64", 0, &[0x00, 0x00, 0x00, 0xb4], Class::CondBranch, "cbz x0, #0x1000");
    check("aarch64", 0, &[0x00, 0x00, 0x00, 0x37], Class::CondBranch, "tbnz w0, #0, #0x1000");
    check("aarch64", 0, &[0x00, 0x00, 0x00, 0x94], Class::Call, "bl #0x1000");
    check("aarch64", 0, &[0xc0, 0x03, 0x5f, 0xd6], Class::Return, "ret");
    check("aarch64", 0, &[0x00, 0x02, 0x1f, 0xd6], Class::IndirectJump, "br x16");
}

#[test]
fn arm_and_thumb() {
    check("arm", 0, &[0x00, 0x00, 0x90, 0xe5], Class::Other, "ldr r0, [r0]");
    check("arm", 0, &[0xfe, 0xff, 0xff, 0x1a], Class::CondBranch, "bne #0x1000");
    check("arm", 0, &[0xfe, 0xff, 0xff, 0xea], Class::Jump, "b #0x1000");
    check("arm", 0, &[0x1e, 0xff, 0x2f, 0xe1], Class::Return, "bx lr");
    check("arm", 0, &[0x1e, 0xff, 0x2f, 0x01], Class::CondBranch, "bxeq lr");
    check("arm", 0, &[0x10, 0x80, 0xbd, 0xe8], Class::Return, "pop {r4, pc}");
    check("arm", 0, &[0x10, 0x80, 0xbd, 0x08], Class::CondBranch, "");
    check("arm", 0, &[0x04, 0xf0, 0x9d, 0xe4], Class::Return, "");
    check("arm", 0, &[0x0f, 0x00, 0x50, 0xe3], Class::Other, "cmp r0, #0xf");
    check("arm", ALT_MODE, &[0xfe, 0xd1], Class::CondBranch, "bne #0x1000");
    check("arm", ALT_MODE, &[0x00, 0xb1], Class::CondBranch, "cbz r0, #0x1004");
    check("arm", ALT_MODE, &[0x70, 0x47], Class::Return, "bx lr");
    check("arm", ALT_MODE, &[0x00, 0xf0, 0x00, 0xf8], Class::Call, "bl #0x1004");
    check("arm", ALT_MODE, &[0x7f, 0xf4, 0xfe, 0xaf], Class::CondBranch, "bne.w #0x1000");
    check("arm", ALT_MODE, &[0x02, 0x68], Class::Other, "ldr r2, [r0]");
    check("arm", ALT_MODE, &[0xd0, 0xf8, 0x00, 0x20], Class::Other, "ldr.w r2, [r0]");
}

#[test]
fn a_branch_under_it_is_conditional() {
    let t = Target::named("arm").unwrap();
    let insns: [(u64, &[u8]); 3] = [(0, &[0x08, 0xbf]), (2, &[0x70, 0x47]), (4, &[0x70, 0x47])];
    assert_eq!(
        block_branch(t, ALT_MODE, insns[..2].iter().copied()),
        Some(Branch { insn: 1, class: Class::CondBranch, fall_through: 4 })
    );
    assert_eq!(block_branch(t, ALT_MODE, insns.iter().copied()).map(|b| b.class), Some(Class::Return));
}

#[test]
fn mips_with_delay_slots() {
    check("mipsel", 0, &[0x00, 0x00, 0x82, 0x8c], Class::Other, "lw $v0, ($a0)");
    check("mips", 0, &[0x8c, 0x82, 0x00, 0x00], Class::Other, "lw $v0, ($a0)");
    check("mips", 0, &[0x14, 0x40, 0xff, 0xff], Class::CondBranch, "bnez $v0, 0x1000");
    check("mips", 0, &[0x10, 0x00, 0xff, 0xff], Class::Jump, "b 0x1000");
    check("mips", 0, &[0x03, 0xe0, 0x00, 0x08], Class::Return, "jr $ra");
    check("mips", 0, &[0x0c, 0x00, 0x04, 0x00], Class::Call, "jal 0x1000");
    let t = Target::named("mips").unwrap();
    let insns: [(u64, &[u8]); 3] = [(0x100, &[0; 4]), (0x104, &[0x14, 0x40, 0xff, 0xff]), (0x108, &[0; 4])];
    assert_eq!(
        block_branch(t, 0, insns.iter().copied()),
        Some(Branch { insn: 1, class: Class::CondBranch, fall_through: 0x10c })
    );
    assert_eq!(
        block_branch(t, 0, insns[..2].iter().copied()),
        Some(Branch { insn: 1, class: Class::CondBranch, fall_through: 0x10c })
    );
    assert_eq!(block_branch(t, 0, insns[..1].iter().copied()), None);
}

#[test]
fn ppc() {
    check("ppc64le", 0, &[0x00, 0x00, 0x63, 0x80], Class::Other, "lwz r3, 0(r3)");
    check("ppc", 0, &[0x80, 0x63, 0x00, 0x00], Class::Other, "lwz r3, 0(r3)");
    check("ppc", 0, &[0x40, 0x82, 0x00, 0x00], Class::CondBranch, "");
    check("ppc", 0, &[0x42, 0x00, 0x00, 0x00], Class::CondBranch, "bdnz 0x1000");
    check("ppc", 0, &[0x48, 0x00, 0x00, 0x01], Class::Call, "bl 0x1000");
    check("ppc", 0, &[0x4e, 0x80, 0x00, 0x20], Class::Return, "blr");
    check("ppc", 0, &[0x4e, 0x80, 0x04, 0x21], Class::IndirectCall, "bctrl");
}

#[test]
fn riscv() {
    check("riscv64", 0, &[0x83, 0x35, 0x05, 0x00], Class::Other, "ld a1, 0(a0)");
    check("riscv64", 0, &[0x63, 0x00, 0x05, 0x00], Class::CondBranch, "beqz a0, 0");
    check("riscv64", 0, &[0x82, 0x80], Class::Return, "c.jr ra");
    check("riscv64", 0, &[0x01, 0xc1], Class::CondBranch, "c.beqz a0, 0");
    check("riscv64", 0, &[0x67, 0x80, 0x00, 0x00], Class::Return, "ret");
    check("riscv64", 0, &[0xef, 0x00, 0x00, 0x00], Class::Call, "jal 0");
    check("riscv64", 0, &[0x05, 0x25], Class::Other, "c.addiw a0, 1");
    check("riscv32", 0, &[0x05, 0x25], Class::Call, "");
}

#[test]
fn s390x() {
    check("s390x", 0, &[0x07, 0xfe], Class::Return, "br %r14");
    check("s390x", 0, &[0xa7, 0x74, 0x00, 0x00], Class::CondBranch, "jne 0x1000");
    check("s390x", 0, &[0xa7, 0xf4, 0x00, 0x00], Class::Jump, "j 0x1000");
    check("s390x", 0, &[0xc0, 0xe5, 0x00, 0x00, 0x00, 0x00], Class::Call, "brasl %r14, 0x1000");
    check("s390x", 0, &[0xec, 0x12, 0x00, 0x00, 0x80, 0x64], Class::CondBranch, "");
    check("s390x", 0, &[0xa7, 0x16, 0x00, 0x00], Class::CondBranch, "brct %r1, 0x1000");
    check("s390x", 0, &[0x18, 0x12], Class::Other, "lr %r1, %r2");
}

#[test]
fn sparc_and_m68k() {
    check("sparc64", 0, &[0x12, 0x80, 0x00, 0x00], Class::CondBranch, "");
    check("sparc", 0, &[0x81, 0xc3, 0xe0, 0x08], Class::Return, "retl");
    check("sparc", 0, &[0x10, 0x80, 0x00, 0x00], Class::Jump, "");
    check("m68k", 0, &[0x4e, 0x75], Class::Return, "rts");
    check("m68k", 0, &[0x66, 0xfe], Class::CondBranch, "bne.b $1000");
    check("m68k", 0, &[0x20, 0x10], Class::Other, "move.l (a0), d0");
}

#[test]
fn what_is_not_known_is_not_guessed() {
    assert!(Target::named("hexagon").is_none());
    assert!(Disassembler::new("hexagon").is_none());
    let t = Target::named("x86_64").unwrap();
    assert_eq!(classify(t, 0, &[]), Class::Unknown);
    assert_eq!(classify(t, 0, &[0x06]), Class::Unknown);
    // Nothing panics on cut-off or odd lengths.
    for name in [
        "x86_64",
        "aarch64",
        "arm",
        "mips",
        "ppc",
        "riscv64",
        "s390x",
        "sparc",
        "m68k",
        "sh4",
        "alpha",
        "loongarch64",
        "or1k",
    ] {
        let (t, mut d) = (Target::named(name).unwrap(), Disassembler::new(name).unwrap());
        for len in 0..8 {
            for fill in [0, 0x47, 0xb1, 0xff] {
                for flags in [0, ALT_MODE] {
                    classify(t, flags, &vec![fill; len]);
                    d.text(flags, 0, &vec![fill; len]);
                }
            }
        }
    }
}
