/*
 * Storage-to-storage moves, load and store multiple, compare-and-swap.
 */
#include "guest.h"
        .globl  START
        .text
START:  larl    %r1, buf
        larl    %r2, out
begin:  mvc     0(100,%r2), 0(%r1)
stm:    stmg    %r6, %r9, 0(%r2)
lm:     lmg     %r6, %r9, 0(%r1)
        lhi     %r3, 1
        lhi     %r4, 7
csno:   cs      %r3, %r4, 0(%r1)                /* r3 is not what is there: no store */
csyes:  cs      %r3, %r4, 0(%r1)
done:   EXIT    0
        .data
        .balign 256
buf:    .fill   256, 1, 0x11
out:    .fill   256, 1, 0x22
