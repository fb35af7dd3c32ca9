/*
 * Code and data above 0x80000000 in a 32-bit guest (linked there).
 */
#include "guest.h"
        .globl  START
        .text
#if defined(__i386__)
START:  mov     $buf, %edi
        mov     $0x89abcdef, %eax
begin:  mov     %eax, (%edi)
load:   mov     (%edi), %ebx
call:   call    sub
done:   EXIT    0
sub:    ret
#elif defined(__arm__)
        .syntax unified
        .arm
        .type   START, %function
START:  ldr     r1, =buf
        ldr     r2, =0x89abcdef
begin:  str     r2, [r1]
load:   ldr     r3, [r1]
call:   bl      sub
done:   EXIT    0
sub:    bx      lr
        .ltorg
#endif
end:    nop
        .data
        .balign 8
buf:    .fill   16, 1, 0
