/*
 * Quadword reservations, vectors, and vectors with a length.
 */
#include "guest.h"
        .machine power9
        .globl  START
        .text
START:  lis     4, buf@ha
        addi    4, 4, buf@l
        addi    5, 4, 64
        li      8, 1
        li      9, 2
begin:  lqarx   6, 0, 4
stq:    stqcx.  8, 0, 4
stq2:   stqcx.  8, 0, 4                         /* no reservation */
lbarx:  lbarx   6, 0, 4
stb:    stbcx.  9, 0, 4
lvx:    lvx     0, 0, 5
stvx:   stvx    0, 0, 4
lxv:    lxvx    1, 0, 5
stxv:   stxvx   1, 0, 4
        lis     10, 0x0500
        sldi    10, 10, 32                      /* length 5 */
lxvl:   lxvl    2, 5, 10
stxvl:  stxvl   2, 4, 10
        li      12, 3
lwat:   lwat    11, 4, 0                        /* fetch and add r12 */
lvewx:  lvewx   3, 0, 5
icbi:   icbi    0, 4
done:   EXIT    0
        .data
        .balign 4096
buf:    .quad   0x0706050403020100, 0x0f0e0d0c0b0a0908, 0, 0, 0, 0, 0, 0
        .quad   0x1716151413121110, 0x1f1e1d1c1b1a1918
        .fill   256, 1, 0xff
