/*
 * Vector loads and stores by element, cache-block zeroing, compare-and-swap.
 */
#include "guest.h"
        .globl  START
        .text
        .option arch, +v, +zicboz
START:  lla     a1, buf
        lla     a2, out
        li      a3, 12
        vsetivli zero, 4, e32, m1, ta, mu
        li      t0, 5
        vsetivli zero, 1, e8, m1, ta, mu
        vmv.v.x v0, t0                          /* elements 0 and 2 */
        vsetivli zero, 4, e32, m1, ta, mu
        vid.v   v1
        vsll.vi v1, v1, 3                       /* 0, 8, 16, 24 */
        vmv.v.i v4, 0
begin:  vle32.v v2, (a1)
mask:   vle32.v v2, (a1), v0.t
st:     vse32.v v2, (a2), v0.t
stride: vlse32.v v3, (a1), a3
index:  vluxei32.v v4, (a1), v1, v0.t
scat:   vsoxei32.v v4, (a2), v1
seg:    vlseg2e32.v v6, (a1)
        lla     a4, edge
ff:     vle32ff.v v8, (a4)                      /* the last two words of a mapping: two loads */
        csrr    a5, vl
        addi    a5, a5, -2
        vsetivli zero, 2, e32, m1, ta, mu
whole:  vs1r.v  v2, (a2)
zero:   cbo.zero (a2)
amo:    amoswap.d a6, a3, (a1)
max:    amomax.w a6, x0, (a1)
done:   bnez    a5, 1f
        EXIT    0
1:      EXIT    1
        .data
        .balign 4096
buf:    .long   0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107, 0x108, 0x109, 0x10a, 0x10b
        .balign 64
out:    .fill   256, 1, 0xff
        .balign 4096
        .set    edge, . + 4096 - 8
        .fill   4096, 1, 0x77
