/*
 * Exclusives and compare-and-swap of all sizes, single atomics, block zeroing and copying.
 */
#include "guest.h"
        .arch   armv8.8-a+mops
        .globl  START
        .text
START:  ldr     x1, =buf
        mov     x2, #7
        mov     x3, #8
begin:  ldxp    x4, x5, [x1]
stxp:   stxp    w6, x2, x3, [x1]
stxp2:  stxp    w6, x2, x3, [x1]                /* no reservation */
ldxrb:  ldxrb   w4, [x1]
stxrb:  stxrb   w6, w3, [x1]
ldaxp:  ldaxp   w4, w5, [x1]
stlxp:  stlxp   w6, w2, w3, [x1]
        mov     x4, #1
        mov     x5, #1
casp:   casp    x4, x5, x2, x3, [x1]            /* not equal: x4, x5 become what is there */
casp2:  casp    x4, x5, x2, x3, [x1]
        add     x8, x1, #16
ldadd:  ldadd   w2, w6, [x8]
smax:   ldsmaxb w3, w6, [x8]
swp:    swp     x3, x6, [x8]
        add     x10, x1, #32
        mov     x11, #24
        mov     x12, #0x5a
set:    setp    [x10]!, x11!, x12
        setm    [x10]!, x11!, x12
        sete    [x10]!, x11!, x12
        mov     x10, x1
        add     x11, x1, #32
        mov     x12, #20
cpy:    cpyfp   [x10]!, [x11]!, x12!
        cpyfm   [x10]!, [x11]!, x12!
        cpyfe   [x10]!, [x11]!, x12!
done:   EXIT    0
        .data
        .balign 4096
buf:    .quad   0x0706050403020100, 0x0f0e0d0c0b0a0908
        .quad   5, 0
        .fill   8192, 1, 0xff
