/*
 * Reservations and atomics of 32 bits.
 */
#include "guest.h"
        .globl  START
        .text
START:  la      a1, buf
        li      a2, 7
begin:  lr.w    a3, (a1)
sc:     sc.w    a4, a2, (a1)
sc2:    sc.w    a4, a2, (a1)                    /* no reservation */
lr2:    lr.w    a3, (a1)
        addi    a5, a1, 4
sc3:    sc.w    a4, a2, (a5)                    /* reserved elsewhere */
add:    amoadd.w a3, a2, (a1)
swap:   amoswap.w a3, a2, (a1)
minu:   amominu.w a3, zero, (a1)
done:   EXIT    0
        .data
        .balign 8
buf:    .word   0x80000001, 2
