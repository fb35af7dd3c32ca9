/*
 * T32: instructions of 2 and 4 bytes, an `it` block, a call from A32 and back.
 */
#include "guest.h"
        .syntax unified
        .arch   armv7-a
        .globl  START
        .text
        .arm
        .type   START, %function
START:  ldr     r1, =buf
        mov     r2, #7
call:   blx     thumb
back:   nop
done:   EXIT    0
        .ltorg

        .thumb
        .thumb_func
        .type   thumb, %function
thumb:  movs    r3, #1                          @ 2 bytes
wide:   str.w   r2, [r1, #4]                    @ 4 bytes
short:  ldr     r4, [r1, #4]                    @ 2 bytes
        cmp     r4, #7
it:     itet    eq
yes:    streq   r4, [r1]                        @ 2 bytes, executed
no:     strne   r4, [r1, #8]                    @ 2 bytes, not executed
yes2:   ldreq.w r5, [r1, #0]                    @ 4 bytes, executed
ret:    bx      lr
end:    nop
        .data
        .balign 8
buf:    .fill   16, 1, 0
