/*
 * Instructions of 2 and 4 bytes; lr/sc that succeeds, and sc without a reservation.
 */
#include "guest.h"
        .globl  START
        .text
        .option arch, rv64gc
START:  lla     a1, buf
        li      a2, 7
begin:  c.sw    a2, 4(a1)
load:   c.lw    a3, 4(a1)
        .option push
        .option norvc
wide:   sw      a3, 8(a1)
        .option pop
        addi    a4, a1, 12
lr:     lr.w    a5, (a4)
sc:     sc.w    a6, a2, (a4)
sc2:    sc.w    a6, a2, (a4)
amo:    amoadd.w a7, a2, (a4)
done:   EXIT    0
        .data
        .balign 8
buf:    .fill   16, 1, 0
