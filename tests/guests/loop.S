/*
 * A loop of 1000 turns: stores its counter, loads it back, counts down.
 * From `begin` to `done` each turn is the same known number of instructions, one store and one load.
 */
#include "guest.h"

        .text
#if defined(__arm__)
        .syntax unified
#ifdef __thumb__
        .thumb
#else
        .arm
#endif
#endif
#if defined(__mips__)
        .set noreorder
#endif
        .globl  START
#if defined(__arm__)
        .type   START, %function
#endif
START:
#if defined(__x86_64__)
        lea     buf(%rip), %rdi
        mov     $1000, %ecx
begin:  mov     %ecx, (%rdi)
load:   mov     (%rdi), %eax
        dec     %ecx
        jnz     begin
done:   EXIT    7
#elif defined(__i386__)
        mov     $buf, %edi
        mov     $1000, %ecx
begin:  mov     %ecx, (%edi)
load:   mov     (%edi), %eax
        dec     %ecx
        jnz     begin
done:   EXIT    7
#elif defined(__aarch64__)
        ldr     x1, =buf
        mov     w2, #1000
begin:  str     w2, [x1]
load:   ldr     w3, [x1]
        subs    w2, w2, #1
        b.ne    begin
done:   EXIT    7
#elif defined(__arm__)
        ldr     r1, =buf
        mov     r2, #1000
begin:  str     r2, [r1]
load:   ldr     r3, [r1]
        subs    r2, r2, #1
        bne     begin
done:   EXIT    7
#elif defined(__riscv)
        lla     a1, buf
        li      a2, 1000
begin:  sw      a2, 0(a1)
load:   lw      a3, 0(a1)
        addi    a2, a2, -1
        bnez    a2, begin
done:   EXIT    7
#elif defined(__mips__)
        lui     $a1, %hi(buf)
        addiu   $a1, $a1, %lo(buf)
        li      $a2, 1000
begin:  sw      $a2, 0($a1)
load:   lw      $a3, 0($a1)
        addiu   $a2, $a2, -1
        bnez    $a2, begin
        nop
done:   EXIT    7
#elif defined(__powerpc64__)
        lis     4, buf@ha
        addi    4, 4, buf@l
        li      5, 1000
begin:  stw     5, 0(4)
load:   lwz     6, 0(4)
        addic.  5, 5, -1
        bne     begin
done:   EXIT    7
#elif defined(__s390x__)
        larl    %r1, buf
        lhi     %r3, 1000
begin:  st      %r3, 0(%r1)
load:   l       %r4, 0(%r1)
        ahi     %r3, -1
        jnz     begin
done:   EXIT    7
#endif

        .data
        .balign 8
buf:    .fill   16, 1, 0
