/*
 * Accesses that QEMU makes in helpers, loops and atomics.
 */
#include "guest.h"
        .globl  START
        .text
START:  lea     buf(%rip), %rdi
begin:  fldt    (%rdi)
fst:    fstpt   16(%rdi)
fxs:    fxsave  64(%rdi)
clear:  xor     %ecx, %ecx
zero:   rep stosb
        mov     $3, %ecx
        lea     buf(%rip), %rsi
        lea     512(%rsi), %rdi
copy:   rep movsb
        lea     buf(%rip), %rdi
        mov     $1, %eax
xadd:   lock xadd %eax, (%rdi)                  /* 0x11111111 + 1; eax = 0x11111111 */
cas:    lock cmpxchg %ecx, 4(%rdi)              /* equal: 0 is stored */
mov16:  movups  (%rdi), %xmm0
sto16:  movups  %xmm0, 4093+buf2(%rip)
        mov     $1, %eax
        xor     %edx, %edx
cas16:  lock cmpxchg16b (%rdi)                  /* not equal: what was read is written back */
done:   EXIT    0
        .data
        .balign 4096
buf:    .fill   4096, 1, 0x11
buf2:   .fill   8192, 1, 0
