/*
 * ldrex/strex (A32, T32) and ldxr/stxr (A64): one that succeeds, one without a reservation.
 */
#include "guest.h"
        .globl  START
        .text
#ifdef __aarch64__
START:  ldr     x1, =buf
        mov     w2, #7
begin:  ldxr    w3, [x1]
sc:     stxr    w4, w2, [x1]
sc2:    stxr    w4, w2, [x1]
done:   EXIT    0
#else
        .syntax unified
        .arch   armv7-a
#ifdef __thumb__
        .thumb
#else
        .arm
#endif
        .type   START, %function
START:  ldr     r1, =buf
        mov     r2, #7
begin:  ldrex   r3, [r1]
sc:     strex   r4, r2, [r1]
sc2:    strex   r4, r2, [r1]
done:   EXIT    0
#endif
        .data
        .balign 8
buf:    .fill   16, 1, 0x33
