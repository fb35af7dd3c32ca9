/*
 * Pairs and structures of vector registers, cache-line zeroing, compare-and-swap.
 */
#include "guest.h"
        .arch   armv8.1-a
        .globl  START
        .text
START:  ldr     x1, =buf
        ldr     x2, =out
begin:  ldp     q0, q1, [x1]
stp:    stp     q0, q1, [x2]
ld4:    ld4     {v4.4s, v5.4s, v6.4s, v7.4s}, [x1]
pair:   ldp     x5, x6, [x1]
        mov     x7, #1
casno:  cas     x7, x5, [x1]                    /* x7 is not what is there: no store */
casyes: cas     x5, x7, [x1]
zva:    dc      zva, x2
done:   EXIT    0
        .data
        .balign 4096
buf:    .quad   0x0706050403020100, 0x0f0e0d0c0b0a0908
        .quad   0x1716151413121110, 0x1f1e1d1c1b1a1918
        .quad   0x2726252423222120, 0x2f2e2d2c2b2a2928
        .quad   0x3736353433323130, 0x3f3e3d3c3b3a3938
        .balign 4096
out:    .fill   4096, 1, 0xff
