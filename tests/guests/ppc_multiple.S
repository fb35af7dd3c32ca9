/*
 * Load and store multiple, strings, cache blocks. (They do not exist on little-endian.)
 */
#include "guest.h"
        .globl  START
        .text
START:  lis     4, buf@ha
        addi    4, 4, buf@l
        li      5, 7
begin:  lmw     29, 0(4)
stmw:   stmw    30, 32(4)
lswi:   lswi    6, 4, 7
stswi:  stswi   6, 4, 6
lwarx:  lwarx   6, 0, 4
sc:     stwcx.  5, 0, 4
sc2:    stwcx.  5, 0, 4
icbi:   icbi    0, 4
cross:  stw     5, 3(4)
zero:   dcbz    0, 4
done:   EXIT    0
        .data
        .balign 4096
buf:    .long   0x01020304, 0x05060708, 0x090a0b0c, 0x0d0e0f10
        .space  4000
