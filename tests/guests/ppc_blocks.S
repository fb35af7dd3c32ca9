/*
 * Cache-line zeroing and reservations. (`lmw` does not exist on little-endian.)
 */
#include "guest.h"
        .machine power8
        .globl  START
        .text
START:  lis     4, buf@ha
        addi    4, 4, buf@l
        li      5, 7
begin:  dcbz    0, 4
lwarx:  lwarx   6, 0, 4
sc:     stwcx.  5, 0, 4
sc2:    stwcx.  5, 0, 4
lxv:    lxvd2x  0, 0, 4
done:   EXIT    0
        .data
        .balign 4096
buf:    .fill   4096, 1, 0xff
