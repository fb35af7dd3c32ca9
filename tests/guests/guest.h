/* What the free-standing guests share: how to end, per ISA. */
#ifndef GUEST_H
#define GUEST_H

#ifdef __ASSEMBLER__

#if defined(__mips__)
#define START __start
#else
#define START _start
#endif

#if defined(__powerpc64__)
        .abiversion 2           /* the entry point is code, not a descriptor */
#endif

/* exit_group(code); clobbers registers. */
.macro EXIT code
#if defined(__x86_64__)
        mov     $231, %eax
        mov     $\code, %edi
        syscall
#elif defined(__i386__)
        mov     $252, %eax
        mov     $\code, %ebx
        int     $0x80
#elif defined(__aarch64__)
        mov     x8, #94
        mov     x0, #\code
        svc     #0
#elif defined(__arm__)
        mov     r7, #248
        mov     r0, #\code
        svc     #0
#elif defined(__riscv)
        li      a7, 94
        li      a0, \code
        ecall
#elif defined(__mips64)
        li      $2, 5205
        li      $4, \code
        syscall
#elif defined(__mips__)
        li      $v0, 4246
        li      $a0, \code
        syscall
#elif defined(__powerpc__)
        li      0, 234
        li      3, \code
        sc
#elif defined(__s390x__)
        lghi    %r2, \code
        svc     248
#else
#error "an ISA without EXIT"
#endif
.endm

#endif
#endif
