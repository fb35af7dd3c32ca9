/*
 * Saving and restoring the state of the x87, SSE and AVX units, packed decimals, atomics that QEMU makes in a loop.
 */
#include "guest.h"
#ifdef __x86_64__
#define DI %rdi
#else
#define DI %edi
#endif
        .globl  START
        .text
START:
#ifdef __x86_64__
        lea     area(%rip), DI
#else
        mov     $area, DI
#endif
        fninit
        fld1
begin:  fnstenv (DI)
ldenv:  fldenv  (DI)
fsv:    fnsave  (DI)
frs:    frstor  (DI)
env16:  fnstenvs 128(DI)
bcd:    fbld    bcdin - area(DI)
bst:    fbstp   192(DI)
fxs:    fxsave  (DI)
fxr:    fxrstor (DI)
        mov     $3, %eax                        /* x87 and SSE */
        xor     %edx, %edx
xsv:    xsave   1024(DI)
xrs:    xrstor  1024(DI)
        mov     $1, %eax                        /* x87 alone: MXCSR is neither saved nor restored */
xsv1:   xsave   2048(DI)
xrs1:   xrstor  2048(DI)
neg:    lock negl 3584(DI)                       /* holds 1 */
not:    lock notl 3584(DI)
dec:    lock decl 3584(DI)
bts:    lock btsl $4, 3584(DI)
xchg:   xchg    %eax, 3584(DI)
cmpno:  lock cmpxchg8b 3592(DI)                  /* edx:eax is not what is there */
done:   EXIT    0
        .data
        .balign 4096
area:   .fill   3584, 1, 0
        .long   1, 0
        .quad   0x1122334455667788
        .fill   512 - 16, 1, 0
bcdin:  .byte   0x21, 0x43, 0x65, 0x87, 0, 0, 0, 0, 0, 0x80
