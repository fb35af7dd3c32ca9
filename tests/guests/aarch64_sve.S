/*
 * Predicated vectors: only active elements touch memory, in order.
 */
#include "guest.h"
        .arch   armv8-a+sve
        .globl  START
        .text
START:  ldr     x1, =buf
        ldr     x2, =out
        ldr     x4, =edge
        mov     w3, #3
        ptrue   p0.s, vl4
        index   z1.s, #0, w3                    /* 0, 3, 6, 9 */
        mov     z2.s, #0
        cmpeq   p1.s, p0/z, z1.s, z2.s          /* element 0 */
        mov     z2.s, #6
        cmpeq   p2.s, p0/z, z1.s, z2.s          /* element 2 */
        orr     p1.b, p0/z, p1.b, p2.b          /* elements 0 and 2 */
        pfalse  p3.b
begin:  ld1w    z3.s, p1/z, [x1]
st:     st1w    z3.s, p1, [x2]
gather: ld1w    z4.s, p1/z, [x1, z1.s, uxtw #2] /* words 0 and 6 */
scat:   st1w    z4.s, p0, [x2, z1.s, uxtw #2]   /* words 0, 3, 6, 9 */
ld2:    ld2w    {z5.s, z6.s}, p1/z, [x1]        /* words 0, 1, 4, 5 */
bytes:  ld1b    z7.s, p0/z, [x1]                /* four bytes */
none:   ld1w    z8.s, p3/z, [x1]
        setffr
first:  ldff1w  z9.s, p0/z, [x4]                /* the last two words of a mapping: two loads */
        rdffr   p4.b
        cntp    x5, p0, p4.s
ffgat:  ldff1w  z9.s, p1/z, [x1, z1.s, uxtw #2]
done:   cmp     x5, #2
        b.ne    1f
        EXIT    0
1:      EXIT    1
        .data
        .balign 4096
buf:    .long   0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107, 0x108, 0x109, 0x10a, 0x10b
out:    .fill   64, 1, 0xff
        .balign 16384
        .set    edge, . + 65536 - 8
        .fill   65536, 1, 0x77
