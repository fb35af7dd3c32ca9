//! The two instructions, from the table in `backdoor`.

#[allow(unused_imports)]
use backdoor::{ISAS, Isa};
use core::arch::asm;

#[allow(dead_code)]
const fn isa(ident: &str) -> Isa {
    let mut i = 0;
    while i < ISAS.len() {
        let (a, b) = (ISAS[i].ident.as_bytes(), ident.as_bytes());
        let mut same = a.len() == b.len();
        let mut j = 0;
        while same && j < a.len() {
            same = a[j] == b[j];
            j += 1;
        }
        if same {
            return ISAS[i];
        }
        i += 1;
    }
    panic!("no such ISA")
}

macro_rules! bytes {
    ($template:literal, $code:expr, $($operands:tt)*) => {
        asm!(
            $template,
            b0 = const $code[0], b1 = const $code[1], b2 = const $code[2], b3 = const $code[3],
            b4 = const $code[4], b5 = const $code[5], b6 = const $code[6],
            $($operands)*
        )
    };
}

#[cfg(all(target_arch = "x86_64", not(feature = "disable")))]
mod this {
    use super::*;
    const ISA: Isa = isa("X86_64");

    #[inline(always)]
    pub fn probe() -> u32 {
        let mut r = 0usize;
        // SAFETY: a no-op, or it writes the register.
        unsafe {
            bytes!(".byte {b0},{b1},{b2},{b3},{b4},{b5},{b6}", ISA.probe, inout("rax") r,
                options(nomem, nostack, preserves_flags))
        };
        r as u32
    }

    #[inline(always)]
    pub unsafe fn call(command: usize, a: [usize; 6]) -> usize {
        let mut r = command;
        // SAFETY: by contract.
        unsafe {
            bytes!(".byte {b0},{b1},{b2},{b3},{b4},{b5},{b6}", ISA.call, inout("rax") r, in("rdi") a[0],
                in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
                options(nostack, preserves_flags))
        };
        r
    }
}

#[cfg(all(target_arch = "x86", not(feature = "disable")))]
mod this {
    use super::*;
    const ISA: Isa = isa("I386");

    #[inline(always)]
    pub fn probe() -> u32 {
        let mut r = 0usize;
        // SAFETY: a no-op, or it writes the register.
        unsafe {
            bytes!(".byte {b0},{b1},{b2},{b3},{b4},{b5},{b6}", ISA.probe, inout("eax") r,
                options(nomem, nostack, preserves_flags))
        };
        r as u32
    }

    #[inline(always)]
    pub unsafe fn call(command: usize, a: [usize; 6]) -> usize {
        let mut r = command;
        // esi is the compiler's own and cannot be an operand.
        // SAFETY: by contract.
        unsafe {
            bytes!("xchg esi, {a2:e}\n.byte {b0},{b1},{b2},{b3},{b4},{b5},{b6}\nxchg esi, {a2:e}", ISA.call,
                a2 = in(reg) a[2], inout("eax") r, in("ecx") a[0], in("edx") a[1], in("edi") a[3],
                options(nostack, preserves_flags))
        };
        r
    }
}

#[cfg(all(target_arch = "aarch64", not(feature = "disable")))]
mod this {
    use super::*;
    const ISA: Isa = isa("AARCH64");

    #[inline(always)]
    pub fn probe() -> u32 {
        let mut r = 0usize;
        // SAFETY: a no-op, or it writes the register.
        unsafe { asm!(".inst {w}", w = const ISA.probe[0], inout("x0") r, options(nomem, nostack, preserves_flags)) };
        r as u32
    }

    #[inline(always)]
    pub unsafe fn call(command: usize, a: [usize; 6]) -> usize {
        let mut r = a[0];
        // SAFETY: by contract.
        unsafe {
            asm!(".inst {w}", w = const ISA.call[0], in("x8") command, inout("x0") r, in("x1") a[1], in("x2") a[2],
                in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack, preserves_flags))
        };
        r
    }
}

#[cfg(all(target_arch = "arm", not(feature = "disable")))]
mod this {
    use super::*;

    #[inline(always)]
    pub fn probe() -> u32 {
        let mut r = 0usize;
        // SAFETY: a no-op, or it writes the register.
        #[cfg(target_feature = "thumb-mode")]
        unsafe {
            asm!(".inst.w {w}", w = const isa("T32").probe[0] << 16 | isa("T32").probe[1], inout("r0") r,
                options(nomem, nostack, preserves_flags))
        };
        // SAFETY: as above.
        #[cfg(not(target_feature = "thumb-mode"))]
        unsafe {
            asm!(".inst {w}", w = const isa("A32").probe[0], inout("r0") r, options(nomem, nostack, preserves_flags))
        };
        r as u32
    }

    macro_rules! call {
        ($directive:literal, $word:expr, $command:ident, $a:ident, $r:ident) => {
            asm!($directive, w = const $word, in("r12") $command, inout("r0") $r, in("r1") $a[1], in("r2") $a[2],
                in("r3") $a[3], in("r4") $a[4], in("r5") $a[5], options(nostack, preserves_flags))
        };
    }

    #[inline(always)]
    pub unsafe fn call(command: usize, a: [usize; 6]) -> usize {
        let mut r = a[0];
        // SAFETY: by contract.
        #[cfg(target_feature = "thumb-mode")]
        unsafe {
            call!(".inst.w {w}", isa("T32").call[0] << 16 | isa("T32").call[1], command, a, r)
        };
        // SAFETY: by contract.
        #[cfg(not(target_feature = "thumb-mode"))]
        unsafe {
            call!(".inst {w}", isa("A32").call[0], command, a, r)
        };
        r
    }
}

#[cfg(all(any(target_arch = "riscv64", target_arch = "riscv32"), not(feature = "disable")))]
mod this {
    use super::*;
    const ISA: Isa = isa("RISCV");

    #[inline(always)]
    pub fn probe() -> u32 {
        let mut r = 0usize;
        // SAFETY: a no-op, or it writes the register.
        unsafe {
            asm!(".insn i 0x13, 2, x0, x0, {i}", i = const ISA.probe[0] as i32 >> 20, inout("a0") r,
                options(nomem, nostack, preserves_flags))
        };
        r as u32
    }

    #[inline(always)]
    pub unsafe fn call(command: usize, a: [usize; 6]) -> usize {
        let mut r = a[0];
        // SAFETY: by contract.
        unsafe {
            asm!(".insn i 0x73, 1, x0, x17, {i}", i = const ISA.call[0] as i32 >> 20, in("a7") command,
                inout("a0") r, in("a1") a[1], in("a2") a[2], in("a3") a[3], in("a4") a[4], in("a5") a[5],
                options(nostack, preserves_flags))
        };
        r
    }
}

#[cfg(any(
    feature = "disable",
    not(any(
        target_arch = "x86_64",
        target_arch = "x86",
        target_arch = "aarch64",
        target_arch = "arm",
        target_arch = "riscv64",
        target_arch = "riscv32"
    ))
))]
mod this {
    #[inline(always)]
    pub fn probe() -> u32 {
        0
    }

    #[inline(always)]
    pub unsafe fn call(_: usize, _: [usize; 6]) -> usize {
        backdoor::Errno::ENOSYS.result() as usize
    }
}

pub(crate) use this::{call, probe};
