/*
 * Gathers and masked moves: only active lanes touch memory.
 */
#include "guest.h"
        .globl  START
        .text
START:  lea     buf(%rip), %rdi
        vmovdqu idx(%rip), %xmm1
        vmovdqu mask(%rip), %xmm2
        vpxor   %xmm5, %xmm5, %xmm5
begin:  vpgatherdd %xmm2, (%rdi,%xmm1,4), %xmm0 /* lanes 0 and 2 */
none:   vpmaskmovd %xmm0, %xmm5, (%rdi)         /* no lane */
        vmovdqu mask(%rip), %xmm2
some:   vpmaskmovd %xmm0, %xmm2, (%rdi)         /* lanes 0 and 2 */
sload:  vpmaskmovd (%rdi), %xmm2, %xmm3
ymm:    vmovdqu (%rdi), %ymm4
done:   EXIT    0
        .data
        .balign 64
buf:    .long   0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107, 0x108, 0x109
        .balign 64
idx:    .long   0, 0, 8, 1
mask:   .long   0x80000000, 0, 0x80000000, 0
